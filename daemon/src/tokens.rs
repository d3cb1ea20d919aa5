//! Tokens: who a request is from. Only hashes of them are kept in memory, and looking one up compares hashes, so no
//! timing tells how much of a guess was right.

use std::collections::BTreeMap;

use kwoon_keys::Digest;
use kwoon_sync::view::Caller;

/// See the module.
#[derive(Debug, Default)]
pub struct Tokens {
    callers: BTreeMap<Digest, Caller>,
}

fn hash(token: &str) -> Digest {
    Digest::of("kwoon 1 token", &[token.as_bytes()])
}

impl Tokens {
    /// Lets a token stand for a caller.
    pub fn add(&mut self, token: &str, caller: Caller) {
        self.callers.insert(hash(token), caller);
    }

    /// Whom a token stands for.
    pub fn caller(&self, token: &str) -> Option<Caller> {
        self.callers.get(&hash(token)).copied()
    }
}
