//! The sequencer: a pure function from (state, actions, time) to a sealed batch, expiries first.
//!
//! It is fed one action after the other; each sees what the ones before it did. [`Sequencer::finish`] seals every log
//! that was touched, once. Nothing is durable, and no seal may leave the host, before the batch is committed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use kwoon_keys::id::AgentId;
use kwoon_keys::{Digest, KeyPair, RecordKind, cbor, cose};
use minicbor::bytes::ByteVec;

use crate::action::{Action, ObjectId, SCHEMA, attempt_hash};
use crate::derive::{Derived, Fault, Premises, derive, read_action_strict};
use crate::effect::Effect;
use crate::fact::{
    Cause, EpochChange, Evidence, Fact, Opening, Origin, Outcome, OutcomeRecord, OutcomeResult, RULES, Seal,
};
use crate::index::{self, List};
use crate::limits::ACCOUNT_RECORDS_MAX;
use crate::log::{self, Addition};
use crate::refusal::{Code, Stop, require};
use crate::rules::{Decision, assignment, identity, memory};
use crate::state::{Cells, ObjectNumber};
use crate::storage::{Batch, Overlay, Read, ReadError, Table};
use crate::time::Time;
use crate::wanted;

/// An action to be decided, with what the decision may take from other logs.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The log it acts on or opens.
    pub object: ObjectId,
    /// Its signed bytes.
    pub signed: Vec<u8>,
    /// Evidence.
    pub evidence: Vec<Evidence>,
    /// Where the memory came from, if this action opens the log of one that was born of an entry.
    pub origin: Option<Origin>,
    /// Identity records of the actor that came with the action: where this host does not know them, they count.
    pub records: Vec<ByteVec>,
}

impl Candidate {
    /// A signed action on a log, with nothing beside it.
    pub fn of(object: ObjectId, signed: Vec<u8>) -> Self {
        Self { object, signed, evidence: Vec::new(), origin: None, records: Vec::new() }
    }
}

/// What became of a candidate that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The log.
    pub number: ObjectNumber,
    /// The index of the fact, or of the fact that made what exists.
    pub index: u64,
    /// Whether it is a success without new effect (L2.4).
    pub existing: bool,
}

/// A fact to be added, beside what follows from where its log stands.
struct Link {
    cause: Cause,
    evidence: Vec<Evidence>,
    opening: Option<Opening>,
    /// Its log time; now, if it is not given.
    at: Option<Time>,
}

impl Link {
    fn of(cause: Cause) -> Self {
        Self { cause, evidence: Vec::new(), opening: None, at: None }
    }
}

/// Builds a sealed batch.
pub struct Sequencer<'a> {
    /// The state with what was decided so far.
    pub overlay: Overlay<'a>,
    host: &'a KeyPair,
    now: Time,
    unsealed: BTreeSet<ObjectNumber>,
    /// Logs whose time stands still, and where.
    held: BTreeMap<ObjectNumber, Time>,
    /// Whether it only foresees what other sequencers would decide.
    foresees: bool,
}

impl<'a> Sequencer<'a> {
    /// A new batch over a committed state, at a time.
    pub fn new(base: &'a dyn Read, host: &'a KeyPair, now: Time) -> Self {
        let (unsealed, held) = (BTreeSet::new(), BTreeMap::new());
        Self { overlay: Overlay::new(base), host, now, unsealed, held, foresees: false }
    }

    /// Decides as the sequencers of other hosts' logs would at this time, over a state, into a layer that is then to be
    /// dropped: no deadline comes, and nothing is sealed.
    pub fn foreseeing(base: &'a dyn Read, host: &'a KeyPair, now: Time) -> Self {
        Self { foresees: true, ..Self::new(base, host, now) }
    }

    /// Lets the time of a log stand still from here on: no deadline of it comes, and what is sealed in it is sealed then.
    pub fn hold(&mut self, number: ObjectNumber, time: Time) {
        self.held.insert(number, time);
    }

