//! Two and three daemons that work together over the loopback interface.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::Daemon;

/// Nothing here takes this long unless it never comes.
const NEVER: Duration = Duration::from_secs(90);

/// Looks until something is there. Each look is a call of a daemon, so nothing spins.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + NEVER;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "this never comes: {what}");
    }
}

/// A daemon with one agent.
pub struct Host {
    /// The daemon.
    pub daemon: Daemon,
    /// The owner's token.
    pub owner: String,
    /// The id of the host.
    pub id: String,
    /// The id of the agent.
    pub agent: String,
    /// The agent's token.
    pub token: String,
}

impl Host {
    fn new(name: &str) -> Self {
        Self::of(Daemon::fresh(), name)
    }

    /// A daemon, and an agent that is made on it.
    pub fn of(daemon: Daemon, name: &str) -> Self {
        let (agent, token) = daemon.agent(name);
        let (owner, id) = (daemon.token("owner"), host_id(&daemon));
        Self { daemon, owner, id, agent, token }
    }

    /// Calls as the agent what must be sealed.
    pub fn sealed(&self, operation: &str, arguments: Value) -> Value {
        self.daemon.sealed(&self.token, operation, arguments)
    }

    /// Calls as the agent what must be pending.
    pub fn pending(&self, operation: &str, arguments: Value) -> Value {
        self.daemon.pending(&self.token, operation, arguments)
    }

    /// Reads as the agent.
    pub fn read(&self, operation: &str, arguments: Value) -> Value {
        self.daemon.ok(&self.token, operation, arguments)
    }

    /// Calls as the owner.
    pub fn owner(&self, operation: &str, arguments: Value) -> Value {
        self.daemon.ok(&self.owner, operation, arguments)
    }

    /// A ticket to this host.
    pub fn ticket(&self) -> String {
        self.owner("peer_ticket", json!({}))["result"]["ticket"].as_str().unwrap().to_owned()
    }

    /// Adds another host.
    pub fn add(&self, other: &Self) {
        self.owner("peer_add", json!({"ticket": other.ticket()}));
    }

    /// Goes on or off the network.
    pub fn network(&self, online: bool) {
        self.owner("network", json!({"online": online}));
    }

    /// Whether another host is connected.
    pub fn is_connected(&self, other: &str) -> bool {
        let peers = self.owner("peer_list", json!({}));
        peers["result"]["peers"]
            .as_array()
            .unwrap()
            .iter()
            .any(|peer| peer["host"] == other && peer["connected"] == true)
    }

    /// Waits until another host is connected, or is not.
    pub fn connected(&self, other: &Self, connected: bool) {
        eventually("a connection, or its end", || (self.is_connected(&other.id) == connected).then_some(()));
    }

    /// The first obligation, once there is one.
    pub fn owes(&self) -> Value {
        let turn = self.read("turn", json!({"wait_ms": 60_000}));
        let owed = turn["result"]["obligations"].as_array().unwrap().first().cloned();
        owed.unwrap_or_else(|| panic!("nothing is owed: {turn:#}"))
    }

    /// Where a log stands here.
    pub fn digest(&self, object: &Value) -> Value {
        self.owner("object_digest", json!({"object": object}))["result"].clone()
    }

    /// Own actions that are not settled.
    pub fn outbox(&self) -> Vec<Value> {
        self.read("outbox_list", json!({}))["result"]["actions"].as_array().unwrap().clone()
    }

    /// The texts of a thread, in their order.
    pub fn texts(&self, thread: &Value) -> Vec<String> {
        let mut texts = Vec::new();
        let mut arguments = json!({"thread": thread, "limit": 50});
        loop {
            let page = self.read("thread_entries", arguments.clone());
            for entry in page["result"]["entries"].as_array().unwrap() {
                let key = entry["text_content"].as_str().unwrap();
                texts.push(page["content"][key]["text"].as_str().unwrap_or("missing").to_owned());
                arguments["after"] = entry["entry"].clone();
            }
            if page.get("cursor").is_none() {
                return texts;
            }
        }
    }

    /// Kills the daemon, as a power cut would, and starts it again.
    fn killed_and_back(mut self) -> Self {
        let (home, directory) = self.daemon.kill();
        self.daemon = Daemon::at(&home);
        self.daemon.keep(directory);
        self
    }
}

fn host_id(daemon: &Daemon) -> String {
    run(daemon)["host"].as_str().unwrap().to_owned()
}

fn run(daemon: &Daemon) -> Value {
    serde_json::from_slice(&std::fs::read(daemon.home.join("run.json")).unwrap()).unwrap()
}

