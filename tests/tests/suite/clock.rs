//! The guard against jumps of the host's own clock, and what a host does by itself as time passes (L4.3).

use kwoon_ledger::clock::{AHEAD_MAX, BEHIND_MAX};
use kwoon_ledger::limits::{FAILED_JOINS_WINDOW, Limits};
use kwoon_ledger::log;
use kwoon_ledger::storage::Table;
use kwoon_ledger::time::{Duration, Time};
use kwoon_sync::answer::shown;
use kwoon_sync::host::RECORD_INTERVAL;
use kwoon_sync::operations;
use kwoon_tests::hall::START;
use kwoon_tests::{Agent, Hall, WITHOUT_RECEIPT, merge, owner, rule, text};
use serde_json::{Value, json};

use crate::replay::{Acted, assert_replays, every_action};

const YEARS: Duration = Duration::days(3653);
const INSTANT: Duration = Duration(1);

/// Bob owes a response and a delivery, and Alice a judgment; both deadlines are an hour away.
struct Scene {
    hall: Hall,
    alice: Agent,
    bob: Agent,
    thread: String,
    taken: String,
    delivered: String,
}

fn scene() -> Scene {
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    let hour = json!({"deliver_within": "1h", "judge_within": "1h"});
    let taken = hall.taken(&alice, &thread, &bob, hour.clone());
    let delivered = hall.delivered(&alice, &thread, &bob, hour);
    Scene { hall, alice, bob, thread, taken, delivered }
}

impl Scene {
    fn say(&self, text: &str) -> Value {
        json!({"thread": self.thread, "text": text, "ask": []})
    }

    /// The clock shows this, and is not believed: for this reason.
    fn assert_guarded(&mut self, now: Time, reason: &str) {
        self.hall.now = now;
        let (before, recorded) = (self.hall.trace(), self.hall.recorded());
        self.hall.wake();
        for (caller, operation, arguments) in [
            (self.bob.clone(), "entry_post", self.say("x")),
            (self.bob.clone(), "memory_create", json!({"text": "x"})),
            (owner(), "agent_create", json!({"name": "eve"})),
        ] {
            let error = self.hall.refused(&caller, operation, arguments, "not_sealing");
            assert_eq!(error["details"], json!({"reason": reason}));
            assert_eq!(error["next"], json!({"step": "wait"}));
        }
        assert_eq!((self.hall.trace(), self.hall.recorded()), (before, recorded));
        let status = self.hall.ok(&owner(), "host_status", json!({}));
        assert_eq!(status["result"]["sealing"], false);
        assert_eq!(status["result"]["not_sealing_reason"], reason);
    }

    /// The clock shows this, and is believed.
    fn assert_believed(&mut self, now: Time) {
        self.hall.now = now;
        let status = self.hall.ok(&owner(), "host_status", json!({}));
        assert_eq!(status["result"]["sealing"], true);
        assert!(status["result"].get("not_sealing_reason").is_none());
        let say = self.say("x");
        let before = self.hall.recorded();
        self.hall.ok(&self.bob.clone(), "entry_post", say);
        // A clock that is a little behind does not get further behind by being recorded.
        assert_eq!(self.hall.recorded(), before.max(Some(now)));
    }

    fn confirm(&mut self, was_sealing: bool) {
        let confirmed = self.hall.ok(&owner(), "clock_confirm", json!({}));
        assert_eq!(confirmed["result"], json!({"time": shown(self.hall.now), "was_sealing": was_sealing}));
        assert_eq!(self.hall.recorded(), Some(self.hall.now));
    }

    fn states(&mut self) -> [String; 2] {
        [&self.taken, &self.delivered].map(|assignment| self.hall.state(&self.alice.clone(), assignment))
    }
}

