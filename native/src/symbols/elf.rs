//! A 64-bit little-endian ELF file: sections, build id, and which of its addresses is where in memory.

use std::io::{self, Read};

use object::elf::{self, FileHeader32, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, LittleEndian, pod};

use super::file::{Arena, Bytes};

/// Most bytes of a build id.
pub const MAX_BUILD_ID: usize = 256;
/// Most sections, and segments, of one file.
pub const MAX_HEADERS: usize = 1 << 20;
/// Most bytes of a `.gnu_debugdata` image.
pub const MAX_MINI_BYTES: u64 = 256 << 20;
/// Most memory for uncompressing it, KiB.
const MAX_MINI_KIB: u32 = 96 << 10;
const PAGE: u64 = 4096;
/// As [`object::elf::CompressionHeader64`].
const COMPRESSION_HEADER: usize = 24;

type Header = FileHeader64<LittleEndian>;

/// A parsed file; everything in it but the headers is read again from its bytes when asked for.
#[derive(Clone, Copy)]
pub struct Elf<'a> {
    /// The whole file.
    pub bytes: Bytes<'a>,
    segments: &'a [ProgramHeader64<LittleEndian>],
    sections: &'a [SectionHeader64<LittleEndian>],
    /// The names of the sections.
    names: &'a [u8],
}

/// A symbol table, and the names in it.
#[derive(Clone, Copy, Default)]
pub struct Symbols<'a> {
    /// The entries.
    pub entries: &'a [Sym64<LittleEndian>],
    names: &'a [u8],
}

impl<'a> Symbols<'a> {
    /// The name of one; None where it is broken.
    pub fn name(&self, symbol: &Sym64<LittleEndian>) -> Option<&'a [u8]> {
        text_at(self.names, symbol.st_name.get(LittleEndian))
    }
}

impl<'a> Elf<'a> {
    /// Parses the headers. None if this is no such file.
    pub fn parse(bytes: impl Into<Bytes<'a>>) -> Option<Elf<'a>> {
        let bytes = bytes.into();
        let header = Header::parse(bytes).ok()?;
        if header.e_ident().class != elf::ELFCLASS64 || header.e_ident().data != elf::ELFDATA2LSB {
            return None;
        }
        let segments = header.program_headers(LittleEndian, bytes).unwrap_or(&[]);
        // The vDSO and stripped files may have none; a broken table is none.
        let sections = header.section_headers(LittleEndian, bytes).unwrap_or(&[]);
        if segments.len() > MAX_HEADERS || sections.len() > MAX_HEADERS {
            return None;
        }
        let names = header.section_strings_index(LittleEndian, bytes).ok().and_then(|index| sections.get(index.0));
        let names = names.and_then(|section| section.data(LittleEndian, bytes).ok()).unwrap_or(&[]);
        Some(Elf { bytes, segments, sections, names })
    }

    /// Sections with their index.
    pub fn sections(&self) -> impl Iterator<Item = (usize, &'a SectionHeader64<LittleEndian>)> {
        self.sections.iter().enumerate()
    }

    /// A section by its name.
    pub fn section(&self, name: &str) -> Option<&'a SectionHeader64<LittleEndian>> {
        self.sections.iter().find(|section| {
            text_at(self.names, section.sh_name.get(LittleEndian)).is_some_and(|other| other == name.as_bytes())
        })
    }

    /// Whether it has a section of this name with bytes of its own in the file.
    pub fn has(&self, name: &str) -> bool {
        self.section(name).is_some_and(|section| {
            section.sh_type(LittleEndian) != elf::SHT_NOBITS && section.sh_size(LittleEndian) > 0
        })
    }

    /// Whether there is a table to unwind by in the file, with a section header or without: `.eh_frame`.
    pub fn has_exception_tables(&self) -> bool {
        let led_to = |segment: &ProgramHeader64<LittleEndian>| {
            segment.p_type(LittleEndian) == elf::PT_GNU_EH_FRAME && segment.p_filesz(LittleEndian) > 0
        };
        self.has(".eh_frame") || (self.section(".eh_frame").is_none() && self.segments.iter().any(led_to))
    }

