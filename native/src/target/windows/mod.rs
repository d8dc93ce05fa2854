//! A Windows process: opened for reading with the least rights, told apart from others of the same pid.

pub mod held;
pub mod job;
pub mod launch;
pub mod launcher;
mod modules;
pub mod rights;
pub mod sys;
mod threads;
pub mod watched;

use std::fs::File;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::{ERROR_ACCESS_DENIED, FILETIME, GetLastError, HANDLE, WAIT_OBJECT_0};
use windows_sys::Win32::Storage::FileSystem::{BY_HANDLE_FILE_INFORMATION, GetFileInformationByHandle};
use windows_sys::Win32::System::Diagnostics::Debug::ReadProcessMemory;
use windows_sys::Win32::System::Threading::{
    GetExitCodeProcess, GetProcessId, GetProcessTimes, IsWow64Process, OpenProcess, PROCESS_QUERY_INFORMATION,
    PROCESS_SYNCHRONIZE, PROCESS_VM_READ, QueryFullProcessImageNameW, WaitForSingleObject,
};

use super::Mapping;
use super::admission::{self, Opened};
use super::toolhelp::{self, Entry, Modules, Toolhelp};
use crate::error::{Error, ReadError};
use crate::memory::{Memory, Region};
use crate::pe::Pe;
pub use threads::{Suspended, ThreadView, resume, state_letter, tells_states, thread_name, tracer, wine_version};

/// Most UTF-16 units of a path.
const MAX_PATH_UNITS: usize = 32 << 10;

/// A process on this machine. Opening it is not attaching to it.
#[derive(Debug)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// When it was created, in units of 100 ns since 1601; with the pid its identity.
    pub start_time: u64,
    /// The name of its program's file.
    pub name: String,
    handle: OwnedHandle,
}

/// Which memory a process has: on Windows the same for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    created: u64,
}

/// A handle that Windows gave us, to be closed.
fn own(handle: HANDLE) -> io::Result<OwnedHandle> {
    // SAFETY: Windows has just given us the handle, and nobody else has it.
    if handle.is_null() { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedHandle::from_raw_handle(handle) }) }
}

fn open(pid: u32, rights: u32) -> io::Result<OwnedHandle> {
    // SAFETY: a call without pointers.
    own(unsafe { OpenProcess(rights, 0, pid) })
}

/// (creation, CPU time) of a process, in units of 100 ns.
fn times(process: &OwnedHandle) -> Option<(u64, u64)> {
    all_times(process).map(|[created, _, kernel, user]| (created, kernel + user))
}

/// (creation, end) of a process, in units of 100 ns since 1601; the end is 0 while it lives.
fn lifetime(process: &OwnedHandle) -> Option<(u64, u64)> {
    all_times(process).map(|[created, ended, ..]| (created, ended))
}

fn all_times(process: &OwnedHandle) -> Option<[u64; 4]> {
    let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
    let [created, ended, kernel, user] = &mut times;
    // SAFETY: the four places are valid for the call.
    let done = unsafe { GetProcessTimes(process.as_raw_handle(), created, ended, kernel, user) };
    (done != 0).then(|| times.map(sys::units))
}

fn ended(handle: &OwnedHandle) -> bool {
    // SAFETY: the handle is open.
    unsafe { WaitForSingleObject(handle.as_raw_handle(), 0) == WAIT_OBJECT_0 }
}

fn program(process: &OwnedHandle) -> Option<String> {
    let mut path = vec![0_u16; MAX_PATH_UNITS];
    let mut size = path.len() as u32;
    // SAFETY: `path` has room for `size` units.
    let done = unsafe { QueryFullProcessImageNameW(process.as_raw_handle(), 0, path.as_mut_ptr(), &mut size) };
    (done != 0).then(|| String::from_utf16_lossy(&path[..(size as usize).min(MAX_PATH_UNITS)]))
}

impl Process {
    /// Opens `pid` and checks that it can be read and profiled.
    pub fn open(pid: u32) -> Result<Process, Error> {
        let wanted = PROCESS_VM_READ | PROCESS_QUERY_INFORMATION | PROCESS_SYNCHRONIZE;
        let refused = |error: &io::Error| error.raw_os_error() == Some(ERROR_ACCESS_DENIED.cast_signed());
        let handle = open(pid, wanted)
            // Who has the privilege to open processes of others has to ask for it.
            .or_else(|error| if refused(&error) && rights::enable_debug() { open(pid, wanted) } else { Err(error) })
            .map_err(|error| access_error(pid, &error))?;
        let name = watched::file_name(&program(&handle).unwrap_or_default()).to_string();
        let mut wow64 = 0;
        // SAFETY: `wow64` is a valid place for the answer.
        let is_32_bit = unsafe { IsWow64Process(handle.as_raw_handle(), &mut wow64) } != 0 && wow64 != 0;
        // SAFETY: the handle is open.
        let opened = unsafe { GetProcessId(handle.as_raw_handle()) };
        admission::admit(pid, &name, Opened { pid: opened, ended: ended(&handle), wow64: is_32_bit })?;
        let (start_time, _) = times(&handle).ok_or_else(|| access_error(pid, &io::Error::last_os_error()))?;
        Ok(Process { pid, start_time, name, handle })
    }

