"""Records into batches and back, markers, and the walk that compaction uses."""

from __future__ import annotations

import struct

import pytest

from headrace.records.batch import ABORT_MARKER, COMMIT_MARKER, CorruptBatch, crc_matches, read_header, seal
from headrace.records.build import Record, assemble, build_batch, build_control_batch
from headrace.records.read import (
    Marker,
    iter_records,
    iter_spans,
    plain_body,
    read_control,
    read_records,
)
from headrace.records.rebuild import rebuild_batch, recompress
from headrace.records.validate import validate_produced

RECORDS = [
    Record(b"key", b"value", (("a", b"1"), ("b", None), ("ü", b"")), 1_000),
    Record(None, b"", (), 999),
    Record(b"", None, (), 2**60),
    Record(b"x" * 300, b"y" * 70_000, tuple((f"h{i}", b"v" * i) for i in range(100)), 1_000),
]


def placed(records: list[Record], base: int = 0) -> list[Record]:
    return [record._replace(offset=base + index) for index, record in enumerate(records)]


@pytest.mark.parametrize("codec", range(5))
def test_round_trip(codec: int) -> None:
    data = build_batch(RECORDS, wall_ms=0, codec=codec, base_offset=70)
    assert read_records(data, max_bytes=1 << 20) == placed(RECORDS, 70)
    assert list(iter_records(memoryview(b"ab" + data), 2, max_bytes=1 << 20)) == placed(RECORDS, 70)


def test_records_without_a_timestamp_get_the_clock() -> None:
    data = build_batch([Record(b"k", b"v"), Record(b"k", b"v", timestamp=5)], wall_ms=77)
    assert [record.timestamp for record in read_records(data, max_bytes=100)] == [77, 5]
    assert (read_header(data).base_timestamp, read_header(data).max_timestamp) == (77, 77)


def test_offsets_may_have_gaps_but_must_rise() -> None:
    records = [Record(b"a", b"", offset=10), Record(b"b", b"", offset=15), Record(b"c", b"")]
    data = build_batch(records, wall_ms=0, base_offset=10)
    assert [record.offset for record in read_records(data, max_bytes=100)] == [10, 15, 16]
    assert read_header(data).last_offset == 16
    with pytest.raises(ValueError, match="does not follow"):
        build_batch(records[:2][::-1], wall_ms=0, base_offset=10)
    with pytest.raises(ValueError, match="at least one"):
        build_batch([], wall_ms=0)


def test_log_append_time() -> None:
    data = build_batch(RECORDS, wall_ms=0, log_append_time=123)
    assert {record.timestamp for record in read_records(data, max_bytes=1 << 20)} == {123}


def test_header_keys_that_are_not_utf8_survive() -> None:
    record = Record(b"k", b"v", ((b"\xff\xfe".decode("utf-8", "surrogateescape"), b"1"),))
    data = build_batch([record], wall_ms=0)
    assert b"\xff\xfe" in data
    assert read_records(data, max_bytes=100)[0].headers == record.headers


def test_x11_reading_is_capped() -> None:
    data = build_batch([Record(b"k", bytes(10_000))], wall_ms=0, codec=1)
    with pytest.raises(CorruptBatch):
        read_records(data, max_bytes=10_000)
    assert len(read_records(data, max_bytes=10_100)) == 1


# ---- hostile bodies: each breaks one check of the reader


def body_of(*fields: bytes) -> bytes:
    return b"".join(fields)


GOOD = (
    b"\x0e\x00\x00\x00\x02k\x01\x00"  # length 7: attributes, ts 0, offset 0, key "k", null value, no headers
)


@pytest.mark.parametrize(
    ("name", "count", "body"),
    [
        ("count above what the bytes can hold", 2**31 - 1, GOOD),
        ("negative count", -1, GOOD),
        ("bytes after the last record", 1, GOOD + b"\x00"),
        ("record longer than the body", 1, b"\x10" + GOOD[1:]),
        ("record too short to be one", 1, b"\x02\x00" + bytes(10)),
        ("negative record length", 1, b"\x01" + bytes(10)),
        ("length varint without an end", 1, b"\xff" * 10),
        ("length varint of more than 32 bits", 1, b"\xff\xff\xff\xff\x7f" + bytes(10)),
        ("timestamp of more than 64 bits", 1, b"\x1c\x00" + b"\xff" * 9 + b"\x7f" + bytes(10)),
        ("key beyond the record", 1, b"\x0e\x00\x00\x00\x20k\x01\x00"),
        ("key length below -1", 1, b"\x0e\x00\x00\x00\x03k\x01\x00"),
        ("key of 2^31", 1, b"\x16\x00\x00\x00\xfe\xff\xff\xff\x0fk\x01\x00"),
        ("value beyond the record", 1, b"\x0e\x00\x00\x00\x02k\x20\x00"),
        ("value length below -1", 1, b"\x0e\x00\x00\x00\x02k\x03\x00"),
        ("headers beyond the record", 1, b"\x0e\x00\x00\x00\x02k\x01\x20"),
        ("negative header count", 1, b"\x0e\x00\x00\x00\x02k\x01\x01"),
        ("bytes after the headers", 1, b"\x10\x00\x00\x00\x02k\x01\x00\x00"),
        ("null header key", 1, b"\x12\x00\x00\x00\x02k\x01\x02\x01\x00"),
        ("header key beyond the record", 1, b"\x12\x00\x00\x00\x02k\x01\x02\x40\x00"),
        ("header value beyond the record", 1, b"\x12\x00\x00\x00\x02k\x01\x02\x00\x40"),
        ("header value below -1", 1, b"\x12\x00\x00\x00\x02k\x01\x02\x00\x03"),
        ("bytes after the last header", 1, b"\x14\x00\x00\x00\x02k\x01\x02\x00\x00\x00"),
        ("offset delta beyond the batch", 1, b"\x0e\x00\x00\x02\x02k\x01\x00"),
        ("negative offset delta", 1, b"\x0e\x00\x00\x01\x02k\x01\x00"),
        ("the same offset twice", 2, GOOD * 2),
        ("fewer records than counted", 2, GOOD + bytes(7)),
    ],
)
def test_hostile_bodies(name: str, count: int, body: bytes) -> None:
    header = read_header(build_batch([Record(b"k", None)], wall_ms=0))
    good = assemble(header, GOOD)
    assert read_records(good, max_bytes=100) == [Record(b"k", None, (), 0, 0)]
    with pytest.raises(CorruptBatch):
        read_records(assemble(header._replace(record_count=count), body), max_bytes=100)


