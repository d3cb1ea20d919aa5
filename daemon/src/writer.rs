//! The writer: one thread that drives the host. It takes requests from a bounded queue in groups, commits what each
//! group decided, and only then hands out the replies; between groups it does what has come due. While requests are
//! waiting, a second thread commits one group as the next is decided.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, SystemTime, UNIX_EPOCH};

use kwoon_keys::id::AgentId;
use kwoon_ledger::limits::Limits;
use kwoon_ledger::refusal::{Code, Detail, Refusal};
use kwoon_ledger::storage::{Batch, Overlay, Read, ReadError, Store, WriteError};
use kwoon_ledger::time::Time;
use kwoon_store::{DiskStore, Home, Snapshot};
use kwoon_sync::answer::{Answer, Secret, internal};
use kwoon_sync::host::{Guard, Host, Request};
use kwoon_sync::keyring::Keyring;
use kwoon_sync::view::Caller;
use tokio::sync::{oneshot, watch};

use crate::tokens::Tokens;

/// Requests that wait for the writer: more than there can be connections, each of which has one request at a time, so that
/// the queue is never full and no exit from an obligation is held up by it (L4.1).
const QUEUE_MAX: usize = 4096;
/// Requests of one group, and so of one commit.
const GROUP_MAX: usize = 256;

/// Bytes of texts in a group beyond which it is committed before the next is decided.
const AHEAD_BYTES_MAX: usize = 4 << 20;

/// What a request gets.
pub type Outcome = Result<Answer, Refusal>;

enum Message {
    Request(Box<Request>, oneshot::Sender<Outcome>),
    Stop,
}

/// What readers know of the host, as of the last commit.
#[derive(Clone, Debug)]
pub struct Published {
    /// The keys.
    pub keyring: Arc<Keyring>,
    /// The limits.
    pub limits: Arc<Limits>,
    /// What decides whether the host seals.
    pub guard: Guard,
    /// Why nothing is written any more, if the store failed.
    pub failed: Option<&'static str>,
}

impl Published {
    /// Whether the host seals at this time, or why not.
    ///
    /// # Errors
    /// The reason.
    pub fn sealing(&self, now: Time) -> Result<(), &'static str> {
        match self.failed {
            Some(reason) => Err(reason),
            None => self.guard.sealing(now),
        }
    }
}

/// The way to the writer. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    queue: SyncSender<Message>,
    published: Arc<RwLock<Arc<Published>>>,
    tokens: Arc<RwLock<Tokens>>,
    commits: watch::Receiver<u64>,
}

impl Handle {
    /// What readers know of the host.
    pub fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whom a token stands for.
    pub fn caller(&self, token: &str) -> Option<Caller> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).caller(token)
    }

    /// Tells when something was committed.
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.commits.clone()
    }

    /// Hands a request to the writer and waits for its reply.
    ///
    /// # Errors
    /// The refusal; [`Code::Stopping`] if the daemon stops, [`Code::RateLimited`] if too many wait already.
    pub async fn act(&self, request: Request) -> Outcome {
        let (sender, receiver) = oneshot::channel();
        match self.queue.try_send(Message::Request(Box::new(request), sender)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                let mut refusal = Refusal::from(Code::RateLimited);
                refusal.retry_after_ms = Some(1000);
                return Err(refusal);
            }
            Err(TrySendError::Disconnected(_)) => return Err(Code::Stopping.into()),
        }
        receiver.await.unwrap_or_else(|_| Err(Code::Stopping.into()))
    }

    /// Ends the writer once everything queued before is done.
    pub fn stop(&self) {
        // A full queue is drained by the writer, so this gets through.
        let _ = self.queue.send(Message::Stop);
    }
}

/// The wall clock. A clock before 1970 counts as 1970.
pub fn wall_clock() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

type Group = Vec<(oneshot::Sender<Outcome>, Request)>;

/// A group that was decided.
struct Decided {
    senders: Vec<oneshot::Sender<Outcome>>,
    batch: Batch,
}

/// A group that is being committed.
struct Committing {
    senders: Vec<oneshot::Sender<Outcome>>,
    /// What it writes, for the next group to be decided over.
    written: Batch,
}

