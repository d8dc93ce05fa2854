//! Go programs whose memory lies: the saved memory of real ones, with counts that cannot be, and damaged in thousands of
//! ways. Each gives an answer or an error, in bounded time and memory. The entry functions are those of the fuzz targets.

mod go_support;
mod hostile_support;
mod symbols_support;

use std::cell::Cell;
use std::ops::Range;

use _native::memory::Memory;
use _native::runtime::go::Go;
use _native::runtime::go::derive::{self, Code};
use _native::runtime::go::live;
use _native::runtime::go::module::NotGo;
use _native::runtime::go::pclntab::{HEADER_BYTES, Header};
use _native::runtime::go::profiling;
use _native::runtime::go::threads;
use go_support::golang::{self, Saved, functions, program};
use go_support::{Saving, saved};
use hostile_support::{mutations, rounds};

/// Versions with the two layouts of the tables.
const VERSIONS: [&str; 2] = ["local", "1.18.10"];

fn header(go: &Go<'_>) -> Header {
    let address = go.image.find(&Header::MAGIC, false)[0] - 1;
    let bytes = go.image.read_bytes(address, HEADER_BYTES, HEADER_BYTES).unwrap();
    Header::parse(address, &bytes).unwrap()
}

impl Saved {
    fn open(&self) -> Result<(), NotGo> {
        Go::in_image(&self.recorded, self.image()).map(drop).map_err(|(reason, _)| reason)
    }
}

#[test]
fn a_saved_program_is_read_and_lying_counts_are_refused() {
    let at = Cell::new(0);
    let mut saved = saved("local", |saving| {
        at.set(header(&saving.go).address);
        Vec::new()
    });
    assert_eq!(saved.open(), Ok(()));
    for word in 0..8 {
        let at = at.get() + 8 + 8 * word;
        let before = saved.recorded.read_u64(at).unwrap();
        for lie in [0, 1, before.wrapping_add(1), before.wrapping_mul(1000), 1 << 22, 1 << 40, u64::MAX] {
            // The number of files is not used; the third word has been unused since Go 1.26.
            if lie != before && word != 1 && word != 2 {
                saved.put(at, lie);
                assert!(saved.open().is_err(), "word {word} as {lie:#x} instead of {before:#x}");
            }
        }
        saved.put(at, before);
    }
    assert_eq!(saved.open(), Ok(()));
}

/// Mutations of programs of each layout: some are still understood, some are not.
fn check(name: &str, count: usize, look: fn(Saving<'_>) -> Vec<Range<u64>>, entry: fn(&[u8]) -> bool) {
    let seeds: Vec<Vec<u8>> = VERSIONS.iter().map(|version| saved(version, look).to_bytes()).collect();
    assert!(seeds.iter().all(|seed| entry(seed)));
    let (understood, refused) = (Cell::new(0), Cell::new(0));
    mutations(name, &seeds, rounds(count), &golang::ranges, &|bytes| {
        let answer = if entry(bytes) { &understood } else { &refused };
        answer.set(answer.get() + 1);
    });
    let (understood, refused) = (understood.get(), refused.get());
    assert!(understood > count / 20 && refused > count / 20, "{name}: {understood} understood, {refused} refused");
}

/// The head and each of the tables behind it.
#[test]
fn tables_of_functions() {
    let look = |saving: Saving<'_>| {
        let Header { address, names, units, files, values, table, functions, .. } = header(&saving.go);
        let ends = [0, HEADER_BYTES as u64, names, units, files, values, table, table + 8 * functions + 4];
        let mut ranges: Vec<_> = ends.windows(2).map(|pair| address + pair[0]..address + pair[1]).collect();
        // What the functions say of themselves stands behind the last table.
        let last = address + table + 8 * functions + 4;
        ranges.push(last..last + 40 * functions);
        ranges.retain(|range| !range.is_empty());
        ranges
    };
    check("go_pclntab", 300, look, functions);
}

#[test]
fn inline_trees() {
    let look = |saving: Saving<'_>| {
        let Header { address, values, table, functions, .. } = header(&saving.go);
        let mut trees = saving.read_by(|go, _| {
            for index in 0..go.table.len() {
                let (function, end) = go.table.function(index).unwrap();
                for pc in (function.entry..end).step_by(16) {
                    go.table.calls(&go.image, &function, pc);
                }
            }
        });
        // Which call a pc is in, and where its function has its tree.
        trees.push(address + values..address + table);
        trees.push(address + table + 8 * functions..address + table + 48 * functions);
        trees
    };
    check("go_inline", 300, look, functions);
}

#[test]
fn derived_offsets() {
    let look = |saving: Saving<'_>| {
        saving.read_by(|go, memory| {
            let code = Code::new(&go.image, &go.table);
            let offsets = derive::derive(&code).unwrap();
            live::shape(memory, &go.image, &go.table, offsets).unwrap();
            threads::derive(&code, offsets.m).unwrap();
            for kind in golang::KINDS {
                profiling::variables(go, kind).unwrap();
            }
        })
    };
    check("go_derive", 120, look, program);
}
