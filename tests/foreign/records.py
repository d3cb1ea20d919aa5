"""Actions and what stands in them: docs/format.md, "Common records" and "Actions"."""

from encoding import check_schema, choice, decode, field, hashed, memory_id, need, plain, typed
from signatures import check_key, split

ACTION_BYTES_MAX = 262_144
IDENTITY, MEMORY, PUBLICATION, THREAD = 0, 1, 2, 3


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
