//! What fuzzing begins with: real records, logs, calls and requests, for each target.

use std::path::Path;

use data_encoding::HEXLOWER;
use kwoon_keys::id::ThreadId;
use kwoon_keys::{Digest, RecordKind, cbor, cose};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::storage::Table;
use kwoon_sync::operations;
use kwoon_sync::wire::Message;
use minicbor::bytes::ByteVec;
use serde_json::Value;

use super::http::{ADDRESS, TOKEN};
use super::world::World;
use super::{fold, logfile, records, text, wire};
use crate::forge;

/// The seeds of a target.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "records" => of_records(),
        "fold" => of_fold(),
        "logfile" => of_logfile(),
        "text" => of_text(),
        "act" => CALLS.iter().map(|calls| lines(calls)).collect(),
        "http" => of_http(),
        "store" => of_store(),
        "wire" => of_wire(),
        "ticket" => of_ticket(),
        "session" | "intake" => of_neighbours(),
        _ => Vec::new(),
    }
}

fn vectors() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors")).expect("JSON")
}

fn after(first: u8, rest: &[u8]) -> Vec<u8> {
    [&[first], rest].concat()
}

fn of_records() -> Vec<Vec<u8>> {
    let vectors = vectors();
    let mut seeds = Vec::new();
    for (name, vector) in vectors["records"].as_object().expect("records") {
        let bytes = HEXLOWER.decode(vector["cbor"].as_str().expect("hex").as_bytes()).expect("hex");
        let name = match &**name {
            "Seal as it is stored" => "Vec<ByteVec>",
            "Effect list" => "Vec<Effect>",
            name => name.split([' ', '.']).next().unwrap_or_default(),
        };
        if let Some(number) = records::number_of(name) {
            seeds.push(after(number, &bytes));
        }
        let signed = match name {
            "Action" => Some(RecordKind::Action),
            "Seal" => Some(RecordKind::Seal),
            "Outcome" => Some(RecordKind::Outcome),
            "Statement" => Some(RecordKind::Statement),
            "EpochStatement" => Some(RecordKind::Epoch),
            "Consent" => Some(RecordKind::Consent),
            "AdmissionUse" => Some(RecordKind::Admission),
            _ => None,
        };
        if let Some(kind) = signed {
            seeds.push(after(records::number_of_signed(kind), &cose::sign(kind, &bytes, &records::signer())));
        }
    }
    let world = World::new();
    let chain: Vec<ByteVec> = forge::records(&world.hall, &world.callers[4]);
    let last = u8::try_from(records::KINDS - 1).expect("few kinds");
    seeds.push(after(last, &cbor::write(&chain)));
    seeds
}

fn of_wire() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (name, vector) in vectors()["records"].as_object().expect("records") {
        let bytes = HEXLOWER.decode(vector["cbor"].as_str().expect("hex").as_bytes()).expect("hex");
        if let Some(number) = wire::number_of(name.split([' ', '.']).next().unwrap_or_default()) {
            seeds.push(after(number, &bytes));
        }
    }
    // More than there may be of something, and lengths that nothing follows on.
    let wishes = vec![kwoon_sync::wire::Wish { object: ObjectId::Thread(ThreadId::of(&[])), from: 0 }; 4097];
    seeds.push(after(0, &Message::Want(wishes).write()));
    for variant in 0..14 {
        seeds.push(vec![0, 0x82, variant, 0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        seeds.push(vec![0, 0x82, variant, 0x5a, 0xff, 0xff, 0xff, 0xff]);
    }
    seeds
}

fn of_ticket() -> Vec<Vec<u8>> {
    let vectors = vectors();
    let derivations = &vectors["derivations"];
    let mut seeds = Vec::new();
    for given in [&derivations["ticket"]["text"], &derivations["ticket to a host"]["output"]] {
        let text = given.as_str().expect("a text");
        seeds.push(after(0, text.as_bytes()));
        seeds.push(after(0, &text.as_bytes()[..text.len() / 2]));
        seeds.push(after(0, format!(" {}\r\n\t{} ", &text[..20], &text[20..]).as_bytes()));
        seeds.push(after(0, text.replacen("kwoonadm", "kwoonpeer", 1).as_bytes()));
        seeds.push(after(0, text.to_uppercase().as_bytes()));
    }
    for ticket in 0..4 {
        for edits in [&[][..], &[0, 4, 2, 0, 1], &[1, 4, 30, 0, 0xff], &[0, 7, 60, 0], &[0, 2 << 2 | 2, 9, 0, 1, 2]] {
            seeds.push([&[1, ticket], edits].concat());
        }
    }
    seeds
}

/// Each kind of message several times, by each of those who may speak; what is in them follows from the bytes.
fn of_neighbours() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for speaker in 0..3 {
        for kind in 0..18 {
            for salt in 0..3u8 {
                let stream = Digest::of("kwoon fuzz neighbours", &[&[speaker, kind, salt]]).0;
                let mut seed = vec![speaker, salt, 9, 0xff, 1, 0, 0, 0, 0, 0];
                for part in stream.chunks(8) {
                    seed.extend_from_slice(&[0xff, 1, kind]);
                    seed.extend_from_slice(part);
                }
                seeds.push(seed);
            }
        }
    }
    seeds
}

