//! What is mapped in a process: how often that is read, and what becomes of what was known.

use super::native::{Native, switches};
use crate::target::Mapping;
use crate::target::os::Process;
use crate::target::sys;

/// Shortest time between two reads of what is mapped: in the course of things, and for code that is in no known mapping.
const REFRESH_NS: (u64, u64) = (100_000_000, 1_000_000);
/// Reading what is mapped may take one part in this many of our CPU time, but is not put off for longer than this.
const REFRESH_SHARE: (u64, u64) = (1000, 10);
const MAX_REFRESH_NS: u64 = 2_000_000_000;
/// Shortest time between two reads of tables that make no sense.
const READ_AGAIN_NS: u64 = 10_000_000;

impl Native {
    /// Looks at what is mapped, unless it was looked at a short while ago; true if code has come or gone. `urgent`: code
    /// was met that is not known.
    pub fn refresh(&mut self, process: &Process, now: u64, urgent: bool) -> bool {
        if now.saturating_sub(self.read) < pause(self.cost, urgent) && self.read > 0 {
            return false;
        }
        let began = sys::thread_cpu_ns();
        let mappings = process.mappings();
        // What a new file takes is taken once.
        self.cost = sys::thread_cpu_ns().saturating_sub(began);
        match mappings {
            Ok(mappings) => self.renew(process, mappings),
            Err(_) => {
                self.read = sys::monotonic_ns();
                false
            }
        }
    }

    /// Where all of what is mapped was read a short while ago: looks for that alone which the last walk met and does not
    /// know. True if there is such.
    pub(super) fn reads_single(&mut self, process: &Process) -> bool {
        let (now, address) = (sys::monotonic_ns(), self.unwinder.unknown());
        let (asked, cost) = self.single;
        if address == 0 || now.saturating_sub(asked) < pause(cost, true) {
            return false;
        }
        let began = sys::thread_cpu_ns();
        let found = process.mapping_at(address);
        self.single = (now, sys::thread_cpu_ns().saturating_sub(began));
        let Some(found) = found else { return false };
        let apart = |mapping: &&Mapping| mapping.end <= found.start || mapping.start >= found.end;
        let mut mappings: Vec<Mapping> = self.mappings.iter().filter(apart).cloned().collect();
        mappings.push(found);
        let read = self.read;
        let changed = self.renew(process, mappings);
        self.read = read;
        changed
    }

    /// A table made no sense. True if there is another by now.
    pub(super) fn reads_again(&mut self, process: &Process) -> bool {
        let now = sys::monotonic_ns();
        if now.saturating_sub(self.read_again) < READ_AGAIN_NS || !self.unwinder.read_again() {
            return false;
        }
        self.read_again = now;
        self.refresh(process, now, true);
        true
    }

    /// Takes over what is mapped now; true if code has come or gone.
    pub fn renew(&mut self, process: &Process, mut mappings: Vec<Mapping>) -> bool {
        // Windows tells modules in the order in which they were loaded.
        mappings.sort_by_key(|mapping| mapping.start);
        let open = |mapping: &Mapping| process.open_mapped_file(mapping);
        let changed = self.unwinder.set_mappings(process, &mappings, &open);
        if self.mappings != mappings {
            self.mappings = mappings;
            self.switching = self.mappings.iter().any(switches);
            self.forget_ids();
        }
        self.read = sys::monotonic_ns();
        changed
    }
}

/// How long what is mapped is not read again, nanoseconds, where that took `cost`.
fn pause(cost: u64, urgent: bool) -> u64 {
    let (wait, share) = if urgent { (REFRESH_NS.1, REFRESH_SHARE.1) } else { (REFRESH_NS.0, REFRESH_SHARE.0) };
    cost.saturating_mul(share).clamp(wait, MAX_REFRESH_NS)
}
