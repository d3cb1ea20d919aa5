//! Tests of what a store does when the disk fails or lies.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use kwoon_keys::Commitment;
use redb::backends::InMemoryBackend;

use super::*;
use crate::fault::DISK_FULL;

/// Little memory, so that the disk is read.
const SMALL: Sizes = Sizes { cache_bytes: 1 << 20, journal_bytes: 4 << 10 };

/// A disk in memory that outlives the store on it and can be made full.
#[derive(Clone, Debug, Default)]
struct Disk {
    bytes: Arc<InMemoryBackend>,
    full: Arc<AtomicBool>,
}

impl Disk {
    fn open(&self, home: &Path) -> Result<DiskStore, OpenError> {
        DiskStore::open_with_backend(home, self.clone(), SMALL)
    }

    fn all(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes.len().unwrap() as usize];
        StorageBackend::read(&*self.bytes, 0, &mut bytes).unwrap();
        bytes
    }

    fn of(bytes: &[u8]) -> Self {
        let disk = Self::default();
        disk.bytes.set_len(bytes.len() as u64).unwrap();
        StorageBackend::write(&*disk.bytes, 0, bytes).unwrap();
        disk
    }

    fn room(&self) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        StorageBackend::read(&*self.bytes, offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room()?;
        self.bytes.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room()?;
        StorageBackend::write(&*self.bytes, offset, data)
    }
}

fn row(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::default();
    batch.rows.insert((Table::Log, key.to_vec()), Some(value.to_vec()));
    batch
}

#[test]
fn after_a_failed_commit_nothing_is_written_until_a_new_open() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::default();
    let store = disk.open(dir.path()).unwrap();
    store.commit(row(b"a", b"1")).unwrap();
    disk.full.store(true, Ordering::Relaxed);
    let error = store.commit(row(b"b", &[2; 100_000])).unwrap_err();
    assert!(error.reason.starts_with(DISK_FULL), "{error}");
    disk.full.store(false, Ordering::Relaxed);
    let error = store.commit(row(b"c", b"3")).unwrap_err();
    assert!(error.reason.contains("earlier commit failed"), "{error}");
    assert!(store.begin_rebuild().unwrap_err().reason.contains("earlier commit failed"));
    drop(store);
    assert!(!dir.path().join(CLEAN).exists());
    let store = disk.open(dir.path()).unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.get(Table::Log, b"a").unwrap().unwrap(), b"1");
    assert_eq!(snapshot.get(Table::Log, b"b").unwrap(), None);
    store.commit(row(b"c", b"3")).unwrap();
}

#[test]
fn content_that_cannot_be_written_keeps_its_rows_out() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::default();
    let store = disk.open(dir.path()).unwrap();
    fs::write(dir.path().join(CONTENT), "in the way").unwrap();
    let salt = Salt::new([0; 32]);
    let mut batch = row(b"a", b"1");
    batch.content.insert(Commitment::to(&salt, &[1; 5000]).hash, (salt, vec![1; 5000]));
    store.commit(batch).unwrap_err();
    assert_eq!(store.snapshot().unwrap().get(Table::Log, b"a").unwrap(), None);
    assert!(store.commit(row(b"b", b"2")).unwrap_err().reason.contains("earlier commit failed"));
    store.close().unwrap();
    assert!(!dir.path().join(CLEAN).exists(), "orphans may have been left");
}

#[test]
fn a_full_disk_at_open_is_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::default();
    disk.full.store(true, Ordering::Relaxed);
    assert!(matches!(disk.open(dir.path()), Err(OpenError::DiskFull { .. })));
    disk.full.store(false, Ordering::Relaxed);
    disk.open(dir.path()).unwrap();
}

#[test]
fn nothing_reaches_the_disk_of_a_store_that_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::default();
    let store = disk.open(dir.path()).unwrap();
    for version in [&(STORE_VERSION + 1).to_be_bytes()[..], &[0; 4], b"", b"long value"] {
        store.set_version(version);
        let before = disk.all();
        let copy = Disk::of(&before);
        let error = copy.open(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::NewerVersion { .. } | OpenError::Damaged { .. }), "{error}");
        assert!(copy.all() == before);
    }
}

