//! What reads the memory of Go programs, as functions of a saved one: run by the fuzz targets beside this file, and over a
//! fixed set of mutations by `cargo test` (tests/go_hostile.rs, tests/go_buckets.rs).
#![allow(dead_code, reason = "each target uses what it needs")]

use std::cell::Cell;
use std::ops::Range;

use _native::memory::Memory;
use _native::runtime::go::Go;
use _native::runtime::go::buckets;
use _native::runtime::go::image::Image;
use _native::runtime::go::live;
use _native::runtime::go::module;
use _native::runtime::go::pclntab::{Header, MAX_NAME_BYTES, Pclntab};
use _native::runtime::go::profiling::{self, Cycle, Heap, Kind, Variables};
use _native::runtime::go::unwind::{At, MAX_DEPTH, Unwinder};
use _native::target::Mapping;
use _native::target::recorded::Recorded;

/// Bytes before what a record holds: address, size, and what it is; little-endian words.
const HEAD: usize = 24;
/// A mapping of the process, and one of its Go module; in the second byte are the permissions: 1 read, 2 write, 4 execute.
const MAPPING: u64 = 0;
const MODULE: u64 = 1;
/// Bytes of memory, and such as are to be changed.
const FIXED: u64 = 2;
const CHANGED: u64 = 3;
/// Where the addresses of programs end.
const MAX_ADDRESS: u64 = 1 << 47;
/// Words of the made-up stacks: deeper ones are walked in a few places only.
const STACK_WORDS: usize = 64;

pub const KINDS: [Kind; 3] = [Kind::Heap, Kind::Block, Kind::Mutex];
/// Where the list of buckets is that [`profile`] reads, with the variables that lead there.
pub const MADE: u64 = 0x10_0000;

/// A saved program.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    /// Its mappings and memory.
    pub recorded: Recorded,
    /// The mappings of its Go module.
    pub within: Vec<Mapping>,
    /// What of its memory is to be changed.
    pub changed: Vec<Range<u64>>,
}

impl Saved {
    /// The program that the records tell of, as far as they make sense.
    pub fn parse(bytes: &[u8]) -> Saved {
        let mut saved = Saved::default();
        for (address, size, kind, content) in records(bytes) {
            let end = address + size;
            if kind & 0xff <= MODULE {
                let mapping = mapping(address..end, kind >> 8);
                if kind & 0xff == MODULE {
                    saved.within.push(mapping.clone());
                }
                saved.recorded.mappings.push(mapping);
                continue;
            }
            let content = &bytes[content];
            match saved.recorded.pieces.iter_mut().next_back() {
                Some((&start, piece)) if start + piece.len() as u64 == address => piece.extend(content),
                _ => drop(saved.recorded.pieces.insert(address, content.to_vec())),
            }
            if kind & 0xff == CHANGED {
                saved.changed.push(address..end);
            }
        }
        saved
    }

    /// The same as records.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Not [vsyscall].
        for mapping in self.recorded.mappings.iter().filter(|mapping| mapping.end <= MAX_ADDRESS) {
            let kind = if self.within.contains(mapping) { MODULE } else { MAPPING };
            let size = mapping.end - mapping.start;
            record(&mut bytes, [mapping.start, size, kind | permissions(mapping) << 8], &[]);
        }
        for (address, piece) in flat(&self.recorded) {
            let (mut at, end) = (address, address + piece.len() as u64);
            while at < end {
                let inside = self.changed.iter().find(|range| range.contains(&at));
                let starts = self.changed.iter().map(|range| range.start).filter(|&start| start > at);
                let next = inside.map_or_else(|| starts.min().unwrap_or(end), |range| range.end).min(end);
                let kind = if inside.is_some() { CHANGED } else { FIXED };
                let content = &piece[(at - address) as usize..(next - address) as usize];
                record(&mut bytes, [at, next - at, kind], content);
                at = next;
            }
        }
        bytes
    }

    /// Makes a word of its memory another.
    pub fn put(&mut self, address: u64, word: u64) {
        let piece = self.recorded.pieces.range_mut(..=address).next_back();
        if let Some((start, piece)) = piece
            && let Some(bytes) = piece.get_mut((address - start) as usize..).and_then(|rest| rest.first_chunk_mut())
        {
            *bytes = word.to_le_bytes();
        }
    }

    /// Its Go module.
    pub fn image(&self) -> Image<'_> {
        Image::new(&self.recorded, &self.within, &self.recorded.mappings, None)
    }
}

