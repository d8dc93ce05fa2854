//! How a function without tables returns: its instructions are followed, both ways at each branch, from where it is to
//! its `ret`. What they take off the stack on the way tells where the return address lies, and where the registers that
//! the function saved. (Epilogues do not lie; prologues would have to be found first.)
//!
//! Each way out is a candidate: one that led past a call that does not return ends in another function. The caller of
//! this module judges by the return address.

use std::collections::VecDeque;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashSet;

use super::rule::{Rule, Saved};
use crate::memory::Memory;

/// Most instructions followed from one address, and once a first way out has been found.
const MAX_INSTRUCTIONS: (usize, usize) = (2000, 200);
/// Most different ways out kept.
const MAX_EXITS: usize = 4;
/// Most pages of code read for one address.
const MAX_PAGES: usize = 64;
/// Largest frame, bytes: what one that was not copied whole is believed to have.
pub const MAX_FRAME: u64 = 256 << 10;
const PAGE: u64 = 4096;
/// Longest instruction.
const LONGEST: usize = 15;
/// The order of [`super::registers::CALLEE_SAVED`].
const CALLEE_SAVED: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
const RBP: usize = 1;

/// What a register is measured from: its value at the address where all began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    Sp,
    Bp,
}

/// A value of the stack pointer or frame pointer: base + offset; None = not known.
type Place = Option<(Base, i64)>;

/// Where a function is on its way out.
#[derive(Clone, Copy, Debug)]
struct State {
    address: u64,
    sp: Place,
    bp: Place,
    /// Where the registers that were restored on the way had been saved.
    restored: [Option<(Base, i64)>; 6],
}

/// The code of a process, read by pages; the one last used is the last.
struct Text<'a> {
    memory: &'a dyn Memory,
    pages: Vec<(u64, Vec<u8>)>,
}

impl Text<'_> {
    /// What there is of a page from `address` on.
    fn rest(&mut self, address: u64) -> Option<&[u8]> {
        let page = address & !(PAGE - 1);
        if self.pages.last().is_none_or(|last| last.0 != page) {
            match self.pages.iter().position(|(known, _)| *known == page) {
                Some(index) => {
                    let last = self.pages.len() - 1;
                    self.pages.swap(index, last);
                }
                None if self.pages.len() >= MAX_PAGES => return None,
                None => self.pages.push((page, self.memory.read_bytes(page, PAGE as usize, PAGE as usize).ok()?)),
            }
        }
        self.pages.last()?.1.get((address - page) as usize..)
    }

    fn instruction(&mut self, address: u64) -> Option<Instruction> {
        let bytes = self.rest(address)?;
        let decode = |bytes: &[u8]| Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        let mut instruction = decode(bytes);
        if instruction.is_invalid() && bytes.len() < LONGEST {
            let mut both = bytes.to_vec();
            both.extend_from_slice(self.rest(address.checked_add(both.len() as u64)?)?.get(..LONGEST)?);
            instruction = decode(&both);
        }
        (!instruction.is_invalid()).then_some(instruction)
    }
}

/// The ways out of the function that is at `pc`, those first that lead past no call. `budget` is how many instructions
/// may be followed at all, and becomes what is left of it.
pub fn exits(memory: &dyn Memory, pc: u64, budget: &mut usize) -> Vec<Rule> {
    let mut text = Text { memory, pages: Vec::new() };
    let start = State { address: pc, sp: Some((Base::Sp, 0)), bp: Some((Base::Bp, 0)), restored: [None; 6] };
    let mut found: Vec<Rule> = Vec::new();
    let mut seen = FxHashSet::default();
    // What comes after a call waits until all else has been tried.
    let (mut waiting, mut later) = (VecDeque::from([start]), VecDeque::new());
    let mut most = MAX_INSTRUCTIONS.0;
    while let Some(mut state) = waiting.pop_front().or_else(|| later.pop_front()) {
        let mut new = seen.insert(state.address);
        while new && most > 0 && *budget > 0 && found.len() < MAX_EXITS {
            most -= 1;
            *budget -= 1;
            let Some(instruction) = text.instruction(state.address) else { break };
            let next = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Next => state.apply(&instruction),
                FlowControl::Return => {
                    found.extend(state.rule().filter(|rule| !found.contains(rule)));
                    most = most.min(MAX_INSTRUCTIONS.1);
                    break;
                }
                FlowControl::UnconditionalBranch => {
                    state.address = instruction.near_branch_target();
                    new = seen.insert(state.address);
                    continue;
                }
                FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                    waiting.push_back(State { address: instruction.near_branch_target(), ..state });
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    // A system call is no call.
                    if instruction.mnemonic() == Mnemonic::Call {
                        later.push_back(State { address: next, ..state });
                        break;
                    }
                }
                _ => break,
            }
            state.address = next;
        }
    }
    found
}

