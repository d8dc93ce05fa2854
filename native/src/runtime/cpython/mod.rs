//! CPython 3.8 to 3.14 (GIL builds), from outside.
//!
//! [`CPython::open`] finds the interpreter (`locate`) and what it keeps where (`offsets`); [`CPython::copy`] copies and
//! walks one thread's stack while it stands still (`frames`, `threads`, `code`); [`CPython::frame`] says afterwards what
//! a frame is (`linetable`). Free-threaded builds, 3.7 and older, 3.15: refused in `locate`, which is their place.

mod code;
mod frames;
mod image;
mod linetable;
mod locate;
mod namespace;
mod offsets;
mod offsets_tables;
mod strings;
mod threads;
mod version;

use std::fs::File;
use std::io;

use rustc_hash::FxHashMap;

use crate::error::{Error, ReadError};
use crate::memory::{Memory, Region, Snapshot};
use crate::stats::Cache;
use crate::target::Mapping;
use code::Codes;
pub use code::{CodeId, FunctionId, MAX_CODES, PyFunction, UNKNOWN};
use frames::{DataStack, Ground, Position, Top, Walk};
pub use frames::{End, Group, MAX_DEPTH, PyStack, RawFrame};
pub use linetable::Lines;
use offsets::Offsets;
use threads::{ThreadHead, Threads};

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
/// Most new code objects read while a thread stands still. Those of a program that makes functions all the time are few
/// and short-lived; those of a first look at a deep stack are many, and live on.
const MAX_LEARNED_IN_STOP: u32 = 8;
/// Most of these that the last walk did not meet.
const MAX_STALE: usize = 32;

/// An interpreter in another process.
#[derive(Debug)]
pub struct CPython {
    offsets: Offsets,
    version: String,
    threads: Threads,
    codes: Codes,
    walk: Walk,
    wanted: Vec<Region>,
    /// Per distinct code object of a walk: what is known of it.
    seen: FxHashMap<u64, Option<code::Seen>>,
}

/// A frame as people know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PyFrame {
    /// Its function: [`CPython::function`].
    pub function: FunctionId,
    /// The source line, 0 for code that belongs to none.
    pub line: u32,
}

impl CPython {
    /// Finds and checks the interpreter. `Ok(None)`: none is mapped or initialized (yet). `open_file` opens the file
    /// behind a mapping, never a namesake of it.
    ///
    /// Errors: one is there, but of a kind that is not supported, or it cannot be read.
    pub fn open(
        memory: &dyn Memory,
        mappings: &[Mapping],
        pid: u32,
        open_file: &dyn Fn(&Mapping) -> io::Result<File>,
    ) -> Result<Option<CPython>, Error> {
        let Some(found) = locate::locate(memory, mappings, open_file)? else { return Ok(None) };
        let mut python = CPython {
            offsets: found.offsets,
            version: found.version,
            threads: Threads::new(found.runtime, pid),
            codes: Codes::default(),
            walk: Walk::default(),
            wanted: Vec::new(),
            seen: FxHashMap::default(),
        };
        match python.refresh(memory) {
            Ok(()) => Ok(Some(python)),
            Err(error) => Err(locate::unreadable(&python.version, error)),
        }
    }

    /// As `3.12.1`.
    pub fn version(&self) -> String {
        self.version.clone()
    }

    /// Where `_PyRuntime` is.
    pub fn runtime_address(&self) -> u64 {
        self.threads.runtime
    }

    /// How many code objects were known already.
    pub fn code_cache(&self) -> Cache {
        self.codes.looks
    }

    /// Reads the list of threads again: to be called at about 10 Hz, and when a thread is unknown. The target may run.
    ///
    /// Errors: the process is gone or may not be read; a list in change is no error.
    pub fn refresh(&mut self, memory: &dyn Memory) -> Result<(), ReadError> {
        self.threads.refresh(memory, &self.offsets)
    }

    /// Whether `tid` has a Python thread state, as of the last refresh.
    pub fn knows(&self, tid: u32) -> bool {
        self.threads.by_tid.contains_key(&tid)
    }

