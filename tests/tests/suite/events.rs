//! Records as events, and what is compatible (contracts event and compatibility).

use std::collections::BTreeSet;

use kwoon_keys::{RecordKind, cbor, cose};
use kwoon_ledger::action::{Body, Position, SCHEMA};
use kwoon_ledger::derive::{read_action, read_action_strict};
use kwoon_ledger::fact::{Cause, Fact, Rejection, check_schema};
use kwoon_ledger::limits::ACTION_VALIDITY_MAX;
use kwoon_ledger::log;
use kwoon_ledger::refusal::{Code, Stop};
use kwoon_ledger::sequencer::Candidate;
use kwoon_ledger::storage::{Read, Table};
use kwoon_ledger::time::Duration;
use kwoon_sync::operations::{ALL, Who};
use kwoon_sync::receipt::Envelope;
use kwoon_tests::forge::{Log, post, sign};
use kwoon_tests::{Agent, Hall, owner, rule, text};
use minicbor::bytes::ByteVec;
use serde_json::json;

struct Thread {
    hall: Hall,
    alice: Agent,
    bob: Agent,
    thread: String,
}

impl Thread {
    fn new() -> Self {
        let mut hall = Hall::new();
        let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
        let thread = hall.thread(&alice, &[&bob]);
        Self { hall, alice, bob, thread }
    }

    fn log(&self) -> Log {
        Log::of(&self.hall, &self.thread)
    }

    /// An entry of Alice's, signed at the present head.
    fn signed(&self, said: &str) -> ByteVec {
        let action = self.log().action(&self.hall, &self.alice, post(said));
        sign(&action, &self.hall.instance(&self.alice).signing)
    }

    fn candidate(&self, signed: &ByteVec) -> Candidate {
        self.log().candidate(signed.clone())
    }

    /// Gives the sequencer a signed action that must be refused with this code, without trace.
    fn refused(&mut self, signed: &ByteVec, code: Code) {
        let (candidate, before) = (self.candidate(signed), self.hall.trace());
        match self.hall.sequence(candidate) {
            Err(Stop::Refused(refusal)) => assert_eq!(refusal.code, code),
            other => panic!("must be refused: {other:?}"),
        }
        assert_eq!(self.hall.trace(), before, "a refusal leaves no trace");
    }
}

/// The payload of an action with a field that this version does not know.
fn with_later_field(signed: &ByteVec) -> Vec<u8> {
    let mut payload = cose::payload(RecordKind::Action, signed).unwrap().to_vec();
    payload[0] += 1;
    payload.extend_from_slice(&[13, 0xf5]);
    payload
}

// ------------------------------------------------------------------------------------------------ EV.1

#[test]
fn the_host_keeps_the_key_and_the_time_of_receipt_beside_the_action() {
    rule!(holds, "EV.1");
    let mut thread = Thread::new();
    thread.hall.advance(Duration::seconds(5));
    let post = json!({"thread": thread.thread, "text": "x", "idempotency_key": "my-own-key"});
    thread.hall.ok(&thread.alice, "entry_post", post);
    let log = thread.log();
    let action = log::action_of(&log.fact(log.facts.len() - 1)).unwrap();
    let kept = thread.hall.snapshot().get(Table::Envelopes, action.request().as_bytes()).unwrap().unwrap();
    let envelope: Envelope = cbor::read_own(&kept).unwrap();
    let received_at = thread.hall.now;
    let expected = Envelope { key: "my-own-key".to_owned(), received_at, trace_id: None, owes_secret: None };
    assert_eq!(envelope, expected);
    assert_eq!(action.issued_at, thread.hall.now);
}

#[test]
fn what_is_signed_holds_what_decides() {
    rule!(holds, "EV.1");
    let thread = Thread::new();
    let action = read_action(&thread.signed("x")).unwrap();
    assert_eq!(action.schema, SCHEMA);
    assert_eq!(action.agent(), Some(thread.alice.full_id()));
    assert_eq!(action.object, Some(thread.log().object));
    assert!(action.expires_at > action.issued_at);
    assert!(matches!(action.body, Body::EntryPost(_)));
    let head = thread.log().head();
    assert_eq!(action.position, Some(Position { epoch: 0, index: head.index, head: head.hash }));
}

