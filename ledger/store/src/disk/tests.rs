use std::fs;

use kwoon_keys::id::AgentId;
use kwoon_keys::secret::{InstanceKeys, RequestSecret};
use kwoon_keys::{Commitment, KeyPair, SealedBoxKey};
use kwoon_ledger::storage::Overlay;
use tempfile::TempDir;

use super::*;
use crate::content::INLINE_BYTES_MAX;
use crate::home::OpenMode;
use crate::memory::MemoryStore;

struct At {
    dir: TempDir,
    home: Home,
}

impl At {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(&dir.path().join("home"), OpenMode::MakeIfMissing).unwrap();
        Self { dir, home }
    }

    fn open(&self) -> DiskStore {
        DiskStore::open(&self.home, CACHE_BYTES_DEFAULT).unwrap()
    }

    /// The same with a journal of at most so many bytes.
    fn open_with_journal(&self, journal_bytes: usize) -> DiskStore {
        let file = OpenOptions::new().read(true).write(true).open(self.path(STORE)).unwrap();
        let backend = FileBackend::new(file).unwrap();
        DiskStore::open_on(&self.home, backend, Sizes { journal_bytes, ..Sizes::default() }).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("home").join(name)
    }
}

fn put(batch: &mut Batch, table: Table, key: &[u8], value: &[u8]) {
    batch.rows.insert((table, key.to_vec()), Some(value.to_vec()));
}

fn row(table: Table, key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::default();
    put(&mut batch, table, key, value);
    batch
}

fn with_content(batch: &mut Batch, bytes: &[u8]) -> Digest {
    let salt = Salt::new([bytes.len() as u8; 32]);
    let hash = Commitment::to(&salt, bytes).hash;
    batch.content.insert(hash, (salt, bytes.to_vec()));
    hash
}

#[test]
fn the_store_and_its_snapshots_may_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<DiskStore>();
    shared::<Snapshot>();
    shared::<MemoryStore>();
    shared::<crate::memory::MemorySnapshot>();
}

#[test]
fn rows_are_there_after_a_stop_without_a_close() {
    let at = At::new();
    let store = at.open();
    let mut batch = row(Table::Log, b"a", b"1");
    put(&mut batch, Table::Log, b"b", b"2");
    put(&mut batch, Table::Seals, b"a", b"3");
    put(&mut batch, Table::Seals, b"", b"empty key");
    store.commit(batch).unwrap();
    let mut batch = row(Table::Log, b"a", b"new");
    batch.rows.insert((Table::Log, b"b".to_vec()), None);
    batch.rows.insert((Table::Log, b"never there".to_vec()), None);
    store.commit(batch).unwrap();
    drop(store);
    let store = at.open();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.get(Table::Log, b"a").unwrap().unwrap(), b"new");
    assert_eq!(snapshot.get(Table::Log, b"b").unwrap(), None);
    assert_eq!(snapshot.get(Table::Seals, b"").unwrap().unwrap(), b"empty key");
    assert_eq!(snapshot.get(Table::Derived, b"a").unwrap(), None);
}

/// Makes the store a whole one of version 1, as kwoon wrote it before there was a quarantine.
fn make_first_version(at: &At, without: &str) {
    let database = redb::Database::open(at.path(STORE)).unwrap();
    let transaction = database.begin_write().unwrap();
    assert!(transaction.delete_table(definition(Table::Quarantine)).unwrap());
    transaction.delete_table(Definition::new(without)).unwrap();
    transaction
        .open_table(definition(Table::Meta))
        .unwrap()
        .insert(VERSION_KEY, 1u32.to_be_bytes().as_slice())
        .unwrap();
    transaction.commit().unwrap();
}

#[test]
fn a_store_of_the_first_version_gets_its_new_table_when_it_is_opened() {
    let at = At::new();
    let store = at.open();
    let mut batch = row(Table::Log, b"a", b"1");
    put(&mut batch, Table::Quarantine, b"q", b"lost with its table");
    store.commit(batch).unwrap();
    store.close().unwrap();
    make_first_version(&at, "no such table");
    let store = at.open();
    store.commit(row(Table::Quarantine, b"r", b"2")).unwrap();
    drop(store);
    let store = at.open();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.get(Table::Meta, VERSION_KEY).unwrap().unwrap(), STORE_VERSION.to_be_bytes());
    assert_eq!(snapshot.get(Table::Log, b"a").unwrap().unwrap(), b"1");
    assert_eq!(snapshot.get(Table::Quarantine, b"q").unwrap(), None);
    assert_eq!(snapshot.get(Table::Quarantine, b"r").unwrap().unwrap(), b"2");
}

