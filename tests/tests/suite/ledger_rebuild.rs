//! The state follows from the recorded facts and nothing else (L1).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use kwoon_keys::id::RequestId;
use kwoon_keys::{Digest, Salt};
use kwoon_ledger::rebuild::{Rebuild, RebuildError};
use kwoon_ledger::replica::{self, FoldError};
use kwoon_ledger::storage::{Batch, Order, Overlay, Read, ReadError, Row, Store, Table, WriteError};
use kwoon_ledger::time::Duration;
use kwoon_ledger::{index, log};
use kwoon_store::{
    CACHE_BYTES_DEFAULT, DiskStore, Home, MemoryStore, OpenMode, Rebuildable, rebuild, rebuild_in_steps_of,
};
use kwoon_sync::operations::ALL;
use kwoon_tests::forge::Nothing;
use kwoon_tests::{Agent, Hall, WITHOUT_RECEIPT, merge, owner, rule};
use serde_json::{Value, json};

pub(crate) type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

fn of_table(rows: &Rows, table: Table) -> Rows {
    rows.iter().filter(|((of, _), _)| *of == table).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 += 1;
        let digest = Digest::of("kwoon test dice", &[&self.0.to_be_bytes()]);
        u64::from_be_bytes(digest.0[..8].try_into().unwrap()) as usize % limit
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// What a history has brought forth so far, to be picked from, each with the agents it concerns.
#[derive(Default)]
struct World {
    agents: Vec<Agent>,
    inactive: BTreeSet<usize>,
    memories: Vec<Thing>,
    threads: Vec<Thing>,
    entries: Vec<Thing>,
    tickets: Vec<Thing>,
    assignments: Vec<Thing>,
    succeeded: BTreeSet<&'static str>,
    existing: usize,
}

#[derive(Clone, Debug, Default)]
struct Thing {
    /// Places of the agents concerned; the first one made it.
    agents: Vec<usize>,
    /// Its arguments.
    arguments: Value,
}

impl Thing {
    fn with(&self, more: Value) -> Value {
        let mut arguments = self.arguments.clone();
        merge(&mut arguments, more);
        arguments
    }
}

/// One of the newest things, which are likeliest to be open still.
fn pick(dice: &mut Dice, from: &[Thing]) -> Thing {
    let newest = &from[from.len().saturating_sub(8)..];
    if newest.is_empty() { Thing { agents: vec![0], arguments: json!({}) } } else { dice.one(newest).clone() }
}

impl World {
    /// Some action, by the agent with this place or by the owner; most are possible, some are not.
    fn call(&self, dice: &mut Dice) -> (Option<usize>, &'static str, Value) {
        let anyone = dice.below(self.agents.len());
        let other = json!(self.agents[dice.below(self.agents.len())].id);
        let role = json!(dice.one(&["observer", "speaker", "speaker", "governor"]));
        let (memory, thread) = (pick(dice, &self.memories), pick(dice, &self.threads));
        let (entry, work) = (pick(dice, &self.entries), pick(dice, &self.assignments));
        let member = *dice.one(&thread.agents);
        let assign = {
            let to = self.agents[*dice.one(&thread.agents)].id.clone();
            json!({"to": to, "criteria": "c", "deliver_within": "2m", "judge_within": "3m"})
        };
        let (author, asked) = (memory.agents[0], *dice.one(&entry.agents));
        let (creator, assignee) = (work.agents[0], *work.agents.last().unwrap());
        let (who, operation, arguments) = match dice.below(44) {
            0 => (anyone, "memory_create", json!({"text": "x", "title": "t", "tags": ["a"]})),
            1 => (author, "memory_update", memory.with(json!({"text": "y"}))),
            2 | 3 => (author, "memory_publish", memory.arguments),
            4 => (author, "memory_unpublish", memory.arguments),
            5 => (author, "memory_withdraw", memory.arguments),
            6 => (anyone, "thread_create", json!({"admission": {"role": role}})),
            7..=12 => (anyone, "thread_join", pick(dice, &self.tickets).arguments),
            13 => (thread.agents[0], "admission_issue", thread.with(json!({"role": role}))),
            14 => (thread.agents[0], "admission_void", thread.arguments),
            15 => (member, "thread_leave", thread.arguments),
            16 if dice.below(3) == 0 => (thread.agents[0], "thread_close", thread.arguments),
            17 => (thread.agents[0], "member_remove", thread.with(json!({"agent": other}))),
            18 => (thread.agents[0], "member_role", thread.with(json!({"agent": other, "role": role}))),
            16 | 19..=21 => (member, "entry_post", thread.with(json!({"text": "hello"}))),
            22 => (asked, "entry_post", {
                let mut reply = entry.with(json!({"text": "re", "reply_to": entry.arguments["entry"]}));
                reply.as_object_mut().unwrap().remove("entry");
                reply
            }),
            23 => (member, "entry_post", thread.with(memory.with(json!({"ask": []})))),
            24 => (member, "entry_post", thread.with(json!({"text": "you", "ask": [other]}))),
            25 | 26 => (asked, "entry_handle", entry.with(json!({"note": "seen"}))),
            27 | 28 => (entry.agents[0], "entry_retract", entry.arguments),
            29..=32 => (member, "entry_post", thread.with(json!({"text": "do", "assign": assign}))),
            33 | 34 => (assignee, "assignment_take", work.arguments),
            35 => (assignee, "assignment_take", work.with(json!({"output": {"text": "at once"}}))),
            36 | 37 => (assignee, "assignment_deliver", work.with(json!({"output": {"text": "done"}}))),
            38 => (creator, "assignment_accept", work.arguments),
            39 => (creator, "assignment_return", work.with(json!({"reason": "not yet"}))),
            40 => (assignee, "assignment_abandon", work.arguments),
            41 => (creator, "assignment_void", work.arguments),
            _ => return self.owners(dice, anyone),
        };
        // Now and then somebody else tries.
        (Some(if dice.below(8) == 0 { anyone } else { who }), operation, arguments)
    }

    fn owners(&self, dice: &mut Dice, of: usize) -> (Option<usize>, &'static str, Value) {
        let agent = json!({"agent": self.agents[of].id});
        match dice.below(12) {
            0 | 1 => (None, "agent_deactivate", agent),
            2..=8 => {
                let inactive: Vec<_> = self.inactive.iter().copied().collect();
                let of = if inactive.is_empty() { of } else { *dice.one(&inactive) };
                (None, "agent_reactivate", json!({"agent": self.agents[of].id}))
            }
            9 if of > 6 => (None, "agent_terminate", agent),
            10 => (None, "agent_create", json!({"name": format!("late{}", dice.0)})),
            _ => {
                let version = 1 + dice.below(4);
                (
                    None,
                    "agent_update",
                    json!({"agent": self.agents[of].id, "expected_version": version, "mission": "m"}),
                )
            }
        }
    }

    fn learn(&mut self, hall: &Hall, who: Option<usize>, operation: &'static str, asked: &Value, answer: &Value) {
        if answer["ok"] == false {
            return;
        }
        self.succeeded.insert(operation);
        let (result, by) = (&answer["result"], who.unwrap_or_default());
        self.existing += usize::from(result["existing"] == true);
        let made = |field: &str| Thing { agents: vec![by], arguments: json!({field: result[field]}) };
        let place = |id: &Value| self.agents.iter().position(|agent| *id == agent.id);
        match (operation, place(&asked["agent"])) {
            ("thread_create", _) => self.threads.push(made("thread")),
            ("thread_join", _) => {
                let joined = self.threads.iter_mut().find(|thread| thread.arguments["thread"] == result["thread"]);
                joined.unwrap().agents.push(by);
            }
            ("memory_create", _) => self.memories.push(made("memory")),
            ("entry_post", _) => {
                let thread = self.threads.iter().find(|thread| thread.arguments["thread"] == result["thread"]).unwrap();
                let mut entry = Thing {
                    agents: vec![by],
                    arguments: json!({"thread": result["thread"], "entry": result["entry"]}),
                };
                entry.agents.extend(&thread.agents);
                if asked["assign"].is_object() {
                    let mut work = made("assignment");
                    work.agents.extend(place(&asked["assign"]["to"]));
                    self.assignments.push(work);
                }
                self.entries.push(entry);
                if asked["memory"].is_null() {
                    self.memories.push(made("memory"));
                }
            }
            ("agent_create", _) => self.agents.push(hall.known(&result["agent"])),
            ("agent_deactivate" | "agent_terminate", Some(of)) => drop(self.inactive.insert(of)),
            ("agent_reactivate", Some(of)) => drop(self.inactive.remove(&of)),
            _ => {}
        }
        if answer["secret"]["ticket"].is_string() {
            self.tickets.push(Thing { agents: vec![by], arguments: json!({"ticket": answer["secret"]["ticket"]}) });
        }
    }
}

/// A hall after a long history of all operations, and what is to be checked after each round.
fn history(rounds: usize, mut after: impl FnMut(&mut Hall)) -> (Hall, World) {
    let mut hall = Hall::new();
    let agents = ["a", "b", "c", "d", "e"].map(|name| hall.agent(name)).to_vec();
    let mut world = World { agents, ..World::default() };
    let mut dice = Dice(0);
    let owner = owner();
    for _ in 0..rounds {
        let calls: Vec<_> = (0..12).map(|_| world.call(&mut dice)).collect();
        let agents = world.agents.clone();
        let asked: Vec<_> = calls
            .iter()
            .map(|(who, operation, arguments)| (who.map_or(&owner, |who| &agents[who]), *operation, arguments.clone()))
            .collect();
        let answers = hall.round(&asked);
        for ((who, operation, arguments), answer) in calls.iter().zip(&answers) {
            world.learn(&hall, *who, operation, arguments, answer);
        }
        hall.advance(Duration::seconds(20));
        after(&mut hall);
    }
    (hall, world)
}

/// Facts of one step where a rebuild is to take several.
pub(crate) const STEP: usize = 500;

/// The rows of one long history, made once for all tests that only read them.
pub(crate) fn long() -> &'static Rows {
    static ROWS: OnceLock<Rows> = OnceLock::new();
    ROWS.get_or_init(|| {
        let (hall, world) = history(240, |_| {});
        let acting = ALL.iter().filter(|operation| operation.is_action()).map(|operation| operation.name);
        let missing: Vec<_> =
            acting.filter(|name| !WITHOUT_RECEIPT.contains(name) && !world.succeeded.contains(name)).collect();
        assert_eq!(missing, [""; 0], "the history has every operation in it");
        assert!(world.existing > 0, "a success without new effect is in it");
        let rows = hall.trace();
        assert!(of_table(&rows, Table::Log).len() > 2 * STEP, "a rebuild takes several steps");
        rows
    })
}

