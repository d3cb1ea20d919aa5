//! docs/format.md says of every record which fields it has, under which keys.

use std::path::Path;

use kwoon_ledger::limits::Limits;
use syn::{Attribute, Fields, Item};

use super::{VARIANTS, all, docs};

/// The files in which the records of the format stand.
const SOURCES: &[&str] = &[
    "keys/src/commitment.rs",
    "keys/src/files.rs",
    "ledger/src/action.rs",
    "ledger/src/fact.rs",
    "ledger/src/effect.rs",
    "ledger/src/forget.rs",
    "ledger/src/outbox.rs",
    "ledger/src/wanted.rs",
    "sync/net/src/greeting.rs",
    "sync/src/intake.rs",
    "sync/src/intake/actions.rs",
    "sync/src/intake/facts.rs",
    "sync/src/intake/verdicts.rs",
    "sync/src/intake/voices.rs",
    "sync/src/logfile.rs",
    "sync/src/peers.rs",
    "sync/src/quarantine.rs",
    "sync/src/receipt.rs",
    "sync/src/session.rs",
    "sync/src/session/chunk.rs",
    "sync/src/session/ranges.rs",
    "sync/src/ticket.rs",
    "sync/src/wire.rs",
];
/// Types there that are no part of the format.
const NO_RECORDS: &[&str] = &["SchemaOnly", "AnyHeader"];

/// The section of the document under the heading of a type.
fn section<'a>(document: &'a str, name: &str) -> &'a str {
    let heading = format!("### {name}\n");
    let start = document.find(&heading).unwrap_or_else(|| panic!("docs/format.md has no section {name}"));
    let rest = &document[start + heading.len()..];
    &rest[..rest.find("\n#").unwrap_or(rest.len())]
}

/// What stands in brackets after an attribute of this name.
fn argument(attributes: &[Attribute], name: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident(name))?;
    attribute.meta.require_list().ok().map(|list| list.tokens.to_string().replace(' ', ""))
}

/// The number of a field or a variant: of `n(3)` alone, or among other things in `cbor(n(3), ...)`.
fn number(attributes: &[Attribute]) -> String {
    argument(attributes, "n").unwrap_or_else(|| {
        let all = argument(attributes, "cbor").expect("a field has a number");
        let rest = all.split("n(").nth(1).expect("a field has a number");
        rest.split(')').next().unwrap_or_default().to_owned()
    })
}

#[test]
fn the_format_document_names_every_field_and_variant_with_its_number() {
    let document = std::fs::read_to_string(docs().join("format.md")).unwrap_or_default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seen = 0;
    for source in SOURCES {
        let text = std::fs::read_to_string(root.join(source)).expect("readable");
        for item in syn::parse_file(&text).expect("it is Rust").items {
            let (attributes, name) = match &item {
                Item::Struct(item) => (&item.attrs, item.ident.to_string()),
                Item::Enum(item) => (&item.attrs, item.ident.to_string()),
                _ => continue,
            };
            let Some(encoding) = argument(attributes, "cbor") else { continue };
            if NO_RECORDS.contains(&name.as_str()) {
                continue;
            }
            let section = section(&document, &name);
            let mut rows = Vec::new();
            match &item {
                Item::Struct(item) if encoding == "map" => {
                    for field in &item.fields {
                        let name = field.ident.as_ref().expect("a field has a name");
                        rows.push((number(&field.attrs), name.to_string()));
                    }
                }
                Item::Enum(item) => {
                    for variant in &item.variants {
                        rows.push((number(&variant.attrs), variant.ident.to_string()));
                        let count = variant.fields.len();
                        assert!(matches!(variant.fields, Fields::Unit | Fields::Unnamed(_)), "{name} of {count}");
                    }
                }
                _ => continue,
            }
            for (number, field) in rows {
                let row = format!("\n| {number} | `{field}` |");
                assert!(section.contains(&row), "docs/format.md, section {name}, lacks the row:{row}");
                seen += 1;
            }
        }
    }
    assert!(seen > 200, "the sources were looked at");
}

#[test]
fn the_format_document_speaks_of_every_vector() {
    let document = std::fs::read_to_string(docs().join("format.md")).unwrap_or_default();
    for variant in VARIANTS {
        let (name, variant) = variant.split_once('.').expect("a type and a variant");
        assert!(
            section(&document, name).contains(&format!("`{variant}`")),
            "docs/format.md, section {name}: {variant}"
        );
    }
    let vectors = all();
    for name in vectors.names("records").iter().chain(&vectors.names("signed")) {
        let name = name.split([' ', '.']).next().unwrap_or_default();
        section(&document, name);
    }
    // A name may stand across the end of a line.
    let running = document.split_whitespace().collect::<Vec<_>>().join(" ");
    for name in vectors.names("derivations") {
        assert!(running.contains(&format!("`{name}`")), "docs/format.md does not name the derivation {name}");
    }
}

/// A number with commas, as the table of limits shows it.
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[test]
fn the_format_document_has_every_limit() {
    let document = std::fs::read_to_string(docs().join("format.md")).unwrap_or_default();
    for ((name, default), (_, maximum)) in Limits::DEFAULT.rows().zip(Limits::MAXIMA.rows()) {
        let row = format!("\n| `{name}` | {} | {} |", with_commas(default), with_commas(maximum));
        assert!(document.contains(&row), "docs/format.md lacks the row:{row}");
    }
}

#[test]
fn the_format_document_has_the_bounds_of_messages() {
    use kwoon_sync::wire::{FACTS_MAX, ITEMS_MAX, MESSAGE_BYTES_MAX};
    let document = std::fs::read_to_string(docs().join("format.md")).unwrap_or_default();
    let between = document.split("\n## Between hosts\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let between = between.expect("format.md describes messages");
    for (name, bound, times) in [
        ("MESSAGE_BYTES_MAX", MESSAGE_BYTES_MAX, 1),
        ("ITEMS_MAX", ITEMS_MAX, 7),
        ("FACTS_MAX", FACTS_MAX, 2),
        ("contents of FACTS_MAX", FACTS_MAX * 4, 1),
    ] {
        let shown = with_commas(u64::try_from(bound).expect("it fits"));
        assert_eq!(between.matches(&format!("at most {shown}")).count(), times, "docs/format.md, {name}: {shown}");
    }
}
