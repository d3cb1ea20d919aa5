//! Other hosts: keeps the net as the store says, and talks over every link that comes out of it.
//!
//! What is to be is in the store alone (`book`): who is added or blocked, and whether this host is online. After each commit
//! the net is made to follow it. Each link has a task of its own (`talk`), so that a slow peer costs nobody else time.

mod book;
mod faults;
mod talk;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use kwoon_keys::{KeyPair, PublicKey};
use kwoon_ledger::storage::{ReadError, Store};
use kwoon_net::{Discovery, Hints, Link, Net, NetConfig, NetError, Relay};
use kwoon_store::{DiskStore, Snapshot};
use kwoon_sync::intake::{Delivery, Intake};
use kwoon_sync::peers::ADDRESSES_MAX;
use kwoon_sync::view::Around;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use self::book::{Book, Reader};
use self::faults::Faults;
use crate::config::Choices;
use crate::writer::Handle;

/// Sessions that read the store or think at once; others wait for their turn.
pub(crate) const WORKING_MAX: usize = 4;
/// Links that wait to be begun.
const LINKS_WAITING: usize = 16;
/// The store is looked at no more often than this, or ten times as long as reading it took.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(20);
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// How often it is looked at where this host can be found, and whether it is as online as it should be.
const ADDRESSES_INTERVAL: Duration = Duration::from_secs(2);
/// How long the first addresses may take before others can be told.
const FIRST_ADDRESSES_TIME: Duration = Duration::from_secs(2);
const FIRST_ADDRESSES_LOOK: Duration = Duration::from_millis(10);

/// What the tasks share.
struct Shared {
    store: Arc<DiskStore>,
    writer: Handle,
    own: PublicKey,
    working: Arc<Semaphore>,
    faults: Faults,
    stop: watch::Receiver<bool>,
}

impl Shared {
    /// Does something that may block with a state of the store. Nothing if the daemon ends meanwhile.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Snapshot) -> Result<T, ReadError> + Send + 'static,
    ) -> Option<Result<T, ReadError>> {
        let permit = Arc::clone(&self.working).acquire_owned().await.ok()?;
        let store = Arc::clone(&self.store);
        let working = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&store.snapshot()?)
        });
        working.await.ok()
    }
}

/// Waits until the sessions are to end.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // Without whoever says so they are to end as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// A net that is open, and the links that come out of it.
pub(crate) struct Opened {
    net: Net,
    links: mpsc::Receiver<Link>,
}

impl Opened {
    /// Opens the net of a host, and notes the port that was picked. A host that is offline opens nothing.
    ///
    /// # Errors
    /// If the address that was asked for cannot be had, or the relay is none.
    pub(crate) async fn open(key: KeyPair, choices: &mut Choices, online: bool) -> Result<Self, NetError> {
        let (sender, links) = mpsc::channel(LINKS_WAITING);
        let config = NetConfig {
            any_port: !choices.bind_asked,
            relay: match choices.relay.as_str() {
                "off" => Relay::Off,
                "default" => Relay::Default,
                url => Relay::Url(url.to_owned()),
            },
            discovery: if choices.discovery == "off" { Discovery::Off } else { Discovery::Mdns },
            online,
            ..NetConfig::new(key, choices.bind)
        };
        let net = Net::open(config, sender).await?;
        if let Some(bound) = bound(&net, choices.bind) {
            choices.bind = bound;
        } else if choices.bind.port() == 0
            && let Ok(picked) = UdpSocket::bind(choices.bind).and_then(|socket| socket.local_addr())
        {
            // Picked now all the same, to be told and kept; nothing listens there yet.
            choices.bind = picked;
        }
        Ok(Self { net, links })
    }
}

/// Where a net listens that was to listen at an address.
fn bound(net: &Net, wished: SocketAddr) -> Option<SocketAddr> {
    net.bound().into_iter().find(|bound| bound.is_ipv6() == wished.is_ipv6())
}

