//! What the runtime knows of a thread: its m, the goroutine on it, and where that was left for another stack.
//!
//! Layouts: src/runtime/runtime2.go, of g (its stack is the first field) and m (g0 is). A thread that runs tells its g by
//! a thread-local word; for one that sleeps the list of all m (runtime.allm) is looked through.

use iced_x86::{Instruction, Mnemonic, Register};
use rustc_hash::FxHashMap;

use super::Go;
use super::derive::{Code, Tls, field, load};
use crate::error::ReadError;
use crate::memory::{Memory, Region, Snapshot};
use crate::unwind::guest::{Look, Places, Seen, piece};

/// Most threads of one process.
const MAX_THREADS: usize = 1 << 16;
/// Most goroutines whose stacks are remembered.
const MAX_STACKS: usize = 1 << 16;
/// A goroutine's stack is at most this large (runtime.maxstacksize on 64-bit machines).
const MAX_STACK: u64 = 1 << 30;

/// Where the runtime keeps all m.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadList {
    /// runtime.allm.
    pub all: u64,
    /// m.alllink.
    pub next: u64,
    /// m.procid.
    pub id: u64,
    /// m.lockedg.
    pub locked: u64,
}

/// mexit looks for its m through the links; minit puts the thread's number into it; schedule looks first whether a
/// goroutine is locked to it.
pub fn derive(code: &Code<'_>, m: u64) -> Option<ThreadList> {
    let search = code.instructions("runtime.mexit");
    let lea = |one: &Instruction| (one.mnemonic() == Mnemonic::Lea).then(|| one.op0_register());
    let (all, next) = search.iter().enumerate().find_map(|(at, first)| {
        let place = lea(first).filter(|_| first.is_ip_rel_memory_operand())?;
        let rest = search.get(at + 1..)?;
        let step = rest.iter().take(3).position(|one| lea(one) == Some(place) && !one.is_ip_rel_memory_operand())?;
        let link = field(&rest[step], rest[step].memory_base())?;
        let (to, offset) = load(rest.get(step + 1)?, place)?;
        let all = first.memory_displacement64();
        (to == rest[step].memory_base() && offset == 0 && code.image.variable(all, 8)).then_some((all, link))
    })?;
    let mut own = code.instructions("runtime.minit").into_iter();
    let (base_of_store, _) =
        own.by_ref().filter_map(|one| load(&one, Register::R14)).find(|&(_, offset)| offset == m)?;
    let store = own.find(|one| one.mnemonic() == Mnemonic::Mov && one.memory_base() == base_of_store)?;
    let mut first = code.instructions("runtime.schedule").into_iter();
    let (base, _) = first.by_ref().filter_map(|one| load(&one, Register::R14)).find(|&(_, offset)| offset == m)?;
    let locked = first.find_map(|one| {
        let compares = one.mnemonic() == Mnemonic::Cmp && one.memory_size().size() == 8;
        field(&one, base).filter(|_| compares)
    })?;
    Some(ThreadList { all, next, id: field(&store, base_of_store)?, locked })
}

/// What was found of a thread the last time: where to look first.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    m: u64,
    g0: u64,
    curg: u64,
}

/// What is known of the threads of one process.
#[derive(Debug, Default)]
pub struct Threads {
    last: FxHashMap<u32, Last>,
    /// Stacks of goroutines, by their g.
    stacks: FxHashMap<u64, (u64, u64)>,
    /// When the list of all m was read, nanoseconds.
    listed: u64,
    /// Where the running g is, from fs_base on.
    slot: Option<i64>,
}

/// Shortest time between two reads of the list of all m.
const LIST_NS: u64 = 10_000_000;

impl Threads {
    /// Forgets threads that are not among so many any more.
    pub fn keep(&mut self, known: impl Fn(u32) -> bool) {
        self.last.retain(|&tid, _| known(tid));
    }

