//! Files opened for names, and the memory that holds what was read of them.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
#[cfg(unix)]
use std::os::unix::fs::{FileExt, OpenOptionsExt};
#[cfg(windows)]
use std::os::windows::fs::FileExt;
use std::path::Path;

use object::ReadRef;
use typed_arena::Arena as Kept;

#[cfg(unix)]
use crate::target::rooted::HARMLESS;

/// Most bytes of one file.
pub const MAX_FILE_BYTES: u64 = 16 << 30;
/// Bytes of files of which pieces are copied into memory, for all files together; the rest are mapped.
pub const MAX_COPIED_BYTES: u64 = 64 << 20;
/// Most bytes of uncompressed sections, for all files of a module together.
pub const MAX_UNPACKED_BYTES: u64 = 1 << 30;
/// Most files opened for one module.
pub const MAX_FILES: u32 = 4096;

/// How often the bytes of a file may be copied, where its headers name them more than once.
const MAX_COPIES: u64 = 3;

/// A file that is read piece by piece.
struct Pieces {
    file: File,
    size: u64,
    left: Cell<u64>,
}

enum Kind {
    Pieces(Pieces),
    Mapped(memmap2::Mmap),
}

/// The bytes of one file.
#[derive(Clone, Copy)]
pub struct Bytes<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    Memory(&'a [u8]),
    File(&'a Pieces, &'a Arena),
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Bytes(Source::Memory(bytes))
    }
}

impl<'a> Bytes<'a> {
    /// All of them.
    pub fn whole(self) -> Option<&'a [u8]> {
        self.read_bytes_at(0, self.len().ok()?).ok()
    }
}

impl<'a> ReadRef<'a> for Bytes<'a> {
    fn len(self) -> Result<u64, ()> {
        Ok(match self.0 {
            Source::Memory(bytes) => bytes.len() as u64,
            Source::File(file, _) => file.size,
        })
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        match self.0 {
            Source::Memory(bytes) => bytes.read_bytes_at(offset, size),
            Source::File(..) if size == 0 => Ok(&[]),
            Source::File(file, arena) => {
                offset.checked_add(size).filter(|&end| end <= file.size).ok_or(())?;
                file.left.set(file.left.get().checked_sub(size).ok_or(())?);
                Ok(arena.keep(read_piece(&file.file, offset, usize::try_from(size).map_err(drop)?).map_err(drop)?))
            }
        }
    }

    fn read_bytes_at_until(self, range: std::ops::Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let bytes = self.read_bytes_at(range.start, range.end.checked_sub(range.start).ok_or(())?)?;
        bytes.iter().position(|&byte| byte == delimiter).map(|end| &bytes[..end]).ok_or(())
    }
}

/// Holds the bytes of a module's files while its addresses are looked up.
#[derive(Default)]
pub struct Arena {
    files: Kept<Kind>,
    sections: Kept<Vec<u8>>,
    copied: Cell<u64>,
    unpacked: Cell<u64>,
    opened: Cell<u32>,
}

impl Arena {
    /// The bytes of an open regular file; of a small one those are read that are asked for.
    pub fn file(&self, file: &File) -> io::Result<Bytes<'_>> {
        let status = file.metadata()?;
        if !status.is_file() || status.len() > MAX_FILE_BYTES || self.opened.get() >= MAX_FILES {
            return Err(io::Error::other("not a regular file, or over its bound"));
        }
        self.opened.set(self.opened.get() + 1);
        let copied = self.copied.get().saturating_add(status.len());
        let kind = if copied <= MAX_COPIED_BYTES {
            self.copied.set(copied);
            let left = Cell::new(status.len() * MAX_COPIES);
            Kind::Pieces(Pieces { file: file.try_clone()?, size: status.len(), left })
        } else {
            // SAFETY: a file that shrinks or changes while it is mapped breaks what Rust expects of a slice: it can end
            // us with SIGBUS. Copying is no answer for files of hundreds of megabytes, which linkers, compilers and
            // package managers replace and do not rewrite; of the small ones, and so of nearly all, pieces are copied.
            let map = unsafe { memmap2::Mmap::map(file)? };
            Kind::Mapped(map)
        };
        Ok(match self.files.alloc(kind) {
            Kind::Pieces(pieces) => Bytes(Source::File(pieces, self)),
            Kind::Mapped(map) => Bytes(Source::Memory(map)),
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

/// Exactly `size` bytes from `offset` on. The file's position, which others may share, is not used.
fn read_piece(file: &File, offset: u64, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    #[cfg(unix)]
    file.read_exact_at(&mut bytes, offset)?;
    #[cfg(windows)]
    {
        let mut done = 0;
        while done < size {
            match file.seek_read(&mut bytes[done..], offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => done += read,
            }
        }
    }
    Ok(bytes)
}

/// Opens a file to read; a pipe or device in its place does not hold us up.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    options.custom_flags(HARMLESS);
    let file = options.read(true).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}
