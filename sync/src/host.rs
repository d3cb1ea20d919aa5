//! The host: requests in, a commit and replies out. It has no clock, no randomness and no store of its own; time and
//! entropy are given to it, and it reads through [`Read`].
//!
//! One round at a time: [`Host::take`] decides a group of requests over one state and says what is to be committed;
//! nothing of it may be told before [`Host::committed`] hands out the replies.

use std::sync::Arc;

use kwoon_keys::id::{AgentId, RequestId, ThreadId};
use kwoon_keys::secret::{InstanceKeys, request_id};
use kwoon_keys::{Commitment, Digest, RecordKind, RequestSecret, Salt, cbor, cose};
use kwoon_ledger::action::{Action, Actor, Body, ObjectId, Position, SCHEMA};
use kwoon_ledger::clock;
use kwoon_ledger::fact::{Evidence, Origin};
use kwoon_ledger::index;
use kwoon_ledger::limits::{ACTION_VALIDITY, Limits};
use kwoon_ledger::refusal::{Code, Detail, Refusal, Step, Stop, require};
use kwoon_ledger::rules;
use kwoon_ledger::sequencer::{Candidate, Sequencer};
use kwoon_ledger::state::{Cells, Head, ObjectNumber};
use kwoon_ledger::storage::{Batch, Read, ReadError, Table};
use kwoon_ledger::time::{Duration, Time};
use serde_json::Value;

use crate::answer::{Answer, Contents, Next, Secret, internal};
use crate::argument::{ActionRef, AgentRef, Arguments, Key};
use crate::keyring::Keyring;
use crate::operations::{Operation, limits};
use crate::rate::Rates;
use crate::receipt::{self, Envelope};
use crate::ticket::Ticket;
use crate::view::{self, Caller};

const LAST_TIME: &[u8] = b"last_time";
/// How often a host with nothing to commit records the time.
pub const RECORD_INTERVAL: Duration = Duration::minutes(1);
/// Deadlines sealed in one round, so that a long list of them holds nobody up.
const EXPIRIES_PER_ROUND: usize = 1024;

/// A request that acts.
pub struct Request {
    /// Who calls.
    pub caller: Caller,
    /// What.
    pub operation: &'static Operation,
    /// With which arguments.
    pub arguments: Arguments,
    /// 32 random bytes, from which whatever the request needs at random is derived.
    pub entropy: [u8; 32],
    /// The trace that the call belongs to, 32 hex digits (W3C Trace Context).
    pub trace_id: Option<String>,
}

/// A reply, and to which of the requests.
pub type Reply<T> = (T, Result<Answer, Refusal>);

/// See the module. `T` names a request to its driver.
pub struct Host<T> {
    keyring: Arc<Keyring>,
    limits: Arc<Limits>,
    rates: Rates,
    last_time: Option<Time>,
    round: Option<Waiting<T>>,
}

struct Waiting<T> {
    replies: Vec<Reply<T>>,
    keys: Vec<InstanceKeys>,
    recorded: Option<Time>,
}

