//! The rules of the protocol. Each is one function that derives effects in a [`crate::draft::Draft`] or refuses.

pub mod assignment;
pub mod entry;
pub mod epoch;
pub mod identity;
pub mod memory;
pub mod thread;

use kwoon_keys::id::AgentId;

use crate::action::{Action, Body, ObjectId};
use crate::draft::Draft;
use crate::fact::Evidence;
use crate::refusal::{Code, Stop};

/// What a decision is about, beside the state.
pub struct Question<'a> {
    /// The log.
    pub object: ObjectId,
    /// The sequencer of the log, as bytes.
    pub sequencer: &'a [u8; 32],
    /// The action.
    pub action: &'a Action,
    /// What the decision may take from other logs.
    pub evidence: &'a [Evidence],
}

/// What became of an action that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Its effects are in the draft.
    Effects,
    /// A success without new effect (L2.4): the index of the fact that made what exists.
    Existing(u64),
}

/// Decides an agent's action in a log. The actor's account, instance and signature were checked before.
///
/// # Errors
/// By the rules; the draft is then to be dropped.
pub fn decide(draft: &mut Draft<'_>, question: &Question<'_>, actor: AgentId) -> Result<Decision, Stop> {
    match (&question.object, &question.action.body) {
        (ObjectId::Memory(_), _) => {
            memory::decide(draft, question.action, actor, question.sequencer)?;
            Ok(Decision::Effects)
        }
        (ObjectId::Thread(_), _) => thread::decide(draft, question, actor),
        // Identities take owners' records only, and a publication takes consequences only.
        (ObjectId::Identity(_) | ObjectId::Publication(_) | ObjectId::Task(_) | ObjectId::Engagement(_), _) => {
            Err(Code::BadReference.into())
        }
    }
}

/// What it means for a log beyond the account itself that an agent became inactive, also if it is active again by now:
/// both may come to a log in one fact, or in two, and the membership ends all the same (A3, A5).
///
/// # Errors
/// If the state cannot be read.
pub fn became_inactive(draft: &mut Draft<'_>, object: &ObjectId, agent: AgentId) -> Result<(), Stop> {
    match object {
        ObjectId::Thread(_) => thread::deactivated(draft, agent),
        _ => Ok(()),
    }
}

/// Whether a body creates an object, and then which, given the host that creates it.
pub fn created(action: &Action, host: &[u8; 32]) -> Option<ObjectId> {
    match &action.body {
        Body::MemoryCreate(_) => Some(ObjectId::Memory(memory::memory_id(&action.agent()?, &action.request(), host))),
        Body::ThreadCreate(_) => Some(ObjectId::Thread(thread::thread_id(&action.request(), host))),
        _ => None,
    }
}
