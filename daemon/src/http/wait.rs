//! Waiting for what becomes of an action that another host decides.

use std::sync::Arc;
use std::time::Duration;

use kwoon_keys::id::{BASE32, RequestId};
use kwoon_ledger::outbox::{self, Progress};
use kwoon_ledger::refusal::{Code, Refusal};
use kwoon_ledger::storage::{Read, ReadError, Store};
use kwoon_sync::answer::{Answer, Standing, internal};
use kwoon_sync::argument::{Arguments, WaitMs};
use kwoon_sync::control::take_control;
use kwoon_sync::{operations, receipt};
use tokio::time::{Instant, timeout_at};

use super::{Call, Shared, unreadable};

/// How long an acting call waits unless it says so.
const WAIT_DEFAULT: Duration = Duration::from_secs(2);
/// Random bytes of a key that is made for a call which gives none.
const KEY_BYTES: usize = 16;

/// What became of an action.
enum Outcome {
    /// Nothing yet.
    Pending,
    /// It ended in a fact, or in what is there already: the repeat of its request tells.
    Done,
    /// It was refused.
    Refused(Refusal),
}

/// Acts, and waits for the outcome as long as the call wants if it is another host's to decide.
pub(super) async fn act(shared: &Arc<Shared>, call: &Call, mut arguments: Arguments) -> Result<Answer, Refusal> {
    // One that has not the right form is refused in its turn.
    let wait = take_control::<WaitMs>(&mut arguments.clone(), "wait_ms").ok().flatten();
    let wait = wait.map_or(WAIT_DEFAULT, |wait| Duration::from_millis(wait.0));
    // Made here, so that a repeat is the same request.
    if arguments.get("idempotency_key").is_none_or(serde_json::Value::is_null) {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key).map_err(|_| internal())?;
        arguments.insert("idempotency_key".to_owned(), BASE32.encode(&key).into());
    }
    // From before the action on, so that no commit is missed.
    let mut commits = shared.writer.commits();
    let deadline = Instant::now() + wait;
    let answer = call.act(shared, arguments.clone(), None).await?;
    let Some(request) = pending(&answer).filter(|_| !wait.is_zero()) else { return Ok(answer) };
    let Ok(_permit) = shared.waits.try_acquire() else { return Ok(answer) };
    let mut stopping = shared.stopping.clone();
    loop {
        match outcome(shared, request.clone()).await? {
            Outcome::Pending => {}
            Outcome::Refused(refusal) => return Err(refusal),
            Outcome::Done => return call.act(shared, arguments, None).await,
        }
        let news = tokio::select! {
            changed = timeout_at(deadline, commits.changed()) => matches!(changed, Ok(Ok(()))),
            _ = stopping.wait_for(|stopping| *stopping) => false,
        };
        if !news {
            return Ok(answer);
        }
    }
}

/// The action of a pending answer, as it is shown.
fn pending(answer: &Answer) -> Option<String> {
    let action = answer.result["action"].as_str()?;
    (answer.standing == Standing::Pending).then(|| action.to_owned())
}

/// What became of an action, by the state of the store.
async fn outcome(shared: &Arc<Shared>, action: String) -> Result<Outcome, Refusal> {
    let permit = Arc::clone(&shared.reads).acquire_owned().await.map_err(|_| Refusal::from(Code::Stopping))?;
    let store = Arc::clone(&shared.store);
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        outcome_in(&store.snapshot()?, &action)
    });
    let read = reading.await.map_err(|_| internal())?;
    read.map_err(|error| unreadable(&error))
}

fn outcome_in(read: &dyn Read, action: &str) -> Result<Outcome, ReadError> {
    let request = RequestId::read(action).map_or(Ok(None), |short| operations::request_id_of(read, &short))?;
    let Some(request) = request else { return Ok(Outcome::Pending) };
    Ok(match outbox::find(read, &request)?.map(|row| row.progress) {
        Some(Progress::Pending) => Outcome::Pending,
        Some(Progress::Refused(signed)) => Outcome::Refused(receipt::refusal(&signed)),
        Some(Progress::Expired) => Outcome::Refused(Code::ActionExpired.into()),
        // What is in neither place would be judged anew by a repeat, which nobody asked for.
        None if receipt::ended(read, &request)?.is_some() => Outcome::Done,
        None => Outcome::Pending,
    })
}
