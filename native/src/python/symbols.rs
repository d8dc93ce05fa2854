//! `symbolize`, `perf_map_names` and `jit_dump_names` of the `_native` module. Runs in the supervisor, never in the sampler process.

use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::pe_symbols::{Line, line};
use crate::symbols::{Arena, Bytes, Place, Refused, Symbolizer, elf, jitdump, perfmap};

/// A module's bytes, or an open file of them.
#[derive(FromPyObject)]
pub enum Source {
    File(i32),
    Image(Vec<u8>),
}

/// A copy of a descriptor that stays the caller's.
pub fn borrow_file(fd: i32) -> std::io::Result<File> {
    // SAFETY: dup gives a new descriptor, which the file then owns; a bad fd gives an error, checked here.
    unsafe {
        let own = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3);
        if own < 0 { Err(std::io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(own).into()) }
    }
}

fn hex_bytes(hex: &str) -> PyResult<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(|pair| byte(pair).ok_or_else(|| PyValueError::new_err("build_id must be hex"))).collect()
}

fn hex_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Answer {
    build_id: String,
    debug_info: bool,
    debug_file: Option<PathBuf>,
    symtab: bool,
    symtab_in_debug_file: bool,
    dynsym: bool,
    mini_debug_info: bool,
    eh_frame: bool,
    debug_frame: bool,
    lines: Vec<Vec<Line>>,
}

fn look_up(
    source: &Source,
    place: &Place<'_>,
    (start, offset): (u64, u64),
    addresses: &[u64],
) -> std::io::Result<Result<Answer, Refused>> {
    let arena = Arena::default();
    let file;
    let bytes = match source {
        Source::Image(bytes) => Bytes::from(&bytes[..]),
        Source::File(fd) => {
            file = borrow_file(*fd)?;
            arena.file(&file)?
        }
    };
    Ok(Symbolizer::open(&arena, bytes, place).map(|symbolizer| {
        let found: Vec<Option<u64>> =
            addresses.iter().map(|&address| symbolizer.file_address(start, offset, address)).collect();
        let known: Vec<u64> = found.iter().copied().flatten().collect();
        let mut symbols = symbolizer.symbolize(&known).into_iter();
        let mut next = || symbols.next().unwrap_or_default().into_iter().map(line).collect();
        let lines = found.iter().map(|address| address.map_or_else(Vec::new, |_| next())).collect();
        let sources = symbolizer.sources();
        Answer {
            build_id: hex_text(symbolizer.build_id()),
            debug_info: sources.debug_info,
            debug_file: sources.debug_file.clone(),
            symtab: sources.symtab,
            symtab_in_debug_file: sources.symtab_in_debug_file,
            dynsym: sources.dynsym,
            mini_debug_info: sources.mini_debug_info,
            eh_frame: sources.eh_frame,
            debug_frame: sources.debug_frame,
            lines,
        }
    }))
}

/// See `_native.pyi`.
#[pyfunction]
#[pyo3(signature = (source, start, offset, addresses, *, build_id="", path=PathBuf::new(), roots=Vec::new(), debug_file=-1))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)]
pub fn symbolize<'py>(
    py: Python<'py>,
    source: Source,
    start: u64,
    offset: u64,
    addresses: Vec<u64>,
    build_id: &str,
    path: PathBuf,
    roots: Vec<PathBuf>,
    debug_file: i32,
) -> PyResult<Bound<'py, PyDict>> {
    let build_id = hex_bytes(build_id)?;
    let debug_file = if debug_file < 0 { None } else { Some(borrow_file(debug_file)?) };
    let place = Place { path: &path, roots: &roots, build_id: &build_id, debug_file: debug_file.as_ref() };
    // A panic would be a fault of ours or of a crate that reads the file. It must cost the names of one module, not the
    // recording: to Python it would be a BaseException that nothing catches.
    let answer = py.detach(|| catch_unwind(AssertUnwindSafe(|| look_up(&source, &place, (start, offset), &addresses))));
    let answer = match answer {
        Ok(answer) => answer.map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))?,
        Err(_) => return Err(PyValueError::new_err("the symbols of the file cannot be read")),
    };
    let answer = answer.map_err(|refused| {
        PyValueError::new_err(match refused {
            Refused::NotElf | Refused::NotPe => "not an ELF file",
            Refused::Changed => "the file has changed since it was mapped",
        })
    })?;
    let result = PyDict::new(py);
    result.set_item("build_id", answer.build_id)?;
    result.set_item("debug_info", answer.debug_info)?;
    result.set_item("debug_file", answer.debug_file.as_deref().map(Path::to_string_lossy))?;
    result.set_item("symtab", answer.symtab)?;
    result.set_item("symtab_in_debug_file", answer.symtab_in_debug_file)?;
    result.set_item("dynsym", answer.dynsym)?;
    result.set_item("mini_debug_info", answer.mini_debug_info)?;
    result.set_item("eh_frame", answer.eh_frame)?;
    result.set_item("debug_frame", answer.debug_frame)?;
    result.set_item("lines", answer.lines)?;
    Ok(result)
}

/// See `_native.pyi`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
pub fn build_id(py: Python<'_>, source: Source) -> PyResult<String> {
    py.detach(|| id_of(&source, |bytes| elf::build_id(bytes).map(hex_text)))
}

/// See `_native.pyi`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
pub fn go_build_id(py: Python<'_>, source: Source) -> PyResult<String> {
    let text = |id: &[u8]| match std::str::from_utf8(id) {
        Ok(id) if id.bytes().all(|byte| byte.is_ascii_graphic()) => id.to_string(),
        _ => String::new(),
    };
    py.detach(|| id_of(&source, |bytes| elf::go_build_id(bytes).map(text)))
}

fn id_of(source: &Source, find: impl Fn(Bytes<'_>) -> Option<String>) -> PyResult<String> {
    let read = || -> std::io::Result<Option<String>> {
        let arena = Arena::default();
        let file;
        let bytes = match source {
            Source::Image(bytes) => Bytes::from(&bytes[..]),
            Source::File(fd) => {
                file = borrow_file(*fd)?;
                arena.file(&file)?
            }
        };
        Ok(find(bytes))
    };
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(answer) => answer
            .map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))?
            .ok_or_else(|| PyValueError::new_err("not an ELF file")),
        Err(_) => Err(PyValueError::new_err("the file cannot be read")),
    }
}

/// See `_native.pyi`.
#[pyfunction]
pub fn perf_map(pid: u32) -> PyResult<i32> {
    Ok(perfmap::open(pid)?.into_raw_fd())
}

/// See `_native.pyi`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
pub fn perf_map_names(py: Python<'_>, text: &[u8], addresses: Vec<u64>) -> Vec<Option<String>> {
    py.detach(|| perfmap::find(text, &addresses))
}

/// See `_native.pyi`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
pub fn jit_dump_names(py: Python<'_>, dump: i32, addresses: Vec<u64>) -> PyResult<Vec<Option<(String, String, u32)>>> {
    let file = borrow_file(dump)?;
    let told = py.detach(|| jitdump::find(&file, &addresses))?;
    Ok(told.into_iter().map(|told| told.map(|told| (told.name, told.file, told.line))).collect())
}
