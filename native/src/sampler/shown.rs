//! What of the CPU time of other processes is shown in one.

use rustc_hash::FxHashMap;

/// Most names under which the CPU time of unsampled processes is shown in one process.
const MAX_NAMES: usize = 256;
/// What stands for the name of a process that nobody saw.
pub const SHORT_LIVED: &str = "short-lived";

/// What is done with a process of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is a subject.
    Sampled,
    /// It cannot be: its CPU time is shown under its name in the nearest ancestor that is.
    Unsampled,
    /// It was not asked for.
    Passed,
}

/// What is shown in a process besides its samples. Times in nanoseconds.
#[derive(Debug, Default)]
pub struct Shown {
    /// Its CPU time, that of before the recording included.
    pub cpu: u64,
    /// CPU time of processes that were never sampled, by their names.
    pub unsampled: Vec<(String, u64)>,
}

/// CPU time below a process that is to be shown in it, by name.
#[derive(Debug, Default)]
pub struct Unsampled(FxHashMap<String, u64>);

impl Unsampled {
    /// Adds some.
    pub fn add(&mut self, name: &str, cpu: u64) {
        if cpu == 0 {
            return;
        }
        let room = self.0.len() < MAX_NAMES || self.0.contains_key(name);
        *self.0.entry(if room { name } else { SHORT_LIVED }.to_string()).or_default() += cpu;
    }

    /// All of it, by name; from now on there is none.
    pub fn take(&mut self) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> = std::mem::take(&mut self.0).into_iter().collect();
        all.sort_unstable();
        all
    }
}
