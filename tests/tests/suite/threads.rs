//! Threads, members and closing (sections 6.1, 6.2, 6.5), with what a deactivation does to them (A3, A5).

use kwoon_ledger::time::Duration;
use kwoon_sync::operations;
use kwoon_tests::{Agent, content, effects, owner, rule, text};
use serde_json::{Value, json};

use crate::Hall;

/// A hall with three agents, and a thread of the first that the second has joined.
pub(crate) fn hall() -> (Hall, [Agent; 3], String) {
    let mut hall = Hall::new();
    let agents = [hall.agent("alice"), hall.agent("bob"), hall.agent("carol")];
    let thread = hall.thread(&agents[0], &[&agents[1]]);
    (hall, agents, thread)
}

fn member(hall: &mut Hall, reader: &Agent, thread: &str, agent: &Agent) -> Value {
    let members = hall.all(reader, "member_list", json!({"thread": thread}), "members");
    members.into_iter().find(|member| member["agent"] == agent.id.as_str()).unwrap_or(Value::Null)
}

pub(crate) fn role(hall: &mut Hall, reader: &Agent, thread: &str, agent: &Agent) -> Value {
    member(hall, reader, thread, agent)["role"].clone()
}

fn thread_state(hall: &mut Hall, member: &Agent, thread: &str) -> String {
    text(&hall.ok(member, "thread_get", json!({"thread": thread}))["result"]["state"])
}

// ------------------------------------------------------------------ 6.1

#[test]
fn who_creates_a_thread_governs_it_and_it_is_open() {
    rule!(holds, "T1.1");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    let created = hall.ok(&alice, "thread_create", json!({"subject": "tea"}));
    assert_eq!(effects(&created), ["thread_created", "membership_began governor"]);
    let shown = hall.ok(&alice, "thread_get", json!({"thread": created["result"]["thread"]}));
    assert_eq!(shown["result"]["state"], "open");
    assert_eq!(shown["result"]["role"], "governor");
    assert_eq!(shown["result"]["member_count"], 1);
    assert_eq!(content(&shown, &shown["result"]["subject_content"]), Some("tea"));
}

#[test]
fn an_inactive_agent_creates_no_thread() {
    rule!(refused, "T1.1", "A1");
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    hall.refused(&alice, "thread_create", json!({}), "agent_inactive");
    hall.ok(&owner(), "agent_reactivate", json!({"agent": alice.id}));
    hall.ok(&alice, "thread_create", json!({}));
}

// ------------------------------------------------------------------ 6.2

/// What only a governor may do, with arguments that would succeed.
fn governing(thread: &str, other: &Agent) -> Vec<(&'static str, Value)> {
    vec![
        ("admission_issue", json!({"thread": thread})),
        ("admission_void", json!({"thread": thread})),
        ("member_role", json!({"thread": thread, "agent": other.id, "role": "speaker"})),
        ("member_remove", json!({"thread": thread, "agent": other.id})),
        ("thread_close", json!({"thread": thread})),
    ]
}

#[test]
fn a_governor_governs_a_speaker_speaks_and_an_observer_reads() {
    rule!(holds, "T2.1");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.admit(&alice, &thread, &carol, "observer");
    hall.post(&alice, &thread, json!({}));
    hall.post(&bob, &thread, json!({}));
    let entries = hall.ok(&carol, "thread_entries", json!({"thread": thread}));
    assert_eq!(entries["result"]["entries"].as_array().unwrap().len(), 2);
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "governor"}));
    for (operation, arguments) in governing(&thread, &carol) {
        hall.ok(&bob, operation, arguments);
    }
}

#[test]
fn what_a_role_does_not_allow_is_refused() {
    rule!(refused, "T2.1");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.admit(&alice, &thread, &carol, "observer");
    hall.refused(&carol, "entry_post", json!({"thread": thread, "text": "hello"}), "no_voice");
    for caller in [&bob, &carol] {
        for (operation, arguments) in governing(&thread, &alice) {
            hall.refused(caller, operation, arguments, "not_governor");
        }
    }
}

