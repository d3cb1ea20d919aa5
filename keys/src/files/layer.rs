//! The steps by which files come to be on disk, and go.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Every step by which kwoon changes files of its own, the tables' file aside. What each does if it is not overridden is
/// what the operating system does; a test puts a layer of its own between, that records the steps or lets one fail.
///
/// # Errors
/// Each step fails if the operating system refuses it.
pub trait FileLayer: fmt::Debug + Send + Sync {
    /// Makes a file of mode 0600 where there is none.
    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    /// Writes to a file that was just made.
    fn write(&self, _path: &Path, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    /// Waits until what a file holds is on disk. Its entry in its directory may not be.
    fn sync(&self, _path: &Path, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    /// Renames a file within its directory, over whatever has that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    /// Makes a directory of mode 0700 where there is none.
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    /// Waits until the entries of a directory are on disk, and what was removed is gone from it.
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// The operating system itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Os;

impl FileLayer for Os {}
