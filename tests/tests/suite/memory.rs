//! Memory (section 5) and who reads it (V1).

use kwoon_ledger::action::Body;
use kwoon_ledger::derive::read_action;
use kwoon_ledger::fact::Cause;
use kwoon_ledger::time::Duration;
use kwoon_tests::forge::Log;
use kwoon_tests::{Agent, merge, owner, rule, text};
use serde_json::{Value, json};

use crate::Hall;

/// Makes a memory; its id.
fn memory(hall: &mut Hall, author: &Agent, said: &str) -> String {
    text(&hall.ok(author, "memory_create", json!({"text": said}))["result"]["memory"])
}

fn public(hall: &mut Hall, author: &Agent, said: &str) -> String {
    let memory = memory(hall, author, said);
    hall.ok(author, "memory_publish", json!({"memory": memory}));
    memory
}

/// The text that a reader sees in a memory.
fn read(hall: &mut Hall, reader: &Agent, memory: &str, more: Value) -> String {
    let mut arguments = json!({"memory": memory});
    merge(&mut arguments, more);
    let answer = hall.ok(reader, "memory_get", arguments);
    let key = text(&answer["result"]["text_content"]);
    text(&answer["content"][&key]["text"])
}

/// What a member sees of an entry's text: nothing if it may not.
fn entry_text(hall: &mut Hall, member: &Agent, thread: &str, entry: u64) -> Option<String> {
    let answer = hall.ok(member, "entry_get", json!({"thread": thread, "entry": entry}));
    let key = text(&answer["result"]["text_content"]);
    let content = &answer["content"][&key];
    assert_eq!(content["missing"] == true, content["text"].is_null(), "{content:#}");
    content["text"].as_str().map(str::to_owned)
}

fn hall() -> (Hall, Agent, Agent) {
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    (hall, alice, bob)
}

// ------------------------------------------------------------------------------------------------ M1

#[test]
fn a_new_memory_is_version_1_valid_and_private() {
    rule!(holds, "M1");
    let (mut hall, alice, bob) = hall();
    let memory = memory(&mut hall, &alice, "mine");
    let shown = hall.ok(&alice, "memory_get", json!({"memory": memory}))["result"].clone();
    assert_eq!((&shown["version"], &shown["current_version"]), (&json!(1), &json!(1)));
    assert_eq!((&shown["state"], &shown["visibility"]), (&json!("valid"), &json!("private")));
    assert_eq!(shown["author"], json!(alice.id));
    hall.refused(&bob, "memory_get", json!({"memory": memory}), "not_found");
}

#[test]
fn an_inactive_agent_creates_no_memory() {
    rule!(refused, "M1");
    let (mut hall, alice, _) = hall();
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    hall.refused(&alice, "memory_create", json!({"text": "x"}), "agent_inactive");
}

#[test]
fn a_memory_says_something_and_no_more_than_the_limit() {
    rule!(refused, "M1");
    let (mut hall, alice, _) = hall();
    hall.refused(&alice, "memory_create", json!({"text": ""}), "invalid_argument");
    hall.refused(&alice, "memory_create", json!({"text": "x".repeat((1 << 20) + 1)}), "content_too_large");
    hall.refused(&alice, "memory_create", json!({"text": "x", "visibility": "public"}), "invalid_argument");
}

#[test]
fn a_memory_born_of_an_entry_is_version_1_valid_and_private_too() {
    rule!(holds, "M1");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let posted = hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "born"}))["result"].clone();
    let memory = text(&posted["memory"]);
    let shown = hall.ok(&alice, "memory_get", json!({"memory": memory}))["result"].clone();
    assert_eq!((&shown["version"], &shown["state"]), (&json!(1), &json!("valid")));
    assert_eq!(shown["visibility"], "private");
    hall.refused(&bob, "memory_get", json!({"memory": memory}), "not_found");
}

// ------------------------------------------------------------------------------------------------ M2

