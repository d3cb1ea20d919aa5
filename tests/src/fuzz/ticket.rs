//! Tickets, as somebody pastes them: to a thread and to a host.
//!
//! The first byte picks: a text of any bytes; or a ticket that was given, whose record or text is edited. What is read as a
//! ticket has one spelling and is within its bounds, and an operation that is given it answers or refuses, and does not
//! sign for nothing.

use std::sync::LazyLock;

use arbitrary::Unstructured;
use kwoon_keys::id::BASE32;
use kwoon_sync::operations;
use kwoon_sync::ticket::{HostHint, PeerTicket, Ticket};
use serde_json::json;

use super::fold::edit_bytes;
use super::world::World;
use crate::owner;

/// Edits of one ticket at most.
const EDITS_MAX: usize = 8;

static WORLD: LazyLock<World> = LazyLock::new(World::new);

/// Tickets that somebody gave: of a thread of the hall, of a thread and a host elsewhere.
static GIVEN: LazyLock<Vec<String>> = LazyLock::new(|| {
    let elsewhere = crate::forge::stranger();
    let addresses = vec!["192.0.2.7:4433".to_owned(), "[2001:db8::7]:1".to_owned()];
    let hint = HostHint { host: elsewhere.public(), addresses };
    let (thread, opening) = (kwoon_keys::id::ThreadId::of(&[b"elsewhere"]), kwoon_keys::Digest([9; 32]));
    let whole = String::from_utf8(WORLD.fill(b"$k")).expect("a ticket is text");
    let foreign = Ticket::new(thread, opening, &elsewhere, vec![hint.clone()]).text();
    vec![whole, foreign, PeerTicket::new(hint.clone(), None).text(), PeerTicket::new(hint, relay()).text()]
});

fn relay() -> Option<String> {
    Some("https://relay.example/".to_owned())
}

/// See the module.
pub fn target(input: &[u8]) {
    let Some((&mode, rest)) = input.split_first() else { return };
    if mode.is_multiple_of(2) {
        check(rest);
    } else {
        let mut text = Vec::new();
        // Where the input ends, what it says ends.
        let _ = edited(&mut Unstructured::new(rest), &mut text);
        check(&text);
    }
}

fn edited(input: &mut Unstructured<'_>, text: &mut Vec<u8>) -> arbitrary::Result<()> {
    let given = input.choose(&GIVEN)?;
    let at = if given.starts_with("kwoonpeer") { "kwoonpeer".len() } else { "kwoonadm".len() };
    let (prefix, encoded) = given.split_at(at);
    let mut record = BASE32.decode(encoded.as_bytes()).expect("base32");
    let as_text: bool = input.arbitrary()?;
    let mut whole = given.clone().into_bytes();
    for _ in 0..EDITS_MAX {
        if input.is_empty() {
            break;
        }
        edit_bytes(input, Some(if as_text { &mut whole } else { &mut record }))?;
    }
    *text = if as_text { whole } else { format!("{prefix}{}", BASE32.encode(&record)).into_bytes() };
    Ok(())
}

fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let bare: String = text.split_ascii_whitespace().collect();
    let (ticket, host) = (Ticket::read(text), PeerTicket::read(text));
    assert!(ticket.is_none() || host.is_none(), "a ticket is of one kind");
    if let Some(ticket) = &ticket {
        assert_eq!(ticket.text(), bare, "a ticket has one spelling");
        assert!(ticket.hosts.len() <= 8 && ticket.hosts.iter().all(is_sound));
        assert_eq!(format!("{ticket:?}"), "Ticket(..)", "a ticket does not print");
    }
    if let Some(ticket) = &host {
        assert_eq!(ticket.text(), bare, "a ticket has one spelling");
        assert!(is_sound(&ticket.hint) && ticket.hint.host.is_sound());
        assert!(ticket.relay.as_ref().is_none_or(|relay| relay.len() <= 512));
    }
    join(text, ticket.as_ref());
    add(text, host.as_ref());
}

fn is_sound(hint: &HostHint) -> bool {
    let is_address = |address: &String| address.parse::<std::net::SocketAddr>().is_ok();
    hint.addresses.len() <= 8 && hint.addresses.iter().all(is_address)
}

/// A join by it: what is no ticket is refused without a trace.
fn join(text: &str, ticket: Option<&Ticket>) {
    let mut hall = WORLD.hall.fork();
    let before = hall.snapshot();
    let joined = hall.try_call(WORLD.caller(5), "thread_join", json!({"ticket": text}));
    if ticket.is_none() {
        assert!(joined.is_err());
    }
    if joined.is_err() {
        assert!(hall.unchanged_since(&before), "a refusal leaves no trace");
    }
}

/// A host is added by it, or nothing is.
fn add(text: &str, ticket: Option<&PeerTicket>) {
    let mut hall = WORLD.hall.fork();
    let before = hall.snapshot();
    let operation = operations::find("peer_add").expect("an operation");
    let body = json!({"ticket": text}).to_string();
    let added = hall.try_body(&owner(), operation, body.as_bytes());
    assert!(ticket.is_some() || added.is_err());
    if added.is_err() {
        assert!(hall.unchanged_since(&before), "a refusal leaves no trace");
    }
}
