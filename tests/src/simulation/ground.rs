//! What a simulated host stands on: a store in memory, or the one of a daemon on a disk that forgets in a crash what was
//! not synced. Some mistakes are put in here, as if the code above forgot something or wrote it where it should not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kwoon_keys::files::write_pair;
use kwoon_keys::secret::InstanceKeys;
use kwoon_keys::{Digest, Salt, files::Os};
use kwoon_ledger::state::{CELLS, Cell};
use kwoon_ledger::storage::{Batch, Order, Read, ReadError, Row, Store, Table, WriteError};
use kwoon_store::{DiskStore, Home, MemorySnapshot, MemoryStore, OpenMode, Rebuildable, Sizes};
use kwoon_sync::names;
use tempfile::TempDir;

use super::Mistake;
use crate::hall::{Ground, OUTBOX, key_of};
use crate::medium::{Dice, Medium, Survival};
use crate::recorder::Recorder;

/// Small, so that rows are settled from the journal all along.
const SIZES: Sizes = Sizes { cache_bytes: 1 << 20, journal_bytes: 40 << 10 };
/// The first byte of the keys by which requests are found in the derived table.
const REQUESTS: u8 = 0x03;

/// See the module.
pub(super) struct SimulatedStore {
    base: Base,
    mistake: Option<Mistake>,
    /// Whether the last commit failed: the daemon ends then.
    failed: AtomicBool,
}

enum Base {
    Memory(MemoryStore),
    Disk(Box<OnDisk>),
}

struct OnDisk {
    store: DiskStore,
    home: Home,
    recorder: Recorder<()>,
    _dir: TempDir,
}

/// A state of it.
pub(super) struct SimulatedSnapshot {
    base: BaseSnapshot,
    mistake: Option<Mistake>,
}

enum BaseSnapshot {
    Memory(MemorySnapshot),
    Disk(Box<kwoon_store::Snapshot>),
}

impl OnDisk {
    /// Starts on a disk, as a daemon does.
    fn start(medium: Medium) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("home");
        let recorder = Recorder::new(&path, medium, None);
        let home = Home::open_on(&path, OpenMode::Existing, Arc::new(recorder.clone())).expect("a home after a crash");
        let store = DiskStore::open_on(&home, recorder.clone(), SIZES).expect("a store after a crash");
        Self { store, home, recorder, _dir: dir }
    }
}

/// A home in which nothing was done.
fn fresh(seed: &[u8; 32]) -> Medium {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("home");
    Home::open(&path, OpenMode::MakeIfMissing).expect("a new home");
    for kind in ["host", "owner"] {
        let file = path.join(Path::new("keys")).join(format!("{kind}.key"));
        write_pair(&Os, &file, kind, &key_of(seed, kind)).expect("written");
    }
    Medium::of(&path, "store.redb")
}

impl SimulatedStore {
    /// A store of a host with these keys that holds nothing.
    pub(super) fn new(seed: &[u8; 32], on_disk: bool, mistake: Option<Mistake>) -> Self {
        let base = match on_disk {
            true => Base::Disk(Box::new(OnDisk::start(fresh(seed)))),
            false => Base::Memory(MemoryStore::new()),
        };
        Self { base, mistake, failed: AtomicBool::new(false) }
    }

    /// The same with what it holds now, which goes its own way from here; only of one in memory.
    pub(super) fn copy(&self) -> Option<Self> {
        let Base::Memory(store) = &self.base else { return None };
        Some(Self { base: Base::Memory(store.clone()), mistake: self.mistake, failed: AtomicBool::new(false) })
    }

    /// Lets the sync fail that comes after so many more, on a disk.
    pub(super) fn fail_after(&self, syncs: u64) {
        if let Base::Disk(disk) = &self.base {
            let mut tape = disk.recorder.tape();
            tape.fails_at = Some(tape.syncs + syncs);
        }
    }

    /// Lets no sync fail any more.
    pub(super) fn fail_never(&self) {
        if let Base::Disk(disk) = &self.base {
            disk.recorder.tape().fails_at = None;
        }
    }

    /// Whether a commit failed, so that the daemon ends.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The power is cut: what is there then is what a daemon finds that starts again.
    pub(super) fn crash(&mut self, dice: &mut Dice) {
        if let Base::Disk(disk) = &mut self.base {
            let survival = Survival::ALL[dice.below(Survival::ALL.len())];
            let medium = disk.recorder.tape().medium.after_crash(survival, dice.below(1 << 30) as u64);
            **disk = OnDisk::start(medium);
        }
        self.failed.store(false, Ordering::Relaxed);
    }

    /// How many contents are held.
    pub(super) fn contents(&self) -> u64 {
        match &self.base {
            Base::Memory(store) => store.snapshot().expect("readable").contents().count() as u64,
            Base::Disk(disk) => disk.store.stats().expect("readable").contents,
        }
    }
}

