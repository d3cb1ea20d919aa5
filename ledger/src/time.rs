//! Points in time and durations in whole milliseconds. The ledger never asks a clock: time is always given to it.

use minicbor::{Decode, Encode};

/// Milliseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct Time(#[n(0)] pub u64);

impl Time {
    /// This long after `self`; stays at the end of time rather than wrapping.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.0))
    }

    /// This long before `self`; stays at the beginning of time rather than wrapping.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration.0))
    }

    /// How long `self` is after `earlier`, zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct Duration(#[n(0)] pub u64);

impl Duration {
    /// So many seconds.
    pub const fn seconds(count: u64) -> Self {
        Self(count * 1000)
    }

    /// So many minutes.
    pub const fn minutes(count: u64) -> Self {
        Self::seconds(count * 60)
    }

    /// So many days.
    pub const fn days(count: u64) -> Self {
        Self::minutes(count * 24 * 60)
    }
}
