//! Entries and responses (section 6.3).

use kwoon_ledger::time::Duration;
use kwoon_sync::operations;
use kwoon_tests::{Agent, content, effects, merge, rule, text};
use serde_json::{Value, json};

use crate::Hall;

/// A hall with a governor, two speakers and an observer in one thread.
fn hall() -> (Hall, [Agent; 4], String) {
    let mut hall = Hall::new();
    let agents = [hall.agent("alice"), hall.agent("bob"), hall.agent("carol"), hall.agent("olaf")];
    let thread = hall.thread(&agents[0], &[&agents[1], &agents[2]]);
    hall.admit(&agents[0], &thread, &agents[3], "observer");
    (hall, agents, thread)
}

/// The same with two members that have a voice.
fn pair() -> (Hall, [Agent; 3], String) {
    let mut hall = Hall::new();
    let agents = [hall.agent("alice"), hall.agent("bob"), hall.agent("olaf")];
    let thread = hall.thread(&agents[0], &[&agents[1]]);
    hall.admit(&agents[0], &thread, &agents[2], "observer");
    (hall, agents, thread)
}

/// Whom an entry asked, and the state of each response.
fn responses(hall: &mut Hall, reader: &Agent, thread: &str, entry: u64) -> Vec<(String, String)> {
    let shown = hall.ok(reader, "entry_get", json!({"thread": thread, "entry": entry}));
    let rows = shown["result"]["responses"].as_array().unwrap().clone();
    rows.iter().map(|row| (text(&row["agent"]), text(&row["state"]))).collect()
}

/// Whom a new entry asks, by the receipt of posting it.
fn asked(answer: &Value) -> Vec<String> {
    let effects = answer["receipt"]["effects"].as_array().unwrap().iter();
    effects.filter(|effect| effect["kind"] == "obligation_began").map(|effect| text(&effect["bearer"])).collect()
}

fn say(hall: &mut Hall, author: &Agent, thread: &str, more: Value) -> Value {
    let mut arguments = json!({"thread": thread, "text": "hello"});
    merge(&mut arguments, more);
    hall.ok(author, "entry_post", arguments)
}

// ------------------------------------------------------------------ speaking

#[test]
fn members_with_a_voice_speak_in_an_open_thread() {
    rule!(holds, "T3.1");
    let (mut hall, [alice, bob, ..], thread) = hall();
    let posted = say(&mut hall, &bob, &thread, json!({}));
    assert_eq!(effects(&posted), ["entry_posted"]);
    assert_eq!(posted["result"]["entry"], 1);
    say(&mut hall, &alice, &thread, json!({}));
}

#[test]
fn who_may_not_speak_is_told_why_in_the_order_of_checks() {
    rule!(refused, "T3.1");
    let (mut hall, [alice, bob, _, olaf], thread) = hall();
    let dora = hall.agent("dora");
    let speak = json!({"thread": thread, "text": "x"});
    hall.refused(&dora, "entry_post", speak.clone(), "not_found");
    hall.refused(&olaf, "entry_post", speak.clone(), "no_voice");
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    hall.refused(&bob, "entry_post", speak.clone(), "not_found");
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    hall.refused(&dora, "entry_post", speak.clone(), "not_found");
    hall.refused(&olaf, "entry_post", speak.clone(), "no_voice");
    hall.refused(&alice, "entry_post", speak, "thread_closed");
}

