//! 3. A repeat returns the first result; receipts never change; a secret is shown once.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Actor, at_once, killed, text};
use crate::daemon::Daemon;

/// A request and its first answer.
struct First {
    token: String,
    operation: &'static str,
    arguments: Value,
    answer: Value,
}

/// L3.1, L3.3, L3.4. Every acting operation is called once with a key, among them the four that show a secret. Everything
/// moves on to its end and the daemon is killed. Each request is then repeated, by many clients at once: all get the very
/// first receipt, nothing happens, and no secret comes a second time or stands in anything that can be read.
#[test]
fn a_repeat_returns_the_first_result_and_a_secret_is_shown_once() {
    let daemon = Daemon::fresh();
    let owner = daemon.token("owner");
    let mut firsts: Vec<First> = Vec::new();
    let mut act = |token: &str, operation: &'static str, mut arguments: Value| {
        arguments["idempotency_key"] = json!(format!("k{}", firsts.len()));
        let answer = daemon.ok(token, operation, arguments.clone());
        firsts.push(First { token: token.to_owned(), operation, arguments, answer: answer.clone() });
        answer
    };
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| {
        let made = act(&owner, "agent_create", json!({"name": name, "mission": "m"}));
        Actor { id: text(&made["result"]["agent"]), token: text(&made["secret"]["token"]) }
    });
    let (a, b, c) = (alice.token.as_str(), bob.token.as_str(), carol.token.as_str());
    act(&owner, "agent_update", json!({"agent": carol.id, "expected_version": 1, "mission": "n"}));
    let made = act(a, "thread_create", json!({"subject": "s", "admission": {}}));
    let thread = made["result"]["thread"].clone();
    act(b, "thread_join", json!({"ticket": made["secret"]["ticket"]}));
    let issued = act(a, "admission_issue", json!({"thread": thread, "role": "governor"}));
    act(c, "thread_join", json!({"ticket": issued["secret"]["ticket"]}));
    // Joining again changes nothing, and is answered with what is there.
    let again = act(c, "thread_join", json!({"ticket": issued["secret"]["ticket"]}));
    assert_eq!(again["result"]["existing"], true);
    act(a, "admission_void", json!({"thread": thread}));
    let ask = |actor: &Actor| json!({"thread": thread, "text": "?", "ask": [actor.id]});
    let entry = act(a, "entry_post", ask(&bob))["result"]["entry"].clone();
    act(b, "entry_handle", json!({"thread": thread, "entry": entry, "note": "n"}));
    let entry = act(a, "entry_post", ask(&bob))["result"]["entry"].clone();
    act(a, "entry_retract", json!({"thread": thread, "entry": entry}));
    let mut offer = || {
        let assign = json!({"to": bob.id, "criteria": "c"});
        act(a, "entry_post", json!({"thread": thread, "text": "w", "ask": [], "assign": assign}))["result"]["assignment"].clone()
    };
    let work: [Value; 4] = [(); 4].map(|()| offer());
    for work in &work[..3] {
        act(b, "assignment_take", json!({"assignment": work}));
    }
    for work in &work[..2] {
        act(b, "assignment_deliver", json!({"assignment": work, "output": {"text": "o"}}));
    }
    act(a, "assignment_accept", json!({"assignment": work[0]}));
    act(a, "assignment_return", json!({"assignment": work[1], "reason": "r"}));
    act(b, "assignment_abandon", json!({"assignment": work[2]}));
    act(a, "assignment_void", json!({"assignment": work[3]}));
    let memory = act(b, "memory_create", json!({"text": "t", "title": "t"}))["result"]["memory"].clone();
    act(b, "memory_update", json!({"memory": memory, "text": "u"}));
    for operation in ["memory_publish", "memory_unpublish", "memory_withdraw"] {
        act(b, operation, json!({"memory": memory}));
    }
    act(a, "member_role", json!({"thread": thread, "agent": bob.id, "role": "observer"}));
    act(a, "member_remove", json!({"thread": thread, "agent": bob.id}));
    act(c, "thread_close", json!({"thread": thread}));
    act(a, "thread_leave", json!({"thread": thread}));
    act(&owner, "agent_deactivate", json!({"agent": alice.id}));
    act(&owner, "agent_reactivate", json!({"agent": alice.id}));
    act(&owner, "agent_deactivate", json!({"agent": bob.id}));
    act(&owner, "agent_terminate", json!({"agent": carol.id}));
    assert_every_action_was_called(&daemon, &firsts);

    // Each secret with the request that showed it.
    let secrets: Vec<(&First, String)> = firsts
        .iter()
        .filter_map(|first| Some((first, first.answer.get("secret")?)))
        .map(|(first, secret)| (first, text(secret.as_object().unwrap().values().next().unwrap())))
        .collect();
    assert_eq!(secrets.len(), 5, "three tokens and two tickets");
    let daemon = killed(daemon);
    let before = daemon.trace();
    for first in &firsts {
        let actor = Actor { id: String::new(), token: first.token.clone() };
        let call = (&actor, first.operation, first.arguments.clone());
        for reply in at_once(&daemon, &vec![call; 4]) {
            assert_eq!(reply.status, 200, "{}: {:#}", first.operation, reply.body);
            for part in ["receipt", "result"] {
                assert_eq!(reply.body[part], first.answer[part], "{} of {}", part, first.operation);
            }
            assert_shows_none(&reply.body, &secrets, first.operation);
        }
        // The same key for something else is refused, and the receipt is found again as it was.
        let mut other = first.arguments.clone();
        other["wait_ms"] = json!(1);
        assert_eq!(daemon.call(&first.token, first.operation, &other).status, 200, "waiting is no part of a request");
        let reply = daemon.call(&first.token, first.operation, &another(first));
        assert_eq!(
            (reply.status, reply.code()),
            (409, "idempotency_conflict"),
            "{}: {:#}",
            first.operation,
            reply.body
        );
        assert_shows_none(&reply.body, &secrets, first.operation);
        if first.token != owner {
            let found = daemon.ok(&first.token, "receipt_get", json!({"id": first.answer["receipt"]["id"]}));
            assert_eq!(found["receipt"], first.answer["receipt"]);
            assert_shows_none(&found, &secrets, "receipt_get");
        }
    }
    assert_eq!(daemon.trace(), before, "nothing was done twice");
    for object in &before {
        for format in ["json", "cbor"] {
            let log =
                daemon.ok(&owner, "object_log", json!({"object": object["object"], "format": format, "limit": 50}));
            assert_shows_none(&log, &secrets, "object_log");
        }
    }
    for token in [a, b, c] {
        for operation in ["turn", "thread_list", "memory_list", "agent_get", "opportunities", "outbox_list"] {
            assert_shows_none(&daemon.ok(token, operation, json!({})), &secrets, operation);
        }
    }
}