fn record(bytes: &mut Vec<u8>, head: [u64; 3], content: &[u8]) {
    bytes.extend(head.iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend(content);
}

/// The records up to the first that is none: address, size, what it is, and where in `bytes` its content is.
fn records(bytes: &[u8]) -> impl Iterator<Item = (u64, u64, u64, Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let head = bytes.get(at..at + HEAD)?;
        let word = |index: usize| head[8 * index..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let (address, size, kind) = (word(0), word(1), word(2));
        let end = address.checked_add(size).filter(|&end| end <= MAX_ADDRESS && size > 0)?;
        let content = if kind & 0xff <= MODULE { 0 } else { usize::try_from(end - address).ok()? };
        at += HEAD;
        let content = at..at.checked_add(content).filter(|&end| end <= bytes.len())?;
        at = content.end;
        Some((address, size, kind, content))
    })
}

/// Where in the records the bytes are that are to be changed.
pub fn ranges(bytes: &[u8]) -> Vec<Range<usize>> {
    records(bytes).filter(|(_, _, kind, _)| kind & 0xff == CHANGED).map(|(.., content)| content).collect()
}

/// The pieces of a recording without overlaps, those that touch as one.
pub fn flat(recorded: &Recorded) -> Vec<(u64, Vec<u8>)> {
    let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
    for (&address, piece) in &recorded.pieces {
        match found.last_mut() {
            Some((start, whole)) if address <= *start + whole.len() as u64 => {
                let known = (*start + whole.len() as u64 - address) as usize;
                whole.extend(piece.get(known..).unwrap_or_default());
            }
            _ => found.push((address, piece.clone())),
        }
    }
    found
}

fn permissions(mapping: &Mapping) -> u64 {
    let letters = mapping.permissions.bytes().zip([(b'r', 1), (b'w', 2), (b'x', 4)]);
    letters.map(|(letter, (meant, bit))| if letter == meant { bit } else { 0 }).sum()
}

fn mapping(range: Range<u64>, bits: u64) -> Mapping {
    let letters = [(1, 'r'), (2, 'w'), (4, 'x')].map(|(bit, letter)| if bits & bit == 0 { '-' } else { letter });
    Mapping {
        start: range.start,
        end: range.end,
        permissions: letters.into_iter().chain(['p']).collect(),
        offset: 0,
        device: String::new(),
        inode: 0,
        path: String::new(),
    }
}

/// Looks at functions here and there, by everything that their table tells.
pub fn look_around(table: &Pclntab, memory: &dyn Memory) {
    let mut unwinder = Unwinder::new(table, Vec::new(), None);
    for index in (0..table.len()).step_by(97) {
        let Some((function, end)) = table.function(index) else { continue };
        for pc in [function.entry, function.entry.wrapping_add(7), end.wrapping_sub(1)] {
            for call in table.calls(memory, &function, pc) {
                assert!(table.name(call.name).len() <= MAX_NAME_BYTES);
                assert!(call.file.is_none_or(|file| table.file(file).len() <= MAX_NAME_BYTES));
            }
            // A stack on which every word leads back to the same place.
            let words = Cell::new(if index % 970 == 0 { usize::MAX } else { STACK_WORDS });
            let word = |_| words.replace(words.get().saturating_sub(1)).gt(&0).then_some(pc);
            let mut pcs = Vec::new();
            unwinder.walk((pc, 0x1000, At::Instruction), word, &mut pcs);
            assert!(pcs.len() <= MAX_DEPTH);
        }
    }
}

