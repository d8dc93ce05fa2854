//! From a thread that does not run to a stack: copy, settle, resolve.

use rustc_hash::FxHashMap;

use super::native::{Fit, NOT_COPIED, Native, Walked};
use super::{Sample, Subject};
use crate::error::ReadError;
use crate::memory::Snapshot;
use crate::runtime::cpython::{CPython, CodeId, End, PyStack, ThreadLocals};
use crate::sampler::thread::{Asleep, Outcome, Thread};
use crate::tables::{Frame, FrameId, FrameKind, StackId, State, TRUNCATED, Tables};
use crate::target::thread::Schedstat;
use crate::target::{os, sys};
use crate::unwind::guest::{Look, Seen};
use crate::unwind::{GO_G, Registers};

/// Copies of one sleeping stack, each larger than the one before.
const MAX_COPIES: u32 = 5;

/// Why a walk is taken again: the frame chain was in the middle of a change.
pub const TORN: &str = "frame chain in the middle of a change";

/// Why a walk of a Python stack ended early.
const TOO_DEEP: &str = "more Python frames than a walk takes";

/// Why a thread has no Python frames.
const PUT_OFF: &str = "too many new threads at once";

/// Buffers that all subjects share, so that nothing is allocated while a thread is stopped.
#[derive(Debug)]
pub struct Scratch {
    /// The copy.
    pub snapshot: Snapshot,
    /// What the runtime made of it.
    pub stack: PyStack,
    /// The thread's registers, if native frames are wanted.
    pub start: Option<Registers>,
    /// The base of its thread-local words; None: it sleeps.
    pub thread_base: Option<u64>,
    /// What Go knows of the thread.
    pub seen: Seen,
    /// The system call that the thread sleeps in, -1 = none.
    pub syscall: i64,
    /// How the walk of the native stack ended.
    pub walked: Option<Walked>,
    /// The variables of its frames, where they are wanted.
    pub locals: Option<ThreadLocals>,
    pub(super) frames: Vec<FrameId>,
}

impl Default for Scratch {
    /// Buffers large enough for usual stacks.
    fn default() -> Self {
        Scratch {
            snapshot: Snapshot::with_capacity(1 << 20),
            stack: PyStack::default(),
            start: None,
            thread_base: None,
            seen: Seen::default(),
            syscall: -1,
            walked: None,
            locals: None,
            frames: Vec::with_capacity(4096),
        }
    }
}

