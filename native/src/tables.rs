//! Frames and stacks, each kept once, and how often each thread was seen in each.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::target::Mapping;

/// Most distinct frames of one window; what comes after them is the frame `[table full]`.
pub const MAX_FRAMES: usize = 4_000_000;
/// Most distinct stacks of one window; what comes after them is the stack `[table full]`.
pub const MAX_STACKS: usize = 1_000_000;
/// Most rows with a time in one window; what comes after them is added up without.
pub const MAX_TIMED_ROWS: usize = 2_000_000;
/// Most rows in one window; what comes after them is added to the row of its thread with the stack `[table full]`.
pub const MAX_ROWS: usize = 4_000_000;
/// Most frame indices in all stacks of one window.
pub const MAX_STACK_WORDS: usize = 64_000_000;

/// Index of a frame.
pub type FrameId = u32;
/// Index of a stack.
pub type StackId = u32;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FrameKind {
    /// A Python frame.
    Python,
    /// A native frame: address and mapping count, names come later.
    Native,
    /// A native frame of the evaluation loop, between the Python frames that it runs and what called it.
    Loop,
    /// A frame in square brackets that says what is known instead.
    Label,
    /// A native frame whose name is known, inlined into the next one, with which it shares a location.
    Inlined,
    /// The same, the last of its location: what it was inlined into is left out.
    Outermost,
}

/// One frame. Strings are indices into [`Tables::strings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// Function or label.
    pub name: u32,
    /// Source file, index of "" if unknown.
    pub file: u32,
    /// Line, 0 if unknown.
    pub line: u32,
    /// First line of the function, 0 if unknown.
    pub start_line: u32,
    /// Address for native frames.
    pub address: u64,
    /// Index of the mapping, -1 if none.
    pub mapping: i32,
}

/// What a thread was doing when it was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Not known, or not about one moment.
    Unknown,
    /// On a core.
    Running,
    /// Waiting for a core.
    Runnable,
    /// Waiting for something to happen.
    Sleeping,
    /// In a wait that cannot be interrupted.
    Disk,
}

impl State {
    /// The values of the label `state`, in the order of the variants.
    pub const NAMES: [&str; 5] = ["", "running", "runnable", "sleeping", "disk"];
}

/// What one thread did in one stack. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Ticks that the stack stands for.
    pub samples: u64,
    /// CPU time.
    pub cpu: u64,
    /// Wall time.
    pub wall: u64,
    /// Wall time of the ticks at which the thread held the GIL.
    pub gil: u64,
}

/// Whose values a row of [`Tables`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// The thread's row in the window's list of threads.
    pub thread: u32,
    /// The stack.
    pub stack: StackId,
    /// What the thread was doing.
    pub state: State,
    /// When, Unix nanoseconds; 0 = at any time.
    pub time: u64,
}

/// The tables of one process and window.
#[derive(Debug, Default)]
pub struct Tables {
    strings: Vec<String>,
    string_ids: FxHashMap<String, u32>,
    frames: Vec<Frame>,
    frame_ids: FxHashMap<Frame, FrameId>,
    words: Vec<FrameId>,
    starts: Vec<u32>,
    /// Stacks by the hash of their frames; equal hashes are chained by trying the next one.
    stack_ids: FxHashMap<u64, StackId>,
    rows: FxHashMap<RowKey, Values>,
    mappings: Vec<Mapping>,
    folded_frames: u64,
    folded_samples: u64,
    timed_full: bool,
}

/// What [`Tables`] held, to be sent: flat columns, complete in itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Columns {
    /// All strings.
    pub strings: Vec<String>,
    /// All frames.
    pub frames: Vec<Frame>,
    /// Start of each stack in `stack_frames`, and their end: one more than stacks.
    pub stack_starts: Vec<u32>,
    /// Frame indices, leaf first.
    pub stack_frames: Vec<u32>,
    /// (tid, name).
    pub threads: Vec<(u32, String)>,
    /// Index into `threads`.
    pub row_threads: Vec<u32>,
    /// Index of the stack.
    pub row_stacks: Vec<u32>,
    /// Index into [`State::NAMES`].
    pub row_states: Vec<u32>,
    /// When the row's stack was seen first, Unix nanoseconds; 0 = it is added up over all times.
    pub row_times: Vec<u64>,
    /// Ticks.
    pub samples: Vec<u64>,
    /// CPU nanoseconds.
    pub cpu: Vec<u64>,
    /// Wall nanoseconds.
    pub wall: Vec<u64>,
    /// GIL nanoseconds.
    pub gil: Vec<u64>,
    /// The executable mappings that native frames are in.
    pub mappings: Vec<Mapping>,
}

