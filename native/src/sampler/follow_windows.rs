//! Descendants of the first target: taken up as they are born, handed over as they end.

use std::io::{self, Write};

use regex_lite::Regex;
use rustc_hash::FxHashSet;

use super::shown::{Role, Shown};
use super::subject::{Entry, Subject};
use super::tree::Tree;
use super::{Sampler, pattern};
use crate::error::{Error, ErrorKind};
use crate::protocol::{Event, Options};
use crate::target::os::Process;
use crate::target::os::launch::Held;
use crate::target::sys;

/// Shortest time between two looks.
const MIN_LOOK_NS: u64 = 4_000_000;
/// Longest one where a job tells who is there …
const JOB_LOOK_NS: u64 = 10_000_000;
/// … and where all processes of the system are looked through.
const MAX_LOOK_NS: u64 = 1_000_000_000;
/// A look may take one part in this many of our time.
const LOOK_SHARE: u64 = 25;
/// Most processes sampled at a time, and in one recording; the CPU time of others is shown by name.
const MAX_AT_ONCE: usize = 4096;
const MAX_SAMPLED: u64 = 20_000;
/// How long a process is given to become one that can be read, in units of 100 ns.
const YOUNG_UNITS: u64 = 30_000_000;
/// Most notes about processes that could not be read.
const MAX_NOTES: u32 = 10;

/// What is known of the tree of one recording.
#[derive(Debug)]
pub(super) struct Following {
    tree: Tree,
    pattern: Option<Regex>,
    /// When to look next.
    due: u64,
    /// When the recording began: on the monotonic clock, of Unix time (nanoseconds both), and as processes are dated.
    began: (u64, u64, u64),
    sampled: u64,
    notes: u32,
}

impl Following {
    fn wanted(&self, name: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(name))
    }
}

impl<W: Write> Sampler<W> {
    /// Takes over CMD, which was created suspended.
    pub(super) fn hold(&mut self, pid: u32) -> Result<(), Error> {
        let process = Process::open(pid)?;
        let (held, job) = Held::take(&process).map_err(|error| {
            let message = format!("cannot put process {pid} into a job: {error}");
            Error::new(ErrorKind::Failed, message, "start it, then: remoteprof attach --children PID")
        })?;
        (self.held, self.job) = (Some(held), Some(job));
        self.subjects.push(Subject::new(process, true));
        Ok(())
    }

    /// Begins to follow the descendants of the first target, at `now`.
    pub(super) fn follow_from(&mut self, options: &Options, now: u64, unix: u64) {
        let Some(root) = self.subjects.first().filter(|_| options.children) else { return };
        self.following = Some(Following {
            tree: Tree::new(&root.process, self.job.take()),
            pattern: pattern(&options.children_match).ok().flatten(),
            due: 0,
            began: (now, unix, sys::now_units()),
            sampled: 0,
            notes: 0,
        });
    }

    /// When the tree is to be looked at.
    pub(super) fn next_look(&self) -> u64 {
        self.following.as_ref().map_or(u64::MAX, |following| following.due)
    }

    /// Looks at the tree: who was born, who has ended, what they used.
    pub(super) fn look_at_tree(&mut self, now: u64) -> io::Result<()> {
        let Some(mut following) = self.following.take() else { return Ok(()) };
        for subject in self.subjects.iter_mut().filter(|one| !one.ended && !one.process.alive()) {
            subject.end();
        }
        following.tree.look();
        for (watched, parent) in following.tree.births() {
            let was_there = watched.created < following.began.2;
            following.tree.add(watched, parent, was_there, Role::Unsampled);
        }
        for pid in following.tree.fresh() {
            self.take_up(&mut following, pid, now)?;
        }
        let cost = sys::monotonic_ns().saturating_sub(now);
        let longest = if following.tree.has_job() { JOB_LOOK_NS } else { MAX_LOOK_NS };
        following.due = now + (cost * LOOK_SHARE).clamp(MIN_LOOK_NS, longest);
        self.following = Some(following);
        self.retire(now)
    }

