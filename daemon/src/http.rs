//! The HTTP interface: `POST /v1/<operation>`, on loopback TCP and on the Unix socket.

mod wait;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, Request as HttpRequest, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use http_body_util::BodyExt;
use kwoon_ledger::refusal::{Code, Refusal, Stop};
use kwoon_ledger::storage::Store;
use kwoon_store::DiskStore;
use kwoon_sync::answer::{Answer, Standing, internal, refusal_json};
use kwoon_sync::argument::{self, Arguments, WaitMs};
use kwoon_sync::check::Finding;
use kwoon_sync::control::{take_as, take_control};
use kwoon_sync::host::Request;
use kwoon_sync::operations::{self, Operation};
use kwoon_sync::view::{Around, Caller, StoreFigures, View};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::files;
use crate::writer::{Handle, wall_clock};

/// A body larger than this is not even read to its end.
const DRAINED_MAX: u64 = 256 << 20;
/// How long a body may take in all.
const BODY_TIME: Duration = Duration::from_secs(60);
/// How long a body still comes that nobody waits for.
const LINGER_TIME: Duration = Duration::from_secs(10);
/// Reads that run at once.
pub(crate) const READS_MAX: usize = 48;

/// Turns and actions that are waited for at once; one more is answered without waiting, so that connections are left for
/// others.
const WAITS_MAX: usize = 256;

/// What every request needs.
pub struct Shared {
    /// The way to the writer.
    pub writer: Handle,
    /// The store, for reads.
    pub store: Arc<DiskStore>,
    /// The address on which HTTP is served.
    pub address: SocketAddr,
    reads: Arc<Semaphore>,
    waits: Semaphore,
    stopping: watch::Receiver<bool>,
    around: watch::Receiver<Around>,
    openapi: Bytes,
}

impl Shared {
    /// What requests at this address need.
    pub fn new(
        writer: Handle,
        store: Arc<DiskStore>,
        address: SocketAddr,
        stopping: watch::Receiver<bool>,
        around: watch::Receiver<Around>,
    ) -> Self {
        let openapi = Bytes::from(crate::openapi::document().to_string());
        let (reads, waits) = (Arc::new(Semaphore::new(READS_MAX)), Semaphore::new(WAITS_MAX));
        Self { writer, store, address, reads, waits, stopping, around, openapi }
    }
}

/// The routes. `guarded` is true on TCP, where the Host header must name this daemon (DNS rebinding).
pub fn router(shared: Arc<Shared>, guarded: bool) -> Router {
    let router = Router::new()
        .route("/healthz", get(|| async { plain(StatusCode::OK, "ok\n") }))
        .route("/readyz", get(ready))
        .route("/openapi.json", get(openapi))
        .fallback(operation)
        .with_state(Arc::clone(&shared))
        .layer(middleware::map_response(stamp));
    if guarded { router.layer(middleware::from_fn_with_state(shared, check_host)) } else { router }
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

async fn stamp(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut id = [0; 8];
    // Without randomness the answer goes without an id; nothing depends on it.
    if getrandom::fill(&mut id).is_ok()
        && let Ok(id) = HeaderValue::from_str(&format!("{:016x}", u64::from_be_bytes(id)))
    {
        headers.insert("x-request-id", id);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn check_host(State(shared): State<Arc<Shared>>, request: HttpRequest<Body>, next: middleware::Next) -> Response {
    if names_daemon(request.headers(), request.uri().authority().map(|authority| authority.as_str()), shared.address) {
        next.run(request).await
    } else {
        answered_early(error(&Code::ForbiddenHost.into()), request.into_body())
    }
}

/// Whether a request is addressed to this daemon: to its address, or to localhost at its port.
fn names_daemon(headers: &HeaderMap, authority: Option<&str>, address: SocketAddr) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    // A request line can name a host of its own; then both must be right.
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        (None, None) => authority,
        _ => None,
    };
    let Some(host) = host else { return false };
    let port = address.port();
    let allowed =
        [address.to_string(), format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")];
    // Clients leave the port out where it is the one of the scheme.
    let bare = if port == 80 { &["127.0.0.1", "localhost", "[::1]"][..] } else { &[] };
    let ours = |host: &str| {
        allowed.iter().map(String::as_str).chain(bare.iter().copied()).any(|name| host.eq_ignore_ascii_case(name))
    };
    ours(host) && authority.is_none_or(ours)
}

async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let readable = tokio::task::spawn_blocking(move || {
        let snapshot = shared.store.snapshot()?;
        kwoon_ledger::log::next_arrival(&snapshot)?;
        Ok::<_, kwoon_ledger::storage::ReadError>(shared.writer.published().failed.is_none())
    });
    match readable.await {
        Ok(Ok(true)) => plain(StatusCode::OK, "ready\n"),
        Ok(Ok(false)) => plain(StatusCode::SERVICE_UNAVAILABLE, "the store failed; start the daemon again\n"),
        _ => plain(StatusCode::SERVICE_UNAVAILABLE, "the store cannot be read\n"),
    }
}

async fn openapi(State(shared): State<Arc<Shared>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], shared.openapi.clone()).into_response()
}

