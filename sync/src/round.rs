//! A round: a group of requests under way. From what an agent or owner asks to the sealed fact and its answer.

use kwoon_keys::id::{AgentId, RequestId, ThreadId};
use kwoon_keys::secret::{InstanceKeys, request_id};
use kwoon_keys::{Commitment, Digest, RecordKind, RequestSecret, Salt, cbor, cose};
use kwoon_ledger::action::{Action, Actor, Body, ObjectId, Position, SCHEMA};
use kwoon_ledger::fact::{Evidence, Origin};
use kwoon_ledger::index;
use kwoon_ledger::limits::{ACTION_VALIDITY, LINKS_MAX, Limits};
use kwoon_ledger::refusal::{Code, Detail, Refusal, Step, Stop, require};
use kwoon_ledger::rules;
use kwoon_ledger::sequencer::{Candidate, Sealed, Sequencer};
use kwoon_ledger::state::{Cells, Head, ObjectNumber};
use kwoon_ledger::storage::{Read, ReadError, Table};
use kwoon_ledger::time::{Duration, Time};
use serde_json::Value;

use crate::answer::{Answer, Contents, Next, Secret};
use crate::argument::{ActionRef, Arguments, Key, WaitMs};
use crate::control::{self, take_control, take_control_kept};
use crate::host::{EXPIRIES_PER_ROUND, Guard, Request};
use crate::keyring::Keyring;
use crate::names::name_key;
use crate::operations::{limits, request_id_of};
use crate::rate::Rates;
use crate::receipt::{self, Envelope};
use crate::ticket::Ticket;
use crate::view;

/// A group of requests under way.
pub struct Round<'a> {
    /// The state, and what was decided so far.
    pub sequencer: Sequencer<'a>,
    /// The host's keys.
    pub keyring: &'a Keyring,
    /// What the host allows.
    pub limits: &'a Limits,
    rates: &'a mut Rates,
    guard: Guard,
    /// Whether the owner confirmed the clock in this round.
    pub(crate) confirmed: bool,
    /// Whether the owner confirmed the home in this round.
    pub(crate) home_confirmed: bool,
    /// What could not be read beside what was asked.
    pub(crate) troubles: Vec<ReadError>,
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

/// The texts of one request, each by the commitment that stands in the action.
struct Texts<'r> {
    secret: &'r RequestSecret,
    request: RequestId,
    contents: Vec<(Commitment, Salt, Vec<u8>)>,
}

impl<'r> Texts<'r> {
    fn of(secret: &'r RequestSecret, request: RequestId) -> Self {
        Self { secret, request, contents: Vec::new() }
    }

    fn commit(&mut self, place: &[u8; 32], field: &str, text: &str) -> Commitment {
        let salt = self.secret.salt(&self.request, place, field);
        let commitment = Commitment::to(&salt, text.as_bytes());
        self.contents.push((commitment, salt, text.as_bytes().to_vec()));
        commitment
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
    texts: Texts<'r>,
}

impl Acting<'_, '_> {
    /// The state with what was decided so far.
    pub fn read(&self) -> &dyn Read {
        &self.round.sequencer.overlay
    }

    /// Commits to a text in a field of the request at a place: the object, or the creating host.
    pub fn commit(&mut self, place: &[u8; 32], field: &str, text: &str) -> Commitment {
        self.texts.commit(place, field, text)
    }

    /// The key pair of an admission that this request issues at a place.
    pub fn admission(&self, place: &[u8; 32]) -> kwoon_keys::KeyPair {
        self.texts.secret.admission(&self.request, place)
    }

    /// This host's id.
    pub fn host(&self) -> [u8; 32] {
        self.round.keyring.host.public().0
    }
}

impl<'a> Round<'a> {
    /// A round over a state, at a time.
    pub(crate) fn new(
        read: &'a dyn Read,
        keyring: &'a Keyring,
        limits: &'a Limits,
        rates: &'a mut Rates,
        guard: Guard,
        now: Time,
    ) -> Self {
        let sequencer = Sequencer::new(read, &keyring.host, now);
        Self {
            sequencer,
            keyring,
            limits,
            rates,
            guard,
            confirmed: false,
            home_confirmed: false,
            troubles: Vec::new(),
            now,
        }
    }

