//! Entries and responses.

use kwoon_keys::id::RequestId;
use kwoon_ledger::action::{self, Assign, Body, ObjectId, Source, Text};
use kwoon_ledger::effect::Exit;
use kwoon_ledger::fact::Evidence;
use kwoon_ledger::index;
use kwoon_ledger::log;
use kwoon_ledger::refusal::{Code, Refusal, Stop, require};
use kwoon_ledger::rules::entry::may_speak;
use kwoon_ledger::rules::memory::{blind_of, publication_id};
use kwoon_ledger::state::{Cells, Publication};
use kwoon_ledger::visibility::{self, MemoryView};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assignment::AssignArgument;
use super::memory::{commit_optional, pin_own};
use super::thread::acted_on;
use super::{Acts, NOTHING, Reads, member_id, request_id_of};
use crate::answer::{Answer, ContentKey, Contents, Window, shown};
use crate::argument::{AgentRef, EntryRef, MaxBytes, MediaTypeText, MemoryRef, NonEmpty, ThreadRef, media_type};
use crate::round::{Acting, Plan};
use crate::view::View;

/// Arguments of `entry_post`: a text, or a memory.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryPost {
    /// The thread.
    thread: ThreadRef,
    /// What to say; it becomes a new memory of yours.
    text: Option<NonEmpty>,
    /// The text's media type.
    media_type: Option<MediaTypeText>,
    /// Instead of a text: a memory of yours, or another's public one.
    memory: Option<MemoryRef>,
    /// The memory's version; the current one if left out.
    version: Option<u64>,
    /// A summary.
    summary: Option<NonEmpty>,
    /// The entry this replies to.
    reply_to: Option<EntryRef>,
    /// The members whose response you ask for; an empty list asks nobody.
    ask: Option<Vec<AgentRef>>,
    /// A task to refer to.
    task: Option<String>,
    /// Work to offer to one member.
    assign: Option<AssignArgument>,
}

/// The request that posted an entry; an id of nothing if there is no such entry, which the rules then refuse in their
/// turn.
pub(super) fn entry_request(acting: &Acting<'_, '_>, cells: &Cells<'_>, entry: &EntryRef) -> Result<RequestId, Stop> {
    let request = match entry {
        EntryRef::Number(number) => cells.entry(*number)?.map(|entry| entry.request),
        EntryRef::Action(short) => request_id_of(acting.read(), short)?,
    };
    Ok(request.unwrap_or(RequestId(NOTHING)))
}

impl Acts for EntryPost {
    fn check(&self) -> Result<(), Refusal> {
        if self.text.is_some() == self.memory.is_some() {
            return Err(Refusal::argument("text", "either a text or a memory, and not both"));
        }
        if self.memory.is_none() && self.version.is_some() {
            return Err(Refusal::argument("version", "a version only with a memory"));
        }
        if self.memory.is_some() && self.media_type.is_some() {
            return Err(Refusal::argument("media_type", "a media type only with a text"));
        }
        Ok(())
    }

    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let (number, thread) = acted_on(acting, &self.thread)?;
        // Who may not speak is told so, whatever the entry would refer to.
        let member = Cells::new(acting.read(), number).member(&acting.agent)?.ok_or(Code::NotFound)?;
        may_speak(&thread, &member)?;
        let place = *thread.thread.as_bytes();
        // There are no tasks yet, so none is here for anyone.
        require(self.task.is_none(), Code::NotFound)?;
        let mut evidence = Vec::new();
        let source = match (&self.text, &self.memory) {
            (Some(text), _) => Source::New(Text {
                commitment: acting.commit(&place, "text", &text.0),
                media_type: media_type(self.media_type),
            }),
            (None, Some(memory)) => pinned(acting, memory, self.version, &mut evidence)?,
            (None, None) => return Err(Code::InvalidArgument.into()),
        };
        let summary = commit_optional(acting, &place, "summary", self.summary);
        let (reply_to, ask, assignee) = {
            let cells = Cells::new(acting.read(), number);
            let reply_to = self.reply_to.as_ref().map(|entry| entry_request(acting, &cells, entry)).transpose()?;
            let ask = match &self.ask {
                Some(asked) => {
                    let limit = acting.round.limits.ask_max;
                    if asked.len() as u64 > limit {
                        return Err(Refusal::too_large("ask", limit).into());
                    }
                    let mut members = Vec::with_capacity(asked.len());
                    for reference in asked {
                        members.push(member_id(&cells, reference)?);
                    }
                    members.sort();
                    members.dedup();
                    Some(members)
                }
                None => None,
            };
            let assignee = self.assign.as_ref().map(|assign| member_id(&cells, &assign.to)).transpose()?;
            (reply_to, ask, assignee)
        };
        let assign: Option<Assign> = match (self.assign, assignee) {
            (Some(assign), Some(assignee)) => Some(assign.terms(acting, &place, assignee)?),
            _ => None,
        };
        let body = Body::EntryPost(action::EntryPost { source, summary, reply_to, ask, task: None, assign });
        let mut plan = Plan::on(ObjectId::Thread(thread.thread), body);
        plan.evidence = evidence;
        Ok(plan)
    }
}

