//! Directories and names in a home.

use std::fs;
use std::io;
use std::path::Path;

use kwoon_keys::files::FileLayer;

/// Makes a directory of mode 0700 if there is none.
pub(crate) fn make_dir(layer: &dyn FileLayer, path: &Path) -> io::Result<()> {
    match layer.make_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// The same, and its entry in the directory above is on disk. One that is there is synced too: it may be left from a
/// process that was killed between making it and the sync.
pub(crate) fn make_durable_dir(layer: &dyn FileLayer, path: &Path) -> io::Result<()> {
    make_dir(layer, path)?;
    layer.sync_dir(path.parent().unwrap_or(path))
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
