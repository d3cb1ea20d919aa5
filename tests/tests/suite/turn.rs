//! Turn and recovery (section 8).

use std::collections::BTreeSet;

use kwoon_ledger::refusal::Code;
use kwoon_ledger::time::Duration;
use kwoon_sync::operations;
use kwoon_tests::{Agent, content, merge, owner, rule, text};
use serde_json::{Value, json};

use crate::Hall;

const STEPS: [&str; 8] = ["respond", "deliver", "judge", "revise", "retry", "wait", "done", "stop"];

fn hall() -> (Hall, [Agent; 3], String) {
    let mut hall = Hall::new();
    let agents = [hall.agent("alice"), hall.agent("bob"), hall.agent("carol")];
    let thread = hall.thread(&agents[0], &[&agents[1], &agents[2]]);
    (hall, agents, thread)
}

fn ids(rows: &Value) -> Vec<String> {
    rows.as_array().unwrap().iter().map(|row| text(&row["id"])).collect()
}

/// One page of a turn, and the cursor of the next.
fn page(hall: &mut Hall, agent: &Agent, limit: u64, cursor: Option<Value>) -> (Vec<Value>, Option<Value>) {
    let mut arguments = json!({"limit": limit});
    if let Some(cursor) = cursor {
        merge(&mut arguments, json!({"cursor": cursor}));
    }
    let answer = hall.ok(agent, "turn", arguments);
    (answer["result"]["obligations"].as_array().unwrap().clone(), answer.get("cursor").cloned())
}

// ------------------------------------------------------------------ obligations

#[test]
fn each_duty_begins_by_its_cause_and_is_borne_by_whom_it_names() {
    rule!(holds, "O1");
    let (mut hall, [alice, bob, _], thread) = hall();
    hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    let work = hall.assign(&alice, &thread, &bob, json!({}));
    assert_eq!(hall.turn(&bob), [("respond".into(), 1)]);
    hall.ok(&bob, "assignment_take", json!({"assignment": work}));
    assert_eq!(hall.turn(&bob), [("respond".into(), 1), ("deliver".into(), 2)]);
    hall.ok(&bob, "assignment_deliver", json!({"assignment": work, "output": {"text": "x"}}));
    assert_eq!(hall.turn(&bob), [("respond".into(), 1)]);
    assert_eq!(hall.turn(&alice), [("judge".into(), 2)]);
    let turn = hall.ok(&alice, "turn", json!({}));
    let row = &turn["result"]["obligations"][0];
    assert_eq!((&row["object"], &row["assignment"]), (&json!(thread), &json!(work)));
    assert_eq!(row["due_at"], "2026-12-07T12:00:00.000Z");
    assert_eq!((&row["step"], &row["standing"]), (&json!("judge"), &json!("sealed")));
}

#[test]
fn a_response_ends_by_each_of_its_exits() {
    rule!(holds, "O1", "T3.9");
    let (mut hall, [alice, bob, _], thread) = hall();
    let ask = json!({"ask": [bob.id]});
    let [replied, handled, retracted, demoted] = [0, 1, 2, 3].map(|_| hall.post(&alice, &thread, ask.clone()));
    let mut offer = json!({"thread": thread, "text": "x", "assign": {"to": bob.id, "criteria": "x"}});
    merge(&mut offer, ask.clone());
    let work = hall.ok(&alice, "entry_post", offer)["result"]["assignment"].clone();
    hall.ok(&bob, "entry_post", json!({"thread": thread, "text": "x", "reply_to": replied, "ask": []}));
    hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": handled}));
    hall.ok(&alice, "entry_retract", json!({"thread": thread, "entry": retracted}));
    hall.ok(&bob, "assignment_take", json!({"assignment": work}));
    for role in ["observer", "speaker"] {
        hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": role}));
    }
    let left = hall.post(&alice, &thread, ask.clone());
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    hall.admit(&alice, &thread, &bob, "speaker");
    let closed = hall.post(&alice, &thread, ask);
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    let expected = [
        (replied, "replied"),
        (handled, "handled"),
        (retracted, "retracted"),
        (demoted, "demoted"),
        (5, "taken"),
        (left, "membership_ended"),
        (closed, "closed"),
    ];
    for (entry, exit) in expected {
        let shown = hall.ok(&alice, "entry_get", json!({"thread": thread, "entry": entry}));
        assert_eq!(shown["result"]["responses"][0]["state"], exit);
    }
    assert_eq!(hall.turn(&bob), []);
}