impl<T> Host<T> {
    /// The host of these keys over a store in this state.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn new(keyring: Keyring, limits: Limits, read: &dyn Read) -> Result<Self, ReadError> {
        let last_time = match read.get(Table::Meta, LAST_TIME)? {
            Some(bytes) => Some(Time(kwoon_ledger::state::number_at_end(&bytes)?)),
            None => None,
        };
        Ok(Self {
            keyring: Arc::new(keyring),
            limits: Arc::new(limits),
            rates: Rates::default(),
            last_time,
            round: None,
        })
    }

    /// The keys, as of the last commit.
    pub fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.keyring)
    }

    /// The limits.
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.limits)
    }

    /// The last time that was recorded.
    pub fn last_time(&self) -> Option<Time> {
        self.last_time
    }

    /// Whether the host would seal at this time, or why not (design: time is log time).
    ///
    /// # Errors
    /// The reason, as it is shown.
    pub fn sealing(&self, now: Time) -> Result<(), &'static str> {
        clock::check(self.last_time, now).map_err(clock::Jump::name)
    }

    /// When the host next has something to do by itself: a deadline, or recording the time.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn wake_at(&self, read: &dyn Read, now: Time) -> Result<Time, ReadError> {
        let record = now.after(RECORD_INTERVAL);
        if self.sealing(now).is_err() {
            return Ok(record);
        }
        Ok(match index::next_due(read)? {
            Some((due, _)) => due.clamp(now, record),
            None => record,
        })
    }

    /// Takes a group of requests: decides them in this order, after the deadlines that have come, and says what is to be
    /// committed. With no requests it does what is due.
    ///
    /// # Panics
    /// If the round before was not ended by [`Host::committed`].
    pub fn take(&mut self, read: &dyn Read, now: Time, requests: Vec<(T, Request)>) -> Batch {
        assert!(self.round.is_none(), "a round is ended before the next begins");
        let keyring = Arc::clone(&self.keyring);
        let limits = Arc::clone(&self.limits);
        let sealing = self.sealing(now);
        let mut round = Round {
            sequencer: Sequencer::new(read, &keyring.host, now),
            keyring: &keyring,
            limits: &limits,
            rates: &mut self.rates,
            sealing,
            confirmed: false,
            now,
        };
        let expired = if sealing.is_ok() { round.sequencer.expire(EXPIRIES_PER_ROUND) } else { Ok(0) };
        let mut replies = Vec::with_capacity(requests.len());
        for (ticket, request) in requests {
            let reply = match &expired {
                Ok(_) => round.answer(request),
                Err(error) => Err(Stop::Unreadable(error.clone())),
            };
            replies.push((ticket, reply.map_err(to_refusal)));
        }
        let confirmed = round.confirmed;
        let mut batch = match (expired, round.sequencer.finish()) {
            (Ok(_), Ok(batch)) => batch,
            (Err(_), _) | (_, Err(_)) => {
                // Nothing of the round is kept if the store cannot be read.
                for (_, reply) in &mut replies {
                    *reply = Err(internal());
                }
                Batch::default()
            }
        };
        // The time is recorded with every commit, each minute, and when the owner confirms it.
        let due = self.last_time.is_none_or(|last| now.since(last) >= RECORD_INTERVAL);
        let recorded = (confirmed || sealing.is_ok() && (due || !batch.is_empty())).then_some(now);
        if let Some(time) = recorded {
            batch.rows.insert((Table::Meta, LAST_TIME.to_vec()), Some(time.0.to_be_bytes().to_vec()));
        }
        let keys = batch.keys.clone();
        self.round = Some(Waiting { replies, keys, recorded });
        batch
    }

    /// Ends a round: its batch was committed, or not. Hands out the replies.
    pub fn committed(&mut self, committed: bool) -> Vec<Reply<T>> {
        let Some(Waiting { mut replies, keys, recorded }) = self.round.take() else { return Vec::new() };
        if committed {
            if !keys.is_empty() {
                let keyring = Arc::make_mut(&mut self.keyring);
                keys.into_iter().for_each(|keys| keyring.add(keys));
            }
            // A confirmed clock may lie behind the last time recorded.
            self.last_time = recorded.or(self.last_time);
        } else {
            for (_, reply) in &mut replies {
                *reply = Err(internal());
            }
        }
        replies
    }
}

/// A stop as a caller sees it. That the store cannot be read is for the daemon's log.
pub fn to_refusal(stop: Stop) -> Refusal {
    match stop {
        Stop::Refused(refusal) => refusal,
        Stop::Unreadable(_) => internal(),
    }
}

/// A group of requests under way.
pub struct Round<'a> {
    /// The state, and what was decided so far.
    pub sequencer: Sequencer<'a>,
    /// The host's keys.
    pub keyring: &'a Keyring,
    /// What the host allows.
    pub limits: &'a Limits,
    rates: &'a mut Rates,
    /// Whether the host seals, or why not.
    pub sealing: Result<(), &'static str>,
    /// Whether the owner confirmed the clock in this round.
    confirmed: bool,
    /// The wall time.
    pub now: Time,
}

/// What every acting call carries beside its own arguments.
pub struct Call {
    /// What it is called.
    pub operation: &'static str,
    /// The idempotency key.
    pub key: String,
    /// The arguments in a canonical form, for the request digest.
    pub canonical: Vec<u8>,
    /// Random bytes.
    pub entropy: [u8; 32],
    /// The trace that the call belongs to.
    pub trace_id: Option<String>,
}