    /// Copies and walks the stack of `tid`, which must stand still. A thread without a thread state has no frames. The
    /// frames are there after [`CPython::finish`], which is for when the thread runs again.
    ///
    /// Errors: the pause budget is used up, or the process cannot be read. A chain that makes no sense is no error but
    /// [`End::Torn`].
    pub fn copy(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        tid: u32,
        stack: &mut PyStack,
    ) -> Result<(), ReadError> {
        stack.clear();
        self.walk.clear();
        self.seen.clear();
        let mut loaded = self.load(memory, snapshot, tid)?;
        if loaded.is_none() {
            snapshot.check_budget()?;
            self.refresh(memory)?;
            loaded = self.load(memory, snapshot, tid)?;
        }
        let Some(loaded) = loaded else { return Ok(()) };
        stack.holds_gil = loaded.holds_gil;
        self.load_chunks(memory, snapshot, tid, loaded.data)?;
        let chunks = self.threads.by_tid.get(&tid).map_or(&[][..], |thread| &thread.chunks);
        let mut ground = Ground { memory, snapshot, offsets: &self.offsets, data: loaded.data, chunks };
        self.walk.run(&mut ground, loaded.top)?;
        if self.walk.end != End::Torn {
            self.remember(tid);
        }
        stack.end = self.walk.end;
        self.load_codes(memory, snapshot)?;
        self.look_up_codes(memory, snapshot, stack)
    }

    /// Makes frames of what [`CPython::copy`] walked: reads the code objects that are new and were too many to read
    /// while the thread stood still. One that died meanwhile has the id [`UNKNOWN`].
    pub fn finish(&mut self, memory: &dyn Memory, snapshot: &mut Snapshot, stack: &mut PyStack) {
        if stack.end == End::Torn {
            return;
        }
        snapshot.lift_budget();
        for (&address, seen) in &mut self.seen {
            if let Some(seen) = seen
                && seen.id == UNKNOWN
            {
                let learned = self.codes.learn(memory, snapshot, &self.offsets, address, false);
                seen.id = learned.unwrap_or(UNKNOWN);
            }
        }
        self.codes.end_stack();
        self.fill(stack);
    }

    /// What `lasti` in `code` is. None for a code id from before [`CPython::compact`].
    pub fn frame(&mut self, code: CodeId, lasti: u32) -> Option<PyFrame> {
        let (function, line) = self.codes.resolve(self.offsets.minor, code, lasti)?;
        Some(PyFrame { function, line })
    }

    /// The function of a [`PyFrame`]. The same name, file and first line are the same id.
    pub fn function(&self, id: FunctionId) -> Option<&PyFunction> {
        self.codes.function(id)
    }

    /// Empties the cache of code objects if it is more than half full. True: every id given out is void now. To be
    /// called between windows.
    pub fn compact(&mut self) -> bool {
        self.codes.compact()
    }

