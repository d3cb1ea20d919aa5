//! Indexes over all logs of a host: where an id lives, what a request became, what is due next, and the lists (turn,
//! opportunities, threads, memories) in an order that a walk can leave and come back to.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kwoon_keys::id::{AgentId, AssignmentId, MemoryId, ReceiptId, RequestId, ThreadId};
use kwoon_keys::{PublicKey, cbor};
use minicbor::{Decode, Encode};

use crate::action::ObjectId;
use crate::effect::Obligation;
use crate::state::{ObjectNumber, number_at_end};
use crate::storage::{Order, Overlay, Read, ReadError, Table};
use crate::time::Time;

/// The first bytes of index keys in the derived table.
const ID: u8 = 0x02;
const REQUEST: u8 = 0x03;
const RECEIPT: u8 = 0x04;
const DUE: u8 = 0x05;
const PUBLIC: u8 = 0x06;
const HOSTED: u8 = 0x08;
const OUTGOING: u8 = 0x09;
const OUTGOING_BY_ORDER: u8 = 0x0a;
const PINNED: u8 = 0x0b;
const PASSED_ON: u8 = 0x0c;
const LIST: u8 = 0x10;
const LIST_BY_ARRIVAL: u8 = 0x20;
const LIST_BY_HANDLE: u8 = 0x30;

/// The first 128 bits of an id, as they are shown outside.
pub type Short = [u8; 16];

/// What an outside id can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum IdKind {
    /// An agent.
    Agent = 0,
    /// A memory.
    Memory = 1,
    /// A publication.
    Publication = 2,
    /// A thread.
    Thread = 3,
    /// An assignment.
    Assignment = 4,
}

