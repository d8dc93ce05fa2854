//! Which processes may be new. The kernel numbers processes and threads in order and tells the last number that it gave
//! (`/proc/loadavg`, fs/proc/loadavg.c): only the numbers since the last look need to be asked for. Where that figure is
//! not to be trusted (an emulated /proc) and now and then besides, the children files of the known processes are read,
//! or where the kernel has none (CONFIG_PROC_CHILDREN) all of /proc.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::target::{procfs, sys};

/// Most numbers that are asked for one by one; after more of them everything is looked at.
const MAX_STEP: u32 = 4096;
/// Most numbers kept that were given but not seen yet: a process is numbered shortly before it can be seen.
const MAX_AGAIN: usize = 1024;
/// Shortest time between two looks at everything while the last number is known.
const SWEEP_NS: u64 = 500_000_000;
/// A look at everything may take one part in this many of our CPU time.
const SWEEP_SHARE: u64 = 100;
/// It is not put off for longer than this.
const MAX_SWEEP_NS: u64 = 10_000_000_000;

/// Watches for new processes.
#[derive(Debug)]
pub struct Census {
    loadavg: Option<File>,
    last: u32,
    /// Numbers above this one were asked for the first time at the last look.
    fresh: u32,
    again: Vec<u32>,
    next_sweep: u64,
    sweep_wait: u64,
}

fn last_number(loadavg: &File) -> Option<u32> {
    let mut buffer = [0; 128];
    let size = sys::pread(loadavg.as_raw_fd(), &mut buffer).ok()?;
    std::str::from_utf8(&buffer[..size]).ok()?.split_ascii_whitespace().last()?.parse().ok()
}

/// The file, if its last field is the number of the newest thread: one of our own is the test.
fn trusted() -> Option<(File, u32)> {
    let file = File::open("/proc/loadavg").ok()?;
    let before = last_number(&file)?;
    let own = std::thread::spawn(sys::thread_id).join().ok()?;
    let after = last_number(&file)?;
    let between = if before <= after { before < own && own <= after } else { own > before || own <= after };
    between.then_some((file, before))
}

impl Census {
    /// Begins to watch: all that is there now counts as new.
    pub fn new() -> Census {
        let (loadavg, last) = trusted().map_or((None, 0), |(file, last)| (Some(file), last));
        Census { loadavg, last, fresh: last, again: Vec::new(), next_sweep: 0, sweep_wait: 0 }
    }

    /// Numbers that may be those of new processes, in ascending order. `parents`: those whose children are looked for.
    pub fn candidates(&mut self, now: u64, parents: impl Iterator<Item = u32>) -> Vec<u32> {
        let last = self.loadavg.as_ref().and_then(last_number);
        let stepped = last.is_some_and(|last| last >= self.last && last - self.last <= MAX_STEP);
        if now < self.next_sweep && (stepped || self.loadavg.is_none()) {
            let Some(last) = last else { return Vec::new() };
            let mut found = std::mem::take(&mut self.again);
            found.extend(self.last + 1..=last);
            (self.fresh, self.last) = (self.last, last);
            return found;
        }
        self.last = last.unwrap_or(0);
        self.fresh = u32::MAX;
        self.again.clear();
        let began = sys::thread_cpu_ns();
        let found = sweep(parents);
        let cost = sys::thread_cpu_ns().saturating_sub(began);
        let least = if self.loadavg.is_some() { SWEEP_NS } else { 0 };
        self.sweep_wait = (cost * SWEEP_SHARE).clamp(least, MAX_SWEEP_NS);
        self.next_sweep = now + self.sweep_wait;
        found
    }

    /// A candidate was not to be seen: it is asked for once more.
    pub fn missed(&mut self, pid: u32) {
        if pid > self.fresh && self.again.len() < MAX_AGAIN {
            self.again.push(pid);
        }
    }
}

fn sweep(parents: impl Iterator<Item = u32>) -> Vec<u32> {
    let own = std::process::id();
    if procfs::read_children(own, own).is_none() {
        return procfs::list_processes();
    }
    let mut found: Vec<u32> = Vec::new();
    let mut queue: Vec<u32> = parents.collect();
    while let Some(pid) = queue.pop() {
        for tid in procfs::list_threads(pid) {
            let children = procfs::read_children(pid, tid).unwrap_or_default();
            queue.extend(&children);
            found.extend(children);
        }
        if found.len() > procfs::MAX_PROCESSES {
            break;
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_child_is_a_candidate_and_an_old_one_is_found_by_a_sweep() {
        let own = std::process::id();
        let mut census = Census::new();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let first = census.candidates(1, [own].into_iter());
        assert!(first.contains(&child.id()), "everything is looked at first");
        let mut second = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let step = census.candidates(2, [own].into_iter());
        if census.loadavg.is_some() {
            assert!(step.contains(&second.id()) && !step.contains(&child.id()));
        }
        let all = census.candidates(u64::MAX / 2, [own].into_iter());
        assert!(all.contains(&child.id()) && all.contains(&second.id()));
        for one in [&mut child, &mut second] {
            one.kill().unwrap();
            one.wait().unwrap();
        }
    }

    #[test]
    fn what_was_not_seen_is_asked_for_once_more() {
        let mut census = Census::new();
        census.candidates(1, std::iter::empty());
        census.candidates(2, std::iter::empty());
        census.missed(4_000_000);
        if census.loadavg.is_some() {
            assert!(census.candidates(2, std::iter::empty()).contains(&4_000_000));
            assert!(!census.candidates(3, std::iter::empty()).contains(&4_000_000));
        }
    }
}
