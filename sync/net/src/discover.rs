//! Hosts of the local network, by multicast DNS.
//!
//! The library joins its multicast group once, where the system sends multicasts at that moment: without a network that
//! is nowhere, and afterwards it may be elsewhere. So it is begun anew whenever this host has moved.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use iroh::Endpoint;
use iroh_mdns_address_lookup::{DiscoveryEvent, MdnsAddressLookup};
use kwoon_keys::PublicKey;
use n0_future::StreamExt;
use tokio::time::sleep;

use crate::table::Shared;

const SERVICE: &str = "kwoon";
/// The group and port of multicast DNS (RFC 6762).
const GROUP: (Ipv4Addr, u16) = (Ipv4Addr::new(224, 0, 0, 251), 5353);
/// How often it is looked whether this host has moved.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);

/// Where this host is, as far as that changes how others are discovered.
#[derive(PartialEq, Eq)]
struct Place {
    /// From where the system sends multicasts over IPv4, if anywhere.
    origin: Option<IpAddr>,
    addresses: BTreeSet<IpAddr>,
}

impl Place {
    fn of(endpoint: &Endpoint) -> Self {
        Self { origin: origin(), addresses: endpoint.addr().ip_addrs().map(|address| address.ip()).collect() }
    }
}

/// Nothing is sent to learn it.
fn origin() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(GROUP).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Tells the dialers where peers announce themselves, and announces this host, until the task is aborted.
pub(crate) async fn discover(shared: Arc<Shared>, endpoint: Endpoint) {
    loop {
        let place = Place::of(&endpoint);
        let moved = async {
            while Place::of(&endpoint) == place {
                sleep(LOOK_INTERVAL).await;
            }
        };
        let lookup = begin(&endpoint);
        tokio::select! {
            () = moved => tracing::debug!("this host has moved, and is announced anew"),
            () = listen(&shared, lookup) => {}
        }
    }
}

/// Begins to announce this host. One without a network has nobody to discover; it can be dialled all the same.
fn begin(endpoint: &Endpoint) -> Option<MdnsAddressLookup> {
    let services = endpoint.address_lookup().ok()?;
    // The one before is of no use where this host is now.
    services.clear();
    let lookup = MdnsAddressLookup::builder().service_name(SERVICE).build(endpoint.id());
    let lookup = lookup.inspect_err(|error| tracing::warn!(%error, "no hosts are discovered")).ok()?;
    services.add(lookup.clone());
    Some(lookup)
}

/// Does not return.
async fn listen(shared: &Shared, lookup: Option<MdnsAddressLookup>) {
    if let Some(lookup) = lookup {
        let mut events = lookup.subscribe().await;
        while let Some(event) = events.next().await {
            if let DiscoveryEvent::Discovered { endpoint_info, .. } = event {
                let peer = PublicKey(*endpoint_info.endpoint_id.as_bytes());
                let addresses: Vec<_> = endpoint_info.ip_addrs().copied().collect();
                shared.table().discovered(&peer, &addresses);
            }
        }
    }
    std::future::pending().await
}
