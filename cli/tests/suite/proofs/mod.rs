//! What an implementation must prove (section 10.2 of the protocol), each of its seven claims by one test.
//!
//! The tests see what any user sees: answers over HTTP and the command line of a real daemon, which is killed (`kill -9`)
//! and started again where it must have forgotten everything. Nothing is read from the store.

mod competing;
mod content;
mod duties;
mod fold;
mod recovery;
mod references;
mod replays;
mod traced;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Reply, call_at};

/// An agent: its id and its token.
#[derive(Clone, Debug)]
struct Actor {
    id: String,
    token: String,
}

impl Actor {
    fn new(daemon: &Daemon, name: &str) -> Self {
        let (id, token) = daemon.agent(name);
        Self { id, token }
    }

    fn ok(&self, daemon: &Daemon, operation: &str, arguments: Value) -> Value {
        daemon.ok(&self.token, operation, arguments)
    }

    /// What it owes: the whole turn.
    fn turn(&self, daemon: &Daemon) -> Vec<Value> {
        daemon.walk(&self.token, "turn", json!({}), "obligations")
    }

    /// Must be refused with this code.
    fn refused(&self, daemon: &Daemon, operation: &str, arguments: Value, code: &str) {
        let reply = daemon.call(&self.token, operation, &arguments);
        assert_eq!(reply.code(), code, "{operation} {arguments}: {:#}", reply.body);
    }
}

/// A thread of the first one's that the others have joined as speakers; its id.
fn thread(daemon: &Daemon, creator: &Actor, others: &[&Actor]) -> Value {
    let made = creator.ok(daemon, "thread_create", json!({"admission": {}}));
    for other in others {
        other.ok(daemon, "thread_join", json!({"ticket": made["secret"]["ticket"]}));
    }
    made["result"]["thread"].clone()
}

/// Offers an assignment; its id.
fn offer(daemon: &Daemon, creator: &Actor, thread: &Value, to: &Actor, more: Value) -> Value {
    let mut assign = json!({"to": to.id, "criteria": "done well"});
    assign.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let arguments = json!({"thread": thread, "text": "please", "ask": [], "assign": assign});
    creator.ok(daemon, "entry_post", arguments)["result"]["assignment"].clone()
}

/// The facts of an object, in their order.
fn facts(daemon: &Daemon, object: &Value) -> Vec<Value> {
    daemon.walk(&daemon.token("owner"), "object_log", json!({"object": object}), "facts")
}

/// The facts of every object.
fn every_fact(daemon: &Daemon) -> Vec<(String, Vec<Value>)> {
    let objects = daemon.trace();
    objects.iter().map(|row| (text(&row["object"]), facts(daemon, &row["object"]))).collect()
}

fn effects(fact: &Value) -> &[Value] {
    fact["event"]["payload"]["effects"].as_array().unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// Killed as by a power cut and started again: nothing is left but the home.
fn killed(daemon: Daemon) -> Daemon {
    let (home, directory) = daemon.kill();
    let mut daemon = Daemon::at(&home);
    daemon.keep(directory);
    daemon
}

/// These calls at once, each from a client of its own; their replies in the same order.
fn at_once(daemon: &Daemon, calls: &[(&Actor, &str, Value)]) -> Vec<Reply> {
    let start = std::sync::Barrier::new(calls.len());
    std::thread::scope(|scope| {
        let clients: Vec<_> = calls
            .iter()
            .map(|(actor, operation, arguments)| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    call_at(&daemon.address, &actor.token, operation, arguments).unwrap()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}