/// A store in memory with these rows.
fn memory_store(rows: &Rows) -> MemoryStore {
    let store = MemoryStore::new();
    store.commit(batch(rows)).unwrap();
    store
}

pub(crate) fn batch(rows: &Rows) -> Batch {
    Batch { rows: rows.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect(), ..Batch::default() }
}

pub(crate) fn rows_of(read: &dyn Read) -> Rows {
    let mut rows = Rows::new();
    for table in Table::ALL {
        let all = read.range(table, &[], &[0xff; 80], Order::Rising, usize::MAX).unwrap();
        rows.extend(all.into_iter().map(|(key, value)| ((table, key), value)));
    }
    rows
}

// ------------------------------------------------------------------------------------------------ L1.1

#[test]
fn folding_all_facts_in_the_order_of_their_arrival_gives_the_state_that_the_host_wrote() {
    rule!(holds, "L1.1");
    let rows = long();
    let store = memory_store(rows);
    let snapshot = store.snapshot().unwrap();
    let mut folded = Overlay::new(&Nothing);
    for (_, number, at) in log::arrivals(&snapshot, 0, usize::MAX).unwrap() {
        replica::fold(&mut folded, number, &log::fact_bytes(&snapshot, number, at).unwrap()).unwrap();
    }
    for (_, request) in of_table(rows, Table::Outcomes).keys() {
        index::set_receipt(&mut folded, &RequestId(Digest(request.as_slice().try_into().unwrap())));
    }
    for table in [Table::Derived, Table::Log, Table::Objects, Table::Arrivals] {
        let derived: Rows =
            folded.batch.rows.clone().into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        assert!(of_table(&derived, table) == of_table(rows, table), "{table:?}");
    }
}

