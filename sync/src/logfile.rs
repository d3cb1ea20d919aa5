//! A log as a file: a sequence of CBOR items (RFC 8742), each in deterministic encoding. docs/format.md, "Log files",
//! describes it.

use std::io::{self, Read, Write};

use kwoon_keys::{Digest, Salt, cbor};
use kwoon_ledger::action::ObjectId;
use kwoon_ledger::limits::FILE_ITEM_BYTES_MAX;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// The version of log files that this kwoon writes.
pub const VERSION: u64 = 1;
/// What the first item of a log file says that it is.
pub const KIND: &str = "kwoon log";
/// Bytes of a header.
const HEADER_BYTES_MAX: usize = 1024;
/// The highest number of a [`LogItem`].
const LAST_KIND: u64 = 3;

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
        if item.len() > FILE_ITEM_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record is longer than an item of a log file"));
        }
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

/// Reads a log file that nobody vouches for, item by item. No more of it is in memory than one item.
pub struct LogReader<'r> {
    file: &'r mut dyn Read,
}

/// An item of a log file.
#[derive(Debug)]
pub enum ReadItem {
    /// One that this version knows.
    Known(LogItem),
    /// One of another kind: its bytes.
    Unknown(Vec<u8>),
}

/// Why a log file cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum LogFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ends too early.
    #[error("the file ends in the middle")]
    CutShort,
    /// An item is longer than any may be.
    #[error("an item is too long")]
    TooLong,
    /// An item is none that any version writes, or not in the one encoding that it has.
    #[error("an item is not encoded as it must be")]
    Malformed,
    /// The first item does not say that this is a log file.
    #[error("this is no log file")]
    NoLogFile,
    /// The header is of a version or kind that this kwoon does not know.
    #[error("the header is of a version or kind that this kwoon does not know")]
    UnknownHeader {
        /// The header.
        record: Vec<u8>,
        /// The version it states.
        version: u64,
    },
}

/// What the header of every version begins with.
#[derive(Decode)]
#[cbor(map)]
struct AnyHeader {
    #[n(0)]
    kind: String,
    #[n(1)]
    version: u64,
}

impl<'r> LogReader<'r> {
    /// Reads the header.
    ///
    /// # Errors
    /// See [`LogFileError`].
    pub fn begin(file: &'r mut dyn Read) -> Result<(Self, LogHeader), LogFileError> {
        let mut reader = Self { file };
        // Whatever else a file is, it is not read far.
        let record = match reader.next(HEADER_BYTES_MAX) {
            Ok(record) => record,
            Err(LogFileError::Io(error)) => return Err(error.into()),
            Err(_) => return Err(LogFileError::NoLogFile),
        };
        let any: AnyHeader = match record.as_deref().map(cbor::read_lenient) {
            Some(Ok(any)) => any,
            _ => return Err(LogFileError::NoLogFile),
        };
        if any.kind != KIND {
            return Err(LogFileError::NoLogFile);
        }
        let record = record.unwrap_or_default();
        match cbor::read_strict(&record) {
            Ok(header) if any.version == VERSION => Ok((reader, header)),
            _ => Err(LogFileError::UnknownHeader { record, version: any.version }),
        }
    }

    /// The next item; nothing at the end of the file.
    ///
    /// # Errors
    /// See [`LogFileError`].
    pub fn item(&mut self) -> Result<Option<ReadItem>, LogFileError> {
        let Some(bytes) = self.next(FILE_ITEM_BYTES_MAX)? else { return Ok(None) };
        match cbor::read_strict(&bytes) {
            Ok(item) => Ok(Some(ReadItem::Known(item))),
            Err(_) if is_of_an_unknown_kind(&bytes) => Ok(Some(ReadItem::Unknown(bytes))),
            Err(_) => Err(LogFileError::Malformed),
        }
    }

    /// The bytes of the next CBOR item; nothing at the end of the file. No length is believed before that much was read.
    fn next(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, LogFileError> {
        let bytes_max = bytes_max as u64;
        let mut item = Vec::new();
        // Items that are still to come, each of which has at least one byte.
        let mut open: u64 = 1;
        while open > 0 {
            let is_first = item.is_empty();
            if self.take(1, &mut item)? == 0 {
                return if is_first { Ok(None) } else { Err(LogFileError::CutShort) };
            }
            let first = item[item.len() - 1];
            let argument = match first & 0x1f {
                small @ 0..=23 => u64::from(small),
                width @ 24..=27 => {
                    let width = 1 << (width - 24);
                    self.exactly(width, &mut item)?;
                    let argument = &item[item.len() - width as usize..];
                    argument.iter().fold(0, |value, byte| (value << 8) | u64::from(*byte))
                }
                _ => return Err(LogFileError::Malformed),
            };
            open -= 1;
            match first >> 5 {
                0 => {}
                2 | 3 => {
                    if argument.saturating_add(item.len() as u64) > bytes_max {
                        return Err(LogFileError::TooLong);
                    }
                    self.exactly(argument, &mut item)?;
                }
                4 => open = open.saturating_add(argument),
                5 => open = open.saturating_add(argument.saturating_mul(2)),
                // Of all others records know three, which need nothing after them.
                7 if matches!(first, 0xf4..=0xf6) => {}
                _ => return Err(LogFileError::Malformed),
            }
            if open.saturating_add(item.len() as u64) > bytes_max {
                return Err(LogFileError::TooLong);
            }
        }
        Ok(Some(item))
    }

    /// Reads at most so many bytes; how many there were.
    fn take(&mut self, bytes: u64, into: &mut Vec<u8>) -> Result<u64, LogFileError> {
        Ok((&mut *self.file).take(bytes).read_to_end(into)? as u64)
    }

    fn exactly(&mut self, bytes: u64, into: &mut Vec<u8>) -> Result<(), LogFileError> {
        if self.take(bytes, into)? == bytes { Ok(()) } else { Err(LogFileError::CutShort) }
    }
}

/// Whether an item begins as one of a kind that a later version may have: an array that begins with another number.
fn is_of_an_unknown_kind(item: &[u8]) -> bool {
    let number = cbor::check_deterministic(item).ok().and_then(|()| {
        let mut decoder = minicbor::Decoder::new(item);
        decoder.array().ok()?.filter(|length| *length > 0)?;
        decoder.u64().ok()
    });
    number.is_some_and(|number| number > LAST_KIND)
}