#[test]
fn the_checks_of_governing_come_in_their_order() {
    rule!(refused, "T2.1", "T5.1", "L2.2");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    let stranger = "agt_aaaaaaaaaaaaaaaaaaaaaaaaaa";
    let remove = json!({"thread": thread, "agent": stranger});
    // Visible, then the role, then the state of the thread, then what the arguments name.
    hall.refused(&carol, "member_remove", remove.clone(), "not_found");
    hall.refused(&bob, "member_remove", remove.clone(), "not_governor");
    hall.refused(&alice, "member_remove", remove, "thread_closed");
    let open = hall.thread(&alice, &[]);
    hall.refused(&alice, "member_remove", json!({"thread": open, "agent": stranger}), "bad_reference");
    hall.refused(&alice, "member_role", json!({"thread": open, "agent": bob.id, "role": "speaker"}), "bad_reference");
    hall.refused(&alice, "member_role", json!({"thread": open, "agent": alice.id, "role": "king"}), "invalid_argument");
}

#[test]
fn a_member_leaves_at_any_time_also_a_closed_thread() {
    rule!(holds, "T2.2");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.admit(&alice, &thread, &carol, "observer");
    assert_eq!(effects(&hall.ok(&bob, "thread_leave", json!({"thread": thread}))), ["membership_ended left"]);
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    hall.ok(&carol, "thread_leave", json!({"thread": thread}));
    // With the thread closed its only governor can leave, too.
    hall.ok(&alice, "thread_leave", json!({"thread": thread}));
    hall.verify();
}

#[test]
fn members_are_removed_and_roles_changed_in_an_open_thread_only() {
    rule!(holds, "T2.2");
    rule!(refused, "T2.2", "L2.4");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.admit(&alice, &thread, &carol, "speaker");
    let set = hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "observer"}));
    assert_eq!(effects(&set), ["role_set observer"]);
    hall.refused(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "observer"}), "no_change");
    let removed = hall.ok(&alice, "member_remove", json!({"thread": thread, "agent": bob.id}));
    assert_eq!(effects(&removed), ["membership_ended removed"]);
    hall.refused(&bob, "thread_get", json!({"thread": thread}), "not_found");
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    for (operation, arguments) in governing(&thread, &carol) {
        hall.refused(&alice, operation, arguments, "thread_closed");
    }
}

#[test]
fn the_last_governor_stays_until_another_governs() {
    rule!(holds, "T2.3");
    rule!(refused, "T2.3");
    let (mut hall, [alice, bob, _], thread) = hall();
    hall.refused(&alice, "thread_leave", json!({"thread": thread}), "last_governor");
    hall.refused(&alice, "member_remove", json!({"thread": thread, "agent": alice.id}), "last_governor");
    for role in ["speaker", "observer"] {
        let demote = json!({"thread": thread, "agent": alice.id, "role": role});
        hall.refused(&alice, "member_role", demote, "last_governor");
    }
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "governor"}));
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": alice.id, "role": "speaker"}));
    hall.refused(&bob, "thread_leave", json!({"thread": thread}), "last_governor");
    hall.ok(&alice, "thread_leave", json!({"thread": thread}));
    assert_eq!(role(&mut hall, &bob, &thread, &bob), "governor");
}

#[test]
fn an_observer_takes_delivers_judges_abandons_and_voids() {
    rule!(holds, "T2.4");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.admit(&alice, &thread, &carol, "speaker");
    let [taken, abandoned] = [0, 1].map(|_| hall.assign(&alice, &thread, &bob, json!({})));
    let judged = hall.delivered(&bob, &thread, &carol, json!({}));
    let returned = hall.delivered(&bob, &thread, &carol, json!({}));
    let voided = hall.assign(&bob, &thread, &carol, json!({}));
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "observer"}));
    hall.ok(&bob, "assignment_take", json!({"assignment": taken}));
    hall.ok(&bob, "assignment_deliver", json!({"assignment": taken, "output": {"text": "done"}}));
    hall.ok(&bob, "assignment_take", json!({"assignment": abandoned}));
    hall.ok(&bob, "assignment_abandon", json!({"assignment": abandoned}));
    hall.ok(&bob, "assignment_accept", json!({"assignment": judged}));
    hall.ok(&bob, "assignment_return", json!({"assignment": returned, "reason": "no"}));
    hall.ok(&bob, "assignment_void", json!({"assignment": voided}));
    hall.verify();
}

