//! The sequencer's word on a log, and the voices by which it is handed over.

use kwoon_keys::{PublicKey, RecordKind, cbor, cose};
use kwoon_ledger::action::{ObjectId, SCHEMA};
use kwoon_ledger::fact::{EpochChange, EpochReason, EpochStatement, RULES, Signer};
use kwoon_ledger::index;
use kwoon_ledger::log;
use kwoon_ledger::refusal::{Code, Stop};
use kwoon_ledger::rules::epoch::read_statement;
use kwoon_ledger::state::{Cells, Head, ObjectNumber};
use kwoon_ledger::storage::{Order, Read, ReadError, Table};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::round::Round;
use crate::wire::{Facts, Message};

use super::ended::clear_voice;
use super::*;

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

impl Round<'_> {
    /// The sequencer's word on how far a log's time is: a seal of its head, given again.
    pub(super) fn word(&mut self, peer: &PublicKey, object: &ObjectId) -> Result<Received, ReadError> {
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
    pub(super) fn speak(&mut self, head: &Head, next_epoch: u64, next_host: PublicKey) -> ByteVec {
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

    pub(super) fn give_voice(&mut self, peer: &PublicKey, signed: &ByteVec) -> Result<Received, ReadError> {
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

    pub(super) fn take_voice(&mut self, peer: &PublicKey, signed: &ByteVec) -> Result<Received, ReadError> {
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
            Ok(()) => {
                clear_voice(&mut self.sequencer.overlay, &given.object)?;
                Ok(Received::default())
            }
            Err(Stop::Unreadable(error)) => Err(error),
            Err(Stop::Refused(_)) => Ok(Received::fault("a voice that does not fit the log")),
        }
    }
}