/// What an operation of an agent wants.
pub struct Plan {
    /// The object; none if the action creates it.
    pub object: Option<ObjectId>,
    /// What is asked of it.
    pub body: Body,
    /// The position that a join takes from its ticket.
    pub position: Option<Position>,
    /// Evidence from other logs.
    pub evidence: Vec<Evidence>,
    /// Where a memory without a log came from.
    pub origin: Option<Origin>,
}

impl Plan {
    /// Something asked of an object.
    pub fn on(object: ObjectId, body: Body) -> Self {
        Self { object: Some(object), body, position: None, evidence: Vec::new(), origin: None }
    }

    /// Something new.
    pub fn new(body: Body) -> Self {
        Self { object: None, body, position: None, evidence: Vec::new(), origin: None }
    }
}

/// An agent about to act: what a plan is made with.
pub struct Acting<'r, 'a> {
    /// The round.
    pub round: &'r mut Round<'a>,
    /// The agent.
    pub agent: AgentId,
    /// The request.
    pub request: RequestId,
    secret: &'r RequestSecret,
    contents: Vec<(Commitment, Salt, Vec<u8>)>,
}

impl Acting<'_, '_> {
    /// The state with what was decided so far.
    pub fn read(&self) -> &dyn Read {
        &self.round.sequencer.overlay
    }

    /// Commits to a text in a field of the request at a place: the object, or the creating host.
    pub fn commit(&mut self, place: &[u8; 32], field: &str, text: &str) -> Commitment {
        let salt = self.secret.salt(&self.request, place, field);
        let commitment = Commitment::to(&salt, text.as_bytes());
        self.contents.push((commitment, salt, text.as_bytes().to_vec()));
        commitment
    }

    /// The key pair of an admission that this request issues at a place.
    pub fn admission(&self, place: &[u8; 32]) -> kwoon_keys::KeyPair {
        self.secret.admission(&self.request, place)
    }

    /// This host's id.
    pub fn host(&self) -> [u8; 32] {
        self.round.keyring.host.public().0
    }
}

