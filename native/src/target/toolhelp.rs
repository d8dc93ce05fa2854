//! The modules of a Windows process, by the rules for the Toolhelp snapshot. The rules are the same wherever they are
//! tested; what Windows answers is behind [`Toolhelp`].

use std::collections::HashSet;

use super::Mapping;

/// ERROR_BAD_LENGTH: the list changed while the snapshot was taken; it is to be taken again.
pub const BAD_LENGTH: u32 = 24;
/// ERROR_NO_MORE_FILES: the usual end of a list.
pub const NO_MORE: u32 = 18;
/// How long a snapshot is tried again, nanoseconds.
pub const PATIENCE_NS: u64 = 1_000_000_000;
/// Most modules of one process.
pub const MAX_MODULES: usize = 16_384;
/// UTF-16 units that the path of an entry has room for, its NUL among them (MODULEENTRY32W).
pub const PATH_UNITS: usize = 260;

/// One entry of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Where the module is loaded.
    pub base: u64,
    /// Bytes that it takes up there.
    pub size: u32,
    /// The path of its file; one that fills [`PATH_UNITS`] may be cut.
    pub path: Vec<u16>,
}

/// What is asked of Windows. Errors are its error numbers.
pub trait Toolhelp {
    /// A snapshot; closed when it is dropped.
    type Snapshot;
    /// Takes a snapshot of the modules.
    fn snapshot(&mut self) -> Result<Self::Snapshot, u32>;
    /// The first entry, that of the program itself.
    fn first(&mut self, snapshot: &Self::Snapshot) -> Result<Entry, u32>;
    /// The one after the last that was given.
    fn next(&mut self, snapshot: &Self::Snapshot) -> Result<Entry, u32>;
    /// The whole path of the module at `base`.
    fn long_path(&mut self, base: u64) -> Option<Vec<u16>>;
    /// A clock, nanoseconds.
    fn now(&mut self) -> u64;
    /// Waits a little before the next attempt.
    fn wait(&mut self);
}

/// What a list came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// The modules in the order of the snapshot, the program first; none where there is no list at all.
    pub mappings: Vec<Mapping>,
    /// Why the list is missing or not whole; "" = it is whole.
    pub trouble: String,
}

/// Lists the modules of a process.
pub fn list<T: Toolhelp>(toolhelp: &mut T) -> Modules {
    let none = |what: &str, error: u32| Modules {
        mappings: Vec::new(),
        trouble: format!("the modules cannot be listed: {what} failed with error {error}"),
    };
    let began = toolhelp.now();
    let snapshot = loop {
        match toolhelp.snapshot() {
            Ok(snapshot) => break snapshot,
            Err(BAD_LENGTH) if toolhelp.now().saturating_sub(began) < PATIENCE_NS => toolhelp.wait(),
            Err(error) => return none("CreateToolhelp32Snapshot", error),
        }
    };
    let mut entry = match toolhelp.first(&snapshot) {
        Ok(entry) => entry,
        Err(error) => return none("Module32First", error),
    };
    let mut found = Modules::default();
    let mut bases = HashSet::new();
    loop {
        // While libraries come and go an entry may be told twice.
        if entry.size > 0 && bases.insert(entry.base) {
            found.mappings.push(mapping(toolhelp, &entry));
        }
        if bases.len() >= MAX_MODULES {
            found.trouble = format!("there are more modules than the {MAX_MODULES} that are looked at");
            return found;
        }
        entry = match toolhelp.next(&snapshot) {
            Ok(entry) => entry,
            Err(NO_MORE) => return found,
            Err(error) => {
                found.trouble = format!("the list of modules ended early: Module32Next failed with error {error}");
                return found;
            }
        };
    }
}

