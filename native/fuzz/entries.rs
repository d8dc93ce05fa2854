//! What reads files that others wrote, as functions of bytes: run by the fuzz targets beside this file, and over a fixed
//! set of mutations by `cargo test` (tests/hostile.rs).
#![allow(dead_code, reason = "each target uses what it needs")]

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::FromRawFd;
use std::path::Path;

use _native::symbols::{Arena, Bytes, Elf, Place, Symbolizer, elf, jitdump, perfmap};
use _native::target::Mapping;
use _native::target::recorded::Recorded;
use _native::unwind::{MAX_NATIVE_DEPTH, Registers, StackCopy, Unwinder};
use object::LittleEndian;
use object::read::elf::SectionHeader;

/// Which bytes of a file are of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The ELF header, program headers, section headers, notes, links to other files.
    Headers,
    /// What stacks are unwound by.
    Frames,
    /// Debug information.
    Debug,
    /// Symbol tables, and the relocations that name PLT stubs.
    Symbols,
}

impl Part {
    /// The sections.
    fn sections(self) -> &'static [&'static str] {
        match self {
            Part::Headers => &[".shstrtab", ".note.gnu.build-id", ".gnu_debuglink", ".gnu_debugaltlink"],
            Part::Frames => &[".eh_frame", ".eh_frame_hdr", ".debug_frame"],
            Part::Debug => &[
                ".debug_info",
                ".debug_abbrev",
                ".debug_line",
                ".debug_line_str",
                ".debug_str",
                ".debug_str_offsets",
                ".debug_addr",
                ".debug_ranges",
                ".debug_rnglists",
                ".debug_aranges",
            ],
            Part::Symbols => &[".symtab", ".strtab", ".dynsym", ".dynstr", ".rela.plt", ".plt", ".gnu_debugdata"],
        }
    }

    /// The ranges of a file that this is; empty where it has none.
    pub fn ranges(self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let mut add = |start: u64, size: u64| {
            let end = start.saturating_add(size).min(bytes.len() as u64) as usize;
            if (start as usize) < end {
                ranges.push(start as usize..end);
            }
        };
        if self == Part::Headers {
            add(0, 64);
            add(64, 56 * 13);
            add(bytes.get(40..48).map_or(0, |at| u64::from_le_bytes(at.try_into().unwrap_or_default())), 64 * 48);
        }
        if let Some(elf) = Elf::parse(bytes) {
            for section in self.sections().iter().filter_map(|name| elf.section(name)) {
                add(section.sh_offset(LittleEndian), section.sh_size(LittleEndian));
            }
        }
        ranges
    }
}

/// Where the file says that its code is, if that can be; else where the code of small programs is.
fn code_of(bytes: &[u8]) -> Range<u64> {
    let text = Elf::parse(bytes).and_then(|elf| elf.section(".text"));
    let range = text.map(|text| (text.sh_addr(LittleEndian), text.sh_size(LittleEndian)));
    let range = range.filter(|&(start, size)| start < 1 << 24 && (1..1 << 24).contains(&size));
    range.map_or(0x1000..0x9000, |(start, size)| start..start + size)
}

/// Everything that names are taken from; gives how many addresses have one.
pub fn names(bytes: &[u8]) -> usize {
    let arena = Arena::default();
    let place = Place { path: Path::new("/nowhere/program"), ..Place::default() };
    let _ = elf::build_id(Bytes::from(bytes));
    let Ok(symbolizer) = Symbolizer::open(&arena, bytes, &place) else { return 0 };
    let code = code_of(bytes);
    let mut addresses: Vec<u64> = code.clone().step_by(((code.end - code.start) / 100).max(1) as usize).collect();
    addresses.extend([0, 1 << 40, u64::MAX]);
    for &address in &addresses {
        symbolizer.file_address(0x5555_0000_0000, 0, 0x5555_0000_0000_u64.wrapping_add(address));
    }
    symbolizer.symbolize(&addresses).iter().filter(|chain| !chain.is_empty()).count()
}

const BASE: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7ffd_0000_0000;
const STACK_WORDS: u64 = 1024;

fn file_of(bytes: &[u8]) -> File {
    // SAFETY: memfd_create gives a new descriptor, which the file then owns.
    let mut file = unsafe {
        let descriptor = libc::memfd_create(c"fuzzed".as_ptr(), libc::MFD_CLOEXEC);
        assert!(descriptor >= 0, "no memory file");
        File::from_raw_fd(descriptor)
    };
    file.write_all(bytes).unwrap();
    file
}

/// Unwinds stacks of all kinds of words by a file's tables; gives how many frames were found. `loaded`: the file cannot
/// be opened, its tables are read from memory.
pub fn stacks(bytes: &[u8], loaded: bool) -> usize {
    let mapping = |start: u64, end: u64, permissions: &str| Mapping {
        start: BASE + start,
        end: BASE + end,
        permissions: permissions.to_string(),
        offset: start,
        device: "fe:01".to_string(),
        inode: 7,
        path: "/program".to_string(),
    };
    let end = (bytes.len() as u64).next_multiple_of(4096).max(0x2000);
    let mappings = [mapping(0, 0x1000, "r--p"), mapping(0x1000, end, "r-xp")];
    let code = code_of(bytes);
    let size = code.end - code.start;
    let mut unwinder = Unwinder::new();
    let open = |_: &Mapping| if loaded { Err(std::io::ErrorKind::NotFound.into()) } else { Ok(file_of(bytes)) };
    let memory = Recorded::of(BASE, bytes);
    unwinder.set_mappings(&memory, &mappings, &open);
    // Code, stack, small numbers and nonsense, by turns; the same for each file.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut copy = Vec::with_capacity(STACK_WORDS as usize * 8);
    for _ in 0..STACK_WORDS {
        let word = match next() % 8 {
            0..=4 => BASE + code.start + next() % size,
            5 => STACK + next() % (STACK_WORDS * 8) / 8 * 8,
            6 => next() % 64,
            _ => next(),
        };
        copy.extend_from_slice(&word.to_le_bytes());
    }
    let (mut frames, mut found) = (Vec::new(), 0);
    for round in 0..16 {
        let ip = BASE + code.start + next() % size;
        let sp = match round % 8 {
            6 => u64::MAX - 8,
            7 => STACK + STACK_WORDS * 8,
            _ => STACK + next() % 4096 / 8 * 8,
        };
        let start = Registers::new(ip, sp, STACK + next() % 16384);
        unwinder.unwind(&memory, &start, &[StackCopy { address: STACK, bytes: &copy }], &mut frames);
        assert!(frames.len() <= MAX_NATIVE_DEPTH, "deeper than its bound");
        found += frames.len();
    }
    found
}

/// Names of JIT code by the text of a perf map; gives how many there are.
pub fn perf_map(text: &[u8]) -> usize {
    let addresses = [0, 1, 0x1000, 0x1010, 0x1018, 0x7f00_0000_0000, u64::MAX - 1, u64::MAX];
    perfmap::find(text, &addresses).iter().flatten().count()
}

/// A jitdump; how many names it tells.
pub fn jit_dump(bytes: &[u8]) -> usize {
    let addresses = [0, 1, 0x1000, 0x1010, 0x1018, 0x2000, 0x2010, 0x7f00_0000_0000, u64::MAX];
    jitdump::find(&file_of(bytes), &addresses).map_or(0, |told| told.iter().flatten().count())
}
