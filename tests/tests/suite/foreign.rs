//! Verification by a program that shares nothing with kwoon but docs/format.md: a Python script, which CI runs with the
//! packages of tests/foreign/requirements.txt.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kwoon_keys::id::InstanceId;
use kwoon_keys::{Digest, Salt};
use kwoon_ledger::action::Actor;
use kwoon_ledger::fact::{Cause, Seal, running_digest};
use kwoon_ledger::time::Duration;
use kwoon_sync::logfile::LogItem;
use kwoon_tests::forge::{Log, file_of, items_of, stranger};
use kwoon_tests::rule;
use serde_json::Value;
use tempfile::TempDir;

use crate::elsewhere::{later_logs, with_action, with_fact};
use crate::forged::{Busy, Published};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A Python that has what the script needs; nothing if there is none here, which is said. Where it must be there, as in
/// CI, that is an error.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("KWOON_FOREIGN_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| root().join("target/foreign/bin/python"));
    let has_all = Command::new(&python).args(["-c", "import blake3, cbor2, cryptography"]).output();
    if has_all.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let must = std::env::var_os("KWOON_FOREIGN_REQUIRED").is_some_and(|value| value == "1");
    assert!(!must, "{} does not have the packages of tests/foreign/requirements.txt", python.display());
    let message = format!(
        "skipped: no Python with the packages of tests/foreign/requirements.txt at {}; .ci/run makes one\n",
        python.display()
    );
    // Not by a macro, whose output a test that passes does not show.
    let _ = std::io::stderr().write_all(message.as_bytes());
    None
}

fn script(python: &Path, arguments: &[&str], files: &[PathBuf]) -> (Option<i32>, String) {
    let directory = root().join("tests/foreign");
    let Output { status, stdout, stderr } =
        Command::new(python).current_dir(directory).arg("-B").args(arguments).args(files).output().unwrap();
    assert!(stderr.is_empty(), "{}", String::from_utf8_lossy(&stderr));
    (status.code(), String::from_utf8(stdout).unwrap())
}

fn golden(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| root().join("tests/golden/v1").join(name)).collect()
}

#[test]
fn the_golden_logs_verify_by_the_format_document_alone() {
    rule!(holds, "L1.1", "L1.2", "CO.1");
    let Some(python) = python() else { return };
    let digests = std::fs::read_to_string(&golden(&["digests.json"])[0]).unwrap();
    let digests: serde_json::Map<String, Value> = serde_json::from_str(&digests).unwrap();
    let names: Vec<_> = digests.keys().map(String::as_str).collect();
    let (code, said) = script(&python, &["verify.py"], &golden(&names));
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), names.len());
    for (line, (name, expected)) in lines.iter().zip(&digests) {
        let last = expected["digests"].as_array().unwrap().last().unwrap();
        for (field, value) in [("object", &expected["object"]), ("head", &expected["head"]), ("digest", last)] {
            assert!(line.contains(&format!(" {field}={}", value.as_str().unwrap())), "{name}: {line}");
        }
    }
}

#[test]
fn a_foreign_reader_finds_every_changed_byte() {
    rule!(refused, "L1.2");
    let Some(python) = python() else { return };
    let files =
        golden(&["00-identity.kwoonlog", "07-memory.kwoonlog", "08-publication.kwoonlog", "13-thread.kwoonlog"]);
    let (code, said) = script(&python, &["verify.py", "--flip"], &files);
    assert_eq!(code, Some(0), "{said}");
    for file in &files {
        let bytes = std::fs::metadata(file).unwrap().len();
        assert!(said.contains(&format!("{} changes of {bytes} bytes, 0 not found", 2 * bytes)), "{said}");
    }
}

#[test]
fn a_foreign_reader_takes_no_signature_that_is_not_strictly_valid() {
    rule!(refused, "C1");
    let Some(python) = python() else { return };
    let (code, said) = script(&python, &["strictness.py"], &[]);
    assert_eq!((code, said.trim()), (Some(0), "strict"));
}

#[test]
fn a_foreign_reader_rejects_what_is_forged_where_no_rule_is_needed_to_see_it() {
    rule!(refused, "L1.2", "EV.3");
    let Some(python) = python() else { return };
    let (mut busy, mut published) = (Busy::new(), Published::new());
    let (log, host, alice) = (busy.log(), busy.hall.key("host"), busy.alice.full_id());
    let (at, key) = (busy.posted(&log), busy.key(&busy.alice));
    let directory = TempDir::new().unwrap();
    let verify = |file: &[u8]| {
        let path = directory.path().join("a.kwoonlog");
        std::fs::write(&path, file).unwrap();
        script(&python, &["verify.py"], &[path])
    };
    // What is good is found good, so that it is the forgery that is found.
    let thread = busy.hall.export(&busy.thread.clone());
    let memory = published.hall.export(&published.memory.object.to_string());
    for good in [&thread, &memory] {
        let (code, said) = verify(good);
        assert_eq!(code, Some(0), "{said}");
    }
    let sealed = |mut log: Log| {
        log.seals.push(log.sealed(&host));
        log.file()
    };
    let mut left_out = log.clone();
    left_out.facts.remove(at);
    let mut unsealed = log.clone();
    let last = Seal::verify(&unsealed.seals.pop().unwrap(), &host.public()).unwrap();
    let with_seals = |seals: &[Vec<u8>]| {
        let mut log = unsealed.clone();
        log.seals.extend_from_slice(seals);
        log.file()
    };
    let two = Seal { head: Digest::of("another", &[]), ..last.clone() };
    let (header, mut items) = items_of(&thread);
    let content =
        items.iter_mut().find_map(|item| if let LogItem::Content(_, salt, _) = item { Some(salt) } else { None });
    *content.unwrap() = Salt::new([0; 32]);
    let publication =
        with_fact(&published.publication, 1, |fact| fact.digest = running_digest(&fact.digest, 1, &[0x80]));
    let cases: [(&str, Vec<u8>); 13] = [
        ("another's signature", sealed(with_action(&log, at, &stranger(), |_| {}))),
        (
            "an unknown instance",
            sealed(with_action(&log, at, &stranger(), |action| {
                action.actor = Actor::Agent(alice, InstanceId::of(&[b"none"]));
            })),
        ),
        ("a broken chain", sealed(left_out)),
        (
            "another branch",
            sealed(with_action(&log, at, &key, |action| action.position.as_mut().unwrap().head = Digest::default())),
        ),
        (
            "time that goes back",
            sealed(with_fact(&log, at, |fact| fact.log_time = fact.log_time.before(Duration(60_000)))),
        ),
        (
            "wrong evidence",
            sealed(with_fact(&published.publication, 0, |fact| {
                fact.cause = Cause::Consequence(published.outcome(1));
            })),
        ),
        ("other effects", sealed(publication)),
        ("no seal", unsealed.file()),
        ("a stranger's seal", with_seals(&[last.sign(&stranger())])),
        ("a seal of another head", with_seals(&[two.sign(&host)])),
        ("two seals for a place", with_seals(&[last.sign(&host), two.sign(&host)])),
        ("a content that opens nothing", file_of(&header, &items)),
        ("nothing", Vec::new()),
    ];
    for (what, file) in cases {
        let (code, said) = verify(&file);
        assert_eq!(code, Some(1), "{what}: {said}");
    }
    for (what, file, _) in later_logs(&busy) {
        let (code, said) = verify(&file);
        assert_eq!(code, Some(3), "{what}: {said}");
    }
}
