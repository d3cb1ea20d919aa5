//! A store that is damaged: whatever its rows hold, what reads them gives an answer or says that something is wrong.
//!
//! An input edits rows of a sound store, then makes calls as in [`super::act`], each over the result.

use std::ops::Range;
use std::sync::LazyLock;

use arbitrary::Unstructured;
use kwoon_keys::{Digest, Salt, cbor};
use kwoon_ledger::rebuild::Rebuild;
use kwoon_ledger::state::CELLS;
use kwoon_ledger::storage::{Order, Overlay, Read, ReadError, Row, Table};
use kwoon_ledger::time::Duration;
use kwoon_sync::argument;
use minicbor::Decoder;
use minicbor::data::Type;

use super::act::{CALLS_MAX, call_in};
use super::fold::edit_bytes;
use super::world::{NUMBERS, World, shown};

/// Rows that one input edits at most.
const EDITS_MAX: usize = 8;

struct Sound {
    world: World,
    /// The rows of each table, then those of the derived one that are cells: most that is read are these.
    rows: Vec<(Table, Vec<Row>)>,
}

static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let world = World::new();
    let snapshot = world.hall.snapshot();
    let all = |table| snapshot.range(table, &[], &[0xff; 80], Order::Rising, usize::MAX).expect("readable");
    let mut rows = Vec::from(Table::ALL.map(|table| (table, all(table))));
    rows.push((
        Table::Derived,
        snapshot.prefix(Table::Derived, &[CELLS], Order::Rising, usize::MAX).expect("readable"),
    ));
    Sound { world, rows }
});

/// See the module.
pub fn target(input: &[u8]) {
    // Where the input ends, what it says ends.
    let _ = damage(&mut Unstructured::new(input));
}

fn damage(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let (flags, edits): (u8, u8) = (input.arbitrary()?, input.arbitrary()?);
    let mut hall = SOUND.world.hall.fork();
    let sound = hall.snapshot();
    let mut overlay = Overlay::new(&sound);
    for _ in 0..usize::from(edits) % (EDITS_MAX + 1) {
        edit(input, &mut overlay)?;
    }
    let content = if flags & 1 == 0 { None } else { Some(input.bytes(usize::from(flags >> 4).min(input.len()))?) };
    let damaged = Damaged { overlay, content, whole: true };
    if flags & 2 != 0 {
        hall.now = hall.now.after(Duration::days(3));
    }
    if flags & 4 != 0 {
        rebuild(&Damaged { whole: false, ..damaged });
        return Ok(());
    }
    for line in input.bytes(input.len())?.split(|byte| *byte == b'\n').take(CALLS_MAX) {
        let Some((operation, caller, body)) = call_in(&SOUND.world, line) else { continue };
        let Ok(arguments) = argument::read(&body) else { continue };
        let answer = shown(&hall.try_over(&damaged, caller, operation, arguments));
        assert!(answer["ok"].is_boolean(), "{answer:#}");
    }
    Ok(())
}

/// Changes a row, moves it to another key, or removes it.
fn edit(input: &mut Unstructured<'_>, overlay: &mut Overlay<'_>) -> arbitrary::Result<()> {
    let (table, row, kind): (u8, u16, u8) = input.arbitrary()?;
    let (table, rows) = &SOUND.rows[(usize::from(table) % (2 * SOUND.rows.len())).min(SOUND.rows.len() - 1)];
    let Some((key, value)) = rows.get(usize::from(row) % rows.len().max(1)) else { return Ok(()) };
    let (mut key, mut value) = (key.clone(), overlay.get(*table, key).ok().flatten().unwrap_or(value.clone()));
    match kind % 8 {
        0 => {
            overlay.remove(*table, key);
            return Ok(());
        }
        1 => edit_bytes(input, Some(&mut key))?,
        2 => {
            let other = &rows[usize::from(input.arbitrary::<u16>()?) % rows.len()];
            value.clone_from(&other.1);
        }
        3 => value = input.bytes(usize::from(kind >> 3).min(input.len()))?.to_vec(),
        4 => edit_number(input, &mut value)?,
        5 => edit_end(input, &mut value)?,
        6 => edit_end(input, &mut key)?,
        _ => edit_bytes(input, Some(&mut value))?,
    }
    overlay.put(*table, key, value);
    Ok(())
}

/// Puts another number in the place of one in a record.
fn edit_number(input: &mut Unstructured<'_>, value: &mut Vec<u8>) -> arbitrary::Result<()> {
    let places = numbers(value);
    let place = usize::from(input.arbitrary::<u8>()?) % places.len().max(1);
    let number = *input.choose(&NUMBERS)?;
    if let Some(place) = places.get(place) {
        value.splice(place.clone(), cbor::write(&number));
    }
    Ok(())
}

/// Where numbers stand in a record, keys and the numbers of variants among them.
fn numbers(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut decoder = Decoder::new(bytes);
    let mut places = Vec::new();
    while let Ok(kind) = decoder.datatype() {
        let start = decoder.position();
        let passed = match kind {
            Type::Array => decoder.array().map(drop),
            Type::Map => decoder.map().map(drop),
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => decoder.u64().map(drop),
            _ => decoder.skip(),
        };
        if passed.is_err() {
            break;
        }
        if matches!(kind, Type::U8 | Type::U16 | Type::U32 | Type::U64) {
            places.push(start..decoder.position());
        }
    }
    places
}

/// Puts another number in the place of the one with which a key, or a value that is no record, ends.
fn edit_end(input: &mut Unstructured<'_>, bytes: &mut [u8]) -> arbitrary::Result<()> {
    let number = *input.choose(&NUMBERS)?;
    if let Some(end) = bytes.last_chunk_mut() {
        *end = number.to_be_bytes();
    }
    Ok(())
}

/// A rebuild ends, with the derived table or with what is wrong.
fn rebuild(primary: &Damaged<'_>) {
    let mut derived = Overlay::new(primary);
    let mut rebuild = Rebuild::in_steps_of(1024);
    while !rebuild.is_done() {
        let Ok(batch) = rebuild.step(&derived) else { return };
        derived.absorb(batch);
    }
}

/// A damaged store.
struct Damaged<'a> {
    overlay: Overlay<'a>,
    /// What it holds in place of every text.
    content: Option<&'a [u8]>,
    /// Whether the derived table is there.
    whole: bool,
}

impl Damaged<'_> {
    fn holds(&self, table: Table) -> bool {
        self.whole || table != Table::Derived
    }
}

impl Read for Damaged<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        if self.holds(table) { self.overlay.get(table, key) } else { Ok(None) }
    }

    fn range(&self, table: Table, from: &[u8], to: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError> {
        if self.holds(table) { self.overlay.range(table, from, to, order, limit) } else { Ok(Vec::new()) }
    }

    fn content(&self, hash: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        let held = self.overlay.content(hash)?;
        Ok(held.map(|(salt, bytes)| (salt, self.content.map_or(bytes, <[u8]>::to_vec))))
    }
}
