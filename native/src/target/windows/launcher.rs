//! Launchers: programs that start a Python as their child, and wait for it. `python.exe` of a venv is one (CPython's
//! PC/venvlauncher.c), `py.exe`, what pip installs for commands, and what PyInstaller makes of a program in one file.

use std::time::Duration;

use super::watched::{Watched, file_name, list};
use super::{Process, sys};
use crate::error::Error;
use crate::target::descent::{Birth, Descent};

/// Most launchers one after the other: a command in a venv has two.
const MAX_STEPS: usize = 4;
/// How long a young launcher is given to start its child, in units of 100 ns.
const YOUNG_UNITS: u64 = 10_000_000;

/// The process itself, or the interpreter that it has started if it is a launcher; then with a note that says so.
pub fn interpreter(process: Process) -> Result<(Process, Option<String>), Error> {
    let (first, name) = (process.pid, process.name.clone());
    let mut process = process;
    for _ in 0..MAX_STEPS {
        let Some(child) = child_of(&process) else { break };
        process = Process::open(child)?;
    }
    let note = (process.pid != first).then(|| {
        format!(
            "process {first} ({name}) only launches Python: this is the interpreter that it started, process {} ({})",
            process.pid, process.name
        )
    });
    Ok((process, note))
}

/// The only child of a process that is a launcher.
fn child_of(process: &Process) -> Option<u32> {
    let own = Watched::open(process.pid).ok()?;
    let path = own.program();
    let of_python = is_of_python(&path);
    loop {
        if has_python(process) {
            return None;
        }
        match children(&own).as_slice() {
            [child] => {
                let other = child.program();
                let fits = match of_python {
                    true => file_name(&other).to_ascii_lowercase().starts_with("py"),
                    false => {
                        path.eq_ignore_ascii_case(&other) && Process::open(child.pid).is_ok_and(|it| has_python(&it))
                    }
                };
                return fits.then_some(child.pid);
            }
            [] if of_python && sys::now_units() < own.created + YOUNG_UNITS && process.alive() => {
                std::thread::sleep(Duration::from_millis(5));
            }
            _ => return None,
        }
    }
}

/// Its children but for the console's own process, which Windows starts below the first program of a console.
fn children(own: &Watched) -> Vec<Watched> {
    let mut descent = Descent::default();
    descent.begin(Birth { pid: own.pid, parent: 0, created: own.created });
    let list: Vec<(u32, u32)> = list().into_iter().filter(|&(_, parent)| parent == own.pid).collect();
    let born = descent.births(&list, |pid| Watched::open(pid).ok().filter(|one| !one.ended()).map(|one| one.created));
    let found = born.into_iter().filter_map(|birth| Watched::open(birth.pid).ok());
    found.filter(|child| !file_name(&child.program()).eq_ignore_ascii_case("conhost.exe")).collect()
}

/// Whether it has loaded an interpreter: such as python313.dll, python313t.dll, libpython3.13.dll.
fn has_python(process: &Process) -> bool {
    process.modules().mappings.iter().any(|module| {
        let name = file_name(&module.path).to_ascii_lowercase();
        let version = name.strip_prefix("lib").unwrap_or(&name).strip_prefix("python");
        // python3.dll only leads to the other.
        version
            .and_then(|version| version.strip_suffix(".dll"))
            .is_some_and(|version| version.len() > 1 && version.starts_with(|first: char| first.is_ascii_digit()))
    })
}

/// Whether a program is called as Python's are, or lies beside one.
fn is_of_python(path: &str) -> bool {
    let name = file_name(path);
    let folder = &path[..path.len() - name.len()];
    name.to_ascii_lowercase().starts_with("py") || std::path::Path::new(&format!("{folder}python.exe")).exists()
}
