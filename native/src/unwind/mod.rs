//! Native stacks from copied bytes, after the thread runs again.
//!
//! A walk goes by the tables of each file (`.eh_frame`, then `.debug_frame`), and where those are silent by what can be
//! checked: frame pointers and return addresses that follow a call. It never guesses in silence: [`End::Bottom`] means
//! that the frame below which there is nothing was reached, by return addresses that all lie in executable mappings and
//! with a stack pointer that only grew.
//!
//! The caller's part:
//! - [`Unwinder::set_mappings`] when mappings changed; [`Unwinder::knows`] tells that they did, and so does
//!   [`Reason::UnknownCode`]: the same copy can be unwound again then.
//! - Copy from the stack pointer to the thread's base. The base is the `sp` of the last frame of any walk of that thread
//!   that ended at the bottom, it stays the same for as long as the thread runs; until it is known, copy a little.
//! - [`Unwinder::signal_stack`], cheap enough for a stopped thread, says where another piece of stack must be copied
//!   from. Failing both, [`End::NeedMore`] says which address was missing in the copy: the next stop can take it along.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::memory::Memory;
use crate::stats::Cache;
use crate::target::Mapping;

mod bare;
mod cfi;
mod code;
mod elf;
mod end;
mod exits;
mod regions;
mod registers;
mod rule;
mod stack;
mod throws;

pub use end::{End, Reason};
pub use regions::OpenFile;
pub use registers::Registers;
pub use stack::{StackCopy, copy_start};

use cfi::Context;
use code::Code;
use regions::Regions;
use rule::Rule;
use stack::Stack;

/// Most frames of one native stack.
pub const MAX_NATIVE_DEPTH: usize = 8192;
/// Most addresses whose rules are kept.
const MAX_RULES: usize = 1 << 16;
/// Most instructions of code without tables followed in one walk: what is left out is done in later ones.
const MAX_FOLLOWED: usize = 4000;
/// Most signal trampolines of one process (one for each C library in it).
const MAX_TRAMPOLINES: usize = 4;
/// No mapping: [`NativeFrame::mapping`].
pub const NO_MAPPING: u32 = u32::MAX;

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFrame {
    /// Where it is: for the leaf and for an interrupted frame its program counter, else the return address into it.
    pub pc: u64,
    /// The address to look up: `pc` where that is a program counter, else one less, which is in the call.
    pub lookup: u64,
    /// Its stack pointer. The frame spans [its sp, the sp of the next older frame).
    pub sp: u64,
    /// Index of the mapping that `lookup` is in, or [`NO_MAPPING`].
    pub mapping: u32,
}

/// What is known of a code address.
#[derive(Clone, Copy, Debug)]
struct Known {
    rule: Rule,
    region: u32,
    /// The frame's caller was interrupted.
    signal: bool,
    /// The rule does not come from a table.
    guess: bool,
    /// A call ends here.
    after_call: bool,
    /// Where the function starts, if it throws exceptions; 0 for all others.
    throws: u64,
    /// It is about to leave for a handler.
    leaving: bool,
}

impl Known {
    /// What a table or a check says of ordinary code.
    fn new(rule: Rule, region: u32, after_call: bool) -> Known {
        Known { rule, region, signal: false, guess: false, after_call, throws: 0, leaving: false }
    }
}

/// Unwinds the threads of one process.
pub struct Unwinder {
    regions: Regions,
    known: FxHashMap<u64, Known>,
    context: Box<Context>,
    trampolines: Vec<u64>,
    looks: Cache,
    /// The ways out of functions without tables.
    exits: FxHashMap<u64, Arc<[Rule]>>,
    /// How many instructions this walk may still follow to find such.
    budget: usize,
}

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder").field("regions", &self.regions).finish_non_exhaustive()
    }
}

impl Default for Unwinder {
    /// Knows no mapping.
    fn default() -> Self {
        Unwinder {
            regions: Regions::default(),
            known: FxHashMap::default(),
            context: Box::new(Context::new_in()),
            trampolines: Vec::new(),
            looks: Cache::default(),
            exits: FxHashMap::default(),
            budget: 0,
        }
    }
}

impl Unwinder {
    /// Knows no mapping.
    pub fn new() -> Self {
        Unwinder::default()
    }

    /// Takes over a new list of mappings, sorted by address. Tables of files that are mapped as before are kept; a file
    /// that cannot be read, or has no tables, can still be walked through by frame pointers.
    pub fn set_mappings(&mut self, memory: &dyn Memory, mappings: &[Mapping], open_file: OpenFile<'_>) {
        if self.regions.update(memory, mappings, open_file) {
            self.known.clear();
            self.exits.clear();
            self.trampolines.clear();
        }
    }

