//! What is owed: responses, deliveries, judgments (O1).

use serde_json::{Value, json};

use super::{Milliseconds, Model, handle, put};

/// An obligation that has not ended.
#[derive(Clone, Debug)]
pub struct Obligation {
    /// How many began before it.
    pub number: usize,
    /// `respond`, `deliver` or `judge`.
    pub duty: &'static str,
    /// Who owes it.
    pub bearer: usize,
    /// Where.
    pub thread: usize,
    /// The number of the entry that asks, or that carries the assignment.
    pub entry: usize,
    /// The assignment, of a delivery or a judgment.
    pub assignment: Option<usize>,
    /// When it began.
    pub began_at: Milliseconds,
    /// When it ends by itself.
    pub due_at: Option<Milliseconds>,
}

impl Model {
    /// A response is owed.
    pub(super) fn begin_response(&mut self, thread: usize, entry: usize, bearer: usize) -> Value {
        self.begin("respond", thread, entry, bearer, None, None)
    }

    pub(super) fn begin(
        &mut self,
        duty: &'static str,
        thread: usize,
        entry: usize,
        bearer: usize,
        assignment: Option<usize>,
        due_at: Option<Milliseconds>,
    ) -> Value {
        let number = self.obligations_began;
        self.obligations_began += 1;
        let began_at = self.at;
        let obligation = Obligation { number, duty, bearer, thread, entry, assignment, began_at, due_at };
        let effect = self.effect("obligation_began", &obligation);
        self.obligations.push(obligation);
        effect
    }

    /// Ends an obligation, if it is owed.
    pub(super) fn end(&mut self, duty: &str, thread: usize, entry: usize, bearer: usize, exit: &str) -> Option<Value> {
        let found = self.obligations.iter().position(|owed| {
            owed.duty == duty && owed.thread == thread && owed.entry == entry && owed.bearer == bearer
        })?;
        let obligation = self.obligations.remove(found);
        let mut effect = self.effect("obligation_ended", &obligation);
        effect["exit"] = json!(exit);
        Some(effect)
    }

    fn effect(&self, kind: &str, obligation: &Obligation) -> Value {
        let mut effect = json!({
            "kind": kind,
            "duty": obligation.duty,
            "bearer": handle("agt", obligation.bearer),
            "object": handle("thr", obligation.thread),
            "entry": obligation.entry,
            "obligation": handle("obl", obligation.number),
        });
        put(&mut effect, "assignment", obligation.assignment.map(|number| json!(handle("asg", number))));
        put(&mut effect, "due_at", obligation.due_at.map(|due| self.shown(due)));
        effect
    }

    /// What an agent owes, in the order in which it began; in one thread, if one is named (O3).
    pub fn turn_of(&self, agent: usize, thread: Option<usize>) -> Vec<Value> {
        let owed = self.obligations.iter().filter(|owed| owed.bearer == agent);
        let mut owed: Vec<_> = owed.filter(|owed| thread.is_none_or(|thread| thread == owed.thread)).collect();
        owed.sort_by_key(|owed| owed.began_at);
        owed.into_iter().map(|owed| self.row(owed)).collect()
    }

    fn row(&self, owed: &Obligation) -> Value {
        let lapsed = owed.due_at.is_some_and(|due| due <= self.now);
        let mut row = json!({
            "id": handle("obl", owed.number),
            "duty": owed.duty,
            "object": handle("thr", owed.thread),
            "entry": owed.entry,
            "began_at": self.shown(owed.began_at),
            "step": if lapsed { "wait" } else { owed.duty },
            "standing": "sealed",
        });
        put(&mut row, "assignment", owed.assignment.map(|number| json!(handle("asg", number))));
        put(&mut row, "due_at", owed.due_at.map(|due| self.shown(due)));
        put(&mut row, "lapsed", lapsed.then_some(json!(true)));
        row
    }
}
