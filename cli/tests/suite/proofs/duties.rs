//! 2. Obligations are a closed catalogue; each has its cause, its bearer and an exit that needs nobody else.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Actor, effects, facts, killed, offer, text, thread};
use crate::daemon::Daemon;

/// The catalogue: what begins a duty, and what ends it.
const CATALOGUE: [(&str, &[&str], &[&str]); 3] = [
    (
        "respond",
        &["entry_post"],
        &["replied", "handled", "taken", "retracted", "membership_ended", "demoted", "closed"],
    ),
    ("deliver", &["assignment_take"], &["delivered", "abandoned", "voided", "expired"]),
    ("judge", &["assignment_take", "assignment_deliver"], &["judged", "membership_ended", "expired"]),
];

/// O1 with L4.1. Every duty is begun and ended in every way there is. The logs then show no duty, cause or exit beyond the
/// catalogue, and no way to write one. Last, all that is left is owed by one agent that is far over its rate while everybody
/// else is gone and the daemon was killed: it handles, abandons and accepts all the same, and owes nothing.
#[test]
fn duties_are_a_closed_catalogue_and_each_has_an_exit_that_needs_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    Daemon::at(&home).stop();
    std::fs::write(home.join("config.toml"), "[limits]\nactions_per_second_max = 1\nactions_burst_max = 60\n").unwrap();
    let daemon = Daemon::at(&home);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| Actor::new(&daemon, name));
    let main = thread(&daemon, &alice, &[&bob, &carol]);
    every_way(&daemon, &alice, &bob, &carol, &main);
    assert_catalogue(&daemon, std::slice::from_ref(&main));
    assert_nothing_writes_a_duty(&daemon);

    // What bob owes now: a response and a delivery to alice, and a judgment of what alice delivered.
    let ask = |n: u64| json!({"thread": main, "text": "?", "ask": [bob.id], "idempotency_key": format!("a{n}")});
    let entry = alice.ok(&daemon, "entry_post", ask(0))["result"]["entry"].clone();
    let taken = offer(&daemon, &alice, &main, &bob, json!({}));
    bob.ok(&daemon, "assignment_take", json!({"assignment": taken}));
    let judged = offer(&daemon, &bob, &main, &alice, json!({}));
    alice.ok(&daemon, "assignment_take", json!({"assignment": judged, "output": {"text": "done"}}));
    let shown: Vec<_> = bob.turn(&daemon).iter().map(|row| (text(&row["duty"]), text(&row["step"]))).collect();
    let each = ["respond", "deliver", "judge"].map(|duty| (duty.to_owned(), duty.to_owned()));
    assert_eq!(shown, each);
    // Waiting for others has its end in time; a response waits for nobody.
    for row in bob.turn(&daemon) {
        assert_eq!(row["due_at"].is_string(), row["duty"] != "respond", "{row}");
    }
    // The others take no further part.
    daemon.ok(&daemon.token("owner"), "agent_deactivate", json!({"agent": carol.id}));
    let daemon = killed(daemon);
    for (operation, arguments) in [
        ("entry_handle", json!({"thread": main, "entry": entry})),
        ("assignment_abandon", json!({"assignment": taken})),
        ("assignment_accept", json!({"assignment": judged})),
    ] {
        over_the_rate(&daemon, &bob);
        bob.ok(&daemon, operation, arguments);
    }
    assert!(bob.turn(&daemon).is_empty());
    assert_catalogue(&daemon, &[main]);
    daemon.assert_sound();
}

/// Acts until that is refused for the rate.
fn over_the_rate(daemon: &Daemon, actor: &Actor) {
    loop {
        let reply = daemon.call(&actor.token, "memory_create", &json!({"text": "x"}));
        if reply.status != 200 {
            assert_eq!((reply.status, reply.code()), (429, "rate_limited"));
            return;
        }
    }
}