fn json_response(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// RFC 9110, 15.3.3: what is pending was accepted, and is not done.
fn status_of(answer: &Answer) -> StatusCode {
    match answer.standing {
        Standing::Sealed => StatusCode::OK,
        Standing::Pending => StatusCode::ACCEPTED,
    }
}

fn error(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, &refusal_json(refusal));
    if let Some(wait) = refusal.retry_after_ms {
        // RFC 9110, 10.2.3: whole seconds.
        if let Ok(value) = HeaderValue::from_str(&wait.div_ceil(1000).to_string()) {
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
    }
    response
}

async fn operation(State(shared): State<Arc<Shared>>, request: HttpRequest<Body>) -> Response {
    let started = Instant::now();
    let (parts, mut body) = request.into_parts();
    let name = parts.uri.path().strip_prefix("/v1/").unwrap_or_default().to_owned();
    let caller = bearer(&parts.headers).and_then(|token| shared.writer.caller(token));
    // Nobody waits for the body of a request that has no token.
    let Some(caller) = caller else { return answered_early(error(&Code::Unauthenticated.into()), body) };
    let limit = shared.writer.published().limits.request_bytes_max;
    let answer = match read_body(&parts.headers, &mut body, limit).await {
        Err(problem) => return problem.response(limit, body),
        Ok(body) => match operations::find(&name) {
            Some(operation) if parts.method == Method::POST => {
                call(&shared, caller, operation, body, trace_id(&parts.headers)).await
            }
            _ => Err(Code::UnknownOperation.into()),
        },
    };
    let known = operations::find(&name).map_or("unknown", |operation| operation.name);
    let code = answer.as_ref().err().map(|refusal| refusal.code.name());
    tracing::debug!(operation = known, code, micros = started.elapsed().as_micros() as u64, "answered");
    match answer {
        Ok(answer) => json_response(status_of(&answer), &answer.json()),
        Err(refusal) => error(&refusal),
    }
}

/// The token of a request. Of several none counts: which one was meant is not for this side to guess.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let value = value.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The trace id of a `traceparent` header (W3C Trace Context, version 00); any other form is passed over.
fn trace_id(headers: &HeaderMap) -> Option<String> {
    let mut parts = headers.get("traceparent")?.to_str().ok()?.split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (version == "00" && trace.len() == 32 && trace.bytes().all(hex)).then(|| trace.to_owned())
}

/// Reads a body up to the limit. A larger one is read to its end and dropped, so that its sender gets the answer; beyond
/// 256 MiB the connection is given up.
async fn read_body(headers: &HeaderMap, body: &mut Body, limit: u64) -> Result<Vec<u8>, BodyError> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > DRAINED_MAX) {
        return Err(BodyError::Endless);
    }
    let read = async {
        let (mut bytes, mut total) = (Vec::new(), 0u64);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
            total += data.len() as u64;
            if total > DRAINED_MAX {
                return Err(BodyError::Endless);
            }
            if total > limit {
                bytes = Vec::new();
            } else {
                bytes.extend_from_slice(&data);
            }
        }
        if total > limit { Err(BodyError::TooLarge) } else { Ok(bytes) }
    };
    timeout(BODY_TIME, read).await.unwrap_or(Err(BodyError::Slow))
}

/// Why there is no body to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyError {
    /// Over the limit, and read to its end.
    TooLarge,
    /// Over what is even read.
    Endless,
    /// It ended before its end.
    Broken,
    /// It took too long.
    Slow,
}

impl BodyError {
    fn response(self, limit: u64, rest: Body) -> Response {
        match self {
            Self::TooLarge => error(&Refusal::too_large("body", limit)),
            Self::Endless => answered_early(error(&Refusal::too_large("body", limit)), rest),
            Self::Broken => closing(error(&Refusal::argument("body", "a whole body"))),
            Self::Slow => closing(error(&Refusal::argument("body", "sent within 60 s"))),
        }
    }
}

/// An answer to a request whose body has not come yet. What comes of it is dropped for a while: a connection that is
/// closed over bytes nobody read is reset, and the answer can be lost with it (RFC 9112, 9.6).
fn answered_early(response: Response, mut body: Body) -> Response {
    if !body.is_end_stream() {
        tokio::spawn(timeout(LINGER_TIME, async move {
            let mut total = 0;
            while let Some(Ok(frame)) = body.frame().await {
                total += frame.data_ref().map_or(0, |data| data.len() as u64);
                if total > DRAINED_MAX {
                    return;
                }
            }
        }));
    }
    closing(response)
}

fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Who calls what.
struct Call {
    caller: Caller,
    operation: &'static Operation,
    trace_id: Option<String>,
}

impl Call {
    /// Hands it to the writer.
    async fn act(&self, shared: &Shared, arguments: Arguments, finding: Option<Finding>) -> Result<Answer, Refusal> {
        let mut entropy = [0; 32];
        getrandom::fill(&mut entropy).map_err(|_| internal())?;
        let (caller, operation, trace_id) = (self.caller, self.operation, self.trace_id.clone());
        shared.writer.act(Request { caller, operation, arguments, entropy, trace_id, finding }).await
    }
}

