//! 7. A reference between atoms passes on no identity, membership, obligation or right to read.

use serde_json::{Value, json};

use super::{Actor, facts, killed, offer, thread};
use crate::daemon::Daemon;

/// What an agent may read or do of a memory, a thread and an assignment, all of which exist.
fn assert_stranger(daemon: &Daemon, actor: &Actor, memory: &Value, thread: &Value, work: &Value) {
    for (operation, arguments) in [
        ("memory_get", json!({"memory": memory})),
        ("memory_get", json!({"memory": memory, "version": 1})),
        ("memory_update", json!({"memory": memory, "text": "mine now"})),
        ("memory_publish", json!({"memory": memory})),
        ("memory_withdraw", json!({"memory": memory})),
        ("working_set", json!({"object": memory})),
        ("thread_get", json!({"thread": thread})),
        ("thread_entries", json!({"thread": thread})),
        ("member_list", json!({"thread": thread})),
        ("entry_get", json!({"thread": thread, "entry": 1})),
        ("entry_post", json!({"thread": thread, "text": "x", "reply_to": 1})),
        ("entry_post", json!({"thread": thread, "memory": memory})),
        ("working_set", json!({"object": thread})),
        ("assignment_get", json!({"assignment": work})),
        ("assignment_take", json!({"assignment": work})),
        ("assignment_accept", json!({"assignment": work})),
    ] {
        actor.refused(daemon, operation, arguments, "not_found");
    }
    assert!(actor.turn(daemon).is_empty());
    for (operation, rows) in [("opportunities", "opportunities"), ("thread_list", "threads")] {
        assert_eq!(actor.ok(daemon, operation, json!({}))["result"][rows], json!([]));
    }
}

/// The text of an entry as this member sees it; nothing if it is missing.
fn entry_text(daemon: &Daemon, actor: &Actor, thread: &Value, entry: &Value) -> Value {
    let read = actor.ok(daemon, "entry_get", json!({"thread": thread, "entry": entry}));
    read["content"][read["result"]["text_content"].as_str().unwrap()]["text"].clone()
}

