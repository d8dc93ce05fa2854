//! One process under recording: its threads, its runtime, its tables and figures.

mod copying;
mod evaluation;
#[cfg_attr(windows, path = "golang_windows.rs")]
mod golang;
mod locals;
mod lost;
mod mapped;
mod native;
mod program;
mod stacks;
mod threads;
mod tick;
mod window;

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::known::KnownStacks;
use super::long_sleep::{Turn, Watch};
use super::thread::{Outcome, Thread, may_keep};
use crate::protocol::Options;
use crate::runtime::cpython::CPython;
use crate::stats::{Cache, Stats};
use crate::tables::{RowKey, StackId, State, Tables, Values};
use crate::target::os::{Image, Process, TaskFolder};
use crate::target::sys;
use crate::target::thread::Schedstat;

/// Shortest time between two looks at the number of threads.
const MIN_SCAN_NS: u64 = 10_000_000;
/// How often it is checked that the process still runs the same program, and that the runtime's threads are known.
const CHECK_NS: u64 = 100_000_000;
/// How long a process is young.
const YOUNG_NS: u64 = 100_000_000;
/// Each time that there are so many more processes, each is checked so much less often.
const CROWD: u64 = 16;

use golang::Golang;
use native::Native;
pub use native::{NOT_COPIED, Walked};
use stacks::PythonFrames;
pub use stacks::{Scratch, TORN};

/// A stack that a thread was seen in.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The stack.
    pub stack: StackId,
    /// What it counts as.
    pub outcome: Outcome,
    /// When, nanoseconds.
    pub now: u64,
    /// When the thread was seen first in this stack without having run since, nanoseconds.
    pub since: u64,
    /// The scheduler's figures, if the thread was found running.
    pub ran: Option<Schedstat>,
    /// Whether it held the GIL.
    pub holds_gil: bool,
    /// What it was doing.
    pub state: State,
    /// Its labels.
    pub labels: u32,
}

impl Sample {
    fn unreadable(stack: StackId, now: u64) -> Self {
        let outcome = Outcome::Unreadable;
        Sample { stack, outcome, now, since: now, ran: None, holds_gil: false, state: State::Unknown, labels: 0 }
    }
}

/// A process under recording.
#[derive(Debug)]
pub struct Subject {
    /// The process.
    pub process: Process,
    /// Whether CMD is ours to wait for.
    pub launched: bool,
    /// Whether it was asked for, not found below one that was.
    pub root: bool,
    /// Whether it has ended, or is not to be sampled any more.
    pub ended: bool,
    /// Whether it was only left: it goes on.
    pub left: bool,
    /// Whether it was found in an exec in this round.
    pub executing: bool,
    /// Until when it is left alone because of one, nanoseconds.
    pub left_until: u64,
    /// For how long that was, nanoseconds.
    pub left_alone: u64,
    /// Whether its program is still to be looked at, which takes a while: until then its ticks are carried.
    pub unopened: bool,
    /// Its threads.
    pub threads: FxHashMap<u32, Thread>,
    /// Which of them a tick looks at.
    turns: Vec<Turn>,
    /// When the last tick was, nanoseconds.
    last_tick: u64,
    /// Its figures.
    pub stats: Stats,
    /// Whether ticks are counted.
    idle: bool,
    /// Whether each sample is kept with its time.
    times: bool,
    image: Option<Image>,
    native: Option<Native>,
    golang: Golang,
    runtime: Option<CPython>,
    runtime_name: String,
    runtime_attempts: u32,
    runtime_maps: usize,
    next_open: u64,
    open_wait: u64,
    next_look: u64,
    next_scan: u64,
    task_folder: Option<TaskFolder>,
    links: u64,
    next_check: u64,
    next_refresh: u64,
    rows: Vec<(u32, String)>,
    /// Threads that have no row of their own.
    folded_threads: u64,
    row_ids: FxHashMap<(u32, String), u32>,
    tables: Tables,
    python: PythonFrames,
    known: KnownStacks,
    locals: locals::ReadLocals,
    /// Stacks of sleeping threads: still good, or read.
    asleep: Cache,
    /// Whether threads that sleep for long are looked at in each tick.
    watch: Watch,
    notes: Vec<String>,
    /// Figures of the caches at the end of the last window.
    caches_before: Vec<(String, Cache)>,
    /// Windows handed over while it went on.
    pub windows: u64,
    cpu_start: u64,
    cpu_last: u64,
    /// What the process used in the windows before, less what their samples have, nanoseconds.
    cpu_owed: i64,
    started: u64,
    started_unix: u64,
    /// Whether all its CPU time is ours to count.
    born: bool,
    /// Threads that it was ever seen to have.
    seen_threads: u64,
}

