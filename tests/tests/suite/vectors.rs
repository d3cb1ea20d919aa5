//! The encodings of docs/format.md. Every value is rebuilt here from fixed inputs and compared with docs/vectors.json,
//! byte for byte; every record kind and every variant has one.
//!
//! `KWOON_WRITE_VECTORS=1` writes the file anew. A change of it is a change of the format.

mod bodies;
mod derived;
mod described;
mod effects;
mod facts;
mod files;
mod inputs;
mod logs;
mod peers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use kwoon_keys::{KeyPair, RecordKind, cbor, cose};
use minicbor::{Decode, Encode};
use serde_json::{Map, Value, json};

/// Gathers vectors, and checks of each record that it reads back.
#[derive(Default)]
pub struct Vectors {
    sections: BTreeMap<&'static str, Vec<(String, Value)>>,
}

/// The sections of the file, in their order there.
const SECTIONS: [&str; 5] = ["keys", "records", "signed", "derivations", "logs"];

impl Vectors {
    /// Adds a vector of any kind.
    pub fn add(&mut self, section: &'static str, name: &str, value: Value) {
        let section = self.sections.entry(section).or_default();
        assert!(section.iter().all(|(other, _)| other != name), "two vectors are named {name}");
        section.push((name.to_owned(), value));
    }

    /// Adds a record and returns its bytes. It must read back to the same value, strictly.
    pub fn record<T>(&mut self, name: &str, value: &T) -> Vec<u8>
    where
        T: Encode<()> + for<'b> Decode<'b, ()> + PartialEq + std::fmt::Debug,
    {
        let bytes = cbor::write(value);
        let read: T = cbor::read_strict(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read, *value, "{name} reads back as something else");
        self.add("records", name, json!({"cbor": hex(&bytes), "diagnostic": diagnostic(&bytes)}));
        bytes
    }

    /// Adds a signed record and returns the signed bytes.
    pub fn signed<T>(&mut self, name: &str, kind: RecordKind, value: &T, pair: &KeyPair) -> Vec<u8>
    where
        T: Encode<()> + for<'b> Decode<'b, ()> + PartialEq + std::fmt::Debug,
    {
        let payload = self.record(name, value);
        let signed = cose::sign(kind, &payload, pair);
        assert_eq!(cose::verify(kind, &signed, &pair.public()), Ok(payload.as_slice()), "{name} verifies");
        let vector = json!({
            "seed": hex(pair.seed().as_ref()),
            "public_key": pair.public().to_string(),
            "payload": name,
            "cose": hex(&signed),
        });
        self.add("signed", name, vector);
        signed
    }

    /// The names of a section.
    pub fn names(&self, section: &str) -> Vec<&str> {
        self.sections.get(section).into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    fn document(&self) -> Value {
        let sections = SECTIONS.iter().map(|section| {
            let vectors: Map<String, Value> =
                self.sections.get(section).cloned().unwrap_or_default().into_iter().collect();
            ((*section).to_owned(), Value::Object(vectors))
        });
        Value::Object(sections.collect())
    }
}

/// The vectors of every record.
fn all() -> Vectors {
    let mut vectors = Vectors::default();
    inputs::add(&mut vectors);
    bodies::add(&mut vectors);
    facts::add(&mut vectors);
    effects::add(&mut vectors);
    derived::add(&mut vectors);
    files::add(&mut vectors);
    peers::add(&mut vectors);
    logs::add(&mut vectors);
    vectors
}

/// Bytes as the file shows them.
pub fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The diagnostic notation of an item (RFC 8949, 8), as far as records use CBOR.
pub fn diagnostic(bytes: &[u8]) -> String {
    use minicbor::data::Type;
    fn item(d: &mut minicbor::Decoder<'_>) -> String {
        match d.datatype().expect("an item") {
            Type::Array => {
                let length = d.array().expect("an array").expect("of definite length");
                format!("[{}]", (0..length).map(|_| item(d)).collect::<Vec<_>>().join(", "))
            }
            Type::Map => {
                let length = d.map().expect("a map").expect("of definite length");
                let entries: Vec<_> = (0..length).map(|_| format!("{}: {}", item(d), item(d))).collect();
                format!("{{{}}}", entries.join(", "))
            }
            Type::Bytes => format!("h'{}'", hex(d.bytes().expect("bytes"))),
            Type::String => Value::from(d.str().expect("a text")).to_string(),
            Type::Bool => d.bool().expect("a truth value").to_string(),
            Type::Null => {
                d.null().expect("null");
                "null".to_owned()
            }
            _ => d.int().expect("an integer").to_string(),
        }
    }
    item(&mut minicbor::Decoder::new(bytes))
}

/// Defines the names of an enum's variants: a new variant does not compile before it is named here, and a named one
/// must have a vector.
macro_rules! variants {
    ($($function:ident($type:ident: $enum:ty) { $($variant:ident),+ $(,)? })+) => {
        $(
            /// The name under which the vectors of a variant stand.
            pub fn $function(value: &$enum) -> &'static str {
                use $enum as This;
                match value { $(This::$variant { .. } => concat!(stringify!($type), ".", stringify!($variant)),)+ }
            }
        )+

        /// Every variant of every enum of the format.
        pub const VARIANTS: &[&str] = &[$($(concat!(stringify!($type), ".", stringify!($variant)),)+)+];
    };
}

