//! Values: from what stands on the command line to the JSON arguments of a call.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::ArgMatches;
use kwoon_sync::argument;
use kwoon_sync::operations::{Operation, Who};
use serde_json::{Map, Value};

use crate::command::{self, flag_id, position_id};
use crate::exit::Failure;
use crate::field::{Field, Kind, fields, words};

/// The most that is read from a file.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The arguments of a call, and the agent that `--agent` named beside a field of that name.
#[derive(Debug, PartialEq)]
pub struct Given {
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The agent to act as.
    pub agent: Option<String>,
}

/// Where values come from that are not on the command line.
pub struct Sources<'a> {
    stdin: Option<&'a mut dyn Read>,
}

/// A value as it was given.
enum Raw {
    /// On the command line.
    Here(String),
    /// In a file.
    File(String),
}

impl Raw {
    /// The value where the end of the line is no part of it.
    fn word(&self) -> &str {
        match self {
            Self::Here(text) => text,
            Self::File(text) => text.trim_end_matches(['\n', '\r']),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Here(text) | Self::File(text) => text,
        }
    }
}

impl<'a> Sources<'a> {
    /// With this input for `@-`.
    pub fn new(stdin: &'a mut dyn Read) -> Self {
        Self { stdin: Some(stdin) }
    }

    fn raw(&mut self, flag: &str, given: &str) -> Result<Raw, Failure> {
        let Some(name) = given.strip_prefix('@') else { return Ok(Raw::Here(given.to_owned())) };
        if name.starts_with('@') {
            return Ok(Raw::Here(name.to_owned()));
        }
        let mut bytes = Vec::new();
        let read = if name == "-" {
            let stdin =
                self.stdin.take().ok_or_else(|| Failure::Usage("@- can stand for one value only".to_owned()))?;
            stdin.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)
        } else {
            File::open(Path::new(name)).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        };
        read.map_err(|error| {
            Failure::Usage(format!("--{flag}: cannot read '{name}': {error} (for a text that begins with @, write @@)"))
        })?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(Failure::Usage(format!("--{flag}: '{name}' is larger than 256 MiB")));
        }
        let text = String::from_utf8(bytes);
        text.map(Raw::File).map_err(|_| Failure::Usage(format!("--{flag}: '{name}' is not UTF-8 text")))
    }

    fn one(&mut self, field: &Field, given: &str) -> Result<Value, Failure> {
        let flag = field.flag();
        let raw = self.raw(&flag, given)?;
        let wrong =
            |what: &str| Failure::Usage(format!("--{flag}: '{}' is not {what}", crate::visible::line(raw.word())));
        let digits = || !raw.word().is_empty() && raw.word().bytes().all(|byte| byte.is_ascii_digit());
        match field.kind {
            Kind::Text => Ok(Value::String(raw.text())),
            // The daemon may have been started elsewhere, so it takes no path that depends on where it is.
            Kind::Word if field.name == "path" => match std::path::absolute(raw.word()) {
                Ok(path) => path.to_str().map(Value::from).ok_or_else(|| wrong("UTF-8 where it is")),
                Err(_) => Err(wrong("a path")),
            },
            Kind::Word => Ok(Value::String(raw.word().to_owned())),
            Kind::Integer => {
                let number: Result<i64, _> = raw.word().parse();
                let number = number.map(Value::from).or_else(|_| raw.word().parse::<u64>().map(Value::from));
                number.map_err(|_| wrong("a whole number"))
            }
            Kind::Boolean => raw.word().parse::<bool>().map(Value::Bool).map_err(|_| wrong("true or false")),
            Kind::NumberOrWord => match raw.word().parse::<u64>() {
                Ok(number) if digits() => Ok(number.into()),
                _ => Ok(Value::String(raw.word().to_owned())),
            },
            Kind::Json | Kind::Words | Kind::List => json(&flag, &raw),
        }
    }

    /// A list from the values of a flag that may be repeated: each a list as JSON, or one item.
    fn list(&mut self, field: &Field, given: &[&str]) -> Result<Value, Failure> {
        let flag = field.flag();
        let mut items = Vec::new();
        for given in given {
            let is_item = field.kind == Kind::Words && !given.starts_with('[') && !is_file(given);
            if is_item {
                items.push(Value::String(self.raw(&flag, given)?.text()));
                continue;
            }
            let raw = self.raw(&flag, given)?;
            match json(&flag, &raw)? {
                Value::Array(all) => items.extend(all),
                item => items.push(item),
            }
        }
        Ok(Value::Array(items))
    }

    fn value(&mut self, field: &Field, given: &[&str]) -> Result<Option<Value>, Failure> {
        match (field.kind, given) {
            (_, []) => Ok(None),
            (Kind::Words | Kind::List, given) => self.list(field, given).map(Some),
            (_, [one]) => self.one(field, one).map(Some),
            (_, _) => Err(Failure::Usage(format!("--{} was given more than once", field.flag()))),
        }
    }
}

fn is_file(given: &str) -> bool {
    given.starts_with('@') && !given.starts_with("@@")
}

