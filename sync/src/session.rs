//! One conversation with another host: what each has that the other may read, and actions on their way.
//!
//! A session is pure. It reads one state of the store at a time, says what is to be sent, and hands what would change
//! something to the writer, one thing after the other. What it knows of the other is forgotten with it, but for how far the
//! other's changes were taken in. Everything may come twice, and may break off anywhere.
//!
//! It begins with a greeting on each side. Then each tells where the logs stand that changed since the other last heard,
//! and of those that this host orders the facts at once; what the other lacks, it asks for. Where one side does not know how
//! far the other has come, or what both may read differs though both are done, the side that called compares ranges. From
//! then on what is committed is told as it comes.

mod chunk;
mod ranges;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kwoon_keys::{Digest, PublicKey, cbor};
use kwoon_ledger::action::{ObjectId, attempt_hash};
use kwoon_ledger::fact::OutcomeRecord;
use kwoon_ledger::forget;
use kwoon_ledger::index;
use kwoon_ledger::log;
use kwoon_ledger::outbox::{self, Outgoing, Progress};
use kwoon_ledger::state::{Cells, ObjectNumber, Reach};
use kwoon_ledger::storage::{Read, ReadError, Table};
use kwoon_ledger::time::{Duration, Time};
use kwoon_ledger::wanted;

use self::chunk::{contents_of, ending_of, facts_of};
use self::ranges::Ranges;
use crate::intake::{self, Delivery, Intake, Received};
use crate::peers;
use crate::reach::{self, Pair};
use crate::wire::{Consignment, Contents, Heads, Hello, ITEMS_MAX, Item, Message, Seen, VERSIONS, Verdict, Wish};

/// Bytes that are made to be sent at once, beside the last message.
const SEND_BYTES: usize = 1 << 20;
/// Changes that are looked at before others get their turn.
const CHANGES_PER_STEP: usize = ITEMS_MAX;
/// Logs that first contact tells one by one; with more of them ranges are compared.
const LISTED_MAX: usize = 256;
/// Wishes of the other that wait at once. One that asks for more waits for nothing: it asks again.
const WISHES_MAX: usize = 65_536;
/// Logs of which it is remembered how much the other has.
const KNOWN_MAX: usize = 262_144;
/// How long an action that was sent and not answered waits before it is sent again in the same session.
const RESEND: Duration = Duration::seconds(20);
/// How often everything is looked at anew that is to be sent or asked for.
const SWEEP: Duration = Duration::seconds(20);
/// How often the sequencer's word on a log is asked for.
const ASK_AGAIN: Duration = Duration::minutes(1);
/// Facts of which contents are asked for at once.
const ASKED_MAX: usize = 256;

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The other speaks no version that this host speaks.
    #[error("the other host speaks no version of the conversation that this kwoon speaks; update the older of the two")]
    Version,
    /// It sent what is no message.
    #[error("the other host sent what is no message of this version")]
    Malformed,
    /// It spoke out of turn.
    #[error("the other host spoke out of turn")]
    OutOfTurn,
    /// It is this host.
    #[error("the other host has this host's own key: two daemons must not share one home or a copy of it")]
    Oneself,
}

/// What comes of a step.
#[derive(Debug, Default)]
pub struct Step {
    /// What is to be sent, in this order.
    pub send: Vec<Message>,
    /// What is to be given to the writer. Its answer goes to [`Session::received`] before the next frame is read.
    pub deliver: Option<Delivery>,
}

/// What a session is begun with.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// This host.
    pub own: PublicKey,
    /// The other.
    pub peer: PublicKey,
    /// Whether this host called.
    pub dialed: bool,
    /// How the changes of this host are counted.
    pub counting: Digest,
}

/// The digest of where logs stand, which are in the order of their ids.
pub fn digest_of(items: &[Item]) -> Digest {
    let ids: Vec<Digest> = items.iter().map(Item::id).collect();
    let parts: Vec<&[u8]> = ids.iter().map(|id| &id.as_bytes()[..]).collect();
    Digest::of("kwoon 1 shared", &parts)
}