/// See the module. To be ended by [`Peers::stop`].
pub(crate) struct Peers {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Peers {
    /// Sets to work what was opened, over a store and its writer. Returns once others can be told where this host is, or
    /// soon after.
    pub(crate) async fn start(
        opened: Opened,
        store: Arc<DiskStore>,
        writer: Handle,
        around: watch::Sender<Around>,
    ) -> Self {
        let Opened { net, links } = opened;
        let (stop, stopping) = watch::channel(false);
        let working = Arc::new(Semaphore::new(WORKING_MAX));
        let (own, faults) = (net.host(), Faults::default());
        let is_online = !net.bound().is_empty();
        let shared = Shared { store, writer, own, working, faults, stop: stopping };
        let mut keeper = Keeper {
            shared: Arc::new(shared),
            net,
            links,
            talks: JoinSet::new(),
            live: BTreeMap::new(),
            reader: Some(Reader::default()),
            is_online,
            hints: BTreeMap::new(),
            blocked: BTreeSet::new(),
            found: BTreeMap::new(),
            around,
            trouble: None,
        };
        let give_up = Instant::now() + FIRST_ADDRESSES_TIME;
        while is_online && keeper.addresses().is_empty() && Instant::now() < give_up {
            tokio::time::sleep(FIRST_ADDRESSES_LOOK).await;
        }
        keeper.publish().await;
        Self { stop, task: tokio::spawn(keeper.run()) }
    }

    /// Ends every session, and takes leave of the peers. Nothing is given to the writer afterwards.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.task.await;
    }
}

/// The task that keeps the net as the store says.
struct Keeper {
    shared: Arc<Shared>,
    net: Net,
    links: mpsc::Receiver<Link>,
    /// One for each link; it ends with the peer and the generation of its link.
    talks: JoinSet<(PublicKey, u64)>,
    /// The links that are talked over, by their generations.
    live: BTreeMap<PublicKey, u64>,
    /// Away while the store is read.
    reader: Option<Reader>,
    /// What the net was last told.
    is_online: bool,
    hints: BTreeMap<PublicKey, Hints>,
    blocked: BTreeSet<PublicKey>,
    /// Where peers were found, as the writer was last told.
    found: BTreeMap<PublicKey, Vec<SocketAddr>>,
    around: watch::Sender<Around>,
    /// Why the net cannot be as it should, if it was said.
    trouble: Option<String>,
}

