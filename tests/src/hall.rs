//! A hall: one pure host over a store, in memory unless said otherwise, on a virtual clock, called as a daemon would call
//! it.

use std::collections::BTreeMap;

use kwoon_keys::id::AgentId;
use kwoon_keys::secret::InstanceKeys;
use kwoon_keys::{Digest, KeyPair, PublicKey};
use kwoon_ledger::limits::Limits;
use kwoon_ledger::log;
use kwoon_ledger::refusal::{Refusal, Stop};
use kwoon_ledger::replica;
use kwoon_ledger::sequencer::{Candidate, Sealed, Sequencer};
use kwoon_ledger::state::Cells;
use kwoon_ledger::storage::{Order, Overlay, Read, Row, Store, Table};
use kwoon_ledger::time::{Duration, Time};
use kwoon_store::{MemorySnapshot, MemoryStore};
use kwoon_sync::answer::{Answer, Secret, refusal_json};
use kwoon_sync::argument::{self, Arguments, FilePath};
use kwoon_sync::check::{self, Finding};
use kwoon_sync::file::{self, FileJob, FileStop, FileWork};
use kwoon_sync::host::{Done, Host, Reply, Request, Taken, Work, to_refusal};
use kwoon_sync::intake::{Delivery, Received};
use kwoon_sync::keyring::Keyring;
use kwoon_sync::operations::{self, Operation};
use kwoon_sync::session::{Beginning, Session};
use kwoon_sync::view::{Around, Caller, StoreFigures, View};
use kwoon_sync::wire::Message;
use serde_json::{Value, json};

/// The first byte of the keys of receipts in the derived table.
const RECEIPTS: u8 = 0x04;
/// Those of the outbox there, and of its lists.
pub(crate) const OUTBOX: [u8; 6] = [0x09, 0x0a, 0x0c, 0x16, 0x26, 0x36];

/// Operations that act and are no requests of the protocol: they have no receipt.
pub const WITHOUT_RECEIPT: [&str; 8] = [
    "peer_add",
    "peer_remove",
    "peer_block",
    "network",
    "object_handover",
    "clock_confirm",
    "home_confirm",
    "quarantine_remove",
];

/// What a host notes of itself with whatever it commits: the time, and where it is.
pub const NOTED: [&[u8]; 2] = [b"last_time", b"home_mark"];

/// Where a hall's store lies, until it is copied.
const HERE: Digest = Digest([1; 32]);

/// When a hall's clock begins: 2026-11-30T12:00:00Z.
pub const START: Time = Time(1_796_040_000_000);

/// An agent of a hall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its id, outside form.
    pub id: String,
    caller: Caller,
}

impl Agent {
    /// Its id, as it stands in records.
    pub fn full_id(&self) -> AgentId {
        match self.caller {
            Caller::Agent(agent) => agent,
            Caller::Owner => panic!("an owner is no agent"),
        }
    }
}

/// A store that a hall can stand on.
pub trait Ground: Store {
    /// The keys of the instances that live on it.
    fn keys(&self) -> Vec<InstanceKeys>;
}

impl Ground for MemoryStore {
    fn keys(&self) -> Vec<InstanceKeys> {
        Self::keys(self)
    }
}

/// See the module.
pub struct Hall<S = MemoryStore> {
    /// The store.
    pub store: S,
    host: Host,
    seed: [u8; 32],
    limits: Limits,
    mark: Digest,
    /// The virtual clock.
    pub now: Time,
    calls: u64,
    /// The files that operations made, by their paths.
    pub files: BTreeMap<String, Vec<u8>>,
    addresses: Vec<String>,
}

/// The owner, as a caller.
pub fn owner() -> Agent {
    Agent { id: "owner".to_owned(), caller: Caller::Owner }
}

impl Default for Hall {
    fn default() -> Self {
        Self::new()
    }
}

impl Hall {
    /// Whether agents live on hosts of their own.
    pub const ACROSS: bool = false;

    /// A new host with the default limits.
    pub fn new() -> Self {
        Self::with_limits(Limits::DEFAULT)
    }