/// A thread of the first one's agent that those of the others have joined.
pub fn thread(home: &Host, others: &[&Host]) -> Value {
    let created = home.sealed("thread_create", json!({"subject": "work", "admission": {}}));
    for other in others {
        other.sealed("thread_join", json!({"ticket": created["secret"]["ticket"]}));
    }
    created["result"]["thread"].clone()
}

/// Waits until a log stands at the same place on all hosts.
pub fn alike(hosts: &[&Host], object: &Value) {
    eventually("the same log everywhere", || {
        let first = hosts[0].digest(object);
        hosts[1..].iter().all(|host| host.digest(object) == first).then_some(())
    });
}

#[test]
fn two_hosts_share_a_thread_and_its_work() {
    let (alice, bob) = (Host::new("alice"), Host::new("bob"));
    // As their owners do it.
    let ticket = alice.daemon.cli(&["--print", "result.ticket", "peer", "ticket"]);
    let ticket = String::from_utf8(ticket.stdout).unwrap();
    let added = bob.daemon.cli(&["peer", "add", "--ticket", ticket.trim()]);
    assert_eq!(added.status.code(), Some(0), "{}", String::from_utf8_lossy(&added.stderr));
    alice.connected(&bob, true);
    bob.connected(&alice, true);

    let thread = thread(&alice, &[&bob]);
    let assign = json!({"to": bob.agent, "criteria": "in one line"});
    let offer = json!({"thread": thread, "text": "please", "assign": assign});
    let assignment = alice.sealed("entry_post", offer)["result"]["assignment"].clone();

    let owed = bob.owes();
    assert_eq!((&owed["duty"], &owed["object"]), (&json!("respond"), &thread));
    let taken = bob.sealed("assignment_take", json!({"assignment": assignment}));
    assert_eq!(taken["result"]["state"], "taken");
    assert!(taken["receipt"]["key"].is_string(), "{taken:#}");
    assert_eq!(bob.owes()["duty"], "deliver");
    bob.sealed("assignment_deliver", json!({"assignment": assignment, "output": {"text": "one line"}}));

    let owed = alice.owes();
    assert_eq!((&owed["duty"], &owed["assignment"]), (&json!("judge"), &assignment));
    let delivered = alice.read("assignment_get", json!({"assignment": assignment}));
    assert!(delivered["content"].as_object().unwrap().values().any(|text| text["text"] == "one line"), "{delivered:#}");
    alice.sealed("assignment_accept", json!({"assignment": assignment}));
    alike(&[&alice, &bob], &thread);
    for host in [&alice, &bob] {
        assert_eq!(host.texts(&thread)[0], "please");
        host.daemon.assert_sound();
        assert!(host.outbox().is_empty());
    }
}

#[test]
fn both_sides_of_a_cut_go_on_and_agree_afterwards() {
    let (alice, bob) = (Host::new("alice"), Host::new("bob"));
    bob.add(&alice);
    let thread = thread(&alice, &[&bob]);
    alike(&[&alice, &bob], &thread);
    bob.network(false);
    alice.connected(&bob, false);

    alice.sealed("entry_post", json!({"thread": thread, "text": "from the one side", "ask": []}));
    let posted = bob.pending("entry_post", json!({"thread": thread, "text": "from the other", "ask": [alice.agent]}));
    let action = &posted["result"]["action"];
    assert!(action.as_str().unwrap().starts_with("act_") && posted["result"].get("entry").is_none(), "{posted:#}");
    let waiting = bob.outbox();
    assert_eq!((waiting.len(), &waiting[0]["state"], &waiting[0]["action"]), (1, &json!("pending"), action));
    let status = bob.owner("host_status", json!({}));
    assert_eq!((&status["result"]["pending"], &status["result"]["online"]), (&json!(1), &json!(false)));
    let text = ["--agent", "bob", "entry", "post", "--thread", thread.as_str().unwrap(), "--text", "third"];
    let output = bob.daemon.cli(&text);
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("pending: not sealed yet; it is kept"));

    let status = String::from_utf8(bob.daemon.cli(&["status"]).stdout).unwrap();
    for line in
        ["online   no", "pending  2, to be sent", &format!("peers    {}  away", alice.id), thread.as_str().unwrap()]
    {
        assert!(status.contains(line), "{line} is not in:\n{status}");
    }

    bob.network(true);
    eventually("an empty outbox", || bob.outbox().is_empty().then_some(()));
    alike(&[&alice, &bob], &thread);
    let expected = ["from the one side", "from the other", "third"];
    for host in [&alice, &bob] {
        assert_eq!(host.texts(&thread), expected);
        host.daemon.assert_sound();
    }
    assert_eq!(alice.owes()["duty"], "respond");
    let turn = bob.read("turn", json!({}));
    assert_eq!(turn["result"]["pending_actions"], 0, "{turn:#}");
}

