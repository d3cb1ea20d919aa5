//! Rebuilding a store's derived table from its primary ones (L1.1). What follows from what is the ledger's to say; here
//! it is carried out a step at a time, so that a crash in between leaves no table that looks whole.

use std::sync::mpsc::{SyncSender, sync_channel};

use kwoon_ledger::rebuild::{Rebuild, RebuildError as StepError, STEP_ROWS};
use kwoon_ledger::storage::{Batch, Overlay, Read, Store, Table, WriteError};

use crate::disk::DiskStore;
use crate::memory::MemoryStore;

/// The key in the table `Meta` that is there while the derived table is not whole.
pub(crate) const UNDER_WAY: &[u8] = b"rebuild";

/// A derived table could not be rebuilt. It is not whole then, and the next open begins again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RebuildError {
    /// The primary tables do not give one: a record in them is damaged.
    #[error("the ledger cannot be rebuilt: {0}; restore the home from a backup")]
    Ledger(#[from] StepError),
    /// The store could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What a rebuild went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuildReport {
    /// Facts, of all objects.
    pub facts: u64,
    /// Outcomes that are no facts.
    pub outcomes: u64,
}

/// A store whose derived table can be dropped and rebuilt.
pub trait Rebuildable: Store {
    /// Drops the derived table and notes that it is not whole, in one commit.
    ///
    /// # Errors
    /// As for a commit.
    fn begin_rebuild(&self) -> Result<(), WriteError>;
}

impl Rebuildable for DiskStore {
    fn begin_rebuild(&self) -> Result<(), WriteError> {
        Self::begin_rebuild(self)
    }
}

impl Rebuildable for MemoryStore {
    fn begin_rebuild(&self) -> Result<(), WriteError> {
        Self::begin_rebuild(self)
    }
}

/// Drops the derived table and rebuilds it; while one step is committed, the next is taken. Nothing else may read or write
/// the store meanwhile. If the process dies, or this fails, a marker stays in the store by which the next open begins again.
///
/// # Errors
/// See [`RebuildError`].
pub fn rebuild(store: &(impl Rebuildable + Sync)) -> Result<RebuildReport, RebuildError> {
    rebuild_in_steps_of(store, STEP_ROWS)
}

/// The same in steps of at most so many facts, each of which is a commit.
///
/// # Errors
/// See [`RebuildError`].
pub fn rebuild_in_steps_of(store: &(impl Rebuildable + Sync), step_rows: usize) -> Result<RebuildReport, RebuildError> {
    store.begin_rebuild()?;
    let mut rebuild = Rebuild::in_steps_of(step_rows);
    std::thread::scope(|scope| {
        // Without room: whoever sends waits until the batch before is committed.
        let (batches, receiver) = sync_channel::<Batch>(0);
        let committing = scope.spawn(move || receiver.into_iter().try_for_each(|batch| store.commit(batch)));
        let taken = take_steps(store, &mut rebuild, &batches);
        drop(batches);
        // If a commit failed, that is why no more could be sent.
        let committed = committing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        committed.map_err(RebuildError::from).and(taken)
    })?;
    Ok(RebuildReport { facts: rebuild.facts(), outcomes: rebuild.outcomes() })
}

/// Takes all steps, and sends what each gives to be committed.
fn take_steps(
    store: &impl Rebuildable,
    rebuild: &mut Rebuild,
    batches: &SyncSender<Batch>,
) -> Result<(), RebuildError> {
    let mut before = Batch::default();
    while !rebuild.is_done() {
        let snapshot = store.snapshot().map_err(StepError::from)?;
        // The step before may be committed by now, or not yet.
        let mut batch = rebuild.step(&Overlay::with(&snapshot, before))?;
        if rebuild.is_done() {
            batch.rows.insert((Table::Meta, UNDER_WAY.to_vec()), None);
        }
        before = batch.readable();
        if batches.send(batch).is_err() {
            break;
        }
    }
    Ok(())
}

/// Begins again a rebuild that a crash interrupted, if there is one.
pub(crate) fn rebuild_if_interrupted(store: &(impl Rebuildable + Sync)) -> Result<Option<RebuildReport>, RebuildError> {
    let snapshot = store.snapshot().map_err(StepError::from)?;
    let interrupted = snapshot.get(Table::Meta, UNDER_WAY).map_err(StepError::from)?.is_some();
    drop(snapshot);
    if interrupted { rebuild(store).map(Some) } else { Ok(None) }
}
