//! Memory (section 5).
