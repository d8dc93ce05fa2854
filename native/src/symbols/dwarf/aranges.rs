//! Which units hold an address, by `.debug_aranges`: it saves parsing those that do not. Not every compiler writes it,
//! and not for every unit.

use gimli::{DebugInfoOffset, Dwarf};
use rustc_hash::FxHashMap;

use super::{Budget, Slice, Stop};

/// For each unit that has a table: whether some of the sorted `probes` are in its ranges. What a broken table tells from
/// there on is not known.
pub fn units(
    dwarf: &Dwarf<Slice<'_>>,
    probes: &[u64],
    budget: &Budget,
) -> Result<FxHashMap<DebugInfoOffset, bool>, Stop> {
    let mut units = FxHashMap::default();
    let mut headers = dwarf.debug_aranges.headers();
    while let Ok(Some(header)) = headers.next() {
        budget.step()?;
        let mut held = false;
        let mut entries = header.entries();
        let whole = loop {
            budget.step()?;
            match entries.next() {
                Ok(Some(entry)) => {
                    let range = entry.range();
                    let from = probes.partition_point(|&probe| probe < range.begin);
                    held |= probes.get(from).is_some_and(|&probe| probe < range.end);
                }
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        *units.entry(header.debug_info_offset()).or_default() |= held || !whole;
    }
    Ok(units)
}
