//! Hosts on a virtual clock and network, judged after every step.
//!
//! An ordinary run takes the same few seeds every time. With `KWOON_SIMULATION_SECONDS` it goes on for so long from a random
//! seed, several seeds side by side; with `KWOON_SIMULATION_SEED` it begins there, and without a time that seed is all it
//! runs. Of every four seeds one has hosts with disks.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kwoon_tests::simulation::{Figures, Mistake, Outcome, Plan, Simulation};

/// Seeds of an ordinary run, from 0.
const SEEDS: u64 = 8;

fn plan(seed: u64) -> Plan {
    let disturbed = kwoon_ledger::time::Duration::minutes(30);
    Plan { seed, disturbed, on_disk: seed % 4 == 3, mistake: None }
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} must be a whole number")))
}

#[test]
fn hosts_agree_whatever_happens_between_them() {
    let (first, seconds) = (number("KWOON_SIMULATION_SEED"), number("KWOON_SIMULATION_SECONDS"));
    let began = Instant::now();
    let from = first.unwrap_or_else(|| match seconds {
        Some(_) => RandomState::new().hash_one(std::process::id()) >> 16,
        None => 0,
    });
    println!("from seed {from}");
    let is_over = |seed: u64| match (seconds, first) {
        (Some(seconds), _) => began.elapsed() >= Duration::from_secs(seconds),
        (None, Some(first)) => seed > first,
        (None, None) => seed >= SEEDS,
    };
    let next = AtomicU64::new(from);
    // What one of them finds ends them all.
    let found = AtomicBool::new(false);
    let run = || {
        let mut outcomes = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if is_over(seed) || found.load(Ordering::Relaxed) {
                return outcomes;
            }
            match Simulation::new(plan(seed)).run() {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => {
                    found.store(true, Ordering::Relaxed);
                    panic!("{error}\nRepeat it with KWOON_SIMULATION_SEED={seed}.");
                }
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(run)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    if let ([outcome], Some(_)) = (outcomes.as_slice(), first) {
        println!("{outcome:?}");
    }
    let sum = |of: fn(&Figures) -> u64| outcomes.iter().map(|outcome| of(&outcome.figures)).sum::<u64>();
    println!(
        "{} seeds, {} simulated hours, {} calls, {} facts, {} crashes, {} of them in a sync",
        outcomes.len(),
        sum(|figures| figures.virtual_ms) / 3_600_000,
        sum(|figures| figures.calls),
        sum(|figures| figures.facts),
        sum(|figures| figures.crashes),
        sum(|figures| figures.failed_syncs),
    );
}

#[test]
fn a_seed_replays_to_the_byte() {
    for seed in [2, 3] {
        let [first, second] = [(); 2].map(|()| Simulation::new(plan(seed)).run());
        assert_eq!(first, second);
        assert!(first.is_ok());
    }
}

/// Whether runs in which the code makes this mistake end with these words. Not every run comes to where it matters.
fn is_found(mistake: Mistake, words: &[&str]) {
    let mut found = Vec::new();
    for seed in 0..40 {
        let Err(error) = Simulation::new(Plan { on_disk: false, mistake: Some(mistake), ..plan(seed) }).run() else {
            continue;
        };
        println!("{error}");
        if words.iter().any(|words| error.contains(words)) {
            return;
        }
        found.push(error);
    }
    panic!("{mistake:?} is not found by what it breaks, but {found:#?}");
}

#[test]
fn a_lost_commit_is_found() {
    is_found(Mistake::LosesCommits, &["two facts for", "another receipt", "lost the receipt", "holds"]);
}

#[test]
fn a_request_that_takes_effect_twice_is_found() {
    is_found(Mistake::ForgetsRequests, &["a request took effect twice"]);
}

#[test]
fn an_obligation_that_ends_twice_is_found() {
    is_found(Mistake::EndsTwice, &["ended twice"]);
}

#[test]
fn a_log_that_is_kept_when_the_right_ended_is_found() {
    is_found(Mistake::KeepsEnded, &["and may read", "to which nothing there refers"]);
}

#[test]
fn contents_that_are_kept_without_their_log_are_found() {
    is_found(Mistake::KeepsContents, &["contents to which nothing there refers"]);
}

#[test]
fn a_host_that_derives_something_else_is_found() {
    is_found(Mistake::DerivesLess, &["derive different things"]);
}

#[test]
fn a_host_whose_facts_reach_nobody_is_found() {
    is_found(Mistake::LosesFacts, &["host 0 is at"]);
}

#[test]
fn an_action_that_never_comes_to_an_outcome_is_found() {
    is_found(Mistake::LosesActions, &["host 0 still waits for an outcome"]);
}
