//! What comes from other hosts, taken into the store: facts that are decided again before they are stored, actions that
//! this host is to decide or to pass on, and what became of its own.
//!
//! Nothing a peer sends is believed, and nothing is kept that nobody here asked for or may read.

mod actions;
mod ended;
mod facts;
mod verdicts;
mod voices;

use kwoon_keys::{Digest, PublicKey};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::fact::{Seal, SealedOutcome, fact_hash};
use kwoon_ledger::forget;
use kwoon_ledger::index;
use kwoon_ledger::log;
use kwoon_ledger::state::{Cells, ObjectNumber, Reach};
use kwoon_ledger::storage::{Order, Read, ReadError, Table};
use kwoon_ledger::time::{Duration, Time};

pub use self::actions::ToldRefusal;
pub use self::voices::{Voice, voice, voice_key, voices};
use crate::peers;
use crate::round::Round;
use crate::wire::{Message, Seen};

/// How long a host that was told "not taken in" waits, unless it is told otherwise.
const NOT_TAKEN_MS: u64 = 1000;
/// Actions of others that are passed on for one object at most.
const PASSED_ON_MAX: usize = 1024;
/// Actions of others that are passed on for one host which brought them at most.
const BROUGHT_MAX: u64 = 4096;
/// Bytes that are kept of such actions, with their contents, for one object and for one host at most.
const PASSED_ON_BYTES_MAX: u64 = 64 << 20;
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
            ended::clear_voice(overlay, object)?;
        }
        Ok(())
    }
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
