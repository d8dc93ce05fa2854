//! The names of a frame, and where their values are.
//!
//! A function has a slot for each of its names (`f_localsplus`); the frame of a module or a class body has a dict. Names:
//! co_varnames, co_cellvars and co_freevars up to 3.10, then co_localsplusnames and co_localspluskinds (pycore_code.h).

use super::dict::{Item, Table};
use super::object::Writer;
use super::pages::Pages;
use super::types::Class;
use super::{Kind, MAX_VARIABLES, Reader, ends};
use crate::error::ReadError;
use crate::memory::Memory;
use crate::runtime::cpython::frames::{TAG_MASK, Walked};
use crate::runtime::cpython::strings::read_string;

/// Most names of one function, or of a module or class, that are looked at.
const MAX_NAMES: u64 = 4096;

/// A name of a frame.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub name: String,
    pub kind: Kind,
    /// Where its value's address is; the low bits of that may be tags.
    place: u64,
}

impl Variable {
    /// The address of its value, 0 = it has none.
    pub fn read(&self, pages: &Pages<'_>) -> Result<u64, ReadError> {
        Ok(pages.read_u64(self.place)? & !TAG_MASK)
    }
}

/// What a code object says of its variables.
struct Code {
    arguments: u64,
    optimized: bool,
    names: u64,
    kinds: u64,
    cells: u64,
    free: u64,
}

