//! The tree of processes below the targets, and its CPU time: each nanosecond is somebody's.
//!
//! A process that ends hands its CPU time, and what it was handed itself, to the parent that waits for it: the kernel
//! keeps the sum (`waited`). What a process was handed beyond the readings of those of its children that we knew is the
//! CPU time of children that lived and died between looks, and of the last moments of the others. Readings are handed
//! up the tree as the kernel hands up the truth, so the difference can grow at no level and is lost at none.

use rustc_hash::{FxHashMap, FxHashSet};

use super::census::Census;
use super::node::Node;
use super::shown::{Role, SHORT_LIVED, Shown, Unsampled};
use crate::target::procfs::{self, Stat};
use crate::target::sys;

/// Most ended processes whose heirs are kept.
const MAX_HEIRS: usize = 1 << 16;
/// Most generations that are climbed.
const MAX_DEPTH: usize = 4096;
/// The tree.
#[derive(Debug)]
pub struct Tree {
    nodes: FxHashMap<u32, Node>,
    /// Of those that ended: when they began, and their parent.
    heirs: FxHashMap<u32, (u64, u32)>,
    census: Census,
    /// Our own pid, if orphans become children of ours.
    reaper: Option<u32>,
    /// Those that orphans may become children of, where that is not us.
    elders: Vec<u32>,
    /// What we know to have been handed to the reaper.
    known: u64,
    root: u32,
    gone: bool,
}

impl Tree {
    /// The tree below `root`. `reaps`: it is a child of ours, and orphans become ours.
    pub fn new(root: u32, reaps: bool) -> Tree {
        let reaper = reaps.then(std::process::id);
        let mut tree = Tree {
            nodes: FxHashMap::default(),
            heirs: FxHashMap::default(),
            census: Census::new(),
            reaper,
            elders: Vec::new(),
            known: 0,
            root,
            gone: false,
        };
        let stat = procfs::read_stat(root).unwrap_or_default();
        if !reaps {
            tree.elders = elders(stat.parent);
        }
        tree.add(root, &stat, !reaps, Role::Sampled);
        tree
    }

    /// Adds a process; `was_there`: it ran before the recording.
    pub fn add(&mut self, pid: u32, stat: &Stat, was_there: bool, role: Role) {
        let cpu = sys::process_cpu_ns(pid).unwrap_or(0);
        let base = |value| if was_there { value } else { 0 };
        let node = Node {
            start_time: stat.start_time,
            parent: stat.parent,
            name: stat.name.clone(),
            role,
            cpu,
            cpu_base: base(cpu),
            waited: stat.waited_ns,
            waited_base: base(stat.waited_ns),
            known: 0,
            shown: 0,
            unsampled: Unsampled::default(),
        };
        self.heirs.remove(&pid);
        self.nodes.insert(pid, node);
    }

    /// A process of the tree.
    pub fn get(&self, pid: u32) -> Option<&Node> {
        self.nodes.get(&pid)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, pid: u32) -> Option<&mut Node> {
        self.nodes.get_mut(&pid)
    }

    /// How many processes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Processes that were born below the tree since the last look, parents before their children.
    pub fn births(&mut self, now: u64) -> Vec<(u32, Stat)> {
        let parents: Vec<u32> = self.nodes.keys().copied().chain(self.reaper).collect();
        let mut open: Vec<(u32, Stat)> = Vec::new();
        for pid in self.census.candidates(now, parents.into_iter()) {
            match procfs::read_stat(pid) {
                Ok(stat) if self.knows(pid, stat.start_time) => {}
                Ok(stat) => open.push((pid, stat)),
                Err(_) => self.census.missed(pid),
            }
        }
        self.below_us(open)
    }

    /// The same of those that the kernel told of, each with its parent.
    pub fn told(&self, born: &[(u32, u32)]) -> Vec<(u32, Stat)> {
        let mut ours: FxHashSet<u32> = FxHashSet::default();
        for &(pid, parent) in born {
            if ours.contains(&parent) || self.reaper == Some(parent) || self.nodes.contains_key(&parent) {
                ours.insert(pid);
            }
        }
        let stats = born.iter().filter(|(pid, _)| ours.contains(pid)).filter_map(|&(pid, _)| {
            procfs::read_stat(pid).ok().filter(|stat| !self.knows(pid, stat.start_time)).map(|stat| (pid, stat))
        });
        self.below_us(stats.collect())
    }

