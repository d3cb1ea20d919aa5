//! What operations of the owner do with files of the host's machine. This crate does no I/O: an operation says which file
//! it is about and what is to be done with it, and whoever has files carries that out and hands it something to write to.

use std::io;

use kwoon_ledger::refusal::{Refusal, Stop};
use kwoon_ledger::storage::ReadError;

use crate::answer::{Answer, Contents};
use crate::argument::FilePath;
use crate::check::Finding;
use crate::operations::export::LogExport;
use crate::operations::quarantine::CheckShown;
use crate::view::View;

/// What an operation wants done with a file.
#[derive(Debug)]
pub struct FileJob {
    /// Which file.
    pub path: FilePath,
    /// What is to be done with it.
    pub work: FileWork,
}

/// See [`FileJob`].
#[derive(Debug)]
pub enum FileWork {
    /// To make it, of what [`LogExport::write`] writes. It must not be there yet.
    Export(LogExport),
    /// To make a directory of it, of all that cannot be made anew of the home, and to answer with
    /// [`BackupShown`](crate::operations::owner::BackupShown).
    Backup,
    /// To check what is in it with [`check`](crate::check::check), and to answer with [`answer`].
    Check,
}

/// The answer to a check of a log file in which nothing is to be kept; otherwise the finding again, for
/// [`Request::finding`](crate::host::Request).
///
/// # Errors
/// If the answer cannot be written.
pub fn answer(finding: Finding, view: &View<'_>) -> Result<Result<Answer, Finding>, ReadError> {
    if finding.unknown.is_some() {
        return Ok(Err(finding));
    }
    Answer::new(&CheckShown::of(finding.checked), Contents::new(view.read)).map(Ok)
}

/// Why nothing came of a file.
#[derive(Debug)]
pub enum FileStop {
    /// The operation is refused, or the store cannot be read.
    Stop(Stop),
    /// The file cannot be written or read.
    Io(io::Error),
}

impl From<io::Error> for FileStop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ReadError> for FileStop {
    fn from(error: ReadError) -> Self {
        Self::Stop(error.into())
    }
}

impl From<Refusal> for FileStop {
    fn from(refusal: Refusal) -> Self {
        Self::Stop(refusal.into())
    }
}
