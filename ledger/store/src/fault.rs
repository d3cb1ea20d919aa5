//! What can go wrong inside redb and beside it, in the words of the traits above.

use std::io;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use kwoon_keys::files::FileError;
use kwoon_ledger::storage::{ReadError, WriteError};

use crate::error::OpenError;

/// How the reason of a `ReadError` or `WriteError` begins when the disk, or the owner's share of it, is full, or
/// a file cannot grow any more.
pub const DISK_FULL: &str = "disk full";

/// What went wrong.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The operating system refused.
    Io(io::Error),
    /// The file holds what redb or this crate would not have written.
    Damaged(String),
    /// Another holder has the file locked.
    InUse,
    /// Anything else, as a short sentence.
    Other(String),
}

impl Fault {
    fn reason(self) -> String {
        match self {
            Self::Io(error) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                    format!("{DISK_FULL} ({error})")
                }
                _ => format!("input or output failed ({error})"),
            },
            Self::Damaged(what) => ReadError::damaged(&what).reason,
            Self::InUse => "another process has it open".to_owned(),
            Self::Other(what) => what,
        }
    }

    /// The same for whoever opens the store that lies at `path` in the home `home`.
    pub(crate) fn at(self, home: &Path, path: &Path) -> OpenError {
        match self {
            Self::Io(error) => OpenError::io(path, error),
            Self::InUse => OpenError::InUse { path: home.to_owned(), pid: None },
            Self::Damaged(what) | Self::Other(what) => OpenError::Damaged { path: path.to_owned(), what },
        }
    }
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        Self { reason: fault.reason() }
    }
}

impl From<Fault> for WriteError {
    fn from(fault: Fault) -> Self {
        Self { reason: fault.reason() }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        // redb reports a file without its magic number as an error of the system; and a page that refers to another
        // one far beyond the end makes the system refuse to read there.
        match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
                Self::Damaged(error.to_string())
            }
            _ => Self::Io(error),
        }
    }
}

impl From<FileError> for Fault {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { source, .. } => Self::Io(source),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<redb::Error> for Fault {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) => error.into(),
            redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => Self::InUse,
            redb::Error::DatabaseClosed => Self::Other("the store is closed".to_owned()),
            redb::Error::PreviousIo => Self::Other("an earlier input or output failed; restart kwoon".to_owned()),
            redb::Error::LockPoisoned(_) => Self::Other("an earlier operation broke off; restart kwoon".to_owned()),
            redb::Error::Corrupted(what) => Self::Damaged(what),
            redb::Error::TableDoesNotExist(name) => Self::Damaged(format!("the table {name} is missing")),
            other => Self::Other(other.to_string()),
        }
    }
}

macro_rules! from_redb {
    ($($error:ident)*) => {$(
        impl From<redb::$error> for Fault {
            fn from(error: redb::$error) -> Self {
                redb::Error::from(error).into()
            }
        }
    )*};
}

from_redb! { StorageError TableError TransactionError CommitError DatabaseError SetDurabilityError }

/// Runs `work`, which calls redb, and turns a panic in it into a fault.
///
/// redb trusts pages it wrote: checksums are compared only when a file is repaired, and what a damaged page says is
/// met by assertions, index checks and `unreachable!`. A page that went bad on disk must not end the daemon, so every
/// call into redb passes through here. A panic leaves nothing half changed that is used again: redb poisons the locks
/// it held, and after a failed write nothing more is written. What the panic said is left out, since it could quote
/// the page. It needs a build that unwinds.
///
/// One case remains: where redb writes (a commit, and its own at the close) and the damage is met there first, a
/// second panic in one of its destructors can end the process. On disk that is as after a crash.
pub(crate) fn contain<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Fault::Damaged("a page of the store makes no sense".to_owned())))
}

/// A value of redb that is also dropped behind [`contain`]: ending a transaction takes redb's locks, and panics if an
/// earlier panic poisoned them.
pub(crate) struct Contained<T>(Option<T>);

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("taken only at the end of its life")
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            // Nobody is left to tell; the next open finds what there is to find.
            let _ = contain(|| {
                drop(value);
                Ok(())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_recognised() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge] {
            let error = WriteError::from(Fault::from(redb::StorageError::Io(kind.into())));
            assert!(error.reason.starts_with(DISK_FULL), "{error}");
        }
    }

    #[test]
    fn a_panic_is_contained_and_not_quoted() {
        let error = ReadError::from(contain::<()>(|| panic!("what a participant wrote")).unwrap_err());
        assert!(error.reason.starts_with("damaged") && !error.reason.contains("participant"), "{error}");
    }

    #[test]
    fn a_panic_at_the_end_of_life_is_contained() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("poisoned");
            }
        }
        drop(Contained::new(Bomb));
    }
}
