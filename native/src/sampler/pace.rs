//! Whether the asked-for rate can be kept.

use super::subject::Subject;
use crate::clock::Clock;
use crate::target::sys;

/// How long a stretch is judged.
const STRETCH_NS: u64 = 1_000_000_000;
/// Rounds that a stretch must have to be judged.
const MIN_ROUNDS: u64 = 20;
/// Bad stretches in a row after which the rate is lowered.
const PATIENCE: u32 = 2;
/// The rate is never lowered below this, Hz.
const MIN_RATE: f64 = 10.0;

/// Counts rounds kept and missed; lowers the rate when more than half are missed for seconds.
#[derive(Debug, Default)]
pub struct Pace {
    rate: f64,
    stretch_end: u64,
    rounds: u64,
    missed: u64,
    bad: u32,
}

impl Pace {
    /// Watches a recording that starts `now` with `rate` Hz.
    pub fn new(now: u64, rate: f64) -> Self {
        Pace { rate, stretch_end: now + STRETCH_NS, ..Pace::default() }
    }

    /// The rate now, Hz.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// A round, begun at `now` after `missed` skipped ones, has been held. Where the rate has to be lowered, `clock` keeps
    /// the new one, and the subjects say so.
    pub fn held(&mut self, now: u64, missed: u64, clock: &mut Clock, subjects: &mut [Subject]) {
        let Some(rate) = self.round(now, missed) else { return };
        clock.change_rate(sys::monotonic_ns(), rate);
        let note = format!("the rate could not be kept and was lowered to {rate:.0} Hz");
        subjects.iter_mut().for_each(|subject| subject.note(note.clone()));
    }

    /// A round was held after `missed` skipped ones; gives the new rate if it has to be lowered.
    fn round(&mut self, now: u64, missed: u64) -> Option<f64> {
        self.rounds += 1 + missed;
        self.missed += missed;
        if now < self.stretch_end || self.rounds < MIN_ROUNDS {
            return None;
        }
        self.bad = if self.missed * 2 > self.rounds { self.bad + 1 } else { 0 };
        (self.rounds, self.missed, self.stretch_end) = (0, 0, now + STRETCH_NS);
        if self.bad < PATIENCE || self.rate <= MIN_RATE {
            return None;
        }
        self.bad = 0;
        self.rate = (self.rate / 2.0).max(MIN_RATE);
        Some(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowered_only_when_most_rounds_are_missed_for_seconds() {
        let mut pace = Pace::new(0, 1000.0);
        let mut run = |missed: u64, seconds: u64, from: &mut u64| {
            let mut lowered = Vec::new();
            for _ in 0..seconds * 1000 / (1 + missed) {
                *from += 1_000_000 * (1 + missed);
                lowered.extend(pace.round(*from, missed));
            }
            lowered
        };
        let mut now = 0;
        assert!(run(0, 10, &mut now).is_empty());
        assert!(run(1, 10, &mut now).is_empty(), "half is kept");
        assert!(run(3, 1, &mut now).is_empty(), "one bad second is not enough");
        assert_eq!(run(3, 3, &mut now).first(), Some(&500.0));
    }
}
