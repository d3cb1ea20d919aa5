//! What must hold after every step, and at rest.

use std::collections::{BTreeMap, BTreeSet};

use kwoon_keys::Digest;
use kwoon_keys::id::{ObligationId, RequestId};
use kwoon_ledger::action::{Action, Body, ObjectId, attempt_hash};
use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::{Cause, Fact, fact_hash};
use kwoon_ledger::log;
use kwoon_ledger::outbox::{self, Progress};
use kwoon_ledger::state::{Cells, ObjectNumber, Reach, cell_prefix};
use kwoon_ledger::storage::{Order, Read, Row, Table};
use kwoon_sync::reach;
use serde_json::{Value, json};

use super::Simulation;
use super::ground::SimulatedSnapshot;
use crate::hall::{Agent, owner};
use crate::medium::Dice;

/// How much a run was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Hosts.
    pub hosts: u64,
    /// Things that happened.
    pub events: u64,
    /// Calls of agents and owners.
    pub calls: u64,
    /// Facts, each counted once.
    pub facts: u64,
    /// Facts that came to a host from another.
    pub carried: u64,
    /// Connections.
    pub connections: u64,
    /// Frames that arrived.
    pub frames: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Sessions that a host broke off.
    pub broken: u64,
    /// Messages of which something could not be taken.
    pub faults: u64,
    /// Frames that were not what the session said.
    pub lies: u64,
    /// Crashes.
    pub crashes: u64,
    /// Syncs that failed, each with a crash.
    pub failed_syncs: u64,
    /// Actions refused elsewhere.
    pub refused: u64,
    /// Virtual time, in milliseconds.
    pub virtual_ms: u64,
}

/// What happened, over all hosts.
#[derive(Default)]
pub(super) struct Truth {
    /// Every fact that any host ever held: its hash.
    facts: BTreeMap<(ObjectId, u64), Digest>,
    /// Which fact a request became.
    requests: BTreeMap<RequestId, (ObjectId, u64)>,
    /// Attempts that became facts.
    attempts: BTreeSet<Digest>,
    /// Attempts whose authors were told that they were refused.
    refused: BTreeSet<Digest>,
    /// Obligations that ended, with where.
    ended: BTreeMap<(ObjectId, ObligationId), u64>,
    /// The running digest after each fact, as the first host derived it.
    digests: BTreeMap<(ObjectId, u64), Digest>,
    /// Calls that acted: host, agent, operation, arguments, and the receipt if one was given.
    calls: Vec<(usize, String, String, Value, Value)>,
    /// On which host each fact was seen, in this order.
    sightings: BTreeMap<(ObjectId, u64), Vec<String>>,
    /// What is wrong.
    wrong: Option<String>,
}

impl Truth {
    pub(super) fn objects(&self) -> Vec<ObjectId> {
        let mut objects: Vec<ObjectId> = self.facts.keys().map(|(object, _)| *object).collect();
        objects.dedup();
        objects
    }

    fn is_wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// An agent was told what became of a call.
    pub(super) fn told(&mut self, node: usize, agent: &Agent, operation: &str, arguments: &Value, answer: &Value) {
        if answer["ok"] == true {
            let call = (node, agent.id.clone(), operation.to_owned(), arguments.clone(), answer["receipt"].clone());
            self.calls.push(call);
        }
    }

    pub(super) fn an_earlier_call(
        &self,
        node: usize,
        agent: &Agent,
        dice: &mut Dice,
    ) -> Option<(String, Value, Value)> {
        let calls: Vec<_> = self.calls.iter().filter(|(of, id, ..)| *of == node && *id == agent.id).collect();
        if calls.is_empty() {
            return None;
        }
        let (_, _, operation, arguments, receipt) = calls[dice.below(calls.len())];
        Some((operation.clone(), arguments.clone(), receipt.clone()))
    }

    /// A call was repeated whose first answer had this receipt.
    pub(super) fn repeated(&mut self, answer: &Value, receipt: &Value) {
        if !receipt.is_null() && answer["receipt"] != *receipt {
            self.is_wrong(format!("an acknowledged action has another receipt: {receipt} became {answer}"));
        }
    }

