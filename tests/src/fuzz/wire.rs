//! Messages of other hosts (format.md, "Between hosts"), and what a host keeps of them.
//!
//! The first byte picks what the rest is read as. What decodes is written as it came, or is what a later version adds to;
//! a message has no more in it than a message may, whatever it announces.

use kwoon_keys::cbor;
use kwoon_ledger::forget::{Ended, Kept};
use kwoon_ledger::outbox::{Carried, Outgoing, Progress};
use kwoon_sync::intake::{ToldRefusal, Voice};
use kwoon_sync::peers::Peer;
use kwoon_sync::ticket::{HostHint, PeerTicket};
use kwoon_sync::wire::{
    Consignment, Content, Contents, Ending, Facts, Heads, Hello, Item, MESSAGE_BYTES_MAX, Message, Seen, Verdict,
    Versions, Wish,
};

use super::records::{Check, Shape, check, checks};

/// Every record by its name, messages first. New ones come last, so that the corpus keeps its meaning.
#[rustfmt::skip]
const RECORDS: &[(&str, Check)] = checks! {
    Choice: Message;
    Record: Hello, Heads, Item, Wish, Content, Facts, Consignment, Ending, Contents, Versions, Seen, Carried, Outgoing,
        ToldRefusal, Voice, Peer, Ended, Kept, HostHint, PeerTicket;
    Choice: Verdict, Progress;
};

/// What the first byte picks for a record of this name, if there is one.
pub fn number_of(name: &str) -> Option<u8> {
    let at = RECORDS.iter().position(|(known, _)| *known == name)?;
    u8::try_from(at).ok()
}

/// See the module.
pub fn target(input: &[u8]) {
    let Some((&first, bytes)) = input.split_first() else { return };
    let kind = usize::from(first) % RECORDS.len();
    RECORDS[kind].1(bytes);
    if kind == 0 {
        check_message(bytes);
    }
}

fn check_message(bytes: &[u8]) {
    let decoded = cbor::read_lenient::<Message>(bytes);
    let Ok(message) = Message::read(bytes) else {
        // Beyond what does not decode, only what is too much is none.
        assert!(decoded.as_ref().map_or(true, |message| counts(message).iter().any(|(count, most)| count > most)));
        return;
    };
    assert_eq!(decoded.as_ref(), Ok(&message));
    assert!(bytes.len() <= MESSAGE_BYTES_MAX);
    assert!(counts(&message).iter().all(|(count, most)| count <= most), "a message has bounds");
    assert_eq!(Message::read(&message.write()).as_ref(), Ok(&message), "what is passed on is the same");
    // What is shown of it in a log shows no content.
    if let Message::Contents(Contents { contents, .. }) | Message::Facts(Facts { contents, .. }) = &message {
        assert!(contents.iter().all(|content| format!("{content:?}").len() < 40));
    }
}

/// How many there are of what a message has many of, and how many there may be.
fn counts(message: &Message) -> Vec<(usize, usize)> {
    match message {
        Message::Heads(heads) => vec![(heads.items.len(), 4096)],
        Message::Want(wishes) | Message::WantContents(wishes) => vec![(wishes.len(), 4096)],
        Message::Facts(facts) => {
            vec![(facts.facts.len(), 8192), (facts.seals.len(), 8192), (facts.contents.len(), 32_768)]
        }
        Message::Actions(actions) => vec![(actions.len(), 4096)],
        Message::Verdicts(verdicts) => vec![(verdicts.len(), 4096)],
        Message::Items(items) => vec![(items.len(), 4096)],
        Message::Contents(contents) => vec![(contents.contents.len(), 4096)],
        Message::Hello(_)
        | Message::AskSeal(_)
        | Message::Ranges(_)
        | Message::Ending(_)
        | Message::AskVoice(_)
        | Message::Voice(_) => Vec::new(),
    }
}
