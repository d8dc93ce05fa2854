//! What a sample copies before its walk: thread states, the GIL, the data stack, and what the last walk met elsewhere.

use super::frames::{DataStack, Top};
use super::heads::ThreadHead;
use super::offsets::Offsets;
use super::threads::Thread;
use super::{CPython, half, word};
use crate::error::ReadError;
use crate::memory::{Memory, Region, Snapshot};

/// Most data-stack chunks of one thread copied ahead of a walk.
const MAX_CHUNKS: usize = 64;
/// Most bytes of data stack copied ahead of a walk; deeper frames are read one by one.
const MAX_CHUNK_BYTES: u64 = 1 << 20;
/// Bytes copied above the last known top of a data stack: a stack grows a little between two samples.
const CHUNK_SLACK: u64 = 1024;
/// Bytes by which a copy that was too long gets shorter at each sample.
const CHUNK_DECAY: u64 = 64;
/// Header of a data-stack chunk: previous, size, top (struct _stack_chunk, cpython/pystate.h, 3.11 to 3.14).
const CHUNK_HEADER: u64 = 24;
/// Most regions outside of the data stack remembered per thread.
const MAX_REGIONS: usize = 256;

/// Bytes between two regions that are copied along with them.
const MAX_GAP: u64 = 4096;
/// Most bytes of joined regions: as many as a data stack may have.
const MAX_JOINED: u64 = MAX_CHUNK_BYTES;
/// Most of these that the last walk did not meet.
const MAX_STALE: usize = 32;