/// Every fact of the host in the order of arrival: its object, its cause and its log time.
fn history(hall: &mut Hall) -> Vec<(String, String, String)> {
    let snapshot = hall.snapshot();
    let arrivals = log::arrivals(&snapshot, 0, usize::MAX).unwrap();
    let mut facts = std::collections::BTreeMap::new();
    let mut rows = Vec::new();
    for (_, number, index) in arrivals {
        let object = log::object(&snapshot, number).unwrap().unwrap().to_string();
        let all = facts.entry(object.clone()).or_insert_with(|| hall.facts(&object));
        let fact = &all[usize::try_from(index).unwrap()];
        rows.push((object, text(&fact["cause"]), text(&fact["event"]["occurred_at"])));
    }
    rows
}

/// Log time never goes back in any log.
fn assert_time_never_goes_back(hall: &mut Hall) {
    let mut last = std::collections::BTreeMap::new();
    for (object, _, at) in history(hall) {
        let before = last.insert(object, at.clone());
        assert!(before.is_none_or(|before| before <= at));
    }
    hall.verify();
}

// ------------------------------------------------------------------ the guard

#[test]
fn a_clock_that_goes_back_a_little_is_not_recorded_behind_what_is_being_committed() {
    let mut scene = scene();
    let (said, also_said) = (scene.say("x"), scene.say("y"));
    scene.hall.now = scene.hall.now.after(Duration(50));
    let (later, back) = (scene.hall.now, Time(scene.hall.now.0 - 20));
    let answers = scene.hall.ahead((&scene.bob, "entry_post", said), back, (&scene.alice, "entry_post", also_said));
    assert!(answers.iter().all(|answer| answer["ok"] == true), "{answers:?}");
    assert_eq!(scene.hall.recorded(), Some(later));
}

#[test]
fn with_a_clock_that_jumped_no_operation_acts_and_every_receipt_is_given() {
    rule!(refused, "L4.3", "L2.2");
    rule!(holds, "L3.1");
    for (far, reason) in [(true, "clock_ahead"), (false, "clock_behind")] {
        let (mut hall, acted) = every_action();
        let last = hall.recorded().unwrap();
        assert_eq!(last, START);
        hall.now = if far { last.after(AHEAD_MAX).after(INSTANT) } else { last.before(BEHIND_MAX).before(INSTANT) };
        let before = hall.trace();
        for restarts in [false, true] {
            if restarts {
                hall.restart();
            }
            hall.wake();
            for Acted { agent, operation, arguments, .. } in &acted {
                let mut arguments = arguments.clone();
                merge(&mut arguments, json!({"idempotency_key": "another"}));
                let error = hall.refused(agent, operation, arguments, "not_sealing");
                assert_eq!(error["details"], json!({"reason": reason}), "{operation}");
            }
            assert_replays(&mut hall, &acted);
            assert_eq!((hall.trace(), hall.recorded()), (before.clone(), Some(last)));
        }
        let tried = acted.iter().map(|acted| acted.operation);
        let acting = operations::ALL.iter().filter(|operation| operation.is_action()).map(|operation| operation.name);
        let untried: Vec<_> = acting.filter(|name| !tried.clone().any(|tried| tried == *name)).collect();
        assert_eq!(untried, WITHOUT_RECEIPT);
    }
}

#[test]
fn a_clock_is_believed_to_the_last_millisecond() {
    rule!(holds, "L4.3");
    let mut scene = scene();
    scene.assert_believed(START.before(BEHIND_MAX));
    // The last time recorded counts, whatever was recorded before it.
    scene.assert_believed(START.before(BEHIND_MAX).after(AHEAD_MAX));
    let mut scene = self::scene();
    scene.assert_guarded(START.before(BEHIND_MAX).before(INSTANT), "clock_behind");
    scene.assert_guarded(START.after(AHEAD_MAX).after(INSTANT), "clock_ahead");
    scene.assert_guarded(Time(0), "clock_behind");
    scene.assert_guarded(Time(u64::MAX), "clock_ahead");
    scene.assert_believed(START.after(AHEAD_MAX));
    assert_time_never_goes_back(&mut scene.hall);
}

