//! Births and execs of processes as the kernel tells them at once, to those that may listen: the proc connector, for whoever
//! has CAP_NET_ADMIN in the first namespaces (drivers/connector/cn_proc.c, include/uapi/linux/cn_proc.h). What it tells is a
//! reason to look, and no more: messages may be lost.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The headers before an event: `struct nlmsghdr` and `struct cn_msg`.
const HEADERS: usize = 16 + 20;
/// Where in a message the fields are: its kind, and the four numbers of a fork.
const WHAT: usize = HEADERS;
const PARENT: usize = HEADERS + 16 + 4;
const CHILD: usize = HEADERS + 16 + 8;
const CHILD_PROCESS: usize = HEADERS + 16 + 12;
/// Where the process of an exec is.
const EXECUTED: usize = HEADERS + 16 + 4;
/// Largest message: the kernel's own are under 100 bytes.
const MAX_MESSAGE: usize = 512;
/// Most messages taken at a time.
const MAX_MESSAGES: usize = 1024;

/// What has happened to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was born, and has this parent.
    Born {
        /// Its number.
        pid: u32,
        /// Its parent's.
        parent: u32,
    },
    /// It begins another program.
    Executed {
        /// Its number.
        pid: u32,
    },
}

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Births(OwnedFd);

impl Births {
    /// Begins to listen; None where that is not permitted, or the kernel has no connector. Where this is not the first of the
    /// pid namespaces nothing is ever told.
    pub fn listen() -> Option<Births> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: makes a new descriptor, which we own.
        let births = unsafe {
            let fd = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_CONNECTOR);
            if fd < 0 {
                return None;
            }
            Births(OwnedFd::from_raw_fd(fd))
        };
        births.filter().ok()?;
        // SAFETY: an all-zero address is valid; the kernel reads it during the call.
        let bound = unsafe {
            let mut address: libc::sockaddr_nl = std::mem::zeroed();
            address.nl_family = libc::AF_NETLINK as u16;
            address.nl_groups = libc::CN_IDX_PROC;
            let size = size_of_val(&address) as libc::socklen_t;
            libc::bind(births.0.as_raw_fd(), (&raw const address).cast(), size)
        };
        (bound == 0 && births.ask(libc::PROC_CN_MCAST_LISTEN)).then_some(births)
    }

    /// Readable when something was told.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Takes what was told since.
    pub fn read(&self, told: &mut Vec<Told>) {
        let mut message = [0_u8; MAX_MESSAGE];
        for _ in 0..MAX_MESSAGES {
            // SAFETY: the kernel writes no more than the buffer's length.
            let size = unsafe { libc::recv(self.0.as_raw_fd(), message.as_mut_ptr().cast(), message.len(), 0) };
            match usize::try_from(size) {
                Ok(size) => told.extend(parse(&message[..size])),
                // Some were lost: the next looks find them.
                Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(_) => return,
            }
        }
    }

    /// Lets through the births of processes, not those of threads, and execs: the others wake nobody.
    fn filter(&self) -> io::Result<()> {
        let load = |at: usize| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at as u32);
        // What is loaded counts as of network order.
        let is = |what: u32, then, other| {
            instruction(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                then,
                other,
                u32::from_ne_bytes(what.to_be_bytes()),
            )
        };
        let give = |size| instruction(libc::BPF_RET | libc::BPF_K, 0, 0, size);
        let mut program = [
            load(WHAT),
            is(libc::PROC_EVENT_FORK, 0, 4),
            load(CHILD),
            instruction(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
            load(CHILD_PROCESS),
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X, 1, 2, 0),
            is(libc::PROC_EVENT_EXEC, 0, 1),
            give(u32::MAX),
            give(0),
        ];
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the kernel copies the program during the call.
        let set = unsafe {
            let size = size_of_val(&program) as libc::socklen_t;
            let (fd, option) = (self.0.as_raw_fd(), (&raw const program).cast());
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, option, size)
        };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn ask(&self, operation: u32) -> bool {
        let mut message = Vec::with_capacity(HEADERS + 4);
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let halves = |one: u16, other: u16| [one.to_ne_bytes(), other.to_ne_bytes()].concat();
        message.extend(words(&[HEADERS as u32 + 4]));
        message.extend(halves(libc::NLMSG_DONE as u16, 0));
        message.extend(words(&[0, 0, libc::CN_IDX_PROC, libc::CN_VAL_PROC, 0, 0]));
        message.extend(halves(4, 0));
        message.extend(words(&[operation]));
        // SAFETY: the message is readable for its length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        sent == message.len() as isize
    }
}

impl Drop for Births {
    fn drop(&mut self) {
        // Kernels before 6.6 do not see by themselves that nobody listens any more.
        self.ask(libc::PROC_CN_MCAST_IGNORE);
    }
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

fn parse(message: &[u8]) -> Option<Told> {
    let word = |at: usize| Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?));
    match word(WHAT)? {
        libc::PROC_EVENT_FORK => Some(Told::Born { pid: word(CHILD_PROCESS)?, parent: word(PARENT)? }),
        libc::PROC_EVENT_EXEC => Some(Told::Executed { pid: word(EXECUTED)? }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_birth_and_an_exec_are_told_and_threads_are_not() {
        let births =
            Births::listen().expect("the tests need root in the first namespaces, and a kernel with a proc connector");
        std::thread::spawn(|| ()).join().unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let mut told = Vec::new();
        births.read(&mut told);
        let (pid, own) = (child.id(), std::process::id());
        // Other tests of this process start processes, too.
        assert!(told.contains(&Told::Born { pid, parent: own }), "{told:?}");
        assert!(told.contains(&Told::Executed { pid }), "{told:?}");
        assert!(told.iter().all(|one| !matches!(one, Told::Born { pid, .. } if !is_process(*pid))), "{told:?}");
    }

    /// A thread of ours has no folder that is listed; one that ended has none at all.
    fn is_process(pid: u32) -> bool {
        crate::target::procfs::status_field(pid, "Tgid").is_none_or(|process| process == pid)
    }

    #[test]
    fn messages_that_are_too_short_tell_nothing() {
        let mut message = [0_u8; MAX_MESSAGE];
        for (what, size) in [(libc::PROC_EVENT_FORK, CHILD_PROCESS + 4), (libc::PROC_EVENT_EXEC, EXECUTED + 4)] {
            message[WHAT..WHAT + 4].copy_from_slice(&what.to_ne_bytes());
            assert!(parse(&message[..size]).is_some());
            assert!((0..size).all(|size| parse(&message[..size]).is_none()));
        }
        message[WHAT..WHAT + 4].copy_from_slice(&0x8000_0000_u32.to_ne_bytes());
        assert_eq!(parse(&message), None);
    }
}
