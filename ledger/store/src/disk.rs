//! The store on disk: one redb file, and content files beside it.
//!
//! A commit writes content files and key files first, then one redb transaction. So after a crash every row's content
//! and keys are there; files that no row speaks of are removed at the next open, unless the store was closed.
//!
//! redb compares no checksums when it reads, so a changed byte inside a value is returned as it stands, content
//! excepted: that is checked against its commitment. Whoever reads records verifies their hashes and signatures.

#[cfg(test)]
mod damage;
mod live;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kwoon_keys::{Digest, Salt, files as key_files};
use kwoon_ledger::storage::{Batch, Order, Read, ReadError, Row, Store, Table, WriteError};
use redb::backends::FileBackend;
use redb::{
    Durability, ReadOnlyTable, ReadTransaction, ReadableTableMetadata, StorageBackend, TableDefinition,
    WriteTransaction,
};

use self::live::{Live, Watch};
use crate::content::{self, CONTENT, ContentFiles, Place};
use crate::error::OpenError;
use crate::fault::{Contained, Fault};
use crate::files;
use crate::home::{self, AGENT_KEYS, CLEAN, Home, KEYS, STORE};
use crate::lock::Lock;
use crate::rebuild::{UNDER_WAY, rebuild_if_interrupted};
use crate::{OLDEST_STORE_VERSION, STORE_VERSION, VERSION_KEY};

