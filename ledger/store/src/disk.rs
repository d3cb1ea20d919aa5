//! The store on disk: one redb file, and content files beside it.
//!
//! A commit writes content files and key files first, then one redb transaction (of the journal, or of all tables; see
//! `journal`). So after a crash every row's content and keys are there; files that no row speaks of are removed at the
//! next open, unless the store was closed.
//!
//! redb compares no checksums when it reads, so a changed byte inside a value is returned as it stands, content
//! excepted: that is checked against its commitment. Whoever reads records verifies their hashes and signatures.

#[cfg(test)]
mod damage;
mod journal;
mod live;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};

use kwoon_keys::files::{self as key_files, FileLayer, Os};
use kwoon_keys::{Digest, Salt};
use kwoon_ledger::storage::{Batch, Order, Read, ReadError, Row, Store, Table, WriteError};
use redb::backends::FileBackend;
use redb::{
    Durability, ReadOnlyTable, ReadTransaction, ReadableTableMetadata, StorageBackend, TableDefinition,
    WriteTransaction,
};

use self::journal::{CONTENT_SLOT, Recent, Rows, SLOTS, definition_of, slot};
pub use self::journal::{JOURNAL_BYTES_DEFAULT, is_journal_row};
use self::live::{Live, Watch};
use crate::content::{self, CONTENT, ContentFiles, Place};
use crate::error::OpenError;
use crate::fault::{Contained, Fault};
use crate::files;
use crate::home::{self, AGENT_KEYS, CLEAN, Home, KEYS, STORE, tokens};
use crate::lock::Lock;
use crate::rebuild::{UNDER_WAY, rebuild_if_interrupted};
use crate::{OLDEST_STORE_VERSION, STORE_VERSION, VERSION_KEY};

/// How much of the store is kept in memory, in bytes, unless said otherwise.
pub const CACHE_BYTES_DEFAULT: usize = 64 << 20;

/// How much memory a store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// How much of the tables is kept in memory, in bytes.
    pub cache_bytes: usize,
    /// How long the journal gets, in bytes.
    pub journal_bytes: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { cache_bytes: CACHE_BYTES_DEFAULT, journal_bytes: JOURNAL_BYTES_DEFAULT }
    }
}

/// Why nothing is written after a commit that failed.
const COMMIT_FAILED: &str = "an earlier commit failed and may or may not be on disk; restart kwoon";

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;
type ReadTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

fn definition(table: Table) -> Definition<'static> {
    Definition::new(table.name())
}

/// The table of content, which no `Table` names: it is read and written by commitment.
const CONTENT_TABLE: Definition<'static> = Definition::new(CONTENT);

/// The store on disk. May be shared between threads: one commits at a time, while others read snapshots.
///
/// Dropping it releases the file but counts as no clean stop; see [`DiskStore::close`]. Once damage was met in the
/// store's file, nothing more is written to it.
pub struct DiskStore {
    live: Live,
    files: Arc<ContentFiles>,
    home: PathBuf,
    layer: Arc<dyn FileLayer>,
    /// What was committed and lies in no table yet. Held for as long as it takes to clone or set it.
    recent: Mutex<Recent>,
    /// The last commit of which rows were being settled. Set before a transaction that settles some is committed.
    settling: AtomicU64,
    /// Set when a commit has begun, cleared when it is known to be done. Held by the one that writes.
    unknown: Mutex<bool>,
    /// Last, so that it is released after the store's own file.
    _lock: Option<Arc<Lock>>,
}

