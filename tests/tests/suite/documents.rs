//! What is written about kwoon is true.

use kwoon_tests::{conformance, rule};

#[test]
fn the_conformance_document_is_current() {
    rule!(holds, "C4");
    let written = std::fs::read_to_string(conformance::path()).unwrap_or_default();
    let checked = conformance::check(&written, &conformance::rules(), &conformance::claims());
    assert!(checked.is_ok(), "{}", checked.unwrap_err());
}

/// The rows of a table of the document: rule and the rest.
fn rows<'a>(document: &'a str, table: &str) -> Vec<(&'a str, &'a str)> {
    let heading = format!("\n## {table} (");
    let body = document.split(&heading).nth(1).expect("the table").split("\n## ").next().unwrap();
    let rows = body.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| line[2..].split_once(" | ").expect("two columns")).collect()
}

#[test]
fn the_conformance_document_says_what_is_claimed_of_what_and_by_which_evidence() {
    rule!(holds, "C4");
    let (rules, claims) = (conformance::rules(), conformance::claims());
    let document = conformance::document();
    let version = format!("- Implementation: kwoon {}.", env!("CARGO_PKG_VERSION"));
    for line in ["- Specification: Kungfu, 1.0 - Release Candidate 1", &version, "- Profile: ", "- Evidence: "] {
        assert!(document.lines().any(|have| have.starts_with(line)), "{line}");
    }
    assert!(document.contains("known deviations"));
    // Every rule stands in one of the two tables, in the order of the rules, and the unmet ones are all named.
    let (shown, open) = (rows(&document, "Shown"), rows(&document, "Open"));
    assert_eq!(shown.len() + open.len(), rules.len());
    assert!(document.contains(&format!("## Shown ({} rules)", shown.len())));
    assert!(document.contains(&format!("## Open ({} rules)", open.len())));
    let shows = |rule: &str, what: &[&str]| {
        claims.iter().any(|claim| claim.rule == rule && what.contains(&claim.shows.as_str()))
    };
    for rule in &rules {
        let is_shown = shows(&rule.id, &["holds"]) && shows(&rule.id, &["refused", "impossible"]);
        let table = if is_shown { &shown } else { &open };
        assert_eq!(table.iter().filter(|(id, _)| *id == rule.id).count(), 1, "{}", rule.id);
    }
    // What stays open means that no whole profile can be claimed.
    let unqualified = document.contains("- Profile: none is claimed without qualification");
    assert_eq!(unqualified, !open.is_empty());
    // Each claim is named as evidence of its rule, and each piece of evidence is a test that there is.
    for claim in &claims {
        let row = shown.iter().chain(&open).find(|(id, _)| *id == claim.rule).expect("a row");
        assert!(row.1.contains(&format!("`{}`", claim.test)), "{} of {}", claim.test, claim.rule);
    }
}

#[test]
fn every_rule_that_is_shown_is_shown_across_hosts_too_or_it_says_why_not() {
    rule!(holds, "C4");
    let claims = conformance::claims();
    let document = conformance::document();
    let unsaid: Vec<_> = rows(&document, "Shown")
        .into_iter()
        .filter(|(id, _)| {
            conformance::is_across(id, &claims) == conformance::ALONE.iter().any(|(alone, _)| alone == id)
        })
        .map(|(id, _)| id)
        .collect();
    assert_eq!(unsaid, [""; 0], "shown neither across hosts nor with a reason, or both");
    assert!(conformance::ALONE.iter().all(|(id, _)| conformance::is_rule(id)));
}

#[test]
fn a_conformance_document_that_is_not_what_the_tests_claim_is_refused() {
    rule!(refused, "C4");
    let (rules, claims) = (conformance::rules(), conformance::claims());
    let document = conformance::document_of(&rules, &claims);
    assert!(conformance::check(&document, &rules, &claims).is_ok());
    // No claim can go or change, and none be added, without the document showing it.
    for at in 0..claims.len() {
        let mut fewer = claims.clone();
        let gone = fewer.remove(at);
        let again = fewer.iter().any(|claim| {
            (&claim.rule, &claim.shows, &claim.test, &claim.why) == (&gone.rule, &gone.shows, &gone.test, &gone.why)
        });
        assert!(!again, "{} claims the same twice", gone.test);
        assert!(conformance::check(&document, &rules, &fewer).is_err(), "{} of {}", gone.test, gone.rule);
    }
    // A rule without its counter-test is open again, and one without anything even more so.
    let of = |document: &str, table: &str| rows(document, table).iter().filter(|(id, _)| *id == "C4").count();
    assert_eq!((of(&document, "Shown"), of(&document, "Open")), (1, 0));
    let without = |shows: &str| {
        let kept = claims.iter().filter(|claim| claim.rule != "C4" || (claim.shows != shows && !shows.is_empty()));
        conformance::document_of(&rules, &kept.cloned().collect::<Vec<_>>())
    };
    for (shows, expected) in
        [("refused", "no counter-test yet"), ("holds", "not shown to hold yet"), ("", "not shown yet")]
    {
        let less = without(shows);
        assert_eq!((of(&less, "Shown"), of(&less, "Open")), (0, 1), "{shows}");
        let row = rows(&less, "Open").into_iter().find(|(id, _)| *id == "C4").unwrap().1.to_owned();
        assert!(row.contains(expected), "{row}");
    }
    // Nor can a rule be left out, or the document be written by hand.
    assert!(conformance::check(&document, &rules[1..], &claims).is_err());
    assert!(conformance::check(&format!("{document}."), &rules, &claims).is_err());
    assert!(conformance::check("", &rules, &claims).is_err());
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
