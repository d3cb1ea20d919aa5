//! A daemon that is killed in the middle of its work, again and again: nothing that it acknowledged is lost, nothing is
//! done twice, and nobody ever saw a log that is not the beginning of the log at the end.
//!
//! `KWOON_KILLS=50` kills it fifty times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::daemon::{Daemon, call_at};

/// A request with its idempotency key.
#[derive(Clone)]
struct Request {
    token: String,
    operation: &'static str,
    arguments: Value,
}

/// A request and the receipt that was given for it.
struct Done {
    request: Request,
    receipt: Value,
}

/// What a worker did until the daemon was killed, and what it asked for last, if no answer came.
#[derive(Default)]
struct Work {
    done: Vec<Done>,
    unanswered: Option<Request>,
}

/// Who works, and in which thread.
struct Scene {
    alice: String,
    bob: String,
    bob_id: String,
    thread: Value,
}

impl Scene {
    fn request(&self, token: &str, operation: &'static str, key: &str, mut arguments: Value) -> Request {
        arguments["idempotency_key"] = json!(key);
        Request { token: token.to_owned(), operation, arguments }
    }

    /// Memories, every third one longer than what lies in the store's own file.
    fn remember(&self, key: &str, n: usize) -> Request {
        let text = if n.is_multiple_of(3) { format!("{key} ").repeat(2000) } else { key.to_owned() };
        self.request(&self.alice, "memory_create", key, json!({"text": text, "title": key}))
    }

    /// Entries that bob owes a response to.
    fn ask(&self, key: &str, n: usize) -> Request {
        let text = if n.is_multiple_of(2) { format!("{key}? ").repeat(3000) } else { key.to_owned() };
        self.request(&self.alice, "entry_post", key, json!({"thread": self.thread, "text": text}))
    }

    /// Assignments, each taken and never delivered.
    fn assign(&self, key: &str, before: Option<&Done>) -> Request {
        match before.filter(|before| before.request.operation == "entry_post") {
            Some(offer) => {
                let assignment = &offer.receipt["result"]["assignment"];
                self.request(&self.bob, "assignment_take", key, json!({"assignment": assignment}))
            }
            None => {
                let assign = json!({"to": self.bob_id, "criteria": "in time", "deliver_within": "1s"});
                let offer = json!({"thread": self.thread, "text": "quick", "ask": [], "assign": assign});
                self.request(&self.alice, "entry_post", key, offer)
            }
        }
    }

    /// Bob responds to what he owes: by a reply, or by handling it. Nothing while he owes nothing, or if he cannot ask.
    fn respond(&self, address: &str, key: &str, n: usize) -> Option<Request> {
        let turn = call_at(address, &self.bob, "turn", &json!({})).ok()?;
        let owed = turn.body["result"]["obligations"].as_array()?.iter().find(|owed| owed["duty"] == "respond")?;
        let entry = &owed["entry"];
        Some(if n.is_multiple_of(2) {
            let reply = json!({"thread": self.thread, "reply_to": entry, "text": format!("{key}! ").repeat(1000)});
            self.request(&self.bob, "entry_post", key, reply)
        } else {
            self.request(&self.bob, "entry_handle", key, json!({"thread": self.thread, "entry": entry}))
        })
    }
}

/// Makes requests until the connection breaks.
fn work(address: &str, count: &AtomicUsize, mut next: impl FnMut(usize, Option<&Done>) -> Option<Request>) -> Work {
    let mut work = Work::default();
    for n in 0.. {
        let Some(request) = next(n, work.done.last()) else {
            // Nothing to do: the daemon is gone, or there will be something.
            match std::net::TcpStream::connect(address) {
                Ok(_) => continue,
                Err(_) => return work,
            }
        };
        match call_at(address, &request.token, request.operation, &request.arguments) {
            Ok(reply) if reply.status == 200 => {
                work.done.push(Done { request, receipt: reply.body["receipt"].clone() });
                count.fetch_add(1, Ordering::SeqCst);
            }
            Ok(reply) => panic!("{}: {:#}", request.operation, reply.body),
            Err(_) => {
                work.unanswered = Some(request);
                return work;
            }
        }
    }
    unreachable!("until the daemon is killed")
}