    /// The bytes of a section as they are in the file; empty for one without.
    pub fn raw(&self, section: &SectionHeader64<LittleEndian>) -> &'a [u8] {
        section.data(LittleEndian, self.bytes).unwrap_or(&[])
    }

    /// The bytes of the section `name`, uncompressed; empty where there is none or it is broken. Also finds the older
    /// `.zdebug_` form.
    pub fn contents(&self, arena: &'a Arena, name: &str) -> &'a [u8] {
        if let Some(section) = self.section(name) {
            let raw = self.raw(section);
            if section.sh_flags(LittleEndian) & u64::from(elf::SHF_COMPRESSED) == 0 {
                return raw;
            }
            return unpack_section(arena, raw).unwrap_or(&[]);
        }
        let Some(rest) = name.strip_prefix(".debug_") else { return &[] };
        let Some(section) = self.section(&format!(".zdebug_{rest}")) else { return &[] };
        unpack_old_section(arena, self.raw(section)).unwrap_or(&[])
    }

    /// Whether it brings debug information of its own.
    pub fn has_debug_info(&self) -> bool {
        self.has(".debug_info") || self.has(".zdebug_info")
    }

    /// Whether there is a symbol table of this kind, with symbols.
    pub fn has_symbols(&self, kind: u32) -> bool {
        self.table(kind).is_some_and(|section| section.sh_size(LittleEndian) > size_of::<Sym64<LittleEndian>>() as u64)
    }

    fn table(&self, kind: u32) -> Option<&'a SectionHeader64<LittleEndian>> {
        self.sections.iter().find(|section| section.sh_type(LittleEndian) == kind)
    }

    /// A symbol table, empty where there is none.
    pub fn symbols(&self, kind: u32) -> Symbols<'a> {
        let Some(section) = self.table(kind) else { return Symbols::default() };
        let names = self.sections.get(section.sh_link(LittleEndian) as usize).map_or(&[][..], |names| self.raw(names));
        Symbols { entries: section.data_as_array(LittleEndian, self.bytes).unwrap_or(&[]), names }
    }

    /// The GNU build id; empty where there is none.
    pub fn build_id(&self) -> &'a [u8] {
        let from_segments = self.segments.iter().find_map(|segment| {
            let mut notes = segment.notes(LittleEndian, self.bytes).ok()??;
            id_of(LittleEndian, &mut notes, GNU)
        });
        from_segments
            .or_else(|| {
                self.sections.iter().find_map(|section| {
                    let mut notes = section.notes(LittleEndian, self.bytes).ok()??;
                    id_of(LittleEndian, &mut notes, GNU)
                })
            })
            .unwrap_or(&[])
    }

    /// File name and CRC of `.gnu_debuglink`.
    pub fn debug_link(&self) -> Option<(&'a [u8], u32)> {
        let (name, rest) = self.named_link(".gnu_debuglink")?;
        let at = (name.len() + 4) & !3;
        let section = self.raw(self.section(".gnu_debuglink")?);
        let crc = section.get(at..at + 4).or(rest.get(..4))?;
        Some((name, u32::from_le_bytes(crc.try_into().ok()?)))
    }

    /// File name and build id of `.gnu_debugaltlink`.
    pub fn alternate_link(&self) -> Option<(&'a [u8], &'a [u8])> {
        self.named_link(".gnu_debugaltlink")
    }

    fn named_link(&self, section: &str) -> Option<(&'a [u8], &'a [u8])> {
        let raw = self.raw(self.section(section)?);
        let end = raw.iter().position(|&byte| byte == 0)?;
        (end > 0).then(|| (&raw[..end], &raw[end + 1..]))
    }

    /// The file address of `address`, in a mapping that begins at `start` and shows the file from `offset` on.
    pub fn file_address(&self, start: u64, offset: u64, address: u64) -> Option<u64> {
        let at = address.checked_sub(start)?.checked_add(offset)?;
        let loaded = || self.segments.iter().filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD);
        let runs = |segment: &&ProgramHeader64<LittleEndian>| segment.p_flags(LittleEndian) & elf::PF_X != 0;
        // Two segments may share a page of the file: what is inside counts first, then what the page brings along.
        let within = |segment: &&ProgramHeader64<LittleEndian>, page: u64| {
            let (from, size) = (segment.p_offset(LittleEndian), segment.p_filesz(LittleEndian));
            let end = from.saturating_add(size);
            let end = end.checked_next_multiple_of(page).unwrap_or(u64::MAX);
            at >= from - from % page && at < end
        };
        let found = loaded()
            .find(|segment| runs(segment) && within(segment, 1))
            .or_else(|| loaded().find(|segment| within(segment, 1)))
            .or_else(|| loaded().find(|segment| runs(segment) && within(segment, PAGE)))
            .or_else(|| loaded().find(|segment| within(segment, PAGE)))?;
        Some(at.wrapping_sub(found.p_offset(LittleEndian)).wrapping_add(found.p_vaddr(LittleEndian)))
    }

    /// The lowest address of code: what debug information tells of lower ones was thrown away by the linker.
    pub fn lowest_code(&self) -> u64 {
        self.segments
            .iter()
            .filter(|segment| {
                segment.p_type(LittleEndian) == elf::PT_LOAD && segment.p_flags(LittleEndian) & elf::PF_X != 0
            })
            .map(|segment| segment.p_vaddr(LittleEndian))
            .min()
            .unwrap_or(0)
    }

    /// The ELF file inside `.gnu_debugdata`.
    pub fn mini_debug_info(&self, arena: &'a Arena) -> Option<Elf<'a>> {
        let packed = self.raw(self.section(".gnu_debugdata")?);
        let mut bytes = Vec::new();
        let reader = lzma_rust2::XzReader::new_mem_limit(packed, false, MAX_MINI_KIB);
        reader.take(MAX_MINI_BYTES + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > MAX_MINI_BYTES {
            return None;
        }
        arena.unpack(bytes.len() as u64)?;
        Elf::parse(arena.keep(bytes))
    }
}

/// A text that ends in a zero byte; None where it does not.
fn text_at(texts: &[u8], at: u32) -> Option<&[u8]> {
    let rest = texts.get(at as usize..)?;
    memchr::memchr(0, rest).map(|end| &rest[..end])
}

/// Who writes a note that identifies a build, and its type.
type IdNote = (&'static [u8], u32);
const GNU: IdNote = (elf::ELF_NOTE_GNU, elf::NT_GNU_BUILD_ID);
/// Go's own note (src/cmd/link/internal/ld/elf.go, ELF_NOTE_GOBUILDID_TAG).
const GO: IdNote = (b"Go", 4);

/// The build id of any ELF file, of 32 bits and 64; empty where there is none. None if this is no such file.
pub fn build_id<'a>(bytes: Bytes<'a>) -> Option<&'a [u8]> {
    id_in_file(bytes, GNU)
}

