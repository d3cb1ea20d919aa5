//! A home that was copied or restored from a backup. Of two homes of one host, each would give its logs another end, so
//! that one seals nothing before its owner says that it is the one to go on with (design: forks and copies).

use kwoon_ledger::time::Duration;
use kwoon_tests::{Hall, merge, owner, rule};
use serde_json::{Value, json};

use crate::replay::{Acted, assert_replays, every_action};

fn status(hall: &mut Hall) -> (Value, Value) {
    let status = hall.ok(&owner(), "host_status", json!({}));
    (status["result"]["sealing"].clone(), status["result"]["not_sealing_reason"].clone())
}

#[test]
fn a_home_that_was_restored_reads_and_gives_receipts_and_seals_nothing() {
    rule!(refused, "L2.2");
    rule!(holds, "L3.1");
    let (mut hall, acted) = every_action();
    assert_eq!(status(&mut hall), (json!(true), Value::Null));
    hall.copied();
    assert_eq!(status(&mut hall), (json!(false), json!("home_restored")));
    for Acted { agent, operation, arguments, .. } in &acted {
        let mut arguments = arguments.clone();
        merge(&mut arguments, json!({"idempotency_key": "another"}));
        let error = hall.refused(agent, operation, arguments, "not_sealing");
        assert_eq!(error["details"]["reason"], "home_restored", "{operation}");
    }
    assert_replays(&mut hall, &acted);
    hall.verify();
}

#[test]
fn no_deadline_ends_anything_in_a_restored_home_before_it_is_confirmed() {
    rule!(holds, "L4.3");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    let taken = hall.taken(&alice, &thread, &bob, json!({"deliver_within": "1h"}));
    hall.copied();
    let before = hall.trace();
    hall.advance(Duration::minutes(61));
    assert_eq!(hall.trace(), before);
    assert_eq!(hall.state(&alice, &taken), "taken");
    let confirmed = hall.ok(&owner(), "home_confirm", json!({}));
    assert_eq!(confirmed["result"], json!({"was_restored": true, "sealing": true}));
    assert_eq!(hall.state(&alice, &taken), "timed_out");
    hall.verify();
}

#[test]
fn a_confirmed_home_goes_on_and_stays_confirmed() {
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    hall.copied();
    hall.ok(&owner(), "home_confirm", json!({}));
    hall.ok(&alice, "memory_create", json!({"text": "x"}));
    hall.restart();
    assert_eq!(status(&mut hall), (json!(true), Value::Null));
    hall.ok(&alice, "memory_create", json!({"text": "y"}));
    let again = hall.ok(&owner(), "home_confirm", json!({}));
    assert_eq!(again["result"], json!({"was_restored": false, "sealing": true}));
}

#[test]
fn a_repeated_confirmation_confirms_no_later_copy() {
    rule!(holds, "L3.1");
    let mut hall = Hall::new();
    hall.agent("alice");
    hall.copied();
    let key = json!({"idempotency_key": "k"});
    let first = hall.ok(&owner(), "home_confirm", key.clone());
    hall.copied();
    let again = hall.ok(&owner(), "home_confirm", key);
    assert_eq!(again["result"], first["result"]);
    assert_eq!(status(&mut hall), (json!(false), json!("home_restored")));
    hall.ok(&owner(), "home_confirm", json!({}));
    assert_eq!(status(&mut hall), (json!(true), Value::Null));
}

#[test]
fn a_restored_home_with_a_clock_far_ahead_wants_both_confirmed() {
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    hall.copied();
    hall.now = hall.now.after(Duration::days(60));
    hall.ok(&owner(), "clock_confirm", json!({}));
    assert_eq!(status(&mut hall), (json!(false), json!("home_restored")));
    hall.refused(&alice, "memory_create", json!({"text": "x"}), "not_sealing");
    let confirmed = hall.ok(&owner(), "home_confirm", json!({}));
    assert_eq!(confirmed["result"], json!({"was_restored": true, "sealing": true}));
    hall.ok(&alice, "memory_create", json!({"text": "x"}));
}

#[test]
fn only_the_owner_confirms_a_home() {
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    hall.copied();
    hall.refused(&alice, "home_confirm", json!({}), "owner_required");
    assert_eq!(status(&mut hall), (json!(false), json!("home_restored")));
}
