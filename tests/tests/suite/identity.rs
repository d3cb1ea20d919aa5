//! Agents and their identities (section 4, contract identity).

use kwoon_keys::{Digest, KeyPair, RecordKind, SealedBoxKey, cbor, cose};
use kwoon_ledger::action::{Action, Actor, Body, ObjectId, SCHEMA};
use kwoon_ledger::fact::Cause;
use kwoon_ledger::identity::{Change, Consent, Instance, OwnerChange, ProfileChange, Status};
use kwoon_ledger::limits::Limits;
use kwoon_ledger::refusal::{Code, Stop};
use kwoon_ledger::time::Duration;
use kwoon_tests::forge::{Log, post, record, records, sign, status, stranger};
use kwoon_tests::{Agent, Hall, owner, rule, text};
use minicbor::bytes::ByteVec;
use serde_json::{Value, json};

/// What the owner sees of an agent.
fn shown(hall: &mut Hall, agent: &Agent, version: Option<u64>) -> Value {
    hall.ok(&owner(), "agent_get", json!({"agent": agent.id, "version": version}))["result"].clone()
}

/// A text of an answer that points to it by this field.
fn content(answer: &Value, field: &str) -> String {
    text(&answer["content"][text(&answer["result"][field])]["text"])
}

/// Gives the sequencer a record that must be refused with this code, without trace.
fn record_refused(hall: &mut Hall, agent: &Agent, signed: ByteVec, code: Code) {
    let candidate = Log::of(hall, &agent.id).candidate(signed);
    let before = hall.trace();
    match hall.sequence(candidate) {
        Err(Stop::Refused(refusal)) => assert_eq!(refusal.code, code),
        other => panic!("must be refused: {other:?}"),
    }
    assert_eq!(hall.trace(), before, "a refusal leaves no trace");
}

fn seal_record(hall: &mut Hall, agent: &Agent, signed: ByteVec) {
    let candidate = Log::of(hall, &agent.id).candidate(signed);
    hall.sequence(candidate).expect("a good record");
}

// ------------------------------------------------------------------------------------------------ A1 to A3, A5

#[test]
fn only_an_active_agent_acts_and_a_reactivated_one_acts_again() {
    rule!(holds, "A1");
    rule!(refused, "A1");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&bob, &[&alice]);
    let entry = hall.post(&bob, &thread, json!({"ask": [alice.id]}));
    let memory = hall.ok(&alice, "memory_create", json!({"text": "x"}))["result"]["memory"].clone();
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    for (operation, arguments) in [
        ("memory_create", json!({"text": "x"})),
        ("memory_publish", json!({"memory": memory})),
        ("thread_create", json!({})),
        ("thread_leave", json!({"thread": thread})),
        ("entry_post", json!({"thread": thread, "text": "x"})),
        ("entry_handle", json!({"thread": thread, "entry": entry})),
    ] {
        hall.refused(&alice, operation, arguments, "agent_inactive");
    }
    hall.ok(&owner(), "agent_reactivate", json!({"agent": alice.id}));
    hall.ok(&alice, "memory_publish", json!({"memory": memory}));
}

#[test]
fn an_inactive_agent_reads_on() {
    rule!(holds, "A1");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let memory =
        hall.ok(&alice, "memory_create", json!({"text": "x", "idempotency_key": "k"}))["result"]["memory"].clone();
    hall.ok(&owner(), "agent_terminate", json!({"agent": alice.id}));
    hall.ok(&alice, "turn", json!({}));
    hall.ok(&alice, "memory_get", json!({"memory": memory}));
    hall.ok(&alice, "receipt_get", json!({"operation": "memory_create", "key": "k"}));
    assert_eq!(hall.ok(&alice, "agent_get", json!({}))["result"]["state"], "terminated");
    // A repeat of what had succeeded still gives its receipt (L3.1).
    hall.ok(&alice, "memory_create", json!({"text": "x", "idempotency_key": "k"}));
}

