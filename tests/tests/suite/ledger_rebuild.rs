//! The state follows from the facts and nothing else (L1).
