//! From program counters to frames with names: inlined calls, wrappers left out as Go's own profiles do.

use rustc_hash::FxHashMap;

use super::Go;
use super::unwind::End;
use crate::tables::{Frame, FrameId, FrameKind, StackId, Tables};

/// What a stack ends in that is not whole.
const TRUNCATED: &str = "[truncated]";

/// What one pc becomes: its frames, and the FuncID of the last function, left out or not.
type Shown = (Vec<FrameId>, u8);

/// Makes frames and stacks of pcs; each pc is looked up once.
pub struct Frames<'a> {
    go: &'a Go<'a>,
    /// Strings, frames and stacks.
    pub tables: Tables,
    /// First address of the function that holds a frame's code, by the frame's index.
    pub entries: Vec<u64>,
    known: FxHashMap<(u64, bool), Shown>,
}

impl<'a> Frames<'a> {
    /// Nothing yet.
    pub fn new(go: &'a Go<'a>) -> Self {
        Frames { go, tables: Tables::default(), entries: Vec::new(), known: FxHashMap::default() }
    }

    /// The stack of these pcs, leaf first, each within its instruction. Left out are wrappers, unless a panic runs in them
    /// (src/runtime/traceback.go, elideWrapperCalling), and goexit, which only proves that a stack is whole.
    pub fn stack(&mut self, pcs: &[u64], end: End) -> StackId {
        let mut stack = Vec::with_capacity(pcs.len() + 2);
        let mut callee = 0;
        for &pc in pcs {
            let key = (pc, self.go.ids.panics.contains(&callee));
            if !self.known.contains_key(&key) {
                let shown = self.show(pc, callee);
                self.known.insert(key, shown);
            }
            let (frames, last) = &self.known[&key];
            stack.extend_from_slice(frames);
            callee = *last;
        }
        if end != End::Whole {
            stack.push(self.label(TRUNCATED));
        }
        self.tables.stack(&stack)
    }

    /// The stack of a goroutine that could not be read.
    pub fn unreadable(&mut self, reason: &str) -> StackId {
        let frame = self.label(&format!("[unreadable: {reason}]"));
        self.tables.stack(&[frame])
    }

    fn label(&mut self, text: &str) -> FrameId {
        let frame = self.tables.label(text);
        self.note_entry(frame, 0);
        frame
    }

    fn show(&mut self, pc: u64, mut callee: u8) -> Shown {
        let table = &self.go.table;
        let Some((function, _)) = table.find(pc).and_then(|index| table.function(index)) else {
            return (Vec::new(), callee);
        };
        let mut calls = table.calls(&self.go.image, &function, pc);
        calls.retain(|call| {
            let wrapper = call.id == self.go.ids.wrapper && !self.go.ids.panics.contains(&callee);
            callee = call.id;
            !wrapper && Some(call.entry) != self.go.ids.goexit
        });
        let last = calls.len().saturating_sub(1);
        let frames = calls.iter().enumerate().map(|(index, call)| {
            let name = String::from_utf8_lossy(table.name(call.name));
            let file = call.file.map(|file| String::from_utf8_lossy(table.file(file))).unwrap_or_default();
            let (name, file) = (self.tables.string(&name), self.tables.string(&file));
            let kind = match call.inlined {
                true if index < last => FrameKind::Inlined,
                true => FrameKind::Outermost,
                false => FrameKind::Native,
            };
            let (line, start_line) = (call.line, call.start_line);
            let frame = self.tables.frame(Frame { kind, name, file, line, start_line, address: call.pc, mapping: -1 });
            (frame, call.entry)
        });
        let frames: Vec<_> = frames.collect();
        for &(frame, entry) in &frames {
            self.note_entry(frame, entry);
        }
        (frames.into_iter().map(|(frame, _)| frame).collect(), callee)
    }

    /// The function at a pc by itself, as the creator of a goroutine is shown; 0 = unknown.
    pub fn creator(&mut self, pc: u64) -> FrameId {
        let table = &self.go.table;
        let Some((function, _)) = table.find(pc).and_then(|index| table.function(index)) else { return 0 };
        let inside = if pc > function.entry { pc - 1 } else { pc };
        let Some(outer) = table.calls(&self.go.image, &function, inside).into_iter().next() else { return 0 };
        let name = String::from_utf8_lossy(table.name_of(&function));
        let file = outer.file.map(|file| String::from_utf8_lossy(table.file(file))).unwrap_or_default();
        let (name, file) = (self.tables.string(&name), self.tables.string(&file));
        let (line, start_line) = (outer.line, u32::try_from(function.start_line).unwrap_or(0));
        let kind = FrameKind::Native;
        let frame = self.tables.frame(Frame { kind, name, file, line, start_line, address: inside, mapping: -1 });
        self.note_entry(frame, function.entry);
        frame
    }

    fn note_entry(&mut self, frame: FrameId, entry: u64) {
        let at = frame as usize;
        if self.entries.len() <= at {
            self.entries.resize(at + 1, 0);
        }
        self.entries[at] = entry;
    }
}
