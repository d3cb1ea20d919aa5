//! Actions of other hosts' agents: decided, where this host orders their log, or passed on.

use std::collections::BTreeMap;

use kwoon_keys::id::RequestId;
use kwoon_keys::{Digest, PublicKey, RecordKind, cbor, cose};
use kwoon_ledger::action::{Action, Actor, Body, ObjectId, SCHEMA, attempt_hash};
use kwoon_ledger::derive::read_action_strict;
use kwoon_ledger::fact::{DetailValue, Outcome, OutcomeRecord, OutcomeResult, RefusalDetail, SealedOutcome};
use kwoon_ledger::forget;
use kwoon_ledger::index::{self, PassedOn};
use kwoon_ledger::limits::LINKS_MAX;
use kwoon_ledger::log;
use kwoon_ledger::outbox::{self, Outgoing, Progress};
use kwoon_ledger::refusal::{Code, Detail, Refusal, Stop};
use kwoon_ledger::sequencer::{Candidate, Sealed};
use kwoon_ledger::state::{Cells, Head, ObjectNumber, Reach};
use kwoon_ledger::storage::{Order, Read, ReadError, Table};
use kwoon_ledger::time::Time;
use kwoon_ledger::wanted;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::operations::limits;
use crate::peers;
use crate::round::Round;
use crate::ticket::HostHint;
use crate::wire::{Consignment, Content, Message, Verdict};

use super::ended::{clear_passed_on, clear_refusals, is_over, log_time};
use super::facts::{settle_contents, want_referred};
use super::*;

pub(super) fn refusal_key(number: ObjectNumber, attempt: &Digest) -> Vec<u8> {
    [&number.to_be_bytes()[..], attempt.as_bytes()].concat()
}

/// A refusal that was told to another host.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ToldRefusal {
    /// The signed outcome.
    #[n(0)]
    pub outcome: ByteVec,
    /// The request.
    #[n(1)]
    pub request: RequestId,
    /// From when on the attempt cannot take effect anyway.
    #[n(2)]
    pub expires_at: Time,
}

/// What this host decides of an action that another brought.
pub(super) enum Decided {
    Sealed,
    /// It ended without a fact: the signed outcome.
    Ended(ByteVec),
    /// It waits: for how long, in milliseconds.
    Waits(u64),
}