fn of_fold() -> Vec<Vec<u8>> {
    let world = World::new();
    let objects = kwoon_ledger::log::objects(&world.hall.snapshot(), 0, usize::MAX).expect("readable");
    let mut seeds = Vec::new();
    for (number, (_, object)) in objects.iter().enumerate() {
        let log = u8::try_from(number).expect("few logs");
        let facts = forge::Log::of(&world.hall, &object.to_string()).facts;
        let mut whole = vec![0];
        for fact in facts.iter().take(fold::STEPS_MAX) {
            whole.extend_from_slice(&u16::try_from(fact.len()).expect("a short fact").to_le_bytes());
            whole.extend_from_slice(fact);
        }
        seeds.push(whole);
        // Nothing edited; a byte changed; a fact left out and the rest chained anew; a seal changed.
        for edits in [&[][..], &[0, 0, 4, 40, 0, 1], &[3, 1, 9, 0], &[7, 0, 4, 90, 0, 1], &[6, 1, 0, 0, 9, 0]] {
            seeds.push([&[1, log], edits].concat());
        }
        for fact in 0..u8::try_from(facts.len()).expect("few facts") {
            for signer in 0..3 {
                seeds.push(vec![2, log, fact, signer, 0, 0]);
            }
        }
    }
    seeds
}

fn of_logfile() -> Vec<Vec<u8>> {
    let world = World::new();
    let mut seeds: Vec<_> = logfile::files().iter().map(|file| after(0, file)).collect();
    seeds.push(after(0, &world.hall.files["/later"]));
    for log in 0..u8::try_from(logfile::files().len()).expect("few logs") {
        // Nothing edited; a byte changed; some left out; some of a later version; a byte at the end.
        for edits in [&[][..], &[4, 0, 2, 1], &[7, 90, 0, 3], &[5, 11, 0, 2], &[2 << 2 | 2, 0xff, 0xff, 0, 1]] {
            seeds.push([&[1, log], edits].concat());
        }
    }
    seeds
}

