//! What a rebuild gives back, and that a power cut in the middle of one is no matter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use kwoon_ledger::storage::{Batch, Read, Store, Table};
use kwoon_ledger::time::Duration;
use kwoon_store::{
    CACHE_BYTES_DEFAULT, DiskStore, Home, OpenMode, Rebuildable as _, Sizes, rebuild, rebuild_in_steps_of,
};
use kwoon_sync::operations::{ALL, Operation};
use kwoon_tests::hall::Ground;
use kwoon_tests::medium::{Medium, Survival};
use kwoon_tests::recorder::{Event, Recorder};
use kwoon_tests::{Agent, Hall, owner, rule};
use serde_json::{Value, json};

use crate::crash::life::{Life, fresh};
use crate::crash::{Noted, Run, contents, rounds, start, states};
use crate::ledger_rebuild::{Rows, STEP, batch, long, rows_of};

/// The ids of one kind that the script's answers hold.
fn ids(field: &str) -> BTreeSet<&'static str> {
    let answers = rounds().iter().flat_map(|round| &round.answers);
    answers.filter_map(|answer| answer.pointer(field)?.as_str()).collect()
}

/// Every read of every agent and the owner, of everything that the script made.
fn reads<S: Ground>(hall: &mut Hall<S>) -> BTreeMap<String, Value> {
    let mut calls: Vec<(&str, Value)> =
        ["turn", "opportunities", "memory_list", "thread_list", "agent_list", "outbox_list", "assignment_list"]
            .map(|operation| (operation, json!({"limit": 50})))
            .to_vec();
    calls.extend(
        ["host_status", "ledger_verify", "object_digest", "quarantine_list"].map(|operation| (operation, json!({}))),
    );
    calls.extend(["o", "notes", "m"].map(|query| ("memory_search", json!({"query": query, "limit": 50}))));
    for thread in ids("/result/thread") {
        calls.extend(
            ["thread_get", "thread_entries", "member_list", "assignment_list"]
                .map(|operation| (operation, json!({"thread": thread}))),
        );
        calls.extend((1..20).map(|entry| ("entry_get", json!({"thread": thread, "entry": entry}))));
    }
    for assignment in ids("/result/assignment") {
        calls.push(("assignment_get", json!({"assignment": assignment})));
    }
    for memory in ids("/result/memory") {
        calls.push(("memory_get", json!({"memory": memory})));
        calls.extend((1..4).map(|version| ("memory_get", json!({"memory": memory, "version": version}))));
    }
    for agent in ids("/result/agent") {
        calls.push(("agent_get", json!({"agent": agent})));
    }
    for object in ids("/receipt/object") {
        calls.push(("working_set", json!({"object": object})));
        calls.push(("object_log", json!({"object": object, "format": "cbor", "limit": 50})));
        calls.push(("object_digest", json!({"object": object})));
    }
    for receipt in ids("/receipt/id") {
        calls.push(("receipt_get", json!({"id": receipt})));
    }
    let mut callers: Vec<Agent> = vec![owner()];
    for (agent, ..) in rounds().iter().flat_map(|round| &round.calls) {
        if !callers.contains(agent) {
            callers.push(agent.clone());
        }
    }
    let mut answers = BTreeMap::new();
    for caller in &callers {
        for (operation, arguments) in &calls {
            let answer = hall.call(caller, operation, arguments.clone());
            answers.insert(format!("{} {operation} {arguments}", caller.id), answer);
        }
    }
    answers
}

#[test]
fn a_store_of_the_primary_tables_alone_gives_every_read_of_every_agent() {
    rule!(holds, "L1.1");
    // While much is owed and on offer, and when all is over.
    reads_after_a_copy(10);
    reads_after_a_copy(rounds().len());
}