    /// A new host with these limits.
    pub fn with_limits(limits: Limits) -> Self {
        Self::seeded([7; 32], limits)
    }

    /// A new host with keys of its own.
    pub fn seeded(seed: [u8; 32], limits: Limits) -> Self {
        Self::over(MemoryStore::new(), seed, limits)
    }
}

impl<S: Ground> Hall<S> {
    /// A host with these keys over what a store holds.
    pub fn over(store: S, seed: [u8; 32], limits: Limits) -> Self {
        let host = Self::host_over(&store, &seed, &limits, HERE);
        let (files, addresses) = (BTreeMap::new(), Vec::new());
        Self { store, host, seed, limits, mark: HERE, now: START, calls: 0, files, addresses }
    }

    /// Lets entropy go on as after this many calls.
    pub fn resume(&mut self, calls: u64) {
        self.calls = calls;
    }

    fn host_over(store: &S, seed: &[u8; 32], limits: &Limits, mark: Digest) -> Host {
        let keyring = Keyring::new(key_of(seed, "host"), key_of(seed, "owner"), store.keys());
        let snapshot = store.snapshot().expect("the store is readable");
        Host::new(keyring, limits.clone(), mark, &snapshot).expect("memory is readable")
    }

    /// Forgets everything but the store, as a daemon that was killed.
    pub fn restart(&mut self) {
        self.host = Self::host_over(&self.store, &self.seed, &self.limits, self.mark);
    }

    /// Starts it anew over a copy of the store, as of a backup that was restored or a home that was copied.
    pub fn copied(&mut self) {
        self.mark = Digest::of("kwoon test copy", &[self.mark.as_bytes()]);
        self.restart();
    }

    /// A consistent state of the store.
    pub fn snapshot(&self) -> S::Snapshot {
        self.store.snapshot().expect("the store is readable")
    }

    /// The host that orders an object's log: this one, whichever the object.
    pub fn ordering(&self, _: &str) -> &Self {
        self
    }

    /// Lets time pass, and lets the host do what is due.
    pub fn advance(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
        self.wake();
    }

    /// Lets the host do what is due.
    pub fn wake(&mut self) {
        let snapshot = self.snapshot();
        let taken = self.host.take::<()>(&snapshot, self.now, Vec::<((), Work)>::new());
        self.end(taken, true);
    }

    /// When the host wants to be woken.
    pub fn wake_at(&self) -> Time {
        self.host.wake_at(&self.snapshot(), self.now).expect("memory is readable")
    }

    /// The time that was recorded last, as the store holds it and the host knows it.
    pub fn recorded(&self) -> Option<Time> {
        let stored = self.snapshot().get(Table::Meta, b"last_time").expect("readable");
        let stored = stored.map(|bytes| Time(u64::from_be_bytes(bytes.try_into().expect("eight bytes"))));
        assert_eq!(stored, self.host.guard().last_time, "the host knows what it recorded");
        stored
    }

    /// Calls an operation; the envelope of the answer.
    pub fn call(&mut self, caller: &Agent, operation: &str, arguments: Value) -> Value {
        envelope(self.try_call(caller, operation, arguments))
    }

    /// Every row of the store but the recorded time, and the index and digest of every object.
    pub fn trace(&self) -> BTreeMap<(Table, Vec<u8>), Vec<u8>> {
        let snapshot = self.snapshot();
        let mut rows = BTreeMap::new();
        for table in Table::ALL {
            rows.extend(all_rows(&snapshot, table).into_iter().map(|(key, value)| ((table, key), value)));
        }
        for noted in NOTED {
            rows.remove(&(Table::Meta, noted.to_vec()));
        }
        rows
    }

    /// The last index and the running digest of an object, by its outside id.
    pub fn digest(&self, object: &str) -> (u64, String) {
        let snapshot = self.snapshot();
        for (number, id) in log::objects(&snapshot, 0, usize::MAX).expect("readable") {
            if id.to_string() == object {
                let head = Cells::new(&snapshot, number).head().expect("readable").expect("a head");
                return (head.index, head.digest.to_string());
            }
        }
        panic!("no object {object}");
    }

