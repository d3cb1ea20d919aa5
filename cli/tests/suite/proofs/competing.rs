//! 4. Competing actions end nothing twice, go beyond no right and no limit, and take hold whole or not at all.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::fold::Folded;
use super::{Actor, at_once, facts, killed, offer, text, thread};
use crate::daemon::{Daemon, call_at};

/// Exactly one of these replies is a success; all others are refused with one of these codes.
fn one_wins(replies: &[crate::daemon::Reply], codes: &[&str], context: &str) {
    let won = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(won, 1, "{context}: {replies:#?}");
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        assert!(codes.contains(&reply.code()), "{context}: {}", reply.code());
    }
}

/// L5.1, L5.2, L2.1. Clients of many agents race for the same thing, over and over: every end of an obligation, of an offer
/// and of a delivery, the versions of a memory, the last governor's seat, and the last places in a thread. Exactly as many win
/// as may. The log is then one legal order of it all: folded, nothing ends twice and nobody acts without a right, and the
/// daemon decides every fact again to the same state. Last, it is killed in the middle of such a race: what was acknowledged
/// is whole, and what was not is whole or not there.
#[test]
fn competing_actions_have_the_effects_of_one_legal_order() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    Daemon::at(&home).stop();
    let limits = "[limits]\nmembers_max = 6\nactions_per_second_max = 100000\nactions_burst_max = 1000000\n";
    std::fs::write(home.join("config.toml"), limits).unwrap();
    let daemon = Daemon::at(&home);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| Actor::new(&daemon, name));
    let main = thread(&daemon, &alice, &[&bob, &carol]);
    for round in 0..6 {
        race_for_ends(&daemon, &alice, &bob, &main, round);
    }
    race_for_seats(&daemon, &alice, &bob);
    race_for_versions(&daemon, &alice);
    for thread in daemon.walk(&alice.token, "thread_list", json!({}), "threads") {
        Folded::of(&facts(&daemon, &thread["thread"]));
    }
    daemon.assert_sound();
    let daemon = killed_in_a_race(daemon, &alice, &bob, &main);
    assert_agrees(&daemon, &main, &[&alice, &bob, &carol]);
}

fn race_for_ends(daemon: &Daemon, alice: &Actor, bob: &Actor, main: &Value, round: usize) {
    let the = |work: &Value| json!({"assignment": work});
    let output = json!({"text": "done"});
    let deliver = |work: &Value| json!({"assignment": work, "output": output});
    // A response: reply, handle, retract.
    let ask = json!({"thread": main, "text": "?", "ask": [bob.id]});
    let entry = alice.ok(daemon, "entry_post", ask)["result"]["entry"].clone();
    let handle = json!({"thread": main, "entry": entry});
    let calls: Vec<(&Actor, &str, Value)> =
        (0..8)
            .map(|n| {
                if n % 2 == 0 {
                    (bob, "entry_handle", handle.clone())
                } else {
                    (alice, "entry_retract", handle.clone())
                }
            })
            .collect();
    one_wins(&at_once(daemon, &calls), &["no_such_obligation", "no_change"], "a response");
    // An offer: taken or voided.
    let work = offer(daemon, alice, main, bob, json!({}));
    let calls: Vec<(&Actor, &str, Value)> = (0..8)
        .map(|n| {
            if n % 2 == round % 2 {
                (bob, "assignment_take", the(&work))
            } else {
                (alice, "assignment_void", the(&work))
            }
        })
        .collect();
    let replies = at_once(daemon, &calls);
    // Taken first, it can still be voided; then two win, in this order.
    let won: Vec<_> =
        replies.iter().filter(|reply| reply.status == 200).map(|reply| &reply.body["receipt"]["operation"]).collect();
    let both = won.len() == 2
        && won.iter().any(|by| *by == "assignment_take")
        && won.iter().any(|by| *by == "assignment_void");
    assert!(won.len() == 1 && won[0] == "assignment_void" || both, "{won:?}");
    for reply in replies.iter().filter(|reply| reply.status != 200) {
        assert!(["already_taken", "already_final"].contains(&reply.code()), "{}", reply.code());
    }
    // A delivery: delivered once, or abandoned, or voided.
    let work = offer(daemon, alice, main, bob, json!({}));
    bob.ok(daemon, "assignment_take", the(&work));
    let calls: Vec<(&Actor, &str, Value)> = (0..9)
        .map(|n| match n % 3 {
            0 => (bob, "assignment_deliver", deliver(&work)),
            1 => (bob, "assignment_abandon", the(&work)),
            _ => (alice, "assignment_void", the(&work)),
        })
        .collect();
    one_wins(&at_once(daemon, &calls), &["already_delivered", "already_final"], "a delivery");
    // A judgment: accepted or returned.
    let work = offer(daemon, alice, main, bob, json!({}));
    bob.ok(daemon, "assignment_take", deliver(&work));
    let back = json!({"assignment": work, "reason": "no"});
    let calls: Vec<(&Actor, &str, Value)> = (0..8)
        .map(|n| {
            if n % 2 == 0 {
                (alice, "assignment_accept", the(&work))
            } else {
                (alice, "assignment_return", back.clone())
            }
        })
        .collect();
    one_wins(&at_once(daemon, &calls), &["already_final"], "a judgment");
}

