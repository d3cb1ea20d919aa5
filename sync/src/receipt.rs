//! Receipts: the protocol facts of one result, fixed when it was sealed (L3.3), and what they say as a result.

use kwoon_keys::cbor;
use kwoon_keys::id::RequestId;
use kwoon_ledger::action::{Action, Body, ObjectId};
use kwoon_ledger::derive::read_action;
use kwoon_ledger::effect::{Effect, Obligation};
use kwoon_ledger::fact::{DetailValue, Fact, Outcome, OutcomeRecord, OutcomeResult};
use kwoon_ledger::forget::{self, Kept};
use kwoon_ledger::index;
use kwoon_ledger::log;
use kwoon_ledger::refusal::{Code, Detail, Refusal};
use kwoon_ledger::state::{Cells, ObjectNumber};
use kwoon_ledger::storage::{Read, ReadError, Table};
use kwoon_ledger::time::Time;
use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::shown;

/// What the host keeps beside an action (EV.1): what the agent called it, and when it came.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Envelope {
    /// The idempotency key in plain.
    #[n(0)]
    pub key: String,
    /// When the request was received.
    #[n(1)]
    pub received_at: Time,
    /// The caller's trace id, 32 hex digits.
    #[n(2)]
    pub trace_id: Option<String>,
    /// Whether a credential is still to be shown, with the first answer that is sealed (L3.4).
    #[n(3)]
    pub owes_secret: Option<bool>,
}

/// The structural result of an action: the ids it concerns and those that came into being.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Done {
    /// It was so already: a success without new effect (L2.4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
    /// The action, while it has no outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The agent concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The thread concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The entry's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<u64>,
    /// The memory concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The version of the memory or the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The assignment concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<String>,
    /// The admission concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<String>,
    /// The role held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// The state the assignment came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// The deadline that runs now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
}

/// How a request ended here.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The action that was sealed, or answered.
    pub action: Action,
    /// The fact, or the fact that made what exists.
    pub place: Place,
    /// Whether it is a success without new effect.
    pub existing: bool,
}

/// Where the fact is that ended a request.
#[derive(Clone, Debug)]
pub enum Place {
    /// In a log here, at this index.
    Log(ObjectNumber, u64),
    /// In a log that ended for this host.
    Kept(Box<Kept>),
}

impl Place {
    /// The fact and its effects.
    fn read(&self, read: &dyn Read) -> Result<(Fact, Vec<Effect>), ReadError> {
        match self {
            Self::Log(number, index) => Ok((log::fact(read, *number, *index)?, log::effects(read, *number, *index)?)),
            Self::Kept(kept) => kept.outcome.verify(&kept.sequencer).map_err(|_| ReadError::damaged("a kept outcome")),
        }
    }
}

/// How a request ended, if it did so with a success here.
///
/// # Errors
/// If the store cannot be read.
pub fn ended(read: &dyn Read, request: &RequestId) -> Result<Option<Ended>, ReadError> {
    if let Some((number, index)) = index::request(read, request)? {
        let action = log::action_of(&log::fact(read, number, index)?);
        let action = action.ok_or_else(|| ReadError::damaged("a request without its action"))?;
        return Ok(Some(Ended { action, place: Place::Log(number, index), existing: false }));
    }
    if let Some(kept) = forget::kept(read, request)? {
        let place = Place::Kept(Box::new(kept));
        let action = log::action_of(&place.read(read)?.0);
        let action = action.ok_or_else(|| ReadError::damaged("a kept outcome without its action"))?;
        return Ok(Some(Ended { action, place, existing: false }));
    }
    let Some(record) = read.get(Table::Outcomes, request.as_bytes())? else { return Ok(None) };
    let damaged = || ReadError::damaged("an outcome does not decode");
    let record: OutcomeRecord = cbor::read_own(&record).map_err(|_| damaged())?;
    let payload = kwoon_keys::cose::payload(kwoon_keys::RecordKind::Outcome, &record.outcome).map_err(|_| damaged())?;
    let outcome: Outcome = cbor::read_own(payload).map_err(|_| damaged())?;
    let action = read_action(&record.action).map_err(|_| damaged())?;
    let OutcomeResult::Existing(index) = outcome.result else { return Ok(None) };
    let head = match index::number(read, &outcome.object)? {
        Some(number) => Cells::new(read, number).head()?.map(|head| (number, head.index)),
        None => None,
    };
    let place = match head {
        Some((number, last)) if last >= index => Place::Log(number, index),
        // The log ended for this host: what made what existed is kept with the others.
        _ => match record.made_by.map_or(Ok(None), |made_by| forget::kept(read, &made_by))? {
            Some(kept) => Place::Kept(Box::new(kept)),
            None => return Ok(None),
        },
    };
    Ok(Some(Ended { action, place, existing: true }))
}

