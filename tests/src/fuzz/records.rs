//! Records: everything that is read from CBOR or from a COSE_Sign1.
//!
//! The first byte picks what the rest is read as. What decodes strictly is what this version would write, byte for byte;
//! what decodes leniently keeps its meaning when a later version adds to it (format.md, "Who accepts what").

use std::fmt::Debug;

use kwoon_keys::cbor::{self, CborError};
use kwoon_keys::id::AgentId;
use kwoon_keys::{KeyPair, RecordKind, cose};
use kwoon_ledger::derive::{read_action, read_action_strict};
use kwoon_ledger::fact::{Fact, Rejection, Seal, SealedOutcome, check_schema};
use kwoon_ledger::rules::identity::{account_after, follow_all};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode, Encoder};

/// How a type is encoded, which says how a later version may add to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A map: further keys.
    Record,
    /// An array with the number of a variant: further parts.
    Choice,
    /// Anything else: nothing.
    Plain,
}

/// Reads bytes as one kind of record and checks what must hold.
pub(super) type Check = fn(&[u8]);

macro_rules! checks {
    ($($shape:ident: $($type:ty),+ $(,)?;)+) => {
        &[$($((stringify!($type), |bytes| check::<$type>(bytes, Shape::$shape)),)+)+]
    };
}
pub(super) use checks;

mod kinds {
    pub use kwoon_keys::id::*;
    pub use kwoon_keys::{Commitment, PublicKey, Salt};
    pub use kwoon_ledger::action::*;
    pub use kwoon_ledger::effect::*;
    pub use kwoon_ledger::fact::*;
    pub use kwoon_ledger::identity::*;
    pub use kwoon_ledger::index::{Cursor, Handle, OfferRow, Place, TurnRow};
    pub use kwoon_ledger::state::{self, Head, IdentityVersion, Member, Progress, Response};
    pub use kwoon_ledger::time::Time;
    pub use kwoon_sync::receipt::Envelope;
}

use kinds::*;

/// Every record by its name. New ones come last, so that the corpus keeps its meaning.
#[rustfmt::skip]
const RECORDS: &[(&str, Check)] = checks! {
    Record: Action, Fact, Seal, SealedOutcome, Outcome, OutcomeRecord, Statement, EpochStatement, EpochChange, Opening,
        Origin, RefusalDetail, Position, Text, Version, Pin, Grant, AdmissionUse, EntryPost, Assign, Output, MemoryUpdate,
        ThreadCreate, Instance, PolicyRef, Genesis, IdentityChange, SecretGrant, ProfileChange, OwnerChange, Consent,
        StatusChange, Account, Profile, Obligation, EntryPosted, Commitment, Envelope, Head, IdentityVersion,
        state::Memory, state::Publication, state::Thread, Member, Response, state::Entry, state::Assignment, TurnRow,
        OfferRow, Cursor;
    Choice: ObjectId, Actor, Body, Source, Change, Cause, Due, Evidence, Signer, OutcomeResult, DetailValue, Exit, Effect,
        Progress, Place;
    Plain: MediaType, Role, Status, EpochReason, Duty, Departure, Final, Vec<Effect>, Vec<ByteVec>, Digest, Salt,
        PublicKey, Time, AgentId, MemoryId, ThreadId, RequestId, AssignmentId, AdmissionId, Handle;
};

/// The kinds of signed records.
const SIGNED: [RecordKind; 7] = [
    RecordKind::Action,
    RecordKind::Seal,
    RecordKind::Outcome,
    RecordKind::Statement,
    RecordKind::Epoch,
    RecordKind::Consent,
    RecordKind::Admission,
];

/// How many things the first byte picks from.
pub const KINDS: usize = RECORDS.len() + SIGNED.len() + 1;

/// What the first byte picks for a record of this name, if there is one.
pub fn number_of(name: &str) -> Option<u8> {
    let at = RECORDS.iter().position(|(known, _)| known.rsplit(':').next() == Some(name))?;
    u8::try_from(at).ok()
}

/// What the first byte picks for a signed record of this kind.
pub fn number_of_signed(kind: RecordKind) -> u8 {
    let at = SIGNED.iter().position(|known| *known == kind).expect("a kind");
    u8::try_from(RECORDS.len() + at).expect("few kinds")
}

/// The key with which the signed records of the corpus are signed.
pub fn signer() -> KeyPair {
    KeyPair::from_seed(&[0x77; 32])
}

/// See the module.
pub fn target(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    let kind = usize::from(first) % KINDS;
    if let Some((_, check)) = RECORDS.get(kind) {
        check(bytes);
        check_versions(bytes);
    } else if let Some(signed) = SIGNED.get(kind - RECORDS.len()) {
        check_signed(*signed, bytes);
    } else {
        check_identity(bytes);
    }
}

