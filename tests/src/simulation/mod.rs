//! Hosts on a virtual clock and a virtual network, all from one seed: the same seed gives the same run, to the byte.
//!
//! The hosts, their rules and their sessions are the real ones, and so is the store of hosts on disk; clocks, connections
//! and disks are not. Connections carry frames late and break off with what is under way; hosts are cut off from each other,
//! one way or both, crash and come back, also in the middle of a commit with a disk that lost what was not synced, have
//! clocks that drift and jump; one may lie. After every step [`checks`] look at what came to be.

mod acts;
mod checks;
mod ground;
mod hostile;
mod network;

use std::collections::BTreeMap;

use kwoon_keys::{Digest, PublicKey};
use kwoon_ledger::limits::Limits;
use kwoon_ledger::time::{Duration, Time};
use serde_json::{Value, json};

pub use self::checks::Figures;
use self::checks::Truth;
use self::ground::SimulatedStore;
use self::network::{Event, Link};
use crate::hall::{Agent, Hall, START, owner};
use crate::medium::Dice;

/// How a simulation goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Everything follows from it.
    pub seed: u64,
    /// How long it is disturbed, in virtual time.
    pub disturbed: Duration,
    /// Whether its hosts have disks; else what they committed is in memory, and there after a crash.
    pub on_disk: bool,
    /// What is broken on purpose.
    pub mistake: Option<Mistake>,
}

/// A defect that the simulator is to find: it is put below the code or between hosts, as if the code had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A commit that was acknowledged is lost in a crash.
    LosesCommits,
    /// A request is not known any more once it took effect.
    ForgetsRequests,
    /// What is owed stays owed once it is done.
    EndsTwice,
    /// A host keeps a log that its agents may no longer read.
    KeepsEnded,
    /// A host keeps contents of a log that is gone.
    KeepsContents,
    /// One host does not derive what an agent owes.
    DerivesLess,
    /// Facts of one host never reach the others.
    LosesFacts,
    /// Actions of one host never reach their sequencer.
    LosesActions,
}

/// A host of the simulation.
struct Node {
    hall: Hall<SimulatedStore>,
    up: bool,
    /// How far its clock is ahead of true time, in milliseconds.
    ahead_ms: i64,
    agents: Vec<(String, Agent)>,
    /// Whether it lies.
    hostile: bool,
    /// Arrivals that the checks have seen.
    checked: u64,
    /// When its daemon wakes next.
    wake_at: Time,
    /// The store as it was a while ago, for a commit that is lost.
    before: Option<SimulatedStore>,
}

/// See the module.
pub struct Simulation {
    plan: Plan,
    dice: Dice,
    now: Time,
    nodes: Vec<Node>,
    links: BTreeMap<(usize, usize), Link>,
    events: BTreeMap<(Time, u64), Event>,
    sequence: u64,
    generation: u64,
    /// Ways that are cut: from, to.
    cut: BTreeMap<(usize, usize), Time>,
    /// Tickets and ids that agents tell each other.
    known: Known,
    truth: Truth,
    trace: Digest,
    calm: bool,
    /// Whether something was committed since the checks looked at all that hosts hold.
    unchecked: bool,
    /// What hosts found wrong with what others sent.
    faults: Vec<String>,
    figures: Figures,
    calls: u64,
}

/// What agents know, and carry by hand.
#[derive(Default)]
struct Known {
    tickets: Vec<String>,
    threads: Vec<String>,
    memories: Vec<(String, String)>,
    assignments: Vec<String>,
}

