//! The writer: one thread that drives the host. It takes requests from a bounded queue, commits what it decided of them, and
//! only then hands out the replies; between rounds it does what has come due. Where there is more to do than for one
//! caller, a second thread commits one round and hands out its replies, and the next takes whatever comes until then: so a
//! fast disk gets many small commits, and a slow one few large ones.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, Instant, SystemTime, UNIX_EPOCH};

use kwoon_keys::Digest;
use kwoon_keys::id::AgentId;
use kwoon_ledger::limits::Limits;
use kwoon_ledger::refusal::{Code, Detail, Refusal};
use kwoon_ledger::storage::{Batch, Overlay, Read, ReadError, Store, WriteError};
use kwoon_ledger::time::Time;
use kwoon_store::{DiskStore, Home, Snapshot};
use kwoon_sync::answer::{Answer, Secret, internal};
use kwoon_sync::host::{Done, Guard, Host, Replies, Request, Taken, Work};
use kwoon_sync::intake::{Delivery as FromPeer, Received};
use kwoon_sync::keyring::Keyring;
use kwoon_sync::view::Caller;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{oneshot, watch};

use crate::tokens::Tokens;

/// Requests that wait for the writer: more than there can be connections, each of which has one request at a time, so that
/// the queue is never full and no exit from an obligation is held up by it (L4.1).
const QUEUE_MAX: usize = 4096;
/// Requests of one round, and so of one commit.
const ROUND_MAX: usize = 256;
/// Requests of a round after which others that wait are left for the next, if it could be committed now.
const ROUND_ENOUGH: usize = 16;
/// How long a round takes requests. All of them are decided as of its beginning.
const ROUND_TIME_MAX: StdDuration = StdDuration::from_millis(20);
/// Bytes of texts in a round beyond which it is committed before the next is decided.
const AHEAD_BYTES_MAX: usize = 4 << 20;
/// How often the writer looks for requests while a commit is under way and it has nothing else to do. To be woken by each
/// one would cost more.
const LOOK_TIME: StdDuration = StdDuration::from_micros(500);

/// What a piece of work comes to.
type Outcome = Result<Done, Refusal>;

enum Message {
    Work(Box<Work>, Sender),
    Stop,
}

type Sender = oneshot::Sender<Outcome>;

/// The way of outcomes to their callers. Where these run on a runtime, one wake-up from another thread is enough for all.
#[derive(Clone)]
struct Delivery(Option<Runtime>);

impl Delivery {
    fn send(&self, outcomes: Vec<(Sender, Outcome)>) {
        let send = |outcomes: Vec<(Sender, Outcome)>| {
            for (sender, outcome) in outcomes {
                // Who has gone can ask again.
                let _ = sender.send(outcome);
            }
        };
        match &self.0 {
            Some(runtime) if outcomes.len() > 1 => drop(runtime.spawn(async move { send(outcomes) })),
            _ => send(outcomes),
        }
    }

    /// Gives each of a round's callers its reply: as decided, or why it was not committed.
    fn hand_out(
        &self,
        senders: Vec<Sender>,
        replies: Replies<usize>,
        failed: Option<&'static str>,
        finish: impl Fn(Done) -> Done,
    ) {
        let mut replies: BTreeMap<usize, Outcome> = replies.given(failed.is_none()).into_iter().collect();
        let outcomes = senders.into_iter().enumerate().map(|(slot, sender)| {
            let reply = match (replies.remove(&slot), failed) {
                // It is not known what the disk holds; the same key tells once the daemon runs again.
                (_, Some(reason)) => Err(not_sealing(reason)),
                (Some(reply), None) => reply,
                (None, None) => Err(internal()),
            };
            (sender, reply.map(&finish))
        });
        self.send(outcomes.collect());
    }
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
    /// How the changes of this host are counted.
    pub counting: Digest,
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
    pub async fn act(&self, request: Request) -> Result<Answer, Refusal> {
        match self.work(request.into()).await? {
            Done::Answer(answer) => Ok(*answer),
            Done::Received(_) => Err(internal()),
        }
    }

