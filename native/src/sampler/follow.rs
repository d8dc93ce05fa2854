//! Descendants of the targets: taken up as they are born, handed over as they end.

use std::io;

use regex_lite::Regex;
use rustc_hash::FxHashSet;

use super::births::Hearing;
use super::shown::{Role, Shown};
use super::subject::{Entry, Subject};
use super::tree::Tree;
use super::{Sampler, pattern, protocol};
use crate::protocol::Event;
use crate::target::linux::Process;
use crate::target::procfs::{self, Stat};
use crate::target::sys;

/// Shortest time between two looks for births: with descendants, whose last moments are told from how often we look,
/// and without.
const MIN_LOOK_NS: (u64, u64) = (2_000_000, 5_000_000);
/// A look may take one part in this many of our CPU time, but is not put off for longer than this.
pub(super) const LOOK_SHARE: u64 = 25;
const MAX_LOOK_NS: u64 = 1_000_000_000;
/// How often it is read what processes were handed by their children, and its share.
const SETTLE_NS: u64 = 100_000_000;
const SETTLE_SHARE: u64 = 100;
/// Most processes sampled at a time, and in one recording; the CPU time of others is shown by name.
const MAX_AT_ONCE: usize = 4096;
const MAX_SAMPLED: u64 = 20_000;
/// Most notes about processes that could not be read.
const MAX_NOTES: u32 = 10;
/// Most bytes that wait for the supervisor; beyond that it is waited for.
const MAX_OUTBOX: usize = 64 << 20;

/// What is known of the tree of one recording.
#[derive(Debug)]
pub(super) struct Following {
    pub(super) tree: Tree,
    pub(super) pattern: Option<Regex>,
    pub(super) hearing: Hearing,
    /// When to look next.
    pub(super) due: u64,
    next_settle: u64,
    /// When the recording began: nanoseconds on the monotonic clock, of Unix time, and in ticks since boot.
    began: (u64, u64, u64),
    sampled: u64,
    notes: u32,
}

impl Following {
    /// The recording begins.
    pub(super) fn begin(&mut self, now: u64, unix: u64) {
        (self.began.0, self.began.1) = (now, unix);
    }

    fn wanted(&self, name: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(name))
    }
}

impl Sampler {
    /// Begins to follow the descendants of the first target.
    pub(super) fn follow_from(&mut self, children_match: &str) {
        let Some(root) = self.subjects.first() else { return };
        if root.launched {
            sys::become_subreaper();
        }
        let ticks = sys::boottime_ns() / procfs::TICK_NS;
        self.following = Some(Following {
            tree: Tree::new(root.process.pid, root.launched),
            pattern: pattern(children_match).ok().flatten(),
            hearing: Hearing::begin(),
            due: 0,
            next_settle: 0,
            began: (0, 0, ticks),
            sampled: 0,
            notes: 0,
        });
    }

    /// When the tree is to be looked at.
    pub(super) fn next_look(&self) -> u64 {
        self.following.as_ref().map_or(u64::MAX, |following| following.due)
    }

    /// What tells of births now, or -1; and when something will.
    pub(super) fn hearing(&self, now: u64) -> (i32, u64) {
        let hearing = self.following.as_ref().map(|following| &following.hearing);
        hearing.map_or((-1, u64::MAX), |hearing| (hearing.descriptor(now), hearing.due(now)))
    }

    /// Looks at the tree: who was born, who has ended, what they used.
    pub(super) fn look_at_tree(&mut self, now: u64) -> io::Result<()> {
        let Some(mut following) = self.following.take() else { return Ok(()) };
        let began = sys::thread_cpu_ns();
        if now >= following.next_settle {
            following.tree.settle_all();
            let cost = sys::thread_cpu_ns().saturating_sub(began);
            following.next_settle = now + (cost * SETTLE_SHARE).max(SETTLE_NS);
            self.part(&mut following);
        }
        following.tree.look();
        let born = following.tree.births(now);
        self.take_up_all(&mut following, born, now)?;
        let passed = following.tree.in_role(Role::Passed);
        self.turn_to(&mut following, &passed, now)?;
        let cost = sys::thread_cpu_ns().saturating_sub(began);
        let least = if following.tree.len() > 1 { MIN_LOOK_NS.0 } else { MIN_LOOK_NS.1 };
        following.due = now + (cost * LOOK_SHARE).clamp(least, MAX_LOOK_NS);
        let others = following.tree.has_ended();
        self.following = Some(following);
        if others { self.retire_all(now) } else { Ok(()) }
    }

