//! Texts far over every limit: read to their end up to 256 MiB, dropped, and answered.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::json;

use super::watch::Watch;
use super::wire::{head, last_request, only, send};
use super::{assert_refused, assert_too_large, said};
use crate::daemon::{Daemon, KWOON};

const MEBI: usize = 1 << 20;
const BODY_MAX: u64 = 8 << 20;

/// A body of this many MiB in parts of one, between the quotes of a text.
fn long_text(mebibytes: usize) -> impl Iterator<Item = Vec<u8>> {
    let start = br#"{"text": ""#.to_vec();
    let end = vec![b'x'; MEBI - start.len() - 2].into_iter().chain(*br#""}"#).collect();
    let middle = std::iter::repeat_n(vec![b'x'; MEBI], mebibytes - 1);
    std::iter::once(start).chain(middle).chain(std::iter::once(end))
}

fn chunks(parts: impl Iterator<Item = Vec<u8>>) -> impl Iterator<Item = Vec<u8>> {
    let chunk = |part: Vec<u8>| [format!("{:x}\r\n", part.len()).as_bytes(), &part, b"\r\n"].concat();
    parts.map(chunk).chain(std::iter::once(b"0\r\n\r\n".to_vec()))
}

#[test]
fn a_text_of_many_megabytes_is_read_to_its_end_and_answered() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let again = || std::iter::once(last_request(&daemon, &alice, "turn", b"{}"));
    for mebibytes in [9, 80, 256] {
        let announced = head(&daemon, &alice, "memory_create", &format!("Content-Length: {}\r\n", mebibytes * MEBI));
        let announced = std::iter::once(announced.into_bytes()).chain(long_text(mebibytes)).chain(again());
        let chunked = head(&daemon, &alice, "memory_create", "Transfer-Encoding: chunked\r\n");
        let chunked = std::iter::once(chunked.into_bytes()).chain(chunks(long_text(mebibytes))).chain(again());
        for (how, parts) in
            [("announced", Box::new(announced) as Box<dyn Iterator<Item = _>>), ("chunked", Box::new(chunked))]
        {
            let context = format!("{mebibytes} MiB, {how}");
            let replies = send(&daemon, parts);
            assert_eq!(replies.len(), 2, "{context}: the connection serves on");
            assert_too_large(&replies[0], "body", BODY_MAX, &context);
            assert_eq!(replies[1].status, 200, "{context}");
            watch.assert_unchanged(&context);
        }
    }
}

#[test]
fn beyond_256_mebibytes_the_connection_is_given_up_after_the_answer() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let announced = head(&daemon, &alice, "memory_create", &format!("Content-Length: {}\r\n", 300 * MEBI));
    let chunked = head(&daemon, &alice, "memory_create", "Transfer-Encoding: chunked\r\n");
    let announced = only(send(&daemon, std::iter::once(announced.into_bytes()).chain(long_text(300))));
    let chunked = only(send(&daemon, std::iter::once(chunked.into_bytes()).chain(chunks(long_text(300)))));
    for (how, reply) in [("announced", announced), ("chunked", chunked)] {
        assert_too_large(&reply, "body", BODY_MAX, how);
        assert!(reply.head.contains("connection: close"), "{how}: {}", reply.head);
        watch.assert_unchanged(how);
    }
}

#[test]
fn without_a_token_no_body_is_waited_for() {
    let daemon = Daemon::fresh();
    let watch = Watch::over(&daemon);
    let announced = head(&daemon, "kwn_wrong", "memory_create", &format!("Content-Length: {}\r\n", 80 * MEBI));
    // Of the body nothing was sent yet.
    let reply = only(send(&daemon, [announced]));
    assert_refused(&reply, 401, "unauthenticated", "stop", &json!({}), "no body");
    watch.assert_unchanged("no body");
}