/// The entry that an action names, where its log is here no more: by its number and its action.
///
/// # Errors
/// If the store cannot be read.
pub fn entry_named(read: &dyn Read, ended: &Ended) -> Result<Option<(u64, RequestId)>, ReadError> {
    if !matches!(ended.place, Place::Kept(_)) {
        return Ok(None);
    }
    let (_, effects) = ended.place.read(read)?;
    Ok(effects.iter().find_map(|effect| match (effect, &ended.action.body) {
        (Effect::EntryPosted(posted), Body::EntryPost(post)) => posted.reply_to.zip(post.reply_to),
        (Effect::ObligationEnded(obligation, _), Body::EntryHandle(entry, _) | Body::EntryRetract(entry)) => {
            Some((obligation.entry, *entry))
        }
        _ => None,
    }))
}

/// A receipt (L3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    request: RequestId,
    operation: &'static str,
    object: ObjectId,
    index: u64,
    sealed_at: Time,
    key: Option<String>,
    result: Done,
    effects: Vec<Effect>,
}

impl Receipt {
    /// As it is shown.
    pub fn json(&self) -> Value {
        json!({
            "id": index::receipt_id(&self.request).to_string(),
            "operation": self.operation,
            "object": self.object.to_string(),
            "index": self.index,
            "action": self.request.to_string(),
            "sealed_at": shown(self.sealed_at),
            "key": self.key,
            "result": self.result,
            "effects": self.effects.iter().filter_map(|effect| effect_json(&self.object, effect)).collect::<Vec<_>>(),
        })
    }
}

/// A receipt and the result that goes with it.
///
/// # Errors
/// If the store cannot be read.
pub fn receipt(read: &dyn Read, ended: &Ended) -> Result<(Receipt, Done), ReadError> {
    let (fact, effects) = ended.place.read(read)?;
    // What exists was made by an earlier action of the same agent; the receipt is that one's.
    let made_by = log::action_of(&fact).ok_or_else(|| ReadError::damaged("a receipt without an action"))?;
    let request = made_by.request();
    let key = match read.get(Table::Envelopes, request.as_bytes())? {
        Some(bytes) => {
            let envelope: Envelope = cbor::read_own(&bytes).map_err(|_| ReadError::damaged("an envelope"))?;
            Some(envelope.key)
        }
        None => None,
    };
    let mut done = done(&fact, &made_by, &effects);
    let receipt = Receipt {
        request,
        operation: made_by.body.operation(),
        object: fact.object,
        index: fact.index,
        sealed_at: fact.log_time,
        key,
        result: done.clone(),
        effects,
    };
    done.existing = ended.existing;
    Ok((receipt, done))
}

/// Names of details that a refusal from elsewhere may have. What they say is a name, an id or a number; anything else is
/// left out, so that no sequencer speaks to an agent through them (L6.1).
const DETAILS: [&str; 7] = ["cause", "field", "limit", "object", "of", "reason", "state"];

