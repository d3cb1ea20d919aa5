//! The host: requests in, a commit and replies out. It has no clock, no randomness and no store of its own; time and
//! entropy are given to it, and it reads through [`Read`].
//!
//! Round by round: [`Host::take`] decides a group of requests over one state and says what is to be committed; nothing of
//! it may be told before that is done, so [`Replies`] are given for a commit. While one round is being committed, the next
//! may be decided, over the state that the first will leave; if the first is not committed then, neither is the second.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use kwoon_keys::Digest;
use kwoon_keys::secret::InstanceKeys;
use kwoon_ledger::clock;
use kwoon_ledger::index;
use kwoon_ledger::limits::Limits;
use kwoon_ledger::refusal::{Refusal, Stop};
use kwoon_ledger::state::ObjectNumber;
use kwoon_ledger::storage::{Batch, Read, ReadError, Table};
use kwoon_ledger::time::{Duration, Time};
use kwoon_ledger::wanted;

use crate::answer::{Answer, internal};
use crate::argument::Arguments;
use crate::check::Finding;
use crate::intake::{Delivery, Received};
use crate::keyring::Keyring;
use crate::operations::Operation;
use crate::rate::Rates;
use crate::round::Round;
use crate::view::Caller;
use crate::window::{self, Window};

const LAST_TIME: &[u8] = b"last_time";
const MARK: &[u8] = b"home_mark";
/// How often a host with nothing to commit records the time.
pub const RECORD_INTERVAL: Duration = Duration::minutes(1);
/// Deadlines sealed in one round, so that a long list of them holds nobody up.
pub(crate) const EXPIRIES_PER_ROUND: usize = 1024;

/// A request that acts.
pub struct Request {
    /// Who calls.
    pub caller: Caller,
    /// What.
    pub operation: &'static Operation,
    /// With which arguments.
    pub arguments: Arguments,
    /// 32 random bytes, from which whatever the request needs at random is derived.
    pub entropy: [u8; 32],
    /// The trace that the call belongs to, 32 hex digits (W3C Trace Context).
    pub trace_id: Option<String>,
    /// What was found in a file, of which something is to be kept ([`answer`](crate::file::answer)).
    pub finding: Option<Finding>,
}

/// What a round is made of.
pub enum Work {
    /// A call of an operation that acts.
    Call(Box<Request>),
    /// What another host sent.
    Delivery(Box<Delivery>),
    /// Where other hosts find this one, from now on.
    Addresses(Vec<String>),
}

impl From<Request> for Work {
    fn from(request: Request) -> Self {
        Self::Call(Box::new(request))
    }
}

/// What comes of a piece of work.
#[derive(Debug)]
pub enum Done {
    /// Of a call.
    Answer(Box<Answer>),
    /// Of what another host sent, or of what has no answer.
    Received(Received),
}

/// A reply, and to which of the pieces of work.
pub type Reply<T> = (T, Result<Done, Refusal>);

/// Why a host that was copied or restored seals nothing until its owner confirms the home.
const RESTORED: &str = "home_restored";

/// What a host knows that decides whether it seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The last time it recorded.
    pub last_time: Option<Time>,
    /// Whether its home is a copy of the one that it last sealed in, and its owner has not confirmed it. Of two homes
    /// that seal for one host, each would give its logs another end (design: forks and copies).
    pub restored: bool,
}

impl Guard {
    /// Whether the host seals at this time.
    ///
    /// # Errors
    /// Why it does not, as it is shown.
    pub fn sealing(&self, now: Time) -> Result<(), &'static str> {
        if self.restored {
            return Err(RESTORED);
        }
        clock::check(self.last_time, now).map_err(clock::Jump::name)
    }
}

/// See the module.
pub struct Host {
    keyring: Arc<Keyring>,
    limits: Arc<Limits>,
    rates: Rates,
    guard: Guard,
    mark: Digest,
    /// Logs that wait for hosts whose deadlines passed while this one was down; nothing before that was looked at.
    windows: Option<BTreeMap<ObjectNumber, Window>>,
    /// Where other hosts find this one.
    addresses: Vec<String>,
    /// Whether the store holds the mark.
    is_marked: bool,
    /// Rounds that were decided and are not committed yet, the oldest first.
    rounds: VecDeque<Waiting>,
    troubles: Vec<ReadError>,
    is_troubled: bool,
}

