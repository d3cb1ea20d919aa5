//! Logs as files: what is exported, and what is made of a log that comes from elsewhere. Each kind of forged log is
//! rejected, or set aside, and what is said of it is compared.

use kwoon_keys::id::InstanceId;
use kwoon_keys::{Commitment, Digest, RecordKind, Salt, cbor, cose};
use kwoon_ledger::action::{Actor, Body, ObjectId, SCHEMA};
use kwoon_ledger::fact::{Cause, Due, Fact, RULES, Seal, running_digest};
use kwoon_ledger::limits::{Limits, QUARANTINE_RECORD_BYTES_MAX};
use kwoon_ledger::log;
use kwoon_ledger::time::Duration;
use kwoon_sync::check;
use kwoon_sync::logfile::{LogItem, VERSION};
use kwoon_tests::forge::{Log, file_of, items_of, sign, stranger};
use kwoon_tests::{Hall, owner, rule, text};
use serde_json::{Value, json};

use crate::forged::{Busy, Published};

/// Every object of a hall.
fn objects(hall: &mut Hall) -> Vec<String> {
    let rows = hall.all(&owner(), "object_digest", json!({"limit": 50}), "objects");
    rows.iter().map(|row| text(&row["object"])).collect()
}

/// What is wrong with a log, as the answer says it, and the index that it names.
fn fault(checked: &Value) -> (Option<u64>, String) {
    assert_eq!(checked["sound"], false, "{checked:#}");
    (checked["fault"]["index"].as_u64(), text(&checked["fault"]["problem"]))
}

// ------------------------------------------------------------------------------------------------ what is exported

#[test]
fn every_exported_log_is_found_sound_and_enters_nothing() {
    rule!(holds, "L1.1", "L1.2");
    let (mut busy, mut published) = (Busy::new(), Published::new());
    for hall in [&mut busy.hall, &mut published.hall] {
        for object in objects(hall) {
            let file = hall.export(&object);
            let before = hall.trace();
            let checked = hall.check(file);
            assert_eq!(checked["sound"], true, "{object}: {checked:#}");
            let (index, digest) = hall.digest(&object);
            let log = Log::of(hall, &object);
            assert_eq!(checked["object"], object);
            assert_eq!(checked["sequencer"], hall.key("host").public().to_string());
            assert_eq!(checked["digest"], digest);
            assert_eq!((&checked["facts"], &checked["seals"]), (&json!(index + 1), &json!(log.seals.len())));
            assert_eq!(hall.trace(), before, "nothing of it enters");
        }
    }
    // A host that knows nothing of the log comes to the same.
    let mut other = Hall::seeded([9; 32], Limits::DEFAULT);
    other.now = busy.hall.now;
    let thread = busy.thread.clone();
    let there = other.check(busy.hall.export(&thread));
    let here = busy.hall.export(&thread);
    assert_eq!(there, busy.hall.check(here));
}

#[test]
fn an_export_is_what_stands_in_the_log_with_the_contents_that_are_here() {
    rule!(holds, "L6.1");
    let mut busy = Busy::new();
    let log = busy.log();
    let (header, items) = items_of(&busy.hall.export(&busy.thread.clone()));
    assert_eq!((header.object, header.index), (log.object, log.facts.len() as u64 - 1));
    let facts =
        items.iter().filter_map(|item| if let LogItem::Fact(bytes) = item { Some(bytes.to_vec()) } else { None });
    assert_eq!(facts.collect::<Vec<_>>(), log.facts);
    let seals =
        items.iter().filter_map(|item| if let LogItem::Seal(bytes) = item { Some(bytes.to_vec()) } else { None });
    assert_eq!(seals.collect::<Vec<_>>(), log.seals);
    let texts: Vec<_> = items
        .iter()
        .filter_map(|item| if let LogItem::Content(_, _, bytes) = item { Some(bytes.to_vec()) } else { None })
        .collect();
    for said in ["hello", "please", "done well"] {
        assert!(texts.contains(&said.as_bytes().to_vec()), "{said}");
    }
    // Without contents it is as sound.
    let arguments = json!({"object": busy.thread, "path": "/bare", "content": false});
    let exported = busy.hall.ok(&owner(), "object_export", arguments)["result"].clone();
    assert_eq!((&exported["contents"], &exported["bytes"]), (&json!(0), &json!(busy.hall.files["/bare"].len())));
    let bare = busy.hall.files["/bare"].clone();
    assert_eq!(busy.hall.check(bare)["sound"], true);
}

