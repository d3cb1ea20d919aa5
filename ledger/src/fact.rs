//! Facts, seals, outcomes, statements and epoch changes: what a sequencer records, and the chain they form.

use alloc::string::String;
use alloc::vec::Vec;

use kwoon_keys::id::{AgentId, AssignmentId, InstanceId, RequestId};
use kwoon_keys::{Digest, KeyPair, PublicKey, RecordKind, cbor, cose};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::action::{ObjectId, SCHEMA};
use crate::effect::Effect;
use crate::limits::{LATER_MAX, SIGNATURES_MAX};
use crate::time::Time;

/// The rules that this version seals by. A log says by which it was opened.
pub const RULES: u32 = 1;

/// One record of a log.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Fact {
    /// [`SCHEMA`].
    #[n(0)]
    pub schema: u32,
    /// The log.
    #[n(1)]
    pub object: ObjectId,
    /// The epoch.
    #[n(2)]
    pub epoch: u64,
    /// The place in the log, from 0.
    #[n(3)]
    pub index: u64,
    /// The head hash before this fact; zero for the first.
    #[n(4)]
    pub previous: Digest,
    /// Log time; an expiry's is its due time.
    #[n(5)]
    pub log_time: Time,
    /// Why the fact is there (C1).
    #[n(6)]
    pub cause: Cause,
    /// What the decision took from other logs.
    #[n(7)]
    pub evidence: Vec<Evidence>,
    /// The running digest of all effects up to this fact.
    #[n(8)]
    pub digest: Digest,
    /// Of the first fact only.
    #[n(9)]
    pub opening: Option<Opening>,
}

/// What the first fact of a log says about the log.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Opening {
    /// The rules version.
    #[n(0)]
    pub rules: u32,
    /// The host that appends in epoch 0.
    #[n(1)]
    pub sequencer: PublicKey,
    /// The creator's signed identity records; empty for an identity.
    #[n(2)]
    pub creator: Vec<ByteVec>,
    /// The outcome by which a memory existed before its own log (a memory born of an entry).
    #[n(3)]
    pub origin: Option<Origin>,
    /// Of a publication: what the memory's id is made of beside its author, so that nobody publishes another's.
    #[n(4)]
    pub blind: Option<Digest>,
}

/// Where a memory came from that existed before its own log.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Origin {
    /// The outcome that brought it forth.
    #[n(0)]
    pub outcome: SealedOutcome,
    /// The host that sealed it.
    #[n(1)]
    pub sequencer: PublicKey,
}

