//! The system-call entry: calls, their arguments and what lies in memory, all from the fuzzer.
#![no_main]

#[path = "../../crates/carrier/tests/support/hostile.rs"]
mod hostile;
#[path = "../../crates/carrier/tests/support/mod.rs"]
mod support;
#[path = "../../crates/carrier/tests/support/world.rs"]
mod world;

/// Most calls of one input.
const CALLS_MAX: usize = 200;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if !input.is_empty() {
        hostile::throw(input, 0, CALLS_MAX);
        hostile::sound("this input");
    }
});
