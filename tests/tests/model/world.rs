//! A host, or several, and the model of it, side by side.

use std::collections::{BTreeMap, BTreeSet};

use kwoon_ledger::limits::Limits;
use kwoon_tests::compare::{Names, plain_form};
use kwoon_tests::hall;
use kwoon_tests::model::reading::rows_of;
use kwoon_tests::model::{Caller, Milliseconds, Mistake, Model, handle, place, put};
use kwoon_tests::{merge, owner};
use serde_json::{Value, json};

use crate::chooser::resolve;
use crate::ground::Ground;
use crate::steps::{Call, Choices, Event, Sequence, Step};

/// How far a clock goes without the host recording it: less than what it believes.
const JUMP_MAX: Milliseconds = 29 * 86_400_000;

/// What was run.
#[derive(Debug, Default)]
pub struct Figures {
    /// Sequences.
    pub sequences: u64,
    /// Calls of operations that act.
    pub actions: u64,
    /// Calls of operations that read, a list with all its pages being one.
    pub reads: u64,
    /// How often each operation had each outcome: `ok`, `existing`, or the code of a refusal.
    pub outcomes: BTreeMap<(String, String), u64>,
    /// The kinds of effects that were seen, obligations with duty and exit.
    pub effects: BTreeSet<String>,
}

impl Figures {
    fn count(&mut self, operation: &str, answer: &Value) {
        let outcome = match (answer["ok"] == true, answer["result"]["existing"] == true) {
            (true, true) => "existing",
            (true, false) => "ok",
            (false, _) => answer["error"]["code"].as_str().expect("a code"),
        };
        *self.outcomes.entry((operation.to_owned(), outcome.to_owned())).or_default() += 1;
        for effect in answer["receipt"]["effects"].as_array().into_iter().flatten() {
            let words = ["kind", "duty", "exit", "state", "how", "role"].map(|name| effect[name].as_str());
            self.effects.insert(words.into_iter().flatten().collect::<Vec<_>>().join(" "));
        }
    }
}

/// See the module.
pub struct World<'a, G> {
    ground: G,
    model: Model,
    names: Names,
    agents: Vec<hall::Agent>,
    recorded: Milliseconds,
    figures: &'a mut Figures,
    /// What was called and answered, for whoever has to find out.
    pub story: Vec<String>,
}

/// How far a clock goes back behind what the host recorded.
const BACK_MAX: Milliseconds = 9 * 60_000;

/// Limits that a short sequence meets. Failed joins and the threads of an agent are counted by each host for itself.
fn limits(tight: bool, across: bool) -> Limits {
    let mut limits = Limits::DEFAULT;
    if tight {
        limits.text_bytes_max = 64;
        limits.payload_bytes_max = 64;
        limits.criteria_bytes_max = 64;
        limits.note_bytes_max = 32;
        limits.summary_bytes_max = 32;
        limits.line_bytes_max = 32;
        limits.ask_max = 2;
        limits.tags_max = 3;
        limits.output_memories_max = 2;
        limits.members_max = 4;
        limits.obligations_caused_max = 4;
        limits.obligations_open_max = 6;
        if !across {
            limits.open_threads_max = 2;
            limits.failed_joins_max = 2;
        }
    }
    limits
}

/// Runs a sequence with or without a mistake in the model.
///
/// # Errors
/// With the first disagreement, and what led to it.
pub fn run<G: Ground>(sequence: &Sequence, mistake: Option<Mistake>, figures: &mut Figures) -> Result<(), String> {
    figures.sequences += 1;
    let mut world = World::<G>::new(sequence.tight, mistake, figures);
    world.play(sequence).map_err(|difference| format!("{}\n{difference}", world.story.join("\n")))
}

impl<'a, G: Ground> World<'a, G> {
    fn new(tight: bool, mistake: Option<Mistake>, figures: &'a mut Figures) -> Self {
        let limits = limits(tight, G::ACROSS);
        let mut ground = G::with_limits(limits.clone());
        ground.wake();
        let recorded = ground.now().0;
        let model = Model::new(recorded, limits, mistake);
        Self { ground, model, names: Names::default(), agents: Vec::new(), recorded, figures, story: Vec::new() }
    }

