//! Several halls and the links between them, without delay: what one says the other hears, until nothing is left to say.

use std::collections::{BTreeMap, VecDeque};

use kwoon_keys::PublicKey;
use kwoon_ledger::limits::Limits;
use kwoon_ledger::time::Duration;
use kwoon_sync::session::{Session, Step};
use serde_json::{Value, json};

use crate::hall::{Agent, Hall, owner, text};

/// Frames that one settling may take: more means that two hosts never come to an end.
const FRAMES_MAX: usize = 200_000;

/// One end of a link.
struct End {
    session: Session,
    /// Frames to this end.
    inbox: VecDeque<Vec<u8>>,
}

/// See the module.
pub struct Cluster {
    /// The halls.
    pub halls: Vec<Hall>,
    /// By the numbers of the halls, the smaller first: the ends in the same order.
    links: BTreeMap<(usize, usize), [End; 2]>,
    /// What peers sent that could not be taken, as it was told: by whom, to whom, what.
    pub faults: Vec<(usize, usize, &'static str)>,
    /// Bytes of frames so far.
    pub bytes: usize,
    /// Every frame that was sent, if they are to be kept: by whom, to whom, which.
    pub tape: Option<Vec<(usize, usize, Vec<u8>)>>,
}

impl Cluster {
    /// So many halls, each with keys of its own, and no links.
    pub fn new(count: u8) -> Self {
        let (halls, links) = (Vec::new(), BTreeMap::new());
        let mut cluster = Self { halls, links, faults: Vec::new(), bytes: 0, tape: None };
        for _ in 0..count {
            cluster.add(Limits::DEFAULT);
        }
        cluster
    }

    /// Adds a hall with keys of its own and no links; its number.
    pub fn add(&mut self, limits: Limits) -> usize {
        let number = self.halls.len();
        let n = u8::try_from(number).expect("few halls");
        let mut hall = Hall::seeded([n + 20; 32], limits);
        hall.set_addresses(vec![format!("192.0.2.{n}:4433")]);
        self.halls.push(hall);
        number
    }

    /// The first owner adds the other's host: from then on both know each other's agents and publications.
    pub fn relate(&mut self, a: usize, b: usize) {
        let ticket = self.halls[b].ok(&owner(), "peer_ticket", json!({}))["result"]["ticket"].clone();
        self.halls[a].ok(&owner(), "peer_add", json!({"ticket": ticket}));
    }

    /// All that was sent to a hall, while frames were kept.
    pub fn heard(&self, hall: usize) -> Vec<u8> {
        let frames = self.tape.iter().flatten().filter(|(_, to, _)| *to == hall);
        frames.flat_map(|(.., frame)| frame.iter().copied()).collect()
    }

    /// The id of a hall's host.
    pub fn host(&self, hall: usize) -> PublicKey {
        self.halls[hall].key("host").public()
    }

    /// Links two halls; the first calls.
    pub fn connect(&mut self, a: usize, b: usize) {
        self.disconnect(a, b);
        let (to_b, first) = self.halls[a].session(self.host(b), true);
        let (to_a, second) = self.halls[b].session(self.host(a), false);
        let of_a = End { session: to_b, inbox: VecDeque::from([second.write()]) };
        let of_b = End { session: to_a, inbox: VecDeque::from([first.write()]) };
        let ends = if a < b { [of_a, of_b] } else { [of_b, of_a] };
        self.links.insert((a.min(b), a.max(b)), ends);
    }

    /// Cuts the link between two halls, with all that is under way on it.
    pub fn disconnect(&mut self, a: usize, b: usize) {
        self.links.remove(&(a.min(b), a.max(b)));
    }

    /// Cuts all links of a hall.
    pub fn isolate(&mut self, hall: usize) {
        self.links.retain(|(a, b), _| *a != hall && *b != hall);
    }

    /// Cuts all links.
    pub fn disconnect_all(&mut self) {
        self.links.clear();
    }

    /// Links every hall with every other.
    pub fn connect_all(&mut self) {
        for b in 0..self.halls.len() {
            for a in 0..b {
                if !self.links.contains_key(&(a, b)) {
                    self.connect(a, b);
                }
            }
        }
    }

