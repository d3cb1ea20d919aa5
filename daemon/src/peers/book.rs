//! What the store says of other hosts: whom to keep a link with, whom to refuse, and for whom something waits.

use std::collections::{BTreeMap, BTreeSet};

use kwoon_keys::PublicKey;
use kwoon_ledger::index;
use kwoon_ledger::outbox;
use kwoon_ledger::state::Cells;
use kwoon_ledger::storage::{Read, ReadError};
use kwoon_net::Hints;
use kwoon_sync::operations::peer::is_online;
use kwoon_sync::peers::{self, Peer};

/// Actions of the outbox that are looked at in one step.
const ACTIONS_PER_STEP: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Whether the owner wants this host to talk to others.
    pub(super) is_online: bool,
    /// Hosts to keep a link with, and where they may be found.
    pub(super) kept: BTreeMap<PublicKey, Hints>,
    /// Hosts to refuse.
    pub(super) blocked: BTreeSet<PublicKey>,
    /// Hosts for which an own action came since the last look.
    pub(super) urgent: BTreeSet<PublicKey>,
    /// All hosts that are known, with their addresses as they are noted.
    pub(super) known: BTreeMap<PublicKey, Vec<String>>,
}

/// Reads it again and again.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Where the outbox was read to.
    order: u64,
    /// Hosts for which actions were waiting, though nobody added them: they are looked for.
    awaited: BTreeSet<PublicKey>,
}

impl Reader {
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn read(&mut self, read: &dyn Read) -> Result<Book, ReadError> {
        let mut book = Book { is_online: is_online(read)?, ..Book::default() };
        book.urgent = self.urgent(read)?;
        self.awaited.extend(&book.urgent);
        for (host, peer) in peers::all(read)? {
            if peer.blocked {
                book.blocked.insert(host);
                self.awaited.remove(&host);
            } else if peer.added || !peer.addresses.is_empty() && shares(read, &host)? {
                book.kept.insert(host, hints(&peer));
            }
            book.known.insert(host, peer.addresses);
        }
        for host in &self.awaited {
            book.kept.entry(*host).or_default();
        }
        Ok(book)
    }

    /// For whom own actions came since this was last asked: the hosts that order their logs, or where these may be found.
    fn urgent(&mut self, read: &dyn Read) -> Result<BTreeSet<PublicKey>, ReadError> {
        let mut urgent = BTreeSet::new();
        loop {
            let page = outbox::since(read, self.order, ACTIONS_PER_STEP)?;
            let Some(last) = page.last() else { return Ok(urgent) };
            self.order = last.order.saturating_add(1);
            for row in page.iter().filter(|row| row.own && row.is_pending()) {
                match index::number(read, &row.carried.object)? {
                    Some(number) => {
                        urgent.extend(Cells::new(read, number).head()?.map(|head| head.sequencer));
                    }
                    None => urgent.extend(&row.hosts),
                }
            }
        }
    }
}

/// Whether agents on a host may read something that is here.
pub(super) fn shares(read: &dyn Read, host: &PublicKey) -> Result<bool, ReadError> {
    Ok(!index::hosted(read, host, 0, 1)?.is_empty())
}

/// Where a host may be found.
fn hints(peer: &Peer) -> Hints {
    let addresses = peer.addresses.iter().filter_map(|address| address.parse().ok()).collect();
    Hints { addresses, relay: peer.relay.clone() }
}