#[test]
fn the_note_of_a_handled_response_is_never_exported() {
    rule!(refused, "V5");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    let entry = hall.post(&alice, &thread, json!({}));
    hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": entry, "note": "for alice alone"}));
    let arguments = json!({"object": thread, "path": "/thread"});
    let exported = hall.ok(&owner(), "object_export", arguments)["result"].clone();
    assert_eq!((&exported["notes_left_out"], &exported["contents_missing"]), (&json!(1), &json!(0)));
    let file = hall.files["/thread"].clone();
    assert!(file.windows(5).any(|part| part == b"hello"));
    assert!(!file.windows(5).any(|part| part == b"alone"));
}

#[test]
fn an_export_makes_a_new_file_and_is_the_owners() {
    rule!(refused, "V10");
    let mut busy = Busy::new();
    let export = |object: &str, path: &str| json!({"object": object, "path": path});
    let thread = busy.thread.clone();
    busy.hall.refused(&busy.alice.clone(), "object_export", export(&thread, "/x"), "owner_required");
    busy.hall.refused(&busy.alice.clone(), "object_check", json!({"path": "/x"}), "owner_required");
    busy.hall.refused(&busy.alice.clone(), "quarantine_list", json!({}), "owner_required");
    for path in ["", "x", "./x", "/", "/x/", "/x/..", "/\0"] {
        let error = busy.hall.refused(&owner(), "object_export", export(&thread, path), "invalid_argument");
        assert_eq!(error["details"]["field"], "path");
        busy.hall.refused(&owner(), "object_check", json!({"path": path}), "invalid_argument");
    }
    busy.hall.ok(&owner(), "object_export", export(&thread, "/x"));
    busy.hall.refused(&owner(), "object_export", export(&thread, "/x"), "invalid_argument");
    busy.hall.refused(&owner(), "object_export", export("thr_aaaaaaaaaaaaaaaaaaaaaaaaaa", "/y"), "not_found");
    assert_eq!(busy.hall.files.len(), 1);
}

// ------------------------------------------------------------------------------------------------ forged logs

/// A log whose fact at an index is changed, and everything after it left out: what a host that would deceive sends.
pub(crate) fn with_fact(log: &Log, at: usize, change: impl FnOnce(&mut Fact)) -> Log {
    let mut forged = log.clone();
    forged.facts.truncate(at + 1);
    let mut fact = log.fact(at);
    change(&mut fact);
    forged.facts[at] = cbor::write(&fact);
    forged
}

/// The same with a changed action in it, signed anew with this key.
pub(crate) fn with_action(
    log: &Log,
    at: usize,
    key: &kwoon_keys::KeyPair,
    change: impl FnOnce(&mut kwoon_ledger::action::Action),
) -> Log {
    with_fact(log, at, |fact| {
        let mut action = log::action_of(fact).unwrap();
        change(&mut action);
        fact.cause = Cause::Action(sign(&action, key));
    })
}

/// The same with a fact after the last one.
fn with_next(log: &Log, cause: Cause) -> Log {
    let mut forged = log.clone();
    forged.facts.push(cbor::write(&log.next(cause)));
    forged
}

