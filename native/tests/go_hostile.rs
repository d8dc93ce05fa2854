//! Go programs whose memory lies: the saved memory of a real one, damaged in thousands of ways. Each gives an answer or an
//! error, in bounded time and memory.

mod go_support;

use std::time::{Duration, Instant};

use _native::memory::Memory;
use _native::runtime::go::Go;
use _native::runtime::go::image::Image;
use _native::runtime::go::module::{self, NotGo};
use _native::runtime::go::pclntab::{HEADER_BYTES, Header, Pclntab};
use _native::runtime::go::unwind::{At, MAX_DEPTH, Unwinder};
use _native::target::Mapping;
use _native::target::linux::Process;
use _native::target::recorded::{Recorded, Recorder};
use go_support::{Running, STRIPPED, build};

/// Damaged tables of functions, and damaged programs as a whole.
const CASES: (u64, u64) = (4000, 60);
/// No case takes longer, by far.
const FOREVER: Duration = Duration::from_secs(60);

/// The module's ranges and the memory that reading it touches.
struct Saved {
    recorded: Recorded,
    within: Vec<Mapping>,
    header: u64,
}

fn saved() -> Saved {
    let binary = build("local", false, &[STRIPPED]);
    let running = Running::start(&binary);
    let process = Process::open(running.pid()).unwrap();
    let mappings = process.mappings().unwrap();
    let path = binary.to_string_lossy();
    let within: Vec<Mapping> = mappings.iter().filter(|mapping| mapping.path == path).cloned().collect();
    let recorder = Recorder::new(&process);
    let go = Go::in_image(&recorder, Image::new(&recorder, &within, &mappings, None));
    let go = go.map_err(|(reason, _)| reason).unwrap();
    let header = go.image.find(&Header::MAGIC, false)[0] - 1;
    let _ = go;
    Saved { recorded: recorder.finish(mappings), within, header }
}

impl Saved {
    fn open(&self) -> Result<(), NotGo> {
        let image = Image::new(&self.recorded, &self.within, &self.recorded.mappings, None);
        let go = Go::in_image(&self.recorded, image).map_err(|(reason, _)| reason)?;
        // What is taken for Go can be walked over.
        look_around(&go.table, &go.image);
        Ok(())
    }

    /// The address, in the recording, of every copy of a byte.
    fn set(&mut self, address: u64, change: impl Fn(u8) -> u8) {
        for (start, bytes) in &mut self.recorded.pieces {
            if let Some(byte) = address.checked_sub(*start).and_then(|at| bytes.get_mut(at as usize)) {
                *byte = change(*byte);
            }
        }
    }

    fn put(&mut self, address: u64, word: u64) {
        for (index, byte) in (0..).zip(word.to_le_bytes()) {
            self.set(address + index, |_| byte);
        }
    }

    fn word(&self, address: u64) -> u64 {
        self.recorded.read_u64(address).unwrap()
    }
}

/// Xorshift: the same cases every time.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn look_around(table: &Pclntab, memory: &dyn Memory) {
    let mut unwinder = Unwinder::new(table, Vec::new(), None);
    for index in (0..table.len()).step_by(97) {
        let Some((function, end)) = table.function(index) else { continue };
        for pc in [function.entry, function.entry.wrapping_add(7), end.wrapping_sub(1)] {
            let calls = table.calls(memory, &function, pc);
            assert!(calls.iter().all(|call| table.name(call.name).len() <= 1 << 14));
            let mut pcs = Vec::new();
            // A stack on which every word leads back to the same place.
            unwinder.walk((pc, 0x1000, At::Instruction), |_| Some(pc), &mut pcs);
            assert!(pcs.len() <= MAX_DEPTH);
        }
    }
}

#[test]
fn a_saved_program_is_read_and_lying_counts_are_refused() {
    let mut saved = saved();
    let begin = Instant::now();
    assert_eq!(saved.open(), Ok(()));
    for word in 0..8 {
        let at = saved.header + 8 + 8 * word;
        let before = saved.word(at);
        for lie in [0, 1, before.wrapping_add(1), before.wrapping_mul(1000), 1 << 22, 1 << 40, u64::MAX] {
            // The number of files is not used; the third word has been unused since Go 1.26.
            if lie != before && word != 1 && word != 2 {
                saved.put(at, lie);
                assert!(saved.open().is_err(), "word {word} as {lie:#x} instead of {before:#x}");
            }
        }
        saved.put(at, before);
    }
    assert_eq!(saved.open(), Ok(()));
    assert!(begin.elapsed() < FOREVER);
}

#[test]
fn damaged_tables_of_functions_give_an_answer_or_an_error() {
    let saved = saved();
    let image = Image::new(&saved.recorded, &saved.within, &saved.recorded.mappings, None);
    let whole = module::functions(&image).map_err(|_| "no table").unwrap();
    let text = whole.text();
    let mut head = [0; HEADER_BYTES];
    image.read(saved.header, &mut head).unwrap();
    let header = Header::parse(saved.header, &head).unwrap();
    // As far as it was recorded.
    let (&start, piece) = saved.recorded.pieces.range(..=saved.header).max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let bytes = piece[(saved.header - start) as usize..].to_vec();
    let (mut state, begin) = (0x9e37_79b9_7f4a_7c15, Instant::now());
    let (mut read, mut refused) = (0, 0);
    for _ in 0..CASES.0 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + random(&mut state) % 64 {
            // The head, the start of each table, or anywhere.
            let area = [HEADER_BYTES as u64, 4096, damaged.len() as u64][(random(&mut state) % 3) as usize];
            let base = [0, header.table, header.names][(random(&mut state) % 3) as usize];
            let at = (base + random(&mut state) % area.max(1)) as usize % damaged.len();
            damaged[at] = random(&mut state) as u8;
        }
        let size = damaged.len() as u64;
        let memory = Recorded::of(saved.header, &damaged);
        let Some(header) = Header::parse(saved.header, &damaged) else {
            refused += 1;
            continue;
        };
        match Pclntab::read(&memory, header, size, text, saved.header) {
            Ok(table) => {
                read += 1;
                look_around(&table, &memory);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
    assert!(begin.elapsed() < FOREVER);
}

#[test]
fn damaged_programs_give_an_answer_or_an_error() {
    let mut saved = saved();
    let (mut state, begin) = (0x2545_f491_4f6c_dd1d, Instant::now());
    let pieces: Vec<(u64, u64)> =
        saved.recorded.pieces.iter().map(|(start, bytes)| (*start, bytes.len() as u64)).collect();
    let mut refused = 0;
    for _ in 0..CASES.1 {
        let mut undo = Vec::new();
        for _ in 0..1 + random(&mut state) % 200 {
            let (start, size) = pieces[(random(&mut state) % pieces.len() as u64) as usize];
            let at = start + random(&mut state) % size;
            let mut before = [0];
            saved.recorded.read(at, &mut before).unwrap();
            undo.push((at, before[0]));
            let byte = random(&mut state) as u8;
            saved.set(at, |_| byte);
        }
        refused += u64::from(saved.open().is_err());
        for (at, byte) in undo.into_iter().rev() {
            saved.set(at, |_| byte);
        }
    }
    assert!(refused > 0);
    assert_eq!(saved.open(), Ok(()));
    assert!(begin.elapsed() < FOREVER);
}
