//! The targets of fuzzing over what fuzzing begins with, over what it found worth keeping, and over what once failed.
//!
//! `KWOON_WRITE_SEEDS=1` writes the seeds into the corpora, from where a fuzzer takes them.

use std::path::Path;

use kwoon_keys::Digest;
use kwoon_sync::operations;
use kwoon_tests::fuzz::act::call_in;
use kwoon_tests::fuzz::world::World;
use kwoon_tests::fuzz::{TARGETS, inputs, seeds};

/// The inputs of a directory; none if it is not there.
fn all_in(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(files) = std::fs::read_dir(dir) else { return Vec::new() };
    let paths = files.map(|file| file.expect("readable").path()).filter(|path| path.is_file());
    let mut all: Vec<_> =
        paths.map(|path| (path.display().to_string(), std::fs::read(path).expect("readable"))).collect();
    all.sort();
    all
}

fn check(name: &str) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    let seeds = seeds::of(name);
    assert!(!seeds.is_empty(), "{name} has seeds");
    if std::env::var_os("KWOON_WRITE_SEEDS").is_some_and(|value| value == "1") {
        let dir = inputs("corpus", name);
        std::fs::create_dir_all(&dir).expect("a directory");
        for seed in &seeds {
            let file = dir.join(Digest::of("kwoon fuzz seed", &[seed]).to_string());
            std::fs::write(file, seed).expect("the file can be written");
        }
    }
    let seeds = seeds.into_iter().enumerate().map(|(number, seed)| (format!("seed {number}"), seed));
    let kept = ["corpus", "regressions"].into_iter().flat_map(|kind| all_in(&inputs(kind, name)));
    for (origin, input) in seeds.chain(kept) {
        // A test that fails says with which input.
        println!("{origin}");
        target(&input);
    }
}

#[test]
fn every_operation_has_a_seed_with_which_it_succeeds() {
    let world = World::new();
    let mut lacking: Vec<_> = operations::ALL.iter().map(|operation| operation.name).collect();
    for seed in seeds::of("act") {
        let mut hall = world.hall.fork();
        for (operation, caller, body) in seed.split(|byte| *byte == b'\n').filter_map(|line| call_in(&world, line)) {
            if hall.try_body(caller, operation, &body).is_ok() {
                lacking.retain(|name| *name != operation.name);
            }
        }
    }
    assert!(lacking.is_empty(), "{lacking:?}");
}

macro_rules! targets {
    ($($test:ident: $target:literal;)+) => {
        $(
            #[test]
            fn $test() {
                check($target);
            }
        )+

        #[test]
        fn every_target_is_run_over_its_corpus_and_has_a_program() {
            let tested = [$($target),+];
            assert_eq!(TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), tested);
            for name in tested {
                let program = inputs("fuzz_targets", &format!("{name}.rs"));
                let source = std::fs::read_to_string(&program).unwrap_or_default();
                assert!(source.contains(&format!("fuzz::{name}::target")), "{}", program.display());
                assert!(!all_in(&inputs("corpus", name)).is_empty(), "{name} has a corpus");
            }
        }
    };
}

targets! {
    records_are_read_as_the_format_says: "records";
    no_log_is_folded_but_as_it_was_sealed: "fold";
    what_is_read_from_text_has_one_spelling: "text";
    a_call_is_answered_or_refused_without_a_trace: "act";
    a_connection_gets_whole_responses_and_changes_nothing_without_a_token: "http";
    a_damaged_store_is_told_and_never_trusted: "store";
}
