//! What a function is called, and where it is declared: told by its entry, or by entries that this one refers to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf, Unit, UnitHeader, UnitOffset, UnitRef};

use super::{Budget, Slice, Stop, unit_at};

type Shared<'a> = Rc<Unit<Slice<'a>>>;
/// A unit, the offset of an entry in it, and whether it is one of the alternate file's.
type Place<'a> = (Shared<'a>, UnitOffset, bool);

/// Most references followed for one name.
const MAX_REFERENCES: usize = 16;
/// Most units kept open for names that others refer to.
const MAX_OPEN: usize = 64;

/// Units by offset, for references from one to another.
pub struct Units<'a, 'h> {
    dwarf: &'h Dwarf<Slice<'a>>,
    headers: &'h [UnitHeader<Slice<'a>>],
    alternate: RefCell<Option<Vec<UnitHeader<Slice<'a>>>>>,
    open: RefCell<HashMap<(bool, usize), Shared<'a>>>,
}

impl<'a, 'h> Units<'a, 'h> {
    /// The units of `dwarf`.
    pub fn new(dwarf: &'h Dwarf<Slice<'a>>, headers: &'h [UnitHeader<Slice<'a>>]) -> Self {
        Units { dwarf, headers, alternate: RefCell::default(), open: RefCell::default() }
    }

    fn dwarf(&self, alternate: bool) -> Option<&'h Dwarf<Slice<'a>>> {
        if alternate { self.dwarf.sup() } else { Some(self.dwarf) }
    }

    /// The unit that holds `offset`, and the offset in it.
    fn find(&self, offset: DebugInfoOffset, alternate: bool, budget: &Budget) -> Result<Option<Place<'a>>, Stop> {
        let Some(dwarf) = self.dwarf(alternate) else { return Ok(None) };
        let header = if alternate {
            let mut headers = self.alternate.borrow_mut();
            if headers.is_none() {
                let mut all = Vec::new();
                let mut iterator = dwarf.units();
                while let Ok(Some(header)) = iterator.next() {
                    budget.step()?;
                    all.push(header);
                }
                *headers = Some(all);
            }
            headers.as_deref().and_then(|headers| unit_at(headers, offset)).copied()
        } else {
            unit_at(self.headers, offset).copied()
        };
        let Some(header) = header else { return Ok(None) };
        let Some(at) = header.debug_info_offset() else { return Ok(None) };
        let Some(inside) = offset.to_unit_offset(&header) else { return Ok(None) };
        let mut open = self.open.borrow_mut();
        if let Some(unit) = open.get(&(alternate, at.0)) {
            return Ok(Some((unit.clone(), inside, alternate)));
        }
        budget.check_time()?;
        let unit = Rc::new(dwarf.unit(header)?);
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        open.insert((alternate, at.0), unit.clone());
        Ok(Some((unit, inside, alternate)))
    }
}

/// What is known of a function.
#[derive(Clone, Copy, Debug, Default)]
pub struct Named<'a> {
    /// The linkage name, else the plain one.
    pub name: Option<&'a [u8]>,
    /// Line of the declaration, 0 = unknown.
    pub line: u32,
}

/// The names of one unit's functions, each looked up once.
pub struct Names<'a, 'u> {
    unit: UnitRef<'u, Slice<'a>>,
    units: Option<&'u Units<'a, 'u>>,
    known: RefCell<HashMap<usize, Named<'a>>>,
}

enum Next<'a> {
    Here(UnitOffset),
    Elsewhere(Place<'a>),
}

impl<'a, 'u> Names<'a, 'u> {
    /// Names in `unit`; `units` are the others of its file.
    pub fn new(unit: UnitRef<'u, Slice<'a>>, units: Option<&'u Units<'a, 'u>>) -> Self {
        Names { unit, units, known: RefCell::default() }
    }

    /// The name of the function at `offset`. What is broken has none.
    pub fn find(&self, offset: UnitOffset, budget: &Budget) -> Result<Named<'a>, Stop> {
        if let Some(named) = self.known.borrow().get(&offset.0) {
            return Ok(*named);
        }
        let mut named = Named::default();
        match self.follow(offset, &mut named, budget) {
            Err(Stop::Budget) => return Err(Stop::Budget),
            Ok(()) | Err(Stop::Broken) => {}
        }
        self.known.borrow_mut().insert(offset.0, named);
        Ok(named)
    }

    fn follow(&self, offset: UnitOffset, named: &mut Named<'a>, budget: &Budget) -> Result<(), Stop> {
        let mut linkage = None;
        let mut plain = None;
        let mut place = Next::Here(offset);
        let mut other: Option<(Shared<'a>, bool)> = None;
        for _ in 0..MAX_REFERENCES {
            budget.step()?;
            let at = match place {
                Next::Here(at) => at,
                Next::Elsewhere((unit, at, alternate)) => {
                    other = Some((unit, alternate));
                    at
                }
            };
            let alternate = other.as_ref().is_some_and(|(_, alternate)| *alternate);
            let unit = match (&other, self.units) {
                (Some((unit, _)), Some(units)) => {
                    UnitRef::new(units.dwarf(alternate).ok_or(Stop::Broken)?, unit.as_ref())
                }
                _ => self.unit,
            };
            let mut reference = None;
            let result = read_entry(unit, at, &mut linkage, &mut plain, &mut named.line, &mut reference);
            named.name = linkage.or(plain);
            result?;
            place = match reference {
                _ if linkage.is_some() && named.line != 0 => return Ok(()),
                Some(AttributeValue::UnitRef(at)) => Next::Here(at),
                Some(AttributeValue::DebugInfoRef(offset)) => match self.other(offset, alternate, budget)? {
                    Some(next) => next,
                    None => return Ok(()),
                },
                Some(AttributeValue::DebugInfoRefSup(offset)) => match self.other(offset, true, budget)? {
                    Some(next) => next,
                    None => return Ok(()),
                },
                _ => return Ok(()),
            };
        }
        Ok(())
    }

    fn other(&self, offset: DebugInfoOffset, alternate: bool, budget: &Budget) -> Result<Option<Next<'a>>, Stop> {
        let Some(units) = self.units else { return Ok(None) };
        Ok(units.find(offset, alternate, budget)?.map(Next::Elsewhere))
    }
}

fn read_entry<'a>(
    unit: UnitRef<'_, Slice<'a>>,
    at: UnitOffset,
    linkage: &mut Option<&'a [u8]>,
    plain: &mut Option<&'a [u8]>,
    line: &mut u32,
    reference: &mut Option<AttributeValue<Slice<'a>>>,
) -> Result<(), Stop> {
    let mut entries = unit.entries_raw(Some(at))?;
    let abbreviation = entries.read_abbreviation()?.ok_or(Stop::Broken)?;
    for specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(*specification)?;
        let text = || unit.attr_string(attribute.value()).ok().map(|text| text.slice()).filter(|text| !text.is_empty());
        match attribute.name() {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => *linkage = linkage.or_else(text),
            gimli::DW_AT_name => *plain = plain.or_else(text),
            gimli::DW_AT_decl_line if *line == 0 => {
                *line = attribute.udata_value().and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
            }
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => *reference = Some(attribute.value()),
            _ => {}
        }
    }
    Ok(())
}