/// A refusal as another host signed it.
pub fn refusal(signed: &[u8]) -> Refusal {
    let payload = kwoon_keys::cose::payload(kwoon_keys::RecordKind::Outcome, signed).unwrap_or_default();
    let Ok(outcome) = cbor::read_own::<Outcome>(payload) else { return Code::Internal.into() };
    let OutcomeResult::Refused(code, details) = outcome.result else { return Code::Internal.into() };
    let known = Code::ALL.iter().find(|known| known.name() == code);
    let mut refusal = Refusal::from(known.copied().unwrap_or(Code::UnsupportedVersion));
    for detail in details {
        let Some(name) = DETAILS.iter().find(|name| **name == detail.name) else { continue };
        let is_name = |text: &str| {
            text.len() <= 64
                && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        match detail.value {
            DetailValue::Number(number) => refusal = refusal.with(name, Detail::Number(number)),
            DetailValue::Text(text) if is_name(&text) => refusal = refusal.with(name, Detail::Text(text)),
            DetailValue::Text(_) => {}
        }
    }
    refusal
}

/// What an action without an outcome would come to, by the fact that it would become: every id, and no number of an entry.
///
/// # Errors
/// If the store cannot be read.
pub fn expected(read: &dyn Read, action: &Action, number: ObjectNumber, index: u64) -> Result<Done, ReadError> {
    let (fact, effects) = Place::Log(number, index).read(read)?;
    let done = done(&fact, action, &effects);
    Ok(Done { entry: None, due_at: None, action: Some(action.request().to_string()), ..done })
}

/// The ids that a fact concerns.
fn done(fact: &Fact, action: &Action, effects: &[Effect]) -> Done {
    let mut done = Done::default();
    match &fact.object {
        ObjectId::Identity(agent) => done.agent = Some(agent.to_string()),
        ObjectId::Memory(memory) => done.memory = Some(memory.to_string()),
        ObjectId::Thread(thread) => done.thread = Some(thread.to_string()),
        ObjectId::Publication(_) | ObjectId::Task(_) | ObjectId::Engagement(_) => {}
    }
    match &action.body {
        Body::MemberRemove(agent) | Body::MemberRole(agent, _) => done.agent = Some(agent.to_string()),
        Body::AssignmentTake(id, _)
        | Body::AssignmentDeliver(id, _)
        | Body::AssignmentAccept(id)
        | Body::AssignmentReturn(id, _)
        | Body::AssignmentAbandon(id)
        | Body::AssignmentVoid(id) => done.assignment = Some(id.to_string()),
        _ => {}
    }
    for effect in effects {
        match effect {
            Effect::IdentitySet(_, account, _) => done.version = Some(account.version),
            Effect::VersionAdded(version, ..) => done.version = Some(*version),
            Effect::AdmissionIssued(id, _) => done.admission = Some(id.to_string()),
            Effect::MembershipBegan(_, role, _) | Effect::RoleSet(_, role) => done.role = Some(role.name()),
            Effect::EntryPosted(posted) => {
                done.entry = Some(posted.entry);
                done.memory = Some(posted.pin.memory.to_string());
                done.version = Some(posted.pin.version);
            }
            Effect::ObligationEnded(obligation, _)
                if matches!(action.body, Body::EntryHandle(..) | Body::EntryRetract(_)) =>
            {
                done.entry = Some(obligation.entry);
            }
            Effect::AssignmentOffered(id, ..) => {
                done.assignment = Some(id.to_string());
                done.state = Some("offered");
            }
            Effect::AssignmentTaken(_, due) => {
                done.state = Some("taken");
                done.due_at = Some(shown(*due));
            }
            Effect::AssignmentDelivered(_, _, due) => {
                done.state = Some("delivered");
                done.due_at = Some(shown(*due));
            }
            Effect::AssignmentEnded(id, end, _) if done.assignment.as_deref() == Some(&*id.to_string()) => {
                done.state = Some(end.name());
                done.due_at = None;
            }
            _ => {}
        }
    }
    if matches!(action.body, Body::MemoryCreate(_)) && done.version.is_none() {
        done.version = Some(1);
    }
    done
}

/// An effect as it is shown: structure only. What a log notes for itself alone is not shown.
pub fn effect_json(object: &ObjectId, effect: &Effect) -> Option<Value> {
    let mut shown_effect = json!({"kind": effect.name()});
    let fields = match effect {
        Effect::AccountSet(..) => return None,
        Effect::IdentitySet(agent, account, _) => json!({"agent": agent.to_string(), "version": account.version}),
        Effect::MemoryCreated(memory, author) => {
            json!({"memory": memory.to_string(), "author": author.to_string()})
        }
        Effect::VersionAdded(version, ..) | Effect::MadePublic(version, _) => {
            json!({"memory": object.to_string(), "version": version})
        }
        Effect::MadePrivate | Effect::MemoryWithdrawn(_) => json!({"memory": object.to_string()}),
        Effect::PublicationSet(memory, _, version, _, _) => json!({"memory": memory.to_string(), "version": version}),
        Effect::PublicationEnded(memory, ..) => json!({"memory": memory.to_string()}),
        Effect::ThreadCreated(thread, creator, _) => {
            json!({"thread": thread.to_string(), "creator": creator.to_string()})
        }
        Effect::AdmissionIssued(id, grant) => json!({"admission": id.to_string(), "role": grant.role.name()}),
        Effect::AdmissionVoided(id) => json!({"admission": id.to_string()}),
        Effect::MembershipBegan(agent, role, _) | Effect::RoleSet(agent, role) => {
            json!({"agent": agent.to_string(), "role": role.name()})
        }
        Effect::MembershipEnded(agent, how) => json!({"agent": agent.to_string(), "how": how.name()}),
        Effect::EntryPosted(posted) => json!({
            "entry": posted.entry,
            "author": posted.author.to_string(),
            "memory": posted.pin.memory.to_string(),
            "version": posted.pin.version,
        }),
        Effect::ObligationBegan(obligation) => obligation_json(object, obligation),
        Effect::ObligationEnded(obligation, exit) => {
            let mut fields = obligation_json(object, obligation);
            fields["exit"] = json!(exit.name());
            fields
        }
        Effect::AssignmentOffered(id, entry, creator, terms) => json!({
            "assignment": id.to_string(),
            "entry": entry,
            "creator": creator.to_string(),
            "assignee": terms.to.to_string(),
        }),
        Effect::AssignmentTaken(id, due) | Effect::AssignmentDelivered(id, _, due) => {
            json!({"assignment": id.to_string(), "due_at": shown(*due)})
        }
        Effect::AssignmentEnded(id, end, _) => json!({"assignment": id.to_string(), "state": end.name()}),
        Effect::JudgmentForfeited(id) => json!({"assignment": id.to_string()}),
        Effect::ThreadClosed => json!({"thread": object.to_string()}),
        Effect::EpochBegan(epoch, host, _) => json!({"epoch": epoch, "sequencer": host.to_string()}),
    };
    if let (Some(all), Value::Object(fields)) = (shown_effect.as_object_mut(), fields) {
        all.extend(fields);
    }
    Some(shown_effect)
}

fn obligation_json(object: &ObjectId, obligation: &Obligation) -> Value {
    let mut fields = json!({
        "duty": obligation.duty.name(),
        "bearer": obligation.bearer.to_string(),
        "object": object.to_string(),
        "entry": obligation.entry,
    });
    if let ObjectId::Thread(thread) = object {
        fields["obligation"] = json!(obligation.id(thread).to_string());
    }
    if let Some(assignment) = obligation.assignment {
        fields["assignment"] = json!(assignment.to_string());
    }
    if let Some(due) = obligation.due_at {
        fields["due_at"] = json!(shown(due));
    }
    fields
}
