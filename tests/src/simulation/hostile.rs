//! A host that lies: what it sends is now and then not what its session says.

use kwoon_sync::wire::{Heads, Item, MESSAGE_BYTES_MAX, Message, Wish};

use super::Simulation;

impl Simulation {
    /// What is sent instead of a frame.
    pub(super) fn lie(&mut self, frame: Vec<u8>) -> Vec<Vec<u8>> {
        // Greetings are sent as they are, or there would be no conversation to lie in.
        if self.dice.below(3) > 0 || matches!(Message::read(&frame), Ok(Message::Hello(_))) {
            return vec![frame];
        }
        self.figures.lies += 1;
        match self.dice.below(9) {
            0 => vec![frame.clone(), frame],
            1 => Vec::new(),
            2 => {
                let mut frame = frame;
                let at = self.dice.below(frame.len());
                frame[at] ^= 1 << self.dice.below(8);
                vec![frame]
            }
            3 => vec![frame[..self.dice.below(frame.len())].to_vec()],
            4 => vec![vec![0x9b; 40]],
            5 => vec![frame, vec![0; MESSAGE_BYTES_MAX.min(100_000)]],
            _ => self.twist(&frame),
        }
    }

    /// A message that decodes, and says what is not so.
    fn twist(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let Ok(message) = Message::read(frame) else { return vec![frame.to_vec()] };
        let twisted = match message {
            Message::Facts(mut facts) => {
                match self.dice.below(5) {
                    0 => facts.facts.reverse(),
                    1 => facts.seals.clear(),
                    2 => facts.from = facts.from.saturating_add(self.dice.below(3) as u64),
                    3 => drop(facts.facts.pop()),
                    _ => facts.contents.clear(),
                }
                Message::Facts(facts)
            }
            Message::Heads(Heads { items, changes, digest, ranges }) => {
                let items = items.into_iter().map(|item| Item { index: item.index + 1000, ..item }).collect();
                Message::Heads(Heads { items, changes: changes.map(|changes| changes + 5), digest, ranges: !ranges })
            }
            Message::Want(wishes) => {
                let objects = self.truth.objects();
                let asked = objects.into_iter().map(|object| Wish { object, from: 0 });
                Message::Want(wishes.into_iter().chain(asked).take(4096).collect())
            }
            Message::Actions(mut actions) => {
                for action in &mut actions {
                    match self.dice.below(3) {
                        0 => action.contents.clear(),
                        1 => action.carried.records.clear(),
                        _ => {
                            let mut signed = action.carried.signed.to_vec();
                            let at = self.dice.below(signed.len());
                            signed[at] ^= 1;
                            action.carried.signed = signed.into();
                        }
                    }
                }
                Message::Actions(actions)
            }
            other => other,
        };
        vec![twisted.write()]
    }
}
