//! Connections: slow, half closed, given up, lying about lengths, not HTTP at all, and very many.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::json;

use super::watch::Watch;
use super::wire::{connect, head, last_request, only, replies, request, send, send_and_end};
use super::{assert_refused, assert_wrong, said};
use crate::daemon::{Daemon, Reply};

const WHOLE: &str = "a whole body";

#[test]
fn a_client_that_sends_byte_by_byte_or_ends_its_half_is_answered() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let create = |key: &str| format!(r#"{{"text": "slow", "idempotency_key": "{key}"}}"#);
    let slow = last_request(&daemon, &alice, "memory_create", create("slow").as_bytes());
    let reply = only(send(&daemon, slow.chunks(1)));
    assert_eq!((reply.status, &reply.body["receipt"]["key"]), (200, &json!("slow")));
    let half = request(&daemon, &alice, "memory_create", create("half").as_bytes());
    let reply = only(send_and_end(&daemon, [half]));
    assert_eq!((reply.status, &reply.body["receipt"]["key"]), (200, &json!("half")));
    // In chunks of one byte each, with an extension and a trailer.
    let head = head(&daemon, &alice, "memory_create", "Transfer-Encoding: chunked\r\nConnection: close\r\n");
    let text = create("chunks");
    let chunks = text.bytes().map(|byte| [b"1;x=y\r\n", &[byte][..], b"\r\n"].concat());
    let parts = std::iter::once(head.into_bytes()).chain(chunks).chain([b"0\r\nX-After: all\r\n\r\n".to_vec()]);
    let reply = only(send(&daemon, parts));
    assert_eq!((reply.status, &reply.body["receipt"]["key"]), (200, &json!("chunks")));
    watch.assert_well("slow and half closed");
    assert_eq!(daemon.walk(&alice, "memory_list", json!({}), "memories").len(), 3);
}

#[test]
fn clients_that_vanish_leave_nothing_behind_or_a_whole_action() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let whole = request(&daemon, &alice, "memory_create", br#"{"text": "gone"}"#);
    // At every byte but the last, on a connection of its own.
    for cut in 0..whole.len() {
        connect(&daemon).write_all(&whole[..cut]).unwrap();
    }
    watch.assert_unchanged("gone before the end");
    // Of those who vanish after the last byte, each action is done once or not at all, and its key tells.
    let body = |n: usize| json!({"text": "gone", "idempotency_key": format!("k{n}")});
    for n in 0..100 {
        let call = request(&daemon, &alice, "memory_create", body(n).to_string().as_bytes());
        connect(&daemon).write_all(&call).unwrap();
    }
    for n in 0..100 {
        daemon.ok(&alice, "memory_create", body(n));
    }
    assert_eq!(daemon.walk(&alice, "memory_list", json!({}), "memories").len(), 100);
    watch.assert_well("gone after the end");
}

#[test]
fn pipelined_calls_are_answered_in_order_and_done_once_each() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let call = |n: usize| json!({"text": format!("{n}"), "idempotency_key": format!("k{n}")}).to_string().into_bytes();
    let mut all: Vec<u8> = (0..60).flat_map(|n| request(&daemon, &alice, "memory_create", &call(n))).collect();
    // What is wrong with one is no matter to the next.
    all.extend(request(&daemon, &alice, "memory_create", b"{"));
    all.extend(last_request(&daemon, &alice, "memory_create", &call(60)));
    all.extend(request(&daemon, &alice, "memory_create", &call(61)));
    let replies = send(&daemon, [all]);
    assert_eq!(replies.len(), 62, "after the last one nothing is read");
    for (n, reply) in replies.iter().enumerate().filter(|(n, _)| *n != 60) {
        assert_eq!(reply.body["receipt"]["key"], format!("k{}", n.min(60)), "{:#}", reply.body);
    }
    assert_eq!(replies[60].code(), "invalid_argument");
    assert_eq!(daemon.walk(&alice, "memory_list", json!({}), "memories").len(), 61);
    watch.assert_well("pipelined");
}

#[test]
fn a_client_that_asks_first_whether_to_send_is_told() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let asks = |token: &str, length: u64| {
        let more = format!("Content-Length: {length}\r\nExpect: 100-continue\r\nConnection: close\r\n");
        let mut stream = connect(&daemon);
        stream.write_all(head(&daemon, token, "turn", &more).as_bytes()).unwrap();
        stream
    };
    let mut told = asks(&alice, 2);
    let mut interim = [0; 25];
    told.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    told.write_all(b"{}").unwrap();
    assert_eq!(only(replies(&mut told)).status, 200);
    // Without a token, and for a body that is not even read to its end, the answer comes at once.
    let reply = only(replies(&mut asks("kwn_wrong", 2)));
    assert_refused(&reply, 401, "unauthenticated", "stop", &json!({}), "asked without a token");
    let reply = only(replies(&mut asks(&alice, 300 << 20)));
    assert_eq!((reply.status, reply.code()), (400, "content_too_large"));
    watch.assert_unchanged("asked first");
}

