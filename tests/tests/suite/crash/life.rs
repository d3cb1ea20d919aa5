//! One life of a host over a disk that is recorded, from its start to its end, and what it can be seen to hold.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use kwoon_keys::files::write_pair;
use kwoon_keys::id::AgentId;
use kwoon_keys::secret::InstanceKeys;
use kwoon_keys::{Digest, files::Os};
use kwoon_ledger::limits::Limits;
use kwoon_ledger::storage::{Batch, Order, Read, ReadError, Row, Store, Table, WriteError};
use kwoon_ledger::time::Duration;
use kwoon_store::{DiskStore, Home, INLINE_BYTES_MAX, OpenMode, Sizes};
use kwoon_sync::names;
use kwoon_tests::Hall;
use kwoon_tests::hall::{Ground, key_of};
use kwoon_tests::medium::Medium;
use kwoon_tests::recorder::Recorder;
use serde_json::Value;
use tempfile::TempDir;

use super::script::{Round, SEED};

/// What a life notes on its tape.
#[derive(Clone, Debug)]
pub enum Note {
    /// The host is started: from now on what is there can leave it.
    Started,
    /// A commit began.
    Began,
    /// It is done, and this is what is there.
    Committed(Arc<State>),
    /// A round was answered.
    Answered(Vec<Value>),
    /// A token was handed out, by the name of its agent.
    Token(String, String),
}

/// All that a store holds: every row, which contents, whose keys.
#[derive(Debug, PartialEq)]
pub struct State {
    pub rows: Vec<Row>,
    contents: BTreeSet<Digest>,
    keys: Vec<(AgentId, Vec<u8>)>,
    of_table: Vec<usize>,
}

impl State {
    /// The rows of a table.
    pub fn table(&self, table: Table) -> &[Row] {
        let place = Table::ALL.iter().position(|other| *other == table).unwrap();
        let from: usize = self.of_table[..place].iter().sum();
        &self.rows[from..from + self.of_table[place]]
    }
}

/// A store on a recorded disk.
pub struct Disk {
    pub store: DiskStore,
    pub home: Home,
    recorder: Recorder<Note>,
    /// Whether it is noted what each commit left: not needed where no crash follows.
    is_noted: bool,
    /// Whether the last commit failed.
    failed: Cell<bool>,
}

impl Disk {
    /// What is there. Of contents, those are looked for that the script ever has.
    pub fn state(&self, contents: &BTreeSet<Digest>) -> Result<State, ReadError> {
        let snapshot = self.store.snapshot()?;
        let (mut rows, mut of_table) = (Vec::new(), Vec::new());
        for table in Table::ALL {
            let all = snapshot.range(table, &[], &[0xff; 80], Order::Rising, usize::MAX)?;
            of_table.push(all.len());
            rows.extend(all);
        }
        let mut there = BTreeSet::new();
        let mut in_files = BTreeSet::new();
        for hash in contents {
            if let Some((_, bytes)) = snapshot.content(hash)? {
                there.insert(*hash);
                if bytes.len() > INLINE_BYTES_MAX {
                    in_files.insert(hash.to_string());
                }
            }
        }
        assert_eq!(self.store.stats()?.contents, there.len() as u64, "content that nobody knows");
        assert!(in_files.is_subset(&self.content_files()), "the files were read");
        let keys = self.keys().into_iter().map(|keys| {
            let secrets = keys.secrets.iter().flat_map(|secret| secret.bytes().to_vec());
            (keys.agent, keys.signing.seed().iter().copied().chain(secrets).collect())
        });
        Ok(State { rows, contents: there, keys: keys.collect(), of_table })
    }

