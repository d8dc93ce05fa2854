//! From program counters to frames with names: inlined calls, wrappers left out as Go's own profiles do.

use rustc_hash::FxHashMap;

use super::Go;
use super::pclntab::Call;
use super::unwind::End;
use crate::tables::{Frame, FrameId, FrameKind, FrameLine, StackId, TRUNCATED, Tables};

/// What one pc becomes: its frames, and the FuncID of the last function, left out or not.
type Shown = (Vec<FrameId>, u8);
/// What one pc of a list becomes: its frames, and where a list that has inlined calls too goes on with these.
type Listed = (Vec<FrameId>, Vec<u64>);

/// Makes frames and stacks of pcs; each pc is looked up once.
pub struct Frames<'a> {
    go: &'a Go<'a>,
    /// Strings, frames and stacks.
    pub tables: Tables,
    /// First address of the function that holds a frame's code, by the frame's index.
    pub entries: Vec<u64>,
    known: FxHashMap<(u64, bool), Shown>,
    listed: FxHashMap<u64, Listed>,
}

impl Go<'_> {
    /// The calls at a pc that profiles show, innermost first: without wrappers, unless a panic runs in them
    /// (src/runtime/traceback.go, elideWrapperCalling), and without goexit, which only proves that a stack is whole.
    /// `callee`: FuncID of what was called by them; the second is theirs for the next, shown or not.
    pub fn shown(&self, pc: u64, mut callee: u8) -> (Vec<Call>, u8) {
        let table = &self.table;
        let Some((function, _)) = table.find(pc).and_then(|index| table.function(index)) else {
            return (Vec::new(), callee);
        };
        let mut calls = table.calls(&self.image, &function, pc);
        calls.retain(|call| {
            let wrapper = call.id == self.ids.wrapper && !self.panics(callee);
            callee = call.id;
            !wrapper && Some(call.entry) != self.ids.goexit
        });
        (calls, callee)
    }

    /// A call's function and line.
    pub fn line(&self, tables: &mut Tables, call: &Call) -> FrameLine {
        let name = String::from_utf8_lossy(self.table.name(call.name));
        let file = call.file.map(|file| String::from_utf8_lossy(self.table.file(file))).unwrap_or_default();
        let (name, file) = (tables.string(&name), tables.string(&file));
        FrameLine { name, file, line: call.line, start_line: call.start_line }
    }

    /// Whether a function of this FuncID shows a wrapper which it was called by.
    pub fn panics(&self, callee: u8) -> bool {
        self.ids.panics.contains(&callee)
    }
}

impl<'a> Frames<'a> {
    /// Nothing yet.
    pub fn new(go: &'a Go<'a>) -> Self {
        Frames {
            go,
            tables: Tables::default(),
            entries: Vec::new(),
            known: FxHashMap::default(),
            listed: FxHashMap::default(),
        }
    }

    /// The stack of these pcs, leaf first, each within its instruction.
    pub fn stack(&mut self, pcs: &[u64], end: End) -> StackId {
        let mut stack = Vec::with_capacity(pcs.len() + 2);
        let mut callee = 0;
        for &pc in pcs {
            let key = (pc, self.go.panics(callee));
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

    fn show(&mut self, pc: u64, callee: u8) -> Shown {
        let (calls, callee) = self.go.shown(pc, callee);
        (self.frames(&calls), callee)
    }

    /// The stack of a list of return addresses, leaf first, as profiles of the runtime keep them: those of inlined calls
    /// may be in it or not (src/runtime/symtab.go, Frames.Next and runtime_expandFinalInlineFrame).
    pub fn list(&mut self, list: &[u64]) -> StackId {
        let mut stack = Vec::with_capacity(list.len() + 2);
        let mut rest = list.iter();
        while let Some(&pc) = rest.next() {
            if !self.listed.contains_key(&pc) {
                let found = self.show_listed(pc);
                self.listed.insert(pc, found);
            }
            let (frames, callers) = &self.listed[&pc];
            stack.extend_from_slice(frames);
            for caller in callers {
                if rest.as_slice().first() == Some(caller) {
                    rest.next();
                }
            }
        }
        self.tables.stack(&stack)
    }

    fn show_listed(&mut self, pc: u64) -> Listed {
        let table = &self.go.table;
        let Some((function, _)) = table.find(pc).and_then(|index| table.function(index)) else {
            // Of C: nobody here knows its name.
            let (name, kind, address) = (self.tables.string(""), FrameKind::Native, pc.wrapping_sub(1));
            let frame = Frame { kind, name, file: name, line: 0, start_line: 0, address, mapping: -1 };
            let frame = self.tables.frame(frame);
            self.note_entry(frame, 0);
            return (vec![frame], Vec::new());
        };
        let inside = if pc > function.entry { pc - 1 } else { pc };
        let mut calls = table.calls(&self.go.image, &function, inside);
        if calls.first().is_none_or(|call| Some(call.entry) == self.go.ids.goexit) {
            return (Vec::new(), Vec::new());
        }
        let callers = calls[1..].iter().map(|call| call.pc.wrapping_add(1)).collect();
        // What is in the list itself is shown; of what it was inlined into, wrappers are not.
        let mut callee = None;
        calls.retain(|call| {
            let below = callee.replace(call.id);
            below.is_none_or(|id| call.id != self.go.ids.wrapper || self.go.panics(id))
        });
        (self.frames(&calls), callers)
    }

    /// The name of the function, inlined or not, at an address (src/runtime/symtab.go, FuncForPC).
    pub fn name_at(&self, pc: u64) -> Option<&[u8]> {
        let table = &self.go.table;
        let (function, _) = table.find(pc).and_then(|index| table.function(index))?;
        table.calls(&self.go.image, &function, pc).first().map(|call| table.name(call.name))
    }

    /// Frames of the calls at one place, innermost first.
    fn frames(&mut self, calls: &[Call]) -> Vec<FrameId> {
        let last = calls.len().saturating_sub(1);
        let frames = calls.iter().enumerate().map(|(index, call)| {
            let FrameLine { name, file, line, start_line } = self.go.line(&mut self.tables, call);
            let kind = match call.inlined {
                true if index < last => FrameKind::Inlined,
                true => FrameKind::Outermost,
                false => FrameKind::Native,
            };
            let frame = self.tables.frame(Frame { kind, name, file, line, start_line, address: call.pc, mapping: -1 });
            (frame, call.entry)
        });
        let frames: Vec<_> = frames.collect();
        for &(frame, entry) in &frames {
            self.note_entry(frame, entry);
        }
        frames.into_iter().map(|(frame, _)| frame).collect()
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