/// Six may be members, and one must govern.
fn race_for_seats(daemon: &Daemon, alice: &Actor, bob: &Actor) {
    let made = alice.ok(daemon, "thread_create", json!({"admission": {"role": "governor"}}));
    let (main, ticket) = (&made["result"]["thread"], json!({"ticket": made["secret"]["ticket"]}));
    let crowd: Vec<Actor> = (0..12).map(|n| Actor::new(daemon, &format!("c{n}"))).collect();
    let calls: Vec<(&Actor, &str, Value)> = crowd.iter().map(|actor| (actor, "thread_join", ticket.clone())).collect();
    let replies = at_once(daemon, &calls);
    let inside: Vec<&Actor> =
        crowd.iter().zip(&replies).filter(|(_, reply)| reply.status == 200).map(|(actor, _)| actor).collect();
    assert_eq!(inside.len(), 5, "with the creator, six");
    assert!(replies.iter().all(|reply| reply.status == 200 || reply.code() == "capacity_reached"));
    // All govern, and all leave at once: the last cannot.
    let everyone: Vec<&Actor> = inside.into_iter().chain([alice]).collect();
    let leave = json!({"thread": main});
    let calls: Vec<(&Actor, &str, Value)> =
        everyone.iter().map(|actor| (*actor, "thread_leave", leave.clone())).collect();
    let replies = at_once(daemon, &calls);
    assert_eq!(replies.iter().filter(|reply| reply.status == 200).count(), 5);
    let stayed: Vec<_> = replies.iter().filter(|reply| reply.status != 200).map(|reply| reply.code()).collect();
    assert_eq!(stayed, ["last_governor"]);
    // Removed and acting at once: whatever comes after the removal is refused as to a stranger.
    let other = thread(daemon, alice, &[bob]);
    let say = json!({"thread": other, "text": "still here", "ask": []});
    let mut calls: Vec<(&Actor, &str, Value)> = vec![(bob, "entry_post", say); 12];
    calls.insert(6, (alice, "member_remove", json!({"thread": other, "agent": bob.id})));
    let replies = at_once(daemon, &calls);
    let removed = replies[6].body["receipt"]["index"].as_u64().expect("it is removed");
    for reply in replies.iter().filter(|reply| reply.body["receipt"]["operation"] != "member_remove") {
        let before = reply.body["receipt"]["index"].as_u64().is_some_and(|index| index < removed);
        assert!(before || reply.code() == "not_found", "{:#}", reply.body);
    }
    Folded::of(&facts(daemon, &other));
}