#[test]
fn a_store_of_the_first_version_that_is_not_whole_is_refused_and_left_as_it_is() {
    let at = At::new();
    at.open().close().unwrap();
    make_first_version(&at, Table::Seals.name());
    let before = fs::read(at.path(STORE)).unwrap();
    let error = DiskStore::open(&at.home, CACHE_BYTES_DEFAULT).unwrap_err();
    assert!(error.to_string().contains("the table seals is missing"), "{error}");
    assert!(fs::read(at.path(STORE)).unwrap() == before, "it was changed");
}

#[test]
fn a_snapshot_of_a_store_that_was_dropped_gives_an_error() {
    let at = At::new();
    let store = at.open();
    store.commit(row(Table::Log, b"a", b"1")).unwrap();
    store.settle().unwrap();
    let snapshot = store.snapshot().unwrap();
    drop(store);
    assert!(snapshot.get(Table::Log, b"a").is_err());
}

#[test]
fn a_large_commit_goes_into_the_tables_with_all_before_it() {
    let at = At::new();
    let store = at.open();
    store.commit(row(Table::Log, b"a", b"small")).unwrap();
    let before = store.snapshot().unwrap();
    let large = vec![7; JOURNAL_BYTES_DEFAULT / 8];
    store.commit(row(Table::Log, b"b", &large)).unwrap();
    assert!(store.recent().is_empty());
    store.commit(row(Table::Log, b"a", b"small again")).unwrap();
    assert_eq!(before.prefix(Table::Log, b"", Order::Rising, 9).unwrap().len(), 1);
    drop(before);
    drop(store);
    let store = at.open();
    let snapshot = store.snapshot().unwrap();
    let rows = snapshot.prefix(Table::Log, b"", Order::Rising, 9).unwrap();
    assert!(rows == [(b"a".to_vec(), b"small again".to_vec()), (b"b".to_vec(), large)]);
}

/// Row `n` of several tables, and in one row the last `n`.
fn numbered(n: u32) -> Batch {
    let mut batch = row(Table::Meta, b"last", &n.to_be_bytes());
    for table in [Table::Log, Table::Arrivals, Table::Derived] {
        for copy in 0..8 {
            // Far apart, and some written over again.
            let key = (n % 1000).wrapping_mul(0x9e37_79b9).to_be_bytes();
            put(&mut batch, table, &[&key[..], &[copy]].concat(), &n.to_be_bytes());
        }
    }
    batch
}

/// That a snapshot holds all commits up to one of them, and nothing of later ones; which that is.
fn last_of(snapshot: &Snapshot) -> u32 {
    let Some(last) = snapshot.get(Table::Meta, b"last").unwrap() else { return 0 };
    let last = u32::from_be_bytes(last.try_into().unwrap());
    for table in [Table::Log, Table::Derived] {
        let mut values: Vec<u32> = snapshot
            .prefix(table, b"", Order::Rising, usize::MAX)
            .unwrap()
            .into_iter()
            .map(|(_, value)| u32::from_be_bytes(value.try_into().unwrap()))
            .collect();
        values.sort_unstable();
        let expected: Vec<u32> = (last.saturating_sub(999).max(1)..=last).flat_map(|n| [n; 8]).collect();
        assert!(values == expected, "{table:?} at {last}");
    }
    last
}

#[test]
fn rows_are_settled_little_by_little_and_a_crash_in_the_middle_changes_nothing() {
    let at = At::new();
    let mut store = at.open_with_journal(32 << 10);
    let (mut partly, mut done) = (0, 0);
    for n in 1..=1_500 {
        let before = store.recent();
        store.commit(numbered(n)).unwrap();
        let after = store.recent();
        partly += u32::from(after.settling() > before.settling());
        done += u32::from(after.is_settled_further_than(&before));
        // First too often for any settlement to come to its end.
        if n % if n < 700 { 7 } else { 61 } == 0 {
            drop(store);
            store = at.open_with_journal(32 << 10);
        }
        assert!(store.recent().length() <= 48 << 10);
        if n % 50 == 0 {
            assert_eq!(last_of(&store.snapshot().unwrap()), n);
        }
    }
    assert!(partly > 20 && done > 10, "{partly} settlements begun, {done} done");
    store.close().unwrap();
    assert_eq!(last_of(&at.open().snapshot().unwrap()), 1_500);
}

