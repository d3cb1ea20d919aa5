//! The conformance document: every rule of the tables in `tests/spec`, with the tests that show it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use syn::visit::Visit;

const KUNGFU: &str = include_str!("../spec/kungfu.toml");
const CONTRACTS: &str = include_str!("../spec/contracts.toml");

/// Whether a rule of this id stands in the tables. Usable in constants, so that a claim about no rule does not compile.
pub const fn is_rule(id: &str) -> bool {
    contains_id(KUNGFU.as_bytes(), id.as_bytes()) || contains_id(CONTRACTS.as_bytes(), id.as_bytes())
}

const fn contains_id(table: &[u8], id: &[u8]) -> bool {
    let mut at = 0;
    while at + id.len() + 7 <= table.len() {
        if matches_at(table, at, b"id = \"") && matches_at(table, at + 6, id) && table[at + 6 + id.len()] == b'"' {
            return true;
        }
        at += 1;
    }
    false
}

const fn matches_at(table: &[u8], at: usize, what: &[u8]) -> bool {
    let mut offset = 0;
    while offset < what.len() {
        if table[at + offset] != what[offset] {
            return false;
        }
        offset += 1;
    }
    true
}

#[derive(Deserialize)]
struct RuleTable {
    rule: Vec<Rule>,
}

/// A rule of the tables.
#[derive(Clone, Debug, Deserialize)]
pub struct Rule {
    /// Its id.
    pub id: String,
    /// The profile it belongs to.
    #[serde(default)]
    pub profile: String,
    /// The contract it belongs to.
    #[serde(default)]
    pub contract: String,
    /// What it says.
    pub text: String,
}

/// Every rule, in the order of the tables.
pub fn rules() -> Vec<Rule> {
    let parse = |text| toml::from_str::<RuleTable>(text).expect("the rule tables are TOML").rule;
    let mut rules = parse(KUNGFU);
    rules.extend(parse(CONTRACTS));
    rules
}

/// What a test claims.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The rule.
    pub rule: String,
    /// `holds`, `refused` or `impossible`.
    pub shows: String,
    /// The test, with its module.
    pub test: String,
    /// Why a violation cannot be expressed.
    pub why: Option<String>,
    /// Whether the test runs with its agents on different hosts.
    pub across: bool,
}

struct Tests {
    module: String,
    current: Option<String>,
    /// Whether the tests of this module run across hosts, and whether the present one says that it does not.
    across: bool,
    alone: bool,
    claims: Vec<Claim>,
}

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let is_test = function
            .attrs
            .iter()
            .any(|attribute| attribute.path().segments.last().is_some_and(|segment| segment.ident == "test"));
        if is_test {
            self.current = Some(format!("{}::{}", self.module, function.sig.ident));
            let first = self.claims.len();
            self.alone = false;
            syn::visit::visit_item_fn(self, function);
            self.current = None;
            for claim in &mut self.claims[first..] {
                claim.across = self.across && !self.alone;
            }
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let Some(test) = &self.current else { return };
        self.alone |= call.path.is_ident("alone");
        if !call.path.is_ident("rule") {
            return;
        }
        let text = call.tokens.to_string();
        let shows = text.split(',').next().unwrap_or_default().trim().to_owned();
        let mut strings = text.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let why = if text.contains(';') { strings.pop() } else { None };
        for rule in strings {
            self.claims.push(Claim { rule, shows: shows.clone(), test: test.clone(), why: why.clone(), across: false });
        }
    }
}

/// The modules of the suite whose tests run across hosts: those that the target `across` takes up, and those that make
/// several hosts themselves.
fn across(across: &str, module: &str, source: &str) -> bool {
    across.contains(&format!("mod {module};")) || ["Cluster::new", "Across::new"].iter().any(|new| source.contains(new))
}

/// Every claim of the tests under `tests/suite`.
pub fn claims() -> Vec<Claim> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/across/main.rs");
    let target = std::fs::read_to_string(target).expect("readable");
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&suite)
        .expect("the suite is there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    files.sort();
    let mut claims = Vec::new();
    for path in files {
        let module = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let source = std::fs::read_to_string(&path).expect("readable");
        let file = syn::parse_file(&source).expect("the suite is Rust");
        let across = across(&target, &module, &source);
        let mut tests = Tests { module, current: None, across, alone: false, claims: Vec::new() };
        tests.visit_file(&file);
        claims.extend(tests.claims);
    }
    claims
}

/// Why identities are shown on their own host.
const HOME: &str =
    "an identity is one log, which its home host orders: its records are decided there wherever its agent acts";
/// Why the form of records is shown on one host.
const FORM: &str = "a matter of records and their form, the same on every host; tests forge records, and a host decides them again as one from elsewhere would";

