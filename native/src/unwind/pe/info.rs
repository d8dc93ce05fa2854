//! What a function's unwind table says: UNWIND_INFO, versions 1 and 2. Format: Microsoft, "x64 exception handling", sections
//! "struct UNWIND_INFO" and "struct UNWIND_CODE".

use gimli::Register;

use super::{Function, Image};
use crate::unwind::registers::{RA, RSP, Registers};
use crate::unwind::rule::missing;
use crate::unwind::stack::Stack;
use crate::unwind::{End, Reason};

/// Most tables of one function: parts of it lead to others, by which it is unwound further.
const MAX_CHAIN: usize = 32;
/// Bytes of the longest table: its header, 255 codes and one to make them even, and the function that it leads to.
const MAX_BYTES: usize = 4 + 2 * 256 + Function::BYTES;
/// DWARF's numbers of the registers, in the order that Windows numbers them.
const NUMBERS: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// Where in a machine frame the stack pointer is: behind rip, cs and flags.
const MACHINE_SP: i64 = 24;
/// Where in a CONTEXT the registers begin, in their order, rip behind them; and which a function keeps: rbx, rbp, rsi, rdi,
/// r12 to r15.
const CONTEXT_GENERAL: i64 = 0x78;
const KEPT: [u8; 8] = [3, 5, 6, 7, 12, 13, 14, 15];

/// UNW_FLAG_CHAININFO: the table goes on in that of another function.
const CHAINED: u8 = 4;
/// The flags that are known: that, and the two kinds of handlers.
const FLAGS: u8 = 7;

/// A register by its number of Windows.
pub fn register(number: u8) -> Register {
    Register(NUMBERS[usize::from(number & 15)])
}

/// A place in memory: a register's value and an offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose value it is measured from.
    pub register: Register,
    /// In bytes.
    pub offset: i64,
}

impl Place {
    /// Where the stack pointer points.
    pub const TOP: Place = Place { register: RSP, offset: 0 };

    /// So many bytes further up.
    pub fn up(self, bytes: i64) -> Place {
        Place { offset: self.offset + bytes, ..self }
    }
}

/// How the caller of a frame is found, from the registers of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where the return address lies; the caller's stack begins above it.
    pub returns: Place,
    /// Where registers were saved, each once.
    saved: Vec<(Register, Place)>,
    /// The caller did not call but was interrupted: where its stack pointer lies.
    pub interrupted: Option<Place>,
}

impl Step {
    /// Notes where a register was saved. Of one that is told twice the last counts: it was saved first.
    pub fn save(&mut self, register: Register, place: Place) {
        self.saved.retain(|(saved, _)| *saved != register);
        self.saved.push((register, place));
    }

    /// Whether a register was saved.
    pub fn has(&self, register: Register) -> bool {
        self.saved.iter().any(|(saved, _)| *saved == register)
    }

    /// Takes it.
    pub fn apply(&self, registers: &Registers, stack: &Stack<'_>) -> Result<Registers, End> {
        let sp = registers.sp();
        let at = |place: Place| {
            let value = registers.get(place.register).ok_or(End::Truncated(Reason::LostRegister))?;
            Ok(value.wrapping_add_signed(place.offset))
        };
        let read = |address: u64| stack.read(address).ok_or_else(|| missing(address, sp));
        let top = at(self.returns)?;
        if top < sp {
            return Err(End::Truncated(Reason::StackPointer));
        }
        let mut caller = registers.for_caller_on_windows();
        for (register, place) in &self.saved {
            caller.set(*register, read(at(*place)?)?);
        }
        caller.set(RA, read(top)?);
        let sp = self.interrupted.map_or(Ok(top.wrapping_add(8)), |place| read(at(place)?));
        caller.set(RSP, sp?);
        Ok(caller)
    }

    /// The return address lies on top: a function that has no frame.
    pub fn leaf() -> Step {
        Step { returns: Place::TOP, saved: Vec::new(), interrupted: None }
    }

