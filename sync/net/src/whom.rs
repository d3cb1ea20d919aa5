//! For whom a connection is, as its first packet says.
//!
//! A dialer sends its first packet to every address that it knows of the peer, and takes the first answer for the
//! peer's; if another host lives at one of them by now, its answer would spoil the attempt, and every further one. So
//! the dialer also offers a second application protocol, which nobody speaks: a random nonce and a hash of nonce and
//! id. A host that sees that it is not meant stays silent. Who does not know the id learns nothing from the hash.

use iroh::endpoint::Incoming;
use kwoon_keys::{Digest, PublicKey};

const PREFIX: &[u8] = b"kwoon/to/";
const NONCE_BYTES: usize = 8;
const HASH_BYTES: usize = 8;
const CONTEXT: &str = "kwoon 1 dialled host";

/// The protocol that says that `peer` is meant.
pub(crate) fn protocol(peer: &PublicKey, nonce: [u8; NONCE_BYTES]) -> Vec<u8> {
    [PREFIX, &nonce, &Digest::of(CONTEXT, &[&nonce, &peer.0]).0[..HASH_BYTES]].concat()
}

/// Whether a connection may be for `me`: unless it says that another is meant.
pub(crate) fn may_be_for(me: &PublicKey, incoming: &Incoming) -> bool {
    let Some(protocols) = incoming.decrypt().and_then(|packet| packet.alpns()) else { return true };
    protocols.flatten().all(|protocol| names(me, &protocol))
}

fn names(me: &PublicKey, offered: &[u8]) -> bool {
    let Some(rest) = offered.strip_prefix(PREFIX) else { return true };
    rest.split_first_chunk().is_none_or(|(nonce, _)| protocol(me, *nonce) == offered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kwoon_keys::KeyPair;

    #[test]
    fn only_another_host_is_not_meant() {
        let [me, other] = [1, 2].map(|seed| KeyPair::from_seed(&[seed; 32]).public());
        assert!(names(&me, &protocol(&me, [3; 8])));
        assert!(!names(&me, &protocol(&other, [3; 8])));
        assert!(names(&me, b"kwoon/1"));
        assert!(names(&me, b"kwoon/to/short"));
    }

    #[test]
    fn the_encoding_is_pinned() {
        let protocol = protocol(&KeyPair::from_seed(&[7; 32]).public(), *b"nonce678");
        assert_eq!(protocol.escape_ascii().to_string(), "kwoon/to/nonce678\\\">c\\x05\\x82g\\xe2 ");
    }
}
