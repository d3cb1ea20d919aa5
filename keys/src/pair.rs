//! Key pairs: Ed25519 for signatures, X25519 for what is encrypted to an instance.

use core::fmt;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use x25519_dalek::StaticSecret;
use zeroize::Zeroizing;

use crate::id::Digest;

/// An Ed25519 public key as it stands in records. Of a host it is also the host's id, shown as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Whether the bytes are a point of the curve and of full order. Keys that are not are never registered.
    pub fn is_sound(&self) -> bool {
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| !key.is_weak())
    }

    /// Strict verification (cofactorless, canonical encodings only).
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        VerifyingKey::from_bytes(&self.0)
            .is_ok_and(|key| key.verify_strict(message, &Signature::from_bytes(signature)).is_ok())
    }

    /// Reads 64 lower-case hex digits.
    pub fn read(text: &str) -> Option<Self> {
        data_encoding::HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok().map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<C> Encode<C> for PublicKey {
    fn encode<W: encode::Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for PublicKey {
    fn decode(d: &mut Decoder<'b>, c: &mut C) -> Result<Self, decode::Error> {
        Digest::decode(d, c).map(|digest| Self(digest.0))
    }
}

/// An Ed25519 key pair. Its memory is wiped when it is dropped and it prints only its public half.
#[derive(Clone)]
pub struct KeyPair(SigningKey);

impl KeyPair {
    /// The pair of a 32-byte seed (RFC 8032, 5.1.5).
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The seed, to be written to a key file.
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyPair({}, ..)", self.public())
    }
}

/// An X25519 private key: what is encrypted to an instance (a grant with the agent's secret) is opened with it.
#[derive(Clone)]
pub struct SealedBoxKey(StaticSecret);

impl SealedBoxKey {
    /// The key of 32 random bytes.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(StaticSecret::from(seed))
    }

    /// The private bytes, to be written to a key file.
    pub fn seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0.to_bytes())
    }

    /// The public half, as it stands in an instance entry.
    pub fn public(&self) -> Digest {
        Digest(x25519_dalek::PublicKey::from(&self.0).to_bytes())
    }
}

impl fmt::Debug for SealedBoxKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealedBoxKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_keys_are_not_sound_and_verify_nothing() {
        let identity = PublicKey({
            let mut bytes = [0; 32];
            bytes[0] = 1;
            bytes
        });
        assert!(!identity.is_sound());
        assert!(!identity.verifies(b"m", &[0; 64]));
        assert!(KeyPair::from_seed(&[7; 32]).public().is_sound());
    }

    #[test]
    fn debug_output_holds_no_seed() {
        let pair = KeyPair::from_seed(&[0xab; 32]);
        assert!(!alloc::format!("{pair:?}").contains("abababab"));
        assert_eq!(alloc::format!("{:?}", SealedBoxKey::from_seed([1; 32])), "SealedBoxKey(..)");
    }
}
