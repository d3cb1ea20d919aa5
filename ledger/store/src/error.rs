//! Why a home, its store or a token cannot be used, and what the owner can do about it.

use std::io;
use std::path::{Path, PathBuf};

use kwoon_keys::files::FileError;

use crate::rebuild::RebuildError;

/// A home or its store cannot be opened. Nothing in the directory was changed, except that the file `lock` may have
/// been made and locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no home, and none was to be made.
    #[error("there is no kwoon home at {path}; `kwoon up` makes one, and --home names another")]
    NoHome {
        /// The directory asked for.
        path: PathBuf,
    },
    /// Something else stands where the directory should be.
    #[error("{path} is not a directory; name a directory for the home")]
    NotADirectory {
        /// What was asked for.
        path: PathBuf,
    },
    /// Others than the owner may read or write the home or a key in it.
    #[error("{path} has mode {mode:04o}, which lets others in; run: chmod {wanted:04o} {path}")]
    TooLoose {
        /// The directory or file.
        path: PathBuf,
        /// The mode it has.
        mode: u32,
        /// The mode it must have.
        wanted: u32,
    },
    /// Another process holds the lock of the home, or its store.
    #[error("the home {path} is in use by {}; talk to that one, or stop it first with `kwoon down`", holder(*.pid))]
    InUse {
        /// The home.
        path: PathBuf,
        /// The process that holds it, if it has said so.
        pid: Option<u32>,
    },
    /// Parts of a home are there and others are not.
    #[error(
        "{path} is not a whole kwoon home: {} there, {} missing; restore it from a backup, delete what is there if the \
         home was never used, or name another directory with --home",
        listed(.found), listed(.missing)
    )]
    HalfMade {
        /// The home.
        path: PathBuf,
        /// What is there, by name.
        found: Vec<&'static str>,
        /// What is not, by name.
        missing: Vec<&'static str>,
    },
    /// A newer kwoon wrote this.
    #[error("{path} has version {found} and this kwoon knows versions up to {known}; a newer kwoon is needed")]
    NewerVersion {
        /// The file that states the version.
        path: PathBuf,
        /// The version it states.
        found: u32,
        /// The highest version this crate knows.
        known: u32,
    },
    /// The operating system does not let this process write there.
    #[error("{path} cannot be written ({source}); run kwoon as the owner of the home, on a disk that is not read-only")]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The disk, or the owner's share of it, is full, or a file cannot grow any more.
    #[error("the disk is full at {path} ({source}); make room and start again")]
    DiskFull {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file does not hold what kwoon wrote.
    #[error("{path} is damaged: {what}; restore the home from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A rebuild of the derived tables that a crash interrupted failed again.
    #[error("{path}: {error}")]
    Rebuild {
        /// The store.
        path: PathBuf,
        /// Why.
        error: RebuildError,
    },
    /// A key file does not hold a key of the expected kind.
    #[error("{path} is not a {kind} key file of a version this kwoon knows; restore it from a backup")]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// What was expected.
        kind: &'static str,
    },
    /// The operating system refused for another reason.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn listed(names: &[&str]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}

impl OpenError {
    /// What an error of the operating system at `path` means to the owner.
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path, source },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::DiskFull { path, source }
            }
            _ => Self::Io { path, source },
        }
    }
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { path, source } => Self::io(&path, source),
            FileError::TooLoose { path, mode, wanted } => Self::TooLoose { path, mode, wanted },
            FileError::NotAKey { path, kind } => Self::NotAKey { path, kind },
        }
    }
}

/// A token cannot be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Not a name that a token file may have.
    #[error("a token's name is 1 to 63 of a-z, 0-9, '.', '_', '-' and begins with a letter or digit")]
    Name,
    /// The file does not hold one token and a newline.
    #[error("{path} does not hold a kwoon token; delete it, and a new token is made at the next start")]
    NotAToken {
        /// The file.
        path: PathBuf,
    },
    /// The file or its directory cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_operating_system_says_what_to_do() {
        let shown = |kind: io::ErrorKind| OpenError::io(Path::new("/home/a"), kind.into()).to_string();
        assert!(shown(io::ErrorKind::ReadOnlyFilesystem).contains("cannot be written"));
        assert!(shown(io::ErrorKind::PermissionDenied).contains("run kwoon as the owner"));
        assert!(shown(io::ErrorKind::StorageFull).contains("disk is full"));
        assert!(shown(io::ErrorKind::QuotaExceeded).contains("disk is full"));
        assert!(shown(io::ErrorKind::FileTooLarge).contains("disk is full"));
        assert!(matches!(OpenError::io(Path::new("x"), io::ErrorKind::Other.into()), OpenError::Io { .. }));
    }
}
