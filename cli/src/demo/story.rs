//! The story, step by step. What it says was done has been done, and what it says a side sees was read there.

use std::path::Path;

use serde_json::{Value, json};

use super::host::{Host, Standing, content, rows, text, until};
use super::owed::Owed;
use crate::exit::Failure;
use crate::terminal::{self, Style};
use crate::visible;

/// Where names stand, and what they did beside them.
const NAME_COLUMNS: usize = 14;

/// Says what happens.
struct Teller {
    style: Style,
    step: u32,
}

impl Teller {
    fn step(&mut self, title: &str) {
        self.step += 1;
        let title = format!("{}. {}", self.step, visible::line(title));
        terminal::print(&format!("\n{}\n", self.style.bold(&title)));
    }

    /// What somebody did or sees, each line beside the name.
    fn say(&self, who: &str, what: &str) {
        let mut name = visible::line(who);
        for line in what.lines() {
            terminal::print(&format!("   {name:<NAME_COLUMNS$} {}\n", visible::line(line)));
            name.clear();
        }
    }
}

/// Plays the story in a directory; both hosts, which still run.
///
/// # Errors
/// If it does not come out.
pub async fn tell(directory: &Path) -> Result<[Host; 2], Failure> {
    let mut teller = Teller { style: Style::stdout(), step: 0 };
    terminal::print("Two hosts, Alice's and Bob's, in temporary homes. Nothing leaves this machine.\n");
    let played = play(&mut teller, directory).await;
    played.map_err(|failure| Failure::Failed(format!("the demo did not come out at step {}: {failure}", teller.step)))
}

async fn play(teller: &mut Teller, directory: &Path) -> Result<[Host; 2], Failure> {
    teller.step("Both hosts start.");
    let (alice, bob) = tokio::try_join!(Host::start(directory, "Alice"), Host::start(directory, "Bob"))?;
    for host in [&alice, &bob] {
        teller.say(&host.title, &format!("process {}, with an owner and one agent, {}", host.pid, host.name));
    }
    meet(teller, &alice, &bob).await?;
    let thread = share(teller, &alice, &bob).await?;
    let assignment = offer(teller, &alice, &bob, &thread).await?;
    part(teller, &alice, &bob).await?;
    apart(teller, &alice, &bob, &thread, &assignment).await?;
    rejoin(teller, &alice, &bob).await?;
    judge(teller, &alice, &assignment).await?;
    agree(teller, &alice, &bob, &thread).await?;
    Ok([alice, bob])
}

async fn meet(teller: &mut Teller, alice: &Host, bob: &Host) -> Result<(), Failure> {
    teller.step("The hosts meet.");
    let ticket = alice.owner("peer_ticket", json!({})).await?;
    teller.say(&alice.title, "its owner makes a ticket (kwoon peer ticket)");
    bob.owner("peer_add", json!({"ticket": ticket["result"]["ticket"]})).await?;
    teller.say(&bob.title, "its owner adds it (kwoon peer add); from now on they talk whenever they can");
    for (host, other) in [(alice, bob), (bob, alice)] {
        let missing = format!("{} is not connected", host.title);
        until(&missing, async || Ok(host.is_connected(other).await?.then_some(()))).await?;
    }
    Ok(())
}

/// The thread of both.
async fn share(teller: &mut Teller, alice: &Host, bob: &Host) -> Result<String, Failure> {
    teller.step("Alice opens a thread, and Bob joins it.");
    let created = alice.sealed("thread_create", json!({"subject": "Release notes", "admission": {}})).await?;
    teller.say("Alice", "opens it and gets a ticket for it; her host decides what comes in, and in which order");
    bob.sealed("thread_join", json!({"ticket": created["secret"]["ticket"]})).await?;
    teller.say("Bob", "joins with the ticket, from his host");
    Ok(text(&created["result"]["thread"]))
}

