//! Threads, admissions and members.

use kwoon_keys::id::AgentId;
use kwoon_keys::{RecordKind, cbor, cose};
use kwoon_ledger::action::{AdmissionUse, Body, Grant, ObjectId, Position, Role, SCHEMA, ThreadCreate as Create};
use kwoon_ledger::index::{self, List};
use kwoon_ledger::refusal::{Code, Stop, require};
use kwoon_ledger::state::{Cell, Cells, Member, ObjectNumber, Progress, Thread};
use kwoon_ledger::visibility;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::entry::{EntryShown, shown_entry};
use super::memory::commit_optional;
use super::turn::{ObligationShown, obligations_in};
use super::{Acts, Reads, member_id};
use crate::answer::{Answer, ContentKey, Contents, Window, shown};
use crate::argument::{AgentRef, Limit, MaxBytes, NonEmpty, RoleText, ThreadRef};
use crate::round::{Acting, Plan};
use crate::ticket::Ticket;
use crate::view::{View, read_cursor, write_cursor};

/// An admission to issue with a new thread.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object: {role?}")]
#[schemars(inline)]
pub struct AdmissionArgument {
    /// The role it admits to; speaker if left out.
    role: Option<RoleText>,
}

/// Arguments of `thread_create`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadCreate {
    /// What the thread is about.
    subject: Option<NonEmpty>,
    /// Issue an admission at once: the answer holds its ticket.
    admission: Option<AdmissionArgument>,
}

fn role(given: Option<RoleText>) -> Role {
    given.map_or(Role::Speaker, Role::from)
}

impl Acts for ThreadCreate {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let place = acting.host();
        let subject = commit_optional(acting, &place, "subject", self.subject);
        let admission = self
            .admission
            .map(|admission| Grant { key: acting.admission(&place).public(), role: role(admission.role) });
        Ok(Plan::new(Body::ThreadCreate(Create { subject, admission })))
    }
}

/// The thread that an agent wants to act on, if it is a member.
///
/// # Errors
/// [`Code::NotFound`] to everyone else (V2).
pub fn acted_on(acting: &mut Acting<'_, '_>, thread: &ThreadRef) -> Result<(ObjectNumber, Thread), Stop> {
    let found = visibility::thread(acting.read(), &acting.agent, &thread.0)?;
    let (number, _) = found.ok_or(Code::NotFound)?;
    let object = ObjectId::Thread(Cells::new(acting.read(), number).thread()?.thread);
    acting.expect(number, &object)?;
    Ok((number, Cells::new(acting.read(), number).thread()?))
}

macro_rules! on_thread {
    ($($(#[$doc:meta])* $name:ident: $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// The thread.
            thread: ThreadRef,
        }

        impl Acts for $name {
            fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
                let (_, thread) = acted_on(acting, &self.thread)?;
                Ok(Plan::on(ObjectId::Thread(thread.thread), $body))
            }
        }
    )*};
}

on_thread! {
    /// Arguments of `thread_leave`.
    ThreadLeave: Body::ThreadLeave;
    /// Arguments of `thread_close`.
    ThreadClose: Body::ThreadClose;
    /// Arguments of `admission_void`.
    AdmissionVoid: Body::AdmissionVoid;
}

/// Arguments of `admission_issue`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdmissionIssue {
    /// The thread.
    thread: ThreadRef,
    /// The role it admits to; speaker if left out.
    role: Option<RoleText>,
}

impl Acts for AdmissionIssue {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let (_, thread) = acted_on(acting, &self.thread)?;
        let key = acting.admission(thread.thread.as_bytes()).public();
        let grant = Grant { key, role: role(self.role) };
        Ok(Plan::on(ObjectId::Thread(thread.thread), Body::AdmissionIssue(grant)))
    }
}

/// Arguments of `thread_join`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadJoin {
    /// The ticket, as a governor gave it to you.
    ticket: String,
}