    /// One call, as the daemon makes it.
    ///
    /// # Errors
    /// The refusal.
    pub fn try_call(&mut self, caller: &Agent, operation: &str, arguments: Value) -> Result<Answer, Refusal> {
        let operation = operations::find(operation).unwrap_or_else(|| panic!("no operation {operation}"));
        self.try_body(caller, operation, arguments.to_string().as_bytes())
    }

    /// The same with the body as it came.
    ///
    /// # Errors
    /// The refusal.
    pub fn try_body(&mut self, caller: &Agent, operation: &'static Operation, body: &[u8]) -> Result<Answer, Refusal> {
        let arguments = argument::read(body)?;
        let snapshot = self.snapshot();
        self.calls += 1;
        if !operation.is_action() {
            return self.read_over(&snapshot, caller, operation, arguments);
        }
        let taken = self.take_over(&snapshot, caller, operation, arguments);
        self.end(taken, true).pop().expect("one reply").1
    }

    /// One call over a state that is not the store's, as of a store that was damaged. Nothing of it is committed.
    ///
    /// # Errors
    /// The refusal.
    pub fn try_over(
        &mut self,
        read: &dyn Read,
        caller: &Agent,
        operation: &'static Operation,
        arguments: Arguments,
    ) -> Result<Answer, Refusal> {
        self.calls += 1;
        if !operation.is_action() {
            return self.read_over(read, caller, operation, arguments);
        }
        let taken = self.take_over(read, caller, operation, arguments);
        self.host.committed(true);
        answered(taken.replies.given(true)).pop().expect("one reply").1
    }

    fn take_over(
        &mut self,
        read: &dyn Read,
        caller: &Agent,
        operation: &'static Operation,
        arguments: Arguments,
    ) -> Taken<()> {
        let request = self.request(caller, operation, arguments);
        self.host.take(read, self.now, vec![((), request)])
    }

    fn read_over(
        &mut self,
        read: &dyn Read,
        caller: &Agent,
        operation: &'static Operation,
        arguments: Arguments,
    ) -> Result<Answer, Refusal> {
        let (arguments, as_agent) =
            kwoon_sync::control::take_as(operation, arguments, caller.caller, &self.host.keyring())?;
        let view = View {
            read,
            keyring: &self.host.keyring(),
            limits: &self.host.limits(),
            now: self.now,
            sealing: self.host.guard().sealing(self.now),
            store: StoreFigures::default(),
            around: &Around { addresses: self.addresses.clone(), ..Around::default() },
            caller: caller.caller,
            as_agent,
        };
        if operation.uses_a_file() {
            let job = operation.job(&view, arguments).map_err(to_refusal)?;
            let finding = match carry_out(job, &view, &mut self.files)? {
                Ok(answer) => return Ok(answer),
                Err(finding) => finding,
            };
            let request = Request { finding: Some(finding), ..self.request(caller, operation, Arguments::new()) };
            let taken = self.host.take(read, self.now, vec![((), request)]);
            return self.end(taken, true).pop().expect("one reply").1;
        }
        operation.read(&view, arguments).map_err(to_refusal)
    }

    /// Several calls of acting operations in one round, decided over one state; the envelopes of the answers.
    pub fn round(&mut self, calls: &[(&Agent, &str, Value)]) -> Vec<Value> {
        self.together(calls, true)
    }

    /// Calls an acting operation whose commit fails; the envelope of the answer.
    pub fn call_uncommitted(&mut self, caller: &Agent, operation: &str, arguments: &Value) -> Value {
        self.together(&[(caller, operation, arguments.clone())], false).pop().expect("one reply")
    }

    /// The host's key pair (`host`) or the owner's (`owner`).
    pub fn key(&self, purpose: &str) -> KeyPair {
        key_of(&self.seed, purpose)
    }

    /// The keys of an agent's instance here.
    pub fn instance(&self, agent: &Agent) -> InstanceKeys {
        let keys = self.store.keys().into_iter().find(|keys| keys.agent == agent.full_id());
        keys.expect("an agent with an instance here")
    }

