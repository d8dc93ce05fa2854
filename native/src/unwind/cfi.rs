//! Call frame information: from an address to the [`Rule`] that finds its caller. `.eh_frame` and `.debug_frame` are read
//! by gimli; what takes more than a few additions is evaluated anew each time ([`Cfi::evaluate`]), with bounds.

use std::fmt;
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrameHdr, EndianSlice, Evaluation, EvaluationResult, Expression, LittleEndian,
    Location, Operation, Pointer, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression,
    UnwindSection, UnwindTableRow, Value,
};

use super::registers::{CALLEE_SAVED, RA, RSP, Registers};
use super::rule::{Rule, Saved};
use super::stack::Stack;

/// Most entries of one table without an index of its own.
const MAX_ENTRIES: usize = 2 << 20;
/// Largest instruction program of one function: beyond it no table is believed.
const MAX_PROGRAM_BYTES: usize = 256 << 10;
/// rax and rdx.
const EXCEPTION_ARGUMENTS: [Register; 2] = [Register(0), Register(1)];
/// Most steps of one expression.
const MAX_EXPRESSION_STEPS: u32 = 256;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Which of the two formats, which differ in details, a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `.eh_frame`.
    Exceptions,
    /// `.debug_frame`.
    Debug,
}

/// Rows and the stack of remembered rows have a fixed size: a hostile program cannot make them grow.
#[derive(Debug)]
pub struct Fixed;

impl UnwindContextStorage<usize> for Fixed {
    type Rules = [(Register, RegisterRule<usize>); 64];
    type Stack = Box<[UnwindTableRow<usize, Fixed>; 8]>;
}

/// Room for the evaluation of one row; used again and again.
pub type Context = UnwindContext<usize, Fixed>;

/// One table.
pub struct Cfi {
    kind: Kind,
    bytes: Vec<u8>,
    bases: BaseAddresses,
    /// `.eh_frame_hdr` with its sorted table, or else an index made here.
    header: Option<Sorted>,
    index: Vec<(u64, usize)>,
}

impl fmt::Debug for Cfi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cfi({:?}, {} bytes)", self.kind, self.bytes.len())
    }
}

/// The sorted table of `.eh_frame_hdr`, in the one encoding that linkers write: pairs of i32, relative to the header.
struct Sorted {
    bytes: Vec<u8>,
    at: u64,
}

impl Sorted {
    const ENCODING: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    const PAIRS: usize = 12;

    fn new(mut bytes: Vec<u8>, at: u64) -> Option<Sorted> {
        let counted = u32::from_le_bytes(bytes.get(8..Self::PAIRS)?.try_into().ok()?) as usize;
        let end = Self::PAIRS + counted * 8;
        let whole = bytes.starts_with(&Self::ENCODING) && bytes.len() >= end && counted > 0;
        bytes.truncate(end);
        whole.then_some(Sorted { bytes, at })
    }

    fn number(bytes: &[u8], at: u64) -> u64 {
        let number = bytes.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes));
        at.wrapping_add_signed(i64::from(number))
    }

    /// The address of the entry of the last function that starts at or before `address`.
    fn find(&self, address: u64) -> Option<u64> {
        let pairs = self.bytes.get(Self::PAIRS..)?;
        let (mut low, mut high) = (0, pairs.len() / 8);
        while low < high {
            let middle = low.midpoint(high);
            if Self::number(&pairs[middle * 8..], self.at) <= address { low = middle + 1 } else { high = middle }
        }
        let pair = low.checked_sub(1)? * 8;
        Some(Self::number(&pairs[pair + 4..], self.at))
    }
}

/// A rule, and whether its function is a signal trampoline: then its caller was interrupted, it did not call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The rule.
    pub rule: Rule,
    /// Whether the frame is a signal trampoline's.
    pub signal: bool,
    /// Where the function starts, as a file address, if it is one of those that throw exceptions.
    pub throws: Option<u64>,
}

impl Cfi {
    /// A table at file address `at`, with `.eh_frame_hdr` and its address if there is one.
    pub fn new(
        kind: Kind,
        bytes: Vec<u8>,
        at: u64,
        header: Option<(Vec<u8>, u64)>,
        bases: BaseAddresses,
    ) -> Option<Cfi> {
        let bases = bases.set_eh_frame(at);
        let header = header.and_then(|(bytes, at)| Sorted::new(bytes, at));
        let mut cfi = Cfi { kind, bytes, bases, header, index: Vec::new() };
        let sorted = cfi.header.is_some();
        if !sorted {
            cfi.index = match kind {
                Kind::Exceptions => cfi.make_index(&cfi.exceptions()),
                Kind::Debug => cfi.make_index(&cfi.debug()),
            };
        }
        (sorted || !cfi.index.is_empty()).then_some(cfi)
    }

