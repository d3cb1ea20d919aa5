//! Crowds of connections and the files that a process may open.

use std::io::{Read, Write};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use super::watch::Watch;
use super::wire::{connect, head, only, replies, request};
use crate::daemon::Daemon;

/// Lets this process open as many files as it may: it is the other end of every connection.
pub fn raise_own_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
}

#[test]
fn connections_leave_the_store_the_files_that_it_needs() {
    raise_own_limit();
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    // Hard limit and soft one: the daemon cannot help itself.
    let daemon = Daemon::after(&home, "ulimit -n 256");
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let mut working = connect(&daemon);
    working.write_all(&request(&daemon, &alice, "turn", b"{}")).unwrap();
    assert!(working.read(&mut [0; 4096]).unwrap() > 0);
    let head = head(&daemon, &alice, "turn", "Content-Length: 2\r\nConnection: close\r\n");
    let mut crowd: Vec<_> = (0..400)
        .map(|_| {
            let mut stream = connect(&daemon);
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(b"{").unwrap();
            stream
        })
        .collect();
    // A text this long is a file of its own.
    let body = json!({"text": "x".repeat(50_000)}).to_string();
    let last = super::wire::last_request(&daemon, &alice, "memory_create", body.as_bytes());
    working.write_all(&last).unwrap();
    let reply = only(replies(&mut working));
    assert_eq!(reply.status, 200, "{:#}", reply.body);
    // Those beyond what is served at once waited, and get their answer as others end.
    for stream in &mut crowd {
        stream.write_all(b"}").unwrap();
    }
    for stream in &mut crowd {
        assert_eq!(only(replies(stream)).status, 200);
    }
    drop(crowd);
    watch.assert_well("few files");
}
