//! Connections that others dial.

use std::sync::Arc;

use iroh::Endpoint;
use iroh::endpoint::{Connection, Incoming, RecvStream, SendStream};
use kwoon_keys::PublicKey;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::dial::begin;
use crate::greeting;
use crate::table::{Claim, Made, Phase, Refusal, Shared};
use crate::whom;

/// Accepts until the endpoint is closed. Then what had not become a link is dropped.
pub(crate) async fn accept(shared: Arc<Shared>, endpoint: Endpoint, session: u64) {
    let mut greeting = JoinSet::new();
    loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming,
            Some(_) = greeting.join_next() => continue,
        };
        let Some(incoming) = incoming else { return };
        if !whom::may_be_for(&shared.me, &incoming) {
            incoming.ignore();
            continue;
        }
        let Ok(place) = Arc::clone(&shared.handshakes).try_acquire_owned() else {
            incoming.refuse();
            continue;
        };
        // Under load, a place is only for who can be reached at the address that it sends from.
        let busy = shared.handshakes.available_permits() < shared.limits.handshakes_max / 2;
        if busy && !incoming.remote_addr_validated() {
            let _ = incoming.retry();
            continue;
        }
        let shared = Arc::clone(&shared);
        greeting.spawn(async move {
            let deadline = Instant::now() + shared.limits.handshake_time;
            if let Ok(Some((claim, connection, streams))) =
                timeout_at(deadline, greet(&shared, incoming, session)).await
            {
                begin(&shared, claim, connection, streams, Some(deadline));
            }
            drop(place);
        });
    }
}

type Greeted = (Claim, Connection, (SendStream, RecvStream));

/// Takes one connection as far as a link, or not.
async fn greet(shared: &Arc<Shared>, incoming: Incoming, session: u64) -> Option<Greeted> {
    let connection = incoming.accept().ok()?.await.ok()?;
    let peer = PublicKey(*connection.remote_id().as_bytes());
    let admitted = shared.table().admits(shared, &peer, session);
    if let Err(refusal) = admitted {
        refusal.close(&connection);
        return None;
    }
    let (mut send, mut receive) = connection.accept_bi().await.ok()?;
    let epoch = greeting::receive(&mut receive).await.ok()?;
    let made = Made { dialed: false, epoch };
    let claimed = loop {
        let claimed = shared.table().claim(shared, peer, session, &connection, made);
        match claimed {
            Err(Refusal::Undecided(mut phase)) => {
                let _ = phase.wait_for(|phase| *phase == Phase::Idle).await;
            }
            claimed => break claimed,
        }
    };
    match claimed {
        Ok((claim, epoch)) => {
            greeting::send(&mut send, epoch).await.ok()?;
            Some((claim, connection, (send, receive)))
        }
        Err(refusal) => {
            refusal.close(&connection);
            None
        }
    }
}
