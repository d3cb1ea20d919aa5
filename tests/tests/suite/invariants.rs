//! The invariants (section 3), with the source of every change (C1).

use std::collections::BTreeSet;

use kwoon_ledger::limits::Limits;
use kwoon_ledger::time::Duration;
use kwoon_sync::operations;
use kwoon_tests::{Agent, alone, effects, merge, owner, rule, text};
use serde_json::{Value, json};

use crate::Hall;

use crate::replay::{every_action, hall, hall_with};

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

#[test]
fn what_an_action_is_to_come_after_is_bounded_before_any_of_it_is_looked_up() {
    rule!(refused, "L4.4");
    let (mut hall, [alice, ..], _) = hall();
    let made = hall.ok(&alice, "memory_create", json!({"text": "x"}));
    let after = |count| json!({"text": "y", "after": vec![made["receipt"]["action"].clone(); count]});
    hall.refused(&alice, "memory_create", after(65), "invalid_argument");
    hall.ok(&alice, "memory_create", after(64));
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
    alone!("calls of one host reach its sequencer in their order; what meets on the way is for the next test");
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
    rule!(holds, "L5.1");
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
    if Hall::ACROSS {
        // What its sequencer's own agent says comes before what is still on the way.
        assert_eq!(codes, ["ok", "already_final", "already_final", "ok", "last_governor", "ok"]);
    } else {
        assert_eq!(codes, ["ok", "already_final", "ok", "already_final", "ok", "last_governor"]);
    }
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
