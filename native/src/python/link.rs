//! Link and Event: the supervisor's end of the way to the sampler.

use pyo3::exceptions::{PyEOFError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::batch::Batch;
use super::exception;
#[cfg(unix)]
use super::golang;
use super::stream::Stream;
use crate::protocol::{self, Command, Options};
use crate::target::sys;

#[pyclass(module = "remoteprof._native", frozen, get_all)]
pub struct Event {
    kind: &'static str,
    pid: u32,
    status: i32,
    samples: u64,
    pause_p99_us: f64,
    batch: Option<Py<Batch>>,
    goroutines: Option<Py<PyDict>>,
    buckets: Option<Py<PyDict>>,
    error: Option<Py<PyAny>>,
}

fn event(py: Python<'_>, event: protocol::Event) -> PyResult<Event> {
    let mut result = Event {
        kind: "",
        pid: 0,
        status: -1,
        samples: 0,
        pause_p99_us: 0.0,
        batch: None,
        goroutines: None,
        buckets: None,
        error: None,
    };
    match event {
        protocol::Event::Added { pid } => (result.kind, result.pid) = ("added", pid),
        protocol::Event::Found { pid } => (result.kind, result.pid) = ("found", pid),
        protocol::Event::Failed(error) => {
            result.kind = "failed";
            result.error = Some(exception(py, &error)?.unbind());
        }
        protocol::Event::NotExecuted { errno, message } => {
            result.kind = "failed";
            result.error = Some(PyOSError::new_err((errno, message)).into_value(py).into_any());
        }
        protocol::Event::Exited { pid, status } => (result.kind, result.pid, result.status) = ("exited", pid, status),
        protocol::Event::Progress { samples, pause_p99_ns } => {
            (result.kind, result.samples) = ("progress", samples);
            result.pause_p99_us = pause_p99_ns as f64 / 1000.0;
        }
        protocol::Event::Batch(batch) => {
            (result.kind, result.pid) = ("batch", batch.pid);
            result.batch = Some(Py::new(py, Batch { batch: *batch })?);
        }
        protocol::Event::Part(batch) => {
            (result.kind, result.pid) = ("part", batch.pid);
            result.batch = Some(Py::new(py, Batch { batch: *batch })?);
        }
        protocol::Event::Cut => result.kind = "cut",
        protocol::Event::Finished => result.kind = "finished",
        #[cfg(unix)]
        protocol::Event::Goroutines(found) => {
            result.kind = "goroutines";
            result.goroutines = Some(golang::goroutines(py, &found)?.unbind());
        }
        #[cfg(unix)]
        protocol::Event::Buckets(found) => {
            result.kind = "buckets";
            result.buckets = Some(golang::buckets(py, &found)?.unbind());
        }
    }
    Ok(result)
}

/// Checks a regular expression for the names of processes.
#[pyfunction]
pub fn check_pattern(pattern: &str) -> PyResult<()> {
    crate::sampler::pattern(pattern).map(drop).map_err(PyValueError::new_err)
}

#[pyclass(module = "remoteprof._native", unsendable)]
pub struct Link {
    stream: Stream,
    input: Vec<u8>,
}

impl Link {
    fn say(&mut self, command: &Command) -> PyResult<()> {
        Ok(self.stream.send(command)?)
    }
}

#[pymethods]
impl Link {
    #[cfg(unix)]
    #[new]
    fn new(fd: i32) -> PyResult<Self> {
        Ok(Link { stream: Stream::open(fd)?, input: Vec::new() })
    }

    #[cfg(windows)]
    #[new]
    fn new(commands: usize, events: usize) -> PyResult<Self> {
        Ok(Link { stream: Stream::open(commands, events)?, input: Vec::new() })
    }

    fn add(&mut self, pid: u32, native: bool) -> PyResult<()> {
        self.say(&Command::Add { pid, native })
    }

    #[cfg(windows)]
    fn hold(&mut self, pid: u32) -> PyResult<()> {
        self.say(&Command::Hold { pid })
    }

    #[cfg(unix)]
    fn launch(&mut self, argv: Vec<Vec<u8>>, environment: Vec<Vec<u8>>, stops: bool) -> PyResult<()> {
        self.say(&Command::Launch { arguments: argv, environment, stops })
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
        max_stack: u32,
        children: bool,
        children_match: String,
        times: bool,
        locals_pause_ns: u64,
    ) -> PyResult<()> {
        if !(rate.is_finite() && rate > 0.0) {
            return Err(PyValueError::new_err("rate must be over 0"));
        }
        check_pattern(&children_match)?;
        let options = Options {
            rate,
            duration_ns,
            max_ticks,
            idle,
            native,
            nonblocking,
            max_pause_ns,
            max_stack,
            children,
            children_match,
            times,
            locals_pause_ns,
        };
        self.say(&Command::Start(options))
    }

    fn progress(&mut self) -> PyResult<()> {
        self.say(&Command::Progress)
    }

    fn cut(&mut self) -> PyResult<()> {
        self.say(&Command::Cut)
    }

    fn stop(&mut self) -> PyResult<()> {
        self.say(&Command::Stop)
    }

    #[cfg(unix)]
    fn goroutines(&mut self, pid: u32, system: bool) -> PyResult<()> {
        self.say(&Command::Goroutines { pid, system })
    }

    #[cfg(unix)]
    fn buckets(&mut self, pid: u32, kind: &str, all: bool) -> PyResult<()> {
        self.say(&Command::Buckets { pid, kind: golang::kind(kind)?, all })
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
            let stream = &mut self.stream;
            if !py.detach(|| stream.wait(end.saturating_sub(sys::monotonic_ns()))) {
                return Ok(None);
            }
            if !self.stream.fill(&mut self.input)? {
                return Err(PyEOFError::new_err("the sampler process has ended"));
            }
        }
    }
}
