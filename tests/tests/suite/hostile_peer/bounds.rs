//! What can grow by what others send has a bound, and goes once it is of no use.

use kwoon_keys::{Commitment, Salt};
use kwoon_ledger::action::{Action, Body, EntryPost, MediaType, Source, Text};
use kwoon_ledger::index::PassedOn;
use kwoon_ledger::limits::Limits;
use kwoon_ledger::outbox;
use kwoon_sync::wire::{Consignment, Content, Verdict};
use kwoon_tests::forge::{Log, sign};

use super::silence::carried;
use super::*;

/// Bytes of others' actions that are kept for one object, and for one host that brought them.
const BYTES_MAX: u64 = 64 << 20;

/// A thread that alice's host orders, which nobody can reach, with bob and carol on others.
fn away() -> (Cluster, [Agent; 3], String) {
    let mut cluster = Cluster::new(3);
    let agents = [(0, "alice"), (1, "bob"), (2, "carol")].map(|(hall, name)| cluster.agent(hall, name));
    let thread = cluster.thread((0, &agents[0]), &[(1, &agents[1]), (2, &agents[2])]);
    (0..3).for_each(|hall| cluster.isolate(hall));
    (cluster, agents, thread)
}

/// An entry of carol's with a text of its own, as her host consigns it.
fn consigned(cluster: &Cluster, carol: &Agent, thread: &str, (n, bytes): (u64, usize)) -> Consignment {
    let salt = Salt::new([9; 32]);
    let mut text = vec![b'a'; bytes.max(8)];
    text[..8].copy_from_slice(&n.to_be_bytes());
    let commitment = Commitment::to(&salt, &text);
    let source = Source::New(Text { commitment, media_type: MediaType::Plain });
    let ask = Some(Vec::new());
    let body = Body::EntryPost(EntryPost { source, summary: None, reply_to: None, ask, task: None, assign: None });
    let hall = &cluster.halls[2];
    let action: Action = Log::of(hall, thread).action(hall, carol, body);
    let signed = sign(&action, &hall.instance(carol).signing);
    let carried = carried(object(hall, thread), signed, Vec::new());
    Consignment { carried, contents: vec![Content { salt, bytes: text.into() }] }
}

fn passed_on(received: &Received) -> usize {
    let verdicts = received.messages.iter().flat_map(|message| match message {
        Message::Verdicts(verdicts) => verdicts.as_slice(),
        _ => &[],
    });
    verdicts.filter(|verdict| matches!(verdict, Verdict::PassedOn(_))).count()
}

#[test]
fn actions_of_others_are_passed_on_up_to_a_number_for_each_object() {
    let (mut cluster, [_, _, carol], thread) = away();
    let peer = cluster.host(2);
    let actions: Vec<_> = (0..1100).map(|n| consigned(&cluster, &carol, &thread, (n, 8))).collect();
    let object = object(&cluster.halls[1], &thread);
    let hall = &mut cluster.halls[1];
    for _ in 0..2 {
        let received = deliver(hall, &peer, Message::Actions(actions.clone()));
        assert_eq!(passed_on(&received), 1024);
        assert_eq!(rows(hall, Table::Outbox).len(), 1024);
        assert_eq!(PassedOn::On(&object).amount(&hall.snapshot()).expect("readable").0, 1024);
    }
}

#[test]
fn actions_of_others_are_passed_on_up_to_so_many_bytes() {
    let (mut cluster, [_, _, carol], thread) = away();
    let peer = cluster.host(2);
    let object = object(&cluster.halls[1], &thread);
    for n in 0..70 {
        let action = consigned(&cluster, &carol, &thread, (n, 1 << 20));
        let received = deliver(&mut cluster.halls[1], &peer, Message::Actions(vec![action]));
        assert_eq!(passed_on(&received), usize::from(n < 63), "action {n}");
    }
    let state = cluster.halls[1].snapshot();
    let amounts = [PassedOn::On(&object), PassedOn::By(&peer)].map(|of| of.amount(&state).expect("readable"));
    assert_eq!(amounts[0], amounts[1]);
    assert!(amounts[0].1 <= BYTES_MAX);
    let before = cluster.halls[1].trace();
    kwoon_store::rebuild(&cluster.halls[1].store).expect("it can be rebuilt");
    assert!(cluster.halls[1].trace() == before, "what is counted follows from the outbox");
    // Once its sequencer has decided it, nothing of it is counted.
    cluster.connect(1, 0);
    cluster.settle();
    let state = cluster.halls[1].snapshot();
    assert_eq!(PassedOn::On(&object).amount(&state).expect("readable"), (0, 0));
    assert_eq!(PassedOn::By(&peer).amount(&state).expect("readable"), (0, 0));
}