    /// The address of `.eh_frame` that a `.eh_frame_hdr` at `at` names.
    pub fn table_address(header: &[u8], at: u64, bases: &BaseAddresses) -> Option<u64> {
        let bases = bases.clone().set_eh_frame_hdr(at);
        match EhFrameHdr::new(header, LittleEndian).parse(&bases, 8).ok()?.eh_frame_ptr() {
            Pointer::Direct(address) => Some(address),
            Pointer::Indirect(_) => None,
        }
    }

    fn exceptions(&self) -> gimli::EhFrame<Slice<'_>> {
        let mut section = gimli::EhFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn debug(&self) -> gimli::DebugFrame<Slice<'_>> {
        let mut section = gimli::DebugFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn make_index<'a, S: UnwindSection<Slice<'a>>>(&self, section: &S) -> Vec<(u64, usize)> {
        let mut index = Vec::new();
        let mut entries = section.entries(&self.bases);
        // What follows a damaged entry is lost, what came before is not.
        while let Ok(Some(entry)) = entries.next() {
            if let CieOrFde::Fde(partial) = entry
                && let Ok(fde) = partial.parse(S::cie_from_offset)
                && fde.len() > 0
            {
                index.push((fde.initial_address(), fde.offset()));
            }
            if index.len() >= MAX_ENTRIES {
                break;
            }
        }
        index.sort_unstable();
        index
    }

    fn entry_offset(&self, address: u64) -> Option<usize> {
        if let Some(header) = &self.header {
            return usize::try_from(header.find(address)?.checked_sub(self.bases.eh_frame.section?)?).ok();
        }
        let after = self.index.partition_point(|&(start, _)| start <= address);
        Some(self.index.get(after.checked_sub(1)?)?.1)
    }

    /// The file addresses of the function, or of the part of one, that covers `address`.
    pub fn function(&self, address: u64) -> Option<Range<u64>> {
        let offset = self.entry_offset(address)?;
        match self.kind {
            Kind::Exceptions => range_in(&self.exceptions(), &self.bases, offset.into(), address),
            Kind::Debug => range_in(&self.debug(), &self.bases, offset.into(), address),
        }
    }

    /// The rule at a file address; None if no function of the table covers it.
    pub fn rule(&self, context: &mut Context, address: u64) -> Option<Found> {
        let offset = self.entry_offset(address)?;
        match self.kind {
            Kind::Exceptions => rule_in(&self.exceptions(), &self.bases, offset.into(), context, address),
            Kind::Debug => rule_in(&self.debug(), &self.bases, offset.into(), context, address),
        }
    }

    /// Finds the caller's registers where [`Rule::Evaluate`] says so. Err holds the address that could not be read, if
    /// that is why.
    pub fn evaluate(
        &self,
        context: &mut Context,
        address: u64,
        registers: &Registers,
        stack: &Stack<'_>,
    ) -> Result<Registers, Option<u64>> {
        let offset = self.entry_offset(address).ok_or(None)?;
        match self.kind {
            Kind::Exceptions => {
                evaluate_in(&self.exceptions(), &self.bases, offset.into(), context, address, registers, stack)
            }
            Kind::Debug => evaluate_in(&self.debug(), &self.bases, offset.into(), context, address, registers, stack),
        }
    }
}

fn range_in<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
    address: u64,
) -> Option<Range<u64>> {
    let fde = section.fde_from_offset(bases, offset, S::cie_from_offset).ok()?;
    fde.contains(address).then(|| fde.initial_address()..fde.initial_address().saturating_add(fde.len()))
}

fn row_in<'a, 'c, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
    context: &'c mut Context,
    address: u64,
) -> Option<(&'c UnwindTableRow<usize, Fixed>, gimli::Encoding, bool)> {
    let fde = section.fde_from_offset(bases, offset, S::cie_from_offset).ok()?;
    if !fde.contains(address) || fde.entry_len() > MAX_PROGRAM_BYTES || fde.cie().entry_len() > MAX_PROGRAM_BYTES {
        return None;
    }
    let (encoding, signal) = (fde.cie().encoding(), fde.is_signal_trampoline());
    let row = fde.unwind_info_for_address(section, bases, context, address).ok()?;
    Some((row, encoding, signal))
}

fn rule_in<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
    context: &mut Context,
    address: u64,
) -> Option<Found> {
    let (row, _, signal) = row_in(section, bases, offset, context, address)?;
    let rule = translate(section, row).unwrap_or(Rule::Evaluate);
    // What leaves by __builtin_eh_return saves rax and rdx, which a landing pad gets its arguments in; nothing else does.
    let throws = EXCEPTION_ARGUMENTS.iter().all(|&register| row.register(register).is_some());
    let start = if throws { section.fde_from_offset(bases, offset, S::cie_from_offset).ok() } else { None };
    Some(Found { rule, signal, throws: start.map(|fde| fde.initial_address()) })
}