/// How a recording looks upon a process that it begins to sample.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Whether the process began with, or during, the recording: what it used before we saw it counts.
    pub born: bool,
    /// Unix time, nanoseconds.
    pub unix: u64,
}

impl Subject {
    /// A process that has just been opened.
    pub fn new(mut process: Process, launched: bool) -> Self {
        let image = if launched { None } else { process.image() };
        if image.is_some() {
            // It may have begun another program since it was opened: what is known of it must not be older than its image.
            process.reopen();
        }
        Subject {
            image,
            process,
            launched,
            root: true,
            ended: false,
            left: false,
            executing: false,
            left_until: 0,
            left_alone: 0,
            unopened: false,
            threads: FxHashMap::default(),
            turns: Vec::new(),
            last_tick: 0,
            stats: Stats { attached_ns: sys::monotonic_ns(), ..Stats::default() },
            idle: true,
            times: false,
            native: None,
            golang: Golang::default(),
            runtime: None,
            runtime_name: String::new(),
            runtime_attempts: 0,
            runtime_maps: 0,
            next_open: 0,
            open_wait: program::OPEN_WAIT_NS.0,
            next_look: 0,
            next_scan: 0,
            task_folder: None,
            links: 0,
            next_check: 0,
            next_refresh: 0,
            rows: Vec::new(),
            folded_threads: 0,
            row_ids: FxHashMap::default(),
            tables: Tables::default(),
            python: PythonFrames::default(),
            known: KnownStacks::default(),
            locals: locals::ReadLocals::default(),
            asleep: Cache::default(),
            watch: Watch::default(),
            notes: Vec::new(),
            caches_before: Vec::new(),
            windows: 0,
            cpu_start: 0,
            cpu_last: 0,
            cpu_owed: 0,
            started: 0,
            started_unix: 0,
            born: launched,
            seen_threads: 0,
        }
    }

    /// Sampling begins: what the process used before is not ours to count, unless it was born meanwhile.
    pub fn start(&mut self, now: u64, options: &Options, entry: Entry) {
        (self.idle, self.times) = (options.idle, options.times);
        self.born = entry.born;
        self.locals.pause = (options.locals_pause_ns > 0).then(|| Duration::from_nanos(options.locals_pause_ns));
        // A running thread has no registers to go by.
        self.native = (options.native && !options.nonblocking).then(|| Native::new(options.max_stack));
        if !self.born && self.native.is_some() {
            let mappings = self.process.mappings().unwrap_or_default();
            self.look_for_go(now, Some(&mappings));
            self.renew_native(mappings);
        }
        self.started = now;
        self.started_unix = entry.unix;
        self.cpu_start = if self.born { 0 } else { self.process_cpu() };
        self.cpu_last = self.cpu_start;
        self.task_folder = may_keep().then(|| TaskFolder::open(self.process.pid).ok()).flatten();
        self.scan(now, true);
    }

    /// Whether native frames are read.
    pub fn native(&self) -> bool {
        self.native.is_some()
    }

    /// Such as `CPython 3.12.1`, or nothing.
    pub fn runtime_name(&self) -> &str {
        &self.runtime_name
    }

    /// The newest reading of its CPU time, nanoseconds.
    pub fn cpu(&self) -> u64 {
        self.cpu_last
    }

