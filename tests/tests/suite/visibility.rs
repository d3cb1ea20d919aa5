//! Visibility (section 9).
