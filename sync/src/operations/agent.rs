//! Agents: identities, made and changed by their owner.

use kwoon_keys::id::AgentId;
use kwoon_keys::secret::InstanceKeys;
use kwoon_keys::{Digest, KeyPair, PublicKey, RecordKind, RequestSecret, SealedBoxKey, cbor, cose};
use kwoon_ledger::action::{Body, SCHEMA};
use kwoon_ledger::effect::Account;
use kwoon_ledger::identity::{
    Change, Consent, Genesis, IdentityChange, Instance, OwnerChange, PolicyRef, ProfileChange, Status, StatusChange,
};
use kwoon_ledger::index::{self, List};
use kwoon_ledger::refusal::{Code, Refusal, Stop, require};
use kwoon_ledger::rules::identity;
use kwoon_ledger::state::{Cells, ObjectNumber};
use kwoon_ledger::storage::Table;
use minicbor::bytes::ByteVec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NOTHING, Owns, Reads};
use crate::answer::{Answer, ContentKey, Contents, Window, shown};
use crate::argument::{AgentName, AgentRef, Limit, NonEmpty};
use crate::names::name_key;
use crate::round::{OwnerPlan, Owning};
use crate::view::{Caller, View, account, agent_id};

/// A versioned reference to a policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object: {policy, version}")]
#[schemars(inline)]
pub struct PolicyArgument {
    /// The policy's name.
    policy: NonEmpty,
    /// Its version.
    version: u64,
}

/// Arguments of `agent_create`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentCreate {
    /// The agent's name on this host.
    name: AgentName,
    /// A name for people.
    display_name: Option<NonEmpty>,
    /// What the agent is for.
    mission: Option<NonEmpty>,
    /// Policies that the agent follows.
    policy_refs: Option<Vec<PolicyArgument>>,
    /// The agent that this one follows. It inherits nothing of it.
    predecessor: Option<AgentRef>,
}

fn policies(
    owning: &mut Owning<'_, '_>,
    place: &[u8; 32],
    arguments: Vec<PolicyArgument>,
) -> Result<Vec<PolicyRef>, Refusal> {
    let limit = owning.round.limits.tags_max;
    if arguments.len() as u64 > limit {
        return Err(Refusal::too_large("policy_refs", limit));
    }
    let arguments = arguments.iter().enumerate();
    Ok(arguments
        .map(|(at, argument)| PolicyRef {
            name: owning.commit(place, &format!("policy {at}"), &argument.policy.0),
            version: argument.version,
        })
        .collect())
}

impl Owns for AgentCreate {
    fn plan(self, owning: &mut Owning<'_, '_>) -> Result<OwnerPlan, Stop> {
        let name = self.name.0;
        let predecessor = match &self.predecessor {
            Some(reference) => Some(agent_id(owning.read(), &reference.0)?.ok_or(Code::NotFound)?.0),
            None => None,
        };
        // The owner's token lies under this name, beside the agents'.
        require(name != "owner", Code::NameTaken)?;
        require(owning.read().get(Table::Meta, &name_key(&name))?.is_none(), Code::NameTaken)?;
        let keys = InstanceKeys {
            // Filled in once the record has its hash.
            agent: AgentId(NOTHING),
            signing: KeyPair::from_seed(&owning.random("signing key")),
            opening: SealedBoxKey::from_seed(owning.random("encryption key")),
            secrets: vec![RequestSecret::new(owning.random("request secret"))],
        };
        let host = owning.round.keyring.host.public();
        let place = &host.0;
        let genesis = Genesis {
            nonce: Digest(owning.random("nonce")),
            created_at: owning.round.now,
            predecessor,
            name: owning.commit(place, "name", &name),
            display_name: self.display_name.map(|text| owning.commit(place, "display_name", &text.0)),
            mission: self.mission.map(|text| owning.commit(place, "mission", &text.0)),
            policies: policies(owning, place, self.policy_refs.unwrap_or_default())?,
            instance: Instance { signing_key: keys.signing.public(), encryption_key: keys.opening.public(), host },
        };
        Ok(OwnerPlan { object: None, body: Body::AgentCreate(genesis), instance: Some((name, keys)) })
    }
}

/// The agent that an owner wants to change, as it is now. These checks come before what the change says.
fn changeable(owning: &Owning<'_, '_>, agent: &AgentRef, expected: Option<u64>) -> Result<(AgentId, Account), Stop> {
    let (agent, _) = agent_id(owning.read(), &agent.0)?.ok_or(Code::NotFound)?;
    let account = account(owning.read(), &agent)?.ok_or(Code::Internal)?;
    require(account.owner == owning.round.keyring.owner.public(), Code::OwnerRequired)?;
    identity::may_change(&account, expected.unwrap_or(account.version).saturating_add(1))?;
    Ok((agent, account))
}

