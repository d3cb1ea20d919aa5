//! What the tests of kwoon stand on: a host in memory on a virtual clock, a disk that crashes, forged logs, the targets of
//! fuzzing, and the conformance table.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

pub mod across;
pub mod cluster;
pub mod compare;
pub mod conformance;
pub mod forge;
pub mod fuzz;
pub mod hall;
pub mod medium;
pub mod model;
pub mod recorder;
pub mod simulation;
mod stagecraft;

pub use across::Across;
pub use hall::{Agent, Hall, WITHOUT_RECEIPT, content, effects, merge, owner, text};

/// Says which rule a test is about and what it shows: `holds`, that the rule holds; `refused`, that a violation is
/// refused without effect, or a forged record rejected; `impossible`, that a violation cannot be expressed, and why.
///
/// The conformance document is made from these claims, see [`conformance`].
#[macro_export]
macro_rules! rule {
    ($shows:ident, $($id:literal),+ $(,)?) => {
        $( const _: () = assert!($crate::conformance::is_rule($id), concat!("no such rule: ", $id)); )+
    };
    (impossible, $($id:literal),+ ; $why:literal) => {
        $( const _: () = assert!($crate::conformance::is_rule($id), concat!("no such rule: ", $id)); )+
    };
}

/// Says that a test is about one host alone, and why: where every agent has a host of its own it does nothing. First in the
/// test.
///
/// The conformance document tells these tests from those that show a rule across hosts.
#[macro_export]
macro_rules! alone {
    ($why:literal) => {
        if Hall::ACROSS {
            return;
        }
    };
}
