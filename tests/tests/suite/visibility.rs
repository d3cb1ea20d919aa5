//! Visibility (section 9).

use kwoon_ledger::time::Duration;
use kwoon_tests::{Agent, content, merge, owner, rule, text};
use serde_json::{Value, json};

use crate::Hall;

/// A thread of alice's in which bob and carol have a voice, with one of everything in it.
struct Scene {
    hall: Hall,
    alice: Agent,
    bob: Agent,
    carol: Agent,
    thread: String,
    assignment: String,
}

fn scene() -> Scene {
    let mut hall = Hall::new();
    let (alice, bob, carol) = (hall.agent("alice"), hall.agent("bob"), hall.agent("carol"));
    let thread = hall.thread(&alice, &[&bob, &carol]);
    hall.post(&alice, &thread, json!({"ask": [bob.id, carol.id]}));
    let assignment = hall.delivered(&alice, &thread, &bob, json!({}));
    Scene { hall, alice, bob, carol, thread, assignment }
}

/// Every operation on a thread, its entries, its members and its assignments, with arguments of the right form.
fn every_operation(thread: &str, assignment: &str, agent: &str) -> Vec<(&'static str, Value)> {
    let on_thread = |more: Value| {
        let mut arguments = json!({"thread": thread});
        merge(&mut arguments, more);
        arguments
    };
    let on_assignment = |more: Value| {
        let mut arguments = json!({"assignment": assignment});
        merge(&mut arguments, more);
        arguments
    };
    vec![
        ("thread_get", on_thread(json!({}))),
        ("thread_entries", on_thread(json!({}))),
        ("thread_leave", on_thread(json!({}))),
        ("thread_close", on_thread(json!({}))),
        ("admission_issue", on_thread(json!({}))),
        ("admission_void", on_thread(json!({}))),
        ("member_list", on_thread(json!({}))),
        ("member_remove", on_thread(json!({"agent": agent}))),
        ("member_role", on_thread(json!({"agent": agent, "role": "observer"}))),
        ("entry_get", on_thread(json!({"entry": 1}))),
        ("entry_post", on_thread(json!({"text": "x", "reply_to": 1}))),
        ("entry_post", on_thread(json!({"text": "x", "assign": {"to": agent, "criteria": "x"}}))),
        ("entry_handle", on_thread(json!({"entry": 1}))),
        ("entry_retract", on_thread(json!({"entry": 1}))),
        ("assignment_list", on_thread(json!({}))),
        ("working_set", json!({"object": thread})),
        ("assignment_get", on_assignment(json!({}))),
        ("assignment_take", on_assignment(json!({}))),
        ("assignment_take", on_assignment(json!({"output": {"text": "x"}}))),
        ("assignment_deliver", on_assignment(json!({"output": {"text": "x"}}))),
        ("assignment_accept", on_assignment(json!({}))),
        ("assignment_return", on_assignment(json!({"reason": "x"}))),
        ("assignment_return", on_assignment(json!({}))),
        ("assignment_abandon", on_assignment(json!({}))),
        ("assignment_void", on_assignment(json!({}))),
    ]
}

/// Asserts that to `reader` everything of the scene answers exactly like what does not exist.
fn assert_invisible(scene: &mut Scene, reader: &Agent) {
    let Scene { hall, alice, thread, assignment, .. } = scene;
    let there = every_operation(thread, assignment, &alice.id);
    let missing = every_operation("thr_aaaaaaaaaaaaaaaaaaaaaaaaaa", "asg_aaaaaaaaaaaaaaaaaaaaaaaaaa", &alice.id);
    for ((operation, there), (_, missing)) in there.into_iter().zip(missing) {
        let error = hall.refused(reader, operation, there, "not_found");
        assert_eq!(error, hall.refused(reader, operation, missing, "not_found"), "{operation}");
    }
    assert_eq!(hall.all(reader, "thread_list", json!({}), "threads"), [Value::Null; 0]);
}

// ------------------------------------------------------------------ threads

