//! What goes once it says nothing any more: ends of actions that nobody can ask for, and voices for epochs that began.

use std::collections::BTreeSet;

use kwoon_keys::cbor;
use kwoon_keys::id::{AgentId, RequestId};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::forget;
use kwoon_ledger::index;
use kwoon_ledger::outbox;
use kwoon_ledger::state::{Cells, ObjectNumber};
use kwoon_ledger::storage::{Order, Overlay, Read, ReadError, Table};
use kwoon_ledger::time::Time;

use super::actions::ToldRefusal;
use super::voices::{voice, voice_key};
use super::*;
use crate::window::WINDOW;

impl Round<'_> {
    /// Makes room for one more own action without an outcome, and says whether there is any.
    ///
    /// Own actions that were refused, or can never take effect, are listed until their expiry is so long ago that no return
    /// window is open for them; the oldest ones go before that if there is no room otherwise. What a pending action names
    /// stays, as its sequencer may have to be shown how that ended. A repeated key is decided anew in any case.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn make_room(&mut self, agent: &AgentId) -> Result<bool, ReadError> {
        let most = usize::try_from(self.limits.outbox_max).unwrap_or(usize::MAX);
        let overlay = &mut self.sequencer.overlay;
        let count = outbox::count_of(overlay, agent, most)?;
        let is_past = |expires_at: Time| expires_at.after(WINDOW) <= self.now;
        let oldest = outbox::of_agent(overlay, agent, 1)?.pop();
        let is_due = match oldest {
            Some(row) => !row.is_pending() && is_past(row.carried.action()?.expires_at),
            None => false,
        };
        if count < most && !is_due {
            return Ok(true);
        }
        let mut named: BTreeSet<RequestId> = BTreeSet::new();
        let mut ended = Vec::new();
        for row in outbox::of_agent(overlay, agent, most)? {
            let action = row.carried.action()?;
            if row.is_pending() {
                named.extend(action.needs.iter().chain(&action.after));
            } else {
                ended.push((row.carried.object, action));
            }
        }
        ended.retain(|(_, action)| !named.contains(&action.request()));
        let mut room = most.saturating_sub(count);
        for (object, action) in ended {
            if room > 0 && !is_past(action.expires_at) {
                break;
            }
            let request = action.request();
            outbox::remove(overlay, &object, &request)?;
            forget::drop_unsealed(overlay, &action)?;
            overlay.remove(Table::Envelopes, request.as_bytes().to_vec());
            room += 1;
        }
        Ok(room > 0)
    }
}

/// How far a log's time is by the last word of its sequencer: it never goes back.
pub(super) fn log_time(read: &dyn Read, number: ObjectNumber) -> Result<Time, ReadError> {
    let head = Cells::new(read, number).head()?.map_or(Time(0), |head| head.log_time);
    Ok(last_seal(read, number)?.map_or(head, |seal| head.max(seal.log_time)))
}

/// Whether an attempt can take effect no more in a log whose time is so far, whatever becomes of any clock.
pub(super) fn is_over(expires_at: Time, log_time: Time) -> bool {
    expires_at.after(WINDOW) <= log_time
}

/// Removes the refusals that were told of attempts on a log which can take effect no more; how many there are still. If such
/// an attempt comes again it is refused as expired.
pub(super) fn clear_refusals(
    overlay: &mut Overlay<'_>,
    number: ObjectNumber,
    log_time: Time,
) -> Result<usize, ReadError> {
    let rows = overlay.prefix(Table::Refusals, &number.to_be_bytes(), Order::Rising, REFUSALS_MAX)?;
    let mut left = rows.len();
    for (key, row) in rows {
        let told: ToldRefusal = cbor::read_own(&row).map_err(|_| ReadError::damaged("a refusal"))?;
        if is_over(told.expires_at, log_time) {
            overlay.remove(Table::Refusals, key);
            left -= 1;
        }
    }
    Ok(left)
}

/// Removes what was passed on for others on an object and refused: all of it, or what can take effect no more in a log whose
/// time is so far.
pub(super) fn clear_passed_on(
    overlay: &mut Overlay<'_>,
    object: &ObjectId,
    log_time: Option<Time>,
) -> Result<(), ReadError> {
    for row in outbox::of_object(overlay, object, usize::MAX)? {
        let action = row.carried.action()?;
        let is_over = log_time.is_none_or(|time| is_over(action.expires_at, time));
        if !row.own && !row.is_pending() && is_over {
            outbox::remove(overlay, object, &action.request())?;
            forget::drop_unsealed(overlay, &action)?;
        }
    }
    Ok(())
}

/// Removes this host's voice for an epoch of an object that began, or of an object that is here no more.
pub(super) fn clear_voice(overlay: &mut Overlay<'_>, object: &ObjectId) -> Result<(), ReadError> {
    let Some(voice) = voice(overlay, object)? else { return Ok(()) };
    let number = index::number(overlay, object)?;
    let head = number.map_or(Ok(None), |number| Cells::new(overlay, number).head())?;
    if head.is_none_or(|head| head.epoch >= voice.next_epoch) {
        overlay.remove(Table::Meta, voice_key(object));
    }
    Ok(())
}