#[test]
fn its_author_updates_publishes_unpublishes_and_withdraws_a_memory() {
    rule!(holds, "M2");
    let (mut hall, alice, _) = hall();
    let memory = memory(&mut hall, &alice, "one");
    let updated = hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "two"}));
    assert_eq!(updated["result"]["version"], 2);
    for (operation, visibility) in [("memory_publish", "public"), ("memory_unpublish", "private")] {
        hall.ok(&alice, operation, json!({"memory": memory}));
        let shown = hall.ok(&alice, "memory_get", json!({"memory": memory}));
        assert_eq!(shown["result"]["visibility"], visibility);
    }
    hall.ok(&alice, "memory_withdraw", json!({"memory": memory}));
    assert_eq!(hall.ok(&alice, "memory_get", json!({"memory": memory}))["result"]["state"], "withdrawn");
}

#[test]
fn to_others_a_private_memory_is_as_if_absent_and_a_public_one_is_its_authors() {
    rule!(refused, "M2", "S2");
    let (mut hall, alice, bob) = hall();
    let secret = memory(&mut hall, &alice, "secret");
    let known = public(&mut hall, &alice, "known");
    let absent = "mem_aaaaaaaaaaaaaaaaaaaaaaaaaa";
    for operation in ["memory_update", "memory_publish", "memory_unpublish", "memory_withdraw"] {
        let arguments = |memory: &str| match operation {
            "memory_update" => json!({"memory": memory, "text": "mine now"}),
            _ => json!({"memory": memory}),
        };
        let hidden = hall.refused(&bob, operation, arguments(&secret), "not_found");
        assert_eq!(hidden, hall.refused(&bob, operation, arguments(absent), "not_found"));
        hall.refused(&bob, operation, arguments(&known), "not_author");
        hall.refused(&owner(), operation, arguments(&known), "unauthenticated");
    }
}

#[test]
fn publishing_what_is_public_and_unpublishing_what_is_private_is_refused() {
    rule!(refused, "L2.4", "M2");
    let (mut hall, alice, _) = hall();
    let memory = public(&mut hall, &alice, "x");
    hall.refused(&alice, "memory_publish", json!({"memory": memory}), "no_change");
    hall.ok(&alice, "memory_unpublish", json!({"memory": memory}));
    hall.refused(&alice, "memory_unpublish", json!({"memory": memory}), "no_change");
}

// ------------------------------------------------------------------------------------------------ M3

#[test]
fn every_version_stays_as_it_was() {
    rule!(holds, "M3", "L1.2");
    let (mut hall, alice, _) = hall();
    let memory = memory(&mut hall, &alice, "one");
    for said in ["two", "three"] {
        hall.ok(&alice, "memory_update", json!({"memory": memory, "text": said}));
    }
    for (version, said) in [(1, "one"), (2, "two"), (3, "three")] {
        assert_eq!(read(&mut hall, &alice, &memory, json!({"version": version})), said);
    }
    assert_eq!(read(&mut hall, &alice, &memory, json!({})), "three");
    hall.refused(&alice, "memory_get", json!({"memory": memory, "version": 4}), "not_found");
    hall.refused(&alice, "memory_get", json!({"memory": memory, "version": 0}), "not_found");
}

#[test]
fn a_reference_goes_on_showing_the_version_it_pinned() {
    rule!(holds, "M3");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let memory = memory(&mut hall, &alice, "one");
    let posted = hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}))["result"].clone();
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "two"}));
    assert_eq!(posted["version"], 1);
    let entry = posted["entry"].as_u64().unwrap();
    assert_eq!(entry_text(&mut hall, &bob, &thread, entry).as_deref(), Some("one"));
    let later = hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}))["result"].clone();
    assert_eq!(later["version"], 2);
}

