//! What has been read of the images of modules, by pages: tables do not change while a module is loaded.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use crate::memory::Memory;

const PAGE: usize = 4096;
/// Most pages that are kept, of all modules of a process together; then they are read anew.
const MAX_PAGES: usize = 4096;

/// Pages of a process's modules.
#[derive(Debug, Default)]
pub struct Pages(RefCell<FxHashMap<u64, Option<Box<[u8; PAGE]>>>>);

impl Pages {
    /// Forgets all: other modules are loaded.
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Fills `buffer` from `address`. None where that cannot be read.
    pub fn read(&self, memory: &dyn Memory, address: u64, buffer: &mut [u8]) -> Option<()> {
        let mut done = 0;
        while done < buffer.len() {
            let at = address.checked_add(done as u64)?;
            let within = (at % PAGE as u64) as usize;
            let size = (PAGE - within).min(buffer.len() - done);
            let mut pages = self.0.borrow_mut();
            if pages.len() >= MAX_PAGES {
                pages.clear();
            }
            let page = pages.entry(at - within as u64).or_insert_with_key(|&start| {
                let mut page = Box::new([0; PAGE]);
                memory.read(start, &mut page[..]).ok().map(|()| page)
            });
            buffer[done..done + size].copy_from_slice(&page.as_ref()?[within..within + size]);
            done += size;
        }
        Some(())
    }
}