#[test]
fn members_read_the_structure_entries_assignments_and_judgments() {
    rule!(holds, "V2");
    let Scene { mut hall, alice, carol, thread, assignment, bob } = scene();
    hall.ok(&alice, "assignment_return", json!({"assignment": assignment, "reason": "too short"}));
    hall.admit(&alice, &thread, &bob, "speaker");
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": carol.id, "role": "observer"}));
    let shown = hall.ok(&carol, "thread_get", json!({"thread": thread}));
    assert_eq!(shown["result"]["member_count"], 3);
    assert!(shown["result"]["admission"]["admission"].is_string());
    assert!(!shown.to_string().contains("kwoonadm"), "the fact of the admission, not its secret");
    let work = hall.ok(&carol, "assignment_get", json!({"assignment": assignment}));
    assert_eq!(content(&work, &work["result"]["output"]["text_content"]), Some("done"));
    assert_eq!(content(&work, &work["result"]["reason_content"]), Some("too short"));
    assert_eq!(content(&work, &work["result"]["criteria_content"]), Some("done well"));
    assert_eq!(hall.all(&carol, "assignment_list", json!({"thread": thread}), "assignments").len(), 1);
    // A member of a closed thread that has not left is current.
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    assert_eq!(
        hall.ok(&carol, "thread_entries", json!({"thread": thread}))["result"]["entries"].as_array().unwrap().len(),
        2
    );
}

#[test]
fn to_a_stranger_nothing_of_a_thread_is_there() {
    rule!(refused, "V2", "S2", "V10");
    let mut scene = scene();
    let dora = scene.hall.agent("dora");
    assert_invisible(&mut scene, &dora);
}

#[test]
fn the_right_to_read_ends_with_the_membership_however_it_ended() {
    rule!(holds, "V10");
    rule!(refused, "V10", "V2", "S2");
    for how in ["left", "removed", "deactivated", "left a closed thread"] {
        let mut scene = scene();
        let (alice, bob) = (scene.alice.clone(), scene.bob.clone());
        let thread = json!({"thread": scene.thread});
        match how {
            "left" => scene.hall.ok(&bob, "thread_leave", thread),
            "removed" => scene.hall.ok(&alice, "member_remove", json!({"thread": scene.thread, "agent": bob.id})),
            "deactivated" => {
                scene.hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
                scene.hall.ok(&owner(), "agent_reactivate", json!({"agent": bob.id}))
            }
            _ => {
                scene.hall.ok(&alice, "thread_close", thread.clone());
                scene.hall.ok(&bob, "thread_leave", thread)
            }
        };
        assert_invisible(&mut scene, &bob);
    }
}

#[test]
fn a_former_member_still_reads_its_own_memory_and_receipts() {
    rule!(holds, "V10", "V9");
    let Scene { mut hall, bob, thread, .. } = scene();
    let posted = hall.ok(&bob, "entry_post", json!({"thread": thread, "text": "mine", "idempotency_key": "k"}));
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    let read = hall.ok(&bob, "memory_get", json!({"memory": posted["result"]["memory"]}));
    assert_eq!(content(&read, &read["result"]["text_content"]), Some("mine"));
    let receipt = hall.ok(&bob, "receipt_get", json!({"operation": "entry_post", "key": "k"}));
    assert_eq!(receipt["receipt"], posted["receipt"]);
    // It can go on with that memory, whose log begins by then.
    hall.ok(&bob, "memory_update", json!({"memory": posted["result"]["memory"], "text": "still mine"}));
    hall.verify();
}

#[test]
fn a_new_membership_reads_what_was_said_before_it() {
    rule!(holds, "V2");
    let Scene { mut hall, alice, thread, .. } = scene();
    let dora = hall.agent("dora");
    hall.admit(&alice, &thread, &dora, "observer");
    let read = hall.ok(&dora, "entry_get", json!({"thread": thread, "entry": 1}));
    assert_eq!(content(&read, &read["result"]["text_content"]), Some("hello"));
}

// ------------------------------------------------------------------ pinned memories

fn pinned_text(hall: &mut Hall, reader: &Agent, thread: &str, entry: u64) -> Option<String> {
    let read = hall.ok(reader, "entry_get", json!({"thread": thread, "entry": entry}));
    let whole = content(&read, &read["result"]["text_content"]).map(str::to_owned);
    // Every other way to the same text says the same.
    let listed = hall.ok(reader, "thread_entries", json!({"thread": thread, "after": entry - 1, "limit": 1}));
    assert_eq!(content(&listed, &listed["result"]["entries"][0]["text_content"]), whole.as_deref());
    if whole.is_none() {
        assert_eq!(read["content"]["c1"]["missing"], true);
        let set = hall.ok(reader, "working_set", json!({"object": thread}));
        let rows = set["result"]["entries"].as_array().unwrap().iter();
        for row in rows.chain(set["result"]["owed"].as_array().unwrap()).filter(|row| row["entry"] == entry) {
            assert_eq!(content(&set, &row["text_content"]), None);
        }
    }
    whole
}

