//! `kwoon up` and `kwoon serve`: the daemon in the background and in the foreground.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use kwoon_keys::files as key_files;
use kwoon_sync::argument::AgentName;
use serde_json::{Value, json};

use crate::call::{self, program};
use crate::client::Client;
use crate::command::Globals;
use crate::exit::{Exit, Failure};
use crate::home::{Home, Running, variable};
use crate::render;
use crate::terminal::{self, Style};
use crate::visible;

/// How long the daemon may take to start.
const START_WAIT: Duration = Duration::from_secs(20);
/// How long to wait between two looks.
pub const LOOK_WAIT: Duration = Duration::from_millis(30);
/// A log that is longer is put aside at the next start.
const LOG_BYTES_MAX: u64 = 10 << 20;
/// How much of the end of a log is shown.
const LOG_TAIL_BYTES: u64 = 4096;
const LOG_TAIL_LINES: usize = 15;

/// Runs the daemon in the foreground until it is stopped.
///
/// # Errors
/// If it cannot run.
pub fn serve(matches: &ArgMatches, globals: &Globals) -> Result<Exit, Failure> {
    let home = Home::find(globals.home.as_deref())?;
    let options = kwoon_daemon::Options {
        home: home.path().to_owned(),
        listen: matches.get_one("listen").copied(),
        bind: matches.get_one("bind").copied(),
        relay: matches.get_one("relay").cloned(),
        discovery: matches.get_one("discovery").cloned(),
        rebuild: matches.get_flag("rebuild"),
    };
    kwoon_daemon::serve(options).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(Exit::Done)
}

/// What was given for the daemon to be started, as its own command line.
fn serving_flags(matches: &ArgMatches) -> Vec<String> {
    let mut flags = Vec::new();
    for name in ["listen", "bind", "relay", "discovery"] {
        for raw in matches.get_raw(name).into_iter().flatten() {
            flags.push(format!("--{name}={}", raw.to_string_lossy()));
        }
    }
    flags
}

/// Starts the daemon in the background, unless it runs, and the first time makes the person's own agent.
///
/// # Errors
/// If the daemon does not come up.
pub fn up(matches: &ArgMatches, globals: &Globals) -> Result<Exit, Failure> {
    let home = Home::find(globals.home.as_deref())?;
    let client = Client::new(&home)?;
    let flags = serving_flags(matches);
    let (running, was_running) = match client.healthy() {
        Some(running) => (running, true),
        None => start(&client, &flags)?,
    };
    if was_running && !flags.is_empty() {
        let note = format!(
            "note: it runs already, so {} does nothing; stop it first: {} down\n",
            flags.join(" "),
            program(&home, None)
        );
        terminal::complain(&visible::text(&note));
    }
    let agent = match own_agent(&client)? {
        Ok(agent) => agent,
        Err(refusal) => {
            if globals.json {
                terminal::print(&format!("{refusal}\n"));
            } else {
                terminal::complain(&render::refusal(Style::stderr(), &refusal));
            }
            return Ok(Exit::of(&refusal));
        }
    };
    if globals.json {
        let result = json!({
            "home": home.path(), "pid": running.pid, "http": running.http, "host": running.host,
            "was_running": was_running, "agent": agent,
        });
        terminal::print(&format!("{}\n", json!({"ok": true, "result": result})));
    } else {
        terminal::print(&welcome(&home, &running, was_running, agent.as_deref()));
    }
    Ok(Exit::Done)
}

fn welcome(home: &Home, running: &Running, was_running: bool, agent: Option<&str>) -> String {
    let state = if was_running { "runs already" } else { "is running" };
    let http = running.http.as_deref().unwrap_or("its socket only");
    let mut text = format!(
        "kwoon {state} (process {}).\n\n  home    {}\n  http    http://{http}\n  tokens  {}\n",
        running.pid,
        home.path().display(),
        home.tokens().display()
    );
    if let Some(agent) = agent {
        text.push_str(&format!("  agent   {agent} (yours, made just now)\n"));
    }
    // With a second agent, it must be said which one acts.
    let acting = home.agent_names().into_iter().next().or_else(|| agent.map(ToOwned::to_owned));
    let acting = program(home, acting.as_deref());
    text.push_str(&format!(
        "\nTry:\n  {acting} memory create --text \"What I want to remember\"\n  {acting} turn\n  {} agent create --name helper\n",
        program(home, None)
    ));
    let program = program(home, None);
    text.push_str(&format!(
        "\nTo work with another host, run here: {program} peer ticket, and there: kwoon peer add --ticket TICKET\n"
    ));
    visible::text(&text)
}

