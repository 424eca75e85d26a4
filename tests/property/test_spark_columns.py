"""Columns and the plain reader are one decoder in two shapes: same records, same refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.records.batch import CorruptBatch, scan, seal
from headrace.records.build import Record, build_batch
from headrace.records.compression import Codec
from headrace.records.read import read_records
from headrace.spark.columns import boundaries
from headrace.spark.columns.decode import decode_columns, header_columns
from headrace.spark.columns.ragged import gather_varints, pack_varints, zigzag

maybe_bytes = st.none() | st.binary(max_size=150)
headers = st.lists(st.tuples(st.text("abü", max_size=8), maybe_bytes), max_size=3).map(tuple)
records = st.lists(
    st.builds(Record, maybe_bytes, maybe_bytes, headers, st.integers(0, 2**62), st.just(-1)),
    min_size=1,
    max_size=8,
)
CAP = 1 << 20


def flat(buffer: bytes) -> list[tuple[object, ...]]:
    columns = decode_columns(buffer, list(scan(buffer)), max_bytes=CAP)
    names = header_columns(columns)
    data = columns.data.tobytes()

    def cut(null: np.bool_, start: np.int64, end: np.int64) -> bytes | None:
        return None if null else data[start:end]

    return [
        (
            cut(columns.key_nulls[i], columns.key_starts[i], columns.key_ends[i]),
            cut(columns.value_nulls[i], columns.value_starts[i], columns.value_ends[i]),
            tuple(
                (
                    data[names.key_starts[j] : names.key_ends[j]].decode("utf-8", "surrogateescape"),
                    cut(names.value_nulls[j], names.value_starts[j], names.value_ends[j]),
                )
                for j in range(names.list_offsets[i], names.list_offsets[i + 1])
            ),
            int(columns.timestamps[i]),
            int(columns.offsets[i]),
        )
        for i in range(columns.offsets.size)
    ]


def plain(buffer: bytes) -> list[tuple[object, ...]]:
    return [
        tuple(record)
        for position, _ in scan(buffer)
        for record in read_records(buffer, position, max_bytes=CAP)
    ]


@given(st.lists(st.tuples(records, st.sampled_from(list(Codec))), min_size=1, max_size=8))
def test_same_records(batches: list[tuple[list[Record], Codec]]) -> None:
    buffer = b"".join(
        build_batch(values, wall_ms=0, codec=codec, base_offset=100 * index)
        for index, (values, codec) in enumerate(batches)
    )
    assert flat(buffer) == plain(buffer)


@pytest.mark.parametrize("few,many", [(1, 10**9), (10**9, 10**9), (1, 1)])
def test_same_refusals(few: int, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By walkers, by hopping, and by runs of equal records where there are any."""
    monkeypatch.setattr(boundaries, "_FEW_RECORDS", few)
    monkeypatch.setattr(boundaries, "_MANY_RECORDS", many)
    monkeypatch.setattr(boundaries, "_RUN_AT_LEAST", 1)
    monkeypatch.setattr(boundaries, "_STRIDE_AT_LEAST", 1)

    @settings(max_examples=200)
    @given(
        st.lists(records, min_size=1, max_size=3),
        st.lists(st.tuples(st.integers(61, 2**20), st.integers(0, 255)), min_size=1, max_size=4),
    )
    def mutated(batches: list[list[Record]], mutations: list[tuple[int, int]]) -> None:
        parts = [bytearray(build_batch(values, wall_ms=0)) for values in batches]
        for position, value in mutations:
            part = parts[position % len(parts)]
            part[57 + position % (len(part) - 57)] = value
        for part in parts:
            seal(part, 0, len(part))
        buffer = b"".join(parts)
        try:
            wanted: object = plain(buffer)
        except CorruptBatch:
            wanted = CorruptBatch
        try:
            found: object = flat(buffer)
        except CorruptBatch:
            found = CorruptBatch
        if isinstance(wanted, list) and any(abs(row[3]) >= 2**63 for row in wanted):
            return  # a timestamp that no column of 64 bits can hold
        assert found == wanted

    mutated()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_varint_columns(values: list[int]) -> None:
    column = np.array(values, dtype=np.int64)
    packed = pack_varints([zigzag(column)])
    bits, following = gather_varints(packed.data, packed.offsets[:-1], 10)
    assert bits.view(np.uint64).tolist() == zigzag(column).tolist()
    assert following.tolist() == packed.offsets[1:].tolist()
