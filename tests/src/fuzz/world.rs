//! A hall with something of everything in it, and short names for what is there: `$t` in an input stands for the id of a
//! thread, so that an input needs to guess no hash.

use kwoon_keys::KeyPair;
use kwoon_keys::id::ThreadId;
use kwoon_keys::{Digest, PublicKey, cbor};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::index::{Cursor, Handle, List, Short, owner};
use kwoon_ledger::time::Duration;
use kwoon_sync::logfile::{KIND, LogHeader, VERSION};
use kwoon_sync::ticket::{HostHint, Ticket};
use kwoon_sync::view::write_cursor;
use serde_json::{Value, json};

use crate::{Agent, Hall, owner as the_owner, text};

/// See the module.
pub struct World {
    /// The hall.
    pub hall: Hall,
    /// Who calls: the owner, alice and bob who do everything, carol who only reads, dave who was deactivated, and eve
    /// who is in no thread.
    pub callers: Vec<Agent>,
    names: Vec<(u8, String)>,
    /// A thread with all of them but eve in it.
    pub thread: String,
}

/// Numbers at which something could overflow.
pub const NUMBERS: [u64; 10] =
    [0, 1, 2, 20, u32::MAX as u64, u32::MAX as u64 + 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX - 1, u64::MAX];

/// The lists whose cursors hold a place in a list of an agent's.
const LISTS: [List; 7] =
    [List::Turn, List::Opportunities, List::Threads, List::Memories, List::Agents, List::OpenThreads, List::Outbox];

