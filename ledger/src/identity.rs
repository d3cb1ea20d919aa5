//! Identity records: what an owner signs about an agent (ID.1 to ID.7).

use alloc::vec::Vec;

use kwoon_keys::id::{AgentId, InstanceId};
use kwoon_keys::{Commitment, Digest, PublicKey};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::time::Time;

/// One agent on one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Instance {
    /// Signs its actions.
    #[n(0)]
    pub signing_key: PublicKey,
    /// X25519 key to which the agent's secret is encrypted.
    #[n(1)]
    pub encryption_key: Digest,
    /// The host it lives on.
    #[n(2)]
    pub host: PublicKey,
}

impl Instance {
    /// The instance's id.
    pub fn id(&self) -> InstanceId {
        InstanceId::of(&[&self.signing_key.0, &self.encryption_key.0, &self.host.0])
    }
}

/// A versioned reference to a policy (ID.1). The name is participant content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PolicyRef {
    /// Commitment to the policy's name.
    #[n(0)]
    pub name: Commitment,
    /// The policy's version.
    #[n(1)]
    pub version: u64,
}

/// The first record of an identity. Its hash is the agent's id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Genesis {
    /// 32 random bytes, so that no id is ever used again (ID.2).
    #[n(0)]
    pub nonce: Digest,
    /// When the agent was made, by its host's clock.
    #[n(1)]
    pub created_at: Time,
    /// The agent that this one follows. It passes on nothing (ID.5).
    #[n(2)]
    pub predecessor: Option<AgentId>,
    /// Commitment to the name on the creating host.
    #[n(3)]
    pub name: Commitment,
    /// Commitment to the display name.
    #[n(4)]
    pub display_name: Option<Commitment>,
    /// Commitment to the mission.
    #[n(5)]
    pub mission: Option<Commitment>,
    /// Policies.
    #[n(6)]
    pub policies: Vec<PolicyRef>,
    /// The first instance. Its host is the home host, which sequences the identity.
    #[n(7)]
    pub instance: Instance,
}

/// The account state of an agent (ID.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Status {
    /// Can act.
    #[n(0)]
    Active,
    /// Cannot act until reactivated.
    #[n(1)]
    Deactivated,
    /// Can never act again.
    #[n(2)]
    Terminated,
}

/// A later record of an identity.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct IdentityChange {
    /// The version this record makes, from 2.
    #[n(0)]
    pub version: u64,
    /// Hash of the record before it.
    #[n(1)]
    pub previous: Digest,
    /// What changes.
    #[n(2)]
    pub change: Change,
}

/// What a later identity record changes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Change {
    /// Names, mission, policies or owner (ID.4).
    #[n(0)]
    Profile(#[n(0)] ProfileChange),
    /// The account state.
    #[n(1)]
    Status(#[n(0)] StatusChange),
    /// A further instance, with the agent's secret encrypted to it.
    #[n(2)]
    InstanceAdded(#[n(0)] Instance, #[n(1)] ByteVec),
    /// An instance that can act no more (ID.6), and the next generation of the agent's secret for those that remain.
    #[n(3)]
    InstanceRevoked(#[n(0)] InstanceId, #[n(1)] Vec<SecretGrant>),
    /// The host that sequences the identity from now on.
    #[n(4)]
    HomeHost(#[n(0)] PublicKey),
}

/// A generation of the agent's secret for one instance.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SecretGrant {
    /// Whose it is.
    #[n(0)]
    pub instance: InstanceId,
    /// The secret, encrypted to the instance's encryption key.
    #[n(1)]
    pub sealed: ByteVec,
}

/// Fields that are absent stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ProfileChange {
    /// The new display name.
    #[n(0)]
    pub display_name: Option<Commitment>,
    /// The new mission.
    #[n(1)]
    pub mission: Option<Commitment>,
    /// The new policies, all of them.
    #[n(2)]
    pub policies: Option<Vec<PolicyRef>>,
    /// The new owner, who consents.
    #[n(3)]
    pub owner: Option<OwnerChange>,
}

/// A change of owner, signed by the old one as the record and by the new one inside it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OwnerChange {
    /// The new owner's key.
    #[n(0)]
    pub owner: PublicKey,
    /// [`Consent`], signed with that key.
    #[n(1)]
    pub consent: ByteVec,
}

/// What a new owner signs.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Consent {
    /// [`SCHEMA`].
    #[n(0)]
    pub schema: u32,
    /// The agent.
    #[n(1)]
    pub agent: AgentId,
    /// The version that the change makes.
    #[n(2)]
    pub version: u64,
    /// The new owner.
    #[n(3)]
    pub owner: PublicKey,
}

/// See [`Change::Status`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct StatusChange {
    /// The new state.
    #[n(0)]
    pub status: Status,
    /// Commitment to the owner's reason.
    #[n(1)]
    pub reason: Option<Commitment>,
}
