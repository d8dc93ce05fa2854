//! Split DWARF: the parts that were left in `.dwo` files, or collected in a `.dwp`.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, DwarfFileType, DwarfPackage, EndianSlice, LittleEndian, Unit, UnitRef};

use super::super::elf::Elf;
use super::super::file::{self, Arena};
use super::{Slice, load_sections};

/// Most bytes of one `.dwo` path.
const MAX_PATH: usize = 4096;

/// A unit that was left in another file.
pub struct Part<'a> {
    /// Its sections.
    pub dwarf: Dwarf<Slice<'a>>,
    /// The unit, with what its skeleton tells.
    pub unit: Unit<Slice<'a>>,
}

/// Where the parts of a module are looked for.
pub struct Split<'a> {
    arena: &'a Arena,
    roots: Vec<PathBuf>,
    /// The module's path, and its debug file's.
    files: Vec<PathBuf>,
    package: OnceCell<Option<DwarfPackage<Slice<'a>>>>,
}

impl<'a> Split<'a> {
    /// Parts of the module that is `files` (paths as the target sees them), under `roots`.
    pub fn new(arena: &'a Arena, roots: &[PathBuf], files: Vec<PathBuf>) -> Self {
        Split { arena, roots: roots.to_vec(), files, package: OnceCell::new() }
    }

    /// The part that belongs to a skeleton.
    pub fn load(&self, skeleton: UnitRef<'_, Slice<'a>>) -> Option<Part<'a>> {
        let id = skeleton.dwo_id?;
        if let Some(package) = self.package.get_or_init(|| self.find_package())
            && let Ok(Some(dwarf)) = package.find_cu(id, skeleton.dwarf)
            && let Some(part) = part_of(dwarf, skeleton)
        {
            return Some(part);
        }
        let name = skeleton.attr_string(skeleton.dwo_name().ok()??).ok()?;
        let directory = skeleton.comp_dir.map_or(&[][..], |directory| directory.slice());
        if name.len() + directory.len() > MAX_PATH {
            return None;
        }
        let name = Path::new(std::str::from_utf8(name.slice()).ok()?);
        let path = Path::new(std::str::from_utf8(directory).ok()?).join(name);
        let beside = self.files.iter().filter_map(|file| Some(file.parent()?.join(name.file_name()?)));
        for path in std::iter::once(path.clone()).chain(beside) {
            for root in &self.roots {
                let Some(elf) = self.open(&under(root, &path)) else { continue };
                let (mut dwarf, _) = load_sections(|id| match id.dwo_name() {
                    Some(name) => elf.contents(self.arena, name),
                    None => &[],
                });
                dwarf.make_dwo(skeleton.dwarf);
                if let Some(part) = part_of(dwarf, skeleton) {
                    return Some(part);
                }
            }
        }
        None
    }

    fn open(&self, path: &Path) -> Option<Elf<'a>> {
        Elf::parse(self.arena.file(&file::open(path).ok()?).ok()?)
    }

    fn find_package(&self) -> Option<DwarfPackage<Slice<'a>>> {
        for path in &self.files {
            let mut name = path.file_name()?.to_os_string();
            name.push(".dwp");
            for root in &self.roots {
                let Some(elf) = self.open(&under(root, &path.with_file_name(&name))) else { continue };
                let empty = EndianSlice::new(&[], LittleEndian);
                let section = |id: gimli::SectionId| -> Result<Slice<'a>, gimli::Error> {
                    Ok(EndianSlice::new(
                        id.dwo_name().map_or(&[][..], |name| elf.contents(self.arena, name)),
                        LittleEndian,
                    ))
                };
                if let Ok(package) = DwarfPackage::load(section, empty) {
                    return Some(package);
                }
            }
        }
        None
    }
}

/// The unit of a `.dwo` that has its skeleton's id.
fn part_of<'a>(mut dwarf: Dwarf<Slice<'a>>, skeleton: UnitRef<'_, Slice<'a>>) -> Option<Part<'a>> {
    dwarf.file_type = DwarfFileType::Dwo;
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if matches!(header.type_(), gimli::UnitType::SplitType { .. } | gimli::UnitType::Type { .. }) {
            continue;
        }
        let Ok(mut unit) = dwarf.unit(header) else { continue };
        if unit.dwo_id == skeleton.dwo_id {
            unit.copy_relocated_attributes(skeleton.unit);
            return Some(Part { dwarf, unit });
        }
    }
    None
}

/// `path` as seen from `root`.
pub fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