#[test]
fn a_rebuild_gives_the_same_bytes_and_touches_nothing_primary() {
    rule!(holds, "L1.1");
    let rows = long();
    let store = memory_store(rows);
    let before = rows_of(&store.snapshot().unwrap());
    let report = rebuild(&store).unwrap();
    assert!(rows_of(&store.snapshot().unwrap()) == before);
    assert_eq!(report.facts, of_table(rows, Table::Log).len() as u64);
    assert_eq!(report.outcomes, of_table(rows, Table::Outcomes).len() as u64);
}

#[test]
fn the_steps_of_a_rebuild_are_bounded_and_derive_only() {
    rule!(holds, "L1.1");
    let store = memory_store(long());
    Rebuildable::begin_rebuild(&store).unwrap();
    let mut under_way = Rebuild::in_steps_of(STEP);
    let (mut steps, mut facts) = (0, 0);
    while !under_way.is_done() {
        let step = under_way.step(&store.snapshot().unwrap()).unwrap();
        assert!(step.rows.clone().into_iter().all(|((table, _), _)| table == Table::Derived));
        assert!(step.content.is_empty() && step.keys.is_empty());
        assert!(under_way.facts() - facts <= STEP as u64);
        facts = under_way.facts();
        steps += 1;
        store.commit(step).unwrap();
    }
    assert!(steps > 2);
    assert!(of_table(&rows_of(&store.snapshot().unwrap()), Table::Derived) == of_table(long(), Table::Derived));
}

