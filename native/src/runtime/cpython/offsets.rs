//! Where one CPython version keeps what a walk needs: one value, whatever it came from.
//!
//! Sources: from 3.13 `_Py_DebugOffsets` at the start of `_PyRuntime` (Include/internal/pycore_runtime.h in 3.13,
//! pycore_debug_offsets.h in 3.14), read from the target and checked; before, tables generated from the headers.

use super::offsets_tables::{CPYTHON_3_8, CPYTHON_3_9, CPYTHON_3_10, CPYTHON_3_11, CPYTHON_3_12};
use super::offsets_tables_windows as windows;
use crate::error::ReadError;

/// First bytes of `_PyRuntime` from 3.13.
pub const COOKIE: &[u8; 8] = b"xdebugpy";
/// Bytes of `_Py_DebugOffsets` that are read: all words up to the unicode row.
pub const DEBUG_OFFSETS_BYTES: usize = 81 * 8;
/// Largest `_PyRuntimeState` and `PyInterpreterState` believed (3.14: about 0.5 MB).
const MAX_STATE_BYTES: u64 = 16 << 20;
/// Largest `PyThreadState` believed (3.14: about 800 bytes).
const MAX_THREAD_BYTES: u64 = 8 << 10;
/// Largest fixed part of an interpreter frame, code object, bytes or str believed.
pub(super) const MAX_OBJECT_BYTES: u64 = 1 << 10;

/// Byte offsets in CPython's structures, and a few sizes. 0 where a version does not have the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named as in scripts/gen-offsets, which says the C field for each.
pub struct Offsets {
    /// The 12 of 3.12.
    pub minor: u8,
    /// Whether it is a build for Windows: there a thread's id is 32 bits wide, and the system's own.
    pub windows: bool,
    pub runtime_interpreters: u32,
    pub runtime_main_thread: u32,
    /// 3.8 to 3.11: the one GIL. From 3.12 each interpreter points to its own.
    pub runtime_gil: u32,
    pub interpreter_next: u32,
    pub interpreter_threads: u32,
    pub interpreter_gil: u32,
    pub gil_locked: u32,
    pub gil_holder: u32,
    pub thread_next: u32,
    pub thread_interpreter: u32,
    pub thread_frame: u32,
    pub thread_cframe: u32,
    pub thread_root_cframe: u32,
    pub thread_pthread: u32,
    pub thread_native_id: u32,
    pub thread_chunk: u32,
    pub cframe_frame: u32,
    pub cframe_previous: u32,
    pub frame_previous: u32,
    pub frame_code: u32,
    pub frame_instruction: u32,
    pub frame_owner: u32,
    pub frame_is_entry: u32,
    /// Bytes of a frame that hold the fields above.
    pub frame_size: u32,
    /// Number of 2-byte code units in `code_bytecode` (3.11+).
    pub code_units: u32,
    pub code_version: u32,
    pub code_first_line: u32,
    pub code_constants: u32,
    pub code_filename: u32,
    pub code_name: u32,
    pub code_qualname: u32,
    pub code_lines: u32,
    pub code_first_traceable: u32,
    /// 3.11+: the bytecode itself; before, a pointer to a bytes object.
    pub code_bytecode: u32,
    pub bytes_size: u32,
    pub bytes_data: u32,
    pub string_length: u32,
    pub string_state: u32,
    /// Where the characters of an ASCII string start.
    pub string_ascii: u32,
    /// Where the characters of any other compact string start.
    pub string_compact: u32,
}

/// Where each row of `_Py_DebugOffsets` starts, in words, for one minor version.
struct Rows {
    interpreter_gil: usize,
    thread: usize,
    frame: usize,
    code: usize,
    bytes: usize,
    string: usize,
}

const ROWS_3_13: Rows = Rows { interpreter_gil: 14, thread: 19, frame: 28, code: 34, bytes: 64, string: 67 };
const ROWS_3_14: Rows = Rows { interpreter_gil: 15, thread: 22, frame: 31, code: 39, bytes: 74, string: 77 };