    /// Four agents, and a thread of three of them, to which the fourth can find.
    fn begin(&mut self) -> Result<(), String> {
        for number in 0..4 {
            self.act(&Call {
                caller: Caller::Owner,
                operation: "agent_create",
                arguments: json!({"name": format!("agent{number}")}),
            })?;
        }
        let arguments = json!({"subject": "first", "admission": {}, "idempotency_key": "k1"});
        self.act(&Call { caller: Caller::Agent(0), operation: "thread_create", arguments })?;
        for agent in [1, 2] {
            let arguments = json!({"ticket": "tic#0"});
            self.act(&Call { caller: Caller::Agent(agent), operation: "thread_join", arguments })?;
        }
        self.probe()
    }

    fn play(&mut self, sequence: &Sequence) -> Result<(), String> {
        self.begin()?;
        let mut round = Vec::new();
        for step in &sequence.steps {
            let Some(event) = self.left_in(resolve(step, &self.model)) else { continue };
            match event {
                Event::Act(call) => {
                    round.push(call);
                    if !step.joined {
                        self.round(&std::mem::take(&mut round))?;
                    }
                }
                event => {
                    self.round(&std::mem::take(&mut round))?;
                    self.happen(&event)?;
                }
            }
            self.glance(step)?;
        }
        self.round(&round)?;
        self.probe()?;
        // What a killed daemon finds is what there was.
        self.ground.restart();
        self.model.restart();
        sequence.steps.last().map_or(Ok(()), |step| self.glance(step))?;
        self.ground.verify();
        Ok(())
    }

    /// What is left of an event across hosts. Names, and the keys of an owner's requests, are each host's own: agents are made
    /// in the beginning alone, and owners use no keys.
    fn left_in(&mut self, mut event: Event) -> Option<Event> {
        if G::ACROSS
            && let Event::Act(call) | Event::Lost(call) = &mut event
        {
            if call.operation == "agent_create" {
                return None;
            }
            if call.caller == Caller::Owner {
                let arguments = call.arguments.as_object_mut().expect("an object");
                ["idempotency_key", "after"].into_iter().for_each(|name| drop(arguments.remove(name)));
            }
        }
        if G::ACROSS {
            // Each of the hosts has done what is due before one is called: on one host a call does that.
            match event {
                Event::Act(_) | Event::Lost(_) | Event::Restart => self.wake(),
                Event::Pass(..) | Event::Back(_) | Event::Probe => {}
            }
        }
        Some(event)
    }

