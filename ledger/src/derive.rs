//! What a fact does, derived from its cause. The sequencer derives before it records; a replica derives again from what
//! was recorded. Both call the same function, so they cannot differ.

use alloc::string::ToString;

use kwoon_keys::id::{AgentId, RequestId};
use kwoon_keys::{RecordKind, cbor, cose};
use minicbor::bytes::ByteVec;

use crate::action::{Action, Actor, Body, ObjectId};
use crate::draft::Draft;
use crate::effect::{Account, Effect};
use crate::fact::{Cause, Evidence, Opening, RULES, Rejection, SealedOutcome, check_schema};
use crate::identity::Status;
use crate::index;
use crate::limits::{ACCOUNT_RECORDS_MAX, ACTION_BYTES_MAX, ACTION_VALIDITY_MAX, EVIDENCE_MAX, LINKS_MAX};
use crate::log;
use crate::refusal::{Code, Detail, Refusal, Stop};
use crate::replica::FUTURE_MAX;
use crate::rules::{self, Decision, Question, assignment, epoch, identity, memory};
use crate::state::Head;
use crate::storage::ReadError;

/// Why a fact cannot be derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The rules refuse the action.
    Refused(Refusal),
    /// A record is not acceptable.
    Rejected(Rejection),
    /// The store could not be read.
    Unreadable(ReadError),
}

impl From<Stop> for Fault {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Refused(refusal) => Self::Refused(refusal),
            Stop::Unreadable(error) => Self::Unreadable(error),
        }
    }
}

impl From<Code> for Fault {
    fn from(code: Code) -> Self {
        Self::Refused(code.into())
    }
}

impl From<Rejection> for Fault {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Self {
        Self::Unreadable(error)
    }
}

impl From<memory::OpenError> for Fault {
    fn from(error: memory::OpenError) -> Self {
        match error {
            memory::OpenError::Rejected(rejection) => Self::Rejected(rejection),
            memory::OpenError::Unreadable(error) => Self::Unreadable(error),
        }
    }
}

/// What is to be derived.
pub(crate) struct Premises<'a> {
    /// The log.
    pub object: ObjectId,
    /// Where it stands; none before the first fact.
    pub head: Option<&'a Head>,
    /// What the first fact says about the log.
    pub opening: Option<&'a Opening>,
    /// The cause.
    pub cause: &'a Cause,
    /// The evidence.
    pub evidence: &'a [Evidence],
    /// Whether it is only foreseen: then time may stand still before a deadline that another host has not sealed, and an
    /// action that was issued long after it is no wrong one.
    pub foreseen: bool,
}

/// What was derived.
pub(crate) struct Derived {
    /// What was decided.
    pub decision: Decision,
    /// The request that the fact ends, if it does.
    pub request: Option<RequestId>,
}

/// Derives the effects of a fact into a draft.
///
/// # Errors
/// See [`Fault`]; the draft is then to be dropped.
pub(crate) fn derive(draft: &mut Draft<'_>, premises: &Premises<'_>) -> Result<Derived, Fault> {
    let sequencer = match (premises.head, premises.opening) {
        (Some(head), None) => head.sequencer,
        (None, Some(opening)) if opening.rules == RULES => opening.sequencer,
        (None, Some(_)) => return Err(Rejection::UnknownVersion.into()),
        _ => return Err(Rejection::Chain.into()),
    };
    let evidence_max = if matches!(premises.cause, Cause::Action(_)) { EVIDENCE_MAX } else { 0 };
    if premises.evidence.len() > evidence_max {
        return Err(Rejection::Evidence.into());
    }
    let mut derived = Derived { decision: Decision::Effects, request: None };
    match premises.cause {
        Cause::Action(signed) => {
            let action = read_action(signed)?;
            derived.decision = derive_action(draft, premises, signed, &action, &sequencer)?;
            derived.request = Some(action.request());
        }
        Cause::Expiry(due) => {
            assignment::expire(draft, due).map_err(|stop| match stop {
                Stop::Refused(_) => Fault::Rejected(Rejection::Expiry),
                Stop::Unreadable(error) => Fault::Unreadable(error),
            })?;
        }
        Cause::Account(agent, records) => {
            if premises.opening.is_some() || records.len() > ACCOUNT_RECORDS_MAX {
                return Err(Rejection::Identity.into());
            }
            // An identity's own log holds its records as actions, one for each version, and no accounts (ID.3).
            if let ObjectId::Identity(_) = premises.object {
                return Err(Rejection::Identity.into());
            }
            let (_, was_inactive) = advance_account(draft, *agent, records)?;
            if was_inactive {
                rules::became_inactive(draft, &premises.object, *agent)?;
            }
        }
        Cause::Consequence(outcome) => derive_consequence(draft, premises, outcome, &sequencer)?,
        Cause::Begun => derive_begun(draft, premises)?,
        Cause::Epoch(change) => epoch::decide(draft, premises.head.ok_or(Rejection::Chain)?, change)?,
    }
    if let Some(head) = premises.head {
        epoch::succeed(draft, &premises.object, head.epoch, &head.sequencer)?;
    }
    Ok(derived)
}

