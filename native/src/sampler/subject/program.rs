//! What program a process runs, and the runtime in it.

use super::Subject;
use crate::error::Error;
use crate::runtime::cpython::CPython;
use crate::sampler::thread::ThreadStack;
use crate::target::{Mapping, procfs, sys};

/// First and longest wait between two attempts to find a runtime.
pub const OPEN_WAIT_NS: (u64, u64) = (2_000_000, 100_000_000);
/// The attempts may take one part in this many of our CPU time.
const OPEN_SHARE: u64 = 20;
/// Attempts to find a runtime while nothing new is mapped.
const OPEN_ATTEMPTS: u32 = 40;

impl Subject {
    /// Looks for a runtime; true if there is one.
    pub fn open_runtime(&mut self) -> Result<bool, Error> {
        let Ok(mappings) = self.process.mappings() else { return Ok(false) };
        let open = |mapping: &Mapping| self.process.open_mapped_file(mapping);
        if let Some(mut python) = CPython::open(&self.process, &mappings, self.process.pid, &open)? {
            let _ = python.refresh(&self.process);
            self.runtime_name = format!("CPython {}", python.version());
            if let Some(native) = &mut self.native {
                native.renew(&self.process);
                native.find_evaluation(&self.process, python.runtime_address());
            }
            self.runtime = Some(python);
            self.forget_runtime_ids();
        }
        Ok(self.runtime.is_some())
    }

    /// Ids of a runtime that is no more mean nothing.
    pub(super) fn forget_runtime_ids(&mut self) {
        self.python.clear();
        self.known.clear();
        if let Some(native) = &mut self.native {
            native.forget_ids();
        }
    }

    pub(super) fn retry_runtime(&mut self) {
        let maps = procfs::read_maps(self.process.pid).map_or(0, |maps| maps.len());
        if maps != self.runtime_maps {
            self.runtime_maps = maps;
            self.runtime_attempts = 0;
        }
        let began = sys::thread_cpu_ns();
        if self.runtime_attempts < OPEN_ATTEMPTS {
            self.runtime_attempts += 1;
            if let Err(error) = self.open_runtime() {
                self.runtime_attempts = OPEN_ATTEMPTS;
                self.note(error.message);
            }
        }
        // A program with much to look through is looked at less often.
        let cost = sys::thread_cpu_ns().saturating_sub(began);
        self.next_open = sys::monotonic_ns() + self.open_wait.max((cost * OPEN_SHARE).min(OPEN_WAIT_NS.1));
        self.open_wait = (self.open_wait * 3 / 2).min(OPEN_WAIT_NS.1);
    }

    pub(super) fn check(&mut self, now: u64) {
        let Some(image) = self.process.image() else { return };
        if self.image.is_some_and(|old| old != image) {
            self.process.reopen();
            self.runtime = None;
            self.forget_runtime_ids();
            if let Some(native) = &mut self.native {
                native.forget_program();
            }
            for thread in self.threads.values_mut() {
                (thread.asleep, thread.stack) = (None, ThreadStack::default());
            }
            (self.runtime_attempts, self.runtime_maps, self.open_wait, self.next_open) = (0, 0, OPEN_WAIT_NS.0, now);
        }
        self.image = Some(image);
        if let Some(python) = &mut self.runtime {
            let _ = python.refresh(&self.process);
        }
        if let Some(native) = &mut self.native {
            native.refresh(&self.process, now, false);
        }
    }
}
