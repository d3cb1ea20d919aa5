//! What hosts say to each other. One message is one frame; both sides may speak at any time.
//!
//! Messages are deterministic CBOR, as records are. Nothing in them is believed: facts are decided again, seals and
//! signatures verified, contents opened against commitments that are known already.

use kwoon_keys::id::RequestId;
use kwoon_keys::{Commitment, Digest, PublicKey, Salt, cbor};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::fact::SealedOutcome;
use kwoon_ledger::outbox::Carried;
use kwoon_ledger::time::Time;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::ticket::HostHint;

/// The versions of the conversation that this host speaks.
pub const VERSIONS: Versions = Versions { least: 1, most: 1 };
/// Bytes of one message at most.
pub const MESSAGE_BYTES_MAX: usize = 80 << 20;
/// Items in one message at most.
pub const ITEMS_MAX: usize = 4096;
/// Facts in one message at most.
pub const FACTS_MAX: usize = 8192;

/// A range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Versions {
    /// The oldest.
    #[n(0)]
    pub least: u32,
    /// The newest.
    #[n(1)]
    pub most: u32,
}

impl Versions {
    /// The newest version that both know.
    pub fn common(self, other: Self) -> Option<u32> {
        let most = self.most.min(other.most);
        (most >= self.least.max(other.least)).then_some(most)
    }
}

/// How far a host has taken in another's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Seen {
    /// Which counting it is: another wherever a store is a copy.
    #[n(0)]
    pub counting: Digest,
    /// Changes before this one are taken in.
    #[n(1)]
    pub changes: u64,
}

/// The first message of each side.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Hello {
    /// Versions of the conversation.
    #[n(0)]
    pub versions: Versions,
    /// How the changes of this host are counted.
    #[n(1)]
    pub counting: Digest,
    /// How many there are.
    #[n(2)]
    pub changes: u64,
    /// How far it has taken in the other's.
    #[n(3)]
    pub seen: Option<Seen>,
    /// Whether its owner added the other.
    #[n(4)]
    pub added: bool,
    /// Its clock.
    #[n(5)]
    pub time: Time,
}

/// Where a log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Item {
    /// The object.
    #[n(0)]
    pub object: ObjectId,
    /// The epoch of its last fact.
    #[n(1)]
    pub epoch: u64,
    /// Its last index.
    #[n(2)]
    pub index: u64,
    /// The head hash.
    #[n(3)]
    pub head: Digest,
}

impl Item {
    /// What stands for it in digests and ranges.
    pub fn id(&self) -> Digest {
        Digest::of("kwoon 1 item", &[&cbor::write(self)])
    }
}

/// Where logs stand that the other may read.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Heads {
    /// The logs.
    #[n(0)]
    pub items: Vec<Item>,
    /// With these, the other knows of all changes before this one; nothing while more is to come.
    #[n(1)]
    pub changes: Option<u64>,
    /// The digest of all that both may read, as of then.
    #[n(2)]
    pub digest: Option<Digest>,
    /// Whether ranges are to be compared, as this host does not know what the other has.
    #[n(3)]
    pub ranges: bool,
}

/// Facts that are asked for: those of a log from an index on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Wish {
    /// The log.
    #[n(0)]
    pub object: ObjectId,
    /// The first index.
    #[n(1)]
    pub from: u64,
}

/// What a commitment was made to.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Content {
    /// The salt.
    #[n(0)]
    pub salt: Salt,
    /// The bytes.
    #[n(1)]
    pub bytes: ByteVec,
}

impl Content {
    /// The commitment that it opens.
    pub fn commitment(&self) -> Commitment {
        Commitment::to(&self.salt, &self.bytes)
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Content({} bytes)", self.bytes.len())
    }
}

/// Facts of one log, in order, up to a seal.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Facts {
    /// The log.
    #[n(0)]
    pub object: ObjectId,
    /// The index of the first.
    #[n(1)]
    pub from: u64,
    /// The facts.
    #[n(2)]
    pub facts: Vec<ByteVec>,
    /// Seals of the last, and of others where an epoch ends.
    #[n(3)]
    pub seals: Vec<ByteVec>,
    /// Contents that the receiver's agents may read.
    #[n(4)]
    pub contents: Vec<Content>,
    /// Changes of the sender before this one are told with it.
    #[n(5)]
    pub changes: Option<u64>,
}

/// An action on its way, with the contents that it commits to.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Consignment {
    /// The action.
    #[n(0)]
    pub carried: Carried,
    /// Contents.
    #[n(1)]
    pub contents: Vec<Content>,
}

