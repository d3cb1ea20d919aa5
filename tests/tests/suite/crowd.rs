//! Whatever several agents do, in any sequence.

use std::collections::{BTreeMap, BTreeSet};

use kwoon_ledger::limits::Limits;
use kwoon_ledger::time::Duration;
use kwoon_tests::{Agent, Hall, merge, owner, rule, text};
use serde_json::{Value, json};

/// Whole numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Four agents in two threads, who do anything at all.
struct Crowd {
    hall: Hall,
    agents: Vec<Agent>,
    threads: Vec<String>,
    assignments: Vec<String>,
    tickets: Vec<String>,
    numbers: Numbers,
    finals: BTreeMap<String, String>,
    /// Every fact that was ever seen: its object and index, and the digest and head after it.
    sealed: BTreeMap<(String, u64), (Value, Value)>,
}

/// All that can happen to a protocol state, by the name of the effect.
const EFFECTS: [&str; 24] = [
    "identity_set",
    "account_set",
    "memory_created",
    "version_added",
    "made_public",
    "made_private",
    "memory_withdrawn",
    "publication_set",
    "publication_ended",
    "thread_created",
    "admission_issued",
    "admission_voided",
    "membership_began",
    "membership_ended",
    "role_set",
    "entry_posted",
    "obligation_began",
    "obligation_ended",
    "assignment_offered",
    "assignment_taken",
    "assignment_delivered",
    "assignment_ended",
    "judgment_forfeited",
    "thread_closed",
];

impl Crowd {
    fn new(seed: u64) -> Self {
        let mut hall = Hall::seeded([seed as u8; 32], Limits::DEFAULT);
        let agents: Vec<_> = ["alice", "bob", "carol", "dora"].iter().map(|name| hall.agent(name)).collect();
        let others: Vec<_> = agents[1..].iter().collect();
        let threads = vec![hall.thread(&agents[0], &others), hall.thread(&agents[1], &[&agents[2]])];
        let tickets = threads.iter().zip(&agents).map(|(thread, governor)| hall.ticket(governor, thread, "speaker"));
        let tickets = tickets.collect();
        let (assignments, finals) = (Vec::new(), BTreeMap::new());
        Self {
            hall,
            agents,
            threads,
            assignments,
            tickets,
            numbers: Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            finals,
            sealed: BTreeMap::new(),
        }
    }

