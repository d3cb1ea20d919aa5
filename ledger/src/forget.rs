//! What becomes of a thread when the last right to read it has ended on this host: its log and content go; the ends of its
//! own agents' actions stay, and so do their own memories with their content (design: who may hold what).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kwoon_keys::id::{AgentId, RequestId};
use kwoon_keys::{Digest, PublicKey, cbor};
use minicbor::{Decode, Encode};

use crate::action::{Action, Body, EntryPost, ObjectId, Pin, Source};
use crate::effect::{Duty, Effect, Obligation};
use crate::fact::{Fact, Rejection, SealedOutcome};
use crate::index::{self, IdKind, List, Place};
use crate::log;
use crate::outbox;
use crate::state::{Cell, Cells, ObjectNumber, Progress, cell_prefix};
use crate::storage::{Order, Overlay, Read, ReadError, Table, after_prefix};
use crate::wanted;

/// Where a log ended for this host.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ended {
    /// The object.
    #[n(0)]
    pub object: ObjectId,
    /// The epoch of the last fact that was held.
    #[n(1)]
    pub epoch: u64,
    /// Its index.
    #[n(2)]
    pub index: u64,
    /// The head hash there.
    #[n(3)]
    pub head: Digest,
    /// The sequencer of that epoch.
    #[n(4)]
    pub sequencer: PublicKey,
    /// Hosts where it could be read then, as far as they are remembered.
    #[n(5)]
    pub hosts: Vec<PublicKey>,
    /// The head hash of its opening.
    #[n(6)]
    pub opening: Digest,
}

/// Hosts that are remembered of a log that ended.
const HOSTS_MAX: usize = 16;

/// The sealed end of an action whose log this host does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Kept {
    /// The fact, its effects and the way to a seal.
    #[n(0)]
    pub outcome: SealedOutcome,
    /// Who sealed it.
    #[n(1)]
    pub sequencer: PublicKey,
    /// When the fact came to this host, in the order of arrival.
    #[n(2)]
    pub arrival: u64,
}

/// What is kept of a request whose log is not here.
///
/// # Errors
/// If the store cannot be read.
pub fn kept(read: &dyn Read, request: &RequestId) -> Result<Option<Kept>, ReadError> {
    let row = read.get(Table::Kept, request.as_bytes())?;
    row.map(|row| cbor::read_own(&row).map_err(|_| ReadError::damaged("a kept outcome"))).transpose()
}

/// The request of which the fact of an object with this index was kept.
///
/// # Errors
/// If the store cannot be read.
pub fn kept_at(read: &dyn Read, object: &ObjectId, index: u64) -> Result<Option<RequestId>, ReadError> {
    for (key, row) in read.range(Table::Kept, &[], &[0xff; 33], Order::Rising, usize::MAX)? {
        let kept: Kept = cbor::read_own(&row).map_err(|_| ReadError::damaged("a kept outcome"))?;
        let fact = Fact::read(&kept.outcome.fact).map_err(|_| ReadError::damaged("a kept outcome"))?;
        if fact.object == *object && fact.index == index {
            let request = key.try_into().map_err(|_| ReadError::damaged("the key of a kept outcome"))?;
            return Ok(Some(RequestId(Digest(request))));
        }
    }
    Ok(None)
}

/// Logs of an object that ended for this host.
///
/// # Errors
/// If the store cannot be read.
pub fn ended_of(read: &dyn Read, object: &ObjectId) -> Result<Vec<Ended>, ReadError> {
    let rows = read.range(Table::Ended, &[], &[0xff; 5], Order::Rising, usize::MAX)?;
    let mut logs = Vec::new();
    for (_, row) in rows {
        let ended: Ended = cbor::read_own(&row).map_err(|_| ReadError::damaged("the end of a log"))?;
        if ended.object == *object {
            logs.push(ended);
        }
    }
    Ok(logs)
}

/// Where a log of this number ended, if it did.
///
/// # Errors
/// If the store cannot be read.
pub fn ended(read: &dyn Read, number: ObjectNumber) -> Result<Option<Ended>, ReadError> {
    let row = read.get(Table::Ended, &number.to_be_bytes())?;
    row.map(|row| cbor::read_own(&row).map_err(|_| ReadError::damaged("the end of a log"))).transpose()
}

/// Keeps the sealed end of an own action, and makes what it brought forth findable.
///
/// # Errors
/// If the store cannot be read or the outcome does not decode.
pub fn keep(overlay: &mut Overlay<'_>, request: &RequestId, kept: &Kept) -> Result<(), ReadError> {
    // What was kept once stays as it is: lists are in the order in which it first came.
    if self::kept(overlay, request)?.is_some() {
        return Ok(());
    }
    overlay.put(Table::Kept, request.as_bytes().to_vec(), cbor::write(kept));
    set_derived(overlay, request, kept)
}

