//! Stopping threads: a few at a time, each read as it stops and let go at once.

use std::io;
use std::time::Duration;

use super::subject::{NOT_COPIED, Sample, TORN, Walked};
use super::{Flight, Sampler, thread};
use crate::error::ReadError;
use crate::tables::State;
use crate::target::ptrace::{self, Change};
use crate::target::{linux, procfs, sys};
use crate::unwind::Registers;

/// Stops on threads that hold a core, under way at one time: each waits for the others to be read.
const MAX_STOPS: usize = 4;
/// A thread that has not stopped after this long is taken as off-core; it is served when it stops.
const ON_CORE_NS: u64 = 30_000;
/// Attempts at a stack whose frame chain is in the middle of a change.
const MAX_ATTEMPTS: u32 = 6;
/// How long a thread runs on before such a stack is taken again; longer after each attempt.
const RUN_ON_NS: u64 = 20_000;

/// A thread that stops this soon had a core until we woke up on it.
const OUR_CORE_NS: u64 = 300_000;

impl Sampler {
    /// A thread that is no longer listed will not stop: it ended unseen, or took the leader's id in an exec.
    pub(super) fn forget_ended(&mut self) {
        let (subjects, on_core) = (&self.subjects, &mut self.on_core);
        self.flights.retain(|tid, flight| {
            let listed = subjects[flight.subject].threads.contains_key(tid);
            if !listed && flight.on_core {
                *on_core -= 1;
            }
            listed
        });
    }

    /// Stops the queued threads, a few at a time, and serves each as it stops.
    pub(super) fn stop_running(&mut self) -> io::Result<()> {
        if self.queue.is_empty() {
            return Ok(());
        }
        let queue = std::mem::take(&mut self.queue);
        for &(subject, tid) in &queue {
            while self.on_core >= MAX_STOPS {
                self.spin()?;
            }
            self.interrupt(subject, tid, 1);
        }
        self.queue = queue;
        while self.on_core > 0 {
            self.spin()?;
        }
        self.watch_late_stops()
    }

    /// Threads that did not stop at once wake us by SIGCHLD; the others are spared its cost.
    pub(super) fn watch_late_stops(&mut self) -> io::Result<()> {
        let late = !(self.flights.is_empty() && self.strays.is_empty());
        let changed = late != self.notified;
        if changed {
            self.notified = late;
            sys::notify_stops(late);
        }
        // One may have stopped before the signal was switched on; and each change discards a signal that waits to be
        // taken (POSIX: SIG_DFL of a signal that is ignored by default), that of a child's end too.
        if late || changed { self.reap() } else { Ok(()) }
    }

    fn interrupt(&mut self, subject: usize, tid: u32, attempts: u32) {
        if self.strays.remove(&tid) {
            // Its stop was asked for by the recording before: it serves this one.
            let asked = sys::monotonic_ns();
            self.flights.insert(tid, Flight { subject, asked, on_core: false, attempts });
            if let Some(thread) = self.subjects[subject].threads.get_mut(&tid) {
                thread.in_flight = true;
            }
            return;
        }
        let seized = ptrace::seize(tid);
        let asked = sys::monotonic_ns();
        match seized.and_then(|()| ptrace::interrupt(tid)) {
            Ok(()) => {
                self.flights.insert(tid, Flight { subject, asked, on_core: true, attempts });
                self.on_core += 1;
                if let Some(thread) = self.subjects[subject].threads.get_mut(&tid) {
                    thread.in_flight = true;
                }
            }
            Err(error) => self.refused(subject, tid, &error, asked),
        }
    }

    /// The kernel did not let us stop a thread: it has ended, or another tracer holds it.
    fn refused(&mut self, index: usize, tid: u32, error: &io::Error, now: u64) {
        let subject = &mut self.subjects[index];
        let Some(thread) = subject.threads.get_mut(&tid) else { return };
        if error.raw_os_error() == Some(libc::ESRCH) {
            subject.stats.gone += 1;
            subject.end_thread(tid);
            return;
        }
        if thread.collided_since == 0 {
            thread.collided_since = now;
        }
        let long = now - thread.collided_since > linux::FOREIGN_TRACER.as_nanos() as u64;
        subject.stats.collisions += 1;
        if !long {
            subject.carry(tid);
            return;
        }
        let since = thread.collided_since;
        let tracer = procfs::status_field(tid, "TracerPid").unwrap_or(0);
        let reason = if tracer == 0 { "stop refused" } else { "traced by another" };
        if tracer != 0 {
            let error = linux::traced_error(subject.process.pid, tracer);
            subject.note(error.message);
        }
        let (stack, outcome) = subject.resolve(Err(ReadError::Corrupt(reason)), &mut self.scratch);
        subject
            .count(tid, Sample { stack, outcome, now, since: now, ran: None, holds_gil: false, state: State::Unknown });
        if let Some(thread) = subject.threads.get_mut(&tid) {
            thread.collided_since = since;
        }
    }

    fn spin(&mut self) -> io::Result<()> {
        if let Some((tid, change)) = ptrace::next_change() {
            return self.changed(tid, change);
        }
        let now = sys::monotonic_ns();
        for flight in self.flights.values_mut() {
            if flight.on_core && now.saturating_sub(flight.asked) > ON_CORE_NS {
                flight.on_core = false;
                self.on_core -= 1;
            }
        }
        std::hint::spin_loop();
        Ok(())
    }

