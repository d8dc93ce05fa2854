//! Debug information that is kept in a file of its own: found by build id, by `.gnu_debuglink`, or given.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::dwarf::split::under;
use super::elf::Elf;
use super::file::{self, Arena};

/// Where distributions put such files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// What is known of a module before it is opened.
#[derive(Clone, Copy)]
pub struct Place<'p> {
    /// Its path as the target sees it; empty for an image.
    pub path: &'p Path,
    /// Folders that stand for the target's `/`, the surest first.
    pub roots: &'p [PathBuf],
    /// Build id of what is mapped; empty = unknown.
    pub build_id: &'p [u8],
    /// A debug file that the caller has, such as one of a debuginfod server.
    pub debug_file: Option<&'p File>,
}

impl Default for Place<'_> {
    /// Nothing known.
    fn default() -> Self {
        Place { path: Path::new(""), roots: &[], build_id: &[], debug_file: None }
    }
}

/// A path as ELF files have it. On Windows there are none: one that cannot be told is empty.
fn path_of(bytes: &[u8]) -> &Path {
    #[cfg(unix)]
    return Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes));
    #[cfg(windows)]
    return Path::new(std::str::from_utf8(bytes).unwrap_or_default());
}

/// The debug file of `elf`, and its path; an empty path for the given one.
pub fn find<'a>(arena: &'a Arena, elf: &Elf<'a>, place: &Place<'_>) -> Option<(Elf<'a>, PathBuf)> {
    let id = elf.build_id();
    if let Some(file) = place.debug_file
        && let Some(found) = parse(arena, file)
        && !id.is_empty()
        && found.build_id() == id
    {
        return Some((found, PathBuf::new()));
    }
    by_build_id(arena, id, place).or_else(|| by_link(arena, elf, id, place))
}

/// The file that dwz moved common parts of several modules' debug information to.
pub fn find_alternate<'a>(arena: &'a Arena, elf: &Elf<'a>, place: &Place<'_>) -> Option<Elf<'a>> {
    let (name, id) = elf.alternate_link()?;
    let name = path_of(name);
    let path = place.path.parent().unwrap_or(Path::new("/")).join(name);
    let beside = place.roots.iter().filter_map(|root| {
        let found = parse(arena, &file::open(&under(root, &path)).ok()?)?;
        (found.build_id() == id && !id.is_empty()).then_some(found)
    });
    beside.into_iter().next().or_else(|| by_build_id(arena, id, place).map(|(found, _)| found))
}

fn by_build_id<'a>(arena: &'a Arena, id: &[u8], place: &Place<'_>) -> Option<(Elf<'a>, PathBuf)> {
    if id.len() < 2 {
        return None;
    }
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("{DEBUG_ROOT}/.build-id/{}/{}.debug", &hex[..2], &hex[2..]));
    place.roots.iter().find_map(|root| {
        let found = parse(arena, &file::open(&under(root, &path)).ok()?)?;
        (found.build_id() == id).then(|| (found, path.clone()))
    })
}

fn by_link<'a>(arena: &'a Arena, elf: &Elf<'a>, id: &[u8], place: &Place<'_>) -> Option<(Elf<'a>, PathBuf)> {
    let (name, crc) = elf.debug_link()?;
    let name = path_of(name);
    // A name, not a way to somewhere else.
    if name.file_name() != Some(name.as_os_str()) {
        return None;
    }
    let folder = place.path.parent()?;
    let paths = [folder.join(name), folder.join(".debug").join(name), under(Path::new(DEBUG_ROOT), folder).join(name)];
    for path in paths {
        for root in place.roots {
            let Ok(file) = file::open(&under(root, &path)) else { continue };
            let Ok(bytes) = arena.file(&file) else { continue };
            let Some(found) = Elf::parse(bytes) else { continue };
            let other = found.build_id();
            let same = if id.is_empty() || other.is_empty() {
                bytes.whole().map(crc32fast::hash) == Some(crc)
            } else {
                id == other
            };
            if same && found.has_debug_info() {
                return Some((found, path));
            }
        }
    }
    None
}

fn parse<'a>(arena: &'a Arena, file: &File) -> Option<Elf<'a>> {
    Elf::parse(arena.file(file).ok()?)
}
