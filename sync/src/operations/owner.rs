//! The host itself, for its owner.

use std::collections::BTreeMap;

use kwoon_keys::cbor;
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::log;
use kwoon_ledger::outbox;
use kwoon_ledger::refusal::{Code, Stop};
use kwoon_ledger::state::{Cells, Head, ObjectNumber};
use kwoon_ledger::storage::{Read, ReadError, Table};
use kwoon_ledger::time::Time;
use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Reads, Tends, UsesFile, peer};
use crate::answer::{Answer, Contents, shown};
use crate::argument::{FilePath, Limit};
use crate::file::{FileJob, FileWork};
use crate::peers;
use crate::quarantine;
use crate::round::{Call, Round};
use crate::view::{View, read_cursor, write_cursor};

/// Arguments of `host_status`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostStatus {
    /// Where the page of objects begins.
    cursor: Option<String>,
    /// Objects of the page.
    limit: Option<Limit>,
}

/// An object of this host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ObjectRow {
    object: String,
    /// `identity`, `memory`, `publication` or `thread`.
    kind: &'static str,
    index: u64,
    /// The host that orders it.
    sequencer: String,
    /// Whether that is this host.
    here: bool,
    /// When its sequencer was last heard of; now, if that is this host.
    last_seen: String,
    sealed_at: String,
}

/// Figures of the store.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StoreShown {
    /// Bytes of the store's file.
    file_bytes: u64,
    /// Texts that are held.
    texts: u64,
    /// Facts, of all objects.
    facts: u64,
    /// Records in quarantine.
    quarantined: u64,
}

/// How the host is doing.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StatusShown {
    /// The host's id, 64 hex digits.
    host: String,
    /// The owner's key.
    owner: String,
    /// Version of the program.
    version: &'static str,
    /// Whether it seals at present.
    sealing: bool,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_sealing_reason: Option<&'static str>,
    /// Objects, page by page.
    objects: Vec<ObjectRow>,
    object_count: u64,
    /// Hosts it knows; `peer_list` says more.
    peers: Vec<String>,
    /// Whether it talks to other hosts.
    online: bool,
    /// Actions of its agents that wait for an outcome.
    pending: u64,
    /// Actions of other hosts' agents that are kept to be passed on.
    carried: u64,
    /// How far the clocks of other hosts were ahead of this one's when they were last heard from.
    clock_difference_ms: BTreeMap<String, i64>,
    agents: usize,
    /// The host's time.
    time: String,
    store: StoreShown,
    /// The limits in force.
    limits: BTreeMap<&'static str, u64>,
}

/// The kind of an object.
pub fn kind(object: &ObjectId) -> &'static str {
    match object {
        ObjectId::Identity(_) => "identity",
        ObjectId::Memory(_) => "memory",
        ObjectId::Publication(_) => "publication",
        ObjectId::Thread(_) => "thread",
        ObjectId::Task(_) => "task",
        ObjectId::Engagement(_) => "engagement",
    }
}

/// Objects by their numbers, and where the next page begins.
pub type ObjectPage = (Vec<(ObjectNumber, ObjectId)>, Option<String>);

/// One page of the objects of this host, and where the next begins.
///
/// # Errors
/// If the cursor is not one, or the store cannot be read.
pub fn object_page(view: &View<'_>, cursor: Option<&str>, limit: usize) -> Result<ObjectPage, Stop> {
    let from: ObjectNumber = cursor.map(|text| read_cursor(b"objects", &[0; 16], text)).transpose()?.unwrap_or(0);
    let mut objects = log::objects(view.read, from, limit + 1)?;
    let next = (objects.len() > limit).then(|| objects.pop()).flatten();
    Ok((objects, next.map(|(number, _)| write_cursor(b"objects", &[0; 16], &number))))
}

impl Reads for HostStatus {
    type Result = StatusShown;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let host = view.keyring.host.public();
        let (page, cursor) = object_page(view, self.cursor.as_deref(), Limit::of(self.limit))?;
        let mut objects = Vec::new();
        for (number, object) in page {
            let head = Cells::new(view.read, number).head()?.ok_or(Code::Internal)?;
            objects.push(ObjectRow {
                object: object.to_string(),
                kind: kind(&object),
                index: head.index,
                sequencer: head.sequencer.to_string(),
                here: head.sequencer == host,
                last_seen: shown(last_seen(view, &head)?),
                sealed_at: shown(head.log_time),
            });
        }
        let known = peers::all(view.read)?;
        let (pending, carried) = waiting(view)?;
        let status = StatusShown {
            host: host.to_string(),
            owner: view.keyring.owner.public().to_string(),
            version: env!("CARGO_PKG_VERSION"),
            sealing: view.sealing.is_ok(),
            not_sealing_reason: view.sealing.err(),
            objects,
            object_count: log::next_object(view.read)?.into(),
            peers: known.iter().map(|(host, _)| host.to_string()).collect(),
            online: peer::is_online(view.read)?,
            pending,
            carried,
            clock_difference_ms: known
                .iter()
                .filter(|(_, peer)| peer.heard_at.is_some())
                .map(|(host, peer)| (host.to_string(), peer.ahead_ms))
                .collect(),
            agents: view.keyring.agents().count(),
            time: shown(view.now),
            store: StoreShown {
                file_bytes: view.store.file_bytes,
                texts: view.store.texts,
                facts: log::next_arrival(view.read)?,
                quarantined: quarantine::totals(view.read)?.0,
            },
            limits: view.limits.rows().collect(),
        };
        let mut answer = Answer::new(&status, Contents::new(view.read))?;
        answer.cursor = cursor;
        Ok(answer)
    }
}