    /// Takes up those that were born, parents before their children.
    pub(super) fn take_up_all(
        &mut self,
        following: &mut Following,
        born: Vec<(u32, Stat)>,
        now: u64,
    ) -> io::Result<()> {
        for (pid, stat) in born {
            if following.tree.get(pid).is_some() {
                self.hand_over(following, pid, now)?;
            }
            if following.tree.get(pid).is_some() {
                continue; // the root, which ends the recording
            }
            let was_there = stat.start_time < following.began.2;
            self.take_up(following, pid, stat, was_there, now)?;
        }
        Ok(())
    }

    /// Begins to sample those of `passed` that have become what was asked for.
    pub(super) fn turn_to(&mut self, following: &mut Following, passed: &[u32], now: u64) -> io::Result<()> {
        if following.pattern.is_none() {
            return Ok(());
        }
        for &pid in passed {
            let Ok(stat) = procfs::read_stat(pid) else { continue };
            if following.wanted(&stat.name)
                && following.tree.get(pid).is_some_and(|node| node.start_time == stat.start_time)
            {
                following.tree.turn(pid, Role::Unsampled);
                self.sample_process(following, pid, &stat, true, now)?;
            }
        }
        Ok(())
    }

    /// Ends the sampling of processes that have become others than were asked for.
    pub(super) fn part(&mut self, following: &mut Following) {
        if following.pattern.is_none() {
            return;
        }
        for subject in self.subjects.iter_mut().filter(|subject| !subject.root && !subject.ended) {
            let name = following.tree.get(subject.process.pid).map(|node| node.name.clone()).unwrap_or_default();
            if !following.wanted(&name) {
                (subject.ended, subject.left) = (true, true);
            }
        }
    }

    fn take_up(
        &mut self,
        following: &mut Following,
        pid: u32,
        stat: Stat,
        was_there: bool,
        now: u64,
    ) -> io::Result<()> {
        let wanted = following.wanted(&stat.name);
        let role = if wanted { Role::Unsampled } else { Role::Passed };
        following.tree.add(pid, &stat, was_there, role);
        if wanted && !matches!(stat.state, b'Z' | b'X') {
            self.sample_process(following, pid, &stat, was_there, now)?;
        }
        Ok(())
    }

    fn sample_process(
        &mut self,
        following: &mut Following,
        pid: u32,
        stat: &Stat,
        was_there: bool,
        now: u64,
    ) -> io::Result<()> {
        let Some(options) = self.options.clone() else { return Ok(()) };
        if self.subjects.len() >= MAX_AT_ONCE || following.sampled >= MAX_SAMPLED {
            self.note(format!(
                "there were more processes than are sampled ({MAX_AT_ONCE} at a time, {MAX_SAMPLED} in all)"
            ));
            return Ok(());
        }
        let process = match Process::open(pid) {
            Ok(process) if process.start_time == stat.start_time => process,
            Ok(_) => return Ok(()),
            Err(error) => {
                let there =
                    procfs::read_stat(pid).is_ok_and(|now| now.start_time == stat.start_time && now.state != b'Z');
                if there && following.notes < MAX_NOTES {
                    following.notes += 1;
                    self.note(format!("not sampled: {} ({})", error.message, stat.name));
                }
                return Ok(());
            }
        };
        let mut subject = Subject::new(process, false);
        (subject.root, subject.unopened) = (false, true);
        let unix = following.began.1 + (now - following.began.0);
        subject.start(now, &options, Entry { born: !was_there, unix });
        if subject.ended {
            return Ok(());
        }
        if let Some(node) = following.tree.get_mut(pid) {
            node.role = Role::Sampled;
        }
        following.sampled += 1;
        self.subjects.push(subject);
        self.post(&Event::Found { pid })
    }

    fn note(&mut self, note: String) {
        if let Some(root) = self.subjects.first_mut() {
            root.note(note);
        }
    }

    /// Hands over the descendants that have ended. With one that we met as ended others may have ended too: all of them
    /// go, children before their parents, or their time would be taken for that of processes that nobody saw.
    pub(super) fn retire(&mut self, now: u64) -> io::Result<()> {
        if self.subjects.iter().any(|subject| subject.ended && !subject.root) {
            self.retire_all(now)?;
        }
        Ok(())
    }

    fn retire_all(&mut self, now: u64) -> io::Result<()> {
        let Some(mut following) = self.following.take() else { return Ok(()) };
        let met: FxHashSet<u32> =
            self.subjects.iter().filter(|subject| subject.ended).map(|subject| subject.process.pid).collect();
        for pid in following.tree.ended(&met) {
            self.hand_over(&mut following, pid, now)?;
        }
        self.following = Some(following);
        Ok(())
    }

