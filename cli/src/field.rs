//! The arguments of an operation, read from its schema.

use kwoon_sync::operations::Operation;
use serde_json::{Map, Value};

/// What a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text of any content.
    Text,
    /// A short text of fixed form: an id, a name, one of several words.
    Word,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// A number, or a text.
    NumberOrWord,
    /// A list of texts.
    Words,
    /// A list of anything else.
    List,
    /// Anything else, as JSON.
    Json,
}

/// A field of an operation's arguments.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it takes.
    pub kind: Kind,
    /// Whether it must be given.
    pub required: bool,
    /// Whether it can be given without its flag.
    pub positional: bool,
    /// What it means.
    pub about: String,
}

impl Field {
    /// The flag, without the dashes.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// What stands for a value in a usage line.
    pub fn placeholder(&self) -> String {
        self.name.to_uppercase()
    }
}

/// A schema without the alternative of null, which is the same as leaving a field out.
fn without_null(schema: &Value) -> &Value {
    let alternatives = schema["anyOf"].as_array();
    let mut others = alternatives.into_iter().flatten().filter(|alternative| alternative["type"] != "null");
    match (alternatives, others.next(), others.next()) {
        (Some(all), Some(only), None) if all.len() == 2 => only,
        _ => schema,
    }
}

fn type_of(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::String(name) => Some(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        _ => None,
    }
}

/// The words that a schema admits, if it admits no others.
fn choices(schema: &Value) -> Vec<&str> {
    let listed = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let constants = schema["oneOf"].as_array().into_iter().flatten().filter_map(|one| one["const"].as_str());
    listed.chain(constants).collect()
}

/// Names of texts that have a fixed form which no schema states.
const WORDS: [&str; 4] = ["ticket", "cursor", "full_id", "query"];

fn kind(name: &str, schema: &Value) -> Kind {
    if !choices(schema).is_empty() {
        return Kind::Word;
    }
    if let Some(alternatives) = schema["anyOf"].as_array() {
        let mut types: Vec<_> = alternatives.iter().filter_map(type_of).collect();
        types.sort_unstable();
        return if types == ["integer", "string"] { Kind::NumberOrWord } else { Kind::Json };
    }
    match type_of(schema) {
        Some("string") if schema["pattern"].is_string() || WORDS.contains(&name) => Kind::Word,
        Some("string") => Kind::Text,
        Some("integer") => Kind::Integer,
        Some("boolean") => Kind::Boolean,
        Some("array") if type_of(&schema["items"]) == Some("string") => Kind::Words,
        Some("array") => Kind::List,
        _ => Kind::Json,
    }
}

fn is_id(schema: &Value) -> bool {
    schema["pattern"].as_str().is_some_and(|pattern| pattern.ends_with("_[a-z2-7]{26}$"))
}

/// The fields of an operation, in the order of its schema.
pub fn fields(operation: &Operation) -> Vec<Field> {
    let schema = (operation.arguments)().to_value();
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let mut fields = Vec::with_capacity(properties.len());
    for (name, described) in properties {
        let schema = without_null(described);
        let kind = kind(name, schema);
        let is_required = required.contains(&name.as_str());
        let short = matches!(kind, Kind::Word | Kind::NumberOrWord);
        // Where nothing must be given, the id that narrows it down is the natural first word.
        let positional = if required.is_empty() { is_id(schema) } else { is_required && short };
        let about = described["description"].as_str().unwrap_or_default().replace('`', "");
        let mut about = about.trim_end_matches('.').to_owned();
        let choices = choices(schema);
        if !choices.is_empty() {
            about = format!("{about}: {}", choices.join(", "));
        }
        fields.push(Field { name: name.clone(), kind, required: is_required, positional, about });
    }
    fields
}

/// The words of the command of an operation: its name split at the first underscore.
pub fn words(name: &str) -> (&str, Option<&str>) {
    match name.split_once('_') {
        Some((noun, verb)) => (noun, Some(verb)),
        None => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use kwoon_sync::operations;

    use super::*;

    fn field(operation: &str, name: &str) -> Field {
        let operation = operations::find(operation).unwrap();
        fields(operation).into_iter().find(|field| field.name == name).unwrap()
    }

    #[test]
    fn kinds_follow_from_the_schema() {
        let cases = [
            ("memory_create", "text", Kind::Text),
            ("memory_create", "media_type", Kind::Word),
            ("memory_create", "tags", Kind::Words),
            ("memory_get", "max_bytes", Kind::Integer),
            ("thread_create", "admission", Kind::Json),
            ("thread_join", "ticket", Kind::Word),
            ("member_role", "role", Kind::Word),
            ("admission_issue", "role", Kind::Word),
            ("entry_post", "reply_to", Kind::NumberOrWord),
            ("entry_post", "ask", Kind::Words),
            ("entry_post", "assign", Kind::Json),
            ("entry_get", "entry", Kind::NumberOrWord),
            ("assignment_deliver", "output", Kind::Json),
            ("agent_create", "policy_refs", Kind::List),
            ("object_log", "format", Kind::Word),
        ];
        for (operation, name, kind) in cases {
            assert_eq!(field(operation, name).kind, kind, "{operation} {name}");
        }
    }

    #[test]
    fn what_must_be_given_and_is_short_needs_no_flag() {
        let positional = |name: &str| -> Vec<String> {
            let fields = fields(operations::find(name).unwrap()).into_iter();
            fields.filter(|field| field.positional).map(|field| field.name).collect()
        };
        assert_eq!(positional("entry_get"), ["thread", "entry"]);
        assert_eq!(positional("entry_post"), ["thread"]);
        assert_eq!(positional("thread_join"), ["ticket"]);
        assert_eq!(positional("member_role"), ["thread", "agent", "role"]);
        assert_eq!(positional("agent_create"), ["name"]);
        assert_eq!(positional("receipt_get"), ["id"]);
        assert_eq!(positional("object_digest"), ["object"]);
        assert!(positional("memory_create").is_empty());
        assert!(positional("turn").is_empty());
    }

    #[test]
    fn names_are_split_at_their_first_underscore() {
        assert_eq!(words("entry_post"), ("entry", Some("post")));
        assert_eq!(words("working_set"), ("working", Some("set")));
        assert_eq!(words("object_accept_loss"), ("object", Some("accept_loss")));
        assert_eq!(words("turn"), ("turn", None));
    }
}