fn race_for_versions(daemon: &Daemon, alice: &Actor) {
    let memory = alice.ok(daemon, "memory_create", json!({"text": "1"}))["result"]["memory"].clone();
    for version in 1..5 {
        let update = json!({"memory": memory, "text": "next", "expected_version": version});
        let replies = at_once(daemon, &vec![(alice, "memory_update", update); 8]);
        one_wins(&replies, &["version_conflict"], "a version");
    }
    let replies = at_once(daemon, &vec![(alice, "memory_withdraw", json!({"memory": memory})); 8]);
    one_wins(&replies, &["memory_withdrawn"], "an end");
}

/// Kills the daemon while both agents ask each other, offer, take and deliver.
fn killed_in_a_race(daemon: Daemon, alice: &Actor, bob: &Actor, main: &Value) -> Daemon {
    let address = daemon.address.clone();
    let worker = |me: &Actor, other: &Actor, name: String| {
        let mut acknowledged = Vec::new();
        for n in 0.. {
            let assign = json!({"to": other.id, "criteria": "c"});
            let key = format!("{name}-{n}");
            let arguments =
                json!({"thread": main, "text": "?", "ask": [other.id], "assign": assign, "idempotency_key": key});
            match call_at(&address, &me.token, "entry_post", &arguments) {
                Ok(reply) if reply.status == 200 => {
                    acknowledged.push((me.clone(), arguments, reply.body["receipt"].clone()))
                }
                _ => break,
            }
            let work = acknowledged.last().unwrap().2["result"]["assignment"].clone();
            let output = json!({"text": "done"});
            let taken =
                call_at(&address, &other.token, "assignment_take", &json!({"assignment": work, "output": output}));
            if taken.is_err() {
                break;
            }
        }
        acknowledged
    };
    let mut all = Vec::new();
    let daemon = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|n| {
                let (me, other) = if n % 2 == 0 { (alice, bob) } else { (bob, alice) };
                scope.spawn(move || worker(me, other, format!("w{n}")))
            })
            .collect();
        // Once the race is well under way.
        let entries = || alice.ok(&daemon, "thread_get", json!({"thread": main}))["result"]["entry_count"].as_u64();
        let begun = entries().unwrap();
        while entries().unwrap() < begun + 60 {}
        let daemon = killed(daemon);
        for worker in workers {
            all.extend(worker.join().unwrap());
        }
        daemon
    });
    assert!(all.len() >= 50);
    for (actor, arguments, receipt) in all {
        assert_eq!(actor.ok(&daemon, "entry_post", arguments)["receipt"], receipt, "what was told is there");
    }
    daemon
}

/// Everything that is shown is what the facts say, and no fact is half there.
fn assert_agrees(daemon: &Daemon, main: &Value, actors: &[&Actor]) {
    daemon.assert_sound();
    let all = facts(daemon, main);
    let folded = Folded::of(&all);
    for actor in actors {
        let owed: BTreeSet<&str> = folded.owed_by(&actor.id).map(|(_, id)| id).collect();
        let turn: Vec<String> = actor.turn(daemon).iter().map(|row| text(&row["id"])).collect();
        assert_eq!(turn.len(), owed.len(), "each once");
        assert_eq!(turn.iter().map(String::as_str).collect::<BTreeSet<_>>(), owed);
    }
    // An entry with an assignment is one fact: the entry, its memory, the offer and the response it asks for.
    let carrying = all.iter().filter(|fact| {
        let kinds: BTreeSet<String> = super::effects(fact).iter().map(|effect| text(&effect["kind"])).collect();
        let parts = ["entry_posted", "assignment_offered"].map(|kind| kinds.contains(kind));
        assert_eq!(parts[1], parts[0] && parts[1], "an offer comes with its entry");
        parts[1]
    });
    let offered = carrying.count();
    let shown = daemon.walk(&actors[0].token, "assignment_list", json!({"thread": main}), "assignments");
    assert_eq!(shown.len(), offered);
    for row in shown {
        assert_eq!(folded.assignments[row["assignment"].as_str().unwrap()], row["state"].as_str().unwrap());
    }
}