fn derive_action(
    draft: &mut Draft<'_>,
    premises: &Premises<'_>,
    signed: &[u8],
    action: &Action,
    sequencer: &kwoon_keys::PublicKey,
) -> Result<Decision, Fault> {
    if action.needs.len() > LINKS_MAX || action.after.len() > LINKS_MAX {
        return Err(Fault::Refused(Refusal::argument("after", "at most 64 actions")));
    }
    let validity = action.expires_at.since(action.issued_at);
    if validity > ACTION_VALIDITY_MAX || draft.time >= action.expires_at {
        return Err(Code::ActionExpired.into());
    }
    // An action signed ahead of its time would stay valid for longer than it may.
    if action.issued_at > draft.time.after(FUTURE_MAX) && !premises.foreseen {
        return Err(Rejection::LogTime.into());
    }
    check_position(draft, premises.head, action)?;
    for needed in &action.needs {
        if !index::is_sealed_in(&draft.overlay, needed, draft.number)? {
            let refusal = Refusal::from(Code::DependencyRefused);
            return Err(Fault::Refused(refusal.with("cause", Detail::Text(needed.to_string()))));
        }
    }
    // L3.1, EV.5: a request takes effect once, however many attempts of it arrive.
    if index::is_sealed_in(&draft.overlay, &action.request(), draft.number)? {
        return Err(Rejection::Rule.into());
    }
    if let ObjectId::Identity(id) = premises.object {
        check_identity_object(premises, action, signed, id)?;
        identity::decide(draft, action, signed)?;
        return Ok(Decision::Effects);
    }
    let Actor::Agent(actor, instance) = action.actor else { return Err(Code::BadReference.into()) };
    if let Some(opening) = premises.opening {
        open(draft, premises, opening, action, actor)?;
    } else if action.object != Some(premises.object) {
        return Err(Code::BadReference.into());
    }
    let account = draft.cells().account(&actor)?.ok_or(Rejection::UnknownInstance)?;
    let instance = account.instance(instance).ok_or(Rejection::UnknownInstance)?;
    if cose::verify(RecordKind::Action, signed, &instance.signing_key).is_err() {
        return Err(Rejection::Signature.into());
    }
    // A1
    if account.status != Status::Active {
        return Err(Code::AgentInactive.into());
    }
    let question = Question { object: premises.object, sequencer: &sequencer.0, action, evidence: premises.evidence };
    Ok(rules::decide(draft, &question, actor)?)
}

/// Decodes an action without verifying it.
///
/// # Errors
/// [`Rejection::UnknownVersion`] and [`Rejection::UnknownKind`] tell what is later from what is broken (EV.3).
pub fn read_action(signed: &[u8]) -> Result<Action, Rejection> {
    if signed.len() > ACTION_BYTES_MAX {
        return Err(Rejection::Undecodable);
    }
    let payload = cose::payload(RecordKind::Action, signed).map_err(|_| Rejection::Undecodable)?;
    check_schema(payload)?;
    cbor::read_lenient(payload).map_err(|_| Rejection::UnknownKind)
}

/// Decodes an action as a sequencer does: one with a field that this version does not know is refused, because what
/// the field would decide is not known either (CO.2). Replicas keep it.
///
/// # Errors
/// [`Rejection::UnknownVersion`] for unknown fields, and as [`read_action`].
pub fn read_action_strict(signed: &[u8]) -> Result<Action, Rejection> {
    let action = read_action(signed)?;
    let payload = cose::payload(RecordKind::Action, signed).map_err(|_| Rejection::Undecodable)?;
    if cbor::write(&action) == payload { Ok(action) } else { Err(Rejection::UnknownVersion) }
}

/// The position that the author of an action had folded must be one of this very log, so that two branches shown to two
/// members are never joined unnoticed. An attempt of an earlier epoch is void, but a join knows the opening only.
fn check_position(draft: &Draft<'_>, head: Option<&Head>, action: &Action) -> Result<(), Fault> {
    let joins = matches!(action.body, Body::ThreadJoin(..));
    match (head, &action.position) {
        (None, None) => Ok(()),
        // The first own action of a memory that an entry brought forth was signed before its log began.
        (Some(Head { index: 0, object: ObjectId::Memory(_), .. }), None) => Ok(()),
        (Some(head), Some(position)) if position.epoch == head.epoch || joins && position.epoch == 0 => {
            let known = log::head_at(&draft.overlay, draft.number, head, position.index)?;
            if known == Some(position.head) { Ok(()) } else { Err(Rejection::Chain.into()) }
        }
        _ => Err(Rejection::Chain.into()),
    }
}

