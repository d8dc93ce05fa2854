//! One stack of native and Python frames: the native frames of CPython's evaluation loop give way to the Python frames
//! they run. They are matched by place, not counted: a native frame spans [its stack pointer, that of the next older
//! frame), and from 3.11 on every group of Python frames names an address in the span of the evaluation that runs it.
//!
//! The rules, tried on every version: facts on CPython, "Putting Python frames into the native stack".

use std::fs::File;
use std::ops::Range;

use object::ReadRef;
use object::read::ReadCache;

use crate::elf_symbols;
use crate::runtime::cpython::{Group, RawFrame};
use crate::unwind::NativeFrame;

/// Most ranges of code taken for the evaluation loop.
const MAX_RANGES: usize = 4096;
/// The evaluation loop.
const LOOP: &[u8] = b"_PyEval_EvalFrameDefault";
/// Its parts in builds with tail calls (3.14).
const TAIL_CALLED: &[u8] = b"_TAIL_CALL_";

/// One entry of a merged stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Index of a native frame.
    Native(u32),
    /// Index of a Python frame.
    Python(u32),
}

/// How the two stacks fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Each Python frame has its place; the entries are complete.
    Matched,
    /// They do not fit: the entries are empty, and the sample is kept with both halves.
    Unmatched,
}

/// What a native frame is to the evaluation loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The function itself, or what the compiler split off it: one frame for each evaluation.
    Whole,
    /// An instruction of a tail-call build: a frame of its own above that of the function that runs it.
    Tail,
}

/// Where the code of the evaluation loop is, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evaluation(Vec<(Range<u64>, Part)>);

