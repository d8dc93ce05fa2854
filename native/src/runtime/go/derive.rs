//! Where the runtime keeps what, read off the program's own machine code.
//!
//! Offsets move even inside of a minor release (1.23.0 and 1.23.12 differ), so there is no table of versions: the few
//! functions whose work gives an offset away are disassembled, and what they say is checked against live goroutines
//! ([`super::live`]). The functions are those of src/runtime of Go 1.18 to 1.26: nanotime1 (sys_linux_amd64.s), gogo
//! (asm_amd64.s), casgstatus, forEachG (proc.go), waitReason.String (runtime2.go), setProfLabel (proflabel.go),
//! stackcheck (asm_amd64.s), gopanic (panic.go).

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use rustc_hash::FxHashMap;

use super::image::Image;
use super::pclntab::{Func, Pclntab};
use crate::memory::Memory;

/// Most bytes of code of one function that are disassembled.
const MAX_CODE_BYTES: u64 = 64 << 10;
/// Largest offset in a g or m that is believed.
const MAX_OFFSET: u64 = 4096;

/// Where the thread-local pointer to the running g is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// At this distance from the thread pointer.
    Offset(i64),
    /// At the distance that this word holds.
    Word(u64),
}

/// Offsets of fields, and addresses of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// g.m.
    pub m: u64,
    /// g.sched.sp.
    pub sched_sp: u64,
    /// g.sched.pc.
    pub sched_pc: u64,
    /// g.syscallsp; behind it stands g.syscallpc.
    pub syscall_sp: u64,
    /// g.atomicstatus.
    pub status: u64,
    /// g.goid.
    pub goid: u64,
    /// g.waitsince.
    pub wait_since: u64,
    /// g.waitreason.
    pub wait_reason: u64,
    /// g.labels; None where nothing in the program sets any.
    pub labels: Option<u64>,
    /// m.g0.
    pub g0: u64,
    /// m.curg.
    pub curg: u64,
    /// m.vdsoPC.
    pub vdso_pc: u64,
    /// m.vdsoSP.
    pub vdso_sp: u64,
    /// The length of m.preemptoff; None = not found.
    pub preempt_off: Option<u64>,
    /// Where a thread's g is.
    pub tls: Tls,
    /// runtime.allgs.
    pub allgs: u64,
    /// runtime.waitReasonStrings.
    pub wait_reasons: u64,
}

/// Functions by name, as far as they are asked for.
pub struct Code<'a> {
    /// The module.
    pub image: &'a Image<'a>,
    /// Its functions.
    pub table: &'a Pclntab,
    named: FxHashMap<&'static str, (Func, u64)>,
}

/// Functions that are looked for; the names of those in assembly may end in `.abi0`.
const WANTED: [&str; 22] = [
    "crosscall2",
    "gogo",
    "runtime.asmcgocall",
    "runtime.debugCallV2",
    "runtime.casgstatus",
    "runtime.cgocallback",
    "runtime.forEachG",
    "runtime.goexit",
    "runtime.gopanic",
    "runtime.mexit",
    "runtime.minit",
    "runtime.nanotime1",
    "runtime.panicwrap",
    "runtime.schedule",
    "runtime.sigpanic",
    "runtime.sigtramp",
    "runtime.stackcheck",
    "runtime.systemstack_switch",
    "runtime.waitReason.String",
    "runtime.main",
    "runtime.asyncPreempt",
    "runtime/pprof.runtime_setProfLabel",
];

