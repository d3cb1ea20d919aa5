//! Tickets: what a governor hands to whom it admits.

use kwoon_keys::id::{BASE32, ThreadId};
use kwoon_keys::{Digest, KeyPair, PublicKey, cbor};
use minicbor::{Decode, Encode};

const PREFIX: &str = "kwoonadm";
/// Hosts that a ticket can name.
const HOSTS_MAX: usize = 8;

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
    pub hosts: Vec<PublicKey>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket(..)")
    }
}

impl Ticket {
    /// The ticket of an admission.
    pub fn new(thread: ThreadId, opening: Digest, admission: &KeyPair, hosts: Vec<PublicKey>) -> Self {
        Self { version: 1, thread, opening, seed: Digest(*admission.seed()), hosts }
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
        if text.len() > 4096 {
            return None;
        }
        let text: String = text.split_ascii_whitespace().collect();
        let bytes = BASE32.decode(text.strip_prefix(PREFIX)?.as_bytes()).ok()?;
        let ticket: Self = cbor::read_strict(&bytes).ok()?;
        (ticket.version == 1 && ticket.hosts.len() <= HOSTS_MAX).then_some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_reads_back_and_a_changed_one_is_none() {
        let pair = KeyPair::from_seed(&[1; 32]);
        let ticket = Ticket::new(ThreadId::of(&[b"t"]), Digest([2; 32]), &pair, vec![pair.public()]);
        let text = ticket.text();
        let read = Ticket::read(&format!("  {}\n{} ", &text[..30], &text[30..])).expect("a ticket");
        assert_eq!(read.admission().public(), pair.public());
        assert!(Ticket::read(&text[..text.len() - 4]).is_none());
        assert!(Ticket::read("kwoonadm").is_none());
        assert!(!format!("{ticket:?}").contains("0101"));
    }
}
