//! What a step comes to: a call by somebody about something that the model knows, mostly such that it could succeed.

use kwoon_tests::model::arguments::duration;
use kwoon_tests::model::requests::Request;
use kwoon_tests::model::{Caller, Model, handle, place, put};
use serde_json::{Value, json};

use crate::steps::{Call, Choices, Event, KINDS, Kind, Step};

/// The number of what is not there.
const NONE: usize = 999_999;

/// What a step comes to in the state of the model.
pub fn resolve(step: &Step, model: &Model) -> Event {
    let mut chooser = Chooser { model, choices: Choices::new(&step.picks) };
    match step.kind {
        Kind::Pass => chooser.pass(),
        Kind::Back => Event::Back(duration(chooser.choices.word(&["1s", "1m", "9m"]))),
        Kind::Restart => Event::Restart,
        Kind::Probe => Event::Probe,
        Kind::FailedCommit => Event::Lost(chooser.any_call()),
        kind => Event::Act(chooser.call(kind)),
    }
}

struct Chooser<'a> {
    model: &'a Model,
    choices: Choices<'a>,
}

impl Chooser<'_> {
    fn any_call(&mut self) -> Call {
        let (_, kind) = self.choices.of(&KINDS[..24]).expect("a kind");
        self.call(kind)
    }

    fn call(&mut self, kind: Kind) -> Call {
        let mut call = match kind {
            Kind::Post => self.post(),
            Kind::Handle => self.handle(),
            Kind::Retract => self.retract(),
            Kind::Take => self.take(),
            Kind::Deliver => self.deliver(),
            Kind::Judge => self.judge(),
            Kind::Abandon => self.on_assignment("assignment_abandon", "taken", false),
            Kind::VoidAssignment => self.on_assignment("assignment_void", "offered", true),
            Kind::CreateMemory => self.create_memory(),
            Kind::UpdateMemory => self.update_memory(),
            Kind::ShowMemory => {
                let mut call = self.on_memory("memory_publish");
                let memory = call.arguments["memory"].as_str().and_then(|id| place("mem", id));
                let public =
                    memory.and_then(|memory| self.model.memories.get(memory)).is_some_and(|memory| memory.public);
                if public != self.choices.chance(10) {
                    call.operation = "memory_unpublish";
                }
                call
            }
            Kind::WithdrawMemory => self.on_memory("memory_withdraw"),
            Kind::CreateThread => self.create_thread(),
            Kind::Issue => self.issue(),
            Kind::VoidAdmission => self.on_thread("admission_void", true),
            Kind::Join => self.join(),
            Kind::Leave => self.leave(),
            Kind::Close => self.on_thread("thread_close", true),
            Kind::Remove => self.on_member("member_remove"),
            Kind::Role => self.on_member("member_role"),
            Kind::CreateAgent => self.create_agent(),
            Kind::UpdateAgent => self.update_agent(),
            Kind::Status => {
                let operation = self.choices.word(&["agent_deactivate", "agent_reactivate", "agent_reactivate"]);
                self.on_agent(operation)
            }
            Kind::Terminate => self.on_agent("agent_terminate"),
            Kind::Repeat => return self.repeat(),
            Kind::Malformed => return self.malformed(),
            Kind::WrongCaller => return self.wrong_caller(),
            Kind::Pass | Kind::Back | Kind::Restart | Kind::FailedCommit | Kind::Probe => unreachable!("no calls"),
        };
        if self.choices.chance(20) {
            put(&mut call.arguments, "idempotency_key", json!(self.choices.word(&["k1", "k2", "k3"])));
        }
        if self.choices.chance(4) {
            put(&mut call.arguments, "after", json!([self.action()]));
        }
        call
    }

    // -------------------------------------------------------------- what there is

    /// One of so many of a kind, now and then one that is not there, and will not be when the call is made.
    fn any(&mut self, kind: &str, count: usize) -> String {
        let number = self.choices.below(count + 1);
        handle(kind, if number < count { number } else { NONE })
    }

    /// Somebody, mostly who can act.
    fn agent(&mut self) -> usize {
        let all = self.model.agents.len();
        let active: Vec<usize> = (0..all).filter(|agent| self.model.is_active(*agent)).collect();
        match self.choices.chance(90).then(|| self.choices.of(&active)).flatten() {
            Some(agent) => agent,
            None => self.choices.below(all),
        }
    }

    /// A thread by its handle, mostly an open one; now and then one that is not there.
    fn thread(&mut self) -> (usize, String) {
        if self.choices.chance(1) {
            return (0, handle("thr", NONE));
        }
        let all = self.model.threads.len();
        let open: Vec<usize> = (0..all).filter(|thread| self.model.threads[*thread].open).collect();
        // The first open one is where most things happen.
        let thread = match open.first() {
            Some(first) if self.choices.chance(65) => *first,
            Some(_) if self.choices.chance(75) => self.choices.of(&open).expect("one"),
            _ => self.choices.below(all),
        };
        (thread, handle("thr", thread))
    }

    /// Members on whom something in a thread hangs: who owe something, or have offered work that has not ended.
    fn busy(&self, thread: usize) -> Vec<usize> {
        let owed = self.model.obligations.iter().filter(|owed| owed.thread == thread).map(|owed| owed.bearer);
        let work = self.model.assignments.iter().filter(|work| work.thread == thread && !work.is_final());
        let concerned = owed.chain(work.map(|work| work.creator));
        concerned.filter(|agent| self.model.member(thread, *agent).is_some()).collect()
    }

    /// Mostly one of these, else anybody.
    fn one_of(&mut self, agents: Vec<usize>) -> usize {
        if agents.is_empty() || self.choices.chance(12) { self.agent() } else { self.choices.of(&agents).expect("one") }
    }

    fn members(&self, thread: usize, roles: &[&str]) -> Vec<usize> {
        let members = self.model.threads[thread].members.iter();
        members.filter(|member| roles.contains(&member.role)).map(|member| member.agent).collect()
    }

    fn action(&mut self) -> String {
        self.any("act", self.model.requests.len())
    }

    fn text(&mut self) -> String {
        let mut text = self.choices.word(&["one", "two", "three", "é", "", "{\"four\": 4}"]).to_owned();
        if self.choices.chance(4) {
            text.push_str(&"x".repeat(70));
        }
        text
    }

    fn short(&mut self) -> &'static str {
        self.choices.word(&["short", "other", "a line that is longer than the tight limits let it be"])
    }

    // -------------------------------------------------------------- entries

    fn post(&mut self) -> Call {
        let (thread, id) = self.thread();
        let me = {
            let voices = self.members(thread, &["speaker", "governor"]);
            self.one_of(voices)
        };
        let mut arguments = json!({"thread": id});
        if self.choices.chance(30) {
            self.pin_into(me, &mut arguments);
        } else {
            arguments["text"] = json!(self.text());
        }
        if self.choices.chance(50) {
            arguments["reply_to"] = self.entry(thread, me, true);
        }
        if self.choices.chance(55) {
            arguments["ask"] = self.ask(thread, me);
        }
        if self.choices.chance(45) {
            arguments["assign"] = self.assign(thread);
        }
        if self.choices.chance(10) {
            arguments["summary"] = json!(self.short());
        }
        if self.choices.chance(1) {
            arguments["task"] = json!("tsk#0");
        }
        Call { caller: Caller::Agent(me), operation: "entry_post", arguments }
    }

    fn pin_into(&mut self, me: usize, arguments: &mut Value) {
        let memories = 0..self.model.memories.len();
        let good = |number: &usize| {
            let memory = &self.model.memories[*number];
            memory.author == me || memory.is_shown()
        };
        let pinnable: Vec<usize> = memories.filter(good).collect();
        let memory = match self.choices.chance(75).then(|| self.choices.of(&pinnable)).flatten() {
            Some(memory) => handle("mem", memory),
            None => self.any("mem", self.model.memories.len()),
        };
        arguments["memory"] = json!(memory);
        if self.choices.chance(40) {
            let memory = place("mem", &memory).expect("a number");
            let versions = self.model.memories.get(memory).map_or(1, |memory| memory.versions.len());
            arguments["version"] = json!(1 + self.choices.below(versions + 1));
        }
    }

    /// An entry, by its number or the action that posted it; one that waits for this agent's response, if `owed`.
    fn entry(&mut self, thread: usize, me: usize, owed: bool) -> Value {
        let all = self.model.obligations.iter().filter(|row| row.thread == thread && row.duty == "respond");
        let mine: Vec<usize> = all.filter(|row| row.bearer == me).map(|row| row.entry).collect();
        let count = self.model.threads[thread].entries.len();
        let number = match (owed && self.choices.chance(60)).then(|| self.choices.of(&mine)).flatten() {
            Some(number) => number,
            None => self.choices.below(count + 2),
        };
        if self.choices.chance(10) {
            let posted = |made: &Request| {
                made.done.object == handle("thr", thread) && made.done.result["entry"] == json!(number)
            };
            if let Some(action) = self.model.requests.iter().position(posted) {
                return json!(handle("act", action));
            }
        }
        json!(number)
    }

    fn ask(&mut self, thread: usize, me: usize) -> Value {
        let mut asked = self.members(thread, &["speaker", "governor"]);
        asked.retain(|agent| *agent != me && self.choices.chance(60));
        if self.choices.chance(5) {
            let stranger = self.agent();
            if !asked.contains(&stranger) {
                asked.push(stranger);
            }
        }
        json!(asked.into_iter().map(|agent| handle("agt", agent)).collect::<Vec<_>>())
    }

    fn assign(&mut self, thread: usize) -> Value {
        let voices = self.members(thread, &["speaker", "governor"]);
        let to = self.one_of(voices);
        let mut assign = json!({"to": handle("agt", to), "criteria": self.text()});
        for name in ["deliver_within", "judge_within"] {
            let within = self.choices.word(&["1h", "1h", "1m", "90s", "1s", "7d", "20d", ""]);
            put(&mut assign, name, Some(json!(within)).filter(|_| !within.is_empty()));
        }
        if self.choices.chance(15) {
            assign["redoes"] = json!(self.any("asg", self.model.assignments.len()));
        }
        if self.choices.chance(10) {
            assign["output_schema"] = json!({"type": "object"});
        }
        assign
    }

    fn handle(&mut self) -> Call {
        let owed: Vec<(usize, usize, usize)> = self.responses();
        let (me, thread, entry) = match self.choices.chance(75).then(|| self.choices.of(&owed)).flatten() {
            Some((me, thread, entry)) => (me, handle("thr", thread), json!(entry)),
            None => {
                let (thread, id) = self.thread();
                let members = self.members(thread, &["observer", "speaker", "governor"]);
                let me = self.one_of(members);
                (me, id, self.entry(thread, me, false))
            }
        };
        let mut arguments = json!({"thread": thread, "entry": entry});
        if self.choices.chance(50) {
            arguments["note"] = json!(self.short());
        }
        Call { caller: Caller::Agent(me), operation: "entry_handle", arguments }
    }

    /// Bearer, thread and entry of each response that is owed.
    fn responses(&self) -> Vec<(usize, usize, usize)> {
        let owed = self.model.obligations.iter().filter(|row| row.duty == "respond");
        owed.map(|row| (row.bearer, row.thread, row.entry)).collect()
    }

    fn retract(&mut self) -> Call {
        let owed = self.responses();
        let (me, thread, entry) = match self.choices.chance(70).then(|| self.choices.of(&owed)).flatten() {
            Some((_, thread, entry)) => {
                let author = self.model.entry(thread, entry).expect("an entry").author;
                (author, handle("thr", thread), json!(entry))
            }
            None => {
                let (thread, id) = self.thread();
                let me = self.agent();
                (me, id, self.entry(thread, me, false))
            }
        };
        let arguments = json!({"thread": thread, "entry": entry});
        Call { caller: Caller::Agent(me), operation: "entry_retract", arguments }
    }

    // -------------------------------------------------------------- assignments

    /// An assignment, mostly in this state, and who may act on it: its creator, or for whom it is.
    fn work(&mut self, state: &str, creators: bool) -> (usize, Value) {
        let all = 0..self.model.assignments.len();
        let fitting: Vec<usize> = all.filter(|number| self.model.assignments[*number].state == state).collect();
        let assignment = match self.choices.chance(80).then(|| self.choices.of(&fitting)).flatten() {
            Some(number) => handle("asg", number),
            None => self.any("asg", self.model.assignments.len()),
        };
        let right =
            self.model.assignment(&assignment).map(|found| if creators { found.creator } else { found.assignee });
        let me = self.one_of(right.into_iter().collect());
        (me, json!({"assignment": assignment}))
    }

    fn on_assignment(&mut self, operation: &'static str, state: &str, creators: bool) -> Call {
        let (me, arguments) = self.work(state, creators);
        Call { caller: Caller::Agent(me), operation, arguments }
    }

    /// Whether there is no work in a state, and what leads there is to be done instead.
    fn lacks(&mut self, state: &str) -> bool {
        !self.model.assignments.iter().any(|work| work.state == state) && self.choices.chance(85)
    }

    fn offer(&mut self) -> Call {
        let mut call = self.post();
        let thread = call.arguments["thread"].as_str().and_then(|id| place("thr", id)).unwrap_or(0);
        if thread < self.model.threads.len() && call.arguments.get("assign").is_none() {
            call.arguments["assign"] = self.assign(thread);
        }
        call
    }

    fn take(&mut self) -> Call {
        if self.lacks("offered") {
            return self.offer();
        }
        let mut call = self.on_assignment("assignment_take", "offered", false);
        if self.choices.chance(25) {
            call.arguments["output"] = self.output(call.caller);
        }
        call
    }

    fn deliver(&mut self) -> Call {
        if self.lacks("taken") {
            return self.take();
        }
        let mut call = self.on_assignment("assignment_deliver", "taken", false);
        call.arguments["output"] = self.output(call.caller);
        call
    }

    fn output(&mut self, caller: Caller) -> Value {
        let mut output = json!({});
        if self.choices.chance(80) {
            output["text"] = json!(self.text());
        }
        if self.choices.chance(35) {
            let Caller::Agent(me) = caller else { return output };
            let count = 1 + self.choices.below(3);
            let mut memories = Vec::new();
            for _ in 0..count {
                let mut pin = json!({});
                self.pin_into(me, &mut pin);
                // One memory stands in an output once; what twice would mean is no question of the rules.
                if memories.iter().all(|other: &Value| other["memory"] != pin["memory"]) {
                    memories.push(pin);
                }
            }
            output["memories"] = json!(memories);
        }
        output
    }

    fn judge(&mut self) -> Call {
        if self.lacks("delivered") {
            return self.deliver();
        }
        if self.choices.chance(50) {
            return self.on_assignment("assignment_accept", "delivered", true);
        }
        let mut call = self.on_assignment("assignment_return", "delivered", true);
        let reason = self.choices.word(&["because", "because", "", "not given"]);
        put(&mut call.arguments, "reason", Some(json!(reason)).filter(|_| reason != "not given"));
        call
    }

    // -------------------------------------------------------------- memories

    fn create_memory(&mut self) -> Call {
        let mut arguments = json!({"text": self.text()});
        self.describe(&mut arguments);
        Call { caller: Caller::Agent(self.agent()), operation: "memory_create", arguments }
    }

    fn describe(&mut self, arguments: &mut Value) {
        for name in ["title", "summary"] {
            if self.choices.chance(30) {
                arguments[name] = json!(self.short());
            }
        }
        if self.choices.chance(20) {
            let count = self.choices.below(5);
            arguments["tags"] = json!((0..count).map(|number| format!("tag{number}")).collect::<Vec<_>>());
        }
        if self.choices.chance(10) {
            arguments["media_type"] = json!("text/plain");
        }
    }

    fn on_memory(&mut self, operation: &'static str) -> Call {
        let memory = self.any("mem", self.model.memories.len());
        let author =
            place("mem", &memory).and_then(|number| self.model.memories.get(number)).map(|memory| memory.author);
        let me = self.one_of(author.into_iter().collect());
        Call { caller: Caller::Agent(me), operation, arguments: json!({"memory": memory}) }
    }

    fn update_memory(&mut self) -> Call {
        let mut call = self.on_memory("memory_update");
        call.arguments["text"] = json!(self.text());
        self.describe(&mut call.arguments);
        if self.choices.chance(30) {
            call.arguments["expected_version"] = json!(1 + self.choices.below(3));
        }
        call
    }

    // -------------------------------------------------------------- threads

    fn create_thread(&mut self) -> Call {
        let mut arguments = json!({});
        if self.choices.chance(50) {
            arguments["subject"] = json!(self.short());
        }
        if self.choices.chance(70) {
            arguments["admission"] = json!({});
            self.role_into(&mut arguments["admission"]);
        }
        Call { caller: Caller::Agent(self.agent()), operation: "thread_create", arguments }
    }

    fn role_into(&mut self, arguments: &mut Value) {
        let role = self.choices.word(&["", "speaker", "observer", "governor"]);
        put(arguments, "role", Some(json!(role)).filter(|_| !role.is_empty()));
    }

    /// By a governor mostly, or by a member.
    fn on_thread(&mut self, operation: &'static str, governors: bool) -> Call {
        let (thread, id) = self.thread();
        let roles: &[&str] = if governors { &["governor"] } else { &["observer", "speaker", "governor"] };
        let members = self.members(thread, roles);
        let me = self.one_of(members);
        Call { caller: Caller::Agent(me), operation, arguments: json!({"thread": id}) }
    }

    fn issue(&mut self) -> Call {
        let mut call = self.on_thread("admission_issue", true);
        self.role_into(&mut call.arguments);
        call
    }

    fn join(&mut self) -> Call {
        let tickets = self.model.tickets.len();
        let valid = |number: &usize| {
            let ticket = &self.model.tickets[*number];
            self.model.threads[ticket.thread].admission.is_some_and(|(admission, _)| admission == ticket.admission)
        };
        let valid: Vec<usize> = (0..tickets).filter(valid).collect();
        let ticket = match self.choices.chance(80).then(|| self.choices.of(&valid)).flatten() {
            Some(ticket) => handle("tic", ticket),
            None => self.any("tic", tickets),
        };
        let thread =
            place("tic", &ticket).and_then(|ticket| self.model.tickets.get(ticket)).map(|ticket| ticket.thread);
        let strangers = (0..self.model.agents.len()).filter(|agent| {
            thread.is_some_and(|thread| self.model.member(thread, *agent).is_none()) && self.model.is_active(*agent)
        });
        let strangers = if self.choices.chance(75) { strangers.collect() } else { Vec::new() };
        let me = self.one_of(strangers);
        Call { caller: Caller::Agent(me), operation: "thread_join", arguments: json!({"ticket": ticket}) }
    }

    fn on_member(&mut self, operation: &'static str) -> Call {
        let mut call = self.on_thread(operation, true);
        let thread = place("thr", call.arguments["thread"].as_str().expect("a handle")).unwrap_or(0);
        let members = match self.model.threads.get(thread) {
            Some(_) if self.choices.chance(50) => self.busy(thread),
            Some(found) => found.members.iter().map(|member| member.agent).collect(),
            None => Vec::new(),
        };
        let others = members.iter().copied().filter(|agent| Caller::Agent(*agent) != call.caller).collect();
        let agent = if self.choices.chance(80) { self.one_of(others) } else { self.one_of(members) };
        call.arguments["agent"] = json!(handle("agt", agent));
        if operation == "member_role" {
            call.arguments["role"] = json!(self.choices.word(&["observer", "speaker", "governor"]));
        }
        call
    }

    /// Leaves a thread, mostly where something hangs on that.
    fn leave(&mut self) -> Call {
        let mut call = self.on_thread("thread_leave", false);
        let thread = place("thr", call.arguments["thread"].as_str().expect("a handle")).unwrap_or(0);
        if thread < self.model.threads.len() && self.choices.chance(60) {
            let leaving: Vec<usize> =
                self.busy(thread).into_iter().filter(|agent| !self.model.is_last_governor(thread, *agent)).collect();
            call.caller = self.choices.of(&leaving).map_or(call.caller, Caller::Agent);
        }
        call
    }

    // -------------------------------------------------------------- agents

    fn create_agent(&mut self) -> Call {
        let count = self.model.agents.len();
        // More than a few make nothing happen that fewer do not.
        let number = self.choices.below(count + usize::from(count < 7));
        let mut arguments = json!({"name": format!("agent{number}")});
        if self.choices.chance(20) {
            arguments["mission"] = json!(self.short());
        }
        if self.choices.chance(20) {
            arguments["predecessor"] = json!(self.any("agt", count));
        }
        Call { caller: Caller::Owner, operation: "agent_create", arguments }
    }

    fn update_agent(&mut self) -> Call {
        let mut call = self.on_agent("agent_update");
        let agent = place("agt", call.arguments["agent"].as_str().expect("a handle")).expect("a number");
        let version = self.model.agents.get(agent).map_or(1, |agent| agent.versions.len());
        let expected = if self.choices.chance(20) { self.choices.below(version + 2) } else { version };
        call.arguments["expected_version"] = json!(expected);
        for name in ["display_name", "mission"] {
            if self.choices.chance(50) {
                call.arguments[name] = json!(self.short());
            }
        }
        call.arguments.as_object_mut().expect("an object").remove("reason");
        call
    }

    fn on_agent(&mut self, operation: &'static str) -> Call {
        let count = self.model.agents.len();
        let inactive: Vec<usize> = (0..count).filter(|agent| !self.model.is_active(*agent)).collect();
        let agent = match (operation == "agent_reactivate").then(|| self.choices.of(&inactive)).flatten() {
            Some(agent) => agent,
            None if self.choices.chance(3) => NONE,
            None => self.choices.below(count),
        };
        let mut arguments = json!({"agent": handle("agt", agent)});
        if self.choices.chance(30) {
            arguments["reason"] = json!(self.short());
        }
        Call { caller: Caller::Owner, operation, arguments }
    }

    // -------------------------------------------------------------- the same again, and what is not as it must be

    /// An earlier call, under its key: the same, with something changed, or from somebody else.
    fn repeat(&mut self) -> Call {
        let keyed: Vec<&Request> = self.model.requests.iter().filter(|made| made.key.is_some()).collect();
        let Some(made) = self.choices.of(&keyed) else { return self.any_call() };
        let mut arguments = made.arguments.clone();
        let mut caller = made.caller;
        match self.choices.below(10) {
            0..=4 => {}
            5 => arguments["wait_ms"] = json!(5),
            6 => arguments["after"] = json!([]),
            7 => {
                let other = self.any_call();
                let members = other.arguments.as_object().expect("an object").iter();
                let shared = members.filter(|(name, _)| arguments.get(name.as_str()).is_some());
                let shared: Vec<_> = shared.filter(|(name, _)| *name != "idempotency_key").collect();
                for (name, value) in shared {
                    arguments[name] = value.clone();
                }
            }
            8 => arguments["after"] = json!([self.action()]),
            _ => {
                if caller != Caller::Owner {
                    caller = Caller::Agent(self.agent());
                }
            }
        }
        Call { caller, operation: made.operation, arguments }
    }

    fn malformed(&mut self) -> Call {
        let mut call = self.any_call();
        let members = call.arguments.as_object_mut().expect("an object");
        match self.choices.below(4) {
            0 => drop(members.insert("surprise".to_owned(), json!(1))),
            1 => drop(members.remove(self.choices.word(&["thread", "assignment", "memory", "agent", "ticket"]))),
            2 if call.operation == "entry_post" => {
                members.insert("text".to_owned(), json!("both"));
                members.insert("memory".to_owned(), json!("mem#0"));
            }
            _ => {
                if let Some(assign) = members.get_mut("assign") {
                    assign["deliver_within"] = json!(self.choices.word(&["0s", "401d"]));
                }
            }
        }
        call
    }

    fn wrong_caller(&mut self) -> Call {
        let mut call = self.any_call();
        call.caller = match call.caller {
            Caller::Owner => Caller::Agent(self.agent()),
            Caller::Agent(_) => Caller::Owner,
        };
        call
    }

    // -------------------------------------------------------------- time

    fn pass(&mut self) -> Event {
        let now = self.model.now;
        let due: Vec<u64> =
            self.model.assignments.iter().filter_map(|found| found.due_at).filter(|due| *due >= now).collect();
        let next = due.iter().min().copied();
        let to = match self.choices.below(12) {
            0 => now + 1,
            1 => now + 1 + self.choices.below(5_000) as u64,
            2..=4 => next.map_or(now, |due| due.saturating_sub(1)),
            5..=7 => next.unwrap_or(now + 1),
            8 => next.map_or(now, |due| due + 1),
            9 => self.choices.of(&due).unwrap_or(now),
            10 => now + duration(self.choices.word(&["1m", "15m", "1h", "6h"])),
            _ => now + duration(self.choices.word(&["1d", "7d", "20d", "29d"])),
        };
        Event::Pass(to.max(now) - now, self.choices.chance(50))
    }
}
