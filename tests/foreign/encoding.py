"""Encoding and hashes: docs/format.md, "Encoding" and "Ids and hashes"."""

from io import BytesIO

import cbor2
from blake3 import blake3


class Wrong(Exception):
    """Something is not as the format says."""


class Unknown(Exception):
    """A record of a version or kind that this script does not know."""


def need(holds, what):
    if not holds:
        raise Wrong(what)


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
