//! Forged logs are rejected.