/// Where an id lives.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Place {
    /// It names a log.
    #[n(0)]
    Log(#[n(0)] ObjectNumber),
    /// A memory that an entry brought forth and that has no log yet: the thread and the entry's number.
    #[n(1)]
    Born(#[n(0)] ObjectNumber, #[n(1)] u64, #[n(2)] MemoryId),
    /// An assignment: the thread and the number of the carrying entry.
    #[n(2)]
    Assignment(#[n(0)] ObjectNumber, #[n(1)] u64, #[n(2)] AssignmentId),
    /// A memory that an entry brought forth whose thread this host may no longer hold: it exists by the outcome of this
    /// request, which is kept.
    #[n(3)]
    Kept(#[n(0)] MemoryId, #[n(1)] RequestId),
}

fn id_key(kind: IdKind, short: &Short) -> Vec<u8> {
    let mut key = alloc::vec![ID, kind as u8];
    key.extend_from_slice(short);
    key
}

/// Where an id of a kind lives, by its outside form.
///
/// # Errors
/// If the store cannot be read.
pub fn find(read: &dyn Read, kind: IdKind, short: &Short) -> Result<Option<Place>, ReadError> {
    load(read, &id_key(kind, short))
}

/// Where all ids of a kind live.
///
/// # Errors
/// If the store cannot be read.
pub fn places(read: &dyn Read, kind: IdKind) -> Result<Vec<Place>, ReadError> {
    let rows = read.prefix(Table::Derived, &[ID, kind as u8], Order::Rising, usize::MAX)?;
    rows.iter().map(|(_, place)| cbor::read_own(place).map_err(|_| ReadError::damaged("an index row"))).collect()
}

/// The number of an object's log on this host.
///
/// # Errors
/// If the store cannot be read.
pub fn number(read: &dyn Read, object: &ObjectId) -> Result<Option<ObjectNumber>, ReadError> {
    let kind = match object {
        ObjectId::Identity(_) => IdKind::Agent,
        ObjectId::Memory(_) => IdKind::Memory,
        ObjectId::Publication(_) => IdKind::Publication,
        ObjectId::Thread(_) => IdKind::Thread,
        ObjectId::Task(_) | ObjectId::Engagement(_) => return Ok(None),
    };
    Ok(match find(read, kind, &object.digest().short())? {
        Some(Place::Log(number)) => Some(number),
        _ => None,
    })
}

/// Notes under which number an object's log is found.
pub(crate) fn set_log(overlay: &mut Overlay<'_>, object: &ObjectId, number: ObjectNumber) {
    let kind = match object {
        ObjectId::Identity(_) => IdKind::Agent,
        ObjectId::Memory(_) => IdKind::Memory,
        ObjectId::Publication(_) => IdKind::Publication,
        ObjectId::Thread(_) => IdKind::Thread,
        ObjectId::Task(_) | ObjectId::Engagement(_) => return,
    };
    set_place(overlay, kind, &object.digest().short(), &Place::Log(number));
}

pub(crate) fn set_place(overlay: &mut Overlay<'_>, kind: IdKind, short: &Short, place: &Place) {
    overlay.put(Table::Derived, id_key(kind, short), cbor::write(place));
}

pub(crate) fn clear_place(overlay: &mut Overlay<'_>, kind: IdKind, short: &Short) {
    overlay.remove(Table::Derived, id_key(kind, short));
}

fn load<T: for<'b> Decode<'b, ()>>(read: &dyn Read, key: &[u8]) -> Result<Option<T>, ReadError> {
    match read.get(Table::Derived, key)? {
        Some(bytes) => cbor::read_own(&bytes).map(Some).map_err(|_| ReadError::damaged("an index row")),
        None => Ok(None),
    }
}

fn key(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = alloc::vec![first];
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// The fact that a request became: log and index. A request that became facts in several logs (one key used on two hosts
/// that had not met) gives the log that came here first.
///
/// # Errors
/// If the store cannot be read.
pub fn request(read: &dyn Read, id: &RequestId) -> Result<Option<(ObjectNumber, u64)>, ReadError> {
    let prefix = key(REQUEST, &[id.as_bytes()]);
    let rows = read.prefix(Table::Derived, &prefix, Order::Rising, 1)?;
    let Some((key, value)) = rows.first() else { return Ok(None) };
    let number = key[prefix.len()..].try_into().map_err(|_| ReadError::damaged("an index row"))?;
    let index = cbor::read_own(value).map_err(|_| ReadError::damaged("an index row"))?;
    Ok(Some((ObjectNumber::from_be_bytes(number), index)))
}

/// The full id of a request that became a fact here, by its outside form.
///
/// # Errors
/// If the store cannot be read.
pub fn request_by_short(read: &dyn Read, short: &Short) -> Result<Option<RequestId>, ReadError> {
    let rows = read.prefix(Table::Derived, &key(REQUEST, &[short]), Order::Rising, 1)?;
    let id = rows.first().and_then(|(key, _)| key.get(1..33)).and_then(|bytes| bytes.try_into().ok());
    Ok(id.map(|bytes| RequestId(kwoon_keys::Digest(bytes))))
}

/// Whether a request became a fact of this log. It does so at most once (L3.1).
///
/// # Errors
/// If the store cannot be read.
pub fn is_sealed_in(read: &dyn Read, id: &RequestId, number: ObjectNumber) -> Result<bool, ReadError> {
    let key = key(REQUEST, &[id.as_bytes(), &number.to_be_bytes()]);
    Ok(read.get(Table::Derived, &key)?.is_some())
}

/// The id of a request's receipt.
pub fn receipt_id(id: &RequestId) -> ReceiptId {
    ReceiptId::of(&[id.as_bytes()])
}

/// The request of a receipt, by the receipt's outside form.
///
/// # Errors
/// If the store cannot be read.
pub fn receipt(read: &dyn Read, short: &Short) -> Result<Option<RequestId>, ReadError> {
    load(read, &key(RECEIPT, &[short]))
}

pub(crate) fn set_request(overlay: &mut Overlay<'_>, id: &RequestId, number: ObjectNumber, index: u64) {
    let row = key(REQUEST, &[id.as_bytes(), &number.to_be_bytes()]);
    overlay.put(Table::Derived, row, cbor::write(&index));
    set_receipt(overlay, id);
}

pub(crate) fn clear_request(overlay: &mut Overlay<'_>, id: &RequestId, number: ObjectNumber) {
    overlay.remove(Table::Derived, key(REQUEST, &[id.as_bytes(), &number.to_be_bytes()]));
}

/// Lets nobody find a receipt any more, unless the request became a fact elsewhere too.
pub(crate) fn clear_receipt(overlay: &mut Overlay<'_>, id: &RequestId) -> Result<(), ReadError> {
    let is_told = |table| Ok::<_, ReadError>(overlay.get(table, id.as_bytes())?.is_some());
    if request(overlay, id)?.is_none() && !is_told(Table::Kept)? && !is_told(Table::Outcomes)? {
        overlay.remove(Table::Derived, key(RECEIPT, &[&receipt_id(id).0.short()]));
    }
    Ok(())
}

/// Makes a receipt findable. Called for facts here, and by the keeper of outcomes that are no facts.
pub fn set_receipt(overlay: &mut Overlay<'_>, id: &RequestId) {
    overlay.put(Table::Derived, key(RECEIPT, &[&receipt_id(id).0.short()]), cbor::write(id));
}

/// The first deadline of all logs of a sequencer but those left out: when, and in which.
///
/// # Errors
/// If the store cannot be read.
pub fn next_due(
    read: &dyn Read,
    sequencer: &PublicKey,
    left_out: &BTreeSet<ObjectNumber>,
) -> Result<Option<(Time, ObjectNumber)>, ReadError> {
    let damaged = || ReadError::damaged("a deadline");
    let mut from = key(DUE, &[&short(sequencer)]);
    let (prefix, end) = (from.len(), crate::storage::after_prefix(&from));
    loop {
        // One row is enough but where logs are left out.
        let limit = if left_out.is_empty() { 1 } else { 64 };
        let rows = read.range(Table::Derived, &from, &end, Order::Rising, limit)?;
        let Some((last, _)) = rows.last() else { return Ok(None) };
        from.clone_from(last);
        from.push(0);
        for (key, _) in rows {
            let key = &key[prefix..];
            let time = key.get(..8).ok_or_else(damaged)?;
            let number = key.get(8..12).and_then(|bytes| bytes.try_into().ok()).ok_or_else(damaged)?;
            let number = ObjectNumber::from_be_bytes(number);
            if !left_out.contains(&number) {
                return Ok(Some((Time(number_at_end(time)?), number)));
            }
        }
    }
}

/// The deadlines of a sequencer's logs up to a time: when, in which log, at which entry. At most `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn due_until(
    read: &dyn Read,
    sequencer: &PublicKey,
    time: Time,
    limit: usize,
) -> Result<Vec<(Time, ObjectNumber, u64)>, ReadError> {
    let damaged = || ReadError::damaged("a deadline");
    let prefix = key(DUE, &[&short(sequencer)]);
    let end = key(DUE, &[&short(sequencer), &time.0.saturating_add(1).to_be_bytes()]);
    let rows = read.range(Table::Derived, &prefix, &end, Order::Rising, limit)?;
    rows.into_iter()
        .map(|(key, _)| {
            let key = &key[prefix.len()..];
            let number = key.get(8..12).and_then(|bytes| bytes.try_into().ok()).ok_or_else(damaged)?;
            let due = number_at_end(key.get(..8).ok_or_else(damaged)?)?;
            Ok((Time(due), ObjectNumber::from_be_bytes(number), number_at_end(key)?))
        })
        .collect()
}

/// The first 128 bits of a host's id.
fn short(host: &PublicKey) -> Short {
    kwoon_keys::Digest(host.0).short()
}

/// A deadline of a log: its sequencer, when, the log, the entry.
pub(crate) type DueRow<'a> = (&'a PublicKey, Time, ObjectNumber, u64);

fn due_key((sequencer, time, number, entry): DueRow<'_>) -> Vec<u8> {
    key(DUE, &[&short(sequencer), &time.0.to_be_bytes(), &number.to_be_bytes(), &entry.to_be_bytes()])
}

pub(crate) fn set_due(overlay: &mut Overlay<'_>, row: DueRow<'_>) {
    overlay.put(Table::Derived, due_key(row), Vec::new());
}

pub(crate) fn clear_due(overlay: &mut Overlay<'_>, row: DueRow<'_>) {
    overlay.remove(Table::Derived, due_key(row));
}

pub(crate) fn set_hosted(overlay: &mut Overlay<'_>, host: &PublicKey, number: ObjectNumber, hosted: bool) {
    let key = key(HOSTED, &[&short(host), &number.to_be_bytes()]);
    if hosted {
        overlay.put(Table::Derived, key, Vec::new());
    } else {
        overlay.remove(Table::Derived, key);
    }
}

/// The objects that agents on a host may read, by this host's numbers from one on, at most `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn hosted(
    read: &dyn Read,
    host: &PublicKey,
    from: ObjectNumber,
    limit: usize,
) -> Result<Vec<ObjectNumber>, ReadError> {
    let prefix = key(HOSTED, &[&short(host)]);
    let first = key(HOSTED, &[&short(host), &from.to_be_bytes()]);
    let rows = read.range(Table::Derived, &first, &crate::storage::after_prefix(&prefix), Order::Rising, limit)?;
    let number = |key: &[u8]| key[prefix.len()..].try_into().map(ObjectNumber::from_be_bytes);
    let numbers = rows.iter().map(|(key, _)| number(key)).collect::<Result<_, _>>();
    numbers.map_err(|_| ReadError::damaged("an index row"))
}

pub(crate) fn set_public(overlay: &mut Overlay<'_>, memory: &MemoryId, public: bool) {
    let key = key(PUBLIC, &[&memory.0.short()]);
    if public {
        overlay.put(Table::Derived, key, cbor::write(memory));
    } else {
        overlay.remove(Table::Derived, key);
    }
}

/// A memory that is public as far as this host knows, by its outside id.
///
/// # Errors
/// If the store cannot be read.
pub fn public_memory(read: &dyn Read, short: &Short) -> Result<Option<MemoryId>, ReadError> {
    load(read, &key(PUBLIC, &[short]))
}

/// Public memories known here, at most `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn public_memories(read: &dyn Read, limit: usize) -> Result<Vec<MemoryId>, ReadError> {
    let rows = read.prefix(Table::Derived, &[PUBLIC], Order::Rising, limit)?;
    rows.iter().map(|(_, value)| cbor::read_own(value).map_err(|_| ReadError::damaged("an index row"))).collect()
}

