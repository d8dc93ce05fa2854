//! Stacks of Windows programs: by the tables of functions (`.pdata`, `.xdata`) in the image of each module as it lies in the
//! target's memory, and in epilogues, which they do not tell of, by the instructions. Format: Microsoft, "x64 exception
//! handling".
//!
//! A function without a table is a leaf: it has no frame, and calls nothing.

use std::ops::Range;

use crate::memory::Memory;
use crate::pe::Pe;
use crate::target::Mapping;

mod epilogue;
mod info;
mod pages;

pub use info::{Place, Step};
pub use pages::Pages;

/// Most functions in the table of one module, and of all modules of a process together.
pub const MAX_FUNCTIONS: (usize, usize) = (1 << 20, 4 << 20);
/// Most tables that are read to find the parts of one function.
const MAX_LOOKS: usize = 1 << 18;
/// Where threads begin (exports of ntdll.dll): the first function of each, and what runs before it.
const FIRST: [&str; 2] = ["RtlUserThreadStart", "LdrInitializeThunk"];
/// What the kernel enters with a CONTEXT on top of the stack, to have an exception handled.
const DISPATCHER: &str = "KiUserExceptionDispatcher";
/// The module that has them.
const SYSTEM_MODULE: &str = "ntdll.dll";
/// Bytes of code looked at for an epilogue: more than its longest.
const MAX_CODE: usize = 64;
const PAGE: u64 = 4096;

/// One entry of a module's table of functions (RUNTIME_FUNCTION); offsets are from the module's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its first byte.
    pub begin: u32,
    /// Behind its last.
    pub end: u32,
    table: u32,
}

impl Function {
    /// Bytes of an entry.
    const BYTES: usize = 12;

    fn parse(bytes: &[u8]) -> Option<Function> {
        let field = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Function { begin: field(0)?, end: field(4)?, table: field(8)? })
    }

    /// Where its table is, or the entry that it leads to.
    fn table(&self) -> u32 {
        self.table & !1
    }

    /// Whether it has no table of its own, but leads to another entry.
    fn leads_on(&self) -> bool {
        self.table & 1 == 1
    }
}

/// A module's image in memory.
pub struct Image<'a> {
    memory: &'a dyn Memory,
    pages: &'a Pages,
    base: u64,
    size: u32,
}

impl Image<'_> {
    fn read(&self, offset: u32, buffer: &mut [u8]) -> Option<()> {
        offset.checked_add(u32::try_from(buffer.len()).ok()?).filter(|&end| end <= self.size)?;
        self.pages.read(self.memory, self.base.checked_add(u64::from(offset))?, buffer)
    }

    fn function(&self, offset: u32) -> Option<Function> {
        let mut bytes = [0; Function::BYTES];
        self.read(offset, &mut bytes)?;
        Function::parse(&bytes).filter(|function| self.holds(function))
    }

    fn holds(&self, function: &Function) -> bool {
        function.begin < function.end && function.end <= self.size
    }
}

/// A module's table of functions.
#[derive(Debug)]
pub struct Tables {
    base: u64,
    size: u32,
    functions: Box<[Function]>,
    /// Where threads begin, if here.
    first: Vec<Range<u32>>,
    dispatcher: Option<Range<u32>>,
    /// Whether threads begin in this module.
    pub has_first: bool,
}

impl Tables {
    /// Reads those of a module, `most` functions at most. None if it is no PE file, or its table makes no sense.
    pub fn read(memory: &dyn Memory, mapping: &Mapping, most: usize) -> Option<Tables> {
        let pe = Pe::read(memory, mapping.start)?;
        let size = u32::try_from(pe.size.min(mapping.end.saturating_sub(mapping.start))).ok()?;
        let (at, bytes) = pe.exceptions;
        let bytes = if at == 0 { 0 } else { bytes as usize / Function::BYTES * Function::BYTES };
        let most = most.min(MAX_FUNCTIONS.0) * Function::BYTES;
        at.checked_add(bytes as u32).filter(|&end| end <= size && bytes <= most)?;
        let table = memory.read_bytes(mapping.start.wrapping_add(u64::from(at)), bytes, most).ok()?;
        let functions = table.chunks_exact(Function::BYTES).filter_map(Function::parse);
        // Some linkers leave room at the end.
        let functions: Box<[Function]> = functions.filter(|function| function.end != 0).collect();
        let good = |function: &Function| function.begin < function.end && function.end <= size;
        // All zeros: it has not been loaded yet.
        let empty = functions.is_empty() && bytes > 0;
        if empty || !functions.iter().all(good) || !functions.is_sorted_by(|one, next| one.end <= next.begin) {
            return None;
        }
        let name = mapping.path.rsplit(['\\', '/']).next().unwrap_or_default();
        let mut tables =
            Tables { base: mapping.start, size, functions, first: Vec::new(), dispatcher: None, has_first: false };
        if name.eq_ignore_ascii_case(SYSTEM_MODULE) {
            tables.has_first = true;
            let exported = |name| {
                let address = pe.export(memory, name).ok()??;
                let function = tables.find(tables.offset(address)?)?;
                Some(function.begin..function.end)
            };
            let (first, dispatcher) = (FIRST.into_iter().filter_map(exported).collect(), exported(DISPATCHER));
            (tables.first, tables.dispatcher) = (first, dispatcher);
        }
        Some(tables)
    }

    /// How many functions it has.
    pub fn count(&self) -> usize {
        self.functions.len()
    }

    /// The ranges of all functions, and of their parts.
    pub fn functions(&self) -> impl Iterator<Item = Range<u64>> {
        self.functions.iter().map(|function| self.range(function))
    }

