//! Assignments: offered, taken, delivered, judged (T4).

use serde_json::{Value, json};

use super::arguments::{Arguments, duration};
use super::entries::Entry;
use super::memories::{Pin, media_type};
use super::threads::about;
use super::{Code, Done, Milliseconds, Mistake, Model, content, handle, place, plain, put};

/// An assignment.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Where.
    pub thread: usize,
    /// The number of the entry that carries it.
    pub entry: usize,
    /// Who offers and judges.
    pub creator: usize,
    /// Who may take it.
    pub assignee: usize,
    /// What it fixes.
    pub terms: Terms,
    /// Its state, by its name.
    pub state: &'static str,
    /// Whether it was ever taken.
    pub taken: bool,
    /// Whether it was ever delivered.
    pub delivered: bool,
    /// The deadline that runs.
    pub due_at: Option<Milliseconds>,
    /// Whether a deadline ended it.
    pub expired: bool,
    /// Whether its creator can judge no more.
    pub forfeited: bool,
    /// What was delivered.
    pub output: Option<Output>,
    /// Why it was returned.
    pub reason: Option<String>,
}

/// What is fixed when an assignment is offered (T4.1, T4.11).
#[derive(Clone, Debug)]
pub struct Terms {
    /// When a delivery is to be accepted.
    pub criteria: String,
    /// The structure of the output.
    pub output_schema: Option<String>,
    /// Time for the delivery, as it was given.
    pub deliver_within: String,
    /// Time for the judgment, as it was given.
    pub judge_within: String,
    /// The assignment it does again.
    pub redoes: Option<usize>,
}

/// A delivery.
#[derive(Clone, Debug)]
pub struct Output {
    /// A text and its media type.
    pub text: Option<(String, String)>,
    /// Versions of the taker's own memories.
    pub memories: Vec<Pin>,
}

impl Assignment {
    /// Whether it has ended.
    pub fn is_final(&self) -> bool {
        !["offered", "taken", "delivered"].contains(&self.state)
    }

    /// What a new action on it meets if it has ended (T4.12).
    fn open(&self) -> Result<(), Code> {
        match (self.is_final(), self.expired) {
            (true, true) => Err("expired"),
            (true, false) => Err("already_final"),
            (false, _) => Ok(()),
        }
    }
}

impl Model {
    /// Offers an assignment; its place and the effect.
    pub(super) fn offer(
        &mut self,
        thread: usize,
        entry: usize,
        creator: usize,
        given: Arguments<'_>,
    ) -> Result<(usize, Value), Code> {
        let assignee = given.place("to", "agt").filter(|agent| *agent < self.agents.len()).ok_or("bad_reference")?;
        if !self.has_voice(thread, assignee) {
            return Err("bad_reference");
        }
        let redoes = given
            .place("redoes", "asg")
            .filter(|old| self.assignments.get(*old).is_some_and(|old| old.thread == thread));
        if given.get("redoes").is_some() && redoes.is_none() {
            return Err("bad_reference");
        }
        let within = |name: &str| given.own_text(name).unwrap_or_else(|| "7d".to_owned());
        let terms = Terms {
            criteria: given.own_text("criteria").expect("criteria"),
            output_schema: given.get("output_schema").map(ToString::to_string),
            deliver_within: within("deliver_within"),
            judge_within: within("judge_within"),
            redoes,
        };
        self.fits(Some(&terms.criteria), self.limits.criteria_bytes_max)?;
        self.assignments.push(Assignment {
            thread,
            entry,
            creator,
            assignee,
            terms,
            state: "offered",
            taken: false,
            delivered: false,
            due_at: None,
            expired: false,
            forfeited: false,
            output: None,
            reason: None,
        });
        let number = self.assignments.len() - 1;
        let effect = json!({
            "kind": "assignment_offered",
            "assignment": handle("asg", number),
            "entry": entry,
            "creator": handle("agt", creator),
            "assignee": handle("agt", assignee),
        });
        Ok((number, effect))
    }

    /// An assignment for a member of its thread (V2).
    fn assignment_of(&self, me: usize, given: Arguments<'_>) -> Result<usize, Code> {
        let number = given.place("assignment", "asg").ok_or("not_found")?;
        let assignment = self.assignments.get(number).ok_or("not_found")?;
        self.member(assignment.thread, me).map(|_| number).ok_or("not_found")
    }

