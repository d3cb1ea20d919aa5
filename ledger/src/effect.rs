//! Effects: what a fact changes. They are derived from the fact by the rules, never recorded; the running digest of a
//! log covers their encoding, so two hosts that derive others find out.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kwoon_keys::id::{
    AdmissionId, AgentId, AssignmentId, InstanceId, MemoryId, ObligationId, RequestId, TaskId, ThreadId,
};
use kwoon_keys::{Commitment, Digest, PublicKey};
use minicbor::{Decode, Encode};

use crate::action::{Assign, Grant, Output, Pin, Role, Version};
use crate::fact::EpochReason;
use crate::identity::{Instance, PolicyRef, Status};
use crate::time::Time;

/// An agent's account as a log knows it: what its latest identity record there says about who may act.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Account {
    /// Version of the identity.
    #[n(0)]
    pub version: u64,
    /// Hash of the record that made it.
    #[n(1)]
    pub record: Digest,
    /// The owner's key.
    #[n(2)]
    pub owner: PublicKey,
    /// Whether the agent can act.
    #[n(3)]
    pub status: Status,
    /// The instances that can act.
    #[n(4)]
    pub instances: Vec<Instance>,
}

impl Account {
    /// An instance that can act.
    pub fn instance(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.iter().find(|instance| instance.id() == id)
    }

    /// The hosts on which instances live, each once, in rising order.
    pub fn hosts(&self) -> BTreeSet<PublicKey> {
        self.instances.iter().map(|instance| instance.host).collect()
    }

    /// Whether an instance lives on this host.
    pub fn lives_on(&self, host: &PublicKey) -> bool {
        self.instances.iter().any(|instance| instance.host == *host)
    }
}

/// The rest of an identity at one version: what the agent is, beside who may act.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Profile {
    /// The name on the creating host.
    #[n(0)]
    pub name: Commitment,
    /// The display name.
    #[n(1)]
    pub display_name: Option<Commitment>,
    /// The mission.
    #[n(2)]
    pub mission: Option<Commitment>,
    /// Policies.
    #[n(3)]
    pub policies: Vec<PolicyRef>,
    /// The agent this one follows.
    #[n(4)]
    pub predecessor: Option<AgentId>,
    /// When the agent was made.
    #[n(5)]
    pub created_at: Time,
    /// The host that sequences the identity.
    #[n(6)]
    pub home: PublicKey,
    /// The owner's reason for the latest change of status.
    #[n(7)]
    pub status_reason: Option<Commitment>,
}

/// What an agent owes (O1). The catalogue is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(index_only)]
pub enum Duty {
    /// A response to an entry.
    #[n(0)]
    Respond,
    /// A delivery of what was taken.
    #[n(1)]
    Deliver,
    /// A judgment of what was delivered.
    #[n(2)]
    Judge,
}

impl Duty {
    /// The name at the interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Respond => "respond",
            Self::Deliver => "deliver",
            Self::Judge => "judge",
        }
    }
}

/// An obligation of one agent in one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Obligation {
    /// What is owed.
    #[n(0)]
    pub duty: Duty,
    /// By whom.
    #[n(1)]
    pub bearer: AgentId,
    /// The entry that asks, or that carries the assignment.
    #[n(2)]
    pub entry: u64,
    /// The assignment, of a delivery or a judgment.
    #[n(3)]
    pub assignment: Option<AssignmentId>,
    /// When it began.
    #[n(4)]
    pub began_at: Time,
    /// When it ends by itself (L4.2); a response has no deadline.
    #[n(5)]
    pub due_at: Option<Time>,
}

impl Obligation {
    /// The obligation's id. There is at most one of a duty for a bearer and an entry, ever (L5.2).
    pub fn id(&self, thread: &ThreadId) -> ObligationId {
        ObligationId::of(&[thread.as_bytes(), &[self.duty as u8], &self.entry.to_be_bytes(), self.bearer.as_bytes()])
    }
}

