//! The native half of a process's stacks: what to copy while a thread stands still, and what that says afterwards.

use rustc_hash::FxHashMap;

use crate::error::ReadError;
use crate::memory::{Memory, Region, Snapshot};
use crate::runtime::cpython::PyStack;
use crate::sampler::thread::ThreadStack;
use crate::stack::{Entry, Evaluation, Merge, Part, evaluation_of_file, greenlet, merge, unknown_evaluations};
use crate::stats::Cache;
use crate::tables::{FrameId, FrameKind, Tables};
use crate::target::Mapping;
use crate::target::linux::Process;
use crate::target::sys;
use crate::unwind::{End, NativeFrame, Reason, Registers, StackCopy, Unwinder, copy_start};

/// Bytes of a stack copied while its base is not known.
pub const FIRST_COPY: u32 = 16 << 10;
const PAGE: u64 = 4096;
/// Shortest time between two reads of what is mapped: in the course of things, and for code that is in no known mapping.
const REFRESH_NS: (u64, u64) = (100_000_000, 1_000_000);
/// Reading what is mapped may take one part in this many of our CPU time, but is not put off for longer than this.
const REFRESH_SHARE: (u64, u64) = (1000, 10);
const MAX_REFRESH_NS: u64 = 2_000_000_000;
/// Why a walk ended, where more of the stack was not to be had.
pub const NOT_COPIED: &str = "deeper than copied";
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