/// Why a fact is there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Cause {
    /// An action: its signed bytes.
    #[n(0)]
    Action(#[n(0)] ByteVec),
    /// A deadline that came.
    #[n(1)]
    Expiry(#[n(0)] Due),
    /// Identity records of an agent since the last ones in this log.
    #[n(2)]
    Account(#[n(0)] AgentId, #[n(1)] Vec<ByteVec>),
    /// A change of sequencer.
    #[n(3)]
    Epoch(#[n(0)] EpochChange),
    /// What follows from a fact in a sister log of the same sequencer.
    #[n(4)]
    Consequence(#[n(0)] SealedOutcome),
    /// A memory that an entry brought forth begins its own log, by the origin in the opening. It is a fact of its own, so
    /// that no later fact, and nothing that carries one, shows the thread.
    #[n(5)]
    Begun,
}

/// Which deadline came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Due {
    /// The delivery of an assignment.
    #[n(0)]
    Delivery(#[n(0)] AssignmentId),
    /// The judgment of an assignment's delivery.
    #[n(1)]
    Judgment(#[n(0)] AssignmentId),
}

/// What a decision took from another log.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Evidence {
    /// The publication of another's memory: its fact under a seal, and the author's identity records that list the
    /// sealing host.
    #[n(0)]
    Publication(#[n(0)] SealedOutcome, #[n(1)] Vec<ByteVec>),
}

/// A change of sequencer, and everything it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EpochChange {
    /// The epoch that begins.
    #[n(0)]
    pub next_epoch: u64,
    /// The last index that is kept.
    #[n(1)]
    pub continues_at: u64,
    /// The head hash there.
    #[n(2)]
    pub head: Digest,
    /// The sequencer from now on.
    #[n(3)]
    pub next_host: PublicKey,
    /// Why.
    #[n(4)]
    pub reason: EpochReason,
    /// The rules version from now on.
    #[n(5)]
    pub rules: u32,
    /// Signed [`EpochStatement`]s that the reason needs.
    #[n(6)]
    pub statements: Vec<ByteVec>,
}

/// Why a sequencer changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum EpochReason {
    /// Agreed between the two hosts.
    #[n(0)]
    Handover,
    /// The last agent that may read left the sequencer's host.
    #[n(1)]
    LastReaderGone,
    /// The home was copied or restored.
    #[n(2)]
    Copy,
    /// The host is lost.
    #[n(3)]
    Lost,
    /// The log forked.
    #[n(4)]
    Fork,
    /// The identity's home host changed.
    #[n(5)]
    Move,
}

/// One voice for an epoch change.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EpochStatement {
    /// [`SCHEMA`].
    #[n(0)]
    pub schema: u32,
    /// The log.
    #[n(1)]
    pub object: ObjectId,
    /// The epoch that would begin.
    #[n(2)]
    pub next_epoch: u64,
    /// The sequencer it would have.
    #[n(3)]
    pub next_host: PublicKey,
    /// Why.
    #[n(4)]
    pub reason: EpochReason,
    /// The signer's last index.
    #[n(5)]
    pub index: u64,
    /// The signer's head hash.
    #[n(6)]
    pub head: Digest,
    /// Who signs.
    #[n(7)]
    pub signer: Signer,
}

/// Whose word a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Signer {
    /// A host.
    #[n(0)]
    Host(#[n(0)] PublicKey),
    /// An agent, by one of its instances.
    #[n(1)]
    Agent(#[n(0)] AgentId, #[n(1)] InstanceId),
    /// An owner.
    #[n(2)]
    Owner(#[n(0)] PublicKey),
}

/// A host's word on its head of a log.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Statement {
    /// [`SCHEMA`].
    #[n(0)]
    pub schema: u32,
    /// The log.
    #[n(1)]
    pub object: ObjectId,
    /// The epoch.
    #[n(2)]
    pub epoch: u64,
    /// The last index.
    #[n(3)]
    pub index: u64,
    /// The head hash.
    #[n(4)]
    pub head: Digest,
    /// The log time.
    #[n(5)]
    pub log_time: Time,
    /// The asker's nonce.
    #[n(6)]
    pub nonce: Digest,
    /// The host that signs.
    #[n(7)]
    pub host: PublicKey,
}

/// The sequencer's word that the log up to here is its own. It is stored and sent as an array of signed copies, the
/// sequencer's first.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Seal {
    /// [`SCHEMA`].
    #[n(0)]
    pub schema: u32,
    /// The log.
    #[n(1)]
    pub object: ObjectId,
    /// The epoch.
    #[n(2)]
    pub epoch: u64,
    /// The last index.
    #[n(3)]
    pub index: u64,
    /// The head hash.
    #[n(4)]
    pub head: Digest,
    /// The log time.
    #[n(5)]
    pub log_time: Time,
    /// The sequencer's wall clock.
    #[n(6)]
    pub wall_time: Time,
}

impl Seal {
    /// Signs it: the record as it is stored, with room for further signatures over the same payload.
    pub fn sign(&self, host: &KeyPair) -> Vec<u8> {
        let signed = cose::sign(RecordKind::Seal, &cbor::write(self), host);
        cbor::write(&[ByteVec::from(signed)])
    }

    /// Reads a stored seal without verifying it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(record: &[u8]) -> Result<Self, Rejection> {
        let signatures: Vec<ByteVec> = cbor::read_lenient(record).map_err(|_| Rejection::Seal)?;
        let first = signatures.first().filter(|_| signatures.len() <= SIGNATURES_MAX).ok_or(Rejection::Seal)?;
        Self::decode(cose::payload(RecordKind::Seal, first).map_err(|_| Rejection::Seal)?)
    }

    fn decode(payload: &[u8]) -> Result<Self, Rejection> {
        // EV.3: a later version is told before anything else of it is read.
        if check_schema(payload) == Err(Rejection::UnknownVersion) {
            return Err(Rejection::UnknownVersion);
        }
        cbor::read_lenient(payload).map_err(|_| Rejection::Seal)
    }

    /// Reads a stored seal and verifies the sequencer's signature.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn verify(record: &[u8], sequencer: &PublicKey) -> Result<Self, Rejection> {
        let signatures: Vec<ByteVec> = cbor::read_lenient(record).map_err(|_| Rejection::Seal)?;
        let first = signatures.first().filter(|_| signatures.len() <= SIGNATURES_MAX).ok_or(Rejection::Seal)?;
        Self::decode(cose::verify(RecordKind::Seal, first, sequencer).map_err(|_| Rejection::Seal)?)
    }
}