#[test]
fn an_own_reference_is_read_by_members_always() {
    rule!(holds, "V3");
    let Scene { mut hall, alice, bob, thread, .. } = scene();
    let memory = hall.ok(&alice, "memory_create", json!({"text": "mine"}))["result"]["memory"].clone();
    let entry = hall.post(&alice, &thread, json!({}));
    hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}));
    assert_eq!(pinned_text(&mut hall, &bob, &thread, entry + 1).as_deref(), Some("mine"));
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "changed"}));
    hall.ok(&alice, "memory_withdraw", json!({"memory": memory}));
    assert_eq!(pinned_text(&mut hall, &bob, &thread, entry + 1).as_deref(), Some("mine"));
    // And when its author has left.
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "governor"}));
    hall.ok(&alice, "thread_leave", json!({"thread": thread}));
    assert_eq!(pinned_text(&mut hall, &bob, &thread, entry + 1).as_deref(), Some("mine"));
}

#[test]
fn a_reference_to_anothers_memory_is_read_only_while_it_is_valid_and_public() {
    rule!(holds, "V3");
    rule!(refused, "V3");
    let Scene { mut hall, alice, bob, carol, thread, .. } = scene();
    let memory = hall.ok(&alice, "memory_create", json!({"text": "first"}))["result"]["memory"].clone();
    let of_memory = json!({"memory": memory});
    hall.ok(&alice, "memory_publish", of_memory.clone());
    let arguments = json!({"thread": thread, "memory": memory, "ask": [carol.id]});
    let entry = hall.ok(&bob, "entry_post", arguments)["result"]["entry"].as_u64().unwrap();
    for reader in [&alice, &bob, &carol] {
        assert_eq!(pinned_text(&mut hall, reader, &thread, entry).as_deref(), Some("first"));
    }
    // Another version does not replace the pinned one.
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "second"}));
    assert_eq!(pinned_text(&mut hall, &carol, &thread, entry).as_deref(), Some("first"));
    hall.ok(&alice, "memory_unpublish", of_memory.clone());
    for reader in [&bob, &carol] {
        assert_eq!(pinned_text(&mut hall, reader, &thread, entry), None);
    }
    hall.ok(&alice, "memory_publish", of_memory.clone());
    assert_eq!(pinned_text(&mut hall, &carol, &thread, entry).as_deref(), Some("first"));
    hall.ok(&alice, "memory_withdraw", of_memory);
    assert_eq!(pinned_text(&mut hall, &carol, &thread, entry), None);
    hall.verify();
}

#[test]
fn a_revoked_permission_is_never_combined_with_newer_content() {
    rule!(holds, "V11");
    rule!(refused, "V11");
    rule!(impossible, "V11"; "a read gets one snapshot, and both the check and the content come through it");
    let Scene { mut hall, alice, bob, carol, thread, .. } = scene();
    let memory = hall.ok(&alice, "memory_create", json!({"text": "first"}))["result"]["memory"].clone();
    hall.ok(&alice, "memory_publish", json!({"memory": memory}));
    let arguments = json!({"thread": thread, "memory": memory});
    let entry = hall.ok(&bob, "entry_post", arguments)["result"]["entry"].as_u64().unwrap();
    hall.ok(&alice, "memory_unpublish", json!({"memory": memory}));
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "secret"}));
    let read = hall.ok(&carol, "entry_get", json!({"thread": thread, "entry": entry}));
    assert!(!read.to_string().contains("secret") && !read.to_string().contains("first"), "{read:#}");
    hall.refused(&carol, "memory_get", json!({"memory": memory}), "not_found");
    // What an answer is of is the state it was made from.
    let set = hall.ok(&carol, "working_set", json!({"object": thread}));
    let (index, digest) = hall.digest(&thread);
    assert_eq!((&set["as_of"]["index"], &set["as_of"]["digest"]), (&json!(index), &json!(digest)));
    hall.ok(&carol, "thread_leave", json!({"thread": thread}));
    hall.post(&alice, &thread, json!({}));
    hall.refused(&carol, "working_set", json!({"object": thread}), "not_found");
}

