//! Structure and content apart (L6.1): whatever participants wrote stands under `content`, in every answer there is.

use std::collections::BTreeSet;

use kwoon_ledger::action::ObjectId;
use kwoon_ledger::log;
use kwoon_ledger::rules::memory::publication_id;
use kwoon_ledger::time::Duration;
use kwoon_sync::operations::{self, Operation};
use kwoon_tests::{Agent, Hall, merge, owner, rule, text};
use serde_json::{Map, Value, json};

/// What stands in every text that a participant wrote, and nowhere else.
const MARK: &str = "m4rk.of.a.w0rd";

/// Something that a participant wrote.
fn said(field: &str) -> String {
    format!("{field} {MARK} {field}")
}

/// Every answer that was given, and all that its caller sent.
#[derive(Default)]
struct Seen {
    /// The fields of content in which the mark was found.
    fields: BTreeSet<String>,
    /// The operations that answered with success.
    answered: BTreeSet<String>,
    answers: usize,
}

impl Seen {
    /// Looks at an answer: the mark stands in the texts of its content only.
    fn look(&mut self, operation: &str, answer: &Value) {
        self.answers += 1;
        let mut structure = answer.clone();
        let content = structure.as_object_mut().unwrap().remove("content").unwrap_or(json!({}));
        assert_free(operation, &structure);
        let mut named = Vec::new();
        keys(&structure["result"], "", &mut named);
        let content = content.as_object().unwrap();
        // Each text is named by exactly one field of the result, whose name says that it names content.
        let mut known: Vec<_> = content.keys().cloned().collect();
        known.sort();
        named.sort();
        assert_eq!(named, known, "{operation}: {answer:#}");
        for (_, item) in content {
            let mut item = item.as_object().unwrap().clone();
            let words = item.remove("text").unwrap_or_default();
            assert_free(operation, &Value::Object(item.clone()));
            if words.as_str().is_some_and(|words| words.contains(MARK)) {
                self.fields.insert(text(&item["field"]));
            }
        }
        if answer["ok"] == true {
            self.answered.insert(operation.to_owned());
        } else {
            assert!(answer.get("content").is_none() && answer.get("result").is_none());
        }
    }

    fn call(&mut self, hall: &mut Hall, caller: &Agent, operation: &str, arguments: Value) -> Value {
        let answer = hall.call(caller, operation, arguments);
        self.look(operation, &answer);
        answer
    }

    fn ok(&mut self, hall: &mut Hall, caller: &Agent, operation: &str, arguments: Value) -> Value {
        let answer = self.call(hall, caller, operation, arguments);
        assert_eq!(answer["ok"], true, "{operation}: {answer:#}");
        answer
    }
}

/// That the mark does not stand in a structure: not in plain, not in hexadecimal, and not within a cursor.
fn assert_free(operation: &str, structure: &Value) {
    let written = structure.to_string();
    let hidden = data_encoding::HEXLOWER.encode(MARK.as_bytes());
    assert!(!written.contains(MARK) && !written.contains(&hidden), "{operation}: {structure:#}");
    if let Some(cursor) = structure.get("cursor").and_then(Value::as_str) {
        let bytes = kwoon_keys::id::BASE32.decode(cursor.as_bytes()).unwrap();
        assert!(!bytes.windows(MARK.len()).any(|window| window == MARK.as_bytes()), "{operation}: in a cursor");
    }
}

/// The keys of content that a result names, by the fields whose names end as such names do.
fn keys(value: &Value, name: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| keys(value, name, found)),
        Value::Array(items) => items.iter().for_each(|item| keys(item, name, found)),
        Value::String(key) if name.ends_with("_content") => found.push(key.clone()),
        _ => assert!(!name.ends_with("_content"), "{name} is {value}"),
    }
}

/// Two threads with everything in them that can be written, by agents of whom everything is written.
struct Story {
    hall: Hall,
    agents: Vec<Agent>,
    seen: Seen,
    receipts: BTreeSet<(String, String, String)>,
}