#[test]
fn what_was_refused_of_others_makes_room_for_what_is_to_come() {
    let (mut cluster, [_, _, carol], thread) = away();
    let peer = cluster.host(2);
    // Longer than a host allows: each is refused by the thread's sequencer.
    let long = |cluster: &Cluster, n| consigned(cluster, &carol, &thread, (n, 8 << 20));
    for n in 0..7 {
        let action = long(&cluster, n);
        deliver(&mut cluster.halls[1], &peer, Message::Actions(vec![action]));
    }
    let full = long(&cluster, 7);
    let refused = deliver(&mut cluster.halls[1], &peer, Message::Actions(vec![full.clone()]));
    assert_eq!(passed_on(&refused), 0);
    cluster.connect(1, 0);
    cluster.settle();
    cluster.isolate(1);
    assert_eq!(outgoing(&cluster.halls[1]), (7, 0));
    let taken = deliver(&mut cluster.halls[1], &peer, Message::Actions(vec![full]));
    assert_eq!(passed_on(&taken), 1);
    assert_eq!(outgoing(&cluster.halls[1]), (0, 1));
}

#[test]
fn what_comes_beside_an_action_counts_as_well() {
    let (mut cluster, [_, _, carol], thread) = away();
    let peer = cluster.host(2);
    for n in 0..4 {
        let mut action = consigned(&cluster, &carol, &thread, (n, 8));
        action.carried.outcomes = vec![vec![0; 30 << 20].into()];
        let received = deliver(&mut cluster.halls[1], &peer, Message::Actions(vec![action]));
        assert_eq!(passed_on(&received), usize::from(n < 2), "action {n}");
    }
}

/// A thread on alice's host in which bob, on another with room for so many, has lost his voice, and three entries of his
/// that were refused for it.
fn refused(outbox_max: u64) -> (Cluster, [Agent; 2], String) {
    let mut cluster = Cluster::new(1);
    cluster.halls.push(Hall::seeded([77; 32], Limits { outbox_max, ..Limits::DEFAULT }));
    let (alice, bob) = (cluster.agent(0, "alice"), cluster.agent(1, "bob"));
    let thread = cluster.thread((0, &alice), &[(1, &bob)]);
    cluster.isolate(1);
    for n in 0..3 {
        let post =
            json!({"thread": thread, "text": format!("text {n}"), "ask": [], "idempotency_key": format!("k{n}")});
        cluster.halls[1].ok(&bob, "entry_post", post);
    }
    let role = |role: &str| json!({"thread": thread, "agent": bob.id, "role": role});
    cluster.halls[0].ok(&alice, "member_role", role("observer"));
    cluster.connect(1, 0);
    cluster.settle();
    assert_eq!(rows(&cluster.halls[0], Table::Refusals).len(), 3);
    cluster.ok((0, &alice), "member_role", role("speaker"));
    (cluster, [alice, bob], thread)
}

/// How many actions a hall has in its outbox that ended, and that did not.
fn outgoing(hall: &Hall) -> (usize, usize) {
    let rows = outbox::since(&hall.snapshot(), 0, usize::MAX).expect("readable");
    let pending = rows.iter().filter(|row| row.is_pending()).count();
    (rows.len() - pending, pending)
}

#[test]
fn what_was_refused_elsewhere_makes_room_for_what_is_to_come() {
    let (mut cluster, [_, bob], thread) = refused(3);
    assert_eq!(outgoing(&cluster.halls[1]), (3, 0));
    cluster.isolate(1);
    let post = |n: u8| json!({"thread": thread, "text": "again", "ask": [], "idempotency_key": format!("n{n}")});
    for n in 0..3 {
        cluster.halls[1].ok(&bob, "entry_post", post(n));
        assert_eq!(outgoing(&cluster.halls[1]), (2 - usize::from(n), 1 + usize::from(n)));
    }
    // What is pending goes for nothing.
    cluster.halls[1].refused(&bob, "entry_post", post(3), "capacity_reached");
    cluster.connect(1, 0);
    cluster.settle();
    assert_eq!(outgoing(&cluster.halls[1]), (0, 0));
    cluster.halls[1].verify();
}

