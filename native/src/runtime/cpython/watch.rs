//! What must be looked at to know that no thread has got a thread state since the lists were read: far less than lists.
//!
//! A new state becomes the first of its interpreter's list (Python/pystate.c, 3.8 to 3.14), a new interpreter the first
//! of the runtime's. A state that one thread makes for another is taken over later: those are looked at one by one.

use super::heads::ThreadHead;
use super::offsets::Offsets;
use crate::error::ReadError;
use crate::memory::{Memory, Region, Snapshot};

/// Most places looked at; with more, the lists are read each time.
const MAX_PLACES: usize = 64;

#[derive(Clone, Copy, Debug)]
enum Value {
    Word(u64),
    State(ThreadHead),
}

/// The places, and what was in them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    places: Vec<(u64, Value)>,
    regions: Vec<Region>,
    too_many: bool,
}

impl Watch {
    /// The head of a list.
    pub fn word(&mut self, address: u64, value: u64) {
        self.add(address, Value::Word(value));
    }

    /// A thread state. An address is used again soon: who it belongs to and what follows it tell it from its successor.
    pub fn state(&mut self, address: u64, head: ThreadHead) {
        self.add(address, Value::State(head));
    }

    fn add(&mut self, address: u64, value: Value) {
        self.too_many |= self.places.len() >= MAX_PLACES;
        if !self.too_many {
            self.places.push((address, value));
        }
    }

    /// Whether all is as it was, by one read. Of a list that was never read nothing is known.
    pub fn unchanged(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        offsets: &Offsets,
    ) -> Result<bool, ReadError> {
        if self.too_many || self.places.is_empty() {
            return Ok(false);
        }
        let head_size = ThreadHead::identity_size(offsets);
        if self.regions.is_empty() {
            let size = |value| if matches!(value, Value::Word(_)) { 8 } else { head_size };
            self.regions = self.places.iter().map(|&(address, value)| Region { address, size: size(value) }).collect();
            super::loading::coalesce(&mut self.regions);
        }
        snapshot.load(memory, &self.regions)?;
        for &(address, value) in &self.places {
            let same = match value {
                Value::Word(word) => snapshot.u64(memory, address).map(|found| found == word),
                Value::State(head) => snapshot
                    .bytes(memory, address, head_size as usize)
                    .map(|bytes| ThreadHead::parse(offsets, bytes) == Some(head)),
            };
            match same {
                Ok(true) => {}
                Ok(false) | Err(ReadError::Unmapped) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
