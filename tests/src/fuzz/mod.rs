//! The targets of fuzzing: what is done with bytes that anybody may have sent, and what must hold then.
//!
//! `fuzz/` drives them with coverage; the tests of this crate run them over the corpora and over what once failed.

pub mod act;
pub mod fold;
pub mod http;
pub mod intake;
pub mod logfile;
pub mod neighbours;
pub mod records;
pub mod seeds;
pub mod session;
pub mod store;
pub mod text;
pub mod ticket;
pub mod wire;
pub mod world;

use std::path::PathBuf;

/// A target: its name and its body. The body panics where something does not hold.
pub type Target = (&'static str, fn(&[u8]));

/// Every target. Each has a file of its name in `fuzz/fuzz_targets/` and a directory in `fuzz/corpus/`.
pub const TARGETS: &[Target] = &[
    ("records", records::target),
    ("fold", fold::target),
    ("logfile", logfile::target),
    ("text", text::target),
    ("act", act::target),
    ("http", http::target),
    ("store", store::target),
    ("wire", wire::target),
    ("ticket", ticket::target),
    ("session", session::target),
    ("intake", intake::target),
];

/// The directory of the inputs of a target: `corpus`, or `regressions` for what once failed.
pub fn inputs(kind: &str, target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz").join(kind).join(target)
}
