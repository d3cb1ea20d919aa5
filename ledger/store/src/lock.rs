//! The lock of a home: an OS lock on a file that names its holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::OpenError;

/// The name of the lock file in a home. The file is never removed: a process that opened it just before would then hold
/// a lock that nobody else sees.
pub(crate) const LOCK: &str = "lock";

/// A held lock. It ends with the value, or with the process however that ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

/// How often the lock is tried before the home is said to be in use.
const TRIES: usize = 10;
/// How long between two tries.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

impl Lock {
    /// Takes the lock of a home whose lock file is there; nothing if there is no such file.
    pub(crate) fn existing(home: &Path) -> Result<Option<Self>, OpenError> {
        match OpenOptions::new().read(true).write(true).open(home.join(LOCK)) {
            Ok(file) => Self::take(home, file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(OpenError::io(&home.join(LOCK), error)),
        }
    }

    /// Takes the lock of a home, and makes the lock file if need be.
    pub(crate) fn make(home: &Path) -> Result<Self, OpenError> {
        let path = home.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(|error| OpenError::io(&path, error))?;
        Self::take(home, file)
    }

    fn take(home: &Path, file: File) -> Result<Self, OpenError> {
        let path = home.join(LOCK);
        // Somebody who only looks whether a daemon runs takes the lock for a moment.
        for _ in 0..TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file, path }),
                Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN_TRIES),
                Err(TryLockError::Error(error)) => return Err(OpenError::io(&path, error)),
            }
        }
        Err(OpenError::InUse { path: home.to_owned(), pid: holder(&file) })
    }

    /// Writes this process's id into the file, for those who find it locked.
    pub(crate) fn sign(&self) -> Result<(), OpenError> {
        let text = format!("{}\n", std::process::id());
        // Cut to length only afterwards, so that a reader in between finds a number and not nothing.
        let written = self.file.write_all_at(text.as_bytes(), 0).and_then(|()| self.file.set_len(text.len() as u64));
        written.map_err(|error| OpenError::io(&self.path, error))
    }
}

/// The process that a lock file names. What an earlier holder wrote stays until the next one signs, so this may be out
/// of date for a moment.
fn holder(file: &File) -> Option<u32> {
    let mut text = [0; 16];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.lines().next()?.parse().ok()
}
