//! Real interpreters for the tests, and their memory.
#![allow(dead_code)]

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use _native::error::ReadError;
use _native::memory::{Memory, Region};
use _native::runtime::cpython::CPython;
use _native::target::Mapping;

/// A CPython at hand.
pub struct Interpreter {
    pub version: String,
    pub path: PathBuf,
}

/// Every CPython 3.8 to 3.14 at hand; $PYTHONS names more, separated by colons.
pub fn interpreters() -> Vec<Interpreter> {
    let mut found = Vec::new();
    let home = PathBuf::from(std::env::var("HOME").unwrap_or_default()).join(".pyenv/versions");
    for entry in home.read_dir().into_iter().flatten().flatten() {
        let version = entry.file_name().to_string_lossy().into_owned();
        let minor: u32 = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0);
        if version.starts_with("3.") && (8..=14).contains(&minor) {
            found.push(Interpreter { version, path: entry.path().join("bin/python3") });
        }
    }
    let cached = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.cache/pythons/3.14/usr/bin/python3.14");
    if cached.exists() {
        found.push(Interpreter { version: "3.14".into(), path: cached });
    }
    for path in std::env::var("PYTHONS").unwrap_or_default().split(':').filter(|path| !path.is_empty()) {
        let name = path.rsplit("python").next().unwrap_or_default().to_owned();
        found.push(Interpreter { version: name, path: path.into() });
    }
    if let Ok(only) = std::env::var("ONLY") {
        found.retain(|interpreter| interpreter.version.starts_with(&only));
    }
    found.sort_by(|a, b| a.version.len().cmp(&b.version.len()).then(a.version.cmp(&b.version)));
    found
}

/// A running program. Killed on drop.
pub struct Target {
    child: Child,
    pub pid: u32,
    pub memory: Process,
}

impl Target {
    /// Starts `script` and waits for its first line of output.
    pub fn start(interpreter: &Interpreter, script: &str) -> (Target, String) {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cpython_targets").join(script);
        Target::with_output(Command::new(&interpreter.path).arg(script))
    }

    /// Starts `command` and waits for its first line of output.
    pub fn command(command: &mut Command) -> Target {
        Target::with_output(command).0
    }

    /// A process that is no Python.
    pub fn sleep() -> Target {
        Target::command(Command::new("sh").args(["-c", "echo ready; exec sleep 1000 <&- >&-"]))
    }

    fn with_output(command: &mut Command) -> (Target, String) {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = child.id();
        (Target { child, pid, memory: Process(pid) }, line)
    }

    /// The file behind a mapping.
    pub fn file(&self, mapping: &Mapping) -> io::Result<File> {
        File::open(format!("/proc/{}/map_files/{:x}-{:x}", self.pid, mapping.start, mapping.end))
    }

    pub fn mappings(&self) -> Vec<Mapping> {
        let text = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap();
        text.lines().map(mapping).collect()
    }

    pub fn open(&self) -> CPython {
        CPython::open(&self.memory, &self.mappings(), self.pid, &|mapping| self.file(mapping))
            .unwrap()
            .expect("an interpreter")
    }

    /// Stops every thread and waits until they stand.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        loop {
            let status = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
            if status.rsplit(") ").next().unwrap().starts_with('T') {
                return;
            }
        }
    }

    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: i32) {
        // SAFETY: kill takes no pointers; the pid is that of our own child, not reaped yet.
        assert_eq!(unsafe { libc::kill(self.pid as i32, signal) }, 0);
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mapping(line: &str) -> Mapping {
    let mut parts = line.splitn(6, ' ');
    let mut next = || parts.next().unwrap_or("").to_owned();
    let (range, permissions, offset, device, inode, path) = (next(), next(), next(), next(), next(), next());
    let (start, end) = range.split_once('-').unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    Mapping {
        start: hex(start),
        end: hex(end),
        permissions,
        offset: hex(&offset),
        device,
        inode: inode.parse().unwrap(),
        path: path.trim_start().to_owned(),
    }
}

/// A process's memory by process_vm_readv.
pub struct Process(pub u32);

impl Memory for Process {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let size = buffer.len();
        match self.read_regions(&[Region { address, size: size as u32 }], buffer)? {
            filled if filled == size => Ok(()),
            _ => Err(ReadError::Unmapped),
        }
    }

    fn read_regions(&self, regions: &[Region], buffer: &mut [u8]) -> Result<usize, ReadError> {
        let mut filled = 0;
        for batch in regions.chunks(1024) {
            let remote: Vec<libc::iovec> = batch
                .iter()
                .map(|region| libc::iovec { iov_base: region.address as *mut _, iov_len: region.size as usize })
                .collect();
            let wanted = batch.iter().map(|region| region.size as usize).sum();
            let local = libc::iovec { iov_base: buffer[filled..].as_mut_ptr().cast(), iov_len: wanted };
            // SAFETY: `local` is the part of `buffer` that takes what `remote` asks for; both lists outlive the call.
            let read = unsafe {
                libc::process_vm_readv(self.0 as i32, &local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
            };
            if read < 0 {
                break;
            }
            filled += read as usize;
            if (read as usize) < wanted {
                break;
            }
        }
        Ok(filled)
    }
}

/// (name, file, first line, line)
pub type Line = (String, String, u64, u64);

/// The frames by thread that a `parked.py` printed.
pub fn parse_report(report: &str) -> Vec<(u32, Vec<Line>)> {
    let mut threads = Vec::new();
    for part in report.split("{\"tid\": ").skip(1) {
        let (tid, rest) = part.split_once(',').unwrap();
        let frames = rest.split("[\"").skip(1).map(|frame| {
            let fields: Vec<&str> = frame.split([']']).next().unwrap().split(", ").collect();
            let text = |field: &str| unescape(field.trim_matches('"'));
            (text(fields[0]), text(fields[1]), fields[2].parse().unwrap(), fields[3].parse().unwrap())
        });
        threads.push((tid.parse().unwrap(), frames.collect()));
    }
    threads
}

fn unescape(text: &str) -> String {
    let mut parts = text.split("\\u");
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        out.push(char::from_u32(u32::from_str_radix(&part[..4], 16).unwrap()).unwrap());
        out.push_str(&part[4..]);
    }
    out
}
