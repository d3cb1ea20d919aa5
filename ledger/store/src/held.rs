//! A storage backend that holds writes back until the store has been found good.
//!
//! redb writes while it opens a file: a flag in the header, and a repair after a crash. A store that turns out to be
//! damaged or of a newer version must stay as it was, so what redb writes until then is kept in memory, read back from
//! there, and either passed on in its order or forgotten.

use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};

#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

#[derive(Debug)]
struct Inner {
    base: Box<dyn StorageBackend>,
    /// In the order they were made; empty once released.
    changes: Mutex<Vec<Change>>,
    /// Set once, under the lock of `changes`.
    released: AtomicBool,
}

/// The backend; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Held(Arc<Inner>);

impl Held {
    /// Holds what is written over `base`.
    pub(crate) fn new(base: Box<dyn StorageBackend>) -> Self {
        Self(Arc::new(Inner { base, changes: Mutex::new(Vec::new()), released: AtomicBool::new(false) }))
    }

    /// Passes on what was held, syncs included, and holds nothing from now on. Because the order is kept, a crash in
    /// between leaves what it would have left without this backend.
    pub(crate) fn release(&self) -> io::Result<()> {
        let mut changes = self.changes();
        for change in changes.drain(..) {
            match change {
                Change::Write(offset, data) => self.0.base.write(offset, &data)?,
                Change::SetLen(length) => self.0.base.set_len(length)?,
                Change::Sync => self.0.base.sync_data()?,
            }
        }
        self.0.released.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether writes are passed on.
    pub(crate) fn is_released(&self) -> bool {
        self.0.released.load(Ordering::Acquire)
    }

    /// The changes held, unless they were released.
    fn holding(&self) -> Option<MutexGuard<'_, Vec<Change>>> {
        // Reads come from many threads once the store is open; they must not meet at a lock.
        if self.is_released() {
            return None;
        }
        let changes = self.changes();
        (!self.is_released()).then_some(changes)
    }

    fn changes(&self) -> MutexGuard<'_, Vec<Change>> {
        self.0.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn length(&self, changes: &[Change]) -> io::Result<u64> {
        let mut length = self.0.base.len()?;
        for change in changes {
            match change {
                Change::Write(offset, data) => length = length.max(offset + data.len() as u64),
                Change::SetLen(to) => length = *to,
                Change::Sync => {}
            }
        }
        Ok(length)
    }

    fn read_held(&self, changes: &[Change], offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + out.len() as u64;
        if end > self.length(changes)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.fill(0);
        let there = self.0.base.len()?.clamp(offset, end) - offset;
        self.0.base.read(offset, &mut out[..index(there)])?;
        for change in changes {
            match change {
                Change::Write(at, data) => {
                    let from = (*at).clamp(offset, end);
                    let to = (at + data.len() as u64).clamp(offset, end);
                    if from < to {
                        let source = &data[index(from - at)..index(to - at)];
                        out[index(from - offset)..index(to - offset)].copy_from_slice(source);
                    }
                }
                Change::SetLen(length) => out[index((*length).clamp(offset, end) - offset)..].fill(0),
                Change::Sync => {}
            }
        }
        Ok(())
    }
}

fn index(within: u64) -> usize {
    usize::try_from(within).expect("it lies within a buffer in memory")
}

impl StorageBackend for Held {
    fn len(&self) -> io::Result<u64> {
        match self.holding() {
            Some(changes) => self.length(&changes),
            None => self.0.base.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.holding() {
            Some(changes) => self.read_held(&changes, offset, out),
            None => self.0.base.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match self.holding() {
            Some(mut changes) => changes.push(Change::SetLen(len)),
            None => self.0.base.set_len(len)?,
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.holding() {
            Some(mut changes) => changes.push(Change::Sync),
            None => self.0.base.sync_data()?,
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.holding() {
            Some(mut changes) => changes.push(Change::Write(offset, data.to_owned())),
            None => self.0.base.write(offset, data)?,
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.0.base.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.base.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.base.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.base.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.base.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.base.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.base.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    /// Lets the test look at what reached the base.
    #[derive(Clone, Debug)]
    struct Shared(Arc<InMemoryBackend>);

    impl StorageBackend for Shared {
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            StorageBackend::read(&*self.0, offset, out)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.0.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            StorageBackend::write(&*self.0, offset, data)
        }
    }

    fn all(backend: &dyn StorageBackend) -> Vec<u8> {
        let mut bytes = vec![0xee; index(backend.len().unwrap())];
        backend.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_held_reads_like_what_will_be_written() {
        let base = Shared(Arc::new(InMemoryBackend::new()));
        base.set_len(8).unwrap();
        base.write(0, b"abcdefgh").unwrap();
        let held = Held::new(Box::new(base.clone()));
        held.write(2, b"XY").unwrap();
        held.set_len(5).unwrap();
        held.sync_data().unwrap();
        held.set_len(10).unwrap();
        held.write(8, b"Z").unwrap();
        let expected = b"abXYe\0\0\0Z\0";
        assert_eq!(all(&held), expected);
        let mut part = [0; 4];
        held.read(3, &mut part).unwrap();
        assert_eq!(&part, b"Ye\0\0");
        assert!(held.read(8, &mut part).is_err(), "past the end");
        assert_eq!(all(&base), b"abcdefgh", "nothing has been passed on");
        held.release().unwrap();
        assert_eq!(all(&base), expected);
        held.write(0, b"!").unwrap();
        assert_eq!(all(&base)[0], b'!');
    }
}