impl DiskStore {
    /// Opens the store of a home, with at most `cache_bytes` of it kept in memory.
    ///
    /// Temporary files that a crash left in the home are removed, and so are orphaned content files unless the store
    /// was closed. A rebuild that a crash interrupted is begun again.
    ///
    /// # Errors
    /// If the store is open already, damaged or of a newer version. Nothing in the home was changed then, except by a
    /// rebuild that failed.
    pub fn open(home: &Home, cache_bytes: usize) -> Result<Self, OpenError> {
        let path = home.path().join(STORE);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|error| OpenError::io(&path, error))?;
        let backend = FileBackend::new(file).map_err(|error| Fault::from(error).at(home.path(), &path))?;
        Self::open_on(home, backend, Sizes { cache_bytes, ..Sizes::default() })
    }

    /// The same with the tables in `backend` instead of the home's file, for tests that let it crash.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_on(home: &Home, backend: impl StorageBackend, sizes: Sizes) -> Result<Self, OpenError> {
        let location = Location { home: home.path(), layer: home.layer(), lock: Some(home.lock()) };
        Self::open_in(location, Box::new(backend), sizes, Empty::IsDamaged)
    }

    /// Opens a store whose tables lie in `backend`, for tests that tear or fill it. An empty backend becomes a new
    /// store. Content files, key files and the marker of a clean stop lie in `home_dir`, which must exist, as they
    /// would in a home; no lock is taken.
    ///
    /// # Errors
    /// If the store is damaged or of a newer version. Nothing was changed then.
    pub fn open_with_backend(home_dir: &Path, backend: impl StorageBackend, sizes: Sizes) -> Result<Self, OpenError> {
        let location = Location { home: home_dir, layer: Arc::new(Os), lock: None };
        Self::open_in(location, Box::new(backend), sizes, Empty::IsNew)
    }

    fn open_in(
        location: Location<'_>,
        base: Box<dyn StorageBackend>,
        Sizes { cache_bytes, journal_bytes }: Sizes,
        empty: Empty,
    ) -> Result<Self, OpenError> {
        let Location { home, layer, lock } = location;
        let path = home.join(STORE);
        let at = |fault: Fault| fault.at(home, &path);
        if empty == Empty::IsDamaged && base.len().map_err(|error| OpenError::io(&path, error))? == 0 {
            return Err(at(Fault::Damaged("it is empty".to_owned())));
        }
        let live = Live::open(base, cache_bytes).map_err(at)?;
        // Until the release below, dropping it leaves no trace.
        let transaction = live.begin_read().map(Contained::new).map_err(at)?;
        let version = live.watch.contain(|| version(&transaction)).map_err(at)?;
        let recent = match version {
            Some(found @ OLDEST_STORE_VERSION..=STORE_VERSION) => {
                let read = || {
                    every_table(&transaction, found)?;
                    // Version 1 had no journal.
                    if found == 1 {
                        Ok(Recent::none(0, journal_bytes))
                    } else {
                        Recent::read(&transaction, journal_bytes)
                    }
                };
                live.watch.contain(read).map_err(at)?
            }
            Some(found) if found > STORE_VERSION => {
                return Err(OpenError::NewerVersion { path, found, known: STORE_VERSION });
            }
            None if empty == Empty::IsNew => Recent::none(0, journal_bytes),
            _ => return Err(at(Fault::Damaged("it states no version that kwoon ever wrote".to_owned()))),
        };
        drop(transaction);
        live.release().map_err(|error| OpenError::io(&path, error))?;
        let store = Self {
            live,
            files: Arc::new(ContentFiles::of(home, Arc::clone(&layer))),
            home: home.to_owned(),
            layer,
            // Whatever rows a crash left in the tables, every snapshot from now on is later.
            settling: AtomicU64::new(0),
            recent: Mutex::new(recent),
            unknown: Mutex::new(false),
            _lock: lock,
        };
        // Tables that an older version lacks are made together with the number of this one, before anything reads them.
        if version != Some(STORE_VERSION) {
            store.transact(|transaction| make_tables(transaction, version)).map_err(at)?;
        }
        let mut recent = store.recent();
        if recent.is_too_long() {
            store.transact(|transaction| recent.settle(transaction)).map_err(at)?;
            *store.recent.lock().unwrap_or_else(PoisonError::into_inner) = recent;
        }
        store.tidy().map_err(|fault| fault.at(home, home))?;
        // Nobody reads a derived table of which a part is missing.
        rebuild_if_interrupted(&store).map_err(|error| OpenError::Rebuild { path, error })?;
        Ok(store)
    }

    /// Removes what a process left that did not close the store.
    fn tidy(&self) -> Result<(), Fault> {
        home::remove_leftovers(&*self.layer, &self.home)?;
        if key_files::remove_if_there(&*self.layer, &self.home.join(CLEAN))? {
            // Durable before anything is written: the marker must not come back beside an orphan.
            self.layer.sync_dir(&self.home)?;
            return Ok(());
        }
        tokens::settle(&*self.layer, &self.home)?;
        let snapshot = self.read()?;
        self.files.sweep(|hash| Ok(snapshot.value(CONTENT_SLOT, hash.as_bytes())?.is_some()))
    }

    /// Closes the store and marks the stop as clean, so that the next open need not look for orphans. Snapshots that
    /// are still there can no longer be read.
    ///
    /// # Errors
    /// If what is buffered cannot be written. The store is then as after a crash.
    pub fn close(self) -> Result<(), WriteError> {
        let unknown = *self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if !unknown && !self.live.watch.damage_was_met() {
            self.settle()?;
        }
        self.live.close()?;
        if !unknown {
            key_files::write_private(&*self.layer, &self.home.join(CLEAN), b"").map_err(Fault::from)?;
        }
        Ok(())
    }

    /// Ends a store that was just made and holds nothing yet.
    pub(crate) fn end(self) -> Result<(), OpenError> {
        let (home, path) = (self.home.clone(), self.home.join(STORE));
        self.live.close().map_err(|fault| fault.at(&home, &path))
    }

    pub(crate) fn home_path(&self) -> &Path {
        &self.home
    }

    /// Writes what lies in the journal into the tables.
    fn settle(&self) -> Result<(), WriteError> {
        if self.recent().is_empty() {
            return Ok(());
        }
        self.write(|recent| self.transact(|transaction| recent.settle(transaction)))
    }

    /// Drops all rows of the table `Derived` and notes that it is not whole, in one transaction.
    pub(crate) fn begin_rebuild(&self) -> Result<(), WriteError> {
        self.write(|recent| {
            self.transact(|transaction| {
                recent.settle(transaction)?;
                transaction.delete_table(definition(Table::Derived))?;
                transaction.open_table(definition(Table::Derived))?;
                transaction.open_table(definition(Table::Meta))?.insert(UNDER_WAY, [].as_slice())?;
                Ok(())
            })
        })
    }

    /// How much the store holds. Costs a few page reads, and one for each row in the journal.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn stats(&self) -> Result<StoreStats, ReadError> {
        let snapshot = self.read()?;
        let mut rows = Vec::new();
        for table in Table::ALL {
            rows.push((table, snapshot.count(slot(table))?));
        }
        let file_bytes = self.live.watch.contain(|| Ok(self.live.length_bytes()?))?;
        Ok(StoreStats { file_bytes, rows, contents: snapshot.count(CONTENT_SLOT)? })
    }

    fn recent(&self) -> Recent {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn read(&self) -> Result<Snapshot, Fault> {
        // Between taking the one and the other, what was committed later may have been settled. Once that commit is done both
        // agree again.
        loop {
            if let Some(snapshot) = self.try_read()? {
                return Ok(snapshot);
            }
            let unknown = match self.unknown.try_lock() {
                Ok(unknown) => unknown,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    std::thread::yield_now();
                    continue;
                }
            };
            // While nobody writes they always agree.
            return self.try_read()?.ok_or_else(|| match *unknown {
                true => Fault::Other(COMMIT_FAILED.to_owned()),
                false => Fault::Damaged("the journal does not begin where the tables end".to_owned()),
            });
        }
    }

    /// A snapshot, if the recent commits and the tables were taken from one state.
    fn try_read(&self) -> Result<Option<Snapshot>, Fault> {
        let recent = self.recent();
        let transaction = self.live.begin_read()?;
        let parts = Contained::new(Parts { tables: [const { OnceLock::new() }; SLOTS], transaction });
        // Read after the transaction has begun: what it can see was announced before.
        let settling = self.settling.load(Ordering::SeqCst);
        if !self.live.watch.contain(|| recent.lies_over(&parts.transaction, settling))? {
            return Ok(None);
        }
        Ok(Some(Snapshot { recent, parts, watch: self.live.watch.clone(), files: Arc::clone(&self.files) }))
    }

    /// Runs one write: first what must be on disk before, then a transaction. After a failure of either nothing more
    /// is written until the store is opened anew: redb may or may not have made the transaction durable, and a sync
    /// that failed once says nothing when it is asked again.
    fn write(&self, work: impl FnOnce(&mut Recent) -> Result<(), Fault>) -> Result<(), WriteError> {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if *unknown {
            return Err(WriteError { reason: COMMIT_FAILED.to_owned() });
        }
        if self.live.watch.damage_was_met() {
            return Err(Fault::Damaged("nothing is written to it any more; restore a backup".to_owned()).into());
        }
        *unknown = true;
        let mut recent = self.recent();
        work(&mut recent)?;
        *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = recent;
        *unknown = false;
        Ok(())
    }

    fn transact(&self, work: impl FnOnce(&WriteTransaction) -> Result<(), Fault>) -> Result<(), Fault> {
        self.live.watch.contain(|| {
            let mut transaction = self.live.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            // After kill -9 the next open loads the allocator's state instead of walking the whole file.
            transaction.set_quick_repair(true);
            work(&transaction)?;
            Ok(transaction.commit()?)
        })
    }

    fn write_files(&self, batch: &Batch) -> Result<(), Fault> {
        content::check(batch)?;
        self.files.write(batch)?;
        if !batch.keys.is_empty() {
            for dir in [KEYS, AGENT_KEYS] {
                files::make_durable_dir(&*self.layer, &self.home.join(dir))?;
            }
        }
        for keys in &batch.keys {
            key_files::write_instance(&*self.layer, &home::instance_key_path(&self.home, &keys.agent), keys)?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl DiskStore {
    /// States a version, as a store of that version would.
    pub(crate) fn set_version(&self, version: &[u8]) {
        let state = |transaction: &WriteTransaction| {
            transaction.open_table(definition(Table::Meta))?.insert(VERSION_KEY, version)?;
            Ok(())
        };
        self.transact(state).unwrap();
    }
}

impl Store for DiskStore {
    type Snapshot = Snapshot;

    fn snapshot(&self) -> Result<Snapshot, ReadError> {
        Ok(self.read()?)
    }

    fn commit(&self, batch: Batch) -> Result<(), WriteError> {
        if batch.is_empty() {
            return Ok(());
        }
        let dropped = batch.dropped.clone();
        self.write(|recent| {
            self.write_files(&batch)?;
            self.transact(|transaction| {
                recent.commit(transaction, Rows::of(batch))?;
                self.settling.fetch_max(recent.settling().unwrap_or(0), Ordering::SeqCst);
                Ok(())
            })
        })?;
        // No row speaks of them any more; what is not removed now is an orphan at the next open.
        self.files.remove(&dropped);
        Ok(())
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore").field("home", &self.home).finish_non_exhaustive()
    }
}

/// Where a store lies, its tables aside.
struct Location<'a> {
    home: &'a Path,
    layer: Arc<dyn FileLayer>,
    lock: Option<Arc<Lock>>,
}

/// What an empty file means.
#[derive(Clone, Copy, PartialEq)]
enum Empty {
    IsNew,
    IsDamaged,
}

/// Makes the store of a home that is being made.
pub(crate) fn make_store(home: &Path, layer: Arc<dyn FileLayer>) -> Result<DiskStore, OpenError> {
    let path = home.join(STORE);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.map_err(|error| OpenError::io(&path, error))?;
    let backend = FileBackend::new(file).map_err(|error| Fault::from(error).at(home, &path))?;
    let location = Location { home, layer, lock: None };
    DiskStore::open_in(location, Box::new(backend), Sizes::default(), Empty::IsNew)
}

/// The version a store states, nothing if nothing was ever committed to it.
fn version(transaction: &ReadTransaction) -> Result<Option<u32>, Fault> {
    if transaction.list_tables()?.next().is_none() {
        return Ok(None);
    }
    let value = transaction.open_table(definition(Table::Meta))?.get(VERSION_KEY)?;
    let version = value.and_then(|value| value.value().try_into().ok()).map(u32::from_be_bytes);
    version.map(Some).ok_or_else(|| Fault::Damaged("it states no version".to_owned()))
}

/// The version of the tables that first had this one.
fn since(table: Table) -> u32 {
    match table {
        Table::Quarantine => 2,
        Table::Outbox | Table::Refusals | Table::Peers | Table::Wanted | Table::Ended | Table::Kept => 3,
        _ => 1,
    }
}

/// All tables of a version are there.
fn every_table(transaction: &ReadTransaction, version: u32) -> Result<(), Fault> {
    let tables = Table::ALL.into_iter().filter(|table| since(*table) <= version).map(definition);
    for table in tables.chain([CONTENT_TABLE]) {
        transaction.open_table(table)?;
    }
    Ok(())
}

/// Makes every table that is not there, and states this version. The rows that an older version derived are others, so
/// they are to be made anew.
fn make_tables(transaction: &WriteTransaction, older: Option<u32>) -> Result<(), Fault> {
    for table in Table::ALL.map(definition).into_iter().chain([CONTENT_TABLE]) {
        transaction.open_table(table)?;
    }
    let version = STORE_VERSION.to_be_bytes();
    transaction.open_table(definition(Table::Meta))?.insert(VERSION_KEY, version.as_slice())?;
    if older.is_some() {
        transaction.open_table(definition(Table::Meta))?.insert(UNDER_WAY, [].as_slice())?;
    }
    // Version 2 had a journal, which goes on.
    if older.is_none_or(|version| version < 2) { journal::make(transaction, 0) } else { Ok(()) }
}

/// How much a store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// The length of the store's file, content files and key files not counted.
    pub file_bytes: u64,
    /// The number of rows of each table.
    pub rows: Vec<(Table, u64)>,
    /// The number of contents held, inline and in files.
    pub contents: u64,
}

