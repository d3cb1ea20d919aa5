//! State that is recomputed from the facts of logs as `object_log` shows them, and from nothing else.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{effects, text};

/// What the facts of one thread come to.
#[derive(Debug, Default)]
pub struct Folded {
    /// Members with their roles.
    pub members: BTreeMap<String, String>,
    /// Obligations that have not ended, in the order in which they began: id, duty, bearer, and when they began.
    pub open: Vec<(String, String, String, String)>,
    /// States of assignments.
    pub assignments: BTreeMap<String, String>,
    /// Whether it is closed.
    pub closed: bool,
}

impl Folded {
    /// Folds facts, and asserts of each step that the one before allows it: every actor is a member, every obligation and
    /// every assignment ends once, is taken once and delivered once.
    pub fn of(facts: &[Value]) -> Self {
        let mut state = Self::default();
        let mut ended = BTreeMap::new();
        for fact in facts {
            let operation = &fact["command"]["payload"]["operation"];
            let joins = operation == "thread_join" || operation == "thread_create";
            if fact["cause"] == "action" && !joins {
                let sender = text(&fact["command"]["sender"]);
                assert!(state.members.contains_key(&sender), "{sender} is no member and acted: {fact:#}");
            }
            for effect in effects(fact) {
                state.apply(effect, &mut ended, &fact["event"]["occurred_at"]);
            }
        }
        state
    }

    fn apply(&mut self, effect: &Value, ended: &mut BTreeMap<String, String>, at: &Value) {
        match text(&effect["kind"]).as_str() {
            "membership_began" => {
                assert!(self.members.insert(text(&effect["agent"]), text(&effect["role"])).is_none(), "{effect}");
            }
            "role_set" => {
                self.members.insert(text(&effect["agent"]), text(&effect["role"]));
            }
            "membership_ended" => assert!(self.members.remove(effect["agent"].as_str().unwrap()).is_some()),
            "obligation_began" => {
                let id = text(&effect["obligation"]);
                assert!(!ended.contains_key(&id) && self.open.iter().all(|(open, ..)| *open != id), "{effect} again");
                self.open.push((id, text(&effect["duty"]), text(&effect["bearer"]), text(at)));
            }
            "obligation_ended" => {
                let id = text(&effect["obligation"]);
                let before = self.open.len();
                self.open.retain(|(open, ..)| *open != id);
                assert_eq!(self.open.len() + 1, before, "it was open, and ends once: {effect}");
                ended.insert(id, text(&effect["exit"]));
            }
            "assignment_offered" => self.step(effect, None, "offered"),
            "assignment_taken" => self.step(effect, Some(&["offered"]), "taken"),
            "assignment_delivered" => self.step(effect, Some(&["taken"]), "delivered"),
            "assignment_ended" => {
                let state = text(&effect["state"]);
                let from: &[&str] = match state.as_str() {
                    "accepted" | "not_passed" | "undecided" => &["delivered"],
                    "abandoned" | "timed_out" => &["taken"],
                    _ => &["offered", "taken"],
                };
                self.step(effect, Some(from), &state);
            }
            "thread_closed" => {
                assert!(!self.closed);
                self.closed = true;
            }
            _ => {}
        }
    }

    fn step(&mut self, effect: &Value, from: Option<&[&str]>, to: &str) {
        let before = self.assignments.insert(text(&effect["assignment"]), to.to_owned());
        match (from, before) {
            (None, None) => {}
            (Some(from), Some(before)) => assert!(from.contains(&before.as_str()), "{before}, then {effect}"),
            (_, before) => panic!("{before:?}, then {effect}"),
        }
    }

    /// The ids of what an agent owes, oldest first.
    pub fn owed_by<'a>(&'a self, agent: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.open
            .iter()
            .filter(move |(_, _, bearer, _)| bearer == agent)
            .map(|(id, _, _, began)| (began.as_str(), id.as_str()))
    }
}
