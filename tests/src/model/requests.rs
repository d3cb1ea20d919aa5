//! Requests and their receipts: one request, one receipt (L3).

use serde_json::{Value, json};

use super::arguments::{self, Arguments};
use super::{Caller, Code, Done, Milliseconds, Mistake, Model, handle, put, refusal};

/// A request that succeeded. Its place among the requests is the number of its action.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who asked.
    pub caller: Caller,
    /// For what.
    pub operation: &'static str,
    /// Under which key, if one was given.
    pub key: Option<String>,
    /// What is compared if the key comes again.
    pub asked: Value,
    /// The call as it was made.
    pub arguments: Value,
    /// What came of it.
    pub done: Done,
    /// When.
    pub at: Milliseconds,
}

/// The window in which failed joins are counted.
const FAILED_JOINS_WINDOW: Milliseconds = 15 * 60_000;

impl Model {
    /// What an action must come to. The order of checks is that of the document.
    pub fn act(&mut self, caller: Caller, operation: &str, arguments: &Value) -> Value {
        self.settle();
        self.try_to_act(caller, operation, arguments).unwrap_or_else(refusal)
    }

    fn try_to_act(&mut self, caller: Caller, operation: &str, arguments: &Value) -> Result<Value, Code> {
        match (arguments::is_owners(operation), caller) {
            (true, Caller::Agent(_)) => return Err("owner_required"),
            (false, Caller::Owner) => return Err("unauthenticated"),
            _ => {}
        }
        arguments::check_form(operation, arguments)?;
        let given = Arguments::of(arguments);
        let (key, asked) = (given.own_text("idempotency_key"), self.compared(given, arguments));
        if let Some(number) = self.used(caller, operation, key.as_deref()) {
            if self.requests[number].asked == asked {
                return Ok(self.answer(number));
            }
            if !self.errs(Mistake::KeysAreFree) {
                return Err("idempotency_conflict");
            }
        }
        if let Caller::Agent(me) = caller {
            if !self.is_active(me) {
                return Err("agent_inactive");
            }
            if operation == "thread_join" && self.failed_too_often(me) {
                return Err("rate_limited");
            }
        }
        for action in given.list("after").into_iter().flatten() {
            let action = super::place("act", action.as_str().expect("an action"));
            let made = action.and_then(|action| self.requests.get(action));
            // What found what it asked for is no action of its own.
            if !made.is_some_and(|made| made.caller == caller && made.done.existing.is_none()) {
                return Err("invalid_argument");
            }
        }
        let before = self.clone();
        let clock = self.clock_of(given).map_or(0, |clock| *clock);
        self.at = self.now.max(clock);
        match self.perform(caller, operation, given) {
            Ok(done) => {
                let (operation, arguments, at) = (arguments::action(operation), arguments.clone(), self.at);
                self.requests.push(Request { caller, operation, key, asked, arguments, done, at });
                let number = self.requests.len() - 1;
                let changed = self.requests[number].done.existing.is_none();
                if let Some(clock) = self.clock_of(given).filter(|_| changed) {
                    *clock = at.max(*clock);
                }
                let mut answer = self.answer(number);
                let ticket = self.requests[number].done.ticket;
                put(&mut answer, "secret", ticket.map(|ticket| json!({"ticket": handle("tic", ticket)})));
                Ok(answer)
            }
            Err(code) => {
                *self = before;
                if let (Caller::Agent(me), "admission_invalid") = (caller, code) {
                    self.failed_joins.push((me, self.now));
                }
                Err(code)
            }
        }
    }

    /// What is compared if the key comes again: an entry of the thread that is named is the same by action and by number.
    fn compared(&self, given: Arguments<'_>, arguments: &Value) -> Value {
        let mut asked = arguments::asked(arguments);
        let Some(thread) = given.place("thread", "thr").filter(|thread| *thread < self.threads.len()) else {
            return asked;
        };
        for name in ["entry", "reply_to"] {
            if let Some(number) = self.entry_named(thread, given, name) {
                asked[name] = json!(number);
            }
        }
        asked
    }

