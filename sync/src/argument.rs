//! Arguments of operations: what an agent or owner sends, checked as far as that is possible without looking anything
//! up. Everything here is hostile until it has passed through these types.

use core::cell::Cell;
use core::fmt;
use std::borrow::Cow;

use kwoon_keys::PublicKey;
use kwoon_keys::id::{AgentId, AssignmentId, MemoryId, PublicationId, QuarantineId, ReceiptId, RequestId, ThreadId};
use kwoon_ledger::action::{MediaType, Role};
use kwoon_ledger::index::Short;
use kwoon_ledger::limits::{DURATION_MAX, DURATION_MIN};
use kwoon_ledger::refusal::{Code, Detail, Refusal};
use kwoon_ledger::time::Duration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The arguments of a call as JSON, with duplicate keys refused.
pub type Arguments = Map<String, Value>;

/// JSON values in one body, those inside others counted too. More than any call can use, and far fewer than a body of
/// commas and brackets has room for: in memory each takes many times the bytes it was written with.
pub const VALUES_MAX: usize = 1 << 16;

/// Reads the body of a call: one JSON object, or nothing at all for no arguments.
///
/// # Errors
/// [`Code::InvalidArgument`] for anything else; see [`read_json`].
pub fn read(body: &[u8]) -> Result<Arguments, Refusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match read_json(body) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(Refusal::argument("body", "one JSON object")),
        Err(_) => Err(Refusal::argument(
            "body",
            "well-formed JSON in UTF-8, nested at most 100 deep, each key once, whole numbers of at most 64 bits, at most \
             65536 values",
        )),
    }
}

/// Reads JSON as strictly as bodies are read.
///
/// # Errors
/// If it is not well-formed, has a key twice, a fraction, an exponent, a number beyond 64 bits or more than
/// [`VALUES_MAX`] values, or is nested too deep.
pub fn read_json(text: &[u8]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = Strict(&Cell::new(VALUES_MAX)).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads one JSON value, and takes it and what is in it off the number of values that may still come.
#[derive(Clone, Copy)]
struct Strict<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.0.get().checked_sub(1).ok_or_else(|| de::Error::custom("too many values"))?;
        self.0.set(left);
        deserializer.deserialize_any(self)
    }
}

// Fractions, which is also where integers beyond 64 bits end up, are what no argument is: there is no visit for them.
impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self)?;
            if map.insert(key, value).is_some() {
                return Err(de::Error::custom("a key twice"));
            }
        }
        Ok(Value::Object(map))
    }
}

/// Turns arguments into a typed request.
///
/// # Errors
/// [`Code::InvalidArgument`], naming the field and what it must be.
pub fn parse<T: DeserializeOwned>(arguments: Arguments) -> Result<T, Refusal> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        explain(&path, &message)
    })
}

/// Names the field that a deserialisation error is about. Of the message only what this program wrote is used, never
/// what the caller sent.
fn explain(path: &str, message: &str) -> Refusal {
    let quoted = message.split('`').nth(1).unwrap_or_default();
    let (name, expected) = if message.starts_with("unknown field") {
        (Some(quoted), "no such argument".to_owned())
    } else if message.starts_with("missing field") {
        (Some(quoted), "must be given".to_owned())
    } else {
        let expected = message.rsplit_once("expected ").map_or("another form", |(_, expected)| expected);
        let plain = match expected {
            "usize" | "u64" | "u32" => "a whole number from 0",
            expected => expected,
        };
        (None, plain.to_owned())
    };
    // A map key that does not exist is part of the path already.
    let path = if path == "." { "" } else { path };
    let field = match (path, name) {
        ("", Some(name)) => name.to_owned(),
        (path, Some(name)) if path == name || path.ends_with(&format!(".{name}")) => path.to_owned(),
        (path, Some(name)) => format!("{path}.{name}"),
        ("", None) => "body".to_owned(),
        (path, None) => path.to_owned(),
    };
    // Long keys of a caller's are cut: an error stays small.
    let field: String = field.chars().take(80).collect();
    Refusal::from(Code::InvalidArgument).with("field", Detail::Text(field)).with("expected", Detail::Text(expected))
}

