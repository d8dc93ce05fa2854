//! What is known of a code address: found out once, then kept.

use super::code::Code;
use super::guest::Guide;
use super::rule::Rule;
use super::{Unwinder, exits, lookup, pe, throws};
use crate::memory::Memory;

/// Most addresses whose rules are kept.
pub const MAX_RULES: usize = 1 << 16;
/// Most signal trampolines of one process (one for each C library in it).
const MAX_TRAMPOLINES: usize = 4;

/// What is known of a code address.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// How to find its caller.
    pub rule: Rule,
    /// Its mapping, by its place among the executable ones.
    pub region: u32,
    /// The frame's caller was interrupted.
    pub signal: bool,
    /// The rule does not come from a table.
    pub guess: bool,
    /// A call ends here.
    pub after_call: bool,
    /// Where the function starts, if it throws exceptions; 0 for all others.
    pub throws: u64,
    /// It is about to leave for a handler.
    pub leaving: bool,
    /// What the runtime that it belongs to says of it.
    pub guide: Option<Guide>,
}

impl Known {
    /// What a table or a check says of ordinary code.
    pub fn new(rule: Rule, region: u32, after_call: bool) -> Known {
        Known { rule, region, signal: false, guess: false, after_call, throws: 0, leaving: false, guide: None }
    }
}

impl Unwinder {
    pub(super) fn look_up(&mut self, memory: &dyn Memory, pc: u64, exact: bool) -> Option<Known> {
        let key = key(pc, exact);
        let known = self.known.get(&key);
        self.looks.count(known.is_some());
        if let Some(known) = known {
            return Some(*known);
        }
        let known = self.find_out(memory, pc, exact)?;
        if self.known.len() >= MAX_RULES {
            self.forget_rules();
        }
        self.known.insert(key, known);
        Some(known)
    }

    /// What is known of code addresses is found out anew.
    pub(super) fn forget_rules(&mut self) {
        self.known.clear();
        self.steps.clear();
    }

    /// The same of an address in a module of Windows.
    fn find_in_module(&mut self, memory: &dyn Memory, pc: u64, exact: bool, region: usize) -> Known {
        let found = self.regions.tables(memory, region).map(|tables| {
            let first = tables.is_first(lookup(pc, exact));
            (first, tables.step(memory, &self.pages, pc, exact))
        });
        let after_call = !exact && Code::read(memory, pc).is_after_call();
        let known = |rule| Known::new(rule, region as u32, after_call);
        match found {
            Some((true, _)) => known(Rule::Bottom),
            Some((_, pe::Found::Step { step, guess, interrupts: signal })) => {
                // GCC's ___chkstk_ms, which all large frames begin with, has no table and uses the stack.
                let exits = if guess { exits::exits(memory, pc, &mut self.budget) } else { Vec::new() };
                if let Some(rule) = exits.into_iter().next().filter(|rule| *rule != Rule::RETURN) {
                    return Known { guess, ..known(rule) };
                }
                self.steps.push(step);
                Known { signal, guess, ..known(Rule::Module(self.steps.len() as u32 - 1)) }
            }
            Some((_, pe::Found::None)) => known(Rule::Lost),
            Some((_, pe::Found::Bad)) | None => known(Rule::Unknown),
        }
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
        if region.is_module() {
            return Some(self.find_in_module(memory, pc, exact, index));
        }
        if let Some(guide) = self.guest.as_ref().and_then(|guest| guest.guide(pc, exact)) {
            let code = Code::read(memory, pc);
            let after_call = !exact && code.is_after_call();
            return Some(match code.is_sigreturn(exact) {
                true => self.trampoline(pc, exact, index),
                false => Known { guide: Some(guide), ..known(guide.rule(), after_call) },
            });
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
            return Some(self.trampoline(pc, exact, index));
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

    fn trampoline(&mut self, pc: u64, exact: bool, region: usize) -> Known {
        if !exact && self.trampolines.len() < MAX_TRAMPOLINES {
            self.trampolines.push(pc);
        }
        Known { signal: true, ..Known::new(Rule::Signal, region as u32, false) }
    }
}

/// What is known of an address as a program counter may be wrong of it as a return address.
pub fn key(pc: u64, exact: bool) -> u64 {
    pc.wrapping_shl(1) | u64::from(exact)
}
