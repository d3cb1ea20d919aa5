//! Key files: 0600 in a directory that is 0700, refused when looser.

mod layer;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use minicbor::bytes::{ByteArray, ByteVec};
use minicbor::{Decode, Encode};
use zeroize::Zeroizing;

use crate::cbor;
use crate::id::{AgentId, BASE32};
use crate::pair::{KeyPair, SealedBoxKey};
use crate::secret::{InstanceKeys, RequestSecret};

pub use layer::{FileLayer, Os};

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Others than the owner may read or write it.
    #[error("{path} has mode {mode:04o}, which lets others in; run: chmod {wanted:04o} {path}")]
    TooLoose {
        /// The file or directory.
        path: PathBuf,
        /// The mode it has.
        mode: u32,
        /// The mode it must have.
        wanted: u32,
    },
    /// Not a key file of the expected kind and version.
    #[error("{path} is not a {kind} key file of a version this kwoon knows; restore it from a backup")]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// What was expected.
        kind: &'static str,
    },
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> FileError + '_ {
    move |source| FileError::Io { path: path.to_owned(), source }
}

/// Fills 32 bytes from the operating system.
///
/// # Errors
/// If the operating system gives none.
pub fn random() -> io::Result<Zeroizing<[u8; 32]>> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(bytes.as_mut()).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// Makes a directory with mode 0700, or checks that an existing one is not looser.
///
/// # Errors
/// See [`FileError`].
pub fn private_dir(layer: &dyn FileLayer, path: &Path) -> Result<(), FileError> {
    match layer.make_dir(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_private(path, 0o700),
        Err(source) => Err(FileError::Io { path: path.to_owned(), source }),
    }
}

/// Checks that nobody but the owner has any right on `path`.
///
/// # Errors
/// [`FileError::TooLoose`] otherwise.
pub fn check_private(path: &Path, wanted: u32) -> Result<(), FileError> {
    let mode = fs::metadata(path).map_err(io_error(path))?.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(FileError::TooLoose { path: path.to_owned(), mode, wanted }) }
}

/// Writes `bytes` to a file of mode 0600 at `temporary`, syncs it and renames it to `path`, so that after a crash either
/// the old or the new content is there, and never a part. The rename is on disk once the directory has been synced, which
/// is left to the caller: several files in one directory need that once.
///
/// # Errors
/// If the operating system refuses. What was there at `temporary` is then gone.
pub fn replace(layer: &dyn FileLayer, temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = (|| {
        remove_if_there(layer, temporary)?;
        let mut file = layer.create(temporary)?;
        layer.write(temporary, &mut file, bytes)?;
        layer.sync(temporary, &file)?;
        layer.rename(temporary, path)
    })();
    written.inspect_err(|_| {
        let _ = layer.remove(temporary);
    })
}

