//! Who may have what: how far another host may read a log, and which contents of it (section 9, design: who may hold what).
//! Both sides of a session ask the same functions, one of itself.

use kwoon_keys::id::AgentId;
use kwoon_keys::{Commitment, PublicKey};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::effect::{Effect, Exit};
use kwoon_ledger::index::{self, IdKind, List, Place};
use kwoon_ledger::log;
use kwoon_ledger::state::{Cells, ObjectNumber, Reach};
use kwoon_ledger::storage::{Read, ReadError};
use kwoon_ledger::visibility;

use crate::wire::Item;

/// Two hosts, and whether either side's owner added the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// This host.
    pub own: PublicKey,
    /// The other.
    pub peer: PublicKey,
    /// Whether either added the other: then they know each other's agents and publications.
    pub related: bool,
}

/// How far the other host may read a log.
///
/// # Errors
/// If the store cannot be read.
pub fn reach(read: &dyn Read, pair: &Pair, number: ObjectNumber) -> Result<Reach, ReadError> {
    let cells = Cells::new(read, number);
    let direct = cells.reach(&pair.peer)?;
    if direct == Reach::Whole {
        return Ok(direct);
    }
    let Some(head) = cells.head()? else { return Ok(Reach::Nothing) };
    let is_ours = pair.related && head.sequencer == pair.own;
    let indirect = match head.object {
        ObjectId::Identity(agent) => is_ours || orders_thread_of(read, &agent, &pair.peer)?,
        ObjectId::Publication(_) => is_ours || is_referred_to(read, &cells, pair)?,
        _ => false,
    };
    Ok(if indirect { Reach::Whole } else { direct })
}

/// Whether a host orders a thread of which an agent is a member: then it has to know who may act for it.
fn orders_thread_of(read: &dyn Read, agent: &AgentId, host: &PublicKey) -> Result<bool, ReadError> {
    let (owner, arrivals) = (index::owner(agent), log::next_arrival(read)?);
    let mut cursor = None;
    loop {
        let (page, next) = index::list_page::<ObjectNumber>(read, List::Threads, &owner, cursor, 64, arrivals)?;
        for number in page {
            if Cells::new(read, number).head()?.is_some_and(|head| head.sequencer == *host) {
                return Ok(true);
            }
        }
        cursor = next;
        if cursor.is_none() {
            return Ok(false);
        }
    }
}

/// Whether a log that both hosts may read refers to the memory of this publication.
fn is_referred_to(read: &dyn Read, publication: &Cells<'_>, pair: &Pair) -> Result<bool, ReadError> {
    let memory = publication.publication()?.memory;
    let mut from = 0;
    loop {
        let page = index::pinned_in(read, &memory, from, 64)?;
        for number in &page {
            let cells = Cells::new(read, *number);
            if cells.readers(&pair.peer)? > 0 && cells.readers(&pair.own)? > 0 {
                return Ok(true);
            }
        }
        match page.last() {
            Some(last) if page.len() == 64 => from = last + 1,
            _ => return Ok(false),
        }
    }
}

/// Where a log stands, as it is told.
///
/// # Errors
/// If the store cannot be read.
pub fn item(read: &dyn Read, number: ObjectNumber) -> Result<Option<Item>, ReadError> {
    let Some(head) = Cells::new(read, number).head()? else { return Ok(None) };
    // After a fact that ended an epoch the head is of the next one, whose first fact is still to come.
    Ok(Some(Item { object: head.object, epoch: head.epoch, index: head.index, head: head.hash }))
}