fn of_text() -> Vec<Vec<u8>> {
    let vectors = vectors();
    let derivations = &vectors["derivations"];
    let mut seeds = Vec::new();
    let mut add = |reader: fn(&[u8]), bytes: &[u8]| seeds.push(after(text::number_of(reader), bytes));
    let forms = derivations["outside forms"].to_string();
    for id in forms.split('"').filter(|part| part.len() == 30 && part.as_bytes()[3] == b'_' || part.len() == 64) {
        add(text::ids, id.as_bytes());
    }
    let world = World::new();
    for name in [b"$k".as_slice(), b"$f\x01\x00", b"$f\x02\x08", b"$f\x02\x09"] {
        add(text::ticket, &world.fill(name));
    }
    for list in 0..12 {
        add(text::cursor, &world.fill(&[b'$', b'c', list, 0, 1, 19]));
    }
    for words in [
        r#"{"duration":"400d","key":"a.B_~-9","name":"a.b","limit":50,"max_bytes":262144,"wait":60000,"entry":1}"#,
        r#"{"duration":"1s","entry":"act_aaaaaaaaaaaaaaaaaaaaaaaaaa","object":"pub_aaaaaaaaaaaaaaaaaaaaaaaaaa"}"#,
        r#"{"agents":["agt_aaaaaaaaaaaaaaaaaaaaaaaaaa"],"role":"speaker","media_type":"text/csv","duration":"9h"}"#,
        r#"{"duration":"007m","limit":0,"entry":18446744073709551615,"name":null}"#,
    ] {
        add(text::words, words.as_bytes());
    }
    for json in [
        r#"{"a":[{"b":null,"c":"\ud83d\ude00\u2028"},-9223372036854775808,18446744073709551615],"d":{"e":true}}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"a":1e3,"b":0.5,"c":18446744073709551616}"#,
        " \r\n\t",
        &format!("{{\"a\":{}{}}}", "[".repeat(90), "]".repeat(90)),
    ] {
        add(text::json, json.as_bytes());
    }
    add(text::config, b"[limits]\ntext_bytes_max = 2_097_152\nask_max=0x10 # few\n'tags_max' = 1\n");
    for kind in ["host", "owner", "instance"] {
        let key = &derivations[format!("key file of {} {kind}", if kind == "host" { "a" } else { "an" })];
        let lines = key.to_string();
        let file = lines.split('"').find(|part| part.starts_with("kwoon "));
        add(text::files, file.unwrap_or_default().replace("\\n", "\n").as_bytes());
    }
    add(text::files, format!("{TOKEN}\n").as_bytes());
    // A row of the journal: two rows of tables, one of which ends; a row of content.
    add(text::files, &[0x82, 0x83, 0x07, 0x42, 0x01, 0x02, 0x41, 0x03, 0x83, 0x06, 0x41, 0x79, 0xf6]);
    add(text::files, &[&[7; 32][..], &[0], b"text"].concat());
    for time in [0, 1_796_040_000_000, 253_402_300_799_999, i64::MAX as u64, u64::MAX] {
        add(text::time, &time.to_be_bytes());
    }
    seeds
}

/// Calls: operation, caller (see [`World::callers`]) and arguments; a number lets as many seconds pass.
type Calls = [(&'static str, u8, &'static str)];

