//! The only folder that knows Python: the `_native` module, as `_native.pyi` describes it.

use pyo3::prelude::*;

use crate::error::{Error, ErrorKind};
#[cfg(unix)]
use crate::target::refusal;

mod batch;
#[cfg(unix)]
mod golang;
mod link;
mod pe_symbols;
#[cfg_attr(unix, path = "stream_unix.rs")]
#[cfg_attr(windows, path = "stream_windows.rs")]
mod stream;
#[cfg(unix)]
mod symbols;
mod target;
mod weigh;
#[cfg(windows)]
mod windows;

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

/// The sampler process: serves the socket `fd` until it is closed.
#[cfg(unix)]
#[pyfunction]
fn sampler_main(py: Python<'_>, fd: i32) -> PyResult<()> {
    let stream = stream::borrow_stream(fd)?;
    // SAFETY: the descriptor was given to this process for this use only; the stream above is a copy of it.
    unsafe { libc::close(fd) };
    py.detach(|| crate::sampler::serve(stream))?;
    Ok(())
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<target::Mapping>()?;
    module.add_class::<target::Target>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<link::Event>()?;
    module.add_class::<link::Link>()?;
    module.add_function(wrap_pyfunction!(link::check_pattern, module)?)?;
    module.add_function(wrap_pyfunction!(pe_symbols::symbolize_pe, module)?)?;
    module.add_function(wrap_pyfunction!(weigh::weigh, module)?)?;
    system_functions(module)
}

#[cfg(windows)]
fn system_functions(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(windows::sampler_main, module)?)?;
    module.add_function(wrap_pyfunction!(windows::process_name, module)?)?;
    module.add_function(wrap_pyfunction!(windows::process_cpu_ns, module)?)?;
    module.add_function(wrap_pyfunction!(windows::process_start_ns, module)?)?;
    module.add_function(wrap_pyfunction!(windows::process_peak_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(windows::new_record, module)?)?;
    module.add_function(wrap_pyfunction!(windows::settle_record, module)?)?;
    module.add_function(wrap_pyfunction!(windows::left_suspended, module)?)?;
    module.add_function(wrap_pyfunction!(windows::resume_left, module)?)?;
    module.add_function(wrap_pyfunction!(windows::resume_thread, module)?)?;
    module.add_function(wrap_pyfunction!(windows::wine_version, module)?)?;
    module.add_function(wrap_pyfunction!(windows::tells_thread_states, module)?)?;
    module.add_function(wrap_pyfunction!(windows::enable_debug_privilege, module)?)?;
    module.add_function(wrap_pyfunction!(windows::integrity_level, module)?)?;
    module.add_function(wrap_pyfunction!(windows::protection_level, module)?)?;
    Ok(())
}

#[cfg(unix)]
fn system_functions(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ADD_CAPABILITY", refusal::ADD_CAPABILITY)?;
    module.add("NO_FILTER", refusal::NO_FILTER)?;
    module.add_function(wrap_pyfunction!(sampler_main, module)?)?;
    module.add_function(wrap_pyfunction!(symbols::symbolize, module)?)?;
    module.add_function(wrap_pyfunction!(golang::go_build, module)?)?;
    module.add_function(wrap_pyfunction!(symbols::build_id, module)?)?;
    module.add_function(wrap_pyfunction!(symbols::go_build_id, module)?)?;
    module.add_function(wrap_pyfunction!(symbols::perf_map, module)?)?;
    module.add_function(wrap_pyfunction!(symbols::perf_map_names, module)?)?;
    module.add_function(wrap_pyfunction!(symbols::jit_dump_names, module)?)?;
    Ok(())
}
