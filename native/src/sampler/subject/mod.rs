//! One process under recording: its threads, its runtime, its tables and figures.

mod native;
mod program;
mod stacks;

use rustc_hash::FxHashMap;

use super::known::KnownStacks;
use super::thread::{Outcome, Thread, may_keep};
use super::tree::Shown;
use crate::protocol::{Batch, Options};
use crate::runtime::cpython::CPython;
use crate::stats::{Cache, Stats};
use crate::tables::{StackId, State, Tables, Values};
use crate::target::linux::{Image, Process};
use crate::target::procfs::{self, Look, Schedstat, TaskFolder, ThreadFiles};
use crate::target::sys;
use crate::unwind::Registers;

/// Shortest time between two looks at the number of threads.
const MIN_SCAN_NS: u64 = 10_000_000;
/// Longest time between two looks at the list of threads: one can end as another begins.
const MAX_SCAN_NS: u64 = 100_000_000;
/// A look at the list of threads may take this share of our CPU time, but is not put off for longer than this.
const SCAN_SHARE: u64 = 1000;
const MAX_LOOK_NS: u64 = 1_000_000_000;
/// How often it is checked that the process still runs the same program, and that the runtime's threads are known.
const CHECK_NS: u64 = 100_000_000;
/// How long a process is young.
const YOUNG_NS: u64 = 100_000_000;
/// Each time that there are so many more processes, each is checked so much less often.
const CROWD: u64 = 16;

use native::Native;
pub use native::{NOT_COPIED, Walked};
use stacks::PythonFrames;
pub use stacks::{Scratch, TORN};

/// What a tick found a thread doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Dealt with.
    Done,
    /// It has to be stopped to be read.
    Running,
}

/// A stack that a thread was seen in.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The stack.
    pub stack: StackId,
    /// What it counts as.
    pub outcome: Outcome,
    /// When, nanoseconds.
    pub now: u64,
    /// The scheduler's figures, if the thread was found running.
    pub ran: Option<Schedstat>,
    /// Whether it held the GIL.
    pub holds_gil: bool,
    /// What it was doing.
    pub state: State,
}

