//! Assignments.

use kwoon_keys::id::AgentId;
use kwoon_ledger::action::{Assign, Body, MediaType, ObjectId, Output, Text};
use kwoon_ledger::index::{self, IdKind, Place};
use kwoon_ledger::limits::DEADLINE_DEFAULT;
use kwoon_ledger::refusal::{Code, Refusal, Stop, require};
use kwoon_ledger::rules::assignment::{may_deliver, may_take};
use kwoon_ledger::state::{Assignment, Cells, ObjectNumber, Progress};
use kwoon_ledger::time::Duration;
use kwoon_ledger::visibility;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::memory::{PinRef, commit_optional};
use super::{Acts, Reads};
use crate::answer::{Answer, ContentKey, Contents, Window, shown};
use crate::argument::{
    AgentRef, AssignmentRef, AssignmentState, DurationText, Limit, MaxBytes, MediaTypeText, NonEmpty, ThreadRef,
    media_type,
};
use crate::round::{Acting, Plan};
use crate::view::{View, read_cursor, write_cursor};

/// Work offered with an entry.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object: {to, criteria, output_schema?, deliver_within?, judge_within?, redoes?}"
)]
#[schemars(inline)]
pub struct AssignArgument {
    /// The member it is offered to; you yourself are allowed.
    pub to: AgentRef,
    /// When the delivery is to be accepted.
    criteria: NonEmpty,
    /// A JSON Schema that the output, as JSON text, is to have.
    output_schema: Option<serde_json::Map<String, Value>>,
    /// Time for the delivery, from taking; 7d if left out.
    deliver_within: Option<DurationText>,
    /// Time for the judgment, from the delivery; 7d if left out.
    judge_within: Option<DurationText>,
    /// The assignment that this does again.
    redoes: Option<AssignmentRef>,
}

impl AssignArgument {
    /// The terms, with every default written down (T4.1, L4.2).
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn terms(self, acting: &mut Acting<'_, '_>, place: &[u8; 32], to: AgentId) -> Result<Assign, Stop> {
        let redoes = match &self.redoes {
            Some(reference) => match index::find(acting.read(), IdKind::Assignment, &reference.0)? {
                Some(Place::Assignment(_, _, id)) => Some(id),
                _ => Some(kwoon_keys::id::AssignmentId(super::NOTHING)),
            },
            None => None,
        };
        let schema = self.output_schema.map(|schema| NonEmpty(Value::Object(schema).to_string()));
        Ok(Assign {
            to,
            criteria: acting.commit(place, "criteria", &self.criteria.0),
            output_schema: commit_optional(acting, place, "output_schema", schema),
            deliver_within: self.deliver_within.map_or(DEADLINE_DEFAULT, |duration| duration.0),
            judge_within: self.judge_within.map_or(DEADLINE_DEFAULT, |duration| duration.0),
            redoes,
        })
    }
}

/// What is delivered.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object: {text?, media_type?, memories?}")]
#[schemars(inline)]
pub struct OutputArgument {
    /// A text.
    text: Option<NonEmpty>,
    /// The text's media type.
    media_type: Option<MediaTypeText>,
    /// Versions of your own memories.
    memories: Option<Vec<PinRef>>,
}

impl OutputArgument {
    fn output(self, acting: &mut Acting<'_, '_>, place: &[u8; 32], held: &Assignment) -> Result<Output, Stop> {
        let limit = acting.round.limits.output_memories_max;
        let pins = self.memories.unwrap_or_default();
        if pins.len() as u64 > limit {
            return Err(Refusal::too_large("output", limit).into());
        }
        let mut memories = Vec::with_capacity(pins.len());
        for pin in &pins {
            memories.push(pin.own(acting)?);
        }
        // Where a structure was asked for, the text has to be JSON at least.
        if held.terms.output_schema.is_some() {
            let json = self.text.as_ref().is_some_and(|text| serde_json::from_str::<Value>(&text.0).is_ok());
            require(json, Code::InvalidOutput)?;
        }
        let media_type = match (self.media_type, held.terms.output_schema) {
            (None, Some(_)) => MediaType::Json,
            (given, _) => media_type(given),
        };
        let payload = self.text.map(|text| Text { commitment: acting.commit(place, "output", &text.0), media_type });
        Ok(Output { payload, memories })
    }
}

/// The assignment that an agent wants to act on, if it is a member of its thread.
fn acted_on(acting: &Acting<'_, '_>, reference: &AssignmentRef) -> Result<(ObjectId, Assignment), Stop> {
    let found = visibility::assignment(acting.read(), &acting.agent, &reference.0)?;
    let (number, _, entry) = found.ok_or(Code::NotFound)?;
    let cells = Cells::new(acting.read(), number);
    let held = cells.assignment_at(entry)?.ok_or(Code::Internal)?;
    Ok((ObjectId::Thread(cells.thread()?.thread), held))
}

