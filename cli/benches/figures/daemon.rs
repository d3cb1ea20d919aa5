//! A daemon in a process of its own: how long it takes to be ready, what it holds in memory, how it ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const KWOON: &str = env!("CARGO_BIN_EXE_kwoon");

/// Limits that would end a measurement early.
const CONFIGURATION: &str = "[limits]\nactions_per_second_max = 1000000\nactions_burst_max = 10000000\n";

/// A running daemon. Killed when dropped.
pub struct Daemon {
    child: Child,
    /// Its home.
    pub home: PathBuf,
    /// `127.0.0.1:port`.
    pub address: String,
    /// From the start of the process until it served.
    pub ready: Duration,
}

impl Daemon {
    /// Starts a daemon; it serves when this returns.
    pub fn start(home: &Path) -> Self {
        Self::with(home, &[])
    }

    /// The same with flags of `serve`.
    pub fn with(home: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new(KWOON);
        command.arg("--home").arg(home).arg("serve").args(flags).env_remove("KWOON_LOG");
        let started = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        loop {
            line.clear();
            let read = stderr.read_line(&mut line).expect("the daemon's log");
            assert!(read > 0, "the daemon ended: {:?}", child.wait());
            if line.contains(" serving ") {
                break;
            }
        }
        let ready = started.elapsed();
        // Nobody reads the rest, and the daemon does not wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        let run: Value = serde_json::from_slice(&fs::read(home.join("run.json")).expect("run.json")).expect("JSON");
        let address = run["http"].as_str().and_then(|url| url.strip_prefix("http://")).expect("an address").to_owned();
        Self { child, home: home.to_owned(), address, ready }
    }

    /// Makes a home with raised limits and starts a daemon in it.
    pub fn fresh(home: &Path) -> Self {
        Self::start(home).stop();
        fs::write(home.join("config.toml"), CONFIGURATION).expect("the configuration");
        Self::start(home)
    }

    /// A token by its file name.
    pub fn token(&self, name: &str) -> String {
        fs::read_to_string(self.home.join("tokens").join(name)).expect("a token").trim().to_owned()
    }

    /// Resident memory in bytes: now, and at most so far.
    pub fn memory(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("Linux");
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).expect("a field of the status");
            line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    /// Processor time used so far.
    pub fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("Linux");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("a name in brackets").split_whitespace().collect();
        // Fields 14 and 15 of proc(5), in hundredths of a second; the name and what is before it are cut off.
        let ticks = |field: usize| fields[field - 3].parse::<u64>().expect("a number");
        Duration::from_millis((ticks(14) + ticks(15)) * 10)
    }

    /// Stops it as `kwoon down` does.
    pub fn stop(mut self) {
        let sent = Command::new("sh").args(["-c", &format!("kill {}", self.child.id())]).status().expect("a shell");
        assert!(sent.success());
        assert!(self.child.wait().expect("its end").success(), "a clean stop");
    }

    /// Kills it as a power cut would.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("its end");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