pub(crate) fn set_outgoing(overlay: &mut Overlay<'_>, request: &RequestId, order: u64, row: &[u8]) {
    overlay.put(Table::Derived, key(OUTGOING, &[request.as_bytes()]), row.to_vec());
    overlay.put(Table::Derived, key(OUTGOING_BY_ORDER, &[&order.to_be_bytes()]), row.to_vec());
}

pub(crate) fn clear_outgoing(overlay: &mut Overlay<'_>, request: &RequestId, order: u64) {
    overlay.remove(Table::Derived, key(OUTGOING, &[request.as_bytes()]));
    overlay.remove(Table::Derived, key(OUTGOING_BY_ORDER, &[&order.to_be_bytes()]));
}

/// The key in the outbox of a request that waits there.
pub(crate) fn outgoing(read: &dyn Read, request: &RequestId) -> Result<Option<Vec<u8>>, ReadError> {
    read.get(Table::Derived, &key(OUTGOING, &[request.as_bytes()]))
}

/// The full id of a request that waits in the outbox, by its outside form.
pub(crate) fn outgoing_by_short(read: &dyn Read, short: &Short) -> Result<Option<[u8; 32]>, ReadError> {
    let rows = read.prefix(Table::Derived, &key(OUTGOING, &[short]), Order::Rising, 1)?;
    Ok(rows.first().and_then(|(key, _)| key.get(1..33)).and_then(|bytes| bytes.try_into().ok()))
}

