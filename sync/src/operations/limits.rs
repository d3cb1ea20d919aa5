//! What the host allows beyond what the format does: checked after the rules and before anything is kept (L4.4).

use kwoon_ledger::action::{Action, Body, Output};
use kwoon_ledger::identity::{Change, ProfileChange};
use kwoon_ledger::index::{self, List};
use kwoon_ledger::limits::Limits;
use kwoon_ledger::refusal::{Code, Detail, Refusal, Stop};
use kwoon_ledger::rules::{assignment, entry, memory};
use kwoon_ledger::state::{Cells, ObjectNumber};
use kwoon_ledger::storage::Read;

/// Checks an action against the host's limits, in the state as it would be with the action sealed.
///
/// # Errors
/// [`Code::ContentTooLarge`] or [`Code::CapacityReached`], with the limit.
pub fn check(read: &dyn Read, number: ObjectNumber, action: &Action, limits: &Limits) -> Result<(), Stop> {
    let cells = Cells::new(read, number);
    match &action.body {
        Body::MemoryCreate(version) => memory::check_version(version, limits)?,
        Body::MemoryUpdate(update) => memory::check_version(&update.version, limits)?,
        Body::ThreadCreate(create) => {
            line("subject", create.subject.map_or(0, |subject| subject.length_bytes), limits)?;
            open_threads(read, action, limits)?;
        }
        Body::ThreadJoin(..) => {
            at_most(cells.thread()?.members, limits.members_max, "members")?;
            open_threads(read, action, limits)?;
        }
        Body::EntryPost(post) => {
            entry::check_sizes(post, limits)?;
            let thread = cells.thread()?;
            if let Some(agent) = action.agent() {
                at_most(cells.caused(&agent)?, limits.obligations_caused_max, "obligations")?;
            }
            at_most(thread.obligations, limits.obligations_open_max, "obligations")?;
        }
        Body::EntryHandle(_, note) => {
            let size = note.map_or(0, |note| note.length_bytes);
            size_at_most("note", size, limits.note_bytes_max)?;
        }
        Body::AssignmentTake(_, output) => output_size(output.as_ref(), limits)?,
        Body::AssignmentDeliver(_, output) => output_size(Some(output), limits)?,
        Body::AssignmentReturn(_, reason) => {
            size_at_most("reason", reason.length_bytes, limits.criteria_bytes_max)?;
        }
        Body::AgentCreate(genesis) => {
            let longest = genesis.policies.iter().map(|policy| policy.name.length_bytes).max().unwrap_or(0);
            line("display_name", genesis.display_name.map_or(0, |name| name.length_bytes), limits)?;
            line("mission", genesis.mission.map_or(0, |mission| mission.length_bytes), limits)?;
            line("policy_refs", longest, limits)?;
            size_at_most("policy_refs", genesis.policies.len() as u64, limits.tags_max)?;
        }
        Body::AgentChange(change) => match &change.change {
            Change::Profile(ProfileChange { display_name, mission, policies, .. }) => {
                let policies = policies.as_deref().unwrap_or_default();
                let longest = policies.iter().map(|policy| policy.name.length_bytes).max().unwrap_or(0);
                line("display_name", display_name.map_or(0, |name| name.length_bytes), limits)?;
                line("mission", mission.map_or(0, |mission| mission.length_bytes), limits)?;
                line("policy_refs", longest, limits)?;
                size_at_most("policy_refs", policies.len() as u64, limits.tags_max)?;
            }
            Change::Status(status) => {
                let size = status.reason.map_or(0, |reason| reason.length_bytes);
                size_at_most("reason", size, limits.criteria_bytes_max)?;
            }
            Change::InstanceAdded(..) | Change::InstanceRevoked(..) | Change::HomeHost(_) => {}
        },
        Body::MemoryPublish
        | Body::MemoryUnpublish
        | Body::MemoryWithdraw
        | Body::AdmissionIssue(_)
        | Body::AdmissionVoid
        | Body::ThreadLeave
        | Body::ThreadClose
        | Body::MemberRemove(_)
        | Body::MemberRole(..)
        | Body::EntryRetract(_)
        | Body::AssignmentAccept(_)
        | Body::AssignmentAbandon(_)
        | Body::AssignmentVoid(_) => {}
    }
    Ok(())
}

fn size_at_most(field: &'static str, size: u64, limit: u64) -> Result<(), Refusal> {
    if size > limit { Err(Refusal::too_large(field, limit)) } else { Ok(()) }
}

fn line(field: &'static str, size: u64, limits: &Limits) -> Result<(), Refusal> {
    size_at_most(field, size, limits.line_bytes_max)
}

fn output_size(output: Option<&Output>, limits: &Limits) -> Result<(), Refusal> {
    output.map_or(Ok(()), |output| assignment::check_output(output, limits))
}

fn at_most(count: u64, limit: u64, what: &'static str) -> Result<(), Refusal> {
    if count <= limit {
        return Ok(());
    }
    let refusal = Refusal::from(Code::CapacityReached);
    Err(refusal.with("of", Detail::Word(what)).with("limit", Detail::Number(limit)))
}

fn open_threads(read: &dyn Read, action: &Action, limits: &Limits) -> Result<(), Stop> {
    let Some(agent) = action.agent() else { return Ok(()) };
    let most = usize::try_from(limits.open_threads_max).unwrap_or(usize::MAX);
    let count = index::list_count(read, List::OpenThreads, &index::owner(&agent), most.saturating_add(1))?;
    Ok(at_most(count as u64, limits.open_threads_max, "threads")?)
}
