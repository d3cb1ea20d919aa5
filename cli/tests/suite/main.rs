//! The program as its users meet it: real processes, real homes, HTTP and the command line.

#![allow(clippy::unwrap_used)]

mod arguments;
mod crash;
mod daemon;
mod documents;
mod homes;
mod http;
mod kill;
mod lifecycle;
mod secrets;
