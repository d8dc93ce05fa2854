//! Code objects met so far, and the functions that they are.

use rustc_hash::FxHashMap;

use super::linetable::Lines;
use super::offsets::Offsets;
use super::strings::read_string;
use super::{half, word};
use crate::error::ReadError;
use crate::memory::{Memory, Region, Snapshot};
use crate::stats::Cache;

/// Most code objects kept. Over it [`Codes::full`]; copies of new ones fail until the cache was compacted.
pub const MAX_CODES: usize = 200_000;
/// Longest line table read (that of a function of about 300,000 lines).
const MAX_LINES_BYTES: u64 = 1 << 20;
/// Largest line number believed.
const MAX_LINE: u32 = i32::MAX as u32;
/// Most bytes of a code object that a key needs.
const MAX_KEY_BYTES: u32 = 512;

/// A code object, in one window between compactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeId(pub u32);

/// A function: what a profile calls one name, file and first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

/// What is known of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PyFunction {
    /// co_qualname; before 3.11, where no such thing is kept, co_name.
    pub name: String,
    /// co_filename, as compiled: it can be relative.
    pub filename: String,
    /// co_firstlineno: the line of the first decorator or of `def`.
    pub start_line: u32,
}

/// The bytes that tell a code object from another at the same address: constant for its life, and shared with a
/// successor only if that is the same source. Pointers: name, qualname, filename, lines, constants, bytecode (≤ 3.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key([u64; 7]);

/// What is read of a code object at each copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub id: CodeId,
    /// Address of the bytecode (3.11+).
    pub bytecode: u64,
    /// Its bytes.
    pub size: u64,
    /// Bytes of it before the first traceable instruction.
    pub first: u64,
}

#[derive(Debug)]
struct Code {
    function: FunctionId,
    start_line: u32,
    table: Vec<u8>,
    lines: Option<Lines>,
}

/// The latest code object seen at an address.
#[derive(Clone, Copy, Debug)]
struct Latest {
    key: Key,
    id: CodeId,
}

/// The cache.
#[derive(Debug, Default)]
pub(super) struct Codes {
    latest: FxHashMap<u64, Latest>,
    known: FxHashMap<(u64, Key), CodeId>,
    codes: Vec<Code>,
    functions: Vec<PyFunction>,
    interned: FxHashMap<PyFunction, FunctionId>,
    /// File names by address, for the time of one stack: its code objects hold them, and many share one.
    filenames: FxHashMap<u64, String>,
    /// Code objects looked up.
    pub looks: Cache,
}

/// The id of a code object that could not be read. Has no function.
pub const UNKNOWN: CodeId = CodeId(u32::MAX);

impl Codes {
    /// The part of a code object that [`Codes::look_up`] needs.
    pub fn key_region(offsets: &Offsets, address: u64) -> Region {
        let last = [
            offsets.code_first_line,
            offsets.code_filename,
            offsets.code_name,
            offsets.code_qualname,
            offsets.code_lines,
            offsets.code_first_traceable,
            offsets.code_constants,
            if offsets.has_data_stack() { 0 } else { offsets.code_bytecode },
        ];
        Region { address, size: (last.into_iter().max().unwrap_or(0) + 8).min(MAX_KEY_BYTES) }
    }

    /// The code object whose first bytes are in the snapshot, with [`UNKNOWN`] for its id if it is a new one.
    pub fn look_up(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        offsets: &Offsets,
        address: u64,
    ) -> Result<Seen, ReadError> {
        let region = Codes::key_region(offsets, address);
        let head = snapshot.bytes(memory, address, region.size as usize)?;
        let key = Key::of(offsets, head).ok_or(BAD)?;
        let mut seen = Seen { id: UNKNOWN, bytecode: 0, size: 0, first: 0 };
        if offsets.has_data_stack() {
            seen.bytecode = address.wrapping_add(u64::from(offsets.code_bytecode));
            seen.size = word(head, offsets.code_units).ok_or(BAD)?.saturating_mul(2);
            seen.first = u64::from(half(head, offsets.code_first_traceable).ok_or(BAD)?) * 2;
        }
        if let Some(latest) = self.latest.get(&address)
            && latest.key == key
        {
            seen.id = latest.id;
        } else if let Some(&id) = self.known.get(&(address, key)) {
            seen.id = id;
            self.latest.insert(address, Latest { key, id });
        }
        self.looks.count(seen.id != UNKNOWN);
        Ok(seen)
    }

