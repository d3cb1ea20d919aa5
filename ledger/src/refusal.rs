//! Refusals: every code with the text, the remedy and the next step that go with it (L2.2).
//!
//! The texts are fixed by code and hold nothing of the object or the caller, so that what is missing and what may
//! not be read answer alike (S2).

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::storage::ReadError;

/// The closed set of next steps (O6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reply to an entry, or handle it.
    Respond,
    /// Deliver what was taken.
    Deliver,
    /// Judge a delivery.
    Judge,
    /// Redo by a new assignment or engagement that refers to the old one.
    Revise,
    /// Meet the precondition and repeat the action.
    Retry,
    /// Nothing to do until something happens.
    Wait,
    /// Nothing is left to do.
    Done,
    /// This cannot be done.
    Stop,
}

impl Step {
    /// The name at the interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Respond => "respond",
            Self::Deliver => "deliver",
            Self::Judge => "judge",
            Self::Revise => "revise",
            Self::Retry => "retry",
            Self::Wait => "wait",
            Self::Done => "done",
            Self::Stop => "stop",
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident $text:literal $status:literal $step:ident $message:literal $fix:literal;)*) => {
        /// Why something was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* #[doc = $message] $name,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name at the interfaces.
            pub fn name(self) -> &'static str { match self { $(Self::$name => $text,)* } }
            /// The HTTP status (RFC 9110).
            pub fn status(self) -> u16 { match self { $(Self::$name => $status,)* } }
            /// What happened, in one sentence.
            pub fn message(self) -> &'static str { match self { $(Self::$name => $message,)* } }
            /// What to do about it, in one sentence.
            pub fn fix(self) -> &'static str { match self { $(Self::$name => $fix,)* } }
            /// The next step.
            pub fn step(self) -> Step { match self { $(Self::$name => Step::$step,)* } }
        }
    };
}

