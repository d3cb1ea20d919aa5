//! Writes `docs/conformance.md` from the tests.

fn main() -> std::io::Result<()> {
    std::fs::write(kwoon_tests::conformance::path(), kwoon_tests::conformance::document())
}
