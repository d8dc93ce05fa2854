//! What was read of a Go program.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::batch::{bytes_of, frames_of};
use super::symbols::borrow_file;
use crate::runtime::go::buildinfo::BuildInfo;
use crate::runtime::go::goroutines::Goroutines;
use crate::symbols::file::Arena;

/// See `Goroutines` in `_native.pyi`.
pub fn goroutines<'py>(py: Python<'py>, found: &Goroutines) -> PyResult<Bound<'py, PyDict>> {
    let columns = &found.columns;
    let result = PyDict::new(py);
    result.set_item("version", &found.version)?;
    result.set_item("frames", frames_of(columns))?;
    result.set_item("entries", bytes_of(py, &found.entries, u64::to_ne_bytes))?;
    result.set_item("stack_starts", bytes_of(py, &columns.stack_starts, u32::to_ne_bytes))?;
    result.set_item("stack_frames", bytes_of(py, &columns.stack_frames, u32::to_ne_bytes))?;
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