/// The assignment, which Bob has taken.
async fn offer(teller: &mut Teller, alice: &Host, bob: &Host, thread: &str) -> Result<String, Failure> {
    teller.step("Alice offers work, and Bob takes it.");
    let assign = json!({"to": bob.agent, "criteria": "One line for each fix."});
    let offered = json!({"thread": thread, "text": "Please write the release notes.", "ask": [], "assign": assign});
    let posted = alice.sealed("entry_post", offered).await?;
    let assignment = text(&posted["result"]["assignment"]);
    let offer = until("Bob is offered nothing", async || {
        let page = bob.agent("opportunities", json!({})).await?;
        let mine = rows(&page, "opportunities").find(|offer| offer["assignment"] == assignment);
        Ok(mine.map(|offer| content(&page, &offer["text_content"])))
    });
    teller.say("Alice", &format!("entry {}: \"{}\"", posted["result"]["entry"], offer.await?));
    bob.sealed("assignment_take", json!({"assignment": assignment})).await?;
    let turn = bob.owing("deliver").await?;
    teller.say("Bob", &format!("takes it. {}", turn_of("His", &turn)));
    Ok(assignment)
}

async fn part(teller: &mut Teller, alice: &Host, bob: &Host) -> Result<(), Failure> {
    teller.step("Bob's host goes off the network.");
    bob.owner("network", json!({"online": false})).await?;
    until("Bob's host is still connected", async || Ok((!alice.is_connected(bob).await?).then_some(()))).await?;
    teller.say(&bob.title, "its owner says so (kwoon network --online false)");
    teller.say(&alice.title, "Bob's host is away");
    Ok(())
}

async fn apart(teller: &mut Teller, alice: &Host, bob: &Host, thread: &str, assignment: &str) -> Result<(), Failure> {
    teller.step("Both work on.");
    let news =
        json!({"thread": thread, "text": "The release moves to Friday. Does that suit you?", "ask": [bob.agent]});
    let posted = alice.sealed("entry_post", news).await?;
    teller.say(
        "Alice",
        &format!("asks Bob something in entry {}, which her own host seals at once", posted["result"]["entry"]),
    );
    let output = json!({"text": "- fix one\n- fix two\n- fix three"});
    bob.pending("assignment_deliver", json!({"assignment": assignment, "output": output})).await?;
    teller.say("Bob", "delivers the notes: pending");
    let question = json!({"thread": thread, "text": "Should the date stand above them?", "ask": [alice.agent]});
    bob.pending("entry_post", question).await?;
    teller.say("Bob", "asks Alice something: pending");

    teller.step("What each side sees meanwhile.");
    let outbox = bob.agent("outbox_list", json!({})).await?;
    let waiting: Vec<_> = rows(&outbox, "actions").collect();
    if waiting.len() != 2 || waiting.iter().any(|action| action["state"] != "pending") {
        return Err(Failure::Failed(format!(
            "{} keeps {} actions and not 2 that are pending",
            bob.title,
            waiting.len()
        )));
    }
    for host in [alice, bob] {
        let (texts, turn) = (host.texts(thread).await?, host.turn().await?);
        let Standing { index, .. } = host.standing(thread).await?;
        let entries = texts.iter().enumerate().map(|(at, text)| format!("\nentry {}: \"{text}\"", at + 1));
        let whose = if host.name == alice.name { "Her" } else { "His" };
        teller
            .say(host.name, &format!("log to index {index}. {}{}", turn_of(whose, &turn), entries.collect::<String>()));
    }
    for action in waiting {
        teller
            .say("", &format!("kept until it can be sent: {}, {}", text(&action["operation"]), text(&action["state"])));
    }
    Ok(())
}