#[test]
fn an_update_of_a_version_that_is_no_longer_current_is_refused() {
    rule!(refused, "M3");
    let (mut hall, alice, _) = hall();
    let memory = memory(&mut hall, &alice, "one");
    let update = |version| json!({"memory": memory, "text": "two", "expected_version": version});
    hall.ok(&alice, "memory_update", update(1));
    hall.refused(&alice, "memory_update", update(1), "version_conflict");
    hall.refused(&alice, "memory_update", update(3), "version_conflict");
}

#[test]
fn no_action_names_a_version_to_replace() {
    rule!(impossible, "M3"; "an update holds the new version only; the rules number it one above the current");
    let (mut hall, alice, _) = hall();
    let memory = memory(&mut hall, &alice, "one");
    hall.refused(&alice, "memory_update", json!({"memory": memory, "text": "x", "version": 1}), "invalid_argument");
}

// ------------------------------------------------------------------------------------------------ M4

#[test]
fn an_update_leaves_the_visibility_and_the_public_follows() {
    rule!(holds, "M4", "V1");
    let (mut hall, alice, bob) = hall();
    let memory = memory(&mut hall, &alice, "one");
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "two"}));
    hall.refused(&bob, "memory_get", json!({"memory": memory}), "not_found");
    hall.ok(&alice, "memory_publish", json!({"memory": memory}));
    assert_eq!(read(&mut hall, &bob, &memory, json!({})), "two");
    let updated = hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "three"}));
    assert_eq!(updated["result"]["version"], 3);
    assert_eq!(read(&mut hall, &bob, &memory, json!({})), "three");
    assert_eq!(hall.ok(&bob, "memory_get", json!({"memory": memory}))["result"]["visibility"], "public");
}

#[test]
fn unpublishing_hides_the_whole_memory_until_it_is_published_again() {
    rule!(holds, "M4");
    rule!(refused, "V1");
    let (mut hall, alice, bob) = hall();
    let memory = public(&mut hall, &alice, "one");
    hall.ok(&alice, "memory_unpublish", json!({"memory": memory}));
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "two"}));
    hall.refused(&bob, "memory_get", json!({"memory": memory}), "not_found");
    hall.refused(&bob, "memory_get", json!({"memory": memory, "version": 1}), "not_found");
    hall.ok(&alice, "memory_publish", json!({"memory": memory}));
    assert_eq!(read(&mut hall, &bob, &memory, json!({})), "two");
}

#[test]
fn one_version_alone_cannot_be_made_public() {
    rule!(refused, "M4");
    let (mut hall, alice, _) = hall();
    let memory = memory(&mut hall, &alice, "one");
    hall.refused(&alice, "memory_publish", json!({"memory": memory, "version": 1}), "invalid_argument");
    let update = json!({"memory": memory, "text": "two", "visibility": "public"});
    hall.refused(&alice, "memory_update", update, "invalid_argument");
}

// ------------------------------------------------------------------------------------------------ M5

#[test]
fn a_withdrawn_memory_is_listed_no_more_and_its_author_still_reads_it() {
    rule!(holds, "M5", "V1");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let (own, kept) = (public(&mut hall, &alice, "words"), memory(&mut hall, &alice, "words too"));
    let born =
        text(&hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "words said"}))["result"]["memory"]);
    for memory in [&own, &born] {
        hall.ok(&alice, "memory_withdraw", json!({"memory": memory}));
    }
    for (operation, arguments) in [("memory_list", json!({})), ("memory_search", json!({"query": "words"}))] {
        for (reader, expected) in [(&alice, vec![json!(kept)]), (&bob, Vec::new())] {
            let listed = hall.ok(reader, operation, arguments.clone());
            let listed = listed["result"]["memories"].as_array().unwrap().iter();
            assert_eq!(listed.map(|row| row["memory"].clone()).collect::<Vec<_>>(), expected, "{operation}");
        }
    }
    assert_eq!(read(&mut hall, &alice, &own, json!({})), "words");
    assert_eq!(read(&mut hall, &alice, &born, json!({})), "words said");
}