#[test]
fn each_kind_of_forged_log_is_rejected_with_what_is_wrong_with_it() {
    rule!(refused, "L1.2", "C1", "L4.3", "EV.6", "ID.6");
    let mut busy = Busy::new();
    let (log, alice, host) = (busy.log(), busy.alice.full_id(), busy.hall.key("host"));
    let (key, at, last) = (busy.key(&busy.alice), busy.posted(&log), log.facts.len());
    let publication = Published::new();
    let early = {
        let offered = log.find(|fact| matches!(fact.cause, Cause::Expiry(Due::Delivery(_))));
        let Cause::Expiry(due) = log.fact(offered).cause else { panic!("an expiry") };
        let taken = offered - 1;
        let mut forged = with_fact(&log, taken + 1, |fact| fact.log_time = log.fact(taken).log_time);
        forged.facts[taken + 1] = cbor::write(&Fact { cause: Cause::Expiry(due), ..forged.fact(taken + 1) });
        (forged, taken + 1)
    };
    let mut left_out = log.clone();
    left_out.facts.remove(at);
    let closes = log.action(&busy.hall, &busy.bob, Body::ThreadClose);
    let cases: Vec<(&str, Log, usize, &str)> = vec![
        ("another's signature", with_action(&log, at, &stranger(), |_| {}), at, "a signature does not verify"),
        (
            "an instance that nobody listed",
            with_action(&log, at, &stranger(), |action| {
                action.actor = Actor::Agent(alice, InstanceId::of(&[b"none"]));
            }),
            at,
            "the actor or its instance is not known in this log",
        ),
        ("a fact left out", left_out, at, "the chain is broken"),
        (
            "another branch",
            with_action(&log, at, &key, |action| action.position.as_mut().unwrap().head = Digest::of("x", &[])),
            at,
            "the chain is broken",
        ),
        (
            "a speaker that governs",
            with_next(&log, Cause::Action(sign(&closes, &busy.key(&busy.bob)))),
            last,
            "the rules refuse it: not_governor",
        ),
        (
            "evidence of something else",
            with_fact(&publication.publication, 0, |fact| {
                fact.cause = Cause::Consequence(publication.outcome(1));
            }),
            0,
            "the evidence does not show what it must",
        ),
        (
            "time that goes back",
            with_fact(&log, at, |fact| fact.log_time = fact.log_time.before(Duration::minutes(1))),
            at,
            "log time goes back or ahead",
        ),
        ("an expiry that is early", early.0, early.1, "an expiry is early, unknown or left out"),
        (
            "effects that do not follow",
            with_fact(&log, at, |fact| fact.digest = running_digest(&fact.digest, 1, &[0x80])),
            at,
            "the effects derived here are others",
        ),
        (
            "what is no record",
            with_fact(&log, at, |fact| fact.cause = Cause::Action(vec![0xa0].into())),
            at,
            "the record does not decode",
        ),
    ];
    for (what, forged, index, problem) in cases {
        // The sequencer itself vouches for it, so that nothing but what is forged is wrong.
        let mut forged = forged;
        forged.seals.push(forged.sealed(&host));
        let before = busy.hall.trace();
        let checked = busy.hall.check(forged.file());
        assert_eq!(fault(&checked), (Some(index as u64), problem.to_owned()), "{what}");
        assert_eq!(checked["facts"], index, "{what}: the facts before it are good");
        assert!(checked.get("quarantined").is_none(), "{what}");
        assert_eq!(busy.hall.trace(), before, "{what}");
    }
}

#[test]
fn a_log_must_be_sealed_by_its_sequencer_to_its_end_and_once() {
    rule!(refused, "L1.2", "EV.6");
    let mut busy = Busy::new();
    let (log, host) = (busy.log(), busy.hall.key("host"));
    let last = log.facts.len() as u64 - 1;
    let good = Seal::verify(log.seals.last().unwrap(), &host.public()).unwrap();
    let with = |seals: &[Vec<u8>]| {
        let mut log = log.clone();
        log.seals.pop();
        log.seals.extend_from_slice(seals);
        log.file()
    };
    let other = Seal { head: Digest::of("another", &[]), ..good.clone() };
    let two = "the sequencer sealed another history of this log: there are two heads for one place";
    let cases = [
        ("none", with(&[]), "the last fact is not sealed"),
        ("a stranger's", with(&[good.sign(&stranger())]), "a seal is missing or wrong"),
        ("of another head", with(&[other.sign(&host)]), two),
        ("of two heads", with(&[good.sign(&host), other.sign(&host)]), two),
        ("of two times", with(&[good.sign(&host), good.sign(&host)]), "a seal does not stand after its fact, or twice"),
        (
            "of another object",
            with(&[Seal { object: Log::of(&busy.hall, &busy.alice.id).object, ..good }.sign(&host)]),
            "a seal is missing or wrong",
        ),
    ];
    for (what, file, problem) in cases {
        assert_eq!(fault(&busy.hall.check(file)), (Some(last), problem.to_owned()), "{what}");
    }
    // A seal under another fact than it names.
    let (header, mut items) = items_of(&log.file());
    let seal = items.iter().position(|item| matches!(item, LogItem::Seal(_))).unwrap();
    let moved = items.remove(seal);
    let next = (seal..items.len()).find(|at| matches!(items[*at], LogItem::Seal(_))).unwrap();
    items.insert(next, moved);
    let (_, problem) = fault(&busy.hall.check(file_of(&header, &items)));
    assert_eq!(problem, "a seal does not stand after its fact, or twice");
}

