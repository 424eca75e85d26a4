"""Batches that nobody can read, each with a right length and checksum: only who opens them finds the lie (F9)."""

from __future__ import annotations

import time
from typing import NamedTuple

from headrace.records.batch import read_header
from headrace.records.build import Record, append_record, assemble, build_batch
from headrace.records.compression import Codec
from headrace.records.varint import append_varint

BOMB_BYTES = 256 << 20


class Poison(NamedTuple):
    batch: bytearray
    seen_by_header: bool = False
    """Refused without opening it, also where a topic does not look at records."""


def varints(*values: int) -> bytes:
    encoded = bytearray()
    for value in values:
        append_varint(encoded, value)
    return bytes(encoded)


def record(*fields: bytes, length: int | None = None) -> bytes:
    content = b"\x00" + b"".join(fields)
    return varints(len(content) if length is None else length) + content


def batch(body: bytes, count: int = 1, *, codec: int = 0, last_delta: int | None = None) -> bytearray:
    now = int(time.time() * 1000)
    header = read_header(build_batch([Record(None, b"x")], wall_ms=now))
    last = count - 1 if last_delta is None else last_delta
    return assemble(header._replace(record_count=count, last_offset_delta=last, attributes=codec), body)


def plain(*deltas: int) -> bytes:
    body = bytearray()
    for delta in deltas:
        append_record(body, Record(None, b"v"), 0, delta)
    return bytes(body)


def bomb() -> bytes:
    """One record of 256 MiB that is right in every field, in 8 KiB of zstd: a block of its first bytes, then only zeros."""
    size = BOMB_BYTES - 32
    head = b"\x00" + varints(0, 0, -1, size)
    head = varints(len(head) + size + 1) + head
    frame = bytearray(b"\x28\xb5\x2f\xfd\x00\x38")
    frame += (len(head) << 3).to_bytes(3, "little") + head
    left = size + 1
    while left:
        block = min(left, 128 * 1024)
        left -= block
        frame += (block << 3 | 1 << 1 | (left == 0)).to_bytes(3, "little") + b"\x00"
    assert len(frame) < 9000
    return bytes(frame)


def poisons() -> dict[str, Poison]:
    value = varints(1) + b"v"
    return {
        "two billion headers": Poison(batch(record(varints(0, 0, -1), value, varints(2**31 - 1)))),
        "a negative number of headers": Poison(batch(record(varints(0, 0, -1), value, varints(-1)))),
        "a record of negative length": Poison(batch(record(varints(0, 0, -1), value, varints(0), length=-9))),
        "a key of negative length": Poison(batch(record(varints(0, 0, -2), value, varints(0)))),
        "a value of negative length": Poison(batch(record(varints(0, 0, -1, -7), varints(0)))),
        "a value longer than its record": Poison(batch(record(varints(0, 0, -1, 200), b"v" * 9, varints(0)))),
        "a header without a name": Poison(batch(record(varints(0, 0, -1), value, varints(1, -1, 0)))),
        "a header longer than its record": Poison(
            batch(record(varints(0, 0, -1), value, varints(1, 1), b"h", varints(90)))
        ),
        "a null record": Poison(batch(b"\x00" * 9)),
        "a record cut short": Poison(batch(plain(0)[:-2] + bytes(1))),
        "no gzip": Poison(batch(b"this is not gzip", codec=Codec.GZIP)),
        "no snappy": Poison(batch(b"this is not snappy", codec=Codec.SNAPPY)),
        "no lz4": Poison(batch(b"this is not lz4", codec=Codec.LZ4)),
        "no zstd": Poison(batch(b"this is not zstd", codec=Codec.ZSTD)),
        "a bomb": Poison(batch(bomb(), codec=Codec.ZSTD)),
        "more records claimed than there are": Poison(batch(plain(0, 1) + bytes(16), 3)),
        "more records claimed than could be": Poison(batch(plain(0), 100), seen_by_header=True),
        "fewer records claimed than there are": Poison(batch(plain(0, 1, 2), 2)),
        "bytes left over": Poison(batch(plain(0, 1) + b"\x00\x00", 2)),
        "a false last offset": Poison(batch(plain(0, 1), 2, last_delta=7), seen_by_header=True),
        "offsets out of order": Poison(batch(plain(0, 2, 1), 3)),
        "an offset twice": Poison(batch(plain(0, 1, 1), 3)),
        "offsets from one on": Poison(batch(plain(1, 2, 3), 3)),
        "a negative offset": Poison(batch(plain(-1, 0, 1), 3)),
        "millions of records in an empty gzip": Poison(
            batch(bytes.fromhex("1f8b08000000000000ff03000000000000000000"), 2**31 - 1, codec=Codec.GZIP)
        ),
        "a lie among a thousand": Poison(
            batch(plain(*range(1000)) + record(varints(0, 1000, -1), value, varints(5)), 1001)
        ),
    }
