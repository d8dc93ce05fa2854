//! Threads of a process: which there are, what they do, and how one is held still for a moment.

use core::ffi::CStr;
use std::cell::Cell;
use std::io;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::sync::{Arc, OnceLock};

use windows_sys::Win32::Foundation::{FILETIME, HANDLE, INVALID_HANDLE_VALUE, LocalFree};
use windows_sys::Win32::System::Diagnostics::Debug::{CONTEXT, GetThreadContext};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Threading::{
    GetCurrentThreadId, GetProcessIdOfThread, GetThreadId, GetThreadTimes, OpenThread, ResumeThread, SuspendThread,
    THREAD_GET_CONTEXT, THREAD_QUERY_INFORMATION, THREAD_QUERY_LIMITED_INFORMATION, THREAD_SUSPEND_RESUME,
    THREAD_SYNCHRONIZE,
};

use super::{ended, held, own, sys};
use crate::memory::Memory;
use crate::target::thread::{Look, Schedstat};
use crate::unwind::Registers;

/// Most threads of one process that are looked at.
const MAX_THREADS: usize = 100_000;
/// CONTEXT_AMD64 | CONTEXT_CONTROL | CONTEXT_INTEGER (winnt.h): to ask for it is what waits until the thread stands still.
const CONTEXT_REGISTERS: u32 = 0x0010_0003;
/// ThreadBasicInformation, a THREADINFOCLASS that gives a THREAD_BASIC_INFORMATION: its bytes, and where in it the address
/// of the thread's own block is; and in that block (NT_TIB, winnt.h) the end of its stack.
const BASIC: u32 = 0;
const BASIC_BYTES: usize = 48;
const BASIC_BLOCK: usize = 8;
const STACK_BASE: u64 = 8;
/// ThreadSystemThreadInformation, a THREADINFOCLASS that gives a SYSTEM_THREAD_INFORMATION.
const SYSTEM_THREAD: u32 = 40;
/// ThreadSuspendCount, a THREADINFOCLASS that gives a u32 (Windows 8.1 and later).
const SUSPEND_COUNT: u32 = 35;
/// KTHREAD_STATE: Waiting.
const WAITING: u32 = 5;

type NextThread = unsafe extern "system" fn(HANDLE, HANDLE, u32, u32, u32, *mut HANDLE) -> i32;
type QueryThread = unsafe extern "system" fn(HANDLE, u32, *mut core::ffi::c_void, u32, *mut u32) -> i32;
type WineVersion = unsafe extern "C" fn() -> *const core::ffi::c_char;
type Description = unsafe extern "system" fn(HANDLE, *mut *mut u16) -> i32;

/// Functions that no import library has, or not every Windows.
struct Found {
    next_thread: Option<NextThread>,
    query_thread: Option<QueryThread>,
    description: Option<Description>,
    wine: Option<WineVersion>,
}

fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        let look = |library: &str, name: &CStr| {
            let library: Vec<u16> = library.encode_utf16().chain([0]).collect();
            // SAFETY: both names end with a NUL; both libraries are loaded in every process.
            unsafe { GetProcAddress(GetModuleHandleW(library.as_ptr()), name.as_ptr().cast()) }
        };
        // SAFETY: the signatures are those of phnt and of processthreadsapi.h.
        unsafe {
            Found {
                next_thread: std::mem::transmute::<Option<_>, Option<NextThread>>(look(
                    "ntdll.dll",
                    c"NtGetNextThread",
                )),
                query_thread: std::mem::transmute::<Option<_>, Option<QueryThread>>(look(
                    "ntdll.dll",
                    c"NtQueryInformationThread",
                )),
                description: std::mem::transmute::<Option<_>, Option<Description>>(look(
                    "kernel32.dll",
                    c"GetThreadDescription",
                )),
                wine: std::mem::transmute::<Option<_>, Option<WineVersion>>(look("ntdll.dll", c"wine_get_version")),
            }
        }
    })
}

/// Whether this is wine.
pub fn on_wine() -> bool {
    found().wine.is_some()
}

/// Such as `8.0`; "" on Windows itself.
pub fn wine_version() -> String {
    // SAFETY: wine gives a text that ends with a NUL and stays.
    found().wine.map_or_else(String::new, |tell| unsafe { CStr::from_ptr(tell()) }.to_string_lossy().into_owned())
}