/// What follows from a kept outcome: its receipt, and the memory that it brought forth.
pub(crate) fn set_derived(overlay: &mut Overlay<'_>, request: &RequestId, kept: &Kept) -> Result<(), ReadError> {
    let damaged = |_: Rejection| ReadError::damaged("a kept outcome");
    index::set_receipt(overlay, request);
    let (fact, effects) = kept.outcome.verify(&kept.sequencer).map_err(damaged)?;
    for effect in &effects {
        if let Effect::EntryPosted(posted) = effect
            && posted.brings_forth
            && posted.request == *request
        {
            let memory = posted.pin.memory;
            let short = memory.0.short();
            // A memory that has a log of its own is found there, and listed by it.
            if matches!(index::find(overlay, IdKind::Memory, &short)?, Some(Place::Log(_))) {
                continue;
            }
            index::set_place(overlay, IdKind::Memory, &short, &Place::Kept(memory, *request));
            let owner = index::owner(&posted.author);
            if !index::list_has(overlay, List::Memories, &owner, &short)? {
                index::list_put(overlay, (List::Memories, &owner, &short), fact.log_time.0, kept.arrival, &memory);
            }
        }
    }
    Ok(())
}

/// Forgets a thread that no agent of this host may read. `own` are the agents of this host.
///
/// # Errors
/// If the store cannot be read.
pub fn forget(overlay: &mut Overlay<'_>, number: ObjectNumber, own: &BTreeSet<AgentId>) -> Result<(), ReadError> {
    let head = Cells::new(overlay, number).head()?.ok_or_else(|| ReadError::damaged("a log without a head"))?;
    let opening = log::head_at(overlay, number, &head, 0)?.unwrap_or_default();
    let mut contents = BTreeSet::new();
    let mut stay = BTreeSet::new();
    let arrivals = arrivals_of(overlay, number)?;
    for index in 0..=head.index {
        let fact = log::fact(overlay, number, index)?;
        let effects = log::effects(overlay, number, index)?;
        let action = log::action_of(&fact);
        let is_own = action.as_ref().and_then(|action| action.agent()).is_some_and(|agent| own.contains(&agent));
        for effect in &effects {
            effect.contents(|commitment| {
                contents.insert(commitment.hash);
            });
            contents.extend(effect.note().map(|note| note.hash));
            stays(overlay, number, effect, own, &mut stay)?;
            clear_places(overlay, effect, number)?;
        }
        let Some(action) = action else { continue };
        let request = action.request();
        // Of an own action everything stays that says what became of it.
        let epoch = Cells::new(overlay, number).epoch(fact.epoch)?;
        let outcome = log::outcome(overlay, number, index)?;
        index::clear_request(overlay, &request, number);
        if let (true, Some(outcome), Some(epoch)) = (is_own, outcome, epoch) {
            let arrival = arrivals.get(usize::try_from(index).unwrap_or(usize::MAX)).copied().unwrap_or(0);
            keep(overlay, &request, &Kept { outcome, sequencer: epoch.sequencer, arrival })?;
        } else {
            index::clear_receipt(overlay, &request)?;
        }
    }
    clear_lists(overlay, number)?;
    for hash in contents.difference(&stay) {
        overlay.drop_content(hash);
    }
    let thread = Cells::new(overlay, number).thread()?;
    index::clear_place(overlay, IdKind::Thread, &thread.thread.0.short());
    let mut hosts = Cells::new(overlay, number).reader_hosts()?;
    for host in &hosts {
        index::set_hosted(overlay, host, number, false);
    }
    hosts.truncate(HOSTS_MAX);
    for (table, prefix) in [
        (Table::Derived, cell_prefix(number)),
        (Table::Derived, log::effects_prefix(number)),
        (Table::Log, number.to_be_bytes().to_vec()),
        (Table::Seals, number.to_be_bytes().to_vec()),
    ] {
        let end = after_prefix(&prefix);
        for (key, _) in overlay.range(table, &prefix, &end, Order::Rising, usize::MAX)? {
            overlay.remove(table, key);
        }
    }
    wanted::clear_log(overlay, number)?;
    // What was passed on for others is not to be read here either.
    for row in outbox::of_object(overlay, &head.object, usize::MAX)? {
        if !row.own {
            let action = row.carried.action()?;
            outbox::remove(overlay, &head.object, &action.request())?;
            drop_unsealed(overlay, &action)?;
        }
    }
    let ended = Ended {
        object: head.object,
        epoch: head.epoch,
        index: head.index,
        head: head.hash,
        sequencer: head.sequencer,
        hosts,
        opening,
    };
    overlay.put(Table::Ended, number.to_be_bytes().to_vec(), cbor::write(&ended));
    Ok(())
}

