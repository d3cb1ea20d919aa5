//! What a net knows at a moment: the peers it was told of, the blocked hosts, the live links. One lock, never held
//! across a wait.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iroh::endpoint::{Connection, WeakConnectionHandle};
use iroh::{Endpoint, EndpointAddr, EndpointId, RelayUrl};
use kwoon_keys::PublicKey;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::close;
use crate::config::{ADDRESSES_MAX, Hints, NetLimits, relay_url};
use crate::frame::close;
use crate::greeting::Epoch;
use crate::link::{Link, addresses, remember};

/// Together with those of the hints, as many addresses as iroh keeps of one host.
const PROVEN_DIALLED: usize = 6;
const ANNOUNCED_DIALLED: usize = 8;

/// What every task of a net shares.
pub(crate) struct Shared {
    pub(crate) me: PublicKey,
    pub(crate) limits: NetLimits,
    /// Where peers are looked for whose relay is not known.
    pub(crate) relay: Option<RelayUrl>,
    /// Whether a peer may be found without any hint.
    pub(crate) discovers: bool,
    pub(crate) incoming: mpsc::Sender<Link>,
    /// Bytes of large frames that may yet be assembled.
    pub(crate) budget: Arc<Semaphore>,
    /// Incoming connections that may yet begin.
    pub(crate) handshakes: Arc<Semaphore>,
    table: Mutex<Table>,
}

impl Shared {
    pub(crate) fn new(
        me: PublicKey,
        limits: NetLimits,
        relay: Option<RelayUrl>,
        discovers: bool,
        incoming: mpsc::Sender<Link>,
    ) -> Self {
        let permits = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            me,
            limits,
            relay,
            discovers,
            incoming,
            budget: permits(limits.assembly_bytes_max),
            handshakes: permits(limits.handshakes_max),
            table: Mutex::default(),
        }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        // No panic leaves the table half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) online: Option<Online>,
    /// How often this net has been online.
    sessions: u64,
    peers: BTreeMap<PublicKey, Peer>,
    blocked: BTreeSet<PublicKey>,
    links: BTreeMap<PublicKey, Entry>,
    generations: u64,
}

/// The endpoint, from going online to going offline.
#[derive(Clone)]
pub(crate) struct Online {
    pub(crate) endpoint: Endpoint,
    pub(crate) session: u64,
}

/// A host that this net keeps a link with.
struct Peer {
    hints: Hints,
    /// Addresses at which it was, the latest first: it proved with its key that it was there.
    proven: Vec<SocketAddr>,
    /// Where it was last announced in the local network, by whomever.
    announced: Vec<SocketAddr>,
    /// Sent in greetings; drawn anew whenever a link with the peer has ended.
    epoch: Epoch,
    news: News,
    phase: watch::Sender<Phase>,
    wake: Arc<Notify>,
    dialer: AbortHandle,
}

impl Peer {
    fn dial_now(&mut self) {
        self.news.urgent = true;
        self.wake.notify_one();
    }

    fn was_at(&mut self, addresses: &[SocketAddr]) {
        let mut proven = Vec::new();
        for address in addresses.iter().chain(&self.proven) {
            remember(&mut proven, *address);
        }
        self.proven = proven;
    }

    /// Where to dial it. What was only announced drives nothing else out.
    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let proven = self.proven.iter().take(PROVEN_DIALLED);
        let announced = self.announced.iter().take(ANNOUNCED_DIALLED);
        proven.chain(self.hints.addresses.iter().take(ADDRESSES_MAX)).chain(announced).copied()
    }
}

/// What the dialer of a peer learns when it is woken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    /// Something is new: do not wait for the end of a delay.
    pub(crate) urgent: bool,
    /// A link ended, and this is how long it lived.
    pub(crate) ended_after: Option<Duration>,
}

/// How far the dialer of a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not dialling, or not yet connected.
    Idle,
    /// The greeting has been sent, so that the peer may already take this connection for the link.
    Greeted,
}

/// Where a peer is dialled now.
pub(crate) struct Target {
    pub(crate) online: Online,
    /// What of the address would make it another target. Where the peer is announced meanwhile, iroh learns by itself.
    hints: Hints,
    pub(crate) address: EndpointAddr,
}

/// A live link.
struct Entry {
    generation: u64,
    handle: WeakConnectionHandle,
    made: Made,
    since: Instant,
}

impl Entry {
    fn connection(&self) -> Option<Connection> {
        self.handle.upgrade().filter(|connection| connection.close_reason().is_none())
    }