    /// The names of all content files.
    pub fn content_files(&self) -> BTreeSet<String> {
        let Ok(dirs) = fs::read_dir(self.home.path().join("content")) else { return BTreeSet::new() };
        let files = dirs.flat_map(|dir| fs::read_dir(dir.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Ground for Disk {
    fn keys(&self) -> Vec<InstanceKeys> {
        let known = known(&self.store.snapshot().unwrap());
        self.home.instance_keys().unwrap().into_iter().filter(|keys| known.contains(&keys.agent)).collect()
    }
}

impl Store for Disk {
    type Snapshot = kwoon_store::Snapshot;

    fn snapshot(&self) -> Result<Self::Snapshot, ReadError> {
        self.store.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<(), WriteError> {
        let is_noted = self.is_noted && !batch.is_empty();
        if is_noted {
            self.recorder.note(Note::Began);
        }
        self.store.commit(batch).inspect_err(|_| self.failed.set(true))?;
        if !is_noted {
            return Ok(());
        }
        self.recorder.note(Note::Committed(Arc::new(self.state(super::contents()).unwrap())));
        Ok(())
    }
}

fn known(read: &dyn Read) -> BTreeSet<AgentId> {
    names::names(read).unwrap().into_iter().map(|(_, agent)| agent).collect()
}

/// A life that did not begin, or did not end well.
#[derive(Debug)]
pub struct Broken {
    pub why: String,
    pub recorder: Recorder<Note>,
}

/// A life: a host that was started as the daemon starts it.
pub struct Life {
    pub hall: Hall<Disk>,
    pub recorder: Recorder<Note>,
    dir: TempDir,
}

/// A home in which nothing was done, on a disk. `without` are directories that it lacks, as after some backups.
pub fn fresh(without: &[&str]) -> Medium {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("home");
    Home::open(&path, OpenMode::MakeIfMissing).unwrap();
    for kind in ["host", "owner"] {
        write_pair(&Os, &path.join(format!("keys/{kind}.key")), kind, &key_of(&SEED, kind)).unwrap();
    }
    for name in without {
        fs::remove_dir(path.join(name)).unwrap();
    }
    Medium::of(&path, "store.redb")
}

impl Life {
    /// Starts on a disk whose sync number `fails_at` fails. Notes what each commit leaves if `is_noted`.
    pub fn start(medium: Medium, fails_at: Option<u64>, is_noted: bool) -> Result<Self, Broken> {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(&dir.path().join("home"), medium, fails_at);
        Self::start_on(dir, recorder, is_noted)
    }

    fn start_on(dir: TempDir, recorder: Recorder<Note>, is_noted: bool) -> Result<Self, Broken> {
        match begin(&dir.path().join("home"), &recorder) {
            Ok((home, store)) => {
                recorder.note(Note::Started);
                let disk = Disk { store, home, recorder: recorder.clone(), is_noted, failed: Cell::new(false) };
                Ok(Self { hall: Hall::over(disk, SEED, Limits::DEFAULT), recorder, dir })
            }
            Err(why) => Err(Broken { why, recorder }),
        }
    }

    /// What is there.
    pub fn state(&self) -> State {
        self.hall.store.state(super::contents()).unwrap()
    }

    /// Plays a round `later` than the script has it. Nothing if it could not be committed.
    pub fn play(&mut self, round: &Round, later: Duration) -> Option<Vec<Value>> {
        self.hall.resume(round.entropy);
        self.hall.now = round.at.after(if round.names_times { Duration(0) } else { later });
        self.hall.store.failed.set(false);
        let answers = self.hall.together(&round.calls(), true);
        if self.hall.store.failed.get() {
            assert!(answers.iter().all(|answer| answer["error"]["code"] == "internal"), "nothing is told of it");
            return None;
        }
        for ((_, operation, arguments), answer) in round.calls.iter().zip(&answers) {
            if *operation == "agent_create" && answer["ok"] == true {
                self.hand_out(arguments["name"].as_str().unwrap());
            }
        }
        self.recorder.note(Note::Answered(answers.clone()));
        Some(answers)
    }

    fn hand_out(&self, name: &str) {
        // Without a token the answer is given all the same.
        if let Ok(token) = self.hall.store.home.ensure_token(name) {
            self.recorder.note(Note::Token(name.to_owned(), token.to_string()));
        }
    }

    /// Stops cleanly and starts again.
    pub fn restart(self) -> Result<Self, Broken> {
        let Self { hall, recorder, dir } = self;
        let Disk { store, home, is_noted, .. } = hall.store;
        let closed = store.close();
        drop(home);
        match closed {
            Ok(()) => Self::start_on(dir, recorder, is_noted),
            Err(error) => Err(Broken { why: error.to_string(), recorder }),
        }
    }
}

/// Starts as the daemon does: keys of nobody are set aside, and who has no token gets one.
fn begin(path: &Path, recorder: &Recorder<Note>) -> Result<(Home, DiskStore), String> {
    let home =
        Home::open_on(path, OpenMode::Existing, Arc::new(recorder.clone())).map_err(|error| error.to_string())?;
    // Small, so that rows are settled all along.
    let sizes = Sizes { cache_bytes: 1 << 20, journal_bytes: 40 << 10 };
    let store = DiskStore::open_on(&home, recorder.clone(), sizes).map_err(|error| error.to_string())?;
    let snapshot = store.snapshot().unwrap();
    let known = known(&snapshot);
    let keys = home.instance_keys().map_err(|error| error.to_string())?;
    for keys in keys.iter().filter(|keys| !known.contains(&keys.agent)) {
        home.set_aside_instance_keys(&keys.agent).map_err(|error| error.to_string())?;
    }
    assert!(known.iter().all(|agent| keys.iter().any(|keys| keys.agent == *agent)), "an agent lost its keys");
    for (name, _) in names::names(&snapshot).unwrap() {
        home.ensure_token(&name).map_err(|error| error.to_string())?;
    }
    Ok((home, store))
}
