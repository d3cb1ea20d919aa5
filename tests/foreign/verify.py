#!/usr/bin/env python3
"""Verifies a kwoon log file by docs/format.md alone. It shares nothing with kwoon's own code.

    verify.py FILE...         what each file holds; exit code 0 if all are sound, 1 if one is wrong,
                              3 if one holds a record of an unknown version or kind
    verify.py --flip FILE...  also changes every byte of each file, twice, and expects each change to be found

Checked are the encoding, the chain of hashes, log times, the forms of actions, identity records and who may sign what,
every signature (strictly), seals, carried outcomes and evidence, contents, and the running digests of identities,
memories and publications. The rules of threads are not known here, so whether an action was allowed, deadlines, and the
running digests of threads are not checked; the seals cover what was recorded of them.
"""

import sys
from functools import lru_cache
from io import BytesIO

import cbor2
from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

FORMAT_BYTES = {"header": 1024, "item": 67_108_864}
ACTION_BYTES_MAX = 262_144
VALIDITY_MAX_MS = 90 * 86_400_000
AHEAD_MAX_MS = 10 * 60_000
LINE_MAX, TEXT_MAX, REASON_MAX, POLICIES_MAX = 16_384, 16_777_216, 1_048_576, 64
IDENTITY, MEMORY, PUBLICATION, THREAD = 0, 1, 2, 3
ACTIVE, DEACTIVATED, TERMINATED = 0, 1, 2
ZERO = bytes(32)


class Wrong(Exception):
    """Something is not as the format says."""


class Unknown(Exception):
    """A record of a version or kind that this script does not know."""


def need(holds, what):
    if not holds:
        raise Wrong(what)


# ------------------------------------------------------------------------------------------------ encoding


def check_types(item, depth=24):
    need(depth > 0, "the nesting is too deep")
    kind = type(item)
    if kind is int:
        need(0 <= item < 1 << 64, "a number is none that records use")
    elif kind is list or kind is tuple:
        for part in item:
            check_types(part, depth - 1)
    elif kind is dict:
        for key, value in item.items():
            check_types(key, depth - 1)
            check_types(value, depth - 1)
    else:
        need(kind in (bytes, str, bool) or item is None, "an item is of a kind that records never use")


def encode(item):
    return cbor2.dumps(item, canonical=True)


def decode_at(data, start, bytes_max):
    """The item that begins here, and where it ends. Its one encoding must be the bytes that are there."""
    try:
        stream = BytesIO(data)
        stream.seek(start)
        item = cbor2.CBORDecoder(stream).decode()
        check_types(item)
        written = encode(item)
    except (Wrong, Unknown):
        raise
    except Exception as error:  # cbor2 raises many kinds, also on what it cannot hash or encode
        raise Wrong(f"not CBOR: {type(error).__name__}") from error
    need(len(written) <= bytes_max, "an item is too long")
    need(data.startswith(written, start), "the encoding is not deterministic")
    return item, start + len(written)


def decode(data):
    item, end = decode_at(data, 0, len(data))
    need(end == len(data), "there are bytes after an item")
    return item


TYPES = {"uint": int, "bytes": bytes, "text": str, "array": list, "map": dict, "bool": bool}


def typed(value, kind):
    if kind in ("hash", "key"):
        need(type(value) is bytes and len(value) == 32, "not 32 bytes")
    else:
        need(type(value) is TYPES[kind], f"not of type {kind}")
    return value


def field(record, key, kind, optional=False):
    """A field of a record that is a map."""
    typed(record, "map")
    if key not in record:
        need(optional, f"field {key} is missing")
        return None
    return typed(record[key], kind)


def choice(value, known):
    """The number of a choice with parts, and its parts. `known`: the types of the parts by number."""
    typed(value, "array")
    need(value and type(value[0]) is int, "not a choice")
    if value[0] not in known:
        raise Unknown(f"a choice has the number {value[0]}")
    kinds, parts = known[value[0]], []
    for place, kind in enumerate(kinds, 1):
        optional = kind.endswith("?")
        if place >= len(value):
            need(optional, "a part is missing")
            parts.append(None)
        else:
            parts.append(typed(value[place], kind.rstrip("?")))
    return value[0], parts


def plain(value, most):
    typed(value, "uint")
    if value > most:
        raise Unknown(f"a plain choice has the number {value}")
    return value


def check_schema(record):
    """The version comes first; of a later one nothing else is read."""
    schema = field(record, 0, "uint")
    if schema != 1:
        raise Unknown(f"schema {schema}")


# ------------------------------------------------------------------------------------------------ hashes