#[test]
fn snapshots_taken_while_others_commit_hold_no_commit_in_part() {
    let at = At::new();
    let store = at.open_with_journal(16 << 10);
    let writing = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 0;
            while writing.load(Ordering::SeqCst) {
                let seen = last_of(&store.snapshot().unwrap());
                assert!(seen >= last);
                last = seen;
            }
        });
        for n in 1..=600 {
            store.commit(numbered(n)).unwrap();
        }
        writing.store(false, Ordering::SeqCst);
    });
    assert_eq!(last_of(&store.snapshot().unwrap()), 600);
}

#[test]
fn a_store_without_a_journal_gets_one() {
    let at = At::new();
    let store = at.open();
    store.commit(row(Table::Log, b"a", b"1")).unwrap();
    store.settle().unwrap();
    store.set_version(&1u32.to_be_bytes());
    let remove = |transaction: &WriteTransaction| {
        assert!(transaction.delete_table(journal::JOURNAL)?);
        Ok(())
    };
    store.transact(remove).unwrap();
    drop(store);
    let store = at.open();
    store.commit(row(Table::Log, b"b", b"2")).unwrap();
    drop(store);
    let store = at.open();
    assert_eq!(store.snapshot().unwrap().prefix(Table::Log, b"", Order::Rising, 9).unwrap().len(), 2);
}

type Journal<'a> = redb::Table<'a, u64, &'static [u8]>;

#[test]
fn a_journal_that_is_not_whole_is_damage() {
    let damages: [fn(&mut Journal<'_>); 4] = [
        |journal| drop(journal.remove(1).unwrap()),
        |journal| drop(journal.remove(0).unwrap()),
        |journal| drop(journal.insert(0, 5u64.to_be_bytes().as_slice()).unwrap()),
        |journal| drop(journal.insert(2, b"no rows".as_slice()).unwrap()),
    ];
    for damage in damages {
        let at = At::new();
        let store = at.open();
        store.commit(row(Table::Log, b"a", b"1")).unwrap();
        store.commit(row(Table::Log, b"b", b"2")).unwrap();
        store
            .transact(|transaction| {
                damage(&mut transaction.open_table(journal::JOURNAL)?);
                Ok(())
            })
            .unwrap();
        drop(store);
        let error = DiskStore::open(&at.home, CACHE_BYTES_DEFAULT).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_crash_after_a_commit_loses_nothing() {
    let at = At::new();
    let store = at.open();
    store.commit(row(Table::Log, b"a", b"1")).unwrap();
    let crashed = fs::read(at.path(STORE)).unwrap();
    store.commit(row(Table::Log, b"b", b"2")).unwrap();
    drop(store);
    fs::write(at.path(STORE), crashed).unwrap();
    let store = at.open();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.get(Table::Log, b"a").unwrap().unwrap(), b"1");
    assert_eq!(snapshot.get(Table::Log, b"b").unwrap(), None);
    store.commit(row(Table::Log, b"c", b"3")).unwrap();
}

#[test]
fn a_snapshot_stays_as_it_was_while_others_commit() {
    let at = At::new();
    let store = at.open();
    store.commit(row(Table::Log, b"k", &[0])).unwrap();
    let early = store.snapshot().unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..200 {
                assert_eq!(early.get(Table::Log, b"k").unwrap().unwrap(), [0]);
                assert_eq!(early.prefix(Table::Log, b"", Order::Rising, 9).unwrap().len(), 1);
            }
        });
        for n in 1..20u8 {
            let mut batch = row(Table::Log, b"k", &[n]);
            put(&mut batch, Table::Log, &[n], b"more");
            store.commit(batch).unwrap();
        }
        reader.join().unwrap();
    });
    assert_eq!(early.get(Table::Log, b"k").unwrap().unwrap(), [0]);
    assert_eq!(store.snapshot().unwrap().get(Table::Log, b"k").unwrap().unwrap(), [19]);
}

