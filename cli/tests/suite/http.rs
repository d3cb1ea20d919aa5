//! HTTP: tokens, hosts, bodies, and the documents that need no token.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::daemon::Daemon;

#[test]
fn health_readiness_and_the_api_document_need_no_token() {
    let daemon = Daemon::fresh();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(daemon.request("GET", path, "", b"").status, 200, "{path}");
    }
    let document = daemon.request("GET", "/openapi.json", "", b"").body;
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    for operation in ["turn", "working_set", "entry_post", "agent_create", "ledger_verify", "clock_confirm"] {
        assert!(paths.contains_key(&format!("/v1/{operation}")), "{operation}");
    }
    let entry = &paths["/v1/entry_post"]["post"]["requestBody"]["content"]["application/json"]["schema"];
    assert!(entry["properties"]["idempotency_key"].is_object());
    assert_eq!(entry["required"], json!(["thread"]));
}

#[test]
fn without_a_valid_token_everything_answers_the_same() {
    let daemon = Daemon::fresh();
    let owner = daemon.token("owner");
    let wrong = [
        String::new(),
        "Authorization: Bearer \r\n".to_owned(),
        "Authorization: Bearer kwn_wrong\r\n".to_owned(),
        format!("Authorization: Basic {owner}\r\n"),
        format!("Authorization: Bearer {}\r\n", &owner[..owner.len() - 1]),
    ];
    let mut bodies = Vec::new();
    for head in &wrong {
        for (operation, body) in [("turn", "{}"), ("no_such", "{}"), ("turn", "not json"), ("agent_list", "{}")] {
            let reply = daemon.request("POST", &format!("/v1/{operation}"), head, body.as_bytes());
            assert_eq!((reply.status, reply.code()), (401, "unauthenticated"), "{head:?} {operation}");
            bodies.push(reply.body);
        }
    }
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn tokens_stand_for_their_own_kind_of_caller() {
    let daemon = Daemon::fresh();
    let owner = daemon.token("owner");
    let (_, alice) = daemon.agent("alice");
    assert_eq!(alice, daemon.token("alice"), "the token lies in the home");
    assert_eq!(daemon.call(&alice, "agent_create", &json!({"name": "x"})).code(), "owner_required");
    assert_eq!(daemon.call(&alice, "host_status", &json!({})).code(), "owner_required");
    assert_eq!(daemon.call(&owner, "memory_create", &json!({"text": "x"})).code(), "unauthenticated");
    let reply = daemon.call(&owner, "turn", &json!({}));
    assert_eq!((reply.code(), &reply.body["error"]["details"]["field"]), ("invalid_argument", &json!("as")));
    assert_eq!(daemon.call(&alice, "no_such", &json!({})).code(), "unknown_operation");
    let get = daemon.request("GET", "/v1/turn", &format!("Authorization: Bearer {alice}\r\n"), b"");
    assert_eq!((get.status, get.code()), (404, "unknown_operation"));
}

#[test]
fn an_owner_reads_as_an_agent_of_this_host_only() {
    let daemon = Daemon::fresh();
    let owner = daemon.token("owner");
    let (alice, token) = daemon.agent("alice");
    let made = daemon.ok(&token, "memory_create", json!({"text": "secret plan"}));
    let seen = daemon.ok(&owner, "memory_get", json!({"memory": made["result"]["memory"], "as": alice}));
    assert_eq!(seen["content"]["c1"]["text"], "secret plan");
    let stranger = format!("agt_{}", "a".repeat(26));
    assert_eq!(daemon.call(&owner, "turn", &json!({"as": stranger})).code(), "not_found");
    let reply = daemon.call(&token, "turn", &json!({"as": alice}));
    assert_eq!(reply.body["error"]["details"]["field"], "as");
    let receipt = json!({"id": made["receipt"]["id"], "as": alice});
    assert_eq!(daemon.call(&owner, "receipt_get", &receipt).code(), "not_found", "receipts are the agent's own");
}

#[test]
fn another_host_name_is_refused_before_anything_else() {
    let daemon = Daemon::fresh();
    let owner = daemon.token("owner");
    for host in ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example"] {
        let head = format!("Host: {host}\r\nAuthorization: Bearer {owner}\r\n");
        let reply = daemon.request("POST", "/v1/agent_list", &head, b"{}");
        assert_eq!((reply.status, reply.code()), (403, "forbidden_host"), "{host}");
    }
    let port = daemon.address.rsplit(':').next().unwrap();
    let head = format!("Host: localhost:{port}\r\nAuthorization: Bearer {owner}\r\n");
    assert_eq!(daemon.request("POST", "/v1/agent_list", &head, b"{}").status, 200);
}

