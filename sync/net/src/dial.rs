//! One task for each peer that keeps a link with it.

use std::sync::Arc;
use std::time::Duration;

use iroh::endpoint::{ConnectOptions, Connection, RecvStream, SendStream};
use kwoon_keys::PublicKey;
use n0_future::StreamExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::backoff::Backoff;
use crate::frame::{Counters, FrameReceiver, FrameSender, close};
use crate::greeting::{self, NotGreeted};
use crate::link::{Link, addresses};
use crate::net::transport;
use crate::table::{Claim, Made, Shared, Target};
use crate::{ALPN, close, whom};

/// A link that lived for less counts as a failed attempt: who hangs up at once is not dialled in a circle.
const SETTLED: Duration = Duration::from_secs(10);

/// Keeps a link with `peer` until the task is aborted.
pub(crate) async fn keep(shared: Arc<Shared>, peer: PublicKey, wake: Arc<Notify>) {
    let mut backoff = Backoff::default();
    loop {
        let (news, target) = shared.table().plan(&shared, &peer);
        match news.ended_after {
            Some(lived) if lived < SETTLED => {
                backoff.reached(Instant::now());
                backoff.failed(Instant::now(), random());
            }
            Some(_) => backoff.reset(),
            None => {}
        }
        if news.urgent {
            backoff.reset();
        }
        let Some(target) = target else {
            wake.notified().await;
            continue;
        };
        if let Some(next) = backoff.next().filter(|next| *next > Instant::now()) {
            tokio::select! {
                () = sleep_until(next) => {}
                () = wake.notified() => {}
            }
            continue;
        }
        if let Outcome::Failed = attempt(&shared, peer, &wake, target).await {
            backoff.failed(Instant::now(), random());
        }
    }
}

/// Zero if the system gives no randomness: then there is no jitter, and the nonce hides nothing.
fn random() -> u64 {
    getrandom::u64().unwrap_or_default()
}

enum Outcome {
    Linked,
    Failed,
    /// The peer is to be dialled elsewhere, or not at all.
    Overtaken,
}

async fn attempt(shared: &Arc<Shared>, peer: PublicKey, wake: &Notify, target: Target) -> Outcome {
    let mut dialing = Box::pin(timeout(shared.limits.dial_time, dial(shared, peer, &target)));
    loop {
        tokio::select! {
            dialled = &mut dialing => return match dialled {
                Ok(Ok(())) => Outcome::Linked,
                Ok(Err(NotGreeted)) | Err(_) => Outcome::Failed,
            },
            () = wake.notified() => if !shared.table().still(shared, &peer, &target) {
                return Outcome::Overtaken;
            },
        }
    }
}

async fn dial(shared: &Arc<Shared>, peer: PublicKey, target: &Target) -> Result<(), NotGreeted> {
    let meant = whom::protocol(&peer, random().to_le_bytes());
    let options = ConnectOptions::new().with_transport_config(transport(0)).with_additional_alpns(vec![meant]);
    let connecting = target.online.endpoint.connect_with_opts(target.address.clone(), ALPN, options);
    let connecting = connecting.await.map_err(|error| {
        tracing::debug!(%peer, %error, "not dialled");
        NotGreeted
    })?;
    let connection = connecting.await.map_err(|error| {
        tracing::debug!(%peer, %error, "not connected");
        NotGreeted
    })?;
    let (mut send, mut receive) = connection.open_bi().await.map_err(|_| NotGreeted)?;
    let Some((epoch, greeted)) = shared.table().greet(&peer, target.online.session) else {
        close(&connection, close::REPLACED, "another link with this host is kept");
        return Err(NotGreeted);
    };
    greeting::send(&mut send, epoch).await?;
    let epoch = greeting::receive(&mut receive).await?;
    let made = Made { dialed: true, epoch };
    let claimed = shared.table().claim(shared, peer, target.online.session, &connection, made);
    drop(greeted);
    match claimed {
        Ok((claim, _)) => begin(shared, claim, connection, (send, receive), None),
        Err(refusal) => {
            refusal.close(&connection);
            return Err(NotGreeted);
        }
    }
    Ok(())
}

/// Hands a link to the upper layer and watches it until it ends. `first_by` is when its first frame must be there.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    claim: Claim,
    connection: Connection,
    (send, receive): (SendStream, RecvStream),
    first_by: Option<Instant>,
) {
    let counters = Arc::new(Counters::default());
    let budget = Arc::clone(&shared.budget);
    let link = Link {
        peer: claim.peer,
        dialed: first_by.is_none(),
        generation: claim.generation,
        remote: addresses(&connection),
        receiver: FrameReceiver::new(
            receive,
            connection.clone(),
            Arc::clone(&counters),
            budget,
            &shared.limits,
            first_by,
        ),
        sender: FrameSender::new(send, connection.clone(), counters),
    };
    tracing::debug!(peer = %link.peer, dialed = link.dialed, generation = link.generation, "linked");
    tokio::spawn(attend(Arc::clone(shared), claim, link, connection));
}

async fn attend(shared: Arc<Shared>, claim: Claim, link: Link, connection: Connection) {
    let mut paths = connection.path_events();
    let mut closed = Box::pin(connection.weak_handle().closed());
    // From here on only the upper layer keeps the connection alive.
    drop(connection);
    let place = tokio::select! {
        place = shared.incoming.reserve() => place,
        _ = &mut closed => return,
    };
    let Ok(place) = place else {
        link.sender.close(close::DONE, "this host stops");
        return;
    };
    if !claim.hand_over(place, link) {
        return;
    }
    loop {
        tokio::select! {
            _ = &mut closed => break,
            Some(_) = paths.next() => claim.note_addresses(),
        }
    }
    tracing::debug!(peer = %claim.peer, generation = claim.generation, "link ended");
}
