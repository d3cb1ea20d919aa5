//! A disk as it may be after a crash: what was synced is there, and of what was not, anything may be.
//!
//! It holds a home: the file of the tables, which a store reads and writes at offsets, and the files and directories
//! beside it. Nothing is promised beyond what POSIX does. Syncing one file says nothing about another; a new file, a
//! rename and a removal are on disk once their directory was synced; what is written lands in sectors, in any order.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use kwoon_keys::Digest;

/// What a disk writes at once.
const SECTOR: usize = 512;

/// A step by which a home changes. Paths are relative to the home; the home itself is the empty path.
#[derive(Clone, Debug)]
pub enum Step {
    /// The tables were written to at an offset.
    Write(u64, Vec<u8>),
    /// The tables got this length.
    SetLen(u64),
    /// The tables were synced.
    Sync,
    /// An empty file was made.
    Create(PathBuf),
    /// A file was written to, at its end.
    Append(PathBuf, Vec<u8>),
    /// A file was synced.
    SyncFile(PathBuf),
    /// A file got another name in the same directory.
    Rename(PathBuf, PathBuf),
    /// A file was removed.
    Remove(PathBuf),
    /// A directory was made.
    MakeDir(PathBuf),
    /// A directory was synced.
    SyncDir(PathBuf),
}

impl Step {
    /// Whether somebody waits for this step to make something durable.
    pub fn is_sync(&self) -> bool {
        matches!(self, Self::Sync | Self::SyncFile(_) | Self::SyncDir(_))
    }
}

/// What becomes of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// All is lost.
    Nothing,
    /// All is there, as after the end of a process alone.
    Everything,
    /// What came first is there, up to some step.
    Beginning,
    /// Any of the steps.
    Some,
    /// Any of the sectors of any of the steps.
    Torn,
    /// What was written, but no change of length.
    WritesOnly,
    /// Changes of length, but nothing that was written.
    LengthsOnly,
}

impl Survival {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Nothing, Self::Everything, Self::Beginning, Self::Some, Self::Torn, Self::WritesOnly, Self::LengthsOnly];
}

/// Numbers that look random and are the same for the same seed.
#[derive(Clone, Debug)]
pub struct Dice(u64, u64);

impl Dice {
    /// Dice of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed, 0)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.1 += 1;
        let digest = Digest::of("kwoon test dice", &[&self.0.to_be_bytes(), &self.1.to_be_bytes()]);
        u64::from_be_bytes(digest.0[..8].try_into().expect("eight bytes")) as usize % limit
    }

    fn heads(&mut self) -> bool {
        self.below(2) == 0
    }
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, data) => {
            let at = *at as usize;
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[at..at + data.len()].copy_from_slice(data);
        }
        Change::SetLen(length) => bytes.resize(*length as usize, 0),
    }
}

/// The tables: bytes that are there for sure, as they are read, and what leads from one to the other.
#[derive(Clone, Debug, Default)]
struct Tables {
    durable: Vec<u8>,
    present: Vec<u8>,
    pending: Vec<Change>,
}

impl Tables {
    fn change(&mut self, change: Change) {
        apply(&mut self.present, &change);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        for change in self.pending.drain(..) {
            apply(&mut self.durable, &change);
        }
    }

    fn after_crash(&self, survival: Survival, dice: &mut Dice) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let count = self.pending.len();
        let cut = if survival == Survival::Beginning { dice.below(count + 1) } else { count };
        for (place, change) in self.pending.iter().enumerate() {
            let is_write = matches!(change, Change::Write(..));
            match survival {
                Survival::Nothing => {}
                Survival::Everything => apply(&mut bytes, change),
                Survival::Beginning if place < cut => apply(&mut bytes, change),
                Survival::Beginning if place == cut => tear(&mut bytes, change, dice),
                Survival::Beginning => {}
                Survival::Some if dice.heads() => apply(&mut bytes, change),
                Survival::Some => {}
                Survival::Torn => tear(&mut bytes, change, dice),
                Survival::WritesOnly if is_write => apply(&mut bytes, change),
                Survival::LengthsOnly if !is_write => apply(&mut bytes, change),
                Survival::WritesOnly | Survival::LengthsOnly => {}
            }
        }
        bytes
    }
}

