//! Language runtimes: what turns a thread's memory into frames.

pub mod cpython;
#[cfg(unix)]
pub mod go;
