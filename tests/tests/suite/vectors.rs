//! The encodings of docs/format.md.
