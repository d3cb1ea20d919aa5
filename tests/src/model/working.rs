//! Threads as their members see them, and working sets (O5).

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{Code, Mistake, Model, handle, place, plain, put};

/// Members and obligations that a thread shows.
const ROWS: usize = 50;
/// Entries that a thread shows, and texts of entries and assignments that a working set has.
const TEXTS: usize = 20;

impl Model {
    /// Whether an agent reads a thread: its present members do (V2, V10).
    pub(super) fn reads(&self, thread: usize, me: usize) -> bool {
        let former = self.errs(Mistake::FormerMembersRead) && self.threads[thread].former.contains(&me);
        self.member(thread, me).is_some() || former
    }

    /// The thread that an agent wants to read.
    pub(super) fn thread_read(&self, me: usize, given: Arguments<'_>) -> Result<usize, Code> {
        let thread = given.place("thread", "thr").filter(|thread| *thread < self.threads.len());
        thread.filter(|thread| self.reads(*thread, me)).ok_or("not_found")
    }

    pub(super) fn thread_get(&self, me: usize, given: Arguments<'_>) -> Result<Value, Code> {
        Ok(self.thread_shown(me, self.thread_read(me, given)?))
    }

    fn thread_shown(&self, me: usize, number: usize) -> Value {
        let thread = &self.threads[number];
        let members: Vec<Value> = thread.members.iter().take(ROWS).map(|member| self.member_row(member)).collect();
        let count = thread.entries.len();
        let entries: Vec<Value> =
            (1..=count).skip(count.saturating_sub(TEXTS)).map(|entry| self.entry_row(number, entry)).collect();
        let mut obligations = self.turn_of(me, Some(number));
        // Of those that began in the same millisecond, the one of the earlier entry first.
        obligations.sort_by_key(|row| (row["began_at"].to_string(), row["entry"].as_u64()));
        let mut shown = json!({
            "thread": handle("thr", number),
            "state": if thread.open { "open" } else { "closed" },
            "role": self.member(number, me).map(|member| member.role),
            "creator": handle("agt", thread.creator),
            "created_at": self.shown(thread.created_at),
            "members": members,
            "member_count": thread.members.len(),
            "entries": entries,
            "entry_count": count,
            "obligation_count": obligations.len(),
            "obligations": obligations.into_iter().take(ROWS).collect::<Vec<_>>(),
            "actions": self.actions(me, number),
        });
        put(
            &mut shown,
            "subject_content",
            thread.subject.as_deref().map(|text| plain(thread.creator, "subject", text)),
        );
        put(
            &mut shown,
            "admission",
            thread.admission.map(|(admission, role)| json!({"admission": handle("adm", admission), "role": role})),
        );
        shown
    }

