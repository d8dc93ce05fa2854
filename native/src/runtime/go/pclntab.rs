//! Go's own table of functions: names, files, lines, stack sizes and inlined calls by program counter. No sections and no
//! symbols are needed, so it is there in stripped programs too.
//!
//! Layout: src/runtime/symtab.go and src/internal/abi/symtab.go of Go 1.18 (magic 0xfffffff0) and Go 1.20 to 1.26 (magic
//! 0xfffffff1); src/cmd/link/internal/ld/pcln.go writes it.

use crate::error::ReadError;
use crate::memory::Memory;

/// Most functions of one module.
pub const MAX_FUNCTIONS: u64 = 1 << 23;
/// Most bytes of one table.
pub const MAX_TABLE_BYTES: u64 = 1 << 29;
/// Most bytes of one name, of a function or file.
pub const MAX_NAME_BYTES: usize = 1 << 14;
/// Most steps of one table of values by pc.
const MAX_STEPS: usize = 1 << 20;
/// Most inlined calls at one pc.
pub const MAX_INLINED: usize = 128;

/// The table that says which inlined call a pc is in (internal/abi.PCDATA_InlTreeIndex).
const PCDATA_INLINE: u32 = 2;
/// The inlined calls (internal/abi.FUNCDATA_InlTree).
const FUNCDATA_INLINE: u32 = 3;
/// There is no such data.
const NO_DATA: u32 = u32::MAX;

/// The function at the bottom of a stack (internal/abi.FuncFlagTopFrame).
pub const FLAG_TOP: u8 = 1;
/// A function that writes the stack pointer (internal/abi.FuncFlagSPWrite).
pub const FLAG_SP_WRITE: u8 = 2;

/// Which of the two layouts a table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Go 1.18 and 1.19.
    Go118,
    /// Go 1.20 and later.
    Go120,
}

impl Layout {
    fn function_bytes(self) -> usize {
        if self == Layout::Go118 { 40 } else { 44 }
    }
}

/// The head of a table.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Its address.
    pub address: u64,
    /// Its layout.
    pub layout: Layout,
    /// Number of functions.
    pub functions: u64,
    /// Offset of the names, from `address` as all of these.
    pub names: u64,
    /// Offset of the files of each compilation unit.
    pub units: u64,
    /// Offset of the names of files.
    pub files: u64,
    /// Offset of the tables of values by pc.
    pub values: u64,
    /// Offset of the functions.
    pub table: u64,
}

/// Bytes of a header.
pub const HEADER_BYTES: usize = 72;

impl Header {
    /// What begins every header on this machine, but for the first byte: 0xf0 or 0xf1.
    pub const MAGIC: [u8; 7] = [0xff, 0xff, 0xff, 0, 0, 1, 8];

    /// The header at `address`; None where these bytes are none.
    pub fn parse(address: u64, bytes: &[u8]) -> Option<Header> {
        let layout = match bytes.first()? {
            0xf0 => Layout::Go118,
            0xf1 => Layout::Go120,
            _ => return None,
        };
        if bytes.get(1..8)? != Header::MAGIC {
            return None;
        }
        let word = |index: usize| Some(u64::from_le_bytes(*bytes.get(8 + 8 * index..)?.first_chunk()?));
        let (functions, files) = (word(0)?, word(1)?);
        let offsets = [word(3)?, word(4)?, word(5)?, word(6)?, word(7)?];
        let sane = (1..=MAX_FUNCTIONS).contains(&functions)
            && files <= MAX_FUNCTIONS
            && offsets.is_sorted()
            && offsets[0] >= HEADER_BYTES as u64 - 8
            && offsets[4] < MAX_TABLE_BYTES;
        let [names, units, files, values, table] = offsets;
        sane.then_some(Header { address, layout, functions, names, units, files, values, table })
    }
}

/// A function. Offsets are those of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Func {
    /// First address.
    pub entry: u64,
    name: u32,
    pcsp: u32,
    pcfile: u32,
    pcline: u32,
    unit: u32,
    /// Line of its `func` keyword, 0 = unknown (before Go 1.20).
    pub start_line: i32,
    /// What the runtime knows it for (internal/abi.FuncID).
    pub id: u8,
    /// FLAG_*.
    pub flags: u8,
    pcdata: (usize, u32),
    funcdata: (usize, u32),
}

/// A logical frame: a function, inlined or not, at a pc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The place within the function that this frame is at: as the pc given, or of the call that was inlined.
    pub pc: u64,
    /// First address of the function that holds the code.
    pub entry: u64,
    /// Offset of its name.
    pub name: u32,
    /// Index of its file; None = unknown.
    pub file: Option<u32>,
    /// Line, 0 = unknown.
    pub line: u32,
    /// First line, 0 = unknown.
    pub start_line: u32,
    /// FuncID.
    pub id: u8,
    /// Whether it was inlined into the next one.
    pub inlined: bool,
}

