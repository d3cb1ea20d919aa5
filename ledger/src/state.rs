//! The state of a log, in cells: small values under the log's number, so that an action touches only what it
//! concerns and a long thread costs no more than a short one.
//!
//! Cells are written by [`crate::draft`] alone, from effects.

use alloc::vec::Vec;

use kwoon_keys::id::{AdmissionId, AgentId, AssignmentId, MemoryId, RequestId, TaskId, ThreadId};
use kwoon_keys::{Commitment, Digest, PublicKey, cbor};
use minicbor::{Decode, Encode};

use crate::action::{Assign, Grant, ObjectId, Output, Pin, Role, Version};
use crate::effect::{Account, Exit, Final, Profile};
use crate::storage::{Order, Read, ReadError, Table};
use crate::time::Time;

/// The number of an object on this host, in the order of arrival.
pub type ObjectNumber = u32;

/// The first byte of the keys of cells in the derived table; indexes use others.
pub const CELLS: u8 = 0x01;

/// What a cell is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cell {
    /// [`Head`].
    Head = 0,
    /// Agent: [`Account`].
    Account = 1,
    /// Version: [`IdentityVersion`].
    Identity = 2,
    /// [`Memory`].
    Memory = 3,
    /// Version number: [`Version`].
    Version = 4,
    /// [`Publication`].
    Publication = 5,
    /// [`Thread`].
    Thread = 6,
    /// Agent: [`Member`].
    Member = 7,
    /// Entry number: [`Entry`].
    Entry = 8,
    /// Request: entry number.
    EntryOf = 9,
    /// Bearer and entry number: a pending response.
    Pending = 10,
    /// Number of the carrying entry: [`Assignment`].
    Assignment = 11,
    /// Assignment: number of the carrying entry.
    AssignmentOf = 12,
    /// Party and entry number: an assignment that is not final and that this agent created, or took or may take.
    Party = 13,
    /// Entry number: an assignment that is not final.
    Open = 14,
    /// Due time and entry number: a deadline.
    Due = 15,
    /// Agent: how many unended obligations and offers it caused.
    Caused = 16,
    /// Host: how many agents live there that may read the object.
    Readers = 17,
    /// Host: index of the fact that ended the last right to read on it.
    Departed = 18,
    /// Epoch: [`Epoch`].
    Epoch = 19,
}

/// One epoch of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Epoch {
    /// Who appends in it.
    #[n(0)]
    pub sequencer: PublicKey,
    /// Index of its first fact.
    #[n(1)]
    pub begins: u64,
    /// Index of its last fact, once it is closed.
    #[n(2)]
    pub ends: Option<u64>,
}

/// The key of a cell.
pub fn cell_key(number: ObjectNumber, cell: Cell, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(6 + parts.iter().map(|part| part.len()).sum::<usize>());
    key.push(CELLS);
    key.extend_from_slice(&number.to_be_bytes());
    key.push(cell as u8);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// The beginning of the keys of all cells of a log.
pub fn cell_prefix(number: ObjectNumber) -> Vec<u8> {
    let mut key = alloc::vec![CELLS];
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// Where a log stands.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Head {
    /// The log.
    #[n(0)]
    pub object: ObjectId,
    /// The rules version.
    #[n(1)]
    pub rules: u32,
    /// The epoch.
    #[n(2)]
    pub epoch: u64,
    /// The sequencer of the epoch.
    #[n(3)]
    pub sequencer: PublicKey,
    /// The last index.
    #[n(4)]
    pub index: u64,
    /// The head hash.
    #[n(5)]
    pub hash: Digest,
    /// The running digest.
    #[n(6)]
    pub digest: Digest,
    /// The log time.
    #[n(7)]
    pub log_time: Time,
}

/// An identity at one version.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct IdentityVersion {
    /// Who may act.
    #[n(0)]
    pub account: Account,
    /// What the agent is.
    #[n(1)]
    pub profile: Profile,
}

/// A memory as its author knows it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Memory {
    /// Its id.
    #[n(0)]
    pub memory: MemoryId,
    /// Its author.
    #[n(1)]
    pub author: AgentId,
    /// The current version.
    #[n(2)]
    pub version: u64,
    /// Whether the public can read it.
    #[n(3)]
    pub public: bool,
    /// Whether the public could ever read it.
    #[n(4)]
    pub published: bool,
    /// Whether it has ended.
    #[n(5)]
    pub withdrawn: bool,
}

