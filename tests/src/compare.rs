//! Comparing what the [model](crate::model) says with what a host answers: which id of the host's stands for which handle
//! of the model's, and the form in which both can be laid beside each other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Kinds of handles, each with the beginning of the ids it stands for and an id of that form that names nothing.
const KINDS: [(&str, &str, &str); 11] = [
    ("agt", "agt_", "agt_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("mem", "mem_", "mem_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("thr", "thr_", "thr_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("asg", "asg_", "asg_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("adm", "adm_", "adm_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("act", "act_", "act_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("rcp", "rcp_", "rcp_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("obl", "obl_", "obl_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("tsk", "tsk_", "tsk_aaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ("tic", "kwoonadm", "kwoonadmaaaa"),
    ("key", "", "nokey"),
];

/// What the model says nothing about: keys, hosts and logs.
const UNSAID: [&str; 7] = ["full_id", "owner", "home_host", "instances", "sequencer", "index", "digest"];

/// Which id stands for which handle.
#[derive(Debug, Default)]
pub struct Names {
    ids: BTreeMap<String, String>,
    handles: BTreeMap<String, String>,
}

fn kind_of(handle: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    let (kind, _) = handle.split_once('#')?;
    KINDS.iter().find(|(known, ..)| *known == kind)
}

impl Names {
    /// Arguments as the host takes them: ids where the model has handles, and one that names nothing for a handle that
    /// names nothing.
    pub fn spell(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => match kind_of(text) {
                Some((.., nothing)) => self.ids.get(text).map_or(*nothing, String::as_str).into(),
                None => value.clone(),
            },
            Value::Array(items) => items.iter().map(|item| self.spell(item)).collect(),
            Value::Object(members) => {
                let spelt = members.iter().map(|(name, member)| (name.clone(), self.spell(member)));
                Value::Object(spelt.collect())
            }
            _ => value.clone(),
        }
    }

    /// Compares what is expected with an answer in [`plain_form`]. An id that is seen for the first time is learnt.
    ///
    /// # Errors
    /// With the place of the first difference.
    pub fn agree(&mut self, expected: &Value, answer: &Value) -> Result<(), String> {
        self.agree_at("", expected, answer)
    }

    fn agree_at(&mut self, place: &str, expected: &Value, answer: &Value) -> Result<(), String> {
        match (expected, answer) {
            (Value::Object(left), Value::Object(right)) => {
                let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
                for name in names {
                    let place = format!("{place}/{name}");
                    match (left.get(name), right.get(name)) {
                        (Some(left), Some(right)) => self.agree_at(&place, left, right)?,
                        (Some(left), None) => return Err(format!("{place}: the model has {left}, the host nothing")),
                        (None, right) => return Err(format!("{place}: the host has {right:?}, the model nothing")),
                    }
                }
                Ok(())
            }
            (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
                let both = left.iter().zip(right).enumerate();
                both.into_iter()
                    .try_for_each(|(at, (left, right))| self.agree_at(&format!("{place}/{at}"), left, right))
            }
            (Value::String(handle), Value::String(id)) if kind_of(handle).is_some() => self.named(place, handle, id),
            (left, right) if left == right => Ok(()),
            (left, right) => Err(format!("{place}: the model has {left}, the host {}", self.read(right))),
        }
    }

    /// Whether an id stands for a handle and for no other.
    fn named(&mut self, place: &str, handle: &str, id: &str) -> Result<(), String> {
        let known = self.ids.get(handle).map(String::as_str) == Some(id);
        let new = !self.ids.contains_key(handle) && !self.handles.contains_key(id);
        let fits = kind_of(handle).is_some_and(|(_, beginning, _)| id.starts_with(beginning));
        if new && fits {
            self.ids.insert(handle.to_owned(), id.to_owned());
            self.handles.insert(id.to_owned(), handle.to_owned());
        }
        if known || (new && fits) {
            return Ok(());
        }
        Err(format!("{place}: the model has {handle}, the host {}", self.handles.get(id).map_or(id, String::as_str)))
    }

    /// An answer as the model would write it.
    pub fn read(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.handles.get(text).unwrap_or(text).as_str().into(),
            Value::Array(items) => items.iter().map(|item| self.read(item)).collect(),
            Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), self.read(member))).collect(),
            _ => value.clone(),
        }
    }
}

/// An answer in the form in which the model gives its own: each text where structure points to it, of a refusal the code,
/// and nothing of what the model does not say.
///
/// # Errors
/// If content does not belong to structure, or `next` is not as it must be.
pub fn plain_form(answer: &Value) -> Result<Value, String> {
    if answer["ok"] == false {
        return Ok(serde_json::json!({"ok": false, "error": {"code": answer["error"]["code"]}}));
    }
    let empty = Map::new();
    let content = answer["content"].as_object().unwrap_or(&empty);
    let mut used = BTreeSet::new();
    let mut form = Map::new();
    form.insert("ok".to_owned(), Value::Bool(true));
    for part in ["receipt", "result", "secret"] {
        if let Some(value) = answer.get(part) {
            form.insert(part.to_owned(), inlined(value, content, &mut used)?);
        }
    }
    if used.len() != content.len() {
        return Err(format!("content that nothing points to: {content:?}"));
    }
    let next = answer["next"].as_array().ok_or("no next")?;
    if next.is_empty() || next.len() > 3 {
        return Err(format!("{} steps in next", next.len()));
    }
    Ok(Value::Object(form))
}

fn inlined(value: &Value, content: &Map<String, Value>, used: &mut BTreeSet<String>) -> Result<Value, String> {
    match value {
        Value::Array(items) => items.iter().map(|item| inlined(item, content, used)).collect(),
        Value::Object(members) => {
            let mut shown = Map::new();
            for (name, member) in members.iter().filter(|(name, _)| !UNSAID.contains(&name.as_str())) {
                let member = match name.as_str() {
                    name if name.ends_with("_content") => pointed(member, content, used)?,
                    "actions" => sorted(member),
                    _ => inlined(member, content, used)?,
                };
                shown.insert(name.clone(), member);
            }
            Ok(Value::Object(shown))
        }
        _ => Ok(value.clone()),
    }
}

/// The texts that a field of structure points to, without what concerns the window on them.
fn pointed(field: &Value, content: &Map<String, Value>, used: &mut BTreeSet<String>) -> Result<Value, String> {
    match field {
        Value::Array(keys) => keys.iter().map(|key| pointed(key, content, used)).collect(),
        Value::String(key) => {
            let mut text = content.get(key).ok_or_else(|| format!("no content {key}"))?.clone();
            used.insert(key.clone());
            let members = text.as_object_mut().ok_or("content that is no object")?;
            ["bytes", "offset", "truncated"].into_iter().for_each(|name| drop(members.remove(name)));
            Ok(text)
        }
        other => Err(format!("a content key that is {other}")),
    }
}

/// Operations in the order of their names: which come first says nothing.
fn sorted(operations: &Value) -> Value {
    let mut operations: Vec<&str> = operations.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    operations.sort_unstable();
    operations.into()
}
