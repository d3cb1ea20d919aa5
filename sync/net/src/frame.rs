//! Frames on the one stream of a link: a length of four bytes, big-endian, and that many bytes.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use iroh::endpoint::{Connection, ConnectionError, ReadError, RecvStream, SendStream, VarInt, WriteError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::close;
use crate::config::{FRAME_BYTES_MAX, NetLimits, SMALL_FRAME_BYTES};

/// Bytes, and characters, of the words with which a link is closed.
const TEXT_MAX: usize = 256;
const LENGTH_BYTES: usize = 4;
/// Frames up to this size are copied behind their length, so that both leave in one packet.
const JOINED_BYTES: usize = 16 << 10;
/// The first reservation for a frame. Beyond it memory doubles as bytes arrive.
const RESERVED_BYTES: usize = 4 << 10;
/// A large frame holds its share of the budget for no longer than this and its bytes at [`FRAME_RATE_MIN`].
const FRAME_GRACE: Duration = Duration::from_secs(30);
/// Bytes a second at which a large frame must arrive.
const FRAME_RATE_MIN: u64 = 64 << 10;

/// Why a link ended, or ends now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// One of the two ends closed it.
    #[error("{} closed the link (code {code}): {text}", closer(.by_peer))]
    Closed {
        /// Whether it was the other one.
        by_peer: bool,
        /// Its reason: one of [`crate::close`], or the upper layer's.
        code: u64,
        /// The same in words, at most 256 characters. The peer's own words, if it was the peer.
        text: String,
    },
    /// Nothing came from the peer any more, or it has forgotten the connection. A peer that was added is dialled again.
    #[error("the connection to the peer was lost")]
    Lost,
    /// A frame longer than allowed, in either direction.
    #[error("a frame of {bytes} bytes is longer than the {bytes_max} that this link takes")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// The longest this link takes now.
        bytes_max: usize,
    },
    /// The stream ended within a frame.
    #[error("the stream ended within a frame")]
    Truncated,
    /// No first frame within [`NetLimits::handshake_time`], or a large one slower than 64 KiB a second.
    #[error("the peer did not send a frame in time")]
    Late,
    /// A call of [`FrameSender::send`] was dropped half way, so the stream is of no more use.
    #[error("an earlier frame was sent only in part; dial the peer again")]
    Interrupted,
}

fn closer(by_peer: &bool) -> &'static str {
    if *by_peer { "the peer" } else { "this host" }
}

/// What a peer wrote, fit for a log and a terminal.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().filter(|character| !character.is_control()).take(TEXT_MAX).collect()
}

impl LinkError {
    fn lost(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(closed) => {
                Self::Closed { by_peer: true, code: closed.error_code.into_inner(), text: shown(&closed.reason) }
            }
            ConnectionError::LocallyClosed => {
                Self::Closed { by_peer: false, code: close::DONE.into(), text: "the link was closed here".into() }
            }
            _ => Self::Lost,
        }
    }

    /// What the peer is told when a link ends for this reason, if it ends here.
    fn code(&self) -> Option<u32> {
        match self {
            Self::Closed { .. } | Self::Lost => None,
            Self::TooLong { .. } | Self::Truncated | Self::Interrupted => Some(close::PROTOCOL),
            Self::Late => Some(close::LATE),
        }
    }
}

impl From<ReadError> for LinkError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::ConnectionLost(error) => Self::lost(error),
            ReadError::Reset(_) => Self::Truncated,
            ReadError::ClosedStream | ReadError::ZeroRttRejected => Self::Lost,
        }
    }
}

impl From<WriteError> for LinkError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConnectionLost(error) => Self::lost(error),
            WriteError::Stopped(_) | WriteError::ClosedStream | WriteError::ZeroRttRejected => Self::Lost,
        }
    }
}

