//! A host with neighbours: threads that either side orders, that were handed over, that ended for one of them. What the
//! neighbours can say is made from what they said, what they know and what they can sign.
//!
//! The host is there twice: as it was when its neighbours last heard from it, and with a life since then that none of those
//! who speak here may know of. Whoever learns something hears the two say different things.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use arbitrary::Unstructured;
use kwoon_keys::id::{AgentId, InstanceId, ThreadId};
use kwoon_keys::{Digest, KeyPair, PublicKey, RecordKind, cbor, cose};
use kwoon_ledger::action::{Action, Actor, Body, ObjectId, Position, SCHEMA, attempt_hash};
use kwoon_ledger::effect::{Departure, Effect};
use kwoon_ledger::fact::{
    Cause, EpochChange, EpochReason, EpochStatement, Fact, Outcome, OutcomeResult, RULES, Seal, SealedOutcome, Signer,
    fact_hash, head_hash, running_digest,
};
use kwoon_ledger::limits::ACTION_VALIDITY;
use kwoon_ledger::outbox::Carried;
use kwoon_ledger::state::{Cells, Head};
use kwoon_ledger::time::{Duration, Time};
use kwoon_ledger::{index, log, outbox};
use kwoon_sync::ticket::HostHint;
use kwoon_sync::wire::{
    Consignment, Content, Contents, Ending, Facts, Heads, Hello, Item, Message, Seen, VERSIONS, Verdict, Versions, Wish,
};
use serde_json::json;

use super::fold::edit_bytes;
use super::world::NUMBERS;
use crate::cluster::Cluster;
use crate::forge;
use crate::hall::{Agent, Hall, owner};

/// Edits of one message at most.
const EDITS_MAX: usize = 6;
/// Things of one kind in one message that is made up.
const MANY: usize = 6;

/// An agent that a neighbour acts for.
struct Speaker {
    agent: AgentId,
    instance: InstanceId,
    key: KeyPair,
}

/// Who speaks to the host.
pub struct Neighbour {
    /// Its key.
    pub host: KeyPair,
    /// Its agent, if it has one that the host knows.
    speaker: Option<Speaker>,
}

/// See the module.
pub struct Neighbours {
    /// The host, as its neighbours know it.
    pub here: Hall,
    /// The same host, with a life that those who speak may not know of.
    pub busier: Hall,
    /// A member, who orders some of the threads; one that was removed from what it could read; one that nobody knows.
    pub speakers: Vec<Neighbour>,
    /// Every frame that was ever sent between them, which is known to those who speak.
    tape: Vec<Vec<u8>>,
    /// Ids of everything that there was, also of what some of those who speak may not know more of.
    ids: Vec<ObjectId>,
    /// What the logs had done to them.
    bodies: Vec<Body>,
    /// The threads that the first neighbour orders.
    ordered: Vec<ObjectId>,
    /// The attempts that the host waits for.
    attempts: Vec<(ObjectId, Action, Digest)>,
}

/// They are the same for every input.
pub static NEIGHBOURS: LazyLock<Neighbours> = LazyLock::new(Neighbours::new);

/// The cluster while it is made: the host is the first, then the member, the one that was removed, and a friend who does
/// not speak.
struct Making {
    cluster: Cluster,
    alice: Agent,
    anna: Agent,
    bob: Agent,
    carol: Agent,
    dave: Agent,
}

impl Making {
    fn begin() -> Self {
        let mut cluster = Cluster::new(4);
        cluster.tape = Some(Vec::new());
        let [alice, anna, bob, carol, dave] = [(0, "alice"), (0, "anna"), (1, "bob"), (2, "carol"), (3, "dave")]
            .map(|(hall, name)| cluster.agent(hall, name));
        Self { cluster, alice, anna, bob, carol, dave }
    }