#[test]
fn who_waits_is_told_of_the_refusal() {
    let (alice, bob) = (Host::new("alice"), Host::new("bob"));
    bob.add(&alice);
    let thread = thread(&alice, &[&bob]);
    alike(&[&alice, &bob], &thread);
    bob.network(false);
    alice.connected(&bob, false);
    alice.sealed("thread_close", json!({"thread": thread}));
    let late = json!({"thread": thread, "text": "too late", "wait_ms": 60_000, "idempotency_key": "late"});
    let reply = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bob.daemon.call(&bob.token, "entry_post", &late));
        eventually("an action that waits", || (!bob.outbox().is_empty()).then_some(()));
        bob.network(true);
        waiting.join().unwrap()
    });
    assert_eq!((reply.status, reply.code()), (409, "thread_closed"), "{:#}", reply.body);
    let refused = bob.outbox();
    assert_eq!((&refused[0]["state"], &refused[0]["error"]["code"]), (&json!("refused"), &json!("thread_closed")));
}

#[test]
fn a_host_that_was_killed_comes_back_to_what_was_said_meanwhile() {
    let (mut alice, mut bob) = (Host::new("alice"), Host::new("bob"));
    bob.add(&alice);
    let thread = thread(&alice, &[&bob]);
    let post = |text: String| json!({"thread": thread, "text": text, "ask": []});
    for n in 0..3 {
        bob.sealed("entry_post", post(format!("before {n}")));
    }
    // The sequencer is killed with actions on their way to it.
    let last = json!({"thread": thread, "text": "on its way", "ask": [], "wait_ms": 0});
    bob.daemon.call(&bob.token, "entry_post", &last);
    alice = alice.killed_and_back();
    eventually("an empty outbox", || bob.outbox().is_empty().then_some(()));
    bob.sealed("entry_post", post("after".to_owned()));
    // And the other with something in its outbox, once the first cannot be reached.
    alice.network(false);
    bob.connected(&alice, false);
    bob.pending("entry_post", post("kept".to_owned()));
    bob = bob.killed_and_back();
    assert_eq!(bob.outbox().len(), 1);
    alice.network(true);
    eventually("an empty outbox", || bob.outbox().is_empty().then_some(()));
    alike(&[&alice, &bob], &thread);
    let expected = ["before 0", "before 1", "before 2", "on its way", "after", "kept"];
    for host in [&alice, &bob] {
        assert_eq!(host.texts(&thread), expected);
        host.daemon.assert_sound();
    }
}

#[test]
fn a_third_host_carries_between_two_that_never_meet() {
    let (alice, bob, carol) = (Host::new("alice"), Host::new("bob"), Host::new("carol"));
    bob.add(&alice);
    carol.add(&alice);
    carol.add(&bob);
    let thread = thread(&alice, &[&bob, &carol]);
    alike(&[&alice, &bob, &carol], &thread);
    carol.connected(&bob, true);

    alice.network(false);
    for host in [&bob, &carol] {
        host.connected(&alice, false);
    }
    bob.pending("entry_post", json!({"thread": thread, "text": "carried", "ask": [alice.agent]}));
    carol.pending("entry_post", json!({"thread": thread, "text": "carol's", "ask": []}));
    eventually("the action at the third host", || {
        (carol.owner("host_status", json!({}))["result"]["carried"] == 1).then_some(())
    });
    bob.network(false);
    carol.connected(&bob, false);
    alice.network(true);
    assert_eq!(alice.owes()["duty"], "respond");
    alike(&[&alice, &carol], &thread);
    alice.sealed("entry_post", json!({"thread": thread, "text": "an answer", "ask": []}));
    alike(&[&alice, &carol], &thread);

    alice.network(false);
    carol.connected(&alice, false);
    bob.network(true);
    eventually("an empty outbox", || bob.outbox().is_empty().then_some(()));
    alike(&[&bob, &carol], &thread);
    assert!(!bob.is_connected(&alice.id));
    assert_eq!(alice.texts(&thread), bob.texts(&thread));
    assert!(bob.texts(&thread).contains(&"an answer".to_owned()));
    for host in [&alice, &bob, &carol] {
        host.daemon.assert_sound();
    }
}

