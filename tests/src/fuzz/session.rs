//! A conversation with another host, which says whatever it likes in whatever order.
//!
//! A host, and the same host with a life that the other may not know of, are told the same. The conversation goes on or ends
//! with a reason, says the same on both and so nothing that the other may not read, and the stores hold afterwards what
//! follows by the rules.

use arbitrary::Unstructured;
use kwoon_keys::Digest;
use kwoon_ledger::time::Duration;
use kwoon_sync::session::{Broken, Session, Step};
use kwoon_sync::wire::{Facts, Heads, Hello, Message};

use super::intake::check_store;
use super::neighbours::{NEIGHBOURS, Neighbour};
use crate::hall::Hall;

/// Frames of one input at most.
const FRAMES_MAX: usize = 16;
/// Steps that one frame leads to at most.
const STEPS_MAX: usize = 10_000;

/// One of the two hosts, in its conversation.
struct End {
    hall: Hall,
    session: Option<Session>,
    broken: Option<Broken>,
    /// What it said.
    said: Vec<Vec<u8>>,
}

/// See the module.
pub fn target(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let (Ok(by), Ok(dialed)) = (NEIGHBOURS.speaker(&mut input), input.arbitrary()) else { return };
    let mut ends = [&NEIGHBOURS.here, &NEIGHBOURS.busier].map(|hall| End::begin(hall.fork(), by, dialed));
    let before = [ends[0].hall.snapshot(), ends[1].hall.snapshot()];
    // Where the input ends, what it says ends.
    let _ = talk(&mut input, by, &mut ends);
    let [quiet, busy] = &mut ends;
    assert_eq!(quiet.broken, busy.broken, "the other learns nothing by how it ends");
    assert_eq!(beyond(&quiet.said, &busy.said), [], "the other learns something by what is not said");
    assert_eq!(beyond(&busy.said, &quiet.said), [], "the other learns something by what is said");
    check_store(&mut quiet.hall, &before[0]);
    check_store(&mut busy.hall, &before[1]);
}

fn talk(input: &mut Unstructured<'_>, by: &Neighbour, ends: &mut [End; 2]) -> arbitrary::Result<()> {
    let counting = match ends[0].said.first().map(|frame| Message::read(frame)) {
        Some(Ok(Message::Hello(hello))) => hello.counting,
        _ => Digest::default(),
    };
    ends.iter_mut().for_each(|end| end.said.clear());
    let mut frame = if input.ratio(1, 32)? {
        NEIGHBOURS.frame(input, by)?
    } else {
        Message::Hello(NEIGHBOURS.hello(input, counting)?).write()
    };
    for _ in 0..FRAMES_MAX {
        for end in ends.iter_mut() {
            end.hear(&frame);
        }
        if input.is_empty() || ends.iter().any(|end| end.session.is_none()) {
            break;
        }
        if input.ratio(1, 8)? {
            let passed = Duration::seconds(u64::from(input.arbitrary::<u8>()?));
            ends.iter_mut().for_each(|end| end.hall.now = end.hall.now.after(passed));
        }
        frame = NEIGHBOURS.frame(input, by)?;
    }
    Ok(())
}

impl End {
    fn begin(hall: Hall, by: &Neighbour, dialed: bool) -> Self {
        let (session, hello) = hall.session(by.host.public(), dialed);
        Self { hall, session: Some(session), broken: None, said: vec![hello.write()] }
    }

    /// Takes a frame, and says all that there is to say.
    fn hear(&mut self, frame: &[u8]) {
        let Some(session) = &mut self.session else { return };
        let step = session.frame(&self.hall.snapshot(), frame, self.hall.now).expect("the store is sound");
        match step {
            Ok(step) => self.carry(step),
            Err(broken) => {
                self.broken = Some(broken);
                self.session = None;
                return;
            }
        }
        for _ in 0..STEPS_MAX {
            let Some(session) = &mut self.session else { return };
            let step = session.step(&self.hall.snapshot(), self.hall.now).expect("the store is sound");
            if step.send.is_empty() && step.deliver.is_none() && !session.has_more() {
                return;
            }
            self.carry(step);
        }
        panic!("what was said has no end");
    }

    fn carry(&mut self, mut step: Step) {
        for _ in 0..STEPS_MAX {
            self.said.extend(step.send.into_iter().filter_map(without_counts).map(|message| message.write()));
            let Some(delivery) = step.deliver else { return };
            let received = self.hall.deliver(delivery).expect("what a peer sends is no reason not to read the store");
            let Some(session) = &mut self.session else { return };
            step = session.received(&self.hall.snapshot(), received, self.hall.now).expect("the store is sound");
        }
        panic!("what was delivered has no end");
    }
}

/// What is said on one side and not on the other, however often.
fn beyond(one: &[Vec<u8>], other: &[Vec<u8>]) -> Vec<Message> {
    let mut rest = other.to_vec();
    rest.sort();
    let mut more = Vec::new();
    for frame in one {
        match rest.binary_search(frame) {
            Ok(at) => drop(rest.remove(at)),
            Err(_) => more.extend(Message::read(frame)),
        }
    }
    more
}

/// What is said, but for how many changes there were, which every peer is told, and which says nothing of what.
fn without_counts(message: Message) -> Option<Message> {
    Some(match message {
        Message::Heads(Heads { items, digest, ranges, .. }) => {
            if items.is_empty() && digest.is_none() && !ranges {
                return None;
            }
            Message::Heads(Heads { items, changes: None, digest, ranges })
        }
        Message::Facts(facts) => Message::Facts(Facts { changes: None, ..facts }),
        Message::Hello(hello) => Message::Hello(Hello { changes: 0, ..hello }),
        message => message,
    })
}
