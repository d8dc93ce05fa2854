#![no_main]

#[path = "../entries.rs"]
mod entries;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    entries::jit_dump(data);
});
