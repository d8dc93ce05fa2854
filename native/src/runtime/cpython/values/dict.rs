//! The entries of a dict in their order: Objects/dictobject.c, pycore_dict.h, 3.8 to 3.14.

use super::layout::Layout;
use super::pages::Pages;
use crate::error::ReadError;
use crate::memory::Memory;

/// Most entries of one table looked at, those that were deleted included.
const MAX_SCANNED: u64 = 4096;
/// Largest table believed, as a power of two.
const MAX_LOG2: u64 = 40;
/// 3.11, 3.12: bytes below the values of a split table at which their number is, and above the first of their order
/// (`_PyDictValues_AddToInsertionOrder`, pycore_dict.h).
const PREFIX_SIZE: u64 = 2;
/// Of a list of PyObject *.
const POINTER: u64 = 8;

/// A place in the entries of a dict.
#[derive(Debug)]
pub(super) struct Table {
    /// Number of items, as the dict says.
    pub length: u64,
    entries: u64,
    entry_size: u64,
    key: u64,
    value: u64,
    values: Values,
    index: u64,
    end: u64,
    scanned: u64,
}

/// One item of a dict.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub key: u64,
    pub value: u64,
    /// Where the value's address is.
    pub place: u64,
}

/// Where values are.
#[derive(Debug)]
enum Values {
    /// With their keys.
    Beside,
    /// In a list of their own, in the order of the keys.
    Apart(u64),
    /// In a list of their own, in an order that is kept in bytes: the first one's address, and the step to the next.
    Ordered { slots: u64, order: u64, down: bool },
}

const NOT_A_DICT: ReadError = ReadError::Corrupt("not a dict");

impl Table {
    /// Of the dict at `address`.
    pub fn open(pages: &Pages<'_>, layout: &Layout, address: u64) -> Result<Table, ReadError> {
        let field = |base: u64, at: u32| base.wrapping_add(u64::from(at));
        let length = pages.read_u64(field(address, layout.dict_used))?;
        let keys = pages.read_u64(field(address, layout.dict_keys))?;
        let values = pages.read_u64(field(address, layout.dict_values))?;
        if keys == 0 || !keys.is_multiple_of(8) || !values.is_multiple_of(8) || length > 1 << MAX_LOG2 {
            return Err(NOT_A_DICT);
        }
        let indices = field(keys, layout.keys_indices);
        let used = pages.read_u64(field(keys, layout.keys_used))?;
        if used > 1 << MAX_LOG2 {
            return Err(NOT_A_DICT);
        }
        let mut table = Table {
            length,
            entries: 0,
            entry_size: u64::from(layout.entry_size),
            key: u64::from(layout.entry_key),
            value: u64::from(layout.entry_value),
            values: Values::Beside,
            index: 0,
            end: used,
            scanned: 0,
        };
        let index_bytes = if layout.keys_slots != 0 {
            let slots = pages.read_u64(field(keys, layout.keys_slots))?;
            if !slots.is_power_of_two() || slots > 1 << MAX_LOG2 {
                return Err(NOT_A_DICT);
            }
            // Index entries are as small as can be: DK_IXSIZE, Objects/dictobject.c.
            slots
                * match slots {
                    ..=0xff => 1,
                    0x100..=0xffff => 2,
                    0x1_0000..=0xffff_ffff => 4,
                    _ => 8,
                }
        } else {
            let byte = |at: u32| {
                let mut byte = [0];
                pages.read(field(keys, at), &mut byte).map(|()| u32::from(byte[0]))
            };
            let (log2, kind) = (byte(layout.keys_log2_index_bytes)?, byte(layout.keys_kind)?);
            if u64::from(log2) > MAX_LOG2 || kind > layout.kind_split {
                return Err(NOT_A_DICT);
            }
            if kind != layout.kind_general {
                table.entry_size = u64::from(layout.name_entry_size);
                table.key = u64::from(layout.name_entry_key);
                table.value = u64::from(layout.name_entry_value);
            }
            1 << log2
        };
        table.entries = indices.wrapping_add(index_bytes);
        if values != 0 {
            table.end = used.min(length);
            table.values = if layout.keys_slots != 0 {
                Values::Apart(values)
            } else if layout.values_size == 0 {
                Values::Ordered { slots: values, order: values.wrapping_sub(PREFIX_SIZE + 1), down: true }
            } else {
                let mut capacity = [0];
                pages.read(field(values, layout.values_capacity), &mut capacity)?;
                let slots = field(values, layout.values_slots);
                let order = slots.wrapping_add(u64::from(capacity[0]) * POINTER);
                Values::Ordered { slots, order, down: false }
            };
        }
        Ok(table)
    }

    /// The next item, None at the end.
    ///
    /// Errors: it cannot be read, or too much of it was deleted.
    pub fn next(&mut self, pages: &Pages<'_>) -> Result<Option<Item>, ReadError> {
        while self.index < self.end {
            let index = self.index;
            self.index += 1;
            self.scanned += 1;
            if self.scanned > MAX_SCANNED {
                return Err(ReadError::Bound("more of a dict than a look takes"));
            }
            let entry = |index: u64| self.entries.wrapping_add(index * self.entry_size);
            let (at, place) = match self.values {
                Values::Beside => (entry(index), entry(index).wrapping_add(self.value)),
                Values::Apart(values) => (entry(index), values.wrapping_add(index * POINTER)),
                Values::Ordered { slots, order, down } => {
                    let mut number = [0];
                    let at = if down { order.wrapping_sub(index) } else { order.wrapping_add(index) };
                    pages.read(at, &mut number)?;
                    (entry(u64::from(number[0])), slots.wrapping_add(u64::from(number[0]) * POINTER))
                }
            };
            let (key, value) = (pages.read_u64(at.wrapping_add(self.key))?, pages.read_u64(place)?);
            if key != 0 && value != 0 {
                return Ok(Some(Item { key, value, place }));
            }
        }
        Ok(None)
    }
}