#[test]
fn nothing_more_happens_to_a_withdrawn_memory() {
    rule!(refused, "M5", "M8");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let memory = public(&mut hall, &alice, "one");
    hall.ok(&alice, "memory_withdraw", json!({"memory": memory}));
    let on = json!({"memory": memory});
    hall.refused(&alice, "memory_update", json!({"memory": memory, "text": "two"}), "memory_withdrawn");
    for operation in ["memory_publish", "memory_unpublish", "memory_withdraw"] {
        hall.refused(&alice, operation, on.clone(), "memory_withdrawn");
        hall.refused(&bob, operation, on.clone(), "not_found");
    }
    hall.refused(&bob, "memory_get", on, "not_found");
    let refer = json!({"thread": thread, "memory": memory});
    hall.refused(&alice, "entry_post", refer.clone(), "memory_withdrawn");
    hall.refused(&bob, "entry_post", refer, "not_found");
}

#[test]
fn a_withdrawn_memory_is_delivered_no_more() {
    rule!(refused, "M5", "M8");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let work = hall.assign(&alice, &thread, &bob, json!({}));
    hall.ok(&bob, "assignment_take", json!({"assignment": work}));
    let memory = memory(&mut hall, &bob, "result");
    hall.ok(&bob, "memory_withdraw", json!({"memory": memory}));
    let deliver = json!({"assignment": work, "output": {"memories": [memory]}});
    hall.refused(&bob, "assignment_deliver", deliver, "memory_withdrawn");
}

#[test]
fn what_was_private_when_it_was_withdrawn_ends_for_the_public_too() {
    rule!(holds, "M5");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&bob, &[&alice]);
    let memory = public(&mut hall, &alice, "one");
    hall.ok(&bob, "entry_post", json!({"thread": thread, "memory": memory}));
    hall.ok(&alice, "memory_unpublish", json!({"memory": memory}));
    hall.ok(&alice, "memory_withdraw", json!({"memory": memory}));
    assert_eq!(entry_text(&mut hall, &alice, &thread, 1), None);
    assert_eq!(hall.ok(&owner(), "ledger_verify", json!({}))["result"]["sound"], true);
}

// ------------------------------------------------------------------------------------------------ M6

#[test]
fn a_reference_to_ones_own_memory_outlives_its_withdrawal() {
    rule!(holds, "M6", "V3");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let memory = memory(&mut hall, &alice, "mine");
    hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}));
    hall.ok(&alice, "memory_withdraw", json!({"memory": memory}));
    assert_eq!(entry_text(&mut hall, &bob, &thread, 1).as_deref(), Some("mine"));
}

#[test]
fn a_reference_to_anothers_memory_is_readable_while_that_is_public() {
    rule!(holds, "M6", "V3");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let memory = public(&mut hall, &bob, "his");
    hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}));
    assert_eq!(entry_text(&mut hall, &alice, &thread, 1).as_deref(), Some("his"));
    // The reference pins version 1, also when the public reads version 2.
    hall.ok(&bob, "memory_update", json!({"memory": memory, "text": "his, later"}));
    assert_eq!(entry_text(&mut hall, &alice, &thread, 1).as_deref(), Some("his"));
    hall.ok(&bob, "memory_unpublish", json!({"memory": memory}));
    assert_eq!(entry_text(&mut hall, &alice, &thread, 1), None);
    hall.ok(&bob, "memory_publish", json!({"memory": memory}));
    assert_eq!(entry_text(&mut hall, &alice, &thread, 1).as_deref(), Some("his"));
}

