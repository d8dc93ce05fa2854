//! Checked reads of a target's memory.
//!
//! [`Memory`] is one process's memory; [`Snapshot`] is what was copied of it while a thread stood still. A walk reads
//! from the snapshot; what is missing there is read live, within the pause budget, and kept.

use std::time::{Duration, Instant};

use crate::error::ReadError;
use crate::target::sys;

/// Most bytes one [`Snapshot`] may hold.
pub const MAX_SNAPSHOT_BYTES: usize = 4 << 20;
/// Most regions that are worth one [`Memory::read_regions`]: one process_vm_readv takes as many (IOV_MAX).
pub const MAX_REGIONS_PER_CALL: usize = 1024;
/// Most bytes of one remote string.
pub const MAX_STRING_BYTES: usize = 16 << 10;

/// A range of a target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// First byte.
    pub address: u64,
    /// Size in bytes.
    pub size: u32,
}

/// The memory of one process, or of a recording of one.
pub trait Memory {
    /// Fills `buffer` from `address`: whole, or an error.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError>;

    /// Fills `buffer` with `regions` back to back, in as few system calls as it takes. Gives the number of bytes read
    /// before the first region that could not be read whole.
    fn read_regions(&self, regions: &[Region], buffer: &mut [u8]) -> Result<usize, ReadError> {
        let mut filled = 0;
        for region in regions {
            let end = filled + region.size as usize;
            if self.read(region.address, &mut buffer[filled..end]).is_err() {
                break;
            }
            filled = end;
        }
        Ok(filled)
    }

    /// A little-endian u64.
    fn read_u64(&self, address: u64) -> Result<u64, ReadError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// A little-endian u32.
    fn read_u32(&self, address: u64) -> Result<u32, ReadError> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// `size` bytes, at most `bound` of them.
    fn read_bytes(&self, address: u64, size: usize, bound: usize) -> Result<Vec<u8>, ReadError> {
        if size > bound {
            return Err(ReadError::Bound("size over its bound"));
        }
        let mut bytes = vec![0; size];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        (**self).read(address, buffer)
    }

    fn read_regions(&self, regions: &[Region], buffer: &mut [u8]) -> Result<usize, ReadError> {
        (**self).read_regions(regions, buffer)
    }
}

#[derive(Clone, Copy, Debug)]
struct Span {
    address: u64,
    size: u32,
    at: u32,
}

impl Span {
    fn holds(&self, address: u64, size: usize) -> bool {
        address >= self.address && (address - self.address).saturating_add(size as u64) <= u64::from(self.size)
    }
}

/// How long this thread may work while another stands still. Time in which it had no core is not work: the scheduler's
/// share of a pause is measured, but to give up reading would not shorten it.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    limit: Duration,
    began: Instant,
    cpu_ns: u64,
}

impl Budget {
    /// From now on.
    pub fn new(limit: Duration) -> Self {
        Budget { limit, began: Instant::now(), cpu_ns: sys::thread_cpu_ns() }
    }

    /// Whether it is used up.
    pub fn spent(&self) -> bool {
        self.began.elapsed() > self.limit
            && u128::from(sys::thread_cpu_ns().saturating_sub(self.cpu_ns)) > self.limit.as_nanos()
    }
}

/// A sparse copy of a target's memory, taken while a thread did not run. Reused from sample to sample.
#[derive(Debug, Default)]
pub struct Snapshot {
    buffer: Vec<u8>,
    spans: Vec<Span>,
    /// Where each load's spans end: a load's spans are searched by halves if they ascend without overlap.
    runs: Vec<(usize, bool)>,
    last: usize,
    /// The regions of one load, and what it takes along.
    regions: Vec<Region>,
    along: Option<Region>,
    budget: Option<Budget>,
    extra_reads: u32,
}