/// CPU time of a thread, in units of 100 ns; 0 when it is gone.
pub fn cpu_units(tid: u32) -> u64 {
    let times = open(tid, THREAD_QUERY_LIMITED_INFORMATION).ok().and_then(|thread| times(&thread));
    times.map_or(0, |(_, cpu)| cpu)
}

/// (creation, CPU time) of a thread, in units of 100 ns.
fn times(thread: &OwnedHandle) -> Option<(u64, u64)> {
    let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
    let [created, ended, kernel, user] = &mut times;
    // SAFETY: the handle is open, and the four places are valid for the call.
    let done = unsafe { GetThreadTimes(thread.as_raw_handle(), created, ended, kernel, user) };
    let [created, _, kernel, user] = times.map(sys::units);
    (done != 0).then_some((created, kernel + user))
}

/// The ids of the threads of a process, in ascending order.
pub fn list(process: &OwnedHandle, pid: u32) -> Vec<u32> {
    let mut tids = match found().next_thread {
        Some(next) => walk(process, next),
        None => snapshot(pid),
    };
    tids.sort_unstable();
    tids.dedup();
    tids
}

fn walk(process: &OwnedHandle, next: NextThread) -> Vec<u32> {
    let mut tids = Vec::new();
    let mut last: Option<OwnedHandle> = None;
    while tids.len() < MAX_THREADS {
        let mut handle = std::ptr::null_mut();
        let before = last.as_ref().map_or(std::ptr::null_mut(), |last| last.as_raw_handle());
        // SAFETY: both handles are open (or null at first), and `handle` is a place for the new one.
        let status =
            unsafe { next(process.as_raw_handle(), before, THREAD_QUERY_LIMITED_INFORMATION, 0, 0, &mut handle) };
        let Some(thread) = (status >= 0).then(|| own(handle).ok()).flatten() else { break };
        // SAFETY: the handle is open.
        let tid = unsafe { GetThreadId(thread.as_raw_handle()) };
        if tid != 0 {
            tids.push(tid);
        }
        last = Some(thread);
    }
    tids
}

/// By a snapshot of all threads of the system.
fn snapshot(pid: u32) -> Vec<u32> {
    let mut tids = Vec::new();
    // SAFETY: a call without pointers.
    let handle = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) };
    let Some(snapshot) = (handle != INVALID_HANDLE_VALUE).then(|| own(handle).ok()).flatten() else { return tids };
    // SAFETY: all-zero is a valid value of this structure of numbers.
    let mut entry: THREADENTRY32 = unsafe { std::mem::zeroed() };
    entry.dwSize = size_of::<THREADENTRY32>() as u32;
    // SAFETY: the snapshot is open, and `entry` has the size that it says.
    let mut more = unsafe { Thread32First(snapshot.as_raw_handle(), &mut entry) };
    while more != 0 && tids.len() < MAX_THREADS {
        if entry.th32OwnerProcessID == pid {
            tids.push(entry.th32ThreadID);
        }
        // SAFETY: as above.
        more = unsafe { Thread32Next(snapshot.as_raw_handle(), &mut entry) };
    }
    tids
}

fn open(tid: u32, rights: u32) -> io::Result<OwnedHandle> {
    // SAFETY: a call without pointers.
    own(unsafe { OpenThread(rights, 0, tid) })
}

/// The name that a program gave to a thread; "" where it gave none.
pub fn thread_name(_: u32, tid: u32) -> String {
    let name = || {
        let thread = open(tid, THREAD_QUERY_LIMITED_INFORMATION).ok()?;
        let mut text: *mut u16 = std::ptr::null_mut();
        // SAFETY: the handle is open; Windows allocates the text, which is ours to free.
        unsafe {
            if found().description?(thread.as_raw_handle(), &mut text) < 0 || text.is_null() {
                return None;
            }
            let size = (0..MAX_NAME_UNITS).find(|&at| *text.add(at) == 0).unwrap_or(MAX_NAME_UNITS);
            let name = String::from_utf16_lossy(std::slice::from_raw_parts(text, size));
            LocalFree(text.cast());
            Some(name)
        }
    };
    name().unwrap_or_default()
}

/// Most UTF-16 units of a thread's name.
const MAX_NAME_UNITS: usize = 1024;

/// The state letter of a thread that does not run, as Linux has it: Windows does not tell waits for a disk apart.
pub fn state_letter(_: u32) -> Option<u8> {
    Some(b'S')
}

