//! Facts of logs that other hosts order, the contents they commit to, and the ends of rights to read them.

use std::collections::{BTreeMap, BTreeSet};

use kwoon_keys::id::AgentId;
use kwoon_keys::{Digest, PublicKey};
use kwoon_ledger::action::{Body, ObjectId};
use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::{Fact, Rejection, Seal, head_hash};
use kwoon_ledger::forget::{self, Kept};
use kwoon_ledger::identity::Status;
use kwoon_ledger::index;
use kwoon_ledger::log;
use kwoon_ledger::outbox::{self, Outgoing, Progress};
use kwoon_ledger::refusal::Stop;
use kwoon_ledger::replica::{self, FoldError};
use kwoon_ledger::rules::memory::publication_id;
use kwoon_ledger::state::{Cells, ObjectNumber, Reach};
use kwoon_ledger::storage::{Overlay, Read, ReadError, Table};
use kwoon_ledger::time::Time;
use kwoon_ledger::wanted;
use minicbor::bytes::ByteVec;

use crate::peers;
use crate::quarantine::{self, Quarantined, Reason, RecordType};
use crate::reach::{self, Pair};
use crate::round::Round;
use crate::wire::{Content, Contents, Ending, Facts, Message, Wish};

use super::ended::{clear_passed_on, clear_voice};
use super::verdicts::followed;
use super::*;

