//! Go programs to read: built by the installed Go and by versions that it fetches, each once.
#![allow(dead_code, reason = "each test uses what it needs")]

#[path = "../../fuzz/golang.rs"]
pub mod golang;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use _native::memory::Memory;
use _native::runtime::go::Go;
use _native::runtime::go::image::Image;
use _native::target::Mapping;
use _native::target::linux::Process;
use _native::target::recorded::{Recorded, Recorder};
use golang::Saved;

/// Removes the debug information and the symbols.
pub const STRIPPED: &str = "-ldflags=-s -w";

/// What was built: tests run side by side, and a program that runs must not be replaced.
static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// tests/targets/goroutines, built by that version of Go ("local" = the installed one).
pub fn build(version: &str, cgo: bool, flags: &[&str]) -> PathBuf {
    build_of("goroutines", version, cgo, flags)
}

/// Another of tests/targets.
pub fn build_of(target: &str, version: &str, cgo: bool, flags: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/targets").join(target);
    let name = format!("go-{target}-{version}-{cgo}-{}", flags.join("")).replace(|c: char| !c.is_alphanumeric(), "_");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if built.contains(&out) {
        return out;
    }
    let toolchain = if version == "local" { version.to_string() } else { format!("go{version}") };
    let done = Command::new("go")
        .arg("build")
        .args(flags)
        .arg("-o")
        .arg(&out)
        .arg(".")
        .current_dir(folder)
        .env("GOTOOLCHAIN", toolchain)
        .env("GOFLAGS", "-buildvcs=false")
        .env("CGO_ENABLED", if cgo { "1" } else { "0" })
        .output()
        .expect("go is needed: scripts/test installs it");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    built.insert(out.clone());
    out
}

/// A program that runs, and ends with this value.
pub struct Running(Child);

impl Running {
    /// Starts it, and waits until its goroutines are where they stay.
    pub fn start(binary: &Path) -> Running {
        let folder = binary.with_extension("out");
        std::fs::create_dir_all(&folder).unwrap();
        let mut child = Command::new(binary).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Running(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that is being saved.
pub struct Saving<'a> {
    /// Its Go.
    pub go: Go<'a>,
    pub pid: u32,
    memory: &'a Recorder<'a>,
    within: &'a [Mapping],
    mappings: &'a [Mapping],
}

impl Saving<'_> {
    /// What `look` reads of the program, at no more places than it asks for; all that is saved too.
    pub fn read_by(self, look: impl FnOnce(&Go<'_>, &dyn Memory)) -> Vec<Range<u64>> {
        let recorder = Recorder::new(self.memory);
        // What may change is not read by pages.
        let writable = |mapping: &Mapping| Mapping { permissions: "rwxp".to_string(), ..mapping.clone() };
        let within: Vec<Mapping> = self.within.iter().map(writable).collect();
        let image = Image::new(&recorder, &within, self.mappings, None);
        let mut go = self.go;
        go.image = image;
        look(&go, &recorder);
        drop(go);
        let ranges = |(start, bytes): (u64, Vec<u8>)| start..start + bytes.len() as u64;
        golang::flat(&recorder.finish(Vec::new())).into_iter().map(ranges).collect()
    }
}

/// A stripped program as it runs: all of its Go module, what else opening its Go reads, and what `change` says is to be
/// changed of that.
pub fn saved(version: &str, change: impl FnOnce(Saving<'_>) -> Vec<Range<u64>>) -> Saved {
    let binary = build(version, false, &[STRIPPED]);
    let running = Running::start(&binary);
    let process = Process::open(running.pid()).unwrap();
    let mappings = process.mappings().unwrap();
    let path = binary.to_string_lossy();
    let within: Vec<Mapping> = mappings.iter().filter(|mapping| mapping.path == path).cloned().collect();
    let recorder = Recorder::new(&process);
    let go = Go::in_image(&recorder, Image::new(&recorder, &within, &mappings, None));
    let go = go.map_err(|(reason, _)| reason).unwrap();
    let changed = change(Saving { go, pid: process.pid, memory: &recorder, within: &within, mappings: &mappings });
    let pieces = golang::flat(&recorder.finish(Vec::new())).into_iter().collect();
    Saved { recorded: Recorded { mappings, pieces }, within, changed }
}