/// Removes a file; whether there was one.
///
/// # Errors
/// If the operating system refuses.
pub fn remove_if_there(layer: &dyn FileLayer, path: &Path) -> io::Result<bool> {
    match layer.remove(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes a file of mode 0600 so that after a crash either the old or the new content is there, and it is on disk
/// when this returns.
///
/// # Errors
/// If the operating system refuses.
pub fn write_private(layer: &dyn FileLayer, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let written = replace(layer, &parent.join(name), path, bytes).and_then(|()| layer.sync_dir(parent));
    written.map_err(io_error(path))
}

/// Reads a file of mode 0600, at most 64 KiB of it.
///
/// # Errors
/// If it is looser, or the operating system refuses.
pub fn read_private(path: &Path) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let file = File::open(path).map_err(io_error(path))?;
    let metadata = file.metadata().map_err(io_error(path))?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(FileError::TooLoose { path: path.to_owned(), mode, wanted: 0o600 });
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    file.take(64 << 10).read_to_end(&mut bytes).map_err(io_error(path))?;
    Ok(bytes)
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct InstanceFile {
    #[n(0)]
    agent: AgentId,
    #[n(1)]
    signing: ByteArray<32>,
    #[n(2)]
    opening: ByteArray<32>,
    #[n(3)]
    secrets: Vec<ByteVec>,
}

fn header(kind: &str) -> String {
    format!("kwoon {kind} key, version 1\n")
}

fn write_key(layer: &dyn FileLayer, path: &Path, kind: &str, payload: &[u8]) -> Result<(), FileError> {
    let mut text = Zeroizing::new(header(kind).into_bytes());
    text.extend_from_slice(Zeroizing::new(BASE32.encode(payload)).as_bytes());
    text.push(b'\n');
    write_private(layer, path, &text)
}

/// The payload of a key file of this kind.
fn payload(bytes: &[u8], kind: &str) -> Option<Zeroizing<Vec<u8>>> {
    let body = bytes.strip_prefix(header(kind).as_bytes())?;
    let body = body.strip_suffix(b"\n").unwrap_or(body);
    BASE32.decode(body).map(Zeroizing::new).ok()
}

/// Writes the key of an owner or a host (`kind`).
///
/// # Errors
/// See [`FileError`].
pub fn write_pair(layer: &dyn FileLayer, path: &Path, kind: &'static str, pair: &KeyPair) -> Result<(), FileError> {
    write_key(layer, path, kind, pair.seed().as_ref())
}

/// Reads the key of an owner or a host.
///
/// # Errors
/// See [`FileError`].
pub fn read_pair(path: &Path, kind: &'static str) -> Result<KeyPair, FileError> {
    pair_of(&read_private(path)?, kind).ok_or_else(|| FileError::NotAKey { path: path.to_owned(), kind })
}

/// The key of an owner or a host (`kind`) from the content of its file; nothing if it is another's.
pub fn pair_of(bytes: &[u8], kind: &str) -> Option<KeyPair> {
    let seed = payload(bytes, kind)?;
    Some(KeyPair::from_seed(seed.as_slice().try_into().ok()?))
}

/// Writes the keys of an agent's instance.
///
/// # Errors
/// See [`FileError`].
pub fn write_instance(layer: &dyn FileLayer, path: &Path, keys: &InstanceKeys) -> Result<(), FileError> {
    let file = InstanceFile {
        agent: keys.agent,
        signing: (*keys.signing.seed()).into(),
        opening: (*keys.opening.seed()).into(),
        secrets: keys.secrets.iter().map(|secret| secret.bytes().to_vec().into()).collect(),
    };
    write_key(layer, path, "instance", &Zeroizing::new(cbor::write(&file)))
}

/// Reads the keys of an agent's instance.
///
/// # Errors
/// See [`FileError`].
pub fn read_instance(path: &Path) -> Result<InstanceKeys, FileError> {
    let not_a_key = || FileError::NotAKey { path: path.to_owned(), kind: "instance" };
    instance_of(&read_private(path)?).ok_or_else(not_a_key)
}

/// The keys of an agent's instance from the content of their file; nothing if it is another's.
pub fn instance_of(bytes: &[u8]) -> Option<InstanceKeys> {
    let payload = payload(bytes, "instance")?;
    let file: InstanceFile = cbor::read_strict(&payload).ok()?;
    let mut secrets = Vec::new();
    for secret in &file.secrets {
        secrets.push(RequestSecret::new(secret.as_slice().try_into().ok()?));
    }
    let keys = InstanceKeys {
        agent: file.agent,
        signing: KeyPair::from_seed(&file.signing),
        opening: SealedBoxKey::from_seed(*file.opening),
        secrets,
    };
    (!keys.secrets.is_empty()).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_and_loose_files_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("host.key");
        let pair = KeyPair::from_seed(&[3; 32]);
        write_pair(&Os, &path, "host", &pair).expect("written");
        assert_eq!(read_pair(&path, "host").expect("read").public(), pair.public());
        assert!(matches!(read_pair(&path, "owner"), Err(FileError::NotAKey { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
        let error = read_pair(&path, "host").expect_err("too loose");
        assert!(error.to_string().contains("chmod 0600"), "{error}");
    }

    #[test]
    fn instance_keys_read_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.key");
        let keys = InstanceKeys {
            agent: AgentId::of(&[b"a"]),
            signing: KeyPair::from_seed(&[1; 32]),
            opening: SealedBoxKey::from_seed([2; 32]),
            secrets: vec![RequestSecret::new([3; 32]), RequestSecret::new([4; 32])],
        };
        write_instance(&Os, &path, &keys).expect("written");
        let read = read_instance(&path).expect("read");
        assert_eq!(read.agent, keys.agent);
        assert_eq!(read.signing.public(), keys.signing.public());
        assert_eq!(read.opening.public(), keys.opening.public());
        assert_eq!(*read.secret().1.bytes(), [4; 32]);
        let debug = format!("{read:?}");
        assert!(!debug.contains("[3, 3") && !debug.contains("0303"), "{debug}");
    }

    #[test]
    fn a_private_directory_is_made_or_checked() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("home");
        private_dir(&Os, &path).expect("made");
        private_dir(&Os, &path).expect("checked");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
        assert!(matches!(private_dir(&Os, &path), Err(FileError::TooLoose { .. })));
    }
}