    /// Answers one request.
    ///
    /// # Errors
    /// If it is refused, or the store cannot be read.
    pub(crate) fn answer(&mut self, request: Request) -> Result<Answer, Stop> {
        let Request { caller, operation, mut arguments, entropy, trace_id, finding } = request;
        operation.check_caller(caller, true)?;
        if let Some(finding) = finding {
            return operation.keep(self, finding);
        }
        let key = take_control::<Key>(&mut arguments, "idempotency_key")?;
        take_control::<WaitMs>(&mut arguments, "wait_ms")?;
        let after = take_control_kept::<Vec<ActionRef>>(&arguments, "after")?.unwrap_or_default();
        // Each is looked up, so their number is checked before.
        if after.len() > LINKS_MAX {
            return Err(Refusal::argument("after", "at most 64 actions").into());
        }
        let mut own = arguments.clone();
        own.remove("after");
        let key = match key {
            Some(key) => key.0,
            None => kwoon_keys::id::BASE32.encode(&Digest::keyed("kwoon 1 made key", &entropy, &[]).short()),
        };
        let canonical = self.canonical(arguments)?;
        let call = Call { operation: operation.name, key, canonical, entropy, trace_id };
        operation.act(self, caller, call, &after, own)
    }

    /// The arguments as given, in a form that does not depend on their order: nulls left out, keys sorted, and an entry
    /// named by its action the same as by its number. Only an entry of the very thread that is named has a number here,
    /// so that two requests are never the same by what stands elsewhere (L3.2).
    fn canonical(&self, mut arguments: Arguments) -> Result<Vec<u8>, ReadError> {
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
        control::write_canonical(&Value::Object(arguments), &mut bytes);
        Ok(bytes)
    }

    fn entry_number(&self, thread: &index::Short, short: &index::Short) -> Result<Option<u64>, ReadError> {
        let read = &self.sequencer.overlay;
        let Some(request) = request_id_of(read, short)? else { return Ok(None) };
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
        self.success(&ended).map(Some)
    }

    /// Counts an action, and says whether it is within the rate. What else is wrong with it is told first.
    fn count(&mut self, caller: &[u8; 32], operation: &str) -> Result<(), Refusal> {
        // L4.1: the exits that depend on nobody are never rate limited.
        if matches!(operation, "entry_handle" | "assignment_abandon" | "assignment_accept") {
            return Ok(());
        }
        self.rates.take(caller, self.limits, self.now).map_err(rate_limited)
    }

    /// What decides whether the host seals.
    pub fn guard(&self) -> Guard {
        self.guard
    }

    fn check_sealing(&self) -> Result<(), Refusal> {
        self.guard
            .sealing(self.now)
            .map_err(|reason| Refusal::from(Code::NotSealing).with("reason", Detail::Word(reason)))
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
        let after = self.decided(agent.as_bytes(), after)?;
        let mut acting = Acting { round: self, agent, request, texts: Texts::of(secret, request) };
        let plan = plan(&mut acting)?;
        let contents = acting.texts.contents;
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
        let sealed = self.decide(candidate, &action, rate)?;
        self.keep(&request, call, if sealed.existing { Vec::new() } else { contents });
        let ended = receipt::Ended { action, number: sealed.number, index: sealed.index, existing: sealed.existing };
        self.first_answer(&ended, secret)
    }

    /// Lets the sequencer decide an action; what the rules allow must be within the rate and the limits.
    fn decide(&mut self, candidate: Candidate, action: &Action, rate: Result<(), Refusal>) -> Result<Sealed, Stop> {
        let allowed = self.limits;
        self.sequencer.act(candidate, |overlay, sealed| {
            rate?;
            if sealed.existing { Ok(()) } else { limits::check(overlay, sealed.number, action, allowed) }
        })
    }