/// Lets each duty begin and end in each way.
fn every_way(daemon: &Daemon, alice: &Actor, bob: &Actor, carol: &Actor, main: &Value) {
    let ask = |whom: &[&Actor]| {
        let ask: Vec<_> = whom.iter().map(|actor| &actor.id).collect();
        alice.ok(daemon, "entry_post", json!({"thread": main, "text": "?", "ask": ask}))["result"]["entry"].clone()
    };
    bob.ok(daemon, "entry_post", json!({"thread": main, "text": "!", "reply_to": ask(&[bob]), "ask": []}));
    bob.ok(daemon, "entry_handle", json!({"thread": main, "entry": ask(&[bob])}));
    alice.ok(daemon, "entry_retract", json!({"thread": main, "entry": ask(&[bob, carol])}));
    let assign = json!({"to": bob.id, "criteria": "c"});
    let asked = json!({"thread": main, "text": "work", "ask": [bob.id], "assign": assign});
    let work = alice.ok(daemon, "entry_post", asked)["result"]["assignment"].clone();
    bob.ok(daemon, "assignment_take", json!({"assignment": work}));
    bob.ok(daemon, "assignment_deliver", json!({"assignment": work, "output": {"text": "done"}}));
    alice.ok(daemon, "assignment_return", json!({"assignment": work, "reason": "no"}));
    ask(&[carol]);
    alice.ok(daemon, "member_role", json!({"thread": main, "agent": carol.id, "role": "observer"}));
    let taken = |to: &Actor, more: Value, output: Value| {
        let work = offer(daemon, alice, main, to, more);
        to.ok(daemon, "assignment_take", json!({"assignment": work, "output": output}));
        work
    };
    bob.ok(daemon, "assignment_abandon", json!({"assignment": taken(bob, json!({}), Value::Null)}));
    alice.ok(daemon, "assignment_void", json!({"assignment": taken(bob, json!({}), Value::Null)}));
    let late = taken(bob, json!({"deliver_within": "1s"}), Value::Null);
    let unjudged = taken(bob, json!({"judge_within": "1s"}), json!({"text": "done"}));
    for (work, state) in [(late, "timed_out"), (unjudged, "undecided")] {
        while alice.ok(daemon, "assignment_get", json!({"assignment": work}))["result"]["state"] != state {}
    }
    // In a thread of their own: leaving with all three duties, and closing.
    let other = thread(daemon, alice, &[bob]);
    bob.ok(daemon, "entry_post", json!({"thread": other, "text": "?", "ask": [alice.id]}));
    alice.ok(daemon, "entry_post", json!({"thread": other, "text": "?", "ask": [bob.id]}));
    let judged = offer(daemon, bob, &other, alice, json!({}));
    alice.ok(daemon, "assignment_take", json!({"assignment": judged, "output": {"text": "done"}}));
    bob.ok(daemon, "thread_leave", json!({"thread": other}));
    alice.ok(daemon, "thread_close", json!({"thread": other}));
    assert_catalogue(daemon, &[main.clone(), other]);
}

fn assert_catalogue(daemon: &Daemon, threads: &[Value]) {
    let mut bearers = BTreeMap::new();
    let mut ends: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for fact in threads.iter().flat_map(|thread| facts(daemon, thread)) {
        let operation = fact["command"]["payload"]["operation"].as_str().unwrap_or_default();
        let sender = &fact["command"]["sender"];
        for effect in effects(&fact) {
            let duty = effect["duty"].as_str().unwrap_or_default();
            let entry = CATALOGUE.iter().find(|(known, ..)| *known == duty);
            match effect["kind"].as_str().unwrap() {
                "obligation_began" => {
                    let (_, causes, _) = entry.unwrap_or_else(|| panic!("{duty} is no duty"));
                    assert!(causes.contains(&operation), "{operation} begins {duty}");
                    // A taker binds itself; nobody asks itself; who judges is somebody else's deed to bring about.
                    let own = *sender == effect["bearer"];
                    assert!(if duty == "deliver" { own } else { duty == "judge" || !own }, "{fact:#}");
                    bearers.insert(text(&effect["obligation"]), text(&effect["bearer"]));
                }
                "obligation_ended" => {
                    let (_, _, exits) = entry.unwrap_or_else(|| panic!("{duty} is no duty"));
                    let exit = text(&effect["exit"]);
                    assert!(exits.contains(&exit.as_str()), "{duty} ends by {exit}");
                    assert_eq!(bearers[&text(&effect["obligation"])], text(&effect["bearer"]));
                    ends.entry(duty.to_owned()).or_default().push(exit);
                }
                _ => assert!(effect.get("duty").is_none(), "{effect}"),
            }
        }
    }
    // With both threads, each exit was seen but those that the second thread alone has.
    if threads.len() > 1 {
        for (duty, _, exits) in CATALOGUE {
            let seen = &ends[duty];
            assert!(exits.iter().all(|exit| seen.iter().any(|seen| seen == exit)), "{duty}: {seen:?}");
        }
    }
}

/// No operation takes an obligation, and none is named for one.
fn assert_nothing_writes_a_duty(daemon: &Daemon) {
    let document = daemon.request("GET", "/openapi.json", "", b"").body;
    for (path, item) in document["paths"].as_object().unwrap() {
        assert!(!path.contains("obligation") && !path.contains("duty"), "{path}");
        let schema = &item["post"]["requestBody"]["content"]["application/json"]["schema"];
        let names = schema["properties"].as_object().unwrap().keys();
        assert!(names.into_iter().all(|name| !name.contains("obligation") && !name.contains("duty")), "{path}");
    }
}