impl Acts for ThreadJoin {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        // S1: whatever is wrong with a ticket or its thread looks the same.
        let ticket = Ticket::read(&self.ticket).ok_or(Code::AdmissionInvalid)?;
        let object = ObjectId::Thread(ticket.thread);
        match index::number(acting.read(), &object)? {
            Some(number) => {
                let head = Cells::new(acting.read(), number).head()?.ok_or(Code::AdmissionInvalid)?;
                let opening = kwoon_ledger::log::head_at(acting.read(), number, &head, 0)?;
                require(opening == Some(ticket.opening), Code::AdmissionInvalid)?;
            }
            // It is elsewhere, if the ticket names another host.
            None => {
                let own = acting.host();
                require(ticket.hosts.iter().any(|hint| hint.host.0 != own), Code::AdmissionInvalid)?;
            }
        }
        let admission = ticket.admission();
        let used =
            AdmissionUse { schema: SCHEMA, thread: ticket.thread, joiner: acting.agent, request: acting.request };
        let proof = cose::sign(RecordKind::Admission, &cbor::write(&used), &admission);
        let grant = Grant { key: admission.public(), role: Role::Speaker };
        let mut plan = Plan::on(object, Body::ThreadJoin(grant.id(), proof.into()));
        plan.position = Some(Position { epoch: 0, index: 0, head: ticket.opening });
        plan.hosts = ticket.hosts;
        Ok(plan)
    }
}

/// Arguments of `member_remove`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberRemove {
    /// The thread.
    thread: ThreadRef,
    /// The member.
    agent: AgentRef,
}

impl Acts for MemberRemove {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let (number, thread) = acted_on(acting, &self.thread)?;
        let member = member_id(&Cells::new(acting.read(), number), &self.agent)?;
        Ok(Plan::on(ObjectId::Thread(thread.thread), Body::MemberRemove(member)))
    }
}

/// Arguments of `member_role`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberRole {
    /// The thread.
    thread: ThreadRef,
    /// The member.
    agent: AgentRef,
    /// The new role.
    role: RoleText,
}

impl Acts for MemberRole {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let (number, thread) = acted_on(acting, &self.thread)?;
        let member = member_id(&Cells::new(acting.read(), number), &self.agent)?;
        let body = Body::MemberRole(member, self.role.into());
        Ok(Plan::on(ObjectId::Thread(thread.thread), body))
    }
}

/// Arguments of `member_list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberList {
    /// The thread.
    thread: ThreadRef,
    /// Where the page begins.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
}

/// A membership.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MemberShown {
    agent: String,
    role: &'static str,
    /// The admission it came through; none for who created the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<String>,
    since: String,
}

/// Memberships.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Members {
    members: Vec<MemberShown>,
}

fn shown_member((agent, member): &(AgentId, Member)) -> MemberShown {
    MemberShown {
        agent: agent.to_string(),
        role: member.role.name(),
        admission: member.admission.map(|admission| admission.to_string()),
        since: shown(member.since),
    }
}

impl Reads for MemberList {
    type Result = Members;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let (number, _) = view.thread(&self.thread.0)?;
        let after: Option<u64> =
            self.cursor.as_deref().map(|text| read_cursor(b"members", &self.thread.0, text)).transpose()?;
        let limit = Limit::of(self.limit);
        // Memberships are in the order in which they began, so a new one comes on a later page.
        let members = Cells::new(view.read, number).members()?;
        let mut rest = members.into_iter().filter(|(_, member)| after.is_none_or(|after| member.index > after));
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let last = page.last().map(|(_, member)| member.index);
        let cursor = rest.next().and(last).map(|last| write_cursor(b"members", &self.thread.0, &last));
        let result = Members { members: page.iter().map(shown_member).collect() };
        let mut answer = view.answer(&result, Contents::new(view.read), Some(number))?;
        answer.cursor = cursor;
        Ok(answer)
    }
}

/// Arguments of `thread_get`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadGet {
    /// The thread.
    thread: ThreadRef,
}

