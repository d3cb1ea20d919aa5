//! kwoon on the command line: starts and stops the daemon of a home, and calls its operations.
//!
//! Everything about operations follows from the registry: words, flags, help. Only this crate prints.

mod call;
mod client;
mod command;
mod demo;
mod down;
mod exit;
mod field;
mod home;
mod render;
mod status;
mod terminal;
mod up;
mod value;
mod visible;

use std::process::ExitCode;

use clap::ArgMatches;
use kwoon_sync::operations;

use crate::command::Globals;
use crate::exit::{Exit, Failure};
use crate::terminal::Style;

/// Decisions make many small values; the system's allocator would take a good part of their time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let matches = match command::kwoon().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return refuse(&error).into(),
    };
    let exit = run(&matches).unwrap_or_else(|failure| {
        let mut message = format!("{} {failure}\n", Style::stderr().red("error:"));
        if let Failure::Usage(_) = failure {
            message.push_str("\nFor more information, try '--help'.\n");
        }
        terminal::complain(&message);
        failure.exit()
    });
    exit.into()
}

/// Says what is wrong with a command line, or shows the help that was asked for.
fn refuse(error: &clap::Error) -> Exit {
    match command::explain(error) {
        Some(text) => terminal::complain(&text),
        None => {
            let _ = error.print();
        }
    }
    if error.exit_code() == 0 { Exit::Done } else { Exit::Usage }
}

fn run(matches: &ArgMatches) -> Result<Exit, Failure> {
    let mut globals = Globals::default();
    globals.take(matches);
    let Some((noun, of_noun)) = matches.subcommand() else { return Ok(Exit::Usage) };
    globals.take(of_noun);
    match noun {
        "up" => return up::up(of_noun, &globals),
        "down" => return down::down(&globals),
        "serve" => return up::serve(of_noun, &globals),
        "status" => return status::status(&globals),
        "demo" => return demo::demo(&globals),
        _ => {}
    }
    let (name, leaf) = match of_noun.subcommand() {
        Some((verb, leaf)) => (format!("{noun}_{verb}"), leaf),
        None => (noun.to_owned(), of_noun),
    };
    globals.take(leaf);
    let operation = operations::find(&name).ok_or_else(|| Failure::Usage(format!("there is no operation {name}")))?;
    call::run(operation, leaf, &globals)
}
