//! Admission to a thread (section 6.1): what admits, whom, for how long, and what failed joins say.

use kwoon_ledger::limits::Limits;
use kwoon_ledger::time::Duration;
use kwoon_sync::ticket::Ticket;
use kwoon_tests::forge::stranger;
use kwoon_tests::hall::Hall as OneHost;
use kwoon_tests::{effects, owner, rule, text};
use serde_json::{Value, json};

use crate::Hall;

use crate::threads::{hall, role};

#[test]
fn an_admission_binds_one_role_which_is_speaker_unless_stated() {
    rule!(holds, "T1.2");
    let (mut hall, [alice, bob, carol], thread) = hall();
    assert_eq!(role(&mut hall, &alice, &thread, &bob), "speaker");
    for wanted in ["observer", "governor", "speaker"] {
        let ticket = hall.ticket(&alice, &thread, wanted);
        let joined = hall.ok(&carol, "thread_join", json!({"ticket": ticket}));
        assert_eq!(effects(&joined), [format!("membership_began {wanted}")]);
        assert_eq!(joined["result"]["role"], wanted);
        assert_eq!(role(&mut hall, &alice, &thread, &carol), wanted);
        hall.ok(&carol, "thread_leave", json!({"thread": thread}));
    }
}

#[test]
fn without_an_admission_of_a_governor_nobody_becomes_a_member() {
    rule!(refused, "T1.2");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let ticket = hall.ticket(&alice, &thread, "speaker");
    // The thread's own ticket with another secret in it admits nobody.
    let ticket = Ticket::read(&ticket).unwrap();
    let forged = Ticket::new(ticket.thread, ticket.opening, &stranger(), ticket.hosts).text();
    hall.refused(&carol, "thread_join", json!({"ticket": forged}), "admission_invalid");
    hall.refused(&carol, "thread_join", json!({"ticket": thread}), "admission_invalid");
    hall.refused(&bob, "admission_issue", json!({"thread": thread}), "not_governor");
    hall.refused(&carol, "admission_issue", json!({"thread": thread}), "not_found");
    assert_eq!(role(&mut hall, &alice, &thread, &carol), Value::Null);
}

#[test]
fn joining_again_with_a_valid_admission_returns_the_membership() {
    rule!(holds, "T1.3", "L2.4");
    let (mut hall, [alice, bob, _], thread) = hall();
    let before = hall.digest(&thread);
    let ticket = hall.ticket(&alice, &thread, "governor");
    let issued = hall.digest(&thread);
    assert_ne!(before, issued);
    let again = hall.ok(&bob, "thread_join", json!({"ticket": ticket}));
    assert_eq!(again["result"]["existing"], true);
    assert_eq!(again["result"]["role"], "speaker", "it is the membership that exists, not one of the new admission");
    assert_eq!(effects(&again), ["membership_began speaker"]);
    assert_eq!(hall.digest(&thread), issued, "no fact, no effect");
    assert_eq!(role(&mut hall, &alice, &thread, &bob), "speaker");
    let creator = hall.ok(&alice, "thread_join", json!({"ticket": ticket}));
    assert_eq!(creator["result"]["existing"], true);
    assert_eq!(creator["receipt"]["operation"], "thread_create");
    hall.verify();
}

#[test]
fn an_inactive_agent_cannot_join_and_an_invalid_admission_returns_nothing() {
    rule!(refused, "T1.3");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let ticket = hall.ticket(&alice, &thread, "speaker");
    hall.ok(&owner(), "agent_deactivate", json!({"agent": carol.id}));
    hall.refused(&carol, "thread_join", json!({"ticket": ticket}), "agent_inactive");
    hall.ok(&alice, "admission_void", json!({"thread": thread}));
    hall.refused(&bob, "thread_join", json!({"ticket": ticket}), "admission_invalid");
    assert_eq!(role(&mut hall, &alice, &thread, &bob), "speaker");
}

#[test]
fn a_new_admission_voids_the_old_one() {
    rule!(holds, "T1.4");
    rule!(refused, "T1.4");
    let (mut hall, [alice, _, carol], thread) = hall();
    let old = hall.ticket(&alice, &thread, "governor");
    let issued = hall.ok(&alice, "admission_issue", json!({"thread": thread, "role": "observer"}));
    assert_eq!(effects(&issued), ["admission_voided", "admission_issued observer"]);
    let shown = hall.ok(&alice, "thread_get", json!({"thread": thread}));
    assert_eq!(shown["result"]["admission"]["admission"], issued["result"]["admission"]);
    assert_eq!(shown["result"]["admission"]["role"], "observer");
    hall.refused(&carol, "thread_join", json!({"ticket": old}), "admission_invalid");
    hall.ok(&carol, "thread_join", json!({"ticket": issued["secret"]["ticket"]}));
    assert_eq!(role(&mut hall, &alice, &thread, &carol), "observer");
}

