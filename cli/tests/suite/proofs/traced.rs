//! 1. Every change of state traces to an action, to a deadline that the protocol defines, or to an account.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::fold::Folded;
use super::{Actor, effects, every_fact, killed, offer, text, thread};
use crate::daemon::Daemon;

/// An agent's action, and its receipt.
struct Receipts<'a>(&'a Daemon, Vec<Value>);

impl Receipts<'_> {
    fn act(&mut self, token: &str, operation: &str, arguments: Value) -> Value {
        let answer = self.0.ok(token, operation, arguments);
        self.1.push(answer["receipt"].clone());
        answer["result"].clone()
    }
}

/// C1. A story with every kind of cause is told to a daemon. Then, from `object_log` and the receipts alone:
/// each fact has one cause of the closed list; each receipt is one fact and each action's fact one receipt, with the same
/// effects; calls that were refused and calls that read are no fact; and folding the facts gives whose turn it is, who is a
/// member, and how every assignment stands, as the daemon answers it, also after it was killed.
#[test]
fn every_change_traces_to_its_cause_and_the_facts_alone_say_whose_turn_it_is() {
    let daemon = Daemon::fresh();
    let owner = daemon.token("owner");
    let [alice, bob, carol, dave] = ["alice", "bob", "carol", "dave"].map(|name| Actor::new(&daemon, name));
    let main = thread(&daemon, &alice, &[&bob, &carol, &dave]);
    let mut receipts = Receipts(&daemon, Vec::new());
    let asked = json!({"thread": main, "text": "?", "ask": [bob.id, carol.id, dave.id]});
    let entry = receipts.act(&alice.token, "entry_post", asked)["entry"].clone();
    receipts.act(&bob.token, "entry_post", json!({"thread": main, "text": "!", "reply_to": entry}));
    receipts.act(&carol.token, "entry_handle", json!({"thread": main, "entry": entry, "note": "seen"}));
    let assign = |to: &Actor, more: Value| {
        let mut assign = json!({"to": to.id, "criteria": "c"});
        assign.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"thread": main, "text": "work", "ask": [], "assign": assign})
    };
    let mut work = Vec::new();
    for (to, more) in [
        (&bob, json!({})),
        (&bob, json!({"judge_within": "1s"})),
        (&carol, json!({"deliver_within": "1s"})),
        (&carol, json!({})),
        (&dave, json!({})),
        (&bob, json!({})),
    ] {
        work.push(receipts.act(&alice.token, "entry_post", assign(to, more))["assignment"].clone());
    }
    let output = json!({"text": "done"});
    receipts.act(&bob.token, "assignment_take", json!({"assignment": work[0]}));
    receipts.act(&bob.token, "assignment_deliver", json!({"assignment": work[0], "output": output}));
    receipts.act(&bob.token, "assignment_take", json!({"assignment": work[1], "output": output}));
    for (taker, work) in [(&carol, &work[2]), (&carol, &work[3]), (&dave, &work[4])] {
        receipts.act(&taker.token, "assignment_take", json!({"assignment": work}));
    }
    receipts.act(&carol.token, "assignment_abandon", json!({"assignment": work[3]}));
    let memory = receipts.act(&bob.token, "memory_create", json!({"text": "m"}))["memory"].clone();
    for operation in ["memory_publish", "memory_unpublish", "memory_publish", "memory_withdraw"] {
        receipts.act(&bob.token, operation, json!({"memory": memory}));
    }
    // Both deadlines come by themselves.
    for (work, state) in [(&work[1], "undecided"), (&work[2], "timed_out")] {
        while alice.ok(&daemon, "assignment_get", json!({"assignment": work}))["result"]["state"] != state {}
    }
    // An account's change ends what dave owes and holds.
    receipts.act(&owner, "agent_deactivate", json!({"agent": dave.id}));
    let acted = receipts.1;

    let before = every_fact(&daemon);
    for (operation, arguments) in [
        ("entry_handle", json!({"thread": main, "entry": entry})),
        ("assignment_take", json!({"assignment": work[0]})),
        ("thread_leave", json!({"thread": main})),
        ("turn", json!({})),
        ("working_set", json!({"object": main})),
        ("memory_search", json!({"query": "m"})),
    ] {
        daemon.call(&alice.token, operation, &arguments);
    }
    assert_eq!(every_fact(&daemon), before, "refusals and reads are no facts");

    let daemon = killed(daemon);
    let all = every_fact(&daemon);
    assert_eq!(all, before);
    assert_causes(&all, &acted);
    // The facts of threads alone say what everybody owes.
    let folded: Vec<Folded> =
        all.iter().filter(|(object, _)| object.starts_with("thr_")).map(|(_, facts)| Folded::of(facts)).collect();
    for agent in [&alice, &bob, &carol, &dave] {
        let mut owed: Vec<_> = folded.iter().flat_map(|folded| folded.owed_by(&agent.id)).collect();
        owed.sort_by_key(|(began, _)| *began);
        let turn: Vec<String> = agent.turn(&daemon).iter().map(|row| text(&row["id"])).collect();
        assert_eq!(owed.iter().map(|(_, id)| *id).collect::<Vec<_>>(), turn);
    }
    let [folded] = &folded[..] else { panic!("one thread") };
    let members = daemon.walk(&alice.token, "member_list", json!({"thread": main}), "members");
    let members: BTreeMap<_, _> = members.iter().map(|row| (text(&row["agent"]), text(&row["role"]))).collect();
    assert_eq!(folded.members, members);
    let shown = daemon.walk(&alice.token, "assignment_list", json!({"thread": main}), "assignments");
    let shown: BTreeMap<_, _> = shown.iter().map(|row| (text(&row["assignment"]), text(&row["state"]))).collect();
    assert_eq!(folded.assignments, shown);
    let states: BTreeSet<&str> = shown.values().map(String::as_str).collect();
    assert_eq!(states, BTreeSet::from(["delivered", "undecided", "timed_out", "abandoned", "voided", "offered"]));
}

