//! Thread ids as the target counts them: inside a PID namespace they differ from ours.

use std::fs;

use rustc_hash::FxHashMap;

/// Most threads looked at.
const MAX_TASKS: usize = 65_536;

/// How the target's own thread ids map to ours.
#[derive(Debug)]
pub(super) struct Namespace {
    pid: u32,
    nested: bool,
    ours: FxHashMap<u32, u32>,
}

impl Namespace {
    /// Of process `pid`. Where `/proc` does not tell (a recording), ids are taken as they are.
    pub fn of(pid: u32) -> Namespace {
        let nested = match (fs::read_link(format!("/proc/{pid}/ns/pid")), fs::read_link("/proc/self/ns/pid")) {
            (Ok(theirs), Ok(own)) => theirs != own,
            _ => false,
        };
        Namespace { pid, nested, ours: FxHashMap::default() }
    }

    /// Lists the threads again.
    pub fn refresh(&mut self) {
        if !self.nested {
            return;
        }
        self.ours.clear();
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return };
        for task in tasks.flatten().take(MAX_TASKS) {
            let Some(tid) = task.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            if let Some(inner) = inner_id(&task.path().join("status")) {
                self.ours.insert(inner, tid);
            }
        }
    }

    /// Our id of the thread that the target knows as `inner`.
    pub fn ours(&self, inner: u32) -> Option<u32> {
        if self.nested { self.ours.get(&inner).copied() } else { Some(inner) }
    }

    /// The target's own process id.
    pub fn inner_pid(&self) -> u32 {
        if !self.nested {
            return self.pid;
        }
        inner_id(format!("/proc/{}/status", self.pid).as_ref()).unwrap_or(self.pid)
    }
}

/// The innermost id on the `NSpid:` line of a status file.
fn inner_id(status: &std::path::Path) -> Option<u32> {
    let text = fs::read_to_string(status).ok()?;
    text.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}
