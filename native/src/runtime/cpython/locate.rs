//! Finds `_PyRuntime` and tells its version.
//!
//! In this order: the dynamic symbol (in every ordinary build, read from memory alone); the symbol table or the section
//! `.PyRuntime` of the file (stripped static builds from 3.11); a scan of the writable data for the cookie (3.13+) or for
//! an interpreter list that is consistent. Whatever is found is checked: interpreter → threads → interpreter.

use std::fs::File;
use std::io;
use std::sync::Mutex;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ReadCache};

use super::image::Image;
use super::offsets::{COOKIE, DEBUG_OFFSETS_BYTES, Offsets};
use super::values::Layout;
use super::version::{Version, minor_in_path, version_string};
use super::word;
use crate::elf_symbols;
use crate::error::{Error, ErrorKind, ReadError};
use crate::memory::Memory;
use crate::target::Mapping;
use crate::target::os::file_identity;

/// Most bytes of writable data of one image searched.
const MAX_SCAN_BYTES: u64 = 64 << 20;
/// Bytes searched at a time.
const SCAN_STEP: usize = 1 << 20;
/// Most loaded files looked at.
const MAX_IMAGES: usize = 4096;
/// Most thread states followed in a check.
const MAX_CHECKED: usize = 64;
/// Most thread states among which the main thread is looked for: it is the oldest, at the end.
const MAX_SCANNED_THREADS: usize = 10_000;

/// An interpreter that can be read.
#[derive(Debug)]
pub(super) struct Found {
    pub runtime: u64,
    pub offsets: Offsets,
    pub layout: Layout,
    pub version: String,
}

type OpenFile<'a> = &'a dyn Fn(&Mapping) -> io::Result<File>;

/// The interpreter of a process. None: there is none, or it is not initialized yet.
///
/// Errors: one is there, of a kind that cannot be read.
pub(super) fn locate(
    memory: &dyn Memory,
    mappings: &[Mapping],
    open_file: OpenFile<'_>,
) -> Result<Option<Found>, Error> {
    let images = images(memory, mappings);
    for image in &images {
        if let Ok(Some(runtime)) = image.symbol(memory, "_PyRuntime") {
            return identify(memory, mappings, image, runtime);
        }
    }
    let mut unopened = None;
    for image in images.iter().filter(|image| likely(mappings, image)) {
        match open_file(&mappings[image.mapping]).map(runtime_in_file) {
            Ok(Some(address)) => return identify(memory, mappings, image, image.bias.wrapping_add(address)),
            Ok(None) => {}
            Err(error) => unopened = Some((image, error)),
        }
        if let Some(runtime) = scan(memory, mappings, image) {
            return identify(memory, mappings, image, runtime);
        }
    }
    for image in &images {
        if let Ok(Some(_)) = image.symbol(memory, "PyInterpreterState_Head") {
            let minor = minor_in_path(&mappings[image.mapping].path);
            return Err(unsupported(minor.map_or("CPython 3.6 or older".into(), |v| format!("CPython {v}"))));
        }
    }
    match unopened {
        Some((image, error)) if minor_in_path(&mappings[image.mapping].path).is_some() => Err(Error::new(
            ErrorKind::Unsupported,
            format!("{} was replaced on disk and cannot be opened: {error}", mappings[image.mapping].path),
            "restart the process, or run remoteprof as root",
        )),
        _ => Ok(None),
    }
}

/// The error of an interpreter that was found but could not be read.
pub(super) fn unreadable(version: &str, error: ReadError) -> Error {
    let kind = match error {
        ReadError::Gone => ErrorKind::NotFound,
        ReadError::Denied => ErrorKind::Permission,
        _ => ErrorKind::Unsupported,
    };
    Error::new(kind, format!("CPython {version} could not be read: {error}"), "run `remoteprof doctor`")
}

fn unsupported(what: String) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{what} is not supported"),
        "CPython 3.8 to 3.14 (GIL builds) can be read",
    )
}