    /// All that was interrupted lies on top, as a CONTEXT (winnt.h).
    pub fn context() -> Step {
        let place = |number: usize| Place::TOP.up(CONTEXT_GENERAL + 8 * number as i64);
        let saved = KEPT.into_iter().map(|number| (register(number), place(usize::from(number)))).collect();
        Step { returns: place(NUMBERS.len()), saved, interrupted: Some(place(4)) }
    }
}

/// One table.
struct Info {
    flags: u8,
    /// Bytes of the function that set its frame up.
    prologue: u8,
    /// The frame register's number (0 = none), and what it lies above the frame, bytes.
    frame: (u8, i64),
    codes: Vec<u16>,
    /// The function whose table goes on where this ends.
    chain: Option<Function>,
}

impl Info {
    /// The table of a function. None if there is none such, or of a kind that is not known.
    fn read(image: &Image<'_>, function: &Function) -> Option<Info> {
        if function.leads_on() {
            let chain = image.function(function.table())?;
            return Some(Info { flags: CHAINED, prologue: 0, frame: (0, 0), codes: Vec::new(), chain: Some(chain) });
        }
        let mut bytes = [0; MAX_BYTES];
        image.read(function.table(), &mut bytes[..4])?;
        let (version, flags, count) = (bytes[0] & 7, bytes[0] >> 3, usize::from(bytes[2]));
        if !matches!(version, 1 | 2) || flags & !FLAGS != 0 {
            return None;
        }
        let end = 4 + 2 * count.next_multiple_of(2);
        let chained = flags & CHAINED != 0;
        let size = if chained { end + Function::BYTES } else { end };
        image.read(function.table(), &mut bytes[..size])?;
        Some(Info {
            flags,
            prologue: bytes[1],
            frame: (bytes[3] & 15, i64::from(bytes[3] >> 4) * 16),
            codes: bytes[4..4 + 2 * count].chunks_exact(2).map(|code| u16::from_le_bytes([code[0], code[1]])).collect(),
            chain: if chained {
                Some(Function::parse(&bytes[end..size]).filter(|next| image.holds(next))?)
            } else {
                None
            },
        })
    }

    /// Where the frame register points to the frame, once it is set.
    fn pointed(&self) -> Option<Place> {
        let (number, above) = self.frame;
        (number != 0).then(|| Place { register: register(number), offset: -above })
    }
}

/// The operations of the codes.
mod operation {
    pub const PUSH: u8 = 0;
    pub const ALLOCATE_LARGE: u8 = 1;
    pub const ALLOCATE_SMALL: u8 = 2;
    pub const SET_FRAME: u8 = 3;
    pub const SAVE: u8 = 4;
    pub const SAVE_FAR: u8 = 5;
    /// Of version 2, where an epilogue is; in version 1 a saved xmm register, as long as this.
    pub const EPILOGUE: u8 = 6;
    pub const SPARE: u8 = 7;
    pub const SAVE_XMM: u8 = 8;
    pub const SAVE_XMM_FAR: u8 = 9;
    pub const MACHINE_FRAME: u8 = 10;
}

/// The function that `function` is a part of, by following its tables: most are a part of none. `budget`: how many tables
/// may be read, and becomes what is left of it.
pub fn primary(image: &Image<'_>, function: &Function, budget: &mut usize) -> Option<Function> {
    let mut function = *function;
    for _ in 0..MAX_CHAIN {
        *budget = budget.checked_sub(1)?;
        match Info::read(image, &function)?.chain {
            Some(next) => function = next,
            None => return Some(function),
        }
    }
    None
}

/// Whether a function is entered at its beginning, and not a part of another that was split off: such a part has a frame
/// from its first instruction on.
pub fn is_entered(image: &Image<'_>, function: &Function) -> bool {
    Info::read(image, function).is_some_and(|info| info.chain.is_none() && (info.prologue > 0 || info.codes.is_empty()))
}