/// What became of an action that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Verdict {
    /// It was sealed: told to an actor's host that may not read the log any more.
    #[n(0)]
    Sealed(#[n(0)] Box<SealedOutcome>, #[n(1)] PublicKey, #[n(2)] Vec<SealedOutcome>),
    /// It ended without a fact, by this signed outcome. To whom may not read the log any more, the facts by which its
    /// sequencers followed each other go along.
    #[n(1)]
    Ended(#[n(0)] ByteVec, #[n(1)] Vec<SealedOutcome>),
    /// It was not taken in: it stays pending. The attempt, and in how many milliseconds to send it again.
    #[n(2)]
    NotTaken(#[n(0)] Digest, #[n(1)] u64),
    /// It is kept here until its sequencer can be reached.
    #[n(3)]
    PassedOn(#[n(0)] Digest),
    /// A join: another host orders the thread by now. The attempt, and that host.
    #[n(4)]
    Elsewhere(#[n(0)] Digest, #[n(1)] ObjectId, #[n(2)] RequestId, #[n(3)] HostHint),
}

/// The end of a right: the fact that ended it, and hashes of those between what the receiver has and that fact.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Ending {
    /// The log.
    #[n(0)]
    pub object: ObjectId,
    /// The index of the first hash, or of the fact if there is none.
    #[n(1)]
    pub from: u64,
    /// Hashes of facts.
    #[n(2)]
    pub between: Vec<Digest>,
    /// The fact, its effects, and the way to a seal.
    #[n(3)]
    pub outcome: SealedOutcome,
    /// The facts by which the log's sequencers followed each other before it.
    #[n(4)]
    pub moves: Vec<SealedOutcome>,
}

/// Contents of one fact.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Contents {
    /// The log.
    #[n(0)]
    pub object: ObjectId,
    /// The fact.
    #[n(1)]
    pub index: u64,
    /// What the receiver's agents may read of it, as far as it is here.
    #[n(2)]
    pub contents: Vec<Content>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
#[allow(clippy::large_enum_variant)]
pub enum Message {
    /// The first of each side.
    #[n(0)]
    Hello(#[n(0)] Hello),
    /// Where logs stand.
    #[n(1)]
    Heads(#[n(0)] Heads),
    /// Asks for facts.
    #[n(2)]
    Want(#[n(0)] Vec<Wish>),
    /// Facts.
    #[n(3)]
    Facts(#[n(0)] Facts),
    /// Actions on their way.
    #[n(4)]
    Actions(#[n(0)] Vec<Consignment>),
    /// What became of actions.
    #[n(5)]
    Verdicts(#[n(0)] Vec<Verdict>),
    /// Asks for contents of facts.
    #[n(6)]
    WantContents(#[n(0)] Vec<Wish>),
    /// Contents.
    #[n(7)]
    Contents(#[n(0)] Contents),
    /// Asks the sequencer for its word on how far a log's time is.
    #[n(8)]
    AskSeal(#[n(0)] ObjectId),
    /// Compares ranges of items; the bytes are a message of negentropy, version 1.
    #[n(9)]
    Ranges(#[n(0)] ByteVec),
    /// Ends the comparison: asks where the logs of these items stand.
    #[n(10)]
    Items(#[n(0)] Vec<Digest>),
    /// The end of a right.
    #[n(11)]
    Ending(#[n(0)] Ending),
    /// Asks for a host's voice for taking over a log: a signed epoch statement of the sequencer.
    #[n(12)]
    AskVoice(#[n(0)] ByteVec),
    /// A host's voice for taking over a log.
    #[n(13)]
    Voice(#[n(0)] ByteVec),
}

impl Message {
    /// The message as a frame.
    pub fn write(&self) -> Vec<u8> {
        cbor::write(self)
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// If it is no message of a version that this host speaks, or has more in it than a message may.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(Malformed);
        }
        let message: Self = cbor::read_lenient(bytes).map_err(|_| Malformed)?;
        let within = match &message {
            Self::Heads(heads) => heads.items.len() <= ITEMS_MAX,
            Self::Want(wishes) | Self::WantContents(wishes) => wishes.len() <= ITEMS_MAX,
            Self::Facts(facts) => {
                facts.facts.len() <= FACTS_MAX
                    && facts.seals.len() <= FACTS_MAX
                    && facts.contents.len() <= FACTS_MAX * 4
            }
            Self::Actions(actions) => actions.len() <= ITEMS_MAX,
            Self::Verdicts(verdicts) => verdicts.len() <= ITEMS_MAX,
            Self::Items(items) => items.len() <= ITEMS_MAX,
            Self::Contents(contents) => contents.contents.len() <= ITEMS_MAX,
            Self::Hello(_)
            | Self::AskSeal(_)
            | Self::Ranges(_)
            | Self::Ending(_)
            | Self::AskVoice(_)
            | Self::Voice(_) => true,
        };
        if within { Ok(message) } else { Err(Malformed) }
    }
}

/// A frame is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other host sent what is no message of this version")]
pub struct Malformed;
