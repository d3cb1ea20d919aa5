//! What hosts say to each other, and what a host keeps of others.

use kwoon_keys::{Digest, RecordKind, Salt, cbor, cose};
use kwoon_ledger::action::{ObjectId, attempt_hash};
use kwoon_ledger::fact::{EpochStatement, Evidence, Signer};
use kwoon_ledger::forget::{Ended, Kept};
use kwoon_ledger::outbox::{Carried, Outgoing, Progress};
use kwoon_sync::intake::{ToldRefusal, Voice};
use kwoon_sync::peers::Peer;
use kwoon_sync::session::digest_of;
use kwoon_sync::ticket::{HostHint, PeerTicket};
use kwoon_sync::wire::{
    Consignment, Content, Contents, Ending, Facts, Heads, Hello, Item, Message, Seen, VERSIONS, Verdict, Wish,
};
use minicbor::bytes::ByteVec;
use negentropy::{Id, Negentropy, NegentropyStorageVector, Storage};

use super::bodies::action;
use super::facts::{epoch_statement, outcome, refused, seal, sealed_outcome, signed_action, signed_identity};
use super::inputs::*;
use super::*;

fn hint() -> HostHint {
    let addresses = vec!["192.0.2.1:4433".to_owned(), "[2001:db8::1]:4433".to_owned()];
    HostHint { host: host().public(), addresses }
}

fn seen() -> Seen {
    Seen { counting: digest(0x61), changes: 17 }
}

fn item(index: u64) -> Item {
    Item { object: ObjectId::Thread(thread()), epoch: 0, index, head: digest(0x33) }
}

fn wish() -> Wish {
    Wish { object: ObjectId::Thread(thread()), from: 302 }
}

fn content() -> Content {
    Content { salt: Salt::new([0x51; 32]), bytes: b"content".to_vec().into() }
}

fn carried() -> Carried {
    Carried {
        object: ObjectId::Thread(thread()),
        signed: signed_action(),
        evidence: vec![Evidence::Publication(sealed_outcome(), vec![signed_identity()])],
        records: vec![signed_identity()],
        outcomes: vec![signed_outcome()],
    }
}

fn signed_outcome() -> ByteVec {
    cose::sign(RecordKind::Outcome, &cbor::write(&outcome(refused())), &host()).into()
}

fn voice_of(pair: &KeyPair) -> ByteVec {
    let signer = Signer::Host(pair.public());
    let statement = EpochStatement { signer, ..epoch_statement() };
    cose::sign(RecordKind::Epoch, &cbor::write(&statement), pair).into()
}

fn attempt() -> Digest {
    attempt_hash(&signed_action())
}

fn outgoing(progress: Progress) -> Outgoing {
    let called = Some(("entry_handle".to_owned(), "k-1".to_owned()));
    Outgoing {
        carried: carried(),
        progress,
        own: true,
        order: 5,
        hosts: vec![host().public()],
        called,
        brought_by: None,
    }
}

/// The first message of a comparison of ranges, as the host that called sends it that has these logs.
fn first_ranges(items: &[Item]) -> Vec<u8> {
    let mut storage = NegentropyStorageVector::with_capacity(items.len());
    for item in items {
        storage.insert(0, Id::from_byte_array(item.id().0)).expect("it is not sealed yet");
    }
    storage.seal().expect("it is not sealed yet");
    let mut comparison = Negentropy::new(Storage::Owned(storage), 60_000).expect("the frame is of an allowed size");
    comparison.initiate().expect("it begins now")
}

pub fn add(vectors: &mut Vectors) {
    add_parts(vectors);
    add_messages(vectors);
    add_kept(vectors);
    add_tickets(vectors);
}

fn verdicts() -> Vec<Verdict> {
    vec![
        Verdict::Sealed(Box::new(sealed_outcome()), host().public(), vec![sealed_outcome()]),
        Verdict::Ended(signed_outcome(), vec![sealed_outcome()]),
        Verdict::NotTaken(attempt(), 1000),
        Verdict::PassedOn(attempt()),
        Verdict::Elsewhere(attempt(), ObjectId::Thread(thread()), action().request(), hint()),
    ]
}

fn hello() -> Hello {
    Hello { versions: VERSIONS, counting: digest(0x62), changes: 40, seen: Some(seen()), added: true, time: NOON }
}

fn heads() -> Heads {
    let items = vec![item(301), Item { object: ObjectId::Identity(agent()), ..item(3) }];
    Heads { items, changes: Some(40), digest: Some(digest(0x63)), ranges: false }
}

fn facts() -> Facts {
    Facts {
        object: ObjectId::Thread(thread()),
        from: 301,
        facts: vec![sealed_outcome().fact, vec![0xa0].into()],
        seals: vec![seal().sign(&host()).into()],
        contents: vec![content()],
        changes: Some(41),
    }
}

fn consignment() -> Consignment {
    Consignment { carried: carried(), contents: vec![content()] }
}

