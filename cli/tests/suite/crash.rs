//! What there is after the daemon ended and began again: all of it.

use serde_json::json;

use crate::daemon::Daemon;

#[test]
fn an_agent_that_forgot_everything_goes_on_from_turn_and_working_set() {
    let daemon = Daemon::fresh();
    let ((_, alice), (bob_id, bob)) = (daemon.agent("alice"), daemon.agent("bob"));
    let made = daemon.ok(&alice, "thread_create", json!({"subject": "plan", "admission": {}}));
    daemon.ok(&bob, "thread_join", json!({"ticket": made["secret"]["ticket"]}));
    let thread = made["result"]["thread"].clone();
    daemon.ok(&alice, "entry_post", json!({"thread": thread, "text": "what now?"}));
    let assign = json!({"to": bob_id, "criteria": "good"});
    let offer = json!({"thread": thread, "text": "do it", "ask": [], "assign": assign});
    let work = daemon.ok(&alice, "entry_post", offer)["result"]["assignment"].clone();
    daemon.ok(&bob, "assignment_take", json!({"assignment": work}));
    let (home, _directory) = daemon.kill();

    // A new session knows its token and nothing else.
    let daemon = Daemon::at(&home);
    let bob = daemon.token("bob");
    let mut steps = 0;
    loop {
        let turn = daemon.ok(&bob, "turn", json!({}));
        let Some(owed) = turn["result"]["obligations"].as_array().unwrap().first() else { break };
        let set = daemon.ok(&bob, "working_set", json!({"object": owed["object"]}));
        let actions = set["result"]["actions"].as_array().unwrap();
        match owed["duty"].as_str().unwrap() {
            "respond" => {
                let key = set["result"]["owed"][0]["text_content"].as_str().unwrap();
                assert_eq!(set["content"][key]["text"], "what now?");
                assert!(actions.contains(&json!("entry_post")));
                let reply = json!({"thread": owed["object"], "reply_to": owed["entry"], "text": "this"});
                daemon.ok(&bob, "entry_post", reply);
            }
            "deliver" => {
                assert!(actions.contains(&json!("assignment_deliver")));
                let output = json!({"text": "done"});
                daemon.ok(&bob, "assignment_deliver", json!({"assignment": owed["assignment"], "output": output}));
            }
            other => panic!("bob owes no {other}"),
        }
        steps += 1;
    }
    assert_eq!(steps, 2);
    let duties = |token: &str| {
        let turn = daemon.ok(token, "turn", json!({}));
        let rows = turn["result"]["obligations"].as_array().unwrap().clone();
        rows.iter().map(|row| row["duty"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(duties(&daemon.token("alice")), ["respond", "judge"]);
    daemon.ok(&daemon.token("alice"), "assignment_accept", json!({"assignment": work}));
    assert_eq!(duties(&daemon.token("alice")), ["respond"]);
}

#[test]
fn everything_that_follows_from_the_logs_can_be_made_anew_from_them() {
    let daemon = Daemon::fresh();
    let ((_, alice), (_, bob)) = (daemon.agent("alice"), daemon.agent("bob"));
    let made = daemon.ok(&alice, "thread_create", json!({"admission": {}}));
    daemon.ok(&bob, "thread_join", json!({"ticket": made["secret"]["ticket"]}));
    daemon.ok(&alice, "entry_post", json!({"thread": made["result"]["thread"], "text": "your turn"}));
    let owner = daemon.token("owner");
    let state = |daemon: &Daemon| {
        let turn = daemon.ok(&bob, "turn", json!({}))["result"].clone();
        let digests = daemon.ok(&owner, "object_digest", json!({}))["result"].clone();
        let receipt = daemon.ok(&alice, "receipt_get", json!({"id": made["receipt"]["id"]}))["receipt"].clone();
        (turn, digests, receipt)
    };
    let before = state(&daemon);
    let (_, home, _directory) = daemon.stop();
    let daemon = Daemon::serving(&home, &["--rebuild"], &[]);
    assert_eq!(state(&daemon), before);
}
