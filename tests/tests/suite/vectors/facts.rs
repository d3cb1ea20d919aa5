//! Facts, seals, outcomes, statements and changes of epoch.

use kwoon_keys::{RecordKind, cbor, cose};
use kwoon_ledger::action::{ObjectId, SCHEMA, attempt_hash};
use kwoon_ledger::effect::Effect;
use kwoon_ledger::fact::{
    Cause, DetailValue, Due, EpochChange, EpochReason, EpochStatement, Evidence, Fact, Opening, Origin, Outcome,
    OutcomeRecord, OutcomeResult, RULES, RefusalDetail, Seal, SealedOutcome, Signer, Statement, fact_hash, head_hash,
    running_digest,
};
use kwoon_ledger::time::Time;
use kwoon_sync::receipt::Envelope;
use minicbor::bytes::ByteVec;

use super::bodies::{action, first_record};
use super::inputs::*;
use super::*;

pub fn signed_action() -> ByteVec {
    cose::sign(RecordKind::Action, &cbor::write(&action()), &instance_key()).into()
}

pub fn signed_identity() -> ByteVec {
    cose::sign(RecordKind::Action, &cbor::write(&first_record()), &owner()).into()
}

/// The effects of [`fact`].
pub fn effects() -> Vec<Effect> {
    vec![Effect::AdmissionVoided(grant().id()), Effect::ThreadClosed]
}

/// A fact in the middle of a log.
pub fn fact() -> Fact {
    Fact {
        schema: SCHEMA,
        object: ObjectId::Thread(thread()),
        epoch: 0,
        index: 301,
        previous: digest(0x33),
        log_time: NOON,
        cause: Cause::Action(signed_action()),
        evidence: Vec::new(),
        digest: running_digest(&digest(0x41), 301, &cbor::write(&effects())),
        opening: None,
    }
}

pub fn seal() -> Seal {
    let head = head_hash(&head_hash(&fact().previous, &fact_hash(&cbor::write(&fact()))), &digest(0x42));
    Seal {
        schema: SCHEMA,
        object: ObjectId::Thread(thread()),
        epoch: 0,
        index: 302,
        head,
        log_time: NOON,
        wall_time: Time(NOON.0 + 5),
    }
}

/// [`fact`] under [`seal`], with one fact between them that is not shown.
pub fn sealed_outcome() -> SealedOutcome {
    SealedOutcome {
        fact: cbor::write(&fact()).into(),
        effects: cbor::write(&effects()).into(),
        digest_before: digest(0x41),
        later: vec![digest(0x42)],
        seal: seal().sign(&host()).into(),
    }
}

pub fn epoch_statement() -> EpochStatement {
    EpochStatement {
        schema: SCHEMA,
        object: ObjectId::Thread(thread()),
        next_epoch: 1,
        next_host: next_owner().public(),
        reason: EpochReason::Handover,
        index: 302,
        head: digest(0x33),
        signer: Signer::Host(host().public()),
    }
}

fn epoch_change() -> EpochChange {
    EpochChange {
        next_epoch: 1,
        continues_at: 302,
        head: digest(0x33),
        next_host: next_owner().public(),
        reason: EpochReason::Handover,
        rules: RULES,
        statements: vec![cose::sign(RecordKind::Epoch, &cbor::write(&epoch_statement()), &host()).into()],
    }
}

pub fn outcome(result: OutcomeResult) -> Outcome {
    Outcome {
        schema: SCHEMA,
        request: action().request(),
        attempt: attempt_hash(&signed_action()),
        object: ObjectId::Thread(thread()),
        epoch: 0,
        index: 300,
        head: digest(0x33),
        log_time: NOON,
        result,
    }
}

pub fn refused() -> OutcomeResult {
    let field = RefusalDetail { name: "field".to_owned(), value: DetailValue::Text("text".to_owned()) };
    let limit = RefusalDetail { name: "limit".to_owned(), value: DetailValue::Number(1 << 24) };
    OutcomeResult::Refused("content_too_large".to_owned(), vec![field, limit])
}

