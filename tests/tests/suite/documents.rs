//! What is written about kwoon is true.

use kwoon_tests::conformance;

#[test]
fn the_conformance_document_is_current() {
    let written = std::fs::read_to_string(conformance::path()).unwrap_or_default();
    assert!(
        written == conformance::document(),
        "docs/conformance.md is stale; run: cargo run -p kwoon-tests --bin conformance"
    );
}

#[test]
fn the_protocol_document_names_every_rule_of_its_parts() {
    let path = conformance::path().with_file_name("protocol.md");
    let document = std::fs::read_to_string(path).unwrap_or_default();
    // Rules stand in brackets, several with commas between them.
    let mut named = std::collections::BTreeSet::new();
    for bracket in document.split('[').skip(1) {
        let ids = bracket.split(']').next().unwrap_or_default();
        named.extend(ids.split(',').map(str::trim));
    }
    let contracts = ["", "identity", "event", "compatibility"];
    for rule in conformance::rules().iter().filter(|rule| contracts.contains(&rule.contract.as_str())) {
        assert!(named.contains(rule.id.as_str()), "docs/protocol.md does not name {}", rule.id);
    }
}
