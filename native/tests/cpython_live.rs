//! The CPython reader against real interpreters: what it reads must be what they say of themselves.

mod cpython_support;

use std::cell::Cell;
use std::process::Command;

use _native::error::{ErrorKind, ReadError};
use _native::memory::{Memory, Region, Snapshot};
use _native::runtime::cpython::{CPython, End, PyStack};
use _native::target::Mapping;
use cpython_support::{Line, Target, interpreters};

fn lines(python: &mut CPython, stack: &PyStack) -> Vec<Line> {
    stack
        .frames
        .iter()
        .map(|raw| {
            let frame = python.frame(raw.code, raw.lasti).expect("a current code id");
            let function = python.function(frame.function).expect("a current function id");
            (function.name.clone(), function.filename.clone(), u64::from(function.start_line), u64::from(frame.line))
        })
        .collect()
}

#[test]
fn parked_threads_read_as_they_see_themselves() {
    for interpreter in interpreters() {
        let (target, report) = Target::start(&interpreter, "parked.py");
        let mut python = target.open();
        assert_eq!(python.version().split('.').nth(1), interpreter.version.split('.').nth(1));
        let threads = cpython_support::parse_report(&report);
        let mut snapshot = Snapshot::with_capacity(1 << 20);
        let mut stack = PyStack::default();
        for round in 0..3 {
            for (tid, expected) in &threads {
                assert!(python.knows(*tid), "{}: thread {tid}", interpreter.version);
                snapshot.begin(None);
                python.copy(&target.memory, &mut snapshot, *tid, &mut stack).unwrap();
                python.finish(&target.memory, &mut snapshot, &mut stack);
                assert_eq!(stack.end, End::Base, "{}: {:?}", interpreter.version, expected.first());
                assert!(!stack.holds_gil);
                assert_eq!(&lines(&mut python, &stack), expected, "{}", interpreter.version);
                let grouped: u32 = stack.groups.iter().map(|group| group.frames).sum();
                assert!(stack.groups.is_empty() || grouped as usize == stack.frames.len());
                let extra = snapshot.extra_reads();
                let remembered = expected.len() < 256 || !stack.groups.is_empty();
                assert!(
                    round == 0 || extra == 0 || !remembered,
                    "{}: {extra} {:?}",
                    interpreter.version,
                    expected.first()
                );
            }
            python.refresh(&target.memory).unwrap();
        }
        eprintln!("{}: {} parked threads", python.version(), threads.len());
    }
}

#[test]
fn every_stop_of_a_hot_program_shows_a_legal_stack() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    for interpreter in interpreters() {
        let (target, _) = Target::start(&interpreter, "hot.py");
        let mut python = target.open();
        let mut snapshot = Snapshot::with_capacity(1 << 20);
        let mut stack = PyStack::default();
        let (mut torn, mut gil, mut spent, mut extra) = (0, 0, std::time::Duration::ZERO, 0);
        for _ in 0..rounds {
            // Let it get on: a stop right after a resume can find it where it was.
            std::thread::sleep(std::time::Duration::from_micros(300));
            target.stop();
            snapshot.begin(None);
            let start = std::time::Instant::now();
            python.copy(&target.memory, &mut snapshot, target.pid, &mut stack).unwrap();
            python.finish(&target.memory, &mut snapshot, &mut stack);
            spent += start.elapsed();
            extra += snapshot.extra_reads();
            target.resume();
            match stack.end {
                End::Torn => torn += 1,
                End::Truncated | End::PutOff => panic!("truncated"),
                End::Base => check_legal(&interpreter.version, &lines(&mut python, &stack)),
            }
            gil += u32::from(stack.holds_gil);
        }
        eprintln!(
            "{}: {rounds} stops, {torn} torn, gil {gil}, {:?} a copy, {extra} extra reads",
            python.version(),
            spent / rounds
        );
        assert!(torn * 50 <= rounds && gil * 100 >= rounds * 99);
    }
}

/// Each frame's name says which function calls it, and from which line.
fn check_legal(version: &str, stack: &[Line]) {
    assert_eq!(stack.last().map(|frame| frame.0.as_str()), Some("<module>"), "{version}: {stack:?}");
    for pair in stack.windows(2) {
        let callee = pair[0].0.rsplit('.').next().unwrap_or("");
        let parts: Vec<&str> = callee.split("__").collect();
        if let [_, caller, line] = parts[..]
            && caller != "base"
        {
            let by = format!("f{caller}__");
            assert!(pair[1].0.starts_with(&by) && pair[1].3.to_string() == line, "{version}: {stack:?}");
        }
    }
}

/// A memory whose ELF images show no dynamic section, as stripped static executables have none that helps.
struct NoSymbols<'a>(&'a cpython_support::Process);

impl Memory for NoSymbols<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.0.read(address, buffer)?;
        if buffer.len().is_multiple_of(56) && address % 4096 == 64 {
            for header in buffer.chunks_exact_mut(56) {
                if header[..4] == [2, 0, 0, 0] {
                    header[0] = 0;
                }
            }
        }
        Ok(())
    }
}

