//! For tests that feed readers with what makes no sense: what each takes is measured, and bounded.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use _native::target::sys::thread_cpu_ns;

use crate::symbols_support::Random;

/// Longest CPU time for one input.
const LIMIT: Duration = Duration::from_secs(1);
/// Most memory for one input at a time: this, and a multiple of its size. What is compressed may grow a thousandfold,
/// but the mutated sections are small.
const MEMORY: (usize, usize) = (16 << 20, 64);

/// Counts what the current thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn count(size: usize) {
    let held = HELD.get().wrapping_add(size);
    HELD.set(held);
    // What was allocated by another thread makes it negative.
    if held < usize::MAX / 2 {
        PEAK.set(PEAK.get().max(held));
    }
}

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.set(HELD.get().wrapping_sub(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What one input of `size` bytes took: time, memory.
pub fn measured(size: usize, entry: impl FnOnce()) -> Result<(Duration, usize), String> {
    HELD.set(0);
    PEAK.set(0);
    let began = thread_cpu_ns();
    let result = catch_unwind(AssertUnwindSafe(entry));
    let (took, peak) = (Duration::from_nanos(thread_cpu_ns() - began), PEAK.get());
    match result {
        Err(_) => Err("a panic".to_string()),
        Ok(()) if took > LIMIT => Err(format!("it took {took:?}")),
        Ok(()) if peak > MEMORY.0 + MEMORY.1 * size => Err(format!("{peak} bytes of memory")),
        Ok(()) => Ok((took, peak)),
    }
}

/// How many inputs are tried: ten times as many with REMOTEPROF_LONG set.
pub fn rounds(count: usize) -> usize {
    if std::env::var_os("REMOTEPROF_LONG").is_some() { 10 * count } else { count }
}

fn mutate(bytes: &mut Vec<u8>, ranges: &[Range<usize>], random: &mut Random) {
    let place = |random: &mut Random| {
        let range = &ranges[random.below(ranges.len() as u64) as usize];
        range.start + random.below(range.len() as u64) as usize
    };
    for _ in 0..=random.below(8) {
        let at = place(random);
        match random.below(6) {
            0 => bytes[at] = [0, 0xff, 0x7f, 0x80][random.below(4) as usize],
            1 => bytes[at] ^= 1 << random.below(8),
            2 => {
                let value = random.below(u64::MAX).to_le_bytes();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&value[..end - at]);
            }
            3 => {
                // Something that is well-formed elsewhere.
                let from = place(random);
                let size = (random.below(64) as usize).min(bytes.len() - at.max(from));
                bytes.copy_within(from..from + size, at);
            }
            _ => bytes[at] = random.below(256) as u8,
        }
    }
    if random.below(50) == 0 {
        bytes.truncate(random.below(bytes.len() as u64) as usize);
    }
}

/// Gives `entry` so many inputs in all: the seeds, each changed within the ranges that `ranges` gives of it. The changes are
/// the same each time. With REMOTEPROF_CORPUS set the seeds are written to `CORPUS/NAME/`, for fuzzing to start from.
pub fn mutations(
    name: &str,
    seeds: &[Vec<u8>],
    rounds: usize,
    ranges: &dyn Fn(&[u8]) -> Vec<Range<usize>>,
    entry: &dyn Fn(&[u8]),
) {
    if let Some(corpus) = std::env::var_os("REMOTEPROF_CORPUS") {
        let corpus = Path::new(&corpus).join(name);
        std::fs::create_dir_all(&corpus).unwrap();
        for (index, seed) in seeds.iter().enumerate() {
            std::fs::write(corpus.join(format!("seed{index}")), seed).unwrap();
        }
    }
    let count = rounds.div_ceil(seeds.len());
    let (mut longest, mut most) = (Duration::ZERO, 0);
    for (index, seed) in seeds.iter().enumerate() {
        let ranges = ranges(seed);
        assert!(!ranges.is_empty(), "{name}: seed {index} has nothing to change");
        for round in 0..count {
            let mut random = Random(0x5eed + ((index as u64) << 32) + round as u64 * 0x9e37);
            let mut mutated = seed.clone();
            mutate(&mut mutated, &ranges, &mut random);
            match measured(mutated.len(), || entry(&mutated)) {
                Ok((took, peak)) => (longest, most) = (longest.max(took), most.max(peak)),
                Err(what) => panic!("{name}: seed {index}, round {round}: {what}"),
            }
        }
    }
    eprintln!("{name}: {} mutations, the longest took {longest:?}, at most {most} bytes", count * seeds.len());
}
