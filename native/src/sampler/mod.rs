//! The loop of the sampler process: tick → interrupt the running → reap → copy → resume → read → count.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::protocol::{self, Command, Event, Options};
use crate::target::launch::{self, Held, Restore};
use crate::target::linux::{self, Process};
use crate::target::procfs;
use crate::target::sys;

mod census;
mod cut;
mod follow;
mod goroutines;
mod known;
mod node;
pub mod pace;
mod stops;
pub mod subject;
pub mod thread;
mod tree;
pub mod watchdog;

pub use follow::pattern;
use pace::Pace;
use subject::{Entry, Found, Scratch, Subject};

/// How long stops that are still under way are waited for at the end.
const LAST_STOPS_NS: u64 = 100_000_000;
/// How long a young process is given to become a Python.
const STARTUP_NS: u64 = 1_000_000_000;
/// Looking at the programs of new processes may take one part in this many of a round's time; the first always may.
const OPEN_SHARE: f64 = 2.0;
/// Descriptors for other things than threads.
const OTHER_DESCRIPTORS: u64 = 64;

static DESCRIPTOR_BUDGET: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(512);

/// How many descriptors the threads of all targets may keep open.
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

/// What descendants that were handed over add to the answers about the whole.
#[derive(Debug, Default)]
struct Delivered {
    samples: u64,
    pause_p99: u64,
    runtime: bool,
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
    /// Threads that had not stopped yet when the last recording ended: they are ours until they do.
    strays: FxHashSet<u32>,
    on_core: usize,
    notified: bool,
    queue: Vec<(usize, u32)>,
    scratch: Scratch,
    following: Option<follow::Following>,
    delivered: Delivered,
    outbox: Vec<u8>,
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
        strays: FxHashSet::default(),
        on_core: 0,
        notified: false,
        queue: Vec::new(),
        scratch: Scratch::default(),
        following: None,
        delivered: Delivered::default(),
        outbox: Vec::new(),
    }
    .run()
    .or_else(|error| match error.kind() {
        // The supervisor has gone: there is nobody left to tell.
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

fn not_python(pid: u32, name: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("process {pid} ({name}) is not a Python process"),
        "without native frames only CPython 3.8 to 3.14 can be profiled: leave out --no-native and --nonblocking",
    )
}

impl Sampler {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let now = sys::monotonic_ns();
            let timeout = self.options.is_some().then(|| {
                let next = self.clock.due().min(self.end).min(self.next_look());
                next.saturating_sub(now)
            });
            let [signalled, commanded] = sys::wait_readable([self.signals.as_raw_fd(), self.link.as_raw_fd()], timeout);
            if signalled {
                sys::drain_signals(&self.signals);
                self.reap()?;
            }
            if commanded && !self.commands()? {
                return Ok(());
            }
            if self.options.is_some() {
                self.work()?;
            }
        }
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
            self.round(sys::monotonic_ns())?;
        }
        self.retire(sys::monotonic_ns())?;
        watchdog::idle();
        self.drain()?;
        if last_tick > 0 && self.subjects.iter().all(|subject| subject.ended || subject.stats.ticks >= last_tick) {
            self.finish()?;
        }
        Ok(())
    }

    fn say(&mut self, event: &Event) -> io::Result<()> {
        self.flush()?;
        protocol::send(&mut self.link, event)
    }

    fn commands(&mut self) -> io::Result<bool> {
        if !protocol::fill(&mut self.link, &mut self.input)? {
            return Ok(false);
        }
        while let Some(command) = protocol::decode(&mut self.input)? {
            match command {
                Command::Add { pid, native } => {
                    let event = match self.add(pid, native) {
                        Ok(()) => Event::Added { pid },
                        Err(error) => Event::Failed(error),
                    };
                    self.say(&event)?;
                }
                Command::Launch { arguments, environment } => self.launch(arguments, environment)?,
                Command::Start(options) => self.start(options)?,
                Command::Progress => {
                    let samples: u64 = self.subjects.iter().map(|subject| subject.stats.samples).sum();
                    let p99 = self.subjects.iter().map(|subject| subject.stats.pause.quantile(0.99)).max();
                    let (before, longest) = (self.delivered.samples, self.delivered.pause_p99);
                    let pause_p99_ns = p99.unwrap_or(0).max(longest);
                    self.post(&Event::Progress { samples: samples + before, pause_p99_ns })?;
                }
                Command::Cut => self.cut()?,
                Command::Stop if self.options.is_some() => self.finish()?,
                Command::Stop => {}
                Command::Goroutines { pid, system } => {
                    let event = self.goroutines(pid, system).unwrap_or_else(Event::Failed);
                    self.say(&event)?;
                }
            }
        }
        Ok(true)
    }

    fn add(&mut self, pid: u32, native: bool) -> Result<(), Error> {
        linux::check_not_traced(pid)?;
        let mut subject = Subject::new(Process::open(pid)?, false);
        let age = || {
            let start = subject.process.start_time * (1_000_000_000 / 100);
            sys::boottime_ns().saturating_sub(start)
        };
        let patience = sys::monotonic_ns() + STARTUP_NS.saturating_sub(age());
        loop {
            match subject.open_runtime() {
                Ok(true) => break,
                // A runtime that is not there yet is looked for while sampling.
                Ok(false) if native => break,
                Err(error) if native => {
                    subject.note(error.message);
                    break;
                }
                Ok(false) if sys::monotonic_ns() < patience => std::thread::sleep(Duration::from_millis(5)),
                Ok(false) => return Err(not_python(pid, &subject.process.name)),
                Err(error) => return Err(error),
            }
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
        if options.children {
            // Before CMD can have children.
            self.follow_from(&options.children_match);
        }
        if let Some(held) = self.held.take()
            && let Err(error) = held.release()
        {
            self.following = None;
            let event = Event::NotExecuted { errno: error.raw_os_error().unwrap_or(0), message: error.to_string() };
            return self.say(&event);
        }
        let (now, unix) = (sys::monotonic_ns(), sys::realtime_ns());
        if let Some(following) = &mut self.following {
            following.begin(now, unix);
        }
        self.clock = Clock::new(now, options.rate, now ^ u64::from(std::process::id()));
        self.pace = Pace::new(now, options.rate);
        self.end = if options.duration_ns == 0 { u64::MAX } else { now.saturating_add(options.duration_ns) };
        for subject in &mut self.subjects {
            let born = subject.launched;
            subject.start(now, &options, Entry { born, unix });
        }
        self.strays.retain(|&tid| procfs::read_stat(tid).is_ok());
        self.options = Some(options);
        Ok(())
    }

    fn round(&mut self, now: u64) -> io::Result<()> {
        let due = self.clock.take(now);
        let is_late = due.late as f64 > self.clock.period() / 2.0;
        self.queue.clear();
        let crowd = self.subjects.len() as u64;
        let open_until = sys::thread_cpu_ns() + (self.clock.period() / OPEN_SHARE) as u64;
        for (index, subject) in self.subjects.iter_mut().enumerate() {
            if subject.ended {
                continue;
            }
            if due.missed > 0 {
                subject.miss(due.missed);
            }
            subject.stats.late_ticks += u64::from(is_late);
            subject.begin_round(now, crowd, open_until);
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
        self.strays.extend(self.flights.drain().map(|(tid, _)| tid));
        self.on_core = 0;
        let now = sys::monotonic_ns();
        let shown = self.leave_tree(now)?;
        let others = self.subjects.iter().any(|subject| !subject.runtime_name().is_empty());
        let runtime = std::mem::take(&mut self.delivered).runtime || others;
        for (mut subject, shown) in std::mem::take(&mut self.subjects).into_iter().zip(shown) {
            if subject.root && subject.ended && !subject.launched {
                self.say(&Event::Exited { pid: subject.process.pid, status: -1 })?;
            }
            subject.stats.final_rate_hz = rate;
            if subject.launched && !subject.native() && !runtime {
                self.say(&Event::Failed(not_python(subject.process.pid, &subject.process.name)))?;
            }
            let batch = subject.finish(now, &shown);
            self.say(&Event::Batch(Box::new(batch)))?;
        }
        self.say(&Event::Finished)
    }
}
