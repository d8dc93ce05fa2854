//! The buckets of the runtime's heap, block and mutex profiles, read without a stop.
//!
//! A bucket is a stack with what happened there (src/runtime/mprof.go of Go 1.18 to 1.26: bucket, memRecord, blockRecord).
//! Buckets are never moved, freed or taken out of their list, and new ones come before all others. Allocations and frees
//! are counted in three cycles to come, of which one is published at each collection: a heap profile is what is published
//! and the cycle that is due. It is read again until nothing of that changed while it was read.

use std::time::Duration;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use super::Go;
use super::frames::Frames;
use super::live::Pieces;
use super::pclntab::Layout;
use super::profiling::{self, Cycle, Heap, Kind, Missing, Variables};
use crate::error::{Error, ErrorKind, ReadError};
use crate::memory::{Memory, Region};
use crate::tables::{Columns, StackId};
use crate::target::linux::Process;
use crate::target::sys;

/// Most buckets of one profile.
pub const MAX_BUCKETS: usize = 1 << 20;
/// Most frames of one bucket (src/runtime/mprof.go, maxProfStackDepth; 32 before Go 1.23).
pub const MAX_STACK: u64 = 1024;
/// Most frames of all buckets.
const MAX_WORDS: u64 = 1 << 24;
/// Larger counts, of objects and bytes, are believed of no program.
const MAX_COUNT: u64 = 1 << 53;
/// The largest rate that is believed.
const MAX_RATE: i64 = 1 << 48;
/// The fastest clock that is believed, ticks a second.
const MAX_TICKS: i64 = 1 << 40;
/// How often a heap profile that changes while it is read is read again.
const ROUNDS: u32 = 8;
/// Records read at one time.
const BATCH: usize = 4096;
/// What stands before a stack that has its inlined calls already (src/runtime/traceback.go, logicalStackSentinel).
const SENTINEL: u64 = u64::MAX;
/// Bytes of the head of a bucket; its stack and its record follow.
const HEAD: usize = 48;
const HEAP_RECORD: u32 = 128;
const EVENT_RECORD: u32 = 16;
/// Cycles to come of a heap record.
const CYCLES: usize = 3;

/// Allocations, frees, bytes allocated, bytes freed.
type Counts = [u64; 4];

/// One stack and what is counted there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The address of its bucket: what it is known by as long as the program runs.
    pub bucket: u64,
    /// Its stack.
    pub stack: StackId,
    /// Heap: objects and bytes allocated, objects and bytes freed. Others: events and ticks, and two zeros.
    pub values: [i64; 4],
}

/// A profile as the runtime has it: neither scaled nor converted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Buckets {
    /// Such as `go1.26.8`, "" = unknown.
    pub version: String,
    /// Strings, frames, stacks.
    pub columns: Columns,
    /// First address of each frame's function.
    pub entries: Vec<u64>,
    /// Heap: as in the list, newest first. Others: the most ticks first.
    pub rows: Vec<Row>,
    /// Heap: one allocation in so many bytes is sampled. Block: ticks; mutex: one event in so many. 0 = none.
    pub rate: i64,
    /// What the values of a mutex profile are to be multiplied with, 1 in others and since Go 1.20.
    pub factor: i64,
    /// Ticks a second, 0 = the program has not measured them.
    pub ticks: i64,
    /// What the process's memory is known by: exec gives it another.
    pub memory: (u64, u64),
    /// What people should be told.
    pub notes: Vec<String>,
}

/// Why there is no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not kept, or not found.
    Missing(Missing),
    /// It cannot be read.
    Unreadable(ReadError),
}

impl From<ReadError> for Refused {
    fn from(error: ReadError) -> Refused {
        Refused::Unreadable(error)
    }
}

/// Reads a profile of a process; `all`: with the frames of internal/runtime at the leaf, which Go's own heap profiles leave
/// out since Go 1.24.
pub fn read(pid: u32, kind: Kind, all: bool) -> Result<Buckets, Error> {
    let process = Process::open(pid)?;
    let memory = process.image();
    let mappings = process.mappings().map_err(|error| crate::target::refusal::access_error(pid, &error))?;
    let go = Go::open(&process, &mappings)?;
    let found = of(&go, &process, kind, all).map_err(|refused| match refused {
        Refused::Unreadable(error) => go.unreadable(&process, error),
        Refused::Missing(missing) => missing_error(&go, &process, missing),
    })?;
    let memory = memory.filter(|&before| process.image() == Some(before));
    let memory = memory.ok_or_else(|| go.unreadable(&process, ReadError::Gone))?.key();
    let ticks = if found.ticks == 0 && kind != Kind::Heap { sys::ticks_per_second() } else { found.ticks };
    Ok(Buckets { memory, ticks, ..found })
}

