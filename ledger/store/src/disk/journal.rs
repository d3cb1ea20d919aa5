//! The journal: what was committed and does not lie in its tables yet.
//!
//! A commit of a few rows writes one row, the journal's next, instead of a page or more for each of them; the rows are
//! read from memory meanwhile. Once there are many they are settled: sorted, they go into their tables, some with each
//! commit that follows, and when all are there they go out of the journal. So a small commit costs about what one row
//! costs, a page of a table is written once for many rows, and no commit waits for a long settlement. Whatever happens,
//! the tables and the journal over them hold every commit.

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

/// How long the journal gets, in bytes, unless said otherwise. As much may have to be read at the next open, and lies in
/// memory.
pub const JOURNAL_BYTES_DEFAULT: usize = 8 << 20;
/// A commit that would take more than this part of the journal goes into the tables at once.
const LARGE: usize = 8;
/// Rows that a commit settles at least, if any are to be settled.
const STEP_ROWS_MIN: usize = 32;

/// Tables with their own rows: those of [`Table`], and the one of content.
pub(super) const SLOTS: usize = Table::ALL.len() + 1;
/// The slot of content.
pub(super) const CONTENT_SLOT: usize = Table::ALL.len();

/// The place of a table among the slots.
pub(super) fn slot(table: Table) -> usize {
    table as usize
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
        Some(Table::Outbox) => 10,
        Some(Table::Refusals) => 11,
        Some(Table::Peers) => 12,
        Some(Table::Wanted) => 13,
        Some(Table::Ended) => 14,
        Some(Table::Kept) => 15,
    }
}

/// Whether bytes are what a commit may have left in the journal.
pub fn is_journal_row(bytes: &[u8]) -> bool {
    Rows::decode(bytes).is_some()
}

/// A new value, or the end of one.
type Value = Option<Arc<[u8]>>;

/// The rows of one commit: slot, key, and the new value or its end.
pub(super) struct Rows(Vec<(usize, Vec<u8>, Value)>);

impl Rows {
    pub(super) fn of(batch: Batch) -> Self {
        let rows = batch.rows.into_iter().map(|((table, key), value)| (slot(table), key, value.map(Arc::from)));
        let contents = batch.content.into_iter().map(|(hash, (salt, bytes))| {
            (CONTENT_SLOT, hash.as_bytes().to_vec(), Some(content::row(&salt, &bytes).into()))
        });
        let dropped = batch.dropped.into_iter().map(|hash| (CONTENT_SLOT, hash.as_bytes().to_vec(), None));
        Self(rows.chain(contents).chain(dropped).collect())
    }

    /// How long the keys and values are.
    fn length(&self) -> usize {
        self.0.iter().map(|(_, key, value)| key.len() + value.as_ref().map_or(0, |value| value.len())).sum()
    }