#[test]
fn an_overlay_reads_through_to_the_disk() {
    let at = At::new();
    let store = at.open();
    let mut batch = Batch::default();
    for n in 0..5 {
        put(&mut batch, Table::Derived, &[1, n], &[n]);
    }
    let below = with_content(&mut batch, b"below");
    store.commit(batch).unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut above = Overlay::new(&snapshot);
    above.remove(Table::Derived, vec![1, 0]);
    above.put(Table::Derived, vec![1, 9], vec![9]);
    let keys = |read: &dyn Read, order, limit| {
        let rows = read.prefix(Table::Derived, &[1], order, limit).unwrap();
        rows.into_iter().map(|(key, _)| key[1]).collect::<Vec<_>>()
    };
    assert_eq!(keys(&above, Order::Rising, 2), [1, 2]);
    assert_eq!(keys(&above, Order::Falling, 2), [9, 4]);
    assert_eq!(above.content(&below).unwrap().unwrap().1, b"below");
    store.commit(above.batch).unwrap();
    assert_eq!(keys(&snapshot, Order::Rising, 9), [0, 1, 2, 3, 4]);
    assert_eq!(keys(&store.snapshot().unwrap(), Order::Rising, 9), [1, 2, 3, 4, 9]);
    assert_eq!(keys(&snapshot, Order::Rising, 0), []);
}

#[test]
fn longer_content_lies_in_files() {
    let at = At::new();
    let store = at.open();
    let mut batch = Batch::default();
    let empty = with_content(&mut batch, b"");
    let inline = with_content(&mut batch, &[1; INLINE_BYTES_MAX]);
    let in_file = with_content(&mut batch, &[2; INLINE_BYTES_MAX + 1]);
    let longer = with_content(&mut batch, &[3; 1 << 20]);
    store.commit(batch).unwrap();
    let file = at.path(&format!("content/{}/{in_file}", &in_file.to_string()[..2]));
    assert_eq!(fs::read(&file).unwrap(), [2; INLINE_BYTES_MAX + 1]);
    assert!(!store.files.path(&inline).exists());
    drop(store);
    let store = at.open();
    let snapshot = store.snapshot().unwrap();
    let content = |hash| snapshot.content(&hash).map(|found| found.map(|(_, bytes)| bytes.len()));
    assert_eq!(content(empty), Ok(Some(0)));
    assert_eq!(content(inline), Ok(Some(INLINE_BYTES_MAX)));
    assert_eq!(content(in_file), Ok(Some(INLINE_BYTES_MAX + 1)));
    assert_eq!(content(longer), Ok(Some(1 << 20)));
    assert_eq!(content(Digest([9; 32])), Ok(None));
    fs::write(&file, [2; INLINE_BYTES_MAX]).unwrap();
    assert!(content(in_file).unwrap_err().reason.contains("does not open its commitment"));
    fs::remove_file(&file).unwrap();
    assert!(content(in_file).unwrap_err().reason.contains("is missing"));
    // Committed once more, it is whole again.
    let mut batch = Batch::default();
    with_content(&mut batch, &[2; INLINE_BYTES_MAX + 1]);
    store.commit(batch).unwrap();
    assert_eq!(content(in_file), Ok(Some(INLINE_BYTES_MAX + 1)));
}

#[test]
fn content_that_does_not_open_its_commitment_is_not_committed() {
    let at = At::new();
    let store = at.open();
    let wrong = |n| {
        let mut batch = row(Table::Log, b"a", b"1");
        batch.content.insert(Digest([n; 32]), (Salt::new([0; 32]), b"text".to_vec()));
        batch
    };
    let error = store.commit(wrong(1)).unwrap_err();
    assert!(error.reason.contains("0101") && !error.reason.contains("text"), "{error}");
    assert_eq!(store.snapshot().unwrap().get(Table::Log, b"a").unwrap(), None);
    let memory = MemoryStore::new();
    assert_eq!(memory.commit(wrong(1)).unwrap_err(), error);
    assert_eq!(memory.snapshot().unwrap().get(Table::Log, b"a").unwrap(), None);
}

