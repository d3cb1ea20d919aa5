//! Entries, and the responses they ask for (T3).

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::memories::{Memory, Pin, Version, media_type};
use super::threads::about;
use super::{Code, Done, Milliseconds, Mistake, Model, handle, missing, place, plain, put};

/// An entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who speaks.
    pub author: usize,
    /// When.
    pub at: Milliseconds,
    /// What it refers to.
    pub pin: Pin,
    /// A summary by its author.
    pub summary: Option<String>,
    /// The entry it replies to.
    pub reply_to: Option<usize>,
    /// Whom it said it asks.
    pub ask: Option<Vec<usize>>,
    /// Who owes a response, and what became of that.
    pub responses: Vec<Response>,
    /// The assignment it carries.
    pub assignment: Option<usize>,
}

/// A response that was asked for.
#[derive(Clone, Debug)]
pub struct Response {
    /// Of whom.
    pub agent: usize,
    /// `pending`, or how it ended.
    pub state: String,
    /// The reply.
    pub reply: Option<usize>,
    /// When it ended.
    pub ended_at: Option<Milliseconds>,
    /// A note, for the entry's author and the agent.
    pub note: Option<String>,
}

impl Model {
    /// An entry by its number, if there is one.
    pub fn entry(&self, thread: usize, number: usize) -> Option<&Entry> {
        number.checked_sub(1).and_then(|before| self.threads[thread].entries.get(before))
    }

    /// The entry that an argument names, by its number or by the action that posted it.
    pub(super) fn entry_named(&self, thread: usize, given: Arguments<'_>, name: &str) -> Option<usize> {
        let number = match given.get(name)? {
            Value::String(action) => {
                let made = &self.requests.get(place("act", action)?)?.done;
                let here = made.object == handle("thr", thread);
                made.result.get("entry").filter(|_| here && made.result.get("memory").is_some())?.as_u64()?
            }
            number => number.as_u64().expect("a number"),
        } as usize;
        self.entry(thread, number).map(|_| number)
    }

    pub(super) fn entry_post(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let thread = self.thread_of(me, given)?;
        if !self.has_voice(thread, me) {
            return Err("no_voice");
        }
        if !self.threads[thread].open {
            return Err("thread_closed");
        }
        if given.get("task").is_some() {
            return Err("not_found");
        }
        let referred =
            given.get("memory").map(|memory| self.pin(me, memory, given.number("version"), true)).transpose()?;
        let ask = given.list("ask").map(|asked| self.asked(asked)).transpose()?;
        if ask.as_ref().is_some_and(|ask| ask.len() as u64 > self.limits.ask_max) {
            return Err("content_too_large");
        }
        let reply_to = self.entry_named(thread, given, "reply_to");
        if given.get("reply_to").is_some() && reply_to.is_none() {
            return Err("bad_reference");
        }
        let fits = |agent: &usize| *agent != me && self.has_voice(thread, *agent);
        if ask.as_ref().is_some_and(|ask| !ask.iter().all(fits)) {
            return Err("bad_reference");
        }

        let number = self.threads[thread].entries.len() + 1;
        let mut effects = Vec::new();
        if let Some(answered) = reply_to {
            effects.extend(self.end_response(thread, answered, me, "replied", Some(number), None));
        }
        let pin = referred.unwrap_or_else(|| self.bring_forth(me, given));
        let summary = given.own_text("summary");
        let asked = self.responders(thread, me, reply_to, ask.as_deref());
        let entry =
            Entry { author: me, at: self.at, pin, summary, reply_to, ask, responses: Vec::new(), assignment: None };
        self.threads[thread].entries.push(entry);
        let memory = handle("mem", pin.memory);
        let posted = json!({
            "kind": "entry_posted",
            "entry": number,
            "author": handle("agt", me),
            "memory": memory,
            "version": pin.version,
        });
        effects.push(posted);
        for agent in asked {
            let response = Response { agent, state: "pending".to_owned(), reply: None, ended_at: None, note: None };
            self.threads[thread].entries[number - 1].responses.push(response);
            effects.push(self.begin_response(thread, number, agent));
        }
        let mut result = json!({"entry": number, "memory": memory, "version": pin.version});
        if let Some(assign) = given.part("assign") {
            let (assignment, offered) = self.offer(thread, number, me, assign)?;
            self.threads[thread].entries[number - 1].assignment = Some(assignment);
            effects.push(offered);
            result["assignment"] = json!(handle("asg", assignment));
            result["state"] = json!("offered");
        }
        self.fits(given.text("text"), self.limits.text_bytes_max)?;
        self.fits(given.text("summary"), self.limits.summary_bytes_max)?;
        self.thread_fits(thread, me)?;
        Ok(about(thread, result, effects))
    }