    fn below_us(&self, mut open: Vec<(u32, Stat)>) -> Vec<(u32, Stat)> {
        let mut born: Vec<(u32, Stat)> = Vec::new();
        loop {
            let before = born.len();
            open.retain(|(pid, stat)| {
                let below = self.is_below(stat) || born.iter().any(|(parent, _)| *parent == stat.parent);
                // A thread has a stat file too, and the parent of its process.
                if below && procfs::status_field(*pid, "Tgid") == Some(*pid) {
                    born.push((*pid, stat.clone()));
                }
                !below
            });
            if born.len() == before {
                return born;
            }
        }
    }

    /// Whether a process is one of the tree, or was and waits to be reaped.
    fn knows(&self, pid: u32, start_time: u64) -> bool {
        self.nodes.get(&pid).is_some_and(|node| node.start_time == start_time)
            || self.heirs.get(&pid).is_some_and(|&(began, _)| began == start_time)
    }

    fn is_below(&self, stat: &Stat) -> bool {
        if self.reaper == Some(stat.parent) || self.nodes.contains_key(&stat.parent) {
            return true;
        }
        // Its parent ended before we saw either; the group or session that it is in tells whose it was.
        let ours = |leader: u32| self.nodes.contains_key(&leader) || self.heirs.contains_key(&leader);
        self.elders.contains(&stat.parent) && (ours(stat.group) || ours(stat.session))
    }

    /// Reads the CPU time of all.
    pub fn look(&mut self) {
        self.gone = false;
        for (&pid, node) in &mut self.nodes {
            match sys::process_cpu_ns(pid) {
                Some(cpu) => node.saw(cpu),
                // A subject is met as ended by its own looks.
                None => self.gone |= node.role != Role::Sampled,
            }
        }
    }

    /// Whether the last look met one that has ended and is no subject.
    pub fn has_ended(&self) -> bool {
        self.gone
    }

    /// All that have ended, and `met`, but for the root: children before their parents.
    pub fn ended(&self, met: &FxHashSet<u32>) -> Vec<u32> {
        let root = self.root;
        self.below(|pid, _| pid != root && (met.contains(&pid) || sys::process_cpu_ns(pid).is_none()))
    }

    /// The processes in this role.
    pub fn in_role(&self, role: Role) -> Vec<u32> {
        self.nodes.iter().filter(|(_, node)| node.role == role).map(|(&pid, _)| pid).collect()
    }

    /// Those of `pids` that are passed by.
    pub fn passed(&self, pids: &[u32]) -> Vec<u32> {
        let is_passed = |pid: &u32| self.nodes.get(pid).is_some_and(|node| node.role == Role::Passed);
        pids.iter().copied().filter(is_passed).collect()
    }

    /// Reads what all were handed, and their names.
    pub fn settle_all(&mut self) {
        let pids: Vec<u32> = self.nodes.keys().copied().collect();
        for pid in pids {
            self.settle(pid);
        }
    }

    /// Reads what a process was handed; false if it has ended, and its parent was handed what it had.
    pub fn settle(&mut self, pid: u32) -> bool {
        let Some(node) = self.nodes.get_mut(&pid) else { return false };
        let Ok(stat) = procfs::read_stat(pid) else { return false };
        if stat.start_time != node.start_time {
            return false;
        }
        node.see(pid);
        node.waited = stat.waited_ns.max(node.waited);
        (node.parent, node.name) = (stat.parent, stat.name);
        true
    }

    /// The children of ours are about to be reaped: their figures are to be had until then.
    pub fn before_reaping(&mut self) {
        let Some(reaper) = self.reaper else { return };
        let ours: Vec<u32> = self.nodes.iter().filter(|(_, node)| node.parent == reaper).map(|(&pid, _)| pid).collect();
        for pid in ours {
            self.settle(pid);
        }
    }

    /// How far down a process is.
    pub fn depth(&self, pid: u32) -> usize {
        let parents = std::iter::successors(Some(pid), |pid| self.nodes.get(pid).map(|node| node.parent));
        parents.take(MAX_DEPTH).count()
    }

    /// The nearest sampled process at `pid` or above it.
    fn shown_in(&self, pid: u32) -> u32 {
        let mut pid = pid;
        for _ in 0..MAX_DEPTH {
            match self.nodes.get(&pid) {
                Some(node) if node.role == Role::Sampled => return pid,
                Some(node) => pid = node.parent,
                None => match self.heirs.get(&pid) {
                    Some(&(_, heir)) => pid = heir,
                    None => break,
                },
            }
        }
        self.root
    }