    /// One action of someone, which may well be refused.
    fn step(&mut self) {
        let n = &mut self.numbers;
        self.hall.advance(Duration::minutes(n.below(8) as u64));
        let (agent, other) = (n.pick(&self.agents).clone(), n.pick(&self.agents).clone());
        let thread = n.pick(&self.threads).clone();
        let entry = 1 + n.below(12);
        let assignment = if self.assignments.is_empty() {
            "asg_aaaaaaaaaaaaaaaaaaaaaaaaaa".to_owned()
        } else {
            // The latest ones are those that are still open.
            let from = self.assignments.len().saturating_sub(6);
            n.pick(&self.assignments[from..]).clone()
        };
        let work = json!({"assignment": assignment});
        let role = *n.pick(&["observer", "speaker", "speaker", "governor"]);
        let mut post = json!({"thread": thread, "text": "x"});
        if n.below(3) == 0 {
            merge(&mut post, json!({"reply_to": entry}));
        }
        if n.below(3) == 0 {
            merge(&mut post, json!({"ask": [other.id]}));
        }
        let terms = json!({"to": other.id, "criteria": "x", "deliver_within": "1h", "judge_within": "1h"});
        // Every other time somebody does what it owes, or takes what it is offered.
        let mut open = Vec::new();
        if n.below(2) == 0 {
            open.extend(self.hall.all(&agent, "turn", json!({}), "obligations"));
            open.extend(self.hall.all(&agent, "opportunities", json!({}), "opportunities"));
        }
        if !open.is_empty() {
            let row = n.pick(&open);
            let (work, entry) = (&row["assignment"], &row["entry"]);
            let (operation, arguments) = match (row["duty"].as_str(), n.below(3)) {
                (Some("respond"), 0) => ("entry_handle", json!({"thread": row["object"], "entry": entry})),
                (Some("respond"), _) => {
                    ("entry_post", json!({"thread": row["object"], "reply_to": entry, "text": "x", "ask": []}))
                }
                (Some("deliver"), 0) => ("assignment_abandon", json!({"assignment": work})),
                (Some("deliver"), _) => ("assignment_deliver", json!({"assignment": work, "output": {"text": "x"}})),
                (Some(_), 0) => ("assignment_return", json!({"assignment": work, "reason": "r"})),
                (Some(_), _) => ("assignment_accept", json!({"assignment": work})),
                (None, 0) => ("assignment_take", json!({"assignment": work, "output": {"text": "x"}})),
                (None, _) => ("assignment_take", json!({"assignment": work})),
            };
            // What the turn and the offers say can be done: by an agent that was deactivated, nothing.
            let answer = self.hall.call(&agent, operation, arguments);
            assert!(
                answer["ok"] == true || answer["error"]["code"] == "agent_inactive" || row["lapsed"] == true,
                "{answer:#}"
            );
            return;
        }
        let (operation, arguments) = match n.below(24) {
            0..=4 => ("entry_post", post),
            5..=7 => {
                merge(&mut post, json!({"assign": terms}));
                ("entry_post", post)
            }
            8 => ("entry_handle", json!({"thread": thread, "entry": entry, "note": "n"})),
            9 => ("entry_retract", json!({"thread": thread, "entry": entry})),
            10..=12 => ("assignment_take", work),
            13 => ("assignment_take", json!({"assignment": assignment, "output": {"text": "x"}})),
            14..=15 => ("assignment_deliver", json!({"assignment": assignment, "output": {"text": "x"}})),
            16 => ("assignment_accept", work),
            17 => ("assignment_return", json!({"assignment": assignment, "reason": "r"})),
            18 => (*n.pick(&["assignment_abandon", "assignment_void"]), work),
            19 => ("member_role", json!({"thread": thread, "agent": other.id, "role": role})),
            20 if n.below(3) == 0 => ("thread_leave", json!({"thread": thread})),
            20..=22 => ("thread_join", json!({"ticket": n.pick(&self.tickets)})),
            _ => match n.below(12) {
                0 => ("thread_close", json!({"thread": thread})),
                1 => ("agent_deactivate", json!({"agent": other.id})),
                2..=4 => ("agent_reactivate", json!({"agent": other.id})),
                5 => ("member_remove", json!({"thread": thread, "agent": other.id})),
                _ => return self.hall.advance(Duration::minutes(n.below(50) as u64)),
            },
        };
        let caller = if operation.starts_with("agent_") { owner() } else { agent };
        let before = self.hall.trace();
        let answer = self.hall.call(&caller, operation, arguments);
        if answer["ok"] == false {
            assert_eq!(self.hall.trace(), before, "{operation} was refused: {answer:#}");
        } else if let Some(assignment) = answer["result"]["assignment"].as_str()
            && !self.assignments.iter().any(|known| known == assignment)
        {
            self.assignments.push(assignment.to_owned());
        }
    }

    /// What must hold in every state.
    fn check(&mut self) {
        for thread in &self.threads {
            let verified = self.hall.ok(&owner(), "ledger_verify", json!({"object": thread}));
            assert_eq!(verified["result"]["sound"], true, "{verified:#}");
        }
        for agent in &self.agents.clone() {
            let turn = self.hall.all(agent, "turn", json!({"limit": 50}), "obligations");
            let origins: Vec<_> = turn.iter().map(|row| text(&row["began_at"])).collect();
            assert!(origins.is_sorted(), "the turn is in the order of origin");
            let mut by_thread = Vec::new();
            for row in self.hall.all(agent, "thread_list", json!({}), "threads") {
                let shown = self.hall.ok(agent, "thread_get", json!({"thread": row["thread"]}));
                let obligations = shown["result"]["obligations"].as_array().unwrap().clone();
                assert_eq!(row["obligations"], obligations.len());
                self.check_thread(&shown["result"], &obligations);
                by_thread.extend(obligations);
            }
            let sorted = |rows: &[Value]| rows.iter().map(Value::to_string).collect::<BTreeSet<_>>();
            assert_eq!(sorted(&turn), sorted(&by_thread), "the turn is the sum of what is owed in each thread");
            assert_eq!(turn.len(), by_thread.len(), "and nothing stands in it twice");
        }
    }

    fn check_thread(&mut self, thread: &Value, obligations: &[Value]) {
        let members = thread["members"].as_array().unwrap();
        let governs = members.iter().any(|member| member["role"] == "governor");
        assert!(thread["state"] == "closed" || governs, "T2.3: an open thread has a governor");
        for row in obligations {
            match row["duty"].as_str().unwrap() {
                "respond" => {
                    assert!(thread["state"] == "open" && thread["role"] != "observer", "T2.5, T5.2");
                    assert!(row.get("due_at").is_none());
                }
                "deliver" => assert!(thread["state"] == "open" && row["due_at"].is_string(), "T5.2, L4.2"),
                _ => assert!(row["due_at"].is_string(), "L4.2"),
            }
        }
    }

