#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kwoon_tests::fuzz::intake::target(input));
