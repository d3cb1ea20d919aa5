//! Every agent on a host of its own, called as one [`Hall`] is: the same tests show a rule on one host and across hosts.
//!
//! The owners of all hosts have added each other, so that what agents of one host know of each other they know here too. All
//! hosts are linked, and after each call everything is said that there is to say. So an action is decided where its log is
//! ordered, and its outcome is back before its answer is given.

use std::collections::BTreeMap;

use kwoon_keys::PublicKey;
use kwoon_keys::id::RequestId;
use kwoon_ledger::limits::Limits;
use kwoon_ledger::log;
use kwoon_ledger::outbox::{self, Progress};
use kwoon_ledger::refusal::{Code, Refusal};
use kwoon_ledger::state::{Cells, Reach};
use kwoon_ledger::time::{Duration, Time};
use kwoon_ledger::wanted;
use kwoon_sync::answer::{Answer, refusal_json};
use kwoon_sync::operations::{self, Who};
use kwoon_sync::receipt;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::hall::{Agent, Hall, START, merge, owner, text};

/// See the module.
pub struct Across {
    /// The hosts.
    pub cluster: Cluster,
    /// The virtual clock of all of them.
    pub now: Time,
    limits: Limits,
    /// Whether the agents that the owner makes are dealt over the hosts in turn.
    deals: bool,
    /// On which host each agent lives, by its outside id.
    homes: BTreeMap<String, usize>,
    /// Calls so far: each that acts has a key, by which its outcome is asked for.
    calls: u64,
}

/// The last index and the running digest of each object on each host.
pub type Trace = BTreeMap<(usize, String), (u64, String)>;

impl Default for Across {
    fn default() -> Self {
        Self::new()
    }
}

impl Across {
    /// Whether agents live on hosts of their own.
    pub const ACROSS: bool = true;

    /// One host, where nobody lives yet, with the default limits.
    pub fn new() -> Self {
        Self::with_limits(Limits::DEFAULT)
    }

    /// The same with these limits, which all hosts have.
    pub fn with_limits(limits: Limits) -> Self {
        let mut cluster = Cluster::new(0);
        cluster.add(limits.clone());
        Self { cluster, now: START, limits, deals: false, homes: BTreeMap::new(), calls: 0 }
    }

    /// So many hosts with these limits: agents that are made by `agent_create` are dealt over them in turn.
    pub fn dealing(hosts: usize, limits: Limits) -> Self {
        let mut across = Self { deals: true, ..Self::with_limits(limits) };
        for _ in 1..hosts {
            across.add_host();
        }
        across.wake();
        across
    }

    crate::stagecraft::stagecraft!();

    /// Makes an agent, on a host where nobody lives yet.
    pub fn agent(&mut self, name: &str) -> Agent {
        let free = (0..self.cluster.halls.len()).find(|hall| !self.homes.values().any(|home| home == hall));
        let at = free.unwrap_or_else(|| self.add_host());
        self.set_clocks();
        let agent = self.cluster.agent(at, name);
        self.homes.insert(agent.id.clone(), at);
        self.settle();
        agent
    }

    fn add_host(&mut self) -> usize {
        let at = self.cluster.add(self.limits.clone());
        for other in 0..at {
            self.cluster.relate(at, other);
        }
        self.cluster.connect_all();
        at
    }

    /// An agent by its outside id.
    pub fn known(&mut self, id: &Value) -> Agent {
        let at = self.homes.get(id.as_str().expect("an id")).copied();
        let here = |hall: &usize| self.cluster.halls[*hall].has_agent(id);
        let at = at.or_else(|| (0..self.cluster.halls.len()).find(here)).expect("an agent of one of the hosts");
        self.homes.insert(text(id), at);
        self.cluster.halls[at].known(id)
    }

