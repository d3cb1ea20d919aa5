//! What a store holds and how it is read: tables of ordered bytes, and content by commitment.
//!
//! The traits stand here, below the rules that read through them; the store on disk and the one in memory
//! implement them. Nothing in this module does I/O.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, btree_map};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use kwoon_keys::secret::InstanceKeys;
use kwoon_keys::{Commitment, Digest, Salt};

/// A table of a store: keys and values are bytes, keys are ordered as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Object number to object id. Primary: the order in which objects came to this host.
    Objects,
    /// Object number and index to the bytes of a fact. Primary.
    Log,
    /// Object number, epoch and index to the bytes of a seal. Primary.
    Seals,
    /// Arrival number to object number and index: the order in which facts came to this host. Primary.
    Arrivals,
    /// Request id to a signed outcome that is no sealed fact, with the action it answers. Primary.
    Outcomes,
    /// Request id to what is kept beside an action on its host (EV.1): idempotency key, receipt time. Primary.
    Envelopes,
    /// Records from elsewhere that this version does not know, kept as they came (EV.3). Primary; in no log.
    Quarantine,
    /// Object, agent and request to an action without an outcome, of this host's agents or passed on for others. Primary.
    Outbox,
    /// Object number and attempt to a refusal that another host was told, until the attempt expires. Primary.
    Refusals,
    /// Host id to what this host knows of another host. Primary.
    Peers,
    /// What is to be fetched from other hosts: contents by the fact that commits to them, and objects. Primary.
    Wanted,
    /// Object number to where its log ended for this host, whose right to it ended. Primary.
    Ended,
    /// Request id to the sealed end of an action of this host's agents in such a log. Primary.
    Kept,
    /// Single values: format version, last recorded time, next numbers, choices of the owner. Primary.
    Meta,
    /// Everything that follows from the tables above: object states, indexes, the turn. May be dropped and rebuilt.
    Derived,
}

impl Table {
    /// Every table, in the order of the variants.
    pub const ALL: [Self; 15] = [
        Self::Objects,
        Self::Log,
        Self::Seals,
        Self::Arrivals,
        Self::Outcomes,
        Self::Envelopes,
        Self::Quarantine,
        Self::Outbox,
        Self::Refusals,
        Self::Peers,
        Self::Wanted,
        Self::Ended,
        Self::Kept,
        Self::Meta,
        Self::Derived,
    ];

    /// The name on disk.
    pub fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Log => "log",
            Self::Seals => "seals",
            Self::Arrivals => "arrivals",
            Self::Outcomes => "outcomes",
            Self::Envelopes => "envelopes",
            Self::Quarantine => "quarantine",
            Self::Outbox => "outbox",
            Self::Refusals => "refusals",
            Self::Peers => "peers",
            Self::Wanted => "wanted",
            Self::Ended => "ended",
            Self::Kept => "kept",
            Self::Meta => "meta",
            Self::Derived => "derived",
        }
    }
}

/// A store could not be read: the disk failed, or what it holds is damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store cannot be read: {reason}")]
pub struct ReadError {
    /// For the owner's eyes; names no participant text.
    pub reason: String,
}

impl ReadError {
    /// What the store holds does not decode or contradicts itself.
    pub fn damaged(what: &str) -> Self {
        Self { reason: alloc::format!("damaged: {what}") }
    }
}

/// Which end a range is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the first key up.
    Rising,
    /// From the last key down.
    Falling,
}

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// One consistent state of a store.
pub trait Read {
    /// The value of a key.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError>;

    /// At most `limit` rows with `from <= key < to`.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn range(&self, table: Table, from: &[u8], to: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError>;

    /// The content that a commitment with this hash was made to, if this host holds it.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn content(&self, hash: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError>;

    /// At most `limit` rows whose keys begin with `prefix`.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn prefix(&self, table: Table, prefix: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError> {
        self.range(table, prefix, &after_prefix(prefix), order, limit)
    }
}

/// A store with nothing in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

impl Read for Nothing {
    fn get(&self, _: Table, _: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(None)
    }
    fn range(&self, _: Table, _: &[u8], _: &[u8], _: Order, _: usize) -> Result<Vec<Row>, ReadError> {
        Ok(Vec::new())
    }
    fn content(&self, _: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        Ok(None)
    }
}

/// The least key above all keys that begin with `prefix`.
pub fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    alloc::vec![0xff; prefix.len() + 64]
}