impl Round<'_> {
    /// Answers one request.
    ///
    /// # Errors
    /// If it is refused, or the store cannot be read.
    fn answer(&mut self, request: Request) -> Result<Answer, Stop> {
        let Request { caller, operation, mut arguments, entropy, trace_id } = request;
        operation.check_caller(caller, true)?;
        let key = take_control::<Key>(&mut arguments, "idempotency_key")?;
        take_control::<crate::argument::WaitMs>(&mut arguments, "wait_ms")?;
        let after = take_control_kept::<Vec<ActionRef>>(&arguments, "after")?.unwrap_or_default();
        let mut own = arguments.clone();
        own.remove("after");
        let key = match key {
            Some(key) => key.0,
            None => kwoon_keys::id::base32().encode(&Digest::keyed("kwoon 1 made key", &entropy, &[]).short()),
        };
        let canonical = self.canonical(&arguments)?;
        let call = Call { operation: operation.name, key, canonical, entropy, trace_id };
        operation.act(self, caller, call, &after, own)
    }

    /// The arguments as given, in a form that does not depend on their order: nulls left out, keys sorted, and an entry
    /// named by its action the same as by its number. Only an entry of the very thread that is named has a number here,
    /// so that two requests are never the same by what stands elsewhere (L3.2).
    fn canonical(&self, arguments: &Arguments) -> Result<Vec<u8>, ReadError> {
        let mut arguments = arguments.clone();
        let thread = arguments.get("thread").and_then(Value::as_str).and_then(ThreadId::read);
        for field in ["entry", "reply_to"] {
            let named = arguments.get(field).and_then(Value::as_str).and_then(RequestId::read);
            if let (Some(thread), Some(short)) = (thread, named)
                && let Some(number) = self.entry_number(&thread, &short)?
            {
                arguments.insert(field.to_owned(), number.into());
            }
        }
        // To come after nothing is the same as not to say.
        if arguments.get("after").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            arguments.remove("after");
        }
        let mut bytes = Vec::new();
        write_canonical(&Value::Object(arguments), &mut bytes);
        Ok(bytes)
    }

    fn entry_number(&self, thread: &index::Short, short: &index::Short) -> Result<Option<u64>, ReadError> {
        let read = &self.sequencer.overlay;
        let Some(request) = crate::operations::request_id_of(read, short)? else { return Ok(None) };
        match index::find(read, index::IdKind::Thread, thread)? {
            Some(index::Place::Log(number)) => Cells::new(read, number).entry_of(&request),
            _ => Ok(None),
        }
    }

    /// The answer to a request that already ended with a success: its receipt, without the secret (L3.1, L3.4).
    fn replay(&self, request: &RequestId, digest: &Digest) -> Result<Option<Answer>, Stop> {
        let read = &self.sequencer.overlay;
        let Some(ended) = receipt::ended(read, request)? else { return Ok(None) };
        // L3.2
        require(ended.action.request_digest == *digest, Code::IdempotencyConflict)?;
        let (receipt, done) = receipt::receipt(read, &ended)?;
        let mut answer = Answer::new(&done, Contents::new(read))?;
        answer.receipt = Some(receipt);
        answer.next = match ended.action.agent() {
            Some(agent) => view::next(read, &agent, self.now)?,
            None => vec![Next::step(Step::Done)],
        };
        Ok(Some(answer))
    }

    /// Counts an action, and says whether it is within the rate. What else is wrong with it is told first.
    fn count(&mut self, caller: &[u8; 32], operation: &str) -> Result<(), Refusal> {
        // L4.1: the exits that depend on nobody are never rate limited.
        if matches!(operation, "entry_handle" | "assignment_abandon" | "assignment_accept") {
            return Ok(());
        }
        self.rates.take(caller, self.limits, self.now).map_err(rate_limited)
    }

    fn check_sealing(&self) -> Result<(), Refusal> {
        self.sealing.map_err(|reason| Refusal::from(Code::NotSealing).with("reason", Detail::Word(reason)))
    }

    /// Acts for an agent: the whole way from what it asked to the sealed fact.
    ///
    /// # Errors
    /// If it is refused, in the order of checks of the interface, or the store cannot be read.
    pub fn act_as_agent(
        &mut self,
        agent: AgentId,
        call: Call,
        after: &[ActionRef],
        plan: impl FnOnce(&mut Acting<'_, '_>) -> Result<Plan, Stop>,
    ) -> Result<Answer, Stop> {
        let keyring = self.keyring;
        let keys = keyring.agent(&agent).ok_or(Code::Unauthenticated)?;
        for (generation, request) in keyring.request_ids(&agent, call.operation, &call.key) {
            let digest = keys.secrets[generation as usize].request_digest(&call.canonical);
            if let Some(answer) = self.replay(&request, &digest)? {
                return Ok(answer);
            }
        }
        require(view::is_active(&self.sequencer.overlay, &agent)?, Code::AgentInactive)?;
        self.check_sealing()?;
        let rate = self.count(agent.as_bytes(), call.operation);
        if call.operation == "thread_join" {
            self.rates.may_join(agent.as_bytes(), self.limits, self.now).map_err(rate_limited)?;
        }
        let result = self.act_now(agent, keys, &call, after, rate, plan);
        if let ("thread_join", Err(Stop::Refused(Refusal { code: Code::AdmissionInvalid, .. }))) =
            (call.operation, &result)
        {
            self.rates.join_failed(agent.as_bytes(), self.now);
        }
        result
    }

    fn act_now(
        &mut self,
        agent: AgentId,
        keys: &InstanceKeys,
        call: &Call,
        after: &[ActionRef],
        rate: Result<(), Refusal>,
        plan: impl FnOnce(&mut Acting<'_, '_>) -> Result<Plan, Stop>,
    ) -> Result<Answer, Stop> {
        let (generation, secret) = keys.secret();
        let token = secret.token(call.operation, &call.key);
        let request = request_id(agent.as_bytes(), &token);
        let after = self.decided(&agent, after)?;
        let mut acting = Acting { round: self, agent, request, secret, contents: Vec::new() };
        let plan = plan(&mut acting)?;
        let contents = acting.contents;
        let account = view::account(&self.sequencer.overlay, &agent)?.ok_or(Code::Internal)?;
        let host = self.keyring.host.public();
        let key = keys.signing.public();
        let instance = account.instances.iter().find(|entry| entry.signing_key == key && entry.host == host);
        let instance = instance.ok_or(Code::AgentInactive)?.id();
        let head = self.head(plan.object.as_ref())?;
        let position = plan.position.or_else(|| head.as_ref().map(position_of));
        let issued_at = self.issue_time(head.as_ref());
        let action = Action {
            schema: SCHEMA,
            actor: Actor::Agent(agent, instance),
            object: plan.object,
            position,
            token,
            request_digest: secret.request_digest(&call.canonical),
            attempt: 0,
            generation,
            issued_at,
            expires_at: issued_at.after(ACTION_VALIDITY),
            needs: Vec::new(),
            after,
            body: plan.body,
        };
        let object = plan.object.or_else(|| rules::created(&action, &host.0)).ok_or(Code::Internal)?;
        let signed = cose::sign(RecordKind::Action, &cbor::write(&action), &keys.signing);
        let candidate = Candidate { object, signed, evidence: plan.evidence, origin: plan.origin };
        let allowed = self.limits;
        let sealed = self.sequencer.act(candidate, |overlay, sealed| {
            rate?;
            if sealed.existing { Ok(()) } else { limits::check(overlay, sealed.number, &action, allowed) }
        })?;
        self.keep(&request, call, if sealed.existing { Vec::new() } else { contents });
        let ended = receipt::Ended { action, number: sealed.number, index: sealed.index, existing: sealed.existing };
        self.first_answer(&ended, secret, agent)
    }

    /// The first success of a request, the only one that shows a secret.
    fn first_answer(&self, ended: &receipt::Ended, secret: &RequestSecret, agent: AgentId) -> Result<Answer, Stop> {
        let read = &self.sequencer.overlay;
        let (receipt, done) = receipt::receipt(read, ended)?;
        let mut answer = Answer::new(&done, Contents::new(read))?;
        answer.receipt = Some(receipt);
        answer.next = view::next(read, &agent, self.now)?;
        let place = match &ended.action.body {
            Body::ThreadCreate(create) if create.admission.is_some() => Some(self.keyring.host.public().0),
            Body::AdmissionIssue(_) => ended.action.object.map(|object| *object.digest().as_bytes()),
            _ => None,
        };
        if let Some(place) = place {
            let admission = secret.admission(&ended.action.request(), &place);
            answer.secret = Some(Secret::Ticket(self.ticket(ended.number, &admission)?.text()));
        }
        Ok(answer)
    }

    fn ticket(&self, number: ObjectNumber, admission: &kwoon_keys::KeyPair) -> Result<Ticket, Stop> {
        let cells = Cells::new(&self.sequencer.overlay, number);
        let (thread, head) = (cells.thread()?, cells.head()?.ok_or(Code::Internal)?);
        let opening = kwoon_ledger::log::head_at(&self.sequencer.overlay, number, &head, 0)?;
        let hosts = vec![head.sequencer];
        Ok(Ticket::new(thread.thread, opening.ok_or(Code::Internal)?, admission, hosts))
    }

    /// The ids of an agent's own actions that it wants decided first.
    fn decided(&self, agent: &AgentId, after: &[ActionRef]) -> Result<Vec<RequestId>, Stop> {
        let read = &self.sequencer.overlay;
        let mut decided = Vec::new();
        for reference in after {
            let request = crate::operations::request_id_of(read, &reference.0)?;
            let ended = match request {
                Some(request) => receipt::ended(read, &request)?.filter(|ended| ended.action.agent() == Some(*agent)),
                None => None,
            };
            // On one host nothing is pending, so an action that is not decided is none at all.
            let ended = ended.ok_or_else(|| Refusal::argument("after", "actions of your own"))?;
            decided.push(ended.action.request());
        }
        decided.sort();
        decided.dedup();
        Ok(decided)
    }

    fn head(&self, object: Option<&ObjectId>) -> Result<Option<Head>, ReadError> {
        let read = &self.sequencer.overlay;
        let number = object.map(|object| index::number(read, object)).transpose()?.flatten();
        number.map_or(Ok(None), |number| Cells::new(read, number).head())
    }

    /// When an action on a log is issued: now, but never before the log's own time. After the owner confirmed a clock that
    /// was wrong, that time can lie years ahead, and an action issued by the right clock would be expired there.
    fn issue_time(&self, head: Option<&Head>) -> Time {
        head.map_or(self.now, |head| head.log_time.max(self.now))
    }

    /// The owner's word that the clock is right: sealing goes on, first of all with the deadlines that have come.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn confirm_clock(&mut self) -> Result<(), ReadError> {
        self.confirmed = true;
        self.sealing = Ok(());
        self.sequencer.expire(EXPIRIES_PER_ROUND)?;
        Ok(())
    }

    /// Keeps what stands beside the action: its content, and what the agent called it.
    fn keep(&mut self, request: &RequestId, call: &Call, contents: Vec<(Commitment, Salt, Vec<u8>)>) {
        let envelope = Envelope { key: call.key.clone(), received_at: self.now, trace_id: call.trace_id.clone() };
        let overlay = &mut self.sequencer.overlay;
        overlay.put(Table::Envelopes, request.as_bytes().to_vec(), cbor::write(&envelope));
        for (commitment, salt, bytes) in contents {
            overlay.put_content(&commitment, salt, bytes);
        }
    }

    /// Acts for the owner: an identity record, signed with the owner's key.
    ///
    /// # Errors
    /// If it is refused, or the store cannot be read.
    pub fn act_as_owner(
        &mut self,
        call: Call,
        plan: impl FnOnce(&mut Owning<'_, '_>) -> Result<OwnerPlan, Stop>,
    ) -> Result<Answer, Stop> {
        let keyring = self.keyring;
        let owner = keyring.owner.public();
        let secret = keyring.owner_secret();
        let token = secret.token(call.operation, &call.key);
        let request = request_id(&owner.0, &token);
        let request_digest = secret.request_digest(&call.canonical);
        if let Some(answer) = self.replay(&request, &request_digest)? {
            return Ok(answer);
        }
        self.check_sealing()?;
        let rate = self.count(&owner.0, call.operation);
        let mut owning = Owning { round: self, request, secret, entropy: call.entropy, contents: Vec::new() };
        let plan = plan(&mut owning)?;
        let contents = owning.contents;
        let object = plan.object.map(ObjectId::Identity);
        let head = self.head(object.as_ref())?;
        let issued_at = self.issue_time(head.as_ref());
        let action = Action {
            schema: SCHEMA,
            actor: Actor::Owner(owner),
            object,
            position: head.as_ref().map(position_of),
            token,
            request_digest,
            attempt: 0,
            generation: 0,
            issued_at,
            expires_at: issued_at.after(ACTION_VALIDITY),
            needs: Vec::new(),
            after: Vec::new(),
            body: plan.body,
        };
        let payload = cbor::write(&action);
        let agent = plan.object.unwrap_or(AgentId(rules::identity::record_hash(&payload)));
        let signed = cose::sign(RecordKind::Action, &payload, &keyring.owner);
        let candidate = Candidate { object: ObjectId::Identity(agent), signed, evidence: Vec::new(), origin: None };
        let allowed = self.limits;
        let sealed = self.sequencer.act(candidate, |overlay, sealed| {
            rate?;
            if sealed.existing { Ok(()) } else { limits::check(overlay, sealed.number, &action, allowed) }
        })?;
        self.keep(&request, &call, contents);
        let mut answer = {
            let read = &self.sequencer.overlay;
            let ended = receipt::Ended { action, number: sealed.number, index: sealed.index, existing: false };
            let (receipt, done) = receipt::receipt(read, &ended)?;
            let mut answer = Answer::new(&done, Contents::new(read))?;
            answer.receipt = Some(receipt);
            answer.next = vec![Next::step(Step::Done)];
            answer
        };
        if let Some((name, mut keys)) = plan.instance {
            keys.agent = agent;
            self.sequencer.overlay.batch.keys.push(keys);
            self.sequencer.overlay.put(Table::Meta, name_key(&name), cbor::write(&agent));
            answer.secret = Some(Secret::TokenOf(name));
        }
        Ok(answer)
    }
}

