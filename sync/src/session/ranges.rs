//! Comparing what two hosts have, where neither knows how far the other has come: by the range-based set reconciliation of
//! negentropy, over one id for each log and where it stands.

use std::collections::BTreeMap;

use kwoon_keys::Digest;
use negentropy::{Id, Negentropy, NegentropyStorageVector, Storage};

use crate::wire::Item;

/// Bytes of one message at most.
const FRAME_BYTES: u64 = 60_000;
/// Messages of one comparison at most: more are needed by nobody who says the same of the same ranges twice.
const ROUNDS_MAX: u32 = 4096;

/// A comparison under way.
pub(super) struct Ranges {
    negentropy: Negentropy<'static, NegentropyStorageVector>,
    items: BTreeMap<Digest, Item>,
    ours: Vec<Id>,
    theirs: Vec<Id>,
    /// The changes of this host that the items are of.
    changes: u64,
    rounds: u32,
}

fn over(items: Vec<Item>, changes: u64) -> Ranges {
    let mut storage = NegentropyStorageVector::with_capacity(items.len());
    let mut by_id = BTreeMap::new();
    for item in items {
        let id = item.id();
        // Each goes in once, so that inserting and sealing cannot fail.
        if by_id.insert(id, item).is_none() {
            let _ = storage.insert(0, Id::from_byte_array(id.0));
        }
    }
    let _ = storage.seal();
    let negentropy = Negentropy::new(Storage::Owned(storage), FRAME_BYTES).expect("the frame is of an allowed size");
    Ranges { negentropy, items: by_id, ours: Vec::new(), theirs: Vec::new(), changes, rounds: 0 }
}

impl Ranges {
    /// Begins one, with its first message.
    pub(super) fn begin(items: Vec<Item>, changes: u64) -> (Self, Vec<u8>) {
        let mut ranges = over(items, changes);
        let first = ranges.negentropy.initiate().expect("it was sealed and begins now");
        (ranges, first)
    }

    /// Answers one that the other began.
    pub(super) fn answering(items: Vec<Item>, changes: u64) -> Self {
        over(items, changes)
    }

    /// The next message, if there is one: else all differences are known, or the other speaks no sense.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            return None;
        }
        if self.negentropy.is_initiator() {
            self.negentropy.reconcile_with_ids(bytes, &mut self.ours, &mut self.theirs).ok().flatten()
        } else {
            self.negentropy.reconcile(bytes).ok()
        }
    }

    /// What only this host has, and the ids of what only the other has.
    pub(super) fn differences(&self) -> (Vec<Item>, Vec<Digest>) {
        let ours = self.ours.iter().filter_map(|id| self.items.get(&Digest(id.to_bytes())).copied()).collect();
        (ours, self.theirs.iter().map(|id| Digest(id.to_bytes())).collect())
    }

    /// The items of some ids.
    pub(super) fn items(&self, ids: &[Digest]) -> Vec<Item> {
        ids.iter().filter_map(|id| self.items.get(id).copied()).collect()
    }

    /// The changes of this host that the items are of.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }
}
