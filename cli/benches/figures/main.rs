//! Speed and size of one host, each figure beside a bound that is measured in the same run: `cargo bench -p kwoon`.
//!
//! Options after `--`: `--facts N` (facts of the large store, 1,000,000 unless said), `--home DIR` (keep the large home
//! there and use it again if it is there; else a temporary one), `--only WORD` (sections whose name begins so).
//! What is measured against what stands in docs/performance.md.

mod bound;
mod caller;
mod daemon;
mod facts;
mod load;

use std::path::{Path, PathBuf};
use std::time::Duration;

use caller::Caller;
use daemon::Daemon;
use serde_json::{Value, json};

/// Facts of the small store.
const SMALL_FACTS: u64 = 10_000;
/// Callers at once.
const CALLERS: usize = 64;
/// Bytes of an entry's text.
const TEXT_BYTES: usize = 200;
/// Entries of one thread when a store is filled.
const THREAD_ENTRIES: u64 = 62_500;
/// Facts looked at for the bounds.
const SAMPLE: usize = 40_000;

struct Options {
    facts: u64,
    home: Option<PathBuf>,
    only: Option<String>,
}

impl Options {
    fn read() -> Self {
        let mut options = Self { facts: 1_000_000, home: None, only: None };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} takes a value"));
            match argument.as_str() {
                "--facts" => options.facts = value().parse().expect("a number of facts"),
                "--home" => options.home = Some(value().into()),
                "--only" => options.only = Some(value()),
                // Cargo says so to every bench.
                "--bench" => {}
                other => panic!("unknown option {other}; there are --facts, --home and --only"),
            }
        }
        options
    }

    fn wants(&self, section: &str) -> bool {
        self.only.as_ref().is_none_or(|only| section.starts_with(only.as_str()))
    }
}

fn main() {
    let options = Options::read();
    let scratch = tempfile::tempdir().expect("a temporary directory");
    println!(
        "{} cores; {}",
        std::thread::available_parallelism().map_or(0, usize::from),
        commit_latency(scratch.path())
    );
    if options.wants("acknowledged") {
        acknowledged(scratch.path());
    }
    if options.wants("single") {
        single(scratch.path());
    }
    if options.wants("large") {
        large(&options, scratch.path());
    }
}

fn commit_latency(scratch: &Path) -> String {
    format!("one durable commit of 1 KiB: {}", shown(median(bound::commits(scratch, 1024, 300))))
}

/// Acknowledged entries of many callers on one thread, against a bare loop in batches of the same size.
fn acknowledged(scratch: &Path) {
    let home = scratch.join("acknowledged");
    let daemon = Daemon::fresh(&home);
    let callers = load::callers(&daemon, CALLERS);
    let thread = load::thread(&daemon, &callers);
    load::post(&daemon, &callers, &thread, 4_000);
    let processor = daemon.processor_time();
    let entries = 40_000;
    let took = load::post(&daemon, &callers, &thread, entries);
    let processor = daemon.processor_time() - processor;
    daemon.stop();
    let sample = facts::entries(&home, &thread, SAMPLE);
    let bare = bound::sign_verify_commit(scratch, &sample.work, sample.batch);
    let (rate, bound) = (per_second(entries, took), per_second(sample.work.len() as u64, bare));
    println!(
        "acknowledged entries, {CALLERS} callers on one thread: {rate:.0}/s; bare loop in batches of {}: {bound:.0}/s; \
         ratio {:.2} (at least 0.5); daemon's processor time {} each",
        sample.batch,
        rate / bound,
        shown(processor / entries as u32)
    );
}

/// One caller, one action at a time, against one durable commit of the same bytes and a round trip.
fn single(scratch: &Path) {
    let home = scratch.join("single");
    let daemon = Daemon::fresh(&home);
    let callers = load::callers(&daemon, 2);
    let thread = load::thread(&daemon, &callers);
    let mut caller = Caller::new(&daemon.address, &callers[0].token);
    let count = 2_000;
    let requests: Vec<Vec<u8>> =
        (0..count).map(|_| caller.request("entry_post", &load::entry(&thread, json!([])))).collect();
    let (warm, measured) = requests.split_at(200);
    for request in warm {
        caller.send(request);
    }
    let took = median(measured.iter().map(|request| caller.timed(request)).collect());
    let health = caller.health();
    let round_trip = median((0..count).map(|_| caller.timed(&health)).collect());
    daemon.stop();
    let bytes = facts::entries(&home, &thread, SAMPLE).bytes_each();
    let commit = median(bound::commits(scratch, bytes, count));
    println!(
        "one caller, one entry at a time: {}; one commit of {bytes} bytes {} and a round trip {}; \
         ratio to both {:.2} (at most {:.2}: 1.5 commits and a round trip)",
        shown(took),
        shown(commit),
        shown(round_trip),
        ratio(took, commit + round_trip),
        ratio(commit.mul_f64(1.5) + round_trip, commit + round_trip),
    );
}