variants! {
    object_name(ObjectId: kwoon_ledger::action::ObjectId) { Identity, Memory, Publication, Thread, Task, Engagement }
    actor_name(Actor: kwoon_ledger::action::Actor) { Agent, Owner }
    media_type_name(MediaType: kwoon_ledger::action::MediaType) { Plain, Markdown, Html, Csv, Json, Yaml, Xml }
    status_name(Status: kwoon_ledger::identity::Status) { Active, Deactivated, Terminated }
    role_name(Role: kwoon_ledger::action::Role) { Observer, Speaker, Governor }
    change_name(Change: kwoon_ledger::identity::Change) {
        Profile, Status, InstanceAdded, InstanceRevoked, HomeHost
    }
    source_name(Source: kwoon_ledger::action::Source) { New, Pinned }
    body_name(Body: kwoon_ledger::action::Body) {
        AgentCreate, AgentChange, MemoryCreate, MemoryUpdate, MemoryPublish, MemoryUnpublish, MemoryWithdraw,
        ThreadCreate, AdmissionIssue, AdmissionVoid, ThreadJoin, ThreadLeave, ThreadClose, MemberRemove, MemberRole,
        EntryPost, EntryHandle, EntryRetract, AssignmentTake, AssignmentDeliver, AssignmentAccept, AssignmentReturn,
        AssignmentAbandon, AssignmentVoid,
    }
    cause_name(Cause: kwoon_ledger::fact::Cause) { Action, Expiry, Account, Epoch, Consequence, Begun }
    due_name(Due: kwoon_ledger::fact::Due) { Delivery, Judgment }
    evidence_name(Evidence: kwoon_ledger::fact::Evidence) { Publication }
    epoch_reason_name(EpochReason: kwoon_ledger::fact::EpochReason) {
        Handover, LastReaderGone, Copy, Lost, Fork, Move
    }
    outcome_result_name(OutcomeResult: kwoon_ledger::fact::OutcomeResult) { Existing, Refused }
    detail_value_name(DetailValue: kwoon_ledger::fact::DetailValue) { Text, Number }
    log_item_name(LogItem: kwoon_sync::logfile::LogItem) { Fact, Seal, Content, End }
    record_type_name(RecordType: kwoon_sync::quarantine::RecordType) { Header, Item, Fact, Seal }
    reason_name(Reason: kwoon_sync::quarantine::Reason) { UnknownVersion, UnknownKind }
    duty_name(Duty: kwoon_ledger::effect::Duty) { Respond, Deliver, Judge }
    exit_name(Exit: kwoon_ledger::effect::Exit) {
        Replied, Handled, Taken, Retracted, MembershipEnded, Demoted, Closed, Delivered, Abandoned, Voided, Judged,
        Expired,
    }
    departure_name(Departure: kwoon_ledger::effect::Departure) { Left, Removed, Inactive }
    final_name(Final: kwoon_ledger::effect::Final) { Accepted, NotPassed, Undecided, Abandoned, TimedOut, Voided }
    effect_name(Effect: kwoon_ledger::effect::Effect) {
        IdentitySet, AccountSet, MemoryCreated, VersionAdded, MadePublic, MadePrivate, MemoryWithdrawn, PublicationSet,
        PublicationEnded, ThreadCreated, AdmissionIssued, AdmissionVoided, MembershipBegan, MembershipEnded, RoleSet,
        EntryPosted, ObligationBegan, ObligationEnded, AssignmentOffered, AssignmentTaken, AssignmentDelivered,
        AssignmentEnded, JudgmentForfeited, ThreadClosed, EpochBegan,
    }
    progress_name(Progress: kwoon_ledger::outbox::Progress) { Pending, Refused, Expired }
    message_name(Message: kwoon_sync::wire::Message) {
        Hello, Heads, Want, Facts, Actions, Verdicts, WantContents, Contents, AskSeal, Ranges, Items, Ending, AskVoice,
        Voice,
    }
    verdict_name(Verdict: kwoon_sync::wire::Verdict) { Sealed, Ended, NotTaken, PassedOn, Elsewhere }
}

#[test]
fn the_vectors_are_what_the_code_makes() {
    let vectors = all();
    let document = vectors.document();
    let text = format!("{}\n", serde_json::to_string_pretty(&document).expect("JSON"));
    let path = docs().join("vectors.json");
    if std::env::var_os("KWOON_WRITE_VECTORS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &text).expect("the file can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let stored: Value = serde_json::from_str(&written).unwrap_or(Value::Null);
    for section in SECTIONS {
        let made = document[section].as_object().expect("a section");
        for (name, vector) in made {
            assert_eq!(stored[section][name], *vector, "docs/vectors.json, {section}: {name}");
        }
        for name in stored[section].as_object().into_iter().flat_map(Map::keys) {
            assert!(made.contains_key(name), "docs/vectors.json, {section}: {name} is not made by the code");
        }
    }
    assert!(written == text, "docs/vectors.json says the same in other bytes");
}

#[test]
fn every_variant_of_the_format_has_a_vector() {
    let vectors = all();
    let names = vectors.names("records");
    for variant in VARIANTS {
        // A second vector of a variant has a word or two after its name.
        let there = names.iter().any(|name| name.split(' ').next() == Some(variant));
        assert!(there, "{variant} has no vector");
    }
}

#[test]
fn an_unknown_variant_in_an_optional_field_is_not_taken_for_an_absent_field() {
    use kwoon_ledger::action::Output;
    let known = cbor::write(&inputs::output());
    // The media type of the payload is the last item before the memories.
    let at = known.windows(3).position(|part| part == [0x01, 0x01, 0x01]).expect("markdown, then the memories");
    let mut unknown = known.clone();
    unknown[at + 1] = 0x17;
    assert_eq!(cbor::check_deterministic(&unknown), Ok(()));
    assert_eq!(cbor::read_lenient::<Output>(&known), Ok(inputs::output()));
    assert_eq!(cbor::read_lenient::<Output>(&unknown), Err(cbor::CborError::Unknown));
}
