//! Forged references to memories, publications, and memories that an entry brought forth.

use kwoon_keys::Digest;
use kwoon_ledger::action::{Action, Body, ObjectId, Source};
use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::{Cause, Evidence, Origin, Rejection, Seal, SealedOutcome};
use kwoon_ledger::identity::Status;
use kwoon_ledger::log;
use kwoon_ledger::refusal::Code;
use kwoon_ledger::replica::FoldError;
use kwoon_ledger::rules::memory::publication_id;
use kwoon_ledger::state::Cells;
use kwoon_tests::forge::{Log, record, records, sign, status, stranger};
use kwoon_tests::{Agent, Hall, rule, text};
use minicbor::bytes::ByteVec;
use serde_json::json;

use crate::forged::{Published, outcome_of, rejected};

// ------------------------------------------------------------------------------------------------ evidence

/// Bob's public memory, at version 2, and a thread in which Alice refers to it.
struct Referred {
    hall: Hall,
    alice: Agent,
    bob: Agent,
    memory: String,
    log: Log,
    at: usize,
}

impl Referred {
    fn new() -> Self {
        let mut hall = Hall::new();
        let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
        let thread = hall.thread(&alice, &[]);
        let memory = text(&hall.ok(&bob, "memory_create", json!({"text": "one"}))["result"]["memory"]);
        hall.ok(&bob, "memory_publish", json!({"memory": memory}));
        hall.ok(&bob, "memory_update", json!({"memory": memory, "text": "two"}));
        hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}));
        let log = Log::of(&hall, &thread);
        let at = log.find_action(|body| matches!(body, Body::EntryPost(_)));
        Self { hall, alice, bob, memory, log, at }
    }

    fn publication(&self) -> Log {
        let ObjectId::Memory(memory) = Log::of(&self.hall, &self.memory).object else { panic!("a memory") };
        Log::of(&self.hall, &publication_id(&memory).to_string())
    }

    /// With other evidence.
    fn rejects(&self, change: impl FnOnce(&mut SealedOutcome, &mut Vec<ByteVec>)) -> FoldError {
        self.log.rejects_fact(self.at, |fact| {
            let Evidence::Publication(outcome, records) = &mut fact.evidence[0];
            change(outcome, records);
        })
    }
}

#[test]
fn a_reference_to_anothers_memory_stands_on_evidence() {
    rule!(holds, "M8");
    let referred = Referred::new();
    let fact = referred.log.fact(referred.at);
    let Evidence::Publication(outcome, records) = &fact.evidence[0];
    assert!(outcome.verify(&referred.hall.key("host").public()).is_ok());
    assert_eq!(records, &kwoon_tests::forge::records(&referred.hall, &referred.bob));
}

#[test]
fn a_reference_without_evidence_or_with_anothers_is_rejected() {
    rule!(refused, "M8");
    let referred = Referred::new();
    let not_found = FoldError::Refused(Code::NotFound);
    assert_eq!(referred.log.rejects_fact(referred.at, |fact| fact.evidence.clear()), not_found);
    assert_eq!(referred.rejects(|_, records| records.clear()), not_found);
    let alices = records(&referred.hall, &referred.alice);
    assert_eq!(referred.rejects(|_, records| *records = alices), not_found);
    // The publication said version 1 before; that is not the one referred to.
    let publication = referred.publication();
    let old = log::outcome(&referred.hall.snapshot(), publication.number, 0).unwrap().unwrap();
    assert_eq!(referred.rejects(|outcome, _| *outcome = old), not_found);
}

#[test]
fn evidence_that_another_host_sealed_shows_nothing() {
    rule!(refused, "M8", "V1");
    let referred = Referred::new();
    let not_found = FoldError::Refused(Code::NotFound);
    let host = referred.hall.key("host").public();
    let why = referred.rejects(|outcome, _| {
        let seal = Seal::verify(&outcome.seal, &host).unwrap();
        outcome.seal = seal.sign(&stranger()).into();
    });
    assert_eq!(why, not_found);
    assert_eq!(referred.rejects(|outcome, _| outcome.later.push(Digest::default())), not_found);
    assert_eq!(referred.rejects(|outcome, _| outcome.digest_before = Digest::default()), not_found);
    assert_eq!(referred.rejects(|outcome, _| outcome.effects = ByteVec::from(vec![0x80])), not_found);
}

