"""Strict signatures: docs/format.md, "Signatures"."""

from functools import cache

import cbor2
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from encoding import Wrong, encode, need

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


@cache
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


@cache
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