    /// Gives an action straight to the sequencer, as a peer's would come, and commits what it seals.
    ///
    /// # Errors
    /// The refusal.
    pub fn sequence(&mut self, candidate: Candidate) -> Result<Sealed, Stop> {
        let (host, snapshot) = (self.key("host"), self.snapshot());
        let mut sequencer = Sequencer::new(&snapshot, &host, self.now);
        let sealed = sequencer.act(candidate, |_, _| Ok(()));
        let batch = sequencer.finish().expect("memory is readable");
        self.store.commit(batch).expect("memory can be written");
        sealed
    }

    /// Makes an agent.
    pub fn agent(&mut self, name: &str) -> Agent {
        let answer = self.try_call(&owner(), "agent_create", json!({"name": name})).expect("an agent");
        assert!(matches!(answer.secret, Some(Secret::TokenOf(_))), "a new agent gets a token");
        self.known(&answer.json()["result"]["agent"])
    }

    /// Whether an agent lives here, by its outside id.
    pub fn has_agent(&self, id: &Value) -> bool {
        self.host.keyring().agents().any(|agent| *id == agent.to_string())
    }

    /// An agent of this hall by its outside id.
    pub fn known(&self, id: &Value) -> Agent {
        let id = id.as_str().expect("an id").to_owned();
        let keyring = self.host.keyring();
        let agent = keyring.agents().find(|agent| agent.to_string() == id).copied().expect("an agent of this hall");
        Agent { id, caller: Caller::Agent(agent) }
    }
}

/// Logs as files.
impl<S: Ground> Hall<S> {
    crate::stagecraft::stagecraft!();

    /// Exports the log of an object; the file.
    pub fn export(&mut self, object: &str) -> Vec<u8> {
        let path = format!("/{object}.kwoonlog");
        self.files.remove(&path);
        self.ok(&owner(), "object_export", json!({"object": object, "path": path}));
        self.files[&path].clone()
    }

    /// Checks a log file; what the answer says.
    pub fn check(&mut self, file: Vec<u8>) -> Value {
        self.files.insert("/elsewhere.kwoonlog".to_owned(), file);
        self.ok(&owner(), "object_check", json!({"path": "/elsewhere.kwoonlog"}))["result"].clone()
    }

    /// Verifies every log and decides it again.
    pub fn verify(&mut self) {
        let verified = self.ok(&owner(), "ledger_verify", json!({}));
        assert_eq!(verified["result"]["sound"], true, "{verified:#}");
    }
}

/// Actions in one round, and rounds that come to nothing.
impl<S: Ground> Hall<S> {
    /// Commits what was decided, if the commit is to be made at all.
    fn end<T>(&mut self, taken: Taken<T>, commits: bool) -> Vec<(T, Result<Answer, Refusal>)> {
        let committed = commits && self.store.commit(taken.batch).is_ok();
        self.host.committed(committed);
        answered(taken.replies.given(committed))
    }

    /// Takes in what a session with another host gives; what came of it, or nothing if it could not be committed.
    pub fn deliver(&mut self, delivery: Delivery) -> Option<Received> {
        let snapshot = self.snapshot();
        let taken = self.host.take(&snapshot, self.now, vec![((), Work::Delivery(Box::new(delivery)))]);
        let committed = self.store.commit(taken.batch).is_ok();
        self.host.committed(committed);
        match taken.replies.given(committed).pop().expect("one reply").1 {
            Ok(Done::Received(received)) => Some(received),
            Ok(Done::Answer(_)) => panic!("a delivery has no answer"),
            Err(_) => None,
        }
    }

    /// Tells the host where others find it.
    pub fn set_addresses(&mut self, addresses: Vec<String>) {
        self.addresses.clone_from(&addresses);
        let snapshot = self.snapshot();
        let taken = self.host.take(&snapshot, self.now, vec![((), Work::Addresses(addresses))]);
        let committed = self.store.commit(taken.batch).is_ok();
        self.host.committed(committed);
    }

    /// Begins a session with another host; its greeting.
    pub fn session(&self, peer: PublicKey, dialed: bool) -> (Session, Message) {
        let beginning = Beginning { own: self.key("host").public(), peer, dialed, counting: self.host.counting() };
        Session::begin(beginning, &self.snapshot(), self.now).expect("readable")
    }

