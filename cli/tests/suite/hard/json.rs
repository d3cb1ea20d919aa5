//! Bodies that are no JSON, say two things at once, or are far larger once they are read.

use serde_json::{Value, json};

use super::watch::Watch;
use super::{BODY, assert_wrong, said};
use crate::daemon::Daemon;

fn nested(open: &str, close: &str, depth: usize) -> String {
    format!(r#"{{"text": {}1{}}}"#, open.repeat(depth), close.repeat(depth))
}

#[test]
fn json_that_is_none_or_says_two_things_is_refused_and_leaves_no_trace() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let head = format!("Authorization: Bearer {alice}\r\n");
    let watch = Watch::over(&daemon);
    let mut bodies: Vec<(String, Vec<u8>)> = Vec::new();
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), ("[{\"\":", "}]")] {
        for depth in [200, 10_000, 1_000_000] {
            bodies.push((format!("{depth} times {open}"), nested(open, close, depth).into_bytes()));
            bodies.push((format!("{depth} times {open}, unclosed"), open.repeat(depth).into_bytes()));
        }
    }
    for (what, body) in [
        ("a key twice", r#"{"text": "a", "text": "b"}"#),
        ("a key twice, with the same value", r#"{"text": "a", "text": "a"}"#),
        ("a key twice, once escaped", r#"{"text": "a", "t\u0065xt": "b"}"#),
        ("a key twice, once null", r#"{"text": "a", "text": null}"#),
        ("an unknown key twice", r#"{"x": 1, "text": "a", "x": 2}"#),
        ("a nested key twice", r#"{"text": "a", "tags": [{"k": 1, "\u006b": 2}]}"#),
        ("the empty key twice", r#"{"text": {"": 1, "": 2}}"#),
        ("a half pair, high", r#"{"text": "\ud800"}"#),
        ("a half pair, low", r#"{"text": "\udc00"}"#),
        ("a pair the wrong way round", r#"{"text": "\udc00\ud800"}"#),
        ("a half pair before a letter", r#"{"text": "\ud83dx"}"#),
        ("a half pair as a key", r#"{"\ud800": "a"}"#),
        ("an escape that breaks off", r#"{"text": "\u00"}"#),
        ("an unknown escape", r#"{"text": "\x41"}"#),
        ("a plain control character", "{\"text\": \"a\nb\"}"),
        ("a plain NUL", "{\"text\": \"a\0b\"}"),
        ("a byte order mark", "\u{feff}{\"text\": \"a\"}"),
        ("a trailing comma", r#"{"text": "a",}"#),
        ("a comment", r#"{"text": "a" /* b */}"#),
        ("single quotes", "{'text': 'a'}"),
        ("a bare word", "{text: a}"),
        ("NaN", r#"{"text": NaN}"#),
        ("Infinity", r#"{"text": -Infinity}"#),
        ("two values", r#"{"text": "a"}{"text": "b"}"#),
        ("a value and more", r#"{"text": "a"} x"#),
        ("a fraction", r#"{"text": 1.5}"#),
        ("a fraction that is whole", r#"{"text": 1.0}"#),
        ("minus nothing", r#"{"text": -0}"#),
        ("an exponent", r#"{"text": 1e2}"#),
        ("a huge exponent", r#"{"text": 1e999999999}"#),
        ("a tiny exponent", r#"{"text": 1e-999999999}"#),
        ("above 64 bits", r#"{"text": 18446744073709551616}"#),
        ("below 64 bits", r#"{"text": -9223372036854775809}"#),
        ("a leading zero", r#"{"text": 01}"#),
        ("a plus", r#"{"text": +1}"#),
        ("hexadecimal", r#"{"text": 0x10}"#),
        ("a form", "text=a"),
    ] {
        bodies.push((what.to_owned(), body.as_bytes().to_vec()));
    }
    for (what, body) in [
        ("bytes that are no UTF-8", &b"{\"text\": \"\xff\"}"[..]),
        ("an overlong form", b"{\"text\": \"\xc0\xaf\"}"),
        ("a surrogate in UTF-8", b"{\"text\": \"\xed\xa0\x80\"}"),
        ("beyond the last character", b"{\"text\": \"\xf4\x90\x80\x80\"}"),
        ("UTF-8 that breaks off", b"{\"text\": \"\xf0\x9f\x98\"}"),
        ("UTF-16", b"{\0\"\0t\0\"\0:\0\"\0a\0\"\0}\0"),
        ("a compressed body", b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xabV*I\xad(Q\xb2RJT\xaa\x05\0"),
    ] {
        bodies.push((what.to_owned(), body.to_vec()));
    }
    for (what, body) in &bodies {
        let reply = daemon.request("POST", "/v1/memory_create", &head, body);
        assert_wrong(&reply, "body", BODY, what);
        // A read is as strict as an action.
        let reply = daemon.request("POST", "/v1/memory_list", &head, body);
        assert_wrong(&reply, "body", BODY, what);
    }
    watch.assert_unchanged("no JSON");
}

#[test]
fn what_is_well_formed_is_read_to_the_last_level_and_bit() {
    let daemon = Daemon::fresh();
    let (me, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let thread = daemon.ok(&alice, "thread_create", json!({}))["result"]["thread"].clone();
    let head = format!("Authorization: Bearer {alice}\r\n");
    // 100 levels in all: the body, the assignment and 98 of a structure, which comes back as it was.
    let schema = format!("{}1{}", "[".repeat(98), "]".repeat(98));
    let body = format!(
        r#"{{"thread": {thread}, "text": "x", "ask": [], "assign": {{"to": "{me}", "criteria": "c", "output_schema": {schema}}}}}"#
    );
    let made = daemon.request("POST", "/v1/entry_post", &head, body.as_bytes());
    assert_eq!(made.code(), "invalid_argument", "a structure is an object: {:#}", made.body);
    let schema = format!(r#"{{"a":{}{}{}}}"#, "[".repeat(97), u64::MAX, "]".repeat(97));
    let body = format!(
        r#"{{"thread": {thread}, "text": "x", "ask": [], "assign": {{"to": "{me}", "criteria": "c", "output_schema": {schema}}}}}"#
    );
    let made = daemon.request("POST", "/v1/entry_post", &head, body.as_bytes());
    assert_eq!(made.status, 200, "{:#}", made.body);
    let read = daemon.ok(&alice, "assignment_get", json!({"assignment": made.body["result"]["assignment"]}));
    let shown = content(&read, "output_schema");
    assert_eq!(shown, schema);

    // Numbers of 64 bits are numbers; they only are not what is asked for.
    let wrong = [("limit", "a number from 1 to 50"), ("wait_ms", "a number of milliseconds from 0 to 60000")];
    for (field, expected) in wrong {
        for number in ["18446744073709551615", "-9223372036854775808", "9223372036854775808", "-1", "60001"] {
            let reply = daemon.request("POST", "/v1/turn", &head, format!(r#"{{"{field}": {number}}}"#).as_bytes());
            assert_wrong(&reply, field, expected, number);
        }
    }
    for number in [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 53] {
        let reply = daemon.call(&alice, "entry_get", &json!({"thread": thread, "entry": number}));
        assert_eq!((reply.status, reply.code()), (404, "not_found"), "{number}");
        let window = json!({"thread": thread, "entry": 1, "offset": number});
        let read = daemon.ok(&alice, "entry_get", window);
        assert_eq!(content(&read, "text"), "", "an offset beyond the end");
    }
    watch.assert_well("well formed");
}

/// The first text of a field.
fn content(answer: &Value, field: &str) -> String {
    let all = answer["content"].as_object().unwrap().values();
    let found = all.into_iter().find(|content| content["field"] == field).unwrap_or_else(|| panic!("{answer:#}"));
    found["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_body_of_many_small_values_takes_no_more_memory_than_a_long_text() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let head = format!("Authorization: Bearer {alice}\r\n");
    let watch = Watch::over(&daemon);
    let members: Vec<String> = (0..600_000).map(|n| format!(r#""{n:x}":0"#)).collect();
    for (what, values) in [
        ("numbers", format!("[{}0]", "0,".repeat(4_000_000))),
        ("lists", format!("[{}0]", "[],".repeat(2_700_000))),
        ("objects", format!("[{}0]", "{},".repeat(2_700_000))),
        ("members", format!("{{{}}}", members.join(","))),
        ("one too many", format!("[{}0]", "0,".repeat(65_534))),
    ] {
        for operation in ["memory_create", "memory_list"] {
            let body = format!(r#"{{"text": {values}}}"#);
            let reply = daemon.request("POST", &format!("/v1/{operation}"), &head, body.as_bytes());
            assert_wrong(&reply, "body", BODY, what);
        }
    }
    // As many as there may be are looked at.
    let body = format!(r#"{{"text": [{}0]}}"#, "0,".repeat(65_533));
    let reply = daemon.request("POST", "/v1/memory_create", &head, body.as_bytes());
    assert_wrong(&reply, "text", "a text that is not empty", "65,536 values");
    watch.assert_unchanged("many values");
}

#[test]
fn the_command_line_reads_json_as_strictly_as_the_daemon() {
    let daemon = Daemon::fresh();
    let (me, _) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("deep");
    std::fs::write(&deep, nested("[", "]", 1_000_000)).unwrap();
    let thread = format!("thr_{}", "a".repeat(26));
    let member = |more: &str| format!(r#"{{"to": "{me}", "criteria": "c", {more}}}"#);
    let values = [
        member(r#""criteria": "d""#),
        member(r#""crit\u0065ria": "c""#),
        member(r#""output_schema": {"a": 1, "a": 2}"#),
        member(r#""output_schema": {"a": 1.5}"#),
        member(r#""output_schema": {"a": 18446744073709551616}"#),
        member(r#""deliver_within": "\ud800""#),
        format!("@{}", deep.display()),
        "[".repeat(100_000),
        "{".to_owned(),
    ];
    for value in &values {
        let (code, text) =
            said(&daemon, &["--agent", "alice", "entry", "post", &thread, "--text", "x", "--assign", value]);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("--assign takes JSON"), "{text}");
    }
    watch.assert_unchanged("JSON of the command line");
}