    pub(super) fn assignment_take(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let number = self.assignment_of(me, given)?;
        let assignment = &self.assignments[number];
        if assignment.assignee != me {
            return Err("not_assignee");
        }
        assignment.open()?;
        if assignment.state != "offered" {
            return Err("already_taken");
        }
        let (thread, entry) = (assignment.thread, assignment.entry);
        let output = given.part("output").map(|output| self.output(me, number, output)).transpose()?;
        let due = self.at + duration(&assignment.terms.deliver_within);
        let mut effects: Vec<Value> = self.end_response(thread, entry, me, "taken", None, None).into_iter().collect();
        let assignment = &mut self.assignments[number];
        (assignment.state, assignment.taken, assignment.due_at) = ("taken", true, Some(due));
        let id = handle("asg", number);
        effects.push(json!({"kind": "assignment_taken", "assignment": id, "due_at": self.shown(due)}));
        effects.push(self.begin("deliver", thread, entry, me, Some(number), Some(due)));
        if let Some(output) = output {
            effects.extend(self.deliver(number, output));
        }
        self.work(number, effects)
    }

    pub(super) fn assignment_deliver(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let number = self.assignment_of(me, given)?;
        self.before_delivery(me, number)?;
        let output = self.output(me, number, given.part("output").expect("an output"))?;
        let effects = self.deliver(number, output);
        self.work(number, effects)
    }

    /// Whether an agent has taken this and not delivered it.
    fn before_delivery(&self, me: usize, number: usize) -> Result<(), Code> {
        let assignment = &self.assignments[number];
        if !assignment.taken || assignment.assignee != me {
            return Err("not_taker");
        }
        assignment.open()?;
        if assignment.state == "delivered" { Err("already_delivered") } else { Ok(()) }
    }

    /// The output of a call (T4.4).
    fn output(&self, me: usize, number: usize, given: Arguments<'_>) -> Result<Output, Code> {
        let structured = self.assignments[number].terms.output_schema.is_some();
        let media = match given.get("media_type") {
            None if structured => "application/json".to_owned(),
            _ => media_type(given),
        };
        let text = given.own_text("text").map(|text| (text, media));
        let named = given.list("memories").map_or(&[] as &[Value], |memories| memories);
        if named.len() as u64 > self.limits.output_memories_max {
            return Err("content_too_large");
        }
        let pins = named.iter().map(|named| match named {
            Value::Object(_) => {
                let named = Arguments::of(named);
                self.pin(me, named.get("memory").expect("a memory"), named.number("version"), false)
            }
            memory => self.pin(me, memory, None, false),
        });
        let memories: Vec<Pin> = pins.collect::<Result<_, _>>()?;
        let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        if structured && !text.as_ref().is_some_and(|(text, _)| is_json(text)) || text.is_none() && memories.is_empty()
        {
            return Err("invalid_output");
        }
        self.fits(text.as_ref().map(|(text, _)| text.as_str()), self.limits.payload_bytes_max)?;
        Ok(Output { text, memories })
    }

    fn deliver(&mut self, number: usize, output: Output) -> Vec<Value> {
        let (thread, entry) = (self.assignments[number].thread, self.assignments[number].entry);
        let (creator, taker) = (self.assignments[number].creator, self.assignments[number].assignee);
        let due = self.at + duration(&self.assignments[number].terms.judge_within);
        let mut effects: Vec<Value> = self.end("deliver", thread, entry, taker, "delivered").into_iter().collect();
        let assignment = &mut self.assignments[number];
        (assignment.state, assignment.delivered, assignment.due_at) = ("delivered", true, Some(due));
        assignment.output = Some(output);
        let id = handle("asg", number);
        effects.push(json!({"kind": "assignment_delivered", "assignment": id, "due_at": self.shown(due)}));
        effects.push(self.begin("judge", thread, entry, creator, Some(number), Some(due)));
        effects
    }

    /// Whether an agent can judge this now (T4.5).
    fn before_judgment(&self, me: usize, number: usize) -> Result<(), Code> {
        let assignment = &self.assignments[number];
        if assignment.creator != me {
            return Err("not_judge");
        }
        if assignment.forfeited {
            return Err("judgment_forfeited");
        }
        assignment.open()?;
        if assignment.delivered { Ok(()) } else { Err("not_judge") }
    }

    pub(super) fn assignment_accept(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let number = self.assignment_of(me, given)?;
        self.before_judgment(me, number)?;
        self.judge(number, "accepted")
    }

