//! One link: a session of the core, driven by frames, commits and time.
//!
//! What is received is never left unread for what is to be sent, so that two hosts which both have much to say do not wait
//! for each other; what is to be sent is made only as the peer takes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kwoon_keys::PublicKey;
use kwoon_ledger::refusal::Code;
use kwoon_ledger::storage::{Read, ReadError};
use kwoon_ledger::time::Time;
use kwoon_net::{FrameReceiver, FrameSender, Link, LinkError, close};
use kwoon_sync::intake::{Delivery, Received};
use kwoon_sync::peers;
use kwoon_sync::session::{Beginning, Broken, Session, Step};
use kwoon_sync::wire::{MESSAGE_BYTES_MAX, Message};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::book::shares;
use super::{Shared, stopped};
use crate::writer::wall_clock;

/// Bytes that wait to be sent below which more is made.
const QUEUED_ENOUGH: usize = 256 << 10;
/// Bytes that wait to be sent above which frames of the peer are taken slowly, so that answers to them do not pile up.
const QUEUED_MUCH: usize = 8 << 20;
/// Bytes that wait to be sent at most, beside one step.
const QUEUED_MAX: usize = 64 << 20;
/// How long a frame waits while much is to be sent.
const SLOW_TIME: Duration = Duration::from_millis(200);
/// How long a peer may take nothing of what is sent.
const SEND_TIME: Duration = Duration::from_secs(30);
/// Bytes a second at which it must take a long frame.
const SEND_RATE_MIN: usize = 64 << 10;

/// Why a link is closed here, as the peer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The daemon stops, or the peer left: nothing to be told.
    Over,
    /// The peer does not speak as it should.
    Broken(Broken),
    /// The peer does not read.
    Slow,
    /// This host's store does not work.
    Store,
}

impl End {
    /// The code and the words for the peer.
    fn told(self) -> (u32, String) {
        match self {
            Self::Over => (close::DONE, String::new()),
            Self::Broken(broken) => {
                let number = match broken {
                    Broken::Version => 0,
                    Broken::Malformed => 1,
                    Broken::OutOfTurn => 2,
                    Broken::Oneself => 3,
                };
                (close::UPPER_MIN + number, broken.to_string())
            }
            Self::Slow => (close::UPPER_MIN + 16, "what was sent was not read in time".to_owned()),
            Self::Store => (close::UPPER_MIN + 17, "this host cannot store anything at present".to_owned()),
        }
    }
}

/// Frames on their way to the network.
struct Queue {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting {
    bytes: AtomicUsize,
    less: Notify,
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits until no more than so many bytes wait.
    async fn at_most(&self, bytes: usize) {
        while self.bytes() > bytes {
            self.less.notified().await;
        }
    }
}

impl Queue {
    fn send(&self, messages: Vec<Vec<u8>>) -> Result<(), End> {
        for frame in messages {
            self.waiting.bytes.fetch_add(frame.len(), Ordering::Relaxed);
            self.frames.send(frame).map_err(|_| End::Over)?;
        }
        if self.waiting.bytes() > QUEUED_MAX { Err(End::Slow) } else { Ok(()) }
    }
}

/// Sends what is queued, until there is nothing to send any more or the link is to be closed.
async fn send(
    peer: PublicKey,
    mut sender: FrameSender,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Arc<Waiting>,
    closing: oneshot::Receiver<End>,
    grace: Duration,
) {
    let sending = async {
        while let Some(frame) = frames.recv().await {
            let time = grace + Duration::from_secs((frame.len() / SEND_RATE_MIN) as u64);
            match timeout(time, sender.send(&frame)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return End::Over,
                Err(_) => return End::Slow,
            }
            waiting.bytes.fetch_sub(frame.len(), Ordering::Relaxed);
            waiting.less.notify_one();
        }
        End::Over
    };
    let end = tokio::select! {
        biased;
        end = closing => end.unwrap_or(End::Over),
        end = sending => end,
    };
    if end == End::Slow {
        tracing::info!(%peer, "a host did not read what was sent");
    }
    let (code, text) = end.told();
    sender.close(code, &text);
}

/// What one step of the session came to, off the runtime's own threads.
struct Stepped {
    session: Box<Session>,
    frames: Vec<Vec<u8>>,
    deliver: Option<Delivery>,
    is_known: bool,
}

/// Talks over a link until it ends. The link is gone when this returns.
pub(super) async fn talk(shared: Arc<Shared>, link: Link) {
    let Link { peer, dialed, sender, receiver, .. } = link;
    let (frames, queued) = mpsc::unbounded_channel();
    let waiting = Arc::new(Waiting::default());
    let (closing, closed) = oneshot::channel();
    let sending = tokio::spawn(send(peer, sender, queued, Arc::clone(&waiting), closed, SEND_TIME));
    let queue = Queue { frames, waiting };
    let mut stop = shared.stop.clone();
    let talking = async {
        let mut talk = Talk::begin(&shared, peer, dialed, receiver, queue).await?;
        talk.go_on().await
    };
    let end = tokio::select! {
        biased;
        () = stopped(&mut stop) => End::Over,
        end = talking => match end {
            Ok(()) => End::Over,
            Err(end) => end,
        },
    };
    match end {
        End::Broken(broken) => shared.faults.note(&peer, &broken),
        // That was said by whoever found it.
        End::Store => tracing::debug!(%peer, "a conversation was ended as the store does not work"),
        End::Slow => tracing::info!(%peer, "a host did not read what was to be sent"),
        End::Over => {}
    }
    let _ = closing.send(end);
    let _ = sending.await;
}

struct Talk<'a> {
    shared: &'a Shared,
    peer: PublicKey,
    /// Away while it works.
    session: Option<Box<Session>>,
    receiver: FrameReceiver,
    queue: Queue,
    is_known: bool,
}

