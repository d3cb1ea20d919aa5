//! Logs in a store: where facts, seals and effects stand, and how a fact is added.

use alloc::vec::Vec;

use kwoon_keys::id::{AgentId, RequestId};
use kwoon_keys::{Digest, PublicKey, cbor};
use minicbor::bytes::ByteVec;

use crate::action::{Action, ObjectId};
use crate::draft::Draft;
use crate::effect::Effect;
use crate::fact::{Cause, Fact, SealedOutcome, fact_hash, head_hash, running_digest};
use crate::index;
use crate::state::{Head, ObjectNumber, more};
use crate::storage::{Order, Overlay, Read, ReadError, Table};
use crate::time::Time;

/// First byte of the keys under which the effects of facts are kept in the derived table.
const EFFECTS: u8 = 0x07;

const NEXT_OBJECT: &[u8] = b"next_object";
const NEXT_ARRIVAL: &[u8] = b"next_arrival";

fn next(read: &dyn Read, key: &[u8]) -> Result<u64, ReadError> {
    match read.get(Table::Meta, key)? {
        Some(bytes) => crate::state::number_at_end(&bytes),
        None => Ok(0),
    }
}

/// The number that the next new object gets.
///
/// # Errors
/// If the store cannot be read.
pub fn next_object(read: &dyn Read) -> Result<ObjectNumber, ReadError> {
    ObjectNumber::try_from(next(read, NEXT_OBJECT)?).map_err(|_| ReadError::damaged("the number of objects"))
}

/// The arrival number that the next fact gets.
///
/// # Errors
/// If the store cannot be read.
pub fn next_arrival(read: &dyn Read) -> Result<u64, ReadError> {
    let next = next(read, NEXT_ARRIVAL)?;
    // There is one after it, which the next fact notes.
    more(next).map(|_| next)
}

/// The key of a fact.
pub fn fact_key(number: ObjectNumber, index: u64) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.extend_from_slice(&index.to_be_bytes());
    key
}

/// The key of a seal.
pub fn seal_key(number: ObjectNumber, epoch: u64, index: u64) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    key.extend_from_slice(&epoch.to_be_bytes());
    key.extend_from_slice(&index.to_be_bytes());
    key
}

fn effects_key(number: ObjectNumber, index: u64) -> Vec<u8> {
    let mut key = alloc::vec![EFFECTS];
    key.extend_from_slice(&fact_key(number, index));
    key
}