fn json(flag: &str, raw: &Raw) -> Result<Value, Failure> {
    // As strictly as the daemon reads, which never sees what was written twice here.
    argument::read_json(raw.word().as_bytes()).map_err(|error| {
        Failure::Usage(format!("--{flag} takes JSON, and this is none: {error}; give JSON, or @FILE with JSON in it"))
    })
}

/// Whether a text has the form of an agent's id, rather than of a name.
fn is_agent_id(text: &str) -> bool {
    let rest = text.strip_prefix("agt_").unwrap_or_default();
    rest.len() == 26 && rest.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'))
}

/// Reads the arguments of an operation.
///
/// # Errors
/// If a value is not what its field takes, or a required one is missing.
pub fn read(operation: &'static Operation, matches: &ArgMatches, sources: &mut Sources<'_>) -> Result<Given, Failure> {
    let fields = fields(operation);
    let many = |id: &str| -> Vec<&str> {
        let values = matches.try_get_many::<String>(id).ok().flatten();
        values.into_iter().flatten().map(String::as_str).collect()
    };
    // What stands without flags goes, in order, to the fields that were not given by theirs.
    let positional = || fields.iter().filter(|field| field.positional);
    let mut unflagged = positional().flat_map(|field| many(&position_id(&field.name)));
    let mut agent = None;
    let mut given = Vec::with_capacity(fields.len());
    for field in &fields {
        let mut values = many(&flag_id(&field.name));
        if field.name == "agent" && operation.who != Who::Owner {
            let (ids, names) = values.into_iter().partition(|value| is_agent_id(value) || value.starts_with('@'));
            values = ids;
            agent = one_name(names)?;
        }
        if values.is_empty() && field.positional {
            values.extend(unflagged.next());
        }
        given.push((field, values));
    }
    if let Some(left) = unflagged.next() {
        let left = crate::visible::line(left);
        return Err(Failure::Usage(format!(
            "there is no place for '{left}': what it stands for was given by its flag"
        )));
    }
    refuse_missing(operation, &given)?;
    refuse_swallowed(operation, &given)?;
    let mut arguments = Map::new();
    for (field, values) in given {
        if let Some(value) = sources.value(field, &values)? {
            arguments.insert(field.name.clone(), value);
        }
    }
    take_controls(matches, &mut arguments);
    Ok(Given { arguments, agent })
}

fn one_name(names: Vec<&str>) -> Result<Option<String>, Failure> {
    match names.as_slice() {
        [] => Ok(None),
        [name] => Ok(Some((*name).to_owned())),
        _ => Err(Failure::Usage("--agent names more than one agent to act as".to_owned())),
    }
}

fn take_controls(matches: &ArgMatches, arguments: &mut Map<String, Value>) {
    for name in ["idempotency_key", "as"] {
        if let Ok(Some(value)) = matches.try_get_one::<String>(name) {
            arguments.insert(name.to_owned(), Value::String(value.clone()));
        }
    }
    if let Ok(Some(wait)) = matches.try_get_one::<u64>("wait_ms") {
        arguments.insert("wait_ms".to_owned(), Value::from(*wait));
    }
    if let Ok(Some(after)) = matches.try_get_many::<String>("after") {
        arguments.insert("after".to_owned(), after.cloned().map(Value::String).collect());
    }
}

fn refuse_missing(operation: &Operation, given: &[(&Field, Vec<&str>)]) -> Result<(), Failure> {
    let missing: Vec<String> = given
        .iter()
        .filter(|(field, values)| field.required && values.is_empty())
        .map(|(field, _)| format!("\n  --{} <{}>", field.flag(), field.placeholder()))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (noun, verb) = words(operation.name);
    let words = verb.map_or_else(|| noun.to_owned(), |verb| format!("{noun} {verb}"));
    Err(Failure::Usage(format!(
        "the following required arguments were not provided:{}\n\nUsage: {}",
        missing.concat(),
        command::usage(&words, &fields(operation))
    )))
}

/// A text may begin with a dash, so a flag without its value would take the next flag for it. What is written down is
/// for good: that is refused.
fn refuse_swallowed(operation: &Operation, given: &[(&Field, Vec<&str>)]) -> Result<(), Failure> {
    let controls = ["idempotency-key", "wait-ms", "after", "as", "home", "json", "agent", "help"];
    let is_flag = |value: &str| {
        let name = value.strip_prefix("--").map(|rest| rest.split_once('=').map_or(rest, |(name, _)| name));
        name.is_some_and(|name| {
            let name = name.replace('_', "-");
            controls.contains(&&*name) || given.iter().any(|(field, _)| field.flag() == name)
        })
    };
    let texts = given.iter().filter(|(field, _)| field.kind == Kind::Text);
    for (field, values) in texts {
        if let Some(value) = values.iter().find(|value| is_flag(value)) {
            let (flag, value) = (field.flag(), crate::visible::line(value));
            return Err(Failure::Usage(format!(
                "--{flag} has no value: '{value}' is a flag of {}; if it is the text, give it by @FILE or @-",
                operation.name
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "value_tests.rs"]
mod tests;