fn assert_causes(all: &[(String, Vec<Value>)], acted: &[Value]) {
    let mut causes = BTreeMap::new();
    let mut actions = BTreeMap::new();
    for (object, fact) in all.iter().flat_map(|(object, facts)| facts.iter().map(move |fact| (object, fact))) {
        let payload = &fact["event"]["payload"];
        let cause = text(&fact["cause"]);
        match cause.as_str() {
            "action" => {
                assert!(actions.insert(text(&fact["command"]["message_id"]), (object, fact)).is_none(), "once each");
            }
            // Each ends one obligation by its deadline, and the assignment with it.
            "expiry" => {
                assert_eq!(effects(fact)[0]["exit"], "expired", "{fact:#}");
                assert_eq!(payload["due"]["assignment"], effects(fact)[0]["assignment"]);
            }
            "account" => assert!(text(&payload["account"]["agent"]).starts_with("agt_")),
            // What the public may know follows the facts of the memory itself.
            "consequence" => {
                let followed = (text(&payload["follows"]["object"]), payload["follows"]["index"].as_u64().unwrap());
                let (_, facts) = all.iter().find(|(object, _)| *object == followed.0).unwrap();
                assert!(text(&facts[followed.1 as usize]["command"]["sender"]).starts_with("agt_"));
            }
            other => panic!("{other} causes nothing"),
        }
        if cause != "action" {
            assert_eq!(fact["command"], Value::Null, "{cause} is nobody's command");
        }
        *causes.entry(cause).or_insert(0) += 1;
    }
    assert_eq!(causes.keys().map(String::as_str).collect::<Vec<_>>(), ["account", "action", "consequence", "expiry"]);
    assert_eq!(causes["expiry"], 2);
    for receipt in acted {
        let (object, fact) = actions[&text(&receipt["action"])];
        assert_eq!((&receipt["object"], &receipt["index"]), (&json!(object), &fact["index"]));
        assert_eq!(receipt["operation"], fact["command"]["payload"]["operation"]);
        assert_eq!(receipt["sealed_at"], fact["event"]["occurred_at"]);
        assert_eq!(receipt["effects"].as_array().unwrap(), effects(fact));
    }
}

/// The same of offers: what binds nobody has no obligation in the facts.
#[test]
fn an_offer_is_a_fact_and_no_duty() {
    let daemon = Daemon::fresh();
    let [alice, bob] = ["alice", "bob"].map(|name| Actor::new(&daemon, name));
    let main = thread(&daemon, &alice, &[&bob]);
    offer(&daemon, &alice, &main, &bob, json!({}));
    assert!(Folded::of(&super::facts(&daemon, &main)).open.is_empty());
    assert!(alice.turn(&daemon).is_empty() && bob.turn(&daemon).is_empty());
    assert_eq!(bob.ok(&daemon, "opportunities", json!({}))["result"]["opportunities"].as_array().unwrap().len(), 1);
}