pub(super) fn check<T>(bytes: &[u8], shape: Shape)
where
    T: Encode<()> + for<'b> Decode<'b, ()> + PartialEq + Debug,
{
    // What this host wrote is read without a check. It may be damaged, and is then an error.
    let _ = cbor::read_own::<T>(bytes);
    match (cbor::read_strict::<T>(bytes), cbor::read_lenient::<T>(bytes)) {
        (Ok(strict), Ok(lenient)) => {
            assert_eq!(strict, lenient, "both ways of reading give the same");
            assert_eq!(cbor::write(&strict), bytes, "what is read strictly is written as it was");
            check_additions(bytes, &strict, shape);
        }
        (Err(CborError::UnknownFields), Ok(lenient)) => {
            let known = cbor::write(&lenient);
            assert_eq!(cbor::read_strict::<T>(&known).as_ref(), Ok(&lenient), "what is known of it is kept");
            assert!(known.len() < bytes.len(), "only what is unknown is left out");
        }
        (Err(strict), Err(lenient)) => assert_eq!(strict, lenient, "what is no record is none in both ways"),
        (strict, lenient) => panic!("read strictly {strict:?}, leniently {lenient:?}"),
    }
}

/// A later version may add a field, or a part: a replica reads what it knows, a sequencer refuses it (CO.1, CO.2).
fn check_additions<T>(bytes: &[u8], value: &T, shape: Shape)
where
    T: Encode<()> + for<'b> Decode<'b, ()> + PartialEq + Debug,
{
    for addition in [&[0x00][..], &[0xf6], &[0x82, 0x01, 0x61, 0x78], &[0xa1, 0x20, 0x40]] {
        let Some(added) = (match shape {
            Shape::Record => with_field(bytes, addition),
            Shape::Choice => with_part(bytes, addition),
            Shape::Plain => None,
        }) else {
            return;
        };
        assert_eq!(cbor::read_lenient::<T>(&added).as_ref(), Ok(value), "a replica passes over what is new");
        assert_eq!(cbor::read_strict::<T>(&added), Err(CborError::UnknownFields), "a sequencer does not");
    }
}

/// A record with one more field, whose key is the largest that a field can have.
fn with_field(bytes: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = minicbor::Decoder::new(bytes);
    let count = decoder.map().ok()??;
    let mut added = Vec::new();
    Encoder::new(&mut added).map(count + 1).ok()?;
    added.extend_from_slice(&bytes[decoder.position()..]);
    Encoder::new(&mut added).i64(i64::MAX).ok()?;
    added.extend_from_slice(value);
    Some(added)
}

/// A choice with two more parts: an optional part that was left out is `null` before what is new.
fn with_part(bytes: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = minicbor::Decoder::new(bytes);
    let count = decoder.array().ok()??;
    let mut added = Vec::new();
    Encoder::new(&mut added).array(count + 2).ok()?;
    added.extend_from_slice(&bytes[decoder.position()..]);
    added.push(0xf6);
    added.extend_from_slice(value);
    Some(added)
}

/// Of a later version nothing is read but that it is one (EV.3).
fn check_versions(bytes: &[u8]) {
    match (check_schema(bytes), Fact::read(bytes)) {
        (Ok(()), Ok(fact)) => assert_eq!(fact.schema, SCHEMA),
        (Ok(()), Err(error)) => assert_eq!(error, Rejection::UnknownKind),
        (Err(schema), fact) => assert_eq!(fact, Err(schema)),
    }
}

fn check_signed(kind: RecordKind, bytes: &[u8]) {
    let pair = signer();
    let payload = cose::payload(kind, bytes);
    match cose::verify(kind, bytes, &pair.public()) {
        Ok(verified) => {
            assert_eq!(payload, Ok(verified));
            assert_eq!(cose::sign(kind, verified, &pair), bytes, "there is one signature, and only its key makes it");
        }
        Err(cose::SignatureError::Malformed) => assert_eq!(payload, Err(cose::SignatureError::Malformed)),
        Err(cose::SignatureError::Invalid) => assert!(payload.is_ok()),
    }
    if payload.is_ok() {
        let others = SIGNED.into_iter().filter(|other| *other != kind);
        others.for_each(|other| assert!(cose::payload(other, bytes).is_err(), "a record is of one kind"));
    }
    match (read_action(bytes), read_action_strict(bytes)) {
        (Ok(lenient), Ok(strict)) => assert_eq!(lenient, strict),
        (Ok(_), Err(error)) => assert_eq!(error, Rejection::UnknownVersion),
        (lenient, strict) => assert_eq!(lenient, strict),
    }
    let stored = cbor::write(&[ByteVec::from(bytes.to_vec())]);
    for record in [bytes, &stored] {
        if let Ok(seal) = Seal::verify(record, &pair.public()) {
            assert_eq!(seal.schema, SCHEMA);
        }
    }
}

/// Carried outcomes, and chains of identity records.
fn check_identity(bytes: &[u8]) {
    let key = signer().public();
    if let Ok(outcome) = cbor::read_lenient::<SealedOutcome>(bytes) {
        let _ = outcome.verify(&key);
    }
    let Ok(records) = cbor::read_lenient::<Vec<ByteVec>>(bytes) else { return };
    if let Ok(standing) = follow_all(None, &records) {
        let account = account_after(None, standing.agent, &records).map(|(account, _)| account);
        assert_eq!(account.as_ref(), Ok(&standing.account), "a log knows the account that the chain says");
        assert!(account_after(None, AgentId(Digest([0; 32])), &records).is_err(), "a chain is of one agent");
    }
}