impl Evaluation {
    /// From ranges in any order.
    pub fn new(mut ranges: Vec<(Range<u64>, Part)>) -> Evaluation {
        ranges.retain(|(range, _)| range.start < range.end);
        ranges.sort_by_key(|(range, _)| range.start);
        ranges.truncate(MAX_RANGES);
        Evaluation(ranges)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same where the file is loaded `bias` higher.
    pub fn loaded(&self, bias: u64) -> Evaluation {
        let move_up =
            |(range, part): &(Range<u64>, Part)| (range.start.wrapping_add(bias)..range.end.wrapping_add(bias), *part);
        Evaluation::new(self.0.iter().map(move_up).collect())
    }

    /// What the code at `address` is.
    pub fn part(&self, address: u64) -> Option<Part> {
        let after = self.0.partition_point(|(range, _)| range.start <= address);
        let (range, part) = self.0.get(after.checked_sub(1)?)?;
        (address < range.end).then_some(*part)
    }
}

/// [`evaluation_ranges`] of an open file.
pub fn evaluation_of_file(file: File) -> Evaluation {
    let cache = ReadCache::new(file);
    evaluation_ranges(&cache)
}

/// The evaluation loop's ranges in an ELF file, as file addresses: the function, what the compiler split off (`.cold`,
/// `.part.0`, LTO's `.lto_priv.0`), and in tail-call builds one function for each instruction. Empty if the file has no
/// symbols for it.
pub fn evaluation_ranges<'a, R: ReadRef<'a>>(file: R) -> Evaluation {
    let symbols = elf_symbols::beginning_with(file, &[LOOP, TAIL_CALLED]);
    let ranges = symbols.into_iter().filter(|symbol| symbol.function);
    Evaluation::new(ranges.filter_map(|symbol| Some((symbol.range, part(symbol.name)?))).collect())
}

fn part(name: &[u8]) -> Option<Part> {
    match name.strip_prefix(LOOP) {
        Some([] | [b'.', ..]) => Some(Part::Whole),
        _ => name.starts_with(TAIL_CALLED).then_some(Part::Tail),
    }
}

/// Merges one thread's stacks, both leaf first, into `entries`, leaf first.
///
/// `groups` is what 3.11 and later have; with none, each Python frame has an evaluation of its own (3.8 to 3.10). A
/// native stack that was not walked to its bottom can be merged by groups as far as it goes, not without them.
pub fn merge(
    native: &[NativeFrame],
    evaluation: &Evaluation,
    python: &[RawFrame],
    groups: &[Group],
    complete: bool,
    entries: &mut Vec<Entry>,
) -> Merge {
    entries.clear();
    let merged = if groups.is_empty() {
        by_count(native, evaluation, python, complete, entries)
    } else {
        by_place(native, evaluation, python, groups, complete, entries)
    };
    if merged.is_none() {
        entries.clear();
    }
    merged.map_or(Merge::Unmatched, |()| Merge::Matched)
}

/// 3.8 to 3.10: one evaluation for one frame, paired from the outermost inwards. The innermost evaluation may be about
/// to begin or to end: it then has no frame.
fn by_count(
    native: &[NativeFrame],
    evaluation: &Evaluation,
    python: &[RawFrame],
    complete: bool,
    entries: &mut Vec<Entry>,
) -> Option<()> {
    let evaluates = |frame: &NativeFrame| evaluation.part(frame.lookup) == Some(Part::Whole);
    let evaluations = native.iter().filter(|frame| evaluates(frame)).count();
    let idle = evaluations.checked_sub(python.len()).filter(|&idle| idle <= 1)?;
    if !complete {
        return None;
    }
    let (mut seen, mut next) = (0, 0);
    for (index, frame) in native.iter().enumerate() {
        if !evaluates(frame) {
            entries.push(Entry::Native(index as u32));
            continue;
        }
        seen += 1;
        if seen > idle {
            entries.push(Entry::Python(next));
            next += 1;
        }
    }
    Some(())
}

/// 3.11 and later: a group goes where its address is.
fn by_place(
    native: &[NativeFrame],
    evaluation: &Evaluation,
    python: &[RawFrame],
    groups: &[Group],
    complete: bool,
    entries: &mut Vec<Entry>,
) -> Option<()> {
    let total: u64 = groups.iter().map(|group| u64::from(group.frames)).sum();
    if total != python.len() as u64 {
        return None;
    }
    let mut waiting = groups.iter().peekable();
    let mut next = 0;
    let mut innermost = true;
    for (index, frame) in native.iter().enumerate() {
        match evaluation.part(frame.lookup) {
            Some(Part::Whole) => {}
            Some(Part::Tail) => continue,
            None => {
                entries.push(Entry::Native(index as u32));
                continue;
            }
        }
        let end = native.get(index + 1).map_or(u64::MAX, |older| older.sp);
        // A group without frames may outlast its evaluation by a few instructions.
        while waiting.next_if(|group| group.frames == 0 && group.address < frame.sp).is_some() {}
        let mut ran = false;
        while let Some(group) = waiting.next_if(|group| (frame.sp..end).contains(&group.address)) {
            entries.extend((next..next + group.frames).map(Entry::Python));
            next += group.frames;
            ran = true;
        }
        let first = std::mem::take(&mut innermost);
        if !ran && waiting.peek().is_none() && next > 0 {
            // Older than the oldest Python frame of this chain: a greenlet runs on top of its parent's evaluations.
            entries.push(Entry::Native(index as u32));
        } else if !ran && !first {
            // Only the innermost may be without a group: it has not linked its first yet, or unlinked its last.
            return None;
        }
    }
    match waiting.peek() {
        // A walk that ended early: the other Python frames are older than all that was walked.
        Some(group) if !complete && native.last().is_some_and(|last| group.address >= last.sp) => {
            entries.extend((next..python.len() as u32).map(Entry::Python));
            Some(())
        }
        _ => waiting.all(|group| group.frames == 0).then_some(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::cpython::UNKNOWN;

    const EVAL: u64 = 0x1000;
    const TAIL: u64 = 0x3000;
    const C: u64 = 0x9000;

    fn evaluation() -> Evaluation {
        Evaluation::new(vec![(0x2000..0x2010, Part::Whole), (TAIL..0x4000, Part::Tail), (EVAL..0x1800, Part::Whole)])
    }

    /// Frames 0x100 apart, leaf first.
    fn native(codes: &[u64]) -> Vec<NativeFrame> {
        let frame =
            |(index, &pc): (usize, &u64)| NativeFrame { pc, lookup: pc, sp: 0x7000 + index as u64 * 0x100, mapping: 0 };
        codes.iter().enumerate().map(frame).collect()
    }

    fn python(count: u64) -> Vec<RawFrame> {
        (0..count).map(|address| RawFrame { code: UNKNOWN, lasti: 0, address, entry: false }).collect()
    }

    /// A group in the span of the native frame `at`.
    fn group(at: u64, frames: u32) -> Group {
        Group { address: 0x7000 + at * 0x100 + 0x40, frames }
    }

    /// The merged stack in letters: n and p with their index; empty if unmatched.
    fn merged(codes: &[u64], frames: u64, groups: &[Group], complete: bool) -> String {
        let mut entries = Vec::new();
        let how = merge(&native(codes), &evaluation(), &python(frames), groups, complete, &mut entries);
        assert_eq!(how == Merge::Unmatched, entries.is_empty());
        let letter = |entry: &Entry| match entry {
            Entry::Native(index) => format!("n{index}"),
            Entry::Python(index) => format!("p{index}"),
        };
        entries.iter().map(letter).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn one_frame_each_before_3_11() {
        assert_eq!(merged(&[C, EVAL, C, EVAL + 8, C], 2, &[], true), "n0 p0 n2 p1 n4");
        // The innermost evaluation has linked no frame yet, or is checking its result.
        assert_eq!(merged(&[EVAL, C, EVAL, C], 1, &[], true), "n1 p0 n3");
        assert_eq!(merged(&[C, EVAL, C, EVAL, C], 1, &[], true), "n0 n2 p0 n4");
        assert_eq!(merged(&[C, C], 0, &[], true), "n0 n1");
    }

    #[test]
    fn unmatched_before_3_11() {
        assert_eq!(merged(&[EVAL, C, EVAL, C, EVAL, C], 1, &[], true), "");
        assert_eq!(merged(&[EVAL, C], 2, &[], true), "");
        assert_eq!(merged(&[C, EVAL, C], 1, &[], false), "");
    }

    #[test]
    fn groups_by_their_place() {
        let groups = [group(1, 3), group(4, 1)];
        assert_eq!(merged(&[C, EVAL, C, C, 0x2000, C], 4, &groups, true), "n0 p0 p1 p2 n2 n3 p3 n5");
    }

    #[test]
    fn evaluations_without_frames() {
        // Before the first link or after the last unlink: the innermost only.
        assert_eq!(merged(&[EVAL, C, EVAL, C], 2, &[group(2, 2)], true), "n1 p0 p1 n3");
        // A destructor during frame clear: an entry frame and nothing above it.
        let groups = [group(0, 1), group(2, 0), group(4, 1)];
        assert_eq!(merged(&[EVAL, C, EVAL, C, EVAL, C], 2, &groups, true), "p0 n1 n3 p1 n5");
        // The group outlasted its evaluation.
        let gone = Group { address: 0x6f00, frames: 0 };
        assert_eq!(merged(&[C, EVAL, C], 1, &[gone, group(1, 1)], true), "n0 p0 n2");
        // Two groups in one span: the younger is being linked.
        assert_eq!(merged(&[EVAL, C], 1, &[group(0, 0), group(0, 1)], true), "p0 n1");
    }

    #[test]
    fn unmatched_groups() {
        // An evaluation in the middle without a group.
        assert_eq!(merged(&[C, EVAL, C, EVAL, C, EVAL, C], 2, &[group(1, 1), group(5, 1)], true), "");
        // A group in a frame that is no evaluation; one beyond the stack; too few frames.
        assert_eq!(merged(&[C, EVAL, C], 1, &[group(0, 1)], true), "");
        assert_eq!(merged(&[C, EVAL, C], 2, &[group(1, 1), group(9, 1)], true), "");
        assert_eq!(merged(&[C, EVAL, C], 5, &[group(1, 1)], true), "");
        assert_eq!(merged(&[C, EVAL, C], 1, &[Group { address: 0, frames: 1 }], true), "");
    }

    #[test]
    fn cut_short() {
        let groups = [group(1, 1), group(9, 2)];
        assert_eq!(merged(&[C, EVAL, C], 3, &groups, false), "n0 p0 n2 p1 p2");
    }

    #[test]
    fn tail_calls() {
        let groups = [group(2, 2), group(5, 1)];
        assert_eq!(merged(&[C, TAIL, EVAL, C, TAIL, EVAL, C], 3, &groups, true), "n0 p0 p1 n3 p2 n6");
    }

    #[test]
    fn greenlets() {
        assert_eq!(merged(&[EVAL, C, EVAL, C], 1, &[group(0, 1)], true), "p0 n1 n2 n3");
    }

    #[test]
    fn names() {
        let whole: [&[u8]; 3] =
            [b"_PyEval_EvalFrameDefault", b"_PyEval_EvalFrameDefault.cold", b"_PyEval_EvalFrameDefault.lto_priv.0"];
        assert!(whole.iter().all(|name| part(name) == Some(Part::Whole)));
        assert_eq!(part(b"_TAIL_CALL_LOAD_FAST"), Some(Part::Tail));
        assert_eq!(part(b"_PyEval_EvalFrameDefaultX"), None);
        assert_eq!(part(b"_PyEval_Vector"), None);
    }
}
