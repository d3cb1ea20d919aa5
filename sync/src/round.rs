//! A round: a group of requests under way. From what an agent or owner asks to the sealed fact and its answer.

use std::collections::BTreeMap;

use kwoon_keys::id::{AgentId, RequestId, ThreadId};
use kwoon_keys::secret::{InstanceKeys, request_id};
use kwoon_keys::{Commitment, Digest, PublicKey, RecordKind, RequestSecret, Salt, cbor, cose};
use kwoon_ledger::action::{Action, Actor, Body, ObjectId, Position, SCHEMA};
use kwoon_ledger::fact::{Evidence, Origin};
use kwoon_ledger::forget;
use kwoon_ledger::index;
use kwoon_ledger::limits::{ACTION_VALIDITY, LINKS_MAX, Limits};
use kwoon_ledger::log;
use kwoon_ledger::outbox::{self, Carried, Outgoing, Progress};
use kwoon_ledger::refusal::{Code, Detail, Refusal, Step, Stop, require};
use kwoon_ledger::rules;
use kwoon_ledger::sequencer::{Candidate, Sealed, Sequencer};
use kwoon_ledger::state::{Cells, Head, ObjectNumber};
use kwoon_ledger::storage::{Batch, Layer, Order, Read, ReadError, Row, Table};
use kwoon_ledger::time::{Duration, Time};
use serde_json::Value;

use crate::answer::{Answer, Contents, Next, Secret, Standing};
use crate::argument::{ActionRef, Arguments, Key, WaitMs};
use crate::control::{self, take_control, take_control_kept};
use crate::foresight::{self, Foreseen};
use crate::host::{EXPIRIES_PER_ROUND, Guard, Request};
use crate::keyring::Keyring;
use crate::names::name_key;
use crate::operations::{limits, request_id_of};
use crate::peers;
use crate::rate::Rates;
use crate::receipt::{self, Done, Envelope};
use crate::ticket::{HostHint, Ticket};
use crate::view::{self, Caller};
use crate::window::Window;

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
    windows: &'a mut BTreeMap<ObjectNumber, Window>,
    /// Where other hosts find this one.
    pub(crate) addresses: &'a [String],
    /// Whether something that kept actions wait for may have come.
    pub(crate) retries: bool,
}

/// The counts of a round, as of its time.
pub(crate) struct RatesNow<'r> {
    rates: &'r mut Rates,
    limits: &'r Limits,
    now: Time,
}

impl RatesNow<'_> {
    pub(crate) fn take(&mut self, caller: &[u8; 32]) -> Result<(), Duration> {
        self.rates.take(caller, self.limits, self.now)
    }

    pub(crate) fn may_join(&mut self, caller: &[u8; 32]) -> Result<(), Duration> {
        self.rates.may_join(caller, self.limits, self.now)
    }

    pub(crate) fn join_failed(&mut self, caller: &[u8; 32]) {
        self.rates.join_failed(caller, self.now);
    }
}

/// What every acting call carries beside its own arguments.
pub struct Call {
    /// What it is called.
    pub operation: &'static str,
    /// The idempotency key.
    pub key: String,
    /// The arguments in canonical forms, for the request digest.
    pub forms: Forms,
    /// Random bytes.
    pub entropy: [u8; 32],
    /// The trace that the call belongs to.
    pub trace_id: Option<String>,
    /// Who calls.
    pub caller: Caller,
}

/// Arguments in canonical forms: entries by their actions, which is what is signed, and by their numbers.
pub struct Forms {
    by_action: Vec<u8>,
    by_number: Vec<u8>,
    /// As they were given.
    given: Arguments,
}

impl Forms {
    /// Whether an action was made with these arguments (L3.2).
    fn are_of(&self, secret: &RequestSecret, action: &Action, named: Option<(u64, RequestId)>) -> bool {
        let is = |form: &[u8]| secret.request_digest(form) == action.request_digest;
        if is(&self.by_action) || is(&self.by_number) {
            return true;
        }
        // The log is here no more: what its number stood for is known of the action itself.
        let Some((number, request)) = named else { return false };
        let mut given = self.given.clone();
        for field in ["entry", "reply_to"] {
            if given.get(field).and_then(Value::as_u64) == Some(number) {
                given.insert(field.to_owned(), request.to_string().into());
            }
        }
        is(&canonical_bytes(given))
    }
}