#[test]
fn a_reference_to_anothers_memory_shows_no_text_once_that_is_withdrawn() {
    rule!(refused, "M6", "V3");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let memory = public(&mut hall, &bob, "his");
    hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}));
    hall.ok(&bob, "memory_withdraw", json!({"memory": memory}));
    assert_eq!(entry_text(&mut hall, &alice, &thread, 1), None);
    let shown = hall.ok(&alice, "thread_get", json!({"thread": thread}));
    let listed = hall.ok(&alice, "thread_entries", json!({"thread": thread}));
    assert!(!shown.to_string().contains("his") && !listed.to_string().contains("his"));
    // The entry itself stays.
    assert_eq!(listed["result"]["entries"][0]["memory"], json!(memory));
}

// ------------------------------------------------------------------------------------------------ M7

#[test]
fn referring_to_anothers_memory_concerns_its_author_in_no_way() {
    rule!(holds, "M7", "C3");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[]);
    let memory = public(&mut hall, &bob, "his");
    let before = hall.digest(&memory);
    let turn = hall.turn(&bob);
    hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}));
    assert_eq!(hall.digest(&memory), before, "nothing is written in the memory's log");
    assert_eq!(hall.turn(&bob), turn);
    hall.refused(&bob, "thread_get", json!({"thread": thread}), "not_found");
}

#[test]
fn having_referred_to_a_memory_gives_no_right_to_pass_it_on() {
    rule!(refused, "M7", "M8");
    let (mut hall, alice, bob) = hall();
    let carol = hall.agent("carol");
    let (first, second) = (hall.thread(&alice, &[]), hall.thread(&alice, &[&carol]));
    let memory = public(&mut hall, &bob, "his");
    hall.ok(&alice, "entry_post", json!({"thread": first, "memory": memory}));
    hall.ok(&bob, "memory_unpublish", json!({"memory": memory}));
    hall.refused(&alice, "entry_post", json!({"thread": second, "memory": memory}), "not_found");
    hall.refused(&alice, "memory_get", json!({"memory": memory}), "not_found");
    let work = hall.assign(&carol, &second, &alice, json!({}));
    hall.ok(&alice, "assignment_take", json!({"assignment": work}));
    let deliver = json!({"assignment": work, "output": {"memories": [memory]}});
    hall.refused(&alice, "assignment_deliver", deliver, "not_found");
}

// ------------------------------------------------------------------------------------------------ M8

#[test]
fn one_refers_to_any_own_version_and_to_the_current_one_of_anothers() {
    rule!(holds, "M8");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let memory = public(&mut hall, &alice, "one");
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "two"}));
    for (who, version) in [(&alice, 1), (&alice, 2), (&bob, 2)] {
        let refer = json!({"thread": thread, "memory": memory, "version": version, "ask": []});
        assert_eq!(hall.ok(who, "entry_post", refer)["result"]["version"], version);
    }
}

#[test]
fn what_may_not_be_read_cannot_be_referred_to_and_answers_like_nothing() {
    rule!(refused, "M8", "S2");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let secret = memory(&mut hall, &alice, "secret");
    let said = text(&hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "said"}))["result"]["memory"]);
    let refer = |memory: &str| json!({"thread": thread, "memory": memory});
    let absent = hall.refused(&bob, "entry_post", refer("mem_aaaaaaaaaaaaaaaaaaaaaaaaaa"), "not_found");
    for memory in [&secret, &said] {
        assert_eq!(hall.refused(&bob, "entry_post", refer(memory), "not_found"), absent);
        let version = json!({"thread": thread, "memory": memory, "version": 1});
        assert_eq!(hall.refused(&bob, "entry_post", version, "not_found"), absent);
    }
}

#[test]
fn an_earlier_version_of_anothers_public_memory_cannot_be_read_or_referred_to() {
    rule!(refused, "M8", "V1");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let memory = public(&mut hall, &alice, "one");
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "two"}));
    let at = |version: u64| json!({"thread": thread, "memory": memory, "version": version});
    hall.refused(&bob, "entry_post", at(1), "memory_unreadable");
    hall.refused(&bob, "entry_post", at(3), "not_found");
    hall.refused(&bob, "memory_get", json!({"memory": memory, "version": 1}), "memory_unreadable");
    hall.refused(&bob, "memory_get", json!({"memory": memory, "version": 3}), "not_found");
    hall.refused(&alice, "entry_post", at(3), "not_found");
}

