//! Files that operations of the owner make and read on this machine.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use kwoon_ledger::refusal::Refusal;
use kwoon_store::{BackupError, BackupReport, DiskStore, Snapshot};
use kwoon_sync::answer::{Answer, Contents, internal};
use kwoon_sync::check::{self, Finding};
use kwoon_sync::file::{self, FileJob, FileStop, FileWork};
use kwoon_sync::operations::owner::BackupShown;
use kwoon_sync::view::View;

use crate::http::refused;

/// Does with a file what an operation wants: the answer, or what was found in the file if something of it is to be kept.
///
/// # Errors
/// The refusal, as the caller gets it.
pub(crate) fn carry_out(
    job: FileJob,
    view: &View<'_>,
    (store, snapshot): (&DiskStore, &Snapshot),
) -> Result<Result<Answer, Finding>, Refusal> {
    let path = Path::new(&job.path.0);
    let done = match job.work {
        FileWork::Backup => back_up(path, view, store, snapshot).map(Ok),
        FileWork::Export(export) => make(path, |file| export.write(view, file)).map(Ok),
        FileWork::Check => read(path, |file| Ok(file::answer(check::check(file, view.now)?, view)?)),
    };
    done.map_err(|stop| match stop {
        FileStop::Stop(stop) => refused(stop),
        FileStop::Io(error) => unusable(&error),
    })
}

/// Reads a file. Only a file: a pipe or a device could be waited for without an end.
fn read<T>(path: &Path, read: impl FnOnce(&mut dyn Read) -> Result<T, FileStop>) -> Result<T, FileStop> {
    if !fs::metadata(path)?.is_file() {
        return Err(Refusal::argument("path", "a file").into());
    }
    read(&mut BufReader::with_capacity(1 << 16, File::open(path)?))
}

/// Makes a copy of the home in a new directory.
fn back_up(path: &Path, view: &View<'_>, store: &DiskStore, snapshot: &Snapshot) -> Result<Answer, FileStop> {
    let report = make_directory(path, |directory| match store.back_up(snapshot, directory) {
        Ok(report) => Ok(report),
        Err(BackupError::Io(error)) => Err(error.into()),
        Err(BackupError::Read(error)) => Err(error.into()),
        Err(error) => Err(io::Error::other(error).into()),
    })?;
    let BackupReport { facts, contents, contents_unreadable } = report;
    if contents_unreadable > 0 {
        tracing::warn!(contents_unreadable, "some contents are damaged or missing, and so not in the backup");
    }
    let shown = BackupShown { facts, contents, contents_unreadable };
    Ok(Answer::new(&shown, Contents::new(view.read))?)
}

/// The directory in which something of this path is to be made. Seen early that the path is free, so that nothing is
/// written in vain.
fn place_for(path: &Path) -> Result<&Path, FileStop> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    if !fs::metadata(directory)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory).into());
    }
    if fs::symlink_metadata(path).is_ok() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists).into());
    }
    Ok(directory)
}

/// Makes a directory of mode 0700. It is whole and on disk when this returns, or not there.
fn make_directory<T>(path: &Path, fill: impl FnOnce(&Path) -> Result<T, FileStop>) -> Result<T, FileStop> {
    let above = place_for(path)?;
    let name = path.file_name().unwrap_or_default();
    let closed = fs::Permissions::from_mode(0o700);
    let temporary = tempfile::Builder::new().prefix(name).suffix(".new").permissions(closed).tempdir_in(above)?;
    let made = fill(temporary.path())?;
    // Over a directory that came meanwhile this fails, unless that is empty.
    fs::rename(temporary.path(), path)?;
    let _ = temporary.keep();
    File::open(above).and_then(|directory| directory.sync_all())?;
    Ok(made)
}