impl Tables {
    /// Index of a string.
    pub fn string(&mut self, text: &str) -> u32 {
        if let Some(&id) = self.string_ids.get(text) {
            return id;
        }
        let id = self.strings.len() as u32;
        self.strings.push(text.to_string());
        self.string_ids.insert(text.to_string(), id);
        id
    }

    /// Index of a frame.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        if let Some(&id) = self.frame_ids.get(&frame) {
            return id;
        }
        if self.frames.len() >= MAX_FRAMES {
            self.folded_frames += 1;
            return 0;
        }
        let id = self.frames.len() as FrameId;
        if id == 0 {
            // The first frame is the one that stands for all that do not fit.
            let full = self.full_frame();
            self.frames.push(full);
            self.frame_ids.insert(full, 0);
            return self.frame(frame);
        }
        self.frames.push(frame);
        self.frame_ids.insert(frame, id);
        id
    }

    /// Index of a native frame, by the address to look up in a mapping (-1 = in none that is known). `kind` is
    /// [`FrameKind::Native`] or [`FrameKind::Loop`].
    pub fn native_frame(&mut self, kind: FrameKind, address: u64, mapping: i32) -> FrameId {
        let none = self.string("");
        self.frame(Frame { kind, name: none, file: none, line: 0, start_line: 0, address, mapping })
    }

    /// Index of an executable mapping that a native frame is in.
    pub fn mapping(&mut self, mapping: &Mapping) -> i32 {
        let known = self.mappings.iter().position(|known| known == mapping);
        let index = known.unwrap_or_else(|| {
            self.mappings.push(mapping.clone());
            self.mappings.len() - 1
        });
        index as i32
    }

    /// Index of a frame that is only a label, such as `[unsampled]`.
    pub fn label(&mut self, label: &str) -> FrameId {
        let frame = self.label_frame(label);
        self.frame(frame)
    }

    fn label_frame(&mut self, label: &str) -> Frame {
        let (name, file) = (self.string(label), self.string(""));
        Frame { kind: FrameKind::Label, name, file, line: 0, start_line: 0, address: 0, mapping: -1 }
    }

    fn full_frame(&mut self) -> Frame {
        self.label_frame("[table full]")
    }

    fn full_frame_id(&mut self) -> FrameId {
        if self.frames.is_empty() {
            self.label("");
        }
        0
    }

    /// Index of a stack, leaf first.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        let mut hash = hash_of(frames);
        while let Some(&id) = self.stack_ids.get(&hash) {
            if self.stack_frames(id) == frames {
                return id;
            }
            hash = hash.wrapping_add(1);
        }
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        let id = (self.starts.len() - 1) as StackId;
        let over = id as usize >= MAX_STACKS || self.words.len() + frames.len() > MAX_STACK_WORDS;
        if over && frames != [0] {
            return self.stack(&[0]);
        }
        self.words.extend_from_slice(frames);
        self.starts.push(self.words.len() as u32);
        self.stack_ids.insert(hash, id);
        id
    }

    /// The frames of a stack.
    pub fn stack_frames(&self, id: StackId) -> &[FrameId] {
        let id = id as usize;
        &self.words[self.starts[id] as usize..self.starts[id + 1] as usize]
    }

    /// Adds to the values of a row.
    pub fn count(&mut self, mut key: RowKey, values: Values) {
        if key.time > 0 && self.rows.len() >= MAX_TIMED_ROWS && !self.rows.contains_key(&key) {
            self.timed_full = true;
            key.time = 0;
        }
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
            let full = self.full_frame_id();
            key = RowKey { stack: self.stack(&[full]), state: State::Unknown, time: 0, ..key };
        }
        if self.is_full(key.stack) {
            self.folded_samples += values.samples;
        }
        let row = self.rows.entry(key).or_default();
        row.samples += values.samples;
        row.cpu += values.cpu;
        row.wall += values.wall;
        row.gil += values.gil;
    }

    /// Whether a stack is the one that stands for those that did not fit.
    pub fn is_full(&self, stack: StackId) -> bool {
        self.stack_frames(stack) == [0]
    }

    /// How many samples, and how many frames of others, did not fit and are shown as `[table full]`.
    pub fn folded(&self) -> (u64, u64) {
        (self.folded_samples, self.folded_frames)
    }

    /// Whether there were more rows with a time than are kept.
    pub fn timed_full(&self) -> bool {
        self.timed_full
    }

    /// Everything, as columns; the tables are empty afterwards.
    pub fn take(&mut self, threads: Vec<(u32, String)>) -> Columns {
        let tables = std::mem::take(self);
        let mut rows: Vec<_> = tables.rows.into_iter().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        let column = |pick: fn(&Values) -> u64| rows.iter().map(|(_, values)| pick(values)).collect();
        Columns {
            strings: tables.strings,
            frames: tables.frames,
            stack_starts: if tables.starts.is_empty() { vec![0] } else { tables.starts },
            stack_frames: tables.words,
            threads,
            row_threads: rows.iter().map(|(key, _)| key.thread).collect(),
            row_stacks: rows.iter().map(|(key, _)| key.stack).collect(),
            row_states: rows.iter().map(|(key, _)| key.state as u32).collect(),
            row_times: rows.iter().map(|(key, _)| key.time).collect(),
            samples: column(|values| values.samples),
            cpu: column(|values| values.cpu),
            wall: column(|values| values.wall),
            gil: column(|values| values.gil),
            mappings: tables.mappings,
        }
    }
}