#[test]
fn an_assignment_is_created_by_and_for_members_with_a_voice_only() {
    rule!(refused, "T2.4", "T4.1");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.admit(&alice, &thread, &carol, "observer");
    let offer = |to: &Agent| json!({"thread": thread, "text": "do", "assign": {"to": to.id, "criteria": "well"}});
    hall.refused(&carol, "entry_post", offer(&bob), "no_voice");
    hall.refused(&alice, "entry_post", offer(&carol), "bad_reference");
}

#[test]
fn demotion_ends_pending_responses_and_leaves_assignments() {
    rule!(holds, "T2.5");
    rule!(refused, "T2.5");
    let (mut hall, [alice, bob, _], thread) = hall();
    let question = hall.post(&alice, &thread, json!({}));
    let taken = hall.taken(&alice, &thread, &bob, json!({}));
    let created = hall.delivered(&bob, &thread, &alice, json!({}));
    let offered = hall.assign(&alice, &thread, &bob, json!({}));
    assert_eq!(hall.turn(&bob), [("respond".into(), question), ("deliver".into(), 2), ("judge".into(), 3)]);
    let demoted = hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "observer"}));
    assert_eq!(effects(&demoted), ["role_set observer", "obligation_ended respond demoted"]);
    assert_eq!(hall.turn(&bob), [("deliver".into(), 2), ("judge".into(), 3)]);
    for (assignment, state) in [(taken, "taken"), (created, "delivered"), (offered, "offered")] {
        assert_eq!(hall.state(&bob, &assignment), state);
    }
    hall.refused(&bob, "entry_handle", json!({"thread": thread, "entry": question}), "no_such_obligation");
    // Having a voice again brings nothing back.
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "speaker"}));
    assert_eq!(hall.turn(&bob), [("deliver".into(), 2), ("judge".into(), 3)]);
    hall.refused(&bob, "entry_handle", json!({"thread": thread, "entry": question}), "no_such_obligation");
}

/// A thread of alice's in which bob has one of everything, and the ids: an entry that waits for his response, what he
/// took, what he was offered, what he created and is offered, taken and delivered, and what he delivered himself.
struct Entangled {
    entry: u64,
    taken: String,
    offered: String,
    own_offered: String,
    own_taken: String,
    own_delivered: String,
    delivered: String,
}

fn entangle(hall: &mut Hall, alice: &Agent, bob: &Agent, thread: &str) -> Entangled {
    Entangled {
        entry: hall.post(alice, thread, json!({})),
        taken: hall.taken(alice, thread, bob, json!({"deliver_within": "2h"})),
        offered: hall.assign(alice, thread, bob, json!({})),
        own_offered: hall.assign(bob, thread, alice, json!({})),
        own_taken: hall.taken(bob, thread, alice, json!({"deliver_within": "2h"})),
        own_delivered: hall.delivered(bob, thread, alice, json!({"judge_within": "1h"})),
        delivered: hall.delivered(alice, thread, bob, json!({})),
    }
}

/// What T2.6 says of each, however the membership ended.
fn assert_disentangled(hall: &mut Hall, alice: &Agent, bob: &Agent, was: &Entangled) {
    assert_eq!(hall.turn(bob), []);
    // What alice took of bob's is void; what bob delivered to her stays hers to judge.
    assert_eq!(hall.turn(alice), [("judge".into(), 7)]);
    for (assignment, state) in [
        (&was.taken, "voided"),
        (&was.offered, "offered"),
        (&was.own_offered, "voided"),
        (&was.own_taken, "voided"),
        (&was.own_delivered, "delivered"),
        (&was.delivered, "delivered"),
    ] {
        assert_eq!(hall.state(alice, assignment), state, "{assignment}");
    }
    let lost = hall.ok(alice, "assignment_get", json!({"assignment": was.own_delivered}));
    assert_eq!(lost["result"]["judgment_forfeited"], true);
    hall.advance(Duration(60 * 60 * 1000 - 1));
    assert_eq!(hall.state(alice, &was.own_delivered), "delivered");
    hall.advance(Duration(1));
    assert_eq!(hall.state(alice, &was.own_delivered), "undecided", "it ends at the judgment deadline all the same");
    hall.ok(alice, "assignment_accept", json!({"assignment": was.delivered}));
    assert_eq!(hall.turn(alice), []);
    hall.verify();
}

