//! A process from outside: identity, threads, mappings, memory.

use serde::{Deserialize, Serialize};

pub mod launch;
pub mod linux;
pub mod procfs;
pub mod ptrace;
pub mod recorded;
pub mod sys;

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// Four characters, as `r-xp`.
    pub permissions: String,
    /// Offset in the file.
    pub offset: u64,
    /// `major:minor` in hex, as the kernel prints it.
    pub device: String,
    /// Inode of the file, 0 if none.
    pub inode: u64,
    /// The rest of the line, unchanged: a path, ` (deleted)` included, or `[vdso]`, or nothing.
    pub path: String,
}

impl Mapping {
    /// Whether code can run here.
    pub fn executable(&self) -> bool {
        self.permissions.as_bytes().get(2) == Some(&b'x')
    }
}