/// Who traces a thread, 0 = nobody: here a debugger is in nobody's way.
pub fn tracer(_: u32) -> u32 {
    0
}

/// What Windows says of one thread: the fields of SYSTEM_THREAD_INFORMATION (winternl.h, phnt) that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    cpu_units: u64,
    switches: u32,
    state: u32,
}

/// KernelTime, UserTime, CreateTime, WaitTime, StartAddress, ClientId, priorities, ContextSwitches, ThreadState, reason.
const SYSTEM_THREAD_BYTES: usize = 80;

fn parse_told(bytes: &[u8; SYSTEM_THREAD_BYTES]) -> Told {
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
    Told { cpu_units: long(0).wrapping_add(long(8)), switches: word(64), state: word(68) }
}

/// One thread, as the system shows it. Its handle is kept while there is room for it.
#[derive(Debug)]
pub struct ThreadView {
    pid: u32,
    tid: u32,
    /// When it was created, once that was asked for.
    created: Cell<u64>,
    kept: Option<Arc<OwnedHandle>>,
    /// Counts the readings where Windows does not tell how often the thread ran: no two of them are alike.
    readings: Cell<u64>,
}

impl ThreadView {
    /// The handles that one thread keeps.
    pub const DESCRIPTORS: usize = 1;

    /// Opens a thread; `keep` says whether its handle is kept.
    pub fn open(pid: u32, tid: u32, keep: bool) -> Self {
        let view = ThreadView { pid, tid, created: Cell::new(0), kept: None, readings: Cell::new(0) };
        let kept = if keep { view.handle().ok() } else { None };
        ThreadView { kept, ..view }
    }

    /// Whether its handle is held.
    pub fn kept(&self) -> bool {
        self.kept.is_some()
    }

    fn handle(&self) -> io::Result<Arc<OwnedHandle>> {
        match &self.kept {
            Some(handle) => Ok(handle.clone()),
            None => {
                let rights = THREAD_SUSPEND_RESUME | THREAD_GET_CONTEXT | THREAD_QUERY_INFORMATION | THREAD_SYNCHRONIZE;
                open(self.tid, rights).map(Arc::new)
            }
        }
    }

    /// What the thread is doing now. Where Windows does not tell (wine), it may be running.
    pub fn look(&self) -> Look {
        let Ok(thread) = self.handle() else { return Look::Gone };
        if ended(&thread) {
            return Look::Gone;
        }
        match told(&thread) {
            Some(Told { state: WAITING, .. }) => Look::Blocked { number: -1, sp: 0, pc: 0, arguments: [0; 6] },
            _ => Look::Running,
        }
    }

    /// The scheduler's figures for the thread; None when it is gone.
    pub fn schedstat(&self) -> Option<Schedstat> {
        let thread = self.handle().ok()?;
        if let Some(told) = told(&thread) {
            return Some(Schedstat { run_ns: told.cpu_units * 100, wait_ns: 0, runs: u64::from(told.switches) });
        }
        let (_, units) = times(&thread)?;
        self.readings.set(self.readings.get() + 1);
        Some(Schedstat { run_ns: units * 100, wait_ns: 0, runs: self.readings.get() })
    }

    /// Holds the thread still until what this gives is dropped.
    ///
    /// Errors: it has ended, or may not be held.
    pub fn suspend(&self) -> io::Result<Suspended> {
        let thread = self.handle()?;
        if self.created.get() == 0 {
            self.created.set(times(&thread).map_or(0, |(created, _)| created));
        }
        held::tell(self.pid, self.tid, self.created.get());
        // SAFETY: the handle is open and has the right for it.
        if unsafe { SuspendThread(thread.as_raw_handle()) } == u32::MAX {
            let error = io::Error::last_os_error();
            held::tell_resumed();
            return Err(error);
        }
        let mut held = Suspended { thread, registers: Registers::default() };
        // SAFETY: all-zero is a valid value of this structure of numbers.
        let mut context: CONTEXT = unsafe { std::mem::zeroed() };
        context.ContextFlags = CONTEXT_REGISTERS;
        // SAFETY: the handle is open and has the right for it; the structure is aligned as its type says.
        if unsafe { GetThreadContext(held.thread.as_raw_handle(), &mut context) } == 0 {
            return Err(io::Error::last_os_error());
        }
        let CONTEXT { Rax, Rcx, Rdx, Rbx, Rsp, Rbp, Rsi, Rdi, R8, R9, R10, R11, R12, R13, R14, R15, Rip, .. } = context;
        let general = [Rax, Rcx, Rdx, Rbx, Rsp, Rbp, Rsi, Rdi, R8, R9, R10, R11, R12, R13, R14, R15];
        held.registers = Registers::suspended(&general, Rip);
        Ok(held)
    }

