//! Effects, which the running digest covers.

use kwoon_keys::id::TaskId;
use kwoon_ledger::action::Role;
use kwoon_ledger::effect::{Account, Departure, Duty, Effect, EntryPosted, Exit, Final, Obligation, Profile};
use kwoon_ledger::fact::EpochReason;
use kwoon_ledger::identity::Status;
use kwoon_ledger::time::{Duration, Time};

use super::inputs::*;
use super::*;

fn account() -> Account {
    Account {
        version: 2,
        record: digest(0x26),
        owner: owner().public(),
        status: Status::Active,
        instances: vec![instance()],
    }
}

fn profile() -> Profile {
    Profile {
        name: commitment(0x22),
        display_name: Some(commitment(0x23)),
        mission: Some(commitment(0x24)),
        policies: vec![policy()],
        predecessor: Some(other_agent()),
        created_at: NOON,
        home: host().public(),
        status_reason: Some(commitment(0x25)),
    }
}

fn due() -> Time {
    NOON.after(Duration::days(7))
}

/// What a taker owes.
pub fn delivery() -> Obligation {
    Obligation {
        duty: Duty::Deliver,
        bearer: other_agent(),
        entry: 12,
        assignment: Some(assignment()),
        began_at: NOON,
        due_at: Some(due()),
    }
}

/// What an asked agent owes.
pub fn response() -> Obligation {
    Obligation { duty: Duty::Respond, assignment: None, due_at: None, ..delivery() }
}

fn posted() -> EntryPosted {
    EntryPosted {
        entry: 12,
        request: request(),
        author: agent(),
        pin: pin(),
        brings_forth: false,
        summary: Some(commitment(0x35)),
        reply_to: Some(11),
        asks: true,
        responders: vec![other_agent()],
        task: Some(TaskId(digest(0xf1))),
    }
}

pub fn add(vectors: &mut Vectors) {
    for duty in [Duty::Respond, Duty::Deliver, Duty::Judge] {
        vectors.record(duty_name(&duty), &duty);
    }
    let exits = [
        Exit::Replied(13),
        Exit::Handled(Some(commitment(0x34))),
        Exit::Taken,
        Exit::Retracted,
        Exit::MembershipEnded,
        Exit::Demoted,
        Exit::Closed,
        Exit::Delivered,
        Exit::Abandoned,
        Exit::Voided,
        Exit::Judged,
        Exit::Expired,
    ];
    for exit in exits {
        vectors.record(exit_name(&exit), &exit);
    }
    vectors.record("Exit.Handled without a note", &Exit::Handled(None));
    for departure in [Departure::Left, Departure::Removed, Departure::Inactive] {
        vectors.record(departure_name(&departure), &departure);
    }
    let finals =
        [Final::Accepted, Final::NotPassed, Final::Undecided, Final::Abandoned, Final::TimedOut, Final::Voided];
    for end in finals {
        vectors.record(final_name(&end), &end);
    }
    vectors.record("Account", &account());
    vectors.record("Profile", &profile());
    vectors.record("Obligation", &delivery());
    vectors.record("Obligation of a response", &response());
    vectors.record("EntryPosted", &posted());
    for effect in effects() {
        vectors.record(effect_name(&effect), &effect);
    }
    let plain = EntryPosted { summary: None, reply_to: None, responders: Vec::new(), task: None, ..posted() };
    vectors.record("EntryPosted without what is optional", &plain);
    let created = Effect::ThreadCreated(thread(), agent(), None);
    vectors.record("Effect.ThreadCreated without a subject", &created);
    let accepted = Effect::AssignmentEnded(assignment(), Final::Accepted, None);
    vectors.record("Effect.AssignmentEnded without a reason", &accepted);
    vectors.record("Effect list", &vec![created, Effect::MembershipBegan(agent(), Role::Governor, None)]);
}

fn effects() -> Vec<Effect> {
    vec![
        Effect::IdentitySet(agent(), account(), profile()),
        Effect::AccountSet(agent(), account()),
        Effect::MemoryCreated(memory(), agent()),
        Effect::VersionAdded(2, version(), true),
        Effect::MadePublic(2, version()),
        Effect::MadePrivate,
        Effect::MemoryWithdrawn(true),
        Effect::PublicationSet(memory(), agent(), 2, version(), 300),
        Effect::PublicationEnded(memory(), true, 301),
        Effect::ThreadCreated(thread(), agent(), Some(commitment(0x36))),
        Effect::AdmissionIssued(grant().id(), grant()),
        Effect::AdmissionVoided(grant().id()),
        Effect::MembershipBegan(other_agent(), Role::Speaker, Some(grant().id())),
        Effect::MembershipEnded(other_agent(), Departure::Left),
        Effect::RoleSet(other_agent(), Role::Observer),
        Effect::EntryPosted(posted()),
        Effect::ObligationBegan(response()),
        Effect::ObligationEnded(delivery(), Exit::Delivered),
        Effect::AssignmentOffered(assignment(), 12, agent(), terms()),
        Effect::AssignmentTaken(assignment(), due()),
        Effect::AssignmentDelivered(assignment(), output(), due()),
        Effect::AssignmentEnded(assignment(), Final::NotPassed, Some(commitment(0x37))),
        Effect::JudgmentForfeited(assignment()),
        Effect::ThreadClosed,
        Effect::EpochBegan(1, host().public(), EpochReason::LastReaderGone),
    ]
}