/// What an operation of an owner wants.
pub struct OwnerPlan {
    /// The agent; none for a new one.
    pub object: Option<AgentId>,
    /// The identity record's body.
    pub body: Body,
    /// Of a new agent: its name here, and the keys of its first instance (whose agent is filled in).
    pub instance: Option<(String, InstanceKeys)>,
}

/// An owner about to act.
pub struct Owning<'r, 'a> {
    /// The round.
    pub round: &'r mut Round<'a>,
    /// The request.
    pub request: RequestId,
    secret: &'r RequestSecret,
    entropy: [u8; 32],
    contents: Vec<(Commitment, Salt, Vec<u8>)>,
}

impl Owning<'_, '_> {
    /// The state with what was decided so far.
    pub fn read(&self) -> &dyn Read {
        &self.round.sequencer.overlay
    }

    /// Commits to a text in a field of the request at a place: the agent, or the creating host for a new one.
    pub fn commit(&mut self, place: &[u8; 32], field: &str, text: &str) -> Commitment {
        let salt = self.secret.salt(&self.request, place, field);
        let commitment = Commitment::to(&salt, text.as_bytes());
        self.contents.push((commitment, salt, text.as_bytes().to_vec()));
        commitment
    }

    /// 32 random bytes for one purpose.
    pub fn random(&self, purpose: &str) -> [u8; 32] {
        Digest::keyed("kwoon 1 entropy", &self.entropy, &[purpose.as_bytes()]).0
    }
}

