//! The guard against jumps of this host's own clock (design: time is log time).
//!
//! The host records the wall time at every commit and each minute. A clock that is far from the last time recorded is
//! not believed: nothing is sealed until the owner confirms it, or it comes back.

use crate::time::{Duration, Time};

/// How far past the last recorded time a clock is still believed.
pub const AHEAD_MAX: Duration = Duration::days(30);
/// How far behind the last recorded time a clock is still believed; log time stands still meanwhile.
pub const BEHIND_MAX: Duration = Duration::minutes(10);

/// Why a clock is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// It is more than [`AHEAD_MAX`] past the last time recorded.
    Ahead,
    /// It is more than [`BEHIND_MAX`] behind the last time recorded.
    Behind,
}

impl Jump {
    /// The name at the interfaces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ahead => "clock_ahead",
            Self::Behind => "clock_behind",
        }
    }
}

/// Checks a wall clock against the last time recorded; a host that recorded none believes its clock.
///
/// # Errors
/// The jump.
pub fn check(last: Option<Time>, now: Time) -> Result<(), Jump> {
    match last {
        Some(last) if now > last.after(AHEAD_MAX) => Err(Jump::Ahead),
        Some(last) if now < last.before(BEHIND_MAX) => Err(Jump::Behind),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_believed_near_the_last_time_only() {
        let last = Time(1_000_000_000_000);
        assert_eq!(check(None, Time(5)), Ok(()));
        assert_eq!(check(Some(last), last.after(AHEAD_MAX)), Ok(()));
        assert_eq!(check(Some(last), last.after(AHEAD_MAX).after(Duration(1))), Err(Jump::Ahead));
        assert_eq!(check(Some(last), last.before(BEHIND_MAX)), Ok(()));
        assert_eq!(check(Some(last), last.before(BEHIND_MAX).before(Duration(1))), Err(Jump::Behind));
    }
}