impl CPython {
    /// The one read that most samples need: thread states, GIL, and what the last walk met. False: no state is known
    /// for `tid`, or one that is known is not its own any more.
    pub(super) fn load(&mut self, memory: &dyn Memory, snapshot: &mut Snapshot, tid: u32) -> Result<bool, ReadError> {
        self.loaded.clear();
        let Some(states) = self.threads.by_tid.get(&tid) else { return Ok(false) };
        self.wanted.clear();
        for thread in states {
            let tid_at = self.threads.tid_address(thread);
            self.wanted.push(state_region(&self.offsets, thread));
            self.wanted.push(gil_region(&self.offsets, thread));
            self.wanted.extend(tid_at.map(|address| Region { address, size: 4 }));
            self.wanted.extend_from_slice(&thread.regions);
            self.wanted.extend_from_slice(&thread.chunks);
        }
        coalesce(&mut self.wanted);
        snapshot.load(memory, &self.wanted)?;
        for thread in states {
            match self.loaded(memory, snapshot, thread)? {
                Some(loaded) => self.loaded.push(loaded),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn loaded(
        &self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        thread: &Thread,
    ) -> Result<Option<Loaded>, ReadError> {
        let offsets = &self.offsets;
        let (state, gil) = (state_region(offsets, thread), gil_region(offsets, thread));
        if let Some(address) = self.threads.tid_address(thread)
            && snapshot.u32(memory, address) != Ok(thread.inner_tid)
        {
            return Ok(None);
        }
        let holds_gil = match snapshot.bytes(memory, gil.address, gil.size as usize) {
            Ok(bytes) => {
                half(bytes, offsets.gil_locked) == Some(1) && word(bytes, offsets.gil_holder) == Some(thread.state)
            }
            Err(error @ ReadError::OverBudget) => return Err(error),
            Err(_) => false,
        };
        let bytes = match snapshot.bytes(memory, state.address, state.size as usize) {
            Ok(bytes) => bytes,
            Err(ReadError::Unmapped) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(head) = ThreadHead::parse(offsets, bytes) else { return Ok(None) };
        if head.pthread != thread.pthread || head.native_id != thread.native_id {
            return Ok(None);
        }
        let field = |at: u32| word(bytes, at).unwrap_or(0);
        let top = match offsets.thread_cframe {
            0 => Top::Frame(field(offsets.thread_frame)),
            at => Top::CFrame { address: field(at), root: thread.state + u64::from(offsets.thread_root_cframe) },
        };
        let data = match offsets.thread_chunk {
            0 => DataStack::default(),
            at => DataStack { chunk: field(at), top: field(at + 8), limit: field(at + 16) },
        };
        Ok(Some(Loaded { top, data, holds_gil }))
    }

    /// Sees to it that the used part of every data-stack chunk is in the snapshot.
    pub(super) fn load_chunks(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        tid: u32,
        index: usize,
        data: DataStack,
    ) -> Result<(), ReadError> {
        let Some(thread) = self.threads.state_mut(tid, index) else { return Ok(()) };
        let last = thread.chunks.first().copied();
        thread.chunks.clear();
        let (mut chunk, mut used) = (data.chunk, data.top.saturating_sub(data.chunk));
        let mut total = 0u64;
        while chunk != 0 && thread.chunks.len() < MAX_CHUNKS && used >= CHUNK_HEADER {
            total = used.saturating_add(total);
            if total > MAX_CHUNK_BYTES {
                break;
            }
            if snapshot.copied(chunk, used as usize).is_none() {
                self.wanted.clear();
                self.wanted.push(Region { address: chunk, size: used as u32 });
                snapshot.load(memory, &self.wanted)?;
            }
            let Some(header) = snapshot.copied(chunk, CHUNK_HEADER as usize) else { break };
            let (previous, size) = (word(header, 0).unwrap_or(0), word(header, 8).unwrap_or(0));
            // What was copied last time shrinks slowly: a stack goes up and down.
            let before = last.filter(|last| last.address == chunk).map_or(0, |last| u64::from(last.size));
            let kept = (used + CHUNK_SLACK).max(before.saturating_sub(CHUNK_DECAY)).min(size).max(used);
            thread.chunks.push(Region { address: chunk, size: kept as u32 });
            chunk = previous;
            if chunk == 0 {
                break;
            }
            // An older chunk says itself how many words of it are used.
            used = match snapshot.bytes(memory, previous, CHUNK_HEADER as usize) {
                Ok(header) => word(header, 16).unwrap_or(0).saturating_mul(8).saturating_add(CHUNK_HEADER),
                Err(error @ ReadError::OverBudget) => return Err(error),
                _ => 0,
            };
        }
        Ok(())
    }

    /// Takes along next time what this walk met outside of the data stack, from the place `first` of that list on.
    pub(super) fn remember(&mut self, tid: u32, index: usize, first: usize) {
        let Some(thread) = self.threads.state_mut(tid, index) else { return };
        let touched = self.walk.touched.iter().skip(first).take(MAX_REGIONS);
        // The old list, for the while.
        std::mem::swap(&mut thread.regions, &mut self.wanted);
        thread.regions.clear();
        thread.regions.extend(touched.map(|&(address, size)| Region { address, size }));
        // Frames on the heap come back at the addresses of a few samples ago.
        let now = thread.regions.len();
        for region in &self.wanted {
            if thread.regions.len() >= (now + MAX_STALE).min(MAX_REGIONS) {
                break;
            }
            if !thread.regions[..now].contains(region) {
                thread.regions.push(*region);
            }
        }
    }
}

fn state_region(offsets: &Offsets, thread: &Thread) -> Region {
    Region { address: thread.state, size: ThreadHead::size(offsets) }
}

fn gil_region(offsets: &Offsets, thread: &Thread) -> Region {
    Region { address: thread.gil, size: offsets.gil_locked.max(offsets.gil_holder) + 8 }
}

/// What the first read of a sample says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    pub top: Top,
    pub data: DataStack,
    pub holds_gil: bool,
}

/// Sorts, and joins neighbours: a region more costs as much as 16 KiB more (0.5 µs, kernel 6.18). With gaps below a page
/// no page is touched that holds none of the regions.
pub(super) fn coalesce(regions: &mut Vec<Region>) {
    regions.sort_unstable_by_key(|region| (region.address, region.size));
    let mut kept = 0;
    for index in 1..regions.len() {
        let next = regions[index];
        let last = &mut regions[kept];
        let end = last.address.saturating_add(u64::from(last.size));
        let size = next.address.saturating_add(u64::from(next.size)).max(end) - last.address;
        if next.address.saturating_sub(end) < MAX_GAP && size <= MAX_JOINED {
            last.size = size as u32;
        } else {
            kept += 1;
            regions[kept] = next;
        }
    }
    regions.truncate(kept + 1);
}
