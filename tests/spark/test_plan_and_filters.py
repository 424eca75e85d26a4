"""The pure parts: plans, options, filters, JSON values. No JVM, no broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThanOrEqual, Not, StringContains

from headrace.core.ids import TopicPartition
from headrace.records.build import Record, build_batch
from headrace.spark.arrow import ColumnLayout, record_batches
from headrace.spark.columns.decode import decode_columns
from headrace.spark.fetching import Piece, select_batches
from headrace.spark.filters import RowFilter, push
from headrace.spark.options import OptionError, access_from, sink_options, source_options
from headrace.spark.plan import (
    OffsetRange,
    admit,
    from_json,
    pack,
    ranges_between,
    split,
    stream_tasks,
    to_json,
)
from headrace.spark.sink_columns import partition_rows
from headrace.spark.values import parse_json
from headrace.wire.fetch_response import AbortedTransaction

_ranges = st.lists(
    st.builds(
        lambda number, start, size: OffsetRange("t", number, start, start + size),
        st.integers(0, 9),
        st.integers(0, 10**9),
        st.integers(1, 10**6),
    ),
    max_size=8,
    unique_by=lambda one: one.partition,
)


def _covered(pieces: list[OffsetRange]) -> list[OffsetRange]:
    """Neighbouring pieces joined again."""
    joined: list[OffsetRange] = []
    for piece in sorted(pieces):
        if joined and joined[-1].tp == piece.tp and joined[-1].end == piece.start:
            joined[-1] = joined[-1]._replace(end=piece.end)
        else:
            joined.append(piece)
    return joined


@given(_ranges, st.integers(0, 40), st.integers(1, 10**6))
def test_a_split_is_the_ranges_in_nonempty_pieces(ranges: list[OffsetRange], tasks: int, limit: int) -> None:
    limit = max(limit, sum(one.size for one in ranges) // 500)
    pieces = split(ranges, min_tasks=tasks, max_records_per_task=limit)
    assert _covered(pieces) == sorted(ranges)
    assert all(0 < piece.size <= limit for piece in pieces)
    assert len(pieces) >= min(tasks, sum(one.size for one in ranges))


@given(_ranges, st.integers(1, 12))
def test_packing_loses_nothing_and_is_repeatable(ranges: list[OffsetRange], tasks: int) -> None:
    """Exactly-once leans on it: the same ranges give the same tasks."""
    groups = pack(ranges, tasks) if ranges else []
    assert sorted(piece for group in groups for piece in group) == sorted(ranges)
    assert len(groups) <= tasks
    assert stream_tasks(ranges, 10**5) == stream_tasks(list(ranges), 10**5)


@given(
    st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 1000), st.integers(0, 5000)), min_size=1),
    st.integers(1, 10**5),
)
def test_admission_never_takes_too_much_and_never_starves(
    rows: dict[int, tuple[int, int]], limit: int
) -> None:
    start = {TopicPartition("t", number): low for number, (low, _) in rows.items()}
    latest = {TopicPartition("t", number): low + more for number, (low, more) in rows.items()}
    ends = admit(start, latest, limit)
    taken = sum(ends[tp] - start[tp] for tp in ends)
    waiting = [tp for tp in start if latest[tp] > start[tp]]
    assert taken <= max(limit, len(waiting)), "one of each, where there are more of them than that"
    assert all(start[tp] <= ends[tp] <= latest[tp] for tp in ends)
    assert all(ends[tp] > start[tp] for tp in waiting)
    if sum(latest[tp] - start[tp] for tp in start) <= limit:
        assert ends == latest


def test_offsets_in_a_checkpoint_are_those_of_sparks_kafka_source() -> None:
    offsets = {TopicPartition("a", 1): 5, TopicPartition("a", 0): 7}
    assert to_json(offsets) == {"a": {"0": 7, "1": 5}}
    assert from_json(to_json(offsets)) == offsets
    assert ranges_between({}, offsets) == [OffsetRange("a", 0, 0, 7), OffsetRange("a", 1, 0, 5)]


def test_options_are_kafkas_and_wrong_ones_are_explained() -> None:
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "a, b"}
    found = source_options(
        {
            **base,
            "startingOffsets": '{"a":{"0":3}}',
            "endingTimestamp": "2026-01-01T00:00:00Z",
            "groupId": "g",
        }
    )
    assert found.subscribe == ("a", "b") and found.group == "g"
    assert found.starting.given == ((TopicPartition("a", 0), 3),)
    assert found.ending.everywhere == 1_767_225_600_000
    assert "secret" not in repr(
        access_from({"bootstrap": "b:1", "kafka.security.protocol": "SASL_SSL", "kafka.sasl.username": "u",
                     "kafka.sasl.password": "secret"})
    )  # fmt: skip
    assert sink_options({"bootstrap": "b:1", "delivery": "exactly-once", "compression": "zstd"}).exactly_once
    wrong: list[tuple[dict[str, str], str]] = [
        ({"bootstrap": "b:1"}, "say what to read"),
        ({**base, "assign": '{"a":[0]}'}, "say what to read"),
        ({**base, "endingOffsets": "earliest"}, "can not be earliest"),
        ({**base, "failOnDataLoss": "perhaps"}, "not true or false"),
        ({**base, "maxRecordsPerTrigger": "-4"}, "whole number"),
        ({**base, "valueFormat": "xml"}, "not one of binary"),
        ({**base, "valueFormat": "avro"}, "needs the Avro schema"),
        ({**base, "startingTimestamp": "noon"}, "neither milliseconds nor a time"),
        ({"bootstrap": "b:1", "subscribePattern": "("}, "not a regular expression"),
    ]
    for options, words in wrong:
        with pytest.raises(OptionError, match=words):
            source_options(options)


def test_filters_that_are_taken_are_exact_and_the_others_go_back() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    text = StringContains(("value",), "x")
    other = Not(EqualTo(("partition",), 3))
    filters: list[Any] = [
        IsNotNull(("offset",)), GreaterThan(("offset",), 10), LessThanOrEqual(("offset",), 20),
        In(("partition",), (1, 2)), EqualTo(("topic",), "t"), GreaterThan(("timestamp",), noon), text, other,
    ]  # fmt: skip
    where, left = push(filters, RowFilter())
    assert left == [text, other]
    assert (where.offset_low, where.offset_high, where.partitions) == (11, 20, frozenset({1, 2}))
    assert where.time_low == int(noon.timestamp()) * 1_000_000 + 1
    ranges = [OffsetRange("t", number, 0, 100) for number in range(4)] + [OffsetRange("u", 1, 0, 100)]
    assert where.cut(ranges) == [OffsetRange("t", 1, 11, 21), OffsetRange("t", 2, 11, 21)]


@given(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"ab", b"b", None]), st.integers(0, 50)), min_size=1, max_size=40
    )
)
def test_a_key_and_time_filter_is_what_python_says(rows: list[tuple[bytes | None, int]]) -> None:
    records = [Record(key, str(index).encode(), (), 1000 + time) for index, (key, time) in enumerate(rows)]
    columns = decode_columns(build_batch(records, wall_ms=1), max_bytes=1 << 20)
    where = RowFilter(key=b"ab", time_low=1_010_000, time_high=1_040_000)
    wanted = [index for index, (key, time) in enumerate(rows) if key == b"ab" and 10 <= time <= 40]
    assert where.select(columns).offsets.tolist() == wanted


def test_rows_out_of_the_range_and_aborted_ones_are_left_out() -> None:
    def batch(offset: int, producer: int) -> bytes:
        records = [Record(None, b"%d" % number, (), 5) for number in range(offset, offset + 10)]
        return build_batch(
            records, wall_ms=1, base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0,
            transactional=True,
        )  # fmt: skip

    buffer = b"".join([batch(0, 1), batch(10, 2), batch(20, 1)])
    wanted = OffsetRange("t", 0, 5, 25)
    batches, following = select_batches(buffer, wanted, [AbortedTransaction(2, 10)], 1)
    assert [header.base_offset for _, header in batches] == [0, 20] and following == 30
    layout = ColumnLayout(("offset", "value"))
    rows = [
        row for made in record_batches(Piece(buffer, batches), wanted, layout) for row in made.to_pylist()
    ]
    assert [row["offset"] for row in rows] == [*range(5, 10), *range(20, 25)]
    assert all(row["value"] == b"%d" % row["offset"] for row in rows)


def test_broken_json_has_nulls_and_the_rest_is_not_touched() -> None:
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.field("element", pa.string())))])
    texts = ['{"id": 1, "tags": ["a"]}', None, "", "{broken", '{"id": "no number"}', "[1]", '{"other": 2}']
    found = parse_json(pa.array(texts, pa.string()), schema).to_pylist()
    nulls = {"id": None, "tags": None}
    assert found == [{"id": 1, "tags": ["a"]}, None, None, nulls, nulls, nulls, nulls]


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.binary(max_size=9)), st.binary(max_size=20)),
        min_size=1,
        max_size=60,
    )
)
def test_every_row_goes_to_one_partition_in_order(rows: list[tuple[bytes | None, bytes]]) -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([key for key, _ in rows], pa.binary()),
            pa.array([value for _, value in rows], pa.binary()),
        ],
        names=["key", "value"],
    )
    seen: list[bytes] = []
    for part in partition_rows(batch, "t", 3, 1, 7):
        ragged = part.values.values
        values = [
            ragged.data[a:b].tobytes() for a, b in zip(ragged.offsets[:-1], ragged.offsets[1:], strict=True)
        ]
        wanted = iter([value for _, value in rows])
        assert all(value in wanted for value in values), (
            "the order within a partition is the order of the rows"
        )
        assert np.all(part.timestamps == 7)
        seen += values
    assert sorted(seen) == sorted(value for _, value in rows)