/// Copies what is primary of a store after some rounds, rebuilds the rest, and compares every read.
fn reads_after_a_copy(to: usize) {
    let mut whole = start(Run::record(fresh(&[]), None, Noted::default(), to, Duration(0)).after(), "the whole store");
    let end = rounds()[to - 1].at.after(Duration::seconds(30));
    whole.hall.now = end;
    let expected = reads(&mut whole.hall);
    // What concerns other homes and files is no read of this one.
    let others = ["agent_consent", "peer_ticket", "peer_list"];
    let reading = |operation: &&Operation| {
        !operation.is_action() && !operation.uses_a_file() && !others.contains(&operation.name)
    };
    for operation in ALL.iter().filter(reading) {
        let of = |call: &&String| call.split(' ').nth(1) == Some(operation.name);
        let succeeded = expected.keys().filter(of).any(|call| expected[call]["ok"] == true);
        assert!(succeeded, "{} is among the reads", operation.name);
    }
    let owed = expected.iter().filter(|(call, answer)| {
        call.contains(" turn ") && answer["result"]["obligations"].as_array().is_some_and(|owed| !owed.is_empty())
    });
    assert!(owed.count() > 1 || to == rounds().len(), "several agents owe something");

    // What the doc of each table calls primary, the contents and the keys, and nothing else.
    let (state, snapshot) = (whole.state(), whole.hall.snapshot());
    let mut primary = Batch { keys: whole.hall.store.keys(), ..Batch::default() };
    for table in Table::ALL.into_iter().filter(|table| *table != Table::Derived) {
        primary.rows.extend(state.table(table).iter().map(|(key, value)| ((table, key.clone()), Some(value.clone()))));
    }
    let held = contents().iter().filter_map(|hash| Some((*hash, snapshot.content(hash).unwrap()?)));
    primary.content.extend(held);
    let copy = start(fresh(&[]), "a new home");
    copy.hall.store.store.commit(primary).unwrap();
    assert_eq!(copy.state().table(Table::Derived), []);
    rebuild(&copy.hall.store.store).unwrap();
    let mut copy = copy.restart().unwrap();
    assert!(copy.state() == state, "every row, content and key");
    copy.hall.now = end;
    let found = reads(&mut copy.hall);
    for (call, answer) in &expected {
        assert_eq!(&found[call], answer, "{call}");
    }
}

#[test]
fn what_a_store_without_one_of_its_tables_says() {
    rule!(refused, "L1.1");
    let state = states().last().unwrap();
    let without = |missing: Table| {
        let life = start(Run::whole().after(), "the end of the script");
        let gone = state.table(missing).iter().map(|(key, _)| ((missing, key.clone()), None));
        life.hall.store.store.commit(Batch { rows: gone.collect(), ..Batch::default() }).unwrap();
        life
    };
    // Facts, their order and whose they are: each is needed to rebuild, and a rebuild says so.
    for table in [Table::Objects, Table::Log, Table::Arrivals] {
        let error = rebuild(&without(table).hall.store.store).unwrap_err();
        assert!(error.to_string().contains("restore the home from a backup"), "{table:?}: {error}");
    }
    // Without seals the facts are what they were, and verification finds that nobody vouches for them.
    let mut life = without(Table::Seals);
    rebuild(&life.hall.store.store).unwrap();
    assert_eq!(life.state().table(Table::Derived), state.table(Table::Derived));
    let verified = life.hall.ok(&owner(), "ledger_verify", json!({}));
    assert_eq!(verified["result"]["sound"], false);
    // Envelopes are all there is of the keys as they were given, and outcomes of successes without effect.
    let done = rounds().iter().flat_map(|round| round.calls.iter().zip(&round.answers));
    let done: Vec<_> = done.filter(|(_, answer)| answer["ok"] == true).collect();
    let ((agent, ..), said) = done.iter().find(|((_, operation, _), _)| *operation == "entry_post").unwrap();
    let mut life = without(Table::Envelopes);
    rebuild(&life.hall.store.store).unwrap();
    assert_eq!(life.state().table(Table::Derived), state.table(Table::Derived));
    let mut receipt = said["receipt"].clone();
    receipt["key"] = Value::Null;
    let found = life.hall.ok(agent, "receipt_get", json!({"id": receipt["id"]}));
    assert_eq!(found["receipt"], receipt);
    let ((agent, _, again), _) = done.iter().find(|(_, answer)| answer["result"]["existing"] == true).unwrap();
    let asked = json!({"operation": "thread_join", "key": again["idempotency_key"]});
    let mut life = without(Table::Outcomes);
    rebuild(&life.hall.store.store).unwrap();
    assert!(life.state().table(Table::Derived).len() < state.table(Table::Derived).len());
    let code = |life: &mut Life| life.hall.call(agent, "receipt_get", asked.clone())["error"]["code"].clone();
    assert_eq!(code(&mut life), "not_found");
    assert_eq!(code(&mut start(Run::whole().after(), "the end of the script")), Value::Null);
    // Single values hold the version of the store, without which it is not opened.
    let life = without(Table::Meta);
    // The rows go from the journal into the tables.
    life.hall.store.store.begin_rebuild().unwrap();
    let medium = life.recorder.tape().medium.clone();
    let refused = Life::start(medium, None, false).err().expect("a store that is refused").why;
    assert!(refused.contains("restore the home from a backup"), "{refused}");
}