/// A memory as the public knows it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Publication {
    /// The memory.
    #[n(0)]
    pub memory: MemoryId,
    /// Its author.
    #[n(1)]
    pub author: AgentId,
    /// The current version, while it is public.
    #[n(2)]
    pub current: Option<(u64, Version)>,
    /// Whether it has ended for good.
    #[n(3)]
    pub withdrawn: bool,
    /// Index of the fact that made it so.
    #[n(4)]
    pub index: u64,
    /// Index of the fact in the memory's log that it follows.
    #[n(5)]
    pub source: u64,
}

/// A thread as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Thread {
    /// Its id.
    #[n(0)]
    pub thread: ThreadId,
    /// Who created it.
    #[n(1)]
    pub creator: AgentId,
    /// Its subject.
    #[n(2)]
    pub subject: Option<Commitment>,
    /// Whether it is closed.
    #[n(3)]
    pub closed: bool,
    /// The valid admission.
    #[n(4)]
    pub admission: Option<(AdmissionId, Grant)>,
    /// Number of the last entry.
    #[n(5)]
    pub entries: u64,
    /// Members.
    #[n(6)]
    pub members: u64,
    /// Members with a voice.
    #[n(7)]
    pub voices: u64,
    /// Governors.
    #[n(8)]
    pub governors: u64,
    /// Unended obligations.
    #[n(9)]
    pub obligations: u64,
    /// When it was created.
    #[n(10)]
    pub created_at: Time,
}

/// A membership (T2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Member {
    /// What the member may do.
    #[n(0)]
    pub role: Role,
    /// The admission it came through; none for the creator.
    #[n(1)]
    pub admission: Option<AdmissionId>,
    /// When it began.
    #[n(2)]
    pub since: Time,
    /// Index of the fact by which it began.
    #[n(3)]
    pub index: u64,
}

/// One asked agent's response to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Response {
    /// Who owes or owed it.
    #[n(0)]
    pub responder: AgentId,
    /// How and when it ended; none while it is pending.
    #[n(1)]
    pub exit: Option<(Exit, Time)>,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// The request that posted it.
    #[n(0)]
    pub request: RequestId,
    /// Who spoke.
    #[n(1)]
    pub author: AgentId,
    /// When.
    #[n(2)]
    pub at: Time,
    /// The pinned memory version.
    #[n(3)]
    pub pin: Pin,
    /// The author's summary.
    #[n(4)]
    pub summary: Option<Commitment>,
    /// The entry replied to.
    #[n(5)]
    pub reply_to: Option<u64>,
    /// Whether the entry said whom it asks.
    #[n(6)]
    pub asks: bool,
    /// The responses it asked for.
    #[n(7)]
    pub responses: Vec<Response>,
    /// The assignment that came with it.
    #[n(8)]
    pub assignment: Option<AssignmentId>,
    /// A task referred to.
    #[n(9)]
    pub task: Option<TaskId>,
    /// Index of its fact.
    #[n(10)]
    pub index: u64,
}

/// How far an assignment is.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Progress {
    /// Not taken.
    #[n(0)]
    Offered,
    /// Taken at, to be delivered by.
    #[n(1)]
    Taken(#[n(0)] Time, #[n(1)] Time),
    /// Delivered at, to be judged by; whether the right to judge was lost.
    #[n(2)]
    Delivered(#[n(0)] Time, #[n(1)] Time, #[n(2)] bool),
    /// Ended at; the reason of a return.
    #[n(3)]
    Ended(#[n(0)] Final, #[n(1)] Time, #[n(2)] Option<Commitment>),
}

/// An assignment.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Assignment {
    /// Its id.
    #[n(0)]
    pub assignment: AssignmentId,
    /// The entry that carries it.
    #[n(1)]
    pub entry: u64,
    /// Who created it.
    #[n(2)]
    pub creator: AgentId,
    /// The terms.
    #[n(3)]
    pub terms: Assign,
    /// How far it is.
    #[n(4)]
    pub progress: Progress,
    /// Whether it was taken at all.
    #[n(5)]
    pub taken: bool,
    /// What was delivered.
    #[n(6)]
    pub output: Option<Output>,
    /// Whether the creator lost the right to judge it.
    #[n(7)]
    pub forfeited: bool,
}

impl Assignment {
    /// The next deadline.
    pub fn due_at(&self) -> Option<Time> {
        match self.progress {
            Progress::Taken(_, due) | Progress::Delivered(_, due, _) => Some(due),
            Progress::Offered | Progress::Ended(..) => None,
        }
    }
}

/// How far a host may read a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Not at all.
    Nothing,
    /// The right ended with the fact of this index: that fact, and nothing after.
    Ended(u64),
    /// All of it.
    Whole,
}

