//! Requests as bytes, as no client library would send them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::Value;

use crate::daemon::{Daemon, Reply};

/// The head of a call with these further header lines, up to and with the empty line.
pub fn head(daemon: &Daemon, token: &str, operation: &str, more: &str) -> String {
    let address = &daemon.address;
    format!("POST /v1/{operation} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{more}\r\n")
}

/// A whole call that leaves the connection open.
pub fn request(daemon: &Daemon, token: &str, operation: &str, body: &[u8]) -> Vec<u8> {
    let head = head(daemon, token, operation, &format!("Content-Length: {}\r\n", body.len()));
    [head.as_bytes(), body].concat()
}

/// The last call of a connection.
pub fn last_request(daemon: &Daemon, token: &str, operation: &str, body: &[u8]) -> Vec<u8> {
    let more = format!("Content-Length: {}\r\nConnection: close\r\n", body.len());
    [head(daemon, token, operation, &more).as_bytes(), body].concat()
}

/// A connection whose every write is sent at once.
pub fn connect(daemon: &Daemon) -> TcpStream {
    let stream = TcpStream::connect(&daemon.address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Writes these parts one by one, and reads until the daemon closes. It may close before it has read everything.
pub fn send<T: AsRef<[u8]>>(daemon: &Daemon, parts: impl IntoIterator<Item = T>) -> Vec<Reply> {
    let mut stream = connect(daemon);
    for part in parts {
        if stream.write_all(part.as_ref()).is_err() {
            break;
        }
    }
    replies(&mut stream)
}

/// The same, and says that nothing more will come.
pub fn send_and_end<T: AsRef<[u8]>>(daemon: &Daemon, parts: impl IntoIterator<Item = T>) -> Vec<Reply> {
    let mut stream = connect(daemon);
    for part in parts {
        if stream.write_all(part.as_ref()).is_err() {
            break;
        }
    }
    // Unless the daemon has closed already.
    let _ = stream.shutdown(Shutdown::Write);
    replies(&mut stream)
}

/// The one answer of a connection.
pub fn only(mut replies: Vec<Reply>) -> Reply {
    assert_eq!(replies.len(), 1, "{replies:?}");
    replies.pop().unwrap()
}

/// Every answer until the daemon closes.
pub fn replies(stream: &mut TcpStream) -> Vec<Reply> {
    let (mut bytes, mut part) = (Vec::new(), vec![0; 1 << 16]);
    // A reset after the last answer is an end like another.
    while let Ok(read @ 1..) = stream.read(&mut part) {
        bytes.extend_from_slice(&part[..read]);
    }
    let mut rest = String::from_utf8(bytes).unwrap();
    let mut replies = Vec::new();
    while !rest.is_empty() {
        let (head, after) = rest.split_once("\r\n\r\n").expect("a whole head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let field = |name: &str| {
            let fields = head.lines().filter_map(|line| line.split_once(": "));
            fields.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let length = field("content-length").map_or(0, |length| length.parse().unwrap());
        let (body, next) = after.split_at(length);
        let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
        replies.push(Reply { status, head: head.to_owned(), body });
        rest = next.to_owned();
    }
    replies
}