/// What an entry says, its path whole.
pub fn mapping<T: Toolhelp>(toolhelp: &mut T, entry: &Entry) -> Mapping {
    let long = if entry.path.len() + 1 >= PATH_UNITS { toolhelp.long_path(entry.base) } else { None };
    Mapping {
        start: entry.base,
        end: entry.base.saturating_add(u64::from(entry.size)),
        // The image as a whole: its headers, code and data are not told apart here.
        permissions: "r-xp".to_string(),
        offset: 0,
        device: String::new(),
        inode: 0,
        path: String::from_utf16_lossy(long.as_ref().unwrap_or(&entry.path)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// A Windows that answers as it is told.
    #[derive(Default)]
    struct Fake {
        snapshots: Vec<u32>,
        entries: Vec<Result<Entry, u32>>,
        long: Option<Vec<u16>>,
        at: usize,
        clock: u64,
        taken: usize,
        open: Rc<Cell<i32>>,
    }

    struct Handle(Rc<Cell<i32>>);

    impl Drop for Handle {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }

    impl Toolhelp for Fake {
        type Snapshot = Handle;

        fn snapshot(&mut self) -> Result<Handle, u32> {
            self.taken += 1;
            match self.snapshots.get(self.taken - 1).or(self.snapshots.last()) {
                Some(&error) if error != 0 => Err(error),
                _ => {
                    self.open.set(self.open.get() + 1);
                    Ok(Handle(self.open.clone()))
                }
            }
        }

        fn first(&mut self, _: &Handle) -> Result<Entry, u32> {
            self.entries[0].clone()
        }

        fn next(&mut self, _: &Handle) -> Result<Entry, u32> {
            self.at += 1;
            self.entries.get(self.at).cloned().unwrap_or(Err(NO_MORE))
        }

        fn long_path(&mut self, _: u64) -> Option<Vec<u16>> {
            self.long.clone()
        }

        fn now(&mut self) -> u64 {
            self.clock
        }

        fn wait(&mut self) {
            self.clock += 10_000_000;
        }
    }

    fn entry(base: u64, size: u32, path: &str) -> Result<Entry, u32> {
        Ok(Entry { base, size, path: path.encode_utf16().collect() })
    }

    fn listed(mut fake: Fake) -> (Modules, Fake) {
        let found = list(&mut fake);
        assert_eq!(fake.open.get(), 0, "every snapshot is closed");
        (found, fake)
    }

    #[test]
    fn modules_are_base_size_and_path_the_program_first() {
        let entries = vec![entry(0x4000, 0x1000, "C:\\a\\b.exe"), entry(0x1000, 0x500, "C:\\ü.dll")];
        let (found, _) = listed(Fake { entries, ..Fake::default() });
        let told: Vec<_> = found.mappings.iter().map(|m| (m.start, m.end, m.offset, m.path.as_str())).collect();
        assert_eq!(told, [(0x4000, 0x5000, 0, "C:\\a\\b.exe"), (0x1000, 0x1500, 0, "C:\\ü.dll")]);
        assert!(found.mappings.iter().all(Mapping::executable));
        assert_eq!(found.trouble, "");
    }

    #[test]
    fn a_bad_length_is_tried_again_for_a_second_at_most() {
        let entries = vec![entry(1, 1, "x")];
        let snapshots = vec![BAD_LENGTH, BAD_LENGTH, BAD_LENGTH, 0];
        let (found, fake) = listed(Fake { snapshots, entries: entries.clone(), ..Fake::default() });
        assert_eq!((found.mappings.len(), fake.taken), (1, 4));
        let (found, fake) = listed(Fake { snapshots: vec![BAD_LENGTH], entries, ..Fake::default() });
        assert_eq!(found.mappings, []);
        assert_eq!(fake.taken, 101, "attempts 10 ms apart for a second");
        assert!(found.trouble.contains("error 24"), "{}", found.trouble);
    }

    #[test]
    fn no_snapshot_and_no_first_entry_are_no_list() {
        let (found, fake) = listed(Fake { snapshots: vec![5], ..Fake::default() });
        assert_eq!((found.mappings.len(), fake.taken), (0, 1));
        assert!(found.trouble.contains("Snapshot failed with error 5"), "{}", found.trouble);
        let (found, _) = listed(Fake { entries: vec![Err(87)], ..Fake::default() });
        assert_eq!(found.mappings, []);
        assert!(found.trouble.contains("Module32First failed with error 87"), "{}", found.trouble);
    }

    #[test]
    fn a_list_that_breaks_off_is_kept_and_said() {
        let entries = vec![entry(0x1000, 1, "a"), Err(998), entry(0x2000, 1, "b")];
        let (found, _) = listed(Fake { entries, ..Fake::default() });
        assert_eq!(found.mappings.len(), 1);
        assert!(found.trouble.contains("Module32Next failed with error 998"), "{}", found.trouble);
    }

    #[test]
    fn an_entry_that_is_told_twice_counts_once_and_an_endless_list_ends() {
        let entries = vec![entry(0x1000, 1, "a"), entry(0x2000, 1, "b"), entry(0x1000, 1, "a"), entry(0x3000, 0, "c")];
        let (found, _) = listed(Fake { entries, ..Fake::default() });
        assert_eq!(found.mappings.len(), 2);
        let entries = (1..).map(|base| entry(base << 12, 1, "x")).take(MAX_MODULES + 9).collect();
        let (found, _) = listed(Fake { entries, ..Fake::default() });
        assert_eq!(found.mappings.len(), MAX_MODULES);
        assert!(found.trouble.contains("more modules"), "{}", found.trouble);
    }

    #[test]
    fn a_path_that_may_be_cut_is_asked_for_again() {
        let cut = "x".repeat(PATH_UNITS - 1);
        let long: Vec<u16> = "y".repeat(400).encode_utf16().collect();
        let (found, _) = listed(Fake { entries: vec![entry(1, 1, &cut)], long: Some(long), ..Fake::default() });
        assert_eq!(found.mappings[0].path.len(), 400);
        let (found, _) = listed(Fake { entries: vec![entry(1, 1, &cut)], ..Fake::default() });
        assert_eq!(found.mappings[0].path, cut);
    }
}
