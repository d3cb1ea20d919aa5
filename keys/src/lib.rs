//! Ids, deterministic CBOR, COSE signatures and key pairs of kwoon.
//!
//! Everything that is signed or hashed passes through this crate, so that one rule of encoding (RFC 8949, 4.2)
//! and one rule of verification (strict Ed25519, RFC 8032) hold everywhere. The crate never reads a clock and
//! never talks to the network; randomness and files exist only behind the feature `files`.

#![cfg_attr(not(any(test, feature = "files")), no_std)]

extern crate alloc;

pub mod cbor;
pub mod commitment;
pub mod cose;
#[cfg(feature = "files")]
pub mod files;
pub mod id;
pub mod pair;
pub mod secret;

pub use commitment::{Commitment, Salt};
pub use cose::{Kind as RecordKind, SignatureError};
pub use id::Digest;
pub use pair::{KeyPair, PublicKey, SealedBoxKey};
pub use secret::RequestSecret;
