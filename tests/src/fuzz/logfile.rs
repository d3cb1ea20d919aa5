//! Log files from elsewhere (format.md, "Log files").
//!
//! The first byte picks: a file of any bytes, or the file of a log of a real hall that is edited. A file that is found
//! sound holds what a sequencer sealed, in the one form that it has.

use std::sync::LazyLock;

use arbitrary::Unstructured;
use kwoon_ledger::limits::FILE_ITEM_BYTES_MAX;
use kwoon_sync::check::check;
use kwoon_sync::logfile::{LogItem, LogReader, LogWriter, ReadItem};

use super::fold::{LOGS, STEPS_MAX, edit_bytes};

static FILES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut hall = LOGS.world.hall.fork();
    LOGS.logs.iter().map(|folded| hall.export(&folded.log.object.to_string())).collect()
});

/// The files of the logs of the hall.
pub(super) fn files() -> &'static [Vec<u8>] {
    &FILES
}

/// See the module.
pub fn target(input: &[u8]) {
    let Some((&mode, rest)) = input.split_first() else { return };
    if mode.is_multiple_of(2) {
        check_file(rest);
    } else {
        // Where the input ends, what it says ends.
        let _ = edited(&mut Unstructured::new(rest));
    }
}

fn edited(input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let mut file = input.choose(files())?.clone();
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        edit_bytes(input, Some(&mut file))?;
    }
    check_file(&file);
    Ok(())
}

fn check_file(file: &[u8]) {
    let finding = check(&mut &file[..], LOGS.world.hall.now).expect("memory can be read");
    let checked = &finding.checked;
    assert_eq!(checked.sound, checked.fault.is_none(), "it is sound, or it is said what is wrong");
    if let Some(unknown) = finding.unknown {
        assert!(!checked.sound && (1..=FILE_ITEM_BYTES_MAX).contains(&unknown.bytes.len()));
    }
    if checked.sound {
        check_sound(file);
    }
}

/// Every fact was sealed in the hall, and there is no other file with the same in it.
fn check_sound(file: &[u8]) {
    let mut rest = file;
    let (mut reader, header) = LogReader::begin(&mut rest).expect("a header");
    let true_log = LOGS.logs.iter().find(|folded| folded.log.object == header.object).expect("a log of the hall");
    let mut again = Vec::new();
    let mut writer = LogWriter::begin(&mut again, &header).expect("memory can be written");
    let mut index = 0;
    while let Some(item) = reader.item().expect("an item") {
        let ReadItem::Known(item) = item else { panic!("an item of an unknown kind is not sound") };
        match &item {
            LogItem::Fact(fact) => {
                assert!(true_log.log.facts[index] == fact.as_slice(), "the sequencer sealed another log");
                index += 1;
            }
            LogItem::Seal(seal) => assert!(true_log.log.seals.iter().any(|known| known == seal.as_slice())),
            LogItem::Content(..) => {}
            LogItem::End(..) => {
                writer.end().expect("memory can be written");
                break;
            }
        }
        writer.item(&item).expect("memory can be written");
    }
    assert!(again == file, "a log file has one encoding");
}
