//! Bad input, made from the registry: every argument of every operation, wrong, unknown, missing or too large, and ids
//! of the wrong kind or of nothing. Each gets its code, a fix and a next step, and leaves no trace.

use serde_json::{Map, Value, json};

use crate::daemon::Daemon;

/// A value that each argument accepts, so that exactly one thing is wrong at a time.
fn plausible(name: &str, schema: &Value) -> Value {
    match name {
        "ticket" => json!("kwoonadm"),
        "name" => json!("carol"),
        "full_id" | "host" => json!("0".repeat(64)),
        "object" => json!(format!("thr_{}", "a".repeat(26))),
        "operation" => json!("memory_create"),
        "path" => json!("/no such directory/file"),
        _ => {
            if let Some(pattern) = schema["pattern"].as_str()
                && let Some(prefix) = pattern.strip_prefix('^').and_then(|rest| rest.split('_').next())
                && pattern.contains("[a-z2-7]{26}")
            {
                return json!(format!("{prefix}_{}", "a".repeat(26)));
            }
            if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
                return first.clone();
            }
            if schema["anyOf"].is_array() {
                return json!(1);
            }
            match kind(schema) {
                "string" => json!("x"),
                "integer" => json!(1),
                "boolean" => json!(true),
                "object" => object(schema),
                "array" => json!([]),
                other => panic!("no example for {name}: {other}: {schema}"),
            }
        }
    }
}

fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(kind) => kind,
        Value::Array(kinds) => kinds[0].as_str().unwrap(),
        _ => "object",
    }
}

fn object(schema: &Value) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = required.iter().map(|name| {
        let name = name.as_str().unwrap();
        (name.to_owned(), plausible(name, &schema["properties"][name]))
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Arguments for each operation in which everything required is there.
fn operations(daemon: &Daemon) -> Vec<(String, Value, Value)> {
    let document = daemon.request("GET", "/openapi.json", "", b"").body;
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .map(|(path, item)| {
            let schema = item["post"]["requestBody"]["content"]["application/json"]["schema"].clone();
            (path.strip_prefix("/v1/").unwrap().to_owned(), object(&schema), schema)
        })
        .collect()
}

/// Calls with the token that the operation wants.
fn call(daemon: &Daemon, alice: &str, operation: &str, arguments: &Value) -> crate::daemon::Reply {
    let reply = daemon.call(alice, operation, arguments);
    if reply.code() == "owner_required" { daemon.call(&daemon.token("owner"), operation, arguments) } else { reply }
}

fn assert_refused(reply: &crate::daemon::Reply, code: &str, field: &str, context: &str) {
    assert_eq!(reply.code(), code, "{context}: {:#}", reply.body);
    let error = &reply.body["error"];
    assert!(!error["fix"].as_str().unwrap().is_empty() && !error["message"].as_str().unwrap().is_empty(), "{context}");
    assert!(error["next"]["step"].is_string(), "{context}");
    let named = error["details"]["field"].as_str().unwrap_or_default();
    assert!(
        named == field || named.starts_with(&format!("{field}.")) || named.starts_with(&format!("{field}[")),
        "{context}: names {named}"
    );
}

#[test]
fn every_argument_of_the_wrong_type_unknown_or_missing_is_named_and_leaves_no_trace() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let before = daemon.trace();
    let mut tried = 0;
    for (operation, arguments, schema) in operations(&daemon) {
        let mut unknown = arguments.clone();
        unknown["no_such_argument"] = json!(1);
        let reply = call(&daemon, &alice, &operation, &unknown);
        assert_refused(&reply, "invalid_argument", "no_such_argument", &operation);
        for (name, property) in schema["properties"].as_object().unwrap() {
            // An agent is told that there is no `as`, which is an owner's.
            if name == "as" {
                continue;
            }
            let required = schema["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
            if required && !(operation == "assignment_return" && name == "reason") {
                let mut missing = arguments.clone();
                missing.as_object_mut().unwrap().remove(name);
                let reply = call(&daemon, &alice, &operation, &missing);
                assert_refused(&reply, "invalid_argument", name, &format!("{operation} without {name}"));
            }
            let mut wrong = vec![json!(-1), json!([{"x": []}]), json!({"x": {"y": 1}})];
            if kind(property) != "boolean" {
                wrong.push(json!(true));
            }
            if kind(property) != "string" || property.get("pattern").is_some() || property.get("enum").is_some() {
                wrong.push(json!("\u{202e}\u{0} not of this form"));
            }
            for value in wrong {
                let mut arguments = arguments.clone();
                arguments[name] = value.clone();
                let context = format!("{operation} with {name} = {value}");
                let reply = call(&daemon, &alice, &operation, &arguments);
                // A receipt is asked for by an id or by two arguments together, so the one that is lacking may be named.
                let named = if operation == "receipt_get" && reply.body["error"]["details"]["field"] == "id" {
                    "id"
                } else {
                    name
                };
                assert_refused(&reply, "invalid_argument", named, &context);
                tried += 1;
            }
        }
    }
    assert!(tried > 400, "{tried}");
    assert_eq!(daemon.trace(), before, "nothing changed");
}

#[test]
fn ids_of_nothing_are_not_found_and_ids_of_the_wrong_kind_are_not_of_the_form() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let before = daemon.trace();
    let mut tried = 0;
    for (operation, arguments, schema) in operations(&daemon) {
        for (name, property) in schema["properties"].as_object().unwrap() {
            let required = schema["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
            let Some(pattern) = property["pattern"].as_str().filter(|pattern| pattern.contains("{26}")) else {
                continue;
            };
            if !required || name == "as" {
                continue;
            }
            let reply = call(&daemon, &alice, &operation, &arguments);
            let code = reply.code();
            assert!(code == "not_found" || code == "invalid_argument", "{operation}: {code}");
            if code == "not_found" {
                assert_eq!(
                    reply.body["error"]["details"],
                    json!({}),
                    "{operation}: says nothing of what it looked for"
                );
            }
            let other = if pattern.contains("thr") && name != "object" { "mem" } else { "asg" };
            if pattern.contains(&format!("^{other}")) {
                continue;
            }
            let mut wrong = arguments.clone();
            wrong[name] = json!(format!("{other}_{}", "a".repeat(26)));
            let reply = call(&daemon, &alice, &operation, &wrong);
            assert_refused(&reply, "invalid_argument", name, &operation);
            tried += 1;
        }
    }
    assert!(tried > 25, "{tried}");
    assert_eq!(daemon.trace(), before);
}

#[test]
fn bodies_that_are_no_arguments_are_refused() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let head = format!("Authorization: Bearer {alice}\r\n");
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let bodies: &[&[u8]] = &[
        b"[]",
        b"1",
        b"null",
        b"\"text\"",
        b"{",
        b"{} {}",
        br#"{"text": "a", "text": "b"}"#,
        br#"{"text": {"a": 1, "a": 2}}"#,
        br#"{"text": "\ud800"}"#,
        b"{\"text\": \"\xff\"}",
        br#"{"text": 1e400}"#,
        br#"{"text": 123456789012345678901234567890}"#,
        br#"{"text": 1.5}"#,
        deep.as_bytes(),
    ];
    for body in bodies {
        let reply = daemon.request("POST", "/v1/memory_create", &head, body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]);
        assert_eq!((reply.status, reply.code()), (400, "invalid_argument"), "{shown}");
    }
    assert_eq!(daemon.ok(&alice, "memory_list", json!({}))["result"]["memories"], json!([]));
    // No body at all is no arguments.
    assert_eq!(daemon.request("POST", "/v1/turn", &head, b"").status, 200);
}