/// One thing that a prologue does.
struct Operation {
    kind: u8,
    /// The register, or a small number.
    value: u8,
    /// Bytes.
    operand: i64,
    /// Whether it has been done.
    done: bool,
}

/// The codes one by one, as they are `offset` bytes behind the function's beginning. None if they make no sense.
fn operations(codes: &[u16], offset: u32) -> Option<Vec<Operation>> {
    let mut operations = Vec::with_capacity(codes.len());
    let mut codes = codes.iter().copied();
    while let Some(code) = codes.next() {
        let (kind, value) = ((code >> 8 & 15) as u8, (code >> 12) as u8);
        let mut near = || codes.next().map(i64::from);
        let operand = match kind {
            operation::ALLOCATE_LARGE if value == 0 => near()? * 8,
            operation::ALLOCATE_LARGE if value > 1 => return None,
            operation::ALLOCATE_LARGE | operation::SAVE_FAR | operation::SAVE_XMM_FAR | operation::SPARE => {
                near()? | near()? << 16
            }
            operation::ALLOCATE_SMALL => i64::from(value) * 8 + 8,
            operation::SAVE | operation::SAVE_XMM => near()? * 8,
            operation::EPILOGUE => near()?,
            operation::MACHINE_FRAME if value <= 1 => i64::from(value) * 8,
            operation::PUSH | operation::SET_FRAME => 0,
            _ => return None,
        };
        operations.push(Operation { kind, value, operand, done: offset >= u32::from(code & 0xff) });
    }
    Some(operations)
}

/// How the caller is found from `offset` bytes behind the beginning of `function`, which is not in an epilogue there. None
/// if the tables make no sense.
pub fn step(image: &Image<'_>, function: &Function, offset: u32) -> Option<Step> {
    let mut step = Step::leaf();
    let (mut function, mut offset) = (*function, offset);
    for _ in 0..MAX_CHAIN {
        let info = Info::read(image, &function)?;
        if apply(&info, offset, &mut step)? {
            return Some(step);
        }
        match info.chain {
            // Another entry for the same code.
            Some(next) if function.leads_on() => {
                offset = function.begin.checked_add(offset)?.checked_sub(next.begin)?;
                function = next;
            }
            // Whoever is in a part has all of the other's prologue behind it.
            Some(next) => (function, offset) = (next, u32::MAX),
            None => return Some(step),
        }
    }
    None
}

/// Takes back what one table tells that has been done. True after a machine frame, above which nothing of the function
/// lies.
fn apply(info: &Info, offset: u32, step: &mut Step) -> Option<bool> {
    let operations = operations(&info.codes, offset)?;
    let set = operations.iter().any(|operation| operation.kind == operation::SET_FRAME && operation.done);
    let pointed = info.pointed();
    // What is saved is measured from the frame: by its register, before that is set by the stack pointer.
    let has_frame = set || info.flags & CHAINED != 0 || offset >= u32::from(info.prologue);
    let base = pointed.filter(|_| has_frame).unwrap_or(Place::TOP);
    for Operation { kind, value, operand, .. } in operations.into_iter().filter(|operation| operation.done) {
        match kind {
            operation::PUSH => {
                step.save(register(value), step.returns);
                step.returns = step.returns.up(8);
            }
            operation::ALLOCATE_LARGE | operation::ALLOCATE_SMALL => step.returns = step.returns.up(operand),
            operation::SET_FRAME => step.returns = pointed?,
            operation::SAVE | operation::SAVE_FAR => step.save(register(value), base.up(operand)),
            operation::MACHINE_FRAME => {
                step.returns = step.returns.up(operand);
                step.interrupted = Some(step.returns.up(MACHINE_SP));
                return Some(true);
            }
            _ => {}
        }
    }
    Some(false)
}
