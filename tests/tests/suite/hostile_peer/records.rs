//! Records that are validly signed by somebody, and say what is not for that one to say.

use kwoon_keys::id::RequestId;
use kwoon_keys::{RecordKind, cbor, cose};
use kwoon_ledger::action::{Action, SCHEMA, attempt_hash};
use kwoon_ledger::effect::{Departure, Effect};
use kwoon_ledger::fact::{
    Cause, EpochReason, EpochStatement, Fact, Outcome, OutcomeResult, Seal, SealedOutcome, Signer, fact_hash,
    head_hash, running_digest,
};
use kwoon_ledger::outbox::{self, Outgoing};
use kwoon_ledger::state::Head;
use kwoon_store::rebuild;
use kwoon_sync::peers;
use kwoon_sync::wire::{Consignment, Ending, Facts, Verdict};
use kwoon_tests::forge::{self, Log, sign};

use super::silence::carried;
use super::*;

/// A fact after a head, under the seal of a key, with the effects that it is said to have; and the head after it.
fn sealed(at: &Head, cause: Cause, effects: &[Effect], key: &KeyPair) -> (SealedOutcome, Head) {
    let effects = cbor::write(&effects.to_vec());
    let index = at.index + 1;
    let fact = Fact {
        schema: SCHEMA,
        object: at.object,
        epoch: at.epoch,
        index,
        previous: at.hash,
        log_time: at.log_time,
        cause,
        evidence: Vec::new(),
        digest: running_digest(&at.digest, index, &effects),
        opening: None,
    };
    let bytes = cbor::write(&fact);
    let head = head_hash(&at.hash, &fact_hash(&bytes));
    let (object, epoch, log_time) = (at.object, at.epoch, at.log_time);
    let seal = Seal { schema: SCHEMA, object, epoch, index, head, log_time, wall_time: log_time }.sign(key);
    let after = Head { index, hash: head, digest: fact.digest, ..at.clone() };
    let later = Vec::new();
    (
        SealedOutcome {
            fact: bytes.into(),
            effects: effects.into(),
            digest_before: at.digest,
            later,
            seal: seal.into(),
        },
        after,
    )
}

/// The one action that an agent of a hall has in its outbox.
fn waiting(hall: &Hall) -> (Outgoing, Action) {
    let rows = outbox::since(&hall.snapshot(), 0, 10).expect("readable");
    let [row] = &rows[..] else { panic!("one action: {rows:?}") };
    (row.clone(), row.carried.action().expect("an action"))
}

/// A thread that bob's host orders, with alice and carol on others, all of whom were cut off.
fn theirs() -> (Cluster, [Agent; 3], String) {
    let mut cluster = Cluster::new(3);
    let agents = [(0, "alice"), (1, "bob"), (2, "carol")].map(|(hall, name)| cluster.agent(hall, name));
    let thread = cluster.thread((1, &agents[1]), &[(0, &agents[0]), (2, &agents[2])]);
    cluster.connect_all();
    cluster.settle();
    (0..3).for_each(|hall| cluster.isolate(hall));
    (cluster, agents, thread)
}

#[test]
fn the_end_of_a_right_that_came_with_another_sequencer_leaves_a_store_that_can_be_rebuilt() {
    let (mut cluster, [alice, ..], thread) = theirs();
    let (peer, next) = (cluster.halls[1].key("host"), cluster.halls[2].key("host"));
    let hall = &mut cluster.halls[0];
    let left = hall.ok(&alice, "thread_leave", json!({"thread": thread, "idempotency_key": "leave"}));
    assert_eq!(left["standing"], "pending");
    let (row, _) = waiting(hall);
    let head = Log::of(hall, &thread).head();
    let began = Effect::EpochBegan(1, next.public(), EpochReason::Handover);
    let (moved, at) = sealed(&head, Cause::Begun, &[began], &peer);
    let at = Head { epoch: 1, sequencer: next.public(), ..at };
    let ended = Effect::MembershipEnded(alice.full_id(), Departure::Left);
    let (outcome, _) = sealed(&at, Cause::Action(row.carried.signed), &[ended], &next);
    let between = vec![fact_hash(&moved.fact)];
    let ending = Ending { object: head.object, from: head.index + 1, between, outcome, moves: vec![moved] };
    let received = deliver(hall, &peer.public(), Message::Ending(ending));
    assert_eq!(received.fault, None);
    let rows = hall.trace();
    rebuild(&hall.store).expect("what was kept can be verified");
    assert!(hall.trace() == rows, "a rebuild gives the same");
    hall.verify();
    hall.ok(&alice, "receipt_get", json!({"operation": "thread_leave", "key": "leave"}));
}