/// Every loaded ELF or PE file, the likeliest to hold an interpreter first.
fn images(memory: &dyn Memory, mappings: &[Mapping]) -> Vec<Image> {
    let first = |mapping: &&Mapping| mapping.offset == 0 && (mapping.path.starts_with('/') || mapping.is_module());
    let mut order: Vec<usize> =
        mappings.iter().enumerate().filter(|(_, mapping)| first(mapping)).map(|(index, _)| index).collect();
    order.sort_by_key(|&index| {
        let name = name(&mappings[index].path);
        (!name.starts_with("libpython"), !name.starts_with("python"), index)
    });
    order.into_iter().take(MAX_IMAGES).filter_map(|index| Image::read(memory, mappings, index)).collect()
}

/// Whether an image is worth a look into its file: executables, and what is called python.
fn likely(mappings: &[Mapping], image: &Image) -> bool {
    let name = name(&mappings[image.mapping].path);
    name.contains("python") || (image.interpreted && !name.starts_with("libc"))
}

fn name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The file address of `_PyRuntime` by the symbol table or the section named after it. Of one file it is found out once:
/// a process is asked again and again whether it has become a Python.
fn runtime_in_file(file: File) -> Option<u64> {
    static KNOWN: Mutex<Vec<([u64; 4], Option<u64>)>> = Mutex::new(Vec::new());
    let identity = file_identity(&file);
    let mut known = KNOWN.lock().ok()?;
    if let Some((_, address)) = known.iter().find(|(file, _)| Some(*file) == identity) {
        return *address;
    }
    let cache = ReadCache::new(file);
    let symbols = elf_symbols::beginning_with(&cache, &[b"_PyRuntime"]);
    let by_symbol = symbols.iter().find(|symbol| symbol.name == b"_PyRuntime").map(|symbol| symbol.range.start);
    let address = by_symbol.or_else(|| {
        let file: ElfFile64<'_, object::Endianness, _> = ElfFile64::parse(&cache).ok()?;
        file.section_by_name(".PyRuntime").map(|section| section.address())
    });
    if known.len() >= MAX_IMAGES {
        known.clear();
    }
    known.extend(identity.map(|identity| (identity, address)));
    address
}

/// Searches the writable data of an image for a `_PyRuntime`.
fn scan(memory: &dyn Memory, mappings: &[Mapping], image: &Image) -> Option<u64> {
    let (start, end) = (image.bias.wrapping_add(image.start), image.bias.wrapping_add(image.end));
    let table = minor_in_path(&mappings[image.mapping].path)
        .or_else(|| mappings.iter().find_map(|mapping| minor_in_path(&mapping.path)))
        .and_then(|version| Offsets::table(version.minor, image.is_windows()));
    let mut left = MAX_SCAN_BYTES;
    let mut buffer = vec![0; SCAN_STEP + 8];
    let writable =
        |mapping: &&Mapping| mapping.permissions.starts_with("rw") && mapping.start < end && mapping.end > start;
    for mapping in mappings.iter().filter(writable) {
        let (mut at, end) = (mapping.start.max(start), mapping.end.min(end));
        while at < end && left > 0 {
            // 8 bytes more than a step: a pair of words can lie across its end.
            let size = (SCAN_STEP + 8).min((end - at) as usize);
            let piece = &mut buffer[..size];
            if memory.read(at, piece).is_err() {
                break;
            }
            for offset in (0..size.saturating_sub(8)).step_by(8) {
                let candidate = at + offset as u64;
                if piece[offset..offset + 8] == *COOKIE {
                    return Some(candidate);
                }
                // struct pyinterpreters: head, then main; the same while there is one interpreter.
                let pair = (word(piece, offset as u32), word(piece, offset as u32 + 8));
                if let (Some(offsets), (Some(head), Some(main))) = (table, pair)
                    && head == main
                    && head > 0xffff
                    && head % 8 == 0
                {
                    let runtime = candidate.wrapping_sub(u64::from(offsets.runtime_interpreters));
                    if check(memory, offsets, runtime) == Check::Ready && has_main(memory, offsets, runtime) {
                        return Some(runtime);
                    }
                }
            }
            at += SCAN_STEP as u64;
            left = left.saturating_sub(SCAN_STEP as u64);
        }
    }
    None
}

