//! Walks from stack to stack, through code that is made up.

use super::super::{NativeFrame, Unwinder};
use super::*;
use crate::memory::Memory;
use crate::target::Mapping;
use crate::target::recorded::Recorded;

const CODE: u64 = 0x10_0000;
/// Functions, each 16 bytes.
const HANDLER: u64 = CODE + 0x10;
const TRAMPOLINE: u64 = CODE + 0x20;
const CALLBACK: u64 = CODE + 0x30;
const C: u64 = CODE + 0x40;
const TO_C: u64 = CODE + 0x50;
const GO: u64 = CODE + 0x60;
const FIRST: u64 = CODE + 0x70;
/// Code that the guest does not know, such as the vDSO's.
const CLOCK: u64 = CODE + 0x100;
/// From the start of a function to behind a call in it.
const CALL: u64 = 5;
/// mov rax, 15; syscall: the return from a signal's handler.
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];

const SYSTEM: u64 = 0x7000_0000;
const GOROUTINE: u64 = 0x7100_0000;
const SIGNAL: u64 = 0x7200_0000;

#[derive(Debug)]
struct Runtime;

impl Guest for Runtime {
    fn guide(&self, pc: u64, _: bool) -> Option<Guide> {
        let (size, role) = match pc & !0xf {
            HANDLER | C | GO => (0, Role::Plain),
            CALLBACK => (16, Role::FromC),
            TO_C => (0, Role::ToC),
            FIRST => (0, Role::First),
            _ => return None,
        };
        Some(Guide { size: Some(size), role })
    }

    fn resumed(&self, _: u64) -> Resumed {
        Resumed::Behind
    }

    fn call_slots(&self) -> Option<CallSlots> {
        None
    }
}

fn memory() -> Recorded {
    let mut code = vec![0x90; 0x1000];
    code[(TRAMPOLINE - CODE) as usize..][..SIGRETURN.len()].copy_from_slice(&SIGRETURN);
    Recorded::of(CODE, &code)
}

fn unwinder(memory: &dyn Memory) -> Unwinder {
    let mapping = Mapping {
        start: CODE,
        end: CODE + 0x1000,
        permissions: "r-xp".to_string(),
        offset: 0,
        device: "00:00".to_string(),
        inode: 0,
        path: String::new(),
    };
    let mut unwinder = Unwinder::new();
    unwinder.set_mappings(memory, &[mapping], &|_| Err(std::io::ErrorKind::NotFound.into()));
    unwinder.set_guest(Some(std::rc::Rc::new(Runtime)));
    unwinder
}

/// A stack of so many words, of which these are not zero.
fn stack(words: usize, known: &[(u64, u64)]) -> Vec<u8> {
    let mut stack = vec![0; words];
    known.iter().for_each(|&(at, word)| stack[at as usize] = word);
    stack.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn pcs(frames: &[NativeFrame]) -> Vec<u64> {
    frames.iter().map(|frame| frame.pc).collect()
}

#[test]
fn the_stack_under_the_first_signal_is_asked_for_before_the_clock_is_gone_by() {
    let memory = memory();
    let mut unwinder = unwinder(&memory);
    // The handler's caller, and behind it the kernel's frame: rbp, rsp and rip of what was interrupted.
    let word = |slot: u64| 1 + slot / 8;
    let signal = [(0, TRAMPOLINE), (word(120), SYSTEM + 64), (word(160), SYSTEM), (word(168), CLOCK)];
    let signal = stack(32, &signal);
    let goroutine = stack(8, &[]);
    let pieces = [StackCopy { address: SIGNAL, bytes: &signal }, StackCopy { address: GOROUTINE, bytes: &goroutine }];
    let places = Places { known: true, clock: Some((FIRST + CALL, GOROUTINE)), ..Places::default() };
    let mut frames = Vec::new();
    let start = Registers::new(HANDLER, SIGNAL, 0);
    let end = unwinder.unwind_through(&memory, &start, &places, &pieces, &mut frames);
    assert!(matches!(end, End::NeedMore { .. }), "{end:?}");
    assert_eq!((pcs(&frames), unwinder.trampolines()), (vec![HANDLER, TRAMPOLINE, CLOCK], 1));
    assert!(!unwinder.went_around());
    assert_eq!(unwinder.signal_stack(&pieces[0]), Some(SYSTEM));
    // Where it is not to be had even so, the runtime knows the way.
    let end = unwinder.unwind_through(&memory, &start, &places, &pieces, &mut frames);
    assert_eq!((end, pcs(&frames)), (End::Bottom, vec![HANDLER, TRAMPOLINE, CLOCK, FIRST + CALL]));
    assert!(unwinder.went_around());
}

#[test]
fn a_call_from_c_that_is_about_to_return_has_left_the_system_stack_to_an_older_one() {
    let memory = memory();
    // Of the inner call, and eight words further up of the older one.
    let (inner, older) = (SYSTEM, SYSTEM + 64);
    let system = [(0, older), (2, C + CALL), (3, TO_C + CALL), (8, 0), (10, C + CALL), (11, FIRST + CALL)];
    let system = stack(16, &system);
    let goroutine = stack(8, &[(0, CALLBACK + CALL), (3, GO + CALL)]);
    let pieces = [StackCopy { address: SYSTEM, bytes: &system }, StackCopy { address: GOROUTINE, bytes: &goroutine }];
    let back = vec![C + CALL, TO_C + CALL, GO + CALL, CALLBACK + CALL, C + CALL, FIRST + CALL];
    // Before and after the runtime has noted that.
    for system_sp in [inner, older] {
        let places = Places {
            known: true,
            left: Some((GO + CALL, GOROUTINE)),
            stack: (GOROUTINE, GOROUTINE + 64),
            system_sp,
            ..Places::default()
        };
        let mut frames = Vec::new();
        let start = Registers::new(CALLBACK + CALL, SYSTEM, 0);
        let end = unwinder(&memory).unwind_through(&memory, &start, &places, &pieces, &mut frames);
        assert_eq!((end, pcs(&frames)), (End::Bottom, [vec![CALLBACK + CALL], back.clone()].concat()));
    }
}
