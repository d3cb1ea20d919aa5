//! Why a link was closed, as the other end learns it.

/// Nothing is wrong: whoever closed it has no more use for it.
pub const DONE: u32 = 0;
/// Another link with the same host took its place.
pub const REPLACED: u32 = 1;
/// The host is blocked there.
pub const BLOCKED: u32 = 2;
/// There is no room for another link; it is worth trying again later.
pub const FULL: u32 = 3;
/// The host goes offline.
pub const OFFLINE: u32 = 4;
/// What came was not frames, or a frame was too long.
pub const PROTOCOL: u32 = 5;
/// What was awaited did not come in time.
pub const LATE: u32 = 6;
/// The first code of the upper layer; those below are this crate's.
pub const UPPER_MIN: u32 = 16;
