//! What can go wrong: [`Error`] ends the work on a whole target, [`ReadError`] ends one read.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why one read of a target's memory gave nothing. Small and `Copy`: it is counted, not printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReadError {
    /// The address is not mapped, or not readable.
    Unmapped,
    /// The process has ended or has replaced its memory (exec).
    Gone,
    /// The kernel refused the read.
    Denied,
    /// The thread had been stopped for as long as `--max-pause` allows.
    OverBudget,
    /// A size, count or depth in the target's memory is over its named bound.
    Bound(&'static str),
    /// The memory was read but cannot be what it should be.
    Corrupt(&'static str),
}

impl ReadError {
    /// The reason as shown in `[unreadable: REASON]`.
    pub fn reason(self) -> &'static str {
        match self {
            ReadError::Unmapped => "unmapped memory",
            ReadError::Gone => "process gone",
            ReadError::Denied => "permission denied",
            ReadError::OverBudget => "over --max-pause",
            ReadError::Bound(what) | ReadError::Corrupt(what) => what,
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

/// The classes of `remoteprof.errors`, by their exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// Exit 1: anything else.
    Failed,
    /// Exit 3: no such process.
    NotFound,
    /// Exit 4: not permitted.
    Permission,
    /// Exit 4: another tracer holds the process.
    Traced,
    /// Exit 5: nothing here to profile.
    Unsupported,
}

/// An error about a whole target: one line that says what happened, one that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// The class.
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl Error {
    /// An error of `kind`.
    pub fn new(kind: ErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Error { kind, message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
