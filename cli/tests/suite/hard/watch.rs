//! A look at a daemon before and after hard input.

use std::fs;

use serde_json::Value;

use crate::daemon::Daemon;

/// How much more memory than before a daemon may ever have taken: a few copies of a whole body of 8 MiB for each of the
/// few calls that the tests make at once, however much they sent.
const PEAK_KIB_MAX: u64 = 128 << 10;
/// Threads above those before: reads that run at once, each on a thread that lives on for a while.
const THREADS_MAX: u64 = 64;

/// See the module. Where the system has no `/proc`, only what is stored is looked at.
pub struct Watch<'a> {
    daemon: &'a Daemon,
    objects: Vec<Value>,
    files: Option<usize>,
    memory_kib: Option<u64>,
    threads: Option<u64>,
}

impl<'a> Watch<'a> {
    /// Looks at a daemon as it is now.
    pub fn over(daemon: &'a Daemon) -> Self {
        // What the first calls make for good is made now.
        daemon.assert_sound();
        let objects = daemon.trace();
        Self {
            daemon,
            objects,
            files: files(daemon),
            memory_kib: status(daemon, "VmRSS"),
            threads: status(daemon, "Threads"),
        }
    }

    /// Nothing changed at all.
    pub fn assert_unchanged(&self, context: &str) {
        assert_eq!(self.daemon.trace(), self.objects, "{context}: nothing changed");
        self.assert_well(context);
    }

    /// Whatever was done, the daemon is alive, sound, and as large as it was.
    pub fn assert_well(&self, context: &str) {
        let ready = self.daemon.request("GET", "/readyz", "", b"");
        assert_eq!(ready.status, 200, "{context}: {:?}", ready.body);
        self.daemon.assert_sound();
        if let (Some(before), Some(peak)) = (self.memory_kib, status(self.daemon, "VmHWM")) {
            assert!(peak <= before + PEAK_KIB_MAX, "{context}: from {before} KiB it went up to {peak}");
        }
        if let (Some(before), Some(threads)) = (self.threads, status(self.daemon, "Threads")) {
            assert!(threads <= before + THREADS_MAX, "{context}: {threads} threads, before {before}");
        }
        self.await_files(context);
    }

    /// The memory that it takes now, in KiB.
    pub fn memory_kib(&self) -> Option<u64> {
        status(self.daemon, "VmRSS")
    }

    /// Files of connections that ended are closed soon, but nothing tells when: the daemon is asked something until they
    /// are.
    fn await_files(&self, context: &str) {
        let Some(before) = self.files else { return };
        for _ in 0..20_000 {
            // One more for a connection that is being closed.
            if files(self.daemon).is_some_and(|files| files <= before + 1) {
                return;
            }
            self.daemon.request("GET", "/healthz", "", b"");
        }
        panic!("{context}: {before} open files became {:?}", files(self.daemon));
    }
}

fn files(daemon: &Daemon) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{}/fd", daemon.pid())).ok()?.count())
}

fn status(daemon: &Daemon, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).ok()?;
    let line = status.lines().find(|line| line.split(':').next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
