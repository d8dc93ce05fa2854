//! When the next tick is due: absolute times on a fixed grid, each moved by a random part of the period.

/// A tick is moved by up to this share of the period either way, so that no timer of the target can run in step with
/// it (1.5 ms timer, steady 1 kHz: 33 % read where 13 % was true; jittered: 12.9 %).
const JITTER: f64 = 0.12;

/// A jittered schedule. All times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug)]
pub struct Clock {
    start: u64,
    period: f64,
    tick: u64,
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
        Clock { start: now, period: 1e9 / rate, tick: 0, due: now, seed: seed | 1 }
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
        self.tick += 1 + missed;
        self.due = (self.start + (self.tick as f64 * self.period) as u64).saturating_add_signed(self.jitter());
        Due { late: late.saturating_sub((missed as f64 * self.period) as u64), missed }
    }

    /// Goes on at another rate from `now`.
    pub fn change_rate(&mut self, now: u64, rate: f64) {
        *self = Clock { due: now + (1e9 / rate) as u64, tick: 1, ..Clock::new(now, rate, self.seed) };
    }

    /// xorshift64 (Marsaglia, 2003): good enough to break step.
    fn jitter(&mut self) -> i64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let unit = (self.seed >> 11) as f64 / (1_u64 << 53) as f64;
        ((unit * 2.0 - 1.0) * JITTER * self.period) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_the_rate_and_move_within_the_jitter() {
        let mut clock = Clock::new(1_000, 1_000.0, 42);
        let mut offsets = Vec::new();
        for tick in 0..10_000_u64 {
            offsets.push(clock.due() as i64 - (1_000 + tick * 1_000_000) as i64);
            let now = clock.due();
            assert_eq!(clock.take(now), Due { late: 0, missed: 0 });
        }
        assert_eq!(offsets[0], 0);
        assert!(offsets.iter().all(|offset| offset.abs() <= 120_000));
        let mean = offsets.iter().sum::<i64>() / offsets.len() as i64;
        assert!(mean.abs() < 5_000, "the jitter must not move the grid: {mean}");
        assert!(offsets.iter().any(|offset| *offset > 100_000) && offsets.iter().any(|offset| *offset < -100_000));
    }

    #[test]
    fn whole_periods_of_lateness_are_missed_rounds() {
        let mut clock = Clock::new(0, 1_000.0, 7);
        assert_eq!(clock.take(3_400_000), Due { late: 400_000, missed: 3 });
        assert!((4_000_000 - 120_000..=4_000_000 + 120_000).contains(&clock.due()));
    }
}