    fn happen(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Act(call) => return self.act(call),
            Event::Lost(call) => {
                self.tell(call, "(the commit fails)");
                let arguments = self.names.spell(&call.arguments);
                let caller = self.caller(call.caller);
                self.ground.lose(&caller, call.operation, &arguments);
                self.ground.restart();
                self.model.restart();
            }
            Event::Pass(milliseconds, wakes) => {
                self.pass(*milliseconds);
                if *wakes {
                    self.wake();
                }
                self.story
                    .push(format!("-- {milliseconds} ms pass{}", if *wakes { ", and the host wakes" } else { "" }));
            }
            Event::Back(milliseconds) => {
                // Never so far that the host would not believe its clock.
                let earliest = self.recorded - BACK_MAX;
                let now = self.ground.now().0.saturating_sub(*milliseconds).max(earliest.min(self.ground.now().0));
                self.story.push(format!("-- the clock goes back {} ms", self.ground.now().0 - now));
                (self.ground.now().0, self.model.now) = (now, now);
            }
            Event::Restart => {
                self.story.push("-- the daemon is started again".to_owned());
                self.ground.restart();
                self.model.restart();
            }
            Event::Probe => self.probe()?,
        }
        Ok(())
    }

    /// Time passes, never so much at once that the host would not believe its clock.
    fn pass(&mut self, milliseconds: Milliseconds) {
        let mut left = milliseconds;
        while left > 0 {
            if self.ground.now().0 + left.min(JUMP_MAX) > self.recorded + JUMP_MAX {
                self.wake();
            }
            let jump = left.min(JUMP_MAX);
            self.ground.now().0 += jump;
            self.model.now += jump;
            left -= jump;
        }
    }

    fn wake(&mut self) {
        self.ground.wake();
        self.model.settle();
        self.recorded = self.ground.now().0.max(self.recorded);
    }

    fn caller(&self, caller: Caller) -> hall::Agent {
        match caller {
            Caller::Owner => owner(),
            Caller::Agent(agent) => self.agents[agent].clone(),
        }
    }

    fn tell(&mut self, call: &Call, outcome: &str) {
        let Call { caller, operation, arguments } = call;
        let who = match caller {
            Caller::Owner => "owner".to_owned(),
            Caller::Agent(agent) => handle("agt", *agent),
        };
        self.story.push(format!("{who} {operation} {arguments} {outcome}"));
    }

    fn act(&mut self, call: &Call) -> Result<(), String> {
        self.round(std::slice::from_ref(call))
    }

    /// Calls that reach the host at the same time.
    fn round(&mut self, calls: &[Call]) -> Result<(), String> {
        // A round without calls would be a wake of the host.
        if calls.is_empty() {
            return Ok(());
        }
        let spelt: Vec<_> = calls
            .iter()
            .map(|call| (self.caller(call.caller), call.operation, self.names.spell(&call.arguments)))
            .collect();
        let made: Vec<_> = spelt.iter().map(|(caller, name, arguments)| (caller, *name, arguments.clone())).collect();
        let answers = self.ground.round(&made);
        self.recorded = self.ground.now().0.max(self.recorded);
        for (call, answer) in calls.iter().zip(answers) {
            let expected = self.model.act(call.caller, call.operation, &call.arguments);
            self.figures.actions += 1;
            self.figures.count(call.operation, &answer);
            let outcome = if answer["ok"] == true { &json!("ok") } else { &answer["error"]["code"] };
            self.tell(call, &format!("-> {outcome}{}", if calls.len() > 1 { " (in one round)" } else { "" }));
            self.compare(&expected, &answer)?;
            self.greet(call, &answer)?;
        }
        Ok(())
    }

    /// Learns of a new agent what the model cannot know.
    fn greet(&mut self, call: &Call, answer: &Value) -> Result<(), String> {
        if call.operation != "agent_create" || answer["ok"] == false || self.agents.len() == self.model.agents.len() {
            return Ok(());
        }
        let agent = &answer["result"]["agent"];
        self.agents.push(self.ground.known(agent));
        let shown = self.ground.call(&owner(), "agent_get", json!({"agent": agent}));
        let made = self.model.agents.last_mut().expect("the one just made");
        made.full_id = shown["result"]["full_id"].as_str().ok_or("no full id")?.to_owned();
        Ok(())
    }

    fn compare(&mut self, expected: &Value, answer: &Value) -> Result<(), String> {
        let mut answer = answer.clone();
        if let Some(effects) = answer.pointer_mut("/receipt/effects").and_then(Value::as_array_mut) {
            // Which host orders a log says nothing about agents.
            effects.retain(|effect| effect["kind"] != "epoch_began");
        }
        let answer = &answer;
        let compared = plain_form(answer).and_then(|form| self.names.agree(expected, &form));
        compared.map_err(|difference| {
            let answer = self.names.read(answer);
            format!("{difference}\n-- the model:\n{expected:#}\n-- the host:\n{answer:#}")
        })
    }
}