    pub(super) fn assignment_return(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let number = self.assignment_of(me, given)?;
        self.before_judgment(me, number)?;
        let reason = given.own_text("reason").filter(|reason| !reason.is_empty()).ok_or("reason_required")?;
        self.fits(Some(&reason), self.limits.criteria_bytes_max)?;
        self.assignments[number].reason = Some(reason);
        self.judge(number, "not_passed")
    }

    fn judge(&mut self, number: usize, state: &'static str) -> Result<Done, Code> {
        let Assignment { thread, entry, creator, .. } = self.assignments[number];
        let mut effects: Vec<Value> = self.end("judge", thread, entry, creator, "judged").into_iter().collect();
        effects.push(self.finish(number, state));
        self.work(number, effects)
    }

    pub(super) fn assignment_abandon(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let number = self.assignment_of(me, given)?;
        self.before_delivery(me, number)?;
        let Assignment { thread, entry, .. } = self.assignments[number];
        let mut effects: Vec<Value> = self.end("deliver", thread, entry, me, "abandoned").into_iter().collect();
        effects.push(self.finish(number, "abandoned"));
        self.work(number, effects)
    }

    pub(super) fn assignment_void(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let number = self.assignment_of(me, given)?;
        let assignment = &self.assignments[number];
        if assignment.creator != me {
            return Err("not_author");
        }
        assignment.open()?;
        if assignment.state == "delivered" {
            return Err("already_delivered");
        }
        let effects = self.void(number);
        self.work(number, effects)
    }

    fn void(&mut self, number: usize) -> Vec<Value> {
        let Assignment { thread, entry, assignee, .. } = self.assignments[number];
        let mut effects: Vec<Value> = self.end("deliver", thread, entry, assignee, "voided").into_iter().collect();
        effects.push(self.finish(number, "voided"));
        effects
    }

    fn finish(&mut self, number: usize, state: &'static str) -> Value {
        (self.assignments[number].state, self.assignments[number].due_at) = (state, None);
        json!({"kind": "assignment_ended", "assignment": handle("asg", number), "state": state})
    }

    /// Its deadline has come (T4.10).
    pub(super) fn expire(&mut self, number: usize) {
        let Assignment { thread, entry, creator, assignee, delivered, .. } = self.assignments[number];
        if delivered {
            self.end("judge", thread, entry, creator, "expired");
            self.finish(number, "undecided");
        } else {
            self.end("deliver", thread, entry, assignee, "expired");
            self.finish(number, "timed_out");
        }
        self.assignments[number].expired = true;
    }

    /// The assignments of a thread that have not ended, by rising entry.
    fn unfinished(&self, thread: usize) -> Vec<usize> {
        let numbers = 0..self.assignments.len();
        numbers
            .filter(|number| self.assignments[*number].thread == thread && !self.assignments[*number].is_final())
            .collect()
    }

    /// What the end of a membership does to assignments (T2.6).
    pub(super) fn end_assignments_of(&mut self, thread: usize, agent: usize) -> Vec<Value> {
        let mut effects = Vec::new();
        for number in self.unfinished(thread) {
            let Assignment { entry, creator, assignee, taken, delivered, forfeited, .. } = self.assignments[number];
            if !delivered && (creator == agent || taken && assignee == agent) {
                effects.extend(self.void(number));
            } else if delivered && creator == agent && !forfeited {
                effects.extend(self.end("judge", thread, entry, agent, "membership_ended"));
                self.assignments[number].forfeited = true;
                effects.push(json!({"kind": "judgment_forfeited", "assignment": handle("asg", number)}));
            }
        }
        effects
    }

    /// What closing does to assignments (T5.2).
    pub(super) fn void_undelivered(&mut self, thread: usize) -> Vec<Value> {
        let mut effects = Vec::new();
        for number in self.unfinished(thread) {
            let kept = self.assignments[number].state == "offered" && self.errs(Mistake::ClosingKeepsOffers);
            if !self.assignments[number].delivered && !kept {
                effects.extend(self.void(number));
            }
        }
        effects
    }

    /// What was done to an assignment.
    fn work(&self, number: usize, effects: Vec<Value>) -> Result<Done, Code> {
        let assignment = &self.assignments[number];
        let mut result = json!({"assignment": handle("asg", number), "state": assignment.state});
        put(&mut result, "due_at", assignment.due_at.map(|due| self.shown(due)));
        Ok(about(assignment.thread, result, effects))
    }

