//! The history that the golden logs of threads with several sequencers were written from: three hosts with fixed keys,
//! linked without delay.

use kwoon_ledger::time::Duration;
use kwoon_tests::cluster::Cluster;
use kwoon_tests::{Agent, owner};
use serde_json::json;

/// What the story is told with: the hosts, and an agent on each.
pub struct Told {
    /// The hosts.
    pub cluster: Cluster,
    /// The logs that are golden: on which host, and which object.
    pub logs: Vec<(usize, String)>,
}

/// Every way in which a log's sequencer changes under rules version 1.
pub fn tell() -> Told {
    let mut cluster = Cluster::new(3);
    let agents = [(0, "alice"), (1, "bob"), (2, "carol")].map(|(hall, name)| cluster.agent(hall, name));
    let logs = vec![
        (1, handed_over(&mut cluster, &agents)),
        (1, left(&mut cluster, &agents)),
        (2, deactivated(&mut cluster, &agents)),
    ];
    assert_eq!(cluster.faults, []);
    Told { cluster, logs }
}

fn thread(cluster: &mut Cluster, [alice, bob, carol]: &[Agent; 3]) -> String {
    cluster.thread((0, alice), &[(1, bob), (2, carol)])
}

fn say(cluster: &mut Cluster, hall: usize, agent: &Agent, thread: &str) {
    cluster.ok((hall, agent), "entry_post", json!({"thread": thread, "text": "on time", "ask": []}));
}

/// A thread that goes from host to host and comes back, by two voices each time.
fn handed_over(cluster: &mut Cluster, agents: &[Agent; 3]) -> String {
    let thread = thread(cluster, agents);
    cluster.connect_all();
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        say(cluster, from, &agents[from], &thread);
        cluster.advance(Duration::minutes(1));
        let host = cluster.host(to).to_string();
        cluster.ok((from, &owner()), "object_handover", json!({"object": thread, "host": host}));
        // Whoever is left with it as a mere member goes on, by the new sequencer.
        say(cluster, from, &agents[from], &thread);
    }
    thread
}

/// A thread whose creator leaves the others with it: the last reader there goes.
fn left(cluster: &mut Cluster, agents: &[Agent; 3]) -> String {
    let thread = thread(cluster, agents);
    say(cluster, 2, &agents[2], &thread);
    let governor = json!({"thread": thread, "agent": agents[1].id, "role": "governor"});
    cluster.ok((0, &agents[0]), "member_role", governor);
    cluster.ok((0, &agents[0]), "thread_leave", json!({"thread": thread}));
    cluster.advance(Duration::minutes(1));
    say(cluster, 2, &agents[2], &thread);
    say(cluster, 1, &agents[1], &thread);
    thread
}

/// A thread that loses its only governor with that agent's account, and closes so: it moves to the host of a member, who
/// lets another leave.
fn deactivated(cluster: &mut Cluster, agents: &[Agent; 3]) -> String {
    let dora = cluster.agent(1, "dora");
    let thread = cluster.thread((1, &dora), &[(2, &agents[2]), (0, &agents[0])]);
    cluster.ok((1, &owner()), "agent_deactivate", json!({"agent": dora.id}));
    cluster.connect_all();
    cluster.ok((0, &agents[0]), "thread_leave", json!({"thread": thread}));
    thread
}
