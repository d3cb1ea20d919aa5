//! Golden logs: a small host's logs, kept as they were written once under rules version 1. Whatever version folds them
//! must come to the same running digests.

mod history;
mod hosts;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Once;

use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::{Cause, Fact};
use kwoon_ledger::log;
use kwoon_ledger::replica;
use kwoon_ledger::storage::{Batch, Overlay, Store, Table};
use kwoon_ledger::time::{Duration, Time};
use kwoon_store::{CACHE_BYTES_DEFAULT, DiskStore, Home, OpenError, OpenMode, STORE_VERSION, VERSION_KEY};
use kwoon_sync::check;
use kwoon_sync::logfile::LogItem;
use kwoon_tests::forge::{Nothing, head, items_of};
use kwoon_tests::hall::START;
use kwoon_tests::{owner, rule, text};
use serde_json::{Value, json};

use crate::vectors;

/// When all of the logs lie in the past.
const LATER: Time = Time(START.0 + Duration::days(400).0);

/// Logs that were written together: their directory under `tests/golden`, and what writes them.
type Collection = (&'static str, fn() -> Vec<(String, Vec<u8>)>);

/// All golden logs: those of one host, and those of threads whose sequencer changed.
const COLLECTIONS: [Collection; 2] = [("v1", of_one_host), ("v1-hosts", of_several_hosts)];

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// A golden log: its file, and what folding it gave when it was written.
struct Golden {
    name: String,
    file: Vec<u8>,
    expected: Value,
}

fn golden() -> Vec<Golden> {
    static WRITTEN: Once = Once::new();
    if std::env::var_os("KWOON_WRITE_GOLDEN").is_some_and(|value| value == "1") {
        WRITTEN.call_once(write);
    }
    let mut all = Vec::new();
    for (collection, _) in COLLECTIONS {
        let directory = directory(collection);
        let written =
            std::fs::read_to_string(directory.join("digests.json")).expect("the golden digests are in the tree");
        let written: BTreeMap<String, Value> = serde_json::from_str(&written).expect("JSON");
        let files = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(files.count(), written.len() + 1, "every file there has its digests");
        for (name, expected) in written {
            let file = std::fs::read(directory.join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            all.push(Golden { name, file, expected });
        }
    }
    all
}

/// Folds a log from nothing: its facts with their effects, and what is to stay as it is.
fn fold(file: &[u8]) -> (Vec<(Fact, Vec<Effect>)>, Value) {
    let (header, items) = items_of(file);
    let (mut folded, mut facts, mut digests) = (Overlay::new(&Nothing), Vec::new(), Vec::new());
    for item in items {
        let LogItem::Fact(bytes) = item else { continue };
        let effects = replica::fold(&mut folded, 0, &bytes).expect("a golden fact folds");
        digests.push(head(&folded, 0).digest.to_string());
        facts.push((Fact::read(&bytes).unwrap(), effects));
    }
    let head = head(&folded, 0);
    let result = json!({
        "object": header.object.to_string(),
        "head": head.hash.to_string(),
        "digests": digests,
    });
    (facts, result)
}

/// Writes the golden logs of collections that have none. Those of a released rules version are never written again.
fn write() {
    let mut wrote = false;
    for (collection, logs) in COLLECTIONS {
        let directory = directory(collection);
        if directory.join("digests.json").exists() {
            continue;
        }
        std::fs::create_dir_all(&directory).unwrap();
        let mut digests = serde_json::Map::new();
        for (name, file) in logs() {
            digests.insert(name.clone(), fold(&file).1);
            std::fs::write(directory.join(name), file).unwrap();
        }
        let digests = serde_json::to_string_pretty(&Value::Object(digests)).unwrap();
        std::fs::write(directory.join("digests.json"), digests + "\n").unwrap();
        wrote = true;
    }
    assert!(wrote, "all golden logs are there, and are never written again");
}

fn of_one_host() -> Vec<(String, Vec<u8>)> {
    let mut hall = history::tell();
    let mut logs = Vec::new();
    for (number, row) in hall.all(&owner(), "object_digest", json!({"limit": 50}), "objects").iter().enumerate() {
        let object = text(&row["object"]);
        let kind = match &object[..3] {
            "agt" => "identity",
            "mem" => "memory",
            "pub" => "publication",
            _ => "thread",
        };
        logs.push((format!("{number:02}-{kind}.kwoonlog"), hall.export(&object)));
    }
    logs
}

fn of_several_hosts() -> Vec<(String, Vec<u8>)> {
    let mut told = hosts::tell();
    let mut logs = Vec::new();
    for (number, (hall, object)) in told.logs.iter().enumerate() {
        logs.push((format!("{number:02}-thread.kwoonlog"), told.cluster.halls[*hall].export(object)));
    }
    logs
}

#[test]
fn golden_logs_fold_to_the_digests_they_always_had() {
    rule!(holds, "L1.1", "CO.3");
    for golden in golden() {
        let (_, result) = fold(&golden.file);
        assert_eq!(result, golden.expected, "{}", golden.name);
    }
}

#[test]
fn golden_logs_are_sound_log_files_with_their_contents() {
    rule!(holds, "CO.3");
    for golden in golden() {
        let checked = check::check(&mut &golden.file[..], LATER).unwrap().checked;
        assert!(checked.sound, "{}: {:?}", golden.name, checked.fault);
        assert_eq!(checked.digest.as_ref(), golden.expected["digests"].as_array().unwrap().last().map(text).as_ref());
        assert!(checked.contents > 0 || golden.name.contains("thread"), "{}", golden.name);
    }
}

/// The names of all variants of a type of the format.
fn variants(of: &str) -> BTreeSet<&'static str> {
    let prefix = format!("{of}.");
    vectors::VARIANTS.iter().copied().filter(|name| name.starts_with(&prefix)).collect()
}

#[test]
fn golden_logs_have_everything_in_them_that_rules_version_1_knows() {
    let mut seen = BTreeSet::new();
    for golden in golden() {
        for (fact, effects) in fold(&golden.file).0 {
            seen.insert(vectors::object_name(&fact.object));
            seen.insert(vectors::cause_name(&fact.cause));
            if let Cause::Expiry(due) = &fact.cause {
                seen.insert(vectors::due_name(due));
            }
            seen.extend(fact.evidence.iter().map(vectors::evidence_name));
            if let Some(action) = log::action_of(&fact) {
                seen.insert(vectors::body_name(&action.body));
                if let kwoon_ledger::action::Body::AgentChange(change) = &action.body {
                    seen.insert(vectors::change_name(&change.change));
                }
            }
            for effect in &effects {
                seen.insert(vectors::effect_name(effect));
                match effect {
                    Effect::ObligationBegan(obligation) => seen.insert(vectors::duty_name(&obligation.duty)),
                    Effect::ObligationEnded(_, exit) => seen.insert(vectors::exit_name(exit)),
                    Effect::MembershipEnded(_, how) => seen.insert(vectors::departure_name(how)),
                    Effect::AssignmentEnded(_, state, _) => seen.insert(vectors::final_name(state)),
                    Effect::IdentitySet(_, account, _) => seen.insert(vectors::status_name(&account.status)),
                    Effect::MembershipBegan(_, role, _) => seen.insert(vectors::role_name(role)),
                    Effect::EpochBegan(_, _, reason) => seen.insert(vectors::epoch_reason_name(reason)),
                    _ => false,
                };
            }
        }
    }
    // What the format has and rules version 1 does not know.
    let unknown = [
        "ObjectId.Task",
        "ObjectId.Engagement",
        "Change.HomeHost",
        "EpochReason.Copy",
        "EpochReason.Lost",
        "EpochReason.Fork",
        "EpochReason.Move",
    ];
    for of in [
        "ObjectId",
        "Cause",
        "Due",
        "Evidence",
        "Body",
        "Change",
        "Effect",
        "Duty",
        "Exit",
        "Departure",
        "Final",
        "Status",
        "Role",
        "EpochReason",
    ] {
        let missing: Vec<_> =
            variants(of).into_iter().filter(|name| !seen.contains(name) && !unknown.contains(name)).collect();
        assert_eq!(missing, [""; 0], "{of}");
    }
}

#[test]
fn the_history_of_the_golden_logs_can_still_be_told() {
    history::tell().verify();
    for hall in &mut hosts::tell().cluster.halls {
        hall.verify();
    }
}

#[test]
fn a_store_that_a_newer_version_wrote_is_refused_and_left_as_it_is() {
    rule!(refused, "CO.3");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("home");
    let home = Home::open(&path, OpenMode::MakeIfMissing).unwrap();
    let store = DiskStore::open(&home, CACHE_BYTES_DEFAULT).unwrap();
    let mut newer = Batch::default();
    let version = (STORE_VERSION + 1).to_be_bytes().to_vec();
    newer.rows.insert((Table::Meta, VERSION_KEY.to_vec()), Some(version));
    store.commit(newer).unwrap();
    store.close().unwrap();
    let before = std::fs::read(path.join("store.redb")).unwrap();
    let error = DiskStore::open(&home, CACHE_BYTES_DEFAULT).unwrap_err();
    assert!(matches!(error, OpenError::NewerVersion { known: STORE_VERSION, .. }), "{error}");
    assert!(std::fs::read(path.join("store.redb")).unwrap() == before, "it was changed");
}
