//! The commands of the documentation work as they stand.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../../README.md");

/// The shell block of README that follows a marker.
fn block(marker: &str) -> String {
    let (_, rest) = README.split_once(&format!("<!-- {marker} -->\n```sh\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// Runs a script with the program on the path and a home of its own; what it printed.
fn run(directory: &Path, script: &str) -> String {
    let bin = directory.join("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).unwrap();
        symlink(crate::daemon::KWOON, bin.join("kwoon")).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(directory)
        .env("PATH", path)
        .env("KWOON_HOME", directory.join("home"))
        .env_remove("KWOON_AGENT")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n--- said\n{said}\n--- errors\n{errors}");
    said
}

struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        run(self.0, "kwoon down");
    }
}

#[test]
fn the_tour_of_readme_works() {
    let directory = tempfile::tempdir().unwrap();
    // The first command without its installation, which a test of a program cannot do to itself.
    let first = block("command one");
    let (install, up) = first.trim().split_once(" && ").unwrap();
    assert_eq!(install, "cargo install --locked --path cli");
    run(directory.path(), up);
    let _down = Down(directory.path());
    let said = run(directory.path(), &block("demo"));
    assert!(said.contains("Turns and digests are equal."), "{said}");
    let said = run(directory.path(), &block("tour"));
    assert!(said.contains("Which changes go in?"), "the working set shows the question: {said}");
    assert!(said.contains("sound"), "{said}");
    run(directory.path(), &block("backup"));
    assert!(directory.path().join("kwoon-backup/store.redb").is_file());
    let said = run(directory.path(), &block("http"));
    let turn: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(turn["ok"], true);
}

#[test]
fn readmes_second_command_is_what_ci_runs() {
    let ci = include_str!("../../../.ci/run");
    assert!(ci.contains(block("command two").trim()), "CI runs the tests as README says");
}

#[test]
fn the_settings_of_readme_are_settings() {
    let (_, rest) = README.split_once("```toml\n").unwrap();
    let config = rest.split_once("```").unwrap().0;
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    crate::daemon::Daemon::at(&home).stop();
    std::fs::write(home.join("config.toml"), config).unwrap();
    let daemon = crate::daemon::Daemon::at(&home);
    let status = daemon.ok(&daemon.token("owner"), "host_status", serde_json::json!({}));
    assert_eq!(status["result"]["limits"]["text_bytes_max"], 2_097_152);
}
