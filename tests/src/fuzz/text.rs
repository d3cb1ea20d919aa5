//! Everything that is read from text: ids, tickets, words and numbers of arguments, cursors, JSON and `config.toml`; and
//! what stands in files of a home: tokens, keys, and rows of the store that are not the ledger's.
//!
//! The first byte picks what the rest is read as. What is accepted has one spelling, which is what is shown.

use data_encoding::BASE32_NOPAD;
use kwoon_keys::files::{instance_of, pair_of};
use kwoon_keys::id::{
    AdmissionId, AgentId, AssignmentId, EngagementId, InstanceId, MemoryId, ObligationId, PublicationId, ReceiptId,
    RequestId, TaskId, ThreadId,
};
use kwoon_keys::{Digest, PublicKey};
use kwoon_ledger::index::{Cursor, Short};
use kwoon_ledger::limits::{DURATION_MAX, DURATION_MIN, Limits};
use kwoon_ledger::refusal::{Code, Detail, Refusal};
use kwoon_ledger::time::Time;
use kwoon_store::{is_content_row, is_journal_row, read_token};
use kwoon_sync::answer::shown;
use kwoon_sync::argument::{self, AgentName, Arguments, DurationText, EntryRef, Key, Limit, MaxBytes, WaitMs};
use kwoon_sync::ticket::Ticket;
use kwoon_sync::view::{read_cursor, write_cursor};
use serde::Deserialize;
use serde_json::Value;

/// The ways in which text is read.
const READERS: &[fn(&[u8])] = &[ids, ticket, words, cursor, json, config, files, time];

/// What the first byte picks for a way of reading.
pub(super) fn number_of(reader: fn(&[u8])) -> u8 {
    let at = READERS.iter().position(|known| std::ptr::fn_addr_eq(*known, reader)).expect("a reader");
    u8::try_from(at).expect("few readers")
}

/// See the module.
pub fn target(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else { return };
    READERS[usize::from(first) % READERS.len()](rest);
}

pub(super) fn ids(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    macro_rules! check {
        ($($id:ident),+) => {$(
            if let Some(short) = $id::read(text) {
                let mut whole = [0; 32];
                whole[..16].copy_from_slice(&short);
                assert_eq!($id(Digest(whole)).to_string(), text, "an id has one spelling");
            }
        )+};
    }
    check!(AdmissionId, AgentId, AssignmentId, EngagementId, InstanceId, MemoryId);
    check!(ObligationId, PublicationId, ReceiptId, RequestId, TaskId, ThreadId);
    if let Some(key) = PublicKey::read(text) {
        assert_eq!(key.to_string(), text);
    }
}

pub(super) fn ticket(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some(ticket) = Ticket::read(text) else { return };
    let plain: String = text.split_ascii_whitespace().collect();
    assert_eq!(ticket.text(), plain, "a ticket has one spelling");
    assert!(text.len() <= 4096 && ticket.hosts.len() <= 8);
}

/// One argument of each kind.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    duration: Option<DurationText>,
    key: Option<Key>,
    name: Option<AgentName>,
    limit: Option<Limit>,
    max_bytes: Option<MaxBytes>,
    wait: Option<WaitMs>,
    entry: Option<EntryRef>,
    object: Option<argument::ObjectRef>,
    agents: Option<Vec<argument::AgentRef>>,
    role: Option<argument::RoleText>,
    media_type: Option<argument::MediaTypeText>,
}