impl Story {
    fn act(&mut self, agent: &Agent, operation: &str, arguments: Value) -> Value {
        let mut arguments = arguments;
        let key = format!("key-{}", self.seen.answers);
        merge(&mut arguments, json!({"idempotency_key": key, "after": []}));
        let answer = self.seen.ok(&mut self.hall, agent, operation, arguments.clone());
        // A repeat shows no more than that.
        let repeated = self.seen.ok(&mut self.hall, agent, operation, arguments);
        assert_eq!(repeated["receipt"], answer["receipt"]);
        self.receipts.insert((text(&answer["receipt"]["id"]), operation.to_owned(), key));
        answer["result"].clone()
    }

    fn tell() -> Self {
        let (hall, seen) = (Hall::new(), Seen::default());
        let mut story = Self { hall, agents: Vec::new(), seen, receipts: BTreeSet::new() };
        let policy = json!([{"policy": said("policy"), "version": 3}]);
        for name in ["alice", "bob", "carol", "dora"] {
            let mut create = json!({"name": format!("{name}.{MARK}"), "display_name": said(name),
                "mission": said("mission"), "policy_refs": policy});
            if let Some(first) = story.agents.first() {
                merge(&mut create, json!({"predecessor": first.id}));
            }
            let agent = story.act(&owner(), "agent_create", create)["agent"].clone();
            let agent = story.hall.known(&agent);
            story.agents.push(agent);
        }
        let [alice, bob, carol, dora] = [0, 1, 2, 3].map(|at| story.agents[at].clone());
        let update = json!({"agent": alice.id, "expected_version": 1, "display_name": said("new name"),
            "mission": said("new mission"), "policy_refs": policy});
        story.act(&owner(), "agent_update", update);
        story.memories(&alice);
        story.threads(&alice, &bob, &carol);
        for operation in ["agent_deactivate", "agent_reactivate", "agent_terminate"] {
            story.act(&owner(), operation, json!({"agent": dora.id, "reason": said("reason")}));
        }
        story.hall.advance(Duration::days(1));
        story
    }

    fn memories(&mut self, alice: &Agent) {
        let whole = json!({"text": said("text"), "title": said("title"), "summary": said("summary"),
            "tags": [said("tag"), MARK], "media_type": "text/html"});
        for ends in [None, Some("memory_unpublish"), Some("memory_withdraw")] {
            let memory = self.act(alice, "memory_create", whole.clone())["memory"].clone();
            let mut update = whole.clone();
            merge(&mut update, json!({"memory": memory}));
            self.act(alice, "memory_update", update);
            self.act(alice, "memory_publish", json!({"memory": memory}));
            if let Some(end) = ends {
                self.act(alice, end, json!({"memory": memory}));
            }
        }
    }

