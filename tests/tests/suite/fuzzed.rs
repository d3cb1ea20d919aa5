//! The targets of fuzzing over what fuzzing begins with, over what it found worth keeping, and over what once failed.
//!
//! `KWOON_WRITE_SEEDS=1` writes the seeds into the corpora, from where a fuzzer takes them.

use std::path::Path;

use kwoon_keys::{Digest, cbor};
use kwoon_ledger::log;
use kwoon_ledger::state::{Cell, Cells, Thread, cell_key};
use kwoon_ledger::storage::{Overlay, Table};
use kwoon_sync::{argument, operations};
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
    let about_others =
        ["peer_ticket", "peer_add", "peer_list", "peer_remove", "peer_block", "network", "object_handover"];
    lacking.retain(|name| !about_others.contains(name));
    assert_eq!(lacking, ["backup"], "which needs a disk");
}

#[test]
fn a_number_of_a_damaged_store_that_has_no_next_is_told() {
    let world = World::new();
    let sound = world.hall.snapshot();
    let objects = log::objects(&sound, 0, usize::MAX).expect("readable");
    let (number, _) = objects.into_iter().find(|(_, id)| id.to_string() == world.thread).expect("the thread");
    let thread = Cells::new(&sound, number).thread().expect("a thread");
    let with_thread = |change: fn(&mut Thread)| {
        let mut changed = thread.clone();
        change(&mut changed);
        (Table::Derived, cell_key(number, Cell::Thread, &[]), cbor::write(&changed))
    };
    let mut head = Cells::new(&sound, number).head().expect("readable").expect("a head");
    head.index = u64::MAX;
    let damages = [
        with_thread(|thread| thread.members = 0),
        with_thread(|thread| thread.members = u64::MAX),
        with_thread(|thread| thread.voices = 0),
        with_thread(|thread| thread.voices = u64::MAX),
        with_thread(|thread| thread.governors = u64::MAX),
        with_thread(|thread| thread.obligations = 0),
        with_thread(|thread| thread.obligations = u64::MAX),
        with_thread(|thread| thread.entries = u64::MAX),
        (Table::Derived, cell_key(number, Cell::Head, &[]), cbor::write(&head)),
        (Table::Meta, b"next_arrival".to_vec(), vec![0xff; 8]),
        (Table::Objects, vec![0xff; 4], cbor::write(&head.object)),
    ];
    let calls = [
        (1, "member_remove", r#"{"thread":"$t","agent":"$B"}"#),
        (1, "member_role", r#"{"thread":"$t","agent":"$B","role":"governor"}"#),
        (1, "member_role", r#"{"thread":"$t","agent":"$B","role":"observer"}"#),
        (1, "entry_post", r#"{"thread":"$t","text":"a","ask":["$B"]}"#),
        (2, "entry_handle", r#"{"thread":"$t","entry":3}"#),
        (2, "thread_leave", r#"{"thread":"$t"}"#),
        (5, "thread_join", r#"{"ticket":"$k"}"#),
        (1, "thread_get", r#"{"thread":"$t"}"#),
        (0, "ledger_verify", "{}"),
        (0, "object_log", r#"{"object":"$t"}"#),
        (0, "object_digest", "{}"),
    ];
    for (table, key, value) in damages {
        for (caller, operation, body) in calls {
            let mut hall = world.hall.fork();
            let mut damaged = Overlay::new(&sound);
            damaged.put(table, key.clone(), value.clone());
            let operation = operations::find(operation).expect("an operation");
            let arguments = argument::read(&world.fill(body.as_bytes())).expect("JSON");
            // What the answer is depends on what is looked at; it is neither a panic nor a loop.
            let _ = hall.try_over(&damaged, world.caller(caller), operation, arguments);
        }
    }
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
    a_log_file_is_sound_only_as_it_was_exported: "logfile";
    what_is_read_from_text_has_one_spelling: "text";
    a_call_is_answered_or_refused_without_a_trace: "act";
    a_connection_gets_whole_responses_and_changes_nothing_without_a_token: "http";
    a_damaged_store_is_told_and_never_trusted: "store";
    messages_are_read_as_the_format_says: "wire";
    a_ticket_is_one_only_as_it_was_given: "ticket";
    a_peer_learns_nothing_that_it_may_not_read: "session";
    nothing_that_breaks_the_rules_is_taken_in: "intake";
}