/// The bytes of a fact.
///
/// # Errors
/// If the store cannot be read or the fact is missing.
pub fn fact_bytes(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<Vec<u8>, ReadError> {
    read.get(Table::Log, &fact_key(number, index))?.ok_or_else(|| ReadError::damaged("a fact is missing"))
}

/// The beginning of the keys under which the effects of a log's facts are kept in the derived table.
pub fn effects_prefix(number: ObjectNumber) -> Vec<u8> {
    let mut prefix = alloc::vec![EFFECTS];
    prefix.extend_from_slice(&number.to_be_bytes());
    prefix
}

/// A fact of this host's store.
///
/// # Errors
/// If the store cannot be read or the fact is missing.
pub fn fact(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<Fact, ReadError> {
    let bytes = fact_bytes(read, number, index)?;
    cbor::read_own(&bytes).map_err(|_| ReadError::damaged("a fact does not decode"))
}

/// The effects of a fact.
///
/// # Errors
/// If the store cannot be read.
pub fn effects(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<Vec<Effect>, ReadError> {
    let bytes = effect_bytes(read, number, index)?;
    cbor::read_own(&bytes).map_err(|_| ReadError::damaged("effects do not decode"))
}

fn effect_bytes(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<Vec<u8>, ReadError> {
    read.get(Table::Derived, &effects_key(number, index))?.ok_or_else(|| ReadError::damaged("effects are missing"))
}

/// The head hash of a log after the fact with this index.
///
/// # Errors
/// If the store cannot be read.
pub fn head_at(read: &dyn Read, number: ObjectNumber, head: &Head, index: u64) -> Result<Option<Digest>, ReadError> {
    if index == head.index {
        return Ok(Some(head.hash));
    }
    if index > head.index {
        return Ok(None);
    }
    Ok(Some(fact(read, number, index + 1)?.previous))
}

/// The action that a fact seals, if it seals one. It was verified when the fact was folded.
pub fn action_of(fact: &Fact) -> Option<Action> {
    let Cause::Action(signed) = &fact.cause else { return None };
    let payload = kwoon_keys::cose::payload(kwoon_keys::RecordKind::Action, signed).ok()?;
    cbor::read_lenient(payload).ok()
}

/// The records of an agent's identity after a version, as this host knows them: the identity's log.
///
/// # Errors
/// If the store cannot be read.
pub fn identity_records(read: &dyn Read, agent: &AgentId, after: u64) -> Result<Vec<ByteVec>, ReadError> {
    let Some(number) = index::number(read, &ObjectId::Identity(*agent))? else { return Ok(Vec::new()) };
    // Each fact of an identity's log is one record, and the first makes version 1.
    let from = fact_key(number, after);
    let rows = read.range(Table::Log, &from, &fact_key(number, u64::MAX), Order::Rising, usize::MAX)?;
    let mut records = Vec::new();
    for (_, bytes) in rows {
        let fact: Fact = cbor::read_own(&bytes).map_err(|_| ReadError::damaged("a fact does not decode"))?;
        if let Cause::Action(signed) = fact.cause {
            records.push(signed);
        }
    }
    Ok(records)
}

/// The sealed outcome of a fact, to be carried elsewhere; none while no seal covers the fact.
///
/// # Errors
/// If the store cannot be read.
pub fn outcome(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<Option<SealedOutcome>, ReadError> {
    let fact_record = fact_bytes(read, number, index)?;
    let fact: Fact = cbor::read_own(&fact_record).map_err(|_| ReadError::damaged("a fact does not decode"))?;
    let (from, to) = (seal_key(number, fact.epoch, index), seal_key(number, fact.epoch, u64::MAX));
    let seals = read.range(Table::Seals, &from, &to, Order::Rising, 1)?;
    let Some((key, seal)) = seals.into_iter().next() else { return Ok(None) };
    let sealed = crate::state::number_at_end(&key)?;
    let mut later = Vec::new();
    for next in (index..=sealed).skip(1) {
        later.push(fact_hash(&fact_bytes(read, number, next)?));
    }
    let digest_before = match index {
        0 => Digest::default(),
        _ => self::fact(read, number, index - 1)?.digest,
    };
    Ok(Some(SealedOutcome {
        fact: fact_record.into(),
        effects: effect_bytes(read, number, index)?.into(),
        digest_before,
        later,
        seal: seal.into(),
    }))
}

/// Who sealed, or is to seal, the fact with this index.
///
/// # Errors
/// If the store cannot be read.
pub fn sealed_by(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<PublicKey, ReadError> {
    let epoch = fact(read, number, index)?.epoch;
    let epoch = crate::state::Cells::new(read, number).epoch(epoch)?;
    epoch.map(|epoch| epoch.sequencer).ok_or_else(|| ReadError::damaged("an epoch is missing"))
}

/// Whether a host appends to a log here in its present epoch. One that lost the log and has it not back as far as it once
/// went does not: it would give the log another end.
///
/// # Errors
/// If the store cannot be read.
pub fn is_ordered_by(read: &dyn Read, host: &PublicKey, number: ObjectNumber) -> Result<bool, ReadError> {
    let Some(head) = crate::state::Cells::new(read, number).head()? else { return Ok(false) };
    let behind = |end: Option<u64>| end.is_some_and(|end| head.index < end);
    Ok(head.sequencer == *host && !behind(crate::wanted::behind(read, number)?))
}

/// A fact to be added.
pub(crate) struct Addition {
    /// The log.
    pub object: ObjectId,
    /// Where it stands; none before the first fact.
    pub head: Option<Head>,
    /// The fact, all but its running digest.
    pub fact: Fact,
    /// The request that it ends, if it does.
    pub request: Option<RequestId>,
}

/// Closes a draft: the running digest follows from its effects, and the fact, its effects and the new head are added to
/// the draft's layer. Returns the fact's bytes.
///
/// # Errors
/// If the state cannot be read.
pub(crate) fn close(draft: &mut Draft<'_>, mut addition: Addition) -> Result<Vec<u8>, ReadError> {
    let effects = cbor::write(&draft.effects);
    let before = addition.head.as_ref().map(|head| head.digest).unwrap_or_default();
    addition.fact.digest = running_digest(&before, draft.index, &effects);
    let bytes = cbor::write(&addition.fact);
    add(draft, &addition, &bytes, effects)?;
    Ok(bytes)
}

/// Adds a fact whose bytes are given to the draft's layer.
///
/// # Errors
/// If the state cannot be read.
pub(crate) fn add(draft: &mut Draft<'_>, addition: &Addition, bytes: &[u8], effects: Vec<u8>) -> Result<(), ReadError> {
    add_derived(draft, addition, bytes, effects)?;
    let (number, index) = (draft.number, draft.index);
    let overlay = &mut draft.overlay;
    if index == 0 {
        overlay.put(Table::Objects, number.to_be_bytes().to_vec(), cbor::write(&addition.object));
        let next = u64::from(number) + 1;
        overlay.put(Table::Meta, NEXT_OBJECT.to_vec(), next.to_be_bytes().to_vec());
    }
    overlay.put(Table::Log, fact_key(number, index), bytes.to_vec());
    overlay.put(Table::Arrivals, draft.arrival.to_be_bytes().to_vec(), fact_key(number, index));
    overlay.put(Table::Meta, NEXT_ARRIVAL.to_vec(), (draft.arrival + 1).to_be_bytes().to_vec());
    Ok(())
}

/// Adds what follows from a fact beside its effects' own rows: the head, the effects' encoding, the request's index.
///
/// # Errors
/// If the state cannot be read.
pub(crate) fn add_derived(
    draft: &mut Draft<'_>,
    addition: &Addition,
    bytes: &[u8],
    effects: Vec<u8>,
) -> Result<(), ReadError> {
    let fact = &addition.fact;
    let (number, index) = (draft.number, draft.index);
    let (mut epoch, mut sequencer) = (
        fact.epoch,
        match (&fact.opening, &addition.head) {
            (Some(opening), _) => opening.sequencer,
            (None, Some(head)) => head.sequencer,
            (None, None) => unreachable!("the first fact of a log has an opening"),
        },
    );
    for effect in &draft.effects {
        if let Effect::EpochBegan(next, host, _) = effect {
            (epoch, sequencer) = (*next, *host);
        }
    }
    let head = Head {
        object: addition.object,
        rules: fact.opening.as_ref().map_or_else(|| addition.head.as_ref().map_or(0, |head| head.rules), |o| o.rules),
        epoch,
        sequencer,
        index,
        hash: head_hash(&fact.previous, &fact_hash(bytes)),
        digest: fact.digest,
        log_time: fact.log_time,
    };
    draft.set_head(&head, fact.epoch)?;
    let overlay = &mut draft.overlay;
    overlay.put(Table::Derived, effects_key(number, index), effects);
    if let Some(request) = &addition.request {
        index::set_request(overlay, request, number, index);
    }
    Ok(())
}

/// The object of a number.
///
/// # Errors
/// If the store cannot be read.
pub fn object(read: &dyn Read, number: ObjectNumber) -> Result<Option<ObjectId>, ReadError> {
    match read.get(Table::Objects, &number.to_be_bytes())? {
        Some(bytes) => cbor::read_own(&bytes).map(Some).map_err(|_| ReadError::damaged("the list of objects")),
        None => Ok(None),
    }
}

/// The objects from a number on that have a log here, of at most `limit` that ever had one.
///
/// # Errors
/// If the store cannot be read.
pub fn objects(read: &dyn Read, from: ObjectNumber, limit: usize) -> Result<Vec<(ObjectNumber, ObjectId)>, ReadError> {
    let rows = read.range(Table::Objects, &from.to_be_bytes(), &[0xff; 5], Order::Rising, limit)?;
    let mut objects = Vec::with_capacity(rows.len());
    for (key, value) in rows {
        let number: [u8; 4] = key.as_slice().try_into().map_err(|_| ReadError::damaged("the list of objects"))?;
        let object = cbor::read_own(&value).map_err(|_| ReadError::damaged("the list of objects"))?;
        // One that ended for this host has no log here any more.
        if read.get(Table::Ended, &number)?.is_none() {
            objects.push((ObjectNumber::from_be_bytes(number), object));
        }
    }
    Ok(objects)
}

/// Where facts came to this host, from an arrival number on, at most `limit`: arrival number, log and index.
///
/// # Errors
/// If the store cannot be read.
pub fn arrivals(read: &dyn Read, from: u64, limit: usize) -> Result<Vec<(u64, ObjectNumber, u64)>, ReadError> {
    let damaged = || ReadError::damaged("the order of arrival");
    let rows = read.range(Table::Arrivals, &from.to_be_bytes(), &[0xff; 9], Order::Rising, limit)?;
    rows.into_iter()
        .map(|(key, place)| {
            let arrival = key.as_slice().try_into().map_err(|_| damaged())?;
            let (number, index) = place.split_first_chunk().ok_or_else(damaged)?;
            let index = index.try_into().map_err(|_| damaged())?;
            Ok((u64::from_be_bytes(arrival), ObjectNumber::from_be_bytes(*number), u64::from_be_bytes(index)))
        })
        .collect()
}

/// A draft of the next fact of a log, at a time.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn draft<'a>(
    base: &'a Overlay<'_>,
    number: ObjectNumber,
    head: Option<&Head>,
    time: Time,
) -> Result<Draft<'a>, ReadError> {
    let index = head.map_or(Ok(0), |head| more(head.index))?;
    Ok(Draft::new(base, number, index, next_arrival(base)?, time))
}