fn position_of(head: &Head) -> Position {
    Position { epoch: head.epoch, index: head.index, head: head.hash }
}

/// Where the agent of a local name is noted.
pub fn name_key(name: &str) -> Vec<u8> {
    let mut key = b"name/".to_vec();
    key.extend_from_slice(name.as_bytes());
    key
}

/// The agents of this host by their local names.
///
/// # Errors
/// If the store cannot be read.
pub fn names(read: &dyn Read) -> Result<Vec<(String, AgentId)>, ReadError> {
    let rows = read.prefix(Table::Meta, &name_key(""), kwoon_ledger::storage::Order::Rising, usize::MAX)?;
    rows.into_iter()
        .map(|(key, value)| {
            let name = String::from_utf8(key[5..].to_vec()).map_err(|_| ReadError::damaged("a name"))?;
            let agent = cbor::read_own(&value).map_err(|_| ReadError::damaged("a name"))?;
            Ok((name, agent))
        })
        .collect()
}

/// Takes `as` out of the arguments of a read: the agent of this host as which an owner reads.
///
/// # Errors
/// [`Code::NotFound`] if no such agent lives here; an agent that gives it is told that there is no such argument.
pub fn take_as(
    mut arguments: Arguments,
    caller: Caller,
    keyring: &Keyring,
) -> Result<(Arguments, Option<AgentId>), Refusal> {
    if caller != Caller::Owner {
        return Ok((arguments, None));
    }
    let Some(AgentRef(short)) = take_control::<AgentRef>(&mut arguments, "as")? else { return Ok((arguments, None)) };
    let agent = keyring.agents().find(|agent| agent.0.short() == short).copied();
    Ok((arguments, Some(agent.ok_or(Code::NotFound)?)))
}

