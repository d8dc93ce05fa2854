//! Profiles of the crate `pprof`, written into the working directory; with an argument, work alone.

use pprof::protos::Message;
use std::hint::black_box;
use std::time::{Duration, Instant};

#[inline(always)]
fn leaf(amount: u64) -> u64 {
    (0..amount).fold(0, |sum, number| sum ^ black_box(number).wrapping_mul(31) % 7)
}

#[inline(never)]
fn middle(amount: u64) -> u64 {
    leaf(amount) + leaf(amount / 2)
}

fn work() {
    let end = Instant::now() + Duration::from_millis(700);
    while Instant::now() < end {
        black_box(middle(100_000));
    }
}

fn save(name: &str, whole: bool) {
    let guard = pprof::ProfilerGuardBuilder::default().frequency(100).blocklist(&["libc", "libgcc", "pthread", "vdso"]).build().unwrap();
    if whole {
        work();
    } else {
        std::thread::Builder::new().name("named".into()).spawn(work).unwrap().join().unwrap();
    }
    let profile = guard.report().build().unwrap().pprof().unwrap();
    std::fs::write(format!("pprof-rs-{name}.pprof"), profile.encode_to_vec()).unwrap();
}

fn main() {
    if std::env::args().len() > 1 {
        return work();
    }
    save("cpu", true);
    save("cpu-thread", false);
}
