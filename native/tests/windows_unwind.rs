//! Stacks of Windows programs by the tables in real files: CPython's for Windows (scripts/setup-wine). The same walks are
//! tried on running programs by tests/windows.

mod windows_support;

use _native::memory::Memory;
use _native::pe::{Loaded, Pe};
use _native::unwind::pe::{Found, Pages, Step, Tables};
use _native::unwind::{Registers, Stack, StackCopy};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl};
use windows_support::{BASE, PdataImage, file, mapping};

const STACK: u64 = 0x10_0000;

struct Module<'a> {
    loaded: Loaded<'a>,
    pe: Pe,
    tables: Tables,
    pages: Pages,
}

impl<'a> Module<'a> {
    fn new(bytes: &'a [u8]) -> Module<'a> {
        let loaded = Loaded::parse(bytes, BASE).unwrap();
        let pe = Pe::read(&loaded, BASE).unwrap();
        let tables = Tables::read(&loaded, &mapping(pe.size, "x.dll"), usize::MAX).unwrap();
        Module { loaded, pe, tables, pages: Pages::default() }
    }

    fn step(&self, pc: u64, exact: bool) -> Step {
        match self.tables.step(&self.loaded, &self.pages, pc, exact) {
            Found::Step { step, .. } => step,
            other => panic!("{pc:#x}: {other:?}"),
        }
    }

    fn code(&self, range: &std::ops::Range<u64>) -> Vec<u8> {
        let size = (range.end - range.start) as usize;
        self.loaded.read_bytes(range.start, size, size).unwrap()
    }
}

/// A jump is an epilogue only if it leaves the function.
#[test]
fn jumps_within_the_evaluation_loop_are_no_epilogues() {
    let bytes = file("python314.dll");
    let module = Module::new(&bytes);
    let evaluation = module.pe.export(&module.loaded, "_PyEval_EvalFrameDefault").unwrap().unwrap();
    let parts = module.tables.parts(&module.loaded, &module.pages, evaluation);
    let within = |address: u64| parts.iter().any(|part| part.contains(&address));
    let known = BASE + 0x27_d591;
    assert!(within(known), "the evaluation loop is elsewhere: {parts:x?}");
    let mut jumps = Vec::new();
    for part in &parts {
        let code = module.code(part);
        let mut decoder = Decoder::with_ip(64, &code, part.start, DecoderOptions::NONE);
        for instruction in &mut decoder {
            let direct = matches!(instruction.code(), Code::Jmp_rel8_64 | Code::Jmp_rel32_64);
            if direct && within(instruction.near_branch_target()) {
                jumps.push(instruction.ip());
            }
        }
    }
    assert!(jumps.contains(&known), "no jump at the known place");
    assert!(jumps.len() > 300, "{}", jumps.len());
    let frame = module.step(known, false);
    assert_ne!(frame, Step::leaf());
    for jump in jumps {
        // As from behind a call at the same place: with the whole frame.
        assert_eq!(module.step(jump, true).returns, frame.returns, "{jump:#x}");
    }
}

/// Two ways to one end: at the first instruction of an epilogue the whole frame is still there.
#[test]
fn epilogues_agree_with_the_tables() {
    let bytes = file("python314.dll");
    let module = Module::new(&bytes);
    let (mut agree, mut differ) = (0, Vec::new());
    for function in module.tables.functions() {
        let code = module.code(&function);
        for instruction in &mut Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE) {
            let adds = matches!(instruction.code(), Code::Add_rm64_imm8 | Code::Add_rm64_imm32);
            if !adds || instruction.op0_register() != iced_x86::Register::RSP {
                continue;
            }
            let (by_code, by_table) = (module.step(instruction.ip(), true), module.step(instruction.ip(), false));
            if by_code.returns == by_table.returns { agree += 1 } else { differ.push(instruction.ip()) }
        }
    }
    assert!(agree > 5000, "{agree}");
    assert!(differ.is_empty(), "{} of {agree}: {differ:x?}", differ.len());
}

