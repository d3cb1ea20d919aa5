//! One of the two hosts: its daemon, its owner and its one agent.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::owed::Owed;
use crate::client;
use crate::down;
use crate::exit::Failure;
use crate::home::Home;
use crate::up::{LOOK_WAIT, Starting};
use crate::visible;

/// How long what is waited for may take to come about.
const COMING_WAIT: Duration = Duration::from_secs(30);
/// How long one answer may take, which is longer than a daemon waits for anything it was asked to.
const ANSWER_WAIT: Duration = Duration::from_secs(45);
/// The flags of a daemon that nobody but the other one meets.
const APART: [&str; 4] = ["--listen=127.0.0.1:0", "--bind=127.0.0.1:0", "--relay=off", "--discovery=off"];
/// Pages of a log that are read at most.
const PAGES_MAX: usize = 20;

/// See the module. Its daemon is killed when it is dropped.
pub struct Host {
    /// How it is called, such as `Alice's host`.
    pub title: String,
    /// How its agent is called, such as `Alice`.
    pub name: &'static str,
    /// The id of the agent.
    pub agent: String,
    /// The id of the host.
    pub id: String,
    /// The process of the daemon.
    pub pid: u32,
    home: Home,
    daemon: Starting,
}

/// Where a log stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The index of its last fact.
    pub index: u64,
    /// The running digest there.
    pub digest: String,
}

impl Host {
    /// Starts a daemon in a directory, and makes its agent.
    ///
    /// # Errors
    /// If it does not come up.
    pub async fn start(directory: &Path, name: &'static str) -> Result<Self, Failure> {
        let word = name.to_lowercase();
        let home = Home::find(Some(&directory.join(&word)))?;
        let daemon = Starting::begin(&home, &APART.map(ToOwned::to_owned))?;
        let (agent, id) = (String::new(), String::new());
        let mut host = Self { title: format!("{name}'s host"), name, agent, id, pid: 0, home, daemon };
        let running = loop {
            if let Some((running, _)) = host.daemon.look(client::healthy(&host.home).await)? {
                break running;
            }
            sleep(LOOK_WAIT).await;
        };
        (host.pid, host.id) = (running.pid, running.host.unwrap_or_default());
        let made = host.owner("agent_create", json!({"name": word})).await?;
        host.agent = text(&made["result"]["agent"]);
        Ok(host)
    }

