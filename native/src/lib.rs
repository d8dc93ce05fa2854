//! The sampler of remoteprof: target → memory → runtime → tables → Batch. No layer calls back.

pub mod clock;
pub mod elf_symbols;
pub mod error;
pub mod memory;
pub mod pe;
pub mod protocol;
pub mod runtime;
#[cfg(unix)]
pub mod sampler;
#[cfg(windows)]
#[path = "sampler/windows.rs"]
pub mod sampler;
pub mod stack;
pub mod stats;
pub mod symbols;
pub mod tables;
pub mod target;
pub mod unwind;

#[cfg(feature = "python")]
mod python;
