//! The system calls that need `unsafe`, each behind a checked function.

use std::cell::RefCell;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::error::ReadError;
use crate::memory::{MAX_REGIONS_PER_CALL, Region};

thread_local! {
    /// Kept between calls so that nothing is allocated while a thread is stopped.
    static REMOTE: RefCell<Vec<libc::iovec>> = RefCell::new(Vec::with_capacity(MAX_REGIONS_PER_CALL));
}

/// Reads `regions` of process `pid` back to back into `buffer`. Gives the bytes read; less than asked where a region
/// cannot be read.
pub fn process_vm_readv(pid: u32, regions: &[Region], buffer: &mut [u8]) -> io::Result<usize> {
    REMOTE.with_borrow_mut(|remote| {
        remote.clear();
        remote.extend(regions.iter().take(MAX_REGIONS_PER_CALL).map(|region| libc::iovec {
            iov_base: region.address as *mut libc::c_void,
            iov_len: region.size as usize,
        }));
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: `local` covers `buffer`, which outlives the call; the kernel checks the remote addresses and never
        // writes more than local.iov_len bytes.
        let read = unsafe {
            libc::process_vm_readv(pid as libc::pid_t, &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
        };
        if read < 0 { Err(io::Error::last_os_error()) } else { Ok(read as usize) }
    })
}

/// What an errno of a memory read means.
pub fn read_error(error: &io::Error) -> ReadError {
    match error.raw_os_error() {
        Some(libc::ESRCH) => ReadError::Gone,
        Some(libc::EPERM | libc::EACCES) => ReadError::Denied,
        _ => ReadError::Unmapped,
    }
}

/// The id of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: gettid cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// Nanoseconds of CLOCK_REALTIME.
pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME).unwrap_or(0)
}

/// Nanoseconds of CLOCK_BOOTTIME.
pub fn boottime_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME).unwrap_or(0)
}

/// Ticks of the CPU's time stamp counter in a second, measured for as long as Go's runtime measures them where it does not
/// know better (src/runtime/runtime.go, tickspersecond of Go 1.21). At least 1.
pub fn ticks_per_second() -> i64 {
    // SAFETY: every x86-64 has this instruction, which reads a counter.
    let read = || (monotonic_ns(), unsafe { std::arch::x86_64::_rdtsc() });
    let (start, first) = read();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let (end, last) = read();
    let ticks = u128::from(last.wrapping_sub(first)) * 1_000_000_000 / u128::from(end.wrapping_sub(start).max(1));
    i64::try_from(ticks).unwrap_or(i64::MAX).max(1)
}

/// CPU time of the calling thread, nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// CPU time of a whole process in nanoseconds, threads that have ended included; None when it is gone.
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    // The clock id of another process's CPUCLOCK_SCHED: include/linux/posix-timers_types.h.
    clock_ns((!(pid as i32) << 3) | 2)
}

