//! COSE_Sign1 (RFC 9052) with Ed25519, over the payloads of records.
//!
//! The protected header holds the algorithm (Ed25519, -19, RFC 9864) and the type of the record (label 16,
//! RFC 9596), so that a signature over one kind of record never passes for another. The unprotected header is
//! empty. There is one encoding for given payload and signature; any other is refused, and what was signed is
//! stored and passed on as it is.

use alloc::vec::Vec;

use minicbor::{Decoder, Encoder};

use crate::pair::{KeyPair, PublicKey};

/// What a signature is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An action of an agent's instance, or an identity record of an owner.
    Action,
    /// A sequencer's seal.
    Seal,
    /// A sequencer's outcome that is not a sealed fact.
    Outcome,
    /// A host's statement of its head of a log.
    Statement,
    /// A voice for a change of epoch.
    Epoch,
    /// A new owner's consent to own an agent.
    Consent,
    /// The use of an admission.
    Admission,
}

impl Kind {
    fn media_type(self) -> &'static str {
        match self {
            Self::Action => "application/vnd.kwoon.action+cbor",
            Self::Seal => "application/vnd.kwoon.seal+cbor",
            Self::Outcome => "application/vnd.kwoon.outcome+cbor",
            Self::Statement => "application/vnd.kwoon.statement+cbor",
            Self::Epoch => "application/vnd.kwoon.epoch+cbor",
            Self::Consent => "application/vnd.kwoon.consent+cbor",
            Self::Admission => "application/vnd.kwoon.admission+cbor",
        }
    }
}

/// Why signed bytes are not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Not the one encoding of a COSE_Sign1 of this kind.
    #[error("the bytes are not a signed record of this kind")]
    Malformed,
    /// The signature does not verify under the key.
    #[error("the signature does not verify")]
    Invalid,
}

const ALGORITHM_ED25519: i64 = -19;

fn protected(kind: Kind) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut e = Encoder::new(&mut bytes);
    e.map(2)
        .and_then(|e| e.u8(1))
        .and_then(|e| e.i64(ALGORITHM_ED25519))
        .and_then(|e| e.u8(16))
        .and_then(|e| e.str(kind.media_type()))
        .expect("writing to a vector cannot fail");
    bytes
}

/// The Sig_structure of RFC 9052, 4.4.
fn to_be_signed(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + 80);
    let mut e = Encoder::new(&mut bytes);
    e.array(4)
        .and_then(|e| e.str("Signature1"))
        .and_then(|e| e.bytes(&protected(kind)))
        .and_then(|e| e.bytes(&[]))
        .and_then(|e| e.bytes(payload))
        .expect("writing to a vector cannot fail");
    bytes
}

/// Signs a payload: a tagged COSE_Sign1.
pub fn sign(kind: Kind, payload: &[u8], pair: &KeyPair) -> Vec<u8> {
    assemble(kind, payload, &pair.sign(&to_be_signed(kind, payload)))
}

fn assemble(kind: Kind, payload: &[u8], signature: &[u8; 64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + 128);
    let mut e = Encoder::new(&mut bytes);
    e.tag(minicbor::data::Tag::new(18))
        .and_then(|e| e.array(4))
        .and_then(|e| e.bytes(&protected(kind)))
        .and_then(|e| e.map(0))
        .and_then(|e| e.bytes(payload))
        .and_then(|e| e.bytes(signature))
        .expect("writing to a vector cannot fail");
    bytes
}

/// The payload of signed bytes, not yet verified: the key to verify with usually stands in it.
///
/// # Errors
/// [`SignatureError::Malformed`] for anything but the one encoding.
pub fn payload(kind: Kind, signed: &[u8]) -> Result<&[u8], SignatureError> {
    split(kind, signed).map(|(payload, _)| payload)
}

/// Verifies signed bytes and returns their payload.
///
/// # Errors
/// See [`SignatureError`].
pub fn verify<'b>(kind: Kind, signed: &'b [u8], key: &PublicKey) -> Result<&'b [u8], SignatureError> {
    let (payload, signature) = split(kind, signed)?;
    if key.verifies(&to_be_signed(kind, payload), &signature) { Ok(payload) } else { Err(SignatureError::Invalid) }
}

fn split(kind: Kind, signed: &[u8]) -> Result<(&[u8], [u8; 64]), SignatureError> {
    let malformed = |_| SignatureError::Malformed;
    let mut d = Decoder::new(signed);
    d.tag().map_err(malformed)?;
    d.array().map_err(malformed)?;
    d.bytes().map_err(malformed)?;
    d.map().map_err(malformed)?;
    let payload = d.bytes().map_err(malformed)?;
    let signature: [u8; 64] = d.bytes().map_err(malformed)?.try_into().map_err(|_| SignatureError::Malformed)?;
    if assemble(kind, payload, &signature) == signed {
        Ok((payload, signature))
    } else {
        Err(SignatureError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_payload_verifies_under_its_key_and_kind_only() {
        let pair = KeyPair::from_seed(&[1; 32]);
        let signed = sign(Kind::Action, b"\x01", &pair);
        assert_eq!(verify(Kind::Action, &signed, &pair.public()), Ok(&b"\x01"[..]));
        assert_eq!(verify(Kind::Seal, &signed, &pair.public()), Err(SignatureError::Malformed));
        let other = KeyPair::from_seed(&[2; 32]).public();
        assert_eq!(verify(Kind::Action, &signed, &other), Err(SignatureError::Invalid));
    }

    #[test]
    fn every_changed_byte_is_refused() {
        let pair = KeyPair::from_seed(&[1; 32]);
        let signed = sign(Kind::Action, b"payload", &pair);
        for at in 0..signed.len() {
            let mut changed = signed.clone();
            changed[at] ^= 0x01;
            assert!(verify(Kind::Action, &changed, &pair.public()).is_err(), "byte {at}");
        }
    }
}