fn canonical_bytes(arguments: Arguments) -> Vec<u8> {
    let mut bytes = Vec::new();
    control::write_canonical(&Value::Object(arguments), &mut bytes);
    bytes
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
    /// Hosts where the object may be found, if it is not here.
    pub hosts: Vec<HostHint>,
}

impl Plan {
    /// Something asked of an object.
    pub fn on(object: ObjectId, body: Body) -> Self {
        Self { object: Some(object), body, position: None, evidence: Vec::new(), origin: None, hosts: Vec::new() }
    }

    /// Something new.
    pub fn new(body: Body) -> Self {
        Self { object: None, body, position: None, evidence: Vec::new(), origin: None, hosts: Vec::new() }
    }
}

/// Texts, each with the commitment that stands for it.
type KeptTexts = Vec<(Commitment, Salt, Vec<u8>)>;

/// The texts of one request, each by the commitment that stands in the action.
struct Texts<'r> {
    secret: &'r RequestSecret,
    request: RequestId,
    contents: KeptTexts,
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
    /// What is expected of the object acted on, where actions on it are pending.
    expected: Batch,
}

impl Read for Acting<'_, '_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        self.layer().get(table, key)
    }

    fn range(&self, table: Table, from: &[u8], to: &[u8], order: Order, limit: usize) -> Result<Vec<Row>, ReadError> {
        self.layer().range(table, from, to, order, limit)
    }

    fn content(&self, hash: &Digest) -> Result<Option<(Salt, Vec<u8>)>, ReadError> {
        self.layer().content(hash)
    }
}