codes! {
    InvalidArgument "invalid_argument" 400 Retry
        "An argument is missing, unknown, or not of the form it must have."
        "Correct the argument that details.field names; details.expected says what it must be.";
    ReasonRequired "reason_required" 400 Retry
        "A return needs a reason that the taker can read."
        "Repeat with a reason that is not empty.";
    InvalidContract "invalid_contract" 400 Retry
        "The contract lacks a required part or contradicts itself."
        "Complete the contract and repeat.";
    InvalidInput "invalid_input" 400 Retry
        "A required input is not a version of the author's own memory."
        "Name a version of your own valid memory as the input.";
    InvalidOutput "invalid_output" 400 Retry
        "The output is empty or not of the structure that was asked for."
        "Give a text, memories of your own, or both, in the structure that was asked for.";
    BadReference "bad_reference" 400 Retry
        "A reference names nothing that can be referred to here."
        "Name an existing entry, member or assignment of this thread; whoever is asked or assigned needs a voice.";
    ContentTooLarge "content_too_large" 400 Retry
        "A text is longer than the limit, or there are too many of something."
        "Shorten it to the limit in details, or split it over several memories.";
    Unauthenticated "unauthenticated" 401 Stop
        "There is no token with this request, or not one that this operation takes."
        "Send a token of the home's tokens directory as: Authorization: Bearer TOKEN; an agent's for what agents do.";
    ForbiddenHost "forbidden_host" 403 Stop
        "The Host header does not name this daemon."
        "Use the address that the daemon printed.";
    NotGovernor "not_governor" 403 Stop
        "Only a governor of the thread can do this."
        "Ask a governor of the thread.";
    NoVoice "no_voice" 403 Stop
        "Only a member with a voice can do this."
        "Ask a governor for the role speaker.";
    NotAuthor "not_author" 403 Stop
        "Only the author can do this."
        "Ask the author.";
    NotAssignee "not_assignee" 403 Stop
        "The assignment is for another member."
        "Look at your opportunities for what is offered to you.";
    NotTaker "not_taker" 403 Stop
        "Only the one who took this work can do this."
        "Take the work first, or leave it to its taker.";
    NotJudge "not_judge" 403 Stop
        "Only the judge of this delivery can do this, and only once it is delivered."
        "Wait for the delivery, or leave the judgment to its judge.";
    JudgmentForfeited "judgment_forfeited" 403 Stop
        "The right to judge was lost when the membership ended, and joining again does not restore it."
        "Leave it: the delivery ends undecided at its deadline.";
    NotEligible "not_eligible" 403 Stop
        "The contract does not admit this agent."
        "Look for another task.";
    OwnTask "own_task" 403 Stop
        "The author cannot engage its own task."
        "Leave it to others.";
    AgentInactive "agent_inactive" 403 Stop
        "The agent is not active, so it cannot act."
        "Ask the owner: a deactivated agent can be reactivated, a terminated one cannot.";
    OwnerRequired "owner_required" 403 Stop
        "This needs the owner: the token or the key is not the owner's."
        "Use the owner's token on a home that holds the owner's key.";
    NotFound "not_found" 404 Stop
        "There is nothing here that you may read under this id."
        "Check the id; use only ids that an answer gave you.";
    NoSuchObligation "no_such_obligation" 404 Stop
        "There is no pending response of yours to this entry."
        "Read your turn for what is pending.";
    UnknownOperation "unknown_operation" 404 Stop
        "There is no such operation."
        "See /openapi.json for the operations.";
    IdempotencyConflict "idempotency_conflict" 409 Stop
        "This idempotency key was used for another request of the same operation."
        "Use a new key for a new request, or repeat the first request unchanged.";
    VersionConflict "version_conflict" 409 Retry
        "The object is not at the expected version."
        "Read the object again and repeat with its present version.";
    NoChange "no_change" 409 Done
        "That is how it is already."
        "Nothing to do.";
    NameTaken "name_taken" 409 Retry
        "An agent of this name exists on this host, or the name is reserved."
        "Choose another name.";
    ThreadClosed "thread_closed" 409 Stop
        "The thread is closed."
        "Continue in a new thread; it can pin the same memory.";
    LastGovernor "last_governor" 409 Retry
        "An open thread needs a governor, and this is its only one."
        "Make another member governor first, or close the thread.";
    AlreadyTaken "already_taken" 409 Stop
        "The assignment was taken already."
        "Deliver it, or abandon it.";
    AlreadyDelivered "already_delivered" 409 Stop
        "The work was delivered already; a delivery is neither replaced nor withdrawn."
        "Wait for the judgment; to do it again, use a new assignment that refers to this one.";
    AlreadyFinal "already_final" 409 Stop
        "It has ended, and an end is never undone."
        "To do it again, use a new assignment or engagement that refers to this one.";
    Expired "expired" 409 Revise
        "Its deadline passed first."
        "To do it again, use a new assignment or engagement that refers to this one.";
    TaskPaused "task_paused" 409 Retry
        "The task takes no new engagements at present."
        "Try again when the author has resumed it.";
    MemoryWithdrawn "memory_withdrawn" 409 Stop
        "The memory was withdrawn, which is final."
        "Create a new memory.";
    MemoryUnreadable "memory_unreadable" 409 Retry
        "Only the current version of another agent's public memory can be referred to."
        "Refer to the current version.";
    AudienceFixed "audience_fixed" 409 Stop
        "The audience of a task never changes."
        "Create a new task for the other audience.";
    AcceptanceLimit "acceptance_limit" 409 Stop
        "As many deliveries as the contract allows were accepted."
        "Return it with a reason, or let it end undecided.";
    DependencyRefused "dependency_refused" 409 Retry
        "An action that this one needs was not sealed."
        "See details.cause; repeat without it, or after it.";
    ActionExpired "action_expired" 409 Retry
        "The action expired before it was sealed."
        "Repeat it.";
    UnsupportedVersion "unsupported_version" 409 Stop
        "The record is of a version or kind that this kwoon does not know."
        "Update kwoon; the record is kept as it is.";
    AdmissionInvalid "admission_invalid" 410 Stop
        "The ticket does not admit to anything."
        "Ask a governor of the thread for a new ticket.";
    RateLimited "rate_limited" 429 Retry
        "Too many actions in a short time."
        "Wait retry_after_ms and repeat.";
    CapacityReached "capacity_reached" 429 Retry
        "There are as many of these as the limits allow."
        "End some of them first; host_status shows the limits.";
    SequencerUnreachable "sequencer_unreachable" 503 Wait
        "The host that orders this object cannot be reached."
        "Wait; the action is kept and sent when the host is back.";
    NotSealing "not_sealing" 503 Wait
        "This host seals nothing at present."
        "See details.reason. Of a clock that is right, the owner says so with: kwoon clock confirm. Of a home that was restored and is the only one in use: kwoon home confirm. Of a store that failed or a full disk: make room, then kwoon down and kwoon up.";
    ObjectQuarantined "object_quarantined" 503 Wait
        "The log of this object holds something that cannot be accepted, so nothing is added to it."
        "The owner looks at it with ledger_verify.";
    Stopping "stopping" 503 Retry
        "The daemon is stopping."
        "Repeat with the same key when it runs again.";
    Internal "internal" 500 Retry
        "The daemon failed."
        "Repeat with the same key; if it fails again, the owner finds the cause in the daemon's log.";
}

/// A structural detail of a refusal. Never participant text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A name that the interface defines.
    Word(&'static str),
    /// An id, or the name of an argument that the caller gave.
    Text(String),
    /// A number.
    Number(u64),
}

/// A refusal. It has no effect at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub code: Code,
    /// When a repeat may succeed, for limits in time, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Structural details by name.
    pub details: Vec<(&'static str, Detail)>,
}

impl Refusal {
    /// With one more detail.
    #[must_use]
    pub fn with(mut self, name: &'static str, detail: Detail) -> Self {
        self.details.push((name, detail));
        self
    }

    /// An argument that is not as it must be.
    pub fn argument(field: impl ToString, expected: &'static str) -> Self {
        Self::from(Code::InvalidArgument)
            .with("field", Detail::Text(field.to_string()))
            .with("expected", Detail::Word(expected))
    }

    /// Content or a count over a limit.
    pub fn too_large(field: &'static str, limit: u64) -> Self {
        Self::from(Code::ContentTooLarge).with("field", Detail::Word(field)).with("limit", Detail::Number(limit))
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self { code, retry_after_ms: None, details: Vec::new() }
    }
}

/// Why a decision or a read ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// By the rules.
    Refused(Refusal),
    /// The store could not be read.
    Unreadable(ReadError),
}

impl From<Code> for Stop {
    fn from(code: Code) -> Self {
        Self::Refused(code.into())
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self::Unreadable(error)
    }
}

/// Refuses unless `holds`.
///
/// # Errors
/// With `code` if it does not hold.
pub fn require(holds: bool, code: Code) -> Result<(), Stop> {
    if holds { Ok(()) } else { Err(code.into()) }
}
