//! One stack of native and Python frames: the native frames of CPython's evaluation loop get the Python frames they run.
//! They are matched by place, not counted: a native frame spans [its stack pointer, that of the next older frame), and
//! from 3.11 on every group of Python frames names an address in the span of the evaluation that runs it.
//!
//! The rules, tried on every version: facts on CPython, "Putting Python frames into the native stack".

use crate::runtime::cpython::{Group, RawFrame};
use crate::unwind::NativeFrame;

mod evaluation;

/// Functions of the greenlet module that a greenlet begins with: `g_initialstub` and `inner_bootstrap`.
const GREENLET_START: usize = 2;

pub use evaluation::{EVALUATION, Evaluation, Part, evaluation_of_file, evaluation_ranges};

/// One entry of a merged stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Index of a native frame.
    Native(u32),
    /// Index of a native frame that belongs to the evaluation loop; the Python frames that it runs, if any, are the
    /// entries before it.
    Loop(u32),
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
        entries.push(Entry::Loop(index as u32));
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
    let is_tail = |at: u32| evaluation.part(native[at as usize].lookup) == Some(Part::Tail);
    let mut waiting = groups.iter().peekable();
    let mut next = 0;
    let mut innermost = true;
    for (index, frame) in native.iter().enumerate() {
        match evaluation.part(frame.lookup) {
            Some(Part::Whole) => {}
            Some(Part::Tail) => {
                entries.push(Entry::Loop(index as u32));
                continue;
            }
            None => {
                entries.push(Entry::Native(index as u32));
                continue;
            }
        }
        let end = native.get(index + 1).map_or(u64::MAX, |older| older.sp);
        // A group without frames may outlast its evaluation by a few instructions.
        while waiting.next_if(|group| group.frames == 0 && group.address < frame.sp).is_some() {}
        // The instruction that the innermost Python frame is at.
        let tail = entries.pop_if(|last| matches!(*last, Entry::Loop(at) if is_tail(at)));
        let mut ran = false;
        while let Some(group) = waiting.next_if(|group| (frame.sp..end).contains(&group.address)) {
            entries.extend((next..next + group.frames).map(Entry::Python));
            next += group.frames;
            ran = true;
        }
        let first = std::mem::take(&mut innermost);
        // Only the innermost may be without a group: it has not linked its first yet, or unlinked its last. And those
        // that are older than the oldest Python frame: a greenlet runs on top of its parent's evaluations.
        let foreign = waiting.peek().is_none() && next > 0;
        if !ran && !first && !foreign {
            return None;
        }
        entries.extend(tail);
        entries.push(Entry::Loop(index as u32));
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

/// How many native frames, leaf first, belong to the greenlet that runs: what is older on the stack is what was left of
/// another, whose frames are saved elsewhere or not there at all. None: no greenlet, or it cannot be told.
///
/// `switches` says whether a frame is code of the greenlet module. Such a frame begins the greenlet's stack if it is
/// older than the oldest Python frame; others switch away. Without groups that one is found by the number of frames.
pub fn greenlet(
    native: &[NativeFrame],
    evaluation: &Evaluation,
    python: &[RawFrame],
    groups: &[Group],
    switches: impl Fn(&NativeFrame) -> bool,
) -> Option<usize> {
    let of_start = |start: usize| native[start..].iter().take(GREENLET_START).take_while(|frame| switches(frame));
    let end_of_run = |start: usize| start + of_start(start).count();
    if let Some(oldest) = groups.last() {
        let start = native.iter().position(|frame| frame.sp > oldest.address && switches(frame))?;
        return Some(end_of_run(start));
    }
    let (mut evaluations, mut with_idle) = (0, None);
    for (index, frame) in native.iter().enumerate() {
        evaluations += usize::from(evaluation.part(frame.lookup) == Some(Part::Whole));
        if python.is_empty() || !switches(frame) {
            continue;
        }
        if evaluations == python.len() {
            return Some(end_of_run(index));
        }
        if evaluations == python.len() + 1 && with_idle.is_none() {
            with_idle = Some(index);
        }
    }
    with_idle.map(end_of_run)
}

/// The native frames that hold a group's address without being known as an evaluation: in a file that does not name
/// all parts of its evaluation loop, that is what they are. Nothing is concluded from a stack that was not walked to
/// its bottom, or in which a group has no frame.
pub fn unknown_evaluations(native: &[NativeFrame], evaluation: &Evaluation, groups: &[Group]) -> Vec<u32> {
    let mut unknown = Vec::new();
    for group in groups.iter().filter(|group| group.frames > 0) {
        let older = native.partition_point(|frame| frame.sp <= group.address);
        let Some(index) = older.checked_sub(1).filter(|_| older < native.len()) else { return Vec::new() };
        if evaluation.part(native[index].lookup).is_none() && !unknown.contains(&(index as u32)) {
            unknown.push(index as u32);
        }
    }
    unknown
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

    /// The merged stack in letters: n, e (of the loop) and p with their index; empty if unmatched.
    fn merged(codes: &[u64], frames: u64, groups: &[Group], complete: bool) -> String {
        let mut entries = Vec::new();
        let how = merge(&native(codes), &evaluation(), &python(frames), groups, complete, &mut entries);
        assert_eq!(how == Merge::Unmatched, entries.is_empty());
        let letter = |entry: &Entry| match entry {
            Entry::Native(index) => format!("n{index}"),
            Entry::Loop(index) => format!("e{index}"),
            Entry::Python(index) => format!("p{index}"),
        };
        entries.iter().map(letter).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn one_frame_each_before_3_11() {
        assert_eq!(merged(&[C, EVAL, C, EVAL + 8, C], 2, &[], true), "n0 p0 e1 n2 p1 e3 n4");
        // The innermost evaluation has linked no frame yet, or is checking its result.
        assert_eq!(merged(&[EVAL, C, EVAL, C], 1, &[], true), "e0 n1 p0 e2 n3");
        assert_eq!(merged(&[C, EVAL, C, EVAL, C], 1, &[], true), "n0 e1 n2 p0 e3 n4");
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
        assert_eq!(merged(&[C, EVAL, C, C, 0x2000, C], 4, &groups, true), "n0 p0 p1 p2 e1 n2 n3 p3 e4 n5");
    }

    #[test]
    fn evaluations_without_frames() {
        // Before the first link or after the last unlink: the innermost only.
        assert_eq!(merged(&[EVAL, C, EVAL, C], 2, &[group(2, 2)], true), "e0 n1 p0 p1 e2 n3");
        // A destructor during frame clear: an entry frame and nothing above it.
        let groups = [group(0, 1), group(2, 0), group(4, 1)];
        assert_eq!(merged(&[EVAL, C, EVAL, C, EVAL, C], 2, &groups, true), "p0 e0 n1 e2 n3 p1 e4 n5");
        // The group outlasted its evaluation.
        let gone = Group { address: 0x6f00, frames: 0 };
        assert_eq!(merged(&[C, EVAL, C], 1, &[gone, group(1, 1)], true), "n0 p0 e1 n2");
        // Two groups in one span: the younger is being linked.
        assert_eq!(merged(&[EVAL, C], 1, &[group(0, 0), group(0, 1)], true), "p0 e0 n1");
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
        assert_eq!(merged(&[C, EVAL, C], 3, &groups, false), "n0 p0 e1 n2 p1 p2");
    }

    #[test]
    fn tail_calls() {
        let groups = [group(2, 2), group(5, 1)];
        assert_eq!(merged(&[C, TAIL, EVAL, C, TAIL, EVAL, C], 3, &groups, true), "n0 p0 p1 e1 e2 n3 p2 e4 e5 n6");
    }

    #[test]
    fn greenlets() {
        assert_eq!(merged(&[EVAL, C, EVAL, C], 1, &[group(0, 1)], true), "p0 e0 n1 e2 n3");
    }

    #[test]
    fn evaluations_without_a_name() {
        // 0x2000 is what the file does not name.
        let mut known = Evaluation::new(vec![(EVAL..0x1800, Part::Whole)]);
        let native = native(&[C, 0x2000, C, 0x2008, C, EVAL, C]);
        let groups = [group(1, 1), group(3, 2), group(5, 1)];
        assert_eq!(unknown_evaluations(&native, &known, &groups), [1, 3]);
        let mut entries = Vec::new();
        assert_eq!(merge(&native, &known, &python(4), &groups, true, &mut entries), Merge::Unmatched);
        assert!(known.add(0x2000..0x2010));
        assert!(unknown_evaluations(&native, &known, &groups).is_empty());
        assert_eq!(merge(&native, &known, &python(4), &groups, true, &mut entries), Merge::Matched);
        // Beyond the oldest frame, before the leaf: a stack to conclude nothing from. One without frames may be over.
        assert!(unknown_evaluations(&native, &Evaluation::default(), &[group(1, 1), group(9, 1)]).is_empty());
        let gone = Group { address: 0x6f00, frames: 1 };
        assert!(unknown_evaluations(&native, &Evaluation::default(), &[gone, group(1, 1)]).is_empty());
        assert!(unknown_evaluations(&native, &Evaluation::default(), &[group(0, 0)]).is_empty());
    }

    #[test]
    fn a_greenlet_ends_at_its_start() {
        const SWITCH: u64 = 0xa000;
        let switches = |frame: &NativeFrame| frame.lookup == SWITCH;
        let cut = |codes: &[u64], frames: u64, groups: &[Group]| {
            greenlet(&native(codes), &evaluation(), &python(frames), groups, switches)
        };
        let codes = [SWITCH, EVAL, C, EVAL, SWITCH, SWITCH, SWITCH, C, EVAL, SWITCH, C];
        assert_eq!(cut(&codes, 3, &[group(1, 1), group(3, 2)]), Some(6));
        assert_eq!(cut(&codes, 4, &[group(1, 1), group(3, 2), group(8, 1)]), Some(10));
        assert_eq!(cut(&codes, 2, &[]), Some(6));
        assert_eq!(cut(&codes, 3, &[]), Some(10));
        // The innermost has no frame yet.
        assert_eq!(cut(&[EVAL, C, EVAL, SWITCH, C, EVAL, C], 1, &[]), Some(4));
        assert_eq!(cut(&[SWITCH, EVAL, C], 1, &[group(1, 1)]), None);
        assert_eq!(cut(&[SWITCH, EVAL, C], 1, &[]), None);
        assert_eq!(cut(&[C, SWITCH, C], 0, &[]), None);
    }
}
