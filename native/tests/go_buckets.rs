//! The buckets of Go's profiles: where they are, beside what the symbol table says; and lists of them in memory that is made
//! up, whole and damaged in thousands of ways.

mod go_support;
mod hostile_support;
mod symbols_support;

use std::cell::Cell;

use _native::error::ReadError;
use _native::runtime::go::Go;
use _native::runtime::go::buckets::{self, Buckets, MAX_STACK, Refused};
use _native::runtime::go::profiling::{self, Cycle, Heap, Kind, Missing, Variables};
use _native::target::linux::Process;
use _native::target::recorded::Recorded;
use go_support::golang::{self, Saved};
use go_support::{Running, STRIPPED, build_of, saved};
use hostile_support::{mutations, rounds};
use object::{Object, ObjectSegment, ObjectSymbol};

/// Versions of which every test run tries one each; with REMOTEPROF_LONG all that follow too.
const VERSIONS: [&str; 4] = ["1.18.10", "1.21.13", "1.23.12", "local"];
const MORE: [&str; 12] = [
    "1.18", "1.19.13", "1.20", "1.20.14", "1.21.0", "1.22.0", "1.22.12", "1.23.0", "1.24.0", "1.24.13", "1.25.0",
    "1.19",
];

fn check(version: &str, cgo: bool, flags: &[&str]) {
    let binary = build_of("gobuckets", version, cgo, flags);
    let running = Running::start(&binary);
    let process = Process::open(running.pid()).unwrap();
    let mappings = process.mappings().unwrap();
    let go = Go::open(&process, &mappings).unwrap_or_else(|error| panic!("{version}: {error}"));
    let bytes = std::fs::read(&binary).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let base = mappings.iter().find(|mapping| mapping.path == binary.to_string_lossy()).unwrap().start;
    let bias = base - file.segments().map(|segment| segment.address()).min().unwrap();
    let variable = |name: &str| {
        let found = file.symbols().find(|symbol| symbol.name() == Ok(&*format!("runtime.{name}")));
        found.unwrap_or_else(|| panic!("no {name}")).address() + bias
    };
    let old = version.starts_with("1.18");
    let (cycle, lock) = if old { ("mProf", "proflock") } else { ("mProfCycle", "profMemActiveLock") };
    for (kind, list, rate) in [
        (Kind::Heap, "mbuckets", "MemProfileRate"),
        (Kind::Block, "bbuckets", "blockprofilerate"),
        (Kind::Mutex, "xbuckets", "mutexprofilerate"),
    ] {
        let found = profiling::variables(&go, kind).unwrap_or_else(|missing| panic!("{version}: {missing:?}"));
        assert_eq!(found.rate, variable(rate), "{version} {flags:?} {kind:?}");
        assert!(found.lists.contains(&variable(list)), "{version} {flags:?} {kind:?}");
        assert!((variable("ticks")..variable("ticks") + 32).contains(&found.ticks.unwrap()));
        let heap = Heap { cycle: Cycle { address: variable(cycle), shift: u32::from(!old) }, lock: variable(lock) };
        assert_eq!(found.heap, (kind == Kind::Heap).then_some(heap));
        assert_eq!(found.lists.len() == 1, kind == Kind::Heap);
        let read = buckets::of(&go, &process, kind, false).unwrap();
        assert!(read.rows.len() > 1 && read.notes.is_empty(), "{version} {kind:?}: {read:?}");
    }
}

#[test]
fn variables_are_those_of_the_symbol_table() {
    let more: &[&str] = if std::env::var_os("REMOTEPROF_LONG").is_some() { &MORE } else { &[] };
    for version in VERSIONS.iter().chain(more) {
        check(version, false, &[]);
    }
    check("local", true, &["-buildmode=pie"]);
}

#[test]
fn a_program_without_heap_profiling_has_none() {
    for version in ["1.21.13", "local"] {
        let running = Running::start(&build_of("goplain", version, false, &[STRIPPED]));
        let process = Process::open(running.pid()).unwrap();
        let go = Go::open(&process, &process.mappings().unwrap()).unwrap();
        let refused = buckets::of(&go, &process, Kind::Heap, false).unwrap_err();
        assert_eq!(refused, Refused::Missing(Missing::NotLinked), "{version}");
    }
}

