//! Mutated files: no panic, no hang, no memory over a bound. The entry functions are those of the fuzz targets; the
//! mutations are the same each time. 10,000 of each part with REMOTEPROF_LONG set, else 1,000. With REMOTEPROF_CORPUS
//! set the unchanged files are written to `CORPUS/PART/`, for fuzzing to start from.

#[path = "../fuzz/entries.rs"]
mod entries;
mod hostile_support;
mod symbols_support;
mod unwind_support;

use std::path::PathBuf;

use entries::{Part, jit_dump, names, perf_map, stacks};
use hostile_support::{mutations, rounds};
use symbols_support::{build_c, folder, run};
use unwind_support::program::Program;

fn check(name: &str, seeds: &[Vec<u8>], part: Option<Part>, entry: &dyn Fn(&[u8])) {
    let ranges = |seed: &[u8]| part.map_or_else(|| std::iter::once(0..seed.len()).collect(), |part| part.ranges(seed));
    mutations(name, seeds, rounds(1_000), &ranges, entry);
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
