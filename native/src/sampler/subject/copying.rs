//! What of a thread's stacks is copied while it stands still.

use super::native::{Native, OTHER_STACKS};
use crate::error::ReadError;
use crate::memory::{Memory, Region, Snapshot};
use crate::sampler::thread::ThreadStack;
use crate::unwind::guest::{Places, Seen, piece};
use crate::unwind::{StackCopy, copy_start};

/// Bytes of a stack copied while its base is not known.
pub const FIRST_COPY: u32 = 16 << 10;
const PAGE: u64 = 4096;

impl Native {
    /// The first read of a sample is to take the stack along, if it is known how far it goes.
    pub fn plan(&mut self, snapshot: &mut Snapshot, sp: u64, stack: &ThreadStack) {
        (self.interrupted, self.others) = (0, [0; OTHER_STACKS]);
        if let Some(region) = self.region(sp, stack) {
            snapshot.take_along(region);
        }
    }

    fn region(&self, sp: u64, stack: &ThreadStack) -> Option<Region> {
        let address = copy_start(sp);
        let size = stack.base.checked_sub(address).filter(|&size| size <= u64::from(self.max_stack))?;
        (stack.base > sp).then_some(Region { address, size: size as u32 })
    }

    /// Copies what the first read did not; `seen` is what Go knows of the thread. The thread stands still.
    pub fn copy(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        sp: u64,
        stack: &ThreadStack,
        seen: &Seen,
    ) -> Result<(), ReadError> {
        snapshot.load_rest(memory)?;
        if seen.places.known && self.copy_bounded(memory, snapshot, sp, stack, seen)? {
            return Ok(());
        }
        if snapshot.piece(sp, 8).len() == 8 && self.region(sp, stack).is_some() {
            return Ok(());
        }
        self.copy_pages(memory, snapshot, sp, stack.want)?;
        // Not its red zone: the frame of an earlier signal may be left there.
        let copy = StackCopy { address: sp, bytes: snapshot.piece(sp, self.max_stack as usize) };
        if let Some(interrupted) = self.unwinder.signal_stack(&copy) {
            self.interrupted = interrupted;
            match piece(interrupted, seen.places.stack, self.max_stack).or(self.region(interrupted, stack)) {
                Some(region) => snapshot.load(memory, &[region])?,
                None => self.copy_pages(memory, snapshot, interrupted, stack.want)?,
            }
        }
        Ok(())
    }

    /// Copies the stacks of which Go knows the bounds; whether that on which the thread is was one of them.
    fn copy_bounded(
        &mut self,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        sp: u64,
        stack: &ThreadStack,
        seen: &Seen,
    ) -> Result<bool, ReadError> {
        let (places, most) = (&seen.places, self.max_stack);
        let goroutine = |from: u64| piece(from, places.stack, most);
        let mut regions = Vec::with_capacity(2);
        // What C threads lend to Go has other bounds than Go thinks.
        let system = || if stack.want == 0 { piece(sp, seen.system, most) } else { None };
        let leaf = goroutine(sp).or_else(|| self.region(sp, stack)).or_else(system);
        regions.extend(leaf.filter(|leaf| snapshot.piece(leaf.address, leaf.size as usize).len() < leaf.size as usize));
        if goroutine(sp).is_none() {
            let saved = [places.clock, places.left].into_iter().flatten().map(|(_, sp)| sp);
            if let Some(region) = saved.into_iter().find_map(goroutine) {
                self.others[0] = region.address;
                regions.push(region);
            }
        }
        let mut by_pages = 0;
        let elsewhere = !(seen.system.0..seen.system.1).contains(&sp);
        if elsewhere && stack.called_back && places.system_sp != 0 {
            self.others[1] = copy_start(places.system_sp);
            match self.region(places.system_sp, stack) {
                Some(region) => regions.push(region),
                None => by_pages = places.system_sp,
            }
        }
        if !regions.is_empty() {
            snapshot.load(memory, &regions)?;
        }
        if by_pages != 0 {
            self.copy_pages(memory, snapshot, by_pages, stack.want)?;
        }
        Ok(leaf.is_some_and(|leaf| snapshot.piece(leaf.address, leaf.size as usize).len() == leaf.size as usize))
    }

    /// Copies by pages: those that are there are kept.
    fn copy_pages(&self, memory: &dyn Memory, snapshot: &mut Snapshot, sp: u64, want: u32) -> Result<(), ReadError> {
        let mut at = copy_start(sp);
        let end = at.saturating_add(u64::from(want.clamp(FIRST_COPY, self.max_stack)));
        let mut pages = Vec::with_capacity((end - at).div_ceil(PAGE) as usize + 1);
        while at < end {
            let next = ((at | (PAGE - 1)).saturating_add(1)).min(end);
            pages.push(Region { address: at, size: (next - at) as u32 });
            at = next;
        }
        snapshot.load(memory, &pages)
    }

    /// Notes that `address` was missing; false if it cannot be had.
    pub fn want(&self, sp: u64, places: &Places, address: u64, stack: &mut ThreadStack) -> bool {
        let on_goroutine = |address| (places.stack.0..places.stack.1).contains(&address);
        if places.known && on_goroutine(address) {
            return false; // all that may be copied of it was
        }
        let outside = on_goroutine(sp) || self.interrupted != 0;
        let called_back = places.known && outside && address >= places.system_sp;
        let from = match called_back {
            true => places.system_sp,
            false if self.interrupted != 0 && address >= self.interrupted => self.interrupted,
            false => sp,
        };
        let needed = address.checked_sub(copy_start(from)).filter(|&needed| needed < u64::from(self.max_stack));
        let Some(needed) = needed else { return false };
        if called_back && !stack.called_back {
            stack.called_back = true;
            return true;
        }
        let before = stack.want;
        stack.want = (needed as u32 + FIRST_COPY).max(before.saturating_mul(4)).min(self.max_stack);
        stack.want > before
    }
}
