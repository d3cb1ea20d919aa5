use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Condvar, Mutex};
use std::task::{Context, Poll, Waker};

use kwoon_ledger::log;
use kwoon_store::{CACHE_BYTES_DEFAULT, OpenMode, Sizes};
use kwoon_sync::argument;
use kwoon_sync::operations;
use redb::StorageBackend;
use redb::backends::FileBackend;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

/// What becomes of a sync.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gate {
    Open,
    /// Every sync waits.
    Closed,
    /// As many more syncs succeed, then none.
    Fails(usize),
}

/// A disk whose syncs go through a gate.
#[derive(Clone, Debug)]
struct Disk(Arc<(FileBackend, Mutex<Gate>, Condvar)>);

impl Disk {
    fn set(&self, gate: Gate) {
        *self.0.1.lock().unwrap() = gate;
        self.0.2.notify_all();
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.0.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.0.set_len(len)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.0.write(offset, data)
    }
    fn sync_data(&self) -> io::Result<()> {
        let mut gate = self.0.2.wait_while(self.0.1.lock().unwrap(), |gate| *gate == Gate::Closed).unwrap();
        match &mut *gate {
            Gate::Fails(0) => return Err(io::Error::other("it failed")),
            Gate::Fails(left) => *left -= 1,
            Gate::Open | Gate::Closed => {}
        }
        drop(gate);
        self.0.0.sync_data()
    }
}

/// Requests of which, whatever the first group takes, more are left than the second can take.
const CROWD: usize = 2 * ROUND_MAX + 40;

/// A writer at work over a disk with a gate.
struct At {
    home: Arc<Home>,
    disk: Disk,
    handle: Handle,
    writing: JoinHandle<()>,
    calls: u8,
}

impl At {
    fn start(dir: &TempDir) -> Self {
        let home = Arc::new(Home::open(&dir.path().join("home"), OpenMode::MakeIfMissing).unwrap());
        let file = std::fs::File::options().read(true).write(true).open(home.path().join("store.redb")).unwrap();
        let disk = Disk(Arc::new((FileBackend::new(file).unwrap(), Mutex::new(Gate::Open), Condvar::new())));
        let store = Arc::new(DiskStore::open_on(&home, disk.clone(), Sizes::default()).unwrap());
        let (writer, handle) = Writer::new(Arc::clone(&home), store, Limits::DEFAULT).unwrap();
        let writing = std::thread::spawn(move || writer.run());
        Self { home, disk, handle, writing, calls: 0 }
    }

    /// Queues a request; its reply comes of the future.
    fn queue<'a>(
        &mut self,
        handle: &'a Handle,
        caller: Caller,
        operation: &str,
        arguments: &Value,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + 'a>> {
        self.calls = self.calls.wrapping_add(1);
        let request = Request {
            caller,
            operation: operations::find(operation).unwrap(),
            arguments: argument::read(arguments.to_string().as_bytes()).unwrap(),
            entropy: [self.calls; 32],
            trace_id: None,
            finding: None,
        };
        let mut future: Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + 'a>> = Box::pin(handle.act(request));
        // The first poll puts it into the queue.
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        future
    }

    fn call(&mut self, caller: Caller, operation: &str, arguments: &Value) -> Value {
        let handle = self.handle.clone();
        let reply = wait(self.queue(&handle, caller, operation, arguments));
        reply.unwrap().json()
    }

    /// An agent with a thread; the thread's id.
    fn alice(&mut self) -> (Caller, Value) {
        self.call(Caller::Owner, "agent_create", &json!({"name": "alice"}));
        let alice = *self.handle.published().keyring.agents().next().unwrap();
        let alice = Caller::Agent(alice);
        let thread = self.call(alice, "thread_create", &json!({}))["result"]["thread"].clone();
        (alice, thread)
    }

    /// Queues a crowd of entries while the first commit is held up, so that one group is decided over another that is not
    /// committed; the replies in order.
    fn crowd(&mut self, after: Gate) -> Vec<Result<Answer, Refusal>> {
        let (alice, thread) = self.alice();
        let handle = self.handle.clone();
        let before = *self.handle.commits().borrow();
        self.disk.set(Gate::Closed);
        let mut queued = Vec::new();
        for n in 0..CROWD {
            let entry = json!({"thread": thread, "text": "x", "ask": [], "idempotency_key": format!("k{n}")});
            queued.push(self.queue(&handle, alice, "entry_post", &entry));
        }
        for future in &mut queued {
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "nothing is told before it is on disk");
        }
        assert_eq!(*self.handle.commits().borrow(), before);
        self.disk.set(after);
        queued.into_iter().map(wait).collect()
    }

    fn stop(self) -> Arc<Home> {
        self.handle.stop();
        self.writing.join().unwrap();
        self.home
    }
}

fn wait<T>(mut future: Pin<Box<dyn Future<Output = T> + '_>>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        std::thread::park();
    }
}

#[test]
fn a_group_is_decided_over_the_one_that_is_being_committed() {
    let dir = tempfile::tempdir().unwrap();
    let mut at = At::start(&dir);
    let replies = at.crowd(Gate::Open);
    let entries: Vec<u64> =
        replies.iter().map(|reply| reply.as_ref().unwrap().json()["result"]["entry"].as_u64().unwrap()).collect();
    assert_eq!(entries, (1..=CROWD as u64).collect::<Vec<_>>());
    let home = at.stop();
    // The writer and its committer have let go of the store.
    let store = DiskStore::open(&home, CACHE_BYTES_DEFAULT).unwrap();
    assert_eq!(log::next_arrival(&store.snapshot().unwrap()).unwrap(), 2 + CROWD as u64);
}

#[test]
fn of_a_group_that_is_not_committed_and_of_the_one_decided_over_it_nothing_is_acknowledged() {
    // A commit syncs twice or more; there are at least three.
    for syncs in [0, 1, 2, 3, 4, 5, 6, 7, 8, 1000] {
        let dir = tempfile::tempdir().unwrap();
        let mut at = At::start(&dir);
        let replies = at.crowd(Gate::Fails(syncs));
        let acknowledged = replies.iter().take_while(|reply| reply.is_ok()).count() as u64;
        for reply in &replies[acknowledged as usize..] {
            assert_eq!(reply.as_ref().unwrap_err().code, Code::NotSealing, "after {syncs} syncs");
        }
        at.disk.set(Gate::Open);
        let home = at.stop();
        let store = DiskStore::open(&home, CACHE_BYTES_DEFAULT).unwrap();
        let facts = log::next_arrival(&store.snapshot().unwrap()).unwrap() - 2;
        // What was not acknowledged may be there all the same, but nothing acknowledged is missing.
        assert!((acknowledged..=CROWD as u64).contains(&facts), "{facts} of {acknowledged} after {syncs} syncs");
        match syncs {
            0 => assert_eq!(acknowledged, 0),
            1000 => assert_eq!(acknowledged, CROWD as u64),
            _ => {}
        }
    }
}