const BASE: u64 = golang::MADE;
const BUCKETS: u64 = 12;

/// A program whose functions are in the buckets.
fn unchanged() -> Saved {
    saved("local", |_| Vec::new())
}

/// Made-up memory: a list of buckets, and the variables that lead there.
struct Made {
    bytes: Vec<u8>,
    places: Variables,
    /// Addresses of the buckets, the first in the list first.
    buckets: Vec<u64>,
}

impl Made {
    fn word(&mut self, address: u64, value: u64) {
        let at = (address - BASE) as usize;
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn memory(&self) -> Recorded {
        Recorded::of(BASE, &self.bytes)
    }

    /// A list of twelve; the record of number N has the words that `record` gives.
    fn new(go: &Go<'_>, kind: Kind, record: impl Fn(u64) -> Vec<u64>) -> Made {
        let size = if kind == Kind::Heap { 128 } else { 16 };
        let mut made = Made { bytes: vec![0; 8192], places: golang::variables(kind), buckets: Vec::new() };
        made.word(BASE + 8, 512);
        // Cycle 7, not flushed: of the three to come, number 1 is due.
        made.word(BASE + 16, 7 << 1);
        made.word(BASE + 32, 2_000_000_000);
        let (mut at, mut next) = (BASE + 64, 0);
        for number in 0..BUCKETS {
            let words = 2 + number % 5;
            for (index, word) in [0, next, kind as u64 + 1, 99, 64, words].into_iter().enumerate() {
                made.word(at + 8 * index as u64, word);
            }
            for index in 0..words {
                let (function, _) =
                    go.table.function((37 * (number + 1) * (index + 1)) as usize % go.table.len()).unwrap();
                made.word(at + 48 + 8 * index, function.entry + 5);
            }
            for (index, word) in record(number).into_iter().enumerate() {
                made.word(at + 48 + 8 * words + 8 * index as u64, word);
            }
            made.buckets.insert(0, at);
            (next, at) = (at, at + 48 + 8 * words + size);
        }
        made.word(BASE, next);
        made
    }

    fn read(&self, go: &Go<'_>, kind: Kind) -> Result<Buckets, ReadError> {
        buckets::from(go, &self.memory(), kind, false, &self.places)
    }
}

/// allocs, frees, alloc_bytes, free_bytes: published, then of three cycles.
fn heap_record(number: u64) -> Vec<u64> {
    let cycle = |times: u64| [times * number, times, 64 * times * number, 64 * times];
    [cycle(1000), cycle(1), cycle(10), cycle(100)].concat()
}

fn event_record(number: u64) -> Vec<u64> {
    vec![(number as f64 + 0.5).to_bits(), 1_000_000 * (number % 4)]
}

fn opened(saved: &Saved) -> Go<'_> {
    Go::in_image(&saved.recorded, saved.image()).map_err(|(reason, _)| reason).unwrap()
}

#[test]
fn what_is_published_and_due_is_counted() {
    let saved = unchanged();
    let go = opened(&saved);
    let mut made = Made::new(&go, Kind::Heap, heap_record);
    let read = made.read(&go, Kind::Heap).unwrap();
    assert_eq!((read.rate, read.ticks, read.factor), (512, 2_000_000_000, 1));
    assert!(read.notes.is_empty());
    assert_eq!(read.rows.iter().map(|row| row.bucket).collect::<Vec<_>>(), made.buckets);
    for (number, row) in (0..BUCKETS as i64).rev().zip(&read.rows) {
        assert_eq!(row.values, [1010 * number, 64 * 1010 * number, 1010, 64 * 1010]);
    }
    // While the mutex is held somebody may be adding up.
    made.word(BASE + 24, 1);
    let read = made.read(&go, Kind::Heap).unwrap();
    assert!(read.notes.len() == 1 && read.notes[0].contains("8 times"), "{:?}", read.notes);
    // Nothing published, nothing due: all that is to come.
    let fresh =
        |number: u64| [vec![0; 4], heap_record(number)[4..8].to_vec(), vec![0; 4], vec![3, 1, 192, 64]].concat();
    let read = Made::new(&go, Kind::Heap, fresh).read(&go, Kind::Heap).unwrap();
    assert_eq!(read.rows[0].values, [11 + 3, 64 * 11 + 192, 1 + 1, 64 + 64]);
    // Go 1.18 has the flag elsewhere.
    let mut old = Made::new(&go, Kind::Heap, heap_record);
    old.places.heap.as_mut().unwrap().cycle.shift = 0;
    let read = old.read(&go, Kind::Heap).unwrap();
    assert_eq!(read.rows[0].values[0], 1100 * 11);
}

