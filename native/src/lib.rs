//! The sampler of remoteprof: target → memory → runtime → tables → Batch.

pub mod error;
pub mod memory;
pub mod runtime;
pub mod target;
