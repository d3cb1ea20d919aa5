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
