//! A draft of one fact: effects take hold in a layer over the state as they are derived, so that each rule sees what
//! the rules before it did. Dropping the draft undoes all of it (L2.1, L2.2).

use alloc::vec::Vec;

use kwoon_keys::id::{AgentId, AssignmentId};
use kwoon_keys::{PublicKey, cbor};
use minicbor::Encode;

use crate::action::{Assign, Role};
use crate::effect::{Account, Duty, Effect, EntryPosted, Exit, Obligation};
use crate::index::{self, IdKind, List, OfferRow, Place, TurnRow};
use crate::state::{
    Assignment, Cell, Cells, Entry, Epoch, Head, IdentityVersion, Member, Memory, ObjectNumber, Progress, Publication,
    Response, Thread, cell_key, fewer, more, number_at_end,
};
use crate::storage::{Overlay, Read, ReadError, Table};
use crate::time::Time;

/// The fact under way.
pub struct Draft<'a> {
    /// The state with what was derived so far.
    pub overlay: Overlay<'a>,
    /// The effects so far.
    pub effects: Vec<Effect>,
    /// The log's number.
    pub number: ObjectNumber,
    /// The index the fact will have.
    pub index: u64,
    /// Its arrival number on this host.
    pub arrival: u64,
    /// Its log time.
    pub time: Time,
}

impl<'a> Draft<'a> {
    /// Nothing yet, over `base`.
    pub fn new(base: &'a dyn Read, number: ObjectNumber, index: u64, arrival: u64, time: Time) -> Self {
        Self { overlay: Overlay::new(base), effects: Vec::new(), number, index, arrival, time }
    }

