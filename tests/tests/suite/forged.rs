//! Forged logs: what a replica does not accept, and why.

use kwoon_keys::id::{AgentId, AssignmentId, InstanceId};
use kwoon_keys::{Digest, KeyPair, RecordKind, cbor, cose};
use kwoon_ledger::action::{Action, Actor, Body, ObjectId, SCHEMA, Source};
use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::{
    Cause, Due, EpochChange, EpochReason, Evidence, Fact, Opening, Origin, RULES, Rejection, Seal, SealedOutcome,
    fact_hash, head_hash, running_digest,
};
use kwoon_ledger::identity::{Change, Status};
use kwoon_ledger::log;
use kwoon_ledger::refusal::Code;
use kwoon_ledger::replica::{self, FoldError};
use kwoon_ledger::rules::memory::publication_id;
use kwoon_ledger::state::Cells;
use kwoon_ledger::storage::{Overlay, Read, Table};
use kwoon_ledger::time::{Duration, Time};
use kwoon_tests::forge::{Log, Nothing, head, post, record, records, sign, status, stranger};
use kwoon_tests::{Agent, Hall, owner, rule, text};
use minicbor::Encode;
use minicbor::bytes::ByteVec;
use serde_json::json;

fn rejected(rejection: Rejection) -> FoldError {
    FoldError::Rejected(rejection)
}

/// A thread in which two agents asked, answered and worked, with deadlines that came and one that did not yet.
struct Busy {
    hall: Hall,
    alice: Agent,
    bob: Agent,
    thread: String,
}