    fn hand_over(&mut self, following: &mut Following, pid: u32, now: u64) -> io::Result<()> {
        following.tree.settle(pid);
        let Some(index) = self.subjects.iter().position(|subject| subject.process.pid == pid) else {
            following.tree.end(pid);
            return Ok(());
        };
        if self.subjects[index].root {
            self.subjects[index].ended = true;
            return Ok(());
        }
        let mut subject = self.remove(index);
        subject.ended = true;
        if subject.left {
            let shown = following.tree.turn(pid, Role::Passed);
            return self.deliver(subject, now, &shown);
        }
        if let Some(node) = following.tree.get_mut(pid) {
            node.saw(subject.cpu());
        }
        if subject.stats.thread_ticks == 0 && subject.windows == 0 {
            following.tree.end_unsampled(pid);
            return self.post(&Event::Exited { pid, status: -1 });
        }
        let shown = following.tree.end(pid);
        self.deliver(subject, now, &shown)
    }

    fn deliver(&mut self, mut subject: Subject, now: u64, shown: &Shown) -> io::Result<()> {
        self.delivered.samples += subject.stats.samples;
        self.delivered.pause_p99 = self.delivered.pause_p99.max(subject.stats.pause.quantile(0.99));
        self.delivered.runtime |= !subject.runtime_name().is_empty();
        subject.stats.final_rate_hz = self.pace.rate();
        let batch = subject.finish(now, shown);
        self.post(&Event::Batch(Box::new(batch)))
    }

    /// Takes a subject out; the last takes its place.
    fn remove(&mut self, index: usize) -> Subject {
        let (last, on_core) = (self.subjects.len() - 1, &mut self.on_core);
        self.flights.retain(|_, flight| {
            if flight.subject == index {
                *on_core -= usize::from(flight.on_core);
                return false;
            }
            if flight.subject == last {
                flight.subject = index;
            }
            true
        });
        self.subjects.swap_remove(index)
    }

    /// The recording ends: what is shown in each of the subjects that are left, in their order.
    pub(super) fn leave_tree(&mut self, now: u64) -> io::Result<Vec<Shown>> {
        // A shell and its last command end together.
        self.retire_all(now)?;
        let Some(mut following) = self.following.take() else {
            return Ok(self.subjects.iter().map(|_| Shown::default()).collect());
        };
        following.tree.leave_unsampled();
        let mut shown: Vec<Shown> = Vec::with_capacity(self.subjects.len());
        for subject in &self.subjects {
            following.tree.settle(subject.process.pid);
            if let Some(node) = following.tree.get_mut(subject.process.pid) {
                node.saw(subject.cpu());
            }
            shown.push(following.tree.leave(subject.process.pid, subject.ended));
        }
        Ok(shown)
    }

    /// Children of ours are about to be reaped.
    pub(super) fn before_reaping(&mut self) {
        if let Some(following) = &mut self.following {
            following.tree.before_reaping();
        }
    }

    /// A window ends: what is shown in each of the subjects, in their order.
    pub(super) fn cut_tree(&mut self, now: u64) -> io::Result<Vec<Shown>> {
        // What they were handed is read before it is looked who has ended: what is not accounted for yet comes later,
        // and nothing twice.
        if let Some(following) = &mut self.following {
            following.tree.settle_all();
        }
        self.retire_all(now)?;
        let Some(following) = &mut self.following else {
            return Ok(self.subjects.iter().map(|_| Shown::default()).collect());
        };
        Ok(self.subjects.iter().map(|subject| following.tree.cut(subject.process.pid)).collect())
    }

    /// Sends an event as soon as the supervisor takes it: the next tick does not wait for that.
    pub(super) fn post(&mut self, event: &Event) -> io::Result<()> {
        self.outbox.extend(protocol::encode(event)?);
        if self.outbox.len() > MAX_OUTBOX {
            return self.flush();
        }
        self.drain()
    }

    /// Sends what the supervisor takes at once.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        if !self.outbox.is_empty() {
            let sent = sys::send_now(self.link.as_raw_fd(), &self.outbox)?;
            self.outbox.drain(..sent);
        }
        Ok(())
    }

    /// Sends all.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        use std::io::Write;
        let bytes = std::mem::take(&mut self.outbox);
        self.link.write_all(&bytes)
    }
}
