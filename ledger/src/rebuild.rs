//! Rebuilding the derived table from the primary ones (L1.1): every fact is folded again in the order in which it came to
//! this host, then the outcomes that are no facts get their receipts back. The result is what the host wrote at the time,
//! to the byte.
//!
//! A rebuild goes in steps, each of which a caller commits before the next, so that memory stays bounded however long
//! the logs are. It writes no primary row.

use alloc::vec::Vec;

use kwoon_keys::id::RequestId;
use kwoon_keys::{Digest, cbor};

use crate::action::ObjectId;
use crate::fact::Fact;
use crate::forget;
use crate::index;
use crate::log;
use crate::outbox::{self, Outgoing};
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
    stage: Stage,
}

/// Which rows come next, and after which key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// What was kept of logs that are not here: before any fact, so that what a log brings forth again is known.
    Kept(Option<Vec<u8>>),
    Facts,
    Outcomes(Option<Vec<u8>>),
    Outbox(Option<Vec<u8>>),
    Done,
}

impl Rebuild {
    /// A rebuild of a store whose derived table is empty, in steps of at most so many facts, or outcomes.
    ///
    /// # Panics
    /// If there are none in a step.
    pub fn in_steps_of(step_rows: usize) -> Self {
        assert!(step_rows > 0, "a step goes on");
        Self { step_rows, facts: 0, outcomes: 0, stage: Stage::Kept(None) }
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
        self.stage == Stage::Done
    }

    /// The rows of the derived table that come next. `read` holds the primary tables, and in the derived one exactly what
    /// the steps before gave.
    ///
    /// # Errors
    /// If a fact does not fold or the store cannot be read; the derived table is then to be dropped.
    pub fn step(&mut self, read: &dyn Read) -> Result<Batch, RebuildError> {
        let mut overlay = Overlay::new(read);
        match self.stage.clone() {
            Stage::Facts => self.step_facts(&mut overlay, read)?,
            Stage::Kept(after) => {
                let last = self.step_rows_of(&mut overlay, Table::Kept, after, |overlay, key, row| {
                    let kept = cbor::read_own(row).map_err(|_| ReadError::damaged("a kept outcome"))?;
                    forget::set_derived(overlay, &request_of(key)?, &kept)
                })?;
                self.stage = last.map_or(Stage::Facts, |last| Stage::Kept(Some(last)));
            }
            Stage::Outcomes(after) => {
                let mut count = 0;
                let last = self.step_rows_of(&mut overlay, Table::Outcomes, after, |overlay, key, _| {
                    count += 1;
                    index::set_receipt(overlay, &request_of(key)?);
                    Ok(())
                })?;
                self.outcomes += count;
                self.stage = last.map_or(Stage::Outbox(None), |last| Stage::Outcomes(Some(last)));
            }
            Stage::Outbox(after) => {
                let last = self.step_rows_of(&mut overlay, Table::Outbox, after, |overlay, key, row| {
                    let row: Outgoing = cbor::read_own(row).map_err(|_| ReadError::damaged("a row of the outbox"))?;
                    outbox::set_derived(overlay, &row.carried.action()?, &row, key)
                })?;
                self.stage = last.map_or(Stage::Done, |last| Stage::Outbox(Some(last)));
            }
            Stage::Done => {}
        }
        Ok(overlay.batch)
    }

    fn step_facts(&mut self, overlay: &mut Overlay<'_>, read: &dyn Read) -> Result<(), RebuildError> {
        let arrivals = log::arrivals(read, self.facts, self.step_rows)?;
        if arrivals.is_empty() {
            if log::next_arrival(read)? != self.facts {
                return Err(ReadError::damaged("the order of arrival has an end missing").into());
            }
            self.stage = Stage::Outcomes(None);
            return Ok(());
        }
        let mut bytes = 0;
        for (arrival, number, index) in arrivals {
            if arrival != self.facts {
                return Err(ReadError::damaged("the order of arrival has a gap").into());
            }
            self.facts += 1;
            // Of a log that ended for this host nothing is left but that it was there.
            if forget::ended(read, number)?.is_some() {
                continue;
            }
            let fact = log::fact_bytes(read, number, index)?;
            let object = log::object(read, number)?.ok_or_else(|| ReadError::damaged("an object is missing"))?;
            fold(overlay, number, arrival, object, index, &fact)?;
            bytes += fact.len();
            if bytes >= STEP_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// Takes the rows of a table that come next; the key of the last, if there may be more after it.
    fn step_rows_of(
        &self,
        overlay: &mut Overlay<'_>,
        table: Table,
        after: Option<Vec<u8>>,
        mut each: impl FnMut(&mut Overlay<'_>, &[u8], &[u8]) -> Result<(), ReadError>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let from = after.map(|mut key| {
            key.push(0);
            key
        });
        let rows = overlay.range(table, &from.unwrap_or_default(), &[0xff; 80], Order::Rising, self.step_rows)?;
        let more = rows.len() == self.step_rows;
        for (key, row) in &rows {
            each(overlay, key, row)?;
        }
        Ok(rows.into_iter().next_back().filter(|_| more).map(|(key, _)| key))
    }
}

fn request_of(key: &[u8]) -> Result<RequestId, ReadError> {
    let request = key.try_into().map_err(|_| ReadError::damaged("the key of an outcome"))?;
    Ok(RequestId(Digest(request)))
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
