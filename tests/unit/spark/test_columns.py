"""Columns against the plain reader, record for record; and columns back into batches."""

from __future__ import annotations

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from headrace.records.batch import BatchHeader, CorruptBatch, crc_matches, read_header, scan
from headrace.records.build import Record, assemble, build_batch, build_control_batch
from headrace.records.read import read_records
from headrace.records.validate import validate_produced
from headrace.spark.columns import boundaries
from headrace.spark.columns.decode import RecordColumns, decode_columns, header_columns, iter_columns
from headrace.spark.columns.encode import BytesColumn, ProducerStamp, encode_batches, encode_headers
from headrace.spark.columns.ragged import Ragged

CAP = 1 << 24


def as_records(columns: RecordColumns) -> list[Record]:
    """Columns back into Python values, the slow way: what tests compare."""
    data = columns.data.tobytes()
    headers = header_columns(columns)
    found = []
    for i in range(columns.offsets.size):
        names = tuple(
            (
                data[headers.key_starts[j] : headers.key_ends[j]].decode("utf-8", "surrogateescape"),
                None if headers.value_nulls[j] else data[headers.value_starts[j] : headers.value_ends[j]],
            )
            for j in range(headers.list_offsets[i], headers.list_offsets[i + 1])
        )
        found.append(
            Record(
                None if columns.key_nulls[i] else data[columns.key_starts[i] : columns.key_ends[i]],
                None if columns.value_nulls[i] else data[columns.value_starts[i] : columns.value_ends[i]],
                names,
                int(columns.timestamps[i]),
                int(columns.offsets[i]),
            )
        )
    return found


def expected(buffer: bytes) -> list[Record]:
    return [
        r
        for position, h in scan(buffer)
        if not h.is_control
        for r in read_records(buffer, position, max_bytes=CAP)
    ]


def some_records(count: int, seed: int = 0) -> list[Record]:
    return [
        Record(
            None if (i + seed) % 5 == 0 else b"k" * ((i * 7) % 90),
            None if (i + seed) % 11 == 0 else b"v" * ((i * 131 + seed) % 400),
            tuple((f"h{j}", None if j == 2 else b"x" * (i % 3)) for j in range((i + seed) % 4)),
            1_000_000 + (i * 7919) % 100_000 - 50_000,
        )
        for i in range(count)
    ]


def fetch_buffer(batch_count: int, records_each: int, codecs: tuple[int, ...] = (0,)) -> bytes:
    parts, base = [], 500
    for index in range(batch_count):
        count = max(1, records_each + (index * 37) % 11 - 5)
        append_time = 42 if index % 9 == 4 else None
        parts.append(
            build_batch(
                some_records(count, index), wall_ms=0, codec=codecs[index % len(codecs)], base_offset=base,
                log_append_time=append_time,
            )
        )  # fmt: skip
        base += count + index % 3
    return b"".join(parts)


@pytest.mark.parametrize("shape", [(1, 1), (1, 700), (3, 300), (120, 12), (200, 1), (60, 70)])
@pytest.mark.parametrize("codecs", [(0,), (4,), (0, 1, 2, 3, 4)])
def test_equal_to_the_plain_reader(shape: tuple[int, int], codecs: tuple[int, ...]) -> None:
    buffer = fetch_buffer(*shape, codecs)
    columns = decode_columns(buffer, max_bytes=CAP)
    assert as_records(columns) == expected(buffer)
    types = [h.is_log_append_time for _, h in scan(buffer) for _ in range(h.record_count)]
    assert columns.timestamp_types.tolist() == types