/// Rules that are shown on one host and not, or only in part, across hosts, with why that is so.
pub const ALONE: [(&str, &str); 21] = [
    ("P1", "forged logs are given to one host; what chance brings about across hosts the simulation judges"),
    ("L1.1", "a store is rebuilt by itself; that logs agree across hosts the simulation judges"),
    ("L1.2", "logs are checked as files, which come from anywhere"),
    ("L1.3", "disks and crashes are one host's; hosts that crash across a network the simulation judges"),
    ("C4", "it is about this document"),
    ("ID.1", HOME),
    ("ID.2", HOME),
    ("ID.3", HOME),
    ("ID.4", HOME),
    ("ID.5", HOME),
    ("ID.6", HOME),
    ("ID.7", HOME),
    ("EV.1", FORM),
    ("EV.2", FORM),
    ("EV.3", FORM),
    ("EV.4", FORM),
    ("EV.5", FORM),
    ("EV.6", FORM),
    ("CO.1", FORM),
    ("CO.2", FORM),
    ("CO.3", FORM),
];

/// Whether a rule is shown across hosts: that it holds, and that a violation is refused there or cannot be expressed.
pub fn is_across(rule: &str, claims: &[Claim]) -> bool {
    let any = |shows: &[&str]| {
        let of = claims.iter().filter(|claim| claim.rule == rule && shows.contains(&claim.shows.as_str()));
        of.into_iter().any(|claim| claim.across || claim.shows == "impossible")
    };
    any(&["holds"]) && any(&["refused", "impossible"])
}

/// What is said of a rule across hosts.
fn across_hosts(rule: &str, claims: &[Claim]) -> String {
    match ALONE.iter().find(|(id, _)| *id == rule) {
        _ if is_across(rule, claims) => "shown".to_owned(),
        Some((_, why)) => format!("not shown: {why}"),
        None => "not shown yet".to_owned(),
    }
}

/// The document, as the tests are now.
pub fn document() -> String {
    document_of(&rules(), &claims())
}

/// The document that these claims make of these rules.
pub fn document_of(rules: &[Rule], claims: &[Claim]) -> String {
    let mut by_rule: BTreeMap<&str, Vec<&Claim>> = BTreeMap::new();
    for claim in claims {
        by_rule.entry(&claim.rule).or_default().push(claim);
    }
    let mut text = include_str!("conformance_head.md").replace("{version}", env!("CARGO_PKG_VERSION"));
    let (mut shown, mut open) = (String::new(), String::new());
    let mut counts = (0, 0);
    let all = claims;
    for rule in rules {
        let claims = by_rule.get(&*rule.id).map(Vec::as_slice).unwrap_or_default();
        let (holds, against) = (tests(claims, &["holds"]), tests(claims, &["refused", "impossible"]));
        let scope = if rule.profile.is_empty() { &rule.contract } else { &rule.profile };
        if !holds.is_empty() && !against.is_empty() {
            counts.0 += 1;
            let _ =
                writeln!(shown, "| {} | {scope} | {holds} | {against} | {} |", rule.id, across_hosts(&rule.id, all));
        } else {
            counts.1 += 1;
            let what = match (holds.is_empty(), against.is_empty()) {
                (true, true) => "not shown yet".to_owned(),
                (false, _) => format!("shown to hold by {holds}; no counter-test yet"),
                (true, false) => format!("violations refused in {against}; not shown to hold yet"),
            };
            let _ = writeln!(open, "| {} | {scope} | {what} |", rule.id);
        }
    }
    let _ = writeln!(text, "\n## Shown ({} rules)\n", counts.0);
    text.push_str(
        "| rule | scope | shown to hold by | violations refused in | across hosts |\n|---|---|---|---|---|\n",
    );
    text.push_str(&shown);
    let _ = writeln!(text, "\n## Open ({} rules)\n", counts.1);
    text.push_str("| rule | scope | what there is |\n|---|---|---|\n");
    text.push_str(&open);
    text
}

/// The tests of the claims that show one of these.
fn tests(claims: &[&Claim], shows: &[&str]) -> String {
    let named = claims.iter().filter(|claim| shows.contains(&claim.shows.as_str()));
    let named: Vec<String> = named
        .map(|claim| match &claim.why {
            Some(why) => format!("`{}` (not expressible: {why})", claim.test),
            None => format!("`{}`", claim.test),
        })
        .collect();
    named.join("<br>")
}

/// Whether what is written is the document that these claims make of these rules.
///
/// # Errors
/// What to do if it is not.
pub fn check(written: &str, rules: &[Rule], claims: &[Claim]) -> Result<(), &'static str> {
    if written == document_of(rules, claims) {
        Ok(())
    } else {
        Err("docs/conformance.md is stale; run: cargo run -p kwoon-tests --bin conformance")
    }
}

/// Where the document lies.
pub fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance.md")
}
