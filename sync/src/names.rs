//! The local names of agents: the one thing about an agent that is this host's own.

use kwoon_keys::cbor;
use kwoon_keys::id::AgentId;
use kwoon_ledger::storage::{Order, Read, ReadError, Table};

/// Where the agent of a local name is noted.
pub fn name_key(name: &str) -> Vec<u8> {
    let mut key = b"name/".to_vec();
    key.extend_from_slice(name.as_bytes());
    key
}

/// The agents of this host by their local names.
///
/// # Errors
/// If the store cannot be read.
pub fn names(read: &dyn Read) -> Result<Vec<(String, AgentId)>, ReadError> {
    let rows = read.prefix(Table::Meta, &name_key(""), Order::Rising, usize::MAX)?;
    rows.into_iter()
        .map(|(key, value)| {
            let name = String::from_utf8(key[5..].to_vec()).map_err(|_| ReadError::damaged("a name"))?;
            let agent = cbor::read_own(&value).map_err(|_| ReadError::damaged("a name"))?;
            Ok((name, agent))
        })
        .collect()
}

/// The agent of a local name.
///
/// # Errors
/// If the store cannot be read.
pub fn agent(read: &dyn Read, name: &str) -> Result<Option<AgentId>, ReadError> {
    match read.get(Table::Meta, &name_key(name))? {
        Some(bytes) => cbor::read_own(&bytes).map(Some).map_err(|_| ReadError::damaged("a name")),
        None => Ok(None),
    }
}