    /// Whether the process still runs.
    pub fn alive(&self) -> bool {
        !ended(&self.handle)
    }

    /// What it ended with, -1 = it has not.
    pub fn exit_code(&self) -> i32 {
        let mut code = u32::MAX;
        // SAFETY: the handle is open, and `code` is a valid place.
        let done = !self.alive() && unsafe { GetExitCodeProcess(self.handle.as_raw_handle(), &mut code) } != 0;
        if done { code.cast_signed() } else { -1 }
    }

    /// Which memory it has.
    pub fn image(&self) -> Option<Image> {
        Some(Image { created: self.start_time })
    }

    /// Takes over what an exec changed: nothing here, where a process keeps its program.
    pub fn reopen(&mut self) {}

    /// Its threads, in ascending order; none when it is gone.
    pub fn threads(&self) -> Vec<u32> {
        threads::list(&self.handle, self.pid)
    }

    /// Its modules, and what is wrong with the list.
    pub fn modules(&self) -> Modules {
        toolhelp::list(&mut modules::System::new(self.pid, &self.handle))
    }

    /// Its modules, the program first.
    pub fn mappings(&self) -> io::Result<Vec<Mapping>> {
        Ok(self.modules().mappings)
    }

    /// The module that holds `address`, asked for alone: that costs less than the list.
    pub fn mapping_at(&self, address: u64) -> Option<Mapping> {
        let mut system = modules::System::new(self.pid, &self.handle);
        let base = system.base(address)?;
        let size = Pe::read(self, base)?.size.try_into().ok()?;
        // One that is still being loaded, or is no longer, has no path.
        let path = system.long_path(base)?;
        let mapping = toolhelp::mapping(&mut system, &Entry { base, size, path });
        (mapping.start..mapping.end).contains(&address).then_some(mapping)
    }

    /// Opens the file of a module.
    pub fn open_mapped_file(&self, mapping: &Mapping) -> io::Result<File> {
        File::open(&mapping.path)
    }

    fn read_at(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut read = 0;
        // SAFETY: `buffer` is writable for its length; Windows checks the remote address.
        let done = unsafe {
            ReadProcessMemory(
                self.handle.as_raw_handle(),
                address as *const core::ffi::c_void,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &mut read,
            )
        };
        if done != 0 && read == buffer.len() {
            return Ok(());
        }
        // SAFETY: a call without arguments.
        let error = unsafe { GetLastError() };
        match error {
            // A process that has ended refuses every read.
            ERROR_ACCESS_DENIED if !ended(&self.handle) => Err(ReadError::Denied),
            _ if ended(&self.handle) => Err(ReadError::Gone),
            // ERROR_PARTIAL_COPY (299), on wine ERROR_NOACCESS (998): a part of the range is not there.
            _ => Err(ReadError::Unmapped),
        }
    }
}

impl Memory for Process {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.read_at(address, buffer)
    }

    fn read_regions(&self, regions: &[Region], buffer: &mut [u8]) -> Result<usize, ReadError> {
        let mut filled = 0;
        for region in regions {
            let end = filled + region.size as usize;
            match self.read_at(region.address, &mut buffer[filled..end]) {
                Ok(()) => filled = end,
                Err(error @ (ReadError::Gone | ReadError::Denied)) => return Err(error),
                Err(_) => break,
            }
        }
        Ok(filled)
    }
}

/// Says whether a process got or lost threads. Windows tells that by the whole list only: never, so that the list is read
/// in the course of time.
#[derive(Debug)]
pub struct TaskFolder(u64);

impl TaskFolder {
    /// Of process `pid`.
    pub fn open(pid: u32) -> io::Result<TaskFolder> {
        Ok(TaskFolder(u64::from(pid)))
    }

    /// A number that differs when the number of threads is known to.
    pub fn links(&self) -> u64 {
        self.0
    }
}

/// Calls that hold up whoever stops a thread of the same process: there are none.
pub const EXECS: [i64; 0] = [];

/// The name of a system call: those of Windows have no fixed numbers.
pub fn system_call_name(_: i64) -> Option<&'static str> {
    None
}

/// What tells a file, as it is now, from all others: volume, index, size and when it was written last.
pub fn file_identity(file: &File) -> Option<[u64; 4]> {
    // SAFETY: all-zero is a valid value of this structure of numbers.
    let mut told: BY_HANDLE_FILE_INFORMATION = unsafe { std::mem::zeroed() };
    // SAFETY: `told` is a valid place for the answer.
    let done = unsafe { GetFileInformationByHandle(file.as_raw_handle(), &mut told) };
    let long = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    (done != 0).then(|| {
        [
            u64::from(told.dwVolumeSerialNumber),
            long(told.nFileIndexHigh, told.nFileIndexLow),
            long(told.nFileSizeHigh, told.nFileSizeLow),
            sys::units(told.ftLastWriteTime),
        ]
    })
}

/// An error of opening a process, with the line that mends it.
pub fn access_error(pid: u32, error: &io::Error) -> Error {
    let code = error.raw_os_error().unwrap_or(0).cast_unsigned();
    admission::refused(pid, code, &error.to_string(), rights::protection(pid))
}
