//! Which thread is held still, in a file that outlives who holds it: Windows lets go of nothing when a process is ended.
//!
//! The supervisor makes the file (the record) and gives it to its sampler, which maps it: to tell is a store into memory,
//! and what was stored is there when the sampler is gone, whatever ended it. The supervisor then lets the thread go on. If
//! that is gone too, [`left`] finds the thread, and [`resume`] lets it go on.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use windows_sys::Win32::Foundation::ERROR_INVALID_PARAMETER;
use windows_sys::Win32::System::Threading::{PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE};

use super::threads;

/// Its first word.
const MAGIC: u64 = u64::from_le_bytes(*b"rp-held1");
/// Words of a record, each of eight bytes: the magic number; pid and creation of the supervisor, then of the sampler (0
/// until it has opened the record); creation of the thread; pid (high half) and thread id of what is held, 0 = nothing.
const WORDS: usize = 7;
const SUPERVISOR: usize = 1;
const SAMPLER: usize = 3;
const CREATED: usize = 5;
const HELD: usize = 6;
/// Most records that are looked at.
const MAX_RECORDS: usize = 1000;
const SUFFIX: &str = "held";

static MAPPED: OnceLock<MmapRaw> = OnceLock::new();

/// A thread that a sampler left suspended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The record that says so.
    pub record: PathBuf,
    /// The sampler, which is gone.
    pub sampler: u32,
    /// The process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// How often it is suspended: more than once where somebody else did so too.
    pub count: u32,
}

fn folder() -> PathBuf {
    std::env::temp_dir().join("remoteprof")
}

fn own_identity() -> (u32, u64) {
    let pid = std::process::id();
    (pid, created(pid).unwrap_or(0))
}

fn created(pid: u32) -> Option<u64> {
    let process = super::open(pid, PROCESS_QUERY_LIMITED_INFORMATION).ok()?;
    super::times(&process).map(|(created, _)| created)
}

/// Makes a record for a sampler that this process starts. Records of which nothing is left are removed.
pub fn create() -> io::Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    fs::create_dir_all(folder())?;
    left();
    let (pid, created) = own_identity();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder().join(format!("{pid}-{created:x}-{number}.{SUFFIX}"));
    let words: [u64; WORDS] = [MAGIC, u64::from(pid), created, 0, 0, 0, 0];
    OpenOptions::new().write(true).create_new(true).open(&path)?.write_all(&words.map(u64::to_le_bytes).concat())?;
    Ok(path)
}

/// Opens the record that this process, a sampler, tells by from now on.
pub fn open(path: &Path) -> io::Result<()> {
    read(path)?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let _ = MAPPED.set(MmapOptions::new().map_raw(&file)?);
    let (pid, created) = own_identity();
    store(SAMPLER, u64::from(pid));
    store(SAMPLER + 1, created);
    Ok(())
}

fn store(word: usize, value: u64) {
    if let Some(map) = MAPPED.get() {
        debug_assert!(word < WORDS);
        // SAFETY: the mapping starts at a page, is as long as a record (which `open` read from it), and is never unmapped.
        let word = unsafe { AtomicU64::from_ptr(map.as_mut_ptr().cast::<u64>().add(word)) };
        word.store(value, Ordering::SeqCst);
    }
}

/// Says that a thread, `created` then, is about to be held.
pub fn tell(pid: u32, tid: u32, created: u64) {
    store(CREATED, created);
    store(HELD, u64::from(pid) << 32 | u64::from(tid));
}

/// Says that what was held runs again.
pub fn tell_resumed() {
    store(HELD, 0);
}

fn read(path: &Path) -> io::Result<[u64; WORDS]> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(WORDS as u64 * 8 + 1).read_to_end(&mut bytes)?;
    let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    match <[u64; WORDS]>::try_from(words) {
        Ok(words) if words[0] == MAGIC && bytes.len() == WORDS * 8 => Ok(words),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not a record of what is held")),
    }
}

/// Whether a process runs; true where that is not to be told.
fn alive(pid: u64, created: u64) -> bool {
    let Ok(pid) = u32::try_from(pid) else { return false };
    match super::open(pid, PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE) {
        Ok(process) => {
            !super::ended(&process) && super::times(&process).is_none_or(|(its, _)| its == created || created == 0)
        }
        Err(error) => error.raw_os_error() != Some(ERROR_INVALID_PARAMETER.cast_signed()),
    }
}

/// What a record says is held, and by which sampler, where that thread is still there.
fn held(path: &Path, words: &[u64; WORDS]) -> Option<Left> {
    let (pid, tid) = ((words[HELD] >> 32) as u32, words[HELD] as u32);
    let count = threads::suspensions(pid, tid, words[CREATED])?;
    Some(Left { record: path.to_path_buf(), sampler: words[SAMPLER] as u32, pid, tid, count })
}

/// Lets go on what a sampler of this process, which has ended, held by that record; removes the record.
pub fn settle(path: &Path) {
    if let Some(left) = read(path).ok().and_then(|words| held(path, &words))
        && left.count > 0
    {
        threads::resume(left.tid);
    }
    let _ = fs::remove_file(path);
}

/// What samplers that are gone, and their supervisors, left suspended. Records of which nothing is left are removed.
pub fn left() -> Vec<Left> {
    let Ok(entries) = fs::read_dir(folder()) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let paths = paths.filter(|path| path.extension().is_some_and(|suffix| suffix == SUFFIX));
    paths.take(MAX_RECORDS).filter_map(|path| orphan(&path)).collect()
}

fn orphan(path: &Path) -> Option<Left> {
    let words = read(path).ok()?;
    // A sampler that lives on lets go by itself, and a supervisor does it for a sampler that does not.
    let owners = [SUPERVISOR, SAMPLER].map(|at| (words[at], words[at + 1]));
    if owners.into_iter().any(|(pid, created)| pid != 0 && alive(pid, created)) {
        return None;
    }
    let found = held(path, &words).filter(|left| left.count > 0);
    if found.is_none() {
        let _ = fs::remove_file(path);
    }
    found
}

/// Lets go on what a sampler that is gone left suspended, by its record, which is removed then. False where it is not
/// suspended any more, or by somebody else too.
pub fn resume(record: &Path) -> bool {
    let resumed = orphan(record).is_some_and(|left| left.count == 1 && threads::resume(left.tid));
    if resumed {
        let _ = fs::remove_file(record);
    }
    resumed
}