#[test]
fn a_log_of_the_future_is_held_back() {
    rule!(refused, "L4.3");
    let mut busy = Busy::new();
    let file = busy.hall.export(&busy.thread.clone());
    let mut earlier = Hall::seeded([9; 32], Limits::DEFAULT);
    let (index, problem) = fault(&earlier.check(file.clone()));
    assert_eq!(problem, "the fact lies more than 10 minutes ahead of this host's clock");
    assert!(index > Some(0));
    earlier.now = busy.hall.now;
    assert_eq!(earlier.check(file)["sound"], true);
}

#[test]
fn contents_must_open_what_the_log_commits_to() {
    rule!(refused, "L6.1", "L1.2");
    let mut busy = Busy::new();
    let (header, items) = items_of(&busy.hall.export(&busy.thread.clone()));
    let first = items.iter().position(|item| matches!(item, LogItem::Content(..))).unwrap();
    let mut said = |change: &dyn Fn(&mut Vec<LogItem>)| {
        let mut items = items.clone();
        change(&mut items);
        fault(&busy.hall.check(file_of(&header, &items))).1
    };
    let text = |items: &mut Vec<LogItem>, change: &dyn Fn(&mut Digest, &mut Salt, &mut Vec<u8>)| {
        let LogItem::Content(hash, salt, bytes) = &mut items[first] else { panic!("a content") };
        let mut text = bytes.to_vec();
        change(hash, salt, &mut text);
        *bytes = text.into();
    };
    let opens = "a content does not open its commitment";
    assert_eq!(said(&|items| text(items, &|_, _, bytes| bytes[0] ^= 1)), opens);
    assert_eq!(said(&|items| text(items, &|_, salt, _| *salt = Salt::new([0; 32]))), opens);
    assert_eq!(said(&|items| text(items, &|hash, _, _| hash.0[31] ^= 1)), opens);
    let foreign = "there is a content that the log does not commit to";
    assert_eq!(
        said(&|items| text(items, &|hash, salt, bytes| *hash = Commitment::to(salt, {
            bytes.push(b'.');
            bytes
        })
        .hash)),
        foreign
    );
    assert_eq!(said(&|items| items.swap(first, first + 1)), "the contents are not in rising order");
    assert_eq!(said(&|items| items.insert(first, items[first].clone())), "the contents are not in rising order");
    assert_eq!(
        said(&|items| {
            let fact = items[0].clone();
            items.push(fact)
        }),
        "a fact stands after the contents"
    );
}

// ------------------------------------------------------------------------------------------------ hostile files

#[test]
fn no_changed_missing_or_added_byte_of_a_file_goes_unnoticed() {
    rule!(refused, "L1.2");
    let mut published = Published::new();
    let memory = published.memory.object.to_string();
    let good = published.hall.export(&memory);
    let now = published.hall.now;
    let is_sound = |file: &[u8]| check::check(&mut &file[..], now).unwrap().checked.sound;
    assert!(is_sound(&good));
    for at in 0..good.len() {
        let mut file = good.clone();
        file[at] ^= 1 << (at % 8);
        assert!(!is_sound(&file), "byte {at}");
        assert!(!is_sound(&good[..at]), "cut at {at}");
    }
    assert!(!is_sound(&[&good[..], &[0]].concat()));
    assert!(!is_sound(&[&good[..], &good[..]].concat()));
}