    fn threads(&mut self, alice: &Agent, bob: &Agent, carol: &Agent) {
        for closes in [false, true] {
            let create = json!({"subject": said("subject"), "admission": {}});
            let thread = self.act(alice, "thread_create", create)["thread"].clone();
            let ticket = self.hall.ticket(alice, thread.as_str().unwrap(), "speaker");
            for agent in [bob, carol] {
                self.act(agent, "thread_join", json!({"ticket": ticket}));
            }
            let post =
                json!({"thread": thread, "text": said("entry"), "summary": said("entry"), "ask": [bob.id, carol.id]});
            let entry = self.act(alice, "entry_post", post.clone())["entry"].clone();
            self.act(bob, "entry_handle", json!({"thread": thread, "entry": entry, "note": said("note")}));
            self.act(carol, "entry_post", json!({"thread": thread, "text": said("entry"), "reply_to": entry}));
            let retracted = self.act(alice, "entry_post", post.clone())["entry"].clone();
            self.act(alice, "entry_retract", json!({"thread": thread, "entry": retracted}));
            self.act(alice, "entry_post", post.clone());
            let output = json!({"text": json!({said("key"): said("output")}).to_string()});
            for end in ["offer", "take", "deliver", "accept", "return", "abandon", "void", "expire"] {
                let work = self.offer(alice, bob, &thread, end);
                if !["offer", "void"].contains(&end) {
                    self.act(bob, "assignment_take", work.clone());
                }
                let mut more = work.clone();
                match end {
                    "deliver" | "accept" | "return" => {
                        merge(&mut more, json!({"output": output}));
                        self.act(bob, "assignment_deliver", more);
                    }
                    "abandon" => drop(self.act(bob, "assignment_abandon", work.clone())),
                    "void" => drop(self.act(alice, "assignment_void", work.clone())),
                    _ => {}
                }
                match end {
                    "accept" => drop(self.act(alice, "assignment_accept", work)),
                    "return" => {
                        let back = json!({"assignment": work["assignment"], "reason": said("reason")});
                        self.act(alice, "assignment_return", back);
                    }
                    _ => {}
                }
            }
            self.act(alice, "admission_issue", json!({"thread": thread}));
            self.act(alice, "admission_void", json!({"thread": thread}));
            if closes {
                self.act(alice, "member_role", json!({"thread": thread, "agent": carol.id, "role": "observer"}));
                self.act(alice, "member_remove", json!({"thread": thread, "agent": carol.id}));
                self.act(alice, "thread_close", json!({"thread": thread}));
                self.act(bob, "thread_leave", json!({"thread": thread}));
            }
        }
    }

    fn offer(&mut self, alice: &Agent, bob: &Agent, thread: &Value, end: &str) -> Value {
        let within = if end == "expire" { "1h" } else { "7d" };
        let terms = json!({"to": bob.id, "criteria": said("criteria"), "deliver_within": within,
            "output_schema": {"title": said("schema"), said("keyword"): true}});
        let post = json!({"thread": thread, "text": said("work"), "ask": [], "assign": terms});
        json!({"assignment": self.act(alice, "entry_post", post)["assignment"]})
    }
}

/// Every id that there is, by the name of the argument that takes it.
fn every_argument(story: &mut Story) -> Map<String, Value> {
    let objects = story.hall.all(&owner(), "object_digest", json!({"limit": 50}), "objects");
    let mut objects: Vec<_> = objects.iter().map(|row| text(&row["object"])).collect();
    let snapshot = story.hall.snapshot();
    for (_, object) in log::objects(&snapshot, 0, usize::MAX).unwrap() {
        if let ObjectId::Memory(memory) = object {
            objects.push(publication_id(&memory).to_string());
        }
    }
    let (mut assignments, mut memories) = (BTreeSet::new(), BTreeSet::new());
    for object in objects.clone().iter().filter(|object| object.starts_with("thr_")) {
        for fact in story.hall.facts(object) {
            for effect in fact["event"]["payload"]["effects"].as_array().unwrap() {
                assignments.extend(effect.get("assignment").map(text));
                memories.extend(effect.get("memory").map(text));
            }
        }
    }
    objects.extend(memories);
    objects.sort();
    objects.dedup();
    let of = |kind: &str| objects.iter().filter(|id| id.starts_with(kind)).cloned().collect::<Vec<_>>();
    let mut every = Map::new();
    every.insert("object".into(), json!(objects));
    every.insert("thread".into(), json!(of("thr_")));
    every.insert("memory".into(), json!(of("mem_")));
    every.insert("agent".into(), json!(of("agt_")));
    every.insert("assignment".into(), json!(assignments));
    let agents = of("agt_");
    let full = agents.iter().map(|agent| story.hall.ok(&owner(), "agent_get", json!({"agent": agent})));
    let full: Vec<_> = full.map(|shown| shown["result"]["full_id"].clone()).collect();
    every.insert("full_id".into(), json!(full));
    every.insert("entry".into(), json!((1..=14).collect::<Vec<u64>>()));
    every.insert("version".into(), json!([null, 1, 2]));
    every.insert("query".into(), json!([MARK, "nothing like it"]));
    every.insert("path".into(), json!(["/a file", "/another file"]));
    every.insert("format".into(), json!(["json", "cbor"]));
    every.insert("id".into(), json!(story.receipts.iter().map(|(id, ..)| id).collect::<Vec<_>>()));
    every
}

