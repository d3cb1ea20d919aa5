//! Identifiers: 256-bit BLAKE3 hashes inside records, a prefix and 26 characters outside.
//!
//! The outside form holds the first 128 bits in lower-case base32 without padding (RFC 4648). It is a name for
//! looking things up; records always hold all 256 bits.

use alloc::string::String;
use core::fmt;

use data_encoding::Encoding;
use data_encoding_macro::new_encoding;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

/// A 256-bit hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Hashes `parts`, each preceded by its length as eight little-endian bytes, in BLAKE3's key derivation mode.
    ///
    /// `context` separates the uses: the same parts under two contexts give unrelated digests.
    pub fn of(context: &str, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The same with a secret key: the parts are hashed under a key that is derived from `key` and `context`.
    pub fn keyed(context: &str, key: &[u8; 32], parts: &[&[u8]]) -> Self {
        let mut derive = blake3::Hasher::new_derive_key(context);
        derive.update(key);
        let mut hasher = blake3::Hasher::new_keyed(derive.finalize().as_bytes());
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 128 bits, which the outside form shows.
    pub fn short(&self) -> [u8; 16] {
        let mut short = [0; 16];
        short.copy_from_slice(&self.0[..16]);
        short
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<C> Encode<C> for Digest {
    fn encode<W: encode::Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Digest {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let position = d.position();
        let bytes = d.bytes()?;
        let bytes = bytes.try_into().map_err(|_| decode::Error::message("not 32 bytes").at(position))?;
        Ok(Self(bytes))
    }
}

/// The alphabet of the outside form: RFC 4648 base32 in lower case, no padding, spare bits zero.
pub const BASE32: Encoding = new_encoding! { symbols: "abcdefghijklmnopqrstuvwxyz234567", };

/// Writes the outside form of an id.
fn shown(prefix: &str, digest: &Digest) -> String {
    let mut text = String::with_capacity(prefix.len() + 27);
    text.push_str(prefix);
    text.push('_');
    text.push_str(&BASE32.encode(&digest.0[..16]));
    text
}

/// Reads the 128 bits of an outside form with the given prefix. Any other spelling of the same bits is refused.
fn read(prefix: &str, text: &str) -> Option<[u8; 16]> {
    let rest = text.strip_prefix(prefix)?.strip_prefix('_')?;
    if rest.len() != 26 {
        return None;
    }
    BASE32.decode(rest.as_bytes()).ok()?.try_into().ok()
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal, $context:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        #[cbor(transparent)]
        pub struct $name(#[n(0)] pub Digest);

        impl $name {
            /// The prefix of the outside form.
            pub const PREFIX: &'static str = $prefix;

            /// Hashes `parts` in the context of this kind of id.
            pub fn of(parts: &[&[u8]]) -> Self {
                Self(Digest::of($context, parts))
            }

            /// The 128 bits of an outside form of this kind, or nothing if `text` is not one.
            pub fn read(text: &str) -> Option<[u8; 16]> {
                read($prefix, text)
            }

            /// All 256 bits.
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&shown($prefix, &self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

ids! {
    /// An agent: the hash of the payload of its first identity record. Also the object id of its identity log.
    AgentId, "agt", "kwoon 1 agent id";
    /// One agent on one host: the hash of its instance entry.
    InstanceId, "ins", "kwoon 1 instance id";
    /// A memory.
    MemoryId, "mem", "kwoon 1 memory id";
    /// The public side of a memory.
    PublicationId, "pub", "kwoon 1 publication id";
    /// A thread.
    ThreadId, "thr", "kwoon 1 thread id";
    /// A task.
    TaskId, "tsk", "kwoon 1 task id";
    /// An engagement of a task.
    EngagementId, "eng", "kwoon 1 engagement id";
    /// An assignment in a thread.
    AssignmentId, "asg", "kwoon 1 assignment id";
    /// A request, whatever attempts it takes: the hash of agent and request token.
    RequestId, "act", "kwoon 1 request id";
    /// An obligation.
    ObligationId, "obl", "kwoon 1 obligation id";
    /// A receipt.
    ReceiptId, "rcp", "kwoon 1 receipt id";
    /// An admission to a thread: the hash of its public key.
    AdmissionId, "adm", "kwoon 1 admission id";
    /// A record in quarantine: the hash of its bytes.
    QuarantineId, "qua", "kwoon 1 quarantine id";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outside_form_reads_back() {
        let id = ThreadId::of(&[b"x"]);
        let text = alloc::format!("{id}");
        assert_eq!(text.len(), 30);
        assert_eq!(ThreadId::read(&text), Some(id.0.short()));
    }

    #[test]
    fn other_spellings_and_kinds_are_refused() {
        let text = alloc::format!("{}", ThreadId::of(&[b"x"]));
        assert_eq!(MemoryId::read(&text), None);
        assert_eq!(ThreadId::read(&text.to_uppercase()), None);
        assert_eq!(ThreadId::read(&text[..29]), None);
        // The last character carries three bits; with a spare bit set it names nothing.
        let spare = alloc::format!("{}b", &text[..29]);
        assert_eq!(ThreadId::read(&spare), None);
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(Digest::of("c", &[b"ab", b"c"]), Digest::of("c", &[b"a", b"bc"]));
        assert_ne!(Digest::of("c", &[b"a"]), Digest::of("d", &[b"a"]));
    }
}
