//! Arguments that calls carry beside their operation's own, and the canonical form of the rest, which a repeat must match
//! (L3.2).

use std::collections::BTreeMap;

use kwoon_keys::id::AgentId;
use kwoon_ledger::refusal::{Code, Refusal};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::argument::{self, AgentRef, Arguments};
use crate::keyring::Keyring;
use crate::view::Caller;

/// Takes `as` out of the arguments of a read: the agent of this host as which an owner reads.
///
/// # Errors
/// [`Code::NotFound`] if no such agent lives here; an agent that gives it is told that there is no such argument.
pub fn take_as(
    mut arguments: Arguments,
    caller: Caller,
    keyring: &Keyring,
) -> Result<(Arguments, Option<AgentId>), Refusal> {
    if caller != Caller::Owner {
        return Ok((arguments, None));
    }
    let Some(AgentRef(short)) = take_control::<AgentRef>(&mut arguments, "as")? else { return Ok((arguments, None)) };
    let agent = keyring.agents().find(|agent| agent.0.short() == short).copied();
    Ok((arguments, Some(agent.ok_or(Code::NotFound)?)))
}

/// Takes an argument that every acting call has out of the arguments.
///
/// # Errors
/// If it is not of the form it must have.
pub fn take_control<C: DeserializeOwned>(arguments: &mut Arguments, name: &str) -> Result<Option<C>, Refusal> {
    let value = take_control_kept(arguments, name)?;
    arguments.remove(name);
    Ok(value)
}

/// The same, and leaves it there.
pub(crate) fn take_control_kept<C: DeserializeOwned>(arguments: &Arguments, name: &str) -> Result<Option<C>, Refusal> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let mut single = Arguments::new();
            single.insert(name.to_owned(), value.clone());
            let mut parsed: BTreeMap<String, C> = argument::parse(single)?;
            Ok(parsed.remove(name))
        }
    }
}

/// Writes a value with sorted keys and without nulls.
pub(crate) fn write_canonical(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().filter(|(_, value)| !value.is_null()).collect();
            keys.sort_by_key(|(key, _)| key.as_bytes());
            bytes.push(b'{');
            for (key, value) in keys {
                bytes.extend_from_slice(Value::String(key.clone()).to_string().as_bytes());
                bytes.push(b':');
                write_canonical(value, bytes);
                bytes.push(b',');
            }
            bytes.push(b'}');
        }
        Value::Array(items) => {
            bytes.push(b'[');
            for item in items {
                write_canonical(item, bytes);
                bytes.push(b',');
            }
            bytes.push(b']');
        }
        scalar => bytes.extend_from_slice(scalar.to_string().as_bytes()),
    }
}