fn rate_limited(wait: Duration) -> Refusal {
    let mut refusal = Refusal::from(Code::RateLimited);
    refusal.retry_after_ms = Some(wait.0);
    refusal
}

/// Takes an argument that every acting call has out of the arguments.
///
/// # Errors
/// If it is not of the form it must have.
pub fn take_control<C: serde::de::DeserializeOwned>(
    arguments: &mut Arguments,
    name: &str,
) -> Result<Option<C>, Refusal> {
    let value = take_control_kept(arguments, name)?;
    arguments.remove(name);
    Ok(value)
}

/// The same, and leaves it there.
fn take_control_kept<C: serde::de::DeserializeOwned>(arguments: &Arguments, name: &str) -> Result<Option<C>, Refusal> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let mut single = Arguments::new();
            single.insert(name.to_owned(), value.clone());
            let mut parsed: std::collections::BTreeMap<String, C> = crate::argument::parse(single)?;
            Ok(parsed.remove(name))
        }
    }
}

fn write_canonical(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().filter(|(_, value)| !value.is_null()).collect();
            keys.sort_by_key(|(key, _)| key.as_bytes());
            bytes.push(b'{');
            for (key, value) in keys {
                bytes.extend_from_slice(Value::String(key.clone()).to_string().as_bytes());
                bytes.push(b':');
                write_canonical(value, bytes);
                bytes.push(b',');
            }
            bytes.push(b'}');
        }
        Value::Array(items) => {
            bytes.push(b'[');
            for item in items {
                write_canonical(item, bytes);
                bytes.push(b',');
            }
            bytes.push(b']');
        }
        scalar => bytes.extend_from_slice(scalar.to_string().as_bytes()),
    }
}
