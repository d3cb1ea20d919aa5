//! Commitments: what structure holds in place of content.

use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use zeroize::Zeroize;

use crate::id::Digest;

/// 32 bytes that make a commitment say nothing about short or guessable content.
#[derive(Clone, Copy, PartialEq, Eq, Zeroize)]
pub struct Salt([u8; 32]);

impl<C> Encode<C> for Salt {
    fn encode<W: encode::Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Salt {
    fn decode(d: &mut Decoder<'b>, c: &mut C) -> Result<Self, decode::Error> {
        Digest::decode(d, c).map(|digest| Self(digest.0))
    }
}

impl Salt {
    /// A salt of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl core::fmt::Debug for Salt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Salt(..)")
    }
}

/// A salted BLAKE3 commitment to some bytes, and how many they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[cbor(map)]
pub struct Commitment {
    /// Hash of salt and bytes.
    #[n(0)]
    pub hash: Digest,
    /// Number of bytes.
    #[n(1)]
    pub length_bytes: u64,
}

impl Commitment {
    /// Commits to `bytes`.
    pub fn to(salt: &Salt, bytes: &[u8]) -> Self {
        Self { hash: Digest::of("kwoon 1 content", &[salt.as_bytes(), bytes]), length_bytes: bytes.len() as u64 }
    }

    /// Whether salt and bytes are what was committed to.
    pub fn opens(&self, salt: &Salt, bytes: &[u8]) -> bool {
        Self::to(salt, bytes) == *self
    }
}
