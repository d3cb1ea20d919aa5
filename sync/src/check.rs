//! A log file from elsewhere: every record verified, every fact decided again, as a replica would. Nothing of it enters a
//! log of this host; a record of an unknown version or kind is found, for the quarantine.

use std::collections::BTreeSet;
use std::io::Read;

use kwoon_keys::{Commitment, Digest, RecordKind, Salt, cbor, cose};
use kwoon_ledger::action::{ObjectId, SCHEMA};
use kwoon_ledger::fact::{Cause, Fact, Rejection};
use kwoon_ledger::limits::FILE_FACTS_BYTES_MAX;
use kwoon_ledger::replica::{self, FoldError};
use kwoon_ledger::storage::{Nothing, ReadError};
use kwoon_ledger::time::Time;
use minicbor::Decode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::file::FileStop;
use crate::logfile::{LogFileError, LogHeader, LogItem, LogReader, ReadItem};
use crate::quarantine::{Reason, RecordType};
use crate::verify::{self, Verifier};

/// What a check found.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Checked {
    /// Whether everything is right.
    pub sound: bool,
    /// The object, as the file's header says and its facts confirm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The host that orders it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequencer: Option<String>,
    /// Facts that were verified and decided again.
    pub facts: u64,
    /// Seals that were verified.
    pub seals: u64,
    /// Contents that open their commitments.
    pub contents: u64,
    /// The running digest after the last of these facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The head hash there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The first fault. Nothing after it was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<FileFault>,
}

/// A fault of a log file.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct FileFault {
    /// The item of the file, from 0.
    pub item: u64,
    /// The index of the fact, where a fact or its seal is at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// What is wrong.
    pub problem: String,
}

/// A record that this version does not know.
#[derive(Debug)]
pub struct UnknownRecord {
    /// What kind of record it is.
    pub record: RecordType,
    /// The version that it states, if one was found.
    pub version: Option<u64>,
    /// Why it is not read.
    pub reason: Reason,
    /// The object of the file it stands in.
    pub object: Option<ObjectId>,
    /// The record.
    pub bytes: Vec<u8>,
}

/// What came of a check: what is told, and what is to be kept in quarantine.
#[derive(Debug, Default)]
pub struct Finding {
    /// What is told.
    pub checked: Checked,
    /// What is to be kept.
    pub unknown: Option<UnknownRecord>,
}

/// Why a check ends early.
enum Wrong {
    Fault(Option<u64>, String),
    Unknown(UnknownRecord),
    Stop(FileStop),
}

impl From<ReadError> for Wrong {
    fn from(error: ReadError) -> Self {
        Self::Stop(error.into())
    }
}

fn fault<T>(index: impl Into<Option<u64>>, problem: &str) -> Result<T, Wrong> {
    Err(Wrong::Fault(index.into(), problem.to_owned()))
}

/// Checks a log file.
///
/// # Errors
/// If the file cannot be read.
pub fn check(file: &mut dyn Read, now: Time) -> Result<Finding, FileStop> {
    let mut finding = Finding::default();
    let nothing = Nothing;
    let mut check = Check {
        header: None,
        now,
        verifier: Verifier::new(&nothing, 0),
        facts_bytes: 0,
        commitments: BTreeSet::new(),
        seals: 0,
        contents: 0,
        last_content: None,
        epoch: None,
        item: 0,
    };
    match check.run(file) {
        Ok(()) => finding.checked.sound = true,
        Err(Wrong::Fault(index, problem)) => {
            finding.checked.fault = Some(FileFault { item: check.item, index, problem });
        }
        Err(Wrong::Unknown(record)) => {
            let index = (record.record == RecordType::Fact).then_some(check.verifier.facts);
            let problem = match record.reason {
                Reason::UnknownVersion => Rejection::UnknownVersion.to_string(),
                Reason::UnknownKind => Rejection::UnknownKind.to_string(),
            };
            finding.checked.fault = Some(FileFault { item: check.item, index, problem });
            finding.unknown = Some(record);
        }
        Err(Wrong::Stop(stop)) => return Err(stop),
    }
    let checked = &mut finding.checked;
    checked.object = check.header.as_ref().map(|header| header.object.to_string());
    (checked.facts, checked.seals, checked.contents) = (check.verifier.facts, check.seals, check.contents);
    if let Some(head) = check.verifier.head()? {
        checked.sequencer = Some(head.sequencer.to_string());
        checked.digest = Some(head.digest.to_string());
        checked.head = Some(head.hash.to_string());
    }
    Ok(finding)
}

