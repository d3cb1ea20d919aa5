//! The return window (design: time is log time). While a sequencer was down the time of its logs stood still. When it
//! returns and finds deadlines passed that agents of other hosts had, each such log waits: only actions of those hosts that
//! were issued before the deadline are sealed, until they were all heard or ten minutes have gone by.

use std::collections::{BTreeMap, BTreeSet};

use kwoon_keys::PublicKey;
use kwoon_ledger::action::Action;
use kwoon_ledger::index;
use kwoon_ledger::rules::assignment;
use kwoon_ledger::state::{Cells, ObjectNumber, Progress};
use kwoon_ledger::storage::{Read, ReadError};
use kwoon_ledger::time::{Duration, Time};

/// How long a log waits for the hosts whose deadlines passed.
pub const WINDOW: Duration = Duration::minutes(10);
/// Deadlines that are looked at when a sequencer returns; later ones come as if nobody had been away.
const DEADLINES_MAX: usize = 65_536;

/// A log that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first deadline that passed.
    pub due: Time,
    /// The hosts that are waited for.
    pub hosts: BTreeSet<PublicKey>,
    /// When it goes on at the latest.
    pub until: Time,
}

impl Window {
    /// At which log time an action is sealed that may be, in a log whose last fact is of some time: nothing if it has to
    /// wait.
    pub fn admits(&self, action: &Action, hosts: &BTreeSet<PublicKey>, last: Time) -> Option<Time> {
        let in_time = action.issued_at < self.due && !self.hosts.is_disjoint(hosts);
        in_time.then(|| last.max(action.issued_at.min(self.due.before(Duration(1)))))
    }
}

/// The logs that wait, as a sequencer finds them when it returns.
///
/// # Errors
/// If the store cannot be read.
pub fn windows(read: &dyn Read, own: &PublicKey, now: Time) -> Result<BTreeMap<ObjectNumber, Window>, ReadError> {
    let mut windows: BTreeMap<ObjectNumber, Window> = BTreeMap::new();
    for (due, number, entry) in index::due_until(read, own, now, DEADLINES_MAX)? {
        let cells = Cells::new(read, number);
        let Some(held) = cells.assignment_at(entry)? else { continue };
        let bearer = match held.progress {
            Progress::Taken(..) => held.terms.to,
            Progress::Delivered(..) => held.creator,
            Progress::Offered | Progress::Ended(..) => continue,
        };
        if assignment::next_due(&held).is_none_or(|(_, at)| at != due) {
            continue;
        }
        let mut hosts = cells.account(&bearer)?.map(|account| account.hosts()).unwrap_or_default();
        hosts.remove(own);
        if hosts.is_empty() {
            continue;
        }
        let until = now.after(WINDOW);
        let window = windows.entry(number).or_insert_with(|| Window { due, hosts: BTreeSet::new(), until });
        window.due = window.due.min(due);
        window.hosts.extend(hosts);
    }
    Ok(windows)
}