/// Reading.
impl<G: Ground> World<'_, G> {
    /// A read, of a list all pages, compared.
    fn read(&mut self, caller: Caller, operation: &'static str, arguments: Value) -> Result<(), String> {
        self.figures.reads += 1;
        let expected = self.model.read(caller, operation, &arguments);
        let who = self.caller(caller);
        let mut spelt = self.names.spell(&arguments);
        let mut answer = self.ground.call(&who, operation, spelt.clone());
        self.figures.count(operation, &answer);
        let rows = rows_of(operation).filter(|_| answer["ok"] == true);
        let compared = match rows {
            None => self.compare(&expected, &answer),
            Some(rows) => {
                let mut pages = plain_form(&answer)?;
                while let Some(cursor) = answer.get("cursor") {
                    merge(&mut spelt, json!({"cursor": cursor}));
                    answer = self.ground.call(&who, operation, spelt.clone());
                    let mut page = plain_form(&answer)?;
                    let more = page["result"][rows].as_array_mut().ok_or("no rows")?.split_off(0);
                    pages["result"][rows].as_array_mut().ok_or("no rows")?.extend(more);
                }
                if operation == "memory_search" {
                    // What is found first is a matter of searching, not of the rules.
                    let found = pages["result"][rows].as_array_mut().ok_or("no rows")?;
                    found.sort_by_key(|row| place("mem", self.names.read(&row["memory"]).as_str().unwrap_or_default()));
                }
                self.names.agree(&expected, &pages).map_err(|difference| {
                    format!("{difference}\n-- the model:\n{expected:#}\n-- the host:\n{:#}", self.names.read(&pages))
                })
            }
        };
        if compared.is_err() {
            self.tell(&Call { caller, operation, arguments }, "");
        }
        compared
    }

    /// What everybody owes and is offered, and some of what some see of some things.
    fn glance(&mut self, step: &Step) -> Result<(), String> {
        let mut choices = Choices::new(&step.picks);
        for agent in 0..self.agents.len() {
            let limit = 1 + choices.below(50);
            self.read(Caller::Agent(agent), "turn", json!({"limit": limit}))?;
            self.read(Caller::Agent(agent), "opportunities", json!({"limit": limit}))?;
        }
        let objects = self.model.objects();
        for _ in 0..4 {
            let reader = choices.below(self.agents.len());
            let object = choices.of(&objects).expect("an object");
            self.read(Caller::Agent(reader), "working_set", json!({"object": object}))?;
        }
        let reader = choices.below(self.agents.len());
        let thread = choices.below(self.model.threads.len());
        let count = self.model.threads[thread].entries.len();
        let entries = [count, choices.below(count + 2), choices.below(count + 2)];
        self.look_into_thread(reader, thread, entries)?;
        let request = handle("rcp", choices.below(self.model.requests.len() + 1));
        self.read(Caller::Agent(reader), "receipt_get", json!({"id": request}))?;
        if let Some(made) = choices.of(&self.model.requests).filter(|made| made.caller != Caller::Owner) {
            let key = made.key.unwrap_or_else(|| "k1".to_owned());
            let arguments = json!({"operation": made.operation, "key": key});
            self.read(made.caller, "receipt_get", arguments.clone())?;
            self.read(Caller::Agent(reader), "receipt_get", arguments)?;
        }
        Ok(())
    }

    /// A thread and its lists, and these of its entries, as one reader finds them.
    fn look_into_thread(
        &mut self,
        reader: usize,
        thread: usize,
        entries: impl IntoIterator<Item = usize>,
    ) -> Result<(), String> {
        let (caller, id) = (Caller::Agent(reader), handle("thr", thread));
        self.read(caller, "thread_get", json!({"thread": id}))?;
        self.read(caller, "thread_entries", json!({"thread": id, "limit": 3}))?;
        self.read(caller, "member_list", json!({"thread": id, "limit": 2}))?;
        self.read(caller, "assignment_list", json!({"thread": id, "limit": 2}))?;
        let mut entries = entries.into_iter();
        entries.try_for_each(|entry| self.read(caller, "entry_get", json!({"thread": id, "entry": entry})))
    }

    /// Everything, as everybody finds it, and the owner in everybody's place.
    fn probe(&mut self) -> Result<(), String> {
        if !G::ACROSS {
            self.read(Caller::Owner, "agent_list", json!({"limit": 2}))?;
        }
        let objects = self.model.objects();
        for reader in 0..self.agents.len() {
            let caller = Caller::Agent(reader);
            for list in ["turn", "opportunities", "thread_list", "memory_list"] {
                self.read(caller, list, json!({"limit": 2}))?;
                self.read(Caller::Owner, list, json!({"limit": 50, "as": handle("agt", reader)}))?;
            }
            for query in ["o", "tag1", "short"] {
                self.read(caller, "memory_search", json!({"query": query, "limit": 50}))?;
            }
            for object in &objects {
                self.read(caller, "working_set", json!({"object": object}))?;
                self.read(Caller::Owner, "working_set", json!({"object": object, "as": handle("agt", reader)}))?;
            }
            for thread in 0..self.model.threads.len() {
                let entries = 0..self.model.threads[thread].entries.len() + 2;
                self.look_into_thread(reader, thread, entries)?;
            }
            for agent in 0..self.agents.len() {
                for version in 0..=self.model.agents[agent].versions.len() + 1 {
                    self.read(caller, "agent_get", json!({"agent": handle("agt", agent), "version": version}))?;
                }
            }
            for memory in 0..self.model.memories.len() {
                for version in 0..=self.model.memories[memory].versions.len() + 1 {
                    self.read(caller, "memory_get", json!({"memory": handle("mem", memory), "version": version}))?;
                }
            }
            for assignment in 0..self.model.assignments.len() {
                self.read(caller, "assignment_get", json!({"assignment": handle("asg", assignment)}))?;
            }
        }
        for thread in 0..self.model.threads.len() {
            for entry in 1..=self.model.threads[thread].entries.len() {
                let mut arguments = json!({"thread": handle("thr", thread), "entry": entry});
                put(&mut arguments, "as", json!(handle("agt", entry % self.agents.len())));
                self.read(Caller::Owner, "entry_get", arguments)?;
            }
        }
        Ok(())
    }
}