    /// Agents that an entry names, in the order of their ids.
    fn asked(&self, asked: &[Value]) -> Result<Vec<usize>, Code> {
        let mut agents = Vec::new();
        for agent in asked {
            let agent = place("agt", agent.as_str().expect("an agent")).filter(|agent| *agent < self.agents.len());
            agents.push(agent.ok_or("bad_reference")?);
        }
        agents.sort_by_key(|agent| &self.agents[*agent].full_id);
        agents.dedup();
        Ok(agents)
    }

    /// The memory that a text becomes.
    fn bring_forth(&mut self, me: usize, given: Arguments<'_>) -> Pin {
        let version = Version {
            text: given.own_text("text").expect("a text or a memory"),
            media_type: media_type(given),
            title: None,
            summary: given.own_text("summary"),
            tags: Vec::new(),
        };
        self.memories.push(Memory {
            author: me,
            versions: vec![version],
            public: false,
            withdrawn: false,
            created_at: self.at,
            clock: 0,
        });
        Pin { memory: self.memories.len() - 1, version: 1 }
    }

    /// Who owes a response to a new entry (T3.4).
    fn responders(&self, thread: usize, me: usize, reply_to: Option<usize>, ask: Option<&[usize]>) -> Vec<usize> {
        if let Some(ask) = ask {
            return ask.to_vec();
        }
        let answered = reply_to.and_then(|number| self.entry(thread, number)).map(|entry| entry.author);
        if let Some(author) = answered.filter(|author| *author != me) {
            let asked = self.has_voice(thread, author) || self.errs(Mistake::RepliesAskTheVoiceless);
            return if asked { vec![author] } else { Vec::new() };
        }
        let voices = self.threads[thread].members.iter().filter(|member| member.role != "observer");
        let others: Vec<usize> = voices.map(|member| member.agent).filter(|agent| *agent != me).collect();
        let most = if self.errs(Mistake::ThreeVoicesAreAsked) { 2 } else { 1 };
        if others.len() <= most { others } else { Vec::new() }
    }

    /// Whether what an agent causes, and all that is owed in a thread, is within what the host allows.
    fn thread_fits(&self, thread: usize, me: usize) -> Result<(), Code> {
        let owed = self.obligations.iter().filter(|owed| owed.thread == thread);
        let mine = |number: usize| self.entry(thread, number).is_some_and(|entry| entry.author == me);
        let asked = owed.clone().filter(|owed| owed.duty == "respond" && mine(owed.entry)).count();
        let offered = self.assignments.iter().filter(|work| work.thread == thread && work.creator == me);
        let caused = asked + offered.filter(|work| !work.is_final()).count();
        let within = caused as u64 <= self.limits.obligations_caused_max
            && owed.count() as u64 <= self.limits.obligations_open_max;
        if within { Ok(()) } else { Err("capacity_reached") }
    }

    pub(super) fn entry_handle(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let thread = self.thread_of(me, given)?;
        let entry = self.entry_named(thread, given, "entry").ok_or("no_such_obligation")?;
        let note = given.own_text("note");
        let ended = self.end_response(thread, entry, me, "handled", None, note).ok_or("no_such_obligation")?;
        self.fits(given.text("note"), self.limits.note_bytes_max)?;
        Ok(about(thread, json!({"entry": entry}), vec![ended]))
    }

