//! Making a home.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use kwoon_keys::KeyPair;
use kwoon_keys::files::{self as key_files, FileLayer};

use super::{AGENT_KEYS, FORMAT, FORMAT_PREFIX, HOME_VERSION, HOST_KEY, KEYS, OWNER_KEY, STORE, TOKENS};
use crate::content::CONTENT;
use crate::disk;
use crate::error::OpenError;
use crate::home::CLEAN;

/// Makes the directory of a home, and those above it, with mode 0700 each.
pub(super) fn directory(layer: &dyn FileLayer, path: &Path) -> Result<(), OpenError> {
    let parent = path.parent().unwrap_or(path);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
    made.map_err(|error| OpenError::io(parent, error))?;
    key_files::private_dir(layer, path)?;
    layer.sync_dir(parent).map_err(|error| OpenError::io(parent, error))
}

/// Makes everything in the locked directory of a home that has nothing of it yet.
pub(super) fn home(layer: &Arc<dyn FileLayer>, path: &Path) -> Result<(), OpenError> {
    parts(layer, path).inspect_err(|_| {
        // None of these was there before, so none holds anything but what was made just now. What cannot be removed
        // shows as a half-made home at the next try.
        for file in [FORMAT, CLEAN, STORE] {
            let _ = fs::remove_file(path.join(file));
        }
        for dir in [KEYS, TOKENS, CONTENT] {
            let _ = fs::remove_dir_all(path.join(dir));
        }
    })
}

fn parts(shared: &Arc<dyn FileLayer>, path: &Path) -> Result<(), OpenError> {
    let layer = &**shared;
    for dir in [KEYS, AGENT_KEYS, TOKENS, CONTENT] {
        key_files::private_dir(layer, &path.join(dir))?;
    }
    for (name, kind) in [(HOST_KEY, "host"), (OWNER_KEY, "owner")] {
        let seed = key_files::random().map_err(|error| OpenError::io(&path.join(name), error))?;
        key_files::write_pair(layer, &path.join(name), kind, &KeyPair::from_seed(&seed))?;
    }
    disk::make_store(path, Arc::clone(shared))?.end()?;
    layer.sync_dir(path).map_err(|error| OpenError::io(path, error))?;
    // Last, so that a home whose making broke off is told from a whole one.
    Ok(key_files::write_private(layer, &path.join(FORMAT), format!("{FORMAT_PREFIX}{HOME_VERSION}\n").as_bytes())?)
}
