//! One process of a tree, as far as its CPU time goes.

use super::shown::{Role, Shown, Unsampled};
use crate::target::sys;

/// One process of the tree. Times in nanoseconds.
#[derive(Debug)]
pub struct Node {
    /// Clock ticks since boot at its start: its identity, with the pid.
    pub start_time: u64,
    /// Its parent, as last seen.
    pub parent: u32,
    /// Its name, as last seen.
    pub name: String,
    /// What is done with it.
    pub role: Role,
    /// Its CPU time.
    pub cpu: u64,
    /// Its CPU time before the recording.
    pub cpu_base: u64,
    /// What it was handed by children that it has waited for.
    pub waited: u64,
    /// What it was handed before the recording.
    pub waited_base: u64,
    /// What we know to have been handed on by children that ended since.
    pub known: u64,
    /// What of the CPU time that nobody saw was shown in windows before.
    pub shown: u64,
    /// CPU time below it that is shown here, by name.
    pub unsampled: Unsampled,
}

impl Node {
    /// CPU time that it was handed and nobody saw.
    pub fn unseen(&self) -> u64 {
        (self.waited - self.waited_base.min(self.waited)).saturating_sub(self.known)
    }

    /// The same since the last window.
    pub fn unseen_since(&self) -> u64 {
        self.unseen().saturating_sub(self.shown)
    }

    /// What it hands on when it ends, as far as we know.
    pub fn handed(&self) -> u64 {
        self.cpu + self.waited_base + self.known + self.unseen()
    }

    /// A reading of its CPU time.
    pub fn saw(&mut self, cpu: u64) {
        self.cpu = self.cpu.max(cpu);
    }

    /// Reads its CPU time.
    pub fn see(&mut self, pid: u32) {
        // A smaller figure is that of a successor with the same pid.
        self.cpu = sys::process_cpu_ns(pid).unwrap_or(0).max(self.cpu);
    }
}

impl Shown {
    /// What is left to be shown of a process.
    pub fn of(mut node: Node) -> Shown {
        Shown { cpu: node.cpu, unsampled: node.unsampled.take() }
    }
}