#[test]
fn role_and_state_come_before_what_an_entry_refers_to_and_how_long_it_is() {
    rule!(refused, "T3.1", "L2.2");
    let (mut hall, [alice, _, carol, olaf], thread) = hall();
    let mut withdrawn = |agent: &Agent| {
        let memory = hall.ok(agent, "memory_create", json!({"text": "x"}))["result"]["memory"].clone();
        hall.ok(agent, "memory_withdraw", json!({"memory": memory}));
        memory
    };
    let [of_olaf, of_alice] = [withdrawn(&olaf), withdrawn(&alice)];
    let missing = "mem_aaaaaaaaaaaaaaaaaaaaaaaaaa";
    let crowd = vec![carol.id.clone(); 65];
    let attempts = |memory: &Value| {
        [
            json!({"thread": thread, "memory": memory}),
            json!({"thread": thread, "memory": missing}),
            json!({"thread": thread, "text": "x", "ask": crowd}),
            json!({"thread": thread, "text": "x", "summary": "s".repeat(3000)}),
            json!({"thread": thread, "text": "x", "reply_to": 99}),
            json!({"thread": thread, "text": "x", "task": "tsk_aaaaaaaaaaaaaaaaaaaaaaaaaa"}),
        ]
    };
    for attempt in attempts(&of_olaf) {
        hall.refused(&olaf, "entry_post", attempt, "no_voice");
    }
    let expected =
        ["memory_withdrawn", "not_found", "content_too_large", "content_too_large", "bad_reference", "not_found"];
    for (attempt, code) in attempts(&of_alice).into_iter().zip(expected) {
        hall.refused(&alice, "entry_post", attempt, code);
    }
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    for attempt in attempts(&of_alice) {
        hall.refused(&alice, "entry_post", attempt, "thread_closed");
    }
}

#[test]
fn entries_are_numbered_by_one_and_pin_one_version_of_a_valid_memory() {
    rule!(holds, "T3.2");
    let (mut hall, [alice, bob, ..], thread) = hall();
    let memory = hall.ok(&alice, "memory_create", json!({"text": "first"}))["result"]["memory"].clone();
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "second"}));
    let first = hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory, "version": 1}));
    let second = hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}));
    let third = say(&mut hall, &bob, &thread, json!({"reply_to": 1}));
    for (number, posted) in [&first, &second, &third].into_iter().enumerate() {
        assert_eq!(posted["result"]["entry"], number + 1);
    }
    let entries = hall.ok(&bob, "thread_entries", json!({"thread": thread}));
    let rows = entries["result"]["entries"].as_array().unwrap();
    let texts: Vec<_> = rows.iter().map(|row| content(&entries, &row["text_content"]).unwrap()).collect();
    assert_eq!(texts, ["first", "second", "hello"]);
    let versions: Vec<_> = rows.iter().map(|row| row["version"].as_u64().unwrap()).collect();
    assert_eq!(versions, [1, 2, 1]);
    assert_eq!(rows[2]["author"], bob.id.as_str());
    assert_eq!(rows[2]["reply_to"], 1);
}

#[test]
fn an_entry_asks_existing_members_with_a_voice_and_never_its_author() {
    rule!(refused, "T3.2");
    let (mut hall, [alice, bob, _, olaf], thread) = hall();
    let dora = hall.agent("dora");
    say(&mut hall, &bob, &thread, json!({}));
    for ask in [json!([alice.id]), json!([olaf.id]), json!([dora.id]), json!([bob.id, olaf.id])] {
        hall.refused(&alice, "entry_post", json!({"thread": thread, "text": "x", "ask": ask}), "bad_reference");
    }
    hall.refused(&alice, "entry_post", json!({"thread": thread, "text": "x", "reply_to": 2}), "bad_reference");
    hall.refused(&alice, "entry_post", json!({"thread": thread, "text": "x", "reply_to": 0}), "invalid_argument");
    hall.refused(&alice, "entry_post", json!({"thread": thread}), "invalid_argument");
    // A refusal takes no number.
    assert_eq!(say(&mut hall, &alice, &thread, json!({}))["result"]["entry"], 2);
}

