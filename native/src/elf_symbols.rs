//! A few symbols of an ELF file, found by their names: the string table is searched for those, instead of looking at the
//! names of hundreds of thousands of symbols.

use std::ops::Range;

use object::elf::{self, FileHeader64, Sym64};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{LittleEndian, ReadRef};
use rustc_hash::FxHashMap;

/// Most symbols of one file looked at.
const MAX_SYMBOLS: usize = 8 << 20;
/// Most names kept.
const MAX_NAMES: usize = 4096;
/// Largest string table looked through.
const MAX_STRING_BYTES: u64 = 256 << 20;

/// A defined symbol; the address is the file's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Where it is.
    pub range: Range<u64>,
    /// Whether it is a function.
    pub function: bool,
}

/// The symbols whose names begin with one of `wanted`: of the symbol table, or if that has none of the dynamic one. An
/// empty list for what is no ELF file.
pub fn beginning_with<'a, R: ReadRef<'a>>(file: R, wanted: &[&[u8]]) -> Vec<Named<'a>> {
    let mut found = Vec::new();
    let Ok(header) = FileHeader64::<LittleEndian>::parse(file) else { return found };
    let Ok(sections) = header.sections(LittleEndian, file) else { return found };
    for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        let Ok(symbols) = sections.symbols(LittleEndian, file, kind) else { continue };
        let Ok(strings) = sections.section(symbols.string_section()) else { continue };
        if strings.sh_size(LittleEndian) > MAX_STRING_BYTES {
            continue;
        }
        let Ok(strings) = strings.data(LittleEndian, file) else { continue };
        let names = names(strings, wanted);
        if names.is_empty() {
            continue;
        }
        let named = |symbol: &Sym64<LittleEndian>| {
            let name = names.get(&symbol.st_name(LittleEndian))?;
            let start = symbol.st_value(LittleEndian);
            let end = start.checked_add(symbol.st_size(LittleEndian))?;
            let defined = symbol.st_shndx(LittleEndian) != elf::SHN_UNDEF;
            let function = symbol.st_type() == elf::STT_FUNC;
            defined.then_some(Named { name, range: start..end, function })
        };
        found.extend(symbols.iter().take(MAX_SYMBOLS).filter_map(named).take(MAX_NAMES));
        if !found.is_empty() {
            break;
        }
    }
    found
}

/// The names in a string table that begin as wanted, by their place. Linkers let a name that is the end of another share
/// its bytes, so one within a longer name counts too.
fn names<'a>(strings: &'a [u8], wanted: &[&[u8]]) -> FxHashMap<u32, &'a [u8]> {
    let mut found = FxHashMap::default();
    for wanted in wanted {
        for at in memchr::memmem::find_iter(strings, wanted).take(MAX_NAMES) {
            let end = memchr::memchr(0, &strings[at..]).map_or(strings.len(), |size| at + size);
            if let Ok(place) = u32::try_from(at) {
                found.insert(place, &strings[at..end]);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_place() {
        let strings = b"\0x_wanted\0_wanted.cold\0other\0_want\0_wanted";
        let found = names(strings, &[b"_wanted"]);
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort();
        assert_eq!(found, [(2, &b"_wanted"[..]), (10, b"_wanted.cold"), (35, b"_wanted")]);
    }

    #[test]
    fn our_own_symbols() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = beginning_with(&*bytes, &[b"main"]);
        assert!(found.iter().any(|symbol| symbol.name == b"main" && symbol.function && symbol.range.start > 0));
        assert!(beginning_with(&b"no ELF file"[..], &[b"main"]).is_empty());
    }
}
