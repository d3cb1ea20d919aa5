use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use kwoon_keys::files::{Os, write_instance};
use kwoon_keys::secret::{InstanceKeys, RequestSecret};
use kwoon_keys::{KeyPair, SealedBoxKey};
use tempfile::TempDir;

use super::*;
use crate::STORE_VERSION;
use crate::disk::{CACHE_BYTES_DEFAULT, DiskStore};
use crate::error::TokenError;
use crate::lock::LOCK;

/// A directory for a home, and its path, which does not exist yet.
fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("home");
    (dir, path)
}

/// A home that was made, opened and closed.
fn made() -> (TempDir, PathBuf) {
    let (dir, path) = place();
    let home = Home::open(&path, OpenMode::MakeIfMissing).unwrap();
    DiskStore::open(&home, CACHE_BYTES_DEFAULT).unwrap().close().unwrap();
    (dir, path)
}

/// Everything below a directory: name, kind and mode, length, time of change. The lock file is left out.
fn listing(path: &Path) -> Vec<(PathBuf, u32, u64, i64, i64)> {
    let mut all = Vec::new();
    let mut rest = vec![path.to_owned()];
    while let Some(path) = rest.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        if path.file_name() != Some(LOCK.as_ref()) {
            all.push((path, metadata.mode(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()));
        }
    }
    all.sort();
    all
}

fn open(path: &Path, mode: OpenMode) -> Result<(Home, DiskStore), OpenError> {
    let home = Home::open(path, mode)?;
    let store = DiskStore::open(&home, CACHE_BYTES_DEFAULT)?;
    Ok((home, store))
}

/// Opens home and store in both modes, which must fail alike and leave everything as it was.
fn refused(path: &Path) -> OpenError {
    let before = listing(path);
    let error = open(path, OpenMode::MakeIfMissing).unwrap_err();
    assert_eq!(listing(path), before, "{error}");
    let other = open(path, OpenMode::Existing).unwrap_err();
    assert_eq!(listing(path), before, "{error}");
    assert_eq!(error.to_string(), other.to_string());
    error
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn instance(n: u8) -> InstanceKeys {
    InstanceKeys {
        agent: AgentId::of(&[&[n]]),
        signing: KeyPair::from_seed(&[n; 32]),
        opening: SealedBoxKey::from_seed([n; 32]),
        secrets: vec![RequestSecret::new([n; 32])],
    }
}

#[test]
fn a_home_is_made_once_and_keeps_its_keys() {
    let (_dir, path) = place();
    let home = Home::open(&path.join("below"), OpenMode::MakeIfMissing).unwrap();
    let (host, owner) = (home.host_key().unwrap().public(), home.owner_key().unwrap().public());
    assert_ne!(host, owner);
    assert_eq!(fs::read_to_string(home.path().join(FORMAT)).unwrap(), "kwoon home, version 1\n");
    for (path, mode, ..) in listing(home.path()) {
        let private = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode & 0o777, private, "{}", path.display());
    }
    drop(home);
    let home = Home::open(&path.join("below"), OpenMode::MakeIfMissing).unwrap();
    assert_eq!(home.host_key().unwrap().public(), host);
    assert_eq!(home.owner_key().unwrap().public(), owner);
}

#[test]
fn without_a_home_none_is_made_unless_asked() {
    let (_dir, path) = place();
    let error = Home::open(&path, OpenMode::Existing).unwrap_err();
    assert!(matches!(error, OpenError::NoHome { .. }) && error.to_string().contains("kwoon up"), "{error}");
    assert!(!path.exists());
    fs::create_dir(&path).unwrap();
    chmod(&path, 0o700);
    assert!(matches!(Home::open(&path, OpenMode::Existing), Err(OpenError::NoHome { .. })));
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "not even a lock file");
    fs::write(path.join("file"), "").unwrap();
    let error = Home::open(&path.join("file"), OpenMode::MakeIfMissing).unwrap_err();
    assert!(matches!(error, OpenError::NotADirectory { .. }), "{error}");
}

#[test]
fn foreign_files_stay_as_they_are() {
    let (_dir, path) = place();
    fs::create_dir(&path).unwrap();
    chmod(&path, 0o700);
    fs::write(path.join("notes.new"), "mine").unwrap();
    open(&path, OpenMode::MakeIfMissing).unwrap();
    fs::write(path.join("keys/agents/agt_mine.key"), "mine").unwrap();
    fs::write(path.join("content/readme"), "mine").unwrap();
    open(&path, OpenMode::Existing).unwrap();
    for name in ["notes.new", "keys/agents/agt_mine.key", "content/readme"] {
        assert_eq!(fs::read_to_string(path.join(name)).unwrap(), "mine");
    }
}

