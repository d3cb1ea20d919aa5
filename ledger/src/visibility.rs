//! Who may read what (section 9). One place for every read; knowing an id grants nothing (V10).

use alloc::boxed::Box;
use alloc::vec::Vec;

use kwoon_keys::Digest;
use kwoon_keys::id::{AgentId, MemoryId};

use crate::action::{ObjectId, Pin, Version};
use crate::effect::{Effect, EntryPosted, Exit};
use crate::fact::{Fact, Origin};
use crate::forget::{self, Kept};
use crate::index::{self, IdKind, Place};
use crate::log;
use crate::rules::memory::{blind, blind_of, publication_id};
use crate::state::{Cells, Entry, Member, Memory, ObjectNumber, Publication, Response};
use crate::storage::{Read, ReadError};

/// A memory as one reader may know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryView {
    /// Its author: every version.
    Own(OwnMemory),
    /// Anyone, of a valid public memory: the current version.
    Public(Publication),
}

/// A memory of the reader's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnMemory {
    /// Its state.
    pub memory: Memory,
    /// Its log; none while it exists by the outcome of an entry alone.
    pub number: Option<ObjectNumber>,
    /// What brought it forth, if it has no log yet.
    pub born: Option<Birth>,
}

/// What brought a memory forth that has no log of its own yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Birth {
    /// An entry of a thread, by number.
    Entry(ObjectNumber, u64),
    /// An entry of a thread that is not here: what was kept of it.
    Kept(Box<Kept>),
}

impl Birth {
    /// The outcome by which the memory exists, and who sealed it; none while no seal covers the entry.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn origin(&self, read: &dyn Read) -> Result<Option<Origin>, ReadError> {
        match self {
            Self::Kept(kept) => Ok(Some(Origin { outcome: kept.outcome.clone(), sequencer: kept.sequencer })),
            Self::Entry(thread, entry) => {
                let cells = Cells::new(read, *thread);
                let posted = cells.entry(*entry)?.ok_or_else(|| ReadError::damaged(NO_ENTRY))?;
                let Some(outcome) = log::outcome(read, *thread, posted.index)? else { return Ok(None) };
                let sequencer = log::sealed_by(read, *thread, posted.index)?;
                Ok(Some(Origin { outcome, sequencer }))
            }
        }
    }

    fn posted(&self) -> Result<(Fact, EntryPosted), ReadError> {
        let damaged = || ReadError::damaged(NO_ENTRY);
        let Self::Kept(kept) = self else { return Err(damaged()) };
        let (fact, effects) = kept.outcome.verify(&kept.sequencer).map_err(|_| damaged())?;
        let posted = effects.into_iter().find_map(|effect| match effect {
            Effect::EntryPosted(posted) => Some(posted),
            _ => None,
        });
        Ok((fact, posted.ok_or_else(damaged)?))
    }
}

const NO_ENTRY: &str = "the entry of a memory is missing";

impl OwnMemory {
    /// A version, if there is one.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn version(&self, read: &dyn Read, version: u64) -> Result<Option<Version>, ReadError> {
        let pinned = |text, summary| Version { text, title: None, summary, tags: Vec::new() };
        match (self.number, &self.born) {
            (Some(number), _) => Cells::new(read, number).version(version),
            (None, Some(Birth::Entry(thread, entry))) if version == 1 => {
                let entry = Cells::new(read, *thread).entry(*entry)?;
                Ok(entry.map(|entry| pinned(entry.pin.text, entry.summary)))
            }
            (None, Some(birth @ Birth::Kept(_))) if version == 1 => {
                let (_, posted) = birth.posted()?;
                Ok(Some(pinned(posted.pin.text, posted.summary)))
            }
            _ => Ok(None),
        }
    }
}

impl OwnMemory {
    /// What the memory's id is made of beside its author.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn blind(&self, read: &dyn Read) -> Result<Digest, ReadError> {
        let blind = match (self.number, &self.born) {
            (Some(number), _) => blind_of(&log::fact(read, number, 0)?),
            (None, Some(Birth::Entry(thread, entry))) => {
                let cells = Cells::new(read, *thread);
                let entry = cells.entry(*entry)?.ok_or_else(|| ReadError::damaged(NO_ENTRY))?;
                Some(blind(&entry.request, cells.thread()?.thread.as_bytes()))
            }
            (None, Some(birth @ Birth::Kept(_))) => {
                let (fact, posted) = birth.posted()?;
                Some(blind(&posted.request, fact.object.digest().as_bytes()))
            }
            (None, None) => None,
        };
        blind.ok_or_else(|| ReadError::damaged("a memory without a beginning"))
    }
}

