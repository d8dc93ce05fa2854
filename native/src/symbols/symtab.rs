//! Names from symbol tables: `.symtab`, `.dynsym` and the mini debug info's.

use object::read::elf::{SectionHeader, Sym};
use object::{LittleEndian, elf};

use super::demangle::MAX_RAW;
use super::elf::Elf;

/// Most symbols kept of one module.
pub const MAX_SYMBOLS: usize = 8 << 20;
/// How many symbols that begin before an address are tried for one that reaches over it.
const MAX_NESTED: usize = 256;

struct Entry<'a> {
    start: u64,
    end: u64,
    name: &'a [u8],
    rank: Rank,
}

/// Which of several names of one address is taken: a function's before a label's, `read` before `__read` before
/// `__libc_read`, the shortest.
type Rank = (bool, usize, bool, usize);

/// The code symbols of a module, sorted by address.
#[derive(Default)]
pub struct SymbolTable<'a> {
    sized: Vec<Entry<'a>>,
    /// The highest end up to here, in `sized`.
    reach: Vec<u64>,
    unsized_: Vec<Entry<'a>>,
}

impl<'a> SymbolTable<'a> {
    /// The code symbols of `files`; `code` has the section headers that say what is code.
    pub fn read(files: &[(Elf<'a>, u32)], code: &Elf<'a>) -> SymbolTable<'a> {
        let ranges = code_sections(code);
        let mut table = SymbolTable::default();
        for (file, kind) in files {
            table.add(file, *kind, &ranges);
        }
        table.sized.sort_by(|a, b| (a.start, &a.rank, a.name).cmp(&(b.start, &b.rank, b.name)));
        table.sized.dedup_by_key(|entry| entry.start);
        let mut highest = 0;
        for entry in &table.sized {
            highest = highest.max(entry.end);
            table.reach.push(highest);
        }
        table.unsized_.sort_by(|a, b| (a.start, &a.rank, a.name).cmp(&(b.start, &b.rank, b.name)));
        table.unsized_.dedup_by_key(|entry| entry.start);
        table
    }

    /// The symbol over `address`.
    pub fn find(&self, address: u64) -> Option<&'a [u8]> {
        self.find_sized(address).or_else(|| self.find_unsized(address))
    }

    fn find_sized(&self, address: u64) -> Option<&'a [u8]> {
        let next = self.sized.partition_point(|entry| entry.start <= address);
        for index in (next.saturating_sub(MAX_NESTED)..next).rev() {
            if self.reach[index] <= address {
                return None;
            }
            if address < self.sized[index].end {
                return Some(self.sized[index].name);
            }
        }
        None
    }

    /// A symbol without a size reaches to the next symbol of its section.
    fn find_unsized(&self, address: u64) -> Option<&'a [u8]> {
        let next = self.unsized_.partition_point(|entry| entry.start <= address);
        let entry = &self.unsized_[next.checked_sub(1)?];
        let after = self.sized.partition_point(|other| other.start <= entry.start);
        let limit = self.sized.get(after).map_or(u64::MAX, |other| other.start);
        (address < entry.end && address < limit).then_some(entry.name)
    }

    fn add(&mut self, file: &Elf<'a>, kind: u32, ranges: &[(u64, u64)]) {
        let symbols = file.symbols(kind);
        for symbol in symbols.entries {
            if self.sized.len() + self.unsized_.len() >= MAX_SYMBOLS {
                return;
            }
            let function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
            if !(function || symbol.st_type() == elf::STT_NOTYPE) || symbol.is_undefined(LittleEndian) {
                continue;
            }
            let start = symbol.st_value(LittleEndian);
            let Some(limit) = limit_of(start, ranges) else { continue };
            let Some(name) = symbols.name(symbol) else { continue };
            if name.is_empty() || name.len() > MAX_RAW || name[0] == b'$' {
                continue;
            }
            let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
            let mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
            let rank =
                (!function, if mangled { 0 } else { underscores }, symbol.st_bind() == elf::STB_LOCAL, name.len());
            let size = symbol.st_size(LittleEndian);
            let end = start.saturating_add(size).min(limit);
            if size > 0 {
                self.sized.push(Entry { start, end, name, rank });
            } else {
                self.unsized_.push(Entry { start, end: limit, name, rank });
            }
        }
    }
}

/// The address ranges of code, sorted; empty where the file has no section headers.
fn code_sections(file: &Elf<'_>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = file
        .sections()
        .filter(|(_, section)| {
            let flags = section.sh_flags(LittleEndian);
            flags & u64::from(elf::SHF_EXECINSTR) != 0 && flags & u64::from(elf::SHF_ALLOC) != 0
        })
        .map(|(_, section)| {
            let start = section.sh_addr(LittleEndian);
            (start, start.saturating_add(section.sh_size(LittleEndian)))
        })
        .collect();
    ranges.sort_unstable();
    ranges
}

/// The end of the code section that `start` is in. Without section headers every address will do.
fn limit_of(start: u64, ranges: &[(u64, u64)]) -> Option<u64> {
    if ranges.is_empty() {
        return Some(u64::MAX);
    }
    let next = ranges.partition_point(|&(from, _)| from <= start);
    ranges[..next].last().filter(|&&(_, end)| start < end).map(|&(_, end)| end)
}
