//! What comes from other hosts, taken into the store: facts that are decided again before they are stored, actions that
//! this host is to decide or to pass on, and what became of its own.
//!
//! Nothing a peer sends is believed, and nothing is kept that nobody here asked for or may read.

use std::collections::{BTreeMap, BTreeSet};

use kwoon_keys::id::{AgentId, RequestId};
use kwoon_keys::{Digest, PublicKey, RecordKind, cbor, cose};
use kwoon_ledger::action::{Action, Body, ObjectId, SCHEMA, attempt_hash};
use kwoon_ledger::derive::read_action_strict;
use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::SealedOutcome;
use kwoon_ledger::fact::{
    EpochChange, EpochReason, EpochStatement, Fact, Outcome, OutcomeRecord, OutcomeResult, RULES, RefusalDetail,
    Rejection, Seal, Signer, fact_hash, head_hash,
};
use kwoon_ledger::forget::{self, Kept};
use kwoon_ledger::identity::Status;
use kwoon_ledger::index;
use kwoon_ledger::limits::{LINKS_MAX, Limits};
use kwoon_ledger::log;
use kwoon_ledger::outbox::{self, Outgoing, Progress};
use kwoon_ledger::refusal::{Code, Detail, Refusal, Stop};
use kwoon_ledger::replica::{self, FoldError};
use kwoon_ledger::rules::epoch::read_statement;
use kwoon_ledger::rules::memory::publication_id;
use kwoon_ledger::sequencer::{Candidate, Sealed};
use kwoon_ledger::state::{Cells, Head, ObjectNumber, Reach};
use kwoon_ledger::storage::{Order, Overlay, Read, ReadError, Table};
use kwoon_ledger::time::{Duration, Time};
use kwoon_ledger::wanted;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::operations::limits;
use crate::peers;
use crate::quarantine::{self, Quarantined, Reason, RecordType};
use crate::reach;
use crate::round::Round;
use crate::ticket::HostHint;
use crate::wire::{Consignment, Content, Contents, Ending, Facts, Message, Seen, Verdict, Wish};

/// How long a host that was told "not taken in" waits, unless it is told otherwise.
const NOT_TAKEN_MS: u64 = 1000;
/// Actions of others that are passed on for one object at most.
const PASSED_ON_MAX: usize = 1024;
/// Refusals that are kept for one object at most. Beyond them nothing more is decided that would be refused.
const REFUSALS_MAX: usize = 4096;
/// Objects that are taken from a host which this host's owner did not add, at most.
const UNASKED_OBJECTS_MAX: usize = 1024;
/// Changes of sequencer that are told with an outcome at most.
pub const MOVES_MAX: usize = 64;
/// Hosts that a join is sent to at most.
const HOSTS_MAX: usize = 16;
/// How old the sequencer's last word on a log may be to be given again instead of a new one.
const WORD_AGE_MAX: Duration = Duration::seconds(30);

/// What a session gives to the writer.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Who sent it.
    pub peer: PublicKey,
    /// Whether either side's owner added the other.
    pub related: bool,
    /// What it is.
    pub intake: Intake,
    /// How far the other's changes are taken in with it, if that is news.
    pub seen: Option<Seen>,
}

/// See [`Delivery`].
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Intake {
    /// A message that changes something here.
    Message(Message),
    /// The other was heard.
    Heard {
        /// Its clock, if it said so.
        time: Option<Time>,
    },
    /// The other has all there is of a log that no agent here may read any more.
    Released(ObjectId),
    /// The other proved to be at these addresses.
    Found {
        /// `IP:PORT`, the one in use first.
        addresses: Vec<String>,
        /// Its relay, if it was met there.
        relay: Option<String>,
    },
}

/// What comes of a delivery.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// What is to be said to the other.
    pub messages: Vec<Message>,
    /// What is wrong with what it sent, if something is: fixed words.
    pub fault: Option<&'static str>,
    /// A log of which facts are held back, as they lie in the future: they are to be asked for again.
    pub held_back: Option<ObjectId>,
}

impl Received {
    fn fault(what: &'static str) -> Self {
        Self { fault: Some(what), ..Self::default() }
    }

    fn say(message: Message) -> Self {
        Self { messages: vec![message], ..Self::default() }
    }
}

/// A handover that the sequencer has begun: its own voice, until the next host's comes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Voice {
    /// The epoch that would begin.
    #[n(0)]
    pub next_epoch: u64,
    /// The host that would follow.
    #[n(1)]
    pub next_host: PublicKey,
    /// The signed statement.
    #[n(2)]
    pub signed: ByteVec,
}

/// Where this host's voice for a change of an object's sequencer is noted.
pub fn voice_key(object: &ObjectId) -> Vec<u8> {
    [&b"voice/"[..], &cbor::write(object)].concat()
}

/// The voices that this host gave, by their objects.
///
/// # Errors
/// If the store cannot be read.
pub fn voices(read: &dyn Read) -> Result<Vec<(ObjectId, Voice)>, ReadError> {
    let damaged = || ReadError::damaged("a voice");
    let rows = read.prefix(Table::Meta, b"voice/", Order::Rising, 1024)?;
    let rows = rows.into_iter().map(|(key, row)| {
        let object = cbor::read_own(&key[b"voice/".len()..]).map_err(|_| damaged())?;
        Ok((object, cbor::read_own(&row).map_err(|_| damaged())?))
    });
    rows.collect()
}

/// The voice that this host gave for an object, if it gave one.
///
/// # Errors
/// If the store cannot be read.
pub fn voice(read: &dyn Read, object: &ObjectId) -> Result<Option<Voice>, ReadError> {
    let row = read.get(Table::Meta, &voice_key(object))?;
    row.map(|row| cbor::read_own(&row).map_err(|_| ReadError::damaged("a voice"))).transpose()
}

fn refusal_key(number: ObjectNumber, attempt: &Digest) -> Vec<u8> {
    [&number.to_be_bytes()[..], attempt.as_bytes()].concat()
}