#[test]
fn keys_of_instances_are_committed_with_a_batch() {
    let at = At::new();
    let store = at.open();
    let keys = |n: u8, secrets: u8| InstanceKeys {
        agent: AgentId::of(&[&[n]]),
        signing: KeyPair::from_seed(&[n; 32]),
        opening: SealedBoxKey::from_seed([n; 32]),
        secrets: (0..secrets).map(|n| RequestSecret::new([n; 32])).collect(),
    };
    let memory = MemoryStore::new();
    for all in [vec![keys(1, 1), keys(2, 1)], vec![keys(1, 2)]] {
        store.commit(Batch { keys: all.clone(), ..Batch::default() }).unwrap();
        memory.commit(Batch { keys: all, ..Batch::default() }).unwrap();
    }
    let shown = |keys: Vec<InstanceKeys>| format!("{keys:?}");
    assert_eq!(shown(at.home.instance_keys().unwrap()), shown(memory.keys()));
    let first = memory.keys().into_iter().find(|keys| keys.agent == AgentId::of(&[&[1]])).unwrap();
    assert_eq!(first.secrets.len(), 2);
    memory.remove_instance_keys(&first.agent);
    at.home.set_aside_instance_keys(&first.agent).unwrap();
    assert_eq!(shown(at.home.instance_keys().unwrap()), shown(memory.keys()));
}

#[test]
fn orphans_are_removed_after_a_stop_that_was_not_clean() {
    let at = At::new();
    let store = at.open();
    let mut batch = Batch::default();
    let kept = with_content(&mut batch, &[1; 5000]);
    store.commit(batch).unwrap();
    let mut never = Batch::default();
    let orphan = with_content(&mut never, &[2; 5000]);
    store.files.write(&never).unwrap();
    let orphan = store.files.path(&orphan);
    let half_written = orphan.with_extension("new");
    let foreign = [at.path("content/README"), orphan.with_file_name("README"), orphan.with_extension("bak")];
    for file in foreign.iter().chain([&half_written]) {
        fs::write(file, "x").unwrap();
    }
    store.close().unwrap();
    assert!(at.path(CLEAN).exists());
    let store = at.open();
    assert!(!at.path(CLEAN).exists());
    assert!(orphan.exists(), "nothing is searched for after a clean stop");
    drop(store);
    assert!(!at.path(CLEAN).exists());
    let store = at.open();
    assert!(!orphan.exists() && !half_written.exists());
    assert!(foreign.iter().all(|file| file.exists()));
    assert_eq!(store.snapshot().unwrap().content(&kept).unwrap().unwrap().1, [1; 5000]);
}

#[test]
fn directories_that_a_backup_left_out_are_made_again() {
    let at = At::new();
    at.open().close().unwrap();
    for name in [CONTENT, "keys/agents", "tokens"] {
        fs::remove_dir(at.path(name)).unwrap();
    }
    let store = at.open();
    assert!(at.home.instance_keys().unwrap().is_empty());
    at.home.ensure_token("owner").unwrap();
    let keys = InstanceKeys {
        agent: AgentId::of(&[b"a"]),
        signing: KeyPair::from_seed(&[1; 32]),
        opening: SealedBoxKey::from_seed([1; 32]),
        secrets: vec![RequestSecret::new([1; 32])],
    };
    let mut batch = Batch { keys: vec![keys], ..Batch::default() };
    with_content(&mut batch, &[2; 5000]);
    store.commit(batch).unwrap();
    assert_eq!(at.home.instance_keys().unwrap().len(), 1);
}

#[test]
fn derived_rows_are_dropped_and_nothing_else() {
    let at = At::new();
    let disk = at.open();
    let memory = MemoryStore::new();
    let mut batch = row(Table::Log, b"a", b"1");
    for n in 0..1000u16 {
        put(&mut batch, Table::Derived, &n.to_be_bytes(), b"follows");
    }
    disk.commit(batch).unwrap();
    memory.commit(row(Table::Derived, b"a", b"1")).unwrap();
    let early = disk.snapshot().unwrap();
    disk.begin_rebuild().unwrap();
    memory.begin_rebuild().unwrap();
    let snapshot = disk.snapshot().unwrap();
    assert_eq!(snapshot.prefix(Table::Derived, b"", Order::Rising, 9).unwrap(), []);
    assert_eq!(snapshot.get(Table::Log, b"a").unwrap().unwrap(), b"1");
    assert_eq!(early.prefix(Table::Derived, b"", Order::Rising, 5000).unwrap().len(), 1000);
    assert_eq!(memory.snapshot().unwrap().get(Table::Derived, b"a").unwrap(), None);
    disk.commit(row(Table::Derived, b"b", b"2")).unwrap();
    drop(disk);
    // What is not whole is dropped and made anew by the next open: from no arrivals, nothing.
    let disk = at.open();
    assert_eq!(disk.snapshot().unwrap().prefix(Table::Derived, b"", Order::Rising, 9).unwrap(), []);
}

