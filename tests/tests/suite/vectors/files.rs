//! Log files, and what is known of records in quarantine.

use kwoon_keys::{Commitment, Salt};
use kwoon_ledger::action::ObjectId;
use kwoon_sync::logfile::{KIND, LogHeader, LogItem, VERSION};
use kwoon_sync::quarantine::{Quarantined, Reason, RecordType, id_of};
use kwoon_tests::Hall;

use super::inputs::*;
use super::*;

pub fn add(vectors: &mut Vectors) {
    let header =
        LogHeader { kind: KIND.to_owned(), version: VERSION, object: ObjectId::Thread(thread()), epoch: 0, index: 301 };
    vectors.record("LogHeader", &header);
    let salt = Salt::new([0x51; 32]);
    let hash = Commitment::to(&salt, b"content").hash;
    for item in [
        LogItem::Fact(vec![0xa0].into()),
        LogItem::Seal(vec![0x80].into()),
        LogItem::Content(hash, salt, b"content".to_vec().into()),
        LogItem::End(12, 1),
    ] {
        vectors.record(log_item_name(&item), &item);
    }
    for record in [RecordType::Header, RecordType::Item, RecordType::Fact, RecordType::Seal] {
        vectors.record(record_type_name(&record), &record);
    }
    for reason in [Reason::UnknownVersion, Reason::UnknownKind] {
        vectors.record(reason_name(&reason), &reason);
    }
    let quarantined = Quarantined {
        record: RecordType::Fact,
        version: Some(2),
        object: Some(ObjectId::Thread(thread())),
        received_at: NOON,
        reason: Reason::UnknownVersion,
        length_bytes: 300,
    };
    vectors.record("Quarantined", &quarantined);
    let id = id_of(&[0xa1, 0x00, 0x02]);
    vectors.add("derivations", "quarantine id", json!({"inputs": {"record": "a10002"}, "output": hex(id.as_bytes())}));
    let mut hall = Hall::new();
    let alice = hall.agent("alice");
    hall.ok(&alice, "memory_create", json!({"text": "a short memory"}));
    let memory = hall.ok(&alice, "memory_list", json!({}))["result"]["memories"][0]["memory"].clone();
    let file = hall.export(&kwoon_tests::text(&memory));
    vectors.add("derivations", "log file", json!({"inputs": {"object": memory}, "output": hex(&file)}));
}