/// A refusal that was told to another host.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
struct ToldRefusal {
    #[n(0)]
    outcome: ByteVec,
    #[n(1)]
    request: RequestId,
    /// From when on the attempt cannot take effect anyway.
    #[n(2)]
    expires_at: Time,
}

/// What this host decides of an action that another brought.
enum Decided {
    Sealed,
    /// It ended without a fact: the signed outcome.
    Ended(ByteVec),
    /// It waits: for how long, in milliseconds.
    Waits(u64),
}

impl Round<'_> {
    /// Takes in what a session gives.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn receive(&mut self, delivery: Delivery) -> Result<Received, ReadError> {
        let Delivery { peer, related, intake, seen } = delivery;
        if let Intake::Heard { time } = intake {
            self.heard(&peer, time, seen)?;
            return Ok(Received::default());
        }
        let received = self.take_in(&peer, related, intake)?;
        if seen.is_some() && received.messages.is_empty() {
            self.heard(&peer, None, seen)?;
        }
        Ok(received)
    }

    fn take_in(&mut self, peer: &PublicKey, related: bool, intake: Intake) -> Result<Received, ReadError> {
        match intake {
            Intake::Heard { .. } => Ok(Received::default()),
            Intake::Found { addresses, relay } => {
                self.found(peer, &addresses, relay)?;
                Ok(Received::default())
            }
            Intake::Released(object) => {
                self.release(&object)?;
                Ok(Received::default())
            }
            Intake::Message(Message::Facts(facts)) => self.facts(peer, related, facts),
            Intake::Message(Message::Actions(actions)) => self.actions(peer, actions),
            Intake::Message(Message::Verdicts(verdicts)) => {
                for verdict in verdicts {
                    self.verdict(verdict)?;
                }
                Ok(Received::default())
            }
            Intake::Message(Message::Contents(contents)) => self.contents(contents),
            Intake::Message(Message::Ending(ending)) => self.ending(ending),
            Intake::Message(Message::AskSeal(object)) => self.word(peer, &object),
            Intake::Message(Message::AskVoice(signed)) => self.give_voice(peer, &signed),
            Intake::Message(Message::Voice(signed)) => self.take_voice(peer, &signed),
            Intake::Message(_) => Ok(Received::fault("a message that changes nothing was given to the writer")),
        }
    }

    fn own_host(&self) -> PublicKey {
        self.keyring.host.public()
    }

    fn heard(&mut self, peer: &PublicKey, time: Option<Time>, seen: Option<Seen>) -> Result<(), ReadError> {
        let overlay = &mut self.sequencer.overlay;
        // Of a host that nobody added nothing is remembered but while it shares something.
        let known = peers::get(overlay, peer)?;
        if known.is_none() && index::hosted(overlay, peer, 0, 1)?.is_empty() {
            return Ok(());
        }
        let mut known = known.unwrap_or_default();
        known.heard_at = Some(self.now);
        if let Some(time) = time {
            let difference = i128::from(time.0) - i128::from(self.now.0);
            known.ahead_ms = i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX });
        }
        known.seen = seen.or(known.seen);
        peers::put(overlay, peer, &known);
        if seen.is_some() {
            self.wait_no_more(peer);
        }
        Ok(())
    }

    /// Notes where a host was found that is known already. Nothing is written if it is no news.
    fn found(&mut self, peer: &PublicKey, addresses: &[String], relay: Option<String>) -> Result<(), ReadError> {
        let overlay = &mut self.sequencer.overlay;
        let Some(known) = peers::get(overlay, peer)? else { return Ok(()) };
        let mut found = known.clone();
        found.found_at(addresses);
        found.relay = relay.or(found.relay);
        if found != known {
            peers::put(overlay, peer, &found);
        }
        Ok(())
    }

    /// Drops a log that no agent here may read, once the host that orders it now has all of it.
    fn release(&mut self, object: &ObjectId) -> Result<(), ReadError> {
        let own = self.own_host();
        let overlay = &mut self.sequencer.overlay;
        let Some(number) = index::number(overlay, object)? else { return Ok(()) };
        let cells = Cells::new(overlay, number);
        let orders = log::is_ordered_by(overlay, &own, number)?;
        if matches!(object, ObjectId::Thread(_)) && matches!(cells.reach(&own)?, Reach::Ended(_)) && !orders {
            let agents = self.keyring.agents().copied().collect();
            forget::forget(overlay, number, &agents)?;
        }
        Ok(())
    }

    // ---------------------------------------------------------------------------------------------------- facts

    fn facts(&mut self, peer: &PublicKey, related: bool, facts: Facts) -> Result<Received, ReadError> {
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
            return Ok(Received::say(Message::Want(vec![Wish { object, from: next }])));
        }
        let asked = self.asked_for(&object, known)?;
        if !asked && !self.may_come_unasked(peer, related, &object)? {
            return Ok(Received::fault("a log that nobody here asked for"));
        }
        let mut received = Received::default();
        let mut layer = Overlay::new(&self.sequencer.overlay);
        if known.is_none() {
            // What ended for this host once it may have ordered itself.
            let ended = forget::ended_of(&layer, &object)?.iter().map(|ended| ended.index).max();
            ended.into_iter().for_each(|index| wanted::set_behind(&mut layer, number, index));
        }
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
        let has_outgoing = !outbox::of_object(&layer, &object, 1)?.is_empty();
        for index in next..=last {
            settle_contents(&mut layer, number, index, &own, &given)?;
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
    fn asked_for(&self, object: &ObjectId, known: Option<ObjectNumber>) -> Result<bool, ReadError> {
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
        let joins =
            |row: &Outgoing| Ok::<_, ReadError>(row.own && matches!(row.carried.action()?.body, Body::ThreadJoin(..)));
        for row in outbox::of_object(state, object, PASSED_ON_MAX)? {
            if joins(&row)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a peer may give what nobody asked for: its own agents and publications, within bounds, and logs that turn
    /// out to be readable here.
    fn may_come_unasked(&self, peer: &PublicKey, related: bool, object: &ObjectId) -> Result<bool, ReadError> {
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
    fn learned(&mut self, agent: AgentId) -> Result<(), ReadError> {
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
    fn end_expired(&mut self, number: ObjectNumber, object: &ObjectId) -> Result<(), ReadError> {
        let rows = outbox::of_object(&self.sequencer.overlay, object, usize::MAX)?;
        if rows.is_empty() {
            return Ok(());
        }
        let Some(seal) = last_seal(&self.sequencer.overlay, number)? else { return Ok(()) };
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

    // ---------------------------------------------------------------------------------------------------- contents

    fn contents(&mut self, contents: Contents) -> Result<Received, ReadError> {
        let own = self.own_host();
        let overlay = &mut self.sequencer.overlay;
        let Some(number) = index::number(overlay, &contents.object)? else { return Ok(Received::default()) };
        if Cells::new(overlay, number).head()?.is_none_or(|head| head.index < contents.index) {
            return Ok(Received::default());
        }
        let given = contents.contents.iter().map(|content| (content.commitment().hash, content)).collect();
        settle_contents(overlay, number, contents.index, &own, &given)?;
        Ok(Received::default())
    }

    // ---------------------------------------------------------------------------------------------------- endings

    fn ending(&mut self, ending: Ending) -> Result<Received, ReadError> {
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
        let Ok((fact, effects)) = ending.outcome.verify(&known[known.len() - 1].1) else {
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
        let kept = Kept { outcome: ending.outcome, sequencer: head.sequencer, arrival: log::next_arrival(state)? };
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
        Ok(Received::default())
    }

    // ---------------------------------------------------------------------------------------------------- verdicts

    fn verdict(&mut self, verdict: Verdict) -> Result<(), ReadError> {
        match verdict {
            Verdict::Ended(signed, moves) => self.ended_elsewhere(&signed, &moves),
            Verdict::Sealed(outcome, sequencer, moves) => {
                let Ok((fact, _)) = outcome.verify(&sequencer) else { return Ok(()) };
                let Some(action) = log::action_of(&fact) else { return Ok(()) };
                let request = action.request();
                let overlay = &mut self.sequencer.overlay;
                let Some(row) = outbox::get(overlay, &fact.object, &request)? else { return Ok(()) };
                let known = sequencers(overlay, &fact.object, fact.epoch, (&row, &moves))?;
                if !row.own || !known.contains(&sequencer) {
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

    /// A thread that an agent here wants to join is ordered by another host by now.
    fn elsewhere(
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
        let joins = matches!(action.body, Body::ThreadJoin(..)) && attempt_hash(&row.carried.signed) == attempt;
        let room = row.hosts.len() < HOSTS_MAX && hint.addresses.len() <= peers::ADDRESSES_MAX && hint.host != own;
        if joins && room && !row.hosts.contains(&hint.host) {
            row.hosts.push(hint.host);
            outbox::put(overlay, &action, row)?;
            peers::add(overlay, &hint.host, &hint.addresses)?;
        }
        Ok(())
    }

    fn ended_elsewhere(&mut self, signed: &ByteVec, moves: &[SealedOutcome]) -> Result<(), ReadError> {
        let Ok(payload) = cose::payload(RecordKind::Outcome, signed) else { return Ok(()) };
        let Ok(outcome) = cbor::read_lenient::<Outcome>(payload) else { return Ok(()) };
        let overlay = &mut self.sequencer.overlay;
        let Some(row) = outbox::get(overlay, &outcome.object, &outcome.request)? else { return Ok(()) };
        if outcome.schema != SCHEMA || attempt_hash(&row.carried.signed) != outcome.attempt || !row.is_pending() {
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
        let action = row.carried.action()?;
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

    // ---------------------------------------------------------------------------------------------------- actions

    fn actions(&mut self, peer: &PublicKey, actions: Vec<Consignment>) -> Result<Received, ReadError> {
        let mut verdicts = Vec::new();
        for consignment in actions {
            verdicts.extend(self.action(peer, consignment)?);
        }
        let messages = if verdicts.is_empty() { Vec::new() } else { vec![Message::Verdicts(verdicts)] };
        Ok(Received { messages, ..Received::default() })
    }

    fn action(&mut self, peer: &PublicKey, consignment: Consignment) -> Result<Option<Verdict>, ReadError> {
        let Consignment { carried, contents } = consignment;
        let Ok(action) = read_action_strict(&carried.signed) else { return Ok(None) };
        let attempt = attempt_hash(&carried.signed);
        let joins = matches!(action.body, Body::ThreadJoin(..));
        let state = &self.sequencer.overlay;
        let number = index::number(state, &carried.object)?;
        let head = number.map_or(Ok(None), |number| Cells::new(state, number).head())?;
        let own = self.own_host();
        let (Some(number), Some(head)) = (number, head) else {
            if !joins {
                return Ok(None);
            }
            // A thread that was here once, and is ordered elsewhere by now.
            let opening = action.position.map(|position| position.head);
            let ended = forget::ended_of(state, &carried.object)?.pop();
            if let Some(ended) = ended.filter(|ended| Some(ended.opening) == opening && ended.sequencer != own) {
                let addresses = peers::get(state, &ended.sequencer)?.unwrap_or_default().addresses;
                let hint = HostHint { host: ended.sequencer, addresses };
                return Ok(Some(Verdict::Elsewhere(attempt, carried.object, action.request(), hint)));
            }
            return self.failed_join(peer, &action, &carried.object, attempt).map(Some);
        };
        let orders = log::is_ordered_by(&self.sequencer.overlay, &own, number)?;
        if !orders && joins {
            // Who knows the thread's beginning had a ticket, and may know who orders it now.
            let opening = log::head_at(&self.sequencer.overlay, number, &head, 0)?;
            let had_ticket = action.position.is_some_and(|position| Some(position.head) == opening);
            if !had_ticket {
                return self.failed_join(peer, &action, &carried.object, attempt).map(Some);
            }
            let addresses = peers::get(&self.sequencer.overlay, &head.sequencer)?.unwrap_or_default().addresses;
            let hint = HostHint { host: head.sequencer, addresses };
            return Ok(Some(Verdict::Elsewhere(attempt, carried.object, action.request(), hint)));
        }
        if !orders {
            return self.pass_on(peer, number, Outgoing::passed_on(carried), &action, &contents);
        }
        let decided = self.decide_carried(peer, number, &head, Outgoing::passed_on(carried), &action, &contents)?;
        Ok(match decided {
            // The fact comes with the log, where that may be read; else its outcome goes alone.
            Decided::Sealed => self.sealed_for(peer, number, &action)?,
            Decided::Ended(outcome) => Some(Verdict::Ended(outcome, self.moves_for(peer, number)?)),
            Decided::Waits(milliseconds) => Some(Verdict::NotTaken(attempt, milliseconds)),
        })
    }

    /// The outcome of an action for a host of its actor that may not read the log any more.
    fn sealed_for(
        &mut self,
        peer: &PublicKey,
        number: ObjectNumber,
        action: &Action,
    ) -> Result<Option<Verdict>, ReadError> {
        let state = &self.sequencer.overlay;
        let cells = Cells::new(state, number);
        let account = action.agent().map_or(Ok(None), |agent| cells.account(&agent))?;
        if cells.readers(peer)? > 0 || !account.is_some_and(|account| account.lives_on(peer)) {
            return Ok(None);
        }
        let Some((sealed_in, index)) = index::request(state, &action.request())? else { return Ok(None) };
        if sealed_in != number {
            return Ok(None);
        }
        // A fact of this very round is sealed at its end: the next time it is asked for there is an outcome.
        let outcome = log::outcome(state, number, index)?;
        let sequencer = log::sealed_by(state, number, index)?;
        let moves = self.moves_for(peer, number)?;
        Ok(outcome.map(|outcome| Verdict::Sealed(Box::new(outcome), sequencer, moves)))
    }

    /// The facts by which a log's sequencers followed each other, for a host that may not read the log any more.
    fn moves_for(&self, peer: &PublicKey, number: ObjectNumber) -> Result<Vec<SealedOutcome>, ReadError> {
        let state = &self.sequencer.overlay;
        let cells = Cells::new(state, number);
        let Some(head) = cells.head()?.filter(|head| head.epoch > 0) else { return Ok(Vec::new()) };
        if !matches!(cells.reach(peer)?, Reach::Ended(_)) {
            return Ok(Vec::new());
        }
        moves(state, number, head.epoch)
    }

    /// S1: whatever is wrong with a ticket or its thread looks the same, also that there is none here. Nothing is kept of it.
    fn failed_join(
        &mut self,
        peer: &PublicKey,
        action: &Action,
        object: &ObjectId,
        attempt: Digest,
    ) -> Result<Verdict, ReadError> {
        for caller in joiners(peer, action) {
            if let Err(wait) = self.rates().may_join(&caller) {
                return Ok(Verdict::NotTaken(attempt, wait.0));
            }
        }
        for caller in joiners(peer, action) {
            self.rates().join_failed(&caller);
        }
        Ok(Verdict::Ended(self.refused_join(action, object, attempt), Vec::new()))
    }

    /// Says no more of the thread than the ticket did.
    fn refused_join(&self, action: &Action, object: &ObjectId, attempt: Digest) -> ByteVec {
        let outcome = Outcome {
            schema: SCHEMA,
            request: action.request(),
            attempt,
            object: *object,
            epoch: 0,
            index: 0,
            head: action.position.map_or_else(Digest::default, |position| position.head),
            log_time: self.now,
            result: OutcomeResult::Refused(Code::AdmissionInvalid.name().to_owned(), Vec::new()),
        };
        cose::sign(RecordKind::Outcome, &cbor::write(&outcome), &self.keyring.host).into()
    }

    /// Decides an action of an agent of another host on a log that this host orders.
    fn decide_carried(
        &mut self,
        peer: &PublicKey,
        number: ObjectNumber,
        head: &Head,
        row: Outgoing,
        action: &Action,
        contents: &[Content],
    ) -> Result<Decided, ReadError> {
        let carried = row.carried.clone();
        let (request, attempt) = (action.request(), attempt_hash(&carried.signed));
        let joins = matches!(action.body, Body::ThreadJoin(..));
        let state = &self.sequencer.overlay;
        if index::is_sealed_in(state, &request, number)? {
            outbox::remove(&mut self.sequencer.overlay, &carried.object, &request)?;
            return Ok(Decided::Sealed);
        }
        if let Some(record) = state.get(Table::Outcomes, request.as_bytes())? {
            let record: OutcomeRecord = cbor::read_own(&record).map_err(|_| ReadError::damaged("an outcome"))?;
            outbox::remove(&mut self.sequencer.overlay, &carried.object, &request)?;
            return Ok(Decided::Ended(record.outcome));
        }
        if let Some(told) = state.get(Table::Refusals, &refusal_key(number, &attempt))? {
            let told: ToldRefusal = cbor::read_own(&told).map_err(|_| ReadError::damaged("a refusal"))?;
            return Ok(Decided::Ended(told.outcome));
        }
        // An attempt of another epoch is void: its author's host sees that in the log, and signs the next.
        let is_of_epoch = action.position.is_some_and(|position| position.epoch == head.epoch) || joins;
        if !is_of_epoch && matches!(Cells::new(&self.sequencer.overlay, number).reach(peer)?, Reach::Ended(_)) {
            // Its author's host cannot sign another, as it may not read the log any more.
            return self.refuse(peer, number, row, action, &Code::NotFound.into());
        }
        if !self.is_sealing() || !is_of_epoch || !self.is_undisturbed(number, action)? {
            return Ok(Decided::Waits(NOT_TAKEN_MS));
        }
        // What has expired is refused, whatever it waited for.
        if action.expires_at > self.now && self.waits_for(number, action, &carried.outcomes)? {
            self.keep_carried(number, row.clone(), action, contents)?;
            return Ok(Decided::Waits(NOT_TAKEN_MS));
        }
        // Sealed means held.
        let mut missing = false;
        let given: BTreeMap<Digest, &Content> =
            contents.iter().map(|content| (content.commitment().hash, content)).collect();
        let mut needed = Vec::new();
        action.body.contents(|commitment| needed.push(*commitment));
        for commitment in &needed {
            let there = given.get(&commitment.hash).is_some_and(|content| content.commitment() == *commitment);
            missing |= !there && self.sequencer.overlay.content(&commitment.hash)?.is_none();
        }
        if missing {
            return Ok(Decided::Waits(NOT_TAKEN_MS));
        }
        if joins {
            for caller in joiners(peer, action) {
                if let Err(wait) = self.rates().may_join(&caller) {
                    return Ok(Decided::Waits(wait.0));
                }
            }
        }
        if !action.body.is_free_exit()
            && let Some(agent) = action.agent()
            && let Err(wait) = self.rates().take(agent.as_bytes())
        {
            return Ok(Decided::Waits(wait.0));
        }
        let candidate = Candidate {
            evidence: carried.evidence.clone(),
            records: carried.records.clone(),
            ..Candidate::of(carried.object, carried.signed.to_vec())
        };
        let allowed = self.limits;
        let result = self.sequencer.act(candidate, |overlay, sealed| {
            if sealed.existing { Ok(()) } else { limits::check(overlay, sealed.number, action, allowed) }
        });
        match result {
            Ok(sealed) => self.sealed(&sealed, &carried, action, &given, &needed),
            Err(Stop::Unreadable(error)) => Err(error),
            Err(Stop::Refused(refusal)) => self.refuse(peer, number, row, action, &refusal),
        }
    }

    fn sealed(
        &mut self,
        sealed: &Sealed,
        carried: &outbox::Carried,
        action: &Action,
        given: &BTreeMap<Digest, &Content>,
        needed: &[kwoon_keys::Commitment],
    ) -> Result<Decided, ReadError> {
        let own = self.own_host();
        let overlay = &mut self.sequencer.overlay;
        let request = action.request();
        outbox::remove(overlay, &carried.object, &request)?;
        self.retries = true;
        if sealed.existing {
            let record = overlay.get(Table::Outcomes, request.as_bytes())?;
            let record = record.ok_or_else(|| ReadError::damaged("an outcome is missing"))?;
            let record: OutcomeRecord = cbor::read_own(&record).map_err(|_| ReadError::damaged("an outcome"))?;
            return Ok(Decided::Ended(record.outcome));
        }
        for commitment in needed {
            if let Some(content) = given.get(&commitment.hash) {
                overlay.put_content(commitment, content.salt, content.bytes.to_vec());
            }
        }
        settle_contents(overlay, sealed.number, sealed.index, &own, given)?;
        want_referred(overlay, sealed.number, sealed.index)?;
        // Who orders a log follows the identities of those who act in it, to learn what ends there.
        if let Some(agent) = action.agent() {
            let identity = ObjectId::Identity(agent);
            if index::number(overlay, &identity)?.is_none() {
                wanted::want_object(overlay, &identity, sealed.number);
            }
        }
        Ok(Decided::Sealed)
    }

    fn refuse(
        &mut self,
        peer: &PublicKey,
        number: ObjectNumber,
        row: Outgoing,
        action: &Action,
        refusal: &Refusal,
    ) -> Result<Decided, ReadError> {
        let carried = &row.carried;
        let attempt = attempt_hash(&carried.signed);
        if refusal.code == Code::AdmissionInvalid {
            for caller in joiners(peer, action) {
                self.rates().join_failed(&caller);
            }
            let outcome = self.refused_join(action, &carried.object, attempt);
            if row.own {
                let progress = Progress::Refused(outcome.clone());
                outbox::put(&mut self.sequencer.overlay, action, Outgoing { progress, ..row })?;
            }
            return Ok(Decided::Ended(outcome));
        }
        // Failures of this host, and refusals of who is not known here, end nothing.
        let overlay = &mut self.sequencer.overlay;
        let known = match action.agent() {
            Some(agent) => Cells::new(overlay, number).account(&agent)?.is_some(),
            None => false,
        };
        let joins = matches!(action.body, Body::ThreadJoin(..));
        let told = overlay.prefix(Table::Refusals, &number.to_be_bytes(), Order::Rising, REFUSALS_MAX)?.len();
        let passing = matches!(refusal.code, Code::Internal | Code::NotSealing | Code::RateLimited);
        if passing || !(known || joins) || told >= REFUSALS_MAX {
            return Ok(Decided::Waits(refusal.retry_after_ms.unwrap_or(NOT_TAKEN_MS)));
        }
        let head = Cells::new(overlay, number).head()?.ok_or_else(|| ReadError::damaged("a log without a head"))?;
        let details = refusal.details.iter().filter_map(|(name, detail)| detail_of(name, detail)).collect();
        let outcome = Outcome {
            schema: SCHEMA,
            request: action.request(),
            attempt,
            object: carried.object,
            epoch: head.epoch,
            index: head.index,
            head: head.hash,
            log_time: head.log_time.max(self.now),
            result: OutcomeResult::Refused(refusal.code.name().to_owned(), details),
        };
        let outcome: ByteVec = cose::sign(RecordKind::Outcome, &cbor::write(&outcome), &self.keyring.host).into();
        let told = ToldRefusal { outcome: outcome.clone(), request: action.request(), expires_at: action.expires_at };
        overlay.put(Table::Refusals, refusal_key(number, &attempt), cbor::write(&told));
        if row.own {
            outbox::put(overlay, action, Outgoing { progress: Progress::Refused(outcome.clone()), ..row })?;
        } else if outbox::get(overlay, &carried.object, &action.request())?.is_some() {
            outbox::remove(overlay, &carried.object, &action.request())?;
            forget::drop_unsealed(overlay, action)?;
        }
        self.retries = true;
        Ok(Decided::Ended(outcome))
    }

    /// Whether something that an action names is not decided yet, so that it waits.
    fn waits_for(&self, number: ObjectNumber, action: &Action, outcomes: &[ByteVec]) -> Result<bool, ReadError> {
        let state = &self.sequencer.overlay;
        let shown = self.shown_ended(number, outcomes)?;
        for request in action.needs.iter().chain(&action.after) {
            if index::is_sealed_in(state, request, number)? || state.get(Table::Outcomes, request.as_bytes())?.is_some()
            {
                continue;
            }
            if shown.contains(request) {
                continue;
            }
            let mut refused = match log::object(state, number)? {
                Some(object) => outbox::get(state, &object, request)?.is_some_and(|row| !row.is_pending()),
                None => false,
            };
            for (_, told) in state.prefix(Table::Refusals, &number.to_be_bytes(), Order::Rising, REFUSALS_MAX)? {
                let told: ToldRefusal = cbor::read_own(&told).map_err(|_| ReadError::damaged("a refusal"))?;
                refused |= told.request == *request;
            }
            if !refused {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Requests that one of the log's sequencers ended without a fact, by the outcomes that came along.
    fn shown_ended(&self, number: ObjectNumber, outcomes: &[ByteVec]) -> Result<Vec<RequestId>, ReadError> {
        let cells = Cells::new(&self.sequencer.overlay, number);
        let mut ended = Vec::new();
        for signed in outcomes.iter().take(2 * LINKS_MAX) {
            let Ok(payload) = cose::payload(RecordKind::Outcome, signed) else { continue };
            let Ok(outcome) = cbor::read_lenient::<Outcome>(payload) else { continue };
            let Some(epoch) = cells.epoch(outcome.epoch)? else { continue };
            if cose::verify(RecordKind::Outcome, signed, &epoch.sequencer).is_ok() {
                ended.push(outcome.request);
            }
        }
        Ok(ended)
    }

    /// Passes an action on: it is kept until its sequencer can be reached, if it is of a member of the log and may be read
    /// by whoever brought it.
    fn pass_on(
        &mut self,
        peer: &PublicKey,
        number: ObjectNumber,
        row: Outgoing,
        action: &Action,
        contents: &[Content],
    ) -> Result<Option<Verdict>, ReadError> {
        let attempt = attempt_hash(&row.carried.signed);
        let state = &self.sequencer.overlay;
        let cells = Cells::new(state, number);
        // What ended it is known here already.
        if index::is_sealed_in(state, &action.request(), number)? {
            return self.sealed_for(peer, number, action);
        }
        if let Some(kept) = outbox::get(state, &row.carried.object, &action.request())?
            && kept.carried.signed == row.carried.signed
        {
            return Ok(match kept.progress {
                Progress::Refused(outcome) => Some(Verdict::Ended(outcome, Vec::new())),
                Progress::Pending | Progress::Expired => Some(Verdict::PassedOn(attempt)),
            });
        }
        // One of another epoch is void.
        let epoch = cells.head()?.map(|head| head.epoch);
        if action.position.map(|position| position.epoch) != epoch {
            return Ok(None);
        }
        let Some(agent) = action.agent() else { return Ok(None) };
        let Some(account) = cells.account(&agent)? else { return Ok(None) };
        let member = cells.member(&agent)?.is_some();
        let signed = action.actor;
        let kwoon_ledger::action::Actor::Agent(_, instance) = signed else { return Ok(None) };
        let verified = account.instance(instance).is_some_and(|instance| {
            cose::verify(RecordKind::Action, &row.carried.signed, &instance.signing_key).is_ok()
        });
        if !member || !verified || cells.readers(peer)? == 0 {
            return Ok(None);
        }
        let kept = self.keep_carried(number, row, action, contents)?;
        Ok(kept.then_some(Verdict::PassedOn(attempt)))
    }

    /// Keeps an action of another host's agent, with the contents that agents here may read.
    fn keep_carried(
        &mut self,
        number: ObjectNumber,
        row: Outgoing,
        action: &Action,
        contents: &[Content],
    ) -> Result<bool, ReadError> {
        let overlay = &mut self.sequencer.overlay;
        let agent = action.agent();
        // Nothing is kept of who is no member.
        if !agent.map_or(Ok(false), |agent| Cells::new(overlay, number).member(&agent).map(|m| m.is_some()))? {
            return Ok(false);
        }
        if outbox::of_object(overlay, &row.carried.object, PASSED_ON_MAX)?.len() >= PASSED_ON_MAX {
            return Ok(false);
        }
        let given: BTreeMap<Digest, &Content> =
            contents.iter().map(|content| (content.commitment().hash, content)).collect();
        let mut needed = Vec::new();
        action.body.contents(|commitment| needed.push(*commitment));
        for commitment in needed {
            if let Some(content) = given.get(&commitment.hash)
                && content.commitment() == commitment
            {
                overlay.put_content(&commitment, content.salt, content.bytes.to_vec());
            }
        }
        outbox::put(overlay, action, row)?;
        Ok(true)
    }

    /// Decides what is in the outbox for logs that this host orders, where what it waited for has come.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn try_carried(&mut self) -> Result<(), ReadError> {
        let own = self.own_host();
        while std::mem::take(&mut self.retries) {
            let mut from = 0;
            loop {
                let page = outbox::since(&self.sequencer.overlay, from, PASSED_ON_MAX)?;
                let Some(last) = page.last().map(|row| row.order) else { break };
                from = last.saturating_add(1);
                for row in page.into_iter().filter(Outgoing::is_pending) {
                    let state = &self.sequencer.overlay;
                    let Some(number) = index::number(state, &row.carried.object)? else { continue };
                    if !log::is_ordered_by(state, &own, number)? {
                        continue;
                    }
                    let Some(head) = Cells::new(state, number).head()? else { continue };
                    let action = row.carried.action()?;
                    self.decide_carried(&own, number, &head, row, &action, &[])?;
                }
            }
        }
        Ok(())
    }

    // ---------------------------------------------------------------------------------------------------- words and voices

    /// The sequencer's word on how far a log's time is: a seal of its head, given again.
    fn word(&mut self, peer: &PublicKey, object: &ObjectId) -> Result<Received, ReadError> {
        let own = self.own_host();
        let state = &self.sequencer.overlay;
        let Some(number) = index::number(state, object)? else { return Ok(Received::default()) };
        let cells = Cells::new(state, number);
        let orders = log::is_ordered_by(state, &own, number)?;
        if !orders || cells.readers(peer)? == 0 || !self.is_sealing() || self.is_waiting(number) {
            return Ok(Received::default());
        }
        let recent = last_seal(state, number)?.is_some_and(|seal| seal.log_time.after(WORD_AGE_MAX) >= self.now);
        if !recent {
            self.sequencer.state_again(number)?;
        }
        let state = &self.sequencer.overlay;
        let Some(head) = Cells::new(state, number).head()? else { return Ok(Received::default()) };
        let seals = last_seal_record(state, number)?.into_iter().map(ByteVec::from).collect();
        Ok(Received::say(Message::Facts(Facts {
            object: *object,
            from: head.index.saturating_add(1),
            facts: Vec::new(),
            seals,
            contents: Vec::new(),
            changes: None,
        })))
    }

    /// Begins to hand a log over to another host: this host's voice, which the other is to answer.
    ///
    /// # Errors
    /// [`Code::BadReference`] if the other may not read it; [`Code::VersionConflict`] if another change is under way.
    pub(crate) fn offer_handover(&mut self, number: ObjectNumber, next_host: PublicKey) -> Result<(), Stop> {
        let state = &self.sequencer.overlay;
        let head = Cells::new(state, number).head()?.ok_or(Code::Internal)?;
        if Cells::new(state, number).readers(&next_host)? == 0 || next_host == head.sequencer {
            return Err(Code::BadReference.into());
        }
        let next_epoch = head.epoch.checked_add(1).ok_or(Code::Internal)?;
        match voice(state, &head.object)? {
            Some(voice) if voice.next_epoch == next_epoch && voice.next_host != next_host => {
                return Err(Code::VersionConflict.into());
            }
            Some(voice) if voice.next_epoch == next_epoch => return Ok(()),
            _ => {}
        }
        self.speak(&head, next_epoch, next_host);
        Ok(())
    }

    /// Signs a voice for a change of sequencer, and notes it: nobody speaks twice for one epoch.
    fn speak(&mut self, head: &Head, next_epoch: u64, next_host: PublicKey) -> ByteVec {
        let statement = EpochStatement {
            schema: SCHEMA,
            object: head.object,
            next_epoch,
            next_host,
            reason: EpochReason::Handover,
            index: head.index,
            head: head.hash,
            signer: Signer::Host(self.own_host()),
        };
        let signed: ByteVec = cose::sign(RecordKind::Epoch, &cbor::write(&statement), &self.keyring.host).into();
        let voice = Voice { next_epoch, next_host, signed: signed.clone() };
        self.sequencer.overlay.put(Table::Meta, voice_key(&head.object), cbor::write(&voice));
        signed
    }

    fn give_voice(&mut self, peer: &PublicKey, signed: &ByteVec) -> Result<Received, ReadError> {
        let own = self.own_host();
        let Ok(asked) = read_statement(signed, peer) else { return Ok(Received::fault("a voice that is not its own")) };
        let state = &self.sequencer.overlay;
        let Some(number) = index::number(state, &asked.object)? else { return Ok(Received::default()) };
        let cells = Cells::new(state, number);
        let Some(head) = cells.head()?.filter(|head| head.sequencer == *peer) else { return Ok(Received::default()) };
        let fits = Some(asked.next_epoch) == head.epoch.checked_add(1)
            && asked.next_host == own
            && asked.reason == EpochReason::Handover
            && cells.readers(&own)? > 0;
        if !fits {
            return Ok(Received::default());
        }
        let signed = match voice(state, &asked.object)? {
            Some(voice) if voice.next_epoch == asked.next_epoch && voice.next_host != own => {
                return Ok(Received::default());
            }
            Some(voice) if voice.next_epoch == asked.next_epoch => voice.signed,
            _ => self.speak(&head, asked.next_epoch, own),
        };
        Ok(Received::say(Message::Voice(signed)))
    }

    fn take_voice(&mut self, peer: &PublicKey, signed: &ByteVec) -> Result<Received, ReadError> {
        let Ok(given) = read_statement(signed, peer) else { return Ok(Received::fault("a voice that is not its own")) };
        let own = self.own_host();
        let state = &self.sequencer.overlay;
        let Some(number) = index::number(state, &given.object)? else { return Ok(Received::default()) };
        let orders = log::is_ordered_by(state, &own, number)?;
        let head = Cells::new(state, number).head()?.filter(|_| orders);
        let (Some(head), Some(voice)) = (head, voice(state, &given.object)?) else { return Ok(Received::default()) };
        if given.next_host != *peer || (given.next_epoch, given.next_host) != (voice.next_epoch, voice.next_host) {
            return Ok(Received::default());
        }
        if !self.is_sealing() {
            return Ok(Received::default());
        }
        let change = EpochChange {
            next_epoch: voice.next_epoch,
            continues_at: head.index,
            head: head.hash,
            next_host: voice.next_host,
            reason: EpochReason::Handover,
            rules: RULES,
            statements: vec![voice.signed, signed.clone()],
        };
        match self.sequencer.hand_over(number, change) {
            Ok(()) => Ok(Received::default()),
            Err(Stop::Unreadable(error)) => Err(error),
            Err(Stop::Refused(_)) => Ok(Received::fault("a voice that does not fit the log")),
        }
    }
}

/// Who counts as having tried to join: the agent, and the host that it came through.
fn joiners(peer: &PublicKey, action: &Action) -> Vec<[u8; 32]> {
    action.agent().map(|agent| *agent.as_bytes()).into_iter().chain([peer.0]).collect()
}

/// A detail of a refusal as it is signed. Names alone, and never what a participant wrote.
fn detail_of(name: &'static str, detail: &Detail) -> Option<RefusalDetail> {
    use kwoon_ledger::fact::DetailValue;
    let value = match detail {
        Detail::Word(word) => DetailValue::Text((*word).to_owned()),
        Detail::Text(text) => DetailValue::Text(text.clone()),
        Detail::Number(number) => DetailValue::Number(*number),
    };
    Some(RefusalDetail { name: name.to_owned(), value })
}

/// What was folded of a message.
#[derive(Default)]
struct Folded<'f> {
    /// The last index, if any fact was.
    last: Option<u64>,
    /// A record that this version does not know.
    unknown: Option<(RecordType, &'f [u8], Reason)>,
    /// Whether facts are held back.
    held_back: bool,
}

/// Folds facts up to the last seal that covers them. What no seal covers, and whatever follows on a fault, is left.
fn fold<'f>(
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
    for (sealed, record) in seals {
        if sealed.saturating_add(1) < at {
            continue;
        }
        let mut segment = Overlay::new(layer);
        while at <= sealed {
            let place = usize::try_from(at - facts.from).unwrap_or(usize::MAX);
            let Some(bytes) = facts.facts.get(place) else { return Ok(folded) };
            if Fact::read(bytes).is_ok_and(|fact| replica::is_ahead(&fact, now)) {
                // Held back: by this host's clock it lies in the future. It comes again.
                *fault = Some("a fact lies more than 10 minutes in the future");
                folded.held_back = true;
                return Ok(folded);
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

fn rejected(rejection: Rejection) -> &'static str {
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

/// Keeps what agents here may read of a fact, of what was given; what is missing is noted.
fn settle_contents(
    overlay: &mut Overlay<'_>,
    number: ObjectNumber,
    index: u64,
    own: &PublicKey,
    given: &BTreeMap<Digest, &Content>,
) -> Result<(), ReadError> {
    let mut missing = false;
    for commitment in reach::contents(overlay, number, index, own)? {
        match given.get(&commitment.hash).filter(|content| content.commitment() == commitment) {
            Some(content) => overlay.put_content(&commitment, content.salt, content.bytes.to_vec()),
            None => missing |= overlay.content(&commitment.hash)?.is_none(),
        }
    }
    if missing || !wanted_none(overlay, number, index)? {
        wanted::set_contents(overlay, number, index, missing);
    }
    Ok(())
}

fn wanted_none(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<bool, ReadError> {
    let before = index.checked_sub(1).map(|before| (number, before));
    let after = before.or_else(|| number.checked_sub(1).map(|number| (number, u64::MAX)));
    Ok(!wanted::contents(read, after, 1)?.contains(&(number, index)))
}

/// Another's publications that a fact refers to, where they are not here.
fn want_referred(overlay: &mut Overlay<'_>, number: ObjectNumber, index: u64) -> Result<(), ReadError> {
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

/// Who ordered a log in which epoch, from one epoch and its sequencer on, as far as it is shown.
fn followed(from: (u64, PublicKey), object: &ObjectId, moves: &[SealedOutcome]) -> Vec<(u64, PublicKey)> {
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
/// hosts that a ticket named.
fn sequencers(
    read: &dyn Read,
    object: &ObjectId,
    epoch: u64,
    (row, moves): (&Outgoing, &[SealedOutcome]),
) -> Result<Vec<PublicKey>, ReadError> {
    if let Some(number) = index::number(read, object)?
        && let Some(epoch) = Cells::new(read, number).epoch(epoch)?
    {
        // A host that a ticket named may answer for a thread that it does not have.
        return Ok([epoch.sequencer].into_iter().chain(row.hosts.iter().copied()).collect());
    }
    let mut hosts = row.hosts.clone();
    let mut from = Vec::new();
    for host in &row.hosts {
        // A host that a ticket named ordered the log when the ticket was made, in whatever epoch that was.
        let began = moves.iter().take(MOVES_MAX).find_map(|moved| moved.verify(host).ok());
        from.push((began.map_or(0, |(fact, _)| fact.epoch), *host));
    }
    from.extend(forget::ended_of(read, object)?.iter().map(|ended| (ended.epoch, ended.sequencer)));
    for from in from {
        let known = followed(from, object, moves);
        hosts.extend(known.iter().filter(|(at, _)| *at == epoch).map(|(_, host)| *host));
    }
    Ok(hosts)
}

/// The last seal of a log, as it is stored.
///
/// # Errors
/// If the store cannot be read.
pub fn last_seal_record(read: &dyn Read, number: ObjectNumber) -> Result<Option<Vec<u8>>, ReadError> {
    let rows = read.prefix(Table::Seals, &number.to_be_bytes(), Order::Falling, 1)?;
    Ok(rows.into_iter().next().map(|(_, record)| record))
}

fn last_seal(read: &dyn Read, number: ObjectNumber) -> Result<Option<Seal>, ReadError> {
    let record = last_seal_record(read, number)?;
    record.map(|record| Seal::read(&record).map_err(|_| ReadError::damaged("a seal"))).transpose()
}

/// The facts by which a log's sequencers followed each other before an epoch.
///
/// # Errors
/// If the store cannot be read.
pub fn moves(read: &dyn Read, number: ObjectNumber, epoch: u64) -> Result<Vec<SealedOutcome>, ReadError> {
    let cells = Cells::new(read, number);
    let mut moves = Vec::new();
    for epoch in epoch.saturating_sub(MOVES_MAX as u64)..epoch {
        if let Some(ends) = cells.epoch(epoch)?.and_then(|epoch| epoch.ends) {
            moves.extend(log::outcome(read, number, ends)?);
        }
    }
    Ok(moves)
}

/// The hash of a fact in a log here.
///
/// # Errors
/// If the store cannot be read.
pub fn hash_of(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<Digest, ReadError> {
    Ok(fact_hash(&log::fact_bytes(read, number, index)?))
}

/// Whether limits of this host leave room for one more own action without an outcome.
///
/// # Errors
/// If the store cannot be read.
pub fn has_room(read: &dyn Read, agent: &AgentId, limits: &Limits) -> Result<bool, ReadError> {
    let most = usize::try_from(limits.outbox_max).unwrap_or(usize::MAX);
    Ok(outbox::count_of(read, agent, most)? < most)
}