#[test]
fn what_lets_others_in_is_refused() {
    let (_dir, path) = made();
    let agents = path.join(AGENT_KEYS);
    write_instance(&Os, &instance_key_path(&path, &instance(1).agent), &instance(1)).unwrap();
    let agent_key = fs::read_dir(&agents).unwrap().next().unwrap().unwrap().path();
    for (place, loose, right) in [
        (path.clone(), 0o710, 0o700),
        (path.join(HOST_KEY), 0o640, 0o600),
        (path.join(OWNER_KEY), 0o604, 0o600),
        (agent_key, 0o660, 0o600),
    ] {
        chmod(&place, loose);
        let error = refused(&path);
        assert!(
            matches!(&error, OpenError::TooLoose { path, mode, .. } if *path == place && *mode == loose),
            "{error}"
        );
        assert!(error.to_string().ends_with(&format!("chmod {right:04o} {}", place.display())), "{error}");
        chmod(&place, right);
    }
    open(&path, OpenMode::Existing).unwrap();
}

#[test]
fn a_second_opener_is_told_who_holds_the_home() {
    let (_dir, path) = made();
    let (home, store) = open(&path, OpenMode::Existing).unwrap();
    let error = refused(&path);
    assert!(matches!(error, OpenError::InUse { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    assert!(matches!(DiskStore::open(&home, CACHE_BYTES_DEFAULT), Err(OpenError::InUse { .. })));
    drop(home);
    assert!(matches!(Home::open(&path, OpenMode::Existing), Err(OpenError::InUse { .. })), "the store is still open");
    drop(store);
    open(&path, OpenMode::Existing).unwrap();
}

#[test]
fn a_home_that_is_being_made_is_in_use_and_not_half_made() {
    let (_dir, path) = made();
    let lock = Lock::existing(&path).unwrap().unwrap();
    fs::write(path.join(LOCK), "").unwrap();
    fs::remove_file(path.join(FORMAT)).unwrap();
    let error = refused(&path);
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(lock);
    assert!(matches!(refused(&path), OpenError::HalfMade { .. }));
}

#[test]
fn half_a_home_is_refused_with_what_is_missing() {
    for part in [FORMAT, HOST_KEY, OWNER_KEY, STORE] {
        let (_dir, path) = made();
        fs::remove_file(path.join(part)).unwrap();
        let error = refused(&path);
        assert!(matches!(&error, OpenError::HalfMade { missing, .. } if *missing == [part]), "{error}");
        assert!(error.to_string().contains(&format!("{part} is missing")), "{error}");
        fs::remove_file(path.join(LOCK)).unwrap();
        refused(&path);
        assert!(!path.join(LOCK).exists());
    }
}

#[test]
fn a_making_that_fails_leaves_nothing() {
    let (_dir, path) = place();
    // In the way of the last file that is written.
    fs::create_dir_all(path.join("format.new")).unwrap();
    chmod(&path, 0o700);
    Home::open(&path, OpenMode::MakeIfMissing).unwrap_err();
    let mut names = files::names(&path).unwrap();
    names.sort();
    assert_eq!(names, ["format.new", LOCK]);
    fs::remove_dir(path.join("format.new")).unwrap();
    open(&path, OpenMode::MakeIfMissing).unwrap();
}

#[test]
fn a_home_of_a_newer_version_is_refused() {
    let (_dir, path) = made();
    fs::write(path.join(FORMAT), "kwoon home, version 2\nand more\n").unwrap();
    let error = refused(&path);
    assert!(matches!(error, OpenError::NewerVersion { found: 2, known: HOME_VERSION, .. }), "{error}");
    assert!(error.to_string().contains("version 2") && error.to_string().contains("newer kwoon"), "{error}");
    for text in ["", "kwoon home, version 0\n", "kwoon home, version x\n", "something else\n"] {
        fs::write(path.join(FORMAT), text).unwrap();
        assert!(matches!(refused(&path), OpenError::Damaged { .. }), "{text}");
    }
}

#[test]
fn a_store_of_a_newer_version_is_refused() {
    for clean in [true, false] {
        let (_dir, path) = made();
        let (_, store) = open(&path, OpenMode::Existing).unwrap();
        store.set_version(&(STORE_VERSION + 1).to_be_bytes());
        let crashed = fs::read(path.join(STORE)).unwrap();
        if clean {
            store.close().unwrap();
        } else {
            drop(store);
            // As kill -9 leaves it: the next open would have to repair it.
            fs::write(path.join(STORE), crashed).unwrap();
        }
        let error = refused(&path);
        assert!(
            matches!(error, OpenError::NewerVersion { found, known: STORE_VERSION, .. } if found == STORE_VERSION + 1),
            "{error}"
        );
    }
}

#[test]
fn a_damaged_store_is_refused() {
    let (_dir, path) = made();
    let good = fs::read(path.join(STORE)).unwrap();
    fs::write(path.join("keys/host.key.new"), "left over").unwrap();
    let zeroed = vec![0; good.len()];
    for bad in [&[][..], b"not a store", &zeroed, &good[..5000]] {
        fs::write(path.join(STORE), bad).unwrap();
        let error = refused(&path);
        assert!(matches!(error, OpenError::Damaged { .. }) && error.to_string().contains("backup"), "{error}");
    }
    fs::write(path.join(STORE), good).unwrap();
    open(&path, OpenMode::Existing).unwrap();
}

#[test]
fn a_key_file_that_is_none_is_refused() {
    let (_dir, path) = made();
    fs::write(path.join(OWNER_KEY), "kwoon owner key, version 2\nabc\n").unwrap();
    assert!(matches!(refused(&path), OpenError::NotAKey { kind: "owner", .. }));
}

#[test]
fn a_home_on_a_read_only_disk_is_refused() {
    let (_dir, path) = made();
    chmod(&path.join(LOCK), 0o400);
    chmod(&path.join(STORE), 0o400);
    // Permissions do not bind the superuser, under whom only the mapping of the error is tested (in `error`).
    if File::options().write(true).open(path.join(LOCK)).is_err() {
        assert!(matches!(refused(&path), OpenError::ReadOnly { .. }));
        chmod(&path.join(LOCK), 0o600);
        assert!(matches!(refused(&path), OpenError::ReadOnly { .. }));
    }
}

#[test]
fn leftovers_are_removed_once_the_home_is_found_good() {
    let (_dir, path) = made();
    let key = format!("{AGENT_KEYS}/{}.key.new", instance(1).agent);
    let leftovers = ["format.new", "clean.new", "keys/host.key.new", "keys/owner.key.new", "tokens/.a.new", &key];
    for name in leftovers {
        fs::write(path.join(name), "half").unwrap();
    }
    let home = Home::open(&path, OpenMode::Existing).unwrap();
    let token = home.ensure_token("a.new").unwrap();
    DiskStore::open(&home, CACHE_BYTES_DEFAULT).unwrap();
    for name in leftovers {
        assert!(!path.join(name).exists(), "{name}");
    }
    assert_eq!(home.ensure_token("a.new").unwrap(), token, "that is an agent's name");
}

#[test]
fn instance_keys_are_listed_by_agent_and_removed() {
    let (_dir, path) = made();
    let home = Home::open(&path, OpenMode::Existing).unwrap();
    let mut agents: Vec<AgentId> = (0..5).map(|n| instance(n).agent).collect();
    for n in 0..5 {
        write_instance(&Os, &instance_key_path(&path, &instance(n).agent), &instance(n)).unwrap();
    }
    let listed = |home: &Home| home.instance_keys().unwrap().iter().map(|keys| keys.agent).collect::<Vec<_>>();
    agents.sort();
    assert_eq!(listed(&home), agents);
    home.set_aside_instance_keys(&agents[2]).unwrap();
    home.set_aside_instance_keys(&agents[2]).unwrap();
    agents.remove(2);
    assert_eq!(listed(&home), agents);
    fs::rename(instance_key_path(&path, &agents[0]), instance_key_path(&path, &agents[1])).unwrap();
    assert!(matches!(home.instance_keys(), Err(FileError::NotAKey { .. })));
}

#[test]
fn a_token_is_made_once_and_checked() {
    let (_dir, path) = made();
    let home = Home::open(&path, OpenMode::Existing).unwrap();
    let token = home.ensure_token("owner").unwrap();
    assert!(token.starts_with("kwn_") && token.len() == 56, "{}", token.len());
    assert_eq!(*home.ensure_token("owner").unwrap(), *token);
    assert_ne!(*home.ensure_token("other").unwrap(), *token);
    let file = home.tokens_dir().join("owner");
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("{}\n", *token));
    fs::write(&file, token.as_bytes()).unwrap();
    assert_eq!(*home.ensure_token("owner").unwrap(), *token, "the newline may be missing");
    for bad in ["", "\n", "kwn_\n", &token[..55], &format!("{}\n\n", *token), &token.to_uppercase()] {
        fs::write(&file, bad).unwrap();
        let error = home.ensure_token("owner").unwrap_err();
        assert!(matches!(error, TokenError::NotAToken { .. }) && error.to_string().contains("delete it"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), bad);
    }
    chmod(&file, 0o644);
    assert!(matches!(home.ensure_token("owner"), Err(TokenError::File(FileError::TooLoose { .. }))));
    assert!(matches!(home.ensure_token("../keys/host.key"), Err(TokenError::Name)));
}
