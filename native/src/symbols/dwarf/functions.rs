//! The functions of one unit, and the calls inlined into them, streamed.

use gimli::{Abbreviation, AttributeValue, EntriesRaw, Range, RangeListsOffset, UnitOffset, UnitRef};

use super::lines::Row;
use super::names::Names;
use super::{Budget, Slice, Stop, inside};

/// Most inlined calls at one address; deeper ones are left out.
const MAX_CHAIN: usize = 256;

/// One function at an address.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// What it is called.
    pub name: Option<&'a [u8]>,
    /// Line of its declaration, 0 = unknown.
    pub start_line: u32,
    /// Where the next outer function calls it.
    pub from: Row,
}

/// The same while entries are read: names are looked up at the end.
#[derive(Clone, Copy)]
struct Entry {
    offset: UnitOffset,
    from: Row,
}

/// An address, with the chain found so far, the outermost function first.
#[derive(Clone, Default)]
struct Probe {
    entries: Vec<Entry>,
    /// Size of the range that the outermost function was found by.
    width: u64,
}

/// A function that is being read.
struct Scope {
    depth: isize,
    /// Its outermost function.
    function: UnitOffset,
    /// How many entries a chain has that ends in it.
    level: usize,
    /// Probes that are in it, sorted.
    probes: Vec<usize>,
}

/// The calls at each of the sorted `addresses`, the outermost first.
pub fn chains<'a>(
    unit: UnitRef<'_, Slice<'a>>,
    addresses: &[u64],
    floor: u64,
    budget: &Budget,
    names: &Names<'a, '_>,
) -> Result<Vec<Vec<Call<'a>>>, Stop> {
    let mut probes = probe(unit, addresses, floor, budget, true)?;
    let open: Vec<usize> = (0..probes.len()).filter(|&index| probes[index].entries.is_empty()).collect();
    if !open.is_empty() {
        // A function may stand inside of one that its code is not in: a lambda's, a nested one's.
        let rest: Vec<u64> = open.iter().map(|&index| addresses[index]).collect();
        for (index, found) in open.into_iter().zip(probe(unit, &rest, floor, budget, false)?) {
            probes[index] = found;
        }
    }
    let mut chains = Vec::with_capacity(probes.len());
    for probe in probes {
        let mut chain = Vec::with_capacity(probe.entries.len());
        for entry in probe.entries {
            let named = names.find(entry.offset, budget)?;
            chain.push(Call { name: named.name, start_line: named.line, from: entry.from });
        }
        chains.push(chain);
    }
    Ok(chains)
}

/// Reads the unit once. With `leap`, what stands inside of an entry without probes is left out where the entry says
/// where it ends.
fn probe(
    unit: UnitRef<'_, Slice<'_>>,
    addresses: &[u64],
    floor: u64,
    budget: &Budget,
    leap: bool,
) -> Result<Vec<Probe>, Stop> {
    let mut walk = Walk { unit, addresses, floor, budget, leap, probes: vec![Probe::default(); addresses.len()] };
    match walk.run() {
        Err(Stop::Budget) => Err(Stop::Budget),
        // What was found before the broken entry stands.
        Ok(()) | Err(Stop::Broken) => Ok(walk.probes),
    }
}

struct Walk<'a, 'u, 'p> {
    unit: UnitRef<'u, Slice<'a>>,
    addresses: &'p [u64],
    floor: u64,
    budget: &'p Budget,
    leap: bool,
    probes: Vec<Probe>,
}