/// Makes a file of mode 0600. It is whole and on disk when this returns, or not there.
fn make<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T, FileStop>) -> Result<T, FileStop> {
    // The renaming looks again.
    let directory = place_for(path)?;
    let name = path.file_name().unwrap_or_default();
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
        io::ErrorKind::AlreadyExists => "a path where nothing is yet",
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "a file or directory that is there",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "a file or directory that the daemon may use"
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn write_it(file: &mut dyn Write) -> Result<u32, FileStop> {
        file.write_all(b"it")?;
        Ok(7)
    }

    fn io_error(stopped: Result<u32, FileStop>) -> io::ErrorKind {
        match stopped {
            Err(FileStop::Io(error)) => error.kind(),
            other => panic!("no error of a file: {other:?}"),
        }
    }

    #[test]
    fn a_file_is_made_whole_and_for_its_owner_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        assert_eq!(make(&path, write_it).expect("made"), 7);
        assert_eq!(fs::read(&path).expect("readable"), b"it");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(names(directory.path()), ["log"]);
    }

    #[test]
    fn a_file_that_cannot_be_written_to_its_end_is_not_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let full = |file: &mut dyn Write| {
            file.write_all(&[0; 200_000])?;
            Err(io::Error::from(io::ErrorKind::StorageFull).into())
        };
        assert_eq!(io_error(make(&path, full)), io::ErrorKind::StorageFull);
        assert_eq!(names(directory.path()), [""; 0]);
        let refusal = unusable(&io::ErrorKind::StorageFull.into());
        assert_eq!(refusal, Refusal::argument("path", "a file on a disk with room for it"));
    }

    #[test]
    fn a_directory_is_made_whole_and_for_its_owner_alone() {
        let above = tempfile::tempdir().expect("a directory");
        let path = above.path().join("copy");
        let broken = |directory: &Path| {
            fs::write(directory.join("part"), "x")?;
            Err(io::Error::from(io::ErrorKind::StorageFull).into())
        };
        assert_eq!(io_error(make_directory(&path, broken)), io::ErrorKind::StorageFull);
        assert_eq!(names(above.path()), [""; 0]);
        let whole = |directory: &Path| Ok(fs::write(directory.join("part"), "x").map(|()| 7)?);
        assert_eq!(make_directory(&path, whole).expect("made"), 7);
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o700);
        assert_eq!(names(&path), ["part"]);
        assert_eq!(io_error(make_directory(&path, whole)), io::ErrorKind::AlreadyExists);
        assert_eq!(names(above.path()), ["copy"]);
    }

    #[test]
    fn what_is_there_already_stays_whenever_it_came() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, link) = (directory.path().join("log"), directory.path().join("link"));
        symlink("nowhere", &link).expect("a link");
        assert_eq!(io_error(make(&link, write_it)), io::ErrorKind::AlreadyExists);
        // Another comes while it is written.
        let late = |file: &mut dyn Write| {
            fs::write(&path, "another's")?;
            write_it(file)
        };
        assert_eq!(io_error(make(&path, late)), io::ErrorKind::AlreadyExists);
        assert_eq!(io_error(make(&path, write_it)), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).expect("readable"), b"another's");
        assert_eq!(names(directory.path()), ["link", "log"]);
    }

    #[test]
    fn a_directory_must_be_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("none/log");
        assert_eq!(io_error(make(&path, write_it)), io::ErrorKind::NotFound);
        fs::write(directory.path().join("none"), "a file").expect("written");
        assert_eq!(io_error(make(&path, write_it)), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn only_a_file_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let read_all = |path: &Path| {
            read(path, |file| {
                let mut bytes = Vec::new();
                Ok(file.read_to_end(&mut bytes)?)
            })
        };
        let path = directory.path().join("log");
        fs::write(&path, "it").expect("written");
        assert_eq!(read_all(&path).expect("read"), 2);
        for other in [directory.path(), Path::new("/dev/zero")] {
            assert!(matches!(read_all(other), Err(FileStop::Stop(_))), "{}", other.display());
        }
    }
}
