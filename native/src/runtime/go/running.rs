//! Goroutines that run: their thread is stopped for as long as it takes to copy its registers and its goroutine's stack.

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use super::Go;
use super::derive::Tls;
use super::goroutines::Taken;
use super::unwind::At;
use crate::memory::Memory;
use crate::target::linux::Process;
use crate::target::procfs::{self, ThreadFiles};
use crate::target::ptrace::{self, Change};
use crate::target::thread::Look;

/// How long a thread may take to stop; one in an uninterruptible wait does not.
const PATIENCE: Duration = Duration::from_millis(50);
/// Most bytes of one stack that are copied in a stop.
const MAX_COPIED: u64 = 512 << 10;
/// Most threads stopped in one round.
const MAX_STOPS: usize = 1024;

/// Takes those of the goroutines `wanted` that run on a thread now; what is found is taken out of `wanted`.
pub fn take(go: &Go<'_>, process: &Process, wanted: &mut FxHashSet<u64>) -> Vec<Taken> {
    let mut threads: Vec<(bool, u32)> = procfs::list_threads(process.pid)
        .into_iter()
        .map(|tid| (ThreadFiles::open(process.pid, tid, false).look() != Look::Running, tid))
        .collect();
    // Those on a core first: mostly it ends with them.
    threads.sort_unstable();
    let mut found = Vec::new();
    for (_, tid) in threads.into_iter().take(MAX_STOPS) {
        if wanted.is_empty() {
            break;
        }
        found.extend(stopped(tid, || of_thread(go, process, tid, wanted)).flatten());
    }
    let_go();
    found
}

/// Lets those run on that were given up and stopped after all. What stops later is let go by the end of this process.
pub fn let_go() {
    while let Some((tid, change)) = ptrace::next_change() {
        match change {
            Change::Ended(_) => {}
            Change::Signal(signal) => drop(ptrace::detach(tid, signal)),
            Change::Interrupted | Change::GroupStop => drop(ptrace::detach(tid, 0)),
        }
    }
}

/// Runs `read` while the thread stands still; None where it could not be stopped.
fn stopped<T>(tid: u32, read: impl FnOnce() -> T) -> Option<T> {
    ptrace::seize(tid).ok()?;
    if ptrace::interrupt(tid).is_err() {
        return None;
    }
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let Some((other, change)) = ptrace::next_change() else {
            std::hint::spin_loop();
            continue;
        };
        let signal = match change {
            Change::Ended(_) if other == tid => return None,
            Change::Ended(_) => continue,
            Change::Signal(signal) => signal,
            Change::Interrupted | Change::GroupStop => 0,
        };
        if other != tid {
            // One that was given up and stopped after all.
            let _ = ptrace::detach(other, signal);
            continue;
        }
        let answer = read();
        if signal == 0 && ptrace::maybe_interrupted(tid) {
            ptrace::restart_syscall(tid);
        }
        let _ = ptrace::detach(tid, signal);
        return Some(answer);
    }
    None
}

fn of_thread(go: &Go<'_>, process: &Process, tid: u32, wanted: &mut FxHashSet<u64>) -> Option<Taken> {
    let registers = ptrace::registers(tid).ok()?;
    let offsets = &go.shape.offsets;
    let slot = match offsets.tls {
        Tls::Offset(offset) => offset,
        Tls::Word(address) => process.read_u64(address).ok()?.cast_signed(),
    };
    let word = |address: u64| process.read_u64(address).ok();
    let running = word(registers.fs_base.wrapping_add_signed(slot))?;
    let m = word(running.wrapping_add(offsets.m))?;
    let current = word(m.wrapping_add(offsets.curg))?;
    if !wanted.contains(&current) {
        return None;
    }
    let g = (*go.shape.read(process, &[current]).ok()?.first()?)?;
    let vdso_sp = word(m.wrapping_add(offsets.vdso_sp))?;
    let place = if running == word(m.wrapping_add(offsets.g0))? {
        // On the system stack for it: its own was left where the runtime says.
        let (pc, sp) = (current + offsets.sched_pc, current + offsets.sched_sp);
        (word(pc)?, word(sp)?, At::Saved)
    } else if running != current {
        return None; // in a signal handler
    } else if vdso_sp != 0 {
        // In the vDSO or on the way there: the runtime saved where it came from.
        (word(m.wrapping_add(offsets.vdso_pc))?, vdso_sp, At::Return)
    } else {
        (registers.rip, registers.rsp, At::Instruction)
    };
    let (low, high) = g.stack;
    if !(low..high).contains(&place.1) || go.table.find(place.0).is_none() {
        return None;
    }
    let size = (high - place.1).min(MAX_COPIED);
    let stack = process.read_bytes(place.1, size as usize, MAX_COPIED as usize).ok()?;
    wanted.remove(&current);
    Some(Taken { g, place, stack })
}