#[test]
fn obligations_and_receipts_are_the_same_after_a_rebuild() {
    rule!(holds, "L1.1");
    let (mut hall, world) = history(40, |_| {});
    let look = |hall: &mut Hall| {
        let mut seen = Vec::new();
        for agent in &world.agents {
            for operation in ["turn", "opportunities", "thread_list", "memory_list"] {
                seen.push(hall.ok(agent, operation, json!({"limit": 50})));
            }
        }
        seen
    };
    let key = json!({"text": "kept", "idempotency_key": "k"});
    let awake = (0..world.agents.len()).find(|at| !world.inactive.contains(at)).unwrap();
    let created = hall.ok(&world.agents[awake], "memory_create", key.clone());
    let before = look(&mut hall);
    rebuild(&hall.store).unwrap();
    hall.restart();
    assert!(look(&mut hall) == before);
    assert_eq!(hall.ok(&world.agents[awake], "memory_create", key)["receipt"], created["receipt"]);
    assert_eq!(hall.ok(&owner(), "ledger_verify", json!({}))["result"]["sound"], true);
}

#[test]
fn a_state_that_the_facts_do_not_give_is_found_and_gone_after_a_rebuild() {
    rule!(refused, "L1.1");
    let (mut hall, _) = history(10, |_| {});
    let before = hall.trace();
    // A cell of some log, changed by hand.
    let mut cell = of_table(&before, Table::Derived).into_iter().find(|((_, key), _)| key[0] == 1).unwrap();
    *cell.1.last_mut().unwrap() ^= 1;
    hall.store.commit(batch(&Rows::from([cell]))).unwrap();
    assert_eq!(hall.ok(&owner(), "ledger_verify", json!({}))["result"]["sound"], false);
    rebuild(&hall.store).unwrap();
    assert!(hall.trace() == before);
}

#[test]
fn a_fact_that_was_changed_in_the_store_is_not_rebuilt_from() {
    rule!(refused, "L1.1", "L1.2");
    let (hall, _) = history(10, |_| {});
    let rows = hall.trace();
    let mut fact = of_table(&rows, Table::Log).into_iter().nth(7).unwrap();
    let last = fact.1.len() - 5;
    fact.1[last] ^= 1;
    hall.store.commit(batch(&Rows::from([fact]))).unwrap();
    let failed = rebuild(&hall.store).unwrap_err();
    assert!(failed.to_string().contains("restore the home from a backup"), "{failed}");
    // What is not whole is marked as that.
    assert!(hall.snapshot().get(Table::Meta, b"rebuild").unwrap().is_some());
}

