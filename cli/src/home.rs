//! The home of a daemon, as its clients see it: where it is, its tokens, and what it says about a running daemon.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use kwoon_keys::files::{self as key_files, FileError};
use kwoon_sync::argument::AgentName;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::exit::Failure;

/// The name of the owner's token.
const OWNER: &str = "owner";

/// A home, by its directory. It need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    path: PathBuf,
    /// Whether the directory was named on the command line, and so must be named in commands that are proposed.
    named: bool,
}

/// What a running daemon says about itself in `run.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its process.
    pub pid: u32,
    /// Where it serves HTTP: host and port.
    pub http: Option<String>,
    /// The host's id.
    pub host: Option<String>,
    /// Its Unix socket.
    pub socket: PathBuf,
}

/// A variable of the environment that is set to something.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

impl Home {
    /// The home that was named, or that of the environment, or the usual one.
    ///
    /// # Errors
    /// If the environment does not say where the usual one is.
    pub fn find(named: Option<&Path>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => usual(variable)
                .ok_or_else(|| Failure::Usage("HOME is not set; name a directory with --home DIR".to_owned()))?,
        };
        let path = std::path::absolute(&path).map_err(|error| Failure::io(&path, error))?;
        Ok(Self { path, named: named.is_some() })
    }

    /// The directory, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory, if it was named on the command line.
    pub fn named(&self) -> Option<&Path> {
        self.named.then_some(&*self.path)
    }

    /// The directory of the tokens.
    pub fn tokens(&self) -> PathBuf {
        self.path.join("tokens")
    }

    /// What the daemon that runs, or the last one that did not stop cleanly, says about itself.
    pub fn running(&self) -> Option<Running> {
        let run: Value = serde_json::from_slice(&fs::read(self.path.join("run.json")).ok()?).ok()?;
        let text = |name: &str| run[name].as_str().map(ToOwned::to_owned);
        let http = text("http").map(|http| http.trim_start_matches("http://").trim_end_matches('/').to_owned());
        let socket = text("socket").map_or_else(|| self.path.join("kwoon.sock"), |socket| self.path.join(socket));
        // 0 and 1 are no daemon's: the first would mean a whole process group.
        let pid = run["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 1)?;
        Some(Running { pid, http, host: text("host"), socket })
    }

    /// Whether a process holds the lock of the home, and which it is by its own word.
    ///
    /// # Errors
    /// If the lock cannot be looked at.
    pub fn holder(&self) -> Result<Option<u32>, Failure> {
        let path = self.path.join("lock");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io(&path, error)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => {
                let text = fs::read_to_string(&path).map_err(|error| Failure::io(&path, error))?;
                Ok(Some(text.trim().parse().unwrap_or(0)))
            }
            Err(TryLockError::Error(error)) => Err(Failure::io(&path, error)),
        }
    }

    /// The owner's token.
    ///
    /// # Errors
    /// If there is none that can be read.
    pub fn owner_token(&self) -> Result<Zeroizing<String>, Failure> {
        self.token(OWNER)
    }

    /// The token of the agent of this name, or of the only one there is.
    ///
    /// # Errors
    /// If there is no such token, or it is not clear which.
    pub fn agent_token(&self, name: Option<&str>) -> Result<Zeroizing<String>, Failure> {
        let names = self.agent_names();
        let all = names.join(", ");
        match (name, names.as_slice()) {
            (Some(OWNER), _) => {
                Err(Failure::Usage("the owner is no agent; name one with --agent NAME or KWOON_AGENT".to_owned()))
            }
            (Some(name), _) if AgentName::read(name).is_none() => {
                Err(Failure::Usage(format!("'{}' is not a name of an agent", crate::visible::line(name))))
            }
            (Some(name), _) if !names.is_empty() && !names.iter().any(|known| known == name) => {
                Err(Failure::NotAuthorised(format!("there is no token of an agent named {name} here, only of: {all}")))
            }
            (Some(name), _) => self.token(name),
            (None, [only]) => self.token(only),
            (None, []) => Err(Failure::NotAuthorised(format!(
                "there is no agent's token in {}; make an agent with: kwoon agent create --name NAME",
                self.tokens().display()
            ))),
            (None, _) => Err(Failure::Usage(format!("which agent? Say so with --agent NAME or KWOON_AGENT: {all}"))),
        }
    }

    /// The names of the agents that have a token here, in order.
    pub fn agent_names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.tokens()).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name != OWNER && AgentName::read(name).is_some())
            .collect();
        names.sort();
        names
    }

    fn token(&self, name: &str) -> Result<Zeroizing<String>, Failure> {
        let path = self.tokens().join(name);
        let bytes = key_files::read_private(&path).map_err(|error| match error {
            FileError::Io { .. } => Failure::NotAuthorised(format!("cannot read the token {error}")),
            _ => Failure::NotAuthorised(error.to_string()),
        })?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        plain
            .then(|| Zeroizing::new(text.to_owned()))
            .ok_or_else(|| Failure::NotAuthorised(format!("{} holds no token", path.display())))
    }
}

