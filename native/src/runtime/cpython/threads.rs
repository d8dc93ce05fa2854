//! The threads that CPython knows: every thread state of every interpreter, and the native thread that it belongs to.

use rustc_hash::FxHashMap;

use super::half;
use super::heads::{Heads, ThreadHead};
use super::namespace::Namespace;
use super::offsets::Offsets;
use super::watch::Watch;
use crate::error::ReadError;
use crate::memory::{Memory, Region};

/// Most interpreters of one process.
const MAX_INTERPRETERS: usize = 1024;
/// Most thread states of one process.
const MAX_THREADS: usize = 65_536;
/// Readings of a list that is being changed before what was found is taken.
const ATTEMPTS: usize = 3;
/// Bytes of glibc's and musl's `struct pthread` among which its tid is looked for.
const MAX_PTHREAD_BYTES: usize = 2048;
/// `offsetof(struct pthread, tid)` of glibc 2.x on x86_64: tried first.
const GLIBC_TID: usize = 720;

/// Since when `interp.exec` makes a state for each thread (3.12 and older swap in that of whoever made the interpreter).
const FIRST_WITH_STATES_OF_THREADS: u8 = 13;

/// Where a state stands in its interpreter's list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Newest,
    Older,
}

/// One thread state.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    /// Address of the PyThreadState.
    pub state: u64,
    /// Of its interpreter.
    pub interpreter: u64,
    /// Its `thread_id`: the address of the `struct pthread`, on Windows the system's id of the thread.
    pub pthread: u64,
    /// The thread id as the target counts it.
    pub inner_tid: u32,
    /// Its `native_thread_id` (3.11+); normally `inner_tid`.
    pub native_id: u64,
    /// Address of the GIL it needs, 0 if unknown.
    pub gil: u64,
    /// What the last walk read outside of the data stack, leaf first.
    pub regions: Vec<Region>,
    /// Data-stack chunks, newest first, and how much of each to copy.
    pub chunks: Vec<Region>,
}

/// All threads, by our thread id.
#[derive(Debug)]
pub(super) struct Threads {
    /// A thread has one state in each interpreter that it runs code of (3.13+), the innermost first. Older versions let
    /// any thread use any state: there only the first interpreter's is known to be a thread's own.
    pub by_tid: FxHashMap<u32, Vec<Thread>>,
    /// What tells that there is a new thread state.
    pub watch: Watch,
    /// Whether a thread may get another state, of another interpreter, while it has one.
    pub several_interpreters: bool,
    pub namespace: Namespace,
    pub runtime: u64,
    /// 3.8 to 3.10: offset of the tid in `struct pthread`.
    pub pthread_tid: Option<u32>,
    heads: Heads,
}

impl Threads {
    pub fn new(runtime: u64, pid: u32) -> Threads {
        let (by_tid, watch) = (FxHashMap::default(), Watch::default());
        let namespace = Namespace::of(pid);
        let heads = Heads::default();
        Threads { by_tid, watch, several_interpreters: false, namespace, runtime, pthread_tid: None, heads }
    }

    /// Whether `tid` has a thread state.
    pub fn knows(&self, tid: u32) -> bool {
        self.by_tid.contains_key(&tid)
    }

    /// A state of a thread.
    pub fn state(&self, tid: u32, index: usize) -> Option<&Thread> {
        self.by_tid.get(&tid)?.get(index)
    }

    /// A state of a thread.
    pub fn state_mut(&mut self, tid: u32, index: usize) -> Option<&mut Thread> {
        self.by_tid.get_mut(&tid)?.get_mut(index)
    }

    /// 3.8 to 3.10: where a thread's id is.
    pub fn tid_address(&self, thread: &Thread) -> Option<u64> {
        Some(thread.pthread.wrapping_add(u64::from(self.pthread_tid?)))
    }

    /// A round begins.
    pub fn begin_round(&mut self) {
        self.heads.begin_round();
    }

    /// Whether the lists may be read again in this round: threads that come and go all at once ask for that one by one.
    pub fn may_refresh(&self) -> bool {
        self.heads.may_read()
    }

    /// Reads the lists again. The target runs meanwhile: a list that breaks off is read again, and threads that it did
    /// not show stay known until a reading reached the end.
    pub fn refresh(&mut self, memory: &dyn Memory, offsets: &Offsets) -> Result<(), ReadError> {
        self.namespace.refresh();
        let main = memory.read_u64(self.runtime.wrapping_add(u64::from(offsets.runtime_main_thread)))?;
        if !offsets.has_data_stack() && !offsets.windows && self.pthread_tid.is_none() {
            self.pthread_tid = find_tid(memory, main, self.namespace.inner_pid());
        }
        let mut result = Ok(());
        let mut found = FxHashMap::default();
        for _ in 0..ATTEMPTS {
            found.clear();
            let mut watch = Watch::default();
            self.heads.read_ahead(memory, offsets, self.by_tid.values().flatten().map(|thread| thread.state))?;
            result = self.read_lists(memory, offsets, main, &mut found, &mut watch);
            self.watch = Watch::default();
            if result.is_ok() {
                self.watch = watch;
                self.by_tid.clear();
                break;
            }
        }
        self.by_tid.extend(found);
        match result {
            Err(error @ (ReadError::Gone | ReadError::Denied)) => Err(error),
            _ => Ok(()),
        }
    }

