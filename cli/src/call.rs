//! Calls of operations: whose token, which arguments, and what is printed.

use std::io;

use clap::ArgMatches;
use kwoon_sync::operations::{Operation, Who};
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::client::Client;
use crate::command::Globals;
use crate::exit::{Exit, Failure};
use crate::field::fields;
use crate::home::{Home, variable};
use crate::render::{self, Context};
use crate::terminal::{self, Style};
use crate::value::{self, Given, Sources};
use crate::visible;

/// Whom a call speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Speaker {
    Owner,
    Agent(Option<String>),
}

/// Whom a call of this operation speaks for. `named` is the agent of the command line, `usual` that of the environment.
fn speaker(who: Who, reads_as: bool, named: Option<String>, usual: Option<String>) -> Speaker {
    match who {
        Who::Owner => Speaker::Owner,
        _ if reads_as => Speaker::Owner,
        Who::Agent => Speaker::Agent(named.or(usual)),
        Who::Either => named.or(usual).map_or(Speaker::Owner, |name| Speaker::Agent(Some(name))),
    }
}

fn token(home: &Home, speaker: &Speaker) -> Result<Zeroizing<String>, Failure> {
    match speaker {
        Speaker::Owner => home.owner_token(),
        Speaker::Agent(name) => home.agent_token(name.as_deref()),
    }
}

/// The beginning of a command that is to do the same as this one did about home and agent.
pub fn program(home: &Home, agent: Option<&str>) -> String {
    let mut program = "kwoon".to_owned();
    if let Some(path) = home.named() {
        program.push_str(&format!(" --home {}", render::quoted(&path.display().to_string())));
    }
    if let Some(agent) = agent {
        program.push_str(&format!(" --agent {}", render::quoted(agent)));
    }
    program
}

/// Runs an operation as the command line says.
///
/// # Errors
/// If it cannot be called. A refusal is no error here: it is printed.
pub fn run(operation: &'static Operation, matches: &ArgMatches, globals: &Globals) -> Result<Exit, Failure> {
    let home = Home::find(globals.home.as_deref())?;
    let Given { arguments, agent } = value::read(operation, matches, &mut Sources::new(&mut io::stdin().lock()))?;
    let named = agent.or_else(|| globals.agent.clone());
    let speaker = speaker(operation.who, arguments.contains_key("as"), named.clone(), variable("KWOON_AGENT"));
    let client = Client::new(&home)?;
    // Without a daemon there may be no token either; what is missing first is the daemon.
    client.daemon()?;
    let token = token(&home, &speaker)?;
    if operation.name == "object_log" {
        return walk_log(&client, &token, arguments, globals.json);
    }
    let answer = client.call(operation.name, &token, &Value::Object(arguments))?;
    let envelope = answer.envelope()?;
    if globals.json {
        print_document(&answer.body);
    } else if let (true, Some(path)) = (envelope["ok"] == true, &globals.print) {
        print_one(&envelope, path)?;
    } else if envelope["ok"] == true {
        let program = program(&home, named.as_deref());
        let takes_offset = fields(operation).iter().any(|field| field.name == "offset");
        let context = Context { style: Style::stdout(), program: &program, takes_offset };
        terminal::print(&render::envelope(context, &envelope));
    } else {
        terminal::complain(&render::refusal(Style::stderr(), &envelope));
    }
    Ok(Exit::of(&envelope))
}

/// Prints one value of an envelope: a text as it is, anything else as JSON. On a terminal a text is made harmless.
///
/// # Errors
/// If the envelope has no such value.
pub fn print_one(envelope: &Value, path: &str) -> Result<(), Failure> {
    let found = path.split('.').try_fold(envelope, |value, step| match value {
        Value::Array(items) => step.parse::<usize>().ok().and_then(|at| items.get(at)),
        value => value.get(step),
    });
    let Some(value) = found else { return Err(Failure::Failed(format!("the answer has no {path}"))) };
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let text = if terminal::is_terminal() { visible::text(&text) } else { text };
    terminal::print(&format!("{text}\n"));
    Ok(())
}

/// Prints a JSON document as it came, and ends the line.
fn print_document(body: &[u8]) {
    let mut document = body.to_vec();
    if document.last() != Some(&b'\n') {
        document.push(b'\n');
    }
    terminal::print_bytes(&document);
}

/// Calls an operation for its envelope, as the owner.
///
/// # Errors
/// If it cannot be called.
pub fn as_owner(client: &Client, operation: &str, arguments: &Value) -> Result<Value, Failure> {
    let token = client.home().owner_token()?;
    client.call(operation, &token, arguments)?.envelope()
}

