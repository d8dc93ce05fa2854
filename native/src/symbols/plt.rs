//! Names of PLT stubs, `foo@plt`: a stub jumps through a slot, and a relocation says what is put there. x86-64.

use std::collections::HashMap;

use object::read::elf::{FileHeader, Rela, SectionHeader};
use object::{LittleEndian, elf};

use super::elf::Elf;

/// Most relocations read.
const MAX_RELOCATIONS: usize = 1 << 20;
/// Bytes of one stub.
const STUB: u64 = 16;

/// The stubs of a module.
pub struct Stubs<'a> {
    /// Address and bytes of the sections that hold stubs.
    code: Vec<(u64, &'a [u8])>,
    /// What is put into a slot.
    slots: HashMap<u64, &'a [u8]>,
    /// The symbols of `.rela.plt`, in order.
    order: Vec<&'a [u8]>,
}

impl<'a> Stubs<'a> {
    /// Reads the relocations of `file`.
    pub fn read(file: &Elf<'a>) -> Stubs<'a> {
        let mut stubs = Stubs { code: Vec::new(), slots: HashMap::new(), order: Vec::new() };
        let header = elf::FileHeader64::<LittleEndian>::parse(file.bytes);
        if !header.is_ok_and(|header| header.e_machine(LittleEndian) == elf::EM_X86_64) {
            return stubs;
        }
        for name in [".plt", ".plt.sec", ".plt.got"] {
            if let Some(section) = file.section(name) {
                stubs.code.push((section.sh_addr(LittleEndian), file.raw(section)));
            }
        }
        let symbols = file.symbols(elf::SHT_DYNSYM);
        for name in [".rela.plt", ".rela.dyn"] {
            let Some(section) = file.section(name) else { continue };
            let Ok(entries) = section.data_as_array::<elf::Rela64<LittleEndian>, _>(LittleEndian, file.bytes) else {
                continue;
            };
            for entry in entries.iter().take(MAX_RELOCATIONS) {
                let kind = entry.r_type(LittleEndian, false);
                let symbol = entry.r_sym(LittleEndian, false) as usize;
                let text = symbols.entries.get(symbol).and_then(|symbol| symbols.name(symbol)).unwrap_or(&[]);
                if name == ".rela.plt" {
                    stubs.order.push(text);
                }
                if matches!(kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT) && !text.is_empty() {
                    stubs.slots.insert(entry.r_offset(LittleEndian), text);
                }
            }
        }
        stubs
    }

    /// The function that the stub at `address` calls.
    pub fn find(&self, address: u64) -> Option<&'a [u8]> {
        let (start, bytes) =
            self.code.iter().find(|(start, bytes)| address >= *start && address - *start < bytes.len() as u64)?;
        let offset = (address - start) / STUB * STUB;
        let stub = &bytes[offset as usize..(offset + STUB).min(bytes.len() as u64) as usize];
        let number = |at: usize| Some(i32::from_le_bytes(stub.get(at..at + 4)?.try_into().ok()?));
        // jmp *SLOT(%rip); of two stubs of 8 bytes the one that the address is in.
        let half = if address - start - offset >= 8 { [8, 0] } else { [0, 8] };
        for from in half {
            for at in from..from + 8 {
                if stub.get(at..at + 2) == Some(&[0xff, 0x25]) {
                    let next = start.wrapping_add(offset).wrapping_add(at as u64 + 6);
                    let slot = next.wrapping_add_signed(i64::from(number(at + 2)?));
                    if let Some(name) = self.slots.get(&slot) {
                        return Some(name);
                    }
                }
            }
        }
        // push $N, after an endbr64 where the processor checks branches.
        let at = [0, 4].into_iter().find(|&at| stub.get(at) == Some(&0x68))?;
        let index = usize::try_from(number(at + 1)?).ok()?;
        self.order.get(index).copied().filter(|name| !name.is_empty())
    }
}
