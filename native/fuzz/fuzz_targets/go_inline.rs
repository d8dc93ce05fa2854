#![no_main]

#[path = "../golang.rs"]
mod golang;
#[path = "../mutate.rs"]
mod mutate;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|data: &[u8]| {
    golang::functions(data);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::within(&golang::ranges(&data[..size]), data, size, max_size, seed)
});
