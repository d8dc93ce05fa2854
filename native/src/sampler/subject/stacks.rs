//! From a thread that does not run to a stack: copy, settle, resolve.

use rustc_hash::FxHashMap;

use super::native::{Fit, NOT_COPIED, Walked};
use super::{Sample, Subject};
use crate::error::ReadError;
use crate::memory::Snapshot;
use crate::runtime::cpython::{CPython, CodeId, End, PyStack};
use crate::sampler::thread::{Asleep, Outcome};
use crate::tables::{Frame, FrameId, FrameKind, StackId, State, Tables};
use crate::target::procfs;
use crate::unwind::Registers;

/// Copies of one sleeping stack, each larger than the one before.
const MAX_COPIES: u32 = 5;

/// Why a walk is taken again: the frame chain was in the middle of a change.
pub const TORN: &str = "frame chain in the middle of a change";

/// Why a walk of a Python stack ended early.
const TOO_DEEP: &str = "more Python frames than a walk takes";

/// Buffers that all subjects share, so that nothing is allocated while a thread is stopped.
#[derive(Debug)]
pub struct Scratch {
    /// The copy.
    pub snapshot: Snapshot,
    /// What the runtime made of it.
    pub stack: PyStack,
    /// The thread's registers, if native frames are wanted.
    pub start: Option<Registers>,
    /// The system call that the thread sleeps in, -1 = none.
    pub syscall: i64,
    /// How the walk of the native stack ended.
    pub walked: Option<Walked>,
    frames: Vec<FrameId>,
}

impl Default for Scratch {
    /// Buffers large enough for usual stacks.
    fn default() -> Self {
        Scratch {
            snapshot: Snapshot::with_capacity(1 << 20),
            stack: PyStack::default(),
            start: None,
            syscall: -1,
            walked: None,
            frames: Vec::with_capacity(4096),
        }
    }
}

