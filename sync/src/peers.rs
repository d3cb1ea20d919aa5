//! What a host knows of other hosts. Kept from start to start.

use kwoon_keys::{PublicKey, cbor};
use kwoon_ledger::storage::{Order, Overlay, Read, ReadError, Table};
use kwoon_ledger::time::Time;
use minicbor::{Decode, Encode};

use crate::wire::Seen;

/// Hosts that are remembered at most: those that were added are never forgotten for others.
pub const PEERS_MAX: usize = 4096;
/// Addresses that are remembered of one host.
pub const ADDRESSES_MAX: usize = 8;

/// What is known of another host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Peer {
    /// Whether this host's owner added it, or one of its agents joined by a ticket that names it.
    #[n(0)]
    pub added: bool,
    /// Whether nothing is said to it, or heard from it.
    #[n(1)]
    pub blocked: bool,
    /// Where it was found last, or is said to be: `IP:PORT`, the latest first.
    #[n(2)]
    pub addresses: Vec<String>,
    /// Its relay.
    #[n(3)]
    pub relay: Option<String>,
    /// How far its changes are taken in.
    #[n(4)]
    pub seen: Option<Seen>,
    /// When it was last heard from.
    #[n(5)]
    pub heard_at: Option<Time>,
    /// How far its clock was ahead of this host's then, in milliseconds.
    #[n(6)]
    pub ahead_ms: i64,
}

/// What is known of a host.
///
/// # Errors
/// If the store cannot be read.
pub fn get(read: &dyn Read, host: &PublicKey) -> Result<Option<Peer>, ReadError> {
    let row = read.get(Table::Peers, &host.0)?;
    row.map(|row| cbor::read_own(&row).map_err(|_| ReadError::damaged("what is known of a host"))).transpose()
}

/// Notes what is known of a host.
pub fn put(overlay: &mut Overlay<'_>, host: &PublicKey, peer: &Peer) {
    overlay.put(Table::Peers, host.0.to_vec(), cbor::write(peer));
}

/// Forgets a host.
pub fn remove(overlay: &mut Overlay<'_>, host: &PublicKey) {
    overlay.remove(Table::Peers, host.0.to_vec());
}

/// All hosts that are known, by their ids.
///
/// # Errors
/// If the store cannot be read.
pub fn all(read: &dyn Read) -> Result<Vec<(PublicKey, Peer)>, ReadError> {
    let damaged = || ReadError::damaged("what is known of a host");
    let rows = read.range(Table::Peers, &[], &[0xff; 33], Order::Rising, usize::MAX)?;
    let rows = rows.into_iter().map(|(key, row)| {
        let host = key.try_into().map_err(|_| damaged())?;
        Ok((PublicKey(host), cbor::read_own(&row).map_err(|_| damaged())?))
    });
    rows.collect()
}

/// Adds a host, with where it is said to be.
///
/// # Errors
/// If the store cannot be read.
pub fn add(overlay: &mut Overlay<'_>, host: &PublicKey, addresses: &[String]) -> Result<(), ReadError> {
    let mut peer = get(overlay, host)?.unwrap_or_default();
    peer.added = true;
    peer.found_at(addresses);
    put(overlay, host, &peer);
    Ok(())
}

impl Peer {
    /// Notes where it was found, or is said to be: these first, of what was known before as many as there is room for.
    pub fn found_at(&mut self, addresses: &[String]) {
        let mut all: Vec<String> = Vec::new();
        for address in addresses.iter().chain(&self.addresses) {
            if !all.contains(address) && all.len() < ADDRESSES_MAX {
                all.push(address.clone());
            }
        }
        self.addresses = all;
    }
}
