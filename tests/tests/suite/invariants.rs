//! The invariants (section 3).
