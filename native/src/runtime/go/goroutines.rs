//! All goroutines of a process. Those on no thread are read without a stop, in batches, and read again if they changed
//! meanwhile; those that run through a brief stop of their thread.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::frames::Frames;
use super::labels;
use super::live::{self, G, Pieces, Status};
use super::unwind::{At, End, Unwinder};
use super::{Go, running};
use crate::error::{Error, ReadError};
use crate::memory::{Memory, Region};
use crate::tables::{FrameId, Label, StackId};
use crate::target::linux::Process;
use crate::target::sys;

/// Goroutines read at one time.
const BATCH: usize = 4096;
/// Bytes of a stack that are read with many others. Most that wait have a few hundred.
const FIRST_READ: u64 = 2048;
/// Most bytes of one stack.
const MAX_STACK_BYTES: u64 = 1 << 20;
/// How often a goroutine that changes while it is read is read again.
const ROUNDS: usize = 8;
/// Most reasons to wait that there are names for.
const MAX_REASONS: u8 = 128;
/// Most different sets of labels.
const MAX_LABEL_SETS: usize = 1 << 18;

/// One goroutine, for people. Indices are those of [`Goroutines`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its number.
    pub id: u64,
    /// What it is doing: an index of the strings.
    pub state: u32,
    /// What it waits for: an index of the strings, of "" for nothing.
    pub reason: u32,
    /// For how long, nanoseconds, as far as the garbage collector has seen it; 0 = unknown.
    pub waited_ns: u64,
    /// Its stack.
    pub stack: StackId,
    /// The frame that created it, 0 = unknown.
    pub creator: FrameId,
    /// The goroutine that created it, 0 = unknown.
    pub parent: u64,
    /// Its labels.
    pub labels: u32,
}

/// The goroutines of one process, as columns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Goroutines {
    /// Such as `go1.26.8`, "" = unknown.
    pub version: String,
    /// Strings, frames, stacks.
    pub columns: crate::tables::Columns,
    /// First address of each frame's function.
    pub entries: Vec<u64>,
    /// A row for each goroutine.
    pub rows: Vec<Row>,
    /// Distinct sets of labels; the first is empty.
    pub labels: Vec<Vec<Label>>,
    /// What people should be told.
    pub notes: Vec<String>,
}

/// A goroutine and the piece of its stack that its walk needs.
pub struct Taken {
    /// What it was.
    pub g: G,
    /// pc and sp of its leaf, and how they came to be.
    pub place: (u64, u64, At),
    /// Bytes of the stack from sp on.
    pub stack: Vec<u8>,
}

struct Reader<'a> {
    go: &'a Go<'a>,
    process: &'a Process,
    unwinder: Unwinder<'a>,
    frames: Frames<'a>,
    system: bool,
    rows: Vec<Row>,
    label_ids: FxHashMap<Vec<Label>, u32>,
    labels: Vec<Vec<Label>>,
    label_places: FxHashMap<u64, u32>,
    reasons: Vec<Option<u32>>,
    unlabelled: u64,
    now: u64,
    pcs: Vec<u64>,
}

/// Reads all goroutines of a process; `system`: those of the runtime itself too.
pub fn read(pid: u32, system: bool) -> Result<Goroutines, Error> {
    let process = Process::open(pid)?;
    let mappings = process.mappings().map_err(|error| crate::target::refusal::access_error(pid, &error))?;
    let go = Go::open(&process, &mappings)?;
    of(&go, &process, system).map_err(|error| go.unreadable(&process, error))
}

