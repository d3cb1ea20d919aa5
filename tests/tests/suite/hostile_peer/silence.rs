//! What is said to a host that may not read something, whatever it asks or claims.

use kwoon_keys::id::RequestId;
use kwoon_ledger::action::{Body, Role};
use kwoon_ledger::fact::Outcome;
use kwoon_sync::wire::{Consignment, Facts, Verdict};
use kwoon_tests::forge::{Log, sign};

use super::*;

/// A host that orders a thread from which carol, on another host, was removed; and her host's key.
fn parted() -> (Cluster, Agent, Agent, String) {
    let mut cluster = Cluster::new(3);
    let (alice, carol, dave) = (cluster.agent(0, "alice"), cluster.agent(1, "carol"), cluster.agent(2, "dave"));
    let thread = cluster.thread((0, &alice), &[(1, &carol), (2, &dave)]);
    cluster.connect_all();
    cluster.ok((0, &alice), "member_remove", json!({"thread": thread, "agent": carol.id}));
    cluster.isolate(1);
    (cluster, alice, carol, thread)
}

#[test]
fn a_stranger_that_asks_for_everything_gets_nothing() {
    let (mut hall, ..) = private();
    let before = hall.trace();
    let objects: Vec<_> = log::objects(&hall.snapshot(), 0, usize::MAX).expect("readable");
    let (mut link, mut said) = Link::greeted(&mut hall, &stranger().public(), unrelated()).expect("it goes on");
    let wishes: Vec<_> = objects.iter().map(|(_, object)| Wish { object: *object, from: 0 }).collect();
    said.extend(link.say(&mut hall, &Message::Want(wishes.clone())));
    said.extend(link.say(&mut hall, &Message::WantContents(wishes)));
    for (_, object) in &objects {
        said.extend(link.say(&mut hall, &Message::AskSeal(*object)));
        assert!(!shows(&said, object), "{object}");
    }
    assert_eq!(hall.trace(), before);
}

/// The greeting of a host whose owner did not add this one.
fn unrelated() -> Message {
    match hello(VERSIONS, START) {
        Message::Hello(hello) => Message::Hello(Hello { added: false, ..hello }),
        other => other,
    }
}

#[test]
fn a_peer_that_claims_what_it_does_not_have_is_asked_once_and_nothing_changes() {
    let (mut hall, ..) = private();
    let before = hall.trace();
    let (mut link, _) = Link::open(&mut hall, &stranger().public());
    let item = |n: u32| {
        let id = Digest::of("kwoon test claim", &[&n.to_be_bytes()]);
        let object = ObjectId::Thread(kwoon_keys::id::ThreadId(id));
        Item { object, epoch: 0, index: u64::MAX, head: Digest([1; 32]) }
    };
    let items: Vec<_> = (0..4096).map(item).collect();
    let said = link.say(&mut hall, &Message::Heads(Heads { items, changes: Some(1), digest: None, ranges: false }));
    assert_eq!(wants(&said).len(), 4096);
    assert!(!link.session.is_settled(), "what was claimed has not come");
    hall.advance(Duration::minutes(5));
    let mut later = Vec::new();
    link.go_on(&mut hall, &mut later);
    assert_eq!(wants(&later), [], "it is not asked for over and over");
    assert_eq!(hall.trace(), before);
}

#[test]
fn whose_right_ended_learns_nothing_of_what_came_after_by_what_it_claims() {
    let (mut cluster, alice, _, thread) = parted();
    let peer = cluster.host(1);
    let object = object(&cluster.halls[0], &thread);
    // The end of the right is the last fact so far.
    let (ended, _) = cluster.halls[0].digest(&thread);
    for _ in 0..3 {
        cluster.ok((0, &alice), "entry_post", json!({"thread": thread, "text": "among us", "ask": []}));
    }
    for hall in [0, 2] {
        let hall = &mut cluster.halls[hall];
        for index in [ended, ended + 1, ended + 3, u64::MAX] {
            let (mut link, mut said) = Link::open(hall, &peer);
            let items = vec![Item { object, epoch: 0, index, head: Digest([1; 32]) }];
            said.extend(link.say(hall, &Message::Heads(Heads { items, changes: None, digest: None, ranges: false })));
            let far = Facts {
                object,
                from: index,
                facts: vec![vec![0].into()],
                seals: Vec::new(),
                contents: Vec::new(),
                changes: None,
            };
            said.extend(link.say(hall, &Message::Facts(far)));
            said.extend(link.say(hall, &Message::Want(vec![Wish { object, from: index }])));
            assert!(wants(&said).iter().all(|wish| wish.from <= ended + 1), "{said:?}");
            for message in &said {
                let Message::Heads(heads) = message else { continue };
                let told = heads.items.iter().find(|item| item.object == object);
                assert!(told.is_none_or(|item| item.index <= ended), "{said:?}");
            }
        }
    }
}

