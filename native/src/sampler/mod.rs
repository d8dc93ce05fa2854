//! The loop of the sampler process: tick → interrupt the running → reap → copy → resume → read → count.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::clock::Clock;
use crate::protocol::{self, Command, Event, Options};
use crate::runtime::go::buckets;
use crate::target::launch::{self, Held, Restore};
use crate::target::refusal;
use crate::target::seize::Alarm;
use crate::target::sys;

mod begin;
mod births;
mod census;
mod cut;
mod follow;
mod goroutines;
mod known;
pub mod long_sleep;
mod node;
pub mod pace;
mod pattern;
mod shown;
mod stops;
pub mod subject;
pub mod thread;
mod tree;
pub mod watchdog;

use begin::not_python;
use pace::Pace;
pub use pattern::pattern;
use subject::{Scratch, Subject};

/// The longest that the work on one thread, or on what concerns a whole process, may take.
const LONGEST_NS: u64 = 3_000_000_000;
/// How long stops that are still under way are waited for at the end.
const LAST_STOPS_NS: u64 = 100_000_000;
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
    /// Threads that had not stopped yet when the last recording ended, or are ending: they are ours until they do.
    strays: FxHashSet<u32>,
    on_core: usize,
    /// What ends our waiting for an exec.
    alarm: Alarm,
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
    watchdog::start(LONGEST_NS);
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
        alarm: Alarm::of_this_thread(),
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

impl Sampler {
    fn run(&mut self) -> io::Result<()> {
        loop {
            self.alarm.clear();
            let now = sys::monotonic_ns();
            let (births, hearing) = self.hearing(now);
            let timeout = self.options.is_some().then(|| {
                let next = self.clock.due().min(self.end).min(self.next_look()).min(hearing);
                next.saturating_sub(now)
            });
            let descriptors = [self.signals.as_raw_fd(), self.link.as_raw_fd(), births];
            let [signalled, commanded, told] = sys::wait_readable(descriptors, timeout);
            if signalled {
                sys::drain_signals(&self.signals);
                watchdog::busy(sys::monotonic_ns());
                self.reap()?;
                watchdog::idle();
            }
            if commanded && !self.commands()? {
                return Ok(());
            }
            if self.options.is_some() {
                if told {
                    watchdog::busy(sys::monotonic_ns());
                    self.hear(sys::monotonic_ns())?;
                    watchdog::idle();
                }
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
                Command::Launch { arguments, environment, stops } => match refusal::check_filter() {
                    Err(error) if stops => self.say(&Event::Failed(error))?,
                    _ => self.launch(arguments, environment)?,
                },
                Command::Start(options) => self.start(options)?,
                Command::Progress => {
                    let samples: u64 = self.subjects.iter_mut().map(Subject::samples).sum();
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
                Command::Buckets { pid, kind, all } => {
                    let found = buckets::read(pid, kind, all);
                    self.say(&found.map_or_else(Event::Failed, |found| Event::Buckets(Box::new(found))))?;
                }
            }
        }
        Ok(true)
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
            subject.tick_threads(index, now, &mut self.queue, &mut self.scratch);
            if subject.executing {
                self.queue.drain(from..).for_each(|(_, tid)| subject.carry(tid));
            }
        }
        self.forget_ended()?;
        if self.options.as_ref().is_some_and(|options| options.nonblocking) {
            for (index, tid) in std::mem::take(&mut self.queue) {
                self.subjects[index].read_running(tid, &mut self.scratch);
            }
        } else {
            self.stop_running()?;
        }
        self.pace.held(now, due.missed, &mut self.clock, &mut self.subjects);
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
        watchdog::idle();
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
