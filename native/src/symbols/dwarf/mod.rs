//! DWARF 2 to 5: addresses → chains of inlined calls with lines.
//!
//! All addresses of a module are looked up together, in one pass over its units: of each unit that holds some of them
//! the entries and the lines are streamed once and forgotten. So the memory follows the addresses, not the file, and
//! nothing recurses, however deep a hostile file nests. This is why gimli is used without the addr2line crate, which
//! keeps all lines and ranges of a unit and recurses into inlined calls.

mod aranges;
mod functions;
mod lines;
mod names;
pub mod split;

use std::cell::Cell;
use std::rc::Rc;

use gimli::{DebugInfoOffset, Dwarf, EndianSlice, LittleEndian, Unit, UnitHeader, UnitRef, UnitType};

use crate::target::sys::thread_cpu_ns;
use split::Split;

/// Bytes of a section.
pub type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Steps (entries, ranges, rows of lines) that one module may take, whatever its size …
const BASE_STEPS: u64 = 16 << 20;
/// … and for each byte of debug information: each byte is looked at once or twice.
const STEPS_PER_BYTE: u64 = 4;
/// CPU time that one module may take, nanoseconds, whatever its size …
const BASE_TIME: u64 = 1_000_000_000;
/// … and for each byte of debug information: ten times what it takes, which is ten times more in unoptimized builds.
const TIME_PER_BYTE: u64 = if cfg!(debug_assertions) { 300 } else { 30 };
/// Most units of one module.
const MAX_UNITS: usize = 4 << 20;

/// Why a unit, or a whole module, was given up.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// The debug information is broken here.
    Broken,
    /// The module's budget is used up.
    Budget,
}

impl From<gimli::Error> for Stop {
    fn from(_: gimli::Error) -> Self {
        Stop::Broken
    }
}

/// What is left of the work that a module may cost.
pub struct Budget {
    left: Cell<u64>,
    /// Of this thread's CPU time: how busy the machine is must not decide what has a name.
    until: u64,
}

impl Budget {
    /// The budget for `size` bytes of debug information.
    pub fn new(size: u64) -> Budget {
        let left = BASE_STEPS.saturating_add(size.saturating_mul(STEPS_PER_BYTE));
        let time = BASE_TIME.saturating_add(size.saturating_mul(TIME_PER_BYTE));
        Budget { left: Cell::new(left), until: thread_cpu_ns().saturating_add(time) }
    }

    /// Takes one step.
    pub fn step(&self) -> Result<(), Stop> {
        let left = self.left.get().checked_sub(1).ok_or(Stop::Budget)?;
        self.left.set(left);
        if left.is_multiple_of(4096) { self.check_time() } else { Ok(()) }
    }

    /// Whether time is left; for steps that are large.
    pub fn check_time(&self) -> Result<(), Stop> {
        if thread_cpu_ns() < self.until { Ok(()) } else { Err(Stop::Budget) }
    }
}

/// One call of a chain.
#[derive(Clone, Debug, Default)]
pub struct Frame<'a> {
    /// The linkage name, or the plain one; None where neither is told.
    pub name: Option<&'a [u8]>,
    /// Path of the source file.
    pub file: Option<Rc<str>>,
    /// Line in it, 0 = unknown.
    pub line: u32,
    /// Column, 0 = unknown.
    pub column: u32,
    /// Line of the function's declaration, 0 = unknown.
    pub start_line: u32,
}

/// The calls at one address, innermost first.
pub type Chain<'a> = Vec<Frame<'a>>;

/// A module's debug information.
pub struct Debug<'a> {
    dwarf: Dwarf<Slice<'a>>,
    size: u64,
    floor: u64,
}