#[test]
fn events_are_read_with_the_longest_first() {
    let saved = unchanged();
    let go = opened(&saved);
    for (kind, least) in [(Kind::Block, 1), (Kind::Mutex, 0)] {
        let made = Made::new(&go, kind, event_record);
        let read = made.read(&go, kind).unwrap();
        assert!(read.rows.is_sorted_by_key(|row| std::cmp::Reverse(row.values[1])));
        let first = read.rows.iter().find(|row| row.bucket == *made.buckets.last().unwrap()).unwrap();
        assert_eq!(first.values, [least, 0, 0, 0]);
        assert_eq!(read.rows[0].values[1], 3_000_000);
    }
}

#[test]
fn lists_that_cannot_be_are_refused() {
    let saved = unchanged();
    let go = opened(&saved);
    let fails = |change: &dyn Fn(&mut Made), words: &str| {
        let mut made = Made::new(&go, Kind::Heap, heap_record);
        change(&mut made);
        let error = made.read(&go, Kind::Heap).unwrap_err();
        assert!(error.reason().contains(words), "{error}");
    };
    let last = *Made::new(&go, Kind::Heap, heap_record).buckets.last().unwrap();
    fails(&|made| made.word(last + 8, made.buckets[0]), "circle");
    fails(&|made| made.word(last + 8, last), "circle");
    fails(&|made| made.word(last + 8, 0xdead_0000), "unmapped memory");
    fails(&|made| made.word(BASE, BASE + 4), "something else");
    fails(&|made| made.word(last + 16, 2), "something else");
    fails(&|made| made.word(last + 40, MAX_STACK + 1), "over its bound");
    fails(&|made| made.word(last + 40, MAX_STACK), "unmapped memory");
    fails(&|made| made.word(last + 64, u64::MAX), "counts that no program has");
    fails(&|made| made.word(BASE + 8, u64::MAX >> 1), "a rate that no program has");
    let made = Made::new(&go, Kind::Block, |_| vec![f64::NAN.to_bits(), 1]);
    assert!(made.read(&go, Kind::Block).unwrap_err().reason().contains("counts that no program has"));
}

#[test]
fn damaged_lists_give_an_answer_or_an_error() {
    let program = unchanged();
    let seeds: Vec<Vec<u8>> = {
        let go = opened(&program);
        let seed = |kind| {
            let made = Made::new(&go, kind, if kind == Kind::Heap { heap_record } else { event_record });
            let mut saved = program.clone();
            saved.changed.push(BASE..BASE + made.bytes.len() as u64);
            saved.recorded.pieces.insert(BASE, made.bytes);
            saved.to_bytes()
        };
        golang::KINDS.map(seed).into()
    };
    // One program, three lists: the first kind of each is the first of all.
    assert!(seeds.iter().all(|seed| golang::profile(seed) > Some(5)));
    let (read, refused) = (Cell::new(0), Cell::new(0));
    mutations("go_buckets", &seeds, rounds(3000), &golang::ranges, &|bytes| {
        let answer = if golang::profile(bytes).is_some() { &read } else { &refused };
        answer.set(answer.get() + 1);
    });
    let (read, refused) = (read.get(), refused.get());
    assert!(read > 500 && refused > 500, "{read} read, {refused} refused");
}
