//! Files opened for names, and the memory that holds what was read of them.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use typed_arena::Arena as Kept;

/// Most bytes of one file.
pub const MAX_FILE_BYTES: u64 = 16 << 30;
/// Bytes of files that are copied into memory, for all files together; the rest are mapped.
pub const MAX_COPIED_BYTES: u64 = 64 << 20;
/// Most bytes of uncompressed sections, for all files of a module together.
pub const MAX_UNPACKED_BYTES: u64 = 1 << 30;
/// Most files opened for one module.
pub const MAX_FILES: u32 = 4096;

enum Bytes {
    Copied(Vec<u8>),
    Mapped(memmap2::Mmap),
}

/// Holds the bytes of a module's files while its addresses are looked up.
#[derive(Default)]
pub struct Arena {
    files: Kept<Bytes>,
    sections: Kept<Vec<u8>>,
    copied: Cell<u64>,
    unpacked: Cell<u64>,
    opened: Cell<u32>,
}

impl Arena {
    /// The bytes of an open regular file.
    pub fn file(&self, file: &File) -> io::Result<&[u8]> {
        let status = file.metadata()?;
        if !status.is_file() || status.len() > MAX_FILE_BYTES || self.opened.get() >= MAX_FILES {
            return Err(io::Error::other("not a regular file, or over its bound"));
        }
        self.opened.set(self.opened.get() + 1);
        let copied = self.copied.get().saturating_add(status.len());
        let bytes = if copied <= MAX_COPIED_BYTES {
            self.copied.set(copied);
            Bytes::Copied(read_all(file, status.len() as usize)?)
        } else {
            // SAFETY: a file that shrinks or changes while it is mapped breaks what Rust expects of a slice: it can end
            // us with SIGBUS. Copying is no answer for files of hundreds of megabytes, which linkers, compilers and
            // package managers replace and do not rewrite; the small ones, and so nearly all, are copied above.
            let map = unsafe { memmap2::Mmap::map(file)? };
            Bytes::Mapped(map)
        };
        Ok(match self.files.alloc(bytes) {
            Bytes::Copied(bytes) => bytes,
            Bytes::Mapped(map) => map,
        })
    }

    /// Takes `size` bytes from what may be uncompressed; None where they are not left.
    pub fn unpack(&self, size: u64) -> Option<usize> {
        let unpacked = self.unpacked.get().checked_add(size).filter(|&total| total <= MAX_UNPACKED_BYTES)?;
        self.unpacked.set(unpacked);
        usize::try_from(size).ok()
    }

    /// Keeps bytes for as long as the arena lives.
    pub fn keep(&self, bytes: Vec<u8>) -> &[u8] {
        self.sections.alloc(bytes)
    }
}

/// The first `size` bytes, or fewer. The file's position, which others may share, is not used.
fn read_all(file: &File, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    let mut at = 0;
    while at < size {
        match file.read_at(&mut bytes[at..], at as u64) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}

/// Opens a file to read; a pipe or device in its place does not hold us up.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}
