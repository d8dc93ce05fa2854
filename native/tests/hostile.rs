//! Mutated files: no panic, no hang, no memory over a bound. The entry functions are those of the fuzz targets; the
//! mutations are the same each time. 10,000 of each part with REMOTEPROF_LONG set, else 1,000. With REMOTEPROF_CORPUS
//! set the unchanged files are written to `CORPUS/PART/`, for fuzzing to start from.

#[path = "../fuzz/entries.rs"]
mod entries;
mod symbols_support;
mod unwind_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use _native::target::sys::thread_cpu_ns;
use entries::{Part, jit_dump, names, perf_map, stacks};
use symbols_support::{Random, build_c, folder, run};
use unwind_support::program::Program;

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

fn rounds() -> usize {
    if std::env::var_os("REMOTEPROF_LONG").is_some() { 10_000 } else { 1_000 }
}

/// What one input took: time, memory.
fn measured(input: &[u8], entry: &dyn Fn(&[u8])) -> Result<(Duration, usize), String> {
    HELD.set(0);
    PEAK.set(0);
    let began = thread_cpu_ns();
    let result = catch_unwind(AssertUnwindSafe(|| entry(input)));
    let (took, peak) = (Duration::from_nanos(thread_cpu_ns() - began), PEAK.get());
    match result {
        Err(_) => Err("a panic".to_string()),
        Ok(()) if took > LIMIT => Err(format!("it took {took:?}")),
        Ok(()) if peak > MEMORY.0 + MEMORY.1 * input.len() => Err(format!("{peak} bytes of memory")),
        Ok(()) => Ok((took, peak)),
    }
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

fn check(name: &str, seeds: &[Vec<u8>], part: Option<Part>, entry: &dyn Fn(&[u8])) {
    if let Some(corpus) = std::env::var_os("REMOTEPROF_CORPUS") {
        let corpus = Path::new(&corpus).join(name);
        std::fs::create_dir_all(&corpus).unwrap();
        for (index, seed) in seeds.iter().enumerate() {
            std::fs::write(corpus.join(format!("seed{index}")), seed).unwrap();
        }
    }
    let count = rounds().div_ceil(seeds.len());
    let (mut longest, mut most) = (Duration::ZERO, 0);
    for (index, seed) in seeds.iter().enumerate() {
        let ranges = part.map_or_else(|| std::iter::once(0..seed.len()).collect(), |part| part.ranges(seed));
        assert!(!ranges.is_empty(), "{name}: seed {index} has nothing to change");
        for round in 0..count {
            let mut random = Random(0x5eed + ((index as u64) << 32) + round as u64 * 0x9e37);
            let mut mutated = seed.clone();
            mutate(&mut mutated, &ranges, &mut random);
            match measured(&mutated, entry) {
                Ok((took, peak)) => (longest, most) = (longest.max(took), most.max(peak)),
                Err(what) => panic!("{name}: seed {index}, round {round}: {what}"),
            }
        }
    }
    eprintln!("{name}: {} mutations, the longest took {longest:?}, at most {most} bytes", count * seeds.len());
}

fn read(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn headers() {
    let folder = folder("hostile_headers");
    let full = build_c(&folder, "full", &["-g", "-O2", "-Wl,--build-id"]);
    run(&folder, "objcopy", &["--only-keep-debug", "full", "debug"]);
    run(&folder, "objcopy", &["-S", "--add-gnu-debuglink=debug", "full", "stripped"]);
    let seeds = read(&[full, folder.join("stripped"), folder.join("debug")]);
    assert!(names(&seeds[0]) > 50 && stacks(&seeds[0], false) > 20 && stacks(&seeds[1], true) > 20);
    check("headers", &seeds, Some(Part::Headers), &|bytes| {
        names(bytes);
        stacks(bytes, false);
        stacks(bytes, true);
    });
}

#[test]
fn frames() {
    let program = Program::generate();
    let without = ["-O2", "-g", "-fno-asynchronous-unwind-tables", "-fno-exceptions"];
    let seeds = read(&[
        program.build("hostile-eh", &["-O2"]),
        program.build("hostile-debug", &without),
        program.build("hostile-compressed", &[&without[..], &["-gz=zlib"]].concat()),
    ]);
    for seed in &seeds {
        assert!(stacks(seed, false) > 30);
    }
    check("frames", &seeds, Some(Part::Frames), &|bytes| {
        stacks(bytes, false);
        stacks(bytes, true);
    });
}

#[test]
fn debug() {
    let folder = folder("hostile_debug");
    let mut paths: Vec<PathBuf> = [
        ("five", &["-g", "-O2", "-gdwarf-5"][..]),
        ("four", &["-g", "-O2", "-gdwarf-4"]),
        ("two", &["-g", "-O2", "-gdwarf-2"]),
        ("split", &["-g", "-O2", "-gdwarf-5", "-gsplit-dwarf"]),
    ]
    .iter()
    .map(|(name, flags)| build_c(&folder, name, flags))
    .collect();
    for form in ["zlib-gabi", "zlib-gnu"] {
        run(&folder, "objcopy", &[&format!("--compress-debug-sections={form}"), "five", form]);
    }
    paths.push(folder.join("zlib-gabi"));
    let seeds = read(&paths);
    assert!(seeds.iter().all(|seed| names(seed) > 50));
    check("debug", &seeds, Some(Part::Debug), &|bytes| {
        names(bytes);
    });
}

#[test]
fn symbols() {
    let folder = folder("hostile_symbols");
    let plain = build_c(&folder, "plain", &["-O2", "-Wl,-z,lazy"]);
    run(&folder, "objcopy", &["-S", "plain", "stripped"]);
    run(&folder, "xz", &["-k", "plain"]);
    run(&folder, "objcopy", &["--add-section", ".gnu_debugdata=plain.xz", "stripped", "mini"]);
    let seeds = read(&[plain, folder.join("stripped"), folder.join("mini")]);
    assert!(names(&seeds[0]) > 50 && names(&seeds[2]) > 50);
    check("symbols", &seeds, Some(Part::Symbols), &|bytes| {
        names(bytes);
    });
}

#[test]
fn perf_maps() {
    let text = b"1000 20 one\n0x1010 0x8 two\n1018 10 three with spaces \n7f0000000000 1000 far\n\
        ffffffffffffffff 10 over the end\n1100 0 empty\n1200\n+1000 10 signed\n0 ffffffffffffffff all\n1000 10 \xff";
    assert_eq!(perf_map(text), 7);
    check("perf_map", &[text.to_vec()], None, &|text| {
        perf_map(text);
    });
}

#[test]
fn jit_dumps() {
    let dump = symbols_support::jit_dump();
    assert_eq!(jit_dump(&dump), 5);
    check("jit_dump", &[dump], None, &|bytes| {
        jit_dump(bytes);
    });
}
