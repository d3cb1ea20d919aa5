//! Content by commitment: short content beside the tables, longer content in files.
//!
//! A file lies at `content/<first two hex digits>/<64 hex digits>`, named by the hash of its commitment. It is on disk,
//! with the directories above it, before the row that refers to it is committed; a file without a row is an orphan of
//! a commit that did not come about.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kwoon_keys::files::{self as key_files, FileLayer};
use kwoon_keys::{Commitment, Digest, Salt};
use kwoon_ledger::storage::Batch;

use crate::fault::Fault;
use crate::files;

/// Content of up to this many bytes lies in the store's file, longer content in a file of its own.
pub const INLINE_BYTES_MAX: usize = 4096;

/// The name of the directory of content files in a home.
pub(crate) const CONTENT: &str = "content";

const INLINE: u8 = 0;
const IN_FILE: u8 = 1;

/// What a row of the table `content` says.
#[derive(Debug, PartialEq)]
pub(crate) enum Place<'a> {
    Inline(&'a [u8]),
    InFile,
}

/// The row for content: salt, one byte that says where the bytes are, and the bytes if they are here.
pub(crate) fn row(salt: &Salt, bytes: &[u8]) -> Vec<u8> {
    let mut row = salt.as_bytes().to_vec();
    if bytes.len() > INLINE_BYTES_MAX {
        row.push(IN_FILE);
    } else {
        row.push(INLINE);
        row.extend_from_slice(bytes);
    }
    row
}

/// Reads a row that [`row`] made; nothing if it did not.
pub(crate) fn read_row(row: &[u8]) -> Option<(Salt, Place<'_>)> {
    let (salt, rest) = row.split_first_chunk::<32>()?;
    let place = match rest.split_first()? {
        (&INLINE, bytes) => Place::Inline(bytes),
        (&IN_FILE, []) => Place::InFile,
        _ => return None,
    };
    Some((Salt::new(*salt), place))
}

/// Whether bytes are what a row of the table `content` may be.
pub fn is_content_row(bytes: &[u8]) -> bool {
    read_row(bytes).is_some()
}

/// Whether salt and bytes are what the commitment of this hash was made to.
pub(crate) fn opens(hash: &Digest, salt: &Salt, bytes: &[u8]) -> bool {
    Commitment::to(salt, bytes).hash == *hash
}

/// Refuses a batch with content under a commitment that was not made to it: read back, it would count as damaged.
pub(crate) fn check(batch: &Batch) -> Result<(), Fault> {
    match batch.content.iter().find(|(hash, (salt, bytes))| !opens(hash, salt, bytes)) {
        Some((hash, _)) => Err(Fault::Other(format!("content that does not open its commitment {hash}"))),
        None => Ok(()),
    }
}

/// The content files of one home.
#[derive(Debug)]
pub(crate) struct ContentFiles {
    dir: PathBuf,
    layer: Arc<dyn FileLayer>,
    /// Sub-directories whose own entry is known to be on disk. One that is merely there may be left from a process that
    /// ended between making it and syncing the directory above.
    durable: Mutex<BTreeSet<PathBuf>>,
    /// Content that was removed since the store was opened: who still reads an older state may look for it.
    removed: Mutex<BTreeSet<Digest>>,
}

impl ContentFiles {
    pub(crate) fn of(home: &Path, layer: Arc<dyn FileLayer>) -> Self {
        Self { dir: home.join(CONTENT), layer, durable: Mutex::default(), removed: Mutex::default() }
    }

    fn sub_dir(&self, hash: &Digest) -> PathBuf {
        self.dir.join(&hash.to_string()[..2])
    }

    pub(crate) fn path(&self, hash: &Digest) -> PathBuf {
        self.sub_dir(hash).join(hash.to_string())
    }

