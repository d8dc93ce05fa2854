//! What the bytes at an address say, where no table does. Read once for each code address, live: code does not change.

use super::rule::Rule;
use crate::memory::Memory;

/// Bytes looked at before and after an address.
const BEFORE: usize = 8;
const AFTER: usize = 9;
/// `mov $15, %rax; syscall`: what a signal handler returns to (glibc, musl, Go).
const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Where musl's `__clone` goes on after a thread's function: `mov %eax, %edi; xor %eax, %eax; mov $60, %al; syscall`.
const MUSL_THREAD: [u8; 8] = [0x89, 0xc7, 0x31, 0xc0, 0xb0, 0x3c, 0x0f, 0x05];

/// The bytes around an address.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    before: [u8; BEFORE],
    after: [u8; AFTER],
}

impl Code {
    /// Reads them; what is not readable counts as zeros.
    pub fn read(memory: &dyn Memory, address: u64) -> Code {
        let mut bytes = [0; BEFORE + AFTER];
        if memory.read(address.wrapping_sub(BEFORE as u64), &mut bytes).is_err() {
            // At the very start of a mapping.
            bytes = [0; BEFORE + AFTER];
            let _ = memory.read(address, &mut bytes[BEFORE..]);
        }
        Code::from_bytes(&bytes)
    }

    fn from_bytes(bytes: &[u8; BEFORE + AFTER]) -> Code {
        let (mut before, mut after) = ([0; BEFORE], [0; AFTER]);
        before.copy_from_slice(&bytes[..BEFORE]);
        after.copy_from_slice(&bytes[BEFORE..]);
        Code { before, after }
    }

    /// Whether this is a signal trampoline: at its start or, in a leaf, at its second instruction.
    pub fn is_sigreturn(&self, leaf: bool) -> bool {
        let [.., first, second] = SIGRETURN;
        self.after == SIGRETURN || (leaf && self.before[1..] == SIGRETURN[..7] && self.after[..2] == [first, second])
    }

    /// Whether this is where musl's `__clone` goes on after the function of a thread.
    pub fn is_musl_thread(&self) -> bool {
        self.after.starts_with(&MUSL_THREAD)
    }

    /// Whether the instruction before is a call.
    pub fn is_after_call(&self) -> bool {
        let at = |back: usize| self.before[BEFORE - back];
        // FF /2 with its addressing: the ModRM byte tells the length.
        let indirect = |back: usize, modes: &[(u8, bool)]| {
            at(back) == 0xff
                && at(back - 1) >> 3 & 7 == 2
                && modes.contains(&(at(back - 1) >> 6, at(back - 1) & 7 == 4))
        };
        at(5) == 0xe8
            || indirect(2, &[(3, false), (3, true), (0, false)])
            || indirect(3, &[(1, false), (0, true)])
            || indirect(4, &[(1, true)])
            || indirect(6, &[(2, false), (0, false)])
            || indirect(7, &[(2, true), (0, true)])
    }

    /// The rule that an instruction at the edge of a function with a frame pointer gives.
    pub fn edge(&self) -> Option<Rule> {
        match self.after {
            // push %rbp; ret; ret n; endbr64
            [0x55 | 0xc3 | 0xc2, ..] | [0xf3, 0x0f, 0x1e, 0xfa, ..] | [0xf3, 0xc3, ..] => Some(Rule::RETURN),
            // mov %rsp, %rbp after push %rbp
            [0x48, 0x89, 0xe5, ..] | [0x48, 0x8b, 0xec, ..] if self.before[BEFORE - 1] == 0x55 => Some(Rule::PUSHED),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(before: &[u8], after: &[u8]) -> Code {
        let mut bytes = [0x90; BEFORE + AFTER];
        bytes[BEFORE - before.len()..BEFORE].copy_from_slice(before);
        bytes[BEFORE..BEFORE + after.len()].copy_from_slice(after);
        Code::from_bytes(&bytes)
    }

    #[test]
    fn calls() {
        let calls: [&[u8]; 8] = [
            &[0xe8, 1, 2, 3, 4],             // call rel32
            &[0xff, 0xd0],                   // call *%rax
            &[0x41, 0xff, 0xd4],             // call *%r12
            &[0xff, 0x13],                   // call *(%rbx)
            &[0xff, 0x50, 8],                // call *8(%rax)
            &[0xff, 0x54, 0x24, 8],          // call *8(%rsp)
            &[0xff, 0x15, 1, 2, 3, 4],       // call *x(%rip)
            &[0xff, 0x14, 0xc5, 0, 0, 0, 0], // call *x(,%rax,8)
        ];
        for bytes in calls {
            assert!(code(bytes, &[]).is_after_call(), "{bytes:x?}");
        }
        for bytes in [&[0xeb, 1, 2, 3, 4][..], &[0xff, 0xe0], &[0xff, 0x60, 8], &[]] {
            assert!(!code(bytes, &[]).is_after_call(), "{bytes:x?}");
        }
    }

    #[test]
    fn trampolines_and_edges() {
        assert!(code(&[], &SIGRETURN).is_sigreturn(false));
        assert!(code(&SIGRETURN[..7], &SIGRETURN[7..]).is_sigreturn(true));
        assert!(!code(&SIGRETURN[..7], &SIGRETURN[7..]).is_sigreturn(false));
        assert_eq!(code(&[], &[0x55]).edge(), Some(Rule::RETURN));
        assert_eq!(code(&[0x55], &[0x48, 0x89, 0xe5]).edge(), Some(Rule::PUSHED));
        assert_eq!(code(&[], &[0x48, 0x89, 0xe5]).edge(), None);
    }
}
