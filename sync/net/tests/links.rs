//! Nets on the loopback interface, and hostile peers that speak iroh directly.

#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use iroh::endpoint::{Connection, ConnectionError, PortmapperConfig, RecvStream, SendStream, presets};
use iroh::{Endpoint, EndpointAddr, RelayMode, SecretKey};
use kwoon_keys::{KeyPair, PublicKey};
use kwoon_net::{ALPN, Link, LinkError, Net, NetConfig, NetError, NetLimits, close};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Nothing here takes this long unless it never ends.
const NEVER: Duration = Duration::from_secs(120);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(NEVER, future).await.expect("this never ends")
}

struct Host {
    net: Net,
    links: mpsc::Receiver<Link>,
}

impl Host {
    async fn new(seed: u8) -> Self {
        Self::with(seed, |_| {}).await
    }

    async fn with(seed: u8, change: impl FnOnce(&mut NetConfig)) -> Self {
        let mut config = NetConfig::new(key(seed), "127.0.0.1:0".parse().unwrap());
        change(&mut config);
        let (sender, links) = mpsc::channel(16);
        Self { net: Net::open(config, sender).await.unwrap(), links }
    }

    fn id(&self) -> PublicKey {
        self.net.host()
    }

    fn dial(&self, other: &Self) {
        self.net.add_peer(other.id(), other.net.bound());
    }

    async fn link(&mut self) -> Link {
        soon(self.links.recv()).await.unwrap()
    }
}

fn key(seed: u8) -> KeyPair {
    KeyPair::from_seed(&[seed; 32])
}

/// Sends a frame from one end to the other and back.
async fn exchange(a: &mut Link, b: &mut Link) {
    soon(async {
        a.sender.send(b"there").await.unwrap();
        assert_eq!(b.receiver.receive().await.unwrap().unwrap(), b"there");
        b.sender.send(b"back").await.unwrap();
        assert_eq!(a.receiver.receive().await.unwrap().unwrap(), b"back");
    })
    .await;
}

async fn connected(a: &mut Host, b: &mut Host) -> (Link, Link) {
    a.dial(b);
    let (mut at_a, mut at_b) = (a.link().await, b.link().await);
    exchange(&mut at_a, &mut at_b).await;
    (at_a, at_b)
}

/// The code with which the peer closed the link.
async fn closed_by_peer(link: &mut Link) -> u32 {
    match soon(link.receiver.receive()).await {
        Err(LinkError::Closed { by_peer: true, code, .. }) => code.try_into().unwrap(),
        other => panic!("not closed by the peer: {other:?}"),
    }
}

/// Waits for the end of a link, and drops it, as whoever uses one does.
async fn ended(mut link: Link) {
    while link.receiver.receive().await.is_ok() {}
}

/// An endpoint that does with the protocol what it likes.
async fn raw(seed: u8) -> Endpoint {
    Endpoint::builder(presets::Minimal)
        .secret_key(SecretKey::from_bytes(&[seed; 32]))
        .alpns(vec![ALPN.to_vec()])
        .relay_mode(RelayMode::Disabled)
        .portmapper_config(PortmapperConfig::Disabled)
        .clear_ip_transports()
        .bind_addr("127.0.0.1:0")
        .unwrap()
        .bind()
        .await
        .unwrap()
}

async fn raw_connect(endpoint: &Endpoint, host: &Host) -> Connection {
    let id = iroh::EndpointId::from_bytes(&host.id().0).unwrap();
    let address = EndpointAddr::new(id).with_ip_addr(host.net.bound()[0]);
    soon(endpoint.connect(address, ALPN)).await.unwrap()
}

async fn raw_greet(connection: &Connection) -> (SendStream, RecvStream) {
    soon(async {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&[0, 0, 0, 19, 0xa1, 0x00, 0x50]).await.unwrap();
        send.write_all(&[7; 16]).await.unwrap();
        receive.read_exact(&mut [0; 23]).await.unwrap();
        (send, receive)
    })
    .await
}

async fn raw_closed(connection: &Connection) -> u32 {
    match soon(connection.closed()).await {
        ConnectionError::ApplicationClosed(closed) => closed.error_code.into_inner().try_into().unwrap(),
        other => panic!("not closed with a code: {other:?}"),
    }
}