    /// Hands to the writer what another host sent, and waits for what came of it.
    ///
    /// # Errors
    /// As for [`Handle::act`].
    pub async fn receive(&self, delivery: FromPeer) -> Result<Received, Refusal> {
        match self.work(Work::Delivery(Box::new(delivery))).await? {
            Done::Received(received) => Ok(received),
            Done::Answer(_) => Err(internal()),
        }
    }

    /// Tells the host where others find it.
    ///
    /// # Errors
    /// As for [`Handle::act`].
    pub async fn set_addresses(&self, addresses: Vec<String>) -> Result<(), Refusal> {
        self.work(Work::Addresses(addresses)).await.map(|_| ())
    }

    async fn work(&self, work: Work) -> Outcome {
        let (sender, receiver) = oneshot::channel();
        match self.queue.try_send(Message::Work(Box::new(work), sender)) {
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

/// A round that was decided.
struct Decided {
    senders: Vec<Sender>,
    taken: Taken<usize>,
}

/// A commit, and what its callers get.
struct Job {
    batch: Batch,
    senders: Vec<Sender>,
    replies: Replies<usize>,
}

/// A thread that does one job at a time. It has ended when this was dropped.
struct Committer {
    jobs: Option<SyncSender<Box<Job>>>,
    done: Receiver<Result<(), WriteError>>,
    thread: Option<JoinHandle<()>>,
    /// What the job under way writes, for the next round to be decided over.
    written: Option<Batch>,
    /// How it ended, if that is known.
    ended: Option<Result<(), WriteError>>,
}

impl Committer {
    fn new(store: &Arc<DiskStore>, commits: watch::Sender<u64>, delivery: Delivery) -> std::io::Result<Self> {
        let (jobs, receiver) = sync_channel::<Box<Job>>(1);
        let (sender, done) = sync_channel(1);
        let store = Arc::clone(store);
        let thread = std::thread::Builder::new().name("committer".to_owned()).spawn(move || {
            while let Ok(job) = receiver.recv() {
                let Job { batch, senders, replies } = *job;
                let result = store.commit(batch);
                let failed = result.as_ref().err().map(|error| failure(&error.reason));
                if failed.is_none() {
                    commits.send_modify(|count| *count += 1);
                }
                delivery.hand_out(senders, replies, failed, |answer| answer);
                if sender.send(result).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread), written: None, ended: None })
    }

    /// Begins a job, where none is under way.
    ///
    /// # Errors
    /// The job, if the thread has ended.
    fn begin(&mut self, job: Box<Job>) -> Result<(), Box<Job>> {
        let Some(jobs) = &self.jobs else { return Err(job) };
        let written = job.batch.readable();
        jobs.send(job).map_err(|unsent| unsent.0)?;
        self.written = Some(written);
        Ok(())
    }

    /// Whether a job was begun of which it was not asked how it ended.
    fn is_under_way(&self) -> bool {
        self.written.is_some()
    }

    /// Whether it could do a job now, or within this time.
    fn is_free_within(&mut self, time: StdDuration) -> bool {
        if self.is_under_way() && self.ended.is_none() {
            self.ended = match self.done.recv_timeout(time) {
                Ok(done) => Some(done),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Err(broke_off())),
            };
        }
        !self.is_under_way() || self.ended.is_some()
    }

    /// Waits until the job is done that is under way, if one is; how it ended.
    fn end(&mut self) -> Option<Result<(), WriteError>> {
        self.written.take()?;
        let ended = self.ended.take();
        Some(ended.unwrap_or_else(|| self.done.recv().unwrap_or_else(|_| Err(broke_off()))))
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        // Without a sender the thread ends, and the store is its writer's alone again.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The requests of a round, as they come: those that wait, and others until the disk is free.
struct Gathering<'a> {
    first: Option<Message>,
    queue: &'a Receiver<Message>,
    committer: &'a mut Committer,
    began: Instant,
    senders: Vec<Sender>,
    stopping: bool,
}

impl Gathering<'_> {
    fn is_over(&mut self) -> bool {
        self.stopping
            || self.senders.len() >= ROUND_MAX
            || self.began.elapsed() >= ROUND_TIME_MAX
            || self.senders.len() >= ROUND_ENOUGH && self.committer.is_free_within(StdDuration::ZERO)
    }
}

impl Iterator for Gathering<'_> {
    type Item = (usize, Work);

    fn next(&mut self) -> Option<(usize, Work)> {
        let mut message = self.first.take();
        while message.is_none() {
            if self.is_over() {
                return None;
            }
            message = match self.queue.try_recv() {
                Ok(message) => Some(message),
                Err(TryRecvError::Empty) if self.committer.is_free_within(LOOK_TIME) => return None,
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Message::Stop),
            };
        }
        match message? {
            Message::Work(work, sender) => {
                self.senders.push(sender);
                Some((self.senders.len() - 1, *work))
            }
            Message::Stop => {
                self.stopping = true;
                None
            }
        }
    }
}

