//! Memory and its publication (M1 to M8, V1).

use kwoon_keys::Digest;
use kwoon_keys::id::{AgentId, MemoryId, PublicationId, RequestId};

use crate::action::{Action, Body, MemoryUpdate, ObjectId, Pin, Source, Version};
use crate::draft::Draft;
use crate::effect::Effect;
use crate::fact::{Fact, Rejection};
use crate::limits::Limits;
use crate::log;
use crate::refusal::{Code, Refusal, Stop, require};
use crate::state::{Memory, more};

/// The id of the publication of a memory.
pub fn publication_id(memory: &MemoryId) -> PublicationId {
    PublicationId::of(&[memory.as_bytes()])
}

/// The id of a memory that a request of its author's creates: on its own (`place` is the creating host) or with an
/// entry (`place` is the thread).
pub fn memory_id(author: &AgentId, request: &RequestId, place: &[u8; 32]) -> MemoryId {
    blinded_id(author, &blind(request, place))
}

/// What a memory's id is made of beside its author. It shows whose a memory is without the place it came from.
pub fn blind(request: &RequestId, place: &[u8; 32]) -> Digest {
    Digest::of("kwoon 1 memory blind", &[request.as_bytes(), place])
}

/// Whether the parts of a pin belong together: nobody can name another's memory as one's own.
pub fn is_whole(pin: &Pin) -> bool {
    pin.version >= 1 && pin.memory == blinded_id(&pin.author, &pin.blind)
}

/// The memory of an author and a blind.
pub fn blinded_id(author: &AgentId, blind: &Digest) -> MemoryId {
    MemoryId::of(&[author.as_bytes(), blind.as_bytes()])
}

/// The blind of the memory whose log, or whose publication, begins with this fact.
pub fn blind_of(first: &Fact) -> Option<Digest> {
    let opening = first.opening.as_ref()?;
    if opening.blind.is_some() {
        return opening.blind;
    }
    match &opening.origin {
        None => Some(blind(&log::action_of(first)?.request(), &opening.sequencer.0)),
        Some(origin) => {
            let posted = Fact::read(&origin.outcome.fact).ok()?;
            let ObjectId::Thread(thread) = posted.object else { return None };
            Some(blind(&log::action_of(&posted)?.request(), thread.as_bytes()))
        }
    }
}

/// Checks what the format allows of a version.
///
/// # Errors
/// [`Code::ContentTooLarge`] with the field and the limit.
pub fn check_version(version: &Version, limits: &Limits) -> Result<(), Refusal> {
    let checks = [
        ("text", version.text.commitment.length_bytes, limits.text_bytes_max),
        ("title", version.title.map_or(0, |title| title.length_bytes), limits.line_bytes_max),
        ("summary", version.summary.map_or(0, |summary| summary.length_bytes), limits.summary_bytes_max),
        ("tags", version.tags.len() as u64, limits.tags_max),
        ("tags", version.tags.iter().map(|tag| tag.length_bytes).max().unwrap_or(0), limits.line_bytes_max),
    ];
    match checks.iter().find(|(_, size, limit)| size > limit) {
        Some((field, _, limit)) => Err(Refusal::too_large(field, *limit)),
        None => Ok(()),
    }
}

/// M5: withdrawal is final.
fn may_change(memory: &Memory) -> Result<(), Stop> {
    require(!memory.withdrawn, Code::MemoryWithdrawn)
}

/// M5, M3: whether a memory can have a version after the one that its author has seen.
///
/// # Errors
/// [`Code::MemoryWithdrawn`], [`Code::VersionConflict`].
pub fn may_update(memory: &Memory, expected: Option<u64>) -> Result<(), Stop> {
    may_change(memory)?;
    require(expected.is_none_or(|expected| expected == memory.version), Code::VersionConflict)
}

/// Decides an action on a memory, in the memory's log.
///
/// # Errors
/// By M1 to M5.
pub fn decide(draft: &mut Draft<'_>, action: &Action, author: AgentId, host: &[u8; 32]) -> Result<(), Stop> {
    if let Body::MemoryCreate(version) = &action.body {
        require(draft.index == 0, Code::BadReference)?;
        check_version(version, &Limits::MAXIMA)?;
        // M1: version 1, valid, private.
        let memory = memory_id(&author, &action.request(), host);
        draft.emit(Effect::MemoryCreated(memory, author))?;
        draft.emit(Effect::VersionAdded(1, version.clone(), false))?;
        return Ok(());
    }
    let memory = draft.cells().memory()?;
    // M2: the author alone, and to anyone else it is as if it were not there.
    require(memory.author == author, Code::NotFound)?;
    may_change(&memory)?;
    match &action.body {
        Body::MemoryUpdate(update) => update_version(draft, &memory, update)?,
        Body::MemoryPublish => {
            require(!memory.public, Code::NoChange)?;
            let version = draft.cells().version(memory.version)?.ok_or(Code::Internal)?;
            draft.emit(Effect::MadePublic(memory.version, version))?;
        }
        Body::MemoryUnpublish => {
            require(memory.public, Code::NoChange)?;
            draft.emit(Effect::MadePrivate)?;
        }
        Body::MemoryWithdraw => draft.emit(Effect::MemoryWithdrawn(memory.published))?,
        _ => return Err(Code::BadReference.into()),
    }
    Ok(())
}