fn hash_of(frames: &[FrameId]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = rustc_hash::FxHasher::default();
    frames.iter().for_each(|&frame| hasher.write_u32(frame));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_fold_and_sums_stay() {
        let mut tables = Tables::default();
        let (a, b) = (tables.label("[a]"), tables.label("[b]"));
        assert_ne!(a, 0, "index 0 is the frame for what does not fit");
        let (one, two, none) = (tables.stack(&[a, b]), tables.stack(&[b]), tables.stack(&[]));
        assert_eq!(tables.stack(&[a, b]), one);
        for stack in [one, two, one, none] {
            let key = RowKey { thread: 0, stack, state: State::Running, time: 0 };
            tables.count(key, Values { samples: 1, cpu: 5, wall: 7, gil: 2 });
        }
        let key = RowKey { thread: 1, stack: one, state: State::Sleeping, time: 0 };
        tables.count(key, Values { samples: 3, ..Values::default() });
        let columns = tables.take(vec![(10, "x".into()), (11, "y".into())]);
        assert_eq!(columns.samples.iter().sum::<u64>(), 7);
        assert_eq!(columns.cpu.iter().sum::<u64>(), 20);
        assert_eq!(columns.row_threads, [0, 0, 0, 1]);
        assert_eq!(columns.stack_starts, [0, 2, 3, 3]);
        assert_eq!(columns.strings[columns.frames[a as usize].name as usize], "[a]");
    }

    #[test]
    fn rows_of_different_times_are_kept_apart_up_to_a_bound() {
        let mut tables = Tables::default();
        let stack = tables.stack(&[]);
        let key = |time| RowKey { thread: 0, stack, state: State::Running, time };
        for time in (1..=MAX_TIMED_ROWS as u64).chain([1, 1 << 40, 1 << 41]) {
            tables.count(key(time), Values { samples: 1, ..Values::default() });
        }
        assert!(tables.timed_full());
        let columns = tables.take(Vec::new());
        assert_eq!(columns.samples.iter().sum::<u64>(), MAX_TIMED_ROWS as u64 + 3);
        assert_eq!((columns.row_times[0], columns.samples[0]), (0, 2));
        assert_eq!((columns.row_times[1], columns.samples[1]), (1, 2));
        assert_eq!(columns.samples.len(), MAX_TIMED_ROWS + 1);
    }

    #[test]
    fn rows_beyond_the_bound_are_folded_and_counted() {
        let mut tables = Tables::default();
        let label = tables.label("[a]");
        let stack = tables.stack(&[label]);
        let value = Values { samples: 1, cpu: 3, ..Values::default() };
        for thread in 0..MAX_ROWS as u32 + 5 {
            tables.count(RowKey { thread, stack, state: State::Running, time: 0 }, value);
        }
        tables.count(RowKey { thread: 7, stack, state: State::Running, time: 0 }, value);
        assert_eq!(tables.folded(), (5, 0));
        let columns = tables.take(Vec::new());
        assert_eq!(columns.samples.iter().sum::<u64>(), MAX_ROWS as u64 + 6);
        assert_eq!(columns.cpu.iter().sum::<u64>(), 3 * (MAX_ROWS as u64 + 6));
        let full = columns.row_stacks[columns.row_stacks.len() - 1] as usize;
        let frame = columns.stack_frames[columns.stack_starts[full] as usize];
        assert_eq!(columns.strings[columns.frames[frame as usize].name as usize], "[table full]");
    }

    #[test]
    fn equal_hashes_do_not_mix_stacks() {
        let mut tables = Tables::default();
        let a = tables.label("[a]");
        let one = tables.stack(&[a]);
        let two = tables.stack(&[a, a]);
        // Point the hash of a third stack at the first: it must be told apart by its frames.
        tables.stack_ids.insert(hash_of(&[a, a, a]), one);
        let three = tables.stack(&[a, a, a]);
        assert!(one != two && two != three && one != three);
        assert_eq!(tables.stack_frames(three), [a, a, a]);
    }
}