const ENDS_OF_MEMBERSHIP: [&str; 7] = [
    "obligation_ended respond membership_ended",
    "obligation_ended deliver voided",
    "assignment_ended voided",
    "assignment_ended voided",
    "obligation_ended deliver voided",
    "assignment_ended voided",
    "obligation_ended judge membership_ended",
];

fn ends_of_membership(last: &[&str]) -> Vec<String> {
    ENDS_OF_MEMBERSHIP.iter().chain(&["judgment_forfeited"]).chain(last).map(|effect| (*effect).to_owned()).collect()
}

#[test]
fn leaving_ends_everything_of_the_membership_in_one_fact() {
    rule!(holds, "T2.6", "L2.1");
    let (mut hall, [alice, bob, _], thread) = hall();
    let was = entangle(&mut hall, &alice, &bob, &thread);
    let left = hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    assert_eq!(effects(&left), ends_of_membership(&["membership_ended left"]));
    assert_disentangled(&mut hall, &alice, &bob, &was);
}

#[test]
fn a_removal_ends_the_same_as_leaving() {
    rule!(holds, "T2.6");
    let (mut hall, [alice, bob, _], thread) = hall();
    let was = entangle(&mut hall, &alice, &bob, &thread);
    let removed = hall.ok(&alice, "member_remove", json!({"thread": thread, "agent": bob.id}));
    assert_eq!(effects(&removed), ends_of_membership(&["membership_ended removed"]));
    assert_disentangled(&mut hall, &alice, &bob, &was);
}

#[test]
fn what_ended_with_a_membership_can_not_be_acted_on() {
    rule!(refused, "T2.6");
    let (mut hall, [alice, bob, _], thread) = hall();
    let was = entangle(&mut hall, &alice, &bob, &thread);
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    hall.refused(&bob, "assignment_deliver", json!({"assignment": was.taken, "output": {"text": "x"}}), "not_found");
    hall.refused(&bob, "assignment_accept", json!({"assignment": was.own_delivered}), "not_found");
    let deliver = json!({"assignment": was.own_taken, "output": {"text": "x"}});
    hall.refused(&alice, "assignment_deliver", deliver, "already_final");
    hall.refused(&alice, "assignment_take", json!({"assignment": was.own_offered}), "already_final");
    hall.refused(&alice, "assignment_void", json!({"assignment": was.taken}), "already_final");
}

#[test]
fn joining_again_restores_nothing() {
    rule!(holds, "T2.7");
    rule!(refused, "T2.7");
    let (mut hall, [alice, bob, _], thread) = hall();
    let was = entangle(&mut hall, &alice, &bob, &thread);
    let old = member(&mut hall, &alice, &thread, &bob);
    hall.ok(&bob, "thread_leave", json!({"thread": thread}));
    hall.advance(Duration(1));
    hall.admit(&alice, &thread, &bob, "governor");
    let new = member(&mut hall, &alice, &thread, &bob);
    assert_ne!((&old["admission"], &old["since"]), (&new["admission"], &new["since"]), "it is a new membership");
    assert_eq!(hall.turn(&bob), []);
    hall.refused(&bob, "entry_handle", json!({"thread": thread, "entry": was.entry}), "no_such_obligation");
    hall.refused(&bob, "assignment_accept", json!({"assignment": was.own_delivered}), "judgment_forfeited");
    let give_back = json!({"assignment": was.own_delivered, "reason": "late"});
    hall.refused(&bob, "assignment_return", give_back, "judgment_forfeited");
    hall.refused(&bob, "assignment_abandon", json!({"assignment": was.taken}), "already_final");
    assert_eq!(hall.state(&bob, &was.own_delivered), "delivered");
    hall.advance(Duration::minutes(60));
    hall.refused(&bob, "assignment_accept", json!({"assignment": was.own_delivered}), "expired");
    assert_eq!(hall.state(&bob, &was.own_delivered), "undecided");
    // What was offered bound nobody, so it is still there to be taken (T4.8).
    hall.ok(&bob, "assignment_take", json!({"assignment": was.offered}));
    hall.verify();
}

