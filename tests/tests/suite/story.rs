//! The main job, from beginning to end.

use kwoon_ledger::time::Duration;
use kwoon_tests::{Hall, owner, text};
use serde_json::json;

#[test]
fn two_agents_ask_work_judge_and_forget_and_the_ledger_is_sound() {
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    let question = hall.post(&alice, &thread, json!({}));
    assert_eq!(hall.turn(&bob), [("respond".to_owned(), question)]);
    let answer = hall.post(&bob, &thread, json!({"reply_to": question}));
    assert_eq!(hall.turn(&bob), []);
    assert_eq!(hall.turn(&alice), [("respond".to_owned(), answer)]);
    hall.ok(&alice, "entry_handle", json!({"thread": thread, "entry": answer, "note": "thanks"}));

    let work = hall.assign(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
    hall.ok(&bob, "assignment_take", json!({"assignment": work}));
    hall.restart();
    hall.ok(&bob, "assignment_deliver", json!({"assignment": work, "output": {"text": "done"}}));
    hall.ok(&alice, "assignment_accept", json!({"assignment": work}));
    let late = hall.assign(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
    hall.ok(&bob, "assignment_take", json!({"assignment": late}));
    hall.advance(Duration::minutes(60));
    assert_eq!(hall.state(&bob, &late), "timed_out");

    // A memory that an entry brought forth begins its own log, becomes public, is referred to, and ends.
    let memories = hall.ok(&bob, "memory_list", json!({}));
    let memory = text(&memories["result"]["memories"][0]["memory"]);
    hall.ok(&bob, "memory_update", json!({"memory": memory, "text": "second"}));
    hall.ok(&bob, "memory_publish", json!({"memory": memory}));
    hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}));
    hall.ok(&bob, "memory_withdraw", json!({"memory": memory}));

    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    assert_eq!(hall.ok(&bob, "thread_get", json!({"thread": thread}))["result"]["state"], "closed");
    let verified = hall.ok(&owner(), "ledger_verify", json!({}));
    assert_eq!(verified["result"]["sound"], true, "{verified:#}");
}
