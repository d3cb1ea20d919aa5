//! The turn, opportunities, the working set and receipts: all that an agent needs after any amnesia (O3 to O7).

use std::collections::BTreeMap;

use kwoon_keys::id::{AgentId, ObligationId, RequestId, ThreadId};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::effect::{Duty, Effect, Obligation};
use kwoon_ledger::index::{self, List, OfferRow, TurnRow};
use kwoon_ledger::log;
use kwoon_ledger::outbox::{self, Progress as Sending};
use kwoon_ledger::refusal::{Code, Refusal, Step, Stop};
use kwoon_ledger::rules::assignment;
use kwoon_ledger::state::{Cell, Cells, Entry, ObjectNumber, Progress, Thread};
use kwoon_ledger::storage::Layer;
use kwoon_ledger::visibility;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reads;
use super::agent::{AgentShown, shown_agent};
use super::assignment::{AssignmentShown, shown_assignment};
use super::memory::{self, MemoryShown};
use super::thread::{ThreadShown, shown_thread};
use crate::answer::{Answer, ContentKey, Contents, Next, Window, shown};
use crate::argument::{Key, Limit, MemoryRef, ObjectRef, ReceiptRef, ThreadRef};
use crate::foresight;
use crate::receipt::{self, Done};
use crate::view::{View, agent_id, is_active, step_of};

/// Arguments of `turn`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Where the page begins.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
}

/// An obligation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ObligationShown {
    /// Its id.
    id: String,
    /// `respond`, `deliver` or `judge`.
    duty: &'static str,
    /// The thread.
    object: String,
    /// The entry that asks, or that carries the assignment; none while that entry is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assignment: Option<String>,
    began_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<String>,
    /// The deadline has passed and its end is not sealed yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lapsed: bool,
    /// What to do.
    step: &'static str,
    /// `sealed`; `pending` if a pending action would end it, or would let it begin.
    standing: &'static str,
    /// The pending action.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
}

impl ObligationShown {
    /// As something that a pending action changes: there is nothing to do about it but wait.
    fn pending(mut self, action: &RequestId) -> Self {
        (self.step, self.standing) = (Step::Wait.name(), "pending");
        self.action = Some(action.to_string());
        self
    }
}

/// What pending actions would change of what an agent owes.
#[derive(Default)]
struct Expected {
    /// Obligations that would end, and by which action.
    ends: BTreeMap<ObligationId, RequestId>,
    /// Obligations that would begin.
    begins: Vec<(TurnRow, RequestId)>,
}

/// Rows of the outbox that a turn looks at.
const OUTBOX_LOOKED_AT: usize = 1024;

