//! Texts of every kind: they come back byte for byte, whole or in pieces, and nothing that looks alike is taken for the same.

use std::fs;

use serde_json::{Value, json};

use super::watch::Watch;
use super::{assert_wrong, said};
use crate::daemon::Daemon;

/// Characters that end lines, hide, turn the direction of writing, combine, or are none.
const ODD: [(&str, &str); 12] = [
    ("NUL", "a\0b"),
    ("controls", "\u{1}\u{7}\u{8}\t\u{b}\u{c}\r\n\u{1b}[31m\u{7f}\u{80}\u{85}\u{9b}"),
    (
        "direction",
        "\u{202a}\u{202b}\u{202d}\u{202e}evil\u{202c}\u{2066}\u{2067}\u{2068}\u{2069}\u{200e}\u{200f}\u{61c}",
    ),
    ("zero width", "a\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\u{ad}\u{180e}b"),
    ("line separators", "a\u{2028}b\u{2029}c"),
    ("a family", "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{200d}\u{1f466}"),
    ("flags", "\u{1f1e9}\u{1f1ea}\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}"),
    ("tones and variants", "\u{1f44d}\u{1f3ff}\u{2764}\u{fe0f}1\u{fe0f}\u{20e3}"),
    ("combining", "e\u{301}o\u{308}\u{323}Z\u{351}\u{36b}\u{343}a\u{326}"),
    ("composed and not", "\u{e9}e\u{301}\u{212b}\u{c5}A\u{30a}\u{fb01}\u{1100}\u{1161}\u{ac00}"),
    ("no characters", "\u{fdd0}\u{fffe}\u{ffff}\u{1fffe}\u{10ffff}\u{e000}\u{fffd}"),
    ("JSON of its own", "\"}]}, \\\"\\ud800\\u0000\\n{\"ok\": false"),
];

fn all_odd() -> String {
    ODD.map(|(_, text)| text).concat()
}

/// The text that a key of the result points to.
fn pointed<'a>(answer: &'a Value, key: &Value) -> &'a Value {
    &answer["content"][key.as_str().unwrap()]
}

#[test]
fn every_text_comes_back_byte_for_byte() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    for (what, text) in ODD.into_iter().chain([("all of them", &*all_odd())]) {
        let made = json!({"text": text, "title": text, "summary": text, "tags": [text, "plain"]});
        let memory = daemon.ok(&alice, "memory_create", made)["result"]["memory"].clone();
        let read = daemon.ok(&alice, "memory_get", json!({"memory": memory}));
        for field in ["text_content", "title_content", "summary_content"] {
            assert_eq!(pointed(&read, &read["result"][field])["text"], text, "{what} in {field}");
        }
        let first = &read["result"]["tags_content"][0];
        assert_eq!(pointed(&read, first)["text"], text, "{what} as a tag");
        // The same through the command line: from a file and into a pipe.
        let file = daemon.home.parent().unwrap().join("text");
        fs::write(&file, text).unwrap();
        let (code, memory) = said(
            &daemon,
            &[
                "--agent",
                "alice",
                "memory",
                "create",
                "--text",
                &format!("@{}", file.display()),
                "--print",
                "result.memory",
            ],
        );
        assert_eq!(code, 0, "{memory}");
        let read = said(&daemon, &["--agent", "alice", "memory", "get", memory.trim(), "--print", "content.c1.text"]);
        assert_eq!(read, (0, format!("{text}\n")), "{what}");
        // As text for a person, nothing that hides or directs reaches the terminal.
        let (_, shown) = said(&daemon, &["--agent", "alice", "memory", "get", memory.trim()]);
        let hostile = |c: char| {
            !matches!(c, '\n' | '\t')
                && (c.is_control()
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'))
        };
        assert!(!shown.contains(hostile), "{what}: {shown:?}");
    }
    watch.assert_well("odd texts");
}

/// Reads a text in pieces of at most this many bytes.
fn pieces(daemon: &Daemon, token: &str, operation: &str, read: &Value, field: &str, max_bytes: usize) -> Vec<String> {
    let (mut pieces, mut offset) = (Vec::new(), 0);
    loop {
        let mut arguments = read.clone();
        arguments["max_bytes"] = json!(max_bytes);
        arguments["offset"] = json!(offset);
        let answer = daemon.ok(token, operation, arguments);
        let mut all = answer["content"].as_object().unwrap().values();
        let content = all.find(|content| content["field"] == field).unwrap();
        let piece = content["text"].as_str().unwrap();
        assert!(!piece.is_empty(), "every piece moves on");
        // Smaller than one character, it is that character.
        assert!(piece.len() <= max_bytes || piece.chars().count() == 1, "{piece:?} for {max_bytes}");
        assert_eq!(content["offset"], offset);
        pieces.push(piece.to_owned());
        if content["truncated"] == false {
            assert!(content.get("next_offset").is_none());
            return pieces;
        }
        offset = content["next_offset"].as_u64().unwrap();
        assert_eq!(offset as usize, pieces.concat().len());
    }
}

