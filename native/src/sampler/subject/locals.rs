//! The variables of Python frames: read with a stack, where they are asked for.

use std::time::Duration;

use super::{Scratch, Subject};
use crate::protocol::StackLocals;
use crate::runtime::cpython::{End, FrameLocals, Look};

/// Most bytes of text of one process: threads that come after have nothing read.
const MAX_PROCESS_BYTES: usize = 32 << 20;

/// What was read of one process.
#[derive(Debug, Default)]
pub struct ReadLocals {
    /// Longest work on one stopped thread; nothing is read where this is none.
    pub pause: Option<Duration>,
    stacks: Vec<StackLocals>,
    bytes: usize,
}

impl ReadLocals {
    /// Hands over what was read.
    pub fn take(&mut self) -> Vec<StackLocals> {
        self.bytes = 0;
        std::mem::take(&mut self.stacks)
    }
}

impl Subject {
    /// Whether a stopped thread may be in the middle of changing an object: it runs Python, and is in C code outside of
    /// the evaluation loop, as list.insert() is while it makes room. False where the loop is not known.
    pub fn changes_objects(&self, scratch: &Scratch) -> bool {
        let wanted = self.locals.pause.is_some() && scratch.stack.holds_gil;
        let place = self.native.as_ref().zip(scratch.start.as_ref()).filter(|_| wanted);
        place.is_some_and(|(native, start)| {
            !native.evaluation.is_empty() && native.evaluation.part(start.ip()).is_none()
        })
    }

    /// Reads the variables of the frames that were just copied. `stopped`: their thread waits for it.
    pub fn read_locals(&mut self, scratch: &mut Scratch, stopped: bool) {
        scratch.locals = None;
        let Some((pause, python)) = self.locals.pause.zip(self.runtime.as_ref()) else { return };
        if scratch.stack.end != End::Torn && self.locals.bytes < MAX_PROCESS_BYTES {
            // Whoever does not hold the GIL changes no object.
            let look = Look { budget: stopped.then_some(pause), still: stopped && scratch.stack.holds_gil };
            scratch.locals = Some(python.locals(&self.process, look));
        }
    }

    /// Keeps what was read for the stack that was made of it.
    pub fn keep_locals(&mut self, tid: u32, scratch: &mut Scratch) {
        if self.locals.pause.is_none() || scratch.stack.frames.is_empty() {
            return;
        }
        let mut read = scratch.locals.take().unwrap_or_default();
        let mut found = std::mem::take(&mut read.frames).into_iter().peekable();
        let left_out = if found.peek().is_none() { scratch.stack.frames.len() as u32 } else { read.frames_left_out };
        let mut stack = StackLocals {
            tid,
            frames: Vec::new(),
            unreadable: read.unreadable,
            changing: read.changing,
            frames_left_out: left_out,
            over_budget: read.over_budget,
        };
        let mut position = 0;
        for raw in &scratch.stack.frames {
            if scratch.walked.is_some() {
                // Among native frames: in the same order, by the same ids.
                let id = self.python.frame(&mut self.runtime, &mut self.tables, raw.code, raw.lasti);
                position +=
                    scratch.frames[position.min(scratch.frames.len())..].iter().take_while(|&&at| at != id).count();
            }
            // A walk also meets frames that are being set up, which no stack shows.
            let of_frame = |found: &mut std::iter::Peekable<std::vec::IntoIter<FrameLocals>>| {
                while found.peek().is_some_and(|frame| frame.address != raw.address) {
                    found.next();
                }
                found.next()
            };
            if let Some(frame) = of_frame(&mut found) {
                stack.frames.push((position as u32, frame));
            }
            position += 1;
        }
        self.locals.bytes += read.bytes;
        self.locals.stacks.push(stack);
    }
}
