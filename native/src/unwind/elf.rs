//! The unwind tables of one loaded ELF file, from the file, or from memory where there is no file (vDSO, deleted ones).
//! Format: the System V gABI, chapters 4 and 5, and the LSB on `.eh_frame_hdr`.

use std::fs::File;
use std::hash::Hasher;
use std::ops::Range;

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::read::{CompressedData, CompressionFormat, ReadCache, ReadRef};
use object::{LittleEndian, pod};
use rustc_hash::FxHasher;

use super::cfi::{Cfi, Kind};
use crate::memory::Memory;

/// Largest unwind section, also after decompression.
pub const MAX_SECTION_BYTES: u64 = 128 << 20;
/// Bytes at the start of a loaded file that tell it from another: its headers, and mostly its build id.
pub const HEAD: usize = 1024;
/// Most program headers of one file.
const MAX_SEGMENTS: usize = 256;
/// Most bytes that the headers of one file may take, section headers and their names.
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// The program entry code is at most this long: `_start` of glibc has 38 bytes, of musl 22.
const ENTRY_BYTES: u64 = 48;

type Header = FileHeader64<LittleEndian>;
const PAGE: u64 = 4096;
const LE: LittleEndian = LittleEndian;

/// A loaded segment.
#[derive(Clone, Copy, Debug)]
struct Load {
    offset: u64,
    address: u64,
    size: u64,
    executable: bool,
}

impl Load {
    fn new(segment: &elf::ProgramHeader64<LittleEndian>) -> Load {
        Load {
            offset: segment.p_offset(LE),
            address: segment.p_vaddr(LE),
            size: segment.p_filesz(LE),
            executable: segment.p_flags(LE) & elf::PF_X != 0,
        }
    }
}

/// What unwinding needs to know of one file. All addresses are the file's own.
#[derive(Debug, Default)]
pub struct Elf {
    loads: Vec<Load>,
    entry: u64,
    /// A hash of the first [`HEAD`] bytes.
    pub head: u64,
    /// `.eh_frame`.
    pub exceptions: Option<Cfi>,
    /// `.debug_frame`.
    pub debug: Option<Cfi>,
}

impl Elf {
    /// Whether there is no unwind table at all.
    pub fn bare(&self) -> bool {
        self.exceptions.is_none() && self.debug.is_none()
    }

    /// Whether the caller at this address can only be the program's entry code, below which there is nothing.
    pub fn is_entry(&self, address: u64) -> bool {
        self.entry != 0 && address.wrapping_sub(self.entry) < ENTRY_BYTES
    }

