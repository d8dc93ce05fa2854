//! The figures of `--stats`, kept as the recording goes.

use serde::{Deserialize, Serialize};

/// Sub-buckets per power of two: values are kept within 1/16.
const SUB_BITS: u32 = 4;
const BUCKETS: usize = (64 << SUB_BITS) as usize;

/// Durations in buckets of 6 % width.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// As many as the longest asks for: there is one histogram for each process of a tree.
    counts: Vec<u64>,
    count: u64,
    total: u64,
    max: u64,
}

fn bucket(value: u64) -> usize {
    if value < 1 << SUB_BITS {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    (((shift + 1) << SUB_BITS) as u64 + (value >> shift) - (1 << SUB_BITS)) as usize
}

fn middle(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 1 << SUB_BITS {
        return bucket;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    let low = ((bucket & ((1 << SUB_BITS) - 1)) + (1 << SUB_BITS)) << shift;
    low + (1 << shift) / 2
}

impl Histogram {
    /// Adds one duration, nanoseconds.
    pub fn add(&mut self, value: u64) {
        let bucket = bucket(value).min(BUCKETS - 1);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.count += 1;
        self.total += value;
        self.max = self.max.max(value);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, nanoseconds.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The longest, nanoseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The duration that `share` (0 to 1) of them do not exceed, nanoseconds; 0 when there is none.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= rank {
                return middle(index).min(self.max);
            }
        }
        0
    }
}

/// Hits and misses of one cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Found.
    pub hits: u64,
    /// Had to be made.
    pub misses: u64,
}

impl Cache {
    /// One look-up.
    pub fn count(&mut self, hit: bool) {
        if hit { self.hits += 1 } else { self.misses += 1 }
    }
}

/// How the recording of one process went. thread_ticks = samples + gone + pending_ticks + missed_ticks, and
/// samples = complete + truncated + unreadable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Due rounds, missed ones included.
    pub ticks: u64,
    /// Sum over due rounds of the threads known then.
    pub thread_ticks: u64,
    /// Stacks counted.
    pub samples: u64,
    /// The walk reached a known bottom frame.
    pub complete: u64,
    /// The walk was cut.
    pub truncated: u64,
    /// Nothing could be read.
    pub unreadable: u64,
    /// The thread ended before its stack could be read.
    pub gone: u64,
    /// Rounds over half a period late.
    pub late_ticks: u64,
    /// Thread-ticks of rounds that were skipped.
    pub missed_ticks: u64,
    /// Ticks carried onto the same thread's next stack.
    pub pending_ticks: u64,
    /// CPU time in the cpu column, nanoseconds.
    pub cpu_ns_sampled: u64,
    /// CPU time of the process between first and last tick, nanoseconds.
    pub cpu_ns_process: u64,
    /// CPU time of descendants that were never sampled, shown as `[unsampled: NAME]`: in the cpu column and in
    /// `cpu_ns_process`, not in `cpu_ns_sampled`.
    pub unsampled_cpu_ns: u64,
    /// System calls restarted by the EINTR guard.
    pub syscalls_restarted: u64,
    /// SEIZE calls refused because another tracer held the thread for a moment.
    pub collisions: u64,
    /// Descendants taken up at the kernel's word, before a look found them.
    pub told_births: u64,
    /// Samples whose Python and native frames could not be put into one order.
    pub unmatched: u64,
    /// Walks that met a frame chain in the middle of a change and were taken again.
    pub torn: u64,
    /// The rate at the end, Hz: lower than asked for when that could not be kept.
    pub final_rate_hz: f64,
    /// How long threads were held.
    pub pause: Histogram,
    /// Why walks ended short of the bottom, with how often; together as many as were truncated.
    pub cut: Vec<(String, u64)>,
    /// Caches by name.
    pub caches: Vec<(String, Cache)>,
    /// CLOCK_MONOTONIC time of the first sample, 0 if none.
    pub first_sample_ns: u64,
    /// CLOCK_MONOTONIC time at which the target was open.
    pub attached_ns: u64,
    /// Distinct stacks in this window.
    pub distinct_stacks: u64,
}

impl Stats {
    /// A walk ended short of the bottom.
    pub fn count_cut(&mut self, reason: &str, times: u64) {
        match self.cut.iter_mut().find(|(known, _)| known == reason) {
            Some((_, count)) => *count += times,
            None => self.cut.push((reason.to_string(), times)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_their_values_within_a_sixteenth() {
        for value in (0..100_000).chain([1 << 40, u64::MAX / 2, u64::MAX]) {
            let found = middle(bucket(value));
            assert!(found.abs_diff(value) as f64 <= value as f64 / 16.0 + 1.0, "{value} in a bucket of {found}");
        }
    }

    #[test]
    fn quantiles() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), 0);
        (1..=1000).for_each(|value| histogram.add(value * 1000));
        assert_eq!((histogram.count(), histogram.total(), histogram.max()), (1000, 500_500_000, 1_000_000));
        assert!(histogram.quantile(0.5).abs_diff(500_000) < 35_000);
        assert!(histogram.quantile(0.99).abs_diff(990_000) < 65_000);
        assert!(histogram.quantile(1.0).abs_diff(1_000_000) < 65_000);
    }
}