/// Prints every fact of a log, one a line, page after page.
fn walk_log(client: &Client, token: &str, mut arguments: Map<String, Value>, as_json: bool) -> Result<Exit, Failure> {
    arguments.entry("limit").or_insert(json!(50));
    loop {
        let answer = client.call("object_log", token, &Value::Object(arguments.clone()))?;
        let mut envelope = answer.envelope()?;
        if envelope["ok"] != true {
            if as_json {
                print_document(&answer.body);
            } else {
                terminal::complain(&render::refusal(Style::stderr(), &envelope));
            }
            return Ok(Exit::of(&envelope));
        }
        let mut page = String::new();
        for fact in envelope["result"]["facts"].as_array().into_iter().flatten() {
            let line = if as_json { fact.to_string() } else { fact_line(fact) };
            page.push_str(&line);
            page.push('\n');
        }
        terminal::print(&page);
        let cursor = envelope["cursor"].take();
        // A cursor that leads nowhere new would be walked for ever.
        if cursor.is_null() || arguments.get("cursor") == Some(&cursor) {
            return Ok(Exit::Done);
        }
        arguments.insert("cursor".to_owned(), cursor);
    }
}

fn fact_line(fact: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => visible::line(text),
        other => other.to_string(),
    };
    let (command, event) = (&fact["command"], &fact["event"]);
    let mut line = format!("{}  {}  {}", text(&fact["index"]), text(&event["occurred_at"]), text(&fact["cause"]));
    if command.is_object() {
        let by = if command["authorization_context"]["owner"].is_null() {
            text(&command["sender"])
        } else {
            "the owner".to_owned()
        };
        line.push_str(&format!(
            "  {} {} by {by}",
            text(&command["payload"]["operation"]),
            text(&command["message_id"])
        ));
    }
    let effects = event["payload"]["effects"].as_array().into_iter().flatten();
    let effects: Vec<_> = effects.map(|effect| text(&effect["kind"])).collect();
    if !effects.is_empty() {
        line.push_str(&format!("  [{}]", effects.join(", ")));
    }
    if fact["sealed"] == true {
        line.push_str("  sealed");
    }
    for name in ["record", "seal"] {
        if let Some(hex) = fact[name].as_str() {
            line.push_str(&format!("  {name} {}", visible::line(hex)));
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_decides_whose_token_is_used() {
        let ann = || Some("ann".to_owned());
        let agent = |name: Option<String>| Speaker::Agent(name);
        assert_eq!(speaker(Who::Owner, false, ann(), ann()), Speaker::Owner);
        assert_eq!(speaker(Who::Agent, false, None, None), agent(None));
        assert_eq!(speaker(Who::Agent, false, None, ann()), agent(ann()));
        assert_eq!(speaker(Who::Agent, false, Some("bob".to_owned()), ann()), agent(Some("bob".to_owned())));
        assert_eq!(speaker(Who::Agent, true, None, ann()), Speaker::Owner);
        assert_eq!(speaker(Who::Either, false, None, None), Speaker::Owner);
        assert_eq!(speaker(Who::Either, false, None, ann()), agent(ann()));
        assert_eq!(speaker(Who::Either, true, None, None), Speaker::Owner);
    }

    #[test]
    fn a_fact_is_one_line() {
        let fact = json!({
            "index": 3, "epoch": 0, "cause": "action",
            "command": {
                "message_id": "act_a", "sender": "agt_a", "authorization_context": {"instance": "ins_a"},
                "payload": {"operation": "entry_post", "object": "thr_a"}
            },
            "event": {
                "occurred_at": "2026-11-30T12:00:00.123Z",
                "payload": {"index": 3, "effects": [{"kind": "entry_posted"}, {"kind": "obligation_began"}]}
            },
            "head": "aa", "digest": "bb", "record": "c0ff", "sealed": true
        });
        assert_eq!(
            fact_line(&fact),
            "3  2026-11-30T12:00:00.123Z  action  entry_post act_a by agt_a  [entry_posted, obligation_began]  sealed  \
             record c0ff"
        );
        let event = json!({"occurred_at": "t", "payload": {"effects": []}});
        let fact = json!({"index": 4, "cause": "epoch\n", "event": event, "sealed": false});
        assert_eq!(fact_line(&fact), "4  t  epoch\\u{a}");
    }

    #[test]
    fn proposed_commands_name_the_home_only_if_this_one_did() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(&dir.path().join("my home"))).unwrap();
        let expected = format!("kwoon --home '{}' --agent ann", home.path().display());
        assert_eq!(program(&home, Some("ann")), expected);
    }
}
