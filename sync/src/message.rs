//! The one envelope in which everything recorded is shown (EV.1): a command is what somebody wanted, an event is what
//! happened (EV.2). What was signed holds what decides; the time of receipt and the trace were kept beside it.

use kwoon_keys::PublicKey;
use kwoon_keys::cbor;
use kwoon_ledger::action::{Action, Actor};
use kwoon_ledger::fact::{Cause, Due, Fact, fact_hash};
use kwoon_ledger::storage::{Read, ReadError, Table};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::shown;
use crate::receipt::Envelope;

/// A message. Structure only: participant text is in no log.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Message {
    /// Of a command its action id, of an event the hash of the fact.
    pub message_id: String,
    /// `command` or `event`.
    pub kind: &'static str,
    /// Version of the record.
    pub schema_version: u32,
    /// An agent, an owner's key, or the host that orders the object.
    pub sender: String,
    /// The host that orders the object, or the object.
    pub recipient: String,
    /// When it was signed, or its log time.
    pub occurred_at: String,
    /// When this host got it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_at: Option<String>,
    /// From when on a command is not sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The request that this belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// What brought it about: of an event the command, the other fact or the deadline; of a command the last action that
    /// it was to come after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// The caller's trace (W3C Trace Context).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// By what right: the instance and its secret's generation, the owner's key, or the rules version.
    pub authorization_context: Value,
    /// What is wanted, or what happened.
    pub payload: Value,
}

/// The command that a fact sealed, if it sealed one.
///
/// # Errors
/// If the store cannot be read.
pub fn command(read: &dyn Read, action: &Action, sequencer: &PublicKey) -> Result<Message, ReadError> {
    let request = action.request();
    let kept: Option<Envelope> = match read.get(Table::Envelopes, request.as_bytes())? {
        Some(bytes) => Some(cbor::read_own(&bytes).map_err(|_| ReadError::damaged("an envelope"))?),
        None => None,
    };
    let (sender, authorization_context) = match action.actor {
        Actor::Agent(agent, instance) => {
            let context = json!({"instance": instance.to_string(), "generation": action.generation});
            (agent.to_string(), context)
        }
        Actor::Owner(owner) => (owner.to_string(), json!({"owner": owner.to_string()})),
    };
    Ok(Message {
        message_id: request.to_string(),
        kind: "command",
        schema_version: action.schema,
        sender,
        recipient: sequencer.to_string(),
        occurred_at: shown(action.issued_at),
        received_at: kept.as_ref().map(|kept| shown(kept.received_at)),
        expires_at: Some(shown(action.expires_at)),
        correlation_id: Some(request.to_string()),
        causation_id: action.after.last().map(ToString::to_string),
        trace_id: kept.and_then(|kept| kept.trace_id),
        authorization_context,
        payload: json!({
            "operation": action.body.operation(),
            "object": action.object.map(|object| object.to_string()),
            "attempt": action.attempt,
        }),
    })
}

/// The event that a fact is.
pub fn event(
    fact: &Fact,
    bytes: &[u8],
    action: Option<&Action>,
    rules: u32,
    sequencer: &PublicKey,
    effects: Vec<Value>,
) -> Message {
    let request = action.map(|action| action.request().to_string());
    let causation = match &fact.cause {
        Cause::Action(_) => request.clone(),
        Cause::Expiry(Due::Delivery(assignment) | Due::Judgment(assignment)) => Some(assignment.to_string()),
        Cause::Account(agent, _) => Some(agent.to_string()),
        Cause::Consequence(outcome) => Some(fact_hash(&outcome.fact).to_string()),
        Cause::Begun | Cause::Epoch(_) => None,
    };
    Message {
        message_id: fact_hash(bytes).to_string(),
        kind: "event",
        schema_version: fact.schema,
        sender: sequencer.to_string(),
        recipient: fact.object.to_string(),
        occurred_at: shown(fact.log_time),
        received_at: None,
        expires_at: None,
        correlation_id: request,
        causation_id: causation,
        trace_id: None,
        authorization_context: json!({"rules": rules, "epoch": fact.epoch}),
        payload: payload(fact, effects),
    }
}

/// What happened: the effects, and for what was no action, what it followed.
fn payload(fact: &Fact, effects: Vec<Value>) -> Value {
    let mut payload = json!({"index": fact.index, "effects": effects});
    match &fact.cause {
        Cause::Action(_) | Cause::Begun | Cause::Epoch(_) => {}
        Cause::Expiry(Due::Delivery(assignment)) => {
            payload["due"] = json!({"duty": "deliver", "assignment": assignment.to_string()});
        }
        Cause::Expiry(Due::Judgment(assignment)) => {
            payload["due"] = json!({"duty": "judge", "assignment": assignment.to_string()});
        }
        Cause::Account(agent, records) => {
            payload["account"] = json!({"agent": agent.to_string(), "records": records.len()});
        }
        Cause::Consequence(outcome) => {
            if let Ok(followed) = Fact::read(&outcome.fact) {
                payload["follows"] = json!({"object": followed.object.to_string(), "index": followed.index});
            }
        }
    }
    payload
}

/// What brought a fact about, in a word.
pub fn cause(fact: &Fact) -> &'static str {
    match &fact.cause {
        Cause::Action(_) => "action",
        Cause::Expiry(_) => "expiry",
        Cause::Account(..) => "account",
        Cause::Epoch(_) => "epoch",
        Cause::Consequence(_) => "consequence",
        Cause::Begun => "begun",
    }
}