#[test]
fn numbers_durations_and_keys_keep_to_their_ends() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let refused = |operation: &str, arguments: Value| {
        let reply = daemon.call(&alice, operation, &arguments);
        assert_eq!(reply.code(), "invalid_argument", "{operation} {arguments}");
    };
    for limit in [0, 51, 10_000] {
        refused("memory_list", json!({"limit": limit}));
    }
    for key in ["", "a b", "é", &"k".repeat(129)] {
        refused("memory_create", json!({"text": "x", "idempotency_key": key}));
    }
    daemon.ok(&alice, "memory_create", json!({"text": "x", "idempotency_key": "k".repeat(128)}));
    let thread = daemon.ok(&alice, "thread_create", json!({}))["result"]["thread"].clone();
    let me = daemon.ok(&alice, "agent_get", json!({}))["result"]["agent"].clone();
    let assign = |within: &str| json!({"thread": thread, "text": "x", "assign": {"to": me, "criteria": "c", "deliver_within": within}});
    for within in ["0s", "401d", "9601h", "1", "s", "-1s", "1.5h", "1w", "1 s", "99999999999999999999d", "１s"] {
        refused("entry_post", assign(within));
    }
    for within in ["1s", "400d", "9600h", "90s"] {
        daemon.ok(&alice, "entry_post", assign(within));
    }
    for cursor in ["x", "umaa", ""] {
        refused("memory_list", json!({"cursor": cursor}));
    }
    for wait in [60_001, -1] {
        refused("turn", json!({"wait_ms": wait}));
    }
}
