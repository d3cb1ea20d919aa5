//! Hosts in network namespaces of their own, joined by wires that are pulled out, cut, slowed down and renumbered.

mod wires;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::hosts::{Host, alike, eventually, thread};

use self::wires::{Namespace, Wire, namespaces};

/// Every interface of the namespace, and nobody is found by himself.
const PLAIN: [&str; 2] = ["--bind=0.0.0.0:0", "--discovery=off"];

/// The same, but for hosts of the same network.
const FOUND: [&str; 2] = ["--bind=0.0.0.0:0", "--discovery=mdns"];

fn host(place: &Namespace, name: &str, flags: &[&str]) -> Host {
    let directory = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::inside(&place.name, &directory.path().join("home"), flags);
    daemon.keep(Some(directory));
    Host::of(daemon, name)
}

/// Kills the daemon, as a power cut would, and starts it again.
fn killed_and_back(mut host: Host, place: &Namespace) -> Host {
    let (home, directory) = host.daemon.kill();
    host.daemon = Daemon::inside(&place.name, &home, &PLAIN);
    host.daemon.keep(directory);
    host
}

fn post(thread: &Value, text: &str, ask: &[&Host]) -> Value {
    let ask: Vec<_> = ask.iter().map(|host| &host.agent).collect();
    json!({"thread": thread, "text": text, "ask": ask})
}

/// Waits until nothing of a host's agent is unsettled.
fn settled(host: &Host) {
    eventually("an empty outbox", || host.outbox().is_empty().then_some(()));
}

#[test]
fn an_action_that_a_cut_overtakes_is_sealed_once_when_it_heals() {
    let Some([a, b]) = namespaces() else { return };
    let wire = Wire::between(&a, &b);
    let (alice, bob) = (host(&a, "alice", &PLAIN), host(&b, "bob", &PLAIN));
    bob.add(&alice);
    let thread = thread(&alice, &[&bob]);
    alike(&[&alice, &bob], &thread);

    // Short: somebody waits for the answer all the while.
    let mut waiting = post(&thread, "waited for", &[&alice]);
    waiting["wait_ms"] = json!(60_000);
    wire.plug(false);
    let reply = std::thread::scope(|scope| {
        let reply = scope.spawn(|| bob.daemon.call(&bob.token, "entry_post", &waiting));
        eventually("an action that waits", || (!bob.outbox().is_empty()).then_some(()));
        alice.sealed("entry_post", post(&thread, "meanwhile", &[]));
        wire.plug(true);
        reply.join().unwrap()
    });
    assert_eq!((reply.status, &reply.body["standing"]), (200, &json!("sealed")), "{:#}", reply.body);
    assert_eq!(alice.texts(&thread), ["meanwhile", "waited for"]);

    // Long: each knows that the other is away.
    wire.plug(false);
    bob.pending("entry_post", post(&thread, "kept", &[&alice]));
    alice.connected(&bob, false);
    bob.connected(&alice, false);
    alice.sealed("entry_post", post(&thread, "alone", &[&bob]));
    bob.pending("entry_post", post(&thread, "kept as well", &[]));
    assert_eq!(bob.outbox().len(), 2);
    wire.plug(true);
    settled(&bob);
    alike(&[&alice, &bob], &thread);
    for host in [&alice, &bob] {
        assert_eq!(host.texts(&thread), ["meanwhile", "waited for", "alone", "kept", "kept as well"]);
        host.daemon.assert_sound();
    }
    assert_eq!(bob.owes()["entry"], 3);
}

