//! The Go module of a process: where it is mapped, and its bytes, read from the mapped file where the program cannot have
//! changed them and from memory elsewhere, so that a target's resident size does not grow by our reading.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use memchr::memmem::Finder;

use crate::error::ReadError;
use crate::memory::Memory;
use crate::target::Mapping;
use crate::target::linux::Process;

/// Most bytes of one module that are looked through.
pub const MAX_SEARCHED_BYTES: u64 = 2 << 30;
/// Most files of one process that are looked at.
const MAX_MODULES: usize = 256;
/// Most places at which one pattern is found.
const MAX_FOUND: usize = 64;
const CHUNK: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Pages kept of what is read in small pieces.
const KEPT_PAGES: usize = 256;

/// A mapped range of the module.
struct Piece {
    start: u64,
    end: u64,
    writable: bool,
    executable: bool,
    /// The file and the offset of `start` in it, where its bytes are those of the memory.
    file: Option<(usize, u64)>,
}

/// The mapped ranges of one file, or of saved memory.
pub struct Image<'a> {
    memory: Rc<dyn Memory + 'a>,
    pieces: Vec<Piece>,
    files: Vec<File>,
    /// Every writable range of the process: what may hold variables.
    writable: Vec<(u64, u64)>,
    pages: RefCell<Vec<(u64, Vec<u8>)>>,
}

impl<'a> Image<'a> {
    /// The file-backed modules of a process among the mappings `of`, its program first. `memory`: that of the process.
    pub fn modules(
        process: &Process,
        memory: &Rc<dyn Memory + 'a>,
        of: &[Mapping],
        mappings: &[Mapping],
    ) -> Vec<Image<'a>> {
        let exe = std::fs::read_link(format!("/proc/{}/exe", process.pid)).unwrap_or_default();
        let exe = exe.to_string_lossy();
        let mut keys: Vec<(&str, u64, &str)> = Vec::new();
        for mapping in of.iter().filter(|mapping| mapping.inode != 0 && mapping.executable()) {
            let key = (mapping.device.as_str(), mapping.inode, mapping.path.as_str());
            if !keys.contains(&key) && keys.len() < MAX_MODULES {
                keys.push(key);
            }
        }
        keys.sort_by_key(|key| key.2 != exe);
        let of_module = |key: &(&str, u64, &str)| {
            let within: Vec<Mapping> = mappings
                .iter()
                .filter(|mapping| (mapping.device.as_str(), mapping.inode, mapping.path.as_str()) == *key)
                .cloned()
                .collect();
            let file = within.first().and_then(|mapping| process.open_mapped_file(mapping).ok());
            Image::shared(Rc::clone(memory), &within, mappings, file)
        };
        keys.iter().map(of_module).collect()
    }

    /// The ranges `within`, of `file`, in `memory`, of which all the `mappings` are given.
    pub fn new(memory: &'a dyn Memory, within: &[Mapping], mappings: &[Mapping], file: Option<File>) -> Image<'a> {
        Image::shared(Rc::new(memory), within, mappings, file)
    }

    fn shared(memory: Rc<dyn Memory + 'a>, within: &[Mapping], mappings: &[Mapping], file: Option<File>) -> Image<'a> {
        let writable = |mapping: &Mapping| mapping.permissions.as_bytes().get(1) == Some(&b'w');
        let pieces = within.iter().filter(|mapping| mapping.permissions.starts_with('r')).map(|mapping| Piece {
            start: mapping.start,
            end: mapping.end,
            writable: writable(mapping),
            executable: mapping.executable(),
            file: (file.is_some() && !writable(mapping)).then_some((0, mapping.offset)),
        });
        Image {
            memory,
            pieces: pieces.collect(),
            files: file.into_iter().collect(),
            writable: mappings
                .iter()
                .filter(|&mapping| writable(mapping))
                .map(|mapping| (mapping.start, mapping.end))
                .collect(),
            pages: RefCell::default(),
        }
    }

    /// Whether the address lies in code of this module.
    pub fn executable(&self, address: u64) -> bool {
        self.piece(address).is_some_and(|piece| piece.executable)
    }

    /// Whether `size` bytes at the address can be variables of the process.
    pub fn variable(&self, address: u64, size: u64) -> bool {
        let end = address.saturating_add(size);
        self.writable.iter().any(|&(start, stop)| start <= address && end <= stop)
    }

    fn piece(&self, address: u64) -> Option<&Piece> {
        self.pieces.iter().find(|piece| piece.start <= address && address < piece.end)
    }

    /// Addresses at which `pattern` is, in ascending order; `variables`: in writable ranges only, else in all.
    pub fn find(&self, pattern: &[u8], variables: bool) -> Vec<u64> {
        let finder = Finder::new(pattern);
        let (mut found, mut left) = (Vec::new(), MAX_SEARCHED_BYTES);
        let overlap = pattern.len() as u64 - 1;
        let mut buffer = vec![0; (CHUNK + overlap) as usize];
        for piece in self.pieces.iter().filter(|piece| piece.writable || !variables) {
            let mut at = piece.start;
            while at < piece.end && left > 0 {
                let size = (piece.end - at).min(CHUNK + overlap);
                let part = &mut buffer[..size as usize];
                left = left.saturating_sub(size);
                if self.read_piece(piece, at, part).is_ok() {
                    found.extend(finder.find_iter(part).map(|offset| at + offset as u64).take(MAX_FOUND));
                }
                if found.len() >= MAX_FOUND {
                    return found;
                }
                at += CHUNK;
            }
        }
        found.dedup();
        found
    }

    fn read_piece(&self, piece: &Piece, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        match piece.file.and_then(|(file, offset)| Some((self.files.get(file)?, offset))) {
            Some((file, offset)) => {
                let offset = offset.checked_add(address - piece.start).ok_or(ReadError::Unmapped)?;
                // A mapping may reach beyond the end of its file: only memory knows what is there.
                file.read_exact_at(buffer, offset).or_else(|_| self.memory.read(address, buffer))
            }
            None => self.memory.read(address, buffer),
        }
    }

    fn read_across(&self, mut address: u64, mut buffer: &mut [u8]) -> Result<(), ReadError> {
        while !buffer.is_empty() {
            let Some(piece) = self.piece(address) else { return self.memory.read(address, buffer) };
            let size = usize::try_from(piece.end - address).unwrap_or(usize::MAX).min(buffer.len());
            let (part, rest) = buffer.split_at_mut(size);
            self.read_piece(piece, address, part)?;
            (address, buffer) = (address + size as u64, rest);
        }
        Ok(())
    }
}

impl Memory for Image<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let page = address & !(PAGE - 1);
        let within = (address - page) as usize..(address - page) as usize + buffer.len();
        let constant =
            self.piece(address).is_some_and(|piece| !piece.writable && page >= piece.start && page + PAGE <= piece.end);
        if within.end > PAGE as usize || !constant {
            return self.read_across(address, buffer);
        }
        // Small reads of what does not change, such as inline trees, come in the hundreds of thousands.
        let mut pages = self.pages.borrow_mut();
        if let Some((_, bytes)) = pages.iter().rev().find(|(known, _)| *known == page) {
            buffer.copy_from_slice(&bytes[within]);
            return Ok(());
        }
        let mut bytes = vec![0; PAGE as usize];
        self.read_across(page, &mut bytes)?;
        buffer.copy_from_slice(&bytes[within]);
        if pages.len() >= KEPT_PAGES {
            pages.drain(..KEPT_PAGES / 2);
        }
        pages.push((page, bytes));
        Ok(())
    }
}
