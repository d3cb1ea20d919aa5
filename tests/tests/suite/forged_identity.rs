//! Forged identities, accounts and openings.

use kwoon_keys::id::{AgentId, InstanceId};
use kwoon_keys::{Digest, cbor};
use kwoon_ledger::action::{Actor, Body};
use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::{Cause, Opening, Rejection, running_digest};
use kwoon_ledger::identity::{Change, Status};
use kwoon_ledger::log;
use kwoon_ledger::refusal::Code;
use kwoon_ledger::replica::FoldError;
use kwoon_ledger::state::Cells;
use kwoon_tests::forge::{Log, post, record, records, sign, status, stranger};
use kwoon_tests::{Hall, owner, rule};
use minicbor::bytes::ByteVec;
use serde_json::json;

use crate::forged::{Busy, rejected};

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