/// Every combination of the arguments that an operation takes.
fn combinations(operation: &Operation, every: &Map<String, Value>) -> Vec<Value> {
    let schema = (operation.arguments)().to_value();
    let mut calls = vec![json!({})];
    let names = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    for name in names.keys() {
        let Some(values) = every.get(name).and_then(Value::as_array) else { continue };
        let with = |call: &Value, value: &Value| {
            let mut call = call.clone();
            merge(&mut call, json!({name.clone(): value}));
            call
        };
        calls = calls.iter().flat_map(|call| values.iter().map(|value| with(call, value))).collect();
    }
    calls
}

#[test]
fn what_participants_wrote_stands_under_content_in_every_answer() {
    rule!(holds, "L6.1");
    rule!(refused, "L6.1", "S2");
    let mut story = Story::tell();
    let every = every_argument(&mut story);
    let agents = story.agents.clone();
    let Story { hall, seen, receipts, .. } = &mut story;
    for operation in operations::ALL.iter().filter(|operation| !operation.is_action()) {
        let has = |name: &str| (operation.arguments)().to_value()["properties"].get(name).is_some();
        for call in combinations(operation, &every) {
            for caller in agents.iter().chain([&owner()]) {
                let views = if *caller == owner() {
                    [vec![None], agents.iter().map(Some).collect()].concat()
                } else {
                    vec![None]
                };
                for view in views {
                    let mut call = call.clone();
                    if let Some(view) = view {
                        merge(&mut call, json!({"as": view.id}));
                    }
                    if has("limit") {
                        merge(&mut call, json!({"limit": 7}));
                    }
                    // Every page of it.
                    loop {
                        let answer = seen.call(hall, caller, operation.name, call.clone());
                        let Some(cursor) = answer.get("cursor").cloned() else { break };
                        merge(&mut call, json!({"cursor": cursor}));
                    }
                }
            }
        }
    }
    for (_, operation, key) in receipts.iter() {
        for caller in &agents {
            seen.call(hall, caller, "receipt_get", json!({"operation": operation, "key": key}));
        }
    }
    let all: BTreeSet<_> = operations::ALL.iter().map(|operation| operation.name.to_owned()).collect();
    let silent: Vec<_> = all.difference(&seen.answered).collect();
    let expected = [
        "backup",
        "clock_confirm",
        "home_confirm",
        "network",
        "object_handover",
        "peer_add",
        "peer_block",
        "peer_remove",
        "quarantine_remove",
    ];
    assert_eq!(silent, expected, "which take and show no text");
    assert!(seen.answers > 4000, "only {} answers", seen.answers);
    // Everything that was written was found, where it belongs.
    let fields: Vec<_> = seen.fields.iter().map(String::as_str).collect();
    let written = [
        "criteria",
        "display_name",
        "mission",
        "name",
        "note",
        "output",
        "output_schema",
        "policy",
        "reason",
        "subject",
        "summary",
        "tag",
        "text",
        "title",
    ];
    assert_eq!(fields, written);
}

/// Arguments of the right names with the mark in every place that takes a text, and in most that do not.
fn wrong_arguments(operation: &Operation) -> Vec<Value> {
    let schema = (operation.arguments)().to_value();
    let properties = schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let whole: Map<_, _> = properties.keys().map(|name| (name.clone(), json!(said(name)))).collect();
    let mut calls = vec![Value::Object(whole.clone())];
    for name in properties.keys() {
        for wrong in
            [json!(MARK), json!([MARK]), json!({"text": MARK}), json!({"to": MARK, "criteria": MARK}), json!(7)]
        {
            calls.push(json!({name.clone(): wrong}));
        }
    }
    for control in ["idempotency_key", "after", "wait_ms", "as", "cursor", "limit"] {
        calls.push(json!({control: said(control)}));
    }
    calls
}

