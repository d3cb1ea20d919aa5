//! The daemon of kwoon: it gives the pure host a clock, randomness, a disk and callers.
//!
//! One writer thread drives the host and commits; reads run beside it on consistent states; HTTP carries both. Sessions with
//! other hosts read beside it too, and give it what they received. Nothing here decides anything about the protocol.

mod config;
mod files;
mod http;
mod openapi;
mod peers;
mod serve;
mod service;
mod tokens;
mod writer;

pub use config::{ConfigError, Options, limits_of};
pub use openapi::{arguments_schema, document as openapi};
pub use serve::{ServeError, serve};
pub use service::Service;
