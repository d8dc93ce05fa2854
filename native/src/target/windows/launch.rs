//! CMD of `remoteprof run`: started suspended by the supervisor, held in a job until sampling begins.

use std::io;
use std::os::windows::io::{AsRawHandle, OwnedHandle};

use windows_sys::Win32::System::Threading::{PROCESS_TERMINATE, TerminateProcess};

use super::job::Job;
use super::{Process, open, threads};

/// A process that has not run yet. If it is dropped before [`Held::release`], it never will: nobody is left to let it go.
#[derive(Debug)]
pub struct Held {
    process: OwnedHandle,
    thread: u32,
    released: bool,
}

impl Held {
    /// Takes over `process`, which was created suspended; gives the job too that it is in from now on.
    pub fn take(process: &Process) -> io::Result<(Held, Job)> {
        let job = Job::around(process.pid)?;
        let thread = process.threads().first().copied().ok_or_else(|| io::Error::other("it has no thread"))?;
        let handle = open(process.pid, PROCESS_TERMINATE)?;
        Ok((Held { process: handle, thread, released: false }, job))
    }

    /// Lets it run.
    pub fn release(mut self) -> io::Result<()> {
        self.released = threads::resume(self.thread);
        if self.released { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.released {
            // SAFETY: the handle is open and has the right for it.
            unsafe { TerminateProcess(self.process.as_raw_handle(), 1) };
        }
    }
}
