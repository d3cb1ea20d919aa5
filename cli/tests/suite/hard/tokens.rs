//! Tokens that are none: in headers, and in files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::watch::Watch;
use super::wire::{only, send};
use super::{assert_refused, said};
use crate::daemon::{Daemon, Reply, cli};

fn turn_with(daemon: &Daemon, headers: &[u8]) -> Reply {
    let head =
        format!("POST /v1/turn HTTP/1.1\r\nHost: {}\r\nContent-Length: 2\r\nConnection: close\r\n", daemon.address);
    only(send(daemon, [[head.as_bytes(), headers, b"\r\n{}"].concat()]))
}

#[test]
fn a_header_that_is_not_one_whole_token_is_no_token() {
    let daemon = Daemon::fresh();
    let ((_, alice), (_, bob)) = (daemon.agent("alice"), daemon.agent("bob"));
    let watch = Watch::over(&daemon);
    let (front, back) = alice.split_at(20);
    let long = "x".repeat(100_000);
    let wrong: Vec<Vec<u8>> = [
        "Authorization:\r\n".to_owned(),
        "Authorization: \r\n".to_owned(),
        "Authorization: Bearer\r\n".to_owned(),
        "Authorization: Bearer  \t \r\n".to_owned(),
        format!("Authorization: {alice}\r\n"),
        format!("Authorization: Bearer {alice}, Bearer {alice}\r\n"),
        format!("Authorization: Bearer {alice} {alice}\r\n"),
        format!("Authorization: Bearer \"{alice}\"\r\n"),
        format!("Authorization: Bearer {front} {back}\r\n"),
        format!("Authorization: Bearer {front}%0d%0a{back}\r\n"),
        format!("Authorization: Bearer {}\r\n", alice.to_uppercase()),
        format!("Authorization: Bearer {long}\r\n"),
        "Authorization: Bearer \u{ff4b}\r\n".to_owned(),
        // Two headers are none, be they of two agents or of one.
        format!("Authorization: Bearer {alice}\r\nAuthorization: Bearer {bob}\r\n"),
        format!("Authorization: Bearer {alice}\r\nAuthorization: Bearer {alice}\r\n"),
        format!("Authorization: Bearer {alice}\r\nauthorization: Basic eDp5\r\n"),
        format!("Authorization: Basic eDp5\r\nAUTHORIZATION: Bearer {alice}\r\n"),
        format!("Proxy-Authorization: Bearer {alice}\r\nCookie: token={alice}\r\n"),
    ]
    .map(String::into_bytes)
    .into();
    let mut answers: Vec<Value> = Vec::new();
    for headers in wrong.iter().chain([&b"Authorization: Bearer \xff\xfe\r\n".to_vec()]) {
        let context = String::from_utf8_lossy(&headers[..headers.len().min(120)]);
        let reply = turn_with(&daemon, headers);
        assert_refused(&reply, 401, "unauthenticated", "stop", &json!({}), &context);
        answers.push(reply.body);
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
    // With a line break or a NUL inside, it is no HTTP, and nothing of it is read.
    for inside in ["\r\n ", "\r\n\t", "\n", "\r", "\0", "\r\n"] {
        let reply = turn_with(&daemon, format!("Authorization: Bearer {front}{inside}{back}\r\n").as_bytes());
        assert_eq!((reply.status, &reply.body), (400, &json!("")), "{inside:?}");
        assert!(reply.head.contains("connection: close"), "{}", reply.head);
    }
    // The name of the scheme is spelled in any case, and space around a value is none of it (RFC 9110, 5.5 and 11.1).
    for scheme in ["bearer", "BEARER"] {
        assert_eq!(turn_with(&daemon, format!("Authorization:  {scheme} {alice}  \r\n").as_bytes()).status, 200);
    }
    watch.assert_unchanged("tokens in headers");
}

fn write_token(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_file_that_is_not_one_token_is_used_by_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let daemon = Daemon::at(&home);
    let (_, alice) = daemon.agent("alice");
    let file = home.join("tokens/alice");
    let (front, back) = alice.split_at(20);
    let watch = Watch::over(&daemon);
    let wrong: [&[u8]; 9] = [
        b"",
        b"\n",
        b" \r\n\r\n",
        &[front.as_bytes(), b"\n", back.as_bytes(), b"\n"].concat(),
        &[front.as_bytes(), b"\r\n", back.as_bytes()].concat(),
        &[alice.as_bytes(), b"\n", alice.as_bytes(), b"\n"].concat(),
        &[alice.as_bytes(), b"\0\n"].concat(),
        &[b"\xef\xbb\xbf", alice.as_bytes()].concat(),
        b"\xff\xfe\n",
    ];
    for bytes in wrong {
        write_token(&file, bytes);
        let (code, text) = said(&daemon, &["--agent", "alice", "turn"]);
        assert_eq!(code, 6, "{bytes:?}: {text}");
        assert!(text.contains("tokens/alice holds no token"), "{text}");
        assert!(!text.contains(front), "what it holds is not shown: {text}");
    }
    // One whole token is used, however its line ends.
    for end in ["", "\n", "\r\n", "\n\n", " \t\n"] {
        write_token(&file, format!("{alice}{end}").as_bytes());
        assert_eq!(said(&daemon, &["--agent", "alice", "turn"]).0, 0, "{end:?}");
    }
    watch.assert_unchanged("tokens in files");
    // A daemon does not start over such a file, and says what to do about it; nothing makes it guess.
    daemon.stop();
    for bytes in wrong {
        write_token(&file, bytes);
        let output = cli(&home, &["serve"]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{bytes:?}: {message}");
        assert!(message.contains("tokens/alice") && message.contains("delete it"), "{message}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "it is left as it is");
    }
    fs::remove_file(&file).unwrap();
    let daemon = Daemon::at(&home);
    assert_ne!(daemon.token("alice"), alice, "a new token is made");
    assert_eq!(daemon.call(&alice, "turn", &json!({})).code(), "unauthenticated");
    assert_eq!(said(&daemon, &["--agent", "alice", "turn"]).0, 0);
}
