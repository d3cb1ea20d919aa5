//! A daemon in a process of its own, and the ways to talk to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The program under test.
pub const KWOON: &str = env!("CARGO_BIN_EXE_kwoon");

/// What keeps a daemon under test from the network of the machine, and from other tests.
const APART: [&str; 2] = ["--bind=127.0.0.1:0", "--discovery=off"];

/// See the module. Killed when dropped.
pub struct Daemon {
    child: Child,
    /// Its home.
    pub home: PathBuf,
    /// `127.0.0.1:port`, or the path of its Unix socket.
    pub address: String,
    log: Mutex<Receiver<String>>,
    seen: Vec<String>,
    directory: Option<TempDir>,
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The header fields, as they came.
    pub head: String,
    /// The body.
    pub body: Value,
}

impl Reply {
    /// The code of a refusal.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("ok")
    }
}

impl Daemon {
    /// A daemon in a fresh home.
    pub fn fresh() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        let mut daemon = Self::at(&home);
        daemon.directory = Some(directory);
        daemon
    }

    /// A daemon in a home; it serves when this returns.
    pub fn at(home: &Path) -> Self {
        Self::with(home, &[])
    }

    /// The same with further environment variables.
    pub fn with(home: &Path, environment: &[(&str, &str)]) -> Self {
        Self::serving(home, &[], environment)
    }

    /// The same with flags of `serve`.
    pub fn serving(home: &Path, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(KWOON);
        command.arg("--home").arg(home).arg("serve").args(flags).envs(environment.iter().copied());
        let given = |apart: &&str| flags.iter().any(|flag| apart.starts_with(flag.split('=').next().unwrap()));
        command.args(APART.iter().filter(|apart| !given(apart)));
        Self::started(home, command).unwrap()
    }

    /// A daemon in a home that may not be usable.
    ///
    /// # Errors
    /// How it ended instead, with what it said.
    pub fn try_at(home: &Path) -> Result<Self, String> {
        let mut command = Command::new(KWOON);
        command.arg("--home").arg(home).arg("serve").args(APART);
        Self::started(home, command)
    }

    /// A daemon whose process begins with a line of shell, such as `ulimit -n 256`.
    pub fn after(home: &Path, line: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{line}; exec \"$0\" --home \"$1\" serve {}", APART.join(" ")), KWOON]).arg(home);
        Self::started(home, command).unwrap()
    }

    /// A daemon with flags of `serve` in a network namespace, talked to over its Unix socket.
    pub fn inside(namespace: &str, home: &Path, flags: &[&str]) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, KWOON, "--home"]).arg(home).arg("serve").args(flags);
        let mut daemon = Self::started(home, command).unwrap();
        let run: Value = serde_json::from_slice(&std::fs::read(home.join("run.json")).unwrap()).unwrap();
        daemon.address = run["socket"].as_str().unwrap().to_owned();
        daemon
    }

    /// The daemon that this command becomes; it serves when this returns.
    fn started(home: &Path, mut command: Command) -> Result<Self, String> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, log) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut seen = Vec::new();
        loop {
            match log.recv() {
                Ok(line) => {
                    let serving = line.contains(" serving ");
                    seen.push(line);
                    if serving {
                        break;
                    }
                }
                Err(_) => return Err(format!("{}: {}", child.wait().unwrap(), seen.join("\n"))),
            }
        }
        let run: Value = serde_json::from_slice(&std::fs::read(home.join("run.json")).unwrap()).unwrap();
        let address = run["http"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        Ok(Self { child, home: home.to_owned(), address, log: Mutex::new(log), seen, directory: None })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A token by its file name.
    pub fn token(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.join("tokens").join(name)).unwrap().trim().to_owned()
    }

    /// One request over TCP with these header lines.
    pub fn request(&self, method: &str, path: &str, head: &str, body: &[u8]) -> Reply {
        exchange(&self.address, method, path, head, body).unwrap()
    }

    /// Calls an operation with a token; any answer.
    pub fn call(&self, token: &str, operation: &str, arguments: &Value) -> Reply {
        self.try_call(token, operation, arguments).unwrap()
    }

    /// The same, where the connection may break.
    pub fn try_call(&self, token: &str, operation: &str, arguments: &Value) -> std::io::Result<Reply> {
        call_at(&self.address, token, operation, arguments)
    }

    /// Calls an operation that must be sealed, wherever its object is ordered.
    pub fn sealed(&self, token: &str, operation: &str, mut arguments: Value) -> Value {
        arguments["wait_ms"] = json!(60_000);
        self.ok(token, operation, arguments)
    }

    /// Calls an operation that must be pending.
    pub fn pending(&self, token: &str, operation: &str, mut arguments: Value) -> Value {
        arguments["wait_ms"] = json!(0);
        let reply = self.call(token, operation, &arguments);
        assert_eq!(reply.status, 202, "{operation}: {:#}", reply.body);
        assert_eq!((&reply.body["standing"], &reply.body["receipt"]), (&json!("pending"), &Value::Null));
        reply.body
    }

    /// Calls an operation that must succeed.
    pub fn ok(&self, token: &str, operation: &str, arguments: Value) -> Value {
        let reply = self.call(token, operation, &arguments);
        assert_eq!(reply.status, 200, "{operation}: {:#}", reply.body);
        reply.body
    }

    /// Makes an agent; its id and its token.
    pub fn agent(&self, name: &str) -> (String, String) {
        let made = self.ok(&self.token("owner"), "agent_create", json!({"name": name}));
        let id = made["result"]["agent"].as_str().unwrap().to_owned();
        (id, made["secret"]["token"].as_str().unwrap().to_owned())
    }

    /// Where every object stands: its index, digest and head.
    pub fn trace(&self) -> Vec<Value> {
        self.walk(&self.token("owner"), "object_digest", json!({}), "objects")
    }

    /// All rows of a list, page by page.
    pub fn walk(&self, token: &str, operation: &str, mut arguments: Value, rows: &str) -> Vec<Value> {
        let mut all = Vec::new();
        arguments["limit"] = json!(50);
        loop {
            let page = self.ok(token, operation, arguments.clone());
            all.extend(page["result"][rows].as_array().unwrap().iter().cloned());
            match page.get("cursor") {
                Some(cursor) => arguments["cursor"] = cursor.clone(),
                None => return all,
            }
        }
    }

    /// Says whether everything that is stored is what the facts say.
    pub fn assert_sound(&self) {
        let verified = self.ok(&self.token("owner"), "ledger_verify", json!({}));
        assert_eq!(verified["result"]["sound"], true, "{verified:#}");
    }

    /// The command line against this home.
    pub fn cli(&self, arguments: &[&str]) -> Output {
        cli(&self.home, arguments)
    }

    /// Keeps the directory of the home as long as the daemon.
    pub fn keep(&mut self, directory: Option<TempDir>) {
        self.directory = directory;
    }

    /// Kills it at once, as a power cut would; the home stays.
    pub fn kill(mut self) -> (PathBuf, Option<TempDir>) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.home.clone(), self.directory.take())
    }

    /// Stops it with SIGTERM and waits for its end; what it logged.
    pub fn stop(mut self) -> (String, PathBuf, Option<TempDir>) {
        // The shell has a kill of its own everywhere.
        let sent = Command::new("sh").args(["-c", &format!("kill {}", self.pid())]).status().unwrap();
        assert!(sent.success());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "a daemon that is stopped ends well: {status}");
        self.seen.extend(self.log.lock().unwrap().iter());
        (self.seen.join("\n"), self.home.clone(), self.directory.take())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One call at an address.
