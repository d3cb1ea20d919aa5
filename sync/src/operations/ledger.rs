//! The logs themselves, for the owner: what stands in them, and whether it is right. No participant text is in a log,
//! so none is in these answers (L6.1).

use kwoon_keys::cbor;
use kwoon_keys::{Digest, Salt};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::fact::{Fact, fact_hash, head_hash};
use kwoon_ledger::index::{self, IdKind, Place, Short};
use kwoon_ledger::log;
use kwoon_ledger::refusal::{Code, Stop};
use kwoon_ledger::replica::FoldError;
use kwoon_ledger::state::{CELLS, Cells, ObjectNumber};
use kwoon_ledger::storage::{Order, Overlay, Read, ReadError, Row, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reads;
use super::owner::object_page;
use crate::answer::{Answer, Contents};
use crate::argument::{Limit, LogFormat, ObjectRef};
use crate::message::{self, Message};
use crate::receipt::effect_json;
use crate::verify::{self, Verifier};
use crate::view::{View, read_cursor, write_cursor};

/// The log of an object.
///
/// # Errors
/// [`Code::NotFound`] if it has none here.
pub(super) fn number(view: &View<'_>, object: &ObjectRef) -> Result<(ObjectNumber, Short), Stop> {
    let (kind, short) = match object {
        ObjectRef::Thread(short) => (IdKind::Thread, short),
        ObjectRef::Memory(short) => (IdKind::Memory, short),
        ObjectRef::Publication(short) => (IdKind::Publication, short),
        ObjectRef::Agent(short) => (IdKind::Agent, short),
    };
    match index::find(view.read, kind, short)? {
        Some(Place::Log(number)) => Ok((number, *short)),
        // A memory without a log of its own has its facts in the thread's.
        Some(Place::Born(..) | Place::Assignment(..) | Place::Kept(..)) | None => Err(Code::NotFound.into()),
    }
}

/// Arguments of `ledger_verify`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LedgerVerify {
    /// One object; all if left out.
    object: Option<ObjectRef>,
}

/// A fault that was found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Fault {
    object: String,
    /// The index of the fact.
    index: u64,
    /// What is wrong.
    problem: String,
}

/// What a verification found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Verified {
    /// Whether everything is right.
    sound: bool,
    objects: u64,
    facts: u64,
    seals: u64,
    /// The first 50 faults.
    faults: Vec<Fault>,
}

/// A store of which only the facts are seen: nothing that follows from them.
struct FactsOnly<'a>(&'a dyn Read);

impl Read for FactsOnly<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        if table == Table::Log { self.0.get(table, key) } else { Ok(None) }
    }
    fn range(&self, table: Table, from: &[u8], to: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError> {
        if table == Table::Log { self.0.range(table, from, to, order, limit) } else { Ok(Vec::new()) }
    }
    fn content(&self, _: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        Ok(None)
    }
}

/// Facts of one object that are read at a time.
const CHUNK: usize = 256;

impl Verified {
    fn fault(&mut self, object: &ObjectId, index: u64, problem: impl ToString) {
        self.sound = false;
        if self.faults.len() < 50 {
            self.faults.push(Fault { object: object.to_string(), index, problem: problem.to_string() });
        }
    }

    /// Folds one log from nothing, as a host would that has just got it, and compares.
    fn verify(&mut self, read: &dyn Read, number: ObjectNumber, object: &ObjectId) -> Result<(), Stop> {
        self.objects += 1;
        let head = Cells::new(read, number).head()?.ok_or(Code::Internal)?;
        let facts = FactsOnly(read);
        let mut verifier = Verifier::new(&facts, number);
        while verifier.facts <= head.index {
            let (from, to) = (log::fact_key(number, verifier.facts), log::fact_key(number, u64::MAX));
            let rows = read.range(Table::Log, &from, &to, Order::Rising, CHUNK)?;
            if rows.is_empty() {
                self.fault(object, verifier.facts, "the fact is missing");
                return Ok(());
            }
            for (_, bytes) in rows {
                match verifier.fact(&bytes) {
                    Ok(_) => self.facts += 1,
                    Err(FoldError::Unreadable(error)) => return Err(error.into()),
                    Err(error) => {
                        self.fault(object, verifier.facts, verify::words(&error));
                        return Ok(());
                    }
                }
            }
            verifier.forget_facts();
        }
        let mut cells = vec![CELLS];
        cells.extend_from_slice(&number.to_be_bytes());
        for prefix in [cells, log::effects_prefix(number)] {
            self.compare(read, &verifier.folded, prefix, object, head.index)?;
        }
        self.verify_seals(read, &mut verifier, number, object, head.index)
    }

