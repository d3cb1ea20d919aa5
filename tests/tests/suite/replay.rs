//! One request, one receipt (L3).

use std::collections::BTreeSet;

use kwoon_ledger::limits::Limits;
use kwoon_ledger::time::Duration;
use kwoon_sync::operations;
use kwoon_tests::{Agent, WITHOUT_RECEIPT, merge, owner, rule, text};
use serde_json::{Value, json};

use crate::Hall;

/// Three agents in a thread.
pub(crate) fn hall() -> (Hall, [Agent; 3], String) {
    hall_with(Limits::DEFAULT)
}

/// The same where only so much is allowed.
pub(crate) fn hall_with(limits: Limits) -> (Hall, [Agent; 3], String) {
    let mut hall = Hall::with_limits(limits);
    let agents = [hall.agent("alice"), hall.agent("bob"), hall.agent("carol")];
    let thread = hall.thread(&agents[0], &[&agents[1], &agents[2]]);
    (hall, agents, thread)
}

/// A call that acted, and its answer.
pub(crate) struct Acted {
    pub(crate) agent: Agent,
    pub(crate) operation: &'static str,
    pub(crate) arguments: Value,
    pub(crate) answer: Value,
}

/// Calls every operation that acts, once each with success and with a key.
pub(crate) fn every_action() -> (Hall, Vec<Acted>) {
    let mut hall = Hall::new();
    let mut acted: Vec<Acted> = Vec::new();
    let mut act = |hall: &mut Hall, agent: &Agent, operation: &'static str, mut arguments: Value| {
        merge(&mut arguments, json!({"idempotency_key": format!("key.{operation}~1")}));
        let answer = hall.ok(agent, operation, arguments.clone());
        acted.push(Acted { agent: agent.clone(), operation, arguments, answer: answer.clone() });
        answer["result"].clone()
    };
    let (alice, bob, carol) = (hall.agent("alice"), hall.agent("bob"), hall.agent("carol"));
    let created = act(&mut hall, &owner(), "agent_create", json!({"name": "dora"}));
    let dora = json!({"agent": created["agent"]});
    let mut update = dora.clone();
    merge(&mut update, json!({"expected_version": 1, "mission": "m"}));
    act(&mut hall, &owner(), "agent_update", update);
    act(&mut hall, &owner(), "agent_deactivate", dora.clone());
    act(&mut hall, &owner(), "agent_reactivate", dora.clone());
    act(&mut hall, &owner(), "agent_terminate", dora);

    let memory = act(&mut hall, &alice, "memory_create", json!({"text": "x"}))["memory"].clone();
    let of_memory = json!({"memory": memory});
    act(&mut hall, &alice, "memory_update", json!({"memory": memory, "text": "y"}));
    act(&mut hall, &alice, "memory_publish", of_memory.clone());
    act(&mut hall, &alice, "memory_unpublish", of_memory.clone());
    act(&mut hall, &alice, "memory_withdraw", of_memory);

    let thread = act(&mut hall, &alice, "thread_create", json!({"admission": {}}))["thread"].clone();
    act(&mut hall, &alice, "admission_issue", json!({"thread": thread}));
    let ticket = hall.ticket(&alice, thread.as_str().unwrap(), "speaker");
    act(&mut hall, &bob, "thread_join", json!({"ticket": ticket}));
    hall.ok(&carol, "thread_join", json!({"ticket": ticket}));
    act(&mut hall, &alice, "admission_void", json!({"thread": thread}));
    act(&mut hall, &alice, "entry_post", json!({"thread": thread, "text": "x", "ask": [bob.id, carol.id]}));
    act(&mut hall, &bob, "entry_handle", json!({"thread": thread, "entry": 1, "note": "n"}));
    act(&mut hall, &alice, "entry_retract", json!({"thread": thread, "entry": 1}));
    let id = thread.as_str().unwrap();
    let terms = json!({"deliver_within": "1h", "judge_within": "1h"});
    let work: Vec<_> = (0..4).map(|_| json!({"assignment": hall.assign(&alice, id, &bob, terms.clone())})).collect();
    act(&mut hall, &bob, "assignment_take", work[0].clone());
    let mut deliver = work[0].clone();
    merge(&mut deliver, json!({"output": {"text": "done"}}));
    act(&mut hall, &bob, "assignment_deliver", deliver);
    act(&mut hall, &alice, "assignment_accept", work[0].clone());
    let returned = hall.delivered(&alice, id, &bob, terms.clone());
    act(&mut hall, &alice, "assignment_return", json!({"assignment": returned, "reason": "r"}));
    hall.ok(&bob, "assignment_take", work[1].clone());
    act(&mut hall, &bob, "assignment_abandon", work[1].clone());
    act(&mut hall, &alice, "assignment_void", work[2].clone());
    hall.ok(&bob, "assignment_take", work[3].clone());
    act(&mut hall, &alice, "member_role", json!({"thread": thread, "agent": carol.id, "role": "observer"}));
    act(&mut hall, &alice, "member_remove", json!({"thread": thread, "agent": carol.id}));
    act(&mut hall, &bob, "thread_leave", json!({"thread": thread}));
    act(&mut hall, &alice, "thread_close", json!({"thread": thread}));
    (hall, acted)
}

