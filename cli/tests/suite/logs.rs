//! Logs as files, through the daemon: exported, checked on another host, and what is set aside.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::json;

use crate::daemon::{Daemon, KWOON};

#[test]
fn a_log_is_exported_to_a_new_file_and_found_sound_on_another_host() {
    let daemon = Daemon::fresh();
    let (alice, token) = daemon.agent("alice");
    daemon.ok(&token, "memory_create", json!({"text": "x".repeat(100_000), "title": "long"}));
    let memories = daemon.ok(&token, "memory_list", json!({}));
    let memory = memories["result"]["memories"][0]["memory"].as_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memory.kwoonlog");
    let owner = daemon.token("owner");
    let arguments = json!({"object": memory, "path": path});
    let exported = daemon.ok(&owner, "object_export", arguments.clone())["result"].clone();
    assert_eq!((&exported["facts"], &exported["contents"]), (&json!(1), &json!(2)));
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, &exported["bytes"]), (0o600, &json!(metadata.len())));
    let again = daemon.call(&owner, "object_export", &arguments);
    assert_eq!((again.status, again.code()), (400, "invalid_argument"));
    assert_eq!(again.body["error"]["details"]["expected"], "a path where nothing is yet");
    let nowhere = json!({"object": alice, "path": directory.path().join("none/x")});
    let nowhere = daemon.call(&owner, "object_export", &nowhere);
    assert_eq!(nowhere.body["error"]["details"]["expected"], "a file or directory that is there");
    assert_eq!(daemon.call(&token, "object_export", &arguments).code(), "owner_required");

    let other = Daemon::fresh();
    let checked = other.ok(&other.token("owner"), "object_check", json!({"path": path}))["result"].clone();
    assert_eq!((&checked["sound"], &checked["object"]), (&json!(true), &json!(memory)));
    let digest = daemon.ok(&owner, "object_digest", json!({"object": memory}))["result"]["digest"].clone();
    assert_eq!(checked["digest"], digest);
    let status = other.ok(&other.token("owner"), "host_status", json!({}))["result"].clone();
    assert_eq!(status["object_count"], 0);
}

#[test]
fn a_record_that_is_set_aside_outlives_a_crash() {
    let daemon = Daemon::fresh();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("later.kwoonlog");
    // A header of version 2, of which the rest is not guessed at.
    std::fs::write(&path, b"\xa2\x00\x69kwoon log\x01\x02").unwrap();
    let checked = daemon.ok(&daemon.token("owner"), "object_check", json!({"path": path}))["result"].clone();
    assert_eq!((&checked["sound"], &checked["keeping"]), (&json!(false), &json!("kept")));
    let (home, kept) = daemon.kill();
    let mut daemon = Daemon::at(&home);
    daemon.keep(kept);
    let owner = daemon.token("owner");
    let records = daemon.ok(&owner, "quarantine_list", json!({}))["result"]["records"].clone();
    assert_eq!((&records[0]["id"], &records[0]["version"]), (&checked["quarantined"], &json!(2)));
    assert_eq!(daemon.ok(&owner, "host_status", json!({}))["result"]["store"]["quarantined"], 1);
    let output = daemon.cli(&["quarantine", "remove", checked["quarantined"].as_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(daemon.ok(&owner, "quarantine_list", json!({}))["result"]["records"], json!([]));
}

#[test]
fn a_path_on_the_command_line_begins_where_the_caller_is() {
    let daemon = Daemon::fresh();
    let (alice, _) = daemon.agent("alice");
    let directory = tempfile::tempdir().unwrap();
    for arguments in [["object", "export", &alice, "a.kwoonlog"].as_slice(), &["object", "check", "./a.kwoonlog"]] {
        let output = Command::new(KWOON)
            .current_dir(directory.path())
            .arg("--home")
            .arg(&daemon.home)
            .args(arguments)
            .env_remove("KWOON_AGENT")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(&alice), "{said}");
    }
    assert!(directory.path().join("a.kwoonlog").exists());
}
