//! Why the system does not let us at a process, and the line that mends it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::{procfs, ptrace, sys};
use crate::error::{Error, ErrorKind};

/// What gives a container the right to trace. The filters of Docker and containerd let those trace who have it.
pub const ADD_CAPABILITY: &str = "docker run --cap-add=SYS_PTRACE; in Kubernetes, of the container, \
    securityContext: {capabilities: {add: [SYS_PTRACE]}}";
/// What takes the filter of system calls away.
pub const NO_FILTER: &str = "docker run --security-opt seccomp=unconfined; in Kubernetes securityContext: \
    {seccompProfile: {type: Unconfined}}; of a systemd unit, no SystemCallFilter= without @debug";
/// Bit of CapEff.
const CAP_SYS_PTRACE: u32 = 19;
/// Inodes of the namespaces that a system starts with (include/linux/proc_ns.h).
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// What decides whether one process may trace another (ptrace(2), "Ptrace access mode checking").
#[derive(Clone, Debug, Default)]
struct Facts {
    /// User ids: ours, theirs.
    users: (u32, u32),
    /// CAP_SYS_PTRACE is in effect, in our user namespace.
    capable: bool,
    /// kernel.yama.ptrace_scope; 0 without Yama.
    yama: u32,
    /// Not in the PID namespace, or not in the user namespace, that the system started with.
    contained: bool,
    own_users: bool,
    /// The profile of AppArmor, or the label of SELinux, that we are under.
    confined: String,
}

impl Facts {
    fn gather(pid: u32) -> Facts {
        let user = |pid| procfs::status_field(pid, "Uid").unwrap_or(0);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
        let other = |kind: &str, initial: u64| {
            fs::metadata(format!("/proc/self/ns/{kind}")).is_ok_and(|space| space.ino() != initial)
        };
        let label = fs::read_to_string("/proc/self/attr/current").unwrap_or_default();
        let label = label.trim_matches(['\0', '\n', ' ']);
        Facts {
            users: (user(std::process::id()), user(pid)),
            capable: effective >> CAP_SYS_PTRACE & 1 == 1,
            yama: fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
                .ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0),
            contained: other("pid", INITIAL_PID_NAMESPACE),
            own_users: other("user", INITIAL_USER_NAMESPACE),
            confined: if label == "unconfined" { String::new() } else { label.to_string() },
        }
    }

    fn hint(&self) -> String {
        let (own, theirs) = self.users;
        let mut hint = match self {
            Facts { yama: 3, .. } => {
                return "kernel.yama.ptrace_scope is 3: no process may be traced until the next boot".into();
            }
            Facts { capable: true, own_users: true, .. } => {
                return "CAP_SYS_PTRACE counts only in this user namespace, and the process is in another: run \
                    remoteprof from there, or as root outside of all containers"
                    .into();
            }
            Facts { capable: true, .. } if !self.confined.is_empty() => {
                return format!(
                    "the security module does not let \"{}\" trace: docker run --security-opt apparmor=unconfined (with \
                     SELinux: label=disable), or run remoteprof outside of the container",
                    self.confined
                );
            }
            Facts { capable: true, .. } => {
                return "a security module refuses it: the kernel's log may tell (dmesg)".into();
            }
            Facts { yama: 2, .. } => "kernel.yama.ptrace_scope is 2: run with sudo or CAP_SYS_PTRACE".to_string(),
            _ if own != theirs => format!(
                "it runs as user id {theirs}, you as {own}: run remoteprof as the same user, with sudo, or with CAP_SYS_PTRACE"
            ),
            Facts { yama: 1, .. } => "kernel.yama.ptrace_scope is 1: use `remoteprof run -- CMD`, or sudo, or \
                sysctl -w kernel.yama.ptrace_scope=0"
                .to_string(),
            _ => "run with sudo or CAP_SYS_PTRACE".to_string(),
        };
        if self.contained {
            hint = format!("{hint}; in a container: {ADD_CAPABILITY}");
        }
        hint
    }
}

/// An error of opening a process, with the line that mends it.
pub fn access_error(pid: u32, error: &io::Error) -> Error {
    if error.raw_os_error() == Some(libc::ESRCH) || procfs::read_stat(pid).is_err() {
        return not_found(pid);
    }
    Error::new(ErrorKind::Permission, format!("not permitted to read process {pid}"), Facts::gather(pid).hint())
}

/// The error that there is no such process.
pub fn not_found(pid: u32) -> Error {
    Error::new(ErrorKind::NotFound, format!("no process with pid {pid}"), "list the processes with: ps -ef")
}

/// An error if nobody may be traced from here, because a filter of system calls refuses ptrace.
pub fn check_filter() -> Result<(), Error> {
    // Asked to let go of who is not traced, the kernel says that there is no such tracee, and a filter that it is not
    // permitted, or that there is no such call.
    match ptrace::detach(sys::thread_id(), 0).map_err(|error| error.raw_os_error()) {
        Ok(()) | Err(Some(libc::ESRCH)) => Ok(()),
        Err(_) => Err(filter_error(Facts::gather(std::process::id()).capable)),
    }
}

/// The error that a filter refuses ptrace. `capable`: we have CAP_SYS_PTRACE.
fn filter_error(capable: bool) -> Error {
    let mend =
        if capable { NO_FILTER.to_string() } else { format!("{ADD_CAPABILITY}. If that is not enough: {NO_FILTER}") };
    let hint = format!("{mend}. Or use --nonblocking, which does without");
    Error::new(ErrorKind::Permission, "a seccomp filter refuses ptrace: no thread can be stopped", hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(facts: Facts) -> String {
        facts.hint()
    }

    #[test]
    fn each_refusal_has_its_mend() {
        let own = Facts { users: (1000, 1000), ..Facts::default() };
        assert!(hint(own.clone()).contains("sudo"));
        assert!(hint(Facts { yama: 1, ..own.clone() }).contains("sysctl -w kernel.yama.ptrace_scope=0"));
        assert!(hint(Facts { yama: 2, ..own.clone() }).contains("ptrace_scope is 2"));
        assert!(hint(Facts { yama: 3, capable: true, ..own.clone() }).contains("next boot"));
        assert!(hint(Facts { users: (1000, 0), ..own.clone() }).contains("user id 0, you as 1000"));
        for yama in 0..3 {
            let inside = hint(Facts { contained: true, yama, ..own.clone() });
            assert!(inside.contains("--cap-add=SYS_PTRACE") && inside.contains("capabilities: {add: [SYS_PTRACE]}"));
        }
        let capable = Facts { capable: true, contained: true, ..own };
        assert!(hint(Facts { own_users: true, ..capable.clone() }).contains("user namespace"));
        assert!(hint(Facts { confined: "docker-default (enforce)".into(), ..capable.clone() }).contains("apparmor"));
        assert!(hint(capable).contains("security module"));
    }

    #[test]
    fn a_filter_is_told_by_what_it_answers() {
        check_filter().unwrap();
        assert!(filter_error(false).hint.contains("--cap-add=SYS_PTRACE"));
        assert!(filter_error(true).hint.starts_with("docker run --security-opt seccomp=unconfined"));
    }
}