    /// Where a call is made: on the host of the agent that calls, or of the one that its owner speaks of, or where the log is
    /// ordered that the owner asks for.
    fn host_for(&self, (caller, operation): (&Agent, &str), arguments: &Value) -> usize {
        if let Some(home) = self.homes.get(&caller.id) {
            return *home;
        }
        if self.deals && operation == "agent_create" {
            return self.homes.len() % self.cluster.halls.len();
        }
        let named = ["as", "agent", "predecessor"].into_iter().filter_map(|name| arguments[name].as_str());
        let home = named.filter_map(|id| self.homes.get(id)).next().copied();
        home.or_else(|| arguments["object"].as_str().and_then(|object| self.sequencer(object))).unwrap_or(0)
    }

    /// The number of the host that orders an object's log.
    pub fn sequencer(&self, object: &str) -> Option<usize> {
        (0..self.cluster.halls.len()).find(|hall| {
            let snapshot = self.cluster.halls[*hall].snapshot();
            log::objects(&snapshot, 0, usize::MAX).expect("readable").into_iter().any(|(number, id)| {
                let head = Cells::new(&snapshot, number).head().expect("readable");
                id.to_string() == object && head.is_some_and(|head| head.sequencer == self.cluster.host(*hall))
            })
        })
    }

    /// The host that orders an object's log.
    pub fn ordering(&self, object: &str) -> &Hall {
        &self.cluster.halls[self.sequencer(object).expect("an object of one of the hosts")]
    }

    /// One call as the daemon makes it, of which nothing waits for another host.
    ///
    /// # Errors
    /// The refusal.
    pub fn try_call(&mut self, caller: &Agent, operation: &str, arguments: Value) -> Result<Answer, Refusal> {
        self.set_clocks();
        let at = self.host_for((caller, operation), &arguments);
        let answer = self.cluster.halls[at].try_call(caller, operation, arguments);
        self.settle();
        answer
    }

    fn set_clocks(&mut self) {
        self.cluster.halls.iter_mut().for_each(|hall| hall.now = self.now);
    }

    /// Lets all hosts say what there is to say.
    ///
    /// # Panics
    /// If one sent what another could not take, or two hold another log of the same object.
    fn settle(&mut self) {
        self.cluster.settle();
        if self.cluster.halls.iter().any(lacks) {
            // What was missed is asked for again in a while. A new session asks at once.
            self.cluster.disconnect_all();
            self.cluster.connect_all();
            self.cluster.settle();
        }
        assert_eq!(self.cluster.faults, []);
        let mut seen: BTreeMap<String, (u64, String)> = BTreeMap::new();
        for ((hall, object), at) in self.logs(|cells, host| !matches!(cells.reach(host), Ok(Reach::Ended(_)))) {
            let first = seen.entry(object.clone()).or_insert_with(|| at.clone());
            assert_eq!(*first, at, "{object} on host {hall}");
        }
    }

    /// Where every log stands on every host.
    pub fn trace(&self) -> Trace {
        self.logs(|_, _| true)
    }

