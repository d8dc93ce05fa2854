//! Tables of Windows programs as they should not be: no panic, no hang, no unbounded memory, and no bottom that was not
//! reached.

mod windows_support;

use _native::error::ReadError;
use _native::memory::Memory;
use _native::target::Mapping;
use _native::unwind::{End, MAX_NATIVE_DEPTH, NativeFrame, Reason, Registers, StackCopy, Unwinder};
use windows_support::{BASE, PdataImage, code, file, mapping};

const STACK: u64 = 0x10_0000;
const ROUNDS: usize = 10_000;
const WALKS: usize = 4;

struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

/// An image that can be changed.
struct Image(Vec<u8>);

impl Memory for Image {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let at = address.checked_sub(BASE).ok_or(ReadError::Unmapped)? as usize;
        let found = at.checked_add(buffer.len()).and_then(|end| self.0.get(at..end));
        buffer.copy_from_slice(found.ok_or(ReadError::Unmapped)?);
        Ok(())
    }
}

/// An unwinder that knows one module.
fn unwinder(image: &dyn Memory, size: u64, name: &str) -> Unwinder {
    let mut unwinder = Unwinder::new();
    let none = |_: &Mapping| Err(std::io::ErrorKind::NotFound.into());
    unwinder.set_mappings(image, &[mapping(size, name)], &none);
    unwinder
}

