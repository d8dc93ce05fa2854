//! The loop of the sampler process on Windows: tick → suspend one thread → copy → resume → read → count.
//!
//! What is known of processes, threads and stacks is the same code as elsewhere (`subject`); only who is asked to hold a
//! thread still differs.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, ReadError};
use crate::protocol::{self, Command, Event, Options};
use crate::tables::State;
use crate::target::os::job::Job;
use crate::target::os::launch::Held;
use crate::target::os::{Process, held, launcher};
use crate::target::sys;
use crate::target::thread::Look;

#[path = "end_windows.rs"]
mod end;
#[path = "follow_windows.rs"]
mod follow;
mod known;
pub mod long_sleep;
pub mod pace;
mod pattern;
mod shown;
pub mod subject;
pub mod thread;
#[path = "tree_windows.rs"]
mod tree;
pub mod watchdog;

use pace::Pace;
pub use pattern::pattern;
use subject::{Entry, NOT_COPIED, Sample, Scratch, Subject, TORN, Walked};
use thread::Asleep;

/// The longest that the work on one thread, or on what concerns a whole process, may take: who is suspended is waited
/// for, however crowded the cores are.
const LONGEST_NS: u64 = 30_000_000_000;
/// Handles that the threads of all targets may keep open.
const MAX_HANDLES: usize = 1 << 16;
/// How long a young process is given to become a Python.
const STARTUP_NS: u64 = 1_000_000_000;
/// Attempts at a stack whose frame chain is in the middle of a change.
const MAX_ATTEMPTS: u64 = 6;
/// How long a thread runs on before such a stack is taken again; longer after each attempt.
const RUN_ON_NS: u64 = 20_000;
/// Longest wait for a command, so that time is looked at now and then.
const MAX_WAIT_NS: u64 = 1_000_000_000;

/// How many handles the threads of all targets may keep open.
pub fn descriptor_budget() -> usize {
    MAX_HANDLES
}

/// What comes from the supervisor.
type Input = Receiver<io::Result<Command>>;

/// The sampler process.
struct Sampler<W> {
    output: W,
    input: Input,
    subjects: Vec<Subject>,
    options: Option<Options>,
    clock: Clock,
    pace: Pace,
    end: u64,
    queue: Vec<(usize, u32)>,
    scratch: Scratch,
    /// CMD, until it may run.
    held: Option<Held>,
    /// The job that it is in, until its tree is followed.
    job: Option<Job>,
    following: Option<follow::Following>,
    /// Samples and longest pause of windows that were handed over.
    delivered: (u64, u64),
    /// Whether there was a runtime in one of the processes that were handed over.
    has_runtime: bool,
}

/// Serves the supervisor at the other ends of the pipes until they are closed. `record`: the file in which the supervisor
/// finds what it has to resume if this process is ended.
pub fn serve(input: impl Read + Send + 'static, output: impl Write, record: &Path) -> io::Result<()> {
    sys::become_sampler();
    held::open(record)?;
    watchdog::start(LONGEST_NS);
    Sampler {
        output,
        input: receive(input),
        subjects: Vec::new(),
        options: None,
        clock: Clock::new(0, 1.0, 1),
        pace: Pace::default(),
        end: u64::MAX,
        queue: Vec::new(),
        scratch: Scratch::default(),
        held: None,
        job: None,
        following: None,
        delivered: (0, 0),
        has_runtime: false,
    }
    .run()
    .or_else(|error| match error.kind() {
        // The supervisor has gone: there is nobody left to tell.
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

/// Reads commands in a thread of its own: Windows has no wait for a pipe and a time at once.
fn receive(mut input: impl Read + Send + 'static) -> Input {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = Vec::new();
        loop {
            let more = protocol::fill(&mut input, &mut buffer);
            loop {
                match protocol::decode(&mut buffer) {
                    Ok(None) => break,
                    Ok(Some(command)) => {
                        if sender.send(Ok(command)).is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        let _ = sender.send(Err(error));
                        return;
                    }
                }
            }
            if !more.unwrap_or(false) {
                return;
            }
        }
    });
    receiver
}

fn not_python(pid: u32, name: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("process {pid} ({name}) is not a Python process"),
        "without native frames only CPython 3.9 to 3.14 can be profiled: leave out --no-native and --nonblocking",
    )
}

