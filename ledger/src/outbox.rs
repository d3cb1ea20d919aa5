//! Actions without an outcome: those of this host's agents until their sequencer has decided them, and those of others that
//! this host passes on. Nothing in it is a fact, and nothing pending grants a right (design: offline is normal).

use alloc::string::String;
use alloc::vec::Vec;

use kwoon_keys::id::{AgentId, RequestId};
use kwoon_keys::{Digest, PublicKey, cbor};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::action::{Action, ObjectId};
use crate::derive::read_action;
use crate::fact::Evidence;
use crate::index::{self, List, PassedOn, Short};
use crate::state::more;
use crate::storage::{Order, Overlay, Read, ReadError, Table};

const NEXT_ORDER: &[u8] = b"next_outbox";

/// An action on its way to its sequencer, with what the decision needs beside it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Carried {
    /// The log it acts on.
    #[n(0)]
    pub object: ObjectId,
    /// The signed action.
    #[n(1)]
    pub signed: ByteVec,
    /// What the decision may take from other logs.
    #[n(2)]
    pub evidence: Vec<Evidence>,
    /// The actor's identity records that the log may lack.
    #[n(3)]
    pub records: Vec<ByteVec>,
    /// Signed outcomes of actions that it names and that left no fact, for a sequencer that did not decide them itself.
    #[n(4)]
    pub outcomes: Vec<ByteVec>,
}

impl Carried {
    /// The action, not verified.
    ///
    /// # Errors
    /// If it does not decode.
    pub fn action(&self) -> Result<Action, ReadError> {
        read_action(&self.signed).map_err(|_| ReadError::damaged("an action in the outbox"))
    }
}

/// How far an action in the outbox is.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Progress {
    /// It has no outcome.
    #[n(0)]
    Pending,
    /// Refused, by this signed outcome.
    #[n(1)]
    Refused(#[n(0)] ByteVec),
    /// Its sequencer's log is past its expiry and does not hold it: it can never take effect.
    #[n(2)]
    Expired,
}

/// A row of the outbox.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Outgoing {
    /// What is sent.
    #[n(0)]
    pub carried: Carried,
    /// How far it is.
    #[n(1)]
    pub progress: Progress,
    /// Whether the actor is an agent of this host; else it is passed on for another.
    #[n(2)]
    pub own: bool,
    /// The order in which it came here.
    #[n(3)]
    pub order: u64,
    /// Hosts where its log may be found, where that is not known from the log: of a join, as its ticket says.
    #[n(4)]
    pub hosts: Vec<PublicKey>,
    /// The operation that made it, and the idempotency key, of an own one.
    #[n(5)]
    pub called: Option<(String, String)>,
    /// The host that brought it, of one that is passed on.
    #[n(6)]
    pub brought_by: Option<PublicKey>,
}

impl Outgoing {
    /// An action that is passed on for an agent of another host, which this host brought.
    pub fn passed_on(carried: Carried, by: PublicKey) -> Self {
        let (progress, hosts, brought_by) = (Progress::Pending, Vec::new(), Some(by));
        Self { carried, progress, own: false, order: 0, hosts, called: None, brought_by }
    }

    /// Bytes that are kept for it: the row, and the contents that it commits to.
    pub fn weight(&self, action: &Action) -> u64 {
        let mut bytes = cbor::write(self).len() as u64;
        action.body.contents(|commitment| bytes = bytes.saturating_add(commitment.length_bytes));
        bytes
    }

    /// Whether it has no outcome yet.
    pub fn is_pending(&self) -> bool {
        self.progress == Progress::Pending
    }
}

fn object_key(object: &ObjectId) -> Vec<u8> {
    cbor::write(object)
}

/// The key of an action: object, then request.
pub fn key(object: &ObjectId, request: &RequestId) -> Vec<u8> {
    let mut key = object_key(object);
    key.extend_from_slice(request.as_bytes());
    key
}

fn decode(bytes: &[u8]) -> Result<Outgoing, ReadError> {
    cbor::read_own(bytes).map_err(|_| ReadError::damaged("a row of the outbox"))
}

/// Adds an action, or changes how far it is. A new attempt of a request takes the place of the one before.
///
/// # Errors
/// If the store cannot be read.
pub fn put(overlay: &mut Overlay<'_>, action: &Action, mut row: Outgoing) -> Result<(), ReadError> {
    let key = key(&row.carried.object, &action.request());
    row.order = match overlay.get(Table::Outbox, &key)? {
        Some(before) => {
            let before = decode(&before)?;
            let action = before.carried.action()?;
            count(overlay, &before, &action, false)?;
            before.order
        }
        None => {
            let next = next_order(overlay)?;
            overlay.put(Table::Meta, NEXT_ORDER.to_vec(), more(next)?.to_be_bytes().to_vec());
            next
        }
    };
    overlay.put(Table::Outbox, key.clone(), cbor::write(&row));
    set_derived(overlay, action, &row, &key)
}