/// Arguments of `assignment_take`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssignmentTake {
    /// The assignment.
    assignment: AssignmentRef,
    /// Deliver this at once.
    output: Option<OutputArgument>,
}

impl Acts for AssignmentTake {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let (object, held) = acted_on(acting, &self.assignment)?;
        // Whose it is, and how far it is, comes before what is delivered.
        may_take(&held, acting.agent)?;
        let place = *object.digest().as_bytes();
        let output = self.output.map(|output| output.output(acting, &place, &held)).transpose()?;
        Ok(Plan::on(object, Body::AssignmentTake(held.assignment, output)))
    }
}

/// Arguments of `assignment_deliver`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssignmentDeliver {
    /// The assignment.
    assignment: AssignmentRef,
    /// What is delivered.
    output: OutputArgument,
}

impl Acts for AssignmentDeliver {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let (object, held) = acted_on(acting, &self.assignment)?;
        may_deliver(&held, acting.agent)?;
        let place = *object.digest().as_bytes();
        let output = self.output.output(acting, &place, &held)?;
        Ok(Plan::on(object, Body::AssignmentDeliver(held.assignment, output)))
    }
}

macro_rules! on_assignment {
    ($($(#[$doc:meta])* $name:ident: $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// The assignment.
            assignment: AssignmentRef,
        }

        impl Acts for $name {
            fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
                let (object, held) = acted_on(acting, &self.assignment)?;
                Ok(Plan::on(object, $body(held.assignment)))
            }
        }
    )*};
}

on_assignment! {
    /// Arguments of `assignment_accept`.
    AssignmentAccept: Body::AssignmentAccept;
    /// Arguments of `assignment_abandon`.
    AssignmentAbandon: Body::AssignmentAbandon;
    /// Arguments of `assignment_void`.
    AssignmentVoid: Body::AssignmentVoid;
}

/// Arguments of `assignment_return`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssignmentReturn {
    /// The assignment.
    assignment: AssignmentRef,
    /// The reason, which the taker can read. Must be given.
    reason: Option<String>,
}

impl Acts for AssignmentReturn {
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop> {
        let (object, held) = acted_on(acting, &self.assignment)?;
        let place = *object.digest().as_bytes();
        // An empty reason is refused by the rules, after everything that comes before it (T4.5).
        let reason = acting.commit(&place, "reason", self.reason.as_deref().unwrap_or_default());
        Ok(Plan::on(object, Body::AssignmentReturn(held.assignment, reason)))
    }
}

/// Arguments of `assignment_get`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssignmentGet {
    /// The assignment.
    assignment: AssignmentRef,
    /// Bytes of each text.
    max_bytes: Option<MaxBytes>,
    /// Where in each text to begin.
    offset: Option<usize>,
}

/// A delivered memory version.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeliveredMemory {
    memory: String,
    version: u64,
    text_content: ContentKey,
}

/// A delivery.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OutputShown {
    #[serde(skip_serializing_if = "Option::is_none")]
    text_content: Option<ContentKey>,
    memories: Vec<DeliveredMemory>,
}

/// An assignment.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AssignmentShown {
    assignment: String,
    state: &'static str,
    thread: String,
    /// The entry that carries it.
    entry: u64,
    creator: String,
    assignee: String,
    deliver_within: String,
    judge_within: String,
    /// The deadline that runs now.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<String>,
    /// The deadline has passed and its end is not sealed yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lapsed: bool,
    /// The creator lost the right to judge: it will end undecided.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    judgment_forfeited: bool,
    /// The assignment that this one does again.
    #[serde(skip_serializing_if = "Option::is_none")]
    redoes: Option<String>,
    criteria_content: ContentKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema_content: Option<ContentKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<OutputShown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_content: Option<ContentKey>,
}

/// A duration as it is given: in the largest unit that divides it.
fn duration(duration: Duration) -> String {
    let seconds = duration.0 / 1000;
    let units = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
    let (size, unit) = units.into_iter().find(|(size, _)| seconds.is_multiple_of(*size)).unwrap_or((1, 's'));
    format!("{}{unit}", seconds / size)
}

fn state(progress: &Progress) -> &'static str {
    match progress {
        Progress::Offered => "offered",
        Progress::Taken(..) => "taken",
        Progress::Delivered(..) => "delivered",
        Progress::Ended(end, ..) => end.name(),
    }
}