    fn fact(&mut self, node: usize, object: ObjectId, index: u64, bytes: &[u8], effects: &[Effect]) -> bool {
        let hash = fact_hash(bytes);
        // By whom it was held first, for what is told of two facts in one place.
        self.sightings.entry((object, index)).or_default().push(format!("{hash} on host {node}"));
        match self.facts.insert((object, index), hash) {
            Some(other) if other != hash => {
                let fact = Fact::read(bytes).map(|fact| (fact.epoch, fact.log_time, fact.previous));
                self.is_wrong(format!(
                    "two facts for {object} {index}: one is {fact:?}, {effects:?} {:?}",
                    self.sightings[&(object, index)]
                ));
                return false;
            }
            Some(_) => return false,
            None => {}
        }
        let Ok(fact) = Fact::read(bytes) else { return true };
        self.digests.insert((object, index), fact.digest);
        if let Cause::Action(signed) = &fact.cause
            && let Some(action) = log::action_of(&fact)
        {
            let attempt = attempt_hash(signed);
            self.attempts.insert(attempt);
            if self.refused.contains(&attempt) {
                self.is_wrong(format!("a refused attempt took effect: {object} {index}"));
            }
            if let Some(other) = self.requests.insert(action.request(), (object, index))
                && !matches!(action.body, Body::ThreadCreate(_) | Body::MemoryCreate(_))
            {
                self.is_wrong(format!("a request took effect twice: {other:?} and {object} {index}"));
            }
        }
        for effect in effects {
            if let (Effect::ObligationEnded(obligation, _), ObjectId::Thread(thread)) = (effect, object) {
                let id = obligation.id(&thread);
                if let Some(before) = self.ended.insert((object, id), index) {
                    self.is_wrong(format!("an obligation of {object} ended twice: at {before} and {index}"));
                }
            }
        }
        true
    }

    fn refusal(&mut self, attempt: Digest) -> bool {
        if self.attempts.contains(&attempt) {
            self.is_wrong("an attempt that took effect was said to be refused".to_owned());
        }
        self.refused.insert(attempt)
    }
}

impl Simulation {
    /// Looks at what a commit on a host brought.
    pub(super) fn look_at(&mut self, node: usize) {
        self.unchecked = true;
        let read = self.nodes[node].hall.snapshot();
        let arrivals = log::arrivals(&read, self.nodes[node].checked, usize::MAX).expect("readable");
        for (arrival, number, index) in arrivals {
            self.nodes[node].checked = arrival + 1;
            // One that ended for the host since is there no more.
            let Ok(bytes) = log::fact_bytes(&read, number, index) else { continue };
            let object = log::object(&read, number).expect("readable").expect("an object");
            let effects = log::effects(&read, number, index).expect("readable");
            if self.truth.fact(node, object, index, &bytes, &effects) {
                self.figures.facts += 1;
            } else {
                self.figures.carried += 1;
            }
        }
        for row in outbox::since(&read, 0, usize::MAX).expect("readable") {
            if row.own && matches!(row.progress, Progress::Refused(_)) {
                let new = self.truth.refusal(attempt_hash(&row.carried.signed));
                self.figures.refused += u64::from(new);
            }
        }
    }

    pub(super) fn check_step(&mut self) -> Result<(), String> {
        match self.truth.wrong.take() {
            Some(wrong) => Err(wrong),
            // Where nothing was committed since there is nothing new to look at.
            None if self.unchecked && self.figures.events.is_multiple_of(64) => {
                self.unchecked = false;
                self.check_holdings()
            }
            None => Ok(()),
        }
    }