/// A thread as one of its members sees it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ThreadShown {
    thread: String,
    /// `open` or `closed`.
    state: &'static str,
    role: &'static str,
    creator: String,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject_content: Option<ContentKey>,
    /// The first 50; `member_list` has all.
    members: Vec<MemberShown>,
    member_count: u64,
    /// The last 20; `thread_entries` has all.
    entries: Vec<EntryShown>,
    entry_count: u64,
    /// The first 50 of what you owe here; `turn` has all.
    obligations: Vec<ObligationShown>,
    obligation_count: usize,
    /// Operations open to you here now.
    actions: Vec<&'static str>,
    /// The valid admission, without its ticket.
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<AdmissionShown>,
    /// The host that orders this thread.
    sequencer: String,
}

/// An admission.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AdmissionShown {
    admission: String,
    role: &'static str,
}

fn state(thread: &Thread) -> &'static str {
    if thread.closed { "closed" } else { "open" }
}

/// A thread as its member sees it, with the texts of the entries it owes a response to in full windows.
///
/// # Errors
/// [`Code::NotFound`] for anyone else.
pub fn shown_thread(
    view: &View<'_>,
    contents: &mut Contents<'_>,
    reference: &ThreadRef,
) -> Result<(ThreadShown, ObjectNumber), Stop> {
    let reader = view.reader()?;
    let (number, member) = view.thread(&reference.0)?;
    let cells = Cells::new(view.read, number);
    let thread = cells.thread()?;
    let head = cells.head()?.ok_or(Code::Internal)?;
    let subject = contents.optional(Some(&thread.creator), "subject", thread.subject.as_ref(), Window::DEFAULT)?;
    let mut entries = Vec::new();
    for entry in thread.entries.saturating_sub(20) + 1..=thread.entries {
        // Entries in an overview are cut short; entry_get reads them whole.
        let window = Window { offset: 0, max_bytes: 512 };
        entries.push(shown_entry(view, contents, &cells, entry, window)?);
    }
    let obligations = obligations_in(view, &reader, &thread, number)?;
    let shown_thread = ThreadShown {
        thread: thread.thread.to_string(),
        state: state(&thread),
        role: member.role.name(),
        creator: thread.creator.to_string(),
        created_at: shown(thread.created_at),
        subject_content: subject,
        members: cells.members()?.iter().take(50).map(shown_member).collect(),
        member_count: thread.members,
        entries,
        entry_count: thread.entries,
        obligation_count: obligations.len(),
        obligations: obligations.into_iter().take(50).collect(),
        actions: actions(view, &cells, &reader, &thread, &member)?,
        admission: thread
            .admission
            .map(|(id, grant)| AdmissionShown { admission: id.to_string(), role: grant.role.name() }),
        sequencer: head.sequencer.to_string(),
    };
    Ok((shown_thread, number))
}

/// The operations that are open to a member now (O5).
fn actions(
    view: &View<'_>,
    cells: &Cells<'_>,
    agent: &AgentId,
    thread: &Thread,
    member: &Member,
) -> Result<Vec<&'static str>, Stop> {
    let mut open = Vec::new();
    let pending = !cells.keys(Cell::Pending, &[agent.as_bytes()], 1)?.is_empty();
    if !thread.closed && member.role.has_voice() {
        open.push("entry_post");
    }
    if pending {
        open.push("entry_handle");
    }
    let mut assignments = [false; 5];
    // What an agent caused and is not ended: its assignments, and the responses that its entries still wait for (T3.8).
    let mut awaited = cells.caused(agent)?;
    for entry in cells.entry_numbers(Cell::Party, &[agent.as_bytes()])? {
        let Some(held) = cells.assignment_at(entry)? else { continue };
        let (is_taker, is_creator) = (held.terms.to == *agent, held.creator == *agent);
        awaited = awaited.saturating_sub(u64::from(is_creator));
        // Past its deadline an assignment waits for its end alone: every action would be refused with `expired` (L4.3).
        if held.due_at().is_some_and(|due| due <= view.now) {
            continue;
        }
        match held.progress {
            Progress::Offered => {
                assignments[0] |= is_taker;
                assignments[4] |= is_creator;
            }
            Progress::Taken(..) => {
                assignments[1] |= is_taker;
                assignments[2] |= is_taker;
                assignments[4] |= is_creator;
            }
            Progress::Delivered(_, _, forfeited) => assignments[3] |= is_creator && !forfeited,
            Progress::Ended(..) => {}
        }
    }
    if awaited > 0 {
        open.push("entry_retract");
    }
    let names: [&[&'static str]; 5] = [
        &["assignment_take"],
        &["assignment_deliver"],
        &["assignment_abandon"],
        &["assignment_accept", "assignment_return"],
        &["assignment_void"],
    ];
    for (is_open, names) in assignments.iter().zip(names) {
        if *is_open {
            open.extend_from_slice(names);
        }
    }
    let governs = member.role == Role::Governor;
    if !thread.closed && governs {
        open.push("admission_issue");
        if thread.admission.is_some() {
            open.push("admission_void");
        }
        if thread.members > 1 {
            open.extend_from_slice(&["member_remove", "member_role"]);
        }
        open.push("thread_close");
    }
    if thread.closed || !governs || thread.governors > 1 {
        open.push("thread_leave");
    }
    Ok(open)
}