impl Acting<'_, '_> {
    fn layer(&self) -> Layer<'_> {
        Layer { base: &self.round.sequencer.overlay, batch: &self.expected }
    }

    /// The state with what was decided so far, and what is expected of the object acted on.
    pub fn read(&self) -> &dyn Read {
        self
    }

    /// Goes on from what is expected of an object, if actions on it are pending.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn expect(&mut self, number: ObjectNumber, object: &ObjectId) -> Result<(), ReadError> {
        if self.round.waits(number)? {
            self.expected = self.round.foresee(number, object)?.batch;
        }
        Ok(())
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
        (windows, addresses): (&'a mut BTreeMap<ObjectNumber, Window>, &'a [String]),
    ) -> Self {
        let mut sequencer = Sequencer::new(read, &keyring.host, now);
        for (number, window) in windows.iter() {
            sequencer.hold(*number, window.due.before(Duration(1)));
        }
        Self {
            windows,
            addresses,
            retries: false,
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
        let forms = self.forms(arguments)?;
        let call = Call { operation: operation.name, key, forms, entropy, trace_id, caller };
        operation.act(self, caller, call, &after, own)
    }

    /// The counts of this round.
    pub(crate) fn rates(&mut self) -> RatesNow<'_> {
        RatesNow { rates: self.rates, limits: self.limits, now: self.now }
    }

    /// Whether a log of this host waits for hosts whose deadlines passed while it was down.
    pub(crate) fn is_waiting(&self, number: ObjectNumber) -> bool {
        self.windows.contains_key(&number)
    }

    /// A host was heard, with all that it had to say: no log waits for it any longer.
    pub(crate) fn wait_no_more(&mut self, host: &PublicKey) {
        for window in self.windows.values_mut() {
            window.hosts.remove(host);
        }
        for (number, window) in self.windows.iter() {
            if window.hosts.is_empty() {
                self.sequencer.go_on(*number);
                self.retries = true;
            }
        }
        self.windows.retain(|_, window| !window.hosts.is_empty());
    }

    /// Whether an action may be decided in its log now, though the log may wait for others; then the log's time is set.
    pub(crate) fn is_undisturbed(&mut self, number: ObjectNumber, action: &Action) -> Result<bool, ReadError> {
        let Some(window) = self.windows.get(&number) else { return Ok(true) };
        let cells = Cells::new(&self.sequencer.overlay, number);
        let account = action.agent().map_or(Ok(None), |agent| cells.account(&agent))?;
        let hosts = account.map(|account| account.hosts()).unwrap_or_default();
        let last = cells.head()?.map_or(Time::default(), |head| head.log_time);
        match window.admits(action, &hosts, last) {
            Some(time) => {
                self.sequencer.hold(number, time);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Whether an action on a log is not decided here and now: another host orders it, or it waits.
    pub(crate) fn waits(&self, number: ObjectNumber) -> Result<bool, ReadError> {
        Ok(self.is_waiting(number) || !self.sequencer.is_own(number)?)
    }

    /// What would be of a log with what is pending.
    pub(crate) fn foresee(&self, number: ObjectNumber, object: &ObjectId) -> Result<Foreseen, ReadError> {
        foresight::foresee(&self.sequencer.overlay, &self.keyring.host, number, object, self.now)
    }

    /// Where other hosts find this one.
    pub(crate) fn hint(&self) -> HostHint {
        HostHint { host: self.keyring.host.public(), addresses: self.addresses.to_vec() }
    }

    /// The arguments as given, in forms that do not depend on their order: nulls left out, keys sorted, and an entry of the
    /// very thread that is named by its number the same as by its action, so that two requests are never the same by what
    /// stands elsewhere (L3.2). Entries stand by their actions in the first form, which is signed, and by their numbers in
    /// the second, which earlier versions signed.
    fn forms(&self, mut arguments: Arguments) -> Result<Forms, ReadError> {
        let thread = arguments.get("thread").and_then(Value::as_str).and_then(ThreadId::read);
        // To come after nothing is the same as not to say.
        if arguments.get("after").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            arguments.remove("after");
        }
        let (given, mut by_number) = (arguments.clone(), arguments.clone());
        for field in ["entry", "reply_to"] {
            let Some((thread, value)) = thread.zip(arguments.get(field).cloned()) else { continue };
            if let Some((number, request)) = self.entry_named(&thread, &value)? {
                arguments.insert(field.to_owned(), request.to_string().into());
                by_number.insert(field.to_owned(), number.into());
            }
        }
        Ok(Forms { by_action: canonical_bytes(arguments), by_number: canonical_bytes(by_number), given })
    }

    /// An entry of a thread here, by its number or its action: both.
    fn entry_named(&self, thread: &index::Short, value: &Value) -> Result<Option<(u64, RequestId)>, ReadError> {
        let read = &self.sequencer.overlay;
        let Some(index::Place::Log(number)) = index::find(read, index::IdKind::Thread, thread)? else {
            return Ok(None);
        };
        let cells = Cells::new(read, number);
        if let Some(entry) = value.as_u64() {
            return Ok(cells.entry(entry)?.map(|found| (entry, found.request)));
        }
        let Some(short) = value.as_str().and_then(RequestId::read) else { return Ok(None) };
        let Some(request) = request_id_of(read, &short)? else { return Ok(None) };
        Ok(cells.entry_of(&request)?.map(|entry| (entry, request)))
    }

    /// The answer to a request that already ended with a success, or that is pending: its receipt, without the secret but
    /// where it was never shown (L3.1, L3.4). Nothing if it is to be judged anew.
    fn replay(&mut self, request: &RequestId, secret: &RequestSecret, forms: &Forms) -> Result<Option<Answer>, Stop> {
        let same = |action: &Action, named| require(forms.are_of(secret, action, named), Code::IdempotencyConflict);
        if let Some(ended) = receipt::ended(&self.sequencer.overlay, request)? {
            same(&ended.action, receipt::entry_named(&self.sequencer.overlay, &ended)?)?;
            let owes = self.owed_secret(request)?;
            return if owes { self.first_answer(&ended, secret) } else { self.success(&ended) }.map(Some);
        }
        match outbox::find(&self.sequencer.overlay, request)?.filter(|row| row.own) {
            Some(row) if row.is_pending() => {
                let action = row.carried.action()?;
                same(&action, None)?;
                self.pending(&row, &action).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether a credential is still to be shown with a request's answer; it is not any more.
    fn owed_secret(&mut self, request: &RequestId) -> Result<bool, ReadError> {
        let overlay = &mut self.sequencer.overlay;
        let Some(row) = overlay.get(Table::Envelopes, request.as_bytes())? else { return Ok(false) };
        let mut envelope: Envelope = cbor::read_own(&row).map_err(|_| ReadError::damaged("an envelope"))?;
        if envelope.owes_secret.take() != Some(true) {
            return Ok(false);
        }
        overlay.put(Table::Envelopes, request.as_bytes().to_vec(), cbor::write(&envelope));
        Ok(true)
    }

    /// What is said of an own action without an outcome: what it would come to, as far as that is known here.
    fn pending(&self, row: &Outgoing, action: &Action) -> Result<Answer, Stop> {
        let read = &self.sequencer.overlay;
        let mut done = Done { action: Some(action.request().to_string()), ..Done::default() };
        if let ObjectId::Thread(thread) = row.carried.object {
            done.thread = Some(thread.to_string());
        }
        if let Some(number) = index::number(read, &row.carried.object)? {
            let foreseen = self.foresee(number, &row.carried.object)?;
            if let Some((_, sealed)) = foreseen.sealed.iter().find(|(request, _)| *request == action.request()) {
                let layer = Layer { base: read, batch: &foreseen.batch };
                done = receipt::expected(&layer, action, sealed.number, sealed.index)?;
            }
        }
        let mut answer = Answer::new(&done, Contents::new(read))?;
        answer.standing = Standing::Pending;
        answer.next = vec![Next::step(Step::Wait)];
        Ok(answer)
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
            if let Some(answer) = self.replay(&request, &keys.secrets[generation as usize], &call.forms)? {
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
        let mut after = self.decided(agent.as_bytes(), after)?;
        let texts = Texts::of(secret, request);
        let mut acting = Acting { round: self, agent, request, texts, expected: Batch::default() };
        let plan = plan(&mut acting)?;
        let (contents, expected) = (acting.texts.contents, acting.expected);
        let account = view::account(&self.sequencer.overlay, &agent)?.ok_or(Code::Internal)?;
        let host = self.keyring.host.public();
        let key = keys.signing.public();
        let instance = account.instances.iter().find(|entry| entry.signing_key == key && entry.host == host);
        let instance = instance.ok_or(Code::AgentInactive)?.id();
        let number = plan.object.map_or(Ok(None), |object| index::number(&self.sequencer.overlay, &object))?;
        // What is not here is ordered elsewhere, but for a memory whose log begins with this action.
        let absent = plan.object.is_some() && plan.origin.is_none();
        let elsewhere = number.map_or(Ok(absent), |number| self.waits(number))?;
        let head = self.head(plan.object.as_ref())?;
        let position = plan.position.or_else(|| head.as_ref().map(position_of));
        let issued_at = self.issue_time(head.as_ref());
        let mut needs = Vec::new();
        if elsewhere {
            let object = plan.object.ok_or(Code::Internal)?;
            needs = self.needed(&object, number, &plan.body, &expected)?;
            // What this instance asked of the object before comes first, but nothing holds up a free exit.
            // A join asks for nothing that another one has to come before.
            if !plan.body.is_free_exit()
                && !matches!(plan.body, Body::ThreadJoin(..))
                && let Some(before) = self.undecided_before(&object, agent)?.filter(|before| !after.contains(before))
            {
                after.push(before);
            }
        }
        // A request that was refused elsewhere is judged anew, in an attempt of its own.
        let earlier = outbox::find(&self.sequencer.overlay, &request)?;
        let attempt =
            earlier.map_or(Ok(0), |row| row.carried.action().map(|action| action.attempt.saturating_add(1)))?;
        let action = Action {
            schema: SCHEMA,
            actor: Actor::Agent(agent, instance),
            object: plan.object,
            position,
            token,
            request_digest: secret.request_digest(&call.forms.by_action),
            attempt,
            generation,
            issued_at,
            expires_at: issued_at.after(ACTION_VALIDITY),
            needs,
            after,
            body: plan.body,
        };
        let object = plan.object.or_else(|| rules::created(&action, &host.0)).ok_or(Code::Internal)?;
        let signed = cose::sign(RecordKind::Action, &cbor::write(&action), &keys.signing);
        if elsewhere {
            let known = number.map_or(Ok(0), |number| {
                let account = Cells::new(&self.sequencer.overlay, number).account(&agent)?;
                Ok::<_, ReadError>(account.map_or(0, |account| account.version))
            })?;
            let records = log::identity_records(&self.sequencer.overlay, &agent, known)?;
            let carried =
                Carried { object, signed: signed.into(), evidence: plan.evidence, records, outcomes: Vec::new() };
            return self.send(carried, action, call, (rate, number, expected, contents), plan.hosts);
        }
        let candidate = Candidate { evidence: plan.evidence, origin: plan.origin, ..Candidate::of(object, signed) };
        let sealed = self.decide(candidate, &action, rate)?;
        outbox::remove(&mut self.sequencer.overlay, &object, &request)?;
        self.keep(&request, call, if sealed.existing { Vec::new() } else { contents }, false);
        let place = receipt::Place::Log(sealed.number, sealed.index);
        self.first_answer(&receipt::Ended { action, place, existing: sealed.existing }, secret)
    }

    /// Puts an action that is not decided here into the outbox, if by all that is known here it would be sealed.
    fn send(
        &mut self,
        carried: Carried,
        action: Action,
        call: &Call,
        (rate, number, expected, contents): (Result<(), Refusal>, Option<ObjectNumber>, Batch, KeptTexts),
        hosts: Vec<HostHint>,
    ) -> Result<Answer, Stop> {
        let request = action.request();
        let agent = action.agent().ok_or(Code::Internal)?;
        let object = carried.object;
        if let Some(number) = number {
            let layer = Layer { base: &self.sequencer.overlay, batch: &expected };
            let time = foresight::time_of(&layer, number, self.now)?;
            let mut sequencer = Sequencer::foreseeing(&layer, &self.keyring.host, time);
            let candidate = Candidate {
                evidence: carried.evidence.clone(),
                records: carried.records.clone(),
                ..Candidate::of(object, carried.signed.to_vec())
            };
            let allowed = self.limits;
            sequencer.act(candidate, |overlay, sealed| {
                rate?;
                if sealed.existing { Ok(()) } else { limits::check(overlay, sealed.number, &action, allowed) }
            })?;
        } else {
            rate?;
        }
        require(self.make_room(&agent)?, Code::CapacityReached)?;
        for hint in &hosts {
            if hint.host != self.keyring.host.public() {
                peers::add(&mut self.sequencer.overlay, &hint.host, &hint.addresses)?;
            }
        }
        let row = Outgoing {
            carried,
            progress: Progress::Pending,
            own: true,
            order: 0,
            hosts: hosts.into_iter().map(|hint| hint.host).collect(),
            called: Some((call.operation.to_owned(), call.key.clone())),
            brought_by: None,
        };
        outbox::put(&mut self.sequencer.overlay, &action, row.clone())?;
        let owes = matches!(action.body, Body::AdmissionIssue(_));
        self.keep(&request, call, contents, owes);
        self.pending(&row, &action)
    }

    /// What must be sealed before an action, of what is pending: the entries it refers to, and what makes its assignment
    /// what the action takes it to be.
    fn needed(
        &self,
        object: &ObjectId,
        number: Option<ObjectNumber>,
        body: &Body,
        expected: &Batch,
    ) -> Result<Vec<RequestId>, ReadError> {
        let Some(number) = number else { return Ok(Vec::new()) };
        let read = &self.sequencer.overlay;
        let mut needed = Vec::new();
        let assignment = match body {
            Body::EntryPost(post) => {
                needed.extend(post.reply_to);
                post.assign.and_then(|assign| assign.redoes)
            }
            Body::EntryHandle(entry, _) | Body::EntryRetract(entry) => {
                needed.push(*entry);
                None
            }
            Body::AssignmentTake(id, _)
            | Body::AssignmentDeliver(id, _)
            | Body::AssignmentAccept(id)
            | Body::AssignmentReturn(id, _)
            | Body::AssignmentAbandon(id)
            | Body::AssignmentVoid(id) => Some(*id),
            _ => None,
        };
        if let Some(id) = assignment {
            let layer = Layer { base: read, batch: expected };
            let cells = Cells::new(&layer, number);
            if let Some(held) = cells.assignment(&id)? {
                needed.extend(cells.entry(held.entry)?.map(|entry| entry.request));
            }
            for row in outbox::of_object(read, object, foresight::FORESEEN_MAX)?.iter().filter(|row| row.is_pending()) {
                let action = row.carried.action()?;
                let concerns = match action.body {
                    Body::AssignmentTake(of, _) | Body::AssignmentDeliver(of, _) => of == id,
                    _ => false,
                };
                needed.extend(concerns.then(|| action.request()));
            }
        }
        let mut pending = Vec::new();
        for request in needed {
            let waits = outbox::get(read, object, &request)?.is_some_and(|row| row.is_pending());
            if waits && !pending.contains(&request) {
                pending.push(request);
            }
        }
        Ok(pending)
    }

    /// The last action of an agent on an object that has no outcome.
    fn undecided_before(&self, object: &ObjectId, agent: AgentId) -> Result<Option<RequestId>, ReadError> {
        let mut last = None;
        for row in outbox::of_object(&self.sequencer.overlay, object, usize::MAX)? {
            let action = row.carried.action()?;
            let joins = matches!(action.body, Body::ThreadJoin(..));
            if row.own && row.is_pending() && !joins && action.agent() == Some(agent) {
                last = last.max(Some((row.order, action.request())));
            }
        }
        Ok(last.map(|(_, request)| request))
    }

    /// Signs own actions on a log anew that were made for an epoch which has ended: only their author's host does so.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn renew(&mut self, number: ObjectNumber, object: &ObjectId) -> Result<(), ReadError> {
        let Some(head) = Cells::new(&self.sequencer.overlay, number).head()? else { return Ok(()) };
        for row in outbox::of_object(&self.sequencer.overlay, object, usize::MAX)? {
            let mut action = row.carried.action()?;
            let is_old = action.position.is_some_and(|position| position.epoch < head.epoch);
            let keys = action.agent().and_then(|agent| self.keyring.agent(&agent));
            let joins = matches!(action.body, Body::ThreadJoin(..));
            if is_old && !joins && !row.own {
                // Void here: its author's host signs the next attempt.
                outbox::remove(&mut self.sequencer.overlay, object, &action.request())?;
                forget::drop_unsealed(&mut self.sequencer.overlay, &action)?;
                continue;
            }
            let (true, true, false, Some(keys)) = (row.own && row.is_pending(), is_old, joins, keys) else { continue };
            action.position = Some(position_of(&head));
            action.attempt = action.attempt.saturating_add(1);
            let signed = cose::sign(RecordKind::Action, &cbor::write(&action), &keys.signing);
            let carried = Carried { signed: signed.into(), ..row.carried };
            outbox::put(&mut self.sequencer.overlay, &action, Outgoing { carried, ..row })?;
        }
        Ok(())
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
            if let receipt::Place::Log(number, _) = ended.place {
                answer.secret = Some(Secret::Ticket(self.ticket(number, &admission)?.text()));
            }
        }
        Ok(answer)
    }

    fn ticket(&self, number: ObjectNumber, admission: &kwoon_keys::KeyPair) -> Result<Ticket, Stop> {
        let cells = Cells::new(&self.sequencer.overlay, number);
        let (thread, head) = (cells.thread()?, cells.head()?.ok_or(Code::Internal)?);
        let opening = log::head_at(&self.sequencer.overlay, number, &head, 0)?;
        let mut hosts = vec![self.hint()];
        if head.sequencer != hosts[0].host {
            let addresses = peers::get(&self.sequencer.overlay, &head.sequencer)?.unwrap_or_default().addresses;
            hosts.insert(0, HostHint { host: head.sequencer, addresses });
        }
        Ok(Ticket::new(thread.thread, opening.ok_or(Code::Internal)?, admission, hosts))
    }

    /// The ids of a caller's own actions that it wants decided first, in the order given.
    fn decided(&self, actor: &[u8; 32], after: &[ActionRef]) -> Result<Vec<RequestId>, Stop> {
        let read = &self.sequencer.overlay;
        let mut decided = Vec::new();
        for reference in after {
            let request = request_id_of(read, &reference.0)?;
            let action = match request {
                Some(request) => match (receipt::ended(read, &request)?, outbox::find(read, &request)?) {
                    (Some(ended), _) => Some(ended.action),
                    (None, Some(row)) if row.own => Some(row.carried.action()?),
                    _ => None,
                },
                None => None,
            };
            let action = action.filter(|action| action.actor.bytes() == actor);
            let request = action.ok_or_else(|| Refusal::argument("after", "actions of your own"))?.request();
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
    fn keep(&mut self, request: &RequestId, call: &Call, contents: KeptTexts, owes_secret: bool) {
        let envelope = Envelope {
            key: call.key.clone(),
            received_at: self.now,
            trace_id: call.trace_id.clone(),
            owes_secret: owes_secret.then_some(true),
        };
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
        let request_digest = secret.request_digest(&call.forms.by_action);
        if let Some(answer) = self.replay(&request, secret, &call.forms)? {
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
        let candidate = Candidate::of(ObjectId::Identity(agent), signed);
        let sealed = self.decide(candidate, &action, rate)?;
        self.keep(&request, &call, contents, false);
        let place = receipt::Place::Log(sealed.number, sealed.index);
        let ended = receipt::Ended { action, place, existing: sealed.existing };
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