#[test]
fn a_host_with_another_address_is_found_again() {
    let Some([a, b]) = namespaces() else { return };
    let mut wire = Wire::between(&a, &b);
    let (mut alice, bob) = (host(&a, "alice", &PLAIN), host(&b, "bob", &PLAIN));
    bob.add(&alice);
    let thread = thread(&alice, &[&bob]);
    alike(&[&alice, &bob], &thread);
    // The one that bob's owner gave a ticket of moves: its own dialling tells the other where it is.
    wire.renumber(0);
    bob.sealed("entry_post", post(&thread, "to the new place", &[]));
    wire.renumber(1);
    alice.sealed("entry_post", post(&thread, "to the other's new place", &[]));
    alike(&[&alice, &bob], &thread);
    // What they learnt is kept: after a restart each is where the other looks.
    alice = killed_and_back(alice, &a);
    bob.sealed("entry_post", post(&thread, "after a restart", &[]));
    alike(&[&alice, &bob], &thread);
    // It moves while it is down, and is found as it dials.
    let (home, directory) = alice.daemon.kill();
    bob.pending("entry_post", post(&thread, "nobody is there", &[]));
    wire.renumber(0);
    alice.daemon = Daemon::inside(&a.name, &home, &PLAIN);
    alice.daemon.keep(directory);
    settled(&bob);
    alike(&[&alice, &bob], &thread);
    assert_eq!(alice.texts(&thread).len(), 4);
    for host in [&alice, &bob] {
        host.daemon.assert_sound();
    }
}

#[test]
fn hosts_that_both_moved_while_apart_find_each_other_by_mdns() {
    let Some([a, b]) = namespaces() else { return };
    let mut wire = Wire::between(&a, &b);
    let (alice, bob) = (host(&a, "alice", &FOUND), host(&b, "bob", &FOUND));
    bob.add(&alice);
    let thread = thread(&alice, &[&bob]);
    alike(&[&alice, &bob], &thread);
    wire.plug(false);
    bob.pending("entry_post", post(&thread, "kept", &[]));
    for end in [0, 1] {
        wire.renumber(end);
    }
    alice.connected(&bob, false);
    bob.connected(&alice, false);
    wire.plug(true);
    settled(&bob);
    alike(&[&alice, &bob], &thread);
    assert_eq!(alice.texts(&thread), ["kept"]);
}

#[test]
fn hosts_that_start_before_there_is_a_network_find_each_other_by_mdns() {
    let Some([a, b]) = namespaces() else { return };
    let [alice, bob] = [(&a, "alice"), (&b, "bob")].map(|(place, name)| host(place, name, &FOUND));
    // Of a host without a network a ticket says who it is, and no more.
    bob.add(&alice);
    let _wire = Wire::between(&a, &b);
    bob.connected(&alice, true);
    let thread = thread(&alice, &[&bob]);
    alike(&[&alice, &bob], &thread);
}

/// Where a thread's log ends at a host.
fn index(host: &Host, thread: &Value) -> u64 {
    host.digest(thread)["index"].as_u64().unwrap()
}

/// Posts entries of an agent, several at once and so in any order; their texts.
fn posted(host: &Host, thread: &Value, count: usize) -> Vec<String> {
    let text = |n: usize| {
        // One in a hundred is long.
        let filling = if n.is_multiple_of(100) { "long ".repeat(50_000) } else { String::new() };
        format!("entry {n} {filling}")
    };
    const AT_ONCE: usize = 8;
    std::thread::scope(|scope| {
        for first in 0..AT_ONCE {
            scope.spawn(move || {
                for n in (first..count).step_by(AT_ONCE) {
                    host.sealed("entry_post", post(thread, &text(n), &[]));
                }
            });
        }
    });
    (0..count).map(text).collect()
}

/// The texts of a thread, whole and sorted.
fn whole_texts(host: &Host, thread: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    let mut arguments = json!({"thread": thread, "limit": 50, "max_bytes": 262_144});
    loop {
        let page = host.read("thread_entries", arguments.clone());
        for entry in page["result"]["entries"].as_array().unwrap() {
            let content = &page["content"][entry["text_content"].as_str().unwrap()];
            texts.push(content["text"].as_str().unwrap_or("missing").to_owned());
        }
        match page.get("cursor") {
            Some(cursor) => arguments["cursor"] = cursor.clone(),
            None => break,
        }
    }
    texts.sort();
    texts
}

