//! The tests of the suite that show rules by calls alone, once more with every agent on a host of its own.

#![allow(clippy::unwrap_used)]

use kwoon_tests::Across as Hall;

#[path = "../suite/admissions.rs"]
mod admissions;
#[path = "../suite/assignments.rs"]
mod assignments;
#[path = "../suite/entries.rs"]
mod entries;
#[path = "../suite/invariants.rs"]
mod invariants;
#[path = "../suite/memory.rs"]
mod memory;
#[path = "../suite/replay.rs"]
mod replay;
#[path = "../suite/threads.rs"]
mod threads;
#[path = "../suite/turn.rs"]
mod turn;
#[path = "../suite/visibility.rs"]
mod visibility;