fn clock_ns(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result.
    let done = unsafe { libc::clock_gettime(clock, &mut time) };
    (done == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// pread(2) at offset 0 of a kept descriptor: 0 bytes or an error where the thread is gone.
pub fn pread(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buffer` is writable for its length.
    let read = unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    if read < 0 { Err(io::Error::last_os_error()) } else { Ok(read as usize) }
}

/// A descriptor that becomes readable when a child or tracee changes state. SIGCHLD is blocked by this.
pub fn sigchld_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use; signalfd makes a new descriptor that we own.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Whether a stop of a tracee sends SIGCHLD. The end of a child always does.
pub fn notify_stops(notify: bool) {
    // SAFETY: all-zero is SIG_DFL without flags, a valid action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_flags = if notify { 0 } else { libc::SA_NOCLDSTOP };
        libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
    }
}

/// Takes the pending signal from a signalfd: there is at most one SIGCHLD, for ordinary signals do not queue.
pub fn drain_signals(fd: &OwnedFd) {
    let mut record = [0_u8; 128];
    // SAFETY: `record` is as large as a signalfd_siginfo.
    unsafe { libc::read(fd.as_raw_fd(), record.as_mut_ptr().cast(), record.len()) };
}

/// Waits until one of `fds` (-1: none) is readable or `timeout_ns` have passed (None = for ever). Gives which are readable.
pub fn wait_readable<const N: usize>(fds: [RawFd; N], timeout_ns: Option<u64>) -> [bool; N] {
    let mut polls = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `polls` and `timeout` live until the call returns; a null signal mask is allowed.
    let ready = unsafe { libc::ppoll(polls.as_mut_ptr(), N as libc::nfds_t, timeout, std::ptr::null()) };
    if ready <= 0 { [false; N] } else { polls.map(|poll| poll.revents != 0) }
}

/// Writes as much to a socket as it takes without waiting.
pub fn send_now(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: `bytes` is readable for its length.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    match sent {
        0.. => Ok(sent as usize),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            error => Err(error),
        },
    }
}

/// Calls that hold up whoever seizes a thread of the same process until they have read the file (cred_guard_mutex in
/// bprm_execve, fs/exec.c, and ptrace_attach), which may take any time.
pub const EXECS: [i64; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// The name of a system call.
pub fn system_call_name(number: i64) -> Option<&'static str> {
    Some(syscalls::Sysno::new(usize::try_from(number).ok()?)?.name())
}

/// The signals that this process ignores (bit N-1 for signal N), but for the two that Python itself ignores at its start.
pub fn ignored_signals() -> u64 {
    (1..32)
        .filter(|&signal| signal != libc::SIGPIPE && signal != libc::SIGXFSZ)
        .filter(|&signal| {
            // SAFETY: all-zero is a valid place for the result; a null new action changes nothing.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
            }
        })
        .fold(0, |set, signal| set | 1 << (signal - 1))
}

/// Makes this process die with its parent, keep its timers exact, and not be stopped by the terminal.
pub fn become_sampler() {
    // SAFETY: plain prctl and signal calls with constant arguments.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        // What a terminal or a shell sends to the whole group is for CMD and the supervisor.
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE].into_iter().chain([
            libc::SIGTSTP,
            libc::SIGTTIN,
            libc::SIGTTOU,
            libc::SIGUSR1,
            libc::SIGUSR2,
        ]) {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    notify_stops(false);
}

/// Makes this process the parent of every descendant whose own parent ends, so that it stays in sight.
pub fn become_subreaper() {
    // SAFETY: a plain prctl call with constant arguments.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// CPU time of the children that this process has reaped, and of those that they had, nanoseconds.
pub fn reaped_cpu_ns() -> u64 {
    // SAFETY: all-zero is a valid place for the result.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

/// Raises the soft limit of descriptors to the hard one; gives (old soft limit, new soft limit).
pub fn raise_descriptor_limit() -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for getrlimit and a valid value for setrlimit.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return (1024, 1024);
        }
        let old = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max.min(1 << 20);
        if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0 {
            return (old, old);
        }
        (old, limit.rlim_cur)
    }
}

/// Opens `path` to read as if `root` were `/`: no link leads out of it. `flags` are further ones of open(2).
pub fn open_below(root: &File, path: &CStr, flags: i32) -> io::Result<File> {
    // SAFETY: all-zero is a valid value; root, path and `how` outlive the call, which gives a new descriptor that we own.
    unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        how.flags = (libc::O_RDONLY | libc::O_CLOEXEC | flags) as u64;
        how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
        let (root, size) = (root.as_raw_fd(), size_of::<libc::open_how>());
        let fd = libc::syscall(libc::SYS_openat2, root, path.as_ptr(), std::ptr::from_ref(&how), size);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(fd as RawFd)) }
    }
}

/// Ends the process at once, whatever its threads are waiting for.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(status) }
}
