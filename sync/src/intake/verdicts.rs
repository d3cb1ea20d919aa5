//! What became of own actions that another host was to decide.

use kwoon_keys::id::RequestId;
use kwoon_keys::{Digest, PublicKey, RecordKind, cbor, cose};
use kwoon_ledger::action::{Action, Body, ObjectId, SCHEMA, attempt_hash};
use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::{Outcome, OutcomeRecord, OutcomeResult, SealedOutcome};
use kwoon_ledger::forget::{self, Kept};
use kwoon_ledger::index;
use kwoon_ledger::log;
use kwoon_ledger::outbox::{self, Outgoing, Progress};
use kwoon_ledger::state::Cells;
use kwoon_ledger::storage::{Read, ReadError, Table};
use minicbor::bytes::ByteVec;

use crate::peers;
use crate::round::Round;
use crate::ticket::HostHint;
use crate::wire::Verdict;

use super::*;

impl Round<'_> {
    pub(super) fn verdict(&mut self, verdict: Verdict) -> Result<(), ReadError> {
        match verdict {
            Verdict::Ended(signed, moves) => self.ended_elsewhere(&signed, &moves),
            Verdict::Sealed(outcome, sequencer, moves) => {
                let Ok((fact, _)) = outcome.verify(&sequencer) else { return Ok(()) };
                let Some(action) = log::action_of(&fact) else { return Ok(()) };
                let request = action.request();
                let overlay = &mut self.sequencer.overlay;
                let Some(row) = outbox::get(overlay, &fact.object, &request)? else { return Ok(()) };
                let known = sequencers(overlay, &fact.object, fact.epoch, (&row, &moves))?;
                if !row.own || !known.contains(&sequencer) || is_before(fact.epoch, &action) {
                    return Ok(());
                }
                let kept = Kept { outcome: *outcome, sequencer, arrival: log::next_arrival(overlay)? };
                forget::keep(overlay, &request, &kept)?;
                forget::drop_beside(overlay, &action)?;
                outbox::remove(overlay, &fact.object, &request)
            }
            Verdict::Elsewhere(attempt, object, request, hint) => self.elsewhere(attempt, &object, &request, hint),
            Verdict::NotTaken(..) | Verdict::PassedOn(_) => Ok(()),
        }
    }

    /// A thread on which an agent here acts is ordered by another host by now, as one says that was given the action.
    pub(super) fn elsewhere(
        &mut self,
        attempt: Digest,
        object: &ObjectId,
        request: &RequestId,
        hint: HostHint,
    ) -> Result<(), ReadError> {
        let own = self.own_host();
        let overlay = &mut self.sequencer.overlay;
        let Some(mut row) = outbox::get(overlay, object, request)?.filter(|row| row.own && row.is_pending()) else {
            return Ok(());
        };
        let action = row.carried.action()?;
        let was_given = attempt_hash(&row.carried.signed) == attempt;
        let room = row.hosts.len() < HOSTS_MAX && hint.host != own;
        let sound = hint.is_sound() && hint.host.is_sound();
        if was_given && room && sound && !row.hosts.contains(&hint.host) {
            row.hosts.push(hint.host);
            outbox::put(overlay, &action, row)?;
            peers::add(overlay, &hint.host, &hint.addresses)?;
        }
        Ok(())
    }

    pub(super) fn ended_elsewhere(&mut self, signed: &ByteVec, moves: &[SealedOutcome]) -> Result<(), ReadError> {
        let Ok(payload) = cose::payload(RecordKind::Outcome, signed) else { return Ok(()) };
        let Ok(outcome) = cbor::read_lenient::<Outcome>(payload) else { return Ok(()) };
        let overlay = &mut self.sequencer.overlay;
        let Some(row) = outbox::get(overlay, &outcome.object, &outcome.request)? else { return Ok(()) };
        if outcome.schema != SCHEMA || attempt_hash(&row.carried.signed) != outcome.attempt || !row.is_pending() {
            return Ok(());
        }
        let action = row.carried.action()?;
        if is_before(outcome.epoch, &action) {
            return Ok(());
        }
        let mut signer = None;
        for key in sequencers(overlay, &outcome.object, outcome.epoch, (&row, moves))? {
            if cose::verify(RecordKind::Outcome, signed, &key).is_ok() {
                signer = Some(key);
            }
        }
        if signer.is_none() {
            return Ok(());
        }
        match outcome.result {
            OutcomeResult::Refused(..) => {
                let progress = Progress::Refused(signed.clone());
                outbox::put(overlay, &action, Outgoing { progress, ..row })
            }
            OutcomeResult::Existing(index) => {
                let number = index::number(overlay, &outcome.object)?;
                let head = number.map_or(Ok(None), |number| Cells::new(overlay, number).head())?;
                // What made it is to be here first, or to have been here.
                let made_by = match number.filter(|_| head.is_some_and(|head| head.index >= index)) {
                    Some(number) => log::action_of(&log::fact(overlay, number, index)?).map(|action| action.request()),
                    None if number.is_none() => match forget::kept_at(overlay, &outcome.object, index)? {
                        None => return Ok(()),
                        made_by => made_by,
                    },
                    None => return Ok(()),
                };
                let (outcome_bytes, action) = (signed.clone(), row.carried.signed.clone());
                let record = OutcomeRecord { outcome: outcome_bytes, action, made_by };
                overlay.put(Table::Outcomes, outcome.request.as_bytes().to_vec(), cbor::write(&record));
                index::set_receipt(overlay, &outcome.request);
                outbox::remove(overlay, &outcome.object, &outcome.request)?;
                Ok(())
            }
        }
    }
}

