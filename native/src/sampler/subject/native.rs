//! The native half of a process's stacks: what was copied while a thread stood still, and what that says afterwards.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::memory::{Memory, Snapshot};
use crate::runtime::cpython::PyStack;
use crate::sampler::thread::ThreadStack;
use crate::stack::{Entry, Evaluation, Merge, Part, greenlet, merge};
use crate::stats::Cache;
use crate::tables::{FrameId, FrameKind, FrameLine, Tables};
use crate::target::Mapping;
use crate::target::os::Process;
use crate::target::sys;
use crate::unwind::guest::{Guest, Places};
use crate::unwind::{End, NativeFrame, Reason, Registers, StackCopy, Unwinder, copy_start};

/// Most stacks of one thread beside that it runs on and one that a signal interrupted.
pub const OTHER_STACKS: usize = 2;
/// Why a walk ended, where more of the stack was not to be had.
pub const NOT_COPIED: &str = "deeper than copied";
/// Why there is none: a library was unloaded when it had been copied, and another may be in its place.
const REPLACED: &str = "code that was replaced";
/// No place in the batch yet: [`Native::ids`].
const UNSEEN: i32 = -2;

/// What a walk came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// To the bottom.
    Complete,
    /// Short of it.
    Cut(&'static str),
    /// More of the stack has to be copied: the thread's [`ThreadStack`] says how much.
    Again,
}

/// Where a merged stack has its two halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// All frames have their place, or are of one kind.
    Merged,
    /// The native frames stand on top of the others.
    Apart,
}

/// A guest of the process that has names for its frames. FuncIDs are Go's: what a function is to tracebacks.
pub trait Named: Guest {
    /// Whether the code at `pc` is its own.
    fn holds(&self, pc: u64) -> bool;
    /// Whether a function of this FuncID shows a wrapper which it was called by.
    fn panics(&self, callee: u8) -> bool;
    /// The calls that are shown at `pc`, innermost first, and the FuncID of the outermost, shown or not.
    fn lines(&self, tables: &mut Tables, pc: u64, callee: u8) -> (Vec<FrameLine>, u8);
}

/// The native code of one process, and the last walk.
#[derive(Debug)]
pub struct Native {
    pub(super) unwinder: Unwinder,
    pub(super) mappings: Vec<Mapping>,
    /// The place of each mapping in the batch.
    ids: Vec<i32>,
    frame_ids: FxHashMap<(u64, u32, bool), FrameId>,
    /// The Go in the process, and the frames of its code: none where only wrappers are there; and what called them.
    go: Option<Rc<dyn Named>>,
    go_ids: FxHashMap<(u64, u32, bool), (Option<FrameId>, u8)>,
    pub(super) evaluation: Evaluation,
    /// Whether code that switches between stacks is mapped: the greenlet module.
    pub(super) switching: bool,
    /// The mapping of the interpreter's file that its code is in.
    pub(super) interpreter: Option<Mapping>,
    pub(super) max_stack: u32,
    /// When what is mapped was read, and the CPU time that this took, nanoseconds; and of the last single mapping.
    pub(super) read: u64,
    pub(super) cost: u64,
    pub(super) single: (u64, u64),
    /// When tables that made no sense were last read anew, nanoseconds.
    pub(super) read_again: u64,
    /// Where the stack goes on that a signal interrupted, 0 = it does not.
    pub(super) interrupted: u64,
    /// Where other stacks of the thread were copied from, 0 = none.
    pub(super) others: [u64; OTHER_STACKS],
    pub(super) frames: Vec<NativeFrame>,
    entries: Vec<Entry>,
}

impl Native {
    /// Knows nothing yet.
    pub fn new(max_stack: u32) -> Native {
        Native {
            unwinder: Unwinder::new(),
            mappings: Vec::new(),
            ids: Vec::new(),
            frame_ids: FxHashMap::default(),
            go: None,
            go_ids: FxHashMap::default(),
            evaluation: Evaluation::default(),
            switching: false,
            interpreter: None,
            max_stack,
            read: 0,
            cost: 0,
            single: (0, 0),
            read_again: 0,
            interrupted: 0,
            others: [0; OTHER_STACKS],
            frames: Vec::with_capacity(256),
            entries: Vec::with_capacity(256),
        }
    }

