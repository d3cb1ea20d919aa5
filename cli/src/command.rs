//! The command line: what is fixed, and a noun and a verb for every operation of the registry.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use kwoon_sync::operations::{self, Operation, Who};

use crate::field::{Field, Kind, fields, words};

const GLOBAL: &str = "Global options";
const CALL: &str = "Options of every such call";

/// The options that every command has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Globals {
    /// The home that was named.
    pub home: Option<PathBuf>,
    /// Whether the envelope is wanted as it is.
    pub json: bool,
    /// The one value of the envelope that is wanted.
    pub print: Option<String>,
    /// The agent that was named.
    pub agent: Option<String>,
}

impl Globals {
    /// Takes what a level of the command line says; what was said before stays unless it is said again.
    pub fn take(&mut self, matches: &ArgMatches) {
        if let Ok(Some(home)) = matches.try_get_one::<PathBuf>("home") {
            self.home = Some(home.clone());
        }
        if let Ok(Some(agent)) = matches.try_get_one::<String>("agent") {
            self.agent = Some(agent.clone());
        }
        if let Ok(Some(path)) = matches.try_get_one::<String>("print") {
            self.print = Some(path.clone());
        }
        self.json |= matches.try_get_one::<bool>("json").ok().flatten().copied().unwrap_or_default();
    }
}

fn globals(with_agent: bool) -> Vec<Arg> {
    let home = Arg::new("home")
        .long("home")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .help("The home of the daemon [env: KWOON_HOME; default: $XDG_DATA_HOME/kwoon or ~/.local/share/kwoon]");
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the answer as JSON, as it came");
    let print = Arg::new("print")
        .long("print")
        .value_name("PATH")
        .conflicts_with("json")
        .help("Print one value of the answer, such as result.thread or secret.ticket");
    let agent = Arg::new("agent")
        .long("agent")
        .value_name("NAME")
        .help("The agent to act as; not needed where there is only one [env: KWOON_AGENT]");
    let mut all = vec![home, json, print];
    all.extend(with_agent.then_some(agent));
    all.into_iter().map(|arg| arg.help_heading(GLOBAL)).collect()
}

/// The whole command.
pub fn kwoon() -> Command {
    let mut root = Command::new("kwoon")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Agents keep their work in signed facts: memories, threads, assignments and what they owe each other.")
        .after_help(
            "Values: @FILE stands for what is in a file, @- for what comes in, and @@x for a text that begins with @.\n\
             Exit codes: 0 done, 1 failed, 2 usage, 3 refused, 4 no daemon, 5 pending, 6 not authorised.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(globals(true))
        .subcommand(with_serving(Command::new("up"), "Start the daemon in the background; the first time, make a home"))
        .subcommand(Command::new("down").about("Stop the daemon").args(globals(true)))
        .subcommand(
            Command::new("status").about("Show whether the daemon runs, and how it is doing").args(globals(true)),
        )
        .subcommand(
            Command::new("demo").about("Show two hosts that work apart and agree afterwards, in temporary homes"),
        )
        .subcommand(
            with_serving(Command::new("serve"), "Run the daemon in the foreground").arg(
                Arg::new("rebuild")
                    .long("rebuild")
                    .action(ArgAction::SetTrue)
                    .help("First make everything that follows from the logs anew from them"),
            ),
        );
    for noun in nouns() {
        root = root.subcommand(noun_command(noun));
    }
    root
}

fn with_serving(command: Command, about: &'static str) -> Command {
    command
        .about(about)
        .args([
            Arg::new("listen")
                .long("listen")
                .value_name("IP:PORT")
                .value_parser(value_parser!(SocketAddr))
                .help("Where to serve HTTP; port 0 picks one and keeps it"),
            Arg::new("bind")
                .long("bind")
                .value_name("IP:PORT")
                .value_parser(value_parser!(SocketAddr))
                .help("Where to meet other hosts; port 0 picks one and keeps it"),
            Arg::new("relay")
                .long("relay")
                .value_name("off|default|URL")
                .value_parser(relay)
                .help("A relay to reach other hosts by"),
            Arg::new("discovery")
                .long("discovery")
                .value_name("off|mdns")
                .value_parser(PossibleValuesParser::new(["off", "mdns"]))
                .hide_possible_values(true)
                .help("How other hosts are found on the local network"),
        ])
        .args(globals(true))
}

fn relay(text: &str) -> Result<String, String> {
    let is_url = text.starts_with("http://") || text.starts_with("https://");
    if is_url || matches!(text, "off" | "default") {
        Ok(text.to_owned())
    } else {
        Err("must be off, default, or a URL that begins with http:// or https://".to_owned())
    }
}

/// The first words of all operations, each once.
pub fn nouns() -> Vec<&'static str> {
    let mut nouns = Vec::new();
    for operation in operations::ALL {
        let (noun, _) = words(operation.name);
        if !nouns.contains(&noun) {
            nouns.push(noun);
        }
    }
    nouns
}

fn of_noun(noun: &str) -> impl Iterator<Item = (&'static Operation, Option<&'static str>)> {
    operations::ALL.iter().filter_map(move |operation| {
        let (its, verb) = words(operation.name);
        (its == noun).then_some((operation, verb))
    })
}

