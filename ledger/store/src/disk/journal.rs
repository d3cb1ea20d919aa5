//! The journal: what was committed and does not lie in its tables yet.
//!
//! A commit of a few rows writes one row, the journal's next, instead of a page or more for each of them; the rows are
//! read from memory meanwhile. Once there are many they are settled, sorted and in one transaction: they go into their
//! tables and out of the journal. So a small commit costs about what one row costs, and a page of a table is written
//! once for many rows. Whatever happens, the tables and the journal together hold every commit.

use std::ops::Bound;
use std::sync::Arc;

use kwoon_ledger::storage::{Batch, Order, Row, Table};
use minicbor::{Decoder, Encoder};
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};
use rpds::RedBlackTreeMapSync;

use super::{CONTENT_TABLE, Definition, definition};
use crate::content;
use crate::fault::Fault;

/// Commits by number, each as [`encode`] makes it; under 0 the number of the last one that was settled.
pub(super) const JOURNAL: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("journal");
const SETTLED: u64 = 0;

/// How long the journal gets before it is settled, in bytes. As much may have to be read at the next open, and lies in
/// memory.
pub(super) const JOURNAL_BYTES_MAX: usize = 8 << 20;

/// Tables with their own rows: those of [`Table`], and the one of content.
pub(super) const SLOTS: usize = Table::ALL.len() + 1;
/// The slot of content.
pub(super) const CONTENT_SLOT: usize = Table::ALL.len();

/// The place of a table among the slots.
pub(super) fn slot(table: Table) -> usize {
    Table::ALL.iter().position(|other| *other == table).expect("ALL holds every table")
}

pub(super) fn definition_of(slot: usize) -> Definition<'static> {
    Table::ALL.get(slot).map_or(CONTENT_TABLE, |table| definition(*table))
}

/// How a slot is named in the journal. Never given again, whatever tables come and go.
fn code(slot: usize) -> u8 {
    match Table::ALL.get(slot) {
        Some(Table::Objects) => 0,
        Some(Table::Log) => 1,
        Some(Table::Seals) => 2,
        Some(Table::Arrivals) => 3,
        Some(Table::Outcomes) => 4,
        Some(Table::Envelopes) => 5,
        Some(Table::Meta) => 6,
        Some(Table::Derived) => 7,
        None => 8,
        Some(Table::Quarantine) => 9,
    }
}

/// Whether bytes are what a commit may have left in the journal.
pub fn is_journal_row(bytes: &[u8]) -> bool {
    Rows::decode(bytes).is_some()
}

type Value = Option<Arc<[u8]>>;

/// The rows of one commit: slot, key, and the new value or its end.
pub(super) struct Rows(Vec<(usize, Vec<u8>, Value)>);

impl Rows {
    pub(super) fn of(batch: Batch) -> Self {
        let rows = batch.rows.into_iter().map(|((table, key), value)| (slot(table), key, value.map(Arc::from)));
        let contents = batch.content.into_iter().map(|(hash, (salt, bytes))| {
            (CONTENT_SLOT, hash.as_bytes().to_vec(), Some(content::row(&salt, &bytes).into()))
        });
        Self(rows.chain(contents).collect())
    }

    /// The rows as they lie in the journal: a list of lists of the slot's code, the key, and the value or null.
    fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::new(Vec::new());
        let infallible = "memory takes what is written to it";
        encoder.array(self.0.len() as u64).expect(infallible);
        for (slot, key, value) in &self.0 {
            encoder.array(3).expect(infallible).u8(code(*slot)).expect(infallible).bytes(key).expect(infallible);
            match value {
                Some(value) => encoder.bytes(value).expect(infallible),
                None => encoder.null().expect(infallible),
            };
        }
        encoder.into_writer()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let mut rows = Vec::new();
        for _ in 0..decoder.array().ok()?? {
            if decoder.array().ok()? != Some(3) {
                return None;
            }
            let named = decoder.u8().ok()?;
            let slot = (0..SLOTS).find(|slot| code(*slot) == named)?;
            let key = decoder.bytes().ok()?.to_vec();
            let value = match decoder.datatype().ok()? {
                minicbor::data::Type::Null => {
                    decoder.null().ok()?;
                    None
                }
                _ => Some(Arc::from(decoder.bytes().ok()?)),
            };
            rows.push((slot, key, value));
        }
        (decoder.position() == bytes.len()).then_some(Self(rows))
    }
}

/// The commits that lie in the journal, one over the other. A clone stays as it is and costs next to nothing.
#[derive(Clone)]
pub(super) struct Recent {
    tables: [RedBlackTreeMapSync<Vec<u8>, Value>; SLOTS],
    /// The last commit that was settled.
    settled: u64,
    /// The last commit.
    last: u64,
    /// How long the journal is.
    bytes: usize,
}

impl Recent {
    /// No commits since the one of this number.
    pub(super) fn none(settled: u64) -> Self {
        let tables = std::array::from_fn(|_| RedBlackTreeMapSync::new_sync());
        Self { tables, settled, last: settled, bytes: 0 }
    }

