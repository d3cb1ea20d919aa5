//! What lies in a home whose daemon has stopped: facts with their signed actions and contents, as the bounds need them.

use std::path::Path;
use std::time::{Duration, Instant};

use kwoon_keys::{PublicKey, RecordKind, cose};
use kwoon_ledger::action::{Action, Actor, Body, Source};
use kwoon_ledger::fact::{Cause, Fact};
use kwoon_ledger::log;
use kwoon_ledger::state::Cells;
use kwoon_ledger::storage::{Order, Read, Store, Table};
use kwoon_store::{CACHE_BYTES_DEFAULT, DiskStore, Home, OpenMode};

use crate::bound::Work;

/// Facts that entries with a text caused, and their signatures.
pub struct Entries {
    /// What each of them is to the bare loop.
    pub work: Vec<Work>,
    /// Signed actions with the keys they verify under.
    pub signed: Vec<(Vec<u8>, PublicKey)>,
    /// Facts for each seal.
    pub batch: usize,
}

impl Entries {
    /// The mean number of bytes that are signed and the content that goes with them.
    pub fn bytes_each(&self) -> usize {
        let total: usize = self.work.iter().map(|work| work.row.len()).sum();
        total / self.work.len()
    }
}

/// Reads at most `limit` entries of a thread from its first on.
pub fn entries(home: &Path, thread: &str, limit: usize) -> Entries {
    let home = Home::open(home, OpenMode::Existing).expect("a home");
    let store = DiskStore::open(&home, CACHE_BYTES_DEFAULT).expect("a store");
    let read = store.snapshot().expect("readable");
    let objects = log::objects(&read, 0, usize::MAX).expect("readable");
    let (number, _) = *objects.iter().find(|(_, object)| object.to_string() == thread).expect("the thread");
    let (from, to) = (log::fact_key(number, 0), log::fact_key(number, u64::MAX));
    let cells = Cells::new(&read, number);
    let mut entries = Entries { work: Vec::new(), signed: Vec::new(), batch: 0 };
    for (_, bytes) in read.range(Table::Log, &from, &to, Order::Rising, limit).expect("readable") {
        let fact = Fact::read(&bytes).expect("a fact");
        let (Cause::Action(signed), Some(action)) = (&fact.cause, log::action_of(&fact)) else { continue };
        let Some(key) = entry_key(&cells, &action) else { continue };
        let Body::EntryPost(post) = &action.body else { continue };
        let Source::New(text) = &post.source else { continue };
        let content = read.content(&text.commitment.hash).expect("readable");
        let (salt, content) = content.expect("its content");
        let mut row = bytes.clone();
        row.extend_from_slice(salt.as_bytes());
        row.extend_from_slice(&content);
        entries.work.push(Work { message: signed.to_vec(), row });
        entries.signed.push((signed.to_vec(), key));
    }
    let seals = [log::seal_key(number, 0, 0), log::seal_key(number, u64::MAX, 0)];
    let seals = read.range(Table::Seals, &seals[0], &seals[1], Order::Rising, usize::MAX).expect("readable").len();
    let head = cells.head().expect("readable").expect("a head");
    entries.batch = (head.index as usize + 1) / seals.max(1);
    drop(read);
    store.close().expect("closed");
    entries
}

fn entry_key(cells: &Cells<'_>, action: &Action) -> Option<PublicKey> {
    let Actor::Agent(agent, instance) = &action.actor else { return None };
    let account = cells.account(agent).expect("readable")?;
    account.instances.iter().find(|known| known.id() == *instance).map(|known| known.signing_key)
}

/// Strictly verifies all signatures; how long it took.
pub fn verify(signed: &[(Vec<u8>, PublicKey)]) -> Duration {
    let started = Instant::now();
    for (bytes, key) in signed {
        cose::verify(RecordKind::Action, bytes, key).expect("what was sealed verifies");
    }
    started.elapsed()
}

/// How many facts all logs hold.
pub fn count(home: &Path) -> u64 {
    let home = Home::open(home, OpenMode::Existing).expect("a home");
    let store = DiskStore::open(&home, CACHE_BYTES_DEFAULT).expect("a store");
    let stats = store.stats().expect("readable");
    store.close().expect("closed");
    let of_log = stats.rows.iter().find(|(table, _)| *table == Table::Log);
    of_log.map_or(0, |(_, rows)| *rows)
}

/// Bytes of the store's file and of all content files.
pub fn disk_bytes(home: &Path) -> u64 {
    let mut total = 0;
    for entry in std::fs::read_dir(home).expect("a home").flatten() {
        let metadata = entry.metadata().expect("a file");
        total += if metadata.is_dir() { disk_bytes(&entry.path()) } else { metadata.len() };
    }
    total
}

/// Where the store's file lies.
pub fn store_path(home: &Path) -> std::path::PathBuf {
    home.join("store.redb")
}