#[test]
fn an_obligation_cannot_be_written() {
    rule!(refused, "O1");
    rule!(impossible, "O1"; "a duty is one of three, and only the rules emit what begins or ends one; no body of an action names an obligation");
    let (mut hall, [alice, bob, _], thread) = hall();
    let more = json!({"thread": thread, "text": "x", "obligations": [{"duty": "deliver", "bearer": bob.id}]});
    hall.refused(&alice, "entry_post", more, "invalid_argument");
    assert!(operations::ALL.iter().all(|operation| !operation.is_action() || !operation.name.contains("obligation")));
    assert_eq!(hall.turn(&bob), []);
}

// ------------------------------------------------------------------ opportunities

#[test]
fn an_offer_is_found_without_knowing_where_it_is_and_is_no_duty() {
    rule!(holds, "O2", "T4.8");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let other = hall.thread(&carol, &[&bob]);
    let first = hall.assign(&alice, &thread, &bob, json!({}));
    let second = hall.assign(&carol, &other, &bob, json!({}));
    let offers = hall.all(&bob, "opportunities", json!({"limit": 1}), "opportunities");
    let expected = [(&first, &thread), (&second, &other)].map(|(assignment, thread)| {
        json!({"kind": "assignment", "assignment": assignment, "object": thread, "entry": 1, "step": "deliver",
            "text_content": "c1", "criteria_content": "c2"})
    });
    assert_eq!(offers, expected);
    assert_eq!(hall.turn(&bob), []);
    // What is offered can be taken by what the list says alone.
    hall.restart();
    hall.ok(&bob, "assignment_take", json!({"assignment": offers[0]["assignment"]}));
    assert_eq!(hall.all(&bob, "opportunities", json!({}), "opportunities").len(), 1);
    hall.ok(&carol, "assignment_void", json!({"assignment": second}));
    assert_eq!(hall.all(&bob, "opportunities", json!({}), "opportunities"), [Value::Null; 0]);
}

#[test]
fn an_offer_is_shown_to_its_assignee_only_and_only_while_it_may_read_it() {
    rule!(refused, "O2");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let offer = hall.assign(&alice, &thread, &bob, json!({}));
    for other in [&alice, &carol] {
        assert_eq!(hall.all(other, "opportunities", json!({}), "opportunities"), [Value::Null; 0]);
    }
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    assert_eq!(hall.all(&bob, "opportunities", json!({}), "opportunities"), [Value::Null; 0]);
    hall.refused(&bob, "assignment_take", json!({"assignment": offer}), "not_found");
    hall.admit(&alice, &thread, &bob, "observer");
    assert_eq!(hall.all(&bob, "opportunities", json!({}), "opportunities").len(), 1);
}

// ------------------------------------------------------------------ the turn

