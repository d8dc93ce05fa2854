//! Which processes of Windows can be read, and what is said of the others. The rules are the same wherever they are tested;
//! what Windows answers comes as numbers.

use crate::error::{Error, ErrorKind};

/// ERROR_ACCESS_DENIED.
pub const ACCESS_DENIED: u32 = 5;
/// ERROR_INVALID_PARAMETER: there is no such process.
pub const INVALID_PARAMETER: u32 = 87;

/// What Windows tells of a process that it let us open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its pid. Windows opens process 8 for 9, 10 and 11, too.
    pub pid: u32,
    /// Whether it has ended: it can be opened for as long as somebody holds it.
    pub ended: bool,
    /// Whether it is a 32-bit program (WOW64).
    pub wow64: bool,
}

/// Whether what was opened is process `pid`, named `name`, and can be read.
pub fn admit(pid: u32, name: &str, opened: Opened) -> Result<(), Error> {
    if opened.pid != pid || opened.ended {
        return Err(not_found(pid));
    }
    if opened.wow64 {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("process {pid} ({name}) is a 32-bit program"),
            "only 64-bit (x86_64) programs are supported",
        ));
    }
    Ok(())
}

/// Why process `pid` could not be opened: `code` is the error of Windows, `text` what it says of it, `protection` the
/// level at which Windows protects the process.
pub fn refused(pid: u32, code: u32, text: &str, protection: Option<u32>) -> Error {
    match (code, protection) {
        (INVALID_PARAMETER, _) => not_found(pid),
        (ACCESS_DENIED, Some(level)) => Error::new(
            ErrorKind::Permission,
            format!("not permitted to read process {pid}: Windows protects it (level {level})"),
            "no user may read a protected process, administrators included; choose another",
        ),
        (ACCESS_DENIED, None) => Error::new(
            ErrorKind::Permission,
            format!("not permitted to read process {pid}"),
            "run remoteprof as the same user, or as administrator; protected processes of the system cannot be read",
        ),
        _ => Error::new(ErrorKind::Failed, format!("cannot open process {pid}: {text}"), "run as administrator"),
    }
}

fn not_found(pid: u32) -> Error {
    Error::new(ErrorKind::NotFound, format!("no process with pid {pid}"), "list the processes with: tasklist")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Opened = Opened { pid: 8, ended: false, wow64: false };

    fn kind(pid: u32, opened: Opened) -> Option<ErrorKind> {
        admit(pid, "x.exe", opened).err().map(|error| error.kind)
    }

    #[test]
    fn who_is_admitted() {
        assert_eq!(kind(8, FINE), None);
        assert_eq!(kind(9, FINE), Some(ErrorKind::NotFound), "Windows rounds the pid down");
        assert_eq!(kind(8, Opened { ended: true, ..FINE }), Some(ErrorKind::NotFound));
        assert_eq!(kind(8, Opened { wow64: true, ..FINE }), Some(ErrorKind::Unsupported));
        assert_eq!(kind(8, Opened { ended: true, wow64: true, ..FINE }), Some(ErrorKind::NotFound));
        let error = admit(8, "x.exe", Opened { wow64: true, ..FINE }).unwrap_err();
        assert!(error.message.contains("8 (x.exe) is a 32-bit program"), "{}", error.message);
    }

    #[test]
    fn who_is_refused_and_why() {
        let protected = refused(8, ACCESS_DENIED, "", Some(1));
        assert_eq!(protected.kind, ErrorKind::Permission);
        assert!(protected.message.contains("protects it (level 1)"), "{}", protected.message);
        let foreign = refused(8, ACCESS_DENIED, "", None);
        assert_eq!(foreign.kind, ErrorKind::Permission);
        assert!(foreign.hint.contains("administrator"), "{}", foreign.hint);
        assert_eq!(refused(8, INVALID_PARAMETER, "", None).kind, ErrorKind::NotFound);
        let other = refused(8, 1450, "Insufficient system resources", None);
        assert_eq!(other.kind, ErrorKind::Failed);
        assert!(other.message.contains("Insufficient"), "{}", other.message);
    }
}
