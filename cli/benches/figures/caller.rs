//! A caller over HTTP that costs as little as it can, so that what is measured is the daemon: one connection that is
//! kept, requests made once, and of the answers no more read than must be.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

/// One connection to a daemon.
pub struct Caller {
    stream: TcpStream,
    address: String,
    token: String,
    buffer: Vec<u8>,
}

impl Caller {
    /// A connection with a token.
    pub fn new(address: &str, token: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the daemon listens");
        stream.set_nodelay(true).expect("a TCP option");
        Self { stream, address: address.to_owned(), token: token.to_owned(), buffer: Vec::with_capacity(16 << 10) }
    }

    /// The bytes of a request.
    pub fn request(&self, operation: &str, arguments: &Value) -> Vec<u8> {
        let body = arguments.to_string();
        let head = format!(
            "POST /v1/{operation} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            self.token,
            body.len()
        );
        (head + &body).into_bytes()
    }

    /// Sends a request and reads its answer, which must be a success; the body.
    pub fn send(&mut self, request: &[u8]) -> &[u8] {
        self.stream.write_all(request).expect("the daemon reads");
        self.buffer.clear();
        let mut body = None;
        loop {
            let (start, length) = match body {
                Some(known) => known,
                None => match head(&self.buffer) {
                    Some(known) => *body.insert(known),
                    None => (0, usize::MAX),
                },
            };
            if body.is_some() && self.buffer.len() >= start + length {
                return &self.buffer[start..start + length];
            }
            let end = self.buffer.len();
            self.buffer.resize(end + (16 << 10), 0);
            let read = self.stream.read(&mut self.buffer[end..]).expect("an answer");
            assert!(read > 0, "the daemon closed the connection: {}", String::from_utf8_lossy(&self.buffer[..end]));
            self.buffer.truncate(end + read);
        }
    }

    /// Calls an operation, which must succeed; the envelope.
    pub fn call(&mut self, operation: &str, arguments: &Value) -> Value {
        let request = self.request(operation, arguments);
        serde_json::from_slice(self.send(&request)).expect("an envelope")
    }

    /// Sends a request and says how long its answer took.
    pub fn timed(&mut self, request: &[u8]) -> Duration {
        let started = Instant::now();
        self.send(request);
        started.elapsed()
    }

    /// The bytes of the least request there is.
    pub fn health(&self) -> Vec<u8> {
        format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", self.address).into_bytes()
    }
}

/// Where the body of an answer begins and how long it is, once its head is there.
fn head(bytes: &[u8]) -> Option<(usize, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).expect("a head of ASCII");
    assert!(head.starts_with("HTTP/1.1 200 "), "no success: {}", String::from_utf8_lossy(bytes));
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().expect("a length"))
    });
    Some((end, length.expect("a length of the body")))
}
