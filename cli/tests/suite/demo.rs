//! `kwoon demo`: it plays to its end, and leaves nothing however it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::daemon::KWOON;

/// A demo with a directory of its own for temporary files.
struct Demo {
    child: Child,
    temporary: TempDir,
    /// What it printed so far.
    said: String,
    /// Its daemons, as far as it told them.
    daemons: Vec<u32>,
}

impl Demo {
    fn begin() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let child = Command::new(KWOON)
            .arg("demo")
            .env("TMPDIR", temporary.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, temporary, said: String::new(), daemons: Vec::new() }
    }

    /// Reads what it prints, to the end or until both hosts are said to run.
    fn read(&mut self, until_both_run: bool) {
        let mut lines = BufReader::new(self.child.stdout.take().unwrap());
        while !(until_both_run && self.daemons.len() == 2) {
            let at = self.said.len();
            if lines.read_line(&mut self.said).unwrap() == 0 {
                break;
            }
            if let Some((_, rest)) = self.said[at..].split_once("process ") {
                self.daemons.push(rest.split_once(',').unwrap().0.parse().unwrap());
            }
        }
        self.child.stdout = Some(lines.into_inner());
    }

    /// Waits for its end: its exit code and what it complained of. Nothing of it may be left.
    fn end(mut self) -> (Option<i32>, String) {
        // What it prints meanwhile must go somewhere.
        let mut rest = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
        let mut complaint = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(self.daemons.len(), 2, "{}{rest}{complaint}", self.said);
        for daemon in &self.daemons {
            assert!(!signal("0", *daemon), "process {daemon} still runs");
        }
        let left: Vec<_> =
            std::fs::read_dir(self.temporary.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
        (status.code(), complaint)
    }
}

/// Sends a signal to a process, if there is such a process.
fn signal(name: &str, process: u32) -> bool {
    let line = format!("kill -{name} {process} 2>/dev/null");
    Command::new("sh").args(["-c", &line]).status().unwrap().success()
}

#[test]
fn the_demo_ends_with_two_turns_and_digests_that_are_equal() {
    let mut demo = Demo::begin();
    demo.read(false);
    let said = demo.said.clone();
    assert_eq!(demo.end(), (Some(0), String::new()), "{said}");
    for line in [
        "kept until it can be sent: assignment_deliver, pending",
        "kept until it can be sent: entry_post, pending",
        "nothing is pending any more",
        "the assignment is accepted",
        "Turns and digests are equal.",
    ] {
        assert!(said.contains(line), "{line} is not in:\n{said}");
    }
    let (_, end) = said.split_once("The same from both sides.").unwrap();
    for name in ["turn ", "index ", "digest "] {
        let values: Vec<_> = end.lines().filter_map(|line| line.split_once(name)).map(|(_, value)| value).collect();
        assert_eq!(values.len(), 2, "{name}: {end}");
        assert_eq!(values[0], values[1]);
    }
    assert!(end.contains("Bob: respond (entry 2), Alice: respond (entry 3)"), "{end}");
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    for name in ["INT", "TERM", "HUP"] {
        let mut demo = Demo::begin();
        demo.read(true);
        assert!(signal(name, demo.child.id()));
        let (code, complaint) = demo.end();
        assert_eq!(code, Some(1), "{complaint}");
        assert!(complaint.contains("error: interrupted\nBoth hosts were ended"), "{complaint}");
    }
}

#[test]
fn a_demo_that_does_not_come_out_says_where_and_leaves_nothing() {
    let mut demo = Demo::begin();
    demo.read(true);
    assert!(signal("KILL", demo.daemons[1]));
    let (code, complaint) = demo.end();
    assert_eq!(code, Some(1), "{complaint}");
    assert!(complaint.contains("the demo did not come out at step "), "{complaint}");
    assert!(complaint.contains("Both hosts were ended and their homes removed."), "{complaint}");
}

#[test]
fn the_demo_takes_no_home() {
    let home = tempfile::tempdir().unwrap();
    let output = crate::daemon::cli(home.path(), &["demo"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("takes no options"));
    assert!(std::fs::read_dir(home.path()).unwrap().next().is_none());
}