    /// Makes the longer content of a batch durable: all files first, then each directory once.
    pub(crate) fn write(&self, batch: &Batch) -> io::Result<()> {
        let layer = &*self.layer;
        let mut sub_dirs = BTreeSet::new();
        for (hash, (_, bytes)) in batch.content.iter().filter(|(_, (_, bytes))| bytes.len() > INLINE_BYTES_MAX) {
            let sub_dir = self.sub_dir(hash);
            if !sub_dirs.contains(&sub_dir) {
                files::make_dir(layer, &self.dir)?;
                files::make_dir(layer, &sub_dir)?;
            }
            key_files::replace(layer, &sub_dir.join(format!("{hash}.new")), &sub_dir.join(hash.to_string()), bytes)?;
            sub_dirs.insert(sub_dir);
            self.removed.lock().unwrap_or_else(PoisonError::into_inner).remove(hash);
        }
        for sub_dir in &sub_dirs {
            layer.sync_dir(sub_dir)?;
        }
        let mut durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        if !sub_dirs.is_subset(&durable) {
            layer.sync_dir(&self.dir)?;
            layer.sync_dir(self.dir.parent().expect("it was joined to a home"))?;
            durable.extend(sub_dirs);
        }
        Ok(())
    }

    /// The bytes of a content file; nothing if it was removed.
    pub(crate) fn read(&self, hash: &Digest) -> Result<Option<Vec<u8>>, Fault> {
        match fs::read(self.path(hash)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner).contains(hash);
                if removed { Ok(None) } else { Err(Fault::Damaged(format!("the content file {hash} is missing"))) }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes files of which no row speaks any more.
    pub(crate) fn remove(&self, dropped: &BTreeSet<Digest>) {
        if dropped.is_empty() {
            return;
        }
        self.removed.lock().unwrap_or_else(PoisonError::into_inner).extend(dropped);
        for hash in dropped {
            // One that cannot be removed is an orphan, which the next open removes.
            let _ = key_files::remove_if_there(&*self.layer, &self.path(hash));
        }
    }

    /// Removes files that no row refers to and what was being written when a process ended. Files of other names are
    /// foreign and stay.
    pub(crate) fn sweep(&self, referred: impl Fn(&Digest) -> Result<bool, Fault>) -> Result<(), Fault> {
        for sub_name in files::names(&self.dir)? {
            let sub_dir = self.dir.join(&sub_name);
            if sub_name.len() != 2 || !sub_dir.is_dir() {
                continue;
            }
            for name in files::names(&sub_dir)?.iter().filter(|name| name.starts_with(&sub_name)) {
                let orphan = match name.strip_suffix(".new") {
                    Some(stem) => hash_of(stem).is_some(),
                    None => match hash_of(name) {
                        Some(hash) => !referred(&hash)?,
                        None => false,
                    },
                };
                if orphan {
                    key_files::remove_if_there(&*self.layer, &sub_dir.join(name))?;
                }
            }
        }
        Ok(())
    }
}

/// The hash that a content file is named by.
fn hash_of(name: &str) -> Option<Digest> {
    // A public key is written in the same 64 lower-case hex digits.
    kwoon_keys::PublicKey::read(name).map(|bytes| Digest(bytes.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_reads_back_and_others_are_refused() {
        let salt = Salt::new([7; 32]);
        assert_eq!(read_row(&row(&salt, b"")), Some((salt, Place::Inline(b""))));
        assert_eq!(read_row(&row(&salt, &[1; INLINE_BYTES_MAX])), Some((salt, Place::Inline(&[1; INLINE_BYTES_MAX]))));
        let in_file = row(&salt, &[1; INLINE_BYTES_MAX + 1]);
        assert_eq!(read_row(&in_file), Some((salt, Place::InFile)));
        assert_eq!(read_row(&in_file[..32]), None);
        assert_eq!(read_row(&[&in_file[..], &[0]].concat()), None);
        assert_eq!(read_row(&[&[0; 32][..], &[2]].concat()), None);
    }
}