    fn close(&self, code: u32, text: &str) {
        if let Some(connection) = self.handle.upgrade() {
            close(&connection, code, text);
        }
    }
}

/// How a connection came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// Whether this host dialled.
    pub(crate) dialed: bool,
    /// What the peer greeted with.
    pub(crate) epoch: Epoch,
}

impl Made {
    /// Whether a new connection takes the place of the present one, which is not known to be dead. Both ends come to
    /// the same answer.
    fn replaces(self, present: Self, me: &PublicKey, peer: &PublicKey) -> bool {
        // Another epoch: the peer has ended the present link, or was started anew. The same end twice: it dials one
        // connection after the other, so it has given the present one up.
        if self.epoch != present.epoch || self.dialed == present.dialed {
            return true;
        }
        // Both dialled at once.
        self.dialed == (me < peer)
    }
}

/// Why a connection does not become a link.
pub(crate) enum Refusal {
    Replaced,
    Blocked,
    Full,
    Offline,
    /// Not yet: this host's own connection is the one to keep, and the peer may already have taken it. What comes of it
    /// is known after one round trip, or when that attempt ends, which is when the phase is over.
    Undecided(watch::Receiver<Phase>),
}

impl Refusal {
    pub(crate) fn close(self, connection: &Connection) {
        let (code, text) = match self {
            Self::Replaced => (close::REPLACED, "another link with this host is kept"),
            Self::Blocked => (close::BLOCKED, "this host takes no connections from you"),
            Self::Full => (close::FULL, "no room for another link; try again later"),
            Self::Offline => (close::OFFLINE, "this host goes offline"),
            Self::Undecided(_) => (close::LATE, "this host's own connection was awaited"),
        };
        close(connection, code, text);
    }
}

impl Table {
    /// Adds a peer, or gives it other hints. `start` starts its dialer.
    pub(crate) fn add(&mut self, peer: PublicKey, hints: Hints, start: impl FnOnce(Arc<Notify>) -> AbortHandle) {
        if let Some(present) = self.peers.get_mut(&peer) {
            if present.hints != hints {
                present.hints = hints;
                present.dial_now();
            }
            return;
        }
        let wake = Arc::new(Notify::new());
        let dialer = start(Arc::clone(&wake));
        let (phase, _) = watch::channel(Phase::Idle);
        let (epoch, news, proven, announced) = (Epoch::draw(), News::default(), Vec::new(), Vec::new());
        self.peers.insert(peer, Peer { hints, proven, announced, epoch, news, phase, wake, dialer });
    }

    pub(crate) fn remove(&mut self, peer: &PublicKey) {
        if let Some(peer) = self.peers.remove(peer) {
            peer.dialer.abort();
        }
    }

    pub(crate) fn remove_all(&mut self) {
        for (_, peer) in std::mem::take(&mut self.peers) {
            peer.dialer.abort();
        }
    }

    pub(crate) fn block(&mut self, peer: PublicKey) {
        self.blocked.insert(peer);
        self.end(&peer, close::BLOCKED, "this host takes no connections from you");
        self.wake(&peer);
    }

    pub(crate) fn unblock(&mut self, peer: &PublicKey) {
        if self.blocked.remove(peer) {
            self.dial_now(peer);
        }
    }

