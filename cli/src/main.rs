//! kwoon on the command line: the daemon, and a client of it.

mod client;
mod command;
mod exit;
mod field;
mod home;
mod value;
mod visible;

fn main() {}
