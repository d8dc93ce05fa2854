//! Code that a runtime describes better than the tables of its file do, and that goes from stack to stack: Go's.

use super::registers::{CALLEE_SAVED, RA, RSP, Registers};
use super::rule::{Rule, Saved};
use super::stack::{Stack, StackCopy};
use super::{End, Reason, copy_start, rule};
use crate::memory::Region;

/// How far below the place where the system stack was left the frame of a switch to it may begin.
const SWITCH_BYTES: u64 = 128;

/// What a frame does beside calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    Plain,
    /// It is the first of its stack.
    First,
    /// A signal put the call in: its caller is at the very pc.
    Injected,
    /// It chooses what runs next: nobody waits for it to return.
    Scheduler,
    /// It runs a function on the system stack, or something outside of the runtime's code.
    System,
    /// The same, for C; the stack pointer of where it comes from can be told by two words of its frame.
    ToC,
    /// C called: its frame is on both stacks.
    FromC,
    /// It goes to where something else was left.
    Resume,
    /// C calls it; it saved the registers in [`CALLEE_SAVED`], at these words from the CFA (0 = not this one).
    Entry([i16; 6]),
}

/// What is known of a place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guide {
    /// Bytes between the stack pointer and the return address; None = unknown.
    pub size: Option<u64>,
    /// What the frame does.
    pub role: Role,
}

/// How a pc that the runtime saved is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It is the next instruction.
    At,
    /// It is behind a call.
    Behind,
    /// It only stands for its caller, with this size of its frame.
    Stands(u64),
}

/// Where in the frame of [`Role::ToC`], in bytes from its stack pointer, the goroutine is, and where its depth; both are
/// of the frame while it calls. Without goroutine (0), the second is a stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSlots {
    /// The goroutine's structure.
    pub goroutine: u64,
    /// How far its stack pointer is below the base of its stack.
    pub depth: u64,
}

/// A runtime's knowledge of its code.
pub trait Guest: std::fmt::Debug {
    /// What is known of the code at `pc`: the next instruction if `exact`, else behind a call. None: it is not this code.
    fn guide(&self, pc: u64, exact: bool) -> Option<Guide>;

    /// How a saved pc is to be taken.
    fn resumed(&self, pc: u64) -> Resumed;

    /// The frame of [`Role::ToC`].
    fn call_slots(&self) -> Option<CallSlots>;
}

/// What the runtime has saved of one thread: where its walk goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Whether anything is known of the thread.
    pub known: bool,
    /// Whether its goroutine waits for this very thread to go on.
    pub locked: bool,
    /// Whether its goroutine's stack is being moved to where there is more room.
    pub moving: bool,
    /// Where its goroutine was left, pc and sp; None = it has none.
    pub left: Option<(u64, u64)>,
    /// Where a call of the vDSO came from, pc and sp.
    pub clock: Option<(u64, u64)>,
    /// Where the system stack was left, 0 = unknown.
    pub system_sp: u64,
    /// The goroutine's stack: [low, high).
    pub stack: (u64, u64),
}

/// What one read of the runtime tells of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Where its walk goes on.
    pub places: Places,
    /// The system stack: [low, high).
    pub system: (u64, u64),
    /// The labels of its goroutine, 0 = none.
    pub labels: u64,
    /// Whether it must not be preempted because of the garbage collector (m.preemptoff).
    pub collecting: bool,
}

/// A look at a thread: its number and stack pointer, and what its thread-local words count from (None: it sleeps).
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Its number.
    pub tid: u32,
    /// Its stack pointer.
    pub sp: u64,
    /// fs_base.
    pub base: Option<u64>,
    /// The register that holds the running g in Go code; 0 = unknown.
    pub g: u64,
    /// Most bytes of stack.
    pub most: u32,
}

/// The piece of a stack from `sp` on, if it is that of this stack.
pub fn piece(sp: u64, (low, high): (u64, u64), most: u32) -> Option<Region> {
    let address = copy_start(sp);
    (low <= sp && sp < high).then(|| Region { address, size: (high - address).min(u64::from(most)) as u32 })
}

/// A walk's way from stack to stack.
pub(super) struct Walk<'a> {
    guest: &'a dyn Guest,
    places: Places,
    /// Where the goroutine's part goes on below a call from C.
    resume: Option<(u64, u64)>,
    scheduling: bool,
}

/// A caller, and whether it was interrupted.
type Caller = (Registers, bool);

impl Guide {
    /// The rule to find the caller on the same stack.
    pub(super) fn rule(&self) -> Rule {
        let Some(offset) = self.size.and_then(|size| i32::try_from(size.checked_add(8)?).ok()) else {
            return Rule::Unknown;
        };
        let saved = match self.role {
            Role::First => return Rule::Bottom,
            Role::Entry(words) => words.map(|words| match words {
                0 => Saved::SAME,
                words => Saved::at(i64::from(words) * 8).unwrap_or(Saved::LOST),
            }),
            // It keeps none of them for its caller.
            _ => [Saved::LOST; CALLEE_SAVED.len()],
        };
        Rule::Frame { register: 7, indirect: false, offset, saved }
    }
}

