//! Stops a live program at random times and unwinds what was copied of it, as the sampler does.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use _native::memory::Memory;
use _native::target::Mapping;
use _native::target::linux::Process;
use _native::target::procfs;
use _native::target::ptrace::{self, Change};
use _native::unwind::{End, NativeFrame, Registers, StackCopy, Unwinder, copy_start};
use object::{Object, ObjectSymbol, SymbolKind};

pub mod program;

/// Most bytes of a stack copied.
const MAX_COPY: u64 = 512 << 10;

/// One tracer at a time: waitpid(-1) takes what any thread of this process traces.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A running program under observation.
pub struct Live {
    child: Child,
    /// The process.
    pub process: Process,
    /// Its mappings when last read.
    pub mappings: Vec<Mapping>,
    /// The unwinder.
    pub unwinder: Unwinder,
    symbols: HashMap<String, Symbols>,
    symbol_files: HashMap<String, String>,
    random: u64,
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One stop: its stack, and how the walk ended.
pub struct Stop {
    /// Leaf first.
    pub frames: Vec<NativeFrame>,
    /// The end.
    pub end: End,
    /// Where it started.
    pub start: Registers,
    /// What was copied of the stack.
    pub copies: Vec<(u64, Vec<u8>)>,
}

impl Stop {
    /// The copies, as the unwinder takes them.
    pub fn pieces(&self) -> Vec<StackCopy<'_>> {
        self.copies.iter().map(|(address, bytes)| StackCopy { address: *address, bytes }).collect()
    }
}

impl Live {
    /// Starts a program and waits for `lines` lines of its output.
    pub fn start(program: &Path, arguments: &[&str], lines: usize) -> Live {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        for _ in 0..lines {
            output.read_line(&mut String::new()).unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
        let process = Process::open(child.id()).unwrap();
        let mut live = Live {
            child,
            process,
            mappings: Vec::new(),
            unwinder: Unwinder::new(),
            symbols: HashMap::new(),
            symbol_files: HashMap::new(),
            random: 7,
        };
        live.refresh();
        live
    }

    /// The symbols of a mapped file are to be taken from another.
    pub fn symbols_from(&mut self, mapped: &Path, file: &Path) {
        self.symbol_files.insert(mapped.display().to_string(), file.display().to_string());
    }

    /// Reads the mappings again.
    pub fn refresh(&mut self) {
        self.mappings = self.process.mappings().unwrap();
        let open = |mapping: &Mapping| self.process.open_mapped_file(mapping);
        self.unwinder.set_mappings(&self.process, &self.mappings, &open);
    }

    /// The thread ids.
    pub fn threads(&self) -> Vec<u32> {
        procfs::list_threads(self.process.pid)
    }

    fn copy(&self, sp: u64) -> Option<(u64, Vec<u8>)> {
        let mapping = self.mappings.iter().find(|mapping| mapping.start <= sp && sp < mapping.end)?;
        let start = copy_start(sp);
        let size = (mapping.end - start).min(MAX_COPY);
        let mut bytes = vec![0; size as usize];
        self.process.read(start, &mut bytes).ok()?;
        Some((start, bytes))
    }

    /// Stops a thread after a random time, copies, lets it run, and unwinds. None if the thread has ended.
    pub fn stop(&mut self, tid: u32) -> Option<Stop> {
        self.stop_and(tid, |_| {})
    }

    /// The same; `read` is called while the thread stands still.
    pub fn stop_and(&mut self, tid: u32, read: impl FnOnce(&Process)) -> Option<Stop> {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_nanos(self.random >> 45));
        ptrace::seize(tid).ok()?;
        ptrace::interrupt(tid).ok()?;
        let patience = Instant::now() + Duration::from_secs(5);
        let signal = loop {
            match ptrace::next_change() {
                Some((changed, Change::Ended(_))) if changed == tid => return None,
                Some((changed, Change::Signal(signal))) if changed == tid => break signal,
                Some((changed, _)) if changed == tid => break 0,
                _ => assert!(Instant::now() < patience, "the thread did not stop"),
            }
        };
        let registers = ptrace::registers(tid).unwrap();
        if self.mappings.iter().all(|mapping| !(mapping.start..mapping.end).contains(&registers.rsp)) {
            self.mappings = self.process.mappings().unwrap();
        }
        let mut copies = Vec::from_iter(self.copy(registers.rsp));
        if let Some((address, bytes)) = copies.first() {
            let used = &bytes[(registers.rsp - address) as usize..];
            let second = self.unwinder.signal_stack(&StackCopy { address: registers.rsp, bytes: used });
            copies.extend(second.and_then(|sp| self.copy(sp)));
        }
        read(&self.process);
        ptrace::detach(tid, signal).unwrap();
        let mut stop = Stop { frames: Vec::new(), end: End::Bottom, start: Registers::stopped(&registers), copies };
        let mut frames = Vec::new();
        stop.end = self.unwinder.unwind(&self.process, &stop.start, &stop.pieces(), &mut frames);
        stop.frames = frames;
        Some(stop)
    }

    /// The function that an address is in, by the symbol table of its file.
    pub fn name(&mut self, frame: &NativeFrame) -> String {
        let Some(mapping) = self.mappings.get(frame.mapping as usize) else { return "?".to_string() };
        let path = mapping.path.clone();
        let base = self.mappings.iter().find(|other| other.path == path).map_or(0, |other| other.start - other.offset);
        let file = self.symbol_files.get(&path).unwrap_or(&path).clone();
        let (fixed, symbols) = self.symbols.entry(path.clone()).or_insert_with(|| read_symbols(&file));
        let address = if *fixed { frame.lookup } else { frame.lookup.wrapping_sub(base) };
        let at = symbols.partition_point(|&(start, _, _)| start <= address);
        match at.checked_sub(1).map(|at| &symbols[at]) {
            Some((start, size, name)) if address < start + (*size).max(1) => name.clone(),
            _ => format!("?{}", path.rsplit('/').next().unwrap_or_default()),
        }
    }

    /// All names of a stop.
    pub fn names(&mut self, stop: &Stop) -> Vec<String> {
        stop.frames.iter().map(|frame| self.name(frame)).collect()
    }
}

/// Whether the file's addresses are fixed, and (start, size, name) of its functions.
type Symbols = (bool, Vec<(u64, u64, String)>);

fn read_symbols(file: &str) -> Symbols {
    let Ok(bytes) = std::fs::read(file) else { return Symbols::default() };
    let Ok(file) = object::File::parse(&*bytes) else { return Symbols::default() };
    let mut symbols: Vec<_> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.is_definition() && matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Label))
        .map(|symbol| (symbol.address(), symbol.size(), symbol.name().unwrap_or("").to_string()))
        .filter(|symbol| symbol.1 > 0 || symbol.2 == "_start")
        .collect();
    symbols.sort();
    (file.kind() == object::ObjectKind::Executable, symbols)
}
