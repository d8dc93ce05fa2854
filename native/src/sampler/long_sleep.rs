//! Threads that sleep on: their ticks are counted together, and where there are many that sleep for long, not each tick
//! asks whether they still do.

/// A thread may go without a look for one part in this many of the time that it has slept for.
const SHARE: u64 = 32;
/// The longest time without a look, nanoseconds.
const MAX_NS: u64 = 100_000_000;
/// How many times longer than ever before it must have slept: one that wakes now and then is looked at in each tick, so
/// that what it does is not met more seldom than what others do.
const LONGER: u64 = 4;
/// For how long all threads of a process are looked at in each tick once one was met late, at first; nanoseconds.
const FIRST_WATCH_NS: u64 = 10_000_000_000;

/// What is known of a thread's sleep, and its ticks that are still to be counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongSleep {
    /// The longest that has ended, nanoseconds.
    longest: u64,
    /// When it is looked at next, nanoseconds; 0 = in the next tick.
    due: u64,
    /// Ticks that are still to be counted.
    owed: u64,
    /// When the last of these was, nanoseconds.
    last: u64,
    /// Whether it was not looked at in that one.
    late: bool,
}

/// Whether the threads of a process are left alone while they sleep for long. Work that goes round among a crowd of threads
/// would come to each after a long sleep, and most of it be met late: where that happens once, it is looked out for, each
/// time for twice as long.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    until: u64,
    lasts: u64,
}

impl Watch {
    /// Whether each thread is to be looked at in each tick.
    pub fn is_on(&self, now: u64) -> bool {
        now < self.until
    }

    /// A thread had run when it was looked at, after ticks without a look.
    pub fn met_late(&mut self, now: u64) {
        if !self.is_on(now) {
            self.lasts = (self.lasts * 2).max(FIRST_WATCH_NS);
            self.until = now.saturating_add(self.lasts);
        }
    }
}

impl LongSleep {
    /// Whether a tick at `now` goes without a look; it is owed then.
    pub fn puts_off(&mut self, now: u64) -> bool {
        if now >= self.due {
            return false;
        }
        self.owe(now, true);
        true
    }

    fn owe(&mut self, now: u64, late: bool) {
        (self.owed, self.last, self.late) = (self.owed + 1, now, late);
    }

    /// The tick at `now` found it asleep: it is owed, too. The next one is a look.
    pub fn goes_on(&mut self, now: u64) {
        self.owe(now, false);
        self.due = 0;
    }

    /// It was found asleep at `now`, is since `since`, and may be left alone for a while. `seed`: threads with others are
    /// looked at in other ticks.
    pub fn rests(&mut self, now: u64, since: u64, seed: u32) {
        let slept = now.saturating_sub(since);
        if slept / LONGER > self.longest {
            let most = (slept / SHARE).min(MAX_NS);
            self.due = now + most - most / 8 * u64::from(seed % 64) / 64;
        }
    }

    /// It has run since it fell asleep at `since`; whether that was met late.
    pub fn ended(&mut self, now: u64, since: u64) -> bool {
        self.longest = self.longest.max(now.saturating_sub(since));
        self.due = 0;
        std::mem::take(&mut self.late)
    }

    /// The ticks that are owed, and when the last one was; from now on none are.
    pub fn take(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.owed), self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The ticks, 100 in a second, at which a thread is looked at while it sleeps from `begin` to `end`, and how many are
    /// counted in the end.
    fn looks(sleep: &mut LongSleep, begin: u64, end: u64) -> (Vec<u64>, u64) {
        let mut seen = Vec::new();
        for now in (begin..end).step_by(10_000_000) {
            if !sleep.puts_off(now) {
                sleep.goes_on(now);
                sleep.rests(now, begin, 0);
                seen.push(now);
            }
        }
        let (owed, last) = sleep.take();
        assert_eq!((sleep.take().0, last), (0, end - 10_000_000));
        (seen, owed)
    }

    #[test]
    fn looks_grow_fewer_within_bounds_and_no_tick_is_lost() {
        let mut sleep = LongSleep::default();
        let (seen, owed) = looks(&mut sleep, SECOND, 61 * SECOND);
        assert!(seen.windows(2).all(|two| two[1] - two[0] <= ((two[0] - SECOND) / SHARE).min(MAX_NS) + 10_000_000));
        assert!((600..1_000).contains(&seen.len()), "{}", seen.len());
        assert_eq!(owed, 6_000);
        sleep.goes_on(61 * SECOND);
        assert!(!sleep.ended(61 * SECOND, SECOND), "it was looked at");
        let mut sleep = LongSleep::default();
        sleep.rests(61 * SECOND, 0, 0);
        assert!(sleep.puts_off(61 * SECOND + 1) && sleep.ended(62 * SECOND, 0), "met late");
        assert!(!sleep.ended(62 * SECOND, 0), "told once");
    }

    #[test]
    fn one_that_wakes_now_and_then_is_looked_at_in_each_tick() {
        let mut sleep = LongSleep::default();
        let mut begin = SECOND;
        for turn in 0..20 {
            let end = begin + (3 + turn % 3) * SECOND;
            let (seen, owed) = looks(&mut sleep, begin, end);
            assert_eq!((seen.len() as u64 == owed, owed), (turn > 0, (end - begin) / 10_000_000), "{turn}");
            sleep.ended(end, begin);
            begin = end;
        }
        // Only past four times the longest sleep.
        let (seen, _) = looks(&mut sleep, begin, begin + 60 * SECOND);
        assert!((2_000..3_000).contains(&seen.len()), "{}", seen.len());
    }

    #[test]
    fn what_was_met_late_is_watched_for_twice_as_long_each_time() {
        let mut watch = Watch::default();
        assert!(!watch.is_on(0));
        let mut now = SECOND;
        for lasts in [10, 20, 40] {
            watch.met_late(now);
            watch.met_late(now + 5 * SECOND); // no more than that is known already
            assert!(watch.is_on(now + lasts * SECOND - 1) && !watch.is_on(now + lasts * SECOND));
            now += lasts * SECOND;
        }
    }
}
