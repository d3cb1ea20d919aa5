//! Limits on everything that can grow, in one table.
//!
//! There are two columns. [`Limits::MAXIMA`] belongs to the format: `decide` checks them, so every replica does.
//! [`Limits::DEFAULT`] are what a host allows its own agents unless configured otherwise, at or below the maxima;
//! they are checked by the acting host and the sequencer, never by a replica.

use crate::time::Duration;

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $default:expr, $maximum:expr;)*) => {
        /// See the module.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits { $($(#[$doc])* pub $name: u64,)* }

        impl Limits {
            /// What a host allows unless it is configured otherwise.
            pub const DEFAULT: Self = Self { $($name: $default,)* };
            /// What the format allows (rules version 1).
            pub const MAXIMA: Self = Self { $($name: $maximum,)* };

            /// Every limit with its name.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Sets one limit by name, at most to the maximum of the format.
            ///
            /// # Errors
            /// With the maximum, if `value` is above it; with nothing, if there is no such limit.
            pub fn set(&mut self, name: &str, value: u64) -> Result<(), Option<u64>> {
                match name {
                    $(stringify!($name) if value > $maximum => Err(Some($maximum)),
                      stringify!($name) => { self.$name = value; Ok(()) })*
                    _ => Err(None),
                }
            }
        }
    };
}

limits! {
    /// Bytes of a request's body that are read as a request.
    request_bytes_max: 8 << 20, 64 << 20;
    /// Bytes of a memory's text.
    text_bytes_max: 1 << 20, 16 << 20;
    /// Bytes of the payload of a delivery.
    payload_bytes_max: 1 << 20, 16 << 20;
    /// Bytes of acceptance criteria, of an output schema and of a reason.
    criteria_bytes_max: 64 << 10, 1 << 20;
    /// Bytes of a handling note.
    note_bytes_max: 4 << 10, 64 << 10;
    /// Bytes of a summary.
    summary_bytes_max: 2 << 10, 64 << 10;
    /// Bytes of a subject, a title, a mission, a display name, a tag or a policy reference.
    line_bytes_max: 1 << 10, 16 << 10;
    /// Members that one entry can ask.
    ask_max: 64, 256;
    /// Tags of a memory, and policy references of an agent.
    tags_max: 32, 64;
    /// Memories in one delivery.
    output_memories_max: 32, 64;
    /// Members of a thread.
    members_max: 256, 1024;
    /// Threads in which an agent is a member while they are open.
    open_threads_max: 1_000, 1_000_000;
    /// Unended obligations that one agent caused in one thread.
    obligations_caused_max: 4_096, 65_536;
    /// Unended obligations in one thread.
    obligations_open_max: 65_536, 65_536;
    /// Versions of an identity. The last sixteen are kept for deactivation, termination and revocation.
    identity_versions_max: 4_096, 4_096;
    /// Actions that wait for an outcome.
    outbox_max: 10_000, 1_000_000;
    /// Actions of one agent in a second.
    actions_per_second_max: 200, 1_000_000;
    /// Actions of one agent at once.
    actions_burst_max: 2_000, 10_000_000;
    /// Failed joins of one agent in 15 minutes.
    failed_joins_max: 20, 1_000;
    /// Records of unknown versions and kinds that are kept in quarantine.
    quarantine_records_max: 1_000, 65_536;
    /// Bytes of all records in quarantine.
    quarantine_bytes_max: 64 << 20, 1 << 30;
}

/// The window in which failed joins are counted.
pub const FAILED_JOINS_WINDOW: Duration = Duration::minutes(15);
/// The shortest duration that can be asked for.
pub const DURATION_MIN: Duration = Duration::seconds(1);
/// The longest duration that can be asked for.
pub const DURATION_MAX: Duration = Duration::days(400);
/// Delivery and judgment time where nothing is stated (L4.2). Written into the action before it is signed.
pub const DEADLINE_DEFAULT: Duration = Duration::days(7);
/// How long an action stays valid unless stated otherwise.
pub const ACTION_VALIDITY: Duration = Duration::days(30);
/// How long an action can be made valid.
pub const ACTION_VALIDITY_MAX: Duration = Duration::days(90);
/// Bytes of one signed action, without the content it commits to.
pub const ACTION_BYTES_MAX: usize = 256 << 10;
/// Identity records in one account fact; more go into several facts.
pub const ACCOUNT_RECORDS_MAX: usize = 256;
/// Pieces of evidence in one fact.
pub const EVIDENCE_MAX: usize = 16;
/// Facts between a fact and the seal that its outcome rests on.
pub const LATER_MAX: usize = 16_384;
/// Signatures over one seal.
pub const SIGNATURES_MAX: usize = 16;
/// Bytes of one item of a log file.
pub const FILE_ITEM_BYTES_MAX: usize = 64 << 20;
/// Bytes of all facts of a log file that is checked here.
pub const FILE_FACTS_BYTES_MAX: usize = 128 << 20;
/// Bytes of one record in quarantine.
pub const QUARANTINE_RECORD_BYTES_MAX: usize = 4 << 20;
/// Links in `needs` and in `after`, each.
pub const LINKS_MAX: usize = 64;
/// Identity versions kept for what ends something, above which profile changes are refused.
pub const IDENTITY_VERSIONS_RESERVED: u64 = 16;