#[test]
fn a_reference_pins_the_version_and_text_that_the_evidence_shows() {
    rule!(refused, "M3", "M8");
    let referred = Referred::new();
    let key = referred.hall.instance(&referred.alice).signing;
    let change = |with: fn(&mut kwoon_ledger::action::Pin)| {
        referred.log.rejects_action(referred.at, &key, |action| {
            let Body::EntryPost(post) = &mut action.body else { panic!("an entry") };
            let Source::Pinned(pin) = &mut post.source else { panic!("a reference") };
            with(pin);
        })
    };
    assert_eq!(change(|pin| pin.version = 1), FoldError::Refused(Code::NotFound));
    assert_eq!(change(|pin| pin.text.commitment.length_bytes += 1), FoldError::Refused(Code::NotFound));
    assert_eq!(change(|pin| pin.memory.0 = Digest::of("x", &[])), FoldError::Refused(Code::BadReference));
    assert_eq!(change(|pin| pin.blind = Digest::of("x", &[])), FoldError::Refused(Code::BadReference));
    // A memory's id is made of its author, so nobody passes another's off as one's own.
    let alice = referred.alice.full_id();
    let why = referred.log.rejects_action(referred.at, &key, |action| {
        let Body::EntryPost(post) = &mut action.body else { panic!("an entry") };
        let Source::Pinned(pin) = &mut post.source else { panic!("a reference") };
        pin.author = alice;
    });
    assert_eq!(why, FoldError::Refused(Code::BadReference));
}

// ------------------------------------------------------------------------------------------------ consequences

#[test]
fn a_publication_says_what_its_memorys_log_said() {
    rule!(holds, "M4", "C1");
    let published = Published::new();
    assert_eq!(published.publication.facts.len(), 3);
    let folded = published.publication.folded();
    let publication = Cells::new(&folded, published.publication.number).publication().unwrap();
    assert_eq!((publication.current, publication.withdrawn, publication.source), (None, false, 4));
}

#[test]
fn a_consequence_is_of_its_memory_and_says_something_new() {
    rule!(refused, "C1", "EV.5", "M4");
    let published = Published::new();
    let log = &published.publication;
    let next = |outcome| log.rejects_next(Cause::Consequence(outcome));
    let evidence = rejected(Rejection::Evidence);
    // Creating it and updating it while private say nothing to the public.
    assert_eq!(log.rejects_fact(0, |fact| fact.cause = Cause::Consequence(published.outcome(0))), evidence);
    assert_eq!(log.rejects_fact(0, |fact| fact.cause = Cause::Consequence(published.outcome(1))), evidence);
    // What it knows, and what is older, does not come again.
    for index in 2..5 {
        assert_eq!(next(published.outcome(index)), evidence);
    }
}

#[test]
fn another_memorys_outcome_is_no_consequence() {
    rule!(refused, "C1", "C3");
    let mut published = Published::new();
    let other = text(&published.hall.ok(&published.bob, "memory_create", json!({"text": "other"}))["result"]["memory"]);
    for _ in 0..3 {
        published.hall.ok(&published.bob, "memory_publish", json!({"memory": other}));
        published.hall.ok(&published.bob, "memory_unpublish", json!({"memory": other}));
    }
    let other = Log::of(&published.hall, &other);
    let outcome = log::outcome(&published.hall.snapshot(), other.number, 5).unwrap().unwrap();
    assert_eq!(published.publication.rejects_next(Cause::Consequence(outcome)), rejected(Rejection::Evidence));
    let thread = published.hall.thread(&published.bob, &[]);
    let thread = Log::of(&published.hall, &thread);
    let outcome = log::outcome(&published.hall.snapshot(), thread.number, 0).unwrap().unwrap();
    let why = published.publication.rejects_next(Cause::Consequence(outcome));
    assert_eq!(why, rejected(Rejection::Evidence));
}

#[test]
fn a_consequence_of_an_outcome_that_does_not_verify_is_rejected() {
    rule!(refused, "C1");
    let published = Published::new();
    let log = &published.publication;
    let change = |with: fn(&mut SealedOutcome)| {
        log.rejects_fact(1, |fact| {
            let Cause::Consequence(outcome) = &mut fact.cause else { panic!("a consequence") };
            with(outcome);
        })
    };
    assert_eq!(change(|o| o.digest_before = Digest::default()), rejected(Rejection::Digest));
    assert_eq!(change(|o| o.effects = ByteVec::from(vec![0x80])), rejected(Rejection::Digest));
    assert_eq!(change(|o| o.effects = ByteVec::from(vec![0xff])), rejected(Rejection::Undecodable));
    assert_eq!(change(|o| o.seal = ByteVec::from(Vec::new())), rejected(Rejection::Seal));
    assert_eq!(change(|o| o.later.push(Digest::default())), rejected(Rejection::Seal));
    assert_eq!(change(|o| o.fact = ByteVec::from(vec![0xa0])), rejected(Rejection::Undecodable));
    // Sealed by another host.
    let host = published.hall.key("host").public();
    let why = log.rejects_fact(1, |fact| {
        let Cause::Consequence(outcome) = &mut fact.cause else { panic!("a consequence") };
        outcome.seal = Seal::verify(&outcome.seal, &host).unwrap().sign(&stranger()).into();
    });
    assert_eq!(why, rejected(Rejection::Seal));
}