/// What depends on how much a home holds.
fn large(options: &Options, scratch: &Path) {
    let small = turn_of_small(scratch);
    let home = options.home.clone().unwrap_or_else(|| scratch.join("large"));
    let filled = if home.join("bench.json").exists() {
        serde_json::from_slice(&std::fs::read(home.join("bench.json")).expect("a file")).expect("JSON")
    } else {
        fill(&home, options.facts)
    };
    let thread = filled["thread"].as_str().expect("a thread");
    let total = facts::count(&home);
    println!("large store: {total} facts");

    let bare_open = median((0..9).map(|_| bound::open_bare(&facts::store_path(&home))).collect());
    let daemon = Daemon::start(&home);
    let clean = daemon.ready;
    let (idle, _) = daemon.memory();
    let large = turn(&daemon, "owing");
    let (after_reads, _) = daemon.memory();
    println!(
        "turn with 20 obligations: {} at {SMALL_FACTS} facts, {} at {total}; ratio {:.2} (at most 1.3)",
        shown(small),
        shown(large),
        ratio(large, small)
    );
    daemon.stop();
    let clean = median((0..5).map(|_| started(&home, Daemon::stop)).chain([clean]).collect());
    let bound = bare_open * 3 + Duration::from_millis(100);
    println!("ready after a clean stop: {}; bare open {}; bound {}", shown(clean), shown(bare_open), shown(bound));
    // Every start but the first follows a kill.
    started(&home, Daemon::kill);
    let mut killed: Vec<Duration> = (0..5).map(|_| started(&home, Daemon::kill)).collect();
    let daemon = Daemon::start(&home);
    killed.push(daemon.ready);
    println!("ready after kill -9: {}; bound {}", shown(median(killed)), shown(bound * 3));
    daemon.stop();

    let sample = facts::entries(&home, thread, SAMPLE);
    let bytes = facts::disk_bytes(&home) as f64 / total as f64;
    println!(
        "disk: {bytes:.0} bytes for each fact; signed bytes and content {}; ratio {:.2} (at most 4)",
        sample.bytes_each(),
        bytes / sample.bytes_each() as f64
    );
    println!(
        "memory of an idle daemon: {} MiB after the start, {} MiB after reads (under 150)",
        idle >> 20,
        after_reads >> 20
    );

    let verified = per_second(sample.signed.len() as u64, facts::verify(&sample.signed));
    let daemon = Daemon::with(&home, &["--rebuild"]);
    let rebuilt = per_second(total, daemon.ready);
    let cores = daemon.processor_time().as_secs_f64() / daemon.ready.as_secs_f64();
    println!(
        "rebuild: {rebuilt:.0} facts/s with {cores:.1} cores busy; strict verification on one core {verified:.0}/s; \
         ratio {:.2} to one core, {:.2} to as many as were busy (at least 0.5)",
        rebuilt / verified,
        rebuilt / verified / cores.max(1.0)
    );
    let (idle, most) = daemon.memory();
    println!("memory after a rebuild: {} MiB, at most {} MiB", idle >> 20, most >> 20);
    daemon.stop();
}

/// Starts a daemon, ends it in this way, and says how long it took to be ready.
fn started(home: &Path, end: fn(Daemon)) -> Duration {
    let daemon = Daemon::start(home);
    let ready = daemon.ready;
    end(daemon);
    ready
}

fn fill(home: &Path, facts: u64) -> Value {
    let daemon = Daemon::fresh(home);
    let callers = load::callers(&daemon, CALLERS);
    load::owing(&daemon, &callers[0]);
    let mut threads = Vec::new();
    let mut posted = 0;
    while posted < facts {
        let thread = load::thread(&daemon, &callers);
        let count = THREAD_ENTRIES.min(facts - posted);
        let took = load::post(&daemon, &callers, &thread, count);
        posted += count;
        println!("  filling: {posted} of {facts}, {:.0}/s, {} MiB", per_second(count, took), daemon.memory().0 >> 20);
        threads.push(thread);
    }
    daemon.stop();
    let filled = json!({"thread": threads[0]});
    std::fs::write(home.join("bench.json"), filled.to_string()).expect("a file");
    filled
}

fn turn_of_small(scratch: &Path) -> Duration {
    let home = scratch.join("small");
    fill(&home, SMALL_FACTS);
    let daemon = Daemon::start(&home);
    let took = turn(&daemon, "owing");
    daemon.stop();
    took
}

/// The median time of `turn` of this agent, which owes twenty responses.
fn turn(daemon: &Daemon, agent: &str) -> Duration {
    let mut caller = Caller::new(&daemon.address, &daemon.token(agent));
    let answer = caller.call("turn", &json!({}));
    assert_eq!(answer["result"]["obligations"].as_array().map(Vec::len), Some(20));
    let request = caller.request("turn", &json!({}));
    for _ in 0..200 {
        caller.send(&request);
    }
    median((0..2_000).map(|_| caller.timed(&request)).collect())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn per_second(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

fn ratio(of: Duration, to: Duration) -> f64 {
    of.as_secs_f64() / to.as_secs_f64()
}

fn shown(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1000.0)
}