/// Drops what an own action, whose log is not here, committed to beside the memory that it brought forth and memories of its
/// author's.
///
/// # Errors
/// If the store cannot be read.
pub fn drop_beside(overlay: &mut Overlay<'_>, action: &Action) -> Result<(), ReadError> {
    let mut contents = Vec::new();
    action.body.contents(|commitment| contents.push(commitment.hash));
    contents.extend(action.body.note().map(|note| note.hash));
    let mut stay = Vec::new();
    match &action.body {
        Body::EntryPost(post) => match &post.source {
            Source::New(text) => {
                stay.push(text.commitment.hash);
                stay.extend(post.summary.map(|summary| summary.hash));
            }
            Source::Pinned(pin) if action.agent() == Some(pin.author) || is_referred_to(overlay, pin, None)? => {
                stay.push(pin.text.commitment.hash);
            }
            Source::Pinned(_) => {}
        },
        Body::AssignmentTake(_, Some(output)) | Body::AssignmentDeliver(_, output) => {
            stay.extend(output.memories.iter().map(|pin| pin.text.commitment.hash));
        }
        _ => {}
    }
    for hash in contents.iter().filter(|hash| !stay.contains(hash)) {
        overlay.drop_content(hash);
    }
    Ok(())
}

/// Drops the contents of an action of another host's agent that did not become a fact here: what this request alone commits
/// to, and pinned texts that nothing else here refers to.
///
/// # Errors
/// If the store cannot be read.
pub fn drop_unsealed(overlay: &mut Overlay<'_>, action: &Action) -> Result<(), ReadError> {
    let mut contents = Vec::new();
    action.body.contents(|commitment| contents.push(commitment.hash));
    let output = match &action.body {
        Body::AssignmentTake(_, output) => output.as_ref(),
        Body::AssignmentDeliver(_, output) => Some(output),
        _ => None,
    };
    let posted = match &action.body {
        Body::EntryPost(EntryPost { source: Source::Pinned(pin), .. }) => Some(pin),
        _ => None,
    };
    for pin in output.into_iter().flat_map(|output| &output.memories).chain(posted) {
        if is_referred_to(overlay, pin, None)? {
            contents.retain(|hash| *hash != pin.text.commitment.hash);
        }
    }
    contents.iter().for_each(|hash| overlay.drop_content(hash));
    Ok(())
}

/// The arrival numbers of a log's facts, in the order of the facts.
fn arrivals_of(read: &dyn Read, number: ObjectNumber) -> Result<Vec<u64>, ReadError> {
    let mut arrivals = Vec::new();
    let mut from = 0;
    loop {
        let page = log::arrivals(read, from, 4096)?;
        let Some((last, ..)) = page.last() else { return Ok(arrivals) };
        from = last + 1;
        arrivals.extend(page.iter().filter(|(_, of, _)| *of == number).map(|(arrival, ..)| *arrival));
    }
}

/// Contents of an effect that this host goes on holding: what its own agents wrote into memories of theirs, and what other
/// logs refer to as well.
fn stays(
    read: &dyn Read,
    number: ObjectNumber,
    effect: &Effect,
    own: &BTreeSet<AgentId>,
    stay: &mut BTreeSet<Digest>,
) -> Result<(), ReadError> {
    let mut pinned = |pin: &Pin| -> Result<(), ReadError> {
        if own.contains(&pin.author) || is_referred_to(read, pin, Some(number))? {
            stay.insert(pin.text.commitment.hash);
        }
        Ok(())
    };
    match effect {
        Effect::EntryPosted(posted) => {
            pinned(&posted.pin)?;
            // The summary of an entry is that of the memory which it brought forth.
            if posted.brings_forth && own.contains(&posted.author) {
                stay.extend(posted.summary.map(|summary| summary.hash));
            }
        }
        Effect::AssignmentDelivered(_, output, _) => output.memories.iter().try_for_each(pinned)?,
        _ => {}
    }
    Ok(())
}

