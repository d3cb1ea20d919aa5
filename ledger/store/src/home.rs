//! A home: one directory of mode 0700 that holds a host's keys, tokens, content and store.
//!
//! | name | what |
//! |---|---|
//! | `lock` | held while a process uses the home; names that process |
//! | `format` | the version of this layout; written last when a home is made |
//! | `keys/host.key`, `keys/owner.key`, `keys/agents/<agent>.key` | 0600 each |
//! | `tokens/<name>` | one bearer token and a newline, 0600 |
//! | `content/` | longer content, see [`crate::content`] |
//! | `store.redb` | the tables |
//! | `clean` | there while no process has the store open, if the last one closed it |
//!
//! Files of other names are foreign and ignored.

mod make;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use kwoon_keys::files::{self as key_files, FileError, FileLayer, Os};
use kwoon_keys::id::AgentId;
use kwoon_keys::secret::InstanceKeys;
use kwoon_keys::{Digest, KeyPair};

use crate::content::CONTENT;
use crate::error::OpenError;
use crate::files;
use crate::lock::Lock;

pub use tokens::read_token;

/// The version of the layout of a home that this crate reads and writes.
pub const HOME_VERSION: u32 = 1;

pub(crate) const FORMAT: &str = "format";
/// Where a system says which machine it is (machine-id(5)).
const MACHINE_ID: &str = "/etc/machine-id";
const FORMAT_PREFIX: &str = "kwoon home, version ";
/// The directory of all key files.
pub(crate) const KEYS: &str = "keys";
pub(crate) const TOKENS: &str = "tokens";
const HOST_KEY: &str = "keys/host.key";
const OWNER_KEY: &str = "keys/owner.key";
/// The directory of the key files of instances.
pub(crate) const AGENT_KEYS: &str = "keys/agents";
/// The file of the tables.
pub(crate) const STORE: &str = "store.redb";
/// The owner's configuration. Nothing here reads it.
pub(crate) const CONFIG: &str = "config.toml";
/// The marker of a clean stop.
pub(crate) const CLEAN: &str = "clean";

/// What to do where there is no home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Fail.
    Existing,
    /// Make one, and the directories above it.
    MakeIfMissing,
}

/// An open home. Its lock is held until this value and every store opened from it are gone.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    layer: Arc<dyn FileLayer>,
    lock: Arc<Lock>,
}

/// What a survey found.
#[derive(PartialEq)]
enum Found {
    Nothing,
    Home,
}

impl Home {
    /// Opens the home at `path`, or makes it.
    ///
    /// The lock is taken before anything else is opened. All keys are read once, so that what is wrong with them shows
    /// here; what is wrong with the store shows when that is opened.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing in the directory was changed then, except for the file `lock`.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self, OpenError> {
        Self::open_on(path, mode, Arc::new(Os))
    }

    /// The same with a layer of files of one's own, for tests that let it crash. It stands under all that is done in the
    /// home, but for the lock, the tables, and clearing away a home whose making failed.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_on(path: &Path, mode: OpenMode, layer: Arc<dyn FileLayer>) -> Result<Self, OpenError> {
        let path = std::path::absolute(path).map_err(|error| OpenError::io(path, error))?;
        match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_dir() => return Err(OpenError::NotADirectory { path }),
            Ok(_) => key_files::check_private(&path, 0o700)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if mode == OpenMode::Existing {
                    return Err(OpenError::NoHome { path });
                }
                make::directory(&*layer, &path)?;
            }
            Err(error) => return Err(OpenError::io(&path, error)),
        }
        // A lock file that is there is locked first: a home that another process is just making is in use, not half
        // made. A lock file that is not there is made only if the rest is in order.
        let early = Lock::existing(&path)?;
        let mut found = survey(&path)?;
        if found == Found::Nothing && mode == OpenMode::Existing {
            return Err(OpenError::NoHome { path });
        }
        let lock = match early {
            Some(lock) => lock,
            None => {
                let lock = Lock::make(&path)?;
                found = survey(&path)?;
                lock
            }
        };
        lock.sign()?;
        if found == Found::Nothing {
            make::home(&layer, &path)?;
        }
        Ok(Self { path, layer, lock: Arc::new(lock) })
    }

    /// The directory, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn layer(&self) -> Arc<dyn FileLayer> {
        Arc::clone(&self.layer)
    }

    pub(crate) fn lock(&self) -> Arc<Lock> {
        Arc::clone(&self.lock)
    }

    /// The key of this host.
    ///
    /// # Errors
    /// If its file changed since the home was opened and no longer holds a key.
    pub fn host_key(&self) -> Result<KeyPair, FileError> {
        key_files::read_pair(&self.path.join(HOST_KEY), "host")
    }

    /// The key of the owner.
    ///
    /// # Errors
    /// If its file changed since the home was opened and no longer holds a key.
    pub fn owner_key(&self) -> Result<KeyPair, FileError> {
        key_files::read_pair(&self.path.join(OWNER_KEY), "owner")
    }

    /// What tells this home from a copy of it: where on which machine the tables lie. It is another after the home was
    /// copied or restored, and the same after it was renamed or the machine was started again. The number of the device
    /// is no part of it, because that may change with every start of a machine.
    ///
    /// # Errors
    /// If the operating system does not tell.
    pub fn mark(&self) -> Result<Digest, OpenError> {
        let path = self.path.join(STORE);
        let metadata = fs::metadata(&path).map_err(|error| OpenError::io(&path, error))?;
        // A file system that keeps no time of birth tells less, and a system without this file too.
        let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let machine = fs::read(MACHINE_ID).unwrap_or_default();
        Ok(Digest::of("kwoon 1 home mark", &[&metadata.ino().to_be_bytes(), &born.as_nanos().to_be_bytes(), &machine]))
    }

    /// The keys of all instances on this host, by agent. Some may belong to agents that no commit made known: their
    /// files are written first.
    ///
    /// # Errors
    /// If a key file is looser than 0600 or holds no key of the agent it is named by.
    pub fn instance_keys(&self) -> Result<Vec<InstanceKeys>, FileError> {
        instance_keys(&self.path)
    }

    /// Sets the key file of an agent's instance aside, if there is one: it gets the ending `.unused` and is read no more.
    /// Nothing is deleted, since keys cannot be made again. It stays so after a crash.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn set_aside_instance_keys(&self, agent: &AgentId) -> Result<(), FileError> {
        let path = instance_key_path(&self.path, agent);
        let set_aside = match self.layer.rename(&path, &path.with_extension("key.unused")) {
            Ok(()) => self.layer.sync_dir(&self.path.join(AGENT_KEYS)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        set_aside.map_err(|source| FileError::Io { path, source })
    }
}

