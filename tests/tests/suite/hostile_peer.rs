//! What a host does with another one that means it no good, or does not know better: it goes on, keeps what it holds within
//! bounds and as it was, says what it saw, and tells nothing.

mod bounds;
mod records;
mod silence;

use kwoon_keys::{Digest, KeyPair, PublicKey};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::log;
use kwoon_ledger::storage::{Order, Read, Table};
use kwoon_ledger::time::{Duration, Time};
use kwoon_sync::intake::{Delivery, Intake, Received};
use kwoon_sync::session::{Broken, Session, Step};
use kwoon_sync::ticket::{HostHint, PeerTicket, Ticket};
use kwoon_sync::wire::{Heads, Hello, Item, MESSAGE_BYTES_MAX, Message, VERSIONS, Versions, Wish};
use kwoon_tests::cluster::Cluster;
use kwoon_tests::forge::stranger;
use kwoon_tests::hall::START;
use kwoon_tests::{Agent, Hall, owner};
use serde_json::{Value, json};

/// A link on which the test says what the other host does.
struct Link {
    session: Session,
    /// What was wrong with what the other sent.
    faults: Vec<&'static str>,
}

impl Link {
    /// The other has greeted.
    fn open(hall: &mut Hall, peer: &PublicKey) -> (Self, Vec<Message>) {
        Self::greeted(hall, peer, hello(VERSIONS, START)).expect("it goes on")
    }

    fn greeted(hall: &mut Hall, peer: &PublicKey, hello: Message) -> Result<(Self, Vec<Message>), Broken> {
        let (session, _) = hall.session(*peer, false);
        let mut link = Self { session, faults: Vec::new() };
        let said = link.hear(hall, &hello.write())?;
        Ok((link, said))
    }

    /// Says something; what comes back.
    fn say(&mut self, hall: &mut Hall, message: &Message) -> Vec<Message> {
        self.hear(hall, &message.write()).expect("it goes on")
    }

    fn hear(&mut self, hall: &mut Hall, frame: &[u8]) -> Result<Vec<Message>, Broken> {
        let mut said = Vec::new();
        let step = self.session.frame(&hall.snapshot(), frame, hall.now).expect("readable")?;
        self.carry(hall, step, &mut said);
        self.go_on(hall, &mut said);
        Ok(said)
    }

    /// Lets the host say what it has to say by itself.
    fn go_on(&mut self, hall: &mut Hall, said: &mut Vec<Message>) {
        loop {
            let step = self.session.step(&hall.snapshot(), hall.now).expect("readable");
            if step.send.is_empty() && step.deliver.is_none() && !self.session.has_more() {
                return;
            }
            self.carry(hall, step, said);
        }
    }

    fn carry(&mut self, hall: &mut Hall, mut step: Step, said: &mut Vec<Message>) {
        loop {
            said.extend(step.send);
            let Some(delivery) = step.deliver else { return };
            let received = hall.deliver(delivery).expect("the store can be read");
            self.faults.extend(received.fault);
            step = self.session.received(&hall.snapshot(), received, hall.now).expect("readable");
        }
    }
}

fn hello(versions: Versions, time: Time) -> Message {
    let counting = Digest([9; 32]);
    Message::Hello(Hello { versions, counting, changes: 0, seen: None, added: true, time })
}

/// Gives a message to the writer, as of this peer.
fn deliver(hall: &mut Hall, peer: &PublicKey, message: Message) -> Received {
    let delivery = Delivery { peer: *peer, related: true, intake: Intake::Message(message), seen: None };
    hall.deliver(delivery).expect("what a peer sends is no reason why the store cannot be read")
}

/// A thread's id, as it stands in records.
fn object(hall: &Hall, thread: &str) -> ObjectId {
    let objects = log::objects(&hall.snapshot(), 0, usize::MAX).expect("readable");
    objects.into_iter().find(|(_, id)| id.to_string() == thread).expect("it is here").1
}

/// Whether anything that was said shows more of an object than its id.
fn shows(said: &[Message], object: &ObjectId) -> bool {
    said.iter().any(|message| match message {
        Message::Facts(facts) => facts.object == *object,
        Message::Heads(heads) => heads.items.iter().any(|item| item.object == *object),
        Message::Contents(contents) => contents.object == *object,
        Message::Ending(ending) => ending.object == *object,
        _ => false,
    })
}

fn wants(said: &[Message]) -> Vec<Wish> {
    let wishes =
        said.iter().filter_map(|message| if let Message::Want(wishes) = message { Some(wishes) } else { None });
    wishes.flatten().copied().collect()
}

