//! Threads, admissions and members (T1.1 to T2.8, T5.1 to T5.3, A3, A5).

use kwoon_keys::id::{AdmissionId, AgentId, RequestId, ThreadId};
use kwoon_keys::{RecordKind, cbor, cose};

use crate::action::{Action, AdmissionUse, Body, Grant, Role, SCHEMA};
use crate::draft::Draft;
use crate::effect::{Departure, Effect, Exit, Final};
use crate::limits::Limits;
use crate::refusal::{Code, Refusal, Stop, require};
use crate::rules::{Decision, Question, assignment, entry};
use crate::state::{Cell, Member, Progress, Thread};

/// The id of a thread that a request creates on a host.
pub fn thread_id(request: &RequestId, host: &[u8; 32]) -> ThreadId {
    ThreadId::of(&[request.as_bytes(), host])
}

/// Decides an action on a thread.
///
/// # Errors
/// By the rules of section 6.
pub fn decide(draft: &mut Draft<'_>, question: &Question<'_>, actor: AgentId) -> Result<Decision, Stop> {
    let action = question.action;
    if let Body::ThreadCreate(create) = &action.body {
        require(draft.index == 0, Code::BadReference)?;
        let size = create.subject.map_or(0, |subject| subject.length_bytes);
        let maximum = Limits::MAXIMA.line_bytes_max;
        if size > maximum {
            return Err(Refusal::too_large("subject", maximum).into());
        }
        // T1.1
        let thread = thread_id(&action.request(), question.sequencer);
        draft.emit(Effect::ThreadCreated(thread, actor, create.subject))?;
        draft.emit(Effect::MembershipBegan(actor, Role::Governor, None))?;
        if let Some(grant) = create.admission {
            issue(draft, &grant)?;
        }
        return Ok(Decision::Effects);
    }
    let thread = draft.cells().thread()?;
    if let Body::ThreadJoin(admission, proof) = &action.body {
        return join(draft, action, &thread, actor, *admission, proof);
    }
    // V2: to anyone but members the thread is not there.
    let member = draft.cells().member(&actor)?.ok_or(Code::NotFound)?;
    match &action.body {
        Body::AdmissionIssue(grant) => {
            governs(&thread, &member)?;
            void_admission(draft, &thread)?;
            issue(draft, grant)?;
        }
        Body::AdmissionVoid => {
            governs(&thread, &member)?;
            require(thread.admission.is_some(), Code::NoChange)?;
            void_admission(draft, &thread)?;
        }
        Body::ThreadLeave => leave(draft, &thread, &member, actor, Departure::Left)?,
        Body::ThreadClose => {
            governs(&thread, &member)?;
            close(draft)?;
        }
        Body::MemberRemove(other) => {
            governs(&thread, &member)?;
            let member = draft.cells().member(other)?.ok_or(Code::BadReference)?;
            leave(draft, &thread, &member, *other, Departure::Removed)?;
        }
        Body::MemberRole(other, role) => {
            governs(&thread, &member)?;
            set_role(draft, &thread, *other, *role)?;
        }
        Body::EntryPost(post) => entry::post(draft, question, &thread, &member, actor, post)?,
        Body::EntryHandle(entry, note) => entry::handle(draft, actor, entry, *note)?,
        Body::EntryRetract(entry) => entry::retract(draft, actor, entry)?,
        Body::AssignmentTake(id, output) => {
            assignment::take(draft, actor, id)?;
            if let Some(output) = output {
                assignment::deliver(draft, actor, id, output)?;
            }
        }
        Body::AssignmentDeliver(id, output) => assignment::deliver(draft, actor, id, output)?,
        Body::AssignmentAccept(id) => assignment::judge(draft, actor, id, None)?,
        Body::AssignmentReturn(id, reason) => assignment::judge(draft, actor, id, Some(*reason))?,
        Body::AssignmentAbandon(id) => assignment::abandon(draft, actor, id)?,
        Body::AssignmentVoid(id) => assignment::void(draft, actor, id)?,
        _ => return Err(Code::BadReference.into()),
    }
    Ok(Decision::Effects)
}

/// T2.1, T2.2: what governors do, they do in an open thread.
fn governs(thread: &Thread, member: &Member) -> Result<(), Stop> {
    require(member.role == Role::Governor, Code::NotGovernor)?;
    require(!thread.closed, Code::ThreadClosed)
}

/// T1.2, T1.5: the log holds what verifies the admission, never its secret.
fn issue(draft: &mut Draft<'_>, grant: &Grant) -> Result<(), Stop> {
    require(grant.key.is_sound(), Code::BadReference)?;
    draft.emit(Effect::AdmissionIssued(grant.id(), *grant))?;
    Ok(())
}

/// T1.4
fn void_admission(draft: &mut Draft<'_>, thread: &Thread) -> Result<(), Stop> {
    if let Some((id, _)) = thread.admission {
        draft.emit(Effect::AdmissionVoided(id))?;
    }
    Ok(())
}

