//! A copy of a home that is in use.
//!
//! A backup is a home itself, of one state of the store: the primary tables, the content, keys, tokens and the owner's
//! configuration. The table `derived` is not in it. Whoever opens it first makes that anew, and so decides every fact
//! again before anything is believed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kwoon_keys::Digest;
use kwoon_keys::files::{self as key_files, FileError, FileLayer, Os};
use kwoon_ledger::storage::{Batch, Order, Read, ReadError, Store, Table, WriteError};

use crate::disk::{DiskStore, Snapshot, make_store};
use crate::error::OpenError;
use crate::files;
use crate::home::{AGENT_KEYS, CONFIG, FORMAT, KEYS, TOKENS};
use crate::rebuild::UNDER_WAY;
use crate::{DISK_FULL, VERSION_KEY};

/// Rows, or contents, that are read at a time.
const CHUNK: usize = 256;
/// Bytes that are written at a time, beside the last row.
const BATCH_BYTES: usize = 4 << 20;

/// What a backup holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Facts, of all objects.
    pub facts: u64,
    /// Contents.
    pub contents: u64,
    /// Contents that could not be read, because they are damaged or missing, and that are not in the backup.
    pub contents_unreadable: u64,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The operating system refused: the disk is full, say.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The copy cannot be made.
    #[error("{0}")]
    Copy(String),
}

impl From<WriteError> for BackupError {
    fn from(error: WriteError) -> Self {
        if error.reason.starts_with(DISK_FULL) {
            io::Error::from(io::ErrorKind::StorageFull).into()
        } else {
            Self::Copy(error.to_string())
        }
    }
}

impl From<OpenError> for BackupError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::DiskFull { .. } => io::Error::from(io::ErrorKind::StorageFull).into(),
            other => Self::Copy(other.to_string()),
        }
    }
}

impl From<FileError> for BackupError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Io { source, .. } => source.into(),
            other => Self::Copy(other.to_string()),
        }
    }
}

impl DiskStore {
    /// Makes a home in the empty directory `to`, which only its owner may enter, of what of this store's home cannot be
    /// made anew, in the state of a snapshot. All of it is on disk when this returns.
    ///
    /// # Errors
    /// If it cannot be read or written. What was made in the directory by then is to be removed.
    pub fn back_up(&self, snapshot: &Snapshot, to: &Path) -> Result<BackupReport, BackupError> {
        // Keys are on disk before the commit that needs them, so none that the snapshot needs is missing.
        for dir in [KEYS, AGENT_KEYS, TOKENS] {
            copy_files(&self.home_path().join(dir), &to.join(dir))?;
        }
        if let Some(text) = read_if_there(&self.home_path().join(CONFIG))? {
            key_files::write_private(&Os, &to.join(CONFIG), &text)?;
        }
        let copy = make_store(to, Arc::new(Os))?;
        let report = copy_tables(snapshot, &copy)?;
        copy.close()?;
        Os.sync_dir(to)?;
        // Last, so that a copy that broke off is no home.
        let format = fs::read(self.home_path().join(FORMAT))?;
        key_files::write_private(&Os, &to.join(FORMAT), &format)?;
        Ok(report)
    }
}

/// Copies the files of a directory, not those of directories in it.
fn copy_files(from: &Path, to: &Path) -> Result<(), BackupError> {
    key_files::private_dir(&Os, to)?;
    for name in files::names(from)? {
        let path: PathBuf = from.join(&name);
        // What is being written has another name for a moment, and may be gone by now.
        if name.ends_with(".new") || !path.is_file() {
            continue;
        }
        key_files::write_private(&Os, &to.join(&name), &key_files::read_private(&path)?)?;
    }
    Ok(())
}

fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes what it is given in batches.
struct Copying<'a> {
    to: &'a DiskStore,
    batch: Batch,
    bytes: usize,
}

impl Copying<'_> {
    fn wrote(&mut self, bytes: usize) -> Result<(), WriteError> {
        self.bytes += bytes;
        if self.bytes < BATCH_BYTES {
            return Ok(());
        }
        self.bytes = 0;
        self.to.commit(std::mem::take(&mut self.batch))
    }
}

fn copy_tables(from: &Snapshot, to: &DiskStore) -> Result<BackupReport, BackupError> {
    let mut copying = Copying { to, batch: Batch::default(), bytes: 0 };
    let mut report = BackupReport::default();
    // First of all: without it, a copy would pass for one whose derived table is whole.
    copying.batch.rows.insert((Table::Meta, UNDER_WAY.to_vec()), Some(Vec::new()));
    for table in Table::ALL.into_iter().filter(|table| *table != Table::Derived) {
        let mut next = Vec::new();
        loop {
            let rows = from.range(table, &next, &[0xff; 80], Order::Rising, CHUNK)?;
            let Some((last, _)) = rows.last() else { break };
            next.clone_from(last);
            next.push(0);
            report.facts += if table == Table::Log { rows.len() as u64 } else { 0 };
            for (key, value) in rows {
                if table == Table::Meta && key == VERSION_KEY {
                    continue;
                }
                let bytes = key.len() + value.len();
                copying.batch.rows.insert((table, key), Some(value));
                copying.wrote(bytes)?;
            }
        }
    }
    let mut next = Vec::new();
    loop {
        let hashes = from.content_hashes(&next, CHUNK)?;
        let Some(last) = hashes.last() else { break };
        next = last.as_bytes().to_vec();
        next.push(0);
        for hash in hashes {
            copy_content(from, hash, &mut copying, &mut report)?;
        }
    }
    let batch = copying.batch;
    to.commit(batch)?;
    Ok(report)
}

