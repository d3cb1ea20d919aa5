#!/usr/bin/env python3
"""What verify.py takes for a signature: signatures that a lax verifier accepts, or may, are refused."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from signatures import P, is_sound_point, signature_holds

ORDER = 2**252 + 27742317777372353535851937790883648493
# The points of small order and the other ways to write them: y of order 1, 2, 4 and 8, and those above the prime.
SMALL_Y = [
    1,
    P - 1,
    0,
    0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    P,
    P + 1,
]

key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
public, message = key.public_key().public_bytes_raw(), b"a message"
signature = key.sign(message)
assert signature_holds(public, signature, message)
assert is_sound_point(public) and not is_sound_point((2).to_bytes(32, "little")), "two is the y of no point"

larger = int.from_bytes(signature[32:], "little") + ORDER
assert not signature_holds(public, signature[:32] + larger.to_bytes(32, "little"), message), "S at or above the order"

for y in SMALL_Y:
    for sign in (0, 1):
        small = (y | sign << 255).to_bytes(32, "little")
        assert not is_sound_point(small), hex(y)
        assert not signature_holds(small, small + bytes(32), message), "a key of small order"
        assert not signature_holds(public, small + signature[32:], message), "an R of small order"

print("strict")
