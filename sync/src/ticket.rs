//! Tickets: what a governor hands to whom it admits.

use kwoon_keys::id::{BASE32, ThreadId};
use kwoon_keys::{Digest, KeyPair, PublicKey, cbor};
use minicbor::{Decode, Encode};

const PREFIX: &str = "kwoonadm";
/// The version of tickets: 1 named hosts without saying where they are.
const VERSION: u32 = 2;
/// Hosts that a ticket can name.
const HOSTS_MAX: usize = 8;
/// Addresses that a ticket can name of each.
const ADDRESSES_MAX: usize = 8;

/// The way into a thread. It holds the secret half of an admission, so it never prints.
#[derive(Clone, Encode, Decode)]
#[cbor(map)]
pub struct Ticket {
    /// Version of the ticket.
    #[n(0)]
    version: u32,
    /// The thread.
    #[n(1)]
    pub thread: ThreadId,
    /// The head hash of the thread's opening: a join names it as what its author had folded.
    #[n(2)]
    pub opening: Digest,
    /// The seed of the admission's key pair.
    #[n(3)]
    seed: Digest,
    /// Hosts where the thread may be found, its sequencer first.
    #[n(4)]
    pub hosts: Vec<HostHint>,
}

/// A host, and where it may be found.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct HostHint {
    /// The host.
    #[n(0)]
    pub host: PublicKey,
    /// Addresses, `IP:PORT`.
    #[n(1)]
    pub addresses: Vec<String>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket(..)")
    }
}

impl Ticket {
    /// The ticket of an admission.
    pub fn new(thread: ThreadId, opening: Digest, admission: &KeyPair, hosts: Vec<HostHint>) -> Self {
        Self { version: VERSION, thread, opening, seed: Digest(*admission.seed()), hosts }
    }

    /// The key pair of the admission.
    pub fn admission(&self) -> KeyPair {
        KeyPair::from_seed(self.seed.as_bytes())
    }

    /// One line of text.
    pub fn text(&self) -> String {
        format!("{PREFIX}{}", BASE32.encode(&cbor::write(self)))
    }

    /// Reads a ticket. Whatever is wrong with it, there is just no ticket (S1). Line breaks and spaces that came in when
    /// it was pasted are passed over.
    pub fn read(text: &str) -> Option<Self> {
        let ticket: Self = read(PREFIX, text)?;
        let sound =
            ticket.version == VERSION && ticket.hosts.len() <= HOSTS_MAX && ticket.hosts.iter().all(HostHint::is_sound);
        sound.then_some(ticket)
    }
}

const PEER_PREFIX: &str = "kwoonpeer";
/// The version of tickets to hosts.
const PEER_VERSION: u32 = 1;

/// How a host is found. It holds no secret: who the host is shows when it is connected to.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct PeerTicket {
    /// Version of the ticket.
    #[n(0)]
    version: u32,
    /// The host, and where it may be found.
    #[n(1)]
    pub hint: HostHint,
    /// Its relay.
    #[n(2)]
    pub relay: Option<String>,
}

impl PeerTicket {
    /// A ticket to a host.
    pub fn new(hint: HostHint, relay: Option<String>) -> Self {
        Self { version: PEER_VERSION, hint, relay }
    }

    /// One line of text.
    pub fn text(&self) -> String {
        format!("{PEER_PREFIX}{}", BASE32.encode(&cbor::write(self)))
    }

    /// Reads a ticket; nothing if it is none. Line breaks and spaces that came in when it was pasted are passed over.
    pub fn read(text: &str) -> Option<Self> {
        let ticket: Self = read(PEER_PREFIX, text)?;
        let relay = ticket.relay.as_ref().is_none_or(|relay| relay.len() <= RELAY_BYTES_MAX);
        let sound = ticket.version == PEER_VERSION && ticket.hint.is_sound() && ticket.hint.host.is_sound() && relay;
        sound.then_some(ticket)
    }
}

/// Bytes of a relay's URL in a ticket.
const RELAY_BYTES_MAX: usize = 512;

fn read<T: for<'b> Decode<'b, ()> + Encode<()>>(prefix: &str, text: &str) -> Option<T> {
    if text.len() > 4096 {
        return None;
    }
    let text: String = text.split_ascii_whitespace().collect();
    let bytes = BASE32.decode(text.strip_prefix(prefix)?.as_bytes()).ok()?;
    cbor::read_strict(&bytes).ok()
}

impl HostHint {
    /// Whether it names no more than a host and addresses where one can be.
    pub fn is_sound(&self) -> bool {
        let is_address = |address: &String| address.parse::<std::net::SocketAddr>().is_ok();
        self.addresses.len() <= ADDRESSES_MAX && self.addresses.iter().all(is_address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_reads_back_and_a_changed_one_is_none() {
        let pair = KeyPair::from_seed(&[1; 32]);
        let hint = HostHint { host: pair.public(), addresses: vec!["192.0.2.1:4433".to_owned()] };
        let ticket = Ticket::new(ThreadId::of(&[b"t"]), Digest([2; 32]), &pair, vec![hint.clone()]);
        let text = ticket.text();
        let read = Ticket::read(&format!("  {}\n{} ", &text[..30], &text[30..])).expect("a ticket");
        assert_eq!(read.admission().public(), pair.public());
        assert!(Ticket::read(&text[..text.len() - 4]).is_none());
        assert!(Ticket::read("kwoonadm").is_none());
        assert!(!format!("{ticket:?}").contains("0101"));
    }

    #[test]
    fn a_ticket_to_a_host_reads_back_and_no_change_of_it_gives_another_host() {
        let pair = KeyPair::from_seed(&[1; 32]);
        let hint = HostHint { host: pair.public(), addresses: vec!["192.0.2.1:4433".to_owned()] };
        let text = PeerTicket::new(hint.clone(), Some("https://relay.example".to_owned())).text();
        assert_eq!(PeerTicket::read(&format!(" {}\n{} ", &text[..40], &text[40..])).expect("a ticket").hint, hint);
        for end in 0..text.len() {
            assert!(PeerTicket::read(&text[..end]).is_none(), "cut at {end}");
        }
        // Nothing is signed in it: who the host is shows when it is connected to. What is read is never something else
        // than what is written.
        for at in 0..text.len() {
            for other in ["a", "7", "A", "="] {
                let altered = [&text[..at], other, &text[at + 1..]].concat();
                assert!(PeerTicket::read(&altered).is_none_or(|ticket| ticket.text() == altered));
            }
        }
        let admission = Ticket::new(ThreadId::of(&[b"t"]), Digest([2; 32]), &pair, vec![hint]).text();
        assert!(PeerTicket::read(&admission).is_none() && Ticket::read(&text).is_none(), "each of its own kind");
    }
}
