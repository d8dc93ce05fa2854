//! Objects that hold others, as repr() writes them.

use std::fmt::Write;

use super::dict::{Item, Table};
use super::object::{MAX_LENGTH, MAX_VALUE_BYTES, Writer};
use super::types::{Class, Type};
use crate::error::ReadError;
use crate::memory::Memory;

/// Items of a container that are shown.
pub const MAX_ITEMS: u64 = 50;
/// Most places of a set's table looked at.
const MAX_PLACES: u64 = 4096;
/// There are fewer items than the container says: it is being made larger, or smaller.
const MID_CHANGE: ReadError = ReadError::Corrupt("a container in the middle of a change");
/// Since when an OrderedDict is written as a dict: Objects/odictobject.c.
const FIRST_WITH_DICT_IN_ORDERED_DICT: u8 = 12;

impl Writer<'_> {
    /// Whether no more items are written, which is said: of `count` there were `index`.
    fn ends(&mut self, index: u64, count: u64) -> bool {
        let ends = index >= MAX_ITEMS || self.out.len() > MAX_VALUE_BYTES;
        if ends {
            self.leave_out(count.saturating_sub(index));
        }
        ends
    }

    fn leave_out(&mut self, count: u64) {
        self.cut = true;
        let _ = write!(self.out, "… {count} more");
    }

    /// `count` objects whose addresses are in a row, each behind its name where there are names.
    fn row(&mut self, at: u64, count: u64, names: &[String]) -> Result<(), ReadError> {
        if count > MAX_LENGTH {
            return Err(ReadError::Corrupt("a container's size"));
        }
        for index in 0..count {
            if index > 0 {
                self.out.push_str(", ");
            }
            if self.ends(index, count) {
                break;
            }
            if let Some(name) = names.get(index as usize) {
                let _ = write!(self.out, "{name}=");
            }
            let item = self.pages.read_u64(at.wrapping_add(index * 8))?;
            self.write(item)?;
        }
        Ok(())
    }

    /// Where the items of a tuple are, and how many.
    fn tuple_items(&self, address: u64) -> Result<(u64, u64), ReadError> {
        let items = address.wrapping_add(u64::from(self.layout.tuple_items));
        Ok((items, self.field(address, self.layout.var_size)?))
    }

    pub(super) fn tuple(&mut self, address: u64) -> Result<(), ReadError> {
        let (items, count) = self.tuple_items(address)?;
        if count > 0 && !self.enter(address, "(...)") {
            return Ok(());
        }
        self.out.push('(');
        self.row(items, count, &[])?;
        self.say(if count == 1 { ",)" } else { ")" })
    }

    pub(super) fn list(&mut self, address: u64) -> Result<(), ReadError> {
        let count = self.field(address, self.layout.var_size)?;
        if count > 0 && !self.enter(address, "[...]") {
            return Ok(());
        }
        let items = self.field(address, self.layout.list_items)?;
        self.out.push('[');
        self.row(items, count, &[])?;
        self.say("]")
    }

    pub(super) fn dict(&mut self, address: u64) -> Result<(), ReadError> {
        self.entries(address, ["{", ": ", "", "}"])
    }

    /// The items of a dict between `marks`: before all, between key and value, behind each, behind all.
    fn entries(&mut self, address: u64, marks: [&str; 4]) -> Result<(), ReadError> {
        let [before, between, after, end] = marks;
        let mut table = Table::open(self.pages, self.layout, address)?;
        if table.length > 0 && !self.enter(address, "{...}") {
            return Ok(());
        }
        self.out.push_str(before);
        for index in 0..table.length {
            let next = table.next(self.pages);
            if index > 0 {
                self.out.push_str(", ");
            }
            if matches!(next, Err(ReadError::Bound(_))) {
                self.leave_out(table.length - index);
                break;
            }
            let Some(Item { key, value, .. }) = next? else { return Err(MID_CHANGE) };
            if self.ends(index, table.length) {
                break;
            }
            if !after.is_empty() {
                self.out.push('(');
            }
            self.write(key)?;
            self.out.push_str(between);
            self.write(value)?;
            self.out.push_str(after);
        }
        self.say(end)
    }

    fn set(&mut self, address: u64) -> Result<(), ReadError> {
        let layout = self.layout;
        let (used, mask) = (self.field(address, layout.set_used)?, self.field(address, layout.set_mask)?);
        let table = self.field(address, layout.set_table)?;
        if used > MAX_LENGTH || mask > MAX_LENGTH || used > mask.saturating_add(1) {
            return Err(ReadError::Corrupt("not a set"));
        }
        self.out.push('{');
        let (mut index, mut place) = (0, 0);
        while index < used {
            if place > mask {
                return Err(MID_CHANGE);
            }
            if place >= MAX_PLACES {
                self.leave_out(used - index);
                break;
            }
            let entry = table.wrapping_add(place * u64::from(layout.set_entry_size));
            let (key, hash) = (self.field(entry, layout.set_entry_key)?, self.field(entry, layout.set_entry_hash)?);
            place += 1;
            // A place that was given up has the hash that no object has: Objects/setobject.c.
            if key == 0 || hash == u64::MAX {
                continue;
            }
            if index > 0 {
                self.out.push_str(", ");
            }
            if self.ends(index, used) {
                break;
            }
            self.write(key)?;
            index += 1;
        }
        self.say("}")
    }

    /// What is written in the name of its type, even of a built-in one: bytearray, set, frozenset.
    pub(super) fn in_parentheses(&mut self, address: u64, kind: &Type) -> Result<(), ReadError> {
        if kind.class == Class::ByteArray {
            let (size, data) =
                (self.field(address, self.layout.var_size)?, self.field(address, self.layout.bytearray_start)?);
            self.say(&kind.short)?;
            self.out.push('(');
            if size == 0 {
                self.say("b''")?
            } else {
                self.bytes(data, size, true)?
            }
            return self.say(")");
        }
        let empty = self.field(address, self.layout.set_used)? == 0;
        if empty {
            return self.say(&format!("{}()", kind.short));
        }
        if !self.enter(address, &format!("{}(...)", kind.short)) {
            return Ok(());
        }
        if kind.name == "set" {
            return self.set(address);
        }
        self.say(&format!("{}(", kind.short))?;
        self.set(address)?;
        self.say(")")
    }

    /// A value whose class derives from a built-in one and has its own `__repr__`.
    pub(super) fn derived(&mut self, address: u64, kind: &Type) -> Result<(), ReadError> {
        self.say(&format!("{}(", kind.short))?;
        match kind.name.as_str() {
            "collections.defaultdict" => {
                let factory = self.field(address, self.layout.default_factory)?;
                self.write(factory)?;
                self.say(", ")?;
                self.plain(address, kind.class, kind)?;
            }
            "collections.OrderedDict" | "collections.Counter" if self.field(address, self.layout.dict_used)? == 0 => {}
            "collections.OrderedDict" if self.offsets.minor < FIRST_WITH_DICT_IN_ORDERED_DICT => {
                self.entries(address, ["[", ", ", ")", "]"])?;
            }
            _ if kind.class == Class::Tuple => {
                let (items, count) = self.tuple_items(address)?;
                if count == kind.fields.len() as u64 {
                    if self.enter(address, "...") {
                        self.row(items, count, &kind.fields)?;
                    }
                } else {
                    self.tuple(address)?;
                }
            }
            _ => self.plain(address, kind.class, kind)?,
        }
        self.say(")")
    }

    pub(super) fn exception(&mut self, address: u64, kind: &Type) -> Result<(), ReadError> {
        self.say(&format!("{}(", kind.short))?;
        if self.enter(address, "...") {
            let args = self.field(address, self.layout.exception_args)?;
            if self.kind_of(args)?.class != Class::Tuple {
                return Err(ReadError::Corrupt("not an exception"));
            }
            let (items, count) = self.tuple_items(args)?;
            self.row(items, count, &[])?;
        }
        self.say(")")
    }

    pub(super) fn range(&mut self, address: u64) -> Result<(), ReadError> {
        if !self.enter(address, "range(...)") {
            return Ok(());
        }
        let layout = self.layout;
        let (start, stop) = (self.field(address, layout.range_start)?, self.field(address, layout.range_stop)?);
        let step = self.field(address, layout.range_step)?;
        self.say("range(")?;
        self.write(start)?;
        self.say(", ")?;
        self.write(stop)?;
        let shown = self.out.len();
        self.say(", ")?;
        self.write(step)?;
        if &self.out[shown..] == ", 1" {
            self.out.truncate(shown);
        }
        self.say(")")
    }

    pub(super) fn slice(&mut self, address: u64) -> Result<(), ReadError> {
        if !self.enter(address, "slice(...)") {
            return Ok(());
        }
        let layout = self.layout;
        self.say("slice(")?;
        for (at, mark) in [(layout.slice_start, ", "), (layout.slice_stop, ", "), (layout.slice_step, ")")] {
            self.write(self.field(address, at)?)?;
            self.say(mark)?;
        }
        Ok(())
    }
}
