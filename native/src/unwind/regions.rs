//! The executable mappings of a process, each with the unwind tables of its file.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustc_hash::FxHashMap;

use super::elf::{Elf, HEAD, hash_of};
use super::{NativeFrame, pe};
use crate::memory::{self, Memory};
use crate::target::Mapping;
use crate::target::os::file_identity;

/// Most executable mappings of one process that are kept; code in further ones counts as unknown.
pub const MAX_REGIONS: usize = 100_000;

/// Most files of one stack of which that is looked at.
const MAX_HEADS: usize = 64;

/// First bytes that are not the file's, and are found by so many looks in a row, are taken for the program's doing.
const MAX_DOUBTS: u8 = 10;

/// Opens the file behind a mapping.
pub type OpenFile<'a> = &'a dyn Fn(&Mapping) -> io::Result<File>;

/// One executable mapping.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    /// Its place in the list of mappings last given.
    pub index: u32,
    /// What was added to the file's addresses.
    pub bias: u64,
    /// The file's tables. None for JIT'd code, and for files that are no ELF files or could not be read.
    pub elf: Option<Arc<Elf>>,
    /// The tables of a module of Windows, read when code of it is first met. None: it has none that make sense.
    pe: OnceCell<Option<Box<pe::Tables>>>,
    /// Where the file starts in memory, and a hash of its first bytes. None: they are not mapped.
    head: Option<(u64, u64)>,
    /// Another file was found in its place.
    replaced: bool,
    /// How often in a row these first bytes were found, which are not the file's.
    doubts: u8,
}

impl Region {
    /// `before` is what was known of the same mapping.
    fn new(
        memory: &dyn Memory,
        (mapping, start): (&Mapping, Option<u64>),
        elf: Option<Arc<Elf>>,
        before: Option<&Region>,
    ) -> Region {
        let bias = elf.as_ref().and_then(|elf| elf.bias(mapping.start, mapping.offset));
        let head = start.and_then(|start| Some((start, head(memory, start)?)));
        // By the time that its file was read another may be in its place, or none. A program may change its own headers,
        // too: those are found over and over.
        let known = elf.as_ref().map(|elf| elf.head);
        let other = start.is_some() && head.is_none_or(|(_, hash)| known.is_some_and(|known| known != hash));
        let earlier = before.filter(|before| before.head == head).map_or(0, |before| before.doubts);
        let doubts = if other { (earlier + 1).min(MAX_DOUBTS) } else { 0 };
        Region {
            mapping: mapping.clone(),
            index: 0,
            bias: bias.unwrap_or(0),
            elf: elf.filter(|_| bias.is_some()),
            pe: OnceCell::new(),
            head,
            replaced: other && doubts < MAX_DOUBTS,
            doubts,
        }
    }

    /// The kernel's page of three functions, each no more than a `syscall` and a `ret`.
    pub fn is_vsyscall(&self) -> bool {
        self.mapping.path == "[vsyscall]"
    }

    /// Whether it is a module of Windows.
    pub fn is_module(&self) -> bool {
        self.mapping.is_module()
    }

    /// Whether no table tells how to unwind here.
    pub fn bare(&self) -> bool {
        !self.is_vsyscall() && !self.is_module() && self.elf.as_ref().is_none_or(|elf| elf.bare())
    }
}

/// All of them, in ascending order.
#[derive(Debug, Default)]
pub struct Regions(Vec<Region>);

impl Regions {
    /// The index of the region that holds `address`.
    pub fn find(&self, address: u64) -> Option<usize> {
        let index = self.0.partition_point(|region| region.mapping.start <= address).checked_sub(1)?;
        (address < self.0[index].mapping.end).then_some(index)
    }

    /// A region.
    pub fn get(&self, index: usize) -> Option<&Region> {
        self.0.get(index)
    }

    /// The tables of a region that is a module of Windows.
    pub fn tables(&self, memory: &dyn Memory, index: usize) -> Option<&pe::Tables> {
        let region = self.0.get(index).filter(|region| region.is_module())?;
        let read = || {
            let known = self.0.iter().filter_map(|region| region.pe.get()?.as_ref()).map(|tables| tables.count());
            let left = pe::MAX_FUNCTIONS.1.saturating_sub(known.sum());
            pe::Tables::read(memory, &region.mapping, left).map(Box::new)
        };
        region.pe.get_or_init(read).as_deref()
    }

    /// Modules of Windows whose tables made no sense are read anew when code of them is next met. False if there are no
    /// modules.
    pub fn read_again(&mut self) -> bool {
        let mut modules = self.0.iter_mut().filter(|region| region.is_module()).peekable();
        let any = modules.peek().is_some();
        modules.filter(|region| matches!(region.pe.get(), Some(None))).for_each(|region| region.pe = OnceCell::new());
        any
    }

