//! Logs from elsewhere and what is in quarantine, for the owner.

use kwoon_keys::Digest;
use kwoon_keys::id::QuarantineId;
use kwoon_ledger::refusal::{Code, Stop};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ChecksFile, Reads, Tends, UsesFile};
use crate::answer::{Answer, Contents, shown};
use crate::argument::{FilePath, Limit, QuarantineRef};
use crate::check::{Checked, Finding};
use crate::file::{FileJob, FileWork};
use crate::quarantine::{self, Keeping, Quarantined, Reason, RecordType};
use crate::round::{Call, Round};
use crate::view::{View, read_cursor, write_cursor};

/// Arguments of `object_check`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectCheck {
    /// A log file on the machine of the host.
    path: FilePath,
}

/// What a log file is, and what became of a record in it that this kwoon does not know.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CheckShown {
    #[serde(flatten)]
    checked: Checked,
    /// Of a record of an unknown version or kind: its id in quarantine.
    #[serde(skip_serializing_if = "Option::is_none")]
    quarantined: Option<String>,
    /// Whether it is kept there.
    #[serde(skip_serializing_if = "Option::is_none")]
    keeping: Option<Keeping>,
}

impl CheckShown {
    /// What a check found, where nothing is to be kept.
    pub(crate) fn of(checked: Checked) -> Self {
        Self { checked, quarantined: None, keeping: None }
    }
}

impl UsesFile for ObjectCheck {
    type Result = CheckShown;

    fn job(self, _: &View<'_>) -> Result<FileJob, Stop> {
        Ok(FileJob { path: self.path, work: FileWork::Check })
    }
}

impl ChecksFile for ObjectCheck {
    fn keep(finding: Finding, round: &mut Round<'_>) -> Result<Answer, Stop> {
        let mut result = CheckShown::of(finding.checked);
        let overlay = &mut round.sequencer.overlay;
        if let Some(unknown) = finding.unknown {
            let about = Quarantined {
                record: unknown.record,
                version: unknown.version,
                object: unknown.object,
                received_at: round.now,
                reason: unknown.reason,
                length_bytes: unknown.bytes.len() as u64,
            };
            result.quarantined = Some(quarantine::id_of(&unknown.bytes).to_string());
            result.keeping = Some(quarantine::keep(overlay, round.limits, &about, &unknown.bytes)?);
        }
        Ok(Answer::new(&result, Contents::new(overlay))?)
    }
}

/// Arguments of `quarantine_list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuarantineList {
    /// Where the page begins.
    cursor: Option<String>,
    /// Records of the page.
    limit: Option<Limit>,
}

/// A record in quarantine.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuarantineRow {
    id: String,
    record: RecordType,
    /// The version that it states, if one was found.
    version: Option<u64>,
    /// The object of the log it came in, if that is known.
    object: Option<String>,
    received_at: String,
    bytes: u64,
    reason: Reason,
}

impl QuarantineRow {
    fn of(id: &QuarantineId, about: &Quarantined) -> Self {
        Self {
            id: id.to_string(),
            record: about.record,
            version: about.version,
            object: about.object.map(|object| object.to_string()),
            received_at: shown(about.received_at),
            bytes: about.length_bytes,
            reason: about.reason,
        }
    }
}

/// What is in quarantine.
#[derive(Debug, Serialize, JsonSchema)]
pub struct QuarantinePage {
    records: Vec<QuarantineRow>,
}

impl Reads for QuarantineList {
    type Result = QuarantinePage;

    fn read(self, view: &View<'_>) -> Result<Answer, Stop> {
        let cursor = self.cursor.as_deref();
        let from: Option<Digest> = cursor.map(|text| read_cursor(b"quarantine", &[0; 16], text)).transpose()?;
        let limit = Limit::of(self.limit);
        let mut rows = quarantine::page(view.read, &QuarantineId(from.unwrap_or_default()), limit + 1)?;
        let next = (rows.len() > limit).then(|| rows.pop()).flatten();
        let records = rows.iter().map(|(id, about)| QuarantineRow::of(id, about)).collect();
        let mut answer = Answer::new(&QuarantinePage { records }, Contents::new(view.read))?;
        answer.cursor = next.map(|(id, _)| write_cursor(b"quarantine", &[0; 16], &id.0));
        Ok(answer)
    }
}

/// Arguments of `quarantine_remove`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuarantineRemove {
    /// The record.
    id: QuarantineRef,
}

impl Tends for QuarantineRemove {
    type Result = QuarantineRow;

    fn tend(self, round: &mut Round<'_>, _: &Call) -> Result<Answer, Stop> {
        let overlay = &mut round.sequencer.overlay;
        let (id, about) = quarantine::remove(overlay, &self.id.0)?.ok_or(Code::NotFound)?;
        Ok(Answer::new(&QuarantineRow::of(&id, &about), Contents::new(overlay))?)
    }
}