impl<'a> Code<'a> {
    /// Finds the functions of a module that offsets are derived from.
    pub fn new(image: &'a Image<'a>, table: &'a Pclntab) -> Code<'a> {
        Code::with(image, table, &WANTED)
    }

    /// Finds these functions of a module.
    pub fn with(image: &'a Image<'a>, table: &'a Pclntab, wanted: &[&'static str]) -> Code<'a> {
        let wanted: FxHashMap<&[u8], &'static str> = wanted.iter().map(|name| (name.as_bytes(), *name)).collect();
        let mut named = FxHashMap::default();
        for index in 0..table.len() {
            let Some(function) = table.function(index) else { continue };
            let name = table.name_of(&function.0);
            let plain = name.strip_suffix(b".abi0").unwrap_or(name);
            if let Some(&known) = wanted.get(plain) {
                // The body, where there is a wrapper of another calling convention too: it is the larger one.
                let size = |function: &(Func, u64)| function.1 - function.0.entry;
                match named.entry(known) {
                    std::collections::hash_map::Entry::Occupied(mut entry) => {
                        if size(&function) > size(entry.get()) {
                            entry.insert(function);
                        }
                    }
                    std::collections::hash_map::Entry::Vacant(entry) => {
                        entry.insert(function);
                    }
                }
            }
        }
        Code { image, table, named }
    }

    /// A function by its name.
    pub fn function(&self, name: &str) -> Option<&Func> {
        self.named.get(name).map(|(function, _)| function)
    }

    /// The instructions of a function; none where it is not there.
    pub fn instructions(&self, name: &str) -> Vec<Instruction> {
        let Some((function, end)) = self.named.get(name) else { return Vec::new() };
        let size = end.saturating_sub(function.entry).min(MAX_CODE_BYTES);
        let Ok(bytes) = self.image.read_bytes(function.entry, size as usize, MAX_CODE_BYTES as usize) else {
            return Vec::new();
        };
        Decoder::with_ip(64, &bytes, function.entry, DecoderOptions::NONE)
            .iter()
            .filter(|instruction| !instruction.is_invalid())
            .collect()
    }

    /// The variables that a function refers to, in its order, with the bytes that are read or written there (0 where
    /// only the address is taken).
    pub fn variables(&self, name: &str) -> Vec<(u64, usize)> {
        let found = self.instructions(name).into_iter().filter(Instruction::is_ip_rel_memory_operand);
        found
            .map(|instruction| {
                let size = if instruction.mnemonic() == Mnemonic::Lea { 0 } else { instruction.memory_size().size() };
                (instruction.memory_displacement64(), size)
            })
            .filter(|&(address, _)| self.image.variable(address, 4))
            .collect()
    }

    fn offsets_of(&self, name: &'static str) -> Result<Vec<Instruction>, &'static str> {
        let found = self.instructions(name);
        if found.is_empty() { Err(name) } else { Ok(found) }
    }
}

/// `mov REGISTER, [base+offset]`: the register and the offset.
pub(super) fn load(instruction: &Instruction, base: Register) -> Option<(Register, u64)> {
    let is_load = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Memory;
    let offset = field(instruction, base)?;
    is_load.then_some((instruction.op0_register(), offset))
}

/// The offset of a memory operand from a base register.
pub(super) fn field(instruction: &Instruction, base: Register) -> Option<u64> {
    let has_memory = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let offset = instruction.memory_displacement64();
    let plain = instruction.memory_index() == Register::None && instruction.segment_prefix() == Register::None;
    (has_memory && plain && instruction.memory_base() == base && offset <= MAX_OFFSET).then_some(offset)
}

/// All offsets; the name of the function that does not look as expected where that fails.
pub fn derive(code: &Code<'_>) -> Result<Offsets, &'static str> {
    let time = code.offsets_of("runtime.nanotime1")?;
    let clock = clock(&time).ok_or("runtime.nanotime1")?;
    let (sp, pc, bp) = gobuf(&code.offsets_of("gogo")?).ok_or("gogo")?;
    let status = status(&code.offsets_of("runtime.casgstatus")?).ok_or("runtime.casgstatus")?;
    let syscall_sp = clock.sched + bp + 8;
    if !(syscall_sp + 16..MAX_OFFSET).contains(&status) || sp != 0 {
        return Err("runtime.casgstatus");
    }
    Ok(Offsets {
        m: clock.m,
        sched_sp: clock.sched + sp,
        sched_pc: clock.sched + pc,
        syscall_sp,
        status,
        // These stand behind the status in every version that has this layout (src/runtime/runtime2.go): stackLock,
        // goid, schedlink, waitsince, waitreason.
        goid: status + 8,
        wait_since: status + 24,
        wait_reason: status + 32,
        labels: labels(&code.instructions("runtime/pprof.runtime_setProfLabel"))?,
        g0: clock.g0,
        curg: clock.curg,
        vdso_pc: clock.vdso_pc,
        vdso_sp: clock.vdso_sp,
        preempt_off: preempt_off(&code.instructions("runtime.gopanic"), clock.curg),
        tls: tls(&code.offsets_of("runtime.stackcheck")?).ok_or("runtime.stackcheck")?,
        allgs: slice(&code.variables("runtime.forEachG")).ok_or("runtime.forEachG")?,
        wait_reasons: code
            .variables("runtime.waitReason.String")
            .iter()
            .find(|&&(_, size)| size == 0)
            .ok_or("runtime.waitReason.String")?
            .0,
    })
}

struct Clock {
    m: u64,
    vdso_pc: u64,
    vdso_sp: u64,
    curg: u64,
    g0: u64,
    sched: u64,
}

/// nanotime1 takes m from g (r14), saves m.vdsoPC and m.vdsoSP, and unless it runs on g0 goes on with the stack of m.g0.
fn clock(code: &[Instruction]) -> Option<Clock> {
    let mut code = code.iter();
    let m = code.find_map(|one| load(one, Register::R14).filter(|(to, _)| *to == Register::RBX))?.1;
    let mut saved = code.by_ref().filter_map(|one| load(one, Register::RBX));
    let (vdso_pc, vdso_sp) = (saved.next()?.1, saved.next()?.1);
    let curg = code.find(|one| one.mnemonic() == Mnemonic::Cmp).and_then(|one| field(one, Register::RBX))?;
    let g0 = code.find_map(|one| load(one, Register::RBX))?;
    let sched = code.find_map(|one| load(one, g0.0).filter(|(to, _)| *to == Register::RSP))?.1;
    Some(Clock { m, vdso_pc, vdso_sp, curg, g0: g0.1, sched })
}

/// gogo takes sp, bp and pc from the gobuf in rbx.
fn gobuf(code: &[Instruction]) -> Option<(u64, u64, u64)> {
    let of = |register| code.iter().find_map(|one| load(one, Register::RBX).filter(|(to, _)| *to == register));
    Some((of(Register::RSP)?.1, of(Register::RBX)?.1, of(Register::RBP)?.1))
}

/// casgstatus changes the status by a locked compare and exchange.
fn status(code: &[Instruction]) -> Option<u64> {
    let exchange = code.iter().find(|one| one.mnemonic() == Mnemonic::Cmpxchg && one.has_lock_prefix())?;
    let offset = exchange.memory_displacement64();
    let of_g = !exchange.is_ip_rel_memory_operand() && exchange.memory_base() != Register::RSP;
    (of_g && exchange.memory_size().size() == 4 && offset <= MAX_OFFSET).then_some(offset)
}

/// setProfLabel changes g.labels, and looks at no other field of g but those at its beginning. None where nothing in the
/// program sets labels: then that function is not there.
fn labels(code: &[Instruction]) -> Result<Option<u64>, &'static str> {
    let of_g = |one: &Instruction| field(one, one.memory_base()).filter(|&offset| offset >= 0x80);
    let mut found = code.iter().filter(|one| !one.is_ip_rel_memory_operand()).filter_map(of_g);
    let first = found.next();
    let one = found.all(|other| Some(other) == first) && (first.is_some() || code.is_empty());
    if one { Ok(first) } else { Err("runtime/pprof.runtime_setProfLabel") }
}

