//! What is given of a log at once: facts up to a seal with the contents that the other may read, or the end of its right.

use kwoon_keys::PublicKey;
use kwoon_ledger::limits::LATER_MAX;
use kwoon_ledger::log;
use kwoon_ledger::state::{Cells, ObjectNumber, number_at_end};
use kwoon_ledger::storage::{Order, Read, ReadError, Table};
use minicbor::bytes::ByteVec;

use crate::intake::{self, hash_of};
use crate::reach;
use crate::wire::{Content, Ending, FACTS_MAX, Facts};

/// Facts of one message, if a seal ends them.
const CHUNK_FACTS: usize = 256;
/// Bytes of facts and contents of one message, if a seal ends them.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes beyond which a message is ended by the seal before.
const BYTES_MAX: usize = 64 << 20;
/// Hashes between what a host has and the fact that ended its right, at most.
const BETWEEN_MAX: u64 = 1 << 20;

/// Facts of a log from an index on up to a seal, with how many bytes they and their contents are; nothing if there are none
/// under a seal.
pub(super) fn facts_of(
    read: &dyn Read,
    number: ObjectNumber,
    from: u64,
    peer: &PublicKey,
) -> Result<Option<(Facts, usize)>, ReadError> {
    let Some(object) = log::object(read, number)? else { return Ok(None) };
    let Some(head) = Cells::new(read, number).head()? else { return Ok(None) };
    let mut whole = Facts { object, from, facts: Vec::new(), seals: Vec::new(), contents: Vec::new(), changes: None };
    let (mut length, mut at) = (0, from);
    let mut enough = false;
    while !enough && at <= head.index {
        // The next seal, and what it covers.
        let mut facts = Vec::new();
        let mut contents = Vec::new();
        let mut segment = 0;
        let mut index = at;
        let seal = loop {
            let bytes = log::fact_bytes(read, number, index)?;
            let fact = log::fact(read, number, index)?;
            segment += bytes.len();
            // Who acted has what it wrote.
            let is_theirs = match log::action_of(&fact).and_then(|action| action.agent()) {
                Some(agent) => Cells::new(read, number).account(&agent)?.is_some_and(|a| a.lives_on(peer)),
                None => false,
            };
            if !is_theirs {
                for content in contents_of(read, number, index, peer)? {
                    segment += content.bytes.len();
                    contents.push(content);
                }
            }
            facts.push(ByteVec::from(bytes));
            let key = log::seal_key(number, fact.epoch, index);
            if let Some(seal) = read.get(Table::Seals, &key)? {
                // Seals between are left out where more follows in the same epoch.
                break Some((index, seal));
            }
            if index == head.index || whole.facts.len() + facts.len() >= FACTS_MAX || length + segment > BYTES_MAX {
                break None;
            }
            index += 1;
        };
        let Some((sealed, seal)) = seal else { break };
        whole.facts.extend(facts);
        whole.contents.extend(contents);
        length += segment;
        // One seal is enough for what an epoch holds, but the last of each epoch is its own sequencer's.
        let ends_epoch = sealed == head.index || epoch_ends(read, number, sealed)?;
        at = sealed + 1;
        enough = whole.facts.len() >= CHUNK_FACTS || length >= CHUNK_BYTES || at > head.index;
        if enough || ends_epoch {
            whole.seals.push(seal.into());
        }
    }
    Ok((!whole.facts.is_empty()).then_some((whole, length)))
}

fn epoch_ends(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<bool, ReadError> {
    let epoch = log::fact(read, number, index)?.epoch;
    Ok(Cells::new(read, number).epoch(epoch)?.is_some_and(|epoch| epoch.ends == Some(index)))
}

/// The contents of a fact that agents of a host may read, as far as they are here.
pub(super) fn contents_of(
    read: &dyn Read,
    number: ObjectNumber,
    index: u64,
    peer: &PublicKey,
) -> Result<Vec<Content>, ReadError> {
    let mut contents = Vec::new();
    for commitment in reach::contents(read, number, index, peer)? {
        if let Some((salt, bytes)) = read.content(&commitment.hash)? {
            contents.push(Content { salt, bytes: bytes.into() });
        }
    }
    Ok(contents)
}

/// The fact that ended a host's right, for one that has what comes before an index.
pub(super) fn ending_of(
    read: &dyn Read,
    number: ObjectNumber,
    from: u64,
    index: u64,
) -> Result<Option<Ending>, ReadError> {
    let Some(object) = log::object(read, number)? else { return Ok(None) };
    if index.saturating_sub(from) > BETWEEN_MAX || later(read, number, index)? > LATER_MAX as u64 {
        return Ok(None);
    }
    let mut between = Vec::new();
    for index in from..index {
        between.push(hash_of(read, number, index)?);
    }
    let epoch = log::fact(read, number, index)?.epoch;
    let moves = intake::moves(read, number, epoch)?;
    let outcome = log::outcome(read, number, index)?;
    Ok(outcome.map(|outcome| Ending { object, from, between, outcome, moves }))
}

/// How many facts lie between a fact and the seal that covers it.
fn later(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<u64, ReadError> {
    let epoch = log::fact(read, number, index)?.epoch;
    let (from, to) = (log::seal_key(number, epoch, index), log::seal_key(number, epoch, u64::MAX));
    let rows = read.range(Table::Seals, &from, &to, Order::Rising, 1)?;
    let Some((key, _)) = rows.first() else { return Ok(0) };
    Ok(number_at_end(key)?.saturating_sub(index))
}
