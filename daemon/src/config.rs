//! What a daemon is told: options of this start, choices that are kept from start to start, and the owner's
//! `config.toml`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kwoon_ledger::limits::Limits;
use kwoon_ledger::storage::{Batch, Read, ReadError, Table};
use serde::Deserialize;

/// How a daemon is started. What is given here is kept in the home and used again at every start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The home directory; made if it is not there.
    pub home: PathBuf,
    /// Address of the HTTP interface. Port 0: one is picked once and kept.
    pub listen: Option<SocketAddr>,
    /// Address for other hosts. Port 0: one is picked once and kept.
    pub bind: Option<SocketAddr>,
    /// `off`, `default` or the URL of a relay.
    pub relay: Option<String>,
    /// `off` or `mdns`.
    pub discovery: Option<String>,
    /// Make the derived table anew from the logs before serving. Of this start only.
    pub rebuild: bool,
}

/// Why options or configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what it must be.
    #[error("{path}: {problem}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// An option is not what it must be.
    #[error("--{name} must be {expected}")]
    Option {
        /// The option.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    #[serde(default)]
    limits: BTreeMap<String, u64>,
}

/// Reads the limits of `config.toml` in the home; the defaults if there is none.
///
/// # Errors
/// If the file cannot be read, or as [`limits_of`].
pub fn limits(home: &Path) -> Result<Limits, ConfigError> {
    let path = home.join("config.toml");
    match std::fs::read_to_string(&path) {
        Ok(text) => limits_of(&text).map_err(|problem| ConfigError::Wrong { path, problem }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Limits::DEFAULT),
        Err(source) => Err(ConfigError::Unreadable { path, source }),
    }
}

/// The limits that the text of a `config.toml` sets.
///
/// # Errors
/// What is wrong, and what would be right: if it is not TOML, or names a limit that does not exist or lies above its
/// maximum.
pub fn limits_of(text: &str) -> Result<Limits, String> {
    let mut limits = Limits::DEFAULT;
    let file: ConfigFile = toml::from_str(text).map_err(|error| error.to_string())?;
    for (name, value) in file.limits {
        limits.set(&name, value).map_err(|maximum| match maximum {
            Some(maximum) => format!("limits.{name} must be at most {maximum}"),
            None => format!("there is no limit {name}; host_status lists them"),
        })?;
    }
    Ok(limits)
}

/// Choices that are kept in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Address of the HTTP interface, with the port that was picked.
    pub listen: SocketAddr,
    /// Whether that port was asked for: then another is never picked.
    pub listen_asked: bool,
    /// Address for other hosts, with the port that was picked.
    pub bind: SocketAddr,
    /// Whether that port was asked for: then another is never picked.
    pub bind_asked: bool,
    /// Relay.
    pub relay: String,
    /// Discovery.
    pub discovery: String,
}

fn kept(read: &dyn Read, name: &str) -> Result<Option<String>, ReadError> {
    match read.get(Table::Meta, format!("choice/{name}").as_bytes())? {
        Some(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| ReadError::damaged("a choice")),
        None => Ok(None),
    }
}

/// An address, given now or kept, and whether its port was asked for. A port that was picked once is used again, until
/// another address or port is asked for.
fn address(
    given: Option<SocketAddr>,
    kept: Option<SocketAddr>,
    kept_asked: bool,
    default: SocketAddr,
) -> (SocketAddr, bool) {
    match (given, kept) {
        (Some(given), Some(kept)) if given.port() == 0 && given.ip() == kept.ip() => (kept, kept_asked),
        (Some(given), _) => (given, given.port() != 0),
        (None, Some(kept)) => (kept, kept_asked),
        (None, None) => (default, false),
    }
}