impl Subject {
    /// Whether a thread has not run since its stack was read; then this tick is owed it, too.
    pub(super) fn sleeps_on(&mut self, tid: u32, now: u64, line: Schedstat) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else { return false };
        let Some(asleep) = thread.asleep else { return false };
        if asleep.line != line {
            self.end_sleep(tid, now);
            return false;
        }
        let executes = os::EXECS.contains(&asleep.call);
        self.executing |= executes;
        let turn = &mut self.turns[thread.turn];
        thread.long_sleep.catch_up(turn, self.last_tick);
        thread.long_sleep.goes_on(now);
        if cfg!(unix) && !executes {
            thread.long_sleep.rests(turn, now, asleep.since);
        }
        true
    }

    /// Reads a sleeping thread without a stop; false if it did not stay asleep.
    pub(super) fn sample_asleep(&mut self, tid: u32, now: u64, scratch: &mut Scratch) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else { return true };
        let Some(line) = thread.schedstat() else { return false };
        if self.sleeps_on(tid, now, line) {
            return true;
        }
        let at = scratch.start.as_ref().map(Registers::sp);
        let mut copies = 0;
        let read = loop {
            scratch.snapshot.begin(None);
            let read = self.copy(tid, scratch);
            let Some(thread) = self.threads.get_mut(&tid) else { return true };
            if !thread.still_asleep(line, at) {
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
        scratch.locals = None;
        if read.is_ok() {
            self.read_locals(scratch, false);
        }
        if scratch.locals.is_some() && !self.threads.get_mut(&tid).is_some_and(|thread| thread.still_asleep(line, at)) {
            return false;
        }
        let state = match os::state_letter(tid) {
            // Stopped by another tracer: whose it is, or that it was only passing, comes out when it is to be stopped.
            Some(b't') => return false,
            Some(b'D') => State::Disk,
            Some(b'R') => State::Runnable,
            _ => State::Sleeping,
        };
        let waits = scratch.syscall >= 0 && state != State::Runnable;
        let short = match scratch.walked {
            Some(Walked::Cut(_)) => true,
            Some(Walked::Complete) => self.native.as_ref().is_some_and(Native::went_around),
            _ => false,
        };
        if !waits && short {
            // Only waiting for a core, in a system call or not: a stop breaks nothing, and tells all registers.
            return false;
        }
        if scratch.walked == Some(Walked::Again) {
            scratch.walked = Some(Walked::Cut(NOT_COPIED));
        }
        let (stack, outcome) = self.resolve(read, scratch);
        self.keep_locals(tid, scratch);
        let (holds_gil, labels) = (scratch.stack.holds_gil, self.labels(scratch));
        // What was put off is made up for in a later round, asleep or not.
        if let Some(thread) = self.threads.get_mut(&tid).filter(|_| scratch.stack.end != End::PutOff) {
            let call = scratch.syscall;
            thread.asleep = Some(Asleep { line, stack, outcome, holds_gil, state, labels, call, since: now });
            self.asleep.count(false);
        }
        self.count(tid, Sample { stack, outcome, now, since: now, ran: None, holds_gil, state, labels });
        self.forget_collision(tid);
        true
    }

    /// `--nonblocking`: a running thread is read twice, and kept if both reads are equal.
    pub fn read_running(&mut self, tid: u32, scratch: &mut Scratch) {
        let now = sys::monotonic_ns();
        scratch.snapshot.begin(None);
        (scratch.start, scratch.syscall) = (None, -1);
        let read = self.copy(tid, scratch);
        let mut read = self.settle(tid, read, scratch);
        if read.is_ok() {
            let first = scratch.stack.frames.clone();
            scratch.snapshot.begin(None);
            let second = self.copy(tid, scratch);
            read = self.settle(tid, second, scratch);
            if read.is_ok() && scratch.stack.frames != first {
                read = Err(ReadError::Corrupt("moved while read"));
            }
        }
        let ran = self.threads.get_mut(&tid).and_then(Thread::schedstat);
        let (stack, outcome) = self.resolve(read, scratch);
        let holds_gil = scratch.stack.holds_gil;
        self.count(tid, Sample { stack, outcome, now, since: now, ran, holds_gil, state: State::Running, labels: 0 });
    }

    /// Copies the stack of a thread that does not run now.
    pub fn copy(&mut self, tid: u32, scratch: &mut Scratch) -> Result<(), ReadError> {
        let Scratch { snapshot, stack, start, seen, thread_base, .. } = scratch;
        *seen = Seen::default();
        let native = self.native.as_mut().zip(start.as_ref()).zip(self.threads.get(&tid));
        if let Some(((native, start), thread)) = native {
            native.plan(snapshot, start.sp(), &thread.stack);
            match &mut self.runtime {
                Some(python) => python.copy(&self.process, snapshot, tid, stack)?,
                None => stack.clear(),
            }
            let (sp, base) = (start.sp(), *thread_base);
            let look = || Look { tid, sp, base, g: start.get(GO_G).unwrap_or(0), most: native.max_stack };
            *seen = self.golang.read(&self.process, snapshot, look)?;
            return native.copy(&self.process, snapshot, sp, &thread.stack, seen);
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
        let Scratch { snapshot, stack, start, seen, walked, .. } = scratch;
        if let Some(python) = &mut self.runtime {
            python.finish(&self.process, snapshot, stack);
        }
        if stack.end == End::Torn {
            return Err(ReadError::Corrupt(TORN));
        }
        let native = self.native.as_mut().zip(start.as_ref()).zip(self.threads.get_mut(&tid));
        *walked = native.map(|((native, start), thread)| {
            native.walk(&self.process, snapshot, (start, &seen.places), &mut thread.stack, stack)
        });
        Ok(())
    }

    /// Makes a stack of what was copied. The thread runs again by now.
    pub fn resolve(&mut self, read: Result<(), ReadError>, scratch: &mut Scratch) -> (StackId, Outcome) {
        if read == Err(ReadError::OverBudget) {
            let label = self.tables.label(TRUNCATED);
            let cut = Some(ReadError::OverBudget.reason());
            return (self.tables.stack(&[label]), Outcome::Read { cut, unmatched: false });
        }
        if let Err(error) = read {
            // The next round finds out whether the process has replaced its memory.
            self.next_check = 0;
            let label = self.tables.label(&format!("[unreadable: {}]", error.reason()));
            return (self.tables.stack(&[label]), Outcome::Unreadable);
        }
        let cut = match scratch.walked {
            Some(Walked::Cut(reason)) => Some(reason),
            _ if scratch.stack.end == End::Truncated => Some(TOO_DEEP),
            _ if scratch.stack.end == End::PutOff => Some(PUT_OFF),
            _ => None,
        };
        scratch.frames.clear();
        let walked = scratch.walked;
        let mut unmatched = false;
        if let Some(walked) = walked {
            unmatched = self.merge(walked, scratch) == Some(Fit::Apart);
        } else {
            if let Some(stack) = self.known.find(&scratch.stack) {
                return (stack, Outcome::Read { cut, unmatched });
            }
            for raw in &scratch.stack.frames {
                let id = self.python.frame(&mut self.runtime, &mut self.tables, raw.code, raw.lasti);
                scratch.frames.push(id);
            }
        }
        if cut.is_some() {
            let native = self.native.as_ref();
            let root = native.map_or(TRUNCATED, |native| native.lost_root(walked, &scratch.seen, &scratch.stack));
            scratch.frames.push(self.tables.label(root));
        }
        let stack = self.tables.stack(&scratch.frames);
        if walked.is_none() {
            self.known.keep(&scratch.stack, stack);
        }
        (stack, Outcome::Read { cut, unmatched })
    }

    /// One stack of both kinds of frames, and whether they fit.
    fn merge(&mut self, walked: Walked, scratch: &mut Scratch) -> Option<Fit> {
        let Scratch { stack, frames, syscall, .. } = scratch;
        let native = self.native.as_mut()?;
        if let Some(call) = os::system_call_name(*syscall) {
            frames.push(self.tables.label(&format!("[syscall: {call}]")));
        }
        let (runtime, python) = (&mut self.runtime, &mut self.python);
        let python_frame = |tables: &mut Tables, index: usize| {
            let raw = stack.frames[index];
            python.frame(runtime, tables, raw.code, raw.lasti)
        };
        Some(native.merge(&self.process, &mut self.tables, walked, stack, python_frame, frames))
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

    pub(super) fn frame(
        &mut self,
        runtime: &mut Option<CPython>,
        tables: &mut Tables,
        code: CodeId,
        lasti: u32,
    ) -> FrameId {
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
