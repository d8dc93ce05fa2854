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
use std::rc::Rc;
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
pub mod guest;
mod known;
pub mod pe;
mod regions;
mod registers;
mod rule;
mod stack;
mod throws;

pub use end::{End, Reason};
pub use regions::OpenFile;
pub use registers::{GO_G, Registers};
pub use stack::{Stack, StackCopy, copy_start};

use cfi::Context;
use guest::{Guest, Places, Role, Walk};
use known::Known;
use regions::{Region, Regions};
use rule::Rule;

/// Most frames of one native stack.
pub const MAX_NATIVE_DEPTH: usize = 8192;
/// Most instructions of code without tables followed in one walk: what is left out is done in later ones.
const MAX_FOLLOWED: usize = 4000;
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

/// Where a walk is.
#[derive(Clone, Copy)]
struct Frame {
    registers: Registers,
    /// The program counter is that of the next instruction, not behind a call.
    exact: bool,
    /// It was not found by a table.
    guessed: bool,
}

/// Unwinds the threads of one process. By default it knows no mapping.
#[derive(Default)]
pub struct Unwinder {
    regions: Regions,
    known: FxHashMap<u64, Known>,
    /// Of modules of Windows: their tables' pages, and how callers are found.
    pages: pe::Pages,
    steps: Vec<pe::Step>,
    context: Box<Context>,
    trampolines: Vec<u64>,
    looks: Cache,
    /// The ways out of functions without tables.
    exits: FxHashMap<u64, Arc<[Rule]>>,
    /// How many instructions this walk may still follow to find such.
    budget: usize,
    /// The runtime that describes some of the code.
    guest: Option<Rc<dyn Guest>>,
    /// The first address of the last walk that is in no known mapping, 0 = all are.
    unknown: u64,
    /// Whether the last walk went around frames.
    went_around: bool,
}

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder").field("regions", &self.regions).finish_non_exhaustive()
    }
}

impl Unwinder {
    /// Knows no mapping.
    pub fn new() -> Self {
        Unwinder::default()
    }

    /// Takes over a new list of mappings, sorted by address. Tables of files that are mapped as before are kept; a file
    /// that cannot be read, or has no tables, can still be walked through by frame pointers.
    /// True if code has come or gone.
    pub fn set_mappings(&mut self, memory: &dyn Memory, mappings: &[Mapping], open_file: OpenFile<'_>) -> bool {
        let changed = self.regions.update(memory, mappings, open_file);
        if changed {
            self.forget_rules();
            self.pages.clear();
            self.exits.clear();
            self.trampolines.clear();
        }
        changed
    }

    /// Whether code that the last walk went through is not there any more; the next list of mappings tells what is.
    pub fn replaced(&mut self, memory: &dyn Memory, frames: &[NativeFrame]) -> bool {
        self.regions.replaced(memory, frames)
    }

    /// A table made no sense: what was read of modules of Windows is read anew. One that was being loaded or unloaded may
    /// be whole by now. False if there is nothing to read.
    pub fn read_again(&mut self) -> bool {
        let any = self.regions.read_again();
        if any {
            self.forget_rules();
            self.pages.clear();
        }
        any
    }

    /// Asks `guest` first from now on.
    pub fn set_guest(&mut self, guest: Option<Rc<dyn Guest>>) {
        self.guest = guest;
        self.forget_rules();
    }

