//! `kwoon status`: whether the daemon runs, and how it is doing.

use serde_json::{Value, json};

use crate::call;
use crate::client::Client;
use crate::command::Globals;
use crate::exit::{Exit, Failure};
use crate::home::{Home, Running};
use crate::render;
use crate::terminal::{self, Style};
use crate::visible;

/// Pages of agents that are shown at most.
const AGENT_PAGES_MAX: usize = 20;

/// Shows how the daemon is doing.
///
/// # Errors
/// If none runs, or it does not answer.
pub fn status(globals: &Globals) -> Result<Exit, Failure> {
    let home = Home::find(globals.home.as_deref())?;
    let client = Client::new(&home)?;
    let running = client.healthy().ok_or_else(|| Failure::NoDaemon(home.path().to_owned()))?;
    let mut status = call::as_owner(&client, "host_status", &json!({"limit": 1}))?;
    if let (Some(result), Some(http)) = (status["result"].as_object_mut(), &running.http) {
        result.insert("http".to_owned(), json!(format!("http://{http}")));
        result.insert("home".to_owned(), json!(home.path()));
    }
    if let (true, Some(path)) = (status["ok"] == true, &globals.print) {
        call::print_one(&status, path)?;
        return Ok(Exit::Done);
    }
    if globals.json {
        terminal::print(&format!("{status}\n"));
        return Ok(Exit::of(&status));
    }
    let agents = if status["ok"] == true { agents(&client)? } else { Err(status.clone()) };
    match agents {
        Ok(agents) => terminal::print(&shown(&home, &running, &status["result"], &agents)),
        Err(refusal) => {
            terminal::complain(&render::refusal(Style::stderr(), &refusal));
            return Ok(Exit::of(&refusal));
        }
    }
    Ok(Exit::Done)
}

/// An agent, as it is shown: its name, its id, its state.
type Agent = [String; 3];

/// The agents of the host, or the refusal.
fn agents(client: &Client) -> Result<Result<Vec<Agent>, Value>, Failure> {
    let mut agents = Vec::new();
    let mut arguments = json!({"limit": 50});
    for _ in 0..AGENT_PAGES_MAX {
        let page = call::as_owner(client, "agent_list", &arguments)?;
        if page["ok"] != true {
            return Ok(Err(page));
        }
        agents.extend(agents_of(&page));
        match page["cursor"].as_str() {
            Some(cursor) => arguments["cursor"] = json!(cursor),
            None => break,
        }
    }
    Ok(Ok(agents))
}

fn agents_of(page: &Value) -> impl Iterator<Item = Agent> {
    page["result"]["agents"].as_array().into_iter().flatten().map(|agent| {
        let name = agent["name_content"].as_str().map(|key| &page["content"][key]["text"]);
        let text = |value: Option<&Value>| visible::line(value.and_then(Value::as_str).unwrap_or("?"));
        [text(name), text(Some(&agent["agent"])), text(Some(&agent["state"]))]
    })
}

fn shown(home: &Home, running: &Running, status: &Value, agents: &[Agent]) -> String {
    let text = |name: &str| match &status[name] {
        Value::String(text) => visible::line(text),
        other => other.to_string(),
    };
    let sealing = match &status["not_sealing_reason"] {
        Value::String(reason) => format!("no: {}", visible::line(reason)),
        _ if status["sealing"] == true => "yes".to_owned(),
        _ => "no".to_owned(),
    };
    let http =
        running.http.as_deref().map_or_else(|| "none".to_owned(), |http| format!("http://{}", visible::line(http)));
    let mut rows = vec![
        ("kwoon", format!("running, version {} (process {})", text("version"), running.pid)),
        ("home", home.path().display().to_string()),
        ("http", http),
        ("host", text("host")),
        ("sealing", sealing),
        ("objects", text("object_count")),
        ("facts", status["store"]["facts"].to_string()),
        ("texts", status["store"]["texts"].to_string()),
        ("store", in_units(status["store"]["file_bytes"].as_u64().unwrap_or(0))),
    ];
    let columns = agents.iter().map(|agent| agent[0].chars().count()).max().unwrap_or(0);
    if agents.is_empty() {
        rows.push(("agents", "none; make one with: kwoon agent create --name NAME".to_owned()));
    }
    for (at, [name, id, state]) in agents.iter().enumerate() {
        let padding = " ".repeat(columns - name.chars().count());
        rows.push((if at == 0 { "agents" } else { "" }, format!("{name}{padding}  {id}  {state}")));
    }
    rows.iter().map(|(name, value)| format!("{name:<8} {value}\n")).collect()
}

/// A number of bytes for people.
fn in_units(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1024 => return format!("{bytes} bytes"),
        1024..1_048_576 => (1024, "KiB"),
        1_048_576..1_073_741_824 => (1_048_576, "MiB"),
        _ => (1_073_741_824, "GiB"),
    };
    format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        let sizes = [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            (u64::MAX, "17179869183.9 GiB"),
        ];
        for (bytes, shown) in sizes {
            assert_eq!(in_units(bytes), shown);
        }
    }

    #[test]
    fn a_status_is_a_page_of_lines() {
        let page = json!({
            "result": {"agents": [
                {"agent": "agt_a", "state": "active", "name_content": "c1"},
                {"agent": "agt_b", "state": "deactivated", "name_content": "c2"}
            ]},
            "content": {"c1": {"text": "ann"}, "c2": {"text": "r\u{1b}"}}
        });
        let agents: Vec<_> = agents_of(&page).collect();
        let status = json!({
            "host": "ab", "version": "0.1.0", "sealing": true, "object_count": 3,
            "store": {"file_bytes": 1_572_864, "texts": 2, "facts": 7}
        });
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path())).unwrap();
        let running = Running { pid: 42, http: Some("127.0.0.1:7".to_owned()), host: None, socket: "/s".into() };
        let expected = format!(
            "kwoon    running, version 0.1.0 (process 42)\nhome     {}\nhttp     http://127.0.0.1:7\nhost     ab\n\
             sealing  yes\nobjects  3\nfacts    7\ntexts    2\nstore    1.5 MiB\n\
             agents   ann      agt_a  active\n         r\\u{{1b}}  agt_b  deactivated\n",
            home.path().display()
        );
        assert_eq!(shown(&home, &running, &status, &agents), expected);
    }
}