/// The keys in the outbox of what came there from a place in the order on.
pub(crate) fn outgoing_since(read: &dyn Read, order: u64, limit: usize) -> Result<Vec<Vec<u8>>, ReadError> {
    let from = key(OUTGOING_BY_ORDER, &[&order.to_be_bytes()]);
    let rows = read.range(Table::Derived, &from, &[OUTGOING_BY_ORDER + 1], Order::Rising, limit)?;
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

/// How much is passed on for agents of other hosts: of which log, or brought by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassedOn<'a> {
    /// Actions on an object.
    On(&'a ObjectId),
    /// Actions that a host brought.
    By(&'a PublicKey),
}

impl PassedOn<'_> {
    fn key(self) -> Vec<u8> {
        match self {
            Self::On(object) => key(PASSED_ON, &[&[0], &cbor::write(object)]),
            Self::By(host) => key(PASSED_ON, &[&[1], &host.0]),
        }
    }

    /// How many actions that are, and how many bytes with the contents that they commit to.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn amount(self, read: &dyn Read) -> Result<(u64, u64), ReadError> {
        let row = read.get(Table::Derived, &self.key())?;
        let row = row.map(|row| cbor::read_own(&row).map_err(|_| ReadError::damaged("how much is passed on")));
        row.transpose().map(Option::unwrap_or_default)
    }

    /// Counts one action more, or one less.
    pub(crate) fn count(self, overlay: &mut Overlay<'_>, bytes: u64, comes: bool) -> Result<(), ReadError> {
        let (actions, all) = self.amount(overlay)?;
        let amount = if comes {
            (actions.saturating_add(1), all.saturating_add(bytes))
        } else {
            (actions.saturating_sub(1), all.saturating_sub(bytes))
        };
        if amount.0 > 0 {
            overlay.put(Table::Derived, self.key(), cbor::write(&amount));
        } else {
            overlay.remove(Table::Derived, self.key());
        }
        Ok(())
    }
}