    pub(super) fn reap(&mut self) -> io::Result<()> {
        // CMD's figures are to be had for as long as it has not been reaped.
        for subject in self.subjects.iter_mut().filter(|subject| subject.launched) {
            subject.look_at_cpu();
        }
        self.before_reaping();
        while let Some((tid, change)) = ptrace::next_change() {
            self.changed(tid, change)?;
        }
        Ok(())
    }

    fn changed(&mut self, tid: u32, change: Change) -> io::Result<()> {
        let flight = self.flights.remove(&tid);
        self.strays.remove(&tid);
        if flight.is_some_and(|flight| flight.on_core) {
            self.on_core -= 1;
        }
        let signal = match change {
            Change::Ended(status) => {
                if let Some(flight) = flight {
                    self.subjects[flight.subject].end_thread(tid);
                }
                return if self.command_pid == Some(tid) { self.command_ended(status) } else { Ok(()) };
            }
            Change::Signal(signal) => signal,
            Change::Interrupted | Change::GroupStop => 0,
        };
        match flight {
            Some(flight) if self.options.is_some() => self.sample(tid, flight, change, signal),
            // Not ours (any more): a thread that took over the leader's id in an exec, or one that stopped too late.
            _ => {
                let _ = ptrace::detach(tid, signal);
            }
        }
        Ok(())
    }

    /// Copies a stopped thread, lets it go on, and counts what was copied.
    fn sample(&mut self, tid: u32, flight: Flight, change: Change, signal: i32) {
        let reaped = sys::monotonic_ns();
        let max_pause = self.options.as_ref().map_or(1_000_000, |options| options.max_pause_ns);
        let subject = &mut self.subjects[flight.subject];
        self.scratch.snapshot.begin(Some(Duration::from_nanos(max_pause)));
        let registers = if subject.native() { ptrace::registers(tid).ok() } else { None };
        (self.scratch.start, self.scratch.syscall) = (registers.as_ref().map(Registers::stopped), -1);
        let read = subject.copy(tid, &mut self.scratch);
        let ran = subject.threads.get_mut(&tid).and_then(thread::Thread::schedstat);
        let interrupted = || match &registers {
            Some(registers) => registers.rax as i64 == -i64::from(libc::EINTR),
            None => ptrace::maybe_interrupted(tid),
        };
        let restarted = change == Change::Interrupted && interrupted() && ptrace::restart_syscall(tid);
        let _ = ptrace::detach(tid, signal);
        let now = sys::monotonic_ns();
        subject.stats.pause.add(now - if flight.on_core { flight.asked } else { reaped });
        subject.stats.syscalls_restarted += u64::from(restarted);
        if let Some(thread) = subject.threads.get_mut(&tid) {
            thread.in_flight = false;
            thread.rest = restarted;
        }
        let mut read = subject.settle(tid, read, &mut self.scratch);
        if read.is_ok() && self.scratch.walked == Some(Walked::Again) {
            if flight.attempts < MAX_ATTEMPTS && !restarted {
                self.interrupt(flight.subject, tid, flight.attempts + 1);
                return;
            }
            self.scratch.walked = Some(Walked::Cut(NOT_COPIED));
        }
        if read == Err(ReadError::Corrupt(TORN)) {
            subject.stats.torn += 1;
            if flight.attempts < MAX_ATTEMPTS && !restarted {
                // It would stop again before its next instruction if it were interrupted at once.
                let until = now + u64::from(flight.attempts) * RUN_ON_NS;
                while sys::monotonic_ns() < until {
                    std::hint::spin_loop();
                }
                self.interrupt(flight.subject, tid, flight.attempts + 1);
                return;
            }
            // What was walked is right as far as it goes.
            self.scratch.stack.end = crate::runtime::cpython::End::Truncated;
            read = Ok(());
        }
        let (stack, outcome) = subject.resolve(read, &mut self.scratch);
        let holds_gil = self.scratch.stack.holds_gil;
        let waited = reaped.saturating_sub(flight.asked);
        let state = if flight.on_core || waited < OUR_CORE_NS { State::Running } else { State::Runnable };
        subject.count(tid, Sample { stack, outcome, now: flight.asked, since: flight.asked, ran, holds_gil, state });
    }

    /// `--nonblocking`: a running thread is read twice, and kept if both reads are equal.
    pub(super) fn read_running(&mut self, index: usize, tid: u32) {
        let now = sys::monotonic_ns();
        let subject = &mut self.subjects[index];
        self.scratch.snapshot.begin(None);
        (self.scratch.start, self.scratch.syscall) = (None, -1);
        let read = subject.copy(tid, &mut self.scratch);
        let mut read = subject.settle(tid, read, &mut self.scratch);
        if read.is_ok() {
            let first = self.scratch.stack.frames.clone();
            self.scratch.snapshot.begin(None);
            let second = subject.copy(tid, &mut self.scratch);
            read = subject.settle(tid, second, &mut self.scratch);
            if read.is_ok() && self.scratch.stack.frames != first {
                read = Err(ReadError::Corrupt("moved while read"));
            }
        }
        let ran = subject.threads.get_mut(&tid).and_then(thread::Thread::schedstat);
        let (stack, outcome) = subject.resolve(read, &mut self.scratch);
        let holds_gil = self.scratch.stack.holds_gil;
        subject.count(tid, Sample { stack, outcome, now, since: now, ran, holds_gil, state: State::Running });
    }
}