    /// An assignment as members see it, with its texts.
    pub(super) fn assignment_row(&self, number: usize) -> Value {
        let found = &self.assignments[number];
        let mut row = json!({
            "assignment": handle("asg", number),
            "state": found.state,
            "thread": handle("thr", found.thread),
            "entry": found.entry,
            "creator": handle("agt", found.creator),
            "assignee": handle("agt", found.assignee),
            "deliver_within": found.terms.deliver_within,
            "judge_within": found.terms.judge_within,
            "criteria_content": plain(found.creator, "criteria", &found.terms.criteria),
        });
        let schema = found.terms.output_schema.as_deref();
        put(
            &mut row,
            "output_schema_content",
            schema.map(|schema| content(Some(found.creator), "output_schema", "application/json", schema)),
        );
        put(&mut row, "due_at", found.due_at.map(|due| self.shown(due)));
        put(&mut row, "lapsed", found.due_at.filter(|due| *due <= self.now).map(|_| json!(true)));
        put(&mut row, "judgment_forfeited", (found.forfeited && !found.is_final()).then_some(json!(true)));
        put(&mut row, "redoes", found.terms.redoes.map(|old| json!(handle("asg", old))));
        put(&mut row, "output", found.output.as_ref().map(|output| self.output_row(found.assignee, output)));
        put(&mut row, "reason_content", found.reason.as_deref().map(|reason| plain(found.creator, "reason", reason)));
        row
    }

    /// A delivery: members read all of it (V4).
    fn output_row(&self, taker: usize, output: &Output) -> Value {
        let memories: Vec<Value> = output.memories.iter().map(|pin| {
            json!({"memory": handle("mem", pin.memory), "version": pin.version, "text_content": self.pinned(*pin)})
        }).collect();
        let mut row = json!({"memories": memories});
        let text = output.text.as_ref();
        put(&mut row, "text_content", text.map(|(text, media)| content(Some(taker), "output", media, text)));
        row
    }

    pub(super) fn assignment_get(&self, me: usize, given: Arguments<'_>) -> Result<Value, Code> {
        let number = given.place("assignment", "asg").filter(|number| *number < self.assignments.len());
        let number = number.filter(|number| self.reads(self.assignments[*number].thread, me)).ok_or("not_found")?;
        Ok(self.assignment_row(number))
    }

    pub(super) fn assignment_list(&self, me: usize, given: Arguments<'_>) -> Result<Vec<Value>, Code> {
        let thread = self.thread_read(me, given)?;
        let state = given.text("state");
        let numbers = (0..self.assignments.len()).filter(|number| self.assignments[*number].thread == thread);
        let chosen = numbers.filter(|number| state.is_none_or(|state| self.assignments[*number].state == state));
        Ok(chosen.map(|number| self.assignment_row(number)).collect())
    }

    /// What is offered to an agent where it is a member, with the texts that tell what it is (O2).
    pub(super) fn opportunities(&self, me: usize) -> Vec<Value> {
        let offered = (0..self.assignments.len()).filter(|number| self.is_offered_to(*number, me));
        let mut offered: Vec<usize> = offered.collect();
        offered.sort_by_key(|number| self.carrier(*number).at);
        offered
            .into_iter()
            .map(|number| {
                let found = &self.assignments[number];
                json!({
                    "kind": "assignment",
                    "assignment": handle("asg", number),
                    "object": handle("thr", found.thread),
                    "entry": found.entry,
                    "step": "deliver",
                    "text_content": self.entry_text(self.carrier(number)),
                    "criteria_content": plain(found.creator, "criteria", &found.terms.criteria),
                })
            })
            .collect()
    }

    /// The entry that carries an assignment.
    pub(super) fn carrier(&self, number: usize) -> &Entry {
        self.entry(self.assignments[number].thread, self.assignments[number].entry).expect("an entry")
    }

    /// Whether an agent may take this now.
    pub(super) fn is_offered_to(&self, number: usize, me: usize) -> bool {
        let found = &self.assignments[number];
        found.state == "offered" && found.assignee == me && self.member(found.thread, me).is_some()
    }

    /// The assignment that a handle names.
    pub fn assignment(&self, handle: &str) -> Option<&Assignment> {
        self.assignments.get(place("asg", handle)?)
    }
}
