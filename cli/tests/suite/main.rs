//! The program as its users meet it: real processes, real homes, HTTP and the command line.

#![allow(clippy::unwrap_used)]

mod arguments;
mod backup;
mod crash;
mod daemon;
mod demo;
mod documents;
mod hard;
mod homes;
mod hosts;
mod http;
mod kill;
mod lifecycle;
mod logs;
mod namespaces;
mod proofs;
mod secrets;