/// The native code of one process, and the last walk.
#[derive(Debug)]
pub struct Native {
    unwinder: Unwinder,
    mappings: Vec<Mapping>,
    /// The place of each mapping in the batch.
    ids: Vec<i32>,
    frame_ids: FxHashMap<(u64, u32, bool), FrameId>,
    evaluation: Evaluation,
    /// Whether code that switches between stacks is mapped: the greenlet module.
    switching: bool,
    /// Device and inode of the interpreter's file.
    interpreter: (String, u64),
    max_stack: u32,
    /// When what is mapped was read, and the CPU time that this took, nanoseconds.
    read: u64,
    cost: u64,
    /// Where the stack goes on that a signal interrupted, 0 = it does not.
    interrupted: u64,
    frames: Vec<NativeFrame>,
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
            evaluation: Evaluation::default(),
            switching: false,
            interpreter: (String::new(), 0),
            max_stack,
            read: 0,
            cost: 0,
            interrupted: 0,
            frames: Vec::with_capacity(256),
            entries: Vec::with_capacity(256),
        }
    }

    /// Looks at what is mapped, unless it was looked at a short while ago; true if it did. `urgent`: code was met that
    /// is not known.
    pub fn refresh(&mut self, process: &Process, now: u64, urgent: bool) -> bool {
        let (wait, share) = if urgent { (REFRESH_NS.1, REFRESH_SHARE.1) } else { (REFRESH_NS.0, REFRESH_SHARE.0) };
        let wait = self.cost.saturating_mul(share).clamp(wait, MAX_REFRESH_NS);
        if now.saturating_sub(self.read) < wait && self.read > 0 {
            return false;
        }
        let began = sys::thread_cpu_ns();
        let mappings = process.mappings();
        // What a new file takes is taken once.
        self.cost = sys::thread_cpu_ns().saturating_sub(began);
        match mappings {
            Ok(mappings) => self.renew(process, mappings),
            Err(_) => self.read = sys::monotonic_ns(),
        }
        true
    }

    /// Takes over what is mapped now.
    pub fn renew(&mut self, process: &Process, mappings: Vec<Mapping>) {
        let open = |mapping: &Mapping| process.open_mapped_file(mapping);
        self.unwinder.set_mappings(process, &mappings, &open);
        if self.mappings != mappings {
            self.mappings = mappings;
            self.switching = self.mappings.iter().any(switches);
            self.forget_ids();
        }
        self.read = sys::monotonic_ns();
    }

    /// Finds the evaluation loop of the interpreter whose `_PyRuntime` is at `runtime`.
    pub fn find_evaluation(&mut self, process: &Process, runtime: u64) {
        let after = self.mappings.partition_point(|mapping| mapping.start <= runtime);
        let Some(file) = self.mappings[..after].iter().rev().find(|mapping| mapping.inode != 0) else { return };
        let same = |other: &&Mapping| (other.inode, &other.device) == (file.inode, &file.device) && other.executable();
        self.interpreter = (file.device.clone(), file.inode);
        let Some(code) = self.mappings.iter().find(same) else { return };
        if let Ok(file) = process.open_mapped_file(code)
            && let Some(bias) = self.unwinder.bias(code.start)
        {
            self.evaluation = evaluation_of_file(file).loaded(bias);
        }
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
        self.ids.clear();
        self.ids.resize(self.mappings.len(), UNSEEN);
    }

    /// The first read of a sample is to take the stack along, if it is known how far it goes.
    pub fn plan(&mut self, snapshot: &mut Snapshot, sp: u64, stack: &ThreadStack) {
        self.interrupted = 0;
        if let Some(region) = self.region(sp, stack) {
            snapshot.take_along(region);
        }
    }

    fn region(&self, sp: u64, stack: &ThreadStack) -> Option<Region> {
        let address = copy_start(sp);
        let size = stack.base.checked_sub(address).filter(|&size| size <= u64::from(self.max_stack))?;
        (stack.base > sp).then_some(Region { address, size: size as u32 })
    }

    /// Copies what the first read did not. The thread stands still.
    pub fn copy(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        sp: u64,
        stack: &ThreadStack,
    ) -> Result<(), ReadError> {
        snapshot.load_rest(memory)?;
        if snapshot.piece(sp, 8).len() == 8 && self.region(sp, stack).is_some() {
            return Ok(());
        }
        self.copy_pages(memory, snapshot, sp, stack.want)?;
        // Not its red zone: the frame of an earlier signal may be left there.
        let copy = StackCopy { address: sp, bytes: snapshot.piece(sp, self.max_stack as usize) };
        if let Some(interrupted) = self.unwinder.signal_stack(&copy) {
            self.interrupted = interrupted;
            match self.region(interrupted, stack) {
                Some(region) => snapshot.load(memory, &[region])?,
                None => self.copy_pages(memory, snapshot, interrupted, stack.want)?,
            }
        }
        Ok(())
    }

    /// Copies by pages: those that are there are kept.
    fn copy_pages(&self, memory: &dyn Memory, snapshot: &mut Snapshot, sp: u64, want: u32) -> Result<(), ReadError> {
        let mut at = copy_start(sp);
        let end = at.saturating_add(u64::from(want.clamp(FIRST_COPY, self.max_stack)));
        let mut pages = Vec::with_capacity((end - at).div_ceil(PAGE) as usize + 1);
        while at < end {
            let next = ((at | (PAGE - 1)).saturating_add(1)).min(end);
            pages.push(Region { address: at, size: (next - at) as u32 });
            at = next;
        }
        snapshot.load(memory, &pages)
    }

    /// Walks from `start` by what was copied. The thread runs again.
    pub fn walk(
        &mut self,
        process: &Process,
        snapshot: &Snapshot,
        start: &Registers,
        stack: &mut ThreadStack,
        python: &PyStack,
    ) -> Walked {
        let trampolines = self.unwinder.trampolines();
        let end = self.unwind(process, snapshot, start);
        if let Some(frames) = self.greenlet(python) {
            self.frames.truncate(frames);
            stack.base = 0;
            return Walked::Complete;
        }
        let end = match end {
            End::Truncated(Reason::UnknownCode | Reason::NoTables)
                if self.refresh(process, sys::monotonic_ns(), true) =>
            {
                self.unwind(process, snapshot, start)
            }
            _ => end,
        };
        match end {
            End::Bottom => {
                stack.base = self.frames.last().map_or(0, |last| last.sp);
                Walked::Complete
            }
            End::Truncated(reason) => Walked::Cut(reason.text()),
            End::NeedMore { address } => {
                // The base, if there was one, is that of another stack.
                stack.base = 0;
                let more = self.want(start.sp(), address, stack);
                // The first time that a signal's frame is met, the stack that it interrupted has not been copied.
                if more || self.unwinder.trampolines() > trampolines { Walked::Again } else { Walked::Cut(NOT_COPIED) }
            }
        }
    }

    fn unwind(&mut self, process: &Process, snapshot: &Snapshot, start: &Registers) -> End {
        let most = self.max_stack as usize;
        let piece = |sp| {
            let address = copy_start(sp);
            StackCopy { address, bytes: snapshot.piece(address, most) }
        };
        let pieces = [piece(start.sp()), piece(self.interrupted)];
        let used = if self.interrupted == 0 { &pieces[..1] } else { &pieces[..] };
        self.unwinder.unwind(process, start, used, &mut self.frames)
    }

    /// Notes that `address` was missing; false if it cannot be had.
    fn want(&self, sp: u64, address: u64, stack: &mut ThreadStack) -> bool {
        let from = if self.interrupted != 0 && address >= self.interrupted { self.interrupted } else { sp };
        let needed = address.checked_sub(copy_start(from)).filter(|&needed| needed < u64::from(self.max_stack));
        let Some(needed) = needed else { return false };
        let before = stack.want;
        stack.want = (needed as u32 + FIRST_COPY).max(before.saturating_mul(4)).min(self.max_stack);
        stack.want > before
    }

    /// Puts the last walk and a Python stack into one, leaf first. `python` gives the id of its frame of an index.
    pub fn merge(
        &mut self,
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
            for index in 0..self.frames.len() {
                frames.push(self.frame(tables, index, FrameKind::Native));
            }
        } else {
            let mut how = self.match_up(python, complete);
            if how == Merge::Unmatched && complete && self.learn(python) {
                how = self.match_up(python, complete);
            }
            if how == Merge::Unmatched {
                fit = Fit::Apart;
                self.entries.extend((0..self.frames.len() as u32).map(Entry::Native));
            }
            for index in 0..self.entries.len() {
                let id = match self.entries[index] {
                    Entry::Native(index) => self.frame(tables, index as usize, FrameKind::Native),
                    Entry::Loop(index) => self.frame(tables, index as usize, FrameKind::Loop),
                    Entry::Python(index) => python_frame(tables, index as usize),
                };
                frames.push(id);
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

    /// Learns from a stack where parts of the evaluation loop are that the interpreter's file does not name: stripped
    /// ones name the function, not what the compiler split off it, and some not even that. True if there was something
    /// to learn.
    fn learn(&mut self, python: &PyStack) -> bool {
        let mut learned = false;
        for index in unknown_evaluations(&self.frames, &self.evaluation, &python.groups) {
            let NativeFrame { lookup, mapping, .. } = self.frames[index as usize];
            let file = self.mappings.get(mapping as usize).map(|mapping| (&mapping.device, mapping.inode));
            if file == Some((&self.interpreter.0, self.interpreter.1))
                && let Some(range) = self.unwinder.function(lookup)
            {
                learned |= self.evaluation.add(range);
            }
        }
        learned
    }

    /// What a leaf is called out of which no walk leads.
    fn lost_leaf(&self, leaf: &NativeFrame) -> Option<&'static str> {
        match self.mappings.get(leaf.mapping as usize) {
            None => Some("_ExternalCode"),
            Some(mapping) if mapping.path == "[vdso]" => Some("_VDSO"),
            Some(_) => None,
        }
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

fn switches(mapping: &Mapping) -> bool {
    mapping.path.rsplit('/').next().is_some_and(|name| name.starts_with("_greenlet."))
}

#[cfg(test)]
#[path = "native_tests.rs"]
mod tests;