#[test]
fn primary_tables_that_contradict_each_other_are_not_rebuilt_from() {
    rule!(refused, "L1.1");
    let (hall, _) = history(4, |_| {});
    let rows = hall.trace();
    let damaged = |table, at: usize, change: fn(&mut Option<Vec<u8>>)| {
        let store = memory_store(&rows);
        let mut changes = batch(&of_table(&rows, table).into_iter().skip(at).take(1).collect());
        changes.rows.values_mut().for_each(change);
        store.commit(changes).unwrap();
        Rebuildable::begin_rebuild(&store).unwrap();
        let mut under_way = Rebuild::in_steps_of(STEP);
        loop {
            let step = match under_way.step(&store.snapshot().unwrap()) {
                Ok(step) => step,
                Err(error) => return error,
            };
            assert!(!under_way.is_done());
            store.commit(step).unwrap();
        }
    };
    let gone = |value: &mut Option<Vec<u8>>| *value = None;
    let last = of_table(&rows, Table::Arrivals).len() - 1;
    for (table, at) in [(Table::Log, 3), (Table::Arrivals, 3), (Table::Arrivals, last), (Table::Objects, 1)] {
        let error = damaged(table, at, gone);
        assert!(matches!(error, RebuildError::Unreadable(_)), "{table:?}: {error}");
    }
    let error = damaged(Table::Arrivals, 3, |value| *value = Some(vec![1]));
    assert!(matches!(error, RebuildError::Unreadable(_)), "{error}");
    // Another order of arrival is another history.
    let error = damaged(Table::Arrivals, 0, |value| *value = Some(log::fact_key(0, 1)));
    assert!(matches!(error, RebuildError::Fact { why: FoldError::Rejected(_), .. } | RebuildError::Unreadable(_)));
}

// ------------------------------------------------------------------------------------------------ on disk

struct OnDisk {
    _dir: tempfile::TempDir,
    home: Home,
}

impl OnDisk {
    fn with(rows: &Rows) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home"), OpenMode::MakeIfMissing).unwrap();
        let on_disk = Self { _dir: dir, home };
        on_disk.open().commit(batch(rows)).unwrap();
        on_disk
    }

    fn open(&self) -> DiskStore {
        DiskStore::open(&self.home, CACHE_BYTES_DEFAULT).unwrap()
    }

    fn rows(&self) -> Rows {
        rows_of(&self.open().snapshot().unwrap())
    }
}

/// A store on disk that dies before a commit.
struct Dying {
    store: DiskStore,
    commits_left: AtomicUsize,
}

impl Store for Dying {
    type Snapshot = kwoon_store::Snapshot;

    fn snapshot(&self) -> Result<Self::Snapshot, ReadError> {
        self.store.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<(), WriteError> {
        let left = |left: usize| left.checked_sub(1);
        match self.commits_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) {
            Ok(_) => self.store.commit(batch),
            Err(_) => Err(WriteError { reason: "died".to_owned() }),
        }
    }
}

impl Rebuildable for Dying {
    fn begin_rebuild(&self) -> Result<(), WriteError> {
        Rebuildable::begin_rebuild(&self.store)
    }
}

#[test]
fn a_store_on_disk_is_rebuilt_to_the_same_bytes() {
    rule!(holds, "L1.1");
    let on_disk = OnDisk::with(long());
    let before = on_disk.rows();
    let store = on_disk.open();
    rebuild(&store).unwrap();
    drop(store);
    assert!(on_disk.rows() == before);
}

#[test]
fn a_rebuild_that_a_crash_interrupted_is_begun_again_at_the_next_open() {
    rule!(holds, "L1.1", "L2.1");
    let on_disk = OnDisk::with(long());
    let before = on_disk.rows();
    for commits in 0..3 {
        let dying = Dying { store: on_disk.open(), commits_left: AtomicUsize::new(commits) };
        rebuild_in_steps_of(&dying, STEP).unwrap_err();
        drop(dying);
        assert!(on_disk.rows() == before, "died after {commits} commits");
    }
}

#[test]
fn a_store_whose_ledger_cannot_be_rebuilt_is_not_opened() {
    rule!(refused, "L1.1");
    let (hall, _) = history(4, |_| {});
    let mut rows = hall.trace();
    let fact = rows.iter().find(|((table, _), _)| *table == Table::Log).unwrap().0.clone();
    rows.get_mut(&fact).unwrap().push(0);
    let on_disk = OnDisk::with(&rows);
    let store = on_disk.open();
    rebuild(&store).unwrap_err();
    drop(store);
    let error = DiskStore::open(&on_disk.home, CACHE_BYTES_DEFAULT).unwrap_err();
    assert!(error.to_string().contains("cannot be rebuilt"), "{error}");
}

