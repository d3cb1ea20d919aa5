//! Hard input: what careless, broken and hostile clients send over HTTP and the command line, and what disks do. Each case
//! has its exact answer, and leaves the daemon alive, its objects as they were, and its memory, files and threads bounded.

mod amounts;
mod bodies;
mod connections;
mod cursors;
mod damaged_pages;
mod full_disk;
mod json;
mod open_files;
mod texts;
mod tokens;
mod watch;
mod wire;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Reply};

/// What a body must be, as the daemon says it.
const BODY: &str = "well-formed JSON in UTF-8, nested at most 100 deep, each key once, whole numbers of at most 64 bits, at most \
                    65536 values";

/// The whole answer to a refused call, but for the fixed words of its code.
fn assert_refused(reply: &Reply, status: u16, code: &str, step: &str, details: &Value, context: &str) {
    let error = &reply.body["error"];
    assert_eq!((reply.status, reply.code()), (status, code), "{context}: {:#}", reply.body);
    assert_eq!(error["next"], json!({"step": step}), "{context}");
    assert_eq!(error["details"], *details, "{context}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{context}");
    assert!(error["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{context}");
    assert_eq!(reply.body["ok"], false, "{context}");
}

/// An argument that is not of its form.
fn assert_wrong(reply: &Reply, field: &str, expected: &str, context: &str) {
    let details = json!({"field": field, "expected": expected});
    assert_refused(reply, 400, "invalid_argument", "retry", &details, context);
}

/// Something of which there is too much.
fn assert_too_large(reply: &Reply, field: &str, limit: u64, context: &str) {
    let details = json!({"field": field, "limit": limit});
    assert_refused(reply, 400, "content_too_large", "retry", &details, context);
}

/// How the command line ended, and what it printed on both ways out.
fn said(daemon: &Daemon, arguments: &[&str]) -> (i32, String) {
    let output = daemon.cli(arguments);
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code().unwrap(), text)
}
