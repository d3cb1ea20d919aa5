//! Other hosts: who is known, and how this one is found.

use kwoon_keys::PublicKey;
use kwoon_ledger::action::{ObjectId, Role};
use kwoon_ledger::refusal::{Code, Refusal, Stop, require};
use kwoon_ledger::state::Cells;
use kwoon_ledger::storage::{Overlay, Read, ReadError, Table};
use kwoon_ledger::visibility;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Reads, Tends};
use crate::answer::{Answer, Contents, shown};
use crate::argument::{HostRef, Limit, ThreadRef};
use crate::peers::{self, PEERS_MAX, Peer};
use crate::round::{Call, Round};
use crate::ticket::{HostHint, PeerTicket};
use crate::view::{Caller, View, read_cursor, write_cursor};

/// Where it is noted that the owner took this host off the network.
const OFFLINE: &[u8] = b"offline";

/// Whether the owner wants this host to talk to others.
///
/// # Errors
/// If the store cannot be read.
pub fn is_online(read: &dyn Read) -> Result<bool, ReadError> {
    Ok(read.get(Table::Meta, OFFLINE)?.is_none())
}

/// Arguments of `peer_ticket`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerTicketArguments {}

/// A ticket to this host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PeerTicketShown {
    /// One line of text, to be carried to the other host's owner. It holds no secret.
    ticket: String,
}

impl Reads for PeerTicketArguments {
    type Result = PeerTicketShown;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let hint = HostHint { host: view.keyring.host.public(), addresses: view.around.addresses.clone() };
        let ticket = PeerTicket::new(hint, view.around.relay.clone()).text();
        Ok(Answer::new(&PeerTicketShown { ticket }, Contents::new(view.read))?)
    }
}

/// A host that was added or removed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PeerChanged {
    /// The host.
    host: String,
}

fn changed(overlay: &Overlay<'_>, host: &PublicKey) -> Result<Answer, Stop> {
    Ok(Answer::new(&PeerChanged { host: host.to_string() }, Contents::new(overlay))?)
}

/// Arguments of `peer_add`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerAdd {
    /// The other host's ticket, as its owner got it from `peer_ticket`.
    ticket: String,
}

impl Tends for PeerAdd {
    type Result = PeerChanged;

    fn tend(self, round: &mut Round<'_>, _: &Call) -> Result<Answer, Stop> {
        let expected = "a ticket of another host: kwoonpeer and what follows, whole and unchanged";
        let ticket = PeerTicket::read(&self.ticket).ok_or_else(|| Refusal::argument("ticket", expected))?;
        let host = ticket.hint.host;
        if host == round.keyring.host.public() {
            return Err(Refusal::argument("ticket", "a ticket of another host, not this one's own").into());
        }
        let overlay = &mut round.sequencer.overlay;
        let known = peers::get(overlay, &host)?;
        require(known.is_some() || peers::all(overlay)?.len() < PEERS_MAX, Code::CapacityReached)?;
        let mut peer = known.unwrap_or_default();
        (peer.added, peer.blocked) = (true, false);
        peer.found_at(&ticket.hint.addresses);
        peer.relay = ticket.relay.or(peer.relay);
        peers::put(overlay, &host, &peer);
        changed(overlay, &host)
    }
}

/// Arguments of `peer_remove`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerRemove {
    /// The host.
    host: HostRef,
}

impl Tends for PeerRemove {
    type Result = PeerChanged;

    fn tend(self, round: &mut Round<'_>, _: &Call) -> Result<Answer, Stop> {
        let overlay = &mut round.sequencer.overlay;
        require(peers::get(overlay, &self.host.0)?.is_some(), Code::NotFound)?;
        peers::remove(overlay, &self.host.0);
        changed(overlay, &self.host.0)
    }
}

/// Arguments of `peer_block`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerBlock {
    /// The host.
    host: HostRef,
}

impl Tends for PeerBlock {
    type Result = PeerChanged;

    fn tend(self, round: &mut Round<'_>, _: &Call) -> Result<Answer, Stop> {
        let overlay = &mut round.sequencer.overlay;
        let known = peers::get(overlay, &self.host.0)?;
        require(known.is_some() || peers::all(overlay)?.len() < PEERS_MAX, Code::CapacityReached)?;
        let peer = Peer { blocked: true, added: false, ..known.unwrap_or_default() };
        peers::put(overlay, &self.host.0, &peer);
        changed(overlay, &self.host.0)
    }
}