#[test]
fn delivered_memory_versions_are_read_by_members_while_they_are_members() {
    rule!(holds, "V4");
    rule!(refused, "V4");
    let Scene { mut hall, alice, bob, carol, thread, .. } = scene();
    let memory = hall.ok(&bob, "memory_create", json!({"text": "private work"}))["result"]["memory"].clone();
    let work = hall.taken(&alice, &thread, &bob, json!({}));
    hall.ok(&bob, "assignment_deliver", json!({"assignment": work, "output": {"memories": [memory]}}));
    hall.ok(&bob, "memory_withdraw", json!({"memory": memory}));
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    for reader in [&alice, &carol] {
        let seen = hall.ok(reader, "assignment_get", json!({"assignment": work}));
        let delivered = &seen["result"]["output"]["memories"][0];
        assert_eq!(content(&seen, &delivered["text_content"]), Some("private work"));
        // The delivery opens this version here and nothing else.
        hall.refused(reader, "memory_get", json!({"memory": memory}), "not_found");
        hall.refused(reader, "entry_post", json!({"thread": thread, "memory": memory}), "not_found");
    }
    hall.refused(&bob, "assignment_get", json!({"assignment": work}), "not_found");
    hall.ok(&carol, "thread_leave", json!({"thread": thread}));
    hall.refused(&carol, "assignment_get", json!({"assignment": work}), "not_found");
}

// ------------------------------------------------------------------ notes

/// The notes that a reader finds in an entry.
fn notes(hall: &mut Hall, reader: &Agent, arguments: Value) -> Vec<String> {
    let read = hall.ok(reader, "entry_get", arguments);
    let rows = read["result"]["responses"].as_array().unwrap().iter();
    rows.filter_map(|row| row.get("note_content")).filter_map(|note| content(&read, note)).map(str::to_owned).collect()
}

#[test]
fn a_handling_note_is_for_the_entrys_author_and_that_responder() {
    rule!(holds, "V5");
    rule!(refused, "V5");
    let Scene { mut hall, alice, bob, carol, thread, .. } = scene();
    for (agent, note) in [(&bob, "from bob"), (&carol, "from carol")] {
        hall.ok(agent, "entry_handle", json!({"thread": thread, "entry": 1, "note": note}));
    }
    // Governing gives no right to it.
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": carol.id, "role": "governor"}));
    let entry = json!({"thread": thread, "entry": 1});
    let mut all = notes(&mut hall, &alice, entry.clone());
    all.sort();
    assert_eq!(all, ["from bob", "from carol"]);
    assert_eq!(notes(&mut hall, &bob, entry.clone()), ["from bob"]);
    assert_eq!(notes(&mut hall, &carol, entry.clone()), ["from carol"]);
    // Nor does it stand anywhere else: not in receipts, lists, working sets or logs.
    for (reader, operation, arguments) in [
        (&carol, "thread_entries", json!({"thread": thread})),
        (&carol, "working_set", json!({"object": thread})),
        (&owner(), "object_log", json!({"object": thread, "format": "cbor"})),
        (&owner(), "entry_get", json!({"thread": thread, "entry": 1, "as": alice.id})),
    ] {
        assert!(!hall.ok(reader, operation, arguments).to_string().contains("from bob"), "{operation}");
    }
    // Who comes back reads its note again; who is new does not.
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    hall.refused(&bob, "entry_get", entry.clone(), "not_found");
    hall.admit(&alice, &thread, &bob, "observer");
    assert_eq!(notes(&mut hall, &bob, entry), ["from bob"]);
}

// ------------------------------------------------------------------ receipts and the owner

#[test]
fn a_receipt_is_found_by_the_agent_itself_only() {
    rule!(holds, "V9");
    rule!(refused, "V9", "S2");
    let Scene { mut hall, alice, bob, thread, .. } = scene();
    let call = json!({"thread": thread, "text": "hello", "idempotency_key": "k1"});
    let posted = hall.ok(&alice, "entry_post", call);
    let by_key = json!({"operation": "entry_post", "key": "k1"});
    let by_id = json!({"id": posted["receipt"]["id"]});
    for arguments in [&by_key, &by_id] {
        let found = hall.ok(&alice, "receipt_get", arguments.clone());
        assert_eq!((&found["receipt"], &found["result"]), (&posted["receipt"], &posted["result"]));
        let mut as_alice = arguments.clone();
        merge(&mut as_alice, json!({"as": alice.id}));
        let unknown = hall.refused(&bob, "receipt_get", json!({"id": "rcp_aaaaaaaaaaaaaaaaaaaaaaaaaa"}), "not_found");
        assert_eq!(hall.refused(&bob, "receipt_get", arguments.clone(), "not_found"), unknown);
        assert_eq!(hall.refused(&owner(), "receipt_get", as_alice, "not_found"), unknown);
    }
    hall.refused(&alice, "receipt_get", json!({"operation": "turn", "key": "k1"}), "invalid_argument");
    hall.refused(&alice, "receipt_get", json!({"operation": "entry_handle", "key": "k1"}), "not_found");
}

