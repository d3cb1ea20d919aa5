//! What must stay secret does, and what participants write stays out of the log of the daemon.

use serde_json::json;

use crate::daemon::Daemon;

#[test]
fn the_daemons_log_holds_no_text_token_ticket_or_key() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let daemon = Daemon::with(&home, &[("KWOON_LOG", "trace,kwoon=trace")]);
    let owner = daemon.token("owner");
    let ((_, alice), (_, bob)) = (daemon.agent("alice"), daemon.agent("bob"));
    let made = daemon.ok(&alice, "thread_create", json!({"subject": "SUBJECTMARK", "admission": {}}));
    let ticket = made["secret"]["ticket"].as_str().unwrap().to_owned();
    daemon.ok(&bob, "thread_join", json!({"ticket": ticket, "idempotency_key": "KEYMARK"}));
    daemon.ok(&alice, "entry_post", json!({"thread": made["result"]["thread"], "text": "TEXTMARK"}));
    daemon.call(&alice, "memory_create", &json!({"text": 1, "TEXTMARK": "TEXTMARK"}));
    daemon.call("TOKENMARK", "turn", &json!({}));
    daemon.ok(&bob, "memory_search", json!({"query": "TEXTMARK"}));
    daemon.ok(&owner, "ledger_verify", json!({}));
    let (log, home, _) = daemon.stop();
    assert!(log.contains("entry_post"), "the log was written at all: {log}");
    for secret in [&*owner, &*alice, &*bob, &*ticket, "SUBJECTMARK", "TEXTMARK", "TOKENMARK", "KEYMARK"] {
        assert!(!log.contains(secret), "{secret}");
    }
    // A ticket is stored nowhere, and a token only in its own file (L3.4, T1.5).
    for (path, bytes) in files(&home) {
        let holds = |secret: &str| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!holds(&ticket), "{path}");
        for (name, token) in [("owner", &owner), ("alice", &alice), ("bob", &bob)] {
            assert!(!holds(token) || path.ends_with(&format!("tokens/{name}")), "{path}");
        }
    }
}

fn files(home: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![home.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            }
        }
    }
    found
}

#[test]
fn a_ticket_is_shown_once() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let arguments = json!({"admission": {"role": "observer"}, "idempotency_key": "k"});
    let first = daemon.ok(&alice, "thread_create", arguments.clone());
    assert!(first["secret"]["ticket"].as_str().unwrap().starts_with("kwoonadm"));
    let second = daemon.ok(&alice, "thread_create", arguments);
    assert_eq!(second["receipt"], first["receipt"]);
    assert!(second.get("secret").is_none());
    let made = json!({"name": "bob", "idempotency_key": "k"});
    let owner = daemon.token("owner");
    assert!(daemon.ok(&owner, "agent_create", made.clone())["secret"]["token"].is_string());
    assert!(daemon.ok(&owner, "agent_create", made).get("secret").is_none());
}