/// What pending actions would change of what an agent owes, over all objects or in one.
fn expected(view: &View<'_>, agent: &AgentId, only: Option<ObjectNumber>) -> Result<Expected, Stop> {
    let mut objects = Vec::new();
    for row in outbox::since(view.read, 0, OUTBOX_LOOKED_AT)? {
        if row.is_pending() && !objects.contains(&row.carried.object) {
            objects.push(row.carried.object);
        }
    }
    let mut expected = Expected::default();
    for object in objects {
        let Some(number) = index::number(view.read, &object)? else { continue };
        if only.is_some_and(|only| only != number) || Cells::new(view.read, number).member(agent)?.is_none() {
            continue;
        }
        let ObjectId::Thread(thread) = object else { continue };
        let foreseen = foresight::foresee(view.read, &view.keyring.host, number, &object, view.now)?;
        let layer = Layer { base: view.read, batch: &foreseen.batch };
        for (request, sealed) in &foreseen.sealed {
            for effect in log::effects(&layer, number, sealed.index)? {
                match effect {
                    Effect::ObligationBegan(obligation) if obligation.bearer == *agent => {
                        expected.begins.push((TurnRow { number, thread, obligation }, *request));
                    }
                    Effect::ObligationEnded(obligation, _) if obligation.bearer == *agent => {
                        let id = obligation.id(&thread);
                        expected.begins.retain(|(row, _)| row.obligation.id(&thread) != id);
                        expected.ends.insert(id, *request);
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(expected)
}

/// An obligation with what pending actions would make of it.
fn with_expected(view: &View<'_>, row: &TurnRow, expected: &Expected) -> ObligationShown {
    let shown = shown_obligation(view, &row.thread, row);
    match expected.ends.get(&row.obligation.id(&row.thread)) {
        Some(action) => shown.pending(action),
        None => shown,
    }
}

/// An obligation that a pending action would let begin.
fn begun_by(view: &View<'_>, row: &TurnRow, action: &RequestId) -> Result<ObligationShown, Stop> {
    let mut shown = shown_obligation(view, &row.thread, row).pending(action);
    if Cells::new(view.read, row.number).entry(row.obligation.entry)?.is_none() {
        shown.entry = None;
    }
    shown.due_at = None;
    Ok(shown)
}

fn shown_obligation(view: &View<'_>, thread: &ThreadId, row: &TurnRow) -> ObligationShown {
    let obligation = &row.obligation;
    ObligationShown {
        id: obligation.id(thread).to_string(),
        duty: obligation.duty.name(),
        object: thread.to_string(),
        entry: Some(obligation.entry),
        assignment: obligation.assignment.map(|assignment| assignment.to_string()),
        began_at: shown(obligation.began_at),
        due_at: obligation.due_at.map(shown),
        lapsed: obligation.due_at.is_some_and(|due| due <= view.now),
        step: step_of(row, view.now).step.name(),
        standing: "sealed",
        action: None,
    }
}

/// What an agent owes in one thread, oldest first.
///
/// # Errors
/// If the store cannot be read.
pub fn obligations_in(
    view: &View<'_>,
    agent: &AgentId,
    thread: &Thread,
    number: ObjectNumber,
) -> Result<Vec<ObligationShown>, Stop> {
    let cells = Cells::new(view.read, number);
    let mut owed: Vec<Obligation> = Vec::new();
    for entry in cells.entry_numbers(Cell::Pending, &[agent.as_bytes()])? {
        let Some(posted) = cells.entry(entry)? else { continue };
        owed.push(Obligation {
            duty: Duty::Respond,
            bearer: *agent,
            entry,
            assignment: None,
            began_at: posted.at,
            due_at: None,
        });
    }
    for entry in cells.entry_numbers(Cell::Party, &[agent.as_bytes()])? {
        let Some(held) = cells.assignment_at(entry)? else { continue };
        match held.progress {
            Progress::Taken(began, due) if held.terms.to == *agent => {
                owed.push(assignment::delivery(&held, began, due));
            }
            Progress::Delivered(began, due, false) if held.creator == *agent => {
                owed.push(assignment::judgment(&held, began, due));
            }
            _ => {}
        }
    }
    owed.sort_by_key(|obligation| (obligation.began_at, obligation.entry, obligation.duty));
    let rows = owed.into_iter().map(|obligation| TurnRow { number, thread: thread.thread, obligation });
    let expected = expected(view, agent, Some(number))?;
    let mut shown: Vec<_> = rows.map(|row| with_expected(view, &row, &expected)).collect();
    for (row, action) in &expected.begins {
        shown.push(begun_by(view, row, action)?);
    }
    Ok(shown)
}

/// Obligations.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Obligations {
    /// In the order of their origin; what began while you walk the pages comes last.
    obligations: Vec<ObligationShown>,
    /// Actions of yours that are not settled yet.
    pending_actions: u64,
    /// Actions of yours that were refused elsewhere and that you have not looked at.
    refused_actions: u64,
}

impl Reads for Turn {
    type Result = Obligations;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let reader = view.reader()?;
        let owner = index::owner(&reader);
        let limit = Limit::of(self.limit);
        let (rows, cursor) = view.page::<TurnRow>(List::Turn, &owner, self.cursor.as_deref(), limit)?;
        let expected = expected(view, &reader, None)?;
        let mut obligations: Vec<_> = rows.iter().map(|row| with_expected(view, row, &expected)).collect();
        // What is not sealed has no place in the walk: it stands on the last page.
        if cursor.is_none() {
            for (row, action) in &expected.begins {
                obligations.push(begun_by(view, row, action)?);
            }
        }
        let (pending_actions, refused_actions) = unsettled(view, &reader)?;
        let result = Obligations { obligations, pending_actions, refused_actions };
        let mut answer = view.answer(&result, Contents::new(view.read), None)?;
        let open = rows.iter().find(|row| !expected.ends.contains_key(&row.obligation.id(&row.thread)));
        answer.next = match open {
            Some(row) => {
                let object = serde_json::json!({"object": row.thread.to_string()});
                vec![Next { step: step_of(row, view.now).step, call: Some(("working_set", object)) }]
            }
            None => vec![Next::step(Step::Wait)],
        };
        answer.cursor = cursor;
        Ok(answer)
    }
}

/// How many actions of an agent have no outcome, and how many were refused elsewhere.
fn unsettled(view: &View<'_>, agent: &AgentId) -> Result<(u64, u64), Stop> {
    let (mut pending, mut refused) = (0, 0);
    let most = usize::try_from(view.limits.outbox_max).unwrap_or(usize::MAX);
    for request in index::list_latest::<RequestId>(view.read, List::Outbox, &index::owner(agent), most)? {
        match outbox::find(view.read, &request)? {
            Some(row) if row.is_pending() => pending += 1,
            Some(_) => refused += 1,
            None => {}
        }
    }
    Ok((pending, refused))
}

/// Arguments of `opportunities`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Opportunities {
    /// Where the page begins.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
}

/// Work on offer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OpportunityShown {
    /// `assignment`.
    kind: &'static str,
    assignment: String,
    /// The thread.
    object: String,
    entry: u64,
    step: &'static str,
    /// The text of the entry that carries it.
    text_content: ContentKey,
    criteria_content: ContentKey,
}

/// Opportunities.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Offers {
    opportunities: Vec<OpportunityShown>,
}