/// How much of the store is kept in memory, in bytes, unless said otherwise.
pub const CACHE_BYTES_DEFAULT: usize = 64 << 20;

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
    /// Set when a commit has begun, cleared when it is known to be done.
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
        Self::open_in(home.path(), Box::new(backend), cache_bytes, Some(home.lock()), Empty::IsDamaged)
    }

    /// Opens a store whose tables lie in `backend`, for tests that tear or fill it. An empty backend becomes a new
    /// store. Content files, key files and the marker of a clean stop lie in `home_dir`, which must exist, as they
    /// would in a home; no lock is taken.
    ///
    /// # Errors
    /// If the store is damaged or of a newer version. Nothing was changed then.
    pub fn open_with_backend(
        home_dir: &Path,
        backend: impl StorageBackend,
        cache_bytes: usize,
    ) -> Result<Self, OpenError> {
        Self::open_in(home_dir, Box::new(backend), cache_bytes, None, Empty::IsNew)
    }

    fn open_in(
        home: &Path,
        base: Box<dyn StorageBackend>,
        cache_bytes: usize,
        lock: Option<Arc<Lock>>,
        empty: Empty,
    ) -> Result<Self, OpenError> {
        let path = home.join(STORE);
        let at = |fault: Fault| fault.at(home, &path);
        if empty == Empty::IsDamaged && base.len().map_err(|error| OpenError::io(&path, error))? == 0 {
            return Err(at(Fault::Damaged("it is empty".to_owned())));
        }
        let live = Live::open(base, cache_bytes).map_err(at)?;
        // Until the release below, dropping it leaves no trace.
        let transaction = live.begin_read().map(Contained::new).map_err(at)?;
        let version = live.watch.contain(|| version(&transaction)).map_err(at)?;
        match version {
            Some(found @ OLDEST_STORE_VERSION..=STORE_VERSION) => {
                live.watch.contain(|| every_table(&transaction, found)).map_err(at)?;
            }
            Some(found) if found > STORE_VERSION => {
                return Err(OpenError::NewerVersion { path, found, known: STORE_VERSION });
            }
            None if empty == Empty::IsNew => {}
            _ => return Err(at(Fault::Damaged("it states no version that kwoon ever wrote".to_owned()))),
        }
        drop(transaction);
        live.release().map_err(|error| OpenError::io(&path, error))?;
        let store = Self {
            live,
            files: Arc::new(ContentFiles::of(home)),
            home: home.to_owned(),
            unknown: Mutex::new(false),
            _lock: lock,
        };
        // Tables that an older version lacks are made together with the number of this one, before anything reads them.
        if version != Some(STORE_VERSION) {
            store.transact(make_tables).map_err(at)?;
        }
        store.tidy().map_err(|fault| fault.at(home, home))?;
        // Nobody reads a derived table of which a part is missing.
        rebuild_if_interrupted(&store).map_err(|error| OpenError::Rebuild { path, error })?;
        Ok(store)
    }

    /// Removes what a process left that did not close the store.
    fn tidy(&self) -> Result<(), Fault> {
        home::remove_leftovers(&self.home)?;
        if files::remove_if_there(&self.home.join(CLEAN))? {
            // Durable before anything is written: the marker must not come back beside an orphan.
            files::sync_dir(&self.home)?;
            return Ok(());
        }
        let snapshot = self.read()?;
        self.files.sweep(|hash| {
            let key = hash.as_bytes().as_slice();
            self.live.watch.contain(|| Ok(snapshot.parts.content_table()?.get(key)?.is_some()))
        })
    }

    /// Closes the store and marks the stop as clean, so that the next open need not look for orphans. Snapshots that
    /// are still there can no longer be read.
    ///
    /// # Errors
    /// If what is buffered cannot be written. The store is then as after a crash.
    pub fn close(self) -> Result<(), WriteError> {
        let unknown = *self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        self.live.close()?;
        if !unknown {
            key_files::write_private(&self.home.join(CLEAN), b"").map_err(Fault::from)?;
        }
        Ok(())
    }

    /// Drops all rows of the table `Derived` and notes that it is not whole, in one transaction.
    pub(crate) fn begin_rebuild(&self) -> Result<(), WriteError> {
        self.write(
            || Ok(()),
            |transaction| {
                transaction.delete_table(definition(Table::Derived))?;
                transaction.open_table(definition(Table::Derived))?;
                transaction.open_table(definition(Table::Meta))?.insert(UNDER_WAY, [].as_slice())?;
                Ok(())
            },
        )
    }

    /// How much the store holds. Costs a few page reads, however much it is.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn stats(&self) -> Result<StoreStats, ReadError> {
        let snapshot = self.read()?;
        let stats = self.live.watch.contain(|| {
            let mut rows = Vec::new();
            for table in Table::ALL {
                rows.push((table, snapshot.parts.table(table)?.len()?));
            }
            let contents = snapshot.parts.content_table()?.len()?;
            Ok(StoreStats { file_bytes: self.live.length_bytes()?, rows, contents })
        });
        Ok(stats?)
    }

    fn read(&self) -> Result<Snapshot, Fault> {
        let transaction = self.live.begin_read()?;
        let tables = [const { OnceLock::new() }; Table::ALL.len()];
        let parts = Parts { tables, content_table: OnceLock::new(), transaction };
        let watch = self.live.watch.clone();
        Ok(Snapshot { parts: Contained::new(parts), watch, files: Arc::clone(&self.files) })
    }

    /// Runs one write: first what must be on disk before, then a transaction. After a failure of either nothing more
    /// is written until the store is opened anew: redb may or may not have made the transaction durable, and a sync
    /// that failed once says nothing when it is asked again.
    fn write(
        &self,
        before: impl FnOnce() -> Result<(), Fault>,
        work: impl FnOnce(&WriteTransaction) -> Result<(), Fault>,
    ) -> Result<(), WriteError> {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if *unknown {
            let reason = "an earlier commit failed and may or may not be on disk; restart kwoon".to_owned();
            return Err(WriteError { reason });
        }
        if self.live.watch.damage_was_met() {
            return Err(Fault::Damaged("nothing is written to it any more; restore a backup".to_owned()).into());
        }
        *unknown = true;
        before()?;
        self.transact(work)?;
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
                files::make_durable_dir(&self.home.join(dir))?;
            }
        }
        for keys in &batch.keys {
            key_files::write_instance(&home::instance_key_path(&self.home, &keys.agent), keys)?;
        }
        Ok(())
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
        self.write(|| self.write_files(&batch), |transaction| write_rows(transaction, &batch))
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore").field("home", &self.home).finish_non_exhaustive()
    }
}

/// What an empty file means.
#[derive(Clone, Copy, PartialEq)]
enum Empty {
    IsNew,
    IsDamaged,
}

/// Makes the store of a home that is being made.
pub(crate) fn make_store(home: &Path) -> Result<(), OpenError> {
    let path = home.join(STORE);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.map_err(|error| OpenError::io(&path, error))?;
    let backend = FileBackend::new(file).map_err(|error| Fault::from(error).at(home, &path))?;
    let store = DiskStore::open_in(home, Box::new(backend), CACHE_BYTES_DEFAULT, None, Empty::IsNew)?;
    store.live.close().map_err(|fault| fault.at(home, &path))
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
    if table == Table::Quarantine { 2 } else { 1 }
}

