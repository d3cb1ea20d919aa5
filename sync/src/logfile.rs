//! A log as a file: a sequence of CBOR items (RFC 8742), each in deterministic encoding. docs/format.md, "Log files",
//! describes it.

use std::io::{self, Write};

use kwoon_keys::{Digest, Salt, cbor};
use kwoon_ledger::action::ObjectId;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// The version of log files that this kwoon writes.
pub const VERSION: u64 = 1;
/// What the first item of a log file says that it is.
pub const KIND: &str = "kwoon log";

/// The first item: what the file holds.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LogHeader {
    /// [`KIND`].
    #[n(0)]
    pub kind: String,
    /// [`VERSION`].
    #[n(1)]
    pub version: u64,
    /// The log.
    #[n(2)]
    pub object: ObjectId,
    /// The epoch of the last fact.
    #[n(3)]
    pub epoch: u64,
    /// The index of the last fact.
    #[n(4)]
    pub index: u64,
}

/// Every further item.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum LogItem {
    /// A fact, as it stands in the log. Facts stand in the order of the log.
    #[n(0)]
    Fact(#[n(0)] ByteVec),
    /// A seal, as it is stored, after the fact that it stands at.
    #[n(1)]
    Seal(#[n(0)] ByteVec),
    /// Content that the log commits to: hash of the commitment, salt, bytes. After all facts, in rising order of hash.
    #[n(2)]
    Content(#[n(0)] Digest, #[n(1)] Salt, #[n(2)] ByteVec),
    /// The last item: how many seals and contents there were.
    #[n(3)]
    End(#[n(0)] u64, #[n(1)] u64),
}

/// Writes a log file, item by item.
pub struct LogWriter<'w> {
    file: &'w mut dyn Write,
    seals: u64,
    contents: u64,
    bytes: u64,
}

impl<'w> LogWriter<'w> {
    /// Begins with the header.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(file: &'w mut dyn Write, header: &LogHeader) -> io::Result<Self> {
        let mut writer = Self { file, seals: 0, contents: 0, bytes: 0 };
        writer.write(&cbor::write(header))?;
        Ok(writer)
    }

    fn write(&mut self, item: &[u8]) -> io::Result<()> {
        self.bytes += item.len() as u64;
        self.file.write_all(item)
    }

    /// Adds an item.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn item(&mut self, item: &LogItem) -> io::Result<()> {
        match item {
            LogItem::Fact(_) | LogItem::End(..) => {}
            LogItem::Seal(_) => self.seals += 1,
            LogItem::Content(..) => self.contents += 1,
        }
        self.write(&cbor::write(item))
    }

    /// Ends the file. How many seals, contents and bytes it has.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end(mut self) -> io::Result<(u64, u64, u64)> {
        self.item(&LogItem::End(self.seals, self.contents))?;
        Ok((self.seals, self.contents, self.bytes))
    }
}