/// Reads all there is; how often that failed.
fn read_all(store: &DiskStore) -> usize {
    let mut failures = 0;
    let Ok(snapshot) = store.snapshot() else { return 1 };
    for table in Table::ALL {
        for order in [Order::Rising, Order::Falling] {
            failures += usize::from(snapshot.prefix(table, b"", order, 10_000).is_err());
        }
        failures += usize::from(snapshot.get(table, &[5, 5]).is_err());
    }
    failures += usize::from(snapshot.content(&Digest([5; 32])).is_err());
    failures += usize::from(store.stats().is_err());
    failures
}

/// Ends a store on a damaged disk. If the damage was met, that writes nothing; if it was not, redb must not be let
/// close the store, since damage that it meets first while it writes can end the process.
fn end(store: DiskStore, disk: &Disk, damage_was_met: bool) {
    if damage_was_met {
        let before = disk.all();
        let error = store.commit(row(b"a", b"1")).unwrap_err();
        assert!(error.reason.starts_with("damaged"), "{error}");
        let error = store.close().unwrap_err();
        assert!(error.reason.starts_with("damaged"), "{error}");
        assert!(disk.all() == before, "it was changed");
    } else {
        std::mem::forget(store);
    }
}

type Damage = fn(&mut [u8]);

const DAMAGES: [Damage; 4] = [
    |page| page.fill(0),
    |page| page.fill(0xff),
    |page| page[..64].iter_mut().for_each(|byte| *byte ^= 0x55),
    |page| page.rotate_left(7),
];

const PAGE: usize = 4096;

/// Where the pages begin that are not all zero. The others are free.
fn used_pages(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len() / PAGE).map(|n| n * PAGE).filter(|at| bytes[*at..][..PAGE] != [0; PAGE]).collect()
}

/// A store of some pages, and its disk.
fn filled(home: &Path) -> (Disk, DiskStore) {
    let disk = Disk::default();
    let store = disk.open(home).unwrap();
    for n in 0..60u8 {
        let mut batch = Batch::default();
        for table in [Table::Log, Table::Arrivals, Table::Derived] {
            batch.rows.insert((table, vec![n, n]), Some(vec![n; usize::from(n) * 40]));
        }
        store.commit(batch).unwrap();
    }
    (disk, store)
}

/// Keeps what redb says of its panics in this thread out of the output.
fn hush() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    thread_local!(static HUSHED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let of_redb = info.location().is_some_and(|at| !at.file().contains("damage.rs"));
            if !(of_redb && HUSHED.get()) {
                hook(info);
            }
        }));
    });
    HUSHED.set(true);
}

#[test]
fn a_page_that_is_damaged_before_the_open_gives_an_error_and_no_panic() {
    hush();
    let dir = tempfile::tempdir().unwrap();
    let (disk, store) = filled(dir.path());
    let crashed = disk.all();
    store.close().unwrap();
    let mut refused = 0;
    for good in [disk.all(), crashed] {
        for page in used_pages(&good) {
            for damage in DAMAGES {
                let mut bytes = good.clone();
                damage(&mut bytes[page..page + PAGE]);
                let damaged = Disk::of(&bytes);
                match damaged.open(dir.path()) {
                    Ok(store) => {
                        let failed = read_all(&store);
                        end(store, &damaged, failed > 0);
                    }
                    Err(error) => {
                        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
                        assert!(damaged.all() == bytes, "it was changed");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn a_page_that_is_damaged_under_an_open_store_gives_an_error_and_no_panic() {
    hush();
    let dir = tempfile::tempdir().unwrap();
    let (disk, store) = filled(dir.path());
    store.close().unwrap();
    let good = disk.all();
    let mut failures = 0;
    for page in used_pages(&good) {
        for damage in DAMAGES {
            let disk = Disk::of(&good);
            // Without a cache, so that every page is read again.
            let store =
                DiskStore::open_with_backend(dir.path(), disk.clone(), Sizes { cache_bytes: 0, ..Sizes::default() })
                    .unwrap();
            let mut bytes = disk.all();
            damage(&mut bytes[page..page + PAGE]);
            StorageBackend::write(&*disk.bytes, page as u64, &bytes[page..page + PAGE]).unwrap();
            let failed = read_all(&store);
            end(store, &disk, failed > 0);
            failures += failed;
        }
    }
    assert!(failures > 0);
}