/// All tables of a version are there.
fn every_table(transaction: &ReadTransaction, version: u32) -> Result<(), Fault> {
    let tables = Table::ALL.into_iter().filter(|table| since(*table) <= version).map(definition);
    for table in tables.chain([CONTENT_TABLE]) {
        transaction.open_table(table)?;
    }
    Ok(())
}

/// Makes every table that is not there, and states this version.
fn make_tables(transaction: &WriteTransaction) -> Result<(), Fault> {
    for table in Table::ALL.map(definition).into_iter().chain([CONTENT_TABLE]) {
        transaction.open_table(table)?;
    }
    let version = STORE_VERSION.to_be_bytes();
    transaction.open_table(definition(Table::Meta))?.insert(VERSION_KEY, version.as_slice())?;
    Ok(())
}

fn write_rows(transaction: &WriteTransaction, batch: &Batch) -> Result<(), Fault> {
    for table in Table::ALL {
        // Rows are sorted by table first.
        let of_table = batch.rows.range((table, Vec::new())..).take_while(|((of, _), _)| *of == table);
        let mut of_table = of_table.peekable();
        if of_table.peek().is_none() {
            continue;
        }
        let mut open = transaction.open_table(definition(table))?;
        for ((_, key), value) in of_table {
            match value {
                Some(value) => open.insert(key.as_slice(), value.as_slice())?,
                None => open.remove(key.as_slice())?,
            };
        }
    }
    if !batch.content.is_empty() {
        let mut open = transaction.open_table(CONTENT_TABLE)?;
        for (hash, (salt, bytes)) in &batch.content {
            open.insert(hash.as_bytes().as_slice(), content::row(salt, bytes).as_slice())?;
        }
    }
    Ok(())
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
    tables: [OnceLock<ReadTable>; Table::ALL.len()],
    content_table: OnceLock<ReadTable>,
    transaction: ReadTransaction,
}

impl Parts {
    fn table(&self, table: Table) -> Result<&ReadTable, Fault> {
        let place = Table::ALL.iter().position(|other| *other == table).expect("ALL holds every table");
        self.open(&self.tables[place], definition(table))
    }

    fn content_table(&self) -> Result<&ReadTable, Fault> {
        self.open(&self.content_table, CONTENT_TABLE)
    }

    fn open<'a>(&self, place: &'a OnceLock<ReadTable>, definition: Definition<'_>) -> Result<&'a ReadTable, Fault> {
        match place.get() {
            Some(open) => Ok(open),
            None => {
                let open = self.transaction.open_table(definition)?;
                Ok(place.get_or_init(|| open))
            }
        }
    }
}

impl Read for Snapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        let value = self.watch.contain(|| Ok(self.parts.table(table)?.get(key)?.map(|value| value.value().to_vec())));
        Ok(value?)
    }

    fn range(&self, table: Table, from: &[u8], to: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let rows = self.watch.contain(|| {
            let mut range = self.parts.table(table)?.range::<&[u8]>(from..to)?;
            let mut rows = Vec::new();
            while rows.len() < limit {
                let next = match order {
                    Order::Rising => range.next(),
                    Order::Falling => range.next_back(),
                };
                let Some(row) = next else { break };
                let (key, value) = row?;
                rows.push((key.value().to_vec(), value.value().to_vec()));
            }
            Ok(rows)
        });
        Ok(rows?)
    }

    fn content(&self, hash: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        let key = hash.as_bytes().as_slice();
        let row = self.watch.contain(|| Ok(self.parts.content_table()?.get(key)?.map(|row| row.value().to_vec())))?;
        let Some(row) = row else { return Ok(None) };
        let damaged = |what: &str| ReadError::damaged(&format!("the content {hash} {what}"));
        let (salt, place) = content::read_row(&row).ok_or_else(|| damaged("has a row that makes no sense"))?;
        let bytes = match place {
            Place::Inline(bytes) => bytes.to_vec(),
            Place::InFile => self.files.read(hash)?,
        };
        if !content::opens(hash, &salt, &bytes) {
            return Err(damaged("does not open its commitment"));
        }
        Ok(Some((salt, bytes)))
    }
}