/// A string that `read` accepts, described for error and schema by `what`. Done by a visitor, so that a missing field
/// stays one.
fn from_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    what: &'static str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    struct TextVisitor<F>(&'static str, F);
    impl<T, F: FnOnce(&str) -> Option<T>> Visitor<'_> for TextVisitor<F> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            (self.1)(text).ok_or_else(|| wrong(self.0))
        }
    }
    deserializer.deserialize_str(TextVisitor(what, read))
}

/// Says what was expected, and nothing of what came.
fn wrong<E: de::Error>(what: &'static str) -> E {
    E::custom(format_args!("expected {what}"))
}

/// Gives a type the schema that stands where it is used.
macro_rules! schema {
    ($type:ident, $name:literal, $schema:expr) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

macro_rules! references {
    ($($(#[$doc:meta])* $name:ident($id:ty), $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub Short);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer, $what, <$id>::read).map(Self)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let pattern = format!("^{}_[a-z2-7]{{26}}$", <$id>::PREFIX);
                json_schema!({"type": "string", "pattern": pattern, "description": $what})
            }
        }
    )*};
}

references! {
    /// A thread.
    ThreadRef(ThreadId), "a thread id: thr_ and 26 characters";
    /// A memory.
    MemoryRef(MemoryId), "a memory id: mem_ and 26 characters";
    /// An assignment.
    AssignmentRef(AssignmentId), "an assignment id: asg_ and 26 characters";
    /// An agent.
    AgentRef(AgentId), "an agent id: agt_ and 26 characters";
    /// An action.
    ActionRef(RequestId), "an action id: act_ and 26 characters";
    /// A receipt.
    ReceiptRef(ReceiptId), "a receipt id: rcp_ and 26 characters";
    /// A record in quarantine.
    QuarantineRef(QuarantineId), "the id of a record in quarantine: qua_ and 26 characters";
}

/// Another host, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRef(pub PublicKey);

const HOST: &str = "a host id: 64 hex digits";

impl<'de> Deserialize<'de> for HostRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, HOST, PublicKey::read).map(Self)
    }
}

schema!(HostRef, "HostRef", json_schema!({"type": "string", "pattern": "^[0-9a-f]{64}$", "description": HOST}));

/// An object that has a log or a working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRef {
    /// A thread.
    Thread(Short),
    /// A memory.
    Memory(Short),
    /// A publication.
    Publication(Short),
    /// An agent's identity.
    Agent(Short),
}

const OBJECT: &str = "an object id: thr_, mem_, pub_ or agt_ and 26 characters";

impl<'de> Deserialize<'de> for ObjectRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, OBJECT, |text| {
            (ThreadId::read(text).map(Self::Thread))
                .or_else(|| MemoryId::read(text).map(Self::Memory))
                .or_else(|| PublicationId::read(text).map(Self::Publication))
                .or_else(|| AgentId::read(text).map(Self::Agent))
        })
    }
}

schema!(
    ObjectRef,
    "ObjectRef",
    json_schema!({"type": "string", "pattern": "^(thr|mem|pub|agt)_[a-z2-7]{26}$", "description": OBJECT})
);

/// An entry of a thread, by its number or by the action that posts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryRef {
    /// Its number.
    Number(u64),
    /// The action.
    Action(Short),
}

const ENTRY: &str = "the number of an entry, or the id of the action that posts it";