    /// What is added to the file's addresses when `offset` of the file is mapped, as code, at `start`.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let page = |value: u64| value & !(PAGE - 1);
        let covers = |load: &&Load| {
            page(load.offset) <= offset
                && offset - page(load.offset) < load.size.saturating_add(load.offset & (PAGE - 1))
        };
        // lld's segments share pages of the file: one may begin in the page in which another ends.
        let mut loads = self.loads.iter().filter(covers);
        let load = loads.clone().find(|load| load.executable).or_else(|| loads.next())?;
        Some(start.wrapping_sub(load.address.wrapping_add(offset).wrapping_sub(load.offset)))
    }

    /// Reads the headers and the unwind sections of a file.
    pub fn from_file(file: File) -> Option<Elf> {
        let cache = ReadCache::new(file);
        Elf::parse(Bounded(&cache))
    }

    fn parse<'a, R: ReadRef<'a>>(file: Bounded<R>) -> Option<Elf> {
        let header = Header::parse(file).ok().filter(|header| header.e_machine.get(LE) == elf::EM_X86_64)?;
        let segments = header.program_headers(LE, file).ok()?;
        let loads = segments.iter().take(MAX_SEGMENTS).filter(|segment| segment.p_type(LE) == elf::PT_LOAD);
        let head = file.read_bytes_at(0, file.len().ok()?.min(HEAD as u64)).map(hash_of).ok()?;
        let loads = loads.map(Load::new).collect();
        let mut found = Elf { loads, entry: header.e_entry(LE), head, ..Elf::default() };
        let Ok(sections) = header.sections(LE, file) else { return Some(found) };
        let address = |name: &[u8]| sections.section_by_name(LE, name).map(|(_, section)| section.sh_addr(LE));
        let bases = gimli::BaseAddresses::default()
            .set_text(address(b".text").unwrap_or(0))
            .set_got(address(b".got").unwrap_or(0));
        let bytes = |name: &[u8]| {
            let (_, section) = sections.section_by_name(LE, name)?;
            let bytes = section_bytes(section, file)?;
            (!bytes.is_empty()).then(|| (bytes, section.sh_addr(LE)))
        };
        if let Some((table, at)) = bytes(b".eh_frame") {
            found.exceptions = Cfi::new(Kind::Exceptions, table, at, bytes(b".eh_frame_hdr"), bases.clone());
        }
        if let Some((table, _)) = bytes(b".debug_frame").or_else(|| bytes(b".zdebug_frame")) {
            found.debug = Cfi::new(Kind::Debug, table, 0, None, bases);
        }
        Some(found)
    }

    /// Reads the headers at `base` in memory, and the tables that the program headers lead to. `file_end` is where the
    /// last mapping of the file ends.
    pub fn from_memory(memory: &dyn Memory, base: u64, file_end: u64) -> Option<Elf> {
        let header = memory.read_bytes(base, size_of::<Header>(), size_of::<Header>()).ok()?;
        let (header, _) = pod::from_bytes::<Header>(&header).ok()?;
        if header.e_ident.magic != elf::ELFMAG || header.e_machine.get(LE) != elf::EM_X86_64 {
            return None;
        }
        let size = size_of::<elf::ProgramHeader64<LittleEndian>>();
        let count = usize::from(header.e_phnum.get(LE)).min(MAX_SEGMENTS);
        let headers = memory.read_bytes(base.wrapping_add(header.e_phoff.get(LE)), count * size, 1 << 20).ok()?;
        let (segments, _) = pod::slice_from_bytes::<elf::ProgramHeader64<LittleEndian>>(&headers, count).ok()?;
        let loads = segments.iter().filter(|segment| segment.p_type(LE) == elf::PT_LOAD).map(Load::new);
        let head = memory.read_bytes(base, HEAD, HEAD).map(|bytes| hash_of(&bytes)).ok()?;
        let found = Elf { loads: loads.collect(), entry: header.e_entry(LE), head, ..Elf::default() };
        // The segment with the headers, which is the lowest.
        let first = found.loads.first().filter(|load| load.offset < PAGE)?;
        let bias = base.wrapping_add(first.offset).wrapping_sub(first.address);
        let exceptions = segments
            .iter()
            .find(|segment| segment.p_type(LE) == elf::PT_GNU_EH_FRAME)
            .and_then(|segment| found.read_tables(memory, bias, segment.p_vaddr(LE), segment.p_memsz(LE), file_end));
        Some(Elf { exceptions, ..found })
    }

    fn read_tables(&self, memory: &dyn Memory, bias: u64, at: u64, size: u64, file_end: u64) -> Option<Cfi> {
        let bound = MAX_SECTION_BYTES as usize;
        let file_end = file_end.wrapping_sub(bias);
        let size = usize::try_from(size.min(file_end.checked_sub(at)?)).ok()?;
        let index = memory.read_bytes(bias.wrapping_add(at), size, bound).ok()?;
        let bases = gimli::BaseAddresses::default();
        let start = Cfi::table_address(&index, at, &bases)?;
        let load = self.loads.iter().find(|load| start.wrapping_sub(load.address) < load.size)?;
        let end = load.address.wrapping_add(load.size).min(file_end);
        let size = usize::try_from(end.checked_sub(start)?).ok()?;
        let table = memory.read_bytes(bias.wrapping_add(start), size, bound).ok()?;
        Cfi::new(Kind::Exceptions, table, start, Some((index, at)), bases)
    }
}

/// Bytes that a short file lacks are zero, as they are in memory.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut head = [0; HEAD];
    let size = bytes.len().min(HEAD);
    head[..size].copy_from_slice(&bytes[..size]);
    let mut hasher = FxHasher::default();
    hasher.write(&head);
    hasher.finish()
}

fn section_bytes<'a, R: ReadRef<'a>>(
    section: &elf::SectionHeader64<LittleEndian>,
    file: Bounded<R>,
) -> Option<Vec<u8>> {
    if section.sh_type(LE) == elf::SHT_NOBITS || section.sh_size(LE) > MAX_SECTION_BYTES {
        return None;
    }
    let Some((header, offset, size)) = section.compression(LE, file).ok()? else {
        return section.data(LE, file).ok().map(<[u8]>::to_vec);
    };
    let format = match header.ch_type.get(LE) {
        elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
        elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
        _ => return None,
    };
    let uncompressed_size = header.ch_size.get(LE);
    let data = file.read_bytes_at(offset, size).ok()?;
    let compressed = CompressedData { format, data, uncompressed_size };
    (uncompressed_size <= MAX_SECTION_BYTES).then(|| compressed.decompress().ok().map(|bytes| bytes.into_owned()))?
}

/// A file of which no single piece read is over its bound.
#[derive(Clone, Copy)]
struct Bounded<R>(R);

impl<'a, R: ReadRef<'a>> ReadRef<'a> for Bounded<R> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > MAX_SECTION_BYTES { Err(()) } else { self.0.read_bytes_at(offset, size) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let end = range.end.min(range.start.saturating_add(MAX_HEADER_BYTES));
        self.0.read_bytes_at_until(range.start..end, delimiter)
    }
}
