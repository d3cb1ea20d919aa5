//! The rules of kwoon: records, what they mean, and who may know of them.
//!
//! Pure and `no_std`: no clock, randomness, float, async, I/O, configuration or unordered map. Time is given to it, and
//! it reads through the traits of [`storage`]. The same log gives the same state on every host, to the byte.

#![no_std]

extern crate alloc;

pub mod action;
pub mod clock;
pub mod derive;
pub mod draft;
pub mod effect;
pub mod fact;
pub mod forget;
pub mod identity;
pub mod index;
pub mod limits;
pub mod log;
pub mod outbox;
pub mod rebuild;
pub mod refusal;
pub mod replica;
pub mod rules;
pub mod sequencer;
pub mod state;
pub mod storage;
pub mod time;
pub mod visibility;
pub mod wanted;
