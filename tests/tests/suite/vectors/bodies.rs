//! Actions and what they ask.

use kwoon_keys::id::{EngagementId, PublicationId, RequestId, TaskId};
use kwoon_keys::{RecordKind, cbor};
use kwoon_ledger::action::{
    Action, Actor, AdmissionUse, Assign, Body, EntryPost, MediaType, MemoryUpdate, ObjectId, Output, Position, Role,
    SCHEMA, Source, ThreadCreate,
};
use kwoon_ledger::identity::{
    Change, Consent, Genesis, IdentityChange, OwnerChange, ProfileChange, SecretGrant, Status, StatusChange,
};
use kwoon_ledger::limits::ACTION_VALIDITY;
use kwoon_ledger::rules::identity::record_hash;
use minicbor::bytes::ByteVec;

use super::inputs::*;
use super::*;

/// The first record of the identity of all vectors.
pub fn genesis() -> Genesis {
    Genesis {
        nonce: digest(0x21),
        created_at: NOON,
        predecessor: Some(other_agent()),
        name: commitment(0x22),
        display_name: Some(commitment(0x23)),
        mission: Some(commitment(0x24)),
        policies: vec![policy()],
        instance: instance(),
    }
}

/// An action of the owner.
fn owners(object: Option<ObjectId>, position: Option<Position>, body: Body) -> Action {
    Action {
        schema: SCHEMA,
        actor: Actor::Owner(owner().public()),
        object,
        position,
        token: digest(0x31),
        request_digest: digest(0x32),
        attempt: 0,
        generation: 0,
        issued_at: NOON,
        expires_at: NOON.after(ACTION_VALIDITY),
        needs: Vec::new(),
        after: Vec::new(),
        body,
    }
}

/// The first record, as an action.
pub fn first_record() -> Action {
    owners(None, None, Body::AgentCreate(genesis()))
}

pub fn position() -> Position {
    Position { epoch: 0, index: 300, head: digest(0x33) }
}

/// An action of an agent on a thread.
pub fn action() -> Action {
    Action {
        schema: SCHEMA,
        actor: Actor::Agent(agent(), instance_id()),
        object: Some(ObjectId::Thread(thread())),
        position: Some(position()),
        token: digest(0x31),
        request_digest: digest(0x32),
        attempt: 1,
        generation: 2,
        issued_at: NOON,
        expires_at: NOON.after(ACTION_VALIDITY),
        needs: vec![request()],
        after: vec![RequestId(digest(0xe2)), RequestId(digest(0xe3))],
        body: Body::EntryHandle(request(), Some(commitment(0x34))),
    }
}

fn entry() -> EntryPost {
    EntryPost {
        source: Source::Pinned(pin()),
        summary: Some(commitment(0x35)),
        reply_to: Some(request()),
        ask: Some(vec![agent(), other_agent()]),
        task: Some(TaskId(digest(0xf1))),
        assign: Some(terms()),
    }
}

pub fn add(vectors: &mut Vectors) {
    add_parts(vectors);
    let consent = Consent { schema: SCHEMA, agent: agent(), version: 2, owner: next_owner().public() };
    let consent = vectors.signed("Consent", RecordKind::Consent, &consent, &next_owner());
    let joined = AdmissionUse { schema: SCHEMA, thread: thread(), joiner: agent(), request: request() };
    let proof = vectors.signed("AdmissionUse", RecordKind::Admission, &joined, &admission_key());

    for change in changes(consent.clone().into()) {
        vectors.record(change_name(&change), &change);
    }
    let profile = ProfileChange {
        display_name: Some(commitment(0x23)),
        mission: Some(commitment(0x24)),
        policies: Some(vec![policy()]),
        owner: Some(OwnerChange { owner: next_owner().public(), consent: consent.into() }),
    };
    vectors.record("OwnerChange", profile.owner.as_ref().expect("it was given"));
    vectors.record("ProfileChange", &profile);
    vectors.record("Genesis", &genesis());
    for body in bodies(proof.into()) {
        vectors.record(body_name(&body), &body);
    }
    vectors
        .record("Body.ThreadCreate with nothing", &Body::ThreadCreate(ThreadCreate { subject: None, admission: None }));
    vectors.record("Body.EntryHandle without a note", &Body::EntryHandle(request(), None));
    vectors.record("Body.AssignmentTake with an output", &Body::AssignmentTake(assignment(), Some(output())));
    let said =
        EntryPost { source: Source::New(text()), summary: None, reply_to: None, ask: None, task: None, assign: None };
    vectors.record("Body.EntryPost with a new text alone", &Body::EntryPost(said.clone()));
    let asking_nobody = EntryPost { ask: Some(Vec::new()), ..said };
    vectors.record("Body.EntryPost that asks nobody", &Body::EntryPost(asking_nobody));

    vectors.signed("Action", RecordKind::Action, &action(), &instance_key());
    let creating = Action {
        object: None,
        position: None,
        attempt: 0,
        generation: 0,
        needs: Vec::new(),
        after: Vec::new(),
        body: Body::MemoryCreate(bare_version()),
        ..action()
    };
    vectors.signed("Action that creates", RecordKind::Action, &creating, &instance_key());
    vectors.signed("Action that is a first identity record", RecordKind::Action, &first_record(), &owner());
    let payload = cbor::write(&first_record());
    let agent = kwoon_keys::id::AgentId(record_hash(&payload));
    let change = IdentityChange {
        version: 2,
        previous: agent.0,
        change: Change::Status(StatusChange { status: Status::Deactivated, reason: None }),
    };
    let later = owners(Some(ObjectId::Identity(agent)), Some(position()), Body::AgentChange(change));
    vectors.signed("Action that is a later identity record", RecordKind::Action, &later, &owner());
}

