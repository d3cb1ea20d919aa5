//! What a net is opened with.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use iroh::{RelayMode, RelayUrl};
use kwoon_keys::KeyPair;

/// The longest frame there can be, in bytes, whoever sends it.
pub const FRAME_BYTES_MAX: usize = 80 << 20;
/// Frames up to this many bytes are assembled without a share of [`NetLimits::assembly_bytes_max`].
pub const SMALL_FRAME_BYTES: usize = 1 << 20;
/// Addresses of one host that are remembered, that are tried of its hints, and that a ticket may hold.
pub const ADDRESSES_MAX: usize = 16;

/// What a net is opened with.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// The key of this host. Its public half is the host's id and its address in the network.
    pub key: KeyPair,
    /// Where to listen. With port 0 the system chooses one. `0.0.0.0` means every interface, over IPv4 only; `[::]`
    /// means every interface, over IPv4 as well where the port is free there.
    pub bind: SocketAddr,
    /// Whether another port will do where that one is taken.
    pub any_port: bool,
    /// Whether hosts that cannot reach each other directly meet at a relay.
    pub relay: Relay,
    /// Whether hosts of the local network find each other.
    pub discovery: Discovery,
    /// Whether the net begins online. If not, it opens no socket before [`crate::Net::set_online`].
    pub online: bool,
    /// How much it may take.
    pub limits: NetLimits,
}

impl NetConfig {
    /// A net that is online at `bind`, with neither relay nor discovery, and with the default limits.
    pub fn new(key: KeyPair, bind: SocketAddr) -> Self {
        let limits = NetLimits::default();
        Self { key, bind, any_port: false, relay: Relay::Off, discovery: Discovery::Off, online: true, limits }
    }
}

/// Which relay is used. A relay sees who talks to whom, never what is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relay {
    /// None: hosts meet only where they can reach each other directly.
    Off,
    /// The public relays of iroh.
    Default,
    /// One's own, by its `http` or `https` URL. Peers whose relay is not known are looked for there as well.
    Url(String),
}

impl Relay {
    pub(crate) fn mode(&self) -> Result<RelayMode, NetError> {
        Ok(match self {
            Self::Off => RelayMode::Disabled,
            Self::Default => RelayMode::Default,
            Self::Url(_) => RelayMode::custom(self.own()?),
        })
    }

    /// The relay at which peers are looked for whose relay is not known.
    pub(crate) fn own(&self) -> Result<Option<RelayUrl>, NetError> {
        let Self::Url(url) = self else { return Ok(None) };
        relay_url(url).map(Some).ok_or_else(|| NetError::Relay(url.clone()))
    }
}

/// Reads the URL of a relay; anything but `http` and `https` with a host is none.
pub(crate) fn relay_url(text: &str) -> Option<RelayUrl> {
    let url: RelayUrl = text.parse().ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

/// Whether hosts of the local network find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// They do not.
    Off,
    /// By multicast DNS, under the service name `kwoon`. The id and the addresses of this host are visible to
    /// everyone in the local network.
    Mdns,
}

/// What a net may take. Every figure is a maximum; times are how long something may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetLimits {
    /// Bytes of a frame on a link until the upper layer trusts the peer
    /// ([`crate::FrameReceiver::raise_frame_bytes_max`]).
    pub stranger_frame_bytes_max: usize,
    /// Bytes of all frames over [`SMALL_FRAME_BYTES`] that are being assembled, on all links together.
    pub assembly_bytes_max: usize,
    /// Links of hosts that were not added.
    pub strangers_max: usize,
    /// Links in all.
    pub links_max: usize,
    /// Incoming connections that are not yet links.
    pub handshakes_max: usize,
    /// From the first packet of an incoming connection to the first frame on its link.
    pub handshake_time: Duration,
    /// One attempt to reach a peer.
    pub dial_time: Duration,
}

impl Default for NetLimits {
    fn default() -> Self {
        Self {
            stranger_frame_bytes_max: 1 << 20,
            assembly_bytes_max: 160 << 20,
            strangers_max: 64,
            links_max: 1024,
            handshakes_max: 128,
            handshake_time: Duration::from_secs(10),
            dial_time: Duration::from_secs(8),
        }
    }
}

/// Where a host may be found. A hint is never trusted: whoever answers must prove with its key to be that host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Addresses, the best first. What goes beyond [`ADDRESSES_MAX`] is not tried.
    pub addresses: Vec<SocketAddr>,
    /// The URL of the relay at which it can be met. One that is no URL is passed over.
    pub relay: Option<String>,
}

impl From<Vec<SocketAddr>> for Hints {
    fn from(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses, relay: None }
    }
}

/// Why a net cannot be opened or be online.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The address that was asked for.
    #[error("cannot bind {address}: {source}; give another with --bind")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The relay is no URL.
    #[error("{0:?} is not the URL of a relay; give one that begins with https://, or turn the relay off")]
    Relay(String),
    /// The system gives no network.
    #[error("the network cannot be used: {0}")]
    System(String),
    /// The net was closed.
    #[error("the net is closed; open another")]
    Closed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_an_http_url() {
        assert!(relay_url("https://relay.example").is_some());
        assert!(relay_url("http://127.0.0.1:3340").is_some());
        for text in ["", "relay.example", "ftp://relay.example", "file:///etc", "https://"] {
            assert!(relay_url(text).is_none(), "{text}");
        }
        let error = Relay::Url("nonsense".into()).mode().unwrap_err();
        assert!(error.to_string().contains("\"nonsense\" is not the URL of a relay"));
    }
}