/// One state of a [`DiskStore`]. May be shared between threads and read while the store commits.
///
/// While it exists, pages that later commits free are not used again, so long-lived snapshots make the file grow.
pub struct Snapshot {
    recent: Recent,
    parts: Contained<Parts>,
    watch: Watch,
    files: Arc<ContentFiles>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshot")
    }
}

/// Tables are opened when first read: each open looks the table up by name.
struct Parts {
    tables: [OnceLock<ReadTable>; SLOTS],
    transaction: ReadTransaction,
}

impl Parts {
    fn table(&self, slot: usize) -> Result<&ReadTable, Fault> {
        let place = &self.tables[slot];
        match place.get() {
            Some(open) => Ok(open),
            None => {
                let open = self.transaction.open_table(definition_of(slot))?;
                Ok(place.get_or_init(|| open))
            }
        }
    }
}

impl Snapshot {
    fn value(&self, slot: usize, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        match self.recent.get(slot, key) {
            Some(value) => Ok(value.as_ref().map(|value| value.to_vec())),
            None => self.watch.contain(|| Ok(self.parts.table(slot)?.get(key)?.map(|value| value.value().to_vec()))),
        }
    }

    /// The hashes of the contents that are held, from a key on, at most `limit`.
    pub(crate) fn content_hashes(&self, from: &[u8], limit: usize) -> Result<Vec<Digest>, ReadError> {
        let rows = self.rows(CONTENT_SLOT, (from, &[0xff; 33]), Order::Rising, limit)?;
        let hash = |(key, _): Row| key.try_into().map(Digest).map_err(|_| ReadError::damaged("the key of a content"));
        rows.into_iter().map(hash).collect()
    }