fn noun_command(noun: &'static str) -> Command {
    let about = match of_noun(noun).collect::<Vec<_>>().as_slice() {
        [(operation, Some(verb))] => format!("{verb}: {}", first_sentence(operation.about)),
        all => all.iter().filter_map(|(_, verb)| *verb).collect::<Vec<_>>().join(", "),
    };
    let bare = of_noun(noun).find(|(_, verb)| verb.is_none());
    let mut command = match bare {
        Some((operation, _)) => operation_command(noun, noun.to_owned(), operation),
        None => {
            Command::new(noun).about(about).subcommand_required(true).arg_required_else_help(true).args(globals(true))
        }
    };
    for (operation, verb) in of_noun(noun) {
        let Some(verb) = verb else { continue };
        let mut verb_command = operation_command(verb, format!("{noun} {verb}"), operation);
        if verb.contains('_') {
            verb_command = verb_command.alias(verb.replace('_', "-"));
        }
        command = command.subcommand(verb_command);
    }
    command
}

/// The first sentence of a text.
fn first_sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.')
}

/// The usage line of an operation.
pub fn usage(words: &str, fields: &[Field]) -> String {
    let mut usage = format!("kwoon {words}");
    for field in fields.iter().filter(|field| field.positional) {
        let placeholder = field.placeholder();
        usage.push_str(&if field.required { format!(" <{placeholder}>") } else { format!(" [{placeholder}]") });
    }
    for field in fields.iter().filter(|field| field.required && !field.positional) {
        usage.push_str(&format!(" --{} <{}>", field.flag(), field.placeholder()));
    }
    usage + " [OPTIONS]"
}

fn operation_command(name: &'static str, words: String, operation: &'static Operation) -> Command {
    let fields = fields(operation);
    let mut command = Command::new(name)
        .about(first_sentence(operation.about))
        .long_about(operation.about)
        .override_usage(usage(&words, &fields));
    for field in &fields {
        command = command.arg(flag(field));
    }
    for field in fields.iter().filter(|field| field.positional) {
        let positional = Arg::new(position_id(&field.name)).value_name(field.placeholder()).help(format!(
            "{} (or --{})",
            field.about,
            field.flag()
        ));
        command = command.arg(positional);
    }
    let has = |name: &str| fields.iter().any(|field| field.name == name);
    command.args(controls(operation)).args(globals(!has("agent")))
}

/// The id of the argument that stands for a field given without its flag.
pub fn position_id(field: &str) -> String {
    format!("at {field}")
}

/// The id of the argument that stands for a field given by its flag.
pub fn flag_id(field: &str) -> String {
    format!("field {field}")
}

fn flag(field: &Field) -> Arg {
    let mut about = field.about.clone();
    if matches!(field.kind, Kind::Json | Kind::List) {
        about.push_str(" (JSON)");
    }
    if matches!(field.kind, Kind::Words | Kind::List) {
        about.push_str(" (a JSON list, or repeat the flag)");
    }
    let arg = Arg::new(flag_id(&field.name))
        .long(field.flag())
        .value_name(field.placeholder())
        .help(about)
        // What is shown under the arguments need not be shown again.
        .hide(field.positional);
    let arg = if field.name.contains('_') { arg.alias(field.name.clone()) } else { arg };
    match field.kind {
        // Beside the field, `--agent` names the agent to act as.
        _ if field.name == "agent" => arg.action(ArgAction::Append),
        Kind::Words | Kind::List => arg.action(ArgAction::Append),
        Kind::Boolean => arg.num_args(0..=1).default_missing_value("true"),
        Kind::Text => arg.allow_hyphen_values(true),
        Kind::Word | Kind::Integer | Kind::NumberOrWord | Kind::Json => arg,
    }
}

/// The arguments of calls that are no fields of their operations.
fn controls(operation: &Operation) -> Vec<Arg> {
    let key = Arg::new("idempotency_key")
        .long("idempotency-key")
        .alias("idempotency_key")
        .value_name("KEY")
        .help("Names this request: repeated with the same key, it is done once");
    let wait = Arg::new("wait_ms")
        .long("wait-ms")
        .alias("wait_ms")
        .value_name("MS")
        .value_parser(value_parser!(u64).range(0..=60_000));
    let after = Arg::new("after")
        .long("after")
        .value_name("ACTION")
        .action(ArgAction::Append)
        .help("An action that must be decided first (repeat the flag for several)");
    let reader = Arg::new("as")
        .long("as")
        .value_name("AGENT")
        .help("Read as this agent, with the owner's token")
        .conflicts_with_all(if fields(operation).iter().any(|field| field.name == "agent") {
            vec![]
        } else {
            vec!["agent"]
        });
    let controls = match (operation.is_action(), operation.name, operation.who) {
        (true, ..) => vec![key, wait.help("How long to wait for the seal, in milliseconds"), after],
        (false, "turn", _) => vec![wait.help("How long to wait for something to do, in milliseconds"), reader],
        (false, _, Who::Agent | Who::Either) => vec![reader],
        (false, _, Who::Owner) => Vec::new(),
    };
    controls.into_iter().map(|arg| arg.help_heading(CALL)).collect()
}

