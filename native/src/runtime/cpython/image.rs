//! A loaded ELF file (or PE file: `pe`), read from the target's memory alone: its dynamic symbols need no file, so a replaced or deleted
//! one is no hindrance. Format: the System V gABI, chapter 5, and the GNU hash table.

use crate::error::ReadError;
use crate::memory::Memory;
use crate::pe::Pe;
use crate::target::Mapping;

/// Most program headers of one file.
const MAX_HEADERS: u16 = 256;
/// Most entries of one dynamic section.
const MAX_DYNAMIC: u64 = 512;
/// Most symbols tried in one hash chain.
const MAX_CHAIN: u32 = 4096;
/// Longest symbol name compared.
const MAX_NAME: usize = 64;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const ET_EXEC: u16 = 2;

/// One file as it lies in memory.
#[derive(Clone, Debug)]
pub struct Image {
    /// Index of its first mapping.
    pub mapping: usize,
    /// What is added to the file's addresses.
    pub bias: u64,
    /// Whether it names a program interpreter: an executable (and libc itself).
    pub interpreted: bool,
    /// Address range, file addresses, of its loaded segments.
    pub start: u64,
    /// End of that range.
    pub end: u64,
    dynamic: Option<(u64, u64)>,
    pe: Option<Pe>,
}

impl Image {
    /// Reads the headers at `mapping`, the one that holds offset 0 of its file. None if that is no 64-bit ELF or PE file.
    pub fn read(memory: &dyn Memory, mappings: &[Mapping], mapping: usize) -> Option<Image> {
        let base = mappings.get(mapping)?.start;
        let mut header = [0; 64];
        memory.read(base, &mut header).ok()?;
        if cfg!(windows) && header.starts_with(b"MZ") {
            let pe = Pe::read(memory, base)?;
            let (bias, end) = (base, pe.size);
            return Some(Image { mapping, bias, interpreted: false, start: 0, end, dynamic: None, pe: Some(pe) });
        }
        if header[..6] != *b"\x7fELF\x02\x01" {
            return None;
        }
        let kind = u16::from_le_bytes([header[16], header[17]]);
        let count = u16::from_le_bytes([header[56], header[57]]);
        if word(&header, 32)? > 1 << 20 || count > MAX_HEADERS || header[54] != 56 {
            return None;
        }
        let size = usize::from(count) * 56;
        let headers = memory.read_bytes(base.wrapping_add(word(&header, 32)?), size, size).ok()?;
        let mut image =
            Image { mapping, bias: 0, interpreted: false, start: u64::MAX, end: 0, dynamic: None, pe: None };
        for entry in headers.chunks_exact(56) {
            let (address, size) = (word(entry, 16)?, word(entry, 40)?);
            match u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]) {
                PT_LOAD => {
                    if word(entry, 8)? == 0 && kind != ET_EXEC {
                        image.bias = base.wrapping_sub(address);
                    }
                    image.start = image.start.min(address);
                    image.end = image.end.max(address.saturating_add(size));
                }
                PT_DYNAMIC => image.dynamic = Some((address, size)),
                PT_INTERP => image.interpreted = true,
                _ => {}
            }
        }
        Some(image)
    }

    /// Whether it is a program or library of Windows.
    pub fn is_windows(&self) -> bool {
        self.pe.is_some()
    }

    /// The address in memory of the dynamic symbol, or export, `name`.
    pub fn symbol(&self, memory: &dyn Memory, name: &str) -> Result<Option<u64>, ReadError> {
        if let Some(pe) = &self.pe {
            return pe.export(memory, name);
        }
        let Some((address, size)) = self.dynamic else { return Ok(None) };
        let (mut symbols, mut strings, mut hash) = (0, 0, 0);
        let count = (size / 16).min(MAX_DYNAMIC) as usize;
        let entries = memory.read_bytes(self.bias.wrapping_add(address), count * 16, count * 16)?;
        for entry in entries.chunks_exact(16) {
            let (tag, value) = (word(entry, 0).unwrap_or(0), word(entry, 8).unwrap_or(0));
            match tag {
                0 => break,
                5 => strings = self.relocated(value),
                6 => symbols = self.relocated(value),
                0x6fff_fef5 => hash = self.relocated(value),
                _ => {}
            }
        }
        if symbols == 0 || strings == 0 || hash == 0 {
            return Ok(None);
        }
        GnuHash { memory, hash, symbols, strings }.find(name).map(|value| value.map(|at| self.bias.wrapping_add(at)))
    }

    /// glibc relocates the pointers of a dynamic section in place, musl does not.
    fn relocated(&self, value: u64) -> u64 {
        if value < self.bias { self.bias.wrapping_add(value) } else { value }
    }
}

struct GnuHash<'a> {
    memory: &'a dyn Memory,
    hash: u64,
    symbols: u64,
    strings: u64,
}

impl GnuHash<'_> {
    fn find(&self, name: &str) -> Result<Option<u64>, ReadError> {
        let mut header = [0; 16];
        self.memory.read(self.hash, &mut header)?;
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (buckets, first, blooms) = (number(0), number(4), number(8));
        if buckets == 0 {
            return Ok(None);
        }
        let wanted = name.bytes().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
        let table = self.hash.wrapping_add(16 + u64::from(blooms) * 8);
        let head = self.memory.read_u32(table.wrapping_add(u64::from(wanted % buckets) * 4))?;
        if head < first {
            return Ok(None);
        }
        let chain = table.wrapping_add(u64::from(buckets) * 4);
        for index in head..head.saturating_add(MAX_CHAIN) {
            let hash = self.memory.read_u32(chain.wrapping_add(u64::from(index - first) * 4))?;
            if hash | 1 == wanted | 1
                && let Some(value) = self.value(index, name)?
            {
                return Ok(Some(value));
            }
            if hash & 1 == 1 {
                break;
            }
        }
        Ok(None)
    }

    /// The value of symbol `index` if it is defined and called `name`.
    fn value(&self, index: u32, name: &str) -> Result<Option<u64>, ReadError> {
        let mut symbol = [0; 24];
        self.memory.read(self.symbols.wrapping_add(u64::from(index) * 24), &mut symbol)?;
        let at = self.strings.wrapping_add(u64::from(u32::from_le_bytes([symbol[0], symbol[1], symbol[2], symbol[3]])));
        let found = self.memory.read_bytes(at, name.len() + 1, MAX_NAME)?;
        let defined = symbol[6] != 0 || symbol[7] != 0;
        let same = found.get(..name.len()) == Some(name.as_bytes()) && found.get(name.len()) == Some(&0);
        Ok(if defined && same { word(&symbol, 8) } else { None })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
