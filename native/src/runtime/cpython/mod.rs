//! CPython 3.8 to 3.14 (GIL builds), from outside.
//!
//! [`CPython::open`] finds the interpreter (`locate`) and what it keeps where (`offsets`); [`CPython::copy`] copies and
//! walks one thread's stack while it stands still (`frames`, `threads`, `code`); [`CPython::frame`] says afterwards what
//! a frame is (`linetable`). Free-threaded builds, 3.7 and older, 3.15: refused in `locate`, which is their place.

mod code;
mod frames;
mod heads;
mod image;
mod linetable;
mod loading;
mod locate;
mod namespace;
mod offsets;
mod offsets_tables;
mod offsets_tables_windows;
mod strings;
mod threads;
mod values;
mod version;
mod watch;

use std::fs::File;
use std::io;

use rustc_hash::FxHashMap;

use crate::error::{Error, ReadError};
use crate::memory::{Memory, Region, Snapshot};
use crate::stats::Cache;
use crate::target::Mapping;
use code::Codes;
pub use code::{CodeId, FunctionId, MAX_CODES, PyFunction, UNKNOWN};
pub use frames::{End, Group, MAX_DEPTH, PyStack, RawFrame};
use frames::{Ground, Position, Walk};
pub use linetable::Lines;
use loading::{Loaded, coalesce};
use offsets::Offsets;
use threads::Threads;
pub use values::{FrameLocals, Kind as LocalKind, Local, Look, ThreadLocals};

/// Most new code objects read while a thread stands still. Those of a program that makes functions all the time are few
/// and short-lived; those of a first look at a deep stack are many, and live on.
const MAX_LEARNED_IN_STOP: u32 = 8;

/// An interpreter in another process.
#[derive(Debug)]
pub struct CPython {
    offsets: Offsets,
    layout: values::Layout,
    version: String,
    threads: Threads,
    codes: Codes,
    walk: Walk,
    wanted: Vec<Region>,
    /// Per distinct code object of a walk: what is known of it.
    seen: FxHashMap<u64, Option<code::Seen>>,
    /// What the first read of a sample said of each of the thread's states.
    loaded: Vec<Loaded>,
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
            layout: found.layout,
            version: found.version,
            threads: Threads::new(found.runtime, pid),
            codes: Codes::default(),
            walk: Walk::default(),
            wanted: Vec::new(),
            seen: FxHashMap::default(),
            loaded: Vec::new(),
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

    /// A round of samples begins: how often lists are read in one is bounded.
    pub fn begin_round(&mut self) {
        self.threads.begin_round();
    }

    /// Whether `tid` has a Python thread state, as of the last refresh.
    pub fn knows(&self, tid: u32) -> bool {
        self.threads.knows(tid)
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
        let mut own = self.load(memory, snapshot, tid)?;
        // A thread without a state pays for a look at what a new one would change, not for the lists. One that has a
        // state gets another only where there are more interpreters.
        let looks = if self.threads.knows(tid) { own && self.threads.several_interpreters } else { true };
        let known = !looks || self.threads.watch.unchanged(memory, snapshot, &self.offsets)?;
        if !known || (!own && self.threads.knows(tid)) {
            if self.threads.may_refresh() {
                snapshot.check_budget()?;
                self.refresh(memory)?;
                own = self.load(memory, snapshot, tid)?;
            } else if !own {
                stack.end = End::PutOff;
            }
        }
        if !own {
            return Ok(());
        }
        for index in 0..self.loaded.len() {
            let Loaded { top, data, holds_gil } = self.loaded[index];
            stack.holds_gil |= holds_gil;
            self.load_chunks(memory, snapshot, tid, index, data)?;
            let chunks = self.threads.state(tid, index).map_or(&[][..], |thread| &thread.chunks);
            let mut ground = Ground { memory, snapshot, offsets: &self.offsets, data, chunks };
            let touched = self.walk.touched.len();
            self.walk.run(&mut ground, top)?;
            if self.walk.end != End::Base {
                break;
            }
            self.remember(tid, index, touched);
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

    /// The variables of the frames that the last [`CPython::copy`] walked; their thread still stands.
    pub fn locals(&self, memory: &dyn Memory, look: Look) -> ThreadLocals {
        values::read(memory, &self.offsets, &self.layout, &self.walk.frames, look)
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
