//! Logs from elsewhere, and actions by those who hold a key.
//!
//! The first byte picks: facts of any bytes, folded from nothing; a log of a real hall that is edited; or an action of a
//! real agent, edited, signed anew and given to the sequencer.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use arbitrary::Unstructured;
use kwoon_keys::id::{AgentId, InstanceId};
use kwoon_keys::{Digest, KeyPair, PublicKey, cbor};
use kwoon_ledger::action::{Action, Actor, Body, ObjectId, Position};
use kwoon_ledger::fact::{Cause, Fact, fact_hash, head_hash};
use kwoon_ledger::limits::ACTION_VALIDITY;
use kwoon_ledger::refusal::Stop;
use kwoon_ledger::rules::identity::record_hash;
use kwoon_ledger::sequencer::Candidate;
use kwoon_ledger::storage::{Overlay, Rows};
use kwoon_ledger::{log, replica, rules};

use super::world::World;
use crate::forge::{self, Log, Nothing};
use crate::owner;

/// Edits of one log, or facts of any bytes, at most.
pub(super) const STEPS_MAX: usize = 16;

/// A log, and the state after each number of its facts.
pub(super) struct Folded {
    pub(super) log: Log,
    states: Vec<Rows>,
}

/// An agent of the hall with what it signs by.
struct Signer {
    agent: AgentId,
    instance: InstanceId,
    key: KeyPair,
}

pub(super) struct Logs {
    pub(super) world: World,
    pub(super) logs: Vec<Folded>,
    signers: Vec<Signer>,
    owner: KeyPair,
    host: PublicKey,
    /// Every action that was ever signed there.
    signed: BTreeSet<Vec<u8>>,
}

pub(super) static LOGS: LazyLock<Logs> = LazyLock::new(|| {
    let world = World::new();
    let objects = log::objects(&world.hall.snapshot(), 0, usize::MAX).expect("readable");
    let logs: Vec<_> = objects.iter().map(|(_, id)| Folded::of(Log::of(&world.hall, &id.to_string()))).collect();
    let facts = logs.iter().flat_map(|folded| folded.log.facts.iter());
    let signed = facts.filter_map(|bytes| signed_in(&Fact::read(bytes).expect("a fact"))).collect();
    let agents = world.callers.iter().filter(|caller| **caller != owner());
    let signers = agents.map(|agent| Signer {
        agent: agent.full_id(),
        instance: forge::instance_id(&world.hall, agent),
        key: world.hall.instance(agent).signing,
    });
    let (signers, owner, host) = (signers.collect(), world.hall.key("owner"), world.hall.key("host").public());
    Logs { world, logs, signers, owner, host, signed }
});

impl Folded {
    fn of(log: Log) -> Self {
        let mut overlay = Overlay::new(&Nothing);
        let mut states = vec![overlay.batch.rows.clone()];
        for fact in &log.facts {
            replica::fold(&mut overlay, log.number, fact).expect("a good fact");
            states.push(overlay.batch.rows.clone());
        }
        Self { log, states }
    }

    /// The place so many facts before the last one, all of them at most.
    fn position(&self, back: usize) -> Position {
        let facts = &self.log.facts;
        let index = facts.len() - 1 - back % facts.len();
        let fact = Fact::read(&facts[index]).expect("a fact");
        let head = head_hash(&fact.previous, &fact_hash(&facts[index]));
        Position { epoch: fact.epoch, index: index as u64, head }
    }
}

fn signed_in(fact: &Fact) -> Option<Vec<u8>> {
    match &fact.cause {
        Cause::Action(signed) => Some(signed.to_vec()),
        _ => None,
    }
}

/// See the module.
pub fn target(input: &[u8]) {
    let Some((&mode, rest)) = input.split_first() else { return };
    let mut input = Unstructured::new(rest);
    // Where the input ends, what it says ends.
    let _ = match mode % 3 {
        0 => any_facts(&mut input),
        1 => edited_log(&mut input),
        _ => edited_action(&mut input),
    };
}

fn any_facts(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let mut overlay = Overlay::new(&Nothing);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        let length = usize::from(input.arbitrary::<u16>()?).min(input.len());
        fold(&mut overlay, 0, input.bytes(length)?);
    }
    Ok(())
}

/// Folds a fact: refused, it leaves nothing; accepted, what it seals was signed by who it says.
fn fold(overlay: &mut Overlay<'_>, number: u32, bytes: &[u8]) -> bool {
    let before = overlay.batch.rows.clone();
    let folded = replica::fold(overlay, number, bytes).is_ok();
    if folded {
        let fact = Fact::read(bytes).expect("what was folded is a fact");
        let known = signed_in(&fact).is_none_or(|signed| LOGS.signed.contains(&signed));
        assert!(known, "nobody signs for another");
    } else {
        assert!(overlay.batch.rows == before, "a rejected fact leaves nothing");
    }
    folded
}

fn edited_log(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let original = input.choose(&LOGS.logs)?;
    let mut edited = original.log.clone();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        edit(input, &mut edited)?;
    }
    let good = &original.log.facts;
    let same = edited.facts.iter().zip(good).take_while(|(edited, good)| edited == good).count();
    let mut overlay = Overlay::new(&Nothing);
    overlay.batch.rows = original.states[same].clone();
    let folded = edited.facts[same..].iter().take_while(|fact| fold(&mut overlay, edited.number, fact)).count();
    for record in &edited.seals {
        if let Ok(seal) = replica::check_seal(&overlay, edited.number, record) {
            let sealed = usize::try_from(seal.index).expect("an index of a log") + 1;
            assert!(sealed <= same + folded, "what is sealed was folded");
            // Edits may have made another log of the hall of it.
            let true_log = LOGS.logs.iter().find(|folded| folded.log.object == seal.object).expect("a log of the hall");
            assert!(edited.facts[..sealed] == true_log.log.facts[..sealed], "the sequencer sealed another log");
        }
    }
    Ok(())
}

