//! Forged logs: what a replica does not accept, and why. What the other modules on this begin with, and what holds of
//! every log.

use kwoon_keys::id::{AgentId, AssignmentId};
use kwoon_keys::{Digest, KeyPair, cbor};
use kwoon_ledger::action::{Body, ObjectId, SCHEMA, Source};
use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::{Cause, Due, Fact, Rejection, Seal, SealedOutcome, fact_hash, head_hash, running_digest};
use kwoon_ledger::identity::Status;
use kwoon_ledger::log;
use kwoon_ledger::refusal::Code;
use kwoon_ledger::replica::{self, FoldError};
use kwoon_ledger::rules::memory::publication_id;
use kwoon_ledger::storage::Overlay;
use kwoon_ledger::time::{Duration, Time};
use kwoon_tests::forge::{Log, head, post, record, records, sign, status, stranger};
use kwoon_tests::{Agent, Hall, rule, text};
use minicbor::bytes::ByteVec;
use serde_json::json;

pub(crate) fn rejected(rejection: Rejection) -> FoldError {
    FoldError::Rejected(rejection)
}

/// A thread in which two agents asked, answered and worked, with deadlines that came and one that did not yet.
pub(crate) struct Busy {
    pub(crate) hall: Hall,
    pub(crate) alice: Agent,
    pub(crate) bob: Agent,
    pub(crate) thread: String,
}

