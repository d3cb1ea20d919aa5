//! What is derived: ids and their outside form, tokens, salts, commitments, hashes of chains, tickets and key files.

use kwoon_keys::id::{
    AdmissionId, AgentId, AssignmentId, EngagementId, InstanceId, MemoryId, ObligationId, PublicationId, QuarantineId,
    ReceiptId, RequestId, TaskId, ThreadId,
};
use kwoon_keys::secret::{InstanceKeys, request_id};
use kwoon_keys::{Commitment, Digest, RequestSecret, cbor, files};
use kwoon_ledger::action::attempt_hash;
use kwoon_ledger::fact::{fact_hash, head_hash, running_digest};
use kwoon_ledger::index::receipt_id;
use kwoon_ledger::rules::identity::record_hash;
use kwoon_ledger::rules::memory::{blind, memory_id, publication_id};
use kwoon_ledger::rules::{assignment::assignment_id, thread::thread_id};
use kwoon_sync::ticket::{HostHint, Ticket};

use super::bodies::{action, first_record};
use super::effects::{delivery, response};
use super::facts::{effects, fact};
use super::inputs::*;
use super::*;

fn derivation(vectors: &mut Vectors, name: &str, inputs: Value, output: impl AsRef<[u8]>) {
    vectors.add("derivations", name, json!({"inputs": inputs, "output": hex(output.as_ref())}));
}

pub fn add(vectors: &mut Vectors) {
    add_hashes(vectors);
    add_outside_forms(vectors);
    add_ids(vectors);
    add_secrets(vectors);
    add_chain(vectors);
    add_texts(vectors);
}

fn add_hashes(vectors: &mut Vectors) {
    let parts: [&[u8]; 3] = [b"ab", b"", &[0xff; 300]];
    let inputs = json!({"context": "kwoon 1 fact", "parts": parts.map(hex)});
    derivation(vectors, "hash", inputs, Digest::of("kwoon 1 fact", &parts).0);
    let inputs = json!({"context": "kwoon 1 salt", "key": hex(&[5; 32]), "parts": parts.map(hex)});
    derivation(vectors, "keyed hash", inputs, Digest::keyed("kwoon 1 salt", &[5; 32], &parts).0);
}

fn add_outside_forms(vectors: &mut Vectors) {
    let bytes: Vec<u8> = (0..32).map(|n| n * 7).collect();
    let id = Digest(bytes.as_slice().try_into().expect("32 bytes"));
    let shown = [
        AgentId(id).to_string(),
        InstanceId(id).to_string(),
        MemoryId(id).to_string(),
        PublicationId(id).to_string(),
        ThreadId(id).to_string(),
        TaskId(id).to_string(),
        EngagementId(id).to_string(),
        AssignmentId(id).to_string(),
        RequestId(id).to_string(),
        ObligationId(id).to_string(),
        ReceiptId(id).to_string(),
        AdmissionId(id).to_string(),
        QuarantineId(id).to_string(),
    ];
    vectors.add("derivations", "outside forms", json!({"inputs": {"id": hex(&bytes)}, "output": shown}));
}

fn add_ids(vectors: &mut Vectors) {
    let payload = cbor::write(&first_record());
    let inputs = json!({"payload": "Action that is a first identity record"});
    derivation(vectors, "agent id", inputs, record_hash(&payload).0);
    derivation(vectors, "instance id", json!({"instance": "Instance"}), instance_id().as_bytes());

    let (host, request) = (host().public().0, request());
    let (shown_host, shown_request, shown_thread) = (hex(&host), hex(request.as_bytes()), hex(thread().as_bytes()));
    let by_author = json!({"author": hex(agent().as_bytes()), "request": shown_request, "place": shown_host});
    derivation(vectors, "memory id", by_author, memory_id(&agent(), &request, &host).as_bytes());
    let by_author = json!({"author": hex(agent().as_bytes()), "request": shown_request, "place": shown_thread});
    let born = memory_id(&agent(), &request, thread().as_bytes());
    derivation(vectors, "memory id, born of an entry", by_author, born.as_bytes());
    let at_host = json!({"request": shown_request, "place": shown_host});
    let in_thread = json!({"request": shown_request, "place": shown_thread});
    derivation(vectors, "memory blind", at_host.clone(), blind(&request, &host).0);
    derivation(vectors, "thread id", at_host, thread_id(&request, &host).as_bytes());
    derivation(vectors, "assignment id", in_thread, assignment_id(&request, &thread()).as_bytes());
    let inputs = json!({"memory": hex(memory().as_bytes())});
    derivation(vectors, "publication id", inputs, publication_id(&memory()).as_bytes());
    derivation(vectors, "receipt id", json!({"request": shown_request}), receipt_id(&request).as_bytes());
    derivation(vectors, "admission id", json!({"grant": "Grant"}), grant().id().as_bytes());
    for (name, obligation, record) in [
        ("obligation id", delivery(), "Obligation"),
        ("obligation id of a response", response(), "Obligation of a response"),
    ] {
        let inputs = json!({"thread": shown_thread, "obligation": record});
        derivation(vectors, name, inputs, obligation.id(&thread()).as_bytes());
    }
}