#[test]
fn statistics_count_rows() {
    let at = At::new();
    let store = at.open();
    let mut batch = row(Table::Log, b"a", b"1");
    put(&mut batch, Table::Log, b"b", b"2");
    with_content(&mut batch, b"short");
    with_content(&mut batch, &[1; 5000]);
    store.commit(batch).unwrap();
    let stats = store.stats().unwrap();
    assert_eq!(stats.file_bytes, fs::metadata(at.path(STORE)).unwrap().len());
    assert_eq!(stats.contents, 2);
    let rows = |table| stats.rows.iter().find(|(of, _)| *of == table).unwrap().1;
    assert_eq!((rows(Table::Log), rows(Table::Seals), rows(Table::Meta)), (2, 0, 1));
}

/// Numbers that look random and are the same in every run.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn table(&mut self) -> Table {
        Table::ALL[self.below(Table::ALL.len() as u64) as usize]
    }

    /// Short keys of few letters, so that they meet often.
    fn key(&mut self) -> Vec<u8> {
        (0..self.below(4)).map(|_| [0, 1, 7, 0xff][self.below(4) as usize]).collect()
    }

    fn batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        for _ in 0..self.below(12) {
            let value = (self.below(3) > 0).then(|| vec![self.below(256) as u8; self.below(700) as usize]);
            batch.rows.insert((self.table(), self.key()), value);
        }
        if self.below(4) == 0 {
            let length = [0, 10, 4096, 4097, 9000][self.below(5) as usize];
            with_content(&mut batch, &vec![self.below(4) as u8; length]);
        }
        batch
    }
}

fn answers(read: &impl Read, random: &mut Lcg, contents: &[Digest]) -> Vec<String> {
    let mut answers = Vec::new();
    for _ in 0..20 {
        let (table, from, to) = (random.table(), random.key(), random.key());
        let order = if random.below(2) == 0 { Order::Rising } else { Order::Falling };
        let limit = [0, 1, 2, 5, usize::MAX][random.below(5) as usize];
        answers.push(format!("{:?}", read.get(table, &from)));
        answers.push(format!("{:?}", read.range(table, &from, &to, order, limit)));
        answers.push(format!("{:?}", read.prefix(table, &from, order, limit)));
    }
    for hash in contents {
        answers.push(format!("{:?}", read.content(hash)));
    }
    answers
}

#[test]
fn disk_and_memory_answer_alike() {
    let at = At::new();
    let mut disk = at.open_with_journal(24 << 10);
    let memory = MemoryStore::new();
    let mut random = Lcg(1);
    let mut contents = vec![Digest([0; 32])];
    let mut earlier = (disk.snapshot().unwrap(), memory.snapshot().unwrap());
    for round in 0..150 {
        let seed = random.below(1 << 30);
        let batch = Lcg(seed).batch();
        contents.extend(batch.content.keys());
        disk.commit(batch).unwrap();
        memory.commit(Lcg(seed).batch()).unwrap();
        let now = (disk.snapshot().unwrap(), memory.snapshot().unwrap());
        for (on_disk, in_memory) in [&now, &earlier] {
            let on_disk = answers(on_disk, &mut Lcg(seed + 1), &contents);
            assert_eq!(on_disk, answers(in_memory, &mut Lcg(seed + 1), &contents), "round {round}");
        }
        if random.below(3) == 0 {
            earlier = now;
        }
        if random.below(7) == 0 {
            disk.settle().unwrap();
        }
        if random.below(20) == 0 {
            let kept = memory.snapshot().unwrap();
            drop(disk);
            disk = at.open_with_journal(24 << 10);
            earlier = (disk.snapshot().unwrap(), kept);
        }
    }
}
