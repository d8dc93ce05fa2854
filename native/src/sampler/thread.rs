//! One thread of a target: what is kept of it from tick to tick.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::long_sleep::LongSleep;
use crate::tables::{StackId, State};
use crate::target::os::ThreadView;
use crate::target::thread::{Look, Schedstat};

/// A stack that holds for as long as the thread does not run.
#[derive(Clone, Copy, Debug)]
pub struct Asleep {
    /// The whole schedstat line under which the stack was read.
    pub line: Schedstat,
    /// The stack.
    pub stack: StackId,
    /// What the stack counts as.
    pub outcome: Outcome,
    /// Whether the thread sleeps with the GIL held.
    pub holds_gil: bool,
    /// How it sleeps.
    pub state: State,
    /// Its labels.
    pub labels: u32,
    /// The system call that it sleeps in, -1 = none.
    pub call: i64,
    /// When it was first seen so, nanoseconds.
    pub since: u64,
}

/// What is known of a thread's native stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadStack {
    /// The stack pointer of its first frame, 0 = not known.
    pub base: u64,
    /// Bytes to copy while that is not known.
    pub want: u32,
    /// Whether it runs Go that C called: its stack goes on on the system's.
    pub called_back: bool,
}

/// What a read stack counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is a stack.
    Read {
        /// Why it does not reach a known bottom frame; None: it does.
        cut: Option<&'static str>,
        /// Its native and its other frames could not be put into one order.
        unmatched: bool,
    },
    /// Nothing could be read.
    Unreadable,
}

/// Descriptors that the threads of all targets keep open.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Whether another thread may keep its descriptors.
pub fn may_keep() -> bool {
    KEPT.load(Ordering::Relaxed) + ThreadView::DESCRIPTORS <= super::descriptor_budget()
}

/// A thread that is being sampled.
#[derive(Debug)]
pub struct Thread {
    /// Its row in the window's list of threads.
    pub row: u32,
    /// The system's view of it.
    pub files: ThreadView,
    /// schedstat's first field at the last running sample: later CPU time is not in the profile yet.
    pub cpu_mark: u64,
    /// The newest such value seen.
    pub cpu_seen: u64,
    /// When its last sample was counted, nanoseconds.
    pub last_sample: u64,
    /// Ticks that wait for the next stack.
    pub carried: u64,
    /// Whether a stop is under way.
    pub in_flight: bool,
    /// The last sample restarted a system call: the next tick does not interrupt, or a wait could be stretched.
    pub rest: bool,
    /// Since when another tracer has been in the way of each stop, nanoseconds; 0 = it is not.
    pub collided_since: u64,
    /// Its stack while it sleeps.
    pub asleep: Option<Asleep>,
    /// How long it sleeps, and the ticks of it that are not counted yet.
    pub long_sleep: LongSleep,
    /// Its place in the list of turns.
    pub turn: usize,
    /// Its native stack.
    pub stack: ThreadStack,
}

impl Thread {
    /// A thread first seen at `now` whose CPU time up to `cpu_mark` is not ours to count; `turn` is its place.
    pub fn new(row: u32, files: ThreadView, cpu_mark: u64, now: u64, turn: usize) -> Self {
        if files.kept() {
            KEPT.fetch_add(ThreadView::DESCRIPTORS, Ordering::Relaxed);
        }
        Thread {
            row,
            files,
            cpu_mark,
            cpu_seen: cpu_mark,
            last_sample: now,
            carried: 0,
            in_flight: false,
            rest: false,
            collided_since: 0,
            asleep: None,
            long_sleep: LongSleep::default(),
            turn,
            stack: ThreadStack::default(),
        }
    }

    /// The scheduler's figures now, remembered.
    pub fn schedstat(&mut self) -> Option<Schedstat> {
        let line = self.files.schedstat()?;
        self.cpu_seen = self.cpu_seen.max(line.run_ns);
        Some(line)
    }

    /// Whether the thread still sleeps as it did when `line` was read, at this stack pointer (None = at any).
    pub fn still_asleep(&mut self, line: Schedstat, at: Option<u64>) -> bool {
        let same = matches!(self.files.look(), Look::Blocked { sp, .. } if at.is_none_or(|at| at == sp));
        same && self.schedstat() == Some(line)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.files.kept() {
            KEPT.fetch_sub(ThreadView::DESCRIPTORS, Ordering::Relaxed);
        }
    }
}