/// The writer's own state.
pub struct Writer {
    store: Arc<DiskStore>,
    home: Arc<Home>,
    host: Host,
    limits: Limits,
    queue: Receiver<Message>,
    /// What was taken from the queue to see whether anything waits there.
    next: Option<Message>,
    stopping: bool,
    committer: Committer,
    delivery: Delivery,
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
            counting: host.counting(),
        })));
        let handle =
            Handle { queue, published: Arc::clone(&published), tokens: Arc::clone(&tokens), commits: watching };
        let delivery = Delivery(Runtime::try_current().ok());
        let committer = Committer::new(&store, commits.clone(), delivery.clone())?;
        let writer = Self {
            store,
            home,
            host,
            limits,
            queue: receiver,
            next: None,
            stopping: false,
            committer,
            delivery,
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
        self.round(None);
        while !self.stopping {
            let first = self.wait();
            self.round(first);
        }
        self.end_committing();
        self.refuse_the_rest();
    }

    /// Waits for a message, or until something has come due.
    fn wait(&mut self) -> Option<Message> {
        if let Some(message) = self.next.take() {
            return Some(message);
        }
        loop {
            let time = if self.committer.is_under_way() { LOOK_TIME } else { self.idle_time() };
            match self.queue.recv_timeout(time) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Disconnected) => return Some(Message::Stop),
                Err(RecvTimeoutError::Timeout) if !self.committer.is_under_way() => return None,
                Err(RecvTimeoutError::Timeout) => {
                    if self.committer.is_free_within(StdDuration::ZERO) {
                        self.end_committing();
                    }
                }
            }
        }
    }

    /// Whether anything is in the queue.
    fn is_awaited(&mut self) -> bool {
        if self.next.is_none() {
            self.next = self.queue.try_recv().ok();
        }
        self.next.is_some()
    }

    fn refuse_the_rest(&mut self) {
        for message in self.next.take().into_iter().chain(self.queue.try_iter()) {
            if let Message::Work(_, sender) = message {
                self.delivery.send(vec![(sender, Err(Code::Stopping.into()))]);
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

    /// Decides a round of requests, and commits it or, if there is more to do, begins to; its replies follow. Without a first
    /// request it does what has come due.
    fn round(&mut self, first: Option<Message>) {
        let Some(Decided { senders, taken }) = self.decide(first) else { return };
        let is_busy = self.committer.is_under_way() || self.is_awaited();
        // No commit begins before the one before it is done.
        self.end_committing();
        let Taken { batch, changes_host, replies } = taken;
        if self.failed.is_some() || batch.is_empty() {
            return self.end_round(senders, replies, self.failed.is_none());
        }
        let length: usize = batch.content.values().map(|(_, bytes)| bytes.len()).sum();
        let mut job = Box::new(Job { batch, senders, replies });
        // What changes the host is told when the host has changed, and long texts are not held twice.
        if is_busy && !changes_host && length <= AHEAD_BYTES_MAX {
            job = match self.committer.begin(job) {
                Ok(()) => return,
                Err(job) => job,
            };
        }
        let done = self.store.commit(job.batch);
        if done.is_ok() {
            self.commits.send_modify(|count| *count += 1);
        }
        let committed = self.committed(done);
        self.end_round(job.senders, job.replies, committed);
    }

    /// Decides a round over what is committed and what is being committed. Nothing if it came to nothing, and its callers
    /// know.
    fn decide(&mut self, first: Option<Message>) -> Option<Decided> {
        if self.failed.is_none() {
            match self.store.snapshot() {
                Ok(snapshot) => return self.decide_over(&snapshot, first),
                Err(error) => self.fail(&error.reason),
            }
        }
        self.end_committing();
        match first? {
            Message::Work(_, sender) => self.delivery.send(vec![(sender, Err(not_sealing(self.failed?)))]),
            Message::Stop => self.stopping = true,
        }
        None
    }

    fn decide_over(&mut self, snapshot: &Snapshot, first: Option<Message>) -> Option<Decided> {
        // The snapshot may hold what is being committed, or not yet; over it, it reads the same.
        let written = self.committer.written.as_mut().map(std::mem::take);
        let state = Overlay::with(snapshot, written.unwrap_or_default());
        let (queue, committer) = (&self.queue, &mut self.committer);
        let (began, senders) = (Instant::now(), Vec::new());
        let mut requests = Gathering { first, queue, committer, began, senders, stopping: false };
        // A defect in the host must not take the daemon with it: the round gets an error, and the host begins anew from what
        // is committed.
        let host = &mut self.host;
        let taken = catch_unwind(AssertUnwindSafe(|| host.take(&state, wall_clock(), &mut requests)));
        let Gathering { senders, stopping, .. } = requests;
        self.stopping = stopping;
        let Ok(taken) = taken else {
            tracing::error!("a round of requests failed; nothing of it was committed");
            self.end_committing();
            self.begin_anew();
            self.delivery.send(senders.into_iter().map(|sender| (sender, Err(internal()))).collect());
            return None;
        };
        for trouble in self.host.take_troubles() {
            tracing::error!(reason = trouble.reason, "something in the store cannot be read; see ledger_verify");
        }
        Some(Decided { senders, taken })
    }

    /// Waits for the commit that is under way, if there is one.
    fn end_committing(&mut self) {
        if let Some(done) = self.committer.end() {
            let committed = self.committed(done);
            self.host.committed(committed);
            self.publish();
        }
    }

    /// Ends a round that no other thread commits, and tells its callers what came of it.
    fn end_round(&mut self, senders: Vec<Sender>, replies: Replies<usize>, committed: bool) {
        self.host.committed(committed);
        self.publish();
        let failed = self.failed.filter(|_| !committed);
        self.delivery.hand_out(senders, replies, failed, |done| match done {
            Done::Answer(answer) => Done::Answer(Box::new(self.with_token(*answer))),
            received @ Done::Received(_) => received,
        });
    }

    /// Whether a commit was made. If not, nothing more is.
    fn committed(&mut self, done: Result<(), WriteError>) -> bool {
        if let Err(error) = &done {
            self.fail(&error.reason);
        }
        done.is_ok()
    }

    /// After a failed commit it is not known what the disk holds, so nothing more is written before the store was opened
    /// anew.
    fn fail(&mut self, reason: &str) {
        tracing::error!(reason, "the store failed; nothing more is sealed until the daemon is started again");
        self.failed = Some(failure(reason));
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
            counting: self.host.counting(),
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

/// The committer's thread is gone.
fn broke_off() -> WriteError {
    WriteError { reason: "a commit broke off".to_owned() }
}

/// Why nothing is written any more, as it is shown.
fn failure(reason: &str) -> &'static str {
    if reason.starts_with(kwoon_store::DISK_FULL) { "disk_full" } else { "store_failed" }
}

fn not_sealing(reason: &'static str) -> Refusal {
    Refusal::from(Code::NotSealing).with("reason", Detail::Word(reason))
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