impl Keeper {
    async fn run(mut self) {
        let mut commits = self.shared.writer.commits();
        let mut stop = self.shared.stop.clone();
        let mut look_at = Some(Instant::now());
        let mut next_look = Instant::now();
        let mut addresses_at = Instant::now() + ADDRESSES_INTERVAL;
        loop {
            tokio::select! {
                () = stopped(&mut stop) => break,
                Some(link) = self.links.recv() => {
                    self.begin(link);
                    self.publish().await;
                    look_at = look_at.or(Some(next_look));
                }
                Some(ended) = self.talks.join_next() => {
                    if let Ok((peer, generation)) = ended
                        && self.live.get(&peer) == Some(&generation)
                    {
                        self.live.remove(&peer);
                        self.say(&peer, "disconnected");
                        self.publish().await;
                    }
                }
                changed = commits.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    look_at = look_at.or(Some(next_look));
                }
                () = sleep_until(look_at.unwrap_or(addresses_at)), if look_at.is_some() => {
                    let began = Instant::now();
                    let book = self.look().await;
                    next_look = Instant::now() + (began.elapsed() * 10).clamp(LOOK_INTERVAL_MIN, LOOK_INTERVAL_MAX);
                    look_at = None;
                    if let Some(book) = book {
                        self.follow(book).await;
                    }
                }
                () = sleep_until(addresses_at) => {
                    addresses_at = Instant::now() + ADDRESSES_INTERVAL;
                    self.publish().await;
                    look_at = look_at.or(Some(next_look));
                }
            }
        }
        self.net.close().await;
        while self.talks.join_next().await.is_some() {}
    }

    /// Begins to talk over a link.
    fn begin(&mut self, link: Link) {
        let (peer, generation) = (link.peer, link.generation);
        self.say(&peer, "connected");
        self.live.insert(peer, generation);
        self.found.remove(&peer);
        let talking = talk::talk(Arc::clone(&self.shared), link);
        self.talks.spawn(async move {
            talking.await;
            (peer, generation)
        });
    }

    /// Tells the log about a host: one that comes by itself could fill it.
    fn say(&self, peer: &PublicKey, what: &'static str) {
        if self.hints.contains_key(peer) {
            tracing::info!(%peer, "{what}");
        } else {
            tracing::debug!(%peer, "{what}");
        }
    }

    /// Reads what is to be.
    async fn look(&mut self) -> Option<Book> {
        let mut reader = self.reader.take().unwrap_or_default();
        let read = self.shared.work(move |snapshot| {
            let book = reader.read(snapshot);
            Ok((reader, book))
        });
        let (reader, book) = read.await?.ok()?;
        self.reader = Some(reader);
        book.inspect_err(|error| tracing::error!(reason = error.reason, "what is known of other hosts cannot be read"))
            .ok()
    }

    /// Lets the net follow.
    async fn follow(&mut self, book: Book) {
        let blocked: BTreeSet<_> = book.blocked;
        for host in blocked.difference(&self.blocked) {
            self.net.block(*host);
        }
        let gone: Vec<_> = self.hints.keys().filter(|host| !book.kept.contains_key(*host)).copied().collect();
        for host in gone {
            self.net.remove_peer(&host);
            self.hints.remove(&host);
        }
        for (host, hints) in book.kept {
            if self.hints.get(&host) != Some(&hints) {
                self.net.add_peer(host, hints.clone());
                self.hints.insert(host, hints);
            }
        }
        for host in self.blocked.difference(&blocked) {
            self.net.unblock(host);
        }
        self.blocked = blocked;
        if book.is_online != self.is_online {
            self.go(book.is_online).await;
        }
        for host in book.urgent.iter().filter(|host| !self.live.contains_key(host)) {
            self.net.dial_now(host);
        }
        self.remember(&book.known).await;
    }

    /// Goes online or offline.
    async fn go(&mut self, online: bool) {
        match self.net.set_online(online).await {
            Ok(()) => {
                self.is_online = online;
                self.trouble = None;
                tracing::info!(online, "the network was turned on or off");
                self.publish().await;
            }
            // It is tried again, and said again only if it is something else.
            Err(error) => {
                let trouble = error.to_string();
                if self.trouble.as_ref() != Some(&trouble) {
                    tracing::error!(%error, "cannot talk to other hosts; it is tried again");
                }
                self.trouble = Some(trouble);
            }
        }
    }

    /// Notes where connected hosts proved to be, if that is news.
    async fn remember(&mut self, known: &BTreeMap<PublicKey, Vec<String>>) {
        for (peer, noted) in known.iter().filter(|(peer, _)| self.live.contains_key(peer)) {
            let mut last = self.net.last_addresses(peer);
            last.truncate(ADDRESSES_MAX);
            let is_news = match self.found.get(peer) {
                // Of a new link, where it is comes first from now on; later only what was not known.
                None => last.first().is_some_and(|first| noted.first() != Some(&first.to_string())),
                Some(found) => last.iter().any(|address| !found.contains(address)),
            };
            self.found.insert(*peer, last.clone());
            if is_news {
                let addresses = last.iter().map(ToString::to_string).collect();
                let intake = Intake::Found { addresses, relay: None };
                let delivery = Delivery { peer: *peer, related: false, intake, seen: None };
                // What is not noted now is found again.
                let _ = self.shared.writer.receive(delivery).await;
            }
        }
    }

    /// Where others find this host now: none but those that mean something elsewhere.
    fn addresses(&self) -> Vec<String> {
        let is_of_use = |address: &SocketAddr| match address {
            SocketAddr::V4(address) => !address.ip().is_unspecified() && !address.ip().is_link_local(),
            SocketAddr::V6(address) => !address.ip().is_unspecified() && !address.ip().is_unicast_link_local(),
        };
        let addresses = self.net.addresses().into_iter().filter(is_of_use);
        addresses.take(ADDRESSES_MAX).map(|address| address.to_string()).collect()
    }

    /// Tells readers and the writer what is around this host. Offline, the last addresses are still the best that can be told.
    async fn publish(&mut self) {
        let now = Around {
            addresses: self.addresses(),
            relay: self.net.relay(),
            connected: self.live.keys().copied().collect(),
        };
        let mut news = None;
        self.around.send_if_modified(|around| {
            let addresses = if now.addresses.is_empty() { around.addresses.clone() } else { now.addresses };
            let relay = if self.is_online { now.relay } else { around.relay.clone() };
            if addresses != around.addresses {
                news = Some(addresses.clone());
            }
            let changed = news.is_some() || relay != around.relay || now.connected != around.connected;
            *around = Around { addresses, relay, connected: now.connected };
            changed
        });
        if let Some(addresses) = news {
            let _ = self.shared.writer.set_addresses(addresses).await;
        }
    }
}