/// Changes of rows, by table and key: new values, or `None` where the key is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows([BTreeMap<Vec<u8>, Option<Vec<u8>>>; Table::ALL.len()]);

impl Rows {
    /// Sets or removes a key.
    pub fn insert(&mut self, (table, key): (Table, Vec<u8>), value: Option<Vec<u8>>) {
        self.0[table as usize].insert(key, value);
    }

    /// The change of a key, if there is one.
    pub fn get(&self, table: Table, key: &[u8]) -> Option<&Option<Vec<u8>>> {
        self.0[table as usize].get(key)
    }

    /// Changes of keys with `from <= key < to`, of which there must be room for some.
    fn range(&self, table: Table, from: &[u8], to: &[u8]) -> btree_map::Range<'_, Vec<u8>, Option<Vec<u8>>> {
        self.0[table as usize].range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
    }

    /// Drops the changes of all tables but these.
    pub fn keep_tables(&mut self, kept: &[Table]) {
        let tables = Table::ALL.into_iter().zip(&mut self.0);
        tables.filter(|(table, _)| !kept.contains(table)).for_each(|(_, rows)| rows.clear());
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(BTreeMap::is_empty)
    }

    /// The new values of all tables, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Option<Vec<u8>>> {
        self.0.iter_mut().flat_map(BTreeMap::values_mut)
    }
}

impl IntoIterator for Rows {
    type Item = ((Table, Vec<u8>), Option<Vec<u8>>);
    type IntoIter = alloc::boxed::Box<dyn Iterator<Item = Self::Item>>;

    fn into_iter(self) -> Self::IntoIter {
        let tables = Table::ALL.into_iter().zip(self.0);
        alloc::boxed::Box::new(
            tables.flat_map(|(table, rows)| rows.into_iter().map(move |(key, value)| ((table, key), value))),
        )
    }
}

impl Extend<((Table, Vec<u8>), Option<Vec<u8>>)> for Rows {
    fn extend<I: IntoIterator<Item = ((Table, Vec<u8>), Option<Vec<u8>>)>>(&mut self, rows: I) {
        rows.into_iter().for_each(|(key, value)| self.insert(key, value));
    }
}

impl FromIterator<((Table, Vec<u8>), Option<Vec<u8>>)> for Rows {
    fn from_iter<I: IntoIterator<Item = ((Table, Vec<u8>), Option<Vec<u8>>)>>(rows: I) -> Self {
        let mut all = Self::default();
        all.extend(rows);
        all
    }
}

/// What one commit writes. All of it is on disk when the commit is done, or none of it.
#[derive(Debug, Default)]
pub struct Batch {
    /// New values; `None` removes the key.
    pub rows: Rows,
    /// Content, on disk before the rows.
    pub content: BTreeMap<Digest, (Salt, Vec<u8>)>,
    /// Content that is held no longer, by its hash.
    pub dropped: BTreeSet<Digest>,
    /// Keys of new instances, in their key files before the rows.
    pub keys: Vec<InstanceKeys>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.content.is_empty() && self.dropped.is_empty() && self.keys.is_empty()
    }

    /// What of this batch can be read over a state before it was committed: all but keys, which no store gives back.
    #[must_use]
    pub fn readable(&self) -> Self {
        let (rows, content, dropped) = (self.rows.clone(), self.content.clone(), self.dropped.clone());
        Self { rows, content, dropped, keys: Vec::new() }
    }
}

/// A state with changes laid over it that are not committed. Layers may be stacked; dropping one undoes it.
pub struct Overlay<'a> {
    base: &'a dyn Read,
    /// The changes.
    pub batch: Batch,
}

impl<'a> Overlay<'a> {
    /// No changes over `base`.
    pub fn new(base: &'a dyn Read) -> Self {
        Self { base, batch: Batch::default() }
    }

    /// Changes made earlier, over `base`.
    pub fn with(base: &'a dyn Read, batch: Batch) -> Self {
        Self { base, batch }
    }