impl State {
    fn apply(&mut self, instruction: &Instruction) {
        let to = instruction.op0_register();
        match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pushfq => self.move_sp(-8),
            Mnemonic::Pop if to == Register::RSP => self.sp = None,
            Mnemonic::Pop => {
                self.restore(to, self.sp);
                self.move_sp(8);
            }
            Mnemonic::Popfq => self.move_sp(8),
            Mnemonic::Leave => {
                self.sp = self.bp;
                self.restore(Register::RBP, self.sp);
                self.move_sp(8);
            }
            Mnemonic::Add | Mnemonic::Sub if to == Register::RSP => {
                let sign = if instruction.mnemonic() == Mnemonic::Add { 1 } else { -1 };
                match immediate(instruction) {
                    Some(value) => self.move_sp(value.saturating_mul(sign)),
                    None => self.sp = None,
                }
            }
            Mnemonic::Mov if to == Register::RSP && instruction.op1_register() == Register::RBP => self.sp = self.bp,
            Mnemonic::Mov if to == Register::RBP && instruction.op1_register() == Register::RSP => self.bp = self.sp,
            Mnemonic::Mov if instruction.code() == Code::Mov_r64_rm64 && instruction.op1_kind() == OpKind::Memory => {
                let from = self.address_of(instruction);
                if from.is_some() {
                    self.restore(to, from);
                }
            }
            Mnemonic::Lea if to == Register::RSP => self.sp = self.address_of(instruction),
            Mnemonic::Lea if to == Register::RBP => self.bp = self.address_of(instruction),
            Mnemonic::Cmp | Mnemonic::Test => {}
            _ if to == Register::RSP => self.sp = None,
            _ => {}
        }
    }

    fn move_sp(&mut self, by: i64) {
        self.sp = self.sp.map(|(base, offset)| (base, offset.saturating_add(by)));
    }

    /// `base + displacement` of an operand in memory, where the base is one of the two pointers.
    fn address_of(&self, instruction: &Instruction) -> Place {
        let pointer = match instruction.memory_base() {
            Register::RSP => self.sp,
            Register::RBP => self.bp,
            _ => None,
        };
        let (base, offset) = pointer.filter(|_| instruction.memory_index() == Register::None)?;
        Some((base, offset.saturating_add(instruction.memory_displacement64().cast_signed())))
    }

    fn restore(&mut self, register: Register, from: Place) {
        if let Some(index) = CALLEE_SAVED.iter().position(|&saved| saved == register) {
            // Below the first stack pointer lies what was pushed on the way: the register's value all along.
            let pushed = matches!(from, Some((Base::Sp, offset)) if offset < 0);
            self.restored[index] = from.filter(|_| !pushed);
            if index == RBP {
                self.bp = if pushed { Some((Base::Bp, 0)) } else { None };
            }
        }
    }

    /// The rule of a function that returns now.
    fn rule(&self) -> Option<Rule> {
        let (base, offset) = self.sp?;
        let cfa = offset.checked_add(8)?;
        let mut saved = [Saved::SAME; 6];
        for (saved, restored) in saved.iter_mut().zip(self.restored) {
            if let Some((from, place)) = restored {
                *saved = if from == base { Saved::at(place - cfa)? } else { Saved::LOST };
            }
        }
        let register = if base == Base::Sp { 7 } else { 6 };
        Some(Rule::Frame { register, indirect: false, offset: i32::try_from(cfa).ok()?, saved })
    }
}

fn immediate(instruction: &Instruction) -> Option<i64> {
    match instruction.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => Some(instruction.immediate(1).cast_signed()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorded::Recorded;

    /// The ways out at `at` of `code`, which is at 0x1000.
    fn from(code: &[u8], at: u64) -> Vec<Rule> {
        let mut bytes = vec![0xcc; 0x1000];
        bytes[..code.len()].copy_from_slice(code);
        exits(&Recorded::of(0x1000, &bytes), 0x1000 + at, &mut 1000)
    }

    fn frame(register: u8, offset: i32, saved: &[(usize, i64)]) -> Rule {
        let mut places = [Saved::SAME; 6];
        saved.iter().for_each(|&(index, at)| places[index] = Saved::at(at).unwrap());
        Rule::Frame { register, indirect: false, offset, saved: places }
    }

    #[test]
    fn pushes_and_pops() {
        // push %rbx; push %rbp; sub $24,%rsp; mov %rdi,%rbx; add $24,%rsp; pop %rbp; pop %rbx; ret
        let code = [0x53, 0x55, 0x48, 0x83, 0xec, 24, 0x48, 0x89, 0xfb, 0x48, 0x83, 0xc4, 24, 0x5d, 0x5b, 0xc3];
        assert_eq!(from(&code, 0), [frame(7, 8, &[])]);
        assert_eq!(from(&code, 1), [frame(7, 16, &[(0, -16)])]);
        assert_eq!(from(&code, 6), [frame(7, 48, &[(0, -16), (1, -24)])]);
        assert_eq!(from(&code, 14), [frame(7, 16, &[(0, -16)])]);
        assert_eq!(from(&code, 15), [frame(7, 8, &[])]);
    }

    #[test]
    fn frame_pointers() {
        // push %rbp; mov %rsp,%rbp; push %rbx; sub %rax,%rsp; mov -8(%rbp),%rbx; leave; ret
        let code = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x29, 0xc4, 0x48, 0x8b, 0x5d, 0xf8, 0xc9, 0xc3];
        assert_eq!(from(&code, 0), [frame(7, 8, &[])]);
        assert_eq!(from(&code, 1), [frame(7, 16, &[(1, -16)])]);
        assert_eq!(from(&code, 8), [frame(6, 16, &[(0, -24), (1, -16)])]);
    }

    #[test]
    fn branches_and_calls() {
        // jz 1f; call .; (garbage) pop %rbx; ret; 1: add $8,%rsp; jmp 2f; int3; 2: ret
        let code = [0x74, 0x07, 0xe8, 0, 0, 0, 0, 0x5b, 0xc3, 0x48, 0x83, 0xc4, 0x08, 0xeb, 0x01, 0xcc, 0xc3];
        // What leads past no call comes first.
        assert_eq!(from(&code, 0), [frame(7, 16, &[]), frame(7, 16, &[(0, -16)])]);
        // An endless loop, an indirect jump, bytes that are no code: no way out.
        assert_eq!(from(&[0xeb, 0xfe], 0), []);
        assert_eq!(from(&[0xff, 0xe0], 0), []);
        assert_eq!(from(&[0x06], 0), []);
        assert_eq!(from(&[0xc3], 0x5000), []);
    }
}