    /// Goes by what `go` says of its code.
    #[cfg(unix)]
    pub fn set_go(&mut self, go: Option<Rc<dyn Named>>) {
        self.unwinder.set_guest(go.clone().map(|go| go as Rc<dyn Guest>));
        self.go = go;
        self.go_ids.clear();
    }

    /// Whether the last walk lacks frames of the way out of the vDSO.
    pub fn went_around(&self) -> bool {
        self.unwinder.went_around()
    }

    /// How many addresses had a rule already.
    pub fn rule_cache(&self) -> Cache {
        self.unwinder.looks()
    }

    /// The process runs another program, or a runtime has gone.
    pub fn forget_program(&mut self) {
        *self = Native::new(self.max_stack);
    }

    /// Ids of tables that were handed over mean nothing.
    pub fn forget_ids(&mut self) {
        self.frame_ids.clear();
        self.go_ids.clear();
        self.ids.clear();
        self.ids.resize(self.mappings.len(), UNSEEN);
    }

    /// Walks from `start` by what was copied; `places` is what Go has saved of the thread. The thread runs again.
    pub fn walk(
        &mut self,
        process: &Process,
        snapshot: &Snapshot,
        (start, places): (&Registers, &Places),
        stack: &mut ThreadStack,
        python: &PyStack,
    ) -> Walked {
        let trampolines = self.unwinder.trampolines();
        let end = self.unwind(process, snapshot, start, places);
        if let Some(frames) = self.greenlet(python) {
            self.frames.truncate(frames);
            stack.base = 0;
            return Walked::Complete;
        }
        let end = match end {
            End::Truncated(Reason::UnknownCode | Reason::NoTables)
                if self.refresh(process, sys::monotonic_ns(), true) || self.reads_single(process) =>
            {
                // What is there now may not be what was there when the stack was copied.
                return Walked::Again;
            }
            End::Truncated(Reason::BadTable) if self.reads_again(process) => {
                self.unwind(process, snapshot, start, places)
            }
            _ => end,
        };
        if self.unwinder.replaced(process, &self.frames) {
            self.frames.clear();
            let known = self.refresh(process, sys::monotonic_ns(), true);
            return if known { Walked::Again } else { Walked::Cut(REPLACED) };
        }
        match end {
            End::Bottom => {
                let last = self.frames.last();
                // Goroutines come and go on a thread; its own first frame stays.
                if let Some(last) = last.filter(|last| !self.unwinder.is_guest(last)) {
                    stack.base = last.sp;
                }
                stack.called_back &= last.is_some_and(|last| last.sp > places.system_sp);
                Walked::Complete
            }
            End::Truncated(Reason::Moving) => Walked::Again,
            End::Truncated(reason) => Walked::Cut(reason.text()),
            End::NeedMore { address } => {
                // The base, if there was one, is that of another stack.
                stack.base = 0;
                let more = self.want(start.sp(), places, address, stack);
                // The first time that a signal's frame is met, the stack that it interrupted has not been copied.
                if more || self.unwinder.trampolines() > trampolines { Walked::Again } else { Walked::Cut(NOT_COPIED) }
            }
        }
    }

    fn unwind(&mut self, process: &Process, snapshot: &Snapshot, start: &Registers, places: &Places) -> End {
        let most = self.max_stack as usize;
        let piece = |address| StackCopy { address, bytes: snapshot.piece(address, most) };
        let mut pieces = [piece(0); 2 + OTHER_STACKS];
        let mut used = 0;
        let starts = [copy_start(start.sp()), copy_start(self.interrupted)];
        for address in starts.into_iter().chain(self.others).filter(|&address| address != 0) {
            pieces[used] = piece(address);
            used += 1;
        }
        self.unwinder.unwind_through(process, start, places, &pieces[..used], &mut self.frames)
    }

