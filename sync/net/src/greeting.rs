//! The first frame in either direction. It belongs to this crate and is the only one that it reads.
//!
//! Two hosts may dial each other at the same moment, and one may dial again because it was restarted while the other
//! still believes in the old link. What tells the two apart is the *epoch*: random bytes that a host draws anew
//! whenever a link with the peer has ended, and after every start. A greeting with another epoch than that of the
//! present link says: on this side that link is gone.

use iroh::endpoint::{ReadExactError, RecvStream, SendStream};
use kwoon_keys::cbor;
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

/// Bytes of the longest greeting that is read. Later versions may add fields.
const GREETING_BYTES_MAX: u32 = 256;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch([u8; 16]);

impl Epoch {
    pub(crate) fn draw() -> Self {
        let mut bytes = [0; 16];
        // Without randomness there is no TLS either. An epoch is no secret: it must only differ from the last one.
        if getrandom::fill(&mut bytes).is_err() {
            tracing::warn!("the system gives no randomness");
        }
        Self(bytes)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct Greeting {
    #[n(0)]
    epoch: ByteArray<16>,
}

/// The connection, or what came on it, was not worth going on with.
#[derive(Debug)]
pub(crate) struct NotGreeted;

/// Sends the greeting.
pub(crate) async fn send(stream: &mut SendStream, epoch: Epoch) -> Result<(), NotGreeted> {
    stream.write_all(&frame(epoch)).await.map_err(|_| NotGreeted)
}

/// Waits for the greeting of the other end.
pub(crate) async fn receive(stream: &mut RecvStream) -> Result<Epoch, NotGreeted> {
    let mut length = [0; 4];
    let lost = |_: ReadExactError| NotGreeted;
    stream.read_exact(&mut length).await.map_err(lost)?;
    let length = u32::from_be_bytes(length);
    if length > GREETING_BYTES_MAX {
        return Err(NotGreeted);
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await.map_err(lost)?;
    read(&bytes).ok_or(NotGreeted)
}

fn frame(epoch: Epoch) -> Vec<u8> {
    let greeting = cbor::write(&Greeting { epoch: epoch.0.into() });
    let length = u32::try_from(greeting.len()).expect("a greeting is short");
    [&length.to_be_bytes()[..], &greeting].concat()
}

fn read(bytes: &[u8]) -> Option<Epoch> {
    cbor::read_lenient::<Greeting>(bytes).ok().map(|greeting| Epoch(greeting.epoch.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_pinned() {
        let frame = frame(Epoch([7; 16]));
        assert_eq!(frame[..7], [0, 0, 0, 19, 0xa1, 0x00, 0x50]);
        assert_eq!(frame[7..], [7; 16]);
        assert_eq!(read(&frame[4..]), Some(Epoch([7; 16])));
    }

    #[test]
    fn fields_of_later_versions_are_passed_over() {
        let bytes = [&[0xa2, 0x00, 0x50][..], &[7; 16], &[0x01, 0x63, b'n', b'e', b'w']].concat();
        assert_eq!(read(&bytes), Some(Epoch([7; 16])));
        assert_eq!(read(&bytes[..18]), None);
        assert_eq!(read(b"GET / HTTP/1.1"), None);
    }
}