/// The table of one module.
pub struct Pclntab {
    header: Header,
    bytes: Vec<u8>,
    /// First address of the module's code, which the offsets of functions count from.
    text: u64,
    /// Address of what inline trees are offsets from.
    gofunc: u64,
}

impl Pclntab {
    /// Reads the table; `size` bytes in all.
    pub fn read(memory: &dyn Memory, header: Header, size: u64, text: u64, gofunc: u64) -> Result<Pclntab, ReadError> {
        if size > MAX_TABLE_BYTES {
            return Err(ReadError::Bound("a table of functions over its bound"));
        }
        if size < header.table + header.functions * 8 + 4 {
            return Err(ReadError::Corrupt("a table of functions that is shorter than it says"));
        }
        let bytes = memory.read_bytes(header.address, size as usize, MAX_TABLE_BYTES as usize)?;
        let table = Pclntab { header, bytes, text, gofunc };
        let mut last = 0;
        for index in 0..=table.len() {
            let offset = table.offset(index).ok_or(ReadError::Corrupt("a table of functions that ends early"))?;
            if offset < last {
                return Err(ReadError::Corrupt("a table of functions out of order"));
            }
            last = offset;
        }
        Ok(table)
    }

    /// Number of functions.
    pub fn len(&self) -> usize {
        self.header.functions as usize
    }

    /// Whether there is no function; there always is.
    pub fn is_empty(&self) -> bool {
        self.header.functions == 0
    }

    /// First address of the code.
    pub fn text(&self) -> u64 {
        self.text
    }

