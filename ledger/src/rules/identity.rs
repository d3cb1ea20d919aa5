//! Identities: chains of records signed by the owner (ID.1 to ID.7, A1 to A3).

use kwoon_keys::id::AgentId;
use kwoon_keys::{Commitment, Digest, RecordKind, cbor, cose};
use minicbor::bytes::ByteVec;

use crate::action::{Action, Actor, Body, ObjectId, SCHEMA};
use crate::draft::Draft;
use crate::effect::{Account, Effect, Profile};
use crate::fact::Rejection;
use crate::identity::{Change, Consent, Genesis, IdentityChange, OwnerChange, PolicyRef, ProfileChange, Status};
use crate::limits::{IDENTITY_VERSIONS_RESERVED, Limits};
use crate::refusal::{Code, Refusal, Stop, require};

/// Instances that an agent can have at a time.
pub const INSTANCES_MAX: usize = 64;

/// The hash of an identity record, which the next one names. Of the first it is the agent's id.
pub fn record_hash(payload: &[u8]) -> Digest {
    AgentId::of(&[payload]).0
}

/// Verifies an identity record and returns its action, the hash of its payload and who signed.
///
/// # Errors
/// If it is no signed identity record of a known version.
pub fn read_record(signed: &[u8]) -> Result<(Action, Digest), Rejection> {
    let action = crate::derive::read_action(signed)?;
    let payload = cose::payload(RecordKind::Action, signed).map_err(|_| Rejection::Undecodable)?;
    let Actor::Owner(owner) = action.actor else { return Err(Rejection::Identity) };
    if !owner.is_sound() || cose::verify(RecordKind::Action, signed, &owner).is_err() {
        return Err(Rejection::Signature);
    }
    Ok((action, record_hash(payload)))
}

/// The version that an identity record makes; nothing if the action is none.
pub fn version_of(record: &Action) -> Option<u64> {
    match &record.body {
        Body::AgentCreate(_) => Some(1),
        Body::AgentChange(change) => Some(change.version),
        _ => None,
    }
}

/// Where a chain of identity records stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whose chain it is.
    pub agent: AgentId,
    /// What it says about who may act.
    pub account: Account,
}

/// Follows a chain by one more record.
///
/// # Errors
/// If the record does not continue the chain, or its owner is another one.
pub fn follow(before: Option<&Standing>, signed: &[u8]) -> Result<Standing, Rejection> {
    let (action, hash) = read_record(signed)?;
    let Actor::Owner(owner) = action.actor else { return Err(Rejection::Identity) };
    match (before, &action.body) {
        (None, Body::AgentCreate(genesis)) => {
            let account = first_account(genesis, owner, hash).map_err(|_| Rejection::Identity)?;
            Ok(Standing { agent: AgentId(hash), account })
        }
        (Some(before), Body::AgentChange(change)) => {
            if owner != before.account.owner || action.object != Some(ObjectId::Identity(before.agent)) {
                return Err(Rejection::Identity);
            }
            let account = next_account(before, change, hash).map_err(|_| Rejection::Identity)?;
            Ok(Standing { agent: before.agent, account })
        }
        _ => Err(Rejection::Identity),
    }
}

/// Follows a chain by several records.
///
/// # Errors
/// See [`follow`]; also if there are none at all.
pub fn follow_all(before: Option<Standing>, records: &[ByteVec]) -> Result<Standing, Rejection> {
    let mut standing = before;
    for record in records {
        standing = Some(follow(standing.as_ref(), record)?);
    }
    standing.ok_or(Rejection::Identity)
}

/// What the account is after a first record, or why the record is refused: the same in the identity's own log and
/// wherever else the record is embedded, so that no log follows a chain that another one does not.
fn first_account(genesis: &Genesis, owner: kwoon_keys::PublicKey, record: Digest) -> Result<Account, Refusal> {
    check_lines(&[("name", Some(&genesis.name))])?;
    check_profile(genesis.display_name.as_ref(), genesis.mission.as_ref(), &genesis.policies)?;
    if !genesis.instance.signing_key.is_sound() {
        return Err(Code::BadReference.into());
    }
    Ok(Account { version: 1, record, owner, status: Status::Active, instances: alloc::vec![genesis.instance] })
}

/// ID.7: whether a change that makes this version can follow; a terminated identity takes none.
///
/// # Errors
/// [`Code::VersionConflict`], [`Code::AlreadyFinal`].
pub fn may_change(account: &Account, version: u64) -> Result<(), Refusal> {
    if account.version.checked_add(1) != Some(version) {
        return Err(Code::VersionConflict.into());
    }
    if account.status == Status::Terminated {
        return Err(Code::AlreadyFinal.into());
    }
    Ok(())
}