/// Reads where the thread's log stands until the connection breaks: each index with the head there.
fn watch(address: &str, owner: &str, thread: &Value) -> BTreeMap<u64, String> {
    let mut seen = BTreeMap::new();
    while let Ok(reply) = call_at(address, owner, "object_digest", &json!({"object": thread})) {
        let (index, head) = (reply.body["result"]["index"].as_u64().unwrap(), &reply.body["result"]["head"]);
        let head = head.as_str().unwrap().to_owned();
        let before = seen.insert(index, head.clone());
        assert!(before.is_none_or(|before| before == head), "two heads at {index}");
    }
    seen
}

/// All rows of a list.
fn all(daemon: &Daemon, token: &str, operation: &str, mut arguments: Value, plural: &str) -> Vec<Value> {
    let mut rows = Vec::new();
    arguments["limit"] = json!(50);
    loop {
        let page = daemon.ok(token, operation, arguments.clone());
        rows.extend(page["result"][plural].as_array().unwrap().iter().cloned());
        match page.get("cursor") {
            Some(cursor) => arguments["cursor"] = cursor.clone(),
            None => return rows,
        }
    }
}

/// The entries that an agent owes a response to.
fn owed(daemon: &Daemon, token: &str) -> BTreeSet<u64> {
    let turn = all(daemon, token, "turn", json!({}), "obligations");
    turn.iter().filter(|owed| owed["duty"] == "respond").map(|owed| owed["entry"].as_u64().unwrap()).collect()
}

