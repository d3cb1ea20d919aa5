//! Files of mode 0600 that are whole or absent, also after a crash.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Writes `bytes` to `temporary`, syncs it and renames it to `path`. The rename is on disk once the directory has been
/// synced, which is left to the caller: several files in one directory need that once.
pub(crate) fn write(temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = (|| {
        remove_if_there(temporary)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(temporary, path)
    })();
    written.inspect_err(|_| {
        let _ = fs::remove_file(temporary);
    })
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes a directory of mode 0700 if there is none; whether there was none.
pub(crate) fn make_dir(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// The same, and its entry in the directory above is on disk if it was made.
pub(crate) fn make_durable_dir(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if make_dir(path)? => sync_dir(parent),
        _ => Ok(()),
    }
}

/// Removes a file; whether there was one.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The names in a directory that are text; none if the directory is absent.
pub(crate) fn names(path: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        // Every name that kwoon writes is ASCII; others are foreign.
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}