/// See the module.
pub struct Session {
    own: PublicKey,
    peer: PublicKey,
    dialed: bool,
    counting: Digest,
    /// Whether this host's owner added the other.
    added: bool,
    /// What the other said of itself.
    hello: Option<Hello>,
    /// Changes of this host before this one were told.
    told: u64,
    /// Whether the first account of what is here was begun, one way or the other.
    opened: bool,
    /// Whether it was told to its end.
    accounted: bool,
    /// Whether the other's first account was taken in.
    heard_out: bool,
    /// Whether the digest of what both may read was told.
    digested: bool,
    /// What the other has, by what it said or was sent here: the last index.
    known: BTreeMap<ObjectId, u64>,
    /// What the other asked for.
    wishes: VecDeque<Wish>,
    content_wishes: VecDeque<Wish>,
    /// What was asked of the other and has not come: the last index that it is known to have.
    awaited: BTreeMap<ObjectId, u64>,
    /// The log of which facts were given to the writer last.
    delivered: Option<ObjectId>,
    /// How far its changes will be taken in once nothing is awaited any more.
    seen: Option<Seen>,
    ranges: Option<Ranges>,
    ranged: bool,
    /// The next place in the order of the outbox.
    sent: u64,
    /// When everything is looked at anew that is to be sent or asked for.
    sweep_at: Time,
    /// Attempts that were sent, and when to send them again.
    attempts: BTreeMap<Digest, Time>,
    /// Facts of which contents were asked for.
    asked_contents: BTreeSet<(ObjectNumber, u64)>,
    asked_objects: BTreeSet<ObjectId>,
    /// Logs of which facts are held back.
    held_back: BTreeSet<ObjectId>,
    asked_words: BTreeMap<ObjectId, Time>,
    asked_voices: BTreeSet<(ObjectId, u64)>,
    /// Logs that the other now orders, of which it may have all.
    releases: Vec<ObjectId>,
    /// Whether there is more to say than was said in the last step.
    has_more: bool,
}