#[test]
fn the_idempotency_key_shows_to_the_agent_itself_only() {
    rule!(holds, "EV.1", "V9");
    rule!(refused, "EV.1", "V9");
    let mut thread = Thread::new();
    let key = "unmistakable-key";
    let post = json!({"thread": thread.thread, "text": "x", "idempotency_key": key});
    let posted = thread.hall.ok(&thread.alice, "entry_post", post);
    assert_eq!(posted["receipt"]["key"], key);
    // It stands in one table of this host, and in no record.
    for ((table, _), value) in thread.hall.trace() {
        let shows = value.windows(key.len()).any(|window| window == key.as_bytes());
        assert!(!shows || table == Table::Envelopes, "{table:?}");
    }
    let (hall, id) = (&mut thread.hall, &posted["receipt"]["id"]);
    let own = hall.ok(&thread.alice, "receipt_get", json!({"id": id}));
    assert_eq!(own["receipt"]["key"], key);
    hall.refused(&thread.bob, "receipt_get", json!({"id": id}), "not_found");
    hall.refused(&thread.bob, "receipt_get", json!({"operation": "entry_post", "key": key}), "not_found");
    hall.refused(&owner(), "receipt_get", json!({"id": id, "as": thread.alice.id}), "not_found");
    for (reader, operation, arguments) in [
        (&thread.bob, "thread_get", json!({"thread": thread.thread})),
        (&thread.bob, "thread_entries", json!({"thread": thread.thread})),
        (&owner(), "object_log", json!({"object": thread.thread, "format": "cbor"})),
    ] {
        assert!(!hall.ok(reader, operation, arguments).to_string().contains(key));
    }
}

// ------------------------------------------------------------------------------------------------ EV.2

#[test]
fn what_has_happened_is_named_in_the_past_and_what_is_wanted_as_a_command() {
    rule!(holds, "EV.2");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    let entry = hall.post(&alice, &thread, json!({}));
    hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": entry}));
    let work = hall.assign(&alice, &thread, &bob, json!({}));
    hall.ok(&bob, "assignment_take", json!({"assignment": work, "output": {"text": "x"}}));
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    hall.ok(&alice, "admission_issue", json!({"thread": thread}));
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    let memory = text(&hall.ok(&alice, "memory_create", json!({"text": "x"}))["result"]["memory"]);
    for operation in ["memory_publish", "memory_unpublish", "memory_withdraw"] {
        hall.ok(&alice, operation, json!({"memory": memory}));
    }
    let mut effects = BTreeSet::new();
    for object in [&alice.id, &thread, &memory] {
        let log = hall.ok(&owner(), "object_log", json!({"object": object, "limit": 50}));
        for fact in log["result"]["facts"].as_array().unwrap() {
            effects.extend(
                fact["event"]["payload"]["effects"].as_array().unwrap().iter().map(|effect| text(&effect["kind"])),
            );
        }
    }
    assert!(effects.len() > 14, "{effects:?}");
    let past = [
        "set",
        "created",
        "added",
        "public",
        "private",
        "withdrawn",
        "issued",
        "voided",
        "began",
        "ended",
        "posted",
        "offered",
        "taken",
        "delivered",
        "forfeited",
        "closed",
    ];
    for effect in &effects {
        let last = effect.rsplit('_').next().unwrap();
        assert!(past.contains(&last), "{effect}");
        assert!(!["public", "private"].contains(&last) || effect.starts_with("made_"), "{effect}");
    }
    for operation in ALL.iter().filter(|operation| operation.is_action()) {
        assert!(!effects.contains(operation.name), "{}", operation.name);
        let last = operation.name.rsplit('_').next().unwrap();
        assert!(!past.contains(&last) && !last.ends_with("ed"), "{}", operation.name);
    }
}

#[test]
fn nobody_reports_an_event_that_did_not_happen() {
    rule!(impossible, "EV.2"; "effects are derived from the cause of a fact and never recorded or taken as an argument");
    let names: BTreeSet<_> = ALL.iter().map(|operation| operation.name).collect();
    for effect in ["thread_closed", "entry_posted", "assignment_ended", "obligation_ended"] {
        assert!(!names.contains(effect));
    }
}

// ------------------------------------------------------------------------------------------------ EV.3

#[test]
fn event_refusal_an_action_of_a_later_version_or_kind_is_not_guessed_at() {
    rule!(refused, "EV.3");
    let mut thread = Thread::new();
    let key = thread.hall.instance(&thread.alice).signing;
    let mut action = read_action(&thread.signed("x")).unwrap();
    action.schema = SCHEMA + 1;
    let later = sign(&action, &key);
    assert_eq!(read_action(&later), Err(Rejection::UnknownVersion));
    thread.refused(&later, Code::UnsupportedVersion);
    let close = thread.log().action(&thread.hall, &thread.alice, Body::ThreadClose);
    let mut payload = cbor::write(&close);
    assert_eq!(payload.pop(), Some(45));
    payload.push(99);
    let unknown = ByteVec::from(cose::sign(RecordKind::Action, &payload, &key));
    assert_eq!(read_action(&unknown), Err(Rejection::UnknownKind));
    thread.refused(&unknown, Code::UnsupportedVersion);
}

