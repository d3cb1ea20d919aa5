//! What is done in the runs that crash: every kind of action, alone and several at once, by several agents while time
//! moves; and what a host that never crashes answers.

use std::cell::RefCell;
use std::collections::BTreeSet;

use kwoon_keys::Digest;
use kwoon_keys::secret::InstanceKeys;
use kwoon_ledger::limits::Limits;
use kwoon_ledger::storage::{Batch, ReadError, Store, WriteError};
use kwoon_ledger::time::{Duration, Time};
use kwoon_store::{MemorySnapshot, MemoryStore};
use kwoon_sync::operations::ALL;
use kwoon_tests::hall::Ground;
use kwoon_tests::{Agent, Hall, WITHOUT_RECEIPT, merge, owner};
use serde_json::{Value, json};

/// The seed of the host's and the owner's keys.
pub const SEED: [u8; 32] = [9; 32];

/// A call with its idempotency key.
pub type Call = (Agent, &'static str, Value);

/// What is decided and committed at once.
#[derive(Clone)]
pub struct Round {
    /// When.
    pub at: Time,
    /// Where entropy stands.
    pub entropy: u64,
    /// The calls; none if only time passes.
    pub calls: Vec<Call>,
    /// What a host that never crashes answers.
    pub answers: Vec<Value>,
    /// Whether the store is closed and opened again before.
    pub restart: bool,
    /// Whether later rounds name what this one makes by ids or tickets that follow from its time.
    pub names_times: bool,
}

impl Round {
    /// The calls as a hall takes them.
    pub fn calls(&self) -> Vec<(&Agent, &str, Value)> {
        self.calls.iter().map(|(agent, operation, arguments)| (agent, *operation, arguments.clone())).collect()
    }
}

struct Writer {
    hall: Hall,
    rounds: Vec<Round>,
    calls: u64,
    restart: bool,
}

const OK: &str = "";

impl Writer {
    /// A round of calls, each with what is expected of it: [`OK`] or the code of a refusal.
    fn round(&mut self, calls: &[(&Agent, &'static str, Value, &str)]) -> Vec<Value> {
        let calls_with_keys: Vec<Call> = calls
            .iter()
            .map(|(agent, operation, arguments, _)| {
                let mut with_key = json!({"idempotency_key": format!("k{}", self.calls)});
                self.calls += 1;
                merge(&mut with_key, arguments.clone());
                ((*agent).clone(), *operation, with_key)
            })
            .collect();
        let answers = self.push(calls_with_keys);
        for ((_, operation, _, expected), answer) in calls.iter().zip(&answers) {
            let code = answer["error"]["code"].as_str().unwrap_or(OK);
            assert_eq!(code, *expected, "{operation}: {answer:#}");
        }
        answers
    }

    fn push(&mut self, calls: Vec<Call>) -> Vec<Value> {
        // Entropy of its own for each round, however many calls a run made before.
        let entropy = self.rounds.len() as u64 * 1000;
        let names_times = self.rounds.len() < 3;
        let restart = std::mem::take(&mut self.restart);
        let mut round = Round { at: self.hall.now, entropy, calls, answers: Vec::new(), restart, names_times };
        self.hall.resume(entropy);
        round.answers = self.hall.round(&round.calls());
        self.rounds.push(round.clone());
        self.hall.now = self.hall.now.after(Duration::seconds(10));
        round.answers
    }

    fn one(&mut self, agent: &Agent, operation: &'static str, arguments: Value) -> Value {
        self.round(&[(agent, operation, arguments, OK)]).remove(0)
    }

    /// Lets time pass, and the host do what is due.
    fn wait(&mut self, duration: Duration) {
        self.hall.now = self.hall.now.after(duration);
        self.push(Vec::new());
    }
}

fn large(letter: &str) -> String {
    letter.repeat(6000)
}

/// The script.
pub fn script() -> Vec<Round> {
    let mut writer = Writer { hall: Hall::seeded(SEED, Limits::DEFAULT), rounds: Vec::new(), calls: 0, restart: false };
    let w = &mut writer;
    let owner = owner();
    let made = |name: &str| json!({"name": name, "mission": "to be of use"});
    let mut agents = vec![];
    let first = w.round(&[(&owner, "agent_create", made("alice"), OK)]);
    let rest = w.round(&[
        (&owner, "agent_create", made("bob"), OK),
        (&owner, "agent_create", made("alice"), "name_taken"),
        (&owner, "agent_create", made("carol"), OK),
        (&owner, "agent_create", made("dave"), OK),
    ]);
    for answer in first.iter().chain(&rest).filter(|answer| answer["ok"] == true) {
        agents.push(w.hall.known(&answer["result"]["agent"]));
    }
    let [alice, bob, carol, dave] = agents.try_into().expect("four agents");

    let opened = w.one(&alice, "thread_create", json!({"subject": "plan", "admission": {}}));
    let (thread, ticket) = (opened["result"]["thread"].clone(), opened["secret"]["ticket"].clone());
    w.round(&[
        (&bob, "thread_join", json!({"ticket": ticket}), OK),
        (&carol, "thread_join", json!({"ticket": ticket}), OK),
        (&bob, "thread_join", json!({"ticket": ticket}), OK),
        (&dave, "entry_post", json!({"thread": thread, "text": "let me in"}), "not_found"),
    ]);
    let said = w.one(&alice, "entry_post", json!({"thread": thread, "text": "what now?", "ask": [bob.id, carol.id]}));
    let entry = said["result"]["entry"].clone();
    w.round(&[
        (&bob, "entry_post", json!({"thread": thread, "text": large("b"), "reply_to": entry}), OK),
        (&carol, "entry_handle", json!({"thread": thread, "entry": entry, "note": "seen"}), OK),
        (&carol, "entry_handle", json!({"thread": thread, "entry": entry}), "no_such_obligation"),
    ]);
    // Nothing but a refusal.
    w.round(&[(&dave, "thread_leave", json!({"thread": thread}), "not_found")]);
    // The same requests again, and one that is not the same.
    let again = |from: &Call, more: Value| {
        let mut call = from.clone();
        merge(&mut call.2, more);
        call
    };
    let (first_post, first_handle) = (w.rounds[4].calls[0].clone(), w.rounds[5].calls[1].clone());
    let answers =
        w.push(vec![again(&first_post, json!({})), again(&first_post, json!({"text": "other"})), first_handle]);
    assert_eq!(answers[0]["receipt"], said["receipt"]);
    assert_eq!(answers[1]["error"]["code"], "idempotency_conflict");

    // Assignments: one whose delivery and one whose judgment is late, and one of every other end.
    let offer = |to: &Agent, text: String| {
        let times = json!({"to": to.id, "criteria": "good", "deliver_within": "5m", "judge_within": "8m"});
        json!({"thread": thread, "text": text, "ask": [], "assign": times})
    };
    let offers: Vec<Value> = w
        .round(&[
            (&alice, "entry_post", offer(&bob, "late".into()), OK),
            (&alice, "entry_post", offer(&carol, large("o")), OK),
            (&alice, "entry_post", offer(&bob, "abandoned".into()), OK),
            (&alice, "entry_post", offer(&bob, "void".into()), OK),
            (&bob, "entry_post", offer(&alice, "accepted".into()), OK),
            (&bob, "entry_post", offer(&carol, "returned".into()), OK),
        ])
        .iter()
        .map(|answer| answer["result"]["assignment"].clone())
        .collect();
    let on = |place: usize| json!({"assignment": offers[place]});
    let with = |place: usize, more: Value| {
        let mut arguments = on(place);
        merge(&mut arguments, more);
        arguments
    };
    w.round(&[
        (&bob, "assignment_take", on(0), OK),
        (&carol, "assignment_take", with(1, json!({"output": {"text": large("d")}})), OK),
        (&bob, "assignment_take", on(2), OK),
        (&bob, "assignment_take", on(1), "not_assignee"),
    ]);
    w.round(&[
        (&bob, "assignment_abandon", on(2), OK),
        (&alice, "assignment_void", on(3), OK),
        (&alice, "assignment_take", on(4), OK),
        (&carol, "assignment_take", on(5), OK),
        (&bob, "assignment_deliver", with(3, json!({"output": {"text": "x"}})), "not_taker"),
    ]);
    w.one(&alice, "assignment_deliver", with(4, json!({"output": {"text": "done"}})));
    w.round(&[
        (&bob, "assignment_accept", on(4), OK),
        (&carol, "assignment_deliver", with(5, json!({"output": {"text": "so so"}})), OK),
        (&bob, "assignment_return", with(5, json!({"reason": "not yet"})), OK),
    ]);

    // A stop and a start, then the deadlines: one in a round of its own, one in the round of an action.
    w.restart = true;
    w.wait(Duration::minutes(6));
    w.hall.now = w.hall.now.after(Duration::minutes(6));
    let late = w.round(&[
        (&bob, "assignment_deliver", with(0, json!({"output": {"text": "too late"}})), "expired"),
        (&alice, "entry_post", json!({"thread": thread, "text": "why?", "ask": [bob.id, carol.id]}), OK),
    ]);
    let question = late[1]["result"]["entry"].clone();

    let noted = w.one(&carol, "memory_create", json!({"text": large("m"), "title": "notes", "tags": ["a", "b"]}));
    let memory = json!({"memory": noted["result"]["memory"]});
    let mut newer = memory.clone();
    merge(&mut newer, json!({"text": "shorter"}));
    let mut posted = memory.clone();
    merge(&mut posted, json!({"thread": thread, "ask": []}));
    w.round(&[
        (&carol, "memory_publish", memory.clone(), OK),
        (&carol, "memory_publish", memory.clone(), "no_change"),
        (&carol, "memory_update", newer, OK),
        (&alice, "entry_post", posted, OK),
        (&bob, "memory_withdraw", memory.clone(), "not_author"),
    ]);
    w.one(&carol, "memory_unpublish", memory.clone());
    w.one(&carol, "memory_withdraw", memory);
    // A memory that an entry brought forth begins a log of its own.
    let born = json!({"memory": said["result"]["memory"]});
    w.one(&alice, "memory_publish", born);

    let issued = w.one(&alice, "admission_issue", json!({"thread": thread, "role": "observer"}));
    let ticket = issued["secret"]["ticket"].clone();
    w.round(&[
        (&dave, "thread_join", json!({"ticket": ticket}), OK),
        (&alice, "admission_void", json!({"thread": thread}), OK),
        (&alice, "admission_void", json!({"thread": thread}), "no_change"),
    ]);
    w.round(&[
        (&alice, "member_role", json!({"thread": thread, "agent": dave.id, "role": "speaker"}), OK),
        (&dave, "entry_post", json!({"thread": thread, "text": "at last", "ask": [alice.id]}), OK),
        (&alice, "member_remove", json!({"thread": thread, "agent": dave.id}), OK),
        (&alice, "entry_retract", json!({"thread": thread, "entry": question}), OK),
        (&bob, "thread_leave", json!({"thread": thread}), OK),
    ]);
    w.round(&[
        (&owner, "agent_deactivate", json!({"agent": carol.id, "reason": "rest"}), OK),
        (&carol, "memory_create", json!({"text": "not now"}), "agent_inactive"),
        (&owner, "agent_update", json!({"agent": bob.id, "expected_version": 1, "mission": "more use"}), OK),
        (&owner, "agent_update", json!({"agent": bob.id, "expected_version": 1, "mission": "y"}), "version_conflict"),
    ]);
    w.restart = true;
    w.one(&owner, "agent_reactivate", json!({"agent": carol.id}));
    w.one(&owner, "agent_terminate", json!({"agent": dave.id}));
    // Agents that nobody refers to: made anew after a crash, at another time, they are others.
    w.round(&[
        (&owner, "agent_create", made("late"), OK),
        (&bob, "memory_create", json!({"text": large("z")}), OK),
        (&owner, "agent_create", made("later"), OK),
    ]);
    w.one(&alice, "thread_close", json!({"thread": thread}));
    w.round(&[(&alice, "entry_post", json!({"thread": thread, "text": "too late"}), "thread_closed")]);
    w.one(&bob, "memory_create", json!({"text": "the end"}));

    let acting = ALL.iter().filter(|operation| operation.is_action() && !WITHOUT_RECEIPT.contains(&operation.name));
    for operation in acting {
        let mut calls = writer.rounds.iter().flat_map(|round| round.calls.iter().zip(&round.answers));
        let done = calls.any(|((_, name, _), answer)| *name == operation.name && answer["ok"] == true);
        assert!(done, "{} is in the script", operation.name);
    }
    writer.rounds
}

/// The hashes of all contents that the script brings forth.
pub fn contents() -> BTreeSet<Digest> {
    let noting = Noting { store: MemoryStore::new(), hashes: RefCell::default() };
    let mut hall = Hall::over(noting, SEED, Limits::DEFAULT);
    for round in super::rounds() {
        hall.resume(round.entropy);
        hall.now = round.at;
        hall.round(&round.calls());
    }
    hall.store.hashes.into_inner()
}

/// A store that notes the contents it is given.
struct Noting {
    store: MemoryStore,
    hashes: RefCell<BTreeSet<Digest>>,
}

impl Ground for Noting {
    fn keys(&self) -> Vec<InstanceKeys> {
        self.store.keys()
    }
}

impl Store for Noting {
    type Snapshot = MemorySnapshot;

    fn snapshot(&self) -> Result<MemorySnapshot, ReadError> {
        self.store.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<(), WriteError> {
        self.hashes.borrow_mut().extend(batch.content.keys());
        self.store.commit(batch)
    }
}