    /// Where the thread's stack begins, at its upper end, by its own block.
    pub fn stack_base(&self, memory: &dyn Memory) -> Option<u64> {
        let (thread, mut bytes, mut size) = (self.handle().ok()?, [0_u8; BASIC_BYTES], 0);
        let query = found().query_thread?;
        // SAFETY: `bytes` has the size that is said.
        let status =
            unsafe { query(thread.as_raw_handle(), BASIC, bytes.as_mut_ptr().cast(), BASIC_BYTES as u32, &mut size) };
        let block = u64::from_le_bytes(bytes[BASIC_BLOCK..BASIC_BLOCK + 8].try_into().ok()?);
        (status >= 0 && block != 0).then(|| memory.read_u64(block.wrapping_add(STACK_BASE)).ok())?
    }
}

fn told(thread: &OwnedHandle) -> Option<Told> {
    let mut bytes = [0_u8; SYSTEM_THREAD_BYTES];
    let mut size = 0;
    let query = found().query_thread?;
    // SAFETY: `bytes` has the size that is said.
    let status = unsafe {
        query(thread.as_raw_handle(), SYSTEM_THREAD, bytes.as_mut_ptr().cast(), SYSTEM_THREAD_BYTES as u32, &mut size)
    };
    (status >= 0).then(|| parse_told(&bytes))
}

/// A thread that is held still; it runs again when this is dropped, whatever happens.
#[derive(Debug)]
pub struct Suspended {
    thread: Arc<OwnedHandle>,
    /// Its registers.
    pub registers: Registers,
}

impl Drop for Suspended {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and the suspension is ours.
        unsafe { ResumeThread(self.thread.as_raw_handle()) };
        held::tell_resumed();
    }
}

/// How often thread `tid` of process `pid`, created then, is suspended; None where there is no such thread.
pub fn suspensions(pid: u32, tid: u32, created: u64) -> Option<u32> {
    let thread = open(tid, THREAD_QUERY_INFORMATION | THREAD_SYNCHRONIZE).ok()?;
    // SAFETY: the handle is open.
    let its = unsafe { GetProcessIdOfThread(thread.as_raw_handle()) };
    if its != pid || ended(&thread) || times(&thread)?.0 != created {
        return None;
    }
    let (mut count, mut size) = (0_u32, 0);
    let place = std::ptr::from_mut(&mut count).cast();
    // SAFETY: `count` has the size that is said.
    let status = unsafe {
        found().query_thread?(thread.as_raw_handle(), SUSPEND_COUNT, place, size_of::<u32>() as u32, &mut size)
    };
    (status >= 0).then_some(count)
}

/// Whether Windows tells states and context switches of threads.
pub fn tells_states() -> bool {
    // SAFETY: a call without pointers.
    let own = unsafe { GetCurrentThreadId() };
    open(own, THREAD_QUERY_INFORMATION).is_ok_and(|thread| told(&thread).is_some())
}

/// Takes back one suspension of a thread that a sampler left behind. False if there is no such thread.
pub fn resume(tid: u32) -> bool {
    let Ok(thread) = open(tid, THREAD_SUSPEND_RESUME) else { return false };
    // SAFETY: the handle is open and has the right for it.
    unsafe { ResumeThread(thread.as_raw_handle()) != u32::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_windows_tells_of_a_thread() {
        let mut bytes = [0xff; SYSTEM_THREAD_BYTES];
        bytes[..8].copy_from_slice(&7_u64.to_le_bytes());
        bytes[8..16].copy_from_slice(&5_u64.to_le_bytes());
        bytes[64..68].copy_from_slice(&99_u32.to_le_bytes());
        bytes[68..72].copy_from_slice(&WAITING.to_le_bytes());
        assert_eq!(parse_told(&bytes), Told { cpu_units: 12, switches: 99, state: WAITING });
    }
}