#[test]
fn an_entry_never_pins_what_is_withdrawn_or_may_not_be_read() {
    rule!(refused, "T3.2");
    let (mut hall, [alice, bob, ..], thread) = hall();
    let memory = hall.ok(&alice, "memory_create", json!({"text": "first"}))["result"]["memory"].clone();
    let pin = |more: Value| {
        let mut arguments = json!({"thread": thread, "memory": memory});
        merge(&mut arguments, more);
        arguments
    };
    hall.refused(&alice, "entry_post", pin(json!({"version": 2})), "not_found");
    hall.refused(&bob, "entry_post", pin(json!({})), "not_found");
    hall.ok(&alice, "memory_publish", json!({"memory": memory}));
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "second"}));
    hall.refused(&bob, "entry_post", pin(json!({"version": 1})), "memory_unreadable");
    hall.refused(&bob, "entry_post", pin(json!({"version": 3})), "not_found");
    hall.ok(&bob, "entry_post", pin(json!({})));
    hall.ok(&alice, "memory_withdraw", json!({"memory": memory}));
    hall.refused(&alice, "entry_post", pin(json!({})), "memory_withdrawn");
    hall.refused(&bob, "entry_post", pin(json!({})), "not_found");
}

#[test]
fn an_entry_stays_as_it_was_and_a_correction_is_another() {
    rule!(holds, "T3.3", "L1.2");
    rule!(impossible, "T3.3"; "no operation edits or deletes an entry, and no body of an action can say so");
    let (mut hall, [alice, bob, ..], thread) = hall();
    let posted = say(&mut hall, &alice, &thread, json!({"summary": "a greeting"}));
    let read = |hall: &mut Hall| {
        let shown = hall.ok(&bob, "entry_get", json!({"thread": thread, "entry": 1}));
        (shown["result"].clone(), shown["content"].clone())
    };
    let before = read(&mut hall);
    let memory = &posted["result"]["memory"];
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "corrected"}));
    hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory, "reply_to": 1, "ask": []}));
    hall.ok(&alice, "memory_withdraw", json!({"memory": memory}));
    assert_eq!(read(&mut hall), before);
    let acting =
        operations::ALL.iter().filter(|operation| operation.is_action() && operation.name.starts_with("entry_"));
    let names: Vec<_> = acting.map(|operation| operation.name).collect();
    assert_eq!(names, ["entry_post", "entry_handle", "entry_retract"]);
}

// ------------------------------------------------------------------ whom an entry asks

#[test]
fn an_entry_that_says_whom_it_asks_asks_exactly_those() {
    rule!(holds, "T3.4");
    let (mut hall, [alice, bob, carol, _], thread) = hall();
    let first = say(&mut hall, &bob, &thread, json!({}));
    assert_eq!(asked(&first), [""; 0], "three have a voice, so nobody is asked");
    let mut both = vec![bob.id.clone(), carol.id.clone()];
    both.sort();
    let mut to_both = asked(&say(&mut hall, &alice, &thread, json!({"ask": [carol.id, bob.id, carol.id]})));
    to_both.sort();
    assert_eq!(to_both, both, "each once, in whatever order they were named");
    // What is stated comes before whom it replies to.
    assert_eq!(asked(&say(&mut hall, &alice, &thread, json!({"reply_to": 1, "ask": [carol.id]}))), [carol.id.as_str()]);
    assert_eq!(asked(&say(&mut hall, &alice, &thread, json!({"reply_to": 1, "ask": []}))), [""; 0]);
    assert_eq!(hall.turn(&carol), [("respond".into(), 2), ("respond".into(), 3)]);
    assert_eq!(hall.turn(&bob), [("respond".into(), 2)]);
    assert_eq!(hall.turn(&alice), []);
}

#[test]
fn a_reply_asks_whom_it_replies_to_if_that_one_has_a_voice_now() {
    rule!(holds, "T3.4");
    let (mut hall, [alice, bob, carol, _], thread) = hall();
    say(&mut hall, &bob, &thread, json!({}));
    assert_eq!(asked(&say(&mut hall, &alice, &thread, json!({"reply_to": 1}))), [bob.id.as_str()]);
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "observer"}));
    // Two have a voice now, and still a reply to one without asks nobody.
    assert_eq!(asked(&say(&mut hall, &alice, &thread, json!({"reply_to": 1}))), [""; 0]);
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    assert_eq!(asked(&say(&mut hall, &carol, &thread, json!({"reply_to": 1}))), [""; 0]);
    assert_eq!(hall.turn(&alice), []);
}