    fn process_cpu(&self) -> u64 {
        // Never less than before: wine forgets threads that have ended.
        sys::process_cpu_ns(self.process.pid).unwrap_or(0).max(self.cpu_last)
    }

    /// The work of a round that concerns the whole process: new threads, a new program, the runtime. `crowd`: how many
    /// processes there are. `open_until`: the CPU time of ours at which no more programs are looked at in this round.
    pub fn begin_round(&mut self, now: u64, crowd: u64, open_until: u64) {
        self.stats.ticks += 1;
        self.executing = now < self.left_until;
        if let Some(python) = &mut self.runtime {
            python.begin_round();
        }
        let opens =
            (self.unopened || (self.runtime.is_none() && now >= self.next_open)) && sys::thread_cpu_ns() < open_until;
        self.unopened &= !opens;
        if now >= self.next_check && !self.unopened {
            // A young process is likely to exec; many together may not cost more than some.
            let wait = if now - self.started < YOUNG_NS { MIN_SCAN_NS } else { CHECK_NS };
            self.next_check = now + wait * (1 + crowd / CROWD);
            self.check(now);
        }
        if now >= self.next_look {
            self.next_look = now + MIN_SCAN_NS;
            self.cpu_last = self.process_cpu();
            let links = self.task_folder.as_ref().map_or(0, TaskFolder::links);
            if links != self.links || now >= self.next_scan {
                self.links = links;
                self.scan(now, false);
            }
        }
        if opens && self.runtime.is_none() {
            self.retry_runtime(now);
        }
        if !self.unopened && sys::thread_cpu_ns() < open_until {
            self.look_for_go(now, None);
        }
    }

    /// Counts a stack of a thread.
    pub fn count(&mut self, tid: u32, sample: Sample) {
        self.count_ticks(tid, sample, 1);
    }

    /// The same, where it was that of so many ticks, the last of them at `sample.now`.
    fn count_ticks(&mut self, tid: u32, sample: Sample, ticks: u64) {
        let Sample { stack, outcome, now, since, ran, holds_gil, state, labels } = sample;
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let wall = now.saturating_sub(thread.last_sample);
        let mut values =
            Values { samples: ticks + thread.carried, cpu: 0, wall, gil: if holds_gil { wall } else { 0 } };
        if let Some(line) = ran {
            thread.cpu_seen = thread.cpu_seen.max(line.run_ns);
            values.cpu = thread.cpu_seen - thread.cpu_mark;
            thread.cpu_mark = thread.cpu_seen;
        }
        thread.last_sample = now;
        thread.carried = 0;
        let time = if self.times { self.started_unix + since.saturating_sub(self.started) } else { 0 };
        self.tables.count(RowKey { thread: thread.row, stack, state, time, labels }, values);
        let stats = &mut self.stats;
        stats.samples += ticks;
        stats.cpu_ns_sampled += values.cpu;
        match outcome {
            Outcome::Read { cut, unmatched } => {
                stats.unmatched += ticks * u64::from(unmatched);
                match cut {
                    None => stats.complete += ticks,
                    Some(reason) => {
                        stats.truncated += ticks;
                        stats.count_cut(reason, ticks);
                    }
                }
            }
            Outcome::Unreadable => stats.unreadable += ticks,
        }
        if stats.first_sample_ns == 0 {
            stats.first_sample_ns = sys::monotonic_ns();
        }
    }

    /// Rounds that were skipped.
    pub fn miss(&mut self, rounds: u64) {
        self.stats.ticks += rounds;
        self.stats.thread_ticks += rounds * self.threads.len() as u64;
        self.stats.missed_ticks += rounds * self.threads.len() as u64;
    }

    /// Something that the user should know; said once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Takes the CPU time of the process, and of its first thread, which keeps its figures until it is reaped.
    pub fn look_at_cpu(&mut self) {
        self.cpu_last = self.process_cpu();
        if let Some(thread) = self.threads.get_mut(&self.process.pid) {
            thread.schedstat();
        }
    }
}