/// gopanic refuses to go on elsewhere than on the stack of m.curg, then while m.mallocing is set, then while m.preemptoff is:
/// of that it looks at the length.
fn preempt_off(code: &[Instruction], curg: u64) -> Option<u64> {
    let mut compared = code.iter().filter(|one| one.mnemonic() == Mnemonic::Cmp);
    let base = compared.find(|one| field(one, one.memory_base()) == Some(curg))?.memory_base();
    let mut with_zero = compared.filter(|one| one.try_immediate(1).is_ok_and(|value| value == 0)).take(2);
    let mut offset = |size| {
        let one = with_zero.next()?;
        field(one, base).filter(|_| one.memory_size().size() == size)
    };
    let mallocing = offset(4)?;
    offset(8).filter(|&offset| offset > mallocing)
}

/// stackcheck loads g from its slot: at a constant, at what a constant or a word of the linker's tables says.
fn tls(code: &[Instruction]) -> Option<Tls> {
    let mut known: FxHashMap<Register, Tls> = FxHashMap::default();
    for one in code {
        let fs = one.segment_prefix() == Register::FS;
        if fs && one.memory_base() == Register::None {
            let offset = one.memory_displacement64();
            // The displacement has 32 bits, with a sign.
            return Some(Tls::Offset(i64::from((offset as u32).cast_signed())));
        }
        if fs && let Some(&slot) = known.get(&one.memory_base()) {
            return match slot {
                Tls::Offset(base) => Some(Tls::Offset(base + one.memory_displacement64().cast_signed())),
                Tls::Word(_) => Some(slot),
            };
        }
        if one.mnemonic() != Mnemonic::Mov || one.op0_kind() != OpKind::Register {
            continue;
        }
        match one.op1_kind() {
            OpKind::Immediate32to64 | OpKind::Immediate64 => {
                known.insert(one.op0_register(), Tls::Offset(one.immediate(1).cast_signed()));
            }
            OpKind::Memory if one.is_ip_rel_memory_operand() => {
                known.insert(one.op0_register(), Tls::Word(one.memory_displacement64()));
            }
            _ => {}
        }
    }
    None
}

/// The address of a slice of which a function reads both the pointer and the length.
fn slice(variables: &[(u64, usize)]) -> Option<u64> {
    let read = |address| variables.iter().any(|&(other, size)| other == address && size == 8);
    variables.iter().map(|&(address, _)| address).find(|&address| read(address) && read(address.wrapping_add(8)))
}