    pub(crate) fn dial_now(&mut self, peer: &PublicKey) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.dial_now();
        }
    }

    /// A peer announced itself at these addresses. Hosts that were not added are passed over.
    pub(crate) fn discovered(&mut self, peer: &PublicKey, addresses: &[SocketAddr]) {
        let linked = self.link(peer).is_some();
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.announced = addresses.iter().take(ANNOUNCED_DIALLED).copied().collect();
            if !linked {
                peer.dial_now();
            }
        }
    }

    fn wake(&self, peer: &PublicKey) {
        if let Some(peer) = self.peers.get(peer) {
            peer.wake.notify_one();
        }
    }

    pub(crate) fn go_online(&mut self, endpoint: Endpoint) -> Online {
        self.sessions += 1;
        let online = Online { endpoint, session: self.sessions };
        self.online = Some(online.clone());
        self.peers.values_mut().for_each(Peer::dial_now);
        online
    }

    /// From here on no connection becomes a link any more, and all links are closed.
    pub(crate) fn go_offline(&mut self) -> Option<Online> {
        let online = self.online.take();
        let linked: Vec<_> = self.links.keys().copied().collect();
        for peer in linked {
            self.end(&peer, close::OFFLINE, "this host goes offline");
        }
        self.peers.values().for_each(|peer| peer.wake.notify_one());
        online
    }

    /// The live link with a host.
    fn link(&self, peer: &PublicKey) -> Option<Connection> {
        self.links.get(peer)?.connection()
    }

    pub(crate) fn linked(&self) -> Vec<PublicKey> {
        let live = self.links.iter().filter(|(_, entry)| entry.connection().is_some());
        live.map(|(peer, _)| *peer).collect()
    }

    pub(crate) fn last_addresses(&self, peer: &PublicKey) -> Vec<SocketAddr> {
        let mut last = self.link(peer).as_ref().map(addresses).unwrap_or_default();
        for address in self.peers.get(peer).map_or(&[][..], |peer| &peer.proven) {
            remember(&mut last, *address);
        }
        last
    }

    /// What the dialer of a peer is to do: it learns what is new, and where to dial, if anywhere.
    pub(crate) fn plan(&mut self, shared: &Shared, peer: &PublicKey) -> (News, Option<Target>) {
        let target = self.target(shared, peer);
        let news = self.peers.get_mut(peer).map(|peer| std::mem::take(&mut peer.news));
        (news.unwrap_or_default(), target)
    }

    fn target(&self, shared: &Shared, id: &PublicKey) -> Option<Target> {
        let peer = self.peers.get(id)?;
        let online = self.online.clone()?;
        if self.blocked.contains(id) || self.link(id).is_some() {
            return None;
        }
        let mut address = EndpointAddr::new(EndpointId::from_bytes(&id.0).ok()?);
        for known in peer.addresses() {
            address = address.with_ip_addr(known);
        }
        let relay = peer.hints.relay.as_deref().and_then(relay_url);
        if let Some(relay) = relay.or_else(|| shared.relay.clone()) {
            address = address.with_relay_url(relay);
        }
        let hints = peer.hints.clone();
        (shared.discovers || !address.is_empty()).then_some(Target { online, hints, address })
    }

    /// Whether a dial under way is still the right one.
    pub(crate) fn still(&self, shared: &Shared, peer: &PublicKey, target: &Target) -> bool {
        if let Some(present) = self.target(shared, peer) {
            return present.online.session == target.online.session && present.hints == target.hints;
        }
        // The peer's own connection came first. If the peer may already have taken this one, and this one is the one to
        // keep, then only its end decides.
        let greeted = self.peers.get(peer).is_some_and(|peer| *peer.phase.borrow() == Phase::Greeted);
        let here = self.online.as_ref().is_some_and(|online| online.session == target.online.session);
        here && greeted && shared.me < *peer && !self.blocked.contains(peer)
    }

    /// What to greet with on a connection that was dialled, unless another one has become the link meanwhile. The peer
    /// is in the phase `Greeted` until the guard is dropped.
    pub(crate) fn greet(&mut self, peer: &PublicKey, session: u64) -> Option<(Epoch, Greeted)> {
        if self.link(peer).is_none() {
            // Its end may not have been noted yet, but the greeting must tell of it.
            self.end(peer, close::DONE, "");
        }
        let here = self.online.as_ref().is_some_and(|online| online.session == session);
        let known = self.peers.get(peer).filter(|_| here && self.link(peer).is_none())?;
        known.phase.send_replace(Phase::Greeted);
        Some((known.epoch, Greeted(known.phase.clone())))
    }

    /// Whether a host may have a link, as far as it does not depend on its greeting.
    pub(crate) fn admits(&self, shared: &Shared, peer: &PublicKey, session: u64) -> Result<(), Refusal> {
        if self.online.as_ref().is_none_or(|online| online.session != session) {
            return Err(Refusal::Offline);
        }
        if self.blocked.contains(peer) || *peer == shared.me {
            return Err(Refusal::Blocked);
        }
        if self.links.contains_key(peer) {
            return Ok(());
        }
        let strangers = || self.links.keys().filter(|host| !self.peers.contains_key(host)).count();
        let full = self.links.len() >= shared.limits.links_max
            || !self.peers.contains_key(peer) && strangers() >= shared.limits.strangers_max;
        if full { Err(Refusal::Full) } else { Ok(()) }
    }

    /// Makes a connection the link with its peer, in place of one that is dead or that both ends give up.
    ///
    /// Returns what to greet with, if that has not been done.
    pub(crate) fn claim(
        &mut self,
        shared: &Arc<Shared>,
        peer: PublicKey,
        session: u64,
        connection: &Connection,
        made: Made,
    ) -> Result<(Claim, Epoch), Refusal> {
        self.admits(shared, &peer, session)?;
        if let Some(known) = self.peers.get(&peer).filter(|_| !made.dialed && shared.me < peer)
            && *known.phase.borrow() == Phase::Greeted
        {
            return Err(Refusal::Undecided(known.phase.subscribe()));
        }
        if let Some(present) = self.links.get(&peer) {
            if present.connection().is_some() && !made.replaces(present.made, &shared.me, &peer) {
                return Err(Refusal::Replaced);
            }
            self.end(&peer, close::REPLACED, "another link with this host takes its place");
        }
        self.generations += 1;
        let generation = self.generations;
        let handle = connection.weak_handle();
        let entry = Entry { generation, handle, made, since: Instant::now() };
        self.links.insert(peer, entry);
        let mut epoch = Epoch::draw();
        if let Some(known) = self.peers.get_mut(&peer) {
            epoch = known.epoch;
            known.was_at(&addresses(connection));
            known.wake.notify_one();
        }
        Ok((Claim { shared: Arc::clone(shared), peer, generation }, epoch))
    }

    /// Closes the link with a host, if there is one.
    fn end(&mut self, peer: &PublicKey, code: u32, text: &str) {
        if let Some(entry) = self.links.remove(peer) {
            entry.close(code, text);
            self.ended(peer, &entry);
        }
    }

    fn ended(&mut self, peer: &PublicKey, entry: &Entry) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.epoch = Epoch::draw();
            peer.news.ended_after = Some(entry.since.elapsed());
            peer.wake.notify_one();
        }
    }

    fn entry(&self, claim: &Claim) -> Option<&Entry> {
        self.links.get(&claim.peer).filter(|entry| entry.generation == claim.generation)
    }
}