impl Busy {
    pub(crate) fn new() -> Self {
        let mut hall = Hall::new();
        let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
        let thread = hall.thread(&alice, &[&bob]);
        let question = hall.post(&alice, &thread, json!({}));
        hall.post(&bob, &thread, json!({"reply_to": question}));
        let work = hall.assign(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
        hall.ok(&bob, "assignment_take", json!({"assignment": work}));
        hall.advance(Duration::minutes(61));
        hall.post(&alice, &thread, json!({"ask": []}));
        let open = hall.assign(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
        hall.ok(&bob, "assignment_take", json!({"assignment": open}));
        Self { hall, alice, bob, thread }
    }

    pub(crate) fn log(&self) -> Log {
        Log::of(&self.hall, &self.thread)
    }

    pub(crate) fn key(&self, agent: &Agent) -> KeyPair {
        self.hall.instance(agent).signing
    }

    /// The index of the first entry.
    pub(crate) fn posted(&self, log: &Log) -> usize {
        log.find_action(|body| matches!(body, Body::EntryPost(_)))
    }
}

/// Seals a fact with these effects, whether they follow from it or not, as a host can that wants to deceive.
pub(crate) fn outcome_of(mut fact: Fact, effects: &[Effect], host: &KeyPair) -> SealedOutcome {
    let effects = cbor::write(&effects.to_vec());
    let digest_before = Digest::of("before", &[]);
    fact.digest = running_digest(&digest_before, fact.index, &effects);
    let bytes = cbor::write(&fact);
    let seal = Seal {
        schema: SCHEMA,
        object: fact.object,
        epoch: fact.epoch,
        index: fact.index,
        head: head_hash(&fact.previous, &fact_hash(&bytes)),
        log_time: fact.log_time,
        wall_time: fact.log_time,
    };
    SealedOutcome {
        fact: bytes.into(),
        effects: effects.into(),
        digest_before,
        later: Vec::new(),
        seal: seal.sign(host).into(),
    }
}

/// Bob's memory, published and updated and unpublished: its own log and its publication's.
pub(crate) struct Published {
    pub(crate) hall: Hall,
    pub(crate) bob: Agent,
    pub(crate) memory: Log,
    pub(crate) publication: Log,
}

impl Published {
    pub(crate) fn new() -> Self {
        let mut hall = Hall::new();
        let bob = hall.agent("bob");
        let id = text(&hall.ok(&bob, "memory_create", json!({"text": "one"}))["result"]["memory"]);
        hall.ok(&bob, "memory_update", json!({"memory": id, "text": "still private"}));
        hall.ok(&bob, "memory_publish", json!({"memory": id}));
        hall.ok(&bob, "memory_update", json!({"memory": id, "text": "two"}));
        hall.ok(&bob, "memory_unpublish", json!({"memory": id}));
        let memory = Log::of(&hall, &id);
        let ObjectId::Memory(of) = memory.object else { panic!("a memory") };
        let publication = Log::of(&hall, &publication_id(&of).to_string());
        Self { hall, bob, memory, publication }
    }

    pub(crate) fn outcome(&self, index: usize) -> SealedOutcome {
        log::outcome(&self.hall.snapshot(), self.memory.number, index as u64).unwrap().unwrap()
    }

    pub(crate) fn effects(&self, index: usize) -> Vec<Effect> {
        log::effects(&self.hall.snapshot(), self.memory.number, index as u64).unwrap()
    }
}

// ------------------------------------------------------------------------------------------------ everywhere

/// One action body of each kind, referring to nothing that is there.
fn bodies(hall: &Hall, agent: &Agent) -> Vec<Body> {
    let Body::EntryPost(entry) = post("x") else { panic!("an entry") };
    let Source::New(said) = entry.source else { panic!("a text") };
    let (text, id) = (said.commitment, AssignmentId::of(&[]));
    let version = kwoon_ledger::action::Version { text: said, title: None, summary: None, tags: Vec::new() };
    let request = log::action_of(&Log::of(hall, &agent.id).fact(0)).unwrap().request();
    let grant = kwoon_ledger::action::Grant { key: stranger().public(), role: kwoon_ledger::action::Role::Speaker };
    let output = kwoon_ledger::action::Output { payload: Some(said), memories: Vec::new() };
    let genesis = log::action_of(&Log::of(hall, &agent.id).fact(0)).unwrap().body;
    let update = kwoon_ledger::action::MemoryUpdate { version: version.clone(), expected_version: Some(9) };
    let reply = kwoon_ledger::action::EntryPost { reply_to: Some(request), ..entry };
    vec![
        genesis,
        record(hall, agent, status(Status::Active)).body,
        Body::MemoryCreate(version),
        Body::MemoryUpdate(update),
        Body::MemoryPublish,
        Body::ThreadCreate(kwoon_ledger::action::ThreadCreate { subject: None, admission: None }),
        Body::AdmissionIssue(kwoon_ledger::action::Grant { key: kwoon_keys::PublicKey([0; 32]), ..grant }),
        Body::ThreadJoin(grant.id(), ByteVec::from(vec![0x80])),
        Body::ThreadLeave,
        Body::MemberRemove(AgentId::of(&[])),
        Body::MemberRole(AgentId::of(&[]), grant.role),
        Body::EntryPost(reply),
        Body::EntryHandle(request, None),
        Body::EntryRetract(request),
        Body::AssignmentTake(id, None),
        Body::AssignmentDeliver(id, output),
        Body::AssignmentAccept(id),
        Body::AssignmentReturn(id, text),
        Body::AssignmentAbandon(id),
        Body::AssignmentVoid(id),
    ]
}

#[test]
fn no_log_takes_what_belongs_elsewhere_or_makes_it_look_like_a_damaged_store() {
    rule!(refused, "C1", "P2");
    let mut hall = Hall::new();
    let bob = hall.agent("bob");
    let memory = text(&hall.ok(&bob, "memory_create", json!({"text": "x"}))["result"]["memory"]);
    hall.ok(&bob, "memory_publish", json!({"memory": memory}));
    let thread = hall.thread(&bob, &[]);
    let ObjectId::Memory(of) = Log::of(&hall, &memory).object else { panic!("a memory") };
    let publication = publication_id(&of).to_string();
    let outcome = |id: &str, index| log::outcome(&hall.snapshot(), Log::of(&hall, id).number, index).unwrap().unwrap();
    for id in [&bob.id, &memory, &publication, &thread] {
        let log = Log::of(&hall, id);
        let mut causes = vec![
            Cause::Consequence(outcome(&memory, 0)),
            Cause::Consequence(outcome(&memory, 1)),
            Cause::Consequence(outcome(&thread, 0)),
            Cause::Expiry(Due::Delivery(AssignmentId::of(&[]))),
            Cause::Expiry(Due::Judgment(AssignmentId::of(&[]))),
            Cause::Account(bob.full_id(), records(&hall, &bob)),
        ];
        for body in bodies(&hall, &bob) {
            causes.push(Cause::Action(sign(&log.action(&hall, &bob, body), &hall.instance(&bob).signing)));
        }
        for cause in causes {
            let why = log.rejects_next(cause.clone());
            assert!(!matches!(why, FoldError::Unreadable(_)), "{id}: {cause:?}: {why:?}");
            assert_ne!(why, FoldError::Refused(Code::Internal), "{id}: {cause:?}");
        }
    }
}

#[test]
fn numbers_at_their_end_are_rejected_like_any_other() {
    rule!(refused, "C1");
    let published = Published::new();
    let host = published.hall.key("host");
    let mut fact = published.memory.fact(2);
    fact.index = u64::MAX;
    let mut outcome = outcome_of(fact.clone(), &published.effects(2), &host);
    let log = &published.publication;
    outcome.later.push(Digest::default());
    let head = head_hash(&head_hash(&fact.previous, &fact_hash(&outcome.fact)), &Digest::default());
    let seal = Seal::verify(&outcome.seal, &host.public()).unwrap();
    outcome.seal = Seal { head, index: 0, ..seal }.sign(&host).into();
    assert_eq!(log.rejects_next(Cause::Consequence(outcome)), rejected(Rejection::Seal));
    assert_eq!(log.rejects_fact(1, |fact| fact.index = u64::MAX), rejected(Rejection::Chain));
    let key = published.hall.instance(&published.bob).signing;
    let memory = &published.memory;
    let why = memory.rejects_action(1, &key, |action| action.position.as_mut().unwrap().index = u64::MAX);
    assert_eq!(why, rejected(Rejection::Chain));
    let why = memory.rejects_fact(1, |fact| fact.log_time = Time(u64::MAX));
    assert_eq!(why, FoldError::Refused(Code::ActionExpired));
}

// ------------------------------------------------------------------------------------------------ every byte

#[test]
fn no_changed_byte_of_a_log_goes_unnoticed() {
    rule!(refused, "L1.2");
    let busy = Busy::new();
    let published = Published::new();
    for (log, hall) in [(busy.log(), &busy.hall), (published.publication.clone(), &published.hall)] {
        let host = hall.key("host").public();
        let last = Seal::verify(log.seals.last().unwrap(), &host).unwrap();
        assert_eq!(last.head, log.head().hash);
        for (at, good) in log.facts.iter().enumerate() {
            let before = log.fold(at);
            for byte in 0..good.len() {
                let mut bytes = good.clone();
                bytes[byte] ^= 1 << (byte % 8);
                let mut overlay = Overlay::new(&before);
                if replica::fold(&mut overlay, log.number, &bytes).is_err() {
                    assert!(overlay.batch.is_empty());
                    continue;
                }
                // What was not verified is still under the head, so that no seal there is matches.
                let (head, index) = (head(&overlay, log.number), at as u64);
                let sealed = log.seals.iter().filter_map(|seal| Seal::verify(seal, &host).ok());
                assert!(sealed.into_iter().all(|seal| seal.head != head.hash), "byte {byte} of fact {index}");
                assert!(at + 1 == log.facts.len() || log.fact(at + 1).previous != head.hash);
            }
        }
    }
}
