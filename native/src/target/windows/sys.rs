//! Clocks, and what is asked of a process by its pid.

use std::sync::OnceLock;

use windows_sys::Win32::Foundation::FILETIME;
use windows_sys::Win32::Media::timeBeginPeriod;
use windows_sys::Win32::System::Performance::{QueryPerformanceCounter, QueryPerformanceFrequency};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::SystemInformation::GetSystemTimePreciseAsFileTime;
use windows_sys::Win32::System::Threading::{
    ExitProcess, PROCESS_QUERY_INFORMATION, PROCESS_QUERY_LIMITED_INFORMATION,
};

use std::os::windows::io::AsRawHandle;

/// 1970 in units of 100 ns since 1601.
const UNIX_UNITS: u64 = 116_444_736_000_000_000;

/// Units of 100 ns.
pub fn units(time: FILETIME) -> u64 {
    u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)
}

/// Nanoseconds of the performance counter, as Python's `time.perf_counter_ns`.
pub fn monotonic_ns() -> u64 {
    static FREQUENCY: OnceLock<u64> = OnceLock::new();
    let frequency = *FREQUENCY.get_or_init(|| {
        let mut frequency = 0;
        // SAFETY: a valid place for the answer.
        unsafe { QueryPerformanceFrequency(&mut frequency) };
        frequency.max(1).cast_unsigned()
    });
    let mut ticks = 0;
    // SAFETY: a valid place for the answer.
    unsafe { QueryPerformanceCounter(&mut ticks) };
    (u128::from(ticks.cast_unsigned()) * 1_000_000_000 / u128::from(frequency)) as u64
}

/// Now, in units of 100 ns since 1601, as processes are dated.
pub fn now_units() -> u64 {
    let mut time = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    // SAFETY: a valid place for the answer.
    unsafe { GetSystemTimePreciseAsFileTime(&mut time) };
    units(time)
}

/// Unix time, nanoseconds.
pub fn realtime_ns() -> u64 {
    now_units().saturating_sub(UNIX_UNITS) * 100
}

/// A clock for what the calling thread works, nanoseconds. The time that passes stands for it: Windows counts the CPU time
/// of threads in steps of 15.6 ms.
pub fn thread_cpu_ns() -> u64 {
    monotonic_ns()
}

/// CPU time of a whole process in nanoseconds, threads that have ended included; None when it is gone.
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    if super::threads::on_wine() {
        // Which tells times of its own for other processes; threads that have ended are missing then.
        let process = super::open(pid, PROCESS_QUERY_INFORMATION).ok()?;
        let units = super::threads::list(&process, pid).into_iter().map(super::threads::cpu_units);
        return Some(units.sum::<u64>() * 100);
    }
    let process = super::open(pid, PROCESS_QUERY_LIMITED_INFORMATION).ok()?;
    super::times(&process).map(|(_, cpu)| cpu * 100)
}

/// Unix time at which a process was created, nanoseconds.
pub fn process_start_ns(pid: u32) -> Option<u64> {
    let process = super::open(pid, PROCESS_QUERY_LIMITED_INFORMATION).ok()?;
    super::times(&process).map(|(created, _)| created.saturating_sub(UNIX_UNITS) * 100)
}

/// The largest resident size of a process so far, bytes.
pub fn process_peak_bytes(pid: u32) -> Option<u64> {
    let process = super::open(pid, PROCESS_QUERY_LIMITED_INFORMATION).ok()?;
    // SAFETY: all-zero is a valid value of this structure of numbers.
    let mut told: PROCESS_MEMORY_COUNTERS = unsafe { std::mem::zeroed() };
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    // SAFETY: `told` is a valid place of that size.
    let done = unsafe { K32GetProcessMemoryInfo(process.as_raw_handle(), &mut told, size) };
    (done != 0).then_some(told.PeakWorkingSetSize as u64)
}

/// The name of the program's file of a process; "" where it is gone.
pub fn process_name(pid: u32) -> String {
    let path = super::open(pid, PROCESS_QUERY_LIMITED_INFORMATION).ok().and_then(|process| super::program(&process));
    super::watched::file_name(&path.unwrap_or_default()).to_string()
}

/// Has waits end within a millisecond of their time, not at the next of the clock's steps of 15.6 ms.
pub fn become_sampler() {
    // SAFETY: a call without pointers; Windows takes it back when the process ends.
    unsafe { timeBeginPeriod(1) };
}

/// Ends the process at once.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: no preconditions.
    unsafe { ExitProcess(status.cast_unsigned()) }
}
