//! The tree of processes below the first target, and its CPU time, where no process hands its own on to its parent: each
//! tells what it used for as long as a handle of it is open, and a job what all of it used together. What it has beyond
//! what we know of each is the CPU time of processes that lived and died between looks.

use rustc_hash::{FxHashMap, FxHashSet};

use super::shown::{Role, SHORT_LIVED, Shown, Unsampled};
use crate::target::descent::{Birth, Descent};
use crate::target::os::Process;
use crate::target::os::job::Job;
use crate::target::os::watched::{self, Watched};
use crate::target::sys;

/// Most generations that are climbed.
const MAX_DEPTH: usize = 4096;

/// One process of the tree. Times in nanoseconds.
#[derive(Debug)]
pub struct Member {
    /// It, kept open.
    pub watched: Watched,
    /// The number of the process that started it.
    pub parent: u32,
    /// The name of its program's file.
    pub name: String,
    /// What is done with it.
    pub role: Role,
    /// Whether that is still to be decided: Windows tells of processes before they have a program.
    pub fresh: bool,
    cpu: u64,
    cpu_base: u64,
    unsampled: Unsampled,
}

impl Member {
    fn new(watched: Watched, parent: u32, was_there: bool, role: Role) -> Member {
        let cpu = sys::process_cpu_ns(watched.pid).unwrap_or(0);
        let cpu_base = if was_there { cpu } else { 0 };
        let (name, fresh) = (String::new(), true);
        let mut member = Member { watched, parent, name, role, fresh, cpu, cpu_base, unsampled: Unsampled::default() };
        member.find_name();
        member
    }

    /// Looks for its name, if that was not to be had before.
    pub fn find_name(&mut self) {
        if self.name.is_empty() {
            self.name = watched::file_name(&self.watched.program()).to_string();
        }
    }

    /// A reading of its CPU time. Wine forgets threads that have ended: a smaller one is none.
    pub fn saw(&mut self, cpu: u64) {
        self.cpu = self.cpu.max(cpu);
    }

    fn see(&mut self) {
        self.saw(sys::process_cpu_ns(self.watched.pid).unwrap_or(0));
    }

    fn shown(&mut self) -> Shown {
        Shown { cpu: self.cpu, unsampled: self.unsampled.take() }
    }
}

/// The tree.
#[derive(Debug)]
pub struct Tree {
    members: FxHashMap<u32, Member>,
    descent: Descent,
    job: Option<Job>,
    root: u32,
    /// CPU time of those that have ended.
    ended_cpu: u64,
    /// What of the CPU time that nobody saw was shown before.
    shown: u64,
}

impl Tree {
    /// The tree below `root`; `job`: the one that all of it belongs to, if there is one.
    pub fn new(root: &Process, job: Option<Job>) -> Tree {
        let mut tree = Tree {
            members: FxHashMap::default(),
            descent: Descent::default(),
            job,
            root: root.pid,
            ended_cpu: 0,
            shown: 0,
        };
        tree.descent.begin(Birth { pid: root.pid, parent: 0, created: root.start_time });
        if let Ok(watched) = Watched::open(root.pid) {
            tree.add(watched, 0, tree.job.is_none(), Role::Sampled);
        }
        tree
    }

    /// Whether all of it is known to the last process, by a job.
    pub fn has_job(&self) -> bool {
        self.job.is_some()
    }

    /// Adds a process that births() gave; `was_there`: it ran before the recording.
    pub fn add(&mut self, watched: Watched, parent: u32, was_there: bool, role: Role) {
        self.members.insert(watched.pid, Member::new(watched, parent, was_there, role));
    }

    /// Those of which it is still to be decided what is done with them, but for the root.
    pub fn fresh(&self) -> Vec<u32> {
        let root = self.root;
        let fresh = self.members.iter().filter(|&(&pid, member)| member.fresh && pid != root);
        fresh.map(|(&pid, _)| pid).collect()
    }

    /// A process of the tree.
    pub fn get_mut(&mut self, pid: u32) -> Option<&mut Member> {
        self.members.get_mut(&pid)
    }

    /// Processes that were born below the tree since the last look, each with its parent, parents before their children.
    /// They may have ended.
    pub fn births(&mut self) -> Vec<(Watched, u32)> {
        let mut born = match &self.job {
            Some(job) => Self::births_in(job, &mut self.descent, self.root),
            None => {
                let mut opened = FxHashMap::default();
                let created = |pid| {
                    // Our threads are not to be suspended by ourselves.
                    let found = Watched::open(pid).ok().filter(|found| found.pid != std::process::id())?;
                    let created = found.created;
                    opened.insert(pid, found);
                    Some(created)
                };
                let born = self.descent.births(&watched::list(), created);
                born.into_iter().filter_map(|birth| Some((opened.remove(&birth.pid)?, birth.parent))).collect()
            }
        };
        born.sort_by_key(|(watched, _)| watched.created);
        born
    }

