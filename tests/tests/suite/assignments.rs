//! Assignments (section 6.4).

use kwoon_ledger::limits::Limits;
use kwoon_ledger::time::{Duration, Time};
use kwoon_sync::operations;
use kwoon_tests::{Agent, content, effects, merge, owner, rule, text};
use serde_json::{Value, json};

use crate::Hall;

const HOUR: Duration = Duration::minutes(60);

/// A hall with a governor and two speakers in one thread.
fn hall() -> (Hall, [Agent; 3], String) {
    let mut hall = Hall::new();
    let agents = [hall.agent("alice"), hall.agent("bob"), hall.agent("carol")];
    let thread = hall.thread(&agents[0], &[&agents[1], &agents[2]]);
    (hall, agents, thread)
}

fn shown(hall: &mut Hall, reader: &Agent, assignment: &str) -> Value {
    hall.ok(reader, "assignment_get", json!({"assignment": assignment}))
}

fn of(assignment: &str) -> Value {
    json!({"assignment": assignment})
}

fn output(assignment: &str, output: Value) -> Value {
    json!({"assignment": assignment, "output": output})
}

/// Every action on an assignment by one agent, and the code that each is refused with.
fn all_refused(hall: &mut Hall, agent: &Agent, assignment: &str, codes: [&str; 6]) {
    let calls = [
        ("assignment_take", of(assignment)),
        ("assignment_deliver", output(assignment, json!({"text": "x"}))),
        ("assignment_accept", of(assignment)),
        ("assignment_return", json!({"assignment": assignment, "reason": "no"})),
        ("assignment_abandon", of(assignment)),
        ("assignment_void", of(assignment)),
    ];
    for ((operation, arguments), code) in calls.into_iter().zip(codes) {
        hall.refused(agent, operation, arguments, code);
    }
}

// ------------------------------------------------------------------ offering

