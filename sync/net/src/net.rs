//! The net of one host: its endpoint, from being opened to being closed, online and offline.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use iroh::Endpoint;
use iroh::endpoint::{BindError, BindOpts, PortmapperConfig, QuicTransportConfig, VarInt, presets};
use kwoon_keys::PublicKey;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

use crate::config::{Discovery, Hints, NetConfig, NetError};
use crate::link::Link;
use crate::table::{Online, Shared};
use crate::{ALPN, accept, dial, discover};

/// A peer of whom nothing came for this long is gone.
const IDLE_MAX: Duration = Duration::from_secs(8);
/// An idle link sends one packet in this time, so a dead peer is found within the sum of both.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// So often and so long a port is waited for, which the system gives back a little after an endpoint is closed.
const PORT_TRIES: u32 = 50;
const PORT_WAIT: Duration = Duration::from_millis(20);

/// The net of one host. Every method may be called from any task, also while another is under way.
///
/// [`Net::close`] tells all peers that this host leaves. If it is only dropped, they find out by themselves within some
/// ten seconds.
pub struct Net {
    shared: Arc<Shared>,
    config: NetConfig,
    session: Mutex<Session>,
    runtime: Handle,
}

struct Session {
    state: State,
    /// Where the last endpoint was bound, so that the next one is found there.
    bound: Option<SocketAddr>,
}

enum State {
    Online(Running),
    Offline,
    Closed,
}

/// The tasks of an endpoint.
struct Running {
    accepting: JoinHandle<()>,
    discovering: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.accepting.abort();
        if let Some(discovering) = &self.discovering {
            discovering.abort();
        }
    }
}

impl Net {
    /// Opens a net in the present tokio runtime. Every link, dialled or accepted, comes out of `incoming`; when its
    /// receiver is dropped, new links are closed. While the channel is full, new links wait.
    ///
    /// # Errors
    /// If the address cannot be bound, or the relay is no URL.
    pub async fn open(config: NetConfig, incoming: mpsc::Sender<Link>) -> Result<Self, NetError> {
        config.relay.mode()?;
        let discovers = config.discovery == Discovery::Mdns;
        let relay = config.relay.own()?;
        let shared = Arc::new(Shared::new(config.key.public(), config.limits, relay, discovers, incoming));
        let session = Mutex::new(Session { state: State::Offline, bound: None });
        let online = config.online;
        let net = Self { shared, config, session, runtime: Handle::current() };
        if online {
            net.set_online(true).await?;
        }
        Ok(net)
    }

    /// The id of this host.
    pub fn host(&self) -> PublicKey {
        self.shared.me
    }

    /// Where the endpoint listens; nothing while it is offline.
    pub fn bound(&self) -> Vec<SocketAddr> {
        self.endpoint().map(|endpoint| endpoint.bound_sockets()).unwrap_or_default()
    }

