//! What a look at a thread says, on any system.

/// What a thread is doing: on Linux as `/proc/PID/task/TID/syscall` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// On a core, or waiting for one.
    Running,
    /// Off the core until something happens; `number` is the system call, -1 outside of one.
    Blocked {
        /// System call number.
        number: i64,
        /// Stack pointer.
        sp: u64,
        /// Program counter.
        pc: u64,
        /// What it was called with.
        arguments: [u64; 6],
    },
    /// The thread has ended.
    Gone,
}

/// The scheduler's figures for a thread, on Linux `/proc/PID/task/TID/schedstat`: the whole changes whenever the thread
/// has run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a core, nanoseconds. Exact at a ptrace stop; lags up to a scheduler tick while running.
    pub run_ns: u64,
    /// Time spent waiting for a core, nanoseconds.
    pub wait_ns: u64,
    /// Times it was put on a core.
    pub runs: u64,
}
