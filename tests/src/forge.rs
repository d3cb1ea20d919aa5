//! Records made by hand: logs as they lie in a hall's store, folded from nothing as a host would that has just got
//! them, and what somebody with keys could put into them.

use kwoon_keys::id::InstanceId;
use kwoon_keys::{Digest, KeyPair, RecordKind, Salt, cbor, cose};
use kwoon_ledger::action::{Action, Actor, Body, EntryPost, MediaType, ObjectId, Position, SCHEMA, Source, Text};
use kwoon_ledger::effect::{Account, Effect};
use kwoon_ledger::fact::{Cause, Fact, Seal, fact_hash, head_hash, running_digest};
use kwoon_ledger::identity::{Change, IdentityChange, Status, StatusChange};
use kwoon_ledger::limits::ACTION_VALIDITY;
use kwoon_ledger::log;
use kwoon_ledger::replica::{self, FoldError};
use kwoon_ledger::rules::identity;
use kwoon_ledger::sequencer::Candidate;
use kwoon_ledger::state::{Cells, Head, ObjectNumber};
use kwoon_ledger::storage::{Order, Overlay, Read, Table};
use kwoon_ledger::time::Time;
use kwoon_sync::logfile::{KIND, LogHeader, LogItem, LogReader, LogWriter, ReadItem, VERSION};
use minicbor::bytes::ByteVec;

use crate::hall::{Agent, Hall};

pub use kwoon_ledger::storage::Nothing;

/// The log of an object: its facts and seals.
#[derive(Clone, Debug)]
pub struct Log {
    /// The object's number in the hall.
    pub number: ObjectNumber,
    /// The object.
    pub object: ObjectId,
    /// The bytes of its facts.
    pub facts: Vec<Vec<u8>>,
    /// The bytes of its seals.
    pub seals: Vec<Vec<u8>>,
}

impl Log {
    /// The log of an object by its outside id.
    pub fn of(hall: &Hall, object: &str) -> Self {
        let snapshot = hall.snapshot();
        let objects = log::objects(&snapshot, 0, usize::MAX).expect("readable");
        let (number, object) = objects.into_iter().find(|(_, id)| id.to_string() == object).expect("an object");
        let rows = |table| {
            let rows = snapshot.prefix(table, &number.to_be_bytes(), Order::Rising, usize::MAX).expect("readable");
            rows.into_iter().map(|(_, value)| value).collect()
        };
        Self { number, object, facts: rows(Table::Log), seals: rows(Table::Seals) }
    }

    /// A fact.
    pub fn fact(&self, index: usize) -> Fact {
        Fact::read(&self.facts[index]).expect("a fact")
    }

    /// The index of the first fact that is like this.
    pub fn find(&self, like: impl Fn(&Fact) -> bool) -> usize {
        (0..self.facts.len()).find(|index| like(&self.fact(*index))).expect("such a fact")
    }

    /// The index of the first fact that seals an action like this.
    pub fn find_action(&self, like: impl Fn(&Body) -> bool) -> usize {
        self.find(|fact| log::action_of(fact).is_some_and(|action| like(&action.body)))
    }