impl Snapshot {
    /// An empty snapshot that allocates nothing for its first `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Snapshot { buffer: Vec::with_capacity(bytes), spans: Vec::with_capacity(1024), ..Snapshot::default() }
    }

    /// Forgets everything; reads are refused once this thread has worked for as long as `budget`.
    pub fn begin(&mut self, budget: Option<Duration>) {
        self.buffer.clear();
        self.spans.clear();
        self.runs.clear();
        self.last = 0;
        self.along = None;
        self.budget = budget.map(Budget::new);
        self.extra_reads = 0;
    }

    /// The next load copies this region too, after its own.
    pub fn take_along(&mut self, region: Region) {
        self.along = Some(region);
    }

    /// Copies what no load has taken along.
    pub fn load_rest(&mut self, memory: &dyn Memory) -> Result<(), ReadError> {
        if self.along.is_some() { self.load(memory, &[]) } else { Ok(()) }
    }

    /// Copies `regions` in one go. Regions from the first unreadable one on are left out, not an error.
    pub fn load(&mut self, memory: &dyn Memory, regions: &[Region]) -> Result<(), ReadError> {
        let own = regions.len();
        self.regions.clear();
        self.regions.extend_from_slice(regions);
        self.regions.extend(self.along.take());
        let total: usize = self.regions.iter().map(|region| region.size as usize).sum();
        let start = self.buffer.len();
        if start + total > MAX_SNAPSHOT_BYTES {
            return Err(ReadError::Bound("snapshot over its bound"));
        }
        self.check_budget()?;
        self.buffer.resize(start + total, 0);
        let filled = memory.read_regions(&self.regions, &mut self.buffer[start..])?;
        let (mut at, first) = (start, self.spans.len());
        for region in &self.regions {
            let end = at + region.size as usize;
            if end > start + filled {
                break;
            }
            self.spans.push(Span { address: region.address, size: region.size, at: at as u32 });
            at = end;
        }
        self.buffer.truncate(at);
        let apart = |a: &Region, b: &Region| a.address.saturating_add(u64::from(a.size)) <= b.address;
        let ascending = regions.is_sorted_by(apart);
        self.runs.push((self.spans.len().min(first + own), ascending));
        if self.spans.len() > first + own {
            self.runs.push((self.spans.len(), true));
        }
        Ok(())
    }

    /// What was copied from `address` on, at most `size` bytes: the longest that there is, as far as copies join.
    pub fn piece(&self, address: u64, size: usize) -> &[u8] {
        let mut longest: &[u8] = &[];
        for (index, span) in self.spans.iter().enumerate().filter(|(_, span)| span.holds(address, 1)) {
            let from = span.at as usize + (address - span.address) as usize;
            let (mut end, mut at) = (span.address + u64::from(span.size), span.at + span.size);
            // Regions that follow one another in memory and were copied in one load follow one another here too.
            for next in &self.spans[index + 1..] {
                if next.address != end || next.at != at {
                    break;
                }
                (end, at) = (end + u64::from(next.size), at + next.size);
            }
            if at as usize - from > longest.len() {
                longest = &self.buffer[from..at as usize];
            }
        }
        &longest[..longest.len().min(size)]
    }

    /// `size` bytes at `address`, if they were copied.
    pub fn copied(&mut self, address: u64, size: usize) -> Option<&[u8]> {
        let index = self.find(address, size)?;
        let span = self.spans[index];
        let from = span.at as usize + (address - span.address) as usize;
        Some(&self.buffer[from..from + size])
    }

    /// `size` bytes at `address`, read live and kept if they were not copied yet.
    pub fn bytes(&mut self, memory: &dyn Memory, address: u64, size: usize) -> Result<&[u8], ReadError> {
        if self.find(address, size).is_none() {
            self.fetch(memory, Region { address, size: size as u32 })?;
        }
        self.copied(address, size).ok_or(ReadError::Unmapped)
    }

    /// A little-endian u64 at `address`.
    pub fn u64(&mut self, memory: &dyn Memory, address: u64) -> Result<u64, ReadError> {
        let bytes = self.bytes(memory, address, 8)?;
        Ok(u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]))
    }

    /// A little-endian u32 at `address`.
    pub fn u32(&mut self, memory: &dyn Memory, address: u64) -> Result<u32, ReadError> {
        let bytes = self.bytes(memory, address, 4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads done one by one because the copy did not hold them.
    pub fn extra_reads(&self) -> u32 {
        self.extra_reads
    }

    /// The thread runs again: reads hold up nobody.
    pub fn lift_budget(&mut self) {
        self.budget = None;
    }

    /// Whether the pause budget still allows a read.
    pub fn check_budget(&self) -> Result<(), ReadError> {
        match &self.budget {
            Some(budget) if budget.spent() => Err(ReadError::OverBudget),
            _ => Ok(()),
        }
    }

    fn fetch(&mut self, memory: &dyn Memory, region: Region) -> Result<(), ReadError> {
        let at = self.buffer.len();
        if at + region.size as usize > MAX_SNAPSHOT_BYTES {
            return Err(ReadError::Bound("snapshot over its bound"));
        }
        self.check_budget()?;
        self.extra_reads += 1;
        self.buffer.resize(at + region.size as usize, 0);
        if let Err(error) = memory.read(region.address, &mut self.buffer[at..]) {
            self.buffer.truncate(at);
            return Err(error);
        }
        self.spans.push(Span { address: region.address, size: region.size, at: at as u32 });
        // Single reads in a row are one run, searched from its start.
        match self.runs.last_mut() {
            Some((end, false)) => *end = self.spans.len(),
            _ => self.runs.push((self.spans.len(), false)),
        }
        Ok(())
    }

    /// The span last used and its neighbour first: spans are mostly met in the order in which they were copied.
    fn find(&mut self, address: u64, size: usize) -> Option<usize> {
        for index in [self.last, self.last + 1] {
            if self.spans.get(index).is_some_and(|span| span.holds(address, size)) {
                self.last = index;
                return Some(index);
            }
        }
        self.last = self.search(address, size)?;
        Some(self.last)
    }

    fn search(&self, address: u64, size: usize) -> Option<usize> {
        let holds = |span: &Span| span.holds(address, size);
        let mut start = 0;
        for &(end, ascending) in &self.runs {
            let run = &self.spans[start..end];
            let found = if ascending {
                let after = run.partition_point(|span| span.address <= address);
                after.checked_sub(1).filter(|&index| holds(&run[index]))
            } else {
                run.iter().position(holds)
            };
            if let Some(index) = found {
                return Some(start + index);
            }
            start = end;
        }
        Some(start + self.spans[start..].iter().position(holds)?)
    }
}