/// How an obligation ended (O1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Exit {
    /// By a reply, which is this entry.
    #[n(0)]
    Replied(#[n(0)] u64),
    /// Without an entry, with a note for the entry's author (T3.7).
    #[n(1)]
    Handled(#[n(0)] Option<Commitment>),
    /// By taking the assignment that the entry carries (T4.3).
    #[n(2)]
    Taken,
    /// The entry's author took the request back (T3.8).
    #[n(3)]
    Retracted,
    /// The bearer's membership ended (T2.6).
    #[n(4)]
    MembershipEnded,
    /// The bearer lost its voice (T2.5).
    #[n(5)]
    Demoted,
    /// The thread closed (T5.2).
    #[n(6)]
    Closed,
    /// Delivered.
    #[n(7)]
    Delivered,
    /// Abandoned by the taker (T4.6).
    #[n(8)]
    Abandoned,
    /// The assignment was voided.
    #[n(9)]
    Voided,
    /// Judged.
    #[n(10)]
    Judged,
    /// The deadline came (T4.10).
    #[n(11)]
    Expired,
}

impl Exit {
    /// The name at the interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replied(_) => "replied",
            Self::Handled(_) => "handled",
            Self::Taken => "taken",
            Self::Retracted => "retracted",
            Self::MembershipEnded => "membership_ended",
            Self::Demoted => "demoted",
            Self::Closed => "closed",
            Self::Delivered => "delivered",
            Self::Abandoned => "abandoned",
            Self::Voided => "voided",
            Self::Judged => "judged",
            Self::Expired => "expired",
        }
    }
}

/// Why a membership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Departure {
    /// The member left.
    #[n(0)]
    Left,
    /// A governor removed it.
    #[n(1)]
    Removed,
    /// Its account is no longer active (A3).
    #[n(2)]
    Inactive,
}

impl Departure {
    /// The name at the interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Removed => "removed",
            Self::Inactive => "inactive",
        }
    }
}

/// The final states of an assignment (T4.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Final {
    /// The judge accepted.
    #[n(0)]
    Accepted,
    /// The judge returned it.
    #[n(1)]
    NotPassed,
    /// Nobody judged in time.
    #[n(2)]
    Undecided,
    /// The taker gave up.
    #[n(3)]
    Abandoned,
    /// The taker did not deliver in time.
    #[n(4)]
    TimedOut,
    /// Called off before delivery.
    #[n(5)]
    Voided,
}

impl Final {
    /// The name at the interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::NotPassed => "not_passed",
            Self::Undecided => "undecided",
            Self::Abandoned => "abandoned",
            Self::TimedOut => "timed_out",
            Self::Voided => "voided",
        }
    }

    /// Whether a deadline brings this end about.
    pub fn is_expiry(self) -> bool {
        matches!(self, Self::Undecided | Self::TimedOut)
    }
}

/// A new entry.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EntryPosted {
    /// Its number, from 1.
    #[n(0)]
    pub entry: u64,
    /// The request that posted it.
    #[n(1)]
    pub request: RequestId,
    /// Who speaks.
    #[n(2)]
    pub author: AgentId,
    /// The memory version it pins.
    #[n(3)]
    pub pin: Pin,
    /// Whether the memory came into being with the entry.
    #[n(4)]
    pub brings_forth: bool,
    /// The author's summary.
    #[n(5)]
    pub summary: Option<Commitment>,
    /// The number of the entry replied to.
    #[n(6)]
    pub reply_to: Option<u64>,
    /// Whether the entry said whom it asks.
    #[n(7)]
    pub asks: bool,
    /// Who owes a response (T3.4), in rising order of id.
    #[n(8)]
    pub responders: Vec<AgentId>,
    /// A task referred to.
    #[n(9)]
    pub task: Option<TaskId>,
}

