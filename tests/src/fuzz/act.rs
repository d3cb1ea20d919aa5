//! Calls: whatever the arguments of an operation are, the answer is an answer or a refusal, and a refusal leaves no trace.
//!
//! Each line of an input is a call: a byte for the operation, one for the caller, and its body, in which `$` and a letter
//! stands for what is in the hall. A line that begins with `+` lets as many seconds pass.

use std::sync::LazyLock;

use kwoon_ledger::time::Duration;
use kwoon_store::MemorySnapshot;
use kwoon_sync::operations::{self, Operation};
use serde_json::Value;

use super::world::{World, shown};
use crate::{Agent, Hall};

/// Calls of one input at most.
pub(super) const CALLS_MAX: usize = 12;

static WORLD: LazyLock<World> = LazyLock::new(World::new);

/// See the module.
pub fn target(input: &[u8]) {
    let mut hall = WORLD.hall.fork();
    for line in input.split(|byte| *byte == b'\n').take(CALLS_MAX) {
        if let Some(seconds) = line.strip_prefix(b"+") {
            let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<u32>().ok());
            hall.advance(Duration::seconds(u64::from(seconds.unwrap_or(1))));
            continue;
        }
        let Some((operation, caller, body)) = call_in(&WORLD, line) else { continue };
        check_call(&mut hall, operation, caller, &body);
    }
}

/// The call that a line stands for.
pub fn call_in<'a>(world: &'a World, line: &[u8]) -> Option<(&'static Operation, &'a Agent, Vec<u8>)> {
    let [operation, caller, body @ ..] = line else { return None };
    let operation = &operations::ALL[usize::from(*operation) % operations::ALL.len()];
    Some((operation, world.caller(*caller), world.fill(body)))
}

fn check_call(hall: &mut Hall, operation: &'static Operation, caller: &Agent, body: &[u8]) {
    let before = hall.snapshot();
    let answer = shown(&hall.try_body(caller, operation, body));
    if answer["ok"] != true {
        check_refusal(hall, &before, &answer);
    } else if operation.is_action() {
        hall.folds_since(&before);
        check_repeat(hall, operation, caller, body, &answer);
    } else if !operation.uses_a_file() {
        // Of a file, something may be kept in quarantine.
        assert!(hall.unchanged_since(&before), "a read leaves no trace");
    }
}

fn check_refusal(hall: &Hall, before: &MemorySnapshot, answer: &Value) {
    let code = answer["error"]["code"].as_str().expect("a refusal has a code");
    assert_ne!(code, "internal", "{answer:#}");
    assert!(answer["error"]["fix"].is_string() && answer["error"]["next"]["step"].is_string(), "{answer:#}");
    assert!(hall.unchanged_since(before), "a refusal leaves no trace: {answer:#}");
}

/// What was done is not done twice.
fn check_repeat(hall: &mut Hall, operation: &'static Operation, caller: &Agent, body: &[u8], answer: &Value) {
    let arguments: Value = serde_json::from_slice(body).unwrap_or_default();
    if !answer["receipt"].is_object() || !arguments["idempotency_key"].is_string() {
        return;
    }
    let before = hall.snapshot();
    let again = shown(&hall.try_body(caller, operation, body));
    assert_eq!(again["receipt"], answer["receipt"], "a repeat gets the same receipt (L3.3)");
    assert!(hall.unchanged_since(&before), "a repeat does nothing (L3.1)");
}