/// The sealed end of an action, carried to where its log is not: the fact, its effects, and the way to a seal.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SealedOutcome {
    /// The fact's bytes.
    #[n(0)]
    pub fact: ByteVec,
    /// Its effects, encoded.
    #[n(1)]
    pub effects: ByteVec,
    /// The running digest before it.
    #[n(2)]
    pub digest_before: Digest,
    /// The hashes of the facts after it, up to the sealed one.
    #[n(3)]
    pub later: Vec<Digest>,
    /// The seal.
    #[n(4)]
    pub seal: ByteVec,
}

impl SealedOutcome {
    /// Verifies it under the sequencer's key and returns the fact and its effects.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn verify(&self, sequencer: &PublicKey) -> Result<(Fact, Vec<Effect>), Rejection> {
        let fact = Fact::read(&self.fact)?;
        let effects: Vec<Effect> = cbor::read_lenient(&self.effects).map_err(|_| Rejection::Undecodable)?;
        if running_digest(&self.digest_before, fact.index, &self.effects) != fact.digest {
            return Err(Rejection::Digest);
        }
        if self.later.len() > LATER_MAX {
            return Err(Rejection::Seal);
        }
        let mut head = head_hash(&fact.previous, &fact_hash(&self.fact));
        for hash in &self.later {
            head = head_hash(&head, hash);
        }
        let seal = Seal::verify(&self.seal, sequencer)?;
        let index = fact.index.checked_add(self.later.len() as u64);
        if seal.head != head || Some(seal.index) != index || seal.object != fact.object || seal.epoch != fact.epoch {
            return Err(Rejection::Seal);
        }
        Ok((fact, effects))
    }
}

/// What became of an attempt that left no fact. Signed by the sequencer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Outcome {
    /// [`SCHEMA`].
    #[n(0)]
    pub schema: u32,
    /// The request.
    #[n(1)]
    pub request: RequestId,
    /// The attempt.
    #[n(2)]
    pub attempt: Digest,
    /// The log it was decided in.
    #[n(3)]
    pub object: ObjectId,
    /// The epoch.
    #[n(4)]
    pub epoch: u64,
    /// The index of the head it was decided at.
    #[n(5)]
    pub index: u64,
    /// That head.
    #[n(6)]
    pub head: Digest,
    /// Log time.
    #[n(7)]
    pub log_time: Time,
    /// What became of it.
    #[n(8)]
    pub result: OutcomeResult,
}

/// See [`Outcome`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum OutcomeResult {
    /// A success without new effect (L2.4): the index of the fact that made what exists.
    #[n(0)]
    Existing(#[n(0)] u64),
    /// Refused, with the code's name and its structural details in their order.
    #[n(1)]
    Refused(#[n(0)] String, #[n(1)] Vec<RefusalDetail>),
}

/// One structural detail of a refusal. Never participant text.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RefusalDetail {
    /// Its name at the interfaces.
    #[n(0)]
    pub name: String,
    /// What it says.
    #[n(1)]
    pub value: DetailValue,
}