impl<'a> Talk<'a> {
    /// Greets the peer.
    async fn begin(
        shared: &'a Shared,
        peer: PublicKey,
        dialed: bool,
        receiver: FrameReceiver,
        queue: Queue,
    ) -> Result<Self, End> {
        let beginning = Beginning { own: shared.own, peer, dialed, counting: shared.writer.published().counting };
        let begun = shared.work(move |read| Session::begin(beginning, read, wall_clock())).await;
        let (session, greeting) = readable(begun)?;
        queue.send(vec![greeting.write()])?;
        Ok(Self { shared, peer, session: Some(Box::new(session)), receiver, queue, is_known: false })
    }

    /// Talks until the peer leaves.
    async fn go_on(&mut self) -> Result<(), End> {
        let mut commits = self.shared.writer.commits();
        // What the first step says depends on the greeting of the other, which comes as a frame.
        let mut steps = false;
        loop {
            let session = self.session.as_ref().ok_or(End::Over)?;
            let now = wall_clock();
            let wake_at = Instant::now() + Duration::from_millis(session.wake_at(now).since(now).0.max(1));
            let more = session.has_more() || steps;
            tokio::select! {
                () = self.queue.waiting.at_most(QUEUED_ENOUGH), if more => {
                    steps = false;
                    self.step().await?;
                }
                frame = self.receiver.receive() => {
                    let frame = match frame {
                        Ok(Some(frame)) => frame,
                        Ok(None) => return Ok(()),
                        Err(error) => {
                            self.lost(&error);
                            return Ok(());
                        }
                    };
                    let _ = timeout(SLOW_TIME, self.queue.waiting.at_most(QUEUED_MUCH)).await;
                    self.frame(frame).await?;
                }
                changed = commits.changed() => {
                    changed.map_err(|_| End::Over)?;
                    steps = true;
                }
                () = sleep_until(wake_at) => steps = true,
            }
        }
    }

    fn lost(&self, error: &LinkError) {
        // The words of a peer are not written into the log.
        match error {
            LinkError::Closed { by_peer: true, code, .. } => {
                tracing::debug!(peer = %self.peer, code, "a host closed its link");
            }
            error => tracing::debug!(peer = %self.peer, %error, "a link ended"),
        }
    }

    /// Lets the session say what there is to say.
    async fn step(&mut self) -> Result<(), End> {
        let step = self.with_session(|session, read, now| session.step(read, now).map(Ok)).await?;
        self.carry(step).await
    }

    /// Gives the session a frame.
    async fn frame(&mut self, frame: Vec<u8>) -> Result<(), End> {
        let step = self.with_session(move |session, read, now| session.frame(read, &frame, now)).await?;
        self.carry(step).await
    }

    /// Delivers to the writer what is to be delivered, one thing after the other.
    async fn carry(&mut self, mut deliver: Option<Delivery>) -> Result<(), End> {
        while let Some(delivery) = deliver {
            let received = self.shared.writer.receive(delivery).await.map_err(|refusal| match refusal.code {
                Code::Stopping => End::Over,
                _ => End::Store,
            })?;
            if let Some(fault) = received.fault {
                self.shared.faults.note(&self.peer, &fault);
            }
            deliver = self.received(received).await?;
        }
        Ok(())
    }

    async fn received(&mut self, received: Received) -> Result<Option<Delivery>, End> {
        self.with_session(move |session, read, now| session.received(read, received, now).map(Ok)).await
    }

    /// Does something with the session and a state of the store, and queues what it says; what is to be delivered.
    async fn with_session(
        &mut self,
        act: impl FnOnce(&mut Session, &dyn Read, Time) -> Result<Result<Step, Broken>, ReadError> + Send + 'static,
    ) -> Result<Option<Delivery>, End> {
        let mut session = self.session.take().ok_or(End::Over)?;
        let (peer, was_known) = (self.peer, self.is_known);
        let worked = self.shared.work(move |read| {
            Ok(match act(&mut session, read, wall_clock())? {
                Err(broken) => Err(broken),
                Ok(Step { send, deliver }) => {
                    let frames = send.iter().map(Message::write).collect();
                    let is_known = was_known || is_known(read, &peer)?;
                    Ok(Stepped { session, frames, deliver, is_known })
                }
            })
        });
        let Stepped { session, frames, deliver, is_known } = readable(worked.await)?.map_err(End::Broken)?;
        self.session = Some(session);
        if is_known && !was_known {
            self.is_known = true;
            self.receiver.raise_frame_bytes_max(MESSAGE_BYTES_MAX);
        }
        self.queue.send(frames)?;
        Ok(deliver)
    }
}

/// Whether a host is one from which long messages are taken.
fn is_known(read: &dyn Read, peer: &PublicKey) -> Result<bool, ReadError> {
    Ok(peers::get(read, peer)?.is_some_and(|known| !known.blocked) || shares(read, peer)?)
}

/// What was read, if the daemon goes on.
fn readable<T>(read: Option<Result<T, ReadError>>) -> Result<T, End> {
    match read {
        Some(Ok(read)) => Ok(read),
        Some(Err(error)) => {
            tracing::error!(reason = error.reason, "the store cannot be read");
            Err(End::Store)
        }
        // A defect, of which the log tells by itself, or the end of the daemon.
        None => Err(End::Over),
    }
}

#[cfg(test)]
mod tests;