#[test]
fn a_version_is_read_before_anything_else_of_a_record() {
    rule!(holds, "EV.3", "CO.1");
    // Of a later version everything but the place of the version may have changed.
    assert_eq!(check_schema(&[0xa2, 0x00, 0x02, 0x01, 0x80]), Err(Rejection::UnknownVersion));
    assert_eq!(Fact::read(&[0xa2, 0x00, 0x02, 0x01, 0x80]), Err(Rejection::UnknownVersion));
    assert_eq!(Fact::read(&[0xa2, 0x00, 0x01, 0x01, 0x80]), Err(Rejection::UnknownKind));
    assert_eq!(Fact::read(&[0xa1, 0x01, 0x02]), Err(Rejection::Undecodable));
}

// ------------------------------------------------------------------------------------------------ EV.4

#[test]
fn an_action_is_sealed_until_it_expires() {
    rule!(holds, "EV.4");
    let mut thread = Thread::new();
    let signed = thread.signed("in time");
    let expires = read_action(&signed).unwrap().expires_at;
    thread.hall.now = expires.before(Duration(1));
    let candidate = thread.candidate(&signed);
    assert!(thread.hall.sequence(candidate).is_ok());
}

#[test]
fn event_refusal_an_expired_action_is_not_sealed() {
    rule!(refused, "EV.4");
    let mut thread = Thread::new();
    let signed = thread.signed("too late");
    thread.hall.now = read_action(&signed).unwrap().expires_at;
    thread.refused(&signed, Code::ActionExpired);
    thread.hall.now = thread.hall.now.after(Duration::days(1));
    thread.refused(&signed, Code::ActionExpired);
}

#[test]
fn an_action_is_valid_for_90_days_at_most() {
    rule!(holds, "EV.4");
    rule!(refused, "EV.4");
    let mut thread = Thread::new();
    let key = thread.hall.instance(&thread.alice).signing;
    let mut action = read_action(&thread.signed("x")).unwrap();
    action.expires_at = action.issued_at.after(ACTION_VALIDITY_MAX).after(Duration(1));
    thread.refused(&sign(&action, &key), Code::ActionExpired);
    action.expires_at = action.issued_at.after(ACTION_VALIDITY_MAX);
    let candidate = thread.candidate(&sign(&action, &key));
    assert!(thread.hall.sequence(candidate).is_ok());
}

// ------------------------------------------------------------------------------------------------ EV.5

#[test]
fn event_normal_an_action_is_delivered_and_answered_with_its_receipt() {
    rule!(holds, "EV.5", "L3.1");
    let mut thread = Thread::new();
    let post = json!({"thread": thread.thread, "text": "once", "idempotency_key": "k"});
    let first = thread.hall.ok(&thread.alice, "entry_post", post.clone());
    let before = thread.hall.trace();
    thread.hall.restart();
    let again = thread.hall.ok(&thread.alice, "entry_post", post);
    assert_eq!(first["receipt"], again["receipt"]);
    assert_eq!(thread.hall.trace(), before);
}

#[test]
fn event_concurrency_the_same_signed_action_twice_has_one_effect() {
    rule!(refused, "EV.5");
    let mut thread = Thread::new();
    let signed = thread.signed("once");
    let candidate = thread.candidate(&signed);
    let sealed = thread.hall.sequence(candidate).unwrap();
    thread.refused(&signed, Code::BadReference);
    // Late, and after more was said.
    thread.hall.post(&thread.bob, &thread.thread, json!({}));
    thread.hall.advance(Duration::days(2));
    thread.refused(&signed, Code::BadReference);
    // In a further attempt of the same request.
    let mut action = read_action(&signed).unwrap();
    action.attempt += 1;
    let attempt = sign(&action, &thread.hall.instance(&thread.alice).signing);
    thread.refused(&attempt, Code::BadReference);
    let sealing = (0..thread.log().facts.len()).filter(|at| {
        log::action_of(&thread.log().fact(*at)).is_some_and(|sealed| sealed.request() == action.request())
    });
    assert_eq!(sealing.collect::<Vec<_>>(), [sealed.index as usize]);
}

#[test]
fn event_concurrency_actions_that_come_out_of_order_are_sealed_once_each() {
    rule!(holds, "EV.5");
    let mut thread = Thread::new();
    let (first, second) = (thread.signed("first"), thread.signed("second"));
    for signed in [&second, &first] {
        let candidate = thread.candidate(signed);
        thread.hall.sequence(candidate).unwrap();
    }
    for signed in [&first, &second] {
        thread.refused(signed, Code::BadReference);
    }
    let shown = thread.hall.ok(&thread.bob, "thread_get", json!({"thread": thread.thread}));
    assert_eq!(shown["result"]["entries"].as_array().unwrap().len(), 2);
}