/// Runs functions from their first instruction on as far as their code goes straight, and walks from each of them.
#[test]
fn prologues_are_walked_from_every_instruction() {
    let bytes = file("python314.dll");
    let module = Module::new(&bytes);
    let (mut walked, mut functions) = (0, 0);
    for function in module.tables.functions() {
        if module.tables.whole(&module.loaded, &module.pages, function.start) != Some(function.clone()) {
            continue; // a part, which is entered with a frame
        }
        functions += 1;
        let code = module.code(&function);
        let mut machine = Machine::new();
        let mut decoder = Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            let registers = Registers::suspended(&machine.registers, instruction.ip());
            let top = machine.registers[4];
            let stack = &machine.stack[(top - STACK) as usize..];
            let pieces = [StackCopy { address: top, bytes: stack }];
            let step = module.step(instruction.ip(), true);
            let caller = step.apply(&registers, &Stack::of_frame(&pieces, top, false)).unwrap();
            assert_eq!((caller.ip(), caller.sp()), (CALLER, TOP + 8), "{:#x} in {function:x?}", instruction.ip());
            for (number, dwarf) in [(3, 3), (5, 6), (6, 4), (7, 5), (12, 12), (13, 13), (14, 14), (15, 15)] {
                let saved = caller.get(gimli::Register(dwarf));
                assert_eq!(saved, Some(value(number)), "register {number} at {:#x} in {function:x?}", instruction.ip());
            }
            walked += 1;
            if instruction.flow_control() != FlowControl::Next || !machine.run(&instruction) {
                break;
            }
        }
    }
    println!("{walked} places in {functions} functions");
    assert!(functions > 5000 && walked > 40_000, "{walked} in {functions}");
}

const CALLER: u64 = 0x1234_5678;
/// Where the return address lies.
const TOP: u64 = STACK + ROOM as u64 - 0x400;
/// Bytes of the stack; functions with larger frames are left at their `sub`.
const ROOM: usize = 0x8000;

/// What a register holds in the beginning, by its number of Windows.
fn value(number: usize) -> u64 {
    0xabc0_0000 + number as u64
}

/// As much of a processor as prologues need.
struct Machine {
    registers: [u64; 16],
    stack: Vec<u8>,
}

impl Machine {
    fn new() -> Machine {
        let mut registers: [u64; 16] = std::array::from_fn(value);
        registers[4] = TOP;
        let mut machine = Machine { registers, stack: vec![0; ROOM] };
        machine.put(TOP, CALLER);
        machine
    }

    fn place(&self, address: u64) -> Option<std::ops::Range<usize>> {
        let at = address.checked_sub(STACK).filter(|at| at + 8 <= ROOM as u64)? as usize;
        Some(at..at + 8)
    }

    fn put(&mut self, address: u64, value: u64) {
        if let Some(place) = self.place(address) {
            self.stack[place].copy_from_slice(&value.to_le_bytes());
        }
    }