    /// The operations that would do something now, in the order of their names.
    fn actions(&self, me: usize, thread: usize) -> Vec<&'static str> {
        let Some(member) = self.member(thread, me) else { return Vec::new() };
        let open = self.threads[thread].open;
        let (voice, governs) = (open && member.role != "observer", open && member.role == "governor");
        let owed = || self.obligations.iter().filter(|owed| owed.thread == thread);
        let mine = |entry: usize| self.entry(thread, entry).is_some_and(|entry| entry.author == me);
        let work = || self.assignments.iter().filter(|work| work.thread == thread);
        let in_time = |due: Option<u64>| due.is_none_or(|due| due > self.now);
        let last = self.is_last_governor(thread, me);
        let manageable = governs && (self.threads[thread].members.len() > 1 || !last);
        let taken = work().any(|work| work.state == "taken" && work.assignee == me && in_time(work.due_at));
        let judged = work()
            .any(|work| work.state == "delivered" && work.creator == me && !work.forfeited && in_time(work.due_at));
        let voidable = |work: &super::assignments::Assignment| {
            ["offered", "taken"].contains(&work.state) && work.creator == me && in_time(work.due_at)
        };
        let all = [
            ("admission_issue", governs),
            ("admission_void", governs && self.threads[thread].admission.is_some()),
            ("assignment_abandon", taken),
            ("assignment_accept", judged),
            ("assignment_deliver", taken),
            ("assignment_return", judged),
            ("assignment_take", work().any(|work| work.state == "offered" && work.assignee == me)),
            ("assignment_void", work().any(voidable)),
            ("entry_handle", owed().any(|owed| owed.duty == "respond" && owed.bearer == me)),
            ("entry_post", voice),
            ("entry_retract", owed().any(|owed| owed.duty == "respond" && mine(owed.entry))),
            ("member_remove", manageable),
            ("member_role", manageable),
            ("thread_close", governs),
            ("thread_leave", !last),
        ];
        all.into_iter().filter(|(_, can)| *can).map(|(operation, _)| operation).collect()
    }

    pub(super) fn working_set(&self, me: usize, given: Arguments<'_>) -> Result<Value, Code> {
        let object = given.text("object").expect("an object");
        if let Some(memory) = place("mem", object) {
            return self.working_memory(me, memory);
        }
        if let Some(agent) = place("agt", object) {
            return if agent == me { Ok(self.working_self(me)) } else { Err("not_found") };
        }
        let thread = place("thr", object).filter(|thread| *thread < self.threads.len());
        let thread = thread.filter(|thread| self.reads(*thread, me)).ok_or("not_found")?;
        let mut set = self.thread_shown(me, thread);
        let owed = self.obligations.iter().filter(|owed| owed.thread == thread && owed.bearer == me);
        let asked = owed.clone().filter(|owed| owed.duty == "respond").take(TEXTS);
        set["owed"] = asked
            .map(|owed| {
                let text = self.entry_text(self.entry(thread, owed.entry).expect("an entry"));
                json!({"entry": owed.entry, "text_content": text})
            })
            .collect();
        let mut work: Vec<usize> = owed.filter_map(|owed| owed.assignment).collect();
        let mine = |number: &usize| self.assignments[*number].thread == thread && self.is_offered_to(*number, me);
        work.extend((0..self.assignments.len()).filter(mine));
        work.sort_unstable();
        set["work"] = work
            .into_iter()
            .take(TEXTS)
            .map(|number| {
                let mut row = self.assignment_row(number);
                row["text_content"] = self.entry_text(self.carrier(number));
                row
            })
            .collect();
        Ok(set)
    }

    fn working_memory(&self, me: usize, memory: usize) -> Result<Value, Code> {
        let arguments = json!({"memory": handle("mem", memory)});
        let mut set = self.memory_get(me, Arguments::of(&arguments))?;
        let found = &self.memories[memory];
        let own = found.author == me;
        let change = if found.public { "memory_unpublish" } else { "memory_publish" };
        let actions = if own && !found.withdrawn && self.is_active(me) {
            vec![change, "memory_update", "memory_withdraw"]
        } else {
            Vec::new()
        };
        set["role"] = json!(if own { "author" } else { "reader" });
        set["obligations"] = json!([]);
        set["actions"] = json!(actions);
        Ok(set)
    }

    fn working_self(&self, me: usize) -> Value {
        let mut set = self.agent_row(me);
        set["role"] = json!("self");
        set["obligations"] = json!([]);
        set["actions"] = if self.is_active(me) { json!(["memory_create", "thread_create"]) } else { json!([]) };
        set
    }

    /// The threads of which an agent is a member, in the order in which it became one, with counts.
    pub(super) fn thread_list(&self, me: usize) -> Vec<Value> {
        let mine = (0..self.threads.len()).filter(|thread| self.member(*thread, me).is_some());
        let mut mine: Vec<usize> = mine.collect();
        mine.sort_by_key(|thread| {
            let member = self.member(*thread, me).expect("a member");
            (member.since, member.request)
        });
        mine.into_iter()
            .map(|number| {
                let thread = &self.threads[number];
                let mut row = json!({
                    "thread": handle("thr", number),
                    "state": if thread.open { "open" } else { "closed" },
                    "role": self.member(number, me).expect("a member").role,
                    "members": thread.members.len(),
                    "entries": thread.entries.len(),
                    "obligations": self.turn_of(me, Some(number)).len(),
                });
                put(
                    &mut row,
                    "subject_content",
                    thread.subject.as_deref().map(|text| plain(thread.creator, "subject", text)),
                );
                row
            })
            .collect()
    }
}
