//! The walk: from a stopped thread's state through its frames to the base of its stack.
//!
//! A frame chain is whole only when it ends in what each version puts at the base of a thread's stack (Python/ceval.c):
//! - 3.8 to 3.10: `f_back` NULL. Both ends of `f_back` are set before and cleared after `tstate->frame` moves.
//! - 3.11: a frame with `is_entry` whose `previous` is NULL; every `_PyCFrame` names the leaf of its own group.
//! - 3.12: an entry frame (owner 3) on the C stack with `previous` NULL, the first one linked to the next cframe's leaf.
//! - 3.13, 3.14: an entry frame (owner 3 or 4) with `previous` NULL.
//!
//! Anything else is a window of an instruction or two in which the chain is being changed: [`End::Torn`].

use super::code::CodeId;
use super::offsets::Offsets;
use super::{byte, word};
use crate::error::ReadError;
use crate::memory::{Memory, Region, Snapshot};

/// Deepest stack walked.
pub const MAX_DEPTH: usize = 4096;
/// Most bytes of bytecode of one function believed.
const MAX_CODE_BYTES: u64 = 64 << 20;
/// Owners of frames: enum _frameowner, pycore_frame.h (3.11 to 3.13), pycore_interpframe_structs.h (3.14).
const OWNED_BY_GENERATOR: u8 = 1;
const OWNED_BY_ENTRY: u8 = 3;
const MAX_OWNER: u8 = 4;
/// Low bits of `f_executable` are tags from 3.14 (pycore_stackref.h); objects are aligned to more than that.
pub(super) const TAG_MASK: u64 = 7;

/// One thread's Python stack. Cleared and used again.
#[derive(Debug, Default)]
pub struct PyStack {
    /// Leaf first.
    pub frames: Vec<RawFrame>,
    /// The native evaluations, leaf first, that run these frames (3.11+; empty before: there each frame has its own).
    pub groups: Vec<Group>,
    /// How the walk ended.
    pub end: End,
    /// Whether the thread held its interpreter's GIL.
    pub holds_gil: bool,
}

/// One Python frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// Its code object.
    pub code: CodeId,
    /// Byte offset of its instruction in the bytecode; `u32::MAX` before the first.
    pub lasti: u32,
    /// The frame's own address.
    pub address: u64,
    /// Whether it is the oldest of a group run by one native evaluation (3.8 to 3.10: always).
    pub entry: bool,
}

/// The frames that one call of `_PyEval_EvalFrameDefault` runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// An address in that call's native stack frame: its entry frame (3.12+) or its `_PyCFrame` (3.11).
    pub address: u64,
    /// Number of frames. 0 while the call begins or ends, or runs a destructor only.
    pub frames: u32,
}

/// How a walk ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// At the base of the stack: the frames are all there are.
    #[default]
    Base,
    /// At [`MAX_DEPTH`].
    Truncated,
    /// Nowhere: whether the thread has a stack is not known, for the lists were read often enough in this round.
    PutOff,
    /// Elsewhere: the thread was in the middle of changing its chain. To be read again, never taken as whole.
    Torn,
}

/// A frame as found in memory, before its code object was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    pub address: u64,
    pub code: u64,
    /// 3.11+: address of the instruction. Before: f_lasti.
    pub instruction: u64,
    pub generator: bool,
}

/// The frames of a walk and where its groups end.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub frames: Vec<Walked>,
    /// (address in the native frame, number of `frames` up to and with this group's).
    pub groups: Vec<(u64, u32)>,
    /// Where a walk had to read outside of the data stack, leaf first: the next copy takes them along.
    pub touched: Vec<(u64, u32)>,
    pub end: End,
}

/// The bounds of the newest data-stack chunk, from the thread state: chunk, top, limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DataStack {
    pub chunk: u64,
    pub top: u64,
    pub limit: u64,
}

