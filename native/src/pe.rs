//! A loaded PE file, read from the target's memory alone: where its exports and its unwind tables are. Format: the PE
//! specification of Microsoft, sections "Optional Header", "The .edata Section" and "The .pdata Section".

use object::LittleEndian;
use object::read::pe::{PeFile64, SectionTable};

use crate::error::ReadError;
use crate::memory::Memory;

/// Furthest that the PE header is believed to be from the start of the file.
const MAX_HEADER_OFFSET: u32 = 64 << 10;
/// Where the optional header has the list of data directories, from the signature on.
const DIRECTORIES: usize = 24 + 112;
/// Of these the first is that of exports, the fourth that of the functions' unwind tables.
const EXPORTS: usize = 0;
const EXCEPTIONS: usize = 3;
/// Signature, file header and the optional header up to there.
const HEADER_BYTES: usize = DIRECTORIES + 8 * (EXCEPTIONS + 1);
const MACHINE_AMD64: u16 = 0x8664;
const MAGIC_64_BIT: u16 = 0x20b;
const PAGE: u64 = 4096;
/// Most exported names: their numbers are 16 bits wide.
const MAX_NAMES: u32 = 1 << 16;
/// Longest exported name compared.
const MAX_NAME: usize = 64;

/// One file as it lies in memory. Offsets are from its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pe {
    base: u64,
    /// Bytes that it takes up.
    pub size: u64,
    exports: (u32, u32),
    /// Where the table of functions is, and its size in bytes; zeros where there is none.
    pub exceptions: (u32, u32),
}

impl Pe {
    /// Reads the headers at `base`. None if that is no 64-bit PE file.
    pub fn read(memory: &dyn Memory, base: u64) -> Option<Pe> {
        let mut dos = [0; 64];
        memory.read(base, &mut dos).ok()?;
        let at = half(&dos, 0x3c)?;
        if !dos.starts_with(b"MZ") || at > MAX_HEADER_OFFSET {
            return None;
        }
        let header = memory.read_bytes(base.wrapping_add(u64::from(at)), HEADER_BYTES, HEADER_BYTES).ok()?;
        if !header.starts_with(b"PE\0\0") || short(&header, 4)? != MACHINE_AMD64 || short(&header, 24)? != MAGIC_64_BIT
        {
            return None;
        }
        let directories = half(&header, DIRECTORIES - 4)?;
        let directory = |index: usize| {
            let at = DIRECTORIES + 8 * index;
            let told = half(&header, at).zip(half(&header, at + 4));
            told.filter(|_| directories > index as u32).unwrap_or((0, 0))
        };
        let (exports, exceptions) = (directory(EXPORTS), directory(EXCEPTIONS));
        Some(Pe { base, size: u64::from(half(&header, 24 + 56)?), exports, exceptions })
    }

    /// The address in memory of what is exported as `name`, from this very file.
    pub fn export(&self, memory: &dyn Memory, name: &str) -> Result<Option<u64>, ReadError> {
        let (start, size) = self.exports;
        if start == 0 || name.len() > MAX_NAME {
            return Ok(None);
        }
        let directory = memory.read_bytes(self.at(start), 40, 40)?;
        let field = |at: usize| half(&directory, at).unwrap_or(0);
        let (functions, count) = (field(20), field(24));
        let (addresses, names, numbers) = (field(28), field(32), field(36));
        if count > MAX_NAMES {
            return Err(ReadError::Bound("too many exports"));
        }
        // The names are in ascending order: the loader searches them by halves, too.
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            let place = memory.read_u32(self.at(names).wrapping_add(u64::from(middle) * 4))?;
            match self.compare(memory, place, name)? {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let mut number = [0; 2];
                    memory.read(self.at(numbers).wrapping_add(u64::from(middle) * 2), &mut number)?;
                    let number = u32::from(u16::from_le_bytes(number));
                    if number >= functions {
                        return Ok(None);
                    }
                    let found = memory.read_u32(self.at(addresses).wrapping_add(u64::from(number) * 4))?;
                    // Within the directory it is the text of a forwarder: another file has it.
                    let forwarded = found >= start && found - start < size;
                    return Ok((found != 0 && !forwarded).then(|| self.at(found)));
                }
            }
        }
        Ok(None)
    }

    fn at(&self, offset: u32) -> u64 {
        self.base.wrapping_add(u64::from(offset))
    }

    /// How the exported name at `place` compares to `name`.
    fn compare(&self, memory: &dyn Memory, place: u32, name: &str) -> Result<std::cmp::Ordering, ReadError> {
        // One byte at a time near the end of the last page would be refused as a whole: names are short, so by pieces.
        let mut text = [0; MAX_NAME + 1];
        let wanted = name.len() + 1;
        memory.read(self.at(place), &mut text[..wanted])?;
        let end = text[..wanted].iter().position(|&byte| byte == 0).unwrap_or(wanted);
        Ok(text[..end].cmp(name.as_bytes()))
    }
}

/// A file as the loader lays it out, without what is in no file, such as relocations and zeros.
pub struct Loaded<'a> {
    bytes: &'a [u8],
    base: u64,
    /// Where the sections begin.
    first: u32,
    sections: SectionTable<'a>,
}