impl Offsets {
    /// The generated table of 3.8 to 3.12, on Windows of 3.9 to 3.12.
    pub fn table(minor: u8, windows: bool) -> Option<&'static Offsets> {
        match (minor, windows) {
            (8, false) => Some(&CPYTHON_3_8),
            (9, false) => Some(&CPYTHON_3_9),
            (10, false) => Some(&CPYTHON_3_10),
            (11, false) => Some(&CPYTHON_3_11),
            (12, false) => Some(&CPYTHON_3_12),
            (9, true) => Some(&windows::CPYTHON_3_9),
            (10, true) => Some(&windows::CPYTHON_3_10),
            (11, true) => Some(&windows::CPYTHON_3_11),
            (12, true) => Some(&windows::CPYTHON_3_12),
            _ => None,
        }
    }

    /// From the bytes at `_PyRuntime` of a 3.13 or 3.14, with every number checked against its bound.
    pub fn from_debug(minor: u8, bytes: &[u8]) -> Result<Offsets, ReadError> {
        let rows = match minor {
            13 => ROWS_3_13,
            14 => ROWS_3_14,
            _ => return Err(ReadError::Corrupt("no debug offsets known for this version")),
        };
        let debug = Debug(bytes);
        let thread = debug.row(rows.thread, MAX_THREAD_BYTES)?;
        let frame = debug.row(rows.frame, MAX_OBJECT_BYTES)?;
        let code = debug.row(rows.code, MAX_OBJECT_BYTES)?;
        let runtime = debug.row(3, MAX_STATE_BYTES)?;
        let interpreter = debug.row(6, MAX_STATE_BYTES)?;
        let array = debug.row(rows.bytes, MAX_OBJECT_BYTES)?;
        let string = debug.row(rows.string, MAX_OBJECT_BYTES)?;
        let gil = debug.at(&interpreter, rows.interpreter_gil + 1)?;
        let from_gil = |word| debug.at(&interpreter, word)?.checked_sub(gil).ok_or(BAD);
        let runtime_interpreters = debug.at(&runtime, 5)?;
        let code_bytecode = debug.at(&code, rows.code + 9)?;
        let string_ascii = debug.at(&string, rows.string + 3)?;
        Ok(Offsets {
            minor,
            windows: false,
            runtime_interpreters,
            // struct pyinterpreters { mutex; head; main; next_id }, then main_thread: pycore_runtime.h, 3.13 and 3.14.
            runtime_main_thread: runtime_interpreters + 24,
            runtime_gil: 0,
            interpreter_next: debug.at(&interpreter, 8)?,
            interpreter_threads: debug.at(&interpreter, 9)?,
            interpreter_gil: debug.at(&interpreter, rows.interpreter_gil)?,
            gil_locked: from_gil(rows.interpreter_gil + 3)?,
            gil_holder: from_gil(rows.interpreter_gil + 4)?,
            thread_next: debug.at(&thread, rows.thread + 2)?,
            thread_interpreter: debug.at(&thread, rows.thread + 3)?,
            thread_frame: debug.at(&thread, rows.thread + 4)?,
            thread_cframe: 0,
            thread_root_cframe: 0,
            thread_pthread: debug.at(&thread, rows.thread + 5)?,
            thread_native_id: debug.at(&thread, rows.thread + 6)?,
            thread_chunk: debug.at(&thread, rows.thread + 7)?,
            cframe_frame: 0,
            cframe_previous: 0,
            frame_previous: debug.at(&frame, rows.frame + 1)?,
            frame_code: debug.at(&frame, rows.frame + 2)?,
            frame_instruction: debug.at(&frame, rows.frame + 3)?,
            frame_owner: debug.at(&frame, rows.frame + 5)?,
            frame_is_entry: 0,
            frame_size: debug.at(&frame, rows.frame + 4)?,
            // PyVarObject.ob_size of a GIL build: refcount, type, size.
            code_units: 16,
            // Not among the debug offsets: co_version is the u32 before co_localsplusnames, and _co_firsttraceable the
            // int before co_extra, which is the word before co_code_adaptive (cpython/code.h, GIL builds of 3.13, 3.14).
            code_version: debug.at(&code, rows.code + 7)?.checked_sub(4).ok_or(BAD)?,
            code_first_line: debug.at(&code, rows.code + 5)?,
            code_constants: 0,
            code_filename: debug.at(&code, rows.code + 1)?,
            code_name: debug.at(&code, rows.code + 2)?,
            code_qualname: debug.at(&code, rows.code + 3)?,
            code_lines: debug.at(&code, rows.code + 4)?,
            code_first_traceable: code_bytecode.checked_sub(16).ok_or(BAD)?,
            code_bytecode,
            bytes_size: debug.at(&array, rows.bytes + 1)?,
            bytes_data: debug.at(&array, rows.bytes + 2)?,
            string_length: debug.at(&string, rows.string + 2)?,
            string_state: debug.at(&string, rows.string + 1)?,
            string_ascii,
            // PyCompactUnicodeObject adds utf8_length and utf8.
            string_compact: string_ascii + 16,
        })
    }

    /// Whether frames are `_PyInterpreterFrame`s on the data stack (3.11+), not frame objects.
    pub fn has_data_stack(&self) -> bool {
        self.minor >= 11
    }
}

