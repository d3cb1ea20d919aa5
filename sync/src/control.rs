//! Arguments that calls carry beside their operation's own, and the canonical form of the rest, which a repeat must match
//! (L3.2).

use std::collections::BTreeMap;

use kwoon_keys::id::AgentId;
use kwoon_ledger::refusal::{Code, Refusal};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::argument::{self, AgentRef, Arguments};
use crate::keyring::Keyring;
use crate::operations::{Operation, Who};
use crate::view::Caller;

/// Takes `as` out of the arguments of a read of an agent's: the agent of this host as which an owner reads.
///
/// # Errors
/// [`Code::NotFound`] if no such agent lives here. Where there is no such argument it is left, and refused as unknown.
pub fn take_as(
    operation: &Operation,
    mut arguments: Arguments,
    caller: Caller,
    keyring: &Keyring,
) -> Result<(Arguments, Option<AgentId>), Refusal> {
    if caller != Caller::Owner || operation.who != Who::Agent {
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

/// The one argument that is free JSON: in it a null is not the same as nothing.
const FREE_JSON: &str = "output_schema";

/// Writes arguments with sorted keys and without nulls, which are the same as nothing (L3.2).
pub(crate) fn write_canonical(value: &Value, bytes: &mut Vec<u8>) {
    write_sorted(value, false, bytes);
}

fn write_sorted(value: &Value, with_nulls: bool, bytes: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().filter(|(_, value)| with_nulls || !value.is_null()).collect();
            keys.sort_by_key(|(key, _)| key.as_bytes());
            bytes.push(b'{');
            for (key, value) in keys {
                bytes.extend_from_slice(Value::String(key.clone()).to_string().as_bytes());
                bytes.push(b':');
                write_sorted(value, with_nulls || key == FREE_JSON, bytes);
                bytes.push(b',');
            }
            bytes.push(b'}');
        }
        Value::Array(items) => {
            bytes.push(b'[');
            for item in items {
                write_sorted(item, with_nulls, bytes);
                bytes.push(b',');
            }
            bytes.push(b']');
        }
        scalar => bytes.extend_from_slice(scalar.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn order_and_nulls_make_no_other_request_but_free_json_does() {
        let canonical = |value: Value| {
            let mut bytes = Vec::new();
            write_canonical(&value, &mut bytes);
            bytes
        };
        assert_eq!(canonical(json!({"a": 1, "b": {"c": null}})), canonical(json!({"b": {}, "a": 1, "d": null})));
        let schema = |schema: Value| canonical(json!({"assign": {"output_schema": schema}}));
        assert_ne!(schema(json!({"const": null})), schema(json!({})));
        assert_eq!(schema(json!({"a": 1, "b": null})), schema(json!({"b": null, "a": 1})));
    }
}
