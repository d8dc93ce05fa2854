//! A process from outside: identity, threads, mappings, memory. [`os`] is the system that this is built for.

use serde::{Deserialize, Serialize};

pub mod admission;
#[cfg(unix)]
pub mod births;
pub mod descent;
#[cfg(unix)]
pub mod launch;
#[cfg(unix)]
pub mod linux;
#[cfg(unix)]
pub mod procfs;
#[cfg(unix)]
pub mod ptrace;
pub mod recorded;
#[cfg(unix)]
pub mod refusal;
#[cfg(unix)]
pub mod rooted;
#[cfg(unix)]
pub mod seize;
#[cfg(unix)]
pub mod sys;
pub mod thread;
pub mod toolhelp;
#[cfg(windows)]
pub mod windows;

#[cfg(windows)]
pub use windows as os;
#[cfg(windows)]
pub use windows::sys;

/// What all above this layer knows of a system; the same names on each.
#[cfg(unix)]
pub mod os {
    pub use super::linux::{Image, Process, file_identity};
    pub use super::procfs::{TaskFolder, ThreadFiles as ThreadView, state_letter, thread_name, tracer};
    pub use super::refusal::access_error;
    pub use super::sys::{EXECS, system_call_name};
}

/// A range of memory: one line of `/proc/PID/maps`, or a loaded module of Windows (device and inode are empty there).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Whether this is a loaded module of Windows, by its path: `C:\\…`, or `\\\\…`.
    pub fn is_module(&self) -> bool {
        self.path.starts_with(r"\\") || self.path.get(1..3) == Some(r":\")
    }

    /// What tells its file from others: device, inode, and where there are none the path.
    pub fn file(&self) -> (&str, u64, &str) {
        (&self.device, self.inode, if self.inode == 0 { &self.path } else { "" })
    }

    /// Whether code can run here.
    pub fn executable(&self) -> bool {
        self.permissions.as_bytes().get(2) == Some(&b'x')
    }
}
