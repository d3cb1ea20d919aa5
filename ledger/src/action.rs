//! Actions: what an agent or an owner signs.

use alloc::vec::Vec;

use kwoon_keys::id::{
    AdmissionId, AgentId, AssignmentId, EngagementId, InstanceId, MemoryId, PublicationId, RequestId, TaskId, ThreadId,
};
use kwoon_keys::{Commitment, Digest, PublicKey};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::identity::{Change, Genesis, IdentityChange, Status, StatusChange};
use crate::time::{Duration, Time};

/// The version of every record in this module and its siblings.
pub const SCHEMA: u32 = 1;

/// Names a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(flat)]
pub enum ObjectId {
    /// An agent's identity.
    #[n(0)]
    Identity(#[n(0)] AgentId),
    /// A memory's versions, for its author alone.
    #[n(1)]
    Memory(#[n(0)] MemoryId),
    /// What the public may know of a memory.
    #[n(2)]
    Publication(#[n(0)] PublicationId),
    /// A thread.
    #[n(3)]
    Thread(#[n(0)] ThreadId),
    /// A task's contract layer.
    #[n(4)]
    Task(#[n(0)] TaskId),
    /// One engagement of a task.
    #[n(5)]
    Engagement(#[n(0)] EngagementId),
}

impl ObjectId {
    /// The hash, without the kind.
    pub fn digest(&self) -> &Digest {
        match self {
            Self::Identity(id) => &id.0,
            Self::Memory(id) => &id.0,
            Self::Publication(id) => &id.0,
            Self::Thread(id) => &id.0,
            Self::Task(id) => &id.0,
            Self::Engagement(id) => &id.0,
        }
    }
}

impl core::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Identity(id) => id.fmt(f),
            Self::Memory(id) => id.fmt(f),
            Self::Publication(id) => id.fmt(f),
            Self::Thread(id) => id.fmt(f),
            Self::Task(id) => id.fmt(f),
            Self::Engagement(id) => id.fmt(f),
        }
    }
}

/// Who signs an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Actor {
    /// An agent, with the key of one of its instances.
    #[n(0)]
    Agent(#[n(0)] AgentId, #[n(1)] InstanceId),
    /// An owner, with the owner's key: identity records only.
    #[n(1)]
    Owner(#[n(0)] PublicKey),
}

impl Actor {
    /// The bytes that a request id is made of.
    pub fn bytes(&self) -> &[u8; 32] {
        match self {
            Self::Agent(agent, _) => agent.as_bytes(),
            Self::Owner(key) => &key.0,
        }
    }
}

/// The position of a log that the author of an action had folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Position {
    /// The epoch.
    #[n(0)]
    pub epoch: u64,
    /// The index of the last fact folded.
    #[n(1)]
    pub index: u64,
    /// The head hash at that index.
    #[n(2)]
    pub head: Digest,
}

/// What an agent's instance or an owner signs: one attempt of a request. It changes nothing by itself.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Action {
    /// [`SCHEMA`].
    #[n(0)]
    pub schema: u32,
    /// Who acts.
    #[n(1)]
    pub actor: Actor,
    /// The object acted on; absent when the action creates one.
    #[cbor(n(2), decode_with = "kwoon_keys::cbor::known")]
    pub object: Option<ObjectId>,
    /// What the author had folded; absent when the action opens the log.
    #[n(3)]
    pub position: Option<Position>,
    /// Keyed hash of operation and idempotency key.
    #[n(4)]
    pub token: Digest,
    /// Keyed hash of the arguments as given.
    #[n(5)]
    pub request_digest: Digest,
    /// Counts the attempts of one request, from 0.
    #[n(6)]
    pub attempt: u32,
    /// The generation of the secret that token and salts were made with.
    #[n(7)]
    pub generation: u32,
    /// When it was signed, by the author's clock, or the log's time if that is later.
    #[n(8)]
    pub issued_at: Time,
    /// From when on it is no longer sealed.
    #[n(9)]
    pub expires_at: Time,
    /// Requests that must be sealed before.
    #[n(10)]
    pub needs: Vec<RequestId>,
    /// Requests that must be decided before.
    #[n(11)]
    pub after: Vec<RequestId>,
    /// What is asked.
    #[n(12)]
    pub body: Body,
}

impl Action {
    /// The id of the request that this is an attempt of.
    pub fn request(&self) -> RequestId {
        kwoon_keys::secret::request_id(self.actor.bytes(), &self.token)
    }

    /// The agent that acts; none for an identity record.
    pub fn agent(&self) -> Option<AgentId> {
        match self.actor {
            Actor::Agent(agent, _) => Some(agent),
            Actor::Owner(_) => None,
        }
    }
}

/// The hash of an action's signed bytes.
pub fn attempt_hash(signed: &[u8]) -> Digest {
    Digest::of("kwoon 1 attempt", &[signed])
}

/// The media types that content can have (L6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum MediaType {
    /// text/plain
    #[n(0)]
    Plain,
    /// text/markdown
    #[n(1)]
    Markdown,
    /// text/html
    #[n(2)]
    Html,
    /// text/csv
    #[n(3)]
    Csv,
    /// application/json
    #[n(4)]
    Json,
    /// application/yaml
    #[n(5)]
    Yaml,
    /// application/xml
    #[n(6)]
    Xml,
}

impl MediaType {
    /// Every media type.
    pub const ALL: [Self; 7] = [Self::Plain, Self::Markdown, Self::Html, Self::Csv, Self::Json, Self::Yaml, Self::Xml];

