//! A client of the daemon: HTTP/1.1 over its Unix socket, or over TCP where that does not answer. [`Client`] is for commands
//! that do one thing after the other; [`call`] and [`healthy`] are for those with a runtime of their own.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::{self, Runtime};
use tokio::time::timeout;

use crate::exit::Failure;
use crate::home::{Home, Running};

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The largest request that is sent: of a larger one the daemon does not read the end, so its answer may not get here.
const REQUEST_BYTES_MAX: usize = 256 << 20;
/// How long the daemon may take to accept a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// How long it may take to say that it lives.
const HEALTH_WAIT: Duration = Duration::from_secs(2);

/// An answer of the daemon.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body, as it came.
    pub body: Vec<u8>,
}

impl Answer {
    /// The envelope.
    ///
    /// # Errors
    /// If the body is none.
    pub fn envelope(&self) -> Result<Value, Failure> {
        let value: Option<Value> = serde_json::from_slice(&self.body).ok();
        value.filter(|value| value["ok"].is_boolean()).ok_or_else(|| {
            let start = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]).into_owned();
            let start = crate::visible::line(&start);
            Failure::Failed(format!("the daemon answered {} and not an envelope: {start}", self.status))
        })
    }
}

/// A client of the daemon of one home.
#[derive(Debug)]
pub struct Client {
    home: Home,
    runtime: Runtime,
}

impl Client {
    /// A client of the daemon of this home, which need not run yet.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn new(home: &Home) -> Result<Self, Failure> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| Failure::Failed(format!("cannot start a client: {error}")))?;
        Ok(Self { home: home.clone(), runtime })
    }

    /// The home.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The daemon that says it runs for this home.
    ///
    /// # Errors
    /// If none does.
    pub fn daemon(&self) -> Result<Running, Failure> {
        self.home.running().ok_or_else(|| no_daemon(&self.home))
    }

    /// The daemon that says it runs for this home, if it answers.
    pub fn healthy(&self) -> Option<Running> {
        self.runtime.block_on(healthy(&self.home))
    }

    /// Calls an operation. Waits for the answer as long as that takes.
    ///
    /// # Errors
    /// If there is no daemon, it does not answer, or there is more to send than it reads.
    pub fn call(&self, operation: &str, token: &str, arguments: &Value) -> Result<Answer, Failure> {
        self.runtime.block_on(call(&self.home, operation, token, arguments))
    }
}

/// The daemon that says it runs for a home, if it answers.
pub async fn healthy(home: &Home) -> Option<Running> {
    let running = home.running()?;
    let request = Request::builder().method(Method::GET).uri("/healthz");
    let request = request.header(HOST, host_header(&running)).body(Full::default()).ok()?;
    let answer = timeout(HEALTH_WAIT, send(home, &running, request)).await.ok()?.ok()?;
    answer.status.is_success().then_some(running)
}

/// Calls an operation of the daemon of a home. Waits for the answer as long as that takes.
///
/// # Errors
/// As [`Client::call`].
pub async fn call(home: &Home, operation: &str, token: &str, arguments: &Value) -> Result<Answer, Failure> {
    let running = home.running().ok_or_else(|| no_daemon(home))?;
    let body = arguments.to_string();
    if body.len() > REQUEST_BYTES_MAX {
        return Err(Failure::Usage("what is to be sent is larger than 256 MiB".to_owned()));
    }
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("/v1/{operation}"))
        .header(HOST, host_header(&running))
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| Failure::Failed(format!("cannot make a request: {error}")))?;
    send(home, &running, request).await
}

async fn send(home: &Home, running: &Running, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
    if let Ok(Ok(stream)) = timeout(CONNECT_WAIT, UnixStream::connect(&running.socket)).await {
        return exchange(stream, request).await;
    }
    // After a crash the port may be anybody's, and a token is not for anybody. The socket lies in the home.
    let is_ours = || home.holder().is_ok_and(|holder| holder == Some(running.pid));
    if let Some(http) = &running.http
        && is_ours()
        && let Ok(Ok(stream)) = timeout(CONNECT_WAIT, TcpStream::connect(http.as_str())).await
    {
        return exchange(stream, request).await;
    }
    Err(no_daemon(home))
}