    fn request(&self, caller: &Agent, operation: &'static Operation, arguments: Arguments) -> Request {
        let entropy = Digest::of("kwoon test entropy", &[&self.seed, &self.calls.to_be_bytes()]).0;
        Request { caller: caller.caller, operation, arguments, entropy, trace_id: None, finding: None }
    }

    fn requests(&mut self, calls: &[(&Agent, &str, Value)]) -> Vec<((), Request)> {
        let mut requests = Vec::new();
        for (caller, operation, arguments) in calls {
            let operation = operations::find(operation).unwrap_or_else(|| panic!("no operation {operation}"));
            self.calls += 1;
            let arguments = argument::read(arguments.to_string().as_bytes()).expect("an object");
            requests.push(((), self.request(caller, operation, arguments)));
        }
        requests
    }

    /// Takes acting calls in one round, as a daemon does that they reach at the same time; the answers in their order.
    /// Where the commit fails, nothing of the round is kept.
    pub fn together(&mut self, calls: &[(&Agent, &str, Value)], commits: bool) -> Vec<Value> {
        let requests = self.requests(calls);
        let snapshot = self.snapshot();
        let taken = self.host.take(&snapshot, self.now, requests);
        self.end(taken, commits).into_iter().map(|(_, reply)| envelope(reply)).collect()
    }

    /// Takes two rounds of one call each, the second when the first is decided and not committed yet, and `now` is what the
    /// clock shows by then; the answers.
    pub fn ahead(&mut self, first: (&Agent, &str, Value), now: Time, second: (&Agent, &str, Value)) -> [Value; 2] {
        let (first, second) = (self.requests(&[first]), self.requests(&[second]));
        let snapshot = self.snapshot();
        let first = self.host.take(&snapshot, self.now, first);
        self.now = now;
        let second = self.host.take(&Overlay::with(&snapshot, first.batch.readable()), self.now, second);
        [first, second].map(|taken| envelope(self.end(taken, true).pop().expect("one reply").1))
    }
}

/// The answers to calls.
fn answered<T>(replies: Vec<Reply<T>>) -> Vec<(T, Result<Answer, Refusal>)> {
    let answer = |done| match done {
        Done::Answer(answer) => *answer,
        Done::Received(_) => panic!("a call has an answer"),
    };
    replies.into_iter().map(|(ticket, reply)| (ticket, reply.map(answer))).collect()
}

pub(crate) fn envelope(reply: Result<Answer, Refusal>) -> Value {
    reply.map_or_else(|refusal| refusal_json(&refusal), |answer| answer.json())
}

/// The effects of an answer's receipt, each as its kind and, where it has one, what ended or began and how. A change of the
/// host that orders the log is left out: that comes of where agents live.
pub fn effects(answer: &Value) -> Vec<String> {
    let effects = answer["receipt"]["effects"].as_array().expect("a receipt with effects");
    let words = |effect: &Value| {
        let fields = ["kind", "duty", "exit", "state", "how", "role"];
        fields.iter().filter_map(|field| effect[*field].as_str().map(str::to_owned)).collect::<Vec<_>>().join(" ")
    };
    effects.iter().filter(|effect| effect["kind"] != "epoch_began").map(words).collect()
}

/// The text that a field of a result points to, or nothing if it may not be read.
pub fn content<'a>(answer: &'a Value, field: &Value) -> Option<&'a str> {
    answer["content"][field.as_str().expect("a content key")]["text"].as_str()
}

/// States of a store in memory.
impl Hall {
    /// A hall in the same state, which goes its own way from here.
    #[must_use]
    pub fn fork(&self) -> Self {
        let store = self.store.clone();
        let keyring = Keyring::clone(&self.host.keyring());
        let host = Host::new(keyring, self.limits.clone(), self.mark, &self.snapshot()).expect("memory is readable");
        let (limits, files) = (self.limits.clone(), self.files.clone());
        let (now, calls) = (self.now, self.calls);
        let addresses = self.addresses.clone();
        Self { store, host, seed: self.seed, limits, mark: self.mark, now, calls, files, addresses }
    }