impl Round<'_> {
    pub(super) fn actions(&mut self, peer: &PublicKey, actions: Vec<Consignment>) -> Result<Received, ReadError> {
        let mut verdicts = Vec::new();
        for consignment in actions {
            verdicts.extend(self.action(peer, consignment)?);
        }
        let messages = if verdicts.is_empty() { Vec::new() } else { vec![Message::Verdicts(verdicts)] };
        Ok(Received { messages, ..Received::default() })
    }

    pub(super) fn action(&mut self, peer: &PublicKey, consignment: Consignment) -> Result<Option<Verdict>, ReadError> {
        let Consignment { carried, contents } = consignment;
        let Ok(action) = read_action_strict(&carried.signed) else { return Ok(None) };
        let attempt = attempt_hash(&carried.signed);
        let joins = matches!(action.body, Body::ThreadJoin(..));
        let state = &self.sequencer.overlay;
        let number = index::number(state, &carried.object)?;
        let head = number.map_or(Ok(None), |number| Cells::new(state, number).head())?;
        let own = self.own_host();
        let (Some(number), Some(head)) = (number, head) else {
            // A thread that was here once, and is ordered elsewhere by now. Who has its id has read of it, or had a ticket.
            let opening = action.position.map(|position| position.head);
            let ended = forget::ended_of(state, &carried.object)?.pop().filter(|ended| ended.sequencer != own);
            if let Some(ended) = ended.filter(|ended| !joins || Some(ended.opening) == opening) {
                let addresses = peers::get(state, &ended.sequencer)?.unwrap_or_default().addresses;
                let hint = HostHint { host: ended.sequencer, addresses };
                return Ok(Some(Verdict::Elsewhere(attempt, carried.object, action.request(), hint)));
            }
            if !joins {
                return Ok(None);
            }
            return self.failed_join(peer, &action, &carried.object, attempt).map(Some);
        };
        let orders = log::is_ordered_by(&self.sequencer.overlay, &own, number)?;
        if !orders && joins {
            // Who knows the thread's beginning had a ticket, and may know who orders it now.
            let opening = log::head_at(&self.sequencer.overlay, number, &head, 0)?;
            let had_ticket = action.position.is_some_and(|position| Some(position.head) == opening);
            if !had_ticket {
                return self.failed_join(peer, &action, &carried.object, attempt).map(Some);
            }
            let addresses = peers::get(&self.sequencer.overlay, &head.sequencer)?.unwrap_or_default().addresses;
            let hint = HostHint { host: head.sequencer, addresses };
            return Ok(Some(Verdict::Elsewhere(attempt, carried.object, action.request(), hint)));
        }
        // To whom may not read it, it is as if the log were not here.
        let reach = Cells::new(&self.sequencer.overlay, number).reach(peer)?;
        if !joins && reach == Reach::Nothing {
            return Ok(None);
        }
        if !orders {
            return self.pass_on(peer, number, Outgoing::passed_on(carried, *peer), &action, &contents);
        }
        let row = Outgoing::passed_on(carried, *peer);
        let decided = self.decide_carried(peer, number, &head, row, &action, &contents)?;
        Ok(match decided {
            // The fact comes with the log, where that may be read; else its outcome goes alone.
            Decided::Sealed => self.sealed_for(peer, number, &action)?,
            Decided::Ended(outcome) => Some(Verdict::Ended(outcome, self.moves_for(peer, number)?)),
            Decided::Waits(milliseconds) => Some(Verdict::NotTaken(attempt, milliseconds)),
        })
    }

    /// The outcome of an action for a host of its actor that may not read the log any more.
    pub(super) fn sealed_for(
        &mut self,
        peer: &PublicKey,
        number: ObjectNumber,
        action: &Action,
    ) -> Result<Option<Verdict>, ReadError> {
        let state = &self.sequencer.overlay;
        let cells = Cells::new(state, number);
        let account = action.agent().map_or(Ok(None), |agent| cells.account(&agent))?;
        if cells.readers(peer)? > 0 || !account.is_some_and(|account| account.lives_on(peer)) {
            return Ok(None);
        }
        let Some((sealed_in, index)) = index::request(state, &action.request())? else { return Ok(None) };
        if sealed_in != number {
            return Ok(None);
        }
        // A fact of this very round is sealed at its end: the next time it is asked for there is an outcome.
        let outcome = log::outcome(state, number, index)?;
        let sequencer = log::sealed_by(state, number, index)?;
        let moves = self.moves_for(peer, number)?;
        Ok(outcome.map(|outcome| Verdict::Sealed(Box::new(outcome), sequencer, moves)))
    }

    /// The facts by which a log's sequencers followed each other, for a host that may not read the log any more.
    pub(super) fn moves_for(&self, peer: &PublicKey, number: ObjectNumber) -> Result<Vec<SealedOutcome>, ReadError> {
        let state = &self.sequencer.overlay;
        let cells = Cells::new(state, number);
        let Some(head) = cells.head()?.filter(|head| head.epoch > 0) else { return Ok(Vec::new()) };
        if !matches!(cells.reach(peer)?, Reach::Ended(_)) {
            return Ok(Vec::new());
        }
        moves(state, number, head.epoch)
    }

    /// S1: whatever is wrong with a ticket or its thread looks the same, also that there is none here. Nothing is kept of it.
    pub(super) fn failed_join(
        &mut self,
        peer: &PublicKey,
        action: &Action,
        object: &ObjectId,
        attempt: Digest,
    ) -> Result<Verdict, ReadError> {
        for caller in joiners(peer, action) {
            if let Err(wait) = self.rates().may_join(&caller) {
                return Ok(Verdict::NotTaken(attempt, wait.0));
            }
        }
        for caller in joiners(peer, action) {
            self.rates().join_failed(&caller);
        }
        Ok(Verdict::Ended(self.refused_join(action, object, attempt), Vec::new()))
    }

    /// Says no more of the thread than the ticket did.
    pub(super) fn refused_join(&self, action: &Action, object: &ObjectId, attempt: Digest) -> ByteVec {
        let outcome = Outcome {
            schema: SCHEMA,
            request: action.request(),
            attempt,
            object: *object,
            epoch: 0,
            index: 0,
            head: action.position.map_or_else(Digest::default, |position| position.head),
            log_time: self.now,
            result: OutcomeResult::Refused(Code::AdmissionInvalid.name().to_owned(), Vec::new()),
        };
        cose::sign(RecordKind::Outcome, &cbor::write(&outcome), &self.keyring.host).into()
    }

    /// Decides an action of an agent of another host on a log that this host orders.
    pub(super) fn decide_carried(
        &mut self,
        peer: &PublicKey,
        number: ObjectNumber,
        head: &Head,
        row: Outgoing,
        action: &Action,
        contents: &[Content],
    ) -> Result<Decided, ReadError> {
        let carried = row.carried.clone();
        let (request, attempt) = (action.request(), attempt_hash(&carried.signed));
        let joins = matches!(action.body, Body::ThreadJoin(..));
        let state = &self.sequencer.overlay;
        if index::is_sealed_in(state, &request, number)? {
            outbox::remove(&mut self.sequencer.overlay, &carried.object, &request)?;
            return Ok(Decided::Sealed);
        }
        if let Some(record) = state.get(Table::Outcomes, request.as_bytes())? {
            let record: OutcomeRecord = cbor::read_own(&record).map_err(|_| ReadError::damaged("an outcome"))?;
            outbox::remove(&mut self.sequencer.overlay, &carried.object, &request)?;
            return Ok(Decided::Ended(record.outcome));
        }
        if let Some(told) = state.get(Table::Refusals, &refusal_key(number, &attempt))? {
            let told: ToldRefusal = cbor::read_own(&told).map_err(|_| ReadError::damaged("a refusal"))?;
            return Ok(Decided::Ended(told.outcome));
        }
        // An attempt of another epoch is void: its author's host sees that in the log, and signs the next.
        let is_of_epoch = action.position.is_some_and(|position| position.epoch == head.epoch) || joins;
        if !is_of_epoch && matches!(Cells::new(&self.sequencer.overlay, number).reach(peer)?, Reach::Ended(_)) {
            // Its author's host cannot sign another, as it may not read the log any more.
            return self.refuse(peer, number, row, action, &Code::NotFound.into());
        }
        if !self.is_sealing() || !is_of_epoch || !self.is_undisturbed(number, action)? {
            return Ok(Decided::Waits(NOT_TAKEN_MS));
        }
        // What has expired is refused, whatever it waited for.
        if action.expires_at > self.now && self.waits_for(number, action, &carried.outcomes)? {
            self.keep_carried(number, row.clone(), action, contents)?;
            return Ok(Decided::Waits(NOT_TAKEN_MS));
        }
        // Sealed means held.
        let mut missing = false;
        let given: BTreeMap<Digest, &Content> =
            contents.iter().map(|content| (content.commitment().hash, content)).collect();
        let mut needed = Vec::new();
        action.body.contents(|commitment| needed.push(*commitment));
        for commitment in &needed {
            let there = given.get(&commitment.hash).is_some_and(|content| content.commitment() == *commitment);
            missing |= !there && self.sequencer.overlay.content(&commitment.hash)?.is_none();
        }
        if missing {
            return Ok(Decided::Waits(NOT_TAKEN_MS));
        }
        if joins {
            for caller in joiners(peer, action) {
                if let Err(wait) = self.rates().may_join(&caller) {
                    return Ok(Decided::Waits(wait.0));
                }
            }
        }
        if !action.body.is_free_exit()
            && let Some(agent) = action.agent()
            && let Err(wait) = self.rates().take(agent.as_bytes())
        {
            return Ok(Decided::Waits(wait.0));
        }
        let candidate = Candidate {
            evidence: carried.evidence.clone(),
            records: carried.records.clone(),
            ..Candidate::of(carried.object, carried.signed.to_vec())
        };
        let allowed = self.limits;
        let result = self.sequencer.act(candidate, |overlay, sealed| {
            if sealed.existing { Ok(()) } else { limits::check(overlay, sealed.number, action, allowed) }
        });
        match result {
            Ok(sealed) => self.sealed(&sealed, &carried, action, &given, &needed),
            Err(Stop::Unreadable(error)) => Err(error),
            Err(Stop::Refused(refusal)) => self.refuse(peer, number, row, action, &refusal),
        }
    }

    pub(super) fn sealed(
        &mut self,
        sealed: &Sealed,
        carried: &outbox::Carried,
        action: &Action,
        given: &BTreeMap<Digest, &Content>,
        needed: &[kwoon_keys::Commitment],
    ) -> Result<Decided, ReadError> {
        let own = self.own_host();
        let overlay = &mut self.sequencer.overlay;
        let request = action.request();
        outbox::remove(overlay, &carried.object, &request)?;
        self.retries = true;
        if sealed.existing {
            let record = overlay.get(Table::Outcomes, request.as_bytes())?;
            let record = record.ok_or_else(|| ReadError::damaged("an outcome is missing"))?;
            let record: OutcomeRecord = cbor::read_own(&record).map_err(|_| ReadError::damaged("an outcome"))?;
            return Ok(Decided::Ended(record.outcome));
        }
        for commitment in needed {
            if let Some(content) = given.get(&commitment.hash) {
                overlay.put_content(commitment, content.salt, content.bytes.to_vec());
            }
        }
        settle_contents(overlay, sealed.number, sealed.index, (&own, false), given)?;
        want_referred(overlay, sealed.number, sealed.index)?;
        // Who orders a log follows the identities of those who act in it, to learn what ends there.
        if let Some(agent) = action.agent() {
            let identity = ObjectId::Identity(agent);
            if index::number(overlay, &identity)?.is_none() {
                wanted::want_object(overlay, &identity, sealed.number);
            }
        }
        Ok(Decided::Sealed)
    }

    pub(super) fn refuse(
        &mut self,
        peer: &PublicKey,
        number: ObjectNumber,
        row: Outgoing,
        action: &Action,
        refusal: &Refusal,
    ) -> Result<Decided, ReadError> {
        let carried = &row.carried;
        let attempt = attempt_hash(&carried.signed);
        if refusal.code == Code::AdmissionInvalid {
            for caller in joiners(peer, action) {
                self.rates().join_failed(&caller);
            }
            let outcome = self.refused_join(action, &carried.object, attempt);
            if row.own {
                let progress = Progress::Refused(outcome.clone());
                outbox::put(&mut self.sequencer.overlay, action, Outgoing { progress, ..row })?;
            }
            return Ok(Decided::Ended(outcome));
        }
        // Failures of this host, and refusals of who is not known here, end nothing.
        let overlay = &mut self.sequencer.overlay;
        let known = match action.agent() {
            Some(agent) => Cells::new(overlay, number).account(&agent)?.is_some(),
            None => false,
        };
        let joins = matches!(action.body, Body::ThreadJoin(..));
        // What can take effect no more is refused whenever it comes, and nothing is kept of that.
        let log_time = log_time(overlay, number)?;
        let is_over = is_over(action.expires_at, log_time);
        let is_full = !is_over && clear_refusals(overlay, number, log_time)? >= REFUSALS_MAX;
        let passing = matches!(refusal.code, Code::Internal | Code::NotSealing | Code::RateLimited);
        if passing || !(known || joins) || is_full {
            return Ok(Decided::Waits(refusal.retry_after_ms.unwrap_or(NOT_TAKEN_MS)));
        }
        let head = Cells::new(overlay, number).head()?.ok_or_else(|| ReadError::damaged("a log without a head"))?;
        let details = refusal.details.iter().map(|(name, detail)| detail_of(name, detail)).collect();
        let (index, hash) = told_place(overlay, number, &head, action)?;
        let outcome = Outcome {
            schema: SCHEMA,
            request: action.request(),
            attempt,
            object: carried.object,
            epoch: head.epoch,
            index,
            head: hash,
            log_time: head.log_time.max(self.now),
            result: OutcomeResult::Refused(refusal.code.name().to_owned(), details),
        };
        let outcome: ByteVec = cose::sign(RecordKind::Outcome, &cbor::write(&outcome), &self.keyring.host).into();
        let told = ToldRefusal { outcome: outcome.clone(), request: action.request(), expires_at: action.expires_at };
        if !is_over {
            overlay.put(Table::Refusals, refusal_key(number, &attempt), cbor::write(&told));
        }
        if row.own {
            outbox::put(overlay, action, Outgoing { progress: Progress::Refused(outcome.clone()), ..row })?;
        } else if outbox::get(overlay, &carried.object, &action.request())?.is_some() {
            outbox::remove(overlay, &carried.object, &action.request())?;
            forget::drop_unsealed(overlay, action)?;
        }
        self.retries = true;
        Ok(Decided::Ended(outcome))
    }

    /// Whether something that an action names is not decided yet, so that it waits.
    pub(super) fn waits_for(
        &self,
        number: ObjectNumber,
        action: &Action,
        outcomes: &[ByteVec],
    ) -> Result<bool, ReadError> {
        let state = &self.sequencer.overlay;
        let shown = self.shown_ended(number, outcomes)?;
        for request in action.needs.iter().chain(&action.after) {
            if index::is_sealed_in(state, request, number)? || state.get(Table::Outcomes, request.as_bytes())?.is_some()
            {
                continue;
            }
            if shown.contains(request) {
                continue;
            }
            let mut refused = match log::object(state, number)? {
                Some(object) => outbox::get(state, &object, request)?.is_some_and(|row| !row.is_pending()),
                None => false,
            };
            for (_, told) in state.prefix(Table::Refusals, &number.to_be_bytes(), Order::Rising, REFUSALS_MAX)? {
                let told: ToldRefusal = cbor::read_own(&told).map_err(|_| ReadError::damaged("a refusal"))?;
                refused |= told.request == *request;
            }
            if !refused {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Requests that one of the log's sequencers ended without a fact, by the outcomes that came along.
    pub(super) fn shown_ended(&self, number: ObjectNumber, outcomes: &[ByteVec]) -> Result<Vec<RequestId>, ReadError> {
        let cells = Cells::new(&self.sequencer.overlay, number);
        let mut ended = Vec::new();
        for signed in outcomes.iter().take(2 * LINKS_MAX) {
            let Ok(payload) = cose::payload(RecordKind::Outcome, signed) else { continue };
            let Ok(outcome) = cbor::read_lenient::<Outcome>(payload) else { continue };
            let Some(epoch) = cells.epoch(outcome.epoch)? else { continue };
            if cose::verify(RecordKind::Outcome, signed, &epoch.sequencer).is_ok() {
                ended.push(outcome.request);
            }
        }
        Ok(ended)
    }

    /// Passes an action on: it is kept until its sequencer can be reached, if it is of a member of the log and may be read
    /// by whoever brought it.
    pub(super) fn pass_on(
        &mut self,
        peer: &PublicKey,
        number: ObjectNumber,
        row: Outgoing,
        action: &Action,
        contents: &[Content],
    ) -> Result<Option<Verdict>, ReadError> {
        let attempt = attempt_hash(&row.carried.signed);
        let state = &self.sequencer.overlay;
        let cells = Cells::new(state, number);
        // What ended it is known here already.
        if index::is_sealed_in(state, &action.request(), number)? {
            return self.sealed_for(peer, number, action);
        }
        if let Some(kept) = outbox::get(state, &row.carried.object, &action.request())?
            && kept.carried.signed == row.carried.signed
        {
            return Ok(match kept.progress {
                Progress::Refused(outcome) => Some(Verdict::Ended(outcome, Vec::new())),
                Progress::Pending | Progress::Expired => Some(Verdict::PassedOn(attempt)),
            });
        }
        // One of another epoch is void.
        let epoch = cells.head()?.map(|head| head.epoch);
        if action.position.map(|position| position.epoch) != epoch {
            return Ok(None);
        }
        if cells.readers(peer)? == 0 {
            return Ok(None);
        }
        let kept = self.keep_carried(number, row, action, contents)?;
        Ok(kept.then_some(Verdict::PassedOn(attempt)))
    }

    /// Keeps an action of another host's agent, with the contents that agents here may read: if a member signed it, and
    /// there is room for it.
    pub(super) fn keep_carried(
        &mut self,
        number: ObjectNumber,
        row: Outgoing,
        action: &Action,
        contents: &[Content],
    ) -> Result<bool, ReadError> {
        let overlay = &mut self.sequencer.overlay;
        if !is_by_member(overlay, number, &row, action)? {
            return Ok(false);
        }
        let kept = outbox::get(overlay, &row.carried.object, &action.request())?;
        let is_kept = kept.is_some_and(|kept| kept.carried.signed == row.carried.signed);
        if !is_kept && !row.own && !has_room_for(overlay, &row, action)? {
            // What ended is kept to be told again, as long as there is room.
            clear_passed_on(overlay, &row.carried.object, None)?;
            if !has_room_for(overlay, &row, action)? {
                return Ok(false);
            }
        }
        let given: BTreeMap<Digest, &Content> =
            contents.iter().map(|content| (content.commitment().hash, content)).collect();
        let mut needed = Vec::new();
        action.body.contents(|commitment| needed.push(*commitment));
        for commitment in needed {
            if let Some(content) = given.get(&commitment.hash)
                && content.commitment() == commitment
            {
                overlay.put_content(&commitment, content.salt, content.bytes.to_vec());
            }
        }
        if !is_kept {
            outbox::put(overlay, action, row)?;
        }
        Ok(true)
    }

    /// Decides what is in the outbox for logs that this host orders, where what it waited for has come.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn try_carried(&mut self) -> Result<(), ReadError> {
        let own = self.own_host();
        while std::mem::take(&mut self.retries) {
            let mut from = 0;
            loop {
                let page = outbox::since(&self.sequencer.overlay, from, PASSED_ON_MAX)?;
                let Some(last) = page.last().map(|row| row.order) else { break };
                from = last.saturating_add(1);
                for row in page.into_iter().filter(Outgoing::is_pending) {
                    let state = &self.sequencer.overlay;
                    let Some(number) = index::number(state, &row.carried.object)? else { continue };
                    if !log::is_ordered_by(state, &own, number)? {
                        continue;
                    }
                    let Some(head) = Cells::new(state, number).head()? else { continue };
                    let action = row.carried.action()?;
                    self.decide_carried(&own, number, &head, row, &action, &[])?;
                }
            }
        }
        Ok(())
    }
}

/// The place in a log that its actor may know of: the head, or the fact that ended the last right to it.
fn told_place(read: &dyn Read, number: ObjectNumber, head: &Head, action: &Action) -> Result<(u64, Digest), ReadError> {
    let cells = Cells::new(read, number);
    let account = action.agent().map_or(Ok(None), |agent| cells.account(&agent))?;
    let mut until = None;
    for instance in account.iter().flat_map(|account| &account.instances) {
        match cells.reach(&instance.host)? {
            Reach::Whole => return Ok((head.index, head.hash)),
            Reach::Ended(index) => until = until.max(Some(index)),
            Reach::Nothing => {}
        }
    }
    let Some(index) = until else { return Ok((head.index, head.hash)) };
    let hash = log::head_at(read, number, head, index)?.unwrap_or(head.hash);
    Ok((index, hash))
}

/// Whether a member of the log signed an action.
fn is_by_member(read: &dyn Read, number: ObjectNumber, row: &Outgoing, action: &Action) -> Result<bool, ReadError> {
    let cells = Cells::new(read, number);
    let Actor::Agent(agent, instance) = action.actor else { return Ok(false) };
    let Some(account) = cells.account(&agent)? else { return Ok(false) };
    let signed = account
        .instance(instance)
        .is_some_and(|instance| cose::verify(RecordKind::Action, &row.carried.signed, &instance.signing_key).is_ok());
    Ok(signed && cells.member(&agent)?.is_some())
}

/// Whether there is room for one more action that is passed on: of its object, and of the host that brought it.
fn has_room_for(read: &dyn Read, row: &Outgoing, action: &Action) -> Result<bool, ReadError> {
    let more = row.weight(action);
    let has_room =
        |(actions, bytes): (u64, u64), most| actions < most && bytes.saturating_add(more) <= PASSED_ON_BYTES_MAX;
    let of_object = PassedOn::On(&row.carried.object).amount(read)?;
    let of_host = row.brought_by.as_ref().map_or(Ok((0, 0)), |host| PassedOn::By(host).amount(read))?;
    Ok(has_room(of_object, PASSED_ON_MAX as u64) && has_room(of_host, BROUGHT_MAX))
}

/// Who counts as having tried to join: the agent, and the host that it came through.
pub(super) fn joiners(peer: &PublicKey, action: &Action) -> Vec<[u8; 32]> {
    action.agent().map(|agent| *agent.as_bytes()).into_iter().chain([peer.0]).collect()
}

/// A detail of a refusal as it is signed. Names alone, and never what a participant wrote.
fn detail_of(name: &str, detail: &Detail) -> RefusalDetail {
    let value = match detail {
        Detail::Word(word) => DetailValue::Text((*word).to_owned()),
        Detail::Text(text) => DetailValue::Text(text.clone()),
        Detail::Number(number) => DetailValue::Number(*number),
    };
    RefusalDetail { name: name.to_owned(), value }
}
