//! A disk that is full in the middle of work: it is said, nothing acknowledged is lost, and with room all goes on.
//!
//! Where the system lets this process mount one, the disk is a small `tmpfs`, which runs out of space. Everywhere, it is a
//! limit on the size of files (`ulimit -f`), which the store's file meets first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{assert_refused, said};
use crate::daemon::{Daemon, call_at};

/// A `tmpfs` of a few MiB; unmounted when dropped.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// Nothing where mounting is not permitted.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=6m,mode=0700", "kwoon-test"];
        let output = Command::new("mount").args(mount).arg(directory.path()).output().ok()?;
        output.status.success().then_some(Self(directory))
    }

    fn grow(&self) {
        let output = Command::new("mount").args(["-o", "remount,size=64m"]).arg(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// What a client got before its first refusal.
struct Work {
    /// Each with its key and receipt.
    acknowledged: Vec<(Value, Value)>,
    /// What was refused.
    refused: Value,
}

/// Four clients write memories, short and long ones, until each is refused.
fn fill(daemon: &Daemon, token: &str) -> Vec<Work> {
    let worker = |name: usize| {
        let mut acknowledged = Vec::new();
        for n in 0.. {
            // The longer ones are files of their own.
            let text = "x".repeat(if n % 8 == 0 { 20_000 } else { 3000 });
            let arguments = json!({"text": text, "idempotency_key": format!("w{name}-{n}")});
            let reply = call_at(&daemon.address, token, "memory_create", &arguments).unwrap();
            if reply.status == 200 {
                acknowledged.push((arguments, reply.body["receipt"].clone()));
                continue;
            }
            assert_refused(&reply, 503, "not_sealing", "wait", &json!({"reason": "disk_full"}), "full");
            return Work { acknowledged, refused: arguments };
        }
        unreachable!("disks end")
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|name| scope.spawn(move || worker(name))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    })
}

/// A daemon on a full disk says so, does nothing more, and shows everything that was acknowledged.
fn assert_stands_still(daemon: &Daemon, token: &str, work: &[Work]) {
    let before = daemon.trace();
    for (operation, arguments) in [("memory_create", json!({"text": "y"})), ("thread_create", json!({}))] {
        let reply = daemon.call(token, operation, &arguments);
        assert_refused(&reply, 503, "not_sealing", "wait", &json!({"reason": "disk_full"}), operation);
    }
    let (code, text) = said(daemon, &["--agent", "alice", "memory", "create", "--text", "y"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("disk_full") && text.contains("make room, then kwoon down and kwoon up"), "{text}");
    assert_eq!(daemon.request("GET", "/readyz", "", b"").status, 503);
    let status = daemon.ok(&daemon.token("owner"), "host_status", json!({}));
    assert_eq!(
        (&status["result"]["sealing"], &status["result"]["not_sealing_reason"]),
        (&json!(false), &json!("disk_full"))
    );
    assert_receipts(daemon, token, work);
    daemon.assert_sound();
    assert_eq!(daemon.trace(), before);
}

fn assert_receipts(daemon: &Daemon, token: &str, work: &[Work]) {
    for (arguments, receipt) in work.iter().flat_map(|work| &work.acknowledged) {
        let key = json!({"operation": "memory_create", "key": arguments["idempotency_key"]});
        assert_eq!(daemon.ok(token, "receipt_get", key)["receipt"], *receipt);
    }
}

/// With room, everything acknowledged is there, and what was refused is done once when it is repeated.
fn assert_goes_on(home: &Path, token: &str, work: &[Work]) {
    let daemon = Daemon::at(home);
    daemon.assert_sound();
    assert_receipts(&daemon, token, work);
    for Work { acknowledged, refused } in work {
        daemon.ok(token, "memory_create", refused.clone());
        for (arguments, receipt) in acknowledged.iter().take(3) {
            assert_eq!(daemon.ok(token, "memory_create", arguments.clone())["receipt"], *receipt);
        }
    }
    let expected: usize = work.iter().map(|work| work.acknowledged.len() + 1).sum();
    let memories = daemon.walk(token, "memory_list", json!({}), "memories");
    assert_eq!(memories.len(), expected);
    for memory in memories {
        let read = daemon.ok(token, "memory_get", json!({"memory": memory["memory"]}));
        assert_eq!(read["content"]["c1"]["missing"], Value::Null, "its text is there");
    }
    daemon.assert_sound();
}

#[test]
fn a_file_that_cannot_grow_is_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let home: PathBuf = directory.path().join("home");
    // Without its signal the limit is an error of the write, as a full disk is.
    let daemon = Daemon::after(&home, "trap '' XFSZ; ulimit -f 6000");
    let (_, token) = daemon.agent("alice");
    let work = fill(&daemon, &token);
    assert_stands_still(&daemon, &token, &work);
    daemon.stop();
    assert_goes_on(&home, &token, &work);
}

#[test]
fn a_disk_that_is_full_in_the_middle_loses_nothing_that_was_acknowledged() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("mounting is not permitted here; a limit on files stands for the disk in the other test");
        return;
    };
    let home = disk.0.path().join("home");
    let daemon = Daemon::at(&home);
    let (_, token) = daemon.agent("alice");
    let work = fill(&daemon, &token);
    // The last bytes go too.
    let _ = fs::write(disk.0.path().join("ballast"), vec![0; 8 << 20]);
    assert_stands_still(&daemon, &token, &work);
    daemon.kill();
    // Still full, it starts if the little that a start writes finds room, and else says what to do.
    match Daemon::try_at(&home) {
        Ok(daemon) => {
            daemon.assert_sound();
            assert_receipts(&daemon, &token, &work);
            daemon.kill();
        }
        Err(said) => {
            assert!(said.starts_with("exit status: 1"), "{said}");
            assert!(said.contains("disk is full") || said.contains("disk full"), "{said}");
        }
    }
    disk.grow();
    assert_goes_on(&home, &token, &work);
}
