//! The secret from which request tokens, salts and admission keys are derived.

use alloc::vec::Vec;
use core::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::commitment::Salt;
use crate::id::{AgentId, Digest, RequestId};
use crate::pair::{KeyPair, SealedBoxKey};

/// 32 bytes that the instances of one agent share, or that an owner derives from the owner's key.
///
/// Nobody else can link a request token to the idempotency key it was made of, or guess content from its
/// commitment.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct RequestSecret([u8; 32]);

impl RequestSecret {
    /// The secret of 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, to be written to a key file.
    pub fn bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0)
    }

    /// The secret of an owner, derived from the owner's key.
    pub fn of_owner(owner: &KeyPair) -> Self {
        Self(Digest::keyed("kwoon 1 owner secret", &owner.seed(), &[]).0)
    }

    /// The token of a request: a keyed hash of operation and idempotency key.
    pub fn token(&self, operation: &str, idempotency_key: &str) -> Digest {
        Digest::keyed("kwoon 1 request token", &self.0, &[operation.as_bytes(), idempotency_key.as_bytes()])
    }

    /// The digest of a request's arguments as given, which a repeat must match (L3.2).
    pub fn request_digest(&self, arguments: &[u8]) -> Digest {
        Digest::keyed("kwoon 1 request digest", &self.0, &[arguments])
    }

    /// The salt of the content in `field` of a request that acts at `place` (an object, or the creating host).
    pub fn salt(&self, request: &RequestId, place: &[u8; 32], field: &str) -> Salt {
        Salt::new(Digest::keyed("kwoon 1 salt", &self.0, &[request.as_bytes(), place, field.as_bytes()]).0)
    }

    /// The key pair of an admission that a request issues at `place`.
    pub fn admission(&self, request: &RequestId, place: &[u8; 32]) -> KeyPair {
        KeyPair::from_seed(&Digest::keyed("kwoon 1 admission key", &self.0, &[request.as_bytes(), place]).0)
    }
}

impl fmt::Debug for RequestSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestSecret(..)")
    }
}

/// The id of a request: the hash of who asks and the token.
pub fn request_id(actor: &[u8; 32], token: &Digest) -> RequestId {
    RequestId::of(&[actor, token.as_bytes()])
}

/// What one agent needs on one host: its instance's keys and its secrets, by generation.
#[derive(Clone, Debug)]
pub struct InstanceKeys {
    /// Whose keys they are.
    pub agent: AgentId,
    /// Signs the instance's actions.
    pub signing: KeyPair,
    /// Opens what is encrypted to the instance.
    pub opening: SealedBoxKey,
    /// The agent's secrets; the last is the present generation. Never empty.
    pub secrets: Vec<RequestSecret>,
}

impl InstanceKeys {
    /// The present secret and its generation.
    pub fn secret(&self) -> (u32, &RequestSecret) {
        let last = self.secrets.len() - 1;
        (u32::try_from(last).expect("generations are counted in few bits"), &self.secrets[last])
    }
}