#[test]
fn an_assignment_fixes_its_terms_with_every_default_written_down() {
    rule!(holds, "T4.1", "L4.2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let offer = json!({"thread": thread, "text": "please", "ask": [], "assign": {"to": bob.id, "criteria": "well",
        "output_schema": {"type": "object"}}});
    let posted = hall.ok(&alice, "entry_post", offer);
    assert_eq!(effects(&posted), ["entry_posted", "assignment_offered"]);
    let assignment = text(&posted["result"]["assignment"]);
    let seen = shown(&mut hall, &bob, &assignment);
    assert_eq!(seen["result"]["state"], "offered");
    assert_eq!((&seen["result"]["creator"], &seen["result"]["assignee"]), (&json!(alice.id), &json!(bob.id)));
    assert_eq!(seen["result"]["entry"], 1);
    assert_eq!(seen["result"]["deliver_within"], "7d");
    assert_eq!(seen["result"]["judge_within"], "7d");
    assert_eq!(content(&seen, &seen["result"]["criteria_content"]), Some("well"));
    assert_eq!(content(&seen, &seen["result"]["output_schema_content"]), Some(r#"{"type":"object"}"#));
    // One to oneself is allowed.
    let own = hall.assign(&alice, &thread, &alice, json!({"deliver_within": "90s", "judge_within": "400d"}));
    let seen = shown(&mut hall, &bob, &own);
    assert_eq!(seen["result"]["deliver_within"], "90s");
    assert_eq!(seen["result"]["judge_within"], "400d");
}

#[test]
fn an_assignment_that_is_not_whole_or_names_nobody_is_refused() {
    rule!(refused, "T4.1", "L4.2");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let dora = hall.agent("dora");
    let offer = |assign: Value| json!({"thread": thread, "text": "please", "assign": assign});
    hall.refused(&alice, "entry_post", offer(json!({"to": dora.id, "criteria": "well"})), "bad_reference");
    hall.refused(&alice, "entry_post", offer(json!({"to": bob.id})), "invalid_argument");
    hall.refused(&alice, "entry_post", offer(json!({"to": bob.id, "criteria": ""})), "invalid_argument");
    hall.refused(&alice, "entry_post", offer(json!({"to": [bob.id, carol.id], "criteria": "x"})), "invalid_argument");
    for duration in ["0s", "401d", "1w", "-1s", ""] {
        let offer = offer(json!({"to": bob.id, "criteria": "x", "deliver_within": duration}));
        hall.refused(&alice, "entry_post", offer, "invalid_argument");
    }
    let long = offer(json!({"to": bob.id, "criteria": "c".repeat((64 << 10) + 1)}));
    hall.refused(&alice, "entry_post", long, "content_too_large");
}

#[test]
fn what_is_offered_binds_nobody_and_has_no_running_time() {
    rule!(holds, "T4.8", "T4.2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let offered = hall.assign(&alice, &thread, &bob, json!({"deliver_within": "1s", "judge_within": "1s"}));
    assert_eq!((hall.turn(&alice), hall.turn(&bob)), (vec![], vec![]));
    hall.advance(Duration::days(20));
    hall.advance(Duration::days(20));
    assert_eq!(hall.state(&bob, &offered), "offered");
    assert!(shown(&mut hall, &bob, &offered)["result"].get("due_at").is_none());
    hall.ok(&bob, "assignment_take", of(&offered));
    let voided = hall.assign(&alice, &thread, &bob, json!({}));
    assert_eq!(effects(&hall.ok(&alice, "assignment_void", of(&voided))), ["assignment_ended voided"]);
    assert_eq!(hall.state(&bob, &voided), "voided");
}

#[test]
fn what_is_not_taken_is_neither_delivered_nor_judged_nor_abandoned() {
    rule!(refused, "T4.8");
    let (mut hall, [alice, bob, _], thread) = hall();
    let offered = hall.assign(&alice, &thread, &bob, json!({}));
    hall.refused(&bob, "assignment_deliver", output(&offered, json!({"text": "x"})), "not_taker");
    hall.refused(&bob, "assignment_abandon", of(&offered), "not_taker");
    hall.refused(&alice, "assignment_accept", of(&offered), "not_judge");
    hall.refused(&alice, "assignment_return", json!({"assignment": offered, "reason": "no"}), "not_judge");
}

// ------------------------------------------------------------------ time

#[test]
fn delivery_time_runs_from_taking_and_judgment_time_from_the_delivery() {
    rule!(holds, "T4.2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.assign(&alice, &thread, &bob, json!({"deliver_within": "1h", "judge_within": "2h"}));
    hall.advance(HOUR);
    let taken = hall.ok(&bob, "assignment_take", of(&work));
    assert_eq!(taken["result"]["due_at"], "2026-11-30T14:00:00.000Z");
    hall.advance(Duration::minutes(30));
    let delivered = hall.ok(&bob, "assignment_deliver", output(&work, json!({"text": "done"})));
    assert_eq!(delivered["result"]["due_at"], "2026-11-30T15:30:00.000Z");
    assert_eq!(shown(&mut hall, &alice, &work)["result"]["due_at"], "2026-11-30T15:30:00.000Z");
}

#[test]
fn a_deadline_cannot_be_moved() {
    rule!(refused, "T4.2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.assign(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
    let longer = json!({"assignment": work, "deliver_within": "9h"});
    hall.refused(&bob, "assignment_take", longer, "invalid_argument");
}

#[test]
fn a_delivery_is_accepted_until_the_last_millisecond() {
    rule!(holds, "L4.3", "T4.10");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.taken(&alice, &thread, &bob, json!({"deliver_within": "1h", "judge_within": "1h"}));
    hall.now = hall.now.after(Duration(HOUR.0 - 1));
    hall.ok(&bob, "assignment_deliver", output(&work, json!({"text": "just in time"})));
    hall.now = hall.now.after(Duration(HOUR.0 - 1));
    hall.ok(&alice, "assignment_accept", of(&work));
    assert_eq!(hall.state(&bob, &work), "accepted");
}

#[test]
fn an_action_at_or_after_the_deadline_comes_after_the_expiry() {
    rule!(refused, "L4.3", "T4.10");
    // The action arrives before the host has sealed the expiry: that is the race, and the expiry wins it.
    for late in [0, 1, 3_600_000] {
        let (mut hall, [alice, bob, _], thread) = hall();
        let terms = json!({"deliver_within": "1h", "judge_within": "1h"});
        let due = hall.taken(&alice, &thread, &bob, terms.clone());
        let given_up = hall.taken(&alice, &thread, &bob, terms.clone());
        let voided = hall.taken(&alice, &thread, &bob, terms.clone());
        let [accepted, returned] = [0, 1].map(|_| hall.delivered(&alice, &thread, &bob, terms.clone()));
        hall.now = hall.now.after(HOUR).after(Duration(late));
        let calls = [
            (&bob, "assignment_deliver", output(&due, json!({"text": "late"}))),
            (&bob, "assignment_abandon", of(&given_up)),
            (&alice, "assignment_void", of(&voided)),
            (&alice, "assignment_accept", of(&accepted)),
            (&alice, "assignment_return", json!({"assignment": returned, "reason": "no"})),
        ];
        for (agent, operation, arguments) in calls {
            assert_eq!(hall.call(agent, operation, arguments)["error"]["code"], "expired", "{operation} {late}");
        }
        for work in [&due, &given_up, &voided] {
            assert_eq!(hall.state(&bob, work), "timed_out");
        }
        for work in [&accepted, &returned] {
            assert_eq!(hall.state(&bob, work), "undecided");
        }
        hall.verify();
    }
}

#[test]
fn an_expiry_is_sealed_at_its_own_time_however_late_the_host_is() {
    rule!(holds, "T4.10", "L4.3");
    let (mut hall, [alice, bob, _], thread) = hall();
    let slow = hall.taken(&alice, &thread, &bob, json!({"deliver_within": "2h"}));
    let fast = hall.taken(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
    hall.now = hall.now.after(Duration::days(1));
    hall.post(&alice, &thread, json!({"ask": []}));
    let facts = hall.facts(&thread);
    let expiries: Vec<_> = facts.iter().filter(|fact| fact["cause"] == "expiry").collect();
    let about: Vec<_> = expiries
        .iter()
        .map(|fact| (text(&fact["event"]["occurred_at"]), text(&fact["event"]["payload"]["due"]["assignment"])))
        .collect();
    let expected = [("2026-11-30T13:00:00.000Z", &fast), ("2026-11-30T14:00:00.000Z", &slow)];
    assert_eq!(about, expected.map(|(time, work)| (time.to_owned(), work.clone())));
    assert_eq!(facts.last().unwrap()["cause"], "action", "and all of them before the action");
    assert_eq!(hall.turn(&bob), []);
    hall.verify();
}

#[test]
fn a_deadline_that_has_passed_is_shown_as_lapsed_and_ends_nothing_by_itself() {
    rule!(holds, "O6");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.taken(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
    hall.now = hall.now.after(HOUR);
    let turn = hall.ok(&bob, "turn", json!({}));
    assert_eq!(turn["result"]["obligations"][0]["lapsed"], true);
    assert_eq!(turn["result"]["obligations"][0]["step"], "wait");
    assert_eq!(shown(&mut hall, &alice, &work)["result"]["lapsed"], true);
    hall.wake();
    assert_eq!(hall.turn(&bob), []);
    assert_eq!(hall.state(&alice, &work), "timed_out");
}

#[test]
fn past_a_deadline_nothing_that_it_ended_is_open_any_more() {
    rule!(holds, "O5");
    let (mut hall, [alice, bob, _], thread) = hall();
    let terms = json!({"deliver_within": "1h", "judge_within": "1h"});
    let (taken, judged) =
        (hall.taken(&alice, &thread, &bob, terms.clone()), hall.delivered(&alice, &thread, &bob, terms));
    let open = |hall: &mut Hall, agent: &Agent| {
        let set = hall.ok(agent, "working_set", json!({"object": thread}));
        let actions = set["result"]["actions"].as_array().unwrap().iter().map(text);
        actions.filter(|name| name.starts_with("assignment_")).collect::<Vec<_>>()
    };
    assert_eq!(open(&mut hall, &alice), ["assignment_accept", "assignment_return", "assignment_void"]);
    assert_eq!(open(&mut hall, &bob), ["assignment_deliver", "assignment_abandon"]);
    // The deadline has passed and is not sealed yet: to do any of that would be refused.
    hall.now = hall.now.after(HOUR);
    assert_eq!(open(&mut hall, &alice), [""; 0]);
    assert_eq!(open(&mut hall, &bob), [""; 0]);
    for (agent, operation, work) in [(&bob, "assignment_abandon", taken), (&alice, "assignment_accept", judged)] {
        let answer = hall.call(agent, operation, json!({"assignment": work}));
        assert_eq!(answer["error"]["code"], "expired");
    }
}

#[test]
fn deadlines_survive_a_restart() {
    rule!(holds, "T4.10");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.delivered(&alice, &thread, &bob, json!({"judge_within": "1h"}));
    hall.restart();
    assert_eq!(hall.wake_at(), hall.now.after(Duration::minutes(1)));
    hall.now = hall.now.after(Duration(HOUR.0 - 5));
    assert_eq!(hall.wake_at(), Time(hall.now.0 + 5));
    hall.advance(Duration(5));
    assert_eq!(hall.state(&bob, &work), "undecided");
    assert_eq!((hall.turn(&alice), hall.turn(&bob)), (vec![], vec![]));
}

// ------------------------------------------------------------------ taking

#[test]
fn taking_binds_and_ends_the_response_to_the_carrying_entry() {
    rule!(holds, "T4.3", "T3.9");
    let (mut hall, [alice, bob, _], thread) = hall();
    let offer = json!({"thread": thread, "text": "x", "ask": [bob.id], "assign": {"to": bob.id, "criteria": "x"}});
    let posted = hall.ok(&alice, "entry_post", offer);
    assert_eq!(hall.turn(&bob), [("respond".into(), 1)]);
    let taken = hall.ok(&bob, "assignment_take", json!({"assignment": posted["result"]["assignment"]}));
    assert_eq!(effects(&taken), ["obligation_ended respond taken", "assignment_taken", "obligation_began deliver"]);
    assert_eq!(hall.turn(&bob), [("deliver".into(), 1)]);
    // Another's response to the same entry stays.
    let offer = json!({"thread": thread, "text": "x", "ask": [alice.id], "assign": {"to": alice.id, "criteria": "x"}});
    let posted = hall.ok(&bob, "entry_post", offer);
    hall.ok(&alice, "entry_handle", json!({"thread": thread, "entry": 2}));
    let taken = hall.ok(&alice, "assignment_take", json!({"assignment": posted["result"]["assignment"]}));
    assert_eq!(effects(&taken), ["assignment_taken", "obligation_began deliver"], "nothing was pending any more");
}

#[test]
fn a_reply_does_not_take_the_assignment() {
    rule!(holds, "T4.3");
    let (mut hall, [alice, bob, _], thread) = hall();
    let offer = json!({"thread": thread, "text": "x", "ask": [bob.id], "assign": {"to": bob.id, "criteria": "x"}});
    let work = text(&hall.ok(&alice, "entry_post", offer)["result"]["assignment"]);
    hall.post(&bob, &thread, json!({"reply_to": 1, "ask": []}));
    assert_eq!(hall.turn(&bob), []);
    assert_eq!(hall.state(&bob, &work), "offered");
}

#[test]
fn only_the_assignee_takes_and_once() {
    rule!(refused, "T4.3", "T4.9");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let dora = hall.agent("dora");
    let work = hall.assign(&alice, &thread, &bob, json!({}));
    hall.refused(&dora, "assignment_take", of(&work), "not_found");
    hall.refused(&carol, "assignment_take", of(&work), "not_assignee");
    hall.refused(&alice, "assignment_take", of(&work), "not_assignee");
    hall.ok(&bob, "assignment_take", of(&work));
    hall.refused(&bob, "assignment_take", of(&work), "already_taken");
    hall.refused(&carol, "assignment_take", of(&work), "not_assignee");
    hall.ok(&bob, "assignment_deliver", output(&work, json!({"text": "done"})));
    hall.refused(&bob, "assignment_take", of(&work), "already_taken");
}

#[test]
fn taking_and_delivering_in_one_action_equals_both_in_turn() {
    rule!(holds, "L2.3", "T4.3");
    let states = [true, false].map(|combined| {
        let (mut hall, [alice, bob, _], thread) = hall();
        let offer = json!({"thread": thread, "text": "x", "ask": [bob.id], "assign": {"to": bob.id, "criteria": "x"}});
        let work = text(&hall.ok(&alice, "entry_post", offer)["result"]["assignment"]);
        let done = json!({"text": "done"});
        let effects_of_all = if combined {
            let taken = hall.ok(&bob, "assignment_take", output(&work, done));
            assert_eq!(taken["result"]["state"], "delivered");
            effects(&taken)
        } else {
            let mut all = effects(&hall.ok(&bob, "assignment_take", of(&work)));
            all.extend(effects(&hall.ok(&bob, "assignment_deliver", output(&work, done))));
            all
        };
        let seen = shown(&mut hall, &alice, &work);
        let text = content(&seen, &seen["result"]["output"]["text_content"]).map(str::to_owned);
        let state = (seen["result"]["state"].clone(), seen["result"]["due_at"].clone(), text);
        (effects_of_all, state, hall.turn(&alice), hall.turn(&bob))
    });
    assert_eq!(states[0], states[1]);
}

#[test]
fn a_combined_action_takes_effect_whole_or_not_at_all() {
    rule!(refused, "L2.3", "L2.1");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let work = hall.assign(&alice, &thread, &bob, json!({}));
    // It grants nothing that its parts do not: not another's offer, no empty output, no memory of another's.
    hall.refused(&carol, "assignment_take", output(&work, json!({"text": "x"})), "not_assignee");
    hall.refused(&bob, "assignment_take", output(&work, json!({})), "invalid_output");
    let memory = hall.ok(&carol, "memory_create", json!({"text": "hers"}))["result"]["memory"].clone();
    hall.refused(&bob, "assignment_take", output(&work, json!({"memories": [memory]})), "not_found");
    assert_eq!(hall.state(&bob, &work), "offered");
    // A post that offers an assignment to nobody leaves neither the entry nor its memory.
    let offer = json!({"thread": thread, "text": "x", "assign": {"to": alice.id, "criteria": "x", "redoes":
        "asg_aaaaaaaaaaaaaaaaaaaaaaaaaa"}});
    hall.refused(&alice, "entry_post", offer, "bad_reference");
    assert_eq!(hall.ok(&alice, "thread_get", json!({"thread": thread}))["result"]["entry_count"], 1);
}

// ------------------------------------------------------------------ delivering

#[test]
fn a_delivery_fixes_a_payload_and_versions_of_the_takers_own_memories() {
    rule!(holds, "T4.4");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let memory = hall.ok(&bob, "memory_create", json!({"text": "first"}))["result"]["memory"].clone();
    hall.ok(&bob, "memory_update", json!({"memory": memory, "text": "second"}));
    let work = hall.taken(&alice, &thread, &bob, json!({}));
    let both =
        json!({"text": "a letter", "media_type": "text/plain", "memories": [memory, {"memory": memory, "version": 1}]});
    let delivered = hall.ok(&bob, "assignment_deliver", output(&work, both));
    let expected = ["obligation_ended deliver delivered", "assignment_delivered", "obligation_began judge"];
    assert_eq!(effects(&delivered), expected);
    assert_eq!((hall.turn(&alice), hall.turn(&bob)), (vec![("judge".into(), 1)], vec![]));
    // Later changes of the memory change nothing of what was delivered.
    hall.ok(&bob, "memory_update", json!({"memory": memory, "text": "third"}));
    hall.ok(&bob, "memory_withdraw", json!({"memory": memory}));
    let seen = shown(&mut hall, &carol, &work);
    let delivery = &seen["result"]["output"];
    assert_eq!(content(&seen, &delivery["text_content"]), Some("a letter"));
    let texts: Vec<_> =
        delivery["memories"].as_array().unwrap().iter().map(|row| content(&seen, &row["text_content"])).collect();
    assert_eq!(texts, [Some("second"), Some("first")]);
}

#[test]
fn a_delivery_that_may_not_be_is_refused() {
    rule!(refused, "T4.4");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let dora = hall.agent("dora");
    let work = hall.taken(&alice, &thread, &bob, json!({}));
    let schema = hall.taken(&alice, &thread, &bob, json!({"output_schema": {"type": "object"}}));
    let hers = hall.ok(&carol, "memory_create", json!({"text": "hers"}))["result"]["memory"].clone();
    let own = hall.ok(&bob, "memory_create", json!({"text": "own"}))["result"]["memory"].clone();
    hall.refused(&dora, "assignment_deliver", output(&work, json!({"text": "x"})), "not_found");
    hall.refused(&alice, "assignment_deliver", output(&work, json!({"text": "x"})), "not_taker");
    hall.refused(&bob, "assignment_deliver", output(&work, json!({})), "invalid_output");
    hall.refused(&bob, "assignment_deliver", output(&work, json!({"text": ""})), "invalid_argument");
    hall.refused(&bob, "assignment_deliver", of(&work), "invalid_argument");
    hall.refused(&bob, "assignment_deliver", output(&work, json!({"memories": [hers]})), "not_found");
    hall.ok(&carol, "memory_publish", json!({"memory": hers}));
    hall.refused(&bob, "assignment_deliver", output(&work, json!({"memories": [hers]})), "not_found");
    let version = json!({"memories": [{"memory": own, "version": 2}]});
    hall.refused(&bob, "assignment_deliver", output(&work, version), "not_found");
    hall.refused(&bob, "assignment_deliver", output(&schema, json!({"text": "no JSON"})), "invalid_output");
    hall.refused(&bob, "assignment_deliver", output(&schema, json!({"memories": [own]})), "invalid_output");
    let large = json!({"text": "x".repeat((1 << 20) + 1)});
    hall.refused(&bob, "assignment_deliver", output(&work, large), "content_too_large");
    let many = json!({"memories": vec![own.clone(); 33]});
    hall.refused(&bob, "assignment_deliver", output(&work, many), "content_too_large");
    hall.ok(&bob, "memory_withdraw", json!({"memory": own}));
    hall.refused(&bob, "assignment_deliver", output(&work, json!({"memories": [own]})), "memory_withdrawn");
    hall.ok(&bob, "assignment_deliver", output(&schema, json!({"text": "{\"a\": 1}"})));
}

#[test]
fn whose_it_is_and_how_far_come_before_what_is_delivered() {
    rule!(refused, "T4.4", "L2.2");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let open = hall.taken(&alice, &thread, &bob, json!({"output_schema": {}}));
    let delivered = hall.delivered(&alice, &thread, &bob, json!({}));
    let ended = hall.taken(&alice, &thread, &bob, json!({}));
    hall.ok(&alice, "assignment_void", of(&ended));
    let memory = hall.ok(&bob, "memory_create", json!({"text": "own"}))["result"]["memory"].clone();
    hall.ok(&bob, "memory_withdraw", json!({"memory": memory}));
    let bad = [
        json!({}),
        json!({"text": "no JSON"}),
        json!({"memories": [memory]}),
        json!({"memories": ["mem_aaaaaaaaaaaaaaaaaaaaaaaaaa"]}),
        json!({"memories": vec![memory.clone(); 40]}),
    ];
    for bad in bad {
        hall.refused(&carol, "assignment_deliver", output(&open, bad.clone()), "not_taker");
        hall.refused(&bob, "assignment_deliver", output(&delivered, bad.clone()), "already_delivered");
        hall.refused(&bob, "assignment_deliver", output(&ended, bad.clone()), "already_final");
        hall.refused(&carol, "assignment_take", output(&open, bad.clone()), "not_assignee");
        hall.refused(&bob, "assignment_take", output(&open, bad), "already_taken");
    }
}

#[test]
fn a_delivery_is_neither_replaced_nor_taken_back() {
    rule!(refused, "T4.4", "T4.6", "T4.7", "T4.9");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.delivered(&alice, &thread, &bob, json!({}));
    hall.refused(&bob, "assignment_deliver", output(&work, json!({"text": "better"})), "already_delivered");
    hall.refused(&bob, "assignment_abandon", of(&work), "already_delivered");
    hall.refused(&alice, "assignment_void", of(&work), "already_delivered");
}

// ------------------------------------------------------------------ judging

#[test]
fn the_creator_accepts() {
    rule!(holds, "T4.5");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.delivered(&alice, &thread, &bob, json!({}));
    let accepted = hall.ok(&alice, "assignment_accept", of(&work));
    assert_eq!(effects(&accepted), ["obligation_ended judge judged", "assignment_ended accepted"]);
    assert_eq!(accepted["result"]["state"], "accepted");
    assert_eq!((hall.turn(&alice), hall.turn(&bob)), (vec![], vec![]));
}

#[test]
fn a_returned_delivery_carries_a_reason_that_the_taker_reads() {
    rule!(holds, "T4.5");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.delivered(&alice, &thread, &bob, json!({}));
    let returned = hall.ok(&alice, "assignment_return", json!({"assignment": work, "reason": "too short"}));
    assert_eq!(effects(&returned), ["obligation_ended judge judged", "assignment_ended not_passed"]);
    let seen = shown(&mut hall, &bob, &work);
    assert_eq!(seen["result"]["state"], "not_passed");
    assert_eq!(content(&seen, &seen["result"]["reason_content"]), Some("too short"));
}

#[test]
fn a_returned_delivery_needs_a_reason() {
    rule!(refused, "T4.5");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.delivered(&alice, &thread, &bob, json!({}));
    for reason in [json!(""), Value::Null] {
        let call = json!({"assignment": work, "reason": reason});
        hall.refused(&alice, "assignment_return", call.clone(), "reason_required");
        // Whose it is to judge comes first.
        hall.refused(&bob, "assignment_return", call, "not_judge");
    }
    let long = json!({"assignment": work, "reason": "r".repeat((64 << 10) + 1)});
    hall.refused(&alice, "assignment_return", long, "content_too_large");
    assert_eq!(hall.state(&bob, &work), "delivered");
}

#[test]
fn nobody_else_judges_not_even_a_governor() {
    rule!(refused, "T4.5");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let work = hall.delivered(&bob, &thread, &carol, json!({}));
    for agent in [&alice, &carol] {
        hall.refused(agent, "assignment_accept", of(&work), "not_judge");
        hall.refused(agent, "assignment_return", json!({"assignment": work, "reason": "no"}), "not_judge");
    }
}

// ------------------------------------------------------------------ abandoning and voiding

#[test]
fn the_taker_abandons_before_the_delivery() {
    rule!(holds, "T4.6", "L4.1");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.taken(&alice, &thread, &bob, json!({}));
    let abandoned = hall.ok(&bob, "assignment_abandon", of(&work));
    assert_eq!(effects(&abandoned), ["obligation_ended deliver abandoned", "assignment_ended abandoned"]);
    assert_eq!((hall.turn(&alice), hall.turn(&bob)), (vec![], vec![]));
}

#[test]
fn nobody_else_abandons() {
    rule!(refused, "T4.6");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let work = hall.taken(&alice, &thread, &bob, json!({}));
    hall.refused(&alice, "assignment_abandon", of(&work), "not_taker");
    hall.refused(&carol, "assignment_abandon", of(&work), "not_taker");
}

#[test]
fn the_creator_voids_before_the_delivery_taken_or_not() {
    rule!(holds, "T4.7");
    let (mut hall, [alice, bob, _], thread) = hall();
    let offered = hall.assign(&alice, &thread, &bob, json!({}));
    let taken = hall.taken(&alice, &thread, &bob, json!({}));
    assert_eq!(effects(&hall.ok(&alice, "assignment_void", of(&offered))), ["assignment_ended voided"]);
    let expected = ["obligation_ended deliver voided", "assignment_ended voided"];
    assert_eq!(effects(&hall.ok(&alice, "assignment_void", of(&taken))), expected);
    assert_eq!(hall.turn(&bob), []);
    hall.refused(&bob, "assignment_take", of(&offered), "already_final");
    hall.refused(&bob, "assignment_deliver", output(&taken, json!({"text": "x"})), "already_final");
}

#[test]
fn nobody_else_voids_not_even_a_governor() {
    rule!(refused, "T4.7");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let work = hall.taken(&bob, &thread, &carol, json!({}));
    hall.refused(&alice, "assignment_void", of(&work), "not_author");
    hall.refused(&carol, "assignment_void", of(&work), "not_author");
}

// ------------------------------------------------------------------ ends

#[test]
fn doing_it_again_is_a_new_assignment_that_names_the_old_one() {
    rule!(holds, "T4.9");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.delivered(&alice, &thread, &bob, json!({}));
    hall.ok(&alice, "assignment_return", json!({"assignment": work, "reason": "again"}));
    let again = hall.assign(&alice, &thread, &bob, json!({"redoes": work}));
    assert_eq!(shown(&mut hall, &bob, &again)["result"]["redoes"], work.as_str());
    assert_eq!(hall.state(&bob, &work), "not_passed", "the old one stays as it ended");
    hall.ok(&bob, "assignment_take", of(&again));
}

#[test]
fn what_is_done_again_is_an_assignment_of_the_same_thread() {
    rule!(refused, "T4.9");
    let (mut hall, [alice, bob, _], thread) = hall();
    let other = hall.thread(&alice, &[&bob]);
    let elsewhere = hall.assign(&alice, &other, &bob, json!({}));
    for redoes in [elsewhere.as_str(), "asg_aaaaaaaaaaaaaaaaaaaaaaaaaa"] {
        let assign = json!({"to": bob.id, "criteria": "x", "redoes": redoes});
        let offer = json!({"thread": thread, "text": "x", "assign": assign});
        hall.refused(&alice, "entry_post", offer, "bad_reference");
    }
}

#[test]
fn the_content_of_an_assignment_is_fixed_when_it_is_created() {
    rule!(holds, "T4.11");
    rule!(refused, "T4.11");
    rule!(impossible, "T4.11"; "no operation and no body of an action changes the terms of an assignment");
    let (mut hall, [alice, bob, _], thread) = hall();
    let work = hall.assign(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
    let terms = |hall: &mut Hall| {
        let seen = shown(hall, &bob, &work);
        let criteria = content(&seen, &seen["result"]["criteria_content"]).map(str::to_owned);
        (criteria, seen["result"]["deliver_within_s"].clone(), seen["result"]["assignee"].clone())
    };
    let before = terms(&mut hall);
    let mut take = of(&work);
    merge(&mut take, json!({"criteria": "less"}));
    hall.refused(&bob, "assignment_take", take, "invalid_argument");
    hall.ok(&bob, "assignment_take", of(&work));
    hall.ok(&bob, "assignment_deliver", output(&work, json!({"text": "done"})));
    hall.ok(&alice, "assignment_accept", of(&work));
    assert_eq!(terms(&mut hall), before);
    let changing = operations::ALL.iter().filter(|operation| operation.name.starts_with("assignment_u"));
    assert_eq!(changing.count(), 0);
}

#[test]
fn no_final_state_is_ever_left() {
    rule!(holds, "T4.12");
    rule!(refused, "T4.12");
    let (mut hall, [alice, bob, _], thread) = hall();
    let terms = json!({"deliver_within": "1h", "judge_within": "1h"});
    let [accepted, returned, undecided] = [0, 1, 2].map(|_| hall.delivered(&alice, &thread, &bob, terms.clone()));
    let [abandoned, late, voided] = [0, 1, 2].map(|_| hall.taken(&alice, &thread, &bob, terms.clone()));
    hall.ok(&alice, "assignment_accept", of(&accepted));
    hall.ok(&alice, "assignment_return", json!({"assignment": returned, "reason": "no"}));
    hall.ok(&bob, "assignment_abandon", of(&abandoned));
    hall.ok(&alice, "assignment_void", of(&voided));
    hall.advance(HOUR);
    let ends = [
        (&accepted, "accepted", "already_final"),
        (&returned, "not_passed", "already_final"),
        (&abandoned, "abandoned", "already_final"),
        (&voided, "voided", "already_final"),
        (&undecided, "undecided", "expired"),
        (&late, "timed_out", "expired"),
    ];
    for (work, state, code) in ends {
        all_refused(&mut hall, &bob, work, [code, code, "not_judge", "not_judge", code, "not_author"]);
        all_refused(&mut hall, &alice, work, ["not_assignee", "not_taker", code, code, "not_taker", code]);
        assert_eq!(hall.state(&bob, work), state);
        hall.advance(Duration::days(1));
        assert_eq!(hall.state(&bob, work), state);
    }
    let listed = hall.ok(&bob, "assignment_list", json!({"thread": thread, "state": "timed_out"}));
    assert_eq!(listed["result"]["assignments"].as_array().unwrap().len(), 1);
    assert_eq!((hall.turn(&alice), hall.turn(&bob)), (vec![], vec![]));
}

#[test]
fn a_deadline_that_ends_two_duties_of_one_agent_ends_each_once() {
    rule!(holds, "L5.2", "T4.10");
    let (mut hall, [alice, ..], thread) = hall();
    // To oneself: creator and taker are one, so its leaving ends both sides once.
    let taken = hall.taken(&alice, &thread, &alice, json!({}));
    let delivered = hall.delivered(&alice, &thread, &alice, json!({"judge_within": "1h"}));
    assert_eq!(hall.turn(&alice), [("deliver".into(), 1), ("judge".into(), 2)]);
    let closed = hall.ok(&alice, "thread_close", json!({"thread": thread}));
    assert_eq!(effects(&closed)[..2], ["obligation_ended deliver voided", "assignment_ended voided"]);
    let left = hall.ok(&alice, "thread_leave", json!({"thread": thread}));
    let expected = ["obligation_ended judge membership_ended", "judgment_forfeited", "membership_ended left"];
    assert_eq!(effects(&left), expected);
    hall.advance(HOUR);
    let ends = hall
        .facts(&thread)
        .into_iter()
        .flat_map(|fact| fact["event"]["payload"]["effects"].as_array().unwrap().clone());
    let ends: Vec<_> = ends.filter(|effect| effect["kind"] == "assignment_ended").collect();
    assert_eq!(ends.len(), 2);
    assert_eq!((&ends[0]["assignment"], &ends[1]["assignment"]), (&json!(taken), &json!(delivered)));
    hall.verify();
}

#[test]
fn a_payload_may_be_as_long_as_the_host_allows() {
    rule!(refused, "L4.4");
    let mut hall = Hall::with_limits(Limits { payload_bytes_max: 4, criteria_bytes_max: 4, ..Limits::DEFAULT });
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    let work = hall.taken(&alice, &thread, &bob, json!({"criteria": "1234"}));
    let error = hall.refused(&bob, "assignment_deliver", output(&work, json!({"text": "12345"})), "content_too_large");
    assert_eq!(error["details"], json!({"field": "output", "limit": 4}));
    hall.ok(&bob, "assignment_deliver", output(&work, json!({"text": "1234"})));
    let five = json!({"assignment": work, "reason": "12345"});
    hall.refused(&alice, "assignment_return", five, "content_too_large");
    hall.ok(&owner(), "host_status", json!({}));
}
