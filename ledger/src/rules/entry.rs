//! Entries and responses (T3.1 to T3.9, M6 to M8).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use kwoon_keys::Commitment;
use kwoon_keys::id::{AgentId, RequestId};

use crate::action::{EntryPost, Pin, Source};
use crate::draft::Draft;
use crate::effect::{Duty, Effect, EntryPosted, Exit, Obligation};
use crate::fact::Evidence;
use crate::limits::Limits;
use crate::refusal::{Code, Refusal, Stop, require};
use crate::rules::memory::{self, publication_id};
use crate::rules::{Question, assignment, identity};
use crate::state::{Member, Thread, more};

/// Checks what the format allows of an entry's own content.
///
/// # Errors
/// [`Code::ContentTooLarge`] with the field and the limit.
pub fn check_sizes(post: &EntryPost, limits: &Limits) -> Result<(), Refusal> {
    let text = match &post.source {
        Source::New(text) => text.commitment.length_bytes,
        Source::Pinned(_) => 0,
    };
    let checks = [
        ("text", text, limits.text_bytes_max),
        ("summary", post.summary.map_or(0, |summary| summary.length_bytes), limits.summary_bytes_max),
        ("ask", post.ask.as_ref().map_or(0, |ask| ask.len() as u64), limits.ask_max),
        ("criteria", post.assign.map_or(0, |assign| assign.criteria.length_bytes), limits.criteria_bytes_max),
        (
            "output_schema",
            post.assign.and_then(|assign| assign.output_schema).map_or(0, |schema| schema.length_bytes),
            limits.criteria_bytes_max,
        ),
    ];
    match checks.iter().find(|(_, size, limit)| size > limit) {
        Some((field, _, limit)) => Err(Refusal::too_large(field, *limit)),
        None => Ok(()),
    }
}

/// T3.1: who speaks, and where. It comes before everything that an entry says.
///
/// # Errors
/// [`Code::NoVoice`], [`Code::ThreadClosed`].
pub fn may_speak(thread: &Thread, member: &Member) -> Result<(), Stop> {
    require(member.role.has_voice(), Code::NoVoice)?;
    require(!thread.closed, Code::ThreadClosed)
}

/// Posts an entry, with everything that comes with it (L2.3).
///
/// # Errors
/// By T3.1 to T3.6 and T4.1.
pub fn post(
    draft: &mut Draft<'_>,
    question: &Question<'_>,
    thread: &Thread,
    member: &Member,
    author: AgentId,
    post: &EntryPost,
) -> Result<(), Stop> {
    may_speak(thread, member)?;
    // K5.1: there are no tasks yet that an author could read.
    require(post.task.is_none(), Code::NotFound)?;
    let number = more(thread.entries)?;
    let (pin, brings_forth) = pinned(question, thread, author, &post.source)?;
    let reply_to = match &post.reply_to {
        Some(request) => Some(draft.cells().entry_of(request)?.ok_or(Code::BadReference)?),
        None => None,
    };
    let responders = responders(draft, thread, author, post.ask.as_deref(), reply_to)?;
    check_sizes(post, &Limits::MAXIMA)?;
    let begun = responders.len() as u64 + u64::from(post.assign.is_some());
    let caused = draft.cells().caused(&author)?.saturating_add(begun);
    require(caused <= Limits::MAXIMA.obligations_caused_max, Code::CapacityReached)?;
    let open = thread.obligations.saturating_add(responders.len() as u64 + 1);
    require(open <= Limits::MAXIMA.obligations_open_max, Code::CapacityReached)?;
    // T3.6: a reply ends the replier's own response, whomever the new entry asks.
    if let Some(replied) = reply_to
        && draft.cells().owes_response(&author, replied)?
    {
        end_response(draft, author, replied, Exit::Replied(number))?;
    }
    draft.emit(Effect::EntryPosted(EntryPosted {
        entry: number,
        request: question.action.request(),
        author,
        pin,
        brings_forth,
        summary: post.summary,
        reply_to,
        asks: post.ask.is_some(),
        responders: responders.clone(),
        task: post.task,
    }))?;
    let began_at = draft.time;
    for bearer in responders {
        let duty = Duty::Respond;
        let obligation = Obligation { duty, bearer, entry: number, assignment: None, began_at, due_at: None };
        draft.emit(Effect::ObligationBegan(obligation))?;
    }
    if let Some(terms) = &post.assign {
        let id = assignment::assignment_id(&question.action.request(), &thread.thread);
        assignment::offer(draft, id, number, author, terms)?;
    }
    Ok(())
}

/// T3.2, M8: the version that the entry pins. One's own rests on one's own signature; another's needs the evidence of
/// its publication, and only the current version can be referred to.
fn pinned(question: &Question<'_>, thread: &Thread, author: AgentId, source: &Source) -> Result<(Pin, bool), Stop> {
    match source {
        Source::New(text) => {
            let blind = memory::blind(&question.action.request(), thread.thread.as_bytes());
            let memory = memory::blinded_id(&author, &blind);
            Ok((Pin { memory, version: 1, text: *text, author, blind }, true))
        }
        Source::Pinned(pin) if pin.author == author => {
            require(memory::is_whole(pin), Code::BadReference)?;
            Ok((*pin, false))
        }
        Source::Pinned(pin) => {
            require(memory::is_whole(pin), Code::BadReference)?;
            let evident = question.evidence.iter().any(|evidence| shows(evidence, pin));
            require(evident, Code::NotFound)?;
            Ok((*pin, false))
        }
    }
}

