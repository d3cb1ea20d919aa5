//! Threads: members, their roles and how they are admitted (T1, T2, T5).

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::entries::Entry;
use super::{Code, Done, Milliseconds, Mistake, Model, handle, put};

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Who made it.
    pub creator: usize,
    /// When.
    pub created_at: Milliseconds,
    /// What it is about.
    pub subject: Option<String>,
    /// Whether it is open.
    pub open: bool,
    /// The present members, in the order in which their memberships began.
    pub members: Vec<Member>,
    /// Who was a member once.
    pub former: Vec<usize>,
    /// The valid admission and its role.
    pub admission: Option<(usize, &'static str)>,
    /// Entry 1 first.
    pub entries: Vec<Entry>,
    /// The latest time of its log.
    pub clock: Milliseconds,
}

/// A membership.
#[derive(Clone, Debug)]
pub struct Member {
    /// Whose.
    pub agent: usize,
    /// `observer`, `speaker` or `governor`.
    pub role: &'static str,
    /// The admission it came through.
    pub admission: Option<usize>,
    /// When it began.
    pub since: Milliseconds,
    /// The request by which it began.
    pub request: usize,
}

/// A ticket.
#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    /// To which thread.
    pub thread: usize,
    /// Of which admission.
    pub admission: usize,
    /// The role it admits to.
    pub role: &'static str,
}

/// A role by its name.
fn role(given: Option<&str>) -> &'static str {
    match given {
        Some("observer") => "observer",
        Some("governor") => "governor",
        _ => "speaker",
    }
}

impl Model {
    /// The present membership of an agent.
    pub fn member(&self, thread: usize, agent: usize) -> Option<&Member> {
        self.threads[thread].members.iter().find(|member| member.agent == agent)
    }

    /// Whether an agent is a member with a voice.
    pub fn has_voice(&self, thread: usize, agent: usize) -> bool {
        self.member(thread, agent).is_some_and(|member| member.role != "observer")
    }

    /// How many govern a thread.
    pub fn governors(&self, thread: usize) -> usize {
        self.threads[thread].members.iter().filter(|member| member.role == "governor").count()
    }

    /// Whether an open thread would be without a governor if this member did not govern.
    pub fn is_last_governor(&self, thread: usize, agent: usize) -> bool {
        let governs = self.member(thread, agent).is_some_and(|member| member.role == "governor");
        self.threads[thread].open && governs && self.governors(thread) == 1
    }

    /// A thread for one of its members (V2).
    pub(super) fn thread_of(&self, me: usize, given: Arguments<'_>) -> Result<usize, Code> {
        let thread = given.place("thread", "thr").filter(|thread| *thread < self.threads.len()).ok_or("not_found")?;
        self.member(thread, me).map(|_| thread).ok_or("not_found")
    }

    /// A thread that can be governed.
    fn governed_by(&self, me: usize, given: Arguments<'_>) -> Result<usize, Code> {
        let thread = self.thread_of(me, given)?;
        if self.member(thread, me).expect("a member").role != "governor" {
            return Err("not_governor");
        }
        if self.threads[thread].open { Ok(thread) } else { Err("thread_closed") }
    }

    pub(super) fn thread_create(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let subject = given.own_text("subject");
        self.fits_line(subject.as_deref())?;
        let (now, request) = (self.at, self.requests.len());
        let creator = Member { agent: me, role: "governor", admission: None, since: now, request };
        let members = vec![creator];
        let (former, entries) = (Vec::new(), Vec::new());
        let thread = Thread {
            creator: me,
            created_at: now,
            subject,
            open: true,
            members,
            former,
            admission: None,
            entries,
            clock: now,
        };
        self.threads.push(thread);
        self.open_threads_fit(me)?;
        let (thread, id) = (self.threads.len() - 1, handle("thr", self.threads.len() - 1));
        let mut effects = vec![
            json!({"kind": "thread_created", "thread": id, "creator": handle("agt", me)}),
            json!({"kind": "membership_began", "agent": handle("agt", me), "role": "governor"}),
        ];
        let mut done = Done::new(id.clone(), json!({"thread": id, "role": "governor"}), Vec::new());
        if let Some(admission) = given.part("admission") {
            self.issue(thread, role(admission.text("role")), &mut effects, &mut done);
        }
        done.effects = effects;
        Ok(done)
    }

    fn issue(&mut self, thread: usize, role: &'static str, effects: &mut Vec<Value>, done: &mut Done) {
        effects.extend(self.void_admission(thread));
        let admission = self.admissions;
        self.admissions += 1;
        self.threads[thread].admission = Some((admission, role));
        effects.push(json!({"kind": "admission_issued", "admission": handle("adm", admission), "role": role}));
        done.result["admission"] = json!(handle("adm", admission));
        self.tickets.push(Ticket { thread, admission, role });
        done.ticket = Some(self.tickets.len() - 1);
    }

    fn void_admission(&mut self, thread: usize) -> Option<Value> {
        let (admission, _) = self.threads[thread].admission.take()?;
        Some(json!({"kind": "admission_voided", "admission": handle("adm", admission)}))
    }

    pub(super) fn admission_issue(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let thread = self.governed_by(me, given)?;
        let mut done = about(thread, json!({}), Vec::new());
        let mut effects = Vec::new();
        self.issue(thread, role(given.text("role")), &mut effects, &mut done);
        done.effects = effects;
        Ok(done)
    }

    pub(super) fn admission_void(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let thread = self.governed_by(me, given)?;
        let voided = self.void_admission(thread).ok_or("no_change")?;
        Ok(about(thread, json!({}), vec![voided]))
    }