/// Whether anything here refers to a text of a memory, a log aside: the memory's own log or publication, or another log that
/// pins it.
fn is_referred_to(read: &dyn Read, pin: &Pin, but: Option<ObjectNumber>) -> Result<bool, ReadError> {
    let publication = ObjectId::Publication(crate::rules::memory::publication_id(&pin.memory));
    let mut logs: BTreeSet<ObjectNumber> = index::number(read, &publication)?.into_iter().collect();
    match index::find(read, IdKind::Memory, &pin.memory.0.short())? {
        Some(Place::Log(number) | Place::Born(number, ..)) => {
            logs.insert(number);
        }
        Some(Place::Kept(..)) => return Ok(true),
        Some(Place::Assignment(..)) | None => {}
    }
    logs.extend(index::pinned_in(read, &pin.memory, 0, usize::MAX)?);
    for number in logs.into_iter().filter(|number| Some(*number) != but) {
        if commits_to(read, number, &pin.text.commitment.hash)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a log commits to a content.
fn commits_to(read: &dyn Read, number: ObjectNumber, hash: &Digest) -> Result<bool, ReadError> {
    let Some(head) = Cells::new(read, number).head()? else { return Ok(false) };
    for index in 0..=head.index {
        let mut commits = false;
        for effect in log::effects(read, number, index)? {
            effect.contents(|commitment| commits |= commitment.hash == *hash);
        }
        if commits {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Ids that an effect made findable.
fn clear_places(overlay: &mut Overlay<'_>, effect: &Effect, number: ObjectNumber) -> Result<(), ReadError> {
    match effect {
        Effect::EntryPosted(posted) if posted.brings_forth => {
            let short = posted.pin.memory.0.short();
            let born = matches!(index::find(overlay, IdKind::Memory, &short)?,
                Some(Place::Born(thread, ..)) if thread == number);
            if born {
                index::clear_place(overlay, IdKind::Memory, &short);
                index::list_remove(overlay, List::Memories, &index::owner(&posted.author), &short)?;
            }
        }
        Effect::EntryPosted(posted) => index::clear_pinned(overlay, &posted.pin.memory, number),
        Effect::AssignmentDelivered(_, output, _) => {
            output.memories.iter().for_each(|pin| index::clear_pinned(overlay, &pin.memory, number));
        }
        Effect::AssignmentOffered(id, ..) => index::clear_place(overlay, IdKind::Assignment, &id.0.short()),
        _ => {}
    }
    Ok(())
}

/// Rows of the thread in the lists of agents, and its deadlines.
fn clear_lists(overlay: &mut Overlay<'_>, number: ObjectNumber) -> Result<(), ReadError> {
    let cells = Cells::new(overlay, number);
    let thread = cells.thread()?;
    let head = cells.head()?.ok_or_else(|| ReadError::damaged("a log without a head"))?;
    let mut rows = Vec::new();
    for (agent, _) in cells.members()? {
        rows.push((List::Threads, index::owner(&agent), thread.thread.0.short()));
        rows.push((List::OpenThreads, index::owner(&agent), thread.thread.0.short()));
    }
    let mut owed = |duty, bearer: AgentId, entry| {
        let began_at = thread.created_at;
        let obligation = Obligation { duty, bearer, entry, assignment: None, began_at, due_at: None };
        rows.push((List::Turn, index::owner(&bearer), obligation.id(&thread.thread).0.short()));
    };
    for key in cells.keys(Cell::Pending, &[], usize::MAX)? {
        let (bearer, entry) = key.split_first_chunk().ok_or_else(|| ReadError::damaged("a pending response"))?;
        owed(Duty::Respond, AgentId(Digest(*bearer)), crate::state::number_at_end(entry)?);
    }
    let mut offers = Vec::new();
    for entry in cells.entry_numbers(Cell::Open, &[])? {
        let Some(held) = cells.assignment_at(entry)? else { continue };
        match held.progress {
            Progress::Taken(..) => owed(Duty::Deliver, held.terms.to, entry),
            Progress::Delivered(..) => owed(Duty::Judge, held.creator, entry),
            Progress::Offered => {
                offers.push((List::Opportunities, index::owner(&held.terms.to), held.assignment.0.short()));
            }
            Progress::Ended(..) => {}
        }
    }
    let deadlines = cells.keys(Cell::Due, &[], usize::MAX)?;
    rows.extend(offers);
    for (list, owner, handle) in rows {
        index::list_remove(overlay, list, &owner, &handle)?;
    }
    for key in deadlines {
        let (due, entry) = (crate::state::number_at_end(&key[..8])?, crate::state::number_at_end(&key)?);
        index::clear_due(overlay, (&head.sequencer, crate::time::Time(due), number, entry));
    }
    Ok(())
}