    /// Compares the stored rows under a prefix with those derived here.
    fn compare(
        &mut self,
        read: &dyn Read,
        folded: &Overlay<'_>,
        prefix: Vec<u8>,
        object: &ObjectId,
        index: u64,
    ) -> Result<(), Stop> {
        let end = kwoon_ledger::storage::after_prefix(&prefix);
        let mut from = prefix;
        loop {
            let stored = read.range(Table::Derived, &from, &end, Order::Rising, CHUNK)?;
            let derived = folded.range(Table::Derived, &from, &end, Order::Rising, CHUNK)?;
            if stored != derived {
                self.fault(object, index, "the stored state is not what the facts say; stop the daemon and start it with: kwoon serve --rebuild");
                return Ok(());
            }
            let Some((last, _)) = stored.into_iter().next_back() else { return Ok(()) };
            from = last;
            from.push(0);
        }
    }

    fn verify_seals(
        &mut self,
        read: &dyn Read,
        verifier: &mut Verifier<'_>,
        number: ObjectNumber,
        object: &ObjectId,
        index: u64,
    ) -> Result<(), Stop> {
        let mut from = number.to_be_bytes().to_vec();
        let end = kwoon_ledger::storage::after_prefix(&from);
        loop {
            let rows = read.range(Table::Seals, &from, &end, Order::Rising, CHUNK)?;
            let Some((last, _)) = rows.last().cloned() else { break };
            for (_, record) in rows {
                match verifier.seal(&record) {
                    Ok(_) => {}
                    Err(FoldError::Unreadable(error)) => return Err(error.into()),
                    Err(error) => self.fault(object, index, verify::words(&error)),
                }
                self.seals += 1;
            }
            from = last;
            from.push(0);
        }
        if verifier.sealed != Some(index) {
            self.fault(object, index, "the last fact is not sealed");
        }
        Ok(())
    }
}

impl Reads for LedgerVerify {
    type Result = Verified;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let mut as_of = None;
        let mut verified = Verified { sound: true, objects: 0, facts: 0, seals: 0, faults: Vec::new() };
        match &self.object {
            Some(reference) => {
                let (number, _) = number(view, reference)?;
                let object = log::object(view.read, number)?.ok_or(Code::Internal)?;
                verified.verify(view.read, number, &object)?;
                as_of = view.as_of(number)?;
            }
            None => {
                let mut from = Some(0);
                while let Some(first) = from {
                    let objects = log::objects(view.read, first, CHUNK)?;
                    from = objects.last().and_then(|(last, _)| last.checked_add(1));
                    for (number, object) in objects {
                        verified.verify(view.read, number, &object)?;
                    }
                }
            }
        }
        let mut answer = Answer::new(&verified, Contents::new(view.read))?;
        answer.as_of = as_of;
        Ok(answer)
    }
}

/// Arguments of `object_log`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectLog {
    /// The object.
    object: ObjectRef,
    /// `json` (the default) or `cbor`.
    format: Option<LogFormat>,
    /// Where the page begins.
    cursor: Option<String>,
    /// Facts of the page.
    limit: Option<Limit>,
}

/// A fact.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FactShown {
    index: u64,
    epoch: u64,
    /// `action`, `expiry`, `account`, `epoch` or `consequence`.
    cause: &'static str,
    /// The command it sealed, if it sealed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Message>,
    /// What happened.
    event: Message,
    /// The head hash after it.
    head: String,
    /// The running digest after it.
    digest: String,
    /// Whether a seal stands at this very fact.
    sealed: bool,
    /// The record, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    /// The seal, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    seal: Option<String>,
}

