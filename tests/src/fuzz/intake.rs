//! What a host takes in of what another one sends: messages that were sent once, edited or made up, some of them validly
//! signed by those who may sign.
//!
//! Whatever it is, the store can be read afterwards, holds no fact that does not follow by the rules, and is what a rebuild
//! gives. Nothing that was sealed changes, and nobody but its sequencer ends what an agent here waits for.

use arbitrary::Unstructured;
use kwoon_keys::PublicKey;
use kwoon_ledger::index;
use kwoon_ledger::log;
use kwoon_ledger::outbox;
use kwoon_ledger::state::Cells;
use kwoon_ledger::storage::{Read, Table};
use kwoon_store::{MemorySnapshot, rebuild};
use kwoon_sync::intake::{Delivery, Intake};
use kwoon_sync::wire::Message;

use super::neighbours::{NEIGHBOURS, Neighbour};
use crate::hall::Hall;

/// Messages of one input at most.
const MESSAGES_MAX: usize = 12;

/// See the module.
pub fn target(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let mut hall = NEIGHBOURS.here.fork();
    let before = hall.snapshot();
    let Ok(by) = NEIGHBOURS.speaker(&mut input) else { return };
    // Where the input ends, what it says ends.
    let _ = deliver(&mut input, &mut hall, by);
    check_store(&mut hall, &before);
    check_waiting(&hall.snapshot(), &before, &by.host.public());
}

fn deliver(input: &mut Unstructured<'_>, hall: &mut Hall, by: &Neighbour) -> arbitrary::Result<()> {
    let (peer, related) = (by.host.public(), input.arbitrary()?);
    for _ in 0..MESSAGES_MAX {
        if input.is_empty() {
            break;
        }
        let message = NEIGHBOURS.message(input, by)?;
        // The session keeps the rest for itself.
        let intake = match message {
            Message::Heads(_)
            | Message::Want(_)
            | Message::WantContents(_)
            | Message::Ranges(_)
            | Message::Items(_) => {
                continue;
            }
            message => Intake::Message(message),
        };
        let received = hall.deliver(Delivery { peer, related, intake, seen: None });
        let received = received.expect("what a peer sends is no reason why the store cannot be read");
        assert!(received.messages.len() <= 1, "one message has one answer at most");
    }
    Ok(())
}

/// The store holds nothing but what follows by the rules, and what was there is there or was dropped as a whole.
pub(super) fn check_store(hall: &mut Hall, before: &MemorySnapshot) {
    if hall.unchanged_since(before) {
        return;
    }
    hall.verify();
    let rows = hall.trace();
    rebuild(&hall.store).expect("what a peer sent can be rebuilt from");
    let again = hall.trace();
    for (key, value) in &rows {
        assert!(again.get(key) == Some(value), "a rebuild gives every row: {key:02x?}");
    }
    assert_eq!(again.len(), rows.len(), "a rebuild gives no row that was not there");
    for (number, object) in log::objects(before, 0, usize::MAX).expect("readable") {
        let Some(head) = Cells::new(before, number).head().expect("readable") else { continue };
        let is_here = |index| rows.contains_key(&(Table::Log, log::fact_key(number, index)));
        if !is_here(0) {
            assert!(rows.contains_key(&(Table::Ended, number.to_be_bytes().to_vec())), "{object}: a log is not lost");
            continue;
        }
        for index in 0..=head.index {
            let key = (Table::Log, log::fact_key(number, index));
            let fact = before.get(Table::Log, &key.1).expect("readable");
            assert!(rows.get(&key) == fact.as_ref(), "{object}: what was sealed stays");
        }
    }
}

/// What agents of the host wait for ends only by the word of who orders the log.
fn check_waiting(now: &MemorySnapshot, before: &MemorySnapshot, peer: &PublicKey) {
    for row in outbox::since(before, 0, usize::MAX).expect("readable") {
        let number = index::number(before, &row.carried.object).expect("readable").expect("a log");
        let head = Cells::new(before, number).head().expect("readable").expect("a head");
        if head.sequencer == *peer || !row.own {
            continue;
        }
        let request = row.carried.action().expect("an action").request();
        let kept = outbox::get(now, &row.carried.object, &request).expect("readable");
        assert_eq!(kept, Some(row), "only its sequencer ends an action");
    }
}