/// The key file of an agent's instance.
pub(crate) fn instance_key_path(home: &Path, agent: &AgentId) -> PathBuf {
    home.join(AGENT_KEYS).join(format!("{agent}.key"))
}

fn is_instance_key_name(name: &str) -> bool {
    name.strip_suffix(".key").is_some_and(|stem| AgentId::read(stem).is_some())
}

fn instance_keys(home: &Path) -> Result<Vec<InstanceKeys>, FileError> {
    let dir = home.join(AGENT_KEYS);
    let names = files::names(&dir).map_err(|source| FileError::Io { path: dir.clone(), source })?;
    let mut all = Vec::new();
    for name in names.iter().filter(|name| is_instance_key_name(name)) {
        let path = dir.join(name);
        let keys = key_files::read_instance(&path)?;
        if instance_key_path(home, &keys.agent) != path {
            return Err(FileError::NotAKey { path, kind: "instance" });
        }
        all.push(keys);
    }
    all.sort_by_key(|keys| keys.agent);
    Ok(all)
}

/// Looks at a directory without changing it: is there a whole home, or nothing of one? Everything else is an error.
fn survey(home: &Path) -> Result<Found, OpenError> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    let version = read_format(home)?;
    if version.is_none() {
        missing.push(FORMAT);
        // A directory of one of these names counts as a part of a home even if it is foreign: kwoon would write there.
        found = there(home, &[KEYS, TOKENS, CONTENT, STORE, CLEAN])?;
        if found.is_empty() {
            return Ok(Found::Nothing);
        }
    } else {
        let parts = [HOST_KEY, OWNER_KEY, STORE];
        let parts_there = there(home, &parts)?;
        missing.extend(parts.iter().filter(|part| !parts_there.contains(part)));
        found.push(FORMAT);
        found.extend(parts_there);
    }
    if !missing.is_empty() {
        return Err(OpenError::HalfMade { path: home.to_owned(), found, missing });
    }
    key_files::read_pair(&home.join(HOST_KEY), "host")?;
    key_files::read_pair(&home.join(OWNER_KEY), "owner")?;
    instance_keys(home)?;
    Ok(Found::Home)
}

fn there(home: &Path, names: &[&'static str]) -> Result<Vec<&'static str>, OpenError> {
    let mut there = Vec::new();
    for name in names {
        let path = home.join(name);
        match fs::symlink_metadata(&path) {
            Ok(_) => there.push(*name),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(OpenError::io(&path, error)),
        }
    }
    Ok(there)
}

/// The version that the file `format` states, if it is there and known.
fn read_format(home: &Path) -> Result<Option<u32>, OpenError> {
    let path = home.join(FORMAT);
    let damaged = || OpenError::Damaged { path: path.clone(), what: "it states no version of a kwoon home".to_owned() };
    match fs::metadata(&path) {
        Ok(metadata) if metadata.size() > 64 => return Err(damaged()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io(&path, error)),
    }
    let bytes = fs::read(&path).map_err(|error| OpenError::io(&path, error))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
    let version = text.strip_prefix(FORMAT_PREFIX).and_then(|rest| rest.lines().next()?.parse().ok());
    match version {
        Some(HOME_VERSION) => Ok(Some(HOME_VERSION)),
        Some(found) if found > HOME_VERSION => Err(OpenError::NewerVersion { path, found, known: HOME_VERSION }),
        _ => Err(damaged()),
    }
}

/// Removes what was being written when a process ended: temporary files of kwoon's own names.
pub(crate) fn remove_leftovers(layer: &dyn FileLayer, home: &Path) -> io::Result<()> {
    for name in [FORMAT, CLEAN, HOST_KEY, OWNER_KEY] {
        key_files::remove_if_there(layer, &home.join(format!("{name}.new")))?;
    }
    let agents = home.join(AGENT_KEYS);
    for name in files::names(&agents)? {
        if name.strip_suffix(".new").is_some_and(is_instance_key_name) {
            key_files::remove_if_there(layer, &agents.join(name))?;
        }
    }
    tokens::remove_leftovers(layer, &home.join(TOKENS))
}
