//! A read of a target's memory can block for ever (a page behind FUSE or userfaultfd), with a thread stopped. Then the
//! sampler ends itself: the kernel lets the target go, and the supervisor says what happened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::target::sys;

/// The exit status that tells the supervisor.
pub const EXIT_STATUS: i32 = 86;

static BUSY_SINCE: AtomicU64 = AtomicU64::new(0);

/// A round begins, or got on to the next thread.
pub fn busy(now: u64) {
    BUSY_SINCE.store(now, Ordering::Relaxed);
}

/// It is over.
pub fn idle() {
    BUSY_SINCE.store(0, Ordering::Relaxed);
}

/// Watches from a thread of its own that nothing takes longer than `limit_ns`.
pub fn start(limit_ns: u64) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let since = BUSY_SINCE.load(Ordering::Relaxed);
            if since != 0 && sys::monotonic_ns().saturating_sub(since) > limit_ns {
                sys::exit_now(EXIT_STATUS);
            }
        }
    });
}