#[test]
fn what_is_wrong_with_the_form_or_the_caller_is_told_all_the_same() {
    rule!(refused, "L2.2", "S2");
    let Scene { mut hall, alice, bob, .. } = scene();
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    hall.now = START.after(YEARS);
    hall.refused(&alice, "memory_create", json!({}), "invalid_argument");
    hall.refused(&alice, "agent_create", json!({"name": "eve"}), "owner_required");
    hall.refused(&bob, "memory_create", json!({"text": "x"}), "agent_inactive");
    // What is not there looks like what is: nothing is looked up.
    let thread = json!({"thread": "thr_aaaaaaaaaaaaaaaaaaaaaaaaaa", "text": "x"});
    hall.refused(&alice, "entry_post", thread, "not_sealing");
}

#[test]
fn while_the_host_does_not_seal_what_is_past_due_is_shown_as_lapsed_and_nothing_ends() {
    rule!(refused, "L4.3");
    rule!(holds, "O6", "O3");
    let mut scene = scene();
    let (alice, bob, thread) = (scene.alice.clone(), scene.bob.clone(), scene.thread.clone());
    let due: Vec<_> = scene.hall.all(&bob, "turn", json!({}), "obligations");
    assert!(due.iter().all(|row| row.get("lapsed").is_none()));
    scene.assert_guarded(START.after(YEARS), "clock_ahead");
    scene.hall.restart();
    scene.hall.wake();
    assert_eq!(scene.states(), ["taken", "delivered"]);
    let steps = |rows: &Value| -> Vec<_> {
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| (text(&row["duty"]), row["lapsed"] == true, text(&row["step"]))).collect()
    };
    let bobs = [("respond".to_owned(), false, "respond".to_owned()), ("deliver".to_owned(), true, "wait".to_owned())];
    let alices = [("judge".to_owned(), true, "wait".to_owned())];
    for (agent, expected) in [(&bob, &bobs[..]), (&alice, &alices[..])] {
        let turn = scene.hall.ok(agent, "turn", json!({}));
        assert_eq!(steps(&turn["result"]["obligations"]), expected);
        for operation in [("working_set", json!({"object": thread})), ("thread_get", json!({"thread": thread}))] {
            let shown = scene.hall.ok(agent, operation.0, operation.1);
            assert_eq!(steps(&shown["result"]["obligations"]), expected);
        }
        let steps: Vec<_> = expected.iter().map(|row| row.2.clone()).collect();
        let listed = scene.hall.ok(agent, "memory_list", json!({}))["next"].clone();
        assert_eq!(listed.as_array().unwrap().iter().map(|next| text(&next["step"])).collect::<Vec<_>>(), steps);
    }
    let (taken, delivered) = (scene.taken.clone(), scene.delivered.clone());
    for assignment in [&taken, &delivered] {
        let shown = scene.hall.ok(&bob, "assignment_get", json!({"assignment": assignment}));
        assert_eq!(shown["result"]["lapsed"], true);
    }
    // When the clock comes back all is as it was, and goes on.
    scene.hall.now = START.after(Duration::minutes(59));
    scene.hall.wake();
    assert_eq!(scene.hall.all(&bob, "turn", json!({}), "obligations"), due);
    scene.hall.ok(&bob, "assignment_deliver", json!({"assignment": taken, "output": {"text": "done"}}));
    scene.hall.ok(&alice, "assignment_accept", json!({"assignment": delivered}));
    assert_time_never_goes_back(&mut scene.hall);
}

#[test]
fn behind_the_recorded_time_nothing_lapses() {
    rule!(holds, "L4.3");
    let mut scene = scene();
    let bob = scene.bob.clone();
    scene.hall.advance(Duration::minutes(59));
    scene.assert_guarded(START, "clock_behind");
    assert!(scene.hall.all(&bob, "turn", json!({}), "obligations").iter().all(|row| row.get("lapsed").is_none()));
    // The due time is reached by the log's time alone.
    scene.hall.now = START.after(Duration::minutes(60));
    scene.hall.wake();
    assert_eq!(scene.states(), ["timed_out", "undecided"]);
}