fn open(path: &Path, medium: &Medium) -> (Recorder<()>, DiskStore) {
    let recorder = Recorder::new(path, medium.clone(), None);
    let home = Home::open_on(path, OpenMode::Existing, Arc::new(recorder.clone())).unwrap();
    let store = DiskStore::open_on(&home, recorder.clone(), Sizes::default()).unwrap();
    (recorder, store)
}

/// What a store on this disk holds once it is open, and the steps of opening it.
fn opened(medium: &Medium) -> (Rows, Vec<Event<()>>) {
    let dir = tempfile::tempdir().unwrap();
    let (recorder, store) = open(&dir.path().join("home"), medium);
    let rows = rows_of(&store.snapshot().unwrap());
    drop(store);
    let events = std::mem::take(&mut recorder.tape().events);
    (rows, events)
}

/// The disk as a power cut leaves it before each sync of what was recorded, one after the other.
fn cuts(before: &Medium, events: &[Event<()>], mut at: impl FnMut(usize, Medium)) -> usize {
    let (mut medium, mut syncs) = (before.clone(), 0);
    for event in events {
        let Event::Step(step) = event else { continue };
        if step.is_sync() {
            at(syncs, medium.after_crash(Survival::ALL[syncs % Survival::ALL.len()], syncs as u64));
            syncs += 1;
        }
        medium.take(step);
    }
    syncs
}

#[test]
fn a_power_cut_at_any_sync_of_a_rebuild_is_made_good_by_the_next_start() {
    rule!(holds, "L1.1", "L2.1");
    // Long enough for a rebuild of several commits.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made");
    let home = Home::open(&path, OpenMode::MakeIfMissing).unwrap();
    let store = DiskStore::open(&home, CACHE_BYTES_DEFAULT).unwrap();
    store.commit(batch(long())).unwrap();
    store.close().unwrap();
    let before = Medium::of(&path, "store.redb");
    let rows = opened(&before).0;
    assert!(rows.keys().any(|(table, _)| *table == Table::Derived));

    let (recorder, store) = open(&dir.path().join("home"), &before);
    rebuild_in_steps_of(&store, STEP).unwrap();
    store.close().unwrap();
    let events = std::mem::take(&mut recorder.tape().events);
    let (mut begun, mut again) = (0, 0);
    let syncs = cuts(&before, &events, |number, cut| {
        let (found, events) = opened(&cut);
        assert!(found == rows, "cut before sync {number}");
        begun += 1;
        // The rebuild that the next start makes is cut as well.
        if number % 5 == 4 {
            cuts(&cut, &events, |second, cut| {
                if second % 2 == 0 {
                    assert!(opened(&cut).0 == rows, "cut before sync {number}, then before {second}");
                    again += 1;
                }
            });
        }
    });
    assert!(syncs > 8 && again > 4, "{syncs} syncs, {again} cut again");
    println!("{begun} cuts of a rebuild at {syncs} syncs, {again} of the one that made it good");
}
