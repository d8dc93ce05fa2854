//! Random stops of live programs: nearly every stack must end at the bottom, and none may hold a call that the program
//! cannot make.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use _native::unwind::End;

mod unwind_support;

use unwind_support::program::Program;
use unwind_support::{Live, Stop, alone};

/// Stops of each program.
const STOPS: usize = 1000;

/// What was seen.
#[derive(Default, Debug)]
struct Seen {
    stops: usize,
    bottom: usize,
    illegal: usize,
    depth: usize,
    signal_frames: usize,
    vdso_leaves: usize,
    bad_vdso: usize,
    anonymous: usize,
    ends: BTreeMap<String, usize>,
    examples: Vec<String>,
}

fn illegal(program: &Program, stop: &Stop, names: &[String]) -> Option<String> {
    for (frames, pair) in stop.frames.windows(2).zip(names.windows(2)) {
        let (callee, caller) = (pair[0].as_str(), pair[1].as_str());
        // What a signal interrupted calls nothing; the trampoline above it must be no function of the program.
        let interrupted = frames[1].pc == frames[1].lookup && !program.knows(callee);
        if !interrupted && !program.may_call(caller, callee) {
            return Some(format!("{caller} -> {callee} in {names:?}"));
        }
    }
    None
}

fn observe(live: &mut Live, program: &Program, stops: usize) -> Seen {
    let mut seen = Seen::default();
    let threads = live.threads();
    for turn in 0..stops {
        let tid = threads[turn % threads.len()];
        let Some(stop) = live.stop(tid) else { continue };
        seen.stops += 1;
        seen.depth = seen.depth.max(stop.frames.len());
        let names = live.names(&stop);
        let path = |live: &Live, at: usize| {
            let frame = stop.frames.get(at)?;
            Some(live.mappings.get(frame.mapping as usize)?.path.clone())
        };
        if path(live, 0).as_deref() == Some("[vdso]") {
            seen.vdso_leaves += 1;
            seen.bad_vdso += usize::from(!names.iter().any(|name| name == "run_clocks"));
        }
        seen.anonymous += usize::from((0..stop.frames.len()).any(|at| path(live, at).as_deref() == Some("")));
        seen.signal_frames += usize::from(stop.frames.iter().skip(1).any(|frame| frame.lookup == frame.pc));
        match stop.end {
            End::Bottom => seen.bottom += 1,
            end => {
                *seen.ends.entry(format!("{end:?}").split(' ').next().unwrap().to_string()).or_default() += 1;
                seen.examples.push(format!("{end:x?} {:x?} {names:?}", stop.frames));
            }
        }
        if let Some(what) = illegal(program, &stop, &names) {
            seen.illegal += 1;
            seen.examples.push(what);
        }
    }
    seen.examples.truncate(5);
    eprintln!("{seen:#?}");
    seen
}

fn check(name: &str, options: &[&str], mode: &str, share: f64) -> Seen {
    let _alone = alone();
    let program = Program::generate();
    let binary = program.build(&format!("{name}-{mode}"), options);
    let lines = if mode == "jit" { 2 } else { 1 };
    let mut live = Live::start(&binary, &[mode], lines);
    let seen = observe(&mut live, &program, STOPS);
    judge(&format!("{name} {mode}"), &seen, share);
    seen
}

fn judge(what: &str, seen: &Seen, share: f64) {
    assert!(seen.stops > STOPS * 9 / 10, "{what}: {} stops", seen.stops);
    assert_eq!(seen.illegal, 0, "{what}: {:#?}", seen.examples);
    assert!(seen.bottom as f64 >= share * seen.stops as f64, "{what}: {}/{} {:#?}", seen.bottom, seen.stops, seen);
}

const O2: &[&str] = &["-O2", "-fomit-frame-pointer"];

#[test]
fn unoptimized() {
    check("O0", &["-O0"], "calls", 0.999);
}

#[test]
fn optimized() {
    check("O2", O2, "calls", 0.999);
}

#[test]
fn optimized_hard() {
    check("O3", &["-O3", "-flto", "-march=native"], "calls", 0.999);
}

#[test]
fn static_pie() {
    check("static", &["-O2", "-static-pie"], "calls", 0.999);
}

#[test]
fn fixed_address() {
    check("fixed", &["-O2", "-no-pie", "-static"], "calls", 0.999);
}

#[test]
fn gold() {
    check("gold", &["-O2", "-fuse-ld=gold"], "threads", 0.999);
}

#[test]
fn stripped() {
    let _alone = alone();
    let program = Program::generate();
    let full = program.build("stripped-full", O2);
    let binary = full.with_extension("bare");
    assert!(Command::new("strip").arg("-o").arg(&binary).arg(&full).status().unwrap().success());
    let mut live = Live::start(&binary, &["calls"], 1);
    live.symbols_from(&binary, &full);
    let seen = observe(&mut live, &program, STOPS);
    judge("stripped", &seen, 0.999);
}

#[test]
fn deleted_on_disk() {
    let _alone = alone();
    let program = Program::generate();
    let binary = program.build("deleted", O2);
    let full = program.build("deleted-full", O2);
    let live = Live::start(&binary, &["calls"], 1);
    std::fs::remove_file(&binary).unwrap();
    let mut live = live;
    let gone = format!("{} (deleted)", binary.display());
    live.symbols_from(Path::new(&gone), &full);
    live.unwinder = _native::unwind::Unwinder::new();
    live.mappings = live.process.mappings().unwrap();
    // As on a machine where not even /proc/PID/map_files can be read: only memory has the tables.
    let refuse = |_: &_native::target::Mapping| Err(std::io::ErrorKind::PermissionDenied.into());
    live.unwinder.set_mappings(&live.process, &live.mappings, &refuse);
    let seen = observe(&mut live, &program, STOPS);
    judge("deleted", &seen, 0.999);
}

