//! What this host is entitled to and has not got yet: contents by the fact that commits to them, and whole objects.

use alloc::vec::Vec;

use kwoon_keys::cbor;

use crate::action::ObjectId;
use crate::state::ObjectNumber;
use crate::storage::{Order, Overlay, Read, ReadError, Table};

const CONTENT: u8 = 0;
const OBJECT: u8 = 1;
const LEAVING: u8 = 2;
const BEHIND: u8 = 3;

/// Stands for the log that refers to a wanted object, where there is none: any host may have it.
pub const OF_ANYONE: ObjectNumber = ObjectNumber::MAX;

fn content_key(number: ObjectNumber, index: u64) -> Vec<u8> {
    [&[CONTENT][..], &number.to_be_bytes(), &index.to_be_bytes()].concat()
}

fn object_key(object: &ObjectId) -> Vec<u8> {
    [&[OBJECT][..], &cbor::write(object)].concat()
}

fn damaged() -> ReadError {
    ReadError::damaged("what is wanted from other hosts")
}

/// Notes that contents of a fact are missing here, or that none is any more.
pub fn set_contents(overlay: &mut Overlay<'_>, number: ObjectNumber, index: u64, wanted: bool) {
    let key = content_key(number, index);
    if wanted {
        overlay.put(Table::Wanted, key, Vec::new());
    } else {
        overlay.remove(Table::Wanted, key);
    }
}

/// Whether it is noted that contents of a fact are missing here.
///
/// # Errors
/// If the store cannot be read.
pub fn has_contents(read: &dyn Read, number: ObjectNumber, index: u64) -> Result<bool, ReadError> {
    Ok(read.get(Table::Wanted, &content_key(number, index))?.is_some())
}

/// Facts of which contents are missing, after one, at most `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn contents(
    read: &dyn Read,
    after: Option<(ObjectNumber, u64)>,
    limit: usize,
) -> Result<Vec<(ObjectNumber, u64)>, ReadError> {
    let mut from = after.map_or(alloc::vec![CONTENT], |(number, index)| content_key(number, index));
    if after.is_some() {
        from.push(0);
    }
    let rows = read.range(Table::Wanted, &from, &[CONTENT + 1], Order::Rising, limit)?;
    rows.into_iter()
        .map(|(key, _)| {
            let (number, index) = key[1..].split_first_chunk().ok_or_else(damaged)?;
            let index = index.try_into().map_err(|_| damaged())?;
            Ok((ObjectNumber::from_be_bytes(*number), u64::from_be_bytes(index)))
        })
        .collect()
}

/// Removes every note about contents of a log.
///
/// # Errors
/// If the store cannot be read.
pub fn clear_log(overlay: &mut Overlay<'_>, number: ObjectNumber) -> Result<(), ReadError> {
    let prefix = [&[CONTENT][..], &number.to_be_bytes()].concat();
    for (key, _) in overlay.prefix(Table::Wanted, &prefix, Order::Rising, usize::MAX)? {
        overlay.remove(Table::Wanted, key);
    }
    set_leaving(overlay, number, false);
    overlay.remove(Table::Wanted, [&[BEHIND][..], &number.to_be_bytes()].concat());
    Ok(())
}

/// Notes that a log is here only until the host that orders it now has all of it, or that it is here no more.
pub fn set_leaving(overlay: &mut Overlay<'_>, number: ObjectNumber, leaving: bool) {
    let key = [&[LEAVING][..], &number.to_be_bytes()].concat();
    if leaving {
        overlay.put(Table::Wanted, key, Vec::new());
    } else {
        overlay.remove(Table::Wanted, key);
    }
}

/// Notes that a log comes here anew that ended for this host once, at an index: until it has come that far again, this host
/// does not know what became of it, whoever orders it by what is here.
pub fn set_behind(overlay: &mut Overlay<'_>, number: ObjectNumber, index: u64) {
    let key = [&[BEHIND][..], &number.to_be_bytes()].concat();
    overlay.put(Table::Wanted, key, index.to_be_bytes().to_vec());
}

/// The logs of which that is noted.
///
/// # Errors
/// If the store cannot be read.
pub fn all_behind(read: &dyn Read) -> Result<Vec<ObjectNumber>, ReadError> {
    let rows = read.range(Table::Wanted, &[BEHIND], &[BEHIND + 1], Order::Rising, usize::MAX)?;
    let number = |key: &[u8]| key[1..].try_into().map(ObjectNumber::from_be_bytes).map_err(|_| damaged());
    rows.iter().map(|(key, _)| number(key)).collect()
}

/// The index up to which a log has to come before this host may order it; nothing if it always may.
///
/// # Errors
/// If the store cannot be read.
pub fn behind(read: &dyn Read, number: ObjectNumber) -> Result<Option<u64>, ReadError> {
    let row = read.get(Table::Wanted, &[&[BEHIND][..], &number.to_be_bytes()].concat())?;
    row.map(|row| crate::state::number_at_end(&row)).transpose()
}

/// Logs that are here only until the hosts that order them now have all of them, at most `limit`.
///
/// # Errors
/// If the store cannot be read.
pub fn leaving(read: &dyn Read, limit: usize) -> Result<Vec<ObjectNumber>, ReadError> {
    let rows = read.range(Table::Wanted, &[LEAVING], &[LEAVING + 1], Order::Rising, limit)?;
    rows.into_iter()
        .map(|(key, _)| key[1..].try_into().map(ObjectNumber::from_be_bytes).map_err(|_| damaged()))
        .collect()
}

/// Notes that an object is wanted, because the log of this number refers to it.
pub fn want_object(overlay: &mut Overlay<'_>, object: &ObjectId, referrer: ObjectNumber) {
    overlay.put(Table::Wanted, object_key(object), referrer.to_be_bytes().to_vec());
}

/// Notes that an object is here, or no longer wanted.
pub fn clear_object(overlay: &mut Overlay<'_>, object: &ObjectId) {
    overlay.remove(Table::Wanted, object_key(object));
}

/// The log that refers to a wanted object; nothing if it is not wanted.
///
/// # Errors
/// If the store cannot be read.
pub fn object(read: &dyn Read, object: &ObjectId) -> Result<Option<ObjectNumber>, ReadError> {
    let row = read.get(Table::Wanted, &object_key(object))?;
    row.map(|row| row.as_slice().try_into().map(ObjectNumber::from_be_bytes).map_err(|_| damaged())).transpose()
}

/// Objects that are wanted, after one, at most `limit`, each with the log that refers to it.
///
/// # Errors
/// If the store cannot be read.
pub fn objects(
    read: &dyn Read,
    after: Option<&ObjectId>,
    limit: usize,
) -> Result<Vec<(ObjectId, ObjectNumber)>, ReadError> {
    let mut from = after.map_or(alloc::vec![OBJECT], object_key);
    if after.is_some() {
        from.push(0);
    }
    let rows = read.range(Table::Wanted, &from, &[OBJECT + 1], Order::Rising, limit)?;
    rows.into_iter()
        .map(|(key, row)| {
            let object = cbor::read_own(&key[1..]).map_err(|_| damaged())?;
            let referrer = row.as_slice().try_into().map_err(|_| damaged())?;
            Ok((object, ObjectNumber::from_be_bytes(referrer)))
        })
        .collect()
}