/// M8: a version of a valid memory that the agent may read, with what shows so if it is another's.
fn pinned(
    acting: &mut Acting<'_, '_>,
    memory: &MemoryRef,
    version: Option<u64>,
    evidence: &mut Vec<Evidence>,
) -> Result<Source, Stop> {
    match visibility::memory(acting.read(), &acting.agent, &memory.0)?.ok_or(Code::NotFound)? {
        MemoryView::Own(own) => Ok(Source::Pinned(pin_own(acting, &own, version)?)),
        MemoryView::Public(publication) => {
            let (current, held) = publication.current.clone().ok_or(Code::NotFound)?;
            let asked = version.unwrap_or(current);
            require(asked <= current && asked > 0, Code::NotFound)?;
            require(asked == current, Code::MemoryUnreadable)?;
            evidence.push(publication_evidence(acting, &publication)?);
            let (memory, author) = (publication.memory, publication.author);
            let object = ObjectId::Publication(publication_id(&memory));
            let number = index::number(acting.read(), &object)?.ok_or(Code::Internal)?;
            let blind = blind_of(&log::fact(acting.read(), number, 0)?).ok_or(Code::Internal)?;
            Ok(Source::Pinned(action::Pin { memory, version: current, text: held.text, author, blind }))
        }
    }
}

fn publication_evidence(acting: &mut Acting<'_, '_>, publication: &Publication) -> Result<Evidence, Stop> {
    let object = ObjectId::Publication(publication_id(&publication.memory));
    let number = index::number(acting.read(), &object)?.ok_or(Code::Internal)?;
    if log::outcome(acting.read(), number, publication.index)?.is_none() {
        acting.round.sequencer.seal(number)?;
    }
    let outcome = log::outcome(acting.read(), number, publication.index)?.ok_or(Code::Internal)?;
    let records = log::identity_records(acting.read(), &publication.author, 0)?;
    Ok(Evidence::Publication(outcome, records))
}

/// Arguments of `entry_handle`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryHandle {
    /// The thread.
    thread: ThreadRef,
    /// The entry.
    entry: EntryRef,
    /// A note that only the entry's author and you can read.
    note: Option<NonEmpty>,
}

impl Acts for EntryHandle {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let (number, thread) = acted_on(acting, &self.thread)?;
        let entry = entry_request(acting, &Cells::new(acting.read(), number), &self.entry)?;
        let note = commit_optional(acting, thread.thread.as_bytes(), "note", self.note);
        Ok(Plan::on(ObjectId::Thread(thread.thread), Body::EntryHandle(entry, note)))
    }
}

/// Arguments of `entry_retract`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryRetract {
    /// The thread.
    thread: ThreadRef,
    /// The entry.
    entry: EntryRef,
}

impl Acts for EntryRetract {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let (number, thread) = acted_on(acting, &self.thread)?;
        let entry = entry_request(acting, &Cells::new(acting.read(), number), &self.entry)?;
        Ok(Plan::on(ObjectId::Thread(thread.thread), Body::EntryRetract(entry)))
    }
}