    /// The one read that most samples need: thread state, GIL, and what the last walk met. None: `tid` is not the
    /// thread of the thread state that is known for it.
    fn load(&mut self, memory: &dyn Memory, snapshot: &mut Snapshot, tid: u32) -> Result<Option<Loaded>, ReadError> {
        let Some(thread) = self.threads.by_tid.get(&tid) else { return Ok(None) };
        let offsets = &self.offsets;
        let state = Region { address: thread.state, size: ThreadHead::size(offsets) };
        let gil = Region { address: thread.gil, size: offsets.gil_locked.max(offsets.gil_holder) + 8 };
        let tid_at = self.threads.pthread_tid.map(|at| thread.pthread.wrapping_add(u64::from(at)));
        self.wanted.clear();
        self.wanted.push(state);
        self.wanted.push(gil);
        self.wanted.extend(tid_at.map(|address| Region { address, size: 4 }));
        self.wanted.extend_from_slice(&thread.regions);
        self.wanted.extend_from_slice(&thread.chunks);
        coalesce(&mut self.wanted);
        snapshot.load(memory, &self.wanted)?;

        if let Some(address) = tid_at
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
            at => Top::CFrame(field(at)),
        };
        let data = match offsets.thread_chunk {
            0 => DataStack::default(),
            at => DataStack { chunk: field(at), top: field(at + 8), limit: field(at + 16) },
        };
        Ok(Some(Loaded { top, data, holds_gil }))
    }

    /// Sees to it that the used part of every data-stack chunk is in the snapshot.
    fn load_chunks(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        tid: u32,
        data: DataStack,
    ) -> Result<(), ReadError> {
        let Some(thread) = self.threads.by_tid.get_mut(&tid) else { return Ok(()) };
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

    /// Takes along next time what this walk met outside of the data stack.
    fn remember(&mut self, tid: u32) {
        let Some(thread) = self.threads.by_tid.get_mut(&tid) else { return };
        let touched = self.walk.touched.iter().take(MAX_REGIONS);
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

    /// The second read: what tells one code object from another, for all that the walk met.
    fn load_codes(&mut self, memory: &dyn Memory, snapshot: &mut Snapshot) -> Result<(), ReadError> {
        self.seen.clear();
        self.wanted.clear();
        for frame in &self.walk.frames {
            if self.seen.insert(frame.code, None).is_none() {
                self.wanted.push(Codes::key_region(&self.offsets, frame.code));
            }
        }
        coalesce(&mut self.wanted);
        snapshot.load(memory, &self.wanted)
    }

    /// Looks up every code object of the walk, and reads the first few that are new.
    fn look_up_codes(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        stack: &mut PyStack,
    ) -> Result<(), ReadError> {
        let mut learned = 0;
        for (&address, slot) in &mut self.seen {
            let mut seen = match self.codes.look_up(memory, snapshot, &self.offsets, address) {
                Ok(seen) => seen,
                Err(ReadError::Unmapped | ReadError::Corrupt(_)) => {
                    stack.tear();
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if seen.id == UNKNOWN && learned < MAX_LEARNED_IN_STOP && snapshot.check_budget().is_ok() {
                learned += 1;
                match self.codes.learn(memory, snapshot, &self.offsets, address, true) {
                    Ok(id) => seen.id = id,
                    Err(ReadError::Unmapped | ReadError::Corrupt(_)) => {
                        stack.tear();
                        return Ok(());
                    }
                    // Too late now: it is read when the thread runs again.
                    Err(ReadError::OverBudget) => {}
                    Err(error) => return Err(error),
                }
            }
            *slot = Some(seen);
        }
        Ok(())
    }

    fn fill(&mut self, stack: &mut PyStack) {
        let has_groups = self.offsets.has_data_stack();
        let mut groups = self.walk.groups.iter().copied().peekable();
        let mut in_group = 0;
        for (index, frame) in self.walk.frames.iter().enumerate() {
            while let Some(&(address, end)) = groups.peek()
                && end as usize <= index
            {
                stack.close_group(address, &mut in_group);
                groups.next();
            }
            let Some(&Some(seen)) = self.seen.get(&frame.code) else { return stack.tear() };
            match frame.position(&self.offsets, seen.bytecode, seen.size, seen.first) {
                Position::Incomplete => continue,
                Position::Outside => return stack.tear(),
                Position::At(lasti) => {
                    let (code, address) = (seen.id, frame.address);
                    stack.frames.push(RawFrame { code, lasti, address, entry: !has_groups });
                    in_group += 1;
                }
            }
        }
        for (address, _) in groups {
            stack.close_group(address, &mut in_group);
        }
    }
}

/// Sorts, and joins neighbours: a region more costs as much as 16 KiB more (0.5 µs, kernel 6.18). With gaps below a page
/// no page is touched that holds none of the regions.
fn coalesce(regions: &mut Vec<Region>) {
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

/// What the first read of a sample says.
struct Loaded {
    top: Top,
    data: DataStack,
    holds_gil: bool,
}

impl PyStack {
    fn close_group(&mut self, address: u64, frames: &mut u32) {
        if *frames > 0
            && let Some(last) = self.frames.last_mut()
        {
            last.entry = true;
        }
        self.groups.push(Group { address, frames: *frames });
        *frames = 0;
    }

    /// Without frames.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.groups.clear();
        self.end = End::Base;
        self.holds_gil = false;
    }

    fn tear(&mut self) {
        self.frames.clear();
        self.groups.clear();
        self.end = End::Torn;
    }
}

/// The little-endian u64 at `at`.
fn word(bytes: &[u8], at: u32) -> Option<u64> {
    let at = at as usize;
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The little-endian u32 at `at`.
fn half(bytes: &[u8], at: u32) -> Option<u32> {
    let at = at as usize;
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn byte(bytes: &[u8], at: u32) -> Option<u8> {
    bytes.get(at as usize).copied()
}
