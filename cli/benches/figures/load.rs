//! What callers do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::TEXT_BYTES;
use crate::caller::Caller;
use crate::daemon::Daemon;

/// An agent that calls.
pub struct Agent {
    /// Its id.
    pub id: String,
    /// Its token.
    pub token: String,
}

/// Makes an agent.
pub fn agent(daemon: &Daemon, name: &str) -> Agent {
    let mut owner = Caller::new(&daemon.address, &daemon.token("owner"));
    let made = owner.call("agent_create", &json!({"name": name}));
    Agent { id: text(&made["result"]["agent"]), token: text(&made["secret"]["token"]) }
}

/// Makes agents.
pub fn callers(daemon: &Daemon, count: usize) -> Vec<Agent> {
    (0..count).map(|n| agent(daemon, &format!("caller-{n}"))).collect()
}

/// Makes a thread of which all of them are members.
pub fn thread(daemon: &Daemon, members: &[Agent]) -> String {
    let call = |member: &Agent, operation: &str, arguments: &Value| {
        Caller::new(&daemon.address, &member.token).call(operation, arguments)
    };
    let created = call(&members[0], "thread_create", &json!({"admission": {}}));
    for member in &members[1..] {
        call(member, "thread_join", &json!({"ticket": created["secret"]["ticket"]}));
    }
    text(&created["result"]["thread"])
}

/// An entry of the measured size that asks these.
pub fn entry(thread: &str, ask: Value) -> Value {
    json!({"thread": thread, "text": "x".repeat(TEXT_BYTES), "ask": ask})
}

/// Posts this many entries by all callers at once, each on a connection of its own; how long it took.
pub fn post(daemon: &Daemon, callers: &[Agent], thread: &str, count: u64) -> Duration {
    let left = AtomicU64::new(count);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for agent in callers {
            scope.spawn(|| {
                let mut caller = Caller::new(&daemon.address, &agent.token);
                let request = caller.request("entry_post", &entry(thread, json!([])));
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                    caller.send(&request);
                }
            });
        }
    });
    started.elapsed()
}

/// Makes the agent `owing`, which owes twenty responses.
pub fn owing(daemon: &Daemon, asking: &Agent) {
    let owing = agent(daemon, "owing");
    let members = [Agent { id: asking.id.clone(), token: asking.token.clone() }, owing];
    let thread = thread(daemon, &members);
    let mut caller = Caller::new(&daemon.address, &asking.token);
    for _ in 0..20 {
        caller.call("entry_post", &entry(&thread, json!([members[1].id])));
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}
