//! What a stack shows out of which no walk leads.

use super::*;
use crate::runtime::cpython::{RawFrame, UNKNOWN};
use crate::target::recorded::Recorded;
use crate::unwind::guest::Seen;

const VDSO: u32 = 0;
const LIBRARY: u32 = 1;

fn mapping(start: u64, path: &str) -> Mapping {
    let (permissions, device) = ("r-xp".to_string(), "fe:01".to_string());
    Mapping { start, end: start + 0x1000, permissions, offset: 0, device, inode: 0, path: path.to_string() }
}

/// Where the evaluation loop is.
const LOOP: u64 = 0x5800;

/// After a walk through these (address, mapping) frames, leaf first.
fn walked_through(frames: &[(u64, u32)]) -> Native {
    let mut native = Native::new(1 << 16);
    native.evaluation = Evaluation::new(vec![(LOOP..LOOP + 0x100, Part::Whole)]);
    native.mappings = vec![mapping(0x1000, "[vdso]"), mapping(0x5000, "/library")];
    native.forget_ids();
    native.frames = frames
        .iter()
        .enumerate()
        .map(|(index, &(pc, mapping))| NativeFrame { pc, lookup: pc, sp: 0x7000 + index as u64 * 16, mapping })
        .collect();
    native
}

/// A Python stack of so many frames.
fn python_stack(frames: usize) -> PyStack {
    let raw = |address| RawFrame { code: UNKNOWN, lasti: 0, address, entry: false };
    PyStack { frames: (0..frames as u64).map(raw).collect(), ..PyStack::default() }
}

/// The stack of a walk through these frames, as labels and addresses.
fn shown(walked: Walked, frames: &[(u64, u32)], python: usize) -> Vec<String> {
    let (mut native, stack) = (walked_through(frames), python_stack(python));
    let (mut tables, mut ids) = (Tables::default(), Vec::new());
    let python_frame = |tables: &mut Tables, index: usize| tables.label(&format!("python{index}"));
    native.merge(&Recorded::default(), &mut tables, walked, &stack, python_frame, &mut ids);
    let columns = tables.take(Vec::new());
    let name = |&id: &FrameId| {
        let frame = columns.frames[id as usize];
        let label = &columns.strings[frame.name as usize];
        if label.is_empty() { format!("{:#x}", frame.address) } else { label.clone() }
    };
    ids.iter().map(name).collect()
}

#[test]
fn a_leaf_out_of_which_no_walk_leads() {
    let cut = Walked::Cut("no unwind tables");
    // In the vDSO it is _VDSO, over whatever is known; the walk that got out keeps the function.
    assert_eq!(shown(cut, &[(0x1234, VDSO)], 0), ["_VDSO"]);
    assert_eq!(shown(cut, &[(0x1234, VDSO), (0x5010, LIBRARY)], 0), ["_VDSO", "0x5010"]);
    assert_eq!(shown(cut, &[(0x1234, VDSO)], 2), ["_VDSO", "[unmatched]", "python0", "python1"]);
    assert_eq!(shown(Walked::Complete, &[(0x1234, VDSO), (0x5010, LIBRARY)], 0), ["0x1234", "0x5010"]);
    // A known library keeps its symbol; _ExternalCode is only for code of no known mapping.
    assert_eq!(shown(cut, &[(0x5010, LIBRARY)], 0), ["0x5010"]);
    assert_eq!(shown(cut, &[(0x9000, crate::unwind::NO_MAPPING)], 0), ["_ExternalCode"]);
}

#[test]
fn the_root_of_a_stack_that_is_cut_short() {
    let cut = Some(Walked::Cut("a register is lost"));
    let in_go = |collecting| {
        let places = Places { known: true, ..Places::default() };
        Seen { places, collecting, ..Seen::default() }
    };
    let (alone, called) = ([(0x1234, VDSO)], [(0x1234, VDSO), (0x5010, LIBRARY)]);
    // As Go's own profiles have it: what the runtime is doing, under a leaf of which nothing else is known.
    let root = |walked, frames: &[_], seen: &Seen, python| {
        walked_through(frames).lost_root(walked, seen, &python_stack(python))
    };
    assert_eq!(root(cut, &alone, &in_go(false), 0), "_System");
    assert_eq!(root(cut, &alone, &in_go(true), 0), "_GC");
    assert_eq!(root(cut, &[(0x9000, crate::unwind::NO_MAPPING)], &in_go(true), 0), "_GC");
    // Where more is known, or in other threads, that is all.
    assert_eq!(root(cut, &called, &in_go(true), 0), "[truncated]");
    assert_eq!(root(cut, &alone, &in_go(true), 1), "[truncated]");
    assert_eq!(root(cut, &alone, &Seen { collecting: true, ..Seen::default() }, 0), "[truncated]");
    assert_eq!(root(None, &alone, &in_go(true), 0), "[truncated]");
}

#[test]
fn evaluations_without_a_python_frame() {
    // One may be about to begin; of two, the older has frames, and they have not been read.
    let (library, one, two) = ((0x5010, LIBRARY), (LOOP, LIBRARY), (LOOP + 8, LIBRARY));
    assert_eq!(shown(Walked::Complete, &[one, library], 0), ["0x5800", "0x5010"]);
    let apart = ["0x5800", "0x5010", "0x5808", "[unmatched]"];
    assert_eq!(shown(Walked::Complete, &[one, library, two], 0), apart);
    assert_eq!(shown(Walked::Cut("no unwind tables"), &[one, library, two], 0), apart[..3]);
}
