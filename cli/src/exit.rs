//! How a command ends: the exit codes, and what is said when it fails.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed, for a reason outside the protocol.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The protocol refused it.
    Refused = 3,
    /// No daemon runs for this home.
    NoDaemon = 4,
    /// Made, and not sealed yet.
    Pending = 5,
    /// Not authorised.
    NotAuthorised = 6,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// How a command ends that was answered by this envelope.
    pub fn of(envelope: &Value) -> Self {
        match envelope["ok"].as_bool() {
            Some(true) if envelope["standing"] == "pending" => Self::Pending,
            // A verification was made, and found something wrong.
            Some(true) if envelope["result"]["sound"] == false => Self::Failed,
            Some(true) => Self::Done,
            Some(false) => match envelope["error"]["code"].as_str() {
                Some("unauthenticated" | "owner_required" | "forbidden_host") => Self::NotAuthorised,
                // Nothing was decided: the daemon could not.
                Some("internal" | "stopping") | None => Self::Failed,
                Some(_) => Self::Refused,
            },
            None => Self::Failed,
        }
    }
}

/// Why a command failed before or without an answer of the protocol.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// It went wrong.
    Failed(String),
    /// No daemon runs for this home.
    NoDaemon(PathBuf),
    /// There is no token to use.
    NotAuthorised(String),
}

impl Failure {
    /// Something that the operating system refused.
    pub fn io(path: &Path, error: impl fmt::Display) -> Self {
        Self::Failed(format!("{}: {error}", path.display()))
    }

    /// The exit code that goes with it.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Failed(_) => Exit::Failed,
            Self::NoDaemon(_) => Exit::NoDaemon,
            Self::NotAuthorised(_) => Exit::NotAuthorised,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Failed(message) | Self::NotAuthorised(message) => f.write_str(message),
            Self::NoDaemon(home) => {
                write!(f, "no daemon runs for {}; start one with: kwoon up", home.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(code: &str) -> Value {
        json!({"ok": false, "error": {"code": code, "message": "m", "fix": "f"}})
    }

    #[test]
    fn an_answer_decides_the_exit_code() {
        assert_eq!(Exit::of(&json!({"ok": true, "standing": "sealed"})), Exit::Done);
        assert_eq!(Exit::of(&json!({"ok": true, "standing": "overturned"})), Exit::Done);
        assert_eq!(Exit::of(&json!({"ok": true, "standing": "pending"})), Exit::Pending);
        assert_eq!(Exit::of(&json!({"ok": true, "standing": "sealed", "result": {"sound": true}})), Exit::Done);
        assert_eq!(Exit::of(&json!({"ok": true, "standing": "sealed", "result": {"sound": false}})), Exit::Failed);
        for code in ["thread_closed", "not_found", "invalid_argument", "not_governor", "rate_limited", "not_sealing"] {
            assert_eq!(Exit::of(&refused(code)), Exit::Refused, "{code}");
        }
        for code in ["unauthenticated", "owner_required", "forbidden_host"] {
            assert_eq!(Exit::of(&refused(code)), Exit::NotAuthorised, "{code}");
        }
        for code in ["internal", "stopping"] {
            assert_eq!(Exit::of(&refused(code)), Exit::Failed, "{code}");
        }
        assert_eq!(Exit::of(&json!({"error": "bad gateway"})), Exit::Failed);
        assert_eq!(Exit::of(&json!([])), Exit::Failed);
    }

    #[test]
    fn failures_have_the_codes_that_scripts_rely_on() {
        let codes = [
            (Failure::Failed(String::new()), 1),
            (Failure::Usage(String::new()), 2),
            (Failure::NoDaemon("/h".into()), 4),
            (Failure::NotAuthorised(String::new()), 6),
        ];
        for (failure, code) in codes {
            assert_eq!(failure.exit() as u8, code);
        }
        assert_eq!(Failure::NoDaemon("/h".into()).to_string(), "no daemon runs for /h; start one with: kwoon up");
    }
}
