//! Quarantine: records from elsewhere of a version or kind that this kwoon does not know. They are kept as they came and
//! shown, and nothing is read from them by guesswork (EV.3, CO.2). What is in quarantine is in no log.

use kwoon_keys::cbor;
use kwoon_keys::id::QuarantineId;
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::index::Short;
use kwoon_ledger::limits::{Limits, QUARANTINE_RECORD_BYTES_MAX};
use kwoon_ledger::storage::{Order, Overlay, Read, ReadError, Table};
use kwoon_ledger::time::Time;
use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::Serialize;

/// First byte of the keys of what is known of the records.
const ABOUT: u8 = 0;
/// First byte of the keys of the records themselves.
const RECORD: u8 = 1;

/// What kind of record it is, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[cbor(index_only)]
pub enum RecordType {
    /// The header of a log file.
    #[n(0)]
    Header,
    /// A further item of a log file.
    #[n(1)]
    Item,
    /// A fact.
    #[n(2)]
    Fact,
    /// A seal.
    #[n(3)]
    Seal,
}

/// Why it is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[cbor(index_only)]
pub enum Reason {
    /// It, or a part of it, is of a version that this kwoon does not know.
    #[n(0)]
    UnknownVersion,
    /// It, or a part of it, is of a kind that this kwoon does not know.
    #[n(1)]
    UnknownKind,
}

/// What is known of a record in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Quarantined {
    /// What kind of record it is.
    #[n(0)]
    pub record: RecordType,
    /// The version that it states, if it states one.
    #[n(1)]
    pub version: Option<u64>,
    /// The log it is said to belong to, if that is known.
    #[n(2)]
    pub object: Option<ObjectId>,
    /// When it came.
    #[n(3)]
    pub received_at: Time,
    /// Why it is not read.
    #[n(4)]
    pub reason: Reason,
    /// Its length.
    #[n(5)]
    pub length_bytes: u64,
}

/// What became of a record that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Keeping {
    /// It is in quarantine now.
    Kept,
    /// It was there already.
    KeptBefore,
    /// It is not kept: there are as many records in quarantine as the limits allow.
    NotKeptFull,
    /// It is not kept: it is longer than one record may be.
    NotKeptTooLong,
}

/// The id of a record in quarantine.
pub fn id_of(record: &[u8]) -> QuarantineId {
    QuarantineId::of(&[record])
}

fn key(first: u8, id: &[u8]) -> Vec<u8> {
    [&[first], id].concat()
}

fn rows(read: &dyn Read, from: &[u8], limit: usize) -> Result<Vec<(QuarantineId, Quarantined)>, ReadError> {
    let damaged = || ReadError::damaged("a row of the quarantine");
    let rows = read.range(Table::Quarantine, &key(ABOUT, from), &[RECORD], Order::Rising, limit)?;
    let rows = rows.into_iter().map(|(key, about)| {
        let id = key[1..].try_into().map_err(|_| damaged())?;
        Ok((QuarantineId(kwoon_keys::Digest(id)), cbor::read_own(&about).map_err(|_| damaged())?))
    });
    rows.collect()
}

/// One page of what is in quarantine, in the order of ids from this one on.
///
/// # Errors
/// If the store cannot be read.
pub fn page(read: &dyn Read, from: &QuarantineId, limit: usize) -> Result<Vec<(QuarantineId, Quarantined)>, ReadError> {
    rows(read, from.as_bytes(), limit)
}

/// How many records are in quarantine, and how many bytes they have.
///
/// # Errors
/// If the store cannot be read.
pub fn totals(read: &dyn Read) -> Result<(u64, u64), ReadError> {
    let all = rows(read, &[], usize::MAX)?;
    Ok((all.len() as u64, all.iter().map(|(_, about)| about.length_bytes).sum()))
}

/// Keeps a record, once, if there is room for it.
///
/// # Errors
/// If the store cannot be read.
pub fn keep(
    overlay: &mut Overlay<'_>,
    limits: &Limits,
    about: &Quarantined,
    record: &[u8],
) -> Result<Keeping, ReadError> {
    let id = id_of(record);
    let key_of_about = key(ABOUT, id.as_bytes());
    if overlay.get(Table::Quarantine, &key_of_about)?.is_some() {
        return Ok(Keeping::KeptBefore);
    }
    if record.len() > QUARANTINE_RECORD_BYTES_MAX {
        return Ok(Keeping::NotKeptTooLong);
    }
    let (records, bytes) = totals(overlay)?;
    let is_full = records >= limits.quarantine_records_max
        || bytes.saturating_add(record.len() as u64) > limits.quarantine_bytes_max;
    if is_full {
        return Ok(Keeping::NotKeptFull);
    }
    overlay.put(Table::Quarantine, key_of_about, cbor::write(about));
    overlay.put(Table::Quarantine, key(RECORD, id.as_bytes()), record.to_vec());
    Ok(Keeping::Kept)
}

/// Removes a record; what was known of it, or nothing if there is none of this id.
///
/// # Errors
/// If the store cannot be read.
pub fn remove(overlay: &mut Overlay<'_>, id: &Short) -> Result<Option<(QuarantineId, Quarantined)>, ReadError> {
    let found = rows(overlay, id, 1)?.into_iter().find(|(full, _)| full.as_bytes().starts_with(id));
    if let Some((full, _)) = &found {
        overlay.remove(Table::Quarantine, key(ABOUT, full.as_bytes()));
        overlay.remove(Table::Quarantine, key(RECORD, full.as_bytes()));
    }
    Ok(found)
}