/// Whether an epoch ended before an attempt was signed: who ordered the log then has no say in it.
fn is_before(epoch: u64, action: &Action) -> bool {
    action.position.is_some_and(|position| epoch < position.epoch)
}

/// Who ordered a log in which epoch, from one epoch and its sequencer on, as far as it is shown.
pub(super) fn followed(from: (u64, PublicKey), object: &ObjectId, moves: &[SealedOutcome]) -> Vec<(u64, PublicKey)> {
    let mut known = vec![from];
    for moved in moves.iter().take(MOVES_MAX) {
        let at = known[known.len() - 1];
        let Ok((fact, effects)) = moved.verify(&at.1) else { continue };
        let began = effects.iter().find_map(|effect| match effect {
            Effect::EpochBegan(epoch, host, _) => Some((*epoch, *host)),
            _ => None,
        });
        known.extend(began.filter(|_| fact.object == *object && fact.epoch == at.0));
    }
    known
}

/// Hosts whose word on the end of an action counts: who ordered the log in that epoch, or, where the log is not here, the
/// hosts that a ticket named. Of a ticket that does not admit nothing is said, not even in which epoch its thread is: for a
/// join, the host that is known to have ordered the thread last counts as well.
pub(super) fn sequencers(
    read: &dyn Read,
    object: &ObjectId,
    epoch: u64,
    (row, moves): (&Outgoing, &[SealedOutcome]),
) -> Result<Vec<PublicKey>, ReadError> {
    let joins = matches!(row.carried.action()?.body, Body::ThreadJoin(..));
    // A host that a ticket named may answer for a thread that it does not have.
    let mut hosts = if joins { row.hosts.clone() } else { Vec::new() };
    if let Some(number) = index::number(read, object)? {
        let cells = Cells::new(read, number);
        if let Some(of_epoch) = cells.epoch(epoch)? {
            hosts.push(of_epoch.sequencer);
            hosts.extend(cells.head()?.filter(|_| joins).map(|head| head.sequencer));
            return Ok(hosts);
        }
    }
    let mut from = Vec::new();
    for host in row.hosts.iter().filter(|_| joins) {
        // A host that a ticket named ordered the log when the ticket was made, in whatever epoch that was.
        let began = moves.iter().take(MOVES_MAX).find_map(|moved| moved.verify(host).ok());
        from.push((began.map_or(0, |(fact, _)| fact.epoch), *host));
    }
    let ended = forget::ended_of(read, object)?;
    hosts.extend(ended.iter().filter(|_| joins).map(|ended| ended.sequencer));
    from.extend(ended.iter().map(|ended| (ended.epoch, ended.sequencer)));
    for from in from {
        let known = followed(from, object, moves);
        hosts.extend(known.iter().filter(|(at, _)| *at == epoch).map(|(_, host)| *host));
    }
    Ok(hosts)
}
