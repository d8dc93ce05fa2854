//! Absurd stacks: no panic, no hang, and never a bottom that was not reached by return addresses. Damaged files: hostile.rs.

use _native::target::Mapping;
use _native::target::recorded::Recorded;
use _native::unwind::{End, MAX_NATIVE_DEPTH, Reason, Registers, StackCopy, Unwinder};

const BASE: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7ffd_0000_0000;

fn mapping(start: u64, end: u64, offset: u64, path: &str) -> Mapping {
    let inode = if path.starts_with('/') { 7 } else { 0 };
    let (permissions, device) = ("r-xp".to_string(), "fe:01".to_string());
    Mapping { start, end, permissions, offset, device, inode, path: path.to_string() }
}

/// Code without tables.
fn bare(path: &str) -> Unwinder {
    let mut unwinder = Unwinder::new();
    let none = |_: &Mapping| Err(std::io::ErrorKind::NotFound.into());
    unwinder.set_mappings(&Recorded::default(), &[mapping(BASE, BASE + 0x1000, 0, path)], &none);
    unwinder
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn frame_pointers_are_checked() {
    // Bytes of code: a call ends at 0x10 and at 0x20.
    let mut code = vec![0x90; 0x1000];
    code[0x0b] = 0xe8;
    code[0x1b] = 0xe8;
    let mut frames = Vec::new();
    let mut walk = |stack: &[u64], bp: u64| {
        let bytes = words(stack);
        let pieces = [StackCopy { address: STACK, bytes: &bytes }];
        let start = Registers::new(BASE + 0x100, STACK, bp);
        let end = bare("").unwind(&Recorded::of(BASE, &code), &start, &pieces, &mut frames);
        (end, frames.len())
    };
    let good = [0, 0, STACK + 32, BASE + 0x10, 0, BASE + 0x20, 0, 0];
    assert_eq!(walk(&good, STACK + 16), (End::Bottom, 3));
    // A return address that follows no call, one outside of all code, a pointer that goes backwards, one beyond.
    assert_eq!(walk(&[0, 0, STACK + 32, BASE + 0x30, 0, 0], STACK + 16), (End::Truncated(Reason::NoTables), 1));
    assert_eq!(walk(&[0, 0, STACK + 32, 0x10, 0, 0], STACK + 16), (End::Truncated(Reason::UnknownCode), 1));
    assert_eq!(walk(&[0, 0, STACK, BASE + 0x10, 0, 0], STACK + 16), (End::Truncated(Reason::NoTables), 2));
    assert_eq!(walk(&good, 0x1234), (End::Truncated(Reason::NoTables), 1));
    assert_eq!(walk(&good, STACK + 4096), (End::NeedMore { address: STACK + 4096 }, 1));
}

#[test]
fn vsyscall_returns() {
    let mut unwinder = Unwinder::new();
    let none = |_: &Mapping| Err(std::io::ErrorKind::NotFound.into());
    let page = 0xffff_ffff_ff60_0000;
    let mut vsyscall = mapping(page, page + 0x1000, 0, "[vsyscall]");
    vsyscall.permissions = "--xp".to_string();
    unwinder.set_mappings(&Recorded::default(), &[mapping(BASE, BASE + 0x1000, 0, ""), vsyscall], &none);
    let bytes = words(&[BASE + 0x10, 0]);
    let mut frames = Vec::new();
    let start = Registers::new(page + 7, STACK, 0);
    let pieces = [StackCopy { address: STACK, bytes: &bytes }];
    assert_eq!(unwinder.unwind(&Recorded::default(), &start, &pieces, &mut frames), End::Bottom);
    assert_eq!(frames.iter().map(|frame| frame.pc).collect::<Vec<_>>(), [page + 7, BASE + 0x10]);
}

#[test]
fn mappings_come_and_go() {
    let none = |_: &Mapping| Err(std::io::ErrorKind::NotFound.into());
    let memory = Recorded::default();
    let mut unwinder = Unwinder::new();
    let (first, second) = (mapping(BASE, BASE + 0x1000, 0, ""), mapping(BASE + 0x2000, BASE + 0x3000, 0, ""));
    unwinder.set_mappings(&memory, &[first.clone(), second.clone()], &none);
    assert!(unwinder.knows(BASE) && unwinder.knows(BASE + 0x2fff));
    assert!(!unwinder.knows(BASE + 0x1000) && !unwinder.knows(0) && !unwinder.knows(u64::MAX));
    unwinder.set_mappings(&memory, &[second], &none);
    assert!(!unwinder.knows(BASE) && unwinder.knows(BASE + 0x2000));
    let mut frames = Vec::new();
    let end = unwinder.unwind(&memory, &Registers::new(BASE + 0x2000, STACK, 0), &[], &mut frames);
    assert_eq!((end, frames[0].mapping), (End::Truncated(Reason::NoTables), 0));
    unwinder.set_mappings(&memory, &[first], &none);
    assert_eq!(unwinder.without_tables().collect::<Vec<_>>(), [0]);
}

#[test]
fn a_file_in_the_place_of_another_is_seen() {
    let none = |_: &Mapping| Err(std::io::ErrorKind::NotFound.into());
    let code = |byte: u8| Recorded::of(BASE, &[byte; 0x1000]);
    let list = [mapping(BASE, BASE + 0x1000, 0, "/one.so"), mapping(BASE + 0x2000, BASE + 0x3000, 0, "")];
    let mut unwinder = Unwinder::new();
    assert!(unwinder.set_mappings(&code(1), &list, &none));
    let mut frames = Vec::new();
    unwinder.unwind(&code(1), &Registers::new(BASE + 0x100, STACK, 0), &[], &mut frames);
    assert!(!frames.is_empty() && !unwinder.replaced(&code(1), &frames));
    // Another, and none at all.
    assert!(unwinder.replaced(&code(2), &frames) && unwinder.replaced(&Recorded::default(), &frames));
    // The list is the same, for all that it tells, but the file is read again.
    assert!(unwinder.set_mappings(&code(2), &list, &none));
    assert!(!unwinder.replaced(&code(2), &frames));
    // Where no file is, nothing is asked.
    unwinder.unwind(&code(2), &Registers::new(BASE + 0x2100, STACK, 0), &[], &mut frames);
    assert!(!frames.is_empty() && !unwinder.replaced(&Recorded::default(), &frames));
}

#[test]
fn a_file_in_memory_is_compared_with_the_one_opened() {
    let path = std::env::current_exe().expect("this program");
    let file = std::fs::read(&path).expect("readable");
    let open = |_: &Mapping| std::fs::File::open(&path);
    let (own, other) = (Recorded::of(BASE, &file[..0x1000]), Recorded::of(BASE, &[1; 0x1000]));
    let list = [mapping(BASE, BASE + 0x1000, 0, "/one.so")];
    let mut frames = Vec::new();
    let mut walked = |unwinder: &mut Unwinder, memory: &Recorded| {
        unwinder.unwind(memory, &Registers::new(BASE + 0x100, STACK, 0), &[], &mut frames);
        assert!(!frames.is_empty());
        unwinder.replaced(memory, &frames)
    };
    let mut unwinder = Unwinder::new();
    // Another came between the list and the look at it.
    assert!(unwinder.set_mappings(&other, &list, &open) && walked(&mut unwinder, &other));
    assert!(unwinder.set_mappings(&own, &list, &open) && !walked(&mut unwinder, &own));
    assert!(walked(&mut unwinder, &other));
    // Nothing was there when the file was looked at.
    assert!(unwinder.set_mappings(&Recorded::default(), &list, &open) && walked(&mut unwinder, &own));
    // A program that changed its own first bytes: each look finds the same again.
    for look in 1..=10 {
        assert!(unwinder.set_mappings(&other, &list, &open));
        assert_eq!(walked(&mut unwinder, &other), look < 10);
    }
    assert!(!unwinder.set_mappings(&other, &list, &open));
}

#[test]
fn endless_recursion_is_cut() {
    let mut code = vec![0x90; 0x1000];
    code[0x0b] = 0xe8;
    let count = 2 * MAX_NATIVE_DEPTH as u64;
    let stack: Vec<u64> = (0..count).flat_map(|at| [STACK + (at + 1) * 16, BASE + 0x10]).collect();
    let bytes = words(&stack);
    let mut frames = Vec::new();
    let pieces = [StackCopy { address: STACK, bytes: &bytes }];
    let end =
        bare("").unwind(&Recorded::of(BASE, &code), &Registers::new(BASE + 0x100, STACK, STACK), &pieces, &mut frames);
    assert_eq!((end, frames.len()), (End::Truncated(Reason::Depth), MAX_NATIVE_DEPTH));
}