def hashed(context, *parts):
    digest = blake3(derive_key_context=context)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def head_after(head, fact_hash):
    return hashed("kwoon 1 head", head, fact_hash)


def running_digest(before, index, effects):
    return hashed("kwoon 1 effects", before, index.to_bytes(8, "big"), effects)


def instance_id(instance):
    return hashed("kwoon 1 instance id", *(field(instance, key, "key") for key in (0, 1, 2)))


def memory_id(author, blind):
    return hashed("kwoon 1 memory id", author, blind)


def memory_blind(request, place):
    return hashed("kwoon 1 memory blind", request, place)


def base32(data):
    alphabet = "abcdefghijklmnopqrstuvwxyz234567"
    bits = "".join(f"{byte:08b}" for byte in data)
    bits += "0" * (-len(bits) % 5)
    return "".join(alphabet[int(bits[at : at + 5], 2)] for at in range(0, len(bits), 5))


def shown(object_id):
    return ["agt", "mem", "pub", "thr", "tsk", "eng"][object_id[0]] + "_" + base32(object_id[1][:16])


# ------------------------------------------------------------------------------------------------ signatures

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


@lru_cache(maxsize=None)
def is_sound_point(encoded):
    """Whether 32 bytes are a point of edwards25519 (RFC 8032, 5.1.3) that is not of small order."""
    number = int.from_bytes(encoded, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    y %= P
    u, v = (y * y - 1) % P, (D * y * y + 1) % P
    x = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    if v * x * x % P != u:
        x = x * pow(2, (P - 1) // 4, P) % P
        if v * x * x % P != u:
            return False
    if x == 0 and sign:
        return False
    if x % 2 != sign:
        x = P - x
    for _ in range(3):
        t = D * x * x * y * y % P
        x, y = 2 * x * y * pow(1 + t, -1, P) % P, (y * y + x * x) * pow(1 - t, -1, P) % P
    # Eight times a point of small order is the neutral one.
    return (x, y) != (0, 1)


@lru_cache(maxsize=None)
def signature_holds(key, signature, message):
    if not is_sound_point(key) or not is_sound_point(signature[:32]):
        return False
    try:
        # OpenSSL compares R as bytes, clears no cofactor, and takes no S at or above the order.
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def protected(kind):
    return encode({1: -19, 16: f"application/vnd.kwoon.{kind}+cbor"})


def split(kind, signed):
    """Payload and signature of a COSE_Sign1, which has one encoding."""
    try:
        tagged = cbor2.loads(signed)
    except Exception as error:
        raise Wrong("not a signed record") from error
    need(type(tagged) is cbor2.CBORTag and tagged.tag == 18, "not a signed record")
    parts = tagged.value
    need(isinstance(parts, (list, tuple)) and len(parts) == 4, "not a signed record")
    payload, signature = parts[2], parts[3]
    need(type(payload) is bytes and type(signature) is bytes and len(signature) == 64, "not a signed record")
    one = cbor2.CBORTag(18, [protected(kind), {}, payload, signature])
    need(encode(one) == signed, "not the one encoding of a signed record of this type")
    return payload, signature


def verified(kind, signed, key):
    payload, signature = split(kind, signed)
    message = encode(["Signature1", protected(kind), b"", payload])
    need(signature_holds(key, signature, message), f"the signature of the {kind} does not verify")
    return payload


def check_key(key):
    need(is_sound_point(key), "a key is of small order or no point")
    return key


# ------------------------------------------------------------------------------------------------ common records


def object_id(value):
    kind, (full,) = choice(value, {number: ["hash"] for number in range(6)})
    return (kind, full)


def commitment(value):
    return (field(value, 0, "hash"), field(value, 1, "uint"))


def text(value):
    plain(field(value, 1, "uint"), 6)
    return commitment(field(value, 0, "map"))


def lines(record, *keys):
    return [commitment(record[key]) for key in keys if key in record]


def version(value):
    """The commitments of a version of a memory."""
    tags = field(value, 3, "array")
    return [text(field(value, 0, "map")), *lines(value, 1, 2), *map(commitment, tags)]


def pin(value):
    memory, author, blind = field(value, 0, "hash"), field(value, 3, "hash"), field(value, 4, "hash")
    need(field(value, 1, "uint") >= 1 and memory == memory_id(author, blind), "a pin is not whole")
    return {"memory": memory, "author": author, "version": value[1], "text": text(field(value, 2, "map"))}


def output(value):
    payload, memories = field(value, 0, "map", optional=True), field(value, 1, "array")
    need(payload is not None or memories, "an output is empty")
    pins = [pin(each) for each in memories]
    return [text(payload)] * (payload is not None) + [each["text"] for each in pins]


def grant(value):
    key = check_key(field(value, 0, "key"))
    plain(field(value, 1, "uint"), 2)
    return hashed("kwoon 1 admission id", key), key


BODIES = {
    0: ["map"], 1: ["map"],
    20: ["map"], 21: ["map"], 22: [], 23: [], 24: [],
    40: ["map"], 41: ["map"], 42: [], 43: ["hash", "bytes"], 44: [], 45: [], 46: ["hash"], 47: ["hash", "uint"],
    48: ["map"], 49: ["hash", "map?"], 50: ["hash"],
    51: ["hash", "map?"], 52: ["hash", "map"], 53: ["hash"], 54: ["hash", "map"], 55: ["hash"], 56: ["hash"],
}  # fmt: skip
CREATE, CHANGE = 0, 1
MEMORY_CREATE, UPDATE, PUBLISH, UNPUBLISH, WITHDRAW = 20, 21, 22, 23, 24
THREAD_CREATE, ISSUE, JOIN, ENTRY_POST = 40, 41, 43, 48


def contents_of(number, parts):
    """The commitments in the body of an action, and the form of what it holds."""
    if number == MEMORY_CREATE:
        return version(parts[0])
    if number == UPDATE:
        field(parts[0], 1, "uint", optional=True)
        return version(field(parts[0], 0, "map"))
    if number == THREAD_CREATE:
        return lines(parts[0], 0)
    if number == ENTRY_POST:
        return entry(parts[0])["contents"]
    if number == 49:
        return [commitment(parts[1])] if parts[1] is not None else []
    if number in (51, 52):
        return output(parts[1]) if parts[1] is not None else []
    if number == 54:
        return [commitment(parts[1])]
    if number == 47:
        plain(parts[1], 2)
    return []


def entry(value):
    source, (said,) = choice(field(value, 0, "array"), {0: ["map"], 1: ["map"]})
    pinned = pin(said) if source == 1 else None
    asked = field(value, 3, "array", optional=True)
    if asked is not None:
        need(all(low < high for low, high in zip(asked, asked[1:])), "who is asked is not in rising order")
    contents = [pinned["text"] if pinned else text(said), *lines(value, 1)]
    assign = field(value, 5, "map", optional=True)
    if assign is not None:
        field(assign, 0, "hash")
        contents.append(commitment(field(assign, 1, "map")))
        contents += lines(assign, 2)
        for key in (3, 4):
            need(1000 <= field(assign, key, "uint") <= 400 * 86_400_000, "a duration is out of bounds")
    return {"new": said if source == 0 else None, "pin": pinned, "summary": value.get(1), "contents": contents}


class Action:
    """A signed action, read but not yet verified."""

    def __init__(self, signed):
        need(len(signed) <= ACTION_BYTES_MAX, "an action is too long")
        self.signed = signed
        self.payload, _ = split("action", signed)
        record = decode(self.payload)
        check_schema(record)
        actor, who = choice(field(record, 1, "array"), {0: ["hash", "hash"], 1: ["key"]})
        self.owner = who[0] if actor == 1 else None
        self.agent, self.instance = who if actor == 0 else (None, None)
        self.object = object_id(record[2]) if 2 in record else None
        self.position = field(record, 3, "map", optional=True)
        self.request = hashed("kwoon 1 request id", who[0], field(record, 4, "hash"))
        field(record, 5, "hash")
        field(record, 6, "uint")
        field(record, 7, "uint")
        self.issued_at, self.expires_at = field(record, 8, "uint"), field(record, 9, "uint")
        self.needs, after = field(record, 10, "array"), field(record, 11, "array")
        need(len(self.needs) <= 64 and len(after) <= 64, "an action names too many others")
        for named in (*self.needs, *after):
            typed(named, "hash")
        self.body, self.parts = choice(field(record, 12, "array"), BODIES)
        self.contents = contents_of(self.body, self.parts)


# ------------------------------------------------------------------------------------------------ identities


def instance(value):
    check_key(field(value, 0, "key"))
    return {0: value[0], 1: field(value, 1, "key"), 2: field(value, 2, "key")}


def policies(value):
    need(len(value) <= POLICIES_MAX, "there are too many policies")
    kept = []
    for policy in value:
        name = commitment(field(policy, 0, "map"))
        need(name[1] <= LINE_MAX, "a policy's name is too long")
        kept.append({0: policy[0], 1: field(policy, 1, "uint")})
    return kept


class Account:
    """An agent's identity at a version, as a chain of records makes it."""

    def __init__(self, signed):
        action = Action(signed)
        need(action.owner is not None and action.body == CREATE, "an identity does not begin with its first record")
        need(action.object is None and action.position is None, "a first record names an object or a position")
        check_key(action.owner)
        verified("action", signed, action.owner)
        genesis = action.parts[0]
        field(genesis, 0, "hash")
        self.agent = hashed("kwoon 1 agent id", action.payload)
        self.version, self.record, self.owner, self.status = 1, self.agent, action.owner, ACTIVE
        first = instance(field(genesis, 7, "map"))
        self.instances = [first]
        self.was_inactive = False
        self.profile = {0: field(genesis, 3, "map"), 3: policies(field(genesis, 6, "array"))}
        self.profile |= {5: field(genesis, 1, "uint"), 6: first[2]}
        for ours, theirs, kind in ((1, 4, "map"), (2, 5, "map"), (4, 2, "hash")):
            value = field(genesis, theirs, kind, optional=True)
            if value is not None:
                self.profile[ours] = value
        self.contents = self.check_lines()

    def check_lines(self):
        found = lines(self.profile, 0, 1, 2) + [commitment(policy[0]) for policy in self.profile[3]]
        need(all(length <= LINE_MAX for _, length in found), "a line of an identity is too long")
        reason = lines(self.profile, 7)
        need(all(length <= REASON_MAX for _, length in reason), "a reason is too long")
        return found + reason

    def follow(self, signed):
        """The next record of the chain."""
        action = Action(signed)
        need(action.owner == self.owner, "a record is not its owner's")
        verified("action", signed, self.owner)
        need(action.body == CHANGE and action.object == (IDENTITY, self.agent), "a record is of another identity")
        change = action.parts[0]
        need(field(change, 0, "uint") == self.version + 1, "a record's version does not follow")
        need(field(change, 1, "hash") == self.record, "a record does not follow on the one before")
        need(self.status != TERMINATED, "a record follows a termination")
        number, parts = choice(
            field(change, 2, "array"), {0: ["map"], 1: ["map"], 2: ["map", "bytes"], 3: ["hash", "array"], 4: ["key"]}
        )
        need(number != 4, "a change of the home host is refused")
        self.version += 1
        need(self.version <= 4_096, "there are too many versions")
        need(self.version <= 4_080 or number in (1, 3), "the last versions are kept for what ends something")
        if number == 0:
            self.change_profile(parts[0])
        elif number == 1:
            status = plain(field(parts[0], 0, "uint"), 2)
            need(status != self.status, "a change of status changes nothing")
            self.status = status
            self.was_inactive |= status != ACTIVE
            reason = field(parts[0], 1, "map", optional=True)
            self.profile.pop(7, None)
            if reason is not None:
                self.profile[7] = reason
        elif number == 2:
            added = instance(parts[0])
            need(len(self.instances) < 64, "there are too many instances")
            need(all(instance_id(known) != instance_id(added) for known in self.instances), "an instance is there")
            self.instances.append(added)
        else:
            kept = [known for known in self.instances if instance_id(known) != parts[0]]
            need(len(kept) < len(self.instances), "an instance that is not there is revoked")
            self.instances = kept
        self.record = hashed("kwoon 1 agent id", action.payload)
        self.contents = self.check_lines()
        return action

    def change_profile(self, change):
        need(any(key in change for key in (0, 1, 2, 3)), "a profile changes nothing")
        for ours, theirs in ((1, 0), (2, 1)):
            value = field(change, theirs, "map", optional=True)
            if value is not None:
                self.profile[ours] = value
        listed = field(change, 2, "array", optional=True)
        if listed is not None:
            self.profile[3] = policies(listed)
        owner = field(change, 3, "map", optional=True)
        if owner is not None:
            key, consent = check_key(field(owner, 0, "key")), field(owner, 1, "bytes")
            payload = verified("consent", consent, key)
            expected = {0: 1, 1: self.agent, 2: self.version, 3: key}
            need(payload == encode(expected), "a consent is not over this change")
            self.owner = key

    def copy(self):
        other = object.__new__(Account)
        other.__dict__.update(self.__dict__)
        other.instances, other.profile = list(self.instances), dict(self.profile)
        return other

    def lives_on(self, host):
        return any(each[2] == host for each in self.instances)

    def check_actor(self, action):
        """The action is signed by an instance of this agent, which is active."""
        need(action.agent == self.agent, "an action is another agent's")
        known = [each for each in self.instances if instance_id(each) == action.instance]
        need(known, "the instance is not known")
        verified("action", action.signed, known[0][0])
        need(self.status == ACTIVE, "the agent is not active")

    def encoded(self):
        return {0: self.version, 1: self.record, 2: self.owner, 3: self.status, 4: self.instances}

    def identity_set(self):
        return [0, self.agent, self.encoded(), self.profile]

    def account_set(self):
        return [1, self.agent, self.encoded()]


def chain(records, known=None):
    """The account after these records, which follow on what is known."""
    need(records, "there are no identity records")
    account = known.copy() if known else None
    for signed in records:
        typed(signed, "bytes")
        if account is None:
            account = Account(signed)
        else:
            account.follow(signed)
    return account


# ------------------------------------------------------------------------------------------------ facts


CAUSES = {0: ["bytes"], 1: ["array"], 2: ["hash", "array"], 3: ["map"], 4: ["map"], 5: []}
ACTION, EXPIRY, ACCOUNT, EPOCH, CONSEQUENCE, BEGUN = range(6)


class Fact:
    """A fact, read but not yet verified."""

    def __init__(self, data):
        record = decode(data)
        check_schema(record)
        self.hash = hashed("kwoon 1 fact", data)
        self.object = object_id(field(record, 1, "array"))
        self.epoch, self.index = field(record, 2, "uint"), field(record, 3, "uint")
        self.previous, self.log_time = field(record, 4, "hash"), field(record, 5, "uint")
        self.cause, self.parts = choice(field(record, 6, "array"), CAUSES)
        self.evidence, self.digest = field(record, 7, "array"), field(record, 8, "hash")
        self.opening = field(record, 9, "map", optional=True)
        self.action = Action(self.parts[0]) if self.cause == ACTION else None


def read_seal(record, sequencer):
    """The fields of a stored seal that its sequencer signed."""
    signatures = typed(decode(record), "array")
    need(1 <= len(signatures) <= 16, "a seal has no signature or too many")
    seal = decode(verified("seal", typed(signatures[0], "bytes"), sequencer))
    check_schema(seal)
    field(seal, 5, "uint")
    field(seal, 6, "uint")
    return {
        "object": object_id(field(seal, 1, "array")),
        "epoch": field(seal, 2, "uint"),
        "index": field(seal, 3, "uint"),
        "head": field(seal, 4, "hash"),
    }


def read_outcome(value, sequencer):
    """A carried outcome, verified under its sequencer: the fact and its effects."""
    fact, effects = Fact(field(value, 0, "bytes")), field(value, 1, "bytes")
    before, later = field(value, 2, "hash"), field(value, 3, "array")
    need(running_digest(before, fact.index, effects) == fact.digest, "the effects of an outcome are others")
    need(len(later) <= 16_384, "an outcome is too far from its seal")
    head = head_after(fact.previous, fact.hash)
    for following in later:
        head = head_after(head, typed(following, "hash"))
    seal = read_seal(field(value, 4, "bytes"), sequencer)
    expected = {"object": fact.object, "epoch": fact.epoch, "index": fact.index + len(later), "head": head}
    need(seal == expected, "an outcome's seal seals something else")
    return fact, typed(decode(effects), "array")


def effects_like(effects, number, *parts):
    return [effect for effect in effects if effect[0] == number and tuple(effect[1 : 1 + len(parts)]) == parts]


class Log:
    """A log, verified fact by fact."""

    def __init__(self, header):
        self.object, self.epoch = object_id(field(header, 2, "array")), field(header, 3, "uint")
        self.heads, self.log_time, self.digest = [], 0, ZERO
        self.sequencer, self.sealed, self.seals = None, None, 0
        self.accounts, self.requests, self.admissions, self.contents = {}, set(), {}, set()
        # Of a memory: its number of versions, the current one, whether it is public and ever was, and whether it ended.
        self.versions, self.current, self.public, self.ever_public, self.ended = 0, None, False, False, False
        self.author, self.source = None, -1

    def add(self, data):
        fact = Fact(data)
        head = self.heads[-1] if self.heads else ZERO
        need(fact.object == self.object, "a fact is of another log")
        need(fact.epoch == self.epoch == 0, "a fact is of another epoch")
        need(fact.index == len(self.heads) and fact.previous == head, "the chain is broken")
        need((fact.opening is not None) == (fact.index == 0), "an opening is missing, or in the wrong place")
        need(fact.log_time >= self.log_time, "log time goes back")
        need(len(fact.evidence) <= (16 if fact.cause == ACTION else 0), "there is evidence where there is none")
        if fact.opening is not None:
            self.open(fact)
        effects = [self.action, self.expiry, self.account, self.change_epoch, self.consequence, self.begun][fact.cause](fact)
        if effects is not None:
            expected = running_digest(self.digest, fact.index, encode(effects))
            need(fact.digest == expected, "the effects derived here are others")
        self.digest, self.log_time = fact.digest, fact.log_time
        self.heads.append(head_after(head, fact.hash))

    def open(self, fact):
        rules = field(fact.opening, 0, "uint")
        if rules != 1:
            raise Unknown(f"rules version {rules}")
        self.sequencer = check_key(field(fact.opening, 1, "key"))
        self.creator = field(fact.opening, 2, "array")
        self.origin = field(fact.opening, 3, "map", optional=True)
        self.blind = field(fact.opening, 4, "hash", optional=True)
        need(fact.cause == BEGUN or self.origin is None, "an origin stands where there is none")
        need((self.blind is not None) == (self.object[0] == PUBLICATION), "a blind stands where there is none")
        need(self.object[0] in (IDENTITY, MEMORY, PUBLICATION, THREAD), "rules version 1 has no such objects")

    def creators_account(self):
        account = chain(self.creator)
        need(account.lives_on(self.sequencer), "the creator has no instance on the sequencer's host")
        self.accounts[account.agent] = account
        return account

    # -------------------------------------------------------------------------------------------- causes

    def action(self, fact):
        action = fact.action
        need(action.issued_at <= fact.log_time + AHEAD_MAX_MS, "an action was issued in the future")
        need(action.issued_at <= action.expires_at <= action.issued_at + VALIDITY_MAX_MS, "an action is valid too long")
        need(fact.log_time < action.expires_at, "an action has expired")
        need(action.request not in self.requests, "a request is sealed a second time")
        need(all(needed in self.requests for needed in action.needs), "an action needs what is not there")
        self.check_position(fact)
        self.requests.add(action.request)
        if self.object[0] == IDENTITY:
            return self.identity_record(fact)
        before = []
        if fact.index == 0:
            before = [self.creators_account().account_set()]
            need(action.object is None, "an action that opens a log names an object")
        else:
            need(action.object == self.object, "an action is on another object")
        account = self.accounts.get(action.agent)
        need(account is not None, "the actor is not known in this log")
        account.check_actor(action)
        self.check_evidence(fact)
        self.contents.update(action.contents)
        if self.object[0] == THREAD:
            return self.thread_action(fact)
        need(self.object[0] == MEMORY, "an action stands in a log of consequences")
        return before + self.memory_action(fact)

    def check_position(self, fact):
        position = fact.action.position
        if position is None:
            second = self.object[0] == MEMORY and fact.index == 1
            need(fact.index == 0 or second, "an action names no position")
            return
        need(fact.index > 0, "an action that opens a log names a position")
        index = field(position, 1, "uint")
        need(field(position, 0, "uint") == self.epoch, "an action is of another epoch")
        need(index < len(self.heads) and field(position, 2, "hash") == self.heads[index], "an action builds on another log")

    def identity_record(self, fact):
        if fact.index == 0:
            need(not self.creator, "an identity's log has no creator")
            account = Account(fact.action.signed)
            need(self.object[1] == account.agent, "the identity is another's")
            need(account.instances[0][2] == self.sequencer, "the home host is another")
        else:
            account = chain([fact.action.signed], self.accounts[self.object[1]])
        self.accounts[account.agent] = account
        self.contents.update(account.contents)
        return [account.identity_set()]

    def check_evidence(self, fact):
        """Evidence verifies, and a pin of another's memory has some."""
        shows = []
        for piece in fact.evidence:
            _, (outcome, records) = choice(piece, {0: ["map", "array"]})
            account = chain(records)
            shows.append((account.agent, self.publication_of(outcome, account)))
        if fact.action.body != ENTRY_POST:
            return
        pinned = entry(fact.action.parts[0])["pin"]
        if pinned and pinned["author"] != fact.action.agent:
            wanted = [pinned["memory"], pinned["author"], pinned["version"]]
            shown_so = [
                effect
                for author, effects in shows
                if author == pinned["author"]
                for effect in effects_like(effects, 15, *wanted)
                if text(effect[4][0]) == pinned["text"]
            ]
            need(shown_so, "the evidence does not show what is pinned")

    def publication_of(self, outcome, account):
        reasons = []
        for host in {each[2] for each in account.instances}:
            try:
                fact, effects = read_outcome(outcome, host)
            except Wrong as wrong:
                reasons.append(wrong)
                continue
            need(fact.object[0] == PUBLICATION, "evidence is of no publication")
            return effects
        raise reasons[0] if reasons else Wrong("evidence is sealed by no host of the author's")

    def thread_action(self, fact):
        action = fact.action
        if fact.index == 0:
            need(action.body == THREAD_CREATE, "a thread does not begin with its creation")
            need(self.object[1] == hashed("kwoon 1 thread id", action.request, self.sequencer), "the thread is another")
            granted = field(action.parts[0], 1, "map", optional=True)
        else:
            need(action.body in range(41, 57), "an action stands in the wrong log")
            granted = action.parts[0] if action.body == ISSUE else None
        if granted is not None:
            admission, key = grant(granted)
            self.admissions = {admission: key}
        if action.body == JOIN:
            admission, use = action.parts
            need(admission in self.admissions, "an admission is not the valid one")
            expected = encode({0: 1, 1: self.object[1], 2: action.agent, 3: action.request})
            need(verified("admission", use, self.admissions[admission]) == expected, "an admission is used by another")
        # What follows from it is for the rules to say.
        return None

    def memory_action(self, fact):
        action = fact.action
        if fact.index == 0:
            need(action.body == MEMORY_CREATE, "a memory does not begin with its creation")
            blind = memory_blind(action.request, self.sequencer)
            need(self.object[1] == memory_id(action.agent, blind), "the memory is another")
            self.author, self.versions, self.current = action.agent, 1, action.parts[0]
            return [[10, self.object[1], self.author], [11, 1, self.current, False]]
        need(action.agent == self.author and not self.ended, "a memory is changed by another, or after its end")
        if action.body == UPDATE:
            need(action.parts[0].get(1, self.versions) == self.versions, "an update expects another version")
            self.versions, self.current = self.versions + 1, action.parts[0][0]
            return [[11, self.versions, self.current, self.public]]
        need(action.body in (PUBLISH, UNPUBLISH, WITHDRAW), "an action stands in the wrong log")
        if action.body == PUBLISH:
            need(not self.public, "an action changes nothing")
            self.public = self.ever_public = True
            return [[12, self.versions, self.current]]
        if action.body == UNPUBLISH:
            need(self.public, "an action changes nothing")
            self.public = False
            return [[13]]
        self.ended, self.public = True, False
        return [[14, self.ever_public]]

    def begun(self, fact):
        need(fact.index == 0 and self.object[0] == MEMORY and self.origin is not None, "a beginning is in the wrong place")
        origin, effects = read_outcome(field(self.origin, 0, "map"), field(self.origin, 1, "key"))
        action = origin.action
        need(origin.object[0] == THREAD and action is not None and action.body == ENTRY_POST, "the origin is no entry")
        said = entry(action.parts[0])
        need(action.agent is not None and said["new"] is not None, "the origin brings no memory forth")
        blind = memory_blind(action.request, origin.object[1])
        need(self.object[1] == memory_id(action.agent, blind), "the origin brought another memory forth")
        posted = [effect[1] for effect in effects_like(effects, 26)]
        says_so = [
            each
            for each in posted
            if each[1] == action.request and each[4] is True and each[3][0] == self.object[1] and each[3][2] == said["new"]
        ]
        need(says_so, "the origin's effects say something else")
        account = self.creators_account()
        need(account.agent == action.agent, "the memory is begun by another")
        account.check_actor(action)
        self.author, self.versions = action.agent, 1
        self.current = {0: said["new"], 3: []}
        if said["summary"] is not None:
            self.current[2] = said["summary"]
        self.contents.update(said["contents"])
        return [account.account_set(), [10, self.object[1], self.author], [11, 1, self.current, False]]

    def expiry(self, fact):
        need(self.object[0] == THREAD and fact.index > 0, "an expiry stands where nothing is due")
        choice(fact.parts[0], {0: ["hash"], 1: ["hash"]})
        return None

    def account(self, fact):
        agent, records = fact.parts
        need(fact.index > 0 and self.object[0] != IDENTITY, "an account stands in the wrong place")
        need(len(records) <= 256, "an account has too many records")
        account = chain(records, self.accounts.get(agent))
        need(account.agent == agent, "an account is another's")
        self.accounts[agent] = account
        # In a thread memberships may end with it, which is for the rules to say.
        return None if self.object[0] == THREAD else [account.account_set()]

    def change_epoch(self, fact):
        raise Unknown("a change of epoch")

    def consequence(self, fact):
        need(self.object[0] == PUBLICATION, "a consequence stands in the wrong log")
        source, effects = read_outcome(fact.parts[0], self.sequencer)
        action = source.action
        need(source.object[0] == MEMORY and action is not None, "a consequence follows from no action on a memory")
        memory, before = source.object[1], []
        need(self.object[1] == hashed("kwoon 1 publication id", memory), "a consequence is of another memory")
        if fact.index == 0:
            account = self.creators_account()
            self.author = account.agent
            need(memory == memory_id(self.author, self.blind), "the memory is another's")
            before = [account.account_set()]
        need(not self.ended and source.index > self.source, "a consequence says nothing new")
        self.source = source.index
        self.accounts[self.author].check_actor(action)
        return before + self.public_effects(memory, action, effects, source.index)

    def public_effects(self, memory, action, effects, index):
        need(len(effects) == 1, "a consequence follows from something else")
        number, *parts = effects[0]
        if (action.body, number) == (PUBLISH, 12) or ((action.body, number) == (UPDATE, 11) and parts[2] is True):
            if action.body == UPDATE:
                need(parts[1] == action.parts[0][0], "a consequence says another text")
            self.contents.update(version(parts[1]))
            return [[15, memory, self.author, parts[0], parts[1], index]]
        if (action.body, number) == (UNPUBLISH, 13):
            return [[16, memory, False, index]]
        need((action.body, number) == (WITHDRAW, 14) and parts[0] is True, "a consequence says nothing to the public")
        self.ended = True
        return [[16, memory, True, index]]

    # -------------------------------------------------------------------------------------------- seals

    def seal(self, record):
        need(self.heads, "a seal stands before any fact")
        index = len(self.heads) - 1
        need(self.sealed != index, "there are two seals for one place")
        seal = read_seal(record, self.sequencer)
        expected = {"object": self.object, "epoch": self.epoch, "index": index, "head": self.heads[-1]}
        need(seal == expected, "a seal seals something else")
        self.sealed, self.seals = index, self.seals + 1


# ------------------------------------------------------------------------------------------------ files

ITEMS = {0: ["bytes"], 1: ["bytes"], 2: ["hash", "hash", "bytes"], 3: ["uint", "uint"]}


def verify(data):
    """Verifies a log file. What it holds."""
    header, at = decode_at(data, 0, FORMAT_BYTES["header"])
    need(type(header) is dict and header.get(0) == "kwoon log", "this is no log file")
    if field(header, 1, "uint") != 1:
        raise Unknown(f"a file of version {header[1]}")
    need(set(header) == {0, 1, 2, 3, 4}, "the header has other fields")
    log, last, contents, ended = Log(header), field(header, 4, "uint"), [], False
    while not ended:
        need(at < len(data), "the file ends without its end")
        item, at = decode_at(data, at, FORMAT_BYTES["item"])
        number, parts = choice(item, ITEMS)
        need(len(item) == 1 + len(parts), "an item has further parts")
        if number == 0:
            need(not contents, "a fact stands after the contents")
            log.add(parts[0])
        elif number == 1:
            need(not contents, "a seal stands after the contents")
            log.seal(parts[0])
        else:
            need(log.heads and log.sealed == len(log.heads) - 1, "the last fact is not sealed")
        if number == 2:
            content_hash, salt, content = parts
            need(not contents or contents[-1] < content_hash, "the contents are not in rising order")
            need(hashed("kwoon 1 content", salt, content) == content_hash, "a content does not open its commitment")
            need((content_hash, len(content)) in log.contents, "the log commits to no such content")
            contents.append(content_hash)
        elif number == 3:
            need(parts == [log.seals, len(contents)] and last + 1 == len(log.heads), "the numbers are others")
            ended = True
    need(at == len(data), "something follows the end")
    return {
        "object": shown(log.object),
        "sequencer": log.sequencer.hex(),
        "facts": len(log.heads),
        "seals": log.seals,
        "contents": len(contents),
        "head": log.heads[-1].hex(),
        "digest": log.digest.hex(),
    }


def fault(data):
    """What is wrong with a file, and the exit code that says so; nothing if it is sound."""
    try:
        verify(data)
    except Unknown as unknown:
        return 3, f"of an unknown version or kind: {unknown}"
    except Wrong as wrong:
        return 1, str(wrong)
    return None


def flip(data):
    """Changes each byte in two ways. The places where that is not found."""
    missed = []
    for place in range(len(data)):
        for change in (1 << place % 8, 0xFF):
            changed = bytearray(data)
            changed[place] ^= change
            if fault(bytes(changed)) is None:
                missed.append(place)
    return missed


def main(arguments):
    flips = arguments[:1] == ["--flip"]
    paths = arguments[1:] if flips else arguments
    if not paths:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    code = 0
    for path in paths:
        with open(path, "rb") as file:
            data = file.read()
        found = fault(data)
        if found:
            code = max(code, found[0])
            print(f"{path}: {found[1]}")
            continue
        print(f"{path}: sound: " + " ".join(f"{name}={value}" for name, value in verify(data).items()))
        if flips:
            missed = flip(data)
            print(f"{path}: {2 * len(data)} changes of {len(data)} bytes, {len(missed)} not found {missed[:10]}")
            code = max(code, 1 if missed else 0)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