#[test]
fn a_membership_says_how_and_when_it_began_and_nothing_else() {
    rule!(holds, "T2.8");
    rule!(refused, "T2.8");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let row = member(&mut hall, &alice, &thread, &bob);
    let fields: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["agent", "role", "admission", "since"]);
    assert_eq!(row["since"], "2026-11-30T12:00:00.000Z");
    let creator = member(&mut hall, &alice, &thread, &alice);
    assert!(creator.get("admission").is_none(), "its creator came through none");
    let ticket = hall.ticket(&alice, &thread, "speaker");
    let more = json!({"ticket": ticket, "note": "I am new here"});
    hall.refused(&carol, "thread_join", more, "invalid_argument");
}

// ------------------------------------------------------------------ 6.5

#[test]
fn a_governor_closes_for_good() {
    rule!(holds, "T5.1");
    rule!(refused, "T5.1");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.refused(&bob, "thread_close", json!({"thread": thread}), "not_governor");
    hall.refused(&carol, "thread_close", json!({"thread": thread}), "not_found");
    assert_eq!(
        effects(&hall.ok(&alice, "thread_close", json!({"thread": thread}))),
        ["admission_voided", "thread_closed"]
    );
    assert_eq!(thread_state(&mut hall, &bob, &thread), "closed");
    hall.refused(&alice, "thread_close", json!({"thread": thread}), "thread_closed");
    hall.refused(&alice, "admission_issue", json!({"thread": thread}), "thread_closed");
    let reopening = operations::ALL.iter().filter(|operation| operation.name.contains("open"));
    assert_eq!(reopening.count(), 0, "there is no way to open a thread again");
}

#[test]
fn closing_ends_responses_and_voids_what_is_not_delivered() {
    rule!(holds, "T5.2");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.admit(&alice, &thread, &carol, "speaker");
    let was = entangle(&mut hall, &alice, &bob, &thread);
    let asked = hall.post(&alice, &thread, json!({"ask": [bob.id, carol.id]}));
    assert_eq!(hall.turn(&carol), [("respond".into(), asked)]);
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    assert_eq!(hall.turn(&carol), []);
    assert_eq!(hall.turn(&bob), [("judge".into(), 6)]);
    assert_eq!(hall.turn(&alice), [("judge".into(), 7)]);
    for voided in [&was.taken, &was.offered, &was.own_offered, &was.own_taken] {
        assert_eq!(hall.state(&carol, voided), "voided");
    }
    // Memberships stay, and with them the right to read.
    assert_eq!(hall.all(&carol, "member_list", json!({"thread": thread}), "members").len(), 3);
    assert!(hall.ok(&carol, "thread_get", json!({"thread": thread}))["result"]["admission"].is_null());
    hall.ok(&alice, "assignment_accept", json!({"assignment": was.delivered}));
    assert_eq!(hall.state(&bob, &was.own_delivered), "delivered");
    hall.advance(Duration::minutes(60));
    assert_eq!(hall.state(&bob, &was.own_delivered), "undecided");
    hall.verify();
}

#[test]
fn a_closed_thread_is_read_only() {
    rule!(refused, "T5.2", "T3.1");
    let (mut hall, [alice, bob, carol], thread) = hall();
    let was = entangle(&mut hall, &alice, &bob, &thread);
    let ticket = hall.ticket(&alice, &thread, "speaker");
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    for speaker in [&alice, &bob] {
        hall.refused(speaker, "entry_post", json!({"thread": thread, "text": "x"}), "thread_closed");
    }
    hall.refused(&carol, "thread_join", json!({"ticket": ticket}), "admission_invalid");
    hall.refused(&bob, "entry_handle", json!({"thread": thread, "entry": was.entry}), "no_such_obligation");
    hall.refused(&alice, "entry_retract", json!({"thread": thread, "entry": was.entry}), "no_change");
    hall.refused(&bob, "assignment_take", json!({"assignment": was.offered}), "already_final");
    hall.refused(&bob, "assignment_abandon", json!({"assignment": was.taken}), "already_final");
}