    /// The thread and role of a valid ticket.
    fn admitted(&self, given: Arguments<'_>) -> Option<Ticket> {
        let ticket = *self.tickets.get(given.place("ticket", "tic")?)?;
        let (valid, _) = self.threads[ticket.thread].admission?;
        (valid == ticket.admission || self.errs(Mistake::OldTicketsStayValid)).then_some(ticket)
    }

    pub(super) fn thread_join(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let Ticket { thread, admission, role } = self.admitted(given).ok_or("admission_invalid")?;
        if let Some(member) = self.member(thread, me) {
            // The answer is that of the request by which the membership began (L2.4).
            let mut done = self.requests[member.request].done.clone();
            (done.existing, done.ticket) = (Some(member.request), None);
            return Ok(done);
        }
        let (since, request) = (self.at, self.requests.len());
        self.threads[thread].members.push(Member { agent: me, role, admission: Some(admission), since, request });
        if self.threads[thread].members.len() as u64 > self.limits.members_max {
            return Err("capacity_reached");
        }
        self.open_threads_fit(me)?;
        if self.errs(Mistake::RejoiningRestoresJudgment) {
            for assignment in self.assignments.iter_mut().filter(|found| found.thread == thread && found.creator == me)
            {
                assignment.forfeited = false;
            }
        }
        let effect = json!({"kind": "membership_began", "agent": handle("agt", me), "role": role});
        Ok(about(thread, json!({"role": role}), vec![effect]))
    }

    fn open_threads_fit(&self, me: usize) -> Result<(), Code> {
        let open = (0..self.threads.len()).filter(|thread| self.threads[*thread].open);
        let mine = open.filter(|thread| self.member(*thread, me).is_some()).count();
        if mine as u64 <= self.limits.open_threads_max { Ok(()) } else { Err("capacity_reached") }
    }

    pub(super) fn thread_leave(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let thread = self.thread_of(me, given)?;
        if self.is_last_governor(thread, me) && !self.errs(Mistake::LastGovernorLeaves) {
            return Err("last_governor");
        }
        let effects = self.end_membership(thread, me, "left");
        Ok(about(thread, json!({}), effects))
    }

    pub(super) fn member_remove(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let thread = self.governed_by(me, given)?;
        let agent = self.named_member(thread, given)?;
        if self.is_last_governor(thread, agent) {
            return Err("last_governor");
        }
        let effects = self.end_membership(thread, agent, "removed");
        Ok(about(thread, json!({"agent": handle("agt", agent)}), effects))
    }

    pub(super) fn member_role(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let thread = self.governed_by(me, given)?;
        let agent = self.named_member(thread, given)?;
        let new = role(given.text("role"));
        if self.member(thread, agent).expect("a member").role == new {
            return Err("no_change");
        }
        if self.is_last_governor(thread, agent) {
            return Err("last_governor");
        }
        let members = &mut self.threads[thread].members;
        members.iter_mut().find(|member| member.agent == agent).expect("a member").role = new;
        let mut effects = vec![json!({"kind": "role_set", "agent": handle("agt", agent), "role": new})];
        if new == "observer" && !self.errs(Mistake::DemotionEndsNothing) {
            effects.extend(self.end_responses_of(thread, agent, "demoted"));
        }
        Ok(about(thread, json!({"agent": handle("agt", agent), "role": new}), effects))
    }

    fn named_member(&self, thread: usize, given: Arguments<'_>) -> Result<usize, Code> {
        let agent = given.place("agent", "agt");
        agent.filter(|agent| self.member(thread, *agent).is_some()).ok_or("bad_reference")
    }

    /// Ends a membership and what hangs on it (T2.6).
    pub(super) fn end_membership(&mut self, thread: usize, agent: usize, how: &str) -> Vec<Value> {
        let mut effects = self.end_responses_of(thread, agent, "membership_ended");
        effects.extend(self.end_assignments_of(thread, agent));
        self.threads[thread].members.retain(|member| member.agent != agent);
        self.threads[thread].former.push(agent);
        effects.push(json!({"kind": "membership_ended", "agent": handle("agt", agent), "how": how}));
        effects
    }

    pub(super) fn thread_close(&mut self, me: usize, given: Arguments<'_>) -> Result<Done, Code> {
        let thread = self.governed_by(me, given)?;
        let effects = self.close(thread);
        Ok(about(thread, json!({}), effects))
    }

    /// Closes a thread (T5.2).
    pub(super) fn close(&mut self, thread: usize) -> Vec<Value> {
        let members: Vec<usize> = self.threads[thread].members.iter().map(|member| member.agent).collect();
        let responses = members.into_iter().flat_map(|member| self.end_responses_of(thread, member, "closed"));
        let mut effects: Vec<Value> = responses.collect();
        effects.extend(self.void_undelivered(thread));
        effects.extend(self.void_admission(thread));
        self.threads[thread].open = false;
        effects.push(json!({"kind": "thread_closed", "thread": handle("thr", thread)}));
        effects
    }

    /// A membership as it is shown.
    pub(super) fn member_row(&self, member: &Member) -> Value {
        let since = self.shown(member.since);
        let mut row = json!({"agent": handle("agt", member.agent), "role": member.role, "since": since});
        put(&mut row, "admission", member.admission.map(|admission| json!(handle("adm", admission))));
        row
    }
}

/// What was done in a thread.
pub(super) fn about(thread: usize, mut result: Value, effects: Vec<Value>) -> Done {
    let id = handle("thr", thread);
    result["thread"] = json!(id);
    Done::new(id, result, effects)
}