    /// Whether a frame is code that the guest describes.
    pub fn is_guest(&self, frame: &NativeFrame) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.guide(frame.lookup, true).is_some())
    }

    /// How many addresses had a rule already.
    pub fn looks(&self) -> Cache {
        self.looks
    }

    /// The first address of the last walk that is in no known mapping, 0 = all are in one.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Whether the last walk could not leave the vDSO by its frames, and went on where the runtime says: those between are
    /// not there.
    pub fn went_around(&self) -> bool {
        self.went_around
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
    pub fn function(&self, memory: &dyn Memory, pc: u64) -> Option<Range<u64>> {
        let index = self.regions.find(pc)?;
        if let Some(tables) = self.regions.tables(memory, index) {
            return tables.function(pc);
        }
        let region = self.regions.get(index)?;
        let elf = region.elf.as_ref()?;
        let mut tables = [&elf.exceptions, &elf.debug].into_iter().flatten();
        let range = tables.find_map(|table| table.function(pc.wrapping_sub(region.bias)))?;
        Some(range.start.wrapping_add(region.bias)..range.end.wrapping_add(region.bias))
    }

    /// All parts of the function that begins at `address`, in a module of Windows.
    pub fn parts(&self, memory: &dyn Memory, address: u64) -> Vec<Range<u64>> {
        let tables = self.regions.find(address).and_then(|index| self.regions.tables(memory, index));
        tables.map_or_else(Vec::new, |tables| tables.parts(memory, &self.pages, address))
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
        self.unwind_through(memory, start, &Places::default(), pieces, frames)
    }

    /// The same, through the stacks of a guest: `places` is what that has saved of the thread.
    pub fn unwind_through(
        &mut self,
        memory: &dyn Memory,
        start: &Registers,
        places: &Places,
        pieces: &[StackCopy<'_>],
        frames: &mut Vec<NativeFrame>,
    ) -> End {
        frames.clear();
        (self.unknown, self.went_around) = (0, false);
        self.budget = MAX_FOLLOWED;
        let trampolines = self.trampolines.len();
        let guest = self.guest.clone();
        let mut walk = guest.as_deref().map(|guest| Walk::new(guest, places));
        let mut frame = Frame { registers: *start, exact: true, guessed: false };
        loop {
            frame = match self.next(memory, &frame, pieces, frames, walk.as_mut()) {
                Ok(caller) => caller,
                // The first signal's frame that is met: the stack that it interrupted can be had.
                Err(end @ End::NeedMore { .. }) if self.trampolines.len() > trampolines => return end,
                // Out of the vDSO the runtime knows the way.
                Err(end) => match walk.as_mut().filter(|_| end != End::Bottom).and_then(Walk::clock) {
                    Some(registers) => {
                        self.went_around = true;
                        Frame { registers, exact: false, guessed: false }
                    }
                    None => return end,
                },
            };
        }
    }

    /// Notes a frame, and finds its caller.
    fn next(
        &mut self,
        memory: &dyn Memory,
        frame: &Frame,
        pieces: &[StackCopy<'_>],
        frames: &mut Vec<NativeFrame>,
        walk: Option<&mut Walk<'_>>,
    ) -> Result<Frame, End> {
        let Frame { registers, exact, guessed } = *frame;
        let pc = registers.ip();
        let known = self.look_up(memory, pc, exact);
        if known.is_none() && self.unknown == 0 {
            self.unknown = pc;
        }
        if !exact {
            match known {
                None => return Err(End::Truncated(Reason::UnknownCode)),
                Some(known) if guessed && !known.after_call => return Err(End::Truncated(Reason::NoTables)),
                Some(_) => {}
            }
        }
        if frames.len() >= MAX_NATIVE_DEPTH {
            return Err(End::Truncated(Reason::Depth));
        }
        let region = known.and_then(|known| self.regions.get(known.region as usize));
        let mapping = region.map_or(NO_MAPPING, |region| region.index);
        frames.push(NativeFrame { pc, lookup: lookup(pc, exact), sp: registers.sp(), mapping });
        // A call through a wild pointer: the return address is all that was pushed.
        let known = known.unwrap_or(Known { guess: true, ..Known::new(Rule::RETURN, 0, false) });
        if known.leaving {
            return Err(End::Truncated(Reason::Throwing));
        }
        if let Some((guide, walk)) = known.guide.zip(walk)
            && let Some(caller) = walk.step(guide, &registers, exact, pieces)
        {
            return caller.map(|(registers, exact)| Frame { registers, exact, guessed: false });
        }
        let stack = Stack::of_frame(pieces, registers.sp(), !exact);
        let caller = self.step(memory, &registers, known, exact, &stack)?;
        // glibc's vfork takes its return address off the stack: a leaf may leave none of its own there.
        let grown = caller.sp() > registers.sp() || (exact && caller.sp() == registers.sp());
        if !known.signal && !grown {
            return Err(End::Truncated(Reason::StackPointer));
        }
        if caller.ip() == 0 {
            return Err(self.at_zero(memory, known));
        }
        let mut interrupted = known.signal || known.guide.is_some_and(|guide| guide.role == Role::Injected);
        if known.throws != 0 && !throws::is_called(memory, caller.ip(), known.throws) {
            let after_call = self.look_up(memory, caller.ip(), false).is_some_and(|known| known.after_call);
            if !exact || after_call {
                return Err(End::Truncated(Reason::Throwing));
            }
            // Its last instructions: what it goes to is no return address, but a landing pad.
            interrupted = true;
        }
        Ok(Frame { registers: caller, exact: interrupted, guessed: known.guess })
    }

    /// What a return address of zero means: the first frame of a thread, on Windows only in the module that begins them.
    fn at_zero(&self, memory: &dyn Memory, known: Known) -> End {
        let index = known.region as usize;
        let module = self.regions.get(index).is_some_and(Region::is_module);
        let begins = || self.regions.tables(memory, index).is_some_and(|tables| tables.has_first);
        match known.guess || (module && !begins()) {
            true => End::Truncated(Reason::NoTables),
            false => End::Bottom,
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
            Rule::Unknown => Err(End::Truncated(Reason::BadTable)),
            Rule::Lost => Err(End::Truncated(Reason::NoTables)),
            Rule::Module(step) => match self.steps.get(step as usize) {
                Some(step) => step.apply(registers, stack),
                None => Err(End::Truncated(Reason::BadTable)),
            },
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
}

/// A return address may be the first of another function: the call is what counts.
fn lookup(pc: u64, exact: bool) -> u64 {
    if exact { pc } else { pc.wrapping_sub(1) }
}
