//! Where the runtime keeps what its heap, block and mutex profiles are made of, read off the program's own code.
//!
//! The functions are those of src/runtime of Go 1.18 to 1.26: stkbucket, mProf_Flush, mProf_NextCycle, blockevent, mutexevent
//! (which is called sync.event) and memProfileInternal (before Go 1.23 MemProfile) of mprof.go, profilealloc of malloc.go,
//! parsegodebug (before Go 1.21 parsedebugvars) of runtime1.go, ticksPerSecond (before Go 1.22 tickspersecond) of
//! runtime.go.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use serde::{Deserialize, Serialize};

use super::Go;
use super::derive::Code;

/// A profile that the runtime keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Allocations.
    Heap,
    /// What goroutines wait for.
    Block,
    /// Who held the mutexes that were waited for.
    Mutex,
}

/// The number of the heap profile's cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// Its address: a word of four bytes.
    pub address: u64,
    /// The bits below it: since Go 1.19 there is one, whether the cycle is flushed.
    pub shift: u32,
}

/// Addresses of variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variables {
    /// Those among which are the heads of the lists of buckets.
    pub lists: Vec<u64>,
    /// How much is sampled: MemProfileRate, blockprofilerate or mutexprofilerate.
    pub rate: u64,
    /// Of a heap profile.
    pub heap: Option<Heap>,
    /// ticks.val, the ticks of the CPU's clock in a second as far as they are known; None where nothing asks for them.
    pub ticks: Option<u64>,
}

/// Variables of a heap profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// mProfCycle; in Go 1.18 mProf.
    pub cycle: Cycle,
    /// The mutex that is held while a cycle is added to what is published: profMemActiveLock; in Go 1.18 proflock.
    pub lock: u64,
}

/// Why there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The linker left heap profiling out, because nothing in the program can ask for a heap profile.
    NotLinked,
    /// This function does not look as expected.
    Unknown(&'static str),
}

const WANTED: [&str; 12] = [
    "runtime.stkbucket",
    "runtime.memProfileInternal",
    "runtime.MemProfile",
    "runtime.mProf_Flush",
    "runtime.mProf_NextCycle",
    "runtime.profilealloc",
    "runtime.parsegodebug",
    "runtime.parsedebugvars",
    "runtime.blockevent",
    "sync.event",
    "runtime.ticksPerSecond",
    "runtime.tickspersecond",
];

/// The variables of a profile.
pub fn variables(go: &Go<'_>, kind: Kind) -> Result<Variables, Missing> {
    let code = Code::with(&go.image, &go.table, &WANTED);
    let mut lists: Vec<u64> = code.variables("runtime.stkbucket").into_iter().map(|(address, _)| address).collect();
    lists.sort_unstable();
    lists.dedup();
    lists.retain(|&address| address.is_multiple_of(8) && go.image.variable(address, 8));
    let mut heap = None;
    let (rate, function) = match kind {
        Kind::Heap => {
            let reader = ["runtime.memProfileInternal", "runtime.MemProfile"];
            let reader = reader.into_iter().find(|name| code.function(name).is_some()).ok_or(Missing::NotLinked)?;
            let read = code.variables(reader);
            lists.retain(|&address| read.iter().any(|&(other, size)| (other, size) == (address, 8)));
            heap = Some(Heap {
                cycle: cycle(&code).ok_or(Missing::Unknown("runtime.mProf_Flush"))?,
                lock: lock(&code).ok_or(Missing::Unknown("runtime.mProf_Flush"))?,
            });
            (allocation_rate(&code), "runtime.profilealloc")
        }
        Kind::Block => (only(&code, "runtime.blockevent", 8), "runtime.blockevent"),
        Kind::Mutex => (only(&code, "sync.event", 8), "sync.event"),
    };
    if lists.is_empty() {
        return Err(Missing::Unknown("runtime.stkbucket"));
    }
    let rate = rate.ok_or(Missing::Unknown(function))?;
    let ticks = ["runtime.ticksPerSecond", "runtime.tickspersecond"];
    let ticks = ticks.into_iter().find_map(|name| code.variables(name).into_iter().find(|&(_, size)| size == 8));
    Ok(Variables { lists, rate, heap, ticks: ticks.map(|(address, _)| address) })
}

/// The one variable of a size that a function refers to.
fn only(code: &Code<'_>, function: &str, size: usize) -> Option<u64> {
    let found = code.variables(function).into_iter().filter(|&(_, other)| other == size);
    let mut found: Vec<u64> = found.map(|(address, _)| address).collect();
    found.dedup();
    if let [one] = found[..] { Some(one) } else { None }
}

/// mProf_Flush sets the flag below the cycle at once; that of Go 1.18 has a flag apart, and mProf_NextCycle has the cycle.
fn cycle(code: &Code<'_>) -> Option<Cycle> {
    let exchanges = |one: &Instruction| one.mnemonic() == Mnemonic::Cmpxchg && one.has_lock_prefix();
    if code.instructions("runtime.mProf_Flush").iter().any(exchanges) {
        return Some(Cycle { address: only(code, "runtime.mProf_Flush", 4)?, shift: 1 });
    }
    Some(Cycle { address: only(code, "runtime.mProf_NextCycle", 4)?, shift: 0 })
}

/// The first mutex that mProf_Flush takes: its address goes into the register of the first argument.
fn lock(code: &Code<'_>) -> Option<u64> {
    let taken = |one: &&Instruction| one.mnemonic() == Mnemonic::Lea && one.op0_register() == Register::RAX;
    let found = code.instructions("runtime.mProf_Flush");
    let found = found.iter().filter(|one| one.is_ip_rel_memory_operand()).find(taken)?.memory_displacement64();
    code.image.variable(found, 8).then_some(found)
}

/// What profilealloc reads and the settings of GODEBUG (memprofilerate) can change.
fn allocation_rate(code: &Code<'_>) -> Option<u64> {
    let settings = ["runtime.parsegodebug", "runtime.parsedebugvars"].map(|name| code.instructions(name));
    let stored = |address: u64| {
        settings.iter().flatten().any(|one| {
            one.mnemonic() == Mnemonic::Mov
                && one.op0_kind() == OpKind::Memory
                && one.op1_kind() == OpKind::Register
                && one.is_ip_rel_memory_operand()
                && one.memory_displacement64() == address
        })
    };
    let read =
        code.variables("runtime.profilealloc").into_iter().filter(|&(address, size)| size == 8 && stored(address));
    let mut read: Vec<u64> = read.map(|(address, _)| address).collect();
    read.dedup();
    if let [one] = read[..] { Some(one) } else { None }
}