#[test]
fn a_transfer_in_which_both_ends_are_killed_arrives_once() {
    let Some([a, b]) = namespaces() else { return };
    let wire = Wire::between(&a, &b);
    let (mut alice, mut bob) = (host(&a, "alice", &PLAIN), host(&b, "bob", &PLAIN));
    bob.add(&alice);
    let thread = thread(&alice, &[&bob]);
    alike(&[&alice, &bob], &thread);
    bob.network(false);
    alice.connected(&bob, false);
    let mut before = index(&bob, &thread);
    let mut expected = posted(&alice, &thread, 2000);
    expected.sort();
    let total = before + 2000;

    wire.throttle();
    bob.network(true);
    let mut kills = Vec::new();
    for kill_receiver in [true, false, true, false] {
        let seen = eventually("more of the log", || Some(index(&bob, &thread)).filter(|index| *index > before));
        kills.push(seen);
        if seen == total {
            break;
        }
        before = seen;
        if kill_receiver {
            bob = killed_and_back(bob, &b);
            assert!(index(&bob, &thread) >= seen, "what was seen is there");
        } else {
            alice = killed_and_back(alice, &a);
        }
    }
    println!("killed at {kills:?} of {total}");
    assert!(kills[0] < total, "the first kill came in the middle");
    alike(&[&alice, &bob], &thread);
    eventually("every text", || (whole_texts(&bob, &thread) == expected).then_some(()));
    assert_eq!(index(&bob, &thread), total);
    assert_eq!(whole_texts(&alice, &thread), expected);
    for host in [&alice, &bob] {
        host.daemon.assert_sound();
    }
}

#[test]
fn a_third_host_carries_between_two_that_cannot_reach_each_other() {
    let Some([a, b, c]) = namespaces() else { return };
    let (to_alice, to_bob) = (Wire::between(&a, &c), Wire::between(&b, &c));
    let [alice, bob, carol] =
        [(&a, "alice"), (&b, "bob"), (&c, "carol")].map(|(place, name)| host(place, name, &PLAIN));
    for host in [&alice, &bob] {
        host.add(&carol);
    }
    // Carol's thread goes to alice, whom bob has never met.
    let thread = thread(&carol, &[&alice, &bob]);
    alike(&[&alice, &bob, &carol], &thread);
    carol.owner("object_handover", json!({"object": thread, "host": alice.id}));
    alike(&[&alice, &bob, &carol], &thread);
    bob.sealed("entry_post", post(&thread, "through carol", &[&alice]));
    assert_eq!(alice.owes()["duty"], "respond");

    // Now carol sees one of them at a time.
    to_alice.plug(false);
    bob.pending("entry_post", post(&thread, "carried", &[&alice]));
    eventually("the action at the third host", || {
        (carol.owner("host_status", json!({}))["result"]["carried"] == 1).then_some(())
    });
    to_bob.plug(false);
    to_alice.plug(true);
    eventually("what was carried", || (alice.texts(&thread).len() == 2).then_some(()));
    alice.sealed("entry_post", post(&thread, "an answer", &[&bob]));
    alike(&[&alice, &carol], &thread);
    to_alice.plug(false);
    to_bob.plug(true);
    settled(&bob);
    alike(&[&bob, &carol], &thread);
    assert_eq!(bob.owes()["entry"], 3);
    assert_eq!(bob.texts(&thread), ["through carol", "carried", "an answer"]);
    assert_eq!(bob.digest(&thread), alice.digest(&thread));
    assert!(!bob.is_connected(&alice.id) && !alice.is_connected(&bob.id));
    for host in [&alice, &bob, &carol] {
        host.daemon.assert_sound();
    }
}