impl<'a> Debug<'a> {
    /// Takes the sections that `section` gives, by name. Addresses under `floor` are no code.
    pub fn load(
        section: impl Fn(&str) -> &'a [u8],
        alternate: Option<Dwarf<Slice<'a>>>,
        floor: u64,
    ) -> Option<Debug<'a>> {
        let (mut dwarf, size) = load_sections(|id| section(id.name()));
        if let Some(alternate) = alternate {
            dwarf.set_sup(alternate);
        }
        (size > 0).then_some(Debug { dwarf, size, floor })
    }

    /// The chains for `probes`, which are sorted and distinct; empty ones for addresses that it does not tell of.
    pub fn resolve(&self, probes: &[u64], split: &Split<'a>) -> Vec<Chain<'a>> {
        let mut chains = vec![Chain::new(); probes.len()];
        let budget = Budget::new(self.size);
        // Broken or too much: what was found until then stands.
        let _ = self.walk(probes, split, &budget, &mut chains);
        chains
    }

    fn walk(&self, probes: &[u64], split: &Split<'a>, budget: &Budget, chains: &mut [Chain<'a>]) -> Result<(), Stop> {
        let headers = self.headers(budget)?;
        let units = names::Units::new(&self.dwarf, &headers);
        let told = aranges::units(&self.dwarf, probes, budget)?;
        let mut without_ranges = Vec::new();
        for header in &headers {
            if header.debug_info_offset().and_then(|at| told.get(&at)) == Some(&false) {
                continue;
            }
            if matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. } | UnitType::Partial) {
                continue;
            }
            budget.check_time()?;
            let Ok(unit) = self.dwarf.unit(*header) else { continue };
            match self.hits(&unit, probes, chains, budget) {
                Ok(Some(hits)) if hits.is_empty() => {}
                Ok(Some(hits)) => self.unit(&unit, probes, &hits, split, &units, budget, chains)?,
                Ok(None) => without_ranges.push(header),
                Err(Stop::Broken) => {}
                Err(Stop::Budget) => return Err(Stop::Budget),
            }
        }
        for header in without_ranges {
            let hits: Vec<usize> = (0..probes.len()).filter(|&index| chains[index].is_empty()).collect();
            if hits.is_empty() {
                break;
            }
            budget.check_time()?;
            let Ok(unit) = self.dwarf.unit(*header) else { continue };
            self.unit(&unit, probes, &hits, split, &units, budget, chains)?;
        }
        Ok(())
    }

    fn headers(&self, budget: &Budget) -> Result<Vec<UnitHeader<Slice<'a>>>, Stop> {
        let mut headers = Vec::new();
        let mut iterator = self.dwarf.units();
        while let Ok(Some(header)) = iterator.next() {
            budget.step()?;
            if headers.len() >= MAX_UNITS {
                return Err(Stop::Budget);
            }
            headers.push(header);
        }
        Ok(headers)
    }

    /// The probes, as indices, that a unit says to hold and of which no function is known yet. None for a unit that
    /// does not say what it holds.
    fn hits(
        &self,
        unit: &Unit<Slice<'a>>,
        probes: &[u64],
        chains: &[Chain<'a>],
        budget: &Budget,
    ) -> Result<Option<Vec<usize>>, Stop> {
        let mut ranges = self.dwarf.unit_ranges(unit)?;
        let mut hits = Vec::new();
        let mut any = false;
        while let Some(range) = ranges.next()? {
            budget.step()?;
            any |= range.begin < range.end;
            for index in inside(probes, &range, self.floor) {
                budget.step()?;
                if chains[index].last().is_none_or(|frame| frame.name.is_none()) {
                    hits.push(index);
                }
            }
        }
        hits.sort_unstable();
        hits.dedup();
        Ok(any.then_some(hits))
    }

    /// Looks `hits` up in one unit. Only a used-up budget is an error.
    #[allow(clippy::too_many_arguments)]
    fn unit(
        &self,
        unit: &Unit<Slice<'a>>,
        probes: &[u64],
        hits: &[usize],
        split: &Split<'a>,
        units: &names::Units<'a, '_>,
        budget: &Budget,
        chains: &mut [Chain<'a>],
    ) -> Result<(), Stop> {
        let addresses: Vec<u64> = hits.iter().map(|&index| probes[index]).collect();
        let main = UnitRef::new(&self.dwarf, unit);
        let mut files = lines::Files::new(main);
        let rows = only_budget(lines::rows(main, &addresses, self.floor, budget))?;
        let loaded = if unit.dwo_id.is_some() { split.load(main) } else { None };
        let found = match &loaded {
            Some(part) => {
                let part_unit = UnitRef::new(&part.dwarf, &part.unit);
                let resolver = names::Names::new(part_unit, None);
                functions::chains(part_unit, &addresses, self.floor, budget, &resolver)
            }
            None => {
                let resolver = names::Names::new(main, Some(units));
                functions::chains(main, &addresses, self.floor, budget, &resolver)
            }
        };
        let found = only_budget(found)?;
        for (position, &index) in hits.iter().enumerate() {
            let row = rows.as_ref().and_then(|rows| rows[position]);
            let calls = found.as_ref().map_or(&[][..], |found| &found[position]);
            let chain = join(row, calls, &mut files);
            if !chain.is_empty() && (chains[index].is_empty() || !calls.is_empty()) {
                chains[index] = chain;
            }
        }
        Ok(())
    }
}

/// The innermost call stands at the row's line, every other one where it calls the next.
fn join<'a>(row: Option<lines::Row>, calls: &[functions::Call<'a>], files: &mut lines::Files<'a, '_>) -> Chain<'a> {
    let mut place = row.unwrap_or_default();
    if calls.is_empty() {
        let file = files.path(place.file);
        return if place.line == 0 && file.is_none() {
            Chain::new()
        } else {
            vec![Frame { file, line: place.line, column: place.column, ..Frame::default() }]
        };
    }
    let mut chain = Vec::with_capacity(calls.len());
    for call in calls.iter().rev() {
        chain.push(Frame {
            name: call.name,
            file: files.path(place.file),
            line: place.line,
            column: place.column,
            start_line: call.start_line,
        });
        place = call.from;
    }
    chain
}

