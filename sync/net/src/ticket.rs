//! Peer tickets: where to find a host, in one word that can be pasted.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use kwoon_keys::id::BASE32;
use kwoon_keys::{PublicKey, cbor};
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

use crate::config::{ADDRESSES_MAX, Hints, relay_url};

/// Where to find a host: all that another host needs in order to dial it. It proves nothing and entitles to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTicket {
    /// The host.
    pub host: PublicKey,
    /// Its addresses, the best first; at most [`ADDRESSES_MAX`] of them are written.
    pub addresses: Vec<SocketAddr>,
    /// The URL of the relay at which it can be met; at most [`PeerTicket::RELAY_BYTES_MAX`] long, or it is not written.
    pub relay: Option<String>,
}

impl PeerTicket {
    /// What every ticket begins with.
    pub const PREFIX: &'static str = "kwoonpeer";
    /// Characters of a ticket, without the white space that pasting puts in.
    pub const CHARACTERS_MAX: usize = 4096;
    /// Bytes of a relay's URL in a ticket.
    pub const RELAY_BYTES_MAX: usize = 1024;

    /// The ticket as text: the prefix and lower-case base32.
    pub fn text(&self) -> String {
        let written = Written {
            version: VERSION,
            host: self.host,
            addresses: self.addresses.iter().take(ADDRESSES_MAX).copied().map(Address).collect(),
            relay: self.relay.clone().filter(|relay| relay_fits(relay)),
        };
        format!("{}{}", Self::PREFIX, BASE32.encode(&cbor::write(&written)))
    }

    /// Reads what [`PeerTicket::text`] wrote. White space is ignored wherever it stands; anything else that was not
    /// written like this is no ticket.
    pub fn read(text: &str) -> Option<Self> {
        let characters = text.chars().filter(|character| !character.is_whitespace());
        let word: String = characters.take(Self::CHARACTERS_MAX + 1).collect();
        if word.len() > Self::CHARACTERS_MAX {
            return None;
        }
        let bytes = BASE32.decode(word.strip_prefix(Self::PREFIX)?.as_bytes()).ok()?;
        let written: Written = cbor::read_strict(&bytes).ok()?;
        let sound = written.version == VERSION
            && written.host.is_sound()
            && written.addresses.len() <= ADDRESSES_MAX
            && written.relay.as_deref().is_none_or(relay_fits);
        sound.then(|| Self {
            host: written.host,
            addresses: written.addresses.into_iter().map(|address| address.0).collect(),
            relay: written.relay,
        })
    }

    /// What the ticket says about where to find the host.
    pub fn hints(&self) -> Hints {
        Hints { addresses: self.addresses.clone(), relay: self.relay.clone() }
    }
}

fn relay_fits(relay: &str) -> bool {
    relay.len() <= PeerTicket::RELAY_BYTES_MAX && relay_url(relay).is_some()
}

const VERSION: u64 = 1;

#[derive(Encode, Decode)]
#[cbor(map)]
struct Written {
    #[n(0)]
    version: u64,
    #[n(1)]
    host: PublicKey,
    #[n(2)]
    addresses: Vec<Address>,
    #[n(3)]
    relay: Option<String>,
}

/// An address as bytes: 4 or 16 of the IP address, 2 of the port. Flow labels and zones mean nothing elsewhere.
struct Address(SocketAddr);

impl<C> Encode<C> for Address {
    fn encode<W: encode::Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        let port = self.0.port().to_be_bytes();
        match self.0 {
            SocketAddr::V4(address) => e.bytes(&[&address.ip().octets()[..], &port].concat())?.ok(),
            SocketAddr::V6(address) => e.bytes(&[&address.ip().octets()[..], &port].concat())?.ok(),
        }
    }
}

