"""What a producer may send (kafka.md 5.1): one test per refusal, each with Kafka's error."""

from __future__ import annotations

import struct

import pytest

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.records.batch import HEADER_BYTES, BatchHeader, seal
from headrace.records.build import Record, build_batch, build_control_batch
from headrace.records.read import plain_body
from headrace.records.validate import keyless_record_indexes, validate_produced

RECORDS = [Record(b"k", b"v", timestamp=1_000), Record(None, b"w", timestamp=2_000)]


def outcome(data: bytes | bytearray | memoryview, **options: int | None) -> BatchHeader | Rejected:
    settings: dict[str, int | None] = {"produce_version": 9, "max_message_bytes": 1 << 20} | options  # type: ignore[operator]
    return validate_produced(data, **settings)  # type: ignore[arg-type]


def refusal(data: bytes | bytearray, **options: int | None) -> ErrorKind:
    answer = outcome(data, **options)
    assert isinstance(answer, Rejected), answer
    assert answer.detail
    return answer.kind


def changed(position: int, layout: str, value: int, **options: object) -> bytes:
    """A batch with one header field replaced and the CRC made right again."""
    data = bytearray(build_batch(RECORDS, wall_ms=0, **options))  # type: ignore[arg-type]
    struct.pack_into(layout, data, position, value)
    seal(data, 0, len(data))
    return bytes(data)


@pytest.mark.parametrize("buffer_type", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", range(5))
def test_a_good_batch_is_answered_with_its_header(codec: int, buffer_type: type) -> None:
    data = build_batch(RECORDS, wall_ms=0, codec=codec, producer_id=4, producer_epoch=0, base_sequence=0)
    header = outcome(buffer_type(data))
    assert isinstance(header, BatchHeader)
    assert (header.size, header.codec, header.record_count) == (len(data), codec, 2)


def test_nothing_at_all() -> None:
    assert refusal(b"") is ErrorKind.INVALID_RECORD


@pytest.mark.parametrize("cut", [1, 11, 60, 61, 78])
def test_a_cut_batch_is_corrupt(cut: int) -> None:
    assert refusal(build_batch(RECORDS, wall_ms=0)[:cut]) is ErrorKind.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_a_wrong_length_is_corrupt(length: int) -> None:
    data = bytearray(build_batch(RECORDS, wall_ms=0))
    struct.pack_into(">i", data, 8, length)
    assert refusal(data) is ErrorKind.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_refused(magic: int) -> None:
    data = bytearray(build_batch(RECORDS, wall_ms=0))
    data[16] = magic
    assert refusal(data) is ErrorKind.INVALID_RECORD


def test_a_short_message_of_format_1_is_refused_as_such() -> None:
    message = struct.pack(">qiIbbqii", 0, 22, 0, 1, 0, 0, -1, -1)
    assert len(message) < HEADER_BYTES
    assert refusal(message) is ErrorKind.INVALID_RECORD


def test_two_batches_in_one_request() -> None:
    assert refusal(build_batch(RECORDS, wall_ms=0) * 2) is ErrorKind.INVALID_RECORD
    assert refusal(build_batch(RECORDS, wall_ms=0) + b"x") is ErrorKind.INVALID_RECORD


def test_s1_a_flipped_bit_is_corrupt() -> None:
    data = bytearray(build_batch(RECORDS, wall_ms=0))
    data[-1] ^= 1
    assert refusal(data) is ErrorKind.CORRUPT_MESSAGE


def test_sizes() -> None:
    data = build_batch(RECORDS, wall_ms=0)
    assert refusal(data, max_message_bytes=len(data) - 1) is ErrorKind.MESSAGE_TOO_LARGE
    assert isinstance(outcome(data, max_message_bytes=len(data), segment_bytes=len(data)), BatchHeader)
    assert refusal(data, segment_bytes=len(data) - 1) is ErrorKind.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(
    ("position", "layout", "value"),
    [
        (0, ">q", 1),  # base offset
        (0, ">q", -1),
        (23, ">i", 2),  # last offset delta
        (23, ">i", 0),
        (57, ">i", 3),  # record count
        (57, ">i", 0),
        (57, ">i", -1),
        (21, ">h", 0x20),  # control
        (21, ">h", 0x40),  # delete horizon
        (21, ">h", 0x10),  # transactional without a producer
    ],
)
def test_invalid_records(position: int, layout: str, value: int) -> None:
    assert refusal(changed(position, layout, value)) is ErrorKind.INVALID_RECORD


def test_more_records_than_bytes() -> None:
    data = bytearray(changed(57, ">i", 10**6))
    struct.pack_into(">i", data, 23, 10**6 - 1)
    seal(data, 0, len(data))
    assert refusal(data) is ErrorKind.INVALID_RECORD


def test_a_producer_needs_a_sequence_and_an_epoch() -> None:
    assert (
        refusal(build_batch(RECORDS, wall_ms=0, producer_id=1, producer_epoch=0)) is ErrorKind.INVALID_RECORD
    )
    assert (
        refusal(build_batch(RECORDS, wall_ms=0, producer_id=1, base_sequence=0)) is ErrorKind.INVALID_RECORD
    )


def test_a_control_batch_from_a_client() -> None:
    assert refusal(build_control_batch(True, 1, 0, 0, 0)) is ErrorKind.INVALID_RECORD


def test_zstd_needs_produce_7() -> None:
    data = build_batch(RECORDS, wall_ms=0, codec=4)
    assert refusal(data, produce_version=6) is ErrorKind.UNSUPPORTED_COMPRESSION_TYPE
    assert isinstance(outcome(data, produce_version=7), BatchHeader)
    assert isinstance(outcome(build_batch(RECORDS, wall_ms=0, codec=3), produce_version=3), BatchHeader)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec: int) -> None:
    assert refusal(changed(21, ">h", codec)) is ErrorKind.UNSUPPORTED_COMPRESSION_TYPE


def test_a_client_may_not_set_log_append_time() -> None:
    assert refusal(build_batch(RECORDS, wall_ms=0, log_append_time=5)) is ErrorKind.INVALID_TIMESTAMP


@pytest.mark.parametrize(
    ("earliest", "latest", "valid"),
    [(None, None, True), (1_000, 2_000, True), (1_001, None, False), (None, 1_999, False), (0, 3_000, True)],
)
def test_timestamp_limits(earliest: int | None, latest: int | None, valid: bool) -> None:
    answer = outcome(build_batch(RECORDS, wall_ms=0), earliest_timestamp=earliest, latest_timestamp=latest)
    assert isinstance(answer, BatchHeader) is valid
    assert valid or (isinstance(answer, Rejected) and answer.kind is ErrorKind.INVALID_TIMESTAMP)


def test_no_timestamp_is_never_out_of_range() -> None:
    data = build_batch([Record(b"k", b"v")], wall_ms=-1)
    assert isinstance(outcome(data, earliest_timestamp=10**12, latest_timestamp=10**13), BatchHeader)


@pytest.mark.parametrize("codec", range(5))
def test_keyless_records_of_a_compacted_topic(codec: int) -> None:
    records = [Record(None if i % 3 == 0 else b"k", b"v") for i in range(10)]
    data = b"pad" + build_batch(records, wall_ms=0, codec=codec)
    header = outcome(data[3:])
    assert isinstance(header, BatchHeader)
    body = plain_body(data, 3, header, max_bytes=10_000)
    assert keyless_record_indexes(body, header) == [0, 3, 6, 9]