/// The same for a host whose right ended with the fact of an index: of what came after it is told nothing.
///
/// # Errors
/// If the store cannot be read.
pub fn item_until(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<Option<Item>, ReadError> {
    let Some(head) = Cells::new(read, number).head()? else { return Ok(None) };
    let index = index.min(head.index);
    let Some(hash) = log::head_at(read, number, &head, index)? else { return Ok(None) };
    let epoch = log::fact(read, number, index)?.epoch;
    Ok(Some(Item { object: head.object, epoch, index, head: hash }))
}

/// From which fact on the other host is asked for a log: from the next one, but it does not learn how far a log goes here
/// that it may not read to its end.
///
/// # Errors
/// If the store cannot be read.
pub fn asks_from(read: &dyn Read, pair: &Pair, object: &ObjectId) -> Result<u64, ReadError> {
    let Some(number) = index::number(read, object)? else { return Ok(0) };
    let Some(head) = Cells::new(read, number).head()? else { return Ok(0) };
    let next = head.index.saturating_add(1);
    Ok(match reach(read, pair, number)? {
        Reach::Whole => next,
        Reach::Ended(index) => index.saturating_add(1).min(next),
        Reach::Nothing => 0,
    })
}

/// Where all logs stand that both hosts may read and one of them is the home of, in the order of their ids. Both hosts
/// count the same ones, once they hold the same logs.
///
/// # Errors
/// If the store cannot be read.
pub fn shared(read: &dyn Read, pair: &Pair) -> Result<Vec<Item>, ReadError> {
    let mirrored = Pair { own: pair.peer, peer: pair.own, related: pair.related };
    let mut numbers = Vec::new();
    for number in index::hosted(read, &pair.peer, 0, usize::MAX)? {
        if Cells::new(read, number).readers(&pair.own)? > 0 {
            numbers.push(number);
        }
    }
    for kind in [IdKind::Agent, IdKind::Publication] {
        for place in index::places(read, kind)? {
            let Place::Log(number) = place else { continue };
            let cells = Cells::new(read, number);
            let is_home = cells.readers(&pair.own)? > 0 || cells.readers(&pair.peer)? > 0;
            let whole = |pair| Ok::<_, ReadError>(reach(read, pair, number)? == Reach::Whole);
            if is_home && whole(pair)? && whole(&mirrored)? {
                numbers.push(number);
            }
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    let mut items = Vec::with_capacity(numbers.len());
    for number in numbers {
        items.extend(item(read, number)?);
    }
    items.sort_by_cached_key(Item::id);
    Ok(items)
}

/// What agents on a host may read of a fact: commitments to contents, notes of handled responses too.
///
/// # Errors
/// If the store cannot be read.
pub fn contents(
    read: &dyn Read,
    number: ObjectNumber,
    index: u64,
    host: &PublicKey,
) -> Result<Vec<Commitment>, ReadError> {
    let readers = Cells::new(read, number).readers(host)? > 0;
    contents_as(read, number, index, host, readers)
}

/// The same, where it is known whether agents on the host may read the log, or will once more of it is here.
///
/// # Errors
/// If the store cannot be read.
pub fn contents_as(
    read: &dyn Read,
    number: ObjectNumber,
    index: u64,
    host: &PublicKey,
    readers: bool,
) -> Result<Vec<Commitment>, ReadError> {
    let cells = Cells::new(read, number);
    let Some(head) = cells.head()? else { return Ok(Vec::new()) };
    let effects = log::effects(read, number, index)?;
    let mut readable = Vec::new();
    match head.object {
        ObjectId::Thread(_) if readers => {
            let lives = |agent: &AgentId| Ok::<_, ReadError>(cells.account(agent)?.is_some_and(|a| a.lives_on(host)));
            for effect in &effects {
                match effect {
                    Effect::EntryPosted(posted) => {
                        let entry = cells.entry(posted.entry)?.ok_or_else(|| ReadError::damaged("an entry"))?;
                        if visibility::entry_text(read, &entry)? {
                            readable.push(posted.pin.text.commitment);
                        }
                        readable.extend(posted.summary);
                    }
                    // V5
                    Effect::ObligationEnded(obligation, Exit::Handled(Some(note))) => {
                        let author = cells.entry(obligation.entry)?.map(|entry| entry.author);
                        if lives(&obligation.bearer)? || author.is_some_and(|author| lives(&author).unwrap_or(false)) {
                            readable.push(*note);
                        }
                    }
                    _ => effect.contents(|commitment| readable.push(*commitment)),
                }
            }
        }
        // M2, ID.1: versions of a memory are its author's, and so is what an identity says of itself.
        ObjectId::Memory(_) | ObjectId::Identity(_) if readers => {
            effects.iter().for_each(|effect| effect.contents(|commitment| readable.push(*commitment)));
        }
        // V1: of a public memory the current version.
        ObjectId::Publication(_) => {
            let publication = cells.publication()?;
            if publication.current.is_some() && publication.index == index {
                effects.iter().for_each(|effect| effect.contents(|commitment| readable.push(*commitment)));
            }
        }
        _ => {}
    }
    Ok(readable)
}