/// What was decided of a round.
pub struct Taken<T> {
    /// What is to be committed.
    pub batch: Batch,
    /// Whether the host itself is another once it is committed: it knows new agents, or seals where it did not. Replies to
    /// such a round are given after [`Host::committed`].
    pub changes_host: bool,
    /// What the requests get.
    pub replies: Replies<T>,
}

/// Replies that hold once their round is committed. `T` names a request to its driver.
#[must_use]
pub struct Replies<T>(Vec<Reply<T>>);

impl<T> Replies<T> {
    /// The replies of a round that was committed, or was not: then each request gets an error.
    pub fn given(mut self, committed: bool) -> Vec<Reply<T>> {
        if !committed {
            for (_, reply) in &mut self.0 {
                *reply = Err(internal());
            }
        }
        self.0
    }
}

/// What the host learns of a round when it is committed.
struct Waiting {
    keys: Vec<InstanceKeys>,
    recorded: Option<Time>,
    marked: bool,
}

impl Host {
    /// The host of these keys over a store in this state. The `mark` is another wherever the store is a copy.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn new(keyring: Keyring, limits: Limits, mark: Digest, read: &dyn Read) -> Result<Self, ReadError> {
        let last_time = match read.get(Table::Meta, LAST_TIME)? {
            Some(bytes) => Some(Time(kwoon_ledger::state::number_at_end(&bytes)?)),
            None => None,
        };
        let marked = read.get(Table::Meta, MARK)?;
        let restored = marked.as_ref().is_some_and(|marked| marked != mark.as_bytes());
        Ok(Self {
            keyring: Arc::new(keyring),
            limits: Arc::new(limits),
            rates: Rates::default(),
            guard: Guard { last_time, restored },
            mark,
            windows: None,
            addresses: Vec::new(),
            is_marked: marked.is_some(),
            rounds: VecDeque::new(),
            troubles: Vec::new(),
            is_troubled: false,
        })
    }

    /// The keys, as of the last commit.
    pub fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.keyring)
    }

    /// The limits.
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.limits)
    }

    /// How the changes of this host are counted: another wherever its store is a copy.
    pub fn counting(&self) -> Digest {
        Digest::of("kwoon 1 counting", &[self.mark.as_bytes()])
    }

    /// What decides whether the host seals.
    pub fn guard(&self) -> Guard {
        self.guard
    }

    /// When the host next has something to do by itself: a deadline, or recording the time.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn wake_at(&self, read: &dyn Read, now: Time) -> Result<Time, ReadError> {
        let record = now.after(RECORD_INTERVAL);
        // A deadline that could not be sealed is tried again each minute, not all the time.
        if self.guard.sealing(now).is_err() || self.is_troubled {
            return Ok(record);
        }
        let mut waiting: BTreeSet<_> = self.windows.iter().flatten().map(|(number, _)| *number).collect();
        waiting.extend(wanted::all_behind(read)?);
        let due = index::next_due(read, &self.keyring.host.public(), &waiting)?.map(|(due, _)| due);
        let ends = self.windows.iter().flatten().map(|(_, window)| window.until);
        Ok(due.into_iter().chain(ends).min().map_or(record, |due| due.clamp(now, record)))
    }

    /// Takes requests for as long as there are any: decides them in this order, after the deadlines that have come, and says
    /// what is to be committed. With no requests it does what is due. `read` is the state with what the round before wrote,
    /// whether or not that is committed yet.
    ///
    /// # Panics
    /// If two rounds were not ended by [`Host::committed`].
    pub fn take<T>(
        &mut self,
        read: &dyn Read,
        now: Time,
        work: impl IntoIterator<Item = (T, impl Into<Work>)>,
    ) -> Taken<T> {
        assert!(self.rounds.len() < 2, "a round is ended before the second after it begins");
        let keyring = Arc::clone(&self.keyring);
        let limits = Arc::clone(&self.limits);
        // A round that is not committed yet counts as well: this one is lost with it.
        let recorded_before = self.rounds.iter().rev().find_map(|round| round.recorded).or(self.guard.last_time);
        let guard = Guard { last_time: recorded_before, ..self.guard };
        let sealing = guard.sealing(now);
        let mut troubles = Vec::new();
        let mut windows = self.windows.take();
        // Deadlines that passed while this host was down are looked at once, before anything is sealed.
        if windows.is_none() && sealing.is_ok() {
            match window::windows(read, &keyring.host.public(), now) {
                Ok(found) => windows = Some(found),
                Err(error) => troubles.push(error),
            }
        }
        let mut windows = windows.unwrap_or_default();
        let waiting = windows.len();
        windows.retain(|_, window| window.until > now);
        let ended = windows.len() < waiting;
        let addresses = std::mem::take(&mut self.addresses);
        let lent = (&mut windows, addresses.as_slice());
        let mut round = Round::new(read, &keyring, &limits, &mut self.rates, guard, now, lent);
        let expired = if sealing.is_ok() { round.sequencer.expire(EXPIRIES_PER_ROUND) } else { Ok(Vec::new()) };
        let mut new_addresses = None;
        let mut replies = Vec::new();
        // What had to wait is looked at again now and then, when there is nothing else to do.
        let mut idle = true;
        for (ticket, work) in work {
            idle = false;
            let reply = match (&expired, work.into()) {
                (Err(error), _) => Err(Stop::Unreadable(error.clone())),
                (Ok(_), Work::Call(request)) => round.answer(*request).map(|answer| Done::Answer(Box::new(answer))),
                (Ok(_), Work::Delivery(delivery)) => {
                    round.receive(*delivery).map(Done::Received).map_err(Stop::Unreadable)
                }
                (Ok(_), Work::Addresses(addresses)) => {
                    new_addresses = Some(addresses);
                    Ok(Done::Received(Received::default()))
                }
            };
            if let Err(Stop::Unreadable(error)) = &reply {
                troubles.push(error.clone());
            }
            replies.push((ticket, reply.map_err(to_refusal)));
        }
        round.retries |= ended || idle;
        if sealing.is_ok()
            && let Err(error) = round.try_carried()
        {
            troubles.push(error);
        }
        let (confirmed, home_confirmed) = (round.confirmed, round.home_confirmed);
        troubles.append(&mut round.troubles);
        let mut batch = match (expired, round.sequencer.finish()) {
            (Ok(failures), Ok(batch)) => {
                self.is_troubled = !failures.is_empty();
                troubles.extend(failures);
                batch
            }
            (Err(error), _) | (_, Err(error)) => {
                self.is_troubled = true;
                troubles.push(error);
                // Nothing of the round is kept if the store cannot be read.
                for (_, reply) in &mut replies {
                    *reply = Err(internal());
                }
                Batch::default()
            }
        };
        if self.windows.is_none() && sealing.is_ok() {
            self.windows = Some(windows);
        }
        self.addresses = new_addresses.unwrap_or(addresses);
        // The time is recorded with every commit, each minute, and when the owner confirms it.
        let due = recorded_before.is_none_or(|last| now.since(last) >= RECORD_INTERVAL);
        let records = confirmed || sealing.is_ok() && (due || !batch.is_empty());
        // A clock that is a little behind must not get further behind by being recorded; only the owner sets it back.
        let recorded = records.then(|| if confirmed { now } else { recorded_before.map_or(now, |last| last.max(now)) });
        if let Some(time) = recorded {
            batch.rows.insert((Table::Meta, LAST_TIME.to_vec()), Some(time.0.to_be_bytes().to_vec()));
        }
        let marked = home_confirmed || !self.is_marked && records;
        if marked {
            batch.rows.insert((Table::Meta, MARK.to_vec()), Some(self.mark.as_bytes().to_vec()));
        }
        self.troubles = troubles;
        let keys = batch.keys.clone();
        let changes_host = marked || confirmed || !keys.is_empty();
        self.rounds.push_back(Waiting { keys, recorded, marked });
        Taken { batch, changes_host, replies: Replies(replies) }
    }

    /// What could not be read in the last round: for the log of the daemon.
    pub fn take_troubles(&mut self) -> Vec<ReadError> {
        std::mem::take(&mut self.troubles)
    }

    /// Ends the oldest round: its batch was committed, or not.
    pub fn committed(&mut self, committed: bool) {
        let Some(Waiting { keys, recorded, marked }) = self.rounds.pop_front().filter(|_| committed) else { return };
        if !keys.is_empty() {
            let keyring = Arc::make_mut(&mut self.keyring);
            keys.into_iter().for_each(|keys| keyring.add(keys));
        }
        // A confirmed clock may lie behind the last time recorded.
        self.guard.last_time = recorded.or(self.guard.last_time);
        if marked {
            self.is_marked = true;
            self.guard.restored = false;
        }
    }
}

/// A stop as a caller sees it. That the store cannot be read is for the daemon's log.
pub fn to_refusal(stop: Stop) -> Refusal {
    match stop {
        Stop::Refused(refusal) => refusal,
        Stop::Unreadable(_) => internal(),
    }
}
