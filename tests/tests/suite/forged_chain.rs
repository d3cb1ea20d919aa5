//! Forged facts of a thread: who signed, the chain, seals, the rules, time, and what a later version may say.

use kwoon_keys::id::{AssignmentId, InstanceId};
use kwoon_keys::{Digest, KeyPair, RecordKind, cbor, cose};
use kwoon_ledger::action::{Action, Actor, Body, ObjectId, Role, SCHEMA};
use kwoon_ledger::effect::{Departure, Duty, Effect, Obligation};
use kwoon_ledger::fact::{
    Cause, Due, EpochChange, EpochReason, Evidence, Fact, Opening, RULES, Rejection, Seal, fact_hash, head_hash,
    running_digest,
};
use kwoon_ledger::identity::Change;
use kwoon_ledger::log;
use kwoon_ledger::refusal::Code;
use kwoon_ledger::replica::{self, FoldError};
use kwoon_ledger::storage::{Overlay, Read, Table};
use kwoon_ledger::time::{Duration, Time};
use kwoon_tests::forge::{Log, Nothing, head, post, record, records, sign, stranger};
use kwoon_tests::{Agent, Hall, owner, rule};
use minicbor::Encode;
use minicbor::bytes::ByteVec;
use serde_json::json;

use crate::forged::{Busy, rejected};

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
        let row = |table, key: Vec<u8>| batch.rows.get(table, &key).unwrap().clone().unwrap();
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
    let role = Body::MemberRole(busy.bob.full_id(), Role::Speaker);
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
        reason: EpochReason::Lost,
        rules: RULES,
        statements: Vec::new(),
    };
    assert_eq!(log.rejects_next(Cause::Epoch(change.clone())), rejected(Rejection::UnknownKind));
    // One that was agreed needs a next host whose agents may read the log, and both hosts' voices.
    let agreed = EpochChange { reason: EpochReason::Handover, ..change };
    assert_eq!(log.rejects_next(Cause::Epoch(agreed.clone())), rejected(Rejection::Rule));
    let skipped = EpochChange { next_epoch: 2, ..agreed.clone() };
    assert_eq!(log.rejects_next(Cause::Epoch(skipped)), rejected(Rejection::Chain));
    let later = EpochChange { rules: RULES + 1, ..agreed };
    assert_eq!(log.rejects_next(Cause::Epoch(later)), rejected(Rejection::UnknownVersion));
}

// ------------------------------------------------------------------------------------------------ other mechanisms

#[test]
fn nothing_but_the_protocol_adds_a_duty_or_changes_a_state() {
    rule!(refused, "P1");
    let mut busy = Busy::new();
    busy.hall.ok(&owner(), "agent_update", json!({"agent": busy.bob.id, "expected_version": 1, "mission": "m"}));
    let log = busy.log();
    let (bob, at) = (busy.bob.full_id(), log.head().log_time);
    let duty = |duty| {
        let due_at = Some(at.after(Duration::minutes(60)));
        Effect::ObligationBegan(Obligation { duty, bearer: bob, entry: 1, assignment: None, began_at: at, due_at })
    };
    // News of an account, of instances too, leave every state as it is, whatever a host derives from them.
    let news = Cause::Account(bob, records(&busy.hall, &busy.bob)[1..].to_vec());
    let account = Log::of(&busy.hall, &busy.bob.id).account(&busy.bob);
    let known = Effect::AccountSet(bob, account);
    let with = |cause: &Cause, effects: &[Effect]| {
        let mut fact = log.next(cause.clone());
        fact.digest = running_digest(&log.head().digest, fact.index, &cbor::write(&effects.to_vec()));
        fact
    };
    for more in [
        duty(Duty::Respond),
        duty(Duty::Deliver),
        duty(Duty::Judge),
        Effect::RoleSet(bob, Role::Governor),
        Effect::MembershipEnded(bob, Departure::Left),
        Effect::ThreadClosed,
    ] {
        let fact = with(&news, &[known.clone(), more]);
        assert_eq!(log.rejects(log.facts.len(), &cbor::write(&fact)), rejected(Rejection::Digest));
    }
    let good = cbor::write(&with(&news, std::slice::from_ref(&known)));
    assert!(replica::fold(&mut log.folded(), log.number, &good).is_ok(), "it is those effects that are rejected");
    // Neither a deadline nor an action brings about what the rules do not say.
    for find in [log.find(|fact| matches!(fact.cause, Cause::Expiry(_))), busy.posted(&log)] {
        let mut effects = log::effects(&busy.hall.snapshot(), log.number, find as u64).unwrap();
        effects.push(duty(Duty::Respond));
        let before = log.fold(find);
        let digest = running_digest(&head(&before, log.number).digest, find as u64, &cbor::write(&effects));
        assert_eq!(log.rejects_fact(find, |fact| fact.digest = digest), rejected(Rejection::Digest));
    }
    // A kind of action or of cause that the specification does not have says nothing at all: pending work, drafts,
    // approvals and epochs of other hosts' making among them.
    let action = log.action(&busy.hall, &busy.bob, Body::ThreadLeave);
    let (written, body) = (cbor::write(&action), cbor::write(&Body::ThreadLeave));
    let place = written.windows(body.len()).rposition(|window| window == body).expect("the body");
    let known = [0..=1, 20..=24, 40..=56];
    for kind in (0..=u8::MAX).filter(|kind| !known.iter().any(|known| known.contains(kind))) {
        let mut other = written[..place].to_vec();
        minicbor::Encoder::new(&mut other).array(1).and_then(|encoder| encoder.u8(kind)).expect("memory");
        other.extend_from_slice(&written[place + body.len()..]);
        let signed = cose::sign(RecordKind::Action, &other, &busy.key(&busy.bob));
        let why = log.rejects_next(Cause::Action(signed.into()));
        assert_eq!(why, rejected(Rejection::UnknownKind), "{kind}");
    }
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