/// Whether evidence shows that this is the current version of a public memory: the publication's fact says so, under a
/// seal of a host on which its author has an instance.
fn shows(evidence: &Evidence, pin: &Pin) -> bool {
    let Evidence::Publication(outcome, records) = evidence;
    let Ok(standing) = identity::follow_all(None, records) else { return false };
    if standing.agent != pin.author {
        return false;
    }
    let hosts: BTreeSet<_> = standing.account.instances.iter().map(|instance| instance.host).collect();
    hosts.iter().any(|host| {
        outcome.verify(host).is_ok_and(|(fact, effects)| {
            let publication = crate::action::ObjectId::Publication(publication_id(&pin.memory));
            fact.object == publication
                && effects.iter().any(|effect| {
                    matches!(effect, Effect::PublicationSet(memory, author, number, version, _)
                        if *memory == pin.memory
                            && *author == pin.author
                            && *number == pin.version
                            && version.text == pin.text)
                })
        })
    })
}

/// T3.4, T3.5: who owes a response, fixed here and now by the first rule that applies.
fn responders(
    draft: &Draft<'_>,
    thread: &Thread,
    author: AgentId,
    ask: Option<&[AgentId]>,
    reply_to: Option<u64>,
) -> Result<Vec<AgentId>, Stop> {
    let has_voice = |agent: &AgentId| -> Result<bool, Stop> {
        Ok(draft.cells().member(agent)?.is_some_and(|member| member.role.has_voice()))
    };
    // 1: the entry says whom it asks.
    if let Some(ask) = ask {
        let rising = ask.windows(2).all(|pair| pair[0] < pair[1]);
        require(rising, Code::BadReference)?;
        for agent in ask {
            require(*agent != author && has_voice(agent)?, Code::BadReference)?;
        }
        return Ok(ask.to_vec());
    }
    // 2: it replies to another's entry.
    if let Some(replied) = reply_to {
        let replied = draft.cells().entry(replied)?.ok_or(Code::BadReference)?;
        if replied.author != author {
            let responders = if has_voice(&replied.author)? { alloc::vec![replied.author] } else { Vec::new() };
            return Ok(responders);
        }
    }
    // 3: exactly two have a voice.
    if thread.voices == 2 {
        let members = draft.cells().members()?;
        let other = members.iter().find(|(agent, member)| *agent != author && member.role.has_voice());
        return Ok(other.map(|(agent, _)| *agent).into_iter().collect());
    }
    // 4: nobody.
    Ok(Vec::new())
}

/// Ends one pending response.
///
/// # Errors
/// If the state cannot be read.
pub fn end_response(draft: &mut Draft<'_>, bearer: AgentId, entry: u64, exit: Exit) -> Result<(), Stop> {
    let posted = draft.cells().entry(entry)?.ok_or(Code::BadReference)?;
    let obligation =
        Obligation { duty: Duty::Respond, bearer, entry, assignment: None, began_at: posted.at, due_at: None };
    draft.emit(Effect::ObligationEnded(obligation, exit))?;
    Ok(())
}

/// T3.7: ends the own pending response without an entry. No limit of rate or capacity stands before it (L4.1).
///
/// # Errors
/// If there is none.
pub fn handle(draft: &mut Draft<'_>, actor: AgentId, entry: &RequestId, note: Option<Commitment>) -> Result<(), Stop> {
    let number = draft.cells().entry_of(entry)?.ok_or(Code::NoSuchObligation)?;
    require(draft.cells().owes_response(&actor, number)?, Code::NoSuchObligation)?;
    let maximum = Limits::MAXIMA.note_bytes_max;
    if note.is_some_and(|note| note.length_bytes > maximum) {
        return Err(Refusal::too_large("note", maximum).into());
    }
    end_response(draft, actor, number, Exit::Handled(note))
}

/// T3.8: ends all responses still pending from an own entry; what was given stays.
///
/// # Errors
/// If the entry is another's, or asks nothing more.
pub fn retract(draft: &mut Draft<'_>, actor: AgentId, entry: &RequestId) -> Result<(), Stop> {
    let number = draft.cells().entry_of(entry)?.ok_or(Code::NotFound)?;
    let posted = draft.cells().entry(number)?.ok_or(Code::NotFound)?;
    require(posted.author == actor, Code::NotAuthor)?;
    let pending: Vec<_> =
        posted.responses.iter().filter(|response| response.exit.is_none()).map(|r| r.responder).collect();
    require(!pending.is_empty(), Code::NoChange)?;
    for responder in pending {
        end_response(draft, responder, number, Exit::Retracted)?;
    }
    Ok(())
}