    /// Where logs stand on hosts, of those that are meant.
    fn logs(&self, means: impl Fn(&Cells<'_>, &PublicKey) -> bool) -> Trace {
        let mut trace = Trace::new();
        for (hall, of) in self.cluster.halls.iter().enumerate() {
            let (snapshot, host) = (of.snapshot(), self.cluster.host(hall));
            for (number, id) in log::objects(&snapshot, 0, usize::MAX).expect("readable") {
                let cells = Cells::new(&snapshot, number);
                if let Some(head) = cells.head().expect("readable").filter(|_| means(&cells, &host)) {
                    trace.insert((hall, id.to_string()), (head.index, head.digest.to_string()));
                }
            }
        }
        trace
    }

    /// Everything in the stores of all hosts: where it is, and the bytes.
    pub fn stored(&self) -> Vec<(String, Vec<u8>)> {
        let halls = self.cluster.halls.iter().enumerate();
        let of = |(number, hall): (usize, &Hall)| {
            hall.stored().into_iter().map(move |(place, bytes)| (format!("{place} of host {number}"), bytes))
        };
        halls.flat_map(of).collect()
    }

    /// The last index and the running digest of an object, which are the same wherever it is.
    pub fn digest(&self, object: &str) -> (u64, String) {
        let found = self.trace().into_iter().find(|((_, id), _)| id == object);
        found.unwrap_or_else(|| panic!("no object {object}")).1
    }

    /// Lets time pass, and lets the hosts do what is due.
    pub fn advance(&mut self, duration: Duration) {
        self.now = self.now.after(duration);
        self.wake();
    }

    /// Lets the hosts do what is due.
    pub fn wake(&mut self) {
        self.set_clocks();
        self.cluster.halls.iter_mut().for_each(Hall::wake);
        self.settle();
    }

    /// When the first of the hosts wants to be woken.
    pub fn wake_at(&mut self) -> Time {
        self.set_clocks();
        self.cluster.halls.iter().map(Hall::wake_at).min().expect("a host")
    }

    /// Kills every daemon and starts it again.
    pub fn restart(&mut self) {
        self.set_clocks();
        (0..self.cluster.halls.len()).for_each(|hall| self.cluster.restart(hall));
        self.cluster.connect_all();
        self.settle();
    }

    /// Verifies every log on every host and decides it again.
    pub fn verify(&mut self) {
        self.set_clocks();
        self.cluster.halls.iter_mut().for_each(Hall::verify);
    }

    /// Calls an operation; the envelope of its last answer, the one that no host has anything to add to.
    pub fn call(&mut self, caller: &Agent, operation: &str, arguments: Value) -> Value {
        self.together(&[(caller, operation, arguments)], true).pop().expect("an answer")
    }

    /// Calls operations before any host hears of another's; the envelopes of their last answers. Where commits fail, no host
    /// keeps anything of them.
    pub fn together(&mut self, calls: &[(&Agent, &str, Value)], commits: bool) -> Vec<Value> {
        self.set_clocks();
        if !commits {
            let lost = calls.iter().map(|(caller, operation, arguments)| {
                let at = self.host_for((caller, operation), arguments);
                self.cluster.halls[at].call_uncommitted(caller, operation, arguments)
            });
            return lost.collect();
        }
        let mut made = Vec::new();
        for (caller, operation, arguments) in calls {
            let (at, mut arguments) = (self.host_for((caller, operation), arguments), arguments.clone());
            self.calls += 1;
            let about = operations::find(operation).unwrap_or_else(|| panic!("no operation {operation}"));
            let acts = about.is_action() && about.who == Who::Agent;
            if acts && arguments.is_object() && arguments["idempotency_key"].is_null() {
                merge(&mut arguments, json!({"idempotency_key": format!("call-{}", self.calls)}));
            }
            made.push((at, arguments.clone(), self.cluster.halls[at].call(caller, operation, arguments)));
        }
        self.settle();
        let ended = calls.iter().zip(made).map(|((caller, operation, _), (at, arguments, answer))| {
            match self.progress(at, &answer) {
                Some(Progress::Refused(signed)) => refusal_json(&receipt::refusal(&signed)),
                Some(Progress::Expired) => refusal_json(&Code::ActionExpired.into()),
                None if answer["standing"] == "pending" => self.cluster.halls[at].call(caller, operation, arguments),
                Some(Progress::Pending) | None => answer,
            }
        });
        ended.collect()
    }

    /// How far an action is that waits on a host, by the answer that it waits; nothing if it does not.
    fn progress(&self, hall: usize, answer: &Value) -> Option<Progress> {
        let action = answer["result"]["action"].as_str().filter(|_| answer["standing"] == "pending")?;
        let snapshot = self.cluster.halls[hall].snapshot();
        let short = RequestId::read(action).expect("an action");
        let request = operations::request_id_of(&snapshot, &short).expect("readable").expect("an action that is known");
        outbox::find(&snapshot, &request).expect("readable").map(|row| row.progress)
    }
}

/// Whether a host waits for contents, or for what becomes of an action.
fn lacks(hall: &Hall) -> bool {
    let snapshot = hall.snapshot();
    !wanted::contents(&snapshot, None, 1).expect("readable").is_empty()
        || outbox::since(&snapshot, 0, usize::MAX).expect("readable").iter().any(|row| row.own && row.is_pending())
}