impl<'de> Deserialize<'de> for EntryRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntryVisitor;
        impl Visitor<'_> for EntryVisitor {
            type Value = EntryRef;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(ENTRY)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<EntryRef, E> {
                if number > 0 { Ok(EntryRef::Number(number)) } else { Err(wrong(ENTRY)) }
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<EntryRef, E> {
                RequestId::read(text).map(EntryRef::Action).ok_or_else(|| wrong(ENTRY))
            }
        }
        deserializer.deserialize_any(EntryVisitor)
    }
}

schema!(
    EntryRef,
    "EntryRef",
    json_schema!({
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": "^act_[a-z2-7]{26}$"}
        ],
        "description": ENTRY
    })
);

/// A length of time: a whole number and one of `s`, `m`, `h`, `d`; from 1 s to 400 d.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationText(pub Duration);

const DURATION: &str = "a duration from \"1s\" to \"400d\": a whole number and s, m, h or d";

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, DURATION, |text| {
            let unit = text.chars().last()?;
            let digits = &text[..text.len() - unit.len_utf8()];
            let plain = (1..=12).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
            let count: u64 = if plain { digits.parse().ok()? } else { return None };
            let seconds = match unit {
                's' => 1,
                'm' => 60,
                'h' => 3600,
                'd' => 86400,
                _ => return None,
            };
            let duration = Duration(count.checked_mul(seconds)?.checked_mul(1000)?);
            (DURATION_MIN..=DURATION_MAX).contains(&duration).then_some(Self(duration))
        })
    }
}

schema!(
    DurationText,
    "Duration",
    json_schema!({"type": "string", "pattern": "^[0-9]{1,12}[smhd]$", "description": DURATION})
);

/// A media type of the fixed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaTypeText(pub MediaType);

const MEDIA_TYPE: &str =
    "text/plain, text/markdown, text/html, text/csv, application/json, application/yaml or application/xml";

impl<'de> Deserialize<'de> for MediaTypeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, MEDIA_TYPE, |text| {
            MediaType::ALL.into_iter().find(|media_type| media_type.name() == text).map(Self)
        })
    }
}

schema!(MediaTypeText, "MediaType", {
    let names: Vec<_> = MediaType::ALL.iter().map(|media_type| media_type.name()).collect();
    json_schema!({"type": "string", "enum": names, "description": "media type; text/markdown if left out"})
});

/// The media type to write down: what was given, or text/markdown.
pub fn media_type(given: Option<MediaTypeText>) -> MediaType {
    given.map_or(MediaType::Markdown, |given| given.0)
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident, $what:literal: $($variant:ident $word:literal),+;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $(#[doc = $word] $variant,)+ }

        impl $name {
            /// The word.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer, $what, |text| match text {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                })
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "enum": [$($word),+]})
            }
        }
    )*};
}

words! {
    /// A role in a thread.
    RoleText, "observer, speaker or governor": Observer "observer", Speaker "speaker", Governor "governor";
    /// A state that a list of assignments can be narrowed to.
    AssignmentState, "offered, taken, delivered, accepted, not_passed, undecided, abandoned, timed_out or voided":
        Offered "offered", Taken "taken", Delivered "delivered", Accepted "accepted", NotPassed "not_passed",
        Undecided "undecided", Abandoned "abandoned", TimedOut "timed_out", Voided "voided";
    /// How facts are given.
    LogFormat, "json or cbor": Json "json", Cbor "cbor";
}

impl From<RoleText> for Role {
    fn from(role: RoleText) -> Self {
        match role {
            RoleText::Observer => Self::Observer,
            RoleText::Speaker => Self::Speaker,
            RoleText::Governor => Self::Governor,
        }
    }
}

/// An idempotency key: 1 to 128 of `A-Za-z0-9._~-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(pub String);

const KEY: &str = "1 to 128 characters of A-Z, a-z, 0-9, '.', '_', '~' and '-'";

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, KEY, |text| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
            ((1..=128).contains(&text.len()) && text.bytes().all(allowed)).then(|| Self(text.to_owned()))
        })
    }
}

