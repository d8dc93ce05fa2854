//! The module list as Windows has it.

use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::time::Duration;

use windows_sys::Win32::Foundation::{GetLastError, HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, MODULEENTRY32W, Module32FirstW, Module32NextW, TH32CS_SNAPMODULE, TH32CS_SNAPMODULE32,
};
use windows_sys::Win32::System::Memory::{MEM_IMAGE, MEMORY_BASIC_INFORMATION, VirtualQueryEx};
use windows_sys::Win32::System::ProcessStatus::K32GetModuleFileNameExW;

use super::MAX_PATH_UNITS;
use super::sys;
use crate::target::toolhelp::{Entry, Toolhelp};

/// Asks Windows for the modules of one process.
pub struct System<'a> {
    pid: u32,
    process: &'a OwnedHandle,
}

impl<'a> System<'a> {
    /// Of the process `pid`, which `process` is open on.
    pub fn new(pid: u32, process: &'a OwnedHandle) -> Self {
        System { pid, process }
    }

    /// Where the module that holds `address` starts.
    pub fn base(&self, address: u64) -> Option<u64> {
        // SAFETY: all-zero is a valid value of this structure of numbers and pointers.
        let mut told: MEMORY_BASIC_INFORMATION = unsafe { std::mem::zeroed() };
        let (process, size) = (self.process.as_raw_handle(), size_of::<MEMORY_BASIC_INFORMATION>());
        // SAFETY: `told` has the size that is said; Windows checks the remote address.
        let done = unsafe { VirtualQueryEx(process, address as *const core::ffi::c_void, &mut told, size) };
        (done != 0 && told.Type == MEM_IMAGE).then_some(told.AllocationBase as u64)
    }

    fn entry(
        snapshot: &OwnedHandle,
        step: unsafe extern "system" fn(HANDLE, *mut MODULEENTRY32W) -> i32,
    ) -> Result<Entry, u32> {
        // SAFETY: all-zero is a valid value of this structure of numbers and pointers.
        let mut told: MODULEENTRY32W = unsafe { std::mem::zeroed() };
        told.dwSize = size_of::<MODULEENTRY32W>() as u32;
        // SAFETY: the snapshot is open, and `told` has the size that it says.
        if unsafe { step(snapshot.as_raw_handle(), &mut told) } == 0 {
            // SAFETY: a call without arguments.
            return Err(unsafe { GetLastError() });
        }
        Ok(Entry { base: told.modBaseAddr as u64, size: told.modBaseSize, path: text(&told.szExePath) })
    }
}

/// What stands before the NUL.
fn text(units: &[u16]) -> Vec<u16> {
    units.iter().copied().take_while(|&unit| unit != 0).collect()
}

impl Toolhelp for System<'_> {
    type Snapshot = OwnedHandle;

    fn snapshot(&mut self) -> Result<OwnedHandle, u32> {
        // SAFETY: a call without pointers.
        let handle = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPMODULE | TH32CS_SNAPMODULE32, self.pid) };
        // SAFETY: a call without arguments.
        let error = || unsafe { GetLastError() };
        if handle == INVALID_HANDLE_VALUE {
            return Err(error());
        }
        super::own(handle).map_err(|_| error())
    }

    fn first(&mut self, snapshot: &OwnedHandle) -> Result<Entry, u32> {
        Self::entry(snapshot, Module32FirstW)
    }

    fn next(&mut self, snapshot: &OwnedHandle) -> Result<Entry, u32> {
        Self::entry(snapshot, Module32NextW)
    }

    fn long_path(&mut self, base: u64) -> Option<Vec<u16>> {
        let mut path = vec![0_u16; MAX_PATH_UNITS];
        let (process, module) = (self.process.as_raw_handle(), base as *mut core::ffi::c_void);
        // SAFETY: `path` has room for as many units as are said.
        let size = unsafe { K32GetModuleFileNameExW(process, module, path.as_mut_ptr(), path.len() as u32) };
        (size > 0).then(|| text(&path))
    }

    fn now(&mut self) -> u64 {
        sys::monotonic_ns()
    }

    fn wait(&mut self) {
        std::thread::sleep(Duration::from_millis(10));
    }
}