/// The rule of a row, if it is simple enough.
fn translate<'a, S: UnwindSection<Slice<'a>>>(section: &S, row: &UnwindTableRow<usize, Fixed>) -> Option<Rule> {
    match row.register(RA) {
        Some(RegisterRule::Undefined) => return Some(Rule::Bottom),
        Some(RegisterRule::Offset(-8)) => {}
        _ => return None,
    }
    let (register, offset, indirect) = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => (*register, *offset, false),
        CfaRule::Expression(expression) => indirection(section, expression)?,
    };
    if row.register(RSP).is_some() || register.0 > 15 {
        return None;
    }
    let mut saved = [Saved::SAME; 6];
    for (saved, register) in saved.iter_mut().zip(CALLEE_SAVED) {
        *saved = match row.register(register) {
            None | Some(RegisterRule::SameValue) => Saved::SAME,
            Some(RegisterRule::Undefined) => Saved::LOST,
            Some(RegisterRule::Offset(offset)) => Saved::at(offset)?,
            Some(_) => return None,
        };
    }
    Some(Rule::Frame { register: register.0 as u8, indirect, offset: i32::try_from(offset).ok()?, saved })
}

/// `*(register + offset)`: functions that align their stack keep the CFA in a slot.
fn indirection<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    expression: &UnwindExpression<usize>,
) -> Option<(Register, i64, bool)> {
    let expression = expression.get(section).ok()?;
    let mut operations =
        expression.operations(gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 });
    let Operation::RegisterOffset { register, offset, .. } = operations.next().ok()?? else { return None };
    let whole = matches!(operations.next(), Ok(Some(Operation::Deref { size: 8, space: false, .. })));
    (whole && operations.next().ok()?.is_none()).then_some((register, offset, true))
}

fn evaluate_in<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
    context: &mut Context,
    address: u64,
    registers: &Registers,
    stack: &Stack<'_>,
) -> Result<Registers, Option<u64>> {
    let (row, encoding, signal) = row_in(section, bases, offset, context, address).ok_or(None)?;
    let run = |expression: &UnwindExpression<usize>, initial: Option<u64>| {
        run_expression(expression.get(section).map_err(|_| None)?, encoding, initial, registers, stack)
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            registers.get(*register).ok_or(None)?.wrapping_add_signed(*offset)
        }
        CfaRule::Expression(expression) => run(expression, None)?,
    };
    let mut caller = registers.for_caller();
    caller.set(RSP, cfa);
    for number in 0..=RA.0 {
        let register = Register(number);
        let Some(rule) = row.register(register) else { continue };
        let value = match rule {
            RegisterRule::Undefined => None,
            RegisterRule::SameValue => registers.get(register),
            RegisterRule::Offset(offset) => {
                let at = cfa.wrapping_add_signed(offset);
                match stack.read(at) {
                    Some(value) => Some(value),
                    // Popped already: the register itself has it.
                    None if at < registers.sp() => registers.get(register),
                    None => return Err(Some(at)),
                }
            }
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(offset)),
            RegisterRule::Register(other) => registers.get(other),
            RegisterRule::Expression(expression) => {
                let at = run(&expression, Some(cfa))?;
                // GCC's epilogues of functions that align their stack still say *(%rbp) when %rbp has been popped. No
                // slot of a frame lies outside of it, so the register has its caller's value again.
                if signal || (registers.sp()..cfa).contains(&at) {
                    Some(stack.read(at).ok_or(Some(at))?)
                } else {
                    registers.get(register)
                }
            }
            RegisterRule::ValExpression(expression) => Some(run(&expression, Some(cfa))?),
            RegisterRule::Constant(value) => Some(value),
            _ => None,
        };
        match value {
            Some(value) => caller.set(register, value),
            None => caller.forget(register),
        }
    }
    caller.get(RA).ok_or(None)?;
    Ok(caller)
}

fn run_expression(
    expression: Expression<Slice<'_>>,
    encoding: gimli::Encoding,
    initial: Option<u64>,
    registers: &Registers,
    stack: &Stack<'_>,
) -> Result<u64, Option<u64>> {
    let mut evaluation: Evaluation<Slice<'_>> = expression.evaluation(encoding);
    evaluation.set_max_iterations(MAX_EXPRESSION_STEPS);
    if let Some(value) = initial {
        evaluation.set_initial_value(value);
    }
    let mut state = evaluation.evaluate().map_err(|_| None)?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = Value::Generic(registers.get(register).ok_or(None)?);
                evaluation.resume_with_register(value).map_err(|_| None)?
            }
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                let value = Value::Generic(stack.read(address).ok_or(Some(address))?);
                evaluation.resume_with_memory(value).map_err(|_| None)?
            }
            _ => return Err(None),
        };
    }
    match evaluation.as_result().last().map(|piece| &piece.location) {
        Some(Location::Address { address }) => Ok(*address),
        _ => Err(None),
    }
}
