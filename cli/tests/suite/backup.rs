//! Backups of a running daemon, and homes that were restored from them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::daemon::{Daemon, call_at};

/// Copies a directory as its owner would.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

fn digests(daemon: &Daemon) -> Value {
    daemon.ok(&daemon.token("owner"), "object_digest", json!({"limit": 50}))["result"]["objects"].clone()
}

fn verify(daemon: &Daemon) {
    let verified = daemon.ok(&daemon.token("owner"), "ledger_verify", json!({}));
    assert_eq!(verified["result"]["sound"], true, "{verified:#}");
}

#[test]
fn a_backup_of_a_running_daemon_is_one_state_and_restores_to_a_home_that_waits_for_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::fresh();
    let (owner, (_, alice)) = (daemon.token("owner"), daemon.agent("alice"));
    let memory = daemon.ok(&alice, "memory_create", json!({"text": "long ".repeat(2000), "idempotency_key": "first"}));
    let before = daemon.ok(&owner, "host_status", json!({}))["result"]["store"]["facts"].as_u64().unwrap();
    let backup = directory.path().join("backup");
    let stop = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        // Somebody writes all the while.
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) || written < 20 {
                let made = call_at(&daemon.address, &alice, "memory_create", &json!({"text": "while it is copied"}));
                assert_eq!(made.unwrap().status, 200);
                written += 1;
            }
        });
        let report = daemon.ok(&owner, "backup", json!({"path": backup}));
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        report["result"].clone()
    });
    let after = daemon.ok(&owner, "host_status", json!({}))["result"]["store"]["facts"].as_u64().unwrap();
    let facts = report["facts"].as_u64().unwrap();
    assert!((before..=after).contains(&facts), "{before} {facts} {after}");
    assert_eq!(report["contents_unreadable"], 0);
    let of_original = digests(&daemon);
    // The original goes on as before.
    daemon.ok(&alice, "memory_create", json!({"text": "after it"}));

    let home = directory.path().join("restored");
    copy(&backup, &home);
    let restored = Daemon::at(&home);
    // The same owner, host and tokens; every fact was decided again when it was first opened.
    assert_eq!(restored.token("owner"), owner);
    let status = restored.ok(&owner, "host_status", json!({}))["result"].clone();
    assert_eq!((&status["sealing"], &status["not_sealing_reason"]), (&json!(false), &json!("home_restored")));
    assert_eq!(status["store"]["facts"], facts);
    assert_eq!(status["host"], daemon.ok(&owner, "host_status", json!({}))["result"]["host"]);
    verify(&restored);
    let (copied, original) = (digests(&restored), of_original.as_array().unwrap());
    assert!(copied.as_array().unwrap().iter().all(|row| original.contains(row)), "all it has is what the original had");
    // What it may: read, and tell what became of earlier requests.
    let read = restored.ok(&alice, "memory_get", json!({"memory": memory["result"]["memory"], "max_bytes": 10_000}));
    assert_eq!(read["content"]["c1"]["text"], "long ".repeat(2000));
    let again = json!({"text": "long ".repeat(2000), "idempotency_key": "first"});
    assert_eq!(restored.ok(&alice, "memory_create", again)["receipt"], memory["receipt"]);
    // What it may not, until its owner says so.
    let refused = restored.call(&alice, "memory_create", &json!({"text": "x"}));
    assert_eq!((refused.status, refused.code()), (503, "not_sealing"));
    assert_eq!(refused.body["error"]["details"]["reason"], "home_restored");
    let shown = restored.cli(&["status"]);
    assert!(String::from_utf8(shown.stdout).unwrap().contains("home_restored"));
    assert!(restored.cli(&["home", "confirm"]).status.success());
    restored.ok(&alice, "memory_create", json!({"text": "x"}));
    verify(&restored);
    let (_, home, _) = restored.stop();
    let restored = Daemon::at(&home);
    restored.ok(&alice, "memory_create", json!({"text": "y"}));
}

#[test]
fn a_home_that_was_copied_waits_and_one_that_was_renamed_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let daemon = Daemon::at(&home);
    let (_, alice) = daemon.agent("alice");
    daemon.stop();
    let (copied, renamed) = (directory.path().join("copied"), directory.path().join("renamed"));
    copy(&home, &copied);
    let daemon = Daemon::at(&copied);
    assert_eq!(daemon.call(&alice, "memory_create", &json!({"text": "x"})).code(), "not_sealing");
    drop(daemon);
    fs::rename(&home, &renamed).unwrap();
    let daemon = Daemon::at(&renamed);
    daemon.ok(&alice, "memory_create", json!({"text": "x"}));
}

#[test]
fn a_backup_is_refused_where_it_cannot_be_made_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let daemon = Daemon::fresh();
    let (owner, (_, alice)) = (daemon.token("owner"), daemon.agent("alice"));
    let there = directory.path().join("there");
    fs::write(&there, "another's").unwrap();
    for path in [there.clone(), directory.path().join("none/backup"), there.join("below"), "relative".into()] {
        let reply = daemon.call(&owner, "backup", &json!({"path": path}));
        assert_eq!((reply.status, reply.code()), (400, "invalid_argument"), "{path:?}: {:#}", reply.body);
    }
    let reply = daemon.call(&alice, "backup", &json!({"path": directory.path().join("b")}));
    assert_eq!((reply.status, reply.code()), (403, "owner_required"));
    assert_eq!(fs::read_to_string(&there).unwrap(), "another's");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    assert_eq!(daemon.cli(&["backup", directory.path().join("b").to_str().unwrap()]).status.code(), Some(0));
    let twice = daemon.cli(&["backup", directory.path().join("b").to_str().unwrap()]);
    assert_eq!(twice.status.code(), Some(3));
}