    /// A process has ended. Gives what is to be shown in it: its own CPU time since the beginning, and that below it
    /// which nobody saw, by name.
    pub fn end(&mut self, pid: u32) -> Shown {
        let Some(mut node) = self.nodes.remove(&pid) else { return Shown::default() };
        if self.heirs.len() >= MAX_HEIRS {
            self.heirs.clear();
        }
        self.heirs.insert(pid, (node.start_time, node.parent));
        let unseen = node.unseen_since();
        let handed = node.handed();
        let mut heir = node.parent;
        for _ in 0..MAX_DEPTH {
            if let Some(parent) = self.nodes.get_mut(&heir) {
                parent.known += handed;
                break;
            }
            if self.reaper == Some(heir) {
                self.known += handed;
                break;
            }
            let Some(&(_, next)) = self.heirs.get(&heir) else { break };
            heir = next;
        }
        self.adopt_orphans(pid);
        if node.role == Role::Sampled {
            node.unsampled.add(SHORT_LIVED, unseen);
            return Shown::of(node);
        }
        self.show_above(node);
        Shown::default()
    }

    /// Shows what is known of a process that is no subject in one that is.
    fn show_above(&mut self, mut node: Node) {
        let unseen = node.unseen_since();
        let own = if node.role == Role::Passed { 0 } else { node.cpu - node.cpu_base };
        let place = self.shown_in(node.parent);
        if let Some(shown) = self.nodes.get_mut(&place) {
            shown.unsampled.add(&node.name, own);
            shown.unsampled.add(SHORT_LIVED, unseen);
            for (name, cpu) in node.unsampled.take() {
                shown.unsampled.add(&name, cpu);
            }
        }
    }

    /// Such processes of the tree, children before their parents.
    fn below(&self, wanted: impl Fn(u32, &Node) -> bool) -> Vec<u32> {
        let found = self.nodes.iter().filter(|&(&pid, node)| wanted(pid, node));
        let mut found: Vec<(usize, u32)> = found.map(|(&pid, _)| (self.depth(pid), pid)).collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, pid)| pid).collect()
    }

    /// A subject of which there is no sample is shown by its name in an ancestor instead.
    pub fn end_unsampled(&mut self, pid: u32) {
        if let Some(node) = self.nodes.get_mut(&pid) {
            node.role = Role::Unsampled;
        }
        self.end(pid);
    }

    fn adopt_orphans(&mut self, parent: u32) {
        for (&pid, node) in &mut self.nodes {
            if node.parent == parent
                && let Ok(stat) = procfs::read_stat(pid)
                && stat.start_time == node.start_time
            {
                node.parent = stat.parent;
            }
        }
    }

    /// The recording ends: what is shown in a process that goes on, or in the root (`ended`: it has, and was reaped).
    pub fn leave(&mut self, pid: u32, ended: bool) -> Shown {
        let Some(mut node) = self.nodes.remove(&pid) else { return Shown::default() };
        let unseen = node.unseen_since();
        node.unsampled.add(SHORT_LIVED, unseen);
        if pid == self.root && self.reaper.is_some() {
            if ended {
                self.known += node.handed();
            }
            // To the nanosecond, where /proc has clock ticks: what we were handed ourselves.
            node.unsampled.add(SHORT_LIVED, sys::reaped_cpu_ns().saturating_sub(self.known));
        }
        Shown::of(node)
    }

    /// The name of a process was not asked for, or is now (`role`): what is shown of it until here.
    pub fn turn(&mut self, pid: u32, role: Role) -> Shown {
        let Some(node) = self.nodes.get_mut(&pid) else { return Shown::default() };
        node.see(pid);
        node.role = role;
        let shown = Shown { cpu: node.cpu, unsampled: node.unsampled.take() };
        node.cpu_base = node.cpu;
        shown
    }

    /// A window ends: what is shown in a subject until here.
    pub fn cut(&mut self, pid: u32) -> Shown {
        let Some(node) = self.nodes.get_mut(&pid) else { return Shown::default() };
        let unseen = node.unseen_since();
        node.shown += unseen;
        node.unsampled.add(SHORT_LIVED, unseen);
        Shown { cpu: node.cpu, unsampled: node.unsampled.take() }
    }

    /// The same for those that are no subjects.
    pub fn leave_unsampled(&mut self) {
        for pid in self.below(|_, node| node.role != Role::Sampled) {
            if self.settle(pid) {
                if let Some(node) = self.nodes.remove(&pid) {
                    self.show_above(node);
                }
            } else {
                self.end(pid);
            }
        }
    }
}

/// The ancestors of a process but the nearest: among them are those that orphans of the tree become children of.
fn elders(parent: u32) -> Vec<u32> {
    let next = |pid: &u32| procfs::read_stat(*pid).ok().map(|stat| stat.parent).filter(|&pid| pid != 0);
    let mut found: Vec<u32> = std::iter::successors(next(&parent), next).take(MAX_DEPTH).collect();
    if !found.contains(&1) {
        found.push(1);
    }
    found
}