/// The lists whose cursors hold one number.
const NUMBERED: [&[u8]; 5] = [b"log", b"objects", b"members", b"entries", b"assignments"];

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// Makes it. It is the same every time.
    pub fn new() -> Self {
        let mut hall = Hall::new();
        let [alice, bob, carol, dave, eve] = ["alice", "bob", "carol", "dave", "eve"].map(|name| hall.agent(name));
        let thread = hall.thread(&alice, &[&bob, &dave]);
        hall.admit(&alice, &thread, &carol, "observer");
        let ticket = hall.ticket(&alice, &thread, "speaker");

        let question = hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "who?", "ask": [bob.id]}));
        let answer = json!({"thread": thread, "text": "I", "reply_to": 1, "summary": "me", "idempotency_key": "said"});
        hall.ok(&bob, "entry_post", answer);
        hall.post(&alice, &thread, json!({"ask": [bob.id, dave.id]}));
        hall.advance(Duration::minutes(1));

        let offered = hall.assign(&alice, &thread, &bob, json!({"judge_within": "2d", "output_schema": {"a": null}}));
        let taken = hall.taken(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
        let delivered = hall.delivered(&alice, &thread, &bob, json!({"judge_within": "3h"}));
        let ended = hall.delivered(&bob, &thread, &alice, json!({}));
        hall.ok(&bob, "assignment_return", json!({"assignment": ended, "reason": "no"}));

        let private = hall.ok(&alice, "memory_create", json!({"text": "mine", "title": "a", "tags": ["x", "y"]}));
        let public = hall.ok(&bob, "memory_create", json!({"text": "{\"a\":1}", "media_type": "application/json"}));
        let withdrawn = hall.ok(&alice, "memory_create", json!({"text": "gone"}));
        let [private, public, withdrawn] = [private, public, withdrawn].map(|answer| text(&answer["result"]["memory"]));
        hall.ok(&alice, "memory_update", json!({"memory": private, "text": "mine, again", "expected_version": 1}));
        hall.ok(&bob, "memory_publish", json!({"memory": public}));
        hall.ok(&alice, "memory_withdraw", json!({"memory": withdrawn}));
        hall.ok(&alice, "entry_post", json!({"thread": thread, "memory": public, "ask": []}));
        let born = text(&question["result"]["memory"]);

        let closed = hall.thread(&bob, &[&alice]);
        hall.ok(&bob, "thread_close", json!({"thread": closed}));
        let full_id = eve.full_id().0.to_string();
        let consent = json!({"full_id": full_id, "version": 2});
        let consent = text(&hall.ok(&the_owner(), "agent_consent", consent)["result"]["consent"]);
        hall.ok(&the_owner(), "agent_deactivate", json!({"agent": dave.id, "reason": "rest"}));
        hall.advance(Duration::minutes(1));

        hall.ok(&the_owner(), "object_export", json!({"object": thread, "path": "/log"}));
        hall.files.insert("/later".to_owned(), later_log());
        let kept = hall.ok(&the_owner(), "object_check", json!({"path": "/later"}));
        let kept = text(&kept["result"]["quarantined"]);

        let host = hall.key("owner").public().to_string();
        let publication = publication_of(&hall);
        let names = [
            (b'A', alice.id.clone()),
            (b'B', bob.id.clone()),
            (b'C', carol.id.clone()),
            (b'D', dave.id.clone()),
            (b'E', eve.id.clone()),
            (b't', thread.clone()),
            (b'u', closed),
            (b'k', ticket),
            (b'o', offered),
            (b'n', taken),
            (b'd', delivered),
            (b'e', ended),
            (b'm', private),
            (b'p', public),
            (b'w', withdrawn),
            (b'b', born),
            (b'P', publication),
            (b'a', text(&question["receipt"]["action"])),
            (b'r', text(&question["receipt"]["id"])),
            (b'i', full_id),
            (b'x', consent),
            (b'h', host),
            (b'q', kept),
        ];
        let callers = vec![the_owner(), alice, bob, carol, dave, eve];
        Self { hall, callers, names: names.into(), thread }
    }

    /// The caller that a byte stands for.
    pub fn caller(&self, byte: u8) -> &Agent {
        &self.callers[usize::from(byte) % self.callers.len()]
    }

    /// Puts in what names stand for: `$` and a letter, or `$c` and four bytes for a cursor that was never given out,
    /// `$f` and two for a ticket.
    pub fn fill(&self, input: &[u8]) -> Vec<u8> {
        let mut filled = Vec::with_capacity(input.len());
        let mut rest = input;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match (byte, after) {
                (b'$', [b'c', list, owner, first, second, after @ ..]) => {
                    filled.extend_from_slice(self.cursor([*list, *owner, *first, *second]).as_bytes());
                    rest = after;
                }
                (b'$', [b'f', seed, hosts, after @ ..]) => {
                    filled.extend_from_slice(ticket(*seed, *hosts).as_bytes());
                    rest = after;
                }
                (b'$', [name, after @ ..]) if self.names.iter().any(|(known, _)| known == name) => {
                    let value = self.names.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_bytes());
                    filled.extend_from_slice(value.unwrap_or_default());
                    rest = after;
                }
                _ => filled.push(byte),
            }
        }
        filled
    }

    /// A cursor of any list, at any place: nothing signs them, so a caller can make one.
    fn cursor(&self, [list, caller, first, second]: [u8; 4]) -> String {
        let number = |byte: u8| NUMBERS[usize::from(byte) % NUMBERS.len()];
        let caller = self.caller(caller);
        let kind = usize::from(list) % (LISTS.len() + NUMBERED.len());
        if let Some(list) = LISTS.get(kind) {
            let short = if *caller == the_owner() {
                Digest(self.hall.key("owner").public().0).short()
            } else {
                owner(&caller.full_id())
            };
            let last = (number(second), number(second.wrapping_add(first)), Handle([first; 16]));
            return write_cursor(
                &[*list as u8],
                &short,
                &Cursor { began: number(first), late: second & 16 != 0, last },
            );
        }
        let name = NUMBERED[kind - LISTS.len()];
        let short: Short = match name {
            b"objects" => [0; 16],
            _ => ThreadId::read(&self.thread).expect("a thread"),
        };
        write_cursor(name, &short, &number(first))
    }
}

/// A ticket that nobody gave.
fn ticket(seed: u8, hosts: u8) -> String {
    let hosts = (0..hosts % 12).map(|host| HostHint { host: PublicKey([host; 32]), addresses: Vec::new() }).collect();
    let (thread, opening) = (ThreadId(Digest([seed; 32])), Digest([seed; 32]));
    Ticket::new(thread, opening, &KeyPair::from_seed(&[seed; 32]), hosts).text()
}

/// A log file of a version that nobody knows yet.
fn later_log() -> Vec<u8> {
    let object = ObjectId::Thread(ThreadId(Digest([7; 32])));
    cbor::write(&LogHeader { kind: KIND.to_owned(), version: VERSION + 1, object, epoch: 0, index: 0 })
}

fn publication_of(hall: &Hall) -> String {
    let objects = kwoon_ledger::log::objects(&hall.snapshot(), 0, usize::MAX).expect("readable");
    let publication = objects.into_iter().map(|(_, object)| object.to_string()).find(|id| id.starts_with("pub_"));
    publication.expect("a publication")
}

/// What an answer or a refusal says at the interface.
pub fn shown(answer: &Result<kwoon_sync::answer::Answer, kwoon_ledger::refusal::Refusal>) -> Value {
    match answer {
        Ok(answer) => answer.json(),
        Err(refusal) => kwoon_sync::answer::refusal_json(refusal),
    }
}
