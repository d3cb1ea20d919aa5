//! Changes of a log's sequencer: agreed between two hosts, or because nobody is left on the sequencer's host who may read
//! (design: one kind of epoch change).

use kwoon_keys::{PublicKey, RecordKind, cose};

use crate::action::{ObjectId, Role};
use crate::derive::Fault;
use crate::draft::Draft;
use crate::effect::{Account, Effect};
use crate::fact::{EpochChange, EpochReason, EpochStatement, RULES, Rejection, Signer, check_schema};
use crate::log;
use crate::refusal::Stop;
use crate::state::{Head, more};
use crate::storage::ReadError;

/// The voices that an agreed change needs: the sequencer and the host that follows it.
const HANDOVER_VOICES: usize = 2;

/// Decides a change of sequencer that was agreed.
///
/// # Errors
/// [`Rejection::UnknownKind`] for a reason that rules version 1 does not know; [`Rejection::Chain`] if it does not continue
/// the log; [`Rejection::Signature`] if a voice is missing or is another's.
pub fn decide(draft: &mut Draft<'_>, head: &Head, change: &EpochChange) -> Result<(), Fault> {
    if change.reason != EpochReason::Handover {
        return Err(Rejection::UnknownKind.into());
    }
    if change.rules != RULES {
        return Err(Rejection::UnknownVersion.into());
    }
    let continues = Some(change.next_epoch) == head.epoch.checked_add(1)
        && (change.continues_at, change.head) == (head.index, head.hash);
    // An identity's sequencer changes with its home host, by a record of the owner's.
    if !continues || change.next_host == head.sequencer || matches!(head.object, ObjectId::Identity(_)) {
        return Err(Rejection::Chain.into());
    }
    if draft.cells().readers(&change.next_host)? == 0 {
        return Err(Rejection::Rule.into());
    }
    if change.statements.len() != HANDOVER_VOICES {
        return Err(Rejection::Signature.into());
    }
    for (signed, host) in change.statements.iter().zip([head.sequencer, change.next_host]) {
        let voice = read_statement(signed, &host)?;
        let asked = (voice.object, voice.next_epoch, voice.next_host, voice.reason);
        if asked != (head.object, change.next_epoch, change.next_host, change.reason) {
            return Err(Rejection::Signature.into());
        }
        // Each voice is of somebody who held this very log.
        if log::head_at(&draft.overlay, draft.number, head, voice.index)? != Some(voice.head) {
            return Err(Rejection::Chain.into());
        }
    }
    draft.emit(Effect::EpochBegan(change.next_epoch, change.next_host, change.reason))?;
    Ok(())
}

/// Verifies a host's voice for a change of sequencer.
///
/// # Errors
/// [`Rejection::Signature`] if it is not this host's; [`Rejection::UnknownVersion`].
pub fn read_statement(signed: &[u8], host: &PublicKey) -> Result<EpochStatement, Rejection> {
    let payload = cose::verify(RecordKind::Epoch, signed, host).map_err(|_| Rejection::Signature)?;
    check_schema(payload)?;
    let voice: EpochStatement = kwoon_keys::cbor::read_lenient(payload).map_err(|_| Rejection::UnknownKind)?;
    if voice.signer == Signer::Host(*host) { Ok(voice) } else { Err(Rejection::Signature) }
}

/// Where the last right to read ended on the sequencer's host, an epoch begins with another sequencer, in the same fact:
/// the first listed host of the longest-serving governor, else of the longest-serving member; of a memory's author. With
/// nobody left the log rests.
///
/// # Errors
/// If the state cannot be read.
pub fn succeed(draft: &mut Draft<'_>, object: &ObjectId, epoch: u64, sequencer: &PublicKey) -> Result<(), Stop> {
    // Where nobody was left at all, whoever comes next brings a host with it.
    let changes = |effect: &Effect| {
        matches!(effect, Effect::MembershipEnded(..) | Effect::MembershipBegan(..) | Effect::AccountSet(..))
    };
    let can_end = draft.effects.iter().any(changes);
    if !can_end || draft.index == 0 || draft.cells().readers(sequencer)? > 0 {
        return Ok(());
    }
    let next = match object {
        ObjectId::Thread(_) => of_thread(draft)?,
        ObjectId::Memory(_) => first_host(draft.cells().account(&draft.cells().memory()?.author)?),
        ObjectId::Publication(_) => first_host(draft.cells().account(&draft.cells().publication()?.author)?),
        // An identity stays with its home host.
        ObjectId::Identity(_) | ObjectId::Task(_) | ObjectId::Engagement(_) => None,
    };
    if let Some(host) = next {
        draft.emit(Effect::EpochBegan(more(epoch)?, host, EpochReason::LastReaderGone))?;
    }
    Ok(())
}

fn of_thread(draft: &Draft<'_>) -> Result<Option<PublicKey>, ReadError> {
    let members = draft.cells().members()?;
    let governs = |role: Role| role == Role::Governor;
    let governors = members.iter().filter(|(_, member)| governs(member.role));
    for (agent, _) in governors.chain(members.iter().filter(|(_, member)| !governs(member.role))) {
        if let Some(host) = first_host(draft.cells().account(agent)?) {
            return Ok(Some(host));
        }
    }
    Ok(None)
}

fn first_host(account: Option<Account>) -> Option<PublicKey> {
    account?.instances.first().map(|instance| instance.host)
}
