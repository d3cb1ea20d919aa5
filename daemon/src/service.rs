//! What serves a home behind its sockets: the writer at work, and the routes to it and to the store. A test gives it
//! connections of its own.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use kwoon_keys::{KeyPair, PublicKey};
use kwoon_ledger::limits::Limits;
use kwoon_store::{DiskStore, Home};
use kwoon_sync::view::Around;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::http::{self, Shared};
use crate::serve::ServeError;
use crate::writer::{Handle, StartError, Writer};

/// How long a client may take for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// See the module.
pub struct Service {
    shared: Arc<Shared>,
    handle: Handle,
    writer: Option<Writer>,
    writing: Option<JoinHandle<()>>,
    stop: watch::Sender<bool>,
    around: watch::Sender<Around>,
}

impl Service {
    /// Serves an open home, as if HTTP were listened to at `address`.
    ///
    /// # Errors
    /// If keys, tokens or the store cannot be read, or the system gives no thread.
    pub fn start(
        home: &Arc<Home>,
        store: &Arc<DiskStore>,
        limits: Limits,
        address: SocketAddr,
    ) -> Result<Self, ServeError> {
        let mut service = Self::new(home, store, limits, address)?;
        service.write()?;
        Ok(service)
    }

    /// The same, but nothing is written before [`Service::write`].
    pub(crate) fn new(
        home: &Arc<Home>,
        store: &Arc<DiskStore>,
        limits: Limits,
        address: SocketAddr,
    ) -> Result<Self, StartError> {
        let (writer, handle) = Writer::new(Arc::clone(home), Arc::clone(store), limits)?;
        let (stop, stopping) = watch::channel(false);
        let (around, seen) = watch::channel(Around::default());
        let shared = Arc::new(Shared::new(handle.clone(), Arc::clone(store), address, stopping, seen));
        Ok(Self { shared, handle, writer: Some(writer), writing: None, stop, around })
    }

    /// Sets the writer to work.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if let Some(writer) = self.writer.take() {
            let thread = std::thread::Builder::new().name("writer".to_owned());
            self.writing = Some(thread.spawn(move || writer.run())?);
        }
        Ok(())
    }

    /// The host's id.
    pub(crate) fn host(&self) -> PublicKey {
        self.handle.published().keyring.host.public()
    }

    /// The host's key pair.
    pub(crate) fn key(&self) -> KeyPair {
        self.handle.published().keyring.host.clone()
    }

    /// The way to the writer.
    pub(crate) fn writer(&self) -> Handle {
        self.handle.clone()
    }

    /// Where it is told what is around this host.
    pub(crate) fn around(&self) -> watch::Sender<Around> {
        self.around.clone()
    }

    /// The routes. `guarded` is true on TCP, see [`http::router`].
    pub(crate) fn router(&self, guarded: bool) -> Router {
        http::router(Arc::clone(&self.shared), guarded)
    }

    /// Tells when no more requests are taken.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// From now on connections end with the request that is under way.
    pub(crate) fn announce_stop(&self) {
        let _ = self.stop.send(true);
    }

    /// Serves one connection to its end. One that is guarded comes over TCP, where the Host header must name the address.
    pub async fn connection<S>(&self, stream: S, guarded: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        connection(stream, self.router(guarded), self.stopping()).await;
    }

    /// Ends the writer once everything that it was given is done. Blocks until then.
    pub fn stop(self) {
        self.announce_stop();
        if let Some(writing) = self.writing {
            self.handle.stop();
            let _ = writing.join();
        }
    }
}

/// Serves one connection to its end, or to the end of the request under way when the daemon stops.
pub(crate) async fn connection<S>(stream: S, router: Router, mut stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = pin!(served);
    tokio::select! {
        // What a client does wrong on its connection is its own affair.
        _ = served.as_mut() => {}
        _ = stopping.changed() => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}