struct Check<'a> {
    header: Option<LogHeader>,
    now: Time,
    verifier: Verifier<'a>,
    facts_bytes: usize,
    /// What the log commits to.
    commitments: BTreeSet<Commitment>,
    /// Seals that were found right.
    seals: u64,
    contents: u64,
    last_content: Option<Digest>,
    /// The epoch of the fact before.
    epoch: Option<u64>,
    /// The item that is being looked at.
    item: u64,
}

impl Check<'_> {
    fn run(&mut self, file: &mut dyn Read) -> Result<(), Wrong> {
        let (mut reader, header) = match LogReader::begin(file) {
            Ok(begun) => begun,
            Err(LogFileError::UnknownHeader { record, version }) => {
                let reason =
                    if version == crate::logfile::VERSION { Reason::UnknownKind } else { Reason::UnknownVersion };
                return Err(self.unknown(RecordType::Header, Some(version), reason, &record));
            }
            Err(error) => return Err(unreadable(error)),
        };
        self.header = Some(header.clone());
        loop {
            self.item += 1;
            match reader.item().map_err(unreadable)? {
                Some(ReadItem::Known(LogItem::Fact(bytes))) => self.fact(&header, &bytes)?,
                Some(ReadItem::Known(LogItem::Seal(record))) => self.seal(&record)?,
                Some(ReadItem::Known(LogItem::Content(hash, salt, bytes))) => self.content(hash, salt, &bytes)?,
                Some(ReadItem::Known(LogItem::End(seals, contents))) => {
                    self.end(&header, seals, contents)?;
                    self.item += 1;
                    return match reader.item() {
                        Ok(None) => Ok(()),
                        Err(LogFileError::Io(error)) => Err(Wrong::Stop(error.into())),
                        _ => fault(None, "something follows the end of the log"),
                    };
                }
                Some(ReadItem::Unknown(bytes)) => {
                    return Err(self.unknown(RecordType::Item, None, Reason::UnknownKind, &bytes));
                }
                None => return fault(None, "the file ends without the end of the log"),
            }
        }
    }

    fn unknown(&self, record: RecordType, version: Option<u64>, reason: Reason, bytes: &[u8]) -> Wrong {
        let object = self.header.as_ref().map(|header| header.object);
        Wrong::Unknown(UnknownRecord { record, version, reason, object, bytes: bytes.to_vec() })
    }

    /// What a fact or a seal that does not fold means.
    fn not_folded(&self, record: RecordType, index: u64, bytes: &[u8], error: FoldError) -> Wrong {
        match error {
            FoldError::Unreadable(error) => error.into(),
            FoldError::Rejected(Rejection::UnknownVersion) => {
                self.unknown(record, unknown_version(record, bytes), Reason::UnknownVersion, bytes)
            }
            FoldError::Rejected(Rejection::UnknownKind) => {
                self.unknown(record, Some(SCHEMA.into()), Reason::UnknownKind, bytes)
            }
            other => Wrong::Fault(Some(index), verify::words(&other)),
        }
    }

    fn fact(&mut self, header: &LogHeader, bytes: &[u8]) -> Result<(), Wrong> {
        let index = self.verifier.facts;
        if self.last_content.is_some() {
            return fault(index, "a fact stands after the contents");
        }
        self.facts_bytes = self.facts_bytes.saturating_add(bytes.len());
        if self.facts_bytes > FILE_FACTS_BYTES_MAX {
            return fault(index, "the log is longer than a log that is checked from a file may be");
        }
        // What does not decode is told from what is unknown as it is folded.
        if let Ok(fact) = Fact::read(bytes) {
            let is_last = index == header.index;
            if fact.object != header.object || fact.epoch > header.epoch || is_last && fact.epoch != header.epoch {
                return fault(index, "the fact is of another log than the header says");
            }
            // What one sequencer ordered is not for the next one to seal.
            let began = self.epoch.replace(fact.epoch).is_some_and(|epoch| epoch != fact.epoch);
            if began && self.verifier.sealed != index.checked_sub(1) {
                return fault(index, "the last fact of an epoch is not sealed");
            }
            if replica::is_ahead(&fact, self.now) {
                return fault(index, "the fact lies more than 10 minutes ahead of this host's clock");
            }
        }
        let effects =
            self.verifier.fact(bytes).map_err(|error| self.not_folded(RecordType::Fact, index, bytes, error))?;
        for effect in effects {
            self.commitments.extend(effect.note());
            effect.contents(|commitment| {
                self.commitments.insert(*commitment);
            });
        }
        Ok(())
    }

    fn seal(&mut self, record: &[u8]) -> Result<(), Wrong> {
        let Some(index) = self.verifier.facts.checked_sub(1) else {
            return fault(None, "a seal stands before any fact");
        };
        let before = self.verifier.sealed;
        let seal = match self.verifier.seal(record) {
            Ok(seal) => seal,
            Err(_) if self.verifier.is_of_another_history(record)? => {
                return fault(
                    index,
                    "the sequencer sealed another history of this log: there are two heads for one place",
                );
            }
            Err(error) => return Err(self.not_folded(RecordType::Seal, index, record, error)),
        };
        if seal.index != index || before == Some(index) || self.last_content.is_some() {
            return fault(index, "a seal does not stand after its fact, or twice");
        }
        self.seals += 1;
        Ok(())
    }

    fn content(&mut self, hash: Digest, salt: Salt, bytes: &[u8]) -> Result<(), Wrong> {
        self.check_sealed()?;
        if self.last_content.is_some_and(|last| last >= hash) {
            return fault(None, "the contents are not in rising order");
        }
        let commitment = Commitment::to(&salt, bytes);
        if commitment.hash != hash {
            return fault(None, "a content does not open its commitment");
        }
        if !self.commitments.contains(&commitment) {
            return fault(None, "there is a content that the log does not commit to");
        }
        self.last_content = Some(hash);
        self.contents += 1;
        Ok(())
    }

    fn end(&self, header: &LogHeader, seals: u64, contents: u64) -> Result<(), Wrong> {
        self.check_sealed()?;
        let there = (header.index.checked_add(1), seals, contents);
        if there != (Some(self.verifier.facts), self.seals, self.contents) {
            return fault(None, "there are not as many facts, seals or contents as the file says");
        }
        Ok(())
    }

    fn check_sealed(&self) -> Result<(), Wrong> {
        let last = self.verifier.facts.checked_sub(1);
        if last.is_some() && self.verifier.sealed == last { Ok(()) } else { fault(last, "the last fact is not sealed") }
    }
}