/// M3, M4: a new version beside the old ones; visibility stays as it is.
fn update_version(draft: &mut Draft<'_>, memory: &Memory, update: &MemoryUpdate) -> Result<(), Stop> {
    may_update(memory, update.expected_version)?;
    check_version(&update.version, &Limits::MAXIMA)?;
    draft.emit(Effect::VersionAdded(more(memory.version)?, update.version.clone(), memory.public))?;
    Ok(())
}

/// Lets a memory that an entry brought forth begin its own log: version 1 is what the entry pinned.
///
/// The outcome may come from any host, so what its seal says is not enough: the memory's id must follow from the
/// author's own request in that thread. Otherwise anybody could seal a thread of its own in which it brings forth
/// somebody else's memory.
///
/// # Errors
/// [`Rejection::Evidence`] if the outcome does not bring forth this memory of this author.
pub fn begin_born(
    draft: &mut Draft<'_>,
    object: &ObjectId,
    author: AgentId,
    fact: &Fact,
    effects: &[Effect],
) -> Result<(), OpenError> {
    let (ObjectId::Thread(thread), Some(action)) = (fact.object, log::action_of(fact)) else {
        return Err(OpenError::Rejected(Rejection::Evidence));
    };
    let derived = memory_id(&author, &action.request(), thread.as_bytes());
    if action.agent() != Some(author) || *object != ObjectId::Memory(derived) {
        return Err(OpenError::Rejected(Rejection::Evidence));
    }
    let posted = effects.iter().find_map(|effect| match effect {
        Effect::EntryPosted(posted) if posted.brings_forth && posted.author == author => Some(posted),
        _ => None,
    });
    let posted = posted.ok_or(OpenError::Rejected(Rejection::Evidence))?;
    let asked = matches!(&action.body, Body::EntryPost(post) if post.source == Source::New(posted.pin.text));
    if posted.pin.memory != derived || !asked {
        return Err(OpenError::Rejected(Rejection::Evidence));
    }
    let version = Version { text: posted.pin.text, title: None, summary: posted.summary, tags: alloc::vec::Vec::new() };
    draft.emit(Effect::MemoryCreated(posted.pin.memory, author)).map_err(OpenError::Unreadable)?;
    draft.emit(Effect::VersionAdded(1, version, false)).map_err(OpenError::Unreadable)
}

/// Why a log cannot be opened or continued with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The record is not acceptable.
    Rejected(Rejection),
    /// The store could not be read.
    Unreadable(crate::storage::ReadError),
}

/// What a fact of a memory's log means for its publication: the version that the public can read from then on, or none
/// and whether that is final; nothing if it concerns the public in no way. It follows from the fact's effects alone.
pub fn consequence(memory: MemoryId, author: AgentId, index: u64, effects: &[Effect]) -> Option<Effect> {
    effects.iter().find_map(|effect| match effect {
        Effect::MadePublic(number, version) | Effect::VersionAdded(number, version, true) => {
            Some(Effect::PublicationSet(memory, author, *number, version.clone(), index))
        }
        Effect::MadePrivate => Some(Effect::PublicationEnded(memory, false, index)),
        Effect::MemoryWithdrawn(true) => Some(Effect::PublicationEnded(memory, true, index)),
        _ => None,
    })
}

/// Whether a body asks for what these effects say to the public. Which version is published stands in the memory's log
/// alone; the rest can be told from the action.
pub fn asks_for(body: &Body, effects: &[Effect]) -> bool {
    effects.iter().all(|effect| match (effect, body) {
        (Effect::MadePublic(..), body) => matches!(body, Body::MemoryPublish),
        (Effect::MadePrivate, body) => matches!(body, Body::MemoryUnpublish),
        (Effect::MemoryWithdrawn(_), body) => matches!(body, Body::MemoryWithdraw),
        (Effect::VersionAdded(_, version, true), Body::MemoryUpdate(update)) => update.version == *version,
        (Effect::VersionAdded(_, _, true), _) => false,
        _ => true,
    })
}

/// Decides a consequence in a publication's log.
///
/// # Errors
/// [`Rejection::Evidence`] if the outcome concerns another memory, says nothing to the public, or is older than what the
/// publication knows.
pub fn decide_consequence(
    draft: &mut Draft<'_>,
    object: &ObjectId,
    author: AgentId,
    fact: &Fact,
    effects: &[Effect],
) -> Result<(), OpenError> {
    let rejected = OpenError::Rejected(Rejection::Evidence);
    let ObjectId::Memory(memory) = fact.object else { return Err(rejected) };
    let Some(effect) = consequence(memory, author, fact.index, effects) else { return Err(rejected) };
    if *object != ObjectId::Publication(publication_id(&memory)) {
        return Err(rejected);
    }
    if draft.index > 0 {
        let known = draft.cells().publication().map_err(OpenError::Unreadable)?;
        if known.source >= fact.index || known.withdrawn {
            return Err(rejected);
        }
    }
    draft.emit(effect).map_err(OpenError::Unreadable)
}