/// The next record of an identity.
fn changed(agent: AgentId, account: &Account, change: Change) -> OwnerPlan {
    let change = IdentityChange { version: account.version + 1, previous: account.record, change };
    OwnerPlan { object: Some(agent), body: Body::AgentChange(change), instance: None }
}

/// A new owner and its consent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object: {owner, consent}")]
#[schemars(inline)]
pub struct OwnerArgument {
    /// The new owner's key, as `agent_consent` gave it.
    owner: String,
    /// The consent, as `agent_consent` gave it.
    consent: String,
}

/// Arguments of `agent_update`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentUpdate {
    /// The agent.
    agent: AgentRef,
    /// The version that this changes; refused if it is not the present one.
    expected_version: u64,
    /// A new display name.
    display_name: Option<NonEmpty>,
    /// A new mission.
    mission: Option<NonEmpty>,
    /// New policies, all of them.
    policy_refs: Option<Vec<PolicyArgument>>,
    /// A new owner.
    owner: Option<OwnerArgument>,
}

impl OwnerArgument {
    fn read(&self) -> Result<OwnerChange, Refusal> {
        let owner = PublicKey::read(&self.owner);
        let owner = owner.ok_or_else(|| Refusal::argument("owner.owner", "64 lower-case hex digits"))?;
        let consent = data_encoding::HEXLOWER.decode(self.consent.as_bytes());
        let consent = consent.map_err(|_| Refusal::argument("owner.consent", "the consent of agent_consent"))?;
        Ok(OwnerChange { owner, consent: ByteVec::from(consent) })
    }
}

impl Owns for AgentUpdate {
    fn check(&self) -> Result<(), Refusal> {
        self.owner.as_ref().map_or(Ok(()), |owner| owner.read().map(drop))
    }

    fn plan(self, owning: &mut Owning<'_, '_>) -> Result<OwnerPlan, Stop> {
        let owner = self.owner.as_ref().map(OwnerArgument::read).transpose()?;
        let (agent, account) = changeable(owning, &self.agent, Some(self.expected_version))?;
        let place = agent.as_bytes();
        let profile = ProfileChange {
            display_name: self.display_name.map(|text| owning.commit(place, "display_name", &text.0)),
            mission: self.mission.map(|text| owning.commit(place, "mission", &text.0)),
            policies: self.policy_refs.map(|arguments| policies(owning, place, arguments)).transpose()?,
            owner,
        };
        Ok(changed(agent, &account, Change::Profile(profile)))
    }
}

macro_rules! status_changes {
    ($($(#[$doc:meta])* $name:ident: $status:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// The agent.
            agent: AgentRef,
            /// Why.
            reason: Option<NonEmpty>,
        }

        impl Owns for $name {
            fn plan(self, owning: &mut Owning<'_, '_>) -> Result<OwnerPlan, Stop> {
                let (agent, account) = changeable(owning, &self.agent, None)?;
                let reason = self.reason.map(|text| owning.commit(agent.as_bytes(), "reason", &text.0));
                Ok(changed(agent, &account, Change::Status(StatusChange { status: $status, reason })))
            }
        }
    )*};
}

status_changes! {
    /// Arguments of `agent_deactivate`.
    AgentDeactivate: Status::Deactivated;
    /// Arguments of `agent_reactivate`.
    AgentReactivate: Status::Active;
    /// Arguments of `agent_terminate`.
    AgentTerminate: Status::Terminated;
}

/// Arguments of `agent_get`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentGet {
    /// The agent; yourself if left out.
    agent: Option<AgentRef>,
    /// The version of its identity; the present one if left out.
    version: Option<u64>,
}

/// An instance.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InstanceShown {
    instance: String,
    host: String,
}

/// A policy.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PolicyShown {
    policy_content: ContentKey,
    version: u64,
}

/// An identity.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AgentShown {
    agent: String,
    /// All 256 bits of the id, in hexadecimal.
    full_id: String,
    /// `active`, `deactivated` or `terminated`.
    state: &'static str,
    version: u64,
    current_version: u64,
    owner: String,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    predecessor: Option<String>,
    home_host: String,
    instances: Vec<InstanceShown>,
    name_content: ContentKey,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name_content: Option<ContentKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mission_content: Option<ContentKey>,
    policy_refs: Vec<PolicyShown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_content: Option<ContentKey>,
}

impl AgentShown {
    /// Whether it can act.
    pub fn is_active(&self) -> bool {
        self.state == status_name(Status::Active)
    }
}

