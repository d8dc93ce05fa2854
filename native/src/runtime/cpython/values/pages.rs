//! A target's memory, read page by page for the time of one look at it.
//!
//! Objects lie close to one another, so that one page holds many of them. Where the target runs on meanwhile, what a
//! value was made of is read again when it is complete: if all of that is still the same, the value was true then.

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;

use crate::error::ReadError;
use crate::memory::{Budget, Memory, Region};

/// Bytes read at a time.
const PAGE: usize = 4096;
/// Most pages kept at a time.
const MAX_PAGES: usize = 2048;
/// Most places that one value is made of.
const MAX_USED: usize = 16_384;

/// The pages, and what was used of them.
pub(super) struct Pages<'a> {
    memory: &'a dyn Memory,
    budget: Option<Budget>,
    pages: RefCell<FxHashMap<u64, Box<[u8]>>>,
    used: RefCell<Vec<Region>>,
    keeps_track: Cell<bool>,
}

impl<'a> Pages<'a> {
    /// None read yet. `budget`: for how long, if somebody waits for it.
    pub fn new(memory: &'a dyn Memory, budget: Option<Budget>) -> Self {
        Pages { memory, budget, pages: RefCell::default(), used: RefCell::default(), keeps_track: Cell::new(false) }
    }

    /// From now on it is noted what is used.
    pub fn begin(&self) {
        self.used.borrow_mut().clear();
        self.keeps_track.set(true);
    }

    /// Does something of which it is not noted what it uses.
    pub fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.keeps_track.replace(false);
        let result = work();
        self.keeps_track.set(before);
        result
    }

    /// Whether all that was used since [`Pages::begin`] is in memory as it was. If not, nothing is kept of what was read.
    pub fn unchanged(&self) -> Result<bool, ReadError> {
        self.keeps_track.set(false);
        let mut used = self.used.take();
        used.sort_unstable_by_key(|region| (region.address, region.size));
        used.dedup();
        let total = used.iter().map(|region| region.size as usize).sum();
        let mut now = vec![0; total];
        self.check_budget()?;
        let mut same = used.len() < MAX_USED && self.memory.read_regions(&used, &mut now)? == total;
        let mut at = 0;
        for region in &used {
            let mut then = vec![0; region.size as usize];
            same = same && self.copy(region.address, &mut then).is_ok() && then == now[at..at + then.len()];
            at += then.len();
        }
        if !same {
            self.pages.borrow_mut().clear();
        }
        Ok(same)
    }

    /// As [`Memory::read_u64`], of what may change without a meaning: it is not noted as used.
    pub fn glance(&self, address: u64) -> Result<u64, ReadError> {
        let mut bytes = [0; 8];
        self.copy(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Whether there is time left.
    pub fn check_budget(&self) -> Result<(), ReadError> {
        match &self.budget {
            Some(budget) if budget.spent() => Err(ReadError::OverBudget),
            _ => Ok(()),
        }
    }

    fn copy(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let mut pages = self.pages.borrow_mut();
        let (mut at, mut filled) = (address, 0);
        while filled < buffer.len() {
            let (page, from) = (at & !(PAGE as u64 - 1), at as usize % PAGE);
            if !pages.contains_key(&page) {
                self.check_budget()?;
                if pages.len() >= MAX_PAGES {
                    return Err(ReadError::Bound("more memory than a look takes"));
                }
                let mut bytes = vec![0; PAGE].into_boxed_slice();
                self.memory.read(page, &mut bytes)?;
                pages.insert(page, bytes);
            }
            let Some(bytes) = pages.get(&page) else { return Err(ReadError::Unmapped) };
            let size = (PAGE - from).min(buffer.len() - filled);
            buffer[filled..filled + size].copy_from_slice(&bytes[from..from + size]);
            filled += size;
            at = at.checked_add(size as u64).ok_or(ReadError::Unmapped)?;
        }
        Ok(())
    }
}

impl Memory for Pages<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.copy(address, buffer)?;
        if self.keeps_track.get() {
            let mut used = self.used.borrow_mut();
            if used.len() < MAX_USED {
                used.push(Region { address, size: buffer.len() as u32 });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory whose every page holds the number of the read that it came by.
    struct Counting(Cell<u8>);

    impl Memory for Counting {
        fn read(&self, _: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
            self.0.set(self.0.get() + 1);
            buffer.fill(self.0.get());
            Ok(())
        }
    }

    #[test]
    fn what_changes_meanwhile_is_noticed() {
        let memory = Counting(Cell::new(0));
        let pages = Pages::new(&memory, None);
        pages.begin();
        assert_eq!(pages.glance(0x1000), Ok(0x0101_0101_0101_0101));
        assert_eq!(pages.unchanged(), Ok(true));
        pages.begin();
        assert_eq!(pages.read_u32(0x1ffe), Ok(0x0202_0101));
        assert_eq!(pages.unchanged(), Ok(false));
        assert_eq!(pages.glance(0x1000), Ok(0x0404_0404_0404_0404));
    }

    #[test]
    fn addresses_end() {
        let memory = Counting(Cell::new(0));
        assert!(Pages::new(&memory, None).read_u64(u64::MAX - 3).is_err());
    }
}