    /// Decides what is done with a process, if that can be told by now.
    fn take_up(&mut self, following: &mut Following, pid: u32, now: u64) -> io::Result<()> {
        let Some(member) = following.tree.get_mut(pid) else { return Ok(()) };
        member.find_name();
        let (name, created) = (member.name.clone(), member.watched.created);
        let is_young = sys::now_units() < created + YOUNG_UNITS && !member.watched.ended();
        if name.is_empty() && is_young {
            return Ok(());
        }
        let wanted = following.wanted(&name);
        let opened = if wanted { self.open(following, pid) } else { Ok(None) };
        let Some(member) = following.tree.get_mut(pid) else { return Ok(()) };
        member.fresh = is_young && opened.is_err();
        if !wanted {
            member.role = Role::Passed;
        }
        match opened {
            Ok(Some(process)) => self.sample_process(following, process, now),
            Err(error) if !is_young && error.kind != ErrorKind::NotFound && following.notes < MAX_NOTES => {
                following.notes += 1;
                self.note(format!("not sampled: {} ({name})", error.message));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Opens a process to be sampled; None if there are too many.
    fn open(&mut self, following: &Following, pid: u32) -> Result<Option<Process>, Error> {
        if self.subjects.len() >= MAX_AT_ONCE || following.sampled >= MAX_SAMPLED {
            self.note(format!(
                "there were more processes than are sampled ({MAX_AT_ONCE} at a time, {MAX_SAMPLED} in all)"
            ));
            return Ok(None);
        }
        // It is this one, for a handle of it is open; by wine it was created only when it began to run.
        Process::open(pid).map(Some)
    }

    fn sample_process(&mut self, following: &mut Following, process: Process, now: u64) -> io::Result<()> {
        let Some(options) = self.options.clone() else { return Ok(()) };
        let (pid, born) = (process.pid, process.start_time >= following.began.2);
        let mut subject = Subject::new(process, false);
        (subject.root, subject.unopened) = (false, true);
        let unix = following.began.1 + (now - following.began.0);
        subject.start(now, &options, Entry { born, unix });
        let Some(member) = following.tree.get_mut(pid) else { return Ok(()) };
        if subject.ended {
            // It has no thread yet, or none any more.
            member.fresh = sys::now_units() < member.watched.created + YOUNG_UNITS && !member.watched.ended();
            return Ok(());
        }
        member.role = Role::Sampled;
        following.sampled += 1;
        self.subjects.push(subject);
        self.say(&Event::Found { pid })
    }

    fn note(&mut self, note: String) {
        if let Some(root) = self.subjects.first_mut() {
            root.note(note);
        }
    }

    /// Hands over the descendants that have ended, children before their parents.
    pub(super) fn retire(&mut self, now: u64) -> io::Result<()> {
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
        let Some(index) = self.subjects.iter().position(|subject| subject.process.pid == pid) else {
            following.tree.end(pid);
            return Ok(());
        };
        let mut subject = self.subjects.swap_remove(index);
        subject.ended = true;
        if let Some(member) = following.tree.get_mut(pid) {
            member.saw(subject.cpu());
        }
        if subject.stats.thread_ticks == 0 && subject.windows == 0 {
            following.tree.end_unsampled(pid);
            return self.say(&Event::Exited { pid, status: -1 });
        }
        let shown = following.tree.end(pid);
        self.deliver(subject, now, &shown)
    }

    fn deliver(&mut self, mut subject: Subject, now: u64, shown: &Shown) -> io::Result<()> {
        self.delivered.0 += subject.stats.samples;
        self.delivered.1 = self.delivered.1.max(subject.stats.pause.quantile(0.99));
        self.has_runtime |= !subject.runtime_name().is_empty();
        subject.stats.final_rate_hz = self.pace.rate();
        let batch = subject.finish(now, shown);
        self.say(&Event::Batch(Box::new(batch)))
    }

    /// A window ends, or the recording: what is shown in each of the subjects, in their order.
    pub(super) fn shown(&mut self, now: u64, last: bool) -> io::Result<Vec<Shown>> {
        self.retire(now)?;
        let Some(following) = &mut self.following else {
            return Ok(self.subjects.iter().map(|_| Shown::default()).collect());
        };
        let tree = &mut following.tree;
        if last {
            tree.leave_unsampled();
        }
        for subject in &self.subjects {
            if let Some(member) = tree.get_mut(subject.process.pid) {
                member.saw(subject.cpu());
            }
        }
        tree.settle();
        Ok(self.subjects.iter().map(|subject| tree.cut(subject.process.pid)).collect())
    }
}
