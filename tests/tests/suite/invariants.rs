//! The invariants (section 3), with the source of every change (C1).

use std::collections::{BTreeMap, BTreeSet};

use kwoon_ledger::limits::Limits;
use kwoon_ledger::time::Duration;
use kwoon_sync::operations;
use kwoon_tests::{Agent, Hall, effects, merge, owner, rule, text};
use serde_json::{Value, json};

fn hall() -> (Hall, [Agent; 3], String) {
    hall_with(Limits::DEFAULT)
}

fn hall_with(limits: Limits) -> (Hall, [Agent; 3], String) {
    let mut hall = Hall::with_limits(limits);
    let agents = [hall.agent("alice"), hall.agent("bob"), hall.agent("carol")];
    let thread = hall.thread(&agents[0], &[&agents[1], &agents[2]]);
    (hall, agents, thread)
}

// ------------------------------------------------------------------ L2: whole actions

#[test]
fn an_action_whose_commit_fails_never_was() {
    rule!(holds, "L2.1");
    rule!(refused, "L2.1");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.delivered(&bob, &thread, &alice, json!({}));
    hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    let leave = json!({"thread": thread, "idempotency_key": "k"});
    for restarts in [false, true] {
        let before = hall.trace();
        let answer = hall.together(&[(&bob, "thread_leave", leave.clone())], false).remove(0);
        assert_eq!(answer["error"]["code"], "internal");
        assert_eq!(hall.trace(), before);
        if restarts {
            hall.restart();
        }
        assert_eq!(hall.turn(&bob), [("judge".into(), 1), ("respond".into(), 2)]);
    }
    // A repeat with the same key is judged as if it were the first.
    hall.ok(&bob, "thread_leave", leave);
    assert_eq!(hall.state(&alice, &work), "delivered");
    hall.verify();
}

#[test]
fn a_failed_commit_leaves_no_agent_behind() {
    rule!(holds, "L2.1");
    let mut hall = Hall::new();
    let create = json!({"name": "alice", "idempotency_key": "k"});
    let answer = hall.together(&[(&owner(), "agent_create", create.clone())], false).remove(0);
    assert_eq!(answer["error"]["code"], "internal");
    assert_eq!(hall.all(&owner(), "agent_list", json!({}), "agents"), [Value::Null; 0]);
    let created = hall.ok(&owner(), "agent_create", create);
    let alice = hall.known(&created["result"]["agent"]);
    hall.ok(&alice, "memory_create", json!({"text": "x"}));
}

#[test]
fn a_refusal_states_reason_remedy_and_step_and_changes_nothing() {
    rule!(holds, "L2.2");
    rule!(refused, "L2.2");
    let (mut hall, [alice, bob, _], thread) = hall();
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    let error = hall.refused(&bob, "entry_post", json!({"thread": thread, "text": "x"}), "thread_closed");
    let fields: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["code", "message", "fix", "next", "retry_after_ms", "details"]);
    assert_eq!(error["next"], json!({"step": "stop"}));
    let error = hall.refused(&bob, "thread_leave", json!({"thread": thread, "now": true}), "invalid_argument");
    assert_eq!(error["details"], json!({"field": "now", "expected": "no such argument"}));
}

#[test]
fn a_refusal_in_a_round_with_others_leaves_nothing_between_them() {
    rule!(refused, "L2.2", "L2.1");
    let (_, [alice, bob, _], thread) = hall();
    let post = (&alice, "entry_post", json!({"thread": thread, "text": "x", "ask": [bob.id], "idempotency_key": "a"}));
    // It gets as far as the rules, which have ended a response by then.
    let offer = json!({"to": bob.id, "criteria": "x", "redoes": "asg_aaaaaaaaaaaaaaaaaaaaaaaaaa"});
    let reply = json!({"thread": thread, "text": "x", "reply_to": 1, "assign": offer});
    let last = (&bob, "entry_post", json!({"thread": thread, "text": "y", "ask": [], "idempotency_key": "b"}));
    let (mut with, ..) = hall();
    let (mut without, ..) = hall();
    let answers = with.together(&[post.clone(), (&bob, "entry_post", reply), last.clone()], true);
    assert_eq!(answers[1]["error"]["code"], "bad_reference");
    assert_eq!(answers[2]["result"]["entry"], 2, "a refusal takes no number");
    without.together(&[post, last], true);
    assert_eq!(with.trace(), without.trace());
    assert_eq!(with.turn(&bob), [("respond".into(), 1)]);
}

