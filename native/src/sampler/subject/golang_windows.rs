//! Go on Windows: it is not looked for, so that nothing is known of any thread.

use super::{Scratch, Subject};
use crate::error::ReadError;
use crate::memory::{Memory, Snapshot};
use crate::target::Mapping;
use crate::unwind::guest::{Look, Seen};

/// The Go of one process: none.
#[derive(Debug, Default)]
pub struct Golang {}

impl Golang {
    /// The process runs another program.
    pub fn forget(&mut self) {}

    /// Reads what is known of a thread.
    pub fn read(&mut self, _: &dyn Memory, _: &mut Snapshot, _: impl FnOnce() -> Look) -> Result<Seen, ReadError> {
        Ok(Seen::default())
    }
}

impl Subject {
    /// Looks for Go.
    pub(super) fn look_for_go(&mut self, _: u64, _: Option<&[Mapping]>) {}

    /// Says so if there is Go that is not understood.
    pub(super) fn note_go(&mut self) {}

    /// The id of the labels that the goroutine of the last copy has: that of no labels.
    pub fn labels(&mut self, _: &Scratch) -> u32 {
        0
    }
}