    /// The registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "text/plain",
            Self::Markdown => "text/markdown",
            Self::Html => "text/html",
            Self::Csv => "text/csv",
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Xml => "application/xml",
        }
    }
}

/// A text that structure holds by its commitment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Text {
    /// Commitment to the bytes.
    #[n(0)]
    pub commitment: Commitment,
    /// What kind of text it is.
    #[n(1)]
    pub media_type: MediaType,
}

/// One version of a memory.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Version {
    /// The text.
    #[n(0)]
    pub text: Text,
    /// The title.
    #[n(1)]
    pub title: Option<Commitment>,
    /// The author's summary of this version.
    #[n(2)]
    pub summary: Option<Commitment>,
    /// Tags.
    #[n(3)]
    pub tags: Vec<Commitment>,
}

/// One pinned version of a memory (M3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Pin {
    /// The memory.
    #[n(0)]
    pub memory: MemoryId,
    /// Its version, from 1.
    #[n(1)]
    pub version: u64,
    /// The text of that version.
    #[n(2)]
    pub text: Text,
    /// The memory's author.
    #[n(3)]
    pub author: AgentId,
    /// What the memory's id is made of beside its author.
    #[n(4)]
    pub blind: Digest,
}

/// What a member of a thread may do (T2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Role {
    /// Reads.
    #[n(0)]
    Observer,
    /// Reads and speaks.
    #[n(1)]
    Speaker,
    /// Reads, speaks and governs.
    #[n(2)]
    Governor,
}

impl Role {
    /// Whether the role has a voice.
    pub fn has_voice(self) -> bool {
        self != Self::Observer
    }

    /// The name at the interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Speaker => "speaker",
            Self::Governor => "governor",
        }
    }
}

/// An admission that a governor grants (T1.2). Its secret half stands in the ticket only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Grant {
    /// The admission's public key.
    #[n(0)]
    pub key: PublicKey,
    /// The role it admits to.
    #[n(1)]
    pub role: Role,
}

impl Grant {
    /// The admission's id.
    pub fn id(&self) -> AdmissionId {
        AdmissionId::of(&[&self.key.0])
    }
}

/// What the key of an admission signs: this joiner, in this request, into this thread.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct AdmissionUse {
    /// [`SCHEMA`].
    #[n(0)]
    pub schema: u32,
    /// The thread.
    #[n(1)]
    pub thread: ThreadId,
    /// Who joins.
    #[n(2)]
    pub joiner: AgentId,
    /// The request that joins.
    #[n(3)]
    pub request: RequestId,
}

/// The memory version that an entry pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Source {
    /// A new memory of the author's, version 1, that this entry brings forth. Its id derives from the request.
    #[n(0)]
    New(#[n(0)] Text),
    /// A version of an existing memory: the author's own, or another's with evidence that it is public.
    #[n(1)]
    Pinned(#[n(0)] Pin),
}

/// See [`Body::EntryPost`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EntryPost {
    /// What the entry says.
    #[n(0)]
    pub source: Source,
    /// The author's summary.
    #[n(1)]
    pub summary: Option<Commitment>,
    /// The entry replied to, by the request that posted it.
    #[n(2)]
    pub reply_to: Option<RequestId>,
    /// Who is asked, in rising order of id; absent if nothing was said about it (T3.4).
    #[n(3)]
    pub ask: Option<Vec<AgentId>>,
    /// A task referred to (K5.1).
    #[n(4)]
    pub task: Option<TaskId>,
    /// An assignment that comes with the entry.
    #[n(5)]
    pub assign: Option<Assign>,
}