#[test]
fn a_text_that_is_cut_anywhere_is_the_same_text_in_pieces() {
    let daemon = Daemon::fresh();
    let (me, alice) = daemon.agent("alice");
    let watch = Watch::over(&daemon);
    let text = ODD[5..10].iter().map(|(_, text)| *text).collect::<String>();
    let thread = daemon.ok(&alice, "thread_create", json!({}))["result"]["thread"].clone();
    let assign = json!({"to": me, "criteria": text});
    let entry = json!({"thread": thread, "text": text, "ask": [], "assign": assign});
    let posted = daemon.ok(&alice, "entry_post", entry)["result"].clone();
    let memory = json!({"memory": posted["memory"]});
    for max_bytes in 1..=text.len() + 1 {
        let pieces = pieces(&daemon, &alice, "memory_get", &memory, "text", max_bytes);
        assert_eq!(pieces.concat(), text, "{max_bytes}");
    }
    let reads = [
        ("entry_get", json!({"thread": thread, "entry": posted["entry"]}), "text"),
        ("assignment_get", json!({"assignment": posted["assignment"]}), "criteria"),
    ];
    for (operation, read, field) in reads {
        for max_bytes in [1, 2, 3, 4, 5, 7, 11, text.len() - 1, text.len()] {
            assert_eq!(pieces(&daemon, &alice, operation, &read, field, max_bytes).concat(), text, "{operation}");
        }
    }
    // An offset inside a character is the end of it, one beyond the text its end.
    for offset in 0..text.len() + 3 {
        let read = daemon.ok(&alice, "memory_get", json!({"memory": posted["memory"], "offset": offset}));
        let content = pointed(&read, &read["result"]["text_content"]);
        let start = text.ceil_char_boundary(offset.min(text.len()));
        assert_eq!((&content["offset"], &content["text"]), (&json!(start), &json!(&text[start..])), "{offset}");
    }
    for max_bytes in [json!(0), json!(262_145), json!(-1)] {
        let reply = daemon.call(&alice, "memory_get", &json!({"memory": posted["memory"], "max_bytes": max_bytes}));
        assert_wrong(&reply, "max_bytes", "a number from 1 to 262144", "out of range");
    }
    watch.assert_well("cut");
}

#[test]
fn names_that_look_alike_are_not_the_same_and_keys_take_no_such_names() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let owner = daemon.token("owner");
    let watch = Watch::over(&daemon);
    const NAME: &str = "1 to 63 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit";
    let long = "a".repeat(64);
    for name in [
        "andr\u{e9}",
        "andre\u{301}",
        "\u{430}lice",
        "\u{ff41}lice",
        "alice\0",
        "alice\n",
        "alice ",
        " alice",
        "Alice",
        "ali\u{200b}ce",
        "\u{202e}ecila",
        "alice\u{2028}",
        "",
        ".",
        "..",
        "../owner",
        "-a",
        "a/b",
        "\u{1d44e}",
        &long,
    ] {
        let reply = daemon.call(&owner, "agent_create", &json!({"name": name}));
        assert_wrong(&reply, "name", NAME, &format!("{name:?}"));
    }
    for taken in ["alice", "owner"] {
        let reply = daemon.call(&owner, "agent_create", &json!({"name": taken}));
        assert_eq!((reply.status, reply.code()), (409, "name_taken"), "{taken}");
    }
    const KEY: &str = "1 to 128 characters of A-Z, a-z, 0-9, '.', '_', '~' and '-'";
    for key in ["\u{e9}", "e\u{301}", "k\0", "k\n", "\u{ff4b}", "k\u{2028}", "k\u{200d}", "a b", "a/b"] {
        let reply = daemon.call(&alice, "memory_create", &json!({"text": "x", "idempotency_key": key}));
        assert_wrong(&reply, "idempotency_key", KEY, &format!("{key:?}"));
    }
    // An argument whose name only looks right is an unknown one.
    for name in ["te\u{445}t", "text\u{200b}", "text\0", "Text", "te\u{301}xt"] {
        let reply = daemon.call(&alice, "memory_create", &json!({"text": "x", name: "y"}));
        assert_wrong(&reply, name, "no such argument", &format!("{name:?}"));
    }
    watch.assert_unchanged("look-alikes");

    // Two spellings of one word are two texts, and so two requests.
    let [composed, decomposed] = ["caf\u{e9}", "cafe\u{301}"];
    daemon.ok(&alice, "memory_create", json!({"text": composed, "idempotency_key": "k"}));
    let reply = daemon.call(&alice, "memory_create", &json!({"text": decomposed, "idempotency_key": "k"}));
    assert_eq!((reply.status, reply.code()), (409, "idempotency_conflict"));
    let names = [composed, decomposed].map(|display_name| {
        let name = format!("twin{}", display_name.len());
        daemon.ok(&owner, "agent_create", json!({"name": name, "display_name": display_name}));
        let read = daemon.ok(&daemon.token(&name), "agent_get", json!({}));
        pointed(&read, &read["result"]["display_name_content"])["text"].as_str().unwrap().to_owned()
    });
    assert_eq!(names, [composed, decomposed]);
    watch.assert_well("twins");
}
