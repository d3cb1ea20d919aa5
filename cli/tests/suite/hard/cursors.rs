//! Cursors that belong elsewhere, break off, or were made up: they show nothing that their list does not.

use serde_json::{Value, json};

use super::assert_wrong;
use super::watch::Watch;
use crate::daemon::Daemon;

const WRONG: &str = "the cursor of an earlier page of this very list";

/// A list: whose, which operation, of what, and where its rows stand.
type List = (String, &'static str, Value, &'static str);

/// A daemon with something on every list, each longer than a page of one; the lists of two agents and of the owner.
fn lists(daemon: &Daemon) -> Vec<List> {
    let ((alice_id, alice), (bob_id, bob)) = (daemon.agent("alice"), daemon.agent("bob"));
    let mut lists: Vec<List> = Vec::new();
    let mut last = json!(null);
    for _ in 0..2 {
        let made = daemon.ok(&alice, "thread_create", json!({"admission": {}}));
        daemon.ok(&bob, "thread_join", json!({"ticket": made["secret"]["ticket"]}));
        let thread = made["result"]["thread"].clone();
        for n in 0..3 {
            daemon.ok(&alice, "memory_create", json!({"text": format!("{n}")}));
            daemon.ok(&bob, "memory_create", json!({"text": format!("{n}")}));
            let assign = json!({"to": bob_id, "criteria": "c"});
            daemon.ok(&alice, "entry_post", json!({"thread": thread, "text": "x", "ask": [bob_id], "assign": assign}));
            daemon.ok(&bob, "entry_post", json!({"thread": thread, "text": "x", "ask": [alice_id]}));
        }
        for token in [&alice, &bob] {
            lists.push((token.clone(), "thread_entries", json!({"thread": thread}), "entries"));
            lists.push((token.clone(), "member_list", json!({"thread": thread}), "members"));
            lists.push((token.clone(), "assignment_list", json!({"thread": thread}), "assignments"));
        }
        lists.push((daemon.token("owner"), "object_log", json!({"object": thread}), "facts"));
        last = thread;
    }
    for token in [&alice, &bob] {
        lists.push((token.clone(), "turn", json!({}), "obligations"));
        lists.push((token.clone(), "memory_list", json!({}), "memories"));
        lists.push((token.clone(), "thread_list", json!({}), "threads"));
    }
    lists.push((bob, "opportunities", json!({}), "opportunities"));
    let owner = daemon.token("owner");
    lists.push((owner.clone(), "agent_list", json!({}), "agents"));
    lists.push((owner.clone(), "object_digest", json!({}), "objects"));
    // The same facts in another form are the same list.
    assert!(daemon.ok(&owner, "object_log", json!({"object": last, "format": "cbor"}))["result"]["facts"].is_array());
    lists
}

fn page(daemon: &Daemon, (token, operation, arguments, _): &List, cursor: Option<&str>) -> crate::daemon::Reply {
    let mut arguments = arguments.clone();
    arguments["limit"] = json!(1);
    if let Some(cursor) = cursor {
        arguments["cursor"] = json!(cursor);
    }
    daemon.call(token, operation, &arguments)
}

#[test]
fn a_cursor_is_good_for_its_own_list_alone() {
    let daemon = Daemon::fresh();
    let lists = lists(&daemon);
    let watch = Watch::over(&daemon);
    let cursors: Vec<String> = lists
        .iter()
        .map(|list| {
            let first = page(&daemon, list, None);
            first.body["cursor"].as_str().unwrap_or_else(|| panic!("{}: {:#}", list.1, first.body)).to_owned()
        })
        .collect();
    for (at, list) in lists.iter().enumerate() {
        for (from, cursor) in cursors.iter().enumerate() {
            let reply = page(&daemon, list, Some(cursor));
            // What a thread lists is the same for every member, so is where a page of it begins.
            let same = lists[from].1 == list.1 && lists[from].2 == list.2 && (list.2 != json!({}) || at == from);
            if same {
                assert_eq!(reply.status, 200, "{}", list.1);
            } else {
                assert_wrong(&reply, "cursor", WRONG, &format!("{} with a cursor of {}", list.1, lists[from].1));
            }
        }
    }
    watch.assert_unchanged("cursors of other lists");
}

#[test]
fn a_cursor_that_was_cut_or_made_up_shows_nothing_but_rows_of_its_list() {
    let daemon = Daemon::fresh();
    let lists = lists(&daemon);
    let watch = Watch::over(&daemon);
    let (mut wrong, mut accepted) = (0, 0);
    for list in &lists {
        let all = daemon.walk(&list.0, list.1, list.2.clone(), list.3);
        let cursor = page(&daemon, list, None).body["cursor"].as_str().unwrap().to_owned();
        let mut forged: Vec<String> = (0..cursor.len()).map(|length| cursor[..length].to_owned()).collect();
        for at in 0..cursor.len() {
            let mut letters: Vec<char> = cursor.chars().collect();
            letters[at] = if letters[at] == 'a' { '7' } else { 'a' };
            forged.push(letters.iter().collect());
        }
        forged.extend([format!("{cursor}a"), format!(" {cursor}"), format!("{cursor}\n"), cursor.to_uppercase()]);
        forged.extend(["\u{202e}", "\0", "9".repeat(100_000).as_str(), "%00", "null"].map(str::to_owned));
        for cursor in forged {
            let reply = page(&daemon, list, Some(&cursor));
            if reply.status == 200 {
                let rows = reply.body["result"][list.3].as_array().unwrap();
                // Keys of content count from the beginning of a page.
                let shown = |row: &Value| {
                    let mut row = row.clone();
                    row.as_object_mut().unwrap().retain(|name, _| !name.ends_with("_content"));
                    row
                };
                assert!(rows.iter().all(|row| all.iter().any(|known| shown(known) == shown(row))), "{}", list.1);
                accepted += 1;
            } else {
                assert_wrong(&reply, "cursor", WRONG, &format!("{} with {cursor:?}", list.1));
                wrong += 1;
            }
        }
    }
    assert!(wrong > 1000 && accepted > 0, "{wrong} refused, {accepted} of another place in the same list");
    watch.assert_unchanged("forged cursors");
}
