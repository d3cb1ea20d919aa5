//! The host: requests in, a commit and replies out. It has no clock, no randomness and no store of its own; time and
//! entropy are given to it, and it reads through [`Read`].
//!
//! One round at a time: [`Host::take`] decides a group of requests over one state and says what is to be committed;
//! nothing of it may be told before [`Host::committed`] hands out the replies.

use std::collections::BTreeSet;
use std::sync::Arc;

use kwoon_keys::secret::InstanceKeys;
use kwoon_ledger::clock;
use kwoon_ledger::index;
use kwoon_ledger::limits::Limits;
use kwoon_ledger::refusal::{Refusal, Stop};
use kwoon_ledger::storage::{Batch, Read, ReadError, Table};
use kwoon_ledger::time::{Duration, Time};

use crate::answer::{Answer, internal};
use crate::argument::Arguments;
use crate::check::Finding;
use crate::keyring::Keyring;
use crate::operations::Operation;
use crate::rate::Rates;
use crate::round::Round;
use crate::view::Caller;

const LAST_TIME: &[u8] = b"last_time";
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

/// A reply, and to which of the requests.
pub type Reply<T> = (T, Result<Answer, Refusal>);

/// See the module. `T` names a request to its driver.
pub struct Host<T> {
    keyring: Arc<Keyring>,
    limits: Arc<Limits>,
    rates: Rates,
    last_time: Option<Time>,
    round: Option<Waiting<T>>,
    troubles: Vec<ReadError>,
    is_troubled: bool,
}

struct Waiting<T> {
    replies: Vec<Reply<T>>,
    keys: Vec<InstanceKeys>,
    recorded: Option<Time>,
}

impl<T> Host<T> {
    /// The host of these keys over a store in this state.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn new(keyring: Keyring, limits: Limits, read: &dyn Read) -> Result<Self, ReadError> {
        let last_time = match read.get(Table::Meta, LAST_TIME)? {
            Some(bytes) => Some(Time(kwoon_ledger::state::number_at_end(&bytes)?)),
            None => None,
        };
        Ok(Self {
            keyring: Arc::new(keyring),
            limits: Arc::new(limits),
            rates: Rates::default(),
            last_time,
            round: None,
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

    /// The last time that was recorded.
    pub fn last_time(&self) -> Option<Time> {
        self.last_time
    }

    /// Whether the host would seal at this time, or why not (design: time is log time).
    ///
    /// # Errors
    /// The reason, as it is shown.
    pub fn sealing(&self, now: Time) -> Result<(), &'static str> {
        sealing(self.last_time, now)
    }

    /// When the host next has something to do by itself: a deadline, or recording the time.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn wake_at(&self, read: &dyn Read, now: Time) -> Result<Time, ReadError> {
        let record = now.after(RECORD_INTERVAL);
        // A deadline that could not be sealed is tried again each minute, not all the time.
        if self.sealing(now).is_err() || self.is_troubled {
            return Ok(record);
        }
        Ok(match index::next_due(read, &BTreeSet::new())? {
            Some((due, _)) => due.clamp(now, record),
            None => record,
        })
    }

    /// Takes a group of requests: decides them in this order, after the deadlines that have come, and says what is to be
    /// committed. With no requests it does what is due.
    ///
    /// # Panics
    /// If the round before was not ended by [`Host::committed`].
    pub fn take(&mut self, read: &dyn Read, now: Time, requests: Vec<(T, Request)>) -> Batch {
        assert!(self.round.is_none(), "a round is ended before the next begins");
        let keyring = Arc::clone(&self.keyring);
        let limits = Arc::clone(&self.limits);
        let sealing = self.sealing(now);
        let mut round = Round::new(read, &keyring, &limits, &mut self.rates, sealing, now);
        let expired = if sealing.is_ok() { round.sequencer.expire(EXPIRIES_PER_ROUND) } else { Ok(Vec::new()) };
        let mut troubles = Vec::new();
        let mut replies = Vec::with_capacity(requests.len());
        for (ticket, request) in requests {
            let reply = match &expired {
                Ok(_) => round.answer(request),
                Err(error) => Err(Stop::Unreadable(error.clone())),
            };
            if let Err(Stop::Unreadable(error)) = &reply {
                troubles.push(error.clone());
            }
            replies.push((ticket, reply.map_err(to_refusal)));
        }
        let confirmed = round.confirmed;
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
        // The time is recorded with every commit, each minute, and when the owner confirms it.
        let due = self.last_time.is_none_or(|last| now.since(last) >= RECORD_INTERVAL);
        let records = confirmed || sealing.is_ok() && (due || !batch.is_empty());
        // A clock that is a little behind must not get further behind by being recorded; only the owner sets it back.
        let recorded = records.then(|| if confirmed { now } else { self.last_time.map_or(now, |last| last.max(now)) });
        if let Some(time) = recorded {
            batch.rows.insert((Table::Meta, LAST_TIME.to_vec()), Some(time.0.to_be_bytes().to_vec()));
        }
        self.troubles = troubles;
        let keys = batch.keys.clone();
        self.round = Some(Waiting { replies, keys, recorded });
        batch
    }

    /// What could not be read in the last round: for the log of the daemon.
    pub fn take_troubles(&mut self) -> Vec<ReadError> {
        std::mem::take(&mut self.troubles)
    }

    /// Ends a round: its batch was committed, or not. Hands out the replies.
    pub fn committed(&mut self, committed: bool) -> Vec<Reply<T>> {
        let Some(Waiting { mut replies, keys, recorded }) = self.round.take() else { return Vec::new() };
        if committed {
            if !keys.is_empty() {
                let keyring = Arc::make_mut(&mut self.keyring);
                keys.into_iter().for_each(|keys| keyring.add(keys));
            }
            // A confirmed clock may lie behind the last time recorded.
            self.last_time = recorded.or(self.last_time);
        } else {
            for (_, reply) in &mut replies {
                *reply = Err(internal());
            }
        }
        replies
    }
}

/// Whether a host that last recorded this time seals now, or why not.
///
/// # Errors
/// The reason, as it is shown.
pub fn sealing(last_time: Option<Time>, now: Time) -> Result<(), &'static str> {
    clock::check(last_time, now).map_err(clock::Jump::name)
}

/// A stop as a caller sees it. That the store cannot be read is for the daemon's log.
pub fn to_refusal(stop: Stop) -> Refusal {
    match stop {
        Stop::Refused(refusal) => refusal,
        Stop::Unreadable(_) => internal(),
    }
}