#[test]
fn the_interpreter_is_found_without_dynamic_symbols_and_without_files() {
    for interpreter in interpreters() {
        let (target, _) = Target::start(&interpreter, "parked.py");
        let (memory, mappings) = (NoSymbols(&target.memory), target.mappings());
        let by_file = CPython::open(&memory, &mappings, target.pid, &|mapping| target.file(mapping)).unwrap();
        assert!(by_file.expect("by the file's symbols").knows(target.pid), "{}", interpreter.version);
        let no_file = |_: &Mapping| Err(std::io::ErrorKind::NotFound.into());
        let by_scan = CPython::open(&memory, &mappings, target.pid, &no_file).unwrap();
        assert!(by_scan.expect("by a scan").knows(target.pid), "{}", interpreter.version);
    }
}

#[test]
fn other_processes_have_no_interpreter() {
    let target = Target::sleep();
    let open_file = |mapping: &Mapping| target.file(mapping);
    assert!(CPython::open(&target.memory, &target.mappings(), target.pid, &open_file).unwrap().is_none());
}

#[test]
fn old_interpreters_are_refused_by_name() {
    for version in ["2.7.18", "3.6.15", "3.7.16"] {
        let home = std::env::var("HOME").unwrap();
        let path = std::path::PathBuf::from(home).join(".pyenv/versions").join(version).join("bin/python");
        if path.exists() {
            let target = Target::command(std::process::Command::new(path).args(["-c", "print(1); input()"]));
            let open_file = |mapping: &Mapping| target.file(mapping);
            let error = CPython::open(&target.memory, &target.mappings(), target.pid, &open_file).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unsupported);
            assert!(error.message.contains(&version[..3]), "{error}");
        }
    }
}

/// Counts calls, regions and time of reads.
struct Timed<'a>(&'a cpython_support::Process, std::cell::Cell<(u32, u32, std::time::Duration)>);

impl Memory for Timed<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.0.read(address, buffer)
    }

    fn read_regions(&self, regions: &[Region], buffer: &mut [u8]) -> Result<usize, ReadError> {
        let start = std::time::Instant::now();
        let result = self.0.read_regions(regions, buffer);
        let (calls, count, spent) = self.1.get();
        self.1.set((calls + 1, count + regions.len() as u32, spent + start.elapsed()));
        result
    }
}

/// `cargo test --release --test cpython_live cost -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn cost_of_a_copy() {
    for interpreter in interpreters() {
        for depth in [30, 200] {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cpython_targets/deep.py");
            let mut command = std::process::Command::new(&interpreter.path);
            let target = Target::command(command.args([script, &depth.to_string()]));
            let mut python = target.open();
            let mut snapshot = Snapshot::with_capacity(1 << 20);
            let mut stack = PyStack::default();
            target.stop();
            let timed = Timed(&target.memory, Default::default());
            let mut best = std::time::Duration::MAX;
            for _ in 0..50 {
                let start = std::time::Instant::now();
                for _ in 0..200 {
                    snapshot.begin(None);
                    python.copy(&timed, &mut snapshot, target.pid, &mut stack).unwrap();
                    python.finish(&timed, &mut snapshot, &mut stack);
                }
                best = best.min(start.elapsed() / 200);
            }
            let start = std::time::Instant::now();
            for raw in &stack.frames {
                std::hint::black_box(python.frame(raw.code, raw.lasti));
            }
            let (calls, regions, spent) = timed.1.get();
            let own = format!("{} reads of {} regions, {:?}", calls / 10_000, regions / 10_000, spent / 10_000);
            let (frames, extra) = (stack.frames.len(), snapshot.extra_reads());
            eprintln!(
                "{}: {frames} frames, copy {best:?}, {extra} extra reads, {own}, frame() {:?} in all",
                python.version(),
                start.elapsed()
            );
        }
    }
}

#[test]
fn a_reused_address_is_not_taken_for_the_function_before() {
    let rounds: u32 = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    for interpreter in interpreters() {
        let (target, _) = Target::start(&interpreter, "reuse.py");
        let mut python = target.open();
        let mut snapshot = Snapshot::with_capacity(1 << 20);
        let mut stack = PyStack::default();
        let (mut checked, mut wrong) = (0, 0);
        for _ in 0..rounds {
            std::thread::sleep(std::time::Duration::from_micros(300));
            target.stop();
            snapshot.begin(None);
            python.copy(&target.memory, &mut snapshot, target.pid, &mut stack).unwrap();
            python.finish(&target.memory, &mut snapshot, &mut stack);
            target.resume();
            // Four frames: f, the code that defined it, a or b, the program.
            let shown = lines(&mut python, &stack);
            if stack.end != End::Base || shown.len() != 4 {
                continue;
            }
            let line = if shown[2].0 == "a" { 10 } else { 40 };
            let right = shown[0].0 == "f" && (shown[0].3 == line || shown[0].3 == 1) && shown[1].3 == 61;
            wrong += u32::from(!right);
            checked += 1;
        }
        eprintln!("{}: {checked} of {rounds}, {wrong} wrong", python.version());
        assert!(checked > rounds / 2 && wrong == 0);
    }
}