// ------------------------------------------------------------------ the owner's word

#[test]
fn only_the_owner_confirms_the_clock() {
    rule!(refused, "L4.3");
    let mut scene = scene();
    let alice = scene.alice.clone();
    scene.assert_guarded(START.after(YEARS), "clock_ahead");
    scene.hall.refused(&alice, "clock_confirm", json!({}), "owner_required");
    scene.hall.refused(&owner(), "clock_confirm", json!({"time": "now"}), "invalid_argument");
    // One that is not committed never was.
    let answer = scene.hall.call_uncommitted(&owner(), "clock_confirm", &json!({}));
    assert_eq!(answer["error"]["code"], "internal");
    scene.assert_guarded(START.after(YEARS), "clock_ahead");
    scene.confirm(false);
    scene.assert_believed(START.after(YEARS));
    scene.confirm(true);
}

#[test]
fn when_the_clock_is_confirmed_what_is_due_is_sealed_at_its_due_time_before_anything_else() {
    rule!(holds, "L4.3", "T4.10");
    for together in [false, true] {
        let mut scene = scene();
        let bob = scene.bob.clone();
        let before = history(&mut scene.hall).len();
        scene.assert_guarded(START.after(YEARS), "clock_ahead");
        let create = json!({"text": "x"});
        if together {
            let calls = [(&owner(), "clock_confirm", json!({})), (&bob, "memory_create", create)];
            let answers = scene.hall.round(&calls);
            assert_eq!(answers[0]["result"]["was_sealing"], false);
            assert_eq!(answers[1]["ok"], true, "{:#}", answers[1]);
        } else {
            scene.confirm(false);
            assert_eq!(scene.hall.turn(&bob), [("respond".into(), 1)], "the deadlines went with it");
            scene.hall.restart();
            scene.hall.ok(&bob, "memory_create", create);
        }
        assert_eq!(scene.hall.recorded(), Some(scene.hall.now));
        assert_eq!(scene.states(), ["timed_out", "undecided"]);
        let facts = history(&mut scene.hall).split_off(before);
        let due = shown(START.after(Duration::minutes(60)));
        let expiry = (scene.thread.clone(), "expiry".to_owned(), due);
        assert_eq!(facts[..2], [expiry.clone(), expiry]);
        assert_eq!((facts[2].1.as_str(), &facts[2].2, facts.len()), ("action", &shown(scene.hall.now), 3));
        scene.hall.verify();
    }
}

#[test]
fn a_further_jump_is_guarded_again() {
    rule!(refused, "L4.3");
    let mut scene = scene();
    let mut now = START;
    for restarts in [false, true, false] {
        now = now.after(AHEAD_MAX).after(INSTANT);
        scene.assert_guarded(now, "clock_ahead");
        scene.confirm(false);
        if restarts {
            scene.hall.restart();
        }
        scene.assert_believed(now);
        now = now.before(BEHIND_MAX).before(INSTANT);
        scene.assert_guarded(now, "clock_behind");
        scene.confirm(false);
        scene.assert_believed(now);
    }
    assert_time_never_goes_back(&mut scene.hall);
}

// ------------------------------------------------------------------ there and back

#[test]
fn ten_years_ahead_and_back_leave_nothing_behind() {
    rule!(refused, "L4.3");
    let mut scene = scene();
    let before = scene.hall.trace();
    scene.assert_guarded(START.after(YEARS), "clock_ahead");
    scene.hall.now = START.after(Duration::seconds(1));
    scene.hall.wake();
    assert_eq!(scene.hall.trace(), before);
    assert_eq!(scene.states(), ["taken", "delivered"]);
    scene.assert_believed(START.after(Duration::seconds(2)));
}