/// What a walk walks over.
pub(super) struct Ground<'a> {
    pub memory: &'a dyn Memory,
    pub snapshot: &'a mut Snapshot,
    pub offsets: &'a Offsets,
    pub data: DataStack,
    /// The data-stack chunks that the snapshot holds.
    pub chunks: &'a [Region],
}

struct Node {
    code: u64,
    previous: u64,
    instruction: u64,
    owner: u8,
    is_entry: bool,
}

impl Walk {
    pub fn clear(&mut self) {
        self.frames.clear();
        self.groups.clear();
        self.touched.clear();
        self.end = End::Torn;
    }

    /// Walks from `top`; what was walked before stays. Only a refused read is an error.
    pub fn run(&mut self, ground: &mut Ground<'_>, top: Top) -> Result<(), ReadError> {
        match self.chain(ground, top) {
            Ok(end) => self.end = end,
            // A pointer that leads nowhere is a chain in change, or was never one.
            Err(ReadError::Unmapped | ReadError::Corrupt(_)) => self.end = End::Torn,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn chain(&mut self, ground: &mut Ground<'_>, top: Top) -> Result<End, ReadError> {
        let offsets = ground.offsets;
        let free = ground.data.top..ground.data.limit;
        let (mut address, mut cframe) = match top {
            Top::Frame(address) => (address, None),
            Top::CFrame { address, root } => {
                let head = self.cframe(ground, address)?;
                // An evaluation links its cframe before it fills it in; only the thread's own, the root, may be empty.
                if head.0 == 0 && address != root {
                    return Ok(End::Torn);
                }
                (head.0, Some((address, head.1)))
            }
        };
        let before = self.frames.len() + self.groups.len();
        let (mut marker, mut next_marker) = (0, 16);
        let mut closed = true;
        while address != 0 {
            if self.frames.len() + self.groups.len() >= MAX_DEPTH {
                return Ok(End::Truncated);
            }
            if address == marker || address % 8 != 0 || free.contains(&address) {
                return Ok(End::Torn);
            }
            let steps = self.frames.len() + self.groups.len() - before;
            if steps == next_marker {
                (marker, next_marker) = (address, next_marker * 2);
            }
            let node = self.node(ground, address)?;
            if node.owner > MAX_OWNER {
                return Ok(End::Torn);
            }
            let shim = offsets.minor >= 12 && node.owner >= OWNED_BY_ENTRY;
            if !shim {
                let generator = node.owner == OWNED_BY_GENERATOR && offsets.has_data_stack();
                self.frames.push(Walked { address, code: node.code, instruction: node.instruction, generator });
            }
            closed = shim || node.is_entry || !offsets.has_data_stack();
            if closed && offsets.has_data_stack() {
                let at = cframe.filter(|_| node.is_entry).map_or(address, |(at, _)| at);
                self.groups.push((at, self.frames.len() as u32));
                if let Some((_, older)) = cframe {
                    // The group's link must be the leaf of the next older cframe: a stale one's is not.
                    let next = if older == 0 { (0, 0) } else { self.cframe(ground, older)? };
                    if next.0 != node.previous {
                        return Ok(End::Torn);
                    }
                    cframe = if node.is_entry { Some((older, next.1)) } else { None };
                }
            }
            address = node.previous;
        }
        Ok(if closed { End::Base } else { End::Torn })
    }

    /// (current_frame, previous) of the `_PyCFrame` at `address`.
    fn cframe(&mut self, ground: &mut Ground<'_>, address: u64) -> Result<(u64, u64), ReadError> {
        let offsets = ground.offsets;
        let size = offsets.cframe_frame.max(offsets.cframe_previous) + 8;
        self.touched.push((address, size));
        let bytes = ground.snapshot.bytes(ground.memory, address, size as usize)?;
        Ok((field(bytes, offsets.cframe_frame)?, field(bytes, offsets.cframe_previous)?))
    }

    fn node(&mut self, ground: &mut Ground<'_>, address: u64) -> Result<Node, ReadError> {
        let offsets = ground.offsets;
        let inside = |chunk: &Region| address.wrapping_sub(chunk.address) < u64::from(chunk.size);
        if !ground.chunks.iter().any(inside) {
            self.touched.push((address, offsets.frame_size));
        }
        let bytes = ground.snapshot.bytes(ground.memory, address, offsets.frame_size as usize)?;
        let mut node = Node {
            code: field(bytes, offsets.frame_code)? & !TAG_MASK,
            previous: field(bytes, offsets.frame_previous)?,
            instruction: 0,
            owner: 0,
            is_entry: false,
        };
        if offsets.has_data_stack() {
            node.instruction = field(bytes, offsets.frame_instruction)?;
            node.owner = byte(bytes, offsets.frame_owner).ok_or(SHORT)?;
            node.is_entry = offsets.frame_is_entry != 0 && byte(bytes, offsets.frame_is_entry).ok_or(SHORT)? != 0;
        } else {
            let lasti = super::half(bytes, offsets.frame_instruction).ok_or(SHORT)?.cast_signed();
            // 3.10 counts instructions of 2 bytes.
            let lasti = i64::from(lasti) * if offsets.minor >= 10 { 2 } else { 1 };
            node.instruction = lasti.cast_unsigned();
        }
        Ok(node)
    }
}

const SHORT: ReadError = ReadError::Corrupt("frame offsets out of bounds");

fn field(bytes: &[u8], at: u32) -> Result<u64, ReadError> {
    word(bytes, at).ok_or(SHORT)
}

/// Where a thread's chain starts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Top {
    /// The frame itself, 0 if none runs.
    Frame(u64),
    /// 3.11, 3.12: the `_PyCFrame` that holds it, and the one that the thread has for itself.
    CFrame { address: u64, root: u64 },
}

/// What a frame's instruction means, given its code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// Byte offset, `u32::MAX` before the first instruction.
    At(u32),
    /// The frame is being set up: CPython's own traceback leaves it out (`_PyFrame_IsIncomplete`).
    Incomplete,
    /// No instruction of this code.
    Outside,
}

