//! Mutations that stay within some parts of an input: most of a file is code, which nobody reads.

use std::ops::Range;

/// Changes one of the ranges, in place; now and then anything.
pub fn within(ranges: &[Range<usize>], data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    if ranges.is_empty() || seed.is_multiple_of(64) {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let range = ranges[seed as usize / 64 % ranges.len()].clone();
    let length = range.len();
    let mut bytes = data[range.clone()].to_vec();
    let changed = libfuzzer_sys::fuzzer_mutate(&mut bytes, length, length);
    data[range.start..range.start + changed].copy_from_slice(&bytes[..changed]);
    size
}
