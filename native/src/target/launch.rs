//! Starting CMD of `remoteprof run`: forked here, held before its exec until sampling begins.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A forked child that waits for [`Held::release`] before it executes its program.
#[derive(Debug)]
pub struct Held {
    /// Its pid.
    pub pid: u32,
    go: File,
    failure: File,
}

/// What the child puts back before exec, so that the program starts as if remoteprof were not there.
#[derive(Clone, Copy, Debug)]
pub struct Restore {
    /// Soft limit of descriptors.
    pub descriptors: u64,
    /// The signal mask that remoteprof was started with.
    pub signal_mask: libc::sigset_t,
    /// Signals that were ignored then (bit N-1 for signal N), as under nohup.
    pub ignored: u64,
}

/// The signal mask of the calling thread.
pub fn current_signal_mask() -> libc::sigset_t {
    // SAFETY: an all-zero sigset is a valid place for the result; a null new mask changes nothing.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        mask
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors, which we then own.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// Where `program` may be, in the order of execvp(3) with the PATH of `environment`.
fn candidates(program: &[u8], environment: &[CString]) -> Vec<CString> {
    if program.contains(&b'/') {
        return CString::new(program).into_iter().collect();
    }
    let path = environment.iter().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH=")).unwrap_or(b"/bin:/usr/bin");
    path.split(|&byte| byte == b':')
        .filter_map(|folder| {
            let folder = if folder.is_empty() { b"." } else { folder };
            CString::new([folder, b"/", program].concat()).ok()
        })
        .collect()
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Forks a child that will execute `arguments` with `environment`.
pub fn launch(arguments: Vec<Vec<u8>>, environment: Vec<Vec<u8>>, restore: Restore) -> io::Result<Held> {
    let strings = |list: Vec<Vec<u8>>| -> io::Result<Vec<CString>> {
        list.into_iter().map(|bytes| CString::new(bytes).map_err(io::Error::from)).collect()
    };
    let arguments = strings(arguments)?;
    let environment = strings(environment)?;
    let program = arguments.first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // All is laid out before the fork: the child only makes system calls.
    let paths = candidates(program.as_bytes(), &environment);
    let (argv, envp) = (pointers(&arguments), pointers(&environment));
    let (go_read, go_write) = pipe()?;
    let (failure_read, failure_write) = pipe()?;
    // SAFETY: this process has one thread that forks; the child uses only async-signal-safe calls and ends in exec or
    // _exit, with every pointer laid out above still valid in its copy of the memory.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above; descriptors are this child's own copies.
            unsafe {
                libc::close(go_write.as_raw_fd());
                let mut byte = 0_u8;
                if libc::read(go_read.as_raw_fd(), std::ptr::from_mut(&mut byte).cast(), 1) != 1 {
                    libc::_exit(127);
                }
                let error = execute(&paths, &argv, &envp, &restore);
                libc::write(failure_write.as_raw_fd(), std::ptr::from_ref(&error).cast(), 4);
                libc::_exit(if error == libc::ENOENT { 127 } else { 126 })
            }
        }
        pid => Ok(Held { pid: pid as u32, go: File::from(go_write), failure: File::from(failure_read) }),
    }
}

/// Executes the first of `paths` that is there; gives the errno if none could be.
///
/// # Safety
/// Only in a forked child; `argv` and `envp` are null-terminated arrays of valid strings.
unsafe fn execute(
    paths: &[CString],
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
    restore: &Restore,
) -> i32 {
    // SAFETY: system calls with valid pointers only.
    unsafe {
        for signal in 1..32 {
            let ignored = restore.ignored & (1 << (signal - 1)) != 0;
            libc::signal(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL });
        }
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = restore.descriptors.min(limit.rlim_max);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        libc::prctl(libc::PR_SET_TIMERSLACK, 0);
        libc::pthread_sigmask(libc::SIG_SETMASK, &restore.signal_mask, std::ptr::null_mut());
        let mut error = libc::ENOENT;
        for path in paths {
            libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr());
            let this = *libc::__errno_location();
            // As execvp: a program that may not be run is reported if no later one runs.
            match this {
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                libc::EACCES => error = this,
                _ => return this,
            }
        }
        error
    }
}

impl Held {
    /// Lets the child execute its program; returns when it has, with the error if it could not.
    pub fn release(mut self) -> io::Result<()> {
        self.go.write_all(&[1])?;
        drop(self.go);
        let mut errno = [0; 4];
        match self.failure.read_exact(&mut errno) {
            Ok(()) => Err(io::Error::from_raw_os_error(i32::from_le_bytes(errno))),
            // The descriptor closed on exec: the program runs.
            Err(_) => Ok(()),
        }
    }
}
