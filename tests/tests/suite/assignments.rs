//! Assignments (section 6.4).
