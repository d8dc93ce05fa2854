//! Go in a process under recording: finding it, what its runtime knows of each thread, labels.

use std::cell::RefCell;
use std::rc::Rc;

use super::native::Named;
use super::{Scratch, Subject};
use crate::error::ReadError;
use crate::memory::{Memory, Snapshot};
use crate::runtime::go::candidates::candidates;
use crate::runtime::go::image::Image;
use crate::runtime::go::threads::Threads;
use crate::runtime::go::{Go, labels};
use crate::tables::{FrameLine, Tables};
use crate::target::linux::{self, Process};
use crate::target::{Mapping, sys};
use crate::unwind::guest::{Look, Seen};

/// Attempts to find Go while nothing new is mapped: a program that has just begun has no goroutines yet.
const ATTEMPTS: u32 = 40;
/// First and longest wait between two attempts.
const WAIT_NS: (u64, u64) = (5_000_000, 500_000_000);
/// The attempts may take one part in this many of our CPU time.
const SHARE: u64 = 20;
/// Programs that are kept from one recording to the next.
const KEPT: usize = 4;

/// The program of a process: its pid and start, its memory, and the first mapping of the file that holds Go.
type Key = (u32, u64, Option<linux::Image>, u64);

thread_local! {
    static LATEST: RefCell<Vec<(Key, Rc<Go<'static>>)>> = const { RefCell::new(Vec::new()) };
}

/// The Go of one process.
#[derive(Debug, Default)]
pub struct Golang {
    go: Option<Rc<Go<'static>>>,
    threads: Threads,
    attempts: u32,
    next: u64,
    wait: u64,
    maps: usize,
    refused: Option<&'static str>,
    /// Samples whose labels could not be read, or did not fit.
    pub unlabelled: u64,
}

impl Golang {
    /// The process runs another program.
    pub fn forget(&mut self) {
        *self = Golang::default();
    }

    /// Such as `Go 1.26.8`.
    fn name(go: &Go<'_>) -> String {
        let version = go.version();
        format!("Go {}", version.strip_prefix("go").unwrap_or(version)).trim_end().to_string()
    }

    /// Reads what is known of a thread, and its goroutine's stack. What cannot be read is found out in the walk.
    pub fn read(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        look: impl FnOnce() -> Look,
    ) -> Result<Seen, ReadError> {
        let Some(go) = &self.go else { return Ok(Seen::default()) };
        let found = self.threads.read(go, memory, snapshot, look(), sys::monotonic_ns())?;
        Ok(found.unwrap_or_default())
    }

    fn find(
        &mut self,
        process: &Process,
        image: Option<linux::Image>,
        mappings: &[Mapping],
    ) -> Option<Rc<Go<'static>>> {
        let within = candidates(process, mappings);
        let key = (process.pid, process.start_time, image, within.first()?.start);
        let latest = |kept: &Vec<(Key, Rc<Go<'static>>)>| {
            kept.iter().find(|(known, _)| *known == key).map(|(_, go)| Rc::clone(go))
        };
        if let Some(go) = LATEST.with_borrow(latest) {
            return Some(go);
        }
        let own: Rc<dyn Memory> = Rc::new(process.another());
        match Go::find(process, Image::modules(process, &own, &within, mappings)) {
            Ok(go) => {
                let go = Rc::new(go);
                LATEST.with_borrow_mut(|kept| {
                    kept.truncate(KEPT - 1);
                    kept.insert(0, (key, Rc::clone(&go)));
                });
                Some(go)
            }
            Err(reason) => {
                self.refused = reason.map(|(reason, _)| reason);
                None
            }
        }
    }
}

impl Named for Go<'_> {
    fn holds(&self, pc: u64) -> bool {
        self.table.find(pc).is_some()
    }

    fn panics(&self, callee: u8) -> bool {
        Go::panics(self, callee)
    }

    fn lines(&self, tables: &mut Tables, pc: u64, callee: u8) -> (Vec<FrameLine>, u8) {
        let (calls, last) = self.shown(pc, callee);
        (calls.iter().map(|call| self.line(tables, call)).collect(), last)
    }
}

impl Subject {
    /// Looks for Go, unless it was found or looked for in vain.
    pub(super) fn look_for_go(&mut self, now: u64, mappings: Option<&[Mapping]>) {
        if self.native.is_none() || self.golang.go.is_some() || now < self.golang.next {
            return;
        }
        let began = sys::thread_cpu_ns();
        let read;
        let mappings = match mappings {
            Some(mappings) => mappings,
            None => {
                read = self.process.mappings().unwrap_or_default();
                &read
            }
        };
        let golang = &mut self.golang;
        if golang.maps != mappings.len() {
            (golang.maps, golang.attempts, golang.wait) = (mappings.len(), 0, WAIT_NS.0);
        }
        let mut found = None;
        if golang.attempts < ATTEMPTS {
            golang.attempts += 1;
            let image = self.process.image();
            found = golang.find(&self.process, image, mappings);
        }
        let cost = sys::thread_cpu_ns().saturating_sub(began);
        golang.next = sys::monotonic_ns() + golang.wait.max(cost * SHARE).min(WAIT_NS.1);
        golang.wait = (golang.wait * 3 / 2).min(WAIT_NS.1);
        let Some(go) = found else { return };
        golang.refused = None;
        golang.go = Some(Rc::clone(&go));
        if self.runtime_name.is_empty() {
            self.runtime_name = Golang::name(&go);
        }
        if let Some(native) = &mut self.native {
            native.set_go(Some(go));
        }
    }

    /// Says so if there is Go that is not understood.
    pub(super) fn note_go(&mut self) {
        if let Some(reason) = self.golang.refused {
            self.note(format!("its Go is not understood ({reason}): stacks are those of a native program"));
        }
        if self.golang.unlabelled > 0 {
            let count = std::mem::take(&mut self.golang.unlabelled);
            self.note(format!("the labels of {count} samples could not be read, or were more than fit"));
        }
    }

    /// The id of the labels that the goroutine of the last copy has.
    pub fn labels(&mut self, scratch: &Scratch) -> u32 {
        let (Some(go), 1..) = (&self.golang.go, scratch.seen.labels) else { return 0 };
        let read = go.minor().and_then(|minor| labels::read(&self.process, scratch.seen.labels, minor).ok());
        match read.and_then(|set| self.tables.label_set(set)) {
            Some(id) => id,
            None => {
                self.golang.unlabelled += 1;
                0
            }
        }
    }
}