/// T1.2, T1.3, S1: everything that is wrong with a ticket looks the same.
fn join(
    draft: &mut Draft<'_>,
    action: &Action,
    thread: &Thread,
    joiner: AgentId,
    admission: AdmissionId,
    proof: &[u8],
) -> Result<Decision, Stop> {
    let (valid, grant) = thread.admission.ok_or(Code::AdmissionInvalid)?;
    require(valid == admission, Code::AdmissionInvalid)?;
    let used = AdmissionUse { schema: SCHEMA, thread: thread.thread, joiner, request: action.request() };
    let payload = cose::verify(RecordKind::Admission, proof, &grant.key);
    require(payload == Ok(cbor::write(&used).as_slice()), Code::AdmissionInvalid)?;
    // L2.4
    if let Some(member) = draft.cells().member(&joiner)? {
        return Ok(Decision::Existing(member.index));
    }
    require(thread.members < Limits::MAXIMA.members_max, Code::CapacityReached)?;
    draft.emit(Effect::MembershipBegan(joiner, grant.role, Some(admission)))?;
    Ok(Decision::Effects)
}

/// T2.2, T2.3
fn leave(draft: &mut Draft<'_>, thread: &Thread, member: &Member, agent: AgentId, how: Departure) -> Result<(), Stop> {
    let last = member.role == Role::Governor && thread.governors == 1;
    require(thread.closed || !last, Code::LastGovernor)?;
    end_membership(draft, agent, how)
}

/// T2.6, all in one fact: pending responses end; what the member took or created and is not delivered is voided; the
/// right to judge what was delivered to it is lost.
fn end_membership(draft: &mut Draft<'_>, agent: AgentId, how: Departure) -> Result<(), Stop> {
    end_responses(draft, agent, Exit::MembershipEnded)?;
    for number in draft.cells().entry_numbers(Cell::Party, &[agent.as_bytes()])? {
        let Some(held) = draft.cells().assignment_at(number)? else { continue };
        let is_creator = held.creator == agent;
        let has_taken = held.terms.to == agent && held.taken;
        match held.progress {
            Progress::Offered | Progress::Taken(..) if is_creator || has_taken => {
                assignment::end(draft, &held, Final::Voided, None, Exit::Voided)?;
            }
            Progress::Delivered(began, due, false) if is_creator => {
                let judgment = assignment::judgment(&held, began, due);
                draft.emit(Effect::ObligationEnded(judgment, Exit::MembershipEnded))?;
                draft.emit(Effect::JudgmentForfeited(held.assignment))?;
            }
            _ => {}
        }
    }
    draft.emit(Effect::MembershipEnded(agent, how))?;
    Ok(())
}

/// Ends all pending responses of one member.
fn end_responses(draft: &mut Draft<'_>, agent: AgentId, exit: Exit) -> Result<(), Stop> {
    for number in draft.cells().entry_numbers(Cell::Pending, &[agent.as_bytes()])? {
        entry::end_response(draft, agent, number, exit)?;
    }
    Ok(())
}

/// T2.1, T2.3, T2.5
fn set_role(draft: &mut Draft<'_>, thread: &Thread, agent: AgentId, role: Role) -> Result<(), Stop> {
    let member = draft.cells().member(&agent)?.ok_or(Code::BadReference)?;
    require(member.role != role, Code::NoChange)?;
    let last = member.role == Role::Governor && thread.governors == 1;
    require(!last, Code::LastGovernor)?;
    draft.emit(Effect::RoleSet(agent, role))?;
    if !role.has_voice() {
        end_responses(draft, agent, Exit::Demoted)?;
    }
    Ok(())
}

/// T5.2, all in one fact: pending responses end, undelivered assignments are voided, delivered ones keep their judgment,
/// the admission is void, memberships stay.
fn close(draft: &mut Draft<'_>) -> Result<(), Stop> {
    for (member, _) in draft.cells().members()? {
        end_responses(draft, member, Exit::Closed)?;
    }
    for number in draft.cells().entry_numbers(Cell::Open, &[])? {
        let Some(held) = draft.cells().assignment_at(number)? else { continue };
        if matches!(held.progress, Progress::Offered | Progress::Taken(..)) {
            assignment::end(draft, &held, Final::Voided, None, Exit::Voided)?;
        }
    }
    let thread = draft.cells().thread()?;
    void_admission(draft, &thread)?;
    draft.emit(Effect::ThreadClosed)?;
    Ok(())
}

/// A3, A5: the membership of an agent that is no longer active ends in the fact that says so; an open thread that loses
/// its last governor by it closes in the same fact.
///
/// # Errors
/// If the state cannot be read.
pub fn deactivated(draft: &mut Draft<'_>, agent: AgentId) -> Result<(), Stop> {
    if draft.cells().member(&agent)?.is_none() {
        return Ok(());
    }
    end_membership(draft, agent, Departure::Inactive)?;
    let thread = draft.cells().thread()?;
    if !thread.closed && thread.governors == 0 {
        close(draft)?;
    }
    Ok(())
}
