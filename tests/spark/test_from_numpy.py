"""Arrow arrays of numpy columns: what pyarrow would make, without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from headrace.spark.from_numpy import booleans, lists, numbers, one_text, repeated


@pytest.mark.parametrize("count", [0, 1, 9, 100])
def test_as_pyarrow_makes_them(count: int) -> None:
    values = np.arange(count, dtype=np.int64) * 3
    odd = values % 2 == 1
    made = [
        (numbers(values), pa.array(values)),
        (numbers(values.astype(np.int32), nulls=odd), pa.array(values.astype(np.int32), mask=odd)),
        (numbers(values[::2]), pa.array(values[::2])),
        (numbers(values, pa.timestamp("us", tz="UTC")), pa.array(values).cast(pa.timestamp("us", tz="UTC"))),
        (booleans(odd), pa.array(odd)),
        (repeated("tö", count), pa.array(["tö"] * count, pa.string())),
        (repeated("", count), pa.array([""] * count, pa.string())),
        (lists(np.arange(count + 1), numbers(values), pa.list_(pa.int64())),
         pa.array([[int(one)] for one in values], pa.list_(pa.int64()))),
    ]  # fmt: skip
    for ours, theirs in made:
        ours.validate(full=True)
        assert ours.equals(theirs)
    assert one_text("x").to_pylist() == ["x"]


def test_plain_rows_need_no_pandas() -> None:
    """Importing it takes longer than a small micro-batch; Spark starts several processes for a query."""
    program = """
import sys
import numpy as np
import pyarrow as pa
from headrace.records.build import Record, build_batch
from headrace.records.batch import scan
from headrace.spark.columns.encode import encode_batches
from headrace.spark import source, fused
from headrace.spark.arrow import ColumnLayout, raw_batches, record_batches
from headrace.spark.fetching import Piece
from headrace.spark.plan import OffsetRange
from headrace.spark.from_numpy import numbers, repeated
from headrace.spark.sink_columns import SinkBatch, partition_rows
from headrace.spark.weave import weave
buffer = build_batch([Record(b"k%d" % i, None if i % 3 else b"v", (("h", None),)) for i in range(9)], wall_ms=1)
piece, wanted = Piece(buffer, list(scan(buffer))), OffsetRange("t", 0, 0, 9)
columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
(rows,) = record_batches(piece, wanted, ColumnLayout(columns))
raw_batches(piece, wanted, ("topic", "batch"))
for part in partition_rows(rows.select(["key", "offset"]).rename_columns(["key", "value"]).select(["key"])
                           .append_column("value", rows.column("key")), "t", 3, 0, 1):
    list(encode_batches(part.keys, part.values, part.timestamps, max_batch_bytes=1000, weave=weave))
nulls = pa.py_buffer(np.packbits(np.arange(9) % 3 == 0, bitorder="little"))
places = pa.Array.from_buffers(pa.int32(), 9, [nulls, *numbers(np.arange(9, dtype=np.int32) % 2).buffers()[1:]])
times = pa.Array.from_buffers(rows.column("timestamp").type, 9, [nulls, *rows.column("timestamp").buffers()[1:]])
full = pa.RecordBatch.from_arrays(
    [rows.column("value"), rows.column("value"), repeated("t", 9), places, times, rows.column("headers")],
    names=["key", "value", "topic", "partition", "timestamp", "headers"])
assert SinkBatch(full, None).topics() == ["t"] and SinkBatch(full, None).of_topic("t").num_rows == 9
for part in partition_rows(full.slice(1), "t", 2, 0, 1):
    list(encode_batches(part.keys, part.values, part.timestamps, part.headers, max_batch_bytes=1000, weave=weave))
assert "pandas" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