impl Reader<'_> {
    /// The names of a frame that have a value, in their order, and how many more there are.
    pub(super) fn variables(&mut self, frame: &Walked) -> Result<(Vec<Variable>, u64), ReadError> {
        let code = self.code(frame.code)?;
        let mut found = Vec::new();
        let more = if code.optimized { 0 } else { self.names_of_dict(frame, &mut found)? };
        let slots = frame.address.wrapping_add(u64::from(self.layout.frame_slots));
        if code.kinds != 0 {
            self.names_with_kinds(&code, slots, &mut found)?;
        } else {
            self.names_in_three_lists(&code, slots, &mut found)?;
        }
        Ok((found, more))
    }

    fn code(&self, address: u64) -> Result<Code, ReadError> {
        let layout = self.layout;
        let at = |offset: u32| address.wrapping_add(u64::from(offset));
        let number = |offset: u32| self.pages.read_u32(at(offset)).map(u64::from);
        let list = |offset: u32| if offset == 0 { Ok(0) } else { self.pages.read_u64(at(offset)) };
        let flags = self.pages.read_u32(at(layout.code_flags))?;
        let has = |flag: u32| u64::from(flags & flag != 0);
        Ok(Code {
            arguments: number(layout.code_arguments)?
                + number(layout.code_keyword_only)?
                + has(layout.flag_varargs)
                + has(layout.flag_varkeywords),
            optimized: flags & layout.flag_optimized != 0,
            names: list(layout.code_names)?,
            kinds: list(layout.code_kinds)?,
            cells: list(layout.code_cells)?,
            free: list(layout.code_free)?,
        })
    }

    /// 3.11+.
    fn names_with_kinds(&mut self, code: &Code, slots: u64, found: &mut Vec<Variable>) -> Result<(), ReadError> {
        let count = self.count(code.names)?;
        let data = code.kinds.wrapping_add(u64::from(self.offsets.bytes_data));
        if self.pages.read_u64(code.kinds.wrapping_add(u64::from(self.offsets.bytes_size)))? != count {
            return Err(ReadError::Corrupt("names without kinds"));
        }
        let kinds = self.pages.read_bytes(data, count as usize, MAX_NAMES as usize)?;
        for (index, bits) in (0..count).zip(kinds) {
            let kind = match u32::from(bits) {
                _ if index < code.arguments => Kind::Argument,
                bits if bits & self.layout.kind_free != 0 => Kind::Free,
                bits if bits & self.layout.kind_cell != 0 => Kind::Cell,
                _ => Kind::Local,
            };
            let shared = u32::from(bits) & (self.layout.kind_free | self.layout.kind_cell) != 0;
            self.slot(code.names, index, slots.wrapping_add(index * 8), kind, shared, found)?;
        }
        Ok(())
    }

    /// Up to 3.10: an argument that inner functions use has two slots, of which only that of its cell has the value.
    fn names_in_three_lists(&mut self, code: &Code, slots: u64, found: &mut Vec<Variable>) -> Result<(), ReadError> {
        let (names, cells, free) = (self.count(code.names)?, self.count(code.cells)?, self.count(code.free)?);
        let slot = |index: u64| slots.wrapping_add(index * 8);
        for index in 0..names {
            let kind = if index < code.arguments { Kind::Argument } else { Kind::Local };
            self.slot(code.names, index, slot(index), kind, false, found)?;
        }
        let arguments = (0..code.arguments.min(names)).map(|index| self.name(code.names, index));
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let before = found.len();
        for index in 0..cells {
            self.slot(code.cells, index, slot(names + index), Kind::Cell, true, found)?;
        }
        for variable in &mut found[before..] {
            if arguments.contains(&variable.name) {
                variable.kind = Kind::Argument;
            }
        }
        // Arguments first, in their order.
        let place =
            |variable: &Variable| arguments.iter().position(|name| *name == variable.name).unwrap_or(usize::MAX);
        found.sort_by_key(|variable| if variable.kind == Kind::Argument { place(variable) } else { usize::MAX });
        for index in 0..free {
            self.slot(code.free, index, slot(names + cells + index), Kind::Free, true, found)?;
        }
        Ok(())
    }

    /// Adds the name whose slot is at `place`, if it has a value. `shared`: that may be in a cell.
    fn slot(
        &mut self,
        names: u64,
        index: u64,
        place: u64,
        kind: Kind,
        shared: bool,
        found: &mut Vec<Variable>,
    ) -> Result<(), ReadError> {
        let mut variable = Variable { name: String::new(), kind, place };
        let mut value = variable.read(self.pages)?;
        if value != 0 && shared {
            let mut writer = Writer::new(self.pages, self.offsets, self.layout, &mut self.types);
            // Before the function's first instructions have run, an argument is not in its cell yet.
            if writer.kind_of(value).is_ok_and(|kind| kind.class == Class::Cell) {
                variable.place = value.wrapping_add(u64::from(self.layout.cell_value));
                value = variable.read(self.pages)?;
            }
        }
        if value != 0 {
            variable.name = self.name(names, index)?;
            found.push(variable);
        }
        Ok(())
    }

    /// The dict of a module or class body. What is named `__so__` is not shown: every module has a dozen of it. Gives how
    /// many names were not looked at.
    fn names_of_dict(&mut self, frame: &Walked, found: &mut Vec<Variable>) -> Result<u64, ReadError> {
        let field = |at: u32| self.pages.read_u64(frame.address.wrapping_add(u64::from(at)));
        let (dict, globals) = (field(self.layout.frame_locals)?, field(self.layout.frame_globals)?);
        if dict == 0 {
            return Ok(0);
        }
        let kind = if dict == globals { Kind::Global } else { Kind::Local };
        let mut writer = Writer::new(self.pages, self.offsets, self.layout, &mut self.types);
        if writer.kind_of(dict)?.class != Class::Dict {
            return Ok(0); // Any mapping will do for exec().
        }
        let mut table = Table::open(self.pages, self.layout, dict)?;
        for seen in 0..table.length {
            let next = table.next(self.pages);
            if found.len() >= MAX_VARIABLES || matches!(next, Err(ReadError::Bound(_))) {
                return Ok(table.length - seen);
            }
            let Some(Item { key, place, .. }) = next? else { break };
            // Other threads may be changing the dict.
            match read_string(self.pages, self.offsets, key) {
                Ok(name) if name.starts_with("__") && name.ends_with("__") => {}
                Ok(name) => found.push(Variable { name, kind, place }),
                Err(error) if ends(error) => return Err(error),
                Err(_) => self.result.unreadable += 1,
            }
        }
        Ok(0)
    }

    /// Number of names in a tuple of them.
    fn count(&self, tuple: u64) -> Result<u64, ReadError> {
        let count = self.pages.read_u64(tuple.wrapping_add(u64::from(self.layout.var_size)))?;
        if count > MAX_NAMES { Err(ReadError::Bound("names of a function")) } else { Ok(count) }
    }

    fn name(&self, tuple: u64, index: u64) -> Result<String, ReadError> {
        let items = tuple.wrapping_add(u64::from(self.layout.tuple_items));
        read_string(self.pages, self.offsets, self.pages.read_u64(items.wrapping_add(index * 8))?)
    }
}