impl Reads for Opportunities {
    type Result = Offers;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let reader = view.reader()?;
        let owner = index::owner(&reader);
        let limit = Limit::of(self.limit);
        let (rows, cursor) = view.page::<OfferRow>(List::Opportunities, &owner, self.cursor.as_deref(), limit)?;
        let mut contents = Contents::new(view.read);
        let mut opportunities = Vec::new();
        for row in rows {
            let cells = Cells::new(view.read, row.number);
            // An offer stays when its assignee leaves, and is readable again if it comes back (V2, V10).
            if cells.member(&reader)?.is_none() {
                continue;
            }
            let (Some(posted), Some(held)) = (cells.entry(row.entry)?, cells.assignment_at(row.entry)?) else {
                continue;
            };
            let criteria = &held.terms.criteria;
            opportunities.push(OpportunityShown {
                kind: "assignment",
                assignment: row.assignment.to_string(),
                object: row.thread.to_string(),
                entry: row.entry,
                step: Step::Deliver.name(),
                text_content: entry_text(view, &mut contents, &posted)?,
                criteria_content: contents.plain(Some(&held.creator), "criteria", criteria, Window::DEFAULT)?,
            });
        }
        let take = opportunities.first().map(|first| serde_json::json!({"assignment": first.assignment}));
        let mut answer = view.answer(&Offers { opportunities }, contents, None)?;
        if let Some(arguments) = take {
            answer.next = vec![Next { step: Step::Deliver, call: Some(("assignment_take", arguments)) }];
        }
        answer.cursor = cursor;
        Ok(answer)
    }
}

/// Arguments of `working_set`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkingSet {
    /// The object: a thread, a memory or yourself.
    object: ObjectRef,
}

/// An entry that waits for your response.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Owed {
    entry: u64,
    text_content: ContentKey,
}

/// Work in your hands, or on offer to you: what is asked, and what was delivered.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Work {
    #[serde(flatten)]
    assignment: AssignmentShown,
    /// The text of the entry that carries it.
    text_content: ContentKey,
}