#[test]
fn a_host_goes_on_after_its_owner_confirmed_a_wrong_clock_and_then_the_right_one() {
    rule!(holds, "L4.3");
    rule!(refused, "L4.3");
    let mut scene = scene();
    let (alice, bob, thread) = (scene.alice.clone(), scene.bob.clone(), scene.thread.clone());
    let memory = scene.hall.ok(&bob, "memory_create", json!({"text": "x"}))["result"]["memory"].clone();
    let of_memory = json!({"memory": memory});
    scene.hall.now = START.after(YEARS);
    scene.confirm(false);
    scene.assert_believed(START.after(YEARS));
    scene.hall.ok(&bob, "memory_publish", of_memory.clone());
    scene.hall.ok(&owner(), "agent_update", json!({"agent": bob.id, "expected_version": 1, "mission": "m"}));
    scene.hall.refused(&alice, "thread_join", json!({"ticket": "kwoonadm"}), "admission_invalid");
    scene.assert_guarded(START, "clock_behind");
    scene.confirm(false);
    // In the logs that were touched time stands still until the clock has come there; everything can be done.
    scene.assert_believed(START);
    let update = json!({"memory": memory, "text": "y", "expected_version": 1});
    let updated = scene.hall.ok(&bob, "memory_update", update);
    assert_eq!(updated["receipt"]["sealed_at"], shown(START.after(YEARS)));
    scene.hall.ok(&bob, "memory_unpublish", of_memory);
    scene.hall.ok(&owner(), "agent_update", json!({"agent": bob.id, "expected_version": 2, "mission": "n"}));
    scene.hall.admit(&alice, &thread, &bob, "speaker");
    let carol = scene.hall.agent("carol");
    scene.hall.admit(&alice, &thread, &carol, "speaker");
    let question = scene.hall.post(&alice, &thread, json!({"ask": [bob.id]}));
    assert!(scene.hall.turn(&bob).contains(&("respond".into(), question)));
    let work = scene.hall.delivered(&alice, &thread, &bob, json!({"judge_within": "1h"}));
    let shown_work = scene.hall.ok(&alice, "assignment_get", json!({"assignment": work}))["result"].clone();
    assert_eq!(shown_work["due_at"], shown(START.after(YEARS).after(Duration::minutes(60))), "by the log's time");
    // What is new begins at the clock's time.
    let created = scene.hall.ok(&carol, "memory_create", json!({"text": "x"}));
    assert_eq!(created["receipt"]["sealed_at"], shown(START));
    scene.hall.ok(&owner(), "agent_deactivate", json!({"agent": carol.id}));
    scene.hall.now = START.after(Duration::seconds(1));
    scene.hall.ok(&alice, "assignment_accept", json!({"assignment": work}));
    scene.hall.ok(&alice, "thread_close", json!({"thread": thread}));
    assert_time_never_goes_back(&mut scene.hall);
}

#[test]
fn rates_do_not_wait_for_a_clock_that_was_set_back() {
    rule!(holds, "L4.4", "S1");
    for back in [Duration::minutes(9), YEARS] {
        let limits = Limits { actions_burst_max: 4, failed_joins_max: 2, ..Limits::DEFAULT };
        let mut hall = Hall::with_limits(limits);
        let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
        let (create, wrong) = (json!({"text": "x"}), json!({"ticket": "kwoonadm"}));
        hall.now = START.after(back);
        hall.call(&owner(), "clock_confirm", json!({}));
        for _ in 0..4 {
            hall.ok(&bob, "memory_create", create.clone());
        }
        hall.refused(&bob, "memory_create", create.clone(), "rate_limited");
        for _ in 0..2 {
            hall.refused(&alice, "thread_join", wrong.clone(), "admission_invalid");
        }
        hall.refused(&alice, "thread_join", wrong.clone(), "rate_limited");
        hall.now = START;
        hall.call(&owner(), "clock_confirm", json!({}));
        hall.refused(&bob, "memory_create", create.clone(), "rate_limited");
        // Setting it back frees nobody either: the whole window begins.
        let error = hall.refused(&alice, "thread_join", wrong.clone(), "rate_limited");
        assert_eq!(error["retry_after_ms"], FAILED_JOINS_WINDOW.0);
        hall.now = START.after(Duration::seconds(1));
        hall.ok(&bob, "memory_create", create);
        hall.now = START.after(FAILED_JOINS_WINDOW);
        hall.refused(&alice, "thread_join", wrong, "admission_invalid");
    }
}