#[test]
fn the_unix_socket_is_the_owners_and_serves_the_same() {
    let daemon = Daemon::fresh();
    let path = daemon.home.join("kwoon.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    let token = daemon.token("owner");
    write!(
        stream,
        "POST /v1/host_status HTTP/1.1\r\nHost: kwoon\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}

#[test]
fn a_body_over_the_limit_is_read_to_its_end_and_answered() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let text = "x".repeat(9 << 20);
    let reply = daemon.call(&alice, "memory_create", &json!({"text": text}));
    assert_eq!((reply.status, reply.code()), (400, "content_too_large"));
    assert_eq!(reply.body["error"]["details"]["limit"], 8 << 20);
    let reply = daemon.call(&alice, "memory_create", &json!({"text": "x".repeat((1 << 20) + 1)}));
    assert_eq!((reply.code(), &reply.body["error"]["details"]["field"]), ("content_too_large", &json!("text")));
    let reply = daemon.call(&alice, "memory_create", &json!({"text": "x".repeat(1 << 20)}));
    assert_eq!(reply.status, 200);
}

#[test]
fn every_answer_has_a_request_id_of_its_own_and_is_not_kept() {
    let daemon = Daemon::fresh();
    let id = |reply: &crate::daemon::Reply| {
        let line = reply.head.lines().find(|line| line.starts_with("x-request-id: ")).unwrap().to_owned();
        assert!(reply.head.contains("cache-control: no-store"));
        line
    };
    let (first, second) = (daemon.request("GET", "/healthz", "", b""), daemon.request("GET", "/healthz", "", b""));
    assert_ne!(id(&first), id(&second));
}

#[test]
fn the_trace_of_a_call_is_kept_beside_its_action() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let head = format!("Authorization: Bearer {alice}\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    let made = daemon.request("POST", "/v1/memory_create", &head, br#"{"text": "x"}"#).body;
    let log = daemon.ok(&daemon.token("owner"), "object_log", json!({"object": made["result"]["memory"]}));
    let command: &Value = &log["result"]["facts"][0]["command"];
    assert_eq!(command["trace_id"], trace);
    assert_eq!(command["message_id"], made["receipt"]["action"]);
    assert!(command["received_at"].is_string());
}

#[test]
fn a_turn_can_be_waited_for() {
    let daemon = Daemon::fresh();
    let ((_, alice), (_, bob)) = (daemon.agent("alice"), daemon.agent("bob"));
    let made = daemon.ok(&alice, "thread_create", json!({"admission": {}}));
    daemon.ok(&bob, "thread_join", json!({"ticket": made["secret"]["ticket"]}));
    let (address, waiting) = (daemon.address.clone(), bob.clone());
    let waiter = std::thread::spawn(move || {
        crate::daemon::call_at(&address, &waiting, "turn", &json!({"wait_ms": 60_000})).unwrap()
    });
    daemon.ok(&alice, "entry_post", json!({"thread": made["result"]["thread"], "text": "your turn"}));
    let turn = waiter.join().unwrap().body;
    assert_eq!(turn["result"]["obligations"][0]["duty"], "respond");
}

#[test]
fn a_waiting_turn_does_not_hold_up_the_end_of_the_daemon() {
    let daemon = Daemon::fresh();
    let (_, alice) = daemon.agent("alice");
    let address = daemon.address.clone();
    let (sender, started) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        sender.send(()).unwrap();
        crate::daemon::call_at(&address, &alice, "turn", &json!({"wait_ms": 60_000}))
    });
    started.recv().unwrap();
    let (log, ..) = daemon.stop();
    assert!(!log.contains("did not end in time"), "{log}");
    // It is told so, unless the end came before its request did.
    if let Ok(reply) = waiter.join().unwrap() {
        assert_eq!(reply.code(), "stopping");
    }
}