impl Walked {
    /// `bytecode`: address of the code's first instruction; `size`: its bytes; `first`: those before the first
    /// traceable one. All three unused before 3.11.
    pub fn position(&self, offsets: &Offsets, bytecode: u64, size: u64, first: u64) -> Position {
        if !offsets.has_data_stack() {
            return match self.instruction.cast_signed() {
                ..0 => Position::At(u32::MAX),
                lasti => u32::try_from(lasti).map_or(Position::Outside, Position::At),
            };
        }
        let lasti = self.instruction.wrapping_sub(bytecode).cast_signed();
        // prev_instr of a new frame is one unit before the code (3.11, 3.12).
        if lasti < -2 || lasti >= size.min(MAX_CODE_BYTES).cast_signed() {
            return Position::Outside;
        }
        if !self.generator && lasti < first.cast_signed() {
            return Position::Incomplete;
        }
        Position::At(u32::try_from(lasti).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::cpython::offsets_tables::CPYTHON_3_12;
    use crate::target::recorded::Recorded;

    /// How the walk from the `_PyCFrame` with these fields ends.
    fn end(fields: [u64; 2], address: u64, root: u64) -> End {
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
        let (mut walk, mut snapshot) = (Walk::default(), Snapshot::with_capacity(64));
        snapshot.begin(None);
        let (memory, data) = (Recorded::of(address, &bytes), DataStack::default());
        let mut ground = Ground { memory: &memory, snapshot: &mut snapshot, offsets: &CPYTHON_3_12, data, chunks: &[] };
        walk.run(&mut ground, Top::CFrame { address, root }).expect("no read is refused");
        walk.end
    }

    #[test]
    fn a_cframe_is_linked_before_it_is_filled_in() {
        assert_eq!(end([0, 0], 0x2000, 0x2000), End::Base);
        assert_eq!(end([0, 0x2000], 0x7000, 0x2000), End::Torn);
        // What is left on the stack there may be nothing but zeros.
        assert_eq!(end([0, 0], 0x7000, 0x2000), End::Torn);
    }
}