    /// What a success says, first or repeated: its receipt, and what comes next.
    fn success(&self, ended: &receipt::Ended) -> Result<Answer, Stop> {
        let read = &self.sequencer.overlay;
        let (receipt, done) = receipt::receipt(read, ended)?;
        let mut answer = Answer::new(&done, Contents::new(read))?;
        answer.receipt = Some(receipt);
        answer.next = match ended.action.agent() {
            Some(agent) => view::next(read, &agent, self.now)?,
            None => vec![Next::step(Step::Done)],
        };
        Ok(answer)
    }

    /// The first success of a request, the only one that shows a secret.
    fn first_answer(&self, ended: &receipt::Ended, secret: &RequestSecret) -> Result<Answer, Stop> {
        let mut answer = self.success(ended)?;
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

    /// The ids of a caller's own actions that it wants decided first, in the order given.
    fn decided(&self, actor: &[u8; 32], after: &[ActionRef]) -> Result<Vec<RequestId>, Stop> {
        let read = &self.sequencer.overlay;
        let mut decided = Vec::new();
        for reference in after {
            let request = request_id_of(read, &reference.0)?;
            let ended = match request {
                Some(request) => receipt::ended(read, &request)?.filter(|ended| ended.action.actor.bytes() == actor),
                None => None,
            };
            // On one host nothing is pending, so an action that is not decided is none at all.
            let request = ended.ok_or_else(|| Refusal::argument("after", "actions of your own"))?.action.request();
            if !decided.contains(&request) {
                decided.push(request);
            }
        }
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

    /// The owner's word that the clock is right: if nothing else is in the way, sealing goes on, first of all with the
    /// deadlines that have come.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn confirm_clock(&mut self) -> Result<(), ReadError> {
        self.confirmed = true;
        self.guard.last_time = Some(self.now);
        self.go_on()
    }

    /// The owner's word that this home, which was copied or restored, is the one to go on with.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn confirm_home(&mut self) -> Result<(), ReadError> {
        self.home_confirmed = true;
        self.guard.restored = false;
        self.go_on()
    }

    fn go_on(&mut self) -> Result<(), ReadError> {
        if self.guard.sealing(self.now).is_ok() {
            self.troubles.extend(self.sequencer.expire(EXPIRIES_PER_ROUND)?);
        }
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
        after: &[ActionRef],
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
        let after = self.decided(&owner.0, after)?;
        let mut owning = Owning { round: self, texts: Texts::of(secret, request), entropy: call.entropy };
        let plan = plan(&mut owning)?;
        let contents = owning.texts.contents;
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
            after,
            body: plan.body,
        };
        let payload = cbor::write(&action);
        let agent = plan.object.unwrap_or(AgentId(rules::identity::record_hash(&payload)));
        let signed = cose::sign(RecordKind::Action, &payload, &keyring.owner);
        let candidate = Candidate { object: ObjectId::Identity(agent), signed, evidence: Vec::new(), origin: None };
        let sealed = self.decide(candidate, &action, rate)?;
        self.keep(&request, &call, contents);
        let ended = receipt::Ended { action, number: sealed.number, index: sealed.index, existing: sealed.existing };
        let mut answer = self.success(&ended)?;
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
    texts: Texts<'r>,
    entropy: [u8; 32],
}

impl Owning<'_, '_> {
    /// The state with what was decided so far.
    pub fn read(&self) -> &dyn Read {
        &self.round.sequencer.overlay
    }

    /// Commits to a text in a field of the request at a place: the agent, or the creating host for a new one.
    pub fn commit(&mut self, place: &[u8; 32], field: &str, text: &str) -> Commitment {
        self.texts.commit(place, field, text)
    }

    /// 32 random bytes for one purpose.
    pub fn random(&self, purpose: &str) -> [u8; 32] {
        Digest::keyed("kwoon 1 entropy", &self.entropy, &[purpose.as_bytes()]).0
    }
}

fn position_of(head: &Head) -> Position {
    Position { epoch: head.epoch, index: head.index, head: head.hash }
}

fn rate_limited(wait: Duration) -> Refusal {
    let mut refusal = Refusal::from(Code::RateLimited);
    refusal.retry_after_ms = Some(wait.0);
    refusal
}