#[test]
fn a_thread_is_handed_over_and_both_sides_go_on() {
    let (alice, bob) = (Host::new("alice"), Host::new("bob"));
    bob.add(&alice);
    let thread = thread(&alice, &[&bob]);
    alike(&[&alice, &bob], &thread);
    alice.owner("object_handover", json!({"object": thread, "host": bob.id}));
    eventually("the thread at its new host", || {
        let status = bob.owner("host_status", json!({"limit": 50}));
        let objects = status["result"]["objects"].as_array().unwrap();
        objects.iter().any(|object| object["object"] == thread && object["here"] == true).then_some(())
    });
    alice.sealed("entry_post", json!({"thread": thread, "text": "from afar", "ask": []}));
    bob.sealed("entry_post", json!({"thread": thread, "text": "here", "ask": []}));
    alike(&[&alice, &bob], &thread);
    for host in [&alice, &bob] {
        assert_eq!(host.texts(&thread), ["from afar", "here"]);
        host.daemon.assert_sound();
    }
}

#[test]
fn wrong_tickets_say_what_would_be_right() {
    let (alice, bob) = (Host::new("alice"), Host::new("bob"));
    let (own, other) = (bob.ticket(), alice.ticket());
    let created = alice.sealed("thread_create", json!({"admission": {}}));
    let admission = created["secret"]["ticket"].as_str().unwrap();
    let altered = other.replacen("kwoonpeer", "kwoonpear", 1);
    let wrong = ["", "x", &other[..other.len() - 3], &altered, &other.to_uppercase(), admission];
    for ticket in wrong.into_iter().chain([own.as_str()]) {
        let reply = bob.daemon.call(&bob.owner, "peer_add", &json!({"ticket": ticket}));
        assert_eq!((reply.status, reply.code()), (400, "invalid_argument"), "{ticket}: {:#}", reply.body);
        assert_eq!(reply.body["error"]["details"]["field"], "ticket");
        let expected = reply.body["error"]["details"]["expected"].as_str().unwrap();
        assert!(expected.contains("a ticket of another host"), "{expected}");
    }
    for ticket in [&admission[..admission.len() - 3], other.as_str(), "kwoonadm"] {
        let reply = bob.daemon.call(&bob.token, "thread_join", &json!({"ticket": ticket}));
        assert_eq!((reply.status, reply.code()), (410, "admission_invalid"), "{ticket}: {:#}", reply.body);
    }
    assert_eq!(bob.owner("peer_list", json!({}))["result"]["peers"], json!([]));
    // What pasting does to it does no harm.
    let pasted = format!(" {}\n{} \n", &other[..20], &other[20..]);
    bob.owner("peer_add", json!({"ticket": pasted}));
    bob.connected(&alice, true);
}

#[test]
fn a_blocked_host_is_cut_off_until_it_is_added_again() {
    let (alice, bob) = (Host::new("alice"), Host::new("bob"));
    bob.add(&alice);
    bob.connected(&alice, true);
    alice.owner("peer_block", json!({"host": bob.id}));
    alice.connected(&bob, false);
    bob.connected(&alice, false);
    alice.add(&bob);
    alice.connected(&bob, true);
}

#[test]
fn the_port_for_other_hosts_is_kept() {
    let daemon = Daemon::fresh();
    let bind = run(&daemon)["bind"].clone();
    assert!(!bind.as_str().unwrap().ends_with(":0"), "{bind}");
    daemon.ok(&daemon.token("owner"), "network", json!({"online": false}));
    let (_, home, directory) = daemon.stop();
    // Offline it is kept all the same.
    let daemon = Daemon::at(&home);
    assert_eq!(run(&daemon)["bind"], bind);
    daemon.ok(&daemon.token("owner"), "network", json!({"online": true}));
    daemon.stop();
    // One that is taken is given up for another, unless it was asked for.
    let taken = std::net::UdpSocket::bind(bind.as_str().unwrap()).unwrap();
    let daemon = Daemon::at(&home);
    assert_ne!(run(&daemon)["bind"], bind);
    daemon.stop();
    let asked = format!("--bind={}", bind.as_str().unwrap());
    let output = crate::daemon::cli(&home, &["serve", &asked]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(bind.as_str().unwrap()) && message.contains("--bind"), "{message}");
    drop((taken, directory));
}

#[test]
fn who_joins_a_long_thread_gets_every_text() {
    let (alice, bob) = (Host::new("alice"), Host::new("bob"));
    let created = alice.sealed("thread_create", json!({"admission": {}}));
    let thread = created["result"]["thread"].clone();
    let expected: Vec<_> = (0..600).map(|n| format!("entry {n}")).collect();
    for text in &expected {
        alice.sealed("entry_post", json!({"thread": thread, "text": text, "ask": []}));
    }
    bob.add(&alice);
    bob.sealed("thread_join", json!({"ticket": created["secret"]["ticket"]}));
    alike(&[&alice, &bob], &thread);
    eventually("every text", || (bob.texts(&thread) == expected).then_some(()));
}