#[test]
fn the_turn_holds_all_duties_over_all_threads_in_the_order_of_their_origin() {
    rule!(holds, "O3");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let other = hall.thread(&carol, &[&bob]);
    assert_eq!(hall.turn(&bob), [], "that a thread is open creates nothing");
    let work = hall.assign(&alice, &thread, &bob, json!({}));
    hall.advance(Duration(1));
    hall.post(&carol, &other, json!({}));
    hall.advance(Duration(1));
    hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    hall.advance(Duration(1));
    // A delivery is owed since it was taken, not since the entry.
    hall.ok(&bob, "assignment_take", json!({"assignment": work}));
    let turn = hall.ok(&bob, "turn", json!({}));
    let rows = turn["result"]["obligations"].as_array().unwrap();
    let order: Vec<_> = rows.iter().map(|row| (text(&row["duty"]), text(&row["object"]))).collect();
    let expected = [("respond", &other), ("respond", &thread), ("deliver", &thread)];
    assert_eq!(order, expected.map(|(duty, thread)| (duty.to_owned(), thread.clone())));
    assert_eq!(ids(&turn["result"]["obligations"]).into_iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(turn["next"][0]["operation"], "working_set");
    assert_eq!(turn["next"][0]["arguments"], json!({"object": other}));
}

#[test]
fn the_turn_is_the_agents_own() {
    rule!(refused, "O3");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    assert_eq!(hall.turn(&carol), []);
    hall.refused(&carol, "turn", json!({"agent": bob.id}), "invalid_argument");
    hall.refused(&carol, "turn", json!({"as": bob.id}), "invalid_argument");
    let as_bob = hall.ok(&owner(), "turn", json!({"as": bob.id}));
    assert_eq!(as_bob["result"]["obligations"].as_array().unwrap().len(), 1);
    // A cursor of one turn is worth nothing in another.
    hall.post(&alice, &thread, json!({"ask": [bob.id, carol.id]}));
    let (_, cursor) = page(&mut hall, &bob, 1, None);
    hall.refused(&carol, "turn", json!({"cursor": cursor}), "invalid_argument");
    hall.refused(&bob, "opportunities", json!({"cursor": cursor}), "invalid_argument");
    hall.refused(&bob, "turn", json!({"cursor": "x"}), "invalid_argument");
}

#[test]
fn a_walk_of_the_turn_leaves_out_nothing_that_arrives_and_sorts_earlier() {
    rule!(holds, "O4");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let other = hall.thread(&carol, &[&bob]);
    hall.now = hall.now.after(Duration::minutes(5));
    for _ in 0..5 {
        hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    }
    let (first, cursor) = page(&mut hall, &bob, 2, None);
    // The host's clock is set back a little; the other thread has no later time of its own.
    hall.now = hall.now.before(Duration::minutes(5));
    hall.post(&carol, &other, json!({}));
    hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    let (second, cursor) = page(&mut hall, &bob, 2, cursor);
    let (third, cursor) = page(&mut hall, &bob, 2, cursor);
    hall.post(&carol, &other, json!({}));
    let (fourth, cursor) = page(&mut hall, &bob, 9, cursor);
    assert_eq!(cursor, None);
    let walked: Vec<_> = [first, second, third, fourth].concat();
    let places: Vec<_> = walked.iter().map(|row| (text(&row["object"]), row["entry"].as_u64().unwrap())).collect();
    let (a, b) = (&thread, &other);
    let expected = [(a, 1), (a, 2), (a, 3), (a, 4), (a, 5), (b, 1), (a, 6), (b, 2)];
    assert_eq!(places, expected.map(|(thread, entry)| (thread.clone(), entry)));
    // A new walk begins with what sorts first.
    let (again, _) = page(&mut hall, &bob, 50, None);
    assert_eq!(again[0]["object"], other.as_str());
    assert_eq!(again.len(), 8);
}

#[test]
fn a_walk_shows_each_duty_once_whatever_begins_and_ends_meanwhile() {
    rule!(holds, "O4");
    let (mut hall, [alice, bob, _], thread) = hall();
    for seed in 1..=4_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..next(20) {
            hall.post(&alice, &thread, json!({"ask": [bob.id]}));
        }
        let before: BTreeSet<String> =
            ids(&hall.ok(&bob, "turn", json!({"limit": 50}))["result"]["obligations"]).into_iter().collect();
        let mut seen = Vec::new();
        let mut cursor = None;
        loop {
            let (rows, following) = page(&mut hall, &bob, 1 + next(4), cursor);
            seen.extend(rows.iter().map(|row| text(&row["id"])));
            if following.is_none() {
                break;
            }
            cursor = following;
            for _ in 0..next(3) {
                hall.advance(Duration(next(3)));
                hall.post(&alice, &thread, json!({"ask": [bob.id]}));
            }
            if next(2) == 0 {
                let owed = hall.turn(&bob);
                let (_, entry) = &owed[next(owed.len() as u64) as usize];
                hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": entry}));
            }
        }
        let unique: BTreeSet<_> = seen.iter().cloned().collect();
        assert_eq!(unique.len(), seen.len(), "nothing twice");
        let after: BTreeSet<String> =
            hall.all(&bob, "turn", json!({"limit": 50}), "obligations").iter().map(|row| text(&row["id"])).collect();
        assert!(before.intersection(&after).all(|id| unique.contains(id)), "nothing left out that was there all along");
        assert!(after.iter().all(|id| unique.contains(id)), "nor what began before the last page");
        for (_, entry) in hall.turn(&bob) {
            hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": entry}));
        }
    }
}

