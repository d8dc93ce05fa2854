//! Variables read from memory that makes no sense: that of real interpreters, with words of it changed. No panic, no
//! hang, no memory over a bound. The mutations are the same each time for the same memory: 10,500 over all interpreters,
//! ten times as many with REMOTEPROF_LONG set.

mod cpython_support;
mod hostile_support;
mod symbols_support;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use _native::memory::Snapshot;
use _native::runtime::cpython::{CPython, Look, PyStack, ThreadLocals};
use _native::target::recorded::{Recorded, Recorder};
use cpython_support::{Target, interpreters};
use hostile_support::measured;
use symbols_support::Random;

const LOOK: Look = Look { budget: None, still: true };
/// Most words that are changed at a time.
const CHANGES: u64 = 200;
/// Longest text of one thread: `MAX_THREAD_BYTES`, and one frame more.
const MAX_BYTES: usize = (256 + 64) << 10;

fn rounds() -> u64 {
    if std::env::var_os("REMOTEPROF_LONG").is_some() { 15_000 } else { 1_500 }
}

/// A walked stack, its variables, and the memory that they were read from.
fn record(target: &Target) -> (CPython, ThreadLocals, Recorded) {
    target.stop();
    let mut python = target.open();
    let (mut snapshot, mut stack) = (Snapshot::with_capacity(1 << 20), PyStack::default());
    snapshot.begin(None);
    python.copy(&target.memory, &mut snapshot, target.pid, &mut stack).unwrap();
    let recorder = Recorder::new(&target.memory);
    let read = python.locals(&recorder, LOOK);
    (python, read, recorder.finish(Vec::new()))
}

/// Changes words of the recording; gives what they were.
fn mutate(memory: &mut Recorded, addresses: &[u64], random: &mut Random) -> Vec<(u64, usize, [u8; 8])> {
    let mut before = Vec::new();
    for _ in 0..=random.below(CHANGES) {
        let address = addresses[random.below(addresses.len() as u64) as usize];
        let other = addresses[random.below(addresses.len() as u64) as usize];
        let piece = memory.pieces.get_mut(&address).unwrap();
        let words = piece.len() as u64 / 8;
        let first = random.below(words);
        // Most of a page is nothing: look on for a word that says something.
        let at = (first..words).find(|&at| piece[at as usize * 8..][..8] != [0; 8]).unwrap_or(first) as usize * 8;
        let old: [u8; 8] = piece[at..at + 8].try_into().unwrap();
        let value = u64::from_le_bytes(old);
        let new = match random.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => value ^ 1 << random.below(64),
            3 => value.wrapping_add(random.below(17)).wrapping_sub(8),
            4 => value << random.below(40),
            5 => random.below(u64::MAX),
            // Something else that can be read.
            _ => other + random.below(512) * 8,
        };
        piece[at..at + 8].copy_from_slice(&new.to_le_bytes());
        before.push((address, at, old));
    }
    before
}

#[test]
fn memory_that_makes_no_sense() {
    let mut total = 0;
    for interpreter in interpreters() {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/targets/variables.py");
        let target = Target::command(Command::new(&interpreter.path).arg(script).arg("asleep"));
        let (python, whole, mut memory) = record(&target);
        let count: usize = whole.frames.iter().map(|frame| frame.locals.len()).sum();
        assert!(count > 100 && whole.unreadable == 0, "{}: {count} variables, {whole:?}", interpreter.version);
        assert_eq!(python.locals(&memory, LOOK), whole);
        let size = memory.pieces.values().map(Vec::len).sum();
        let addresses: Vec<u64> = memory.pieces.keys().copied().collect();
        let (mut differ, mut unreadable, mut longest, mut most) = (0, 0, Duration::ZERO, 0);
        for round in 0..rounds() {
            let before = mutate(&mut memory, &addresses, &mut Random(0x5eed + round * 0x9e37));
            let mut read = ThreadLocals::default();
            match measured(size, || read = python.locals(&memory, LOOK)) {
                Ok((took, peak)) => (longest, most) = (longest.max(took), most.max(peak)),
                Err(what) => panic!("{}: round {round}: {what}", interpreter.version),
            }
            assert!(read.bytes <= MAX_BYTES, "{}: round {round}: {} bytes of text", interpreter.version, read.bytes);
            differ += u64::from(read != whole);
            unreadable += u64::from(read.unreadable);
            for (address, at, old) in before.into_iter().rev() {
                memory.pieces.get_mut(&address).unwrap()[at..at + 8].copy_from_slice(&old);
            }
        }
        assert_eq!(python.locals(&memory, LOOK), whole);
        assert!(differ > rounds() / 2, "{}: only {differ} mutations were seen", interpreter.version);
        total += rounds();
        eprintln!(
            "{}: {count} variables in {size} bytes; {differ} of {} mutations seen, {unreadable} unreadable, the longest \
             took {longest:?}, at most {most} bytes",
            interpreter.version,
            rounds()
        );
    }
    assert!(total >= 10_000 || std::env::var_os("ONLY").is_some(), "too few interpreters: {total} mutations");
}