#[test]
fn a_host_without_an_instance_of_the_author_publishes_nothing() {
    rule!(refused, "M2", "C1");
    let published = Published::new();
    // It has seen a signed action of the author, and seals a log of its own around it.
    let (fact, effects) = (published.memory.fact(2), published.effects(2));
    let why = published.publication.rejects_fact(0, |opening| {
        opening.cause = Cause::Consequence(outcome_of(fact, &effects, &stranger()));
        opening.opening.as_mut().unwrap().sequencer = stranger().public();
    });
    assert_eq!(why, rejected(Rejection::UnknownInstance));
}

#[test]
fn a_consequence_that_the_authors_action_does_not_ask_for_is_rejected() {
    rule!(refused, "M2", "C1");
    let published = Published::new();
    let host = published.hall.key("host");
    let log = &published.publication;
    let made_public = published.effects(2);
    // The host turns what the author asked for into a publication: a private update, an update of another text.
    let mut fact = published.memory.fact(1);
    fact.index = 5;
    let why = log.rejects_next(Cause::Consequence(outcome_of(fact.clone(), &made_public, &host)));
    assert_eq!(why, rejected(Rejection::Evidence));
    let Effect::VersionAdded(_, other, _) = &published.effects(3)[0] else { panic!("a version") };
    let changed = [Effect::VersionAdded(2, other.clone(), true)];
    let why = log.rejects_next(Cause::Consequence(outcome_of(fact.clone(), &changed, &host)));
    assert_eq!(why, rejected(Rejection::Evidence));
    // Or takes an action on something else.
    let mut elsewhere = fact;
    let ObjectId::Memory(memory) = &mut elsewhere.object else { panic!("a memory") };
    memory.0 = Digest::of("elsewhere", &[]);
    let why = log.rejects_next(Cause::Consequence(outcome_of(elsewhere, &made_public, &host)));
    assert_eq!(why, rejected(Rejection::Evidence));
}

#[test]
fn a_consequence_signed_by_another_is_rejected() {
    rule!(refused, "M2");
    let published = Published::new();
    let host = published.hall.key("host");
    let mut fact = published.memory.fact(2);
    let action = log::action_of(&fact).unwrap();
    fact.index = 5;
    fact.cause = Cause::Action(sign(&action, &stranger()));
    let outcome = outcome_of(fact, &published.effects(2), &host);
    let why = published.publication.rejects_next(Cause::Consequence(outcome));
    assert_eq!(why, rejected(Rejection::Signature));
}

#[test]
fn an_inactive_author_publishes_nothing() {
    rule!(refused, "A1", "A3");
    let published = Published::new();
    let (hall, bob) = (&published.hall, &published.bob);
    let mut fact = published.memory.fact(2);
    fact.index = 5;
    let outcome = outcome_of(fact, &published.effects(2), &hall.key("host"));
    let mut log = published.publication.clone();
    log.push_account(bob, vec![sign(&record(hall, bob, status(Status::Deactivated)), &hall.key("owner"))]);
    assert_eq!(log.rejects_next(Cause::Consequence(outcome)), FoldError::Refused(Code::AgentInactive));
}

#[test]
fn a_publication_takes_no_actions() {
    rule!(refused, "C1");
    let published = Published::new();
    let log = &published.publication;
    let action = log.action(&published.hall, &published.bob, Body::MemoryPublish);
    let why = log.rejects_next(Cause::Action(sign(&action, &published.hall.instance(&published.bob).signing)));
    assert_eq!(why, FoldError::Refused(Code::BadReference));
}

// ------------------------------------------------------------------------------------------------ born memories

/// A memory that an entry of Bob's brought forth and that he made public.
fn born(hall: &mut Hall, bob: &Agent) -> (Log, Log) {
    let thread = hall.thread(bob, &[]);
    let posted = hall.ok(bob, "entry_post", json!({"thread": thread, "text": "born"}));
    let memory = text(&posted["result"]["memory"]);
    hall.ok(bob, "memory_publish", json!({"memory": memory}));
    (Log::of(hall, &thread), Log::of(hall, &memory))
}

#[test]
fn a_memory_born_of_an_entry_begins_with_what_the_entry_said() {
    rule!(holds, "L2.3", "M3");
    let mut hall = Hall::new();
    let bob = hall.agent("bob");
    let (_, memory) = born(&mut hall, &bob);
    let folded = memory.folded();
    assert!(Cells::new(&folded, memory.number).memory().unwrap().public);
}

