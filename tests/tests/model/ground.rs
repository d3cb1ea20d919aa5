//! What the model is compared with: one host, or agents on several that hear of everything at once.

use kwoon_ledger::limits::Limits;
use kwoon_ledger::time::Time;
use kwoon_tests::{Across, Agent, Hall};
use serde_json::Value;

/// Hosts over which agents are dealt.
const HOSTS: usize = 3;

/// See the module.
pub trait Ground {
    /// Whether agents live on several hosts.
    const ACROSS: bool;

    /// Hosts with these limits, where nobody lives yet.
    fn with_limits(limits: Limits) -> Self;
    /// The virtual clock.
    fn now(&mut self) -> &mut Time;
    /// Lets the hosts do what is due.
    fn wake(&mut self);
    /// Kills the daemons and starts them again.
    fn restart(&mut self);
    /// Calls an operation; the envelope of the answer.
    fn call(&mut self, caller: &Agent, operation: &str, arguments: Value) -> Value;
    /// Calls that come one after the other, on one host in one round.
    fn round(&mut self, calls: &[(&Agent, &str, Value)]) -> Vec<Value>;
    /// A call whose commit fails.
    fn lose(&mut self, caller: &Agent, operation: &str, arguments: &Value);
    /// An agent by its outside id.
    fn known(&mut self, id: &Value) -> Agent;
    /// Verifies every log on every host.
    fn verify(&mut self);
}

impl Ground for Hall {
    const ACROSS: bool = false;

    fn with_limits(limits: Limits) -> Self {
        Self::with_limits(limits)
    }

    fn now(&mut self) -> &mut Time {
        &mut self.now
    }

    fn wake(&mut self) {
        self.wake();
    }

    fn restart(&mut self) {
        self.restart();
    }

    fn call(&mut self, caller: &Agent, operation: &str, arguments: Value) -> Value {
        self.call(caller, operation, arguments)
    }

    fn round(&mut self, calls: &[(&Agent, &str, Value)]) -> Vec<Value> {
        self.round(calls)
    }

    fn lose(&mut self, caller: &Agent, operation: &str, arguments: &Value) {
        self.call_uncommitted(caller, operation, arguments);
    }

    fn known(&mut self, id: &Value) -> Agent {
        Self::known(self, id)
    }

    fn verify(&mut self) {
        self.verify();
    }
}

impl Ground for Across {
    const ACROSS: bool = true;

    fn with_limits(limits: Limits) -> Self {
        Self::dealing(HOSTS, limits)
    }

    fn now(&mut self) -> &mut Time {
        &mut self.now
    }

    fn wake(&mut self) {
        self.wake();
    }

    fn restart(&mut self) {
        self.restart();
    }

    fn call(&mut self, caller: &Agent, operation: &str, arguments: Value) -> Value {
        self.call(caller, operation, arguments)
    }

    fn round(&mut self, calls: &[(&Agent, &str, Value)]) -> Vec<Value> {
        calls.iter().map(|(caller, operation, arguments)| self.call(caller, operation, arguments.clone())).collect()
    }

    fn lose(&mut self, caller: &Agent, operation: &str, arguments: &Value) {
        self.together(&[(caller, operation, arguments.clone())], false);
    }

    fn known(&mut self, id: &Value) -> Agent {
        self.known(id)
    }

    fn verify(&mut self) {
        self.verify();
    }
}
