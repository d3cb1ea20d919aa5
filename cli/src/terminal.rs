//! What is printed: to a terminal with a little colour, to anything else without.

use std::env;
use std::io::{self, IsTerminal, Write};

/// How emphasis is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// Without any.
    #[cfg(test)]
    pub const PLAIN: Self = Self { colour: false };

    /// For a stream that is or is not a terminal.
    fn of(is_terminal: bool) -> Self {
        // Set but empty is the same as not set (no-color.org).
        let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { colour: is_terminal && !refused && !dumb }
    }

    /// For the standard output.
    pub fn stdout() -> Self {
        Self::of(io::stdout().is_terminal())
    }

    /// For the standard error.
    pub fn stderr() -> Self {
        Self::of(io::stderr().is_terminal())
    }

    /// What matters less.
    pub fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    /// What matters most.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// What went wrong.
    pub fn red(self, text: &str) -> String {
        self.with("1;31", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Whether the standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints to the standard output. Whether anybody reads on is not this program's affair.
pub fn print(text: &str) {
    print_bytes(text.as_bytes());
}

/// Prints bytes as they are to the standard output.
pub fn print_bytes(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

/// Prints to the standard error.
pub fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