#[test]
fn what_is_no_log_file_is_told_without_reading_far() {
    rule!(refused, "EV.3");
    struct Endless(u64);
    impl std::io::Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            buffer.fill(0x5b);
            self.0 += buffer.len() as u64;
            assert!(self.0 < 1 << 16, "a file of nothing is not read to its end");
            Ok(buffer.len())
        }
    }
    let said = |file: &mut dyn std::io::Read| {
        let finding = check::check(file, kwoon_tests::hall::START).unwrap();
        finding.checked.fault.expect("a fault").problem
    };
    assert_eq!(said(&mut Endless(0)), "this is no log file");
    // A header that says something, and then an item that says it is as long as can be said.
    let log = Busy::new().log();
    let file = log.file();
    let (header, _) = items_of(&file);
    let header = cbor::write(&header);
    let with = |rest: &[u8]| said(&mut &[&header[..], rest].concat()[..]);
    let length = [0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(with(&[&[0x82, 0x00][..], &length].concat()), "an item is too long");
    assert_eq!(with(&[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), "an item is too long");
    assert_eq!(with(&[0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), "an item is too long");
    assert_eq!(with(&[0x82, 0x00, 0x5a, 0x03, 0x00, 0x00, 0x00]), "the file ends in the middle");
    assert_eq!(with(&vec![0x81; 100_000]), "the file ends in the middle");
    for bad in [&[0x82, 0x00, 0x5f][..], &[0x82, 0x18, 0x00, 0x40], &[0xc1, 0x00], &[0x9f, 0xff], &[0x00], &[0x80]] {
        assert_eq!(with(bad), "an item is not encoded as it must be", "{bad:02x?}");
    }
    assert_eq!(with(&[]), "the file ends without the end of the log");
    for other in [&b""[..], b"\x00", b"plain text", &cbor::write(&"kwoon log"), &header[1..]] {
        assert_eq!(said(&mut &other[..]), "this is no log file");
    }
}

// ------------------------------------------------------------------------------------------------ quarantine

/// An item that this version does not know, in the place of another.
fn with_item(file: &[u8], at: usize, item: &[u8]) -> Vec<u8> {
    let (header, items) = items_of(file);
    let mut file = cbor::write(&header);
    for known in &items[..at] {
        file.extend(cbor::write(known));
    }
    file.extend_from_slice(item);
    file
}

/// Logs with a record of a later version or kind, and what is said of each: its kind, its version, and why.
pub(crate) fn later_logs(busy: &Busy) -> Vec<(&'static str, Vec<u8>, Value)> {
    let (log, host) = (busy.log(), busy.hall.key("host"));
    let (at, key) = (busy.posted(&log), busy.key(&busy.alice));
    let (header, _) = items_of(&log.file());
    let sealed = |mut log: Log| {
        log.seals.push(log.sealed(&host));
        log.file()
    };
    let row = |record: &str, version: Option<u64>, reason: &str| json!({"record": record, "version": version, "reason": reason});
    let mut unknown_body = cbor::write(&log.action(&busy.hall, &busy.alice, Body::ThreadClose));
    // The body, `[45]`, stands last.
    unknown_body.truncate(unknown_body.len() - 3);
    unknown_body.extend_from_slice(&[0x81, 0x18, 99]);
    let unknown_body = cose::sign(RecordKind::Action, &unknown_body, &key);
    let mut unknown_cause = log.clone();
    let next = cbor::write(&log.next(Cause::Begun));
    let place = next.windows(3).rposition(|part| part == [0x06, 0x81, 0x05]).expect("the cause, `[5]`");
    unknown_cause.facts.push([&next[..place], &[0x06, 0x81, 0x17], &next[place + 3..]].concat());
    let mut unknown_object = cbor::write(&header);
    let ObjectId::Thread(_) = header.object else { panic!("a thread") };
    let place = unknown_object.windows(3).position(|part| part == [0x02, 0x82, 0x03]).expect("the object's kind");
    unknown_object[place + 2] = 0x09;
    let mut later_seal = log.clone();
    let last = Seal::verify(&later_seal.seals.pop().unwrap(), &host.public()).unwrap();
    later_seal.seals.push(Seal { schema: SCHEMA + 1, ..last }.sign(&host));
    let later_header = kwoon_sync::logfile::LogHeader { version: VERSION + 1, ..header };
    vec![
        (
            "a fact of a later version",
            sealed(with_fact(&log, at, |fact| fact.schema = SCHEMA + 1)),
            row("fact", Some(2), "unknown_version"),
        ),
        (
            "an action of a later version",
            sealed(with_action(&log, at, &key, |action| action.schema = SCHEMA + 1)),
            row("fact", Some(2), "unknown_version"),
        ),
        (
            "rules of a later version",
            sealed(with_fact(&log, 0, |fact| fact.opening.as_mut().unwrap().rules = RULES + 1)),
            row("fact", Some(2), "unknown_version"),
        ),
        ("a seal of a later version", later_seal.file(), row("seal", Some(2), "unknown_version")),
        ("a file of a later version", cbor::write(&later_header), row("header", Some(2), "unknown_version")),
        ("a cause of a later kind", sealed(unknown_cause), row("fact", Some(1), "unknown_kind")),
        (
            "a body of a later kind",
            sealed(with_next(&log, Cause::Action(unknown_body.into()))),
            row("fact", Some(1), "unknown_kind"),
        ),
        ("an object of a later kind", unknown_object, row("header", Some(1), "unknown_kind")),
        (
            "an item of a later kind",
            with_item(&log.file(), 2, &[0x82, 0x09, 0x41, 0x00]),
            row("item", None, "unknown_kind"),
        ),
    ]
}

#[test]
fn a_record_of_an_unknown_version_or_kind_is_set_aside_and_shown() {
    rule!(holds, "EV.3", "CO.2");
    let mut busy = Busy::new();
    let logs = later_logs(&busy);
    let of_log = |hall: &Hall| {
        let mut trace = hall.trace();
        trace.retain(|(table, _), _| *table != kwoon_ledger::storage::Table::Quarantine);
        trace
    };
    let before = of_log(&busy.hall);
    for (number, (what, file, expected)) in logs.iter().enumerate() {
        let checked = busy.hall.check(file.clone());
        let (_, problem) = fault(&checked);
        let says = if expected["reason"] == "unknown_version" { "version" } else { "kind" };
        assert_eq!(problem, format!("the record is of a {says} this kwoon does not know"), "{what}");
        assert_eq!(checked["keeping"], "kept", "{what}");
        let rows = busy.hall.all(&owner(), "quarantine_list", json!({"limit": 2}), "records");
        assert_eq!(rows.len(), number + 1, "{what}");
        let row = rows.iter().find(|row| row["id"] == checked["quarantined"]).expect("it is listed");
        for field in ["record", "version", "reason"] {
            assert_eq!(row[field], expected[field], "{what}: {field}");
        }
        assert!(row["bytes"].as_u64() > Some(0));
        let is_known = expected["record"] != "header";
        assert_eq!(row["object"], if is_known { json!(busy.thread) } else { Value::Null }, "{what}");
        let status = busy.hall.ok(&owner(), "host_status", json!({}));
        assert_eq!(status["result"]["store"]["quarantined"], number + 1);
        // The same record comes again, and is kept once.
        assert_eq!(busy.hall.check(file.clone())["keeping"], "kept_before", "{what}");
    }
    assert_eq!(of_log(&busy.hall), before, "no log has anything of it");
    busy.hall.verify();
    // It is there after a restart, and can be removed, once.
    busy.hall.restart();
    let rows = busy.hall.all(&owner(), "quarantine_list", json!({}), "records");
    assert_eq!(rows.len(), logs.len());
    for row in &rows {
        assert_eq!(busy.hall.ok(&owner(), "quarantine_remove", json!({"id": row["id"]}))["result"], *row);
        busy.hall.refused(&owner(), "quarantine_remove", json!({"id": row["id"]}), "not_found");
    }
    assert_eq!(busy.hall.ok(&owner(), "quarantine_list", json!({}))["result"]["records"], json!([]));
    assert_eq!(busy.hall.trace(), before);
}

#[test]
fn a_record_in_quarantine_is_kept_as_it_came() {
    rule!(holds, "EV.3");
    let mut busy = Busy::new();
    let log = with_fact(&busy.log(), 1, |fact| fact.schema = SCHEMA + 1);
    busy.hall.check(log.file());
    let rows =
        busy.hall.trace().into_iter().filter(|((table, _), _)| *table == kwoon_ledger::storage::Table::Quarantine);
    let values: Vec<_> = rows.map(|(_, value)| value).collect();
    assert_eq!(values.len(), 2, "what is known of it, and the record");
    assert!(values.contains(&log.facts[1]));
}

#[test]
fn a_full_quarantine_says_so_and_drops_nothing() {
    rule!(refused, "EV.3");
    let mut limits = Limits::DEFAULT;
    limits.quarantine_records_max = 2;
    let mut hall = Hall::seeded([9; 32], limits);
    let busy = Busy::new();
    hall.now = busy.hall.now;
    let logs = later_logs(&busy);
    let keeping: Vec<_> = logs[..4].iter().map(|(_, file, _)| text(&hall.check(file.clone())["keeping"])).collect();
    assert_eq!(keeping, ["kept", "kept", "not_kept_full", "not_kept_full"]);
    assert_eq!(hall.check(logs[0].1.clone())["keeping"], "kept_before");
    let rows = hall.all(&owner(), "quarantine_list", json!({}), "records");
    assert_eq!(rows.len(), 2);
    hall.ok(&owner(), "quarantine_remove", json!({"id": rows[0]["id"]}));
    assert_eq!(hall.check(logs[2].1.clone())["keeping"], "kept");
}

#[test]
fn a_record_that_is_too_long_for_the_quarantine_is_not_kept() {
    rule!(refused, "EV.3");
    let busy = Busy::new();
    let file = busy.log().file();
    let item = |length: usize| {
        let part = cbor::write(&minicbor::bytes::ByteVec::from(vec![7; length]));
        with_item(&file, 1, &[&[0x82, 0x09][..], &part].concat())
    };
    let keeping = |limits: Limits, file: Vec<u8>| {
        let mut hall = Hall::seeded([9; 32], limits);
        hall.now = busy.hall.now;
        text(&hall.check(file)["keeping"])
    };
    let longest = QUARANTINE_RECORD_BYTES_MAX - 7;
    assert_eq!(keeping(Limits::DEFAULT, item(longest + 1)), "not_kept_too_long");
    assert_eq!(keeping(Limits::DEFAULT, item(longest)), "kept");
    let small = Limits { quarantine_bytes_max: 10, ..Limits::DEFAULT };
    assert_eq!(keeping(small.clone(), item(7)), "kept");
    assert_eq!(keeping(small, item(8)), "not_kept_full");
}

#[test]
fn what_stands_before_an_unknown_record_was_verified_and_nothing_after_it_is_looked_at() {
    rule!(refused, "EV.3", "CO.2");
    let mut busy = Busy::new();
    let log = busy.log();
    let file = with_item(&log.file(), 4, &[0x81, 0x18, 0x63]);
    let checked = busy.hall.check([&file[..], b"anything"].concat());
    let facts = items_of(&log.file()).1[..4].iter().filter(|item| matches!(item, LogItem::Fact(_))).count();
    assert_eq!(checked["facts"], facts);
    assert_eq!(checked["fault"]["item"], 5);
    assert_eq!(checked["keeping"], "kept");
    // What is only broken is not taken for something unknown.
    let broken = with_fact(&log, 1, |fact| fact.cause = Cause::Action(vec![0xa0].into()));
    assert!(busy.hall.check(broken.file()).get("keeping").is_none());
}
