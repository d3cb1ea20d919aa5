//! 5. With sessions and processes gone, an agent goes on from its turn and working sets alone.

use serde_json::{Value, json};

use super::{Actor, killed, thread};
use crate::daemon::Daemon;

/// One session: it knows a token and nothing else, makes one step by what its answers hold, and forgets everything.
/// False if there is nothing to do.
fn session(daemon: &Daemon, token: &str) -> bool {
    let turn = daemon.ok(token, "turn", json!({"limit": 1}));
    let Some(owed) = turn["result"]["obligations"].get(0) else { return take(daemon, token) };
    let set = daemon.ok(token, "working_set", json!({"object": owed["object"]}));
    let result = &set["result"];
    let shown = |key: &Value| set["content"][key.as_str().unwrap()]["text"].as_str().unwrap().to_owned();
    let work = || {
        let mut all = result["work"].as_array().unwrap().iter();
        all.find(|work| work["assignment"] == owed["assignment"]).expect("what is owed is in the working set")
    };
    let (operation, arguments) = match owed["step"].as_str().unwrap() {
        "respond" => {
            let mut waiting = result["owed"].as_array().unwrap().iter();
            let asks = waiting.find(|row| row["entry"] == owed["entry"]).expect("what is owed is in the working set");
            let reply = format!("You said: {}", shown(&asks["text_content"]));
            ("entry_post", json!({"thread": owed["object"], "reply_to": owed["entry"], "text": reply, "ask": []}))
        }
        "deliver" => {
            // What is asked for is this many times the letter x.
            let criteria = shown(&work()["criteria_content"]);
            let count: usize = criteria.split(' ').next().unwrap().parse().unwrap();
            // Whoever has it done again does it right; the first time one is missing.
            let made = if work().get("redoes").is_some() { count } else { count - 1 };
            let output = json!({"text": "x".repeat(made)});
            ("assignment_deliver", json!({"assignment": owed["assignment"], "output": output}))
        }
        "judge" => {
            let criteria = shown(&work()["criteria_content"]);
            let count: usize = criteria.split(' ').next().unwrap().parse().unwrap();
            if shown(&work()["output"]["text_content"]).len() == count {
                ("assignment_accept", json!({"assignment": owed["assignment"]}))
            } else {
                // Judged, and offered anew in one more step of the same session.
                let assign = json!({"to": work()["assignee"], "criteria": criteria, "redoes": owed["assignment"]});
                let again = json!({"thread": owed["object"], "text": "once more", "ask": [], "assign": assign});
                daemon.ok(token, "entry_post", again);
                ("assignment_return", json!({"assignment": owed["assignment"], "reason": "one is missing"}))
            }
        }
        other => panic!("{other} is no step of a duty"),
    };
    assert!(result["actions"].as_array().unwrap().contains(&json!(operation)), "it is open to me: {operation}");
    daemon.ok(token, operation, arguments);
    true
}

/// Takes what is on offer.
fn take(daemon: &Daemon, token: &str) -> bool {
    let offers = daemon.ok(token, "opportunities", json!({"limit": 1}));
    let Some(offer) = offers["result"]["opportunities"].get(0) else { return false };
    daemon.ok(token, "assignment_take", json!({"assignment": offer["assignment"]}));
    true
}

/// C2. A question, an assignment, a delivery that is not good enough, its return, the work done again, and its acceptance:
/// by three agents that never remember anything, on a daemon that is killed after every single step. Each session asks for its
/// turn, reads the working set named there, and acts by ids and texts of these two answers. It ends with everything done.
#[test]
fn agents_that_forget_everything_on_a_daemon_that_is_killed_finish_their_work() {
    let mut daemon = Daemon::fresh();
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| Actor::new(&daemon, name));
    let main = thread(&daemon, &alice, &[&bob, &carol]);
    let assign = json!({"to": bob.id, "criteria": "7 times the letter x"});
    let entry = json!({"thread": main, "text": "Who is there?", "ask": [bob.id, carol.id], "assign": assign});
    alice.ok(&daemon, "entry_post", entry);
    let (mut steps, mut idle) = (0, 0);
    for token in [&alice.token, &bob.token, &carol.token].into_iter().cycle() {
        if session(&daemon, token) {
            (steps, idle) = (steps + 1, 0);
            daemon = killed(daemon);
        } else {
            idle += 1;
        }
        assert!(steps < 20, "it comes to an end");
        if idle == 3 {
            break;
        }
    }
    // Two replies; taken, delivered and returned; taken, delivered and accepted. Taking came after bob's reply.
    assert_eq!(steps, 8);
    for actor in [&alice, &bob, &carol] {
        assert!(actor.turn(&daemon).is_empty());
    }
    let states: Vec<_> = daemon
        .walk(&alice.token, "assignment_list", json!({"thread": main}), "assignments")
        .iter()
        .map(|row| row["state"].clone())
        .collect();
    assert_eq!(states, ["not_passed", "accepted"]);
    let entries = alice.ok(&daemon, "thread_entries", json!({"thread": main}));
    let said: Vec<_> =
        entries["content"].as_object().unwrap().values().map(|content| content["text"].clone()).collect();
    assert_eq!(said.iter().filter(|text| *text == "You said: Who is there?").count(), 2);
    daemon.assert_sound();
}