/// The build id that Go gave a program, which is text; empty where there is none. None if this is no ELF file.
pub fn go_build_id<'a>(bytes: Bytes<'a>) -> Option<&'a [u8]> {
    id_in_file(bytes, GO)
}

fn id_in_file<'a>(bytes: Bytes<'a>, note: IdNote) -> Option<&'a [u8]> {
    match object::FileKind::parse(bytes).ok()? {
        object::FileKind::Elf32 => id_in::<FileHeader32<Endianness>>(bytes, note),
        object::FileKind::Elf64 => id_in::<FileHeader64<Endianness>>(bytes, note),
        _ => None,
    }
}

fn id_in<'a, H: FileHeader<Endian = Endianness>>(bytes: Bytes<'a>, wanted: IdNote) -> Option<&'a [u8]> {
    let header = H::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let in_segments = segments.iter().filter_map(|segment| segment.notes(endian, bytes).ok()?);
    if let Some(id) = in_segments.into_iter().find_map(|mut notes| id_of(endian, &mut notes, wanted)) {
        return Some(id);
    }
    let sections = header.section_headers(endian, bytes).unwrap_or(&[]);
    let in_sections = sections.iter().filter_map(|section| section.notes(endian, bytes).ok()?);
    Some(in_sections.into_iter().find_map(|mut notes| id_of(endian, &mut notes, wanted)).unwrap_or(&[]))
}

fn id_of<'a, H: FileHeader>(
    endian: H::Endian,
    notes: &mut object::read::elf::NoteIterator<'a, H>,
    (name, kind): IdNote,
) -> Option<&'a [u8]> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == name && note.n_type(endian) == kind {
            return Some(note.desc()).filter(|id| !id.is_empty() && id.len() <= MAX_BUILD_ID);
        }
    }
    None
}

fn unpack_section<'a>(arena: &'a Arena, raw: &[u8]) -> Option<&'a [u8]> {
    let (header, packed) = pod::from_bytes::<elf::CompressionHeader64<Endianness>>(raw).ok()?;
    debug_assert_eq!(raw.len() - packed.len(), COMPRESSION_HEADER);
    let size = arena.unpack(header.ch_size.get(Endianness::Little))?;
    match header.ch_type.get(Endianness::Little) {
        elf::ELFCOMPRESS_ZLIB => unpacked(arena, flate2::read::ZlibDecoder::new(packed), size),
        elf::ELFCOMPRESS_ZSTD => {
            let mut packed = packed;
            unpacked(arena, ruzstd::decoding::StreamingDecoder::new(&mut packed).ok()?, size)
        }
        _ => None,
    }
}

fn unpack_old_section<'a>(arena: &'a Arena, raw: &[u8]) -> Option<&'a [u8]> {
    let size = u64::from_be_bytes(raw.strip_prefix(b"ZLIB")?.get(..8)?.try_into().ok()?);
    unpacked(arena, flate2::read::ZlibDecoder::new(&raw[12..]), arena.unpack(size)?)
}

/// Reads exactly `size` bytes. The memory grows with what really comes, not with what a header says.
fn unpacked(arena: &Arena, stream: impl Read, size: usize) -> Option<&[u8]> {
    let mut bytes = Vec::new();
    let read = || -> io::Result<usize> { stream.take(size as u64 + 1).read_to_end(&mut bytes) };
    let complete = { read }().is_ok_and(|read| read == size);
    complete.then(|| arena.keep(bytes))
}
