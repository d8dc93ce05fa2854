//! Batch: what the sampler saw, as columns.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::target::{Mapping, mapping_list};
use crate::protocol::{self, StackLocals};
use crate::runtime::cpython::Local;
use crate::stats::Stats;
use crate::tables::{Columns, FrameKind, FrameLine, State};

#[pyclass(module = "remoteprof._native", frozen)]
pub struct Batch {
    pub batch: protocol::Batch,
}

pub fn bytes_of<'py, T: Copy, const N: usize>(
    py: Python<'py>,
    values: &[T],
    bytes: fn(T) -> [u8; N],
) -> Bound<'py, PyBytes> {
    let flat: Vec<u8> = values.iter().flat_map(|&value| bytes(value)).collect();
    PyBytes::new(py, &flat)
}

/// A frame as Python has it: kind, name, file, line, start_line, address, mapping.
pub type FrameTuple<'a> = (&'static str, &'a str, &'a str, u32, u32, u64, i32);

/// A function as Python has it: name, file, line, start_line.
type LineTuple<'a> = (&'a str, &'a str, u32, u32);

pub fn frames_of(columns: &Columns) -> Vec<FrameTuple<'_>> {
    let text = |id: u32| columns.strings.get(id as usize).map_or("", String::as_str);
    columns
        .frames
        .iter()
        .map(|frame| {
            let kind = match frame.kind {
                FrameKind::Python => "python",
                FrameKind::Native => "native",
                FrameKind::Loop => "loop",
                FrameKind::Label => "label",
                FrameKind::Inlined => "inlined",
                FrameKind::Outermost => "outermost",
            };
            (kind, text(frame.name), text(frame.file), frame.line, frame.start_line, frame.address, frame.mapping)
        })
        .collect()
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
    fn frames(&self) -> Vec<FrameTuple<'_>> {
        frames_of(&self.batch.columns)
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
        rows.set_item("labels", bytes_of(py, &columns.row_labels, u32::to_ne_bytes))?;
        for (name, column) in [
            ("time", &columns.row_times),
            ("samples", &columns.samples),
            ("cpu", &columns.cpu),
            ("wall", &columns.wall),
            ("gil", &columns.gil),
        ] {
            rows.set_item(name, bytes_of(py, column, u64::to_ne_bytes))?;
        }
        Ok(rows)
    }

    #[getter]
    fn labels(&self) -> Vec<Vec<(String, String)>> {
        self.batch.columns.labels.clone()
    }

    #[getter]
    fn lines(&self) -> Vec<(u32, Vec<LineTuple<'_>>)> {
        let columns = &self.batch.columns;
        let text = |id: u32| columns.strings.get(id as usize).map_or("", String::as_str);
        let of = |line: &FrameLine| (text(line.name), text(line.file), line.line, line.start_line);
        columns.lines.iter().map(|(frame, lines)| (*frame, lines.iter().map(of).collect())).collect()
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

    #[getter]
    fn locals(&self) -> Vec<StackTuple<'_>> {
        self.batch.locals.iter().map(stack_locals).collect()
    }
}

/// A variable as Python has it: name, kind, value, type, whether the value is cut.
type LocalTuple<'a> = (&'a str, &'static str, &'a str, &'a str, bool);
/// A frame's place in its stack, its variables, how many more there are.
type FrameLocalsTuple<'a> = (u32, Vec<LocalTuple<'a>>, u32);
/// Thread id, frames, and how reading them went.
type StackTuple<'a> = (u32, Vec<FrameLocalsTuple<'a>>, u32, u32, u32, bool);

fn stack_locals(stack: &StackLocals) -> StackTuple<'_> {
    let local = |local| {
        let &Local { ref name, kind, ref value, ref type_name, cut } = local;
        (name.as_str(), kind.name(), value.as_str(), type_name.as_str(), cut)
    };
    let frames = stack.frames.iter();
    let frames = frames.map(|(place, frame)| (*place, frame.locals.iter().map(local).collect(), frame.left_out));
    let StackLocals { tid, unreadable, changing, frames_left_out, over_budget, .. } = *stack;
    (tid, frames.collect(), unreadable, changing, frames_left_out, over_budget)
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
        ("unsampled_cpu_ns", stats.unsampled_cpu_ns),
        ("syscalls_restarted", stats.syscalls_restarted),
        ("collisions", stats.collisions),
        ("told_births", stats.told_births),
        ("torn", stats.torn),
        ("unmatched", stats.unmatched),
        ("first_sample_ns", stats.first_sample_ns),
        ("attached_ns", stats.attached_ns),
    ] {
        result.set_item(name, value)?;
    }
    result.set_item("final_rate_hz", stats.final_rate_hz)?;
    let cut = PyDict::new(py);
    for (reason, count) in &stats.cut {
        cut.set_item(reason, count)?;
    }
    result.set_item("cut", cut)?;
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
