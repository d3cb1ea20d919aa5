//! How long to wait before a peer is dialled again.

use std::time::Duration;

use tokio::time::Instant;

/// While a peer has been away for less than [`PATIENCE`].
const DELAY_SOON_MAX: Duration = Duration::from_secs(10);
/// Afterwards.
const DELAY_MAX: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(3600);

/// Failures since the peer was last reached.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failing: Option<Failing>,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    /// The delay without jitter.
    delay: Duration,
    next: Instant,
}

impl Backoff {
    /// When to dial next; at once if that is not given.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.failing.as_ref().map(|failing| failing.next)
    }

    /// An attempt failed. `random` spreads the next ones of many hosts.
    pub(crate) fn failed(&mut self, now: Instant, random: u64) {
        let (since, delay) = match &self.failing {
            Some(failing) => (failing.since, failing.delay * 2),
            None => (now, Duration::from_secs(1)),
        };
        let most = if now.duration_since(since) < PATIENCE { DELAY_SOON_MAX } else { DELAY_MAX };
        let delay = delay.min(most);
        // Between three quarters of the delay and all of it.
        let next = now + delay - delay / 4 * (random as u8).into() / 256;
        self.failing = Some(Failing { since, delay, next });
    }

    /// The peer was there for a moment: it has not been away for long, but delays go on growing.
    pub(crate) fn reached(&mut self, now: Instant) {
        if let Some(failing) = &mut self.failing {
            failing.since = now;
        }
    }

    /// The peer was reached and stayed, or something is new: dial at once.
    pub(crate) fn reset(&mut self) {
        self.failing = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(random: u64, count: usize) -> Vec<Duration> {
        let mut now = Instant::now();
        let mut backoff = Backoff::default();
        let mut delays = Vec::new();
        for _ in 0..count {
            backoff.failed(now, random);
            let next = backoff.next().unwrap();
            delays.push(next - now);
            now = next;
        }
        delays
    }

    #[test]
    fn delays_grow_to_ten_seconds_and_after_an_hour_to_five_minutes() {
        let delays = delays(0, 1000);
        assert_eq!(delays[..6], [1, 2, 4, 8, 10, 10].map(Duration::from_secs));
        let mut away = Duration::ZERO;
        for delay in &delays {
            assert!(*delay <= if away < PATIENCE { DELAY_SOON_MAX } else { DELAY_MAX }, "{away:?}: {delay:?}");
            away += *delay;
        }
        assert_eq!(delays.last(), Some(&DELAY_MAX));
    }

    #[test]
    fn jitter_only_shortens_and_by_a_quarter_at_most() {
        for (plain, spread) in delays(0, 1000).into_iter().zip(delays(255, 1000)).take(300) {
            assert!(spread <= plain && spread >= plain * 3 / 4);
        }
    }

    #[test]
    fn who_is_there_for_moments_only_is_dialled_every_ten_seconds() {
        let mut now = Instant::now();
        let mut backoff = Backoff::default();
        for _ in 0..1000 {
            backoff.reached(now);
            backoff.failed(now, 0);
            now = backoff.next().unwrap();
        }
        assert_eq!(backoff.failing.unwrap().delay, DELAY_SOON_MAX);
    }

    #[test]
    fn a_reset_dials_at_once_and_begins_anew() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        (0..5).for_each(|_| backoff.failed(now, 0));
        backoff.reset();
        assert_eq!(backoff.next(), None);
        backoff.failed(now, 0);
        assert_eq!(backoff.next(), Some(now + Duration::from_secs(1)));
    }
}