/// Each is one input.
const CALLS: &[&Calls] = &[
    &[("turn", 2, r#"{"limit":1}"#), ("turn", 0, r#"{"as":"$B"}"#), ("turn", 2, "{\"cursor\":\"$c\x00\x02\x04\x14\"}")],
    &[("opportunities", 2, "{}"), ("outbox_list", 1, ""), ("agent_list", 0, r#"{"limit":2}"#)],
    &[("working_set", 2, r#"{"object":"$t"}"#), ("working_set", 1, r#"{"object":"$m"}"#)],
    &[("working_set", 4, r#"{"object":"$D"}"#), ("working_set", 5, r#"{"object":"$P"}"#)],
    &[("receipt_get", 1, r#"{"id":"$r"}"#), ("receipt_get", 2, r#"{"operation":"entry_post","key":"said"}"#)],
    &[(
        "memory_create",
        1,
        r#"{"text":"\ud83d\ude00","title":"t","summary":"s","tags":["a","b"],"idempotency_key":"k"}"#,
    )],
    &[("memory_create", 1, r#"{"text":"x","media_type":"text/html"}"#), ("memory_list", 1, r#"{"limit":1}"#)],
    &[("memory_update", 1, r#"{"memory":"$m","text":"y","expected_version":2,"tags":[],"idempotency_key":"k"}"#)],
    &[("memory_publish", 1, r#"{"memory":"$m"}"#), ("memory_unpublish", 1, r#"{"memory":"$m"}"#)],
    &[("memory_update", 2, r#"{"memory":"$p","text":"z"}"#), ("memory_unpublish", 2, r#"{"memory":"$p"}"#)],
    &[("memory_publish", 1, r#"{"memory":"$b","idempotency_key":"b"}"#), ("memory_withdraw", 1, r#"{"memory":"$b"}"#)],
    &[("memory_withdraw", 1, r#"{"memory":"$w"}"#), ("memory_withdraw", 2, r#"{"memory":"$p"}"#)],
    &[
        ("memory_get", 1, r#"{"memory":"$m","version":1,"max_bytes":1,"offset":2}"#),
        ("memory_get", 5, r#"{"memory":"$p"}"#),
    ],
    &[("memory_search", 1, r#"{"query":"MINE","limit":50}"#), ("memory_search", 5, r#"{"query":"{\"a\""}"#)],
    &[("thread_create", 5, r#"{"subject":"s","admission":{"role":"governor"},"idempotency_key":"t"}"#)],
    &[("thread_join", 5, r#"{"ticket":"$k","idempotency_key":"j"}"#), ("thread_get", 5, r#"{"thread":"$t"}"#)],
    &[("thread_join", 5, "{\"ticket\":\"$f\x01\x01\"}"), ("thread_join", 1, r#"{"ticket":"$k"}"#)],
    &[("thread_leave", 2, r#"{"thread":"$t","idempotency_key":"l"}"#), ("thread_leave", 1, r#"{"thread":"$t"}"#)],
    &[("thread_close", 1, r#"{"thread":"$t"}"#), ("entry_post", 2, r#"{"thread":"$t","text":"late"}"#)],
    &[("thread_get", 3, r#"{"thread":"$t"}"#), ("thread_list", 1, "{\"cursor\":\"$c\x02\x01\x00\x00\"}")],
    &[("thread_entries", 1, r#"{"thread":"$t","after":1,"limit":2,"max_bytes":3}"#)],
    &[("thread_entries", 1, "{\"thread\":\"$t\",\"cursor\":\"$c\x16\x01\x09\x00\"}")],
    &[("admission_issue", 1, r#"{"thread":"$t","role":"observer"}"#), ("admission_void", 1, r#"{"thread":"$t"}"#)],
    &[("member_remove", 1, r#"{"thread":"$t","agent":"$B"}"#), ("member_list", 1, r#"{"thread":"$t","limit":1}"#)],
    &[
        ("member_role", 1, r#"{"thread":"$t","agent":"$B","role":"governor"}"#),
        ("thread_leave", 1, r#"{"thread":"$t"}"#),
    ],
    &[("member_role", 1, r#"{"thread":"$t","agent":"$B","role":"observer"}"#)],
    &[("entry_post", 1, r#"{"thread":"$t","text":"a","ask":["$B","$C"],"reply_to":2,"summary":"s"}"#)],
    &[("entry_post", 2, r#"{"thread":"$t","memory":"$p","version":1,"ask":["$A"],"idempotency_key":"e"}"#)],
    &[("entry_post", 1, r#"{"thread":"$t","text":"a","reply_to":"$a","media_type":"text/plain","task":"tsk_"}"#)],
    &[(
        "entry_post",
        1,
        r#"{"thread":"$t","text":"w","assign":{"to":"$B","criteria":"c","output_schema":{"a":null},"deliver_within":"1s","judge_within":"400d","redoes":"$e"},"idempotency_key":"w"}"#,
    )],
    &[
        ("entry_get", 2, r#"{"thread":"$t","entry":3,"max_bytes":2,"offset":1}"#),
        ("entry_get", 1, r#"{"thread":"$t","entry":"$a"}"#),
    ],
    &[("entry_handle", 2, r#"{"thread":"$t","entry":3,"note":"n","idempotency_key":"h"}"#)],
    &[("entry_retract", 1, r#"{"thread":"$t","entry":3}"#), ("entry_retract", 1, r#"{"thread":"$t","entry":3}"#)],
    &[("assignment_take", 2, r#"{"assignment":"$o","output":{"text":"1","media_type":"application/json"}}"#)],
    &[("assignment_take", 2, r#"{"assignment":"$o"}"#), ("assignment_abandon", 2, r#"{"assignment":"$o"}"#)],
    &[(
        "assignment_deliver",
        2,
        r#"{"assignment":"$n","output":{"memories":[{"memory":"$p","version":1}]},"idempotency_key":"d"}"#,
    )],
    &[("+", 0, "7200"), ("assignment_deliver", 2, r#"{"assignment":"$n","output":{"text":"late"}}"#)],
    &[
        ("assignment_accept", 1, r#"{"assignment":"$d"}"#),
        ("assignment_return", 1, r#"{"assignment":"$d","reason":"r"}"#),
    ],
    &[("assignment_return", 1, r#"{"assignment":"$d","reason":"r"}"#), ("+", 0, "99999999"), ("turn", 1, "")],
    &[("assignment_void", 1, r#"{"assignment":"$o"}"#), ("assignment_void", 1, r#"{"assignment":"$n"}"#)],
    &[("assignment_get", 1, r#"{"assignment":"$e"}"#), ("assignment_get", 2, r#"{"assignment":"$d"}"#)],
    &[
        ("assignment_list", 1, r#"{"thread":"$t","state":"taken","limit":1}"#),
        ("assignment_list", 3, "{\"thread\":\"$t\",\"cursor\":\"$c\x0b\x01\x09\x00\"}"),
    ],
    &[(
        "agent_create",
        0,
        r#"{"name":"frank","display_name":"F","mission":"m","policy_refs":[{"policy":"p","version":1}],"predecessor":"$D","idempotency_key":"c"}"#,
    )],
    &[("agent_get", 0, r#"{"agent":"$A","version":1}"#), ("agent_get", 1, ""), ("agent_get", 2, r#"{"agent":"$A"}"#)],
    &[(
        "agent_update",
        0,
        r#"{"agent":"$E","expected_version":1,"owner":{"owner":"$h","consent":"$x"},"mission":"n"}"#,
    )],
    &[
        ("agent_deactivate", 0, r#"{"agent":"$A","reason":"r"}"#),
        ("turn", 1, ""),
        ("agent_reactivate", 0, r#"{"agent":"$A"}"#),
    ],
    &[("agent_reactivate", 0, r#"{"agent":"$D"}"#), ("agent_terminate", 0, r#"{"agent":"$D","idempotency_key":"x"}"#)],
    &[("agent_consent", 0, r#"{"full_id":"$i","version":18446744073709551615}"#), ("clock_confirm", 0, "")],
    &[
        ("host_status", 0, "{\"limit\":1,\"cursor\":\"$c\x08\x00\x01\x00\"}"),
        ("ledger_verify", 0, r#"{"object":"$t"}"#),
    ],
    &[
        ("object_log", 0, r#"{"object":"$t","format":"cbor","limit":2}"#),
        ("object_log", 0, "{\"object\":\"$t\",\"cursor\":\"$c\x07\x00\x09\x00\"}"),
    ],
    &[
        ("object_log", 0, r#"{"object":"$P"}"#),
        ("object_digest", 0, r#"{"limit":1}"#),
        ("object_digest", 0, r#"{"object":"$m"}"#),
    ],
    &[
        ("memory_create", 1, r#"{"text":"x","after":["$a"],"idempotency_key":"y"}"#),
        ("memory_create", 1, r#"{"text":"z","idempotency_key":"y"}"#),
    ],
    &[("object_export", 0, r#"{"object":"$m","path":"/new"}"#), ("object_check", 0, r#"{"path":"/new"}"#)],
    &[
        ("object_check", 0, r#"{"path":"/later"}"#),
        ("quarantine_list", 0, r#"{"limit":1}"#),
        ("backup", 0, r#"{"path":"/b"}"#),
    ],
    &[("quarantine_remove", 0, r#"{"id":"$q"}"#), ("home_confirm", 0, "{}"), ("object_check", 0, r#"{"path":"/log"}"#)],
];

fn lines(calls: &Calls) -> Vec<u8> {
    let mut input = Vec::new();
    for (operation, caller, arguments) in calls {
        if !input.is_empty() {
            input.push(b'\n');
        }
        if *operation == "+" {
            input.push(b'+');
        } else {
            input.extend_from_slice(&[number_of(operation), *caller]);
        }
        input.extend_from_slice(arguments.as_bytes());
    }
    input
}

/// The byte that stands for an operation in a call: its number, but for the byte that ends a line.
fn number_of(operation: &str) -> u8 {
    let at = operations::ALL.iter().position(|known| known.name == operation).expect("an operation");
    let byte = u8::try_from(at).expect("few operations");
    let special = matches!(byte, b'\n' | b'+');
    if special { byte + u8::try_from(operations::ALL.len()).expect("few operations") } else { byte }
}

fn of_http() -> Vec<Vec<u8>> {
    let host = format!("Host: {}\r\n", std::net::SocketAddr::from(ADDRESS));
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let post = |operation: &str, more: &str, body: &str| {
        format!("POST /v1/{operation} HTTP/1.1\r\n{host}{token}{more}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    let trace = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    let head = |line: &str| format!("{line} HTTP/1.1\r\n{host}");
    let requests = [
        head("GET /healthz") + "\r\n",
        head("HEAD /readyz") + "\r\n",
        head("GET /openapi.json") + "Connection: close\r\n\r\n",
        head("OPTIONS *") + "\r\n",
        head("GET /v1/turn?x=%00") + &token + "\r\n",
        post("turn", "", "{}"),
        post("turn", "", r#"{"wait_ms":60000}"#),
        post("memory_create", trace, r#"{"text":"\u0000\u2028","idempotency_key":"k"}"#),
        post("memory_create", "Expect: 100-continue\r\n", r#"{"text":"a"}"#) + &post("memory_list", "", ""),
        post("thread_create", "Content-Type: application/json\r\n", r#"{"subject":"s","admission":{}}"#),
        post("host_status", "", "{}"),
        post("nothing", "", "{"),
        head("POST /v1/turn") + &token + chunked + "2\r\n{}\r\n0\r\n\r\n",
        head("POST /v1/turn") + &token + chunked + "5;a=b\r\n{}   \r\n0\r\nx: y\r\n\r\n",
        head("POST /v1/turn") + &token + "Content-Length: 4\r\nContent-Length: 4\r\n\r\n{}  ",
        head("POST /v1/turn") + &token + "Content-Length: 300000000\r\n\r\n{}",
        head("POST /v1/turn") + "Authorization: Bearer no\r\nContent-Length: 2\r\n\r\n{}",
        head("POST http://localhost:4000/v1/turn") + &token + "Content-Length: 2\r\n\r\n{}",
        head("PUT /v1/memory_create") + &token + "Content-Length: 12\r\n\r\n{\"text\":\"a\"}",
        format!("GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /healthz HTTP/1.0\r\n{host}\r\n"),
        format!("GET /healthz HTTP/1.1\r\n{host}{host}\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "GET /healthz HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n".to_owned(),
    ];
    let kinds = [0u8, 1, 3, 16].into_iter().enumerate();
    let seeds = kinds.flat_map(|(at, kind)| {
        requests.iter().skip(at).step_by(if at < 2 { 1 } else { 4 }).map(move |request| after(kind, request.as_bytes()))
    });
    seeds.collect()
}

/// Calls that between them read and change most of a thread.
const AROUND: &Calls = &[
    ("member_remove", 1, r#"{"thread":"$t","agent":"$B"}"#),
    ("member_role", 1, r#"{"thread":"$t","agent":"$B","role":"observer"}"#),
    ("entry_post", 1, r#"{"thread":"$t","text":"a","ask":["$B"],"reply_to":2}"#),
    ("entry_handle", 2, r#"{"thread":"$t","entry":3}"#),
    ("thread_close", 1, r#"{"thread":"$t"}"#),
    ("thread_join", 5, r#"{"ticket":"$k"}"#),
    ("assignment_take", 2, r#"{"assignment":"$o"}"#),
    ("assignment_accept", 1, r#"{"assignment":"$d"}"#),
    ("memory_update", 1, r#"{"memory":"$m","text":"y"}"#),
    ("agent_deactivate", 0, r#"{"agent":"$B"}"#),
    ("working_set", 2, r#"{"object":"$t"}"#),
    ("ledger_verify", 0, r#"{"object":"$t"}"#),
];

fn of_store() -> Vec<Vec<u8>> {
    let derived = u8::try_from(Table::ALL.len() - 1).expect("few tables");
    let cells = derived + 1;
    let mut seeds = Vec::new();
    for (at, calls) in CALLS.iter().enumerate() {
        let calls: Vec<_> = calls.iter().filter(|(operation, ..)| *operation != "+").copied().collect();
        let calls = lines(&calls);
        let row = u8::try_from(at * 3).expect("few calls");
        // A row of the derived table, of another table, a number in a cell, and texts that are no UTF-8.
        seeds.push([&[0, 1, derived, row, 0, 7, 0x05, 1, 0, 0xff], &calls[..]].concat());
        seeds.push([&[2, 1, row % derived, row, 0, 7, 0x05, 2, 0, 0x01], &calls[..]].concat());
        seeds.push([&[0, 1, cells, row, 0, 4, row, 9], &calls[..]].concat());
        seeds.push([&[0x21, 0, 0xff, 0xfe], &calls[..]].concat());
    }
    for row in 0..128 {
        seeds.push([&[0, 2, cells, row, 0, 4, row, 0, cells, row, 0, 4, row + 3, 9], &lines(AROUND)[..]].concat());
    }
    seeds.push(vec![4, 0]);
    seeds.extend((0..40).map(|row| vec![4, 1, row % derived, row, 0, 7, 0x05, 9, 0, 0x01]));
    seeds
}