    /// The first `count` facts, folded from nothing.
    pub fn fold(&self, count: usize) -> Overlay<'static> {
        let mut overlay = Overlay::new(&Nothing);
        for fact in &self.facts[..count] {
            replica::fold(&mut overlay, self.number, fact).expect("a good fact");
        }
        overlay
    }

    /// The whole log, folded from nothing.
    pub fn folded(&self) -> Overlay<'static> {
        self.fold(self.facts.len())
    }

    /// Where the log stands.
    pub fn head(&self) -> Head {
        head(&self.folded(), self.number)
    }

    /// An account as the whole log knows it.
    pub fn account(&self, agent: &Agent) -> Account {
        let account = Cells::new(&self.folded(), self.number).account(&agent.full_id());
        account.expect("readable").expect("an account")
    }

    /// Folds the log up to an index and then these bytes in the place of the fact there, which must be rejected and
    /// change nothing; the good facts must fold on after. Why it is rejected.
    pub fn rejects(&self, at: usize, bytes: &[u8]) -> FoldError {
        let mut overlay = self.fold(at);
        let before = overlay.batch.rows.clone();
        let why = replica::fold(&mut overlay, self.number, bytes).expect_err("must be rejected");
        assert!(overlay.batch.rows == before, "a rejected fact changes nothing");
        for fact in &self.facts[at..] {
            replica::fold(&mut overlay, self.number, fact).expect("the good log folds on");
        }
        why
    }

    /// The same with a changed fact.
    pub fn rejects_fact(&self, at: usize, change: impl FnOnce(&mut Fact)) -> FoldError {
        let mut fact = self.fact(at);
        change(&mut fact);
        self.rejects(at, &cbor::write(&fact))
    }

    /// The same with a changed action in it, signed anew with this key.
    pub fn rejects_action(&self, at: usize, key: &KeyPair, change: impl FnOnce(&mut Action)) -> FoldError {
        self.rejects_fact(at, |fact| {
            let mut action = log::action_of(fact).expect("an action");
            change(&mut action);
            fact.cause = Cause::Action(sign(&action, key));
        })
    }

    /// The same with a fact after the last one.
    pub fn rejects_next(&self, cause: Cause) -> FoldError {
        self.rejects(self.facts.len(), &cbor::write(&self.next(cause)))
    }

    /// A fact after the last one that chains on, without its running digest.
    pub fn next(&self, cause: Cause) -> Fact {
        let head = self.head();
        Fact {
            schema: SCHEMA,
            object: self.object,
            epoch: head.epoch,
            index: head.index + 1,
            previous: head.hash,
            log_time: head.log_time,
            cause,
            evidence: Vec::new(),
            digest: Digest::default(),
            opening: None,
        }
    }

    /// Adds a fact after the last one whose effects are known.
    pub fn push(&mut self, cause: Cause, effects: &[Effect]) {
        let mut fact = self.next(cause);
        fact.digest = running_digest(&self.head().digest, fact.index, &cbor::write(&effects.to_vec()));
        self.facts.push(cbor::write(&fact));
    }

    /// Adds an account fact after the last one, of an agent that is no member of what the log is of.
    pub fn push_account(&mut self, agent: &Agent, records: Vec<ByteVec>) {
        let known = Cells::new(&self.folded(), self.number).account(&agent.full_id()).expect("readable");
        let (account, _) = identity::account_after(known, agent.full_id(), &records).expect("a chain");
        self.push(Cause::Account(agent.full_id(), records), &[Effect::AccountSet(agent.full_id(), account)]);
    }

    /// An action on this log by an agent of a hall, at the log's head.
    pub fn action(&self, hall: &Hall, agent: &Agent, body: Body) -> Action {
        let head = self.head();
        Action {
            schema: SCHEMA,
            actor: Actor::Agent(agent.full_id(), instance_id(hall, agent)),
            object: Some(self.object),
            position: Some(Position { epoch: head.epoch, index: head.index, head: head.hash }),
            token: Digest::of("kwoon test token", &[&cbor::write(&body), &head.index.to_be_bytes()]),
            request_digest: Digest::default(),
            attempt: 0,
            generation: 0,
            issued_at: hall.now,
            expires_at: hall.now.after(ACTION_VALIDITY),
            needs: Vec::new(),
            after: Vec::new(),
            body,
        }
    }

    /// A seal of the whole log, signed with this key.
    pub fn sealed(&self, key: &KeyPair) -> Vec<u8> {
        let (mut last, index) = (Digest::default(), self.facts.len() - 1);
        for fact in &self.facts {
            last = head_hash(&last, &fact_hash(fact));
        }
        let log_time = Fact::read(&self.facts[index]).map_or(Time(0), |fact| fact.log_time);
        let epoch = 0;
        let (object, index) = (self.object, index as u64);
        Seal { schema: SCHEMA, object, epoch, index, head: last, log_time, wall_time: log_time }.sign(key)
    }

    /// The log as a file, without contents. Each seal stands after the fact that it names.
    pub fn file(&self) -> Vec<u8> {
        let index = self.facts.len() as u64 - 1;
        let header = LogHeader { kind: KIND.to_owned(), version: VERSION, object: self.object, epoch: 0, index };
        let mut items: Vec<LogItem> = Vec::new();
        for (index, fact) in self.facts.iter().enumerate() {
            items.push(LogItem::Fact(fact.clone().into()));
            let here = self.seals.iter().filter(|seal| seal_index(seal) == Some(index as u64));
            items.extend(here.map(|seal| LogItem::Seal(seal.clone().into())));
        }
        file_of(&header, &items)
    }

    /// A candidate on this log.
    pub fn candidate(&self, signed: ByteVec) -> Candidate {
        Candidate::of(self.object, signed.into())
    }
}