#[test]
fn of_two_with_a_voice_the_other_is_asked() {
    rule!(holds, "T3.4");
    let (mut hall, [alice, bob, olaf], thread) = pair();
    assert_eq!(asked(&say(&mut hall, &alice, &thread, json!({}))), [bob.id.as_str()]);
    assert_eq!(asked(&say(&mut hall, &bob, &thread, json!({"ask": []}))), [""; 0]);
    // A reply to one's own entry is no reply to another's.
    assert_eq!(asked(&say(&mut hall, &alice, &thread, json!({"reply_to": 1}))), [bob.id.as_str()]);
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": olaf.id, "role": "speaker"}));
    assert_eq!(asked(&say(&mut hall, &alice, &thread, json!({}))), [""; 0]);
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    assert_eq!(asked(&say(&mut hall, &alice, &thread, json!({}))), [olaf.id.as_str()]);
    hall.ok(&olaf, "thread_leave", json!({"thread": thread}));
    assert_eq!(asked(&say(&mut hall, &alice, &thread, json!({}))), [""; 0], "alone, there is nobody to ask");
}

#[test]
fn nobody_can_be_made_to_owe_a_response_by_another_rule() {
    rule!(refused, "T3.4", "T3.5");
    let (mut hall, [alice, bob, _], thread) = pair();
    let arguments = json!({"thread": thread, "text": "x", "responders": [bob.id]});
    hall.refused(&alice, "entry_post", arguments, "invalid_argument");
    assert_eq!(hall.turn(&bob), []);
}

#[test]
fn who_owes_a_response_is_fixed_when_the_entry_is_posted() {
    rule!(holds, "T3.5");
    let (mut hall, [alice, bob, _], thread) = pair();
    let entry = hall.post(&alice, &thread, json!({}));
    let dora = hall.agent("dora");
    hall.admit(&alice, &thread, &dora, "speaker");
    assert_eq!(hall.turn(&dora), []);
    assert_eq!(responses(&mut hall, &alice, &thread, entry), [(bob.id.clone(), "pending".into())]);
    hall.refused(&dora, "entry_handle", json!({"thread": thread, "entry": entry}), "no_such_obligation");
    // Leaving and coming back does not make it grow, either.
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    hall.admit(&alice, &thread, &bob, "speaker");
    assert_eq!(responses(&mut hall, &alice, &thread, entry), [(bob.id.clone(), "membership_ended".into())]);
    assert_eq!(hall.turn(&bob), []);
}

// ------------------------------------------------------------------ how a response ends

#[test]
fn a_reply_ends_the_repliers_own_response_in_the_same_action() {
    rule!(holds, "T3.6");
    let (mut hall, [alice, bob, carol, _], thread) = hall();
    let first = hall.post(&alice, &thread, json!({"ask": [bob.id, carol.id]}));
    let second = hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    let reply = say(&mut hall, &bob, &thread, json!({"reply_to": first, "ask": [carol.id]}));
    let expected = ["obligation_ended respond replied", "entry_posted", "obligation_began respond"];
    assert_eq!(effects(&reply), expected);
    assert_eq!(hall.turn(&bob), [("respond".into(), second)]);
    assert_eq!(hall.turn(&carol), [("respond".into(), first), ("respond".into(), 3)]);
    let states = responses(&mut hall, &alice, &thread, first);
    let shown = hall.ok(&alice, "entry_get", json!({"thread": thread, "entry": first}));
    let replied = shown["result"]["responses"].as_array().unwrap().iter().find(|row| row["agent"] == bob.id.as_str());
    assert_eq!(replied.unwrap()["entry"], 3, "the reply is named");
    assert!(states.contains(&(carol.id.clone(), "pending".into())));
}