/// Makes the person's own agent if there is none at all: its name, nothing if there were agents, or the refusal.
fn own_agent(client: &Client) -> Result<Result<Option<String>, Value>, Failure> {
    let list = call::as_owner(client, "agent_list", &json!({"limit": 1}))?;
    if list["ok"] != true {
        return Ok(Err(list));
    }
    if list["result"]["agents"].as_array().is_none_or(|agents| !agents.is_empty()) {
        return Ok(Ok(None));
    }
    let name = agent_name(variable("USER").as_deref());
    // Two that do this at once make one agent.
    let arguments = json!({"name": name, "idempotency_key": format!("up-{name}")});
    let made = call::as_owner(client, "agent_create", &arguments)?;
    Ok(if made["ok"] == true { Ok(Some(name)) } else { Err(made) })
}

/// The name of a person's own agent.
fn agent_name(user: Option<&str>) -> String {
    let name = user.unwrap_or_default().to_lowercase();
    match AgentName::read(&name) {
        Some(AgentName(name)) if name != "owner" => name,
        _ => "me".to_owned(),
    }
}

/// Starts the daemon and waits until it answers: what it says about itself, and whether it was another that started.
fn start(client: &Client, flags: &[String]) -> Result<(Running, bool), Failure> {
    let mut starting = Starting::begin(client.home(), flags)?;
    loop {
        if let Some(started) = starting.look(client.healthy())? {
            return Ok(started);
        }
        thread::sleep(LOOK_WAIT);
    }
}

/// A daemon that was started in the background and need not answer yet. It goes on when this is dropped.
#[derive(Debug)]
pub struct Starting {
    home: Home,
    child: Child,
    log: PathBuf,
    log_start: u64,
    ended_with: Option<ExitStatus>,
    give_up: Instant,
}

impl Starting {
    /// Starts the daemon of a home with these flags of `serve`; makes the directory where there is none.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn begin(home: &Home, flags: &[String]) -> Result<Self, Failure> {
        make_directory(home.path())?;
        let path = home.path().join("daemon.log");
        let log = open_log(&path).map_err(|error| Failure::io(&path, error))?;
        let log_start = log.metadata().map_err(|error| Failure::io(&path, error))?.len();
        let child = spawn(home.path(), flags, log)
            .map_err(|error| Failure::Failed(format!("cannot start kwoon serve: {error}")))?;
        let give_up = Instant::now() + START_WAIT;
        Ok(Self { home: home.clone(), child, log: path, log_start, ended_with: None, give_up })
    }

    /// The process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// One look at how far it is, with what answers for the home now: what the daemon says about itself, and whether it
    /// is another that started; nothing if it is to be looked again after [`LOOK_WAIT`].
    ///
    /// # Errors
    /// If it ended, or takes too long.
    pub fn look(&mut self, healthy: Option<Running>) -> Result<Option<(Running, bool)>, Failure> {
        let pid = self.child.id();
        // If the child ended because another process was just starting a daemon for this home, that one is as good.
        let other = self.ended_with.is_some();
        if let Some(running) = healthy.filter(|running| other || running.pid == pid) {
            return Ok(Some((running, other)));
        }
        match &self.ended_with {
            None => {
                let ended = self.child.try_wait();
                self.ended_with =
                    ended.map_err(|error| Failure::Failed(format!("cannot look after the daemon: {error}")))?;
            }
            Some(status) if self.home.holder()?.is_none() => {
                return Err(ended(&self.log, self.log_start, &status.to_string()));
            }
            Some(_) => {}
        }
        if Instant::now() > self.give_up {
            let log = self.log.display();
            return Err(Failure::Failed(format!(
                "the daemon (process {pid}) does not answer after {} s; it may go on starting, and its log is {log}",
                START_WAIT.as_secs()
            )));
        }
        Ok(None)
    }
}

fn ended(log_path: &Path, log_start: u64, status: &str) -> Failure {
    let tail = tail(log_path, log_start).unwrap_or_default();
    if tail.trim().is_empty() {
        // It could not even say why: nothing can be written where its log is.
        return Failure::Failed(format!(
            "the daemon ended at once ({status}) and could write nothing to {}: is the disk full? \
             To see why it ends, run: kwoon serve",
            log_path.display()
        ));
    }
    Failure::Failed(format!("the daemon ended at once ({status}); the end of {} says:\n{tail}", log_path.display()))
}