/// Repeats every call, and compares with the first answer.
pub(crate) fn assert_replays(hall: &mut Hall, acted: &[Acted]) {
    for Acted { agent, operation, arguments, answer } in acted {
        let before = hall.trace();
        let again = hall.ok(agent, operation, arguments.clone());
        assert_eq!(again["receipt"], answer["receipt"], "{operation}");
        assert_eq!(again["result"], answer["result"], "{operation}");
        assert_eq!(again["standing"], "sealed");
        assert!(again.get("secret").is_none(), "{operation} shows its secret again");
        assert_eq!(hall.trace(), before, "a repeat leaves no trace");
    }
}

#[test]
fn every_repeated_action_gets_its_receipt_whatever_has_become_of_the_object() {
    rule!(holds, "L3.1", "L3.4", "L3.3");
    let (mut hall, acted) = every_action();
    let tried: BTreeSet<_> = acted.iter().map(|acted| acted.operation).collect();
    let acting = operations::ALL.iter().filter(|operation| operation.is_action()).map(|operation| operation.name);
    let untried: Vec<_> = acting.filter(|name| !tried.contains(name)).collect();
    assert_eq!(untried, WITHOUT_RECEIPT);
    assert_replays(&mut hall, &acted);
    hall.restart();
    assert_replays(&mut hall, &acted);
    hall.advance(Duration::minutes(60));
    assert_replays(&mut hall, &acted);
    let actors = acted.iter().filter(|acted| acted.agent != owner()).map(|acted| &acted.agent.id);
    for agent in actors.collect::<BTreeSet<_>>() {
        hall.ok(&owner(), "agent_deactivate", json!({"agent": agent}));
    }
    hall.restart();
    assert_replays(&mut hall, &acted);
    hall.verify();
}

#[test]
fn a_receipt_holds_protocol_facts_only_and_is_found_by_key_and_id() {
    rule!(holds, "L3.3");
    rule!(impossible, "L3.3"; "a receipt is made from the sealed fact and its effects, which never change, and takes no text");
    let (mut hall, acted) = every_action();
    for Acted { agent, operation, arguments, answer } in acted {
        let receipt = &answer["receipt"];
        let fields: Vec<_> = receipt.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = ["id", "operation", "object", "index", "action", "sealed_at", "key", "result", "effects"];
        assert_eq!(fields, expected);
        assert_eq!(receipt["operation"], operation);
        assert_eq!(receipt["key"], arguments["idempotency_key"]);
        assert_eq!(answer["content"], json!({}), "{operation}");
        if agent == owner() {
            continue;
        }
        let by_key = json!({"operation": operation, "key": arguments["idempotency_key"]});
        for find in [by_key, json!({"id": receipt["id"]})] {
            let found = hall.ok(&agent, "receipt_get", find);
            assert_eq!((&found["receipt"], &found["result"]), (receipt, &answer["result"]));
        }
    }
}