#[test]
fn a_reply_needs_no_pending_response_and_ends_nobody_elses() {
    rule!(holds, "T3.6");
    rule!(refused, "T3.6");
    let (mut hall, [alice, bob, carol, _], thread) = hall();
    let entry = hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    let reply = say(&mut hall, &carol, &thread, json!({"reply_to": entry}));
    assert_eq!(effects(&reply), ["entry_posted", "obligation_began respond"]);
    assert_eq!(hall.turn(&bob), [("respond".into(), entry)]);
    // A refused reply ends nothing.
    let reply = json!({"thread": thread, "text": "x", "reply_to": entry, "ask": [bob.id]});
    hall.refused(&bob, "entry_post", reply, "bad_reference");
    assert_eq!(hall.turn(&bob), [("respond".into(), entry)]);
}

#[test]
fn a_response_is_handled_without_an_entry_and_with_a_note_for_the_author() {
    rule!(holds, "T3.7");
    let (mut hall, [alice, bob, carol, _], thread) = hall();
    let entry = hall.post(&alice, &thread, json!({"ask": [bob.id, carol.id]}));
    let handled = hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": entry, "note": "seen"}));
    assert_eq!(effects(&handled), ["obligation_ended respond handled"]);
    hall.ok(&carol, "entry_handle", json!({"thread": thread, "entry": entry}));
    assert_eq!((hall.turn(&bob), hall.turn(&carol)), (vec![], vec![]));
    let shown = hall.ok(&alice, "thread_get", json!({"thread": thread}));
    assert_eq!(shown["result"]["entry_count"], 1);
    let shown = hall.ok(&alice, "entry_get", json!({"thread": thread, "entry": entry}));
    let rows = shown["result"]["responses"].as_array().unwrap();
    let of_bob = rows.iter().find(|row| row["agent"] == bob.id.as_str()).unwrap();
    assert_eq!(of_bob["state"], "handled");
    assert_eq!(content(&shown, &of_bob["note_content"]), Some("seen"));
}

#[test]
fn only_an_own_pending_response_is_handled_and_once() {
    rule!(refused, "T3.7", "L5.2");
    let (mut hall, [alice, bob, carol, _], thread) = hall();
    let dora = hall.agent("dora");
    let entry = hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    let handle = json!({"thread": thread, "entry": entry});
    hall.refused(&carol, "entry_handle", handle.clone(), "no_such_obligation");
    hall.refused(&alice, "entry_handle", handle.clone(), "no_such_obligation");
    hall.refused(&dora, "entry_handle", handle.clone(), "not_found");
    hall.refused(&bob, "entry_handle", json!({"thread": thread, "entry": 7}), "no_such_obligation");
    let long = json!({"thread": thread, "entry": entry, "note": "n".repeat(4097)});
    hall.refused(&bob, "entry_handle", long, "content_too_large");
    hall.ok(&bob, "entry_handle", handle.clone());
    hall.refused(&bob, "entry_handle", handle, "no_such_obligation");
}

#[test]
fn an_author_retracts_what_is_pending_and_responses_given_stay() {
    rule!(holds, "T3.8");
    let (mut hall, [alice, bob, carol, _], thread) = hall();
    let entry = hall.post(&alice, &thread, json!({"ask": [bob.id, carol.id]}));
    hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": entry}));
    let retracted = hall.ok(&alice, "entry_retract", json!({"thread": thread, "entry": entry}));
    assert_eq!(effects(&retracted), ["obligation_ended respond retracted"]);
    assert_eq!(hall.turn(&carol), []);
    let mut states = responses(&mut hall, &alice, &thread, entry);
    states.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(states, [(bob.id.clone(), "handled".into()), (carol.id.clone(), "retracted".into())]);
    hall.refused(&carol, "entry_handle", json!({"thread": thread, "entry": entry}), "no_such_obligation");
}