#[test]
fn the_owner_reads_as_an_agent_what_that_agent_may_read_and_cannot_act_as_it() {
    rule!(holds, "V2");
    rule!(refused, "V2");
    let Scene { mut hall, alice, bob, thread, .. } = scene();
    let dora = hall.agent("dora");
    let as_bob = hall.ok(&owner(), "thread_get", json!({"thread": thread, "as": bob.id}));
    assert_eq!(as_bob["result"], hall.ok(&bob, "thread_get", json!({"thread": thread}))["result"]);
    hall.refused(&owner(), "thread_get", json!({"thread": thread, "as": dora.id}), "not_found");
    hall.refused(&owner(), "thread_get", json!({"thread": thread}), "invalid_argument");
    let stranger = json!({"thread": thread, "as": "agt_aaaaaaaaaaaaaaaaaaaaaaaaaa"});
    hall.refused(&owner(), "thread_get", stranger, "not_found");
    hall.refused(&alice, "thread_get", json!({"thread": thread, "as": bob.id}), "invalid_argument");
    let act = json!({"thread": thread, "text": "x", "as": bob.id});
    hall.refused(&owner(), "entry_post", act, "unauthenticated");
}

// ------------------------------------------------------------------ references

#[test]
fn a_reference_passes_on_no_right_to_read() {
    rule!(holds, "C3");
    let Scene { mut hall, alice, bob, carol, thread, .. } = scene();
    let other = hall.thread(&alice, &[&carol]);
    let posted = hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "for these only"}));
    let memory = posted["result"]["memory"].clone();
    hall.ok(&alice, "entry_post", json!({"thread": other, "memory": memory}));
    // Bob reads the text where he is a member, and by that gets neither the memory nor the other thread.
    assert_eq!(pinned_text(&mut hall, &bob, &thread, 3).as_deref(), Some("for these only"));
    hall.refused(&bob, "memory_get", json!({"memory": memory}), "not_found");
    hall.refused(&bob, "working_set", json!({"object": memory}), "not_found");
    hall.refused(&bob, "thread_get", json!({"thread": other}), "not_found");
    let found = hall.ok(&bob, "memory_search", json!({"query": "these"}));
    assert_eq!(found["result"]["memories"], json!([]));
}

#[test]
fn a_reference_gives_nothing_to_do_and_nothing_to_be() {
    rule!(refused, "C3");
    let Scene { mut hall, alice, bob, thread, .. } = scene();
    let dora = hall.agent("dora");
    let memory = hall.ok(&alice, "memory_create", json!({"text": "x"}))["result"]["memory"].clone();
    hall.ok(&alice, "memory_publish", json!({"memory": memory}));
    let own = hall.thread(&dora, &[]);
    hall.ok(&dora, "entry_post", json!({"thread": own, "memory": memory, "ask": []}));
    assert_eq!(hall.turn(&alice), [("judge".into(), 2)], "being referred to obliges to nothing");
    hall.refused(&alice, "thread_get", json!({"thread": own}), "not_found");
    hall.refused(&dora, "memory_update", json!({"memory": memory, "text": "y"}), "not_author");
    // Whoever pinned another's public memory cannot pass it on once it is private.
    hall.ok(&alice, "memory_unpublish", json!({"memory": memory}));
    hall.refused(&dora, "entry_post", json!({"thread": own, "memory": memory}), "not_found");
    // Neither naming an agent nor following one makes it a member, or gives its memories.
    let heir = hall.ok(&owner(), "agent_create", json!({"name": "heir", "predecessor": bob.id}));
    let heir = hall.known(&heir["result"]["agent"]);
    hall.refused(&heir, "thread_get", json!({"thread": thread}), "not_found");
    assert_eq!(hall.turn(&heir), []);
}

#[test]
fn what_an_answer_to_an_action_says_is_only_what_its_actor_may_know() {
    rule!(holds, "S2");
    let Scene { mut hall, alice, bob, thread, .. } = scene();
    let reason = json!({"assignment": hall.delivered(&alice, &thread, &bob, json!({})), "reason": "because of this"});
    hall.ok(&bob, "entry_handle", json!({"thread": thread, "entry": 1, "note": "a note"}));
    let returned = hall.ok(&alice, "assignment_return", reason);
    for fact in hall.facts(&thread) {
        let shown = fact.to_string();
        assert!(!shown.contains("a note") && !shown.contains("because") && !shown.contains("hello"), "{shown}");
    }
    assert!(!returned["receipt"].to_string().contains("because"));
    hall.advance(Duration::minutes(1));
    let left = hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    assert!(left["receipt"]["effects"].as_array().unwrap().iter().all(|effect| effect.get("note").is_none()));
    assert_eq!(text(&left["next"][0]["step"]), "wait");
}