#[test]
fn the_same_key_with_another_request_is_refused() {
    rule!(refused, "L3.2", "L3.1");
    let (mut hall, acted) = every_action();
    for Acted { agent, operation, mut arguments, .. } in acted {
        let others = [
            ("text", "other"),
            ("ticket", "kwoonadm"),
            ("name", "other"),
            ("reason", "other"),
            ("thread", "thr_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
            ("memory", "mem_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
            ("assignment", "asg_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
            ("agent", "agt_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ];
        match others.iter().find(|(field, _)| arguments.get(field).is_some()) {
            Some((field, other)) => arguments[*field] = json!(other),
            None => arguments["subject"] = json!("other"),
        }
        hall.refused(&agent, operation, arguments, "idempotency_conflict");
    }
}

#[test]
fn the_form_of_a_call_comes_before_its_key_and_its_actor() {
    rule!(refused, "L3.2", "L2.2");
    let (mut hall, [alice, bob, _], thread) = hall();
    hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "x", "idempotency_key": "k"}));
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    let memory = "mem_aaaaaaaaaaaaaaaaaaaaaaaaaa";
    for form in [
        json!({}),
        json!({"text": "x", "memory": memory}),
        json!({"text": "x", "version": 1}),
        json!({"memory": memory, "media_type": "text/plain"}),
    ] {
        let mut call = json!({"thread": thread, "idempotency_key": "k"});
        merge(&mut call, form);
        hall.refused(&alice, "entry_post", call.clone(), "invalid_argument");
        hall.refused(&bob, "entry_post", call, "invalid_argument");
    }
    let owner_change = json!({"owner": "x", "consent": "x"});
    let update = json!({"agent": "agt_aaaaaaaaaaaaaaaaaaaaaaaaaa", "expected_version": 1, "owner": owner_change});
    hall.refused(&owner(), "agent_update", update, "invalid_argument");
}

#[test]
fn what_an_agent_has_come_to_comes_before_what_is_changed_of_it() {
    rule!(refused, "L2.2");
    let (mut hall, [alice, ..], _) = hall();
    let policies = vec![json!({"policy": "p", "version": 1}); 33];
    let update =
        |agent: &str, version: u64| json!({"agent": agent, "expected_version": version, "policy_refs": policies});
    hall.refused(&owner(), "agent_update", update("agt_aaaaaaaaaaaaaaaaaaaaaaaaaa", 1), "not_found");
    hall.refused(&owner(), "agent_update", update(&alice.id, 2), "version_conflict");
    hall.refused(&owner(), "agent_update", update(&alice.id, 1), "content_too_large");
    hall.ok(&owner(), "agent_terminate", json!({"agent": alice.id}));
    hall.refused(&owner(), "agent_update", update(&alice.id, 2), "already_final");
    // Of memories it is the same.
    let (mut hall, [alice, ..], _) = self::hall();
    let memory = hall.ok(&alice, "memory_create", json!({"text": "x"}))["result"]["memory"].clone();
    let tags = vec!["t"; 33];
    let update = |version: u64| json!({"memory": memory, "text": "y", "expected_version": version, "tags": tags});
    hall.refused(&alice, "memory_update", update(2), "version_conflict");
    hall.refused(&alice, "memory_update", update(1), "content_too_large");
    hall.ok(&alice, "memory_withdraw", json!({"memory": memory}));
    hall.refused(&alice, "memory_update", update(1), "memory_withdrawn");
}

#[test]
fn a_request_is_the_same_however_it_is_written() {
    rule!(holds, "L3.1", "L3.2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let posted =
        hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "x", "ask": [bob.id], "idempotency_key": "k"}));
    let action = posted["receipt"]["action"].clone();
    // Another order, null for what was left out, and how long to wait are no part of the request.
    let again =
        json!({"wait_ms": 5, "ask": [bob.id], "summary": null, "idempotency_key": "k", "text": "x", "thread": thread});
    assert_eq!(hall.ok(&alice, "entry_post", again)["receipt"], posted["receipt"]);
    // An entry is the same by number and by action.
    let handled = hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": action, "idempotency_key": "k"}));
    let by_number = hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": 1, "idempotency_key": "k"}));
    assert_eq!(by_number["receipt"], handled["receipt"]);
    // A stated default is something else than one left out.
    let stated =
        json!({"thread": thread, "text": "x", "ask": [bob.id], "media_type": "text/markdown", "idempotency_key": "k"});
    hall.refused(&alice, "entry_post", stated, "idempotency_conflict");
}

#[test]
fn an_entry_of_another_thread_is_another_request() {
    rule!(refused, "L3.2", "S2");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let other = hall.thread(&alice, &[&carol]);
    hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    let elsewhere = hall.ok(&alice, "entry_post", json!({"thread": other, "text": "x"}))["receipt"]["action"].clone();
    hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": 1, "idempotency_key": "k"}));
    // It has the same number there, which is nobody's business here.
    for action in [elsewhere, json!("act_aaaaaaaaaaaaaaaaaaaaaaaaaa")] {
        let call = json!({"thread": thread, "entry": action, "idempotency_key": "k"});
        hall.refused(&bob, "entry_handle", call, "idempotency_conflict");
    }
}

