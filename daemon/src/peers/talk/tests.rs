use std::collections::BTreeSet;
use std::net::SocketAddr;

use kwoon_keys::{Digest, KeyPair};
use kwoon_ledger::limits::Limits;
use kwoon_net::{Net, NetConfig};
use kwoon_store::{CACHE_BYTES_DEFAULT, DiskStore, Home, OpenMode};
use kwoon_sync::wire::{Hello, VERSIONS};
use tempfile::TempDir;

use super::*;
use crate::config::Choices;
use crate::peers::{Opened, Peers};
use crate::service::Service;

/// Nothing here takes this long unless it never comes.
const NEVER: Duration = Duration::from_secs(60);

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A host of its own, on its own net.
struct At {
    _dir: TempDir,
    service: Service,
    peers: Peers,
    own: PublicKey,
    bind: SocketAddr,
}

impl At {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = Arc::new(Home::open(&dir.path().join("home"), OpenMode::MakeIfMissing).unwrap());
        let store = Arc::new(DiskStore::open(&home, CACHE_BYTES_DEFAULT).unwrap());
        let service = Service::start(&home, &store, Limits::DEFAULT, any()).unwrap();
        let mut choices = Choices {
            listen: any(),
            listen_asked: false,
            bind: any(),
            bind_asked: false,
            relay: "off".to_owned(),
            discovery: "off".to_owned(),
        };
        let opened = Opened::open(service.key(), &mut choices, true).await.unwrap();
        let peers = Peers::start(opened, store, service.writer(), service.around()).await;
        Self { _dir: dir, own: service.host(), service, peers, bind: choices.bind }
    }

    async fn stop(self) {
        self.peers.stop().await;
        tokio::task::spawn_blocking(move || self.service.stop()).await.unwrap();
    }
}

/// A net of whoever wants, and its link with a host. The net is to be kept as long as the link.
async fn stranger(seed: u8, host: (PublicKey, SocketAddr)) -> (Net, Link) {
    let (sender, mut links) = mpsc::channel(1);
    let net = Net::open(NetConfig::new(KeyPair::from_seed(&[seed; 32]), any()), sender).await.unwrap();
    net.add_peer(host.0, vec![host.1]);
    let link = timeout(NEVER, links.recv()).await.unwrap().unwrap();
    (net, link)
}

/// How the host closed a link.
async fn closed(link: &mut Link) -> u32 {
    loop {
        match timeout(NEVER, link.receiver.receive()).await.expect("it never ends") {
            Ok(Some(_)) => {}
            Err(LinkError::Closed { by_peer: true, code, .. }) => return code.try_into().unwrap(),
            other => panic!("not closed by the host: {other:?}"),
        }
    }
}

fn hello() -> Vec<u8> {
    let hello = Hello {
        versions: VERSIONS,
        counting: Digest([7; 32]),
        changes: 0,
        seen: None,
        added: true,
        time: wall_clock(),
    };
    Message::Hello(hello).write()
}

#[test]
fn every_reason_has_its_own_code_beyond_those_of_the_net() {
    let ends = [
        End::Broken(Broken::Version),
        End::Broken(Broken::Malformed),
        End::Broken(Broken::OutOfTurn),
        End::Broken(Broken::Oneself),
        End::Slow,
        End::Store,
    ];
    let codes: BTreeSet<u32> = ends.iter().map(|end| end.told().0).collect();
    assert_eq!(codes.len(), ends.len());
    assert!(codes.iter().all(|code| *code >= close::UPPER_MIN));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_speak_as_it_should_is_told_why_and_others_are_served() {
    let at = At::start().await;
    let host = (at.own, at.bind);
    let say = async |seed: u8, frames: Vec<Vec<u8>>| {
        let (net, mut link) = stranger(seed, host).await;
        for frame in frames {
            link.sender.send(&frame).await.unwrap();
        }
        let code = closed(&mut link).await;
        drop(net);
        code
    };
    assert_eq!(say(1, vec![b"GET / HTTP/1.1".to_vec()]).await, End::Broken(Broken::Malformed).told().0);
    assert_eq!(say(2, vec![Vec::new()]).await, End::Broken(Broken::Malformed).told().0);
    let early = Message::Want(Vec::new()).write();
    assert_eq!(say(3, vec![early]).await, End::Broken(Broken::OutOfTurn).told().0);
    assert_eq!(say(4, vec![hello(), hello()]).await, End::Broken(Broken::OutOfTurn).told().0);
    // A stranger's long frame is not even received.
    assert_eq!(say(5, vec![vec![0; (1 << 20) + 1]]).await, close::PROTOCOL);

    let (net, mut link) = stranger(6, host).await;
    link.sender.send(&hello()).await.unwrap();
    let greeting = timeout(NEVER, link.receiver.receive()).await.unwrap().unwrap().unwrap();
    assert!(matches!(Message::read(&greeting).unwrap(), Message::Hello(_)));
    // It says where it stands, which is nowhere that a stranger may look.
    let heads = timeout(NEVER, link.receiver.receive()).await.unwrap().unwrap().unwrap();
    assert!(matches!(Message::read(&heads).unwrap(), Message::Heads(heads) if heads.items.is_empty()));
    // The end of the daemon ends the conversation.
    let (ended, ()) = tokio::join!(closed(&mut link), at.stop());
    assert!(ended < close::UPPER_MIN, "{ended}");
    drop(net);
}

#[tokio::test]
async fn who_does_not_read_is_dropped() {
    let (sender, mut links) = mpsc::channel(1);
    let key = KeyPair::from_seed(&[1; 32]);
    let own = key.public();
    let net = Net::open(NetConfig::new(key, any()), sender).await.unwrap();
    let (other, mut deaf) = stranger(2, (own, net.bound()[0])).await;
    let link =
        timeout(NEVER, async { tokio::join!(links.recv(), deaf.sender.send(b"here")).0.unwrap() }).await.unwrap();
    let (frames, queued) = mpsc::unbounded_channel();
    let waiting = Arc::new(Waiting::default());
    let queue = Queue { frames, waiting: Arc::clone(&waiting) };
    queue.send(vec![vec![0; 60_000]; 500]).unwrap();
    let (_closing, closes) = oneshot::channel();
    let sending = send(link.peer, link.sender, queued, Arc::clone(&waiting), closes, Duration::from_millis(100));
    timeout(NEVER, sending).await.unwrap();
    assert!(waiting.bytes() > 0);
    assert_eq!(closed(&mut deaf).await, End::Slow.told().0);
    drop((net, other));
}

#[test]
fn what_waits_to_be_sent_has_an_end() {
    let (frames, _queued) = mpsc::unbounded_channel();
    let queue = Queue { frames, waiting: Arc::default() };
    assert_eq!(queue.send(vec![vec![0; QUEUED_MAX]]), Ok(()));
    assert_eq!(queue.send(vec![vec![0; 1]]), Err(End::Slow));
}