#[test]
fn a_deactivation_erases_nothing_that_the_agent_said_and_did() {
    rule!(holds, "A2");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    let entry = hall.post(&bob, &thread, json!({"text": "as I said", "ask": []}));
    let work = hall.assign(&alice, &thread, &bob, json!({}));
    hall.ok(&bob, "assignment_take", json!({"assignment": work, "output": {"text": "done"}}));
    let facts = Log::of(&hall, &thread).facts;
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    assert_eq!(Log::of(&hall, &thread).facts[..facts.len()], facts);
    let said = hall.ok(&alice, "entry_get", json!({"thread": thread, "entry": entry}));
    assert_eq!((&said["result"]["author"], content(&said, "text_content").as_str()), (&json!(bob.id), "as I said"));
    let delivered = hall.ok(&alice, "assignment_get", json!({"assignment": work}))["result"].clone();
    assert_eq!((&delivered["state"], &delivered["assignee"]), (&json!("delivered"), &json!(bob.id)));
    hall.ok(&alice, "assignment_accept", json!({"assignment": work}));
}

#[test]
fn no_operation_erases_an_agent() {
    rule!(impossible, "A2"; "no operation, action or fact removes a fact; the last thing said of an agent is its status");
    let names = kwoon_sync::operations::ALL.iter().map(|operation| operation.name);
    assert_eq!(names.filter(|name| name.contains("delete") || name.contains("erase")).count(), 0);
}

