//! Connections between hosts, and what happens to them and to the hosts.

use std::collections::VecDeque;

use kwoon_ledger::time::{Duration, Time};
use kwoon_sync::session::{Session, Step};
use kwoon_sync::wire::Message;
use serde_json::json;

use super::{Mistake, Node, Simulation};
use crate::hall::{START, owner};

/// What happens at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A frame arrives at one end of a connection.
    Frame((usize, usize), u64, usize),
    /// A session looks whether it has something to say.
    Tick((usize, usize), u64, usize),
    /// The same, now and then.
    Sweep((usize, usize), u64, usize),
    /// A connection is given up, as nothing comes any more.
    TimeOut((usize, usize), u64),
    /// One host calls another.
    Dial(usize, usize),
    /// A daemon wakes.
    Wake(usize),
    /// An agent does something.
    Act,
    /// Something goes wrong.
    Chaos,
    /// A host comes back.
    Return(usize),
}

/// A connection: the ends in the order of the hosts' numbers.
pub(super) struct Link {
    pub generation: u64,
    pub ends: [End; 2],
}

pub(super) struct End {
    pub session: Session,
    pub inbox: VecDeque<Vec<u8>>,
    /// When the last frame to it arrives: frames stay in order.
    pub last: Time,
}

impl Simulation {
    pub(super) fn schedule(&mut self, after: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now.after(after), self.sequence), event);
    }

    fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration(least + self.dice.below((most - least + 1) as usize) as u64)
    }

    /// Lets the next thing happen.
    pub(super) fn next(&mut self) -> Result<(), String> {
        let ((at, _), event) = self.events.pop_first().expect("there is always something to come");
        self.now = self.now.max(at);
        self.figures.events += 1;
        match event {
            Event::Frame(link, generation, side) => self.arrive(link, generation, side),
            Event::Tick(link, generation, side) => {
                if self.links.get(&link).is_some_and(|link| link.generation == generation) {
                    self.say(link, side);
                }
            }
            Event::Sweep(link, generation, side) => {
                if self.links.get(&link).is_some_and(|link| link.generation == generation) {
                    self.say(link, side);
                    let again = Duration::seconds(if self.calm { 20 } else { 5 });
                    self.schedule(again, Event::Sweep(link, generation, side));
                }
            }
            Event::TimeOut(link, generation) => {
                if self.links.get(&link).is_some_and(|link| link.generation == generation) {
                    self.links.remove(&link);
                }
            }
            Event::Dial(a, b) => {
                self.dial(a, b);
                let again = self.between(500, 8000);
                self.schedule(again, Event::Dial(a, b));
            }
            Event::Wake(n) => {
                if self.nodes[n].up && self.now >= self.nodes[n].wake_at {
                    let now = self.clock(n);
                    self.nodes[n].hall.now = now;
                    self.nodes[n].hall.wake();
                    self.after_commit(n);
                }
            }
            Event::Act => {
                if !self.calm {
                    self.act();
                    let next = self.between(20, 4000);
                    self.schedule(next, Event::Act);
                }
            }
            Event::Chaos => {
                if !self.calm {
                    self.disturb();
                    let next = self.between(500, 40_000);
                    self.schedule(next, Event::Chaos);
                }
            }
            Event::Return(n) => {
                if !self.nodes[n].up {
                    self.restart(n);
                }
            }
        }
        self.check_step()
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.get(&(from, to)).is_some_and(|until| *until > self.now)
    }

    fn dial(&mut self, a: usize, b: usize) {
        let apart = self.is_cut(a, b) || self.is_cut(b, a);
        if self.links.contains_key(&(a, b)) || apart || !self.nodes[a].up || !self.nodes[b].up {
            return;
        }
        let caller = self.dice.below(2);
        for n in [a, b] {
            let now = self.clock(n);
            self.nodes[n].hall.now = now;
        }
        let (first, greeting) = self.nodes[a].hall.session(self.host(b), caller == 0);
        let (second, answer) = self.nodes[b].hall.session(self.host(a), caller == 1);
        self.generation += 1;
        let generation = self.generation;
        let end = |session| End { session, inbox: VecDeque::new(), last: Time::default() };
        self.links.insert((a, b), Link { generation, ends: [end(first), end(second)] });
        self.figures.connections += 1;
        self.send((a, b), 0, greeting.write());
        self.send((a, b), 1, answer.write());
        for side in 0..2 {
            self.schedule(Duration(3), Event::Sweep((a, b), generation, side));
        }
    }

    fn node_of((a, b): (usize, usize), side: usize) -> usize {
        if side == 0 { a } else { b }
    }

    /// Whether a frame is lost by mistake.
    fn is_lost(&self, from: usize, frame: &[u8]) -> bool {
        let loses = match self.plan.mistake {
            Some(Mistake::LosesFacts) => |message: &Message| matches!(message, Message::Facts(_)),
            Some(Mistake::LosesActions) => |message: &Message| matches!(message, Message::Actions(_)),
            _ => return false,
        };
        from == 0 && Message::read(frame).is_ok_and(|message| loses(&message))
    }

    /// Sends a frame from one end of a connection.
    pub(super) fn send(&mut self, link: (usize, usize), side: usize, frame: Vec<u8>) {
        let (from, to) = (Self::node_of(link, side), Self::node_of(link, 1 - side));
        if self.is_cut(from, to) {
            return;
        }
        if self.is_lost(from, &frame) {
            return;
        }
        let frames = if self.nodes[from].hostile { self.lie(frame) } else { vec![frame] };
        for frame in frames {
            let delay = if self.dice.below(10) == 0 { self.between(50, 3000) } else { self.between(1, 40) };
            let now = self.now;
            let Some(held) = self.links.get_mut(&link) else { return };
            let end = &mut held.ends[1 - side];
            end.last = end.last.max(now.after(delay));
            end.inbox.push_back(frame);
            let (after, generation) = (end.last.since(now), held.generation);
            self.schedule(after, Event::Frame(link, generation, 1 - side));
        }
    }

    fn arrive(&mut self, link: (usize, usize), generation: u64, side: usize) {
        let node = Self::node_of(link, side);
        let now = self.clock(node);
        let Some(held) = self.links.get_mut(&link).filter(|held| held.generation == generation) else { return };
        let Some(frame) = held.ends[side].inbox.pop_front() else { return };
        self.figures.frames += 1;
        self.figures.bytes += frame.len() as u64;
        let read = self.nodes[node].hall.snapshot();
        let step = held.ends[side].session.frame(&read, &frame, now).expect("memory is readable");
        self.note(&[&frame]);
        match step {
            Ok(step) => self.carry(link, side, step),
            // Whoever speaks no sense is not listened to any more.
            Err(_) => {
                self.figures.broken += 1;
                self.links.remove(&link);
            }
        }
    }

    /// Lets one end of a connection say what it has to say.
    fn say(&mut self, link: (usize, usize), side: usize) {
        let node = Self::node_of(link, side);
        let now = self.clock(node);
        loop {
            let Some(held) = self.links.get_mut(&link) else { return };
            let read = self.nodes[node].hall.snapshot();
            let step = held.ends[side].session.step(&read, now).expect("memory is readable");
            let more = held.ends[side].session.has_more();
            self.carry(link, side, step);
            if !more {
                return;
            }
        }
    }

    fn carry(&mut self, link: (usize, usize), side: usize, mut step: Step) {
        let node = Self::node_of(link, side);
        loop {
            for message in step.send {
                self.send(link, side, message.write());
            }
            let Some(delivery) = step.deliver else { return };
            let now = self.clock(node);
            self.nodes[node].hall.now = now;
            let Some(received) = self.nodes[node].hall.deliver(delivery) else {
                return self.end_if_failed(node);
            };
            if let Some(fault) = received.fault {
                self.figures.faults += 1;
                let from = Self::node_of(link, 1 - side);
                self.faults.push(format!("{} ms: host {from} to host {node}: {fault}", self.now.since(START).0));
            }
            let read = self.nodes[node].hall.snapshot();
            let Some(held) = self.links.get_mut(&link) else { return };
            step = held.ends[side].session.received(&read, received, now).expect("memory is readable");
            self.committed(node, Some((link, side)));
        }
    }

    /// What follows a commit on a host: its sessions look at it, and its daemon knows when to wake.
    pub(super) fn after_commit(&mut self, node: usize) {
        self.committed(node, None);
    }

    /// A daemon whose disk failed under it ends, and comes back to what the disk holds.
    fn end_if_failed(&mut self, node: usize) {
        if self.nodes[node].hall.store.has_failed() {
            self.figures.failed_syncs += 1;
            self.crash(node);
            let back = self.between(10, 60_000);
            self.schedule(back, Event::Return(node));
        }
    }

    fn committed(&mut self, node: usize, but: Option<((usize, usize), usize)>) {
        if self.nodes[node].hall.store.has_failed() {
            return self.end_if_failed(node);
        }
        self.look_at(node);
        let now = self.clock(node);
        self.nodes[node].hall.now = now;
        let wake = self.nodes[node].hall.wake_at().since(now);
        let at = self.now.after(wake);
        if self.nodes[node].wake_at <= self.now || at < self.nodes[node].wake_at {
            self.nodes[node].wake_at = at;
            self.schedule(wake, Event::Wake(node));
        }
        let ends: Vec<_> = self
            .links
            .iter()
            .flat_map(|((a, b), link)| [((*a, *b), 0, *a, link.generation), ((*a, *b), 1, *b, link.generation)])
            .filter(|(link, side, of, _)| *of == node && but != Some((*link, *side)))
            .collect();
        for (link, side, _, generation) in ends {
            self.schedule(Duration(1), Event::Tick(link, generation, side));
        }
    }

    pub(super) fn crash(&mut self, node: usize) {
        self.nodes[node].up = false;
        self.links.retain(|(a, b), _| *a != node && *b != node);
        self.figures.crashes += 1;
        let Node { hall, before, .. } = &mut self.nodes[node];
        hall.store.crash(&mut self.dice);
        if let Some(before) = before.take() {
            hall.store = before;
        }
        // What was not acknowledged may have come to the disk all the same.
        self.look_at(node);
    }

    pub(super) fn restart(&mut self, node: usize) {
        self.nodes[node].up = true;
        self.nodes[node].hall.restart();
        let now = self.clock(node);
        self.nodes[node].hall.now = now;
        self.nodes[node].hall.set_addresses(vec![format!("192.0.2.{node}:4433")]);
        self.nodes[node].hall.wake();
        self.after_commit(node);
    }

    /// Something goes wrong.
    fn disturb(&mut self) {
        let count = self.nodes.len();
        let (a, b) = (self.dice.below(count), self.dice.below(count));
        match self.dice.below(12) {
            0..=1 if self.nodes[a].up => {
                self.crash(a);
                let back = self.between(10, 400_000);
                self.schedule(back, Event::Return(a));
            }
            // Cut off, from one or from all, one way or both.
            2..=5 if a != b => {
                let until = self.now.after(self.between(500, 600_000));
                let one_way = self.dice.below(3) == 0;
                self.cut.insert((a, b), until);
                if !one_way {
                    self.cut.insert((b, a), until);
                }
                let link = (a.min(b), a.max(b));
                if let Some(held) = self.links.get(&link) {
                    let generation = held.generation;
                    self.schedule(Duration::seconds(10), Event::TimeOut(link, generation));
                }
            }
            6 => {
                let until = self.now.after(self.between(5_000, 1_800_000));
                for other in (0..count).filter(|other| *other != a) {
                    self.cut.insert((a, other), until);
                    self.cut.insert((other, a), until);
                }
                self.links.retain(|(x, y), _| *x != a && *y != a);
            }
            // A connection breaks off with what is under way.
            7..=8 => drop(self.links.remove(&(a.min(b), a.max(b)))),
            // A clock drifts or jumps.
            9 => self.nodes[a].ahead_ms += self.between(0, 4000).0 as i64 - 2000,
            10 if self.dice.below(4) == 0 && self.nodes[a].up => {
                let jump = self.between(0, 7_200_000).0 as i64 - 3_600_000;
                self.nodes[a].ahead_ms += jump;
                let now = self.clock(a);
                self.nodes[a].hall.now = now;
                if self.dice.below(2) == 0 {
                    self.nodes[a].hall.call(&owner(), "clock_confirm", json!({}));
                    self.after_commit(a);
                } else {
                    self.nodes[a].ahead_ms -= jump;
                }
            }
            // The power fails at one of the next syncs.
            11 => {
                let syncs = self.dice.below(8) as u64;
                self.nodes[a].hall.store.fail_after(syncs);
            }
            // Nothing this time.
            _ => {}
        }
        if self.plan.mistake == Some(Mistake::LosesCommits) {
            let node = self.dice.below(count);
            if self.nodes[node].before.is_none() && self.nodes[node].up {
                self.nodes[node].before = self.nodes[node].hall.store.copy();
            }
        }
    }
}