/// See [`RefusalDetail`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum DetailValue {
    /// An id, or a name that the interfaces define.
    #[n(0)]
    Text(#[n(0)] String),
    /// A number.
    #[n(1)]
    Number(#[n(0)] u64),
}

/// An outcome without a fact as it is stored: signed bytes, and the action they answer.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct OutcomeRecord {
    /// The signed [`Outcome`].
    #[n(0)]
    pub outcome: ByteVec,
    /// The signed action.
    #[n(1)]
    pub action: ByteVec,
    /// Of a success without new effect: the request that made what exists.
    #[n(2)]
    pub made_by: Option<RequestId>,
}

impl Fact {
    /// Decodes a fact of a known version.
    ///
    /// # Errors
    /// [`Rejection::UnknownVersion`] for a later version, [`Rejection::UnknownKind`] for a cause or a part that this
    /// version does not know, [`Rejection::Undecodable`] for what is no record at all (EV.3).
    pub fn read(bytes: &[u8]) -> Result<Self, Rejection> {
        check_schema(bytes)?;
        cbor::read_lenient(bytes).map_err(|_| Rejection::UnknownKind)
    }
}

#[derive(Decode)]
#[cbor(map)]
struct SchemaOnly {
    #[n(0)]
    schema: u32,
}

/// Looks at the version alone, so that a later one is told from what is broken (EV.3).
///
/// # Errors
/// See [`Fact::read`].
pub fn check_schema(bytes: &[u8]) -> Result<(), Rejection> {
    let record: SchemaOnly = cbor::read_lenient(bytes).map_err(|_| Rejection::Undecodable)?;
    if record.schema == SCHEMA { Ok(()) } else { Err(Rejection::UnknownVersion) }
}

/// The hash of a fact's bytes.
pub fn fact_hash(bytes: &[u8]) -> Digest {
    Digest::of("kwoon 1 fact", &[bytes])
}

/// The head hash after a fact. Only hashes are needed to follow it, so what lies between two facts need not be shown.
pub fn head_hash(previous: &Digest, fact: &Digest) -> Digest {
    Digest::of("kwoon 1 head", &[previous.as_bytes(), fact.as_bytes()])
}

/// The running digest after a fact with these encoded effects.
pub fn running_digest(before: &Digest, index: u64, effects: &[u8]) -> Digest {
    Digest::of("kwoon 1 effects", &[before.as_bytes(), &index.to_be_bytes(), effects])
}

/// Why a record from elsewhere is not accepted. Nothing of it, or after it in its log, takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// Not deterministic CBOR of a known kind.
    #[error("the record does not decode")]
    Undecodable,
    /// Of a later version: set aside, not guessed at (EV.3).
    #[error("the record is of a version this kwoon does not know")]
    UnknownVersion,
    /// Of a kind this version does not know: set aside.
    #[error("the record is of a kind this kwoon does not know")]
    UnknownKind,
    /// The signature of an action or an identity record does not verify.
    #[error("a signature does not verify")]
    Signature,
    /// The actor or its instance is not known in this log, or was revoked.
    #[error("the actor or its instance is not known in this log")]
    UnknownInstance,
    /// The chain of hashes or indexes is broken.
    #[error("the chain is broken")]
    Chain,
    /// The seal is missing, wrong, or not the sequencer's.
    #[error("the seal is missing or wrong")]
    Seal,
    /// Log time goes back, or lies in the future.
    #[error("log time goes back or ahead")]
    LogTime,
    /// An expiry that is not due, or an action sealed before a due expiry.
    #[error("an expiry is early, unknown or left out")]
    Expiry,
    /// The rules refuse the action.
    #[error("the rules refuse the action")]
    Rule,
    /// The evidence does not show what the decision took from it.
    #[error("the evidence does not show what it must")]
    Evidence,
    /// The identity records do not form a chain.
    #[error("the identity records do not form a chain")]
    Identity,
    /// The running digest is another one than derived here.
    #[error("the effects derived here are others")]
    Digest,
}
