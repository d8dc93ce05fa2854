//! The only file that knows Python: the `_native` module, as `_native.pyi` describes it.

use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;

use pyo3::exceptions::{PyEOFError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::{Error, ErrorKind};
use crate::memory::Memory;
use crate::protocol::{self, Command, Options};
use crate::stats::Stats;
use crate::tables::{FrameKind, State};
use crate::target::linux::{self, Process};
use crate::target::{procfs, sys};

/// Most bytes of one `Target.read`.
const MAX_READ_BYTES: usize = 64 << 20;

fn class_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Failed => "RemoteprofError",
        ErrorKind::NotFound => "ProcessNotFound",
        ErrorKind::Permission => "PermissionDenied",
        ErrorKind::Traced => "AlreadyTraced",
        ErrorKind::Unsupported => "NothingToProfile",
    }
}

fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    py.import("remoteprof.errors")?.getattr(class_of(error.kind))?.call1((&error.message, &error.hint))
}

fn raise(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).map_or_else(|failure| failure, PyErr::from_value)
}

#[pyclass(module = "remoteprof._native", frozen, get_all, eq)]
#[derive(Clone, PartialEq)]
struct Mapping {
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

fn mapping_list(mappings: Vec<crate::target::Mapping>) -> Vec<Mapping> {
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

#[pyclass(module = "remoteprof._native", unsendable)]
struct Target {
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
        let mappings = mappings.map_err(|error| raise(py, &linux::access_error(self.process.pid, &error)))?;
        Ok(mapping_list(mappings))
    }

    fn threads(&self) -> Vec<u32> {
        procfs::list_threads(self.process.pid)
    }

    fn read<'py>(&self, py: Python<'py>, address: u64, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self
            .process
            .read_bytes(address, size, MAX_READ_BYTES)
            .map_err(|error| PyOSError::new_err(format!("cannot read {size} bytes at {address:#x}: {error}")))?;
        Ok(PyBytes::new(py, &bytes))
    }
}

#[pyclass(module = "remoteprof._native", frozen)]
struct Batch {
    batch: protocol::Batch,
}

fn bytes_of<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    values: &[T],
    bytes: fn(T) -> [u8; N],
) -> Bound<'py, PyBytes> {
    let flat: Vec<u8> = values.iter().flat_map(|&value| bytes(value)).collect();
    PyBytes::new(py, &flat)
}

#[pymethods]
impl Batch {
    #[getter]
    fn pid(&self) -> u32 {
        self.batch.pid
    }

    #[getter]
    fn process(&self) -> &str {
        &self.batch.process
    }

    #[getter]
    fn start_ns(&self) -> u64 {
        self.batch.start_ns
    }

    #[getter]
    fn duration_ns(&self) -> u64 {
        self.batch.duration_ns
    }

    #[getter]
    fn runtime(&self) -> &str {
        &self.batch.runtime
    }

    #[getter]
    fn frames(&self) -> Vec<(&'static str, &str, &str, u32, u32, u64, i32)> {
        let columns = &self.batch.columns;
        let text = |id: u32| columns.strings.get(id as usize).map_or("", String::as_str);
        columns
            .frames
            .iter()
            .map(|frame| {
                let kind = match frame.kind {
                    FrameKind::Python => "python",
                    FrameKind::Native => "native",
                    FrameKind::Label => "label",
                };
                (kind, text(frame.name), text(frame.file), frame.line, frame.start_line, frame.address, frame.mapping)
            })
            .collect()
    }

