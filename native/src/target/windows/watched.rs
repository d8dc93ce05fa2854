//! Processes that are known of, whether or not they can be read.

use std::io;
use std::os::windows::io::{AsRawHandle, OwnedHandle, RawHandle};

use windows_sys::Wdk::System::Threading::{NtQueryInformationProcess, ProcessBasicInformation};
use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};
use windows_sys::Win32::System::Threading::{
    PROCESS_BASIC_INFORMATION, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE,
};

use super::{ended, lifetime, open, own, program, sys};

/// Most processes of the system that are looked at.
const MAX_PROCESSES: usize = 1 << 16;

/// A process: as long as this is kept, its number is given to no other, and what it used can be asked for.
#[derive(Debug)]
pub struct Watched {
    /// Its number.
    pub pid: u32,
    /// When it was created, in units of 100 ns since 1601.
    pub created: u64,
    handle: OwnedHandle,
}

impl Watched {
    /// Opens `pid`; it may have ended.
    pub fn open(pid: u32) -> io::Result<Watched> {
        let handle = open(pid, PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE)?;
        let (created, _) = lifetime(&handle).ok_or_else(io::Error::last_os_error)?;
        Ok(Watched { pid, created, handle })
    }

    /// Whether it has ended.
    pub fn ended(&self) -> bool {
        ended(&self.handle)
    }

    /// When it ended, as `created`; now, where that is not told.
    pub fn end(&self) -> u64 {
        lifetime(&self.handle).map(|(_, end)| end).filter(|&end| end > 0).unwrap_or_else(sys::now_units)
    }

    /// The path of its program.
    pub fn program(&self) -> String {
        program(&self.handle).unwrap_or_default()
    }

    /// The number of the process that started it.
    pub fn parent(&self) -> Option<u32> {
        let mut told = PROCESS_BASIC_INFORMATION::default();
        let size = size_of_val(&told) as u32;
        // SAFETY: the handle is open, and `told` is a valid place of that size.
        let status = unsafe {
            NtQueryInformationProcess(
                self.handle.as_raw_handle(),
                ProcessBasicInformation,
                std::ptr::from_mut(&mut told).cast(),
                size,
                std::ptr::null_mut(),
            )
        };
        (status >= 0).then_some(told.InheritedFromUniqueProcessId as u32)
    }
}

impl AsRawHandle for Watched {
    fn as_raw_handle(&self) -> RawHandle {
        self.handle.as_raw_handle()
    }
}

/// What stands behind the last separator of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit(['\\', '/']).next().unwrap_or_default()
}

/// All processes of the system, each with the number of its parent. That may be the number of another by now.
pub fn list() -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    // SAFETY: a call without pointers.
    let handle = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) };
    let Some(snapshot) = (handle != INVALID_HANDLE_VALUE).then(|| own(handle).ok()).flatten() else { return found };
    let mut entry = PROCESSENTRY32W { dwSize: size_of::<PROCESSENTRY32W>() as u32, ..PROCESSENTRY32W::default() };
    // SAFETY: the snapshot is open, and `entry` has the size that it says.
    let mut more = unsafe { Process32FirstW(snapshot.as_raw_handle(), &mut entry) };
    while more != 0 && found.len() < MAX_PROCESSES {
        found.push((entry.th32ProcessID, entry.th32ParentProcessID));
        // SAFETY: as above.
        more = unsafe { Process32NextW(snapshot.as_raw_handle(), &mut entry) };
    }
    found
}