impl Busy {
    fn new() -> Self {
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

    fn log(&self) -> Log {
        Log::of(&self.hall, &self.thread)
    }

    fn key(&self, agent: &Agent) -> KeyPair {
        self.hall.instance(agent).signing
    }

    /// The index of the first entry.
    fn posted(&self, log: &Log) -> usize {
        log.find_action(|body| matches!(body, Body::EntryPost(_)))
    }
}

// ------------------------------------------------------------------------------------------------ who signed

#[test]
fn a_log_that_nobody_touched_folds_from_nothing_to_the_head_that_was_sealed() {
    rule!(holds, "C1", "L1.2");
    let busy = Busy::new();
    let log = busy.log();
    let folded = log.folded();
    let seal = replica::check_seal(&folded, log.number, log.seals.last().unwrap()).unwrap();
    assert_eq!(seal.index, log.facts.len() as u64 - 1);
}

#[test]
fn an_action_signed_with_another_key_is_rejected() {
    rule!(refused, "C1");
    let busy = Busy::new();
    let log = busy.log();
    let at = busy.posted(&log);
    assert_eq!(log.rejects_action(at, &stranger(), |_| {}), rejected(Rejection::Signature));
    assert_eq!(log.rejects_action(at, &busy.key(&busy.bob), |_| {}), rejected(Rejection::Signature));
}

#[test]
fn an_action_that_was_changed_after_it_was_signed_is_rejected() {
    rule!(refused, "C1", "L1.2");
    let busy = Busy::new();
    let log = busy.log();
    let at = busy.posted(&log);
    let why = log.rejects_fact(at, |fact| {
        let Cause::Action(signed) = &fact.cause else { panic!("an action") };
        let mut bytes = signed.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        fact.cause = Cause::Action(bytes.into());
    });
    assert_eq!(why, rejected(Rejection::Signature));
}

#[test]
fn an_action_of_an_instance_that_nobody_listed_is_rejected() {
    rule!(refused, "ID.6");
    let busy = Busy::new();
    let log = busy.log();
    let alice = busy.alice.full_id();
    let why = log.rejects_action(busy.posted(&log), &stranger(), |action| {
        action.actor = Actor::Agent(alice, InstanceId::of(&[b"none"]));
    });
    assert_eq!(why, rejected(Rejection::UnknownInstance));
}

#[test]
fn an_agent_cannot_act_through_anothers_instance() {
    rule!(refused, "ID.6", "C3");
    let busy = Busy::new();
    let log = busy.log();
    let Actor::Agent(bob, his) = log.action(&busy.hall, &busy.bob, post("x")).actor else { panic!("an agent") };
    let alice = busy.alice.full_id();
    assert_ne!(alice, bob);
    let why = log.rejects_action(busy.posted(&log), &busy.key(&busy.bob), |action| {
        action.actor = Actor::Agent(alice, his);
    });
    assert_eq!(why, rejected(Rejection::UnknownInstance));
}

#[test]
fn an_agent_that_the_log_has_not_heard_of_is_rejected() {
    rule!(refused, "C1");
    let mut busy = Busy::new();
    let eve = busy.hall.agent("eve");
    let log = busy.log();
    let action = log.action(&busy.hall, &eve, post("hello"));
    let why = log.rejects_next(Cause::Action(sign(&action, &busy.key(&eve))));
    assert_eq!(why, rejected(Rejection::UnknownInstance));
}

#[test]
fn a_revoked_instance_acts_no_more_once_the_log_knows() {
    rule!(refused, "ID.6");
    let busy = Busy::new();
    let mut log = busy.log();
    let action = log.action(&busy.hall, &busy.alice, post("late"));
    let Actor::Agent(_, instance) = action.actor else { panic!("an agent") };
    let revoked = record(&busy.hall, &busy.alice, Change::InstanceRevoked(instance, Vec::new()));
    log.push_account(&busy.alice, vec![sign(&revoked, &busy.hall.key("owner"))]);
    let why = log.rejects_next(Cause::Action(sign(&action, &busy.key(&busy.alice))));
    assert_eq!(why, rejected(Rejection::UnknownInstance));
}

#[test]
fn an_owner_cannot_speak_in_a_thread() {
    rule!(refused, "C1");
    let busy = Busy::new();
    let log = busy.log();
    let key = busy.hall.key("owner");
    let action = Action { actor: Actor::Owner(key.public()), ..log.action(&busy.hall, &busy.alice, post("x")) };
    let why = log.rejects_next(Cause::Action(sign(&action, &key)));
    assert_eq!(why, FoldError::Refused(Code::BadReference));
}

// ------------------------------------------------------------------------------------------------ the chain

#[test]
fn a_fact_that_does_not_chain_on_is_rejected() {
    rule!(refused, "L1.2", "EV.6");
    let busy = Busy::new();
    let log = busy.log();
    let at = busy.posted(&log);
    let chain = rejected(Rejection::Chain);
    assert_eq!(log.rejects_fact(at, |fact| fact.index += 1), chain);
    assert_eq!(log.rejects_fact(at, |fact| fact.index -= 1), chain);
    assert_eq!(log.rejects_fact(at, |fact| fact.epoch += 1), chain);
    assert_eq!(log.rejects_fact(at, |fact| fact.previous = Digest::of("another", &[])), chain);
    let other = Log::of(&busy.hall, &busy.alice.id).object;
    assert_eq!(log.rejects_fact(at, |fact| fact.object = other), chain);
    assert_eq!(log.rejects_fact(at, |fact| fact.opening = log.fact(0).opening), chain);
}

#[test]
fn a_fact_that_is_left_out_or_comes_again_or_out_of_order_breaks_the_chain() {
    rule!(refused, "EV.5", "L1.2");
    let log = Busy::new().log();
    for at in 1..log.facts.len() - 1 {
        assert_eq!(log.rejects(at, &log.facts[at + 1]), rejected(Rejection::Chain), "{at} left out");
        assert_eq!(log.rejects(at, &log.facts[at - 1]), rejected(Rejection::Chain), "{} twice", at - 1);
    }
}

#[test]
fn a_log_begins_with_its_opening_and_is_opened_once() {
    rule!(refused, "L1.2", "ID.2");
    let log = Busy::new().log();
    let chain = rejected(Rejection::Chain);
    assert_eq!(log.rejects_fact(0, |fact| fact.opening = None), chain);
    assert_eq!(log.rejects_fact(0, |fact| fact.index = 1), chain);
    assert_eq!(log.rejects_fact(0, |fact| fact.epoch = 1), chain);
    assert_eq!(log.rejects_fact(0, |fact| fact.previous = Digest::of("another", &[])), chain);
    let mut folded = log.folded();
    assert_eq!(replica::fold(&mut folded, log.number + 1, &log.facts[0]), Err(chain));
}

#[test]
fn an_action_that_builds_on_another_branch_is_rejected() {
    rule!(refused, "EV.6");
    let busy = Busy::new();
    let log = busy.log();
    let (at, key) = (busy.posted(&log), busy.key(&busy.alice));
    let chain = rejected(Rejection::Chain);
    let change = |with: fn(&mut kwoon_ledger::action::Position)| {
        log.rejects_action(at, &key, |action| with(action.position.as_mut().unwrap()))
    };
    assert_eq!(change(|position| position.head = Digest::of("another", &[])), chain);
    assert_eq!(change(|position| position.index += 1), chain);
    assert_eq!(change(|position| position.index -= 1), chain);
    assert_eq!(change(|position| position.epoch += 1), chain);
    assert_eq!(log.rejects_action(at, &key, |action| action.position = None), chain);
}

#[test]
fn an_action_for_another_object_is_rejected() {
    rule!(refused, "C1");
    let mut busy = Busy::new();
    let other = busy.hall.thread(&busy.alice, &[]);
    let (log, other) = (busy.log(), Log::of(&busy.hall, &other));
    let key = busy.key(&busy.alice);
    let change = |object| log.rejects_action(busy.posted(&log), &key, |action| action.object = object);
    assert_eq!(change(Some(other.object)), FoldError::Refused(Code::BadReference));
    assert_eq!(change(None), FoldError::Refused(Code::BadReference));
}

// ------------------------------------------------------------------------------------------------ seals

#[test]
fn a_seal_of_another_host_head_place_or_object_is_rejected() {
    rule!(refused, "L1.2");
    let busy = Busy::new();
    let log = busy.log();
    let folded = log.folded();
    let host = busy.hall.key("host");
    let good = Seal::verify(log.seals.last().unwrap(), &host.public()).unwrap();
    let check = |seal: &Seal, key: &KeyPair| replica::check_seal(&folded, log.number, &seal.sign(key));
    assert_eq!(check(&good, &host), Ok(good.clone()));
    let seal = Err(rejected(Rejection::Seal));
    assert_eq!(check(&good, &stranger()), seal);
    assert_eq!(check(&Seal { head: Digest::of("another", &[]), ..good.clone() }, &host), seal);
    assert_eq!(check(&Seal { index: good.index - 1, ..good.clone() }, &host), seal);
    assert_eq!(check(&Seal { index: good.index + 1, ..good.clone() }, &host), seal);
    assert_eq!(check(&Seal { epoch: 1, ..good.clone() }, &host), seal);
    let object = Log::of(&busy.hall, &busy.alice.id).object;
    assert_eq!(check(&Seal { object, ..good }, &host), seal);
}

#[test]
fn a_missing_or_mangled_seal_seals_nothing() {
    rule!(refused, "L1.2");
    let log = Busy::new().log();
    let folded = log.folded();
    let seal = log.seals.last().unwrap();
    for record in [&[][..], &[0x80], &seal[..seal.len() - 1], &log.facts[0]] {
        assert_eq!(replica::check_seal(&folded, log.number, record), Err(rejected(Rejection::Seal)));
    }
    let nothing = Overlay::new(&Nothing);
    assert_eq!(replica::check_seal(&nothing, log.number, seal), Err(rejected(Rejection::Seal)));
}

#[test]
fn of_two_seals_for_one_place_only_that_of_the_folded_branch_holds() {
    rule!(refused, "EV.6");
    let busy = Busy::new();
    let (log, host) = (busy.log(), busy.hall.key("host"));
    // The sequencer seals two entries for the same place and shows one to each member.
    let mut branches = [log.clone(), log.clone()];
    let mut seals = Vec::new();
    for (branch, said) in branches.iter_mut().zip(["yes", "no"]) {
        let action = branch.action(&busy.hall, &busy.alice, post(said));
        let before = branch.folded();
        let mut sequencer = kwoon_ledger::sequencer::Sequencer::new(&before, &host, busy.hall.now);
        let candidate = branch.candidate(sign(&action, &busy.key(&busy.alice)));
        let sealed = sequencer.act(candidate, |_, _| Ok(())).unwrap();
        let batch = sequencer.finish().unwrap();
        let row = |table, key: Vec<u8>| batch.rows[&(table, key)].clone().unwrap();
        branch.facts.push(row(Table::Log, log::fact_key(sealed.number, sealed.index)));
        seals.push(row(Table::Seals, log::seal_key(sealed.number, 0, sealed.index)));
    }
    let [yes, no] = branches;
    assert!(replica::check_seal(&yes.folded(), log.number, &seals[0]).is_ok());
    assert_eq!(replica::check_seal(&yes.folded(), log.number, &seals[1]), Err(rejected(Rejection::Seal)));
    assert!(replica::check_seal(&no.folded(), log.number, &seals[1]).is_ok());
    // What builds on one branch never folds onto the other.
    let action = no.action(&busy.hall, &busy.bob, post("then no"));
    assert_eq!(yes.rejects_next(Cause::Action(sign(&action, &busy.key(&busy.bob)))), rejected(Rejection::Chain));
}

// ------------------------------------------------------------------------------------------------ the rules

#[test]
fn a_sequencer_cannot_let_a_stranger_speak() {
    rule!(refused, "T3.1", "C1");
    let mut busy = Busy::new();
    let eve = busy.hall.agent("eve");
    let mut log = busy.log();
    log.push_account(&eve, records(&busy.hall, &eve));
    let action = log.action(&busy.hall, &eve, post("let me in"));
    let why = log.rejects_next(Cause::Action(sign(&action, &busy.key(&eve))));
    assert_eq!(why, FoldError::Refused(Code::NotFound));
}

#[test]
fn a_sequencer_cannot_let_a_speaker_govern_or_seal_what_changes_nothing() {
    rule!(refused, "T2.1", "L2.4", "C1");
    let busy = Busy::new();
    let log = busy.log();
    let next = |agent: &Agent, body: Body| {
        let action = log.action(&busy.hall, agent, body);
        log.rejects_next(Cause::Action(sign(&action, &busy.key(agent))))
    };
    assert_eq!(next(&busy.bob, Body::ThreadClose), FoldError::Refused(Code::NotGovernor));
    assert_eq!(next(&busy.bob, Body::MemberRemove(busy.alice.full_id())), FoldError::Refused(Code::NotGovernor));
    let role = Body::MemberRole(busy.bob.full_id(), kwoon_ledger::action::Role::Speaker);
    assert_eq!(next(&busy.alice, role), FoldError::Refused(Code::NoChange));
    assert_eq!(next(&busy.alice, Body::ThreadLeave), FoldError::Refused(Code::LastGovernor));
    assert_eq!(next(&busy.alice, Body::MemoryPublish), FoldError::Refused(Code::BadReference));
}

#[test]
fn joining_again_is_no_fact() {
    rule!(refused, "L2.4", "T1.3");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    let log = Log::of(&hall, &thread);
    let joined = log::action_of(&log.fact(log.facts.len() - 1)).unwrap();
    let Body::ThreadJoin(admission, _) = joined.body else { panic!("a join") };
    // A further ticket of the same admission, used by the same member under another request.
    let ticket = {
        let created = log::action_of(&log.fact(0)).unwrap();
        let secret = &hall.instance(&alice).secrets[0];
        secret.admission(&created.request(), &hall.key("host").public().0)
    };
    let mut action = log.action(&hall, &bob, Body::ThreadClose);
    let ObjectId::Thread(id) = log.object else { panic!("a thread") };
    let used = kwoon_ledger::action::AdmissionUse {
        schema: SCHEMA,
        thread: id,
        joiner: bob.full_id(),
        request: action.request(),
    };
    let proof = cose::sign(RecordKind::Admission, &cbor::write(&used), &ticket);
    action.body = Body::ThreadJoin(admission, proof.into());
    let why = log.rejects_next(Cause::Action(sign(&action, &hall.instance(&bob).signing)));
    assert_eq!(why, rejected(Rejection::Rule));
}

#[test]
fn nothing_is_said_in_a_closed_thread() {
    rule!(refused, "T3.1", "T5.1");
    let mut busy = Busy::new();
    busy.hall.ok(&busy.alice, "thread_close", json!({"thread": busy.thread}));
    let log = busy.log();
    let action = log.action(&busy.hall, &busy.alice, post("one more"));
    let why = log.rejects_next(Cause::Action(sign(&action, &busy.key(&busy.alice))));
    assert_eq!(why, FoldError::Refused(Code::ThreadClosed));
}

#[test]
fn a_request_is_sealed_once_in_a_log_whatever_it_says_the_second_time() {
    rule!(refused, "EV.5", "L3.1", "T3.3");
    let busy = Busy::new();
    let log = busy.log();
    let first = log::action_of(&log.fact(busy.posted(&log))).unwrap();
    let again = |body: Body, attempt| {
        let action = Action { token: first.token, attempt, ..log.action(&busy.hall, &busy.alice, body) };
        log.rejects_next(Cause::Action(sign(&action, &busy.key(&busy.alice))))
    };
    assert_eq!(again(first.body.clone(), 0), rejected(Rejection::Rule));
    assert_eq!(again(first.body.clone(), 1), rejected(Rejection::Rule));
    assert_eq!(again(post("what I meant"), 1), rejected(Rejection::Rule));
    // The very same bytes, delivered again.
    let Cause::Action(signed) = log.fact(busy.posted(&log)).cause else { panic!("an action") };
    assert_eq!(log.rejects_next(Cause::Action(signed)), rejected(Rejection::Rule));
}

#[test]
fn an_expired_action_is_not_sealed() {
    rule!(refused, "EV.4");
    let busy = Busy::new();
    let log = busy.log();
    let key = busy.key(&busy.alice);
    let mut action = log.action(&busy.hall, &busy.alice, post("late"));
    action.expires_at = log.head().log_time;
    let why = log.rejects_next(Cause::Action(sign(&action, &key)));
    assert_eq!(why, FoldError::Refused(Code::ActionExpired));
}

#[test]
fn the_running_digest_must_be_that_of_the_effects_derived() {
    rule!(refused, "L1.1", "C1");
    let log = Busy::new().log();
    for at in 0..log.facts.len() {
        let why = log.rejects_fact(at, |fact| fact.digest = Digest::of("another", &[]));
        assert_eq!(why, rejected(Rejection::Digest));
    }
}

#[test]
fn an_assignment_cannot_be_moved_by_a_changed_fact() {
    rule!(refused, "T4.11", "L1.2");
    let busy = Busy::new();
    let log = busy.log();
    let key = busy.key(&busy.alice);
    let at = log.find_action(|body| matches!(body, Body::EntryPost(post) if post.assign.is_some()));
    // Its author signs other terms for the same request later: they do not give the effects that were recorded.
    let why = log.rejects_action(at, &key, |action| {
        let Body::EntryPost(post) = &mut action.body else { panic!("an entry") };
        post.assign.as_mut().unwrap().deliver_within = Duration::minutes(5);
    });
    assert_eq!(why, rejected(Rejection::Digest));
}

// ------------------------------------------------------------------------------------------------ time

#[test]
fn log_time_never_goes_back() {
    rule!(refused, "L4.3");
    let busy = Busy::new();
    let log = busy.log();
    let at = log.find(|fact| fact.log_time > log.fact(0).log_time);
    let earlier = log.fact(at - 1).log_time.before(Duration(1));
    assert_eq!(log.rejects_fact(at, |fact| fact.log_time = earlier), rejected(Rejection::LogTime));
}

#[test]
fn an_expiry_comes_at_its_due_time_and_no_other() {
    rule!(refused, "L4.3", "T4.10");
    let log = Busy::new().log();
    let at = log.find(|fact| matches!(fact.cause, Cause::Expiry(_)));
    let due = log.fact(at).log_time;
    assert_eq!(log.rejects_fact(at, |fact| fact.log_time = due.before(Duration(1))), rejected(Rejection::Expiry));
    assert_eq!(log.rejects_fact(at, |fact| fact.log_time = due.after(Duration(1))), rejected(Rejection::Expiry));
}

#[test]
fn an_expiry_cannot_be_left_out() {
    rule!(refused, "L4.3");
    let busy = Busy::new();
    let log = busy.log();
    let at = log.find(|fact| matches!(fact.cause, Cause::Expiry(_)));
    let before = Log { facts: log.facts[..at].to_vec(), ..log.clone() };
    let due = log.fact(at).log_time;
    for time in [due, due.after(Duration(1))] {
        let action = before.action(&busy.hall, &busy.bob, post("not late at all"));
        let mut fact = before.next(Cause::Action(sign(&action, &busy.key(&busy.bob))));
        fact.log_time = time;
        assert_eq!(before.rejects(at, &cbor::write(&fact)), rejected(Rejection::Expiry));
    }
}

#[test]
fn a_deadline_of_nothing_or_of_another_kind_is_rejected() {
    rule!(refused, "C1", "T4.10");
    let log = Busy::new().log();
    let at = log.find(|fact| matches!(fact.cause, Cause::Expiry(_)));
    let Cause::Expiry(Due::Delivery(id)) = log.fact(at).cause else { panic!("a delivery") };
    let change = |due| log.rejects_fact(at, |fact| fact.cause = Cause::Expiry(due));
    assert_eq!(change(Due::Judgment(id)), rejected(Rejection::Expiry));
    assert_eq!(change(Due::Delivery(AssignmentId::of(&[b"none"]))), rejected(Rejection::Expiry));
    // The one that came does not come again.
    assert_eq!(log.rejects_next(Cause::Expiry(Due::Delivery(id))), rejected(Rejection::Expiry));
}

#[test]
fn a_fact_that_lies_ahead_of_the_clock_is_held_back() {
    rule!(refused, "L4.3");
    let log = Busy::new().log();
    let fact = log.fact(0);
    assert!(!replica::is_ahead(&fact, fact.log_time.before(replica::FUTURE_MAX)));
    assert!(replica::is_ahead(&fact, fact.log_time.before(replica::FUTURE_MAX).before(Duration(1))));
}

// ------------------------------------------------------------------------------------------------ versions and kinds

/// A fact of which a later version says more, or something else.
#[derive(Encode)]
#[cbor(map)]
struct LaterFact<C: Encode<()>> {
    #[n(0)]
    schema: u32,
    #[n(1)]
    object: ObjectId,
    #[n(2)]
    epoch: u64,
    #[n(3)]
    index: u64,
    #[n(4)]
    previous: Digest,
    #[n(5)]
    log_time: Time,
    #[n(6)]
    cause: C,
    #[n(7)]
    evidence: Vec<Evidence>,
    #[n(8)]
    digest: Digest,
    #[n(9)]
    opening: Option<Opening>,
    #[n(10)]
    later: Option<String>,
}

fn later<C: Encode<()>>(fact: Fact, cause: C, later: Option<&str>) -> Vec<u8> {
    cbor::write(&LaterFact {
        schema: fact.schema,
        object: fact.object,
        epoch: fact.epoch,
        index: fact.index,
        previous: fact.previous,
        log_time: fact.log_time,
        cause,
        evidence: fact.evidence,
        digest: fact.digest,
        opening: fact.opening,
        later: later.map(str::to_owned),
    })
}

#[test]
fn a_later_version_is_told_from_what_is_broken() {
    rule!(refused, "EV.3", "CO.1");
    let busy = Busy::new();
    let log = busy.log();
    let (at, key) = (busy.posted(&log), busy.key(&busy.alice));
    let version = rejected(Rejection::UnknownVersion);
    assert_eq!(log.rejects_fact(at, |fact| fact.schema = SCHEMA + 1), version);
    assert_eq!(log.rejects_action(at, &key, |action| action.schema = SCHEMA + 1), version);
    assert_eq!(log.rejects_fact(0, |fact| fact.opening.as_mut().unwrap().rules = RULES + 1), version);
    let host = busy.hall.key("host");
    let seal = Seal::verify(log.seals.last().unwrap(), &host.public()).unwrap();
    let seal = Seal { schema: SCHEMA + 1, ..seal }.sign(&host);
    assert_eq!(replica::check_seal(&log.folded(), log.number, &seal), Err(version));
}

#[test]
fn an_unknown_cause_or_body_is_of_an_unknown_kind() {
    rule!(refused, "EV.3", "CO.2");
    let busy = Busy::new();
    let log = busy.log();
    let kind = rejected(Rejection::UnknownKind);
    let next = log.next(Cause::Expiry(Due::Delivery(AssignmentId::of(&[]))));
    assert_eq!(log.rejects(log.facts.len(), &later(next, (9u32, 1u32), None)), kind);
    let action = log.action(&busy.hall, &busy.alice, Body::ThreadClose);
    let mut payload = cbor::write(&action);
    // The body, `[45]`, stands last.
    assert_eq!(payload.split_off(payload.len() - 3), [0x81, 0x18, 45]);
    payload.extend_from_slice(&[0x81, 0x18, 99]);
    let signed = cose::sign(RecordKind::Action, &payload, &busy.key(&busy.alice));
    assert_eq!(log.rejects_next(Cause::Action(signed.into())), kind);
}

#[test]
fn a_change_of_epoch_is_not_guessed_at() {
    rule!(refused, "EV.3");
    let log = Busy::new().log();
    let head = log.head();
    let change = EpochChange {
        next_epoch: 1,
        continues_at: head.index,
        head: head.hash,
        next_host: stranger().public(),
        reason: EpochReason::Handover,
        rules: RULES,
        statements: Vec::new(),
    };
    assert_eq!(log.rejects_next(Cause::Epoch(change)), rejected(Rejection::UnknownKind));
}

#[test]
fn what_is_no_record_is_rejected_as_that() {
    rule!(refused, "EV.3");
    let log = Busy::new().log();
    let good = &log.facts[1];
    let mut trailing = good.clone();
    trailing.push(0);
    for bytes in [&[][..], &[0xff], &[0xa0], &good[..good.len() - 1], &trailing] {
        assert_eq!(log.rejects(1, bytes), rejected(Rejection::Undecodable));
    }
    let why = log.rejects_fact(1, |fact| fact.cause = Cause::Action(ByteVec::from(vec![0xa0])));
    assert_eq!(why, rejected(Rejection::Undecodable));
}

#[test]
fn a_fact_with_a_field_of_a_later_version_is_kept_as_it_is_and_stays_verifiable() {
    rule!(holds, "CO.1", "CO.2");
    let busy = Busy::new();
    let mut log = busy.log();
    let at = log.facts.len() - 1;
    let fact = log.fact(at);
    let bytes = later(fact.clone(), fact.cause.clone(), Some("of a later version"));
    log.facts[at] = bytes.clone();
    let folded = log.folded();
    let kept = folded.get(Table::Log, &log::fact_key(log.number, at as u64)).unwrap().unwrap();
    assert_eq!(kept, bytes, "the bytes are kept");
    // The head is over the bytes, the unknown field included, and so is a seal.
    let head = head(&folded, log.number);
    assert_eq!(head.hash, head_hash(&fact.previous, &fact_hash(&bytes)));
    let host = busy.hall.key("host");
    let good = Seal::verify(busy.log().seals.last().unwrap(), &host.public()).unwrap();
    assert!(replica::check_seal(&folded, log.number, &good.sign(&host)).is_err());
    let seal = Seal { head: head.hash, ..good }.sign(&host);
    assert!(replica::check_seal(&folded, log.number, &seal).is_ok());
}

// ------------------------------------------------------------------------------------------------ identities

#[test]
fn an_identity_is_its_first_record_and_nothing_else() {
    rule!(refused, "ID.1", "ID.2");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let log = Log::of(&hall, &alice.id);
    let why = log.rejects_action(0, &hall.key("owner"), |action| {
        let Body::AgentCreate(genesis) = &mut action.body else { panic!("a genesis") };
        genesis.nonce = Digest::of("another", &[]);
    });
    assert_eq!(why, rejected(Rejection::Identity));
    let why = log.rejects_fact(0, |fact| fact.opening.as_mut().unwrap().sequencer = stranger().public());
    assert_eq!(why, rejected(Rejection::Identity));
}

#[test]
fn identity_records_that_do_not_chain_are_rejected_in_the_identitys_own_log() {
    rule!(refused, "ID.3", "ID.4");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    let log = Log::of(&hall, &alice.id);
    let change = |with: fn(&mut kwoon_ledger::identity::IdentityChange)| {
        log.rejects_action(1, &hall.key("owner"), |action| {
            let Body::AgentChange(change) = &mut action.body else { panic!("a change") };
            with(change);
        })
    };
    assert_eq!(change(|change| change.version += 1), FoldError::Refused(Code::VersionConflict));
    assert_eq!(
        change(|change| change.previous = Digest::of("another", &[])),
        FoldError::Refused(Code::VersionConflict)
    );
    // Signed by somebody else, in the owner's name and in its own.
    assert_eq!(log.rejects_action(1, &stranger(), |_| {}), rejected(Rejection::Signature));
    let why = log.rejects_action(1, &stranger(), |action| action.actor = Actor::Owner(stranger().public()));
    assert_eq!(why, FoldError::Refused(Code::OwnerRequired));
    let instance = hall.instance(&alice).signing;
    let why = log.rejects_action(1, &instance, |action| {
        action.actor = Actor::Agent(alice.full_id(), InstanceId::of(&[]));
    });
    assert_eq!(why, rejected(Rejection::Identity));
}

#[test]
fn identity_records_that_do_not_chain_are_rejected_as_an_account() {
    rule!(refused, "ID.3", "A3");
    let mut busy = Busy::new();
    let eve = busy.hall.agent("eve");
    let (alice, bob) = (busy.alice.full_id(), busy.bob.full_id());
    let log = busy.log();
    let key = busy.hall.key("owner");
    let account = |agent: AgentId, records: Vec<ByteVec>| log.rejects_next(Cause::Account(agent, records));
    let identity = rejected(Rejection::Identity);
    let deactivated = record(&busy.hall, &busy.alice, status(Status::Deactivated));
    assert_eq!(account(alice, Vec::new()), identity);
    // Of another agent, for one that the log knows and for one that it does not.
    assert_eq!(account(bob, vec![sign(&deactivated, &key)]), identity);
    assert_eq!(account(eve.full_id(), records(&busy.hall, &busy.alice)), identity);
    // From the beginning again, or with one left out.
    assert_eq!(account(alice, records(&busy.hall, &busy.alice)), identity);
    let mut later = deactivated.clone();
    let Body::AgentChange(change) = &mut later.body else { panic!("a change") };
    change.version += 1;
    assert_eq!(account(alice, vec![sign(&later, &key)]), identity);
    // Not the owner's.
    assert_eq!(account(alice, vec![sign(&deactivated, &stranger())]), rejected(Rejection::Signature));
    let mut other = deactivated;
    other.actor = Actor::Owner(stranger().public());
    assert_eq!(account(alice, vec![sign(&other, &stranger())]), identity);
}

#[test]
fn an_identitys_own_log_takes_records_as_actions_only() {
    rule!(refused, "ID.3");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let log = Log::of(&hall, &alice.id);
    let deactivated = sign(&record(&hall, &alice, status(Status::Deactivated)), &hall.key("owner"));
    for cause in
        [Cause::Account(alice.full_id(), vec![deactivated]), Cause::Account(bob.full_id(), records(&hall, &bob))]
    {
        assert_eq!(log.rejects_next(cause), rejected(Rejection::Identity));
    }
}

#[test]
fn nothing_by_a_deactivated_agent_is_sealed_after_the_log_knows() {
    rule!(refused, "A1", "A3");
    let mut busy = Busy::new();
    busy.hall.ok(&owner(), "agent_deactivate", json!({"agent": busy.bob.id}));
    let log = busy.log();
    let left = log.fact(log.facts.len() - 1);
    assert!(matches!(left.cause, Cause::Account(agent, _) if agent == busy.bob.full_id()));
    let action = log.action(&busy.hall, &busy.bob, post("still here"));
    let why = log.rejects_next(Cause::Action(sign(&action, &busy.key(&busy.bob))));
    assert_eq!(why, FoldError::Refused(Code::AgentInactive));
}

#[test]
fn a_deactivation_ends_the_membership_also_if_the_reactivation_comes_with_it() {
    rule!(holds, "A3");
    let mut busy = Busy::new();
    let mut log = busy.log();
    // Another host's thread hears of both at once.
    busy.hall.ok(&owner(), "agent_deactivate", json!({"agent": busy.bob.id}));
    busy.hall.ok(&owner(), "agent_reactivate", json!({"agent": busy.bob.id}));
    let news = records(&busy.hall, &busy.bob)[1..].to_vec();
    // Leaving the membership out gives another digest.
    let account = Log::of(&busy.hall, &busy.bob.id).account(&busy.bob);
    let mut fact = log.next(Cause::Account(busy.bob.full_id(), news.clone()));
    let kept = cbor::write(&vec![Effect::AccountSet(busy.bob.full_id(), account)]);
    fact.digest = running_digest(&log.head().digest, fact.index, &kept);
    assert_eq!(log.rejects(log.facts.len(), &cbor::write(&fact)), rejected(Rejection::Digest));
    // Ending it does not: the effects are those of the fact that this host sealed for the deactivation alone, but for
    // the account.
    let sealed = busy.log();
    let at = sealed.facts.len() - 1;
    let mut effects = log::effects(&busy.hall.snapshot(), sealed.number, at as u64).unwrap();
    effects[0] = Effect::AccountSet(busy.bob.full_id(), Log::of(&busy.hall, &busy.bob.id).account(&busy.bob));
    log.push(Cause::Account(busy.bob.full_id(), news), &effects);
    let member = Cells::new(&log.folded(), log.number).member(&busy.bob.full_id()).unwrap();
    assert_eq!(member, None);
}

// ------------------------------------------------------------------------------------------------ openings

#[test]
fn a_host_without_an_instance_of_the_creator_opens_nothing() {
    rule!(refused, "C1");
    let busy = Busy::new();
    let log = busy.log();
    let opening = |change: fn(&mut Opening)| log.rejects_fact(0, |fact| change(fact.opening.as_mut().unwrap()));
    assert_eq!(opening(|o| o.sequencer = stranger().public()), rejected(Rejection::UnknownInstance));
    assert_eq!(opening(|o| o.creator.clear()), rejected(Rejection::Identity));
    let others = records(&busy.hall, &busy.bob);
    let why = log.rejects_fact(0, |fact| fact.opening.as_mut().unwrap().creator = others);
    assert_eq!(why, rejected(Rejection::Identity));
}

#[test]
fn a_thread_has_the_id_that_its_request_gives() {
    rule!(refused, "T1.1");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let thread = hall.thread(&alice, &[]);
    let log = Log::of(&hall, &thread);
    let key = hall.instance(&alice).signing;
    let why = log.rejects_action(0, &key, |action| action.token = Digest::of("another", &[]));
    assert_eq!(why, rejected(Rejection::Chain));
}

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

/// Seals a fact with these effects, whether they follow from it or not, as a host can that wants to deceive.
fn outcome_of(mut fact: Fact, effects: &[Effect], host: &KeyPair) -> SealedOutcome {
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
struct Published {
    hall: Hall,
    bob: Agent,
    memory: Log,
    publication: Log,
}

impl Published {
    fn new() -> Self {
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

    fn outcome(&self, index: usize) -> SealedOutcome {
        log::outcome(&self.hall.snapshot(), self.memory.number, index as u64).unwrap().unwrap()
    }

    fn effects(&self, index: usize) -> Vec<Effect> {
        log::effects(&self.hall.snapshot(), self.memory.number, index as u64).unwrap()
    }
}

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

#[test]
fn a_record_that_the_identitys_own_log_refuses_is_no_account_elsewhere() {
    rule!(refused, "ID.3", "ID.4");
    let busy = Busy::new();
    let (log, key) = (busy.log(), busy.hall.key("owner"));
    let policy = kwoon_ledger::identity::PolicyRef {
        name: kwoon_keys::Commitment::to(&kwoon_keys::Salt::new([0; 32]), b"policy"),
        version: 1,
    };
    let changes = [
        kwoon_ledger::identity::ProfileChange::default(),
        kwoon_ledger::identity::ProfileChange { policies: Some(vec![policy; 65]), ..Default::default() },
    ];
    for change in changes {
        let mut action = record(&busy.hall, &busy.alice, Change::Profile(change));
        // Signed when the identity's log last moved, so that nothing is wrong but what it says.
        action.issued_at = kwoon_tests::hall::START;
        let signed = sign(&action, &key);
        let own = Log::of(&busy.hall, &busy.alice.id).rejects_next(Cause::Action(signed.clone()));
        assert!(matches!(own, FoldError::Refused(Code::NoChange | Code::ContentTooLarge)), "{own:?}");
        let why = log.rejects_next(Cause::Account(busy.alice.full_id(), vec![signed]));
        assert_eq!(why, rejected(Rejection::Identity));
    }
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