    /// The log's cells with what was derived so far.
    pub fn cells(&self) -> Cells<'_> {
        Cells::new(&self.overlay, self.number)
    }

    fn put<T: Encode<()>>(&mut self, cell: Cell, parts: &[&[u8]], value: &T) {
        self.overlay.put(Table::Derived, cell_key(self.number, cell, parts), cbor::write(value));
    }

    fn remove(&mut self, cell: Cell, parts: &[&[u8]]) {
        self.overlay.remove(Table::Derived, cell_key(self.number, cell, parts));
    }

    fn thread(&self) -> Result<Thread, ReadError> {
        self.cells().thread()
    }

    fn set_thread(&mut self, thread: &Thread) {
        self.put(Cell::Thread, &[], thread);
    }

    /// Derives one effect: it is noted, and takes hold.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn emit(&mut self, effect: Effect) -> Result<(), ReadError> {
        match &effect {
            Effect::IdentitySet(agent, account, profile) => {
                if let Some(before) = self.cells().account(agent)?.filter(|before| before.owner != account.owner) {
                    let owner = kwoon_keys::Digest(before.owner.0).short();
                    index::list_remove(&mut self.overlay, List::Agents, &owner, &agent.0.short())?;
                }
                let before = self.cells().account(agent)?;
                self.change_readers(before.as_ref(), Some(account))?;
                self.put(Cell::Account, &[agent.as_bytes()], account);
                let version = IdentityVersion { account: account.clone(), profile: profile.clone() };
                self.put(Cell::Identity, &[&account.version.to_be_bytes()], &version);
                self.list_agent(agent, account)?;
            }
            Effect::AccountSet(agent, account) => {
                if self.is_reader(agent)? {
                    let before = self.cells().account(agent)?;
                    self.change_readers(before.as_ref(), Some(account))?;
                }
                self.put(Cell::Account, &[agent.as_bytes()], account);
            }
            Effect::MemoryCreated(memory, author) => {
                let state = Memory {
                    memory: *memory,
                    author: *author,
                    version: 0,
                    public: false,
                    published: false,
                    withdrawn: false,
                };
                self.put(Cell::Memory, &[], &state);
                let account = self.cells().account(author)?;
                self.change_readers(None, account.as_ref())?;
                let (owner, handle) = (index::owner(author), memory.0.short());
                if !index::list_has(&self.overlay, List::Memories, &owner, &handle)? {
                    let key = (List::Memories, &owner, &handle);
                    index::list_put(&mut self.overlay, key, self.time.0, self.arrival, memory);
                }
            }
            Effect::VersionAdded(number, version, _) => {
                self.put(Cell::Version, &[&number.to_be_bytes()], version);
                self.change_memory(|memory| memory.version = *number)?;
            }
            Effect::MadePublic(..) => {
                self.change_memory(|memory| {
                    memory.public = true;
                    memory.published = true;
                })?;
            }
            Effect::MadePrivate => {
                self.change_memory(|memory| memory.public = false)?;
            }
            Effect::MemoryWithdrawn(_) => {
                let memory = self.change_memory(|memory| {
                    memory.withdrawn = true;
                    memory.public = false;
                })?;
                let (owner, handle) = (index::owner(&memory.author), memory.memory.0.short());
                index::list_remove(&mut self.overlay, List::Memories, &owner, &handle)?;
            }
            Effect::PublicationSet(memory, author, number, version, source) => {
                let current = Some((*number, version.clone()));
                let (index, source) = (self.index, *source);
                let state = Publication { memory: *memory, author: *author, current, withdrawn: false, index, source };
                if index == 0 {
                    let account = self.cells().account(author)?;
                    self.change_readers(None, account.as_ref())?;
                }
                self.put(Cell::Publication, &[], &state);
                index::set_public(&mut self.overlay, memory, true);
            }
            Effect::PublicationEnded(memory, withdrawn, source) => {
                let mut state = self.cells().publication()?;
                state.current = None;
                state.withdrawn = *withdrawn;
                state.index = self.index;
                state.source = *source;
                self.put(Cell::Publication, &[], &state);
                index::set_public(&mut self.overlay, memory, false);
            }
            Effect::ThreadCreated(thread, creator, subject) => self.set_thread(&Thread {
                thread: *thread,
                creator: *creator,
                subject: *subject,
                closed: false,
                admission: None,
                entries: 0,
                members: 0,
                voices: 0,
                governors: 0,
                obligations: 0,
                created_at: self.time,
            }),
            Effect::AdmissionIssued(id, grant) => {
                let mut thread = self.thread()?;
                thread.admission = Some((*id, *grant));
                self.set_thread(&thread);
            }
            Effect::AdmissionVoided(_) => {
                let mut thread = self.thread()?;
                thread.admission = None;
                self.set_thread(&thread);
            }
            Effect::MembershipBegan(agent, role, admission) => {
                let mut thread = self.thread()?;
                thread.members = more(thread.members)?;
                count_role(&mut thread, None, Some(*role))?;
                let member = Member { role: *role, admission: *admission, since: self.time, index: self.index };
                self.put(Cell::Member, &[agent.as_bytes()], &member);
                let account = self.cells().account(agent)?;
                self.change_readers(None, account.as_ref())?;
                let (owner, handle) = (index::owner(agent), thread.thread.0.short());
                for list in [List::Threads, List::OpenThreads] {
                    let key = (list, &owner, &handle);
                    index::list_put(&mut self.overlay, key, self.time.0, self.arrival, &self.number);
                }
                self.set_thread(&thread);
            }
            Effect::MembershipEnded(agent, _) => {
                let mut thread = self.thread()?;
                thread.members = fewer(thread.members)?;
                let role = self.cells().member(agent)?.map(|member| member.role);
                count_role(&mut thread, role, None)?;
                self.remove(Cell::Member, &[agent.as_bytes()]);
                let account = self.cells().account(agent)?;
                self.change_readers(account.as_ref(), None)?;
                let (owner, handle) = (index::owner(agent), thread.thread.0.short());
                index::list_remove(&mut self.overlay, List::Threads, &owner, &handle)?;
                index::list_remove(&mut self.overlay, List::OpenThreads, &owner, &handle)?;
                self.set_thread(&thread);
            }
            Effect::RoleSet(agent, role) => {
                let mut thread = self.thread()?;
                if let Some(mut member) = self.cells().member(agent)? {
                    count_role(&mut thread, Some(member.role), Some(*role))?;
                    member.role = *role;
                    self.put(Cell::Member, &[agent.as_bytes()], &member);
                }
                self.set_thread(&thread);
            }
            Effect::EntryPosted(entry) => self.entry_posted(entry)?,
            Effect::ObligationBegan(obligation) => self.obligation_began(obligation)?,
            Effect::ObligationEnded(obligation, exit) => self.obligation_ended(obligation, *exit)?,
            Effect::AssignmentOffered(id, entry, creator, terms) => {
                self.assignment_offered(id, *entry, creator, terms)?;
            }
            Effect::AssignmentTaken(id, due) => {
                let time = self.time;
                let assignment = self.change_assignment(id, |assignment| {
                    assignment.taken = true;
                    assignment.progress = Progress::Taken(time, *due);
                })?;
                self.end_offer(&assignment)?;
            }
            Effect::AssignmentDelivered(id, output, due) => {
                let time = self.time;
                for pin in &output.memories {
                    index::set_pinned(&mut self.overlay, &pin.memory, self.number);
                }
                self.change_assignment(id, |assignment| {
                    assignment.output = Some(output.clone());
                    assignment.progress = Progress::Delivered(time, *due, false);
                })?;
            }
            Effect::AssignmentEnded(id, end, reason) => {
                let time = self.time;
                // The deadline of a lost judgment has outlived its obligation.
                if let Some((due, entry)) = self.cells().assignment(id)?.and_then(|a| Some((a.due_at()?, a.entry))) {
                    self.clear_due(due, entry)?;
                }
                let assignment = self
                    .change_assignment(id, |assignment| assignment.progress = Progress::Ended(*end, time, *reason))?;
                self.end_offer(&assignment)?;
                let entry = assignment.entry.to_be_bytes();
                self.remove(Cell::Open, &[&entry]);
                self.remove(Cell::Party, &[assignment.creator.as_bytes(), &entry]);
                self.remove(Cell::Party, &[assignment.terms.to.as_bytes(), &entry]);
                self.add_caused(&assignment.creator, -1)?;
            }
            Effect::JudgmentForfeited(id) => {
                self.change_assignment(id, |assignment| {
                    assignment.forfeited = true;
                    if let Progress::Delivered(_, _, forfeited) = &mut assignment.progress {
                        *forfeited = true;
                    }
                })?;
            }
            Effect::ThreadClosed => {
                let mut thread = self.thread()?;
                thread.closed = true;
                self.set_thread(&thread);
                for (agent, _) in self.cells().members()? {
                    let (owner, handle) = (index::owner(&agent), thread.thread.0.short());
                    index::list_remove(&mut self.overlay, List::OpenThreads, &owner, &handle)?;
                }
            }
            Effect::EpochBegan(_, host, _) => self.move_deadlines(host)?,
        }
        self.effects.push(effect);
        Ok(())
    }

    /// Whether an agent is one of those whose right to read this log depends on its account.
    fn is_reader(&self, agent: &AgentId) -> Result<bool, ReadError> {
        let cells = self.cells();
        if cells.member(agent)?.is_some() {
            return Ok(true);
        }
        let author =
            match (cells.load::<Memory>(Cell::Memory, &[])?, cells.load::<Publication>(Cell::Publication, &[])?) {
                (Some(memory), _) => Some(memory.author),
                (None, Some(publication)) => Some(publication.author),
                (None, None) => None,
            };
        Ok(author == Some(*agent))
    }

    /// One reader's account is another: the hosts it lives on may read, those it no longer lives on may not for its sake.
    fn change_readers(&mut self, before: Option<&Account>, after: Option<&Account>) -> Result<(), ReadError> {
        let hosts = |account: Option<&Account>| account.map(Account::hosts).unwrap_or_default();
        let (before, after) = (hosts(before), hosts(after));
        for host in after.difference(&before) {
            let readers = more(self.cells().readers(host)?)?;
            self.put(Cell::Readers, &[&host.0], &readers);
            if readers == 1 {
                self.remove(Cell::Departed, &[&host.0]);
                index::set_hosted(&mut self.overlay, host, self.number, true);
            }
        }
        for host in before.difference(&after) {
            let readers = fewer(self.cells().readers(host)?)?;
            if readers > 0 {
                self.put(Cell::Readers, &[&host.0], &readers);
            } else {
                self.remove(Cell::Readers, &[&host.0]);
                self.put(Cell::Departed, &[&host.0], &self.index.clone());
                index::set_hosted(&mut self.overlay, host, self.number, false);
            }
        }
        Ok(())
    }

    /// Deadlines are sealed by the sequencer alone, in whose name they are listed.
    fn move_deadlines(&mut self, next: &PublicKey) -> Result<(), ReadError> {
        let sequencer = self.sequencer()?;
        for key in self.cells().keys(Cell::Due, &[], usize::MAX)? {
            let (due, entry) = (Time(number_at_end(&key[..8])?), number_at_end(&key)?);
            index::clear_due(&mut self.overlay, (&sequencer, due, self.number, entry));
            index::set_due(&mut self.overlay, (next, due, self.number, entry));
        }
        Ok(())
    }

    /// Who seals the deadlines of the log.
    fn sequencer(&self) -> Result<PublicKey, ReadError> {
        // A fact after which an epoch begins can have further effects.
        let moved = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::EpochBegan(_, host, _) => Some(*host),
            _ => None,
        });
        if let Some(host) = moved {
            return Ok(host);
        }
        let head = self.cells().head()?.ok_or_else(|| ReadError::damaged("a deadline without a log"))?;
        Ok(head.sequencer)
    }

    fn list_agent(&mut self, agent: &AgentId, account: &Account) -> Result<(), ReadError> {
        let owner = kwoon_keys::Digest(account.owner.0).short();
        let handle = agent.0.short();
        if !index::list_has(&self.overlay, List::Agents, &owner, &handle)? {
            let key = (List::Agents, &owner, &handle);
            index::list_put(&mut self.overlay, key, self.time.0, self.arrival, agent);
        }
        Ok(())
    }

    fn change_memory(&mut self, change: impl FnOnce(&mut Memory)) -> Result<Memory, ReadError> {
        let mut memory = self.cells().memory()?;
        change(&mut memory);
        self.put(Cell::Memory, &[], &memory);
        Ok(memory)
    }

    fn entry_posted(&mut self, posted: &EntryPosted) -> Result<(), ReadError> {
        let mut thread = self.thread()?;
        thread.entries = posted.entry;
        self.set_thread(&thread);
        let responses = posted.responders.iter().map(|responder| Response { responder: *responder, exit: None });
        let entry = Entry {
            request: posted.request,
            author: posted.author,
            at: self.time,
            pin: posted.pin,
            summary: posted.summary,
            reply_to: posted.reply_to,
            asks: posted.asks,
            responses: responses.collect(),
            assignment: None,
            task: posted.task,
            index: self.index,
        };
        self.put(Cell::Entry, &[&posted.entry.to_be_bytes()], &entry);
        self.put(Cell::EntryOf, &[posted.request.as_bytes()], &posted.entry);
        if !posted.brings_forth {
            index::set_pinned(&mut self.overlay, &posted.pin.memory, self.number);
        }
        // Its own log may have come to this host before the entry that brought it forth.
        let known = index::find(&self.overlay, IdKind::Memory, &posted.pin.memory.0.short())?;
        if posted.brings_forth && known.is_none() {
            let (memory, author) = (posted.pin.memory, posted.pin.author);
            let place = Place::Born(self.number, posted.entry, memory);
            index::set_place(&mut self.overlay, IdKind::Memory, &memory.0.short(), &place);
            let (owner, handle) = (index::owner(&author), memory.0.short());
            let key = (List::Memories, &owner, &handle);
            index::list_put(&mut self.overlay, key, self.time.0, self.arrival, &memory);
        }
        Ok(())
    }

    fn add_caused(&mut self, agent: &AgentId, by: i64) -> Result<(), ReadError> {
        let caused = self.cells().caused(agent)?.saturating_add_signed(by);
        if caused == 0 {
            self.remove(Cell::Caused, &[agent.as_bytes()]);
        } else {
            self.put(Cell::Caused, &[agent.as_bytes()], &caused);
        }
        Ok(())
    }

    fn obligation_began(&mut self, obligation: &Obligation) -> Result<(), ReadError> {
        let mut thread = self.thread()?;
        thread.obligations = more(thread.obligations)?;
        self.set_thread(&thread);
        let entry = obligation.entry.to_be_bytes();
        if obligation.duty == Duty::Respond {
            self.put(Cell::Pending, &[obligation.bearer.as_bytes(), &entry], &());
            if let Some(entry) = self.cells().entry(obligation.entry)? {
                self.add_caused(&entry.author, 1)?;
            }
        }
        if let Some(due) = obligation.due_at {
            self.set_due(due, obligation.entry)?;
        }
        let row = TurnRow { number: self.number, thread: thread.thread, obligation: *obligation };
        let (owner, handle) = (index::owner(&obligation.bearer), obligation.id(&thread.thread).0.short());
        let key = (List::Turn, &owner, &handle);
        index::list_put(&mut self.overlay, key, obligation.began_at.0, self.arrival, &row);
        Ok(())
    }

    fn obligation_ended(&mut self, obligation: &Obligation, exit: Exit) -> Result<(), ReadError> {
        let mut thread = self.thread()?;
        thread.obligations = fewer(thread.obligations)?;
        self.set_thread(&thread);
        let number = obligation.entry.to_be_bytes();
        if obligation.duty == Duty::Respond {
            self.remove(Cell::Pending, &[obligation.bearer.as_bytes(), &number]);
            if let Some(mut entry) = self.cells().entry(obligation.entry)? {
                for response in entry.responses.iter_mut().filter(|r| r.responder == obligation.bearer) {
                    response.exit = Some((exit, self.time));
                }
                self.put(Cell::Entry, &[&number], &entry);
                self.add_caused(&entry.author, -1)?;
            }
        }
        if let Some(due) = obligation.due_at {
            // A lost judgment leaves the turn, but its deadline still comes (T2.6).
            if obligation.duty != Duty::Judge || exit != Exit::MembershipEnded {
                self.clear_due(due, obligation.entry)?;
            }
        }
        let (owner, handle) = (index::owner(&obligation.bearer), obligation.id(&thread.thread).0.short());
        index::list_remove(&mut self.overlay, List::Turn, &owner, &handle)
    }

    fn set_due(&mut self, due: Time, entry: u64) -> Result<(), ReadError> {
        let sequencer = self.sequencer()?;
        self.put(Cell::Due, &[&due.0.to_be_bytes(), &entry.to_be_bytes()], &());
        index::set_due(&mut self.overlay, (&sequencer, due, self.number, entry));
        Ok(())
    }

    fn clear_due(&mut self, due: Time, entry: u64) -> Result<(), ReadError> {
        let sequencer = self.sequencer()?;
        self.remove(Cell::Due, &[&due.0.to_be_bytes(), &entry.to_be_bytes()]);
        index::clear_due(&mut self.overlay, (&sequencer, due, self.number, entry));
        Ok(())
    }

    fn assignment_offered(
        &mut self,
        id: &AssignmentId,
        entry: u64,
        creator: &AgentId,
        terms: &Assign,
    ) -> Result<(), ReadError> {
        let assignment = Assignment {
            assignment: *id,
            entry,
            creator: *creator,
            terms: *terms,
            progress: Progress::Offered,
            taken: false,
            output: None,
            forfeited: false,
        };
        let number = entry.to_be_bytes();
        self.put(Cell::Assignment, &[&number], &assignment);
        self.put(Cell::AssignmentOf, &[id.as_bytes()], &entry);
        self.put(Cell::Open, &[&number], &());
        self.put(Cell::Party, &[creator.as_bytes(), &number], &());
        self.put(Cell::Party, &[terms.to.as_bytes(), &number], &());
        self.add_caused(creator, 1)?;
        if let Some(mut carrier) = self.cells().entry(entry)? {
            carrier.assignment = Some(*id);
            self.put(Cell::Entry, &[&number], &carrier);
        }
        let place = Place::Assignment(self.number, entry, *id);
        index::set_place(&mut self.overlay, IdKind::Assignment, &id.0.short(), &place);
        let row = OfferRow { number: self.number, thread: self.thread()?.thread, entry, assignment: *id };
        let (owner, handle) = (index::owner(&terms.to), id.0.short());
        let key = (List::Opportunities, &owner, &handle);
        index::list_put(&mut self.overlay, key, self.time.0, self.arrival, &row);
        Ok(())
    }

    fn end_offer(&mut self, assignment: &Assignment) -> Result<(), ReadError> {
        let (owner, handle) = (index::owner(&assignment.terms.to), assignment.assignment.0.short());
        index::list_remove(&mut self.overlay, List::Opportunities, &owner, &handle)
    }

    fn change_assignment(
        &mut self,
        id: &AssignmentId,
        change: impl FnOnce(&mut Assignment),
    ) -> Result<Assignment, ReadError> {
        let assignment = self.cells().assignment(id)?;
        let mut assignment = assignment.ok_or_else(|| ReadError::damaged("an assignment is missing"))?;
        change(&mut assignment);
        self.put(Cell::Assignment, &[&assignment.entry.to_be_bytes()], &assignment);
        Ok(assignment)
    }

    /// Notes where the log stands after the fact, under which number its object is found, and which epochs it has.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub(crate) fn set_head(&mut self, head: &Head, fact_epoch: u64) -> Result<(), ReadError> {
        self.put(Cell::Head, &[], head);
        if head.index == 0 {
            index::set_log(&mut self.overlay, &head.object, self.number);
            let epoch = Epoch { sequencer: head.sequencer, begins: 0, ends: None };
            self.put(Cell::Epoch, &[&head.epoch.to_be_bytes()], &epoch);
        } else if head.epoch != fact_epoch {
            let closed = self.cells().epoch(fact_epoch)?.ok_or_else(|| ReadError::damaged("an epoch is missing"))?;
            let closed = Epoch { ends: Some(head.index), ..closed };
            self.put(Cell::Epoch, &[&fact_epoch.to_be_bytes()], &closed);
            let epoch = Epoch { sequencer: head.sequencer, begins: more(head.index)?, ends: None };
            self.put(Cell::Epoch, &[&head.epoch.to_be_bytes()], &epoch);
        }
        Ok(())
    }
}

fn count_role(thread: &mut Thread, old: Option<Role>, new: Option<Role>) -> Result<(), ReadError> {
    let counted = |count: u64, old: bool, new: bool| match (old, new) {
        (false, true) => more(count),
        (true, false) => fewer(count),
        (true, true) | (false, false) => Ok(count),
    };
    let has_voice = |role: Option<Role>| role.is_some_and(Role::has_voice);
    let governs = |role: Option<Role>| role == Some(Role::Governor);
    thread.voices = counted(thread.voices, has_voice(old), has_voice(new))?;
    thread.governors = counted(thread.governors, governs(old), governs(new))?;
    Ok(())
}
