//! The naive model against the host: random sequences of legal and illegal operations, in which both must agree.

#![allow(clippy::unwrap_used)]

mod chooser;
mod driver;
mod ground;
mod steps;
mod world;
