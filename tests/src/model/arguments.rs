//! Arguments of calls: their form, and what they name.

use serde_json::{Map, Value};

use super::{Code, Milliseconds, place};

/// Operations that act, what they take, and which of that must be there.
const ACTIONS: [(&str, &[&str], &[&str]); 27] = [
    ("agent_create", &["name"], &["display_name", "mission", "policy_refs", "predecessor"]),
    ("agent_update", &["agent", "expected_version"], &["display_name", "mission", "policy_refs", "owner"]),
    ("agent_deactivate", &["agent"], &["reason"]),
    ("agent_reactivate", &["agent"], &["reason"]),
    ("agent_terminate", &["agent"], &["reason"]),
    ("memory_create", &["text"], &["media_type", "title", "summary", "tags"]),
    ("memory_update", &["memory", "text"], &["expected_version", "media_type", "title", "summary", "tags"]),
    ("memory_publish", &["memory"], &[]),
    ("memory_unpublish", &["memory"], &[]),
    ("memory_withdraw", &["memory"], &[]),
    ("thread_create", &[], &["subject", "admission"]),
    ("admission_issue", &["thread"], &["role"]),
    ("admission_void", &["thread"], &[]),
    ("thread_join", &["ticket"], &[]),
    ("thread_leave", &["thread"], &[]),
    ("thread_close", &["thread"], &[]),
    ("member_remove", &["thread", "agent"], &[]),
    ("member_role", &["thread", "agent", "role"], &[]),
    (
        "entry_post",
        &["thread"],
        &["text", "memory", "version", "media_type", "summary", "reply_to", "ask", "task", "assign"],
    ),
    ("entry_handle", &["thread", "entry"], &["note"]),
    ("entry_retract", &["thread", "entry"], &[]),
    ("assignment_take", &["assignment"], &["output"]),
    ("assignment_deliver", &["assignment", "output"], &[]),
    ("assignment_accept", &["assignment"], &[]),
    ("assignment_return", &["assignment"], &["reason"]),
    ("assignment_abandon", &["assignment"], &[]),
    ("assignment_void", &["assignment"], &[]),
];

/// What every action takes.
const CONTROL: [&str; 3] = ["idempotency_key", "wait_ms", "after"];

/// The name of an operation that acts.
pub fn action(operation: &str) -> &'static str {
    ACTIONS.iter().find(|(name, ..)| *name == operation).map(|(name, ..)| *name).expect("an action")
}

/// Whether an operation is the owner's alone.
pub fn is_owners(operation: &str) -> bool {
    operation.starts_with("agent_") && operation != "agent_get"
}

/// Checks what arguments alone tell.
pub fn check_form(operation: &str, arguments: &Value) -> Result<(), Code> {
    let (_, needed, allowed) = ACTIONS.iter().find(|(name, ..)| *name == operation).expect("an action");
    let arguments = Arguments::of(arguments);
    let known = |name: &str| needed.contains(&name) || allowed.contains(&name) || CONTROL.contains(&name);
    let right = arguments.0.keys().all(|name| known(name))
        && needed.iter().all(|name| arguments.get(name).is_some())
        && values_are_formed(&arguments)
        && (operation != "entry_post" || entry_is_formed(&arguments));
    if right { Ok(()) } else { Err("invalid_argument") }
}

/// Entries are numbered from 1, and a text that is given is not empty, the reason of a return aside, wherever it stands.
pub fn values_are_formed(arguments: &Arguments<'_>) -> bool {
    arguments.0.iter().all(|(name, value)| match (name.as_str(), value) {
        ("entry" | "reply_to", number) => *number != 0,
        ("text" | "summary" | "title" | "note" | "subject" | "criteria" | "query", text) => *text != "",
        (_, Value::Object(_)) => values_are_formed(&Arguments::of(value)),
        _ => true,
    })
}

/// A text or a memory, and durations from a second to 400 days.
fn entry_is_formed(arguments: &Arguments<'_>) -> bool {
    let durations = arguments.part("assign").into_iter().flat_map(|assign| {
        ["deliver_within", "judge_within"].into_iter().filter_map(move |name| assign.text(name).map(str::to_owned))
    });
    arguments.get("text").is_some() != arguments.get("memory").is_some()
        && durations.map(|given| duration(&given)).all(|long| (1_000..=400 * 86_400_000).contains(&long))
}

/// The milliseconds of a duration such as `90s`.
pub fn duration(given: &str) -> Milliseconds {
    let (number, unit) = given.split_at(given.len() - 1);
    let unit = match unit {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 86_400_000,
    };
    number.parse::<u64>().expect("a number") * unit
}

/// Arguments as they are compared under a key: without what is no part of the request, and without what says nothing.
pub fn asked(arguments: &Value) -> Value {
    let mut asked = without_nulls(arguments);
    let members = asked.as_object_mut().expect("an object");
    members.remove("idempotency_key");
    members.remove("wait_ms");
    if members.get("after").is_some_and(|after| after.as_array().is_some_and(Vec::is_empty)) {
        members.remove("after");
    }
    asked
}

fn without_nulls(value: &Value) -> Value {
    let Value::Object(members) = value else { return value.clone() };
    let kept = members.iter().filter(|(_, member)| !member.is_null());
    Value::Object(kept.map(|(name, member)| (name.clone(), without_nulls(member))).collect())
}

/// Arguments of one call, or a part of them.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    /// Those of a call.
    pub fn of(arguments: &'a Value) -> Self {
        Self(arguments.as_object().expect("an object"))
    }

    /// An argument; null is none.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// An argument that is an object.
    pub fn part(&self, name: &str) -> Option<Self> {
        self.get(name).map(Self::of)
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).map(|value| value.as_str().expect("a text"))
    }

    /// A text, owned.
    pub fn own_text(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// A number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name).map(|value| value.as_u64().expect("a number"))
    }

    /// What a handle of this kind names; nothing if it names nothing.
    pub fn place(&self, name: &str, kind: &str) -> Option<usize> {
        place(kind, self.text(name)?)
    }

    /// The members of a list.
    pub fn list(&self, name: &str) -> Option<&'a Vec<Value>> {
        self.get(name).map(|value| value.as_array().expect("a list"))
    }
}