#[test]
fn a_refused_action_is_listed_until_its_expiry_and_its_key_is_decided_anew_at_any_time() {
    let (mut cluster, [_, bob], thread) = refused(Limits::DEFAULT.outbox_max);
    let again = json!({"thread": thread, "text": "text 0", "ask": [], "idempotency_key": "k0"});
    // Before it is gone: another attempt of the same request.
    let answer = cluster.ok((1, &bob), "entry_post", again.clone());
    assert_eq!(answer["standing"], "pending");
    // It is in the place of the first attempt, and sent when all of the outbox is looked at anew.
    cluster.advance(Duration::seconds(30));
    assert_eq!(outgoing(&cluster.halls[1]), (2, 0));
    let first = cluster.halls[1].ok(&bob, "entry_post", again);
    assert!(first["receipt"].is_object(), "{first:#}");
    let contents = cluster.halls[1].snapshot().contents().count();
    cluster.advance(Duration::days(20));
    cluster.advance(Duration::days(11));
    cluster.ok((1, &bob), "entry_post", json!({"thread": thread, "text": "later", "ask": []}));
    assert_eq!(outgoing(&cluster.halls[1]), (0, 0));
    // Their texts went, one came.
    assert_eq!(cluster.halls[1].snapshot().contents().count(), contents - 2 + 1);
    // After it is gone: the same.
    let again = json!({"thread": thread, "text": "text 1", "ask": [], "idempotency_key": "k1"});
    cluster.ok((1, &bob), "entry_post", again.clone());
    let second = cluster.halls[1].ok(&bob, "entry_post", again);
    assert!(second["receipt"].is_object(), "{second:#}");
    cluster.halls[1].verify();
}

#[test]
fn a_refusal_that_was_told_is_kept_until_its_attempt_can_take_effect_no_more() {
    let (mut cluster, [alice, bob], thread) = refused(3);
    let peer = cluster.host(1);
    let rows_of_bob = outbox::since(&cluster.halls[1].snapshot(), 0, 1).expect("readable");
    let again = rows_of_bob[0].carried.clone();
    let mut contents = Vec::new();
    again.action().expect("an action").body.contents(|commitment| {
        let (salt, bytes) = cluster.halls[1].snapshot().content(&commitment.hash).expect("readable").expect("a text");
        contents.push(Content { salt, bytes: bytes.into() });
    });
    let consign = || Message::Actions(vec![Consignment { carried: again.clone(), contents: contents.clone() }]);
    let ended = |received: &Received| match &received.messages[..] {
        [Message::Verdicts(verdicts)] => match &verdicts[..] {
            [Verdict::Ended(outcome, _)] => kwoon_sync::receipt::refusal(outcome).code.name(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    // While it is kept, whatever has changed since.
    assert_eq!(ended(&deliver(&mut cluster.halls[0], &peer, consign())), "no_voice");
    cluster.advance(Duration::days(20));
    cluster.advance(Duration::days(10));
    cluster.advance(Duration::minutes(11));
    cluster.ok((0, &alice), "entry_post", json!({"thread": thread, "text": "time goes on", "ask": []}));
    // The next one that is refused clears what is over.
    cluster.isolate(1);
    cluster.halls[1].ok(&bob, "entry_post", json!({"thread": thread, "text": "too late again", "ask": []}));
    let role = json!({"thread": thread, "agent": bob.id, "role": "observer"});
    cluster.halls[0].ok(&alice, "member_role", role);
    cluster.connect(1, 0);
    cluster.settle();
    assert_eq!(rows(&cluster.halls[0], Table::Refusals).len(), 1);
    // One that comes again is refused all the same, and nothing is kept of it.
    let before = cluster.halls[0].trace();
    assert_eq!(ended(&deliver(&mut cluster.halls[0], &peer, consign())), "action_expired");
    assert_eq!(cluster.halls[0].trace(), before);
}