fn ending() -> Ending {
    Ending {
        object: ObjectId::Thread(thread()),
        from: 299,
        between: vec![digest(0x64), digest(0x65)],
        outcome: sealed_outcome(),
        moves: vec![sealed_outcome()],
    }
}

fn contents() -> Contents {
    Contents { object: ObjectId::Thread(thread()), index: 301, contents: vec![content()] }
}

fn add_parts(vectors: &mut Vectors) {
    vectors.record("Versions", &VERSIONS);
    vectors.record("Seen", &seen());
    vectors.record("Hello", &hello());
    vectors.record("Hello of hosts that never met", &Hello { seen: None, added: false, ..hello() });
    let bytes = vectors.record("Item", &item(301));
    vectors.add("derivations", "item id", json!({"inputs": {"item": "Item"}, "output": hex(&item(301).id().0)}));
    assert_eq!(item(301).id(), Digest::of("kwoon 1 item", &[&bytes]));
    let mut items = [item(301), item(302)];
    items.sort_by_key(Item::id);
    let ids: Vec<_> = items.iter().map(|item| hex(&item.id().0)).collect();
    vectors.add("derivations", "shared digest", json!({"inputs": {"ids": ids}, "output": hex(&digest_of(&items).0)}));
    vectors.record("Heads", &heads());
    let more = Heads { items: vec![item(301)], changes: None, digest: None, ranges: true };
    vectors.record("Heads with more to come", &more);
    vectors.record("Wish", &wish());
    vectors.record("Content", &content());
    vectors.record("Facts", &facts());
    vectors.record("Facts that tell of no changes", &Facts { changes: None, ..facts() });
    vectors.record("Carried", &carried());
    vectors.record("Consignment", &consignment());
    for verdict in verdicts() {
        vectors.record(verdict_name(&verdict), &verdict);
    }
    vectors.record("Ending", &ending());
    vectors.record("Contents", &contents());
}

fn add_messages(vectors: &mut Vectors) {
    let items = [item(301), item(302)];
    let messages = [
        Message::Hello(hello()),
        Message::Heads(heads()),
        Message::Want(vec![wish()]),
        Message::Facts(facts()),
        Message::Actions(vec![consignment()]),
        Message::Verdicts(verdicts()),
        Message::WantContents(vec![wish()]),
        Message::Contents(contents()),
        Message::AskSeal(ObjectId::Thread(thread())),
        Message::Ranges(first_ranges(&items).into()),
        Message::Items(items.iter().map(Item::id).collect()),
        Message::Ending(ending()),
        Message::AskVoice(voice_of(&host())),
        Message::Voice(voice_of(&next_owner())),
    ];
    for message in messages {
        let bytes = vectors.record(message_name(&message), &message);
        assert_eq!(Message::read(&bytes), Ok(message));
    }
}

fn add_kept(vectors: &mut Vectors) {
    for progress in [Progress::Pending, Progress::Refused(signed_outcome()), Progress::Expired] {
        vectors.record(progress_name(&progress), &progress);
    }
    vectors.record("Outgoing", &outgoing(Progress::Refused(signed_outcome())));
    vectors.record("Outgoing of another host", &Outgoing::passed_on(carried(), host().public()));
    let expires_at = action().expires_at;
    vectors.record("ToldRefusal", &ToldRefusal { outcome: signed_outcome(), request: action().request(), expires_at });
    let voice = Voice { next_epoch: 1, next_host: next_owner().public(), signed: voice_of(&host()) };
    vectors.record("Voice", &voice);
    let peer = Peer {
        added: true,
        blocked: false,
        addresses: hint().addresses,
        relay: Some("https://relay.example/".to_owned()),
        seen: Some(seen()),
        heard_at: Some(NOON),
        ahead_ms: -300,
    };
    vectors.record("Peer", &peer);
    vectors.record("Peer that was never heard", &Peer { added: true, ..Peer::default() });
    let ended = Ended {
        object: ObjectId::Thread(thread()),
        epoch: 0,
        index: 302,
        head: digest(0x33),
        sequencer: host().public(),
        hosts: vec![host().public()],
        opening: digest(0x66),
    };
    vectors.record("Ended", &ended);
    vectors.record("Kept", &Kept { outcome: sealed_outcome(), sequencer: host().public(), arrival: 9 });
}

fn add_tickets(vectors: &mut Vectors) {
    vectors.record("HostHint", &hint());
    vectors.record("HostHint without addresses", &HostHint { addresses: Vec::new(), ..hint() });
    let relayed = PeerTicket::new(hint(), Some("https://relay.example/".to_owned()));
    let direct = PeerTicket::new(hint(), None);
    for (name, ticket) in [("PeerTicket", relayed), ("PeerTicket without a relay", direct)] {
        vectors.record(name, &ticket);
        assert_eq!(PeerTicket::read(&ticket.text()), Some(ticket.clone()));
        let title = if name == "PeerTicket" { "ticket to a host" } else { "ticket to a host without a relay" };
        vectors.add("derivations", title, json!({"inputs": {"ticket": name}, "output": ticket.text()}));
    }
}