/// Whether the main thread that a `_PyRuntime` names is among its threads: other words point to interpreters, too.
fn has_main(memory: &dyn Memory, offsets: &Offsets, runtime: u64) -> bool {
    let field = |address: u64, offset: u32| memory.read_u64(address.wrapping_add(u64::from(offset)));
    let walk = || -> Result<bool, ReadError> {
        let main = field(runtime, offsets.runtime_main_thread)?;
        let mut thread = field(field(runtime, offsets.runtime_interpreters)?, offsets.interpreter_threads)?;
        for _ in 0..MAX_SCANNED_THREADS {
            if thread == 0 || field(thread, offsets.thread_pthread)? == main {
                break;
            }
            thread = field(thread, offsets.thread_next)?;
        }
        Ok(main != 0 && thread != 0)
    };
    walk().unwrap_or(false)
}

/// The version and offsets of the `_PyRuntime` at `runtime`, checked.
fn identify(memory: &dyn Memory, mappings: &[Mapping], image: &Image, runtime: u64) -> Result<Option<Found>, Error> {
    let mut head = [0; DEBUG_OFFSETS_BYTES];
    if let Err(error) = memory.read(runtime, &mut head) {
        return Err(unreadable("", error));
    }
    let (version, offsets, layout) = if head[..8] == *COOKIE {
        let version = Version::from_hex(word(&head, 8).unwrap_or(0));
        if word(&head, 16) != Some(0) {
            return Err(unsupported(format!("CPython {version} free-threaded")));
        }
        if version.major != 3 || !matches!(version.minor, 13 | 14) {
            return Err(unsupported(format!("CPython {version}")));
        }
        let bad = |error| unreadable(&version.to_string(), error);
        let offsets = Offsets::from_debug(version.minor, &head).map_err(bad)?;
        let layout = Layout::from_debug(version.minor, &head).map_err(bad)?;
        (version, Offsets { windows: image.is_windows(), ..offsets }, layout)
    } else {
        let Some(version) = version_of(memory, mappings, image) else {
            return Err(unsupported("a CPython that does not tell its version".into()));
        };
        let tables = Offsets::table(version.minor, image.is_windows()).zip(Layout::table(version.minor));
        let Some((offsets, layout)) = tables.filter(|_| version.major == 3) else {
            return Err(unsupported(format!("CPython {version}")));
        };
        (version, *offsets, *layout)
    };
    match check(memory, &offsets, runtime) {
        Check::Ready => Ok(Some(Found { runtime, offsets, layout, version: version.to_string() })),
        Check::NotYet => Ok(None),
        Check::Wrong => Err(unsupported(format!("this build of CPython {version}"))),
    }
}

/// For the versions without debug offsets: `Py_Version` (3.11+), else the file name, with the patch level as the
/// image's own PY_VERSION string has it; else that string alone.
fn version_of(memory: &dyn Memory, mappings: &[Mapping], image: &Image) -> Option<Version> {
    if let Ok(Some(address)) = image.symbol(memory, "Py_Version")
        && let Ok(hex) = memory.read_u32(address)
    {
        return Some(Version::from_hex(u64::from(hex)));
    }
    let by_name = minor_in_path(&mappings[image.mapping].path);
    let path = &mappings[image.mapping].path;
    let parts = || mappings.iter().filter(|mapping| mapping.path == *path && !mapping.permissions.contains('w'));
    let by_name = by_name.or_else(|| mappings.iter().find_map(|mapping| minor_in_path(&mapping.path)));
    version_string(memory, parts(), by_name).or(by_name)
}

/// What following the lists shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Ready,
    NotYet,
    Wrong,
}

/// Whether the first interpreter's threads all point back to it.
fn check(memory: &dyn Memory, offsets: &Offsets, runtime: u64) -> Check {
    let field = |address: u64, offset: u32| memory.read_u64(address.wrapping_add(u64::from(offset)));
    let walk = || -> Result<Check, ReadError> {
        let interpreter = field(runtime, offsets.runtime_interpreters)?;
        if interpreter == 0 {
            return Ok(Check::NotYet);
        }
        let mut thread = field(interpreter, offsets.interpreter_threads)?;
        if thread == 0 {
            return Ok(Check::NotYet);
        }
        for _ in 0..MAX_CHECKED {
            if field(thread, offsets.thread_interpreter)? != interpreter {
                return Ok(Check::Wrong);
            }
            thread = field(thread, offsets.thread_next)?;
            if thread == 0 {
                break;
            }
        }
        Ok(Check::Ready)
    };
    // A list that is being changed is read once more.
    match walk() {
        Ok(Check::Wrong) | Err(_) => walk().unwrap_or(Check::Wrong),
        Ok(check) => check,
    }
}