/// The same thread, handed over by bob's host to carol's.
fn handed_over() -> (Cluster, [Agent; 3], String) {
    let (mut cluster, agents, thread) = theirs();
    cluster.connect_all();
    let next = cluster.host(2).to_string();
    cluster.ok((1, &owner()), "object_handover", json!({"object": thread, "host": next}));
    (0..3).for_each(|hall| cluster.isolate(hall));
    (cluster, agents, thread)
}

#[test]
fn who_ordered_a_log_before_adds_nothing_to_it() {
    let (mut cluster, [_, bob, _], thread) = handed_over();
    let past = cluster.halls[1].key("host");
    let body = forge::post("still mine");
    for epoch in [0, 1] {
        for hall in [0, 2] {
            let action = Log::of(&cluster.halls[1], &thread).action(&cluster.halls[1], &bob, body.clone());
            let signed = sign(&action, &cluster.halls[1].instance(&bob).signing);
            let hall = &mut cluster.halls[hall];
            let head = Head { epoch, ..Log::of(hall, &thread).head() };
            let (outcome, _) = sealed(&head, Cause::Action(signed), &[], &past);
            let before = hall.trace();
            let facts = Facts {
                object: head.object,
                from: head.index + 1,
                facts: vec![outcome.fact],
                seals: vec![outcome.seal],
                contents: Vec::new(),
                changes: None,
            };
            deliver(hall, &past.public(), Message::Facts(facts));
            let folded: Vec<_> = hall.trace().into_iter().filter(|((table, _), _)| *table != Table::Wanted).collect();
            let before: Vec<_> = before.into_iter().filter(|((table, _), _)| *table != Table::Wanted).collect();
            assert!(folded == before, "only that it is to be asked for again is noted");
            hall.verify();
        }
    }
}

#[test]
fn who_orders_a_log_now_does_not_seal_what_was_ordered_before() {
    let (mut cluster, [_, _, carol], thread) = theirs();
    cluster.connect(1, 2);
    let next = cluster.host(2).to_string();
    cluster.ok((1, &owner()), "object_handover", json!({"object": thread, "host": next}));
    cluster.ok((2, &carol), "entry_post", json!({"thread": thread, "text": "mine now", "ask": []}));
    let log = Log::of(&cluster.halls[2], &thread);
    let (known, _) = cluster.halls[0].digest(&thread);
    let from = usize::try_from(known).expect("few facts") + 1;
    let facts = |seals: &[Vec<u8>]| Facts {
        object: log.object,
        from: known + 1,
        facts: log.facts[from..].iter().map(|fact| fact.clone().into()).collect(),
        seals: seals.iter().map(|seal| seal.clone().into()).collect(),
        contents: Vec::new(),
        changes: None,
    };
    let (peer, hall) = (cluster.host(2), &mut cluster.halls[0]);
    let before = hall.digest(&thread);
    let received = deliver(hall, &peer, Message::Facts(facts(&log.seals[log.seals.len() - 1..])));
    assert_eq!(received.fault, Some("an epoch whose last fact its sequencer did not seal"));
    assert_eq!(hall.digest(&thread), before);
    // With the word of the one before it is taken in.
    let received = deliver(hall, &peer, Message::Facts(facts(&log.seals[log.seals.len() - 2..])));
    assert_eq!(received.fault, None);
    assert_eq!(cluster.halls[0].digest(&thread), cluster.halls[2].digest(&thread));
}

#[test]
fn who_ordered_a_log_before_ends_no_action_that_was_signed_since() {
    let (mut cluster, [alice, ..], thread) = handed_over();
    let past = cluster.halls[1].key("host");
    let hall = &mut cluster.halls[0];
    hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "waits", "ask": []}));
    let (row, action) = waiting(hall);
    assert_eq!(action.position.expect("a position").epoch, 1);
    let before = hall.trace();
    let outcome = |epoch| Outcome {
        schema: SCHEMA,
        request: action.request(),
        attempt: attempt_hash(&row.carried.signed),
        object: row.carried.object,
        epoch,
        index: 0,
        head: Digest::default(),
        log_time: hall.now,
        result: OutcomeResult::Refused("no_voice".to_owned(), Vec::new()),
    };
    for outcome in [outcome(0), outcome(1)] {
        let signed = cose::sign(RecordKind::Outcome, &cbor::write(&outcome), &past).into();
        deliver(hall, &past.public(), Message::Verdicts(vec![Verdict::Ended(signed, Vec::new())]));
        assert_eq!(hall.trace(), before);
    }
    let head = Head { epoch: 0, ..Log::of(hall, &thread).head() };
    let (sealed, _) = sealed(&head, Cause::Action(row.carried.signed), &[], &past);
    let verdict = Verdict::Sealed(Box::new(sealed), past.public(), Vec::new());
    deliver(hall, &past.public(), Message::Verdicts(vec![verdict]));
    assert_eq!(hall.trace(), before);
}

