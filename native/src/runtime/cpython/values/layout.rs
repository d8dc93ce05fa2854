//! Where one CPython version keeps what in its objects, and the constants of its headers.
//!
//! From tables generated for each minor version; from 3.13 what `_Py_DebugOffsets` has of it comes from the target.

use super::super::offsets::{Debug, MAX_OBJECT_BYTES};
use super::layout_tables::{
    CPYTHON_3_8, CPYTHON_3_9, CPYTHON_3_10, CPYTHON_3_11, CPYTHON_3_12, CPYTHON_3_13, CPYTHON_3_14,
};
use crate::error::ReadError;

/// Byte offsets in CPython's objects, sizes, flags. 0 where a version does not have the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named as in scripts/gen-offsets, which says the C field for each.
pub struct Layout {
    pub object_type: u32,
    pub var_size: u32,
    pub type_name: u32,
    pub type_repr: u32,
    pub type_flags: u32,
    pub type_base: u32,
    pub type_dict: u32,
    pub type_size: u32,
    pub heap_qualname: u32,
    pub flag_heap: u32,
    pub flag_type: u32,
    pub frame_locals: u32,
    pub frame_globals: u32,
    pub frame_slots: u32,
    pub code_flags: u32,
    pub code_arguments: u32,
    pub code_keyword_only: u32,
    pub code_names: u32,
    pub code_cells: u32,
    pub code_free: u32,
    pub code_kinds: u32,
    pub kind_cell: u32,
    pub kind_free: u32,
    pub flag_optimized: u32,
    pub flag_varargs: u32,
    pub flag_varkeywords: u32,
    pub tuple_items: u32,
    pub list_items: u32,
    pub dict_used: u32,
    pub dict_keys: u32,
    pub dict_values: u32,
    pub default_factory: u32,
    pub keys_slots: u32,
    pub keys_log2_index_bytes: u32,
    pub keys_kind: u32,
    pub keys_used: u32,
    pub keys_indices: u32,
    pub kind_general: u32,
    pub kind_split: u32,
    pub entry_size: u32,
    pub entry_key: u32,
    pub entry_value: u32,
    pub name_entry_size: u32,
    pub name_entry_key: u32,
    pub name_entry_value: u32,
    pub values_capacity: u32,
    pub values_size: u32,
    pub values_slots: u32,
    pub set_used: u32,
    pub set_mask: u32,
    pub set_table: u32,
    pub set_entry_size: u32,
    pub set_entry_key: u32,
    pub set_entry_hash: u32,
    pub int_tag: u32,
    pub int_digits: u32,
    pub int_shift: u32,
    pub int_tag_bits: u32,
    pub int_sign_mask: u32,
    pub int_negative: u32,
    pub float_value: u32,
    pub complex_value: u32,
    pub string_data: u32,
    pub bytearray_start: u32,
    pub range_start: u32,
    pub range_stop: u32,
    pub range_step: u32,
    pub slice_start: u32,
    pub slice_stop: u32,
    pub slice_step: u32,
    pub function_qualname: u32,
    pub builtin_definition: u32,
    pub builtin_self: u32,
    pub definition_name: u32,
    pub method_function: u32,
    pub method_self: u32,
    pub module_name: u32,
    pub generator_qualname: u32,
    pub exception_args: u32,
    pub cell_value: u32,
}

/// Where rows of `_Py_DebugOffsets` start, in words.
struct Rows {
    frame: usize,
    code: usize,
    object: usize,
    kind: usize,
    tuple: usize,
    list: usize,
    set: Option<usize>,
    dict: usize,
    float: usize,
    int: usize,
}

const ROWS_3_13: Rows =
    Rows { frame: 28, code: 34, object: 44, kind: 46, tuple: 50, list: 53, set: None, dict: 56, float: 59, int: 61 };
const ROWS_3_14: Rows = Rows {
    frame: 31,
    code: 39,
    object: 50,
    kind: 52,
    tuple: 56,
    list: 59,
    set: Some(62),
    dict: 66,
    float: 69,
    int: 71,
};

impl Layout {
    /// The generated table of 3.8 to 3.14.
    pub fn table(minor: u8) -> Option<&'static Layout> {
        match minor {
            8 => Some(&CPYTHON_3_8),
            9 => Some(&CPYTHON_3_9),
            10 => Some(&CPYTHON_3_10),
            11 => Some(&CPYTHON_3_11),
            12 => Some(&CPYTHON_3_12),
            13 => Some(&CPYTHON_3_13),
            14 => Some(&CPYTHON_3_14),
            _ => None,
        }
    }

    /// The table, with what the bytes at `_PyRuntime` of a 3.13 or 3.14 say of it, every number checked.
    pub fn from_debug(minor: u8, bytes: &[u8]) -> Result<Layout, ReadError> {
        let unknown = ReadError::Corrupt("no debug offsets known for this version");
        let rows = match minor {
            13 => ROWS_3_13,
            14 => ROWS_3_14,
            _ => return Err(unknown),
        };
        let mut layout = *Layout::table(minor).ok_or(unknown)?;
        let debug = Debug(bytes);
        let take = |row: usize, fields: &mut [(usize, &mut u32)]| -> Result<(), ReadError> {
            let size = debug.row(row, MAX_OBJECT_BYTES)?;
            for (word, field) in fields {
                **field = debug.at(&size, row + *word)?;
            }
            Ok(())
        };
        take(rows.frame, &mut [(4, &mut layout.frame_slots)])?;
        take(
            rows.code,
            &mut [(6, &mut layout.code_arguments), (7, &mut layout.code_names), (8, &mut layout.code_kinds)],
        )?;
        take(rows.object, &mut [(1, &mut layout.object_type)])?;
        take(rows.kind, &mut [(1, &mut layout.type_name), (2, &mut layout.type_repr), (3, &mut layout.type_flags)])?;
        take(rows.tuple, &mut [(1, &mut layout.tuple_items)])?;
        take(rows.list, &mut [(1, &mut layout.list_items)])?;
        if let Some(set) = rows.set {
            take(set, &mut [(1, &mut layout.set_used), (2, &mut layout.set_table), (3, &mut layout.set_mask)])?;
        }
        take(rows.dict, &mut [(1, &mut layout.dict_keys), (2, &mut layout.dict_values)])?;
        take(rows.float, &mut [(1, &mut layout.float_value)])?;
        take(rows.int, &mut [(1, &mut layout.int_tag), (2, &mut layout.int_digits)])?;
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::offsets::DEBUG_OFFSETS_BYTES;
    use super::super::super::offsets::tests::debug_offsets_at_hand;
    use super::*;

    #[test]
    fn debug_offsets_say_what_the_headers_say() {
        for (minor, bytes) in debug_offsets_at_hand() {
            assert_eq!(Layout::from_debug(minor, &bytes).as_ref(), Ok(Layout::table(minor).expect("a table")));
        }
    }

    #[test]
    fn hostile_debug_offsets_are_refused() {
        assert!(Layout::from_debug(13, &[0; 80]).is_err());
        assert!(Layout::from_debug(13, &[0xff; DEBUG_OFFSETS_BYTES]).is_err());
        assert!(Layout::from_debug(12, &[0; DEBUG_OFFSETS_BYTES]).is_err());
    }
}
