//! Steps: what might happen next, drawn at random as bare choices. What a step is about is settled when it comes, see
//! [`crate::chooser`]. So a step means something in every state, and a sequence that is cut short still does.

use kwoon_tests::model::Caller;
use proptest::prelude::*;
use serde_json::Value;

/// A kind of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Post,
    Handle,
    Retract,
    Take,
    Deliver,
    Judge,
    Abandon,
    VoidAssignment,
    CreateMemory,
    UpdateMemory,
    ShowMemory,
    WithdrawMemory,
    CreateThread,
    Issue,
    VoidAdmission,
    Join,
    Leave,
    Close,
    Remove,
    Role,
    CreateAgent,
    UpdateAgent,
    Status,
    Terminate,
    Pass,
    Back,
    Repeat,
    Malformed,
    WrongCaller,
    Restart,
    FailedCommit,
    Probe,
}

/// How often each kind comes.
pub const KINDS: [(u32, Kind); 32] = [
    (16, Kind::Post),
    (6, Kind::Handle),
    (4, Kind::Retract),
    (9, Kind::Take),
    (8, Kind::Deliver),
    (7, Kind::Judge),
    (3, Kind::Abandon),
    (3, Kind::VoidAssignment),
    (3, Kind::CreateMemory),
    (3, Kind::UpdateMemory),
    (7, Kind::ShowMemory),
    (2, Kind::WithdrawMemory),
    (2, Kind::CreateThread),
    (4, Kind::Issue),
    (1, Kind::VoidAdmission),
    (9, Kind::Join),
    (4, Kind::Leave),
    (1, Kind::Close),
    (3, Kind::Remove),
    (5, Kind::Role),
    (1, Kind::CreateAgent),
    (1, Kind::UpdateAgent),
    (3, Kind::Status),
    (1, Kind::Terminate),
    (10, Kind::Pass),
    (1, Kind::Back),
    (6, Kind::Repeat),
    (1, Kind::Malformed),
    (1, Kind::WrongCaller),
    (1, Kind::Restart),
    (1, Kind::FailedCommit),
    (3, Kind::Probe),
];

/// A step, before it is known what it can be about.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its kind.
    pub kind: Kind,
    /// Whether it comes in one round with the step after it.
    pub joined: bool,
    /// What every choice in it comes down to.
    pub picks: [u16; 24],
}

/// A sequence of steps.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// Whether the host's limits are such that they are met.
    pub tight: bool,
    /// The steps.
    pub steps: Vec<Step>,
}

/// Any sequence of at most so many steps.
pub fn sequences(steps_max: usize) -> impl Strategy<Value = Sequence> {
    let kinds = prop::strategy::Union::new_weighted(KINDS.map(|(weight, kind)| (weight, Just(kind))).to_vec());
    let step = (kinds, prop::bool::weighted(0.12), prop::array::uniform24(any::<u16>()));
    let step = step.prop_map(|(kind, joined, picks)| Step { kind, joined, picks });
    let steps = prop::collection::vec(step, 1..=steps_max);
    (prop::bool::weighted(0.4), steps).prop_map(|(tight, steps)| Sequence { tight, steps })
}

/// A call of an operation that acts, with handles for ids.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who calls.
    pub caller: Caller,
    /// The operation.
    pub operation: &'static str,
    /// Its arguments.
    pub arguments: Value,
}

/// What a step comes to.
#[derive(Clone, Debug)]
pub enum Event {
    /// A call.
    Act(Call),
    /// A call that is decided and whose commit fails; the daemon is started again.
    Lost(Call),
    /// So many milliseconds pass; the host looks at what is due, or not yet.
    Pass(u64, bool),
    /// The clock goes back by so many milliseconds.
    Back(u64),
    /// The daemon is stopped and started.
    Restart,
    /// Every reader looks at everything.
    Probe,
}

/// Choices, each made by the next pick. The first of several is what a pick shrinks to.
pub struct Choices<'a> {
    picks: &'a [u16],
    next: usize,
}

impl<'a> Choices<'a> {
    /// Made by these picks.
    pub fn new(picks: &'a [u16]) -> Self {
        Self { picks, next: 0 }
    }

    /// One of so many.
    pub fn below(&mut self, count: usize) -> usize {
        let pick = self.picks[self.next % self.picks.len()];
        self.next += 1;
        (usize::from(pick) * count) >> 16
    }

    /// Whether something comes about that does so in so many cases of a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) >= 100 - percent
    }

    /// One of these.
    pub fn of<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let at = self.below(from.len());
        from.get(at).cloned()
    }

    /// One of these words.
    pub fn word(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }
}