/// The same operation and key with other arguments.
fn another(first: &First) -> Value {
    let mut arguments = first.arguments.clone();
    let fields = arguments.as_object_mut().unwrap();
    let other = |value: &Value| match value.as_str() {
        // An id of the same form that is none.
        Some(id) if id.len() == 30 => json!(format!("{}{}", &id[..4], "a".repeat(26))),
        Some("speaker" | "observer" | "governor") => json!("speaker"),
        _ => json!("other"),
    };
    let name =
        ["text", "note", "reason", "mission", "subject", "role", "memory", "assignment", "thread", "agent", "ticket"]
            .into_iter()
            .find(|name| fields.contains_key(*name))
            .unwrap();
    let value = other(&fields[name]);
    fields.insert(name.to_owned(), value);
    arguments
}

fn assert_every_action_was_called(daemon: &Daemon, firsts: &[First]) {
    let document = daemon.request("GET", "/openapi.json", "", b"").body;
    let called: BTreeSet<&str> = firsts.iter().map(|first| first.operation).collect();
    for (path, item) in document["paths"].as_object().unwrap() {
        let name = path.strip_prefix("/v1/").unwrap();
        let schema = &item["post"]["requestBody"]["content"]["application/json"]["schema"];
        // What tends the host itself is no request of the protocol and has no receipt.
        let tends = ["clock_confirm", "home_confirm", "network", "object_handover", "quarantine_remove"]
            .contains(&name)
            || name.starts_with("peer_");
        let acts = schema["properties"].get("idempotency_key").is_some() && !tends;
        assert!(!acts || called.contains(name), "{name} was not called");
    }
}

fn assert_shows_none(answer: &Value, secrets: &[(&First, String)], context: &str) {
    assert!(answer.get("secret").is_none(), "{context}: {answer:#}");
    let shown = answer.to_string();
    for (first, secret) in secrets {
        assert!(!shown.contains(secret), "{context} shows the secret of {}", first.operation);
    }
}

/// L3.1 and L3.4 where the first call and its repeats come at once: one of them is the first, and has the secret.
#[test]
fn of_many_equal_requests_at_once_one_is_the_first() {
    let daemon = Daemon::fresh();
    let alice = Actor::new(&daemon, "alice");
    for round in 0..5 {
        let arguments = json!({"admission": {}, "idempotency_key": format!("r{round}")});
        let replies = at_once(&daemon, &vec![(&alice, "thread_create", arguments); 16]);
        assert!(replies.iter().all(|reply| reply.body["receipt"] == replies[0].body["receipt"]));
        assert_eq!(replies.iter().filter(|reply| reply.body.get("secret").is_some()).count(), 1);
    }
    assert_eq!(daemon.walk(&alice.token, "thread_list", json!({}), "threads").len(), 5);
}