pub(super) fn words(bytes: &[u8]) {
    let Ok(arguments) = argument::read(bytes) else { return };
    let given = arguments.clone();
    let words: Words = match argument::parse(arguments) {
        Ok(words) => words,
        Err(refusal) => return check_refusal(&refusal),
    };
    let text = |name: &str| given.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(DurationText(duration)) = words.duration {
        assert!((DURATION_MIN..=DURATION_MAX).contains(&duration));
        let (count, unit) = (&text("duration")[..text("duration").len() - 1], text("duration").pop());
        let seconds = [('s', 1), ('m', 60), ('h', 3600), ('d', 86400)].iter().find(|(name, _)| Some(*name) == unit);
        assert_eq!(
            seconds.map(|(_, seconds)| count.parse::<u64>().expect("digits") * seconds * 1000),
            Some(duration.0)
        );
    }
    if let Some(Key(key)) = words.key {
        assert!(key == text("key") && (1..=128).contains(&key.len()) && key.is_ascii());
    }
    if let Some(AgentName(name)) = words.name {
        assert!(name == text("name") && (1..=63).contains(&name.len()) && !name.starts_with(['.', '-']));
        assert!(!name.contains(['/', '\0', '\n']), "a name is a file's");
    }
    assert!(words.limit.is_none_or(|limit| (1..=50).contains(&limit.0)));
    assert!(words.max_bytes.is_none_or(|max| (1..=262_144).contains(&max.0)));
    assert!(words.wait.is_none_or(|wait| wait.0 <= 60_000));
    assert_ne!(words.entry, Some(EntryRef::Number(0)));
    let _ = (words.object, words.agents, words.media_type);
    assert!(words.role.is_none_or(|role| role.name() == text("role")));
}

/// A refusal of an argument says which, and stays small whatever came.
fn check_refusal(refusal: &Refusal) {
    assert_eq!(refusal.code, Code::InvalidArgument);
    for (_, detail) in &refusal.details {
        let length = match detail {
            Detail::Text(text) => text.chars().count(),
            Detail::Word(word) => word.len(),
            Detail::Number(_) => 0,
        };
        assert!(length <= 400, "{refusal:?}");
    }
}

pub(super) fn cursor(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let owner: Short = [0; 16];
    for list in [&[0][..], b"log", b"objects"] {
        if let Ok(number) = read_cursor::<u64>(list, &owner, text) {
            assert_eq!(write_cursor(list, &owner, &number), text, "a cursor has one spelling");
        }
        if let Ok(cursor) = read_cursor::<Cursor>(list, &owner, text) {
            assert_eq!(write_cursor(list, &owner, &cursor), text, "a cursor has one spelling");
        }
    }
}

/// What is accepted as arguments is what any JSON reader reads, with each key once and whole numbers only.
pub(super) fn json(bytes: &[u8]) {
    match argument::read(bytes) {
        Err(refusal) => check_refusal(&refusal),
        Ok(arguments) if bytes.iter().all(u8::is_ascii_whitespace) => assert!(arguments.is_empty()),
        Ok(arguments) => {
            let read: Arguments = serde_json::from_slice(bytes).expect("JSON");
            assert_eq!(read, arguments);
            let colons = bytes.iter().filter(|byte| **byte == b':').count();
            assert!(members(&Value::Object(arguments)) <= colons, "each member was there");
        }
    }
}

/// Members of all objects in a value. Fractions are in none.
fn members(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len() + map.values().map(members).sum::<usize>(),
        Value::Array(items) => items.iter().map(members).sum(),
        Value::Number(number) => {
            assert!(number.is_u64() || number.is_i64());
            0
        }
        _ => 0,
    }
}

pub(super) fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(limits) = kwoon_daemon::limits_of(text) {
        let mut rows = limits.rows().zip(Limits::MAXIMA.rows());
        assert!(rows.all(|((_, set), (_, maximum))| set <= maximum), "no limit is above its maximum");
    }
}

pub(super) fn files(bytes: &[u8]) {
    if let Some(token) = read_token(bytes) {
        let random = token.strip_prefix("kwn_").map(|text| text.to_ascii_uppercase()).unwrap_or_default();
        assert_eq!(BASE32_NOPAD.decode(random.as_bytes()).map(|random| random.len()), Ok(32));
    }
    let key = pair_of(bytes, "host").or_else(|| pair_of(bytes, "owner"));
    assert!(key.is_none_or(|key| key.public().is_sound()));
    assert!(instance_of(bytes).is_none_or(|keys| !keys.secrets.is_empty()));
    if is_journal_row(bytes) {
        assert!(!is_journal_row(&bytes[..bytes.len() - 1]), "a commit that was cut short is none");
    }
    assert!(bytes.len() >= 33 || !is_content_row(bytes));
}

/// A time is shown whatever it is, and a text with names is filled in whatever they are.
pub(super) fn time(bytes: &[u8]) {
    if let Some(number) = bytes.first_chunk() {
        let text = shown(Time(u64::from_be_bytes(*number)));
        assert!(text.ends_with('Z') && text.len() >= 24, "{text}");
    }
}
