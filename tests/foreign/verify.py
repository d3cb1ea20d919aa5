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

from encoding import Unknown, Wrong, choice, decode_at, field, hashed, need, shown
from facts import Log

HEADER_BYTES_MAX, ITEM_BYTES_MAX = 1024, 67_108_864
ITEMS = {0: ["bytes"], 1: ["bytes"], 2: ["hash", "hash", "bytes"], 3: ["uint", "uint"]}


def verify(data):
    """Verifies a log file. What it holds."""
    header, at = decode_at(data, 0, HEADER_BYTES_MAX)
    need(type(header) is dict and header.get(0) == "kwoon log", "this is no log file")
    if field(header, 1, "uint") != 1:
        raise Unknown(f"a file of version {header[1]}")
    need(set(header) == {0, 1, 2, 3, 4}, "the header has other fields")
    log, last, contents, ended = Log(header), field(header, 4, "uint"), [], False
    while not ended:
        need(at < len(data), "the file ends without its end")
        item, at = decode_at(data, at, ITEM_BYTES_MAX)
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