#[test]
fn no_error_repeats_what_was_sent() {
    rule!(refused, "L6.1", "S2");
    let mut story = Story::tell();
    let callers = [story.agents[0].clone(), owner()];
    let Story { hall, seen, .. } = &mut story;
    let mut refused = 0;
    for operation in operations::ALL {
        for call in wrong_arguments(operation) {
            for caller in &callers {
                let answer = seen.call(hall, caller, operation.name, call.clone());
                refused += usize::from(answer["ok"] == false);
            }
        }
    }
    assert!(refused > 500);
    // What is none of the fixed media types is no media type, and no text of anybody's.
    let mark = format!("text/{MARK}");
    let alice = callers[0].clone();
    let create = json!({"text": "x", "media_type": mark});
    let error = hall.refused(&alice, "memory_create", create, "invalid_argument");
    assert!(!error.to_string().contains(MARK));
}

/// Every field of a schema, with its own schema.
fn fields(schema: &Value, found: &mut Vec<(String, Value)>) {
    match schema {
        Value::Object(map) => {
            for (name, value) in map {
                if let ("properties", Value::Object(properties)) = (name.as_str(), value) {
                    found.extend(properties.iter().map(|(field, schema)| (field.clone(), schema.clone())));
                }
                fields(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        _ => {}
    }
}

/// The fields of results that are strings: ids, keys and hashes of the format, times, records in hexadecimal, and words
/// of this program. A new one is to be thought about before it is added here: what a participant wrote is none of them.
const STRINGS: [&str; 71] = [
    "action",
    "actions",
    "addresses",
    "admission",
    "agent",
    "ask",
    "assignee",
    "assignment",
    "at",
    "author",
    "began_at",
    "causation_id",
    "cause",
    "code",
    "consent",
    "correlation_id",
    "created_at",
    "creator",
    "deliver_within",
    "digest",
    "due_at",
    "duty",
    "ended_at",
    "expires_at",
    "fix",
    "full_id",
    "head",
    "heard_at",
    "home_host",
    "host",
    "id",
    "instance",
    "judge_within",
    "keeping",
    "key",
    "kind",
    "last_seen",
    "memory",
    "message",
    "message_id",
    "not_sealing_reason",
    "object",
    "occurred_at",
    "operation",
    "owner",
    "peers",
    "predecessor",
    "problem",
    "quarantined",
    "reason",
    "received_at",
    "recipient",
    "record",
    "redoes",
    "relay",
    "responders",
    "role",
    "seal",
    "sealed_at",
    "sender",
    "sequencer",
    "since",
    "standing",
    "state",
    "step",
    "thread",
    "ticket",
    "time",
    "trace_id",
    "version",
    "visibility",
];

#[test]
fn a_result_has_no_field_for_a_text_but_keys_into_content() {
    rule!(impossible, "L6.1"; "a result has strings of this program's making only, and of a text the key under which it stands");
    let (mut strings, mut anything) = (BTreeSet::new(), BTreeSet::new());
    for operation in operations::ALL {
        let mut found = Vec::new();
        fields(&(operation.result)().to_value(), &mut found);
        for (name, schema) in found {
            let inner = schema.to_string();
            if !inner.contains("\"type\"") && !inner.contains("\"const\"") && !inner.contains("\"enum\"") {
                anything.insert(name);
            } else if inner.contains("\"string\"") && !inner.contains("\"properties\"") && !name.ends_with("_content") {
                strings.insert(name);
            }
        }
    }
    assert_eq!(strings.iter().map(String::as_str).collect::<Vec<_>>(), STRINGS);
    // What has no schema of its own is made of effects and of causes, see `Message`.
    assert_eq!(anything.iter().map(String::as_str).collect::<Vec<_>>(), ["authorization_context", "payload"]);
}