#[test]
fn event_concurrency_a_fact_that_was_folded_is_not_folded_again() {
    rule!(refused, "EV.5");
    let thread = Thread::new();
    let log = thread.log();
    for fact in &log.facts {
        let why = log.rejects(log.facts.len(), fact);
        assert_eq!(why, kwoon_ledger::replica::FoldError::Rejected(Rejection::Chain));
    }
}

// ------------------------------------------------------------------------------------------------ EV.6

#[test]
fn a_log_is_ordered_by_itself_and_folds_without_any_other() {
    rule!(holds, "EV.6");
    let mut thread = Thread::new();
    let other = thread.hall.thread(&thread.alice, &[]);
    for said in ["a", "b", "c"] {
        thread.hall.post(&thread.alice, &thread.thread, json!({"text": said, "ask": []}));
        thread.hall.post(&thread.alice, &other, json!({"text": said}));
    }
    for id in [&thread.thread, &other, &thread.alice.id] {
        let log = Log::of(&thread.hall, id);
        let indexes: Vec<_> = (0..log.facts.len()).map(|at| log.fact(at).index).collect();
        assert_eq!(indexes, (0..log.facts.len() as u64).collect::<Vec<_>>());
        assert_eq!(log.head().digest.to_string(), thread.hall.digest(id).1);
    }
}

#[test]
fn a_log_takes_nothing_that_builds_on_anothers_order() {
    rule!(refused, "EV.6");
    let mut thread = Thread::new();
    let other = thread.hall.thread(&thread.alice, &[]);
    let elsewhere = Log::of(&thread.hall, &other).head();
    let mut action = read_action(&thread.signed("x")).unwrap();
    action.position = Some(Position { epoch: 0, index: elsewhere.index, head: elsewhere.hash });
    let signed = sign(&action, &thread.hall.instance(&thread.alice).signing);
    thread.refused(&signed, Code::BadReference);
}

// ------------------------------------------------------------------------------------------------ CO.1, CO.2

#[test]
fn every_record_states_its_version() {
    rule!(holds, "CO.1");
    let thread = Thread::new();
    for ((table, _), value) in thread.hall.trace() {
        if table == Table::Log {
            check_schema(&value).unwrap();
            if let Cause::Action(signed) = Fact::read(&value).unwrap().cause {
                check_schema(cose::payload(RecordKind::Action, &signed).unwrap()).unwrap();
            }
        }
    }
}

#[test]
fn a_sequencer_refuses_an_action_with_a_field_that_it_does_not_know() {
    rule!(refused, "CO.2", "CO.1");
    let mut thread = Thread::new();
    let payload = with_later_field(&thread.signed("x"));
    let signed = ByteVec::from(cose::sign(RecordKind::Action, &payload, &thread.hall.instance(&thread.alice).signing));
    assert!(read_action(&signed).is_ok());
    assert_eq!(read_action_strict(&signed), Err(Rejection::UnknownVersion));
    thread.refused(&signed, Code::UnsupportedVersion);
}

#[test]
fn a_replica_keeps_an_action_with_a_field_that_it_does_not_know() {
    rule!(holds, "CO.1", "CO.2");
    let mut thread = Thread::new();
    thread.hall.post(&thread.alice, &thread.thread, json!({}));
    let mut log = thread.log();
    // A later sequencer knows the field, and sealed the action as it is.
    let at = log.facts.len() - 1;
    let mut fact = log.fact(at);
    let Cause::Action(signed) = &fact.cause else { panic!("an action") };
    let payload = with_later_field(signed);
    let signed = ByteVec::from(cose::sign(RecordKind::Action, &payload, &thread.hall.instance(&thread.alice).signing));
    fact.cause = Cause::Action(signed.clone());
    log.facts[at] = cbor::write(&fact);
    let folded = log.folded();
    let kept = Fact::read(&log::fact_bytes(&folded, log.number, at as u64).unwrap()).unwrap();
    assert_eq!(kept.cause, Cause::Action(signed));
}

#[test]
fn every_operation_refuses_an_argument_that_it_does_not_know() {
    rule!(refused, "CO.2");
    let mut thread = Thread::new();
    for operation in ALL {
        let caller = if operation.who == Who::Agent { thread.alice.clone() } else { owner() };
        let arguments = json!({"no_such_argument": 1});
        let error = thread.hall.refused(&caller, operation.name, arguments, "invalid_argument");
        assert!(error["details"]["field"].is_string(), "{}: {error:#}", operation.name);
    }
}

#[test]
fn null_is_as_good_as_left_out() {
    rule!(holds, "CO.2");
    let mut thread = Thread::new();
    let create = json!({"text": "x", "title": null, "idempotency_key": "k"});
    let first = thread.hall.ok(&thread.alice, "memory_create", create);
    let again = thread.hall.ok(&thread.alice, "memory_create", json!({"text": "x", "idempotency_key": "k"}));
    assert_eq!(first["receipt"], again["receipt"]);
}