impl<W: Write> Sampler<W> {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let wait = match self.options {
                Some(_) => self.clock.due().min(self.end).min(self.next_look()).saturating_sub(sys::monotonic_ns()),
                None => MAX_WAIT_NS,
            };
            match self.input.recv_timeout(Duration::from_nanos(wait.min(MAX_WAIT_NS))) {
                Ok(command) => self.command(command?)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if self.options.is_some() {
                self.work()?;
            }
        }
    }

    fn say(&mut self, event: &Event) -> io::Result<()> {
        protocol::send(&mut self.output, event)?;
        self.output.flush()
    }

    fn command(&mut self, command: Command) -> io::Result<()> {
        match command {
            Command::Add { pid, native } => {
                let event = match self.add(pid, native) {
                    Ok(pid) => Event::Added { pid },
                    Err(error) => Event::Failed(error),
                };
                self.say(&event)
            }
            Command::Hold { pid } => {
                let event = self.hold(pid).map_or_else(Event::Failed, |()| Event::Added { pid });
                self.say(&event)
            }
            Command::Start(options) => self.start(options),
            Command::Progress => {
                let samples: u64 = self.subjects.iter_mut().map(Subject::samples).sum();
                let p99 = self.subjects.iter().map(|subject| subject.stats.pause.quantile(0.99)).max();
                let (before, longest) = self.delivered;
                let pause_p99_ns = p99.unwrap_or(0).max(longest);
                self.say(&Event::Progress { samples: samples + before, pause_p99_ns })
            }
            Command::Cut => self.cut(),
            Command::Stop if self.options.is_some() => self.finish(),
            Command::Stop => Ok(()),
        }
    }

    /// Gives the pid of what was opened: of a launcher, that is the interpreter that it has started.
    fn add(&mut self, pid: u32, native: bool) -> Result<u32, Error> {
        let (process, note) = launcher::interpreter(Process::open(pid)?)?;
        let pid = process.pid;
        let mut subject = Subject::new(process, false);
        note.into_iter().for_each(|note| subject.note(note));
        let patience = sys::monotonic_ns() + STARTUP_NS;
        // A process that is being created shows no modules yet, and refuses reads.
        loop {
            match subject.open_runtime() {
                Ok(true) => break,
                Err(error) if native => {
                    subject.note(error.message);
                    break;
                }
                Err(error) => return Err(error),
                Ok(false) => {}
            }
            // A runtime that is not there yet is looked for while sampling; the list of modules must be.
            if native && subject.process.mappings().is_ok_and(|modules| !modules.is_empty()) {
                break;
            }
            let young = sys::process_start_ns(pid).is_some_and(|start| sys::realtime_ns() < start + STARTUP_NS);
            if !young || sys::monotonic_ns() > patience {
                return Err(match subject.process.alive() {
                    true => not_python(pid, &subject.process.name),
                    false => Error::new(ErrorKind::NotFound, format!("process {pid} has ended"), "choose another"),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.subjects.push(subject);
        Ok(pid)
    }

    fn start(&mut self, options: Options) -> io::Result<()> {
        let (now, unix) = (sys::monotonic_ns(), sys::realtime_ns());
        self.follow_from(&options, now, unix);
        self.clock = Clock::new(now, options.rate, now ^ u64::from(std::process::id()));
        self.pace = Pace::new(now, options.rate);
        self.end = if options.duration_ns == 0 { u64::MAX } else { now.saturating_add(options.duration_ns) };
        for subject in &mut self.subjects {
            subject.start(now, &options, Entry { born: subject.launched, unix });
        }
        self.options = Some(options);
        if let Some(Err(error)) = self.held.take().map(Held::release) {
            let message = format!("the program cannot be let go: {error}");
            return self.say(&Event::Failed(Error::new(ErrorKind::Failed, message, "try again")));
        }
        Ok(())
    }

    fn work(&mut self) -> io::Result<()> {
        let now = sys::monotonic_ns();
        let last_tick = self.options.as_ref().map_or(0, |options| options.max_ticks);
        if now >= self.end || self.subjects.iter().filter(|subject| subject.root).all(|subject| subject.ended) {
            return self.finish();
        }
        watchdog::busy(now);
        if now >= self.next_look() {
            self.look_at_tree(now)?;
        }
        if now >= self.clock.due() {
            self.round(sys::monotonic_ns());
        }
        watchdog::idle();
        if last_tick > 0 && self.subjects.iter().all(|subject| subject.ended || subject.stats.ticks >= last_tick) {
            self.finish()?;
        }
        Ok(())
    }

    fn round(&mut self, now: u64) {
        let due = self.clock.take(now);
        let is_late = due.late as f64 > self.clock.period() / 2.0;
        self.queue.clear();
        let crowd = self.subjects.len() as u64;
        for (index, subject) in self.subjects.iter_mut().enumerate() {
            if subject.ended {
                continue;
            }
            if due.missed > 0 {
                subject.miss(due.missed);
            }
            subject.stats.late_ticks += u64::from(is_late);
            subject.begin_round(now, crowd, u64::MAX);
            subject.tick_threads(index, now, &mut self.queue, &mut self.scratch);
        }
        let nonblocking = self.options.as_ref().is_some_and(|options| options.nonblocking);
        let queue = std::mem::take(&mut self.queue);
        for &(index, tid) in &queue {
            watchdog::busy(sys::monotonic_ns());
            if nonblocking {
                self.subjects[index].read_running(tid, &mut self.scratch);
            } else {
                self.sample(index, tid);
            }
        }
        self.queue = queue;
        self.pace.held(now, due.missed, &mut self.clock, &mut self.subjects);
    }

    /// Suspends a thread, copies its stack, lets it go on, and counts what was copied.
    fn sample(&mut self, index: usize, tid: u32) {
        let (max_pause, idle) =
            self.options.as_ref().map_or((1_000_000, true), |options| (options.max_pause_ns, options.idle));
        let subject = &mut self.subjects[index];
        let mut attempt = 1;
        loop {
            let asked = sys::monotonic_ns();
            self.scratch.snapshot.begin(Some(Duration::from_nanos(max_pause)));
            (self.scratch.start, self.scratch.syscall) = (None, -1);
            let native = subject.native();
            let Some(thread) = subject.threads.get_mut(&tid) else { return };
            let mark = thread.cpu_mark;
            let blocked = matches!(thread.files.look(), Look::Blocked { .. });
            let asleep = if blocked { thread.schedstat() } else { None };
            if native && thread.stack.base == 0 && attempt == 1 {
                thread.stack.base = thread.files.stack_base(&subject.process).unwrap_or(0);
            }
            let Ok(suspended) = thread.files.suspend() else {
                subject.stats.gone += 1;
                subject.end_thread(tid);
                return;
            };
            self.scratch.start = native.then_some(suspended.registers);
            let read = subject.copy(tid, &mut self.scratch);
            let busy = read.is_ok() && attempt < MAX_ATTEMPTS && subject.changes_objects(&self.scratch);
            self.scratch.locals = None;
            if read.is_ok() && !busy {
                subject.read_locals(&mut self.scratch, true);
            }
            let ran = subject.threads.get_mut(&tid).and_then(thread::Thread::schedstat);
            drop(suspended);
            let now = sys::monotonic_ns();
            subject.stats.pause.add(now - asked);
            let worked = ran.is_some_and(|line| line.run_ns > mark);
            let mut read = subject.settle(tid, read, &mut self.scratch);
            let torn = read == Err(ReadError::Corrupt(TORN));
            let more = read.is_ok() && self.scratch.walked == Some(Walked::Again);
            subject.stats.torn += u64::from(torn);
            if (torn || more || busy) && attempt < MAX_ATTEMPTS {
                // It would be held before its next instruction if it were suspended at once.
                let until = now + attempt * RUN_ON_NS;
                while sys::monotonic_ns() < until {
                    std::hint::spin_loop();
                }
                attempt += 1;
                continue;
            }
            if more {
                self.scratch.walked = Some(Walked::Cut(NOT_COPIED));
            }
            if torn {
                // What was walked is right as far as it goes.
                self.scratch.stack.end = crate::runtime::cpython::End::Truncated;
                read = Ok(());
            }
            if !idle && !worked {
                // Whether it sleeps is not told (wine), but it has not worked for a step of the clock.
                subject.stats.thread_ticks -= 1;
                if let Some(thread) = subject.threads.get_mut(&tid) {
                    thread.last_sample = asked;
                }
                return;
            }
            let (stack, outcome) = subject.resolve(read, &mut self.scratch);
            subject.keep_locals(tid, &mut self.scratch);
            let (holds_gil, labels) = (self.scratch.stack.holds_gil, subject.labels(&self.scratch));
            if let Some(line) = asleep.filter(|line| ran == Some(*line)) {
                // Until it runs it is not suspended again.
                let state = State::Sleeping;
                let asleep = Asleep { line, stack, outcome, holds_gil, state, labels, since: asked, call: -1 };
                if let Some(thread) = subject.threads.get_mut(&tid) {
                    thread.asleep = Some(asleep);
                }
                let ran = None;
                subject.count(tid, Sample { stack, outcome, now: asked, since: asked, ran, holds_gil, state, labels });
                return;
            }
            // One that did not work since its last sample may wait, or work for less than a step of the clock.
            let state = if worked { State::Running } else { State::Unknown };
            subject.count(tid, Sample { stack, outcome, now: asked, since: asked, ran, holds_gil, state, labels });
            return;
        }
    }
}