fn entry(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Receipt and repetition say the same as the answer did.
fn check(daemon: &Daemon, done: &[Done]) {
    for Done { request: Request { token, operation, arguments }, receipt } in done {
        let asked = json!({"operation": operation, "key": arguments["idempotency_key"]});
        assert_eq!(daemon.ok(token, "receipt_get", asked)["receipt"], *receipt, "{operation}");
        assert_eq!(daemon.ok(token, operation, arguments.clone())["receipt"], *receipt, "{operation}");
    }
}

/// Whose turn it is follows from what was done, no more and no less: all of it is known.
fn check_turns(daemon: &Daemon, scene: &Scene, done: &[Done]) {
    let (mut of_bob, mut of_alice) = (BTreeSet::new(), BTreeSet::new());
    let of = |operation| done.iter().filter(move |done| done.request.operation == operation);
    for Done { request: Request { arguments, .. }, receipt } in of("entry_post") {
        let made = entry(&receipt["result"]["entry"]);
        if arguments["reply_to"].is_u64() {
            of_alice.insert(made);
        } else if arguments["assign"].is_null() {
            of_bob.insert(made);
        }
    }
    for Done { request: Request { arguments, .. }, .. } in of("entry_post").chain(of("entry_handle")) {
        for answered in [&arguments["reply_to"], &arguments["entry"]].into_iter().filter_map(Value::as_u64) {
            assert!(of_bob.remove(&answered), "one response ends once");
        }
    }
    assert_eq!(owed(daemon, &scene.bob), of_bob);
    assert_eq!(owed(daemon, &scene.alice), of_alice);
}

#[test]
fn what_was_acknowledged_survives_kill_9_under_load() {
    let kills = std::env::var("KWOON_KILLS").map_or(6, |kills| kills.parse().expect("a number"));
    let mut daemon = Daemon::fresh();
    let ((_, alice), (bob_id, bob)) = (daemon.agent("alice"), daemon.agent("bob"));
    let made = daemon.ok(&alice, "thread_create", json!({"admission": {}}));
    let thread = made["result"]["thread"].clone();
    daemon.ok(&bob, "thread_join", json!({"ticket": made["secret"]["ticket"]}));
    let scene = Scene { alice, bob, bob_id, thread };
    let owner = daemon.token("owner");
    let (mut done, mut seen) = (Vec::<Done>::new(), BTreeMap::<u64, String>::new());
    let (mut unanswered, mut performed) = (0, 0);
    for kill in 0..kills {
        let count = AtomicUsize::new(0);
        let address = daemon.address.clone();
        let (address, scene, count) = (&address, &scene, &count);
        let (works, watched, (home, directory)) = std::thread::scope(|scope| {
            let key = move |worker: &str, n: usize| format!("{kill}{worker}{n}");
            let workers = [
                scope.spawn(move || work(address, count, |n, _| Some(scene.remember(&key("m", n), n)))),
                scope.spawn(move || work(address, count, |n, _| Some(scene.ask(&key("e", n), n)))),
                scope.spawn(move || work(address, count, |n, before| Some(scene.assign(&key("a", n), before)))),
                scope.spawn(move || work(address, count, |n, _| scene.respond(address, &key("r", n), n))),
            ];
            let watcher = scope.spawn(|| watch(address, &owner, &scene.thread));
            // Killed in the middle of the work, each time after a different amount of it.
            let broke = || workers.iter().any(|worker| worker.is_finished());
            while count.load(Ordering::SeqCst) < 10 + kill * 7 % 60 && !broke() {
                std::thread::yield_now();
            }
            let kept = daemon.kill();
            let works = workers.map(|worker| worker.join().unwrap());
            (works, watcher.join().unwrap(), kept)
        });
        daemon = Daemon::at(&home);
        daemon.keep(directory);
        let before = done.len();
        for work in works {
            done.extend(work.done);
            // What was not answered is asked for again: it is there, or it is done now.
            if let Some(request) = work.unanswered {
                let asked = json!({"operation": request.operation, "key": request.arguments["idempotency_key"]});
                unanswered += 1;
                performed += usize::from(daemon.call(&request.token, "receipt_get", &asked).status == 200);
                let reply = daemon.call(&request.token, request.operation, &request.arguments);
                assert_eq!(reply.status, 200, "{}: {:#}", request.operation, reply.body);
                done.push(Done { request, receipt: reply.body["receipt"].clone() });
            }
        }
        check(&daemon, &done[before..]);
        check_turns(&daemon, scene, &done);
        for (index, head) in watched {
            let other = seen.insert(index, head.clone());
            assert!(other.is_none_or(|other| other == head), "two heads at {index}");
        }
    }
    check(&daemon, &done);
    // Deadlines that came while nobody was there were sealed all the same.
    for taken in done.iter().filter(|done| done.request.operation == "assignment_take") {
        let assignment = json!({"assignment": taken.request.arguments["assignment"]});
        loop {
            let state = daemon.ok(&scene.bob, "assignment_get", assignment.clone())["result"]["state"].clone();
            if state == "timed_out" {
                break;
            }
            assert_eq!(state, "taken");
            std::thread::yield_now();
        }
    }
    let verified = daemon.ok(&owner, "ledger_verify", json!({}));
    assert_eq!(verified["result"]["sound"], true, "{verified:#}");
    // What anybody ever saw of the log is a beginning of it, and sealed.
    let log = all(&daemon, &owner, "object_log", json!({"object": scene.thread}), "facts");
    for (index, head) in &seen {
        let fact = &log[usize::try_from(*index).unwrap()];
        assert_eq!((&fact["index"], &fact["head"], &fact["sealed"]), (&json!(index), &json!(head), &json!(true)));
    }
    // Nothing is there beside what was asked for, once each.
    let of = |operation: &str| done.iter().filter(|done| done.request.operation == operation).count();
    let entries = all(&daemon, &scene.alice, "thread_entries", json!({"thread": scene.thread}), "entries");
    assert_eq!(entries.len(), of("entry_post"));
    let memories = all(&daemon, &scene.alice, "memory_list", json!({}), "memories");
    let by_alice = done.iter().filter(|done| done.request.token == scene.alice);
    assert_eq!(memories.len(), by_alice.filter(|done| done.request.operation != "assignment_take").count());
    println!(
        "{kills} kills, {} actions, {unanswered} unanswered at a kill of which {performed} had been done, {} heads seen, {} facts",
        done.len(),
        seen.len(),
        log.len()
    );
}