#[test]
fn a_memory_born_of_anothers_entry_is_not_ones_own() {
    rule!(refused, "M2", "C3");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let (_, memory) = born(&mut hall, &bob);
    let creator = records(&hall, &alice);
    let why = memory.rejects_fact(0, |fact| fact.opening.as_mut().unwrap().creator = creator);
    assert_eq!(why, rejected(Rejection::Identity));
    let why = memory.rejects_fact(1, |fact| {
        let action = Action { position: None, ..memory.action(&hall, &alice, Body::MemoryPublish) };
        fact.cause = Cause::Action(sign(&action, &hall.instance(&alice).signing));
    });
    assert_eq!(why, rejected(Rejection::UnknownInstance));
}

#[test]
fn a_publication_shows_nothing_of_the_thread_that_its_memory_came_from() {
    rule!(holds, "S2", "M7");
    let mut hall = Hall::new();
    let bob = hall.agent("bob");
    let (thread, memory) = born(&mut hall, &bob);
    let publication = Log::of(&hall, &publication_of(&memory));
    let posted = thread.fact(thread.find_action(|body| matches!(body, Body::EntryPost(_))));
    let request = log::action_of(&posted).unwrap().request();
    let (thread_id, request) = (thread.object.digest().as_bytes().as_slice(), request.as_bytes().as_slice());
    let shows = |bytes: &[u8], id: &[u8]| bytes.windows(id.len()).any(|window| window == id);
    assert!(memory.facts.iter().any(|fact| shows(fact, thread_id)), "the author's own log knows where it came from");
    for fact in &publication.facts {
        assert!(!shows(fact, thread_id) && !shows(fact, request));
    }
}

/// The outside id of a memory's publication.
fn publication_of(memory: &Log) -> String {
    let ObjectId::Memory(id) = memory.object else { panic!("a memory's log") };
    publication_id(&id).to_string()
}

#[test]
fn a_thread_made_up_for_it_gives_nobody_anothers_memory() {
    rule!(refused, "M2", "C1");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let (thread, memory) = born(&mut hall, &bob);
    let own = hall.thread(&alice, &[]);
    hall.post(&alice, &own, json!({}));
    let own = Log::of(&hall, &own);
    let at = own.find_action(|body| matches!(body, Body::EntryPost(_)));
    // Alice's host seals that her entry brought forth Bob's memory.
    let posted = thread.find_action(|body| matches!(body, Body::EntryPost(_)));
    let mut effects = log::effects(&hall.snapshot(), thread.number, posted as u64).unwrap();
    for effect in &mut effects {
        if let Effect::EntryPosted(posted) = effect {
            posted.author = alice.full_id();
            posted.pin.author = alice.full_id();
        }
    }
    let origin = Origin { outcome: outcome_of(own.fact(at), &effects, &stranger()), sequencer: stranger().public() };
    let creator = records(&hall, &alice);
    let why = memory.rejects_fact(0, |fact| {
        let opening = fact.opening.as_mut().unwrap();
        (opening.creator, opening.origin) = (creator, Some(origin));
    });
    assert_eq!(why, rejected(Rejection::Evidence));
}

#[test]
fn an_origin_must_verify_and_say_what_the_entry_said() {
    rule!(refused, "M3", "C1");
    let mut hall = Hall::new();
    let bob = hall.agent("bob");
    let (thread, memory) = born(&mut hall, &bob);
    let host = hall.key("host");
    let origin = |change: &dyn Fn(&mut Origin)| {
        memory.rejects_fact(0, |fact| change(fact.opening.as_mut().unwrap().origin.as_mut().unwrap()))
    };
    assert_eq!(origin(&|origin| origin.sequencer = stranger().public()), rejected(Rejection::Seal));
    assert_eq!(origin(&|origin| origin.outcome.effects = vec![0x80].into()), rejected(Rejection::Digest));
    // Another text than the author signed.
    let at = thread.find_action(|body| matches!(body, Body::EntryPost(_)));
    let mut effects = log::effects(&hall.snapshot(), thread.number, at as u64).unwrap();
    for effect in &mut effects {
        if let Effect::EntryPosted(posted) = effect {
            posted.pin.text.commitment.length_bytes += 1;
        }
    }
    let changed = outcome_of(thread.fact(at), &effects, &host);
    assert_eq!(origin(&|origin| origin.outcome = changed.clone()), rejected(Rejection::Evidence));
    // No origin at all, or one where none belongs.
    let why = memory.rejects_fact(0, |fact| fact.opening.as_mut().unwrap().origin = None);
    assert_eq!(why, rejected(Rejection::Chain));
    let good = memory.fact(0).opening.unwrap().origin;
    let why = thread.rejects_fact(0, |fact| fact.opening.as_mut().unwrap().origin = good);
    assert_eq!(why, rejected(Rejection::Chain));
}