    fn births_in(job: &Job, descent: &mut Descent, root: u32) -> Vec<(Watched, u32)> {
        let mut born = Vec::new();
        for (pid, is_there) in job.processes() {
            if descent.lives(pid) {
                continue;
            }
            let Ok(watched) = Watched::open(pid) else { continue };
            if descent.knows(pid, watched.created) || !(is_there || job.has(&watched)) {
                continue;
            }
            let parent = watched.parent().unwrap_or(root);
            descent.begin(Birth { pid, parent, created: watched.created });
            born.push((watched, parent));
        }
        born
    }

    /// Reads the CPU time of all.
    pub fn look(&mut self) {
        self.members.values_mut().for_each(Member::see);
    }

    /// All that have ended, and `met`, but for the root: children before their parents.
    pub fn ended(&self, met: &FxHashSet<u32>) -> Vec<u32> {
        let root = self.root;
        self.youngest_first(|pid, member| pid != root && (met.contains(&pid) || member.watched.ended()))
    }

    fn youngest_first(&self, wanted: impl Fn(u32, &Member) -> bool) -> Vec<u32> {
        let found = self.members.iter().filter(|&(&pid, member)| wanted(pid, member));
        let mut found: Vec<(u64, u32)> = found.map(|(&pid, member)| (member.watched.created, pid)).collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, pid)| pid).collect()
    }

    /// The nearest sampled process at `pid` or above it.
    fn shown_in(&self, pid: u32) -> u32 {
        let mut pid = pid;
        for _ in 0..MAX_DEPTH {
            match self.members.get(&pid) {
                Some(member) if member.role == Role::Sampled => return pid,
                Some(member) => pid = member.parent,
                None => match self.descent.parent(pid) {
                    Some(parent) => pid = parent,
                    None => break,
                },
            }
        }
        self.root
    }

    /// A process has ended. Gives what is to be shown in it.
    pub fn end(&mut self, pid: u32) -> Shown {
        let Some(mut member) = self.members.remove(&pid) else { return Shown::default() };
        self.descent.end(pid, member.watched.end());
        member.see();
        self.ended_cpu += member.cpu;
        if member.role == Role::Sampled {
            return member.shown();
        }
        self.show_above(member);
        Shown::default()
    }

    /// A subject of which there is no sample is shown by its name in an ancestor instead.
    pub fn end_unsampled(&mut self, pid: u32) {
        if let Some(member) = self.members.get_mut(&pid) {
            member.role = Role::Unsampled;
        }
        self.end(pid);
    }

    /// Shows what is known of a process that is no subject in one that is.
    fn show_above(&mut self, mut member: Member) {
        let own = if member.role == Role::Passed { 0 } else { member.cpu - member.cpu_base };
        let place = self.shown_in(member.parent);
        if let Some(above) = self.members.get_mut(&place) {
            above.unsampled.add(&member.name, own);
            for (name, cpu) in member.unsampled.take() {
                above.unsampled.add(&name, cpu);
            }
        }
    }

    /// CPU time that the job has counted beyond what we know of its processes goes to the root.
    pub fn settle(&mut self) {
        let Some(job) = &self.job else { return };
        // Before those that still run are read: what they use meanwhile is not taken for that of others.
        let total = job.cpu_ns();
        let living = |member: &mut Member| {
            member.see();
            member.cpu
        };
        let known: u64 = self.ended_cpu + self.members.values_mut().map(living).sum::<u64>();
        let unseen = total.saturating_sub(known + self.shown);
        self.shown += unseen;
        if let Some(root) = self.members.get_mut(&self.root) {
            root.unsampled.add(SHORT_LIVED, unseen);
        }
    }

    /// A window ends, or the recording: what is shown in a subject until here.
    pub fn cut(&mut self, pid: u32) -> Shown {
        self.members.get_mut(&pid).map_or_else(Shown::default, Member::shown)
    }

    /// The recording ends for those that are no subjects: they are shown in one that is.
    pub fn leave_unsampled(&mut self) {
        for pid in self.youngest_first(|_, member| member.role != Role::Sampled) {
            if let Some(mut member) = self.members.remove(&pid) {
                member.see();
                self.ended_cpu += member.cpu;
                self.show_above(member);
            }
        }
    }
}
