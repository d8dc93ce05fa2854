//! Addresses → functions, after sampling, each distinct address once.
//!
//! A [`Symbolizer`] is opened from the bytes of a module; the caller has made sure that they are those of the file that
//! is mapped. The sources, the first that knows wins: debug information (the file's own, or of a separate file), symbol
//! tables, PLT stubs. Everything read was written by others: whatever is broken has no names.
//!
//! Never in the sampler process.

pub mod debugfile;
mod demangle;
mod dwarf;
pub mod elf;
pub mod file;
#[cfg(unix)]
pub mod jitdump;
pub mod pe;
#[cfg(unix)]
pub mod perfmap;
mod plt;
mod symtab;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use object::elf::{SHT_DYNSYM, SHT_SYMTAB};

pub use debugfile::Place;
use demangle::MAX_RAW;
pub use demangle::demangle;
use dwarf::split::Split;
use dwarf::{Chain, Debug, Slice};
pub use elf::Elf;
pub use file::{Arena, Bytes};
use plt::Stubs;
use symtab::SymbolTable;

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// The name for people.
    pub function: String,
    /// The name as the linker has it.
    pub system_name: String,
    /// Path of the source file, "" = unknown.
    pub file: Rc<str>,
    /// Line in it, 0 = unknown.
    pub line: u32,
    /// Column, 0 = unknown.
    pub column: u32,
    /// Line where the function is declared, 0 = unknown.
    pub start_line: u32,
    /// Whether its code is part of the next one's.
    pub inlined: bool,
}

/// Why a module gives no names at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No 64-bit little-endian ELF file.
    NotElf,
    /// No PE file for x86-64.
    NotPe,
    /// Its build id is not that of what is mapped.
    Changed,
}

/// What names of a module can come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Whether there is debug information.
    pub debug_info: bool,
    /// The separate file that it is in, as the target sees it.
    pub debug_file: Option<PathBuf>,
    /// Whether there is a `.symtab`, in the file or in its debug file.
    pub symtab: bool,
    /// Whether it is in the debug file alone.
    pub symtab_in_debug_file: bool,
    /// Whether there is a `.dynsym`.
    pub dynsym: bool,
    /// Whether there is mini debug info.
    pub mini_debug_info: bool,
    /// Whether there is an `.eh_frame` to unwind by.
    pub eh_frame: bool,
    /// Whether there is a `.debug_frame`.
    pub debug_frame: bool,
}