#[test]
fn many_long_texts_at_once_take_no_more_memory_than_whole_bodies_do() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let head = head(&daemon, &alice, "memory_create", &format!("Content-Length: {}\r\n", 80 * MEBI));
                let last = last_request(&daemon, &alice, "turn", b"{}");
                let parts = std::iter::once(head.into_bytes()).chain(long_text(80)).chain(std::iter::once(last));
                assert_too_large(&send(&daemon, parts)[0], "body", BODY_MAX, "one of four");
            });
        }
    });
    watch.assert_unchanged("four at once");
}

#[test]
fn the_command_line_takes_long_texts_from_files_and_input_and_says_what_became_of_them() {
    let daemon = Daemon::fresh();
    daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let mut file = File::create(path("80")).unwrap();
    for _ in 0..80 {
        file.write_all(&vec![b'x'; MEBI]).unwrap();
    }
    // A hole takes no room, and is refused by its length.
    File::create(path("300")).unwrap().set_len(300 << 20).unwrap();
    fs::write(path("latin"), b"caf\xe9").unwrap();

    let create = |text: &str| said(&daemon, &["--agent", "alice", "memory", "create", "--text", text]);
    let (code, text) = create(&format!("@{}", path("80")));
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("content_too_large") && text.contains("body") && text.contains("8388608"), "{text}");
    for (name, says) in [("300", "is larger than 256 MiB"), ("latin", "is not UTF-8 text"), ("none", "cannot read")] {
        let (code, text) = create(&format!("@{}", path(name)));
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(says) && text.contains(name), "{text}");
    }
    for (name, code, says) in [("80", 3, "content_too_large"), ("300", 2, "is larger than 256 MiB")] {
        let output = Command::new(KWOON)
            .args(["--home", daemon.home.to_str().unwrap(), "--agent", "alice", "memory", "create", "--text", "@-"])
            .stdin(Stdio::from(File::open(path(name)).unwrap()))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(says), "{text}");
    }
    watch.assert_unchanged("texts of the command line");

    // With a token that is none, the answer comes before the text was sent.
    let token = daemon.home.join("tokens/mallory");
    fs::write(&token, format!("kwn_{}\n", "a".repeat(52))).unwrap();
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let (code, text) =
        said(&daemon, &["--agent", "mallory", "memory", "create", "--text", &format!("@{}", path("80"))]);
    assert_eq!(code, 6, "{text}");
    assert!(text.contains("unauthenticated"), "{text}");
    watch.assert_unchanged("a token that is none");
}

#[test]
fn the_same_hard_input_over_and_over_leaves_nothing_behind() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let long = format!(r#"{{"text": "{}"}}"#, "x".repeat(9 * MEBI));
    let whole = format!(r#"{{"text": "{}"}}"#, "x".repeat(7 * MEBI));
    let values = format!(r#"{{"text": [{}0]}}"#, "0,".repeat(4_000_000));
    let deep = format!(r#"{{"text": {}"#, "[".repeat(1_000_000));
    let round = || {
        for (body, code) in [
            (&long, "content_too_large"),
            (&whole, "content_too_large"),
            (&values, "invalid_argument"),
            (&deep, "invalid_argument"),
        ] {
            let parts = [last_request(&daemon, &alice, "memory_create", body.as_bytes())];
            assert_eq!(only(send(&daemon, parts)).code(), code);
        }
        let cut = last_request(&daemon, &alice, "memory_create", whole.as_bytes());
        assert_eq!(only(super::wire::send_and_end(&daemon, [&cut[..5 * MEBI]])).code(), "invalid_argument");
    };
    // What the first rounds make for good is made, and the allocator keeps some of what was freed; the bodies of the others,
    // 300 MiB, would be seen if they were kept.
    (0..3).for_each(|_| round());
    let before = watch.memory_kib();
    (0..10).for_each(|_| round());
    if let (Some(before), Some(after)) = (before, watch.memory_kib()) {
        assert!(after < before + (80 << 10), "from {before} KiB to {after}");
    }
    watch.assert_unchanged("over and over");
}