    /// Reads a new code object, of which the snapshot has the first bytes, live. `stopped`: the thread that holds it
    /// stands still, so that it cannot change. Otherwise it may have died since: its first bytes are looked at again
    /// afterwards, and if they are the same, so was what they point to.
    pub fn learn(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        offsets: &Offsets,
        address: u64,
        stopped: bool,
    ) -> Result<CodeId, ReadError> {
        let region = Codes::key_region(offsets, address);
        let head = snapshot.bytes(memory, address, region.size as usize)?;
        let key = Key::of(offsets, head).ok_or(BAD)?;
        let first_line = half(head, offsets.code_first_line).ok_or(BAD)?;
        let code = self.read(memory, snapshot, offsets, key, first_line)?;
        if !stopped {
            let head = memory.read_bytes(address, region.size as usize, MAX_KEY_BYTES as usize)?;
            if Key::of(offsets, &head) != Some(key) {
                return Err(ReadError::Corrupt("code object gone"));
            }
        }
        let id = CodeId(self.codes.len() as u32);
        self.codes.push(code);
        self.known.insert((address, key), id);
        self.latest.insert(address, Latest { key, id });
        Ok(id)
    }

    /// Forgets file names read for one stack.
    pub fn end_stack(&mut self) {
        self.filenames.clear();
    }

    fn read(
        &mut self,
        memory: &dyn Memory,
        snapshot: &Snapshot,
        offsets: &Offsets,
        key: Key,
        first_line: u32,
    ) -> Result<Code, ReadError> {
        if self.codes.len() >= MAX_CODES {
            return Err(ReadError::Bound("too many code objects"));
        }
        if first_line > MAX_LINE {
            return Err(BAD);
        }
        let Key([_, name, qualname, filename, lines, ..]) = key;
        snapshot.check_budget()?;
        let name = read_string(memory, offsets, if offsets.code_qualname == 0 { name } else { qualname })?;
        snapshot.check_budget()?;
        let filename = match self.filenames.get(&filename) {
            Some(text) => text.clone(),
            None => {
                let text = read_string(memory, offsets, filename)?;
                self.filenames.insert(filename, text.clone());
                text
            }
        };
        snapshot.check_budget()?;
        let size = memory.read_u64(lines.wrapping_add(u64::from(offsets.bytes_size)))?;
        if size > MAX_LINES_BYTES {
            return Err(ReadError::Bound("line table over its bound"));
        }
        let data = lines.wrapping_add(u64::from(offsets.bytes_data));
        let table = memory.read_bytes(data, size as usize, MAX_LINES_BYTES as usize)?;
        let function = self.intern(PyFunction { name, filename, start_line: first_line });
        Ok(Code { function, start_line: first_line, table, lines: None })
    }

    fn intern(&mut self, function: PyFunction) -> FunctionId {
        if let Some(&id) = self.interned.get(&function) {
            return id;
        }
        let id = FunctionId(self.functions.len() as u32);
        self.functions.push(function.clone());
        self.interned.insert(function, id);
        id
    }

    /// The function and line (0: none) at `lasti` of `code`. None for an id from before a compaction.
    pub fn resolve(&mut self, minor: u8, code: CodeId, lasti: u32) -> Option<(FunctionId, u32)> {
        let code = self.codes.get_mut(code.0 as usize)?;
        if lasti == u32::MAX {
            return Some((code.function, code.start_line));
        }
        let (table, start_line) = (&mut code.table, code.start_line);
        let lines = code.lines.get_or_insert_with(|| Lines::decode(minor, &std::mem::take(table), start_line));
        Some((code.function, lines.line(lasti).unwrap_or(0)))
    }

    pub fn function(&self, id: FunctionId) -> Option<&PyFunction> {
        self.functions.get(id.0 as usize)
    }

    /// Forgets everything if the cache is more than half full. Whether it did.
    pub fn compact(&mut self) -> bool {
        let full = self.codes.len() > MAX_CODES / 2 || self.latest.len() > MAX_CODES;
        if full {
            *self = Codes::default();
        }
        full
    }
}

const BAD: ReadError = ReadError::Corrupt("not a code object");

impl Key {
    fn of(offsets: &Offsets, head: &[u8]) -> Option<Key> {
        let pointer = |at: u32| if at == 0 { Some(0) } else { word(head, at) };
        let version = if offsets.code_version == 0 { 0 } else { half(head, offsets.code_version)? };
        let line = half(head, offsets.code_first_line)?;
        let bytecode = if offsets.has_data_stack() { 0 } else { word(head, offsets.code_bytecode)? };
        Some(Key([
            u64::from(version) << 32 | u64::from(line),
            pointer(offsets.code_name)?,
            pointer(offsets.code_qualname)?,
            pointer(offsets.code_filename)?,
            pointer(offsets.code_lines)?,
            pointer(offsets.code_constants)?,
            bytecode,
        ]))
    }
}