fn no_daemon(home: &Home) -> Failure {
    Failure::NoDaemon(home.path().to_owned())
}

/// What the daemon is named by in a request: its address on TCP, on the socket too.
fn host_header(running: &Running) -> &str {
    running.http.as_deref().unwrap_or("localhost")
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!(
            "the connection to the daemon broke before its answer ({error}); an action may have been done: look at \
             your receipts, or repeat it with the same --idempotency-key"
        ))
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| broken(&error))?;
    connection.abort();
    Ok(Answer { status, body: body.to_bytes().into() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use serde_json::json;

    use super::*;

    fn client() -> (tempfile::TempDir, Client) {
        let dir = tempfile::tempdir().unwrap();
        let client = Client::new(&Home::find(Some(dir.path())).unwrap()).unwrap();
        (dir, client)
    }

    /// Answers one request with this body, and gives back what was asked.
    fn answer(mut stream: impl Read + Write, body: &str) -> String {
        let mut asked = Vec::new();
        let mut part = [0; 4096];
        while !asked.windows(4).any(|window| window == b"\r\n\r\n") {
            let read = stream.read(&mut part).unwrap();
            asked.extend_from_slice(&part[..read]);
        }
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        String::from_utf8(asked).unwrap()
    }

    #[test]
    fn without_run_json_or_without_a_listener_there_is_no_daemon() {
        let (dir, client) = client();
        assert!(matches!(client.call("turn", "t", &json!({})), Err(Failure::NoDaemon(_))));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        fs::write(dir.path().join("run.json"), json!({"pid": 42, "http": port.to_string()}).to_string()).unwrap();
        assert!(matches!(client.call("turn", "t", &json!({})), Err(Failure::NoDaemon(_))));
        assert_eq!(client.healthy(), None);
    }

    #[test]
    fn a_call_goes_over_the_socket_with_its_token() {
        let (dir, client) = client();
        let listener = UnixListener::bind(dir.path().join("kwoon.sock")).unwrap();
        fs::write(dir.path().join("run.json"), r#"{"pid": 42, "http": "127.0.0.1:9"}"#).unwrap();
        let served = thread::spawn(move || answer(listener.accept().unwrap().0, r#"{"ok": true}"#));
        let answer = client.call("turn", "kwn_x", &json!({"limit": 1})).unwrap();
        assert_eq!(answer.body, br#"{"ok": true}"#);
        assert_eq!(Exit::of(&answer.envelope().unwrap()), Exit::Done);
        let asked = served.join().unwrap().to_lowercase();
        assert!(asked.starts_with("post /v1/turn http/1.1\r\n"), "{asked}");
        assert!(
            asked.contains("authorization: bearer kwn_x\r\n") && asked.contains("host: 127.0.0.1:9\r\n"),
            "{asked}"
        );
    }

    #[test]
    fn without_a_socket_tcp_is_used_while_the_daemon_holds_its_home() {
        let (dir, client) = client();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let run = json!({"pid": 42, "http": listener.local_addr().unwrap().to_string()});
        fs::write(dir.path().join("run.json"), run.to_string()).unwrap();
        fs::write(dir.path().join("lock"), "42\n").unwrap();
        assert!(matches!(client.call("turn", "t", &json!({})), Err(Failure::NoDaemon(_))));
        let lock = fs::File::open(dir.path().join("lock")).unwrap();
        lock.try_lock().unwrap();
        let served = thread::spawn(move || answer(listener.accept().unwrap().0, "ok"));
        assert_eq!(client.healthy().unwrap().pid, 42);
        assert!(served.join().unwrap().starts_with("GET /healthz "));
    }

    #[test]
    fn what_is_no_envelope_is_a_failure() {
        let answer = Answer { status: StatusCode::BAD_GATEWAY, body: b"<html>\x1b[2J".to_vec() };
        let Err(Failure::Failed(message)) = answer.envelope() else { panic!("an envelope") };
        assert!(message.contains("502") && message.contains("<html>\\u{1b}[2J"), "{message}");
    }

    use crate::exit::Exit;
}