    /// Lets the time of a log go on.
    pub fn go_on(&mut self, number: ObjectNumber) {
        self.held.remove(&number);
    }

    fn time_of(&self, number: ObjectNumber) -> Time {
        self.held.get(&number).copied().unwrap_or(self.now)
    }

    /// Whether this host appends to a log in its present epoch.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn is_own(&self, number: ObjectNumber) -> Result<bool, ReadError> {
        log::is_ordered_by(&self.overlay, &self.host.public(), number)
    }

    /// Seals every deadline that has come by now, in all logs of this host, in the order in which they came (L4.3).
    /// At most `limit`. A log whose deadlines cannot be read holds up no other; what was wrong with it is returned.
    ///
    /// # Errors
    /// If the store cannot be read at all.
    pub fn expire(&mut self, limit: usize) -> Result<Vec<ReadError>, ReadError> {
        let (mut count, mut failures) = (0, Vec::new());
        let mut failed: BTreeSet<ObjectNumber> = self.held.keys().copied().collect();
        while count < limit {
            let next = index::next_due(&self.overlay, &self.host.public(), &failed)?;
            let Some((due, number)) = next.filter(|(due, _)| *due <= self.now) else { break };
            if !self.is_own(number)? {
                // It is not known here yet what became of it.
                failed.insert(number);
                continue;
            }
            match self.expire_log(number, due) {
                Ok(sealed) if sealed > 0 => count += sealed,
                Ok(_) => {
                    failed.insert(number);
                    failures.push(ReadError::damaged("a deadline that its log does not have"));
                }
                Err(error) => {
                    failed.insert(number);
                    failures.push(error);
                }
            }
        }
        Ok(failures)
    }

    /// Seals the deadlines of one log that have come by `time`.
    fn expire_log(&mut self, number: ObjectNumber, time: Time) -> Result<usize, ReadError> {
        let mut count = 0;
        loop {
            let cells = Cells::new(&self.overlay, number);
            let Some((due_at, entry)) = cells.next_due()? else { return Ok(count) };
            if due_at > time {
                return Ok(count);
            }
            let head = cells.head()?.ok_or_else(|| ReadError::damaged("a deadline without a log"))?;
            let held = cells.assignment_at(entry)?.ok_or_else(|| ReadError::damaged("a deadline of nothing"))?;
            let (due, _) =
                assignment::next_due(&held).ok_or_else(|| ReadError::damaged("a deadline of what has ended"))?;
            let object = head.object;
            // An expiry's log time is its due time.
            let link = Link { at: Some(due_at), ..Link::of(Cause::Expiry(due)) };
            match self.append(number, object, link) {
                Ok(_) => count += 1,
                Err(Fault::Unreadable(error)) => return Err(error),
                Err(_) => return Err(ReadError::damaged("a deadline that the rules do not know")),
            }
        }
    }

    /// Decides one action. Deadlines of its log come first; a refusal leaves nothing else (L2.2). What the rules allow is
    /// then asked of `allows`, which sees the state as it would be: configured limits stand there.
    ///
    /// # Errors
    /// By the rules, by `allows`, or if the store cannot be read.
    pub fn act(
        &mut self,
        candidate: Candidate,
        allows: impl FnOnce(&dyn Read, &Sealed) -> Result<(), Stop>,
    ) -> Result<Sealed, Stop> {
        let known = index::number(&self.overlay, &candidate.object)?;
        if let Some(number) = known.filter(|_| !self.foresees) {
            // Only its own sequencer appends to a log.
            require(self.is_own(number)?, Code::SequencerUnreachable)?;
            self.expire_log(number, self.time_of(number))?;
        }
        let action = read_action_strict(&candidate.signed).map_err(|rejection| refused(Fault::Rejected(rejection)))?;
        // What belongs to the action alone is laid over the batch, and dropped if it is refused.
        let mut layer = Sequencer {
            overlay: Overlay::new(&self.overlay),
            host: self.host,
            now: self.now,
            unsealed: BTreeSet::new(),
            held: self.held.clone(),
            foresees: self.foresees,
        };
        let signed = ByteVec::from(candidate.signed.clone());
        let sealed = layer.act_in_layer(known, candidate, &action).map_err(refused)?;
        allows(&layer.overlay, &sealed)?;
        if sealed.existing {
            // L2.4: without any new effect, so an account that entered for the decision does not stay either.
            if !self.foresees {
                self.record_existing(&action, &signed, &sealed)?;
            }
            return Ok(sealed);
        }
        let Sequencer { overlay, unsealed, .. } = layer;
        let batch = overlay.batch;
        self.overlay.absorb(batch);
        self.unsealed.extend(unsealed);
        Ok(sealed)
    }

    fn act_in_layer(
        &mut self,
        known: Option<ObjectNumber>,
        candidate: Candidate,
        action: &Action,
    ) -> Result<Sealed, Fault> {
        let object = candidate.object;
        let signed: ByteVec = candidate.signed.into();
        let (number, opening) = match known {
            Some(number) => {
                if let Some(actor) = action.agent() {
                    self.update_account(number, actor, &candidate.records)?;
                }
                (number, None)
            }
            // An object is created on its own host alone.
            None if self.foresees => return Err(Code::SequencerUnreachable.into()),
            None => {
                let creator = match action.agent() {
                    Some(actor) => log::identity_records(&self.overlay, &actor, 0)?,
                    None => Vec::new(),
                };
                let sequencer = self.host.public();
                let born = candidate.origin.is_some();
                let opening = Opening { rules: RULES, sequencer, creator, origin: candidate.origin, blind: None };
                let number = log::next_object(&self.overlay)?;
                if born {
                    self.append(number, object, Link { opening: Some(opening), ..Link::of(Cause::Begun) })?;
                    (number, None)
                } else {
                    (number, Some(opening))
                }
            }
        };
        let link = Link { evidence: candidate.evidence, opening, ..Link::of(Cause::Action(signed)) };
        let decision = self.append(number, object, link)?;
        match decision {
            Decision::Effects => {
                let index = Cells::new(&self.overlay, number).head()?.map_or(0, |head| head.index);
                self.follow_up(number, index, &object, action)?;
                Ok(Sealed { number, index, existing: false })
            }
            Decision::Existing(index) => Ok(Sealed { number, index, existing: true }),
        }
    }

    /// Brings the actor's account in a log up to what this host knows of it, and to what came with its action.
    fn update_account(&mut self, number: ObjectNumber, agent: AgentId, given: &[ByteVec]) -> Result<(), Fault> {
        let cells = Cells::new(&self.overlay, number);
        let version = cells.account(&agent)?.map_or(0, |account| account.version);
        let mut records = log::identity_records(&self.overlay, &agent, version)?;
        let mut known = version + records.len() as u64;
        for record in given {
            let (action, _) = identity::read_record(record)?;
            if identity::version_of(&action) == known.checked_add(1) {
                known += 1;
                records.push(record.clone());
            }
        }
        for records in records.chunks(ACCOUNT_RECORDS_MAX) {
            let cells = Cells::new(&self.overlay, number);
            let head = cells.head()?.ok_or_else(|| ReadError::damaged("a log without a head"))?;
            self.append(number, head.object, Link::of(Cause::Account(agent, records.to_vec())))?;
        }
        Ok(())
    }

    /// What a fact brings about in other logs of this sequencer, in the same batch.
    fn follow_up(&mut self, number: ObjectNumber, index: u64, object: &ObjectId, action: &Action) -> Result<(), Fault> {
        match object {
            ObjectId::Memory(id) => {
                let effects = log::effects(&self.overlay, number, index)?;
                let author = action.agent().ok_or(Code::Internal)?;
                if memory::consequence(*id, author, index, &effects).is_some() {
                    self.publish(number, index, &ObjectId::Publication(memory::publication_id(id)), author)?;
                }
                Ok(())
            }
            ObjectId::Identity(agent) => {
                let effects = log::effects(&self.overlay, number, index)?;
                let ended = effects.iter().any(|effect| {
                    matches!(effect, Effect::IdentitySet(_, account, _)
                        if account.status != crate::identity::Status::Active)
                });
                if ended { self.end_memberships(*agent) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Adds to a publication what a fact of the memory's log means for the public.
    fn publish(
        &mut self,
        memory: ObjectNumber,
        index: u64,
        publication: &ObjectId,
        author: AgentId,
    ) -> Result<(), Fault> {
        self.seal(memory)?;
        let outcome = log::outcome(&self.overlay, memory, index)?.ok_or(Code::Internal)?;
        let (number, opening) = match index::number(&self.overlay, publication)? {
            Some(number) => {
                self.update_account(number, author, &[])?;
                (number, None)
            }
            None => {
                let creator = log::identity_records(&self.overlay, &author, 0)?;
                let blind = memory::blind_of(&log::fact(&self.overlay, memory, 0)?);
                let sequencer = self.host.public();
                let opening = Opening { rules: RULES, sequencer, creator, origin: None, blind };
                (log::next_object(&self.overlay)?, Some(opening))
            }
        };
        self.append(number, *publication, Link { opening, ..Link::of(Cause::Consequence(outcome)) })?;
        Ok(())
    }

    /// Notes in the logs of this sequencer what it has learned of an agent whose identity another host orders, if that
    /// ends something there (A3).
    ///
    /// # Errors
    /// If the store cannot be read, or a thread does not take the account.
    pub fn learn(&mut self, agent: AgentId) -> Result<(), Stop> {
        self.end_memberships(agent).map_err(refused)
    }

    /// A3: one fact in each thread of the agent that this host sequences.
    fn end_memberships(&mut self, agent: AgentId) -> Result<(), Fault> {
        let (own, owner) = (self.host.public(), index::owner(&agent));
        let arrivals = log::next_arrival(&self.overlay)?;
        let mut cursor = None;
        loop {
            let (page, next) = index::list_page(&self.overlay, List::Threads, &owner, cursor, 64, arrivals)?;
            for number in page {
                if log::is_ordered_by(&self.overlay, &own, number)? {
                    self.expire_log(number, self.time_of(number))?;
                    self.update_account(number, agent, &[])?;
                }
            }
            // The walk goes on behind the rows that are gone by now, and past the threads of other sequencers.
            cursor = next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Adds a fact to a log, if it can be derived.
    fn append(&mut self, number: ObjectNumber, object: ObjectId, link: Link) -> Result<Decision, Fault> {
        let Link { cause, evidence, opening, at } = link;
        let head = Cells::new(&self.overlay, number).head()?;
        // Log time never goes back.
        let at = head.as_ref().map_or(self.now, |head| head.log_time.max(at.unwrap_or(self.time_of(number))));
        let mut draft = log::draft(&self.overlay, number, head.as_ref(), at)?;
        let premises = Premises {
            object,
            head: head.as_ref(),
            opening: opening.as_ref(),
            cause: &cause,
            evidence: &evidence,
            foreseen: self.foresees,
        };
        let Derived { decision, request } = derive(&mut draft, &premises)?;
        if decision != Decision::Effects {
            return Ok(decision);
        }
        let fact = Fact {
            schema: SCHEMA,
            object,
            epoch: head.as_ref().map_or(0, |head| head.epoch),
            index: draft.index,
            previous: head.as_ref().map(|head| head.hash).unwrap_or_default(),
            log_time: at,
            cause,
            evidence,
            digest: Digest::default(),
            opening,
        };
        log::close(&mut draft, Addition { object, head, fact, request })?;
        let moved = draft.effects.iter().any(|effect| matches!(effect, Effect::EpochBegan(..)));
        let batch = draft.overlay.batch;
        self.overlay.absorb(batch);
        if moved && Cells::new(&self.overlay, number).readers(&self.host.public())? == 0 {
            wanted::set_leaving(&mut self.overlay, number, true);
        }
        self.unsealed.insert(number);
        Ok(decision)
    }

    /// A success without new effect is no fact, so its outcome is signed and kept (L3.1).
    fn record_existing(&mut self, action: &Action, signed: &ByteVec, sealed: &Sealed) -> Result<(), ReadError> {
        let head = Cells::new(&self.overlay, sealed.number).head()?;
        let head = head.ok_or_else(|| ReadError::damaged("a log without a head"))?;
        let outcome = Outcome {
            schema: SCHEMA,
            request: action.request(),
            attempt: attempt_hash(signed),
            object: head.object,
            epoch: head.epoch,
            index: head.index,
            head: head.hash,
            log_time: head.log_time.max(self.now),
            result: OutcomeResult::Existing(sealed.index),
        };
        let outcome = cose::sign(RecordKind::Outcome, &cbor::write(&outcome), self.host);
        let made_by = log::action_of(&log::fact(&self.overlay, sealed.number, sealed.index)?);
        let made_by = made_by.map(|action| action.request());
        let record = OutcomeRecord { outcome: outcome.into(), action: signed.clone(), made_by };
        let request = action.request();
        self.overlay.put(Table::Outcomes, request.as_bytes().to_vec(), cbor::write(&record));
        index::set_receipt(&mut self.overlay, &request);
        Ok(())
    }

    /// Seals a log at its head at once, where something else needs the seal.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn seal(&mut self, number: ObjectNumber) -> Result<(), ReadError> {
        self.seal_at(number, None)
    }

    /// Gives the seal of a log's head again, with the time that the log has come to by now: the sequencer's word that
    /// nothing else was sealed until then. Deadlines that have come are sealed first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn state_again(&mut self, number: ObjectNumber) -> Result<(), ReadError> {
        let time = self.time_of(number);
        self.expire_log(number, time)?;
        self.seal_at(number, Some(time))
    }

    fn seal_at(&mut self, number: ObjectNumber, time: Option<Time>) -> Result<(), ReadError> {
        let head = Cells::new(&self.overlay, number).head()?;
        let head = head.ok_or_else(|| ReadError::damaged("a log without a head"))?;
        // After a fact by which an epoch ended, the seal is still of that epoch.
        let epoch = log::fact(&self.overlay, number, head.index)?.epoch;
        let seal = Seal {
            schema: SCHEMA,
            object: head.object,
            epoch,
            index: head.index,
            head: head.hash,
            log_time: time.map_or(head.log_time, |time| head.log_time.max(time)),
            wall_time: self.now,
        };
        self.overlay.put(Table::Seals, log::seal_key(number, epoch, head.index), seal.sign(self.host));
        self.unsealed.remove(&number);
        Ok(())
    }

    /// Hands a log over: the two hosts' voices say so.
    ///
    /// # Errors
    /// If the voices do not fit the log.
    pub fn hand_over(&mut self, number: ObjectNumber, change: EpochChange) -> Result<(), Stop> {
        let head = Cells::new(&self.overlay, number).head()?.ok_or(Code::Internal)?;
        self.append(number, head.object, Link::of(Cause::Epoch(change))).map_err(refused)?;
        Ok(())
    }

    /// Seals every log that was touched and returns what is to be committed.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn finish(mut self) -> Result<Batch, ReadError> {
        while let Some(number) = self.unsealed.first().copied() {
            self.seal(number)?;
        }
        Ok(self.overlay.batch)
    }
}

/// A record of this host's own that is rejected is refused with the nearest code.
fn refused(fault: Fault) -> Stop {
    match fault {
        Fault::Refused(refusal) => Stop::Refused(refusal),
        Fault::Unreadable(error) => Stop::Unreadable(error),
        Fault::Rejected(rejection) => {
            use crate::fact::Rejection;
            Stop::Refused(match rejection {
                Rejection::UnknownVersion | Rejection::UnknownKind => Code::UnsupportedVersion.into(),
                Rejection::UnknownInstance | Rejection::Signature => Code::Unauthenticated.into(),
                _ => Code::BadReference.into(),
            })
        }
    }
}
