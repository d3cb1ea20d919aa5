//! The tests of kwoon, in one binary.

#![allow(clippy::unwrap_used)]

use kwoon_tests::Hall;

mod admissions;
mod arrived;
mod assignments;
mod clock;
mod content;
mod crash;
mod crash_rebuild;
mod crowd;
mod documents;
mod elsewhere;
mod entries;
mod events;
mod foreign;
mod forged;
mod forged_chain;
mod forged_identity;
mod forged_memory;
mod fuzzed;
mod golden;
mod hostile_peer;
mod hosts;
mod identity;
mod invariants;
mod ledger_rebuild;
mod memory;
mod replay;
mod restored;
mod story;
mod threads;
mod turn;
mod vectors;
mod visibility;
