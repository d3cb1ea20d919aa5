//! Whole logs of a small host: every fact with its effects, head and digest, and the last seal. They are folded again
//! from nothing, as a host would that has just got them.

use kwoon_keys::{PublicKey, cbor};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::fact::{Fact, Seal, fact_hash, head_hash};
use kwoon_ledger::state::{Cells, ObjectNumber};
use kwoon_ledger::storage::Store;
use kwoon_ledger::storage::{Order, Overlay, Read, Table};
use kwoon_ledger::time::Duration;
use kwoon_ledger::{log, replica};
use kwoon_store::MemoryStore;
use kwoon_tests::{Hall, owner, text};

use super::*;

/// A few actions that bring forth every cause but a change of epoch, and an entry with evidence.
fn hall() -> Hall {
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    let question = hall.post(&alice, &thread, json!({}));
    hall.advance(Duration::seconds(1));
    hall.post(&bob, &thread, json!({"reply_to": question}));
    let work = hall.assign(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
    hall.ok(&bob, "assignment_take", json!({"assignment": work}));
    hall.advance(Duration::minutes(60));
    let memories = hall.ok(&bob, "memory_list", json!({}));
    let memory = text(&memories["result"]["memories"][0]["memory"]);
    hall.ok(&bob, "memory_publish", json!({"memory": memory}));
    hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": memory}));
    hall.ok(&bob, "memory_withdraw", json!({"memory": memory}));
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    hall
}

pub fn add(vectors: &mut Vectors) {
    let hall = hall();
    let snapshot = hall.snapshot();
    for (number, object) in log::objects(&snapshot, 0, usize::MAX).expect("readable") {
        add_log(vectors, &snapshot, number, &object);
    }
}

fn add_log(vectors: &mut Vectors, read: &dyn Read, number: ObjectNumber, object: &ObjectId) {
    let store = MemoryStore::new();
    let nothing = store.snapshot().expect("memory is readable");
    let mut folded = Overlay::new(&nothing);
    let (from, to) = (log::fact_key(number, 0), log::fact_key(number, u64::MAX));
    let mut facts = Vec::new();
    for (_, bytes) in read.range(Table::Log, &from, &to, Order::Rising, usize::MAX).expect("readable") {
        let fact: Fact = cbor::read_strict(&bytes).expect("a fact reads back strictly");
        let effects = replica::fold(&mut folded, number, &bytes).expect("a fact folds");
        facts.push(json!({
            "fact": hex(&bytes),
            "effects": hex(&cbor::write(&effects)),
            "head": hex(&head_hash(&fact.previous, &fact_hash(&bytes)).0),
            "digest": hex(&fact.digest.0),
        }));
    }
    let head = Cells::new(read, number).head().expect("readable").expect("a head");
    let record = read.get(Table::Seals, &log::seal_key(number, head.epoch, head.index)).expect("readable");
    let record = record.expect("the last fact is sealed");
    assert_eq!(Seal::verify(&record, &head.sequencer).map(|seal| seal.head), Ok(head.hash));
    let sequencer: &PublicKey = &head.sequencer;
    let vector = json!({
        "object": object.to_string(),
        "sequencer": sequencer.to_string(),
        "facts": facts,
        "seal": hex(&record),
    });
    let kind = object_name(object).trim_start_matches("Object").trim_start_matches("Id.").to_lowercase();
    vectors.add("logs", &format!("{} {kind}", number + 1), vector);
}