/// The assignments that a member owes a delivery or a judgment of, or may take, oldest first.
fn work_of(
    view: &View<'_>,
    contents: &mut Contents<'_>,
    reader: &AgentId,
    number: ObjectNumber,
) -> Result<Vec<Work>, Stop> {
    let cells = Cells::new(view.read, number);
    let mut work = Vec::new();
    for entry in cells.entry_numbers(Cell::Party, &[reader.as_bytes()])? {
        let Some(held) = cells.assignment_at(entry)? else { continue };
        let concerns = match held.progress {
            Progress::Offered | Progress::Taken(..) => held.terms.to == *reader,
            Progress::Delivered(_, _, forfeited) => held.creator == *reader && !forfeited,
            Progress::Ended(..) => false,
        };
        let Some(posted) = cells.entry(entry)?.filter(|_| concerns) else { continue };
        let assignment = shown_assignment(view, contents, number, &held, Window::DEFAULT)?;
        work.push(Work { assignment, text_content: entry_text(view, contents, &posted)? });
        if work.len() == OWED_MAX {
            break;
        }
    }
    Ok(work)
}

/// The text of an entry, as much as is read unless more is asked for.
fn entry_text(view: &View<'_>, contents: &mut Contents<'_>, posted: &Entry) -> Result<ContentKey, Stop> {
    let readable = visibility::entry_text(view.read, posted)?;
    Ok(contents.text(Some(&posted.pin.author), "text", &posted.pin.text, readable, Window::DEFAULT)?)
}

/// Entries to respond to, and assignments, whose texts a working set holds.
const OWED_MAX: usize = 20;

/// The working set of a thread.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ThreadWorkingSet {
    #[serde(flatten)]
    thread: ThreadShown,
    /// The texts of the entries you owe a response to, the oldest 20.
    owed: Vec<Owed>,
    /// What you are to deliver or judge, or may take, the oldest 20.
    work: Vec<Work>,
}

/// The working set of anything else.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PlainWorkingSet<T> {
    #[serde(flatten)]
    object: T,
    /// `author`, `reader` or `self`.
    role: &'static str,
    obligations: Vec<ObligationShown>,
    actions: Vec<&'static str>,
}

/// The working set of one object.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[allow(clippy::large_enum_variant)]
pub enum WorkingSetShown {
    /// Of a thread.
    Thread(ThreadWorkingSet),
    /// Of a memory.
    Memory(PlainWorkingSet<MemoryShown>),
    /// Of an agent.
    Agent(PlainWorkingSet<AgentShown>),
}

impl Reads for WorkingSet {
    type Result = WorkingSetShown;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let reader = view.reader()?;
        let mut contents = Contents::new(view.read);
        match self.object {
            ObjectRef::Thread(short) => {
                let (thread, number) = shown_thread(view, &mut contents, &ThreadRef(short))?;
                let cells = Cells::new(view.read, number);
                let mut owed = Vec::new();
                for entry in cells.entry_numbers(Cell::Pending, &[reader.as_bytes()])?.into_iter().take(OWED_MAX) {
                    let Some(posted) = cells.entry(entry)? else { continue };
                    owed.push(Owed { entry, text_content: entry_text(view, &mut contents, &posted)? });
                }
                let work = work_of(view, &mut contents, &reader, number)?;
                let result = WorkingSetShown::Thread(ThreadWorkingSet { thread, owed, work });
                Ok(view.answer(&result, contents, Some(number))?)
            }
            ObjectRef::Memory(short) => {
                let reference = MemoryRef(short);
                let (object, number) = memory::shown(view, &mut contents, &reference, None, Window::DEFAULT)?;
                let is_author = object.author == reader.to_string();
                // A1: an inactive agent reads, and can do nothing.
                let can_act = is_author && is_active(view.read, &reader)?;
                let actions = match (can_act, object.state, object.visibility) {
                    (true, "valid", "public") => vec!["memory_update", "memory_unpublish", "memory_withdraw"],
                    (true, "valid", _) => vec!["memory_update", "memory_publish", "memory_withdraw"],
                    _ => Vec::new(),
                };
                let role = if is_author { "author" } else { "reader" };
                let set = PlainWorkingSet { object, role, obligations: Vec::new(), actions };
                Ok(view.answer(&WorkingSetShown::Memory(set), contents, number)?)
            }
            ObjectRef::Agent(short) => {
                let (agent, number) = agent_id(view.read, &short)?.ok_or(Code::NotFound)?;
                if agent != reader {
                    return Err(Code::NotFound.into());
                }
                let object = shown_agent(view, &mut contents, agent, number, None)?;
                let actions = if object.is_active() { vec!["memory_create", "thread_create"] } else { Vec::new() };
                let set = PlainWorkingSet { object, role: "self", obligations: Vec::new(), actions };
                Ok(view.answer(&WorkingSetShown::Agent(set), contents, Some(number))?)
            }
            ObjectRef::Publication(_) => Err(Code::NotFound.into()),
        }
    }
}