/// The names of one module.
pub struct Symbolizer<'a> {
    arena: &'a Arena,
    elf: Elf<'a>,
    separate: Option<(Elf<'a>, PathBuf)>,
    alternate: Option<Elf<'a>>,
    split: Split<'a>,
    sources: Sources,
    tables: Vec<(Elf<'a>, u32)>,
    table: OnceCell<SymbolTable<'a>>,
    stubs: OnceCell<Stubs<'a>>,
}

impl<'a> Symbolizer<'a> {
    /// Opens a module. What it needs is read at the first look-up.
    pub fn open(arena: &'a Arena, bytes: impl Into<Bytes<'a>>, place: &Place<'_>) -> Result<Symbolizer<'a>, Refused> {
        let elf = Elf::parse(bytes).ok_or(Refused::NotElf)?;
        if !place.build_id.is_empty() && elf.build_id() != place.build_id {
            return Err(Refused::Changed);
        }
        let separate = if elf.has_debug_info() { None } else { debugfile::find(arena, &elf, place) };
        let informed = separate.as_ref().map_or(&elf, |(file, _)| file);
        let alternate = debugfile::find_alternate(arena, informed, place);
        let mut files = vec![place.path.to_path_buf()];
        files.extend(separate.iter().map(|(_, path)| path.clone()).filter(|path| path.file_name().is_some()));
        let mut tables = Vec::new();
        let symtab = std::iter::once(&elf).chain(separate.iter().map(|(file, _)| file));
        tables.extend(symtab.filter(|file| file.has_symbols(SHT_SYMTAB)).map(|file| (*file, SHT_SYMTAB)));
        let with_symtab = !tables.is_empty();
        if elf.has_symbols(SHT_DYNSYM) {
            tables.push((elf, SHT_DYNSYM));
        }
        let mut sources = Sources {
            debug_info: informed.has_debug_info(),
            debug_file: separate.as_ref().map(|(_, path)| path.clone()),
            symtab: with_symtab,
            symtab_in_debug_file: with_symtab && !elf.has_symbols(SHT_SYMTAB),
            dynsym: tables.len() > usize::from(with_symtab),
            mini_debug_info: false,
            eh_frame: elf.has_exception_tables(),
            debug_frame: elf.has(".debug_frame") || elf.has(".zdebug_frame"),
        };
        if !with_symtab && let Some(mini) = elf.mini_debug_info(arena) {
            sources.mini_debug_info = true;
            tables.push((mini, SHT_SYMTAB));
        }
        let split = Split::new(arena, place.roots, files);
        let (table, stubs) = (OnceCell::new(), OnceCell::new());
        Ok(Symbolizer { arena, elf, separate, alternate, split, sources, tables, table, stubs })
    }

    /// Where names come from.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Its GNU build id; empty where there is none.
    pub fn build_id(&self) -> &'a [u8] {
        self.elf.build_id()
    }

    /// The file address of `address`, in a mapping that begins at `start` and shows the file from `offset` on.
    pub fn file_address(&self, start: u64, offset: u64, address: u64) -> Option<u64> {
        self.elf.file_address(start, offset, address)
    }

    /// The functions at each of `addresses` (file addresses), the innermost first; none where nothing is known.
    pub fn symbolize(&self, addresses: &[u64]) -> Vec<Vec<Symbol>> {
        if addresses.is_empty() {
            return Vec::new();
        }
        let mut probes = addresses.to_vec();
        probes.sort_unstable();
        probes.dedup();
        let chains = self.debug().map_or_else(Vec::new, |debug| debug.resolve(&probes, &self.split));
        let none = Chain::new();
        let mut names = Names::default();
        let symbols: Vec<Vec<Symbol>> = probes
            .iter()
            .enumerate()
            .map(|(index, &address)| self.symbols(address, chains.get(index).unwrap_or(&none), &mut names))
            .collect();
        let at = |address: &u64| probes.binary_search(address).map_or_else(|_| Vec::new(), |at| symbols[at].clone());
        addresses.iter().map(at).collect()
    }

    fn debug(&self) -> Option<Debug<'a>> {
        let elf = self.separate.as_ref().map_or(&self.elf, |(file, _)| file);
        let alternate = self.alternate.as_ref().map(|file| -> gimli::Dwarf<Slice<'a>> {
            dwarf::load_sections(|id| file.contents(self.arena, id.name())).0
        });
        Debug::load(|name| elf.contents(self.arena, name), alternate, self.elf.lowest_code())
    }

    fn symbols(&self, address: u64, chain: &Chain<'a>, names: &mut Names) -> Vec<Symbol> {
        names.symbols(chain, self.linked_name(address))
    }

    fn linked_name(&self, address: u64) -> Option<String> {
        let table = self.table.get_or_init(|| SymbolTable::read(&self.tables, &self.elf));
        if let Some(name) = table.find(address) {
            return Some(text(name));
        }
        let stubs = self.stubs.get_or_init(|| Stubs::read(&self.elf));
        stubs.find(address).map(|name| text(name) + "@plt")
    }
}

/// Demangled names, each made once.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// What is shown of an address: what debug information tells, under the name that the linker has.
    fn symbols(&mut self, chain: &Chain<'_>, linked: Option<String>) -> Vec<Symbol> {
        let last = chain.len().saturating_sub(1);
        let mut symbols: Vec<Symbol> = Vec::with_capacity(chain.len().max(1));
        for (index, frame) in chain.iter().enumerate() {
            let told = frame.name.map(text);
            let (function, system_name) = match (&told, &linked) {
                // `foo.cold`, `foo.part.0`: parts of foo, which is how people know it.
                (Some(told), Some(linked)) if index == last && is_part(linked, told) => {
                    (self.demangled(told), linked.clone())
                }
                // Of functions that no other file sees only the linker has the whole name.
                (Some(told), Some(linked)) if index == last && is_mangled(linked) && !is_mangled(told) => {
                    (self.demangled(linked), linked.clone())
                }
                (Some(told), _) => (self.demangled(told), told.clone()),
                (None, Some(linked)) if index == last => (self.demangled(linked), linked.clone()),
                (None, _) => continue,
            };
            symbols.push(Symbol {
                function,
                system_name,
                file: frame.file.clone().unwrap_or_default(),
                line: frame.line,
                column: frame.column,
                start_line: frame.start_line,
                inlined: index < last,
            });
        }
        if symbols.is_empty()
            && let Some(linked) = linked
        {
            symbols.push(Symbol { function: self.demangled(&linked), system_name: linked, ..Symbol::default() });
        }
        symbols
    }

    fn demangled(&mut self, raw: &str) -> String {
        if let Some(name) = self.0.get(raw) {
            return name.clone();
        }
        // A symbol may bring its version along.
        let (bare, rest) = match raw.split_once('@') {
            Some((bare, "plt")) => (bare, "@plt"),
            Some((bare, _)) if !bare.is_empty() => (bare, ""),
            _ => (raw, ""),
        };
        let name = demangle(bare) + rest;
        self.0.insert(raw.to_string(), name.clone());
        name
    }
}

fn is_part(linked: &str, told: &str) -> bool {
    linked.strip_prefix(told).is_some_and(|rest| rest.starts_with('.'))
}

fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(MAX_RAW)]).into_owned()
}
