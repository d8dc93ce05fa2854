//! The code of the runtime that goes from stack to stack, for walks that native frames are part of too: what
//! [`crate::unwind::guest`] asks for.
//!
//! The functions are those of src/runtime/asm_amd64.s, src/runtime/sys_linux_amd64.s, src/runtime/proc.go and
//! src/runtime/cgo/asm_amd64.s of Go 1.18 to 1.26.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::Go;
use super::derive::{Code, field};
use super::pclntab::{FLAG_SP_WRITE, FLAG_TOP, Func, Pclntab};
use crate::unwind::guest::{CallSlots, Guest, Guide, Resumed, Role};

/// DWARF's callee-saved registers, in the order of [`Role::Entry`].
const CALLEE_SAVED: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
/// Largest frame of crosscall2 that is believed.
const MAX_ENTRY_BYTES: u64 = 1 << 10;

/// Functions of the runtime with a role of their own, by their first address.
#[derive(Clone, Debug, Default)]
pub struct Switches {
    roles: Vec<(u64, Role)>,
    /// systemstack_switch.
    stands: Option<u64>,
    slots: Option<CallSlots>,
}

impl Switches {
    /// Finds them. Where one is not there, walks do not go through it.
    pub fn find(code: &Code<'_>, table: &Pclntab) -> Switches {
        let mut found = Switches::default();
        let mut add = |name: &str, role: Role| {
            found.roles.extend(code.function(name).map(|function| (function.entry, role)));
        };
        add("gogo", Role::Resume);
        add("runtime.schedule", Role::Scheduler);
        add("runtime.cgocallback", Role::FromC);
        add("runtime.asmcgocall", Role::ToC);
        add("runtime.asyncPreempt", Role::Injected);
        add("runtime.sigpanic", Role::Injected);
        add("runtime.debugCallV2", Role::Injected);
        // Below it is the frame of the signal.
        add("runtime.sigtramp", Role::Plain);
        if let Some(words) = entry(code, table) {
            add("crosscall2", Role::Entry(words));
        }
        found.stands = code.function("runtime.systemstack_switch").map(|function| function.entry);
        found.slots = call_slots(&code.instructions("runtime.asmcgocall"));
        found
    }

    fn role(&self, function: &Func) -> Role {
        let known = self.roles.iter().find(|(entry, _)| *entry == function.entry);
        match known {
            Some(&(_, role)) => role,
            None if function.flags & FLAG_TOP != 0 => Role::First,
            None if function.flags & FLAG_SP_WRITE != 0 => Role::System,
            None => Role::Plain,
        }
    }
}

/// Where crosscall2 saves the registers that C wants back, in words from its CFA.
fn entry(code: &Code<'_>, table: &Pclntab) -> Option<[i16; 6]> {
    let function = code.function("crosscall2")?;
    let mut words = [0; 6];
    for one in code.instructions("crosscall2") {
        if one.mnemonic() == Mnemonic::Call {
            break;
        }
        let Some(at) = CALLEE_SAVED.iter().position(|&register| stores(&one, register)) else { continue };
        let size = table.stack_size(function, one.ip())?;
        let below = (size + 8).checked_sub(field(&one, Register::RSP)?).filter(|&below| below <= MAX_ENTRY_BYTES)?;
        words[at] = -i16::try_from(below / 8).ok()?;
    }
    words.iter().all(|&word| word != 0).then_some(words)
}

/// asmcgocall saves the goroutine, then the depth of its stack, right before it calls.
fn call_slots(code: &[Instruction]) -> Option<CallSlots> {
    let saved = code.iter().filter(|one| stores(one, Register::RDI)).filter_map(|one| field(one, Register::RSP));
    let saved: Vec<u64> = saved.take(2).collect();
    let [goroutine, depth] = saved[..] else { return None };
    (goroutine != depth).then_some(CallSlots { goroutine, depth })
}

/// Whether an instruction is `mov [rsp+…], register`.
fn stores(one: &Instruction, register: Register) -> bool {
    one.mnemonic() == Mnemonic::Mov
        && one.op0_kind() == OpKind::Memory
        && one.op1_kind() == OpKind::Register
        && one.op1_register() == register
        && one.memory_base() == Register::RSP
}

impl Guest for Go<'_> {
    fn guide(&self, pc: u64, exact: bool) -> Option<Guide> {
        let inside = if exact { pc } else { pc.wrapping_sub(1) };
        let (function, _) = self.table.function(self.table.find(inside)?)?;
        Some(Guide { size: self.table.stack_size(&function, inside), role: self.switches.role(&function) })
    }

    fn resumed(&self, pc: u64) -> Resumed {
        let found = self.table.find(pc).and_then(|index| self.table.function(index));
        match found {
            Some((function, _)) if Some(function.entry) == self.switches.stands => {
                Resumed::Stands(self.table.stack_size(&function, pc).unwrap_or(0))
            }
            Some((function, _)) if function.entry == pc => Resumed::At,
            _ => Resumed::Behind,
        }
    }

    fn call_slots(&self) -> Option<CallSlots> {
        self.switches.slots
    }
}

impl std::fmt::Debug for Go<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Go").field("version", &self.version()).finish_non_exhaustive()
    }
}
