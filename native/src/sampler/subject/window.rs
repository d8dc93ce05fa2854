//! The end of a window: all that was counted is handed over.

use rustc_hash::FxHashMap;

use super::{Sample, Subject};
use crate::protocol::Batch;
use crate::sampler::shown::Shown;
use crate::sampler::thread::Thread;
use crate::stats::{Cache, Stats};
use crate::tables::{Columns, Frame, FrameId, FrameLine, RowKey, StackId, State, Tables, Values};

impl Subject {
    pub(super) fn count_unsampled(&mut self, thread: &Thread) {
        let cpu = thread.cpu_seen.saturating_sub(thread.cpu_mark);
        if cpu > 0 {
            let label = self.tables.label("[unsampled]");
            let stack = self.tables.stack(&[label]);
            let key = RowKey { thread: thread.row, stack, state: State::Unknown, time: 0, labels: 0 };
            self.tables.count(key, Values { cpu, ..Values::default() });
            self.stats.cpu_ns_sampled += cpu;
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
        let key = RowKey { thread: row, stack, state: State::Unknown, time: 0, labels: 0 };
        self.tables.count(key, Values { cpu, ..Values::default() });
    }

    /// Ends the window: every thread's rest is counted, and all is handed over, with what is shown of others here.
    pub fn finish(&mut self, now: u64, shown: &Shown) -> Batch {
        if !self.ended {
            self.cpu_last = self.process_cpu().max(self.cpu_last);
        }
        self.cpu_last = self.cpu_last.max(shown.cpu);
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            self.count_owed(tid);
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
            let Some(mut thread) = self.remove_thread(tid) else { continue };
            thread.schedstat();
            self.count_unsampled(&thread);
        }
        let own = self.cpu_last.saturating_sub(self.cpu_start);
        let left = own as i64 + self.cpu_owed - self.stats.cpu_ns_sampled as i64;
        if self.ended && self.seen_threads == 1 && left > 0 {
            // It had one thread: what the process used last was used by it.
            self.show("[unsampled]", left as u64);
            self.stats.cpu_ns_sampled += left as u64;
        }
        self.hand_over(now, shown)
    }

    /// Ends the window of a process that goes on. What threads used since their last sample stays with them, and so do
    /// the ticks that wait for a stack: they belong to the window in which it comes.
    pub fn cut(&mut self, now: u64, shown: &Shown) -> Batch {
        self.cpu_last = self.process_cpu().max(self.cpu_last).max(shown.cpu);
        self.count_all_owed();
        let waiting: u64 = self.threads.values().map(|thread| thread.carried).sum();
        let in_flight = self.threads.values().filter(|thread| thread.in_flight).count() as u64;
        self.stats.pending_ticks -= waiting;
        self.stats.thread_ticks -= waiting + in_flight;
        let names = self.rows.clone();
        let attached_ns = self.stats.attached_ns;
        let batch = self.hand_over(now, shown);
        self.stats =
            Stats { attached_ns, pending_ticks: waiting, thread_ticks: waiting + in_flight, ..Stats::default() };
        let rows: Vec<(u32, u32)> = self.threads.iter().map(|(&tid, thread)| (tid, thread.row)).collect();
        for (tid, row) in rows {
            let (_, name) = names[row as usize].clone();
            let row = self.row(tid, name);
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.row = row;
            }
        }
        // Stacks of those that sleep on: to read them all again would make the next round a long one.
        let mut kept: FxHashMap<StackId, StackId> = FxHashMap::default();
        for asleep in self.threads.values_mut().filter_map(|thread| thread.asleep.as_mut()) {
            let set = batch.columns.labels[asleep.labels as usize].clone();
            asleep.labels = self.tables.label_set(set).unwrap_or(0);
            let stack = asleep.stack;
            asleep.stack = *kept.entry(stack).or_insert_with(|| adopt(&mut self.tables, &batch.columns, stack));
        }
        let used = batch.stats.cpu_ns_process - batch.stats.unsampled_cpu_ns;
        self.cpu_owed += used as i64 - batch.stats.cpu_ns_sampled as i64;
        self.cpu_start = self.cpu_last;
        self.started_unix += now.saturating_sub(self.started);
        self.started = now;
        self.windows += 1;
        if let Some(python) = &mut self.runtime {
            python.compact(); // it may begin anew
        }
        self.caches_before = self.caches();
        batch
    }

    fn hand_over(&mut self, now: u64, shown: &Shown) -> Batch {
        for (name, cpu) in &shown.unsampled {
            self.show(&format!("[unsampled: {name}]"), *cpu);
            self.stats.unsampled_cpu_ns += cpu;
        }
        let own = self.cpu_last.saturating_sub(self.cpu_start);
        self.stats.cpu_ns_process = own + self.stats.unsampled_cpu_ns;
        let (samples, frames) = self.tables.folded();
        if samples + frames > 0 {
            self.note(format!(
                "there was more than fits: {samples} samples and {frames} frames of others are [table full]"
            ));
        }
        if self.folded_threads > 0 {
            let count = std::mem::take(&mut self.folded_threads);
            self.note(format!("there were more threads than are told apart: {count} are [others]"));
        }
        self.note_go();
        if self.tables.timed_full() {
            self.note("there were more samples than are kept with their times: the rest is added up".to_string());
        }
        self.stats.caches = since(&self.caches(), &self.caches_before);
        self.forget_runtime_ids();
        self.row_ids.clear();
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
            locals: self.locals.take(),
        }
    }
}

/// A stack of tables that were handed over, in new ones.
fn adopt(tables: &mut Tables, columns: &Columns, stack: StackId) -> StackId {
    let [start, end] = [stack, stack + 1].map(|index| columns.stack_starts[index as usize] as usize);
    let text = |id: u32| columns.strings[id as usize].as_str();
    let frames: Vec<FrameId> = columns.stack_frames[start..end]
        .iter()
        .map(|&id| {
            let frame = columns.frames[id as usize];
            let (name, file) = (tables.string(text(frame.name)), tables.string(text(frame.file)));
            let known = usize::try_from(frame.mapping).ok().map(|index| tables.mapping(&columns.mappings[index]));
            let adopted = tables.frame(Frame { name, file, mapping: known.unwrap_or(-1), ..frame });
            if let Ok(at) = columns.lines.binary_search_by_key(&id, |(known, _)| *known) {
                let lines = columns.lines[at].1.iter();
                let lines = lines
                    .map(|line| FrameLine {
                        name: tables.string(text(line.name)),
                        file: tables.string(text(line.file)),
                        ..*line
                    })
                    .collect();
                tables.name(adopted, lines);
            }
            adopted
        })
        .collect();
    tables.stack(&frames)
}

/// What was counted since `before`; a cache that began anew counts from nothing.
fn since(now: &[(String, Cache)], before: &[(String, Cache)]) -> Vec<(String, Cache)> {
    let of = |name: &str| before.iter().find(|(known, _)| known == name).map(|(_, cache)| *cache).unwrap_or_default();
    now.iter()
        .map(|(name, cache)| {
            let old = of(name);
            let anew = cache.hits < old.hits || cache.misses < old.misses;
            let old = if anew { Cache::default() } else { old };
            (name.clone(), Cache { hits: cache.hits - old.hits, misses: cache.misses - old.misses })
        })
        .collect()
}
