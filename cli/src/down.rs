//! `kwoon down`: stops the daemon of a home, and never anything else.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::client::Client;
use crate::command::Globals;
use crate::exit::{Exit, Failure};
use crate::home::Home;
use crate::terminal;

/// How long the daemon may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(30);
/// How long it may take to remove what it says about itself.
const TIDY_WAIT: Duration = Duration::from_secs(2);
const LOOK_WAIT: Duration = Duration::from_millis(30);

/// What is known of the daemon of a home.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// Nothing runs.
    Nothing,
    /// It is this process, by its answer, by its own word, and by the lock that it holds.
    Daemon(u32),
    /// Something holds the home that does not answer, or is not who the home says it is.
    Unclear(u32),
}

/// A file that a dead daemon left behind may name a process that has nothing to do with it. So the process that is
/// stopped is the one that holds the lock of the home, says so in both files, and answers.
fn find(home: &Home, client: &Client) -> Result<Found, Failure> {
    let Some(holder) = home.holder()? else { return Ok(Found::Nothing) };
    let answers = client.healthy().is_some_and(|running| running.pid == holder);
    Ok(if answers && holder > 1 { Found::Daemon(holder) } else { Found::Unclear(holder) })
}

/// Stops the daemon and waits until it is gone.
///
/// # Errors
/// If it does not stop, or it cannot be told which process it is.
pub fn down(globals: &Globals) -> Result<Exit, Failure> {
    let home = Home::find(globals.home.as_deref())?;
    let client = Client::new(&home)?;
    let shown = home.path().display();
    let was_running = match find(&home, &client)? {
        Found::Nothing => false,
        Found::Daemon(pid) => {
            stop(&home, pid)?;
            true
        }
        Found::Unclear(pid) => {
            return Err(Failure::Failed(format!(
                "process {pid} holds {shown} and does not answer: it is just starting or stopping, or it hangs; try \
                 again, or look at {}",
                home.path().join("daemon.log").display()
            )));
        }
    };
    let said = match (globals.json, was_running) {
        (true, _) => json!({"ok": true, "result": {"home": home.path(), "was_running": was_running}}).to_string(),
        (false, true) => format!("stopped the daemon of {shown}"),
        (false, false) => format!("no daemon runs for {shown}"),
    };
    terminal::print(&format!("{said}\n"));
    Ok(Exit::Done)
}

/// Stops the daemon of a home, which must be this process, and waits until it is gone.
///
/// # Errors
/// If it does not stop.
pub fn stop(home: &Home, pid: u32) -> Result<(), Failure> {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = process.ok_or_else(|| Failure::Failed(format!("{pid} is no process")))?;
    match kill_process(process, Signal::TERM) {
        // It ended by itself in the meantime.
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(Failure::Failed(format!("cannot stop process {pid}: {error}"))),
    }
    // The lock goes last, with the process; it may be another's by now.
    if !wait_until(STOP_WAIT, || Ok(home.holder()? != Some(pid)))? {
        return Err(Failure::Failed(format!("process {pid} has not stopped after {} s", STOP_WAIT.as_secs())));
    }
    // If it could not remove this, it stays: it names nobody any more.
    wait_until(TIDY_WAIT, || Ok(home.running().is_none_or(|running| running.pid != pid)))?;
    Ok(())
}

/// Looks again and again until something is so: whether it came to be so in time.
fn wait_until(wait: Duration, mut is_so: impl FnMut() -> Result<bool, Failure>) -> Result<bool, Failure> {
    let deadline = Instant::now() + wait;
    while !is_so()? {
        if Instant::now() > deadline {
            return Ok(false);
        }
        thread::sleep(LOOK_WAIT);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn home() -> (tempfile::TempDir, Home, Client) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path())).unwrap();
        let client = Client::new(&home).unwrap();
        (dir, home, client)
    }

    fn bystander() -> Child {
        Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_file_of_a_dead_daemon_never_stops_another_process() {
        let (_dir, home, client) = home();
        let mut bystander = bystander();
        let run = json!({"pid": bystander.id(), "http": "127.0.0.1:9"});
        fs::write(home.path().join("run.json"), run.to_string()).unwrap();
        fs::write(home.path().join("lock"), format!("{}\n", bystander.id())).unwrap();
        assert_eq!(find(&home, &client).unwrap(), Found::Nothing);
        let globals = Globals { home: Some(home.path().to_owned()), json: true, ..Globals::default() };
        assert_eq!(down(&globals).unwrap(), Exit::Done);
        assert!(bystander.try_wait().unwrap().is_none());
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }

    #[test]
    fn a_holder_that_does_not_answer_is_not_stopped() {
        let (_dir, home, client) = home();
        fs::write(home.path().join("lock"), "4242\n").unwrap();
        let lock = File::open(home.path().join("lock")).unwrap();
        lock.try_lock().unwrap();
        assert_eq!(find(&home, &client).unwrap(), Found::Unclear(4242));
    }

    #[test]
    fn where_there_is_no_home_nothing_runs() {
        let (dir, ..) = home();
        let globals = Globals { home: Some(dir.path().join("none")), json: true, ..Globals::default() };
        assert_eq!(down(&globals).unwrap(), Exit::Done);
    }
}