/// The error as it is shown, with the words that would have been known where one was not.
pub fn explain(error: &clap::Error) -> Option<String> {
    let known = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let usage = match error.get(ContextKind::Usage) {
                Some(ContextValue::StyledStr(usage)) => usage.to_string(),
                _ => String::new(),
            };
            let mut words = usage.split_whitespace().skip_while(|word| *word != "kwoon").skip(1);
            match words.next().filter(|noun| nouns().contains(noun)) {
                Some(noun) => {
                    let verbs: Vec<_> = of_noun(noun).filter_map(|(_, verb)| verb).collect();
                    format!("Verbs of {noun}: {}", verbs.join(", "))
                }
                None => format!("Commands: up, down, status, demo, serve, help\nNouns: {}", nouns().join(", ")),
            }
        }
        _ => return None,
    };
    Some(format!("{}\n{known}\n", error.render().to_string().trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_command_is_consistent() {
        kwoon().debug_assert();
    }

    #[test]
    fn every_operation_has_its_words_and_every_required_field_is_reachable() {
        for operation in operations::ALL {
            let fields = fields(operation);
            let (noun, verb) = words(operation.name);
            let with = |underscored: bool| {
                let mut line = vec!["kwoon".to_owned(), noun.to_owned()];
                line.extend(verb.map(ToOwned::to_owned));
                for field in fields.iter().filter(|field| field.required) {
                    line.push(format!("--{}", if underscored { field.name.clone() } else { field.flag() }));
                    line.push("1".to_owned());
                }
                line
            };
            for line in [with(false), with(true)] {
                let matches = kwoon().try_get_matches_from(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
                let (_, mut leaf) = matches.subcommand().unwrap();
                if verb.is_some() {
                    leaf = leaf.subcommand().unwrap().1;
                }
                for field in fields.iter().filter(|field| field.required) {
                    assert!(leaf.contains_id(&flag_id(&field.name)), "{line:?} {}", field.name);
                }
            }
        }
    }

    #[test]
    fn every_optional_field_has_a_flag_too() {
        for operation in operations::ALL {
            for field in fields(operation) {
                let (noun, verb) = words(operation.name);
                let flag = format!("--{}", field.flag());
                let line: Vec<_> = ["kwoon", noun].into_iter().chain(verb).chain([flag.as_str(), "1"]).collect();
                assert!(kwoon().try_get_matches_from(&line).is_ok(), "{line:?}");
            }
        }
    }

    #[test]
    fn an_unknown_word_lists_the_known_ones() {
        let explained = |line: &[&str]| explain(&kwoon().try_get_matches_from(line).unwrap_err()).unwrap();
        let text = explained(&["kwoon", "memmory", "get"]);
        assert!(text.contains("unrecognized subcommand 'memmory'"), "{text}");
        assert!(text.contains("Nouns: turn, opportunities, working, receipt"), "{text}");
        let text = explained(&["kwoon", "--home", "/x", "thread", "frobnicate"]);
        assert!(text.contains("Verbs of thread: create, join, leave, close, get, list, entries"), "{text}");
    }

    #[test]
    fn global_options_stand_anywhere() {
        for line in [
            ["kwoon", "--home", "/h", "--agent", "ann", "--json", "memory", "list"],
            ["kwoon", "memory", "--home", "/h", "--agent", "ann", "--json", "list"],
            ["kwoon", "memory", "list", "--home", "/h", "--agent", "ann", "--json"],
        ] {
            let matches = kwoon().try_get_matches_from(line).unwrap();
            let mut found = Globals::default();
            let mut level = Some(&matches);
            while let Some(matches) = level {
                found.take(matches);
                level = matches.subcommand().map(|(_, matches)| matches);
            }
            let expected = Globals { home: Some("/h".into()), json: true, print: None, agent: Some("ann".to_owned()) };
            assert_eq!(found, expected, "{line:?}");
        }
    }

    #[test]
    fn help_is_there_at_each_level() {
        for line in [vec!["kwoon", "help"], vec!["kwoon", "help", "entry", "post"], vec!["kwoon", "entry", "-h"]] {
            let error = kwoon().try_get_matches_from(&line).unwrap_err();
            assert_eq!((error.kind(), error.exit_code()), (ErrorKind::DisplayHelp, 0), "{line:?}");
        }
        let error = kwoon().try_get_matches_from(["kwoon", "entry"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.render().to_string().contains("retract"));
    }

    #[test]
    fn serving_takes_its_choices_and_no_others() {
        let good = ["kwoon", "serve", "--listen", "127.0.0.1:0", "--relay", "https://r.example", "--discovery", "off"];
        assert!(kwoon().try_get_matches_from(good).is_ok());
        for bad in [["--listen", "localhost"], ["--relay", "maybe"], ["--discovery", "on"]] {
            assert!(kwoon().try_get_matches_from(["kwoon", "up"].into_iter().chain(bad)).is_err(), "{bad:?}");
        }
    }
}
