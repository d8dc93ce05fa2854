#![no_main]

#[path = "../entries.rs"]
mod entries;
#[path = "../mutate.rs"]
mod mutate;

use entries::*;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| {
    names(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::within(&Part::Symbols.ranges(&data[..size]), data, size, max_size, seed)
});