/// The directory that the environment names, or the usual one.
fn usual(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if let Some(home) = variable("KWOON_HOME") {
        return Some(home.into());
    }
    // A relative directory is to be ignored by the XDG Base Directory Specification.
    let data = variable("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    data.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/share"))).map(|data| data.join("kwoon"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn home_with(tokens: &[&str]) -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path())).unwrap();
        fs::create_dir(home.tokens()).unwrap();
        for name in tokens {
            let path = home.tokens().join(name);
            fs::write(&path, format!("kwn_{name}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        (dir, home)
    }

    #[test]
    fn the_home_is_that_of_the_environment_or_the_usual_one() {
        let with = |set: &[(&str, &str)]| {
            usual(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(with(&[("KWOON_HOME", "/k"), ("HOME", "/h")]), Some("/k".into()));
        assert_eq!(with(&[("XDG_DATA_HOME", "/x"), ("HOME", "/h")]), Some("/x/kwoon".into()));
        assert_eq!(with(&[("XDG_DATA_HOME", "x"), ("HOME", "/h")]), Some("/h/.local/share/kwoon".into()));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn the_only_agent_need_not_be_named() {
        let (_dir, home) = home_with(&["owner", "ann", ".bob.new"]);
        assert_eq!(*home.agent_token(None).unwrap(), "kwn_ann");
        assert_eq!(*home.owner_token().unwrap(), "kwn_owner");
    }

    #[test]
    fn of_several_agents_one_must_be_named() {
        let (_dir, home) = home_with(&["owner", "bob", "ann"]);
        let Err(Failure::Usage(message)) = home.agent_token(None) else { panic!("no usage error") };
        assert!(message.ends_with("ann, bob"), "{message}");
        assert_eq!(*home.agent_token(Some("bob")).unwrap(), "kwn_bob");
        assert!(matches!(home.agent_token(Some("eve")), Err(Failure::NotAuthorised(_))));
        assert!(matches!(home.agent_token(Some("owner")), Err(Failure::Usage(_))));
        assert!(matches!(home.agent_token(Some("../owner")), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_token_that_others_can_read_is_not_used() {
        let (_dir, home) = home_with(&["owner", "ann"]);
        fs::set_permissions(home.tokens().join("ann"), fs::Permissions::from_mode(0o644)).unwrap();
        let Err(Failure::NotAuthorised(message)) = home.agent_token(None) else { panic!("it was used") };
        assert!(message.contains("chmod 0600"), "{message}");
        fs::remove_file(home.tokens().join("owner")).unwrap();
        assert!(matches!(home.owner_token(), Err(Failure::NotAuthorised(_))));
    }

    #[test]
    fn what_a_daemon_says_about_itself_is_read_and_never_trusted_with_a_group() {
        let (_dir, home) = home_with(&[]);
        assert_eq!(home.running(), None);
        let write = |text: &str| fs::write(home.path().join("run.json"), text).unwrap();
        write(r#"{"pid": 42, "http": "http://127.0.0.1:7000/", "host": "ab", "bind": "0.0.0.0:1"}"#);
        let running = home.running().unwrap();
        assert_eq!((running.pid, running.http.as_deref()), (42, Some("127.0.0.1:7000")));
        assert_eq!(running.socket, home.path().join("kwoon.sock"));
        write(r#"{"pid": 42, "http": "127.0.0.1:7000", "socket": "/run/k.sock"}"#);
        assert_eq!(home.running().unwrap().socket, PathBuf::from("/run/k.sock"));
        for bad in [r#"{"pid": 0}"#, r#"{"pid": 1}"#, r#"{"pid": -5}"#, r#"{"pid": 99999999999}"#, "{", "[]", ""] {
            write(bad);
            assert_eq!(home.running(), None, "{bad}");
        }
    }

    #[test]
    fn the_lock_tells_who_holds_the_home() {
        let (_dir, home) = home_with(&[]);
        assert_eq!(home.holder().unwrap(), None);
        fs::write(home.path().join("lock"), "42\n").unwrap();
        assert_eq!(home.holder().unwrap(), None);
        let held = File::open(home.path().join("lock")).unwrap();
        held.try_lock().unwrap();
        assert_eq!(home.holder().unwrap(), Some(42));
    }
}