fn rows(hall: &Hall, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    hall.snapshot().range(table, &[], &[0xff; 80], Order::Rising, usize::MAX).expect("readable")
}

/// A host with a thread of two of its agents, in which no other host has anybody.
fn private() -> (Hall, Agent, String) {
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    hall.post(&alice, &thread, json!({}));
    hall.ok(&alice, "memory_create", json!({"text": "mine alone"}));
    (hall, alice, thread)
}

#[test]
fn a_ticket_to_a_thread_that_was_cut_altered_or_is_of_another_kind_is_none() {
    let (mut hall, alice, thread) = private();
    let ticket = hall.ticket(&alice, &thread, "speaker");
    let eve = hall.agent("eve");
    let hint = HostHint { host: stranger().public(), addresses: vec!["192.0.2.1:1".to_owned()] };
    let of_a_host = PeerTicket::new(hint.clone(), None).text();
    let whole = Ticket::read(&ticket).expect("a ticket");
    let opening = Ticket::new(whole.thread, Digest([1; 32]), &whole.admission(), Vec::new()).text();
    let other_key = Ticket::new(whole.thread, whole.opening, &stranger(), Vec::new()).text();
    let mut altered = ticket.clone().into_bytes();
    altered[40] = if altered[40] == b'a' { b'b' } else { b'a' };
    let altered = String::from_utf8(altered).expect("ASCII");
    let all = [&ticket[..ticket.len() / 2], &altered, &of_a_host, &opening, &other_key, "kwoonadm", &"a".repeat(5000)];
    let mut answers: Vec<Value> = Vec::new();
    for (n, bad) in all.into_iter().enumerate() {
        let error = hall.refused(&eve, "thread_join", json!({"ticket": bad}), "admission_invalid");
        answers.push(error);
        assert_eq!(answers[n], answers[0], "failed joins look alike");
    }
    hall.ok(&eve, "thread_join", json!({"ticket": ticket}));
}

#[test]
fn a_ticket_to_a_host_that_was_cut_altered_or_is_of_another_kind_is_none() {
    let (mut hall, alice, thread) = private();
    let of_a_thread = hall.ticket(&alice, &thread, "speaker");
    let hint = |host| HostHint { host, addresses: vec!["192.0.2.1:1".to_owned()] };
    let good = PeerTicket::new(hint(stranger().public()), None).text();
    let weak = PeerTicket::new(hint(PublicKey([0; 32])), None).text();
    let own = PeerTicket::new(hint(hall.key("host").public()), None).text();
    let nowhere = HostHint { host: stranger().public(), addresses: vec!["nowhere".to_owned()] };
    let nowhere = PeerTicket::new(nowhere, None).text();
    let many = HostHint { host: stranger().public(), addresses: vec!["192.0.2.1:1".to_owned(); 9] };
    let many = PeerTicket::new(many, None).text();
    let far = PeerTicket::new(hint(stranger().public()), Some("r".repeat(513))).text();
    for bad in [&good[..good.len() - 8], &of_a_thread, &weak, &own, &nowhere, &many, &far, "kwoonpeer", ""] {
        hall.refused(&owner(), "peer_add", json!({"ticket": bad}), "invalid_argument");
    }
    hall.ok(&owner(), "peer_add", json!({"ticket": good}));
}

#[test]
fn a_peer_of_a_newer_version_is_told_so_and_one_that_knows_this_one_too_is_understood() {
    let (mut hall, ..) = private();
    let before = hall.trace();
    let peer = stranger().public();
    let newer = Link::greeted(&mut hall, &peer, hello(Versions { least: 2, most: 9 }, START));
    assert_eq!(newer.err(), Some(Broken::Version));
    assert!(Broken::Version.to_string().contains("update the older of the two"));
    assert!(Link::greeted(&mut hall, &peer, hello(Versions { least: 1, most: 9 }, START)).is_ok());
    assert_eq!(hall.trace(), before);
}

#[test]
fn two_daemons_with_one_host_key_say_so_on_both_sides_and_the_copy_seals_nothing() {
    let (mut first, alice, thread) = private();
    let mut second = first.fork();
    second.copied();
    for hall in [&mut first, &mut second] {
        let own = hall.key("host").public();
        let before = hall.trace();
        let met = Link::greeted(hall, &own, hello(VERSIONS, START));
        assert_eq!(met.err(), Some(Broken::Oneself));
        assert_eq!(hall.trace(), before);
    }
    assert!(Broken::Oneself.to_string().contains("must not share one home or a copy of it"));
    // Nothing forks: the one that lies elsewhere seals nothing until its owner says which it is.
    first.post(&alice, &thread, json!({}));
    let error = second.refused(&alice, "entry_post", json!({"thread": thread, "text": "too"}), "not_sealing");
    assert_eq!(error["details"]["reason"], "home_restored");
}