    #[getter]
    fn stack_starts<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        bytes_of(py, &self.batch.columns.stack_starts, u32::to_ne_bytes)
    }

    #[getter]
    fn stack_frames<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        bytes_of(py, &self.batch.columns.stack_frames, u32::to_ne_bytes)
    }

    #[getter]
    fn threads(&self) -> Vec<(u32, String)> {
        self.batch.columns.threads.clone()
    }

    #[getter]
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = &self.batch.columns;
        let rows = PyDict::new(py);
        rows.set_item("thread", bytes_of(py, &columns.row_threads, u32::to_ne_bytes))?;
        rows.set_item("stack", bytes_of(py, &columns.row_stacks, u32::to_ne_bytes))?;
        rows.set_item("state", bytes_of(py, &columns.row_states, u32::to_ne_bytes))?;
        for (name, column) in
            [("samples", &columns.samples), ("cpu", &columns.cpu), ("wall", &columns.wall), ("gil", &columns.gil)]
        {
            rows.set_item(name, bytes_of(py, column, u64::to_ne_bytes))?;
        }
        Ok(rows)
    }

    #[getter]
    fn states(&self) -> Vec<&'static str> {
        State::NAMES.to_vec()
    }

    #[getter]
    fn mappings(&self) -> Vec<Mapping> {
        mapping_list(self.batch.columns.mappings.clone())
    }

    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats_dict(py, &self.batch.stats)
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.batch.notes.clone()
    }
}

fn stats_dict<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    for (name, value) in [
        ("ticks", stats.ticks),
        ("thread_ticks", stats.thread_ticks),
        ("samples", stats.samples),
        ("distinct_stacks", stats.distinct_stacks),
        ("complete", stats.complete),
        ("truncated", stats.truncated),
        ("unreadable", stats.unreadable),
        ("gone", stats.gone),
        ("late_ticks", stats.late_ticks),
        ("missed_ticks", stats.missed_ticks),
        ("pending_ticks", stats.pending_ticks),
        ("cpu_ns_sampled", stats.cpu_ns_sampled),
        ("cpu_ns_process", stats.cpu_ns_process),
        ("syscalls_restarted", stats.syscalls_restarted),
        ("collisions", stats.collisions),
        ("torn", stats.torn),
        ("first_sample_ns", stats.first_sample_ns),
        ("attached_ns", stats.attached_ns),
    ] {
        result.set_item(name, value)?;
    }
    result.set_item("final_rate_hz", stats.final_rate_hz)?;
    let pause = PyDict::new(py);
    let micros = |ns: u64| ns as f64 / 1000.0;
    pause.set_item("count", stats.pause.count())?;
    pause.set_item("p50", micros(stats.pause.quantile(0.5)))?;
    pause.set_item("p99", micros(stats.pause.quantile(0.99)))?;
    pause.set_item("max", micros(stats.pause.max()))?;
    pause.set_item("total", micros(stats.pause.total()))?;
    result.set_item("pause_us", pause)?;
    let caches = PyDict::new(py);
    for (name, cache) in &stats.caches {
        let figures = PyDict::new(py);
        figures.set_item("hits", cache.hits)?;
        figures.set_item("misses", cache.misses)?;
        caches.set_item(name, figures)?;
    }
    result.set_item("caches", caches)?;
    Ok(result)
}

#[pyclass(module = "remoteprof._native", frozen, get_all)]
struct Event {
    kind: &'static str,
    pid: u32,
    status: i32,
    samples: u64,
    pause_p99_us: f64,
    message: String,
    batch: Option<Py<Batch>>,
    error: Option<Py<PyAny>>,
}

fn event(py: Python<'_>, event: protocol::Event) -> PyResult<Event> {
    let mut result = Event {
        kind: "",
        pid: 0,
        status: -1,
        samples: 0,
        pause_p99_us: 0.0,
        message: String::new(),
        batch: None,
        error: None,
    };
    match event {
        protocol::Event::Added { pid } => (result.kind, result.pid) = ("added", pid),
        protocol::Event::Failed(error) => {
            result.kind = "failed";
            result.error = Some(exception(py, &error)?.unbind());
        }
        protocol::Event::NotExecuted { errno, message } => {
            result.kind = "failed";
            result.error = Some(PyOSError::new_err((errno, message)).into_value(py).into_any());
        }
        protocol::Event::Exited { pid, status } => (result.kind, result.pid, result.status) = ("exited", pid, status),
        protocol::Event::Note(message) => (result.kind, result.message) = ("note", message),
        protocol::Event::Progress { samples, pause_p99_ns } => {
            (result.kind, result.samples) = ("progress", samples);
            result.pause_p99_us = pause_p99_ns as f64 / 1000.0;
        }
        protocol::Event::Batch(batch) => {
            (result.kind, result.pid) = ("batch", batch.pid);
            result.batch = Some(Py::new(py, Batch { batch: *batch })?);
        }
        protocol::Event::Finished => result.kind = "finished",
    }
    Ok(result)
}

