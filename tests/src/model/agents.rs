//! Agents: who can act (A1 to A3, ID).

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{Caller, Code, Done, Milliseconds, Mistake, Model, content, handle, put};

/// An agent. Its version is the number of its records.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Its name here.
    pub name: String,
    /// When it was made.
    pub created_at: Milliseconds,
    /// Its whole id in hexadecimal, by which those who are asked are ordered; known once the host has made it.
    pub full_id: String,
    /// The latest time of its log.
    pub clock: Milliseconds,
    /// What it was at each version.
    pub versions: Vec<Profile>,
}

/// What an agent is at one version.
#[derive(Clone, Debug)]
pub struct Profile {
    /// `active`, `deactivated` or `terminated`.
    pub state: &'static str,
    /// The display name.
    pub display_name: Option<String>,
    /// The mission.
    pub mission: Option<String>,
    /// The owner's reason for the latest change of state.
    pub reason: Option<String>,
    /// The agent it follows.
    pub predecessor: Option<usize>,
}

impl Model {
    /// Whether an agent can act.
    pub fn is_active(&self, agent: usize) -> bool {
        self.profile(agent).state == "active"
    }

    fn profile(&self, agent: usize) -> &Profile {
        self.agents[agent].versions.last().expect("a first version")
    }

    pub(super) fn perform_as_owner(&mut self, operation: &str, given: Arguments<'_>) -> Result<Done, Code> {
        match operation {
            "agent_create" => self.agent_create(given),
            "agent_update" => self.agent_update(given),
            "agent_deactivate" => self.agent_status(given, "deactivated"),
            "agent_reactivate" => self.agent_status(given, "active"),
            "agent_terminate" => self.agent_status(given, "terminated"),
            _ => panic!("no action {operation} of the owner's"),
        }
    }

    fn agent_create(&mut self, given: Arguments<'_>) -> Result<Done, Code> {
        let name = given.own_text("name").expect("a name");
        let predecessor = given.place("predecessor", "agt").filter(|agent| *agent < self.agents.len());
        if given.get("predecessor").is_some() && predecessor.is_none() {
            return Err("not_found");
        }
        if name == "owner" || self.agents.iter().any(|agent| agent.name == name) {
            return Err("name_taken");
        }
        let (display_name, mission) = (given.own_text("display_name"), given.own_text("mission"));
        self.fits_line(display_name.as_deref())?;
        self.fits_line(mission.as_deref())?;
        let first = Profile { state: "active", display_name, mission, reason: None, predecessor };
        self.agents.push(Agent {
            name,
            created_at: self.at,
            clock: self.at,
            full_id: String::new(),
            versions: vec![first],
        });
        Ok(self.identity_set(self.agents.len() - 1))
    }

    fn agent_update(&mut self, given: Arguments<'_>) -> Result<Done, Code> {
        let agent = self.known_agent(given)?;
        if given.number("expected_version") != Some(self.agents[agent].versions.len() as u64) {
            return Err("version_conflict");
        }
        let mut profile = self.profile(agent).clone();
        if profile.state == "terminated" {
            return Err("already_final");
        }
        if given.get("display_name").is_none() && given.get("mission").is_none() {
            return Err("no_change");
        }
        profile.display_name = given.own_text("display_name").or(profile.display_name);
        profile.mission = given.own_text("mission").or(profile.mission);
        self.fits_line(profile.display_name.as_deref())?;
        self.fits_line(profile.mission.as_deref())?;
        self.agents[agent].versions.push(profile);
        Ok(self.identity_set(agent))
    }

    fn agent_status(&mut self, given: Arguments<'_>, state: &'static str) -> Result<Done, Code> {
        let agent = self.known_agent(given)?;
        let mut profile = self.profile(agent).clone();
        if profile.state == "terminated" {
            return Err("already_final");
        }
        if profile.state == state {
            return Err("no_change");
        }
        profile.state = state;
        profile.reason = given.own_text("reason");
        self.agents[agent].versions.push(profile);
        let at = self.at;
        if state != "active" && !self.errs(Mistake::DeactivationKeepsMemberships) {
            for thread in 0..self.threads.len() {
                if self.member(thread, agent).is_some() {
                    self.threads[thread].clock = self.now.max(self.threads[thread].clock);
                    self.at = self.threads[thread].clock;
                    self.end_membership(thread, agent, "inactive");
                    if self.threads[thread].open && self.governors(thread) == 0 {
                        self.close(thread);
                    }
                }
            }
        }
        self.at = at;
        Ok(self.identity_set(agent))
    }

    fn known_agent(&self, given: Arguments<'_>) -> Result<usize, Code> {
        given.place("agent", "agt").filter(|agent| *agent < self.agents.len()).ok_or("not_found")
    }

    fn identity_set(&self, agent: usize) -> Done {
        let (id, version) = (handle("agt", agent), self.agents[agent].versions.len());
        let effect = json!({"kind": "identity_set", "agent": id, "version": version});
        Done::new(id.clone(), json!({"agent": id, "version": version}), vec![effect])
    }

    /// An identity is read by the agent itself and by the owner.
    pub(super) fn agent_get(&self, reader: Caller, given: Arguments<'_>) -> Result<Value, Code> {
        let agent = self.known_agent(given)?;
        if reader != Caller::Owner && reader != Caller::Agent(agent) {
            return Err("not_found");
        }
        let version = given.number("version").map_or(self.agents[agent].versions.len(), |version| version as usize);
        self.agent_at(agent, version)
    }

    /// An agent at its present version.
    pub(super) fn agent_row(&self, agent: usize) -> Value {
        self.agent_at(agent, self.agents[agent].versions.len()).expect("a version")
    }

    fn agent_at(&self, agent: usize, version: usize) -> Result<Value, Code> {
        let Agent { name, created_at, versions, .. } = &self.agents[agent];
        let profile = version.checked_sub(1).and_then(|before| versions.get(before)).ok_or("not_found")?;
        let line = |field: &str, text: &str| content(None, field, "text/plain", text);
        let mut shown = json!({
            "agent": handle("agt", agent),
            "state": profile.state,
            "version": version,
            "current_version": versions.len(),
            "created_at": self.shown(*created_at),
            "name_content": line("name", name),
            "policy_refs": [],
        });
        let display_name = profile.display_name.as_deref();
        put(&mut shown, "display_name_content", display_name.map(|text| line("display_name", text)));
        put(&mut shown, "mission_content", profile.mission.as_deref().map(|text| line("mission", text)));
        put(&mut shown, "reason_content", profile.reason.as_deref().map(|text| line("reason", text)));
        put(&mut shown, "predecessor", profile.predecessor.map(|agent| json!(handle("agt", agent))));
        Ok(shown)
    }

    pub(super) fn fits_line(&self, text: Option<&str>) -> Result<(), Code> {
        self.fits(text, self.limits.line_bytes_max)
    }

    /// Whether a text is not longer than what the host allows.
    pub(super) fn fits(&self, text: Option<&str>, bytes_max: u64) -> Result<(), Code> {
        if text.is_none_or(|text| text.len() as u64 <= bytes_max) { Ok(()) } else { Err("content_too_large") }
    }
}