#[test]
fn an_admission_can_be_voided_alone_and_once() {
    rule!(holds, "T1.4");
    rule!(refused, "T1.4", "L2.4");
    let (mut hall, [alice, _, carol], thread) = hall();
    let ticket = hall.ticket(&alice, &thread, "speaker");
    let voided = hall.ok(&alice, "admission_void", json!({"thread": thread}));
    assert_eq!(effects(&voided), ["admission_voided"]);
    assert!(hall.ok(&alice, "thread_get", json!({"thread": thread}))["result"]["admission"].is_null());
    hall.refused(&carol, "thread_join", json!({"ticket": ticket}), "admission_invalid");
    hall.refused(&alice, "admission_void", json!({"thread": thread}), "no_change");
}

#[test]
fn the_secret_of_an_admission_is_shown_once_and_kept_nowhere() {
    rule!(holds, "T1.5", "L3.4");
    rule!(impossible, "T1.5"; "a grant in the log holds the public half of the admission's key and has no field for the other");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let call = json!({"admission": {}, "idempotency_key": "k"});
    let first = hall.ok(&alice, "thread_create", call.clone());
    let ticket = text(&first["secret"]["ticket"]);
    let issue = json!({"thread": first["result"]["thread"], "idempotency_key": "k"});
    let second = text(&hall.ok(&alice, "admission_issue", issue.clone())["secret"]["ticket"]);
    hall.ok(&bob, "thread_join", json!({"ticket": second}));
    for (operation, call) in [("thread_create", call), ("admission_issue", issue)] {
        assert!(hall.ok(&alice, operation, call).get("secret").is_none(), "{operation}");
    }
    for ticket in [ticket, second] {
        let seed = *Ticket::read(&ticket).expect("a ticket").admission().seed();
        for (place, bytes) in hall.stored() {
            assert!(!bytes.windows(32).any(|window| window == seed), "the secret stands in {place}");
            assert!(!bytes.windows(ticket.len()).any(|window| window == ticket.as_bytes()), "it stands in {place}");
        }
    }
}

#[test]
fn every_failure_of_a_join_looks_the_same() {
    rule!(holds, "S1", "S2");
    rule!(refused, "S2");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let voided = hall.ticket(&alice, &thread, "speaker");
    hall.ok(&alice, "admission_void", json!({"thread": thread}));
    let closed_thread = hall.thread(&bob, &[]);
    let closed = hall.ticket(&bob, &closed_thread, "speaker");
    hall.ok(&bob, "thread_close", json!({"thread": closed_thread}));
    // A thread that is not on this host at all.
    let mut elsewhere = OneHost::seeded([9; 32], Limits::DEFAULT);
    let dora = elsewhere.agent("dora");
    let foreign_thread = elsewhere.thread(&dora, &[]);
    let foreign = elsewhere.ticket(&dora, &foreign_thread, "speaker");
    // That one is asked of the host that the ticket names.
    let sent = hall.ok(&carol, "thread_join", json!({"ticket": foreign}));
    assert_eq!(sent["standing"], "pending");
    let errors: Vec<Value> = [voided, closed, "kwoonadm".to_owned(), String::new(), "x".repeat(9000)]
        .iter()
        .map(|ticket| hall.refused(&carol, "thread_join", json!({"ticket": ticket}), "admission_invalid"))
        .collect();
    assert!(errors.windows(2).all(|pair| pair[0] == pair[1]), "{errors:#?}");
    assert_eq!(errors[0]["details"], json!({}));
}

#[test]
fn failed_joins_are_limited_and_others_have_their_own_count() {
    rule!(refused, "S1", "L4.4");
    let mut hall = Hall::with_limits(Limits { failed_joins_max: 3, ..Limits::DEFAULT });
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[]);
    let ticket = hall.ticket(&alice, &thread, "speaker");
    for _ in 0..3 {
        hall.refused(&bob, "thread_join", json!({"ticket": "kwoonadm"}), "admission_invalid");
    }
    let error = hall.refused(&bob, "thread_join", json!({"ticket": ticket}), "rate_limited");
    assert_eq!(error["retry_after_ms"], 15 * 60 * 1000);
    hall.refused(&alice, "thread_join", json!({"ticket": "kwoonadm"}), "admission_invalid");
    hall.advance(Duration(15 * 60 * 1000 - 1));
    hall.refused(&bob, "thread_join", json!({"ticket": ticket}), "rate_limited");
    hall.advance(Duration(1));
    hall.ok(&bob, "thread_join", json!({"ticket": ticket}));
}