/// A stream over a descriptor that stays the caller's.
fn borrow_stream(fd: i32) -> PyResult<UnixStream> {
    // SAFETY: dup gives a new descriptor, which the stream then owns; a bad fd gives an error, checked here.
    unsafe {
        let own = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3);
        if own < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(UnixStream::from_raw_fd(own)) }
    }
}

#[pyclass(module = "remoteprof._native", unsendable)]
struct Link {
    stream: UnixStream,
    input: Vec<u8>,
}

impl Link {
    fn say(&mut self, command: &Command) -> PyResult<()> {
        Ok(protocol::send(&mut self.stream, command)?)
    }
}

#[pymethods]
impl Link {
    #[new]
    fn new(fd: i32) -> PyResult<Self> {
        Ok(Link { stream: borrow_stream(fd)?, input: Vec::new() })
    }

    fn add(&mut self, pid: u32) -> PyResult<()> {
        self.say(&Command::Add { pid })
    }

    fn launch(&mut self, argv: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) -> PyResult<()> {
        self.say(&Command::Launch { arguments: argv, environment })
    }

    #[allow(clippy::too_many_arguments)]
    fn start(
        &mut self,
        rate: f64,
        duration_ns: u64,
        max_ticks: u64,
        idle: bool,
        native: bool,
        nonblocking: bool,
        max_pause_ns: u64,
    ) -> PyResult<()> {
        if !(rate.is_finite() && rate > 0.0) {
            return Err(PyValueError::new_err("rate must be over 0"));
        }
        self.say(&Command::Start(Options { rate, duration_ns, max_ticks, idle, native, nonblocking, max_pause_ns }))
    }

    fn progress(&mut self) -> PyResult<()> {
        self.say(&Command::Progress)
    }

    fn stop(&mut self) -> PyResult<()> {
        self.say(&Command::Stop)
    }

    fn receive(&mut self, py: Python<'_>, timeout: f64) -> PyResult<Option<Event>> {
        if !timeout.is_finite() || timeout < 0.0 {
            return Err(PyValueError::new_err("timeout must be 0 or more seconds"));
        }
        let end = sys::monotonic_ns().saturating_add((timeout.min(1e9) * 1e9) as u64);
        loop {
            if let Some(message) = protocol::decode(&mut self.input)? {
                return event(py, message).map(Some);
            }
            let fd = self.stream.as_raw_fd();
            let [ready] = py.detach(|| {
                let left = end.saturating_sub(sys::monotonic_ns());
                sys::wait_readable([fd], Some(left))
            });
            if !ready {
                return Ok(None);
            }
            if !protocol::fill(&mut self.stream, &mut self.input)? {
                return Err(PyEOFError::new_err("the sampler process has ended"));
            }
        }
    }
}

/// The sampler process: serves the socket `fd` until it is closed.
#[pyfunction]
fn sampler_main(py: Python<'_>, fd: i32) -> PyResult<()> {
    let stream = borrow_stream(fd)?;
    // SAFETY: the descriptor was given to this process for this use only; the stream above is a copy of it.
    unsafe { libc::close(fd) };
    py.detach(|| crate::sampler::serve(stream))?;
    Ok(())
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Mapping>()?;
    module.add_class::<Target>()?;
    module.add_class::<Batch>()?;
    module.add_class::<Event>()?;
    module.add_class::<Link>()?;
    module.add_function(wrap_pyfunction!(sampler_main, module)?)?;
    module.add_function(wrap_pyfunction!(crate::symbols_python::symbolize, module)?)?;
    module.add_function(wrap_pyfunction!(crate::symbols_python::perf_map, module)?)?;
    module.add_function(wrap_pyfunction!(crate::symbols_python::perf_map_names, module)?)?;
    Ok(())
}