/// The index that a stored seal names, whoever signed it.
fn seal_index(record: &[u8]) -> Option<u64> {
    let signatures: Vec<ByteVec> = cbor::read_lenient(record).ok()?;
    let payload = cose::payload(RecordKind::Seal, signatures.first()?).ok()?;
    cbor::read_lenient::<Seal>(payload).ok().map(|seal| seal.index)
}

/// A log file of these items, with its end.
pub fn file_of(header: &LogHeader, items: &[LogItem]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = LogWriter::begin(&mut file, header).expect("memory can be written");
    for item in items {
        writer.item(item).expect("memory can be written");
    }
    writer.end().expect("memory can be written");
    file
}

/// The header and the items of a log file, its end excepted.
pub fn items_of(mut file: &[u8]) -> (LogHeader, Vec<LogItem>) {
    let (mut reader, header) = LogReader::begin(&mut file).expect("a log file");
    let mut items = Vec::new();
    while let Some(item) = reader.item().expect("an item") {
        let ReadItem::Known(item) = item else { panic!("an item of a known kind") };
        items.push(item);
    }
    assert!(matches!(items.pop(), Some(LogItem::End(..))));
    (header, items)
}

/// Where a log stands in a state.
pub fn head(read: &dyn Read, number: ObjectNumber) -> Head {
    Cells::new(read, number).head().expect("readable").expect("a head")
}

/// Signs an action.
pub fn sign(action: &Action, key: &KeyPair) -> ByteVec {
    cose::sign(RecordKind::Action, &cbor::write(action), key).into()
}

/// A key pair that nobody has.
pub fn stranger() -> KeyPair {
    KeyPair::from_seed(&[0x5a; 32])
}

/// The id of an agent's instance in its hall.
pub fn instance_id(hall: &Hall, agent: &Agent) -> InstanceId {
    let keys = hall.instance(agent);
    let identity = Log::of(hall, &agent.id);
    let account = identity.account(agent);
    let key = keys.signing.public();
    account.instances.iter().find(|instance| instance.signing_key == key).expect("an instance").id()
}

/// All records of an agent's identity, signed.
pub fn records(hall: &Hall, agent: &Agent) -> Vec<ByteVec> {
    log::identity_records(&hall.snapshot(), &agent.full_id(), 0).expect("readable")
}

/// The next record of an agent's identity, signed by the hall's owner.
pub fn record(hall: &Hall, agent: &Agent, change: Change) -> Action {
    let identity = Log::of(hall, &agent.id);
    let account = identity.account(agent);
    let body = Body::AgentChange(IdentityChange { version: account.version + 1, previous: account.record, change });
    let actor = Actor::Owner(hall.key("owner").public());
    Action { actor, ..identity.action(hall, agent, body) }
}

/// A change of status without a reason.
pub fn status(status: Status) -> Change {
    Change::Status(StatusChange { status, reason: None })
}

/// An entry with a new text, asking nobody.
pub fn post(text: &str) -> Body {
    let commitment = kwoon_keys::Commitment::to(&Salt::new([9; 32]), text.as_bytes());
    let source = Source::New(Text { commitment, media_type: MediaType::Markdown });
    Body::EntryPost(EntryPost {
        source,
        summary: None,
        reply_to: None,
        ask: Some(Vec::new()),
        task: None,
        assign: None,
    })
}
