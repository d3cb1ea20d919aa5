//! Links between hosts of kwoon: frames over iroh (QUIC), and nothing about what is in them.
//!
//! A host's id is its Ed25519 public key, and TLS proves it at both ends of a connection. [`Net`] keeps one connection
//! with every host it was told of, accepts others within limits, and hands each to the upper layer as a [`Link`]. Who
//! may have what is decided there; this crate never looks into a frame, writes no file and remembers nothing beyond
//! its own run.
//!
//! On the wire: ALPN [`ALPN`] (and a second one that says who is meant, `whom`), one bidirectional stream for each connection, opened by the host that dialled. Both
//! directions carry frames, four bytes of length (big-endian) and that many bytes. The first frame of each direction
//! is a greeting of this crate (`greeting`); all others belong to the upper layer.

mod accept;
mod backoff;
pub mod close;
mod config;
mod dial;
mod discover;
mod frame;
mod greeting;
mod link;
mod net;
mod table;
mod whom;

pub use config::{
    ADDRESSES_MAX, Discovery, FRAME_BYTES_MAX, Hints, NetConfig, NetError, NetLimits, Relay, SMALL_FRAME_BYTES,
};
pub use frame::{Counters, FrameReceiver, FrameSender, LinkError};
pub use link::Link;
pub use net::Net;

/// The protocol that hosts agree on when they connect. A host that speaks another is not connected at all.
pub const ALPN: &[u8] = b"kwoon/1";
