//! Rebuilding the derived table from the primary ones (L1.1): every fact is folded again in the order in which it came to
//! this host, then the outcomes that are no facts get their receipts back. The result is what the host wrote at the time,
//! to the byte.
//!
//! A rebuild goes in steps, each of which a caller commits before the next, so that memory stays bounded however long
//! the logs are. It writes no primary row.

use alloc::vec::Vec;

use kwoon_keys::Digest;
use kwoon_keys::id::RequestId;

use crate::action::ObjectId;
use crate::fact::Fact;
use crate::index;
use crate::log;
use crate::replica::{self, FoldError};
use crate::storage::{Batch, Order, Overlay, Read, ReadError, Table};

/// Facts, or outcomes, of one step at most, unless said otherwise.
pub const STEP_ROWS: usize = 4096;
/// Bytes of facts in one step, beside the last one.
const STEP_BYTES: usize = 4 << 20;

/// Why a rebuild cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebuildError {
    /// The store could not be read, or its primary tables contradict each other.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// A fact does not fold: it was changed since this host recorded it.
    #[error("fact {index} of {object} does not fold: {why:?}")]
    Fact {
        /// The log.
        object: ObjectId,
        /// The fact.
        index: u64,
        /// What is wrong with it.
        why: FoldError,
    },
}

/// A rebuild under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebuild {
    step_rows: usize,
    facts: u64,
    outcomes: u64,
    last_outcome: Option<Vec<u8>>,
    done: bool,
}

impl Rebuild {
    /// A rebuild of a store whose derived table is empty, in steps of at most so many facts, or outcomes.
    ///
    /// # Panics
    /// If there are none in a step.
    pub fn in_steps_of(step_rows: usize) -> Self {
        assert!(step_rows > 0, "a step goes on");
        Self { step_rows, facts: 0, outcomes: 0, last_outcome: None, done: false }
    }

    /// Facts folded so far.
    pub fn facts(&self) -> u64 {
        self.facts
    }

    /// Outcomes gone through so far.
    pub fn outcomes(&self) -> u64 {
        self.outcomes
    }

    /// Whether everything is rebuilt.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The rows of the derived table that come next. `read` holds the primary tables, and in the derived one exactly what
    /// the steps before gave.
    ///
    /// # Errors
    /// If a fact does not fold or the store cannot be read; the derived table is then to be dropped.
    pub fn step(&mut self, read: &dyn Read) -> Result<Batch, RebuildError> {
        let mut overlay = Overlay::new(read);
        let arrivals = log::arrivals(read, self.facts, self.step_rows)?;
        if arrivals.is_empty() {
            if log::next_arrival(read)? != self.facts {
                return Err(ReadError::damaged("the order of arrival has an end missing").into());
            }
            self.step_outcomes(&mut overlay)?;
            return Ok(overlay.batch);
        }
        let mut bytes = 0;
        for (arrival, number, index) in arrivals {
            if arrival != self.facts {
                return Err(ReadError::damaged("the order of arrival has a gap").into());
            }
            let fact = log::fact_bytes(read, number, index)?;
            let object = log::object(read, number)?.ok_or_else(|| ReadError::damaged("an object is missing"))?;
            fold(&mut overlay, number, arrival, object, index, &fact)?;
            self.facts += 1;
            bytes += fact.len();
            if bytes >= STEP_BYTES {
                break;
            }
        }
        Ok(overlay.batch)
    }

    fn step_outcomes(&mut self, overlay: &mut Overlay<'_>) -> Result<(), ReadError> {
        let mut from = self.last_outcome.clone().unwrap_or_default();
        if self.last_outcome.is_some() {
            from.push(0);
        }
        let rows = overlay.range(Table::Outcomes, &from, &[0xff; 33], Order::Rising, self.step_rows)?;
        self.done = rows.len() < self.step_rows;
        for (key, _) in rows {
            let request = key.as_slice().try_into().map_err(|_| ReadError::damaged("the key of an outcome"))?;
            index::set_receipt(overlay, &RequestId(Digest(request)));
            self.outcomes += 1;
            self.last_outcome = Some(key);
        }
        Ok(())
    }
}

fn fold(
    overlay: &mut Overlay<'_>,
    number: crate::state::ObjectNumber,
    arrival: u64,
    object: ObjectId,
    index: u64,
    bytes: &[u8],
) -> Result<(), RebuildError> {
    let fault = |why| match why {
        FoldError::Unreadable(error) => RebuildError::Unreadable(error),
        why => RebuildError::Fact { object, index, why },
    };
    let fact = Fact::read(bytes).map_err(|rejection| fault(rejection.into()))?;
    if fact.object != object || fact.index != index {
        return Err(ReadError::damaged("a fact stands in another's place").into());
    }
    replica::fold_stored(overlay, number, arrival, bytes).map_err(fault)
}
