//! When the next tick is due: each a random part of a period after the one before.

/// The time from one tick to the next is the period, more or less by up to this share of it. It adds up from tick to
/// tick, so that no timer of the target can run in step: with ticks that only move around a fixed grid (by 12 %) a 1.5 ms
/// timer's handler was read anywhere from 0 to 27 % where 13 % was true, with these within the binomial bound.
const JITTER: f64 = 0.5;

/// A jittered schedule. All times are CLOCK_MONOTONIC nanoseconds; due times follow from due times, never from when a
/// tick was taken, so that lateness does not add up.
#[derive(Debug)]
pub struct Clock {
    period: f64,
    due: u64,
    seed: u64,
}

/// What a due tick finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// How late it is, nanoseconds.
    pub late: u64,
    /// Whole rounds that were due before it and are lost.
    pub missed: u64,
}

impl Clock {
    /// Ticks `rate` times a second from `now` on; `seed` makes the jitter.
    pub fn new(now: u64, rate: f64, seed: u64) -> Self {
        Clock { period: 1e9 / rate, due: now, seed: seed | 1 }
    }

    /// When the next tick is due.
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Nanoseconds between ticks.
    pub fn period(&self) -> f64 {
        self.period
    }

    /// Takes the due tick, and sets the time of the next. Rounds that are over a whole period late are skipped.
    pub fn take(&mut self, now: u64) -> Due {
        let late = now.saturating_sub(self.due);
        let missed = (late as f64 / self.period) as u64;
        self.due += ((1 + missed) as f64 * self.period + self.jitter()) as u64;
        Due { late: late.saturating_sub((missed as f64 * self.period) as u64), missed }
    }

    /// Goes on at another rate from `now`.
    pub fn change_rate(&mut self, now: u64, rate: f64) {
        *self = Clock { due: now + (1e9 / rate) as u64, ..Clock::new(now, rate, self.seed) };
    }

    /// xorshift64 (Marsaglia, 2003): good enough to break step.
    fn jitter(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let unit = (self.seed >> 11) as f64 / (1_u64 << 53) as f64;
        (unit * 2.0 - 1.0) * JITTER * self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_the_rate_and_move_within_the_jitter() {
        let mut clock = Clock::new(1_000, 1_000.0, 42);
        let mut gaps = Vec::new();
        for _ in 0..100_000 {
            let now = clock.due();
            assert_eq!(clock.take(now), Due { late: 0, missed: 0 });
            gaps.push(clock.due() - now);
        }
        assert!(gaps.iter().all(|gap| (500_000..=1_500_000).contains(gap)));
        let mean = gaps.iter().sum::<u64>() / gaps.len() as u64;
        assert!(mean.abs_diff(1_000_000) < 5_000, "the jitter must not change the rate: {mean}");
        assert!(gaps.iter().any(|gap| *gap < 520_000) && gaps.iter().any(|gap| *gap > 1_480_000));
    }

    #[test]
    fn no_timer_runs_in_step() {
        // A handler that works in 13 % of a 1.5 ms period, seen in 6 s at 1 kHz, for many phases.
        for phase in 0..50 {
            let mut clock = Clock::new(phase * 30_000, 1_000.0, 7 + phase);
            let hits = (0..6_000).filter(|_| {
                let now = clock.due();
                clock.take(now);
                now % 1_500_000 < 195_000
            });
            let share = hits.count() as f64 / 6_000.0;
            // Five standard deviations of 6,000 independent looks.
            assert!((share - 0.13).abs() < 5.0 * (0.13_f64 * 0.87 / 6_000.0).sqrt(), "phase {phase}: {share}");
        }
    }

    #[test]
    fn whole_periods_of_lateness_are_missed_rounds() {
        let mut clock = Clock::new(0, 1_000.0, 7);
        assert_eq!(clock.take(3_400_000), Due { late: 400_000, missed: 3 });
        assert!((3_500_000..=4_500_000).contains(&clock.due()));
    }
}