/// Arguments of `receipt_get`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptGet {
    /// The operation, with `key`.
    operation: Option<String>,
    /// The idempotency key, with `operation`.
    key: Option<Key>,
    /// The receipt's id, instead of both.
    id: Option<ReceiptRef>,
}

impl Reads for ReceiptGet {
    type Result = Done;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let reader = view.reader()?;
        // V9: receipts are the agent's own, so an owner that reads as an agent finds none.
        let requests = match (self.operation, self.key, self.id) {
            (Some(operation), Some(key), None) => {
                if super::find(&operation).is_none_or(|operation| !operation.is_action()) {
                    return Err(Refusal::argument("operation", "the name of an operation that acts").into());
                }
                let ids = view.keyring.request_ids(&reader, &operation, &key.0);
                ids.into_iter().map(|(_, request)| request).collect()
            }
            (None, None, Some(id)) => index::receipt(view.read, &id.0)?.into_iter().collect::<Vec<_>>(),
            _ => return Err(Refusal::argument("id", "an id, or both operation and key").into()),
        };
        for request in requests {
            if view.is_owner() {
                break;
            }
            let Some(ended) = receipt::ended(view.read, &request)? else { continue };
            if ended.action.agent() != Some(reader) {
                continue;
            }
            let (receipt, done) = receipt::receipt(view.read, &ended)?;
            let mut answer = view.answer(&done, Contents::new(view.read), None)?;
            answer.receipt = Some(receipt);
            return Ok(answer);
        }
        Err(Code::NotFound.into())
    }
}

/// Arguments of `outbox_list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutboxList {
    /// Where the page begins.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
}

/// An action that is not settled.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OutboxRow {
    action: String,
    operation: String,
    key: String,
    object: String,
    /// `pending`, `refused`, or `unknown` once it has expired here without an outcome.
    state: &'static str,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RefusedShown>,
}

/// Why an action was refused elsewhere, in fixed words.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RefusedShown {
    code: &'static str,
    message: &'static str,
    fix: &'static str,
    step: &'static str,
}

impl From<Code> for RefusedShown {
    fn from(code: Code) -> Self {
        Self { code: code.name(), message: code.message(), fix: code.fix(), step: code.step().name() }
    }
}

/// The outbox.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Outbox {
    actions: Vec<OutboxRow>,
}

impl Reads for OutboxList {
    type Result = Outbox;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let owner = index::owner(&view.reader()?);
        let (rows, cursor) =
            view.page::<RequestId>(List::Outbox, &owner, self.cursor.as_deref(), Limit::of(self.limit))?;
        let mut actions = Vec::new();
        for request in rows {
            let Some(row) = outbox::find(view.read, &request)? else { continue };
            let action = row.carried.action()?;
            let (state, refusal) = match &row.progress {
                Sending::Pending if action.expires_at <= view.now => ("unknown", None),
                Sending::Pending => ("pending", None),
                Sending::Refused(outcome) => ("refused", Some(receipt::refusal(outcome).code)),
                Sending::Expired => ("refused", Some(Code::ActionExpired)),
            };
            // V9: what an agent called its requests is its own.
            let (operation, key) = row.called.unwrap_or_default();
            actions.push(OutboxRow {
                action: request.to_string(),
                operation,
                key: if view.is_owner() { String::new() } else { key },
                object: row.carried.object.to_string(),
                state,
                error: refusal.map(RefusedShown::from),
            });
        }
        let mut answer = view.answer(&Outbox { actions }, Contents::new(view.read), None)?;
        answer.cursor = cursor;
        Ok(answer)
    }
}