#[test]
fn an_author_retracts_also_as_an_observer_and_after_coming_back() {
    rule!(holds, "T3.8");
    let (mut hall, [alice, bob, carol, _], thread) = hall();
    let [first, second] = [0, 1].map(|_| hall.post(&bob, &thread, json!({"ask": [carol.id]})));
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "observer"}));
    hall.ok(&bob, "entry_retract", json!({"thread": thread, "entry": first}));
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    hall.refused(&bob, "entry_retract", json!({"thread": thread, "entry": second}), "not_found");
    assert_eq!(hall.turn(&carol), [("respond".into(), second)], "whom a former member asked still owes");
    hall.admit(&alice, &thread, &bob, "observer");
    hall.ok(&bob, "entry_retract", json!({"thread": thread, "entry": second}));
    assert_eq!(hall.turn(&carol), []);
}

#[test]
fn nobody_else_retracts_and_nothing_is_retracted_twice() {
    rule!(refused, "T3.8", "L2.4");
    let (mut hall, [alice, bob, carol, _], thread) = hall();
    let entry = hall.post(&bob, &thread, json!({"ask": [carol.id]}));
    let retract = json!({"thread": thread, "entry": entry});
    hall.refused(&alice, "entry_retract", retract.clone(), "not_author");
    hall.refused(&bob, "entry_retract", json!({"thread": thread, "entry": 9}), "not_found");
    hall.ok(&bob, "entry_retract", retract.clone());
    hall.refused(&bob, "entry_retract", retract, "no_change");
}

#[test]
fn reading_ends_nothing() {
    rule!(holds, "T3.9");
    let (mut hall, [alice, bob, carol, _], thread) = hall();
    let entry = hall.post(&alice, &thread, json!({"ask": [bob.id, carol.id]}));
    let before = hall.trace();
    for (operation, arguments) in [
        ("entry_get", json!({"thread": thread, "entry": entry})),
        ("thread_entries", json!({"thread": thread})),
        ("thread_get", json!({"thread": thread})),
        ("working_set", json!({"object": thread})),
        ("turn", json!({})),
    ] {
        hall.ok(&bob, operation, arguments);
    }
    assert_eq!(hall.trace(), before);
    // Nor does speaking without replying, another's reply, or time.
    say(&mut hall, &bob, &thread, json!({"ask": []}));
    say(&mut hall, &carol, &thread, json!({"reply_to": entry, "ask": []}));
    hall.advance(Duration::days(29));
    hall.advance(Duration::days(29));
    assert_eq!(hall.turn(&bob), [("respond".into(), entry)]);
    let states = responses(&mut hall, &alice, &thread, entry);
    assert!(states.contains(&(bob.id.clone(), "pending".into())), "no state says that it was read");
}

#[test]
fn there_is_no_receipt_of_reading() {
    rule!(impossible, "T3.9"; "no exit of an obligation and no operation says that an entry was read");
    let words = ["read", "seen", "mark", "ack"];
    let says_so = |name: &str| name.split('_').any(|part| words.contains(&part));
    let acting = operations::ALL.iter().filter(|operation| operation.is_action());
    assert_eq!(acting.filter(|operation| says_so(operation.name)).count(), 0);
}

#[test]
fn an_action_names_an_entry_of_its_own_thread_only() {
    rule!(refused, "T3.7", "S2");
    let (mut hall, [alice, bob, _], thread) = pair();
    let other = hall.thread(&alice, &[&bob]);
    let posted = say(&mut hall, &alice, &thread, json!({}));
    let action = posted["receipt"]["action"].clone();
    hall.refused(&bob, "entry_handle", json!({"thread": other, "entry": action}), "no_such_obligation");
    hall.refused(&bob, "entry_get", json!({"thread": other, "entry": action}), "not_found");
    hall.refused(&alice, "entry_retract", json!({"thread": other, "entry": action}), "not_found");
    hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": action}));
}