    /// The direct addresses that are worth telling others: those of the interfaces, and what the relay sees of this
    /// host; nothing while it is offline.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.endpoint().map(|endpoint| endpoint.addr().ip_addrs().copied().collect()).unwrap_or_default()
    }

    /// The URL of the relay at which this host can be met now, if any.
    pub fn relay(&self) -> Option<String> {
        self.endpoint().and_then(|endpoint| endpoint.addr().relay_urls().next().map(ToString::to_string))
    }

    fn endpoint(&self) -> Option<Endpoint> {
        self.shared.table().online.as_ref().map(|online| online.endpoint.clone())
    }

    /// Keeps a link with a host from now on. Of a host that was added before, the hints are replaced, and it is dialled
    /// at once if they are new.
    ///
    /// A peer is dialled at once, then after 1, 2, 4, 8 and every 10 seconds, and after an hour less often, down to
    /// every five minutes. A link that ends within ten seconds counts as a failure.
    pub fn add_peer(&self, peer: PublicKey, hints: impl Into<Hints>) {
        if peer == self.host() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let start = |wake| self.runtime.spawn(dial::keep(shared, peer, wake)).abort_handle();
        self.shared.table().add(peer, hints.into(), start);
    }

    /// Dials a host no longer. A link that is there stays until one of the ends closes it, as a stranger's.
    pub fn remove_peer(&self, peer: &PublicKey) {
        self.shared.table().remove(peer);
    }

    /// Refuses a host: its connections are closed at once, it is not dialled though it may have been added, and a
    /// present link is closed.
    pub fn block(&self, peer: PublicKey) {
        self.shared.table().block(peer);
    }

    /// Takes a host as before. If it is added, it is dialled at once.
    pub fn unblock(&self, peer: &PublicKey) {
        self.shared.table().unblock(peer);
    }

    /// Dials a peer without waiting for the end of a delay. Does nothing for hosts that were not added or are linked.
    pub fn dial_now(&self, peer: &PublicKey) {
        self.shared.table().dial_now(peer);
    }

    /// The hosts with which there is a live link.
    pub fn linked(&self) -> Vec<PublicKey> {
        self.shared.table().linked()
    }

    /// The addresses at which a host proved to be, those in use first; at most [`crate::ADDRESSES_MAX`]. Of a host that
    /// was not added they are known while there is a link.
    pub fn last_addresses(&self, peer: &PublicKey) -> Vec<SocketAddr> {
        self.shared.table().last_addresses(peer)
    }

    /// Goes online or offline. Offline, the endpoint is closed and with it every link: nothing is sent or accepted.
    /// Online again, it is bound to the same port, or to another one if that is taken and none was asked for, and all
    /// peers are dialled at once. Going offline may take some seconds, while peers are told and until the port is free, for
    /// which the links that ended must have been dropped.
    ///
    /// # Errors
    /// If it cannot be bound, or is closed. It is offline then.
    pub async fn set_online(&self, online: bool) -> Result<(), NetError> {
        let mut session = self.session.lock().await;
        match (&session.state, online) {
            (State::Closed, _) => return Err(NetError::Closed),
            (State::Online(_), true) | (State::Offline, false) => {}
            (State::Offline, true) => {
                let endpoint = self.bind_again(session.bound).await?;
                let bound = endpoint.bound_sockets();
                session.bound = bound.into_iter().find(|bound| bound.is_ipv6() == self.config.bind.is_ipv6());
                let online = self.shared.table().go_online(endpoint);
                session.state = State::Online(self.run(online));
            }
            (State::Online(_), false) => {
                // If this call is dropped half way, the tasks of the endpoint end all the same.
                let state = std::mem::replace(&mut session.state, State::Offline);
                self.stop(state).await;
            }
        }
        Ok(())
    }

    /// Closes the endpoint and every link, and forgets all peers. Returns when peers know, or some seconds later.
    pub async fn close(&self) {
        let mut session = self.session.lock().await;
        let state = std::mem::replace(&mut session.state, State::Closed);
        self.shared.table().remove_all();
        self.stop(state).await;
    }

    async fn stop(&self, state: State) {
        let online = self.shared.table().go_offline();
        let mut bound = Vec::new();
        if let Some(online) = online {
            bound = online.endpoint.bound_sockets();
            online.endpoint.close().await;
        }
        if let State::Online(mut running) = state {
            // It ends by itself because the endpoint is closed.
            let _ = (&mut running.accepting).await;
        }
        for address in bound {
            released(address).await;
        }
    }

    fn run(&self, online: Online) -> Running {
        let discovers = self.config.discovery == Discovery::Mdns;
        let discover = || discover::discover(Arc::clone(&self.shared), online.endpoint.clone());
        let discovering = discovers.then(|| self.runtime.spawn(discover()));
        let accepting = accept::accept(Arc::clone(&self.shared), online.endpoint, online.session);
        Running { accepting: self.runtime.spawn(accepting), discovering }
    }

    /// Binds where the last endpoint was, if there was one.
    async fn bind_again(&self, last: Option<SocketAddr>) -> Result<Endpoint, NetError> {
        let Some(last) = last else { return self.bind_first().await };
        for _ in 0..PORT_TRIES {
            match self.bind(last).await {
                Err(NetError::Bind { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
            tokio::time::sleep(PORT_WAIT).await;
        }
        self.bind_first().await
    }

    /// Binds where it is wished, or at another port if one will do.
    async fn bind_first(&self) -> Result<Endpoint, NetError> {
        match self.bind(self.config.bind).await {
            Err(NetError::Bind { source, .. }) if self.config.any_port && source.kind() == io::ErrorKind::AddrInUse => {
                self.bind(SocketAddr::new(self.config.bind.ip(), 0)).await
            }
            bound => bound,
        }
    }

    async fn bind(&self, address: SocketAddr) -> Result<Endpoint, NetError> {
        let system = |error: &dyn std::fmt::Display| NetError::System(error.to_string());
        let key = iroh::SecretKey::from_bytes(&self.config.key.seed());
        let mut builder = Endpoint::builder(presets::Minimal)
            .secret_key(key)
            .alpns(vec![ALPN.to_vec()])
            .relay_mode(self.config.relay.mode()?)
            .portmapper_config(PortmapperConfig::Disabled)
            .transport_config(transport(1))
            .clear_ip_transports()
            .bind_addr(address)
            .map_err(|error| system(&error))?;
        if address.is_ipv6() && address.ip().is_unspecified() {
            let both = BindOpts::default().set_is_required(false);
            let address = (Ipv4Addr::UNSPECIFIED, address.port());
            builder = builder.bind_addr_with_opts(address, both).map_err(|error| system(&error))?;
        }
        builder.bind().await.map_err(|error| match error {
            BindError::Sockets { source, .. } => NetError::Bind { address, source },
            error => system(&error),
        })
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        table.remove_all();
        table.go_offline();
    }
}

/// Waits until the system has a socket back, which is when the last task and the last link that used it are gone. No one
/// reads from it any more. Links that the upper layer still holds are not waited for longer than a second.
async fn released(address: SocketAddr) {
    for _ in 0..PORT_TRIES {
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(PORT_WAIT).await,
            _ => return,
        }
    }
}

/// How connections behave on which the other end may open so many streams.
pub(crate) fn transport(streams: u32) -> QuicTransportConfig {
    let idle = IDLE_MAX.try_into().expect("a few seconds fit");
    QuicTransportConfig::builder()
        .max_concurrent_bidi_streams(VarInt::from_u32(streams))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(KEEP_ALIVE)
        .default_path_max_idle_timeout(IDLE_MAX)
        .default_path_keep_alive_interval(KEEP_ALIVE)
        .build()
}