    /// L5.2: by the effects of all facts, each obligation begins once and ends at most once, and what has begun and
    /// not ended is what stands in the turns. T4.12: an end is the last thing that happens to an assignment.
    fn check_history(&mut self) {
        let (mut running, mut ended) = (BTreeSet::new(), BTreeSet::new());
        for thread in &self.threads.clone() {
            for fact in self.hall.facts(thread) {
                for effect in fact["event"]["payload"]["effects"].as_array().unwrap() {
                    let id = effect["obligation"].as_str().unwrap_or_default().to_owned();
                    let assignment = effect["assignment"].as_str().unwrap_or_default().to_owned();
                    match effect["kind"].as_str().unwrap() {
                        "obligation_began" => {
                            assert!(!ended.contains(&id) && running.insert(id), "begins once: {effect}");
                        }
                        "obligation_ended" => {
                            assert!(running.remove(&id) && ended.insert(id), "ends once: {effect}");
                        }
                        "assignment_ended" => {
                            let state = text(&effect["state"]);
                            let before = self.finals.insert(assignment, state.clone());
                            assert!(before.is_none_or(|before| before == state), "{effect}");
                        }
                        _ => {}
                    }
                }
            }
        }
        let mut owed = BTreeSet::new();
        for agent in &self.agents {
            owed.extend(self.hall.all(agent, "turn", json!({}), "obligations").iter().map(|row| text(&row["id"])));
        }
        assert_eq!(owed, running, "what began and has not ended is owed, by somebody");
    }

    /// P1: in no log of the host is there anything but the effects and the duties of the specification; a duty begins
    /// by an action alone; and what was sealed once stays as it was.
    fn check_mechanisms(&mut self) {
        for object in self.hall.all(&owner(), "object_digest", json!({"limit": 50}), "objects") {
            let object = text(&object["object"]);
            for fact in self.hall.facts(&object) {
                for effect in fact["event"]["payload"]["effects"].as_array().unwrap() {
                    assert!(EFFECTS.contains(&effect["kind"].as_str().unwrap()), "{effect}");
                    if let Some(duty) = effect.get("duty") {
                        assert!(["respond", "deliver", "judge"].contains(&duty.as_str().unwrap()), "{effect}");
                        assert!(object.starts_with("thr_"));
                    }
                    assert!(effect["kind"] != "obligation_began" || fact["cause"] == "action", "{fact}");
                }
                let now = (fact["digest"].clone(), fact["head"].clone());
                let place = (object.clone(), fact["index"].as_u64().unwrap());
                let before = self.sealed.entry(place).or_insert_with(|| now.clone());
                assert_eq!(*before, now, "a sealed fact was rewritten");
            }
        }
        let lost = self.sealed.keys().find(|(object, index)| self.hall.digest(object).0 < *index);
        assert_eq!(lost, None, "a sealed fact was lost");
        for agent in &self.agents.clone() {
            let turn = self.hall.ok(agent, "turn", json!({}));
            assert_eq!(
                (&turn["result"]["pending_actions"], &turn["result"]["refused_actions"]),
                (&json!(0), &json!(0))
            );
            assert_eq!(self.hall.ok(agent, "outbox_list", json!({}))["result"]["actions"], json!([]));
        }
    }
}

#[test]
fn whatever_four_agents_do_the_ledger_is_sound_and_every_duty_ends_once() {
    rule!(holds, "L5.2", "L5.1", "O1", "O3", "T2.3", "T4.12", "P1");
    let mut states = BTreeSet::new();
    for seed in 1..=4 {
        let mut crowd = Crowd::new(seed);
        for step in 0..120 {
            crowd.step();
            crowd.check();
            if step % 40 == 39 {
                crowd.check_history();
                crowd.check_mechanisms();
                crowd.hall.restart();
            }
        }
        // In the end every deadline comes.
        for _ in 0..5 {
            crowd.hall.advance(Duration::days(1));
        }
        crowd.check();
        crowd.check_history();
        crowd.check_mechanisms();
        crowd.hall.verify();
        states.extend(crowd.finals.into_values());
    }
    let all = ["abandoned", "accepted", "not_passed", "timed_out", "undecided", "voided"];
    assert_eq!(states.into_iter().collect::<Vec<_>>(), all, "the runs came to every end");
}