    fn say(&mut self, hall: usize, agent: &Agent, thread: &str) {
        self.cluster.ok((hall, agent), "entry_post", json!({"thread": thread, "text": "words", "ask": []}));
    }

    /// Threads in which the host and the member work together: one that each orders, one that was handed over.
    fn work(&mut self) -> Vec<String> {
        let (alice, bob, carol) = (self.alice.clone(), self.bob.clone(), self.carol.clone());
        let ours = self.cluster.thread((0, &alice), &[(1, &bob), (2, &carol)]);
        let theirs = self.cluster.thread((1, &bob), &[(0, &alice)]);
        let handed = self.cluster.thread((0, &alice), &[(1, &bob)]);
        self.cluster.connect_all();
        for thread in [&ours, &theirs, &handed] {
            self.say(0, &alice, thread);
            let asks = json!({"thread": thread, "text": "who?", "ask": [alice.id], "assign": {"to": alice.id, "criteria": "c"}});
            let asked = self.cluster.ok((1, &bob), "entry_post", asks);
            if let Some(work) = asked["result"]["assignment"].as_str() {
                self.cluster.ok((0, &alice), "assignment_take", json!({"assignment": work, "output": {"text": "1"}}));
            }
        }
        let host = self.cluster.host(1).to_string();
        self.cluster.ok((0, &owner()), "object_handover", json!({"object": handed, "host": host}));
        self.say(0, &alice, &handed);
        let memory = self.cluster.ok((1, &bob), "memory_create", json!({"text": "for all", "title": "t"}));
        let memory = memory["result"]["memory"].clone();
        self.cluster.ok((1, &bob), "memory_publish", json!({"memory": memory}));
        self.cluster.ok((1, &bob), "entry_post", json!({"thread": ours, "memory": memory, "ask": []}));
        vec![ours, theirs, handed]
    }

    /// Threads of which rights ended: of carol's to one that the host orders and to one that a friend does, of alice's.
    fn part(&mut self) -> [String; 2] {
        let (alice, bob, carol, dave) = (self.alice.clone(), self.bob.clone(), self.carol.clone(), self.dave.clone());
        let past = self.cluster.thread((0, &alice), &[(2, &carol), (3, &dave)]);
        let gone = self.cluster.thread((3, &dave), &[(0, &alice), (2, &carol)]);
        self.cluster.connect_all();
        self.cluster.ok((0, &alice), "member_remove", json!({"thread": past, "agent": carol.id}));
        self.cluster.ok((3, &dave), "member_remove", json!({"thread": gone, "agent": carol.id}));
        let left = self.cluster.thread((1, &bob), &[(0, &alice)]);
        self.cluster.ok((0, &alice), "thread_leave", json!({"thread": left}));
        [past, gone]
    }

    /// Work while the host cannot be reached: what is refused then, what is carried, what waits.
    fn apart(&mut self, threads: &[String]) {
        let (alice, bob) = (self.alice.clone(), self.bob.clone());
        let closing = self.cluster.thread((0, &alice), &[(1, &bob)]);
        self.cluster.connect_all();
        self.cluster.isolate(1);
        self.cluster.halls[1].ok(&bob, "entry_post", json!({"thread": closing, "text": "too late", "ask": []}));
        self.cluster.halls[1].ok(&bob, "entry_post", json!({"thread": threads[0], "text": "in time", "ask": []}));
        self.cluster.ok((0, &alice), "thread_close", json!({"thread": closing}));
        self.cluster.connect_all();
        self.cluster.settle();
        self.cluster.isolate(0);
        for thread in &threads[1..] {
            let post = json!({"thread": thread, "text": "waiting", "ask": []});
            self.cluster.halls[0].ok(&alice, "entry_post", post);
        }
    }

