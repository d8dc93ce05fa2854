//! Which threads a process has.

use super::{MIN_SCAN_NS, Subject};
use crate::sampler::long_sleep::Turn;
use crate::sampler::thread::{Thread, may_keep};
use crate::target::os::{ThreadView, thread_name};
use crate::target::sys;
use crate::target::thread::Look;

/// Longest time between two looks at the list of threads: one can end as another begins.
const MAX_SCAN_NS: u64 = 100_000_000;
/// A look at the list of threads may take this share of our CPU time, but is not put off for longer than this.
const SCAN_SHARE: u64 = 1000;
const MAX_LOOK_NS: u64 = 1_000_000_000;
/// Most threads of one window that are told apart.
const MAX_THREAD_ROWS: usize = 200_000;

impl Subject {
    /// Looks at the list of threads.
    pub fn scan(&mut self, now: u64, first: bool) {
        let began = sys::thread_cpu_ns();
        let mut tids = self.process.threads();
        let leader = self.process.pid;
        if !first && !self.threads.contains_key(&leader) && tids.binary_search(&leader).is_ok() && !self.alive() {
            // A zombie, or another process that was given the pid.
            tids.clear();
        }
        let ended: Vec<u32> = self.threads.keys().copied().filter(|tid| tids.binary_search(tid).is_err()).collect();
        ended.into_iter().for_each(|tid| self.end_thread(tid));
        for tid in tids {
            if !self.threads.contains_key(&tid) {
                self.add_thread(tid, now, first && !self.born);
            }
        }
        // Not by the clock: we may have lost our core on the way.
        let cost = sys::thread_cpu_ns().saturating_sub(began);
        self.next_scan = now + MAX_SCAN_NS;
        self.next_look = now + (cost * SCAN_SHARE).clamp(MIN_SCAN_NS, MAX_LOOK_NS);
        self.ended |= self.threads.is_empty();
    }

    fn alive(&self) -> bool {
        // CMD's start was read before it was known to run.
        self.launched || self.process.alive()
    }

    fn add_thread(&mut self, tid: u32, now: u64, was_there: bool) {
        let files = ThreadView::open(self.process.pid, tid, may_keep());
        if files.look() == Look::Gone {
            return;
        }
        let Some(line) = files.schedstat() else { return };
        let row = self.row(tid, thread_name(self.process.pid, tid));
        self.seen_threads += 1;
        let mark = if was_there { line.run_ns } else { 0 };
        self.threads.insert(tid, Thread::new(row, files, mark, now, self.turns.len()));
        self.turns.push(Turn::new(tid));
    }

    /// A thread is no longer sampled.
    pub(super) fn remove_thread(&mut self, tid: u32) -> Option<Thread> {
        let thread = self.threads.remove(&tid)?;
        self.turns.swap_remove(thread.turn);
        if let Some(moved) = self.turns.get(thread.turn).and_then(|turn| self.threads.get_mut(&turn.tid)) {
            moved.turn = thread.turn;
        }
        Some(thread)
    }

    pub(super) fn row(&mut self, tid: u32, name: String) -> u32 {
        let next = self.rows.len() as u32;
        let (mut tid, mut name) = (tid, name);
        if self.rows.len() >= MAX_THREAD_ROWS && !self.row_ids.contains_key(&(tid, name.clone())) {
            self.folded_threads += 1;
            (tid, name) = (0, "[others]".to_string());
        }
        let row = *self.row_ids.entry((tid, name.clone())).or_insert(next);
        if row == next {
            self.rows.push((tid, name));
        }
        row
    }

    /// The process has ended, and all its threads with it.
    #[cfg(windows)]
    pub fn end(&mut self) {
        self.look_at_cpu();
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            self.threads.get_mut(&tid).and_then(Thread::schedstat);
            self.end_thread(tid);
        }
        self.ended = true;
    }

    /// A thread has ended: what it left goes to `gone` and `[unsampled]`.
    pub fn end_thread(&mut self, tid: u32) {
        self.count_owed(tid);
        let Some(thread) = self.remove_thread(tid) else { return };
        self.stats.pending_ticks -= thread.carried;
        self.stats.gone += thread.carried + u64::from(thread.in_flight);
        self.count_unsampled(&thread);
    }
}
