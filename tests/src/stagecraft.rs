//! What tests do and look at, by calls alone: the same on one host and with every agent on a host of its own.

/// The methods of whoever has `call` and `trace`: [`Hall`](crate::Hall) and [`Across`](crate::Across).
macro_rules! stagecraft {
    () => {
        /// Calls an operation that must succeed; the envelope of the answer.
        pub fn ok(&mut self, caller: &Agent, operation: &str, arguments: Value) -> Value {
            let answer = self.call(caller, operation, arguments);
            assert_eq!(answer["ok"], true, "{operation}: {answer:#}");
            answer
        }

        /// Calls an operation that must be refused with this code, without any trace in the store (L2.2); the error.
        pub fn refused(&mut self, caller: &Agent, operation: &str, arguments: Value, code: &str) -> Value {
            let before = self.trace();
            let answer = self.call(caller, operation, arguments);
            assert_eq!(answer["ok"], false, "{operation} must be refused: {answer:#}");
            assert_eq!(answer["error"]["code"], code, "{operation}: {answer:#}");
            assert!(!answer["error"]["fix"].as_str().unwrap_or_default().is_empty(), "a refusal has a fix");
            assert!(answer["error"]["next"]["step"].is_string(), "a refusal has a next step");
            assert_eq!(self.trace(), before, "a refusal leaves no trace");
            answer["error"].clone()
        }

        /// A thread of `creator`'s that `others` have joined in this order, as speakers; its id.
        pub fn thread(&mut self, creator: &Agent, others: &[&Agent]) -> String {
            let created = self.ok(creator, "thread_create", json!({"admission": {}}));
            for other in others {
                self.ok(other, "thread_join", json!({"ticket": created["secret"]["ticket"]}));
            }
            text(&created["result"]["thread"])
        }

        /// Posts a text; the entry's number.
        pub fn post(&mut self, author: &Agent, thread: &str, more: Value) -> u64 {
            let mut arguments = json!({"thread": thread, "text": "hello"});
            merge(&mut arguments, more);
            self.ok(author, "entry_post", arguments)["result"]["entry"].as_u64().expect("a number")
        }

        /// Offers an assignment; its id.
        pub fn assign(&mut self, creator: &Agent, thread: &str, to: &Agent, more: Value) -> String {
            let mut assign = json!({"to": to.id, "criteria": "done well"});
            merge(&mut assign, more);
            let arguments = json!({"thread": thread, "text": "please", "ask": [], "assign": assign});
            text(&self.ok(creator, "entry_post", arguments)["result"]["assignment"])
        }

        /// The duties of an agent's turn, each with the number of its entry.
        pub fn turn(&mut self, agent: &Agent) -> Vec<(String, u64)> {
            let turn = self.ok(agent, "turn", json!({"limit": 50}));
            let obligations = turn["result"]["obligations"].as_array().expect("a list").clone();
            obligations.iter().map(|row| (text(&row["duty"]), row["entry"].as_u64().expect("a number"))).collect()
        }

        /// The state of an assignment, as one of the members sees it.
        pub fn state(&mut self, member: &Agent, assignment: &str) -> String {
            text(&self.ok(member, "assignment_get", json!({"assignment": assignment}))["result"]["state"])
        }

        /// Issues a ticket to a role; the ticket.
        pub fn ticket(&mut self, governor: &Agent, thread: &str, role: &str) -> String {
            text(&self.ok(governor, "admission_issue", json!({"thread": thread, "role": role}))["secret"]["ticket"])
        }

        /// Admits an agent to a thread in a role.
        pub fn admit(&mut self, governor: &Agent, thread: &str, agent: &Agent, role: &str) {
            let ticket = self.ticket(governor, thread, role);
            self.ok(agent, "thread_join", json!({"ticket": ticket}));
        }

        /// Offers an assignment that is taken at once; its id.
        pub fn taken(&mut self, creator: &Agent, thread: &str, to: &Agent, more: Value) -> String {
            let assignment = self.assign(creator, thread, to, more);
            self.ok(to, "assignment_take", json!({"assignment": assignment}));
            assignment
        }

        /// Offers an assignment that is taken and delivered at once; its id.
        pub fn delivered(&mut self, creator: &Agent, thread: &str, to: &Agent, more: Value) -> String {
            let assignment = self.taken(creator, thread, to, more);
            self.ok(to, "assignment_deliver", json!({"assignment": assignment, "output": {"text": "done"}}));
            assignment
        }

        /// All rows of a list, over all its pages.
        pub fn all(&mut self, caller: &Agent, operation: &str, arguments: Value, plural: &str) -> Vec<Value> {
            let mut rows = Vec::new();
            let mut arguments = arguments;
            loop {
                let page = self.ok(caller, operation, arguments.clone());
                rows.extend(page["result"][plural].as_array().expect("a list").iter().cloned());
                match page.get("cursor") {
                    Some(cursor) => merge(&mut arguments, json!({"cursor": cursor})),
                    None => return rows,
                }
            }
        }

        /// All facts of an object's log.
        pub fn facts(&mut self, object: &str) -> Vec<Value> {
            self.all(&owner(), "object_log", json!({"object": object, "limit": 50}), "facts")
        }
    };
}

pub(crate) use stagecraft;