/// The cells of one log in one state of the store.
#[derive(Clone, Copy)]
pub struct Cells<'a> {
    /// The state of the store.
    pub read: &'a dyn Read,
    /// The log.
    pub number: ObjectNumber,
}

impl<'a> Cells<'a> {
    /// The cells of the log with this number.
    pub fn new(read: &'a dyn Read, number: ObjectNumber) -> Self {
        Self { read, number }
    }

    /// One cell.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn load<T: for<'b> Decode<'b, ()>>(&self, cell: Cell, parts: &[&[u8]]) -> Result<Option<T>, ReadError> {
        match self.read.get(Table::Derived, &cell_key(self.number, cell, parts))? {
            Some(bytes) => cbor::read_own(&bytes).map(Some).map_err(|_| ReadError::damaged("a cell does not decode")),
            None => Ok(None),
        }
    }

    fn must<T: for<'b> Decode<'b, ()>>(&self, cell: Cell, parts: &[&[u8]]) -> Result<T, ReadError> {
        self.load(cell, parts)?.ok_or_else(|| ReadError::damaged("a cell is missing"))
    }

    /// The ends of the keys of all cells of this kind whose keys begin with `parts`, rising, at most `limit`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn keys(&self, cell: Cell, parts: &[&[u8]], limit: usize) -> Result<Vec<Vec<u8>>, ReadError> {
        let prefix = cell_key(self.number, cell, parts);
        let rows = self.read.prefix(Table::Derived, &prefix, Order::Rising, limit)?;
        Ok(rows.into_iter().map(|(key, _)| key[prefix.len()..].to_vec()).collect())
    }

    /// The entry numbers at the ends of the keys that begin with `parts`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn entry_numbers(&self, cell: Cell, parts: &[&[u8]]) -> Result<Vec<u64>, ReadError> {
        self.keys(cell, parts, usize::MAX)?.iter().map(|key| number_at_end(key)).collect()
    }

    /// Where the log stands; none before its first fact.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn head(&self) -> Result<Option<Head>, ReadError> {
        self.load(Cell::Head, &[])
    }

    /// An account as this log knows it.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn account(&self, agent: &AgentId) -> Result<Option<Account>, ReadError> {
        self.load(Cell::Account, &[agent.as_bytes()])
    }

    /// The identity at a version.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn identity(&self, version: u64) -> Result<Option<IdentityVersion>, ReadError> {
        self.load(Cell::Identity, &[&version.to_be_bytes()])
    }

    /// The memory.
    ///
    /// # Errors
    /// If the store cannot be read, or the log is no memory's.
    pub fn memory(&self) -> Result<Memory, ReadError> {
        self.must(Cell::Memory, &[])
    }

    /// A version of the memory.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn version(&self, version: u64) -> Result<Option<Version>, ReadError> {
        self.load(Cell::Version, &[&version.to_be_bytes()])
    }

    /// The publication.
    ///
    /// # Errors
    /// If the store cannot be read, or the log is no publication's.
    pub fn publication(&self) -> Result<Publication, ReadError> {
        self.must(Cell::Publication, &[])
    }

    /// The thread.
    ///
    /// # Errors
    /// If the store cannot be read, or the log is no thread's.
    pub fn thread(&self) -> Result<Thread, ReadError> {
        self.must(Cell::Thread, &[])
    }

    /// A present membership.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn member(&self, agent: &AgentId) -> Result<Option<Member>, ReadError> {
        self.load(Cell::Member, &[agent.as_bytes()])
    }

    /// All present memberships, in the order in which they began. At most as many as a thread may have members.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn members(&self) -> Result<Vec<(AgentId, Member)>, ReadError> {
        let prefix = cell_key(self.number, Cell::Member, &[]);
        let mut members = Vec::new();
        for (key, value) in self.read.prefix(Table::Derived, &prefix, Order::Rising, usize::MAX)? {
            let agent: [u8; 32] =
                key[prefix.len()..].try_into().map_err(|_| ReadError::damaged("the key of a membership"))?;
            let member: Member = cbor::read_own(&value).map_err(|_| ReadError::damaged("a membership"))?;
            members.push((AgentId(Digest(agent)), member));
        }
        members.sort_by_key(|(agent, member)| (member.index, *agent));
        Ok(members)
    }

    /// An entry by its number.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn entry(&self, number: u64) -> Result<Option<Entry>, ReadError> {
        self.load(Cell::Entry, &[&number.to_be_bytes()])
    }

    /// The number of the entry that a request posted.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn entry_of(&self, request: &RequestId) -> Result<Option<u64>, ReadError> {
        self.load(Cell::EntryOf, &[request.as_bytes()])
    }

    /// Whether an agent owes a response to an entry.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn owes_response(&self, agent: &AgentId, entry: u64) -> Result<bool, ReadError> {
        Ok(self.load::<()>(Cell::Pending, &[agent.as_bytes(), &entry.to_be_bytes()])?.is_some())
    }

    /// The assignment that an entry carries.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn assignment_at(&self, entry: u64) -> Result<Option<Assignment>, ReadError> {
        self.load(Cell::Assignment, &[&entry.to_be_bytes()])
    }

    /// An assignment by its id.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn assignment(&self, id: &AssignmentId) -> Result<Option<Assignment>, ReadError> {
        match self.load::<u64>(Cell::AssignmentOf, &[id.as_bytes()])? {
            Some(entry) => self.assignment_at(entry),
            None => Ok(None),
        }
    }

    /// The assignments carried by entries after a number, at most `limit`.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn assignments_after(&self, entry: u64, limit: usize) -> Result<Vec<Assignment>, ReadError> {
        let from = cell_key(self.number, Cell::Assignment, &[&entry.saturating_add(1).to_be_bytes()]);
        let to = crate::storage::after_prefix(&cell_key(self.number, Cell::Assignment, &[]));
        let rows = self.read.range(Table::Derived, &from, &to, Order::Rising, limit)?;
        rows.iter().map(|(_, value)| cbor::read_own(value).map_err(|_| ReadError::damaged("an assignment"))).collect()
    }

    /// The first deadline of the log: when, and at which entry.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn next_due(&self) -> Result<Option<(Time, u64)>, ReadError> {
        let keys = self.keys(Cell::Due, &[], 1)?;
        let Some(key) = keys.first() else { return Ok(None) };
        let entry = number_at_end(key)?;
        let time = number_at_end(&key[..8])?;
        Ok(Some((Time(time), entry)))
    }

    /// One epoch of the log.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn epoch(&self, epoch: u64) -> Result<Option<Epoch>, ReadError> {
        self.load(Cell::Epoch, &[&epoch.to_be_bytes()])
    }

    /// How many agents live on a host that may read the object.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn readers(&self, host: &PublicKey) -> Result<u64, ReadError> {
        Ok(self.load(Cell::Readers, &[&host.0])?.unwrap_or(0))
    }

    /// The hosts on which agents live that may read the object.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn reader_hosts(&self) -> Result<Vec<PublicKey>, ReadError> {
        let keys = self.keys(Cell::Readers, &[], usize::MAX)?;
        let hosts = keys.into_iter().map(|key| key.try_into().map(PublicKey));
        hosts.collect::<Result<_, _>>().map_err(|_| ReadError::damaged("the key of a reading host"))
    }

    /// How far a host may read the log: to its head, or to the fact that ended the last right there; not at all if there
    /// never was one (section 9).
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn reach(&self, host: &PublicKey) -> Result<Reach, ReadError> {
        if self.readers(host)? > 0 {
            return Ok(Reach::Whole);
        }
        Ok(match self.load(Cell::Departed, &[&host.0])? {
            Some(index) => Reach::Ended(index),
            None => Reach::Nothing,
        })
    }

    /// How many unended obligations and offers an agent caused here.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn caused(&self, agent: &AgentId) -> Result<u64, ReadError> {
        Ok(self.load(Cell::Caused, &[agent.as_bytes()])?.unwrap_or(0))
    }
}

/// One more than a number or a count that the store holds.
///
/// # Errors
/// If there is none, which means that the store is damaged.
pub fn more(number: u64) -> Result<u64, ReadError> {
    number.checked_add(1).ok_or_else(|| ReadError::damaged("a number is too large"))
}

/// One fewer than a count that the store holds.
///
/// # Errors
/// If there is none, which means that the store is damaged.
pub fn fewer(count: u64) -> Result<u64, ReadError> {
    count.checked_sub(1).ok_or_else(|| ReadError::damaged("a count is too small"))
}

/// The number in the last eight bytes of a key.
///
/// # Errors
/// If the key is shorter, which means that the store is damaged.
pub fn number_at_end(key: &[u8]) -> Result<u64, ReadError> {
    let start = key.len().checked_sub(8).ok_or_else(|| ReadError::damaged("a key is too short"))?;
    let bytes = key[start..].try_into().map_err(|_| ReadError::damaged("a key is too short"))?;
    Ok(u64::from_be_bytes(bytes))
}