#[test]
fn an_empty_store_is_rebuilt_too() {
    rule!(holds, "L1.1");
    let on_disk = OnDisk::with(&Rows::new());
    let before = on_disk.rows();
    let store = on_disk.open();
    assert_eq!(rebuild(&store).unwrap().facts, 0);
    drop(store);
    assert!(on_disk.rows() == before);
}

// ------------------------------------------------------------------------------------------------ L1.2

#[test]
fn no_recorded_fact_or_seal_ever_changes_or_goes() {
    rule!(holds, "L1.2");
    let mut known = Rows::new();
    history(60, |hall| {
        let rows = hall.trace();
        for table in [Table::Log, Table::Seals, Table::Arrivals, Table::Objects, Table::Outcomes] {
            for (key, value) in of_table(&known, table) {
                assert_eq!(rows.get(&key), Some(&value), "{table:?}");
            }
            known.extend(of_table(&rows, table));
        }
    });
    assert!(known.len() > 500);
}

#[test]
fn an_action_never_reaches_back() {
    rule!(refused, "L1.2");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let thread = hall.thread(&alice, &[]);
    let entry = hall.post(&alice, &thread, json!({"text": "as I said"}));
    hall.advance(Duration::minutes(3));
    // The same request with another text, and an argument that would place it.
    let said = json!({"thread": thread, "text": "as I said", "idempotency_key": "k"});
    hall.ok(&alice, "entry_post", said);
    let other = json!({"thread": thread, "text": "as I meant", "idempotency_key": "k"});
    hall.refused(&alice, "entry_post", other, "idempotency_conflict");
    let placed = json!({"thread": thread, "text": "as I meant", "entry": entry});
    hall.refused(&alice, "entry_post", placed, "invalid_argument");
}

// ------------------------------------------------------------------------------------------------ L1.3

#[test]
fn what_was_reported_is_there_after_the_process_died() {
    rule!(holds, "L1.3");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    for _ in 0..5 {
        let posted = hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "x"}));
        hall.restart();
        let receipt = hall.ok(&alice, "receipt_get", json!({"id": posted["receipt"]["id"]}));
        assert_eq!(receipt["receipt"], posted["receipt"]);
        let owed: Vec<_> = hall.turn(&bob).into_iter().map(|(_, entry)| json!(entry)).collect();
        assert_eq!(owed.last(), Some(&posted["result"]["entry"]));
    }
}

#[test]
fn what_could_not_be_committed_is_not_reported_and_leaves_no_trace() {
    rule!(refused, "L1.3", "L2.1");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let before = hall.trace();
    let create = json!({"text": "x", "idempotency_key": "k"});
    let answer = hall.call_uncommitted(&alice, "memory_create", &create);
    assert_eq!((&answer["ok"], &answer["error"]["code"]), (&json!(false), &json!("internal")));
    assert!(answer["receipt"].is_null());
    assert_eq!(hall.trace(), before);
    // The key is free: the request is made again, and then it counts.
    let first = hall.ok(&alice, "memory_create", create.clone());
    assert_eq!(hall.ok(&alice, "memory_create", create)["receipt"], first["receipt"]);
}

/// A store that cannot be read.
struct Broken;

impl Read for Broken {
    fn get(&self, _: Table, _: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        Err(ReadError::damaged("for a test"))
    }
    fn range(&self, _: Table, _: &[u8], _: &[u8], _: Order, _: usize) -> Result<Vec<Row>, ReadError> {
        Err(ReadError::damaged("for a test"))
    }
    fn content(&self, _: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        Err(ReadError::damaged("for a test"))
    }
}

#[test]
fn a_store_that_cannot_be_read_is_no_reason_to_accept_or_reject_a_fact() {
    rule!(refused, "L1.1");
    let mut overlay = Overlay::new(&Broken);
    let fact = of_table(long(), Table::Log).into_values().next().unwrap();
    assert!(matches!(replica::fold(&mut overlay, 0, &fact), Err(FoldError::Unreadable(_))));
    assert!(overlay.batch.is_empty());
    assert!(matches!(Rebuild::in_steps_of(STEP).step(&Broken), Err(RebuildError::Unreadable(_))));
}
