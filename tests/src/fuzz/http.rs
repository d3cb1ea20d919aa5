//! The HTTP interface: bytes on a connection to the real daemon, all but its sockets.
//!
//! The first byte of an input says whether the connection comes over TCP and in what pieces, the rest is what the client
//! sends before it ends its side. The token of [`TOKEN`] is alice's.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use kwoon_daemon::Service;
use kwoon_keys::files::{Os, write_private};
use kwoon_ledger::limits::Limits;
use kwoon_ledger::log;
use kwoon_ledger::refusal::Code;
use kwoon_ledger::storage::{Order, Read, Row, Store, Table};
use kwoon_store::{CACHE_BYTES_DEFAULT, DiskStore, Home, OpenMode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

use crate::hall::NOTED;

/// The token of alice.
pub const TOKEN: &str = "kwn_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
/// Where the daemon would listen.
pub const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 4000);

/// Bytes of a body that the daemon reads as a request: few, so that inputs go beyond.
const BODY_BYTES_MAX: u64 = 1024;
/// Facts after which another daemon is begun, so that none gets large.
const FACTS_MAX: u64 = 64;
/// The largest response: the OpenAPI document is the largest there is.
const RESPONSE_BYTES_MAX: usize = 2 << 20;

struct Daemon {
    _dir: TempDir,
    store: Arc<DiskStore>,
    service: Service,
    runtime: Runtime,
}

static DAEMON: Mutex<Option<Daemon>> = Mutex::new(None);

/// See the module.
pub fn target(input: &[u8]) {
    let Some((&first, sent)) = input.split_first() else { return };
    let mut daemon = DAEMON.lock().unwrap_or_else(PoisonError::into_inner);
    if daemon.as_ref().is_none_or(|daemon| daemon.facts() > FACTS_MAX) {
        if let Some(old) = daemon.take() {
            old.stop();
        }
        *daemon = Some(Daemon::start());
    }
    let daemon = daemon.as_ref().expect("a daemon");
    let has_token = sent.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes());
    let before = (!has_token).then(|| daemon.rows());
    let piece = usize::from(first >> 1).max(1) * usize::from(first >> 1).max(1);
    let received = daemon.exchange(sent, first & 1 == 1, piece);
    check_responses(&received, sent);
    if let Some(before) = before {
        assert!(daemon.rows() == before, "nothing changes without a token");
    }
}

impl Daemon {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("home");
        let home = Arc::new(Home::open(&path, OpenMode::MakeIfMissing).expect("a home"));
        write_token(&path, "alice");
        let owner = home.ensure_token("owner").expect("a token");
        let store = Arc::new(DiskStore::open(&home, CACHE_BYTES_DEFAULT).expect("a store"));
        let limits = Limits { request_bytes_max: BODY_BYTES_MAX, ..Limits::DEFAULT };
        let service = Service::start(&home, &store, limits, SocketAddr::from(ADDRESS)).expect("a daemon");
        // Waiting takes no time: the clock moves on when there is nothing else to do.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let daemon = Self { _dir: dir, store, service, runtime: runtime.expect("a runtime") };
        for body in [r#"{"name":"alice"}"#, r#"{"name":"bob"}"#] {
            let length = body.len();
            let head = format!("POST /v1/agent_create HTTP/1.1\r\nauthorization: bearer {}\r\n", owner.as_str());
            let answer =
                daemon.exchange(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes(), false, 4096);
            assert!(answer.starts_with(b"HTTP/1.1 200"), "an agent");
        }
        daemon
    }

    fn stop(self) {
        self.service.stop();
    }

    fn facts(&self) -> u64 {
        log::next_arrival(&self.store.snapshot().expect("readable")).expect("readable")
    }

    /// Every row of the store but the recorded time.
    fn rows(&self) -> Vec<Row> {
        let snapshot = self.store.snapshot().expect("readable");
        let all = |table| snapshot.range(table, &[], &[0xff; 80], Order::Rising, usize::MAX).expect("readable");
        Table::ALL.into_iter().flat_map(all).filter(|(key, _)| !NOTED.contains(&key.as_slice())).collect()
    }

    /// What comes back on a connection on which this is sent, in pieces of so many bytes.
    fn exchange(&self, sent: &[u8], guarded: bool, piece: usize) -> Vec<u8> {
        self.runtime.block_on(async {
            let (client, server) = tokio::io::duplex(1 << 16);
            let (mut from, mut to) = tokio::io::split(client);
            let send = async {
                for piece in sent.chunks(piece) {
                    // A daemon that has closed the connection reads no more.
                    if to.write_all(piece).await.is_err() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                let _ = to.shutdown().await;
            };
            let mut received = Vec::new();
            let receive = from.read_to_end(&mut received);
            let (_, _, read) = tokio::join!(self.service.connection(server, guarded), send, receive);
            read.expect("a pipe in memory");
            received
        })
    }
}

fn write_token(home: &Path, name: &str) {
    let token = format!("{TOKEN}\n");
    write_private(&Os, &home.join("tokens").join(name), token.as_bytes()).expect("a token file");
}

/// Everything that was received is whole responses, and none of them says that the daemon failed.
fn check_responses(received: &[u8], sent: &[u8]) {
    let mut rest = received;
    while !rest.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(rest).expect("a response");
        let httparse::Status::Complete(head) = parsed else { panic!("half a response") };
        let code = response.code.expect("a code");
        let header = |name: &str| {
            let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            header.map(|header| String::from_utf8(header.value.to_vec()).expect("text"))
        };
        assert!(code < 600 && code != 500, "{}", String::from_utf8_lossy(rest));
        let length = header("content-length").map_or(0, |length| length.parse().expect("a length"));
        assert!(length <= RESPONSE_BYTES_MAX, "a response is bounded");
        rest = &rest[head..];
        // A response to HEAD says how long it would be, and has no body.
        let is_bare = length > 0 && (rest.is_empty() || rest.starts_with(b"HTTP/1."));
        if is_bare {
            assert!(sent.windows(4).any(|part| part == b"HEAD"), "a body is missing");
            continue;
        }
        let (body, after) = rest.split_at_checked(length).expect("a whole body");
        rest = after;
        if header("content-type").as_deref() == Some("application/json") {
            check_json(body, code);
        }
    }
}

fn check_json(body: &[u8], status: u16) {
    let body: Value = serde_json::from_slice(body).expect("JSON");
    if body.get("openapi").is_some() {
        return;
    }
    assert_eq!(body["ok"] == true, status == 200, "{body:#}");
    if body["ok"] != true {
        let code = body["error"]["code"].as_str().expect("a code");
        let code = Code::ALL.iter().find(|known| known.name() == code).expect("a code of the list");
        assert!(*code != Code::Internal && code.status() == status, "{body:#}");
    }
}
