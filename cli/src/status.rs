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

/// Pages of a list that are read at most.
const PAGES_MAX: usize = 20;
/// Objects and hosts that are shown at most, each.
const ROWS_MAX: usize = 20;

/// Shows how the daemon is doing.
///
/// # Errors
/// If none runs, or it does not answer.
pub fn status(globals: &Globals) -> Result<Exit, Failure> {
    let home = Home::find(globals.home.as_deref())?;
    let client = Client::new(&home)?;
    let running = client.healthy().ok_or_else(|| Failure::NoDaemon(home.path().to_owned()))?;
    let mut status = call::as_owner(&client, "host_status", &json!({"limit": 50}))?;
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
    match page(&client, status) {
        Ok(page) => terminal::print(&shown(&home, &running, &page)),
        Err(Stop::Refused(refusal)) => {
            terminal::complain(&render::refusal(Style::stderr(), &refusal));
            return Ok(Exit::of(&refusal));
        }
        Err(Stop::Failed(failure)) => return Err(failure),
    }
    Ok(Exit::Done)
}

/// Why there is nothing to be shown.
enum Stop {
    /// An envelope that is a refusal.
    Refused(Value),
    /// No envelope.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What is shown.
struct Page {
    status: Value,
    agents: Vec<Agent>,
    /// Objects that another host orders.
    elsewhere: Vec<Value>,
    peers: Vec<Value>,
}

fn page(client: &Client, status: Value) -> Result<Page, Stop> {
    let first = ok(status)?;
    let status = first["result"].clone();
    let mut elsewhere = Vec::new();
    walk(client, "host_status", Some(first), |page| {
        let objects = page["result"]["objects"].as_array().into_iter().flatten();
        elsewhere.extend(objects.filter(|object| object["here"] == false).cloned());
    })?;
    let mut agents = Vec::new();
    walk(client, "agent_list", None, |page| agents.extend(agents_of(page)))?;
    let mut peers = Vec::new();
    walk(client, "peer_list", None, |page| {
        peers.extend(page["result"]["peers"].as_array().into_iter().flatten().cloned());
    })?;
    Ok(Page { status, agents, elsewhere, peers })
}

fn ok(envelope: Value) -> Result<Value, Stop> {
    if envelope["ok"] == true { Ok(envelope) } else { Err(Stop::Refused(envelope)) }
}

/// Reads a list page by page, of which the first may be there.
fn walk(client: &Client, operation: &str, mut first: Option<Value>, mut take: impl FnMut(&Value)) -> Result<(), Stop> {
    let mut arguments = json!({"limit": 50});
    for _ in 0..PAGES_MAX {
        let page = match first.take() {
            Some(page) => page,
            None => ok(call::as_owner(client, operation, &arguments)?)?,
        };
        take(&page);
        match page["cursor"].as_str() {
            Some(cursor) => arguments["cursor"] = json!(cursor),
            None => break,
        }
    }
    Ok(())
}

/// An agent, as it is shown: its name, its id, its state.
type Agent = [String; 3];

fn agents_of(page: &Value) -> impl Iterator<Item = Agent> {
    page["result"]["agents"].as_array().into_iter().flatten().map(|agent| {
        let name = agent["name_content"].as_str().map(|key| &page["content"][key]["text"]);
        let text = |value: Option<&Value>| visible::line(value.and_then(Value::as_str).unwrap_or("?"));
        [text(name), text(Some(&agent["agent"])), text(Some(&agent["state"]))]
    })
}

/// An object that another host orders, and when that was last seen.
fn object_row(object: &Value) -> String {
    let text = |name: &str| visible::line(object[name].as_str().unwrap_or("?"));
    format!("{}  {}  last seen {}", text("object"), text("sequencer"), text("last_seen"))
}

fn peer_row(peer: &Value) -> String {
    let text = |name: &str| peer[name].as_str().map(visible::line);
    let state = match (peer["blocked"] == true, peer["connected"] == true) {
        (true, _) => "blocked",
        (false, true) => "connected",
        (false, false) => "away",
    };
    let mut row = format!("{}  {state}", text("host").unwrap_or_else(|| "?".to_owned()));
    if let Some(heard) = text("heard_at") {
        row.push_str(&format!("  clock {:+} ms  heard {heard}", peer["clock_difference_ms"].as_i64().unwrap_or(0)));
    }
    row
}

/// Rows under one name, and how many there are beside them.
fn under(rows: &mut Vec<(&'static str, String)>, name: &'static str, items: &[Value], row: fn(&Value) -> String) {
    for (at, item) in items.iter().take(ROWS_MAX).enumerate() {
        rows.push((if at == 0 { name } else { "" }, row(item)));
    }
    if items.len() > ROWS_MAX {
        rows.push(("", format!("and {} more", items.len() - ROWS_MAX)));
    }
}

fn shown(home: &Home, running: &Running, page: &Page) -> String {
    let Page { status, agents, elsewhere, peers } = page;
    let text = |name: &str| match &status[name] {
        Value::String(text) => visible::line(text),
        other => other.to_string(),
    };
    let sealing = match &status["not_sealing_reason"] {
        Value::String(reason) => format!("no: {}", visible::line(reason)),
        _ if status["sealing"] == true => "yes".to_owned(),
        _ => "no".to_owned(),
    };
    let pending = match status["pending"].as_u64() {
        None | Some(0) => "none".to_owned(),
        Some(count) => format!("{count}, to be sent to the hosts that decide them"),
    };
    let http =
        running.http.as_deref().map_or_else(|| "none".to_owned(), |http| format!("http://{}", visible::line(http)));
    let mut rows = vec![
        ("kwoon", format!("running, version {} (process {})", text("version"), running.pid)),
        ("home", home.path().display().to_string()),
        ("http", http),
        ("host", text("host")),
        ("sealing", sealing),
        ("online", if status["online"] == true { "yes" } else { "no" }.to_owned()),
        ("objects", text("object_count")),
        ("facts", status["store"]["facts"].to_string()),
        ("texts", status["store"]["texts"].to_string()),
        ("pending", pending),
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
    under(&mut rows, "peers", peers, peer_row);
    under(&mut rows, "remote", elsewhere, object_row);
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
            "host": "ab", "version": "0.1.0", "sealing": true, "online": true, "object_count": 3, "pending": 2,
            "store": {"file_bytes": 1_572_864, "texts": 2, "facts": 7}
        });
        let elsewhere = vec![json!({"object": "thr_a", "sequencer": "cd", "last_seen": "t", "here": false})];
        let peers = vec![
            json!({"host": "cd", "connected": true, "blocked": false, "heard_at": "t", "clock_difference_ms": -3}),
            json!({"host": "ef", "connected": false, "blocked": false, "clock_difference_ms": 0}),
        ];
        let page = Page { status, agents, elsewhere, peers };
        let dir = tempfile::tempdir().unwrap();
        let home = Home::find(Some(dir.path())).unwrap();
        let running = Running { pid: 42, http: Some("127.0.0.1:7".to_owned()), host: None, socket: "/s".into() };
        let expected = format!(
            "kwoon    running, version 0.1.0 (process 42)\nhome     {}\nhttp     http://127.0.0.1:7\nhost     ab\n\
             sealing  yes\nonline   yes\nobjects  3\nfacts    7\ntexts    2\n\
             pending  2, to be sent to the hosts that decide them\nstore    1.5 MiB\n\
             agents   ann      agt_a  active\n         r\\u{{1b}}  agt_b  deactivated\n\
             peers    cd  connected  clock -3 ms  heard t\n         ef  away\n\
             remote   thr_a  cd  last seen t\n",
            home.path().display()
        );
        assert_eq!(shown(&home, &running, &page), expected);
    }
}