    /// Puts the last walk and a Python stack into one, leaf first. `python` gives the id of its frame of an index.
    pub fn merge(
        &mut self,
        memory: &dyn Memory,
        tables: &mut Tables,
        walked: Walked,
        python: &PyStack,
        mut python_frame: impl FnMut(&mut Tables, usize) -> FrameId,
        frames: &mut Vec<FrameId>,
    ) -> Fit {
        let complete = walked == Walked::Complete;
        let first = frames.len();
        let mut fit = Fit::Merged;
        let evaluates = |frame: &NativeFrame| self.evaluation.part(frame.lookup) == Some(Part::Whole);
        if python.frames.is_empty() && !(complete && self.frames.iter().any(evaluates)) {
            let mut callee = 0;
            for index in 0..self.frames.len() {
                self.push(tables, index, &mut callee, frames);
            }
        } else {
            let mut how = self.match_up(python, complete);
            if how == Merge::Unmatched && complete && self.learn(memory, python) {
                how = self.match_up(python, complete);
            }
            if how == Merge::Unmatched {
                fit = Fit::Apart;
                self.entries.extend((0..self.frames.len() as u32).map(Entry::Native));
            }
            let mut callee = 0;
            for index in 0..self.entries.len() {
                match self.entries[index] {
                    Entry::Native(index) => self.push(tables, index as usize, &mut callee, frames),
                    Entry::Loop(index) => frames.push(self.frame(tables, index as usize, FrameKind::Loop)),
                    Entry::Python(index) => frames.push(python_frame(tables, index as usize)),
                }
            }
            if fit == Fit::Apart {
                frames.push(tables.label("[unmatched]"));
                for index in 0..python.frames.len() {
                    frames.push(python_frame(tables, index));
                }
            }
        }
        if !complete
            && let Some(leaf) = self.frames.first()
            && let Some(label) = self.lost_leaf(leaf)
            && let Some(place) = frames.get_mut(first)
        {
            *place = tables.label(label);
        }
        fit
    }

    fn greenlet(&self, python: &PyStack) -> Option<usize> {
        if !self.switching {
            return None;
        }
        let of_switch = |frame: &NativeFrame| self.of_switch(frame);
        greenlet(&self.frames, &self.evaluation, &python.frames, &python.groups, of_switch)
    }

    /// Whether the thread may be on its way from one greenlet to another: the two halves are of different ones then, and
    /// where only their number tells which frames belong together, it may be the same by chance.
    fn in_switch(&self) -> bool {
        let inner = self.frames.iter().take_while(|frame| self.evaluation.part(frame.lookup).is_none());
        self.switching && inner.into_iter().any(|frame| self.of_switch(frame))
    }

    fn of_switch(&self, frame: &NativeFrame) -> bool {
        self.mappings.get(frame.mapping as usize).is_some_and(switches)
    }

    fn match_up(&mut self, python: &PyStack, complete: bool) -> Merge {
        if python.groups.is_empty() && self.in_switch() {
            self.entries.clear();
            return Merge::Unmatched;
        }
        merge(&self.frames, &self.evaluation, &python.frames, &python.groups, complete, &mut self.entries)
    }

    /// Appends a native frame; `callee`: the FuncID of the frame before, where Go tells one.
    fn push(&mut self, tables: &mut Tables, index: usize, callee: &mut u8, frames: &mut Vec<FrameId>) {
        let NativeFrame { lookup, mapping, .. } = self.frames[index];
        let Some(go) = self.go.clone().filter(|go| go.holds(lookup)) else {
            *callee = 0;
            frames.push(self.frame(tables, index, FrameKind::Native));
            return;
        };
        let key = (lookup, mapping, go.panics(*callee));
        if let Some(&(id, last)) = self.go_ids.get(&key) {
            *callee = last;
            frames.extend(id);
            return;
        }
        let (lines, last) = go.lines(tables, lookup, *callee);
        *callee = last;
        let id = (!lines.is_empty()).then(|| {
            let id = self.frame(tables, index, FrameKind::Native);
            tables.name(id, lines);
            id
        });
        self.go_ids.insert(key, (id, last));
        frames.extend(id);
    }

    fn frame(&mut self, tables: &mut Tables, index: usize, kind: FrameKind) -> FrameId {
        let NativeFrame { lookup, mapping, .. } = self.frames[index];
        let key = (lookup, mapping, kind == FrameKind::Loop);
        if let Some(&id) = self.frame_ids.get(&key) {
            return id;
        }
        let place = match (self.mappings.get(mapping as usize), self.ids.get_mut(mapping as usize)) {
            (Some(mapping), Some(id)) => {
                if *id == UNSEEN {
                    *id = tables.mapping(mapping);
                }
                *id
            }
            _ => -1,
        };
        let id = tables.native_frame(kind, lookup, place);
        self.frame_ids.insert(key, id);
        id
    }
}

pub(super) fn switches(mapping: &Mapping) -> bool {
    mapping.path.rsplit(['/', '\\']).next().is_some_and(|name| name.starts_with("_greenlet."))
}

#[cfg(test)]
#[path = "native_tests.rs"]
mod tests;