/// Makes the directory of a home where there is none, and checks that nobody else can read in it.
fn make_directory(path: &Path) -> Result<(), Failure> {
    if let Some(parent) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.map_err(|error| Failure::io(parent, error))?;
    }
    key_files::private_dir(&key_files::Os, path).map_err(|error| Failure::Failed(error.to_string()))?;
    if path.is_dir() { Ok(()) } else { Err(Failure::Failed(format!("{} is not a directory", path.display()))) }
}

/// Opens the log of the daemon to be added to. One that has grown too long is put aside.
fn open_log(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        fs::rename(path, old(path))?;
    }
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    log.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(log)
}

fn old(path: &Path) -> PathBuf {
    path.with_extension("log.old")
}

/// Starts this program as the daemon, in a process group of its own so that an interrupt here does not reach it.
fn spawn(home: &Path, flags: &[String], log: File) -> io::Result<Child> {
    let errors = log.try_clone()?;
    Command::new(std::env::current_exe()?)
        .arg("--home")
        .arg(home)
        .arg("serve")
        .args(flags)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .process_group(0)
        .spawn()
}

/// The last lines that were added to a log since it had this length.
fn tail(path: &Path, start: u64) -> io::Result<String> {
    let mut log = File::open(path)?;
    let from = start.max(log.metadata()?.len().saturating_sub(LOG_TAIL_BYTES));
    log.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    log.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = visible::text(&String::from_utf8_lossy(&bytes));
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(LOG_TAIL_LINES)..]
        .iter()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>()
        .join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_persons_agent_has_a_name_of_the_right_form() {
        let cases = [
            (Some("ann"), "ann"),
            (Some("Ann.Lee"), "ann.lee"),
            (Some("owner"), "me"),
            (Some("OWNER"), "me"),
            (Some("ann lee"), "me"),
            (Some("Zoë"), "me"),
            (Some("-x"), "me"),
            (Some(""), "me"),
            (None, "me"),
        ];
        for (user, name) in cases {
            assert_eq!(agent_name(user), name, "{user:?}");
        }
        assert_eq!(agent_name(Some(&"a".repeat(64))), "me");
    }

    #[test]
    fn a_log_is_private_and_put_aside_when_it_is_long() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::write(&path, "before\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(open_log(&path).unwrap().metadata().unwrap().len(), 7);
        assert_eq!(mode(&path), 0o600);
        File::options().write(true).open(&path).unwrap().set_len(LOG_BYTES_MAX + 1).unwrap();
        assert_eq!(open_log(&path).unwrap().metadata().unwrap().len(), 0);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::metadata(dir.path().join("daemon.log.old")).unwrap().len(), LOG_BYTES_MAX + 1);
    }

    #[test]
    fn the_end_of_a_log_is_that_of_this_start_and_cannot_drive_a_terminal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        fs::write(&path, "old\nnew \u{1b}[31m\nlast\n").unwrap();
        assert_eq!(tail(&path, 4).unwrap(), "  new \\u{1b}[31m\n  last");
        assert_eq!(tail(&path, 400).unwrap(), "");
    }

    #[test]
    fn what_was_chosen_is_handed_on_to_the_daemon() {
        let line = ["kwoon", "up", "--listen", "127.0.0.1:0", "--relay=off"];
        let matches = crate::command::kwoon().try_get_matches_from(line).unwrap();
        let (_, up) = matches.subcommand().unwrap();
        assert_eq!(serving_flags(up), ["--listen=127.0.0.1:0", "--relay=off"]);
    }

    #[test]
    fn a_home_that_others_can_read_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("a/b");
        make_directory(&home).unwrap();
        make_directory(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
        let Err(Failure::Failed(message)) = make_directory(&home) else { panic!("it was used") };
        assert!(message.contains("chmod 0700"), "{message}");
    }

    #[test]
    fn the_first_words_propose_commands_that_are_commands() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path())).unwrap();
        let running = Running { pid: 42, http: Some("127.0.0.1:7".to_owned()), host: None, socket: "/s".into() };
        let text = welcome(&home, &running, false, Some("ann"));
        assert!(text.contains("http://127.0.0.1:7") && text.contains("tokens"), "{text}");
        assert_eq!(text.lines().filter(|line| line.contains(" peer ticket")).count(), 1, "{text}");
        let commands: Vec<_> = text.lines().filter(|line| line.starts_with("  kwoon")).collect();
        assert_eq!(commands.len(), 3, "{text}");
        for line in commands {
            let quoted = line.replace("\"What I want to remember\"", "text");
            assert!(crate::command::kwoon().try_get_matches_from(quoted.split_whitespace()).is_ok(), "{line}");
        }
    }
}
