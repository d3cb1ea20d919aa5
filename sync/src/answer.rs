//! Answers: the envelope in which every result stands, with structure and participant content apart (L6.1).

use std::collections::BTreeMap;

use jiff::Timestamp;
use kwoon_keys::Commitment;
use kwoon_keys::id::AgentId;
use kwoon_ledger::action::{MediaType, ObjectId, Text};
use kwoon_ledger::refusal::{Code, Detail, Refusal, Step};
use kwoon_ledger::storage::{Read, ReadError};
use kwoon_ledger::time::Time;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::receipt::Receipt;

/// A point in time as it is shown: RFC 3339, UTC, milliseconds.
pub fn shown(time: Time) -> String {
    let milliseconds = i64::try_from(time.0).unwrap_or(i64::MAX);
    match Timestamp::from_millisecond(milliseconds) {
        Ok(timestamp) => format!("{timestamp:.3}"),
        Err(_) => format!("{:.3}", Timestamp::MAX),
    }
}

/// A key under `content`, where participant text stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct ContentKey(String);

/// One text under `content`: data from a participant, never an instruction.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Content {
    /// Who wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Which field it is.
    pub field: &'static str,
    /// The text is not on this host, or not readable any more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<&'static str>,
    /// Bytes of the whole text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Where the part given here begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<usize>,
    /// Whether there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Where the next part begins, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<usize>,
    /// The text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A part of a text: how much, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Bytes of the whole where it begins.
    pub offset: usize,
    /// Bytes at most.
    pub max_bytes: usize,
}

impl Window {
    /// The beginning, as much as is read unless more is asked for.
    pub const DEFAULT: Self = Self { offset: 0, max_bytes: 4096 };
}

/// Gathers the content of one answer.
pub struct Contents<'a> {
    read: &'a dyn Read,
    items: BTreeMap<String, Content>,
    order: Vec<String>,
}

impl<'a> Contents<'a> {
    /// Nothing yet.
    pub fn new(read: &'a dyn Read) -> Self {
        Self { read, items: BTreeMap::new(), order: Vec::new() }
    }

    fn add(&mut self, content: Content) -> ContentKey {
        let key = format!("c{}", self.order.len() + 1);
        self.items.insert(key.clone(), content);
        self.order.push(key.clone());
        ContentKey(key)
    }

    /// A text by its commitment, or its absence where `readable` is false.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn text(
        &mut self,
        author: Option<&AgentId>,
        field: &'static str,
        text: &Text,
        readable: bool,
        window: Window,
    ) -> Result<ContentKey, ReadError> {
        let author = author.map(ToString::to_string);
        let held = if readable { self.read.content(&text.commitment.hash)? } else { None };
        let Some((_, bytes)) = held else {
            let absent = Content {
                author,
                field,
                missing: true,
                media_type: None,
                bytes: None,
                offset: None,
                truncated: None,
                next_offset: None,
                text: None,
            };
            return Ok(self.add(absent));
        };
        let whole = String::from_utf8(bytes).map_err(|_| ReadError::damaged("a text is not UTF-8"))?;
        let start = boundary(&whole, window.offset);
        let mut end = whole.floor_char_boundary(start.saturating_add(window.max_bytes));
        if end == start && start < whole.len() {
            // A window smaller than one character still moves on.
            end = whole.ceil_char_boundary(start + 1);
        }
        let truncated = end < whole.len();
        Ok(self.add(Content {
            author,
            field,
            missing: false,
            media_type: Some(text.media_type.name()),
            bytes: Some(whole.len() as u64),
            offset: Some(start),
            truncated: Some(truncated),
            next_offset: truncated.then_some(end),
            text: Some(whole[start..end].to_owned()),
        }))
    }

    /// A line or two of plain text by its commitment.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn plain(
        &mut self,
        author: Option<&AgentId>,
        field: &'static str,
        commitment: &Commitment,
        window: Window,
    ) -> Result<ContentKey, ReadError> {
        self.text(author, field, &Text { commitment: *commitment, media_type: MediaType::Plain }, true, window)
    }

    /// The same, where there may be none.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn optional(
        &mut self,
        author: Option<&AgentId>,
        field: &'static str,
        commitment: Option<&Commitment>,
        window: Window,
    ) -> Result<Option<ContentKey>, ReadError> {
        commitment.map(|commitment| self.plain(author, field, commitment, window)).transpose()
    }
}

fn boundary(text: &str, offset: usize) -> usize {
    text.ceil_char_boundary(offset.min(text.len()))
}

/// Whether what an answer says is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A fact.
    Sealed,
    /// Without an outcome: kept, shown and passed on, but no fact.
    Pending,
}

impl Standing {
    fn name(self) -> &'static str {
        match self {
            Self::Sealed => "sealed",
            Self::Pending => "pending",
        }
    }
}