    /// Its layout.
    pub fn layout(&self) -> Layout {
        self.header.layout
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    /// Where a function begins, as an offset in the text; of the one after the last, where that ends.
    fn offset(&self, index: usize) -> Option<u32> {
        self.u32_at(self.header.table as usize + 8 * index)
    }

    /// The function of an index, and the address after it.
    pub fn function(&self, index: usize) -> Option<(Func, u64)> {
        if index >= self.len() {
            return None;
        }
        let table = self.header.table as usize;
        let at = table.checked_add(self.u32_at(table + 8 * index + 4)? as usize)?;
        let field = |number: usize| self.u32_at(at.checked_add(4 * number)?);
        let size = self.layout().function_bytes();
        let tail = self.bytes.get(at.checked_add(size - 4)?..)?.first_chunk::<4>()?;
        let pcdata = (at + size, field(7)?.min(64));
        let funcdata = (pcdata.0 + 4 * pcdata.1 as usize, u32::from(tail[3]));
        let entry = self.text.wrapping_add(u64::from(self.offset(index)?));
        let function = Func {
            entry,
            name: field(1)?,
            pcsp: field(4)?,
            pcfile: field(5)?,
            pcline: field(6)?,
            unit: field(8)?,
            start_line: if self.layout() == Layout::Go118 { 0 } else { field(9)?.cast_signed() },
            id: tail[0],
            flags: tail[1],
            pcdata,
            funcdata,
        };
        Some((function, self.text.wrapping_add(u64::from(self.offset(index + 1)?))))
    }

    /// The index of the function that holds an address.
    pub fn find(&self, pc: u64) -> Option<usize> {
        let offset = u32::try_from(pc.checked_sub(self.text)?).ok()?;
        let (mut low, mut high) = (0, self.len());
        if offset < self.offset(0)? || offset >= self.offset(high)? {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.offset(middle)? <= offset { low = middle } else { high = middle }
        }
        Some(low)
    }

    /// Whether a function begins at an address.
    pub fn is_entry(&self, address: u64) -> bool {
        self.find(address)
            .and_then(|index| self.offset(index))
            .is_some_and(|offset| self.text.wrapping_add(u64::from(offset)) == address)
    }

    /// The name at an offset of the names, as the linker wrote it.
    pub fn name(&self, offset: u32) -> &[u8] {
        self.text_at(self.header.names, offset)
    }

    /// The name of a function.
    pub fn name_of(&self, function: &Func) -> &[u8] {
        self.name(function.name)
    }

    /// The file of an index that a [`Call`] has.
    pub fn file(&self, index: u32) -> &[u8] {
        self.text_at(self.header.files, index)
    }

    fn text_at(&self, base: u64, offset: u32) -> &[u8] {
        let rest = self.bytes.get(base as usize + offset as usize..).unwrap_or_default();
        let rest = &rest[..rest.len().min(MAX_NAME_BYTES)];
        &rest[..memchr::memchr(0, rest).unwrap_or(rest.len())]
    }

    /// The value that a table has at `pc`: pairs of differences, of the value and of the pc (src/runtime/symtab.go, step).
    fn value(&self, table: u32, entry: u64, pc: u64) -> Option<i32> {
        if table == 0 {
            return None;
        }
        let mut at = (self.header.values as usize).checked_add(table as usize)?;
        let (mut value, mut address) = (-1_i32, entry);
        for step in 0..MAX_STEPS {
            let change = self.varint(&mut at)?;
            if change == 0 && step > 0 {
                return None;
            }
            let change = if change & 1 == 1 { !(change >> 1).cast_signed() } else { (change >> 1).cast_signed() };
            value = value.wrapping_add(change);
            address = address.wrapping_add(u64::from(self.varint(&mut at)?));
            if pc < address {
                return Some(value);
            }
        }
        None
    }

    fn varint(&self, at: &mut usize) -> Option<u32> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = *self.bytes.get(*at)?;
            *at += 1;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Bytes between the stack pointer at `pc` and the function's return address; None where that is not known.
    pub fn stack_size(&self, function: &Func, pc: u64) -> Option<u64> {
        self.value(function.pcsp, function.entry, pc).and_then(|size| u64::try_from(size).ok())
    }

    /// The function, inlined or not, and those that it was inlined into, innermost first; `pc` is within an instruction,
    /// not a return address. `memory` holds the inline trees.
    pub fn calls(&self, memory: &dyn Memory, function: &Func, pc: u64) -> Vec<Call> {
        let mut found = Vec::new();
        let mut at = pc;
        let tree = self.inline_tree(function);
        for _ in 0..MAX_INLINED {
            let inlined = tree.and_then(|(table, tree)| {
                let index = u64::try_from(self.value(table, function.entry, at)?).ok()?;
                self.inlined(memory, tree, index)
            });
            let (file, line) = (self.file_index(function, at), self.value(function.pcline, function.entry, at));
            let of = inlined.unwrap_or(Inlined {
                id: function.id,
                name: function.name,
                parent: 0,
                start_line: function.start_line,
            });
            found.push(Call {
                pc: at,
                entry: function.entry,
                name: of.name,
                file,
                line: line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
                start_line: u32::try_from(of.start_line).unwrap_or(0),
                id: of.id,
                inlined: inlined.is_some(),
            });
            if inlined.is_none() {
                return found;
            }
            at = function.entry.wrapping_add(u64::from(of.parent));
        }
        found
    }

    /// Which table says what is inlined in a function, and the address of its tree.
    fn inline_tree(&self, function: &Func) -> Option<(u32, u64)> {
        let (at, count) = function.pcdata;
        let table = (count > PCDATA_INLINE).then(|| self.u32_at(at + 4 * PCDATA_INLINE as usize))??;
        let (at, count) = function.funcdata;
        let offset = (count > FUNCDATA_INLINE).then(|| self.u32_at(at + 4 * FUNCDATA_INLINE as usize))??;
        (offset != NO_DATA).then_some((table, self.gofunc.wrapping_add(u64::from(offset))))
    }

    /// One inlined call (src/runtime/symtabinl.go; before Go 1.20 src/runtime/symtab.go).
    fn inlined(&self, memory: &dyn Memory, tree: u64, index: u64) -> Option<Inlined> {
        let mut bytes = [0; 20];
        let word =
            |bytes: &[u8; 20], at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if self.layout() == Layout::Go118 {
            memory.read(tree.wrapping_add(20 * index), &mut bytes).ok()?;
            return Some(Inlined { id: bytes[2], name: word(&bytes, 12), parent: word(&bytes, 16), start_line: 0 });
        }
        memory.read(tree.wrapping_add(16 * index), &mut bytes[..16]).ok()?;
        let start_line = word(&bytes, 12).cast_signed();
        Some(Inlined { id: bytes[0], name: word(&bytes, 4), parent: word(&bytes, 8), start_line })
    }

    fn file_index(&self, function: &Func, pc: u64) -> Option<u32> {
        let index = u32::try_from(self.value(function.pcfile, function.entry, pc)?).ok()?;
        let at = u64::from(function.unit) + u64::from(index);
        let offset = self.u32_at(usize::try_from(self.header.units + 4 * at).ok()?)?;
        (offset != NO_DATA).then_some(offset)
    }
}

#[derive(Clone, Copy)]
struct Inlined {
    id: u8,
    name: u32,
    parent: u32,
    start_line: i32,
}