    /// Reads what is known of a thread, and the stack of its goroutine, in one go if nothing has changed since the last
    /// time. None: it does not run Go.
    pub fn read(
        &mut self,
        go: &Go<'_>,
        memory: &dyn Memory,
        snapshot: &mut Snapshot,
        look: Look,
        now: u64,
    ) -> Result<Option<Seen>, ReadError> {
        let slot = match look.base {
            None => None,
            Some(base) => Some(base.wrapping_add_signed(self.slot(go, memory)?)),
        };
        if slot.is_none() {
            self.list(go, memory, look.tid, now);
        }
        let last = self.last.get(&look.tid).copied().unwrap_or_default();
        let guess = if self.stacks.contains_key(&look.g) { look.g } else { last.curg };
        let mut regions = Vec::with_capacity(5);
        regions.extend(slot.map(|address| Region { address, size: 8 }));
        for (address, size) in [(last.m, size_of_m(go)), (last.g0, size_of_g0(go)), (guess, go.shape.size)] {
            if address != 0 {
                regions.push(Region { address, size });
            }
        }
        if let Some(&stack) = self.stacks.get(&guess) {
            regions.extend(piece(look.sp, stack, look.most));
        }
        snapshot.load(memory, &regions)?;
        let found = of_thread(go, memory, snapshot, slot, last.m, look.tid);
        match found {
            Ok(Some((seen, last))) => {
                if last.curg != 0 {
                    if self.stacks.len() >= MAX_STACKS {
                        self.stacks.clear();
                    }
                    self.stacks.insert(last.curg, seen.places.stack);
                }
                if self.last.len() < MAX_THREADS {
                    self.last.insert(look.tid, last);
                }
                Ok(Some(seen))
            }
            Ok(None) => Ok(None),
            // Whatever was left there is none.
            Err(ReadError::Unmapped | ReadError::Corrupt(_)) => {
                self.last.remove(&look.tid);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn slot(&mut self, go: &Go<'_>, memory: &dyn Memory) -> Result<i64, ReadError> {
        let slot = match (self.slot, go.shape.offsets.tls) {
            (Some(known), _) => known,
            (None, Tls::Offset(offset)) => offset,
            // The linker's tables do not change any more.
            (None, Tls::Word(address)) => memory.read_u64(address)?.cast_signed(),
        };
        self.slot = Some(slot);
        Ok(slot)
    }

    /// Finds the m of a thread that is asleep, unless it is known.
    fn list(&mut self, go: &Go<'_>, memory: &dyn Memory, tid: u32, now: u64) {
        let Some(list) = go.threads else { return };
        if self.last.contains_key(&tid) || (self.listed != 0 && now.saturating_sub(self.listed) < LIST_NS) {
            return;
        }
        self.listed = now;
        let mut m = memory.read_u64(list.all).unwrap_or(0);
        for _ in 0..MAX_THREADS {
            if m == 0 {
                break;
            }
            let word = |offset| memory.read_u64(m.wrapping_add(offset));
            let (Ok(id), Ok(next)) = (word(list.id), word(list.next)) else { break };
            if let Ok(tid) = u32::try_from(id)
                && tid != 0
            {
                self.last.entry(tid).or_insert(Last { m, ..Last::default() });
            }
            m = next;
        }
    }
}

fn size_of_m(go: &Go<'_>) -> u32 {
    let offsets = &go.shape.offsets;
    let (id, locked) = go.threads.map_or((0, 0), |list| (list.id, list.locked));
    let own = [offsets.curg, offsets.vdso_pc, offsets.vdso_sp, offsets.g0, offsets.preempt_off.unwrap_or(0)];
    own.into_iter().chain([id, locked]).max().unwrap_or(0) as u32 + 8
}

fn size_of_g0(go: &Go<'_>) -> u32 {
    let offsets = &go.shape.offsets;
    offsets.sched_sp.max(offsets.m) as u32 + 8
}

fn of_thread(
    go: &Go<'_>,
    memory: &dyn Memory,
    snapshot: &mut Snapshot,
    slot: Option<u64>,
    mut m: u64,
    tid: u32,
) -> Result<Option<(Seen, Last)>, ReadError> {
    let offsets = &go.shape.offsets;
    if let Some(slot) = slot {
        let g = snapshot.u64(memory, slot)?;
        if g == 0 {
            return Ok(None);
        }
        m = snapshot.u64(memory, g.wrapping_add(offsets.m))?;
    }
    if m == 0 {
        return Ok(None);
    }
    let of_m = Fields(snapshot.bytes(memory, m, size_of_m(go) as usize)?);
    let (g0, curg) = (of_m.word(offsets.g0), of_m.word(offsets.curg));
    let (vdso_pc, vdso_sp) = (of_m.word(offsets.vdso_pc), of_m.word(offsets.vdso_sp));
    let collecting = offsets.preempt_off.is_some_and(|at| of_m.word(at) != 0);
    let id = go.threads.map(|list| of_m.word(list.id));
    let locked = go.threads.map_or(0, |list| of_m.word(list.locked));
    if slot.is_none() && id != Some(u64::from(tid)) {
        return Err(ReadError::Corrupt("the m of another thread"));
    }
    let of_g0 = Fields(snapshot.bytes(memory, g0, size_of_g0(go) as usize)?);
    let (system, system_sp) = (of_g0.stack(), of_g0.word(offsets.sched_sp));
    if of_g0.word(offsets.m) != m {
        return Err(ReadError::Corrupt("a g0 of another m"));
    }
    let mut places = Places { known: true, system_sp, ..Places::default() };
    places.clock = (vdso_sp != 0).then_some((vdso_pc, vdso_sp));
    let (mut labels, mut own) = (0, 0);
    let curg = if curg != 0 { curg } else { locked };
    if curg != 0 {
        let of_g = Fields(snapshot.bytes(memory, curg, go.shape.size as usize)?);
        let (low, high) = of_g.stack();
        if low >= high || high - low > MAX_STACK {
            return Err(ReadError::Corrupt("a goroutine without a stack"));
        }
        // One that is locked to the thread waits for it, and m.curg is set before g.m, and cleared after it (execute, dropg in
        // src/runtime/proc.go). Any other without this m is being given to it, or taken from it.
        let waiting = of_g.word(offsets.m) == 0 && curg == locked;
        if waiting || of_g.word(offsets.m) == m {
            places.locked = waiting;
            own = curg;
            places.stack = (low, high);
            let left = of_g.word(offsets.sched_sp);
            places.left = Some((of_g.word(offsets.sched_pc), left));
            // src/runtime/stack.go, copystack: first the stack is another, then the place in it.
            places.moving = left != 0 && !(low..=high).contains(&left);
            labels = offsets.labels.map_or(0, |at| of_g.word(at));
        }
    }
    Ok(Some((Seen { places, system, labels, collecting }, Last { m, g0, curg: own })))
}

/// The bytes of a structure.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn word(&self, at: u64) -> u64 {
        self.0.get(at as usize..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
    }

    fn stack(&self) -> (u64, u64) {
        (self.word(0), self.word(8))
    }
}
