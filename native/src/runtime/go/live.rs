//! The goroutines of a process as they lie in memory, read in batches; and whether what was derived fits them.

use super::derive::Offsets;
use super::image::Image;
use super::pclntab::Pclntab;
use crate::error::ReadError;
use crate::memory::{Memory, Region};

/// Most goroutines of one process.
pub const MAX_GOROUTINES: u64 = 1 << 21;
/// Goroutines that offsets are checked with.
const CHECKED: usize = 4096;
/// Bytes of a g that are looked through for what the code does not tell.
const SEARCHED: u64 = 640;
/// A stack is at most this large (runtime.maxstacksize on 64-bit machines).
const MAX_STACK: u64 = 1 << 30;
/// Of a busy program's goroutines some are met in the middle of a change: this share of them may look wrong.
const WRONG_SHARE: usize = 20;

/// What a goroutine is doing (src/runtime/runtime2.go, _Gidle and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Has a thread, or is about to.
    Runnable,
    /// On a thread.
    Running,
    /// In a system call or in C.
    Syscall,
    /// Waits for something in the runtime.
    Waiting,
    /// Its stack is being moved.
    CopyStack,
    /// Stopped by a preemption.
    Preempted,
    /// Waits for what nobody can do any more.
    Leaked,
    /// Is none any more, or not yet.
    Dead,
}

/// The bit that the garbage collector adds to a status.
const SCAN: u32 = 0x1000;

impl Status {
    fn parse(word: u32) -> Option<Status> {
        Some(match word & !SCAN {
            1 => Status::Runnable,
            2 => Status::Running,
            3 => Status::Syscall,
            4 => Status::Waiting,
            0 | 6 | 11 => Status::Dead,
            8 => Status::CopyStack,
            9 => Status::Preempted,
            10 => Status::Leaked,
            _ => return None,
        })
    }

    /// What Go's tracebacks call it.
    pub fn name(self) -> &'static str {
        match self {
            Status::Runnable => "runnable",
            Status::Running => "running",
            Status::Syscall => "syscall",
            Status::Waiting => "waiting",
            Status::CopyStack => "copystack",
            Status::Preempted => "preempted",
            Status::Leaked => "leaked",
            Status::Dead => "dead",
        }
    }
}

/// One g, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct G {
    /// Its address.
    pub address: u64,
    /// Its stack: [low, high).
    pub stack: (u64, u64),
    /// What it is doing.
    pub status: Status,
    /// Its number.
    pub id: u64,
    /// pc and sp from which its stack is walked, while it is on no thread.
    pub place: (u64, u64),
    /// Its m, 0 = none.
    pub m: u64,
    /// nanotime when it began to wait, as far as the collector has seen it; 0 = unknown.
    pub wait_since: u64,
    /// Index in the wait reasons.
    pub wait_reason: u8,
    /// Its profiler labels, 0 = none.
    pub labels: u64,
    /// Where it was created, and the goroutine that did (Go 1.21 and later).
    pub creator: (u64, u64),
    /// Its first function.
    pub start: u64,
}

/// Where everything is in a g.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// What the code tells.
    pub offsets: Offsets,
    /// g.gopc; 16 bytes behind it stands g.startpc.
    pub gopc: u64,
    /// Bytes of a g that are read.
    pub size: u32,
}

impl Shape {
    fn new(offsets: Offsets, gopc: u64) -> Shape {
        let ends = [gopc + 24, offsets.wait_reason + 8, offsets.labels.unwrap_or(0) + 8];
        Shape { offsets, gopc, size: ends.into_iter().max().unwrap_or(0) as u32 }
    }

    /// The g in `bytes`; None where it cannot be one.
    pub fn parse(&self, address: u64, bytes: &[u8]) -> Option<G> {
        let word = |at: u64| Some(u64::from_le_bytes(*bytes.get(at as usize..)?.first_chunk()?));
        let offsets = &self.offsets;
        let status = u32::from_le_bytes(*bytes.get(offsets.status as usize..)?.first_chunk()?);
        let status = Status::parse(status)?;
        let in_syscall = word(offsets.syscall_sp)?;
        let place = match in_syscall {
            0 => (word(offsets.sched_pc)?, word(offsets.sched_sp)?),
            sp => (word(offsets.syscall_sp + 8)?, sp),
        };
        Some(G {
            address,
            stack: (word(0)?, word(8)?),
            status,
            id: word(offsets.goid)?,
            place,
            m: word(offsets.m)?,
            wait_since: word(offsets.wait_since)?,
            wait_reason: *bytes.get(offsets.wait_reason as usize)?,
            labels: offsets.labels.map_or(Some(0), word)?,
            creator: (word(self.gopc)?, word(self.gopc - 8)?),
            start: word(self.gopc + 16)?,
        })
    }

    /// Reads many; None for those that cannot be read, or cannot be what they should be.
    pub fn read(&self, memory: &dyn Memory, addresses: &[u64]) -> Result<Vec<Option<G>>, ReadError> {
        let regions: Vec<Region> = addresses.iter().map(|&address| Region { address, size: self.size }).collect();
        let pieces = Pieces::read(memory, regions)?;
        Ok((0..addresses.len()).map(|index| self.parse(addresses[index], pieces.get(index)?)).collect())
    }
}

/// Many regions read together, some of which may be missing.
pub struct Pieces {
    bytes: Vec<u8>,
    starts: Vec<Option<usize>>,
    regions: Vec<Region>,
}

