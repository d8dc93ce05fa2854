//! What a stack shows out of which no walk leads.

use super::*;
use crate::runtime::cpython::{RawFrame, UNKNOWN};

const VDSO: u32 = 0;
const LIBRARY: u32 = 1;

fn mapping(start: u64, path: &str) -> Mapping {
    let (permissions, device) = ("r-xp".to_string(), "fe:01".to_string());
    Mapping { start, end: start + 0x1000, permissions, offset: 0, device, inode: 0, path: path.to_string() }
}

/// Where the evaluation loop is.
const LOOP: u64 = 0x5800;

/// The stack of a walk through these (address, mapping) frames, leaf first, as labels and addresses.
fn shown(walked: Walked, frames: &[(u64, u32)], python: usize) -> Vec<String> {
    let mut native = Native::new(1 << 16);
    native.evaluation = Evaluation::new(vec![(LOOP..LOOP + 0x100, Part::Whole)]);
    native.mappings = vec![mapping(0x1000, "[vdso]"), mapping(0x5000, "/library")];
    native.forget_ids();
    native.frames = frames
        .iter()
        .enumerate()
        .map(|(index, &(pc, mapping))| NativeFrame { pc, lookup: pc, sp: 0x7000 + index as u64 * 16, mapping })
        .collect();
    let mut stack = PyStack::default();
    let raw = |address| RawFrame { code: UNKNOWN, lasti: 0, address, entry: false };
    stack.frames = (0..python as u64).map(raw).collect();
    let (mut tables, mut ids) = (Tables::default(), Vec::new());
    let python_frame = |tables: &mut Tables, index: usize| tables.label(&format!("python{index}"));
    native.merge(&mut tables, walked, &stack, python_frame, &mut ids);
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
fn evaluations_without_a_python_frame() {
    // One may be about to begin; of two, the older has frames, and they have not been read.
    let (library, one, two) = ((0x5010, LIBRARY), (LOOP, LIBRARY), (LOOP + 8, LIBRARY));
    assert_eq!(shown(Walked::Complete, &[one, library], 0), ["0x5800", "0x5010"]);
    let apart = ["0x5800", "0x5010", "0x5808", "[unmatched]"];
    assert_eq!(shown(Walked::Complete, &[one, library, two], 0), apart);
    assert_eq!(shown(Walked::Cut("no unwind tables"), &[one, library, two], 0), apart[..3]);
}
