//! A store in memory, for tests and simulations: it answers like the one on disk and forgets with the process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kwoon_keys::id::AgentId;
use kwoon_keys::secret::InstanceKeys;
use kwoon_keys::{Digest, Salt};
use kwoon_ledger::storage::{Batch, Order, Read, ReadError, Row, Store, Table, WriteError};

use crate::content;
use crate::rebuild::UNDER_WAY;
use crate::{STORE_VERSION, VERSION_KEY};

type Bytes = Arc<[u8]>;

/// Each part is shared with the snapshots taken since it last changed, and copied when it changes again.
#[derive(Clone, Debug, Default)]
struct State {
    tables: BTreeMap<Table, Arc<BTreeMap<Bytes, Bytes>>>,
    content: Arc<BTreeMap<Digest, (Salt, Bytes)>>,
}

#[derive(Clone, Debug, Default)]
struct Shared {
    state: Arc<State>,
    keys: BTreeMap<AgentId, InstanceKeys>,
}

/// The store. May be shared between threads.
#[derive(Debug)]
pub struct MemoryStore(Mutex<Shared>);

/// A state of a [`MemoryStore`]. Taking one copies nothing; the commit after it copies the tables it writes to.
#[derive(Clone, Debug)]
pub struct MemorySnapshot(Arc<State>);

impl MemoryStore {
    /// A store that holds its version and nothing else.
    pub fn new() -> Self {
        let mut state = State::default();
        let version = BTreeMap::from([(VERSION_KEY.into(), STORE_VERSION.to_be_bytes().as_slice().into())]);
        state.tables.insert(Table::Meta, Arc::new(version));
        Self(Mutex::new(Shared { state: Arc::new(state), keys: BTreeMap::new() }))
    }

    /// The keys of all instances that were committed, by agent; the last ones of each.
    pub fn keys(&self) -> Vec<InstanceKeys> {
        self.shared().keys.values().cloned().collect()
    }

    /// Removes the keys of an agent's instance, if there are any.
    pub fn remove_instance_keys(&self, agent: &AgentId) {
        self.shared().keys.remove(agent);
    }

    /// Drops the table `Derived` and notes that it is not whole, as the store on disk does.
    pub(crate) fn begin_rebuild(&self) -> Result<(), WriteError> {
        Arc::make_mut(&mut self.shared().state).tables.remove(&Table::Derived);
        let mut batch = Batch::default();
        batch.rows.insert((Table::Meta, UNDER_WAY.to_vec()), Some(Vec::new()));
        self.commit(batch)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // Nothing in here panics half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A clone holds the same, and what is then written to either is not in the other.
impl Clone for MemoryStore {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.shared().clone()))
    }
}

impl MemorySnapshot {
    /// Whether a table holds the same in two states. Where nothing was written in between, this looks at no row.
    pub fn same_table(&self, other: &Self, table: Table) -> bool {
        match (self.0.tables.get(&table), other.0.tables.get(&table)) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one == two,
            (Some(rows), None) | (None, Some(rows)) => rows.is_empty(),
            (None, None) => true,
        }
    }

    /// The hashes of all contents that are held.
    pub fn contents(&self) -> impl Iterator<Item = &Digest> {
        self.0.content.keys()
    }

    /// The same for content.
    pub fn same_content(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.content, &other.0.content) || self.0.content == other.0.content
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    type Snapshot = MemorySnapshot;

    fn snapshot(&self) -> Result<MemorySnapshot, ReadError> {
        Ok(MemorySnapshot(Arc::clone(&self.shared().state)))
    }

    fn commit(&self, batch: Batch) -> Result<(), WriteError> {
        content::check(&batch)?;
        let mut shared = self.shared();
        shared.keys.extend(batch.keys.into_iter().map(|keys| (keys.agent, keys)));
        if batch.rows.is_empty() && batch.content.is_empty() && batch.dropped.is_empty() {
            return Ok(());
        }
        let state = Arc::make_mut(&mut shared.state);
        for ((table, key), value) in batch.rows {
            let rows = Arc::make_mut(state.tables.entry(table).or_default());
            match value {
                Some(value) => rows.insert(key.into(), value.into()),
                None => rows.remove(&key[..]),
            };
        }
        if !batch.content.is_empty() {
            let new = batch.content.into_iter().map(|(hash, (salt, bytes))| (hash, (salt, bytes.into())));
            Arc::make_mut(&mut state.content).extend(new);
        }
        if !batch.dropped.is_empty() {
            Arc::make_mut(&mut state.content).retain(|hash, _| !batch.dropped.contains(hash));
        }
        Ok(())
    }
}

impl Read for MemorySnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        let rows = self.0.tables.get(&table);
        Ok(rows.and_then(|rows| rows.get(key)).map(|value| value.to_vec()))
    }

    fn range(&self, table: Table, from: &[u8], to: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError> {
        let Some(rows) = self.0.tables.get(&table).filter(|_| from < to) else {
            return Ok(Vec::new());
        };
        let range = rows.range::<[u8], _>((std::ops::Bound::Included(from), std::ops::Bound::Excluded(to)));
        let owned = |(key, value): (&Bytes, &Bytes)| (key.to_vec(), value.to_vec());
        Ok(match order {
            Order::Rising => range.map(owned).take(limit).collect(),
            Order::Falling => range.rev().map(owned).take(limit).collect(),
        })
    }

    fn content(&self, hash: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        Ok(self.0.content.get(hash).map(|(salt, bytes)| (*salt, bytes.to_vec())))
    }
}
