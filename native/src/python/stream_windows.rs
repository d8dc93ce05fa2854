//! The supervisor's ends of the pipes. Windows has no wait for a pipe and a time at once: a thread reads.

use std::fs::File;
use std::io;
use std::os::windows::io::{BorrowedHandle, RawHandle};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use pyo3::prelude::*;

use crate::protocol::{self, Command};

/// Most pieces, of 64 KiB at most, that wait here.
const MAX_WAITING: usize = 256;

/// A file over a handle that stays the caller's.
pub fn borrow_file(handle: usize) -> PyResult<File> {
    // SAFETY: the handle is the caller's and open during this call; what is kept is a copy. A bad one gives an error.
    let handle = unsafe { BorrowedHandle::borrow_raw(handle as RawHandle) };
    Ok(handle.try_clone_to_owned()?.into())
}

/// Where commands go, and events come from.
pub struct Stream {
    commands: File,
    events: Receiver<io::Result<Vec<u8>>>,
    /// Read, and not asked for yet.
    next: Option<io::Result<Vec<u8>>>,
    ended: bool,
}

impl Stream {
    /// Over the handles of two pipes, which stay the caller's: one for commands, one of events.
    pub fn open(commands: usize, events: usize) -> PyResult<Stream> {
        let (commands, mut events) = (borrow_file(commands)?, borrow_file(events)?);
        // Of a bounded length: what nobody asks for waits in the pipe, and the sampler with it.
        let (sender, receiver) = sync_channel(MAX_WAITING);
        std::thread::spawn(move || {
            loop {
                let mut bytes = Vec::new();
                let read = protocol::fill(&mut events, &mut bytes);
                let last = !matches!(read, Ok(true));
                if sender.send(read.map(|_| bytes)).is_err() || last {
                    return;
                }
            }
        });
        Ok(Stream { commands, events: receiver, next: None, ended: false })
    }

    /// Sends a command.
    pub fn send(&mut self, command: &Command) -> io::Result<()> {
        protocol::send(&mut self.commands, command)
    }

    /// Waits until there is something to read, for so many nanoseconds at most; true if there is.
    pub fn wait(&mut self, timeout_ns: u64) -> bool {
        if self.next.is_none() && !self.ended {
            match self.events.recv_timeout(Duration::from_nanos(timeout_ns)) {
                Ok(read) => self.next = Some(read),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => self.ended = true,
            }
        }
        true
    }

    /// Reads what is there into `buffer`; false at the end of the stream.
    pub fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let bytes = match self.next.take() {
            None => Vec::new(),
            Some(Ok(bytes)) => bytes,
            // A pipe whose other end is closed by the end of a process.
            Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Vec::new(),
            Some(Err(error)) => return Err(error),
        };
        self.ended |= bytes.is_empty();
        buffer.extend_from_slice(&bytes);
        Ok(!bytes.is_empty())
    }
}
