//! Power cuts at every sync of a run: what was acknowledged is there, and what was not is there as a whole or not at all.
//!
//! A run is recorded step by step. From the record the disk is made as a crash before each sync may leave it, in several
//! ways; a host is started on it and goes on to the end of the script. `KWOON_CRASH_SEEDS=20` tries twenty times as many
//! ways as CI does.

pub mod life;
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use kwoon_keys::Digest;
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::fact::Seal;
use kwoon_ledger::storage::{Batch, Order, Read, Store, Table};
use kwoon_ledger::time::Duration;
use kwoon_store::{MemoryStore, rebuild};
use kwoon_tests::hall::key_of;
use kwoon_tests::medium::{Medium, Survival};
use kwoon_tests::recorder::{Event, Recorder};
use kwoon_tests::{owner, rule};
use redb::ReadableDatabase;
use serde_json::{Value, json};

use self::life::{Broken, Life, Note, State, fresh};
use self::script::{Round, SEED, script};

/// A run without a crash, and all that is compared with it.
pub struct Run {
    /// The disk before.
    before: Medium,
    /// What had been committed before.
    earlier: Arc<State>,
    /// What was found at the start.
    first: Arc<State>,
    /// What left the host before.
    noted: Noted,
    events: Vec<Event<Note>>,
    syncs: u64,
}

/// What left the host.
#[derive(Clone, Default)]
pub struct Noted {
    /// The answers, by round.
    answered: Vec<Vec<Value>>,
    /// The tokens, by the name of their agent.
    tokens: BTreeMap<String, String>,
}

impl Noted {
    fn take(&mut self, note: &Note) {
        match note {
            Note::Answered(answers) => self.answered.push(answers.clone()),
            Note::Token(name, token) => drop(self.tokens.insert(name.clone(), token.clone())),
            Note::Started | Note::Began | Note::Committed(_) => {}
        }
    }
}

/// Where a crash comes.
struct Point<'a> {
    number: usize,
    medium: &'a Medium,
    /// What the last commit left that was done.
    committed: &'a Arc<State>,
    /// What the commit would leave that is under way, if one is.
    under_way: Option<&'a Arc<State>>,
    noted: &'a Noted,
}

pub fn rounds() -> &'static [Round] {
    static ROUNDS: OnceLock<Vec<Round>> = OnceLock::new();
    ROUNDS.get_or_init(script)
}

/// The hashes of all contents of the script.
pub fn contents() -> &'static BTreeSet<Digest> {
    static CONTENTS: OnceLock<BTreeSet<Digest>> = OnceLock::new();
    CONTENTS.get_or_init(script::contents)
}

/// What each commit of the script leaves, and before these what was there at first.
pub fn states() -> &'static [Arc<State>] {
    static STATES: OnceLock<Vec<Arc<State>>> = OnceLock::new();
    STATES.get_or_init(|| {
        let run = Run::whole();
        let committed = run.events.iter().filter_map(committed_by);
        [&run.first].into_iter().chain(committed).cloned().collect()
    })
}

fn committed_by(event: &Event<Note>) -> Option<&Arc<State>> {
    match event {
        Event::Note(Note::Committed(state)) => Some(state),
        _ => None,
    }
}

/// How much more than in CI is tried.
fn seeds() -> u64 {
    std::env::var("KWOON_CRASH_SEEDS").map_or(1, |seeds| seeds.parse().expect("a number"))
}

/// Plays rounds to the end of the script or the first that could not be committed.
fn play(mut life: Life, from: usize, to: usize, later: Duration) -> Result<(Life, Vec<Vec<Value>>), Broken> {
    let mut answers = Vec::new();
    for (place, round) in rounds().iter().enumerate().take(to).skip(from) {
        // The first round of a life comes after a start anyhow.
        if round.restart && place > from {
            life = life.restart()?;
        }
        match life.play(round, later) {
            Some(answered) => answers.push(answered),
            None => break,
        }
    }
    Ok((life, answers))
}

impl Run {
    /// Records the rounds up to `to` that were not answered before, over a disk on which this had been committed.
    pub fn record(before: Medium, earlier: Option<&Arc<State>>, noted: Noted, to: usize, later: Duration) -> Self {
        let from = noted.answered.len();
        let life = Life::start(before.clone(), None, true).unwrap();
        let first = Arc::new(life.state());
        let earlier = Arc::clone(earlier.unwrap_or(&first));
        let (life, answers) = play(life, from, to, later).unwrap();
        assert_eq!(answers.len(), to - from);
        let life = life.restart().unwrap();
        let mut tape = life.recorder.tape();
        let (events, syncs) = (std::mem::take(&mut tape.events), tape.syncs);
        drop(tape);
        Self { before, earlier, first, noted, events, syncs }
    }