impl Rebuildable for SimulatedStore {
    fn begin_rebuild(&self) -> Result<(), WriteError> {
        match &self.base {
            Base::Memory(store) => Rebuildable::begin_rebuild(store),
            Base::Disk(disk) => Rebuildable::begin_rebuild(&disk.store),
        }
    }
}

impl Ground for SimulatedStore {
    fn keys(&self) -> Vec<InstanceKeys> {
        match &self.base {
            Base::Memory(store) => store.keys(),
            Base::Disk(disk) => {
                let snapshot = disk.store.snapshot().expect("readable");
                let known = names::names(&snapshot).expect("readable");
                let keys = disk.home.instance_keys().expect("readable").into_iter();
                keys.filter(|keys| known.iter().any(|(_, agent)| *agent == keys.agent)).collect()
            }
        }
    }
}

/// What a batch becomes where the code makes a mistake.
fn mistaken(mistake: Option<Mistake>, mut batch: Batch) -> Batch {
    let is_owed = |table: Table, key: &[u8]| {
        table == Table::Derived && key.first() == Some(&CELLS) && key.get(5) == Some(&(Cell::Pending as u8))
    };
    let is_of_logs = |table, key: &[u8]| match table {
        Table::Log | Table::Seals => true,
        Table::Derived => key.first().is_none_or(|first| !OUTBOX.contains(first)),
        _ => false,
    };
    let forgets = batch.rows.clone().into_iter().any(|((table, _), _)| table == Table::Ended);
    let keep: &dyn Fn(Table, &[u8], bool) -> bool = match mistake {
        Some(Mistake::KeepsContents) => {
            batch.dropped.clear();
            return batch;
        }
        // A batch in which a log is forgotten forgets nothing.
        Some(Mistake::KeepsEnded) if forgets => {
            batch.dropped.clear();
            &|table, key, put| table != Table::Ended && (put || !is_of_logs(table, key))
        }
        Some(Mistake::EndsTwice) => &|table, key, put| put || !is_owed(table, key),
        Some(Mistake::DerivesLess) => &|table, key, put| !put || !is_owed(table, key),
        _ => return batch,
    };
    let rows = std::mem::take(&mut batch.rows).into_iter();
    batch.rows = rows.filter(|((table, key), row)| keep(*table, key, row.is_some())).collect();
    batch
}

impl Store for SimulatedStore {
    type Snapshot = SimulatedSnapshot;

    fn snapshot(&self) -> Result<SimulatedSnapshot, ReadError> {
        let base = match &self.base {
            Base::Memory(store) => BaseSnapshot::Memory(store.snapshot()?),
            Base::Disk(disk) => BaseSnapshot::Disk(Box::new(disk.store.snapshot()?)),
        };
        Ok(SimulatedSnapshot { base, mistake: self.mistake })
    }

    fn commit(&self, batch: Batch) -> Result<(), WriteError> {
        let batch = mistaken(self.mistake, batch);
        let committed = match &self.base {
            Base::Memory(store) => store.commit(batch),
            Base::Disk(disk) => {
                let committed = disk.store.commit(batch);
                // What the steps were is not asked of a simulation.
                disk.recorder.tape().events.clear();
                committed
            }
        };
        self.failed.store(committed.is_err(), Ordering::Relaxed);
        committed
    }
}

impl SimulatedSnapshot {
    fn base(&self) -> &dyn Read {
        match &self.base {
            BaseSnapshot::Memory(snapshot) => snapshot,
            BaseSnapshot::Disk(snapshot) => &**snapshot,
        }
    }

    fn is_hidden(&self, table: Table, key: &[u8]) -> bool {
        match self.mistake {
            Some(Mistake::ForgetsRequests) => table == Table::Derived && key.first() == Some(&REQUESTS),
            _ => false,
        }
    }

    /// The hashes of the contents, where they can be listed: in memory.
    pub(super) fn listed_contents(&self) -> Vec<Digest> {
        match &self.base {
            BaseSnapshot::Memory(snapshot) => snapshot.contents().copied().collect(),
            BaseSnapshot::Disk(_) => Vec::new(),
        }
    }

    /// Whether a content is held.
    pub(super) fn holds(&self, hash: &Digest) -> bool {
        self.base().content(hash).expect("readable").is_some()
    }
}

impl Read for SimulatedSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        if self.is_hidden(table, key) { Ok(None) } else { self.base().get(table, key) }
    }

    fn range(&self, table: Table, from: &[u8], to: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError> {
        let mut rows = self.base().range(table, from, to, order, limit)?;
        rows.retain(|(key, _)| !self.is_hidden(table, key));
        Ok(rows)
    }

    fn content(&self, hash: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        self.base().content(hash)
    }
}
