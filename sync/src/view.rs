//! What reads are made from: one consistent state of the store, a reader, and a time. The permission check and what is
//! returned come from the same state (V11).

use std::collections::BTreeSet;

use kwoon_keys::id::{AgentId, BASE32};
use kwoon_keys::{PublicKey, cbor};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::effect::{Account, Duty};
use kwoon_ledger::identity::Status;
use kwoon_ledger::index::{self, Cursor, IdKind, List, Place, Short, TurnRow};
use kwoon_ledger::limits::Limits;
use kwoon_ledger::log;
use kwoon_ledger::refusal::{Code, Refusal, Step, Stop};
use kwoon_ledger::state::{Cells, ObjectNumber};
use kwoon_ledger::storage::{Read, ReadError};
use kwoon_ledger::time::Time;
use minicbor::{Decode, Encode};
use serde_json::{Value, json};

use crate::answer::{Answer, AsOf, Contents, Next};
use crate::keyring::Keyring;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// An agent of this host, for itself.
    Agent(AgentId),
    /// The owner.
    Owner,
}

/// What the keeper of the store knows beside its content.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreFigures {
    /// Bytes of the store file.
    pub file_bytes: u64,
    /// Texts that are held.
    pub texts: u64,
}

/// What the driver of a host knows of what is around it.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// Where other hosts find this one: `IP:PORT`.
    pub addresses: Vec<String>,
    /// The relay by which they find it.
    pub relay: Option<String>,
    /// Hosts that are connected.
    pub connected: BTreeSet<PublicKey>,
}

/// See the module.
pub struct View<'a> {
    /// The state.
    pub read: &'a dyn Read,
    /// The host's keys.
    pub keyring: &'a Keyring,
    /// What the host allows.
    pub limits: &'a Limits,
    /// The wall time.
    pub now: Time,
    /// Whether this host seals at present, or why not.
    pub sealing: Result<(), &'static str>,
    /// Figures of the store.
    pub store: StoreFigures,
    /// What is around this host.
    pub around: &'a Around,
    /// Who calls.
    pub caller: Caller,
    /// As whom it reads, where it is an owner that reads as an agent.
    pub as_agent: Option<AgentId>,
}

impl<'a> View<'a> {
    /// The agent that reads.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] if an owner reads what is an agent's and does not say as whom.
    pub fn reader(&self) -> Result<AgentId, Refusal> {
        match (self.caller, self.as_agent) {
            (Caller::Agent(agent), _) | (Caller::Owner, Some(agent)) => Ok(agent),
            (Caller::Owner, None) => Err(Refusal::argument("as", "the id of an agent of this host")),
        }
    }

    /// Whether an owner reads as an agent. Receipts and handling notes stay the agent's own (V5, V9).
    pub fn is_owner(&self) -> bool {
        self.caller == Caller::Owner
    }

    /// The agent's account, as its identity log here says.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn account(&self, agent: &AgentId) -> Result<Option<Account>, ReadError> {
        account(self.read, agent)
    }

    /// A thread that the reader is a member of.
    ///
    /// # Errors
    /// [`Code::NotFound`] to everyone else.
    pub fn thread(&self, short: &Short) -> Result<(ObjectNumber, kwoon_ledger::state::Member), Stop> {
        let thread = kwoon_ledger::visibility::thread(self.read, &self.reader()?, short)?;
        thread.ok_or_else(|| Code::NotFound.into())
    }

    /// The state of one log that an answer is of.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn as_of(&self, number: ObjectNumber) -> Result<Option<AsOf>, ReadError> {
        let head = Cells::new(self.read, number).head()?;
        Ok(head.map(|head| AsOf {
            object: head.object,
            index: head.index,
            sealed_at: head.log_time,
            digest: head.digest.to_string(),
        }))
    }

    /// What the reader could do next, from its turn: advice, never more (O6).
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn next(&self, agent: &AgentId) -> Result<Vec<Next>, ReadError> {
        next(self.read, agent, self.now)
    }

    /// An answer about one log.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn answer<T: serde::Serialize>(
        &self,
        result: &T,
        contents: Contents<'_>,
        number: Option<ObjectNumber>,
    ) -> Result<Answer, ReadError> {
        let mut answer = Answer::new(result, contents)?;
        if let Some(number) = number {
            answer.as_of = self.as_of(number)?;
        }
        if let Ok(reader) = self.reader() {
            answer.next = self.next(&reader)?;
        } else {
            answer.next = vec![Next::step(Step::Wait)];
        }
        Ok(answer)
    }

    /// One page of a list of the reader's.
    ///
    /// # Errors
    /// If the cursor is not one of this list, or the store cannot be read.
    pub fn page<T: for<'b> Decode<'b, ()>>(
        &self,
        list: List,
        owner: &Short,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<T>, Option<String>), Stop> {
        let name = [list as u8];
        let cursor: Option<Cursor> = cursor.map(|text| read_cursor(&name, owner, text)).transpose()?;
        let arrivals = log::next_arrival(self.read)?;
        let (rows, next) = index::list_page(self.read, list, owner, cursor, limit, arrivals)?;
        Ok((rows, next.map(|cursor| write_cursor(&name, owner, &cursor))))
    }
}