    fn rows(&self, slot: usize, range: (&[u8], &[u8]), order: Order, limit: usize) -> Result<Vec<Row>, Fault> {
        self.watch.contain(|| self.recent.range(slot, self.parts.table(slot)?, range, order, limit))
    }

    fn count(&self, slot: usize) -> Result<u64, Fault> {
        self.watch.contain(|| {
            let table = self.parts.table(slot)?;
            let mut count = table.len()?;
            for (key, value) in self.recent.rows(slot) {
                match (table.get(key.as_slice())?.is_some(), value.is_some()) {
                    (false, true) => count += 1,
                    (true, false) => count -= 1,
                    _ => {}
                }
            }
            Ok(count)
        })
    }
}

impl Read for Snapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(self.value(slot(table), key)?)
    }

    fn range(&self, table: Table, from: &[u8], to: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError> {
        if from >= to {
            return Ok(Vec::new());
        }
        Ok(self.rows(slot(table), (from, to), order, limit)?)
    }

    fn content(&self, hash: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        let Some(row) = self.value(CONTENT_SLOT, hash.as_bytes())? else { return Ok(None) };
        let damaged = |what: &str| ReadError::damaged(&format!("the content {hash} {what}"));
        let (salt, place) = content::read_row(&row).ok_or_else(|| damaged("has a row that makes no sense"))?;
        let bytes = match place {
            Place::Inline(bytes) => bytes.to_vec(),
            Place::InFile => match self.files.read(hash)? {
                Some(bytes) => bytes,
                // It was removed since this state was current.
                None => return Ok(None),
            },
        };
        if !content::opens(hash, &salt, &bytes) {
            return Err(damaged("does not open its commitment"));
        }
        Ok(Some((salt, bytes)))
    }
}
