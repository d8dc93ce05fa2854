//! Names of the code of PE files. The sources, the first that knows wins: debug information (DWARF, as GCC writes it), the
//! COFF symbol table, exports. PDB files are not read.
//!
//! COFF symbols and exports have no sizes: a name holds up to the next one, and within the function that the table of
//! functions (`.pdata`) tells.

use std::ops::Range;

use object::read::pe::{ExportTarget, PeFile64};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::demangle::MAX_RAW;
use super::dwarf::split::Split;
use super::dwarf::{Chain, Debug};
use super::{Arena, Bytes, Names, Refused, Symbol, text};
use crate::pe::Loaded;
use crate::target::Mapping;
use crate::unwind::pe::{Pages, Tables};

/// Most names of one file.
const MAX_NAMES: usize = 8 << 20;

/// What tells a file from others of its name: time stamp, size of the image, checksum.
type Head = (u32, u32, u32);

/// The names of one file.
pub struct PeSymbolizer<'a> {
    arena: &'a Arena,
    file: PeFile64<'a>,
    loaded: Loaded<'a>,
}

/// What tells where functions are, and what they are called.
struct Functions<'a> {
    tables: Tables,
    pages: Pages,
    /// By their offsets.
    names: Vec<(u32, &'a [u8])>,
}

impl<'a> PeSymbolizer<'a> {
    /// Opens a file; `head` is how the file that is meant begins in memory.
    pub fn open(arena: &'a Arena, bytes: Bytes<'a>, head: &[u8]) -> Result<PeSymbolizer<'a>, Refused> {
        let bytes = bytes.whole().ok_or(Refused::NotPe)?;
        let file = PeFile64::parse(bytes).map_err(|_| Refused::NotPe)?;
        if head_of(bytes).is_none() || head_of(bytes) != head_of(head) {
            return Err(Refused::Changed);
        }
        let loaded = Loaded::parse(bytes, 0).ok_or(Refused::NotPe)?;
        Ok(PeSymbolizer { arena, file, loaded })
    }

    /// The functions at each of `offsets` from the module's base, the innermost first; none where nothing is known.
    pub fn symbolize(&self, offsets: &[u32]) -> Vec<Vec<Symbol>> {
        if offsets.is_empty() {
            return Vec::new();
        }
        let whole = Mapping { end: u64::from(u32::MAX), ..Mapping::default() };
        let tables = Tables::read(&self.loaded, &whole, usize::MAX);
        let functions = tables.map(|tables| Functions { tables, pages: Pages::default(), names: names(&self.file) });
        let base = self.file.relative_address_base();
        let mut probes: Vec<u64> = offsets.iter().map(|&offset| base.wrapping_add(u64::from(offset))).collect();
        let addresses = probes.clone();
        probes.sort_unstable();
        probes.dedup();
        let section = |name: &str| {
            let section = self.file.section_by_name(name);
            section.and_then(|section| section.data().ok()).unwrap_or(&[])
        };
        let split = Split::new(self.arena, &[], Vec::new());
        // What the linker threw away is said to be at the image's base.
        let debug = Debug::load(section, None, base.saturating_add(1));
        let chains = debug.map_or_else(Vec::new, |debug| debug.resolve(&probes, &split));
        let (none, mut names) = (Chain::new(), Names::default());
        let of = |(&address, offset): (&u64, &u32)| {
            let chain = probes.binary_search(&address).ok().and_then(|at| chains.get(at)).unwrap_or(&none);
            let linked = functions.as_ref().and_then(|functions| functions.name(&self.loaded, *offset));
            names.symbols(chain, linked.map(text))
        };
        addresses.iter().zip(offsets).map(of).collect()
    }

    /// Whether there is debug information.
    pub fn has_debug_info(&self) -> bool {
        self.file.section_by_name(gimli::SectionId::DebugInfo.name()).is_some()
    }
}

impl<'a> Functions<'a> {
    /// The name of the function at an offset.
    fn name(&self, loaded: &Loaded<'_>, offset: u32) -> Option<&'a [u8]> {
        let address = u64::from(offset);
        // A function that has no table, and so no frame, lies between two that have one.
        let within = self.tables.function(address).unwrap_or_else(|| self.tables.gap(address));
        self.last_in(within.start..address + 1).or_else(|| {
            // A part of a function that lies elsewhere.
            let whole = self.tables.whole(loaded, &self.pages, address)?;
            self.last_in(whole.start..whole.start + 1)
        })
    }

    /// The last name in a range.
    fn last_in(&self, range: Range<u64>) -> Option<&'a [u8]> {
        let next = self.names.partition_point(|(offset, _)| u64::from(*offset) < range.end);
        let (offset, name) = self.names.get(next.checked_sub(1)?)?;
        (range.start <= u64::from(*offset)).then_some(*name)
    }
}

fn head_of(bytes: &[u8]) -> Option<Head> {
    let field = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let at = field(0x3c)? as usize;
    // Signature (4), file header (20); in the optional header the size of the image and the checksum.
    Some((field(at.checked_add(8)?)?, field(at.checked_add(24 + 56)?)?, field(at.checked_add(24 + 64)?)?))
}

/// Functions by their names: those of the symbol table, and exports where that has none.
fn names<'a>(file: &PeFile64<'a>) -> Vec<(u32, &'a [u8])> {
    let base = file.relative_address_base();
    let code: Vec<Range<u64>> = file
        .sections()
        .filter(|section| section.kind() == object::SectionKind::Text)
        .map(|section| section.address()..section.address().saturating_add(section.size()))
        .collect();
    let is_code = |address: u64| code.iter().any(|range| range.contains(&address));
    // (offset, whether it is an export, name)
    let mut found: Vec<(u32, bool, &'a [u8])> = Vec::new();
    let mut add = |address: u64, export: bool, name: &'a [u8]| {
        let offset = address.checked_sub(base).and_then(|offset| u32::try_from(offset).ok());
        if let Some(offset) = offset.filter(|_| is_code(address) && !name.is_empty() && name.len() <= MAX_RAW) {
            found.push((offset, export, name));
        }
    };
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text).take(MAX_NAMES) {
        if let Ok(name) = symbol.name_bytes() {
            add(symbol.address(), false, name);
        }
    }
    let exports = file.export_table().ok().flatten().and_then(|table| table.exports().ok()).unwrap_or_default();
    for export in exports.into_iter().take(MAX_NAMES) {
        if let (Some(name), ExportTarget::Address(offset)) = (export.name, export.target) {
            add(base.wrapping_add(u64::from(offset)), true, name);
        }
    }
    found.sort_unstable_by_key(|(offset, export, name)| (*offset, *export, name.len(), *name));
    found.dedup_by_key(|(offset, ..)| *offset);
    found.into_iter().map(|(offset, _, name)| (offset, name)).collect()
}