/// A memory by what its outside id names, as a reader may know it; nothing if it is not there for this reader (V1, M2).
///
/// # Errors
/// If the store cannot be read.
pub fn memory(read: &dyn Read, reader: &AgentId, short: &index::Short) -> Result<Option<MemoryView>, ReadError> {
    let id = match index::find(read, IdKind::Memory, short)? {
        Some(Place::Log(number)) => {
            let memory = Cells::new(read, number).memory()?;
            if memory.author == *reader {
                return Ok(Some(MemoryView::Own(OwnMemory { memory, number: Some(number), born: None })));
            }
            memory.memory
        }
        Some(Place::Born(thread, entry, id)) => {
            let posted = Cells::new(read, thread).entry(entry)?;
            let posted = posted.ok_or_else(|| ReadError::damaged(NO_ENTRY))?;
            if posted.author == *reader {
                return Ok(Some(MemoryView::Own(newborn(id, reader, Birth::Entry(thread, entry)))));
            }
            id
        }
        Some(Place::Kept(id, request)) => {
            let kept = forget::kept(read, &request)?.ok_or_else(|| ReadError::damaged(NO_ENTRY))?;
            let birth = Birth::Kept(Box::new(kept));
            if birth.posted()?.1.author == *reader {
                return Ok(Some(MemoryView::Own(newborn(id, reader, birth))));
            }
            id
        }
        // Of a memory whose log is elsewhere the publication is all there is.
        Some(Place::Assignment(..)) | None => match index::public_memory(read, short)? {
            Some(id) => id,
            None => return Ok(None),
        },
    };
    let publication = publication(read, &id)?.filter(|publication| publication.current.is_some());
    Ok(publication.map(MemoryView::Public))
}

fn newborn(memory: MemoryId, author: &AgentId, birth: Birth) -> OwnMemory {
    let (version, public, published, withdrawn) = (1, false, false, false);
    let memory = Memory { memory, author: *author, version, public, published, withdrawn };
    OwnMemory { memory, number: None, born: Some(birth) }
}

/// What the public side of a memory says, as far as this host knows.
///
/// # Errors
/// If the store cannot be read.
pub fn publication(read: &dyn Read, memory: &MemoryId) -> Result<Option<Publication>, ReadError> {
    match index::number(read, &ObjectId::Publication(publication_id(memory)))? {
        Some(number) => Cells::new(read, number).publication().map(Some),
        None => Ok(None),
    }
}

/// A thread for one of its present members; nothing for anyone else (V2, V10).
///
/// # Errors
/// If the store cannot be read.
pub fn thread(
    read: &dyn Read,
    reader: &AgentId,
    short: &index::Short,
) -> Result<Option<(ObjectNumber, Member)>, ReadError> {
    match index::find(read, IdKind::Thread, short)? {
        Some(Place::Log(number)) => Ok(Cells::new(read, number).member(reader)?.map(|member| (number, member))),
        _ => Ok(None),
    }
}

/// An assignment for a present member of its thread: the thread's number, the membership, and the carrying entry (V2).
///
/// # Errors
/// If the store cannot be read.
pub fn assignment(
    read: &dyn Read,
    reader: &AgentId,
    short: &index::Short,
) -> Result<Option<(ObjectNumber, Member, u64)>, ReadError> {
    match index::find(read, IdKind::Assignment, short)? {
        Some(Place::Assignment(number, entry, _)) => {
            Ok(Cells::new(read, number).member(reader)?.map(|member| (number, member, entry)))
        }
        _ => Ok(None),
    }
}

/// Whether a present member may read the text that an entry pins: the author's own always, another's only while that
/// memory is valid and public (V3, M6).
///
/// # Errors
/// If the store cannot be read.
pub fn entry_text(read: &dyn Read, entry: &Entry) -> Result<bool, ReadError> {
    pinned_text(read, &entry.author, &entry.pin)
}

fn pinned_text(read: &dyn Read, referrer: &AgentId, pin: &Pin) -> Result<bool, ReadError> {
    if pin.author == *referrer {
        return Ok(true);
    }
    Ok(publication(read, &pin.memory)?.is_some_and(|publication| publication.current.is_some()))
}

/// Whether a reader may read the note of a handled response: the entry's author and that responder (V5).
pub fn note(reader: &AgentId, entry: &Entry, response: &Response) -> Option<kwoon_keys::Commitment> {
    match response.exit {
        Some((Exit::Handled(note), _)) if *reader == entry.author || *reader == response.responder => note,
        _ => None,
    }
}
