"""The batch header: fields, stamps, CRC and the walk over a buffer."""

from __future__ import annotations

import struct

import pytest

from headrace.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    crc_matches,
    read_header,
    scan,
    stamp,
    stamp_log_append_time,
)
from headrace.records.build import Record, build_batch, build_control_batch
from headrace.records.read import read_records


def batch(count: int = 3, **options: int) -> bytes:
    return build_batch(
        [Record(b"k%d" % i, b"value", timestamp=100 + i) for i in range(count)],
        wall_ms=1,
        **options,  # type: ignore[arg-type]
    )


def test_fields_and_derived_properties() -> None:
    data = batch(5, base_offset=40, producer_id=9, producer_epoch=2, base_sequence=7, leader_epoch=3)
    header = read_header(data)
    assert header.size == len(data) == header.length + 12
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 44, 45)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (
        9,
        2,
        7,
        11,
    )
    assert (header.base_timestamp, header.max_timestamp) == (100, 104)
    assert (header.leader_epoch, header.magic, header.record_count, header.codec) == (3, 2, 5, 0)
    assert not (
        header.is_control or header.is_transactional or header.is_log_append_time or header.has_delete_horizon
    )


def test_control_batch_bits() -> None:
    header = read_header(build_control_batch(True, 7, 3, 11, 1234))
    assert header.attributes == 0x30
    assert header.is_control and header.is_transactional
    assert (header.base_sequence, header.last_sequence, header.record_count) == (-1, -1, 1)


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (10, 4, 14), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 2, 4, 2), (-1, 3, -1)],
)
def test_r39_the_sequence_after_the_greatest_is_zero(base: int, delta: int, last: int) -> None:
    header = read_header(batch(1))._replace(base_sequence=base, last_offset_delta=delta)
    assert header.last_sequence == last


@pytest.mark.parametrize("buffer_type", [bytes, bytearray, memoryview])
def test_every_buffer_type_and_position(buffer_type: type) -> None:
    data = batch()
    buffer = buffer_type(b"xyz" + data)
    header = read_header(buffer, 3)
    assert crc_matches(buffer, 3, header)
    assert [(position, found.size) for position, found in scan(buffer, 3)] == [(3, len(data))]


@pytest.mark.parametrize("cut", [0, 1, 12, 60])
def test_too_few_bytes_for_a_header(cut: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(batch()[:cut])


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_s2_a_length_shorter_than_the_header_is_refused(length: int) -> None:
    data = bytearray(batch())
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatch):
        read_header(data)


@pytest.mark.parametrize("magic", [0, 1, 3, 0x80])
def test_s2_other_magics_are_refused(magic: int) -> None:
    data = bytearray(batch())
    data[16] = magic
    with pytest.raises(CorruptBatch):
        read_header(data)


def test_s1_every_single_bit_flip_is_detected_or_outside_the_crc() -> None:
    data = batch(2)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            header = read_header(damaged)
        except CorruptBatch:
            assert 8 <= bit // 8 <= 16
            continue
        if crc_matches(damaged, 0, header):
            # Base offset and leader epoch are the leader's to write; the length check is in crc_matches itself.
            assert bit // 8 < 16, bit
            assert not 8 <= bit // 8 < 12, "a wrong length can not keep the CRC"


def test_crc_of_a_cut_batch_does_not_match() -> None:
    data = batch()
    assert not crc_matches(data[:-1], 0, read_header(data))


def test_stamp_keeps_the_crc() -> None:
    data = bytearray(batch())
    before = read_header(data)
    stamp(data, 0, 2**40, 17)
    header = read_header(data)
    assert header == before._replace(base_offset=2**40, leader_epoch=17)
    assert crc_matches(data, 0, header)


def test_stamp_works_on_a_memoryview_inside_a_larger_buffer() -> None:
    buffer = bytearray(b"\0" * 10 + batch())
    stamp(memoryview(buffer)[10:], 0, 5, 6)
    assert read_header(buffer, 10).base_offset == 5
    assert buffer[:10] == bytes(10)


def test_log_append_time_makes_a_new_crc_and_one_time_for_all_records() -> None:
    data = bytearray(batch(3))
    header = stamp_log_append_time(data, 0, read_header(data), 9_999)
    assert header == read_header(data)
    assert crc_matches(data, 0, header)
    assert header.is_log_append_time and header.base_timestamp == 100
    assert [record.timestamp for record in read_records(data, max_bytes=1000)] == [9_999] * 3


def test_scan_yields_whole_batches_only() -> None:
    first, second = batch(1), batch(4)
    buffer = first + second
    for end in range(len(buffer) + 1):
        found = [position for position, _ in scan(buffer[:end])]
        assert found == [p for p, stop in ((0, len(first)), (len(first), len(buffer))) if stop <= end]
        assert found == [position for position, _ in scan(buffer, 0, end)]


def test_scan_from_the_middle_and_damage() -> None:
    first, second = batch(1), batch(4)
    assert [p for p, _ in scan(first + second, len(first))] == [len(first)]
    with pytest.raises(CorruptBatch):
        list(scan(first + bytes(HEADER_BYTES)))


def test_header_is_a_plain_tuple() -> None:
    assert isinstance(read_header(batch()), BatchHeader)
    assert len(read_header(batch())) == 13
