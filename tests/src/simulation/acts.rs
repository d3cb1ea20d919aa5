//! What agents do: mostly what could succeed by what they see, with what they were told by hand.

use serde_json::{Value, json};

use super::Simulation;
use crate::hall::{Agent, owner};

impl Simulation {
    /// One agent does something.
    pub(super) fn act(&mut self) {
        let up: Vec<usize> = (0..self.nodes.len()).filter(|n| self.nodes[*n].up).collect();
        if up.is_empty() {
            return;
        }
        let node = up[self.dice.below(up.len())];
        let place = self.dice.below(self.nodes[node].agents.len());
        let agent = self.nodes[node].agents[place].1.clone();
        self.calls += 1;
        match self.dice.below(40) {
            0..=1 => self.create_thread(node, &agent),
            2..=7 => self.join(node, &agent),
            8..=17 => self.post(node, &agent),
            18..=25 => self.clear_turn(node, &agent),
            26..=28 => self.take_work(node, &agent),
            29..=30 => self.remember(node, &agent),
            31 => self.govern(node, &agent),
            32 => self.leave(node, &agent),
            33 => self.repeat(node, &agent),
            34 => self.administer(node, place),
            35 => self.hand_over(node, &agent),
            _ => self.read(node, &agent),
        }
    }

    fn key(&self) -> String {
        format!("k{}", self.calls)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.dice.below(from.len())].clone()) }
    }

    fn rows(answer: &Value, plural: &str) -> Vec<Value> {
        answer["result"][plural].as_array().cloned().unwrap_or_default()
    }

    fn a_thread_of(&mut self, node: usize, agent: &Agent) -> Option<String> {
        let threads = Self::rows(&self.call(node, agent, "thread_list", &json!({"limit": 50})), "threads");
        let threads: Vec<String> = threads.iter().filter_map(|row| row["thread"].as_str().map(str::to_owned)).collect();
        self.pick(&threads)
    }

    /// An acting call, under a key of its own.
    fn do_it(&mut self, node: usize, agent: &Agent, operation: &str, mut arguments: Value) -> Value {
        arguments["idempotency_key"] = json!(self.key());
        let answer = self.call(node, agent, operation, &arguments);
        self.truth.told(node, agent, operation, &arguments, &answer);
        if let Some(ticket) = answer["secret"]["ticket"].as_str() {
            self.known.tickets.push(ticket.to_owned());
        }
        if let Some(thread) = answer["result"]["thread"].as_str().filter(|_| operation == "thread_create") {
            self.known.threads.push(thread.to_owned());
        }
        if let Some(assignment) = answer["result"]["assignment"].as_str().filter(|_| operation == "entry_post") {
            self.known.assignments.push(assignment.to_owned());
        }
        if let Some(memory) = answer["result"]["memory"].as_str() {
            self.known.memories.push((agent.id.clone(), memory.to_owned()));
        }
        answer
    }

    fn create_thread(&mut self, node: usize, agent: &Agent) {
        let subject = format!("about {}", self.calls);
        self.do_it(node, agent, "thread_create", json!({"subject": subject, "admission": {}}));
    }

    fn join(&mut self, node: usize, agent: &Agent) {
        let Some(ticket) = self.pick(&self.known.tickets.clone()) else { return self.create_thread(node, agent) };
        self.do_it(node, agent, "thread_join", json!({"ticket": ticket}));
    }

    fn members(&mut self, node: usize, agent: &Agent, thread: &str) -> Vec<String> {
        let get = self.call(node, agent, "member_list", &json!({"thread": thread, "limit": 50}));
        Self::rows(&get, "members").iter().filter_map(|row| row["agent"].as_str().map(str::to_owned)).collect()
    }

    fn post(&mut self, node: usize, agent: &Agent) {
        let Some(thread) = self.a_thread_of(node, agent) else { return self.join(node, agent) };
        let mut arguments = json!({"thread": thread, "text": format!("text {} of {}", self.calls, agent.id)});
        let members = self.members(node, agent, &thread);
        match self.dice.below(5) {
            0 => arguments["ask"] = json!(members),
            1 => arguments["ask"] = json!([]),
            2 => {
                let others: Vec<String> = members.into_iter().filter(|member| *member != agent.id).collect();
                if let Some(to) = self.pick(&others) {
                    let time = ["30s", "5m", "2h"][self.dice.below(3)];
                    arguments["assign"] =
                        json!({"to": to, "criteria": "well", "deliver_within": time, "judge_within": time});
                }
            }
            3 => {
                if let Some((_, memory)) = self.pick(&self.known.memories.clone()) {
                    arguments.as_object_mut().expect("an object").remove("text");
                    arguments["memory"] = json!(memory);
                }
            }
            _ => {}
        }
        let posted = self.do_it(node, agent, "entry_post", arguments);
        // A reply to what is not sealed yet, or its end.
        if posted["standing"] == "pending" && self.dice.below(3) == 0 {
            let action = posted["result"]["action"].clone();
            self.do_it(node, agent, "entry_post", json!({"thread": thread, "text": "and more", "reply_to": action}));
        }
    }

    fn clear_turn(&mut self, node: usize, agent: &Agent) {
        let turn = Self::rows(&self.call(node, agent, "turn", &json!({"limit": 50})), "obligations");
        let Some(owed) = self.pick(&turn) else { return self.take_work(node, agent) };
        let (thread, entry, assignment) = (&owed["object"], &owed["entry"], &owed["assignment"]);
        match (owed["duty"].as_str().unwrap_or_default(), self.dice.below(4)) {
            ("respond", 0) => {
                self.do_it(node, agent, "entry_handle", json!({"thread": thread, "entry": entry, "note": "seen"}))
            }
            ("respond", _) => {
                self.do_it(node, agent, "entry_post", json!({"thread": thread, "text": "a reply", "reply_to": entry}))
            }
            ("deliver", 0) => self.do_it(node, agent, "assignment_abandon", json!({"assignment": assignment})),
            ("deliver", _) => {
                let output = json!({"text": format!("work {}", self.calls)});
                self.do_it(node, agent, "assignment_deliver", json!({"assignment": assignment, "output": output}))
            }
            (_, 0) => {
                self.do_it(node, agent, "assignment_return", json!({"assignment": assignment, "reason": "not yet"}))
            }
            _ => self.do_it(node, agent, "assignment_accept", json!({"assignment": assignment})),
        };
    }

    fn take_work(&mut self, node: usize, agent: &Agent) {
        let offers = Self::rows(&self.call(node, agent, "opportunities", &json!({"limit": 50})), "opportunities");
        if let Some(offer) = self.pick(&offers) {
            let taken = self.do_it(node, agent, "assignment_take", json!({"assignment": offer["assignment"]}));
            if taken["ok"] == true && self.dice.below(2) == 0 {
                let arguments = json!({"assignment": offer["assignment"], "output": {"text": "done at once"}});
                self.do_it(node, agent, "assignment_deliver", arguments);
            }
        } else if let Some(assignment) = self.pick(&self.known.assignments.clone()) {
            let operation = ["assignment_take", "assignment_void", "assignment_accept"][self.dice.below(3)];
            self.do_it(node, agent, operation, json!({"assignment": assignment}));
        }
    }

    fn remember(&mut self, node: usize, agent: &Agent) {
        let own: Vec<String> =
            self.known.memories.iter().filter(|(id, _)| *id == agent.id).map(|m| m.1.clone()).collect();
        match self.pick(&own).filter(|_| self.dice.below(3) > 0) {
            Some(memory) => {
                let operation =
                    ["memory_publish", "memory_publish", "memory_unpublish", "memory_update", "memory_withdraw"]
                        [self.dice.below(5)];
                let mut arguments = json!({"memory": memory});
                if operation == "memory_update" {
                    arguments["text"] = json!(format!("version {}", self.calls));
                }
                self.do_it(node, agent, operation, arguments);
            }
            None => {
                self.do_it(node, agent, "memory_create", json!({"text": format!("memory {}", self.calls)}));
            }
        }
    }

    fn govern(&mut self, node: usize, agent: &Agent) {
        let Some(thread) = self.a_thread_of(node, agent) else { return };
        let members = self.members(node, agent, &thread);
        let Some(other) = self.pick(&members) else { return };
        let role = ["observer", "speaker", "governor", "governor"][self.dice.below(4)];
        match self.dice.below(8) {
            0 => self.do_it(node, agent, "thread_close", json!({"thread": thread})),
            1..=2 => self.do_it(node, agent, "member_remove", json!({"thread": thread, "agent": other})),
            3 => self.do_it(node, agent, "admission_issue", json!({"thread": thread})),
            4 => self.do_it(node, agent, "admission_void", json!({"thread": thread})),
            _ => self.do_it(node, agent, "member_role", json!({"thread": thread, "agent": other, "role": role})),
        };
    }

    fn leave(&mut self, node: usize, agent: &Agent) {
        let Some(thread) = self.a_thread_of(node, agent) else { return };
        if self.dice.below(2) == 0 {
            self.do_it(node, agent, "thread_leave", json!({"thread": thread}));
        }
    }

    /// An earlier call once more: the same answer, whatever became of the first.
    fn repeat(&mut self, node: usize, agent: &Agent) {
        let Some((operation, arguments, receipt)) = self.truth.an_earlier_call(node, agent, &mut self.dice) else {
            return;
        };
        let answer = self.call(node, agent, &operation, &arguments);
        // A daemon that ended over it has answered nothing.
        if self.nodes[node].up {
            self.truth.repeated(&answer, &receipt);
        }
        self.truth.told(node, agent, &operation, &arguments, &answer);
    }

    fn administer(&mut self, node: usize, place: usize) {
        let id = self.nodes[node].agents[place].1.id.clone();
        let operation = ["agent_deactivate", "agent_reactivate", "agent_reactivate"][self.dice.below(3)];
        self.call(node, &owner(), operation, &json!({"agent": id, "idempotency_key": self.key()}));
    }

    fn hand_over(&mut self, node: usize, agent: &Agent) {
        let Some(thread) = self.a_thread_of(node, agent) else { return };
        let to = self.dice.below(self.nodes.len());
        let host = self.host(to).to_string();
        self.call(node, agent, "object_handover", &json!({"object": thread, "host": host}));
    }

    fn read(&mut self, node: usize, agent: &Agent) {
        let operations = ["turn", "outbox_list", "opportunities", "thread_list"];
        let operation = operations[self.dice.below(operations.len())];
        self.call(node, agent, operation, &json!({}));
        if let Some(thread) = self.a_thread_of(node, agent) {
            self.call(node, agent, "working_set", &json!({"object": thread}));
        }
    }
}