    /// Stops the daemon and waits for its end.
    ///
    /// # Errors
    /// If it does not stop. It is killed then.
    pub fn stop(mut self) -> Result<(), Failure> {
        down::stop(&self.home, self.pid)?;
        self.daemon.child().wait().map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Calls as the owner what must succeed.
    ///
    /// # Errors
    /// If it does not.
    pub async fn owner(&self, operation: &str, arguments: Value) -> Result<Value, Failure> {
        let token = self.home.owner_token()?;
        self.call(&token, operation, &arguments).await
    }

    /// Calls as the agent what must succeed.
    ///
    /// # Errors
    /// If it does not.
    pub async fn agent(&self, operation: &str, arguments: Value) -> Result<Value, Failure> {
        let token = self.home.agent_token(None)?;
        self.call(&token, operation, &arguments).await
    }

    /// Acts as the agent, and waits until that is sealed.
    ///
    /// # Errors
    /// If it is not.
    pub async fn sealed(&self, operation: &str, arguments: Value) -> Result<Value, Failure> {
        self.act(operation, arguments, COMING_WAIT, "sealed").await
    }

    /// Acts as the agent, which must be pending.
    ///
    /// # Errors
    /// If it is not.
    pub async fn pending(&self, operation: &str, arguments: Value) -> Result<Value, Failure> {
        self.act(operation, arguments, Duration::ZERO, "pending").await
    }

    async fn act(
        &self,
        operation: &str,
        mut arguments: Value,
        wait: Duration,
        standing: &str,
    ) -> Result<Value, Failure> {
        arguments["wait_ms"] = json!(wait.as_millis() as u64);
        let envelope = self.agent(operation, arguments).await?;
        if envelope["standing"] == standing {
            return Ok(envelope);
        }
        Err(self.failed(format!("{operation} is {} and not {standing}", envelope["standing"])))
    }

    async fn call(&self, token: &str, operation: &str, arguments: &Value) -> Result<Value, Failure> {
        let answer = timeout(ANSWER_WAIT, client::call(&self.home, operation, token, arguments)).await;
        let answer = answer.map_err(|_| self.failed(format!("{operation} is not answered")))?;
        let answer = answer.map_err(|failure| match failure {
            Failure::NoDaemon(_) => self.failed("its daemon is gone"),
            failure => self.failed(failure),
        })?;
        let envelope = answer.envelope().map_err(|failure| self.failed(failure))?;
        if envelope["ok"] == true {
            return Ok(envelope);
        }
        let said = envelope["error"]["message"].as_str().unwrap_or("no reason is given");
        Err(self.failed(format!("{operation} was refused: {}", visible::line(said))))
    }

    fn failed(&self, why: impl std::fmt::Display) -> Failure {
        Failure::Failed(format!("{}: {why}", self.title))
    }

    /// Whether another host is connected.
    ///
    /// # Errors
    /// If it cannot be told.
    pub async fn is_connected(&self, other: &Self) -> Result<bool, Failure> {
        let list = self.owner("peer_list", json!({})).await?;
        Ok(rows(&list, "peers").any(|peer| peer["host"] == other.id && peer["connected"] == true))
    }

    /// What the agent owes, once there is something with this duty.
    ///
    /// # Errors
    /// If that does not come.
    pub async fn owing(&self, duty: &str) -> Result<Value, Failure> {
        let what = format!("{} owes nothing of the kind `{duty}`", self.name);
        until(&what, async || {
            let turn = self.turn().await?;
            let found = rows(&turn, "obligations").any(|owed| owed["duty"] == duty);
            Ok(found.then_some(turn))
        })
        .await
    }

    /// The agent's turn.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn turn(&self) -> Result<Value, Failure> {
        self.agent("turn", json!({})).await
    }

    /// The texts of a thread's entries, in their order.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn texts(&self, thread: &str) -> Result<Vec<String>, Failure> {
        let page = self.agent("thread_entries", json!({"thread": thread, "limit": 50})).await?;
        Ok(rows(&page, "entries").map(|entry| content(&page, &entry["text_content"])).collect())
    }

    /// Where a log stands here.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn standing(&self, object: &str) -> Result<Standing, Failure> {
        let digest = self.owner("object_digest", json!({"object": object})).await?;
        let index = digest["result"]["index"].as_u64();
        let index = index.ok_or_else(|| self.failed("a log without an index"))?;
        Ok(Standing { index, digest: text(&digest["result"]["digest"]) })
    }

    /// Who owes what in a thread, whoever's agents they are, as the log here says.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn owed(&self, thread: &str) -> Result<Vec<Owed>, Failure> {
        let mut facts = Vec::new();
        let mut arguments = json!({"object": thread, "limit": 50});
        for _ in 0..PAGES_MAX {
            let page = self.owner("object_log", arguments.clone()).await?;
            facts.extend(rows(&page, "facts").cloned());
            match page.get("cursor") {
                Some(cursor) => arguments["cursor"] = cursor.clone(),
                None => break,
            }
        }
        Ok(super::owed::after(&facts))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // After an orderly end neither does anything.
        let _ = self.daemon.child().kill();
        let _ = self.daemon.child().wait();
    }
}

/// Looks again and again until something is there.
///
/// # Errors
/// If it does not come; `missing` says so.
pub async fn until<T>(missing: &str, mut look: impl AsyncFnMut() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
    let give_up = Instant::now() + COMING_WAIT;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() > give_up {
            return Err(Failure::Failed(format!("after {} s {missing}", COMING_WAIT.as_secs())));
        }
        sleep(LOOK_WAIT).await;
    }
}

/// The rows of a list.
pub fn rows<'a>(envelope: &'a Value, plural: &str) -> impl Iterator<Item = &'a Value> {
    envelope["result"][plural].as_array().into_iter().flatten()
}

/// A value as text.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What participants wrote, by its key.
pub fn content(envelope: &Value, key: &Value) -> String {
    key.as_str().map(|key| text(&envelope["content"][key]["text"])).unwrap_or_default()
}