#[test]
fn a_deactivation_is_one_fact_in_the_identity_and_one_in_each_thread() {
    rule!(holds, "A3", "C1");
    for (operation, state) in [("agent_deactivate", "deactivated"), ("agent_terminate", "terminated")] {
        let mut hall = Hall::new();
        let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
        let threads = [hall.thread(&alice, &[&bob]), hall.thread(&alice, &[&bob]), hall.thread(&alice, &[])];
        let before = threads.clone().map(|thread| Log::of(&hall, &thread).facts.len());
        hall.ok(&owner(), operation, json!({"agent": bob.id}));
        assert_eq!(shown(&mut hall, &bob, None)["state"], state);
        let added = [0, 1, 2].map(|at| Log::of(&hall, &threads[at]).facts.len() - before[at]);
        assert_eq!(added, [1, 1, 0]);
        let Cause::Account(agent, news) = Log::of(&hall, &threads[0]).fact(before[0]).cause else {
            panic!("an account")
        };
        assert_eq!((agent, news), (bob.full_id(), records(&hall, &bob)[1..].to_vec()));
        let members = hall.ok(&alice, "member_list", json!({"thread": threads[0]}));
        assert_eq!(members["result"]["members"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_deactivation_reaches_all_of_many_threads_at_once() {
    rule!(holds, "A3", "L2.1");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let count = 150;
    for _ in 0..count {
        hall.thread(&alice, &[&bob]);
    }
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    assert_eq!(hall.ok(&bob, "thread_list", json!({}))["result"]["threads"], json!([]));
    // The other direction closes them all.
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    let objects = kwoon_ledger::log::objects(&hall.snapshot(), 0, usize::MAX).unwrap();
    let threads = objects.iter().filter(|(_, object)| matches!(object, ObjectId::Thread(_)));
    let snapshot = hall.snapshot();
    let closed =
        threads.filter(|(number, _)| kwoon_ledger::state::Cells::new(&snapshot, *number).thread().unwrap().closed);
    assert_eq!(closed.count(), count);
}

#[test]
fn a_reactivated_agent_is_no_member_any_more() {
    rule!(refused, "A3", "T2.7");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    hall.ok(&owner(), "agent_reactivate", json!({"agent": bob.id}));
    hall.refused(&bob, "entry_post", json!({"thread": thread, "text": "x"}), "not_found");
}

#[test]
fn an_open_thread_closes_in_the_fact_that_takes_its_last_governor() {
    rule!(holds, "A5");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    let before = Log::of(&hall, &thread).facts.len();
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    assert_eq!(Log::of(&hall, &thread).facts.len(), before + 1);
    assert_eq!(hall.ok(&bob, "thread_get", json!({"thread": thread}))["result"]["state"], "closed");
}

#[test]
fn a_thread_that_lost_its_last_governor_does_not_open_again() {
    rule!(refused, "A5", "T5.1");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    hall.ok(&owner(), "agent_reactivate", json!({"agent": alice.id}));
    hall.refused(&bob, "entry_post", json!({"thread": thread, "text": "x"}), "thread_closed");
    hall.refused(&alice, "entry_post", json!({"thread": thread, "text": "x"}), "not_found");
}

#[test]
fn setting_the_status_that_is_held_is_refused() {
    rule!(refused, "L2.4", "ID.1");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let agent = json!({"agent": alice.id});
    hall.refused(&owner(), "agent_reactivate", agent.clone(), "no_change");
    hall.ok(&owner(), "agent_deactivate", agent.clone());
    hall.refused(&owner(), "agent_deactivate", agent.clone(), "no_change");
}

// ------------------------------------------------------------------------------------------------ ID.1

#[test]
fn identity_normal_an_agent_is_made_and_read() {
    rule!(holds, "ID.1");
    let mut hall = Hall::new();
    let first = hall.agent("first");
    let made = hall.ok(
        &owner(),
        "agent_create",
        json!({"name": "second", "display_name": "The Second", "mission": "to follow", "predecessor": first.id,
               "policy_refs": [{"policy": "be kind", "version": 3}]}),
    );
    let second = hall.known(&made["result"]["agent"]);
    let answer = hall.ok(&second, "agent_get", json!({}));
    let result = &answer["result"];
    assert_eq!((&result["agent"], &result["state"]), (&json!(second.id), &json!("active")));
    assert_eq!((&result["version"], &result["current_version"]), (&json!(1), &json!(1)));
    assert_eq!(result["owner"], hall.key("owner").public().to_string());
    assert_eq!(result["home_host"], hall.key("host").public().to_string());
    assert_eq!(result["created_at"], "2026-11-30T12:00:00.000Z");
    assert_eq!(result["predecessor"], first.id);
    assert_eq!(result["full_id"], second.full_id().0.to_string());
    assert_eq!(result["instances"].as_array().unwrap().len(), 1);
    assert_eq!(content(&answer, "mission_content"), "to follow");
    assert_eq!(content(&answer, "display_name_content"), "The Second");
    assert_eq!(result["policy_refs"][0]["version"], 3);
}

#[test]
fn an_agents_id_is_the_hash_of_its_first_record() {
    rule!(holds, "ID.1", "ID.2");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let payload = cose::payload(RecordKind::Action, &records(&hall, &alice)[0]).unwrap().to_vec();
    assert_eq!(kwoon_ledger::rules::identity::record_hash(&payload), alice.full_id().0);
}

#[test]
fn identity_refusal_an_owner_that_did_not_consent_is_refused() {
    rule!(refused, "ID.1", "ID.4");
    let mut hall = Hall::new();
    let mut other = Hall::seeded([8; 32], Limits::DEFAULT);
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let id = |hall: &mut Hall, agent: &Agent| text(&shown(hall, agent, None)["full_id"]);
    let (alices, bobs) = (id(&mut hall, &alice), id(&mut hall, &bob));
    let mut consent = |full_id: &str, version: u64| {
        let answer = other.ok(&owner(), "agent_consent", json!({"full_id": full_id, "version": version}));
        (text(&answer["result"]["owner"]), text(&answer["result"]["consent"]))
    };
    let (key, good) = consent(&alices, 2);
    let nobody = stranger().public().to_string();
    for (owner_key, consent) in [
        (key.clone(), consent(&bobs, 2).1),
        (key.clone(), consent(&alices, 3).1),
        (nobody, good.clone()),
        (key.clone(), String::new()),
        ("00".repeat(32), good.clone()),
    ] {
        let change =
            json!({"agent": alice.id, "expected_version": 1, "owner": {"owner": owner_key, "consent": consent}});
        hall.refused(&owner(), "agent_update", change, "owner_required");
    }
    for (owner_key, consent) in [("short".to_owned(), good.clone()), (key, "not hex".to_owned())] {
        let change =
            json!({"agent": alice.id, "expected_version": 1, "owner": {"owner": owner_key, "consent": consent}});
        hall.refused(&owner(), "agent_update", change, "invalid_argument");
    }
}

#[test]
fn an_owner_with_a_weak_key_is_refused() {
    rule!(refused, "ID.1");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    // The neutral element of the curve: anything "verifies" under it where weak keys are let in.
    let mut weak = [0; 32];
    weak[0] = 1;
    let weak = kwoon_keys::PublicKey(weak);
    let consent = Consent { schema: SCHEMA, agent: alice.full_id(), version: 2, owner: weak };
    let consent = cose::sign(RecordKind::Consent, &cbor::write(&consent), &stranger());
    let owner = Some(OwnerChange { owner: weak, consent: consent.into() });
    let change = Change::Profile(ProfileChange { owner, ..ProfileChange::default() });
    let signed = sign(&record(&hall, &alice, change), &hall.key("owner"));
    record_refused(&mut hall, &alice, signed, Code::OwnerRequired);
}

#[test]
fn termination_is_final_and_the_status_says_so() {
    rule!(holds, "ID.1");
    rule!(refused, "ID.1", "ID.2");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let agent = json!({"agent": alice.id});
    hall.ok(&owner(), "agent_terminate", json!({"agent": alice.id, "reason": "the work is done"}));
    let answer = hall.ok(&owner(), "agent_get", agent.clone());
    assert_eq!(answer["result"]["state"], "terminated");
    assert_eq!(content(&answer, "reason_content"), "the work is done");
    for operation in ["agent_reactivate", "agent_deactivate", "agent_terminate"] {
        hall.refused(&owner(), operation, agent.clone(), "already_final");
    }
    let update = json!({"agent": alice.id, "expected_version": 2, "mission": "another life"});
    hall.refused(&owner(), "agent_update", update, "already_final");
    hall.refused(&alice, "memory_create", json!({"text": "x"}), "agent_inactive");
}

// ------------------------------------------------------------------------------------------------ ID.2

#[test]
fn agents_that_are_made_alike_are_different_agents() {
    rule!(holds, "ID.2");
    let (mut hall, mut other) = (Hall::new(), Hall::seeded([8; 32], Limits::DEFAULT));
    let ids = [hall.agent("alice").id, hall.agent("bob").id, other.agent("alice").id];
    assert!(ids[0] != ids[1] && ids[0] != ids[2] && ids[1] != ids[2]);
}

#[test]
fn an_id_is_not_used_again_after_its_agent_terminated() {
    rule!(refused, "ID.2", "EV.5");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let genesis = records(&hall, &alice).remove(0);
    record_refused(&mut hall, &alice, genesis.clone(), Code::BadReference);
    hall.ok(&owner(), "agent_terminate", json!({"agent": alice.id}));
    record_refused(&mut hall, &alice, genesis, Code::BadReference);
    assert_eq!(shown(&mut hall, &alice, None)["state"], "terminated");
}

#[test]
fn a_name_on_a_host_is_taken_once_and_for_all() {
    rule!(refused, "ID.2");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    hall.refused(&owner(), "agent_create", json!({"name": "alice"}), "name_taken");
    hall.ok(&owner(), "agent_terminate", json!({"agent": alice.id}));
    hall.refused(&owner(), "agent_create", json!({"name": "alice"}), "name_taken");
    // The owner's token lies beside the agents', under this name.
    hall.refused(&owner(), "agent_create", json!({"name": "owner"}), "name_taken");
    for name in ["", "Alice", "-a", "a/b", "..", "a b", &"a".repeat(64)] {
        hall.refused(&owner(), "agent_create", json!({"name": name}), "invalid_argument");
    }
}

#[test]
fn a_repeated_creation_makes_no_second_agent() {
    rule!(holds, "L3.1", "ID.2");
    let mut hall = Hall::new();
    let create = json!({"name": "alice", "idempotency_key": "k"});
    let first = hall.ok(&owner(), "agent_create", create.clone());
    let again = hall.ok(&owner(), "agent_create", create);
    assert_eq!(first["receipt"], again["receipt"]);
    assert!(again["secret"].is_null(), "a repeat shows no secret");
    hall.refused(&owner(), "agent_create", json!({"name": "bob", "idempotency_key": "k"}), "idempotency_conflict");
}

// ------------------------------------------------------------------------------------------------ ID.3

#[test]
fn every_version_of_an_identity_can_be_read_back() {
    rule!(holds, "ID.3", "L1.2");
    let mut hall = Hall::new();
    let made = hall.ok(&owner(), "agent_create", json!({"name": "alice", "mission": "first"}));
    let alice = hall.known(&made["result"]["agent"]);
    let update =
        |version: u64, mission: &str| json!({"agent": alice.id, "expected_version": version, "mission": mission});
    let updated = hall.ok(&owner(), "agent_update", update(1, "second"));
    assert_eq!(updated["result"]["version"], 2);
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id, "reason": "a rest"}));
    hall.ok(&owner(), "agent_update", update(3, "third"));
    hall.ok(&owner(), "agent_reactivate", json!({"agent": alice.id}));
    for (version, mission, state) in [
        (1, "first", "active"),
        (2, "second", "active"),
        (3, "second", "deactivated"),
        (4, "third", "deactivated"),
        (5, "third", "active"),
    ] {
        let answer = hall.ok(&alice, "agent_get", json!({"version": version}));
        assert_eq!(content(&answer, "mission_content"), mission);
        assert_eq!(answer["result"]["state"], state);
        assert_eq!((&answer["result"]["version"], &answer["result"]["current_version"]), (&json!(version), &json!(5)));
    }
    hall.refused(&alice, "agent_get", json!({"version": 6}), "not_found");
    hall.refused(&alice, "agent_get", json!({"version": 0}), "not_found");
}

#[test]
fn the_records_form_a_chain_that_verifies_without_any_seal() {
    rule!(holds, "ID.3", "ID.4");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    hall.ok(&owner(), "agent_reactivate", json!({"agent": alice.id}));
    let chain = records(&hall, &alice);
    let standing = kwoon_ledger::rules::identity::follow_all(None, &chain).unwrap();
    assert_eq!((standing.agent, standing.account.version), (alice.full_id(), 3));
    for broken in [&chain[1..], &[chain[0].clone(), chain[2].clone()], &[chain[1].clone()]] {
        assert!(kwoon_ledger::rules::identity::follow_all(None, broken).is_err());
    }
}

#[test]
fn a_record_that_does_not_follow_on_the_present_one_is_refused() {
    rule!(refused, "ID.3", "ID.7");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let key = hall.key("owner");
    let good = record(&hall, &alice, status(Status::Deactivated));
    let Body::AgentChange(change) = &good.body else { panic!("a change") };
    for (version, previous) in [(3, change.previous), (1, change.previous), (2, Digest::of("another", &[]))] {
        let change = kwoon_ledger::identity::IdentityChange { version, previous, ..change.clone() };
        let action = Action { body: Body::AgentChange(change), ..good.clone() };
        record_refused(&mut hall, &alice, sign(&action, &key), Code::VersionConflict);
    }
    let nothing = record(&hall, &alice, Change::Profile(ProfileChange::default()));
    record_refused(&mut hall, &alice, sign(&nothing, &key), Code::NoChange);
}

// ------------------------------------------------------------------------------------------------ ID.4

#[test]
fn a_change_stands_on_the_owners_signature_over_exactly_that_change() {
    rule!(holds, "ID.4");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    hall.ok(&owner(), "agent_update", json!({"agent": alice.id, "expected_version": 1, "mission": "to help"}));
    let signed = records(&hall, &alice).remove(1);
    assert!(cose::verify(RecordKind::Action, &signed, &hall.key("owner").public()).is_ok());
}

#[test]
fn nobody_but_the_owner_changes_an_agent() {
    rule!(refused, "ID.4");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    for caller in [&alice, &bob] {
        let update = json!({"agent": alice.id, "expected_version": 1, "mission": "to rule"});
        hall.refused(caller, "agent_update", update, "owner_required");
        for operation in ["agent_deactivate", "agent_reactivate", "agent_terminate"] {
            hall.refused(caller, operation, json!({"agent": bob.id}), "owner_required");
        }
        hall.refused(caller, "agent_create", json!({"name": "mine"}), "owner_required");
    }
}

#[test]
fn a_record_signed_by_an_instance_or_a_stranger_is_refused() {
    rule!(refused, "ID.4");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let good = record(&hall, &alice, status(Status::Terminated));
    record_refused(&mut hall, &alice, sign(&good, &stranger()), Code::Unauthenticated);
    let theirs = Action { actor: Actor::Owner(stranger().public()), ..good.clone() };
    record_refused(&mut hall, &alice, sign(&theirs, &stranger()), Code::OwnerRequired);
    let body = good.body.clone();
    let own = Log::of(&hall, &alice.id).action(&hall, &alice, body);
    let key = hall.instance(&alice).signing;
    record_refused(&mut hall, &alice, sign(&own, &key), Code::BadReference);
}

#[test]
fn a_new_owner_takes_over_with_its_consent() {
    rule!(holds, "ID.1", "ID.4");
    let (mut hall, mut other) = (Hall::new(), Hall::seeded([8; 32], Limits::DEFAULT));
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let id = text(&shown(&mut hall, &alice, None)["full_id"]);
    let consent = other.ok(&owner(), "agent_consent", json!({"full_id": id, "version": 2}))["result"].clone();
    hall.ok(&owner(), "agent_update", json!({"agent": alice.id, "expected_version": 1, "owner": consent}));
    assert_eq!(shown(&mut hall, &alice, None)["owner"], other.key("owner").public().to_string());
    assert_eq!(shown(&mut hall, &alice, Some(1))["owner"], hall.key("owner").public().to_string());
    // The agent acts on, and what the new owner signs is sealed.
    hall.ok(&alice, "memory_create", json!({"text": "x"}));
    let mut news = record(&hall, &alice, status(Status::Deactivated));
    news.actor = Actor::Owner(other.key("owner").public());
    seal_record(&mut hall, &alice, sign(&news, &other.key("owner")));
    assert_eq!(shown(&mut hall, &alice, None)["state"], "deactivated");
    let owned = hall.ok(&owner(), "agent_list", json!({}))["result"]["agents"].as_array().unwrap().clone();
    assert_eq!(owned.iter().map(|agent| text(&agent["agent"])).collect::<Vec<_>>(), [bob.id]);
}

#[test]
fn an_owner_that_gave_an_agent_away_has_no_say_any_more() {
    rule!(refused, "ID.1", "ID.4");
    let (mut hall, mut other) = (Hall::new(), Hall::seeded([8; 32], Limits::DEFAULT));
    let alice = hall.agent("alice");
    let id = text(&shown(&mut hall, &alice, None)["full_id"]);
    let consent = other.ok(&owner(), "agent_consent", json!({"full_id": id, "version": 2}))["result"].clone();
    hall.ok(&owner(), "agent_update", json!({"agent": alice.id, "expected_version": 1, "owner": consent}));
    for operation in ["agent_deactivate", "agent_terminate", "agent_reactivate"] {
        hall.refused(&owner(), operation, json!({"agent": alice.id}), "owner_required");
    }
    let update = json!({"agent": alice.id, "expected_version": 2, "mission": "mine"});
    hall.refused(&owner(), "agent_update", update, "owner_required");
    // A record of its own making is worth nothing either.
    let news = sign(&record(&hall, &alice, status(Status::Terminated)), &hall.key("owner"));
    record_refused(&mut hall, &alice, news, Code::OwnerRequired);
}

// ------------------------------------------------------------------------------------------------ ID.5

#[test]
fn a_successor_names_its_predecessor_and_is_another_agent() {
    rule!(holds, "ID.5");
    let mut hall = Hall::new();
    let old = hall.agent("old");
    let made = hall.ok(&owner(), "agent_create", json!({"name": "new", "predecessor": old.id}));
    let new = hall.known(&made["result"]["agent"]);
    assert_eq!(shown(&mut hall, &new, None)["predecessor"], old.id);
    assert_eq!(shown(&mut hall, &old, None)["predecessor"], Value::Null);
    let absent = json!({"name": "third", "predecessor": "agt_aaaaaaaaaaaaaaaaaaaaaaaaaa"});
    hall.refused(&owner(), "agent_create", absent, "not_found");
}

#[test]
fn a_successor_inherits_no_memory_membership_work_or_receipt() {
    rule!(refused, "ID.5", "C3");
    let mut hall = Hall::new();
    let (old, peer) = (hall.agent("old"), hall.agent("peer"));
    let thread = hall.thread(&peer, &[&old]);
    hall.post(&peer, &thread, json!({"ask": [old.id]}));
    let work = hall.assign(&peer, &thread, &old, json!({}));
    hall.ok(&old, "assignment_take", json!({"assignment": work}));
    let created = hall.ok(&old, "memory_create", json!({"text": "mine", "idempotency_key": "k"}));
    let memory = &created["result"]["memory"];
    let made = hall.ok(&owner(), "agent_create", json!({"name": "new", "predecessor": old.id}));
    let new = hall.known(&made["result"]["agent"]);
    assert_eq!(hall.turn(&new), []);
    assert_eq!(hall.ok(&new, "memory_list", json!({}))["result"]["memories"], json!([]));
    for (operation, arguments) in [
        ("memory_get", json!({"memory": memory})),
        ("thread_get", json!({"thread": thread})),
        ("entry_post", json!({"thread": thread, "text": "x"})),
        ("assignment_deliver", json!({"assignment": work, "output": {"text": "x"}})),
        ("memory_withdraw", json!({"memory": memory})),
        ("agent_get", json!({"agent": old.id})),
        ("receipt_get", json!({"id": created["receipt"]["id"]})),
        ("receipt_get", json!({"operation": "memory_create", "key": "k"})),
    ] {
        hall.refused(&new, operation, arguments, "not_found");
    }
}

// ------------------------------------------------------------------------------------------------ ID.6

/// A further instance of an agent, on a host of its own.
fn further(seed: u8) -> (KeyPair, Instance) {
    let signing = KeyPair::from_seed(&[seed; 32]);
    let encryption_key = SealedBoxKey::from_seed([seed; 32]).public();
    let host = KeyPair::from_seed(&[seed + 1; 32]).public();
    (signing.clone(), Instance { signing_key: signing.public(), encryption_key, host })
}

#[test]
fn an_instance_that_the_owner_added_acts_for_the_agent() {
    rule!(holds, "ID.6");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let thread = hall.thread(&alice, &[]);
    let (key, instance) = further(0x31);
    let added = record(&hall, &alice, Change::InstanceAdded(instance, ByteVec::from(vec![1, 2, 3])));
    let added = sign(&added, &hall.key("owner"));
    seal_record(&mut hall, &alice, added);
    let ids = shown(&mut hall, &alice, None)["instances"].clone();
    assert_eq!(ids.as_array().unwrap().len(), 2);
    assert_ne!(ids[0]["instance"], ids[1]["instance"]);
    let log = Log::of(&hall, &thread);
    let mut action = log.action(&hall, &alice, post("from afar"));
    action.actor = Actor::Agent(alice.full_id(), instance.id());
    hall.sequence(log.candidate(sign(&action, &key))).unwrap();
    let entry = hall.ok(&alice, "entry_get", json!({"thread": thread, "entry": 1}));
    assert_eq!(entry["result"]["author"], alice.id);
}

#[test]
fn an_instance_that_was_revoked_acts_no_more_and_stays_in_the_chain() {
    rule!(refused, "ID.6");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let thread = hall.thread(&alice, &[]);
    let (key, instance) = further(0x31);
    for change in
        [Change::InstanceAdded(instance, ByteVec::from(Vec::new())), Change::InstanceRevoked(instance.id(), Vec::new())]
    {
        let signed = sign(&record(&hall, &alice, change), &hall.key("owner"));
        seal_record(&mut hall, &alice, signed);
    }
    let log = Log::of(&hall, &thread);
    let mut action = log.action(&hall, &alice, post("from afar"));
    action.actor = Actor::Agent(alice.full_id(), instance.id());
    let before = hall.trace();
    let refused = hall.sequence(log.candidate(sign(&action, &key)));
    assert_eq!(refused, Err(Stop::Refused(Code::Unauthenticated.into())));
    assert_eq!(hall.trace(), before);
    assert_eq!(shown(&mut hall, &alice, Some(2))["instances"].as_array().unwrap().len(), 2);
    hall.ok(&alice, "memory_create", json!({"text": "the first one acts on"}));
}

#[test]
fn a_host_whose_own_instance_was_revoked_acts_for_the_agent_no_more() {
    rule!(refused, "ID.6");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let (_, instance) = further(0x31);
    let own = kwoon_tests::forge::instance_id(&hall, &alice);
    for change in [Change::InstanceAdded(instance, ByteVec::from(Vec::new())), Change::InstanceRevoked(own, Vec::new())]
    {
        let signed = sign(&record(&hall, &alice, change), &hall.key("owner"));
        seal_record(&mut hall, &alice, signed);
    }
    hall.refused(&alice, "memory_create", json!({"text": "x"}), "agent_inactive");
}

#[test]
fn instances_that_are_known_unknown_weak_or_too_many_are_refused() {
    rule!(refused, "ID.6");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let key = hall.key("owner");
    let (_, instance) = further(0x31);
    let none = Change::InstanceRevoked(instance.id(), Vec::new());
    let signed = sign(&record(&hall, &alice, none), &key);
    record_refused(&mut hall, &alice, signed, Code::NotFound);
    let added = |hall: &Hall, instance| {
        sign(&record(hall, &alice, Change::InstanceAdded(instance, ByteVec::from(Vec::new()))), &key)
    };
    let mut weak = instance;
    weak.signing_key.0 = [0; 32];
    let signed = added(&hall, weak);
    record_refused(&mut hall, &alice, signed, Code::CapacityReached);
    for seed in 1..kwoon_ledger::rules::identity::INSTANCES_MAX as u8 {
        let signed = added(&hall, further(seed).1);
        seal_record(&mut hall, &alice, signed);
    }
    for seed in [1, 100] {
        let signed = added(&hall, further(seed).1);
        record_refused(&mut hall, &alice, signed, Code::CapacityReached);
    }
}

// ------------------------------------------------------------------------------------------------ ID.7

#[test]
fn identity_concurrency_of_updates_with_one_expected_version_exactly_one_is_committed() {
    rule!(holds, "ID.7", "L5.1");
    rule!(refused, "ID.7");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let update = |mission: &str| json!({"agent": alice.id, "expected_version": 1, "mission": mission});
    let me = owner();
    let missions = ["one", "two", "three"];
    let answers = hall.round(&missions.map(|mission| (&me, "agent_update", update(mission))));
    assert_eq!(answers.iter().map(|answer| &answer["ok"]).collect::<Vec<_>>(), [true, false, false]);
    for refused in &answers[1..] {
        assert_eq!(refused["error"]["code"], "version_conflict");
    }
    let answer = hall.ok(&me, "agent_get", json!({"agent": alice.id}));
    assert_eq!((&answer["result"]["version"], content(&answer, "mission_content").as_str()), (&json!(2), "one"));
    hall.refused(&me, "agent_update", update("late"), "version_conflict");
    hall.refused(&me, "agent_update", json!({"agent": alice.id, "mission": "x"}), "invalid_argument");
}

#[test]
fn of_two_records_for_one_version_the_second_is_refused_whoever_carries_it() {
    rule!(refused, "ID.7");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let key = hall.key("owner");
    let first = sign(&record(&hall, &alice, status(Status::Deactivated)), &key);
    let second = sign(&record(&hall, &alice, status(Status::Terminated)), &key);
    seal_record(&mut hall, &alice, first);
    hall.advance(Duration::minutes(5));
    record_refused(&mut hall, &alice, second, Code::VersionConflict);
}

#[test]
fn the_last_versions_of_an_identity_are_kept_for_what_ends_it() {
    rule!(holds, "L4.1");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let (me, mut version) = (owner(), 1);
    let refused = loop {
        hall.now = hall.now.after(Duration::minutes(1));
        let update = |version| json!({"agent": alice.id, "expected_version": version, "mission": format!("{version}")});
        let calls: Vec<_> = (version..version + 1000).map(|version| (&me, "agent_update", update(version))).collect();
        let answers = hall.round(&calls);
        let made = answers.iter().filter(|answer| answer["ok"] == true).count();
        version += made as u64;
        if made < answers.len() {
            break answers[made]["error"]["code"].clone();
        }
    };
    assert_eq!(refused, "capacity_reached");
    assert_eq!(version, Limits::MAXIMA.identity_versions_max - kwoon_ledger::limits::IDENTITY_VERSIONS_RESERVED);
    hall.ok(&owner(), "agent_terminate", json!({"agent": alice.id}));
}