    fn get(&self, address: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.stack[self.place(address)?].try_into().ok()?))
    }

    /// Runs an instruction; false where what it does to the stack pointer or to saved registers is not known.
    fn run(&mut self, instruction: &iced_x86::Instruction) -> bool {
        use iced_x86::{OpKind, Register as Name};
        let number = |name: Name| if name.is_gpr64() { Some(name.number()) } else { None };
        let place = |machine: &Machine| {
            let base = number(instruction.memory_base())?;
            let known = instruction.memory_index() == Name::None;
            known.then(|| machine.registers[base].wrapping_add(instruction.memory_displacement64()))
        };
        match instruction.code() {
            Code::Push_r64 => {
                let Some(from) = number(instruction.op0_register()) else { return false };
                self.registers[4] -= 8;
                self.put(self.registers[4], self.registers[from]);
                true
            }
            Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 if instruction.op0_register() == Name::RSP => {
                self.registers[4] = self.registers[4].wrapping_sub(instruction.immediate(1));
                (STACK + 0x100..=TOP).contains(&self.registers[4])
            }
            Code::Mov_rm64_r64 if instruction.op0_kind() == OpKind::Memory => {
                let Some(address) = place(self) else { return true };
                let Some(from) = number(instruction.op1_register()) else { return false };
                self.put(address, self.registers[from]);
                true
            }
            Code::Add_rm64_imm8 | Code::Add_rm64_imm32 if instruction.op0_register() == Name::RSP => {
                self.registers[4] = self.registers[4].wrapping_add(instruction.immediate(1));
                (STACK..=TOP).contains(&self.registers[4])
            }
            Code::Pop_r64 | Code::Mov_r64_rm64
                if instruction.op1_kind() != OpKind::Register || instruction.op_count() == 1 =>
            {
                let Some(to) = number(instruction.op0_register()) else { return false };
                let pops = instruction.op_count() == 1;
                let address = if pops { Some(self.registers[4]) } else { place(self) };
                self.registers[to] = address.and_then(|address| self.get(address)).unwrap_or(0xdead);
                self.registers[4] += if pops { 8 } else { 0 };
                to != 4 && self.registers[4] <= TOP
            }
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 if instruction.op1_kind() == OpKind::Register => {
                let names = (number(instruction.op0_register()), number(instruction.op1_register()));
                let (Some(to), Some(from)) = names else { return false };
                self.registers[to] = self.registers[from];
                to != 4
            }
            Code::Lea_r64_m => {
                let Some(to) = number(instruction.op0_register()) else { return false };
                match place(self) {
                    Some(address) => self.registers[to] = address,
                    None => self.registers[to] = 0xdead,
                }
                to != 4
            }
            _ => {
                // Of all others only the register that they write to counts.
                let mut factory = iced_x86::InstructionInfoFactory::new();
                for used in factory.info(instruction).used_registers() {
                    use iced_x86::OpAccess as Access;
                    let full = used.register().full_register();
                    let writes = matches!(
                        used.access(),
                        Access::Write | Access::ReadWrite | Access::CondWrite | Access::ReadCondWrite
                    );
                    if writes && full.is_gpr64() {
                        if full == Name::RSP {
                            return false;
                        }
                        self.registers[full.number()] = 0xdead;
                    }
                }
                true
            }
        }
    }
}

/// Walks one frame of an image that is made here; the stack holds its own addresses, but for what `words` says.
fn one_step(image: &PdataImage, pc: u64, general: &[u64; 16], words: &[(u64, u64)]) -> Registers {
    let memory = image.memory();
    let tables = Tables::read(&memory, &mapping(image.size(), "x.dll"), usize::MAX).unwrap();
    let Found::Step { step, .. } = tables.step(&memory, &Pages::default(), pc, true) else { panic!("no step") };
    let mut stack: Vec<u64> = (0..512).map(|index| STACK + index * 8).collect();
    words.iter().for_each(|&(at, word)| stack[((at - STACK) / 8) as usize] = word);
    let bytes: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
    let pieces = [StackCopy { address: STACK, bytes: &bytes }];
    step.apply(&Registers::suspended(general, pc), &Stack::of_frame(&pieces, general[4], false)).unwrap()
}

fn general(rsp: u64, rbp: u64) -> [u64; 16] {
    let mut general = [0; 16];
    (general[4], general[5]) = (rsp, rbp);
    general
}

const RBP: gimli::Register = gimli::Register(6);
const RSI: gimli::Register = gimli::Register(4);

#[test]
fn frames_by_a_register() {
    // push rbp; sub rsp, 0x100; lea rbp, [rsp+0x80]; and a dynamic allocation after that.
    let table = [1, 16, 4, 0x85, 16, 0x03, 8, 0x01, 0x20, 0x00, 1, 0x50];
    let mut image = PdataImage::new();
    let only = image.function(0x40, &table);
    let at = image.start(only);
    let caller = one_step(&image, at + 0x20, &general(STACK, STACK + 0x180), &[]);
    assert_eq!((caller.ip(), caller.sp(), caller.get(RBP)), (STACK + 0x208, STACK + 0x210, Some(STACK + 0x200)));
    // Before the register is set: from the stack pointer.
    let caller = one_step(&image, at + 8, &general(STACK, 0), &[]);
    assert_eq!((caller.ip(), caller.get(RBP)), (STACK + 0x108, Some(STACK + 0x100)));
    let caller = one_step(&image, at, &general(STACK, 7), &[]);
    assert_eq!((caller.ip(), caller.sp(), caller.get(RBP)), (STACK, STACK + 8, Some(7)));
}