/// Applies any of the sectors of a write.
fn tear(bytes: &mut Vec<u8>, change: &Change, dice: &mut Dice) {
    let Change::Write(at, data) = change else {
        if dice.heads() {
            apply(bytes, change);
        }
        return;
    };
    let mut from = 0;
    while from < data.len() {
        let begin = *at as usize + from;
        let to = data.len().min(from + SECTOR - begin % SECTOR);
        if dice.heads() {
            apply(bytes, &Change::Write(begin as u64, data[from..to].to_vec()));
        }
        from = to;
    }
}

type Inode = usize;

/// Changes of entries that come about together or not at all.
type Entries = Vec<(String, Option<Inode>)>;

#[derive(Clone, Debug)]
enum Node {
    File { durable: Vec<u8>, present: Vec<u8> },
    Dir { durable: BTreeMap<String, Inode>, present: BTreeMap<String, Inode>, pending: Vec<Entries> },
}

impl Node {
    fn empty_dir() -> Self {
        Self::Dir { durable: BTreeMap::new(), present: BTreeMap::new(), pending: Vec::new() }
    }
}

fn enter(directory: &mut BTreeMap<String, Inode>, entries: &Entries) {
    for (name, inode) in entries {
        match inode {
            Some(inode) => directory.insert(name.clone(), *inode),
            None => directory.remove(name),
        };
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Medium {
    tables: Tables,
    /// By inode; the home is the first. None is ever reused.
    nodes: Vec<Node>,
}

impl Medium {
    /// What lies in a directory, all of it durable. The file `name` of it is the one of the tables; where the others
    /// are, it is an empty one.
    pub fn of(home: &Path, name: &str) -> Self {
        let bytes = fs::read(home.join(name)).expect("the tables");
        let tables = Tables { durable: bytes.clone(), present: bytes, pending: Vec::new() };
        let mut medium = Self { tables, nodes: vec![Node::empty_dir()] };
        medium.take_in(home, 0);
        let place = medium.find(Path::new(name));
        medium.nodes[place] = Node::File { durable: Vec::new(), present: Vec::new() };
        medium
    }

    fn take_in(&mut self, path: &Path, into: Inode) {
        for entry in fs::read_dir(path).expect("a directory") {
            let path = entry.expect("an entry").path();
            let node = if path.is_dir() {
                Node::empty_dir()
            } else {
                let bytes = fs::read(&path).expect("a file");
                Node::File { durable: bytes.clone(), present: bytes }
            };
            let inode = self.add(node);
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name in ASCII").to_owned();
            let Node::Dir { durable, present, .. } = &mut self.nodes[into] else { unreachable!("a directory") };
            durable.insert(name.clone(), inode);
            present.insert(name, inode);
            if path.is_dir() {
                self.take_in(&path, inode);
            }
        }
    }

    fn add(&mut self, node: Node) -> Inode {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn find(&self, path: &Path) -> Inode {
        let mut inode = 0;
        for name in path {
            let Node::Dir { present, .. } = &self.nodes[inode] else { panic!("{path:?}: not a directory") };
            inode = present[name.to_str().expect("ASCII")];
        }
        inode
    }

    fn change_entries(&mut self, dir: &Path, entries: Entries) {
        let inode = self.find(dir);
        let Node::Dir { present, pending, .. } = &mut self.nodes[inode] else { panic!("{dir:?}: not a directory") };
        enter(present, &entries);
        pending.push(entries);
    }

    fn new_entry(&mut self, path: &Path, node: Node) {
        let inode = self.add(node);
        self.change_entries(parent(path), vec![(name(path), Some(inode))]);
    }

    /// Takes a step.
    pub fn take(&mut self, step: &Step) {
        match step {
            Step::Write(at, data) => self.tables.change(Change::Write(*at, data.clone())),
            Step::SetLen(length) => self.tables.change(Change::SetLen(*length)),
            Step::Sync => self.tables.sync(),
            Step::Create(path) => self.new_entry(path, Node::File { durable: Vec::new(), present: Vec::new() }),
            Step::MakeDir(path) => self.new_entry(path, Node::empty_dir()),
            Step::Rename(from, to) => {
                assert_eq!(from.parent(), to.parent(), "within one directory");
                let inode = self.find(from);
                self.change_entries(parent(from), vec![(name(from), None), (name(to), Some(inode))]);
            }
            Step::Remove(path) => self.change_entries(parent(path), vec![(name(path), None)]),
            Step::Append(path, bytes) => {
                let inode = self.find(path);
                let Node::File { present, .. } = &mut self.nodes[inode] else { panic!("{path:?}: not a file") };
                present.extend_from_slice(bytes);
            }
            Step::SyncFile(path) | Step::SyncDir(path) => {
                let inode = self.find(path);
                match &mut self.nodes[inode] {
                    Node::File { durable, present } => durable.clone_from(present),
                    Node::Dir { durable, present, pending } => {
                        durable.clone_from(present);
                        pending.clear();
                    }
                }
            }
        }
    }

    /// A sync that failed: some of what it was to make durable is, and the rest never will be, however often a sync
    /// succeeds later. It is still read until the crash.
    pub fn take_failed(&mut self, step: &Step, dice: &mut Dice) {
        match step {
            Step::Sync => {
                self.tables.durable = self.tables.after_crash(Survival::Torn, dice);
                self.tables.pending.clear();
            }
            // Nothing is written to the file any more, so it stays torn until it is removed.
            Step::SyncFile(_) => {}
            Step::SyncDir(path) => {
                let inode = self.find(path);
                let Node::Dir { durable, pending, .. } = &mut self.nodes[inode] else { panic!("not a directory") };
                for entries in pending.drain(..) {
                    if dice.heads() {
                        enter(durable, &entries);
                    }
                }
            }
            step => panic!("no sync: {step:?}"),
        }
    }

    /// The disk after a power cut, all of it durable then.
    pub fn after_crash(&self, survival: Survival, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let bytes = self.tables.after_crash(survival, &mut dice);
        let tables = Tables { durable: bytes.clone(), present: bytes, pending: Vec::new() };
        let mut after = Self { tables, nodes: Vec::new() };
        self.node_after_crash(0, survival, &mut dice, &mut after);
        after
    }

    fn node_after_crash(&self, inode: Inode, survival: Survival, dice: &mut Dice, after: &mut Self) -> Inode {
        match &self.nodes[inode] {
            Node::File { durable, present } => {
                let bytes = match survival {
                    Survival::Nothing => durable.clone(),
                    Survival::Everything => present.clone(),
                    _ if durable == present => durable.clone(),
                    _ => {
                        let mut torn = durable.clone();
                        // The length is written apart from the data, before or after it.
                        if dice.heads() {
                            torn.resize(present.len(), 0);
                        }
                        tear(&mut torn, &Change::Write(0, present.clone()), dice);
                        torn
                    }
                };
                after.add(Node::File { durable: bytes.clone(), present: bytes })
            }
            Node::Dir { durable, pending, .. } => {
                let mut entries = durable.clone();
                for change in pending {
                    let survives = match survival {
                        Survival::Nothing => false,
                        Survival::Everything => true,
                        _ => dice.heads(),
                    };
                    if survives {
                        enter(&mut entries, change);
                    }
                }
                let own = after.add(Node::empty_dir());
                for inode in entries.values_mut() {
                    *inode = self.node_after_crash(*inode, survival, dice, after);
                }
                after.nodes[own] = Node::Dir { durable: entries.clone(), present: entries, pending: Vec::new() };
                own
            }
        }
    }

    /// The disk on which all is durable as it is read now.
    pub fn settled(mut self) -> Self {
        self.tables.durable.clone_from(&self.tables.present);
        self.tables.pending.clear();
        for node in &mut self.nodes {
            match node {
                Node::File { durable, present } => durable.clone_from(present),
                Node::Dir { durable, present, pending } => {
                    durable.clone_from(present);
                    pending.clear();
                }
            }
        }
        self
    }

    /// The bytes of the tables as they are read now.
    pub fn tables(&self) -> &[u8] {
        &self.tables.present
    }

    /// Lays the files and directories out in a real directory, as they are read now.
    pub fn lay_out(&self, home: &Path) {
        self.lay_out_node(0, home);
    }

    fn lay_out_node(&self, inode: Inode, path: &Path) {
        match &self.nodes[inode] {
            Node::File { present, .. } => {
                fs::write(path, present).expect("written");
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("chmod");
            }
            Node::Dir { present, .. } => {
                fs::create_dir(path).expect("made");
                fs::set_permissions(path, fs::Permissions::from_mode(0o700)).expect("chmod");
                for (name, inode) in present {
                    self.lay_out_node(*inode, &path.join(name));
                }
            }
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("below the home")
}

fn name(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).expect("a name in ASCII").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn medium() -> (tempfile::TempDir, Medium) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tables"), [1; 1024]).unwrap();
        let medium = Medium::of(dir.path(), "tables");
        (dir, medium)
    }

    /// The names below a medium's home, each with its bytes.
    fn files(medium: &Medium) -> BTreeMap<String, Vec<u8>> {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        medium.lay_out(&home);
        let entries = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_file()).map(|path| (name(&path), fs::read(&path).unwrap())).collect()
    }

    #[test]
    fn what_is_synced_is_there_and_nothing_else_need_be() {
        let (_dir, mut medium) = medium();
        medium.take(&Step::Write(0, vec![2; 1024]));
        assert_eq!(medium.after_crash(Survival::Nothing, 0).tables(), [1; 1024]);
        assert_eq!(medium.after_crash(Survival::Everything, 0).tables(), [2; 1024]);
        let torn: Vec<_> = (0..32).map(|seed| medium.after_crash(Survival::Torn, seed).tables().to_vec()).collect();
        let half = [[1; 512], [2; 512]].concat();
        assert!(torn.contains(&half), "a sector was lost");
        medium.take(&Step::Sync);
        assert_eq!(medium.after_crash(Survival::Nothing, 0).tables(), [2; 1024]);
        medium.take(&Step::SetLen(2048));
        medium.take(&Step::Write(1024, vec![3; 512]));
        assert_eq!(medium.after_crash(Survival::WritesOnly, 0).tables().len(), 1536);
        assert_eq!(medium.after_crash(Survival::LengthsOnly, 0).tables()[1024..], [0; 1024]);
    }

    #[test]
    fn a_file_is_there_once_it_and_its_directory_are_synced() {
        let (_dir, mut medium) = medium();
        let (new, path) = (PathBuf::from("a.new"), PathBuf::from("a"));
        medium.take(&Step::Create(new.clone()));
        medium.take(&Step::Append(new.clone(), vec![7; 700]));
        medium.take(&Step::Rename(new, path.clone()));
        let names = |survival, seed| files(&medium.after_crash(survival, seed)).into_keys().collect::<Vec<_>>();
        assert_eq!(names(Survival::Nothing, 0), ["tables"]);
        assert_eq!(names(Survival::Everything, 0), ["a", "tables"]);
        assert!((0..32).any(|seed| names(Survival::Some, seed) == ["a.new", "tables"]));
        let mut entry_only = medium.clone();
        entry_only.take(&Step::SyncDir(PathBuf::new()));
        assert_eq!(files(&entry_only.after_crash(Survival::Nothing, 0))["a"], [0; 0]);
        medium.take(&Step::SyncFile(path.clone()));
        assert!(!files(&medium.after_crash(Survival::Nothing, 0)).contains_key("a"));
        medium.take(&Step::SyncDir(PathBuf::new()));
        assert_eq!(files(&medium.after_crash(Survival::Nothing, 0))["a"], [7; 700]);
        medium.take(&Step::Remove(path));
        assert!(files(&medium.after_crash(Survival::Nothing, 0)).contains_key("a"));
        assert!(!files(&medium.after_crash(Survival::Everything, 0)).contains_key("a"));
    }

    #[test]
    fn what_a_failed_sync_lost_no_later_one_brings_back() {
        let (_dir, mut medium) = medium();
        medium.take(&Step::Write(0, vec![2; 1024]));
        let losing = (0..64).find(|seed| {
            let mut tried = medium.clone();
            tried.take_failed(&Step::Sync, &mut Dice::new(*seed));
            tried.after_crash(Survival::Everything, 0).tables() == [1; 1024]
        });
        medium.take_failed(&Step::Sync, &mut Dice::new(losing.expect("a seed that loses all")));
        assert_eq!(medium.tables(), [2; 1024], "it is still read");
        medium.take(&Step::Sync);
        assert_eq!(medium.after_crash(Survival::Everything, 0).tables(), [1; 1024]);
    }
}
