//! Ten thousand of everything, and lengths of time at their ends.

use serde_json::{Value, json};

use super::watch::Watch;
use super::{assert_too_large, assert_wrong, said};
use crate::daemon::Daemon;

#[test]
fn ten_thousand_of_anything_is_too_many() {
    let daemon = Daemon::fresh();
    let (me, alice) = daemon.agent("alice");
    let owner = daemon.token("owner");
    let made = daemon.ok(&alice, "thread_create", json!({}));
    let thread = made["result"]["thread"].clone();
    let assign = json!({"to": me, "criteria": "c"});
    let offer = json!({"thread": thread, "text": "x", "ask": [], "assign": assign});
    let work = daemon.ok(&alice, "entry_post", offer)["result"]["assignment"].clone();
    daemon.ok(&alice, "assignment_take", json!({"assignment": work}));
    let memory = daemon.ok(&alice, "memory_create", json!({"text": "x"}))["result"]["memory"].clone();
    let watch = Watch::over(&daemon);
    let many = |item: Value| Value::Array(vec![item; 10_000]);
    let members = (0..10_000)
        .map(|n| json!(format!("agt_{n:a<26}").replace('0', "b").replace('1', "c").replace(['8', '9'], "d")));
    let members: Vec<Value> = members.collect();
    for (what, ask) in [("strangers", Value::Array(members)), ("one member", many(json!(me)))] {
        let reply = daemon.call(&alice, "entry_post", &json!({"thread": thread, "text": "x", "ask": ask}));
        assert_too_large(&reply, "ask", 64, what);
    }
    let reply = daemon.call(&alice, "memory_create", &json!({"text": "x", "tags": many(json!("t"))}));
    assert_too_large(&reply, "tags", 32, "tags");
    let reply = daemon.call(&alice, "memory_update", &json!({"memory": memory, "text": "y", "tags": many(json!("t"))}));
    assert_too_large(&reply, "tags", 32, "tags of an update");
    let output = json!({"memories": many(json!({"memory": memory}))});
    let reply = daemon.call(&alice, "assignment_deliver", &json!({"assignment": work, "output": output}));
    assert_too_large(&reply, "output", 32, "memories");
    let policies = many(json!({"policy": "p", "version": 1}));
    let reply = daemon.call(&owner, "agent_create", &json!({"name": "bob", "policy_refs": policies}));
    assert_too_large(&reply, "policy_refs", 32, "policies");
    let action = made["receipt"]["action"].clone();
    let reply = daemon.call(&alice, "memory_create", &json!({"text": "x", "after": many(action)}));
    assert_eq!((reply.status, reply.code()), (400, "invalid_argument"));
    assert_eq!(reply.body["error"]["details"]["field"], "after");
    // Through the command line, where a list may be a file.
    let list = daemon.home.parent().unwrap().join("list");
    std::fs::write(&list, many(json!(me)).to_string()).unwrap();
    let (ask, thread) = (format!("@{}", list.display()), thread.as_str().unwrap());
    let (code, text) = said(&daemon, &["--agent", "alice", "entry", "post", thread, "--text", "x", "--ask", &ask]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("content_too_large") && text.contains("64"), "{text}");
    watch.assert_unchanged("ten thousand");
}

#[test]
fn a_length_of_time_keeps_to_its_ends_whatever_it_is_written_with() {
    let daemon = Daemon::fresh();
    let (me, alice) = daemon.agent("alice");
    let thread = daemon.ok(&alice, "thread_create", json!({}))["result"]["thread"].clone();
    let watch = Watch::over(&daemon);
    const DURATION: &str = "a duration from \"1s\" to \"400d\": a whole number and s, m, h or d";
    let offer = |field: &str, time: &str| {
        let mut assign = json!({"to": me, "criteria": "c"});
        assign[field] = json!(time);
        json!({"thread": thread, "text": "x", "ask": [], "assign": assign})
    };
    let wrong = [
        "",
        "s",
        "0s",
        "0d",
        "00s",
        "34560001s",
        "576001m",
        "9601h",
        "401d",
        "1e9d",
        "1e3s",
        "0x1s",
        "+1s",
        "-1s",
        "-0s",
        " 1s",
        "1s ",
        "1 s",
        "1s\n",
        "1s\0",
        "1S",
        "1ms",
        "1w",
        "1y",
        "1h30m",
        "1.5h",
        "1,5h",
        "\u{661}s",
        "\u{ff11}s",
        "1\u{ff53}",
        "\u{221e}",
        "inf",
        "NaN",
        "18446744073709551615s",
        "18446744073709551616s",
        "213503982334602d",
        "999999999999d",
        "9999999999999d",
        "P1D",
        "1_000s",
    ];
    for field in ["deliver_within", "judge_within"] {
        for time in wrong {
            let reply = daemon.call(&alice, "entry_post", &offer(field, time));
            assert_wrong(&reply, &format!("assign.{field}"), DURATION, &format!("{time:?}"));
        }
        for number in [json!(1), json!(true), json!([]), json!({})] {
            let mut arguments = offer(field, "1s");
            arguments["assign"][field] = number;
            let reply = daemon.call(&alice, "entry_post", &arguments);
            assert_wrong(&reply, &format!("assign.{field}"), DURATION, "no text");
        }
    }
    watch.assert_unchanged("lengths of time");

    // The longest, begun by taking and delivering.
    for time in ["400d", "9600h", "576000m", "34560000s", "034560000s"] {
        let work = daemon.ok(&alice, "entry_post", offer("deliver_within", time))["result"]["assignment"].clone();
        daemon.ok(&alice, "assignment_take", json!({"assignment": work}));
        let turn = daemon.ok(&alice, "turn", json!({}));
        assert!(turn["result"]["obligations"][0]["due_at"].is_string());
        daemon.ok(&alice, "assignment_abandon", json!({"assignment": work}));
    }
    watch.assert_well("the longest");
}