impl Reads for ThreadGet {
    type Result = ThreadShown;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let mut contents = Contents::new(view.read);
        let (shown, number) = shown_thread(view, &mut contents, &self.thread)?;
        Ok(view.answer(&shown, contents, Some(number))?)
    }
}

/// Arguments of `thread_list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadList {
    /// Where the page begins.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
}

/// A thread in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ThreadRow {
    thread: String,
    state: &'static str,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject_content: Option<ContentKey>,
    members: u64,
    entries: u64,
    /// What you owe there.
    obligations: usize,
}

/// Threads.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Threads {
    threads: Vec<ThreadRow>,
}

impl Reads for ThreadList {
    type Result = Threads;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let reader = view.reader()?;
        let owner = index::owner(&reader);
        let limit = Limit::of(self.limit);
        let (numbers, cursor) = view.page::<ObjectNumber>(List::Threads, &owner, self.cursor.as_deref(), limit)?;
        let mut contents = Contents::new(view.read);
        let mut threads = Vec::new();
        for number in numbers {
            let cells = Cells::new(view.read, number);
            let thread = cells.thread()?;
            let Some(member) = cells.member(&reader)? else { continue };
            threads.push(ThreadRow {
                thread: thread.thread.to_string(),
                state: state(&thread),
                role: member.role.name(),
                subject_content: contents.optional(
                    Some(&thread.creator),
                    "subject",
                    thread.subject.as_ref(),
                    Window::DEFAULT,
                )?,
                members: thread.members,
                entries: thread.entries,
                obligations: obligations_in(view, &reader, &thread, number)?.len(),
            });
        }
        let mut answer = view.answer(&Threads { threads }, contents, None)?;
        answer.cursor = cursor;
        Ok(answer)
    }
}

/// Arguments of `thread_entries`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadEntries {
    /// The thread.
    thread: ThreadRef,
    /// Entries after this number.
    after: Option<u64>,
    /// Where the page begins, instead of `after`.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
    /// Bytes of each text.
    max_bytes: Option<MaxBytes>,
}

/// Entries.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Entries {
    entries: Vec<EntryShown>,
}

impl Reads for ThreadEntries {
    type Result = Entries;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let (number, _) = view.thread(&self.thread.0)?;
        let cells = Cells::new(view.read, number);
        let thread = cells.thread()?;
        let after = match &self.cursor {
            Some(text) => read_cursor(b"entries", &self.thread.0, text)?,
            None => self.after.unwrap_or(0),
        };
        let limit = Limit::of(self.limit) as u64;
        let last = after.saturating_add(limit).min(thread.entries);
        let window = Window { offset: 0, max_bytes: MaxBytes::of(self.max_bytes) };
        let mut contents = Contents::new(view.read);
        let mut entries = Vec::new();
        for entry in after.saturating_add(1)..=last {
            entries.push(shown_entry(view, &mut contents, &cells, entry, window)?);
        }
        let mut answer = view.answer(&Entries { entries }, contents, Some(number))?;
        answer.cursor =
            (last < thread.entries && after < last).then(|| write_cursor(b"entries", &self.thread.0, &last));
        Ok(answer)
    }
}