/// What the account is after a change, or why the change is refused; see [`first_account`].
fn next_account(before: &Standing, change: &IdentityChange, record: Digest) -> Result<Account, Refusal> {
    let old = &before.account;
    may_change(old, change.version)?;
    if change.previous != old.record {
        return Err(Code::VersionConflict.into());
    }
    let ends = matches!(&change.change, Change::Status(_) | Change::InstanceRevoked(..));
    let room = Limits::MAXIMA.identity_versions_max - if ends { 0 } else { IDENTITY_VERSIONS_RESERVED };
    if change.version > room {
        return Err(Code::CapacityReached.into());
    }
    let mut account = Account { version: change.version, record, ..old.clone() };
    match &change.change {
        Change::Profile(profile) => {
            let ProfileChange { display_name, mission, policies, owner } = profile;
            if display_name.is_none() && mission.is_none() && policies.is_none() && owner.is_none() {
                return Err(Code::NoChange.into());
            }
            check_profile(display_name.as_ref(), mission.as_ref(), policies.as_deref().unwrap_or_default())?;
            if let Some(OwnerChange { owner, consent }) = &profile.owner {
                let expected = Consent { schema: SCHEMA, agent: before.agent, version: change.version, owner: *owner };
                let payload = cose::verify(RecordKind::Consent, consent, owner);
                if !owner.is_sound() || payload != Ok(cbor::write(&expected).as_slice()) {
                    return Err(Code::OwnerRequired.into());
                }
                account.owner = *owner;
            }
        }
        Change::Status(status) => {
            if status.status == old.status {
                return Err(Code::NoChange.into());
            }
            let maximum = Limits::MAXIMA.criteria_bytes_max;
            if status.reason.is_some_and(|reason| reason.length_bytes > maximum) {
                return Err(Refusal::too_large("reason", maximum));
            }
            account.status = status.status;
        }
        Change::InstanceAdded(instance, _) => {
            let known = old.instances.iter().any(|other| other.id() == instance.id());
            if known || old.instances.len() >= INSTANCES_MAX || !instance.signing_key.is_sound() {
                return Err(Code::CapacityReached.into());
            }
            account.instances.push(*instance);
        }
        Change::InstanceRevoked(id, _) => {
            if old.instance(*id).is_none() {
                return Err(Code::NotFound.into());
            }
            account.instances.retain(|instance| instance.id() != *id);
        }
        // Goes together with a change of the log's epoch, which no rules version has yet.
        Change::HomeHost(_) => return Err(Code::UnsupportedVersion.into()),
    }
    Ok(account)
}

/// Decides an identity record in the identity's own log.
///
/// # Errors
/// By ID.1 to ID.7.
pub fn decide(draft: &mut Draft<'_>, action: &Action, signed: &[u8]) -> Result<(), Stop> {
    let payload = cose::payload(RecordKind::Action, signed).map_err(|_| Code::Internal)?;
    let hash = record_hash(payload);
    let Actor::Owner(owner) = action.actor else { return Err(Code::OwnerRequired.into()) };
    match &action.body {
        Body::AgentCreate(genesis) => {
            require(draft.index == 0, Code::BadReference)?;
            let account = first_account(genesis, owner, hash)?;
            let profile = Profile {
                name: genesis.name,
                display_name: genesis.display_name,
                mission: genesis.mission,
                policies: genesis.policies.clone(),
                predecessor: genesis.predecessor,
                created_at: genesis.created_at,
                home: genesis.instance.host,
                status_reason: None,
            };
            draft.emit(Effect::IdentitySet(AgentId(hash), account, profile))?;
        }
        Body::AgentChange(change) => {
            let Some(ObjectId::Identity(agent)) = action.object else { return Err(Code::BadReference.into()) };
            let account = draft.cells().account(&agent)?.ok_or(Code::NotFound)?;
            // ID.1, ID.4: another owner's signature is worth nothing here.
            require(account.owner == owner, Code::OwnerRequired)?;
            let old = draft.cells().identity(account.version)?.ok_or(Code::NotFound)?;
            let standing = Standing { agent, account };
            let account = next_account(&standing, change, hash)?;
            let profile = next_profile(&old.profile, &change.change);
            draft.emit(Effect::IdentitySet(agent, account, profile))?;
        }
        _ => return Err(Code::BadReference.into()),
    }
    Ok(())
}

fn check_profile(
    display_name: Option<&Commitment>,
    mission: Option<&Commitment>,
    policies: &[PolicyRef],
) -> Result<(), Refusal> {
    let maximum = Limits::MAXIMA.tags_max;
    if policies.len() as u64 > maximum {
        return Err(Refusal::too_large("policy_refs", maximum));
    }
    check_lines(&[("display_name", display_name), ("mission", mission)])?;
    policies.iter().try_for_each(|policy| check_lines(&[("policy_refs", Some(&policy.name))]))
}

fn check_lines(lines: &[(&'static str, Option<&Commitment>)]) -> Result<(), Refusal> {
    let maximum = Limits::MAXIMA.line_bytes_max;
    let too_long = lines.iter().find(|(_, line)| line.is_some_and(|line| line.length_bytes > maximum));
    too_long.map_or(Ok(()), |(field, _)| Err(Refusal::too_large(field, maximum)))
}

fn next_profile(old: &Profile, change: &Change) -> Profile {
    let mut profile = old.clone();
    match change {
        Change::Profile(ProfileChange { display_name, mission, policies, .. }) => {
            profile.display_name = display_name.or(profile.display_name);
            profile.mission = mission.or(profile.mission);
            if let Some(policies) = policies {
                profile.policies.clone_from(policies);
            }
        }
        Change::Status(status) => profile.status_reason = status.reason,
        Change::HomeHost(host) => profile.home = *host,
        Change::InstanceAdded(..) | Change::InstanceRevoked(..) => {}
    }
    profile
}

/// Brings an account in a log up to date by the records that follow on what the log knows. Also says whether any of
/// them took the agent's active state, whatever came after.
///
/// # Errors
/// [`Rejection::Identity`] if they do not follow on it.
pub fn account_after(
    known: Option<Account>,
    agent: AgentId,
    records: &[ByteVec],
) -> Result<(Account, bool), Rejection> {
    let mut standing = known.map(|account| Standing { agent, account });
    let (mut advanced, mut was_inactive) = (false, false);
    for record in records {
        let next = follow(standing.as_ref(), record)?;
        was_inactive |= next.account.status != Status::Active;
        advanced = true;
        standing = Some(next);
    }
    match standing {
        Some(standing) if advanced && standing.agent == agent => Ok((standing.account, was_inactive)),
        _ => Err(Rejection::Identity),
    }
}
