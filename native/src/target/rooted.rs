//! Files by the paths that a process knows them by: in a container another root, with links that mean places in it.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::sys;

/// What keeps a pipe, a device or a terminal in a file's place from holding us up, or from becoming ours.
pub const HARMLESS: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;

/// Opens the regular file that process `pid` means by the absolute `path`. Links are followed as the process would, to
/// places below its root only. `flags`: further ones of open(2).
pub fn open(pid: u32, path: &str, flags: i32) -> io::Result<File> {
    let root = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(format!("/proc/{pid}/root"))?;
    let file = match sys::open_below(&root, &CString::new(path)?, HARMLESS | flags) {
        // Before Linux 5.6, or under a filter of system calls that is older than openat2.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            open_plain(Path::new(&format!("/proc/{pid}/root{path}")), flags)?
        }
        opened => opened?,
    };
    regular(file)
}

/// Opens the regular file behind one of the kernel's own links, such as `/proc/PID/exe`.
pub fn open_link(link: &str) -> io::Result<File> {
    regular(open_plain(Path::new(link), 0)?)
}

fn open_plain(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(HARMLESS | flags).open(path)
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = std::env::temp_dir().join(format!("rooted-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, link, pipe) = (folder.join("file"), folder.join("link"), folder.join("pipe"));
        std::fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        let open = |path: &Path| open(std::process::id(), path.to_str().unwrap(), 0);
        assert!(open(&file).is_ok() && open(&link).is_ok());
        assert!(super::open(std::process::id(), link.to_str().unwrap(), libc::O_NOFOLLOW).is_err());
        assert!(open(&pipe).is_err() && open(&folder).is_err() && open(&folder.join("none")).is_err());
        assert!(open_link("/proc/self/exe").is_ok() && open_link(pipe.to_str().unwrap()).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
