//! Who owes what after the facts of a thread, told from them alone: each host has its own copy.

use serde_json::Value;

/// An obligation that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owed {
    /// Its id.
    pub obligation: String,
    /// The agent that owes it.
    pub bearer: String,
    /// `respond`, `deliver` or `judge`.
    pub duty: String,
    /// The entry it is about.
    pub entry: u64,
}

/// What is owed after these facts of a thread, as `object_log` shows them, in the order in which it began.
pub fn after(facts: &[Value]) -> Vec<Owed> {
    let mut open: Vec<Owed> = Vec::new();
    for effect in facts.iter().flat_map(|fact| fact["event"]["payload"]["effects"].as_array()).flatten() {
        let text = |name: &str| effect[name].as_str().unwrap_or_default().to_owned();
        match effect["kind"].as_str() {
            Some("obligation_began") => open.push(Owed {
                obligation: text("obligation"),
                bearer: text("bearer"),
                duty: text("duty"),
                entry: effect["entry"].as_u64().unwrap_or_default(),
            }),
            Some("obligation_ended") => open.retain(|owed| owed.obligation != text("obligation")),
            _ => {}
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_began_and_has_not_ended_is_owed() {
        let effect = |kind: &str, obligation: &str, entry: u64| {
            let mut effect = json!({"kind": kind, "obligation": obligation, "entry": entry});
            (effect["duty"], effect["bearer"]) = (json!("respond"), json!("agt_a"));
            effect
        };
        let fact = |effects: Value| json!({"event": {"payload": {"effects": effects}}});
        let facts = [
            fact(json!([{"kind": "member_joined", "agent": "agt_a"}])),
            fact(json!([effect("obligation_began", "obl_a", 1), effect("obligation_began", "obl_b", 1)])),
            fact(json!([effect("obligation_ended", "obl_a", 1), effect("obligation_began", "obl_c", 2)])),
        ];
        let open: Vec<_> = after(&facts).into_iter().map(|owed| (owed.obligation, owed.entry)).collect();
        assert_eq!(open, [("obl_b".to_owned(), 1), ("obl_c".to_owned(), 2)]);
    }
}
