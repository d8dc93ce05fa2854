//! `symbolize_pe` of the `_native` module. Runs in the supervisor, never in the sampler process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::symbols::pe::PeSymbolizer;
use crate::symbols::{Arena, Refused, Symbol, file};

/// name, system_name, file, line, column, start_line
pub type Line = (String, String, String, u32, u32, u32);

/// As Python has it.
pub fn line(symbol: Symbol) -> Line {
    let file = symbol.file.to_string();
    (symbol.function, symbol.system_name, file, symbol.line, symbol.column, symbol.start_line)
}

type Answer = (bool, Vec<Vec<Line>>);

fn look_up(path: &Path, head: &[u8], offsets: &[u32]) -> std::io::Result<Result<Answer, Refused>> {
    let arena = Arena::default();
    let bytes = arena.file(&file::open(path)?)?;
    Ok(PeSymbolizer::open(&arena, bytes, head).map(|names| {
        let lines = names.symbolize(offsets).into_iter().map(|symbols| symbols.into_iter().map(line).collect());
        (names.has_debug_info(), lines.collect())
    }))
}

/// See `_native.pyi`.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
pub fn symbolize_pe(py: Python<'_>, path: PathBuf, head: Vec<u8>, offsets: Vec<u32>) -> PyResult<Answer> {
    // As in `symbolize`, a panic costs the names of one module.
    let answer = py.detach(|| catch_unwind(AssertUnwindSafe(|| look_up(&path, &head, &offsets))));
    match answer {
        Ok(answer) => answer?.map_err(|refused| {
            PyValueError::new_err(match refused {
                Refused::Changed => "the file is not the one that is mapped",
                Refused::NotElf | Refused::NotPe => "not a PE file for x86-64",
            })
        }),
        Err(_) => Err(PyValueError::new_err("the file could not be read: a fault of remoteprof")),
    }
}