/// When the host that orders a log was last heard from: now, if that is this one.
fn last_seen(view: &View<'_>, head: &Head) -> Result<Time, ReadError> {
    if head.sequencer == view.keyring.host.public() {
        return Ok(view.now);
    }
    let heard = peers::get(view.read, &head.sequencer)?.and_then(|peer| peer.heard_at);
    Ok(heard.unwrap_or(head.log_time))
}

/// Actions without an outcome: own ones, and those of others.
fn waiting(view: &View<'_>) -> Result<(u64, u64), ReadError> {
    let (mut own, mut carried, mut from) = (0, 0, 0);
    loop {
        let page = outbox::since(view.read, from, 1024)?;
        let Some(last) = page.last().map(|row| row.order) else { return Ok((own, carried)) };
        for row in page.iter().filter(|row| row.is_pending()) {
            *if row.own { &mut own } else { &mut carried } += 1;
        }
        from = last.saturating_add(1);
    }
}

/// Arguments of `clock_confirm`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockConfirm {}

/// What was confirmed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Confirmed {
    /// The time from which sealing goes on.
    time: String,
    /// Whether the host would have sealed without it.
    was_sealing: bool,
}

/// What a call of the owner's confirmed, the first time or now: a repeat of the call confirms nothing else (L3.1).
fn confirmed<T: Encode<()> + for<'b> Decode<'b, ()>>(
    round: &mut Round<'_>,
    call: &Call,
    confirm: impl FnOnce(&mut Round<'_>) -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    let mut key = call.operation.as_bytes().to_vec();
    key.push(b'/');
    key.extend_from_slice(round.keyring.owner_secret().token(call.operation, &call.key).as_bytes());
    if let Some(bytes) = round.sequencer.overlay.get(Table::Meta, &key)? {
        return cbor::read_own(&bytes).map_err(|_| ReadError::damaged("a confirmation"));
    }
    let confirmed = confirm(round)?;
    round.sequencer.overlay.put(Table::Meta, key, cbor::write(&confirmed));
    Ok(confirmed)
}

impl Tends for ClockConfirm {
    type Result = Confirmed;

    fn tend(self, round: &mut Round<'_>, call: &Call) -> Result<Answer, Stop> {
        let (time, was_sealing) = confirmed(round, call, |round| {
            let was_sealing = round.guard().sealing(round.now).is_ok();
            round.confirm_clock()?;
            Ok((round.now, was_sealing))
        })?;
        let result = Confirmed { time: shown(time), was_sealing };
        Ok(Answer::new(&result, Contents::new(&round.sequencer.overlay))?)
    }
}

/// Arguments of `home_confirm`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HomeConfirm {}

/// What was confirmed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HomeConfirmed {
    /// Whether the home was a copy that had not been confirmed.
    was_restored: bool,
    /// Whether the host seals since.
    sealing: bool,
}

impl Tends for HomeConfirm {
    type Result = HomeConfirmed;

    fn tend(self, round: &mut Round<'_>, call: &Call) -> Result<Answer, Stop> {
        let (was_restored, sealing) = confirmed(round, call, |round| {
            let was_restored = round.guard().restored;
            round.confirm_home()?;
            Ok((was_restored, round.guard().sealing(round.now).is_ok()))
        })?;
        let result = HomeConfirmed { was_restored, sealing };
        Ok(Answer::new(&result, Contents::new(&round.sequencer.overlay))?)
    }
}

/// Arguments of `backup`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// The directory to make, on the machine of the host.
    path: FilePath,
}

/// What a backup holds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BackupShown {
    /// Facts, of all objects.
    pub facts: u64,
    /// Contents.
    pub contents: u64,
    /// Contents that are damaged or missing here, and so in the backup.
    pub contents_unreadable: u64,
}

impl UsesFile for Backup {
    type Result = BackupShown;

    fn job(self, _: &View<'_>) -> Result<FileJob, Stop> {
        Ok(FileJob { path: self.path, work: FileWork::Backup })
    }
}
