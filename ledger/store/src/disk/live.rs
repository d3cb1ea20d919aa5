//! The redb database of an open store, and what is known about its health.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::{Database, ReadTransaction, ReadableDatabase, StorageBackend, WriteTransaction};

use crate::fault::{Fault, contain};
use crate::held::Held;

/// Runs what calls redb, and remembers if damage was met. Clones remember together.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<AtomicBool>);

impl Watch {
    pub(super) fn contain<T>(&self, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        contain(work).inspect_err(|fault| {
            if matches!(fault, Fault::Damaged(_)) {
                self.0.store(true, Ordering::Relaxed);
            }
        })
    }

    pub(super) fn damage_was_met(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An open database that keeps what it writes to itself until it is released.
pub(super) struct Live {
    /// Taken when it is closed.
    database: Option<Database>,
    backend: Held,
    pub(super) watch: Watch,
}

impl Live {
    pub(super) fn open(base: Box<dyn StorageBackend>, cache_bytes: usize) -> Result<Self, Fault> {
        let backend = Held::new(base);
        let open = || Ok(Database::builder().set_cache_size(cache_bytes).create_with_backend(backend.clone())?);
        Ok(Self { database: Some(contain(open)?), backend, watch: Watch::default() })
    }

    /// The store was found good: lets what was and will be written reach the disk.
    pub(super) fn release(&self) -> io::Result<()> {
        self.backend.release()
    }

    pub(super) fn length_bytes(&self) -> io::Result<u64> {
        self.backend.len()
    }

    pub(super) fn begin_read(&self) -> Result<ReadTransaction, Fault> {
        self.watch.contain(|| Ok(self.database().begin_read()?))
    }

    /// Not contained: for use inside [`Watch::contain`].
    pub(super) fn begin_write(&self) -> Result<WriteTransaction, Fault> {
        Ok(self.database().begin_write()?)
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("taken only when it is closed")
    }

    /// Closes the database, and says if that failed.
    pub(super) fn close(mut self) -> Result<(), Fault> {
        if self.watch.damage_was_met() {
            return Err(Fault::Damaged("it was left as it is".to_owned()));
        }
        let database = self.database.take().expect("taken only when it is closed");
        contain(|| Ok(database.close()?))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let Some(database) = self.database.take() else { return };
        if self.watch.damage_was_met() || !self.backend.is_released() {
            // redb commits when it is dropped. On damaged pages that makes things worse, or panics in a destructor
            // while another panic unwinds, which nothing can contain. So the database is left to the process's end;
            // only its locks are given up. On disk this is as after a crash.
            let _ = self.backend.close();
            std::mem::forget(database);
            return;
        }
        // Nobody is left to tell; the next open finds what there is to find.
        let _ = contain(|| {
            drop(database);
            Ok(())
        });
    }
}
