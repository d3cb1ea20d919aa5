//! Limits in time (L4.4), counted in the host's memory. Whole numbers only, and time is given.

use std::collections::BTreeMap;

use kwoon_ledger::limits::{FAILED_JOINS_WINDOW, Limits};
use kwoon_ledger::time::{Duration, Time};

/// Actions of one caller: so many a second, so many at once.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Thousandths of an action that are left.
    left: u64,
    /// When that was.
    at: Time,
}

/// Counts by caller. A caller is 32 bytes: an agent, or the owner's key.
#[derive(Debug, Default)]
pub struct Rates {
    buckets: BTreeMap<[u8; 32], Bucket>,
    failed_joins: BTreeMap<[u8; 32], Vec<Time>>,
}

impl Rates {
    /// Takes one action from a caller's allowance.
    ///
    /// # Errors
    /// How long to wait, if nothing is left.
    pub fn take(&mut self, caller: &[u8; 32], limits: &Limits, now: Time) -> Result<(), Duration> {
        let full = limits.actions_burst_max.saturating_mul(1000);
        let rate = limits.actions_per_second_max.max(1);
        let bucket = self.buckets.entry(*caller).or_insert(Bucket { left: full, at: now });
        // A clock that was put back must not stop the allowance from filling.
        bucket.at = bucket.at.min(now);
        // One action a second is one thousandth of an action in a millisecond.
        let gained = now.since(bucket.at).0.saturating_mul(rate);
        bucket.left = bucket.left.saturating_add(gained).min(full);
        bucket.at = now;
        match bucket.left.checked_sub(1000) {
            Some(left) => {
                bucket.left = left;
                Ok(())
            }
            None => Err(Duration((1000 - bucket.left).div_ceil(rate).max(1))),
        }
    }

    /// Whether a caller may try to join (S1).
    ///
    /// # Errors
    /// How long to wait after too many failures.
    pub fn may_join(&mut self, caller: &[u8; 32], limits: &Limits, now: Time) -> Result<(), Duration> {
        let Some(failures) = self.failed_joins.get_mut(caller) else { return Ok(()) };
        failures.retain_mut(|failure| {
            // A clock that was set back makes nobody wait for longer than the window.
            *failure = now.min(*failure);
            now.since(*failure) < FAILED_JOINS_WINDOW
        });
        match failures.first() {
            Some(first) if failures.len() as u64 >= limits.failed_joins_max => {
                Err(first.after(FAILED_JOINS_WINDOW).since(now))
            }
            _ => Ok(()),
        }
    }

    /// Notes a failed join.
    pub fn join_failed(&mut self, caller: &[u8; 32], now: Time) {
        self.failed_joins.entry(*caller).or_default().push(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_the_steady_rate() {
        let mut limits = Limits::DEFAULT;
        limits.actions_burst_max = 2;
        limits.actions_per_second_max = 10;
        let mut rates = Rates::default();
        let start = Time(1_000_000);
        assert_eq!(rates.take(&[0; 32], &limits, start), Ok(()));
        assert_eq!(rates.take(&[0; 32], &limits, start), Ok(()));
        assert_eq!(rates.take(&[0; 32], &limits, start), Err(Duration(100)));
        assert_eq!(rates.take(&[1; 32], &limits, start), Ok(()), "others have their own");
        assert_eq!(rates.take(&[0; 32], &limits, start.after(Duration(99))), Err(Duration(1)));
        assert_eq!(rates.take(&[0; 32], &limits, start.after(Duration(100))), Ok(()));
    }

    #[test]
    fn a_clock_that_was_put_back_stops_no_allowance() {
        let mut limits = Limits::DEFAULT;
        (limits.actions_burst_max, limits.actions_per_second_max, limits.failed_joins_max) = (1, 10, 1);
        let mut rates = Rates::default();
        let (ahead, now) = (Time(1_000_000_000), Time(1_000_000));
        assert_eq!(rates.take(&[0; 32], &limits, ahead), Ok(()));
        rates.join_failed(&[0; 32], ahead);
        assert_eq!(rates.take(&[0; 32], &limits, now), Err(Duration(100)));
        assert_eq!(rates.take(&[0; 32], &limits, now.after(Duration(100))), Ok(()));
        // A failure in what is now the future counts from now on, for no longer than the window.
        assert_eq!(rates.may_join(&[0; 32], &limits, now), Err(FAILED_JOINS_WINDOW));
        assert_eq!(rates.may_join(&[0; 32], &limits, now.after(FAILED_JOINS_WINDOW)), Ok(()));
    }

    #[test]
    fn failed_joins_are_forgotten_after_the_window() {
        let mut limits = Limits::DEFAULT;
        limits.failed_joins_max = 1;
        let mut rates = Rates::default();
        let start = Time(1_000_000);
        assert_eq!(rates.may_join(&[0; 32], &limits, start), Ok(()));
        rates.join_failed(&[0; 32], start);
        assert_eq!(rates.may_join(&[0; 32], &limits, start), Err(FAILED_JOINS_WINDOW));
        assert_eq!(rates.may_join(&[0; 32], &limits, start.after(FAILED_JOINS_WINDOW)), Ok(()));
    }

    #[test]
    fn a_failed_join_that_ran_out_stays_forgotten_when_the_clock_is_put_back() {
        let mut limits = Limits::DEFAULT;
        limits.failed_joins_max = 1;
        let mut rates = Rates::default();
        let (start, over) = (Time(1_000_000), Time(1_000_000).after(FAILED_JOINS_WINDOW));
        rates.join_failed(&[0; 32], start);
        assert_eq!(rates.may_join(&[0; 32], &limits, over), Ok(()));
        assert_eq!(rates.may_join(&[0; 32], &limits, start), Ok(()));
    }
}
