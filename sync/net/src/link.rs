//! What the upper layer gets of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use iroh::TransportAddr;
use iroh::endpoint::Connection;
use kwoon_keys::PublicKey;

use crate::config::ADDRESSES_MAX;
use crate::frame::{Counters, FrameReceiver, FrameSender};

/// A connection with another host, which has proved with its key who it is. Whether it may have anything is for the
/// upper layer to decide.
///
/// There is one live link for each host: before a new one is handed over, the old one is closed. Links of one host come
/// in the order of their generations.
#[derive(Debug)]
pub struct Link {
    /// The other host.
    pub peer: PublicKey,
    /// Whether this host dialled.
    pub dialed: bool,
    /// Rises with every link of this net, so that of two links the later is known.
    pub generation: u64,
    /// The addresses of the peer on which the link runs when it is handed over; none if it runs over a relay only.
    /// Later ones are in [`crate::Net::last_addresses`].
    pub remote: Vec<SocketAddr>,
    /// To the peer.
    pub sender: FrameSender,
    /// From the peer.
    pub receiver: FrameReceiver,
}

impl Link {
    /// The counters of the link, which go on counting when the link is taken apart.
    pub fn counters(&self) -> Arc<Counters> {
        self.sender.counters()
    }
}

/// The addresses of the peer on which a connection runs, the one in use first.
pub(crate) fn addresses(connection: &Connection) -> Vec<SocketAddr> {
    let paths = connection.paths();
    let (used, spare): (Vec<_>, Vec<_>) = paths.iter().partition(|path| path.is_selected());
    let mut addresses = Vec::new();
    for path in used.iter().chain(&spare) {
        if let TransportAddr::Ip(address) = path.remote_addr() {
            remember(&mut addresses, *address);
        }
    }
    addresses
}

/// Appends an address unless it is there, while there is room.
pub(crate) fn remember(addresses: &mut Vec<SocketAddr>, address: SocketAddr) {
    if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address) {
        addresses.push(address);
    }
}