    pub(super) fn entry_retract(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let thread = self.thread_of(me, given)?;
        let entry = self.entry_named(thread, given, "entry").ok_or("not_found")?;
        if self.entry(thread, entry).expect("an entry").author != me {
            return Err("not_author");
        }
        let responses = self.entry(thread, entry).expect("an entry").responses.clone();
        let mut effects = Vec::new();
        for response in responses {
            if self.errs(Mistake::RetractionEndsTwice) && response.state == "handled" {
                let again = json!({"kind": "obligation_ended", "bearer": handle("agt", response.agent)});
                effects.push(again);
            }
            effects.extend(self.end_response(thread, entry, response.agent, "retracted", None, None));
        }
        if effects.is_empty() {
            return Err("no_change");
        }
        Ok(about(thread, json!({"entry": entry}), effects))
    }

    /// Ends a response, if it is pending.
    pub(super) fn end_response(
        &mut self,
        thread: usize,
        entry: usize,
        agent: usize,
        exit: &str,
        reply: Option<usize>,
        note: Option<String>,
    ) -> Option<Value> {
        let effect = self.end("respond", thread, entry, agent, exit)?;
        let now = self.at;
        let responses = &mut self.threads[thread].entries[entry - 1].responses;
        let response = responses.iter_mut().find(|response| response.agent == agent).expect("one that was asked");
        *response = Response { agent, state: exit.to_owned(), reply, ended_at: Some(now), note };
        Some(effect)
    }

    /// Ends all responses that a member owes in a thread, by rising entry.
    pub(super) fn end_responses_of(&mut self, thread: usize, agent: usize, exit: &str) -> Vec<Value> {
        let entries = 1..=self.threads[thread].entries.len();
        entries.filter_map(|entry| self.end_response(thread, entry, agent, exit, None, None)).collect()
    }

    /// The text of an entry, or its absence where it is another's memory that is not to be read any more (M6, V3).
    pub(super) fn entry_text(&self, entry: &Entry) -> Value {
        let memory = &self.memories[entry.pin.memory];
        let readable = memory.author == entry.author || memory.is_shown() || self.errs(Mistake::PinsStayReadable);
        if readable { self.pinned(entry.pin) } else { missing(memory.author, "text") }
    }

    /// An entry as members see it.
    pub(super) fn entry_row(&self, thread: usize, number: usize) -> Value {
        let entry = self.entry(thread, number).expect("an entry");
        let ids = |agents: &[usize]| json!(agents.iter().map(|agent| handle("agt", *agent)).collect::<Vec<_>>());
        let responders: Vec<usize> = entry.responses.iter().map(|response| response.agent).collect();
        let mut row = json!({
            "entry": number,
            "author": handle("agt", entry.author),
            "at": self.shown(entry.at),
            "ask": entry.ask.as_deref().map(ids),
            "memory": handle("mem", entry.pin.memory),
            "version": entry.pin.version,
            "text_content": self.entry_text(entry),
        });
        put(&mut row, "responders", (!responders.is_empty()).then(|| ids(&responders)));
        put(&mut row, "reply_to", entry.reply_to.map(|answered| json!(answered)));
        put(&mut row, "assignment", entry.assignment.map(|assignment| json!(handle("asg", assignment))));
        put(&mut row, "summary_content", entry.summary.as_deref().map(|text| plain(entry.author, "summary", text)));
        row
    }

    /// An entry with the state of each response; notes for those who may read them, if they read for themselves (V5).
    pub(super) fn entry_get(&self, me: usize, by_owner: bool, given: Arguments<'_>) -> Result<Value, Code> {
        let thread = self.thread_read(me, given)?;
        let number = self.entry_named(thread, given, "entry").ok_or("not_found")?;
        let entry = self.entry(thread, number).expect("an entry");
        let mut shown = self.entry_row(thread, number);
        let mut responses = Vec::new();
        for response in &entry.responses {
            let mut row = json!({"agent": handle("agt", response.agent), "state": response.state});
            put(&mut row, "entry", response.reply.map(|reply| json!(reply)));
            put(&mut row, "ended_at", response.ended_at.map(|at| self.shown(at)));
            let reads = !by_owner && (me == entry.author || me == response.agent);
            let note = response.note.as_deref().filter(|_| reads || self.errs(Mistake::NotesAreForAll));
            put(&mut row, "note_content", note.map(|note| plain(response.agent, "note", note)));
            responses.push(row);
        }
        shown["responses"] = json!(responses);
        Ok(shown)
    }
}
