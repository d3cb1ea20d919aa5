//! What a reader must be answered (section 9).

use kwoon_ledger::time::Time;
use kwoon_sync::answer;
use serde_json::{Value, json};

use super::arguments::{self, Arguments};
use super::{Caller, Code, Milliseconds, Model, handle, refusal};

/// Lists, with the name under which their rows stand.
const LISTS: [(&str, &str); 9] = [
    ("turn", "obligations"),
    ("opportunities", "opportunities"),
    ("thread_list", "threads"),
    ("memory_list", "memories"),
    ("memory_search", "memories"),
    ("member_list", "members"),
    ("assignment_list", "assignments"),
    ("thread_entries", "entries"),
    ("agent_list", "agents"),
];

/// The name under which the rows of a list stand, if an operation is one.
pub fn rows_of(operation: &str) -> Option<&'static str> {
    LISTS.iter().find(|(list, _)| *list == operation).map(|(_, rows)| *rows)
}

impl Model {
    /// A time as it is shown.
    pub(super) fn shown(&self, time: Milliseconds) -> Value {
        json!(answer::shown(Time(time)))
    }

    /// What a read must be answered, a list with all its pages.
    pub fn read(&self, caller: Caller, operation: &str, arguments: &Value) -> Value {
        self.try_to_read(caller, operation, arguments).unwrap_or_else(refusal)
    }

    fn try_to_read(&self, caller: Caller, operation: &str, arguments: &Value) -> Result<Value, Code> {
        let given = Arguments::of(arguments);
        if !arguments::values_are_formed(&given) {
            return Err("invalid_argument");
        }
        let result = |result: Value| Ok(json!({"ok": true, "result": result}));
        match (operation, caller) {
            ("agent_list", Caller::Agent(_)) => return Err("owner_required"),
            ("agent_list", _) => {
                let mut agents: Vec<usize> = (0..self.agents.len()).collect();
                agents.sort_by_key(|agent| self.agents[*agent].created_at);
                return self.list(operation, agents.into_iter().map(|agent| self.agent_row(agent)).collect());
            }
            ("agent_get", _) => return result(self.agent_get(caller, given)?),
            _ => {}
        }
        let (me, by_owner) = match caller {
            Caller::Agent(me) if given.get("as").is_none() => (me, false),
            Caller::Agent(_) => return Err("invalid_argument"),
            Caller::Owner => {
                let reader = given.get("as").ok_or("invalid_argument")?;
                let reader = super::place("agt", reader.as_str().expect("an agent"));
                (reader.filter(|agent| *agent < self.agents.len()).ok_or("not_found")?, true)
            }
        };
        match operation {
            "turn" => self.list(operation, self.turn_of(me, None)),
            "opportunities" => self.list(operation, self.opportunities(me)),
            "thread_list" => self.list(operation, self.thread_list(me)),
            "memory_list" => self.list(operation, self.memory_list(me)),
            "memory_search" => self.list(operation, self.memory_search(me, given.text("query").expect("a query"))),
            "assignment_list" => self.list(operation, self.assignment_list(me, given)?),
            "member_list" => {
                let thread = self.thread_read(me, given)?;
                self.list(
                    operation,
                    self.threads[thread].members.iter().map(|member| self.member_row(member)).collect(),
                )
            }
            "thread_entries" => {
                let thread = self.thread_read(me, given)?;
                let after = given.number("after").unwrap_or(0) as usize;
                let numbers = (1..=self.threads[thread].entries.len()).skip(after);
                self.list(operation, numbers.map(|number| self.entry_row(thread, number)).collect())
            }
            "working_set" => result(self.working_set(me, given)?),
            "thread_get" => result(self.thread_get(me, given)?),
            "memory_get" => result(self.memory_get(me, given)?),
            "entry_get" => result(self.entry_get(me, by_owner, given)?),
            "assignment_get" => result(self.assignment_get(me, given)?),
            "receipt_get" if by_owner => Err("not_found"),
            "receipt_get" => self.receipt_get(me, given),
            _ => panic!("no read {operation}"),
        }
    }

    fn list(&self, operation: &str, rows: Vec<Value>) -> Result<Value, Code> {
        let mut result = json!({rows_of(operation).expect("a list"): rows});
        if operation == "turn" {
            result["pending_actions"] = json!(0);
            result["refused_actions"] = json!(0);
        }
        Ok(json!({"ok": true, "result": result}))
    }

    /// Every object there is, by its handle, and one of each kind that is not.
    pub fn objects(&self) -> Vec<String> {
        let kinds = [("thr", self.threads.len()), ("mem", self.memories.len()), ("agt", self.agents.len())];
        kinds.into_iter().flat_map(|(kind, count)| (0..count).map(move |number| handle(kind, number))).collect()
    }
}