def test_a_cut_batch_is_corrupt() -> None:
    data = build_batch(RECORDS, wall_ms=0)
    with pytest.raises(CorruptBatch):
        read_records(data[:-1], max_bytes=1 << 20)


# ---- markers


@pytest.mark.parametrize(("commit", "kind"), [(True, COMMIT_MARKER), (False, ABORT_MARKER)])
def test_markers(commit: bool, kind: int) -> None:
    data = build_control_batch(commit, 1234, 5, 77, 999)
    header = read_header(data)
    assert crc_matches(data, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_timestamp) == (1234, 5, 999)
    assert read_control(data) == Marker(commit, 77)
    [record] = read_records(data, max_bytes=100)
    assert (record.key, record.value) == (struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 77))


def test_other_control_kinds_mean_nothing() -> None:
    header = read_header(build_control_batch(True, 1, 1, 1, 1))
    leader_change = read_header(build_batch([Record(struct.pack(">hh", 0, 2), b"")], wall_ms=0))
    data = build_batch([Record(struct.pack(">hh", 0, 2), b"")], wall_ms=0)
    other = bytearray(data)
    struct.pack_into(">h", other, 21, header.attributes)
    seal(other, 0, leader_change.size)
    assert read_control(other) is None


@pytest.mark.parametrize(
    ("records", "attributes"),
    [
        ([Record(b"k", b"v")], 0),  # no control bit
        ([Record(b"\0", b"v")], 0x30),  # key cut short
        ([Record(None, b"v")], 0x30),
        ([Record(b"\0\0\0\1", b"v")], 0x30),  # value cut short
        ([Record(b"\0\0\0\1", None)], 0x30),
        ([Record(b"\0\0\0\1", b"\0" * 6)] * 2, 0x30),
        ([Record(b"\0\0\0\1", b"\0" * 6)], 0x31),  # compressed
    ],
)
def test_bad_control_batches(records: list[Record], attributes: int) -> None:
    data = bytearray(build_batch(records, wall_ms=0))
    struct.pack_into(">h", data, 21, attributes)
    seal(data, 0, len(data))
    with pytest.raises(CorruptBatch):
        read_control(data)


# ---- compaction


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("horizon", [None, 5_000_000])
def test_rebuilding_keeps_offsets_times_and_producer(codec: int, horizon: int | None) -> None:
    data = build_batch(
        RECORDS,
        wall_ms=0,
        codec=codec,
        base_offset=50,
        producer_id=3,
        producer_epoch=1,
        base_sequence=9,
        leader_epoch=4,
    )
    header = read_header(data)
    body = plain_body(data, 0, header, max_bytes=1 << 20)
    spans = list(iter_spans(body, header))
    kept = [spans[1], spans[3]]
    small = rebuild_batch(header, body, kept, delete_horizon_ms=horizon)
    rebuilt = read_header(small)
    assert crc_matches(small, 0, rebuilt)
    assert read_records(small, max_bytes=1 << 20) == [placed(RECORDS, 50)[1], placed(RECORDS, 50)[3]]
    assert (rebuilt.base_offset, rebuilt.last_offset, rebuilt.last_sequence) == (50, 53, header.last_sequence)
    assert rebuilt.max_timestamp == 1_000
    assert rebuilt.has_delete_horizon is (horizon is not None)
    if horizon is not None:
        assert rebuilt.base_timestamp == horizon


def test_a_batch_may_lose_all_its_records() -> None:
    data = build_batch(
        RECORDS, wall_ms=0, codec=4, base_offset=50, producer_id=3, producer_epoch=1, base_sequence=9
    )
    header = read_header(data)
    empty = rebuild_batch(header, b"", [])
    assert len(empty) == 61
    assert read_records(empty, max_bytes=0) == []
    assert read_header(empty).last_offset == 53
    assert crc_matches(empty, 0, read_header(empty))


def test_what_we_build_is_what_we_accept() -> None:
    for codec in range(5):
        data = build_batch(RECORDS, wall_ms=0, codec=codec)
        assert validate_produced(data, produce_version=9, max_message_bytes=1 << 20) == read_header(data)


@pytest.mark.parametrize("before", range(5))
@pytest.mark.parametrize("after", range(5))
def test_recompressing_changes_nothing_but_the_codec(before: int, after: int) -> None:
    data = build_batch(RECORDS, wall_ms=0, codec=before, producer_id=3, producer_epoch=1, base_sequence=9)
    body = plain_body(data, 0, read_header(data), max_bytes=1 << 20)
    other = recompress(body, read_header(data), after)
    header = read_header(other)
    assert crc_matches(other, 0, header)
    assert header.codec == after
    assert header._replace(length=0, crc=0, attributes=0) == read_header(data)._replace(
        length=0, crc=0, attributes=0
    )
    assert read_records(other, max_bytes=1 << 20) == placed(RECORDS)