fn check_identity_object(premises: &Premises<'_>, action: &Action, signed: &[u8], id: AgentId) -> Result<(), Fault> {
    let (_, hash) = identity::read_record(signed)?;
    match &action.body {
        Body::AgentCreate(genesis) => {
            let opened_here = premises.opening.is_some_and(|opening| {
                opening.sequencer == genesis.instance.host
                    && opening.creator.is_empty()
                    && opening.origin.is_none()
                    && opening.blind.is_none()
            });
            if hash == id.0 && action.object.is_none() && opened_here {
                Ok(())
            } else {
                Err(Rejection::Identity.into())
            }
        }
        _ if action.object == Some(premises.object) => Ok(()),
        _ => Err(Rejection::Identity.into()),
    }
}

/// Opens a log with the action that creates its object: the creator's account enters it.
fn open(
    draft: &mut Draft<'_>,
    premises: &Premises<'_>,
    opening: &Opening,
    action: &Action,
    actor: AgentId,
) -> Result<(), Fault> {
    enter_creator(draft, opening, actor)?;
    let created = rules::created(action, &opening.sequencer.0);
    let is_plain = opening.origin.is_none() && opening.blind.is_none() && action.object.is_none();
    if created == Some(premises.object) && is_plain { Ok(()) } else { Err(Rejection::Chain.into()) }
}

/// The creator's account enters the log; only a host on which it has an instance opens one.
fn enter_creator(draft: &mut Draft<'_>, opening: &Opening, creator: AgentId) -> Result<(), Fault> {
    let (account, _) = advance_account(draft, creator, &opening.creator)?;
    if account.lives_on(&opening.sequencer) { Ok(()) } else { Err(Rejection::UnknownInstance.into()) }
}

/// Begins the log of a memory that an entry brought forth: version 1 is what the entry pinned.
fn derive_begun(draft: &mut Draft<'_>, premises: &Premises<'_>) -> Result<(), Fault> {
    let Some((opening, origin)) = premises.opening.and_then(|opening| Some((opening, opening.origin.as_ref()?))) else {
        return Err(Rejection::Chain.into());
    };
    if opening.blind.is_some() {
        return Err(Rejection::Chain.into());
    }
    let (fact, effects) = origin.outcome.verify(&origin.sequencer)?;
    let author = log::action_of(&fact).and_then(|action| action.agent()).ok_or(Rejection::Evidence)?;
    enter_creator(draft, opening, author)?;
    Ok(memory::begin_born(draft, &premises.object, author, &fact, &effects)?)
}

/// Brings an account in the log up to date; also whether any of the records took the agent's active state.
fn advance_account(draft: &mut Draft<'_>, agent: AgentId, records: &[ByteVec]) -> Result<(Account, bool), Fault> {
    let known = draft.cells().account(&agent)?;
    let (account, was_inactive) = identity::account_after(known, agent, records)?;
    draft.emit(Effect::AccountSet(agent, account.clone()))?;
    Ok((account, was_inactive))
}

fn derive_consequence(
    draft: &mut Draft<'_>,
    premises: &Premises<'_>,
    outcome: &SealedOutcome,
    sequencer: &kwoon_keys::PublicKey,
) -> Result<(), Fault> {
    // C1: consequences belong into publications. Asking another log for its publication would look like a damaged store.
    let ObjectId::Publication(_) = premises.object else { return Err(Rejection::Evidence.into()) };
    let (fact, effects) = outcome.verify(sequencer)?;
    let Cause::Action(signed) = &fact.cause else { return Err(Rejection::Evidence.into()) };
    let action = read_action(signed)?;
    let Actor::Agent(author, instance) = action.actor else { return Err(Rejection::Evidence.into()) };
    if let Some(opening) = premises.opening {
        let memory = opening.blind.map(|blind| memory::blinded_id(&author, &blind));
        if opening.origin.is_some() || memory.map(ObjectId::Memory) != Some(fact.object) {
            return Err(Rejection::Chain.into());
        }
        // As for any log: only a host on which the author has an instance speaks for its memories.
        let (account, _) = advance_account(draft, author, &opening.creator)?;
        if !account.lives_on(sequencer) {
            return Err(Rejection::UnknownInstance.into());
        }
    } else if draft.cells().publication()?.author != author {
        return Err(Rejection::Evidence.into());
    }
    let account = draft.cells().account(&author)?.ok_or(Rejection::UnknownInstance)?;
    let instance = account.instance(instance).ok_or(Rejection::UnknownInstance)?;
    if cose::verify(RecordKind::Action, signed, &instance.signing_key).is_err() {
        return Err(Rejection::Signature.into());
    }
    // A1, A3: an inactive agent says nothing to the public either.
    if account.status != Status::Active {
        return Err(Code::AgentInactive.into());
    }
    // The seal shows that the sequencer derived these effects, the signature that the author asked for them.
    if action.object != Some(fact.object) || !memory::asks_for(&action.body, &effects) {
        return Err(Rejection::Evidence.into());
    }
    Ok(memory::decide_consequence(draft, &premises.object, author, &fact, &effects)?)
}
