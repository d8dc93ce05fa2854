//! How to find a frame's caller: worked out once for each code address, then kept.

use super::registers::{CALLEE_SAVED, RA, RBP, RSP, Registers};
use super::stack::Stack;
use super::{End, Reason};

/// Where a callee-saved register was saved, in words from the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved(i16);

impl Saved {
    /// Not at all: it has the caller's value.
    pub const SAME: Saved = Saved(i16::MIN);
    /// Its value is gone.
    pub const LOST: Saved = Saved(i16::MAX);

    /// At this offset, if it can be told that way.
    pub fn at(offset: i64) -> Option<Saved> {
        let words = i16::try_from(offset / 8).ok()?;
        (offset % 8 == 0 && words.unsigned_abs() < i16::MAX as u16).then_some(Saved(words))
    }
}

/// How to find the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// There is none: the first frame of a thread.
    Bottom,
    /// The runtime that the code belongs to does not say.
    Unknown,
    /// CFA = register + offset, or the word there; the return address lies below the CFA, as do the saved registers.
    Frame {
        /// DWARF number.
        register: u8,
        /// Whether the CFA is what memory holds at register + offset.
        indirect: bool,
        /// In bytes.
        offset: i32,
        /// In the order of [`CALLEE_SAVED`].
        saved: [Saved; 6],
    },
    /// The table has to be asked each time.
    Evaluate,
    /// A signal trampoline: the interrupted registers lie at sp.
    Signal,
    /// As the tables of a module of Windows say: the place of the step among those that are kept.
    Module(u32),
    /// No table says anything, and nothing else would either.
    Lost,
    /// No table says anything: a frame pointer, or a leaf's return address, if they hold good.
    Bare {
        /// Whether the code comes from no file: JIT'd code keeps frame pointers more often than not.
        anonymous: bool,
    },
}

impl Rule {
    /// The return address lies at sp: at the first instruction of a function, or the last.
    pub const RETURN: Rule = Rule::Frame { register: 7, indirect: false, offset: 8, saved: [Saved::SAME; 6] };
    /// The frame pointer has been pushed, and nothing else.
    pub const PUSHED: Rule = Rule::Frame {
        register: 7,
        indirect: false,
        offset: 16,
        saved: [Saved::SAME, Saved(-2), Saved::SAME, Saved::SAME, Saved::SAME, Saved::SAME],
    };
}

/// Offsets in the kernel's `rt_sigframe` from the stack pointer of the trampoline (arch/x86/include/uapi/asm/
/// sigcontext.h behind the 40 bytes of ucontext), by DWARF number.
const SIGNAL_SLOTS: [u64; 17] = [144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168];
/// Offset of the interrupted stack pointer in it.
pub const SIGNAL_SP: u64 = SIGNAL_SLOTS[7];

/// Applies [`Rule::Frame`].
pub fn frame(
    registers: &Registers,
    stack: &Stack<'_>,
    (register, indirect, offset): (u8, bool, i32),
    saved: &[Saved; 6],
) -> Result<Registers, End> {
    let base = registers.get(gimli::Register(u16::from(register))).ok_or(End::Truncated(Reason::LostRegister))?;
    let mut cfa = base.wrapping_add_signed(i64::from(offset));
    let sp = registers.sp();
    if indirect {
        cfa = stack.read(cfa).ok_or_else(|| missing(cfa, sp))?;
    }
    if cfa <= sp {
        return Err(End::Truncated(Reason::StackPointer));
    }
    let slot = cfa.wrapping_sub(8);
    let mut caller = registers.for_caller();
    let return_address = stack.read(slot).ok_or_else(|| missing(slot, sp))?;
    for (saved, register) in saved.iter().zip(CALLEE_SAVED) {
        match *saved {
            Saved::SAME => {}
            Saved::LOST => caller.forget(register),
            Saved(words) => {
                let at = cfa.wrapping_add_signed(i64::from(words) * 8);
                match stack.read(at) {
                    Some(value) => caller.set(register, value),
                    // It has been popped: the register has it.
                    None if at < sp => {}
                    None => caller.forget(register),
                }
            }
        }
    }
    caller.set(RSP, cfa);
    caller.set(RA, return_address);
    Ok(caller)
}

/// Applies [`Rule::Signal`].
pub fn signal(registers: &Registers, stack: &Stack<'_>) -> Result<Registers, End> {
    let sp = registers.sp();
    let mut interrupted = Registers::default();
    for (number, offset) in SIGNAL_SLOTS.into_iter().enumerate() {
        let at = sp.wrapping_add(offset);
        interrupted.set(gimli::Register(number as u16), stack.read(at).ok_or_else(|| missing(at, sp))?);
    }
    Ok(interrupted)
}

/// A step along the frame pointer. The caller of this function judges the return address.
pub fn frame_pointer(registers: &Registers, stack: &Stack<'_>) -> Result<Registers, End> {
    let bp = registers.get(RBP).ok_or(End::Truncated(Reason::LostRegister))?;
    let sp = registers.sp();
    if bp < sp || bp % 8 != 0 || bp - sp > MAX_FRAME_BYTES {
        return Err(End::Truncated(Reason::NoTables));
    }
    let mut caller = Registers::default();
    caller.set(RBP, stack.read(bp).ok_or_else(|| missing(bp, sp))?);
    let slot = bp.wrapping_add(8);
    caller.set(RA, stack.read(slot).ok_or_else(|| missing(slot, sp))?);
    caller.set(RSP, bp.wrapping_add(16));
    Ok(caller)
}

/// Largest frame that a frame pointer is believed to span.
const MAX_FRAME_BYTES: u64 = 8 << 20;

/// What an address that was not copied means.
pub fn missing(address: u64, sp: u64) -> End {
    if address < sp { End::Truncated(Reason::StackPointer) } else { End::NeedMore { address } }
}

#[cfg(test)]
mod tests {
    use super::super::stack::StackCopy;
    use super::*;

    /// The last instructions of libffi's `ffi_call_unix64`: CFA = rbp + 32, rbp saved at CFA - 16, sp = rbp + 24 already.
    #[test]
    fn a_register_saved_in_the_red_zone() {
        let bytes: Vec<u8> = [0, 0, 0x7777, 0x5555].into_iter().flat_map(u64::to_le_bytes).collect();
        let pieces = [StackCopy { address: 0x1000, bytes: &bytes }];
        let registers = Registers::new(0x4000, 0x1018, 0x1000);
        let mut saved = [Saved::SAME; 6];
        saved[1] = Saved(-2);
        let step =
            |has_called| frame(&registers, &Stack::of_frame(&pieces, 0x1018, has_called), (6, false, 32), &saved);
        let caller = step(false).unwrap();
        assert_eq!((caller.ip(), caller.sp(), caller.get(RBP)), (0x5555, 0x1020, Some(0x7777)));
        // Those that it has called may have used it.
        assert_eq!(step(true).unwrap().get(RBP), Some(0x1000));
    }
}
