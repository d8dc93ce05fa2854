//! Windows programs for the tests: files that scripts/setup-wine fetches, and images made here.
#![allow(dead_code)]

use std::path::PathBuf;

use _native::memory::Memory;
use _native::pe::{Loaded, Pe};
use _native::target::Mapping;
use _native::target::recorded::Recorded;

pub const BASE: u64 = 0x7ff8_0000_0000;

/// A file of CPython 3.14 for Windows.
pub fn file(name: &str) -> Vec<u8> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", ".cache", "windows", "python", "3.14"].iter().collect();
    let path = folder.join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}: run scripts/setup-wine", path.display()))
}

pub fn mapping(size: u64, name: &str) -> Mapping {
    let path = format!(r"C:\windows\{name}");
    Mapping { start: BASE, end: BASE + size, permissions: "r-xp".to_string(), path, ..Mapping::default() }
}

/// A file as it lies in memory.
pub fn laid_out(bytes: &[u8]) -> Vec<u8> {
    let loaded = Loaded::parse(bytes, BASE).unwrap();
    let size = Pe::read(&loaded, BASE).unwrap().size as usize;
    let mut image = vec![0; size];
    for (index, page) in image.chunks_mut(4096).enumerate() {
        let _ = loaded.read(BASE + 4096 * index as u64, page);
    }
    image
}

/// Where [`PdataImage`] has its parts.
pub mod code {
    pub const PDATA: usize = 0x1000;
    pub const XDATA: usize = 0x2000;
    pub const CODE: usize = 0x4000;
    /// In no function.
    pub const GAP: u64 = 0x7000;
    pub const SIZE: usize = 0x8000;
    /// Bytes kept for each table.
    pub const TABLE: usize = 0x100;
}

/// An image with a table of functions, and `int3` for code.
pub struct PdataImage {
    bytes: Vec<u8>,
    count: usize,
    end: usize,
}

impl PdataImage {
    pub fn new() -> PdataImage {
        let mut image = PdataImage { bytes: vec![0; code::SIZE], count: 0, end: code::CODE };
        image.bytes[code::CODE..].fill(0xcc);
        image.put(0, b"MZ");
        image.put(0x3c, &0x80_u32.to_le_bytes());
        image.put(0x80, b"PE\0\0\x64\x86");
        image.put(0x80 + 24, &0x20b_u16.to_le_bytes());
        image.put(0x80 + 24 + 56, &(code::SIZE as u32).to_le_bytes());
        image.put(0x80 + 24 + 108, &16_u32.to_le_bytes());
        image.put(0x80 + 24 + 112 + 24, &(code::PDATA as u32).to_le_bytes());
        image
    }

    pub fn put(&mut self, at: usize, content: &[u8]) {
        self.bytes[at..at + content.len()].copy_from_slice(content);
    }

    /// Adds a function of so many bytes with this UNWIND_INFO; gives its number.
    pub fn function(&mut self, size: usize, table: &[u8]) -> usize {
        let (number, begin) = (self.count, self.end);
        let at = code::XDATA + number * code::TABLE;
        self.entry(code::PDATA + number * 12, [begin, begin + size, at]);
        self.put(at, table);
        self.count += 1;
        self.end += size;
        self.put(0x80 + 24 + 112 + 28, &(self.count as u32 * 12).to_le_bytes());
        number
    }

    fn entry(&mut self, at: usize, fields: [usize; 3]) {
        for (index, field) in fields.into_iter().enumerate() {
            self.put(at + index * 4, &(field as u32).to_le_bytes());
        }
    }

    fn fields(&self, number: usize) -> [usize; 3] {
        let at = code::PDATA + number * 12;
        std::array::from_fn(|index| {
            u32::from_le_bytes(self.bytes[at + index * 4..at + index * 4 + 4].try_into().unwrap()) as usize
        })
    }

    /// The table of `part`, whose flags say so, goes on in that of `whole`.
    pub fn chain(&mut self, part: usize, whole: usize) {
        let table = code::XDATA + part * code::TABLE;
        let count = usize::from(self.bytes[table + 2]).next_multiple_of(2);
        let fields = self.fields(whole);
        self.entry(table + 4 + 2 * count, fields);
    }

    pub fn lead_to_itself(&mut self, number: usize) {
        let at = code::PDATA + number * 12;
        let [begin, end, _] = self.fields(number);
        self.entry(at, [begin, end, at | 1]);
    }

    pub fn swap(&mut self, one: usize, other: usize) {
        let (first, second) = (self.fields(one), self.fields(other));
        self.entry(code::PDATA + one * 12, second);
        self.entry(code::PDATA + other * 12, first);
    }

    pub fn start(&self, number: usize) -> u64 {
        BASE + self.fields(number)[0] as u64
    }

    pub fn size(&self) -> u64 {
        code::SIZE as u64
    }

    pub fn memory(&self) -> Recorded {
        Recorded::of(BASE, &self.bytes)
    }
}

impl Default for PdataImage {
    fn default() -> Self {
        PdataImage::new()
    }
}
