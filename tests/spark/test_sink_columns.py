"""Rows of the sink as Arrow gives them: nulls, slices, lists; what `to_numpy` and `fill_null` would say."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.records.read import read_records
from headrace.spark.columns.encode import encode_batches
from headrace.spark.schema import HEADERS
from headrace.spark.sink_columns import SinkBatch, headers_column, partition_rows

ROWS: list[dict[str, Any]] = [
    {"key": b"a", "value": b"1", "topic": "t", "partition": 1, "timestamp": 5_000_000, "headers": [("x", b"y")]},
    {"key": None, "value": b"2", "topic": "t", "partition": 1, "timestamp": None, "headers": None},
    {"key": b"", "value": None, "topic": "u", "partition": 0, "timestamp": 7_000_000, "headers": []},
    {"key": b"dd", "value": b"", "topic": "t", "partition": 1, "timestamp": None,
     "headers": [("p", None), ("q", b"zz")]},
]  # fmt: skip
KINDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": HEADERS,
}


def _batch() -> pa.RecordBatch:
    def column(name: str) -> pa.Array:
        given = [row[name] for row in ROWS]
        if name == "headers":
            given = [
                None if one is None else [{"key": key, "value": value} for key, value in one] for one in given
            ]
        return pa.array(given, KINDS[name])

    return pa.RecordBatch.from_arrays([column(name) for name in KINDS], names=list(KINDS))


@pytest.mark.parametrize(("first", "count"), [(0, 4), (1, 3), (3, 1), (1, 2)])
def test_rows_and_slices_of_them(first: int, count: int) -> None:
    batch = SinkBatch(_batch().slice(first, count), None)
    found = []
    for topic in batch.topics():
        for part in partition_rows(batch.of_topic(topic), topic, 2, 0, 1234):
            (sealed,) = encode_batches(
                part.keys, part.values, part.timestamps, part.headers, max_batch_bytes=9999
            )
            found += [
                (topic, part.tp.partition, one.key, one.value, one.timestamp, one.headers)
                for one in read_records(sealed, 0, max_bytes=9999)
            ]
    wanted = [
        (row["topic"], row["partition"], row["key"], row["value"],
         1234 if row["timestamp"] is None else row["timestamp"] // 1000, tuple(row["headers"] or ()))
        for row in ROWS[first : first + count]
    ]  # fmt: skip
    assert found == sorted(wanted, key=lambda row: row[0])


def test_a_partition_that_is_null_goes_by_the_key() -> None:
    rows = pa.RecordBatch.from_arrays(
        [pa.array([b"k", b"k", b"k"]), pa.array([b"1", b"2", b"3"]), pa.array([None, 3, None], pa.int32())],
        names=["key", "value", "partition"],
    )
    sizes = {part.tp.partition: len(part.timestamps) for part in partition_rows(rows, "t", 4, 0, 1)}
    assert sizes == {0: 2, 3: 1}, "murmur2 of k is 0 of 4"


def test_rows_that_all_have_an_empty_list_of_headers() -> None:
    """As they come from the JVM: a column of no rows has no bounds at all. Found by Spark 4.1 in scripts/spark-versions."""
    nothing = pa.py_buffer(b"")
    empty = [pa.Array.from_buffers(kind, 0, [None, nothing, nothing]) for kind in (pa.string(), pa.binary())]
    entries = pa.StructArray.from_arrays(empty, fields=list(HEADERS.value_type))
    column = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), entries)
    assert headers_column(column).offsets.size == 3
