//! Steps through code that no table covers: stripped C libraries (musl's), hand-written and JIT'd code.

use std::sync::Arc;

use super::code::Code;
use super::known::{MAX_RULES, key};
use super::registers::{self, Registers};
use super::rule::{self, Rule};
use super::stack::Stack;
use super::{End, Unwinder, exits, lookup};
use crate::memory::Memory;

/// How far from the function that calls `main` the entry code's return address is looked for, in words: musl's
/// `__libc_start_main` has two small frames in between.
const ENTRY_WORDS: u64 = 32;

impl Unwinder {
    /// A step without tables.
    pub(super) fn bare(
        &mut self,
        memory: &dyn Memory,
        registers: &Registers,
        exact: bool,
        anonymous: bool,
        stack: &Stack<'_>,
    ) -> Result<Registers, End> {
        if let Some(caller) = self.exit(memory, registers, exact, stack)? {
            return Ok(caller);
        }
        let by_pointer = rule::frame_pointer(registers, stack);
        if !exact {
            return self.by_pointer(memory, registers, by_pointer, stack);
        }
        if let Ok(caller) = &by_pointer
            && is_outermost(caller)
        {
            return Err(End::Bottom);
        }
        let returned = stack.read(registers.sp()).map(|address| {
            let mut caller = registers.for_caller();
            caller.set(registers::RA, address);
            caller.set(registers::RSP, registers.sp().wrapping_add(8));
            caller
        });
        let mut good = |caller: &Registers| {
            caller.ip() != 0 && self.look_up(memory, caller.ip(), false).is_some_and(|known| known.after_call)
        };
        // Leaf functions in files keep no frame; JIT'd code does, and its slots may hold stale return addresses.
        let returned = returned.filter(&mut good);
        match (returned, by_pointer) {
            (Some(returned), Err(_)) => Ok(returned),
            (Some(returned), Ok(_)) if !anonymous => Ok(returned),
            (Some(returned), Ok(pointed)) => Ok(if good(&pointed) { pointed } else { returned }),
            (None, by_pointer) => by_pointer,
        }
    }

    /// A step by the instructions that are still to run, if one of the ways out leads to a return address.
    fn exit(
        &mut self,
        memory: &dyn Memory,
        registers: &Registers,
        exact: bool,
        stack: &Stack<'_>,
    ) -> Result<Option<Registers>, End> {
        if self.exits.len() >= MAX_RULES {
            self.exits.clear();
        }
        let pc = registers.ip();
        let known = self.exits.get(&key(pc, exact)).cloned();
        let rules = known.unwrap_or_else(|| {
            let mut rules = exits::exits(memory, pc, &mut self.budget);
            rules.extend(exact.then(|| Code::read(memory, pc).edge()).flatten());
            let rules: Arc<[Rule]> = rules.into();
            if self.budget > 0 {
                self.exits.insert(key(pc, exact), Arc::clone(&rules));
            }
            rules
        });
        let mut not_copied = None;
        for rule in rules.iter() {
            let Rule::Frame { register, indirect, offset, saved } = rule else { continue };
            match rule::frame(registers, stack, (*register, *indirect, *offset), saved) {
                Ok(caller) if self.look_up(memory, caller.ip(), false).is_some_and(|known| known.after_call) => {
                    return Ok(Some(caller));
                }
                Err(more @ End::NeedMore { address }) if address.wrapping_sub(registers.sp()) < exits::MAX_FRAME => {
                    not_copied.get_or_insert(more);
                }
                _ => {}
            }
        }
        not_copied.map_or(Ok(None), Err)
    }

    /// A step of a frame that has called, whose frame pointer leads to `pointed`.
    fn by_pointer(
        &mut self,
        memory: &dyn Memory,
        registers: &Registers,
        pointed: Result<Registers, End>,
        stack: &Stack<'_>,
    ) -> Result<Registers, End> {
        if let Ok(caller) = &pointed {
            if is_outermost(caller) {
                return Err(End::Bottom);
            }
            if self.look_up(memory, caller.ip(), false).is_some_and(|known| known.after_call) {
                return pointed;
            }
        }
        match self.entry(memory, registers, stack) {
            Some(caller) => Ok(caller),
            // Programs and threads start with rbp = 0 where they do not say so in a table.
            None if registers.get(registers::RBP) == Some(0) => Err(End::Bottom),
            None => pointed,
        }
    }

    /// A step to the program's entry code, from a function that does not return because it ends the program: the first
    /// return address of the main thread lies close by.
    fn entry(&mut self, memory: &dyn Memory, registers: &Registers, stack: &Stack<'_>) -> Option<Registers> {
        let sp = registers.sp();
        for at in (0..ENTRY_WORDS).map(|word| sp.wrapping_add(word * 8)) {
            let pc = stack.read(at)?;
            let region = self.regions.find(pc).and_then(|index| self.regions.get(index));
            let entered = region.is_some_and(|region| {
                region.elf.as_ref().is_some_and(|elf| elf.is_entry(lookup(pc, false).wrapping_sub(region.bias)))
            });
            if entered && self.look_up(memory, pc, false).is_some_and(|known| known.after_call) {
                let caller = Registers::new(pc, at.wrapping_add(8), 0);
                return Some(caller);
            }
        }
        None
    }
}

/// A frame pointer of 0 over a return address of 0.
fn is_outermost(caller: &Registers) -> bool {
    caller.ip() == 0 && caller.get(registers::RBP) == Some(0)
}