/// The table of functions, and the inline trees; whether there is one that its module data agrees with.
pub fn functions(bytes: &[u8]) -> bool {
    let saved = Saved::parse(bytes);
    let image = saved.image();
    let whole = module::functions(&image);
    if let Ok(table) = &whole {
        look_around(table, &image);
    }
    // Without the module data's say: what begins here is the table, and what it says of inlined calls is nonsense.
    let code = saved.within.iter().find(|mapping| mapping.executable()).map_or(0, |mapping| mapping.start);
    if let Some(first) = saved.changed.first()
        && let Some((&start, piece)) = saved.recorded.pieces.range(..=first.start).next_back()
        && let Some(rest) = piece.get((first.start - start) as usize..)
        && let Some(header) = Header::parse(first.start, rest)
        && let Ok(table) = Pclntab::read(&saved.recorded, header, rest.len() as u64, code, first.start)
    {
        look_around(&table, &saved.recorded);
    }
    whole.is_ok()
}

/// Everything that is derived from a program's code and checked with its goroutines; whether it is understood.
pub fn program(bytes: &[u8]) -> bool {
    let saved = Saved::parse(bytes);
    let Ok(go) = Go::in_image(&saved.recorded, saved.image()) else { return false };
    look_around(&go.table, &go.image);
    for kind in KINDS {
        let _ = profiling::variables(&go, kind);
    }
    if let Ok((addresses, _)) = live::all(&saved.recorded, &go.shape.offsets) {
        let _ = go.shape.read(&saved.recorded, &addresses);
    }
    true
}

/// Where the variables of a made-up profile are.
pub fn variables(kind: Kind) -> Variables {
    let heap = Heap { cycle: Cycle { address: MADE + 16, shift: 1 }, lock: MADE + 24 };
    let heap = (kind == Kind::Heap).then_some(heap);
    Variables { lists: vec![MADE], rate: MADE + 8, heap, ticks: Some(MADE + 32) }
}

/// The first program that was met, and where its bytes are that do not change.
struct First {
    bytes: Vec<u8>,
    changed: Vec<Range<usize>>,
    go: Go<'static>,
}

thread_local! {
    static FIRST: Cell<Option<&'static First>> = const { Cell::new(None) };
}

impl First {
    /// Opens the program, which takes longer than to read its buckets.
    fn open(bytes: &[u8]) -> Option<&'static First> {
        let saved: &'static Saved = Box::leak(Box::new(Saved::parse(bytes)));
        let go = Go::in_image(&saved.recorded, saved.image()).ok()?;
        Some(Box::leak(Box::new(First { bytes: bytes.to_vec(), changed: ranges(bytes), go })))
    }

    fn is_of(&self, bytes: &[u8]) -> bool {
        let starts = std::iter::once(0).chain(self.changed.iter().map(|range| range.end));
        let ends = self.changed.iter().map(|range| range.start).chain([bytes.len()]);
        bytes.len() == self.bytes.len()
            && starts.zip(ends).all(|(start, end)| bytes[start..end] == self.bytes[start..end])
    }
}

/// The buckets of a profile, of whichever kind they are; how many rows that gives. None: they are refused.
pub fn profile(bytes: &[u8]) -> Option<usize> {
    let first = match FIRST.get() {
        Some(first) => first,
        None => {
            let first = First::open(bytes)?;
            FIRST.set(Some(first));
            first
        }
    };
    if !first.is_of(bytes) {
        return None;
    }
    let made = bytes.get(first.changed.first()?.clone())?;
    let mut memory = Recorded::of(MADE, made);
    // The mutex is left free: to wait for it takes time, and is tried elsewhere.
    if let Some(lock) = memory.pieces.get_mut(&MADE).and_then(|piece| piece.get_mut(24..32)) {
        lock.fill(0);
    }
    let read = |kind| buckets::from(&first.go, &memory, kind, false, &variables(kind)).ok();
    let found: Vec<_> = KINDS.into_iter().filter_map(read).collect();
    for one in &found {
        let stacks = one.columns.stack_starts.len();
        assert!(one.rows.len() <= made.len() / 8, "{} rows", one.rows.len());
        assert!(one.rows.iter().all(|row| (row.stack as usize) < stacks));
        assert!(one.rows.iter().all(|row| row.values.iter().all(|&value| value >= 0)));
    }
    (!found.is_empty()).then(|| found.iter().map(|one| one.rows.len()).sum())
}
