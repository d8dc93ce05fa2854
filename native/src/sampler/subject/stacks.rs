//! From a thread that does not run to a stack: copy, settle, resolve.

use super::{Sample, Subject};
use crate::error::ReadError;
use crate::memory::Snapshot;
use crate::runtime::cpython::{CodeId, End, PyStack};
use crate::sampler::thread::{Asleep, Outcome};
use crate::tables::{Frame, FrameId, FrameKind, StackId, State};
use crate::target::procfs;

/// Why a walk is taken again: the frame chain was in the middle of a change.
pub const TORN: &str = "frame chain in the middle of a change";

/// Buffers that all subjects share, so that nothing is allocated while a thread is stopped.
#[derive(Debug)]
pub struct Scratch {
    /// The copy.
    pub snapshot: Snapshot,
    /// What the runtime made of it.
    pub stack: PyStack,
    frames: Vec<FrameId>,
}

impl Default for Scratch {
    /// Buffers large enough for usual stacks.
    fn default() -> Self {
        Scratch {
            snapshot: Snapshot::with_capacity(1 << 20),
            stack: PyStack::default(),
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
            let Asleep { stack, outcome, holds_gil, state, .. } = asleep;
            self.count(tid, Sample { stack, outcome, now, ran: None, holds_gil, state });
            return true;
        }
        scratch.snapshot.begin(None);
        let read = self.copy(tid, scratch);
        let Some(thread) = self.threads.get_mut(&tid) else { return true };
        if !thread.still_asleep(line) {
            return false;
        }
        let read = self.settle(read, scratch);
        if read == Err(ReadError::Corrupt(TORN)) {
            return false;
        }
        let (stack, outcome) = self.resolve(read, scratch);
        let holds_gil = scratch.stack.holds_gil;
        let in_disk_wait = procfs::read_stat(tid).is_ok_and(|stat| stat.state == b'D');
        let state = if in_disk_wait { State::Disk } else { State::Sleeping };
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.asleep = Some(Asleep { line, stack, outcome, holds_gil, state });
        }
        self.count(tid, Sample { stack, outcome, now, ran: None, holds_gil, state });
        true
    }

    /// Copies the stack of a thread that does not run now.
    pub fn copy(&mut self, tid: u32, scratch: &mut Scratch) -> Result<(), ReadError> {
        if let Some(python) = &mut self.runtime {
            return python.copy(&self.process, &mut scratch.snapshot, tid, &mut scratch.stack);
        }
        scratch.stack.frames.clear();
        scratch.stack.end = End::Base;
        scratch.stack.holds_gil = false;
        Ok(())
    }

    /// Makes frames of what was copied. The thread runs again by now.
    pub fn settle(&mut self, read: Result<(), ReadError>, scratch: &mut Scratch) -> Result<(), ReadError> {
        read?;
        if let Some(python) = &mut self.runtime {
            python.finish(&self.process, &mut scratch.snapshot, &mut scratch.stack);
        }
        if scratch.stack.end == End::Torn { Err(ReadError::Corrupt(TORN)) } else { Ok(()) }
    }

    /// Makes a stack of what was copied. The thread runs again by now.
    pub fn resolve(&mut self, read: Result<(), ReadError>, scratch: &mut Scratch) -> (StackId, Outcome) {
        if read == Err(ReadError::OverBudget) {
            let label = self.tables.label("[truncated]");
            return (self.tables.stack(&[label]), Outcome::Truncated);
        }
        if let Err(error) = read {
            // The next round finds out whether the process has replaced its memory.
            self.next_check = 0;
            let label = self.tables.label(&format!("[unreadable: {}]", error.reason()));
            return (self.tables.stack(&[label]), Outcome::Unreadable);
        }
        let outcome = match scratch.stack.end {
            End::Truncated => Outcome::Truncated,
            _ => Outcome::Complete,
        };
        if let Some(stack) = self.known.find(&scratch.stack) {
            return (stack, outcome);
        }
        scratch.frames.clear();
        for raw in &scratch.stack.frames {
            let id = match self.frame_ids.get(&(raw.code, raw.lasti)) {
                Some(&id) => id,
                None => {
                    let id = self.python_frame(raw.code, raw.lasti);
                    self.frame_ids.insert((raw.code, raw.lasti), id);
                    id
                }
            };
            scratch.frames.push(id);
        }
        if outcome == Outcome::Truncated {
            scratch.frames.push(self.tables.label("[truncated]"));
        }
        let stack = self.tables.stack(&scratch.frames);
        self.known.keep(&scratch.stack, stack);
        (stack, outcome)
    }

    fn python_frame(&mut self, code: CodeId, lasti: u32) -> FrameId {
        let frame = self.runtime.as_mut().and_then(|python| {
            let frame = python.frame(code, lasti)?;
            Some((frame.line, python.function(frame.function)?))
        });
        let Some((line, function)) = frame else { return self.tables.label("[unreadable: unknown code]") };
        let (name, file) = (self.tables.string(&function.name), self.tables.string(&function.filename));
        let start_line = function.start_line;
        self.tables.frame(Frame { kind: FrameKind::Python, name, file, line, start_line, address: 0, mapping: -1 })
    }
}