/// Arguments of `peer_list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerList {
    /// Where the page begins.
    cursor: Option<String>,
    /// Rows of the page.
    limit: Option<Limit>,
}

/// Another host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PeerShown {
    /// Its id, 64 hex digits.
    host: String,
    /// Whether your side added it.
    added: bool,
    blocked: bool,
    /// Whether it is connected now.
    connected: bool,
    /// Where it was found last, or is said to be.
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    relay: Option<String>,
    /// When it was last heard from.
    #[serde(skip_serializing_if = "Option::is_none")]
    heard_at: Option<String>,
    /// How far its clock was ahead of this host's then.
    clock_difference_ms: i64,
}

/// Other hosts.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Peers {
    peers: Vec<PeerShown>,
}

impl Reads for PeerList {
    type Result = Peers;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let after: Option<kwoon_keys::Digest> =
            self.cursor.as_deref().map(|text| read_cursor(b"peers", &[0; 16], text)).transpose()?;
        let limit = Limit::of(self.limit);
        let mut rest =
            peers::all(view.read)?.into_iter().filter(|(host, _)| after.is_none_or(|after| host.0 > after.0));
        let page: Vec<_> = rest.by_ref().take(limit).collect();
        let last = page.last().map(|(host, _)| kwoon_keys::Digest(host.0));
        let cursor = rest.next().and(last).map(|last| write_cursor(b"peers", &[0; 16], &last));
        let shown_peer = |(host, peer): (PublicKey, Peer)| PeerShown {
            host: host.to_string(),
            added: peer.added,
            blocked: peer.blocked,
            connected: view.around.connected.contains(&host),
            addresses: peer.addresses,
            relay: peer.relay,
            heard_at: peer.heard_at.map(shown),
            clock_difference_ms: peer.ahead_ms,
        };
        let result = Peers { peers: page.into_iter().map(shown_peer).collect() };
        let mut answer = Answer::new(&result, Contents::new(view.read))?;
        answer.cursor = cursor;
        Ok(answer)
    }
}

/// Arguments of `network`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Whether this host is to talk to others.
    online: bool,
}

/// Whether this host talks to others.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NetworkShown {
    online: bool,
}

impl Tends for Network {
    type Result = NetworkShown;

    fn tend(self, round: &mut Round<'_>, _: &Call) -> Result<Answer, Stop> {
        let overlay = &mut round.sequencer.overlay;
        if self.online {
            overlay.remove(Table::Meta, OFFLINE.to_vec());
        } else {
            overlay.put(Table::Meta, OFFLINE.to_vec(), Vec::new());
        }
        Ok(Answer::new(&NetworkShown { online: self.online }, Contents::new(overlay))?)
    }
}

/// Arguments of `object_handover`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectHandover {
    /// The thread.
    object: ThreadRef,
    /// The host that is to order it from now on; an agent there must be a member.
    host: HostRef,
}

/// A handover under way.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HandoverShown {
    /// The thread.
    object: String,
    /// The host that is to follow. It takes over once it agrees, which it does when it is connected.
    host: String,
}

impl Tends for ObjectHandover {
    type Result = HandoverShown;

    fn tend(self, round: &mut Round<'_>, call: &Call) -> Result<Answer, Stop> {
        let read = &round.sequencer.overlay;
        let short = &self.object.0;
        let number = match call.caller {
            Caller::Agent(agent) => {
                let (number, member) = visibility::thread(read, &agent, short)?.ok_or(Code::NotFound)?;
                require(member.role == Role::Governor, Code::NotGovernor)?;
                number
            }
            // An owner may hand over what its own agents can read.
            Caller::Owner => {
                let mut found = None;
                for agent in round.keyring.agents() {
                    found = found.or(visibility::thread(read, agent, short)?);
                }
                found.ok_or(Code::NotFound)?.0
            }
        };
        require(round.sequencer.is_own(number)?, Code::SequencerUnreachable)?;
        let thread = Cells::new(read, number).thread()?.thread;
        round.offer_handover(number, self.host.0)?;
        let object = ObjectId::Thread(thread).to_string();
        let result = HandoverShown { object, host: self.host.0.to_string() };
        Ok(Answer::new(&result, Contents::new(&round.sequencer.overlay))?)
    }
}