/// A step that an answer proposes: advice made of ids, never of content (O6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// The step.
    pub step: Step,
    /// The operation that takes it, with its arguments.
    pub call: Option<(&'static str, Value)>,
}

impl Next {
    /// A step without an operation.
    pub fn step(step: Step) -> Self {
        Self { step, call: None }
    }

    fn json(&self) -> Value {
        match &self.call {
            Some((operation, arguments)) => {
                json!({"step": self.step.name(), "operation": operation, "arguments": arguments})
            }
            None => json!({"step": self.step.name()}),
        }
    }
}

/// The state that a read of one object is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOf {
    /// The object.
    pub object: ObjectId,
    /// Its last index.
    pub index: u64,
    /// Its log time.
    pub sealed_at: Time,
    /// Its running digest, in hexadecimal.
    pub digest: String,
}

/// A successful answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether it is sealed.
    pub standing: Standing,
    /// The receipt of an action.
    pub receipt: Option<Receipt>,
    /// The structural result.
    pub result: Value,
    /// A credential, in the first success only (L3.4).
    pub secret: Option<Secret>,
    /// Participant content by key.
    pub content: Vec<(String, Content)>,
    /// The state that was read.
    pub as_of: Option<AsOf>,
    /// At most three proposals.
    pub next: Vec<Next>,
    /// Where the next page begins.
    pub cursor: Option<String>,
}

/// A credential that is shown once. It prints as nothing.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The ticket of an admission.
    Ticket(String),
    /// The token of a new agent of this name: the keeper of tokens makes it once the agent is committed.
    TokenOf(String),
    /// A token.
    Token(String),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Answer {
    /// An answer with this result and content.
    ///
    /// # Errors
    /// If the result cannot be written as JSON, which no result of this crate is.
    pub fn new<T: Serialize>(result: &T, contents: Contents<'_>) -> Result<Self, ReadError> {
        let Contents { mut items, order, .. } = contents;
        let content = order.into_iter().filter_map(|key| items.remove(&key).map(|item| (key, item))).collect();
        let result = serde_json::to_value(result).map_err(|_| ReadError::damaged("a result cannot be written"))?;
        Ok(Self {
            standing: Standing::Sealed,
            receipt: None,
            result,
            secret: None,
            content,
            as_of: None,
            next: Vec::new(),
            cursor: None,
        })
    }

    /// The envelope.
    pub fn json(&self) -> Value {
        let mut envelope = json!({"ok": true, "standing": self.standing.name()});
        if let Some(receipt) = &self.receipt {
            envelope["receipt"] = receipt.json();
        } else if self.standing == Standing::Pending {
            envelope["receipt"] = Value::Null;
        }
        envelope["result"] = self.result.clone();
        match &self.secret {
            Some(Secret::Ticket(ticket)) => envelope["secret"] = json!({"ticket": ticket}),
            Some(Secret::Token(token)) => envelope["secret"] = json!({"token": token}),
            Some(Secret::TokenOf(_)) | None => {}
        }
        let content: serde_json::Map<String, Value> = self
            .content
            .iter()
            .map(|(key, content)| (key.clone(), serde_json::to_value(content).unwrap_or(Value::Null)))
            .collect();
        envelope["content"] = Value::Object(content);
        if let Some(as_of) = &self.as_of {
            envelope["as_of"] = json!({
                "object": as_of.object.to_string(),
                "index": as_of.index,
                "sealed_at": shown(as_of.sealed_at),
                "digest": as_of.digest,
            });
        }
        if let Some(cursor) = &self.cursor {
            envelope["cursor"] = json!(cursor);
        }
        envelope["next"] = self.next.iter().map(Next::json).collect();
        envelope
    }
}

/// The envelope of a refusal or an error. Nothing in it differs from call to call (S2).
pub fn refusal_json(refusal: &Refusal) -> Value {
    let code = refusal.code;
    let details: serde_json::Map<String, Value> = refusal
        .details
        .iter()
        .map(|(name, detail)| {
            let value = match detail {
                Detail::Word(word) => json!(word),
                Detail::Text(text) => json!(text),
                Detail::Number(number) => json!(number),
            };
            ((*name).to_owned(), value)
        })
        .collect();
    json!({
        "ok": false,
        "error": {
            "code": code.name(),
            "message": code.message(),
            "fix": code.fix(),
            "next": {"step": code.step().name()},
            "retry_after_ms": refusal.retry_after_ms,
            "details": details,
        }
    })
}

/// A failure of the store, as a caller sees it: the reason is for the daemon's log.
pub fn internal() -> Refusal {
    Code::Internal.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_with_milliseconds_also_at_the_end_of_time() {
        assert_eq!(shown(Time(1_796_040_000_123)), "2026-11-30T12:00:00.123Z");
        assert_eq!(shown(Time(0)), "1970-01-01T00:00:00.000Z");
        assert!(shown(Time(u64::MAX)).starts_with("9999-"));
    }
}
