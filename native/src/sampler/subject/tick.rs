//! What a tick does with one thread.

use super::{Sample, Scratch, Subject};
use crate::sampler::thread::Asleep;
use crate::sampler::watchdog;
use crate::target::os;
use crate::target::sys;
use crate::target::thread::Look;
use crate::unwind::Registers;

/// About so many sleeping threads of a process are looked at closely in a round, by turns; of the others only the
/// scheduler's figures are read, at a quarter of the cost: one that was woken and waits for its first moment on a core
/// still counts as asleep then.
pub(super) const CLOSE_LOOKS: usize = 64;

/// The watchdog is told each time that so many threads were looked at.
const GETS_ON: usize = 16;

/// What a tick found a thread doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Dealt with.
    Done,
    /// It has to be stopped to be read.
    Running,
}

impl Subject {
    /// In how many rounds each sleeping thread is looked at closely once.
    fn rounds(&self) -> u64 {
        1 + (self.threads.len() / CLOSE_LOOKS) as u64
    }

    /// The tick at `now` of all threads: those that have to be stopped are added to `queue`, as ones of the subject at
    /// `index`. Those that have slept for long among many are left alone, and are owed it.
    pub fn tick_threads(&mut self, index: usize, now: u64, queue: &mut Vec<(usize, u32)>, scratch: &mut Scratch) {
        let leaves = self.rounds() > 1 && !self.watch.is_on(now);
        let from = queue.len();
        let looked_at = self.turns.iter_mut().filter_map(|turn| turn.comes(now, leaves).then_some((index, turn.tid)));
        queue.extend(looked_at);
        self.stats.thread_ticks += (self.threads.len() - (queue.len() - from)) as u64;
        let mut keep = from;
        for at in from..queue.len() {
            // One read that blocks is what ends us, not a round of many threads on a busy machine.
            if (at - from).is_multiple_of(GETS_ON) {
                watchdog::busy(sys::monotonic_ns());
            }
            if self.tick_thread(queue[at].1, now, scratch) == Found::Running {
                queue[keep] = queue[at];
                keep += 1;
            }
        }
        queue.truncate(keep);
        self.last_tick = now;
    }

    /// The tick of one thread: reads it if it sleeps; says if it has to be stopped.
    fn tick_thread(&mut self, tid: u32, now: u64, scratch: &mut Scratch) -> Found {
        let closely = self.unopened || (u64::from(tid) + self.stats.ticks).is_multiple_of(self.rounds());
        let Some(thread) = self.threads.get_mut(&tid) else { return Found::Done };
        if thread.in_flight {
            self.stats.thread_ticks += 1;
            self.carry(tid);
            return Found::Done;
        }
        if !closely
            && self.idle
            && let Some(line) = thread.schedstat()
            && self.sleeps_on(tid, now, line)
        {
            self.stats.thread_ticks += 1;
            return Found::Done;
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return Found::Done };
        let look = thread.files.look();
        if self.unopened && look != Look::Gone {
            self.stats.thread_ticks += 1;
            self.carry(tid);
            return Found::Done;
        }
        match look {
            Look::Running => {}
            Look::Gone => {
                self.stats.thread_ticks += 1;
                self.stats.gone += 1;
                (self.next_look, self.next_scan) = (now, now);
                self.end_thread(tid);
                return Found::Done;
            }
            Look::Blocked { .. } if !self.idle => {
                thread.last_sample = now;
                return Found::Done;
            }
            Look::Blocked { number, sp, pc, arguments } => {
                thread.rest = false;
                self.executing |= os::EXECS.contains(&number);
                (scratch.syscall, scratch.thread_base) = (number, None);
                scratch.start =
                    (self.native.is_some() && sp != 0).then(|| Registers::asleep(pc, sp, number, &arguments));
                // Where Windows tells that it sleeps it does not tell where: its registers are to be had in a stop only.
                let known = match cfg!(windows) && self.native.is_some() {
                    true => thread.schedstat().is_some_and(|line| self.sleeps_on(tid, now, line)),
                    false => self.sample_asleep(tid, now, scratch),
                };
                if known {
                    self.stats.thread_ticks += 1;
                    return Found::Done;
                }
            }
        }
        self.stats.thread_ticks += 1;
        self.end_sleep(tid, now);
        let Some(thread) = self.threads.get_mut(&tid) else { return Found::Done };
        if std::mem::take(&mut thread.rest) {
            self.carry(tid);
            return Found::Done;
        }
        Found::Running
    }

    /// The thread has run since its stack was read, if one was: that is no longer good.
    pub(super) fn end_sleep(&mut self, tid: u32, now: u64) {
        self.count_owed(tid);
        if let Some(thread) = self.threads.get_mut(&tid)
            && let Some(asleep) = thread.asleep.take()
            && thread.long_sleep.ended(now, asleep.since)
        {
            self.watch.met_late(now);
        }
    }

    /// Counts the ticks in which a thread slept on. Where it was not looked at in the last of them, and has run since, what
    /// it did in these is not known; before, it slept.
    pub(super) fn count_owed(&mut self, tid: u32) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        thread.long_sleep.catch_up(&mut self.turns[thread.turn], self.last_tick);
        let (owed, last) = thread.long_sleep.take();
        let Some(asleep) = thread.asleep.filter(|_| owed > 0) else { return };
        let Asleep { stack, outcome, holds_gil, state, since, labels, .. } = asleep;
        self.asleep.hits += owed;
        self.count_ticks(tid, Sample { stack, outcome, now: last, since, ran: None, holds_gil, state, labels }, owed);
        self.forget_collision(tid);
    }

    /// The samples of this window so far.
    pub fn samples(&mut self) -> u64 {
        self.count_all_owed();
        self.stats.samples
    }

    /// Counts what is owed for all threads.
    pub(super) fn count_all_owed(&mut self) {
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.count_owed(tid));
    }

    /// A sleeping thread needs no stop; whether another tracer still is in the way only matters once one was.
    pub(super) fn forget_collision(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid)
            && thread.collided_since != 0
            && os::tracer(tid) == 0
        {
            thread.collided_since = 0;
        }
    }

    /// This tick waits for the thread's next stack.
    pub fn carry(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.carried += 1;
            self.stats.pending_ticks += 1;
        }
    }
}
