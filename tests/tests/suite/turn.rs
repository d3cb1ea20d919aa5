//! Turn and recovery (section 8).