#[test]
fn a_post_with_a_text_equals_a_memory_and_a_post_that_pins_it() {
    rule!(holds, "L2.3");
    let outcomes = [true, false].map(|combined| {
        let (mut hall, [alice, bob, _], thread) = hall();
        let mut post = json!({"thread": thread, "ask": [bob.id], "assign": {"to": bob.id, "criteria": "well"}});
        let said = if combined {
            json!({"text": "hello", "media_type": "text/plain", "summary": "s"})
        } else {
            let create = json!({"text": "hello", "media_type": "text/plain", "summary": "s"});
            json!({"memory": hall.ok(&alice, "memory_create", create)["result"]["memory"], "summary": "s"})
        };
        merge(&mut post, said);
        let posted = hall.ok(&alice, "entry_post", post);
        let memory = hall.ok(&alice, "memory_get", json!({"memory": posted["result"]["memory"]}));
        let kept = ["state", "visibility", "version", "author"].map(|field| memory["result"][field].clone());
        let shown = hall.ok(&bob, "entry_get", json!({"thread": thread, "entry": 1}));
        hall.verify();
        (effects(&posted), kept, memory["content"].clone(), shown["content"].clone(), hall.turn(&bob))
    });
    assert_eq!(outcomes[0], outcomes[1]);
}

#[test]
fn what_is_so_already_is_refused_but_for_joining_again() {
    rule!(refused, "L2.4");
    let (mut hall, [alice, bob, _], thread) = hall();
    let memory = hall.ok(&alice, "memory_create", json!({"text": "x"}))["result"]["memory"].clone();
    let of_memory = json!({"memory": memory});
    hall.refused(&alice, "memory_unpublish", of_memory.clone(), "no_change");
    hall.ok(&alice, "memory_publish", of_memory.clone());
    hall.refused(&alice, "memory_publish", of_memory, "no_change");
    let role = json!({"thread": thread, "agent": bob.id, "role": "speaker"});
    hall.refused(&alice, "member_role", role, "no_change");
    let entry = hall.post(&alice, &thread, json!({"ask": []}));
    hall.refused(&alice, "entry_retract", json!({"thread": thread, "entry": entry}), "no_change");
    hall.ok(&alice, "admission_void", json!({"thread": thread}));
    hall.refused(&alice, "admission_void", json!({"thread": thread}), "no_change");
    hall.refused(&owner(), "agent_reactivate", json!({"agent": bob.id}), "no_change");
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    hall.refused(&owner(), "agent_deactivate", json!({"agent": bob.id}), "no_change");
}

