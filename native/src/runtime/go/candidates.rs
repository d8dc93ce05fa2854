//! Which files are worth a search for Go: those with Go's own note, and of a program that has none all of it.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use memchr::memmem::Finder;
use rustc_hash::FxHashMap;

use super::image::MAX_SEARCHED_BYTES;
use super::pclntab::Header;
use crate::symbols::elf;
use crate::symbols::file::Arena;
use crate::target::linux::{Process, file_identity};
use crate::target::{Mapping, sys};

const CHUNK: usize = 1 << 20;
/// Most files of which the answer is kept.
const MAX_KEPT: usize = 1 << 14;

thread_local! {
    static KNOWN: RefCell<FxHashMap<[u64; 4], bool>> = RefCell::default();
}

/// Those of the mappings that may hold Go: of each file all, or none.
pub fn candidates(process: &Process, mappings: &[Mapping]) -> Vec<Mapping> {
    let exe = std::fs::read_link(format!("/proc/{}/exe", process.pid)).unwrap_or_default();
    let exe = exe.to_string_lossy();
    let mut files: Vec<((u64, &str), bool)> = Vec::new();
    for mapping in mappings.iter().filter(|mapping| mapping.inode != 0 && mapping.executable()) {
        let key = (mapping.inode, mapping.path.as_str());
        if !files.iter().any(|(known, _)| *known == key) {
            let found = process.open_mapped_file(mapping).is_ok_and(|file| may_hold_go(&file, mapping.path == exe));
            files.push((key, found));
        }
    }
    let of_candidate = |mapping: &&Mapping| files.contains(&((mapping.inode, mapping.path.as_str()), true));
    mappings.iter().filter(of_candidate).cloned().collect()
}

/// `program`: what has no note is searched.
fn may_hold_go(file: &File, program: bool) -> bool {
    let Some(mut key) = file_identity(file) else { return false };
    key[3] ^= u64::from(program);
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&key).copied()) {
        return known;
    }
    let found = has_note(file) || (program && has_table(file));
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= MAX_KEPT {
            known.clear();
        }
        known.insert(key, found);
    });
    found
}

fn has_note(file: &File) -> bool {
    let arena = Arena::default();
    let id = arena.file(file).ok().and_then(|bytes| elf::go_build_id(bytes).map(|id| !id.is_empty()));
    id.unwrap_or(false)
}

fn has_table(file: &File) -> bool {
    let finder = Finder::new(&Header::MAGIC);
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    let began = sys::thread_cpu_ns();
    while at < MAX_SEARCHED_BYTES && sys::thread_cpu_ns() - began < MAX_SEARCH_NS {
        let Ok(size) = file.read_at(&mut chunk, at) else { return false };
        if size < Header::MAGIC.len() {
            return false;
        }
        if finder.find(&chunk[..size]).is_some() {
            return true;
        }
        at += (size - (Header::MAGIC.len() - 1)) as u64;
    }
    false
}

/// Longest search of one file, nanoseconds of CPU time.
const MAX_SEARCH_NS: u64 = 200_000_000;
