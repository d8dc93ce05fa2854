//! Steps through code that no table covers: stripped C libraries (musl's), hand-written and JIT'd code.

use std::sync::Arc;

use super::code::Code;
use super::registers::{self, Registers};
use super::rule::{self, Rule};
use super::stack::Stack;
use super::{End, MAX_RULES, Unwinder, exits, key, lookup};
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
        if !exact && let Some(caller) = self.entry(memory, registers, stack)? {
            return Ok(caller);
        }
        let bp = registers.get(registers::RBP);
        if !exact && bp == Some(0) {
            // Programs and threads start with rbp = 0 where they do not say so in a table.
            return Err(End::Bottom);
        }
        let by_pointer = rule::frame_pointer(registers, stack);
        if let Ok(caller) = &by_pointer
            && caller.ip() == 0
            && caller.get(registers::RBP) == Some(0)
        {
            return Err(End::Bottom);
        }
        if !exact {
            return by_pointer;
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
        let find = || {
            let mut rules = exits::exits(memory, pc);
            rules.extend(exact.then(|| Code::read(memory, pc).edge()).flatten());
            rules.into()
        };
        let rules = Arc::clone(self.exits.entry(key(pc, exact)).or_insert_with(find));
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

    /// A step to the program's entry code, from a function that does not return because it ends the program: the first
    /// return address of the main thread lies close by.
    fn entry(
        &mut self,
        memory: &dyn Memory,
        registers: &Registers,
        stack: &Stack<'_>,
    ) -> Result<Option<Registers>, End> {
        let sp = registers.sp();
        for at in (0..ENTRY_WORDS).map(|word| sp.wrapping_add(word * 8)) {
            let Some(pc) = stack.read(at) else {
                let outermost = registers.get(registers::RBP) == Some(0);
                return if outermost { Ok(None) } else { Err(rule::missing(at, sp)) };
            };
            let region = self.regions.find(pc).and_then(|index| self.regions.get(index));
            let entered = region.is_some_and(|region| {
                region.elf.as_ref().is_some_and(|elf| elf.is_entry(lookup(pc, false).wrapping_sub(region.bias)))
            });
            if entered && self.look_up(memory, pc, false).is_some_and(|known| known.after_call) {
                let mut caller = Registers::asleep(pc, at.wrapping_add(8));
                caller.set(registers::RBP, 0);
                return Ok(Some(caller));
            }
        }
        Ok(None)
    }
}
