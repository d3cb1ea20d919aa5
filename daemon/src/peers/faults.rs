//! What is wrong with what peers send: said in the log once, and then once a minute with how often it was seen.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kwoon_keys::PublicKey;

/// How often it is said of one peer.
const INTERVAL: Duration = Duration::from_secs(60);
/// Peers of which it is remembered when it was said.
const PEERS_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<BTreeMap<PublicKey, Said>>);

#[derive(Debug)]
struct Said {
    at: Instant,
    /// Faults since that were not said.
    more: u64,
}

impl Faults {
    /// Notes a fault, in fixed words: none of the peer's.
    pub(super) fn note(&self, peer: &PublicKey, fault: &dyn Display) {
        if let Some(times) = self.count(peer, Instant::now()) {
            tracing::warn!(%peer, %fault, times, "a host sent what cannot be taken in");
        }
    }

    /// Counts a fault: how many it stands for if it is to be said.
    fn count(&self, peer: &PublicKey, now: Instant) -> Option<u64> {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = faults.get_mut(peer) {
            if now.duration_since(said.at) < INTERVAL {
                said.more += 1;
                return None;
            }
            let times = said.more + 1;
            *said = Said { at: now, more: 0 };
            return Some(times);
        }
        if faults.len() >= PEERS_MAX {
            faults.retain(|_, said| now.duration_since(said.at) < INTERVAL);
        }
        // Of more peers at once than that, the rest is not said.
        (faults.len() < PEERS_MAX).then(|| {
            faults.insert(*peer, Said { at: now, more: 0 });
            1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_said_at_once_and_then_once_a_minute_with_a_count() {
        let (faults, now) = (Faults::default(), Instant::now());
        let [a, b] = [PublicKey([1; 32]), PublicKey([2; 32])];
        assert_eq!(faults.count(&a, now), Some(1));
        assert_eq!(faults.count(&a, now), None);
        assert_eq!(faults.count(&b, now), Some(1));
        assert_eq!(faults.count(&a, now + INTERVAL / 2), None);
        assert_eq!(faults.count(&a, now + INTERVAL), Some(3));
        assert_eq!(faults.count(&a, now + INTERVAL * 2), Some(1));
    }

    #[test]
    fn what_is_remembered_has_an_end() {
        let (faults, now) = (Faults::default(), Instant::now());
        let peer = |n: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&n.to_be_bytes());
            PublicKey(key)
        };
        for n in 0..PEERS_MAX {
            assert_eq!(faults.count(&peer(n), now), Some(1));
        }
        assert_eq!(faults.count(&peer(PEERS_MAX), now), None);
        assert_eq!(faults.count(&peer(PEERS_MAX), now + INTERVAL), Some(1));
        assert_eq!(faults.0.lock().unwrap().len(), 1);
    }
}