fn status_name(status: Status) -> &'static str {
    match status {
        Status::Active => "active",
        Status::Deactivated => "deactivated",
        Status::Terminated => "terminated",
    }
}

/// An identity at a version.
///
/// # Errors
/// [`Code::NotFound`] if there is no such version.
pub fn shown_agent(
    view: &View<'_>,
    contents: &mut Contents<'_>,
    agent: AgentId,
    number: ObjectNumber,
    version: Option<u64>,
) -> Result<AgentShown, Stop> {
    let cells = Cells::new(view.read, number);
    let current = cells.account(&agent)?.ok_or(Code::NotFound)?.version;
    let identity = cells.identity(version.unwrap_or(current))?.ok_or(Code::NotFound)?;
    let (account, profile) = (identity.account, identity.profile);
    let line = Window::DEFAULT;
    let mut policy_refs = Vec::new();
    for policy in &profile.policies {
        let policy_content = contents.plain(None, "policy", &policy.name, line)?;
        policy_refs.push(PolicyShown { policy_content, version: policy.version });
    }
    Ok(AgentShown {
        agent: agent.to_string(),
        full_id: agent.0.to_string(),
        state: status_name(account.status),
        version: account.version,
        current_version: current,
        owner: account.owner.to_string(),
        created_at: shown(profile.created_at),
        predecessor: profile.predecessor.map(|agent| agent.to_string()),
        home_host: profile.home.to_string(),
        instances: account
            .instances
            .iter()
            .map(|instance| InstanceShown { instance: instance.id().to_string(), host: instance.host.to_string() })
            .collect(),
        name_content: contents.plain(None, "name", &profile.name, line)?,
        display_name_content: contents.optional(None, "display_name", profile.display_name.as_ref(), line)?,
        mission_content: contents.optional(None, "mission", profile.mission.as_ref(), line)?,
        policy_refs,
        reason_content: contents.optional(None, "reason", profile.status_reason.as_ref(), line)?,
    })
}

impl Reads for AgentGet {
    type Result = AgentShown;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let found = match (&self.agent, view.caller) {
            (Some(reference), _) => agent_id(view.read, &reference.0)?,
            (None, Caller::Agent(agent)) => agent_id(view.read, &agent.0.short())?,
            (None, Caller::Owner) => return Err(Refusal::argument("agent", "must be given").into()),
        };
        let (agent, number) = found.ok_or(Code::NotFound)?;
        if let Caller::Agent(reader) = view.caller {
            require(reader == agent, Code::NotFound)?;
        }
        let mut contents = Contents::new(view.read);
        let shown = shown_agent(view, &mut contents, agent, number, self.version)?;
        Ok(view.answer(&shown, contents, Some(number))?)
    }
}

/// Arguments of `agent_list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentList {
    /// Where the page begins.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
}

/// Agents.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Agents {
    agents: Vec<AgentShown>,
}

impl Reads for AgentList {
    type Result = Agents;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let owner = Digest(view.keyring.owner.public().0).short();
        let limit = Limit::of(self.limit);
        let (ids, cursor) = view.page::<AgentId>(List::Agents, &owner, self.cursor.as_deref(), limit)?;
        let mut contents = Contents::new(view.read);
        let mut agents = Vec::new();
        for id in ids {
            let number = index::number(view.read, &kwoon_ledger::action::ObjectId::Identity(id))?;
            agents.push(shown_agent(view, &mut contents, id, number.ok_or(Code::Internal)?, None)?);
        }
        let mut answer = view.answer(&Agents { agents }, contents, None)?;
        answer.cursor = cursor;
        Ok(answer)
    }
}

/// Arguments of `agent_consent`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentConsent {
    /// The agent's `full_id`, as its present owner sees it.
    full_id: String,
    /// The version that the change of owner makes: the present one and one.
    version: u64,
}

/// A consent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ConsentShown {
    /// The new owner's key.
    owner: String,
    /// What the present owner passes on.
    consent: String,
}

impl Reads for AgentConsent {
    type Result = ConsentShown;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let id = PublicKey::read(&self.full_id);
        let id = id.ok_or_else(|| Refusal::argument("full_id", "64 lower-case hex digits"))?;
        let owner = view.keyring.owner.public();
        let consent = Consent { schema: SCHEMA, agent: AgentId(Digest(id.0)), version: self.version, owner };
        let signed = cose::sign(RecordKind::Consent, &cbor::write(&consent), &view.keyring.owner);
        let result = ConsentShown { owner: owner.to_string(), consent: data_encoding::HEXLOWER.encode(&signed) };
        Ok(Answer::new(&result, Contents::new(view.read))?)
    }
}