    fn perform(&mut self, caller: Caller, operation: &str, given: Arguments<'_>) -> Result<Done, Code> {
        let Caller::Agent(me) = caller else { return self.perform_as_owner(operation, given) };
        match operation {
            "memory_create" => self.memory_create(me, given),
            "memory_update" => self.memory_update(me, given),
            "memory_publish" => self.memory_publish(me, given),
            "memory_unpublish" => self.memory_unpublish(me, given),
            "memory_withdraw" => self.memory_withdraw(me, given),
            "thread_create" => self.thread_create(me, given),
            "admission_issue" => self.admission_issue(me, given),
            "admission_void" => self.admission_void(me, given),
            "thread_join" => self.thread_join(me, given),
            "thread_leave" => self.thread_leave(me, given),
            "thread_close" => self.thread_close(me, given),
            "member_remove" => self.member_remove(me, given),
            "member_role" => self.member_role(me, given),
            "entry_post" => self.entry_post(me, given),
            "entry_handle" => self.entry_handle(me, given),
            "entry_retract" => self.entry_retract(me, given),
            "assignment_take" => self.assignment_take(me, given),
            "assignment_deliver" => self.assignment_deliver(me, given),
            "assignment_accept" => self.assignment_accept(me, given),
            "assignment_return" => self.assignment_return(me, given),
            "assignment_abandon" => self.assignment_abandon(me, given),
            "assignment_void" => self.assignment_void(me, given),
            _ => panic!("no action {operation}"),
        }
    }

    /// Whether an agent has failed to join too often. When it asks, what ran out is forgotten for good, and what a clock that
    /// was put back would make a failure of the future counts from now on.
    fn failed_too_often(&mut self, me: usize) -> bool {
        let now = self.now;
        self.failed_joins.retain_mut(|(agent, at)| {
            if *agent != me {
                return true;
            }
            *at = now.min(*at);
            now < *at + FAILED_JOINS_WINDOW
        });
        self.failed_joins.iter().filter(|(agent, _)| *agent == me).count() as u64 >= self.limits.failed_joins_max
    }

    /// The request that used a key.
    fn used(&self, caller: Caller, operation: &str, key: Option<&str>) -> Option<usize> {
        let key = key?;
        let mut requests = self.requests.iter();
        requests
            .position(|made| made.caller == caller && made.operation == operation && made.key.as_deref() == Some(key))
    }

    /// The answer to a request that succeeded, whenever it is asked for.
    fn answer(&self, number: usize) -> Value {
        let mut result = self.requests[number].done.result.clone();
        if self.requests[number].done.existing.is_some() {
            result["existing"] = json!(true);
        }
        json!({"ok": true, "receipt": self.receipt(number), "result": result})
    }

    /// The receipt of a request: that of what it found, if it found what it asked for.
    fn receipt(&self, number: usize) -> Value {
        let number = self.requests[number].done.existing.unwrap_or(number);
        let Request { operation, key, done, at, .. } = &self.requests[number];
        json!({
            "id": handle("rcp", number),
            "operation": operation,
            "object": done.object,
            "action": handle("act", number),
            "sealed_at": self.shown(*at),
            "key": key.clone().unwrap_or_else(|| handle("key", number)),
            "result": done.result,
            "effects": done.effects,
        })
    }

    /// A receipt, for who asked (V9).
    pub(super) fn receipt_get(&self, me: usize, given: Arguments<'_>) -> Result<Value, Code> {
        let caller = Caller::Agent(me);
        let found = match given.get("id") {
            Some(_) => given.place("id", "rcp").filter(|number| {
                self.requests.get(*number).is_some_and(|made| made.caller == caller && made.done.existing.is_none())
            }),
            None => self.used(caller, given.text("operation").expect("an operation"), given.text("key")),
        };
        found.map(|number| self.answer(number)).ok_or("not_found")
    }
}
