//! Epilogues: what is left of one is followed. Up to a `ret` this is what will happen; a jump ends a function only if it
//! leaves it. Which instructions there may be: Microsoft, "x64 prolog and epilog".

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind, Register as Name};

use super::info::{Place, Step, register};
use crate::unwind::registers::RSP;

/// Most instructions: one that takes the frame off, each register, a `ret`.
const MAX_INSTRUCTIONS: usize = 18;

/// How the caller is found if `code`, which lies at `pc`, is the rest of an epilogue; None if it is none. `leaves` says
/// whether a jump to an address leaves the function.
pub fn step(code: &[u8], pc: u64, leaves: impl Fn(u64) -> bool) -> Option<Step> {
    let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
    let mut step = Step::leaf();
    let mut instruction = Instruction::default();
    for _ in 0..MAX_INSTRUCTIONS {
        let at = decoder.position();
        if !decoder.can_decode() {
            return None;
        }
        decoder.decode_out(&mut instruction);
        match instruction.code() {
            Code::Add_rm64_imm8 | Code::Add_rm64_imm32 if instruction.op0_register() == Name::RSP => {
                step.returns = step.returns.up(instruction.immediate(1).cast_signed());
            }
            Code::Lea_r64_m if instruction.op0_register() == Name::RSP => {
                if instruction.memory_index() != Name::None {
                    return None;
                }
                let place = value(&step, instruction.memory_base())?;
                step.returns = place.up(instruction.memory_displacement64().cast_signed());
            }
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 if instruction.op0_register() == Name::RSP => {
                step.returns = value(&step, instruction.op1_register())?;
            }
            Code::Pop_r64 | Code::Pop_rm64 if instruction.op0_kind() == OpKind::Register => {
                let name = instruction.op0_register();
                if name == Name::RSP {
                    return None;
                }
                step.save(number(name)?, step.returns);
                step.returns = step.returns.up(8);
            }
            Code::Retnq | Code::Retnq_imm16 => return Some(step),
            Code::Jmp_rel8_64 | Code::Jmp_rel32_64 => {
                return leaves(instruction.near_branch_target()).then_some(step);
            }
            Code::Jmp_rm64 => {
                // To an import, or marked as one that leaves: others choose between the cases of a switch.
                let bytes = code.get(at..decoder.position())?;
                let wide = bytes.len() > 2 && bytes[0] & 0xf8 == 0x48;
                return (wide || instruction.is_ip_rel_memory_operand()).then_some(step);
            }
            _ => return None,
        }
    }
    None
}

/// What a register holds at this place of the epilogue.
fn value(step: &Step, name: Name) -> Option<Place> {
    let register = number(name)?;
    if register == RSP {
        return Some(step.returns);
    }
    // One that was popped is measured from no more.
    (!step.has(register)).then_some(Place { register, offset: 0 })
}

/// Of the sixteen that are 64 bits wide.
fn number(name: Name) -> Option<gimli::Register> {
    name.is_gpr64().then(|| register(name.number() as u8))
}