impl<'b, C> Decode<'b, C> for Address {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let position = d.position();
        let unknown = || decode::Error::message("not an address").at(position);
        let (ip, port) = d.bytes()?.split_last_chunk::<2>().ok_or_else(unknown)?;
        let port = u16::from_be_bytes(*port);
        if let Ok(ip) = <[u8; 4]>::try_from(ip) {
            return Ok(Self((Ipv4Addr::from(ip), port).into()));
        }
        let ip = <[u8; 16]>::try_from(ip).map_err(|_| unknown())?;
        Ok(Self((Ipv6Addr::from(ip), port).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kwoon_keys::KeyPair;

    fn ticket() -> PeerTicket {
        PeerTicket {
            host: KeyPair::from_seed(&[7; 32]).public(),
            addresses: vec!["192.0.2.1:4433".parse().unwrap(), "[2001:db8::1]:80".parse().unwrap()],
            relay: Some("https://relay.example".into()),
        }
    }

    #[test]
    fn the_encoding_is_pinned() {
        let text = concat!(
            "kwoonpeeruqaacakyedveu3dd4kofecv66vihwezoyx4zkr3wv27l464siipou2iui3jcyauci3aaaaqb",
            "cfiveiabbw4aaaaaaaaaaaaaaaaaaaiakabxk2duoryhgorpf5zgk3dbpexgk6dbnvygyzi",
        );
        assert_eq!(ticket().text(), text);
        assert_eq!(PeerTicket::read(text), Some(ticket()));
    }

    #[test]
    fn a_ticket_without_relay_and_addresses_reads_back() {
        let ticket = PeerTicket { addresses: Vec::new(), relay: None, ..ticket() };
        assert_eq!(PeerTicket::read(&ticket.text()), Some(ticket));
    }

    #[test]
    fn what_pasting_puts_in_is_ignored() {
        let text = ticket().text();
        let pasted: String = text.chars().flat_map(|character| [character, '\n', ' ']).collect();
        assert_eq!(PeerTicket::read(&format!(" \t{pasted}\r\n")), Some(ticket()));
    }

    #[test]
    fn no_part_of_a_ticket_is_a_ticket() {
        let text = ticket().text();
        for length in 0..text.len() {
            assert_eq!(PeerTicket::read(&text[..length]), None, "{length}");
        }
        assert_eq!(PeerTicket::read(&format!("{text}a")), None);
        assert_eq!(PeerTicket::read(&text.to_uppercase()), None);
    }

    #[test]
    fn an_altered_ticket_is_none_or_another() {
        let text = ticket().text();
        for at in 0..text.len() {
            for character in "abcdefghijklmnopqrstuvwxyz234567A=0-".chars() {
                let mut altered: Vec<char> = text.chars().collect();
                if altered[at] == character {
                    continue;
                }
                altered[at] = character;
                let altered: String = altered.into_iter().collect();
                if let Some(other) = PeerTicket::read(&altered) {
                    assert_ne!(other, ticket(), "{altered}");
                    assert_eq!(other.text(), altered);
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let address: SocketAddr = "[2001:db8::1]:65535".parse().unwrap();
        let long = format!("https://relay.example/{}", "x".repeat(PeerTicket::RELAY_BYTES_MAX));
        let large = PeerTicket { addresses: vec![address; 17], relay: Some(long.clone()), ..ticket() };
        let read = PeerTicket::read(&large.text()).unwrap();
        assert_eq!((read.addresses.len(), read.relay), (ADDRESSES_MAX, None));
        let largest = PeerTicket { relay: Some(long[..PeerTicket::RELAY_BYTES_MAX].into()), ..large };
        assert!(largest.text().len() <= PeerTicket::CHARACTERS_MAX);
        assert!(PeerTicket::read(&largest.text()).unwrap().relay.is_some());
    }

    #[test]
    fn what_is_not_of_this_version_is_refused() {
        let with = |version, count, relay: &str| {
            let addresses = (0..count).map(|_| Address(([192, 0, 2, 1], 1).into())).collect();
            let written = Written { version, host: ticket().host, addresses, relay: Some(relay.into()) };
            PeerTicket::read(&format!("{}{}", PeerTicket::PREFIX, BASE32.encode(&cbor::write(&written))))
        };
        assert!(with(1, 16, "http://r").is_some());
        assert!(with(2, 16, "http://r").is_none());
        assert!(with(1, 17, "http://r").is_none());
        assert!(with(1, 16, "r").is_none());
        assert!(PeerTicket::read(&"a".repeat(1 << 20)).is_none());
    }
}