fn only_budget<T>(result: Result<T, Stop>) -> Result<Option<T>, Stop> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Stop::Broken) => Ok(None),
        Err(Stop::Budget) => Err(Stop::Budget),
    }
}

/// Indices of the sorted `probes` inside a range.
fn inside(probes: &[u64], range: &gimli::Range, floor: u64) -> std::ops::Range<usize> {
    if range.begin >= range.end || range.begin < floor {
        return 0..0;
    }
    let from = probes.partition_point(|&probe| probe < range.begin);
    from..from + probes[from..].partition_point(|&probe| probe < range.end)
}

/// The sections that are read, and how many bytes of them count towards the budget.
pub fn load_sections<'a>(section: impl Fn(gimli::SectionId) -> &'a [u8]) -> (Dwarf<Slice<'a>>, u64) {
    use gimli::SectionId as Id;
    let mut size = 0;
    let dwarf = Dwarf::load(|id| -> Result<Slice<'a>, std::convert::Infallible> {
        let used = matches!(
            id,
            Id::DebugInfo
                | Id::DebugAbbrev
                | Id::DebugLine
                | Id::DebugLineStr
                | Id::DebugStr
                | Id::DebugStrOffsets
                | Id::DebugAddr
                | Id::DebugAranges
                | Id::DebugRanges
                | Id::DebugRngLists
        );
        let bytes = if used { section(id) } else { &[] };
        if matches!(id, Id::DebugInfo | Id::DebugLine | Id::DebugRanges | Id::DebugRngLists) {
            size += bytes.len() as u64;
        }
        Ok(EndianSlice::new(bytes, LittleEndian))
    });
    match dwarf {
        Ok(dwarf) => (dwarf, size),
        Err(never) => match never {},
    }
}

/// The unit that `offset` of `.debug_info` is in, among sorted headers.
fn unit_at<'h, 'a>(headers: &'h [UnitHeader<Slice<'a>>], offset: DebugInfoOffset) -> Option<&'h UnitHeader<Slice<'a>>> {
    let next = headers.partition_point(|header| header.debug_info_offset().is_some_and(|at| at.0 <= offset.0));
    headers[..next].last()
}