const BAD: ReadError = ReadError::Corrupt("bad debug offsets");

pub(super) struct Debug<'a>(pub &'a [u8]);

impl Debug<'_> {
    fn word(&self, index: usize) -> Result<u64, ReadError> {
        let bytes = self.0.get(index * 8..index * 8 + 8).ok_or(BAD)?;
        Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| BAD)?))
    }

    /// The size of the structure whose row starts at `index`, at most `bound`.
    pub fn row(&self, index: usize, bound: u64) -> Result<u64, ReadError> {
        match self.word(index)? {
            size if size >= 8 && size <= bound => Ok(size),
            _ => Err(BAD),
        }
    }

    /// The offset at `index`, inside a structure of `size` bytes.
    pub fn at(&self, size: &u64, index: usize) -> Result<u32, ReadError> {
        match self.word(index)? {
            offset if offset <= *size => u32::try_from(offset).map_err(|_| BAD),
            _ => Err(BAD),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use object::read::elf::ElfFile64;
    use object::{Object, ObjectSection, ObjectSymbol};

    use super::super::offsets_tables::{CPYTHON_3_13, CPYTHON_3_14};
    use super::*;

    /// The debug offsets in a file.
    fn debug_offsets(path: &str) -> Option<Vec<u8>> {
        let data = std::fs::read(path).ok()?;
        let file: ElfFile64<'_> = ElfFile64::parse(&*data).ok()?;
        let address = file.dynamic_symbols().find(|symbol| symbol.name() == Ok("_PyRuntime"))?.address();
        let holds = |section: &&object::read::elf::ElfSection64<'_, '_>| {
            (section.address()..section.address() + section.size()).contains(&address)
        };
        let sections: Vec<_> = file.sections().collect();
        let section = sections.iter().find(holds)?;
        let from = (address - section.address()) as usize;
        Some(section.data().ok()?[from..from + DEBUG_OFFSETS_BYTES].to_vec())
    }

    /// The minor versions at hand that have debug offsets, and these.
    pub fn debug_offsets_at_hand() -> Vec<(u8, Vec<u8>)> {
        let home = std::env::var("HOME").unwrap_or_default();
        let files = [
            (13, format!("{home}/.pyenv/versions/3.13.0/lib/libpython3.13.so")),
            (14, format!("{}/../.cache/pythons/3.14/usr/bin/python3.14", env!("CARGO_MANIFEST_DIR"))),
        ];
        files.into_iter().filter_map(|(minor, path)| Some((minor, debug_offsets(&path)?))).collect()
    }

    #[test]
    fn debug_offsets_say_what_the_headers_say() {
        for (minor, bytes) in debug_offsets_at_hand() {
            let expected = if minor == 13 { CPYTHON_3_13 } else { CPYTHON_3_14 };
            assert_eq!(Offsets::from_debug(minor, &bytes), Ok(expected));
        }
    }

    #[test]
    fn hostile_debug_offsets_are_refused() {
        let mut state = 1u64;
        for round in 0..2000u64 {
            let words: Vec<u8> = (0..81)
                .flat_map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(round | 1);
                    (if round % 2 == 0 { state } else { state >> 52 }).to_le_bytes()
                })
                .collect();
            if let Ok(offsets) = Offsets::from_debug(13 + (round % 2) as u8, &words) {
                assert!(offsets.frame_previous <= 1 << 10 && offsets.thread_frame <= 8 << 10);
            }
        }
        assert!(Offsets::from_debug(13, &[0; 80]).is_err());
        assert!(Offsets::from_debug(15, &[0; DEBUG_OFFSETS_BYTES]).is_err());
    }
}