pub(crate) fn set_pinned(overlay: &mut Overlay<'_>, memory: &MemoryId, number: ObjectNumber) {
    overlay.put(Table::Derived, key(PINNED, &[&memory.0.short(), &number.to_be_bytes()]), Vec::new());
}

pub(crate) fn clear_pinned(overlay: &mut Overlay<'_>, memory: &MemoryId, number: ObjectNumber) {
    overlay.remove(Table::Derived, key(PINNED, &[&memory.0.short(), &number.to_be_bytes()]));
}

/// The logs that refer to a memory which existed before, from a number on, at most `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn pinned_in(
    read: &dyn Read,
    memory: &MemoryId,
    from: ObjectNumber,
    limit: usize,
) -> Result<Vec<ObjectNumber>, ReadError> {
    let prefix = key(PINNED, &[&memory.0.short()]);
    let first = key(PINNED, &[&memory.0.short(), &from.to_be_bytes()]);
    let rows = read.range(Table::Derived, &first, &crate::storage::after_prefix(&prefix), Order::Rising, limit)?;
    let number = |key: &[u8]| key[prefix.len()..].try_into().map(ObjectNumber::from_be_bytes);
    let numbers = rows.iter().map(|(key, _)| number(key)).collect::<Result<_, _>>();
    numbers.map_err(|_| ReadError::damaged("an index row"))
}

/// A list that an agent can walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum List {
    /// Unended obligations: [`TurnRow`].
    Turn = 0,
    /// Assignments offered: [`OfferRow`].
    Opportunities = 1,
    /// Threads of which the agent is a member: [`ObjectNumber`].
    Threads = 2,
    /// Memories of the agent that were not withdrawn (M5): [`MemoryId`].
    Memories = 3,
    /// Agents of an owner, by the owner's key: [`AgentId`].
    Agents = 4,
    /// Those of [`List::Threads`] that are open.
    OpenThreads = 5,
    /// Actions without an outcome, and those refused elsewhere: [`RequestId`].
    Outbox = 6,
}