/// What a fact changes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
#[allow(clippy::large_enum_variant)]
pub enum Effect {
    /// An identity is at a version.
    #[n(0)]
    IdentitySet(#[n(0)] AgentId, #[n(1)] Account, #[n(2)] Profile),
    /// A log knows an account at a version.
    #[n(1)]
    AccountSet(#[n(0)] AgentId, #[n(1)] Account),
    /// A memory came into being.
    #[n(10)]
    MemoryCreated(#[n(0)] MemoryId, #[n(1)] AgentId),
    /// A memory has a new current version; whether the public can read it.
    #[n(11)]
    VersionAdded(#[n(0)] u64, #[n(1)] Version, #[n(2)] bool),
    /// A memory became public, at this version.
    #[n(12)]
    MadePublic(#[n(0)] u64, #[n(1)] Version),
    /// A memory became private.
    #[n(13)]
    MadePrivate,
    /// A memory ended; whether it was ever public.
    #[n(14)]
    MemoryWithdrawn(#[n(0)] bool),
    /// The public can read this version of a memory, by the fact of the memory's log with this index.
    #[n(15)]
    PublicationSet(#[n(0)] MemoryId, #[n(1)] AgentId, #[n(2)] u64, #[n(3)] Version, #[n(4)] u64),
    /// The public can read the memory no more, whether that is final, by the fact with this index.
    #[n(16)]
    PublicationEnded(#[n(0)] MemoryId, #[n(1)] bool, #[n(2)] u64),
    /// A thread came into being.
    #[n(20)]
    ThreadCreated(#[n(0)] ThreadId, #[n(1)] AgentId, #[n(2)] Option<Commitment>),
    /// An admission is valid.
    #[n(21)]
    AdmissionIssued(#[n(0)] AdmissionId, #[n(1)] Grant),
    /// The admission is valid no more.
    #[n(22)]
    AdmissionVoided(#[n(0)] AdmissionId),
    /// A membership began, through an admission or by creating the thread.
    #[n(23)]
    MembershipBegan(#[n(0)] AgentId, #[n(1)] Role, #[n(2)] Option<AdmissionId>),
    /// A membership ended.
    #[n(24)]
    MembershipEnded(#[n(0)] AgentId, #[n(1)] Departure),
    /// A member has another role.
    #[n(25)]
    RoleSet(#[n(0)] AgentId, #[n(1)] Role),
    /// Somebody spoke.
    #[n(26)]
    EntryPosted(#[n(0)] EntryPosted),
    /// An obligation began.
    #[n(27)]
    ObligationBegan(#[n(0)] Obligation),
    /// An obligation ended.
    #[n(28)]
    ObligationEnded(#[n(0)] Obligation, #[n(1)] Exit),
    /// An assignment is offered with this entry.
    #[n(29)]
    AssignmentOffered(#[n(0)] AssignmentId, #[n(1)] u64, #[n(2)] AgentId, #[n(3)] Assign),
    /// An assignment was taken; when the delivery is due.
    #[n(30)]
    AssignmentTaken(#[n(0)] AssignmentId, #[n(1)] Time),
    /// An assignment was delivered; when the judgment is due.
    #[n(31)]
    AssignmentDelivered(#[n(0)] AssignmentId, #[n(1)] Output, #[n(2)] Time),
    /// An assignment ended, with the reason of a return.
    #[n(32)]
    AssignmentEnded(#[n(0)] AssignmentId, #[n(1)] Final, #[n(2)] Option<Commitment>),
    /// The creator of a delivered assignment can judge it no more (T2.6).
    #[n(33)]
    JudgmentForfeited(#[n(0)] AssignmentId),
    /// A thread closed.
    #[n(34)]
    ThreadClosed,
    /// After this fact an epoch begins, with this sequencer, for this reason (design: one kind of epoch change).
    #[n(40)]
    EpochBegan(#[n(0)] u64, #[n(1)] PublicKey, #[n(2)] EpochReason),
}

impl Effect {
    /// Hands out each commitment in it to what participants wrote, the note of a handled response excepted.
    pub fn contents(&self, mut each: impl FnMut(&Commitment)) {
        let mut version = |version: &Version| {
            each(&version.text.commitment);
            version.title.iter().chain(&version.summary).chain(&version.tags).for_each(&mut each);
        };
        match self {
            Self::VersionAdded(_, of, _) | Self::MadePublic(_, of) | Self::PublicationSet(_, _, _, of, _) => {
                version(of)
            }
            Self::IdentitySet(_, _, profile) => {
                each(&profile.name);
                let lines = profile.display_name.iter().chain(&profile.mission).chain(&profile.status_reason);
                lines.chain(profile.policies.iter().map(|policy| &policy.name)).for_each(each);
            }
            Self::ThreadCreated(_, _, subject) => subject.iter().for_each(each),
            Self::EntryPosted(entry) => {
                each(&entry.pin.text.commitment);
                entry.summary.iter().for_each(each);
            }
            Self::AssignmentOffered(_, _, _, terms) => {
                each(&terms.criteria);
                terms.output_schema.iter().for_each(each);
            }
            Self::AssignmentDelivered(_, output, _) => {
                output.payload.iter().for_each(|text| each(&text.commitment));
                output.memories.iter().for_each(|pin| each(&pin.text.commitment));
            }
            Self::AssignmentEnded(_, _, reason) => reason.iter().for_each(each),
            Self::AccountSet(..)
            | Self::MemoryCreated(..)
            | Self::MadePrivate
            | Self::MemoryWithdrawn(_)
            | Self::PublicationEnded(..)
            | Self::AdmissionIssued(..)
            | Self::AdmissionVoided(_)
            | Self::MembershipBegan(..)
            | Self::MembershipEnded(..)
            | Self::RoleSet(..)
            | Self::ObligationBegan(_)
            | Self::ObligationEnded(..)
            | Self::AssignmentTaken(..)
            | Self::JudgmentForfeited(_)
            | Self::ThreadClosed
            | Self::EpochBegan(..) => {}
        }
    }

    /// The commitment to the note of a handled response, which is its author's and the asker's own (V5).
    pub fn note(&self) -> Option<&Commitment> {
        match self {
            Self::ObligationEnded(_, Exit::Handled(note)) => note.as_ref(),
            _ => None,
        }
    }

    /// The name at the interfaces.
    pub fn name(&self) -> &'static str {
        match self {
            Self::IdentitySet(..) => "identity_set",
            Self::AccountSet(..) => "account_set",
            Self::MemoryCreated(..) => "memory_created",
            Self::VersionAdded(..) => "version_added",
            Self::MadePublic(..) => "made_public",
            Self::MadePrivate => "made_private",
            Self::MemoryWithdrawn(_) => "memory_withdrawn",
            Self::PublicationSet(..) => "publication_set",
            Self::PublicationEnded(..) => "publication_ended",
            Self::ThreadCreated(..) => "thread_created",
            Self::AdmissionIssued(..) => "admission_issued",
            Self::AdmissionVoided(..) => "admission_voided",
            Self::MembershipBegan(..) => "membership_began",
            Self::MembershipEnded(..) => "membership_ended",
            Self::RoleSet(..) => "role_set",
            Self::EntryPosted(..) => "entry_posted",
            Self::ObligationBegan(..) => "obligation_began",
            Self::ObligationEnded(..) => "obligation_ended",
            Self::AssignmentOffered(..) => "assignment_offered",
            Self::AssignmentTaken(..) => "assignment_taken",
            Self::AssignmentDelivered(..) => "assignment_delivered",
            Self::AssignmentEnded(..) => "assignment_ended",
            Self::JudgmentForfeited(..) => "judgment_forfeited",
            Self::ThreadClosed => "thread_closed",
            Self::EpochBegan(..) => "epoch_began",
        }
    }
}