fn missing_error(go: &Go<'_>, process: &Process, missing: Missing) -> Error {
    let (pid, name, version) = (process.pid, &process.name, go.version());
    match missing {
        Missing::NotLinked => Error::new(
            ErrorKind::Unsupported,
            format!("heap profiling is not linked into process {pid} ({name}), so that Go samples no allocations"),
            "it is linked into programs that import net/http/pprof, or use the heap profile of runtime/pprof",
        ),
        Missing::Unknown(function) => Error::new(
            ErrorKind::Unsupported,
            format!("this Go version is not understood: {function} ({version})"),
            "report it with the output of go version -m; remoteprof attach does not need it",
        ),
    }
}

/// Reads a profile from `memory`.
pub fn of(go: &Go<'_>, memory: &dyn Memory, kind: Kind, all: bool) -> Result<Buckets, Refused> {
    let places = profiling::variables(go, kind).map_err(Refused::Missing)?;
    from(go, memory, kind, all, &places).map_err(Refused::Unreadable)
}

/// Reads a profile of which it is known where its variables are.
pub fn from(go: &Go<'_>, memory: &dyn Memory, kind: Kind, all: bool, places: &Variables) -> Result<Buckets, ReadError> {
    let hidden: &[&[u8]] = match kind {
        Kind::Heap if all || go.minor().is_some_and(|minor| minor < 24) => &[b"runtime."],
        Kind::Heap => &[b"runtime.", b"internal/runtime/"],
        Kind::Block | Kind::Mutex => &[],
    };
    let frames = Frames::new(go);
    let mut reader =
        Reader { memory, kind, frames, hidden, buckets: Vec::new(), seen: FxHashSet::default(), words: 0, full: false };
    let rate = number(memory, places.rate, MAX_RATE)?;
    let ticks = places.ticks.map_or(Ok(0), |address| number(memory, address, MAX_TICKS))?;
    let (rows, settled) = match places.heap {
        Some(heap) => reader.heap(places, heap)?,
        None => (reader.events(places)?, true),
    };
    let scaled = kind == Kind::Mutex && go.table.layout() == Layout::Go118;
    let factor = if scaled { rate } else { 1 };
    Ok(Buckets { rate, factor, ticks, ..reader.finish(go, rows, settled) })
}

fn number(memory: &dyn Memory, address: u64, most: i64) -> Result<i64, ReadError> {
    let value = memory.read_u64(address)?.cast_signed();
    // Go takes one below zero for zero.
    if (-most..=most).contains(&value) { Ok(value) } else { Err(ReadError::Corrupt("a rate that no program has")) }
}

/// A bucket that was met in the list.
struct Bucket {
    address: u64,
    record: u64,
    stack: StackId,
}

struct Reader<'a> {
    memory: &'a dyn Memory,
    kind: Kind,
    frames: Frames<'a>,
    /// How functions are called that are left out at the leaf.
    hidden: &'a [&'a [u8]],
    buckets: Vec<Bucket>,
    seen: FxHashSet<u64>,
    words: u64,
    full: bool,
}