    /// What neither the member nor the one that was removed may know of.
    fn live(&mut self, [past, gone]: &[String; 2]) {
        let (alice, anna, dave) = (self.alice.clone(), self.anna.clone(), self.dave.clone());
        self.cluster.connect(0, 3);
        self.say(0, &alice, past);
        self.say(3, &dave, gone);
        let private = self.cluster.halls[0].thread(&alice, &[&anna]);
        self.say(0, &anna, &private);
        let with_friend = self.cluster.thread((3, &dave), &[(0, &alice)]);
        self.say(3, &dave, &with_friend);
        self.cluster.halls[0].ok(&alice, "memory_create", json!({"text": "mine alone", "title": "t"}));
    }
}

impl Neighbours {
    fn new() -> Self {
        let mut making = Making::begin();
        let threads = making.work();
        let parted = making.part();
        making.apart(&threads);
        let here = making.cluster.halls[0].fork();
        let tape = making.cluster.tape.take().unwrap_or_default();
        let known: BTreeSet<Vec<u8>> = tape.into_iter().map(|(_, _, frame)| frame).collect();
        making.live(&parted);
        let busier = making.cluster.halls[0].fork();
        // Of what began since then nobody who speaks can know the id.
        let objects = log::objects(&here.snapshot(), 0, usize::MAX).expect("readable");
        let mut ids: Vec<ObjectId> = objects.into_iter().map(|(_, object)| object).collect();
        ids.push(ObjectId::Thread(ThreadId(Digest([9; 32]))));
        ids.push(ObjectId::Task(kwoon_keys::id::TaskId(Digest([9; 32]))));
        let state = here.snapshot();
        let member = making.cluster.host(1);
        let mut bodies = Vec::new();
        let mut ordered = Vec::new();
        for (number, object) in log::objects(&state, 0, usize::MAX).expect("readable") {
            let head = Cells::new(&state, number).head().expect("readable");
            let Some(head) = head else { continue };
            if head.sequencer == member && matches!(object, ObjectId::Thread(_)) {
                ordered.push(object);
            }
            for at in 0..=head.index {
                let fact = log::fact(&state, number, at).expect("a fact");
                bodies.extend(log::action_of(&fact).map(|action| action.body));
            }
        }
        let rows = outbox::since(&state, 0, usize::MAX).expect("readable");
        let attempts = rows.iter().map(|row| {
            let action = row.carried.action().expect("an action");
            (row.carried.object, action, attempt_hash(&row.carried.signed))
        });
        let attempts = attempts.collect();
        let speaker = |hall: usize, agent: &Agent| {
            let hall = &making.cluster.halls[hall];
            let speaker = Speaker {
                agent: agent.full_id(),
                instance: forge::instance_id(hall, agent),
                key: hall.instance(agent).signing,
            };
            Neighbour { host: hall.key("host"), speaker: Some(speaker) }
        };
        let stranger = Neighbour { host: forge::stranger(), speaker: None };
        let speakers = vec![speaker(1, &making.bob), speaker(2, &making.carol), stranger];
        Self { here, busier, speakers, tape: known.into_iter().collect(), ids, bodies, ordered, attempts }
    }

