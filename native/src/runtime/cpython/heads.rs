//! Reading thread states: those that are known all at once, the others one by one; and how many in a round.

use rustc_hash::FxHashMap;

use super::offsets::Offsets;
use super::{half, word};
use crate::error::ReadError;
use crate::memory::{MAX_REGIONS_PER_CALL, Memory, Region};

/// Thread states that are read in one round before lists are not read again in it: four times those of a thousand threads.
const MAX_IN_ROUND: u64 = 4096;

/// The fields of a thread state that tell whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadHead {
    pub next: u64,
    pub interpreter: u64,
    pub pthread: u64,
    pub native_id: u64,
}

impl ThreadHead {
    /// The bytes of a thread state from which everything needed of it can be read.
    pub fn size(offsets: &Offsets) -> u32 {
        let last = [
            offsets.thread_next,
            offsets.thread_interpreter,
            offsets.thread_frame,
            offsets.thread_cframe,
            offsets.thread_pthread,
            offsets.thread_native_id,
            // Followed by datastack_top and datastack_limit (cpython/pystate.h, 3.11 to 3.14).
            if offsets.thread_chunk == 0 { 0 } else { offsets.thread_chunk + 16 },
        ];
        last.into_iter().max().unwrap_or(0) + 8
    }

    /// The bytes that hold the fields here.
    pub fn identity_size(offsets: &Offsets) -> u32 {
        let fields =
            [offsets.thread_next, offsets.thread_interpreter, offsets.thread_pthread, offsets.thread_native_id];
        fields.into_iter().max().unwrap_or(0) + 8
    }

    pub fn parse(offsets: &Offsets, bytes: &[u8]) -> Option<ThreadHead> {
        let id = |at: u32| if offsets.windows { half(bytes, at).map(u64::from) } else { word(bytes, at) };
        Some(ThreadHead {
            next: word(bytes, offsets.thread_next)?,
            interpreter: word(bytes, offsets.thread_interpreter)?,
            pthread: id(offsets.thread_pthread)?,
            native_id: if offsets.thread_native_id == 0 { 0 } else { id(offsets.thread_native_id)? },
        })
    }
}

/// What was read of thread states.
#[derive(Debug, Default)]
pub(super) struct Heads {
    ahead: FxHashMap<u64, ThreadHead>,
    in_round: u64,
    regions: Vec<Region>,
    buffer: Vec<u8>,
}

impl Heads {
    /// Counts anew.
    pub fn begin_round(&mut self) {
        self.in_round = 0;
    }

    /// Whether the round's allowance is not used up.
    pub fn may_read(&self) -> bool {
        self.in_round < MAX_IN_ROUND
    }

    /// Reads `states`, which the lists are likely to hold still, in as few system calls as it takes. One that cannot be
    /// read is no error, but those behind it are read one by one.
    pub fn read_ahead(
        &mut self,
        memory: &dyn Memory,
        offsets: &Offsets,
        states: impl Iterator<Item = u64>,
    ) -> Result<(), ReadError> {
        self.ahead.clear();
        let size = ThreadHead::identity_size(offsets);
        self.regions.clear();
        self.regions.extend(states.map(|address| Region { address, size }));
        for chunk in self.regions.chunks(MAX_REGIONS_PER_CALL) {
            self.buffer.resize(chunk.len() * size as usize, 0);
            let filled = memory.read_regions(chunk, &mut self.buffer)?;
            for (region, bytes) in chunk.iter().zip(self.buffer[..filled].chunks_exact(size as usize)) {
                if let Some(head) = ThreadHead::parse(offsets, bytes) {
                    self.ahead.insert(region.address, head);
                }
            }
        }
        Ok(())
    }

    /// A thread state of a list: as it was read ahead, or now.
    pub fn read(&mut self, memory: &dyn Memory, offsets: &Offsets, state: u64) -> Result<ThreadHead, ReadError> {
        self.in_round += 1;
        if let Some(&head) = self.ahead.get(&state) {
            return Ok(head);
        }
        let size = ThreadHead::identity_size(offsets) as usize;
        let bytes = memory.read_bytes(state, size, 16 << 10)?;
        ThreadHead::parse(offsets, &bytes).ok_or(ReadError::Corrupt("thread offsets out of bounds"))
    }
}