impl<'a> Walk<'a, '_, '_> {
    fn run(&mut self) -> Result<(), Stop> {
        let unit = self.unit.unit;
        let mut entries = unit.entries_raw(None)?;
        // Depth of where `entries` began.
        let mut base = 0;
        let mut scopes: Vec<Scope> = Vec::new();
        while !entries.is_empty() {
            self.budget.step()?;
            let offset = entries.next_offset();
            let depth = base + entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            while scopes.last().is_some_and(|scope| scope.depth >= depth) {
                scopes.pop();
            }
            let around = scopes.last();
            let code = match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {
                    let code = self.read_code(&mut entries, abbreviation)?;
                    let probes = self.enter_function(offset, &code)?;
                    if !probes.is_empty() || (around.is_some() && !self.leaps(&code, &entries)) {
                        // A declaration inside of nothing hides nothing.
                        scopes.push(Scope { depth, function: offset, level: 1, probes });
                        continue;
                    }
                    code
                }
                gimli::DW_TAG_inlined_subroutine if around.is_some_and(|scope| !scope.probes.is_empty()) => {
                    let code = self.read_code(&mut entries, abbreviation)?;
                    let Some(scope) = around else { continue };
                    let (function, level) = (scope.function, scope.level);
                    let probes = self.enter_inlined(offset, &code, scope)?;
                    if !probes.is_empty() || !self.leaps(&code, &entries) {
                        scopes.push(Scope { depth, function, level: level + 1, probes });
                        continue;
                    }
                    code
                }
                gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_enumeration_type
                    if self.leap && abbreviation.has_children() =>
                {
                    self.read_code(&mut entries, abbreviation)?
                }
                _ => {
                    entries.skip_attributes(abbreviation.attributes())?;
                    continue;
                }
            };
            if let Some(sibling) = code.sibling.filter(|_| self.leaps(&code, &entries)) {
                (entries, base) = (unit.entries_raw(Some(sibling))?, depth);
            }
        }
        Ok(())
    }

    /// Whether to go on behind what stands inside of an entry. Only ever forward.
    fn leaps(&self, code: &Code, entries: &EntriesRaw<'_, Slice<'a>>) -> bool {
        self.leap && code.sibling.is_some_and(|sibling| sibling.0 >= entries.next_offset().0)
    }

    /// A function may have several ranges; of several functions at one address the one with the narrowest counts.
    fn enter_function(&mut self, offset: UnitOffset, code: &Code) -> Result<Vec<usize>, Stop> {
        let mut found = Vec::new();
        code.ranges(self.unit, self.budget, |range| {
            for index in inside(self.addresses, &range, self.floor) {
                self.budget.step()?;
                let probe = &mut self.probes[index];
                let width = range.end - range.begin;
                if probe.entries.is_empty() || width < probe.width {
                    probe.entries.clear();
                    probe.entries.push(Entry { offset, from: Row::default() });
                    probe.width = width;
                    found.push(index);
                }
            }
            Ok(())
        })?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    fn enter_inlined(&mut self, offset: UnitOffset, code: &Code, scope: &Scope) -> Result<Vec<usize>, Stop> {
        let mut found = Vec::new();
        if scope.level >= MAX_CHAIN {
            return Ok(found);
        }
        code.ranges(self.unit, self.budget, |range| {
            let outside = |&index: &usize| self.addresses[index] < range.begin;
            let from = scope.probes.partition_point(outside);
            for &index in &scope.probes[from..] {
                if self.addresses[index] >= range.end {
                    break;
                }
                self.budget.step()?;
                let probe = &mut self.probes[index];
                // Another call at the same level, or another function, may have been first.
                if probe.entries.len() == scope.level && probe.entries[0].offset == scope.function {
                    probe.entries.push(Entry { offset, from: code.from });
                    found.push(index);
                }
            }
            Ok(())
        })?;
        found.sort_unstable();
        Ok(found)
    }

    fn read_code(&self, entries: &mut EntriesRaw<'_, Slice<'a>>, abbreviation: &Abbreviation) -> Result<Code, Stop> {
        let mut code = Code::default();
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            let value = attribute.value();
            let number = || attribute.udata_value().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
            match attribute.name() {
                gimli::DW_AT_low_pc => code.low = self.unit.attr_address(value)?,
                gimli::DW_AT_high_pc => match value {
                    AttributeValue::Udata(size) => code.size = Some(size),
                    value => code.high = self.unit.attr_address(value)?,
                },
                gimli::DW_AT_ranges => code.list = self.unit.attr_ranges_offset(value)?,
                gimli::DW_AT_sibling => {
                    if let AttributeValue::UnitRef(at) = value {
                        code.sibling = Some(at);
                    }
                }
                gimli::DW_AT_call_file => {
                    if let AttributeValue::FileIndex(index) = value {
                        // Before DWARF 5 file 0 was no file.
                        code.from.file = Some(index).filter(|&index| index > 0 || self.unit.header.version() >= 5);
                    }
                }
                gimli::DW_AT_call_line => code.from.line = number(),
                gimli::DW_AT_call_column => code.from.column = number(),
                _ => {}
            }
        }
        Ok(code)
    }
}

/// Where an entry's code is, and where it is called.
#[derive(Default)]
struct Code {
    low: Option<u64>,
    high: Option<u64>,
    size: Option<u64>,
    list: Option<RangeListsOffset>,
    /// The next entry that does not stand inside of it.
    sibling: Option<UnitOffset>,
    from: Row,
}

impl Code {
    fn ranges(
        &self,
        unit: UnitRef<'_, Slice<'_>>,
        budget: &Budget,
        mut each: impl FnMut(Range) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        if let Some(list) = self.list {
            let mut ranges = unit.ranges(list)?;
            while let Some(range) = ranges.next()? {
                budget.step()?;
                each(range)?;
            }
            return Ok(());
        }
        let Some(begin) = self.low else { return Ok(()) };
        let Some(end) = self.high.or_else(|| begin.checked_add(self.size?)) else { return Ok(()) };
        if begin < end { each(Range { begin, end }) } else { Ok(()) }
    }
}
