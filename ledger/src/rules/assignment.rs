//! Assignments (T4.1 to T4.12) and their deadlines (L4.2, L4.3).

use kwoon_keys::Commitment;
use kwoon_keys::id::{AgentId, AssignmentId, RequestId, ThreadId};

use crate::action::{Assign, Output};
use crate::draft::Draft;
use crate::effect::{Duty, Effect, Exit, Final, Obligation};
use crate::fact::Due;
use crate::limits::{DURATION_MAX, DURATION_MIN, Limits};
use crate::refusal::{Code, Refusal, Stop, require};
use crate::rules::{entry, memory};
use crate::state::{Assignment, Progress};
use crate::time::Time;

/// The id of the assignment that a request creates in a thread.
pub fn assignment_id(request: &RequestId, thread: &ThreadId) -> AssignmentId {
    AssignmentId::of(&[request.as_bytes(), thread.as_bytes()])
}

/// T4.1: offers an assignment with an entry. The creator's voice was checked with the entry.
///
/// # Errors
/// If the assignee has no voice, or `redoes` names nothing here.
pub fn offer(
    draft: &mut Draft<'_>,
    id: AssignmentId,
    entry: u64,
    creator: AgentId,
    terms: &Assign,
) -> Result<(), Stop> {
    let assignee = draft.cells().member(&terms.to)?;
    require(assignee.is_some_and(|member| member.role.has_voice()), Code::BadReference)?;
    // T4.9: doing it again refers to what is done again.
    if let Some(redone) = &terms.redoes {
        require(draft.cells().assignment(redone)?.is_some(), Code::BadReference)?;
    }
    let in_range = |duration| DURATION_MIN <= duration && duration <= DURATION_MAX;
    require(in_range(terms.deliver_within) && in_range(terms.judge_within), Code::BadReference)?;
    draft.emit(Effect::AssignmentOffered(id, entry, creator, *terms))?;
    Ok(())
}

/// T4.3, T4.9: whose it is to take, and whether it can still be taken.
///
/// # Errors
/// [`Code::NotAssignee`], [`Code::AlreadyTaken`], or how it ended.
pub fn may_take(held: &Assignment, actor: AgentId) -> Result<(), Stop> {
    require(held.terms.to == actor, Code::NotAssignee)?;
    if let Progress::Ended(..) = held.progress {
        return Err(ended(held).into());
    }
    require(!held.taken, Code::AlreadyTaken)
}

/// T4.3: takes it, which ends the assignee's response to the carrying entry. The delivery time begins (T4.2).
///
/// # Errors
/// If it is not the actor's to take, or no longer to be taken.
pub fn take(draft: &mut Draft<'_>, actor: AgentId, id: &AssignmentId) -> Result<(), Stop> {
    let held = draft.cells().assignment(id)?.ok_or(Code::NotFound)?;
    may_take(&held, actor)?;
    if draft.cells().owes_response(&actor, held.entry)? {
        entry::end_response(draft, actor, held.entry, Exit::Taken)?;
    }
    let due = draft.time.after(held.terms.deliver_within);
    draft.emit(Effect::AssignmentTaken(*id, due))?;
    let began_at = draft.time;
    draft.emit(Effect::ObligationBegan(delivery(&held, began_at, due)))?;
    Ok(())
}

/// Checks what the format allows of an output.
///
/// # Errors
/// [`Code::ContentTooLarge`] with the field and the limit.
pub fn check_output(output: &Output, limits: &Limits) -> Result<(), Refusal> {
    let payload = output.payload.map_or(0, |payload| payload.commitment.length_bytes);
    if payload > limits.payload_bytes_max {
        return Err(Refusal::too_large("output", limits.payload_bytes_max));
    }
    if output.memories.len() as u64 > limits.output_memories_max {
        return Err(Refusal::too_large("output", limits.output_memories_max));
    }
    Ok(())
}

/// T4.4, T4.9: whose it is to deliver, and whether it can still be delivered; since when and until when.
///
/// # Errors
/// [`Code::NotTaker`], [`Code::AlreadyDelivered`], or how it ended.
pub fn may_deliver(held: &Assignment, actor: AgentId) -> Result<(Time, Time), Stop> {
    require(held.taken && held.terms.to == actor, Code::NotTaker)?;
    match held.progress {
        Progress::Taken(began, due) => Ok((began, due)),
        Progress::Delivered(..) => Err(Code::AlreadyDelivered.into()),
        Progress::Offered | Progress::Ended(..) => Err(ended(held).into()),
    }
}

/// T4.4: delivers, once, a payload, pinned versions of the taker's own memories, or both. The judgment time begins.
///
/// # Errors
/// If the actor has not taken it, it was delivered or ended, or the output is empty or another's.
pub fn deliver(draft: &mut Draft<'_>, actor: AgentId, id: &AssignmentId, output: &Output) -> Result<(), Stop> {
    let held = draft.cells().assignment(id)?.ok_or(Code::NotFound)?;
    let (began, due) = may_deliver(&held, actor)?;
    require(output.payload.is_some() || !output.memories.is_empty(), Code::InvalidOutput)?;
    let own = output.memories.iter().all(|pin| pin.author == actor && memory::is_whole(pin));
    require(own, Code::NotFound)?;
    check_output(output, &Limits::MAXIMA)?;
    draft.emit(Effect::ObligationEnded(delivery(&held, began, due), Exit::Delivered))?;
    let judge_by = draft.time.after(held.terms.judge_within);
    draft.emit(Effect::AssignmentDelivered(*id, output.clone(), judge_by))?;
    let began_at = draft.time;
    // The creator is a member here: when a membership ends, what it created and is not delivered is voided.
    draft.emit(Effect::ObligationBegan(judgment(&held, began_at, judge_by)))?;
    Ok(())
}

