//! Mapping and Target.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::raise;
use crate::memory::Memory;
use crate::target::os::{self, Process};

/// Most bytes of one `Target.read`.
const MAX_READ_BYTES: usize = 64 << 20;

#[pyclass(module = "remoteprof._native", frozen, get_all, eq)]
#[derive(Clone, PartialEq)]
pub struct Mapping {
    start: u64,
    end: u64,
    permissions: String,
    offset: u64,
    device: String,
    inode: u64,
    path: String,
}

#[pymethods]
impl Mapping {
    #[new]
    fn new(start: u64, end: u64, permissions: String, offset: u64, device: String, inode: u64, path: String) -> Self {
        Mapping { start, end, permissions, offset, device, inode, path }
    }

    fn __repr__(&self) -> String {
        format!(
            "Mapping({:x}-{:x} {} {:x} {} {} {})",
            self.start, self.end, self.permissions, self.offset, self.device, self.inode, self.path
        )
    }
}

pub fn mapping_list(mappings: Vec<crate::target::Mapping>) -> Vec<Mapping> {
    mappings
        .into_iter()
        .map(|mapping| Mapping {
            start: mapping.start,
            end: mapping.end,
            permissions: mapping.permissions,
            offset: mapping.offset,
            device: mapping.device,
            inode: mapping.inode,
            path: mapping.path,
        })
        .collect()
}

#[pyclass(module = "remoteprof._native", frozen)]
pub struct Target {
    process: Process,
}

#[pymethods]
impl Target {
    #[new]
    fn new(py: Python<'_>, pid: u32) -> PyResult<Self> {
        Process::open(pid).map(|process| Target { process }).map_err(|error| raise(py, &error))
    }

    #[getter]
    fn pid(&self) -> u32 {
        self.process.pid
    }

    #[getter]
    fn start_time(&self) -> u64 {
        self.process.start_time
    }

    #[getter]
    fn name(&self) -> &str {
        &self.process.name
    }

    fn mappings(&self, py: Python<'_>) -> PyResult<Vec<Mapping>> {
        let mappings = self.process.mappings();
        let mappings = mappings.map_err(|error| raise(py, &os::access_error(self.process.pid, &error)))?;
        Ok(mapping_list(mappings))
    }

    fn threads(&self) -> Vec<u32> {
        self.process.threads()
    }

    #[cfg(windows)]
    fn modules(&self) -> (Vec<Mapping>, String) {
        let found = self.process.modules();
        (mapping_list(found.mappings), found.trouble)
    }

    fn read<'py>(&self, py: Python<'py>, address: u64, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self
            .process
            .read_bytes(address, size, MAX_READ_BYTES)
            .map_err(|error| PyOSError::new_err(format!("cannot read {size} bytes at {address:#x}: {error}")))?;
        Ok(PyBytes::new(py, &bytes))
    }
}