    /// How many addresses had a rule already.
    pub fn looks(&self) -> Cache {
        self.looks
    }

    /// How many signal trampolines have been met: with a new one, [`Unwinder::signal_stack`] finds more.
    pub fn trampolines(&self) -> usize {
        self.trampolines.len()
    }

    /// Whether `pc` is in a known executable mapping.
    pub fn knows(&self, pc: u64) -> bool {
        self.regions.find(pc).is_some()
    }

    /// What was added to the addresses of the file whose code is at `pc`.
    pub fn bias(&self, pc: u64) -> Option<u64> {
        let region = self.regions.get(self.regions.find(pc)?)?;
        region.elf.as_ref().map(|_| region.bias)
    }

    /// The code of the function, or of the part of one that the compiler split off, that `pc` is in, by its table.
    pub fn function(&self, pc: u64) -> Option<Range<u64>> {
        let region = self.regions.get(self.regions.find(pc)?)?;
        let elf = region.elf.as_ref()?;
        let mut tables = [&elf.exceptions, &elf.debug].into_iter().flatten();
        let range = tables.find_map(|table| table.function(pc.wrapping_sub(region.bias)))?;
        Some(range.start.wrapping_add(region.bias)..range.end.wrapping_add(region.bias))
    }

    /// The indices of executable mappings that no table covers.
    pub fn without_tables(&self) -> impl Iterator<Item = u32> {
        self.regions.iter().filter(|region| region.bare()).map(|region| region.index)
    }

    /// Where the stack goes on that a signal interrupted, if the copied piece holds the frame of a signal handled on a
    /// stack of its own. Reads the copy only; finds trampolines that an earlier [`Unwinder::unwind`] has met.
    pub fn signal_stack(&self, copy: &StackCopy<'_>) -> Option<u64> {
        if self.trampolines.is_empty() {
            return None;
        }
        let end = copy.address.saturating_add(copy.bytes.len() as u64);
        let words = copy.bytes.chunks_exact(8).enumerate();
        for (index, word) in words {
            let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
            if self.trampolines.contains(&word) {
                let sp = copy.read(copy.address.wrapping_add(index as u64 * 8 + 8 + rule::SIGNAL_SP));
                if let Some(sp) = sp.filter(|sp| !(copy.address..end).contains(sp)) {
                    return Some(sp);
                }
            }
        }
        None
    }

