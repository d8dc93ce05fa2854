//! What the supervisor asks of Windows, and the sampler process.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

use super::stream::borrow_file;
use crate::target::sys;
use crate::target::windows::{self, held, rights};

/// The sampler process: serves the pipes until they are closed.
#[pyfunction]
pub fn sampler_main(py: Python<'_>, commands: usize, events: usize, record: PathBuf) -> PyResult<()> {
    let (commands, events) = (borrow_file(commands)?, borrow_file(events)?);
    py.detach(|| crate::sampler::serve(commands, events, &record))?;
    Ok(())
}

/// See `_native.pyi`.
#[pyfunction]
pub fn process_name(pid: u32) -> String {
    sys::process_name(pid)
}

/// See `_native.pyi`.
#[pyfunction]
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    sys::process_cpu_ns(pid)
}

/// See `_native.pyi`.
#[pyfunction]
pub fn process_start_ns(pid: u32) -> Option<u64> {
    sys::process_start_ns(pid)
}

/// See `_native.pyi`.
#[pyfunction]
pub fn process_peak_bytes(pid: u32) -> Option<u64> {
    sys::process_peak_bytes(pid)
}

/// See `_native.pyi`.
#[pyfunction]
pub fn new_record() -> PyResult<OsString> {
    Ok(held::create()?.into_os_string())
}

/// See `_native.pyi`.
#[pyfunction]
pub fn settle_record(record: PathBuf) {
    held::settle(&record);
}

/// See `_native.pyi`.
#[pyfunction]
pub fn resume_thread(tid: u32) -> bool {
    windows::resume(tid)
}

/// See `_native.pyi`.
#[pyfunction]
pub fn left_suspended() -> Vec<(OsString, u32, u32, u32, u32)> {
    let all = held::left().into_iter();
    all.map(|left| (left.record.into_os_string(), left.sampler, left.pid, left.tid, left.count)).collect()
}

/// See `_native.pyi`.
#[pyfunction]
pub fn resume_left(record: PathBuf) -> bool {
    held::resume(&record)
}

/// See `_native.pyi`.
#[pyfunction]
pub fn wine_version() -> String {
    windows::wine_version()
}

/// See `_native.pyi`.
#[pyfunction]
pub fn tells_thread_states() -> bool {
    windows::tells_states()
}

/// See `_native.pyi`.
#[pyfunction]
pub fn enable_debug_privilege() -> bool {
    rights::enable_debug()
}

/// See `_native.pyi`.
#[pyfunction]
pub fn integrity_level(pid: u32) -> Option<u32> {
    rights::integrity(pid)
}

/// See `_native.pyi`.
#[pyfunction]
pub fn protection_level(pid: u32) -> Option<u32> {
    rights::protection(pid)
}
