//! What program a process runs, and the runtime in it.

use super::Subject;
use super::tick::CLOSE_LOOKS;
use crate::error::Error;
use crate::runtime::cpython::CPython;
use crate::sampler::long_sleep::Turn;
use crate::target::{Mapping, sys};

/// First and longest wait between two attempts to find a runtime.
pub const OPEN_WAIT_NS: (u64, u64) = (2_000_000, 100_000_000);
/// The attempts may take one part in this many of our CPU time …
const OPEN_SHARE: u64 = 20;
/// … but the first ones after something new was mapped more: an interpreter starts in 10 ms, which are to be seen.
const EAGER: (u32, u64) = (8, 3);
/// The same of looks at what is mapped after them, and at all threads of a runtime; and the longest wait between two.
const SETTLED_SHARE: u64 = 500;
const MAX_SETTLED_NS: u64 = 2_000_000_000;
/// Attempts to find a runtime while nothing new is mapped.
const OPEN_ATTEMPTS: u32 = 40;

impl Subject {
    /// Looks for a runtime; true if there is one.
    pub fn open_runtime(&mut self) -> Result<bool, Error> {
        match self.process.mappings() {
            Ok(mappings) => self.open_runtime_in(mappings),
            Err(_) => Ok(false),
        }
    }

    fn open_runtime_in(&mut self, mappings: Vec<Mapping>) -> Result<bool, Error> {
        let open = |mapping: &Mapping| self.process.open_mapped_file(mapping);
        if let Some(mut python) = CPython::open(&self.process, &mappings, self.process.pid, &open)? {
            let _ = python.refresh(&self.process);
            self.runtime_name = format!("CPython {}", python.version());
            self.runtime = Some(python);
            self.forget_runtime_ids();
            self.renew_native(mappings);
        }
        Ok(self.runtime.is_some())
    }

    /// Takes over what is mapped, and where the evaluation loop is in it.
    pub(super) fn renew_native(&mut self, mappings: Vec<Mapping>) {
        let Some(native) = &mut self.native else { return };
        native.renew(&self.process, mappings);
        if let Some(python) = &self.runtime {
            native.find_evaluation(&self.process, python.runtime_address());
        }
    }

    /// Ids of a runtime that is no more mean nothing.
    pub(super) fn forget_runtime_ids(&mut self) {
        self.python.clear();
        self.known.clear();
        if let Some(native) = &mut self.native {
            native.forget_ids();
        }
    }

    pub(super) fn retry_runtime(&mut self, now: u64) {
        let began = sys::thread_cpu_ns();
        // Before what is mapped is read: a runtime that is found is that of this program.
        self.check_image(now);
        let mappings = self.process.mappings().unwrap_or_default();
        if mappings.len() != self.runtime_maps {
            self.runtime_maps = mappings.len();
            self.runtime_attempts = 0;
        }
        let (mut share, mut longest) = (SETTLED_SHARE, MAX_SETTLED_NS);
        let eager = self.runtime_attempts < EAGER.0;
        if self.runtime_attempts < OPEN_ATTEMPTS {
            (share, longest) = (if eager { EAGER.1 } else { OPEN_SHARE }, OPEN_WAIT_NS.1);
            self.runtime_attempts += 1;
            if let Err(error) = self.open_runtime_in(mappings) {
                self.runtime_attempts = OPEN_ATTEMPTS;
                self.note(error.message);
            }
        }
        // A program with much to look through is looked at less often.
        let cost = sys::thread_cpu_ns().saturating_sub(began);
        self.next_open = sys::monotonic_ns() + self.open_wait.max((cost * share).min(longest));
        if !eager {
            self.open_wait = (self.open_wait * 3 / 2).min(OPEN_WAIT_NS.1);
        }
    }

    /// Whether it still runs the same program.
    fn check_image(&mut self, now: u64) {
        let Some(image) = self.process.image() else { return };
        if self.image.is_some_and(|old| old != image) {
            self.process.reopen();
            self.runtime = None;
            self.forget_runtime_ids();
            if let Some(native) = &mut self.native {
                native.forget_program();
            }
            self.golang.forget();
            self.count_all_owed();
            for thread in self.threads.values_mut() {
                (thread.asleep, thread.stack, thread.long_sleep) = Default::default();
            }
            self.turns.iter_mut().for_each(|turn| *turn = Turn::new(turn.tid));
            (self.runtime_attempts, self.runtime_maps, self.open_wait, self.next_open) = (0, 0, OPEN_WAIT_NS.0, now);
        }
        self.image = Some(image);
    }

    pub(super) fn check(&mut self, now: u64) {
        self.check_image(now);
        if now >= self.next_refresh
            && let Some(python) = &mut self.runtime
        {
            let began = sys::thread_cpu_ns();
            let _ = python.refresh(&self.process);
            let cost = sys::thread_cpu_ns().saturating_sub(began);
            // A young interpreter is to be seen as soon as it is there.
            let crowd = self.threads.len() > CLOSE_LOOKS;
            self.next_refresh = if crowd { now + (cost * SETTLED_SHARE).min(MAX_SETTLED_NS) } else { now };
        }
        if let Some(native) = &mut self.native {
            native.refresh(&self.process, now, false);
        }
    }
}