#[tokio::test]
async fn frames_go_both_ways_and_are_counted() {
    let (mut a, mut b) = (Host::new(1).await, Host::new(2).await);
    let (mut at_a, mut at_b) = connected(&mut a, &mut b).await;
    assert_eq!((at_a.peer, at_a.dialed), (b.id(), true));
    assert_eq!((at_b.peer, at_b.dialed), (a.id(), false));
    assert_eq!((&at_a.remote, &at_b.remote), (&b.net.bound(), &a.net.bound()));
    assert_eq!(a.net.linked(), [b.id()]);

    let (before, large) = (at_b.counters().bytes_received(), vec![3; 5 << 20]);
    at_b.receiver.raise_frame_bytes_max(8 << 20);
    let (sent, received) = soon(async { tokio::join!(at_a.sender.send(&large), at_b.receiver.receive()) }).await;
    sent.unwrap();
    assert!(received.unwrap().unwrap() == large);
    assert_eq!(at_b.counters().bytes_received() - before, 4 + large.len() as u64);
    assert_eq!(at_a.counters().bytes_sent(), at_b.counters().bytes_received());

    at_a.sender.send(b"").await.unwrap();
    let (finished, received) = soon(async { tokio::join!(at_a.sender.finish(), at_b.receiver.receive()) }).await;
    finished.unwrap();
    assert_eq!(received, Ok(Some(Vec::new())));
    assert_eq!(soon(at_b.receiver.receive()).await, Ok(None));
}

#[tokio::test]
async fn a_link_is_closed_with_a_reason() {
    let (mut a, mut b) = (Host::new(1).await, Host::new(2).await);
    let (mut at_a, mut at_b) = connected(&mut a, &mut b).await;
    at_a.sender.close(close::UPPER_MIN, "not\u{1b}[2J entitled");
    let closed = LinkError::Closed { by_peer: true, code: 16, text: "not[2J entitled".into() };
    assert_eq!(soon(at_b.receiver.receive()).await, Err(closed.clone()));
    assert_eq!(closed.to_string(), "the peer closed the link (code 16): not[2J entitled");
    assert!(matches!(at_a.receiver.receive().await, Err(LinkError::Closed { by_peer: false, .. })));
}

#[tokio::test]
async fn receiving_may_be_given_up_and_taken_up_again() {
    let mut host = Host::new(1).await;
    let endpoint = raw(2).await;
    let connection = raw_connect(&endpoint, &host).await;
    let (mut send, _receive) = raw_greet(&connection).await;
    let mut link = host.link().await;
    let counters = link.counters();
    for (count, part) in [&[0, 0][..], &[0, 3], b"a", b"bc"].into_iter().enumerate() {
        send.write_all(part).await.unwrap();
        let arrived = [2, 4, 5, 7][count];
        let all = soon(async {
            loop {
                tokio::select! {
                    frame = link.receiver.receive() => return Some(frame),
                    () = tokio::task::yield_now() => if counters.bytes_received() == arrived { return None },
                }
            }
        })
        .await;
        if let Some(frame) = all {
            assert_eq!((frame, count), (Ok(Some(b"abc".to_vec())), 3));
            return;
        }
    }
    assert_eq!(soon(link.receiver.receive()).await, Ok(Some(b"abc".to_vec())));
}

#[tokio::test]
async fn an_announced_length_is_not_believed() {
    let mut host = Host::new(1).await;
    let endpoint = raw(2).await;
    let connection = raw_connect(&endpoint, &host).await;
    let (mut send, _receive) = raw_greet(&connection).await;
    let mut link = host.link().await;
    link.receiver.raise_frame_bytes_max(usize::MAX);
    send.write_all(&[0xff; 4]).await.unwrap();
    let error = LinkError::TooLong { bytes: u32::MAX.into(), bytes_max: 80 << 20 };
    assert_eq!(soon(link.receiver.receive()).await, Err(error.clone()));
    assert_eq!(raw_closed(&connection).await, close::PROTOCOL);
    assert_eq!(link.receiver.receive().await, Err(error));
}