async fn rejoin(teller: &mut Teller, alice: &Host, bob: &Host) -> Result<(), Failure> {
    teller.step("Bob's host comes back.");
    bob.owner("network", json!({"online": true})).await?;
    let turn = until("Bob's actions are still pending", async || {
        let turn = bob.turn().await?;
        Ok((turn["result"]["pending_actions"] == 0).then_some(turn))
    });
    let refused = turn.await?["result"]["refused_actions"].clone();
    if refused != 0 {
        return Err(Failure::Failed(format!("{refused} of Bob's actions were refused")));
    }
    teller.say(&bob.title, "what was kept is sent; nothing is pending any more");
    teller.say(&alice.title, &format!("has sealed it. {}", turn_of("Alice's", &alice.owing("judge").await?)));
    Ok(())
}

async fn judge(teller: &mut Teller, alice: &Host, assignment: &str) -> Result<(), Failure> {
    teller.step("Alice judges the work.");
    let delivered = until("the delivered text has not come", async || {
        let work = alice.agent("assignment_get", json!({"assignment": assignment})).await?;
        let output = content(&work, &work["result"]["output"]["text_content"]);
        Ok((!output.is_empty()).then_some(output))
    });
    teller.say("Alice", &format!("reads what was delivered:\n{}", delivered.await?));
    let accepted = alice.sealed("assignment_accept", json!({"assignment": assignment})).await?;
    teller.say("Alice", &format!("accepts it; the assignment is {}", text(&accepted["result"]["state"])));
    Ok(())
}

/// Both sides hold the same, and say the same about whose turn it is.
async fn agree(teller: &mut Teller, alice: &Host, bob: &Host, thread: &str) -> Result<(), Failure> {
    teller.step("The same from both sides.");
    let hosts = [alice, bob];
    let standing = until("the two logs differ", async || {
        let (one, other) = tokio::try_join!(alice.standing(thread), bob.standing(thread))?;
        Ok((one == other).then_some([one, other]))
    });
    let standing = standing.await?;
    let owed = [alice.owed(thread).await?, bob.owed(thread).await?];
    for ((host, Standing { index, digest }), owed) in hosts.into_iter().zip(&standing).zip(&owed) {
        teller.say(&host.title, &format!("turn    {}\nindex   {index}\ndigest  {digest}", shown(owed, hosts)));
    }
    // What each agent is told is what either log says about it.
    for host in hosts {
        let turn = host.turn().await?;
        let told: Vec<_> = rows(&turn, "obligations").map(|owed| text(&owed["id"])).collect();
        let logged: Vec<_> = owed[0].iter().filter(|owed| owed.bearer == host.agent).collect();
        if !told.iter().eq(logged.iter().map(|owed| &owed.obligation)) {
            return Err(Failure::Failed(format!("the turn of {} is not what the logs say", host.name)));
        }
    }
    if owed[0] != owed[1] {
        return Err(Failure::Failed("the two turns differ".to_owned()));
    }
    teller.say("", "Turns and digests are equal.");
    Ok(())
}

/// What the hosts' agents owe, in words.
fn shown(owed: &[Owed], hosts: [&Host; 2]) -> String {
    let of = |owed: &Owed| {
        let bearer = hosts.iter().find(|host| host.agent == owed.bearer).map_or("somebody", |host| host.name);
        format!("{bearer}: {} (entry {})", owed.duty, owed.entry)
    };
    match owed.iter().map(of).collect::<Vec<_>>() {
        none if none.is_empty() => "nobody owes anything".to_owned(),
        all => all.join(", "),
    }
}

/// An agent's turn, in words.
fn turn_of(whose: &str, turn: &Value) -> String {
    let of = |owed: &Value| {
        let pending = if owed["standing"] == "pending" { ", pending" } else { "" };
        let entry = owed["entry"].as_u64().map(|entry| format!(" (entry {entry})")).unwrap_or_default();
        format!("{}{entry}{pending}", text(&owed["duty"]))
    };
    match rows(turn, "obligations").map(of).collect::<Vec<_>>() {
        none if none.is_empty() => format!("{whose} turn: nothing is owed"),
        all => format!("{whose} turn: {}", all.join(", ")),
    }
}
