//! Entries and responses (section 6.3).