/// One edit of a log.
fn edit(input: &mut Unstructured<'_>, log: &mut Log) -> arbitrary::Result<()> {
    let kind: u8 = input.arbitrary()?;
    let at = usize::from(input.arbitrary::<u8>()?) % log.facts.len().max(1);
    match kind % 10 {
        0..=2 => edit_bytes(input, log.facts.get_mut(at))?,
        3 if !log.facts.is_empty() => drop(log.facts.remove(at)),
        4 if !log.facts.is_empty() => log.facts.insert(at, log.facts[at].clone()),
        5 if !log.facts.is_empty() => {
            let to = usize::from(input.arbitrary::<u8>()?) % log.facts.len();
            log.facts.swap(at, to);
        }
        6 => {
            let other = input.choose(&LOGS.logs)?;
            let fact = input.choose(&other.log.facts)?;
            log.facts.insert(at, fact.clone());
        }
        7 => {
            let seal = at % log.seals.len().max(1);
            edit_bytes(input, log.seals.get_mut(seal))?;
        }
        8 => {
            let other = input.choose(&LOGS.logs)?;
            let seal = input.choose(&other.log.seals)?;
            log.seals.push(seal.clone());
        }
        9 => chain_anew(log, at),
        _ => {}
    }
    Ok(())
}

/// Changes bytes in their place, or puts others in their stead.
pub(super) fn edit_bytes(input: &mut Unstructured<'_>, bytes: Option<&mut Vec<u8>>) -> arbitrary::Result<()> {
    let kind: u8 = input.arbitrary()?;
    let (at, count) = (usize::from(input.arbitrary::<u16>()?), usize::from(kind >> 2));
    let new = input.bytes(count.min(input.len()))?;
    let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
    let at = at % bytes.len();
    let end = (at + count).min(bytes.len());
    match kind % 4 {
        0 => bytes[at..].iter_mut().zip(new).for_each(|(byte, new)| *byte ^= new),
        1 => drop(bytes.splice(at..end, new.iter().copied())),
        2 => drop(bytes.splice(at..at, new.iter().copied())),
        _ => drop(bytes.drain(at..end)),
    }
    Ok(())
}

/// Gives every fact from a place on the index, the hash before it and the log it stands in.
fn chain_anew(log: &mut Log, from: usize) {
    let mut head = Digest::default();
    for index in 0..log.facts.len() {
        let Ok(mut fact) = Fact::read(&log.facts[index]) else { return };
        if index >= from {
            fact.index = index as u64;
            fact.previous = head;
            fact.object = log.object;
            log.facts[index] = cbor::write(&fact);
        }
        head = head_hash(&fact.previous, &fact_hash(&log.facts[index]));
    }
}

/// Whatever somebody with a key signs, it is sealed so that every replica agrees, or refused without a trace.
fn edited_action(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let world = &LOGS.world;
    let folded = input.choose(&LOGS.logs)?;
    let fact = Fact::read(input.choose(&folded.log.facts)?).expect("a fact");
    let signer = input.choose(&LOGS.signers)?;
    let (flags, back): (u8, u8) = (input.arbitrary()?, input.arbitrary()?);
    let Some(action) = log::action_of(&fact) else { return Ok(()) };
    let mut payload = cbor::write(&action);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        edit_bytes(input, Some(&mut payload))?;
    }
    let Ok(mut action) = cbor::read_lenient::<Action>(&payload) else { return Ok(()) };
    // Without its flag, what an action needs to be looked at any further is as it must be.
    if flags & 1 == 0 && action.object.is_some() {
        action.object = Some(folded.log.object);
        action.position = Some(folded.position(usize::from(back)));
    }
    if flags & 2 == 0 {
        action.issued_at = world.hall.now;
        action.expires_at = world.hall.now.after(ACTION_VALIDITY);
    }
    if flags & 4 == 0 {
        action.token = Digest::of("kwoon fuzz token", &[&payload]);
    }
    let key = match &mut action.actor {
        Actor::Owner(owner) => {
            *owner = LOGS.owner.public();
            &LOGS.owner
        }
        Actor::Agent(agent, instance) => {
            (*agent, *instance) = (signer.agent, signer.instance);
            &signer.key
        }
    };
    let object = if flags & 8 == 0 { created(&action) } else { None }.unwrap_or(folded.log.object);
    let evidence = if flags & 16 == 0 { fact.evidence } else { Vec::new() };
    let signed = forge::sign(&action, key).to_vec();
    let mut hall = world.hall.fork();
    let before = hall.snapshot();
    match hall.sequence(Candidate { evidence, ..Candidate::of(object, signed) }) {
        Ok(_) => hall.folds_since(&before),
        Err(Stop::Refused(_)) => assert!(hall.unchanged_since(&before), "a refusal leaves no trace"),
        Err(Stop::Unreadable(error)) => panic!("a sound store cannot be read: {error}"),
    }
    Ok(())
}

/// The object that an action creates on the host of the hall.
fn created(action: &Action) -> Option<ObjectId> {
    if let Body::AgentCreate(_) = action.body {
        return Some(ObjectId::Identity(AgentId(record_hash(&cbor::write(action)))));
    }
    rules::created(action, &LOGS.host.0)
}