/// Bytes on the stream of one link, lengths of frames included.
#[derive(Debug, Default)]
pub struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counters {
    /// Bytes of the frames that were handed to the network.
    pub fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes that arrived, those of unfinished frames included.
    pub fn bytes_received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// The sending half of a link. Dropping it ends the stream; when both halves are dropped, the link is closed.
#[derive(Debug)]
pub struct FrameSender {
    stream: SendStream,
    connection: Connection,
    counters: Arc<Counters>,
    /// Whether a call was dropped before its frame was sent.
    within_frame: bool,
}

impl FrameSender {
    pub(crate) fn new(stream: SendStream, connection: Connection, counters: Arc<Counters>) -> Self {
        Self { stream, connection, counters, within_frame: false }
    }

    /// Sends a frame. It returns when the network has taken the bytes, which is as fast as the peer receives them.
    ///
    /// A call that is dropped before it returns may leave half a frame behind; the next call then closes the link.
    ///
    /// # Errors
    /// If the frame is longer than [`FRAME_BYTES_MAX`] (nothing is sent then), or the link has ended.
    pub async fn send(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        if mem::replace(&mut self.within_frame, true) {
            close(&self.connection, close::PROTOCOL, "a frame was sent only in part");
            return Err(LinkError::Interrupted);
        }
        let length = match u32::try_from(frame.len()) {
            Ok(length) if frame.len() <= FRAME_BYTES_MAX => length.to_be_bytes(),
            _ => {
                self.within_frame = false;
                return Err(LinkError::TooLong { bytes: frame.len() as u64, bytes_max: FRAME_BYTES_MAX });
            }
        };
        let (joined, rest) = frame.split_at(frame.len().min(JOINED_BYTES));
        self.stream.write_all(&[&length, joined].concat()).await?;
        if !rest.is_empty() {
            self.stream.write_all(rest).await?;
        }
        self.counters.sent.fetch_add((LENGTH_BYTES + frame.len()) as u64, Ordering::Relaxed);
        self.within_frame = false;
        Ok(())
    }

    /// Ends the stream after what was sent: the peer receives all of it, and then the end. Returns when it has.
    ///
    /// # Errors
    /// If the link ended before.
    pub async fn finish(mut self) -> Result<(), LinkError> {
        self.stream.finish().map_err(|_| LinkError::Lost)?;
        // That the peer wants no more is as good as an acknowledgement.
        let _ = self.stream.stopped().await;
        match self.connection.close_reason() {
            Some(error) => Err(LinkError::lost(error)),
            None => Ok(()),
        }
    }

    /// Closes the link at once, in both directions. What the peer has not received yet may be lost.
    ///
    /// Codes below [`close::UPPER_MIN`] are this crate's own; the text is cut after 256 bytes.
    pub fn close(&self, code: u32, text: &str) {
        close(&self.connection, code, text);
    }

    /// The counters of the link.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

/// Closes a connection, unless it has ended: the reason of that is kept.
pub(crate) fn close(connection: &Connection, code: u32, text: &str) {
    if connection.close_reason().is_none() {
        connection.close(VarInt::from_u32(code), &text.as_bytes()[..text.floor_char_boundary(TEXT_MAX)]);
    }
}

/// What of the next frame has arrived.
#[derive(Debug)]
enum Part {
    Length { bytes: [u8; LENGTH_BYTES], filled: usize },
    Body { bytes: Vec<u8>, length: usize, share: Option<Share> },
}

/// The share of the budget for large frames that one of them holds.
#[derive(Debug)]
struct Share {
    _permit: OwnedSemaphorePermit,
    deadline: Instant,
}

impl Part {
    const START: Self = Self::Length { bytes: [0; LENGTH_BYTES], filled: 0 };
}

/// The receiving half of a link.
#[derive(Debug)]
pub struct FrameReceiver {
    stream: RecvStream,
    connection: Connection,
    counters: Arc<Counters>,
    budget: Arc<Semaphore>,
    frame_bytes_max: usize,
    assembly_bytes_max: usize,
    /// Until the first frame of a host that dialled us is there.
    first_by: Option<Instant>,
    part: Part,
    failed: Option<LinkError>,
}

impl FrameReceiver {
    pub(crate) fn new(
        stream: RecvStream,
        connection: Connection,
        counters: Arc<Counters>,
        budget: Arc<Semaphore>,
        limits: &NetLimits,
        first_by: Option<Instant>,
    ) -> Self {
        let frame_bytes_max = limits.stranger_frame_bytes_max;
        let assembly_bytes_max = limits.assembly_bytes_max;
        let mut new = Self {
            stream,
            connection,
            counters,
            budget,
            frame_bytes_max: 0,
            assembly_bytes_max,
            first_by,
            part: Part::START,
            failed: None,
        };
        new.raise_frame_bytes_max(frame_bytes_max);
        new
    }

    /// The longest frame that is taken now, in bytes.
    pub fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    /// Takes frames of up to `bytes` from now on, because the peer is trusted. Never less than before, and never more
    /// than [`FRAME_BYTES_MAX`] and [`NetLimits::assembly_bytes_max`].
    pub fn raise_frame_bytes_max(&mut self, bytes: usize) {
        let most = FRAME_BYTES_MAX.min(self.assembly_bytes_max.max(SMALL_FRAME_BYTES));
        self.frame_bytes_max = self.frame_bytes_max.max(bytes.min(most));
    }

    /// The next frame, or nothing after the last one of a peer that ended its stream.
    ///
    /// The call may be dropped and made again: nothing that arrived is lost. Memory grows as bytes arrive. A frame over
    /// [`SMALL_FRAME_BYTES`] waits until its bytes fit the budget that all links share, and must then arrive at 64 KiB
    /// a second or faster; so whoever receives must not leave a link alone for half a minute within a frame.
    ///
    /// # Errors
    /// If the link has ended, or ends now because of what the peer sent. Every further call gives the same error.
    pub async fn receive(&mut self) -> Result<Option<Vec<u8>>, LinkError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let received = self.receive_frame().await;
        match &received {
            Ok(_) => self.first_by = None,
            Err(error) => {
                if let Some(code) = error.code() {
                    close(&self.connection, code, &error.to_string());
                }
                self.part = Part::START;
                self.failed = Some(error.clone());
            }
        }
        received
    }

    async fn receive_frame(&mut self) -> Result<Option<Vec<u8>>, LinkError> {
        loop {
            match &mut self.part {
                Part::Length { bytes, filled } if *filled == LENGTH_BYTES => {
                    let length = u32::from_be_bytes(*bytes);
                    let length = match usize::try_from(length) {
                        Ok(length) if length <= self.frame_bytes_max => length,
                        _ => {
                            let bytes_max = self.frame_bytes_max;
                            return Err(LinkError::TooLong { bytes: length.into(), bytes_max });
                        }
                    };
                    let share = match length {
                        0..=SMALL_FRAME_BYTES => None,
                        _ => Some(share(&self.budget, length).await?),
                    };
                    self.part = Part::Body { bytes: Vec::new(), length, share };
                }
                Part::Length { bytes, filled } => {
                    let wanted = LENGTH_BYTES - *filled;
                    let Some(chunk) = within(self.first_by, self.stream.read_chunk(wanted)).await? else {
                        return if *filled == 0 { Ok(None) } else { Err(LinkError::Truncated) };
                    };
                    bytes[*filled..*filled + chunk.len()].copy_from_slice(&chunk);
                    *filled += chunk.len();
                    self.counters.received.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                }
                Part::Body { bytes, length, .. } if bytes.len() == *length => {
                    let frame = mem::take(bytes);
                    self.part = Part::START;
                    return Ok(Some(frame));
                }
                Part::Body { bytes, length, share } => {
                    let wanted = *length - bytes.len();
                    let deadline = share.as_ref().map(|share| share.deadline).or(self.first_by);
                    let chunk = within(deadline, self.stream.read_chunk(wanted)).await?;
                    let chunk = chunk.ok_or(LinkError::Truncated)?;
                    reserve(bytes, chunk.len(), *length);
                    bytes.extend_from_slice(&chunk);
                    self.counters.received.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                }
            }
        }
    }

    /// The counters of the link.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

/// Waits for a share of the budget. Shares are given in the order they are asked for, each as a whole, so that frames
/// that wait for each other cannot exist.
async fn share(budget: &Arc<Semaphore>, bytes: usize) -> Result<Share, LinkError> {
    let permits = u32::try_from(bytes).map_err(|_| LinkError::Lost)?;
    let permit = Arc::clone(budget).acquire_many_owned(permits).await.map_err(|_| LinkError::Lost)?;
    let arrival = Duration::from_secs(bytes as u64 / FRAME_RATE_MIN);
    Ok(Share { _permit: permit, deadline: Instant::now() + FRAME_GRACE + arrival })
}

async fn within<T>(
    deadline: Option<Instant>,
    reading: impl Future<Output = Result<T, ReadError>>,
) -> Result<T, LinkError> {
    match deadline {
        Some(deadline) => Ok(timeout_at(deadline, reading).await.map_err(|_| LinkError::Late)??),
        None => Ok(reading.await?),
    }
}

/// Makes room for `more` bytes of a frame that shall be `length` long: at most twice what has arrived.
fn reserve(bytes: &mut Vec<u8>, more: usize, length: usize) {
    let needed = bytes.len() + more;
    if bytes.capacity() < needed {
        let target = needed.max(bytes.capacity() * 2).max(RESERVED_BYTES).min(length.max(needed));
        bytes.reserve_exact(target - bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_what_arrives_not_with_what_was_announced() {
        let mut bytes = Vec::new();
        reserve(&mut bytes, 1, FRAME_BYTES_MAX);
        assert!(bytes.capacity() <= 2 * RESERVED_BYTES);
        let mut arrived = 0;
        while arrived < 1 << 20 {
            reserve(&mut bytes, 1300, FRAME_BYTES_MAX);
            bytes.extend_from_slice(&[0; 1300]);
            arrived += 1300;
            assert!(bytes.capacity() <= 2 * arrived + 2 * RESERVED_BYTES);
        }
    }

    #[test]
    fn a_short_frame_takes_no_more_than_its_length() {
        let mut bytes = Vec::new();
        reserve(&mut bytes, 3, 10);
        assert!(bytes.capacity() >= 3 && bytes.capacity() <= 16);
    }
}