fn add_secrets(vectors: &mut Vectors) {
    let secret = secret();
    let shown = hex(secret.bytes().as_ref());
    let token = secret.token("entry_post", "k-1");
    let inputs = json!({"secret": shown, "operation": "entry_post", "key": "k-1"});
    derivation(vectors, "request token", inputs, token.0);
    let inputs = json!({"actor": hex(agent().as_bytes()), "token": hex(&token.0)});
    let request = request_id(agent().as_bytes(), &token);
    derivation(vectors, "request id", inputs, request.as_bytes());
    let arguments = r#"{"text":"hello","thread":"thr_ykqv6xdhjiftcmhzbi6hyfvtwq",}"#;
    let inputs = json!({"secret": shown, "arguments": arguments});
    derivation(vectors, "request digest", inputs, secret.request_digest(arguments.as_bytes()).0);
    let place = *thread().as_bytes();
    let salt = secret.salt(&request, &place, "text");
    let inputs = json!({"secret": shown, "request": hex(request.as_bytes()), "place": hex(&place), "field": "text"});
    derivation(vectors, "salt", inputs, salt.as_bytes());
    let content = "héllo\n";
    let committed = Commitment::to(&salt, content.as_bytes());
    let inputs = json!({"salt": hex(salt.as_bytes()), "content": content, "length_bytes": committed.length_bytes});
    derivation(vectors, "commitment", inputs, committed.hash.0);
    let admission = secret.admission(&request, &place);
    let inputs = json!({"secret": shown, "request": hex(request.as_bytes()), "place": hex(&place)});
    derivation(vectors, "admission key seed", inputs, admission.seed().as_ref());
    let inputs = json!({"owner_seed": hex(owner().seed().as_ref())});
    derivation(vectors, "owner's secret", inputs, RequestSecret::of_owner(&owner()).bytes().as_ref());
}

fn add_chain(vectors: &mut Vectors) {
    let signed = cose::sign(RecordKind::Action, &cbor::write(&action()), &instance_key());
    derivation(vectors, "attempt", json!({"signed": "Action"}), attempt_hash(&signed).0);
    let fact = fact();
    let hash = fact_hash(&cbor::write(&fact));
    derivation(vectors, "fact hash", json!({"fact": "Fact"}), hash.0);
    let inputs = json!({"head_before": hex(&fact.previous.0), "fact_hash": hex(&hash.0)});
    derivation(vectors, "head hash", inputs, head_hash(&fact.previous, &hash).0);
    let effects = cbor::write(&effects());
    let inputs = json!({"digest_before": hex(&[0x41; 32]), "index": fact.index, "effects": hex(&effects)});
    derivation(vectors, "running digest", inputs, running_digest(&digest(0x41), fact.index, &effects).0);
}

fn add_texts(vectors: &mut Vectors) {
    let hint = HostHint { host: host().public(), addresses: vec!["192.0.2.1:4433".to_owned()] };
    let ticket = Ticket::new(thread(), digest(0x51), &admission_key(), vec![hint]);
    let read = Ticket::read(&ticket.text()).expect("a ticket");
    assert_eq!(read.admission().public(), admission_key().public());
    let bytes = cbor::write(&ticket);
    let vector = json!({"cbor": hex(&bytes), "diagnostic": diagnostic(&bytes), "text": ticket.text()});
    vectors.add("derivations", "ticket", vector);

    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("key");
    files::write_pair(&files::Os, &path, "host", &host()).expect("written");
    let text = std::fs::read_to_string(&path).expect("a text");
    vectors.add("derivations", "key file of a host", json!({"inputs": {"key": "host"}, "output": text}));
    files::write_pair(&files::Os, &path, "owner", &owner()).expect("written");
    let text = std::fs::read_to_string(&path).expect("a text");
    vectors.add("derivations", "key file of an owner", json!({"inputs": {"key": "owner"}, "output": text}));
    let keys = InstanceKeys {
        agent: agent(),
        signing: instance_key(),
        opening: encryption_key(),
        secrets: vec![secret(), RequestSecret::new([0x08; 32])],
    };
    files::write_instance(&files::Os, &path, &keys).expect("written");
    let text = std::fs::read_to_string(&path).expect("a text");
    let body = text.lines().nth(1).expect("a second line");
    let bytes = kwoon_keys::id::BASE32.decode(body.as_bytes()).expect("base32");
    let vector = json!({"diagnostic": diagnostic(&bytes), "output": text});
    vectors.add("derivations", "key file of an instance", vector);
}
