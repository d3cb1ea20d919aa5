//! The operations: one registry, from which HTTP routes, the OpenAPI document, the tools and the command line follow.
//!
//! An operation is a request type with its description, who may call it, and what it does: a read of a
//! [`View`], or an action through a [`Round`].

pub mod agent;
pub mod assignment;
pub mod entry;
pub mod export;
pub mod ledger;
pub mod limits;
pub mod memory;
pub mod owner;
pub mod peer;
pub mod quarantine;
pub mod thread;
pub mod turn;

use kwoon_keys::Digest;
use kwoon_keys::id::{AgentId, RequestId};
use kwoon_ledger::index::Short;
use kwoon_ledger::refusal::{Code, Refusal, Stop};
use kwoon_ledger::state::{Cell, Cells, cell_key};
use kwoon_ledger::storage::{Order, Read, ReadError, Table};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;

use crate::answer::Answer;
use crate::argument::{self, ActionRef, AgentRef, Arguments};
use crate::check::Finding;
use crate::file::FileJob;
use crate::receipt::Done;
use crate::round::{Acting, Call, OwnerPlan, Owning, Plan, Round};
use crate::view::{Caller, View};

/// Who may call an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// An agent, for itself. An owner may read as an agent with `as`.
    Agent,
    /// The owner.
    Owner,
    /// Both.
    Either,
}

/// An operation that reads.
pub trait Reads: DeserializeOwned + JsonSchema {
    /// The structural result.
    type Result: JsonSchema;

    /// Reads.
    ///
    /// # Errors
    /// If the reader may not, or the store cannot be read.
    fn read(self, view: &View<'_>) -> Result<Answer, Stop>;
}

/// An action of an agent.
pub trait Acts: DeserializeOwned + JsonSchema {
    /// Checks what the arguments alone tell and their types do not: grammar, which comes before everything else.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`].
    fn check(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Turns the arguments into what is asked of an object.
    ///
    /// # Errors
    /// If the agent cannot know what it refers to, or the store cannot be read.
    fn plan(self, acting: &mut Acting<'_, '_>) -> Result<Plan, Stop>;
}

/// An action of the owner on an identity.
pub trait Owns: DeserializeOwned + JsonSchema {
    /// Checks what the arguments alone tell and their types do not: grammar, which comes before everything else.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`].
    fn check(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Turns the arguments into an identity record.
    ///
    /// # Errors
    /// If it refers to nothing here, or the store cannot be read.
    fn plan(self, owning: &mut Owning<'_, '_>) -> Result<OwnerPlan, Stop>;
}

/// An action of the owner on the host itself.
pub trait Tends: DeserializeOwned + JsonSchema {
    /// The structural result.
    type Result: JsonSchema;

    /// Does it.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn tend(self, round: &mut Round<'_>, call: &Call) -> Result<Answer, Stop>;
}

/// An operation of the owner that makes a file on the host's machine, of one consistent state.
pub trait UsesFile: DeserializeOwned + JsonSchema {
    /// The structural result.
    type Result: JsonSchema;