/// C3. Every reference that one atom can hold to another is made: entries pin memories, of oneself and of another, in
/// threads with different members; an assignment redoes another and delivers memories; an agent follows a predecessor. Of
/// those who see or are named by a reference, none can read, change, owe or join what it points to by that; what they see is
/// the pinned version where it is pinned, as long as that is theirs to see. The same holds after the daemon was killed.
#[test]
fn a_reference_passes_on_no_identity_membership_obligation_or_right() {
    let daemon = Daemon::fresh();
    let owner = daemon.token("owner");
    let [alice, bob, carol, dave] = ["alice", "bob", "carol", "dave"].map(|name| Actor::new(&daemon, name));
    let (first, second) = (thread(&daemon, &alice, &[&bob]), thread(&daemon, &alice, &[&carol]));
    let memory = alice.ok(&daemon, "memory_create", json!({"text": "one"}))["result"]["memory"].clone();
    // A memory of alice's own, pinned in two threads; then it moves on.
    let pin = |thread: &Value| json!({"thread": thread, "memory": memory, "ask": []});
    let pinned =
        [&first, &second].map(|thread| alice.ok(&daemon, "entry_post", pin(thread))["result"]["entry"].clone());
    alice.ok(&daemon, "memory_update", json!({"memory": memory, "text": "two"}));
    let work = offer(&daemon, &alice, &first, &bob, json!({}));
    // Dave's public memory, pinned by alice in a thread that dave is no member of.
    let public = dave.ok(&daemon, "memory_create", json!({"text": "dave's"}))["result"]["memory"].clone();
    dave.ok(&daemon, "memory_publish", json!({"memory": public}));
    let quoted = json!({"thread": first, "memory": public, "ask": []});
    let quoted = alice.ok(&daemon, "entry_post", quoted)["result"]["entry"].clone();
    // A successor of alice's.
    let made = daemon.ok(&owner, "agent_create", json!({"name": "heir", "predecessor": alice.id}));
    let heir = Actor { id: made["result"]["agent"].as_str().unwrap().to_owned(), token: daemon.token("heir") };

    let daemon = killed(daemon);
    // Members read the pinned version where it is pinned. The memory itself, its later text and the other thread stay closed.
    for (reader, own, other, entry) in [(&bob, &first, &second, &pinned[0]), (&carol, &second, &first, &pinned[1])] {
        assert_eq!(entry_text(&daemon, reader, own, entry), "one");
        for operation in ["memory_get", "memory_update", "memory_publish", "memory_withdraw"] {
            let mut arguments = json!({"memory": memory});
            if operation == "memory_update" {
                arguments["text"] = json!("x");
            }
            reader.refused(&daemon, operation, arguments, "not_found");
        }
        reader.refused(&daemon, "entry_post", pin(own), "not_found");
        reader.refused(&daemon, "thread_get", json!({"thread": other}), "not_found");
        assert!(reader.turn(&daemon).is_empty());
    }
    // To be referred to makes nobody a member or a debtor, and to follow an agent is not to be it.
    for stranger in [&dave, &heir] {
        assert_stranger(&daemon, stranger, &memory, &first, &work);
    }
    heir.refused(&daemon, "receipt_get", json!({"id": made["receipt"]["id"]}), "not_found");
    for thread in [&first, &second] {
        let all = facts(&daemon, thread);
        assert!(all.iter().all(|fact| !fact.to_string().contains(&dave.id) && !fact.to_string().contains(&heir.id)));
    }
    // What was public stays its author's to take back: where it is quoted, it is gone.
    assert_eq!(entry_text(&daemon, &bob, &first, &quoted), "dave's");
    bob.refused(&daemon, "memory_update", json!({"memory": public, "text": "x"}), "not_author");
    dave.ok(&daemon, "memory_unpublish", json!({"memory": public}));
    assert_eq!(entry_text(&daemon, &bob, &first, &quoted), Value::Null);
    alice.refused(&daemon, "entry_post", json!({"thread": second, "memory": public}), "not_found");
    // A withdrawn memory of one's own stays where it is pinned, and there alone.
    alice.ok(&daemon, "memory_withdraw", json!({"memory": memory}));
    assert_eq!(entry_text(&daemon, &bob, &first, &pinned[0]), "one");
    alice.refused(&daemon, "entry_post", pin(&second), "memory_withdrawn");

    // Work that is done again is new work: the old one's parties owe and may nothing by it.
    let given = bob.ok(&daemon, "memory_create", json!({"text": "delivered"}))["result"]["memory"].clone();
    let output = json!({"memories": [{"memory": given}]});
    bob.ok(&daemon, "assignment_take", json!({"assignment": work, "output": output}));
    alice.ok(&daemon, "assignment_return", json!({"assignment": work, "reason": "again"}));
    let again = offer(&daemon, &alice, &first, &alice, json!({"redoes": work}));
    bob.refused(&daemon, "assignment_take", json!({"assignment": again}), "not_assignee");
    assert!(bob.turn(&daemon).is_empty());
    alice.refused(&daemon, "assignment_accept", json!({"assignment": work}), "already_final");
    // A delivered memory is read where it was delivered, by members, and belongs to its author.
    let read = alice.ok(&daemon, "assignment_get", json!({"assignment": work}));
    let key = read["result"]["output"]["memories"][0]["text_content"].as_str().unwrap();
    assert_eq!(read["content"][key]["text"], "delivered");
    alice.refused(&daemon, "memory_get", json!({"memory": given}), "not_found");
    alice.refused(&daemon, "entry_post", json!({"thread": second, "memory": given}), "not_found");
    // With the membership every right by it ends, whatever was referred to.
    bob.ok(&daemon, "thread_leave", json!({"thread": first}));
    let daemon = killed(daemon);
    assert_stranger(&daemon, &bob, &memory, &first, &work);
    assert_eq!(bob.ok(&daemon, "memory_get", json!({"memory": given}))["content"]["c1"]["text"], "delivered");
    daemon.assert_sound();
}
