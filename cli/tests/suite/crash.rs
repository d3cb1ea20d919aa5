//! What there is after the daemon ended and began again: all of it.

use serde_json::json;

use crate::daemon::Daemon;

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