/// An agent's account, as its identity log says.
///
/// # Errors
/// If the store cannot be read.
pub fn account(read: &dyn Read, agent: &AgentId) -> Result<Option<Account>, ReadError> {
    match index::number(read, &ObjectId::Identity(*agent))? {
        Some(number) => Cells::new(read, number).account(agent),
        None => Ok(None),
    }
}

/// Whether an agent is active.
///
/// # Errors
/// If the store cannot be read.
pub fn is_active(read: &dyn Read, agent: &AgentId) -> Result<bool, ReadError> {
    Ok(account(read, agent)?.is_some_and(|account| account.status == Status::Active))
}

/// The full id of an agent whose identity is on this host.
///
/// # Errors
/// If the store cannot be read.
pub fn agent_id(read: &dyn Read, short: &Short) -> Result<Option<(AgentId, ObjectNumber)>, ReadError> {
    let Some(Place::Log(number)) = index::find(read, IdKind::Agent, short)? else { return Ok(None) };
    match log::object(read, number)? {
        Some(ObjectId::Identity(agent)) => Ok(Some((agent, number))),
        _ => Err(ReadError::damaged("an agent's log is another's")),
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct CursorText<T> {
    #[n(0)]
    list: minicbor::bytes::ByteVec,
    #[n(1)]
    owner: minicbor::bytes::ByteArray<16>,
    #[n(2)]
    position: T,
}

/// A cursor as text. It names its list and its owner, so that it is worth nothing elsewhere.
pub fn write_cursor<T: Encode<()>>(list: &[u8], owner: &Short, position: &T) -> String {
    let text = CursorText { list: list.to_vec().into(), owner: (*owner).into(), position };
    BASE32.encode(&cbor::write(&text))
}

/// Reads a cursor of this list and this owner.
///
/// # Errors
/// [`Code::InvalidArgument`] for anything else.
pub fn read_cursor<T: for<'b> Decode<'b, ()> + Encode<()>>(
    list: &[u8],
    owner: &Short,
    text: &str,
) -> Result<T, Refusal> {
    let wrong = || Refusal::argument("cursor", "the cursor of an earlier page of this very list");
    if text.len() > 1024 {
        return Err(wrong());
    }
    let bytes = BASE32.decode(text.as_bytes()).map_err(|_| wrong())?;
    let cursor: CursorText<T> = cbor::read_strict(&bytes).map_err(|_| wrong())?;
    if cursor.list.as_slice() == list && *cursor.owner == *owner { Ok(cursor.position) } else { Err(wrong()) }
}

/// The step of an obligation, and the operation to begin it with: nothing is delivered or judged unread.
pub fn step_of(row: &TurnRow, now: Time) -> Next {
    let obligation = &row.obligation;
    if obligation.due_at.is_some_and(|due| due <= now) {
        return Next::step(Step::Wait);
    }
    let (step, operation, arguments): (Step, &'static str, Value) = match obligation.duty {
        Duty::Respond => {
            (Step::Respond, "entry_post", json!({"thread": row.thread.to_string(), "reply_to": obligation.entry}))
        }
        Duty::Deliver => {
            (Step::Deliver, "assignment_get", json!({"assignment": obligation.assignment.map(|id| id.to_string())}))
        }
        Duty::Judge => {
            (Step::Judge, "assignment_get", json!({"assignment": obligation.assignment.map(|id| id.to_string())}))
        }
    };
    Next { step, call: Some((operation, arguments)) }
}

/// See [`View::next`].
///
/// # Errors
/// If the store cannot be read.
pub fn next(read: &dyn Read, agent: &AgentId, now: Time) -> Result<Vec<Next>, ReadError> {
    let arrivals = log::next_arrival(read)?;
    let (rows, _) = index::list_page::<TurnRow>(read, List::Turn, &index::owner(agent), None, 3, arrivals)?;
    if rows.is_empty() {
        return Ok(vec![Next::step(Step::Wait)]);
    }
    Ok(rows.iter().map(|row| step_of(row, now)).collect())
}
