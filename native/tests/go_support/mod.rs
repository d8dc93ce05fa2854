//! Go programs to read: built by the installed Go and by versions that it fetches, each once.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Removes the debug information and the symbols.
pub const STRIPPED: &str = "-ldflags=-s -w";

/// What was built: tests run side by side, and a program that runs must not be replaced.
static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// tests/targets/goroutines, built by that version of Go ("local" = the installed one).
pub fn build(version: &str, cgo: bool, flags: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/targets/goroutines");
    let name: String = format!("go-{version}-{cgo}-{}", flags.join("")).replace(|c: char| !c.is_alphanumeric(), "_");
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
