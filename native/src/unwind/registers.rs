//! The registers of a frame, numbered as in DWARF (System V ABI, x86-64, table 3.36).

use gimli::Register;

#[cfg(unix)]
use crate::target::ptrace;

/// Stack pointer.
pub const RSP: Register = Register(7);
/// Frame pointer, in code that keeps one.
pub const RBP: Register = Register(6);
/// Where Go keeps the running g (ABIInternal).
pub const GO_G: Register = Register(14);
/// Return address column: the program counter.
pub const RA: Register = Register(16);
/// What a function must leave as it found it: rbx, rbp, r12 to r15.
pub const CALLEE_SAVED: [Register; 6] = [Register(3), RBP, Register(12), Register(13), Register(14), Register(15)];
/// The registers of a system call's arguments: rdi, rsi, rdx, r10, r8, r9.
const ARGUMENTS: [Register; 6] = [Register(5), Register(4), Register(1), Register(10), Register(8), Register(9)];
/// On Windows rdi and rsi too.
const KEPT_ON_WINDOWS: u32 = KEPT | 1 << 4 | 1 << 5;
/// The callee-saved ones, and the two that every step sets.
const KEPT: u32 = 1 << 3 | 1 << 6 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15 | 1 << 7 | 1 << 16;
const COUNT: usize = 17;

/// The registers that are known of a frame. Where an unwinding starts, and what a step yields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    values: [u64; COUNT],
    known: u32,
}

impl Registers {
    /// Only these three are known.
    pub fn new(ip: u64, sp: u64, bp: u64) -> Registers {
        let mut registers = Registers::default();
        registers.set(RA, ip);
        registers.set(RSP, sp);
        registers.set(RBP, bp);
        registers
    }

    /// A sleeping thread's, as `/proc/PID/task/TID/syscall` has them. glibc's vfork keeps its return address in rdi.
    pub fn asleep(ip: u64, sp: u64, call: i64, arguments: &[u64; 6]) -> Registers {
        let mut registers = Registers::default();
        if call >= 0 {
            ARGUMENTS.into_iter().zip(*arguments).for_each(|(register, value)| registers.set(register, value));
        }
        registers.set(RA, ip);
        registers.set(RSP, sp);
        registers
    }

    /// Those of a stopped thread.
    #[cfg(unix)]
    pub fn stopped(from: &ptrace::Registers) -> Registers {
        let values = [
            from.rax, from.rdx, from.rcx, from.rbx, from.rsi, from.rdi, from.rbp, from.rsp, from.r8, from.r9, from.r10,
            from.r11, from.r12, from.r13, from.r14, from.r15, from.rip,
        ];
        Registers { values, known: (1 << COUNT) - 1 }
    }

    /// Those of a suspended thread of Windows, in the order in which it numbers them: rax, rcx, rdx, rbx, rsp, rbp, rsi,
    /// rdi, r8 to r15; and rip.
    pub fn suspended(general: &[u64; 16], rip: u64) -> Registers {
        let [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, rest @ ..] = *general;
        let mut registers = Registers { values: [0; COUNT], known: (1 << COUNT) - 1 };
        registers.values[..8].copy_from_slice(&[rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp]);
        registers.values[8..16].copy_from_slice(&rest);
        registers.values[16] = rip;
        registers
    }

    /// The value of a register, if known.
    pub fn get(&self, register: Register) -> Option<u64> {
        let index = usize::from(register.0);
        (index < COUNT && self.known >> index & 1 == 1).then(|| self.values[index])
    }

    /// Sets a register; one that is not kept track of is ignored.
    pub fn set(&mut self, register: Register, value: u64) {
        if let Some(place) = self.values.get_mut(usize::from(register.0)) {
            *place = value;
            self.known |= 1 << register.0;
        }
    }

    /// Its value is not known any more.
    pub fn forget(&mut self, register: Register) {
        if usize::from(register.0) < COUNT {
            self.known &= !(1 << register.0);
        }
    }

    /// Program counter.
    pub fn ip(&self) -> u64 {
        self.values[16]
    }

    /// Stack pointer.
    pub fn sp(&self) -> u64 {
        self.values[7]
    }

    /// What a call leaves known to the caller, on Windows.
    pub fn for_caller_on_windows(&self) -> Registers {
        Registers { values: self.values, known: self.known & KEPT_ON_WINDOWS }
    }

    /// What a call leaves known to the caller.
    pub fn for_caller(&self) -> Registers {
        Registers { values: self.values, known: self.known & KEPT }
    }
}
