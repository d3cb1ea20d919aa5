//! Logs as files, for the owner.

use std::collections::BTreeSet;
use std::io::Write;

use kwoon_ledger::fact::Fact;
use kwoon_ledger::log;
use kwoon_ledger::refusal::{Code, Stop};
use kwoon_ledger::state::{Cells, Head, ObjectNumber};
use kwoon_ledger::storage::{Order, Read, ReadError, Table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::UsesFile;
use super::ledger::number;
use crate::answer::{Answer, Contents};
use crate::argument::{FilePath, ObjectRef};
use crate::file::{FileJob, FileStop, FileWork};
use crate::logfile::{KIND, LogHeader, LogItem, LogWriter, VERSION};
use crate::view::View;

/// Facts that are read at a time.
const CHUNK: usize = 256;

/// Arguments of `object_export`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectExport {
    /// The object.
    object: ObjectRef,
    /// The file to make, on the machine of the host.
    path: FilePath,
    /// Whether the contents that this host holds go with it; true if left out.
    content: Option<bool>,
}

/// What was exported.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Exported {
    object: String,
    facts: u64,
    seals: u64,
    contents: u64,
    /// Contents that the log commits to and that this host does not hold.
    contents_missing: u64,
    /// Notes of handled responses that the log commits to. They are their agents' own and never exported.
    notes_left_out: u64,
    /// Bytes of the file.
    bytes: u64,
}

impl UsesFile for ObjectExport {
    type Result = Exported;

    fn job(self, view: &View<'_>) -> Result<FileJob, Stop> {
        let (number, _) = number(view, &self.object)?;
        let export = LogExport { number, with_content: self.content.unwrap_or(true) };
        Ok(FileJob { path: self.path, work: FileWork::Export(export) })
    }
}

/// The export of one log.
#[derive(Debug)]
pub struct LogExport {
    number: ObjectNumber,
    with_content: bool,
}

impl LogExport {
    /// Writes the log, as the state that is viewed has it.
    ///
    /// # Errors
    /// If the store cannot be read or the file not be written.
    pub fn write(&self, view: &View<'_>, file: &mut dyn Write) -> Result<Answer, FileStop> {
        let read = view.read;
        let head = Cells::new(read, self.number).head()?.ok_or(Stop::from(Code::Internal)).map_err(FileStop::Stop)?;
        let header = LogHeader {
            kind: KIND.to_owned(),
            version: VERSION,
            object: head.object,
            // After a fact by which an epoch ended, the head is of the next one.
            epoch: log::fact(read, self.number, head.index)?.epoch,
            index: head.index,
        };
        let mut writer = LogWriter::begin(file, &header)?;
        let (commitments, notes_left_out) = self.write_facts(read, &head, &mut writer)?;
        let mut contents_missing = 0;
        if self.with_content {
            for hash in commitments {
                match read.content(&hash)? {
                    Some((salt, bytes)) => writer.item(&LogItem::Content(hash, salt, bytes.into()))?,
                    None => contents_missing += 1,
                }
            }
        }
        let (seals, contents, bytes) = writer.end()?;
        let object = head.object.to_string();
        let facts = head.index + 1;
        let exported = Exported { object, facts, seals, contents, contents_missing, notes_left_out, bytes };
        let mut answer = Answer::new(&exported, Contents::new(read))?;
        answer.as_of = view.as_of(self.number)?;
        Ok(answer)
    }

    /// Writes facts and seals. The hashes of the contents that the log commits to, and how many notes it does.
    fn write_facts(
        &self,
        read: &dyn Read,
        head: &Head,
        writer: &mut LogWriter<'_>,
    ) -> Result<(BTreeSet<kwoon_keys::Digest>, u64), FileStop> {
        let (mut commitments, mut notes) = (BTreeSet::new(), 0);
        let (mut next, end) = (0, log::fact_key(self.number, u64::MAX));
        while next <= head.index {
            let rows = read.range(Table::Log, &log::fact_key(self.number, next), &end, Order::Rising, CHUNK)?;
            if rows.is_empty() {
                return Err(ReadError::damaged("a fact is missing").into());
            }
            for (_, fact) in rows {
                for effect in log::effects(read, self.number, next)? {
                    effect.contents(|commitment| {
                        commitments.insert(commitment.hash);
                    });
                    notes += u64::from(effect.note().is_some());
                }
                let epoch = Fact::read(&fact).map_err(|_| ReadError::damaged("a fact"))?.epoch;
                writer.item(&LogItem::Fact(fact.into()))?;
                if let Some(seal) = read.get(Table::Seals, &log::seal_key(self.number, epoch, next))? {
                    writer.item(&LogItem::Seal(seal.into()))?;
                }
                next += 1;
            }
        }
        Ok((commitments, notes))
    }
}