/// T4.5: accepts, or returns with a reason.
///
/// # Errors
/// If the actor is not the judge, lost the right, or there is nothing to judge.
pub fn judge(draft: &mut Draft<'_>, actor: AgentId, id: &AssignmentId, reason: Option<Commitment>) -> Result<(), Stop> {
    let held = draft.cells().assignment(id)?.ok_or(Code::NotFound)?;
    require(held.creator == actor, Code::NotJudge)?;
    // T2.7: joining again does not restore it.
    require(!held.forfeited || matches!(held.progress, Progress::Ended(..)), Code::JudgmentForfeited)?;
    let (began, due) = match held.progress {
        Progress::Delivered(began, due, _) => (began, due),
        Progress::Offered | Progress::Taken(..) => return Err(Code::NotJudge.into()),
        Progress::Ended(..) => return Err(ended(&held).into()),
    };
    if let Some(reason) = reason {
        require(reason.length_bytes > 0, Code::ReasonRequired)?;
        let maximum = Limits::MAXIMA.criteria_bytes_max;
        if reason.length_bytes > maximum {
            return Err(Refusal::too_large("reason", maximum).into());
        }
    }
    draft.emit(Effect::ObligationEnded(judgment(&held, began, due), Exit::Judged))?;
    let end = if reason.is_some() { Final::NotPassed } else { Final::Accepted };
    draft.emit(Effect::AssignmentEnded(*id, end, reason))?;
    Ok(())
}

/// T4.6: the taker gives up, before delivery.
///
/// # Errors
/// If the actor has not taken it, or it was delivered or ended.
pub fn abandon(draft: &mut Draft<'_>, actor: AgentId, id: &AssignmentId) -> Result<(), Stop> {
    let held = draft.cells().assignment(id)?.ok_or(Code::NotFound)?;
    require(held.taken && held.terms.to == actor, Code::NotTaker)?;
    undelivered(&held)?;
    end(draft, &held, Final::Abandoned, None, Exit::Abandoned)
}

/// T4.7: the creator calls it off, before delivery, taken or not.
///
/// # Errors
/// If the actor did not create it, or it was delivered or ended.
pub fn void(draft: &mut Draft<'_>, actor: AgentId, id: &AssignmentId) -> Result<(), Stop> {
    let held = draft.cells().assignment(id)?.ok_or(Code::NotFound)?;
    require(held.creator == actor, Code::NotAuthor)?;
    undelivered(&held)?;
    end(draft, &held, Final::Voided, None, Exit::Voided)
}

/// T4.12: ends it, and the obligation that runs for it.
///
/// # Errors
/// If the state cannot be read.
pub fn end(
    draft: &mut Draft<'_>,
    held: &Assignment,
    end: Final,
    reason: Option<Commitment>,
    exit: Exit,
) -> Result<(), Stop> {
    let running = match held.progress {
        Progress::Taken(began, due) => Some(delivery(held, began, due)),
        Progress::Delivered(began, due, false) => Some(judgment(held, began, due)),
        Progress::Delivered(_, _, true) | Progress::Offered | Progress::Ended(..) => None,
    };
    if let Some(obligation) = running {
        draft.emit(Effect::ObligationEnded(obligation, exit))?;
    }
    draft.emit(Effect::AssignmentEnded(held.assignment, end, reason))?;
    Ok(())
}

/// The deadline that comes next for this assignment, and when.
pub fn next_due(held: &Assignment) -> Option<(Due, Time)> {
    match held.progress {
        Progress::Taken(_, due) => Some((Due::Delivery(held.assignment), due)),
        Progress::Delivered(_, due, _) => Some((Due::Judgment(held.assignment), due)),
        Progress::Offered | Progress::Ended(..) => None,
    }
}

/// T4.10: a deadline came.
///
/// # Errors
/// If it is not the deadline of this assignment, or the state cannot be read.
pub fn expire(draft: &mut Draft<'_>, due: &Due) -> Result<(), Stop> {
    let (Due::Delivery(id) | Due::Judgment(id)) = due;
    let held = draft.cells().assignment(id)?.ok_or(Code::NotFound)?;
    require(next_due(&held) == Some((*due, draft.time)), Code::BadReference)?;
    let final_state = match due {
        Due::Delivery(_) => Final::TimedOut,
        Due::Judgment(_) => Final::Undecided,
    };
    end(draft, &held, final_state, None, Exit::Expired)
}

/// The taker's obligation to deliver.
pub fn delivery(held: &Assignment, began_at: Time, due: Time) -> Obligation {
    Obligation {
        duty: Duty::Deliver,
        bearer: held.terms.to,
        entry: held.entry,
        assignment: Some(held.assignment),
        began_at,
        due_at: Some(due),
    }
}

/// The creator's obligation to judge.
pub fn judgment(held: &Assignment, began_at: Time, due: Time) -> Obligation {
    Obligation {
        duty: Duty::Judge,
        bearer: held.creator,
        entry: held.entry,
        assignment: Some(held.assignment),
        began_at,
        due_at: Some(due),
    }
}

fn undelivered(held: &Assignment) -> Result<(), Stop> {
    match held.progress {
        Progress::Offered | Progress::Taken(..) => Ok(()),
        Progress::Delivered(..) => Err(Code::AlreadyDelivered.into()),
        Progress::Ended(..) => Err(ended(held).into()),
    }
}

/// T4.12, L4.3: `expired` if a deadline ended it.
fn ended(held: &Assignment) -> Code {
    match held.progress {
        Progress::Ended(end, ..) if end.is_expiry() => Code::Expired,
        _ => Code::AlreadyFinal,
    }
}
