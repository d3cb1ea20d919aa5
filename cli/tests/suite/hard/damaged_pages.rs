//! A store of which some bytes went bad while the daemon was stopped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::daemon::{Daemon, Reply};

const PAGE: usize = 4096;

/// What can be asked of the home: by whom, which operation, of what.
type Question = (String, &'static str, Value);

/// A home with a little of everything, and questions with their right answers.
fn made(home: &Path) -> Vec<(Question, Value)> {
    let daemon = Daemon::at(home);
    let ((_, alice), (bob_id, bob)) = (daemon.agent("alice"), daemon.agent("bob"));
    let owner = daemon.token("owner");
    let made = daemon.ok(&alice, "thread_create", json!({"subject": "damage", "admission": {}}));
    daemon.ok(&bob, "thread_join", json!({"ticket": made["secret"]["ticket"]}));
    let thread = made["result"]["thread"].clone();
    let mut questions: Vec<Question> = Vec::new();
    for n in 0..12 {
        let long = format!("{n}").repeat(if n % 4 == 0 { 6000 } else { 700 });
        let posted = daemon.ok(&alice, "entry_post", json!({"thread": thread, "text": long}));
        questions.push((alice.clone(), "receipt_get", json!({"id": posted["receipt"]["id"]})));
        questions.push((bob.clone(), "entry_get", json!({"thread": thread, "entry": posted["result"]["entry"]})));
        let memory = daemon.ok(&bob, "memory_create", json!({"text": long, "tags": ["t"]}))["result"]["memory"].clone();
        daemon.ok(&bob, "memory_publish", json!({"memory": memory}));
        questions.push((alice.clone(), "memory_get", json!({"memory": memory})));
        questions.push((owner.clone(), "object_log", json!({"object": memory, "format": "cbor"})));
    }
    let assign = json!({"to": bob_id, "criteria": "c"});
    let offer = json!({"thread": thread, "text": "work", "ask": [], "assign": assign});
    let work = daemon.ok(&alice, "entry_post", offer)["result"]["assignment"].clone();
    daemon.ok(&bob, "assignment_take", json!({"assignment": work}));
    questions.push((alice.clone(), "assignment_get", json!({"assignment": work})));
    questions.push((owner.clone(), "object_log", json!({"object": thread, "limit": 50})));
    questions.push((owner.clone(), "object_digest", json!({"limit": 50})));
    for token in [&alice, &bob] {
        questions.push((token.clone(), "turn", json!({"limit": 50})));
        questions.push((token.clone(), "thread_get", json!({"thread": thread})));
        questions.push((token.clone(), "memory_list", json!({"limit": 50})));
        questions.push((token.clone(), "thread_list", json!({})));
        questions.push((token.clone(), "agent_get", json!({})));
    }
    let ask = |(token, operation, arguments): &Question| daemon.ok(token, operation, arguments.clone());
    let answered: Vec<_> = questions.iter().map(|question| (question.clone(), ask(question))).collect();
    daemon.stop();
    answered
}

/// What became of a daemon on a damaged store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// It did not start, and said why.
    Refused,
    /// It serves, and a verification finds the damage or fails.
    Found,
    /// It serves, and everything is right or says that it cannot be read.
    Harmless,
}

/// Starts on a damaged store and looks at everything.
fn look(home: &Path, answers: &[(Question, Value)], context: &str) -> End {
    let daemon = match Daemon::try_at(home) {
        Ok(daemon) => daemon,
        Err(said) => {
            assert!(said.starts_with("exit status: 1"), "{context}: {said}");
            assert!(said.contains("store.redb") || said.contains("damaged"), "{context}: {said}");
            return End::Refused;
        }
    };
    let ask = |(token, operation, arguments): &Question| daemon.call(token, operation, arguments);
    let replies: Vec<Reply> = answers.iter().map(|(question, _)| ask(question)).collect();
    let verified = daemon.call(&daemon.token("owner"), "ledger_verify", &json!({}));
    let end = match (verified.code(), &verified.body["result"]["sound"]) {
        ("ok", Value::Bool(true)) => End::Harmless,
        ("ok", Value::Bool(false)) | ("internal", _) => End::Found,
        _ => panic!("{context}: {:#}", verified.body),
    };
    if end == End::Harmless {
        for ((question, expected), reply) in answers.iter().zip(replies) {
            assert_no_other_answer(question, expected, reply, context);
        }
    }
    // Writing on such pages is not asked of it: it ends at once, as in a power cut.
    daemon.kill();
    end
}