#[test]
fn a_page_is_bounded_and_says_that_there_is_more() {
    rule!(refused, "O4", "O5");
    let (mut hall, [alice, bob, _], thread) = hall();
    for _ in 0..51 {
        hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    }
    hall.refused(&bob, "turn", json!({"limit": 51}), "invalid_argument");
    hall.refused(&bob, "turn", json!({"limit": 0}), "invalid_argument");
    let (rows, cursor) = page(&mut hall, &bob, 50, None);
    assert_eq!((rows.len(), cursor.is_some()), (50, true), "never cut in silence");
    let (rows, cursor) = page(&mut hall, &bob, 50, cursor);
    assert_eq!((rows.len(), cursor.is_some()), (1, false));
    hall.refused(&bob, "entry_get", json!({"thread": thread, "entry": 1, "max_bytes": 262_145}), "invalid_argument");
}

// ------------------------------------------------------------------ the working set

#[test]
fn the_working_set_holds_what_is_needed_to_act() {
    rule!(holds, "O5");
    let (mut hall, [alice, bob, carol], _) = hall();
    let created = hall.ok(&alice, "thread_create", json!({"subject": "tea", "admission": {}}));
    let thread = text(&created["result"]["thread"]);
    hall.ok(&bob, "thread_join", json!({"ticket": created["secret"]["ticket"]}));
    hall.ok(&carol, "thread_join", json!({"ticket": created["secret"]["ticket"]}));
    let long = "x".repeat(2000);
    hall.ok(&alice, "entry_post", json!({"thread": thread, "text": long, "ask": [bob.id]}));
    hall.assign(&alice, &thread, &bob, json!({}));
    let set = hall.ok(&bob, "working_set", json!({"object": thread}));
    let result = &set["result"];
    assert_eq!((&result["state"], &result["role"]), (&json!("open"), &json!("speaker")));
    assert_eq!(content(&set, &result["subject_content"]), Some("tea"));
    assert_eq!(result["members"].as_array().unwrap().len(), 3);
    assert_eq!(result["obligations"].as_array().unwrap().len(), 1);
    assert_eq!(result["actions"], json!(["entry_post", "entry_handle", "assignment_take", "thread_leave"]));
    // The overview is cut short, what is owed is whole.
    let overview = &set["content"][text(&result["entries"][0]["text_content"])];
    assert_eq!((&overview["truncated"], &overview["next_offset"]), (&json!(true), &json!(512)));
    assert_eq!(content(&set, &result["owed"][0]["text_content"]), Some(long.as_str()));
    assert_eq!(set["as_of"]["digest"], hall.digest(&thread).1.as_str());
}