impl Simulation {
    /// Hosts of a seed, each with agents of its own.
    pub fn new(plan: Plan) -> Self {
        let mut dice = Dice::new(plan.seed);
        let count = 2 + dice.below(6);
        let mut nodes = Vec::new();
        for n in 0..count {
            let seed = Digest::of("kwoon simulated host", &[&plan.seed.to_be_bytes(), &n.to_be_bytes()]).0;
            // One host alone derives less.
            let mistake = plan.mistake.filter(|mistake| n == 0 || *mistake != Mistake::DerivesLess);
            let mut hall = Hall::over(SimulatedStore::new(&seed, plan.on_disk, mistake), seed, Limits::DEFAULT);
            hall.set_addresses(vec![format!("192.0.2.{n}:4433")]);
            let mut agents = Vec::new();
            for a in 0..1 + dice.below(2) {
                let name = format!("agent{n}{a}");
                agents.push((name.clone(), hall.agent(&name)));
            }
            let hostile = count > 2 && n == count - 1 && dice.below(3) == 0;
            nodes.push(Node {
                hall,
                up: true,
                ahead_ms: dice.below(20_000) as i64 - 10_000,
                agents,
                hostile,
                checked: 0,
                wake_at: START,
                before: None,
            });
        }
        let mut simulation = Self {
            plan,
            dice,
            now: START,
            nodes,
            links: BTreeMap::new(),
            events: BTreeMap::new(),
            sequence: 0,
            generation: 0,
            cut: BTreeMap::new(),
            known: Known::default(),
            truth: Truth::default(),
            trace: Digest::default(),
            calm: false,
            unchecked: false,
            faults: Vec::new(),
            figures: Figures::default(),
            calls: 0,
        };
        simulation.figures.hosts = simulation.nodes.len() as u64;
        for n in 0..simulation.nodes.len() {
            simulation.after_commit(n);
            for m in 0..n {
                simulation.schedule(Duration(simulation.nodes.len() as u64 * 7), Event::Dial(m, n));
            }
        }
        simulation.schedule(Duration(50), Event::Act);
        simulation.schedule(Duration::seconds(3), Event::Chaos);
        simulation
    }

    /// Runs it to its end: disturbed for a time, then healed until everything is at rest.
    ///
    /// # Errors
    /// What is wrong, in words, if something is.
    pub fn run(mut self) -> Result<Outcome, String> {
        let end = START.after(self.plan.disturbed);
        let told = |simulation: &Self, error: String| {
            let last = simulation.faults.len().saturating_sub(4);
            let faults = &simulation.faults[last..];
            format!("seed {}, {} ms in: {error}\n{faults:#?}", simulation.plan.seed, simulation.now.since(START).0)
        };
        while self.now < end {
            self.next().map_err(|error| told(&self, error))?;
        }
        self.heal();
        // Deadlines, windows and what is to be sent again: an hour is longer than any of these, a day than any deadline.
        let rest = self.now.after(Duration::minutes(120));
        while self.now < rest {
            self.next().map_err(|error| told(&self, error))?;
        }
        self.check_rest().map_err(|error| told(&self, error))?;
        self.figures.virtual_ms = self.now.since(START).0;
        Ok(Outcome { trace: self.trace, figures: self.figures })
    }

    /// The wall clock of a host.
    fn clock(&self, node: usize) -> Time {
        Time(self.now.0.saturating_add_signed(self.nodes[node].ahead_ms))
    }

    fn note(&mut self, what: &[&[u8]]) {
        let mut parts: Vec<&[u8]> = vec![&self.trace.0];
        parts.extend_from_slice(what);
        self.trace = Digest::of("kwoon simulation trace", &parts);
    }

    fn host(&self, node: usize) -> PublicKey {
        self.nodes[node].hall.key("host").public()
    }

    /// Everything is well from here on: clocks are right, nobody is cut off, everybody is up and honest, nobody acts.
    fn heal(&mut self) {
        self.calm = true;
        self.cut.clear();
        self.links.clear();
        for n in 0..self.nodes.len() {
            self.nodes[n].ahead_ms = 0;
            self.nodes[n].hostile = false;
            self.nodes[n].hall.store.fail_never();
            if !self.nodes[n].up {
                self.restart(n);
            }
            let now = self.clock(n);
            self.nodes[n].hall.now = now;
            let sealing = self.nodes[n].hall.call(&owner(), "host_status", json!({}));
            if sealing["result"]["sealing"] == false {
                self.nodes[n].hall.call(&owner(), "clock_confirm", json!({}));
            }
            self.after_commit(n);
        }
    }

    /// A call on a host, as of its own clock.
    fn call(&mut self, node: usize, caller: &Agent, operation: &str, arguments: &Value) -> Value {
        if !self.nodes[node].up {
            return json!({"ok": false});
        }
        let now = self.clock(node);
        let hall = &mut self.nodes[node].hall;
        hall.now = now;
        let answer = hall.call(caller, operation, arguments.clone());
        self.figures.calls += 1;
        self.note(&[operation.as_bytes(), arguments.to_string().as_bytes(), answer.to_string().as_bytes()]);
        self.after_commit(node);
        answer
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The hash of everything that happened.
    pub trace: Digest,
    /// How much that was.
    pub figures: Figures,
}