/// Counts a row that is passed on, as it comes and as it goes.
fn count(overlay: &mut Overlay<'_>, row: &Outgoing, action: &Action, comes: bool) -> Result<(), ReadError> {
    if row.own {
        return Ok(());
    }
    let bytes = row.weight(action);
    PassedOn::On(&row.carried.object).count(overlay, bytes, comes)?;
    row.brought_by.iter().try_for_each(|host| PassedOn::By(host).count(overlay, bytes, comes))
}

/// Makes a row findable: by its request, by its order, and in its agent's list; and counts it.
pub(crate) fn set_derived(
    overlay: &mut Overlay<'_>,
    action: &Action,
    row: &Outgoing,
    key: &[u8],
) -> Result<(), ReadError> {
    let request = action.request();
    index::set_outgoing(overlay, &request, row.order, key);
    if let (true, Some(agent)) = (row.own, action.agent()) {
        let place = (List::Outbox, &index::owner(&agent), &request.0.short());
        index::list_put(overlay, place, row.order, 0, &request);
    }
    count(overlay, row, action, true)
}

/// Removes an action that has its outcome.
///
/// # Errors
/// If the store cannot be read.
pub fn remove(overlay: &mut Overlay<'_>, object: &ObjectId, request: &RequestId) -> Result<(), ReadError> {
    let key = key(object, request);
    let Some(row) = overlay.get(Table::Outbox, &key)? else { return Ok(()) };
    let row = decode(&row)?;
    let action = row.carried.action()?;
    count(overlay, &row, &action, false)?;
    overlay.remove(Table::Outbox, key);
    index::clear_outgoing(overlay, request, row.order);
    if let Some(agent) = action.agent() {
        index::list_remove(overlay, List::Outbox, &index::owner(&agent), &request.0.short())?;
    }
    Ok(())
}

/// One action.
///
/// # Errors
/// If the store cannot be read.
pub fn get(read: &dyn Read, object: &ObjectId, request: &RequestId) -> Result<Option<Outgoing>, ReadError> {
    read.get(Table::Outbox, &key(object, request))?.map(|row| decode(&row)).transpose()
}

/// An action by its request alone.
///
/// # Errors
/// If the store cannot be read.
pub fn find(read: &dyn Read, request: &RequestId) -> Result<Option<Outgoing>, ReadError> {
    let Some(key) = index::outgoing(read, request)? else { return Ok(None) };
    read.get(Table::Outbox, &key)?.map(|row| decode(&row)).transpose()
}

/// The full id of a request in the outbox, by its outside form.
///
/// # Errors
/// If the store cannot be read.
pub fn request_by_short(read: &dyn Read, short: &Short) -> Result<Option<RequestId>, ReadError> {
    let id = index::outgoing_by_short(read, short)?;
    Ok(id.map(|bytes| RequestId(Digest(bytes))))
}

/// The actions on one object, at most `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn of_object(read: &dyn Read, object: &ObjectId, limit: usize) -> Result<Vec<Outgoing>, ReadError> {
    let rows = read.prefix(Table::Outbox, &object_key(object), Order::Rising, limit)?;
    rows.iter().map(|(_, row)| decode(row)).collect()
}

/// The actions that came here from a place in their order on, at most `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn since(read: &dyn Read, order: u64, limit: usize) -> Result<Vec<Outgoing>, ReadError> {
    let mut rows = Vec::new();
    for key in index::outgoing_since(read, order, limit)? {
        let row = read.get(Table::Outbox, &key)?;
        rows.push(decode(&row.ok_or_else(|| ReadError::damaged("a row of the outbox is missing"))?)?);
    }
    Ok(rows)
}

/// The place in the order that the next action gets.
///
/// # Errors
/// If the store cannot be read.
pub fn next_order(read: &dyn Read) -> Result<u64, ReadError> {
    read.get(Table::Meta, NEXT_ORDER)?.map_or(Ok(0), |bytes| crate::state::number_at_end(&bytes))
}

/// The own actions of an agent, counted up to `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn count_of(read: &dyn Read, agent: &AgentId, limit: usize) -> Result<usize, ReadError> {
    index::list_count(read, List::Outbox, &index::owner(agent), limit)
}

/// The own actions of an agent in the order in which they came to the outbox, at most `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn of_agent(read: &dyn Read, agent: &AgentId, limit: usize) -> Result<Vec<Outgoing>, ReadError> {
    let (owner, all) = (index::owner(agent), u64::MAX);
    let (requests, _) = index::list_page::<RequestId>(read, List::Outbox, &owner, None, limit, all)?;
    let mut rows = Vec::with_capacity(requests.len());
    for request in requests {
        rows.extend(find(read, &request)?);
    }
    Ok(rows)
}
