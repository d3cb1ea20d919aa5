//! The fixed inputs of all vectors: keys of known seeds, and ids and digests whose bytes are all the same.

use kwoon_keys::id::{AgentId, AssignmentId, InstanceId, MemoryId, RequestId, ThreadId};
use kwoon_keys::{Commitment, Digest, KeyPair, RequestSecret, SealedBoxKey};
use kwoon_ledger::action::{Assign, Grant, MediaType, Output, Pin, Role, Text, Version};
use kwoon_ledger::identity::{Instance, PolicyRef};
use kwoon_ledger::time::{Duration, Time};
use serde_json::json;

use super::{Vectors, hex};

/// 2026-11-30T12:00:00Z.
pub const NOON: Time = Time(1_796_040_000_000);

/// A digest of equal bytes.
pub fn digest(byte: u8) -> Digest {
    Digest([byte; 32])
}

pub fn owner() -> KeyPair {
    KeyPair::from_seed(&[0x01; 32])
}

pub fn host() -> KeyPair {
    KeyPair::from_seed(&[0x02; 32])
}

/// The key of the instance on [`host`].
pub fn instance_key() -> KeyPair {
    KeyPair::from_seed(&[0x03; 32])
}

pub fn encryption_key() -> SealedBoxKey {
    SealedBoxKey::from_seed([0x04; 32])
}

pub fn secret() -> RequestSecret {
    RequestSecret::new([0x05; 32])
}

/// Who an agent is handed over to.
pub fn next_owner() -> KeyPair {
    KeyPair::from_seed(&[0x06; 32])
}

pub fn admission_key() -> KeyPair {
    KeyPair::from_seed(&[0x07; 32])
}

pub fn instance() -> Instance {
    Instance { signing_key: instance_key().public(), encryption_key: encryption_key().public(), host: host().public() }
}

pub fn agent() -> AgentId {
    AgentId(digest(0xa1))
}

pub fn other_agent() -> AgentId {
    AgentId(digest(0xa2))
}

pub fn instance_id() -> InstanceId {
    instance().id()
}

pub fn memory() -> MemoryId {
    MemoryId(digest(0xb1))
}

pub fn thread() -> ThreadId {
    ThreadId(digest(0xc1))
}

pub fn assignment() -> AssignmentId {
    AssignmentId(digest(0xd1))
}

pub fn request() -> RequestId {
    RequestId(digest(0xe1))
}

/// A commitment whose hash is of equal bytes.
pub fn commitment(byte: u8) -> Commitment {
    Commitment { hash: digest(byte), length_bytes: 300 }
}

pub fn text() -> Text {
    Text { commitment: commitment(0x11), media_type: MediaType::Markdown }
}

pub fn version() -> Version {
    Version {
        text: text(),
        title: Some(commitment(0x12)),
        summary: Some(commitment(0x13)),
        tags: vec![commitment(0x14), commitment(0x15)],
    }
}

/// A version with nothing but its text.
pub fn bare_version() -> Version {
    Version { text: text(), title: None, summary: None, tags: Vec::new() }
}

pub fn pin() -> Pin {
    Pin { memory: memory(), version: 2, text: text(), author: agent(), blind: digest(0xb2) }
}

pub fn grant() -> Grant {
    Grant { key: admission_key().public(), role: Role::Speaker }
}

pub fn policy() -> PolicyRef {
    PolicyRef { name: commitment(0x16), version: 3 }
}

pub fn terms() -> Assign {
    Assign {
        to: other_agent(),
        criteria: commitment(0x17),
        output_schema: Some(commitment(0x18)),
        deliver_within: Duration::days(2),
        judge_within: Duration::days(7),
        redoes: Some(assignment()),
    }
}

pub fn output() -> Output {
    Output { payload: Some(text()), memories: vec![pin()] }
}

pub fn add(vectors: &mut Vectors) {
    let pairs = [
        ("owner", owner()),
        ("host", host()),
        ("instance", instance_key()),
        ("next owner", next_owner()),
        ("admission", admission_key()),
    ];
    for (name, pair) in pairs {
        let vector = json!({
            "algorithm": "Ed25519",
            "seed": hex(pair.seed().as_ref()),
            "public_key": pair.public().to_string(),
        });
        vectors.add("keys", name, vector);
    }
    let key = encryption_key();
    let vector = json!({
        "algorithm": "X25519",
        "seed": hex(key.seed().as_ref()),
        "public_key": key.public().to_string(),
    });
    vectors.add("keys", "encryption", vector);
    vectors.add("keys", "agent secret", json!({"secret": hex(secret().bytes().as_ref())}));

    vectors.record("Commitment", &commitment(0x11));
    vectors.record("Text", &text());
    vectors.record("Version", &version());
    vectors.record("Version with nothing but its text", &bare_version());
    vectors.record("Pin", &pin());
    vectors.record("Instance", &instance());
    vectors.record("Grant", &grant());
    vectors.record("PolicyRef", &policy());
    vectors.record("Assign", &terms());
    vectors.record("Output", &output());
}