pub fn call_at(address: &str, token: &str, operation: &str, arguments: &Value) -> std::io::Result<Reply> {
    let head = format!("Authorization: Bearer {token}\r\n");
    exchange(address, "POST", &format!("/v1/{operation}"), &head, arguments.to_string().as_bytes())
}

fn exchange(address: &str, method: &str, path: &str, head: &str, body: &[u8]) -> std::io::Result<Reply> {
    let is_socket = address.starts_with('/');
    let host = if is_socket { "localhost" } else { address };
    let host = if head.to_ascii_lowercase().contains("host:") { String::new() } else { format!("Host: {host}\r\n") };
    let request =
        format!("{method} {path} HTTP/1.1\r\n{host}{head}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let parts = [request.as_bytes(), body];
    let reply =
        if is_socket { ask(UnixStream::connect(address)?, parts) } else { ask(TcpStream::connect(address)?, parts) }?;
    let broken = || std::io::Error::other("the connection broke");
    let text = String::from_utf8(reply).map_err(|_| broken())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
    Ok(Reply { status, head: head.to_owned(), body })
}

/// Sends a request and reads to the end of the connection.
fn ask(mut stream: impl Read + Write, parts: [&[u8]; 2]) -> std::io::Result<Vec<u8>> {
    for part in parts {
        stream.write_all(part)?;
    }
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(reply)
}

/// The command line against a home, with nothing of the caller's environment that it reads.
pub fn cli(home: &Path, arguments: &[&str]) -> Output {
    Command::new(KWOON)
        .arg("--home")
        .arg(home)
        .args(arguments)
        .env_remove("KWOON_AGENT")
        .env_remove("KWOON_HOME")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}
