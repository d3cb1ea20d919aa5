//! A daemon that is killed at any moment loses nothing that it acknowledged, and nothing is done twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::daemon::{Daemon, call_at};

/// One acknowledged action: its key, its receipt and the text it was made with.
type Acknowledged = (String, Value);

/// Posts until the connection breaks; what was acknowledged.
fn post_until_killed(address: &str, token: &str, name: &str, count: &AtomicUsize) -> Vec<Acknowledged> {
    let mut acknowledged = Vec::new();
    for n in 0.. {
        let key = format!("{name}-{n}");
        let arguments = json!({"text": format!("text {key}"), "idempotency_key": key});
        match call_at(address, token, "memory_create", &arguments) {
            Ok(reply) if reply.status == 200 => {
                acknowledged.push((key, reply.body["receipt"].clone()));
                count.fetch_add(1, Ordering::SeqCst);
            }
            _ => return acknowledged,
        }
    }
    acknowledged
}

#[test]
fn what_was_acknowledged_survives_kill_9_under_load() {
    let mut daemon = Daemon::fresh();
    let (_, token) = daemon.agent("alice");
    let mut all: Vec<Acknowledged> = Vec::new();
    for round in 0..6 {
        let count = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (address, token, count) = (daemon.address.clone(), token.clone(), Arc::clone(&count));
                std::thread::spawn(move || post_until_killed(&address, &token, &format!("r{round}w{worker}"), &count))
            })
            .collect();
        // Killed in the middle of the work, each time after a different amount of it.
        while count.load(Ordering::SeqCst) < 10 + round * 7 {
            std::thread::yield_now();
        }
        let (home, directory) = daemon.kill();
        for worker in workers {
            all.extend(worker.join().unwrap());
        }
        daemon = Daemon::at(&home);
        daemon.keep(directory);
        for (key, receipt) in &all {
            let found = daemon.ok(&token, "receipt_get", json!({"operation": "memory_create", "key": key}));
            assert_eq!(found["receipt"], *receipt, "{key}");
            // The same key gives the same receipt, and no second memory.
            let arguments = json!({"text": format!("text {key}"), "idempotency_key": key});
            assert_eq!(daemon.ok(&token, "memory_create", arguments)["receipt"], *receipt, "{key}");
        }
    }
    daemon.assert_sound();
    // What was acknowledged is there, and what is there more is one of the last requests of each worker and round, whose
    // answer was lost on the way.
    let memories = daemon.walk(&token, "memory_list", json!({}), "memories").len();
    assert!((all.len()..=all.len() + 24).contains(&memories), "{} acknowledged, {memories} there", all.len());
}

#[test]
fn an_agent_that_forgot_everything_goes_on_from_turn_and_working_set() {
    let daemon = Daemon::fresh();
    let ((_, alice), (bob_id, bob)) = (daemon.agent("alice"), daemon.agent("bob"));
    let made = daemon.ok(&alice, "thread_create", json!({"subject": "plan", "admission": {}}));
    daemon.ok(&bob, "thread_join", json!({"ticket": made["secret"]["ticket"]}));
    let thread = made["result"]["thread"].clone();
    daemon.ok(&alice, "entry_post", json!({"thread": thread, "text": "what now?"}));
    let assign = json!({"to": bob_id, "criteria": "good"});
    let offer = json!({"thread": thread, "text": "do it", "ask": [], "assign": assign});
    let work = daemon.ok(&alice, "entry_post", offer)["result"]["assignment"].clone();
    daemon.ok(&bob, "assignment_take", json!({"assignment": work}));
    let (home, _directory) = daemon.kill();

    // A new session knows its token and nothing else.
    let daemon = Daemon::at(&home);
    let bob = daemon.token("bob");
    let mut steps = 0;
    loop {
        let turn = daemon.ok(&bob, "turn", json!({}));
        let Some(owed) = turn["result"]["obligations"].as_array().unwrap().first() else { break };
        let set = daemon.ok(&bob, "working_set", json!({"object": owed["object"]}));
        let actions = set["result"]["actions"].as_array().unwrap();
        match owed["duty"].as_str().unwrap() {
            "respond" => {
                let key = set["result"]["owed"][0]["text_content"].as_str().unwrap();
                assert_eq!(set["content"][key]["text"], "what now?");
                assert!(actions.contains(&json!("entry_post")));
                let reply = json!({"thread": owed["object"], "reply_to": owed["entry"], "text": "this"});
                daemon.ok(&bob, "entry_post", reply);
            }
            "deliver" => {
                assert!(actions.contains(&json!("assignment_deliver")));
                let output = json!({"text": "done"});
                daemon.ok(&bob, "assignment_deliver", json!({"assignment": owed["assignment"], "output": output}));
            }
            other => panic!("bob owes no {other}"),
        }
        steps += 1;
    }
    assert_eq!(steps, 2);
    let duties = |token: &str| {
        let turn = daemon.ok(token, "turn", json!({}));
        let rows = turn["result"]["obligations"].as_array().unwrap().clone();
        rows.iter().map(|row| row["duty"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(duties(&daemon.token("alice")), ["respond", "judge"]);
    daemon.ok(&daemon.token("alice"), "assignment_accept", json!({"assignment": work}));
    assert_eq!(duties(&daemon.token("alice")), ["respond"]);
}

#[test]
fn everything_that_follows_from_the_logs_can_be_made_anew_from_them() {
    let daemon = Daemon::fresh();
    let ((_, alice), (_, bob)) = (daemon.agent("alice"), daemon.agent("bob"));
    let made = daemon.ok(&alice, "thread_create", json!({"admission": {}}));
    daemon.ok(&bob, "thread_join", json!({"ticket": made["secret"]["ticket"]}));
    daemon.ok(&alice, "entry_post", json!({"thread": made["result"]["thread"], "text": "your turn"}));
    let owner = daemon.token("owner");
    let state = |daemon: &Daemon| {
        let turn = daemon.ok(&bob, "turn", json!({}))["result"].clone();
        let digests = daemon.ok(&owner, "object_digest", json!({}))["result"].clone();
        let receipt = daemon.ok(&alice, "receipt_get", json!({"id": made["receipt"]["id"]}))["receipt"].clone();
        (turn, digests, receipt)
    };
    let before = state(&daemon);
    let (_, home, _directory) = daemon.stop();
    let daemon = Daemon::serving(&home, &["--rebuild"], &[]);
    assert_eq!(state(&daemon), before);
}