fn of(go: &Go<'_>, process: &Process, system: bool) -> Result<Goroutines, ReadError> {
    let mut reader = Reader {
        go,
        process,
        unwinder: Unwinder::new(&go.table, go.ids.injected.clone(), go.ids.callback),
        frames: Frames::new(go),
        system,
        rows: Vec::new(),
        label_ids: FxHashMap::from_iter([(Vec::new(), 0)]),
        labels: vec![Vec::new()],
        label_places: FxHashMap::from_iter([(0, 0)]),
        reasons: vec![None; usize::from(MAX_REASONS)],
        unlabelled: 0,
        now: sys::monotonic_ns(),
        pcs: Vec::new(),
    };
    let (addresses, left_out) = live::all(process, &go.shape.offsets)?;
    let mut again = Vec::new();
    for batch in addresses.chunks(BATCH) {
        again.extend(reader.batch(batch)?);
    }
    for round in 0..ROUNDS {
        if again.is_empty() {
            break;
        }
        let mut running: FxHashSet<u64> = again.iter().copied().collect();
        for taken in running::take(go, process, &mut running) {
            reader.add(&taken);
        }
        again.retain(|address| running.contains(address));
        let mut changed = Vec::new();
        for batch in again.chunks(BATCH) {
            changed.extend(reader.batch(batch)?);
        }
        again = changed;
        if round + 1 < ROUNDS {
            std::thread::sleep(std::time::Duration::from_micros(100 << round));
        }
    }
    reader.give_up(&again)?;
    running::let_go();
    Ok(reader.finish(left_out))
}