schema!(
    Key,
    "IdempotencyKey",
    json_schema!({"type": "string", "pattern": "^[A-Za-z0-9._~-]{1,128}$", "description": KEY})
);

/// The name of an agent on its host: `[a-z0-9][a-z0-9._-]{0,62}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentName(pub String);

const NAME: &str = "1 to 63 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit";

impl AgentName {
    /// Reads a name.
    pub fn read(text: &str) -> Option<Self> {
        let letter_or_digit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let first = text.bytes().next().is_some_and(letter_or_digit);
        let rest = text.bytes().all(|byte| letter_or_digit(byte) || b"._-".contains(&byte));
        (first && rest && text.len() <= 63).then(|| Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for AgentName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, NAME, Self::read)
    }
}

schema!(
    AgentName,
    "AgentName",
    json_schema!({"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$", "description": NAME})
);

/// A file of the host's machine, by an absolute path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePath(pub String);

const PATH: &str = "an absolute path of at most 4096 bytes that names a file";

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, PATH, |text| {
            let last = text.rsplit('/').next().unwrap_or_default();
            let names_a_file = text.starts_with('/') && !matches!(last, "" | "." | "..");
            (names_a_file && text.len() <= 4096 && !text.contains('\0')).then(|| Self(text.to_owned()))
        })
    }
}

schema!(FilePath, "FilePath", json_schema!({"type": "string", "pattern": "^/.*[^/]$", "description": PATH}));

/// A text that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonEmpty(pub String);

impl<'de> Deserialize<'de> for NonEmpty {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a text that is not empty", |text| (!text.is_empty()).then(|| Self(text.to_owned())))
    }
}

schema!(NonEmpty, "Text", json_schema!({"type": "string", "minLength": 1}));

/// How many rows a page has: 1 to 50, 20 if left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub usize);

const LIMIT: &str = "a number from 1 to 50";

impl Limit {
    /// The number of rows.
    pub fn of(given: Option<Self>) -> usize {
        given.map_or(20, |limit| limit.0)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_between(deserializer, 1, 50, LIMIT).map(|limit| Self(limit as usize))
    }
}

schema!(
    Limit,
    "Limit",
    json_schema!({"type": "integer", "minimum": 1, "maximum": 50, "description": "rows; 20 if left out"})
);

/// How much of a text is read at once: 1 to 262144 bytes, 4096 if left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxBytes(pub usize);

const MAX_BYTES: &str = "a number from 1 to 262144";

impl MaxBytes {
    /// The number of bytes.
    pub fn of(given: Option<Self>) -> usize {
        given.map_or(4096, |max| max.0)
    }
}

impl<'de> Deserialize<'de> for MaxBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_between(deserializer, 1, 262_144, MAX_BYTES).map(|max| Self(max as usize))
    }
}

schema!(
    MaxBytes,
    "MaxBytes",
    json_schema!({
        "type": "integer", "minimum": 1, "maximum": 262_144,
        "description": "bytes of each text; 4096 if left out"
    })
);

fn number_between<'de, D: Deserializer<'de>>(
    deserializer: D,
    least: u64,
    most: u64,
    what: &'static str,
) -> Result<u64, D::Error> {
    struct NumberVisitor(u64, u64, &'static str);
    impl Visitor<'_> for NumberVisitor {
        type Value = u64;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.2)
        }
        fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
            if (self.0..=self.1).contains(&number) { Ok(number) } else { Err(wrong(self.2)) }
        }
    }
    deserializer.deserialize_u64(NumberVisitor(least, most, what))
}

/// How long a caller waits, in milliseconds: at most 60000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitMs(pub u64);

impl<'de> Deserialize<'de> for WaitMs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_between(deserializer, 0, 60_000, "a number of milliseconds from 0 to 60000").map(Self)
    }
}

schema!(
    WaitMs,
    "WaitMs",
    json_schema!({"type": "integer", "minimum": 0, "maximum": 60_000, "description": "milliseconds to wait"})
);