#[test]
fn a_small_step_back_lets_log_time_stand_still() {
    rule!(holds, "L4.3");
    let mut scene = scene();
    let bob = scene.bob.clone();
    let back = START.before(Duration::minutes(9));
    for now in [back, back.after(Duration::minutes(4)), START.before(INSTANT), START, START.after(INSTANT)] {
        scene.hall.now = now;
        let say = scene.say("x");
        let posted = scene.hall.ok(&bob, "entry_post", say);
        assert_eq!(posted["receipt"]["sealed_at"], shown(now.max(START)));
        assert_eq!(scene.hall.recorded(), Some(now.max(START)));
    }
    // The deadlines wait for the log's time as well: an hour from when they began.
    scene.hall.now = START.after(Duration::minutes(60)).before(INSTANT);
    scene.hall.wake();
    assert_eq!(scene.states(), ["taken", "delivered"]);
    scene.hall.advance(INSTANT);
    assert_eq!(scene.states(), ["timed_out", "undecided"]);
    assert_time_never_goes_back(&mut scene.hall);
}

// ------------------------------------------------------------------ what a host does by itself

#[test]
fn the_time_is_recorded_with_every_commit_and_each_minute() {
    rule!(holds, "L4.3");
    let mut hall = Hall::new();
    assert_eq!(hall.recorded(), None);
    hall.wake();
    assert_eq!(hall.recorded(), Some(START), "a host that recorded none believes its clock");
    hall.advance(Duration(59_999));
    assert_eq!(hall.recorded(), Some(START));
    let alice = hall.agent("alice");
    assert_eq!(hall.recorded(), Some(hall.now));
    hall.now = hall.now.after(Duration(59_999));
    let committed = hall.recorded();
    // A refusal and a repeat are no commits.
    hall.refused(&alice, "memory_create", json!({}), "invalid_argument");
    assert_eq!(hall.recorded(), committed);
    hall.advance(INSTANT);
    assert_eq!(hall.recorded(), Some(hall.now));
    assert_eq!(hall.wake_at(), hall.now.after(RECORD_INTERVAL));
    // A round in which nothing is decided records the time as well.
    hall.now = hall.now.after(RECORD_INTERVAL);
    hall.refused(&alice, "memory_publish", json!({"memory": "mem_aaaaaaaaaaaaaaaaaaaaaaaaaa"}), "not_found");
    assert_eq!(hall.recorded(), Some(hall.now));
    // So a host that idles for months never takes time for a jump, across restarts too.
    for _ in 0..6 {
        hall.restart();
        hall.advance(Duration::days(20));
        assert_eq!(hall.recorded(), Some(hall.now));
    }
    hall.ok(&alice, "memory_create", json!({"text": "x"}));
}

