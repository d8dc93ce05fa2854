//! A PTRACE_SEIZE that gives up. It waits for as long as the process is in an exec (cred_guard_mutex: ptrace_attach,
//! kernel/ptrace.c), which may be the time that a slow file system takes to read the new program.
//!
//! A signal ends that wait, but then the kernel begins the call anew by itself (ERESTARTNOINTR): the handler finds the
//! thread at the very instruction of the call, and moves it on behind it, with EINTR for a result. Nothing has been
//! seized in that case, whether the call had begun or not.

use std::arch::global_asm;
use std::io;

/// How long a seize may wait, and how often it is looked after that: a tick's worth at the highest rates.
const PATIENCE_NS: libc::c_long = 1_000_000;
/// Length of the instruction `syscall`.
const SYSCALL_BYTES: i64 = 2;

// ptrace(2) by the C calling convention: `remoteprof_ptrace(request, tid, address, data)` gives -errno where it fails.
global_asm!(
    ".pushsection .text.remoteprof_ptrace, \"ax\", @progbits",
    ".hidden remoteprof_ptrace",
    ".hidden remoteprof_ptrace_call",
    ".globl remoteprof_ptrace",
    ".globl remoteprof_ptrace_call",
    ".type remoteprof_ptrace, @function",
    "remoteprof_ptrace:",
    "mov r10, rcx",
    "mov eax, {number}",
    "remoteprof_ptrace_call:",
    "syscall",
    "ret",
    ".size remoteprof_ptrace, . - remoteprof_ptrace",
    ".popsection",
    number = const libc::SYS_ptrace,
);

unsafe extern "C" {
    fn remoteprof_ptrace(request: i64, tid: i64, address: usize, data: usize) -> i64;
    static remoteprof_ptrace_call: u8;
}

/// Becomes the tracer of a thread without stopping it. EINTR: it would have had to wait.
pub fn seize(tid: u32) -> io::Result<()> {
    // SAFETY: PTRACE_SEIZE takes plain numbers; the function is the one above.
    let result = unsafe { remoteprof_ptrace(i64::from(libc::PTRACE_SEIZE), i64::from(tid), 0, 0) };
    if result < 0 { Err(io::Error::from_raw_os_error(-result as i32)) } else { Ok(()) }
}

extern "C" fn give_up(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO the context of the thread that it interrupted; of the symbol only
    // the address is taken.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        if registers[libc::REG_RIP as usize] == (&raw const remoteprof_ptrace_call) as i64 {
            registers[libc::REG_RIP as usize] += SYSCALL_BYTES;
            registers[libc::REG_RAX as usize] = -i64::from(libc::EINTR);
        }
    }
}

/// The alarm that ends waits of the thread that made it.
#[derive(Debug)]
pub struct Alarm {
    /// None: the kernel has no timer left for us (RLIMIT_SIGPENDING). The watchdog stays.
    timer: Option<libc::timer_t>,
    set: bool,
}

impl Alarm {
    /// It, not set. SIGALRM belongs to it from now on.
    pub fn of_this_thread() -> Alarm {
        // SAFETY: all-zero is a valid value of each of these; the handler only touches the context it is given.
        let timer = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = give_up as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut signals, libc::SIGALRM);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut());
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::ptr::null_mut();
            (libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == 0).then_some(timer)
        };
        Alarm { timer, set: false }
    }

    /// From now on no seize of this thread waits for long.
    pub fn set(&mut self) {
        if !self.set {
            self.every(PATIENCE_NS);
        }
    }

    /// Ends that: other calls are not to be interrupted.
    pub fn clear(&mut self) {
        if self.set {
            self.every(0);
        }
    }

    fn every(&mut self, nanoseconds: libc::c_long) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let times = libc::itimerspec { it_interval: time, it_value: time };
        if let Some(timer) = self.timer {
            // SAFETY: the timer is ours, `times` outlives the call, and the old value is not asked for.
            unsafe { libc::timer_settime(timer, 0, &times, std::ptr::null_mut()) };
        }
        self.set = nanoseconds > 0;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            // SAFETY: the timer is ours, and not used again.
            unsafe { libc::timer_delete(timer) };
        }
    }
}