impl Sample {
    fn unreadable(stack: StackId, now: u64) -> Self {
        let outcome = Outcome::Unreadable;
        Sample { stack, outcome, now, ran: None, holds_gil: false, state: State::Unknown }
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
    /// Whether its program is still to be looked at, which takes a while: until then its ticks are carried.
    pub unopened: bool,
    /// Its threads.
    pub threads: FxHashMap<u32, Thread>,
    /// Its figures.
    pub stats: Stats,
    /// Whether ticks are counted.
    idle: bool,
    image: Option<Image>,
    native: Option<Native>,
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
    rows: Vec<(u32, String)>,
    row_ids: FxHashMap<(u32, String), u32>,
    tables: Tables,
    python: PythonFrames,
    known: KnownStacks,
    /// Stacks of sleeping threads: still good, or read.
    asleep: Cache,
    notes: Vec<String>,
    cpu_start: u64,
    cpu_last: u64,
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
    pub fn new(process: Process, launched: bool) -> Self {
        Subject {
            image: if launched { None } else { process.image() },
            process,
            launched,
            root: true,
            ended: false,
            left: false,
            unopened: false,
            threads: FxHashMap::default(),
            stats: Stats { attached_ns: sys::monotonic_ns(), ..Stats::default() },
            idle: true,
            native: None,
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
            rows: Vec::new(),
            row_ids: FxHashMap::default(),
            tables: Tables::default(),
            python: PythonFrames::default(),
            known: KnownStacks::default(),
            asleep: Cache::default(),
            notes: Vec::new(),
            cpu_start: 0,
            cpu_last: 0,
            started: 0,
            started_unix: 0,
            born: launched,
            seen_threads: 0,
        }
    }

    /// Sampling begins: what the process used before is not ours to count, unless it was born meanwhile.
    pub fn start(&mut self, now: u64, options: &Options, entry: Entry) {
        self.idle = options.idle;
        self.born = entry.born;
        // A running thread has no registers to go by.
        self.native = (options.native && !options.nonblocking).then(|| Native::new(options.max_stack));
        if let Some(native) = &mut self.native
            && !self.born
        {
            native.renew(&self.process);
            if let Some(python) = &self.runtime {
                native.find_evaluation(&self.process, python.runtime_address());
            }
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
        sys::process_cpu_ns(self.process.pid).unwrap_or(self.cpu_last)
    }

    /// The work of a round that concerns the whole process: new threads, a new program, the runtime. `crowd`: how many
    /// processes there are. `open_until`: the CPU time of ours at which no more programs are looked at in this round.
    pub fn begin_round(&mut self, now: u64, crowd: u64, open_until: u64) {
        self.stats.ticks += 1;
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
            self.retry_runtime();
        }
    }

    /// Looks at the list of threads.
    pub fn scan(&mut self, now: u64, first: bool) {
        let began = sys::thread_cpu_ns();
        let mut tids = procfs::list_threads(self.process.pid);
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
        let files = ThreadFiles::open(self.process.pid, tid, may_keep());
        if files.look() == Look::Gone {
            return;
        }
        let Some(line) = files.schedstat() else { return };
        let row = self.row(tid, thread_name(self.process.pid, tid));
        self.seen_threads += 1;
        let mark = if was_there { line.run_ns } else { 0 };
        self.threads.insert(tid, Thread::new(row, files, mark, now));
    }

    fn row(&mut self, tid: u32, name: String) -> u32 {
        let next = self.rows.len() as u32;
        let row = *self.row_ids.entry((tid, name.clone())).or_insert(next);
        if row == next {
            self.rows.push((tid, name));
        }
        row
    }

    /// A thread has ended: what it left goes to `gone` and `[unsampled]`.
    pub fn end_thread(&mut self, tid: u32) {
        let Some(thread) = self.threads.remove(&tid) else { return };
        self.stats.pending_ticks -= thread.carried;
        self.stats.gone += thread.carried + u64::from(thread.in_flight);
        self.count_unsampled(&thread);
    }

    fn count_unsampled(&mut self, thread: &Thread) {
        let cpu = thread.cpu_seen.saturating_sub(thread.cpu_mark);
        if cpu > 0 {
            let label = self.tables.label("[unsampled]");
            let stack = self.tables.stack(&[label]);
            self.tables.count(thread.row, stack, State::Unknown, Values { cpu, ..Values::default() });
            self.stats.cpu_ns_sampled += cpu;
        }
    }

    /// The tick of one thread: reads it if it sleeps; says if it has to be stopped.
    pub fn tick_thread(&mut self, tid: u32, now: u64, scratch: &mut Scratch) -> Found {
        let Some(thread) = self.threads.get_mut(&tid) else { return Found::Done };
        if thread.in_flight {
            self.stats.thread_ticks += 1;
            self.carry(tid);
            return Found::Done;
        }
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
            Look::Blocked { number, sp, pc } => {
                thread.rest = false;
                scratch.syscall = number;
                scratch.start = (self.native.is_some() && sp != 0).then(|| Registers::asleep(pc, sp));
                if self.sample_asleep(tid, now, scratch) {
                    self.stats.thread_ticks += 1;
                    return Found::Done;
                }
            }
        }
        self.stats.thread_ticks += 1;
        let Some(thread) = self.threads.get_mut(&tid) else { return Found::Done };
        thread.asleep = None;
        if std::mem::take(&mut thread.rest) {
            self.carry(tid);
            return Found::Done;
        }
        Found::Running
    }

