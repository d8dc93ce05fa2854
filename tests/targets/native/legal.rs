// The fixed part of the generated programs (tests/support/sources.py), Rust. The first argument says what it does:
// chains, split.
#![allow(non_camel_case_types, unused)]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub trait Step {
    fn run(&self, x: u64, d: u32) -> u64;
}

#[inline(never)]
fn sorted(x: u64, key: &mut dyn FnMut(u64) -> u64) -> u64 {
    let mut pair = black_box([x, x ^ 1]);
    pair.sort_by_key(|&y| key(y));
    pair[0]
}

#[inline(never)]
fn boxed(call: Box<dyn Fn(u64) -> u64>, x: u64) -> u64 {
    black_box(call)(x)
}

include!(env!("GENERATED"));

static ENDED: AtomicBool = AtomicBool::new(false);
static SINK: AtomicU64 = AtomicU64::new(1);

extern "C" fn end(_: i32) {
    ENDED.store(true, Ordering::Relaxed);
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    fn clock_gettime(clock: i32, now: *mut Timespec) -> i32;
}

fn used() -> f64 {
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    unsafe { clock_gettime(3, &mut now) };
    now.seconds as f64 + 1e-9 * now.nanoseconds as f64
}

fn spin(turns: u64) {
    for i in 0..turns {
        SINK.store(SINK.load(Ordering::Relaxed).wrapping_mul(31) ^ i, Ordering::Relaxed);
    }
}

#[inline(never)]
fn half(turns: u64) {
    spin(turns * 21);
}

#[inline(never)]
fn third(turns: u64) {
    spin(turns * 14);
}

#[inline(never)]
fn seventh(turns: u64) {
    spin(turns * 6);
}

#[inline(never)]
fn rest(turns: u64) {
    spin(turns);
}

fn split() {
    let parts: [(&str, fn(u64)); 4] = [("half", half), ("third", third), ("seventh", seventh), ("rest", rest)];
    let mut spent = [0.0; 4];
    unsafe { signal(15, end) };
    println!("ready");
    let first = used();
    let mut before = first;
    while !ENDED.load(Ordering::Relaxed) {
        for (index, (_, part)) in parts.iter().enumerate() {
            // Long beside the clock: system calls draw stops to them (README, Limits).
            black_box(*part)(200000);
            let now = used();
            spent[index] += now - before;
            before = now;
        }
    }
    let each: Vec<String> = parts.iter().zip(spent).map(|((name, _), spent)| format!("\"{name}\": {spent:.9}")).collect();
    println!("{{\"total\": {:.9}, \"spent\": {{{}}}}}", before - first, each.join(", "));
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("split") {
        return split();
    }
    for entry in [entry1, entry2, entry3] {
        std::thread::spawn(move || entry(1));
    }
    println!("ready");
    entry0(1);
}
