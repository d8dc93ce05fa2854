//! The loop of the sampler process: tick → interrupt the running → reap → copy → resume → read → count.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, ReadError};
use crate::protocol::{self, Command, Event, Options};
use crate::target::launch::{self, Held, Restore};
use crate::target::linux::{self, Process};
use crate::target::ptrace::{self, Change};
use crate::target::{procfs, sys};

pub mod known;
pub mod pace;
pub mod subject;
pub mod thread;
pub mod watchdog;

use pace::Pace;
use subject::{Found, Scratch, Subject};

/// Stops on threads that hold a core, under way at one time: each waits for the others to be read.
const MAX_STOPS: usize = 4;
/// A thread that has not stopped after this long is taken as off-core; it is served when it stops.
const ON_CORE_NS: u64 = 30_000;
/// Attempts at a stack whose frame chain is in the middle of a change.
const MAX_ATTEMPTS: u32 = 6;
/// How long a thread runs on before such a stack is taken again; longer after each attempt.
const RUN_ON_NS: u64 = 20_000;
/// How long stops that are still under way are waited for at the end.
const LAST_STOPS_NS: u64 = 100_000_000;
/// How long a young process is given to become a Python.
const STARTUP_NS: u64 = 1_000_000_000;
/// Descriptors for other things than threads.
const OTHER_DESCRIPTORS: u64 = 64;

static DESCRIPTOR_BUDGET: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(512);

/// How many descriptors the threads of one target may keep open.
pub fn descriptor_budget() -> usize {
    DESCRIPTOR_BUDGET.load(std::sync::atomic::Ordering::Relaxed)
}

/// A stop that is under way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    subject: usize,
    asked: u64,
    on_core: bool,
    attempts: u32,
}

/// The sampler process.
pub struct Sampler {
    link: UnixStream,
    input: Vec<u8>,
    signals: OwnedFd,
    restore: Restore,
    subjects: Vec<Subject>,
    held: Option<Held>,
    command_pid: Option<u32>,
    options: Option<Options>,
    clock: Clock,
    pace: Pace,
    end: u64,
    flights: FxHashMap<u32, Flight>,
    on_core: usize,
    notified: bool,
    queue: Vec<(usize, u32)>,
    scratch: Scratch,
}