    /// The whole script, recorded once.
    pub fn whole() -> &'static Self {
        static RUN: OnceLock<Run> = OnceLock::new();
        RUN.get_or_init(|| Self::record(fresh(&[]), None, Noted::default(), rounds().len(), Duration(0)))
    }

    /// The disk after the run.
    pub fn after(&self) -> Medium {
        let mut medium = self.before.clone();
        for event in &self.events {
            if let Event::Step(step) = event {
                medium.take(step);
            }
        }
        medium
    }

    /// Goes through the run and stops before each sync, and once at the end.
    fn each_point(&self, mut at: impl FnMut(&Point<'_>)) {
        let mut medium = self.before.clone();
        let mut noted = self.noted.clone();
        // Until the host is started, what it finds need not last: after a kill alone it may not be on disk.
        let (mut number, mut committed, mut under_way) = (0, &self.earlier, Some(&self.first));
        for (place, event) in self.events.iter().enumerate() {
            match event {
                Event::Step(step) => {
                    if step.is_sync() {
                        at(&Point { number, medium: &medium, committed, under_way, noted: &noted });
                        number += 1;
                    }
                    medium.take(step);
                }
                Event::Note(note) => {
                    noted.take(note);
                    match note {
                        Note::Started if noted.answered.len() == self.noted.answered.len() => {
                            (committed, under_way) = (&self.first, None);
                        }
                        Note::Began => under_way = self.events[place..].iter().find_map(committed_by),
                        Note::Committed(state) => (committed, under_way) = (state, None),
                        Note::Started | Note::Answered(_) | Note::Token(..) => {}
                    }
                }
            }
        }
        at(&Point { number, medium: &medium, committed, under_way, noted: &noted });
    }

    /// The same with two threads, each of which takes every other point.
    fn each_point_shared(&self, at: impl Fn(&Point<'_>) + Sync) {
        std::thread::scope(|scope| {
            for half in 0..2 {
                let at = &at;
                scope.spawn(move || {
                    self.each_point(|point| {
                        if point.number % 2 == half {
                            at(point)
                        }
                    })
                });
            }
        });
    }
}

/// Where a log was sealed, by the seals of a state, each verified.
fn heads(state: &State) -> BTreeMap<(ObjectId, u64, u64), Digest> {
    let host = key_of(&SEED, "host").public();
    let seals = state.table(Table::Seals).iter().map(|(_, record)| Seal::verify(record, &host).unwrap());
    seals.map(|seal| ((seal.object, seal.epoch, seal.index), seal.head)).collect()
}

/// Asserts that a life that follows on a crash found everything or all but the commit under way; whether it found that.
fn found(life: &Life, point: &Point<'_>, what: &str) -> bool {
    let state = life.state();
    let is_there = point.under_way.is_some_and(|under_way| state == **under_way);
    assert!(is_there || state == **point.committed, "{what}: neither before nor after a commit");
    for (name, token) in &point.noted.tokens {
        assert_eq!(*life.hall.store.home.ensure_token(name).unwrap(), *token, "{what}: the token of {name}");
    }
    is_there
}

/// Goes on from a crash to the end of the script, and looks at everything there. Positions that were signed again, with
/// another head than the commit that was lost had signed.
fn goes_on(life: Life, point: &Point<'_>, later: Duration, what: &str) -> usize {
    let is_there = found(&life, point, what);
    let from = point.noted.answered.len();
    let (mut life, answers) =
        play(life, from, rounds().len(), later).unwrap_or_else(|broken| panic!("{what}: {}", broken.why));
    assert_eq!(from + answers.len(), rounds().len(), "{what}: everything can be committed");
    // What was not acknowledged is made again by its key: as if nothing had been, or it is there already.
    for (round, answers) in rounds()[from..].iter().zip(&answers) {
        for (expected, answer) in round.answers.iter().zip(answers) {
            let same = |path: &str| assert_eq!(answer.pointer(path), expected.pointer(path), "{what}: {answer:#}");
            same("/ok");
            if later == Duration(0) {
                same("/error");
                same("/receipt");
                same("/result");
            } else if !round.calls.iter().any(|(_, operation, _)| *operation == "agent_create") {
                same("/error/code");
                same("/receipt/id");
            }
        }
    }
    // The same key gives the same receipt, whether it was answered before the crash or after it, and does nothing more.
    let known: Vec<_> = point.noted.answered.iter().chain(&answers).collect();
    let (mut calls, mut receipts) = (Vec::new(), Vec::new());
    for (round, answers) in rounds().iter().zip(known) {
        for ((agent, operation, arguments), answer) in round.calls.iter().zip(answers) {
            if answer["ok"] == true {
                calls.push((agent, *operation, arguments.clone()));
                receipts.push(&answer["receipt"]);
            }
        }
    }
    let before = life.state();
    for (answer, receipt) in life.hall.together(&calls, true).iter().zip(receipts) {
        assert_eq!(answer["receipt"], *receipt, "{what}");
    }
    let last = life.state();
    for table in [Table::Log, Table::Seals, Table::Outcomes, Table::Envelopes, Table::Derived] {
        assert!(before.table(table) == last.table(table), "{what}: a repeated key changed {table:?}");
    }
    if later == Duration(0) {
        assert!(last == **states().last().unwrap(), "{what}: the end is another than without a crash");
    }
    assert_eq!(life.hall.call(&owner(), "ledger_verify", json!({}))["result"]["sound"], true, "{what}");
    assert!(rebuilt(&last) == last.table(Table::Derived), "{what}: the derived table does not follow");
    // A seal leaves with the commit that holds it, at the earliest. What left is there, and stands alone.
    let heads_at_end = heads(&last);
    for (place, head) in heads(point.committed) {
        assert_eq!(heads_at_end.get(&place), Some(&head), "{what}: {place:?} was signed twice");
    }
    let lost = point.under_way.filter(|_| !is_there).map(|state| heads(state)).unwrap_or_default();
    lost.iter().filter(|(place, head)| heads_at_end.get(place).is_some_and(|other| other != *head)).count()
}

/// The derived table as it follows from the others.
fn rebuilt(state: &State) -> Vec<kwoon_ledger::storage::Row> {
    let store = MemoryStore::new();
    let mut batch = Batch::default();
    for table in Table::ALL.into_iter().filter(|table| *table != Table::Derived) {
        batch.rows.extend(state.table(table).iter().map(|(key, value)| ((table, key.clone()), Some(value.clone()))));
    }
    store.commit(batch).unwrap();
    rebuild(&store).unwrap();
    store.snapshot().unwrap().range(Table::Derived, &[], &[0xff; 80], Order::Rising, usize::MAX).unwrap()
}

pub fn start(medium: Medium, what: &str) -> Life {
    Life::start(medium, None, false).unwrap_or_else(|broken| panic!("{what}: {}", broken.why))
}

#[test]
fn a_power_cut_at_any_sync_loses_nothing_acknowledged_and_leaves_nothing_half_done() {
    rule!(holds, "L1.3", "L2.1", "L3.1", "L3.3");
    let run = Run::whole();
    let (tried, signed_again) = (AtomicUsize::new(0), AtomicUsize::new(0));
    run.each_point_shared(|point| {
        for seed in 0..seeds() {
            for (place, survival) in Survival::ALL.into_iter().enumerate() {
                let what = format!("sync {}, {survival:?}, seed {seed}", point.number);
                let life = start(point.medium.after_crash(survival, seed), &what);
                let turn = point.number + place + seed as usize;
                if turn.is_multiple_of(3) {
                    // Made again at once, or after some time.
                    let later = Duration::seconds(if turn.is_multiple_of(2) { 0 } else { 3 });
                    signed_again.fetch_add(goes_on(life, point, later, &what), Ordering::Relaxed);
                } else {
                    found(&life, point, &what);
                }
                tried.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let (tried, signed_again) = (tried.into_inner(), signed_again.into_inner());
    println!("{tried} crashes at {} syncs; {signed_again} seals that never left were signed anew", run.syncs);
    assert!(signed_again > 0, "a lost commit had signed something else");
}

#[test]
fn a_power_cut_after_a_kill_or_a_power_cut_is_no_worse() {
    rule!(holds, "L1.3", "L2.1");
    let tried = AtomicUsize::new(0);
    Run::whole().each_point_shared(|point| {
        // The first crash at each point in one way; after a kill alone, nothing is lost and nothing is durable either.
        let ways =
            [None, Some(Survival::Torn), Some(Survival::Some), Some(Survival::Nothing), Some(Survival::Beginning)];
        let way = ways[point.number % ways.len()];
        let what = format!("sync {}, {way:?}", point.number);
        let medium = match way {
            Some(survival) => point.medium.after_crash(survival, 0),
            None => point.medium.clone(),
        };
        found(&start(medium.clone(), &what), point, &what);
        // It starts again, and makes again what was not answered; then the second crash.
        let to = rounds().len().min(point.noted.answered.len() + 1);
        let again = Run::record(medium, Some(point.committed), point.noted.clone(), to, Duration::seconds(3));
        again.each_point(|second| {
            for seed in 0..seeds() {
                let survival = Survival::ALL[(point.number + second.number + seed as usize) % Survival::ALL.len()];
                let what = format!("{what}, then sync {}, {survival:?}, seed {seed}", second.number);
                let life = start(second.medium.after_crash(survival, seed), &what);
                if (point.number + second.number) % 16 == 0 {
                    goes_on(life, second, Duration::seconds(6), &what);
                } else {
                    found(&life, second, &what);
                }
                tried.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    println!("{} crashes after a crash", tried.into_inner());
}

#[test]
fn the_run_settles_rows_between_its_starts_too() {
    // By docs/format.md: the last commit that was settled, under 0 in the journal.
    let settled = |point: &Point<'_>| {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::<()>::new(&dir.path().join("home"), point.medium.clone(), None);
        let database = redb::Database::builder().create_with_backend(recorder).unwrap();
        let transaction = database.begin_read().unwrap();
        let journal = transaction.open_table(redb::TableDefinition::<u64, &[u8]>::new("journal")).unwrap();
        let row = journal.get(0).unwrap().unwrap();
        row.value().to_vec()
    };
    let mut all = BTreeSet::new();
    Run::whole().each_point(|point| all.extend([settled(point)]));
    println!("settled {} times", all.len());
    assert!(all.len() > 5, "{all:?}");
}

#[test]
fn a_directory_that_a_killed_process_made_is_durable_before_keys_are_written_in_it() {
    rule!(holds, "L1.3");
    // A backup left the directories out, so that the first agent's keys make them.
    let before = fresh(&["keys/agents", "tokens", "content"]);
    let run = Run::record(before, None, Noted::default(), 1, Duration(0));
    run.each_point(|point| {
        let what = format!("killed before sync {}", point.number);
        let again = Run::record(point.medium.clone(), Some(point.committed), point.noted.clone(), 2, Duration(0));
        again.each_point(|second| {
            let what = format!("{what}, then cut before sync {}", second.number);
            found(&start(second.medium.after_crash(Survival::Nothing, 0), &what), second, &what);
        });
    });
}

#[test]
fn after_a_sync_that_failed_nothing_is_committed_or_shown_that_may_be_lost_until_a_new_start() {
    rule!(refused, "L1.3", "L2.1");
    let refused = AtomicUsize::new(0);
    let syncs = Run::whole().syncs;
    std::thread::scope(|scope| {
        for half in 0..2 {
            let refused = &refused;
            scope.spawn(move || {
                for number in (half..syncs).step_by(2) {
                    refused.fetch_add(usize::from(a_sync_fails(number)), Ordering::Relaxed);
                }
            });
        }
    });
    let refused = refused.into_inner();
    println!("{syncs} syncs failed; {refused} times a commit with them");
    assert!(refused as u64 > syncs / 2, "most syncs are those of commits");
}

/// Lets one sync of the run fail; whether a commit failed with it.
fn a_sync_fails(number: u64) -> bool {
    let what = format!("sync {number} fails");
    let begun = Life::start(fresh(&[]), Some(number), true).and_then(|life| play(life, 0, rounds().len(), Duration(0)));
    let recorder = match &begun {
        Ok((life, _)) => life.recorder.clone(),
        Err(broken) => broken.recorder.clone(),
    };
    let (mut noted, mut commits) = (Noted::default(), 0);
    for event in &recorder.tape().events {
        if let Event::Note(note) = event {
            commits += usize::from(matches!(note, Note::Committed(_)));
            noted.take(note);
        }
    }
    let (committed, under_way) = (&states()[commits], states().get(commits + 1));
    let refused = begun.is_ok() && noted.answered.len() < rounds().len();
    if let Ok((mut life, _)) = begun {
        assert!(life.state() == **committed, "{what}: what may be lost is shown");
        for round in &rounds()[noted.answered.len()..] {
            // What commits nothing is answered by what is there.
            for (answer, expected) in life.play(round, Duration(0)).iter().flatten().zip(&round.answers) {
                assert!(answer["ok"] == false || answer["receipt"] == expected["receipt"], "{what}");
            }
        }
        assert!(life.state() == **committed, "{what}: something was committed");
        // Some end in order as far as they can, some at once.
        if number % 4 < 2 {
            drop(life.restart());
        }
    }
    let medium = recorder.tape().medium.clone();
    let point = Point { number: number as usize, medium: &medium, committed, under_way, noted: &noted };
    // The process alone starts again, and reads what it could read before; or the machine does.
    goes_on(start(medium.clone().settled(), &what), &point, Duration(0), &what);
    let torn = start(medium.after_crash(Survival::Torn, number), &what);
    goes_on(torn, &point, Duration::seconds(3), &format!("{what}, and the machine"));
    found(&start(medium.after_crash(Survival::Nothing, number), &what), &point, &what);
    refused
}