#[test]
fn parts_go_on_in_the_whole() {
    let mut image = PdataImage::new();
    // push rbp; sub rsp, 0x20
    let whole = image.function(0x40, &[1, 5, 2, 0, 5, 0x32, 1, 0x50]);
    // mov [rsp+0x40], rsi, at the third byte of the part
    let part = image.function(0x40, &[0x21, 5, 2, 0, 5, 0x64, 8, 0]);
    image.chain(part, whole);
    let at = image.start(part);
    let before = one_step(&image, at + 2, &general(STACK, 0), &[]);
    assert_eq!((before.ip(), before.get(RBP), before.get(RSI)), (STACK + 0x28, Some(STACK + 0x20), Some(0)));
    let after = one_step(&image, at + 8, &general(STACK, 0), &[]);
    assert_eq!((after.ip(), after.get(RSI)), (STACK + 0x28, Some(STACK + 0x40)));
}

#[test]
fn machine_frames_and_version_2() {
    let mut image = PdataImage::new();
    // The processor pushed an error code and its frame; then push rbp. Version 2, two codes for epilogues first.
    let only = image.function(0x40, &[2, 1, 4, 0, 2, 0x16, 9, 0x06, 1, 0x50, 0, 0x1a]);
    let caller = one_step(&image, image.start(only) + 4, &general(STACK, 0), &[(STACK + 0x28, STACK + 0x900)]);
    assert_eq!((caller.ip(), caller.sp()), (STACK + 0x10, STACK + 0x900));
    assert_eq!(caller.get(RBP), Some(STACK));
}

#[test]
fn epilogues() {
    let mut image = PdataImage::new();
    // push rbp; push rsi; sub rsp, 0x20
    let table = [1, 6, 3, 0, 6, 0x32, 2, 0x60, 1, 0x50, 0, 0];
    let (only, other) = (image.function(0x40, &table), image.function(0x40, &table));
    let (at, next) = (image.start(only), image.start(other));
    let offset = (at - BASE) as usize;
    let walk = |image: &PdataImage, from: u64| {
        let caller = one_step(image, at + from, &general(STACK, 1), &[]);
        (caller.ip() - STACK, caller.get(RBP), caller.get(RSI))
    };
    let (body, saved) = (0x30, Some(STACK + 0x20));
    assert_eq!(walk(&image, 0x20), (body, Some(STACK + 0x28), saved));
    // add rsp, 0x20; pop rsi; pop rbp; ret
    image.put(offset + 0x20, &[0x48, 0x83, 0xc4, 0x20, 0x5e, 0x5d, 0xc3]);
    assert_eq!(walk(&image, 0x20), (body, Some(STACK + 0x28), saved));
    assert_eq!(walk(&image, 0x24), (0x10, Some(STACK + 8), Some(STACK)));
    assert_eq!(walk(&image, 0x25), (8, Some(STACK), Some(0)));
    assert_eq!(walk(&image, 0x26), (0, Some(1), Some(0)));
    let jump = |image: &mut PdataImage, to: u64| {
        let mut code = vec![0x5d, 0xe9];
        code.extend_from_slice(&(to.wrapping_sub(at + 0x26) as u32).to_le_bytes());
        image.put(offset + 0x20, &code);
    };
    // pop rbp; jmp: to another function's beginning, or to code without a table, it is the last of this one.
    for target in [next, BASE + 0x7000, BASE + 0x10_0000, at] {
        jump(&mut image, target);
        assert_eq!(walk(&image, 0x20).0, 8, "{target:#x}");
        assert_eq!(walk(&image, 0x21).0, 0, "{target:#x}");
    }
    // Within it, or into the middle of another, it is not.
    for target in [at + 0x10, next + 0x10] {
        jump(&mut image, target);
        assert_eq!(walk(&image, 0x21).0, body, "{target:#x}");
    }
    // A switch; a call of an import at the end; a marked jump.
    image.put(offset + 0x20, &[0xff, 0xe0, 0xcc]);
    assert_eq!(walk(&image, 0x20).0, body);
    image.put(offset + 0x20, &[0xff, 0x25, 0, 0, 0, 0]);
    assert_eq!(walk(&image, 0x20).0, 0);
    image.put(offset + 0x20, &[0x48, 0xff, 0xe0]);
    assert_eq!(walk(&image, 0x20).0, 0);
}