fn voice(object: ObjectId, next: (u64, PublicKey), at: &Head, key: &KeyPair) -> Vec<u8> {
    let statement = EpochStatement {
        schema: SCHEMA,
        object,
        next_epoch: next.0,
        next_host: next.1,
        reason: EpochReason::Handover,
        index: at.index,
        head: at.hash,
        signer: Signer::Host(key.public()),
    };
    cose::sign(RecordKind::Epoch, &cbor::write(&statement), key)
}

#[test]
fn voices_of_strangers_of_old_sequencers_and_of_others_move_nothing() {
    let (mut cluster, _, thread) = handed_over();
    let past = cluster.halls[1].key("host");
    let hall = &mut cluster.halls[2];
    let own = hall.key("host").public();
    let at = Log::of(hall, &thread).head();
    let before = hall.trace();
    for (key, next) in [
        (stranger(), (2, stranger().public())),
        (stranger(), (2, own)),
        (past.clone(), (2, past.public())),
        (past.clone(), (1, own)),
        (past.clone(), (u64::MAX, own)),
    ] {
        let signed = voice(at.object, next, &at, &key);
        for peer in [key.public(), stranger().public(), past.public()] {
            for message in [Message::AskVoice(signed.clone().into()), Message::Voice(signed.clone().into())] {
                let received = deliver(hall, &peer, message);
                assert!(received.messages.is_empty(), "no voice is given");
                // A voice that somebody else signed is named as what it is.
                assert_eq!(received.fault.is_some(), peer != key.public());
            }
        }
    }
    assert_eq!(hall.trace(), before);
}

#[test]
fn of_a_host_that_is_said_to_order_a_thread_only_what_can_be_an_address_is_kept() {
    let mut cluster = Cluster::new(2);
    let (alice, bob) = (cluster.agent(0, "alice"), cluster.agent(1, "bob"));
    let created = cluster.halls[1].ok(&bob, "thread_create", json!({"admission": {}}));
    let hall = &mut cluster.halls[0];
    hall.ok(&alice, "thread_join", json!({"ticket": created["secret"]["ticket"]}));
    let (row, action) = waiting(hall);
    let attempt = attempt_hash(&row.carried.signed);
    let before = hall.trace();
    let elsewhere =
        |hint| Message::Verdicts(vec![Verdict::Elsewhere(attempt, row.carried.object, action.request(), hint)]);
    let there = |addresses| HostHint { host: stranger().public(), addresses };
    let good = "192.0.2.1:1".to_owned();
    let peer = cluster.host(1);
    for hint in [
        there(vec!["a".repeat(1 << 20)]),
        there(vec![good.clone(); 9]),
        HostHint { host: PublicKey([0; 32]), addresses: vec![good.clone()] },
    ] {
        deliver(&mut cluster.halls[0], &peer, elsewhere(hint));
        assert_eq!(cluster.halls[0].trace(), before);
    }
    deliver(&mut cluster.halls[0], &peer, elsewhere(there(vec![good.clone()])));
    let known = peers::get(&cluster.halls[0].snapshot(), &stranger().public()).expect("readable");
    assert_eq!(known.expect("it is known").addresses, [good]);
}

#[test]
fn an_action_in_a_members_name_that_the_member_did_not_sign_is_not_kept() {
    let (mut cluster, [alice, ..], thread) = theirs();
    let (object, peer) = (object(&cluster.halls[0], &thread), cluster.host(2));
    let mut action = Log::of(&cluster.halls[0], &thread).action(&cluster.halls[0], &alice, forge::post("not mine"));
    // At its sequencer it would wait for what it names.
    action.needs = vec![RequestId(Digest([1; 32]))];
    let signed = sign(&action, &stranger());
    for hall in &mut cluster.halls[..2] {
        let before = hall.trace();
        let consignment = Consignment { carried: carried(object, signed.clone(), Vec::new()), contents: Vec::new() };
        deliver(hall, &peer, Message::Actions(vec![consignment]));
        assert_eq!(hall.trace(), before);
    }
}

#[test]
fn a_voice_is_kept_until_its_epoch_began() {
    let (cluster, ..) = handed_over();
    for hall in &cluster.halls {
        let voices: Vec<_> =
            rows(hall, Table::Meta).into_iter().filter(|(key, _)| key.starts_with(b"voice/")).collect();
        assert_eq!(voices, []);
    }
}
