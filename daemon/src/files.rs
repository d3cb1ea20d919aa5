//! Files that operations of the owner make on this machine.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use kwoon_ledger::refusal::Refusal;
use kwoon_sync::answer::{Answer, internal};
use kwoon_sync::file::{FileJob, FileStop, FileWork};
use kwoon_sync::view::View;

use crate::http::refused;

/// Does with a file what an operation wants.
///
/// # Errors
/// The refusal, as the caller gets it.
pub(crate) fn carry_out(job: FileJob, view: &View<'_>) -> Result<Answer, Refusal> {
    let path = Path::new(&job.path.0);
    match job.work {
        FileWork::Export(export) => make(path, |file| export.write(view, file)),
    }
    .map_err(|stop| match stop {
        FileStop::Stop(stop) => refused(stop),
        FileStop::Io(error) => unusable(&error),
    })
}

/// Makes a file of mode 0600. It is whole and on disk when this returns, or not there.
fn make<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T, FileStop>) -> Result<T, FileStop> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default();
    if !fs::metadata(directory)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory).into());
    }
    // Seen early, so that nothing is written in vain; the renaming looks again.
    if fs::symlink_metadata(path).is_ok() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
    }
    let temporary = tempfile::Builder::new().prefix(name).suffix(".new").tempfile_in(directory)?;
    let mut file = BufWriter::with_capacity(1 << 16, temporary);
    let made = write(&mut file)?;
    let temporary = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    temporary.as_file().sync_all()?;
    temporary.persist_noclobber(path).map_err(|error| error.error)?;
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.inspect_err(|_| {
        let _ = fs::remove_file(path);
    })?;
    Ok(made)
}

/// What is wrong with a file, as a matter of the path that was given.
fn unusable(error: &io::Error) -> Refusal {
    let expected = match error.kind() {
        io::ErrorKind::AlreadyExists => "a file that is not there yet",
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "a file in a directory that is there",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "a file in a directory that the daemon may write to"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "a file on a disk with room for it"
        }
        io::ErrorKind::InvalidFilename => "a file name that the system takes",
        _ => {
            tracing::error!(%error, "a file of the owner's cannot be used");
            return internal();
        }
    };
    Refusal::argument("path", expected)
}