#[test]
fn only_debug_frame() {
    let options = ["-O2", "-g", "-gz=zlib", "-fno-asynchronous-unwind-tables", "-fno-exceptions"];
    check("debug-frame", &options, "calls", 0.999);
}

#[test]
fn frame_pointers_without_tables() {
    let options = ["-O1", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-exceptions"];
    let _alone = alone();
    let program = Program::generate();
    let binary = program.build("pointers", &options);
    let mut live = Live::start(&binary, &["calls"], 1);
    let seen = observe(&mut live, &program, STOPS);
    // A leaf between push and mov, or with a frame of another shape, may lose one caller; the end must be found.
    assert!(seen.bottom as f64 >= 0.99 * seen.stops as f64, "{seen:#?}");
    assert!(seen.illegal as f64 <= 0.02 * seen.stops as f64, "{seen:#?}");
}

#[test]
fn threads() {
    check("O2", O2, "threads", 0.999);
}

#[test]
fn signals() {
    let seen = check("O2", O2, "signals", 0.995);
    assert!(seen.signal_frames > seen.stops / 20);
}

#[test]
fn signals_static() {
    let seen = check("static", &["-O2", "-static"], "signals", 0.995);
    assert!(seen.signal_frames > seen.stops / 20);
}

#[test]
fn signals_on_their_own_stack() {
    let seen = check("O2", O2, "altstack", 0.995);
    assert!(seen.signal_frames > seen.stops / 20);
}

#[test]
fn clocks() {
    let seen = check("O2", O2, "clocks", 0.999);
    assert!(seen.vdso_leaves > seen.stops / 4, "{seen:#?}");
    assert_eq!(seen.bad_vdso, 0);
}

#[test]
fn jit() {
    let seen = check("O2", O2, "jit", 0.999);
    assert!(seen.anonymous > seen.stops / 2);
}

#[test]
fn python() {
    let _alone = alone();
    let home = std::env::var("HOME").unwrap_or_default();
    let python = format!("{home}/.pyenv/versions/3.12.1/bin/python3.12");
    if !Path::new(&python).exists() {
        eprintln!("no {python}: not tried");
        return;
    }
    let script = "
import threading, json, re, zlib, functools
def work(n):
    return sorted(range(n), key=lambda x: functools.reduce(lambda a, b: a ^ b, (x, 3, 5)))
def loop():
    while True:
        work(50); json.dumps({'a': [1, 2.5, 'x'] * 20}); re.sub('[a-c]', lambda m: m.group(0) * 2, 'abcabc' * 9)
        zlib.compress(b'abc' * 900)
threading.Thread(target=loop, daemon=True).start()
print('ready', flush=True)
loop()
";
    let mut live = Live::start(Path::new(&python), &["-c", script], 1);
    std::thread::sleep(std::time::Duration::from_millis(200));
    live.refresh();
    let threads = live.threads();
    let (mut stops, mut bottom, mut examples) = (0, 0, Vec::new());
    for turn in 0..2 * STOPS {
        let Some(stop) = live.stop(threads[turn % threads.len()]) else { continue };
        stops += 1;
        bottom += usize::from(stop.end == End::Bottom);
        let names = live.names(&stop);
        let end = names.last().map(String::as_str);
        if stop.end != End::Bottom
            || (end != Some("_start") && !end.is_some_and(|name| name.contains("clone") || name == "?libc.so.6"))
        {
            examples.push(format!("{:?} {names:?}", stop.end));
        }
    }
    examples.truncate(5);
    eprintln!("python: {bottom} of {stops}; {examples:#?}");
    assert!(bottom as f64 >= 0.999 * stops as f64);
}

/// `cargo test --release --test unwind_live cost -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn cost_of_a_walk() {
    let _alone = alone();
    let home = std::env::var("HOME").unwrap_or_default();
    let python = format!("{home}/.pyenv/versions/3.8.18/bin/python3.8");
    let script = "def f(n): return f(n - 1) if n else [list(map(str, range(99))) for _ in range(999999999)]\nprint(1, flush=True)\nf(20)";
    let mut live = Live::start(Path::new(&python), &["-c", script], 1);
    live.refresh();
    let tid = live.process.pid;
    let stops: Vec<Stop> = (0..500).filter_map(|_| live.stop(tid)).collect();
    let frames: usize = stops.iter().map(|stop| stop.frames.len()).sum();
    let mut out = Vec::new();
    let mut best = f64::MAX;
    for _ in 0..30 {
        let began = std::time::Instant::now();
        for stop in &stops {
            live.unwinder.unwind(&live.process, &stop.start, &stop.pieces(), &mut out);
        }
        best = best.min(began.elapsed().as_nanos() as f64 / stops.len() as f64);
    }
    let depth = frames as f64 / stops.len() as f64;
    eprintln!("{depth:.1} frames: {best:.0} ns a walk, {:.0} ns for 30 frames", best / depth * 30.0);
    let began = std::time::Instant::now();
    for stop in &stops {
        for (address, bytes) in &stop.copies {
            live.unwinder.signal_stack(&_native::unwind::StackCopy { address: *address, bytes });
        }
    }
    eprintln!("signal_stack: {:?} a stop", began.elapsed() / stops.len() as u32);
    let began = std::time::Instant::now();
    live.unwinder = _native::unwind::Unwinder::new();
    live.refresh();
    eprintln!("set_mappings: {:?}", began.elapsed());
}