impl<'a> Loaded<'a> {
    /// Of a file that would be loaded at `base`. None if it is no 64-bit PE file.
    pub fn parse(bytes: &'a [u8], base: u64) -> Option<Loaded<'a>> {
        let sections = PeFile64::parse(bytes).ok()?.section_table();
        let first = sections.iter().map(|section| section.virtual_address.get(LittleEndian)).min().unwrap_or(u32::MAX);
        Some(Loaded { bytes, base, first, sections })
    }
}

impl Memory for Loaded<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let at = address.checked_sub(self.base).and_then(|at| u32::try_from(at).ok()).ok_or(ReadError::Unmapped)?;
        let section = || self.sections.pe_data_at(self.bytes, at);
        let found = if at < self.first { self.bytes.get(at as usize..) } else { section() };
        let found = found.unwrap_or_default();
        // What is behind a section's bytes is zero up to the end of its page.
        let room = u64::from(at) % PAGE + found.len() as u64;
        let room = room.next_multiple_of(PAGE) - u64::from(at) % PAGE;
        if found.is_empty() || buffer.len() as u64 > room {
            return Err(ReadError::Unmapped);
        }
        let size = found.len().min(buffer.len());
        buffer[..size].copy_from_slice(&found[..size]);
        buffer[size..].fill(0);
        Ok(())
    }
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::target::recorded::Recorded;

    const BASE: u64 = 0x1_8000_0000;

    /// An image of 8 KiB that exports `names`, each at 0x100 times its place, the last one forwarded.
    fn image(names: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0; 0x2000];
        let mut put = |at: usize, content: &[u8]| bytes[at..at + content.len()].copy_from_slice(content);
        put(0, b"MZ");
        put(0x3c, &0x80_u32.to_le_bytes());
        put(0x80, b"PE\0\0\x64\x86");
        put(0x80 + 24, &MAGIC_64_BIT.to_le_bytes());
        put(0x80 + 24 + 56, &0x2000_u32.to_le_bytes());
        put(0x80 + 24 + 108, &16_u32.to_le_bytes());
        put(0x80 + 24 + 112, &0x1000_u32.to_le_bytes());
        put(0x80 + 24 + 116, &0x1000_u32.to_le_bytes());
        let count = names.len() as u32;
        for (at, value) in [(20, count), (24, count), (28, 0x1100), (32, 0x1400), (36, 0x1700)] {
            put(0x1000 + at, &value.to_le_bytes());
        }
        let mut text = 0x1800;
        for (index, name) in names.iter().enumerate() {
            let last = index + 1 == names.len();
            let found = if last { 0x1900 } else { 0x100 * (index as u32 + 1) };
            put(0x1100 + index * 4, &found.to_le_bytes());
            put(0x1400 + index * 4, &(text as u32).to_le_bytes());
            put(0x1700 + index * 2, &(index as u16).to_le_bytes());
            put(text, name.as_bytes());
            text += name.len() + 1;
        }
        bytes
    }

    #[test]
    fn exports_are_found_by_name() {
        let memory = Recorded::of(BASE, &image(&["PyA", "PyAB", "PyC", "_PyRuntime", "forwarded"]));
        let pe = Pe::read(&memory, BASE).unwrap();
        assert_eq!(pe.size, 0x2000);
        let found = |name| pe.export(&memory, name).unwrap();
        assert_eq!(found("PyA"), Some(BASE + 0x100));
        assert_eq!(found("PyAB"), Some(BASE + 0x200));
        assert_eq!(found("_PyRuntime"), Some(BASE + 0x400));
        assert_eq!(found("PyB"), None);
        assert_eq!(found("forwarded"), None, "another file has it");
        assert_eq!(found("zzz"), None);
        assert_eq!(Pe::read(&Recorded::of(BASE, b"\x7fELF"), BASE), None);
    }

    /// Counts the reads.
    struct Counted(Recorded, Cell<u32>);

    impl Memory for Counted {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
            self.1.set(self.1.get() + 1);
            self.0.read(address, buffer)
        }
    }

    #[test]
    fn hostile_headers_end_without_a_wrong_answer() {
        let good = image(&["PyA", "PyAB", "PyC", "_PyRuntime", "forwarded"]);
        let mut state = 1_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        // Headers, export directory, addresses, names, numbers, and the names themselves.
        let parts =
            [0..0x40, 0x80..0x120, 0x1000..0x1028, 0x1100..0x1114, 0x1400..0x1414, 0x1700..0x170a, 0x1800..0x1828];
        let spots: Vec<usize> = parts.into_iter().flatten().collect();
        let (mut headers, mut answers) = (0, 0);
        for _ in 0..10_000 {
            let mut bytes = good.clone();
            for _ in 0..1 + next() % 4 {
                bytes[spots[next() % spots.len()]] = next() as u8;
            }
            if next().is_multiple_of(4) {
                bytes.truncate(next() % bytes.len());
            }
            let memory = Counted(Recorded::of(BASE, &bytes), Cell::new(0));
            let Some(pe) = Pe::read(&memory, BASE) else { continue };
            headers += 1;
            if let Ok(Some(found)) = pe.export(&memory, "_PyRuntime") {
                answers += 1;
                assert!(found.wrapping_sub(BASE) <= u64::from(u32::MAX));
            }
            // Two of the headers, one of the directory, two for each halving, two of what was found.
            assert!(memory.1.get() <= 2 + 1 + 2 * 17 + 2, "{} reads", memory.1.get());
        }
        assert!(headers > 1000 && answers > 100 && answers < headers, "{answers} of {headers}");
    }
}
