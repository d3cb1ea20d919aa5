//! The bounds that the daemon is measured against: the least that must be done for what it promises, in this process,
//! with nothing around it. Commits are made as the store makes them: durable at once, with quick repair.

use std::path::Path;
use std::time::{Duration, Instant};

use ed25519_dalek::{Signer, SigningKey};
use redb::{Database, Durability, TableDefinition};

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

/// A fact as the bare loop handles it.
pub struct Work {
    /// What is signed.
    pub message: Vec<u8>,
    /// Everything that is written: the fact around it, and the content.
    pub row: Vec<u8>,
}

fn open(path: &Path) -> Database {
    Database::builder().set_cache_size(kwoon_store::CACHE_BYTES_DEFAULT).create(path).expect("a database")
}

fn commit(database: &Database, next: &mut u64, rows: impl Iterator<Item = Vec<u8>>) {
    let mut transaction = database.begin_write().expect("a transaction");
    transaction.set_durability(Durability::Immediate).expect("durable");
    transaction.set_quick_repair(true);
    {
        let mut table = transaction.open_table(LOG).expect("a table");
        for row in rows {
            table.insert(*next, row.as_slice()).expect("a row");
            *next += 1;
        }
    }
    transaction.commit().expect("a commit");
}

/// Signs, strictly verifies and commits all of the work in batches of this size on one thread; how long it took.
pub fn sign_verify_commit(directory: &Path, work: &[Work], batch: usize) -> Duration {
    let database = open(&directory.join("bare.redb"));
    let key = SigningKey::from_bytes(&[7; 32]);
    let mut next = 0;
    let started = Instant::now();
    for group in work.chunks(batch) {
        let rows = group.iter().map(|work| {
            let signature = key.sign(&work.message);
            key.verifying_key().verify_strict(&work.message, &signature).expect("its own signature");
            let mut row = Vec::with_capacity(work.row.len() + 64);
            row.extend_from_slice(&work.row);
            row.extend_from_slice(&signature.to_bytes());
            row
        });
        commit(&database, &mut next, rows);
    }
    started.elapsed()
}

/// Commits rows of this many bytes one by one; how long each took.
pub fn commits(directory: &Path, bytes: usize, count: usize) -> Vec<Duration> {
    let database = open(&directory.join("single.redb"));
    let mut next = 0;
    let mut one = || {
        let started = Instant::now();
        let row = vec![next as u8; bytes];
        commit(&database, &mut next, std::iter::once(row));
        started.elapsed()
    };
    (0..count).map(|_| one()).collect()
}

/// Opens a store's file and reads from it, with nothing around it; how long it took.
pub fn open_bare(path: &Path) -> Duration {
    let started = Instant::now();
    let database = Database::builder().set_cache_size(kwoon_store::CACHE_BYTES_DEFAULT).open(path).expect("a database");
    let transaction = redb::ReadableDatabase::begin_read(&database).expect("a transaction");
    assert!(transaction.list_tables().expect("tables").next().is_some());
    started.elapsed()
}