/// An entry.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EntryShown {
    /// Its number.
    pub entry: u64,
    author: String,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<u64>,
    /// Whom the entry said it asks; null if it did not say.
    ask: Option<Vec<String>>,
    /// Who was asked for a response, by what it said or by the rules; fixed when it was posted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    responders: Vec<String>,
    memory: String,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    assignment: Option<String>,
    text_content: ContentKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_content: Option<ContentKey>,
}

/// An entry of a thread for one of its members.
///
/// # Errors
/// [`Code::NotFound`] if there is no such entry.
pub fn shown_entry(
    view: &View<'_>,
    contents: &mut Contents<'_>,
    cells: &Cells<'_>,
    number: u64,
    window: Window,
) -> Result<EntryShown, Stop> {
    let entry = cells.entry(number)?.ok_or(Code::NotFound)?;
    let author = Some(&entry.author);
    let readable = visibility::entry_text(view.read, &entry)?;
    let responders: Vec<_> = entry.responses.iter().map(|response| response.responder.to_string()).collect();
    Ok(EntryShown {
        entry: number,
        author: entry.author.to_string(),
        at: shown(entry.at),
        reply_to: entry.reply_to,
        ask: entry.asks.then(|| responders.clone()),
        responders,
        memory: entry.pin.memory.to_string(),
        version: entry.pin.version,
        assignment: entry.assignment.map(|assignment| assignment.to_string()),
        text_content: contents.text(Some(&entry.pin.author), "text", &entry.pin.text, readable, window)?,
        summary_content: contents.optional(author, "summary", entry.summary.as_ref(), Window::DEFAULT)?,
    })
}

/// Arguments of `entry_get`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryGet {
    /// The thread.
    thread: ThreadRef,
    /// The entry.
    entry: EntryRef,
    /// Bytes of the text.
    max_bytes: Option<MaxBytes>,
    /// Where in the text to begin.
    offset: Option<usize>,
}

/// One agent's response to an entry.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ResponseShown {
    agent: String,
    /// `pending`, or how it ended.
    state: &'static str,
    /// The reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    /// A handling note, to those who may read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    note_content: Option<ContentKey>,
}

/// An entry with its responses.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EntryWithResponses {
    #[serde(flatten)]
    shown: EntryShown,
    responses: Vec<ResponseShown>,
}

impl Reads for EntryGet {
    type Result = EntryWithResponses;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let reader = view.reader()?;
        let (number, _) = view.thread(&self.thread.0)?;
        let cells = Cells::new(view.read, number);
        let entry_number = match self.entry {
            EntryRef::Number(entry) => entry,
            EntryRef::Action(short) => {
                let request = request_id_of(view.read, &short)?.ok_or(Code::NotFound)?;
                cells.entry_of(&request)?.ok_or(Code::NotFound)?
            }
        };
        let window = Window { offset: self.offset.unwrap_or(0), max_bytes: MaxBytes::of(self.max_bytes) };
        let mut contents = Contents::new(view.read);
        let shown_entry = shown_entry(view, &mut contents, &cells, entry_number, window)?;
        let entry = cells.entry(entry_number)?.ok_or(Code::NotFound)?;
        let mut responses = Vec::new();
        for response in &entry.responses {
            // V5; an owner that reads as an agent reads no notes.
            let note = if view.is_owner() { None } else { visibility::note(&reader, &entry, response) };
            responses.push(ResponseShown {
                agent: response.responder.to_string(),
                state: response.exit.map_or("pending", |(exit, _)| exit.name()),
                entry: match response.exit {
                    Some((Exit::Replied(reply), _)) => Some(reply),
                    _ => None,
                },
                ended_at: response.exit.map(|(_, at)| shown(at)),
                note_content: contents.optional(Some(&response.responder), "note", note.as_ref(), Window::DEFAULT)?,
            });
        }
        let result = EntryWithResponses { shown: shown_entry, responses };
        Ok(view.answer(&result, contents, Some(number))?)
    }
}