#[test]
fn frames_that_are_no_messages_end_the_conversation_whatever_they_announce() {
    let (mut hall, ..) = private();
    let before = hall.trace();
    let peer = stranger().public();
    let huge = |variant: u8, head: &[u8]| [&[0x82, variant], head, &[0xff; 8]].concat();
    let mut bad = vec![Vec::new(), vec![0xff], vec![0; 100_000], vec![0; MESSAGE_BYTES_MAX + 1], vec![0x82, 14, 0xa0]];
    for variant in 0..14 {
        bad.extend([huge(variant, &[0x9b]), huge(variant, &[0xbb]), huge(variant, &[0x5b]), huge(variant, &[0x7b])]);
    }
    bad.push(Message::Want(vec![Wish { object: wish_of_nothing(), from: 0 }; 4097]).write());
    for frame in bad {
        let (mut link, _) = Link::open(&mut hall, &peer);
        assert_eq!(link.hear(&mut hall, &frame).err(), Some(Broken::Malformed));
    }
    assert_eq!(hall.trace(), before);
}

fn wish_of_nothing() -> ObjectId {
    ObjectId::Thread(kwoon_keys::id::ThreadId(Digest([5; 32])))
}

#[test]
fn who_speaks_before_greeting_or_greets_twice_spoke_out_of_turn() {
    let (mut hall, ..) = private();
    let peer = stranger().public();
    let first = Link::greeted(&mut hall, &peer, Message::Items(Vec::new()));
    assert_eq!(first.err(), Some(Broken::OutOfTurn));
    let (mut link, _) = Link::open(&mut hall, &peer);
    let again = link.hear(&mut hall, &hello(VERSIONS, START).write());
    assert_eq!(again.err(), Some(Broken::OutOfTurn));
}

#[test]
fn a_peer_with_a_wrong_clock_is_shown_with_its_difference_and_moves_no_log() {
    let mut cluster = Cluster::new(2);
    let (alice, bob) = (cluster.agent(0, "alice"), cluster.agent(1, "bob"));
    let thread = cluster.thread((0, &alice), &[(1, &bob)]);
    let peer = cluster.host(1);
    cluster.isolate(0);
    let hall = &mut cluster.halls[0];
    let before = hall.digest(&thread);
    for (time, ahead) in [
        (hall.now.after(Duration::days(3)), 3 * 86_400_000_i64),
        (Time(0), -i64::try_from(hall.now.0).expect("it fits")),
        (Time(u64::MAX), i64::MAX),
    ] {
        let time_said = hello(VERSIONS, time);
        Link::greeted(hall, &peer, time_said).expect("it goes on");
        let shown = hall.ok(&owner(), "peer_list", json!({}));
        assert_eq!(shown["result"]["peers"][0]["clock_difference_ms"].as_i64(), Some(ahead), "{shown:#}");
    }
    assert_eq!(hall.digest(&thread), before);
    hall.post(&alice, &thread, json!({}));
}

#[test]
fn facts_that_nobody_asked_for_are_named_as_such_and_not_kept() {
    let (mut hall, ..) = private();
    let mut other = Hall::seeded([99; 32], kwoon_ledger::limits::Limits::DEFAULT);
    let carol = other.agent("carol");
    let log = kwoon_tests::forge::Log::of(&other, &carol.id);
    let facts = kwoon_sync::wire::Facts {
        object: log.object,
        from: 0,
        facts: log.facts.into_iter().map(Into::into).collect(),
        seals: log.seals.into_iter().map(Into::into).collect(),
        contents: Vec::new(),
        changes: None,
    };
    let before = hall.trace();
    // Of a host that nobody here added, and that says nothing of having added this one.
    let Message::Hello(greeting) = hello(VERSIONS, START) else { panic!("a greeting") };
    let greeting = Message::Hello(Hello { added: false, ..greeting });
    let (mut link, _) = Link::greeted(&mut hall, &stranger().public(), greeting).expect("it goes on");
    assert_eq!(link.say(&mut hall, &Message::Facts(facts)), []);
    assert_eq!(link.faults, ["a log that nobody here asked for"]);
    assert_eq!(hall.trace(), before);
}