/// A thread that commits one batch at a time. It has ended when this was dropped.
struct Committer {
    batches: Option<SyncSender<Batch>>,
    done: Receiver<Result<(), WriteError>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    fn new(store: &Arc<DiskStore>) -> std::io::Result<Self> {
        let (batches, receiver) = sync_channel::<Batch>(1);
        let (sender, done) = sync_channel(1);
        let store = Arc::clone(store);
        let thread = std::thread::Builder::new().name("committer".to_owned()).spawn(move || {
            while let Ok(batch) = receiver.recv() {
                if sender.send(store.commit(batch)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { batches: Some(batches), done, thread: Some(thread) })
    }

    /// Begins to commit a batch.
    ///
    /// # Errors
    /// The batch, if the thread has ended.
    fn begin(&self, batch: Batch) -> Result<(), Batch> {
        match &self.batches {
            Some(batches) => batches.send(batch).map_err(|unsent| unsent.0),
            None => Err(batch),
        }
    }

    /// Waits until the batch is committed.
    fn end(&self) -> Result<(), WriteError> {
        let broke_off = || WriteError { reason: "a commit broke off".to_owned() };
        self.done.recv().unwrap_or_else(|_| Err(broke_off()))
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        // Without a sender the thread ends, and the store is its writer's alone again.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The writer's own state.
pub struct Writer {
    store: Arc<DiskStore>,
    home: Arc<Home>,
    host: Host<usize>,
    limits: Limits,
    queue: Receiver<Message>,
    committer: Committer,
    committing: Option<Committing>,
    published: Arc<RwLock<Arc<Published>>>,
    tokens: Arc<RwLock<Tokens>>,
    commits: watch::Sender<u64>,
    failed: Option<&'static str>,
}

impl Writer {
    /// A writer over an open store, and the way to it. Tokens of agents that have none yet are made.
    ///
    /// # Errors
    /// If keys or tokens cannot be read, or the store cannot.
    pub fn new(home: Arc<Home>, store: Arc<DiskStore>, limits: Limits) -> Result<(Self, Handle), StartError> {
        let snapshot = store.snapshot()?;
        let keyring = read_keyring(&home, &snapshot)?;
        let mut tokens = Tokens::default();
        tokens.add(&home.ensure_token("owner")?, Caller::Owner);
        for (name, agent) in kwoon_sync::names::names(&snapshot)? {
            if keyring.agent(&agent).is_some() {
                tokens.add(&home.ensure_token(&name)?, Caller::Agent(agent));
            }
        }
        let host = Host::new(keyring, limits.clone(), home.mark()?, &snapshot)?;
        let tokens = Arc::new(RwLock::new(tokens));
        let (queue, receiver) = sync_channel(QUEUE_MAX);
        let (commits, watching) = watch::channel(0);
        let published = Arc::new(RwLock::new(Arc::new(Published {
            keyring: host.keyring(),
            limits: host.limits(),
            guard: host.guard(),
            failed: None,
        })));
        let handle =
            Handle { queue, published: Arc::clone(&published), tokens: Arc::clone(&tokens), commits: watching };
        let committer = Committer::new(&store)?;
        let writer = Self {
            store,
            home,
            host,
            limits,
            queue: receiver,
            committer,
            committing: None,
            published,
            tokens,
            commits,
            failed: None,
        };
        Ok((writer, handle))
    }

    /// Serves until it is stopped.
    pub fn run(mut self) {
        // Deadlines that came due while the daemon was down are sealed before the first request.
        self.round(Vec::new());
        loop {
            let mut group = Vec::new();
            let mut stop = false;
            match self.queue.recv_timeout(self.idle_time()) {
                Ok(message) => stop = collect(message, &mut group),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            stop |= self.collect_more(&mut group);
            // As long as more are waiting after each group, groups are committed while the next is decided.
            let mut waiting = Vec::new();
            while !stop {
                stop = self.collect_more(&mut waiting);
                if waiting.is_empty() {
                    break;
                }
                self.round_ahead(std::mem::replace(&mut group, std::mem::take(&mut waiting)));
            }
            self.round(group);
            if stop {
                self.refuse_the_rest();
                return;
            }
        }
    }

    /// Collects what is in the queue, as much as fits a group; whether the writer is to stop after it.
    fn collect_more(&self, group: &mut Group) -> bool {
        while group.len() < GROUP_MAX {
            match self.queue.try_recv() {
                Ok(message) => {
                    if collect(message, group) {
                        return true;
                    }
                }
                Err(_) => return false,
            }
        }
        false
    }

    fn refuse_the_rest(&mut self) {
        while let Ok(message) = self.queue.try_recv() {
            if let Message::Request(_, sender) = message {
                let _ = sender.send(Err(Code::Stopping.into()));
            }
        }
    }

    /// How long there is nothing to do but wait for requests.
    fn idle_time(&self) -> StdDuration {
        let now = wall_clock();
        let wake_at = match self.store.snapshot() {
            Ok(snapshot) if self.failed.is_none() => self.host.wake_at(&snapshot, now),
            _ => Ok(now.after(kwoon_sync::host::RECORD_INTERVAL)),
        };
        let wait = wake_at.map_or(1000, |at| at.since(now).0);
        StdDuration::from_millis(wait.clamp(1, 60_000))
    }

    /// Decides a group, commits it, and hands out its replies.
    fn round(&mut self, group: Group) {
        let Some(Decided { senders, batch }) = self.decide(group) else { return };
        self.end_committing();
        let committed = self.failed.is_none() && (batch.is_empty() || self.commit(batch));
        self.hand_out(senders, committed);
    }

    /// Decides a group, and begins to commit it. Its replies are handed out when the next group was decided.
    fn round_ahead(&mut self, group: Group) {
        let Some(Decided { senders, batch }) = self.decide(group) else { return };
        self.end_committing();
        let length: usize = batch.content.values().map(|(_, bytes)| bytes.len()).sum();
        // New agents are known once they are committed, and long texts are not held twice.
        if self.failed.is_some() || batch.is_empty() || !batch.keys.is_empty() || length > AHEAD_BYTES_MAX {
            let committed = self.failed.is_none() && (batch.is_empty() || self.commit(batch));
            return self.hand_out(senders, committed);
        }
        let written = batch.readable();
        match self.committer.begin(batch) {
            Ok(()) => self.committing = Some(Committing { senders, written }),
            Err(batch) => {
                let committed = self.commit(batch);
                self.hand_out(senders, committed);
            }
        }
    }

    /// Decides a group over what is committed and what is being committed. Nothing if it came to nothing, and its callers
    /// know.
    fn decide(&mut self, group: Group) -> Option<Decided> {
        if self.failed.is_none() {
            match self.store.snapshot() {
                Ok(snapshot) => return self.decide_over(&snapshot, group),
                Err(error) => self.fail(&error.reason),
            }
        }
        self.end_committing();
        let reason = self.failed?;
        for (sender, _) in group {
            let _ = sender.send(Err(not_sealing(reason)));
        }
        None
    }

    fn decide_over(&mut self, snapshot: &Snapshot, group: Group) -> Option<Decided> {
        let (senders, requests): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        let requests = requests.into_iter().enumerate().collect();
        // The snapshot may hold what is being committed, or not yet; over it, it reads the same.
        let written = self.committing.as_mut().map(|committing| std::mem::take(&mut committing.written));
        let state = Overlay::with(snapshot, written.unwrap_or_default());
        // A defect in the host must not take the daemon with it: the group gets an error, and the host begins anew from
        // what is committed.
        let Ok(batch) = catch_unwind(AssertUnwindSafe(|| self.host.take(&state, wall_clock(), requests))) else {
            tracing::error!("a group of requests failed; nothing of it was committed");
            self.end_committing();
            self.begin_anew();
            for sender in senders {
                let _ = sender.send(Err(internal()));
            }
            return None;
        };
        for trouble in self.host.take_troubles() {
            tracing::error!(reason = trouble.reason, "something in the store cannot be read; see ledger_verify");
        }
        Some(Decided { senders, batch })
    }

    /// Waits for the commit that is under way, if there is one, and hands out its replies.
    fn end_committing(&mut self) {
        let Some(Committing { senders, .. }) = self.committing.take() else { return };
        let done = self.committer.end();
        let committed = self.committed(done);
        self.hand_out(senders, committed);
    }

    /// Ends the oldest round of the host, and tells its callers what came of it.
    fn hand_out(&mut self, senders: Vec<oneshot::Sender<Outcome>>, committed: bool) {
        let mut replies: BTreeMap<usize, Outcome> = self.host.committed(committed).into_iter().collect();
        self.publish();
        for (slot, sender) in senders.into_iter().enumerate() {
            let reply = match (replies.remove(&slot), self.failed) {
                // It is not known what the disk holds; the same key tells once the daemon runs again.
                (_, Some(reason)) if !committed => Err(not_sealing(reason)),
                (Some(reply), _) => reply,
                (None, _) => Err(internal()),
            };
            let _ = sender.send(reply.map(|answer| self.with_token(answer)));
        }
    }

    fn commit(&mut self, batch: Batch) -> bool {
        let done = self.store.commit(batch);
        self.committed(done)
    }

    fn committed(&mut self, done: Result<(), WriteError>) -> bool {
        match done {
            Ok(()) => {
                self.commits.send_modify(|count| *count += 1);
                true
            }
            Err(error) => {
                self.fail(&error.reason);
                false
            }
        }
    }

    /// After a failed commit it is not known what the disk holds, so nothing more is written before the store was opened
    /// anew.
    fn fail(&mut self, reason: &str) {
        let shown = if reason.starts_with(kwoon_store::DISK_FULL) { "disk_full" } else { "store_failed" };
        tracing::error!(reason, "the store failed; nothing more is sealed until the daemon is started again");
        self.failed = Some(shown);
        self.publish();
    }

    fn begin_anew(&mut self) {
        let anew = (|| -> Result<_, StartError> {
            let snapshot = self.store.snapshot()?;
            Ok(Host::new(read_keyring(&self.home, &snapshot)?, self.limits.clone(), self.home.mark()?, &snapshot)?)
        })();
        match anew {
            Ok(host) => self.host = host,
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn publish(&self) {
        let published = Published {
            keyring: self.host.keyring(),
            limits: self.host.limits(),
            guard: self.host.guard(),
            failed: self.failed,
        };
        *self.published.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(published);
    }

    /// Puts a new agent's token into its answer: it is made here, once the agent is committed. If it cannot be written,
    /// the agent is there all the same, and its token is made at the next start.
    fn with_token(&self, mut answer: Answer) -> Answer {
        if let Some(Secret::TokenOf(name)) = &answer.secret {
            answer.secret = match self.token_of(name) {
                Ok(token) => Some(Secret::Token(token)),
                Err(error) => {
                    tracing::error!(%error, "the token of a new agent cannot be written; it is made at the next start");
                    None
                }
            };
        }
        answer
    }

    fn token_of(&self, name: &str) -> Result<String, StartError> {
        let token = self.home.ensure_token(name)?;
        if let Some(agent) = kwoon_sync::names::agent(&self.store.snapshot()?, name)? {
            let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
            tokens.add(&token, Caller::Agent(agent));
        }
        Ok(token.to_string())
    }
}

fn not_sealing(reason: &'static str) -> Refusal {
    Refusal::from(Code::NotSealing).with("reason", Detail::Word(reason))
}

fn collect(message: Message, group: &mut Group) -> bool {
    match message {
        Message::Request(request, sender) => {
            group.push((sender, *request));
            false
        }
        Message::Stop => true,
    }
}

/// The keys of this home whose agents are here. A crash between writing an instance's keys and committing its identity
/// leaves keys of nobody; they are set aside, and said so, in case it was the store that lost the agent.
fn read_keyring(home: &Home, read: &dyn Read) -> Result<Keyring, StartError> {
    // By the primary tables alone: what can be made anew must not decide over what cannot.
    let known: BTreeSet<AgentId> = kwoon_sync::names::names(read)?.into_iter().map(|(_, agent)| agent).collect();
    let mut kept = Vec::new();
    for keys in home.instance_keys()? {
        if known.contains(&keys.agent) {
            kept.push(keys);
        } else {
            tracing::warn!(agent = %keys.agent, "keys of an agent that is not here were set aside");
            home.set_aside_instance_keys(&keys.agent)?;
        }
    }
    Ok(Keyring::new(home.host_key()?, home.owner_key()?, kept))
}

/// Why a writer cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A key file.
    #[error(transparent)]
    Keys(#[from] kwoon_keys::files::FileError),
    /// A token file.
    #[error(transparent)]
    Tokens(#[from] kwoon_store::TokenError),
    /// The home.
    #[error(transparent)]
    Home(#[from] kwoon_store::OpenError),
    /// The system gives no thread.
    #[error("the daemon cannot start: {0}")]
    System(#[from] std::io::Error),
    /// The store.
    #[error(transparent)]
    Read(#[from] ReadError),
}
