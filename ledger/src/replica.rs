//! Folding a log that was sealed elsewhere, or by this host before: every fact is verified and decided again.

use alloc::vec::Vec;

use kwoon_keys::cbor;

use crate::derive::{Derived, Fault, Premises, derive};
use crate::draft::Draft;
use crate::effect::Effect;
use crate::fact::{Cause, Fact, Rejection, Seal, running_digest};
use crate::index;
use crate::log::{self, Addition};
use crate::rules::Decision;
use crate::state::{Cells, ObjectNumber, more};
use crate::storage::{Overlay, ReadError};
use crate::time::{Duration, Time};

/// How far ahead of this host's clock a fact may lie; beyond it is held back.
pub const FUTURE_MAX: Duration = Duration::minutes(10);

/// Why a fact is not folded. The log stays as it was before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoldError {
    /// It is not acceptable.
    Rejected(Rejection),
    /// The rules refuse what it says, with this code.
    Refused(crate::refusal::Code),
    /// The store could not be read.
    Unreadable(ReadError),
}

impl From<ReadError> for FoldError {
    fn from(error: ReadError) -> Self {
        Self::Unreadable(error)
    }
}

impl From<Rejection> for FoldError {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

/// Folds the next fact of a log: verifies signatures, chain, time and rules, derives the effects again and compares the
/// running digest. On success the fact and all that follows from it are in `overlay`; otherwise nothing is.
///
/// # Errors
/// See [`FoldError`].
pub fn fold(overlay: &mut Overlay<'_>, number: ObjectNumber, bytes: &[u8]) -> Result<Vec<Effect>, FoldError> {
    let mut again = decide_again(overlay, number, log::next_arrival(overlay)?, bytes)?;
    log::add(&mut again.draft, &again.addition, bytes, again.effects)?;
    let (effects, batch) = (again.draft.effects, again.draft.overlay.batch);
    overlay.absorb(batch);
    Ok(effects)
}

/// The same for a fact that is in the store and came with this arrival number: only what follows from it is in `overlay`
/// then.
///
/// # Errors
/// See [`FoldError`].
pub(crate) fn fold_stored(
    overlay: &mut Overlay<'_>,
    number: ObjectNumber,
    arrival: u64,
    bytes: &[u8],
) -> Result<(), FoldError> {
    let mut again = decide_again(overlay, number, arrival, bytes)?;
    log::add_derived(&mut again.draft, &again.addition, bytes, again.effects)?;
    let batch = again.draft.overlay.batch;
    overlay.absorb(batch);
    Ok(())
}

/// A fact that was verified and decided again.
struct Again<'a> {
    draft: Draft<'a>,
    addition: Addition,
    /// Its effects, encoded.
    effects: Vec<u8>,
}

fn decide_again<'a>(
    overlay: &'a Overlay<'_>,
    number: ObjectNumber,
    arrival: u64,
    bytes: &[u8],
) -> Result<Again<'a>, FoldError> {
    let fact = Fact::read(bytes)?;
    let cells = Cells::new(overlay, number);
    let head = cells.head()?;
    let continues = match &head {
        None => {
            let opens = fact.index == 0 && fact.epoch == 0 && fact.previous == Default::default();
            // An object has one log.
            opens && fact.opening.is_some() && index::number(overlay, &fact.object)?.is_none()
        }
        Some(head) => {
            fact.index == more(head.index)?
                && fact.epoch == head.epoch
                && fact.previous == head.hash
                && fact.object == head.object
                && fact.opening.is_none()
        }
    };
    if !continues {
        return Err(Rejection::Chain.into());
    }
    if head.as_ref().is_some_and(|head| fact.log_time < head.log_time) {
        return Err(Rejection::LogTime.into());
    }
    check_deadlines(&cells, &fact)?;
    let mut draft = Draft::new(overlay, number, fact.index, arrival, fact.log_time);
    let premises = Premises {
        object: fact.object,
        head: head.as_ref(),
        opening: fact.opening.as_ref(),
        cause: &fact.cause,
        evidence: &fact.evidence,
        foreseen: false,
    };
    let request = match derive(&mut draft, &premises) {
        Ok(Derived { decision: Decision::Effects, request }) => request,
        Ok(Derived { decision: Decision::Existing(_), .. }) => return Err(Rejection::Rule.into()),
        Err(Fault::Refused(refusal)) => return Err(FoldError::Refused(refusal.code)),
        Err(Fault::Rejected(rejection)) => return Err(rejection.into()),
        Err(Fault::Unreadable(error)) => return Err(error.into()),
    };
    let effects = cbor::write(&draft.effects);
    let before = head.as_ref().map(|head| head.digest).unwrap_or_default();
    if running_digest(&before, fact.index, &effects) != fact.digest {
        return Err(Rejection::Digest.into());
    }
    let addition = Addition { object: fact.object, head, fact, request };
    Ok(Again { draft, addition, effects })
}

/// L4.3: expiries come first. No fact lies past a deadline that is still open, unless it is that very expiry, at its
/// due time.
fn check_deadlines(cells: &Cells<'_>, fact: &Fact) -> Result<(), FoldError> {
    let next = cells.next_due()?;
    if let Cause::Expiry(_) = fact.cause {
        return match next {
            Some((due, _)) if due == fact.log_time => Ok(()),
            _ => Err(Rejection::Expiry.into()),
        };
    }
    match next {
        Some((due, _)) if due <= fact.log_time => Err(Rejection::Expiry.into()),
        _ => Ok(()),
    }
}

/// Checks a seal against the folded log it belongs to.
///
/// # Errors
/// [`Rejection::Seal`] if it is not the sequencer's, or seals another chain.
pub fn check_seal(overlay: &Overlay<'_>, number: ObjectNumber, record: &[u8]) -> Result<Seal, FoldError> {
    let cells = Cells::new(overlay, number);
    let head = cells.head()?.ok_or(Rejection::Seal)?;
    // A closed epoch's seals are its own sequencer's.
    let epoch = Seal::read(record)?.epoch;
    let held = cells.epoch(epoch)?.ok_or(Rejection::Seal)?;
    let seal = Seal::verify(record, &held.sequencer)?;
    let within = held.begins <= seal.index && held.ends.is_none_or(|ends| seal.index <= ends);
    let known = log::head_at(overlay, number, &head, seal.index)?;
    let same = within && seal.object == head.object && seal.epoch == epoch && known == Some(seal.head);
    if same { Ok(seal) } else { Err(Rejection::Seal.into()) }
}

/// Whether a fact lies so far ahead that it is held back.
pub fn is_ahead(fact: &Fact, now: Time) -> bool {
    fact.log_time > now.after(FUTURE_MAX)
}
