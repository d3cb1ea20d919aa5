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