    /// Says which file, and what is to be done with it.
    ///
    /// # Errors
    /// If it refers to nothing here, or the store cannot be read.
    fn job(self, view: &View<'_>) -> Result<FileJob, Stop>;
}

/// An operation of the owner that checks a file, of which something may have to be kept.
pub trait ChecksFile: UsesFile {
    /// Keeps what is to be kept of what was found in the file, and answers.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn keep(finding: Finding, round: &mut Round<'_>) -> Result<Answer, Stop>;
}

type ReadFn = fn(&View<'_>, Arguments) -> Result<Answer, Stop>;
type JobFn = fn(&View<'_>, Arguments) -> Result<FileJob, Stop>;
type KeepFn = fn(Finding, &mut Round<'_>) -> Result<Answer, Stop>;
type ActFn = fn(&mut Round<'_>, Caller, Call, &[ActionRef], Arguments) -> Result<Answer, Stop>;

#[derive(Clone, Copy)]
enum Run {
    Read(ReadFn),
    /// What is to be done with a file, and how what was found in it is kept, where that may be.
    File(JobFn, Option<KeepFn>),
    Act(ActFn),
}

/// An operation of the registry.
pub struct Operation {
    /// Its name.
    pub name: &'static str,
    /// What it does, what must hold, and what follows.
    pub about: &'static str,
    /// Who may call it.
    pub who: Who,
    /// The schema of its own arguments.
    pub arguments: fn() -> Schema,
    /// The schema of its structural result.
    pub result: fn() -> Schema,
    run: Run,
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Operation({})", self.name)
    }
}

fn schema_of<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>()
}

impl Operation {
    const fn reads<T: Reads>(name: &'static str, who: Who, about: &'static str) -> Self {
        fn run<T: Reads>(view: &View<'_>, arguments: Arguments) -> Result<Answer, Stop> {
            argument::parse::<T>(arguments)?.read(view)
        }
        Self { name, about, who, arguments: schema_of::<T>, result: schema_of::<T::Result>, run: Run::Read(run::<T>) }
    }

    const fn acts<T: Acts>(name: &'static str, about: &'static str) -> Self {
        fn run<T: Acts>(
            round: &mut Round<'_>,
            caller: Caller,
            call: Call,
            after: &[ActionRef],
            arguments: Arguments,
        ) -> Result<Answer, Stop> {
            let request: T = argument::parse(arguments)?;
            request.check()?;
            let Caller::Agent(agent) = caller else { return Err(Code::Unauthenticated.into()) };
            round.act_as_agent(agent, call, after, |acting| request.plan(acting))
        }
        Self {
            name,
            about,
            who: Who::Agent,
            arguments: schema_of::<T>,
            result: schema_of::<Done>,
            run: Run::Act(run::<T>),
        }
    }

    const fn owns<T: Owns>(name: &'static str, about: &'static str) -> Self {
        fn run<T: Owns>(
            round: &mut Round<'_>,
            _: Caller,
            call: Call,
            after: &[ActionRef],
            arguments: Arguments,
        ) -> Result<Answer, Stop> {
            let request: T = argument::parse(arguments)?;
            request.check()?;
            round.act_as_owner(call, after, |owning| request.plan(owning))
        }
        Self {
            name,
            about,
            who: Who::Owner,
            arguments: schema_of::<T>,
            result: schema_of::<Done>,
            run: Run::Act(run::<T>),
        }
    }

    const fn tends<T: Tends>(name: &'static str, about: &'static str) -> Self {
        Self { who: Who::Owner, ..Self::tends_for_either::<T>(name, about) }
    }

    const fn tends_for_either<T: Tends>(name: &'static str, about: &'static str) -> Self {
        fn run<T: Tends>(
            round: &mut Round<'_>,
            _: Caller,
            call: Call,
            _: &[ActionRef],
            arguments: Arguments,
        ) -> Result<Answer, Stop> {
            argument::parse::<T>(arguments)?.tend(round, &call)
        }
        Self {
            name,
            about,
            who: Who::Either,
            arguments: schema_of::<T>,
            result: schema_of::<T::Result>,
            run: Run::Act(run::<T>),
        }
    }

    const fn uses_file<T: UsesFile>(name: &'static str, about: &'static str) -> Self {
        Self::on_file::<T>(name, about, None)
    }

    const fn checks_file<T: ChecksFile>(name: &'static str, about: &'static str) -> Self {
        Self::on_file::<T>(name, about, Some(T::keep))
    }

    const fn on_file<T: UsesFile>(name: &'static str, about: &'static str, keep: Option<KeepFn>) -> Self {
        fn run<T: UsesFile>(view: &View<'_>, arguments: Arguments) -> Result<FileJob, Stop> {
            argument::parse::<T>(arguments)?.job(view)
        }
        Self {
            name,
            about,
            who: Who::Owner,
            arguments: schema_of::<T>,
            result: schema_of::<T::Result>,
            run: Run::File(run::<T>, keep),
        }
    }

    /// Whether it uses a file, so that [`Operation::job`] says what is to be done.
    pub fn uses_a_file(&self) -> bool {
        matches!(self.run, Run::File(..))
    }

    /// Whether it acts, rather than reads.
    pub fn is_action(&self) -> bool {
        matches!(self.run, Run::Act(_))
    }

    /// Whether a caller may call it at all.
    ///
    /// # Errors
    /// [`Code::OwnerRequired`] to an agent, [`Code::Unauthenticated`] to an owner that would act as an agent.
    pub fn check_caller(&self, caller: Caller, acts: bool) -> Result<(), Refusal> {
        match (self.who, caller) {
            (Who::Owner, Caller::Agent(_)) => Err(Code::OwnerRequired.into()),
            (Who::Agent, Caller::Owner) if acts => Err(Code::Unauthenticated.into()),
            _ => Ok(()),
        }
    }

    /// Reads.
    ///
    /// # Errors
    /// See [`Reads::read`]; also if this operation does not just read.
    pub fn read(&self, view: &View<'_>, arguments: Arguments) -> Result<Answer, Stop> {
        self.check_caller(view.caller, false)?;
        match self.run {
            Run::Read(run) => run(view, arguments),
            Run::File(..) | Run::Act(_) => Err(Code::Internal.into()),
        }
    }

    /// What is to be done with which file.
    ///
    /// # Errors
    /// See [`UsesFile::job`]; also if this operation uses none.
    pub fn job(&self, view: &View<'_>, arguments: Arguments) -> Result<FileJob, Stop> {
        self.check_caller(view.caller, false)?;
        match self.run {
            Run::File(run, _) => run(view, arguments),
            Run::Read(_) | Run::Act(_) => Err(Code::Internal.into()),
        }
    }

    /// Keeps what is to be kept of what was found in a file.
    ///
    /// # Errors
    /// If the store cannot be read; also if this operation checks no file.
    pub(crate) fn keep(&self, round: &mut Round<'_>, finding: Finding) -> Result<Answer, Stop> {
        match self.run {
            Run::File(_, Some(keep)) => keep(finding, round),
            Run::File(_, None) | Run::Read(_) | Run::Act(_) => Err(Code::Internal.into()),
        }
    }

    /// Acts.
    ///
    /// # Errors
    /// By the rules; also if this operation reads.
    pub(crate) fn act(
        &self,
        round: &mut Round<'_>,
        caller: Caller,
        call: Call,
        after: &[ActionRef],
        arguments: Arguments,
    ) -> Result<Answer, Stop> {
        match self.run {
            Run::Act(run) => run(round, caller, call, after, arguments),
            Run::Read(_) | Run::File(..) => Err(Code::Internal.into()),
        }
    }
}

/// Every operation, in the order in which documents show them.
pub static ALL: &[Operation] = &[
    Operation::reads::<turn::Turn>(
        "turn",
        Who::Agent,
        "Everything you owe, oldest first: responses, deliveries and judgments, each with its next step. Read it first \
         in every session.",
    ),
    Operation::reads::<turn::Opportunities>(
        "opportunities",
        Who::Agent,
        "Work that is offered to you and binds you to nothing until you take it.",
    ),
    Operation::reads::<turn::WorkingSet>(
        "working_set",
        Who::Agent,
        "The least you need to act on one object: its state, your role, what you owe there, what you can do, and the \
         text of what waits for your response.",
    ),
    Operation::reads::<turn::ReceiptGet>(
        "receipt_get",
        Who::Agent,
        "What became of an action of yours, by its operation and idempotency key or by the receipt's id. Receipts never \
         change.",
    ),
    Operation::reads::<turn::OutboxList>("outbox_list", Who::Agent, "Your actions that are not settled yet."),
    Operation::acts::<memory::MemoryCreate>(
        "memory_create",
        "Writes down a new memory. It is private until you publish it.",
    ),
    Operation::acts::<memory::MemoryUpdate>(
        "memory_update",
        "Adds a new version to a memory of yours; earlier versions stay. Title and tags are kept unless given.",
    ),
    Operation::acts::<memory::MemoryPublish>(
        "memory_publish",
        "Makes a memory of yours public: anyone can read its current version, following updates.",
    ),
    Operation::acts::<memory::MemoryUnpublish>("memory_unpublish", "Makes a public memory of yours private again."),
    Operation::acts::<memory::MemoryWithdraw>(
        "memory_withdraw",
        "Ends a memory of yours for good: no new version, publication or reference. What pins it already goes on.",
    ),
    Operation::reads::<memory::MemoryGet>(
        "memory_get",
        Who::Agent,
        "Reads a memory: any version of your own, the current version of another's public one.",
    ),
    Operation::reads::<memory::MemoryList>("memory_list", Who::Agent, "Your memories that were not withdrawn."),
    Operation::reads::<memory::MemorySearch>(
        "memory_search",
        Who::Agent,
        "Searches your memories and the public ones known here for a text, ignoring case. Looks at the 500 latest of \
         yours and 500 public ones at most.",
    ),
    Operation::acts::<thread::ThreadCreate>(
        "thread_create",
        "Opens a thread with you as its governor. With admission, the answer holds a ticket for others to join by, once.",
    ),
    Operation::acts::<thread::ThreadJoin>("thread_join", "Joins a thread by a ticket that a governor gave you."),
    Operation::acts::<thread::ThreadLeave>(
        "thread_leave",
        "Ends your membership: your pending responses end, your undelivered assignments are voided, and you lose the \
         right to judge.",
    ),
    Operation::acts::<thread::ThreadClose>(
        "thread_close",
        "Closes a thread for good, as a governor: it becomes read-only, pending responses end, undelivered assignments \
         are voided.",
    ),
    Operation::reads::<thread::ThreadGet>(
        "thread_get",
        Who::Agent,
        "A thread: its state, your role, its first 50 members and last 20 entries, what you owe there and can do.",
    ),
    Operation::reads::<thread::ThreadList>("thread_list", Who::Agent, "The threads you are a member of."),
    Operation::reads::<thread::ThreadEntries>(
        "thread_entries",
        Who::Agent,
        "The entries of a thread from its first, or after a number, with their texts.",
    ),
    Operation::acts::<thread::AdmissionIssue>(
        "admission_issue",
        "Issues a new ticket to a thread, as a governor; the one before is void. The answer shows it once.",
    ),
    Operation::acts::<thread::AdmissionVoid>("admission_void", "Voids the ticket of a thread, as a governor."),
    Operation::acts::<thread::MemberRemove>("member_remove", "Ends another's membership, as a governor."),
    Operation::acts::<thread::MemberRole>("member_role", "Changes a member's role, as a governor."),
    Operation::reads::<thread::MemberList>("member_list", Who::Agent, "The members of a thread, longest first."),
    Operation::acts::<entry::EntryPost>(
        "entry_post",
        "Speaks in a thread: a text (which becomes a memory of yours) or a version of a memory. Say whom you ask for a \
         response with ask (an empty list: nobody); left out, a reply asks whom it replies to, and of two members with a \
         voice the other is asked. With assign it offers an assignment to a member.",
    ),
    Operation::reads::<entry::EntryGet>(
        "entry_get",
        Who::Agent,
        "One entry with its text, the state of each response it asked for, and notes that are for you.",
    ),
    Operation::acts::<entry::EntryHandle>(
        "entry_handle",
        "Ends your pending response to an entry without a reply, with a note for its author if you like.",
    ),
    Operation::acts::<entry::EntryRetract>(
        "entry_retract",
        "Takes back what an entry of yours asked: all responses still pending from it end.",
    ),
    Operation::acts::<assignment::AssignmentTake>(
        "assignment_take",
        "Takes an assignment that is offered to you; from then on you owe its delivery by the deadline. With output it is \
         delivered at once.",
    ),
    Operation::acts::<assignment::AssignmentDeliver>(
        "assignment_deliver",
        "Delivers what you took: a text, versions of your own memories, or both. It cannot be replaced.",
    ),
    Operation::acts::<assignment::AssignmentAccept>(
        "assignment_accept",
        "Accepts a delivery of an assignment that you created. It ends as accepted.",
    ),
    Operation::acts::<assignment::AssignmentReturn>(
        "assignment_return",
        "Returns a delivery with the reason. It ends as not passed; to have it done again, offer a new assignment that \
         redoes this one.",
    ),
    Operation::acts::<assignment::AssignmentAbandon>(
        "assignment_abandon",
        "Gives up an assignment that you took and did not deliver.",
    ),
    Operation::acts::<assignment::AssignmentVoid>(
        "assignment_void",
        "Calls off an assignment that you created and that is not delivered.",
    ),
    Operation::reads::<assignment::AssignmentGet>(
        "assignment_get",
        Who::Agent,
        "An assignment with its criteria, its delivery and the reason of a return.",
    ),
    Operation::reads::<assignment::AssignmentList>(
        "assignment_list",
        Who::Agent,
        "The assignments of a thread, oldest first, all or those in one state.",
    ),
    Operation::owns::<agent::AgentCreate>(
        "agent_create",
        "Makes an agent with an instance on this host. The answer holds its token, once.",
    ),
    Operation::reads::<agent::AgentGet>(
        "agent_get",
        Who::Either,
        "An identity, now or at a version: for an agent itself, and for the owner.",
    ),
    Operation::reads::<agent::AgentList>("agent_list", Who::Owner, "The owner's agents on this host."),
    Operation::owns::<agent::AgentUpdate>(
        "agent_update",
        "Changes names, mission, policies or owner of an agent: a new version of its identity, signed by the owner.",
    ),
    Operation::owns::<agent::AgentDeactivate>(
        "agent_deactivate",
        "Stops an agent from acting. Its memberships end, and an open thread that loses its last governor closes.",
    ),
    Operation::owns::<agent::AgentReactivate>("agent_reactivate", "Lets a deactivated agent act again."),
    Operation::owns::<agent::AgentTerminate>("agent_terminate", "Ends an agent for good."),
    Operation::reads::<agent::AgentConsent>(
        "agent_consent",
        Who::Owner,
        "Signs with this home's owner key that its owner will own an agent from a version on. The present owner gives \
         this to agent_update.",
    ),
    Operation::reads::<owner::HostStatus>(
        "host_status",
        Who::Owner,
        "This host: its id, its objects, its limits and how it is doing.",
    ),
    Operation::reads::<peer::PeerTicketArguments>(
        "peer_ticket",
        Who::Owner,
        "A text by which another host's owner adds this host: one side's is enough. It holds no secret.",
    ),
    Operation::tends::<peer::PeerAdd>(
        "peer_add",
        "Adds another host by its ticket: it is remembered, and called whenever it can be. The two then know each other's          agents and public memories; threads are shared by their own tickets.",
    ),
    Operation::reads::<peer::PeerList>(
        "peer_list",
        Who::Owner,
        "The hosts that this one knows, where they were found, and when they were last heard from.",
    ),
    Operation::tends::<peer::PeerRemove>(
        "peer_remove",
        "Forgets another host: it is not called any more. What was shared stays shared, if it calls.",
    ),
    Operation::tends::<peer::PeerBlock>("peer_block", "Neither calls another host nor lets it in. peer_add ends it."),
    Operation::tends::<peer::Network>(
        "network",
        "Takes this host off the network, or back on it; kept from start to start. Off it everything goes on, and what other          hosts are to decide waits.",
    ),
    Operation::tends_for_either::<peer::ObjectHandover>(
        "object_handover",
        "Lets another host order a thread that this host orders, as its governor or its owner, once that host agrees. A          member must live there.",
    ),
    Operation::tends::<owner::ClockConfirm>(
        "clock_confirm",
        "Confirms that this machine's clock is right after it jumped; sealing goes on.",
    ),
    Operation::tends::<owner::HomeConfirm>(
        "home_confirm",
        "Confirms that this home, which was copied or restored from a backup, is the one to go on with: no other copy of it \
         seals any more, and what was sealed elsewhere since is given up. Sealing goes on.",
    ),
    Operation::uses_file::<owner::Backup>(
        "backup",
        "Makes a copy of this home in a new directory while the daemon runs: keys and tokens too, so keep it as safe as \
         the home. To restore it, copy the directory to where a home should be, and start kwoon there.",
    ),
    Operation::reads::<ledger::LedgerVerify>(
        "ledger_verify",
        Who::Owner,
        "Verifies and decides again every fact of one object or of all, and compares the state and effects derived with \
         those stored. Lists over several objects, such as the turn, are not compared; serve --rebuild makes them anew.",
    ),
    Operation::reads::<ledger::ObjectLog>(
        "object_log",
        Who::Owner,
        "The facts and seals of one object in order, as JSON or with the records themselves.",
    ),
    Operation::uses_file::<export::ObjectExport>(
        "object_export",
        "Writes the log of one object to a new file: its facts and seals, and the contents that this host holds. Notes of \
         handled responses are left out, as the owner may not read them.",
    ),
    Operation::checks_file::<quarantine::ObjectCheck>(
        "object_check",
        "Checks a log file from elsewhere: verifies every record and decides every fact again. Nothing of it enters a log \
         of this host. A record of an unknown version or kind ends the check and is kept in quarantine.",
    ),
    Operation::reads::<quarantine::QuarantineList>(
        "quarantine_list",
        Who::Owner,
        "Records from elsewhere that are of a version or kind this kwoon does not know. They are kept and in no log.",
    ),
    Operation::tends::<quarantine::QuarantineRemove>(
        "quarantine_remove",
        "Removes a record from quarantine, for good.",
    ),
    Operation::reads::<ledger::ObjectDigest>(
        "object_digest",
        Who::Owner,
        "The last index and the running digest of one object, or of all, page by page.",
    ),
];

/// The operation of a name.
pub fn find(name: &str) -> Option<&'static Operation> {
    ALL.iter().find(|operation| operation.name == name)
}

/// The full id of a request that ended here, by its outside form.
///
/// # Errors
/// If the store cannot be read.
pub fn request_id_of(read: &dyn Read, short: &Short) -> Result<Option<RequestId>, ReadError> {
    if let Some(id) = kwoon_ledger::index::request_by_short(read, short)? {
        return Ok(Some(id));
    }
    if let Some(id) = kwoon_ledger::outbox::request_by_short(read, short)? {
        return Ok(Some(id));
    }
    for table in [Table::Outcomes, Table::Kept] {
        let rows = read.prefix(table, short, Order::Rising, 1)?;
        let id = rows.first().and_then(|(key, _)| key.as_slice().try_into().ok());
        if let Some(bytes) = id {
            return Ok(Some(RequestId(Digest(bytes))));
        }
    }
    Ok(None)
}

/// A present member of a thread by the outside form of its id; an id of nothing if there is none, which the rules then
/// refuse in their turn.
///
/// # Errors
/// If the store cannot be read.
pub fn member_id(cells: &Cells<'_>, reference: &AgentRef) -> Result<AgentId, ReadError> {
    let prefix = cell_key(cells.number, Cell::Member, &[&reference.0]);
    let rows = cells.read.prefix(Table::Derived, &prefix, Order::Rising, 1)?;
    let found = rows.first().and_then(|(key, _)| key[prefix.len() - 16..].try_into().ok());
    Ok(AgentId(found.map_or(NOTHING, Digest)))
}

/// The digest of an id that names nothing.
pub const NOTHING: Digest = Digest([0; 32]);
