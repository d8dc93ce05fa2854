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

/// Most lines of frames whose functions are known, in one window.
pub const MAX_FRAME_LINES: usize = 8_000_000;
/// Most distinct sets of labels of one window; what has others has none.
pub const MAX_LABEL_SETS: usize = 10_000;

/// What a stack ends in that is cut short.
pub const TRUNCATED: &str = "[truncated]";

/// Index of a frame.
pub type FrameId = u32;
/// Index of a stack.
pub type StackId = u32;
/// Key and value of a label.
pub type Label = (String, String);

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

/// A function at a native frame. Strings are indices, numbers 0 where unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FrameLine {
    /// Function.
    pub name: u32,
    /// Source file.
    pub file: u32,
    /// Line.
    pub line: u32,
    /// First line of the function.
    pub start_line: u32,
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
    /// Its labels: an id of [`Tables::label_set`], 0 = none.
    pub labels: u32,
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
    /// The functions at native frames, the innermost inlined call first, where the runtime has told them.
    lines: FxHashMap<FrameId, Vec<FrameLine>>,
    line_count: usize,
    labels: Vec<Vec<Label>>,
    label_ids: FxHashMap<Vec<Label>, u32>,
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
    /// Index into `labels`.
    pub row_labels: Vec<u32>,
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
    /// Native frames whose functions are known, in ascending order, the innermost inlined call first.
    pub lines: Vec<(FrameId, Vec<FrameLine>)>,
    /// Distinct sets of labels; the first is empty.
    pub labels: Vec<Vec<Label>>,
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

    /// Notes the functions at a native frame.
    pub fn name(&mut self, frame: FrameId, lines: Vec<FrameLine>) {
        if frame != 0 && self.line_count + lines.len() <= MAX_FRAME_LINES && !self.lines.contains_key(&frame) {
            self.line_count += lines.len();
            self.lines.insert(frame, lines);
        }
    }

    /// Index of a set of labels; None where there are too many.
    pub fn label_set(&mut self, set: Vec<Label>) -> Option<u32> {
        if set.is_empty() {
            return Some(0);
        }
        if let Some(&known) = self.label_ids.get(&set) {
            return Some(known);
        }
        if self.labels.len() >= MAX_LABEL_SETS {
            return None;
        }
        self.labels.push(set.clone());
        let id = self.labels.len() as u32;
        self.label_ids.insert(set, id);
        Some(id)
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
            key = RowKey { stack: self.stack(&[full]), state: State::Unknown, time: 0, labels: 0, ..key };
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
        let mut lines: Vec<_> = tables.lines.into_iter().collect();
        lines.sort_unstable_by_key(|(frame, _)| *frame);
        let mut labels = tables.labels;
        labels.insert(0, Vec::new());
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
            row_labels: rows.iter().map(|(key, _)| key.labels).collect(),
            samples: column(|values| values.samples),
            cpu: column(|values| values.cpu),
            wall: column(|values| values.wall),
            gil: column(|values| values.gil),
            mappings: tables.mappings,
            lines,
            labels,
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
#[path = "tables_tests.rs"]
mod tests;