fn walk_with(unwinder: &mut Unwinder, image: &dyn Memory, registers: &Registers, stack: &[u8]) -> (End, usize) {
    let pieces = [StackCopy { address: STACK, bytes: stack }];
    let mut frames: Vec<NativeFrame> = Vec::new();
    (unwinder.unwind(image, registers, &pieces, &mut frames), frames.len())
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn walk(image: &dyn Memory, size: u64, registers: &Registers, stack: &[u64], name: &str) -> (End, usize) {
    walk_with(&mut unwinder(image, size, name), image, registers, &bytes_of(stack))
}

fn registers(rip: u64) -> Registers {
    let mut general = [STACK + 0x100; 16];
    general[4] = STACK;
    Registers::suspended(&general, rip)
}

#[test]
fn mutated_headers_and_tables() {
    let mut image = Image(windows_support::laid_out(&file("lib/_queue.pyd")));
    let size = image.0.len() as u64;
    let field = |image: &Image, at: usize| u32::from_le_bytes(image.0[at..at + 4].try_into().unwrap()) as usize;
    let header = field(&image, 0x3c);
    let (pdata, bytes) = (field(&image, header + 24 + 112 + 24), field(&image, header + 24 + 112 + 28));
    let entries = bytes / 12;
    assert!(entries > 20, "{entries}");
    let xdata: Vec<usize> = (0..entries).map(|index| field(&image, pdata + index * 12 + 8) & !3).collect();
    let starts: Vec<usize> = (0..entries).map(|index| field(&image, pdata + index * 12)).collect();
    let mut random = Random(1);
    let (mut bottoms, mut longest) = (0, 0);
    for _ in 0..ROUNDS {
        let mut undo = Vec::new();
        for _ in 0..1 + random.next(4) {
            let spot = match random.next(3) {
                0 => header + random.next(24 + 112 + 32),
                1 => pdata + random.next(bytes),
                _ => xdata[random.next(entries)] + random.next(24),
            };
            undo.push((spot, image.0[spot]));
            image.0[spot] = random.next(256) as u8;
        }
        // Return addresses into its functions, and words that are none.
        let place = |random: &mut Random| BASE + (starts[random.next(entries)] + random.next(64)) as u64;
        let stack: Vec<u64> = (0..128)
            .map(|_| match random.next(3) {
                0 => place(&mut random),
                1 => STACK + 8 * random.next(128) as u64,
                _ => random.next(1 << 20) as u64,
            })
            .collect();
        let (mut unwinder, stack) = (unwinder(&image, size, "ntdll.dll"), bytes_of(&stack));
        for _ in 0..WALKS {
            let (end, frames) = walk_with(&mut unwinder, &image, &registers(place(&mut random)), &stack);
            assert!(frames <= MAX_NATIVE_DEPTH);
            bottoms += usize::from(end == End::Bottom);
            longest = longest.max(frames);
        }
        undo.into_iter().rev().for_each(|(spot, byte)| image.0[spot] = byte);
    }
    println!("{bottoms} of {} at the bottom, {longest} frames", ROUNDS * WALKS);
    assert!(longest > 3, "nothing was walked");
}

#[test]
fn tables_that_lead_in_a_circle_end() {
    let mut image = PdataImage::new();
    let first = image.function(0x40, &[0x21, 0, 0, 0]);
    let second = image.function(0x40, &[0x21, 0, 0, 0]);
    image.chain(first, second);
    image.chain(second, first);
    let (end, frames) = walk(&image.memory(), image.size(), &registers(image.start(first) + 8), &[BASE; 64], "x.dll");
    assert_eq!((end, frames), (End::Truncated(Reason::BadTable), 1));
    // An entry that leads to itself.
    let mut image = PdataImage::new();
    let only = image.function(0x40, &[]);
    image.lead_to_itself(only);
    let (end, _) = walk(&image.memory(), image.size(), &registers(image.start(only) + 8), &[BASE; 64], "x.dll");
    assert_eq!(end, End::Truncated(Reason::BadTable));
}

#[test]
fn tables_out_of_order_are_refused() {
    let mut image = PdataImage::new();
    let (first, second) = (image.function(0x40, &[1, 0, 0, 0]), image.function(0x40, &[1, 0, 0, 0]));
    let at = image.start(first) + 8;
    let walk_it = |image: &PdataImage| walk(&image.memory(), image.size(), &registers(at), &[0; 64], "ntdll.dll").0;
    assert_eq!(walk_it(&image), End::Bottom);
    image.swap(first, second);
    assert_eq!(walk_it(&image), End::Truncated(Reason::BadTable));
}

#[test]
fn codes_that_make_no_sense() {
    // Version 3; unknown flags; an operation that does not exist; one that is cut; a machine frame of a third kind.
    let bad: [&[u8]; 5] =
        [&[3, 0, 0, 0], &[0x41, 0, 0, 0], &[1, 0, 1, 0, 0, 0x0b], &[1, 0, 1, 0, 0, 0x01], &[1, 0, 1, 0, 0, 0x2a]];
    for table in bad {
        let mut image = PdataImage::new();
        let only = image.function(0x40, table);
        let at = registers(image.start(only) + 8);
        let (end, frames) = walk(&image.memory(), image.size(), &at, &[0; 64], "ntdll.dll");
        assert_eq!((end, frames), (End::Truncated(Reason::BadTable), 1), "{table:x?}");
    }
}

#[test]
fn only_where_threads_begin_a_stack_is_complete() {
    let mut image = PdataImage::new();
    let only = image.function(0x40, &[1, 0, 0, 0]);
    let at = registers(image.start(only) + 8);
    assert_eq!(walk(&image.memory(), image.size(), &at, &[0; 64], "x.dll").0, End::Truncated(Reason::NoTables));
    assert_eq!(walk(&image.memory(), image.size(), &at, &[0; 64], "NTDLL.DLL").0, End::Bottom);
    // Code without a table has no frame, and calls nobody.
    let leaf = registers(BASE + code::GAP);
    assert_eq!(walk(&image.memory(), image.size(), &leaf, &[0; 64], "ntdll.dll").0, End::Truncated(Reason::NoTables));
    let caller = [BASE + code::GAP + 8];
    let (end, frames) = walk(&image.memory(), image.size(), &at, &caller, "ntdll.dll");
    assert_eq!((end, frames), (End::Truncated(Reason::NoTables), 2));
}