    /// No host holds what its agents may not read, as far as the host that knows most of a log can tell.
    fn check_holdings(&self) -> Result<(), String> {
        let reads: Vec<SimulatedSnapshot> = self.nodes.iter().map(|node| node.hall.snapshot()).collect();
        let mut best: BTreeMap<ObjectId, (u64, usize, ObjectNumber)> = BTreeMap::new();
        for (n, read) in reads.iter().enumerate() {
            for (number, object) in log::objects(read, 0, usize::MAX).expect("readable") {
                let head = Cells::new(read, number).head().expect("readable").expect("a head");
                let known = best.entry(object).or_insert((head.index, n, number));
                if head.index > known.0 {
                    *known = (head.index, n, number);
                }
                if self.truth.digests.get(&(object, head.index)) != Some(&head.digest) {
                    return Err(format!("host {n} derives another digest of {object} at {}", head.index));
                }
            }
        }
        Self::check_alike(&reads)?;
        for (n, read) in reads.iter().enumerate() {
            let host = self.host(n);
            for (number, object) in log::objects(read, 0, usize::MAX).expect("readable") {
                if !matches!(object, ObjectId::Thread(_)) {
                    continue;
                }
                let held = Cells::new(read, number).head().expect("readable").expect("a head");
                let (_, knows, its_number) = best[&object];
                let reach = Cells::new(&reads[knows], its_number).reach(&host).expect("readable");
                // A log that moved is kept until the next host has it, and one that nobody can read rests.
                let rests = held.sequencer == host;
                let moved = rests
                    || matches!(Cells::new(read, number).reach(&host).expect("readable"), Reach::Ended(at) if at == held.index);
                let wrong = match reach {
                    Reach::Whole => false,
                    Reach::Ended(at) => held.index >= at && !moved,
                    Reach::Nothing => true,
                };
                if wrong {
                    return Err(format!("host {n} holds {object} up to {}, and may read {reach:?}", held.index));
                }
            }
            self.check_contents(n, read)?;
        }
        Ok(())
    }

    /// Hosts that hold a log equally far derived the same from it: who owes what, who may read what.
    fn check_alike(reads: &[SimulatedSnapshot]) -> Result<(), String> {
        let mut derived: BTreeMap<(ObjectId, u64), (usize, Vec<Row>)> = BTreeMap::new();
        for (n, read) in reads.iter().enumerate() {
            for (number, object) in log::objects(read, 0, usize::MAX).expect("readable") {
                let index = Cells::new(read, number).head().expect("readable").expect("a head").index;
                let prefix = cell_prefix(number);
                let mut rows = read.prefix(Table::Derived, &prefix, Order::Rising, usize::MAX).expect("readable");
                rows.iter_mut().for_each(|(key, _)| drop(key.drain(..prefix.len())));
                match derived.get(&(object, index)) {
                    Some((m, others)) if *others != rows => {
                        return Err(format!("hosts {m} and {n} derive different things from {object} up to {index}"));
                    }
                    Some(_) => {}
                    None => drop(derived.insert((object, index), (n, rows))),
                }
            }
        }
        Ok(())
    }

    /// Every text on a host is one that its agents may read, wrote, or pass on.
    fn check_contents(&self, n: usize, read: &SimulatedSnapshot) -> Result<(), String> {
        let host = self.host(n);
        let mut allowed = BTreeSet::new();
        for (number, _) in log::objects(read, 0, usize::MAX).expect("readable") {
            let head = Cells::new(read, number).head().expect("readable").expect("a head");
            for index in 0..=head.index {
                for effect in log::effects(read, number, index).expect("readable") {
                    effect.contents(|commitment| {
                        allowed.insert(commitment.hash);
                    });
                }
                // What moved is kept whole until the next host has it.
                if Cells::new(read, number).readers(&host).expect("readable") == 0 {
                    for effect in log::effects(read, number, index).expect("readable") {
                        allowed.extend(effect.note().map(|note| note.hash));
                    }
                }
                let readable = reach::contents(read, number, index, &host).expect("readable");
                allowed.extend(readable.iter().map(|commitment| commitment.hash));
            }
        }
        for row in outbox::since(read, 0, usize::MAX).expect("readable") {
            let action = row.carried.action().expect("readable");
            action.body.contents(|commitment| {
                allowed.insert(commitment.hash);
            });
            allowed.extend(action.body.note().map(|note| note.hash));
        }
        for (_, kept) in read.range(Table::Kept, &[], &[0xff; 33], Order::Rising, 9999).expect("readable") {
            let kept: kwoon_ledger::forget::Kept = kwoon_keys::cbor::read_own(&kept).expect("a kept outcome");
            let (_, effects) = kept.outcome.verify(&kept.sequencer).map_err(|error| error.to_string())?;
            effects.iter().for_each(|effect| {
                effect.contents(|commitment| {
                    allowed.insert(commitment.hash);
                })
            });
        }
        let known = allowed.iter().filter(|hash| read.holds(hash)).count() as u64;
        let held = self.nodes[n].hall.store.contents();
        if held == known {
            return Ok(());
        }
        let unknown = read.listed_contents().into_iter().filter(|hash| !allowed.contains(hash));
        let of: Vec<String> = unknown.flat_map(|hash| self.commits_to(&hash)).collect();
        Err(format!("host {n} holds {} contents to which nothing there refers, but {of:?}", held - known))
    }