/// Holds the phase `Greeted`.
pub(crate) struct Greeted(watch::Sender<Phase>);

impl Drop for Greeted {
    fn drop(&mut self) {
        self.0.send_replace(Phase::Idle);
    }
}

/// The place of a link in the table. When it is dropped, the link is over.
pub(crate) struct Claim {
    shared: Arc<Shared>,
    pub(crate) peer: PublicKey,
    pub(crate) generation: u64,
}

impl Claim {
    /// Gives the link to the upper layer, unless it has been replaced meanwhile. Links of one host leave in the order
    /// of their generations, because the table is locked.
    pub(crate) fn hand_over(&self, place: mpsc::Permit<'_, Link>, link: Link) -> bool {
        let table = self.shared.table();
        let present = table.entry(self).is_some();
        if present {
            place.send(link);
        }
        present
    }

    /// Remembers the addresses on which the link runs now.
    pub(crate) fn note_addresses(&self) {
        let mut table = self.shared.table();
        let connection = table.entry(self).and_then(Entry::connection);
        if let (Some(connection), Some(peer)) = (connection, table.peers.get_mut(&self.peer)) {
            peer.was_at(&addresses(&connection));
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        if table.entry(self).is_some() {
            table.end(&self.peer, close::DONE, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kwoon_keys::KeyPair;

    #[test]
    fn of_two_connections_dialled_at_once_both_ends_keep_the_same() {
        let mut hosts = [1, 2].map(|seed| KeyPair::from_seed(&[seed; 32]).public());
        hosts.sort();
        let [small, large] = hosts;
        let [at_small, at_large] = [Epoch::draw(), Epoch::draw()];
        for first_at_small in [true, false] {
            for first_at_large in [true, false] {
                // `true` stands for the connection that the smaller host dialled.
                let kept = |first: bool, me: &PublicKey, peer: &PublicKey, epoch| {
                    let made = |by_small: bool| Made { dialed: by_small == (me < peer), epoch };
                    if made(!first).replaces(made(first), me, peer) { !first } else { first }
                };
                assert!(kept(first_at_small, &small, &large, at_large));
                assert!(kept(first_at_large, &large, &small, at_small));
            }
        }
    }

    #[test]
    fn a_peer_that_has_ended_the_present_link_gets_another() {
        let [me, peer] = [1, 2].map(|seed| KeyPair::from_seed(&[seed; 32]).public());
        for (me, peer) in [(me, peer), (peer, me)] {
            for dialed in [true, false] {
                let present = Made { dialed, epoch: Epoch::draw() };
                assert!(Made { dialed: false, epoch: Epoch::draw() }.replaces(present, &me, &peer));
                assert!(Made { dialed, ..present }.replaces(present, &me, &peer));
            }
        }
    }
}