@pytest.mark.parametrize("few", [1, 10**9])
def test_walkers_alone_and_hop_alone_agree(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = fetch_buffer(70, 40)
    monkeypatch.setattr(boundaries, "_FEW_RECORDS", few)
    assert as_records(decode_columns(buffer, max_bytes=CAP)) == expected(buffer)


def _hopped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each batch had that was walked through in plain Python."""
    hop, counts = boundaries._hop, []

    def counting(data: memoryview, cursor: int, count: int) -> tuple[list[int], int]:
        counts.append(count)
        return hop(data, cursor, count)

    monkeypatch.setattr(boundaries, "_hop", counting)
    return counts


@pytest.mark.parametrize("sizes", [(100, 101), (20, 300), (1000, 1001), (0, 8)])
def test_records_of_any_size_are_found_by_walkers(
    sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal or not, short lengths or long ones, keys that are full of zeros: nothing is left to plain Python."""
    rng = np.random.default_rng(3)
    records = [
        Record(
            int(i).to_bytes(8, "big"),
            rng.integers(32, 127, size, dtype=np.uint8).tobytes(),
            (),
            1_000_000 + i,
        )
        for i, size in enumerate(rng.integers(*sizes, 3000))
    ]
    buffer = b"".join(
        build_batch(records[start : start + 1500], wall_ms=0, base_offset=start) for start in (0, 1500)
    )
    counts = _hopped(monkeypatch)
    assert as_records(decode_columns(buffer, max_bytes=CAP)) == expected(buffer)
    assert counts == []


def test_records_inside_of_values_mislead_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is itself full of records looks right wherever a walker may begin; only the hop is left then."""
    inner = build_batch(some_records(60), wall_ms=0)[61:]
    buffer = build_batch([Record(b"k", inner * 2) for _ in range(400)], wall_ms=0)
    counts = _hopped(monkeypatch)
    assert as_records(decode_columns(buffer, max_bytes=CAP)) == expected(buffer)
    assert counts == [400]


def test_a_few_long_records_among_short_ones() -> None:
    """Lengths of three bytes are not in the walkers' table."""
    records = [Record(None, bytes([i % 251]) * (20_000 if i % 97 == 3 else 30)) for i in range(1000)]
    buffer = build_batch(records, wall_ms=0) + build_batch(records[:1], wall_ms=0, base_offset=1000)
    assert as_records(decode_columns(buffer, max_bytes=CAP)) == expected(buffer)


def test_uncompressed_data_is_not_copied_and_boundaries_rise() -> None:
    buffer = bytearray(fetch_buffer(5, 20))
    columns = decode_columns(buffer, max_bytes=CAP)
    assert np.shares_memory(columns.data, np.frombuffer(buffer, dtype=np.uint8))
    line = np.stack(
        [columns.key_starts, columns.key_ends, columns.value_starts, columns.value_ends], axis=1
    ).ravel()
    assert (np.diff(line) >= 0).all()


def test_pieces_add_up() -> None:
    buffer = fetch_buffer(40, 25, (0, 3))
    pieces = list(iter_columns(buffer, max_bytes=CAP, chunk_bytes=20_000))
    assert len(pieces) > 3
    assert [record for piece in pieces for record in as_records(piece)] == expected(buffer)
    assert list(iter_columns(b"", max_bytes=CAP)) == []


def test_control_and_empty_batches_and_partial_tails_are_left_out() -> None:
    data = fetch_buffer(2, 5)
    empty = assemble(read_header(data)._replace(record_count=0), b"")
    buffer = build_control_batch(True, 1, 1, 1, 1) + data + empty + data[:50]
    assert as_records(decode_columns(buffer, max_bytes=CAP)) == expected(data)
    assert decode_columns(b"", max_bytes=CAP).offsets.size == 0


def test_offset_bounds() -> None:
    buffer = fetch_buffer(3, 20)
    columns = decode_columns(buffer, max_bytes=CAP).between_offsets(505, 530)
    assert as_records(columns) == [record for record in expected(buffer) if 505 <= record.offset < 530]


def test_x11_the_cap_covers_all_batches_together() -> None:
    buffer = build_batch([Record(b"k", bytes(50_000))], wall_ms=0, codec=4) * 3
    decode_columns(buffer, max_bytes=160_000)
    with pytest.raises(CorruptBatch):
        decode_columns(buffer, max_bytes=140_000)


def test_a_batch_beyond_the_buffer() -> None:
    buffer = fetch_buffer(1, 5)
    with pytest.raises(CorruptBatch):
        decode_columns(buffer[:-1], [(0, read_header(buffer))], max_bytes=CAP)


# ---- and back


def ragged(values: list[bytes]) -> Ragged:
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    return Ragged(np.frombuffer(b"".join(values), dtype=np.uint8), offsets)


def bytes_column(values: list[bytes | None]) -> BytesColumn:
    nulls = np.array([value is None for value in values], dtype=np.bool_)
    return BytesColumn(ragged([value or b"" for value in values]), nulls)


def encode(
    records: list[Record], *, with_headers: bool, max_batch_bytes: int, **options: object
) -> list[bytes]:
    headers = None
    if with_headers:
        flat = [header for record in records for header in record.headers]
        list_offsets = np.zeros(len(records) + 1, dtype=np.int64)
        np.cumsum([len(record.headers) for record in records], out=list_offsets[1:])
        headers = encode_headers(
            list_offsets,
            bytes_column([key.encode() for key, _ in flat]),
            bytes_column([value for _, value in flat]),
        )
    return list(
        encode_batches(
            bytes_column([record.key for record in records]),
            bytes_column([record.value for record in records]),
            np.array([record.timestamp for record in records], dtype=np.int64),
            headers,
            max_batch_bytes=max_batch_bytes,
            **options,  # type: ignore[arg-type]
        )
    )


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("with_headers", [False, True])
def test_encoded_columns_read_back(codec: int, with_headers: bool) -> None:
    records = [r if with_headers else r._replace(headers=()) for r in some_records(500)]
    batches = encode(records, with_headers=with_headers, max_batch_bytes=9_000, codec=codec)
    assert len(batches) > 5
    found = []
    for batch in batches:
        header = validate_produced(batch, produce_version=9, max_message_bytes=9_000)
        assert isinstance(header, BatchHeader), header
        assert crc_matches(batch, 0, header)
        found += [record._replace(offset=-1) for record in read_records(batch, max_bytes=CAP)]
        assert len(list(DefaultRecordBatch(batch))) == header.record_count
    assert found == records


def test_sequences_run_through_the_batches_and_wrap() -> None:
    producer = ProducerStamp(7, 2, 2**31 - 10, transactional=True)
    batches = encode(some_records(100), with_headers=False, max_batch_bytes=3_000, producer=producer)
    sequence = 2**31 - 10
    for batch in batches:
        header = read_header(batch)
        assert (header.producer_id, header.producer_epoch, header.is_transactional) == (7, 2, True)
        assert header.base_sequence == sequence
        sequence = (header.last_sequence + 1) & (2**31 - 1)
    assert len(batches) > 1 and sequence == 90


def test_a_record_too_large_gets_a_batch_of_its_own() -> None:
    records = [
        Record(b"a", b"small", timestamp=1),
        Record(b"b", bytes(5000), timestamp=1),
        Record(b"c", b"", timestamp=1),
    ]
    counts = [read_header(b).record_count for b in encode(records, with_headers=False, max_batch_bytes=1000)]
    assert counts == [1, 1, 1]


def test_values_alone_and_sliced_buffers() -> None:
    values = ragged([b"skip", b"one", b"", b"three", b"skip"])
    part = BytesColumn(Ragged(values.data, values.offsets[1:5]))
    [batch] = encode_batches(None, part, np.array([5, 4, 6]), max_batch_bytes=1000)
    assert [(r.key, r.value, r.timestamp) for r in read_records(batch, max_bytes=1000)] == [
        (None, b"one", 5),
        (None, b"", 4),
        (None, b"three", 6),
    ]


def test_nothing_gives_no_batches() -> None:
    nothing = BytesColumn(ragged([]))
    assert list(encode_batches(nothing, nothing, np.array([], dtype=np.int64), max_batch_bytes=100)) == []
