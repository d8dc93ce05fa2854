//! The supervisor's end of the socket.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;

use pyo3::prelude::*;

use crate::protocol::{self, Command};
use crate::target::sys;

/// A stream over a descriptor that stays the caller's.
pub fn borrow_stream(fd: i32) -> PyResult<UnixStream> {
    // SAFETY: dup gives a new descriptor, which the stream then owns; a bad fd gives an error, checked here.
    unsafe {
        let own = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3);
        if own < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(UnixStream::from_raw_fd(own)) }
    }
}

/// Where commands go, and events come from.
pub struct Stream(UnixStream);

impl Stream {
    /// Over the descriptor of a socket, which stays the caller's.
    pub fn open(fd: i32) -> PyResult<Stream> {
        borrow_stream(fd).map(Stream)
    }

    /// Sends a command.
    pub fn send(&mut self, command: &Command) -> io::Result<()> {
        protocol::send(&mut self.0, command)
    }

    /// Waits until there is something to read, for so many nanoseconds at most; true if there is. A signal ends the wait.
    pub fn wait(&mut self, timeout_ns: u64) -> bool {
        let [ready] = sys::wait_readable([self.0.as_raw_fd()], Some(timeout_ns));
        ready
    }

    /// Reads what is there into `buffer`; false at the end of the stream.
    pub fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<bool> {
        protocol::fill(&mut self.0, buffer)
    }
}