    fn read_lists(
        &mut self,
        memory: &dyn Memory,
        offsets: &Offsets,
        main: u64,
        found: &mut FxHashMap<u32, Vec<Thread>>,
        watch: &mut Watch,
    ) -> Result<(), ReadError> {
        let first = self.runtime.wrapping_add(u64::from(offsets.runtime_interpreters));
        let mut interpreter = memory.read_u64(first)?;
        watch.word(first, interpreter);
        let newest_interpreter = interpreter;
        let mut count = 0;
        for _ in 0..MAX_INTERPRETERS {
            if interpreter == 0 {
                return Ok(());
            }
            self.several_interpreters =
                interpreter != newest_interpreter && offsets.minor >= FIRST_WITH_STATES_OF_THREADS;
            let gil = self.gil(memory, offsets, interpreter)?;
            let newest = interpreter.wrapping_add(u64::from(offsets.interpreter_threads));
            let mut state = memory.read_u64(newest)?;
            watch.word(newest, state);
            let mut place = Place::Newest;
            while state != 0 {
                count += 1;
                if count > MAX_THREADS {
                    return Err(ReadError::Bound("too many threads"));
                }
                let head = self.heads.read(memory, offsets, state)?;
                if head.interpreter != interpreter {
                    return Err(ReadError::Corrupt("thread list changed"));
                }
                let thread = self.thread(memory, offsets, head, state, main, gil);
                let own = thread.as_ref().is_some_and(|(tid, _)| {
                    let same = |known: &Thread| known.interpreter == interpreter;
                    !found.get(tid).is_some_and(|states: &Vec<Thread>| states.iter().any(same))
                });
                // Made by one thread for another, which has not taken it over yet: before 3.12 it has its maker's id.
                if place == Place::Newest || !own {
                    watch.state(state, head);
                }
                place = Place::Older;
                if let Some((tid, thread)) = thread {
                    let states = found.entry(tid).or_default();
                    // The oldest of an interpreter is the thread's own.
                    if offsets.minor < FIRST_WITH_STATES_OF_THREADS {
                        states.clear();
                    } else {
                        states.retain(|known| known.interpreter != interpreter);
                    }
                    states.push(thread);
                }
                state = head.next;
            }
            interpreter = memory.read_u64(interpreter.wrapping_add(u64::from(offsets.interpreter_next)))?;
        }
        Err(ReadError::Bound("too many interpreters"))
    }

    fn gil(&self, memory: &dyn Memory, offsets: &Offsets, interpreter: u64) -> Result<u64, ReadError> {
        if offsets.runtime_gil != 0 {
            return Ok(self.runtime.wrapping_add(u64::from(offsets.runtime_gil)));
        }
        memory.read_u64(interpreter.wrapping_add(u64::from(offsets.interpreter_gil)))
    }

    /// The thread of a thread state, with what was remembered of it if it is the same one.
    fn thread(
        &self,
        memory: &dyn Memory,
        offsets: &Offsets,
        head: ThreadHead,
        state: u64,
        main: u64,
        gil: u64,
    ) -> Option<(u32, Thread)> {
        if head.pthread == 0 {
            return None; // Not bound to a thread (yet).
        }
        // A fork in a 3.11 leaves the parent's id in the child: the main thread is known without it.
        let inner_tid = if offsets.windows {
            head.pthread as u32
        } else if head.pthread == main {
            self.namespace.inner_pid()
        } else if head.native_id != 0 {
            u32::try_from(head.native_id).ok()?
        } else {
            memory.read_u32(head.pthread.wrapping_add(u64::from(self.pthread_tid?))).ok()?
        };
        let tid = self.namespace.ours(inner_tid)?;
        let known = self.by_tid.get(&tid).and_then(|states| states.iter().find(|known| known.state == state));
        let (regions, chunks) = known.map_or((Vec::new(), Vec::new()), |it| (it.regions.clone(), it.chunks.clone()));
        let ThreadHead { interpreter, pthread, native_id, .. } = head;
        Some((tid, Thread { state, interpreter, pthread, inner_tid, native_id, gil, regions, chunks }))
    }
}

/// Where `struct pthread` keeps its tid, calibrated on the main thread, whose tid is `pid`.
fn find_tid(memory: &dyn Memory, pthread: u64, pid: u32) -> Option<u32> {
    let is_tid = |at: usize| memory.read_u32(pthread.wrapping_add(at as u64)) == Ok(pid);
    if is_tid(GLIBC_TID) {
        return Some(GLIBC_TID as u32);
    }
    let mut bytes = vec![0; MAX_PTHREAD_BYTES];
    while memory.read(pthread, &mut bytes).is_err() {
        bytes.truncate(bytes.len() / 2);
        if bytes.len() < 64 {
            return None;
        }
    }
    (0..bytes.len() as u32).step_by(4).find(|&at| half(&bytes, at) == Some(pid))
}
