//! The naive model: the rules of one host once more, written from `docs/protocol.md` alone, as simply as they can be.
//!
//! There is no log, no signature and no index here: everything is in plain vectors, every question is answered by walking
//! them, and an action that is refused is undone by putting the whole state from before it back. The model takes the calls
//! that the host takes, as JSON, and says what the host must answer. Wherever the host gives an id, the model has a
//! handle such as `thr#2`, for the third thread; [`compare`](crate::compare) finds out which id stands for which handle.
//!
//! What the model does not say: facts and digests of logs, instances and keys, `next`, and rates of actions.

pub mod agents;
pub mod arguments;
pub mod assignments;
pub mod entries;
pub mod memories;
pub mod obligations;
pub mod reading;
pub mod requests;
pub mod threads;
pub mod working;

use kwoon_ledger::limits::Limits;
use serde_json::{Value, json};

use agents::Agent;
use arguments::Arguments;
use assignments::Assignment;
use memories::Memory;
use obligations::Obligation;
use requests::Request;
use threads::{Thread, Ticket};

/// The name of a refusal.
pub type Code = &'static str;

/// Milliseconds since 1970.
pub type Milliseconds = u64;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The owner.
    Owner,
    /// An agent, by the place in which it was made.
    Agent(usize),
}

/// A deliberate mistake in the model, by which a test shows that the comparison would find it in the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A member that becomes an observer still owes its responses (against T2.5).
    DemotionEndsNothing,
    /// Coming back restores the right to judge (against T2.7).
    RejoiningRestoresJudgment,
    /// An action at the very deadline still comes before it (against L4.3).
    ActionBeforeExpiry,
    /// Closing leaves what is on offer as it is (against T5.2).
    ClosingKeepsOffers,
    /// A new admission leaves the old one valid (against T1.4).
    OldTicketsStayValid,
    /// Who posts among three with a voice asks both others (against T3.4).
    ThreeVoicesAreAsked,
    /// A reply asks the author of what it replies to also where that one has no voice any more (against T3.4).
    RepliesAskTheVoiceless,
    /// What pins another's memory stays readable after that is private or withdrawn (against M6).
    PinsStayReadable,
    /// Every member reads handling notes (against V5).
    NotesAreForAll,
    /// A former member still reads the thread (against V10).
    FormerMembersRead,
    /// The only governor can leave (against T2.3).
    LastGovernorLeaves,
    /// Retracting also ends what the responder has handled, and says so again (against T3.8, L5.2).
    RetractionEndsTwice,
    /// A key that was used can be used for another request (against L3.2).
    KeysAreFree,
    /// Deactivation leaves memberships (against A3).
    DeactivationKeepsMemberships,
}

impl Mistake {
    /// Every mistake.
    pub const ALL: [Self; 14] = [
        Self::DemotionEndsNothing,
        Self::RejoiningRestoresJudgment,
        Self::ActionBeforeExpiry,
        Self::ClosingKeepsOffers,
        Self::OldTicketsStayValid,
        Self::ThreeVoicesAreAsked,
        Self::RepliesAskTheVoiceless,
        Self::PinsStayReadable,
        Self::NotesAreForAll,
        Self::FormerMembersRead,
        Self::LastGovernorLeaves,
        Self::RetractionEndsTwice,
        Self::KeysAreFree,
        Self::DeactivationKeepsMemberships,
    ];
}

/// What an action came to.
#[derive(Clone, Debug)]
pub struct Done {
    /// The object it was about.
    pub object: String,
    /// Its structural result.
    pub result: Value,
    /// What it changed.
    pub effects: Vec<Value>,
    /// A ticket that is shown once.
    pub ticket: Option<usize>,
    /// The request whose receipt this is, if nothing changed (L2.4).
    pub existing: Option<usize>,
}