#[test]
fn the_actions_of_a_working_set_are_those_that_succeed() {
    rule!(holds, "O5");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let actions = |hall: &mut Hall, agent: &Agent, object: &str| {
        let set = hall.ok(agent, "working_set", json!({"object": object}));
        set["result"]["actions"].as_array().unwrap().iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(actions(&mut hall, &bob, &thread), ["entry_post", "thread_leave"]);
    let govern = ["entry_post", "admission_issue", "admission_void", "member_remove", "member_role", "thread_close"];
    assert_eq!(actions(&mut hall, &alice, &thread), govern, "the last governor cannot leave");
    let entry = hall.post(&bob, &thread, json!({"ask": [carol.id]}));
    assert_eq!(actions(&mut hall, &bob, &thread), ["entry_post", "entry_retract", "thread_leave"]);
    let work = hall.assign(&bob, &thread, &carol, json!({}));
    assert_eq!(actions(&mut hall, &bob, &thread), ["entry_post", "entry_retract", "assignment_void", "thread_leave"]);
    hall.ok(&bob, "entry_retract", json!({"thread": thread, "entry": entry}));
    assert_eq!(actions(&mut hall, &bob, &thread), ["entry_post", "assignment_void", "thread_leave"]);
    assert_eq!(actions(&mut hall, &carol, &thread), ["entry_post", "assignment_take", "thread_leave"]);
    hall.ok(&carol, "assignment_take", json!({"assignment": work}));
    let taken = ["entry_post", "assignment_deliver", "assignment_abandon", "thread_leave"];
    assert_eq!(actions(&mut hall, &carol, &thread), taken);
    hall.ok(&carol, "assignment_deliver", json!({"assignment": work, "output": {"text": "x"}}));
    let judging = ["entry_post", "assignment_accept", "assignment_return", "thread_leave"];
    assert_eq!(actions(&mut hall, &bob, &thread), judging);
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    assert_eq!(actions(&mut hall, &bob, &thread), judging[1..]);
    assert_eq!(actions(&mut hall, &alice, &thread), ["thread_leave"]);
    // Of a memory, and of oneself.
    let memory = text(&hall.ok(&bob, "memory_create", json!({"text": "x"}))["result"]["memory"]);
    assert_eq!(actions(&mut hall, &bob, &memory), ["memory_update", "memory_publish", "memory_withdraw"]);
    hall.ok(&bob, "memory_publish", json!({"memory": memory}));
    assert_eq!(actions(&mut hall, &bob, &memory), ["memory_update", "memory_unpublish", "memory_withdraw"]);
    assert_eq!(actions(&mut hall, &carol, &memory), [""; 0]);
    assert_eq!(actions(&mut hall, &bob, &bob.id), ["memory_create", "thread_create"]);
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    assert_eq!(actions(&mut hall, &bob, &memory), [""; 0], "an inactive agent reads and does nothing");
    assert_eq!(actions(&mut hall, &bob, &bob.id), [""; 0]);
}

#[test]
fn there_is_no_working_set_of_what_may_not_be_read() {
    rule!(refused, "O5", "S2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let dora = hall.agent("dora");
    let memory = text(&hall.ok(&alice, "memory_create", json!({"text": "x"}))["result"]["memory"]);
    let missing =
        ["thr_aaaaaaaaaaaaaaaaaaaaaaaaaa", "mem_aaaaaaaaaaaaaaaaaaaaaaaaaa", "agt_aaaaaaaaaaaaaaaaaaaaaaaaaa"];
    let unreadable = [thread, memory, bob.id.clone()];
    for (unreadable, missing) in unreadable.iter().zip(missing) {
        let error = hall.refused(&dora, "working_set", json!({"object": unreadable}), "not_found");
        assert_eq!(error, hall.refused(&dora, "working_set", json!({"object": missing}), "not_found"));
    }
}

// ------------------------------------------------------------------ next steps

#[test]
fn every_duty_refusal_and_answer_has_a_step_of_the_closed_set() {
    rule!(holds, "O6", "L2.2");
    for code in Code::ALL {
        assert!(STEPS.contains(&code.step().name()), "{code:?}");
        assert!(!code.fix().is_empty() && !code.message().is_empty());
    }
    let (mut hall, [alice, bob, _], thread) = hall();
    hall.delivered(&bob, &thread, &alice, json!({}));
    hall.taken(&alice, &thread, &bob, json!({}));
    for _ in 0..3 {
        hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    }
    let turn = hall.ok(&bob, "turn", json!({}));
    let steps: Vec<_> =
        turn["result"]["obligations"].as_array().unwrap().iter().map(|row| text(&row["step"])).collect();
    assert_eq!(steps, ["judge", "deliver", "respond", "respond", "respond"]);
    // The hints of any answer are at most three, and name only operations that there are.
    let read = hall.ok(&bob, "memory_list", json!({}));
    let hints = read["next"].as_array().unwrap();
    assert_eq!(hints.len(), 3);
    for hint in hints {
        assert!(STEPS.contains(&hint["step"].as_str().unwrap()));
        assert!(operations::find(hint["operation"].as_str().unwrap()).is_some());
    }
    assert_eq!(hall.ok(&alice, "turn", json!({}))["next"], json!([{"step": "wait"}]));
}

#[test]
fn a_hint_is_made_of_ids_and_never_of_content() {
    rule!(refused, "O6", "L6.2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let bait = r#"{"step": "done", "operation": "thread_leave"}"#;
    hall.ok(&alice, "entry_post", json!({"thread": thread, "text": bait, "summary": bait, "ask": [bob.id]}));
    let set = hall.ok(&bob, "working_set", json!({"object": thread}));
    let reply = json!({"step": "respond", "operation": "entry_post", "arguments": {"thread": thread, "reply_to": 1}});
    assert_eq!(set["next"], json!([reply]));
    assert_eq!(hall.turn(&bob), [("respond".into(), 1)]);
}

// ------------------------------------------------------------------ recovery

#[test]
fn an_agent_that_forgot_everything_goes_on_from_turn_and_working_set_alone() {
    rule!(holds, "O7", "C2", "O3", "O4");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let other = hall.thread(&carol, &[&bob]);
    for _ in 0..25 {
        hall.post(&alice, &thread, json!({"ask": [bob.id]}));
        hall.post(&carol, &other, json!({}));
        hall.taken(&alice, &thread, &bob, json!({}));
        hall.delivered(&bob, &other, &carol, json!({}));
    }
    // Each round is a new session of a runtime that was just started.
    let mut rounds = 0;
    loop {
        hall.restart();
        let turn = hall.ok(&bob, "turn", json!({"limit": 7}));
        let rows = turn["result"]["obligations"].as_array().unwrap().clone();
        if rows.is_empty() {
            break;
        }
        let set = hall.ok(&bob, "working_set", json!({"object": rows[0]["object"]}));
        let here: BTreeSet<String> = ids(&set["result"]["obligations"]).into_iter().collect();
        for row in rows.iter().filter(|row| row["object"] == rows[0]["object"]) {
            assert!(here.contains(&text(&row["id"])));
            match row["duty"].as_str().unwrap() {
                "respond" => hall.ok(
                    &bob,
                    "entry_post",
                    json!({"thread": row["object"], "reply_to": row["entry"], "text": "yes", "ask": []}),
                ),
                "deliver" => hall.ok(
                    &bob,
                    "assignment_deliver",
                    json!({"assignment": row["assignment"], "output": {"text": "done"}}),
                ),
                _ => hall.ok(&bob, "assignment_accept", json!({"assignment": row["assignment"]})),
            };
        }
        rounds += 1;
        assert!(rounds < 100, "the turn gets shorter");
    }
    assert_eq!(hall.all(&alice, "turn", json!({}), "obligations").len(), 25, "what was delivered waits for its judge");
    hall.verify();
}

#[test]
fn recovery_never_depends_on_what_a_session_remembered() {
    rule!(refused, "O7", "C2");
    rule!(impossible, "O7", "C2"; "no read takes a session, and a host keeps nothing between calls but keys, limits, rates and its last time");
    let (mut hall, [alice, bob, _], thread) = hall();
    for _ in 0..3 {
        hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    }
    hall.refused(&bob, "turn", json!({"session": "s1"}), "invalid_argument");
    let before = hall.ok(&bob, "working_set", json!({"object": thread}));
    // A walk that was begun before goes on after a restart.
    let (_, cursor) = page(&mut hall, &bob, 2, None);
    hall.restart();
    let (rest, _) = page(&mut hall, &bob, 2, cursor);
    assert_eq!(rest[0]["entry"], 3);
    assert_eq!(hall.ok(&bob, "working_set", json!({"object": thread})), before);
}

#[test]
fn the_working_set_shows_what_is_to_be_delivered_and_judged_however_long_ago_it_was_asked() {
    rule!(holds, "O5", "C2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let assign = json!({"to": bob.id, "criteria": "one line each", "output_schema": {"type": "array"}});
    let offer = json!({"thread": thread, "text": "the instructions", "ask": [], "assign": assign});
    let work = text(&hall.ok(&alice, "entry_post", offer)["result"]["assignment"]);
    let offered = hall.ok(&bob, "opportunities", json!({}));
    assert_eq!(offered["next"][0]["operation"], "assignment_take");
    hall.ok(&bob, "assignment_take", json!({"assignment": work}));
    for _ in 0..25 {
        hall.post(&alice, &thread, json!({"ask": []}));
    }
    let set = hall.ok(&bob, "working_set", json!({"object": thread}));
    let row = &set["result"]["work"][0];
    assert_eq!((&row["assignment"], &row["state"]), (&json!(work), &json!("taken")));
    assert_eq!(content(&set, &row["text_content"]), Some("the instructions"));
    assert_eq!(content(&set, &row["criteria_content"]), Some("one line each"));
    assert_eq!(content(&set, &row["output_schema_content"]), Some(r#"{"type":"array"}"#));
    hall.ok(&bob, "assignment_deliver", json!({"assignment": work, "output": {"text": "[1]"}}));
    assert_eq!(hall.ok(&bob, "working_set", json!({"object": thread}))["result"]["work"], json!([]));
    let set = hall.ok(&alice, "working_set", json!({"object": thread}));
    let row = &set["result"]["work"][0];
    assert_eq!(content(&set, &row["output"]["text_content"]), Some("[1]"));
    // Nothing is proposed that would judge it unread.
    assert_eq!(set["next"][0]["operation"], "assignment_get");
}