#[tokio::test]
async fn a_stranger_sends_no_frame_over_the_limit() {
    let (mut a, mut b) = (Host::new(1).await, Host::new(2).await);
    let (mut at_a, mut at_b) = connected(&mut a, &mut b).await;
    let frame = vec![0; (1 << 20) + 1];
    let (_, received) = soon(async { tokio::join!(at_a.sender.send(&frame), at_b.receiver.receive()) }).await;
    assert_eq!(received, Err(LinkError::TooLong { bytes: frame.len() as u64, bytes_max: 1 << 20 }));
    assert_eq!(closed_by_peer(&mut at_a).await, close::PROTOCOL);
}

#[tokio::test]
async fn a_stream_that_ends_within_a_frame_is_no_clean_end() {
    let mut host = Host::new(1).await;
    let endpoint = raw(2).await;
    for part in [&[0, 0, 0][..], &[0, 0, 0, 2, 1]] {
        let connection = raw_connect(&endpoint, &host).await;
        let (mut send, _receive) = raw_greet(&connection).await;
        let mut link = host.link().await;
        send.write_all(part).await.unwrap();
        send.finish().unwrap();
        assert_eq!(soon(link.receiver.receive()).await, Err(LinkError::Truncated));
    }
}

#[tokio::test]
async fn large_frames_wait_for_their_share_of_the_budget() {
    let limits = NetLimits { assembly_bytes_max: 3 << 20, ..NetLimits::default() };
    let mut host = Host::with(1, |config| config.limits = limits).await;
    let endpoints = [raw(2).await, raw(3).await];
    let mut ends = Vec::new();
    for endpoint in &endpoints {
        let connection = raw_connect(endpoint, &host).await;
        let streams = raw_greet(&connection).await;
        let mut link = host.link().await;
        link.receiver.raise_frame_bytes_max(usize::MAX);
        assert_eq!(link.receiver.frame_bytes_max(), 3 << 20);
        ends.push((connection, streams, link));
    }
    let (mut second, mut first) = (ends.pop().unwrap(), ends.pop().unwrap());
    let length: u32 = 2 << 20;
    // The first holds two of three MiB, though nothing but its length is there; the second does not fit beside it.
    first.1.0.write_all(&length.to_be_bytes()).await.unwrap();
    let first_counters = first.2.counters();
    let first_link = tokio::spawn(async move { (first.2.receiver.receive().await, first.2) });
    soon(async {
        while first_counters.bytes_received() < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let body = vec![5; length as usize];
    second.1.0.write_all(&length.to_be_bytes()).await.unwrap();
    let second_counters = second.2.counters();
    let second_link = tokio::spawn(async move { (second.2.receiver.receive().await, second.2) });
    let second_body = body.clone();
    let second_sent = tokio::spawn(async move { second.1.0.write_all(&second_body).await.map(|()| second.1) });
    soon(first.1.0.write_all(&body[1..])).await.unwrap();
    assert_eq!(second_counters.bytes_received(), 4);
    first.1.0.write_all(&body[..1]).await.unwrap();
    assert!(soon(first_link).await.unwrap().0.unwrap().unwrap() == body);
    assert!(soon(second_link).await.unwrap().0.unwrap().unwrap() == body);
    soon(second_sent).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_that_dial_at_once_keep_one_link_and_the_same() {
    for round in 0..40 {
        let (mut a, mut b) = (Host::new(1).await, Host::new(2 + round).await);
        tokio::join!(async { a.dial(&b) }, async { b.dial(&a) });
        let (mut at_a, mut at_b) = (a.link().await, b.link().await);
        exchange(&mut at_a, &mut at_b).await;
        assert_ne!(at_a.dialed, at_b.dialed);
        assert_eq!((a.net.linked(), b.net.linked()), (vec![b.id()], vec![a.id()]));
        exchange(&mut at_b, &mut at_a).await;
        assert!(a.links.try_recv().is_err() && b.links.try_recv().is_err());
        drop((at_a, at_b));
    }
}

#[tokio::test]
async fn a_peer_that_was_started_anew_elsewhere_is_found_when_it_dials() {
    // Whichever has the smaller id.
    for (seed, other) in [(1, 2), (2, 1)] {
        let mut a = Host::new(seed).await;
        let old_runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut b = old_runtime.spawn(Host::new(other)).await.unwrap();
        let (mut old, _at_b) = connected(&mut a, &mut b).await;
        let old_port = b.net.bound();
        // `a` is not told and still believes in the old link.
        old_runtime.shutdown_background();
        let mut b = Host::new(other).await;
        b.dial(&a);
        let (mut at_a, mut at_b) = (a.link().await, b.link().await);
        exchange(&mut at_a, &mut at_b).await;
        assert!(matches!(soon(old.receiver.receive()).await, Err(LinkError::Closed { by_peer: false, .. })));
        assert!(at_a.generation > old.generation);
        assert_eq!(at_a.remote, b.net.bound());
        assert_eq!(a.net.last_addresses(&b.id()), [b.net.bound(), old_port].concat());

        // And dialled at the new address when the link is over.
        b.net.remove_peer(&a.id());
        at_b.sender.close(close::DONE, "");
        let (mut at_a, mut at_b) = (a.link().await, b.link().await);
        assert!(at_a.dialed);
        exchange(&mut at_a, &mut at_b).await;
    }
}

#[tokio::test]
async fn a_peer_that_vanished_is_found_out() {
    let mut a = Host::new(1).await;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut b = runtime.spawn(Host::new(2)).await.unwrap();
    let (mut at_a, _at_b) = connected(&mut a, &mut b).await;
    runtime.shutdown_background();
    assert_eq!(soon(at_a.receiver.receive()).await, Err(LinkError::Lost));
    let mut b = Host::new(2).await;
    a.dial(&b);
    let (mut at_a, mut at_b) = (a.link().await, b.link().await);
    exchange(&mut at_a, &mut at_b).await;
}

#[tokio::test]
async fn offline_ends_links_and_refuses_and_online_restores_them_at_the_same_port() {
    let (mut a, mut b) = (Host::new(1).await, Host::new(2).await);
    let (mut at_a, at_b) = connected(&mut a, &mut b).await;
    let bound = b.net.bound();
    let gone = ended(at_b);
    let (offline, ()) = soon(async { tokio::join!(b.net.set_online(false), gone) }).await;
    offline.unwrap();
    assert_eq!(closed_by_peer(&mut at_a).await, close::OFFLINE);
    assert!(b.net.bound().is_empty() && b.net.linked().is_empty() && b.net.addresses().is_empty());
    // Nobody listens there any more.
    drop(UdpSocket::bind(bound[0]).unwrap());

    soon(b.net.set_online(true)).await.unwrap();
    assert_eq!(b.net.bound(), bound);
    a.net.dial_now(&b.id());
    let (mut at_a, mut at_b) = (a.link().await, b.link().await);
    exchange(&mut at_a, &mut at_b).await;

    let gone = ended(at_b);
    soon(async { tokio::join!(b.net.close(), gone) }).await;
    assert_eq!(closed_by_peer(&mut at_a).await, close::OFFLINE);
    assert!(matches!(b.net.set_online(true).await, Err(NetError::Closed)));
    assert!(UdpSocket::bind(bound[0]).is_ok());
}

#[tokio::test]
async fn online_again_elsewhere_if_the_port_is_taken_unless_it_was_asked_for() {
    let host = Host::with(1, |config| config.online = false).await;
    assert!(host.net.bound().is_empty());
    host.net.set_online(true).await.unwrap();
    let bound = host.net.bound()[0];
    soon(host.net.set_online(false)).await.unwrap();
    let taken = UdpSocket::bind(bound).unwrap();
    soon(host.net.set_online(true)).await.unwrap();
    assert_ne!(host.net.bound()[0], bound);

    let mut config = NetConfig::new(key(2), taken.local_addr().unwrap());
    config.online = false;
    let (sender, _links) = mpsc::channel(1);
    let net = Net::open(config, sender).await.unwrap();
    let error = soon(net.set_online(true)).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot bind {bound}: ")), "{error}");
    assert!(error.ends_with("give another with --bind"), "{error}");
    drop(taken);
    soon(net.set_online(true)).await.unwrap();
    assert_eq!(net.bound(), [bound]);
}

#[tokio::test]
async fn a_blocked_host_is_refused_and_its_link_closed() {
    let (mut a, mut b) = (Host::new(1).await, Host::new(2).await);
    let (mut at_a, mut at_b) = connected(&mut a, &mut b).await;
    b.dial(&a);
    b.net.block(a.id());
    assert_eq!(closed_by_peer(&mut at_a).await, close::BLOCKED);
    assert!(soon(at_b.receiver.receive()).await.is_err());
    soon(a.net.close()).await;
    let endpoint = raw(1).await;
    let connection = raw_connect(&endpoint, &b).await;
    assert_eq!(raw_closed(&connection).await, close::BLOCKED);
    endpoint.close().await;

    let mut a = Host::new(1).await;
    b.net.add_peer(a.id(), a.net.bound());
    b.net.unblock(&a.id());
    let (mut at_a, mut at_b) = (a.link().await, b.link().await);
    assert!(at_b.dialed);
    exchange(&mut at_a, &mut at_b).await;
}

#[tokio::test]
async fn strangers_are_limited_and_peers_are_not() {
    let limits = NetLimits { strangers_max: 2, ..NetLimits::default() };
    let mut host = Host::with(1, |config| config.limits = limits).await;
    let mut held = Vec::new();
    for seed in [2, 3] {
        let endpoint = raw(seed).await;
        let connection = raw_connect(&endpoint, &host).await;
        held.push((raw_greet(&connection).await, host.link().await, connection, endpoint));
    }
    let third = raw(4).await;
    let connection = raw_connect(&third, &host).await;
    assert_eq!(raw_closed(&connection).await, close::FULL);

    let mut peer = Host::new(5).await;
    host.net.add_peer(peer.id(), Vec::new());
    peer.dial(&host);
    let (mut at_peer, mut at_host) = (peer.link().await, host.link().await);
    exchange(&mut at_peer, &mut at_host).await;

    // A stranger that comes again takes its own place.
    let endpoint = &held[0].3;
    let connection = raw_connect(endpoint, &host).await;
    let _streams = raw_greet(&connection).await;
    assert_eq!(raw_closed(&held[0].2).await, close::REPLACED);
    let again = host.link().await;
    assert!(again.generation > held[0].1.generation);

    // And leaves it when its link is over.
    drop((held.swap_remove(1), again));
    soon(async {
        while host.net.linked() != [peer.id()] {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let connection = raw_connect(&third, &host).await;
    let _streams = raw_greet(&connection).await;
    host.link().await;
}

#[tokio::test]
async fn links_in_all_are_limited() {
    let limits = NetLimits { links_max: 1, ..NetLimits::default() };
    let mut host = Host::with(1, |config| config.limits = limits).await;
    let mut peer = Host::new(2).await;
    let _links = connected(&mut host, &mut peer).await;
    host.net.add_peer(key(3).public(), Vec::new());
    let endpoint = raw(3).await;
    let connection = raw_connect(&endpoint, &host).await;
    assert_eq!(raw_closed(&connection).await, close::FULL);
}

#[tokio::test]
async fn who_opens_no_stream_or_greets_wrongly_does_not_hold_a_place() {
    let limits = NetLimits { handshakes_max: 2, handshake_time: Duration::from_millis(500), ..NetLimits::default() };
    let mut host = Host::with(1, |config| config.limits = limits).await;
    let endpoint = raw(2).await;
    let silent = raw_connect(&endpoint, &host).await;
    let half = raw_connect(&endpoint, &host).await;
    let (mut send, _receive) = half.open_bi().await.unwrap();
    send.write_all(&[0, 0, 0, 19, 0xa1]).await.unwrap();
    soon(silent.closed()).await;
    soon(half.closed()).await;
    for wrong in [&[0xff; 4][..], &[0, 0, 0, 0], &[0, 0, 0, 1, 0xa0], b"GET / HTTP/1.1\r\n\r\n"] {
        let connection = raw_connect(&endpoint, &host).await;
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        send.write_all(wrong).await.unwrap();
        soon(connection.closed()).await;
    }
    let mut peer = Host::new(3).await;
    connected(&mut peer, &mut host).await;
}

#[tokio::test]
async fn who_sends_no_first_frame_is_dropped() {
    let limits = NetLimits { strangers_max: 1, handshake_time: Duration::from_millis(500), ..NetLimits::default() };
    let mut host = Host::with(1, |config| config.limits = limits).await;
    let endpoint = raw(2).await;
    let connection = raw_connect(&endpoint, &host).await;
    let _streams = raw_greet(&connection).await;
    let mut link = host.link().await;
    assert_eq!(soon(link.receiver.receive()).await, Err(LinkError::Late));
    assert_eq!(raw_closed(&connection).await, close::LATE);
    // Its place is free though the upper layer has not dropped it yet.
    let other = raw(3).await;
    let connection = raw_connect(&other, &host).await;
    let _streams = raw_greet(&connection).await;
    host.link().await;
}

#[tokio::test]
async fn dead_peers_do_not_delay_others() {
    let (mut a, mut b) = (Host::new(1).await, Host::new(2).await);
    // Bound, so that nothing answers, not even the system.
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    for seed in 10..40 {
        a.net.add_peer(key(seed).public(), vec![dead.local_addr().unwrap()]);
    }
    // Several addresses, of which one is right.
    let right: Vec<SocketAddr> = b.net.bound();
    a.net.add_peer(b.id(), [vec![dead.local_addr().unwrap()], right].concat());
    let (mut at_a, mut at_b) = (a.link().await, b.link().await);
    exchange(&mut at_a, &mut at_b).await;
    assert_eq!(a.net.linked(), [b.id()]);
}

#[tokio::test]
async fn who_answers_with_another_key_is_not_the_peer() {
    let (mut a, mut b, mut c) = (Host::new(1).await, Host::new(2).await, Host::new(3).await);
    // `b` lives where `c` is said to.
    a.net.add_peer(c.id(), b.net.bound());
    a.net.add_peer(c.id(), [b.net.bound(), c.net.bound()].concat());
    let (mut at_a, mut at_c) = (a.link().await, c.link().await);
    assert_eq!((at_a.peer, at_c.peer), (c.id(), a.id()));
    exchange(&mut at_a, &mut at_c).await;
    assert_eq!(a.net.linked(), [c.id()]);
    assert!(b.links.try_recv().is_err());
}

#[tokio::test]
async fn new_hints_are_tried_at_once_though_a_dial_is_under_way() {
    let limits = NetLimits { dial_time: NEVER * 2, ..NetLimits::default() };
    let (mut a, mut b) = (Host::with(1, |config| config.limits = limits).await, Host::new(2).await);
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    a.net.add_peer(b.id(), vec![dead.local_addr().unwrap()]);
    soon(async {
        dead.set_nonblocking(true).unwrap();
        while dead.recv_from(&mut [0; 2000]).is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    a.dial(&b);
    let (mut at_a, mut at_b) = (a.link().await, b.link().await);
    exchange(&mut at_a, &mut at_b).await;
}

#[tokio::test]
async fn a_full_channel_delays_links_and_a_closed_one_ends_them() {
    let mut config = NetConfig::new(key(1), "127.0.0.1:0".parse().unwrap());
    config.limits.links_max = 8;
    let (sender, mut links) = mpsc::channel(1);
    let net = Net::open(config, sender).await.unwrap();
    let (mut b, mut c) = (Host::new(2).await, Host::new(3).await);
    b.net.add_peer(net.host(), net.bound());
    c.net.add_peer(net.host(), net.bound());
    let (mut at_b, mut at_c) = (b.link().await, c.link().await);
    let mut peers = [soon(links.recv()).await.unwrap(), soon(links.recv()).await.unwrap()];
    peers.sort_by_key(|link| link.peer == c.id());
    let [mut to_b, mut to_c] = peers;
    exchange(&mut at_b, &mut to_b).await;
    exchange(&mut at_c, &mut to_c).await;

    drop(links);
    let mut d = Host::new(4).await;
    d.net.add_peer(net.host(), net.bound());
    assert_eq!(closed_by_peer(&mut d.link().await).await, close::DONE);
}