    /// Where, on all hosts, something commits to a content.
    fn commits_to(&self, hash: &Digest) -> Vec<String> {
        let mut found = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let read = node.hall.snapshot();
            for (number, object) in log::objects(&read, 0, usize::MAX).expect("readable") {
                let head = Cells::new(&read, number).head().expect("readable").expect("a head");
                for index in 0..=head.index {
                    for effect in log::effects(&read, number, index).expect("readable") {
                        let mut commits = effect.note().is_some_and(|note| note.hash == *hash);
                        effect.contents(|commitment| commits |= commitment.hash == *hash);
                        if commits {
                            found.push(format!("{} on host {n}, {object} {index} of {}", effect.name(), head.index));
                        }
                    }
                }
            }
            for row in outbox::since(&read, 0, usize::MAX).expect("readable") {
                let action = row.carried.action().expect("readable");
                let mut commits = action.body.note().is_some_and(|note| note.hash == *hash);
                action.body.contents(|commitment| commits |= commitment.hash == *hash);
                if commits {
                    found.push(format!("{} in the outbox of host {n}, {:?}", action.body.operation(), row.progress));
                }
            }
        }
        found
    }

    /// At rest after healing: all that may read a log hold it alike, and every action has an outcome.
    pub(super) fn check_rest(&mut self) -> Result<(), String> {
        self.check_holdings()?;
        let reads: Vec<SimulatedSnapshot> = self.nodes.iter().map(|node| node.hall.snapshot()).collect();
        for (n, read) in reads.iter().enumerate() {
            for row in outbox::since(read, 0, usize::MAX).expect("readable") {
                let action: Action = row.carried.action().expect("readable");
                // What is passed on for others ends with its author's, or when it expires.
                if row.is_pending() && row.own {
                    let of = if row.own { "its own" } else { "another's" };
                    let on = row.carried.object;
                    let what = action.body.operation();
                    let at = action.position.map(|position| (position.epoch, position.index));
                    let mut known = self.standing(&on);
                    let named = row.hosts.iter().map(|host| (0..self.nodes.len()).find(|m| self.host(*m) == *host));
                    known.push(format!("asked of hosts {:?}", named.collect::<Vec<_>>()));
                    for request in action.after.iter().chain(&action.needs) {
                        let kept = outbox::find(read, request).expect("readable").map(|row| row.progress);
                        let kept = kept.map(|progress| match progress {
                            Progress::Refused(outcome) => format!("{:?}", kwoon_sync::receipt::refusal(&outcome).code),
                            other => format!("{other:?}"),
                        });
                        let ended = kwoon_sync::receipt::ended(read, request).expect("readable");
                        let ended = ended.map(|ended| (ended.action.body.operation(), ended.existing));
                        let fact = self.truth.requests.get(request);
                        known.push(format!("{request}: in the outbox {kept:?}, ended {ended:?}, a fact at {fact:?}"));
                    }
                    return Err(format!(
                        "host {n} still waits for an outcome of {of} {what} on {on}, signed at {at:?}, {:?} after {:?} needs \
                         {:?}: {known:?}",
                        action.actor, action.after, action.needs
                    ));
                }
            }
            for (number, object) in log::objects(read, 0, usize::MAX).expect("readable") {
                if !matches!(object, ObjectId::Thread(_)) {
                    continue;
                }
                let cells = Cells::new(read, number);
                let head = cells.head().expect("readable").expect("a head");
                for host in cells.reader_hosts().expect("readable") {
                    let m = (0..self.nodes.len()).find(|m| self.host(*m) == host).expect("a host of the simulation");
                    let there = kwoon_ledger::index::number(&reads[m], &object).expect("readable");
                    let there = there.and_then(|number| Cells::new(&reads[m], number).head().expect("readable"));
                    let found = there.as_ref().map(|head| (head.index, head.digest));
                    if found != Some((head.index, head.digest)) {
                        let rows: Vec<String> = outbox::of_object(&reads[m], &object, 99)
                            .expect("readable")
                            .iter()
                            .map(|row| {
                                format!(
                                    "{} {}",
                                    row.carried.action().expect("readable").body.operation(),
                                    row.is_pending()
                                )
                            })
                            .collect();
                        let ended = kwoon_ledger::forget::ended(&reads[m], 0);
                        let known = self.standing(&object);
                        return Err(format!(
                            "{object}: host {n} is at {}, host {m} at {found:?}, whose outbox has {rows:?}, {ended:?}: {known:?}",
                            head.index
                        ));
                    }
                }
            }
        }
        self.check_calls()?;
        self.check_rebuilt()
    }

    /// Where a log stands on each host.
    fn standing(&self, object: &ObjectId) -> Vec<String> {
        let mut standing = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let read = node.hall.snapshot();
            let Ok(Some(number)) = kwoon_ledger::index::number(&read, object) else { continue };
            let cells = Cells::new(&read, number);
            let head = cells.head().expect("readable").expect("a head");
            let by = (0..self.nodes.len()).find(|m| self.host(*m) == head.sequencer);
            let reach: Vec<_> = (0..self.nodes.len()).map(|m| cells.reach(&self.host(m)).expect("readable")).collect();
            let ended = kwoon_ledger::forget::ended_of(&read, object).expect("readable");
            let ended: Vec<_> = ended.iter().map(|ended| (ended.epoch, ended.index)).collect();
            standing.push(format!(
                "host {n}: {} in epoch {} by {by:?}, {reach:?}, ended {ended:?}",
                head.index, head.epoch
            ));
        }
        standing
    }

    /// Every receipt that was ever given is given again, the same.
    fn check_calls(&mut self) -> Result<(), String> {
        for (node, id, operation, arguments, receipt) in std::mem::take(&mut self.truth.calls) {
            if receipt.is_null() {
                continue;
            }
            let agent = self.nodes[node].agents.iter().find(|(_, agent)| agent.id == id).expect("an agent").1.clone();
            let asked = json!({"operation": operation, "key": arguments["idempotency_key"]});
            let answer = self.nodes[node].hall.call(&agent, "receipt_get", asked);
            if answer["receipt"] != receipt {
                return Err(format!("host {node} lost the receipt of {operation}: {receipt}, now {answer}"));
            }
        }
        Ok(())
    }

    /// What every host derived is what it derives again, and every log verifies.
    fn check_rebuilt(&mut self) -> Result<(), String> {
        for (n, node) in self.nodes.iter_mut().enumerate() {
            let verified = node.hall.call(&owner(), "ledger_verify", json!({}));
            if verified["result"]["sound"] != true {
                return Err(format!("host {n}: {verified}"));
            }
            let before = node.hall.trace();
            kwoon_store::rebuild(&node.hall.store).map_err(|error| format!("host {n}: {error}"))?;
            let after = node.hall.trace();
            if let Some((key, _)) = before.iter().find(|(key, value)| after.get(*key) != Some(value)) {
                return Err(format!("host {n}: a rebuild does not give the row {key:02x?}"));
            }
            if let Some((key, _)) = after.iter().find(|(key, _)| !before.contains_key(*key)) {
                return Err(format!("host {n}: a rebuild gives a row that was not there: {key:02x?}"));
            }
        }
        Ok(())
    }
}