impl Subject {
    /// Reads a sleeping thread without a stop; false if it did not stay asleep.
    pub(super) fn sample_asleep(&mut self, tid: u32, now: u64, scratch: &mut Scratch) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else { return true };
        let Some(line) = thread.schedstat() else { return false };
        if let Some(asleep) = thread.asleep.filter(|asleep| asleep.line == line) {
            let Asleep { stack, outcome, holds_gil, state, since, .. } = asleep;
            self.asleep.count(true);
            self.count(tid, Sample { stack, outcome, now, since, ran: None, holds_gil, state });
            return true;
        }
        let mut copies = 0;
        let read = loop {
            scratch.snapshot.begin(None);
            let read = self.copy(tid, scratch);
            let Some(thread) = self.threads.get_mut(&tid) else { return true };
            if !thread.still_asleep(line) {
                return false;
            }
            let read = self.settle(tid, read, scratch);
            copies += 1;
            if read.is_err() || scratch.walked != Some(Walked::Again) || copies >= MAX_COPIES {
                break read;
            }
        };
        if read == Err(ReadError::Corrupt(TORN)) {
            return false;
        }
        let state = match procfs::read_stat(tid).map(|stat| stat.state) {
            Ok(b'D') => State::Disk,
            Ok(b'R') => State::Runnable,
            _ => State::Sleeping,
        };
        let waits = scratch.syscall >= 0 && state != State::Runnable;
        if !waits && matches!(scratch.walked, Some(Walked::Cut(_))) {
            // Only waiting for a core, in a system call or not: a stop breaks nothing, and tells all registers.
            return false;
        }
        if scratch.walked == Some(Walked::Again) {
            scratch.walked = Some(Walked::Cut(NOT_COPIED));
        }
        let (stack, outcome) = self.resolve(read, scratch);
        let holds_gil = scratch.stack.holds_gil;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.asleep = Some(Asleep { line, stack, outcome, holds_gil, state, since: now });
            self.asleep.count(false);
        }
        self.count(tid, Sample { stack, outcome, now, since: now, ran: None, holds_gil, state });
        true
    }

    /// Copies the stack of a thread that does not run now.
    pub fn copy(&mut self, tid: u32, scratch: &mut Scratch) -> Result<(), ReadError> {
        let Scratch { snapshot, stack, start, .. } = scratch;
        let native = self.native.as_mut().zip(start.as_ref()).zip(self.threads.get(&tid));
        if let Some(((native, start), thread)) = native {
            native.plan(snapshot, start.sp(), &thread.stack);
            match &mut self.runtime {
                Some(python) => python.copy(&self.process, snapshot, tid, stack)?,
                None => stack.clear(),
            }
            return native.copy(&self.process, snapshot, start.sp(), &thread.stack);
        }
        match &mut self.runtime {
            Some(python) => python.copy(&self.process, snapshot, tid, stack),
            None if self.native.is_some() => Err(ReadError::Corrupt("registers not to be had")),
            None => {
                stack.clear();
                Ok(())
            }
        }
    }

    /// Makes frames of what was copied. The thread runs again by now.
    pub fn settle(&mut self, tid: u32, read: Result<(), ReadError>, scratch: &mut Scratch) -> Result<(), ReadError> {
        scratch.walked = None;
        read?;
        let Scratch { snapshot, stack, start, walked, .. } = scratch;
        if let Some(python) = &mut self.runtime {
            python.finish(&self.process, snapshot, stack);
        }
        if stack.end == End::Torn {
            return Err(ReadError::Corrupt(TORN));
        }
        let native = self.native.as_mut().zip(start.as_ref()).zip(self.threads.get_mut(&tid));
        *walked = native
            .map(|((native, start), thread)| native.walk(&self.process, snapshot, start, &mut thread.stack, stack));
        Ok(())
    }

    /// Makes a stack of what was copied. The thread runs again by now.
    pub fn resolve(&mut self, read: Result<(), ReadError>, scratch: &mut Scratch) -> (StackId, Outcome) {
        if read == Err(ReadError::OverBudget) {
            let label = self.tables.label("[truncated]");
            return (self.tables.stack(&[label]), Outcome::Truncated(ReadError::OverBudget.reason()));
        }
        if let Err(error) = read {
            // The next round finds out whether the process has replaced its memory.
            self.next_check = 0;
            let label = self.tables.label(&format!("[unreadable: {}]", error.reason()));
            return (self.tables.stack(&[label]), Outcome::Unreadable);
        }
        let outcome = match scratch.walked {
            Some(Walked::Cut(reason)) => Outcome::Truncated(reason),
            _ if scratch.stack.end == End::Truncated => Outcome::Truncated(TOO_DEEP),
            _ => Outcome::Complete,
        };
        scratch.frames.clear();
        let walked = scratch.walked;
        if let Some(walked) = walked {
            self.merge(walked, scratch);
        } else {
            if let Some(stack) = self.known.find(&scratch.stack) {
                return (stack, outcome);
            }
            for raw in &scratch.stack.frames {
                let id = self.python.frame(&mut self.runtime, &mut self.tables, raw.code, raw.lasti);
                scratch.frames.push(id);
            }
        }
        if matches!(outcome, Outcome::Truncated(_)) {
            scratch.frames.push(self.tables.label("[truncated]"));
        }
        let stack = self.tables.stack(&scratch.frames);
        if walked.is_none() {
            self.known.keep(&scratch.stack, stack);
        }
        (stack, outcome)
    }

    /// One stack of both kinds of frames.
    fn merge(&mut self, walked: Walked, scratch: &mut Scratch) {
        let Scratch { stack, frames, syscall, .. } = scratch;
        let Some(native) = &mut self.native else { return };
        if let Some(call) = usize::try_from(*syscall).ok().and_then(syscalls::Sysno::new) {
            frames.push(self.tables.label(&format!("[syscall: {}]", call.name())));
        }
        let (runtime, python) = (&mut self.runtime, &mut self.python);
        let python_frame = |tables: &mut Tables, index: usize| {
            let raw = stack.frames[index];
            python.frame(runtime, tables, raw.code, raw.lasti)
        };
        let fit = native.merge(&mut self.tables, walked, stack, python_frame, frames);
        self.stats.unmatched += u64::from(fit == Fit::Apart);
    }
}

/// The ids of Python frames.
#[derive(Debug, Default)]
pub struct PythonFrames(FxHashMap<(CodeId, u32), FrameId>);

impl PythonFrames {
    /// Ids of tables that were handed over mean nothing.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn frame(&mut self, runtime: &mut Option<CPython>, tables: &mut Tables, code: CodeId, lasti: u32) -> FrameId {
        if let Some(&id) = self.0.get(&(code, lasti)) {
            return id;
        }
        let found = runtime.as_mut().and_then(|python| {
            let frame = python.frame(code, lasti)?;
            Some((frame.line, python.function(frame.function)?))
        });
        let id = match found {
            None => tables.label("[unreadable: unknown code]"),
            Some((line, function)) => {
                let (name, file) = (tables.string(&function.name), tables.string(&function.filename));
                let start_line = function.start_line;
                tables.frame(Frame { kind: FrameKind::Python, name, file, line, start_line, address: 0, mapping: -1 })
            }
        };
        self.0.insert((code, lasti), id);
        id
    }
}