impl<'a> Walk<'a> {
    pub fn new(guest: &'a dyn Guest, places: &Places) -> Walk<'a> {
        Walk { guest, places: *places, resume: None, scheduling: false }
    }

    /// Where a call of the vDSO came from, once.
    pub fn clock(&mut self) -> Option<Registers> {
        self.places.clock.take().map(|(pc, sp)| at(pc, sp))
    }

    /// The caller of a frame where that is not on the same stack; None: it is, or as good as that.
    pub fn step(
        &mut self,
        guide: Guide,
        registers: &Registers,
        exact: bool,
        pieces: &[StackCopy<'_>],
    ) -> Option<Result<Caller, End>> {
        let sp = registers.sp();
        let on_goroutine = (self.places.stack.0..self.places.stack.1).contains(&sp);
        match guide.role {
            Role::Scheduler => {
                self.scheduling = !self.places.locked;
                None
            }
            Role::System | Role::ToC => {
                if let Some(caller) = self.clock() {
                    return Some(Ok((caller, false)));
                }
                let switched = self.places.system_sp.wrapping_sub(sp) <= SWITCH_BYTES;
                if on_goroutine || (exact && !switched) {
                    return None;
                }
                if guide.role == Role::ToC && !exact {
                    return Some(self.leave_call(guide, sp, pieces));
                }
                Some(self.enter_goroutine(pieces))
            }
            Role::FromC if on_goroutine => Some(self.enter_system(guide, sp, pieces)),
            // It is about to go to the goroutine's stack, or has just come back: where that of older calls was left stands here.
            Role::FromC if sp == self.places.system_sp => self.take_older(sp, pieces).err().map(Err),
            Role::Resume if on_goroutine && self.places.left.is_some() => {
                let (pc, _) = self.places.left?;
                Some(self.resumed(pc, sp, pieces))
            }
            _ => None,
        }
    }

    /// From the system stack to where the goroutine was left for it.
    fn enter_goroutine(&mut self, pieces: &[StackCopy<'_>]) -> Result<Caller, End> {
        match self.resume.take().or(self.places.left) {
            _ if self.scheduling => Err(End::Bottom),
            _ if self.places.moving => Err(End::Truncated(Reason::Moving)),
            Some((pc, sp)) => self.resumed(pc, sp, pieces),
            None if self.places.known => Err(End::Bottom),
            None => Err(End::Truncated(Reason::OtherStack)),
        }
    }

    /// From C to what called it: on the goroutine's stack, or on the system stack where it was called there.
    fn leave_call(&mut self, guide: Guide, sp: u64, pieces: &[StackCopy<'_>]) -> Result<Caller, End> {
        let read = |address| read(pieces, address, sp);
        let slots = self.guest.call_slots().zip(guide.size);
        if let Some((slots, size)) = slots
            && read(sp.wrapping_add(slots.goroutine))? == 0
        {
            let slot = read(sp.wrapping_add(slots.depth))?.wrapping_add(size);
            if slot < sp {
                return Err(End::Truncated(Reason::StackPointer));
            }
            return Ok((at(read(slot)?, slot.wrapping_add(8)), false));
        }
        self.enter_goroutine(pieces)
    }

    /// From the goroutine's half of a call from C to the system stack's, where the C code is.
    fn enter_system(&mut self, guide: Guide, sp: u64, pieces: &[StackCopy<'_>]) -> Result<Caller, End> {
        let size = guide.size.ok_or(End::Truncated(Reason::BadTable))?;
        let slot = sp.wrapping_add(size);
        self.resume = Some((read(pieces, slot, sp)?, slot.wrapping_add(8)));
        let system = self.places.system_sp;
        if system == 0 {
            return Err(End::Truncated(Reason::OtherStack));
        }
        let slot = system.wrapping_add(size);
        let caller = at(read(pieces, slot, system)?, slot.wrapping_add(8));
        self.take_older(system, pieces)?;
        Ok((caller, false))
    }

    /// Where the system stack was left for the call from C before that of this frame: each older one is further up.
    fn take_older(&mut self, system: u64, pieces: &[StackCopy<'_>]) -> Result<(), End> {
        let older = read(pieces, system, system)?;
        self.places.system_sp = if older > system { older } else { 0 };
        Ok(())
    }

    fn resumed(&self, pc: u64, sp: u64, pieces: &[StackCopy<'_>]) -> Result<Caller, End> {
        match self.guest.resumed(pc) {
            Resumed::At => Ok((at(pc, sp), true)),
            Resumed::Behind => Ok((at(pc, sp), false)),
            Resumed::Stands(size) => {
                let slot = sp.wrapping_add(size);
                Ok((at(read(pieces, slot, sp)?, slot.wrapping_add(8)), false))
            }
        }
    }
}

fn at(pc: u64, sp: u64) -> Registers {
    let mut registers = Registers::default();
    registers.set(RA, pc);
    registers.set(RSP, sp);
    registers
}

fn read(pieces: &[StackCopy<'_>], address: u64, sp: u64) -> Result<u64, End> {
    Stack::of_frame(pieces, sp, true).read(address).ok_or_else(|| rule::missing(address, sp))
}

#[cfg(test)]
#[path = "guest_tests.rs"]
mod tests;