/// An obligation in the turn of its bearer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct TurnRow {
    /// The thread's number.
    #[n(0)]
    pub number: ObjectNumber,
    /// The thread.
    #[n(1)]
    pub thread: ThreadId,
    /// The obligation.
    #[n(2)]
    pub obligation: Obligation,
}

/// An opportunity of an assignee.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OfferRow {
    /// The thread's number.
    #[n(0)]
    pub number: ObjectNumber,
    /// The thread.
    #[n(1)]
    pub thread: ThreadId,
    /// The carrying entry.
    #[n(2)]
    pub entry: u64,
    /// The assignment.
    #[n(3)]
    pub assignment: AssignmentId,
}

/// Where a walk is. Positions are by origin and arrival; what arrives while the walk is under way is left for its last
/// pages, in the order of arrival, so that nothing is left out and nothing comes twice (O4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Cursor {
    /// The arrival number at which the walk began.
    #[n(0)]
    pub began: u64,
    /// Whether the walk has come to what arrived since.
    #[n(1)]
    pub late: bool,
    /// The last key given, without list and owner.
    #[n(2)]
    pub last: (u64, u64, Handle),
}

/// 128 bits that name a row of a list: an id in its outside form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub Short);

impl<C> Encode<C> for Handle {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Handle {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        let bytes = d.bytes()?.try_into().map_err(|_| minicbor::decode::Error::message("not 16 bytes"))?;
        Ok(Self(bytes))
    }
}

/// The owner of a list.
pub fn owner(agent: &AgentId) -> Short {
    agent.0.short()
}

fn list_key(first: u8, list: List, owner: &Short, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = alloc::vec![first | list as u8];
    key.extend_from_slice(owner);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// Adds a row that sorts by `sort`, then by arrival.
pub(crate) fn list_put<T: Encode<()>>(
    overlay: &mut Overlay<'_>,
    (list, owner, handle): (List, &Short, &Short),
    sort: u64,
    arrival: u64,
    value: &T,
) {
    let (sort_key, arrival_key) = (sort.to_be_bytes(), arrival.to_be_bytes());
    let row = list_key(LIST, list, owner, &[&sort_key, &arrival_key, handle]);
    overlay.put(Table::Derived, row, cbor::write(value));
    let by_arrival = list_key(LIST_BY_ARRIVAL, list, owner, &[&arrival_key, handle]);
    overlay.put(Table::Derived, by_arrival, cbor::write(&sort));
    let by_handle = list_key(LIST_BY_HANDLE, list, owner, &[handle]);
    overlay.put(Table::Derived, by_handle, cbor::write(&(sort, arrival)));
}

/// Removes a row, if it is there.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn list_remove(
    overlay: &mut Overlay<'_>,
    list: List,
    owner: &Short,
    handle: &Short,
) -> Result<(), ReadError> {
    let by_handle = list_key(LIST_BY_HANDLE, list, owner, &[handle]);
    let Some((sort, arrival)) = load::<(u64, u64)>(overlay, &by_handle)? else { return Ok(()) };
    let (sort, arrival) = (sort.to_be_bytes(), arrival.to_be_bytes());
    overlay.remove(Table::Derived, by_handle);
    overlay.remove(Table::Derived, list_key(LIST_BY_ARRIVAL, list, owner, &[&arrival, handle]));
    overlay.remove(Table::Derived, list_key(LIST, list, owner, &[&sort, &arrival, handle]));
    Ok(())
}

/// Whether a list has a row.
///
/// # Errors
/// If the store cannot be read.
pub fn list_has(read: &dyn Read, list: List, owner: &Short, handle: &Short) -> Result<bool, ReadError> {
    Ok(read.get(Table::Derived, &list_key(LIST_BY_HANDLE, list, owner, &[handle]))?.is_some())
}