/// An assignment for a member of its thread.
///
/// # Errors
/// If the store cannot be read.
pub fn shown_assignment(
    view: &View<'_>,
    contents: &mut Contents<'_>,
    number: ObjectNumber,
    held: &Assignment,
    window: Window,
) -> Result<AssignmentShown, Stop> {
    let thread = Cells::new(view.read, number).thread()?;
    let (creator, taker) = (Some(&held.creator), Some(&held.terms.to));
    let output = match &held.output {
        Some(output) => {
            let mut memories = Vec::new();
            for pin in &output.memories {
                memories.push(DeliveredMemory {
                    memory: pin.memory.to_string(),
                    version: pin.version,
                    // V4
                    text_content: contents.text(taker, "text", &pin.text, true, window)?,
                });
            }
            let text_content = match &output.payload {
                Some(payload) => Some(contents.text(taker, "output", payload, true, window)?),
                None => None,
            };
            Some(OutputShown { text_content, memories })
        }
        None => None,
    };
    let reason = match &held.progress {
        Progress::Ended(_, _, reason) => reason.as_ref(),
        _ => None,
    };
    let schema = held.terms.output_schema.map(|commitment| Text { commitment, media_type: MediaType::Json });
    Ok(AssignmentShown {
        assignment: held.assignment.to_string(),
        state: state(&held.progress),
        thread: thread.thread.to_string(),
        entry: held.entry,
        creator: held.creator.to_string(),
        assignee: held.terms.to.to_string(),
        deliver_within: duration(held.terms.deliver_within),
        judge_within: duration(held.terms.judge_within),
        due_at: held.due_at().map(shown),
        lapsed: held.due_at().is_some_and(|due| due <= view.now),
        judgment_forfeited: held.forfeited && !matches!(held.progress, Progress::Ended(..)),
        redoes: held.terms.redoes.map(|redone| redone.to_string()),
        criteria_content: contents.plain(creator, "criteria", &held.terms.criteria, window)?,
        output_schema_content: match &schema {
            Some(schema) => Some(contents.text(creator, "output_schema", schema, true, window)?),
            None => None,
        },
        output,
        reason_content: contents.optional(creator, "reason", reason, window)?,
    })
}

impl Reads for AssignmentGet {
    type Result = AssignmentShown;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let found = visibility::assignment(view.read, &view.reader()?, &self.assignment.0)?;
        let (number, _, entry) = found.ok_or(Code::NotFound)?;
        let held = Cells::new(view.read, number).assignment_at(entry)?.ok_or(Code::Internal)?;
        let window = Window { offset: self.offset.unwrap_or(0), max_bytes: MaxBytes::of(self.max_bytes) };
        let mut contents = Contents::new(view.read);
        let shown = shown_assignment(view, &mut contents, number, &held, window)?;
        Ok(view.answer(&shown, contents, Some(number))?)
    }
}

/// Arguments of `assignment_list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssignmentList {
    /// The thread.
    thread: ThreadRef,
    /// Only those in this state.
    state: Option<AssignmentState>,
    /// Where the page begins.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
}

/// Assignments.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Assignments {
    assignments: Vec<AssignmentShown>,
}

/// Assignments that one page looks at; a page may hold fewer rows than asked for and still have a cursor.
const LOOKED_AT_MAX: usize = 1000;

impl Reads for AssignmentList {
    type Result = Assignments;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let (number, _) = view.thread(&self.thread.0)?;
        let after: u64 = match &self.cursor {
            Some(text) => read_cursor(b"assignments", &self.thread.0, text)?,
            None => 0,
        };
        let limit = Limit::of(self.limit);
        let cells = Cells::new(view.read, number);
        let rows = cells.assignments_after(after, LOOKED_AT_MAX)?;
        let looked_at_all = rows.len() < LOOKED_AT_MAX;
        let mut contents = Contents::new(view.read);
        let mut assignments = Vec::new();
        let mut last = after;
        let mut more = !looked_at_all;
        for held in rows {
            let wanted = self.state.is_none_or(|wanted| wanted.name() == state(&held.progress));
            if wanted && assignments.len() == limit {
                more = true;
                break;
            }
            last = held.entry;
            if wanted {
                let window = Window { offset: 0, max_bytes: 512 };
                assignments.push(shown_assignment(view, &mut contents, number, &held, window)?);
            }
        }
        let mut answer = view.answer(&Assignments { assignments }, contents, Some(number))?;
        answer.cursor = more.then(|| write_cursor(b"assignments", &self.thread.0, &last));
        Ok(answer)
    }
}