fn copy_content(
    from: &Snapshot,
    hash: Digest,
    copying: &mut Copying<'_>,
    report: &mut BackupReport,
) -> Result<(), BackupError> {
    // One text that is lost is no reason to lose all others.
    let Ok(Some((salt, bytes))) = from.content(&hash) else {
        report.contents_unreadable += 1;
        return Ok(());
    };
    report.contents += 1;
    let length = bytes.len();
    copying.batch.content.insert(hash, (salt, bytes));
    Ok(copying.wrote(length)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use kwoon_keys::{Commitment, Salt};

    use super::*;
    use crate::CACHE_BYTES_DEFAULT;
    use crate::home::{Home, OpenMode};

    fn content(bytes: &[u8]) -> (Digest, (Salt, Vec<u8>)) {
        let salt = Salt::new([3; 32]);
        (Commitment::to(&salt, bytes).hash, (salt, bytes.to_vec()))
    }

    fn directory(path: &Path) {
        key_files::private_dir(&Os, path).unwrap();
    }

    #[test]
    fn a_backup_is_a_home_with_the_primary_tables_of_one_state() {
        let dir = tempfile::tempdir().unwrap();
        let (at, to) = (dir.path().join("home"), dir.path().join("backup"));
        let home = Home::open(&at, OpenMode::MakeIfMissing).unwrap();
        fs::write(at.join(CONFIG), "[limits]\n").unwrap();
        let token = home.ensure_token("owner").unwrap();
        let store = DiskStore::open(&home, CACHE_BYTES_DEFAULT).unwrap();
        let (short, long) = (content(b"short"), content(&[7; 9000]));
        let mut batch = Batch::default();
        for n in 0..3000u16 {
            let key = n.to_be_bytes().to_vec();
            batch.rows.insert((Table::Envelopes, key.clone()), Some(vec![7; 3000]));
            batch.rows.insert((Table::Derived, key), Some(vec![9]));
        }
        batch.content.extend([short.clone(), long.clone()]);
        store.commit(batch).unwrap();
        let snapshot = store.snapshot().unwrap();
        let mut later = Batch::default();
        later.rows.insert((Table::Envelopes, vec![0xee; 3]), Some(vec![1]));
        store.commit(later).unwrap();

        directory(&to);
        let report = store.back_up(&snapshot, &to).unwrap();
        assert_eq!(report, BackupReport { facts: 0, contents: 2, contents_unreadable: 0 });

        let copied = Home::open(&to, OpenMode::Existing).unwrap();
        assert_eq!(copied.host_key().unwrap().public(), home.host_key().unwrap().public());
        assert_eq!(*copied.ensure_token("owner").unwrap(), *token);
        assert_eq!(fs::read_to_string(to.join(CONFIG)).unwrap(), "[limits]\n");
        for file in ["store.redb", "format", "keys/owner.key", "tokens/owner", "config.toml"] {
            assert_eq!(fs::metadata(to.join(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
        }
        let copy = DiskStore::open(&copied, CACHE_BYTES_DEFAULT).unwrap();
        let read = copy.snapshot().unwrap();
        assert_eq!(read.range(Table::Envelopes, &[], &[0xff; 80], Order::Rising, 9999).unwrap().len(), 3000);
        assert!(read.range(Table::Derived, &[], &[0xff; 80], Order::Rising, 9).unwrap().is_empty());
        assert_eq!(read.content(&short.0).unwrap(), Some(short.1));
        assert_eq!(read.content(&long.0).unwrap(), Some(long.1));
    }

    #[test]
    fn a_text_that_is_lost_is_counted_and_keeps_no_other_out() {
        let dir = tempfile::tempdir().unwrap();
        let (at, to) = (dir.path().join("home"), dir.path().join("backup"));
        let home = Home::open(&at, OpenMode::MakeIfMissing).unwrap();
        let store = DiskStore::open(&home, CACHE_BYTES_DEFAULT).unwrap();
        let (short, long) = (content(b"short"), content(&[7; 9000]));
        let mut batch = Batch::default();
        batch.content.extend([short, long.clone()]);
        store.commit(batch).unwrap();
        let hex = long.0.to_string();
        fs::remove_file(at.join("content").join(&hex[..2]).join(&hex)).unwrap();
        directory(&to);
        let report = store.back_up(&store.snapshot().unwrap(), &to).unwrap();
        assert_eq!(report, BackupReport { facts: 0, contents: 1, contents_unreadable: 1 });
    }
}
