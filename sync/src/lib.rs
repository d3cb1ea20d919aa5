//! The pure host of kwoon: requests in, a commit and replies out.
//!
//! Everything between what an agent asks and the fact it causes stands here, without a clock, randomness, threads or
//! I/O: a daemon, a test or a simulator gives it time, entropy and a store to read, makes its commits durable and hands
//! out its replies.

pub mod answer;
pub mod argument;
pub mod check;
pub mod control;
pub mod file;
pub mod foresight;
pub mod host;
pub mod intake;
pub mod keyring;
pub mod logfile;
pub mod message;
pub mod names;
pub mod operations;
pub mod peers;
pub mod quarantine;
pub mod rate;
pub mod reach;
pub mod receipt;
pub mod round;
pub mod session;
pub mod ticket;
pub mod verify;
pub mod view;
pub mod window;
pub mod wire;