pub fn add(vectors: &mut Vectors) {
    add_facts(vectors);
    for value in [DetailValue::Text("text".to_owned()), DetailValue::Number(1 << 24)] {
        vectors.record(detail_value_name(&value), &value);
        vectors.record(
            &format!("RefusalDetail of a {}", detail_value_name(&value)),
            &RefusalDetail { name: "field".to_owned(), value },
        );
    }
    vectors.signed("Seal", RecordKind::Seal, &seal(), &host());
    vectors.record(
        "Seal as it is stored",
        &vec![ByteVec::from(cose::sign(RecordKind::Seal, &cbor::write(&seal()), &host()))],
    );
    assert_eq!(cbor::read_strict::<Vec<ByteVec>>(&seal().sign(&host())).map(|copies| copies.len()), Ok(1));
    vectors.record("SealedOutcome", &sealed_outcome());
    assert_eq!(sealed_outcome().verify(&host().public()), Ok((fact(), effects())));

    for result in [OutcomeResult::Existing(7), refused()] {
        vectors.record(outcome_result_name(&result), &result);
    }
    let existing = outcome(OutcomeResult::Existing(7));
    let signed = vectors.signed("Outcome", RecordKind::Outcome, &existing, &host());
    vectors.signed("Outcome of a refusal", RecordKind::Outcome, &outcome(refused()), &host());
    vectors.record(
        "OutcomeRecord",
        &OutcomeRecord { outcome: signed.into(), action: signed_action(), made_by: Some(request()) },
    );
    vectors.record(
        "Envelope",
        &Envelope {
            key: "k-1".to_owned(),
            received_at: NOON,
            trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned()),
            owes_secret: Some(true),
        },
    );

    let statement = Statement {
        schema: SCHEMA,
        object: ObjectId::Thread(thread()),
        epoch: 0,
        index: 302,
        head: digest(0x33),
        log_time: NOON,
        nonce: digest(0x43),
        host: host().public(),
    };
    vectors.signed("Statement", RecordKind::Statement, &statement, &host());
    vectors.signed("EpochStatement", RecordKind::Epoch, &epoch_statement(), &host());
    let signers =
        [Signer::Host(host().public()), Signer::Agent(agent(), instance_id()), Signer::Owner(next_owner().public())];
    for signer in signers {
        // A new variant gets a vector here.
        let name = match signer {
            Signer::Host(_) => "Signer.Host",
            Signer::Agent(..) => "Signer.Agent",
            Signer::Owner(_) => "Signer.Owner",
        };
        vectors.record(name, &signer);
    }
    vectors.record("EpochChange", &epoch_change());
    let reasons = [
        EpochReason::Handover,
        EpochReason::LastReaderGone,
        EpochReason::Copy,
        EpochReason::Lost,
        EpochReason::Fork,
        EpochReason::Move,
    ];
    for reason in reasons {
        vectors.record(epoch_reason_name(&reason), &reason);
    }
}

fn add_facts(vectors: &mut Vectors) {
    for due in [Due::Delivery(assignment()), Due::Judgment(assignment())] {
        vectors.record(due_name(&due), &due);
    }
    let evidence = Evidence::Publication(sealed_outcome(), vec![signed_identity()]);
    vectors.record(evidence_name(&evidence), &evidence);
    let causes = [
        Cause::Action(signed_action()),
        Cause::Expiry(Due::Delivery(assignment())),
        Cause::Account(agent(), vec![signed_identity()]),
        Cause::Epoch(epoch_change()),
        Cause::Consequence(sealed_outcome()),
        Cause::Begun,
    ];
    for cause in causes {
        vectors.record(cause_name(&cause), &cause);
    }
    let opening = Opening {
        rules: RULES,
        sequencer: host().public(),
        creator: vec![signed_identity()],
        origin: None,
        blind: None,
    };
    vectors.record("Opening", &opening);
    let origin = Origin { outcome: sealed_outcome(), sequencer: host().public() };
    vectors.record("Origin", &origin);
    vectors.record("Opening of a memory born of an entry", &Opening { origin: Some(origin), ..opening.clone() });
    vectors.record("Opening of a publication", &Opening { blind: Some(digest(0x44)), ..opening.clone() });
    vectors.record("Fact", &fact());
    let first = Fact { index: 0, previous: Default::default(), opening: Some(opening), ..fact() };
    vectors.record("Fact that opens a log", &first);
    vectors.record("Fact with evidence", &Fact { evidence: vec![evidence], ..fact() });
    let expiry = Cause::Expiry(Due::Judgment(assignment()));
    vectors.record("Fact of an expiry", &Fact { cause: expiry, ..fact() });
}
