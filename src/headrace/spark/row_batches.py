"""Codec: rows of Python as Arrow batches. Spark 4.0 has no stream writer that gets Arrow; from 4.1 on nobody comes by here."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.types import Row, StructType

from headrace.spark.versions import arrow_schema

_ROWS = 10_000


def batches_of(rows: Iterator[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    wanted = arrow_schema(schema)
    while some := list(islice(rows, _ROWS)):
        columns = [pa.array([_plain(row[at]) for row in some], field.type) for at, field in enumerate(wanted)]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)


def _plain(value: Any) -> Any:
    """A struct as a dictionary; a moment, which Spark gives in the zone of the host and without saying so, in UTC."""
    if isinstance(value, Row):
        return {name: _plain(one) for name, one in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value
