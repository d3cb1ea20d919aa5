//! What would be if what is pending were sealed: the same rules over sealed state and the pending actions of one log, in the
//! order of their dependencies, then of the position their authors had folded, then of their ids. It is shown, and never
//! trusted: nothing in it grants a right (design: pending is shown).

use std::collections::{BTreeMap, BTreeSet};

use kwoon_keys::KeyPair;
use kwoon_keys::id::RequestId;
use kwoon_ledger::action::{Action, ObjectId};
use kwoon_ledger::outbox::{self, Carried, Outgoing};
use kwoon_ledger::refusal::Stop;
use kwoon_ledger::sequencer::{Candidate, Sealed, Sequencer};
use kwoon_ledger::state::{Cells, ObjectNumber};
use kwoon_ledger::storage::{Batch, Layer, Read, ReadError};
use kwoon_ledger::time::{Duration, Time};

/// Pending actions of one log that are foreseen at most; later ones are not.
pub const FORESEEN_MAX: usize = 256;

/// What is foreseen of one log.
#[derive(Debug, Default)]
pub struct Foreseen {
    /// What would change. To be laid over the state that it was made from, and never committed.
    pub batch: Batch,
    /// The pending actions that would be sealed, with the facts they would become, in this order.
    pub sealed: Vec<(RequestId, Sealed)>,
    /// The pending actions that would be refused as things stand.
    pub refused: BTreeSet<RequestId>,
}

impl Foreseen {
    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.sealed.is_empty() && self.refused.is_empty()
    }
}

/// The time that a log of another host is taken to have come to: this host's own, but never past a deadline that its
/// sequencer has not sealed, and never before the log's last.
///
/// # Errors
/// If the store cannot be read.
pub fn time_of(read: &dyn Read, number: ObjectNumber, now: Time) -> Result<Time, ReadError> {
    let cells = Cells::new(read, number);
    let at = match cells.next_due()? {
        Some((due, _)) if due <= now => due.before(Duration(1)),
        _ => now,
    };
    Ok(cells.head()?.map_or(at, |head| head.log_time.max(at)))
}

fn candidate(carried: &Carried) -> Candidate {
    Candidate {
        evidence: carried.evidence.clone(),
        records: carried.records.clone(),
        ..Candidate::of(carried.object, carried.signed.to_vec())
    }
}

/// What would be of a log.
///
/// # Errors
/// If the store cannot be read.
pub fn foresee(
    read: &dyn Read,
    host: &KeyPair,
    number: ObjectNumber,
    object: &ObjectId,
    now: Time,
) -> Result<Foreseen, ReadError> {
    let mut foreseen = Foreseen::default();
    let mut waiting: Vec<(Action, Outgoing)> = Vec::new();
    for row in outbox::of_object(read, object, FORESEEN_MAX)?.into_iter().filter(Outgoing::is_pending) {
        waiting.push((row.carried.action()?, row));
    }
    if waiting.is_empty() {
        return Ok(foreseen);
    }
    let folded = |action: &Action| action.position.map(|position| (position.epoch, position.index));
    waiting.sort_by_key(|(action, _)| (folded(action), action.request()));
    let time = time_of(read, number, now)?;
    let mut undecided: BTreeMap<RequestId, ()> = waiting.iter().map(|(action, _)| (action.request(), ())).collect();
    while !waiting.is_empty() {
        let is_next = |(action, _): &(Action, Outgoing)| {
            action.needs.iter().chain(&action.after).all(|request| !undecided.contains_key(request))
        };
        // What waits for itself is decided in the order in which it stands.
        let (action, row) = waiting.remove(waiting.iter().position(is_next).unwrap_or(0));
        undecided.remove(&action.request());
        let batch = std::mem::take(&mut foreseen.batch);
        let layer = Layer { base: read, batch: &batch };
        let mut sequencer = Sequencer::foreseeing(&layer, host, time);
        let decided = sequencer.act(candidate(&row.carried), |_, _| Ok(()));
        let more = sequencer.overlay.batch;
        let mut all = kwoon_ledger::storage::Overlay::with(read, batch);
        match decided {
            Ok(sealed) => {
                all.absorb(more);
                foreseen.sealed.push((action.request(), sealed));
            }
            Err(Stop::Refused(_)) => drop(foreseen.refused.insert(action.request())),
            Err(Stop::Unreadable(error)) => return Err(error),
        }
        foreseen.batch = all.batch;
    }
    Ok(foreseen)
}
