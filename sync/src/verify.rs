//! A log verified and decided again from nothing, as a host would that has just got it.

use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::{Rejection, Seal};
use kwoon_ledger::log;
use kwoon_ledger::replica::{self, FoldError};
use kwoon_ledger::state::{Cells, Head, ObjectNumber};
use kwoon_ledger::storage::{Overlay, Read, ReadError, Table};

/// See the module.
pub struct Verifier<'a> {
    /// What was folded so far.
    pub folded: Overlay<'a>,
    number: ObjectNumber,
    /// Facts that were found right.
    pub facts: u64,
    /// The index up to which the last seal that was found right goes.
    pub sealed: Option<u64>,
}

impl<'a> Verifier<'a> {
    /// Begins a log under this number. Of `base` nothing may be visible but facts of that log.
    pub fn new(base: &'a dyn Read, number: ObjectNumber) -> Self {
        Self { folded: Overlay::new(base), number, facts: 0, sealed: None }
    }

    /// Verifies the next fact and decides it again. Its effects.
    ///
    /// # Errors
    /// See [`replica::fold`].
    pub fn fact(&mut self, bytes: &[u8]) -> Result<Vec<Effect>, FoldError> {
        let effects = replica::fold(&mut self.folded, self.number, bytes)?;
        self.facts += 1;
        Ok(effects)
    }

    /// Verifies a seal of the facts so far.
    ///
    /// # Errors
    /// See [`replica::check_seal`].
    pub fn seal(&mut self, record: &[u8]) -> Result<Seal, FoldError> {
        let seal = replica::check_seal(&self.folded, self.number, record)?;
        self.sealed = Some(seal.index);
        Ok(seal)
    }

    /// Whether a seal that was not found right is a good one of another history of this log: its sequencer signed two.
    ///
    /// # Errors
    /// If what was folded cannot be read.
    pub fn is_of_another_history(&self, record: &[u8]) -> Result<bool, ReadError> {
        let Some(head) = self.head()? else { return Ok(false) };
        let Ok(seal) = Seal::verify(record, &head.sequencer) else { return Ok(false) };
        let known = log::head_at(&self.folded, self.number, &head, seal.index)?;
        let same_place = seal.object == head.object && seal.epoch == head.epoch;
        Ok(same_place && known.is_some_and(|known| known != seal.head))
    }

    /// Where the log stands.
    ///
    /// # Errors
    /// If what was folded cannot be read.
    pub fn head(&self) -> Result<Option<Head>, ReadError> {
        Cells::new(&self.folded, self.number).head()
    }

    /// Forgets the facts that were folded, which `base` gives again where they are needed, so that a long log takes no
    /// more memory.
    pub fn forget_facts(&mut self) {
        self.folded.batch.rows.keep_tables(&[Table::Derived, Table::Meta]);
    }
}

/// What is wrong with a fact or a seal, in words.
pub fn words(error: &FoldError) -> String {
    match error {
        FoldError::Rejected(Rejection::Seal) => "a seal is missing or wrong".to_owned(),
        FoldError::Rejected(rejection) => rejection.to_string(),
        FoldError::Refused(code) => format!("the rules refuse it: {}", code.name()),
        FoldError::Unreadable(error) => error.to_string(),
    }
}
