//! Exceptions on their way to a handler. libgcc's `_Unwind_RaiseException` and its likes write the registers of the
//! handler's frame over those that they saved on entry, the return address among them, before they leave for it: in
//! between, their tables lead to the handler's function at a stack pointer that is not its own.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register};

use crate::memory::Memory;

/// Bytes and instructions looked at for the way out.
const WAY_OUT: (usize, usize) = (384, 80);
/// Most calls on it: `_Unwind_DebugHook`.
const WAY_OUT_CALLS: usize = 1;
/// Most jumps between a call and the function called.
const MAX_JUMPS: usize = 3;
/// Bytes of the longest call, and of the longest start of a PLT entry.
const CALL: u64 = 6;
const ENTRY: usize = 16;

/// Whether the call before `pc` calls the function at `start`, through a PLT or not: if it does not, `pc` is not where
/// that function was called from.
pub fn is_called(memory: &dyn Memory, pc: u64, start: u64) -> bool {
    let mut before = [0; CALL as usize];
    if memory.read(pc.wrapping_sub(CALL), &mut before).is_err() {
        return false;
    }
    // call *slot(%rip)
    if let [0xff, 0x15, slot @ ..] = before
        && memory.read_u64(relative(pc, slot)) == Ok(start)
    {
        return true;
    }
    let [_, 0xe8, distance @ ..] = before else { return false };
    let mut target = relative(pc, distance);
    for _ in 0..MAX_JUMPS {
        if target == start {
            return true;
        }
        let mut entry = [0; ENTRY];
        if memory.read(target, &mut entry).is_err() {
            return false;
        }
        let mut code = &entry[..];
        let mut at = target;
        // endbr64, bnd
        for prefix in [&[0xf3, 0x0f, 0x1e, 0xfa][..], &[0xf2]] {
            if let Some(rest) = code.strip_prefix(prefix) {
                (code, at) = (rest, at.wrapping_add(prefix.len() as u64));
            }
        }
        target = match *code {
            // jmp *slot(%rip)
            [0xff, 0x25, a, b, c, d, ..] => match memory.read_u64(relative(at.wrapping_add(6), [a, b, c, d])) {
                Ok(target) => target,
                Err(_) => return false,
            },
            [0xe9, a, b, c, d, ..] => relative(at.wrapping_add(5), [a, b, c, d]),
            _ => return false,
        };
    }
    target == start
}

/// Whether a function that throws is about to leave for a handler at `pc`: the registers that it saved are the handler's
/// by then, also while it still has a return address of its own. `__builtin_eh_return` ends in a move to the stack
/// pointer; what is before `uw_install_context_1` has one call more on its way there.
pub fn is_leaving(memory: &dyn Memory, pc: u64) -> bool {
    let mut code = [0; WAY_OUT.0];
    // The end of the code may be near.
    let size = [WAY_OUT.0, WAY_OUT.0 / 4].into_iter().find(|&size| memory.read(pc, &mut code[..size]).is_ok());
    let Some(size) = size else { return false };
    let mut calls = 0;
    for instruction in Decoder::with_ip(64, &code[..size], pc, DecoderOptions::NONE).iter().take(WAY_OUT.1) {
        let to_stack = instruction.mnemonic() == Mnemonic::Mov && instruction.op0_register() == Register::RSP;
        if to_stack && instruction.op1_kind() == OpKind::Register && instruction.op1_register() != Register::RBP {
            return true;
        }
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            FlowControl::Call if calls < WAY_OUT_CALLS => calls += 1,
            _ => return false,
        }
    }
    false
}

fn relative(next: u64, distance: [u8; 4]) -> u64 {
    next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorded::Recorded;

    const BASE: u64 = 0x1000;
    const START: u64 = 0x7000;

    /// Whether a call of `bytes` that ends at 0x10 is one of START; at 0x20 is a PLT entry, at 0x40 its slot.
    fn called(call: &[u8], entry: &[u8], slot: u64) -> bool {
        let mut bytes = vec![0x90; 0x100];
        bytes[0x10 - call.len()..0x10].copy_from_slice(call);
        bytes[0x20..0x20 + entry.len()].copy_from_slice(entry);
        bytes[0x40..0x48].copy_from_slice(&slot.to_le_bytes());
        is_called(&Recorded::of(BASE, &bytes), BASE + 0x10, START)
    }

    #[test]
    fn the_way_to_a_handler() {
        let leaving = |code: &[u8]| {
            let mut bytes = code.to_vec();
            bytes.resize(0x400, 0x90);
            is_leaving(&Recorded::of(BASE, &bytes), BASE)
        };
        let call = [0xe8, 0, 0, 0, 0];
        // mov 0(%rbp),%rbp; mov %rcx,%rsp; pop %rcx; jmp *%rcx
        let end = [0x48, 0x8b, 0x6d, 0, 0x48, 0x89, 0xcc, 0x59, 0xff, 0xe1];
        assert!(leaving(&end));
        assert!(leaving(&[&call[..], &end].concat()));
        assert!(!leaving(&[&call[..], &call, &end].concat()));
        // mov %rbp,%rsp is an ordinary end, and so is ret; nothing but nops is none.
        assert!(!leaving(&[0x48, 0x89, 0xec, 0x5d, 0xc3]));
        assert!(!leaving(&[&[0xc3][..], &end].concat()));
        assert!(!leaving(&[]));
    }

    #[test]
    fn calls() {
        let direct = (START - BASE - 0x10) as u8;
        assert!(called(&[0xe8, direct, 0x5f, 0, 0], &[], 0));
        assert!(!called(&[0xe8, direct + 1, 0x5f, 0, 0], &[], 0));
        // call *slot(%rip); call through a register, or through another slot.
        assert!(called(&[0xff, 0x15, 0x30, 0, 0, 0], &[], START));
        assert!(!called(&[0xff, 0x15, 0x30, 0, 0, 0], &[], START + 1));
        assert!(!called(&[0xff, 0xd0], &[], START));
        let call = [0xe8, 0x10, 0, 0, 0];
        assert!(called(&call, &[0xff, 0x25, 0x1a, 0, 0, 0], START));
        assert!(called(&call, &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x15, 0, 0, 0], START));
        assert!(called(&call, &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x16, 0, 0, 0], START));
        assert!(!called(&call, &[0xff, 0x25, 0x1a, 0, 0, 0], START + 8));
        // The function itself, of course, is no jump; a jump to itself ends.
        assert!(!called(&call, &[0x55], START));
        assert!(!called(&call, &[0xeb, 0xfe], START));
        assert!(!called(&call, &[0xe9, 0xfb, 0xff, 0xff, 0xff], START));
    }
}
