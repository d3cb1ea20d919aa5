//! The history that the golden logs were written from: a host with fixed keys, on a clock of its own.

use kwoon_keys::KeyPair;
use kwoon_keys::SealedBoxKey;
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::identity::{Change, Instance};
use kwoon_ledger::limits::Limits;
use kwoon_ledger::sequencer::Candidate;
use kwoon_ledger::time::Duration;
use kwoon_tests::forge::{record, sign};
use kwoon_tests::{Agent, Hall, owner, text};
use serde_json::json;

/// Everything that rules version 1 knows, at least once.
pub fn tell() -> Hall {
    let mut hall = Hall::seeded([0x60; 32], Limits::DEFAULT);
    let (alice, bob, carol) = (agent(&mut hall, "alice"), agent(&mut hall, "bob"), hall.agent("carol"));
    identities(&mut hall, &bob);
    let memory = memories(&mut hall, &bob);
    let thread = conversation(&mut hall, &alice, &bob, &carol, &memory);
    work(&mut hall, &alice, &bob, &thread, &memory);
    members(&mut hall, &alice, &bob, &carol, &thread);
    endings(&mut hall, &alice, &bob);
    hall
}

fn agent(hall: &mut Hall, name: &str) -> Agent {
    let policy = json!([{"policy": "be kind", "version": 3}]);
    let arguments = json!({"name": name, "display_name": name, "mission": "to be there", "policy_refs": policy});
    let made = hall.ok(&owner(), "agent_create", arguments);
    hall.known(&made["result"]["agent"])
}

/// Changes of identities: of the profile, of the owner, of the status, of instances.
fn identities(hall: &mut Hall, bob: &Agent) {
    let dora = hall.agent("dora");
    hall.ok(&owner(), "agent_update", json!({"agent": dora.id, "expected_version": 1, "mission": "to end"}));
    hall.ok(&owner(), "agent_deactivate", json!({"agent": dora.id, "reason": "for now"}));
    hall.ok(&owner(), "agent_reactivate", json!({"agent": dora.id}));
    hall.ok(&owner(), "agent_terminate", json!({"agent": dora.id, "reason": "for good"}));
    let after = json!({"name": "emil", "predecessor": dora.id});
    let emil = hall.ok(&owner(), "agent_create", after)["result"].clone();
    let emil = hall.known(&emil["agent"]);
    let mut other = Hall::seeded([0x61; 32], Limits::DEFAULT);
    let id = hall.ok(&owner(), "agent_get", json!({"agent": emil.id}))["result"]["full_id"].clone();
    let consent = other.ok(&owner(), "agent_consent", json!({"full_id": id, "version": 2}))["result"].clone();
    let given = json!({"owner": consent["owner"], "consent": consent["consent"]});
    hall.ok(&owner(), "agent_update", json!({"agent": emil.id, "expected_version": 1, "owner": given}));
    let instance = Instance {
        signing_key: KeyPair::from_seed(&[0x62; 32]).public(),
        encryption_key: SealedBoxKey::from_seed([0x63; 32]).public(),
        host: KeyPair::from_seed(&[0x64; 32]).public(),
    };
    for change in
        [Change::InstanceAdded(instance, vec![1, 2, 3].into()), Change::InstanceRevoked(instance.id(), Vec::new())]
    {
        let signed = sign(&record(hall, bob, change), &hall.key("owner")).into();
        let object = ObjectId::Identity(bob.full_id());
        hall.sequence(Candidate::of(object, signed)).expect("it is sealed");
    }
}

/// Memories of Bob's: one that ends, and one that is public.
fn memories(hall: &mut Hall, bob: &Agent) -> String {
    let create = json!({"text": "# Notes", "title": "Notes", "summary": "s", "tags": ["a", "b"]});
    let ended = text(&hall.ok(bob, "memory_create", create)["result"]["memory"]);
    hall.ok(bob, "memory_update", json!({"memory": ended, "text": "private still", "expected_version": 1}));
    hall.ok(bob, "memory_publish", json!({"memory": ended}));
    hall.ok(bob, "memory_update", json!({"memory": ended, "text": "{}", "media_type": "application/json"}));
    hall.ok(bob, "memory_unpublish", json!({"memory": ended}));
    hall.ok(bob, "memory_publish", json!({"memory": ended}));
    hall.ok(bob, "memory_withdraw", json!({"memory": ended}));
    let public = text(&hall.ok(bob, "memory_create", json!({"text": "for all"}))["result"]["memory"]);
    hall.ok(bob, "memory_publish", json!({"memory": public}));
    public
}

