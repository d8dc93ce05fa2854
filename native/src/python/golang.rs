//! What was read of a Go program.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::batch::{bytes_of, frames_of};
use super::symbols::borrow_file;
use crate::runtime::go::buckets::Buckets;
use crate::runtime::go::buildinfo::BuildInfo;
use crate::runtime::go::goroutines::Goroutines;
use crate::runtime::go::profiling::Kind;
use crate::symbols::file::Arena;
use crate::tables::Columns;

/// What both have.
fn stacks<'py>(py: Python<'py>, version: &str, columns: &Columns, entries: &[u64]) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("version", version)?;
    result.set_item("frames", frames_of(columns))?;
    result.set_item("entries", bytes_of(py, entries, u64::to_ne_bytes))?;
    result.set_item("stack_starts", bytes_of(py, &columns.stack_starts, u32::to_ne_bytes))?;
    result.set_item("stack_frames", bytes_of(py, &columns.stack_frames, u32::to_ne_bytes))?;
    Ok(result)
}

/// See `Buckets` in `_native.pyi`.
pub fn buckets<'py>(py: Python<'py>, found: &Buckets) -> PyResult<Bound<'py, PyDict>> {
    let result = stacks(py, &found.version, &found.columns, &found.entries)?;
    let rows: Vec<_> = found.rows.iter().map(|row| (row.bucket, row.stack, row.values)).collect();
    result.set_item("rows", rows)?;
    result.set_item("rate", found.rate)?;
    result.set_item("factor", found.factor)?;
    result.set_item("ticks", found.ticks)?;
    result.set_item("memory", found.memory)?;
    result.set_item("notes", &found.notes)?;
    Ok(result)
}

/// The profile of this name.
pub fn kind(name: &str) -> PyResult<Kind> {
    match name {
        "heap" => Ok(Kind::Heap),
        "block" => Ok(Kind::Block),
        "mutex" => Ok(Kind::Mutex),
        _ => Err(PyValueError::new_err(format!("{name:?} is neither heap, block nor mutex"))),
    }
}

/// See `Goroutines` in `_native.pyi`.
pub fn goroutines<'py>(py: Python<'py>, found: &Goroutines) -> PyResult<Bound<'py, PyDict>> {
    let columns = &found.columns;
    let result = stacks(py, &found.version, columns, &found.entries)?;
    let strings: Vec<Py<PyAny>> =
        columns.strings.iter().map(|text| Ok(text.into_pyobject(py)?.into_any().unbind())).collect::<PyResult<_>>()?;
    let text = |index: u32| strings.get(index as usize);
    let rows = PyList::empty(py);
    for row in &found.rows {
        let (state, reason) = (text(row.state), text(row.reason));
        rows.append((row.id, state, reason, row.waited_ns, row.stack, row.creator, row.parent, row.labels))?;
    }
    result.set_item("rows", rows)?;
    result.set_item("labels", &found.labels)?;
    result.set_item("notes", &found.notes)?;
    Ok(result)
}

/// See `_native.pyi`.
#[pyfunction]
pub fn go_build(py: Python<'_>, fd: i32) -> PyResult<Option<(String, String)>> {
    py.detach(|| {
        let file = borrow_file(fd)?;
        let arena = Arena::default();
        let bytes = arena.file(&file)?.whole().ok_or_else(|| PyValueError::new_err("the file cannot be read"))?;
        Ok(BuildInfo::of_file(bytes).map(|build| (build.version, build.text)))
    })
}