    /// Everything in the store, keys of rows and contents with their rows: where it is, and the bytes.
    pub fn stored(&self) -> Vec<(String, Vec<u8>)> {
        let snapshot = self.snapshot();
        let mut stored = Vec::new();
        for table in Table::ALL {
            for (key, value) in all_rows(&snapshot, table) {
                stored.push((format!("{table:?}"), [key, value].concat()));
            }
        }
        for hash in snapshot.contents() {
            let (salt, bytes) = snapshot.content(hash).expect("readable").expect("a content that is held");
            stored.push(("contents".to_owned(), [&hash.as_bytes()[..], salt.as_bytes(), &bytes].concat()));
        }
        stored
    }

    /// Whether nothing is in the store that was not there before but the recorded time.
    pub fn unchanged_since(&self, before: &MemorySnapshot) -> bool {
        let now = self.snapshot();
        let meta = |state: &MemorySnapshot| {
            let mut rows = all_rows(state, Table::Meta);
            rows.retain(|(key, _)| !NOTED.contains(&key.as_slice()));
            rows
        };
        let same = |table| table == Table::Meta || now.same_table(before, table);
        Table::ALL.into_iter().all(same) && meta(&now) == meta(before) && now.same_content(before)
    }

    /// Folds the facts that came since a state over that state, as a replica would that has it: they fold, and the derived
    /// table is then the one of this hall, but for the receipts of outcomes that are no facts.
    pub fn folds_since(&self, before: &MemorySnapshot) {
        let now = self.snapshot();
        let mut replica = Overlay::new(before);
        let first = log::next_arrival(before).expect("readable");
        for (_, number, index) in log::arrivals(&now, first, usize::MAX).expect("readable") {
            let fact = log::fact_bytes(&now, number, index).expect("a fact");
            replica::fold(&mut replica, number, &fact).expect("a replica folds what was sealed");
        }
        let derived = |read: &dyn Read| {
            let mut rows = all_rows(read, Table::Derived);
            // The receipts of what is no fact, and the outbox, are the host's own.
            let own = [&[RECEIPTS][..], &OUTBOX].concat();
            rows.retain(|(key, _)| key.first().is_none_or(|first| !own.contains(first)));
            rows
        };
        assert!(derived(&replica) == derived(&now), "a replica derives what the host derived");
    }
}

fn all_rows(read: &dyn Read, table: Table) -> Vec<Row> {
    read.range(table, &[], &[0xff; 80], Order::Rising, usize::MAX).expect("readable")
}

/// Does with a file what an operation wants, as the daemon does.
fn carry_out(
    job: FileJob,
    view: &View<'_>,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<Result<Answer, Finding>, Refusal> {
    let FilePath(path) = job.path;
    let stopped = |stop| match stop {
        FileStop::Stop(stop) => to_refusal(stop),
        FileStop::Io(error) => panic!("memory can be read and written: {error}"),
    };
    match (job.work, files.get(&path)) {
        (FileWork::Export(_), Some(_)) => Err(Refusal::argument("path", "a path where nothing is yet")),
        (FileWork::Export(export), None) => {
            let mut file = Vec::new();
            let answer = export.write(view, &mut file).map_err(stopped)?;
            files.insert(path, file);
            Ok(Ok(answer))
        }
        (FileWork::Backup, _) => Err(Refusal::argument("path", "a directory on a disk")),
        (FileWork::Check, Some(file)) => {
            let finding = check::check(&mut &file[..], view.now).map_err(stopped)?;
            Ok(file::answer(finding, view).expect("memory is readable"))
        }
        (FileWork::Check, None) => Err(Refusal::argument("path", "a file or directory that is there")),
    }
}

/// The key pair of the host (`host`) or the owner (`owner`) of a hall.
pub fn key_of(seed: &[u8; 32], purpose: &str) -> KeyPair {
    KeyPair::from_seed(&Digest::of("kwoon test key", &[seed, purpose.as_bytes()]).0)
}

/// The text of a JSON string.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}")).to_owned()
}

/// Adds the fields of an object to another.
pub fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}