#[test]
fn a_host_wakes_for_the_next_deadline_and_each_minute() {
    rule!(holds, "L4.3");
    let mut hall = Hall::new();
    let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
    let thread = hall.thread(&alice, &[&bob]);
    let minute = |hall: &Hall| hall.now.after(RECORD_INTERVAL);
    assert_eq!(hall.wake_at(), minute(&hall));
    let late = hall.taken(&alice, &thread, &bob, json!({"deliver_within": "5m"}));
    assert_eq!(hall.wake_at(), minute(&hall));
    let soon = hall.taken(&alice, &thread, &bob, json!({"deliver_within": "30s"}));
    assert_eq!(hall.wake_at(), START.after(Duration::seconds(30)));
    hall.now = START.after(Duration::seconds(10));
    assert_eq!(hall.wake_at(), START.after(Duration::seconds(30)));
    // Past due it wants to be woken at once, unless it does not seal.
    hall.now = START.after(Duration::seconds(31));
    assert_eq!(hall.wake_at(), hall.now);
    hall.now = START.after(YEARS);
    assert_eq!(hall.wake_at(), minute(&hall));
    hall.now = START.after(Duration::seconds(31));
    hall.wake();
    assert_eq!((hall.state(&alice, &soon), hall.state(&alice, &late)), ("timed_out".into(), "taken".into()));
    assert_eq!(hall.wake_at(), minute(&hall));
    // Waking when it asks to is enough for every deadline, to the millisecond.
    while hall.state(&alice, &late) == "taken" {
        let at = hall.wake_at();
        assert!(at > hall.now && at <= minute(&hall));
        hall.now = at;
        hall.wake();
    }
    assert_eq!(hall.now, START.after(Duration::minutes(5)));
    assert_eq!(hall.wake_at(), minute(&hall));
}

#[test]
fn deadlines_that_came_while_the_host_was_down_are_sealed_in_their_order_before_anything_else() {
    rule!(holds, "L4.3", "T4.10");
    for woken in [true, false] {
        let mut hall = Hall::new();
        let (alice, bob) = (hall.agent("alice"), hall.agent("bob"));
        let threads = [hall.thread(&alice, &[&bob]), hall.thread(&bob, &[&alice])];
        let mut expected = Vec::new();
        for (thread, creator, to, days) in [
            (0, &alice, &bob, 3),
            (1, &bob, &alice, 2),
            (0, &alice, &bob, 1),
            (1, &bob, &alice, 4),
            (0, &alice, &bob, 2),
        ] {
            hall.taken(creator, &threads[thread], to, json!({"deliver_within": format!("{days}d")}));
            let due = shown(START.after(Duration::days(days)));
            expected.push((due, threads[thread].clone()));
        }
        // What comes at one time in two logs comes in the order of the logs.
        expected.sort_by_key(|(due, thread)| (due.clone(), threads.iter().position(|id| id == thread)));
        let before = history(&mut hall).len();
        hall.now = START.after(Duration::days(20));
        hall.restart();
        if woken {
            hall.wake();
            assert_eq!(history(&mut hall).len(), before + 5);
        }
        hall.ok(&alice, "memory_create", json!({"text": "x"}));
        let facts = history(&mut hall).split_off(before);
        let expiries: Vec<_> = facts[..5].iter().map(|(object, cause, at)| (cause.as_str(), at, object)).collect();
        let wanted: Vec<_> = expected.iter().map(|(due, thread)| ("expiry", due, thread)).collect();
        assert_eq!(expiries, wanted);
        assert_eq!((facts.len(), facts[5].1.as_str()), (6, "action"));
        assert_eq!((hall.turn(&alice), hall.turn(&bob)), (vec![], vec![]));
        hall.verify();
    }
}

#[test]
fn an_action_that_comes_with_its_deadline_comes_after_it() {
    rule!(refused, "L4.3", "T4.10");
    let mut scene = scene();
    let bob = scene.bob.clone();
    scene.hall.now = START.after(Duration::minutes(60));
    let deliver = json!({"assignment": scene.taken, "output": {"text": "in time?"}});
    let answer = scene.hall.call(&bob, "assignment_deliver", deliver);
    assert_eq!(answer["error"]["code"], "expired");
    // The expiry stays, though the action that met it was refused.
    assert_eq!(scene.states(), ["timed_out", "undecided"]);
    let rows = scene.hall.snapshot();
    assert!(
        kwoon_ledger::index::next_due(&rows, &scene.hall.key("host").public(), &Default::default()).unwrap().is_none()
    );
    assert!(scene.hall.trace().keys().all(|(table, _)| *table != Table::Outcomes));
}
