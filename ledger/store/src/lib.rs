//! The home of a kwoon host and what it stores there.
//!
//! [`Home`] is one directory with its lock, keys and tokens. [`DiskStore`] keeps the ledger's tables in one redb file
//! and longer content in files beside it; [`MemoryStore`] answers alike without a disk.
//!
//! This crate never decides anything: it knows no record and no rule, only tables of bytes, content and key files. What
//! a dropped derived table held it asks of the ledger, see [`rebuild()`].
//! It never talks to the network and reads no clock.

mod backup;
mod content;
mod disk;
mod error;
mod fault;
mod files;
mod held;
mod home;
mod lock;
mod memory;
mod rebuild;

pub use backup::{BackupError, BackupReport};
pub use content::{INLINE_BYTES_MAX, is_content_row};
pub use disk::{CACHE_BYTES_DEFAULT, DiskStore, JOURNAL_BYTES_DEFAULT, Sizes, Snapshot, StoreStats, is_journal_row};
pub use error::{OpenError, TokenError};
pub use fault::DISK_FULL;
pub use home::{HOME_VERSION, Home, OpenMode, read_token};
pub use memory::{MemorySnapshot, MemoryStore};
pub use rebuild::{RebuildError, RebuildReport, Rebuildable, rebuild, rebuild_in_steps_of};

/// The version of the tables this crate writes: 1 had no journal and no table of what is in quarantine, 2 none of what
/// lies between hosts.
pub const STORE_VERSION: u32 = 3;

/// The oldest version of the tables that this crate brings up to [`STORE_VERSION`] when it opens a store.
pub const OLDEST_STORE_VERSION: u32 = 1;

/// The key in the table `Meta` under which every store holds its version, as four big-endian bytes.
pub const VERSION_KEY: &[u8] = b"version";
