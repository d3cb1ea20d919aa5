//! The keys of this host: its own, its owner's, and those of the instances that live on it.

use std::collections::BTreeMap;

use kwoon_keys::id::{AgentId, RequestId};
use kwoon_keys::secret::{InstanceKeys, request_id};
use kwoon_keys::{KeyPair, RequestSecret};

/// See the module. Nothing of it prints.
#[derive(Clone, Debug)]
pub struct Keyring {
    /// Signs seals. Its public half is the host's id.
    pub host: KeyPair,
    /// Signs identity records.
    pub owner: KeyPair,
    owner_secret: RequestSecret,
    agents: BTreeMap<AgentId, InstanceKeys>,
}

impl Keyring {
    /// The keys of a home.
    pub fn new(host: KeyPair, owner: KeyPair, agents: Vec<InstanceKeys>) -> Self {
        let owner_secret = RequestSecret::of_owner(&owner);
        Self { host, owner, owner_secret, agents: agents.into_iter().map(|keys| (keys.agent, keys)).collect() }
    }

    /// The keys of an instance that lives here.
    pub fn agent(&self, agent: &AgentId) -> Option<&InstanceKeys> {
        self.agents.get(agent)
    }

    /// The agents with an instance here.
    pub fn agents(&self) -> impl Iterator<Item = &AgentId> {
        self.agents.keys()
    }

    /// Adds an instance.
    pub fn add(&mut self, keys: InstanceKeys) {
        self.agents.insert(keys.agent, keys);
    }

    /// The secret that the owner's requests are keyed with.
    pub fn owner_secret(&self) -> &RequestSecret {
        &self.owner_secret
    }

    /// The ids that a request of an agent can have, the present secret's first: earlier generations of the secret
    /// recognise earlier requests.
    pub fn request_ids(&self, agent: &AgentId, operation: &str, key: &str) -> Vec<(u32, RequestId)> {
        let Some(keys) = self.agents.get(agent) else { return Vec::new() };
        let generations = keys.secrets.iter().enumerate().rev();
        generations
            .map(|(generation, secret)| {
                (generation as u32, request_id(agent.as_bytes(), &secret.token(operation, key)))
            })
            .collect()
    }
}
