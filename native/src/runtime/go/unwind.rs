//! Walking a Go stack by the runtime's own tables (pcsp): exact at every instruction, without frame pointers.
//!
//! The rules are those of src/runtime/traceback.go: a frame of flag TOPFRAME is the last; one of flag SPWRITE tells nothing
//! of its caller, but cgocallback, which is on both of its stacks alike; what stands under a call that a signal put in (sigpanic, asyncPreempt) is at the very pc, all others are
//! behind a call.

use rustc_hash::FxHashMap;

use super::pclntab::{FLAG_SP_WRITE, FLAG_TOP, Pclntab};

/// Most frames of one stack.
pub const MAX_DEPTH: usize = 4096;
/// Most pcs whose facts are kept.
const MAX_KNOWN: usize = 1 << 20;

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the first frame of the stack.
    Whole,
    /// The stack goes on beyond what was copied of it: this word is missing.
    Beyond(u64),
    /// At [`MAX_DEPTH`].
    Deep,
    /// At what is no Go code.
    Lost,
}

/// How a pc came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// The instruction that is next.
    Instruction,
    /// Saved by the runtime: behind a call, but for its own stack size.
    Saved,
    /// Behind a call.
    Return,
}

#[derive(Clone, Copy)]
struct Step {
    pc: u64,
    size: Option<u64>,
    flags: u8,
    injected: bool,
}

/// Walks stacks of one module, and remembers what was found out.
pub struct Unwinder<'a> {
    table: &'a Pclntab,
    /// FuncIDs of the calls that signals put in.
    injected: Vec<u8>,
    /// FuncID of cgocallback.
    callback: Option<u8>,
    steps: FxHashMap<(u64, At), Option<Step>>,
}

impl<'a> Unwinder<'a> {
    /// `injected`: FuncIDs of what signals call; `callback`: that of cgocallback.
    pub fn new(table: &'a Pclntab, injected: Vec<u8>, callback: Option<u8>) -> Self {
        Unwinder { table, injected, callback, steps: FxHashMap::default() }
    }

    fn step(&mut self, pc: u64, at: At) -> Option<Step> {
        if let Some(known) = self.steps.get(&(pc, at)) {
            return *known;
        }
        if self.steps.len() >= MAX_KNOWN {
            self.steps.clear();
        }
        let found = self.look_up(pc, at);
        self.steps.insert((pc, at), found);
        found
    }

    fn look_up(&self, pc: u64, at: At) -> Option<Step> {
        let (function, _) = self.table.function(self.table.find(pc.wrapping_sub(u64::from(at == At::Return)))?)?;
        let inside = if at == At::Instruction || pc == function.entry { pc } else { pc - 1 };
        let sized = if at == At::Return { inside } else { pc };
        let size = self.table.stack_size(&function, sized);
        let flags = function.flags & if Some(function.id) == self.callback { !FLAG_SP_WRITE } else { !0 };
        Some(Step { pc: inside, size, flags, injected: self.injected.contains(&function.id) })
    }

    /// Whether an address is in Go code.
    pub fn is_code(&self, pc: u64) -> bool {
        self.table.find(pc).is_some()
    }

    /// Appends the pcs of a stack, leaf first, each within the instruction that it is at. `word` reads a word of it.
    pub fn walk(
        &mut self,
        (mut pc, mut sp, mut at): (u64, u64, At),
        word: impl Fn(u64) -> Option<u64>,
        pcs: &mut Vec<u64>,
    ) -> End {
        let first = pcs.len();
        while pcs.len() < MAX_DEPTH {
            let Some(step) = self.step(pc, at) else { return End::Lost };
            if step.flags & FLAG_SP_WRITE != 0 && pcs.len() > first {
                return End::Lost;
            }
            pcs.push(step.pc);
            if step.flags & FLAG_TOP != 0 {
                return End::Whole;
            }
            let Some(size) = step.size else { return End::Lost };
            let slot = sp.wrapping_add(size);
            let Some(caller) = word(slot) else { return End::Beyond(slot) };
            (pc, sp) = (caller, slot.wrapping_add(8));
            at = if step.injected { At::Instruction } else { At::Return };
        }
        End::Deep
    }
}