/// A thread with questions that end in each way but by leaving and closing.
fn conversation(hall: &mut Hall, alice: &Agent, bob: &Agent, carol: &Agent, memory: &str) -> String {
    let created = hall.ok(alice, "thread_create", json!({"subject": "Golden", "admission": {"role": "speaker"}}));
    let thread = text(&created["result"]["thread"]);
    hall.ok(bob, "thread_join", json!({"ticket": created["secret"]["ticket"]}));
    hall.advance(Duration::seconds(1));
    hall.post(alice, &thread, json!({"summary": "a question"}));
    hall.post(bob, &thread, json!({"reply_to": 1}));
    hall.ok(alice, "entry_handle", json!({"thread": thread, "entry": 2, "note": "thanks"}));
    hall.admit(alice, &thread, carol, "observer");
    hall.ok(alice, "member_role", json!({"thread": thread, "agent": carol.id, "role": "speaker"}));
    hall.ok(alice, "entry_post", json!({"thread": thread, "memory": memory, "ask": [bob.id, carol.id]}));
    hall.ok(carol, "entry_handle", json!({"thread": thread, "entry": 3}));
    hall.ok(alice, "entry_retract", json!({"thread": thread, "entry": 3}));
    // A memory that an entry brought forth begins its own log.
    let said = hall.ok(bob, "entry_post", json!({"thread": thread, "text": "of my own", "summary": "s", "ask": []}));
    let born = said["result"]["memory"].clone();
    hall.ok(bob, "memory_publish", json!({"memory": born}));
    hall.ok(bob, "memory_update", json!({"memory": born, "text": "of my own, and more"}));
    hall.ok(alice, "admission_void", json!({"thread": thread}));
    hall.ok(&owner(), "agent_update", json!({"agent": carol.id, "expected_version": 1, "mission": "to be asked"}));
    hall.post(carol, &thread, json!({"ask": [bob.id]}));
    thread
}

/// Assignments that end in each way.
fn work(hall: &mut Hall, alice: &Agent, bob: &Agent, thread: &str, memory: &str) {
    let terms = || json!({"deliver_within": "1h", "judge_within": "2h", "output_schema": {"type": "object"}});
    let output = json!({"text": "{}", "media_type": "application/json", "memories": [{"memory": memory}]});
    let accepted = hall.assign(alice, thread, bob, terms());
    hall.ok(bob, "assignment_take", json!({"assignment": accepted, "output": output}));
    hall.ok(alice, "assignment_accept", json!({"assignment": accepted}));
    let returned = hall.assign(alice, thread, bob, json!({}));
    hall.ok(bob, "assignment_take", json!({"assignment": returned}));
    hall.ok(bob, "assignment_deliver", json!({"assignment": returned, "output": {"text": "half of it"}}));
    hall.ok(alice, "assignment_return", json!({"assignment": returned, "reason": "the other half"}));
    let abandoned = hall.taken(alice, thread, bob, json!({"redoes": returned}));
    hall.ok(bob, "assignment_abandon", json!({"assignment": abandoned}));
    let offered = hall.assign(alice, thread, bob, json!({}));
    hall.ok(alice, "assignment_void", json!({"assignment": offered}));
    let taken = hall.taken(alice, thread, bob, json!({}));
    hall.ok(alice, "assignment_void", json!({"assignment": taken}));
    // Taking ends the response that the entry asked for.
    let asked = json!({"thread": thread, "text": "please", "ask": [bob.id],
        "assign": {"to": bob.id, "criteria": "well", "deliver_within": "1h"}});
    let late = text(&hall.ok(alice, "entry_post", asked)["result"]["assignment"]);
    hall.ok(bob, "assignment_take", json!({"assignment": late}));
    hall.delivered(alice, thread, bob, json!({"judge_within": "1h"}));
    hall.advance(Duration::minutes(90));
}

/// Members that lose their voice, leave, are removed and come back.
fn members(hall: &mut Hall, alice: &Agent, bob: &Agent, carol: &Agent, thread: &str) {
    hall.post(alice, thread, json!({"ask": [carol.id]}));
    hall.ok(alice, "member_role", json!({"thread": thread, "agent": carol.id, "role": "observer"}));
    hall.ok(alice, "member_role", json!({"thread": thread, "agent": carol.id, "role": "governor"}));
    hall.post(bob, thread, json!({"ask": [carol.id, alice.id]}));
    // Carol leaves with a response, an offer, work taken and a judgment.
    hall.assign(carol, thread, bob, json!({}));
    hall.taken(alice, thread, carol, json!({}));
    hall.delivered(carol, thread, bob, json!({"judge_within": "1h"}));
    hall.ok(carol, "thread_leave", json!({"thread": thread}));
    hall.admit(alice, thread, carol, "speaker");
    hall.ok(alice, "member_remove", json!({"thread": thread, "agent": carol.id}));
    hall.advance(Duration::minutes(90));
}

/// A thread that is closed, and one that ends with its governor's account.
fn endings(hall: &mut Hall, alice: &Agent, bob: &Agent) {
    let closed = hall.thread(alice, &[bob]);
    hall.post(bob, &closed, json!({"ask": [alice.id]}));
    hall.assign(alice, &closed, bob, json!({}));
    hall.taken(alice, &closed, bob, json!({}));
    hall.delivered(alice, &closed, bob, json!({"judge_within": "1h"}));
    hall.ok(alice, "thread_close", json!({"thread": closed}));
    let left = hall.thread(bob, &[alice]);
    hall.post(alice, &left, json!({"ask": [bob.id]}));
    hall.ok(&owner(), "agent_deactivate", json!({"agent": bob.id}));
    hall.ok(&owner(), "agent_reactivate", json!({"agent": bob.id}));
    hall.advance(Duration::minutes(90));
}