    /// Who an input speaks for.
    pub fn speaker(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<&Neighbour> {
        input.choose(&self.speakers)
    }

    /// What is sent instead of a frame: most of it decodes.
    pub fn frame(&self, input: &mut Unstructured<'_>, by: &Neighbour) -> arbitrary::Result<Vec<u8>> {
        if input.ratio(1, 12)? {
            let length = usize::from(input.arbitrary::<u16>()?).min(input.len());
            return Ok(input.bytes(length)?.to_vec());
        }
        Ok(self.message(input, by)?.write())
    }

    /// Something that a neighbour can say.
    pub fn message(&self, input: &mut Unstructured<'_>, by: &Neighbour) -> arbitrary::Result<Message> {
        Ok(match input.arbitrary::<u8>()? % 18 {
            0..=2 => self.said(input)?,
            3 => twisted(self.said(input)?, input)?,
            4 => self.edited(input)?,
            5 => Message::Heads(self.heads(input)?),
            6 => Message::Want(self.wishes(input)?),
            7 => Message::WantContents(self.wishes(input)?),
            8 => Message::AskSeal(*input.choose(&self.ids)?),
            9 => Message::Ranges(self.ranges(input)?.into()),
            10 => Message::Items(self.items(input)?.iter().map(Item::id).collect()),
            11 | 12 => Message::Facts(self.facts(input, by)?),
            13 => Message::Actions(self.actions(input, by)?),
            14 => Message::Verdicts(vec![self.verdict(input, by)?]),
            15 => Message::Ending(self.ending(input, by)?),
            16 => Message::AskVoice(self.voice(input, by)?.into()),
            _ => Message::Voice(self.voice(input, by)?.into()),
        })
    }

    /// The greeting of one who speaks: it never says that it knows more of the host's changes than those here know.
    pub fn hello(&self, input: &mut Unstructured<'_>, counting: Digest) -> arbitrary::Result<Hello> {
        let changes = log::next_arrival(&self.here.snapshot()).expect("readable");
        let seen = Seen { counting, changes: input.int_in_range(0..=changes)? };
        let versions = if input.ratio(1, 16)? {
            Versions { least: input.arbitrary()?, most: input.arbitrary()? }
        } else {
            VERSIONS
        };
        Ok(Hello {
            versions,
            counting: Digest([7; 32]),
            changes: number(input)?,
            seen: input.arbitrary::<bool>()?.then_some(seen),
            added: input.arbitrary()?,
            time: Time(number(input)?),
        })
    }

    /// What somebody said once.
    fn said(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<Message> {
        let frame = input.choose(&self.tape)?;
        Ok(match Message::read(frame).expect("it was sent") {
            // A second greeting ends everything, which is soon tried.
            Message::Hello(_) => Message::Items(Vec::new()),
            message => message,
        })
    }

    /// The same with other bytes in it, if it is a message then.
    fn edited(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<Message> {
        let said = self.said(input)?;
        let mut frame = said.write();
        for _ in 0..=usize::from(input.arbitrary::<u8>()?) % EDITS_MAX {
            edit_bytes(input, Some(&mut frame))?;
        }
        Ok(match Message::read(&frame) {
            Err(_) | Ok(Message::Hello(_)) => said,
            Ok(message) => message,
        })
    }

    fn item(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<Item> {
        let object = *input.choose(&self.ids)?;
        // Where it stands, as far as those who speak can know.
        let state = self.here.snapshot();
        let number = index::number(&state, &object).expect("readable");
        let head = number.and_then(|number| Cells::new(&state, number).head().expect("readable"));
        let (epoch, at, head) = head.map_or((0, 0, Digest([3; 32])), |head| (head.epoch, head.index, head.hash));
        Ok(match input.arbitrary::<u8>()? % 3 {
            0 => Item { object, epoch, index: at, head },
            1 => Item { object, epoch, index: at.saturating_add(u64::from(input.arbitrary::<u8>()?)), head },
            _ => Item { object, epoch: self::number(input)?, index: self::number(input)?, head: Digest([4; 32]) },
        })
    }

    fn items(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<Vec<Item>> {
        let count = usize::from(input.arbitrary::<u8>()?) % MANY;
        (0..count).map(|_| self.item(input)).collect()
    }

    fn heads(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<Heads> {
        let items = self.items(input)?;
        let changes = if input.arbitrary()? { Some(number(input)?) } else { None };
        let digest = input.arbitrary::<bool>()?.then_some(Digest([5; 32]));
        Ok(Heads { items, changes, digest, ranges: input.arbitrary()? })
    }

    fn wishes(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<Vec<Wish>> {
        let count = usize::from(input.arbitrary::<u8>()?) % MANY;
        let wish = |input: &mut Unstructured<'_>| {
            let object = *input.choose(&self.ids)?;
            let from = if input.arbitrary()? { u64::from(input.arbitrary::<u8>()? % 16) } else { number(input)? };
            Ok(Wish { object, from })
        };
        (0..count).map(|_| wish(input)).collect()
    }

    /// A message of a comparison of ranges: ids that fingerprints and lists are of, or anything at all.
    fn ranges(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<Vec<u8>> {
        // Version 1; then ranges: up to where, by time and a part of an id, and in which way.
        let mut bytes = vec![0x61];
        let count = usize::from(input.arbitrary::<u8>()?) % MANY;
        for _ in 0..count {
            bytes.push(input.arbitrary::<u8>()? % 4);
            let part = usize::from(input.arbitrary::<u8>()?) % 33;
            bytes.push(u8::try_from(part).expect("at most 32"));
            bytes.extend_from_slice(&self.item(input)?.id().0[..part]);
            let mode = input.arbitrary::<u8>()? % 4;
            bytes.push(mode);
            match mode {
                1 => bytes.extend_from_slice(&self.item(input)?.id().0[..16]),
                2 => {
                    let listed = self.items(input)?;
                    bytes.push(u8::try_from(listed.len()).expect("few"));
                    listed.iter().for_each(|item| bytes.extend_from_slice(&item.id().0));
                }
                _ => {}
            }
        }
        if input.ratio(1, 4)? {
            edit_bytes(input, Some(&mut bytes))?;
        }
        Ok(bytes)
    }

    /// The head of a log that a neighbour may add to.
    fn place(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<Head> {
        let object = *input.choose(&self.ordered)?;
        let state = self.here.snapshot();
        let number = index::number(&state, &object).expect("readable").expect("it is there");
        Ok(Cells::new(&state, number).head().expect("readable").expect("a head"))
    }

    /// An action that its author signs, whatever it wants.
    fn action(&self, input: &mut Unstructured<'_>, by: &Neighbour, at: &Head) -> arbitrary::Result<Vec<u8>> {
        let mut body = cbor::write(input.choose(&self.bodies)?);
        if input.arbitrary()? {
            edit_bytes(input, Some(&mut body))?;
        }
        let Ok(body) = cbor::read_lenient::<Body>(&body) else { return Err(arbitrary::Error::IncorrectFormat) };
        let now = self.here.now;
        let issued_at = if input.ratio(1, 8)? { Time(number(input)?) } else { now };
        let (agent, instance, key) = match &by.speaker {
            Some(speaker) => (speaker.agent, speaker.instance, &speaker.key),
            None => (AgentId(Digest([8; 32])), InstanceId(Digest([8; 32])), &by.host),
        };
        let linked = input.ratio(1, 6)?;
        let needs = if linked { vec![input.choose(&self.attempts)?.1.request()] } else { Vec::new() };
        let action = Action {
            schema: SCHEMA,
            actor: Actor::Agent(agent, instance),
            object: Some(at.object),
            position: Some(Position { epoch: at.epoch, index: at.index, head: at.hash }),
            token: Digest::of("kwoon fuzz token", &[&[input.arbitrary::<u8>()?]]),
            request_digest: Digest::default(),
            attempt: 0,
            generation: 0,
            issued_at,
            expires_at: if input.ratio(1, 8)? { Time(number(input)?) } else { issued_at.after(ACTION_VALIDITY) },
            needs,
            after: Vec::new(),
            body,
        };
        Ok(forge::sign(&action, key).to_vec())
    }

    /// Why a fact that a neighbour makes up came about.
    fn cause(&self, input: &mut Unstructured<'_>, by: &Neighbour, at: &Head) -> arbitrary::Result<Cause> {
        Ok(match input.arbitrary::<u8>()? % 6 {
            0..=2 => Cause::Action(self.action(input, by, at)?.into()),
            3 => {
                let next = self.speakers[usize::from(input.arbitrary::<u8>()?) % self.speakers.len()].host.public();
                let voices = vec![self.voice(input, by)?.into(), self.voice(input, by)?.into()];
                Cause::Epoch(EpochChange {
                    next_epoch: at.epoch.saturating_add(1),
                    continues_at: at.index,
                    head: at.hash,
                    next_host: next,
                    reason: if input.arbitrary()? { EpochReason::Handover } else { EpochReason::Lost },
                    rules: RULES,
                    statements: voices,
                })
            }
            4 => Cause::Account(
                by.speaker.as_ref().map_or(AgentId(Digest([8; 32])), |speaker| speaker.agent),
                Vec::new(),
            ),
            _ => Cause::Begun,
        })
    }

    /// A fact that chains on, and what it is said to change.
    fn fact(&self, input: &mut Unstructured<'_>, cause: Cause, at: &Head) -> arbitrary::Result<(Fact, Vec<Effect>)> {
        let effects = match input.arbitrary::<u8>()? % 4 {
            0 => vec![Effect::EpochBegan(
                at.epoch.saturating_add(1),
                self.speakers[1].host.public(),
                EpochReason::Handover,
            )],
            1 => self.alice().map(|alice| Effect::MembershipEnded(alice, Departure::Removed)).into_iter().collect(),
            2 => vec![Effect::ThreadClosed],
            _ => Vec::new(),
        };
        let at_index = at.index.saturating_add(1);
        let fact = Fact {
            schema: SCHEMA,
            object: at.object,
            epoch: at.epoch,
            index: at_index,
            previous: at.hash,
            log_time: if input.ratio(1, 8)? { Time(number(input)?) } else { self.here.now.max(at.log_time) },
            cause,
            evidence: Vec::new(),
            digest: running_digest(&at.digest, at_index, &cbor::write(&effects)),
            opening: None,
        };
        Ok((fact, effects))
    }

    fn alice(&self) -> Option<AgentId> {
        self.attempts.first().and_then(|(_, action, _)| action.agent())
    }

    /// Facts that a neighbour seals, whatever they are.
    fn facts(&self, input: &mut Unstructured<'_>, by: &Neighbour) -> arbitrary::Result<Facts> {
        let first = self.place(input)?;
        let mut at = first.clone();
        let (mut facts, mut seals) = (Vec::new(), Vec::new());
        for _ in 0..=input.arbitrary::<u8>()? % 3 {
            let cause = self.cause(input, by, &at)?;
            let (fact, effects) = self.fact(input, cause, &at)?;
            let bytes = cbor::write(&fact);
            at = Head {
                index: fact.index,
                hash: head_hash(&fact.previous, &fact_hash(&bytes)),
                digest: fact.digest,
                log_time: fact.log_time,
                epoch: if effects.iter().any(|effect| matches!(effect, Effect::EpochBegan(..))) && input.arbitrary()? {
                    at.epoch + 1
                } else {
                    at.epoch
                },
                ..at
            };
            facts.push(bytes.into());
            if input.ratio(3, 4)? {
                seals.push(sealed(&fact, at.hash, &by.host).into());
            }
        }
        let contents = if input.arbitrary()? { vec![content(input)?] } else { Vec::new() };
        let changes = if input.arbitrary()? { Some(number(input)?) } else { None };
        Ok(Facts { object: first.object, from: first.index.saturating_add(1), facts, seals, contents, changes })
    }

    fn actions(&self, input: &mut Unstructured<'_>, by: &Neighbour) -> arbitrary::Result<Vec<Consignment>> {
        let mut actions = Vec::new();
        for _ in 0..=input.arbitrary::<u8>()? % 3 {
            // On any log, by where it was when those who speak last heard of it.
            let object = *input.choose(&self.ids)?;
            let state = self.here.snapshot();
            let number = index::number(&state, &object).expect("readable");
            let head = number.and_then(|number| Cells::new(&state, number).head().expect("readable"));
            let at = head.unwrap_or(Head { object, ..self.place(input)? });
            let signed = self.action(input, by, &at)?;
            let contents = if input.arbitrary()? { vec![content(input)?] } else { Vec::new() };
            let carried = Carried {
                object,
                signed: signed.into(),
                evidence: Vec::new(),
                records: Vec::new(),
                outcomes: vec![self.outcome(input, by)?.into()],
            };
            actions.push(Consignment { carried, contents });
        }
        Ok(actions)
    }

    /// The signed end of something that the host waits for.
    fn outcome(&self, input: &mut Unstructured<'_>, by: &Neighbour) -> arbitrary::Result<Vec<u8>> {
        let (object, action, attempt) = input.choose(&self.attempts)?;
        let result = if input.arbitrary()? {
            OutcomeResult::Existing(number(input)?)
        } else {
            OutcomeResult::Refused("not_found".to_owned(), Vec::new())
        };
        let at = self.place(input)?;
        let outcome = Outcome {
            schema: SCHEMA,
            request: action.request(),
            attempt: *attempt,
            object: *object,
            epoch: if input.ratio(3, 4)? { at.epoch } else { number(input)? },
            index: at.index,
            head: at.hash,
            log_time: self.here.now,
            result,
        };
        Ok(cose::sign(RecordKind::Outcome, &cbor::write(&outcome), &by.host))
    }

    fn verdict(&self, input: &mut Unstructured<'_>, by: &Neighbour) -> arbitrary::Result<Verdict> {
        let (object, action, attempt) = input.choose(&self.attempts)?;
        Ok(match input.arbitrary::<u8>()? % 5 {
            0 => {
                let (outcome, _) = self.sealed_outcome(input, by)?;
                let moves = self.moves(input, by)?;
                Verdict::Sealed(Box::new(outcome), by.host.public(), moves)
            }
            1 => Verdict::Ended(self.outcome(input, by)?.into(), self.moves(input, by)?),
            2 => Verdict::NotTaken(*attempt, number(input)?),
            3 => Verdict::PassedOn(*attempt),
            _ => {
                let addresses = vec!["192.0.2.9:1".to_owned(), "a".repeat(usize::from(input.arbitrary::<u8>()?))];
                let hint = HostHint { host: PublicKey([input.arbitrary()?; 32]), addresses };
                Verdict::Elsewhere(*attempt, *object, action.request(), hint)
            }
        })
    }

    /// A fact under a neighbour's seal, with the effects that it is said to have: of an action of its own, or of one of the
    /// host's that it has not decided.
    fn sealed_outcome(&self, input: &mut Unstructured<'_>, by: &Neighbour) -> arbitrary::Result<(SealedOutcome, Fact)> {
        let mut at = self.place(input)?;
        if input.arbitrary()? {
            at.epoch = at.epoch.saturating_add(1);
        }
        let cause = if input.arbitrary()? {
            let rows = outbox::of_object(&self.here.snapshot(), &at.object, 1).expect("readable");
            match rows.first() {
                Some(row) => Cause::Action(row.carried.signed.clone()),
                None => self.cause(input, by, &at)?,
            }
        } else {
            self.cause(input, by, &at)?
        };
        let (fact, effects) = self.fact(input, cause, &at)?;
        let bytes = cbor::write(&fact);
        let head = head_hash(&fact.previous, &fact_hash(&bytes));
        let outcome = SealedOutcome {
            fact: bytes.into(),
            effects: cbor::write(&effects).into(),
            digest_before: at.digest,
            later: Vec::new(),
            seal: sealed(&fact, head, &by.host).into(),
        };
        Ok((outcome, fact))
    }

    fn moves(&self, input: &mut Unstructured<'_>, by: &Neighbour) -> arbitrary::Result<Vec<SealedOutcome>> {
        let count = input.arbitrary::<u8>()? % 3;
        (0..count).map(|_| Ok(self.sealed_outcome(input, by)?.0)).collect()
    }

    fn ending(&self, input: &mut Unstructured<'_>, by: &Neighbour) -> arbitrary::Result<Ending> {
        // Only who orders the threads has its word.
        let others = usize::from(by.host.public() != self.speakers[0].host.public());
        let last = input.choose(&self.speakers[others..])?;
        let (outcome, fact) = self.sealed_outcome(input, last)?;
        let moves = self.moves(input, by)?;
        let between = if input.ratio(1, 4)? { vec![Digest([6; 32])] } else { Vec::new() };
        let from = if input.ratio(3, 4)? { fact.index } else { number(input)? };
        Ok(Ending { object: fact.object, from, between, outcome, moves })
    }

    /// A signed voice for a change of sequencer.
    fn voice(&self, input: &mut Unstructured<'_>, by: &Neighbour) -> arbitrary::Result<Vec<u8>> {
        let at = self.place(input)?;
        let object = if input.arbitrary()? { at.object } else { *input.choose(&self.ids)? };
        let hosts = [self.here.key("host").public(), by.host.public()];
        let statement = EpochStatement {
            schema: SCHEMA,
            object,
            next_epoch: if input.ratio(3, 4)? { at.epoch.saturating_add(1) } else { number(input)? },
            next_host: *input.choose(&hosts)?,
            reason: if input.ratio(7, 8)? { EpochReason::Handover } else { EpochReason::Fork },
            index: at.index,
            head: at.hash,
            signer: Signer::Host(by.host.public()),
        };
        Ok(cose::sign(RecordKind::Epoch, &cbor::write(&statement), &by.host))
    }
}

fn number(input: &mut Unstructured<'_>) -> arbitrary::Result<u64> {
    Ok(*input.choose(&NUMBERS)?)
}

fn content(input: &mut Unstructured<'_>) -> arbitrary::Result<Content> {
    let byte: u8 = input.arbitrary()?;
    Ok(Content { salt: kwoon_keys::Salt::new([byte; 32]), bytes: vec![byte; usize::from(byte)].into() })
}

/// A seal over a fact that is the last one.
fn sealed(fact: &Fact, head: Digest, key: &KeyPair) -> Vec<u8> {
    let (object, epoch, index, log_time) = (fact.object, fact.epoch, fact.index, fact.log_time);
    let wall_time = log_time.after(Duration(5));
    Seal { schema: SCHEMA, object, epoch, index, head, log_time, wall_time }.sign(key)
}

/// What was said, and is not so.
fn twisted(message: Message, input: &mut Unstructured<'_>) -> arbitrary::Result<Message> {
    let way: u8 = input.arbitrary()?;
    Ok(match message {
        Message::Facts(mut facts) => {
            match way % 6 {
                0 => facts.facts.reverse(),
                1 => facts.seals.clear(),
                2 => facts.from = number(input)?,
                3 => drop(facts.facts.pop()),
                4 => facts.contents.reverse(),
                _ => facts.facts.extend(facts.facts.clone()),
            }
            Message::Facts(facts)
        }
        Message::Actions(mut actions) => {
            for action in &mut actions {
                match way % 3 {
                    0 => action.contents.clear(),
                    1 => action.carried.records.clear(),
                    _ => {
                        let mut signed = action.carried.signed.to_vec();
                        edit_bytes(input, Some(&mut signed))?;
                        action.carried.signed = signed.into();
                    }
                }
            }
            Message::Actions(actions)
        }
        Message::Ending(mut ending) => {
            match way % 3 {
                0 => ending.from = number(input)?,
                1 => ending.between.push(Digest([6; 32])),
                _ => ending.moves.push(ending.outcome.clone()),
            }
            Message::Ending(ending)
        }
        Message::Contents(Contents { object, contents, .. }) => {
            Message::Contents(Contents { object, index: number(input)?, contents })
        }
        other => other,
    })
}