fn unreadable(error: LogFileError) -> Wrong {
    match error {
        LogFileError::Io(error) => Wrong::Stop(error.into()),
        other => Wrong::Fault(None, other.to_string()),
    }
}

/// What every record of every version begins with.
#[derive(Decode)]
#[cbor(map)]
struct AnyRecord {
    #[n(0)]
    schema: u64,
}

fn schema_of(record: &[u8]) -> Option<u64> {
    cbor::read_lenient::<AnyRecord>(record).ok().map(|record| record.schema)
}

/// The version in a record that made it unknown: its own, that of the action in it, or that of the rules it opens with.
fn unknown_version(record: RecordType, bytes: &[u8]) -> Option<u64> {
    let is_known = |version: &u64| *version == u64::from(SCHEMA);
    if record != RecordType::Fact {
        let signatures: Vec<minicbor::bytes::ByteVec> = cbor::read_lenient(bytes).ok()?;
        return schema_of(cose::payload(RecordKind::Seal, signatures.first()?).ok()?);
    }
    let own = schema_of(bytes)?;
    if !is_known(&own) {
        return Some(own);
    }
    let fact = Fact::read(bytes).ok()?;
    let action = match &fact.cause {
        Cause::Action(signed) => cose::payload(RecordKind::Action, signed).ok().and_then(schema_of),
        _ => None,
    };
    let rules = fact.opening.map(|opening| u64::from(opening.rules));
    action.into_iter().chain(rules).find(|version| !is_known(version))
}