    /// Walks from `start`; `pieces` is what was copied of the stack. `frames` are leaf first, and hold what was found
    /// also when the walk ends early. `memory` is asked for a few bytes of code at addresses that are met first.
    pub fn unwind(
        &mut self,
        memory: &dyn Memory,
        start: &Registers,
        pieces: &[StackCopy<'_>],
        frames: &mut Vec<NativeFrame>,
    ) -> End {
        frames.clear();
        self.budget = MAX_FOLLOWED;
        let (mut registers, mut exact, mut guessed) = (*start, true, false);
        loop {
            let pc = registers.ip();
            let known = self.look_up(memory, pc, exact);
            if !exact {
                match known {
                    None => return End::Truncated(Reason::UnknownCode),
                    Some(known) if guessed && !known.after_call => return End::Truncated(Reason::NoTables),
                    Some(_) => {}
                }
            }
            if frames.len() >= MAX_NATIVE_DEPTH {
                return End::Truncated(Reason::Depth);
            }
            let region = known.and_then(|known| self.regions.get(known.region as usize));
            let mapping = region.map_or(NO_MAPPING, |region| region.index);
            frames.push(NativeFrame { pc, lookup: lookup(pc, exact), sp: registers.sp(), mapping });
            // A call through a wild pointer: the return address is all that was pushed.
            let known = known.unwrap_or(Known { guess: true, ..Known::new(Rule::RETURN, 0, false) });
            if known.leaving {
                return End::Truncated(Reason::Throwing);
            }
            let stack = Stack::of_frame(pieces, registers.sp(), !exact);
            let caller = match self.step(memory, &registers, known, exact, &stack) {
                Ok(caller) => caller,
                Err(end) => return end,
            };
            // glibc's vfork takes its return address off the stack: a leaf may leave none of its own there.
            let grown = caller.sp() > registers.sp() || (exact && caller.sp() == registers.sp());
            if !known.signal && !grown {
                return End::Truncated(Reason::StackPointer);
            }
            if caller.ip() == 0 {
                return if known.guess { End::Truncated(Reason::NoTables) } else { End::Bottom };
            }
            let mut interrupted = known.signal;
            if known.throws != 0 && !throws::is_called(memory, caller.ip(), known.throws) {
                let after_call = self.look_up(memory, caller.ip(), false).is_some_and(|known| known.after_call);
                if !exact || after_call {
                    return End::Truncated(Reason::Throwing);
                }
                // Its last instructions: what it goes to is no return address, but a landing pad.
                interrupted = true;
            }
            (registers, exact, guessed) = (caller, interrupted, known.guess);
        }
    }

    fn step(
        &mut self,
        memory: &dyn Memory,
        registers: &Registers,
        known: Known,
        exact: bool,
        stack: &Stack<'_>,
    ) -> Result<Registers, End> {
        match known.rule {
            Rule::Bottom => Err(End::Bottom),
            Rule::Frame { register, indirect, offset, saved } => {
                rule::frame(registers, stack, (register, indirect, offset), &saved)
            }
            Rule::Signal => rule::signal(registers, stack),
            Rule::Evaluate => self.evaluate(registers, known, exact, stack),
            Rule::Bare { anonymous } => self.bare(memory, registers, exact, anonymous, stack),
        }
    }

    fn evaluate(
        &mut self,
        registers: &Registers,
        known: Known,
        exact: bool,
        stack: &Stack<'_>,
    ) -> Result<Registers, End> {
        let bad = End::Truncated(Reason::BadTable);
        let region = self.regions.get(known.region as usize).ok_or(bad)?;
        let elf = region.elf.as_ref().ok_or(bad)?;
        let address = lookup(registers.ip(), exact).wrapping_sub(region.bias);
        let mut tables = [&elf.exceptions, &elf.debug].into_iter().flatten();
        let table = tables.find(|table| table.rule(&mut self.context, address).is_some()).ok_or(bad)?;
        table.evaluate(&mut self.context, address, registers, stack).map_err(|missing| match missing {
            Some(address) => rule::missing(address, registers.sp()),
            None => bad,
        })
    }

    fn look_up(&mut self, memory: &dyn Memory, pc: u64, exact: bool) -> Option<Known> {
        let key = key(pc, exact);
        let known = self.known.get(&key);
        self.looks.count(known.is_some());
        if let Some(known) = known {
            return Some(*known);
        }
        let known = self.find_out(memory, pc, exact)?;
        if self.known.len() >= MAX_RULES {
            self.known.clear();
        }
        self.known.insert(key, known);
        Some(known)
    }

    #[cold]
    fn find_out(&mut self, memory: &dyn Memory, pc: u64, exact: bool) -> Option<Known> {
        let address = lookup(pc, exact);
        let index = self.regions.find(address)?;
        let region = self.regions.get(index)?;
        let known = |rule, after_call| Known::new(rule, index as u32, after_call);
        if region.is_vsyscall() {
            return Some(known(Rule::RETURN, false));
        }
        let file = address.wrapping_sub(region.bias);
        let tables = region.elf.iter().flat_map(|elf| [&elf.exceptions, &elf.debug]).flatten();
        let found = tables.filter_map(|table| table.rule(&mut self.context, file)).next();
        let throws = found.and_then(|found| found.throws).map_or(0, |start| start.wrapping_add(region.bias));
        let leaving = throws != 0 && throws::is_leaving(memory, pc);
        if exact
            && let Some(found) = found
            && !found.signal
        {
            return Some(Known { throws, leaving, ..known(found.rule, false) });
        }
        let code = Code::read(memory, pc);
        let after_call = !exact && code.is_after_call();
        if code.is_sigreturn(exact) {
            if !exact && self.trampolines.len() < MAX_TRAMPOLINES {
                self.trampolines.push(pc);
            }
            return Some(Known { signal: true, ..known(Rule::Signal, false) });
        }
        if let Some(found) = found {
            return Some(Known { signal: found.signal, throws, leaving, ..known(found.rule, after_call) });
        }
        let entry = region.elf.as_ref().is_some_and(|elf| elf.is_entry(file));
        if entry || (!exact && code.is_musl_thread()) {
            return Some(known(Rule::Bottom, after_call));
        }
        let rule = Rule::Bare { anonymous: region.elf.is_none() };
        Some(Known { guess: true, ..known(rule, after_call) })
    }
}

/// What is known of an address as a program counter may be wrong of it as a return address.
fn key(pc: u64, exact: bool) -> u64 {
    pc.wrapping_shl(1) | u64::from(exact)
}

/// A return address may be the first of another function: the call is what counts.
fn lookup(pc: u64, exact: bool) -> u64 {
    if exact { pc } else { pc.wrapping_sub(1) }
}