    /// This tick waits for the thread's next stack.
    pub fn carry(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.carried += 1;
            self.stats.pending_ticks += 1;
        }
    }

    /// Counts a stack of a thread.
    pub fn count(&mut self, tid: u32, sample: Sample) {
        let Sample { stack, outcome, now, ran, holds_gil, state } = sample;
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let wall = now.saturating_sub(thread.last_sample);
        let mut values = Values { samples: 1 + thread.carried, cpu: 0, wall, gil: if holds_gil { wall } else { 0 } };
        if let Some(line) = ran {
            thread.cpu_seen = thread.cpu_seen.max(line.run_ns);
            values.cpu = thread.cpu_seen - thread.cpu_mark;
            thread.cpu_mark = thread.cpu_seen;
        }
        thread.last_sample = now;
        thread.carried = 0;
        thread.collided_since = 0;
        self.tables.count(thread.row, stack, state, values);
        let stats = &mut self.stats;
        stats.samples += 1;
        stats.cpu_ns_sampled += values.cpu;
        match outcome {
            Outcome::Complete => stats.complete += 1,
            Outcome::Truncated => stats.truncated += 1,
            Outcome::Unreadable => stats.unreadable += 1,
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

    fn caches(&self) -> Vec<(String, Cache)> {
        let code = self.runtime.as_ref().map(|python| ("code", python.code_cache()));
        let rules = self.native.as_ref().map(|native| ("unwind rules", native.rule_cache()));
        let caches = [Some(("sleeping stacks", self.asleep)), Some(("python stacks", self.known.looks)), code, rules];
        caches.into_iter().flatten().map(|(name, cache)| (name.to_string(), cache)).collect()
    }

    /// CPU time that no thread's sample has, shown under one frame in the row of the first thread.
    fn show(&mut self, label: &str, cpu: u64) {
        let leader = self.process.pid;
        let known = self.rows.iter().position(|(tid, _)| *tid == leader);
        let row = known.map_or_else(|| self.row(leader, self.process.name.clone()), |row| row as u32);
        let label = self.tables.label(label);
        let stack = self.tables.stack(&[label]);
        self.tables.count(row, stack, State::Unknown, Values { cpu, ..Values::default() });
    }

    /// Ends the window: every thread's rest is counted, and all is handed over, with what is shown of others here.
    pub fn finish(&mut self, now: u64, shown: &Shown) -> Batch {
        if !self.ended {
            self.cpu_last = self.process_cpu().max(self.cpu_last);
        }
        self.cpu_last = self.cpu_last.max(shown.cpu);
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            if std::mem::take(&mut thread.in_flight) {
                let label = self.tables.label("[unreadable: did not stop before the end]");
                let stack = self.tables.stack(&[label]);
                self.count(tid, Sample::unreadable(stack, now));
            } else if thread.carried > 0 {
                // Nothing in flight: the last of the carried ticks is the one that gives this sample.
                thread.carried -= 1;
                self.stats.pending_ticks -= 1;
                let reason = if self.unopened { "ended too soon" } else { "traced by another" };
                let label = self.tables.label(&format!("[unreadable: {reason}]"));
                let stack = self.tables.stack(&[label]);
                self.count(tid, Sample::unreadable(stack, now));
            }
            let Some(mut thread) = self.threads.remove(&tid) else { continue };
            thread.schedstat();
            self.count_unsampled(&thread);
        }
        let own = self.cpu_last.saturating_sub(self.cpu_start);
        let left = own.saturating_sub(self.stats.cpu_ns_sampled);
        if self.ended && self.seen_threads == 1 && left > 0 {
            // It had one thread: what the process used last was used by it.
            self.show("[unsampled]", left);
            self.stats.cpu_ns_sampled += left;
        }
        for (name, cpu) in &shown.unsampled {
            self.show(&format!("[unsampled: {name}]"), *cpu);
            self.stats.unsampled_cpu_ns += cpu;
        }
        self.stats.cpu_ns_process = own + self.stats.unsampled_cpu_ns;
        if self.tables.full() {
            self.note("there were more distinct stacks than fit: the rest is under [table full]".to_string());
        }
        self.stats.caches = self.caches();
        self.forget_runtime_ids();
        let columns = self.tables.take(std::mem::take(&mut self.rows));
        self.stats.distinct_stacks = columns.stack_starts.len() as u64 - 1;
        Batch {
            pid: self.process.pid,
            process: self.process.name.clone(),
            start_ns: self.started_unix,
            duration_ns: now.saturating_sub(self.started),
            runtime: self.runtime_name.clone(),
            columns,
            stats: std::mem::take(&mut self.stats),
            notes: std::mem::take(&mut self.notes),
        }
    }
}

fn thread_name(pid: u32, tid: u32) -> String {
    std::fs::read(format!("/proc/{pid}/task/{tid}/comm"))
        .map(|name| String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
        .unwrap_or_default()
}