impl Reader<'_> {
    /// The variable that is the head of this kind's list; None while there is no bucket.
    fn head(&self, places: &Variables) -> Result<Option<u64>, ReadError> {
        if let [one] = places.lists[..] {
            return Ok(Some(one));
        }
        let mut found = places.lists.iter().filter(|&&variable| {
            let first = self.memory.read_u64(variable).unwrap_or(0);
            first != 0 && first.is_multiple_of(8) && self.bucket(first).is_ok()
        });
        match (found.next(), found.next()) {
            (one, None) => Ok(one.copied()),
            _ => Err(ReadError::Corrupt("more than one list of buckets of a kind")),
        }
    }

    /// The next bucket in the list, and the number of words of the stack.
    fn bucket(&self, address: u64) -> Result<(u64, u64), ReadError> {
        let head = self.memory.read_bytes(address, HEAD, HEAD).map_err(astray)?;
        let word = |index: usize| head[8 * index..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let (next, kind, words) = (word(1), word(2), word(5));
        let expected = match self.kind {
            Kind::Heap => 1,
            Kind::Block => 2,
            Kind::Mutex => 3,
        };
        if kind != expected || !next.is_multiple_of(8) {
            return Err(ReadError::Corrupt("a list of buckets that leads to something else"));
        }
        if words > MAX_STACK {
            return Err(ReadError::Bound("a bucket's stack over its bound"));
        }
        Ok((next, words))
    }

    /// Takes the buckets that are in the list and were not taken before; they are put before the others.
    fn walk(&mut self, places: &Variables) -> Result<(), ReadError> {
        let Some(head) = self.head(places)? else { return Ok(()) };
        let known = self.buckets.first().map(|bucket| bucket.address);
        let mut at = self.memory.read_u64(head)?;
        let mut new = Vec::new();
        while at != 0 && Some(at) != known {
            if self.seen.len() >= MAX_BUCKETS || self.words > MAX_WORDS {
                self.full = true;
                break;
            }
            if !self.seen.insert(at) {
                return Err(ReadError::Corrupt("a list of buckets that goes round in a circle"));
            }
            let (next, words) = self.bucket(at)?;
            let stack = at.wrapping_add(HEAD as u64);
            let bytes = self.memory.read_bytes(stack, 8 * words as usize, 8 * MAX_STACK as usize).map_err(astray)?;
            let pcs: Vec<u64> =
                bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect();
            let (record, stack) = (stack.wrapping_add(8 * words), self.stack(&pcs));
            new.push(Bucket { address: at, record, stack });
            (at, self.words) = (next, self.words + words);
        }
        new.append(&mut self.buckets);
        self.buckets = new;
        Ok(())
    }

    fn stack(&mut self, pcs: &[u64]) -> StackId {
        let pcs = pcs.strip_prefix(&[SENTINEL]).unwrap_or(pcs);
        let own = |pc: &u64| {
            let name = self.frames.name_at(*pc);
            name.is_some_and(|name| self.hidden.iter().any(|head| name.starts_with(head)))
        };
        let first = if self.hidden.is_empty() { 0 } else { pcs.iter().position(|pc| !own(pc)).unwrap_or(0) };
        let stack = self.frames.list(&pcs[first..]);
        // Where nothing is left but goexit, all is shown (src/runtime/pprof/protomem.go).
        if first > 0 && self.frames.tables.stack_frames(stack).is_empty() { self.frames.list(pcs) } else { stack }
    }

    /// Passes over the records of all buckets.
    fn records(&self, size: u32, mut each: impl FnMut(usize, &[u64])) -> Result<(), ReadError> {
        let mut words = Vec::new();
        for (batch, buckets) in self.buckets.chunks(BATCH).enumerate() {
            let regions = buckets.iter().map(|bucket| Region { address: bucket.record, size }).collect();
            let pieces = Pieces::read(self.memory, regions)?;
            for index in 0..buckets.len() {
                let bytes = pieces.get(index).ok_or_else(|| astray(ReadError::Unmapped))?;
                words.clear();
                words.extend(bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)));
                each(batch * BATCH + index, &words);
            }
        }
        Ok(())
    }

    /// The rows of a heap profile, and whether it stood still while it was read.
    fn heap(&mut self, places: &Variables, heap: Heap) -> Result<(Vec<Row>, bool), ReadError> {
        let mut rows = Vec::new();
        for round in 0..ROUNDS {
            if round > 0 {
                std::thread::sleep(Duration::from_micros(200 << round));
            }
            let settled = self.heap_once(places, heap, &mut rows)?;
            if settled {
                return Ok((rows, true));
            }
        }
        Ok((rows, false))
    }

    fn heap_once(&mut self, places: &Variables, heap: Heap, rows: &mut Vec<Row>) -> Result<bool, ReadError> {
        let before = self.state(heap)?;
        self.walk(places)?;
        let due = due(heap.cycle, before.0);
        let mut first: Vec<[Counts; 2]> = Vec::with_capacity(self.buckets.len());
        self.records(HEAP_RECORD, |_, words| first.push([counts(words, 0), counts(words, 1 + due)]))?;
        let (mut same, mut published) = (true, false);
        let mut all: Vec<[Counts; 2]> = Vec::with_capacity(self.buckets.len());
        self.records(HEAP_RECORD, |index, words| {
            let [active, due] = [counts(words, 0), counts(words, 1 + due)];
            same &= first[index] == [active, due];
            let ours = sum(active, due);
            published |= ours[0] != 0 || ours[1] != 0;
            let every = (1..=CYCLES).fold(active, |total, cycle| sum(total, counts(words, cycle)));
            all.push([ours, every]);
        })?;
        rows.clear();
        for (bucket, [ours, every]) in self.buckets.iter().zip(all) {
            // Before the first collection nothing is published: then all that was counted is the profile.
            let counts = if published { ours } else { every };
            if counts.iter().any(|&count| count > MAX_COUNT) {
                return Err(ReadError::Corrupt("a bucket with counts that no program has"));
            }
            if counts != [0; 4] {
                let [allocated, freed, bytes, freed_bytes] = counts.map(u64::cast_signed);
                let values = [allocated, bytes, freed, freed_bytes];
                rows.push(Row { bucket: bucket.address, stack: bucket.stack, values });
            }
        }
        // Whoever publishes holds the mutex, also when it has no core at the moment.
        Ok(same && before.1 == 0 && self.state(heap)? == before)
    }

    /// The word of the cycle, and that of the mutex.
    fn state(&self, heap: Heap) -> Result<(u32, u64), ReadError> {
        Ok((self.memory.read_u32(heap.cycle.address)?, self.memory.read_u64(heap.lock)?))
    }

    /// The rows of a block or mutex profile.
    fn events(&mut self, places: &Variables) -> Result<Vec<Row>, ReadError> {
        self.walk(places)?;
        let (mut rows, mut possible) = (Vec::with_capacity(self.buckets.len()), true);
        self.records(EVENT_RECORD, |index, words| {
            let (count, ticks) = (f64::from_bits(words[0]), words[1]);
            possible &= (0.0..=MAX_COUNT as f64).contains(&count) && ticks <= i64::MAX as u64;
            // As blockProfileInternal: nobody shall divide by zero.
            let count = if self.kind == Kind::Block { (count as i64).max(1) } else { count as i64 };
            let bucket = &self.buckets[index];
            let values = [count, ticks.cast_signed(), 0, 0];
            rows.push(Row { bucket: bucket.address, stack: bucket.stack, values });
        })?;
        if !possible {
            return Err(ReadError::Corrupt("a bucket with counts that no program has"));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.values[1]));
        Ok(rows)
    }

    fn finish(mut self, go: &Go<'_>, rows: Vec<Row>, settled: bool) -> Buckets {
        let mut notes = Vec::new();
        if !settled {
            notes.push(format!(
                "the heap profile changed each of the {ROUNDS} times it was read: it may mix two collections"
            ));
        }
        if self.full {
            notes.push(format!(
                "the oldest stacks were left out: no more than {MAX_BUCKETS} are read, of {MAX_WORDS} frames in all"
            ));
        }
        let folded = rows.iter().filter(|row| self.frames.tables.is_full(row.stack)).count();
        if folded > 0 {
            notes.push(format!("{folded} stacks did not fit: they are under [table full]"));
        }
        let columns = self.frames.tables.take(Vec::new());
        self.frames.entries.resize(columns.frames.len(), 0);
        let version = go.version().to_string();
        Buckets { version, columns, entries: self.frames.entries, rows, notes, ..Buckets::default() }
    }
}

/// The cycle that is due, or has been added to what is published: then its own counts are zero.
fn due(cycle: Cycle, word: u32) -> usize {
    (word >> cycle.shift) as usize % CYCLES
}

/// One of the four sets of counts of a heap record: allocs, frees, alloc_bytes, free_bytes.
fn counts(words: &[u64], index: usize) -> Counts {
    words.get(4 * index..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
}

fn sum(one: Counts, other: Counts) -> Counts {
    std::array::from_fn(|index| one[index].saturating_add(other[index]))
}

/// Where a list leads out of the memory that there is.
fn astray(error: ReadError) -> ReadError {
    if error == ReadError::Unmapped {
        ReadError::Corrupt("a list of buckets that leads to unmapped memory")
    } else {
        error
    }
}
