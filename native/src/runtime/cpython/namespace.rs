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
    /// Its own process id as it counts.
    inner_pid: u32,
    /// Our id by the target's, and the other way round.
    ours: FxHashMap<u32, u32>,
    inner: FxHashMap<u32, u32>,
}

impl Namespace {
    /// Of process `pid`. Where `/proc` does not tell (a recording), ids are taken as they are.
    pub fn of(pid: u32) -> Namespace {
        let nested = match (fs::read_link(format!("/proc/{pid}/ns/pid")), fs::read_link("/proc/self/ns/pid")) {
            (Ok(theirs), Ok(own)) => theirs != own,
            _ => false,
        };
        let inner_pid = nested.then(|| inner_id(format!("/proc/{pid}/status").as_ref())).flatten().unwrap_or(pid);
        Namespace { pid, nested, inner_pid, ours: FxHashMap::default(), inner: FxHashMap::default() }
    }

    /// Lists the threads again, and asks for the ids of those that are new.
    pub fn refresh(&mut self) {
        if !self.nested {
            return;
        }
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return };
        let before = std::mem::take(&mut self.inner);
        for task in tasks.flatten().take(MAX_TASKS) {
            let Some(tid) = task.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let known = before.get(&tid).copied();
            if let Some(inner) = known.or_else(|| inner_id(&task.path().join("status"))) {
                self.inner.insert(tid, inner);
            }
        }
        self.ours = self.inner.iter().map(|(&tid, &inner)| (inner, tid)).collect();
    }

    /// Our id of the thread that the target knows as `inner`.
    pub fn ours(&self, inner: u32) -> Option<u32> {
        if self.nested { self.ours.get(&inner).copied() } else { Some(inner) }
    }

    /// The target's own process id.
    pub fn inner_pid(&self) -> u32 {
        self.inner_pid
    }
}

/// The innermost id on the `NSpid:` line of a status file.
fn inner_id(status: &std::path::Path) -> Option<u32> {
    let text = fs::read_to_string(status).ok()?;
    text.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}