#[test]
fn a_peer_that_falls_silent_costs_nobody_else_time() {
    let Some([a, b, c]) = namespaces() else { return };
    let (to_bob, to_carol) = (Wire::between(&a, &b), Wire::between(&a, &c));
    let [alice, bob, carol] =
        [(&a, "alice"), (&b, "bob"), (&c, "carol")].map(|(place, name)| host(place, name, &PLAIN));
    for host in [&bob, &carol] {
        host.add(&alice);
    }
    let thread = thread(&alice, &[&bob, &carol]);
    alike(&[&alice, &bob, &carol], &thread);
    let work = || {
        alice.sealed("entry_post", post(&thread, "here", &[&bob]));
        carol.sealed("entry_post", post(&thread, "from afar", &[]));
        alice.read("turn", json!({}));
        alice.read("working_set", json!({"object": thread}));
        alice.owner("host_status", json!({}));
    };
    // All that follows would be answered once somebody has noticed that bob is gone, so it is counted what was before.
    to_bob.swallow();
    let mut before = 0;
    while alice.is_connected(&bob.id) {
        work();
        before += 1;
    }
    assert!(before >= 5, "only {before} rounds were answered before it was noticed that a peer is gone");
    // And while it is dialled, again and again to no effect.
    for _ in 0..20 {
        work();
    }
    println!("{before} rounds were answered before it was noticed");
    bob.pending("entry_post", post(&thread, "unheard", &[]));
    alike(&[&alice, &carol], &thread);
    // Nor is it waited for by who leaves, were it only just silent.
    to_carol.swallow();
    alice.network(false);
    eventually("nothing open", || open_sockets(&alice.daemon).is_empty().then_some(()));
    for host in [alice, bob, carol] {
        let (log, ..) = host.daemon.stop();
        assert!(!log.contains("did not end in time"), "{log}");
    }
}

/// The sockets that could carry something from host to host in the namespace of a daemon, as the system lists them.
fn open_sockets(daemon: &Daemon) -> Vec<String> {
    let mut open = Vec::new();
    for kind in ["udp", "udp6", "udplite", "udplite6", "raw", "raw6", "tcp", "tcp6"] {
        let list = std::fs::read_to_string(format!("/proc/{}/net/{kind}", daemon.pid())).unwrap_or_default();
        // Beside a heading there is HTTP, which listens on 127.0.0.1 and is asked from nowhere.
        let is_local = |line: &&str| kind == "tcp" && line.contains(" 0100007F:");
        open.extend(list.lines().skip(1).filter(|line| !is_local(line)).map(|line| format!("{kind} {line}")));
    }
    open
}

#[test]
fn off_the_network_no_socket_is_open_and_that_is_kept() {
    let Some([a, b]) = namespaces() else { return };
    let _wire = Wire::between(&a, &b);
    let (mut alice, bob) = (host(&a, "alice", &FOUND), host(&b, "bob", &FOUND));
    bob.add(&alice);
    alice.connected(&bob, true);
    assert!(!open_sockets(&alice.daemon).is_empty());
    alice.network(false);
    eventually("nothing open", || open_sockets(&alice.daemon).is_empty().then_some(()));
    bob.connected(&alice, false);
    // The flags ask for a port and for mDNS again, which changes nothing.
    for kill in [true, false] {
        let (home, directory) = if kill {
            alice.daemon.kill()
        } else {
            let (_, home, directory) = alice.daemon.stop();
            (home, directory)
        };
        alice.daemon = Daemon::inside(&a.name, &home, &FOUND);
        alice.daemon.keep(directory);
        for _ in 0..20 {
            assert_eq!(alice.owner("host_status", json!({}))["result"]["online"], false);
            assert_eq!(open_sockets(&alice.daemon), [""; 0]);
        }
    }
    assert!(!bob.is_connected(&alice.id));
    alice.network(true);
    bob.connected(&alice, true);
    assert!(!open_sockets(&alice.daemon).is_empty());
}