impl Pieces {
    /// Reads the regions; an error only where nothing can be read any more.
    pub fn read(memory: &dyn Memory, regions: Vec<Region>) -> Result<Pieces, ReadError> {
        let size = |regions: &[Region]| regions.iter().map(|region| region.size as usize).sum::<usize>();
        let mut bytes = vec![0; size(&regions)];
        let mut starts = Vec::with_capacity(regions.len());
        let mut at = 0;
        while starts.len() < regions.len() {
            let rest = &regions[starts.len()..];
            let mut left = memory.read_regions(rest, &mut bytes[at..])?;
            for region in rest {
                let size = region.size as usize;
                if left < size {
                    // The first that cannot be read: the next attempt begins behind it.
                    starts.push(None);
                    at += size;
                    break;
                }
                starts.push(Some(at));
                (at, left) = (at + size, left - size);
            }
        }
        Ok(Pieces { bytes, starts, regions })
    }

    /// The bytes of a region.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let start = (*self.starts.get(index)?)?;
        self.bytes.get(start..start + self.regions[index].size as usize)
    }
}

/// The addresses of all g, and how many are left out because there are too many.
pub fn all(memory: &dyn Memory, offsets: &Offsets) -> Result<(Vec<u64>, u64), ReadError> {
    let (pointer, count) = (memory.read_u64(offsets.allgs)?, memory.read_u64(offsets.allgs.wrapping_add(8))?);
    let kept = count.min(MAX_GOROUTINES) as usize;
    let bytes = memory.read_bytes(pointer, kept * 8, MAX_GOROUTINES as usize * 8)?;
    let addresses = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect();
    Ok((addresses, count - kept as u64))
}

/// The shape of a g, checked against those that there are; why not, where that fails.
pub fn shape(memory: &dyn Memory, image: &Image<'_>, table: &Pclntab, offsets: Offsets) -> Result<Shape, &'static str> {
    if !image.variable(offsets.allgs, 24) || !image.variable(offsets.wait_reasons, 16) {
        return Err("a variable of the runtime is in no writable memory");
    }
    let (mut addresses, _) = all(memory, &offsets).map_err(|_| "the list of goroutines cannot be read")?;
    addresses.truncate(CHECKED);
    if addresses.is_empty() {
        return Err("there are no goroutines, or the program has not started yet");
    }
    let gopc = gopc(memory, table, &offsets, &addresses)?;
    let shape = Shape::new(offsets, gopc);
    let found = shape.read(memory, &addresses).map_err(|_| "goroutines cannot be read")?;
    let mut ids: Vec<u64> = Vec::new();
    let mut wrong = 0;
    for g in &found {
        match g {
            Some(g) if g.status == Status::Dead => {}
            Some(g) if plausible(g, table) => ids.push(g.id),
            _ => wrong += 1,
        }
    }
    ids.sort_unstable();
    let distinct = ids.windows(2).all(|pair| pair[0] != pair[1]);
    if ids.is_empty() || !distinct || wrong * WRONG_SHARE > found.len() {
        return Err("what its code tells of goroutines does not fit those that there are");
    }
    Ok(shape)
}

fn plausible(g: &G, table: &Pclntab) -> bool {
    let ((low, high), (pc, sp)) = (g.stack, g.place);
    let stack = low < high && high - low <= MAX_STACK;
    let parked = !matches!(g.status, Status::Running | Status::CopyStack);
    let place = !parked || (table.find(pc).is_some() && low <= sp && sp < high);
    // What C called into Go on has neither (src/runtime/proc.go, oneNewExtraM).
    let foreign = g.start == 0 && g.creator.0 == 0;
    let created = foreign || (table.is_entry(g.start) && table.find(g.creator.0).is_some());
    stack && place && created && (1..1 << 48).contains(&g.id)
}

/// Where g.gopc is: the place that holds an address of code in the most goroutines, while 16 bytes on a function begins.
fn gopc(memory: &dyn Memory, table: &Pclntab, offsets: &Offsets, addresses: &[u64]) -> Result<u64, &'static str> {
    let regions = addresses.iter().map(|&address| Region { address, size: SEARCHED as u32 }).collect();
    let pieces = Pieces::read(memory, regions).map_err(|_| "goroutines cannot be read")?;
    let mut votes = vec![0_usize; SEARCHED as usize / 8];
    // Of those that C threads brought along, nobody is the creator.
    let mut blanks = votes.clone();
    let mut live = 0;
    for index in 0..addresses.len() {
        let Some(bytes) = pieces.get(index) else { continue };
        let word = |at: usize| bytes[8 * at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let status = Status::parse(word(offsets.status as usize / 8) as u32);
        if status.is_none_or(|status| status == Status::Dead) {
            continue;
        }
        live += 1;
        for at in (offsets.wait_reason as usize / 8 + 1)..votes.len() - 2 {
            if table.find(word(at)).is_some() && table.is_entry(word(at + 2)) {
                votes[at] += 1;
            } else if word(at) == 0 && word(at + 2) == 0 {
                blanks[at] += 1;
            }
        }
    }
    let most = votes.iter().max().copied().unwrap_or(0);
    let mut best = votes.iter().enumerate().filter(|&(_, &count)| count == most);
    match (best.next(), best.next()) {
        (Some((at, _)), None) if most > 0 && (most + blanks[at]) * WRONG_SHARE >= live * (WRONG_SHARE - 1) => {
            Ok(8 * at as u64)
        }
        _ => Err("where goroutines were created is not found"),
    }
}
