// Asks for the time for ever, in every way that the vDSO answers.
use std::hint::black_box;
use std::time::Instant;

extern "C" {
    fn gettimeofday(now: *mut [i64; 2], zone: *mut u8) -> i32;
    fn time(now: *mut i64) -> i64;
    fn getcpu(cpu: *mut u32, node: *mut u32) -> i32;
}

#[inline(never)]
fn in_clock_gettime() {
    for _ in 0..2000 {
        black_box(Instant::now());
    }
    black_box(());
}

#[inline(never)]
fn in_gettimeofday() {
    let mut now = [0; 2];
    for _ in 0..2000 {
        black_box(unsafe { gettimeofday(&mut now, std::ptr::null_mut()) });
    }
}

#[inline(never)]
fn in_time() {
    for _ in 0..20000 {
        black_box(unsafe { time(std::ptr::null_mut()) });
    }
}

#[inline(never)]
fn in_getcpu() {
    let (mut cpu, mut node) = (0, 0);
    for _ in 0..5000 {
        black_box(unsafe { getcpu(&mut cpu, &mut node) });
    }
}

fn main() {
    println!("ready");
    loop {
        in_clock_gettime();
        in_gettimeofday();
        in_time();
        in_getcpu();
    }
}