/// The last rows of a list, latest first, at most `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn list_latest<T: for<'b> Decode<'b, ()>>(
    read: &dyn Read,
    list: List,
    owner: &Short,
    limit: usize,
) -> Result<Vec<T>, ReadError> {
    let rows = read.prefix(Table::Derived, &list_key(LIST, list, owner, &[]), Order::Falling, limit)?;
    rows.iter().map(|(_, value)| cbor::read_own(value).map_err(|_| ReadError::damaged("a row of a list"))).collect()
}

/// How many rows a list has, counted up to `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn list_count(read: &dyn Read, list: List, owner: &Short, limit: usize) -> Result<usize, ReadError> {
    Ok(read.prefix(Table::Derived, &list_key(LIST_BY_HANDLE, list, owner, &[]), Order::Rising, limit)?.len())
}

/// One page of a list, and where the next begins if there is one. `arrivals` is the next arrival number in this state.
///
/// # Errors
/// If the store cannot be read.
pub fn list_page<T: for<'b> Decode<'b, ()>>(
    read: &dyn Read,
    list: List,
    owner: &Short,
    cursor: Option<Cursor>,
    limit: usize,
    arrivals: u64,
) -> Result<(Vec<T>, Option<Cursor>), ReadError> {
    let mut cursor = cursor.unwrap_or(Cursor { began: arrivals, late: false, last: (0, 0, Handle::default()) });
    let mut page = Vec::new();
    let damaged = |_| ReadError::damaged("a row of a list");
    let number = |bytes: &[u8]| number_at_end(bytes);
    // One more than asked for tells whether there is another page.
    while page.len() <= limit && !cursor.late {
        let (sort, arrival, handle) = cursor.last;
        let from = list_key(LIST, list, owner, &[&sort.to_be_bytes(), &arrival.to_be_bytes(), &handle.0, &[0]]);
        let end = crate::storage::after_prefix(&list_key(LIST, list, owner, &[]));
        let rows = read.range(Table::Derived, &from, &end, Order::Rising, limit + 1 - page.len())?;
        if rows.is_empty() {
            cursor.late = true;
            cursor.last = (0, cursor.began, Handle::default());
        }
        for (key, value) in rows {
            let rest = key.get(17..).filter(|rest| rest.len() == 32).ok_or_else(|| ReadError::damaged("a list key"))?;
            let handle = Handle(rest[16..].try_into().map_err(|_| ReadError::damaged("a list key"))?);
            let (sort, arrival) = (number(&rest[..8])?, number(&rest[8..16])?);
            cursor.last = (sort, arrival, handle);
            if arrival < cursor.began {
                page.push((cursor, cbor::read_own(&value).map_err(damaged)?));
            }
        }
    }
    while page.len() <= limit {
        let (_, arrival, handle) = cursor.last;
        let from = list_key(LIST_BY_ARRIVAL, list, owner, &[&arrival.to_be_bytes(), &handle.0, &[0]]);
        let end = crate::storage::after_prefix(&list_key(LIST_BY_ARRIVAL, list, owner, &[]));
        let rows = read.range(Table::Derived, &from, &end, Order::Rising, limit + 1 - page.len())?;
        if rows.is_empty() {
            break;
        }
        for (key, sort) in rows {
            let rest = key.get(17..).filter(|rest| rest.len() == 24).ok_or_else(|| ReadError::damaged("a list key"))?;
            let handle = Handle(rest[8..].try_into().map_err(|_| ReadError::damaged("a list key"))?);
            let arrival = number(&rest[..8])?;
            let sort: u64 = cbor::read_own(&sort).map_err(damaged)?;
            cursor.last = (sort, arrival, handle);
            let row = list_key(LIST, list, owner, &[&sort.to_be_bytes(), &arrival.to_be_bytes(), &handle.0]);
            let value = read.get(Table::Derived, &row)?.ok_or_else(|| ReadError::damaged("a list row is missing"))?;
            page.push((cursor, cbor::read_own(&value).map_err(damaged)?));
        }
    }
    let next = if page.len() > limit {
        page.truncate(limit);
        page.last().map(|(cursor, _)| *cursor)
    } else {
        None
    };
    Ok((page.into_iter().map(|(_, value)| value).collect(), next))
}
