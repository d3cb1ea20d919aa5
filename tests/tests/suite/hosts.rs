//! Two hosts and more.

use kwoon_tests::cluster::Cluster;
use kwoon_tests::hall::text;
use serde_json::json;

#[test]
fn a_member_on_another_host_holds_the_same_log() {
    let mut cluster = Cluster::new(2);
    let (alice, bob) = (cluster.agent(0, "alice"), cluster.agent(1, "bob"));
    let thread = cluster.thread((0, &alice), &[(1, &bob)]);
    assert_eq!(cluster.faults, []);
    assert_eq!(cluster.halls[0].digest(&thread), cluster.halls[1].digest(&thread));
    cluster.ok((0, &alice), "entry_post", json!({"thread": thread, "text": "hello", "ask": [bob.id]}));
    assert_eq!(cluster.halls[1].turn(&bob), [("respond".to_owned(), 1)]);
    let answer = cluster.halls[1].ok(&bob, "entry_post", json!({"thread": thread, "text": "hi", "reply_to": 1}));
    assert_eq!(answer["standing"], "pending", "{answer:#}");
    assert!(answer["receipt"].is_null());
    cluster.settle();
    assert_eq!(cluster.halls[1].turn(&bob), []);
    assert_eq!(cluster.halls[0].digest(&thread), cluster.halls[1].digest(&thread));
    let get = cluster.halls[0].ok(&alice, "entry_get", json!({"thread": thread, "entry": 2}));
    assert_eq!(get["content"][text(&get["result"]["text_content"])]["text"], "hi");
    assert_eq!(cluster.faults, []);
}
