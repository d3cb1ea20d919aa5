//! Homes that cannot be used: a clear message, the exit code 1, and nothing changed.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::daemon::{Daemon, cli};

/// Everything under a directory, with mode, size and time of change.
fn listing(root: &Path) -> Vec<(PathBuf, u32, u64, i64)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                open.push(path.clone());
            }
            // The lock is taken and let go; its content is the last holder's.
            if path.file_name().is_none_or(|name| name != "lock") {
                let size = if metadata.is_dir() { 0 } else { metadata.len() };
                found.push((path, metadata.mode(), size, metadata.mtime_nsec()));
            }
        }
    }
    found.sort();
    found
}

/// A home that was made and stopped.
fn made() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    Daemon::at(&home).stop();
    (directory, home)
}

fn refused(home: &Path, says: &[&str]) {
    let before = listing(home.parent().unwrap());
    let output = cli(home, &["serve"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    for word in says {
        assert!(message.contains(word), "{word:?} is missing: {message}");
    }
    assert_eq!(listing(home.parent().unwrap()), before, "nothing changed");
}

#[test]
fn a_home_in_use_says_by_which_process() {
    let daemon = Daemon::fresh();
    let output = daemon.cli(&["serve"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains(&daemon.pid().to_string()), "{message}");
}

#[test]
fn a_home_open_to_others_is_refused() {
    let (_directory, home) = made();
    fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
    refused(&home, &["0755", "chmod 0700"]);
}

#[test]
fn a_key_open_to_others_is_refused() {
    let (_directory, home) = made();
    fs::set_permissions(home.join("keys/owner.key"), Permissions::from_mode(0o644)).unwrap();
    refused(&home, &["owner.key", "chmod 0600"]);
}

#[test]
fn a_half_made_home_is_refused() {
    let (_directory, home) = made();
    fs::remove_file(home.join("format")).unwrap();
    refused(&home, &["format"]);
    let (_directory, home) = made();
    fs::remove_file(home.join("store.redb")).unwrap();
    refused(&home, &["store.redb"]);
}

#[test]
fn a_home_from_a_newer_version_is_refused() {
    let (_directory, home) = made();
    fs::write(home.join("format"), "kwoon home, version 2\n").unwrap();
    refused(&home, &["version 2", "newer"]);
}

#[test]
fn a_damaged_store_is_refused() {
    let (_directory, home) = made();
    let store = home.join("store.redb");
    let length = fs::metadata(&store).unwrap().len();
    fs::write(&store, vec![0x5a; usize::try_from(length).unwrap()]).unwrap();
    refused(&home, &["store.redb"]);
}

#[test]
fn a_configuration_that_is_wrong_is_refused() {
    let (_directory, home) = made();
    fs::write(home.join("config.toml"), "[limits]\nask_max = 1000000\n").unwrap();
    refused(&home, &["config.toml", "at most 256"]);
}

#[test]
fn an_address_that_was_asked_for_and_is_taken_is_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (_directory, home) = made();
    let output = cli(&home, &["serve", "--listen", &address]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(&address) && message.contains("--listen"), "{message}");
    assert!(!home.join("run.json").exists());
}

#[test]
fn an_address_that_others_could_reach_is_refused() {
    let (_directory, home) = made();
    let output = cli(&home, &["serve", "--listen", "0.0.0.0:0"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("127.0.0.1"), "{message}");
}

#[test]
fn a_port_that_was_picked_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let first = Daemon::serving(&home, &["--listen", "127.0.0.1:0"], &[]);
    let address = first.address.clone();
    first.stop();
    for flags in [&["--listen", "127.0.0.1:0"][..], &[]] {
        let again = Daemon::serving(&home, flags, &[]);
        assert_eq!(again.address, address);
        again.stop();
    }
}

#[test]
fn foreign_files_in_the_directory_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, Permissions::from_mode(0o700)).unwrap();
    fs::write(home.join("notes.txt"), "mine").unwrap();
    let daemon = Daemon::at(&home);
    assert_eq!(daemon.request("GET", "/readyz", "", b"").status, 200);
    daemon.stop();
    assert_eq!(fs::read_to_string(home.join("notes.txt")).unwrap(), "mine");
}

#[test]
fn a_home_with_a_long_path_is_served_over_a_shorter_socket() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("a".repeat(60)).join("b".repeat(60));
    fs::create_dir_all(home.parent().unwrap()).unwrap();
    let runtime = directory.path().join("runtime");
    fs::create_dir(&runtime).unwrap();
    // A directory that others may enter is no place for the socket.
    fs::set_permissions(&runtime, Permissions::from_mode(0o755)).unwrap();
    let serve = std::process::Command::new(crate::daemon::KWOON)
        .args(["--home", home.to_str().unwrap(), "serve"])
        .env("XDG_RUNTIME_DIR", &runtime)
        .output()
        .unwrap();
    assert_eq!(serve.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&serve.stderr).contains("mode 0700"));
    fs::set_permissions(&runtime, Permissions::from_mode(0o700)).unwrap();
    let daemon = Daemon::with(&home, &[("XDG_RUNTIME_DIR", runtime.to_str().unwrap())]);
    let run = fs::read_to_string(home.join("run.json")).unwrap();
    let run: serde_json::Value = serde_json::from_str(&run).unwrap();
    let socket = PathBuf::from(run["socket"].as_str().unwrap());
    assert!(socket.starts_with(&runtime) && socket.as_os_str().len() <= 100);
    assert_eq!(daemon.cli(&["status"]).status.code(), Some(0));
    daemon.stop();
    assert!(!socket.exists());
}