/// The terms of an assignment, fixed at its creation (T4.1, T4.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Assign {
    /// The assignee.
    #[n(0)]
    pub to: AgentId,
    /// Acceptance criteria.
    #[n(1)]
    pub criteria: Commitment,
    /// Structure that the output must have.
    #[n(2)]
    pub output_schema: Option<Commitment>,
    /// Runs from taking.
    #[n(3)]
    pub deliver_within: Duration,
    /// Runs from the sealing of the delivery.
    #[n(4)]
    pub judge_within: Duration,
    /// The assignment that this one does again (T4.9).
    #[n(5)]
    pub redoes: Option<AssignmentId>,
}

/// What a delivery holds (T4.4). Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Output {
    /// The payload.
    #[cbor(n(0), decode_with = "kwoon_keys::cbor::known")]
    pub payload: Option<Text>,
    /// Versions of the taker's own memories.
    #[n(1)]
    pub memories: Vec<Pin>,
}

/// What an action asks.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
#[allow(clippy::large_enum_variant)]
pub enum Body {
    /// A new agent (owner).
    #[n(0)]
    AgentCreate(#[n(0)] Genesis),
    /// A change of an agent (owner).
    #[n(1)]
    AgentChange(#[n(0)] IdentityChange),
    /// A new memory.
    #[n(20)]
    MemoryCreate(#[n(0)] Version),
    /// A new version; refused if the current one is not the expected one.
    #[n(21)]
    MemoryUpdate(#[n(0)] MemoryUpdate),
    /// Makes the memory public.
    #[n(22)]
    MemoryPublish,
    /// Makes it private again.
    #[n(23)]
    MemoryUnpublish,
    /// Ends it.
    #[n(24)]
    MemoryWithdraw,
    /// A new thread, with an admission at once if wanted.
    #[n(40)]
    ThreadCreate(#[n(0)] ThreadCreate),
    /// A new admission, which voids the one before (T1.4).
    #[n(41)]
    AdmissionIssue(#[n(0)] Grant),
    /// Voids the admission.
    #[n(42)]
    AdmissionVoid,
    /// Joins by an admission; the bytes are an [`AdmissionUse`] signed with its key.
    #[n(43)]
    ThreadJoin(#[n(0)] AdmissionId, #[n(1)] ByteVec),
    /// Leaves.
    #[n(44)]
    ThreadLeave,
    /// Closes for good.
    #[n(45)]
    ThreadClose,
    /// Removes a member.
    #[n(46)]
    MemberRemove(#[n(0)] AgentId),
    /// Changes a member's role.
    #[n(47)]
    MemberRole(#[n(0)] AgentId, #[n(1)] Role),
    /// Speaks.
    #[n(48)]
    EntryPost(#[n(0)] EntryPost),
    /// Ends the own pending response to an entry without a reply, with a note if wanted.
    #[n(49)]
    EntryHandle(#[n(0)] RequestId, #[n(1)] Option<Commitment>),
    /// Ends all responses still pending from an own entry.
    #[n(50)]
    EntryRetract(#[n(0)] RequestId),
    /// Takes an assignment, and delivers at once if there is an output.
    #[n(51)]
    AssignmentTake(#[n(0)] AssignmentId, #[cbor(n(1), decode_with = "kwoon_keys::cbor::known")] Option<Output>),
    /// Delivers.
    #[n(52)]
    AssignmentDeliver(#[n(0)] AssignmentId, #[n(1)] Output),
    /// Accepts a delivery.
    #[n(53)]
    AssignmentAccept(#[n(0)] AssignmentId),
    /// Returns a delivery, with the reason.
    #[n(54)]
    AssignmentReturn(#[n(0)] AssignmentId, #[n(1)] Commitment),
    /// Gives up before delivery.
    #[n(55)]
    AssignmentAbandon(#[n(0)] AssignmentId),
    /// Calls an assignment off before delivery.
    #[n(56)]
    AssignmentVoid(#[n(0)] AssignmentId),
}

/// See [`Body::MemoryUpdate`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct MemoryUpdate {
    /// The new version.
    #[n(0)]
    pub version: Version,
    /// The current version that this follows.
    #[n(1)]
    pub expected_version: Option<u64>,
}

/// See [`Body::ThreadCreate`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ThreadCreate {
    /// What the thread is about.
    #[n(0)]
    pub subject: Option<Commitment>,
    /// An admission.
    #[cbor(n(1), decode_with = "kwoon_keys::cbor::known")]
    pub admission: Option<Grant>,
}

impl Body {
    /// Hands out each commitment in it to what participants wrote, the note of a handled response excepted: what a
    /// sequencer must hold before it seals the action.
    pub fn contents(&self, mut each: impl FnMut(&Commitment)) {
        fn version(version: &Version, each: &mut impl FnMut(&Commitment)) {
            each(&version.text.commitment);
            version.title.iter().chain(&version.summary).chain(&version.tags).for_each(each);
        }
        fn output(output: &Output, each: &mut impl FnMut(&Commitment)) {
            output.payload.iter().for_each(|text| each(&text.commitment));
            output.memories.iter().for_each(|pin| each(&pin.text.commitment));
        }
        match self {
            Self::MemoryCreate(created) => version(created, &mut each),
            Self::MemoryUpdate(update) => version(&update.version, &mut each),
            Self::ThreadCreate(create) => create.subject.iter().for_each(each),
            Self::EntryPost(post) => {
                match &post.source {
                    Source::New(text) => each(&text.commitment),
                    Source::Pinned(pin) => each(&pin.text.commitment),
                }
                post.summary.iter().for_each(&mut each);
                if let Some(assign) = &post.assign {
                    each(&assign.criteria);
                    assign.output_schema.iter().for_each(each);
                }
            }
            Self::AssignmentTake(_, taken) => taken.iter().for_each(|taken| output(taken, &mut each)),
            Self::AssignmentDeliver(_, delivered) => output(delivered, &mut each),
            Self::AssignmentReturn(_, reason) => each(reason),
            // Identity records travel without what they commit to.
            Self::AgentCreate(_)
            | Self::AgentChange(_)
            | Self::MemoryPublish
            | Self::MemoryUnpublish
            | Self::MemoryWithdraw
            | Self::AdmissionIssue(_)
            | Self::AdmissionVoid
            | Self::ThreadJoin(..)
            | Self::ThreadLeave
            | Self::ThreadClose
            | Self::MemberRemove(_)
            | Self::MemberRole(..)
            | Self::EntryHandle(..)
            | Self::EntryRetract(_)
            | Self::AssignmentAccept(_)
            | Self::AssignmentAbandon(_)
            | Self::AssignmentVoid(_) => {}
        }
    }

    /// The commitment to the note of a handled response, which its sequencer may not read (V5).
    pub fn note(&self) -> Option<&Commitment> {
        match self {
            Self::EntryHandle(_, note) => note.as_ref(),
            _ => None,
        }
    }

    /// Whether it is an exit that depends on nobody: never limited, never made to wait for what came before (L4.1).
    pub fn is_free_exit(&self) -> bool {
        matches!(self, Self::EntryHandle(..) | Self::AssignmentAbandon(_) | Self::AssignmentAccept(_))
    }

    /// The operation at the interfaces that makes such an action.
    pub fn operation(&self) -> &'static str {
        match self {
            Self::AgentCreate(_) => "agent_create",
            Self::AgentChange(change) => match &change.change {
                Change::Profile(_) => "agent_update",
                Change::Status(StatusChange { status: Status::Active, .. }) => "agent_reactivate",
                Change::Status(StatusChange { status: Status::Deactivated, .. }) => "agent_deactivate",
                Change::Status(StatusChange { status: Status::Terminated, .. }) => "agent_terminate",
                Change::InstanceAdded(..) => "instance_approve",
                Change::InstanceRevoked(..) => "instance_revoke",
                Change::HomeHost(_) => "object_handover",
            },
            Self::MemoryCreate(_) => "memory_create",
            Self::MemoryUpdate(_) => "memory_update",
            Self::MemoryPublish => "memory_publish",
            Self::MemoryUnpublish => "memory_unpublish",
            Self::MemoryWithdraw => "memory_withdraw",
            Self::ThreadCreate(_) => "thread_create",
            Self::AdmissionIssue(_) => "admission_issue",
            Self::AdmissionVoid => "admission_void",
            Self::ThreadJoin(..) => "thread_join",
            Self::ThreadLeave => "thread_leave",
            Self::ThreadClose => "thread_close",
            Self::MemberRemove(_) => "member_remove",
            Self::MemberRole(..) => "member_role",
            Self::EntryPost(_) => "entry_post",
            Self::EntryHandle(..) => "entry_handle",
            Self::EntryRetract(_) => "entry_retract",
            Self::AssignmentTake(..) => "assignment_take",
            Self::AssignmentDeliver(..) => "assignment_deliver",
            Self::AssignmentAccept(_) => "assignment_accept",
            Self::AssignmentReturn(..) => "assignment_return",
            Self::AssignmentAbandon(_) => "assignment_abandon",
            Self::AssignmentVoid(_) => "assignment_void",
        }
    }
}