    /// The journal of a store that has one.
    pub(super) fn read(transaction: &ReadTransaction) -> Result<Self, Fault> {
        let damaged = |what: &str| Fault::Damaged(format!("the journal {what}"));
        let mut recent = Self::none(settled(transaction)?);
        for row in transaction.open_table(JOURNAL)?.range(SETTLED + 1..)? {
            let (number, bytes) = row?;
            if number.value() != recent.last + 1 {
                return Err(damaged("has a gap"));
            }
            let rows = Rows::decode(bytes.value()).ok_or_else(|| damaged("holds what makes no sense"))?;
            recent.add(rows, bytes.value().len());
        }
        Ok(recent)
    }

    fn add(&mut self, rows: Rows, bytes: usize) {
        for (slot, key, value) in rows.0 {
            self.tables[slot].insert_mut(key, value);
        }
        self.last += 1;
        self.bytes += bytes;
    }

    /// Whether a state of the tables is the one that these commits lie over.
    pub(super) fn lies_over(&self, transaction: &ReadTransaction) -> Result<bool, Fault> {
        Ok(settled(transaction)? == self.settled)
    }

    /// Whether there is nothing to settle.
    pub(super) fn is_empty(&self) -> bool {
        self.last == self.settled
    }

    /// Adds a commit, and writes it: into the journal, or with all the others into the tables.
    pub(super) fn commit(&mut self, transaction: &WriteTransaction, rows: Rows) -> Result<(), Fault> {
        let bytes = rows.encode();
        if self.bytes + bytes.len() <= JOURNAL_BYTES_MAX {
            transaction.open_table(JOURNAL)?.insert(self.last + 1, bytes.as_slice())?;
            self.add(rows, bytes.len());
            return Ok(());
        }
        self.add(rows, bytes.len());
        self.settle(transaction)
    }

    /// Writes all commits into their tables and empties the journal.
    pub(super) fn settle(&mut self, transaction: &WriteTransaction) -> Result<(), Fault> {
        for (slot, rows) in self.tables.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let mut table = transaction.open_table(definition_of(slot))?;
            for (key, value) in rows {
                match value {
                    Some(value) => table.insert(key.as_slice(), &**value)?,
                    None => table.remove(key.as_slice())?,
                };
            }
        }
        *self = Self::none(self.last);
        transaction.delete_table(JOURNAL)?;
        make(transaction, self.last)
    }

    /// The value of a key, if a commit set or ended it.
    pub(super) fn get(&self, slot: usize, key: &[u8]) -> Option<&Value> {
        self.tables[slot].get(key)
    }

    /// All rows of a slot that these commits set or ended.
    pub(super) fn rows(&self, slot: usize) -> impl Iterator<Item = (&Vec<u8>, &Value)> {
        self.tables[slot].iter()
    }

    /// At most `limit` rows with `from <= key < to`, of the table below and these commits over it.
    pub(super) fn range(
        &self,
        slot: usize,
        table: &impl ReadableTable<&'static [u8], &'static [u8]>,
        (from, to): (&[u8], &[u8]),
        order: Order,
        limit: usize,
    ) -> Result<Vec<Row>, Fault> {
        let mut below = table.range::<&[u8]>(from..to)?;
        let below = std::iter::from_fn(|| match order {
            Order::Rising => below.next(),
            Order::Falling => below.next_back(),
        });
        let mut below = below.peekable();
        let mut above = self.tables[slot].range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
        let above = std::iter::from_fn(|| match order {
            Order::Rising => above.next(),
            Order::Falling => above.next_back(),
        });
        let mut above = above.peekable();
        let mut rows = Vec::new();
        while rows.len() < limit {
            // Which comes first; of two for one key, the one above counts.
            let (take_above, take_below) = match (above.peek(), below.peek()) {
                (None, None) => break,
                (None, Some(_)) => (false, true),
                (Some(_), None) => (true, false),
                (Some(_), Some(Err(_))) => (false, true),
                (Some((key, _)), Some(Ok((other, _)))) => {
                    let ordering = key.as_slice().cmp(other.value());
                    let ordering = if order == Order::Rising { ordering } else { ordering.reverse() };
                    (ordering.is_le(), ordering.is_ge())
                }
            };
            let lower = if take_below { below.next().transpose()? } else { None };
            let upper = if take_above { above.next() } else { None };
            match (upper, lower) {
                (Some((key, Some(value))), _) => rows.push((key.clone(), value.to_vec())),
                (Some((_, None)), _) => {}
                (None, Some((key, value))) => rows.push((key.value().to_vec(), value.value().to_vec())),
                (None, None) => {}
            }
        }
        Ok(rows)
    }
}

fn settled(transaction: &ReadTransaction) -> Result<u64, Fault> {
    let row = transaction.open_table(JOURNAL)?.get(SETTLED)?;
    let number = row.and_then(|row| row.value().try_into().ok()).map(u64::from_be_bytes);
    number.ok_or_else(|| Fault::Damaged("the journal does not say where it begins".to_owned()))
}

/// Makes an empty journal after a commit.
pub(super) fn make(transaction: &WriteTransaction, settled: u64) -> Result<(), Fault> {
    transaction.open_table(JOURNAL)?.insert(SETTLED, settled.to_be_bytes().as_slice())?;
    Ok(())
}