impl Session {
    /// Begins a session: the greeting is the first frame to be sent.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn begin(beginning: Beginning, read: &dyn Read, now: Time) -> Result<(Self, Message), ReadError> {
        let Beginning { own, peer, dialed, counting } = beginning;
        let known = peers::get(read, &peer)?.unwrap_or_default();
        let hello = Hello {
            versions: VERSIONS,
            counting,
            changes: log::next_arrival(read)?,
            seen: known.seen,
            added: known.added,
            time: now,
        };
        let session = Self {
            own,
            peer,
            dialed,
            counting,
            added: known.added,
            hello: None,
            told: 0,
            opened: false,
            accounted: false,
            heard_out: false,
            digested: false,
            known: BTreeMap::new(),
            wishes: VecDeque::new(),
            content_wishes: VecDeque::new(),
            awaited: BTreeMap::new(),
            delivered: None,
            seen: None,
            ranges: None,
            ranged: false,
            sent: 0,
            sweep_at: Time::default(),
            attempts: BTreeMap::new(),
            asked_contents: BTreeSet::new(),
            asked_objects: BTreeSet::new(),
            held_back: BTreeSet::new(),
            asked_words: BTreeMap::new(),
            asked_voices: BTreeSet::new(),
            releases: Vec::new(),
            has_more: false,
        };
        Ok((session, Message::Hello(hello)))
    }

    fn pair(&self) -> Pair {
        let related = self.added || self.hello.as_ref().is_some_and(|hello| hello.added);
        Pair { own: self.own, peer: self.peer, related }
    }

    fn deliver(&self, intake: Intake) -> Option<Delivery> {
        Some(Delivery { peer: self.peer, related: self.pair().related, intake, seen: None })
    }

    /// Whether [`Session::step`] has more to say at once.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether nothing that was asked of the other is still to come.
    pub fn is_settled(&self) -> bool {
        self.opened && self.awaited.is_empty() && self.seen.is_none() && self.ranges.is_none() && !self.has_more
    }

    /// Takes a frame of the other.
    ///
    /// # Errors
    /// [`Broken`], inside, if the session is to end; the store cannot be read.
    pub fn frame(&mut self, read: &dyn Read, frame: &[u8], now: Time) -> Result<Result<Step, Broken>, ReadError> {
        let Ok(message) = Message::read(frame) else { return Ok(Err(Broken::Malformed)) };
        let mut step = Step::default();
        match (&self.hello, message) {
            (None, Message::Hello(hello)) => {
                if self.own == self.peer {
                    return Ok(Err(Broken::Oneself));
                }
                if VERSIONS.common(hello.versions).is_none() {
                    return Ok(Err(Broken::Version));
                }
                let time = Some(hello.time);
                self.hello = Some(hello);
                step.deliver = self.deliver(Intake::Heard { time });
            }
            (None, _) | (Some(_), Message::Hello(_)) => return Ok(Err(Broken::OutOfTurn)),
            (Some(_), message) => self.message(read, message, now, &mut step)?,
        }
        Ok(Ok(step))
    }

    fn message(&mut self, read: &dyn Read, message: Message, now: Time, step: &mut Step) -> Result<(), ReadError> {
        match message {
            Message::Heads(heads) => self.heads(read, heads, step)?,
            Message::Want(wishes) => {
                for wish in wishes {
                    self.know(wish.object, wish.from.checked_sub(1));
                    if self.wishes.len() < WISHES_MAX {
                        self.wishes.push_back(wish);
                    }
                }
                self.has_more = true;
            }
            Message::WantContents(wishes) => {
                let room = WISHES_MAX.saturating_sub(self.content_wishes.len());
                self.content_wishes.extend(wishes.into_iter().take(room));
                self.has_more = true;
            }
            Message::Facts(facts) => {
                let last = facts.from.saturating_add(facts.facts.len() as u64).checked_sub(1);
                self.know(facts.object, last);
                self.delivered = Some(facts.object);
                // Noted together with the facts, if nothing else is to come first.
                let seen = self
                    .hello
                    .as_ref()
                    .zip(facts.changes)
                    .map(|(hello, changes)| Seen { counting: hello.counting, changes });
                let seen = seen.filter(|_| self.awaited.is_empty() && self.ranges.is_none() && self.seen.is_none());
                step.deliver = self.deliver(Intake::Message(Message::Facts(facts))).map(|d| Delivery { seen, ..d });
            }
            Message::Verdicts(verdicts) => {
                for verdict in &verdicts {
                    match verdict {
                        Verdict::NotTaken(attempt, milliseconds) => {
                            let again = now.after(Duration((*milliseconds).clamp(100, 60_000)));
                            if let Some(at) = self.attempts.get_mut(attempt) {
                                *at = again;
                            }
                        }
                        Verdict::PassedOn(attempt) => {
                            if let Some(at) = self.attempts.get_mut(attempt) {
                                *at = Time(u64::MAX);
                            }
                        }
                        Verdict::Elsewhere(attempt, ..) => {
                            if let Some(at) = self.attempts.get_mut(attempt) {
                                *at = now.after(ASK_AGAIN);
                            }
                        }
                        Verdict::Sealed(..) | Verdict::Ended(..) => {}
                    }
                }
                step.deliver = self.deliver(Intake::Message(Message::Verdicts(verdicts)));
            }
            Message::Ranges(bytes) => self.ranges(read, &bytes, step)?,
            // After it nothing more of the log comes.
            Message::Ending(ending) => {
                self.awaited.remove(&ending.object);
                step.deliver = self.deliver(Intake::Message(Message::Ending(ending)));
            }
            Message::Items(ids) => {
                let Some(ranges) = self.ranges.take() else { return Ok(()) };
                let items = ranges.items(&ids);
                self.ranged = true;
                for items in items.chunks(ITEMS_MAX) {
                    step.send.push(Message::Heads(Heads {
                        items: items.to_vec(),
                        changes: None,
                        digest: None,
                        ranges: false,
                    }));
                }
                step.send.push(self.account(ranges.changes(), Vec::new(), None));
            }
            message => {
                // No more than the end of a right comes of a log.
                if let Message::Ending(ending) = &message {
                    self.awaited.remove(&ending.object);
                }
                step.deliver = self.deliver(Intake::Message(message));
            }
        }
        Ok(())
    }

    /// Takes what the writer made of the last delivery.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn received(&mut self, read: &dyn Read, received: Received, now: Time) -> Result<Step, ReadError> {
        let mut step = Step { send: received.messages, deliver: None };
        for message in &step.send {
            if let Message::Want(wishes) = message {
                for wish in wishes {
                    let head = self.head_of(read, &wish.object)?.map_or(0, |(index, _)| index);
                    self.await_until(wish.object, self.known.get(&wish.object).copied().unwrap_or(head));
                }
            }
        }
        if self.held_back.len() < ASKED_MAX {
            self.held_back.extend(received.held_back);
        }
        if let Some(object) = self.delivered.take() {
            // What cannot be taken is not waited for: it is noted as wanted, and asked for again.
            let until = self.awaited.get(&object).copied();
            if until.is_some() && (received.fault.is_some() || self.is_here(read, &object, until)?) {
                self.awaited.remove(&object);
            }
        }
        if let Some(delivery) = self.next_note() {
            step.deliver = Some(delivery);
            return Ok(step);
        }
        // Once the first account of the one that called is taken in, the other says what it makes of all.
        if !self.dialed && self.heard_out && !self.digested && self.is_quiet() {
            self.digested = true;
            let digest = Some(digest_of(&reach::shared(read, &self.pair())?));
            step.send.push(Message::Heads(Heads { items: Vec::new(), changes: None, digest, ranges: false }));
        }
        let more = self.step(read, now)?;
        step.send.extend(more.send);
        step.deliver = more.deliver;
        Ok(step)
    }

    /// Whether nothing is under way, either way.
    fn is_quiet(&self) -> bool {
        self.awaited.is_empty() && self.wishes.is_empty() && self.ranges.is_none()
    }

    /// Whether a log is here up to an index.
    fn is_here(&self, read: &dyn Read, object: &ObjectId, until: Option<u64>) -> Result<bool, ReadError> {
        Ok(self.head_of(read, object)?.map(|(head, _)| head) >= until)
    }

    /// What of that which was awaited is here by now, whoever brought it.
    fn settle(&mut self, read: &dyn Read) -> Result<(), ReadError> {
        let mut here = BTreeSet::new();
        for (object, index) in &self.awaited {
            if self.is_here(read, object, Some(*index))? {
                here.insert(*object);
            }
        }
        self.awaited.retain(|object, _| !here.contains(object));
        Ok(())
    }

    /// What is to be noted of the other, if something is.
    fn next_note(&mut self) -> Option<Delivery> {
        if let Some(object) = self.releases.pop() {
            return self.deliver(Intake::Released(object));
        }
        if self.awaited.is_empty() && self.ranges.is_none() {
            let seen = self.seen.take()?;
            self.heard_out = true;
            let heard = self.deliver(Intake::Heard { time: None });
            return heard.map(|delivery| Delivery { seen: Some(seen), ..delivery });
        }
        None
    }

    fn know(&mut self, object: ObjectId, index: Option<u64>) {
        let Some(index) = index else { return };
        if self.known.len() < KNOWN_MAX || self.known.contains_key(&object) {
            let known = self.known.entry(object).or_insert(index);
            *known = index.max(*known);
        }
    }

    /// Notes that a log is to come up to an index. What is not noted comes as well.
    fn await_until(&mut self, object: ObjectId, index: u64) {
        if self.awaited.len() < KNOWN_MAX || self.awaited.contains_key(&object) {
            self.awaited.insert(object, index);
        }
    }

    /// Where a log stands here, and its number.
    fn head_of(&self, read: &dyn Read, object: &ObjectId) -> Result<Option<(u64, ObjectNumber)>, ReadError> {
        let Some(number) = index::number(read, object)? else { return Ok(None) };
        Ok(Cells::new(read, number).head()?.map(|head| (head.index, number)))
    }

    /// Where logs stand at the other.
    fn heads(&mut self, read: &dyn Read, heads: Heads, step: &mut Step) -> Result<(), ReadError> {
        let mut wishes = Vec::new();
        for item in &heads.items {
            self.know(item.object, Some(item.index));
            let head = self.head_of(read, &item.object)?;
            let reach = head.map_or(Ok(Reach::Nothing), |(_, number)| reach::reach(read, &self.pair(), number))?;
            // What came after the end of the other's right is as if it were not here.
            let until = if let Reach::Ended(index) = reach { index } else { u64::MAX };
            match head.map(|(index, number)| (index.min(until), number)) {
                Some((index, _)) if index >= item.index => {
                    // What it lacks it is told, and a log that it orders by now is its own.
                    let more = index > item.index && reach != Reach::Nothing;
                    if more && self.wishes.len() < WISHES_MAX {
                        self.wishes.push_back(Wish { object: item.object, from: item.index.saturating_add(1) });
                        self.has_more = true;
                    } else if index == item.index && self.is_kept_for(read, &item.object)? {
                        self.releases.push(item.object);
                    }
                }
                // Only this host adds to it.
                Some((_, number)) if log::is_ordered_by(read, &self.own, number)? => {}
                _ => {
                    let from = reach::asks_from(read, &self.pair(), &item.object)?;
                    wishes.push(Wish { object: item.object, from });
                    if until == u64::MAX {
                        self.await_until(item.object, item.index);
                    }
                }
            }
        }
        if !wishes.is_empty() {
            step.send.push(Message::Want(wishes));
        }
        if heads.ranges && self.dialed && !self.ranged && self.ranges.is_none() {
            self.begin_ranges(read, step)?;
        }
        if let (Some(changes), Some(hello)) = (heads.changes, &self.hello) {
            self.seen = Some(Seen { counting: hello.counting, changes });
            step.deliver = self.next_note();
        }
        if step.deliver.is_none() && !self.releases.is_empty() {
            step.deliver = self.next_note();
        }
        if let Some(digest) = heads.digest
            && self.dialed
            && !self.ranged
            && self.is_quiet()
            && digest_of(&reach::shared(read, &self.pair())?) != digest
        {
            self.begin_ranges(read, step)?;
        }
        Ok(())
    }

    /// Whether a log is here only until the host that orders it now has all of it.
    fn is_kept_for(&self, read: &dyn Read, object: &ObjectId) -> Result<bool, ReadError> {
        let Some((_, number)) = self.head_of(read, object)? else { return Ok(false) };
        let cells = Cells::new(read, number);
        let is_thread = matches!(object, ObjectId::Thread(_));
        let moved = cells.head()?.is_some_and(|head| head.sequencer == self.peer);
        Ok(is_thread && moved && matches!(cells.reach(&self.own)?, Reach::Ended(_)))
    }

    /// Says where logs stand, and that this is all up to a change.
    fn account(&self, changes: u64, items: Vec<Item>, digest: Option<Digest>) -> Message {
        Message::Heads(Heads { items, changes: Some(changes), digest, ranges: false })
    }

    // ---------------------------------------------------------------------------------------------------- ranges

    fn begin_ranges(&mut self, read: &dyn Read, step: &mut Step) -> Result<(), ReadError> {
        let changes = log::next_arrival(read)?;
        let (ranges, first) = Ranges::begin(reach::shared(read, &self.pair())?, changes);
        self.ranges = Some(ranges);
        step.send.push(Message::Ranges(first.into()));
        Ok(())
    }

    fn ranges(&mut self, read: &dyn Read, bytes: &[u8], step: &mut Step) -> Result<(), ReadError> {
        if self.ranges.is_none() && !self.dialed && !self.ranged {
            let changes = log::next_arrival(read)?;
            self.ranges = Some(Ranges::answering(reach::shared(read, &self.pair())?, changes));
        }
        let Some(ranges) = &mut self.ranges else { return Ok(()) };
        if let Some(next) = ranges.next(bytes) {
            step.send.push(Message::Ranges(next.into()));
            return Ok(());
        }
        // The one that began knows both differences now: it tells its own, and asks for the other's.
        let Some(ranges) = self.ranges.take_if(|_| self.dialed) else { return Ok(()) };
        self.ranged = true;
        let (ours, theirs) = ranges.differences();
        for items in ours.chunks(ITEMS_MAX) {
            step.send.push(Message::Heads(Heads { items: items.to_vec(), changes: None, digest: None, ranges: false }));
        }
        step.send.push(self.account(ranges.changes(), Vec::new(), None));
        for ids in theirs.chunks(ITEMS_MAX) {
            step.send.push(Message::Items(ids.to_vec()));
        }
        if theirs.is_empty() {
            step.send.push(Message::Items(Vec::new()));
        }
        self.told = self.told.max(ranges.changes());
        Ok(())
    }

    // ---------------------------------------------------------------------------------------------------- telling

    /// Says what there is to say: the first account, what changed since, what was asked for, actions on their way.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn step(&mut self, read: &dyn Read, now: Time) -> Result<Step, ReadError> {
        let mut step = Step::default();
        self.has_more = false;
        if self.hello.is_none() {
            return Ok(step);
        }
        let mut bytes = 0;
        if !self.opened {
            self.open(read, &mut step)?;
        }
        let sweeps = now >= self.sweep_at || self.attempts.values().any(|at| *at <= now);
        self.tell_actions(read, (now, sweeps), &mut step, &mut bytes)?;
        self.tell_wishes(read, &mut step, &mut bytes)?;
        if bytes < SEND_BYTES {
            self.tell_changes(read, &mut step, &mut bytes)?;
        }
        if now >= self.sweep_at {
            self.sweep_at = now.after(SWEEP);
            self.settle(read)?;
            step.deliver = self.next_note();
            self.ask(read, now, &mut step)?;
        }
        self.ask_voices(read, &mut step)?;
        self.has_more |= bytes >= SEND_BYTES;
        Ok(step)
    }

    /// When the session has something to say by itself at the latest.
    pub fn wake_at(&self, now: Time) -> Time {
        let resend = self.attempts.values().copied().filter(|at| *at < Time(u64::MAX)).min();
        resend.map_or(self.sweep_at, |at| at.min(self.sweep_at)).clamp(now, now.after(SWEEP))
    }

    /// The first account of what is here: what changed since the other last heard, if that is known.
    fn open(&mut self, read: &dyn Read, step: &mut Step) -> Result<(), ReadError> {
        self.opened = true;
        let Some(hello) = &self.hello else { return Ok(()) };
        let changes = log::next_arrival(read)?;
        let since = hello.seen.filter(|seen| seen.counting == self.counting && seen.changes <= changes);
        if let Some(seen) = since {
            self.told = seen.changes;
            if self.told == changes {
                self.accounted = true;
                step.send.push(self.account(changes, Vec::new(), None));
            }
            return Ok(());
        }
        self.told = changes;
        self.accounted = true;
        let items = reach::shared(read, &self.pair())?;
        if items.len() <= LISTED_MAX {
            step.send.push(self.account(changes, items, None));
        } else if self.dialed {
            self.begin_ranges(read, step)?;
        } else {
            step.send.push(Message::Heads(Heads { items: Vec::new(), changes: None, digest: None, ranges: true }));
        }
        Ok(())
    }

    /// What changed since the last step.
    fn tell_changes(&mut self, read: &dyn Read, step: &mut Step, bytes: &mut usize) -> Result<(), ReadError> {
        let pair = self.pair();
        let arrivals = log::arrivals(read, self.told, CHANGES_PER_STEP)?;
        let Some((last, ..)) = arrivals.last() else { return Ok(()) };
        let until = last.saturating_add(1);
        let mut changed: BTreeMap<ObjectNumber, u64> = BTreeMap::new();
        for (_, number, index) in &arrivals {
            changed.entry(*number).and_modify(|first| *first = *index.min(first)).or_insert(*index);
        }
        let (mut items, mut wishes) = (Vec::new(), Vec::new());
        for (number, first) in changed {
            let Some(item) = reach::item(read, number)? else { continue };
            let reach = reach::reach(read, &pair, number)?;
            let known = self.known.get(&item.object).copied();
            // A log that was gone and came again, from who has less of it: the other has more, and was not asked.
            if let Some(known) = known.filter(|known| *known > item.index && !self.awaited.contains_key(&item.object)) {
                self.awaited.insert(item.object, known);
                wishes.push(Wish { object: item.object, from: item.index.saturating_add(1) });
            }
            if reach == Reach::Nothing || known.is_some_and(|known| known >= item.index) {
                continue;
            }
            if let Reach::Ended(index) = reach {
                // The other asks for the end from where it stands. What came after that is no news to it.
                if first <= index && known.is_none_or(|known| known < index) {
                    items.extend(reach::item_until(read, number, index)?);
                }
                continue;
            }
            // What this host orders nobody else has before it: the facts go at once. What was heard elsewhere the other may
            // have heard there, too.
            let orders = log::is_ordered_by(read, &self.own, number)?;
            let from = known.map_or(first, |known| known.saturating_add(1));
            if orders && *bytes < SEND_BYTES {
                self.wishes.push_front(Wish { object: item.object, from });
                self.tell_wishes(read, step, bytes)?;
            } else {
                items.push(item);
            }
        }
        // No more of them than changes are looked at.
        if !wishes.is_empty() {
            step.send.push(Message::Want(wishes));
        }
        self.told = until;
        let more = arrivals.len() == CHANGES_PER_STEP;
        self.has_more |= more || !self.wishes.is_empty();
        let changes = (!more && self.wishes.is_empty()).then_some(until);
        if items.is_empty() && self.accounted {
            // One message of facts says itself how far it goes; where nothing concerns the other nothing is said.
            match step.send.last_mut() {
                Some(Message::Facts(facts)) if self.wishes.is_empty() => facts.changes = changes,
                _ => {}
            }
            return Ok(());
        }
        self.accounted |= changes.is_some();
        let mut rest = items.as_slice();
        while rest.len() > ITEMS_MAX {
            let (some, others) = rest.split_at(ITEMS_MAX);
            step.send.push(Message::Heads(Heads { items: some.to_vec(), changes: None, digest: None, ranges: false }));
            rest = others;
        }
        step.send.push(Message::Heads(Heads { items: rest.to_vec(), changes, digest: None, ranges: false }));
        Ok(())
    }

    /// What the other asked for.
    fn tell_wishes(&mut self, read: &dyn Read, step: &mut Step, bytes: &mut usize) -> Result<(), ReadError> {
        let pair = self.pair();
        while *bytes < SEND_BYTES {
            let Some(wish) = self.wishes.pop_front() else { break };
            let Some((head, number)) = self.head_of(read, &wish.object)? else { continue };
            match reach::reach(read, &pair, number)? {
                Reach::Nothing => {}
                Reach::Ended(index) if wish.from <= index => {
                    if let Some(ending) = ending_of(read, number, wish.from, index)? {
                        *bytes += 1024;
                        self.know(wish.object, Some(index));
                        step.send.push(Message::Ending(ending));
                    }
                }
                // There is no more: the other learns how far this host is.
                Reach::Ended(index) => {
                    let items = reach::item_until(read, number, index)?.into_iter().collect();
                    step.send.push(Message::Heads(Heads { items, changes: None, digest: None, ranges: false }));
                }
                Reach::Whole if wish.from > head => {
                    let items = reach::item(read, number)?.into_iter().collect();
                    step.send.push(Message::Heads(Heads { items, changes: None, digest: None, ranges: false }));
                }
                Reach::Whole => {
                    let Some((facts, length)) = facts_of(read, number, wish.from, &self.peer)? else { continue };
                    *bytes += length;
                    let next = facts.from + facts.facts.len() as u64;
                    self.know(wish.object, next.checked_sub(1));
                    step.send.push(Message::Facts(facts));
                    if next <= head {
                        self.wishes.push_front(Wish { from: next, ..wish });
                    }
                }
            }
        }
        while *bytes < SEND_BYTES {
            let Some(wish) = self.content_wishes.pop_front() else { break };
            let Some((head, number)) = self.head_of(read, &wish.object)? else { continue };
            if wish.from > head || reach::reach(read, &pair, number)? != Reach::Whole {
                continue;
            }
            let contents = contents_of(read, number, wish.from, &self.peer)?;
            if !contents.is_empty() {
                *bytes += contents.iter().map(|content| content.bytes.len()).sum::<usize>();
                step.send.push(Message::Contents(Contents { object: wish.object, index: wish.from, contents }));
            }
        }
        self.has_more |= !self.wishes.is_empty() || !self.content_wishes.is_empty();
        Ok(())
    }

    /// Actions on their way: to their sequencer, or by whoever may read them.
    fn tell_actions(
        &mut self,
        read: &dyn Read,
        (now, sweeps): (Time, bool),
        step: &mut Step,
        bytes: &mut usize,
    ) -> Result<(), ReadError> {
        let mut consignments = Vec::new();
        // What was not answered is sent again from the beginning of the outbox; what was is passed over.
        let mut from = if sweeps { 0 } else { self.sent };
        while *bytes < SEND_BYTES && consignments.len() < ITEMS_MAX {
            let page = outbox::since(read, from, 64)?;
            let Some(last) = page.last().map(|row| row.order) else { break };
            for row in page {
                if *bytes >= SEND_BYTES {
                    self.has_more = true;
                    break;
                }
                from = row.order.saturating_add(1);
                let attempt = attempt_hash(&row.carried.signed);
                if self.attempts.get(&attempt).is_some_and(|at| *at > now) || !self.helps(read, &row)? {
                    continue;
                }
                self.attempts.insert(attempt, now.after(RESEND));
                let consignment = self.consign(read, row)?;
                *bytes += consignment.carried.signed.len();
                *bytes += consignment.contents.iter().map(|content| content.bytes.len()).sum::<usize>();
                consignments.push(consignment);
            }
            if from <= last {
                break;
            }
        }
        self.sent = self.sent.max(from);
        if !consignments.is_empty() {
            step.send.push(Message::Actions(consignments));
        }
        // Of what is in the outbox no longer nothing is to be sent again.
        if sweeps {
            self.attempts.retain(|_, at| *at > now);
        }
        Ok(())
    }

    /// Whether the other can do something about an action: it orders the log, may read it, or is named by a ticket.
    fn helps(&self, read: &dyn Read, row: &Outgoing) -> Result<bool, ReadError> {
        if row.progress != Progress::Pending {
            return Ok(false);
        }
        let Some(number) = index::number(read, &row.carried.object)? else {
            let ended = forget::ended_of(read, &row.carried.object)?;
            let knew = |ended: &forget::Ended| ended.sequencer == self.peer || ended.hosts.contains(&self.peer);
            return Ok(row.hosts.contains(&self.peer) || ended.iter().any(knew));
        };
        let cells = Cells::new(read, number);
        let Some(head) = cells.head()? else { return Ok(false) };
        if log::is_ordered_by(read, &self.own, number)? {
            return Ok(false);
        }
        Ok(head.sequencer == self.peer || row.hosts.contains(&self.peer) || cells.readers(&self.peer)? > 0)
    }

    fn consign(&self, read: &dyn Read, row: Outgoing) -> Result<Consignment, ReadError> {
        let action = row.carried.action()?;
        let mut commitments = Vec::new();
        action.body.contents(|commitment| commitments.push(*commitment));
        // V5: a note goes to the host of the agent whose entry it is about, and past everybody else.
        if let (Some(note), Some(number)) = (action.body.note(), index::number(read, &row.carried.object)?) {
            let cells = Cells::new(read, number);
            if let kwoon_ledger::action::Body::EntryHandle(entry, _) = &action.body
                && let Some(entry) = cells.entry_of(entry)?
                && let Some(author) = cells.entry(entry)?.map(|entry| entry.author)
                && cells.account(&author)?.is_some_and(|account| account.lives_on(&self.peer))
            {
                commitments.push(*note);
            }
        }
        let mut carried = row.carried;
        for request in action.needs.iter().chain(&action.after) {
            if let Some(Progress::Refused(outcome)) = outbox::find(read, request)?.map(|row| row.progress) {
                carried.outcomes.push(outcome);
            } else if let Some(record) = read.get(Table::Outcomes, request.as_bytes())? {
                let record: OutcomeRecord = cbor::read_own(&record).map_err(|_| ReadError::damaged("an outcome"))?;
                carried.outcomes.push(record.outcome);
            }
        }
        let mut contents = Vec::new();
        for commitment in commitments {
            if let Some((salt, bytes)) = read.content(&commitment.hash)? {
                contents.push(crate::wire::Content { salt, bytes: bytes.into() });
            }
        }
        Ok(Consignment { carried, contents })
    }

    /// What this host lacks and the other may have: contents, objects that logs refer to, the sequencer's word on logs whose
    /// actions may have expired, and its voice for a handover.
    fn ask(&mut self, read: &dyn Read, now: Time, step: &mut Step) -> Result<(), ReadError> {
        let mut wishes = Vec::new();
        let mut after = None;
        while wishes.len() < ASKED_MAX {
            let page = wanted::contents(read, after, 64)?;
            let Some(last) = page.last().copied() else { break };
            after = Some(last);
            for (number, index) in page {
                if self.asked_contents.contains(&(number, index)) {
                    continue;
                }
                let Some(object) = log::object(read, number)? else { continue };
                let cells = Cells::new(read, number);
                let helps =
                    cells.readers(&self.peer)? > 0 || cells.head()?.is_some_and(|head| head.sequencer == self.peer);
                if helps && self.asked_contents.len() < WISHES_MAX {
                    self.asked_contents.insert((number, index));
                    wishes.push(Wish { object, from: index });
                }
            }
        }
        if !wishes.is_empty() {
            step.send.push(Message::WantContents(wishes));
        }
        let mut wishes = Vec::new();
        for (object, referrer) in wanted::objects(read, None, ASKED_MAX)? {
            let helps = referrer == wanted::OF_ANYONE || Cells::new(read, referrer).readers(&self.peer)? > 0;
            if helps && self.asked_objects.insert(object) {
                let from = self.head_of(read, &object)?.map_or(0, |(index, _)| index.saturating_add(1));
                wishes.push(Wish { object, from });
            }
        }
        // What is here only until the other has it all: it says so when it is asked for more.
        let mut leaving = Vec::new();
        for number in wanted::leaving(read, ASKED_MAX)? {
            let Some(head) = Cells::new(read, number).head()? else { continue };
            if head.sequencer == self.peer {
                wishes.push(Wish { object: head.object, from: head.index.saturating_add(1) });
                leaving.extend(reach::item(read, number)?);
            }
        }
        for object in std::mem::take(&mut self.held_back) {
            let from = reach::asks_from(read, &self.pair(), &object)?;
            wishes.push(Wish { object, from });
        }
        if !leaving.is_empty() {
            step.send.push(Message::Heads(Heads { items: leaving, changes: None, digest: None, ranges: false }));
        }
        if !wishes.is_empty() {
            step.send.push(Message::Want(wishes));
        }
        self.ask_words(read, now, step)
    }

    fn ask_words(&mut self, read: &dyn Read, now: Time, step: &mut Step) -> Result<(), ReadError> {
        for row in outbox::since(read, 0, ASKED_MAX)? {
            if !row.own || !row.is_pending() || row.carried.action()?.expires_at > now {
                continue;
            }
            let object = row.carried.object;
            let Some(number) = index::number(read, &object)? else { continue };
            let orders = Cells::new(read, number).head()?.is_some_and(|head| head.sequencer == self.peer);
            let due = self.asked_words.get(&object).is_none_or(|at| *at <= now);
            if orders && due {
                self.asked_words.insert(object, now.after(ASK_AGAIN));
                step.send.push(Message::AskSeal(object));
            }
        }
        Ok(())
    }

    fn ask_voices(&mut self, read: &dyn Read, step: &mut Step) -> Result<(), ReadError> {
        for (object, voice) in intake::voices(read)? {
            let Some(number) = index::number(read, &object)? else { continue };
            let Some(head) = Cells::new(read, number).head()? else { continue };
            let is_open = head.sequencer == self.own && head.epoch.checked_add(1) == Some(voice.next_epoch);
            if is_open && voice.next_host == self.peer && self.asked_voices.insert((object, voice.next_epoch)) {
                step.send.push(Message::AskVoice(voice.signed));
            }
        }
        Ok(())
    }
}
