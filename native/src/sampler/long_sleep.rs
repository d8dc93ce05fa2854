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

/// A thread's place in the list that each tick goes through: small, since most of a crowd is left alone.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Whose it is.
    pub tid: u32,
    /// Ticks without a look since the last one.
    left: u32,
    /// When it is looked at next, nanoseconds; 0 = in the next tick.
    due: u64,
}

impl Turn {
    /// One that is looked at in the next tick.
    pub fn new(tid: u32) -> Self {
        Turn { tid, left: 0, due: 0 }
    }

    /// Whether the tick at `now` is a look; if it `leaves` alone those that are not due, it may not be.
    pub fn comes(&mut self, now: u64, leaves: bool) -> bool {
        let comes = !leaves || now >= self.due;
        match comes {
            true => self.due = 0,
            false => self.left += 1,
        }
        comes
    }
}

/// What is known of a thread's sleep, and its ticks that are still to be counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongSleep {
    /// The longest that has ended, nanoseconds.
    longest: u64,
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
    /// Is owed the ticks without a look, of which the last was at `last`.
    pub fn catch_up(&mut self, turn: &mut Turn, last: u64) {
        if turn.left > 0 {
            (self.owed, self.last, self.late) = (self.owed + u64::from(turn.left), last, true);
            turn.left = 0;
        }
    }

    /// The tick at `now` found it asleep: it is owed, too.
    pub fn goes_on(&mut self, now: u64) {
        (self.owed, self.last, self.late) = (self.owed + 1, now, false);
    }

    /// It was found asleep at `now`, is since `since`, and may be left alone for a while: others' turns come in other ticks.
    pub fn rests(&self, turn: &mut Turn, now: u64, since: u64) {
        let slept = now.saturating_sub(since);
        if slept / LONGER > self.longest {
            let most = (slept / SHARE).min(MAX_NS);
            turn.due = now + most - most / 8 * u64::from(turn.tid % 64) / 64;
        }
    }

    /// It has run since it fell asleep at `since`; whether that was met late.
    pub fn ended(&mut self, now: u64, since: u64) -> bool {
        self.longest = self.longest.max(now.saturating_sub(since));
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
        let (mut seen, mut turn) = (Vec::new(), Turn::new(64));
        for now in (begin..end).step_by(10_000_000) {
            if turn.comes(now, true) {
                sleep.catch_up(&mut turn, now - 10_000_000);
                sleep.goes_on(now);
                sleep.rests(&mut turn, now, begin);
                seen.push(now);
            }
        }
        sleep.catch_up(&mut turn, end - 10_000_000);
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
        let (mut sleep, mut turn) = (LongSleep::default(), Turn::new(64));
        sleep.rests(&mut turn, 61 * SECOND, 0);
        assert!(!turn.comes(61 * SECOND + 1, true));
        sleep.catch_up(&mut turn, 61 * SECOND + 1);
        assert!(!turn.comes(61 * SECOND + 2, true), "what was counted changes nothing");
        assert!(turn.comes(61 * SECOND + 3, false) && turn.comes(61 * SECOND + 4, true), "looked at once, it is due");
        sleep.catch_up(&mut turn, 61 * SECOND + 2);
        assert!(sleep.ended(62 * SECOND, 0), "met late");
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
