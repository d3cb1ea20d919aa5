//! The contracts event and compatibility.