impl Done {
    /// A change.
    pub fn new(object: String, result: Value, effects: Vec<Value>) -> Self {
        Self { object, result, effects, ticket: None, existing: None }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Model {
    /// The clock. It can go back a little.
    pub now: Milliseconds,
    /// The log time of what is being done: the clock, or the time of the object if the clock went back behind it.
    pub at: Milliseconds,
    /// What the host allows.
    pub limits: Limits,
    /// The mistake to make, if one.
    pub mistake: Option<Mistake>,
    /// In the order in which they were made, as all of these.
    pub agents: Vec<Agent>,
    /// Memories.
    pub memories: Vec<Memory>,
    /// Threads.
    pub threads: Vec<Thread>,
    /// The number of admissions there were.
    pub admissions: usize,
    /// Tickets.
    pub tickets: Vec<Ticket>,
    /// Assignments.
    pub assignments: Vec<Assignment>,
    /// What is owed, in the order in which it began.
    pub obligations: Vec<Obligation>,
    /// The number of obligations there ever were.
    pub obligations_began: usize,
    /// What succeeded.
    pub requests: Vec<Request>,
    /// When joins failed, and whose.
    pub failed_joins: Vec<(usize, Milliseconds)>,
}

impl Model {
    /// A host without agents.
    pub fn new(now: Milliseconds, limits: Limits, mistake: Option<Mistake>) -> Self {
        Self {
            now,
            at: now,
            limits,
            mistake,
            agents: Vec::new(),
            memories: Vec::new(),
            threads: Vec::new(),
            admissions: 0,
            tickets: Vec::new(),
            assignments: Vec::new(),
            obligations: Vec::new(),
            obligations_began: 0,
            requests: Vec::new(),
            failed_joins: Vec::new(),
        }
    }

    /// Whether this mistake is made.
    pub fn errs(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The daemon was stopped and started: what it counts in memory begins anew.
    pub fn restart(&mut self) {
        self.failed_joins.clear();
    }

    /// Ends what the time has ended, as the host does before it decides anything (L4.3, T4.10).
    pub fn settle(&mut self) {
        let before_action = self.errs(Mistake::ActionBeforeExpiry);
        for number in 0..self.assignments.len() {
            let Some(due) = self.assignments[number].due_at else { continue };
            if due < self.now || (due == self.now && !before_action) {
                self.expire(number);
                let clock = &mut self.threads[self.assignments[number].thread].clock;
                *clock = due.max(*clock);
            }
        }
    }

    /// The time of the object that a call is about, which never goes back; none before there is one.
    fn clock_of(&mut self, given: Arguments<'_>) -> Option<&mut Milliseconds> {
        let assignment = given.place("assignment", "asg").and_then(|number| self.assignments.get(number));
        let ticket = given.place("ticket", "tic").and_then(|number| self.tickets.get(number));
        let thread = given.place("thread", "thr").or(assignment.map(|found| found.thread));
        if let Some(thread) = thread.or(ticket.map(|found| found.thread)) {
            return self.threads.get_mut(thread).map(|thread| &mut thread.clock);
        }
        if let Some(memory) = given.place("memory", "mem") {
            return self.memories.get_mut(memory).map(|memory| &mut memory.clock);
        }
        let agent = given.place("agent", "agt")?;
        self.agents.get_mut(agent).map(|agent| &mut agent.clock)
    }
}

/// A refusal, as it is compared.
pub fn refusal(code: Code) -> Value {
    json!({"ok": false, "error": {"code": code}})
}

/// The handle of a thing: its kind and its place.
pub fn handle(kind: &str, number: usize) -> String {
    format!("{kind}#{number}")
}

/// The place that a handle of this kind names.
pub fn place(kind: &str, handle: &str) -> Option<usize> {
    handle.strip_prefix(kind)?.strip_prefix('#')?.parse().ok()
}

/// Sets a member where there is something to say.
pub fn put(object: &mut Value, name: &str, value: impl Into<Option<Value>>) {
    if let Some(value) = value.into() {
        object[name] = value;
    }
}

/// A text as it is shown, with its author and what it is.
pub fn content(author: Option<usize>, field: &str, media_type: &str, text: &str) -> Value {
    let mut content = json!({"field": field, "media_type": media_type, "text": text});
    put(&mut content, "author", author.map(|author| json!(handle("agt", author))));
    content
}

/// A line or a few, of plain text.
pub fn plain(author: usize, field: &str, text: &str) -> Value {
    content(Some(author), field, "text/plain", text)
}

/// A text that is not to be read.
pub fn missing(author: usize, field: &str) -> Value {
    json!({"author": handle("agt", author), "field": field, "missing": true})
}