/// Serves the supervisor at the other end of `link` until it is closed, or all is done.
pub fn serve(link: UnixStream) -> io::Result<()> {
    let restore_mask = launch::current_signal_mask();
    let ignored = sys::ignored_signals();
    sys::become_sampler();
    let (old_limit, new_limit) = sys::raise_descriptor_limit();
    let budget = new_limit.saturating_sub(OTHER_DESCRIPTORS) / 2;
    DESCRIPTOR_BUDGET.store(budget as usize, std::sync::atomic::Ordering::Relaxed);
    let signals = sys::sigchld_descriptor()?;
    watchdog::start();
    Sampler {
        link,
        input: Vec::new(),
        signals,
        restore: Restore { descriptors: old_limit, signal_mask: restore_mask, ignored },
        subjects: Vec::new(),
        held: None,
        command_pid: None,
        options: None,
        clock: Clock::new(0, 1.0, 1),
        pace: Pace::default(),
        end: u64::MAX,
        flights: FxHashMap::default(),
        on_core: 0,
        notified: false,
        queue: Vec::new(),
        scratch: Scratch::default(),
    }
    .run()
    .or_else(|error| match error.kind() {
        // The supervisor has gone: there is nobody left to tell.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

impl Sampler {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let now = sys::monotonic_ns();
            let timeout = self.options.is_some().then(|| self.clock.due().min(self.end).saturating_sub(now));
            let [signalled, commanded] = sys::wait_readable([self.signals.as_raw_fd(), self.link.as_raw_fd()], timeout);
            if signalled {
                sys::drain_signals(&self.signals);
                self.reap()?;
            }
            if commanded && !self.commands()? {
                return Ok(());
            }
            if let Some(options) = &self.options {
                let now = sys::monotonic_ns();
                let last_tick = options.max_ticks;
                if now >= self.end || self.subjects.iter().all(|subject| subject.ended) {
                    self.finish()?;
                } else if now >= self.clock.due() {
                    watchdog::busy(now);
                    self.round(now)?;
                    watchdog::idle();
                    if last_tick > 0 && self.subjects.iter().all(|subject| subject.stats.ticks >= last_tick) {
                        self.finish()?;
                    }
                }
            }
        }
    }

    fn say(&mut self, event: &Event) -> io::Result<()> {
        protocol::send(&mut self.link, event)
    }

    fn commands(&mut self) -> io::Result<bool> {
        if !protocol::fill(&mut self.link, &mut self.input)? {
            return Ok(false);
        }
        while let Some(command) = protocol::decode(&mut self.input)? {
            match command {
                Command::Add { pid } => {
                    let event = match self.add(pid) {
                        Ok(()) => Event::Added { pid },
                        Err(error) => Event::Failed(error),
                    };
                    self.say(&event)?;
                }
                Command::Launch { arguments, environment } => self.launch(arguments, environment)?,
                Command::Start(options) => self.start(options)?,
                Command::Progress => {
                    let samples = self.subjects.iter().map(|subject| subject.stats.samples).sum();
                    let p99 = self.subjects.iter().map(|subject| subject.stats.pause.quantile(0.99)).max();
                    self.say(&Event::Progress { samples, pause_p99_ns: p99.unwrap_or(0) })?;
                }
                Command::Stop if self.options.is_some() => self.finish()?,
                Command::Stop => {}
            }
        }
        Ok(true)
    }

    fn add(&mut self, pid: u32) -> Result<(), Error> {
        linux::check_not_traced(pid)?;
        let mut subject = Subject::new(Process::open(pid)?, false);
        let age = || {
            let start = subject.process.start_time * (1_000_000_000 / 100);
            sys::boottime_ns().saturating_sub(start)
        };
        let patience = sys::monotonic_ns() + STARTUP_NS.saturating_sub(age());
        while !subject.open_runtime()? {
            if sys::monotonic_ns() >= patience {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("process {pid} ({}) is not a Python process", subject.process.name),
                    "only CPython 3.8 to 3.14 can be profiled for now; see `remoteprof modules PID` for what it maps",
                ));
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        self.subjects.push(subject);
        Ok(())
    }

    fn launch(&mut self, arguments: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) -> io::Result<()> {
        let name = arguments.first().map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or_default().to_string();
        match launch::launch(arguments, environment, self.restore) {
            Ok(held) => {
                let pid = held.pid;
                self.subjects.push(Subject::new(Process::launched(pid, name), true));
                (self.held, self.command_pid) = (Some(held), Some(pid));
                self.say(&Event::Added { pid })
            }
            Err(error) => self.say(&Event::Failed(Error::new(
                ErrorKind::Failed,
                format!("cannot start a process: {error}"),
                "check the limits on processes and memory (ulimit -a)",
            ))),
        }
    }

    fn start(&mut self, options: Options) -> io::Result<()> {
        if let Some(held) = self.held.take()
            && let Err(error) = held.release()
        {
            let event = Event::NotExecuted { errno: error.raw_os_error().unwrap_or(0), message: error.to_string() };
            return self.say(&event);
        }
        let now = sys::monotonic_ns();
        self.clock = Clock::new(now, options.rate, now ^ u64::from(std::process::id()));
        self.pace = Pace::new(now, options.rate);
        self.end = if options.duration_ns == 0 { u64::MAX } else { now.saturating_add(options.duration_ns) };
        for subject in &mut self.subjects {
            subject.start(now, options.idle);
        }
        self.options = Some(options);
        Ok(())
    }

    fn round(&mut self, now: u64) -> io::Result<()> {
        let due = self.clock.take(now);
        let is_late = due.late as f64 > self.clock.period() / 2.0;
        self.queue.clear();
        for (index, subject) in self.subjects.iter_mut().enumerate() {
            if subject.ended {
                continue;
            }
            if due.missed > 0 {
                subject.miss(due.missed);
            }
            subject.stats.late_ticks += u64::from(is_late);
            subject.begin_round(now);
            let from = self.queue.len();
            self.queue.extend(subject.threads.keys().map(|&tid| (index, tid)));
            let mut keep = from;
            for at in from..self.queue.len() {
                let (_, tid) = self.queue[at];
                if subject.tick_thread(tid, now, &mut self.scratch) == Found::Running {
                    self.queue[keep] = (index, tid);
                    keep += 1;
                }
            }
            self.queue.truncate(keep);
        }
        self.forget_ended();
        if self.options.as_ref().is_some_and(|options| options.nonblocking) {
            for (index, tid) in std::mem::take(&mut self.queue) {
                self.read_running(index, tid);
            }
        } else {
            self.stop_running()?;
        }
        if let Some(rate) = self.pace.round(now, due.missed) {
            self.clock.change_rate(sys::monotonic_ns(), rate);
            let note = format!("the rate could not be kept and was lowered to {rate:.0} Hz");
            self.subjects.iter_mut().for_each(|subject| subject.note(note.clone()));
        }
        Ok(())
    }

    /// A thread that is no longer listed will not stop: it ended unseen, or took the leader's id in an exec.
    fn forget_ended(&mut self) {
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
    fn stop_running(&mut self) -> io::Result<()> {
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
    fn watch_late_stops(&mut self) -> io::Result<()> {
        let late = !self.flights.is_empty();
        if late != self.notified {
            self.notified = late;
            sys::notify_stops(late);
        }
        // One may have stopped before the signal was switched on.
        if late { self.reap() } else { Ok(()) }
    }

    fn interrupt(&mut self, subject: usize, tid: u32, attempts: u32) {
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
        subject.count(tid, stack, outcome, now, None, false);
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

    fn reap(&mut self) -> io::Result<()> {
        // CMD's figures are to be had for as long as it has not been reaped.
        for subject in self.subjects.iter_mut().filter(|subject| subject.launched) {
            subject.look_at_cpu();
        }
        while let Some((tid, change)) = ptrace::next_change() {
            self.changed(tid, change)?;
        }
        Ok(())
    }

    fn changed(&mut self, tid: u32, change: Change) -> io::Result<()> {
        let flight = self.flights.remove(&tid);
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
        self.scratch.snapshot.begin(Some(Instant::now() + Duration::from_nanos(max_pause)));
        let read = subject.copy(tid, &mut self.scratch);
        let ran = subject.threads.get_mut(&tid).and_then(thread::Thread::schedstat);
        let restarted = change == Change::Interrupted && ptrace::maybe_interrupted(tid) && ptrace::restart_syscall(tid);
        let _ = ptrace::detach(tid, signal);
        let now = sys::monotonic_ns();
        subject.stats.pause.add(now - if flight.on_core { flight.asked } else { reaped });
        subject.stats.syscalls_restarted += u64::from(restarted);
        if let Some(thread) = subject.threads.get_mut(&tid) {
            thread.in_flight = false;
            thread.rest = restarted;
        }
        let mut read = subject.settle(read, &mut self.scratch);
        if read == Err(ReadError::Corrupt(subject::TORN)) {
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
        subject.count(tid, stack, outcome, flight.asked, ran, holds_gil);
    }

    /// `--nonblocking`: a running thread is read twice, and kept if both reads are equal.
    fn read_running(&mut self, index: usize, tid: u32) {
        let now = sys::monotonic_ns();
        let subject = &mut self.subjects[index];
        self.scratch.snapshot.begin(None);
        let read = subject.copy(tid, &mut self.scratch);
        let mut read = subject.settle(read, &mut self.scratch);
        if read.is_ok() {
            let first = self.scratch.stack.frames.clone();
            self.scratch.snapshot.begin(None);
            let second = subject.copy(tid, &mut self.scratch);
            read = subject.settle(second, &mut self.scratch);
            if read.is_ok() && self.scratch.stack.frames != first {
                read = Err(ReadError::Corrupt("moved while read"));
            }
        }
        let ran = subject.threads.get_mut(&tid).and_then(thread::Thread::schedstat);
        let (stack, outcome) = subject.resolve(read, &mut self.scratch);
        let holds_gil = self.scratch.stack.holds_gil;
        subject.count(tid, stack, outcome, now, ran, holds_gil);
    }

    fn command_ended(&mut self, status: i32) -> io::Result<()> {
        let pid = self.command_pid.take().unwrap_or(0);
        for subject in self.subjects.iter_mut().filter(|subject| subject.launched) {
            let tids: Vec<u32> = subject.threads.keys().copied().collect();
            tids.into_iter().for_each(|tid| subject.end_thread(tid));
            subject.ended = true;
        }
        self.say(&Event::Exited { pid, status })
    }

    /// Ends sampling and hands every target's batch over.
    fn finish(&mut self) -> io::Result<()> {
        let deadline = sys::monotonic_ns() + LAST_STOPS_NS;
        self.watch_late_stops()?;
        while !self.flights.is_empty() {
            let now = sys::monotonic_ns();
            if now >= deadline {
                break;
            }
            let [signalled] = sys::wait_readable([self.signals.as_raw_fd()], Some(deadline - now));
            if signalled {
                sys::drain_signals(&self.signals);
            }
            self.reap()?;
        }
        let rate = self.pace.rate();
        self.options = None;
        self.flights.clear();
        self.on_core = 0;
        let now = sys::monotonic_ns();
        for mut subject in std::mem::take(&mut self.subjects) {
            if subject.ended && !subject.launched {
                self.say(&Event::Exited { pid: subject.process.pid, status: -1 })?;
            }
            subject.stats.final_rate_hz = rate;
            let batch = subject.finish(now);
            self.say(&Event::Batch(Box::new(batch)))?;
        }
        self.say(&Event::Finished)
    }
}