#[test]
fn an_output_pins_memories_of_the_takers_own_only() {
    rule!(refused, "M8", "T4.4");
    let (mut hall, alice, bob) = hall();
    let thread = hall.thread(&alice, &[&bob]);
    let work = hall.assign(&alice, &thread, &bob, json!({}));
    hall.ok(&bob, "assignment_take", json!({"assignment": work}));
    for memory in [public(&mut hall, &alice, "known"), memory(&mut hall, &alice, "secret")] {
        let deliver = json!({"assignment": work, "output": {"memories": [memory]}});
        hall.refused(&bob, "assignment_deliver", deliver, "not_found");
    }
}

// ------------------------------------------------------------------------------------------------ V1

#[test]
fn anyone_reads_and_finds_a_public_memory_and_nobody_else_a_private_one() {
    rule!(holds, "V1");
    let (mut hall, alice, bob) = hall();
    let known = public(&mut hall, &alice, "a word for all");
    memory(&mut hall, &alice, "a word for me");
    assert_eq!(read(&mut hall, &bob, &known, json!({})), "a word for all");
    let found = hall.ok(&bob, "memory_search", json!({"query": "A WORD"}));
    assert_eq!(found["result"]["memories"].as_array().unwrap().len(), 1);
    assert!(!found.to_string().contains("for me"));
    assert_eq!(hall.ok(&bob, "memory_list", json!({}))["result"]["memories"], json!([]));
}

#[test]
fn an_inactive_author_still_reads_its_memories() {
    rule!(holds, "V1", "A1", "A2");
    let (mut hall, alice, _) = hall();
    let memory = memory(&mut hall, &alice, "mine");
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    assert_eq!(read(&mut hall, &alice, &memory, json!({})), "mine");
    hall.refused(&alice, "memory_update", json!({"memory": memory, "text": "more"}), "agent_inactive");
}

#[test]
fn an_owner_reads_as_an_agent_what_that_agent_reads() {
    rule!(holds, "V1");
    rule!(refused, "V1");
    let (mut hall, alice, bob) = hall();
    let memory = memory(&mut hall, &alice, "mine");
    let as_agent = |agent: &Agent| json!({"memory": memory, "as": agent.id});
    hall.ok(&owner(), "memory_get", as_agent(&alice));
    hall.refused(&owner(), "memory_get", as_agent(&bob), "not_found");
    hall.refused(&owner(), "memory_get", json!({"memory": memory}), "invalid_argument");
    hall.refused(&bob, "memory_get", as_agent(&alice), "invalid_argument");
}

#[test]
fn no_text_of_a_memory_stands_in_its_log() {
    rule!(holds, "L6.1", "M1");
    let (mut hall, alice, _) = hall();
    let create =
        json!({"text": "unmistakable words", "title": "a fine title", "tags": ["one tag"], "summary": "in short"});
    let id = text(&hall.ok(&alice, "memory_create", create)["result"]["memory"]);
    hall.ok(&alice, "memory_publish", json!({"memory": id}));
    hall.advance(Duration::minutes(1));
    for ((table, _), value) in hall.ordering(&id).trace() {
        for said in ["unmistakable words", "a fine title", "one tag", "in short"] {
            assert!(!String::from_utf8_lossy(&value).contains(said), "{table:?}");
        }
    }
    let Cause::Action(signed) = Log::of(hall.ordering(&id), &id).fact(0).cause else { panic!("an action") };
    let Body::MemoryCreate(version) = read_action(&signed).unwrap().body else { panic!("a memory") };
    assert_eq!(version.text.commitment.length_bytes, 18);
}