/// A memory in which some words are wrong: random, or the address of what is being read (a cycle).
struct Hostile<'a>(&'a cpython_support::Process, std::cell::Cell<u64>);

impl Hostile<'_> {
    fn spoil(&self, address: u64, buffer: &mut [u8]) {
        for word in buffer.chunks_exact_mut(8) {
            let state = self.1.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            self.1.set(state);
            let value = match state >> 56 {
                0 => state,
                1 => address,
                2 => state >> 40,
                3 => u64::MAX,
                _ => continue,
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
    }
}

impl Memory for Hostile<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.0.read(address, buffer)?;
        self.spoil(address, buffer);
        Ok(())
    }
}

/// States that belong to no thread (yet), which have to be looked at again each time.
const UNTAKEN: &str = "
import ctypes, sys
api = ctypes.pythonapi
api.PyThreadState_New.restype = ctypes.c_void_p
api.PyThreadState_New.argtypes = [ctypes.c_void_p]
api.PyInterpreterState_Get.restype = ctypes.c_void_p
interpreter = api.PyInterpreterState_Get()
for _ in range(int(sys.argv[1])): api.PyThreadState_New(interpreter)
print('ready', flush=True)
sys.stdin.read()
";

/// Memory that counts what is read: calls, and regions.
struct Counted<'a>(&'a dyn Memory, Cell<(u64, u64)>);

impl Counted<'_> {
    fn count(&self, regions: usize) {
        let (calls, all) = self.1.get();
        self.1.set((calls + 1, all + regions as u64));
    }
}

impl Memory for Counted<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.count(1);
        self.0.read(address, buffer)
    }

    fn read_regions(&self, regions: &[Region], buffer: &mut [u8]) -> Result<usize, ReadError> {
        self.count(regions.len());
        self.0.read_regions(regions, buffer)
    }
}

#[test]
fn reads_of_a_round_grow_with_the_number_of_threads_and_not_with_its_square() {
    // PyInterpreterState_Get is new in 3.9.
    for interpreter in interpreters().iter().filter(|interpreter| !interpreter.version.starts_with("3.8")) {
        for states in [500_u64, 2000] {
            let target = Target::command(Command::new(&interpreter.path).args(["-c", UNTAKEN, &states.to_string()]));
            let mut python = target.open();
            let memory = Counted(&target.memory, Cell::default());
            let (mut snapshot, mut stack) = (Snapshot::with_capacity(1 << 20), PyStack::default());
            for _ in 0..2 {
                memory.1.take();
                python.begin_round();
                let mut put_off = 0;
                // Threads that have no state, as those have that are not up yet.
                for thread in 0..states {
                    snapshot.begin(None);
                    python.copy(&memory, &mut snapshot, u32::MAX - thread as u32, &mut stack).unwrap();
                    put_off += u64::from(stack.end == End::PutOff);
                }
                let (calls, regions) = memory.1.take();
                assert!(put_off > 0 && put_off < states, "{}: {put_off} of {states}", interpreter.version);
                assert!(regions < 2 * 4096 + 8 * states, "{}: {regions} for {states}", interpreter.version);
                assert!(calls <= regions);
                // The main thread is known all the while.
                snapshot.begin(None);
                python.copy(&memory, &mut snapshot, target.pid, &mut stack).unwrap();
                python.finish(&memory, &mut snapshot, &mut stack);
                assert!(stack.end == End::Base && !stack.frames.is_empty());
            }
        }
    }
}

#[test]
fn spoiled_memory_does_no_harm() {
    for interpreter in interpreters() {
        let (target, _) = Target::start(&interpreter, "parked.py");
        let mappings = target.mappings();
        let mut python = target.open();
        let memory = Hostile(&target.memory, std::cell::Cell::new(1));
        let mut snapshot = Snapshot::with_capacity(1 << 20);
        let mut stack = PyStack::default();
        let tasks = std::fs::read_dir(format!("/proc/{}/task", target.pid)).unwrap();
        let tids: Vec<u32> = tasks.map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
        for round in 0..10 {
            for &tid in &tids {
                snapshot.begin(None);
                if python.copy(&memory, &mut snapshot, tid, &mut stack).is_ok() {
                    python.finish(&memory, &mut snapshot, &mut stack);
                    assert!(stack.frames.len() <= 4096);
                    for raw in &stack.frames {
                        python.frame(raw.code, raw.lasti);
                    }
                }
            }
            let open = CPython::open(&memory, &mappings, target.pid, &|mapping| target.file(mapping));
            drop(open);
            if round % 5 == 0 {
                python.refresh(&target.memory).unwrap();
            }
        }
    }
}