/// One call, from its body to its answer.
async fn call(
    shared: &Arc<Shared>,
    caller: Caller,
    operation: &'static Operation,
    body: Vec<u8>,
    trace_id: Option<String>,
) -> Result<Answer, Refusal> {
    let mut arguments = argument::read(&body)?;
    drop(body);
    let call = Call { caller, operation, trace_id };
    if operation.is_action() {
        return wait::act(shared, &call, arguments).await;
    }
    let wait = if operation.name == "turn" { take_wait(&mut arguments)? } else { Duration::ZERO };
    let waiting = if wait.is_zero() { None } else { shared.waits.try_acquire().ok() };
    let mut commits = shared.writer.commits();
    let mut stopping = shared.stopping.clone();
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        commits.borrow_and_update();
        let answer = match read(shared, caller, operation, arguments.clone()).await? {
            Ok(answer) => answer,
            Err(finding) => return call.act(shared, Arguments::new(), Some(finding)).await,
        };
        let owes = answer.result["obligations"].as_array().is_none_or(|obligations| !obligations.is_empty());
        if waiting.is_none() || owes {
            return Ok(answer);
        }
        // Nothing is owed: wait for a commit and look again.
        tokio::select! {
            changed = tokio::time::timeout_at(deadline, commits.changed()) => match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Code::Stopping.into()),
                Err(_) => return Ok(answer),
            },
            _ = stopping.wait_for(|stopping| *stopping) => return Err(Code::Stopping.into()),
        }
    }
}

fn take_wait(arguments: &mut Arguments) -> Result<Duration, Refusal> {
    let wait = take_control::<WaitMs>(arguments, "wait_ms")?;
    Ok(Duration::from_millis(wait.map_or(0, |wait| wait.0)))
}

/// Reads on a thread that may block, from one consistent state (V11). The answer, or what was found in a file of which
/// the writer is to keep something.
async fn read(
    shared: &Arc<Shared>,
    caller: Caller,
    operation: &'static Operation,
    arguments: Arguments,
) -> Result<Result<Answer, Finding>, Refusal> {
    let permit = Arc::clone(&shared.reads).acquire_owned().await.map_err(|_| Refusal::from(Code::Stopping))?;
    let shared = Arc::clone(shared);
    let reading = tokio::task::spawn_blocking(move || {
        // A read goes on when its caller has gone, and counts as long as it does.
        let _permit = permit;
        let published = shared.writer.published();
        let (arguments, as_agent) = take_as(operation, arguments, caller, &published.keyring)?;
        let now = wall_clock();
        let snapshot = shared.store.snapshot().map_err(|error| unreadable(&error))?;
        let view = View {
            read: &snapshot,
            keyring: &published.keyring,
            limits: &published.limits,
            now,
            sealing: published.sealing(now),
            store: figures(&shared.store, operation),
            around: &shared.around.borrow().clone(),
            caller,
            as_agent,
        };
        if operation.uses_a_file() {
            let job = operation.job(&view, arguments).map_err(refused)?;
            return files::carry_out(job, &view, (&shared.store, &snapshot));
        }
        operation.read(&view, arguments).map(Ok).map_err(refused)
    });
    reading.await.unwrap_or_else(|_| {
        tracing::error!(operation = operation.name, "a read failed");
        Err(internal())
    })
}

/// What a caller is told; what it is not told is logged.
pub(crate) fn refused(stop: Stop) -> Refusal {
    match stop {
        Stop::Refused(refusal) => refusal,
        Stop::Unreadable(error) => unreadable(&error),
    }
}

fn unreadable(error: &kwoon_ledger::storage::ReadError) -> Refusal {
    tracing::error!(reason = error.reason, "the store cannot be read");
    internal()
}

fn figures(store: &DiskStore, operation: &Operation) -> StoreFigures {
    if operation.name != "host_status" {
        return StoreFigures::default();
    }
    store.stats().map_or_else(
        |_| StoreFigures::default(),
        |stats| StoreFigures { file_bytes: stats.file_bytes, texts: stats.contents },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_daemons_own_names_are_accepted() {
        let address: SocketAddr = "127.0.0.1:4321".parse().expect("an address");
        let with = |hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_static(host));
            }
            names_daemon(&headers, None, address)
        };
        assert!(with(&["127.0.0.1:4321"]));
        assert!(with(&["LOCALHOST:4321"]));
        assert!(with(&["[::1]:4321"]));
        assert!(!with(&[]));
        assert!(!with(&["localhost"]));
        assert!(!with(&["localhost:80"]));
        assert!(!with(&["evil.example:4321"]));
        assert!(!with(&["127.0.0.1:4321.evil.example"]));
        assert!(!with(&["127.0.0.1:4321", "evil.example"]));
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, HeaderValue::from_static("127.0.0.1:4321"));
        assert!(names_daemon(&headers, Some("localhost:4321"), address));
        assert!(!names_daemon(&headers, Some("evil.example"), address));
        assert!(names_daemon(&HeaderMap::new(), Some("localhost:4321"), address));
    }
}