#[test]
fn after_a_refusal_a_key_is_judged_anew() {
    rule!(holds, "L3.2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let handle = json!({"thread": thread, "entry": 1, "idempotency_key": "k"});
    hall.refused(&bob, "entry_handle", handle.clone(), "no_such_obligation");
    hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    // The same request now succeeds; with another one the key would have been as good.
    hall.ok(&bob, "entry_handle", handle.clone());
    let other = json!({"thread": thread, "entry": 2, "idempotency_key": "k"});
    hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    hall.refused(&bob, "entry_handle", other, "idempotency_conflict");
    let post = |text: &str| json!({"thread": thread, "text": text, "ask": ["agt_aaaaaaaaaaaaaaaaaaaaaaaaaa"], "idempotency_key": "k"});
    hall.refused(&alice, "entry_post", post("a"), "bad_reference");
    hall.refused(&alice, "entry_post", post("b"), "bad_reference");
    hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "c", "idempotency_key": "k"}));
}

#[test]
fn agents_and_operations_have_their_own_keys() {
    rule!(holds, "L3.2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let say = |text: &str| json!({"thread": thread, "text": text, "ask": [], "idempotency_key": "k"});
    let first = hall.ok(&alice, "entry_post", say("a"));
    let second = hall.ok(&bob, "entry_post", say("b"));
    let third = hall.ok(&alice, "memory_create", json!({"text": "a", "idempotency_key": "k"}));
    let actions: BTreeSet<_> = [&first, &second, &third].map(|answer| text(&answer["receipt"]["action"])).into();
    assert_eq!(actions.len(), 3);
    for key in ["", "a b", "ä", &"k".repeat(129)] {
        let call = json!({"text": "x", "idempotency_key": key});
        hall.refused(&alice, "memory_create", call, "invalid_argument");
    }
}

#[test]
fn a_success_without_new_effect_is_repeated_as_such() {
    rule!(holds, "L3.1", "L2.4");
    let (mut hall, [alice, bob, _], thread) = hall();
    let ticket = hall.ticket(&alice, &thread, "speaker");
    let join = json!({"ticket": ticket, "idempotency_key": "again"});
    let existing = hall.ok(&bob, "thread_join", join.clone());
    assert_eq!(existing["result"]["existing"], true);
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    hall.restart();
    // The membership is gone, and the repeat is no new joining.
    let repeated = hall.ok(&bob, "thread_join", join.clone());
    assert_eq!((&repeated["receipt"], &repeated["result"]), (&existing["receipt"], &existing["result"]));
    hall.refused(&bob, "thread_get", json!({"thread": thread}), "not_found");
    let other = json!({"ticket": "kwoonadm", "idempotency_key": "again"});
    hall.refused(&bob, "thread_join", other, "idempotency_conflict");
    let found = hall.ok(&bob, "receipt_get", json!({"operation": "thread_join", "key": "again"}));
    assert_eq!((&found["receipt"], &found["result"]), (&existing["receipt"], &existing["result"]));
}

#[test]
fn a_token_is_given_with_the_first_success_only() {
    rule!(holds, "L3.4");
    let mut hall = Hall::new();
    let create = json!({"name": "alice", "idempotency_key": "k"});
    let first = hall.try_call(&owner(), "agent_create", create.clone()).unwrap();
    assert!(first.secret.is_some());
    hall.restart();
    let again = hall.try_call(&owner(), "agent_create", create).unwrap();
    assert!(again.secret.is_none());
    assert_eq!((again.receipt, again.result), (first.receipt, first.result));
}

#[test]
fn a_secret_stands_in_no_read_and_no_error() {
    rule!(refused, "L3.4");
    let (mut hall, [alice, bob, _], thread) = hall();
    let issue = json!({"thread": thread, "idempotency_key": "k"});
    let ticket = text(&hall.ok(&alice, "admission_issue", issue.clone())["secret"]["ticket"]);
    let mut other = issue.clone();
    merge(&mut other, json!({"role": "observer"}));
    let mut answers = vec![hall.refused(&alice, "admission_issue", other, "idempotency_conflict")];
    answers.push(hall.refused(&bob, "thread_join", json!({"ticket": format!("{ticket}aa")}), "admission_invalid"));
    for (reader, operation, arguments) in [
        (&alice, "admission_issue", issue),
        (&alice, "receipt_get", json!({"operation": "admission_issue", "key": "k"})),
        (&alice, "thread_get", json!({"thread": thread})),
        (&owner(), "object_log", json!({"object": thread, "format": "cbor"})),
    ] {
        answers.push(hall.ok(reader, operation, arguments));
    }
    assert!(answers.iter().all(|answer| !answer.to_string().contains("kwoonadm")));
}
