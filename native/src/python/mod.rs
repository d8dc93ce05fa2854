//! The only folder that knows Python: the `_native` module, as `_native.pyi` describes it.

use pyo3::prelude::*;

use crate::error::{Error, ErrorKind};

mod batch;
mod golang;
mod link;
mod symbols;
mod target;

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
#[pyfunction]
fn sampler_main(py: Python<'_>, fd: i32) -> PyResult<()> {
    let stream = link::borrow_stream(fd)?;
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
