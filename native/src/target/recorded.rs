//! Saved memory of a process: what a [`Recorder`] saw being read, to be read again in tests, fuzzing and bug reports.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::ReadError;
use crate::memory::Memory;
use crate::target::Mapping;

/// A process's mappings and those parts of its memory that were read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// What was mapped.
    pub mappings: Vec<Mapping>,
    /// Bytes by their address. Pieces may overlap; the longest at an address is kept.
    pub pieces: BTreeMap<u64, Vec<u8>>,
}

impl Recorded {
    /// Memory that holds nothing but `bytes`, at `address`.
    pub fn of(address: u64, bytes: &[u8]) -> Recorded {
        Recorded { mappings: Vec::new(), pieces: BTreeMap::from([(address, bytes.to_vec())]) }
    }
}

impl Memory for Recorded {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let found = self.pieces.range(..=address).rev().take(64).find_map(|(&start, bytes)| {
            let from = usize::try_from(address - start).ok()?;
            bytes.get(from..from.checked_add(buffer.len())?)
        });
        buffer.copy_from_slice(found.ok_or(ReadError::Unmapped)?);
        Ok(())
    }
}

/// Another memory, whose every successful read is kept.
pub struct Recorder<'a> {
    memory: &'a dyn Memory,
    pieces: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl<'a> Recorder<'a> {
    /// Records what is read of `memory`.
    pub fn new(memory: &'a dyn Memory) -> Self {
        Recorder { memory, pieces: RefCell::default() }
    }

    /// The recording.
    pub fn finish(self, mappings: Vec<Mapping>) -> Recorded {
        Recorded { mappings, pieces: self.pieces.into_inner() }
    }
}

impl Memory for Recorder<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.memory.read(address, buffer)?;
        let mut pieces = self.pieces.borrow_mut();
        let piece = pieces.entry(address).or_default();
        if piece.len() < buffer.len() {
            *piece = buffer.to_vec();
        }
        Ok(())
    }
}