#[test]
fn bodies_whose_length_is_a_lie_are_refused_and_leave_no_trace() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let body = r#"{"text": "x"}"#;
    let chunked = |chunks: &str| {
        let head = head(&daemon, &alice, "memory_create", "Transfer-Encoding: chunked\r\n");
        only(send_and_end(&daemon, [format!("{head}{chunks}")]))
    };
    for chunks in [
        format!("zz\r\n{body}\r\n0\r\n\r\n"),
        format!("-d\r\n{body}\r\n0\r\n\r\n"),
        format!("0xd\r\n{body}\r\n0\r\n\r\n"),
        format!("\r\n{body}\r\n0\r\n\r\n"),
        format!("d\n{body}\n0\n\n"),
        format!("c\r\n{body}\r\n0\r\n\r\n"),
        format!("e\r\n{body}\r\n0\r\n\r\n"),
        format!("ffffffffffffffff\r\n{body}\r\n0\r\n\r\n"),
        format!("1ffffffffffffffff\r\n{body}\r\n0\r\n\r\n"),
        format!("d\r\n{body}\r\n"),
        format!("d\r\n{body}"),
        format!("d;{}\r\n{body}\r\n0\r\n\r\n", "x".repeat(1 << 20)),
        format!("d\r\n{body}\r\n0\r\n{}\r\n", "X: y\r\n".repeat(100_000)),
    ] {
        let shown = &chunks[..chunks.len().min(60)];
        let reply = chunked(&chunks);
        assert_wrong(&reply, "body", WHOLE, shown);
        assert!(reply.head.contains("connection: close"), "{shown}: {}", reply.head);
    }
    // Longer than what comes: it broke off. Shorter: what is left is no request.
    let call = |length: &str| {
        format!("{}{body}", head(&daemon, &alice, "memory_create", &format!("Content-Length: {length}\r\n")))
    };
    assert_wrong(&only(send_and_end(&daemon, [call("14")])), "body", WHOLE, "one byte more");
    assert_wrong(&only(send_and_end(&daemon, [call("1000000")])), "body", WHOLE, "many bytes more");
    let short = send_and_end(&daemon, [call("12")]);
    assert_wrong(&short[0], "body", super::BODY, "one byte less");
    assert_eq!((short.len(), short[1].status, &short[1].body), (2, 400, &json!("")));
    // No length at all, or two.
    for length in ["", "-1", "+13", "13, 14", "0x0d", "99999999999999999999999", "13\r\nContent-Length: 14"] {
        let reply = only(send_and_end(&daemon, [call(length)]));
        assert_eq!((reply.status, &reply.body), (400, &json!("")), "{length:?}");
    }
    watch.assert_unchanged("lengths that are lies");
}

/// One request of which the head is all there is to say.
fn plain(daemon: &Daemon, bytes: &[u8]) -> Vec<Reply> {
    send_and_end(daemon, [bytes])
}

