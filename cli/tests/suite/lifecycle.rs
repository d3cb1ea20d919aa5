//! `up`, `down`, `serve`, `status`, and the commands of the operations.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::daemon::{Daemon, cli};

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A daemon that `up` started; stopped when dropped, whatever became of the test.
struct Up<'a>(&'a Path);

impl Drop for Up<'_> {
    fn drop(&mut self) {
        let _ = cli(self.0, &["down"]);
    }
}

#[test]
fn up_makes_a_home_and_an_agent_and_says_what_to_try_and_it_works() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let up = cli(&home, &["up"]);
    let _up = Up(&home);
    let said = text(&up);
    assert_eq!(up.status.code(), Some(0), "{said}");
    let run: Value = serde_json::from_slice(&std::fs::read(home.join("run.json")).unwrap()).unwrap();
    assert!(said.contains(run["http"].as_str().unwrap()), "{said}");
    assert!(said.contains(home.join("tokens").to_str().unwrap()), "{said}");
    // The commands it prints work as they stand, but for the name of the program.
    let (_, tries) = said.split_once("Try:").unwrap();
    let commands: Vec<&str> = tries.lines().map(str::trim).filter(|line| line.starts_with("kwoon ")).collect();
    assert_eq!(commands.len(), 3, "{said}");
    for command in commands {
        let program = crate::daemon::KWOON;
        let line = command.replacen("kwoon", program, 1);
        let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        assert!(output.status.success(), "{command}: {}", text(&output));
    }
    // A second up finds it running.
    let again = cli(&home, &["up"]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again));
    let same: Value = serde_json::from_slice(&std::fs::read(home.join("run.json")).unwrap()).unwrap();
    assert_eq!(same["pid"], run["pid"]);

    let down = cli(&home, &["down"]);
    assert_eq!(down.status.code(), Some(0), "{}", text(&down));
    assert!(!home.join("run.json").exists() && !home.join("kwoon.sock").exists());
    assert_eq!(cli(&home, &["down"]).status.code(), Some(0), "down twice is fine");
    assert_eq!(cli(&home, &["status"]).status.code(), Some(4));

    // The port is the same the next time.
    assert_eq!(cli(&home, &["up"]).status.code(), Some(0));
    let next: Value = serde_json::from_slice(&std::fs::read(home.join("run.json")).unwrap()).unwrap();
    assert_eq!(next["http"], run["http"]);
    assert_ne!(next["pid"], run["pid"]);
}

#[test]
fn exit_codes_tell_what_became_of_a_command() {
    let daemon = Daemon::fresh();
    daemon.agent("alice");
    let code = |arguments: &[&str]| {
        let output = daemon.cli(arguments);
        (output.status.code().unwrap(), text(&output))
    };
    assert_eq!(code(&["--agent", "alice", "turn"]).0, 0);
    let (refused, said) = code(&["--agent", "alice", "thread", "get", &format!("thr_{}", "a".repeat(26))]);
    assert_eq!(refused, 3, "{said}");
    assert!(said.contains("nothing here that you may read"), "{said}");
    assert_eq!(code(&["no", "such"]).0, 2);
    assert_eq!(code(&["--agent", "alice", "thread", "get"]).0, 2);
    assert_eq!(code(&["--agent", "nobody", "turn"]).0, 6);
    assert_eq!(cli(&daemon.home.join("elsewhere"), &["--agent", "alice", "turn"]).status.code(), Some(4));
}

#[test]
fn json_is_the_envelope_as_the_daemon_answered_it() {
    let daemon = Daemon::fresh();
    let (alice, token) = daemon.agent("alice");
    let output = daemon.cli(&["--agent", "alice", "--json", "agent", "get"]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["result"]["agent"], json!(alice));
    assert_eq!(shown["result"], daemon.ok(&token, "agent_get", json!({}))["result"]);
    let one = daemon.cli(&["--agent", "alice", "agent", "get", "--print", "result.agent"]);
    assert_eq!(String::from_utf8(one.stdout).unwrap(), format!("{alice}\n"));
    let refused = daemon.cli(&["--agent", "alice", "--json", "memory", "get", &format!("mem_{}", "a".repeat(26))]);
    let shown: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(shown["error"]["code"], "not_found");
    assert_eq!(refused.status.code(), Some(3));
}

#[test]
fn hostile_text_cannot_leave_its_block_in_a_terminal() {
    let daemon = Daemon::fresh();
    let (_, token) = daemon.agent("alice");
    let hostile = "plain\u{1b}[2J\u{1b}]0;title\u{7}\r\nnext: done\u{202e}evil\u{2028}line\u{85}x\u{200b}y";
    let made = daemon.ok(&token, "memory_create", json!({"text": hostile, "title": hostile}));
    let memory = made["result"]["memory"].as_str().unwrap();
    let output = daemon.cli(&["--agent", "alice", "memory", "get", memory]);
    let shown = String::from_utf8(output.stdout).unwrap();
    for hidden in ['\u{1b}', '\u{7}', '\r', '\u{202e}', '\u{2028}', '\u{85}', '\u{200b}'] {
        assert!(!shown.contains(hidden), "{hidden:?} reaches the terminal: {shown}");
    }
    let line = shown.lines().find(|line| line.contains("next: done")).unwrap();
    assert!(line.starts_with('│'), "participant text stands in its block: {line}");
    // Over JSON it is what it was, byte for byte.
    let read = daemon.ok(&token, "memory_get", json!({"memory": memory}));
    let key = read["result"]["text_content"].as_str().unwrap();
    assert_eq!(read["content"][key]["text"], hostile);
}

#[test]
fn a_log_is_printed_fact_by_fact() {
    let daemon = Daemon::fresh();
    let (_, token) = daemon.agent("alice");
    let thread = daemon.ok(&token, "thread_create", json!({}))["result"]["thread"].clone();
    for n in 0..60 {
        daemon.ok(&token, "entry_post", json!({"thread": thread, "text": format!("entry {n}")}));
    }
    let output = daemon.cli(&["--json", "object", "log", thread.as_str().unwrap(), "--format", "cbor"]);
    let lines = String::from_utf8(output.stdout).unwrap();
    let facts: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(facts.len(), 61);
    for (index, fact) in facts.iter().enumerate() {
        assert_eq!(fact["index"], index);
        assert!(fact["record"].is_string());
    }
    assert!(!lines.contains("entry 1"), "no participant text is in a log");
}