#[test]
fn whose_right_ended_is_not_told_that_a_thread_goes_on() {
    let (mut cluster, alice, _, thread) = parted();
    let peer = cluster.host(1);
    let object = object(&cluster.halls[0], &thread);
    let hall = &mut cluster.halls[0];
    let changes = log::next_arrival(&hall.snapshot()).expect("readable");
    let (mut link, mut said) = Link::open(hall, &peer);
    hall.post(&alice, &thread, json!({"ask": []}));
    link.go_on(hall, &mut said);
    assert!(log::next_arrival(&hall.snapshot()).expect("readable") > changes);
    assert!(!shows(&said, &object), "{said:?}");
}

#[test]
fn a_refusal_tells_whose_right_ended_no_later_place() {
    let (mut cluster, alice, carol, thread) = parted();
    let (ended, _) = cluster.halls[0].digest(&thread);
    let key = cluster.halls[1].instance(&carol).signing;
    let (peer, number) = (cluster.host(1), object(&cluster.halls[0], &thread));
    let instance = kwoon_tests::forge::instance_id(&cluster.halls[1], &carol);
    let hall = &mut cluster.halls[0];
    let body = Body::MemberRole(alice.full_id(), Role::Speaker);
    let mut action = Log::of(hall, &thread).action(hall, &alice, body);
    action.actor = kwoon_ledger::action::Actor::Agent(carol.full_id(), instance);
    hall.post(&alice, &thread, json!({"ask": []}));
    let signed = sign(&action, &key);
    let carried = carried(number, signed, Vec::new());
    let received = deliver(hall, &peer, Message::Actions(vec![Consignment { carried, contents: Vec::new() }]));
    let [Message::Verdicts(verdicts)] = &received.messages[..] else { panic!("{received:?}") };
    let [Verdict::Ended(outcome, _)] = &verdicts[..] else { panic!("{verdicts:?}") };
    let payload = kwoon_keys::cose::payload(kwoon_keys::RecordKind::Outcome, outcome).expect("signed");
    let outcome: Outcome = kwoon_keys::cbor::read_strict(payload).expect("an outcome");
    assert_eq!(outcome.index, ended);
}

pub(super) fn carried(
    object: ObjectId,
    signed: minicbor::bytes::ByteVec,
    outcomes: Vec<minicbor::bytes::ByteVec>,
) -> kwoon_ledger::outbox::Carried {
    kwoon_ledger::outbox::Carried { object, signed, evidence: Vec::new(), records: Vec::new(), outcomes }
}

#[test]
fn an_action_on_a_log_that_its_bringer_may_not_read_is_answered_as_if_there_were_none() {
    let (mut hall, alice, thread) = private();
    let body = Body::EntryHandle(RequestId(Digest([1; 32])), None);
    let action = Log::of(&hall, &thread).action(&hall, &alice, body);
    let signed = sign(&action, &stranger());
    let here = object(&hall, &thread);
    let before = hall.trace();
    for object in [here, wish_of_nothing()] {
        let consignment = Consignment { carried: carried(object, signed.clone(), Vec::new()), contents: Vec::new() };
        let received = deliver(&mut hall, &stranger().public(), Message::Actions(vec![consignment]));
        assert!(received.messages.is_empty() && received.fault.is_none(), "{received:?}");
    }
    assert_eq!(hall.trace(), before);
}

#[test]
fn ranges_that_never_end_end_for_this_host() {
    let (mut hall, ..) = private();
    let before = hall.trace();
    let (mut link, _) = Link::open(&mut hall, &stranger().public());
    // One range up to the end of all, and a fingerprint that is nobody's: it is split anew each time.
    let mut ask = vec![0x61, 0x00, 0x00, 0x01];
    ask.extend_from_slice(&[7; 16]);
    let mut answers = 0;
    for _ in 0..5000 {
        answers += link.say(&mut hall, &Message::Ranges(ask.clone().into())).len();
    }
    assert!(answers <= 4096, "{answers}");
    assert_eq!(link.say(&mut hall, &Message::Ranges(ask.into())).len(), 0);
    // Nonsense ends it as well, and the conversation goes on.
    for bytes in [vec![], vec![0x61, 0xff], vec![0x62, 0], vec![0xff; 60_000]] {
        let (mut link, _) = Link::open(&mut hall, &stranger().public());
        link.say(&mut hall, &Message::Ranges(bytes.into()));
        link.say(&mut hall, &Message::Items(vec![Digest([1; 32]); 4096]));
    }
    assert_eq!(hall.trace(), before);
}