#[test]
fn a_creator_that_leaves_a_closed_thread_loses_its_judgment() {
    rule!(holds, "T5.2", "T2.6");
    let (mut hall, [alice, bob, _], thread) = hall();
    let delivered = hall.delivered(&alice, &thread, &bob, json!({"judge_within": "1h"}));
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    let left = hall.ok(&alice, "thread_leave", json!({"thread": thread}));
    let expected = ["obligation_ended judge membership_ended", "judgment_forfeited", "membership_ended left"];
    assert_eq!(effects(&left), expected);
    hall.advance(Duration::minutes(60));
    assert_eq!(hall.state(&bob, &delivered), "undecided");
    hall.verify();
}

#[test]
fn work_goes_on_in_a_new_thread_that_pins_the_same_memory() {
    rule!(holds, "T5.3");
    rule!(refused, "T5.3");
    let (mut hall, [alice, bob, _], thread) = hall();
    let posted = hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "the plan"}));
    hall.ok(&alice, "thread_close", json!({"thread": thread}));
    let next = hall.thread(&alice, &[&bob]);
    let memory = &posted["result"]["memory"];
    // A reply never crosses threads, by number or by action.
    for reply_to in [json!(1), posted["receipt"]["action"].clone()] {
        let reply = json!({"thread": next, "memory": memory, "reply_to": reply_to});
        hall.refused(&alice, "entry_post", reply, "bad_reference");
    }
    let pinned = hall.ok(&alice, "entry_post", json!({"thread": next, "memory": memory}));
    assert_eq!(&pinned["result"]["memory"], memory);
    let read = hall.ok(&bob, "entry_get", json!({"thread": next, "entry": 1}));
    assert_eq!(content(&read, &read["result"]["text_content"]), Some("the plan"));
}

// ------------------------------------------------------------------ deactivation

#[test]
fn a_deactivation_ends_every_membership_in_one_fact_of_each_thread() {
    rule!(holds, "A3", "A2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let other = hall.thread(&alice, &[&bob]);
    let was = entangle(&mut hall, &alice, &bob, &thread);
    let before = [hall.facts(&thread).len(), hall.facts(&other).len()];
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id, "reason": "holiday"}));
    for (object, before) in [(&thread, before[0]), (&other, before[1])] {
        let facts = hall.facts(object);
        assert_eq!(facts.len(), before + 1);
        let last = facts.last().unwrap();
        assert_eq!(last["cause"], "account");
        let ended = json!({"kind": "membership_ended", "agent": bob.id, "how": "inactive"});
        assert_eq!(last["event"]["payload"]["effects"].as_array().unwrap().last(), Some(&ended));
    }
    assert_disentangled(&mut hall, &alice, &bob, &was);
    // A2: what it did keeps its author.
    let delivered = hall.ok(&alice, "assignment_get", json!({"assignment": was.delivered}));
    assert_eq!(delivered["result"]["assignee"], bob.id.as_str());
}

#[test]
fn a_termination_has_the_same_effects() {
    rule!(holds, "A3");
    let (mut hall, [alice, bob, _], thread) = hall();
    let was = entangle(&mut hall, &alice, &bob, &thread);
    hall.ok(&owner(), "agent_terminate", json!({"agent": bob.id}));
    assert_disentangled(&mut hall, &alice, &bob, &was);
}

