//! Python and native stacks of live interpreters, merged: nearly every stop must match, and in the right order.

use std::path::PathBuf;

use _native::memory::Snapshot;
use _native::runtime::cpython::{CPython, End as Walk, PyStack};
use _native::stack::{Entry, Evaluation, Merge, evaluation_ranges, merge};
use _native::target::Mapping;
use _native::unwind::End;

mod unwind_support;

use unwind_support::{Live, alone};

const STOPS: usize = 1000;

const SCRIPT: &str = "
import threading, json, re, zlib, functools, ctypes
class Held:
    def __del__(self): ring(3)
def ring(n):
    return sum(i * i for i in range(n))
def keyed(x):
    return functools.reduce(lambda a, b: a ^ b, (x, 3, 5))
Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
def compare(a, b):
    return a[0] - b[0]
compare_c = Callback(compare)
libc = ctypes.CDLL(None)
def quick():
    array = (ctypes.c_int * 8)(5, 3, 1, 8, 9, 2, 7, 4)
    libc.qsort(array, 8, 4, compare_c)
def generated(n):
    yield from (keyed(i) for i in range(n))
def loop():
    while True:
        sorted(range(20), key=keyed); json.dumps({'a': [1, object()]}, default=lambda o: ring(5))
        re.sub('[a-c]', lambda m: m.group(0) * 2, 'abcabc' * 3); zlib.compress(b'abc' * 900)
        quick(); list(generated(9)); Held(); [Held() for _ in range(3)]
threading.Thread(target=loop, daemon=True).start()
print('ready', flush=True)
loop()
";

/// Which Python function may call which, and the C function that must lie between them.
const CALLS: &[(&str, &str, &str)] = &[
    ("compare", "quick", "ffi"),
    ("keyed", "loop", "list_sort"),
    ("keyed", "<genexpr>", ""),
    ("<genexpr>", "generated", ""),
    ("<genexpr>", "ring", "sum"),
    ("generated", "loop", "list"),
    ("quick", "loop", ""),
    ("ring", "__del__", ""),
    ("ring", "<lambda>", ""),
    ("loop", "run", ""),
    ("loop", "<module>", ""),
];

/// A pair of Python frames that the script cannot have, or a C function that is not where it must be.
fn illegal(names: &[String]) -> Option<String> {
    let mut callee: Option<(usize, &str)> = None;
    for (index, name) in names.iter().enumerate() {
        let Some(caller) = name.strip_prefix("py:") else { continue };
        if let Some((at, callee)) = callee {
            let known = |(_, of, _): &&(&str, &str, &str)| *of == caller;
            let mut rules = CALLS.iter().filter(|rule| rule.0 == callee).peekable();
            if rules.peek().is_some() {
                let between = |needed: &str| names[at + 1..index].iter().any(|name| name.contains(needed));
                let held = rules.filter(known).any(|rule| rule.2.is_empty() || between(rule.2));
                if !held {
                    return Some(format!("{callee} under {caller}: {names:#?}"));
                }
            }
        }
        callee = Some((index, caller));
    }
    None
}

fn interpreters() -> Vec<(u32, PathBuf)> {
    let home = std::env::var("HOME").unwrap_or_default();
    let mut found = Vec::new();
    for folder in std::fs::read_dir(format!("{home}/.pyenv/versions")).into_iter().flatten().flatten() {
        let name = folder.file_name().into_string().unwrap_or_default();
        let minor = name.strip_prefix("3.").and_then(|rest| rest.split('.').next()?.parse().ok()).unwrap_or(0);
        if (8..=14).contains(&minor) {
            found.push((minor, folder.path().join(format!("bin/python3.{minor}"))));
        }
    }
    found.sort();
    found
}

/// Where the evaluation loop is in the process.
fn evaluation(live: &Live) -> Evaluation {
    let holds = |mapping: &&Mapping| mapping.offset == 0 && mapping.path.contains("python3.");
    for mapping in live.mappings.iter().filter(holds) {
        let bytes = std::fs::read(&mapping.path).unwrap();
        let ranges = evaluation_ranges(&*bytes);
        if !ranges.is_empty() {
            return ranges.loaded(mapping.start);
        }
    }
    panic!("no evaluation loop")
}

#[test]
fn every_version() {
    let _alone = alone();
    for (minor, path) in interpreters() {
        let mut live = Live::start(&path, &["-c", SCRIPT], 1);
        std::thread::sleep(std::time::Duration::from_millis(300));
        live.refresh();
        let evaluation = evaluation(&live);
        let open = |mapping: &Mapping| live.process.open_mapped_file(mapping);
        let mut python = CPython::open(&live.process, &live.mappings, live.process.pid, &open).unwrap().unwrap();
        python.refresh(&live.process).unwrap();
        let (mut snapshot, mut stack) = (Snapshot::with_capacity(1 << 20), PyStack::default());
        let (mut stops, mut torn, mut bottom, mut matched, mut wrong) = (0, 0, 0, 0, 0);
        let mut examples = Vec::new();
        let threads = live.threads();
        let mut entries = Vec::new();
        for turn in 0..STOPS {
            let tid = threads[turn % threads.len()];
            let stop = live.stop_and(tid, |process| {
                snapshot.begin(None);
                let _ = python.copy(process, &mut snapshot, tid, &mut stack);
            });
            let Some(stop) = stop else { continue };
            python.finish(&live.process, &mut snapshot, &mut stack);
            stops += 1;
            if stack.end != Walk::Base {
                torn += 1;
                continue;
            }
            bottom += usize::from(stop.end == End::Bottom);
            let complete = stop.end == End::Bottom;
            let how = merge(&stop.frames, &evaluation, &stack.frames, &stack.groups, complete, &mut entries);
            if how == Merge::Matched {
                matched += 1;
                let order: Vec<u32> = entries
                    .iter()
                    .filter_map(|entry| if let Entry::Python(index) = entry { Some(*index) } else { None })
                    .collect();
                wrong += usize::from(!order.iter().copied().eq(0..stack.frames.len() as u32));
                let mut names = Vec::new();
                for entry in &entries {
                    names.push(match *entry {
                        Entry::Native(index) | Entry::Loop(index) => live.name(&stop.frames[index as usize]),
                        Entry::Python(index) => {
                            let raw = stack.frames[index as usize];
                            let frame = python.frame(raw.code, raw.lasti).unwrap();
                            let name = &python.function(frame.function).unwrap().name;
                            format!("py:{}", name.rsplit('.').next().unwrap_or_default())
                        }
                    });
                }
                if let Some(what) = illegal(&names) {
                    wrong += 1;
                    examples.push(what);
                }
            } else {
                let native: Vec<String> = stop
                    .frames
                    .iter()
                    .map(|frame| format!("{:x} {:x} {}", frame.sp, frame.pc, live.name(frame)))
                    .collect();
                examples.push(format!("{:?} {:x?} {} {native:#?}", stop.end, stack.groups, stack.frames.len()));
            }
        }
        let read = stops - torn;
        eprintln!(
            "3.{minor}: {stops} stops, {torn} torn, {bottom} complete, {matched} of {read} matched, {wrong} wrong"
        );
        for example in examples.iter().take(2) {
            eprintln!("{example}");
        }
        assert_eq!(wrong, 0);
        assert!(bottom as f64 >= 0.999 * read as f64, "3.{minor}: {bottom} of {read}");
        assert!(matched as f64 >= 0.999 * read as f64, "3.{minor}: {matched} of {read}");
    }
}