    /// Kills a hall's daemon and starts it again.
    pub fn restart(&mut self, hall: usize) {
        self.isolate(hall);
        self.halls[hall].restart();
    }

    /// Lets time pass everywhere.
    pub fn advance(&mut self, duration: Duration) {
        for hall in &mut self.halls {
            hall.advance(duration);
        }
        self.settle();
    }

    /// Lets all say what there is to say.
    ///
    /// # Panics
    /// If that has no end, or a session breaks.
    pub fn settle(&mut self) {
        let mut frames = 0;
        let links: Vec<_> = self.links.keys().copied().collect();
        loop {
            let mut quiet = true;
            for link in &links {
                for side in 0..2 {
                    quiet &= !self.step(*link, side);
                    while let Some(frame) = self.links.get_mut(link).and_then(|ends| ends[side].inbox.pop_front()) {
                        frames += 1;
                        assert!(frames < FRAMES_MAX, "two hosts come to no end");
                        quiet = false;
                        self.frame(*link, side, &frame);
                    }
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn hall_of((a, b): (usize, usize), side: usize) -> usize {
        if side == 0 { a } else { b }
    }

    /// Takes a frame at one end of a link.
    pub fn frame(&mut self, link: (usize, usize), side: usize, frame: &[u8]) {
        let hall = Self::hall_of(link, side);
        let read = self.halls[hall].snapshot();
        let now = self.halls[hall].now;
        let Some(ends) = self.links.get_mut(&link) else { return };
        let step = ends[side].session.frame(&read, frame, now).expect("readable");
        self.carry(link, side, step.expect("the session goes on"));
    }

    /// Lets one end say what it has to say; whether it said something.
    fn step(&mut self, link: (usize, usize), side: usize) -> bool {
        let hall = Self::hall_of(link, side);
        let read = self.halls[hall].snapshot();
        let now = self.halls[hall].now;
        let Some(ends) = self.links.get_mut(&link) else { return false };
        let step = ends[side].session.step(&read, now).expect("readable");
        let said = !step.send.is_empty() || step.deliver.is_some();
        self.carry(link, side, step);
        said
    }

    fn carry(&mut self, link: (usize, usize), side: usize, mut step: Step) {
        let (hall, other) = (Self::hall_of(link, side), Self::hall_of(link, 1 - side));
        loop {
            for message in step.send {
                let frame = message.write();
                self.bytes += frame.len();
                self.tape.iter_mut().for_each(|tape| tape.push((hall, other, frame.clone())));
                let Some(ends) = self.links.get_mut(&link) else { return };
                ends[1 - side].inbox.push_back(frame);
            }
            let Some(delivery) = step.deliver else { return };
            let received = self.halls[hall].deliver(delivery).expect("memory can be written");
            if let Some(fault) = received.fault {
                self.faults.push((other, hall, fault));
            }
            let read = self.halls[hall].snapshot();
            let now = self.halls[hall].now;
            let Some(ends) = self.links.get_mut(&link) else { return };
            step = ends[side].session.received(&read, received, now).expect("readable");
        }
    }

    /// Makes an agent on a hall.
    pub fn agent(&mut self, hall: usize, name: &str) -> Agent {
        self.halls[hall].agent(name)
    }

    /// A thread of an agent on one hall that agents on others have joined; its id. All halls are linked with the first.
    pub fn thread(&mut self, (home, creator): (usize, &Agent), others: &[(usize, &Agent)]) -> String {
        let created = self.halls[home].ok(creator, "thread_create", json!({"admission": {}}));
        let ticket = created["secret"]["ticket"].clone();
        for (hall, agent) in others {
            if *hall != home {
                self.connect(*hall, home);
            }
            self.halls[*hall].ok(agent, "thread_join", json!({"ticket": ticket}));
            self.settle();
        }
        text(&created["result"]["thread"])
    }

    /// Calls an operation on a hall that must succeed, and lets all hear of it; the answer.
    pub fn ok(&mut self, (hall, agent): (usize, &Agent), operation: &str, arguments: Value) -> Value {
        let answer = self.halls[hall].ok(agent, operation, arguments);
        self.settle();
        answer
    }
}
