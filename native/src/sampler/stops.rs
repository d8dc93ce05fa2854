//! Stopping threads: a few at a time, each read as it stops and let go at once.

use std::io;
use std::time::Duration;

use super::subject::{NOT_COPIED, Sample, TORN, Walked};
use super::{Flight, Sampler, thread, watchdog};
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
/// How long a process is left alone whose exec let us wait (for a millisecond: target/seize.rs), the first time, and at
/// most: most execs are over soon, and the new program's start is to be seen.
const LEFT_ALONE_NS: (u64, u64) = (1_000_000, 20_000_000);

/// A thread that stops this soon had a core until we woke up on it.
const OUR_CORE_NS: u64 = 300_000;

impl Sampler {
    /// A thread that is no longer listed will not stop: it is ending, or took the leader's id in an exec. One that we
    /// hold ends when we take note, and the exec that ends it waits for that (de_thread, fs/exec.c).
    pub(super) fn forget_ended(&mut self) -> io::Result<()> {
        let (subjects, on_core, strays) = (&self.subjects, &mut self.on_core, &mut self.strays);
        self.flights.retain(|&tid, flight| {
            let listed = subjects[flight.subject].threads.contains_key(&tid);
            if !listed {
                *on_core -= usize::from(flight.on_core);
                strays.insert(tid);
            }
            listed
        });
        if strays.is_empty() {
            return Ok(());
        }
        strays.retain(|&tid| procfs::read_stat(tid).is_ok());
        self.watch_late_stops()
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
        if self.subjects[subject].executing {
            self.subjects[subject].carry(tid);
            return;
        }
        self.alarm.set();
        let seized = ptrace::seize(tid);
        let asked = sys::monotonic_ns();
        // One that is seized and cannot be interrupted is ending.
        let interrupted = |()| ptrace::interrupt(tid).inspect_err(|_| _ = self.strays.insert(tid));
        match seized.and_then(interrupted) {
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

    /// The kernel did not let us stop a thread: it has ended, another tracer holds it, or its process is in an exec.
    fn refused(&mut self, index: usize, tid: u32, error: &io::Error, now: u64) {
        let subject = &mut self.subjects[index];
        let Some(thread) = subject.threads.get_mut(&tid) else { return };
        if error.raw_os_error() == Some(libc::ESRCH) {
            subject.stats.gone += 1;
            subject.end_thread(tid);
            return;
        }
        if error.raw_os_error() == Some(libc::EINTR) {
            let again = now < subject.left_until + LEFT_ALONE_NS.1;
            let before = if again { subject.left_alone } else { 0 };
            subject.left_alone = (before * 2).clamp(LEFT_ALONE_NS.0, LEFT_ALONE_NS.1);
            (subject.executing, subject.left_until) = (true, now + subject.left_alone);
            subject.carry(tid);
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
        let tracer = procfs::tracer(tid);
        let reason = if tracer == 0 { "stop refused" } else { "traced by another" };
        if tracer != 0 {
            let error = linux::traced_error(subject.process.pid, tracer);
            subject.note(error.message);
        }
        let (stack, outcome) = subject.resolve(Err(ReadError::Corrupt(reason)), &mut self.scratch);
        subject.count(
            tid,
            Sample { stack, outcome, now, since: now, ran: None, holds_gil: false, state: State::Unknown, labels: 0 },
        );
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
        watchdog::busy(reaped);
        let max_pause = self.options.as_ref().map_or(1_000_000, |options| options.max_pause_ns);
        let subject = &mut self.subjects[flight.subject];
        self.scratch.snapshot.begin(Some(Duration::from_nanos(max_pause)));
        let registers = if subject.native() { ptrace::registers(tid).ok() } else { None };
        (self.scratch.start, self.scratch.syscall) = (registers.as_ref().map(Registers::stopped), -1);
        self.scratch.thread_base = registers.as_ref().map(|registers| registers.fs_base);
        let read = subject.copy(tid, &mut self.scratch);
        let busy = read.is_ok() && flight.attempts < MAX_ATTEMPTS && subject.changes_objects(&self.scratch);
        self.scratch.locals = None;
        if read.is_ok() && !busy {
            subject.read_locals(&mut self.scratch, true);
        }
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
            (thread.in_flight, thread.rest) = (false, restarted);
            thread.collided_since = 0;
        }
        let mut read = subject.settle(tid, read, &mut self.scratch);
        if read.is_ok() && self.scratch.walked == Some(Walked::Again) {
            if flight.attempts < MAX_ATTEMPTS && !restarted {
                self.interrupt(flight.subject, tid, flight.attempts + 1);
                return;
            }
            self.scratch.walked = Some(Walked::Cut(NOT_COPIED));
        }
        let torn = read == Err(ReadError::Corrupt(TORN));
        subject.stats.torn += u64::from(torn);
        if (torn || (read.is_ok() && busy)) && flight.attempts < MAX_ATTEMPTS && !restarted {
            // It would stop again before its next instruction if it were interrupted at once.
            let until = now + u64::from(flight.attempts) * RUN_ON_NS;
            while sys::monotonic_ns() < until {
                std::hint::spin_loop();
            }
            self.interrupt(flight.subject, tid, flight.attempts + 1);
            return;
        }
        if torn {
            // What was walked is right as far as it goes.
            self.scratch.stack.end = crate::runtime::cpython::End::Truncated;
            read = Ok(());
        }
        let (stack, outcome) = subject.resolve(read, &mut self.scratch);
        subject.keep_locals(tid, &mut self.scratch);
        let (holds_gil, labels) = (self.scratch.stack.holds_gil, subject.labels(&self.scratch));
        let waited = reaped.saturating_sub(flight.asked);
        let state = if flight.on_core || waited < OUR_CORE_NS { State::Running } else { State::Runnable };
        subject.count(
            tid,
            Sample { stack, outcome, now: flight.asked, since: flight.asked, ran, holds_gil, state, labels },
        );
    }
}