    /// The entry that holds an offset.
    pub fn find(&self, offset: u32) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.begin <= offset);
        self.functions.get(after.checked_sub(1)?).filter(|function| offset < function.end)
    }

    /// The function, or the part of one, that the code at `address` belongs to.
    pub fn function(&self, address: u64) -> Option<Range<u64>> {
        self.find(self.offset(address)?).map(|function| self.range(function))
    }

    /// What lies between the functions before and after the code at `address`, which is in none.
    pub fn gap(&self, address: u64) -> Range<u64> {
        let after = self.functions.partition_point(|function| self.base + u64::from(function.begin) <= address);
        let begin = after.checked_sub(1).and_then(|before| self.functions.get(before)).map_or(0, |before| before.end);
        let end = self.functions.get(after).map_or(self.size, |after| after.begin);
        self.base + u64::from(begin)..self.base + u64::from(end)
    }

    /// The function that the code at `address` is a part of, without its other parts.
    pub fn whole(&self, memory: &dyn Memory, pages: &Pages, address: u64) -> Option<Range<u64>> {
        let function = self.find(self.offset(address)?)?;
        let whole = info::primary(&self.image(memory, pages), function, &mut MAX_LOOKS.clone())?;
        Some(self.range(&whole))
    }

    /// Whether a thread's first function holds `address`.
    pub fn is_first(&self, address: u64) -> bool {
        self.offset(address).is_some_and(|offset| self.first.iter().any(|range| range.contains(&offset)))
    }

    /// All parts of the function that begins at `address`: compilers put code that runs seldom elsewhere.
    pub fn parts(&self, memory: &dyn Memory, pages: &Pages, address: u64) -> Vec<Range<u64>> {
        let image = self.image(memory, pages);
        let mut budget = MAX_LOOKS;
        let mut of = |function: &Function| info::primary(&image, function, &mut budget).map(|function| function.begin);
        let Some(whole) = self.offset(address).and_then(|offset| self.find(offset)).and_then(&mut of) else {
            return Vec::new();
        };
        let parts = self.functions.iter().filter(|function| of(function) == Some(whole));
        parts.map(|function| self.range(function)).collect()
    }

    /// How the caller of a frame with the program counter `pc` is found; `exact`: it is the next instruction, not behind a
    /// call. None if the tables do not tell, or make no sense.
    pub fn step(&self, memory: &dyn Memory, pages: &Pages, pc: u64, exact: bool) -> Found {
        let Some(offset) = self.offset(pc) else { return Found::Bad };
        let Some(function) = self.find(if exact { offset } else { offset.wrapping_sub(1) }) else {
            return if exact {
                Found::Step { step: Step::leaf(), guess: true, interrupts: false }
            } else {
                Found::None
            };
        };
        let image = self.image(memory, pages);
        // Whoever has called goes on where the function has its whole frame.
        let epilogue = if exact { self.epilogue(&image, pc, function) } else { None };
        let mut step = epilogue.or_else(|| info::step(&image, function, offset - function.begin));
        let dispatches = self.dispatcher.as_ref().is_some_and(|range| range.contains(&function.begin));
        // Wine's table knows nothing of it before it has called, and then a frame as if it had been called itself.
        step = step.map(|step| match dispatches && exact && step.interrupted.is_none() {
            true => Step::context(),
            false => step,
        });
        step.map_or(Found::Bad, |step| {
            let interrupts = dispatches || step.interrupted.is_some();
            Found::Step { step, guess: false, interrupts }
        })
    }

    fn epilogue(&self, image: &Image<'_>, pc: u64, function: &Function) -> Option<Step> {
        // Code may be patched: it is not among what is kept.
        let mut code = [0; MAX_CODE];
        let size = (self.base + u64::from(self.size) - pc).min(MAX_CODE as u64);
        let size = match image.memory.read(pc, &mut code[..size as usize]) {
            Ok(()) => size,
            // The next page may not be there.
            Err(_) => {
                let size = size.min(PAGE - pc % PAGE);
                image.memory.read(pc, &mut code[..size as usize]).ok()?;
                size
            }
        };
        epilogue::step(&code[..size as usize], pc, |target| self.leaves(image, function, target))
    }

    /// Whether a jump to `target` is one out of `function`: what a function ends with that calls another one last. Within
    /// its range, or to a part of it that lies elsewhere, it is one of its own.
    fn leaves(&self, image: &Image<'_>, function: &Function, target: u64) -> bool {
        let Some(offset) = self.offset(target) else { return true };
        let Some(other) = self.find(offset) else { return true };
        if other.begin != offset || !info::is_entered(image, other) {
            return false;
        }
        // To its own beginning: it calls itself last. A function without a prologue has a loop there.
        other != function || info::step(image, other, u32::MAX) != Some(Step::leaf())
    }

    fn offset(&self, address: u64) -> Option<u32> {
        u32::try_from(address.checked_sub(self.base)?).ok().filter(|&offset| offset < self.size)
    }

    fn range(&self, function: &Function) -> Range<u64> {
        self.base + u64::from(function.begin)..self.base + u64::from(function.end)
    }

    fn image<'a>(&self, memory: &'a dyn Memory, pages: &'a Pages) -> Image<'a> {
        Image { memory, pages, base: self.base, size: self.size }
    }
}

/// What is known of a place in the code of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// How its caller is found.
    Step {
        /// The way.
        step: Step,
        /// No function has it, so that it should be one without a frame.
        guess: bool,
        /// The caller did not call, but was interrupted.
        interrupts: bool,
    },
    /// No function has it, but it has called.
    None,
    /// The table makes no sense.
    Bad,
}