// ------------------------------------------------------------------ L3: one request, one receipt

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
    assert_eq!(untried, ["clock_confirm"], "which is no action of the protocol and has no receipt");
    assert_replays(&mut hall, &acted);
    hall.restart();
    assert_replays(&mut hall, &acted);
    hall.advance(Duration::minutes(60));
    assert_replays(&mut hall, &acted);
    for name in ["alice", "bob"] {
        let agents = hall.all(&owner(), "agent_list", json!({}), "agents");
        let agent = &agents[if name == "alice" { 0 } else { 1 }]["agent"];
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

// ------------------------------------------------------------------ L4: exits and limits

#[test]
fn the_exit_of_each_duty_is_never_rate_limited() {
    rule!(holds, "L4.1");
    rule!(refused, "L4.4");
    rule!(impossible, "L4.1"; "a duty is one of three, and each has an exit that its bearer takes alone: handle, abandon, accept");
    let mut hall = Hall::with_limits(Limits { actions_burst_max: 2, actions_per_second_max: 2, ..Limits::DEFAULT });
    let rested = |hall: &mut Hall| hall.advance(Duration::seconds(2));
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    rested(&mut hall);
    let thread = hall.thread(&alice, &[&bob]);
    rested(&mut hall);
    let entry = hall.post(&alice, &thread, json!({}));
    let taken = hall.taken(&alice, &thread, &bob, json!({}));
    rested(&mut hall);
    let judged = hall.delivered(&bob, &thread, &alice, json!({}));
    assert_eq!(hall.turn(&bob), [("respond".into(), entry), ("deliver".into(), 2), ("judge".into(), 3)]);
    hall.ok(&bob, "memory_create", json!({"text": "x"}));
    let error = hall.refused(&bob, "memory_create", json!({"text": "x"}), "rate_limited");
    assert_eq!(error["retry_after_ms"], 500);
    hall.refused(&bob, "entry_post", json!({"thread": thread, "text": "x", "reply_to": entry}), "rate_limited");
    hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": entry, "note": "busy"}));
    hall.ok(&bob, "assignment_abandon", json!({"assignment": taken}));
    hall.ok(&bob, "assignment_accept", json!({"assignment": judged}));
    assert_eq!(hall.turn(&bob), []);
    // Others have their own allowance, and a repeat takes none.
    hall.advance(Duration(499));
    hall.refused(&bob, "memory_create", json!({"text": "x"}), "rate_limited");
    hall.advance(Duration(1));
    let create = json!({"text": "x", "idempotency_key": "k"});
    let created = hall.ok(&bob, "memory_create", create.clone());
    assert_eq!(hall.ok(&bob, "memory_create", create)["receipt"], created["receipt"]);
}

#[test]
fn over_a_capacity_is_a_refusal_and_what_ends_makes_room() {
    rule!(holds, "L4.4");
    rule!(refused, "L4.4");
    let limits =
        Limits { members_max: 2, open_threads_max: 2, obligations_caused_max: 2, ask_max: 1, ..Limits::DEFAULT };
    let mut hall = Hall::with_limits(limits);
    let (alice, bob, carol) = (hall.agent("alice"), hall.agent("bob"), hall.agent("carol"));
    let thread = hall.thread(&alice, &[&bob]);
    let ticket = json!({"ticket": hall.ticket(&alice, &thread, "speaker")});
    let error = hall.refused(&carol, "thread_join", ticket.clone(), "capacity_reached");
    assert_eq!(error["details"], json!({"of": "members", "limit": 2}));
    let other = hall.thread(&alice, &[]);
    hall.refused(&alice, "thread_create", json!({}), "capacity_reached");
    hall.ok(&alice, "thread_close", json!({"thread": other}));
    let third = hall.thread(&alice, &[]);
    hall.ok(&alice, "thread_close", json!({"thread": third}));
    // What one agent causes: responses that wait, and assignments that have not ended.
    let ask = json!({"thread": thread, "text": "x", "ask": [bob.id]});
    let first = hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    let work = hall.assign(&alice, &thread, &bob, json!({}));
    hall.refused(&alice, "entry_post", ask.clone(), "capacity_reached");
    let offer = json!({"thread": thread, "text": "x", "ask": [], "assign": {"to": bob.id, "criteria": "x"}});
    hall.refused(&alice, "entry_post", offer, "capacity_reached");
    hall.post(&alice, &thread, json!({"ask": []}));
    hall.post(&bob, &thread, json!({"ask": [alice.id]}));
    hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": first}));
    hall.ok(&alice, "entry_post", ask.clone());
    hall.refused(&alice, "entry_post", ask.clone(), "capacity_reached");
    hall.ok(&bob, "assignment_take", json!({"assignment": work}));
    hall.refused(&alice, "entry_post", ask.clone(), "capacity_reached");
    hall.ok(&bob, "assignment_abandon", json!({"assignment": work}));
    hall.ok(&alice, "entry_post", ask);
    // A member that leaves makes room for another.
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    hall.ok(&carol, "thread_join", ticket);
    let crowd = json!({"thread": thread, "text": "x", "ask": [bob.id, carol.id]});
    hall.refused(&alice, "entry_post", crowd, "content_too_large");
    hall.verify();
}

#[test]
fn a_full_thread_takes_no_more_duties_and_lets_all_exits_through() {
    rule!(holds, "L4.1");
    rule!(refused, "L4.4");
    let (mut hall, [alice, bob, carol], thread) = hall_with(Limits { obligations_open_max: 2, ..Limits::DEFAULT });
    let work = hall.delivered(&bob, &thread, &carol, json!({}));
    let entry = hall.post(&alice, &thread, json!({"ask": [carol.id]}));
    let ask = json!({"thread": thread, "text": "x", "ask": [carol.id]});
    hall.refused(&bob, "entry_post", ask, "capacity_reached");
    hall.ok(&carol, "entry_handle", json!({"thread": thread, "entry": entry}));
    hall.ok(&bob, "assignment_accept", json!({"assignment": work}));
}

// ------------------------------------------------------------------ L5: some serial order

/// A state with a question, work that is offered, taken and delivered, and a second governor.
fn contested() -> (Hall, [Agent; 3], String, [String; 3]) {
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": carol.id, "role": "governor"}));
    hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    let work = [
        hall.assign(&alice, &thread, &bob, json!({})),
        hall.taken(&alice, &thread, &bob, json!({})),
        hall.delivered(&alice, &thread, &bob, json!({})),
    ];
    (hall, [alice, bob, carol], thread, work)
}

#[test]
fn competing_actions_have_the_effects_of_a_serial_order() {
    rule!(holds, "L5.1", "L5.2");
    let (_, [alice, bob, carol], thread, [offered, taken, delivered]) = contested();
    let of = |assignment: &String| json!({"assignment": assignment});
    let here = json!({"thread": thread});
    let entry = json!({"thread": thread, "entry": 1});
    let mut reply = here.clone();
    merge(&mut reply, json!({"text": "x", "reply_to": 1}));
    let mut give_back = of(&delivered);
    merge(&mut give_back, json!({"reason": "no"}));
    let mut deliver = of(&taken);
    merge(&mut deliver, json!({"output": {"text": "x"}}));
    let races: Vec<[(&Agent, &str, Value); 2]> = vec![
        [(&alice, "thread_leave", here.clone()), (&carol, "thread_leave", here.clone())],
        [(&bob, "assignment_take", of(&offered)), (&alice, "assignment_void", of(&offered))],
        [(&bob, "assignment_take", of(&offered)), (&bob, "assignment_take", of(&offered))],
        [(&bob, "assignment_deliver", deliver), (&alice, "assignment_void", of(&taken))],
        [(&bob, "assignment_abandon", of(&taken)), (&alice, "assignment_void", of(&taken))],
        [(&alice, "assignment_accept", of(&delivered)), (&alice, "assignment_return", give_back)],
        [(&bob, "entry_handle", entry.clone()), (&alice, "entry_retract", entry)],
        [(&bob, "entry_post", reply), (&carol, "thread_close", here.clone())],
        [(&bob, "thread_leave", here.clone()), (&alice, "assignment_accept", of(&delivered))],
        [(&alice, "thread_close", here.clone()), (&carol, "thread_close", here)],
    ];
    for [first, second] in races {
        for calls in [[first.clone(), second.clone()], [second.clone(), first.clone()]] {
            let (mut together, ..) = contested();
            let (mut in_turn, ..) = contested();
            let answers = together.together(&calls, true);
            let one_by_one: Vec<_> =
                calls.iter().map(|(agent, name, arguments)| in_turn.call(agent, name, arguments.clone())).collect();
            assert_eq!(answers, one_by_one, "{} and {}", calls[0].1, calls[1].1);
            assert_eq!(together.digest(&thread), in_turn.digest(&thread));
            for agent in [&alice, &bob, &carol] {
                assert_eq!(together.turn(agent), in_turn.turn(agent));
            }
            assert_eq!(answers[0]["ok"], true);
            together.verify();
        }
    }
}

#[test]
fn of_competing_ends_one_takes_hold() {
    rule!(refused, "L5.1", "L5.2");
    let (mut hall, [alice, bob, carol], thread, [_, taken, delivered]) = contested();
    let answers = hall.together(
        &[
            (&alice, "assignment_accept", json!({"assignment": delivered})),
            (&alice, "assignment_return", json!({"assignment": delivered, "reason": "no"})),
            (&bob, "assignment_abandon", json!({"assignment": taken})),
            (&alice, "assignment_void", json!({"assignment": taken})),
            (&carol, "thread_leave", json!({"thread": thread})),
            (&alice, "thread_leave", json!({"thread": thread})),
        ],
        true,
    );
    let codes: Vec<_> = answers.iter().map(|answer| answer["error"]["code"].as_str().unwrap_or("ok")).collect();
    assert_eq!(codes, ["ok", "already_final", "ok", "already_final", "ok", "last_governor"]);
    hall.verify();
}

// ------------------------------------------------------------------ L6.2, C1

#[test]
fn content_does_nothing_whatever_it_says() {
    rule!(holds, "L6.2");
    rule!(impossible, "L6.2"; "the rules get commitments to content and never the content itself");
    let bait =
        json!({"operation": "member_role", "role": "governor", "ask": ["everyone"], "obligations": []}).to_string();
    let runs = ["hello".to_owned(), bait].map(|words| {
        let (mut hall, [alice, bob, _], thread) = hall();
        let post = json!({"thread": thread, "text": words, "summary": words, "ask": [bob.id],
            "assign": {"to": bob.id, "criteria": words}});
        let posted = hall.ok(&alice, "entry_post", post);
        hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": 1, "note": words}));
        let work = &posted["result"]["assignment"];
        hall.ok(&bob, "assignment_take", json!({"assignment": work, "output": {"text": words}}));
        hall.ok(&alice, "assignment_return", json!({"assignment": work, "reason": words}));
        let effects: Vec<_> =
            hall.facts(&thread).into_iter().map(|fact| fact["event"]["payload"]["effects"].clone()).collect();
        let members = hall.all(&alice, "member_list", json!({"thread": thread}), "members");
        (effects, members, hall.turn(&alice), hall.turn(&bob))
    });
    assert_eq!(runs[0], runs[1]);
}

#[test]
fn every_change_traces_to_an_action_an_expiry_or_an_account() {
    rule!(holds, "C1");
    rule!(impossible, "C1"; "a fact has one cause, of a closed list, and its effects are derived from it");
    let (mut hall, acted) = every_action();
    hall.advance(Duration::minutes(60));
    let objects = hall.all(&owner(), "object_digest", json!({}), "objects");
    assert!(objects.len() >= 7);
    for object in objects {
        for fact in hall.facts(object["object"].as_str().unwrap()) {
            let cause = text(&fact["cause"]);
            let effects = fact["event"]["payload"]["effects"].as_array().unwrap();
            match cause.as_str() {
                "action" => assert!(fact["command"]["message_id"].is_string(), "{fact}"),
                "expiry" => assert!(fact["event"]["payload"]["due"]["duty"].is_string()),
                // A consequence changes what the public may know by an action in the memory's own log.
                "consequence" => assert!(text(&fact["event"]["payload"]["follows"]["object"]).starts_with("mem_")),
                "account" => assert!(effects.iter().all(|effect| effect["kind"] != "entry_posted")),
                other => panic!("{other} causes nothing"),
            }
        }
    }
    // And every action became exactly one fact.
    let actions: BTreeSet<_> = acted.iter().map(|acted| text(&acted.answer["receipt"]["action"])).collect();
    assert_eq!(actions.len(), acted.len());
}

#[test]
fn reading_changes_nothing() {
    rule!(refused, "C1");
    let (mut hall, [alice, bob, _], thread, [work, ..]) = contested();
    let before = hall.trace();
    for operation in operations::ALL.iter().filter(|operation| !operation.is_action()) {
        let arguments = match operation.name {
            "working_set" | "object_log" | "object_digest" => json!({"object": thread}),
            "entry_get" => json!({"thread": thread, "entry": 1}),
            "thread_get" | "thread_entries" | "member_list" | "assignment_list" => json!({"thread": thread}),
            "assignment_get" => json!({"assignment": work}),
            "memory_search" => json!({"query": "hello"}),
            "agent_get" => json!({"agent": bob.id}),
            _ => json!({}),
        };
        for caller in [&bob, &alice, &owner()] {
            hall.call(caller, operation.name, arguments.clone());
        }
        assert_eq!(hall.trace(), before, "{}", operation.name);
    }
}

// ------------------------------------------------------------------ any sequence

/// Whole numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Four agents in two threads, who do anything at all.
struct Crowd {
    hall: Hall,
    agents: Vec<Agent>,
    threads: Vec<String>,
    assignments: Vec<String>,
    tickets: Vec<String>,
    numbers: Numbers,
    finals: BTreeMap<String, String>,
    /// Every fact that was ever seen: its object and index, and the digest and head after it.
    sealed: BTreeMap<(String, u64), (Value, Value)>,
}

/// All that can happen to a protocol state, by the name of the effect.
const EFFECTS: [&str; 24] = [
    "identity_set",
    "account_set",
    "memory_created",
    "version_added",
    "made_public",
    "made_private",
    "memory_withdrawn",
    "publication_set",
    "publication_ended",
    "thread_created",
    "admission_issued",
    "admission_voided",
    "membership_began",
    "membership_ended",
    "role_set",
    "entry_posted",
    "obligation_began",
    "obligation_ended",
    "assignment_offered",
    "assignment_taken",
    "assignment_delivered",
    "assignment_ended",
    "judgment_forfeited",
    "thread_closed",
];

impl Crowd {
    fn new(seed: u64) -> Self {
        let mut hall = Hall::seeded([seed as u8; 32], Limits::DEFAULT);
        let agents: Vec<_> = ["alice", "bob", "carol", "dora"].iter().map(|name| hall.agent(name)).collect();
        let others: Vec<_> = agents[1..].iter().collect();
        let threads = vec![hall.thread(&agents[0], &others), hall.thread(&agents[1], &[&agents[2]])];
        let tickets = threads.iter().zip(&agents).map(|(thread, governor)| hall.ticket(governor, thread, "speaker"));
        let tickets = tickets.collect();
        let (assignments, finals) = (Vec::new(), BTreeMap::new());
        Self {
            hall,
            agents,
            threads,
            assignments,
            tickets,
            numbers: Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            finals,
            sealed: BTreeMap::new(),
        }
    }

    /// One action of someone, which may well be refused.
    fn step(&mut self) {
        let n = &mut self.numbers;
        self.hall.advance(Duration::minutes(n.below(8) as u64));
        let (agent, other) = (n.pick(&self.agents).clone(), n.pick(&self.agents).clone());
        let thread = n.pick(&self.threads).clone();
        let entry = 1 + n.below(12);
        let assignment = if self.assignments.is_empty() {
            "asg_aaaaaaaaaaaaaaaaaaaaaaaaaa".to_owned()
        } else {
            // The latest ones are those that are still open.
            let from = self.assignments.len().saturating_sub(6);
            n.pick(&self.assignments[from..]).clone()
        };
        let work = json!({"assignment": assignment});
        let role = *n.pick(&["observer", "speaker", "speaker", "governor"]);
        let mut post = json!({"thread": thread, "text": "x"});
        if n.below(3) == 0 {
            merge(&mut post, json!({"reply_to": entry}));
        }
        if n.below(3) == 0 {
            merge(&mut post, json!({"ask": [other.id]}));
        }
        let terms = json!({"to": other.id, "criteria": "x", "deliver_within": "1h", "judge_within": "1h"});
        // Every other time somebody does what it owes, or takes what it is offered.
        let mut open = Vec::new();
        if n.below(2) == 0 {
            open.extend(self.hall.all(&agent, "turn", json!({}), "obligations"));
            open.extend(self.hall.all(&agent, "opportunities", json!({}), "opportunities"));
        }
        if !open.is_empty() {
            let row = n.pick(&open);
            let (work, entry) = (&row["assignment"], &row["entry"]);
            let (operation, arguments) = match (row["duty"].as_str(), n.below(3)) {
                (Some("respond"), 0) => ("entry_handle", json!({"thread": row["object"], "entry": entry})),
                (Some("respond"), _) => {
                    ("entry_post", json!({"thread": row["object"], "reply_to": entry, "text": "x", "ask": []}))
                }
                (Some("deliver"), 0) => ("assignment_abandon", json!({"assignment": work})),
                (Some("deliver"), _) => ("assignment_deliver", json!({"assignment": work, "output": {"text": "x"}})),
                (Some(_), 0) => ("assignment_return", json!({"assignment": work, "reason": "r"})),
                (Some(_), _) => ("assignment_accept", json!({"assignment": work})),
                (None, 0) => ("assignment_take", json!({"assignment": work, "output": {"text": "x"}})),
                (None, _) => ("assignment_take", json!({"assignment": work})),
            };
            // What the turn and the offers say can be done: by an agent that was deactivated, nothing.
            let answer = self.hall.call(&agent, operation, arguments);
            assert!(
                answer["ok"] == true || answer["error"]["code"] == "agent_inactive" || row["lapsed"] == true,
                "{answer:#}"
            );
            return;
        }
        let (operation, arguments) = match n.below(24) {
            0..=4 => ("entry_post", post),
            5..=7 => {
                merge(&mut post, json!({"assign": terms}));
                ("entry_post", post)
            }
            8 => ("entry_handle", json!({"thread": thread, "entry": entry, "note": "n"})),
            9 => ("entry_retract", json!({"thread": thread, "entry": entry})),
            10..=12 => ("assignment_take", work),
            13 => ("assignment_take", json!({"assignment": assignment, "output": {"text": "x"}})),
            14..=15 => ("assignment_deliver", json!({"assignment": assignment, "output": {"text": "x"}})),
            16 => ("assignment_accept", work),
            17 => ("assignment_return", json!({"assignment": assignment, "reason": "r"})),
            18 => (*n.pick(&["assignment_abandon", "assignment_void"]), work),
            19 => ("member_role", json!({"thread": thread, "agent": other.id, "role": role})),
            20 if n.below(3) == 0 => ("thread_leave", json!({"thread": thread})),
            20..=22 => ("thread_join", json!({"ticket": n.pick(&self.tickets)})),
            _ => match n.below(12) {
                0 => ("thread_close", json!({"thread": thread})),
                1 => ("agent_deactivate", json!({"agent": other.id})),
                2..=4 => ("agent_reactivate", json!({"agent": other.id})),
                5 => ("member_remove", json!({"thread": thread, "agent": other.id})),
                _ => return self.hall.advance(Duration::minutes(n.below(50) as u64)),
            },
        };
        let caller = if operation.starts_with("agent_") { owner() } else { agent };
        let before = self.hall.trace();
        let answer = self.hall.call(&caller, operation, arguments);
        if answer["ok"] == false {
            assert_eq!(self.hall.trace(), before, "{operation} was refused: {answer:#}");
        } else if let Some(assignment) = answer["result"]["assignment"].as_str()
            && !self.assignments.iter().any(|known| known == assignment)
        {
            self.assignments.push(assignment.to_owned());
        }
    }

    /// What must hold in every state.
    fn check(&mut self) {
        for thread in &self.threads {
            let verified = self.hall.ok(&owner(), "ledger_verify", json!({"object": thread}));
            assert_eq!(verified["result"]["sound"], true, "{verified:#}");
        }
        for agent in &self.agents.clone() {
            let turn = self.hall.all(agent, "turn", json!({"limit": 50}), "obligations");
            let origins: Vec<_> = turn.iter().map(|row| text(&row["began_at"])).collect();
            assert!(origins.is_sorted(), "the turn is in the order of origin");
            let mut by_thread = Vec::new();
            for row in self.hall.all(agent, "thread_list", json!({}), "threads") {
                let shown = self.hall.ok(agent, "thread_get", json!({"thread": row["thread"]}));
                let obligations = shown["result"]["obligations"].as_array().unwrap().clone();
                assert_eq!(row["obligations"], obligations.len());
                self.check_thread(&shown["result"], &obligations);
                by_thread.extend(obligations);
            }
            let sorted = |rows: &[Value]| rows.iter().map(Value::to_string).collect::<BTreeSet<_>>();
            assert_eq!(sorted(&turn), sorted(&by_thread), "the turn is the sum of what is owed in each thread");
            assert_eq!(turn.len(), by_thread.len(), "and nothing stands in it twice");
        }
    }

    fn check_thread(&mut self, thread: &Value, obligations: &[Value]) {
        let members = thread["members"].as_array().unwrap();
        let governs = members.iter().any(|member| member["role"] == "governor");
        assert!(thread["state"] == "closed" || governs, "T2.3: an open thread has a governor");
        for row in obligations {
            match row["duty"].as_str().unwrap() {
                "respond" => {
                    assert!(thread["state"] == "open" && thread["role"] != "observer", "T2.5, T5.2");
                    assert!(row.get("due_at").is_none());
                }
                "deliver" => assert!(thread["state"] == "open" && row["due_at"].is_string(), "T5.2, L4.2"),
                _ => assert!(row["due_at"].is_string(), "L4.2"),
            }
        }
    }

    /// L5.2: by the effects of all facts, each obligation begins once and ends at most once, and what has begun and
    /// not ended is what stands in the turns. T4.12: an end is the last thing that happens to an assignment.
    fn check_history(&mut self) {
        let (mut running, mut ended) = (BTreeSet::new(), BTreeSet::new());
        for thread in &self.threads.clone() {
            for fact in self.hall.facts(thread) {
                for effect in fact["event"]["payload"]["effects"].as_array().unwrap() {
                    let id = effect["obligation"].as_str().unwrap_or_default().to_owned();
                    let assignment = effect["assignment"].as_str().unwrap_or_default().to_owned();
                    match effect["kind"].as_str().unwrap() {
                        "obligation_began" => {
                            assert!(!ended.contains(&id) && running.insert(id), "begins once: {effect}");
                        }
                        "obligation_ended" => {
                            assert!(running.remove(&id) && ended.insert(id), "ends once: {effect}");
                        }
                        "assignment_ended" => {
                            let state = text(&effect["state"]);
                            let before = self.finals.insert(assignment, state.clone());
                            assert!(before.is_none_or(|before| before == state), "{effect}");
                        }
                        _ => {}
                    }
                }
            }
        }
        let mut owed = BTreeSet::new();
        for agent in &self.agents {
            owed.extend(self.hall.all(agent, "turn", json!({}), "obligations").iter().map(|row| text(&row["id"])));
        }
        assert_eq!(owed, running, "what began and has not ended is owed, by somebody");
    }

    /// P1: in no log of the host is there anything but the effects and the duties of the specification; a duty begins
    /// by an action alone; and what was sealed once stays as it was.
    fn check_mechanisms(&mut self) {
        for object in self.hall.all(&owner(), "object_digest", json!({"limit": 50}), "objects") {
            let object = text(&object["object"]);
            for fact in self.hall.facts(&object) {
                for effect in fact["event"]["payload"]["effects"].as_array().unwrap() {
                    assert!(EFFECTS.contains(&effect["kind"].as_str().unwrap()), "{effect}");
                    if let Some(duty) = effect.get("duty") {
                        assert!(["respond", "deliver", "judge"].contains(&duty.as_str().unwrap()), "{effect}");
                        assert!(object.starts_with("thr_"));
                    }
                    assert!(effect["kind"] != "obligation_began" || fact["cause"] == "action", "{fact}");
                }
                let now = (fact["digest"].clone(), fact["head"].clone());
                let place = (object.clone(), fact["index"].as_u64().unwrap());
                let before = self.sealed.entry(place).or_insert_with(|| now.clone());
                assert_eq!(*before, now, "a sealed fact was rewritten");
            }
        }
        let lost = self.sealed.keys().find(|(object, index)| self.hall.digest(object).0 < *index);
        assert_eq!(lost, None, "a sealed fact was lost");
        for agent in &self.agents.clone() {
            let turn = self.hall.ok(agent, "turn", json!({}));
            assert_eq!(
                (&turn["result"]["pending_actions"], &turn["result"]["refused_actions"]),
                (&json!(0), &json!(0))
            );
            assert_eq!(self.hall.ok(agent, "outbox_list", json!({}))["result"]["actions"], json!([]));
        }
    }
}

#[test]
fn whatever_four_agents_do_the_ledger_is_sound_and_every_duty_ends_once() {
    rule!(holds, "L5.2", "L5.1", "O1", "O3", "T2.3", "T4.12", "P1");
    let mut states = BTreeSet::new();
    for seed in 1..=4 {
        let mut crowd = Crowd::new(seed);
        for step in 0..120 {
            crowd.step();
            crowd.check();
            if step % 40 == 39 {
                crowd.check_history();
                crowd.check_mechanisms();
                crowd.hall.restart();
            }
        }
        // In the end every deadline comes.
        for _ in 0..5 {
            crowd.hall.advance(Duration::days(1));
        }
        crowd.check();
        crowd.check_history();
        crowd.check_mechanisms();
        crowd.hall.verify();
        states.extend(crowd.finals.into_values());
    }
    let all = ["abandoned", "accepted", "not_passed", "timed_out", "undecided", "voided"];
    assert_eq!(states.into_iter().collect::<Vec<_>>(), all, "the runs came to every end");
}