#[test]
fn what_is_no_http_1_request_is_answered_shortly_and_closed() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let (watch, address) = (Watch::over(&daemon), daemon.address.clone());
    let call = |line: &str, more: &str| {
        format!("{line}\r\nHost: {address}\r\nAuthorization: Bearer {alice}\r\nContent-Length: 2\r\n{more}\r\n{{}}")
            .into_bytes()
    };
    let many = (0..2000).map(|n| format!("X{n}: y\r\n")).collect::<String>();
    for (what, bytes, status) in [
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), 400),
        ("nonsense", b"hello\r\n\r\n".to_vec(), 400),
        ("a later version", call("POST /v1/turn HTTP/3.0", ""), 400),
        ("a giant header", call("POST /v1/turn HTTP/1.1", &format!("X: {}\r\n", "y".repeat(1 << 20))), 431),
        ("many headers", call("POST /v1/turn HTTP/1.1", &many), 431),
        ("a giant path", call(&format!("POST /v1/{} HTTP/1.1", "t".repeat(100_000)), ""), 414),
        ("another encoding", call("POST /v1/turn HTTP/1.1", "Transfer-Encoding: gzip\r\n"), 400),
        ("a name with a space", call("POST /v1/turn HTTP/1.1", "X y: z\r\n"), 400),
        ("a header without a name", call("POST /v1/turn HTTP/1.1", ": z\r\n"), 400),
    ] {
        let reply = only(send(&daemon, [bytes]));
        assert_eq!((reply.status, &reply.body), (status, &json!("")), "{what}: {}", reply.head);
        assert!(reply.head.contains("connection: close"), "{what}: {}", reply.head);
    }
    // HTTP/2 is not spoken, and a client that begins with it gets no answer in HTTP/1.
    assert!(plain(&daemon, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").is_empty());
    // HTTP/1.0 is; the Host header is asked of it all the same.
    let old = only(plain(&daemon, &call("POST /v1/turn HTTP/1.0", "")));
    assert_eq!((old.status, old.head.starts_with("HTTP/1.0 200")), (200, true), "{}", old.head);
    let nameless = format!("POST /v1/turn HTTP/1.0\r\nAuthorization: Bearer {alice}\r\nContent-Length: 2\r\n\r\n{{}}");
    let reply = only(plain(&daemon, nameless.as_bytes()));
    assert_refused(&reply, 403, "forbidden_host", "stop", &json!({}), "no Host header");
    // A host of the request line's own counts as much as that of the header.
    let reply = only(plain(&daemon, &call("POST http://evil.example/v1/turn HTTP/1.1", "")));
    assert_refused(&reply, 403, "forbidden_host", "stop", &json!({}), "another host in the request line");
    assert_eq!(only(plain(&daemon, &call(&format!("POST http://{address}/v1/turn HTTP/1.1"), ""))).status, 200);
    let reply = only(plain(&daemon, &call("POST /v1/turn HTTP/1.1", &format!("Host: {address}\r\n"))));
    assert_refused(&reply, 403, "forbidden_host", "stop", &json!({}), "two Host headers");
    for line in [
        "PUT /v1/turn",
        "OPTIONS /v1/turn",
        "TRACE /v1/turn",
        "POST /v1/turn/",
        "POST /v1/%74urn",
        "POST /v1/../v1/turn",
        "POST //v1/turn",
        "POST *",
    ] {
        let reply = only(plain(&daemon, &call(&format!("{line} HTTP/1.1"), "")));
        assert_refused(&reply, 404, "unknown_operation", "stop", &json!({}), line);
    }
    watch.assert_unchanged("no HTTP");
}

#[test]
fn a_client_that_never_ends_its_head_is_let_go() {
    let daemon = Daemon::fresh();
    let watch = Watch::over(&daemon);
    let mut silent: Vec<TcpStream> = (0..50).map(|_| connect(&daemon)).collect();
    for (n, stream) in silent.iter_mut().enumerate() {
        stream.write_all(&b"POST /v1/turn HTTP/1.1\r\nHost: x\r\n"[..n.min(33)]).unwrap();
    }
    for mut stream in silent {
        // Awaited as long as the daemon waits.
        assert!(stream.read_to_end(&mut Vec::new()).is_ok());
    }
    watch.assert_unchanged("heads without an end");
}

#[test]
fn a_thousand_connections_at_once_hold_up_neither_work_nor_the_command_line() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    super::open_files::raise_own_limit();
    let watch = Watch::over(&daemon);
    let body = |n: usize| json!({"text": "one of many", "idempotency_key": format!("k{n}")}).to_string().into_bytes();
    // Each has a call under way that lacks its last byte.
    let mut crowd: Vec<(TcpStream, u8)> = (0..1000)
        .map(|n| {
            let mut call = last_request(&daemon, &alice, "memory_create", &body(n));
            let last = call.pop().unwrap();
            let mut stream = connect(&daemon);
            stream.write_all(&call).unwrap();
            (stream, last)
        })
        .collect();
    for n in 0..50 {
        daemon.ok(&alice, "memory_create", json!({"text": "meanwhile", "idempotency_key": format!("m{n}")}));
    }
    assert_eq!(said(&daemon, &["--agent", "alice", "memory", "create", "--text", "meanwhile"]).0, 0);
    // More than are served at once over TCP: the socket has connections of its own, and those who wait get their turn.
    let mut waiting: Vec<TcpStream> = (0..100)
        .map(|n| {
            let mut stream = connect(&daemon);
            stream.write_all(&last_request(&daemon, &alice, "memory_create", &body(1000 + n))).unwrap();
            stream
        })
        .collect();
    assert_eq!(said(&daemon, &["--agent", "alice", "memory", "create", "--text", "meanwhile"]).0, 0);
    // Some give up, the others end their calls.
    for (stream, _) in crowd.drain(..200) {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    for (stream, last) in &mut crowd {
        stream.write_all(&[*last]).unwrap();
    }
    for stream in crowd.iter_mut().map(|(stream, _)| stream).chain(&mut waiting) {
        let reply = only(replies(stream));
        assert_eq!(reply.status, 200, "{:#}", reply.body);
    }
    assert_eq!(daemon.walk(&alice, "memory_list", json!({}), "memories").len(), 50 + 2 + 800 + 100);
    watch.assert_well("a thousand");
}