impl Choices {
    /// The choices of this start: what is given now, else what was kept, else the defaults.
    ///
    /// # Errors
    /// If the store cannot be read, or an option is not what it must be.
    pub fn of(options: &Options, read: &dyn Read) -> Result<Self, ChoiceError> {
        if options.listen.is_some_and(|given| !given.ip().is_loopback()) {
            let expected = "an address of this machine alone, such as 127.0.0.1:0: tokens go over it in the clear";
            return Err(ConfigError::Option { name: "listen", expected }.into());
        }
        let kept_address = |name: &str| Ok::<_, ReadError>(kept(read, name)?.and_then(|text| text.parse().ok()));
        let kept_listen: Option<SocketAddr> = kept_address("listen")?;
        let listen_kept_asked = kept(read, "listen_asked")?.as_deref() == Some("yes");
        let any_loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listen, listen_asked) = address(options.listen, kept_listen, listen_kept_asked, any_loopback);
        let kept_bind: Option<SocketAddr> = kept_address("bind")?;
        // Before ports were picked here, one that was kept was one that was asked for.
        let bind_kept_asked = match kept(read, "bind_asked")? {
            Some(asked) => asked == "yes",
            None => kept_bind.is_some_and(|bind| bind.port() != 0),
        };
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let (bind, bind_asked) = address(options.bind, kept_bind, bind_kept_asked, any);
        if let Some(relay) = &options.relay
            && !(relay == "off" || relay == "default" || relay.starts_with("http"))
        {
            return Err(ConfigError::Option { name: "relay", expected: "off, default or a URL" }.into());
        }
        if let Some(discovery) = &options.discovery
            && !matches!(discovery.as_str(), "off" | "mdns")
        {
            return Err(ConfigError::Option { name: "discovery", expected: "off or mdns" }.into());
        }
        let text = |given: Option<String>, name: &str, default: &str| -> Result<String, ReadError> {
            Ok(match given {
                Some(given) => given,
                None => kept(read, name)?.unwrap_or_else(|| default.to_owned()),
            })
        };
        Ok(Self {
            listen,
            listen_asked,
            bind,
            bind_asked,
            relay: text(options.relay.clone(), "relay", "off")?,
            discovery: text(options.discovery.clone(), "discovery", "mdns")?,
        })
    }

    /// What keeps these choices.
    pub fn batch(&self) -> Batch {
        let mut batch = Batch::default();
        let rows = [
            ("listen", self.listen.to_string()),
            ("listen_asked", if self.listen_asked { "yes" } else { "no" }.to_owned()),
            ("bind", self.bind.to_string()),
            ("bind_asked", if self.bind_asked { "yes" } else { "no" }.to_owned()),
            ("relay", self.relay.clone()),
            ("discovery", self.discovery.clone()),
        ];
        for (name, value) in rows {
            batch.rows.insert((Table::Meta, format!("choice/{name}").into_bytes()), Some(value.into_bytes()));
        }
        batch
    }
}

/// Why the choices of a start cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// An option is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_picked_is_used_again_until_another_is_asked_for() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let (any, picked, asked) = (at("0.0.0.0:0"), at("0.0.0.0:4433"), at("0.0.0.0:7"));
        assert_eq!(address(None, None, false, any), (any, false));
        assert_eq!(address(None, Some(picked), false, any), (picked, false));
        assert_eq!(address(Some(any), Some(picked), false, any), (picked, false));
        assert_eq!(address(Some(asked), Some(picked), false, any), (asked, true));
        assert_eq!(address(None, Some(asked), true, any), (asked, true));
        assert_eq!(address(Some(at("127.0.0.1:0")), Some(picked), false, any), (at("127.0.0.1:0"), false));
    }

    #[test]
    fn limits_are_read_and_wrong_ones_are_named() {
        let home = tempfile::tempdir().expect("a directory");
        assert_eq!(limits(home.path()).expect("defaults"), Limits::DEFAULT);
        let write = |text: &str| std::fs::write(home.path().join("config.toml"), text).expect("written");
        write("[limits]\nask_max = 3\n");
        assert_eq!(limits(home.path()).expect("read").ask_max, 3);
        for (text, problem) in [
            ("[limits]\nask_max = 100000\n", "at most 256"),
            ("[limits]\nasks = 1\n", "no limit asks"),
            ("[limit]\n", "unknown field"),
            ("[limits]\nask_max = -1\n", "config.toml"),
            ("limits", "config.toml"),
        ] {
            write(text);
            let error = limits(home.path()).expect_err("wrong").to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