impl Reader<'_> {
    /// Takes goroutines that are on no thread; gives those that run, or changed while they were read.
    fn batch(&mut self, addresses: &[u64]) -> Result<Vec<u64>, ReadError> {
        let shape = &self.go.shape;
        let mut again = Vec::new();
        let mut parked = Vec::new();
        for (g, &address) in shape.read(self.process, addresses)?.into_iter().zip(addresses) {
            match g {
                Some(g) if g.status == Status::Dead => {}
                Some(g) if matches!(g.status, Status::Running | Status::CopyStack) => again.push(address),
                Some(g) if (g.stack.0..g.stack.1).contains(&g.place.1) => parked.push(g),
                _ => again.push(address),
            }
        }
        let region = |g: &G, most: u64| Region { address: g.place.1, size: (g.stack.1 - g.place.1).min(most) as u32 };
        let pieces = Pieces::read(self.process, parked.iter().map(|g| region(g, FIRST_READ)).collect())?;
        let mut taken = Vec::new();
        for (index, g) in parked.into_iter().enumerate() {
            let place = (g.place.0, g.place.1, At::Saved);
            let Some(bytes) = pieces.get(index) else {
                again.push(g.address);
                continue;
            };
            let mut one = Taken { g, place, stack: bytes.to_vec() };
            if matches!(self.walk(&one), End::Beyond(_)) {
                let region = region(&one.g, MAX_STACK_BYTES);
                let Ok(whole) = self.process.read_bytes(region.address, region.size as usize, MAX_STACK_BYTES as usize)
                else {
                    again.push(one.g.address);
                    continue;
                };
                one.stack = whole;
            }
            taken.push(one);
        }
        // What has not changed since was right when its stack was copied.
        let addresses: Vec<u64> = taken.iter().map(|one| one.g.address).collect();
        for (g, one) in shape.read(self.process, &addresses)?.into_iter().zip(taken) {
            let same = |g: &G| (g.status, g.id, g.place, g.stack) == (one.g.status, one.g.id, one.g.place, one.g.stack);
            if g.as_ref().is_some_and(same) { self.add(&one) } else { again.push(one.g.address) }
        }
        Ok(again)
    }

    fn walk(&mut self, taken: &Taken) -> End {
        let start = taken.place.1;
        self.pcs.clear();
        let word = |address: u64| {
            let at = usize::try_from(address.checked_sub(start)?).ok()?;
            Some(u64::from_le_bytes(*taken.stack.get(at..)?.first_chunk()?))
        };
        self.unwinder.walk(taken.place, word, &mut self.pcs)
    }

    fn add(&mut self, taken: &Taken) {
        let end = self.walk(taken);
        let pcs = std::mem::take(&mut self.pcs);
        if self.system || !self.of_runtime(&taken.g, &pcs) {
            let stack = self.frames.stack(&pcs, end);
            self.row(&taken.g, stack);
        }
        self.pcs = pcs;
    }

    /// Whether it is one of the runtime's own (src/runtime/traceback.go, isSystemGoroutine). Those that call finalizers
    /// and cleanups are, until they do: then there is other code on their stack.
    fn of_runtime(&self, g: &G, pcs: &[u64]) -> bool {
        const OURS: [&[u8]; 3] = [b"runtime.main", b"runtime.corostart", b"runtime.handleAsyncEvent"];
        const CALLING: [&[u8]; 4] =
            [b"runtime.runfinq", b"runtime.runFinalizers", b"runtime.runCleanups", b"runtime.(*cleanupQueue).run"];
        let table = &self.go.table;
        let name = |pc| {
            let function = table.find(pc).and_then(|index| table.function(index));
            function.map_or(&b""[..], |(function, _)| table.name_of(&function))
        };
        let first = name(g.start);
        let plain = first.strip_suffix(b".abi0").unwrap_or(first);
        let own = |name: &[u8]| {
            [&b"runtime."[..], b"internal/runtime/", b"reflectcall", b"call"].iter().any(|head| name.starts_with(head))
        };
        match plain {
            _ if !plain.starts_with(b"runtime.") || OURS.contains(&plain) => false,
            _ if CALLING.contains(&plain) => pcs.iter().all(|&pc| own(name(pc))),
            _ => true,
        }
    }

    fn row(&mut self, g: &G, stack: StackId) {
        let waiting = matches!(g.status, Status::Waiting | Status::Leaked);
        let timed = (waiting || g.status == Status::Syscall) && g.wait_since != 0;
        let row = Row {
            id: g.id,
            state: self.frames.tables.string(g.status.name()),
            reason: if waiting { self.reason(g.wait_reason) } else { self.frames.tables.string("") },
            waited_ns: if timed { self.now.saturating_sub(g.wait_since) } else { 0 },
            stack,
            creator: self.frames.creator(g.creator.0),
            parent: if self.go.minor().is_some_and(|minor| minor >= 21) { g.creator.1 } else { 0 },
            labels: self.labels(g.labels),
        };
        self.rows.push(row);
    }

    fn reason(&mut self, index: u8) -> u32 {
        if index == 0 || index >= MAX_REASONS {
            return self.frames.tables.string("");
        }
        if let Some(known) = self.reasons[usize::from(index)] {
            return known;
        }
        let at = self.go.shape.offsets.wait_reasons + 16 * u64::from(index);
        let text = labels::string(self.process, at).unwrap_or_default();
        let id = self.frames.tables.string(&text);
        self.reasons[usize::from(index)] = Some(id);
        id
    }

    fn labels(&mut self, address: u64) -> u32 {
        if let Some(&known) = self.label_places.get(&address) {
            return known;
        }
        let read = self.go.minor().ok_or(ReadError::Corrupt("unknown version"));
        let Ok(set) = read.and_then(|minor| labels::read(self.process, address, minor)) else {
            self.unlabelled += 1;
            return 0;
        };
        let next = self.labels.len();
        let id = match self.label_ids.get(&set) {
            Some(&known) => known,
            None if next >= MAX_LABEL_SETS => {
                self.unlabelled += 1;
                return 0;
            }
            None => {
                self.labels.push(set.clone());
                self.label_ids.insert(set, next as u32);
                next as u32
            }
        };
        self.label_places.insert(address, id);
        id
    }

    /// Those that never stood still long enough.
    fn give_up(&mut self, addresses: &[u64]) -> Result<(), ReadError> {
        for g in self.go.shape.read(self.process, addresses)?.into_iter().flatten() {
            if g.status != Status::Dead && (self.system || !self.of_runtime(&g, &[])) {
                let stack = self.frames.unreadable("it kept running");
                self.row(&g, stack);
            }
        }
        Ok(())
    }

    fn finish(mut self, left_out: u64) -> Goroutines {
        let mut notes = Vec::new();
        if left_out > 0 {
            notes.push(format!("{left_out} goroutines were left out: no more than {} are read", live::MAX_GOROUTINES));
        }
        if self.unlabelled > 0 {
            notes.push(format!("the labels of {} goroutines could not be read", self.unlabelled));
        }
        let folded = self.rows.iter().filter(|row| self.frames.tables.is_full(row.stack)).count();
        if folded > 0 {
            notes.push(format!("{folded} goroutines have stacks that did not fit: they are under [table full]"));
        }
        self.rows.sort_unstable_by_key(|row| row.id);
        let columns = self.frames.tables.take(Vec::new());
        self.frames.entries.resize(columns.frames.len(), 0);
        Goroutines {
            version: self.go.version().to_string(),
            columns,
            entries: self.frames.entries,
            rows: self.rows,
            labels: self.labels,
            notes,
        }
    }
}
