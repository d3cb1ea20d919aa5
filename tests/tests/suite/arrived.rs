//! What has arrived on other hosts (section 9, S2): in their stores, and in anything that was ever sent to them.

use std::collections::BTreeSet;

use kwoon_ledger::limits::Limits;
use kwoon_ledger::log;
use kwoon_sync::ticket::Ticket;
use kwoon_tests::{Across, Agent, owner, rule, text};
use serde_json::json;

/// Whose hosts there are, in the order of their numbers: alice's orders the thread; bob and carol are members; dave left and
/// eve was deactivated in the middle; frank is on a host that knows the others and is no member; grace's host is connected,
/// and nobody knows it.
const NAMES: [&str; 7] = ["alice", "bob", "carol", "dave", "eve", "frank", "grace"];
const EVE: usize = 4;
const GRACE: usize = 6;

/// A kind of content: its words, where they may ever be sent, and where they are in the end.
type Kind = (&'static str, &'static [&'static str], &'static [&'static str]);

const MEMBERS: [&str; 3] = ["alice", "bob", "carol"];
const ONCE_MEMBERS: [&str; 5] = ["alice", "bob", "carol", "dave", "eve"];
const ACQUAINTED: [&str; 6] = ["alice", "bob", "carol", "dave", "eve", "frank"];

/// Every kind of content that the scene makes.
const KINDS: [Kind; 16] = [
    ("words of a mission", &["eve"], &["eve"]),
    ("words of a private memory", &["alice"], &["alice"]),
    ("words of a public memory", &ACQUAINTED, &ACQUAINTED),
    ("words added while it is private", &["alice"], &["alice"]),
    ("words of a subject", &ONCE_MEMBERS, &MEMBERS),
    ("words of an entry before the end", &ONCE_MEMBERS, &MEMBERS),
    ("words of a summary before the end", &ONCE_MEMBERS, &MEMBERS),
    ("words of the one that leaves", &ONCE_MEMBERS, &["alice", "bob", "carol", "dave"]),
    ("words of a note for carol", &["bob", "carol"], &["bob", "carol"]),
    ("words of criteria", &MEMBERS, &MEMBERS),
    ("words of a delivery", &MEMBERS, &MEMBERS),
    ("words of a delivered memory", &MEMBERS, &MEMBERS),
    ("words of a return", &MEMBERS, &MEMBERS),
    ("words of an entry after the end", &MEMBERS, &MEMBERS),
    ("words of a pinned own memory", &MEMBERS, &MEMBERS),
    ("words of a thread of two", &["alice", "frank"], &["alice", "frank"]),
];

fn has(bytes: &[u8], words: &[u8]) -> bool {
    bytes.windows(words.len()).any(|part| part == words)
}

/// All that happens, with one of each kind of content; the hosts, the agents, the thread, and the tickets.
fn scene() -> (Across, Vec<Agent>, String, Vec<String>) {
    let mut across = Across::new();
    across.cluster.tape = Some(Vec::new());
    let agents: Vec<Agent> = NAMES[..GRACE].iter().map(|name| across.agent(name)).collect();
    let stranger = across.cluster.add(Limits::DEFAULT);
    (0..stranger).for_each(|host| across.cluster.connect(stranger, host));
    across.cluster.agent(stranger, NAMES[GRACE]);
    let [alice, bob, carol, dave, eve, frank] = &agents[..] else { panic!("six agents") };
    let mission = json!({"agent": eve.id, "expected_version": 1, "mission": "words of a mission"});
    across.ok(&owner(), "agent_update", mission);
    across.ok(alice, "memory_create", json!({"text": "words of a private memory"}));
    let memory =
        across.ok(alice, "memory_create", json!({"text": "words of a public memory"}))["result"]["memory"].clone();
    across.ok(alice, "memory_publish", json!({"memory": memory}));
    let hidden = across.ok(alice, "memory_create", json!({"text": "first"}))["result"]["memory"].clone();
    across.ok(alice, "memory_publish", json!({"memory": hidden}));
    across.ok(alice, "memory_unpublish", json!({"memory": hidden}));
    across.ok(alice, "memory_update", json!({"memory": hidden, "text": "words added while it is private"}));

    let created = across.ok(alice, "thread_create", json!({"subject": "words of a subject", "admission": {}}));
    let thread = text(&created["result"]["thread"]);
    let mut tickets = vec![text(&created["secret"]["ticket"])];
    for other in [bob, carol, dave, eve] {
        across.ok(other, "thread_join", json!({"ticket": tickets[0]}));
    }
    across.post(
        alice,
        &thread,
        json!({"text": "words of an entry before the end", "ask": [],
        "summary": "words of a summary before the end"}),
    );
    across.post(dave, &thread, json!({"text": "words of the one that leaves", "ask": []}));
    across.ok(dave, "thread_leave", json!({"thread": thread}));
    across.ok(&owner(), "agent_deactivate", json!({"agent": eve.id}));

    let asked = across.post(carol, &thread, json!({"text": "what?", "ask": [bob.id]}));
    let note = json!({"thread": thread, "entry": asked, "note": "words of a note for carol"});
    across.ok(bob, "entry_handle", note);
    let work = across.taken(carol, &thread, bob, json!({"criteria": "words of criteria"}));
    let own =
        across.ok(bob, "memory_create", json!({"text": "words of a delivered memory"}))["result"]["memory"].clone();
    let output = json!({"text": "words of a delivery", "memories": [own]});
    across.ok(bob, "assignment_deliver", json!({"assignment": work, "output": output}));
    across.ok(carol, "assignment_return", json!({"assignment": work, "reason": "words of a return"}));
    across.post(bob, &thread, json!({"text": "words of an entry after the end", "ask": []}));
    let pinned =
        across.ok(carol, "memory_create", json!({"text": "words of a pinned own memory"}))["result"]["memory"].clone();
    across.ok(carol, "entry_post", json!({"thread": thread, "memory": pinned, "ask": []}));
    let two = across.thread(alice, &[frank]);
    across.post(frank, &two, json!({"text": "words of a thread of two"}));
    tickets.push(across.ticket(alice, &thread, "observer"));
    across.wake();
    (across, agents, thread, tickets)
}

#[test]
fn contents_arrive_where_they_may_be_read_and_nowhere_else() {
    rule!(holds, "V1", "V2", "V3", "V4", "V5", "V10");
    rule!(refused, "V1", "V2", "V3", "V4", "V5", "V10", "S2");
    let (across, ..) = scene();
    let mut wrong = Vec::new();
    for (words, sent, held) in KINDS {
        for (host, name) in NAMES.iter().enumerate() {
            let stored = across.cluster.halls[host].stored().iter().any(|(_, bytes)| has(bytes, words.as_bytes()));
            // Its own host did not have to be sent it.
            let heard = has(&across.cluster.heard(host), words.as_bytes());
            if stored != held.contains(name) || (heard && !sent.contains(name)) {
                wrong.push(format!("{words}: on {name}'s host {stored}, sent there {heard}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn the_secret_of_a_ticket_arrives_nowhere() {
    rule!(refused, "S1", "T1.5");
    let (across, _, _, tickets) = scene();
    for ticket in tickets {
        let seed = *Ticket::read(&ticket).expect("a ticket").admission().seed();
        for host in 0..NAMES.len() {
            assert!(!has(&across.cluster.heard(host), &seed) && !has(&across.cluster.heard(host), ticket.as_bytes()));
        }
        assert!(across.stored().iter().all(|(_, bytes)| !has(bytes, &seed) && !has(bytes, ticket.as_bytes())));
    }
}

#[test]
fn a_host_that_nobody_knows_is_sent_nothing_of_what_there_is() {
    rule!(refused, "S2", "V10");
    let (across, agents, ..) = scene();
    let heard = across.cluster.heard(GRACE);
    let stored: Vec<_> = across.cluster.halls[GRACE].stored();
    let mut ids = BTreeSet::new();
    for host in &across.cluster.halls[..GRACE] {
        for (_, object) in log::objects(&host.snapshot(), 0, usize::MAX).expect("readable") {
            ids.insert(*object.digest().as_bytes());
        }
    }
    ids.extend(agents.iter().map(|agent| *agent.full_id().as_bytes()));
    assert!(ids.len() > 10 && !heard.is_empty());
    for id in ids {
        // The outside form of an id is its beginning.
        assert!(!has(&heard, &id[..16]), "an id was sent");
        assert!(stored.iter().all(|(_, bytes)| !has(bytes, &id[..16])), "an id is stored");
    }
}

#[test]
fn after_its_last_right_ended_a_host_is_sent_no_contents_of_a_thread_any_more() {
    rule!(refused, "V2", "V10", "A5");
    let (mut across, agents, thread, _) = scene();
    let before = [3, EVE].map(|host| across.cluster.heard(host).len());
    across.post(&agents[0], &thread, json!({"text": "more words", "ask": []}));
    across.ok(&agents[0], "member_role", json!({"thread": thread, "agent": agents[1].id, "role": "governor"}));
    across.restart();
    across.post(&agents[1], &thread, json!({"text": "yet more words", "ask": []}));
    for (host, before) in [3, EVE].into_iter().zip(before) {
        let since = across.cluster.heard(host)[before..].to_vec();
        assert!(!has(&since, b"more words"), "{}'s host heard of what came after", NAMES[host]);
    }
}