    /// Writes the rows into their tables.
    fn write(&self, transaction: &WriteTransaction) -> Result<(), Fault> {
        for rows in self.0.chunk_by(|(one, ..), (other, ..)| one == other) {
            let mut table = transaction.open_table(definition_of(rows[0].0))?;
            for (_, key, value) in rows {
                write(&mut table, key, value)?;
            }
        }
        Ok(())
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

/// What a commit made of a key.
#[derive(Clone)]
struct Change {
    /// The commit's number.
    commit: u64,
    value: Value,
}

/// The commits that lie in the journal, one over the other, but for rows that their tables hold already. A clone stays as
/// it is and costs next to nothing.
#[derive(Clone)]
pub(super) struct Recent {
    tables: [RedBlackTreeMapSync<Vec<u8>, Change>; SLOTS],
    /// The last commit that was settled.
    settled: u64,
    /// The last commit.
    last: u64,
    /// How long the journal is, as far as it is not being settled.
    bytes: usize,
    bytes_max: usize,
    settling: Option<Settling>,
}

/// How far the settlement of some commits has come.
#[derive(Clone)]
struct Settling {
    /// The last of them.
    last: u64,
    /// How many rows there were when it began.
    rows: usize,
    slot: usize,
    /// The last key of the slot that was looked at.
    after: Option<Vec<u8>>,
}

impl Recent {
    /// No commits since the one of this number, of a journal of at most so many bytes.
    pub(super) fn none(settled: u64, bytes_max: usize) -> Self {
        let tables = std::array::from_fn(|_| RedBlackTreeMapSync::new_sync());
        Self { tables, settled, last: settled, bytes: 0, bytes_max, settling: None }
    }

    /// The journal of a store that has one.
    pub(super) fn read(transaction: &ReadTransaction, bytes_max: usize) -> Result<Self, Fault> {
        let damaged = |what: &str| Fault::Damaged(format!("the journal {what}"));
        let mut recent = Self::none(settled(transaction)?, bytes_max);
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
        self.last += 1;
        for (slot, key, value) in rows.0 {
            self.tables[slot].insert_mut(key, Change { commit: self.last, value });
        }
        self.bytes += bytes;
    }

    /// Whether these commits over a state of the tables give the state after the last of them: no row of the tables may be
    /// of a later commit. `settling` is the last commit of which rows were being settled, so far.
    pub(super) fn lies_over(&self, transaction: &ReadTransaction, settling: u64) -> Result<bool, Fault> {
        Ok(settling <= self.last && (self.settled..=self.last).contains(&settled(transaction)?))
    }

    /// The last commit of which rows are being settled, if any are.
    pub(super) fn settling(&self) -> Option<u64> {
        self.settling.as_ref().map(|settling| settling.last)
    }

    /// Whether it grew beyond its bound, because settlements were begun again and again and never came to their end.
    pub(super) fn is_too_long(&self) -> bool {
        self.bytes > self.bytes_max
    }

    #[cfg(test)]
    pub(super) fn length(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn is_settled_further_than(&self, other: &Self) -> bool {
        self.settled > other.settled
    }

    /// Whether there is nothing to settle.
    pub(super) fn is_empty(&self) -> bool {
        self.last == self.settled
    }

    /// Adds a commit and writes it into the journal, and settles some rows of earlier ones if it is time to. A large
    /// commit goes into the tables, with all before it.
    pub(super) fn commit(&mut self, transaction: &WriteTransaction, rows: Rows) -> Result<(), Fault> {
        if rows.length() > self.bytes_max / LARGE {
            self.settle(transaction)?;
            self.last += 1;
            self.settled = self.last;
            make(transaction, self.settled)?;
            return rows.write(transaction);
        }
        let bytes = rows.encode();
        // One half is being settled while the other fills.
        let half = self.bytes_max / 2;
        if self.bytes + bytes.len() > half {
            self.settle_some(transaction, usize::MAX)?;
            self.begin_to_settle();
        }
        if let Some(settling) = &self.settling {
            // Twice the pace at which the other half fills, so that it is done by the time that half is full.
            let share = settling.rows.saturating_mul(2).saturating_mul(bytes.len()) / half;
            self.settle_some(transaction, share.max(STEP_ROWS_MIN))?;
        }
        self.add(rows, bytes.len());
        transaction.open_table(JOURNAL)?.insert(self.last, bytes.as_slice())?;
        Ok(())
    }

    fn begin_to_settle(&mut self) {
        let rows = self.tables.iter().map(RedBlackTreeMapSync::size).sum();
        self.settling = Some(Settling { last: self.last, rows, slot: 0, after: None });
        self.bytes = 0;
    }

    /// Goes on with the settlement that is under way, if there is one: at most so many rows.
    fn settle_some(&mut self, transaction: &WriteTransaction, mut limit: usize) -> Result<(), Fault> {
        let Some(mut settling) = self.settling.take() else { return Ok(()) };
        while settling.slot < SLOTS && limit > 0 {
            let after = settling.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let rows = self.tables[settling.slot].range::<[u8], _>((after, Bound::Unbounded)).take(limit);
            let rows: Vec<(Vec<u8>, Change)> = rows.map(|(key, change)| (key.clone(), change.clone())).collect();
            limit -= rows.len();
            let Some((last, _)) = rows.last() else {
                settling.slot += 1;
                settling.after = None;
                continue;
            };
            settling.after = Some(last.clone());
            let mut table = transaction.open_table(definition_of(settling.slot))?;
            // What a later commit changed again is settled with that one.
            for (key, change) in rows.into_iter().filter(|(_, change)| change.commit <= settling.last) {
                write(&mut table, &key, &change.value)?;
                self.tables[settling.slot].remove_mut(&key);
            }
        }
        if settling.slot < SLOTS {
            self.settling = Some(settling);
            return Ok(());
        }
        let mut journal = transaction.open_table(JOURNAL)?;
        for number in self.settled + 1..=settling.last {
            journal.remove(number)?;
        }
        drop(journal);
        self.settled = settling.last;
        make(transaction, self.settled)
    }

    /// Writes all commits into their tables and empties the journal.
    pub(super) fn settle(&mut self, transaction: &WriteTransaction) -> Result<(), Fault> {
        for (slot, rows) in self.tables.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let mut table = transaction.open_table(definition_of(slot))?;
            for (key, change) in rows {
                write(&mut table, key, &change.value)?;
            }
        }
        *self = Self::none(self.last, self.bytes_max);
        transaction.delete_table(JOURNAL)?;
        make(transaction, self.last)
    }

    /// The value of a key, if a commit set or ended it.
    pub(super) fn get(&self, slot: usize, key: &[u8]) -> Option<&Value> {
        self.tables[slot].get(key).map(|change| &change.value)
    }

    /// All rows of a slot that these commits set or ended.
    pub(super) fn rows(&self, slot: usize) -> impl Iterator<Item = (&Vec<u8>, &Value)> {
        self.tables[slot].iter().map(|(key, change)| (key, &change.value))
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
        let above = self.tables[slot].range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)));
        let mut above = above.map(|(key, change)| (key, &change.value));
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

fn write(table: &mut redb::Table<'_, &[u8], &[u8]>, key: &[u8], value: &Value) -> Result<(), Fault> {
    match value {
        Some(value) => table.insert(key, &**value)?,
        None => table.remove(key)?,
    };
    Ok(())
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