/// Facts.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Facts {
    facts: Vec<FactShown>,
}

impl Reads for ObjectLog {
    type Result = Facts;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let (number, short) = number(view, &self.object)?;
        let from: u64 = self.cursor.as_deref().map(|text| read_cursor(b"log", &short, text)).transpose()?.unwrap_or(0);
        let limit = Limit::of(self.limit);
        let head = Cells::new(view.read, number).head()?.ok_or(Code::Internal)?;
        let (first, end) = (log::fact_key(number, from), log::fact_key(number, u64::MAX));
        let mut rows = view.read.range(Table::Log, &first, &end, Order::Rising, limit + 1)?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let with_records = self.format == Some(LogFormat::Cbor);
        let hex = |bytes: &[u8]| with_records.then(|| data_encoding::HEXLOWER.encode(bytes));
        let mut facts = Vec::with_capacity(rows.len());
        for (_, bytes) in rows {
            let fact: Fact = cbor::read_own(&bytes).map_err(|_| ReadError::damaged("a fact"))?;
            let action = log::action_of(&fact);
            let command = match &action {
                Some(action) => Some(message::command(view.read, action, &head.sequencer)?),
                None => None,
            };
            let seal = view.read.get(Table::Seals, &log::seal_key(number, fact.epoch, fact.index))?;
            let effects = log::effects(view.read, number, fact.index)?;
            let effects = effects.iter().filter_map(|effect| effect_json(&fact.object, effect)).collect();
            facts.push(FactShown {
                index: fact.index,
                epoch: fact.epoch,
                cause: message::cause(&fact),
                command,
                event: message::event(&fact, &bytes, action.as_ref(), head.rules, &head.sequencer, effects),
                head: head_hash(&fact.previous, &fact_hash(&bytes)).to_string(),
                digest: fact.digest.to_string(),
                sealed: seal.is_some(),
                record: hex(&bytes),
                seal: seal.as_deref().and_then(hex),
            });
        }
        let next = facts.last().map_or(from, |fact| fact.index.saturating_add(1));
        let mut answer = Answer::new(&Facts { facts }, Contents::new(view.read))?;
        answer.as_of = view.as_of(number)?;
        answer.cursor = more.then(|| write_cursor(b"log", &short, &next));
        Ok(answer)
    }
}

/// Arguments of `object_digest`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectDigest {
    /// One object; all, page by page, if left out.
    object: Option<ObjectRef>,
    /// Where the page begins.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
}

/// Where a log stands.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DigestRow {
    object: String,
    index: u64,
    digest: String,
    head: String,
}

/// The answer of `object_digest`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Digests {
    /// Of one object.
    One(DigestRow),
    /// Of a page of objects.
    Page {
        /// The objects.
        objects: Vec<DigestRow>,
    },
}

fn digest_row(view: &View<'_>, number: ObjectNumber) -> Result<DigestRow, Stop> {
    let head = Cells::new(view.read, number).head()?.ok_or(Code::Internal)?;
    Ok(DigestRow {
        object: head.object.to_string(),
        index: head.index,
        digest: head.digest.to_string(),
        head: head.hash.to_string(),
    })
}

impl Reads for ObjectDigest {
    type Result = Digests;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let mut as_of = None;
        let (digests, cursor) = match &self.object {
            Some(reference) => {
                let (number, _) = number(view, reference)?;
                as_of = view.as_of(number)?;
                (Digests::One(digest_row(view, number)?), None)
            }
            None => {
                let (page, cursor) = object_page(view, self.cursor.as_deref(), Limit::of(self.limit))?;
                let rows: Result<Vec<_>, Stop> = page.iter().map(|(number, _)| digest_row(view, *number)).collect();
                (Digests::Page { objects: rows? }, cursor)
            }
        };
        let mut answer = Answer::new(&digests, Contents::new(view.read))?;
        answer.as_of = as_of;
        answer.cursor = cursor;
        Ok(answer)
    }
}