fn add_parts(vectors: &mut Vectors) {
    let objects = [
        ObjectId::Identity(agent()),
        ObjectId::Memory(memory()),
        ObjectId::Publication(PublicationId(digest(0xb2))),
        ObjectId::Thread(thread()),
        ObjectId::Task(TaskId(digest(0xf1))),
        ObjectId::Engagement(EngagementId(digest(0xf2))),
    ];
    for object in objects {
        vectors.record(object_name(&object), &object);
    }
    for actor in [Actor::Agent(agent(), instance_id()), Actor::Owner(owner().public())] {
        vectors.record(actor_name(&actor), &actor);
    }
    for media_type in MediaType::ALL {
        vectors.record(media_type_name(&media_type), &media_type);
    }
    for status in [Status::Active, Status::Deactivated, Status::Terminated] {
        vectors.record(status_name(&status), &status);
    }
    for role in [Role::Observer, Role::Speaker, Role::Governor] {
        vectors.record(role_name(&role), &role);
    }
    for source in [Source::New(text()), Source::Pinned(pin())] {
        vectors.record(source_name(&source), &source);
    }
    vectors.record("Position", &position());
    let payload_alone = Output { payload: Some(text()), memories: Vec::new() };
    vectors.record("Output of a payload alone", &payload_alone);
    vectors.record("Output of memories alone", &Output { payload: None, ..output() });
    vectors.record("Assign without what is optional", &Assign { output_schema: None, redoes: None, ..terms() });
    vectors.record("EntryPost", &entry());
    vectors.record("ThreadCreate", &ThreadCreate { subject: Some(commitment(0x36)), admission: Some(grant()) });
    vectors.record("MemoryUpdate", &MemoryUpdate { version: version(), expected_version: Some(1) });
    vectors.record("StatusChange", &StatusChange { status: Status::Deactivated, reason: Some(commitment(0x25)) });
    let change = Change::InstanceRevoked(instance_id(), vec![secret_grant()]);
    vectors.record("SecretGrant", &secret_grant());
    vectors.record("IdentityChange", &IdentityChange { version: 2, previous: digest(0x26), change });
}

fn secret_grant() -> SecretGrant {
    SecretGrant { instance: instance_id(), sealed: ByteVec::from(vec![0x61, 0x67, 0x65]) }
}

fn changes(consent: ByteVec) -> Vec<Change> {
    let owner = Some(OwnerChange { owner: next_owner().public(), consent });
    vec![
        Change::Profile(ProfileChange { owner, ..ProfileChange::default() }),
        Change::Status(StatusChange { status: Status::Deactivated, reason: Some(commitment(0x25)) }),
        Change::InstanceAdded(instance(), ByteVec::from(vec![0x61, 0x67, 0x65])),
        Change::InstanceRevoked(instance_id(), vec![secret_grant()]),
        Change::HomeHost(host().public()),
    ]
}

fn bodies(proof: ByteVec) -> Vec<Body> {
    let change = Change::HomeHost(host().public());
    vec![
        Body::AgentCreate(genesis()),
        Body::AgentChange(IdentityChange { version: 2, previous: digest(0x26), change }),
        Body::MemoryCreate(version()),
        Body::MemoryUpdate(MemoryUpdate { version: version(), expected_version: None }),
        Body::MemoryPublish,
        Body::MemoryUnpublish,
        Body::MemoryWithdraw,
        Body::ThreadCreate(ThreadCreate { subject: Some(commitment(0x36)), admission: Some(grant()) }),
        Body::AdmissionIssue(grant()),
        Body::AdmissionVoid,
        Body::ThreadJoin(grant().id(), proof),
        Body::ThreadLeave,
        Body::ThreadClose,
        Body::MemberRemove(other_agent()),
        Body::MemberRole(other_agent(), Role::Observer),
        Body::EntryPost(entry()),
        Body::EntryHandle(request(), Some(commitment(0x34))),
        Body::EntryRetract(request()),
        Body::AssignmentTake(assignment(), None),
        Body::AssignmentDeliver(assignment(), output()),
        Body::AssignmentAccept(assignment()),
        Body::AssignmentReturn(assignment(), commitment(0x37)),
        Body::AssignmentAbandon(assignment()),
        Body::AssignmentVoid(assignment()),
    ]
}