#[test]
fn nothing_of_an_inactive_agent_is_sealed_and_activity_restores_no_membership() {
    rule!(refused, "A3", "A1");
    let (mut hall, [alice, bob, _], thread) = hall();
    let was = entangle(&mut hall, &alice, &bob, &thread);
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    // Being inactive comes before what may be seen.
    for (operation, arguments) in [
        ("entry_post", json!({"thread": thread, "text": "x"})),
        ("entry_handle", json!({"thread": thread, "entry": was.entry})),
        ("assignment_accept", json!({"assignment": was.own_delivered})),
        ("thread_leave", json!({"thread": thread})),
        ("memory_create", json!({"text": "x"})),
    ] {
        hall.refused(&bob, operation, arguments, "agent_inactive");
    }
    hall.refused(&bob, "thread_get", json!({"thread": thread}), "not_found");
    hall.ok(&owner(), "agent_reactivate", json!({"agent": bob.id}));
    hall.refused(&bob, "entry_post", json!({"thread": thread, "text": "x"}), "not_found");
    hall.admit(&alice, &thread, &bob, "speaker");
    hall.post(&bob, &thread, json!({}));
    hall.refused(&bob, "assignment_accept", json!({"assignment": was.own_delivered}), "judgment_forfeited");
    hall.verify();
}

#[test]
fn a_thread_that_loses_its_last_governor_by_a_deactivation_closes_in_the_same_fact() {
    rule!(holds, "A5");
    let (mut hall, [alice, bob, carol], thread) = hall();
    hall.admit(&alice, &thread, &carol, "speaker");
    let asked = hall.post(&bob, &thread, json!({"ask": [carol.id]}));
    assert_eq!(hall.turn(&carol), [("respond".into(), asked)]);
    let kept = hall.delivered(&bob, &thread, &carol, json!({}));
    let before = hall.facts(&thread).len();
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    let facts = hall.facts(&thread);
    assert_eq!(facts.len(), before + 1);
    let kinds = facts[before]["event"]["payload"]["effects"].as_array().unwrap().iter().map(|e| text(&e["kind"]));
    // Which host orders the log from then on is another matter.
    let kinds: Vec<_> = kinds.filter(|kind| kind != "epoch_began").collect();
    assert_eq!(kinds, ["membership_ended", "obligation_ended", "admission_voided", "thread_closed"]);
    assert_eq!(thread_state(&mut hall, &bob, &thread), "closed");
    assert_eq!(hall.turn(&carol), []);
    assert_eq!(hall.turn(&bob), [("judge".into(), 2)]);
    hall.ok(&bob, "assignment_accept", json!({"assignment": kept}));
    hall.verify();
}

#[test]
fn a_thread_with_another_governor_stays_open() {
    rule!(holds, "A5");
    rule!(refused, "A5");
    let (mut hall, [alice, bob, _], thread) = hall();
    hall.ok(&alice, "member_role", json!({"thread": thread, "agent": bob.id, "role": "governor"}));
    hall.ok(&owner(), "agent_deactivate", json!({"agent": alice.id}));
    assert_eq!(thread_state(&mut hall, &bob, &thread), "open");
    // Now bob is the last one, and only a deactivation takes the last one away.
    hall.refused(&bob, "thread_leave", json!({"thread": thread}), "last_governor");
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    let last = hall.facts(&thread).pop().unwrap();
    assert_eq!(last["event"]["payload"]["effects"].as_array().unwrap().last().unwrap()["kind"], "thread_closed");
}

// ------------------------------------------------------------------ the atoms stay apart

#[test]
fn a_memory_in_a_thread_stays_a_memory_and_a_thread_stays_a_thread() {
    rule!(holds, "P2");
    rule!(refused, "P2");
    let (mut hall, [alice, bob, _], thread) = hall();
    let posted = hall.ok(&alice, "entry_post", json!({"thread": thread, "text": "hello"}));
    let memory = posted["result"]["memory"].clone();
    hall.ok(&alice, "memory_update", json!({"memory": memory, "text": "later"}));
    hall.ok(&alice, "memory_withdraw", json!({"memory": memory}));
    // The entry refers to the version; it neither follows the memory nor ends with it.
    let read = hall.ok(&bob, "entry_get", json!({"thread": thread, "entry": 1}));
    assert_eq!(content(&read, &read["result"]["text_content"]), Some("hello"));
    // An id of one kind is no id of another.
    hall.refused(&alice, "thread_get", json!({"thread": memory}), "invalid_argument");
    hall.refused(&alice, "memory_get", json!({"memory": thread}), "invalid_argument");
    hall.refused(&alice, "memory_publish", json!({"memory": thread}), "invalid_argument");
}