impl Round<'_> {
    pub(super) fn facts(&mut self, peer: &PublicKey, related: bool, facts: Facts) -> Result<Received, ReadError> {
        let own = self.own_host();
        let object = facts.object;
        if matches!(object, ObjectId::Task(_) | ObjectId::Engagement(_)) {
            return Ok(Received::fault("a log of a kind that this version does not have"));
        }
        let state = &self.sequencer.overlay;
        let known = index::number(state, &object)?;
        let number = known.map_or_else(|| log::next_object(state), Ok)?;
        let head = Cells::new(state, number).head()?;
        if log::is_ordered_by(state, &own, number)? {
            // Only this host appends to it, so there is nothing to be learned of it elsewhere.
            return Ok(Received::default());
        }
        let next = head.as_ref().map_or(0, |head| head.index.saturating_add(1));
        if facts.from > next {
            let from = reach::asks_from(state, &Pair { own, peer: *peer, related }, &object)?;
            return Ok(Received::say(Message::Want(vec![Wish { object, from }])));
        }
        let asked = self.asked_for(&object, known)?;
        if !asked && !self.may_come_unasked(peer, related, &object)? {
            return Ok(Received::fault("a log that nobody here asked for"));
        }
        let mut received = Received::default();
        let mut layer = Overlay::new(&self.sequencer.overlay);
        let folded = fold(&mut layer, number, &facts, next, self.now, &mut received.fault)?;
        received.held_back = folded.held_back.then_some(object);
        if let Some((record, bytes, reason)) = folded.unknown {
            let about = Quarantined {
                record,
                version: None,
                object: Some(object),
                received_at: self.now,
                reason,
                length_bytes: bytes.len() as u64,
            };
            // Kept or not, the log goes no further here until it is known.
            quarantine::keep(&mut self.sequencer.overlay, self.limits, &about, bytes)?;
            received.fault = Some("a record of a version or kind that this version does not know");
            return Ok(received);
        }
        // What could not be taken is asked for again, of whoever may have it.
        if received.fault.is_some() && asked {
            wanted::want_object(&mut layer, &object, known.unwrap_or(wanted::OF_ANYONE));
        }
        let Some(last) = folded.last else {
            let batch = layer.batch;
            self.sequencer.overlay.absorb(batch);
            if known.is_some() {
                self.end_expired(number, &object)?;
            }
            return Ok(received);
        };
        if known.is_none() {
            // What ended for this host once it may have ordered itself.
            let ended = forget::ended_of(&layer, &object)?.iter().map(|ended| ended.index).max();
            ended.into_iter().for_each(|index| wanted::set_behind(&mut layer, number, index));
        }
        let cells = Cells::new(&layer, number);
        // What nobody asked for is kept if agents here may read it; of a peer's own identities and publications, all.
        let readable = match object {
            ObjectId::Identity(_) | ObjectId::Publication(_) => {
                asked || cells.head()?.is_some_and(|head| head.sequencer == *peer)
            }
            _ => asked || cells.readers(&own)? > 0,
        };
        if !readable {
            return Ok(Received::fault("a log that no agent here may read"));
        }
        let given: BTreeMap<Digest, &Content> =
            facts.contents.iter().map(|content| (content.commitment().hash, content)).collect();
        // Of a long log the fact by which an agent here joins comes long after the first contents.
        let joins = self.joins(&object)?;
        let has_outgoing = !outbox::of_object(&layer, &object, 1)?.is_empty();
        for index in next..=last {
            settle_contents(&mut layer, number, index, (&own, joins), &given)?;
            if has_outgoing && let Some(action) = log::action_of(&log::fact(&layer, number, index)?) {
                outbox::remove(&mut layer, &object, &action.request())?;
            }
            want_referred(&mut layer, number, index)?;
        }
        if received.fault.is_none() {
            wanted::clear_object(&mut layer, &object);
        }
        let ended =
            matches!(object, ObjectId::Thread(_)) && matches!(Cells::new(&layer, number).reach(&own)?, Reach::Ended(_));
        let orders = log::is_ordered_by(&layer, &own, number)?;
        if ended && !orders {
            let agents = self.keyring.agents().copied().collect();
            forget::forget(&mut layer, number, &agents)?;
        }
        clear_voice(&mut layer, &object)?;
        let batch = layer.batch;
        self.sequencer.overlay.absorb(batch);
        if !ended {
            self.renew(number, &object)?;
            self.end_expired(number, &object)?;
        }
        self.retries |= orders;
        if let ObjectId::Identity(agent) = object {
            self.learned(agent)?;
        }
        Ok(received)
    }

    /// Whether agents here may read a log, wait to join it, or hold a log that refers to it.
    pub(super) fn asked_for(&self, object: &ObjectId, known: Option<ObjectNumber>) -> Result<bool, ReadError> {
        let state = &self.sequencer.overlay;
        if let Some(number) = known {
            let is_kept = matches!(object, ObjectId::Identity(_) | ObjectId::Publication(_));
            if is_kept || Cells::new(state, number).readers(&self.own_host())? > 0 {
                return Ok(true);
            }
        }
        if wanted::object(state, object)?.is_some() {
            return Ok(true);
        }
        self.joins(object)
    }

    /// Whether an agent here waits to join a thread.
    fn joins(&self, object: &ObjectId) -> Result<bool, ReadError> {
        for row in outbox::of_object(&self.sequencer.overlay, object, PASSED_ON_MAX)? {
            if row.own && matches!(row.carried.action()?.body, Body::ThreadJoin(..)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a peer may give what nobody asked for: its own agents and publications, within bounds, and logs that turn
    /// out to be readable here.
    pub(super) fn may_come_unasked(
        &self,
        peer: &PublicKey,
        related: bool,
        object: &ObjectId,
    ) -> Result<bool, ReadError> {
        let state = &self.sequencer.overlay;
        match object {
            ObjectId::Identity(_) | ObjectId::Publication(_) => {
                if !related {
                    return Ok(false);
                }
                let added = peers::get(state, peer)?.is_some_and(|peer| peer.added);
                let held = index::hosted(state, peer, 0, UNASKED_OBJECTS_MAX)?.len();
                Ok(added || held < UNASKED_OBJECTS_MAX)
            }
            _ => Ok(true),
        }
    }

    /// What this host's own logs have to note of an agent whose identity another host orders.
    pub(super) fn learned(&mut self, agent: AgentId) -> Result<(), ReadError> {
        let account = crate::view::account(&self.sequencer.overlay, &agent)?;
        if account.is_some_and(|account| account.status != Status::Active) && self.is_sealing() {
            match self.sequencer.learn(agent) {
                Ok(()) => {}
                Err(Stop::Unreadable(error)) => return Err(error),
                // A thread that cannot take the account is left as it is; the owner sees why in its log.
                Err(Stop::Refused(_)) => self.troubles.push(ReadError::damaged("a thread does not take an account")),
            }
        }
        Ok(())
    }

    /// Whether this host seals at present.
    pub(crate) fn is_sealing(&self) -> bool {
        self.guard().sealing(self.now).is_ok()
    }

    /// Own actions that can never take effect: the sequencer's word is past their expiry, and its log does not hold them.
    pub(super) fn end_expired(&mut self, number: ObjectNumber, object: &ObjectId) -> Result<(), ReadError> {
        let rows = outbox::of_object(&self.sequencer.overlay, object, usize::MAX)?;
        if rows.is_empty() {
            return Ok(());
        }
        let Some(seal) = last_seal(&self.sequencer.overlay, number)? else { return Ok(()) };
        if rows.iter().any(|row| !row.own && !row.is_pending()) {
            clear_passed_on(&mut self.sequencer.overlay, object, Some(seal.log_time))?;
        }
        for row in rows.into_iter().filter(Outgoing::is_pending) {
            let action = row.carried.action()?;
            if action.expires_at <= seal.log_time {
                let overlay = &mut self.sequencer.overlay;
                if row.own {
                    outbox::put(overlay, &action, Outgoing { progress: Progress::Expired, ..row })?;
                } else {
                    outbox::remove(overlay, object, &action.request())?;
                    forget::drop_unsealed(overlay, &action)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn contents(&mut self, contents: Contents) -> Result<Received, ReadError> {
        let own = self.own_host();
        let overlay = &mut self.sequencer.overlay;
        let Some(number) = index::number(overlay, &contents.object)? else { return Ok(Received::default()) };
        if Cells::new(overlay, number).head()?.is_none_or(|head| head.index < contents.index) {
            return Ok(Received::default());
        }
        let given = contents.contents.iter().map(|content| (content.commitment().hash, content)).collect();
        settle_contents(overlay, number, contents.index, (&own, false), &given)?;
        Ok(Received::default())
    }

    pub(super) fn ending(&mut self, ending: Ending) -> Result<Received, ReadError> {
        let own = self.own_host();
        let state = &self.sequencer.overlay;
        let Some(number) = index::number(state, &ending.object)? else { return Ok(Received::default()) };
        let cells = Cells::new(state, number);
        let Some(head) = cells.head()? else { return Ok(Received::default()) };
        let next = head.index.saturating_add(1);
        if log::is_ordered_by(state, &own, number)?
            || ending.from > next
            || !matches!(ending.object, ObjectId::Thread(_))
        {
            return Ok(Received::fault("the end of a right that cannot follow on what is here"));
        }
        // The chain from what is here to the fact, by hashes alone.
        let known = usize::try_from(next - ending.from).unwrap_or(usize::MAX);
        let Some(between) = ending.between.get(known..) else {
            return Ok(Received::fault("the end of a right that is known already"));
        };
        let chained = between.iter().fold(head.hash, |hash, fact| head_hash(&hash, fact));
        let known = followed((head.epoch, head.sequencer), &ending.object, &ending.moves);
        let sequencer = known[known.len() - 1].1;
        let Ok((fact, effects)) = ending.outcome.verify(&sequencer) else {
            return Ok(Received::fault("the end of a right that its sequencer did not seal"));
        };
        let at = next.checked_add(between.len() as u64);
        if fact.object != ending.object || fact.previous != chained || Some(fact.index) != at {
            return Ok(Received::fault("the end of a right of another log"));
        }
        let mut ends_here = false;
        for effect in &effects {
            ends_here |= match effect {
                Effect::MembershipEnded(agent, _) => self.keyring.agent(agent).is_some(),
                Effect::AccountSet(agent, account) => self.keyring.agent(agent).is_some() && !account.lives_on(&own),
                _ => false,
            };
        }
        if !ends_here {
            return Ok(Received::fault("a fact that ends no right here"));
        }
        // What ends it may be an own action: its outcome is kept with the others.
        let kept = Kept { outcome: ending.outcome, sequencer, arrival: log::next_arrival(state)? };
        let action = log::action_of(&fact)
            .filter(|action| action.agent().is_some_and(|agent| self.keyring.agent(&agent).is_some()));
        let agents: BTreeSet<AgentId> = self.keyring.agents().copied().collect();
        let overlay = &mut self.sequencer.overlay;
        if let Some(action) = action {
            forget::keep(overlay, &action.request(), &kept)?;
            forget::drop_beside(overlay, &action)?;
            outbox::remove(overlay, &ending.object, &action.request())?;
        }
        forget::forget(overlay, number, &agents)?;
        clear_voice(overlay, &ending.object)?;
        Ok(Received::default())
    }
}

/// What was folded of a message.
#[derive(Default)]
pub(super) struct Folded<'f> {
    /// The last index, if any fact was.
    last: Option<u64>,
    /// A record that this version does not know.
    unknown: Option<(RecordType, &'f [u8], Reason)>,
    /// Whether facts are held back.
    held_back: bool,
}

/// Folds facts up to the last seal that covers them. What no seal covers, and whatever follows on a fault, is left.
pub(super) fn fold<'f>(
    layer: &mut Overlay<'_>,
    number: ObjectNumber,
    facts: &'f Facts,
    next: u64,
    now: Time,
    fault: &mut Option<&'static str>,
) -> Result<Folded<'f>, ReadError> {
    let mut folded = Folded::default();
    let mut seals: BTreeMap<u64, &ByteVec> = BTreeMap::new();
    for record in &facts.seals {
        match Seal::read(record) {
            Ok(seal) => drop(seals.insert(seal.index, record)),
            Err(Rejection::UnknownVersion) => {
                folded.unknown = Some((RecordType::Seal, record, Reason::UnknownVersion));
                return Ok(folded);
            }
            Err(_) => {
                *fault = Some("a seal that is none");
                return Ok(folded);
            }
        }
    }
    let mut at = next;
    // Of the fact before.
    let mut epoch = match next.checked_sub(1) {
        Some(last) => Some(log::fact(layer, number, last)?.epoch),
        None => None,
    };
    for (sealed, record) in seals {
        if sealed.saturating_add(1) < at {
            continue;
        }
        let mut segment = Overlay::new(layer);
        while at <= sealed {
            let place = usize::try_from(at - facts.from).unwrap_or(usize::MAX);
            let Some(bytes) = facts.facts.get(place) else { return Ok(folded) };
            if let Ok(fact) = Fact::read(bytes) {
                if replica::is_ahead(&fact, now) {
                    // Held back: by this host's clock it lies in the future. It comes again.
                    *fault = Some("a fact lies more than 10 minutes in the future");
                    folded.held_back = true;
                    return Ok(folded);
                }
                // What one sequencer ordered is not for the next one to seal.
                if let Some(before) = epoch.replace(fact.epoch).filter(|before| *before != fact.epoch)
                    && segment.get(Table::Seals, &log::seal_key(number, before, at.saturating_sub(1)))?.is_none()
                {
                    *fault = Some("an epoch whose last fact its sequencer did not seal");
                    return Ok(folded);
                }
            }
            match replica::fold(&mut segment, number, bytes) {
                Ok(_) => at += 1,
                Err(FoldError::Unreadable(error)) => return Err(error),
                Err(FoldError::Rejected(rejection)) => {
                    let reason = match rejection {
                        Rejection::UnknownVersion => Some(Reason::UnknownVersion),
                        Rejection::UnknownKind => Some(Reason::UnknownKind),
                        _ => None,
                    };
                    folded.unknown = reason.map(|reason| (RecordType::Fact, bytes.as_slice(), reason));
                    *fault = Some(rejected(rejection));
                    return Ok(folded);
                }
                Err(FoldError::Refused(_)) => {
                    *fault = Some("a fact that the rules do not allow");
                    return Ok(folded);
                }
            }
        }
        match replica::check_seal(&segment, number, record) {
            Ok(seal) => segment.put(Table::Seals, log::seal_key(number, seal.epoch, seal.index), record.to_vec()),
            Err(FoldError::Unreadable(error)) => return Err(error),
            Err(_) => {
                *fault = Some("a seal that is not the sequencer's, or of another history of the log");
                return Ok(folded);
            }
        }
        let batch = segment.batch;
        layer.absorb(batch);
        if at > next {
            folded.last = Some(at - 1);
        }
    }
    Ok(folded)
}

pub(super) fn rejected(rejection: Rejection) -> &'static str {
    match rejection {
        Rejection::Signature => "a signature that does not verify",
        Rejection::UnknownInstance => "an actor that is not known in its log",
        Rejection::Chain => "a fact that does not follow on the log",
        Rejection::LogTime => "a fact whose time goes back",
        Rejection::Expiry => "an expiry that is early, unknown or left out",
        Rejection::Digest => "a fact from which something else follows here",
        _ => "a fact that is not acceptable",
    }
}

/// Keeps what agents here may read of a fact, or will as one of them joins, of what was given; what is missing is noted.
pub(super) fn settle_contents(
    overlay: &mut Overlay<'_>,
    number: ObjectNumber,
    index: u64,
    (own, joins): (&PublicKey, bool),
    given: &BTreeMap<Digest, &Content>,
) -> Result<(), ReadError> {
    let mut missing = false;
    let readers = joins || Cells::new(overlay, number).readers(own)? > 0;
    for commitment in reach::contents_as(overlay, number, index, own, readers)? {
        match given.get(&commitment.hash).filter(|content| content.commitment() == commitment) {
            Some(content) => overlay.put_content(&commitment, content.salt, content.bytes.to_vec()),
            None => missing |= overlay.content(&commitment.hash)?.is_none(),
        }
    }
    if missing || wanted::has_contents(overlay, number, index)? {
        wanted::set_contents(overlay, number, index, missing);
    }
    Ok(())
}

/// Another's publications that a fact refers to, where they are not here.
pub(super) fn want_referred(overlay: &mut Overlay<'_>, number: ObjectNumber, index: u64) -> Result<(), ReadError> {
    for effect in log::effects(overlay, number, index)? {
        if let Effect::EntryPosted(posted) = effect
            && posted.pin.author != posted.author
        {
            let publication = ObjectId::Publication(publication_id(&posted.pin.memory));
            if index::number(overlay, &publication)?.is_none() {
                wanted::want_object(overlay, &publication, number);
            }
        }
    }
    Ok(())
}
