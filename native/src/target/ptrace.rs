//! Stopping a thread for microseconds: SEIZE, INTERRUPT, read, DETACH, and the guard that hides our own EINTR.
//!
//! A thread is seized for one sample only: while nothing is seized, signals, exec and exit of the target need no
//! service, and the end of this process at any moment lets the target run on (the kernel detaches; PTRACE_O_EXITKILL
//! is never set). All calls come from one thread.

use std::io;

pub use super::seize::seize;

/// PTRACE_EVENT_STOP (linux/ptrace.h).
const EVENT_STOP: i32 = 128;
/// Most pending signals that the guard looks at.
const PENDING_SIGNALS: usize = 32;
/// PTRACE_PEEKSIGINFO_SHARED.
const PEEK_SHARED: u32 = 1;

/// Where rax is for PEEKUSER and POKEUSER.
const RAX: usize = std::mem::offset_of!(Registers, rax);
/// include/linux/errno.h: restart unless a handler runs.
const ERESTARTNOHAND: isize = 514;

/// What waitpid(-1) reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Stopped by our INTERRUPT.
    Interrupted,
    /// In a group stop (SIGSTOP and its kin): detached with signal 0 it stays stopped.
    GroupStop,
    /// About to receive this signal, which DETACH must hand on.
    Signal(i32),
    /// Ended, with this wait status.
    Ended(i32),
}

/// A general register set.
pub type Registers = libc::user_regs_struct;

fn call(request: libc::c_uint, tid: u32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: every request used here takes plain numbers, or pointers that the callers below keep valid.
    let result = unsafe { libc::ptrace(request, tid as libc::pid_t, address, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Asks a seized thread to stop.
pub fn interrupt(tid: u32) -> io::Result<()> {
    call(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Lets a stopped thread go on, untraced; `signal` is delivered to it (0 = none).
pub fn detach(tid: u32, signal: i32) -> io::Result<()> {
    call(libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// The next thread or child that changed state, without waiting.
pub fn next_change() -> Option<(u32, Change)> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    let change = if !libc::WIFSTOPPED(status) {
        Change::Ended(status)
    } else if status >> 16 == EVENT_STOP {
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => Change::Interrupted,
            _ => Change::GroupStop,
        }
    } else {
        Change::Signal(libc::WSTOPSIG(status))
    };
    Some((pid as u32, change))
}

/// The registers of a stopped thread.
pub fn registers(tid: u32) -> io::Result<Registers> {
    // SAFETY: all-zero is a valid register set, and it outlives the call that fills it.
    unsafe {
        let mut registers: Registers = std::mem::zeroed();
        call(libc::PTRACE_GETREGS, tid, 0, std::ptr::from_mut(&mut registers) as usize)?;
        Ok(registers)
    }
}

/// Whether a signal that the thread does not block waits for it or for its process. True when in doubt.
fn signal_pending(tid: u32) -> bool {
    let mut mask = 0_u64;
    if call(libc::PTRACE_GETSIGMASK as libc::c_uint, tid, 8, std::ptr::from_mut(&mut mask) as usize).is_err() {
        return true;
    }
    [0, PEEK_SHARED].into_iter().any(|flags| {
        let arguments = libc::ptrace_peeksiginfo_args { off: 0, flags, nr: PENDING_SIGNALS as i32 };
        // SAFETY: all-zero is a valid siginfo_t; the kernel fills at most `nr` of them.
        let (count, pending) = unsafe {
            let mut pending: [libc::siginfo_t; PENDING_SIGNALS] = std::mem::zeroed();
            let count = libc::ptrace(
                libc::PTRACE_PEEKSIGINFO as libc::c_uint,
                tid as libc::pid_t,
                std::ptr::from_ref(&arguments),
                pending.as_mut_ptr(),
            );
            (count, pending)
        };
        // A full answer may hide more behind it.
        count < 0
            || count as usize >= PENDING_SIGNALS
            || pending[..count as usize].iter().any(|info| {
                let bit = (info.si_signo - 1) as u32;
                bit >= 64 || mask & (1 << bit) == 0
            })
    })
}

/// Whether a stopped thread's rax says EINTR, as it does when our stop cut a system call short. One word, read on every
/// sample.
pub fn maybe_interrupted(tid: u32) -> bool {
    // SAFETY: PEEKUSER takes an offset; errno tells an error from the value -1.
    let (rax, errno) = unsafe {
        *libc::__errno_location() = 0;
        let rax = libc::ptrace(libc::PTRACE_PEEKUSER, tid as libc::pid_t, RAX, 0);
        (rax, *libc::__errno_location())
    };
    errno == 0 && rax == -i64::from(libc::EINTR)
}

/// Lets the kernel restart a system call that our stop made fail with EINTR, so that the program never sees it. The only
/// write to a target that there is: one register. rax becomes -ERESTARTNOHAND, upon which the kernel itself
/// (arch_do_signal_or_restart, arch/x86/kernel/signal.c) restarts the call, or makes it EINTR again if a signal handler
/// runs first: a signal that comes in this very moment still breaks the wait. With a signal pending that the thread
/// does not block nothing is touched: that EINTR is the program's own. Gives whether the call will be restarted.
pub fn restart_syscall(tid: u32) -> bool {
    let Ok(registers) = registers(tid) else { return false };
    let interrupted = registers.orig_rax as i64 >= 0 && registers.rax as i64 == -i64::from(libc::EINTR);
    interrupted && !signal_pending(tid) && call(libc::PTRACE_POKEUSER, tid, RAX, -ERESTARTNOHAND as usize).is_ok()
}
