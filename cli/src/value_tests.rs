use std::fs;

use kwoon_sync::operations;
use serde_json::json;

use super::*;

const THREAD: &str = "thr_aaaaaaaaaaaaaaaaaaaaaaaaaa";
const AGENT: &str = "agt_bbbbbbbbbbbbbbbbbbbbbbbbbb";

fn given(operation: &str, arguments: &[&str]) -> Result<Given, Failure> {
    given_with(operation, arguments, "")
}

fn given_with(operation: &str, arguments: &[&str], stdin: &str) -> Result<Given, Failure> {
    let operation = operations::find(operation).unwrap();
    let (noun, verb) = words(operation.name);
    let line = ["kwoon", noun].into_iter().chain(verb).chain(arguments.iter().copied());
    let matches = command::kwoon().try_get_matches_from(line).unwrap();
    let mut leaf = matches.subcommand().unwrap().1;
    if verb.is_some() {
        leaf = leaf.subcommand().unwrap().1;
    }
    read(operation, leaf, &mut Sources::new(&mut stdin.as_bytes()))
}

fn arguments(operation: &str, arguments: &[&str]) -> Value {
    Value::Object(given(operation, arguments).unwrap().arguments)
}

fn usage_error(operation: &str, arguments: &[&str]) -> String {
    match given(operation, arguments) {
        Err(Failure::Usage(message)) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_have_the_types_of_their_fields() {
    assert_eq!(
        arguments("entry_post", &["--thread", THREAD, "--text", "5", "--reply-to", "5"]),
        json!({"thread": THREAD, "text": "5", "reply_to": 5})
    );
    assert_eq!(
        arguments("entry_post", &["--thread", THREAD, "--reply_to", "act_x", "--version", "3"]),
        json!({"thread": THREAD, "version": 3, "reply_to": "act_x"})
    );
    assert_eq!(
        arguments("thread_create", &["--admission", r#"{"role":"observer"}"#]),
        json!({"admission": {"role": "observer"}})
    );
    assert!(usage_error("memory_list", &["--limit", "many"]).contains("--limit: 'many' is not a whole number"));
    assert!(usage_error("thread_create", &["--admission", "observer"]).contains("--admission takes JSON"));
}

#[test]
fn lists_are_json_or_repeated_flags() {
    let text = ["--text", "t"];
    let tags = |given: &[&str]| arguments("memory_create", &[&text, given].concat())["tags"].clone();
    assert_eq!(tags(&["--tags", r#"["a","b"]"#]), json!(["a", "b"]));
    assert_eq!(tags(&["--tags", "a", "--tags", "b, c"]), json!(["a", "b, c"]));
    assert_eq!(tags(&["--tags", "@@me"]), json!(["@me"]));
    assert_eq!(arguments("entry_post", &["--thread", THREAD, "--ask", "[]"])["ask"], json!([]));
    let policies = ["--name", "n", "--policy-refs", r#"{"policy":"p","version":1}"#];
    assert_eq!(arguments("agent_create", &policies)["policy_refs"], json!([{"policy": "p", "version": 1}]));
}

#[test]
fn values_come_from_files_and_from_the_input() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        format!("@{}", path.display())
    };
    let text = file("text", "# Title\n\nBody.\n");
    assert_eq!(arguments("memory_create", &["--text", &text]), json!({"text": "# Title\n\nBody.\n"}));
    let assign = file("assign", "{\"to\": \"agt_x\",\n\"criteria\": \"c\"}\n");
    assert_eq!(
        arguments("entry_post", &["--thread", THREAD, "--assign", &assign])["assign"],
        json!({"to": "agt_x", "criteria": "c"})
    );
    assert_eq!(arguments("thread_join", &[&file("ticket", "kwoonadm1\n")]), json!({"ticket": "kwoonadm1"}));
    let tags = file("tags", "[\"a\"]");
    assert_eq!(arguments("memory_create", &["--text", "t", "--tags", &tags, "--tags", "b"])["tags"], json!(["a", "b"]));
    let read = given_with("memory_create", &["--text", "@-"], "from the input\n").unwrap();
    assert_eq!(read.arguments["text"], "from the input\n");
    assert_eq!(arguments("memory_create", &["--text", "@@all"]), json!({"text": "@all"}));
}

#[test]
fn what_cannot_be_read_is_a_usage_error() {
    assert!(usage_error("memory_create", &["--text", "@/nowhere/at/all"]).contains("cannot read '/nowhere/at/all'"));
    assert!(usage_error("memory_create", &["--text", "@-", "--title", "@-"]).contains("one value only"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("binary");
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(usage_error("memory_create", &["--text", &format!("@{}", path.display())]).contains("not UTF-8"));
}

#[test]
fn short_arguments_need_no_flags() {
    assert_eq!(arguments("entry_get", &[THREAD, "5"]), json!({"thread": THREAD, "entry": 5}));
    assert_eq!(arguments("entry_get", &["--thread", THREAD, "5"]), json!({"thread": THREAD, "entry": 5}));
    assert_eq!(arguments("entry_get", &["--entry", "5", THREAD]), json!({"thread": THREAD, "entry": 5}));
    assert_eq!(arguments("thread_join", &["kwoonadm1"]), json!({"ticket": "kwoonadm1"}));
    let line = [THREAD, AGENT, "speaker"];
    assert_eq!(arguments("member_role", &line), json!({"thread": THREAD, "agent": AGENT, "role": "speaker"}));
    assert!(usage_error("thread_get", &["--thread", THREAD, "again"]).contains("no place for 'again'"));
}

#[test]
fn what_is_missing_is_named_with_the_usage() {
    let message = usage_error("entry_get", &[THREAD]);
    assert!(message.contains("--entry <ENTRY>") && !message.contains("--thread <"), "{message}");
    assert!(message.contains("Usage: kwoon entry get <THREAD> <ENTRY> [OPTIONS]"), "{message}");
    let message = usage_error("memory_create", &[]);
    assert!(message.contains("Usage: kwoon memory create --text <TEXT> [OPTIONS]"), "{message}");
}

#[test]
fn beside_a_field_of_that_name_agent_names_the_actor() {
    let read = given("member_remove", &["--thread", THREAD, "--agent", AGENT, "--agent", "ann"]).unwrap();
    assert_eq!(read.agent.as_deref(), Some("ann"));
    assert_eq!(Value::Object(read.arguments), json!({"thread": THREAD, "agent": AGENT}));
    let read = given("member_remove", &["--agent", "ann", THREAD, AGENT]).unwrap();
    assert_eq!((read.agent.as_deref(), read.arguments["agent"].as_str()), (Some("ann"), Some(AGENT)));
    // An owner acts as nobody, so there is only the field.
    let read = given("agent_deactivate", &["--agent", "ann"]).unwrap();
    assert_eq!((read.agent, &read.arguments["agent"]), (None, &json!("ann")));
    assert!(usage_error("member_remove", &[THREAD, "--agent", AGENT, "--agent", AGENT]).contains("more than once"));
    assert!(usage_error("member_remove", &[THREAD, AGENT, "--agent", "a", "--agent", "b"]).contains("more than one"));
}

#[test]
fn calls_take_what_every_call_takes() {
    let line = [THREAD, "--idempotency-key", "k1", "--wait-ms", "0", "--after", "act_a", "--after", "act_b"];
    assert_eq!(
        arguments("thread_leave", &line),
        json!({"thread": THREAD, "idempotency_key": "k1", "wait_ms": 0, "after": ["act_a", "act_b"]})
    );
    assert_eq!(arguments("turn", &["--wait-ms", "50", "--as", AGENT]), json!({"wait_ms": 50, "as": AGENT}));
    assert_eq!(arguments("thread_entries", &[THREAD, "--after", "7"]), json!({"thread": THREAD, "after": 7}));
}

#[test]
fn texts_may_begin_with_a_dash_but_are_never_flags() {
    assert_eq!(arguments("memory_create", &["--text", "- a list\n- of two"])["text"], "- a list\n- of two");
    assert_eq!(arguments("memory_create", &["--text", "--unknown"])["text"], "--unknown");
    for flag in ["--title", "--media_type", "--json", "--title=x"] {
        assert!(usage_error("memory_create", &["--text", flag]).contains("--text has no value"), "{flag}");
    }
}
