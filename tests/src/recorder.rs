//! A recorder: it stands under a store, on a real directory for its files and in memory for its tables, and keeps every
//! step that the store takes, so that the disk can be made as a crash at any of them would leave it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kwoon_keys::files::{FileLayer, Os};
use redb::StorageBackend;

use crate::medium::{Dice, Medium, Step};

/// What a recorder kept.
#[derive(Debug)]
pub struct Tape<N> {
    /// The disk as it is now.
    pub medium: Medium,
    /// The steps, and between them what the driver noted, in their order.
    pub events: Vec<Event<N>>,
    /// Syncs so far, the failed one too.
    pub syncs: u64,
    /// Which sync fails, from 0.
    pub fails_at: Option<u64>,
}

/// A step, or a note.
#[derive(Clone, Debug)]
pub enum Event<N> {
    /// A step of the store.
    Step(Step),
    /// A note of the driver.
    Note(N),
}

/// See the module. Clones share the tape.
#[derive(Debug)]
pub struct Recorder<N> {
    home: PathBuf,
    tape: Arc<Mutex<Tape<N>>>,
}

impl<N> Clone for Recorder<N> {
    fn clone(&self) -> Self {
        Self { home: self.home.clone(), tape: Arc::clone(&self.tape) }
    }
}

impl<N> Recorder<N> {
    /// Lays a medium out in `home`, which is not there yet, and records from now on.
    pub fn new(home: &Path, medium: Medium, fails_at: Option<u64>) -> Self {
        medium.lay_out(home);
        let tape = Tape { medium, events: Vec::new(), syncs: 0, fails_at };
        Self { home: home.to_owned(), tape: Arc::new(Mutex::new(tape)) }
    }

    /// The tape so far.
    pub fn tape(&self) -> MutexGuard<'_, Tape<N>> {
        self.tape.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a note.
    pub fn note(&self, note: N) {
        self.tape().events.push(Event::Note(note));
    }

    fn take(&self, step: Step) -> io::Result<()> {
        let mut tape = self.tape();
        if step.is_sync() {
            let number = tape.syncs;
            tape.syncs += 1;
            if tape.fails_at == Some(number) {
                tape.medium.take_failed(&step, &mut Dice::new(number));
                return Err(io::Error::other("the disk failed"));
            }
        }
        tape.medium.take(&step);
        tape.events.push(Event::Step(step));
        Ok(())
    }

    fn below(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.home).expect("a path in the home").to_owned()
    }
}

/// The operating system does it first, so that what it refuses is no step. It need not sync anything: the directory is
/// read by this process alone.
impl<N: std::fmt::Debug + Send + 'static> FileLayer for Recorder<N> {
    fn create(&self, path: &Path) -> io::Result<File> {
        let file = Os.create(path)?;
        self.take(Step::Create(self.below(path))).map(|()| file)
    }

    fn write(&self, path: &Path, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        Os.write(path, file, bytes)?;
        self.take(Step::Append(self.below(path), bytes.to_owned()))
    }

    fn sync(&self, path: &Path, _file: &File) -> io::Result<()> {
        self.take(Step::SyncFile(self.below(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Os.rename(from, to)?;
        self.take(Step::Rename(self.below(from), self.below(to)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Os.remove(path)?;
        self.take(Step::Remove(self.below(path)))
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        Os.make_dir(path)?;
        self.take(Step::MakeDir(self.below(path)))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?;
        self.take(Step::SyncDir(self.below(path)))
    }
}

impl<N: std::fmt::Debug + Send + 'static> StorageBackend for Recorder<N> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.tape().medium.tables().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let tape = self.tape();
        let offset = offset as usize;
        let bytes = tape.medium.tables().get(offset..offset + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.take(Step::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.take(Step::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.take(Step::Write(offset, data.to_owned()))
    }
}