    /// Whether one of the files that `frames` are in is not there any more, and perhaps another in its place. Such are
    /// read anew with the next list.
    pub fn replaced(&mut self, memory: &dyn Memory, frames: &[NativeFrame]) -> bool {
        let (mut heads, mut last) = (Vec::<(usize, memory::Region, u64)>::new(), u32::MAX);
        let mut any = false;
        for frame in frames {
            if frame.mapping == last {
                continue;
            }
            last = frame.mapping;
            let Some(index) = self.find(frame.lookup) else { continue };
            any |= self.0[index].replaced;
            let Some((address, hash)) = self.0[index].head else { continue };
            if heads.len() < MAX_HEADS && heads.iter().all(|head| head.0 != index) {
                heads.push((index, memory::Region { address, size: HEAD as u32 }, hash));
            }
        }
        let wanted: Vec<memory::Region> = heads.iter().map(|head| head.1).collect();
        let mut bytes = vec![0; HEAD * wanted.len()];
        // One that has ended has lost all of them, and none is wrong.
        let Ok(filled) = memory.read_regions(&wanted, &mut bytes) else { return false };
        for ((index, _, hash), (number, bytes)) in heads.iter().zip(bytes.chunks_exact(HEAD).enumerate()) {
            if number * HEAD >= filled || hash_of(bytes) != *hash {
                self.0[*index].replaced = true;
                any = true;
            }
        }
        any
    }

    /// All regions.
    pub fn iter(&self) -> impl Iterator<Item = &Region> {
        self.0.iter()
    }

    /// Takes over a new list of mappings; true if code has come or gone.
    pub fn update(&mut self, memory: &dyn Memory, mappings: &[Mapping], open: OpenFile<'_>) -> bool {
        let mut old: FxHashMap<u64, Region> =
            std::mem::take(&mut self.0).into_iter().map(|region| (region.mapping.start, region)).collect();
        let mut changed = false;
        let mut doubted: FxHashMap<u64, Region> = FxHashMap::default();
        let mut files: FxHashMap<(&str, u64, &str), Option<Arc<Elf>>> = FxHashMap::default();
        let executable = || mappings.iter().enumerate().filter(|(_, mapping)| mapping.executable()).take(MAX_REGIONS);
        for (index, mapping) in executable() {
            match old.remove(&mapping.start) {
                Some(mut region) if region.mapping == *mapping && !region.replaced => {
                    files.insert(key(mapping), region.elf.clone());
                    region.index = index as u32;
                    self.0.push(region);
                }
                before => {
                    changed = true;
                    let same = before.filter(|region| region.mapping == *mapping);
                    doubted.extend(same.map(|region| (mapping.start, region)));
                }
            }
        }
        if changed {
            let kept: Vec<u64> = self.0.iter().map(|region| region.mapping.start).collect();
            for (index, mapping) in executable() {
                if kept.binary_search(&mapping.start).is_err() {
                    let load = || load(memory, mappings, mapping, open);
                    let elf = if mapping.inode == 0 {
                        load()
                    } else {
                        files.entry(key(mapping)).or_insert_with(load).clone()
                    };
                    let at = (mapping, start(mappings, mapping));
                    let region = Region::new(memory, at, elf, doubted.get(&mapping.start));
                    self.0.push(Region { index: index as u32, ..region });
                }
            }
            self.0.sort_by_key(|region| region.mapping.start);
        }
        changed || !old.is_empty()
    }
}

fn key(mapping: &Mapping) -> (&str, u64, &str) {
    (&mapping.device, mapping.inode, &mapping.path)
}

fn load(memory: &dyn Memory, mappings: &[Mapping], mapping: &Mapping, open: OpenFile<'_>) -> Option<Arc<Elf>> {
    if mapping.path == "[vdso]" {
        return Elf::from_memory(memory, mapping.start, mapping.end).map(Arc::new);
    }
    if mapping.inode == 0 {
        return None;
    }
    if let Some(elf) = open(mapping).ok().and_then(shared) {
        return Some(elf);
    }
    // The file is gone, or is not ours to read: its tables are loaded, and its headers too.
    let above = mappings.get(mappings.partition_point(|other| other.start <= mapping.start)..)?;
    let end = above.iter().take_while(|other| key(other) == key(mapping)).last().unwrap_or(mapping).end;
    Elf::from_memory(memory, start(mappings, mapping)?, end).map(Arc::new)
}

/// Where the file that is mapped there starts in memory.
fn start(mappings: &[Mapping], mapping: &Mapping) -> Option<u64> {
    if mapping.is_module() {
        return Some(mapping.start);
    }
    if mapping.inode == 0 {
        return None;
    }
    let at = mappings.partition_point(|other| other.start <= mapping.start);
    // Code may be mapped from the file's first page too: the headers are in the lowest such mapping.
    let below = mappings.get(..at)?.iter().rev().take_while(|other| key(other) == key(mapping));
    below.filter(|other| other.offset == 0).last().map(|base| base.start)
}

fn head(memory: &dyn Memory, start: u64) -> Option<u64> {
    let mut bytes = [0; HEAD];
    memory.read(start, &mut bytes).ok().map(|()| hash_of(&bytes))
}

/// One file's tables are read once, however many processes map it.
type Store = Mutex<FxHashMap<[u64; 4], Weak<Elf>>>;

fn shared(file: File) -> Option<Arc<Elf>> {
    static STORE: OnceLock<Store> = OnceLock::new();
    let key = file_identity(&file)?;
    let store = STORE.get_or_init(Store::default);
    let known = store.lock().ok()?.get(&key).and_then(Weak::upgrade);
    if known.is_some() {
        return known;
    }
    let elf = Arc::new(Elf::from_file(file)?);
    let mut store = store.lock().ok()?;
    store.retain(|_, known| known.strong_count() > 0);
    store.insert(key, Arc::downgrade(&elf));
    Some(elf)
}