/// An answer is the right one, or none. Lists and what is kept beside actions are no facts, and no verification looks at
/// them (docs/security.md, "What verification finds").
fn assert_no_other_answer((_, operation, arguments): &Question, expected: &Value, mut reply: Reply, context: &str) {
    if ["turn", "memory_list", "thread_list", "receipt_get"].contains(operation) {
        return;
    }
    let without_beside = |answer: &mut Value| {
        for fact in answer["result"]["facts"].as_array_mut().into_iter().flatten() {
            if let Some(command) = fact["command"].as_object_mut() {
                command.remove("received_at");
            }
        }
    };
    let mut expected = expected.clone();
    without_beside(&mut expected);
    without_beside(&mut reply.body);
    // A text that cannot be found is shown as missing.
    for (key, content) in reply.body["content"].as_object_mut().into_iter().flatten() {
        if content["missing"] == true {
            *content = expected["content"][key].clone();
        }
    }
    // What cannot be read is told as such; by a damaged index nothing is found; a damaged name sets its agent's keys aside,
    // and its token is then none.
    let none = ["internal", "not_found", "unauthenticated"].contains(&reply.code());
    assert!(none || reply.body == expected, "{context}: {operation} {arguments}: {:#}", reply.body);
}

/// A copy of a directory and all in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, &target).map(|_| ()).unwrap() }
    }
}

type Damage = (&'static str, fn(&mut [u8]));

/// What happens to pages: lost, never written, torn, written elsewhere.
const PAGES: [Damage; 4] = [
    ("zeros", |page| page.fill(0)),
    ("ones", |page| page.fill(0xff)),
    ("its start", |page| page[..64].iter_mut().for_each(|byte| *byte ^= 0x55)),
    ("shifted", |page| page.rotate_left(7)),
];

/// What happens to bits.
const BITS: [Damage; 3] = [
    ("a bit at 1000", |page| page[1000] ^= 1),
    ("a bit at 300", |page| page[300] ^= 0x10),
    ("a bit at 9", |page| page[9] ^= 2),
];

/// Damages every `step`th page in use, each in one of these ways, and looks; how often it ended how.
fn damage_each(damages: &[Damage], step: usize) -> BTreeMap<End, usize> {
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good");
    let answers = made(&good);
    let store = fs::read(good.join("store.redb")).unwrap();
    let pages = (0..store.len() / PAGE).map(|n| n * PAGE).filter(|at| store[*at..][..PAGE] != [0; PAGE]);
    let mut ends: BTreeMap<End, usize> = BTreeMap::new();
    for (n, at) in pages.step_by(step).enumerate() {
        let (name, damage) = damages[n % damages.len()];
        let home = directory.path().join(format!("home{n}"));
        copy(&good, &home);
        let mut bytes = store.clone();
        damage(&mut bytes[at..at + PAGE]);
        fs::write(home.join("store.redb"), &bytes).unwrap();
        *ends.entry(look(&home, &answers, &format!("page {}, {name}", at / PAGE))).or_default() += 1;
        fs::remove_dir_all(home).unwrap();
    }
    ends
}

#[test]
fn a_page_that_went_bad_is_told_or_does_no_harm() {
    let ends = damage_each(&PAGES, 3);
    assert!(ends.contains_key(&End::Refused) && ends.contains_key(&End::Harmless), "{ends:?}");
}

#[test]
fn a_bit_that_went_bad_is_told_or_does_no_harm() {
    let ends = damage_each(&BITS, 5);
    assert!(ends.contains_key(&End::Harmless), "{ends:?}");
}