    fn layer(&self) -> Layer<'_> {
        Layer { base: self.base, batch: &self.batch }
    }

    /// Sets a value.
    pub fn put(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.batch.rows.insert((table, key), Some(value));
    }

    /// Removes a key.
    pub fn remove(&mut self, table: Table, key: Vec<u8>) {
        self.batch.rows.insert((table, key), None);
    }

    /// Adds content under its commitment.
    pub fn put_content(&mut self, commitment: &Commitment, salt: Salt, bytes: Vec<u8>) {
        self.batch.dropped.remove(&commitment.hash);
        self.batch.content.insert(commitment.hash, (salt, bytes));
    }

    /// Removes content.
    pub fn drop_content(&mut self, hash: &Digest) {
        self.batch.content.remove(hash);
        self.batch.dropped.insert(*hash);
    }

    /// Adds the changes of a layer above this one.
    pub fn absorb(&mut self, above: Batch) {
        for (rows, above) in self.batch.rows.0.iter_mut().zip(above.rows.0) {
            rows.extend(above);
        }
        for hash in above.dropped {
            self.drop_content(&hash);
        }
        for (hash, content) in above.content {
            self.batch.dropped.remove(&hash);
            self.batch.content.insert(hash, content);
        }
        self.batch.keys.extend(above.keys);
    }
}

impl Read for Overlay<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        self.layer().get(table, key)
    }

    fn range(&self, table: Table, from: &[u8], to: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError> {
        self.layer().range(table, from, to, order, limit)
    }

    fn content(&self, hash: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        self.layer().content(hash)
    }
}

/// A state as it is with changes over it that are kept elsewhere.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    /// The state.
    pub base: &'a dyn Read,
    /// The changes.
    pub batch: &'a Batch,
}

impl Read for Layer<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        match self.batch.rows.get(table, key) {
            Some(value) => Ok(value.clone()),
            None => self.base.get(table, key),
        }
    }

    fn range(&self, table: Table, from: &[u8], to: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let changes = self.batch.rows.range(table, from, to);
        if changes.clone().next().is_none() {
            return self.base.range(table, from, to, order, limit);
        }
        // Removed keys take places in what the base returns, so that many more are asked for.
        let removed = changes.clone().filter(|(_, value)| value.is_none()).count();
        let base = self.base.range(table, from, to, order, limit.saturating_add(removed))?;
        let mut merged: BTreeMap<Vec<u8>, Vec<u8>> = base.into_iter().collect();
        for (key, value) in changes {
            match value {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(key),
            };
        }
        Ok(match order {
            Order::Rising => merged.into_iter().take(limit).collect(),
            Order::Falling => merged.into_iter().rev().take(limit).collect(),
        })
    }

    fn content(&self, hash: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        match self.batch.content.get(hash) {
            Some(content) => Ok(Some(content.clone())),
            None if self.batch.dropped.contains(hash) => Ok(None),
            None => self.base.content(hash),
        }
    }
}

/// A store that can be read and written. One writer at a time.
pub trait Store {
    /// A consistent state that later commits do not change.
    type Snapshot: Read;

    /// The present state.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn snapshot(&self) -> Result<Self::Snapshot, ReadError>;

    /// Makes a batch durable. When this returns, it is on disk.
    ///
    /// # Errors
    /// If nothing of it was committed, or it is not known: the store must then be opened anew before it is written.
    fn commit(&self, batch: Batch) -> Result<(), WriteError>;
}

/// A commit failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store cannot be written: {reason}")]
pub struct WriteError {
    /// For the owner's eyes; names no participant text.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_in_the_base_does_not_shorten_a_page() {
        let mut base = Overlay::new(&Nothing);
        for n in 0..5u8 {
            base.put(Table::Derived, alloc::vec![1, n], alloc::vec![n]);
        }
        let mut above = Overlay::new(&base);
        above.remove(Table::Derived, alloc::vec![1, 0]);
        above.put(Table::Derived, alloc::vec![1, 9], alloc::vec![9]);
        let keys = |order, limit| {
            let rows = above.prefix(Table::Derived, &[1], order, limit).expect("read");
            rows.into_iter().map(|(key, _)| key[1]).collect::<Vec<_>>()
        };
        assert_eq!(keys(Order::Rising, 2), [1, 2]);
        assert_eq!(keys(Order::Falling, 2), [9, 4]);
        assert_eq!(keys(Order::Rising, 50), [1, 2, 3, 4, 9]);
    }

    #[test]
    fn the_end_of_a_prefix_is_above_all_its_keys() {
        assert_eq!(after_prefix(&[1, 2]), [1, 3]);
        assert_eq!(after_prefix(&[1, 0xff]), [2]);
    }
}
